/* SPDX-License-Identifier: Apache-2.0 */
/* hopper.h - what gemm.hopper.cu is launched with. */
#ifndef QN_OP_GEMM_NORM_HOPPER_H
#define QN_OP_GEMM_NORM_HOPPER_H
#include "base/hopper.h"
#include "op/gemm_norm/args.h"

typedef struct qn_gemm_hopper_args {
  qn_gemm_args of;
  qn_u32 chunks;                      /* of k: 128 bytes of a row of w */
  qn_u32 slices, slice_chunks;        /* of k; chunks in one */
  qn_u32 m_tiles, tiles;              /* tiles of a cluster: m_tiles times n's, in clusters, times the batches */
  qn_u32 batches;                     /* products of operands that lie one behind the other, as their results do */
  qn_u32 w_rows;                      /* of w in a box of its map: fewer than a tile's where w has fewer */
  qn_u32 across;                      /* 1: tiles of n are the fastest, so that whole rows of y are written together */
  const float *x_factors, *w_factors; /* of f16x3, of rows (scale.h) */
  qn_tensor_map w, x;
} qn_gemm_hopper_args;
#endif
