/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.cpu.c - one tile of a matrix product with its epilogue; built once a tier. Behind the sums (cpu.product.h)
 * come biases, clamp and activation, then the norm, on what the cache still has. */
#include "op/gemm_norm/cpu.h"
#ifndef QN_ORACLE /* its double form is the checks' own (reference.c) */
#include "op/gemm_norm/cpu.product.h"
#include "op/gemm_norm/gemm_norm.math.h"

qn_gemm_cpu_fn QN_CPU_NAME(gemm_norm);

/* ---- the epilogue: vectors along a row ---- */

/* Where elements of y go: there, or (NULL) back to their sums. */
typedef struct result {
  void *y;
  bool is_short;
} result;

static result result_of(const qn_gemm_tile *t, int64_t row, int64_t column)
{
  const qn_gemm_problem *p = t->problem;
  return (result){(char *)p->args.y + (row * p->args.n + column) * (p->short_data ? 2 : 4), p->short_data};
}

/* Its columns from j on, n of them or a vector. */
QN_FN void store_result(result to, int64_t j, int64_t n, qn_f32 x)
{
  if (to.is_short)
    qn_store_lanes_of_halves((qn_u16 *)to.y + j, n, qn_halves_of(qn_narrow_bf16(x)));
  else
    qn_store_lanes((float *)to.y + j, n, x);
}

/* Vectors of the epilogue, from the tile's first column on, and what else it asks for. */
typedef struct operands {
  const float *bias, *bias2;
  float lo, hi;
} operands;

/* Columns from j on, n of them or a vector. */
QN_FN void elements_from(operands of, qn_u32 flags, float *z, result to, int64_t j, int64_t n)
{
  qn_f32 bias = qn_splat(0.0f), bias2 = bias;
  if (flags & QN_GEMM_BIAS) bias = qn_load_lanes(of.bias + j, n);
  if (flags & QN_GEMM_BIAS2) bias2 = qn_load_lanes(of.bias2 + j, n);
  const qn_f32 v = qn_gemm_element(flags, qn_load_lanes(z + j, n), bias, bias2, of.lo, of.hi);
  if (to.y)
    store_result(to, j, n, v);
  else
    qn_store_lanes(z + j, n, v);
}

QN_FN void elements_as(const qn_gemm_tile *t, qn_u32 flags, int64_t row, bool last)
{
  const qn_gemm_args *a = &t->problem->args;
  const int64_t columns = t->columns;
  const operands of = {flags & QN_GEMM_BIAS ? a->bias + t->column : NULL,
                       flags & QN_GEMM_BIAS2 ? a->bias2 + t->column : NULL, a->lo, a->hi};
  const result to = last ? result_of(t, row, t->column) : (result){NULL, false};
  float *z = qn_gemm_sum_of(t, row, t->column);
  int64_t j = 0;
  for (; j + QN_LANES <= columns; j += QN_LANES) elements_from(of, flags, z, to, j, QN_LANES);
  if (j < columns) elements_from(of, flags, z, to, j, columns - j);
}

/* A loop for every activation, so that it is a constant in it. */
static void elements(const qn_gemm_tile *t, int64_t row, bool last)
{
  const qn_u32 rest = t->problem->flags & ~(qn_u32)QN_GEMM_ACTIVATION_MASK;
  switch (t->problem->flags & QN_GEMM_ACTIVATION_MASK) {
#define CASE(activation)                                                                                               \
  case activation: elements_as(t, rest | activation, row, last); break;
    CASE(QN_GEMM_NONE)
    CASE(QN_GEMM_RELU)
    CASE(QN_GEMM_GELU)
    CASE(QN_GEMM_GELU_TANH)
    CASE(QN_GEMM_SILU)
    CASE(QN_GEMM_MISH)
    CASE(QN_GEMM_SIGMOID)
    CASE(QN_GEMM_TANH)
#undef CASE
  }
}

/* Do elements stay as they are, where they are? */
static bool are_done(const qn_gemm_tile *t, bool last)
{
  const qn_u32 changes = QN_GEMM_ACTIVATION_MASK | QN_GEMM_CLAMPS | QN_GEMM_BIAS | QN_GEMM_BIAS2;
  return !(t->problem->flags & changes) && !(last && t->z != t->problem->args.y);
}

/* The sum of n numbers less their mean, or of the squares of that: lane by lane, then of the lanes. */
QN_FN float sum_of(const float *v, int64_t n, float mean, bool squares)
{
  static const qn_u32 lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  qn_f32 sums = qn_splat(0.0f);
  for (int64_t k = 0; k < n; k += QN_LANES) {
    qn_f32 x = qn_load_lanes(v + k, n - k) - qn_splat(mean);
    if (n - k < QN_LANES) {
      qn_bits lanes;
      __builtin_memcpy(&lanes, lane, sizeof lanes);
      x = qn_select(qn_less_bits(lanes, qn_splat_bits((qn_u32)(n - k))), x, qn_splat(0.0f));
    }
    sums = squares ? qn_fma(x, x, sums) : sums + x;
  }
  return sum_of_lanes(sums);
}

/* Columns from j on, n of them, as the norm leaves them. */
QN_FN void store_normed(const qn_gemm_tile *t, int64_t row, int64_t j, int64_t n, float mean, qn_f32 scale)
{
  const qn_gemm_args *a = &t->problem->args;
  const qn_u32 flags = t->problem->flags;
  qn_f32 gamma = qn_splat(1.0f), beta = qn_splat(0.0f);
  if (flags & QN_GEMM_GAMMA) gamma = qn_load_lanes(a->gamma + j, n);
  if (flags & QN_GEMM_BETA) beta = qn_load_lanes(a->beta + j, n);
  const qn_f32 v = qn_load_lanes(qn_gemm_sum_of(t, row, j), n);
  store_result(result_of(t, row, j), 0, n, qn_gemm_normed(flags, v, qn_splat(mean), scale, gamma, beta));
}

/* One group, whose first column is j. */
static void norm_group(const qn_gemm_tile *t, int64_t row, int64_t j)
{
  const qn_gemm_args *a = &t->problem->args;
  const float *v = qn_gemm_sum_of(t, row, j), columns = (float)a->columns;
  const float mean = qn_gemm_centres(t->problem->flags) ? sum_of(v, a->columns, 0.0f, false) / columns : 0.0f;
  const qn_f32 scale = qn_gemm_scale(qn_splat(sum_of(v, a->columns, mean, true)), columns, a->eps);
  for (int64_t k = 0; k < a->columns; k += QN_LANES) store_normed(t, row, j + k, a->columns - k, mean, scale);
}

/* All groups of some rows of the tile, where they are narrower than a vector: a group a lane. */
static void norm_narrow(const qn_gemm_tile *t, int64_t row, int64_t rows)
{
  const qn_gemm_args *a = &t->problem->args;
  const qn_u32 flags = t->problem->flags;
  const int64_t columns = a->columns, across = t->columns / columns, end = t->column + t->columns;
  int64_t r = row, c = 0; /* of the next group */
  while (r < row + rows) {
    float *at[QN_LANES], of[QN_LANES][QN_LANES];
    qn_f32 x[QN_LANES], mean = qn_splat(0.0f), squares = mean;
    int there = 0;
    for (; there < QN_LANES && r < row + rows; there++) {
      at[there] = qn_gemm_sum_of(t, r, t->column + c * columns);
      if (++c == across) c = 0, r++;
    }
    for (int g = there; g < QN_LANES; g++) at[g] = at[0];
    for (int64_t k = 0; k < columns; k++) {
      for (int64_t g = 0; g < QN_LANES; g++) of[k][g] = at[g][k];
      __builtin_memcpy(&x[k], of[k], sizeof x[k]);
      mean = mean + x[k];
    }
    mean = qn_gemm_centres(flags) ? mean / qn_splat((float)columns) : qn_splat(0.0f);
    for (int64_t k = 0; k < columns; k++) squares = qn_fma(x[k] - mean, x[k] - mean, squares);
    const qn_f32 scale = qn_gemm_scale(squares, (float)columns, a->eps);
    for (int64_t k = 0; k < columns; k++) {
      x[k] = (x[k] - mean) * scale;
      __builtin_memcpy(of[k], &x[k], sizeof x[k]);
      for (int64_t g = 0; g < there; g++) at[g][k] = of[k][g];
    }
  }
  for (r = row; r < row + rows; r++)
    for (int64_t j = t->column; j < end; j += QN_LANES) store_normed(t, r, j, end - j, 0.0f, qn_splat(1.0f));
}

static void finish(const qn_gemm_tile *t, bool elements_too)
{
  const qn_gemm_args *a = &t->problem->args;
  const bool norms = qn_gemm_norm_of(t->problem->flags) != QN_GEMM_NO_NORM, narrow = a->columns < QN_LANES;
  const int64_t end = t->row + t->rows, groups = t->columns / (narrow ? a->columns : 1);
  const int64_t at_once = norms && narrow && groups < QN_LANES ? (QN_LANES + groups - 1) / groups : 1;
  elements_too = elements_too && !are_done(t, !norms);
  for (int64_t row = t->row; row < end; row += at_once) {
    const int64_t rows = least(at_once, end - row);
    for (int64_t r = row; elements_too && r < row + rows; r++) elements(t, r, !norms);
    if (!norms || !t->norm) continue;
    if (narrow)
      norm_narrow(t, row, rows);
    else
      for (int64_t j = t->column; j < t->column + t->columns; j += a->columns) norm_group(t, row, j);
  }
}

void QN_CPU_NAME(gemm_norm)(const qn_gemm_tile *t)
{
  switch (t->work) {
  case QN_GEMM_PRODUCT:
    product(t);
    finish(t, true);
    break;
  case QN_GEMM_DIRECT:
    direct(t);
    finish(t, true);
    break;
  case QN_GEMM_DIRECT_SUMS: direct(t); break;
  case QN_GEMM_FINISH: finish(t, true); break;
  case QN_GEMM_NORM: finish(t, false); break;
  case QN_GEMM_PACK_X:
  case QN_GEMM_PACK_W: break; /* of the tiers of bf16 alone */
  }
}
#endif
