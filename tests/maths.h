/* SPDX-License-Identifier: Apache-2.0 */
/* maths.h - the functions of src/base/maths.h over plain arrays, for one tier each, and what they are to be: the same
 * function of libm in double. tests/maths_lanes.c is built once per tier with that tier's flags. */
#ifndef QN_TESTS_MATHS_H
#define QN_TESTS_MATHS_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MATHS_FUNCTIONS(X)                                                                                             \
  X(exp)                                                                                                               \
  X(exp2)                                                                                                              \
  X(expm1)                                                                                                             \
  X(log)                                                                                                               \
  X(log2)                                                                                                              \
  X(log1p)                                                                                                             \
  X(sin)                                                                                                               \
  X(cos)                                                                                                               \
  X(tanh)                                                                                                              \
  X(sigmoid)                                                                                                           \
  X(sigmoid16)                                                                                                         \
  X(erf)                                                                                                               \
  X(gelu)                                                                                                              \
  X(gelu16)                                                                                                            \
  X(rsqrt)

#define X(name) MATHS_##name,
enum { MATHS_FUNCTIONS(X) MATHS_COUNT };
#undef X

typedef void maths_fn(size_t n, const float *x, float *y); /* n is a multiple of 64 */

typedef struct maths_lanes {
  maths_fn *function[MATHS_COUNT];
  /* words that the functions stand on; a[n] and b[n] as bits */
  void (*multiply)(size_t n, const uint32_t *a, const uint32_t *b, uint32_t *low, uint32_t *high);
  void (*no_less)(size_t n, const float *x, float low, float *y);
  void (*no_more)(size_t n, const float *x, float high, float *y);
  maths_fn *reciprocal;
  int (*any)(const uint32_t *x, uint32_t below); /* of 64 lanes: whether one is below */
} maths_lanes;

extern const maths_lanes maths_lanes_ref, maths_lanes_avx2, maths_lanes_avx512, maths_lanes_neon;
#if defined(__x86_64__) && defined(QN_WITHOUT_AVX512)
#define MATHS_LANES                                                                                                    \
  {                                                                                                                    \
    [QN_TIER_REF] = &maths_lanes_ref, [QN_TIER_AVX2] = &maths_lanes_avx2                                               \
  }
#elif defined(__x86_64__)
#define MATHS_LANES                                                                                                    \
  {                                                                                                                    \
    [QN_TIER_REF] = &maths_lanes_ref, [QN_TIER_AVX2] = &maths_lanes_avx2, [QN_TIER_AVX512] = &maths_lanes_avx512       \
  }
#elif defined(__aarch64__)
#define MATHS_LANES                                                                                                    \
  {                                                                                                                    \
    [QN_TIER_REF] = &maths_lanes_ref, [QN_TIER_NEON] = &maths_lanes_neon                                               \
  }
#else
#define MATHS_LANES                                                                                                    \
  {                                                                                                                    \
    [QN_TIER_REF] = &maths_lanes_ref                                                                                   \
  }
#endif

static inline double maths_sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static inline double maths_rsqrt(double x) { return 1 / sqrt(x); }
static inline double maths_gelu(double x) { return x < -100 ? -0.0 : x * (erfc(x * -0.70710678118654752440) / 2); }
#define maths_gelu16 maths_gelu
#define maths_sigmoid16 maths_sigmoid
#define maths_exp exp
#define maths_exp2 exp2
#define maths_expm1 expm1
#define maths_log log
#define maths_log2 log2
#define maths_log1p log1p
#define maths_sin sin
#define maths_cos cos
#define maths_tanh tanh
#define maths_erf erf

typedef struct maths_about {
  const char *name;
  double (*exact)(double x);
} maths_about;
extern const maths_about maths_oracle[MATHS_COUNT]; /* the oracle's */
static const maths_about maths_all[MATHS_COUNT] = {
#define X(name) {#name, maths_##name},
    MATHS_FUNCTIONS(X)
#undef X
};

static inline uint32_t maths_bits(float x)
{
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline float maths_float(uint32_t u)
{
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* The distance between floats at a true result: of subnormals 2^-149, past the largest float that float's. */
static inline double maths_unit(double exact)
{
  uint64_t u;
  const double a = fabs(exact);
  memcpy(&u, &a, sizeof u);
  int exponent = (int)(u >> 52) - 1023;
  exponent = exponent < -126 ? -126 : exponent > 127 ? 127 : exponent;
  u = (uint64_t)(exponent - 23 + 1023) << 52;
  double unit;
  memcpy(&unit, &u, sizeof unit);
  return unit;
}

/* How far a result lies from the true one, in those units. Infinity stands where the next float after the largest would
 * be. What is NaN, or has a sign, on one side only is infinitely far. */
static inline double maths_error(float got, double exact)
{
  const double edge = 0x1p128;
  if (isnan(got) || isnan(exact)) return isnan(got) && isnan(exact) ? 0 : INFINITY;
  if (got == (float)exact && !!signbit(got) == !!signbit(exact) && (isinf(exact) || exact == 0)) return 0;
  if (!!signbit(got) != !!signbit(exact)) return INFINITY;
  const double y = isinf(got) ? copysign(edge, (double)got) : (double)got;
  const double want = fabs(exact) > edge ? copysign(edge, exact) : exact;
  return fabs(y - want) / maths_unit(want);
}
#endif
