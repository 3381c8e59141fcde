/* SPDX-License-Identifier: Apache-2.0 */
/* maths_lanes.c - see maths.h. Nothing here is a test. */
#include "base/maths.h"
#include "base/for_packs.h"
#include "maths.h"

#ifdef QN_ORACLE
#define X(name)                                                                                                        \
  static double of_##name(double x) { return qn_##name(x); }
MATHS_FUNCTIONS(X)
#undef X

const maths_about maths_oracle[MATHS_COUNT] = {
#define X(name) {#name, of_##name},
    MATHS_FUNCTIONS(X)
#undef X
};
#else
QN_FN qn_f32 load(const float *from, size_t at)
{
  qn_f32 x;
  __builtin_memcpy(&x, from + at, sizeof x);
  return x;
}

QN_FN qn_bits load_bits(const uint32_t *from, size_t at)
{
  qn_bits x;
  __builtin_memcpy(&x, from + at, sizeof x);
  return x;
}

QN_FN void store(float *to, size_t at, qn_f32 x) { __builtin_memcpy(to + at, &x, sizeof x); }

/* A pack at a time, as ops do. */
#define X(name)                                                                                                        \
  static void over_##name(size_t n, const float *x, float *y)                                                          \
  {                                                                                                                    \
    for (size_t at = 0; at < n; at += QN_PACK_ELEMENTS) {                                                              \
      qn_f32 pack[QN_PACK];                                                                                            \
      qn_load_pack(x + at, QN_F32, pack);                                                                              \
      QN_UNROLL                                                                                                        \
      for (int v = 0; v < QN_PACK; v++) pack[v] = qn_##name(pack[v]);                                                  \
      qn_store_pack(y + at, QN_F32, pack);                                                                             \
    }                                                                                                                  \
  }
MATHS_FUNCTIONS(X)
X(reciprocal)
#undef X

static void multiply(size_t n, const uint32_t *a, const uint32_t *b, uint32_t *low, uint32_t *high)
{
  for (size_t at = 0; at < n; at += QN_LANES) {
    qn_bits top, rest = qn_multiply_lanes(load_bits(a, at), load_bits(b, at), &top);
    __builtin_memcpy(low + at, &rest, sizeof rest);
    __builtin_memcpy(high + at, &top, sizeof top);
  }
}

static void no_less(size_t n, const float *x, float low, float *y)
{
  for (size_t at = 0; at < n; at += QN_LANES) store(y, at, qn_no_less(load(x, at), low));
}

static void no_more(size_t n, const float *x, float high, float *y)
{
  for (size_t at = 0; at < n; at += QN_LANES) store(y, at, qn_no_more(load(x, at), high));
}

static int any(const uint32_t *x, uint32_t below)
{
  int found = 0;
  for (size_t at = 0; at < 64; at += QN_LANES) found |= qn_any(qn_less_bits(load_bits(x, at), qn_splat_bits(below)));
  return found;
}

const maths_lanes QN_JOIN(maths_lanes_, QN_TIER) = {
    .function =
        {
#define X(name) over_##name,
            MATHS_FUNCTIONS(X)
#undef X
        },
    .multiply = multiply,
    .no_less = no_less,
    .no_more = no_more,
    .reciprocal = over_reciprocal,
    .any = any,
};
#endif
