/* SPDX-License-Identifier: Apache-2.0 */
/* random.c - random words and 16-bit storage on every tier, against definitions written a second time here: Philox from
 * its paper with its published answers, rounding in exact double arithmetic. */
#include "cpu/tier.h"
#include "lanes.h"
#include "test.h"
#include <math.h>

enum { N = 1 << 16 }; /* numbers of 16 bits; a multiple of every pack */

static const test_lanes *lanes;
static const char *tier_name;

static uint32_t draw(uint64_t *state)
{
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 32);
}

static uint32_t bits_of(float x)
{
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static float float_of(uint32_t u)
{
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* ---- Philox4x32-10 ---- */
static void plain_philox(uint32_t c[4], uint32_t key0, uint32_t key1)
{
  for (int round = 0; round < 10; round++) {
    const uint64_t a = UINT64_C(0xd2511f53) * c[0], b = UINT64_C(0xcd9e8d57) * c[2];
    const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ key1,
                              (uint32_t)a};
    memcpy(c, next, sizeof next);
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
}

static void known_answers(void)
{
  static const uint32_t known[][10] = {/* counter, key, words: Random123's kat_vectors */
                                       {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                       {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                       {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
                                        0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int k = 0; k < 3; k++) {
    uint32_t words[4 * 16], plain[4];
    memcpy(plain, known[k], sizeof plain);
    plain_philox(plain, known[k][4], known[k][5]);
    lanes->philox(known[k], known[k] + 4, words);
    bool same = !memcmp(plain, known[k] + 6, sizeof plain);
    for (size_t i = 0; i < 4 * lanes->lanes; i++) same &= words[i] == known[k][6 + i / lanes->lanes];
    check(same, "%s: known answer %d", tier_name, k);
  }
}

/* Every word of a run is the one that its element's index says: whatever the run's beginning, wherever the block number
 * carries into its high half. */
static void memory_order(void)
{
  static const uint64_t begins[] = {0,
                                    1,
                                    2,
                                    3,
                                    4,
                                    1021,
                                    (UINT64_C(1) << 34) - 100,
                                    (UINT64_C(1) << 34) - 37,
                                    (UINT64_C(1) << 60) - 1024,
                                    (UINT64_C(3) << 40) + 7};
  enum { RUN = 1024 };
  static uint32_t words[RUN];
  for (size_t b = 0; b < sizeof begins / sizeof begins[0]; b++)
    for (uint32_t stream = 0; stream < 2; stream++) {
      const uint64_t seed = UINT64_C(0x0123456789abcdef) * (b + 1);
      size_t wrong = 0;
      lanes->random(seed, 77, 0xfffffff0u, stream, begins[b], RUN, words);
      for (size_t i = 0; i < RUN; i++) {
        const uint64_t element = begins[b] + i, block = element / 4;
        uint32_t c[4] = {(uint32_t)block, (uint32_t)(block >> 32) | stream << 28, 0xfffffff0u, 77};
        plain_philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
        wrong += words[i] != c[element % 4];
      }
      check(!wrong, "%s: words of elements from %llu, stream %u (%zu wrong)", tier_name, (unsigned long long)begins[b],
            stream, wrong);
    }
}

/* ---- 16-bit storage, in doubles: exact for all that is needed here ---- */
typedef struct format {
  int is_f16, significand, least_exponent, most_exponent; /* bits after the point; of normal numbers */
  uint16_t infinity;
} format;
static const format formats[] = {{0, 7, -126, 127, 0x7f80}, {1, 10, -14, 15, 0x7c00}};

static const char *name_of(const format *f) { return f->is_f16 ? "f16" : "bf16"; }

/* The step of storage at magnitude x. */
static double unit_at(const format *f, double x)
{
  int exponent = x == 0 ? f->least_exponent : ilogb(x);
  if (exponent < f->least_exponent) exponent = f->least_exponent;
  return ldexp(1, exponent - f->significand);
}

/* A magnitude that storage has exactly, or one too large, as bits. */
static uint16_t encode(const format *f, double x)
{
  if (x > ldexp(2 - ldexp(1, -f->significand), f->most_exponent)) return f->infinity;
  if (x < ldexp(1, f->least_exponent)) return (uint16_t)(x / unit_at(f, x));
  const int exponent = ilogb(x);
  const double fraction = ldexp(x, -exponent) - 1;
  return (uint16_t)((exponent - f->least_exponent + 1) << f->significand | (int)ldexp(fraction, f->significand));
}

static double decode(const format *f, uint16_t h)
{
  const int exponent = (h & 0x7fff) >> f->significand, digits = h & ((1 << f->significand) - 1);
  const double sign = h & 0x8000 ? -1 : 1;
  if ((h & 0x7fff) >= f->infinity) return (h & 0x7fff) > f->infinity ? NAN : sign * INFINITY;
  if (!exponent) return sign * ldexp(digits, f->least_exponent - f->significand);
  return sign * ldexp(digits + (1 << f->significand), exponent - 1 + f->least_exponent - f->significand);
}

static uint16_t nearest(const format *f, float x)
{
  const uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
  if (isnan(x)) return (uint16_t)(f->infinity + 1);
  if (isinf(x)) return sign | f->infinity;
  const double unit = unit_at(f, fabs((double)x));
  return sign | encode(f, nearbyint(fabs((double)x) / unit) * unit);
}

/* The magnitude's dropped bits plus as many of the word's: a carry takes the next larger number. For more than 32
 * dropped bits those below the 32nd are lost first. */
static uint16_t by_chance(const format *f, float x, uint32_t word)
{
  const uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
  const double magnitude = fabs((double)x);
  if (isnan(x)) return (uint16_t)(f->infinity + 1);
  if (isinf(x) || (f->is_f16 && magnitude >= 65536)) return sign | f->infinity;
  const double unit = unit_at(f, magnitude), low = floor(magnitude / unit), rest = magnitude / unit - low;
  /* The place of the float's own last bit says how many bits are dropped. */
  const int last = (magnitude < 0x1p-126 ? -126 : ilogb(magnitude)) - 23;
  int dropped = (int)log2(unit) - last;
  if (f->is_f16 && magnitude >= 0x1p-14) dropped = 13;
  if (dropped > 32) dropped = 32;
  const double whole = ldexp(1, dropped), part = floor(rest * whole);
  const bool up = part + (double)(word & (uint32_t)(whole - 1)) >= whole;
  return sign | encode(f, (low + up) * unit);
}

static bool same_half(const format *f, float x, uint16_t got, uint16_t want)
{
  return isnan(x) ? (got & 0x7fff) > f->infinity : got == want;
}

static float floats[N], other[N];
static uint16_t halves[N];
static uint32_t words[N];

static void check_narrow(const format *f, const char *what)
{
  size_t wrong = 0;
  lanes->narrow(f->is_f16, N, floats, halves);
  for (size_t i = 0; i < N; i++) wrong += !same_half(f, floats[i], halves[i], nearest(f, floats[i]));
  check(!wrong, "%s: %s to nearest, %s (%zu wrong)", tier_name, name_of(f), what, wrong);
  wrong = 0;
  lanes->narrow_chance(f->is_f16, N, floats, words, halves);
  for (size_t i = 0; i < N; i++) wrong += !same_half(f, floats[i], halves[i], by_chance(f, floats[i], words[i]));
  check(!wrong, "%s: %s by chance, %s (%zu wrong)", tier_name, name_of(f), what, wrong);
}

static void storage(const format *f)
{
  size_t wrong = 0;
  uint64_t state = 1;
  for (uint32_t i = 0; i < N; i++) halves[i] = (uint16_t)i;
  lanes->widen(f->is_f16, N, halves, other);
  for (uint32_t i = 0; i < N; i++) {
    const double want = decode(f, (uint16_t)i);
    wrong += isnan(want) ? !isnan(other[i]) : bits_of(other[i]) != bits_of((float)want);
  }
  check(!wrong, "%s: all of %s widened (%zu wrong)", tier_name, name_of(f), wrong);

  /* Round every number of storage: itself, half-way to the next, and the floats beside both. */
  for (int half_way = 0; half_way < 2; half_way++)
    for (int beside = -1; beside <= 1; beside++) {
      char what[64];
      for (uint32_t i = 0; i < N; i++) {
        const double x = decode(f, (uint16_t)i), unit = isfinite(x) ? unit_at(f, fabs(x)) : 0;
        floats[i] = float_of(bits_of((float)(x + half_way * copysign(unit / 2, x))) + (uint32_t)beside);
        words[i] = draw(&state);
      }
      snprintf(what, sizeof what, "numbers of storage%s %+d", half_way ? " and a half" : "", beside);
      check_narrow(f, what);
    }
  for (uint32_t i = 0; i < N; i++) floats[i] = float_of(draw(&state)), words[i] = draw(&state);
  check_narrow(f, "any floats");
  for (uint32_t i = 0; i < N; i++) { /* below f16's normals, where the number of dropped bits varies */
    floats[i] = ldexpf((float)(int32_t)draw(&state) * 0x1p-31f, -13 - (int)(i % 40));
    words[i] = i % 3 ? draw(&state) : i % 2 ? ~0u : ~0u << 8;
  }
  check_narrow(f, "small floats");
}

/* A property that no single rounding shows: over many words the mean is the number itself. A generator that is off by
 * 1/16 of a unit is off by a hundred standard deviations. */
static void mean(const format *f, float x)
{
  enum { ROUNDS = 16 };
  const double unit = unit_at(f, fabs((double)x));
  double sum = 0;
  for (int round = 0; round < ROUNDS; round++) {
    for (size_t i = 0; i < N; i++) floats[i] = x;
    lanes->random(42, (uint32_t)round, 5, 0, 0, N, words);
    lanes->narrow_chance(f->is_f16, N, floats, words, halves);
    for (size_t i = 0; i < N; i++) sum += (decode(f, halves[i]) - x) / unit;
  }
  sum /= (double)N * ROUNDS;
  check(fabs(sum) < 0.004, "%s: mean of %s(%a) is off by %+.5f units", tier_name, name_of(f), (double)x, sum);
}

static void means(const format *f)
{
  for (int k = 1; k < 16; k += 3) mean(f, (float)(1 + k / 16.0 * unit_at(f, 1)));
  mean(f, (float)(-3.5 - unit_at(f, 3) / 3));
  mean(f, f->is_f16 ? 0x1.56p-16f : 0x1.5555p-130f);
  if (!f->is_f16) return;
  mean(f, 0x1.8p-25f); /* under one step: either 0 or the smallest number */
  mean(f, -0x1p-26f);
}

static void signs(void)
{
  static const float values[] = {0.0f,     -0.0f,     1.0f,    -1.0f,    0x1p-149f, -0x1p-149f, 0x1p-126f, -0x1p-126f,
                                 INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 0.5f,      -2.0f,      NAN,       -NAN};
  size_t wrong = 0;
  for (size_t i = 0; i < N; i++) floats[i] = values[i % 16];
  floats[14] = float_of(0x7f800001u); /* signalling */
  lanes->sign(N, floats, other);
  for (size_t i = 0; i < N; i++) {
    const float x = floats[i], want = x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
    wrong += isnan(x) ? !isnan(other[i]) : bits_of(other[i]) != bits_of(want);
  }
  check(!wrong, "%s: signs of all kinds of numbers (%zu wrong)", tier_name, wrong);
}

int main(void)
{
  static const test_lanes *const all[QN_TIER_COUNT] = {
    [QN_TIER_REF] = &test_lanes_ref,
#if defined(__x86_64__)
    [QN_TIER_AVX2] = &test_lanes_avx2,
#ifndef QN_WITHOUT_AVX512
    [QN_TIER_AVX512] = &test_lanes_avx512,
#endif
#elif defined(__aarch64__)
    [QN_TIER_NEON] = &test_lanes_neon,
#endif
  };
  for (int tier = 0; tier < QN_TIER_COUNT; tier++) {
    if (!all[tier]) continue;
    lanes = all[tier];
    tier_name = qn_tier_name((qn_tier)tier);
    if (!qn_tier_runs_here((qn_tier)tier)) {
      skip("%s: not on this processor", tier_name);
      continue;
    }
    known_answers();
    memory_order();
    signs();
    for (size_t k = 0; k < 2; k++) storage(&formats[k]), means(&formats[k]);
  }
  return test_end();
}
