/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - see tune.h. The incumbent of a place is the variant that a call would take now: the tables' choice or the
 * rule's. */
#include "workbench/tune.h"
#include "core/core.h"
#include "quern/device.h"
#include "workbench/build.h"
#include "workbench/ceiling.h"
#include "workbench/sampler.h"
#include "workbench/stats.h"
#include "workbench/subject.h"
#include "workbench/table.h"
#include "workbench/tune_state.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { LOOK_ROUNDS = 8, PROVE_ROUNDS = 40, MOST_WAYS = 4, LOOSEST = 2, WHY = 400 };

typedef struct tuner tuner;
typedef struct candidate { /* a variant, as a runner sees it */
  tuner *t;
  char name[QN_TUNE_NAME];
  enum { UNSEEN, RIGHT, OUT } state;
  qn_list_facts facts; /* of its kernel in this place */
  bool has_facts;
} candidate;

struct tuner {
  const qn_tune_order *order;
  qn_tune_outcome *outcome;
  const qn_engine *engine;
  qn_arch arch; /* whose tables are written */
  qn_device_info info;
  qn_tune_seen state;
  bool has_state;
  int64_t began_ns;
  /* The place at hand, whose tensors may serve the next one; where an op has no reference in double, small ragged
   * tensors, and the same as the processor's ref tier leaves them. */
  const qn_tune_place *at;
  qn_subject data, small, want;
  size_t row;
  char text[QN_PLACE_TEXT]; /* of the data; "": there are none */
  qn_tune_key key;
  candidate incumbent, candidate[QN_SEARCH_MOST];
  size_t n;
};

static bool on_gpu(const tuner *t) { return t->order->device.kind == QN_CUDA; }
static double spent_s(const tuner *t) { return (double)(qn_now_ns() - t->began_ns) * 1e-9; }
static qn_call call_of(const tuner *t) { return qn_subject_call(&t->data, QN_CALL_PREPARE); }
static qn_status force(const tuner *t, const char *name) { return qn_option_set(t->engine->option, name); }
static bool by_bits(const tuner *t) { return !t->data.check->reference; }

static void say(const tuner *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const tuner *t, const char *format, ...)
{
  va_list values;
  if (!t->order->out) return;
  if (t->order->progress) qn_progress_hide(t->order->progress);
  va_start(values, format);
  vfprintf(t->order->out, format, values);
  va_end(values);
  putc('\n', t->order->out);
  fflush(t->order->out);
}

/* ---- the tensors of a place ---- */

static void leave(tuner *t)
{
  qn_subject_close(&t->data);
  *t->text = 0;
}

static qn_subject_order order_of(const tuner *t, bool bare)
{
  return (qn_subject_order){.op = t->order->op,
                            .row = t->at->row,
                            .device = t->order->device,
                            .text = t->at->text,
                            .more = t->at->classed,
                            .seed = t->order->seed,
                            .bare = bare,
                            .lean = !qn_op_check_of(t->order->op)->reference};
}

/* As many bytes are copied beside it. */
static qn_status check_memory(tuner *t)
{
  const qn_subject_order order = order_of(t, true);
  qn_subject d;
  double bytes = 512e6 * on_gpu(t);
  const qn_status status = qn_subject_open(&d, &order);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) bytes += 2 * (double)d.role[r].bytes;
  qn_subject_close(&d);
  qn_try(status);
  qn_require(t->info.free_bytes <= 0 || bytes < 0.9 * (double)t->info.free_bytes,
             "it does not fit the device's memory");
  return QN_OK;
}

static qn_status enter(tuner *t)
{
  const qn_subject_order order = order_of(t, false);
  if (t->row == t->at->row && !strcmp(t->text, t->at->text)) return qn_subject_read(&t->data, t->at->classed);
  leave(t);
  qn_try(check_memory(t));
  const qn_status status = qn_subject_open(&t->data, &order);
  if (status != QN_OK) return leave(t), status;
  t->row = t->at->row;
  snprintf(t->text, sizeof t->text, "%s", t->at->text);
  return QN_OK;
}

/* ---- proofs ---- */

static qn_status step_reference(tuner *t, qn_subject_order *order)
{
  const char *tier;
  char kept[16];
  order->device = (qn_device){QN_CPU, 0};
  qn_try(qn_subject_open(&t->want, order));
  qn_try(qn_option_get("cpu", &tier));
  snprintf(kept, sizeof kept, "%s", tier);
  qn_try(qn_option_set("cpu", "ref"));
  const qn_status status = qn_subject_step(&t->want), back = qn_option_set("cpu", kept);
  return status == QN_OK ? back : status;
}

/* One reference for all candidates. */
static qn_status begin_proofs(tuner *t)
{
  qn_subject_order order = order_of(t, false);
  if (!by_bits(t)) return qn_subject_refer(&t->data, LOOSEST, QN_SUBJECT_REFERENCE);
  order.text = "1x11009 3x4099 4x14337 2x65";
  if (t->at->pitched) order.more = "apart=64";
  order.lean = false;
  qn_try(qn_subject_open(&t->small, &order));
  return step_reference(t, &order);
}

static void end_proofs(tuner *t)
{
  qn_subject_forget(&t->data);
  qn_subject_close(&t->small);
  qn_subject_close(&t->want);
}

/* Did the last launch take another variant than the call's choice? The word before the reason is the name. */
static bool took_another(const char *name)
{
  const char *took = qn_op_last_variant();
  return strncmp(took, name, strlen(name)) != 0 || took[strlen(name)] != ' ';
}

/* One step of the variant, against the reference. why: "", or the reason why it is not to be timed. */
static void prove(tuner *t, const char *name, char why[WHY], bool *wrong)
{
  qn_subject *s = by_bits(t) ? &t->small : &t->data;
  const qn_call call = call_of(t);
  const char *reason = "", *chosen;
  uint64_t elements = 0;
  double worst = 0;
  *wrong = false;
  *why = 0;
  qn_status status = force(t, name);
  if (status == QN_OK && (!(chosen = t->engine->choice(&call, &reason)) || strcmp(chosen, name) != 0))
    status = chosen ? qn_fail(QN_UNSUPPORTED, "%s takes its place: %s", chosen, reason) : QN_UNSUPPORTED;
  if (status == QN_OK) status = qn_subject_rewind(s);
  if (status == QN_OK) status = qn_subject_step(s);
  if (status == QN_OK && by_bits(t) && took_another(name))
    status = qn_fail(QN_UNSUPPORTED, "%.100s takes its place", qn_op_last_variant());
  if (status != QN_OK)
    snprintf(why, WHY, "%s", qn_last_error());
  else if (by_bits(t))
    *wrong = !qn_subject_intact(s, why, WHY) || !qn_subject_same(s, &t->want, why, WHY);
  else
    *wrong = !qn_subject_right(s, why, WHY, &elements, &worst);
  if (status == QN_OK && !*wrong) *why = 0;
}

/* ---- times ---- */

/* Of an option that was set the next call asks anew, tables, libraries and all: that call is not the one to time, or
 * the device would wait for it. */
static qn_status ready_candidate(void *user)
{
  candidate *s = user;
  qn_try(force(s->t, s->name));
  qn_try(qn_subject_run(&s->t->data));
  if (s->has_facts || !s->t->engine->facts) return QN_OK;
  s->has_facts = true;
  return s->t->engine->facts(&s->facts);
}

static qn_status run_candidate(void *user) { return qn_subject_run(&((const candidate *)user)->t->data); }

static qn_timed runner_of(candidate *s)
{
  return (qn_timed){.name = s->name, .run = run_candidate, .ready = ready_candidate, .user = s, .decides = true};
}

/* As many rounds of n runners as `seconds` allow, at least `least`; the first runner is the incumbent. */
static qn_status sample(const tuner *t, qn_timed *runner, size_t n, size_t least, double seconds)
{
  qn_progress quiet = {.on = false}; /* the place's own line stays */
  const qn_sampling how = {.exec = t->data.exec,
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
  snprintf(key, QN_SEEN_KEY, "%s over %s: %s", t->at->name, t->incumbent.name, name);
}

static void record(const tuner *t, const candidate *s, qn_tune_result result)
{
  result.op = t->order->op, result.place = t->at, result.key = &t->key;
  result.variant = s->name, result.facts = s->facts;
  qn_tune_json_add(t->order->results, &result);
}

static qn_status take_look(tuner *t, const candidate *s, const qn_timed *runner, const qn_timed *incumbent,
                           double *speedup)
{
  char key[QN_SEEN_KEY];
  qn_ratio ratio;
  qn_summary time;
  qn_try(qn_ratio_paired(incumbent->ns, runner->ns, runner->n, &ratio));
  qn_try(qn_summarize(runner->ns, runner->n, &time));
  *speedup = ratio.ratio;
  record(t, s,
         (qn_tune_result){.runtimes_ns = runner->ns,
                          .n = runner->n,
                          .median_ns = time.median,
                          .speedup = ratio.ratio,
                          .validity = "correct",
                          .why = ""});
  t->outcome->looked++;
  key_of(t, s->name, key);
  return t->has_state ? qn_tune_state_add(&t->state, key, time.median, ratio.ratio) : QN_OK;
}

/* Proves those that an earlier run has not seen; to_time: those of them that are right. */
static void sift(tuner *t, const size_t *which, size_t n, double *speedup, size_t *to_time, size_t *n_time)
{
  char key[QN_SEEN_KEY], why[WHY];
  bool wrong;
  *n_time = 0;
  for (size_t k = 0; k < n; k++) {
    candidate *s = &t->candidate[which[k]];
    key_of(t, s->name, key);
    const qn_seen *seen = t->has_state && t->state.resumed ? qn_tune_state_find(&t->state, key) : NULL;
    speedup[k] = seen ? seen->speedup : NAN;
    if (seen || s->state == OUT) continue;
    qn_progress_at(t->order->progress, t->outcome->done, "%s: proving %s", t->at->name, s->name);
    if (s->state == UNSEEN) {
      prove(t, s->name, why, &wrong);
      s->state = *why ? OUT : RIGHT;
      t->outcome->wrong += wrong;
      t->outcome->impossible += *why && !wrong;
      if (*why) record(t, s, (qn_tune_result){.validity = wrong ? "correctness" : "runtime", .why = why});
      if (wrong) say(t, "  %s: %s is wrong: %s", t->at->name, s->name, why);
    }
    if (s->state == RIGHT) to_time[(*n_time)++] = k;
  }
}

static qn_status look(void *user, const size_t *which, size_t n, double seconds, double *speedup)
{
  tuner *t = user;
  qn_timed runner[QN_SEARCH_MOST + 1] = {runner_of(&t->incumbent)};
  size_t to_time[QN_SEARCH_MOST], n_time;
  sift(t, which, n, speedup, to_time, &n_time);
  if (!n_time) return QN_OK;
  for (size_t k = 0; k < n_time; k++) runner[k + 1] = runner_of(&t->candidate[which[to_time[k]]]);
  qn_progress_at(t->order->progress, t->outcome->done, "%s: timing %zu variants", t->at->name, n_time);
  qn_status status = sample(t, runner, n_time + 1, LOOK_ROUNDS, seconds * (double)n_time);
  for (size_t k = 0; status == QN_OK && k < n_time; k++)
    status = take_look(t, &t->candidate[which[to_time[k]]], &runner[k + 1], &runner[0], &speedup[to_time[k]]);
  for (size_t k = 0; k <= n_time; k++) qn_timed_clear(&runner[k]);
  return status;
}

/* ---- the verdict ---- */

/* Measured today by this build. Of a build of a tree with changes no commit is said. */
static void fill_entry(const tuner *t, const candidate *choice, qn_tune_entry *e)
{
  const time_t now = time(NULL);
  struct tm utc;
  *e = (qn_tune_entry){.registers = choice->facts.registers,
                       .shared = choice->facts.shared_bytes,
                       .blocks = choice->facts.blocks,
                       .state = QN_TUNE_MEASURED,
                       .ratio = 1,
                       .low = 1,
                       .high = 1};
  snprintf(e->arch, sizeof e->arch, "%s", t->arch.name);
  snprintf(e->choice, sizeof e->choice, "%s", choice->name);
  snprintf(e->over, sizeof e->over, "%s", t->incumbent.name);
  strftime(e->date, sizeof e->date, "%Y-%m-%d", gmtime_r(&now, &utc));
  if (!strstr(qn_build_commit, "-dirty")) snprintf(e->commit, sizeof e->commit, "%s", qn_build_commit);
  qn_tune_classes(t->order->op, &t->key, e);
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

/* The choice's rate over that of the fastest copy. */
static qn_status compare_copies(const tuner *t, const qn_timed *runner, const copying *copy, int ways, double ns,
                                double *share)
{
  const double rate = qn_subject_bytes(&t->data) / ns;
  for (int way = 0; way < ways; way++) {
    qn_summary copied;
    qn_try(qn_summarize(runner[way].ns, runner[way].n, &copied));
    const double of_this = rate / (copy[way].moved / copied.median);
    if (way == 0 || of_this < *share) *share = of_this;
  }
  return QN_OK;
}

/* Samples of incumbent, challenger and copies in the same rounds; the entry that follows from them. */
static qn_status judge(tuner *t, const candidate *best, const qn_timed *runner, const copying *copy, int ways)
{
  static const char *const words[] = {"not told apart from", "faster than", "the same as", "slower than"};
  qn_tune_entry e, old;
  qn_ratio ratio;
  qn_summary theirs, mine;
  qn_try(qn_ratio_paired(runner[0].ns, runner[1].ns, runner[1].n, &ratio));
  qn_try(qn_summarize(runner[0].ns, runner[0].n, &theirs));
  qn_try(qn_summarize(runner[1].ns, runner[1].n, &mine));
  const qn_verdict verdict = qn_verdict_of(&ratio);
  const bool faster = ratio.low > 1; /* by less than the band of "same" too: a variant costs nothing to take */
  fill_entry(t, faster ? best : &t->incumbent, &e);
  if (faster) e.ratio = ratio.ratio, e.low = ratio.low, e.high = ratio.high;
  qn_try(compare_copies(t, runner + 2, copy, ways, faster ? mine.median : theirs.median, &e.copy));
  say(t, "  %-44s %-18s %9.2f us, %5.3fx %s %s %s, %.2f us; %s runs at %.3f of a copy", t->at->name, best->name,
      mine.median * 1e-3, ratio.ratio, qn_interval(ratio.low, ratio.high, 3).text,
      verdict == QN_SAME && faster ? "a little faster than" : words[verdict], t->incumbent.name, theirs.median * 1e-3,
      e.choice, e.copy);
  t->outcome->faster += faster;
  t->outcome->kept += !faster;
  const bool stands = qn_tune_find(t->order->op->info.name, &t->arch, &t->key, &old) == QN_TUNE_USER &&
                      !strcmp(old.arch, t->arch.name); /* the user's table says so already, with its reason */
  return !faster && stands ? QN_OK : qn_tune_keep(t->order->op->info.name, &e, 1, t->outcome->path);
}

static qn_status conclude(tuner *t, candidate *best)
{
  copying copy[MOST_WAYS];
  qn_timed runner[2 + MOST_WAYS] = {runner_of(&t->incumbent), runner_of(best)};
  const size_t bytes = (size_t)qn_subject_bytes(&t->data);
  const double seconds = t->order->prove_s > 0 ? t->order->prove_s : on_gpu(t) ? 0.25 : 1;
  qn_ceiling *ceiling = NULL;
  int ways = 0;
  qn_progress_at(t->order->progress, t->outcome->done, "%s: %s once more", t->at->name, best->name);
  qn_status status = qn_ceiling_create(&ceiling, &t->data.exec, bytes);
  if (status == QN_OK) ways = qn_ceiling_ways(ceiling, QN_MIX_COPY);
  if (ways > MOST_WAYS) ways = MOST_WAYS;
  for (int way = 0; way < ways; way++) {
    copy[way] = (copying){ceiling, way, bytes, 0};
    runner[2 + way] = (qn_timed){.name = "copy", .run = run_copy, .user = &copy[way]};
  }
  if (status == QN_OK) status = sample(t, runner, (size_t)(2 + ways), on_gpu(t) ? PROVE_ROUNDS : 8, seconds);
  if (status == QN_OK) status = judge(t, best, runner, copy, ways);
  for (int k = 0; k < 2 + ways; k++) qn_timed_clear(&runner[k]);
  qn_ceiling_destroy(&ceiling);
  return status;
}

/* ---- one place ---- */

static candidate make_candidate(tuner *t, const char *name, size_t n)
{
  candidate made = {.t = t, .facts = {-1, -1, -1}};
  snprintf(made.name, sizeof made.name, "%.*s", (int)n, name);
  return made;
}

static qn_status find_incumbent(tuner *t)
{
  const qn_call call = call_of(t);
  const char *why;
  qn_try(force(t, ""));
  const char *name = t->engine->choice(&call, &why);
  if (!name) return qn_fail(QN_UNSUPPORTED, "no variant can do it");
  t->incumbent = make_candidate(t, name, strlen(name));
  t->engine->key(&call, &t->key);
  return QN_OK;
}

static void offer(tuner *t, const char *name, size_t n)
{
  const candidate made = make_candidate(t, name, n);
  if (strcmp(made.name, t->incumbent.name) != 0 && t->n < QN_SEARCH_MOST) t->candidate[t->n++] = made;
}

/* The names that the order gives, or all that make sense; *without: those that do not, and why the last does not. */
static void find_candidates(tuner *t, size_t *without, char why[WHY])
{
  const qn_call call = call_of(t);
  const char *name;
  *without = t->n = 0;
  for (const char *at = t->order->only; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    offer(t, at, n);
    at += n;
  }
  for (size_t k = 0; !t->order->only && (name = t->engine->variant(t->order->op, k)); k++) {
    const char *refusal = t->engine->refuses(&call, k);
    if (!refusal) offer(t, name, strlen(name));
    if (refusal) ++*without, snprintf(why, WHY, "%s: %s", name, refusal);
  }
}

/* Seconds for this place: an equal share of what is left. 0: no limit. */
static double share_of_budget(const tuner *t)
{
  const double left = t->order->budget_s - spent_s(t), places = (double)(t->outcome->places - t->outcome->done);
  if (t->order->budget_s <= 0) return 0;
  return left > 0 ? 0.6 * left / places : 1e-3;
}

static qn_status explore(tuner *t)
{
  char why[WHY];
  bool wrong;
  size_t best, looked;
  double speedup;
  const double look_s = t->order->look_s > 0 ? t->order->look_s : on_gpu(t) ? 0.005 : 0.05;
  prove(t, t->incumbent.name, why, &wrong);
  if (*why)
    return qn_fail(QN_UNSUPPORTED, "%s, which is in force%s: %s", t->incumbent.name, wrong ? ", is wrong" : "", why);
  const qn_search search = {.n = t->n,
                            .strategy = t->order->strategy,
                            .seed = t->order->seed,
                            .look_s = look_s,
                            .budget_s = share_of_budget(t),
                            .look = look,
                            .user = t};
  qn_try(qn_search_run(&search, &best, &speedup, &looked));
  if (best < t->n) return conclude(t, &t->candidate[best]);
  t->outcome->kept++;
  say(t, "  %-44s %s alone can do it", t->at->name, t->incumbent.name);
  return QN_OK;
}

static qn_status tune_data(tuner *t)
{
  size_t without;
  char why[WHY];
  qn_try(enter(t));
  qn_try(find_incumbent(t));
  find_candidates(t, &without, why);
  qn_status status = begin_proofs(t);
  if (status == QN_OK) status = explore(t);
  end_proofs(t);
  return status;
}

/* A place that fails, as it is too large or of types that the op takes only in another form, costs that place alone. */
static qn_status tune_place(void *user, const qn_tune_place *place)
{
  tuner *t = user;
  char done[QN_SEEN_KEY];
  t->at = place;
  snprintf(done, sizeof done, "done %s", place->name);
  const bool seen = t->has_state && t->state.resumed && qn_tune_state_find(&t->state, done);
  const bool late = t->order->budget_s > 0 && spent_s(t) > t->order->budget_s;
  qn_status status = QN_OK;
  if (!seen && late) t->outcome->left++;
  if (!seen && !late) {
    status = tune_data(t);
    if (status != QN_OK) t->outcome->failed++, say(t, "  %-44s left out: %s", place->name, qn_last_error());
    if (status == QN_OK && t->has_state) status = qn_tune_state_add(&t->state, done, 0, 0);
  }
  t->outcome->done++;
  return status == QN_IO_ERROR || status == QN_DRIVER_ERROR ? status : QN_OK;
}

static qn_status list_place(void *user, const qn_tune_place *place)
{
  tuner *t = user;
  size_t without;
  char why[WHY];
  t->at = place;
  const qn_subject_order order = order_of(t, true);
  qn_status status = qn_subject_open(&t->data, &order);
  if (status == QN_OK) status = find_incumbent(t);
  if (status == QN_OK) find_candidates(t, &without, why);
  leave(t);
  qn_try(status);
  say(t, "  %s: %s in force, %zu others", place->name, t->incumbent.name, t->n);
  for (size_t k = 0; k < t->n; k++) say(t, "    %s", t->candidate[k].name);
  if (without) say(t, "    %zu are not tried; %s", without, why);
  return QN_OK;
}

/* ---- all of them ---- */

/* Every name is one that the option takes. */
static qn_status check_names(const tuner *t)
{
  char name[QN_TUNE_NAME], why[WHY];
  for (const char *at = t->order->only; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    qn_require(n < sizeof name, "%s: \"%.60s\" is no variant", t->order->op->info.name, at);
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    qn_try(force(t, name));
    if (t->engine->check_option() != QN_OK) {
      snprintf(why, sizeof why, "%s", qn_last_error());
      return qn_fail(QN_BAD_ARGUMENT, "%s has no variant \"%s\": %s", t->order->op->info.name, name, why);
    }
    at += n;
  }
  return QN_OK;
}

static qn_status open_state(tuner *t)
{
  char who[192];
  snprintf(who, sizeof who, "%s, %.60s, driver %d, compiler %d, %.40s", t->arch.name, t->info.name,
           t->info.driver_version, t->info.compiler_version, qn_build_commit);
  qn_try(qn_tune_state_open(&t->state, t->order->op->info.name, who, t->order->resume));
  t->has_state = true;
  return QN_OK;
}

qn_status qn_tune_run(const qn_tune_order *order, qn_tune_outcome *outcome)
{
  tuner *t;
  *outcome = (qn_tune_outcome){.places = qn_tune_place_count(order->op, order->device, &order->filter)};
  qn_try(qn_try_allocate(&t, sizeof *t, "the tuner"));
  *t = (tuner){.order = order,
               .outcome = outcome,
               .engine = order->op->engine,
               .arch.size = sizeof t->arch,
               .info.size = sizeof t->info,
               .state.file = -1,
               .began_ns = qn_now_ns()};
  if (order->progress) order->progress->total = outcome->places;
  qn_status status = check_names(t);
  if (status == QN_OK) status = qn_device_query(order->device, &t->info);
  if (status == QN_OK) status = qn_tune_arch(order->device, &t->arch);
  if (status == QN_OK && !order->dry_run) status = open_state(t);
  if (status == QN_OK)
    status = qn_tune_places(order->op, order->device, &order->filter, order->dry_run ? list_place : tune_place, t);
  leave(t);
  (void)force(t, NULL);
  qn_tune_state_close(&t->state);
  qn_release(t);
  return status;
}

/* ---- what the tables and the rule say ---- */

typedef struct asking {
  const qn_op *op;
  qn_device device;
  qn_status (*at)(void *user, const qn_tune_choice *choice);
  void *user;
} asking;

static qn_status ask(void *user, const qn_tune_place *place)
{
  const asking *a = user;
  qn_subject d;
  qn_status status = qn_subject_open(&d, &(qn_subject_order){.op = a->op,
                                                             .row = place->row,
                                                             .device = a->device,
                                                             .text = place->text,
                                                             .more = place->classed,
                                                             .bare = true});
  if (status == QN_OK) {
    const qn_call call = qn_subject_call(&d, QN_CALL_PREPARE);
    qn_tune_choice choice = {.place = place, .call = &call, .why = ""};
    choice.name = a->op->engine->choice(&call, &choice.why);
    if (!choice.name) choice.why = qn_last_error();
    status = a->at(a->user, &choice);
  }
  qn_subject_close(&d);
  return status;
}

qn_status qn_tune_choices(const qn_op *op, qn_device device, const qn_tune_filter *filter,
                          qn_status (*at)(void *user, const qn_tune_choice *choice), void *user)
{
  return qn_tune_places(op, device, filter, ask, &(asking){op, device, at, user});
}
