/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_fill.c - see kernel_fill.h. */
#include "workbench/kernel_fill.h"
#include "core/core.h"
#include "workbench/fill.h"
#include <math.h>
#include <string.h>

const char *qn_rule_default(qn_dtype dtype)
{
  if (dtype == QN_BOOL) return "below 2";
  if (qn_dtype_is_float(dtype) || dtype == QN_C64) return "normal";
  return dtype == QN_I8 || dtype == QN_I16 || dtype == QN_I32 || dtype == QN_I64 ? "uniform -100 100" : "below 100";
}

/* ---- pieces, each of any thread ---- */
enum { PIECE = 1 << 16 };

typedef struct job {
  const qn_filler *f;
  qn_dtype dtype; /* c64 is twice as many f32 */
  size_t n, width;
  unsigned char *to;
} job;

static double uniform_of(uint64_t bits) { return ((double)(bits >> 11) + 0.5) * 0x1p-53; }

static double one_value(const qn_filler *f, uint64_t key, uint64_t k)
{
  const qn_rule *r = &f->rule;
  const uint64_t bits = qn_seed_mix(key, k);
  switch (r->kind) {
  case QN_RULE_UNIFORM: return r->a + (r->b - r->a) * uniform_of(bits);
  case QN_RULE_INDEX: return (double)k;
  case QN_RULE_BELOW: return (double)(bits % (uint64_t)f->below);
  default: return r->a;
  }
}

static void fill_piece(void *user, size_t piece)
{
  const job *j = user;
  const qn_filler *f = j->f;
  const size_t first = piece * PIECE, n = j->n - first < PIECE ? j->n - first : PIECE;
  unsigned char *to = j->to + first * j->width;
  const bool normal = f->rule.kind == QN_RULE_NORMAL, odd = f->rule.kind == QN_RULE_ODD;
  const bool diagonal = f->rule.kind == QN_RULE_DIAGONAL;
  const size_t columns = diagonal ? (size_t)f->shape[f->ndim - 1] : 1,
               rows = diagonal ? (size_t)f->shape[f->ndim - 2] : 1;
  const qn_filling filling = {.kind = QN_FILL_NORMAL,
                              .scale = diagonal ? 1 / sqrt((double)(rows > columns ? rows : columns)) : f->rule.a,
                              .seed = f->seed,
                              .role = f->role,
                              .odd = odd};
  if ((odd || (normal && f->rule.b == 0)) && qn_dtype_is_float(j->dtype)) {
    qn_fill_numbers(&filling, j->dtype, to, n, first);
    return;
  }
  const uint64_t key = qn_seed_mix(f->seed, f->role + 1);
  for (size_t k = 0; k < n; k++) {
    double value;
    if (normal || odd || diagonal) {
      qn_fill_numbers(&filling, QN_F64, &value, 1, first + k);
      const size_t at = (first + k) % (rows * columns);
      if (normal) value += f->rule.b;
      if (diagonal && at / columns == at % columns) value += f->rule.a;
    } else {
      value = one_value(f, key, first + k);
    }
    qn_number_store(j->dtype, to + k * j->width, value);
  }
}

/* One symmetric positive definite matrix a task: B B^T / n with `a` added to the diagonal, B normal. */
static void fill_matrix(void *user, size_t k)
{
  const job *j = user;
  const qn_filler *f = j->f;
  const size_t n = (size_t)f->shape[f->ndim - 1];
  double *b = qn_allocate(n * n * sizeof *b);
  unsigned char *to = j->to + k * n * n * j->width;
  const qn_filling filling = {.kind = QN_FILL_NORMAL, .scale = 1, .seed = f->seed, .role = f->role};
  memset(to, 0xff, n * n * j->width); /* what is left without memory is not mistaken for a matrix */
  if (!b) return;
  qn_fill_numbers(&filling, QN_F64, b, n * n, (uint64_t)k * n * n);
  for (size_t row = 0; row < n; row++)
    for (size_t column = 0; column <= row; column++) {
      double sum = 0;
      for (size_t i = 0; i < n; i++) sum += b[row * n + i] * b[column * n + i];
      sum = sum / (double)n + (row == column ? f->rule.a : 0);
      qn_number_store(j->dtype, to + (row * n + column) * j->width, sum);
      qn_number_store(j->dtype, to + (column * n + row) * j->width, sum);
    }
  qn_release(b);
}

qn_status qn_fill_array(const qn_filler *f, qn_pool *pool, void *to)
{
  size_t n = 1;
  for (int d = 0; d < f->ndim; d++) n *= (size_t)f->shape[d];
  const bool pair = f->dtype == QN_C64;
  job j = {.f = f, .dtype = pair ? QN_F32 : f->dtype, .n = pair ? 2 * n : n, .to = to};
  j.width = qn_dtype_bytes(j.dtype);
  if (!n) return QN_OK;
  if (f->rule.kind == QN_RULE_BELOW) {
    qn_require(f->below > 0, "rule below: the limit is %lld, it must be above 0", (long long)f->below);
  } else if (f->rule.kind == QN_RULE_SPD) {
    qn_require(f->ndim >= 2 && f->shape[f->ndim - 1] == f->shape[f->ndim - 2],
               "rule spd: the last two extents are %lld and %lld, they must be equal",
               (long long)(f->ndim >= 2 ? f->shape[f->ndim - 2] : 1), (long long)f->shape[f->ndim - 1]);
    qn_require(qn_dtype_is_float(f->dtype), "rule spd: it makes real matrices, not of %s", qn_dtype_name(f->dtype));
    const size_t m = (size_t)f->shape[f->ndim - 1];
    qn_pool_run(pool, n / (m * m), fill_matrix, &j);
    return QN_OK;
  }
  qn_require(f->rule.kind != QN_RULE_DIAGONAL || qn_dtype_is_float(f->dtype),
             "rule diagonal: it makes real matrices, not of %s", qn_dtype_name(f->dtype));
  qn_pool_run(pool, (j.n + PIECE - 1) / PIECE, fill_piece, &j);
  return QN_OK;
}
