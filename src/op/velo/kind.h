/* SPDX-License-Identifier: Apache-2.0 */
/* kind.h - VeLO's kind of network, as op/lopt/small_fc.h has the other; a unit includes it before op/lopt's kernels. */
#ifndef QN_LOPT_KIND
#define QN_LOPT_KIND
#include "op/velo/device.h"
#include "op/velo/velo.math.h"

#define QN_LOPT_OWN_WEIGHTS 1
constexpr int INPUTS = QN_VELO_INPUTS, TIMES = 0, WIDTH = QN_VELO_WIDTH, OUTPUTS = 3, ELEMENT_INPUTS = QN_VELO_ELEMENTS;
constexpr qn_u64 A_TASK = QN_VELO_ELEMENTS_A_TASK;
constexpr qn_u32 TOTALS = QN_VELO_TOTALS;
constexpr float B_TERM = QN_VELO_B_TERM;
#include "op/lopt/phase.h" /* quick_root */

QN_FN void element_inputs(float (&x)[ELEMENT_INPUTS], float g, float p, const float (&m)[3], float v,
                          const float (&a)[3], const float (&b)[3])
{
  qn_velo_inputs(g, p, m, v, quick_root(qn_lopt_s_square(v)), a, b, x);
}
#endif
