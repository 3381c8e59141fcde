/* SPDX-License-Identifier: Apache-2.0 */
/* judge_time.c - times of a candidate and of the baseline, side by side over the same data, which no call had before;
 * every timed output is verified. The machine's ceilings are timed in the same rounds. */
#include "workbench/judge_inner.h"
#include "core/core.h"
#include "workbench/measure.h"
#include <math.h>

enum { BASELINE, CANDIDATE, CONTROL, RACERS, MOST_ROUNDS = 500 }; /* control: the baseline in another process */

/* By level: rounds at least and at most of the timer that decides, rounds of the others, seconds. */
static const struct {
  size_t least, most, others;
  double seconds;
} levels[] = {{QN_WORD_PAIRS, 60, 5, 0.3}, {30, 200, 15, 5}, {60, MOST_ROUNDS, 30, 20}};

typedef struct race {
  qn_judge *j;
  qn_judge_verdict *v;
  qn_judge_process *process[RACERS];
  uint64_t offset[RACERS][QN_TIMED_SLOTS];
  double control[MOST_ROUNDS]; /* its times, by the timer that decides */
  double lag[QN_JUDGE_MODELS]
            [MOST_ROUNDS]; /* what this process's clock saw beyond the other's, waits for a processor taken off */
  double error[QN_JUDGE_MODELS];
  int64_t from;
  qn_status status;
  bool right;
  qn_measured what; /* for the ceilings */
  size_t most;      /* rounds, where there are more than the level's */
} race;

/* ---- one round ---- */
/* A body on a GPU has no way to the process's clock, which is the device's. */
static bool note_clock(race *r, int m, size_t round, double ns)
{
  const qn_judge_process *p = r->process[m];
  r->lag[m][round] = fmax(0, p->wall_ns - p->waited_ns - ns);
  if (r->j->ask.device.kind == QN_CUDA || p->wall_ns >= ns) return true;
  return qn_judged(r->v, QN_JUDGED_REFUSED, "its clock counts more time than has passed");
}

/* Each model's data are made right before it runs, so that they are as warm in the cache for one as for another. */
static bool run_all(race *r, qn_data_order *o, qn_judged_launch *l, int slot, qn_timer timer, size_t round)
{
  qn_judge_times *t = &r->v->times[timer];
  const size_t n = timer == r->v->headline ? RACERS : QN_JUDGE_MODELS;
  for (size_t k = 0; k < n; k++) {
    const size_t m = (k + round) % n;
    double *ns = m == CONTROL ? &r->control[round] : &t->ns[m][round];
    qn_judge_verdict own = {.n_notes = 0};
    o->at = r->process[m]->arena + r->offset[m][slot];
    r->status = qn_judged_launch_make(o, &l[m]);
    if (r->status != QN_OK) return false;
    if (!qn_model_run(r->process[m], slot, timer, ns, m == CANDIDATE ? r->v : &own))
      return m == CANDIDATE ? false
                            : qn_judged(r->v, QN_JUDGED_NOT, "the problem's own body, timed: %.1000s", own.reason);
    if (timer == r->v->headline && m != CONTROL && !note_clock(r, (int)m, round, *ns)) return false;
  }
  return true;
}

static bool compare_both(race *r, const qn_judged_launch *l)
{
  char why[512];
  qn_judge_word word;
  for (int m = 0; m < QN_JUDGE_MODELS; m++) {
    if (qn_judged_launch_right(&l[m], l[CANDIDATE].reference, &word, why, sizeof why)) continue;
    if (m == BASELINE) return qn_judged(r->v, QN_JUDGED_NOT, "the problem's own body, timed: %s", why);
    return qn_judged(r->v, word, "a timed call: %s", why);
  }
  r->v->launches++;
  return true;
}

static void note_errors(race *r, const qn_judged_launch *l)
{
  double most = 0, mean = 0;
  r->v->max_abs = 0;
  qn_judged_launch_errors(&l[CANDIDATE], l[CANDIDATE].reference, &r->v->max_abs, &r->v->mean_abs, &r->error[CANDIDATE]);
  qn_judged_launch_errors(&l[BASELINE], l[CANDIDATE].reference, &most, &mean, &r->error[BASELINE]);
}

/* All models over the same new data, in turns; then the reference, and both outputs compared in full. */
static bool run_round(race *r, qn_timer timer, size_t round)
{
  qn_judge *j = r->j;
  const int slot = (int)(qn_draw(&j->random) % QN_TIMED_SLOTS);
  qn_judged_launch l[RACERS] = {{.c = NULL}};
  qn_data_order o = {.folder = j->folder, .spec = &j->timed, .seed = qn_draw(&j->random), .pool = j->pool};
  bool right = run_all(r, &o, l, slot, timer, round);
  if (right) r->status = qn_judged_launch_reference(&l[CANDIDATE]);
  right = right && r->status == QN_OK && compare_both(r, l);
  if (right && round == 0 && timer == r->v->headline) note_errors(r, l);
  for (int m = 0; m < RACERS; m++) qn_judged_launch_clear(&l[m]);
  if (right) r->v->times[timer].n = round + 1;
  return r->right = right;
}

/* ---- rounds ---- */
static bool known_well(const qn_judge_times *t)
{
  for (int m = 0; m < QN_JUDGE_MODELS; m++) {
    qn_summary s;
    if (qn_summarize(t->ns[m], t->n, &s) != QN_OK || !(s.high - s.low <= 0.01 * s.median)) return false;
  }
  return true;
}

/* Asked before each round of the ceilings. */
static bool next_round(void *user)
{
  race *r = user;
  const qn_judge_level level = r->j->ask.level;
  const qn_judge_times *t = &r->v->times[r->v->headline];
  const double spent = (double)(qn_now_ns() - r->from) * 1e-9;
  const double budget = r->j->ask.seconds > 0 ? r->j->ask.seconds : levels[level].seconds;
  if (t->n >= levels[level].most || (t->n >= levels[level].least && (spent >= budget || known_well(t)))) return false;
  if (r->j->ask.progress) qn_progress_at(r->j->ask.progress, t->n, "timing, round %zu", t->n + 1);
  return run_round(r, r->v->headline, t->n);
}

static qn_status take_room(qn_judge_verdict *v)
{
  for (int t = 0; t < QN_TIMER_COUNT; t++)
    for (int m = 0; m < QN_JUDGE_MODELS; m++)
      qn_try(qn_try_allocate(&v->times[t].ns[m], MOST_ROUNDS * sizeof(double), "samples"));
  return QN_OK;
}

static bool open_slots(race *r)
{
  qn_talk_answer a;
  for (int m = 0; m < RACERS; m++)
    for (int k = 0; k < QN_TIMED_SLOTS; k++) {
      qn_judge_process *p = r->process[m];
      r->offset[m][k] = (uint64_t)k * r->j->timed_room + (qn_draw(&r->j->random) & 0xff) * QN_GUARD;
      if (!qn_ask_slot(p, k, r->j->n_planned, r->offset[m][k], &a))
        return m == CANDIDATE ? qn_model_broken(p, r->v)
                              : qn_judged(r->v, QN_JUDGED_NOT, "the problem's own body: %s", p->broken);
      if (a.status != QN_OK)
        return qn_judged(r->v, m == CANDIDATE ? QN_JUDGED_LAUNCH : QN_JUDGED_NOT, "timed: %s", a.text);
    }
  return true;
}

/* ---- figures ---- */
/* What must be moved: no more than each tensor once, whatever the folder's expression says. */
static qn_status amounts_of(const race *r, double *bytes, double *written, double *operations)
{
  qn_name set[QN_FOLDER_NAMES];
  qn_kernel_case_order order = {.device = {QN_CPU, 0}, .foreign = true};
  qn_kernel_case *c = NULL;
  qn_talk_order(r->j->folder, &r->j->timed, set, &order);
  qn_try(qn_kernel_case_create(&c, &order));
  double once = 0;
  *written = 0;
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    const double of = (double)c->array[k].elements * (double)qn_dtype_bytes(c->array[k].dtype);
    once += of;
    if (k >= c->n_inputs) *written += of;
  }
  *bytes = fmin(c->bytes, once);
  *operations = c->operations;
  qn_kernel_case_text(c, r->v->workload, sizeof r->v->workload);
  qn_kernel_case_destroy(&c);
  return QN_OK;
}

/* The fastest arithmetic that the machine was seen to do, of any kind. */
static double best_rate(const qn_exec *exec)
{
  enum { TURNS = 3 };
  qn_ceiling *ceiling;
  double best = 0, operations;
  if (qn_ceiling_create(&ceiling, exec, 1 << 16) != QN_OK) return 0;
  for (int rate = 0; rate < QN_RATE_COUNT; rate++)
    for (int turn = 0; turn < TURNS; turn++) {
      (void)qn_stream_synchronize(exec->device, exec->stream);
      const int64_t from = qn_now_ns();
      if (qn_ceiling_rate(ceiling, (qn_rate)rate, &operations) != QN_OK) break;
      if (qn_stream_synchronize(exec->device, exec->stream) != QN_OK) break;
      const double rated = operations / (double)(qn_now_ns() - from) * 1e9;
      if (rated > best) best = rated;
    }
  qn_ceiling_destroy(&ceiling);
  return best;
}

const char *qn_bound_name(qn_bound bound)
{
  static const char *const names[] = {"memory", "compute", "launch"};
  return names[bound];
}

static void find_limit(const qn_bench *b, const qn_exec *exec, qn_judge_limit *l)
{
  const double launch_ns = l->launch_ns = exec->device.kind == QN_CUDA ? 3000 : 1000;
  l->rate = l->operations > 0 ? best_rate(exec) : 0;
  const double compute = l->rate > 0 ? l->operations / l->rate * 1e9 : 0;
  l->gbps = b->n_ceilings ? b->ceiling[b->best].gbps : 0;
  l->floor_ns = b->floor_ns;
  l->bound = QN_BOUND_MEMORY;
  if (compute > l->floor_ns) {
    l->floor_ns = compute;
    l->bound = QN_BOUND_COMPUTE;
  }
  if (launch_ns > l->floor_ns) {
    l->floor_ns = launch_ns;
    l->bound = QN_BOUND_LAUNCH;
  }
}

static qn_status open_ceilings(const race *r, qn_bench *b, bool (*next)(void *user), void *user)
{
  *b = (qn_bench){.ask = {.device = r->j->ask.device, .pool = r->j->pool, .next = next, .user = user}};
  b->ask.timer = r->v->headline;
  b->ask.progress = r->j->ask.progress;
  b->mix = QN_MIX_COPY;
  b->cache = r->j->ask.device.kind == QN_CUDA ? "cold" : "mixed";
  b->device.size = sizeof b->device;
  return qn_device_query(r->j->ask.device, &b->device);
}

static bool summarize_all(const race *r)
{
  qn_judge_verdict *v = r->v;
  const qn_judge_times *decides = &v->times[v->headline];
  for (int timer = 0; timer < QN_TIMER_COUNT; timer++)
    for (int m = 0; m < QN_JUDGE_MODELS; m++)
      if (qn_summarize(v->times[timer].ns[m], v->times[timer].n, &v->times[timer].summary[m]) != QN_OK) return false;
  return qn_speedup_paired(decides->ns[BASELINE], decides->ns[CANDIDATE], decides->n, &v->speedup) == QN_OK;
}

static bool one_more(void *user)
{
  race *r = user;
  const size_t n = r->v->times[r->v->headline].n;
  return n < r->most && run_round(r, r->v->headline, n);
}

/* On a busy machine few rounds have a stream at its full rate: where the floor refuses, there are more. */
static bool more_rounds(race *r, const qn_exec *exec, double *floor_ns)
{
  enum { MORE = 40 };
  qn_bench b;
  r->most = r->v->times[r->v->headline].n + MORE;
  if (r->most > MOST_ROUNDS) return true;
  r->status = open_ceilings(r, &b, one_more, r);
  if (r->status != QN_OK) return false;
  const qn_status measured = qn_measure(&b, &r->what, exec);
  if (r->status == QN_OK) r->status = measured;
  if (r->status == QN_OK && r->right) *floor_ns = fmin(*floor_ns, b.floor_ns);
  qn_bench_clear(&b);
  return r->status == QN_OK && r->right && summarize_all(r);
}

/* A time below what the bytes alone need. Operations count on a GPU, whose matrix units were measured; the folder's
 * count of them is an estimate that a better formula may undercut. Where the baseline is below the floor too, the
 * folder counts bytes that a launch does not move. */
static bool is_possible(race *r, const qn_bench *b, const qn_exec *exec)
{
  char why[192];
  bool impossible, both;
  const qn_summary *s = r->v->times[r->v->headline].summary;
  double least = 0, floor_ns = b->floor_ns;
  if (r->j->ask.device.kind == QN_CUDA && r->v->limit.rate > 0) least = r->v->limit.operations / r->v->limit.rate * 1e9;
  qn_bench_judge(s[CANDIDATE].median, fmax(floor_ns, least), 0, why, sizeof why, &impossible);
  if (impossible && !more_rounds(r, exec, &floor_ns)) return false;
  qn_bench_judge(s[BASELINE].median, fmax(floor_ns, least), 0, why, sizeof why, &both);
  qn_bench_judge(s[CANDIDATE].median, fmax(floor_ns, least), 0, why, sizeof why, &impossible);
  if (!impossible) return true;
  if (!both) return qn_judged(r->v, QN_JUDGED_REFUSED, "%s", why);
  qn_judge_note(r->v, "both are faster than the floor of the bytes: does a launch move all that kernel.json counts?");
  r->v->in_doubt = true;
  return true;
}

/* A process that tells times of its own: this process's clock sees the rest. The least of all calls must exceed the
 * baseline's too before a candidate is refused. Where the median alone does, the times allow no word. */
static bool clocks_agree(race *r)
{
  const size_t n = r->v->times[r->v->headline].n;
  qn_summary s[QN_JUDGE_MODELS];
  if (r->j->ask.device.kind == QN_CUDA) return true;
  for (int m = 0; m < QN_JUDGE_MODELS; m++)
    if (qn_summarize(r->lag[m], n, &s[m]) != QN_OK) return true;
  const double time = r->v->times[r->v->headline].summary[CANDIDATE].median;
  const double noise = 0.5 * time + 300e3;
  if (s[CANDIDATE].median <= s[BASELINE].median + noise) return true;
  r->v->in_doubt = true;
  if (s[CANDIDATE].min <= 3 * s[BASELINE].min + noise) return true;
  return qn_judged(r->v, QN_JUDGED_REFUSED, "its clock misses %.3g ms of each call", s[CANDIDATE].min * 1e-6);
}

static const char *precision_of(double own, double baseline)
{
  if (own <= 2 * baseline || own <= 0x1p-23) return "baseline's";
  return own <= 0x1p-10 ? "tf32" : own <= 0x1p-7 ? "bf16" : "below bf16";
}

/* Two processes with the same kernel differ by where their memory lies and when they run, which no interval of two
 * processes knows. The control's interval bounds that difference, and only a greater one is faster or slower. Nothing
 * is said either where another timer's medians say the contrary. */
static qn_verdict word_of(const race *r)
{
  const qn_judge_verdict *v = r->v;
  const qn_judge_times *decides = &v->times[v->headline];
  const qn_verdict word = qn_verdict_of(&v->speedup);
  qn_ratio same;
  if (v->in_doubt || qn_speedup_paired(decides->ns[BASELINE], r->control, decides->n, &same) != QN_OK)
    return QN_UNCLEAR;
  const double most = fmax(same.high, 1 / same.low);
  if (word == QN_FASTER && !(v->speedup.low > most)) return QN_UNCLEAR;
  if (word == QN_SLOWER && !(v->speedup.high * most < 1)) return QN_UNCLEAR;
  for (int t = 0; t < QN_TIMER_COUNT; t++) {
    const qn_summary *s = v->times[t].summary;
    if (word == QN_FASTER && s[CANDIDATE].median >= s[BASELINE].median) return QN_UNCLEAR;
    if (word == QN_SLOWER && s[CANDIDATE].median <= s[BASELINE].median) return QN_UNCLEAR;
  }
  return word;
}

static bool conclude(race *r, const qn_bench *b, const qn_exec *exec)
{
  static const qn_judge_word words[] = {[QN_FASTER] = QN_JUDGED_FASTER,
                                        [QN_SAME] = QN_JUDGED_SAME,
                                        [QN_SLOWER] = QN_JUDGED_SLOWER,
                                        [QN_UNCLEAR] = QN_JUDGED_UNCLEAR};
  qn_judge_verdict *v = r->v;
  if (!summarize_all(r)) return false;
  v->error = r->error[CANDIDATE];
  v->baseline_error = r->error[BASELINE];
  v->precision = precision_of(v->error, v->baseline_error);
  v->timed = true;
  find_limit(b, exec, &v->limit);
  if (!is_possible(r, b, exec) || !clocks_agree(r)) return false;
  v->word = words[word_of(r)];
  return true;
}

/* ---- the race ---- */
static bool time_all(race *r, qn_bench *b, const qn_exec *exec)
{
  qn_judge_verdict *v = r->v;
  double written;
  r->status = amounts_of(r, &v->limit.bytes, &written, &v->limit.operations);
  if (r->status != QN_OK) return false;
  r->what = (qn_measured){.bytes = v->limit.bytes,
                          .written = written,
                          .set_bytes = v->limit.bytes,
                          .seconds = levels[r->j->ask.level].seconds};
  r->status = open_ceilings(r, b, next_round, r);
  if (r->status != QN_OK) return false;
  const qn_status measured = qn_measure(b, &r->what, exec);
  if (r->status == QN_OK) r->status = measured; /* a round's own failure comes first */
  if (r->status != QN_OK || !r->right) return false;
  for (int timer = 0; timer < QN_TIMER_COUNT; timer++)
    for (size_t round = 0; timer != (int)v->headline && round < levels[r->j->ask.level].others; round++)
      if (!run_round(r, (qn_timer)timer, round)) return false;
  return conclude(r, b, exec);
}

bool qn_judge_time(qn_judge *j, qn_judge_process *candidate, qn_judge_verdict *v, qn_status *status)
{
  race r = {.j = j,
            .v = v,
            .process = {&j->baseline, candidate, &j->control},
            .from = qn_now_ns(),
            .status = QN_OK,
            .right = true};
  qn_bench b = {.timed = false};
  qn_exec exec = {.size = sizeof exec, .device = j->ask.device, .pool = j->pool};
  v->headline = j->ask.device.kind == QN_CUDA ? QN_TIMER_EVENT : QN_TIMER_SIMPLE;
  r.status = take_room(v);
  if (r.status == QN_OK) r.status = qn_stream_create(exec.device, &exec.stream);
  const bool right = r.status == QN_OK && open_slots(&r) && time_all(&r, &b, &exec);
  (void)qn_stream_destroy(exec.device, &exec.stream);
  qn_bench_clear(&b);
  *status = r.status;
  return right;
}
