/* SPDX-License-Identifier: Apache-2.0 */
/* reference.c - see reference.h. */
#define QN_ORACLE /* the epilogue's formulas in double */
#include "op/gemm_norm/reference.h"
#include "op/gemm_norm/gemm_norm.math.h"

/* Operands are rounded here, once more and in double, to the words of the classes tf32 and bf16; the others' are as
 * they are. How far an element of their product may be off, with u = 2^-24, S the sum of |x w|, and Q the root of the
 * sum of the squares of x w:
 *
 * - the sums: k roundings of at most u times a partial sum, of either sign: u S (2 + sqrt(k)), whatever their order;
 * - x3 classes: a product by e, what three products leave out: tf32x3 and f16x3 2^-20, bf16x3 2^-15; as these are
 *   independent but for a bias: e (|z| + 6 Q). Of f16x3 a word is also off by 2^-38 of its row's greatest magnitude:
 *   6 2^-38 (greatest of x |w| + greatest of w |x|), of the roots of the rows' sums of squares;
 * - tensor cores cut sums instead of rounding them, each 8 products: 2^-22 (k / 8) max(|z|, Q), not in fp32. In the x3
 *   classes ordinary cores add up the sums of at most 128 columns: k is no more there.
 *
 * A variant that says so may round halves the other way, which moves a product of one by 2^-10 in tf32; or may round as
 * it likes: its operands are not rounded here, and a product is off by e, tf32 2^-9, bf16 2^-7.
 *
 * Clamp and activation take the ends of what the sum may be where they take them; the activation itself is off by so
 * many units of its result and of its argument. The norm spreads what its group's elements are off through the mean and
 * the scale, to first order. All of it is a bound with room for chance only. */
static const double class_error[QN_GEMM_PRECISIONS] = {0, 0x1p-9, 0x1p-15, 0x1p-20, 0x1p-7, 0x1p-20};
static const double unit = 0x1p-24;

static double at(const double *array, int64_t k, double otherwise) { return array ? array[k] : otherwise; }

/* The nearest word of the class, of an f32 that is no subnormal; *half: it lay in the middle between two of them. */
static double word_of(int precision, double x, bool *half)
{
  const int drop = precision == QN_GEMM_TF32 ? 42 : 45; /* of a double's 52 bits behind the first, 10 and 7 stay */
  const uint64_t one = UINT64_C(1) << drop;
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  if (!__builtin_isfinite(x)) return x;
  *half |= (bits & (one - 1)) == one / 2;
  bits += precision == QN_GEMM_TF32 ? one / 2 : one / 2 - 1 + (bits >> drop & 1);
  bits &= ~(one - 1);
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

/* How far words of f16 are off of a product of rows, where these have small elements beside large ones. */
static double off_scaled(const double *x, const double *w, int64_t n)
{
  double most_x = 0, most_w = 0, squares_x = 0, squares_w = 0;
  for (int64_t k = 0; k < n; k++) {
    most_x = __builtin_fmax(most_x, __builtin_fabs(x[k])), most_w = __builtin_fmax(most_w, __builtin_fabs(w[k]));
    squares_x += x[k] * x[k], squares_w += w[k] * w[k];
  }
  return 6 * 0x1p-38 * (most_x * __builtin_sqrt(squares_w) + most_w * __builtin_sqrt(squares_x));
}

/* The product at (i, j), and how far it may be off. */
static double product_of(const qn_gemm_reference *t, int64_t i, int64_t j, double *off)
{
  const qn_gemm_problem *p = t->problem;
  const int64_t n = p->args.k;
  const double *x = t->input[QN_GEMM_ROLE_X] + i * n, *w = t->input[QN_GEMM_ROLE_W] + j * n;
  const bool is_of_words = !p->short_data && (p->precision == QN_GEMM_TF32 || p->precision == QN_GEMM_BF16);
  const bool rounds = is_of_words && t->looseness < 2;
  double z = 0, s = 0, q = 0, halves = 0;
  for (int64_t k = 0; k < n; k++) {
    bool half = false;
    const double a = rounds ? word_of(p->precision, x[k], &half) : x[k];
    const double product = a * (rounds ? word_of(p->precision, w[k], &half) : w[k]), size = __builtin_fabs(product);
    z += product, s += size, q += product * product;
    if (half && t->looseness == 1 && p->precision == QN_GEMM_TF32) halves += 0x1p-9 * size;
  }
  q = __builtin_sqrt(q);
  const double of_class = rounds || p->short_data ? 0 : class_error[p->precision];
  const double most = __builtin_fabs(z) > q ? __builtin_fabs(z) : q;
  *off = unit * s * (2 + __builtin_sqrt((double)n)) + of_class * (__builtin_fabs(z) + 6 * q) + halves;
  const bool adds = p->precision == QN_GEMM_BF16X3 || p->precision == QN_GEMM_TF32X3 || p->precision == QN_GEMM_F16X3;
  if (p->precision == QN_GEMM_F16X3) *off += off_scaled(x, w, n);
  if (p->precision != QN_GEMM_FP32) *off += 0x1p-22 * (double)(adds && n > 128 ? 128 : n) / 8 * most;
  return z;
}

/* How far an activation's v of z may be off of itself. A GPU's own power has its argument rounded: a unit of the power
 * for each one of z. */
static double off_activation(const qn_gemm_reference *t, double z, double v)
{
  const qn_u32 flags = t->problem->flags;
  const bool near = t->on_gpu && qn_gemm_is_near(t->problem);
  const double size = __builtin_fabs(v), of_z = __builtin_fabs(z), below = z < 0 ? of_z : 0;
  const double tail = below < 16 ? below : 16; /* a power's relative error is that of its argument */
  const double least = 0x1p-148 * (1 + of_z);  /* a factor may be a subnormal */
  switch (flags & QN_GEMM_ACTIVATION_MASK) {
  case QN_GEMM_NONE:
  case QN_GEMM_RELU: return 0;
  case QN_GEMM_GELU: /* relative digits go where erf is near -1; a GPU's own is off by 1.5e-7 (activation.h) */
    return unit * (0.75 * of_z + 4 * size) + (near ? 0.5 * 1.5e-7 * of_z : 0) + least;
  case QN_GEMM_GELU_TANH: return unit * (12 + 4 * tail * (1 + 0.045 * tail * tail)) * size + least;
  case QN_GEMM_MISH:
    return unit * (12 + 2 * (below < 128 ? below : 128)) * size +
           0x1p-118; /* a GPU's own power makes zeros of subnormals */
  case QN_GEMM_TANH: return unit * 6 * size + least;
  default: return unit * (6 + (near ? below : 0)) * size + least; /* a sigmoid's */
  }
}

/* What becomes of a sum behind the biases. */
static double behind(const qn_gemm_reference *t, double sum)
{
  const qn_u32 flags = t->problem->flags & ~(qn_u32)(QN_GEMM_BIAS | QN_GEMM_BIAS2);
  return qn_gemm_element(flags, sum, 0, 0, t->problem->args.lo, t->problem->args.hi);
}

/* v and how far off it may be, of one element. */
static void element(const qn_gemm_reference *t, int64_t i, int64_t j, double *v, double *off)
{
  const double bias[2] = {at(t->input[QN_GEMM_ROLE_BIAS], j, 0), at(t->input[QN_GEMM_ROLE_BIAS2], j, 0)};
  double d, sum = product_of(t, i, j, &d);
  for (int k = 0; k < 2; k++) { /* what is added to zero is exact, and so is zero */
    const double before = sum;
    sum += bias[k];
    if (before != 0 && bias[k] != 0) d += unit * __builtin_fabs(sum);
  }
  if (__builtin_isinf(sum)) d = 0;
  *v = behind(t, sum);
  const double up = __builtin_fabs(behind(t, sum + d) - *v), down = __builtin_fabs(behind(t, sum - d) - *v);
  *off = d == 0 ? 0 : (up > down ? up : down) + d * d;
  *off += off_activation(t, sum, *v);
}

/* Columns [from, to) of row i, one group. */
static void group(const qn_gemm_reference *t, int64_t i, int64_t from, int64_t to, double *v, double *off)
{
  const qn_gemm_args *a = &t->problem->args;
  const qn_u32 flags = t->problem->flags;
  const double n = (double)(to - from), spread = unit * (4 + __builtin_sqrt(n));
  double mean = 0, size = 0, off_mean = 0, squares = 0, off_scale = 0;
  for (int64_t j = from; j < to; j++) mean += v[j] / n, size += __builtin_fabs(v[j]) / n, off_mean += off[j] / n;
  off_mean = qn_gemm_centres(flags) ? off_mean + spread * size : 0;
  if (!qn_gemm_centres(flags)) mean = 0;
  for (int64_t j = from; j < to; j++) {
    const double c = v[j] - mean;
    squares += c * c, off_scale += __builtin_fabs(c) * (off[j] + off_mean) / n;
  }
  const double scale = qn_gemm_scale(squares, (float)n, a->eps);
  off_scale = off_scale * scale * scale + spread;
  for (int64_t j = from; j < to; j++) {
    const double gamma = at(t->input[QN_GEMM_ROLE_GAMMA], j, 1), beta = at(t->input[QN_GEMM_ROLE_BETA], j, 0);
    const double c = __builtin_fabs(v[j] - mean), y = qn_gemm_normed(flags, v[j], mean, scale, gamma, beta);
    off[j] = __builtin_fabs(gamma) * scale * (off[j] + off_mean + c * off_scale);
    off[j] += 32 * unit * (__builtin_fabs(gamma) * scale * c + __builtin_fabs(beta));
    t->y[i * a->n + j] = y;
  }
}

void qn_gemm_refer(const qn_gemm_reference *t)
{
  const qn_gemm_args *a = &t->problem->args;
  for (int64_t i = 0; i < a->m; i++) {
    double *v = t->y + i * a->n, *off = t->allowed + i * a->n;
    for (int64_t j = 0; j < a->n; j++) element(t, i, j, &v[j], &off[j]);
    for (int64_t j = 0; j < a->n && qn_gemm_norm_of(t->problem->flags); j += a->columns)
      group(t, i, j, j + a->columns, v, off);
    for (int64_t j = 0; j < a->n && t->problem->short_data; j++) {
      off[j] += 0x1p-8 * __builtin_fabs(v[j]) + 0x1p-133;
      if (__builtin_fabs(v[j]) >= 0x1.ffp127) v[j] *= __builtin_inf(); /* as it is rounded */
    }
  }
}
