/* SPDX-License-Identifier: Apache-2.0 */
/* tune_variants.c - see tune_variants.h. A workload's tensors are made once and serve all classes; each variant is held
 * to the reference over some of its rows, and what lies round its tensors, before it is timed. Two times that stand
 * side by side decide; the entry stands for the class of shapes. */
#include "workbench/tune_variants.h"
#include "core/core.h"
#include "op/call.h"
#include "quern/device.h"
#include "workbench/build.h"
#include "workbench/case.h"
#include "workbench/sampler.h"
#include "workbench/subject.h"
#include "workbench/table.h"
#include "workbench/tune_state.h"
#include <math.h>
#include <string.h>

enum { LOOK_ROUNDS = 8, PROVE_ROUNDS = 40, VARIANTS = QN_VARIANT_ACCOUNTS, TEXT = 160, LOOSEST = 2 };

/* Where classes of shapes end: rows by the tiles' heights, columns and depth as launches fill a GPU, a norm's groups by
 * the widths that tiles hold. */
static const uint64_t row_ends[] = {1, 16, 64, 128, 256, 1024, UINT64_MAX};
static const uint64_t col_ends[] = {512, 1024, 2048, 4096, 8192, 16384, UINT64_MAX};
static const uint64_t width_ends[] = {16, 32, 64, 128, UINT64_MAX};

typedef struct tuner tuner;
typedef struct candidate { /* a variant, as a runner sees it */
  tuner *t;
  const char *name;
} candidate;

struct tuner {
  const qn_tune_order *order;
  qn_tune_outcome *outcome;
  const qn_engine *engine;
  const qn_op_check *check;
  qn_arch arch; /* whose tables are written */
  qn_tune_seen state;
  bool has_state;
  int64_t began_ns;
  /* The workload at hand. */
  qn_subject data;
  bool open;
  char name[TEXT + 64]; /* "f32 kernelbench precision=tf32" */
  qn_tune_key key;
  candidate incumbent, right[VARIANTS];
  size_t n; /* of the right ones, the incumbent not among them */
  qn_variant_account *accounts;
};

static bool on_gpu(const tuner *t) { return t->order->device.kind == QN_CUDA; }

static void say(const tuner *t, const char *text)
{
  if (!t->order->out) return;
  if (t->order->progress) qn_progress_hide(t->order->progress);
  fprintf(t->order->out, "%s\n", text);
  fflush(t->order->out);
}

static qn_status force(const tuner *t, const char *name) { return qn_option_set(t->engine->option, name); }

static qn_call call_of(const tuner *t) { return qn_subject_call(&t->data, QN_CALL_PREPARE); }

/* ---- one variant ---- */

/* Once, against the reference. *wrong: a sentence, or "". What cannot be done at all is a status. */
static qn_status prove(tuner *t, const char *name, char *wrong, size_t bytes)
{
  uint64_t elements = 0;
  double worst = 0;
  *wrong = 0;
  qn_try(force(t, name));
  qn_try(qn_subject_rewind(&t->data));
  qn_try(qn_subject_step(&t->data));
  if (!qn_subject_right(&t->data, wrong, bytes, &elements, &worst)) return QN_OK;
  *wrong = 0;
  return QN_OK;
}

/* Of an option that was set the next call asks anew, tables, libraries and all: that call is not the one to time, or
 * the device would wait for it. */
static qn_status ready_candidate(void *user)
{
  const candidate *s = user;
  qn_try(force(s->t, s->name));
  return qn_subject_run(&s->t->data);
}

static qn_status run_candidate(void *user) { return qn_subject_run(&((const candidate *)user)->t->data); }

static qn_timed runner_of(candidate *s)
{
  return (qn_timed){.name = s->name, .run = run_candidate, .ready = ready_candidate, .user = s, .decides = true};
}

static void record(const tuner *t, const char *name, const qn_timed *runner, double median_ns, double speedup,
                   const char *why)
{
  if (!t->order->results) return;
  json_t *configuration =
      json_pack("{s:s, s:s, s:s}", "op", t->order->op->info.name, "workload", t->name, "variant", name);
  qn_tune_json_result(t->order->results, configuration,
                      &(qn_tune_result){.runtimes_ns = runner ? runner->ns : NULL,
                                        .n = runner ? runner->n : 0,
                                        .median_ns = median_ns,
                                        .speedup = speedup,
                                        .facts = {-1, -1, -1},
                                        .validity = *why ? "correctness" : "correct",
                                        .why = why});
}

/* ---- the candidates ---- */

static bool is_wanted(const char *names, const char *name)
{
  const size_t n = strlen(name);
  for (const char *at = names; at && *at; at += *at == ',') {
    const size_t length = strcspn(at, ",");
    if (length == n && !strncmp(at, name, n)) return true;
    at += length;
  }
  return !names;
}

/* Each of the names is a variant's. */
static qn_status check_names(const qn_tune_order *order)
{
  const char *all[VARIANTS + 1] = {NULL}, *near;
  char name[TEXT];
  for (size_t k = 0; k < VARIANTS; k++)
    if (!(all[k] = order->op->engine->variant(k))) break;
  for (const char *at = order->only; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    bool known = false;
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    for (size_t k = 0; all[k]; k++) known = known || !strcmp(all[k], name);
    near = known ? NULL : qn_nearest(name, all);
    qn_require(known, "%s has no variant \"%s\"%s%s", order->op->info.name, name, near ? ", did you mean " : "",
               near ? near : "");
    at += n;
  }
  return QN_OK;
}

static qn_status sift(tuner *t)
{
  char wrong[400], text[640];
  const char *name;
  const qn_call call = call_of(t);
  t->n = 0;
  for (size_t k = 0; (name = t->engine->variant(k)); k++) {
    if (!strcmp(name, t->incumbent.name) || !is_wanted(t->order->only, name) || t->n == VARIANTS) continue;
    t->outcome->candidates++;
    const qn_status status = t->engine->refuses(&call, k) ? QN_UNSUPPORTED : prove(t, name, wrong, sizeof wrong);
    if (status == QN_UNSUPPORTED) {
      t->outcome->impossible++;
      continue;
    }
    qn_try(status);
    if (!*wrong) {
      t->right[t->n++] = (candidate){t, name};
      continue;
    }
    t->outcome->wrong++;
    record(t, name, NULL, 0, 0, wrong);
    snprintf(text, sizeof text, "  %s: %s is wrong: %s", t->name, name, wrong);
    say(t, text);
  }
  return QN_OK;
}

/* The one with the best time beside the incumbent's; NULL: there is none. */
static qn_status look(tuner *t, candidate **best)
{
  qn_timed runner[VARIANTS + 1] = {runner_of(&t->incumbent)};
  const double seconds = t->order->look_s > 0 ? t->order->look_s : on_gpu(t) ? 0.01 : 0.05;
  double most = 0;
  *best = NULL;
  for (size_t k = 0; k < t->n; k++) runner[k + 1] = runner_of(&t->right[k]);
  qn_status status = qn_tune_sample(t->data.exec, runner, t->n + 1, LOOK_ROUNDS, seconds * (double)t->n);
  for (size_t k = 0; status == QN_OK && k < t->n; k++) {
    qn_ratio ratio;
    qn_summary time;
    status = qn_ratio_paired(runner[0].ns, runner[k + 1].ns, runner[k + 1].n, &ratio);
    if (status == QN_OK) status = qn_summarize(runner[k + 1].ns, runner[k + 1].n, &time);
    if (status != QN_OK) break;
    record(t, t->right[k].name, &runner[k + 1], time.median, ratio.ratio, "");
    t->outcome->looked++;
    if (ratio.ratio > most) most = ratio.ratio, *best = &t->right[k];
  }
  for (size_t k = 0; k <= t->n; k++) qn_timed_clear(&runner[k]);
  return status;
}

/* ---- the verdict ---- */

static void fill_entry(const tuner *t, const candidate *choice, qn_tune_entry *e)
{
  qn_tune_new_entry(e, &t->arch, choice->name, t->incumbent.name);
  snprintf(e->types, sizeof e->types, "%s", t->key.types);
  e->layout = t->key.layout;
  qn_tune_class(t->key.rows, row_ends, &e->rows_least, &e->rows_most);
  qn_tune_class(t->key.cols, col_ends, &e->cols_least, &e->cols_most);
  if (!t->key.precision) return; /* it is no product */
  snprintf(e->precision, sizeof e->precision, "%s", t->key.precision);
  qn_tune_class(t->key.depth, col_ends, &e->depth_least, &e->depth_most);
  qn_tune_class(t->key.width, width_ends, &e->width_least, &e->width_most);
}

static qn_status judge(tuner *t, const candidate *best, const qn_timed *runner)
{
  static const char *const words[] = {"not told apart from", "faster than", "the same as", "slower than"};
  qn_tune_entry e, old;
  qn_ratio ratio;
  qn_summary mine, theirs;
  char text[512];
  qn_try(qn_ratio_paired(runner[0].ns, runner[1].ns, runner[1].n, &ratio));
  qn_try(qn_summarize(runner[0].ns, runner[0].n, &theirs));
  qn_try(qn_summarize(runner[1].ns, runner[1].n, &mine));
  const qn_verdict verdict = qn_verdict_of(&ratio);
  const bool faster = verdict == QN_FASTER;
  fill_entry(t, faster ? best : &t->incumbent, &e);
  if (faster) e.ratio = ratio.ratio, e.low = ratio.low, e.high = ratio.high;
  snprintf(text, sizeof text, "  %-44s %-14s %9.2f us, %5.3fx %s %s %s, %.2f us", t->name, best->name,
           mine.median * 1e-3, ratio.ratio, qn_interval(ratio.low, ratio.high, 3).text, words[verdict],
           t->incumbent.name, theirs.median * 1e-3);
  say(t, text);
  t->outcome->faster += faster;
  t->outcome->kept += !faster;
  const bool stands = qn_tune_find(t->order->op->info.name, &t->arch, &t->key, &old) == QN_TUNE_USER &&
                      !strcmp(old.arch, t->arch.name); /* what it says already, with its reason */
  return !faster && stands ? QN_OK : qn_tune_keep(t->order->op->info.name, &e, 1, t->outcome->path);
}

static qn_status conclude(tuner *t, candidate *best)
{
  qn_timed runner[] = {runner_of(&t->incumbent), runner_of(best)};
  const double seconds = t->order->prove_s > 0 ? t->order->prove_s : on_gpu(t) ? 0.25 : 1;
  qn_status status = qn_tune_sample(t->data.exec, runner, 2, on_gpu(t) ? PROVE_ROUNDS : 8, seconds);
  if (status == QN_OK) status = judge(t, best, runner);
  for (int k = 0; k < 2; k++) qn_timed_clear(&runner[k]);
  return status;
}

/* ---- one class of a workload ---- */

static qn_status find_incumbent(tuner *t)
{
  const qn_call call = call_of(t);
  const char *why;
  qn_try(force(t, ""));
  t->incumbent = (candidate){t, t->engine->choice(&call, &why)};
  if (!t->incumbent.name) return qn_fail(QN_UNSUPPORTED, "no variant can do it");
  t->engine->key(&call, &t->key);
  return QN_OK;
}

static qn_status explore(tuner *t)
{
  char wrong[400], text[TEXT + 128];
  candidate *best;
  qn_status status = qn_subject_refer(&t->data, LOOSEST, QN_SUBJECT_REFERENCE); /* one for all of them */
  if (status == QN_OK) status = prove(t, t->incumbent.name, wrong, sizeof wrong);
  if (status == QN_OK && *wrong)
    status = qn_fail(QN_UNSUPPORTED, "%s, which is in force, is wrong: %s", t->incumbent.name, wrong);
  if (status == QN_OK) status = sift(t);
  qn_subject_forget(&t->data);
  qn_try(status);
  if (t->n) {
    qn_try(look(t, &best));
    return best ? conclude(t, best) : QN_OK;
  }
  t->outcome->kept++;
  snprintf(text, sizeof text, "  %-44s %s alone can do it", t->name, t->incumbent.name);
  say(t, text);
  return QN_OK;
}

static bool is_spent(const tuner *t)
{
  return t->order->budget_s > 0 && (double)(qn_now_ns() - t->began_ns) * 1e-9 > t->order->budget_s;
}

/* What was left out costs that place alone. */
static qn_status leave_out(tuner *t, qn_status status)
{
  char text[1200];
  t->outcome->failed++;
  snprintf(text, sizeof text, "  %-44s left out: %s", t->name, qn_last_error());
  say(t, text);
  return status == QN_IO_ERROR || status == QN_DRIVER_ERROR ? status : QN_OK;
}

/* Puts the workload of that text in its place unless it is there, and its params into the class. */
static qn_status enter(tuner *t, size_t row, const char *text, const char *class, bool bare)
{
  const qn_subject_order order = {
      .op = t->order->op, .row = row, .device = t->order->device, .text = text, .seed = t->order->seed, .bare = bare};
  if (!t->open) {
    const qn_status status = qn_subject_open(&t->data, &order);
    t->open = status == QN_OK;
    if (!t->open) return qn_subject_close(&t->data), status;
  }
  return qn_subject_read(&t->data, class);
}

static void close_data(tuner *t)
{
  if (t->open) qn_subject_close(&t->data);
  t->open = false;
}

static qn_status tune_place(tuner *t, size_t row, const char *text, const char *class)
{
  char done[QN_SEEN_KEY];
  const size_t at = t->outcome->done++;
  snprintf(done, sizeof done, "done %s", t->name);
  if (t->has_state && t->state.resumed && qn_tune_state_find(&t->state, done)) return QN_OK;
  if (is_spent(t)) return t->outcome->left++, QN_OK;
  if (t->order->progress) qn_progress_at(t->order->progress, at, "%s", t->name);
  qn_status status = enter(t, row, text, class, false);
  if (status == QN_OK) status = find_incumbent(t);
  if (status == QN_OK) status = explore(t);
  if (status != QN_OK) return leave_out(t, status);
  return t->has_state ? qn_tune_state_add(&t->state, done, 0, 0) : QN_OK;
}

/* The incumbent alone; nothing is run. */
static qn_status list_place(tuner *t, size_t row, const char *text, const char *class)
{
  char line[640];
  const char *why = "";
  qn_try(enter(t, row, text, class, true));
  const qn_call call = call_of(t);
  const char *name = t->engine->choice(&call, &why);
  snprintf(line, sizeof line, "    %-44s %-14s %s", t->name, name ? name : "-", name ? why : qn_last_error());
  say(t, line);
  return QN_OK;
}

static qn_status dry_place(tuner *t, size_t row, const char *text, const char *class)
{
  char line[640];
  qn_try(enter(t, row, text, class, true));
  qn_try(find_incumbent(t));
  const qn_call call = call_of(t);
  const char *name;
  snprintf(line, sizeof line, "  %s: %s in force", t->name, t->incumbent.name);
  say(t, line);
  for (size_t k = 0; (name = t->engine->variant(k)); k++) {
    if (!strcmp(name, t->incumbent.name) || !is_wanted(t->order->only, name)) continue;
    const char *why = t->engine->refuses(&call, k);
    snprintf(line, sizeof line, "    %s%s%s", name, why ? ": " : "", why ? why : "");
    say(t, line);
  }
  return QN_OK;
}

static qn_status account_place(tuner *t, size_t row, const char *text, const char *class)
{
  const char *name, *why = "";
  qn_try(enter(t, row, text, class, true));
  const qn_call call = call_of(t);
  const char *taken = t->engine->choice(&call, &why);
  for (size_t k = 0; k < VARIANTS && (name = t->engine->variant(k)); k++) {
    qn_variant_account *a = &t->accounts[k];
    const char *cannot = t->engine->refuses(&call, k);
    a->name = name;
    a->of++;
    a->can += !cannot;
    a->taken += taken && !strcmp(taken, name);
    if (cannot && !*a->why) snprintf(a->why, sizeof a->why, "%s", cannot);
  }
  return QN_OK;
}

/* ---- all of them ---- */

typedef qn_status place_fn(tuner *t, size_t row, const char *text, const char *class);

/* The class's own word in a text: it is of that class alone. */
static bool says_class(const char *text, const char *class)
{
  char word[48];
  snprintf(word, sizeof word, "%.*s=", (int)strcspn(class, "="), class);
  return strstr(text, word) != NULL;
}

static qn_status each_class(tuner *t, size_t row, const char *name, const char *text, place_fn *at)
{
  const char *class, *type = qn_row_type(&t->order->op->info, row);
  qn_status status = QN_OK;
  for (size_t k = 0; status == QN_OK && (class = t->check->variation(t->order->device.kind, row, k)); k++) {
    const bool own = says_class(text, class);
    if (own && k) break;
    snprintf(t->name, sizeof t->name, "%s %s%s%s", type, name, own ? "" : " ", own ? "" : class);
    t->outcome->cells++;
    status = at(t, row, text, own ? NULL : class);
  }
  close_data(t);
  return status;
}

/* The next of "kernelbench,m=16 n=64 k=32": its name and text. */
static qn_status take_shape(const qn_op *op, const char **at, char item[TEXT], const char **text)
{
  const size_t n = strcspn(*at, ",");
  qn_require(n > 0 && n < TEXT, "\"%.80s\" is no workload", *at);
  memcpy(item, *at, n);
  item[n] = 0;
  *at += n + ((*at)[n] == ',');
  return qn_subject_find(op, item, text);
}

static qn_status each_place(tuner *t, place_fn *at)
{
  const qn_op_info *info = &t->order->op->info;
  char item[TEXT];
  const char *text;
  bool known = false;
  for (size_t row = 0; row < info->n_types; row++) {
    if (t->order->types && strcmp(t->order->types, qn_row_type(info, row)) != 0) continue;
    known = true;
    for (const char *shapes = t->order->shapes; shapes && *shapes;) {
      qn_try(take_shape(t->order->op, &shapes, item, &text));
      qn_try(enter(t, row, text, NULL, true)); /* a text that is wrong ends it all */
      close_data(t);
      qn_try(each_class(t, row, item, text, at));
    }
    for (const qn_check_text *w = t->check->workloads; !t->order->shapes && w->name; w++)
      qn_try(each_class(t, row, w->name, w->text, at));
  }
  qn_require(known, "%s: \"%s\" is no type of %s", info->name, t->order->types, info->tensors[qn_row_role(info)].name);
  return QN_OK;
}

static qn_status open_state(tuner *t)
{
  char who[192];
  qn_device_info info = {.size = sizeof info};
  qn_try(qn_device_query(t->order->device, &info));
  snprintf(who, sizeof who, "%s, %.60s, driver %d, compiler %d, %.40s", t->arch.name, info.name, info.driver_version,
           info.compiler_version, qn_build_commit);
  qn_try(qn_tune_state_open(&t->state, t->order->op->info.name, who, t->order->resume));
  t->has_state = true;
  return QN_OK;
}

static qn_status walk(const qn_tune_order *order, qn_tune_outcome *outcome, place_fn *at, qn_variant_account *accounts)
{
  tuner *t;
  *outcome = (qn_tune_outcome){0};
  qn_try(check_names(order));
  qn_try(qn_try_allocate(&t, sizeof *t, "the tuner"));
  *t = (tuner){.order = order,
               .outcome = outcome,
               .engine = order->op->engine,
               .check = qn_op_check_of(order->op),
               .accounts = accounts,
               .arch.size = sizeof t->arch,
               .state.file = -1,
               .began_ns = qn_now_ns()};
  qn_status status = qn_tune_arch(order->device, &t->arch);
  if (status == QN_OK && at == tune_place) status = open_state(t);
  if (status == QN_OK) status = each_place(t, at);
  if (at == tune_place || at == dry_place) (void)force(t, NULL);
  qn_tune_state_close(&t->state);
  qn_release(t);
  return status;
}

qn_status qn_tune_variants_run(const qn_tune_order *order, qn_tune_outcome *outcome)
{
  return walk(order, outcome, order->dry_run ? dry_place : tune_place, NULL);
}

qn_status qn_tune_variants_list(const qn_tune_order *order)
{
  qn_tune_outcome outcome;
  return walk(order, &outcome, list_place, NULL);
}

qn_status qn_tune_variants_account(const qn_op *op, qn_device device, qn_variant_account accounts[QN_VARIANT_ACCOUNTS],
                                   size_t *n)
{
  qn_tune_outcome outcome;
  const qn_tune_order order = {.op = op, .device = device};
  memset(accounts, 0, VARIANTS * sizeof *accounts);
  qn_try(walk(&order, &outcome, account_place, accounts));
  for (*n = 0; *n < VARIANTS && accounts[*n].name;) ++*n;
  return QN_OK;
}
