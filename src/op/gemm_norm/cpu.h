/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - a GEMM on the processor: how the work is cut into tasks (cpu.c), and what a tier's kernel gets
 * (gemm_norm.cpu.c, built once a tier). The cut depends on the problem alone, never on the number of threads, and every
 * sum is taken within one tile, so results have the same bits for any number of threads. */
#ifndef QN_OP_GEMM_NORM_CPU_H
#define QN_OP_GEMM_NORM_CPU_H
#include "op/gemm_norm/gemm.h"
#include "op/op.h"
#include <stdatomic.h>

/* Elements of k along which sums stay in registers, and columns of w that a tile packs at once: 256 KiB, which stay in
 * the second cache. Every tier's panels are so wide that a number of them makes up the pad. */
enum { QN_GEMM_DEPTH = 256, QN_GEMM_PANEL_COLUMNS = 256, QN_GEMM_COLUMN_PAD = 64 };

/* What a tier does in one task. */
typedef enum qn_gemm_work {
  QN_GEMM_PACK_X,      /* a tier of bf16: the tile's rows of x, from k on, into its panels */
  QN_GEMM_PACK_W,      /* likewise: its columns of w */
  QN_GEMM_PRODUCT,     /* the tile's sums, and the epilogue where they are whole */
  QN_GEMM_DIRECT,      /* the tile's sums straight from x and w, along all of k, and the epilogue: for few rows */
  QN_GEMM_DIRECT_SUMS, /* the same without the epilogue */
  QN_GEMM_FINISH,      /* the epilogue alone */
  QN_GEMM_NORM         /* of the rows' groups: for those that are wider than tiles */
} qn_gemm_work;

typedef struct qn_gemm_tile {
  const qn_gemm_problem *problem;
  qn_gemm_work work;
  int64_t row, rows, column, columns; /* of y */
  float *z;                           /* where sums are kept: of all of y, y itself where that is f32, or the tile's */
  int64_t z_row, z_column, z_pitch;   /* the element of y whose sum is z[0], and floats from row to row */
  bool z_whole;                       /* z has room for whole blocks of 32 by 32, from z[0] on */
  /* Of a tier of bf16: elements [k, k + depth) of the tile's rows and columns as panels, each after the other; sums
   * are added to z where k > 0. Of the others: room for panels of w, QN_GEMM_DEPTH by the tile's columns or
   * QN_GEMM_PANEL_COLUMNS of them. */
  float *x_panel, *w_panel;
  int64_t k, depth;
  bool norm; /* the tile holds whole groups, and finishes them */
  /* Of a tier of bf16: w is not packed, and y has one tile of rows; or x is not, and y has one of columns. The least
   * magnitudes of x and w but zero, as bf16, less one. */
  bool w_stays, x_stays;
  atomic_uint *lowest_x, *lowest_w;
} qn_gemm_tile;

/* The sum of an element of y. */
static inline float *qn_gemm_sum_of(const qn_gemm_tile *t, int64_t row, int64_t column)
{
  return t->z + (row - t->z_row) * t->z_pitch + column - t->z_column;
}

/* Whether operands are rounded on their way; the x3 classes are f32 here. */
static inline bool qn_gemm_rounds(const qn_gemm_problem *p)
{
  return p->precision == QN_GEMM_TF32 || (p->precision == QN_GEMM_BF16 && !p->short_data);
}

typedef void qn_gemm_cpu_fn(const qn_gemm_tile *tile);

QN_CPU_DECLARE_TIERS(gemm_norm, qn_gemm_cpu_fn);
qn_gemm_cpu_fn qn_gemm_norm_cpu_avx512bf16, qn_gemm_norm_cpu_amx;

/* A block of the tiers of bf16, one of AMX's registers: its rows, and its elements of k; and the most rows of an
 * operand beside which the other one is read where it lies. */
enum { QN_GEMM_BF16_SIDE = 16, QN_GEMM_BF16_STEP = 32, QN_GEMM_BF16_FEW = 64 };

/* Do these tiers' instructions compute all products of such operands as f32 does? They take subnormal numbers for zero.
 * Above 2^-102 a product is a multiple of 2^-116, and so is each sum: none is subnormal. */
static inline bool qn_gemm_bf16_safe(unsigned lowest_x, unsigned lowest_w)
{
  const unsigned x = (lowest_x + 1) >> 7, w = (lowest_w + 1) >> 7; /* exponents, of 2^-127; subnormal numbers have 0 */
  return x && w && x + w >= 2 * 127 - 102;
}

size_t qn_gemm_cpu_workspace(const qn_gemm_problem *problem, const qn_exec *exec);
qn_status qn_gemm_cpu_run(const qn_gemm_problem *problem, const qn_exec *exec);
#endif
