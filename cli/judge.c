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

enum { MOST_CANDIDATES = 1024 };

typedef struct order {
  qn_judge_request ask;
  const char *candidate[MOST_CANDIDATES], *backend, *json, *inside;
  size_t n;
  int memory_gib; /* 0: not said */
} order;

static QN_READER(read_level)
{
  *(qn_judge_level *)to =
      (qn_judge_level)qn_verb_option_word(state, "level", text, qn_judge_levels, " (levels: quick, full, deep)");
}

static QN_READER(read_json) { *(const char **)to = strcmp(text, "-") ? qn_verb_option_output(state, text) : text; }

static QN_READER(read_argument)
{
  order *o = to;
  if (o->n == MOST_CANDIDATES) argp_error(state, "more than %d candidates", MOST_CANDIDATES);
  *(o->ask.problem ? &o->candidate[o->n++] : &o->ask.problem) = text;
}

static void check_words(const struct argp_state *state, void *input)
{
  const order *o = input;
  if (o->inside) return;
  if (!o->ask.problem) argp_error(state, "which problem? quern judge PROBLEM CANDIDATE");
  if (!o->n) argp_error(state, "which candidate? quern judge %s CANDIDATE", o->ask.problem);
}

static const qn_verb_option options[] = {
    QN_OPTION_BACKEND,
    {"level", 0, "quick|full|deep", "How much is verified and timed (default: quick)", 0,
     QN_READ(read_level, ask.level)},
    {"workload", 'w', "WORKLOAD", "The timed workload; default: the first that is not too large", 0,
     QN_TO_WORD(ask.workload)},
    {"seed", 0, "N", "Seed of inputs and hidden sizes; default: another one each time", 0,
     QN_TO_U64(ask.seed, 1, 1L << 48)},
    {"seconds", 0, "S", "Most time for the timed calls of a candidate", 0, QN_TO_SECONDS(ask.seconds, 3600)},
    {"time-limit", 0, "S", "Most time of a compile or a launch (default: 60)", 0,
     QN_TO_SECONDS(ask.limits.seconds, 3600)},
    {"memory", 0, "GIB", "Most memory of a candidate's process, besides its tensors (default: 4)", 0,
     QN_TO_INT(memory_gib, 1, 1024)},
    QN_OPTION_THREADS(0, ask.threads),
    {"untuned", 0, NULL, "Ignore the folders' tune tables", 0, QN_TO_FLAG(ask.untuned)},
    {"json", 'j', "FILE", "Append a line for each candidate to FILE; -: print these alone", 0,
     QN_READ(read_json, json)},
    {"inside", 0, "PHASE", "The process that holds a candidate", 0, QN_TO_WORD(inside), .flags = OPTION_HIDDEN},
    {0},
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
  char seed[24] = "", limit[32] = "", memory[16] = "";
  if (o->ask.seed) snprintf(seed, sizeof seed, "%llu", (unsigned long long)o->ask.seed);
  if (o->ask.limits.seconds > 0) snprintf(limit, sizeof limit, "%g", o->ask.limits.seconds);
  if (o->memory_gib) snprintf(memory, sizeof memory, "%d", o->memory_gib);
  const char *const pairs[][2] = {{"--check", qn_judge_levels[o->ask.level]},
                                  {"--seed", seed},
                                  {"--time-limit", limit},
                                  {"--memory", memory},
                                  {"--json", o->json ? o->json : ""},
                                  {"--device", o->backend ? o->backend : ""}};
  for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
    if (!*pairs[k][1]) continue;
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
  order o = {.n = 0};
  qn_progress progress;
  int worst = QN_EXIT_OK;
  qn_verb_parse(&qn_verb_judge, argc, argv, &o);
  if (o.inside) return qn_judge_inside(o.inside);
  if (is_python(o.ask.problem)) return run_python(&o);
  if (!(o.ask.limits.seconds > 0)) o.ask.limits.seconds = 60;
  o.ask.limits.memory_bytes = (int64_t)(o.memory_gib ? o.memory_gib : 4) << 30;
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

const qn_verb qn_verb_judge = {
    .name = "judge",
    .brief = "judge candidates for a kernel: correct, and how fast?",
    .run = run,
    .options = options,
    .argument = {.read = read_argument},
    .end = check_words,
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
