/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - CELO2's network, as op/lopt/small_fc.h has the other; a unit includes it before op/lopt's kernels. Its
 * weights are the same for all tensors, and known from the first kernel on. */
#ifndef QN_LOPT_NETWORK
#define QN_LOPT_NETWORK
#include "op/celo2/celo2.math.h"
#include "op/celo2/device.h"

#define QN_LOPT_TENSOR_WEIGHTS 1
constexpr int INPUTS = QN_CELO2_INPUTS, TIMES = 0, WIDTH = QN_CELO2_WIDTH, OUTPUTS = QN_CELO2_OUTPUTS;
constexpr int ELEMENT_INPUTS = QN_CELO2_ELEMENTS;
constexpr qn_u64 A_TASK = QN_CELO2_A_TASK;
constexpr qn_u32 TOTALS = 0;
constexpr float B_TERM = 0.0f;
#include "op/lopt/phase.h"

QN_FN void element_inputs(float (&x)[ELEMENT_INPUTS], float g, float p, const float (&m)[3], float v,
                          const float (&a)[3], const float (&b)[3])
{
  qn_velo_inputs(g, p, m, v, quick_rsqrt(qn_celo2_s_square(v)), a, b, x);
}
#endif
