/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_backward.cu - the gradients of gated activations over a list of tensors, for the GPU and for the emulator.
 */
#include "base/list_kernel.h"
#include "op/swiglu_backward/swiglu_backward.math.h"

QN_LIST_KERNEL(swiglu_backward, qn_swiglu_coef, arguments, chunk, x)
{
  constexpr int dtype = qn_list_dtype(QN_SWIGLU_BACKWARD_A);
  constexpr int storage = dtype == QN_F32 ? QN_SWIGLU_F32 : dtype == QN_BF16 ? QN_SWIGLU_BF16 : QN_SWIGLU_F16;
  constexpr bool over = qn_list_access(QN_SWIGLU_BACKWARD_DA) == QN_ABSENT;
  qn_f32 dc[QN_PACK], a[QN_PACK], b[QN_PACK], da[QN_PACK], db[QN_PACK];
  qn_list_values(x, QN_SWIGLU_BACKWARD_DC, dc);
  qn_list_values(x, QN_SWIGLU_BACKWARD_A, a);
  qn_list_values(x, QN_SWIGLU_BACKWARD_B, b);
  qn_swiglu_numbers coef = arguments.coef;
  if (!(QN_LIST_FLAGS & QN_SWIGLU_SCALED)) coef.gate_multiplier = 1.0f;
  qn_swiglu_backward_pack(&coef, QN_LIST_FLAGS, storage, dc, a, b, da, db);
  qn_list_store(arguments, chunk, x, over ? QN_SWIGLU_BACKWARD_A : QN_SWIGLU_BACKWARD_DA, da, nullptr);
  qn_list_store(arguments, chunk, x, over ? QN_SWIGLU_BACKWARD_B : QN_SWIGLU_BACKWARD_DB, db, nullptr);
}
