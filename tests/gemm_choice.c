/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_choice.c - which kernel a product is given, by architecture, class of precision and shape, against the driver
 * and compiler of mock/; that each one can be forced by its name or says why it cannot; that a call launches without
 * allocating. What the kernels compute is `quern check gemm_norm`'s. */
#include "mock/scenario.h"
#include "op/gemm_norm/gemm.h"
#include "op/gemm_norm/scale.h"
#include "op/launch_shape.h"
#include "op/tune.h"
#include "quern/quern.h"
#include "small_stack.h"
#include <math.h>

static const qn_device gpu = {QN_CUDA, 0};
enum { M = 1024, N = 8192, K = 8192, SIDE = 1024 };

typedef struct product {
  int64_t y[2], x[2], w[2];
  void *memory; /* of y, x and w, one behind the other; a prepare looks at none of it */
  qn_gemm_norm_params params;
  qn_dtype dtype;
  qn_exec exec;
} product;

static product make(int64_t m, int64_t n, int64_t k, qn_precision precision)
{
  product p = {.y = {m, n}, .x = {m, k}, .w = {n, k}, .params = QN_GEMM_NORM_DEFAULTS, .dtype = QN_F32};
  p.params.groups = (uint64_t)(n / 32 ? n / 32 : 1);
  p.params.precision = precision;
  p.exec = (qn_exec){.size = sizeof p.exec, .device = gpu};
  return p;
}

static qn_status call(product *p, bool prepare)
{
  const size_t bytes[] = {(size_t)(p->y[0] * p->y[1]) * 4, (size_t)(p->x[0] * p->x[1]) * 4};
  char *at = prepare ? (char *)4096 : p->memory;
  const qn_tensor y = {at, p->dtype, 2, p->y, NULL, gpu}, x = {at + bytes[0], p->dtype, 2, p->x, NULL, gpu};
  const qn_tensor w = {at + bytes[0] + bytes[1], p->dtype, 2, p->w, NULL, gpu};
  return prepare ? qn_gemm_norm_prepare(&p->exec, &p->params, &y, &x, &w, NULL, NULL, NULL, NULL)
                 : qn_gemm_norm_step(&p->exec, &p->params, &y, &x, &w, NULL, NULL, NULL, NULL);
}

/* The variant that a call would run: "wgmma-256x128 (the rule)". */
static const char *chosen(int64_t m, int64_t n, int64_t k, qn_precision precision)
{
  product p = make(m, n, k, precision);
  return call(&p, true) ? qn_last_error() : qn_op_last_variant();
}

/* Whatever the shipped table says of that class by now. */
static void expect(const char *variant, int64_t m, int64_t n, int64_t k, qn_precision precision)
{
  char wanted[64];
  snprintf(wanted, sizeof wanted, "%s (the rule)", variant);
  qn_tune_ignore(true);
  const char *took = chosen(m, n, k, precision);
  qn_tune_ignore(false);
  check(!strcmp(took, wanted), "%lld x %lld -> %lld, class %d: %s", (long long)m, (long long)k, (long long)n,
        (int)precision, took);
}

/* x, w and y are bf16. */
static void expect_short(const char *variant, int64_t m, int64_t n, int64_t k)
{
  product p = make(m, n, k, QN_PRECISION_BF16);
  p.dtype = QN_BF16;
  const char *took = call(&p, true) ? qn_last_error() : qn_op_last_variant();
  check(!strncmp(took, variant, strlen(variant)) && !strcmp(took + strlen(variant), " (the rule)"),
        "bf16, %lld x %lld -> %lld: %s", (long long)m, (long long)k, (long long)n, took);
}

static void on_hopper(void)
{
  expect("wgmma-256x128", M, N, K, QN_PRECISION_TF32);
  expect("wgmma-128x128", M, N, K, QN_PRECISION_BF16X3);
  expect("wgmma-128x128", M, N, K, QN_PRECISION_TF32X3);
  expect("wgmma-128x128", M, N, K, QN_PRECISION_F16X3);
  expect("wgmma-256x128", M, N, K, QN_PRECISION_BF16);
  expect_short("wgmma-256x128", M, N, K);
  expect_short("wgmma-256x128", M, N, K - 4); /* rows of x are no whole parts of 16 bytes: they are copied before */
  expect("sliced-16x64", 128, 1024, 544, QN_PRECISION_BF16X3);
  expect("sliced-32x32", 128, 1024, 544, QN_PRECISION_TF32X3);
  expect("cores-128x128", M, N, K, QN_PRECISION_FP32);
  expect("cores-16x64", 128, 1024, 544, QN_PRECISION_FP32);
  expect("cores-16x64-k4", 16, N, K, QN_PRECISION_FP32);
  const char *took = chosen(128, 1024, 512, QN_PRECISION_BF16X3); /* no deeper than what was measured */
  check(!strcmp(took, "sliced-16x32 (the shipped table, measured)"), "the table before the rule: %s", took);
  expect("whole-8", 3, 10, 5, QN_PRECISION_FP32);
  expect("whole-8", 3, 10, 5, QN_PRECISION_TF32); /* no vectors fit */
  expect("rows-8", 1, 4096, 1027, QN_PRECISION_TF32);
  expect("wgmma-128x128-k32", 256, 256, 131072, QN_PRECISION_BF16X3);
}

static void on_ampere(void)
{
  expect("mma-128x128", M, N, K, QN_PRECISION_TF32);
  expect("mma-128x128", M, N, K, QN_PRECISION_F16X3); /* by words of tf32 */
  expect("sliced-16x64", 128, 1024, 544, QN_PRECISION_BF16X3);
}

static void on_turing(void)
{
  expect("plain", M, N, K, QN_PRECISION_TF32);
  expect("whole-8", 128, 1024, 544, QN_PRECISION_BF16X3);
}

static void forced(void)
{
  const char *name;
  size_t n = 0;
  for (; (name = qn_gemm_variant_name(n)); n++) {
    qn_option_set("gemm", name);
    const char *took = chosen(256, 4096, 1024, QN_PRECISION_BF16X3);
    const char *rest = took + strlen(name);
    const bool ran =
        !strncmp(took, name, strlen(name)) && (!strncmp(rest, "-k", 2) || *rest == ' ') && strstr(rest, " (forced)");
    check(ran || (strstr(took, name) && strstr(took, "cannot do this: ")), "%s: %s", name, took);
  }
  check(n >= 9, "%zu variants", n);
  qn_option_set("gemm", "wgmma-256x128");
  check(!!strstr(chosen(M, N, K, QN_PRECISION_FP32), "it has no such class of precision"), "a class: %s",
        qn_last_error());
  check(!!strstr(chosen(M, N, K, QN_PRECISION_BF16X3), "its sums fill the registers"), "a split class: %s",
        qn_last_error());
  static const char *const counts[] = {"sliced-32x32-k4",  "sliced-32x32-k0",   "sliced-32x32-k",
                                       "sliced-32x32-k4x", "sliced-32x32-k257", "sliced-32x32-4"};
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    qn_option_set("gemm", counts[k]);
    const char *took = chosen(256, 4096, 1024, QN_PRECISION_BF16X3);
    check(k ? !!strstr(took, "there is no such variant; did you mean sliced-32x32")
            : !strcmp(took, "sliced-32x32-k4 (forced)"),
          "%s: %s", counts[k], took);
  }
  static const char *const uncut[] = {"rows-8-k2", "plain-k2", "cublas-k4"}; /* the first one cuts k */
  for (size_t k = 0; k < sizeof uncut / sizeof *uncut; k++) {
    qn_option_set("gemm", uncut[k]);
    const char *took = chosen(16, 4096, 4096, QN_PRECISION_BF16X3);
    check(!strcmp(took, "rows-8-k2 (forced)") == !k && !!strstr(took, "there is no such variant") == !!k, "%s: %s",
          uncut[k], took);
  }
  qn_option_set("gemm", "sliced-32x32-k6"); /* of 8 steps of 128 columns: four slices of two */
  const char *cut = chosen(256, 4096, 1024, QN_PRECISION_BF16X3);
  check(!strcmp(cut, "sliced-32x32-k4 (forced)"), "k in fewer slices: %s", cut);
  qn_option_set("gemm", "wgmma-256x12");
  check(!!strstr(chosen(M, N, K, QN_PRECISION_TF32), "did you mean wgmma-256x128"), "a name that is none: %s",
        qn_last_error());
  qn_option_set("gemm", NULL);
}

static void forced_before_its_time(void)
{
  qn_option_set("gemm", "mma-128x128");
  check(!!strstr(chosen(M, N, K, QN_PRECISION_TF32), "it is for compute capability 8.0 and later"), "sm_75: %s",
        qn_last_error());
}

/* A choice that needs more workspace than the caller lent is refused, where a table was changed since it was asked. */
static void outgrown(const product *p)
{
  const int64_t m = p->y[0], n = p->y[1], k = p->x[1];
  const qn_gemm_problem problem = {
      .args = {.x = p->memory, .w = p->memory, .y = p->memory, .m = m, .n = n, .k = k, .columns = n},
      .precision = p->params.precision};
  qn_exec exec = p->exec;
  exec.workspace_bytes = 16;
  const size_t before = mock()->launches();
  refuses(qn_gemm_device_run(&problem, &exec, false), QN_BAD_ARGUMENT, "the workspace has 16 bytes");
  check(mock()->launches() == before, "and nothing is launched");
}

/* What a call took is told after the text that it was told in is gone. */
static void noted(void)
{
  char name[] = "a name", why[] = "a reason";
  qn_variant_note(name, why);
  memset(name, 'x', sizeof name - 1);
  memset(why, 'x', sizeof why - 1);
  check(!strcmp(qn_op_last_variant(), "a name (a reason)"), "what is noted is kept: %s", qn_op_last_variant());
}

/* Every class on a processor, with a norm and without: 0, or 1 where a step fails. */
static void *multiply(void *user)
{
  static float y[37 * 96], x[37 * 700], w[96 * 700];
  static _Alignas(64) char room[1 << 20];
  const int64_t of_y[] = {37, 96}, of_x[] = {37, 700}, of_w[] = {96, 700};
  const qn_device cpu = {QN_CPU, 0};
  const qn_exec exec = {.size = sizeof exec, .device = cpu, .workspace = room, .workspace_bytes = sizeof room};
  (void)user;
  for (int turn = 0; turn < 4 * QN_GEMM_PRECISIONS; turn++) {
    const qn_dtype dtype = turn % 4 / 2 ? QN_BF16 : QN_F32;
    qn_gemm_norm_params params = QN_GEMM_NORM_DEFAULTS;
    params.groups = 3;
    params.precision = dtype == QN_BF16 ? QN_PRECISION_BF16 : (qn_precision)(turn / 4);
    params.norm = turn % 2 ? QN_NORM_NONE : QN_NORM_LAYER;
    const qn_tensor at_y = {y, dtype, 2, of_y, NULL, cpu}, at_x = {x, dtype, 2, of_x, NULL, cpu};
    const qn_tensor at_w = {w, dtype, 2, of_w, NULL, cpu};
    const qn_status status = qn_gemm_norm_step(&exec, &params, &at_y, &at_x, &at_w, NULL, NULL, NULL, NULL);
    if (!check(!status, "turn %d: %s", turn, status ? qn_last_error() : "right")) return (void *)1;
  }
  return NULL;
}

/* One kernel of its own, or two where x is split first or k is cut; on the caller's stream. */
static void launches(void)
{
  static const struct {
    qn_precision precision;
    int64_t m;
    size_t kernels;
  } cases[] = {{QN_PRECISION_TF32, 256, 1},   {QN_PRECISION_BF16X3, 256, 2}, {QN_PRECISION_BF16X3, 16, 1},
               {QN_PRECISION_TF32X3, 256, 2}, {QN_PRECISION_BF16, 256, 2},   {QN_PRECISION_FP32, 256, 2},
               {QN_PRECISION_F16X3, 256, 2}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    product p = make(cases[k].m, 4096, 1024, cases[k].precision);
    const qn_tensor of_y = {(void *)4096, QN_F32, 2, p.y, NULL, gpu}, of_x = {(void *)8192, QN_F32, 2, p.x, NULL, gpu};
    const qn_tensor of_w = {(void *)12288, QN_F32, 2, p.w, NULL, gpu};
    p.exec.workspace_bytes =
        qn_gemm_norm_workspace_bytes(&p.exec, &p.params, &of_y, &of_x, &of_w, NULL, NULL, NULL, NULL);
    check(!qn_memory_allocate(gpu, (size_t)(64 << 20), &p.memory), "memory");
    if (p.exec.workspace_bytes)
      check(!qn_memory_allocate(gpu, p.exec.workspace_bytes, &p.exec.workspace), "%zu bytes of workspace",
            p.exec.workspace_bytes);
    check(!qn_stream_create(gpu, &p.exec.stream), "a stream");
    check(!call(&p, true), "prepared: %s", qn_last_error());
    const size_t before = mock()->launches(), calls = mock()->calls("cuMemAlloc");
    check(!call(&p, false) && mock()->launches() == before + cases[k].kernels && mock()->calls("cuMemAlloc") == calls &&
              mock()->launch(before)->stream == p.exec.stream,
          "%lld rows, class %d: %zu kernels and no memory: %s", (long long)cases[k].m, (int)cases[k].precision,
          mock()->launches() - before, qn_op_last_variant());
    if (p.exec.workspace_bytes) outgrown(&p);
    qn_memory_release(gpu, p.memory);
    qn_memory_release(gpu, p.exec.workspace);
    qn_stream_destroy(gpu, &p.exec.stream);
  }
}

/* Products of operands that lie one behind the other: their launches, the variant, and the blocks of the first. */
static size_t launches_of(int64_t batches, int64_t m, int64_t k, int precision, const char **variant, unsigned *blocks)
{
  void *memory, *workspace = NULL;
  const size_t bytes = (size_t)(batches * SIDE * 2 * k * 4 + batches * SIDE * SIDE * 4);
  check(!qn_memory_allocate(gpu, bytes, &memory), "memory");
  const qn_gemm_args args = {.x = memory, .w = memory, .y = memory, .m = m, .n = SIDE, .k = k, .columns = SIDE};
  const qn_gemm_problem p = {
      .args = args, .precision = precision, .short_data = precision == QN_GEMM_BF16, .batches = batches};
  qn_exec exec = {.size = sizeof exec, .device = gpu};
  const char *why;
  *variant = qn_gemm_device_choice(&p, gpu, &why);
  exec.workspace_bytes = qn_gemm_device_workspace(&p, &exec);
  if (exec.workspace_bytes) check(!qn_memory_allocate(gpu, exec.workspace_bytes, &workspace), "a workspace");
  exec.workspace = workspace;
  const size_t before = mock()->launches();
  check(!qn_gemm_device_run(&p, &exec, false), "%lld batches: %s", (long long)batches, qn_last_error());
  *blocks = mock()->launch(before)->blocks;
  qn_memory_release(gpu, memory);
  qn_memory_release(gpu, workspace);
  return mock()->launches() - before;
}

static void batched(void)
{
  const char *variant;
  unsigned blocks;
  size_t n = launches_of(3, SIDE, 4096, QN_GEMM_BF16, &variant, &blocks);
  check(n == 1 && strstr(variant, "wgmma-") && blocks == 96, "bf16: %zu launches of %s, %u blocks", n, variant, blocks);
  n = launches_of(2, SIDE, 4096, QN_GEMM_TF32X3, &variant, &blocks);
  check(n == 2 && strstr(variant, "wgmma-"), "tf32x3, whose x is split before: %zu launches of %s", n, variant);
  const size_t one = launches_of(1, SIDE, 4095, QN_GEMM_TF32X3, &variant, &blocks);
  n = launches_of(2, SIDE, 4095, QN_GEMM_TF32X3, &variant, &blocks);
  check(one > 1 && n == 2 * one, "where rows are copied, one by one: %zu launches, alone %zu", n, one);
}

/* Of f16x3 the first kernel has a block for each long row of x and w, and a simdgroup for a short one. Of few rows w is
 * not read once more for their sake: words of tf32 are as good. */
static void scaled(void)
{
  const char *variant;
  unsigned blocks;
  launches_of(2, SIDE, 4096, QN_GEMM_F16X3, &variant, &blocks);
  check(blocks == 4 * SIDE && strstr(variant, "wgmma-"), "%s, rows of 4096: %u blocks", variant, blocks);
  launches_of(1, SIDE, 512, QN_GEMM_F16X3, &variant, &blocks);
  check(blocks == 2 * SIDE / 8 && strstr(variant, "wgmma-"), "%s, rows of 512: %u blocks", variant, blocks);
  launches_of(1, 64, 16384, QN_GEMM_F16X3, &variant, &blocks);
  check(blocks == 64 * 16384 / 4 / 256 && strstr(variant, "wgmma-64x128"), "%s, few rows: %u blocks", variant, blocks);
}

/* Rows of each magnitude are scaled into f16's range, by a power of two whose inverse is exact. */
static void factors(void)
{
  static const float shapes[] = {1, 1.5f, 0x1.fffffep0f};
  for (int exponent = -149; exponent <= 127; exponent++)
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
      const float most = ldexpf(shapes[k], exponent), factor = qn_gemm_row_factor(qn_float_bits(most));
      const float scale = qn_gemm_row_scale(factor), scaled_to = most * scale;
      const bool in_range = exponent < -112 ? scaled_to < 0x1p15f : scaled_to >= 0x1p13f && scaled_to < 0x1p15f;
      check(in_range && scale * factor * factor == 1, "%a is scaled to %a by %a, factor %a", (double)most,
            (double)scaled_to, (double)scale, (double)factor);
    }
  check(qn_gemm_row_factor(0) == 0x1p-63f, "a row of zeros: %a", (double)qn_gemm_row_factor(0));
  check(qn_gemm_row_factor(qn_float_bits(INFINITY)) == 0x1p57f, "infinity: %a",
        (double)qn_gemm_row_factor(qn_float_bits(INFINITY)));
}

int main(void)
{
  factors();
  scenario(MOCK_CUDA, "arch=90,multiprocessors=132", MOCK_NVRTC, "", on_hopper);
  scenario(MOCK_CUDA, "arch=80,multiprocessors=132", MOCK_NVRTC, "", on_ampere);
  scenario(MOCK_CUDA, "arch=120,multiprocessors=132", MOCK_NVRTC, "", on_ampere);
  scenario(MOCK_CUDA, "arch=75,multiprocessors=132", MOCK_NVRTC, "", on_turing);
  scenario(MOCK_CUDA, "arch=90,multiprocessors=132", MOCK_NVRTC, "", forced);
  scenario(MOCK_CUDA, "arch=75,multiprocessors=132", MOCK_NVRTC, "", forced_before_its_time);
  scenario(MOCK_CUDA, "arch=90,multiprocessors=132", MOCK_NVRTC, "", launches);
  scenario(MOCK_CUDA, "arch=90,multiprocessors=132", MOCK_NVRTC, "", batched);
  scenario(MOCK_CUDA, "arch=90,multiprocessors=132", MOCK_NVRTC, "", scaled);
  noted();
  check(!small_stack_run(128, multiply, NULL), "is enough for products");
  return test_end();
}
