/* SPDX-License-Identifier: Apache-2.0 */
/* flags.h - what an epilogue does, as one word, which kernels are specialised for. Its arithmetic is gemm_norm.math.h,
 * which C that knows no lanes does not include. */
#ifndef QN_OP_GEMM_NORM_FLAGS_H
#define QN_OP_GEMM_NORM_FLAGS_H
#include "base/kernel.h"

/* As the enums of quern/gemm_norm.h number them. */
enum {
  QN_GEMM_NONE,
  QN_GEMM_RELU,
  QN_GEMM_GELU,
  QN_GEMM_GELU_TANH,
  QN_GEMM_SILU,
  QN_GEMM_MISH,
  QN_GEMM_SIGMOID,
  QN_GEMM_TANH,
  QN_GEMM_ACTIVATIONS
};
enum { QN_GEMM_NO_NORM, QN_GEMM_GROUP_NORM, QN_GEMM_LAYER_NORM, QN_GEMM_RMS_NORM, QN_GEMM_NORMS };

/* What an epilogue does, in one word, which kernels are specialised for: activation in bits 0 to 3, norm in bits 4 and
 * 5, then a bit for each thing that is done. Device sources see it as QN_GEMM_FLAGS. */
enum {
  QN_GEMM_ACTIVATION_MASK = 15,
  QN_GEMM_NORM_SHIFT = 4,
  QN_GEMM_NORM_MASK = 3,
  QN_GEMM_CLAMPS = 64,
  QN_GEMM_BIAS = 128,
  QN_GEMM_BIAS2 = 256,
  QN_GEMM_GAMMA = 512,
  QN_GEMM_BETA = 1024
};

QN_FN int qn_gemm_norm_of(qn_u32 flags) { return (int)(flags >> QN_GEMM_NORM_SHIFT & QN_GEMM_NORM_MASK); }

/* Does the norm take the mean away? */
QN_FN int qn_gemm_centres(qn_u32 flags)
{
  return qn_gemm_norm_of(flags) == QN_GEMM_GROUP_NORM || qn_gemm_norm_of(flags) == QN_GEMM_LAYER_NORM;
}
#endif
