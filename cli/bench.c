/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - `quern bench`: reads what is asked for, has it measured, prints it and keeps it. */
#include "cli/kernel.h"
#include "core/core.h"
#include "op/call.h"
#include "workbench/bench.h"
#include "workbench/beside.h"
#include "workbench/break_even.h"
#include "workbench/first_use.h"
#include "workbench/random_bench.h"
#include "workbench/record.h"
#include "workbench/settings.h"
#include "workbench/subject_stage.h"
#include "workbench/table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETTINGS = 32 };
static const double PROBLEM_SECONDS = 0.5; /* of --random, unless --seconds says otherwise */

typedef struct order {
  const char *op, *workload, *shape, *file, *backend, *types, *json, *trace;
  QN_WORD_LIST(MOST_SETTINGS) settings;
  int timer; /* QN_TIMER_COUNT: all */
  int threads;
  double seconds;
  uint64_t seed, first, most_bytes; /* first, most_bytes: UINT64_MAX, not said */
  int random;                       /* problems; 0: none */
  bool list, hot, no_unfused, first_use, break_even, ceilings_here;
  enum first_here { NOT_HERE, HERE, HERE_EMPTY } first_here;
} order;

static QN_READER(read_timer)
{
  const char *names[QN_TIMER_COUNT + 2] = {NULL};
  for (int k = 0; k < QN_TIMER_COUNT; k++) names[k] = qn_timer_name((qn_timer)k);
  names[QN_TIMER_COUNT] = "all";
  *(int *)to = qn_verb_option_word(state, "timer", text, names, "");
}

static QN_READER(read_first_here) { *(enum first_here *)to = text ? HERE_EMPTY : HERE; }

static const qn_verb_option options[] = {
    {"workload", 'w', "NAME", "The data, see below; default: gpt2-124m, or the op's own first workload", 0,
     QN_TO_WORD(workload)},
    {"shape", 0, "TEXT",
     "Shapes instead of a workload: '24*768x3072 40', a list's, or 'm=16 n=64 k=32'; shift=N begins data N elements "
     "off "
     "a boundary, apart=N leaves N elements between rows",
     0, QN_TO_WORD(shape)},
    {"params", 'p', "FILE", "The tensors that FILE.safetensors lists, instead of a workload", 0, QN_TO_WORD(file)},
    QN_OPTION_BACKEND,
    {"types", 0, "LIST",
     "Types by role, such as 'bf16 bf16 bf16 f32'; the first row that begins so, "
     "or the type that tells rows apart",
     0, QN_TO_WORD(types)},
    {"set", 0, "NAME=VALUE", "A parameter of the op; may be repeated", 0, QN_TO_WORDS(settings, MOST_SETTINGS)},
    {"timer", 't', "event|simple|do_bench|all", "The timer; default: event", 1, QN_READ(read_timer, timer)},
    {"hot", 0, NULL, "Leave the device's cache as it is between calls", 1, QN_TO_FLAG(hot)},
    {"seconds", 0, "S", "Most time for a measurement's rounds", 1, QN_TO_SECONDS(seconds, 3600)},
    QN_OPTION_THREADS(1, threads),
    {"no-unfused", 0, NULL, "Do not compare with the unfused form", 1, QN_TO_FLAG(no_unfused)},
    {"first-use", 0, NULL, "Also time a new process's first use of the kernel", 1, QN_TO_FLAG(first_use)},
    {"first-use-here", 0, "empty", "The process that --first-use measures", 1, QN_READ(read_first_here, first_here),
     .flags = OPTION_HIDDEN | OPTION_ARG_OPTIONAL},
    {"ceilings-here", 0, NULL, "The ceilings alone, a round for each line of the input", 1, QN_TO_FLAG(ceilings_here),
     .flags = OPTION_HIDDEN},
    {"break-even", 0, NULL, "Find the smallest size from which the fused form is faster", 1, QN_TO_FLAG(break_even)},
    {"seed", 0, "N", "Seed of the data, or of the problems of --random", 1, QN_TO_U64(seed, 0, 1L << 48)},
    {"random", 0, "N",
     "Time N problems drawn from the op's domain: rows of types, shapes, layouts and settings, the same by seed on "
     "every machine, half a second each unless --seconds says otherwise; OP is required",
     3, QN_TO_INT(random, 1, 1 << 20)},
    {"first", 0, "K", "The number of the first problem; default: 0", 3, QN_TO_U64(first, 0, 1L << 48)},
    {"most-bytes", 0, "B", "Draw a problem again whose tensors have more bytes; default: 268435456, on every device", 3,
     QN_TO_U64(most_bytes, 1, 1L << 48)},
    {"list", 0, NULL, "Print the problems as lines of JSON, and time nothing", 3, QN_TO_FLAG(list)},
    {"json", 'j', "FILE", "Append each measurement with its raw samples as a line of JSON", 2, QN_TO_OUTPUT(json)},
    {"trace", 0, "FILE", "Write a Chrome trace: calls, steps, and the kernels of one step", 2, QN_TO_OUTPUT(trace)},
    {0},
};

/* Options that exclude each other, or need one another. */
static void check_words(const struct argp_state *state, void *input)
{
  order *o = input;
  if (!!o->workload + !!o->file + !!o->shape + !!o->random > 1)
    argp_error(state, "one of --workload, --params, --shape and --random, not both");
  if (o->shape && !o->op) argp_error(state, "--shape is of one op: name it");
  if (o->random && !o->op) argp_error(state, "--random draws problems of one op: name it");
  if (o->random && (o->types || o->settings.n || o->break_even || o->first_use))
    argp_error(state, "--random draws types and settings itself, and does without --break-even and --first-use");
  if (o->list && !o->random) argp_error(state, "--list prints the problems of --random");
  if ((o->first != UINT64_MAX || o->most_bytes != UINT64_MAX) && !o->random)
    argp_error(state, "--%s is for the problems of --random", o->first != UINT64_MAX ? "first" : "most-bytes");
  if (o->list && (o->json || o->trace))
    argp_error(state, "--list times nothing: there is nothing for --json and --trace");
  if (o->break_even && (o->workload || o->file || o->shape || o->first_use || o->trace || o->hot || o->no_unfused))
    argp_error(state, "--break-even goes by sizes of its own, fused and unfused: it does without --workload, --params, "
                      "--shape, --first-use, --trace, --hot and --no-unfused");
  if (o->timer == QN_TIMER_COUNT && (o->break_even || o->random))
    argp_error(state, "--timer all is for workloads: --%s goes by one timer", o->break_even ? "break-even" : "random");
  if (o->first == UINT64_MAX) o->first = 0;
  if (o->most_bytes == UINT64_MAX) o->most_bytes = QN_PROBLEM_BYTES;
}

/* What --help says is made from the tables of workloads and timers. argp frees what this returns. */
static char *fill_help(int key, const char *text, void *input)
{
  (void)input;
  if (key != ARGP_KEY_HELP_POST_DOC) return (char *)text;
  qn_text all = {0};
  qn_text_add(&all, "Workloads:\n");
  for (const qn_workload_name *w = qn_workload_names; w->name; w++) qn_text_add(&all, "  %-10s  %s\n", w->name, w->doc);
  qn_text_add(&all, "  %-10s  %s\n", "NxM", "N tensors of M elements each: 12x3000, 512x64K");
  for (size_t k = 0; k < qn_op_count(); k++) {
    const qn_op *op = qn_op_of(qn_op_at(k));
    const qn_check_text *own = qn_op_check_of(op)->workloads;
    if (!own) continue;
    qn_text_add(&all, "Of %s, or extents and parameters such as \"%s\":\n", op->info.name, own->text);
    for (const qn_check_text *w = own; w->name; w++) qn_text_add(&all, "  %-17s  %s\n", w->name, w->text);
  }
  qn_text_add(&all, "\n%s", text);
  char *copy = all.failed ? NULL : strdup(all.at);
  qn_text_free(&all);
  return copy;
}

/* Everything that is decided before the first measurement. */
typedef struct session {
  const order *o;
  qn_device device;
  qn_workload work; /* of the op at hand */
  qn_pool *pool;
  qn_trace *trace;
  qn_progress progress;
} session;

static qn_status open_session(session *s, const order *o)
{
  *s = (session){.o = o};
  qn_try(qn_verb_device(o->backend, &s->device));
  qn_try(qn_verb_pool(o->threads, &s->pool));
  return o->trace ? qn_trace_create(&s->trace) : QN_OK;
}

static void close_session(session *s)
{
  qn_progress_end(&s->progress);
  qn_trace_destroy(&s->trace);
  qn_pool_destroy(&s->pool);
  qn_workload_free(&s->work);
}

static qn_bench_request request_of(session *s, const qn_op *op, const void *params, size_t row, qn_timer timer)
{
  const order *o = s->o;
  return (qn_bench_request){.op = op,
                            .params = params,
                            .row = row,
                            .work = &s->work,
                            .device = s->device,
                            .pool = s->pool,
                            .timer = timer,
                            .hot = o->hot,
                            .unfused = !o->no_unfused,
                            .seconds = o->seconds,
                            .seed = o->seed,
                            .trace = s->trace,
                            .progress = &s->progress};
}

/* The same question asked of two processes that know nothing yet. */
static qn_status time_first_use(const session *s, qn_bench *bench)
{
  const order *o = s->o;
  const char *arguments[10 + 2 * MOST_SETTINGS] = {
      "quern", "bench", bench->ask.op->info.name, "--first-use-here", "--types", bench->types, "--backend"};
  char device[32];
  size_t n = 7;
  qn_verb_device_text(s->device, device);
  arguments[n++] = device;
  for (size_t k = 0; k < o->settings.n; k++) {
    arguments[n++] = "--set";
    arguments[n++] = o->settings.at[k];
  }
  bench->has_first_use = s->device.kind != QN_CPU; /* the processor's kernels are compiled already */
  if (!bench->has_first_use) return QN_OK;
  return qn_first_use(arguments, 3, "--first-use-here=empty", &bench->first_use);
}

static qn_status bench_timer(session *s, const qn_bench_request *request, bool *wrong)
{
  const order *o = s->o;
  qn_bench bench;
  qn_progress_begin(&s->progress, request->op->info.name, 100);
  qn_status status = qn_bench_run(request, &bench);
  if (status == QN_OK && bench.timed && o->first_use) status = time_first_use(s, &bench);
  qn_progress_end(&s->progress);
  if (status == QN_OK) {
    qn_bench_print(stdout, &bench);
    if (s->device.kind != QN_CPU && *qn_op_last_variant()) printf("  launched as %s\n", qn_op_last_variant());
    fflush(stdout);
    *wrong = *wrong || !bench.check.right || bench.impossible;
    if (o->json) status = qn_record_append(o->json, &bench);
  }
  qn_bench_clear(&bench);
  return status;
}

static qn_status find_break_even(session *s, const qn_bench_request *request)
{
  qn_break_even result;
  qn_progress_begin(&s->progress, request->op->info.name, 100);
  qn_status status = qn_break_even_run(request, &result);
  qn_progress_end(&s->progress);
  if (status != QN_OK) return status;
  qn_break_even_print(stdout, request, &result);
  return s->o->json ? qn_break_even_append(s->o->json, request, &result) : QN_OK;
}

static qn_status say_first_use(const session *s, const qn_op *op, const void *params, size_t row)
{
  double ns;
  qn_try(qn_first_use_here(op, params, row, s->device, s->o->first_here == HERE_EMPTY, &ns));
  printf("%.0f\n", ns);
  return QN_OK;
}

/* What the op runs over; a workload of products sets params too. */
static qn_status find_work(session *s, const qn_op *op, size_t row, void *params)
{
  const order *o = s->o;
  qn_workload_free(&s->work);
  if (o->shape) return qn_subject_shapes(op, row, o->shape, &s->work, params);
  if (qn_op_check_of(op)->workloads) return qn_subject_workload(op, row, o->workload, &s->work, params);
  return o->file ? qn_workload_read(o->file, &s->work)
                 : qn_workload_find(o->workload ? o->workload : "gpt2-124m", &s->work);
}

/* A word of the command that is not for this op; NULL: there is none. */
static const char *misfit(const order *o, const qn_op *op)
{
  const qn_op_check *check = qn_op_check_of(op);
  if (!check->reference) return NULL;
  if (check->workloads && o->file) return "params";
  return o->break_even ? "break-even" : o->first_use || o->first_here ? "first-use" : NULL;
}

static qn_status bench_op(session *s, const qn_op *op, bool *wrong)
{
  const order *o = s->o;
  const char *word = misfit(o, op);
  size_t row = 0;
  void *params;
  if (!o->op && (word || (qn_op_check_of(op)->workloads && o->workload))) return QN_OK;
  if (word) return qn_fail(QN_UNSUPPORTED, "%s: --%s is for ops of lists of tensors alike", op->info.name, word);
  qn_try(qn_bench_row(op, o->types ? o->types : "", &row));
  qn_try(qn_try_allocate(&params, op->info.params_bytes, "parameters"));
  qn_status status = qn_settings_begin(op, params);
  if (status == QN_OK) status = find_work(s, op, row, params);
  for (size_t k = 0; status == QN_OK && k < o->settings.n; k++)
    status = qn_settings_read(&op->info, params, o->settings.at[k]);
  for (int timer = 0; status == QN_OK && timer < QN_TIMER_COUNT; timer++) {
    const qn_bench_request request = request_of(s, op, params, row, (qn_timer)timer);
    if (o->first_here || o->break_even || o->ceilings_here) {
      if (timer == 0)
        status = o->break_even      ? find_break_even(s, &request)
                 : o->ceilings_here ? qn_beside_run(&request, stdin, stdout)
                                    : say_first_use(s, op, params, row);
    } else if (o->timer == timer || o->timer == QN_TIMER_COUNT) {
      status = bench_timer(s, &request, wrong);
    }
  }
  qn_release(params);
  return status;
}

/* One problem of --random, as --types, --shape and --set would have it. */
static qn_status bench_problem(session *s, const qn_problem *p, qn_sweep *sweep, void *params)
{
  const order *o = s->o;
  char word[96];
  qn_bench bench = {.device.size = sizeof bench.device};
  qn_workload_free(&s->work);
  qn_try(qn_settings_begin(p->op, params));
  qn_try(qn_subject_shapes(p->op, p->row, p->shape, &s->work, params));
  for (int at = 0, used; sscanf(p->settings + at, "%95s%n", word, &used) == 1; at += used)
    qn_try(qn_settings_read(&p->op->info, params, word));
  qn_bench_request request = request_of(s, p->op, params, p->row, o->timer < QN_TIMER_COUNT ? o->timer : 0);
  request.seed = 1;
  if (!(request.seconds > 0)) request.seconds = PROBLEM_SECONDS;
  qn_progress_begin(&s->progress, p->op->info.name, 100);
  qn_status status = qn_bench_run(&request, &bench);
  qn_progress_end(&s->progress);
  if (status == QN_OK) status = qn_sweep_add(sweep, p, &bench, stdout);
  if (status == QN_OK && o->json) status = qn_record_append(o->json, &bench);
  qn_bench_clear(&bench);
  return status;
}

static qn_status bench_random(session *s, const qn_op *op, bool *wrong)
{
  const order *o = s->o;
  qn_sweep sweep = {0};
  qn_problem problem;
  void *params;
  qn_try(qn_try_allocate(&params, op->info.params_bytes, "parameters"));
  qn_status status = QN_OK;
  for (uint64_t k = 0; status == QN_OK && k < (uint64_t)o->random; k++) {
    status = qn_problem_draw(op, o->seed, o->first + k, o->most_bytes, &problem);
    if (status == QN_OK) status = bench_problem(s, &problem, &sweep, params);
  }
  if (sweep.n) qn_sweep_print(&sweep, op->info.name, stdout);
  *wrong = *wrong || sweep.n_wrong;
  qn_sweep_clear(&sweep);
  qn_release(params);
  return status;
}

static int list_problems(const order *o, const qn_op *op)
{
  qn_problem problem;
  qn_status status = QN_OK;
  for (uint64_t k = 0; status == QN_OK && k < (uint64_t)o->random; k++) {
    status = qn_problem_draw(op, o->seed, o->first + k, o->most_bytes, &problem);
    if (status == QN_OK) status = qn_problem_print(&problem, stdout);
  }
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_bench, status);
}

static int run(int argc, char **argv)
{
  order o = {.timer = QN_TIMER_EVENT, .seed = 1, .first = UINT64_MAX, .most_bytes = UINT64_MAX};
  session s;
  bool wrong = false;
  const qn_op_info *info = NULL;
  qn_verb_parse(&qn_verb_bench, argc, argv, &o);
  qn_status status = o.op ? qn_verb_op(o.op, &info) : QN_OK;
  if (status == QN_OK && o.list) return list_problems(&o, qn_op_of(info));
  if (status == QN_OK)
    status = open_session(&s, &o);
  else
    return qn_complain_status(&qn_verb_bench, status);
  if (status == QN_OK && o.random) status = bench_random(&s, qn_op_of(info), &wrong);
  for (size_t k = 0; status == QN_OK && !o.random && k < qn_op_count(); k++)
    if (!info || info == qn_op_at(k)) status = bench_op(&s, qn_op_of(qn_op_at(k)), &wrong);
  if (status == QN_OK && s.trace) status = qn_trace_write(s.trace, o.trace);
  close_session(&s);
  if (status != QN_OK) return qn_complain_status(&qn_verb_bench, status);
  return wrong ? QN_EXIT_FAILED : QN_EXIT_OK;
}

const qn_verb qn_verb_bench = {
    .name = "bench",
    .brief = "time an op or a kernel's folder beside the machine's limit",
    .run = run,
    .options = options,
    .folder_options = qn_folder_options[QN_FOLDER_BENCH],
    .argument = {QN_TO_ONE(op)},
    .end = check_words,
    .args_doc = "[OP|DIR]",
    .help_filter = fill_help,
    .doc =
        "Compare an op, or the kernel of the folder DIR, with its reference, then time it in turns with its unfused "
        "form and with the ceilings of this machine. Without an argument all ops are timed.\v"
        "Timers: event reads the device's clock and overwrites its cache before each call, until the medians are known "
        "to half a percent; simple reads the host's clock around call and synchronisation; do_bench warms up for 25 ms "
        "and calls for 100 ms.\n\n"
        "A wrong kernel gets no time, and the exit status is 1.",
};
