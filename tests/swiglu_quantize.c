/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.c [cpu|host|cuda] [--all] - quern/swiglu_quantize.h against plain arithmetic behind qn_swiglu_step:
 * every tier, the host backend and each GPU, or one kind of them; every activation and type; scales given for all,
 * given a row, computed; rows apart; and f8e4m3 of a sample of all floats, with --all of every one. Golden
 * vectors, alignments and ends are the business of `quern check swiglu_quantize`. */
#include "base/kernel.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "quern/quern.h"
#include "test.h"
#include "../workbench/e4m3.h"
#include <float.h>
#include <math.h>

enum { ROWS = 3, MOST_COLS = 4100, APART = MOST_COLS + 8, SWEEP = 1 << 16 };
static const int64_t widths[] = {1, 7, 64, 255, 2049, MOST_COLS};

/* ---- memory, which on a GPU is the GPU's ---- */
typedef struct place {
  qn_exec exec;
  void *a, *b, *v, *c, *scale;
} place;

static bool open_place(place *p, qn_device device)
{
  *p = (place){.exec = {.size = sizeof(qn_exec), .device = device}};
  const size_t bytes = SWEEP * 4 + APART * ROWS * 4;
  return !qn_memory_allocate(device, bytes, &p->a) && !qn_memory_allocate(device, bytes, &p->b) &&
         !qn_memory_allocate(device, bytes, &p->v) && !qn_memory_allocate(device, bytes, &p->c) &&
         !qn_memory_allocate(device, 64, &p->scale);
}

static void close_place(place *p)
{
  void *const all[] = {p->a, p->b, p->v, p->c, p->scale};
  for (int k = 0; k < 5; k++)
    if (all[k]) qn_memory_release(p->exec.device, all[k]);
}

static float widened(qn_dtype dtype, const void *data, size_t k)
{
  if (dtype == QN_F32) return ((const float *)data)[k];
  const uint16_t half = ((const uint16_t *)data)[k];
  return dtype == QN_BF16 ? qn_bf16_float(half) : qn_f16_float(half);
}

static void narrow(qn_dtype dtype, void *data, size_t k, float x)
{
  if (dtype == QN_F32)
    ((float *)data)[k] = x;
  else
    ((uint16_t *)data)[k] = dtype == QN_BF16 ? qn_float_bf16(x) : qn_float_f16(x);
}

static uint64_t state = 3;
static float draw(void)
{
  float sum = -6;
  for (int k = 0; k < 12; k++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    sum += (float)(state >> 40) * 0x1p-24f;
  }
  return sum;
}

/* ---- one call against plain arithmetic ---- */
static unsigned char host_a[APART * ROWS * 4], host_b[APART * ROWS * 4], host_v[APART * ROWS * 4];
static uint8_t got[APART * ROWS];

typedef struct setting {
  qn_dtype dtype;
  int64_t cols;
  int activation, mode; /* 0: one scale; 1: one a row; 2: computed */
  double gate, down;
  bool tame; /* all results are finite */
} setting;

static void fill(const setting *s)
{
  static const float odd[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e30f, 1e-40f, -20};
  const int64_t rows = ROWS;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < s->cols; k++) {
      const size_t at = (size_t)(r * APART + k);
      narrow(s->dtype, host_a, at, r == 1 ? 0 : k % 97 == 50 && !s->tame ? odd[k / 97 % 8] : 3 * draw());
      narrow(s->dtype, host_b, at, k % 89 == 60 && !s->tame ? odd[k / 89 % 8] : 4 * draw());
    }
}

/* How many of the results differ. v is what qn_swiglu_step makes on the processor. */
static size_t compare(const setting *s, const float *scale, const float *written)
{
  size_t wrong = 0;
  for (int r = 0; r < ROWS; r++) {
    float amax = 0, by = scale[s->mode ? r : 0];
    for (int64_t k = 0; k < s->cols; k++) {
      const float size = fabsf(widened(s->dtype, host_v, (size_t)(r * s->cols + k)));
      if (size <= FLT_MAX && size > amax) amax = size;
    }
    if (s->mode == 2) {
      by = amax == 0 ? 1 : fmaxf(amax / 448, 0x1p-126f);
      wrong += by != written[r];
    }
    const float inverse = 1 / by;
    for (int64_t k = 0; k < s->cols; k++) {
      const uint8_t want = qn_e4m3_nearest(widened(s->dtype, host_v, (size_t)(r * s->cols + k)) * inverse);
      const uint8_t c = got[r * APART + k];
      wrong += c != want && !((c & 0x7f) == 0x7f && (want & 0x7f) == 0x7f);
    }
    for (int64_t k = s->cols; k < APART; k++) wrong += got[r * APART + k] != 0xa5; /* between rows nothing is written */
  }
  return wrong;
}

static bool reference(const setting *s)
{
  static unsigned char a[sizeof host_a], b[sizeof host_b];
  const size_t bytes = qn_dtype_bytes(s->dtype), row = (size_t)s->cols * bytes;
  for (size_t r = 0; r < ROWS; r++) {
    memcpy(a + r * row, host_a + r * APART * bytes, row);
    memcpy(b + r * row, host_b + r * APART * bytes, row);
  }
  const int64_t n = ROWS * s->cols;
  const qn_exec exec = {.size = sizeof exec};
  qn_swiglu_params p = QN_SWIGLU_DEFAULTS;
  p.activation = s->activation, p.gate_multiplier = s->gate, p.down_multiplier = s->down;
  const qn_tensor c = {host_v, s->dtype, 1, &n, NULL, {0}}, ta = {a, s->dtype, 1, &n, NULL, {0}},
                  tb = {b, s->dtype, 1, &n, NULL, {0}};
  return !qn_swiglu_step(&exec, &p, 1, &c, &ta, &tb);
}

static size_t one(place *p, const setting *s)
{
  static const float given[ROWS] = {0.25f, 0.007f, 3};
  float written[ROWS] = {0};
  const int64_t shape[] = {ROWS, s->cols}, strides[] = {APART, 1}, scales = s->mode ? ROWS : 1;
  const qn_device device = p->exec.device;
  const size_t bytes = sizeof host_a / 4 * qn_dtype_bytes(s->dtype);
  qn_swiglu_quantize_params params = QN_SWIGLU_QUANTIZE_DEFAULTS;
  params.activation = s->activation, params.computes = s->mode == 2;
  params.gate_multiplier = s->gate, params.down_multiplier = s->down;
  const qn_tensor c = {p->c, QN_F8E4M3, 2, shape, strides, device},
                  scale = {p->scale, QN_F32, 1, &scales, NULL, device}, a = {p->a, s->dtype, 2, shape, strides, device},
                  b = {p->b, s->dtype, 2, shape, strides, device};
  memset(got, 0xa5, sizeof got);
  bool ok = !qn_memory_write(device, NULL, p->a, host_a, bytes) &&
            !qn_memory_write(device, NULL, p->b, host_b, bytes) &&
            !qn_memory_write(device, NULL, p->c, got, sizeof got) &&
            !qn_memory_write(device, NULL, p->scale, given, sizeof given) &&
            !qn_swiglu_quantize(&p->exec, &params, &c, &scale, &a, &b) &&
            !qn_memory_read(device, NULL, got, p->c, sizeof got) &&
            !qn_memory_read(device, NULL, written, p->scale, sizeof written);
  return ok ? compare(s, given, written) : SIZE_MAX;
}

static void settings(place *p, const char *name, bool few)
{
  static const qn_dtype dtypes[] = {QN_F32, QN_BF16, QN_F16};
  static const char *const modes[] = {"one scale", "scales of rows", "computed scales"};
  for (int mode = 0; mode < 3; mode++) {
    size_t wrong = 0, calls = 0;
    for (int activation = 0; activation <= QN_SWIGLU_ACTIVATION_GEGLU_ERF && !wrong; activation += few ? 6 : 1)
      for (int d = 0; d < 3 && !wrong; d++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths && !wrong; w++, calls++) {
          const bool plain = !few && w % 2 == 0; /* few: each kind is compiled */
          const setting s = {dtypes[d], widths[w], activation, mode, plain ? 1 : 1.3, plain ? 1 : 0.75, false};
          fill(&s);
          wrong = reference(&s) ? one(p, &s) : SIZE_MAX;
          if (wrong) printf("# %s %d, %lld columns\n", qn_dtype_name(s.dtype), activation, (long long)s.cols);
        }
    check(!wrong, "%s: %s, %zu calls (%zu differ)", name, modes[mode], calls, wrong);
  }
}

/* A row in a block of every kind: as many threads as the name has at most, so that each holds 2, 4 or 8
 * vectors, or the block them in its shared memory. */
static void cuts(place *p, const char *name)
{
  static const struct {
    const char *forced, *took;
  } cut[] = {{"rows-512x8x1", "rows-288x8x2 (forced)"},
             {"rows-256x8x1", "rows-160x8x4 (forced)"},
             {"rows-128x8x1", "rows-96x8x8 (forced)"},
             {"rows-64x8x1", "rows-64x8-shared (forced)"}};
  for (size_t k = 0; k < sizeof cut / sizeof *cut; k++) {
    size_t wrong = 0;
    qn_option_set("geometry", cut[k].forced);
    for (int way = 0; way < 3 && !wrong; way++) { /* whole vectors; ragged; ragged, with results that are not finite */
      const int64_t cols = way ? MOST_COLS : MOST_COLS / 8 * 8;
      const setting s = {QN_BF16, cols, QN_SWIGLU_ACTIVATION_SWIGLU, 2, 1.3, 0.75, way < 2};
      fill(&s);
      wrong = reference(&s) ? one(p, &s) : SIZE_MAX;
    }
    check(!wrong && !strcmp(qn_op_last_variant(), cut[k].took), "%s: %s takes %s (%zu differ)", name, cut[k].forced,
          qn_op_last_variant(), wrong);
  }
  qn_option_set("geometry", NULL);
}

/* A row that no shared memory holds, against the processor's. */
static void wide(place *p, const char *name)
{
  enum { COLS = 120001 };
  static uint16_t a[COLS], b[COLS];
  static uint8_t to[2][COLS];
  const int64_t shape[] = {1, COLS}, one_scale = 1;
  float scale[2] = {0};
  const qn_device device = p->exec.device;
  const qn_exec cpu = {.size = sizeof cpu};
  qn_swiglu_quantize_params params = QN_SWIGLU_QUANTIZE_DEFAULTS;
  params.gate_multiplier = 1.3, params.down_multiplier = 0.75, params.computes = 1;
  for (int k = 0; k < COLS; k++) a[k] = qn_float_bf16(3 * draw()), b[k] = qn_float_bf16(k == 7 ? INFINITY : 4 * draw());
  const qn_tensor c = {p->c, QN_F8E4M3, 2, shape, NULL, device}, s = {p->scale, QN_F32, 1, &one_scale, NULL, device},
                  ta = {p->a, QN_BF16, 2, shape, NULL, device}, tb = {p->b, QN_BF16, 2, shape, NULL, device};
  const qn_tensor c_cpu = {to[0], QN_F8E4M3, 2, shape, NULL, {0}}, s_cpu = {scale, QN_F32, 1, &one_scale, NULL, {0}},
                  a_cpu = {a, QN_BF16, 2, shape, NULL, {0}}, b_cpu = {b, QN_BF16, 2, shape, NULL, {0}};
  qn_option_set("geometry", "rows-64x8x1");
  bool ok = !qn_memory_write(device, NULL, p->a, a, sizeof a) && !qn_memory_write(device, NULL, p->b, b, sizeof b) &&
            !qn_swiglu_quantize(&p->exec, &params, &c, &s, &ta, &tb) &&
            !strcmp(qn_op_last_variant(), "rows-64x8x0 (forced)");
  ok = ok && !qn_memory_read(device, NULL, to[1], p->c, sizeof to[1]) &&
       !qn_memory_read(device, NULL, &scale[1], p->scale, sizeof *scale) &&
       !qn_swiglu_quantize(&cpu, &params, &c_cpu, &s_cpu, &a_cpu, &b_cpu);
  check(ok && !memcmp(to[0], to[1], sizeof to[0]) && scale[0] == scale[1], "%s: a row of %d columns", name, COLS);
  qn_option_set("geometry", NULL);
}

/* ---- f8e4m3 itself: reglu of |x| times 1 or -1 is x ---- */

/* Of floats whose magnitudes rise; how many of the results differ. Most of the time all have one code. */
static size_t compare_codes(const uint8_t *to, const float *x, float sign)
{
  const uint8_t first = qn_e4m3_nearest(x[0] * sign), last = qn_e4m3_nearest(x[SWEEP - 1] * sign);
  size_t wrong = 0;
  if (first == last && first != 0x7f) {
    for (uint32_t k = 0; k < SWEEP; k++) wrong += to[k] != first;
    return wrong;
  }
  for (uint32_t k = 0; k < SWEEP; k++) {
    const uint8_t want = qn_e4m3_nearest(x[k] * sign);
    wrong += to[k] != want && !((to[k] & 0x7f) == 0x7f && want == 0x7f);
  }
  return wrong;
}

static void sweep(place *p, const char *name, uint32_t step)
{
  static float x[SWEEP], sign[SWEEP];
  static uint8_t to[SWEEP];
  const int64_t shape[] = {1, SWEEP}, one_scale = 1;
  const float unit = 1;
  const qn_device device = p->exec.device;
  qn_swiglu_quantize_params params = QN_SWIGLU_QUANTIZE_DEFAULTS;
  params.activation = QN_SWIGLU_ACTIVATION_REGLU;
  const qn_tensor c = {p->c, QN_F8E4M3, 2, shape, NULL, device}, s = {p->scale, QN_F32, 1, &one_scale, NULL, device},
                  a = {p->a, QN_F32, 2, shape, NULL, device}, b = {p->b, QN_F32, 2, shape, NULL, device};
  size_t wrong = 0, tried = 0;
  bool ok = !qn_memory_write(device, NULL, p->scale, &unit, sizeof unit);
  for (int negative = 0; negative < 2; negative++) {
    for (uint32_t k = 0; k < SWEEP; k++) sign[k] = negative ? -1 : 1;
    ok = ok && !qn_memory_write(device, NULL, p->b, sign, sizeof sign);
    for (uint64_t bits = 0; bits < UINT64_C(1) << 31 && ok; bits += (uint64_t)SWEEP * step, tried += SWEEP) {
      const uint64_t there = ((UINT64_C(1) << 31) - bits + step - 1) / step;
      qn_u32 at = (qn_u32)bits;
      for (uint32_t k = 0; k < SWEEP; k++, at += step) x[k] = qn_bits_float(k < there ? at : 0x7fffffffu);
      ok = !qn_memory_write(device, NULL, p->a, x, sizeof x) &&
           !qn_swiglu_quantize(&p->exec, &params, &c, &s, &a, &b) && !qn_memory_read(device, NULL, to, p->c, sizeof to);
      wrong += compare_codes(to, x, sign[0]);
    }
  }
  check(ok && !wrong, "%s: f8e4m3 of %zu floats (%zu wrong)", name, tried, wrong);
}

/* ---- shapes at the edge: rows without columns have scales; no rows, nothing ---- */
static void edges(place *p, const char *name)
{
  const qn_device device = p->exec.device;
  const int64_t shape[] = {2, 0}, none[] = {0, 7}, two = 2, zero = 0;
  float scale[3] = {5, 5, 5};
  qn_swiglu_quantize_params params = QN_SWIGLU_QUANTIZE_DEFAULTS;
  params.gate_multiplier = 1.3, params.down_multiplier = 0.75, params.computes = 1;
  qn_tensor c = {p->c, QN_F8E4M3, 2, shape, NULL, device}, s = {p->scale, QN_F32, 1, &two, NULL, device},
            a = {p->a, QN_F32, 2, shape, NULL, device};
  bool ok = !qn_memory_write(device, NULL, p->scale, scale, sizeof scale) &&
            !qn_swiglu_quantize(&p->exec, &params, &c, &s, &a, &a);
  c.shape = a.shape = none, s.shape = &zero;
  ok = ok && !qn_swiglu_quantize(&p->exec, &params, &c, &s, &a, &a) &&
       !qn_memory_read(device, NULL, scale, p->scale, sizeof scale);
  check(ok && scale[0] == 1 && scale[1] == 1 && scale[2] == 5, "%s: no columns, no rows", name);
}

/* ---- many rows, which threads share, against calls of one row ---- */
static void shared(void)
{
  enum { MANY = 5000, COLS = 40 };
  static float a[MANY * COLS], b[MANY * COLS], scale[2][MANY];
  static uint8_t to[2][MANY * COLS];
  const int64_t all[] = {MANY, COLS}, row[] = {1, COLS}, many = MANY, one_scale = 1;
  qn_exec exec = {.size = sizeof exec};
  qn_pool *pool = NULL;
  qn_swiglu_quantize_params params = QN_SWIGLU_QUANTIZE_DEFAULTS;
  params.computes = 1;
  for (int k = 0; k < MANY * COLS; k++) a[k] = draw(), b[k] = draw();
  const qn_tensor c = {to[0], QN_F8E4M3, 2, all, NULL, {0}}, s = {scale[0], QN_F32, 1, &many, NULL, {0}},
                  ta = {a, QN_F32, 2, all, NULL, {0}}, tb = {b, QN_F32, 2, all, NULL, {0}};
  bool ok = true;
  for (int r = 0; r < MANY; r++) {
    const qn_tensor c1 = {to[1] + r * COLS, QN_F8E4M3, 2, row, NULL, {0}},
                    s1 = {scale[1] + r, QN_F32, 1, &one_scale, NULL, {0}},
                    a1 = {a + r * COLS, QN_F32, 2, row, NULL, {0}}, b1 = {b + r * COLS, QN_F32, 2, row, NULL, {0}};
    ok = ok && !qn_swiglu_quantize(&exec, &params, &c1, &s1, &a1, &b1);
  }
  ok = ok && !qn_pool_create(&pool, 3);
  exec.pool = pool;
  ok = ok && !qn_swiglu_quantize(&exec, &params, &c, &s, &ta, &tb);
  check(ok && !memcmp(to[0], to[1], sizeof to[0]) && !memcmp(scale[0], scale[1], sizeof scale[0]),
        "%d rows, which threads share", MANY);
  qn_pool_destroy(&pool);
}

/* ---- what is refused ---- */
static void refusals(void)
{
  float a[6] = {0}, scale[2] = {1, 1};
  uint8_t c[6];
  const int64_t shape[] = {2, 3}, other[] = {3, 2}, two = 2, three = 3, apart[] = {2, 1}, columns[] = {6, 2};
  const qn_exec exec = {.size = sizeof exec};
  qn_swiglu_quantize_params p = QN_SWIGLU_QUANTIZE_DEFAULTS;
  const qn_tensor tc = {c, QN_F8E4M3, 2, shape, NULL, {0}}, ts = {scale, QN_F32, 1, &two, NULL, {0}},
                  ta = {a, QN_F32, 2, shape, NULL, {0}};
  qn_tensor bad = ta;
  check(!qn_swiglu_quantize(&exec, &p, &tc, &ts, &ta, &ta), "a call is good");
#define REFUSED(change, status, words, pc, ps, pa)                                                                     \
  (change, refuses(qn_swiglu_quantize(&exec, &p, pc, ps, pa, &ta), status, words))
  REFUSED((void)0, QN_BAD_ARGUMENT, "scale is NULL", &tc, NULL, &ta);
  REFUSED(bad.dtype = QN_F8E4M3, QN_BAD_TYPE, "a f8e4m3", &tc, &ts, &bad);
  REFUSED(bad.dtype = QN_F64, QN_BAD_TYPE, "a f64", &tc, &ts, &bad);
  REFUSED((bad = ta, bad.shape = other), QN_BAD_ARGUMENT, "3x2", &tc, &ts, &bad);
  REFUSED((bad = ta, bad.ndim = 1), QN_BAD_ARGUMENT, "1 dimensions", &tc, &ts, &bad);
  REFUSED((bad = ta, bad.strides = apart), QN_BAD_ARGUMENT, "2 elements apart", &tc, &ts, &bad);
  REFUSED((bad = ta, bad.strides = columns), QN_BAD_ARGUMENT, "side by side", &tc, &ts, &bad);
  REFUSED((bad = ta, bad.device.kind = QN_HOST), QN_BAD_ARGUMENT, "host:0", &tc, &ts, &bad);
  REFUSED((bad = ts, bad.shape = &three), QN_BAD_ARGUMENT, "3 elements", &tc, &bad, &ta);
  REFUSED((bad = ts, bad.dtype = QN_F16), QN_BAD_TYPE, "scale f16", &tc, &bad, &ta);
  REFUSED((bad = ts, bad.ndim = 0, p.computes = 1), QN_BAD_ARGUMENT, "to be computed", &tc, &bad, &ta);
  p.computes = 0;
  REFUSED((bad = tc, bad.data = a), QN_BAD_ARGUMENT, "share memory", &bad, &ts, &ta);
  REFUSED(p.activation = 6, QN_BAD_ARGUMENT, "activation is 6", &tc, &ts, &ta);
  REFUSED((p.activation = QN_SWIGLU_ACTIVATION_CLAMPED, p.limit = 0), QN_BAD_ARGUMENT, "limit is 0", &tc, &ts, &ta);
#undef REFUSED
}

static void on(qn_device device, const char *name, bool all, bool few)
{
  place p;
  if (check(open_place(&p, device), "memory on %s", name)) {
    settings(&p, name, few);
    if (device.kind != QN_CPU) cuts(&p, name), wide(&p, name);
    edges(&p, name);
    sweep(&p, name, all ? 1 : few ? 65521 : 4093);
  }
  close_place(&p);
}

static void on_cpu(bool all)
{
  for (int tier = 0; tier < QN_TIER_ORACLE; tier++) {
    if (!qn_tier_built((qn_tier)tier) || !qn_tier_runs_here((qn_tier)tier)) continue;
    if (check(!qn_option_set("cpu", qn_tier_name((qn_tier)tier)), "the tier %s", qn_tier_name((qn_tier)tier)))
      on((qn_device){QN_CPU, 0}, qn_tier_name((qn_tier)tier), all, false);
  }
  qn_option_set("cpu", NULL);
  shared();
  refusals();
}

static void on_gpus(bool all)
{
  int gpus = 0;
  if (!check(!qn_device_count(QN_CUDA, &gpus), "the driver, if any, works")) return;
  if (!gpus) skip("no GPU: %s", qn_last_error());
  for (int k = 0; k < gpus; k++) on((qn_device){QN_CUDA, k}, "cuda", all, false);
}

int main(int argc, char **argv)
{
  const bool all = argc > 1 && !strcmp(argv[argc - 1], "--all");
  const char *only = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
  if (!*only || !strcmp(only, "cpu")) on_cpu(all);
  if (!*only || !strcmp(only, "host")) on((qn_device){QN_HOST, 0}, "host", false, true);
  if (!*only || !strcmp(only, "cuda")) on_gpus(all);
  return test_end();
}
