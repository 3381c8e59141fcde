/* SPDX-License-Identifier: Apache-2.0 */
/* small_fc.h - the network that kernels of learned optimizers have unless their unit includes another network's header
 * before phase.h: sizes, and where a tensor's weights are. Such a header defines all names of this one. */
#ifndef QN_LOPT_NETWORK
#define QN_LOPT_NETWORK
#include "op/lopt/device.h"
#include "op/lopt/lopt.math.h"

#define QN_LOPT_TENSOR_WEIGHTS 0 /* 1: of each tensor, known behind STATS; the step may be skipped */
constexpr int INPUTS = QN_LOPT_INPUTS, TIMES = QN_LOPT_TIMES, WIDTH = QN_LOPT_HIDDEN, OUTPUTS = 2;
constexpr int ELEMENT_INPUTS = QN_LOPT_ELEMENTS;
constexpr qn_u64 A_TASK = QN_LOPT_ELEMENTS_A_TASK;
constexpr qn_u32 TOTALS = 0; /* numbers in a row of `partial`; 0: one a channel */
constexpr float B_TERM = QN_LOPT_B_TERM;

/* An element's inputs that differ from element to element. */
QN_FN void element_inputs(float (&x)[ELEMENT_INPUTS], float g, float p, const float (&m)[3], float v,
                          const float (&a)[3], const float (&b)[3])
{
  qn_lopt_inputs(g, p, m, v, qn_rsqrt(qn_lopt_s_square(v)), a, b, x);
}
#endif
