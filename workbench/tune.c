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
#include "workbench/table.h"
#include "workbench/tune_state.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { LOOK_ROUNDS = 8, PROVE_ROUNDS = 40, MOST_WAYS = 4, WHY = 400 };

typedef struct tuner tuner;
typedef struct candidate { /* a variant, as a runner sees it */
  tuner *t;
  char name[QN_TUNE_NAME];
  enum { UNSEEN, RIGHT, OUT } state;
  qn_list_facts facts; /* of its kernel in this place */
  bool has_facts;
} candidate;

struct tuner {
  const qn_tune_bed *bed;
  const qn_tune_order *order;
  qn_tune_outcome *outcome;
  qn_arch arch; /* whose tables are written */
  qn_device_info info;
  qn_tune_seen state;
  int64_t began_ns;
  const qn_tune_place *at; /* the one at hand */
  candidate incumbent, candidate[QN_SEARCH_MOST];
  size_t n;
};

static bool on_gpu(const tuner *t) { return t->bed->device.kind == QN_CUDA; }
static double spent_s(const tuner *t) { return (double)(qn_now_ns() - t->began_ns) * 1e-9; }

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

/* ---- times ---- */

static qn_status ready_candidate(void *user)
{
  candidate *s = user;
  qn_try(s->t->bed->ready(s->t->bed->self, s->name));
  if (s->has_facts || !s->t->bed->facts) return QN_OK;
  s->has_facts = true;
  return s->t->bed->facts(&s->facts);
}

static qn_status run_candidate(void *user)
{
  const candidate *s = user;
  return s->t->bed->run(s->t->bed->self, s->name);
}

static qn_timed runner_of(candidate *s)
{
  return (qn_timed){.name = s->name, .run = run_candidate, .ready = ready_candidate, .user = s, .decides = true};
}

/* As many rounds of n runners as `seconds` allow, at least `least`; the first runner is the incumbent. */
static qn_status sample(const tuner *t, qn_timed *runner, size_t n, size_t least, double seconds)
{
  qn_progress quiet = {.on = false}; /* the place's own line stays */
  const qn_sampling how = {.exec = *t->bed->exec(t->bed->self),
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
  const qn_tune_watch *w = t->order->watch;
  result.facts = s->facts;
  if (w) w->saw(w->user, t->at, t->incumbent.name, s->name, &result);
  if (!t->order->results) return;
  qn_tune_json_add(t->order->results, t->bed->configuration(t->bed->self, t->at, s->name), &result);
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
  return t->state.file >= 0 ? qn_tune_state_add(&t->state, key, time.median, ratio.ratio) : QN_OK;
}

/* Proves those that an earlier run has not seen; to_time: those of them that are right. */
static void sift(tuner *t, const size_t *which, size_t n, double *speedup, size_t *to_time, size_t *n_time)
{
  char key[QN_SEEN_KEY], why[WHY];
  const qn_tune_watch *w = t->order->watch;
  bool wrong;
  *n_time = 0;
  for (size_t k = 0; k < n; k++) {
    candidate *s = &t->candidate[which[k]];
    key_of(t, s->name, key);
    const json_t *seen = t->state.resumed ? json_object_get(t->state.seen, key) : NULL;
    speedup[k] = seen ? json_number_value(seen) : NAN;
    if (seen || s->state == OUT) continue;
    if (w && w->knows(w->user, t->at, t->incumbent.name, s->name, &speedup[k])) continue;
    qn_progress_at(t->order->progress, t->outcome->done, "%s: proving %s", t->at->name, s->name);
    if (s->state == UNSEEN) {
      t->bed->prove(t->bed->self, s->name, why, WHY, &wrong);
      s->state = *why ? OUT : RIGHT;
      t->outcome->wrong += wrong;
      t->outcome->impossible += *why && !wrong;
      if (*why) record(t, s, (qn_tune_result){.validity = wrong ? "correctness" : "runtime", .why = why});
      if (wrong) say(t, "  %s: %s is wrong: %s", t->at->name, s->name, why);
    }
    if (s->state == RIGHT) to_time[(*n_time)++] = k;
  }
}

/* So many of them side by side with the incumbent. */
static qn_status time_some(tuner *t, const size_t *which, const size_t *some, size_t n, double seconds, double *speedup)
{
  qn_timed runner[QN_SEARCH_MOST + 1] = {runner_of(&t->incumbent)};
  for (size_t k = 0; k < n; k++) runner[k + 1] = runner_of(&t->candidate[which[some[k]]]);
  qn_progress_at(t->order->progress, t->outcome->done, "%s: timing %zu variants", t->at->name, n);
  qn_status status = sample(t, runner, n + 1, LOOK_ROUNDS, seconds * (double)n);
  for (size_t k = 0; status == QN_OK && k < n; k++)
    status = take_look(t, &t->candidate[which[some[k]]], &runner[k + 1], &runner[0], &speedup[some[k]]);
  for (size_t k = 0; k <= n; k++) qn_timed_clear(&runner[k]);
  return status;
}

static qn_status look(void *user, const size_t *which, size_t n, double seconds, double *speedup)
{
  tuner *t = user;
  size_t to_time[QN_SEARCH_MOST], n_time;
  sift(t, which, n, speedup, to_time, &n_time);
  for (size_t k = 0, some; k < n_time; k += some) {
    some = n_time - k < t->bed->at_once ? n_time - k : t->bed->at_once;
    qn_try(time_some(t, which, to_time + k, some, seconds, speedup));
  }
  return QN_OK;
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
  t->bed->fill(t->bed->self, e);
}

/* The choice's rate over that of the fastest copy. */
static qn_status compare_copies(const tuner *t, const qn_timed *runner, const qn_ceiling_call *copy, int ways,
                                double ns, double *share)
{
  const double rate = t->bed->bytes(t->bed->self) / ns;
  for (int way = 0; way < ways; way++) {
    qn_summary copied;
    qn_try(qn_summarize(runner[way].ns, runner[way].n, &copied));
    const double of_this = rate / (copy[way].moved / copied.median);
    if (way == 0 || of_this < *share) *share = of_this;
  }
  return QN_OK;
}

/* Samples of incumbent, challenger and copies in the same rounds; the entry that follows from them. */
static qn_status judge(tuner *t, const candidate *best, const qn_timed *runner, const qn_ceiling_call *copy, int ways)
{
  static const char *const words[] = {"not told apart from", "faster than", "the same as", "slower than"};
  qn_tune_entry e;
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
  return t->bed->keep(t->bed->self, &e, t->outcome->path);
}

static qn_status conclude(tuner *t, candidate *best)
{
  qn_ceiling_call copy[MOST_WAYS];
  qn_timed runner[2 + MOST_WAYS] = {runner_of(&t->incumbent), runner_of(best)};
  const size_t bytes = (size_t)t->bed->bytes(t->bed->self);
  const double seconds = t->order->prove_s > 0 ? t->order->prove_s : on_gpu(t) ? 0.25 : 1;
  qn_ceiling *ceiling = NULL;
  int ways = 0;
  qn_progress_at(t->order->progress, t->outcome->done, "%s: %s once more", t->at->name, best->name);
  qn_status status = qn_ceiling_create(&ceiling, t->bed->exec(t->bed->self), bytes);
  if (status == QN_OK) ways = qn_ceiling_ways(ceiling, QN_MIX_COPY);
  if (ways > MOST_WAYS) ways = MOST_WAYS;
  for (int way = 0; way < ways; way++) {
    copy[way] = (qn_ceiling_call){.ceiling = ceiling, .mix = QN_MIX_COPY, .way = way, .bytes = bytes};
    runner[2 + way] = (qn_timed){.name = "copy", .run = qn_ceiling_run, .user = &copy[way]};
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
  const char *why, *name = t->bed->choice(t->bed->self, &why);
  if (!name) return qn_fail(QN_UNSUPPORTED, "no variant can do it");
  t->incumbent = make_candidate(t, name, strlen(name));
  return QN_OK;
}

static void offer(tuner *t, const char *name, size_t n)
{
  const candidate made = make_candidate(t, name, n);
  for (size_t k = 0; k < t->n; k++)
    if (!strcmp(made.name, t->candidate[k].name)) return;
  if (strcmp(made.name, t->incumbent.name) != 0 && t->n < QN_SEARCH_MOST) t->candidate[t->n++] = made;
}

/* The names that the order gives, or all that make sense; *without: those that do not, and why the last does not. */
static void find_candidates(tuner *t, size_t *without, char why[WHY])
{
  const char *name, *refusal;
  *without = t->n = 0;
  for (const char *at = t->order->only; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    offer(t, at, n);
    at += n;
  }
  for (size_t k = 0; !t->order->only && (name = t->bed->variant(t->bed->self, k, &refusal)); k++) {
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
  t->bed->prove(t->bed->self, t->incumbent.name, why, WHY, &wrong);
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
  if (t->order->watch) {
    const bool better = best < t->n && speedup > 1;
    t->order->watch->chose(t->order->watch->user, t->at, t->incumbent.name,
                           better ? t->candidate[best].name : t->incumbent.name, better ? speedup : 1);
    return QN_OK;
  }
  if (best < t->n) return conclude(t, &t->candidate[best]);
  t->outcome->kept++;
  say(t, "  %-44s %s alone can do it", t->at->name, t->incumbent.name);
  return QN_OK;
}

static qn_status tune_data(tuner *t)
{
  size_t without;
  char why[WHY];
  qn_try(t->bed->enter(t->bed->self, t->at, false));
  qn_status status = find_incumbent(t);
  if (status == QN_OK) find_candidates(t, &without, why);
  if (status == QN_OK) status = explore(t);
  t->bed->leave(t->bed->self);
  return status;
}

/* A place that fails, as it is too large or of types that the op takes only in another form, costs that place alone. */
static qn_status tune_place(void *user, const qn_tune_place *place)
{
  tuner *t = user;
  char done[QN_SEEN_KEY];
  t->at = place;
  snprintf(done, sizeof done, "done %s", place->name);
  const bool seen = t->state.resumed && json_object_get(t->state.seen, done);
  const bool late = t->order->budget_s > 0 && spent_s(t) > t->order->budget_s;
  qn_status status = QN_OK;
  if (!seen && late) t->outcome->left++;
  if (!seen && !late) {
    status = tune_data(t);
    if (status != QN_OK) t->outcome->failed++, say(t, "  %-44s left out: %s", place->name, qn_last_error());
    if (status == QN_OK && t->state.file >= 0) status = qn_tune_state_add(&t->state, done, 0, 0);
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
  qn_try(t->bed->enter(t->bed->self, place, true));
  const qn_status status = find_incumbent(t);
  if (status == QN_OK) find_candidates(t, &without, why);
  t->bed->leave(t->bed->self);
  qn_try(status);
  say(t, "  %s: %s in force, %zu others", place->name, t->incumbent.name, t->n);
  for (size_t k = 0; k < t->n; k++) say(t, "    %s", t->candidate[k].name);
  if (without) say(t, "    %zu are not tried; %s", without, why);
  return QN_OK;
}

/* ---- all of them ---- */

static qn_status check_names(const tuner *t)
{
  char name[QN_TUNE_NAME];
  for (const char *at = t->order->only; at && *at; at += *at == ',') {
    const size_t n = strcspn(at, ",");
    qn_require(n < sizeof name, "%s: \"%.60s\" is no variant", t->bed->name, at);
    snprintf(name, sizeof name, "%.*s", (int)n, at);
    qn_try(t->bed->knows(t->bed->self, name));
    at += n;
  }
  return QN_OK;
}

static qn_status count_place(void *user, const qn_tune_place *place)
{
  (void)place;
  ++((qn_tune_outcome *)user)->places;
  return QN_OK;
}

static qn_status open_state(tuner *t)
{
  char who[192];
  snprintf(who, sizeof who, "%s, %.60s, driver %d, compiler %d, %.40s", t->arch.name, t->info.name,
           t->info.driver_version, t->info.compiler_version, qn_build_commit);
  return qn_tune_state_open(&t->state, t->bed->name, who, t->order->resume);
}

static qn_status run_all(tuner *t)
{
  const qn_tune_bed *bed = t->bed;
  qn_try(bed->places(bed->self, count_place, t->outcome));
  if (t->order->progress) t->order->progress->total = t->outcome->places;
  qn_try(check_names(t));
  qn_try(qn_device_query(bed->device, &t->info));
  qn_try(qn_tune_arch(bed->device, &t->arch));
  if (!t->order->dry_run && bed->resumes && !t->order->watch) qn_try(open_state(t));
  return bed->places(bed->self, t->order->dry_run ? list_place : tune_place, t);
}

qn_status qn_tune_run(const qn_tune_bed *bed, const qn_tune_order *order, qn_tune_outcome *outcome)
{
  tuner *t;
  *outcome = (qn_tune_outcome){.places = 0};
  qn_try(qn_try_allocate(&t, sizeof *t, "the tuner"));
  *t = (tuner){.bed = bed,
               .order = order,
               .outcome = outcome,
               .arch.size = sizeof t->arch,
               .info.size = sizeof t->info,
               .state.file = -1,
               .began_ns = qn_now_ns()};
  const qn_status status = run_all(t);
  qn_tune_state_close(&t->state);
  qn_release(t);
  return status;
}
