/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - `quern search`: candidates from generators, each judged, the best kept. The work is workbench/search_*.c's
 * and the judge's. */
#include "cli/search.h"
#include "core/core.h"
#include "workbench/build.h"
#include "workbench/generate_mutate.h"
#include "workbench/sampler.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef qn_search_words order;

static QN_READER(read_generator)
{
  qn_search_words *w = to;
  if (w->generators.n == QN_SEARCH_GENERATORS) argp_error(state, "more than %d generators", QN_SEARCH_GENERATORS);
  if (!*text) argp_error(state, "--generator is empty");
  w->generators.at[w->generators.n++] = text;
}

/* A file, or a folder from before. */
static QN_READER(read_out) { *(const char **)to = access(text, W_OK) ? qn_verb_option_output(state, text) : text; }

static void check_given(const struct argp_state *state, void *input)
{
  const qn_search_words *w = input;
  if (w->generate) return;
  if (!w->problem) argp_error(state, "which problem? a kernel's folder, an op, or a PyTorch file");
  if (!w->generators.n && !w->best && !w->confirm)
    argp_error(state, "which generator? --generator space, mutate, graph, or a program");
}

static const qn_verb_option options[] = {
    {"generator", 'g', "space|mutate|graph|FILE",
     "Who proposes candidates; space, mutate, graph, or a program (a command in quotes); repeatable", 0,
     .read = read_generator},
    {"budget", 0, "TIME", "Stop after this time: 90s, 20m, 2h; default 10m", 0, QN_TO_SECONDS(budget_s, 1e7)},
    {"most", 0, "N", "Stop after N candidates were judged", 0, QN_TO_U64(most, 1, 1000000000)},
    QN_OPTION_BACKEND,
    {"seed", 0, "N", "Of the generators' order (default 1)", 0, QN_TO_U64(seed, 0, 1L << 48)},
    {"out", 'o', "FILE", "Write the source of the best; a folder where it is one", 0, QN_READ(read_out, out)},
    {"best", 0, NULL, "Print what is kept of this problem, and search nothing", 1, QN_TO_FLAG(best)},
    {"store", 0, "DIR", "Where all that is seen is kept; default: $XDG_STATE_HOME/quern/search", 1, QN_TO_WORD(store)},
    {"fresh", 0, NULL, "Take nothing up that an earlier search saw", 1, QN_TO_FLAG(fresh)},
    {"patience", 0, "TIME", "Drop a generator that gives no answer for so long; default 5m", 1,
     QN_TO_SECONDS(patience_s, 1e6)},
    {"time-limit", 0, "TIME", "Stop a judge that takes longer for one candidate; default 10m", 1,
     QN_TO_SECONDS(limit_s, 1e6)},
    {"strategy", 0, "NAME", "Of space: halving (the default), exhaustive or random", 2, QN_TO_STRATEGY(strategy)},
    {"variants", 0, "NAME,...", "Of space: only these", 2, QN_TO_WORD(variants)},
    {"types", 0, "TYPES", "Of space over an op: one row of its types", 2, QN_TO_WORD(types)},
    {"shapes", 0, "RxC,...", "Of space over an op: rows and columns, as in `quern tune`", 2, QN_TO_WORD(shapes)},
    {"workload", 'w', "WORKLOAD", "One of the folder's workloads; default: of space the first, else the judge's choice",
     2, QN_TO_WORD(workload)},
    {"look", 0, "SECONDS", "Of space: time of one look at a variant", 2, QN_TO_SECONDS(look_s, 1e6)},
    {"prove", 0, "SECONDS", "Of space: time of the last comparison", 2, QN_TO_SECONDS(prove_s, 1e6)},
    {"judge", 0, "FILE", "A program instead of the judge", 2, QN_TO_WORD(judge), .flags = OPTION_HIDDEN},
    {"generate-here", 0, "NAME", "Be this generator", 2, QN_TO_WORD(generate), .flags = OPTION_HIDDEN},
    {"confirm-here", 0, "NAME", "Prove this variant", 2, QN_TO_WORD(confirm), .flags = OPTION_HIDDEN},
    {0},
};

static volatile int stopped;
static void stop(int signal_number)
{
  (void)signal_number;
  stopped = 1;
}

/* ---- a search ---- */

typedef struct session {
  const qn_search_words *words;
  qn_search_problem problem;
  qn_device device;
  char backend[32], command[4096], errors[QN_SEARCH_PATH];
  json_t *who;
  qn_search_store store;
  qn_space space;
  qn_progress progress;
} session;

/* The version of PyTorch that the judge will use. */
static void add_torch(session *s)
{
  static const char script[] = "import importlib.metadata as m; print(m.version('torch'), end='')";
  char said[QN_PROGRAM_SAID];
  qn_text text = {0};
  int ended;
  const char *const argv[] = {qn_program_python(), "-c", script, NULL};
  const int errors = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (qn_program_run(argv, NULL, errors, 64, 20, 5000, &text, &ended, said) != QN_OK) return;
  json_object_set_new(s->who, "torch", json_string(text.at ? text.at : ""));
  qn_text_free(&text);
}

static qn_status find_who(session *s)
{
  qn_device_info info = {.size = sizeof info};
  const qn_search_words *w = s->words;
  qn_try(qn_verb_device(w->backend, &s->device));
  qn_try(qn_device_query(s->device, &info));
  qn_require(s->problem.kind != QN_PROBLEM_MODEL || s->device.kind != QN_EMULATOR,
             "a PyTorch file runs on cpu or cuda, not on the emulator");
  qn_verb_device_text(s->device, s->backend);
  s->who = json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:s}", "backend", s->backend, "device", info.name, "arch",
                     info.arch, "driver", info.driver_version, "compiler", info.compiler_version, "version",
                     qn_version(), "commit", qn_build_commit);
  if (s->problem.kind == QN_PROBLEM_MODEL) add_torch(s);
  return QN_OK;
}

static bool has_space(const qn_search_words *w)
{
  for (size_t k = 0; k < w->generators.n; k++)
    if (!strcmp(w->generators.at[k], "space")) return true;
  return false;
}

static qn_status check_words(const qn_search_words *w, const qn_search_problem *p)
{
  const bool op = p->kind == QN_PROBLEM_OP;
  size_t spaces = 0;
  for (size_t k = 0; k < w->generators.n; k++) {
    spaces += !strcmp(w->generators.at[k], "space");
    qn_require(!op || !strcmp(w->generators.at[k], "space"),
               "%s is an op, whose candidates are its variants: --generator space", p->name);
    qn_require(p->kind == QN_PROBLEM_MODEL || strcmp(w->generators.at[k], "graph") != 0,
               "%s is a kernel's folder, and graph compiles PyTorch files: --generator space, mutate or a program",
               p->name);
  }
  qn_require(spaces <= 1, "--generator space is given %zu times, once is all there is", spaces);
  qn_require(!spaces || p->kind != QN_PROBLEM_MODEL,
             "%s is a PyTorch file and has no tuning space: --generator graph, mutate or a program", p->name);
  qn_require(op || !(w->types || w->shapes), "--types and --shapes are for ops");
  qn_require(p->kind == QN_PROBLEM_KERNEL || !w->workload, "--workload is for a kernel's folder");
  qn_require(op || !w->out || w->best || w->generators.n > spaces,
             "--out: what space finds is in the tune table; another generator gives a source");
  qn_require(!op || !w->out, "--out: an op's best variants are in its tune table (quern tune %s --list)", p->name);
  return QN_OK;
}

static qn_status open_session(session *s)
{
  const qn_search_words *w = s->words;
  char root[QN_SEARCH_PATH];
  qn_try(qn_search_problem_open(&s->problem, w->problem, w->workload));
  qn_try(check_words(w, &s->problem));
  qn_try(find_who(s));
  const ssize_t n = readlink("/proc/self/exe", s->command, sizeof s->command - 1);
  qn_require(n > 0, "this command's own file is not known");
  s->command[n] = 0;
  if (w->confirm) return QN_OK;
  if (!w->store) qn_try(qn_search_store_place(root));
  if (w->best) return qn_search_store_folder(w->store ? w->store : root, &s->problem, s->store.folder);
  json_t *generators = json_array();
  for (size_t k = 0; k < w->generators.n; k++) json_array_append_new(generators, json_string(w->generators.at[k]));
  json_t *begin = json_pack("{s:s, s:s, s:o, s:f, s:I}", "problem", s->problem.path, "problem_hash", s->problem.hash,
                            "generators", generators, "budget_s", w->budget_s, "most", (json_int_t)w->most);
  const qn_status status =
      qn_search_store_open(&s->store, w->store ? w->store : root, &s->problem, s->who, w->seed, w->fresh, begin);
  json_decref(begin);
  snprintf(s->errors, sizeof s->errors, "%s/judge.err", s->store.folder);
  return status;
}

static void close_session(session *s)
{
  qn_search_store_close(&s->store);
  qn_search_problem_close(&s->problem);
  json_decref(s->who);
  qn_release(s->space.choice);
}

/* ---- space ---- */

static qn_status confirm_space(session *s)
{
  qn_space *p = &s->space;
  size_t kept = 0;
  for (size_t k = 0; k < p->n; k++) {
    bool is = false;
    if (!strcmp(p->choice[k].name, p->choice[k].over))
      printf("  %-44s %s, which is in force, stays\n", p->choice[k].place, p->choice[k].name);
    else
      qn_try(qn_space_confirm(p, &p->choice[k], &is));
    kept += is;
  }
  printf("  kept in the tune table: %zu of %zu\n", kept, p->n);
  return QN_OK;
}

/* Its part of the time is as large as any other generator's. */
static qn_status search_space(session *s)
{
  const qn_search_words *w = s->words;
  s->space = (qn_space){.words = w,
                        .problem = &s->problem,
                        .store = &s->store,
                        .command = s->command,
                        .backend = s->backend,
                        .device = s->device,
                        .generator = w->generators.n}; /* the others have the numbers before */
  const int64_t from_ns = qn_now_ns();
  qn_try(qn_space_look(&s->space, w->budget_s / (double)w->generators.n, &s->progress));
  qn_progress_hide(&s->progress);
  const qn_tune_outcome *out = &s->space.outcome;
  printf("space: %zu variants timed, %zu not possible, %zu wrong, in %zu places; %.1f s\n", out->looked,
         out->impossible, out->wrong, out->places, (double)(qn_now_ns() - from_ns) * 1e-9);
  fflush(stdout);
  return confirm_space(s);
}

/* ---- what came of it ---- */

static void print_result(const session *s, const qn_search_order *o, const qn_search_result *r)
{
  printf("%zu judged, %zu known before; %s\n", r->judged, r->repeated, r->reason);
  for (size_t k = 0; k < r->n_fates; k++) printf("  %6zu  %s\n", r->fate[k].n, r->fate[k].word);
  if (o->n_generators) printf("  offered  judged  generator\n");
  for (size_t k = 0; k < o->n_generators; k++)
    printf("  %7zu %7zu  %s%s%s%s\n", r->of[k].offered, r->of[k].judged, o->generator[k], *r->of[k].ended ? " (" : "",
           r->of[k].ended, *r->of[k].ended ? ")" : "");
  if (r->n_steps) printf("  seconds  speed-up  by\n");
  for (size_t k = 0; k < r->n_steps; k++) {
    const qn_search_step *step = &r->step[k];
    printf("  %7.1f  %7.3fx  %s\n", step->seconds, step->speedup, *step->by ? step->by : "the problem itself");
  }
  printf("lines: %s\n", s->store.file);
}

static void print_kept(const session *s, const qn_search_kept *k)
{
  if (!k->entry) {
    printf("the baseline stays: %s\n", k->why);
    return;
  }
  const json_t *e = k->entry,
               *better = json_object_get(json_object_get(json_object_get(e, "verdict"), "speedup"), "better");
  printf("best: %.3fx", json_number_value(json_object_get(e, "speedup")));
  const json_t *interval = json_object_get(better, "interval");
  if (json_is_number(json_array_get(interval, 0)) && json_is_number(json_array_get(interval, 1)))
    printf(" [%.3f, %.3f]", json_number_value(json_array_get(interval, 0)),
           json_number_value(json_array_get(interval, 1)));
  const char *of = json_string_value(json_object_get(better, "of")), *by = json_string_value(json_object_get(e, "by"));
  const char *note = json_string_value(json_object_get(e, "note"));
  printf(" over %s, measured again; from %s%s%s\n  %s\n", of ? of : "the baseline", by ? by : "?",
         note && *note ? ": " : "", note ? note : "", k->path);
  printf("again: quern judge %s %s --backend %s --level full%s%s\n", s->problem.path, k->path, s->backend,
         s->words->workload ? " --workload " : "", s->words->workload ? s->words->workload : "");
}

/* The winner's source, or else the baseline's. */
static qn_status write_out(const session *s, const qn_search_kept *k)
{
  qn_search_candidate own = {.content = NULL};
  if (!s->words->out) return QN_OK;
  qn_status status = k->entry ? QN_OK : qn_search_candidate_own(&s->problem, &own);
  if (status == QN_OK) status = qn_search_candidate_write_to(k->entry ? k->content : own.content, s->words->out);
  if (status == QN_OK) printf("%s written: %s\n", s->words->out, k->entry ? "the best" : "the baseline");
  qn_search_candidate_close(&own);
  return status;
}

static qn_status search_others(session *s)
{
  const qn_search_words *w = s->words;
  qn_search_result *r;
  qn_search_kept kept = {.entry = NULL};
  size_t tried;
  const qn_search_bench bench = {.problem = &s->problem,
                                 .command = s->command,
                                 .judge = w->judge,
                                 .workload = w->workload,
                                 .backend = s->backend,
                                 .errors = s->errors,
                                 .limit_s = w->limit_s};
  const double left = w->budget_s - (double)(qn_now_ns() - s->store.began_ns) * 1e-9;
  qn_search_order ask = {.problem = &s->problem,
                         .bench = &bench,
                         .store = &s->store,
                         .budget_s = left > 1e-3 ? left : 1e-3,
                         .patience_s = w->patience_s,
                         .most = w->most,
                         .seed = w->seed,
                         .stop = &stopped,
                         .progress = &s->progress};
  for (size_t k = 0; k < w->generators.n; k++)
    if (strcmp(w->generators.at[k], "space") != 0) ask.generator[ask.n_generators++] = w->generators.at[k];
  qn_try(qn_try_allocate(&r, sizeof *r, "the search's result"));
  qn_status status = qn_search_go(&ask, r);
  qn_progress_hide(&s->progress);
  if (status == QN_OK) print_result(s, &ask, r);
  fflush(stdout);
  if (status == QN_OK) status = qn_search_select(&ask, &kept, &tried);
  qn_progress_hide(&s->progress);
  if (status == QN_OK) print_kept(s, &kept), status = write_out(s, &kept);
  qn_search_kept_close(&kept);
  qn_release(r);
  return status;
}

static qn_status show_best(const session *s)
{
  qn_search_kept kept;
  qn_require(s->problem.kind != QN_PROBLEM_OP, "an op's best variants are in its tune table: quern tune %s --list",
             s->problem.name);
  qn_search_kept_read(s->store.folder, &s->problem, s->who, &kept);
  print_kept(s, &kept);
  const qn_status status = write_out(s, &kept);
  qn_search_kept_close(&kept);
  return status;
}

static void catch_signals(void)
{
  struct sigaction action = {.sa_handler = stop};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

static qn_status search(session *s)
{
  const bool space = has_space(s->words);
  qn_progress_begin(&s->progress, "search", 0);
  qn_status status = space ? search_space(s) : QN_OK;
  catch_signals();
  if (status == QN_OK && s->words->generators.n > space) status = search_others(s);
  if (s->store.left_out)
    fprintf(stderr, "quern search: %s has %zu lines that are none; they were passed by\n", s->store.file,
            s->store.left_out);
  qn_progress_end(&s->progress);
  return status;
}

static int run(int argc, char **argv)
{
  qn_search_words w = {.budget_s = 600, .patience_s = 300, .limit_s = 600, .seed = 1, .strategy = QN_STRATEGY_HALVING};
  qn_verb_parse(&qn_verb_search, argc, argv, &w);
  signal(SIGPIPE, SIG_IGN);
  if (w.generate) {
    const qn_status made = qn_generate_mutate(stdin, stdout);
    return made == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_search, made);
  }
  session s = {.words = &w, .store.descriptor = -1};
  int result = QN_EXIT_OK;
  qn_status status = open_session(&s);
  if (status == QN_OK && w.confirm)
    result = qn_space_confirm_here(&w, &s.problem, s.device);
  else if (status == QN_OK)
    status = w.best ? show_best(&s) : search(&s);
  if (status != QN_OK) result = qn_complain_status(&qn_verb_search, status);
  close_session(&s);
  return result;
}

const qn_verb qn_verb_search = {
    .name = "search",
    .brief = "search for a faster candidate with generators",
    .run = run,
    .options = options,
    .argument = {QN_TO_ONE(problem), .doc = "problem"},
    .end = check_given,
    .args_doc = "DIR|OP|FILE.py",
    .doc = "Search for a faster candidate of a problem: a kernel's folder, an op, or a PyTorch file as KernelBench has "
           "them. Generators propose, `quern judge` decides, and the best is judged once more before it is kept. The "
           "same command goes on where it was stopped.\v"
           "Generators: \"space\" is the tuner over the op's variants or the kernel's member \"tune\"; its winners go "
           "into the tune table. \"mutate\" changes launch shape, templates, constants and unrolling of a source. "
           "\"graph\" compiles a PyTorch file as python -m quern.optimize does, one candidate for each of its "
           "alternatives. Any program that speaks the protocol of docs/searching.md is one; python3 -m "
           "quern.generators.chat asks a language model.",
};
