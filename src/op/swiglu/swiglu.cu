/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.cu - gated activations over a list of tensors, for the GPU and for the emulator. */
#include "base/list_kernel.h"
#include "op/swiglu/swiglu.math.h"

QN_LIST_KERNEL(swiglu, qn_swiglu_coef, arguments, chunk, x)
{
  constexpr int dtype = qn_list_dtype(QN_SWIGLU_A);
  constexpr int storage = dtype == QN_F32 ? QN_SWIGLU_F32 : dtype == QN_BF16 ? QN_SWIGLU_BF16 : QN_SWIGLU_F16;
  qn_f32 a[QN_PACK], b[QN_PACK], c[QN_PACK];
  qn_list_values(x, QN_SWIGLU_A, a);
  qn_list_values(x, QN_SWIGLU_B, b);
  qn_swiglu_numbers coef = arguments.coef;
  if (!(QN_LIST_FLAGS & QN_SWIGLU_SCALED)) coef.gate_multiplier = 1.0f;
  qn_swiglu_pack(&coef, QN_LIST_FLAGS, storage, a, b, c);
  qn_list_store(arguments, chunk, x, QN_SWIGLU_C, c, nullptr);
}
