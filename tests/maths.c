/* SPDX-License-Identifier: Apache-2.0 */
/* maths.c FILE.csv - the functions of src/base/maths.h on every tier: the same bits as the reference's, and the
 * reference's no farther from libm's doubles than results/maths.csv says of all floats. Inputs: every exponent of both
 * signs with several hundred significands, and what lies round each bound in the functions and each worst place. The
 * words that only these functions use are tested first. All 2^32 inputs: tests/maths_all.c. */
#include "maths.h"
#include "cpu/tier.h"
#include "test.h"

enum { SIGNIFICANDS = 512, BESIDE = 64, MOST = 512 * SIGNIFICANDS + 64 * 1024 };

static float inputs[MOST], wanted[MOST], found[MOST];
static size_t n_inputs;

typedef struct result {
  double worst;
  uint32_t at;
} result;
static result results[MATHS_COUNT];

static void add(uint32_t bits)
{
  if (n_inputs < MOST) inputs[n_inputs++] = maths_float(bits);
}

static void add_beside(float x)
{
  for (int sign = 0; sign < 2; sign++)
    for (uint32_t k = 0; k < 2 * BESIDE; k++) add((maths_bits(x) ^ (uint32_t)sign << 31) + k - BESIDE);
}

/* "exp,4294967296,0.8763,0xc1dac129,..." a function. */
static bool read_results(const char *path)
{
  char line[256], name[32];
  double worst;
  unsigned at;
  int found_lines = 0;
  FILE *file = path ? fopen(path, "r") : NULL;
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "%31[a-z0-9],%*u,%lf,%x", name, &worst, &at) != 3) continue;
    for (int f = 0; f < MATHS_COUNT; f++)
      if (!strcmp(name, maths_all[f].name)) results[f] = (result){worst, at}, found_lines++;
  }
  if (file) fclose(file);
  return check(found_lines == MATHS_COUNT, "%s has %d of %d functions", path ? path : "no file", found_lines,
               MATHS_COUNT);
}

static void make_inputs(void)
{
  static const float bounds[] = {
      0x1p-126f,   0.70710678f, 1.0f,       1.41421356f, 4.0f,       8.66f,     9.0109f,
      10.0f,       87.336544f,  88.722839f, 89.0f,       103.27893f, 103.9721f, 104.0f,
      125.5f,      126.0f,      127.5f,     128.0f,      129.0f,     149.0f,    150.0f,
      151.0f,      65536.0f,    3.9192059f, 0.34657359f, 0x1p-24f,   0x1p-25f,  0x1p-12f,
      0x1p32f,     0x1p48f,     0x1p64f,    0x1p80f,     0x1p96f,    0x1p112f,  0x1.fffffep127f,
      0x1.6ac5p63f};
  uint64_t state = 1;
  for (uint32_t high = 0; high < 512; high++)
    for (uint32_t k = 0; k < SIGNIFICANDS; k++) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      add(high << 23 | (k < 8 ? k : k < 16 ? 0x800000u - (k - 7) : (uint32_t)(state >> 41)));
    }
  for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) add_beside(bounds[k]);
  for (int k = 1; k <= 32; k++) add_beside((float)(k * 0.78539816339744831)); /* where the quarter changes */
  for (int f = 0; f < MATHS_COUNT; f++) add_beside(maths_float(results[f].at));
  while (n_inputs % 64) add(0);
  check(n_inputs < MOST, "%zu inputs", n_inputs);
}

static bool same(float a, float b) { return maths_bits(a) == maths_bits(b) || (isnan(a) && isnan(b)); }

/* The reference against libm: what the file says of the worst place is so, and nothing is worse. */
static void reference(int f)
{
  const maths_about *about = &maths_all[f];
  double worst = 0, there = -1;
  uint32_t at = 0;
  maths_lanes_ref.function[f](n_inputs, inputs, wanted);
  for (size_t i = 0; i < n_inputs; i++) {
    const double error = maths_error(wanted[i], about->exact((double)inputs[i]));
    if (error > worst) worst = error, at = maths_bits(inputs[i]);
    if (maths_bits(inputs[i]) == results[f].at) there = error;
  }
  check(worst <= results[f].worst + 0.00005, "%s: the worst of these is %.4f at 0x%08x (%g), the file says %.4f",
        about->name, worst, at, (double)maths_float(at), results[f].worst);
  check(fabs(there - results[f].worst) <= 0.00005, "%s: and it is %.4f at 0x%08x", about->name, there, results[f].at);
}

/* The oracle's functions are libm's too, but said in another place. */
static void oracle(int f)
{
  size_t wrong = 0;
  for (size_t i = 0; i < n_inputs; i++) {
    const double x = (double)inputs[i], want = maths_all[f].exact(x), got = maths_oracle[f].exact(x);
    wrong += !(fabs(got - want) <= 1e-14 * fabs(want) || got == want || (isnan(got) && isnan(want)));
  }
  check(!wrong && !strcmp(maths_oracle[f].name, maths_all[f].name), "oracle: %s (%zu wrong)", maths_all[f].name, wrong);
}

static void tier_is_reference(const char *tier, const maths_lanes *lanes, int f)
{
  size_t wrong = 0, first = 0;
  maths_lanes_ref.function[f](n_inputs, inputs, wanted);
  lanes->function[f](n_inputs, inputs, found);
  for (size_t i = 0; i < n_inputs; i++)
    if (!same(found[i], wanted[i]) && !wrong++) first = i;
  if (!check(!wrong, "%s: %s has the reference's bits (%zu differ)", tier, maths_all[f].name, wrong))
    printf("# the first of 0x%08x: 0x%08x, not 0x%08x\n", maths_bits(inputs[first]), maths_bits(found[first]),
           maths_bits(wanted[first]));
}

/* ---- words ---- */
static void words(const char *tier, const maths_lanes *lanes)
{
  enum { N = 4096 };
  static uint32_t a[N], b[N], low[N], high[N];
  size_t wrong = 0;
  uint64_t state = 7;
  for (int i = 0; i < N; i++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    a[i] = i % 7 ? (uint32_t)(state >> 32) : ~0u, b[i] = i % 5 ? (uint32_t)(state >> 13) : ~0u;
  }
  lanes->multiply(N, a, b, low, high);
  for (int i = 0; i < N; i++) wrong += ((uint64_t)high[i] << 32 | low[i]) != (uint64_t)a[i] * b[i];
  check(!wrong, "%s: products of lanes (%zu wrong)", tier, wrong);

  wrong = 0;
  lanes->no_less(n_inputs, inputs, -2.5f, wanted);
  lanes->no_more(n_inputs, inputs, 7.25f, found);
  for (size_t i = 0; i < n_inputs; i++)
    wrong += !same(wanted[i], inputs[i] < -2.5f ? -2.5f : inputs[i]) +
             !same(found[i], inputs[i] > 7.25f ? 7.25f : inputs[i]);
  check(!wrong, "%s: bounds, which NaN passes (%zu wrong)", tier, wrong);

  wrong = 0;
  lanes->reciprocal(n_inputs, inputs, found);
  for (size_t i = 0; i < n_inputs; i++)
    if (!(inputs[i] < 1) && !(inputs[i] >= 0x1p126f)) wrong += !same(found[i], 1 / inputs[i]);
  check(!wrong, "%s: reciprocals from 1 to below 2^126 and of NaN (%zu wrong)", tier, wrong);

  wrong = 0;
  for (uint32_t lane = 0; lane <= 64; lane++) { /* one lane of 64 below, at last none */
    for (uint32_t i = 0; i < 64; i++) a[i] = i == lane ? 4 : 5;
    wrong += lanes->any(a, 5) != (lane < 64);
  }
  check(!wrong, "%s: any of the lanes (%zu wrong)", tier, wrong);
}

int main(int argc, char **argv)
{
  static const maths_lanes *const all[QN_TIER_COUNT] = MATHS_LANES;
  if (!read_results(argc > 1 ? argv[1] : NULL)) return test_end();
  make_inputs();
  for (int f = 0; f < MATHS_COUNT; f++) reference(f), oracle(f);
  for (int tier = 0; tier < QN_TIER_COUNT; tier++) {
    const char *name = qn_tier_name((qn_tier)tier);
    if (!all[tier]) continue;
    if (!qn_tier_runs_here((qn_tier)tier)) {
      skip("%s: not on this processor", name);
      continue;
    }
    words(name, all[tier]);
    for (int f = 0; f < MATHS_COUNT && tier != QN_TIER_REF; f++) tier_is_reference(name, all[tier], f);
  }
  return test_end();
}
