/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_bench.c - a bench from end to end on tiny sizes, on the processor and with device sources on the host: its
 * parts, never its speed. Then what it is for: kernels that are wrong in known ways, and a crippled baseline, must get
 * no time. */
#include "test.h"
#include "quern/lion.h"
#include "workbench/bench.h"
#include "workbench/sampler.h"
#include <math.h>
#include <stdint.h>

static qn_progress quiet;
static qn_pool *pool;

static qn_bench_request ask_for(const qn_op *op, const void *params, const qn_workload *work, qn_device_kind kind)
{
  return (qn_bench_request){.op = op,
                            .params = params,
                            .work = work,
                            .device = {kind, 0},
                            .pool = pool,
                            .unfused = true,
                            .seconds = 0.02,
                            .seed = 7,
                            .progress = &quiet};
}

static bool is_series(const qn_series *s, size_t n)
{
  bool good = s->ns && s->n == n && s->bytes > 0 && s->gbps > 0;
  for (size_t k = 0; good && k < n; k++) good = s->ns[k] > 0 && isfinite(s->ns[k]);
  return good && s->time.min <= s->time.median && s->time.median <= s->time.max;
}

static void whole(qn_device_kind kind, qn_timer timer, const char *types)
{
  qn_lion_params params = QN_LION_DEFAULTS;
  qn_workload work;
  qn_bench b;
  params.weight_decay = 0.1;
  qn_workload_find("5x1001", &work);
  qn_bench_request request = ask_for(&qn_op_lion, &params, &work, kind);
  request.timer = timer;
  qn_bench_row(&qn_op_lion, types, &request.row);
  bool ran = qn_bench_run(&request, &b) == QN_OK;
  const char *on = qn_device_kind_name(kind);
  check(ran && b.check.right && b.timed, "%s, %s, %s: proved and timed", on, qn_timer_name(timer), types);
  bool f32 = !strcmp(types, "f32");
  uint64_t written = f32 ? 2 : 3;
  check(b.check.elements == written * 5005, "%llu elements were compared", (unsigned long long)b.check.elements);
  check(is_series(&b.fused, b.fused.n) && b.fused.n >= 6, "the fused form has %zu samples", b.fused.n);
  check(b.has_unfused == f32, "the unfused form is of f32 only");
  check(!f32 || (is_series(&b.unfused, b.fused.n) && b.unfused.bytes == 68 * 5005), "and was timed in the same rounds");
  bool ceilings = b.n_ceilings >= 5;
  for (size_t k = 0; k < b.n_ceilings; k++) ceilings = ceilings && is_series(&b.ceiling[k], b.fused.n);
  check(ceilings, "so were %zu ceilings", b.n_ceilings);
  check(!strcmp(b.ceiling[b.best].name, qn_mix_name(b.mix)), "the share is of %s", b.ceiling[b.best].name);
  check(b.share.low <= b.share.ratio && b.share.ratio <= b.share.high, "and has an interval round it");
  check(b.launches == (kind == QN_EMULATOR), "a step is %lld launches", (long long)b.launches);
  check(b.allocated == 0, "and allocates nothing");
  qn_bench_clear(&b);
  qn_workload_free(&work);
}

/* ---- kernels that are wrong: the op with one function exchanged ---- */
static qn_cpu_fn *true_kernel;

static void does_nothing(const qn_cpu_call *call, const qn_piece *piece)
{
  (void)call;
  (void)piece;
}
static void skips_the_tail(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_piece less = *piece;
  less.n -= less.n % 4;
  true_kernel(call, &less);
}
static void writes_behind(const qn_cpu_call *call, const qn_piece *piece)
{
  true_kernel(call, piece);
  ((float *)piece->data[0])[piece->n] = 0;
}
static void spoils_the_gradient(const qn_cpu_call *call, const qn_piece *piece)
{
  true_kernel(call, piece);
  ((float *)piece->data[1])[piece->n / 2] += 1;
}
static void is_off_by_one_bit(const qn_cpu_call *call, const qn_piece *piece)
{
  uint32_t bits;
  true_kernel(call, piece);
  memcpy(&bits, (char *)piece->data[2] + 4 * (piece->n - 1), 4);
  bits ^= 1;
  memcpy((char *)piece->data[2] + 4 * (piece->n - 1), &bits, 4);
}
static void steps_twice(const qn_cpu_call *call, const qn_piece *piece)
{
  true_kernel(call, piece);
  true_kernel(call, piece);
}

static void wrong(const char *what, qn_cpu_fn *kernel, const char *words)
{
  qn_lion_params params = QN_LION_DEFAULTS;
  qn_workload work;
  qn_bench b;
  qn_op op = qn_op_lion;
  qn_cpu_fn *reference = op.cpu[QN_TIER_REF];
  for (int k = 0; k < QN_TIER_ORACLE; k++) op.cpu[k] = op.cpu[k] ? kernel : NULL;
  op.cpu[QN_TIER_REF] = reference;
  true_kernel = reference;
  qn_workload_find("3x1003", &work);
  qn_bench_request request = ask_for(&op, &params, &work, QN_CPU);
  bool ran = qn_bench_run(&request, &b) == QN_OK;
  check(ran && !b.check.right && !b.timed && b.fused.n == 0, "a kernel that %s gets no time", what);
  check(strstr(b.check.wrong, words) != NULL, "and is told so: %s", b.check.wrong);
  qn_bench_clear(&b);
  qn_workload_free(&work);
}

static void no_passes(size_t n, float *const *arrays, const void *coef)
{
  (void)n;
  (void)arrays;
  (void)coef;
}

static void crippled_baseline(void)
{
  qn_lion_params params = QN_LION_DEFAULTS;
  qn_workload work;
  qn_bench b;
  qn_op op = qn_op_lion;
  op.unfused = no_passes;
  qn_workload_find("1x5000", &work);
  qn_bench_request request = ask_for(&op, &params, &work, QN_CPU);
  bool ran = qn_bench_run(&request, &b) == QN_OK;
  check(ran && b.timed && !b.has_unfused && !b.unfused_check.right,
        "an unfused form that is wrong gets no time either: %s", b.unfused_check.wrong);
  qn_bench_clear(&b);
  qn_workload_free(&work);
}

static void refusals(void)
{
  qn_lion_params params = QN_LION_DEFAULTS;
  qn_workload work;
  qn_bench b;
  qn_workload_find("1x200G", &work);
  qn_bench_request request = ask_for(&qn_op_lion, &params, &work, QN_CPU);
  refuses(qn_bench_run(&request, &b), QN_NO_MEMORY, "GB are free");
  qn_bench_clear(&b);
  qn_workload_free(&work);
  qn_workload_find("1x64", &work);
  request = ask_for(&qn_op_lion, &params, &work, QN_CPU);
  params.lr = -1;
  refuses(qn_bench_run(&request, &b), QN_BAD_ARGUMENT, "lr is -1");
  qn_bench_clear(&b);
  qn_workload_free(&work);
}

static void judgement(void)
{
  char why[192];
  bool impossible;
  qn_bench_judge(94, 100, 0, why, sizeof why, &impossible);
  check(impossible && !strncmp(why, "impossible", 10), "below 0.95 of the floor: %s", why);
  qn_bench_judge(96, 100, 500, why, sizeof why, &impossible);
  check(!impossible && !*why, "above it nothing is said");
  qn_bench_judge(100, 10, 1001, why, sizeof why, &impossible);
  check(!impossible && !strncmp(why, "suspicious", 10), "ten times the baseline: %s", why);
}

/* ---- what comes before a timed call ---- */
static qn_status gets_ready(void *user)
{
  ++((int *)user)[0];
  for (const int64_t from = qn_now_ns(); qn_now_ns() - from < 3000000;) continue;
  return QN_OK;
}

static qn_status runs(void *user) { return ++((int *)user)[1], QN_OK; }

static void readiness(void)
{
  int calls[2] = {0};
  qn_timed runner = {.name = "ready", .run = runs, .ready = gets_ready, .user = calls, .decides = true};
  const qn_sampling how = {.exec = {.size = sizeof(qn_exec), .device = {QN_CPU, 0}},
                           .settled = true,
                           .budget_s = 0.1,
                           .error = 1,
                           .least = 6,
                           .most = 6,
                           .progress = &quiet};
  const qn_status status = qn_sample(&how, &runner, 1);
  double least = INFINITY; /* another process may take the processor away once, not six times */
  for (size_t k = 0; k < runner.n; k++) least = fmin(least, runner.ns[k]);
  check(!status && runner.n == 6 && calls[0] == calls[1] && least < 2e6,
        "what makes ready goes before each of %d calls, %d times, and is not timed: %g ns", calls[1], calls[0], least);
  qn_timed_clear(&runner);
}

int main(void)
{
  if (qn_pool_create(&pool, 2) != QN_OK) return EXIT_FAILURE;
  whole(QN_CPU, QN_TIMER_EVENT, "f32");
  whole(QN_CPU, QN_TIMER_SIMPLE, "bf16 bf16 bf16 f32");
  whole(QN_CPU, QN_TIMER_DO_BENCH, "f32");
  whole(QN_EMULATOR, QN_TIMER_EVENT, "f32");
  if (qn_tier_runs_here(QN_TIER_AVX2) || qn_tier_runs_here(QN_TIER_NEON)) {
    wrong("does nothing", does_nothing, "param of tensor t0, element 0");
    wrong("skips the tail", skips_the_tail, "element 1000");
    wrong("writes behind its tensor", writes_behind, "bytes");
    wrong("spoils the gradient", spoils_the_gradient, "only read");
    wrong("is off by one bit", is_off_by_one_bit, "momentum of tensor t0, element 1002");
    wrong("steps twice", steps_twice, "the reference says");
  } else {
    skip("this processor runs the reference only, so no other kernel can be wrong");
  }
  crippled_baseline();
  refusals();
  judgement();
  readiness();
  qn_pool_destroy(&pool);
  return test_end();
}
