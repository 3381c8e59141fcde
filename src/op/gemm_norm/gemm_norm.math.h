/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.math.h - the roles of the op's tensors. Its arithmetic is op/gemm/epilogue.math.h. */
#ifndef QN_OP_GEMM_NORM_MATH_H
#define QN_OP_GEMM_NORM_MATH_H
#include "op/gemm/epilogue.math.h"

enum {
  QN_GEMM_ROLE_Y,
  QN_GEMM_ROLE_X,
  QN_GEMM_ROLE_W,
  QN_GEMM_ROLE_BIAS,
  QN_GEMM_ROLE_BIAS2,
  QN_GEMM_ROLE_GAMMA,
  QN_GEMM_ROLE_BETA,
  QN_GEMM_ROLES
};
#endif
