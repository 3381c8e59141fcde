/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.c [cpu|host|cuda] [--all] - f8e4m3 of a sample of all floats, with --all of every one, on every tier,
 * the emulator and each GPU, or one kind of them; which kernel a row's length and the option "launch_shape" take; and
 * the typed call's scales of any shape. Results are the business of `quern check swiglu_quantize`. */
#include "base/kernel.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "quern/quern.h"
#include "test.h"
#include "workbench/fill.h"

enum { SWEEP = 1 << 16, COLS = 120001 };

/* ---- memory, which on a GPU is the GPU's ---- */
typedef struct place {
  qn_exec exec;
  void *a, *b, *c, *scale;
} place;

static bool open_place(place *p, qn_device device)
{
  *p = (place){.exec = {.size = sizeof(qn_exec), .device = device}};
  return !qn_memory_allocate(device, 4 * COLS, &p->a) && !qn_memory_allocate(device, 4 * COLS, &p->b) &&
         !qn_memory_allocate(device, COLS, &p->c) && !qn_memory_allocate(device, 64, &p->scale) &&
         !qn_memory_fill(device, NULL, p->a, 0, 4 * COLS) && !qn_memory_fill(device, NULL, p->b, 0, 4 * COLS);
}

static void close_place(place *p)
{
  void *const all[] = {p->a, p->b, p->c, p->scale};
  for (int k = 0; k < 4; k++)
    if (all[k]) qn_memory_release(p->exec.device, all[k]);
}

/* ---- a row in a block of every kind: as many threads as the name has at most, so that each holds 2, 4 or 8 vectors,
 * or the block them in its shared memory, or nobody ---- */
static void cuts(place *p, const char *name)
{
  static const struct {
    int64_t cols;
    const char *forced, *took;
  } cut[] = {{4100, "rows-512x8x1", "rows-288x8x2 (forced)"},
             {4100, "rows-256x8x1", "rows-160x8x4 (forced)"},
             {4100, "rows-128x8x1", "rows-96x8x8 (forced)"},
             {4100, "rows-64x8x1", "rows-64x8-shared (forced)"},
             {COLS, "rows-64x8x1", "rows-64x8x0 (forced)"}};
  const qn_device device = p->exec.device;
  qn_swiglu_quantize_params params = QN_SWIGLU_QUANTIZE_DEFAULTS;
  params.computes = 1;
  for (size_t k = 0; k < sizeof cut / sizeof *cut; k++) {
    const int64_t shape[] = {1, cut[k].cols}, one = 1;
    const qn_tensor c = {p->c, QN_F8E4M3, 2, shape, NULL, device}, s = {p->scale, QN_F32, 1, &one, NULL, device},
                    a = {p->a, QN_BF16, 2, shape, NULL, device}, b = {p->b, QN_BF16, 2, shape, NULL, device};
    qn_option_set("launch_shape", cut[k].forced);
    check(!qn_swiglu_quantize(&p->exec, &params, &c, &s, &a, &b) && !strcmp(qn_op_last_variant(), cut[k].took),
          "%s: of %s a row of %lld takes %s", name, cut[k].forced, (long long)cut[k].cols, qn_op_last_variant());
  }
  qn_option_set("launch_shape", NULL);
}

/* ---- f8e4m3 itself: reglu of |x| times 1 or -1 is x ---- */

static uint8_t nearest(float x)
{
  uint8_t code;
  qn_number_store(QN_F8E4M3, &code, (double)x);
  return code;
}

/* Of floats whose magnitudes rise; how many of the results differ. Most of the time all have one code. */
static size_t compare_codes(const uint8_t *to, const float *x, float sign)
{
  const uint8_t first = nearest(x[0] * sign), last = nearest(x[SWEEP - 1] * sign);
  size_t wrong = 0;
  if (first == last && first != 0x7f) {
    for (uint32_t k = 0; k < SWEEP; k++) wrong += to[k] != first;
    return wrong;
  }
  for (uint32_t k = 0; k < SWEEP; k++) {
    const uint8_t want = nearest(x[k] * sign);
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

/* ---- the typed call's own: a dense scale may have any shape, as long as it has an element a row, or one ---- */
static void scales(void)
{
  float a[6] = {0}, scale[2] = {1, 1};
  uint8_t c[6];
  const int64_t shape[] = {2, 3}, row[] = {1, 2, 1}, column[] = {2, 1}, apart[] = {2, 1}, three = 3;
  const qn_exec exec = {.size = sizeof exec};
  qn_swiglu_quantize_params p = QN_SWIGLU_QUANTIZE_DEFAULTS;
  const qn_tensor tc = {c, QN_F8E4M3, 2, shape, NULL, {0}}, ta = {a, QN_F32, 2, shape, NULL, {0}};
  qn_tensor s = {scale, QN_F32, 3, row, NULL, {0}};
#define CALL qn_swiglu_quantize(&exec, &p, &tc, &s, &ta, &ta)
  check(!CALL, "a scale of 1x2x1");
  s = (qn_tensor){scale, QN_F32, 2, column, NULL, {0}};
  check(!CALL, "one of 2x1");
  s.ndim = 0;
  check(!CALL, "one of no dimensions, for all rows");
  p.computes = 1;
  refuses(CALL, QN_BAD_ARGUMENT, "scale has the shape 1, it must be [m], and m is 2");
  p.computes = 0, s.ndim = 1, s.shape = &three;
  refuses(CALL, QN_BAD_ARGUMENT, "scale has the shape 3, it must be [m] or [1], and m is 2");
  s = (qn_tensor){scale, QN_F32, 2, column, apart, {0}};
  refuses(CALL, QN_BAD_ARGUMENT, "scale has the shape 2x1, it must be [m] or [1]");
  s.ndim = QN_MAX_NDIM + 1;
  refuses(CALL, QN_BAD_ARGUMENT, "scale has 33 dimensions");
  refuses(qn_swiglu_quantize(&exec, &p, &tc, NULL, &ta, &ta), QN_BAD_ARGUMENT, "scale is NULL");
#undef CALL
}

static void on(qn_device device, const char *name, bool all, bool few)
{
  place p;
  if (check(open_place(&p, device), "memory on %s", name)) {
    if (device.kind != QN_CPU) cuts(&p, name);
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
  scales();
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
  if (!*only || !strcmp(only, "emulator")) on((qn_device){QN_EMULATOR, 0}, "emulator", false, true);
  if (!*only || !strcmp(only, "cuda")) on_gpus(all);
  return test_end();
}
