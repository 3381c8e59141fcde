/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_words.c - the C twins of the conversions in base/kernel.h against the definition of rounding to nearest even,
 * which is computed in double and shares nothing with them. */
#include "base/kernel.h"
#include "test.h"
#include <math.h>

typedef struct format {
  const char *name;
  int exponent_bits, mantissa_bits;
  qn_u16 (*from_float)(float x);
  float (*to_float)(qn_u16 h);
} format;

/* The value of 16 bits, finite or (one step past the largest finite one) what stands for overflow. */
static double value_of(const format *f, unsigned bits)
{
  unsigned magnitude = bits & 0x7fff, exponent = magnitude >> f->mantissa_bits;
  unsigned mantissa = magnitude & ((1u << f->mantissa_bits) - 1);
  int bias = (1 << (f->exponent_bits - 1)) - 1;
  double x = exponent ? ldexp(1.0 + ldexp(mantissa, -f->mantissa_bits), (int)exponent - bias)
                      : ldexp(mantissa, 1 - bias - f->mantissa_bits);
  return bits & 0x8000 ? -x : x;
}

static bool is_nan16(const format *f, unsigned bits)
{
  return (bits & 0x7fff) > ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
}

/* No neighbour is nearer; where one is as near, the result is the even one. */
static bool rounded_well(const format *f, float x)
{
  unsigned h = f->from_float(x), infinity = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
  if (isnan(x)) return is_nan16(f, h);
  if (!!(h & 0x8000) != !!signbit(x) || is_nan16(f, h)) return false;
  if (isinf(x)) return (h & 0x7fff) == infinity;
  unsigned magnitude = h & 0x7fff;
  double a = fabs((double)x), off = fabs(a - value_of(f, magnitude));
  if (magnitude > 0) {
    double below = fabs(a - value_of(f, magnitude - 1));
    if (below < off || (below == off && (magnitude & 1))) return false;
  }
  if (magnitude < infinity) {
    double above = fabs(a - value_of(f, magnitude + 1));
    if (above < off || (above == off && (magnitude & 1))) return false;
  } else if (a < value_of(f, magnitude) && off > fabs(a - value_of(f, magnitude - 1)))
    return false;
  return true;
}

static void to_float_is_exact(const format *f)
{
  unsigned wrong = 0, infinity = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
  for (unsigned h = 0; h < 65536; h++) {
    float x = f->to_float((qn_u16)h);
    if (is_nan16(f, h))
      wrong += !isnan(x);
    else if ((h & 0x7fff) == infinity)
      wrong += !isinf(x) || !!signbit(x) != h >> 15;
    else
      wrong += (double)x != value_of(f, h) || !!signbit(x) != h >> 15;
    if (!is_nan16(f, h)) wrong += f->from_float(x) != h; /* and back */
  }
  check(!wrong, "%s to float: %u of 65536 wrong", f->name, wrong);
}

static void from_float_rounds(const format *f)
{
  unsigned long long tried = 0, wrong = 0;
  unsigned first = 0;
  for (unsigned long long bits = 0; bits < 1ull << 32; bits += 509, tried++)
    if (!rounded_well(f, qn_bits_float((qn_u32)bits)) && !wrong++) first = (unsigned)bits;
  /* half-way cases, and one step to both sides of them and of the values themselves */
  for (unsigned h = 0; h < 0x7fff; h++)
    for (int half = 0; half < 2; half++)
      for (int step = -1; step <= 1; step++, tried++) {
        float at = (float)(half ? (value_of(f, h) + value_of(f, h + 1)) / 2 : value_of(f, h));
        float x = qn_bits_float(qn_float_bits(at) + (qn_u32)step);
        if ((!rounded_well(f, x) || !rounded_well(f, -x)) && !wrong++) first = qn_float_bits(x);
      }
  check(!wrong, "float to %s: %llu of %llu wrong, the first %08x", f->name, wrong, tried, first);
}

int main(void)
{
  const format formats[] = {{"f16", 5, 10, qn_float_f16, qn_f16_float}, {"bf16", 8, 7, qn_float_bf16, qn_bf16_float}};
  for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
    to_float_is_exact(&formats[k]);
    from_float_rounds(&formats[k]);
  }
  return test_end();
}
