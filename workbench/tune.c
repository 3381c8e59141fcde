/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - see tune.h. The incumbent of a shape is what a call would take now: the tables' choice or the rule's. */
#include "workbench/tune.h"
#include "core/core.h"
#include "op/call.h"
#include "quern/device.h"
#include "workbench/build.h"
#include "workbench/ceiling.h"
#include "workbench/sampler.h"
#include "workbench/table.h"
#include "workbench/tune_stage.h"
#include "workbench/tune_state.h"
#include "workbench/tune_variants.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { LOOK_ROUNDS = 8, PROVE_ROUNDS = 40, MOST_WAYS = 4 };

typedef struct tuner tuner;
typedef struct candidate { /* a geometry, as a runner sees it */
  tuner *t;
  qn_launch_shape geometry;
  char name[QN_LAUNCH_SHAPE_NAME];
  qn_list_facts facts; /* of its kernel for the cell at hand */
  bool has_facts;
} candidate;

struct tuner {
  const qn_tune_order *order;
  qn_tune_outcome *outcome;
  qn_exec exec;
  qn_arch arch; /* whose tables are written */
  qn_device_info info;
  qn_tune_seen state;
  bool has_state;
  qn_tune_stage *stage;
  qn_tune_cell cell[QN_TUNE_CELLS];
  size_t n_cells;
  int64_t began_ns;
  /* The cell at hand. */
  const qn_tune_cell *at;
  char at_name[QN_TUNE_TYPES + 32];
  candidate incumbent, candidate[QN_TUNE_CANDIDATES];
  qn_tune_source incumbent_source;
  size_t n;
};

static bool on_gpu(const tuner *t) { return t->order->device.kind == QN_CUDA; }
static double spent_s(const tuner *t) { return (double)(qn_now_ns() - t->began_ns) * 1e-9; }

static void say(const tuner *t, const char *text)
{
  if (!t->order->out) return;
  qn_progress_hide(t->order->progress);
  fprintf(t->order->out, "%s\n", text);
  fflush(t->order->out);
}

/* ---- timing ---- */
static qn_status run_subject(void *user)
{
  candidate *s = user;
  qn_try(qn_tune_stage_step(s->t->stage, &s->geometry));
  if (s->has_facts) return QN_OK;
  s->has_facts = true; /* asked for at the first step, which is not timed */
  return qn_device_list_facts(&s->facts);
}

typedef struct copying {
  qn_ceiling *ceiling;
  int way;
  size_t bytes;
  double moved;
} copying;

static qn_status run_copy(void *user)
{
  copying *c = user;
  return qn_ceiling_stream(c->ceiling, QN_MIX_COPY, c->way, c->bytes, 1, &c->moved);
}

qn_status qn_tune_sample(qn_exec exec, qn_timed *runner, size_t n, size_t least, double seconds)
{
  qn_progress quiet = {.on = false}; /* the shape's own line stays */
  const qn_sampling how = {.exec = exec,
                           .timer = QN_TIMER_EVENT,
                           .flush = true,
                           .settled = true,
                           .budget_s = seconds,
                           .error = 0.001,
                           .least = least,
                           .most = 400,
                           .progress = &quiet};
  return qn_sample(&how, runner, n);
}

static void key_of(const tuner *t, const char *name, char key[QN_SEEN_KEY])
{
  snprintf(key, QN_SEEN_KEY, "%s over %s: %s", t->at_name, t->incumbent.name, name);
}

/* From samples side by side with the incumbent's, which are runner[0]'s. */
static qn_status take_look(tuner *t, const qn_timed *runner, const candidate *s, const qn_timed *incumbent,
                           double *speedup)
{
  char key[QN_SEEN_KEY];
  qn_ratio ratio;
  qn_summary time;
  qn_try(qn_ratio_paired(incumbent->ns, runner->ns, runner->n, &ratio));
  qn_try(qn_summarize(runner->ns, runner->n, &time));
  *speedup = ratio.ratio;
  key_of(t, s->name, key);
  qn_tune_json_add(t->order->results, t->order->op, t->at, &s->geometry,
                   &(qn_tune_result){.runtimes_ns = runner->ns,
                                     .n = runner->n,
                                     .median_ns = time.median,
                                     .speedup = ratio.ratio,
                                     .facts = s->facts,
                                     .validity = "correct",
                                     .why = ""});
  t->outcome->looked++;
  return t->has_state ? qn_tune_state_add(&t->state, key, time.median, ratio.ratio) : QN_OK;
}

/* Which of them are to be timed: those not seen before that are right. */
static qn_status sift(tuner *t, const size_t *which, size_t n, double *speedup, size_t *to_time, size_t *n_time)
{
  char key[QN_SEEN_KEY];
  *n_time = 0;
  for (size_t k = 0; k < n; k++) {
    const candidate *s = &t->candidate[which[k]];
    const char *why;
    key_of(t, s->name, key);
    const qn_seen *seen = t->has_state && t->state.resumed ? qn_tune_state_find(&t->state, key) : NULL;
    speedup[k] = seen ? seen->speedup : NAN;
    if (seen) continue;
    qn_progress_at(t->order->progress, t->outcome->done, "%s: proving %s", t->at_name, s->name);
    qn_try(qn_tune_stage_prove(t->stage, t->at->layout, &s->geometry, &why));
    const bool wrong = !strncmp(why, "wrong", 5);
    if (!*why) {
      to_time[(*n_time)++] = k;
      continue;
    }
    t->outcome->wrong += wrong;
    t->outcome->impossible += !wrong;
    qn_tune_json_add(
        t->order->results, t->order->op, t->at, &s->geometry,
        &(qn_tune_result){.facts = {-1, -1, -1}, .validity = wrong ? "correctness" : "runtime", .why = why});
    if (wrong) say(t, why);
  }
  return QN_OK;
}

static qn_status look(void *user, const size_t *which, size_t n, double seconds, double *speedup)
{
  tuner *t = user;
  qn_timed runner[QN_TUNE_CANDIDATES + 1];
  size_t to_time[QN_TUNE_CANDIDATES], n_time;
  qn_try(sift(t, which, n, speedup, to_time, &n_time));
  if (!n_time) return QN_OK;
  runner[0] = (qn_timed){.name = t->incumbent.name, .run = run_subject, .user = &t->incumbent, .decides = true};
  for (size_t k = 0; k < n_time; k++) {
    candidate *s = &t->candidate[which[to_time[k]]];
    runner[k + 1] = (qn_timed){.name = s->name, .run = run_subject, .user = s, .decides = true};
  }
  qn_progress_at(t->order->progress, t->outcome->done, "%s: timing %zu geometries", t->at_name, n_time);
  qn_status status = qn_tune_sample(t->exec, runner, n_time + 1, LOOK_ROUNDS, seconds * (double)n_time);
  for (size_t k = 0; status == QN_OK && k < n_time; k++)
    status = take_look(t, &runner[k + 1], &t->candidate[which[to_time[k]]], &runner[0], &speedup[to_time[k]]);
  for (size_t k = 0; k <= n_time; k++) qn_timed_clear(&runner[k]);
  return status;
}

/* ---- the verdict ---- */
void qn_tune_new_entry(qn_tune_entry *e, const qn_arch *arch, const char *choice, const char *over)
{
  const time_t now = time(NULL);
  struct tm utc;
  *e = (qn_tune_entry){
      .registers = -1, .shared = -1, .blocks = -1, .state = QN_TUNE_MEASURED, .ratio = 1, .low = 1, .high = 1};
  snprintf(e->arch, sizeof e->arch, "%s", arch->name);
  snprintf(e->choice, sizeof e->choice, "%s", choice);
  snprintf(e->over, sizeof e->over, "%s", over);
  strftime(e->date, sizeof e->date, "%Y-%m-%d", gmtime_r(&now, &utc));
  if (!strstr(qn_build_commit, "-dirty")) snprintf(e->commit, sizeof e->commit, "%s", qn_build_commit);
}

static void fill_entry(const tuner *t, const candidate *choice, qn_tune_entry *e)
{
  qn_tune_new_entry(e, &t->arch, choice->name, t->incumbent.name);
  e->registers = choice->facts.registers;
  e->shared = choice->facts.shared_bytes;
  e->blocks = choice->facts.blocks;
  qn_tune_types(t->order->op, t->at->row, e->types);
  qn_tune_cell_classes(t->at, e);
}

static void tell(const tuner *t, const qn_tune_entry *e, const candidate *best, const qn_ratio *ratio,
                 qn_verdict verdict)
{
  static const char *const words[] = {"not told apart from", "faster than", "the same as", "slower than"};
  char text[512];
  const char *word = verdict == QN_SAME && ratio->low > 1 ? "a little faster than" : words[verdict];
  snprintf(text, sizeof text, "  %-40s %-18s %5.3fx %s %s %s; %s runs at %.3f of a copy", t->at_name, best->name,
           ratio->ratio, qn_interval(ratio->low, ratio->high, 3).text, word, t->incumbent.name, e->choice, e->copy);
  say(t, text);
}

/* Samples of incumbent, challenger and copies in the same rounds; the entry that follows from them. */
static qn_status judge(tuner *t, const candidate *best, qn_timed *runner, const copying *copy, int ways)
{
  qn_tune_entry e;
  qn_ratio ratio;
  qn_summary time;
  qn_try(qn_ratio_paired(runner[0].ns, runner[1].ns, runner[1].n, &ratio));
  const qn_verdict verdict = qn_verdict_of(&ratio);
  const bool faster = ratio.low > 1; /* by less than the band of "same" too: a geometry costs nothing to take */
  fill_entry(t, faster ? best : &t->incumbent, &e);
  if (faster) e.ratio = ratio.ratio, e.low = ratio.low, e.high = ratio.high;
  qn_try(qn_summarize(runner[faster ? 1 : 0].ns, runner[0].n, &time));
  const double rate = qn_tune_stage_moved(t->stage) / time.median;
  for (int way = 0; way < ways; way++) {
    qn_summary copied;
    qn_try(qn_summarize(runner[2 + way].ns, runner[2 + way].n, &copied));
    const double share = rate / (copy[way].moved / copied.median);
    if (way == 0 || share < e.copy) e.copy = share; /* of the fastest copy */
  }
  tell(t, &e, best, &ratio, verdict);
  t->outcome->faster += faster;
  t->outcome->kept += !faster;
  if (!faster && t->incumbent_source == QN_TUNE_USER) return QN_OK; /* what it says already stands, with its reason */
  return qn_tune_keep(t->order->op->info.name, &e, 1, t->outcome->path);
}

static qn_status conclude(tuner *t, candidate *best)
{
  copying copy[MOST_WAYS];
  qn_timed runner[2 + MOST_WAYS] = {{.run = run_subject, .user = &t->incumbent, .decides = true},
                                    {.run = run_subject, .user = best, .decides = true}};
  const size_t bytes = (size_t)qn_tune_stage_moved(t->stage);
  qn_ceiling *ceiling = NULL;
  int ways = 0;
  runner[0].name = t->incumbent.name;
  runner[1].name = best->name;
  qn_progress_at(t->order->progress, t->outcome->done, "%s: %s once more", t->at_name, best->name);
  qn_status status = qn_ceiling_create(&ceiling, &t->exec, bytes);
  if (status == QN_OK) ways = qn_ceiling_ways(ceiling, QN_MIX_COPY);
  if (ways > MOST_WAYS) ways = MOST_WAYS;
  for (int way = 0; way < ways; way++) {
    copy[way] = (copying){ceiling, way, bytes, 0};
    runner[2 + way] = (qn_timed){.name = "copy", .run = run_copy, .user = &copy[way]};
  }
  const double seconds = t->order->prove_s > 0 ? t->order->prove_s : on_gpu(t) ? 0.25 : 1;
  if (status == QN_OK)
    status = qn_tune_sample(t->exec, runner, (size_t)(2 + ways), on_gpu(t) ? PROVE_ROUNDS : 8, seconds);
  if (status == QN_OK) status = judge(t, best, runner, copy, ways);
  for (int k = 0; k < 2 + ways; k++) qn_timed_clear(&runner[k]);
  qn_ceiling_destroy(&ceiling);
  return status;
}

/* ---- one cell ---- */
static qn_status find_incumbent(tuner *t)
{
  const qn_op *op = t->order->op;
  const qn_tune_cell *c = t->at;
  const qn_launch_shape_key key = {op, c->row, t->order->device, c->rows, c->cols, c->layout == QN_TUNE_DENSE, false};
  const char *why;
  char types[QN_TUNE_TYPES];
  qn_tune_entry e;
  qn_try(qn_option_set("geometry", ""));
  t->incumbent = (candidate){.t = t};
  qn_try(qn_launch_shape_choose(&key, &t->incumbent.geometry, &why));
  qn_launch_shape_name(&t->incumbent.geometry, t->incumbent.name);
  qn_tune_types(op, c->row, types);
  const qn_tune_key wanted = {.types = types, .rows = c->rows, .cols = c->cols, .layout = c->layout};
  t->incumbent_source = qn_tune_find(op->info.name, &t->arch, &wanted, &e);
  if (t->incumbent_source == QN_TUNE_USER && strcmp(e.arch, t->arch.name) != 0) t->incumbent_source = QN_TUNE_NONE;
  return QN_OK;
}

static qn_status find_candidates(tuner *t)
{
  qn_launch_shape found[QN_TUNE_CANDIDATES];
  qn_try(qn_tune_candidates(t->order->op, t->at, t->arch.multiprocessors, t->order->only, &t->incumbent.geometry, found,
                            &t->n));
  for (size_t k = 0; k < t->n; k++) {
    t->candidate[k] = (candidate){.t = t, .geometry = found[k]};
    qn_launch_shape_name(&found[k], t->candidate[k].name);
  }
  t->outcome->candidates += t->n;
  return QN_OK;
}

/* Seconds for this cell: an equal share of what is left. 0: no limit. */
static double share_of_budget(const tuner *t)
{
  const double left = t->order->budget_s - spent_s(t), cells = (double)(t->n_cells - t->outcome->done);
  if (t->order->budget_s <= 0) return 0;
  return left > 0 ? 0.6 * left / cells : 1e-3;
}

static qn_status explore(tuner *t)
{
  const char *why;
  size_t best, looked;
  double speedup;
  qn_tune_stage_take(t->stage, t->at);
  qn_try(qn_tune_stage_prove(t->stage, t->at->layout, &t->incumbent.geometry, &why));
  if (*why) return qn_fail(QN_UNSUPPORTED, "%s, which is in force: %s", t->incumbent.name, why);
  const qn_search search = {.n = t->n,
                            .strategy = t->order->strategy,
                            .seed = t->order->seed,
                            .look_s = t->order->look_s > 0 ? t->order->look_s
                                      : on_gpu(t)          ? 0.004
                                                           : 0.05,
                            .budget_s = share_of_budget(t),
                            .look = look,
                            .user = t};
  qn_try(qn_search_run(&search, &best, &speedup, &looked));
  if (best == t->n) return qn_fail(QN_UNSUPPORTED, "none of %zu other geometries is possible", t->n);
  return conclude(t, &t->candidate[best]);
}

static void list_candidates(const tuner *t)
{
  char text[256];
  snprintf(text, sizeof text, "  %s: %s in force, %zu others", t->at_name, t->incumbent.name, t->n);
  say(t, text);
  for (size_t k = 0; k < t->n; k++) {
    snprintf(text, sizeof text, "    %s", t->candidate[k].name);
    say(t, text);
  }
}

/* A shape that is too large, or of types that the op takes only in another form, costs that cell alone. */
static qn_status tune_cell(tuner *t)
{
  char done[QN_SEEN_KEY], text[1200];
  qn_tune_cell_name(t->order->op, t->at, t->at_name, sizeof t->at_name);
  snprintf(done, sizeof done, "done %s", t->at_name);
  if (t->has_state && t->state.resumed && qn_tune_state_find(&t->state, done)) return QN_OK;
  qn_try(find_incumbent(t));
  qn_try(find_candidates(t));
  if (t->order->dry_run) return list_candidates(t), QN_OK;
  if (t->order->budget_s > 0 && spent_s(t) > t->order->budget_s) return t->outcome->left++, QN_OK;
  const qn_status status = t->n ? explore(t) : QN_OK;
  if (status == QN_OK) return t->has_state ? qn_tune_state_add(&t->state, done, 0, 0) : QN_OK;
  t->outcome->failed++;
  snprintf(text, sizeof text, "  %-40s left out: %s", t->at_name, qn_last_error());
  say(t, text);
  return status == QN_IO_ERROR || status == QN_DRIVER_ERROR ? status : QN_OK;
}

/* ---- all cells ---- */
static bool fits(const tuner *t, const qn_tune_cell *c)
{
  double bytes = 0;
  for (size_t role = 0; role < t->order->op->info.n_tensors; role++)
    bytes += (double)qn_dtype_bytes(t->order->op->info.types[c->row].tensor[role].dtype);
  const double moved = (double)qn_tune_span(c) * bytes * 2; /* and as much to copy beside it */
  return t->info.free_bytes <= 0 || moved + 512e6 * on_gpu(t) < 0.9 * (double)t->info.free_bytes;
}

static qn_status set_stage(tuner *t, size_t row)
{
  uint64_t most = 1;
  for (size_t k = 0; k < t->n_cells; k++)
    if (t->cell[k].row == row && fits(t, &t->cell[k]) && qn_tune_span(&t->cell[k]) > most)
      most = qn_tune_span(&t->cell[k]);
  qn_tune_stage_destroy(&t->stage);
  return qn_tune_stage_create(&t->stage, t->order->op, row, &t->exec, most);
}

static qn_status tune_all(tuner *t)
{
  for (size_t k = 0; k < t->n_cells; k++) {
    char text[256];
    t->at = &t->cell[k];
    if (!t->order->dry_run && (k == 0 || t->cell[k - 1].row != t->at->row)) qn_try(set_stage(t, t->at->row));
    if (fits(t, t->at)) {
      qn_try(tune_cell(t));
    } else {
      qn_tune_cell_name(t->order->op, t->at, t->at_name, sizeof t->at_name);
      snprintf(text, sizeof text, "  %-40s left out: it does not fit the device's memory", t->at_name);
      say(t, text);
      t->outcome->failed++;
    }
    t->outcome->done++;
  }
  return QN_OK;
}

static qn_status open_state(tuner *t)
{
  char who[192];
  if (t->order->dry_run) return QN_OK;
  snprintf(who, sizeof who, "%s, %.60s, driver %d, compiler %d, %.40s", t->arch.name, t->info.name,
           t->info.driver_version, t->info.compiler_version, qn_build_commit);
  qn_try(qn_tune_state_open(&t->state, t->order->op->info.name, who, t->order->resume));
  t->has_state = true;
  return QN_OK;
}

static qn_status set_up(tuner *t)
{
  const qn_tune_order *o = t->order;
  qn_try(qn_device_query(o->device, &t->info));
  qn_try(qn_tune_arch(o->device, &t->arch));
  qn_try(qn_tune_cells(o->op, o->types, o->shapes, o->pitched, t->cell, &t->n_cells));
  t->outcome->cells = t->n_cells;
  if (o->progress) o->progress->total = t->n_cells;
  qn_try(open_state(t));
  return qn_stream_create(o->device, &t->exec.stream);
}

static qn_status tune_geometries(const qn_tune_order *order, qn_tune_outcome *outcome)
{
  tuner *t;
  *outcome = (qn_tune_outcome){0};
  qn_try(qn_try_allocate(&t, sizeof *t, "the tuner"));
  *t = (tuner){.order = order,
               .outcome = outcome,
               .exec = {.size = sizeof t->exec, .device = order->device},
               .arch.size = sizeof t->arch,
               .info.size = sizeof t->info,
               .state.file = -1,
               .began_ns = qn_now_ns()};
  qn_status status = set_up(t);
  if (status == QN_OK) status = tune_all(t);
  qn_tune_stage_destroy(&t->stage);
  (void)qn_option_set("geometry", NULL);
  (void)qn_stream_destroy(order->device, &t->exec.stream);
  qn_tune_state_close(&t->state);
  qn_release(t);
  return status;
}

static qn_status say_device(const qn_tune_order *order)
{
  qn_arch arch = {.size = sizeof arch};
  qn_try(qn_tune_arch(order->device, &arch));
  fprintf(order->out, "  a call on %s (%s) takes\n", arch.name, arch.family);
  return QN_OK;
}

static qn_status list_geometries(const qn_tune_order *order)
{
  static qn_tune_cell cell[QN_TUNE_CELLS];
  char name[QN_TUNE_TYPES + 64], geometry[QN_LAUNCH_SHAPE_NAME];
  size_t n;
  qn_try(qn_tune_cells(order->op, order->types, order->shapes, order->pitched, cell, &n));
  qn_try(say_device(order));
  for (size_t k = 0; k < n; k++) {
    const qn_tune_cell *c = &cell[k];
    const qn_launch_shape_key key = {order->op, c->row, order->device, c->rows, c->cols, c->layout == QN_TUNE_DENSE,
                                     false};
    qn_launch_shape g;
    const char *why;
    qn_try(qn_launch_shape_choose(&key, &g, &why));
    qn_launch_shape_name(&g, geometry);
    qn_tune_cell_name(order->op, c, name, sizeof name);
    fprintf(order->out, "    %-42s %-18s %s\n", name, geometry, why);
  }
  return QN_OK;
}

/* ---- of every engine ---- */

qn_status qn_tune_run(const qn_tune_order *order, qn_tune_outcome *outcome)
{
  const bool named = order->op->engine->variant;
  const qn_status status = named ? qn_tune_variants_run(order, outcome) : tune_geometries(order, outcome);
  outcome->what = named ? "variants" : "geometries";
  return status;
}

qn_status qn_tune_list(const qn_tune_order *order)
{
  if (!order->op->engine->variant) return list_geometries(order);
  qn_try(say_device(order));
  return qn_tune_variants_list(order);
}
