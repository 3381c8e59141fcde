/* SPDX-License-Identifier: Apache-2.0 */
/* network.h - VeLO's network, as op/lopt/small_fc.h has the other; a unit includes it before op/lopt's kernels. */
#ifndef QN_LOPT_NETWORK
#define QN_LOPT_NETWORK
#include "op/velo/device.h"
#include "op/velo/velo.math.h"

#define QN_LOPT_TENSOR_WEIGHTS 1
constexpr int INPUTS = QN_VELO_INPUTS, TIMES = 0, WIDTH = QN_VELO_WIDTH, OUTPUTS = 3, ELEMENT_INPUTS = QN_VELO_ELEMENTS;
constexpr qn_u64 A_TASK = QN_VELO_ELEMENTS_A_TASK;
constexpr qn_u32 TOTALS = QN_VELO_TOTALS;
constexpr float B_TERM = QN_VELO_B_TERM;
#include "op/lopt/phase.h" /* quick_rsqrt */

QN_FN void element_inputs(float (&x)[ELEMENT_INPUTS], float g, float p, const float (&m)[3], float v,
                          const float (&a)[3], const float (&b)[3])
{
  qn_velo_inputs(g, p, m, v, quick_rsqrt(qn_lopt_s_square(v)), a, b, x);
}
#endif
