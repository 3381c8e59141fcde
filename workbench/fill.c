/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c - see fill.h. An element is a hash of (seed, role, index), so the numbers need no state and no order. Kinds of
 * odd values and their shares follow what was used to show that CPU and GPU agree bit for bit; where `seed` says so an
 * element is zero in every role at once, because that is where a wrong sign(0) shows as drift. */
#include "workbench/fill.h"
#include <float.h>
#include <math.h>
#include <string.h>

uint64_t qn_seed_mix(uint64_t seed, uint64_t k)
{
  uint64_t x = seed * 0x9E3779B97F4A7C15u + k + 0x632BE59BD9B4E019u; /* splitmix64's finisher, twice over */
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  x = (x + 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
  return x ^ x >> 32;
}

/* ---- 16-bit storage: one sign bit, `exponent` and `fraction` bits ---- */

typedef struct layout16 {
  int fraction, bias;
} layout16;
static const layout16 bf16_layout = {7, 127}, f16_layout = {10, 15};

static double load16(const layout16 *l, uint16_t bits)
{
  uint64_t wide = (uint64_t)(bits & 0x7fff) << (52 - l->fraction);
  if (bits & 0x7fff && wide >> 52 && wide >> 52 < (0x7fffu >> l->fraction)) { /* normal: the bits, moved */
    double normal;
    wide = (wide + ((uint64_t)(1023 - l->bias) << 52)) | (uint64_t)(bits >> 15) << 63;
    memcpy(&normal, &wide, sizeof normal);
    return normal;
  }
  int exponent = (bits & 0x7fff) >> l->fraction, fraction = bits & ((1 << l->fraction) - 1);
  int top = 0x7fff >> l->fraction;
  double value = exponent == top ? (fraction ? NAN : INFINITY)
                 : exponent == 0 ? ldexp(fraction, 1 - l->bias - l->fraction)
                                 : ldexp(fraction + (1 << l->fraction), exponent - l->bias - l->fraction);
  return bits & 0x8000 ? -value : value;
}

static uint16_t store16(const layout16 *l, double value)
{
  uint64_t wide;
  memcpy(&wide, &value, sizeof wide);
  int scale = (int)(wide >> 52 & 0x7ff) - 1023 + l->bias, drop = 52 - l->fraction;
  if (scale > 0 && scale < 0x7fff >> l->fraction) { /* normal: a carry may make it infinite, as it should */
    uint64_t moved = (uint64_t)scale << 52 | (wide & 0xfffffffffffff);
    moved += ((uint64_t)1 << (drop - 1)) - 1 + (moved >> drop & 1);
    return (uint16_t)(wide >> 63 << 15 | moved >> drop);
  }
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  int top = 0x7fff >> l->fraction;
  if (isnan(value)) return (uint16_t)(sign | top << l->fraction | 1 << (l->fraction - 1));
  double magnitude = fabs(value);
  int exponent = 0;
  if (magnitude > 0 && !isinf(magnitude)) exponent = ilogb(magnitude);
  if (exponent < 1 - l->bias || magnitude == 0) exponent = 1 - l->bias;
  /* The rest: zeros, subnormals, infinity. rint on a magnitude scaled so that one unit is one step: nearest, ties
   * to even; a carry runs into the exponent by itself. */
  double units = isinf(magnitude) ? INFINITY : rint(ldexp(magnitude, l->fraction - exponent));
  double bits = ldexp(exponent + l->bias - 1, l->fraction) + units;
  return (uint16_t)(sign | (bits >= ldexp(top, l->fraction) ? top << l->fraction : (int)bits));
}

/* ---- f8e4m3: the nearest of the table of all values, of two the one with an even code ---- */

static double value_of_e4m3(int code) { return code < 8 ? code * 0x1p-9 : ldexp(8 + code % 8, code / 8 - 10); }

static double load_e4m3(uint8_t bits)
{
  const double size = (bits & 0x7f) == 0x7f ? NAN : value_of_e4m3(bits & 0x7f);
  return bits & 0x80 ? -size : size;
}

static uint8_t store_e4m3(double value)
{
  const double size = fabs(value);
  int low = 0, high = 0x7e; /* what is beyond the largest becomes that */
  if (isnan(value)) return 0x7f;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (value_of_e4m3(middle) <= size)
      low = middle;
    else
      high = middle;
  }
  const double below = size - value_of_e4m3(low), above = value_of_e4m3(high) - size;
  const int code = above < below || (!(below < above) && high % 2 == 0) ? high : low;
  return (uint8_t)(code | (signbit(value) ? 0x80 : 0));
}

/* ---- whole numbers ---- */

static bool is_signed(qn_dtype dtype)
{
  return dtype == QN_I8 || dtype == QN_I16 || dtype == QN_I32 || dtype == QN_I64;
}

static double load_whole(qn_dtype dtype, const void *at)
{
  const int unused = 64 - 8 * (int)qn_dtype_bytes(dtype);
  const uint64_t bits = qn_number_bits(dtype, at);
  if (unused > 63) return NAN; /* of no type */
  return is_signed(dtype) ? (double)((int64_t)(bits << unused) >> unused) : (double)bits;
}

static void store_whole(qn_dtype dtype, void *at, double value)
{
  const size_t bytes = qn_dtype_bytes(dtype);
  const int width = 8 * (int)bytes;
  const double low = is_signed(dtype) ? -ldexp(1, width - 1) : 0, high = ldexp(1, is_signed(dtype) ? width - 1 : width);
  uint64_t bits;
  value = isnan(value) ? 0 : rint(value);
  if (!bytes) return; /* of no type */
  if (dtype == QN_BOOL)
    bits = value != 0;
  else if (value >= high)
    bits = is_signed(dtype) ? UINT64_MAX >> (65 - width) : UINT64_MAX >> (64 - width);
  else if (is_signed(dtype))
    bits = (uint64_t)(int64_t)(value < low ? low : value);
  else
    bits = value < 0 ? 0 : (uint64_t)value;
  memcpy(at, &bits, bytes);
}

double qn_number_load(qn_dtype dtype, const void *at)
{
  float single;
  double wide;
  uint16_t half;
  switch (dtype) {
  case QN_C64:
  case QN_F32: memcpy(&single, at, sizeof single); return single;
  case QN_F64: memcpy(&wide, at, sizeof wide); return wide;
  case QN_BF16: memcpy(&half, at, sizeof half); return load16(&bf16_layout, half);
  case QN_F16: memcpy(&half, at, sizeof half); return load16(&f16_layout, half);
  case QN_F8E4M3: return load_e4m3(*(const uint8_t *)at);
  default: return load_whole(dtype, at);
  }
}

static inline void store(qn_dtype dtype, void *at, double value)
{
  float single = (float)value;
  uint16_t half = 0;
  switch (dtype) {
  case QN_C64:
  case QN_F32: memcpy(at, &single, sizeof single); return;
  case QN_F64: memcpy(at, &value, sizeof value); return;
  case QN_BF16: half = store16(&bf16_layout, value); break;
  case QN_F16: half = store16(&f16_layout, value); break;
  case QN_F8E4M3: *(uint8_t *)at = store_e4m3(value); return;
  default: store_whole(dtype, at, value); return;
  }
  memcpy(at, &half, sizeof half);
}

void qn_number_store(qn_dtype dtype, void *at, double value) { store(dtype, at, value); }

uint64_t qn_number_bits(qn_dtype dtype, const void *at)
{
  uint64_t bits = 0;
  memcpy(&bits, at, qn_dtype_bytes(dtype)); /* little-endian, as every supported machine */
  return bits;
}

bool qn_number_same(qn_dtype dtype, const void *a, const void *b)
{
  return !memcmp(a, b, qn_dtype_bytes(dtype)) || (isnan(qn_number_load(dtype, a)) && isnan(qn_number_load(dtype, b)));
}

size_t qn_numbers_differ(qn_dtype dtype, const void *a, const void *b, size_t n)
{
  const size_t width = qn_dtype_bytes(dtype);
  if (!memcmp(a, b, n * width)) return n;
  size_t k = 0;
  while (k < n && qn_number_same(dtype, (const char *)a + k * width, (const char *)b + k * width)) k++;
  return k;
}

double qn_number_step(qn_dtype dtype, double value)
{
  static const struct {
    int fraction, least; /* exponent of the smallest normal number */
  } shape[QN_DTYPE_COUNT] = {[QN_F32] = {23, -126},
                             [QN_BF16] = {7, -126},
                             [QN_F16] = {10, -14},
                             [QN_F64] = {52, -1022},
                             [QN_F8E4M3] = {3, -6}};
  int exponent = value != 0 && isfinite(value) ? ilogb(value) : shape[dtype].least;
  if (exponent < shape[dtype].least) exponent = shape[dtype].least;
  return ldexp(1, exponent - shape[dtype].fraction);
}

/* ---- filling ---- */

/* Near enough to normal: four uniform numbers of 16 bits, variance 4/12. */
static inline double normal_of(uint64_t bits)
{
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return ((double)(int64_t)sum * 0x1p-16 - (2 - 0x1p-15)) * 1.7320508075688772;
}

/* One element in five is odd. */
static double odd_of(uint64_t kind, double normal)
{
  if (kind < 10) return copysign(0, normal);
  if (kind < 18) return normal * 1e-30;
  if (kind < 26) return normal * 1e-42; /* denormal */
  if (kind < 34) return normal * 1e15;
  if (kind < 37) return copysign(INFINITY, normal);
  if (kind < 40) return NAN;
  if (kind < 43) return copysign(FLT_MIN, normal);
  if (kind < 46) return copysign(FLT_MAX, normal);
  if (kind < 49) return copysign(65519.99, normal); /* the last number that f16 rounds down to a finite one */
  return normal;
}

void qn_fill_numbers(const qn_filling *filling, qn_dtype dtype, void *at, size_t n, uint64_t first)
{
  size_t width = qn_dtype_bytes(dtype);
  uint64_t own = qn_seed_mix(filling->seed, filling->role + 1);
  for (size_t i = 0; i < n; i++) {
    uint64_t bits = qn_seed_mix(own, first + i);
    double value = normal_of(bits) * filling->scale;
    if (filling->odd) {
      value = odd_of((bits * 0xff51afd7ed558ccdu) >> 56, value);
      if (!(qn_seed_mix(filling->seed, first + i) & 31)) value = copysign(0, value);
    }
    if (filling->kind == QN_FILL_NON_NEGATIVE) value = fabs(value);
    if (filling->kind == QN_FILL_MODERATE && fabs(value) == FLT_MAX) value = copysign(0x1p60, value);
    store(dtype, (char *)at + i * width, value);
  }
}

void qn_fill_sweep(qn_dtype dtype, void *at, size_t n)
{
  static const double special[] = {NAN,      INFINITY, -INFINITY, 0.0,  -0.0, 0x1p126, -0x1p126, FLT_MIN,
                                   -FLT_MIN, 1e-42,    -1e-42,    20,   -20,  -87.5,   -88.5,    -103.5,
                                   -104.5,   -199,     -201,      88.5, 89.5, -1e4,    1e4,      0x1p-24};
  const size_t specials = sizeof special / sizeof special[0], width = qn_dtype_bytes(dtype);
  for (size_t k = 0; k < n; k++) {
    const double share = n > specials + 1 ? ((double)k - (double)specials) / (double)(n - specials - 1) : 0;
    double value = k % 2 ? 32 * share - 16 : ldexp(k % 4 ? -1.375 : 1.375, (int)(60 * share) - 40);
    if (k < specials) value = special[k];
    qn_number_store(dtype, (char *)at + k * width, value);
  }
}

void qn_fill_halves(void *at, size_t n)
{
  for (size_t k = 0; k < n; k++) {
    uint32_t bits;
    memcpy(&bits, (char *)at + k * sizeof bits, sizeof bits);
    if (k % 4 == 1) bits = (bits & ~0x1fffu) | 0x1000u;
    if (k % 4 == 3) bits = (bits & ~0xffffu) | 0x8000u;
    memcpy((char *)at + k * sizeof bits, &bits, sizeof bits);
  }
}
