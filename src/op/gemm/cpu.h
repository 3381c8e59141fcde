/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - a GEMM on the processor: how the result is cut into tiles (cpu.c), and what a tier's kernel gets
 * (gemm_norm.cpu.c, built once a tier). The cut depends on the problem alone, never on the number of threads, and every
 * sum is taken within one tile, so results have the same bits for any number of threads. */
#ifndef QN_OP_GEMM_CPU_H
#define QN_OP_GEMM_CPU_H
#include "op/gemm/gemm.h"
#include "op/op.h"

/* Elements of k that are packed at once: a panel of w of 32 columns is 32 KiB then and stays in the first cache. */
enum { QN_GEMM_DEPTH = 256, QN_GEMM_PAD = 64 };

typedef struct qn_gemm_tile {
  const qn_gemm_problem *problem;
  int64_t row, rows, column, columns; /* of y */
  float *z;                           /* (m, n), dense: where sums are kept; y itself where that is f32 */
  float *x_panel, *w_panel; /* lent for the tile: QN_GEMM_DEPTH * (rows + QN_GEMM_PAD), and of columns alike */
  bool product;             /* the sums, with all of the epilogue up to the norm */
  bool norm;                /* the norm, and what is stored in the end; the tile holds whole groups */
  /* The oracle alone: all tensors as doubles, roles in the op's order, for the whole of the result. */
  const double *const *input;
  double *reference, *allowed;
} qn_gemm_tile;
typedef void qn_gemm_cpu_fn(const qn_gemm_tile *tile);

QN_CPU_DECLARE(gemm_norm, qn_gemm_cpu_fn);

size_t qn_gemm_cpu_workspace(const qn_gemm_problem *problem, const qn_exec *exec);
qn_status qn_gemm_cpu_run(const qn_gemm_problem *problem, const qn_exec *exec);
#endif
