/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - `quern judge`: the arguments; a KernelBench file goes to the Python judge, all else is workbench/judge.c.
 */
#include "workbench/judge.h"
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/program.h"
#include "workbench/record.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_LEVEL = 256, KEY_SEED, KEY_LIMIT, KEY_MEMORY, KEY_SECONDS, KEY_UNTUNED, KEY_INSIDE };
enum { MOST_CANDIDATES = 1024 };

typedef struct order {
  qn_judge_request ask;
  const char *candidate[MOST_CANDIDATES], *backend, *level, *seed, *limit, *memory, *json, *inside;
  size_t n;
} order;

static const struct argp_option options[] = {
    {"backend", 'b', "cpu|cuda[:N]|emulator", 0, "The device; default: QUERN_DEVICE, or the best one", 0},
    {"level", KEY_LEVEL, "quick|full|deep", 0, "How much is verified and timed (default: quick)", 0},
    {"workload", 'w', "WORKLOAD", 0, "The timed workload; default: the first that is not too large", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of inputs and hidden sizes; default: another one each time", 0},
    {"seconds", KEY_SECONDS, "S", 0, "Most time for the timed calls of a candidate", 0},
    {"time-limit", KEY_LIMIT, "S", 0, "Most time of a compile or a launch (default: 60)", 0},
    {"memory", KEY_MEMORY, "GIB", 0, "Most memory of a candidate's process, besides its tensors (default: 4)", 0},
    {"threads", 'n', "N", 0, "Threads on the CPU; default: all usable ones", 0},
    {"untuned", KEY_UNTUNED, NULL, 0, "Ignore the folders' tune tables", 0},
    {"json", 'j', "FILE", 0, "Append a line for each candidate to FILE; -: print these alone", 0},
    {"inside", KEY_INSIDE, "PHASE", OPTION_HIDDEN, "The process that holds a candidate", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
  order *o = state->input;
  switch (key) {
  case 'b': o->backend = qn_verb_backend(state, arg); return 0;
  case KEY_LEVEL:
    o->level = arg;
    for (int k = 0; qn_judge_levels[k]; k++)
      if (!strcmp(arg, qn_judge_levels[k])) return o->ask.level = (qn_judge_level)k, 0;
    argp_error(state, "there is no level %s%s (levels: quick, full, deep)", arg, qn_suggest(arg, qn_judge_levels));
    return 0;
  case 'w': o->ask.workload = arg; return 0;
  case KEY_SEED:
    o->seed = arg;
    o->ask.seed = (uint64_t)qn_verb_number(state, "seed", arg, 1, 1L << 48);
    return 0;
  case KEY_SECONDS: o->ask.seconds = qn_verb_seconds(state, "seconds", arg, 3600); return 0;
  case KEY_LIMIT:
    o->limit = arg;
    o->ask.limits.seconds = qn_verb_seconds(state, "time-limit", arg, 3600);
    return 0;
  case KEY_MEMORY:
    o->memory = arg;
    o->ask.limits.memory_bytes = (int64_t)qn_verb_number(state, "memory", arg, 1, 1024) << 30;
    return 0;
  case 'n': o->ask.threads = (int)qn_verb_number(state, "threads", arg, 1, 1024); return 0;
  case KEY_UNTUNED: o->ask.untuned = true; return 0;
  case 'j': o->json = strcmp(arg, "-") ? qn_verb_output(state, arg) : arg; return 0;
  case KEY_INSIDE: o->inside = arg; return 0;
  case ARGP_KEY_ARG:
    if (o->n == MOST_CANDIDATES) argp_error(state, "more than %d candidates", MOST_CANDIDATES);
    *(o->ask.problem ? &o->candidate[o->n++] : &o->ask.problem) = arg;
    return 0;
  case ARGP_KEY_END:
    if (o->inside) return 0;
    if (!o->ask.problem) argp_error(state, "which problem? quern judge PROBLEM CANDIDATE");
    if (!o->n) argp_error(state, "which candidate? quern judge %s CANDIDATE", o->ask.problem);
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "PROBLEM CANDIDATE...",
    .doc = "Judge candidates for a kernel: correct? how fast beside the kernel that is there? how close to the "
           "machine's limit? or refused, and why.\v"
           "PROBLEM is a kernel's folder with a reference, whose own body is the baseline, or a KernelBench file (.py; "
           "python -m quern.kernelbench judges it). CANDIDATE is a body (.metal, .cu), a kernel's folder with the same "
           "inputs and outputs, or for a KernelBench file one with ModelNew.\n"
           "A candidate runs in isolation: processes of its own without files and network, with limits of time and "
           "memory. Every launch, timed ones too, gets data that no launch had before, and all outputs are compared "
           "with the reference in double, computed here.\n"
           "Exit status 0: correct (faster, same, slower or unclear); 1: wrong, broken or refused; 2: the problem or "
           "the call cannot be judged; 3: the device is missing.",
};

/* ---- KernelBench files ---- */
static bool is_python(const char *path)
{
  const size_t length = strlen(path);
  return length > 3 && !strcmp(path + length - 3, ".py");
}

static int run_python(const order *o)
{
  const char *program = qn_program_python(); /* as argv[0] too: by it Python finds its packages */
  const char *argv[2 * MOST_CANDIDATES + 32] = {program, "-m", "quern.kernelbench", "--ref-problem", o->ask.problem};
  size_t n = 5;
  if (o->ask.workload || o->ask.threads || o->ask.untuned || o->ask.seconds > 0)
    return qn_complain(&qn_verb_judge, QN_EXIT_USAGE,
                       "--workload, --seconds, --threads and --untuned are for a kernel's folder, not for %s",
                       o->ask.problem);
  for (size_t k = 0; k < o->n; k++) {
    argv[n++] = "--tgt-problem";
    argv[n++] = o->candidate[k];
  }
  const char *const pairs[][2] = {{"--check", o->level},   {"--seed", o->seed}, {"--time-limit", o->limit},
                                  {"--memory", o->memory}, {"--json", o->json}, {"--device", o->backend}};
  for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
    if (!pairs[k][1]) continue;
    argv[n++] = pairs[k][0];
    argv[n++] = pairs[k][1];
  }
  execvp(program, (char *const *)(uintptr_t)argv);
  return qn_complain(&qn_verb_judge, QN_EXIT_USAGE, "%s is judged by the Python package, and %s cannot be run: %s",
                     o->ask.problem, program, strerror(errno));
}

/* ---- kernels' folders ---- */
static int status_of(const qn_judge_verdict *v)
{
  return v->word <= QN_JUDGED_UNCLEAR ? QN_EXIT_OK : v->word == QN_JUDGED_NOT ? QN_EXIT_USAGE : QN_EXIT_FAILED;
}

static qn_status tell(const order *o, uint64_t seed, const char *candidate, const qn_judge_verdict *v)
{
  const bool alone = o->json && !strcmp(o->json, "-");
  char *line = NULL;
  if (!alone) qn_judge_print(stdout, candidate, v);
  fflush(stdout);
  if (!o->json) return QN_OK;
  qn_try(qn_judge_line(&o->ask, seed, candidate, v, &line));
  const qn_status status = alone ? QN_OK : qn_line_append(o->json, line);
  if (alone) {
    puts(line);
    fflush(stdout);
  }
  free(line);
  return status;
}

static qn_status judge_all(order *o, int *worst)
{
  qn_judge *judge = NULL;
  char why[1200];
  qn_status status = qn_judge_open(&judge, &o->ask, why, sizeof why);
  for (size_t k = 0; status == QN_OK && k < o->n; k++) {
    qn_judge_verdict v = {.word = QN_JUDGED_NOT};
    snprintf(v.reason, sizeof v.reason, "%s", why);
    if (!*why) status = qn_judge_candidate(judge, o->candidate[k], &v);
    qn_progress_hide(o->ask.progress);
    if (status == QN_OK) status = tell(o, qn_judge_seed(judge), o->candidate[k], &v);
    if (status == QN_OK && status_of(&v) > *worst) *worst = status_of(&v);
    qn_judge_verdict_clear(&v);
  }
  qn_judge_close(&judge);
  return status;
}

static int run(int argc, char **argv)
{
  order o = {.ask.limits = {60, INT64_C(4) << 30}};
  qn_progress progress;
  int worst = QN_EXIT_OK;
  qn_verb_parse(&qn_verb_judge, argc, argv, &o);
  if (o.inside) return qn_judge_inside(o.inside);
  if (is_python(o.ask.problem)) return run_python(&o);
  const qn_op_info *op;
  if (!qn_is_kernel_folder(o.ask.problem) && qn_verb_op(o.ask.problem, &op) == QN_OK)
    return qn_complain(&qn_verb_judge, QN_EXIT_USAGE,
                       "%s is an op: `quern check %s` proves its variants, `quern tune %s` times them", op->name,
                       op->name, op->name);
  qn_device_info cpu = {.size = sizeof cpu};
  qn_status status = qn_verb_device(o.backend, &o.ask.device);
  if (status == QN_OK) status = qn_device_query((qn_device){QN_CPU, 0}, &cpu);
  if (!o.ask.threads) o.ask.threads = cpu.multiprocessors;
  qn_progress_begin(&progress, "judge", 0);
  o.ask.progress = &progress;
  if (status == QN_OK) status = judge_all(&o, &worst);
  qn_progress_end(&progress);
  if (status == QN_OK) return worst;
  const int code = qn_complain_status(&qn_verb_judge, status);
  return code == QN_EXIT_ENVIRONMENT ? code : QN_EXIT_USAGE;
}

const qn_verb qn_verb_judge = {"judge", "judge candidates for a kernel: correct, and how fast?", run, &argp};
