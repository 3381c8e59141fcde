/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_backward.math.h - the backward's roles, table of types and arithmetic, on the forward's. */
#ifndef QN_OP_SWIGLU_BACKWARD_MATH_H
#define QN_OP_SWIGLU_BACKWARD_MATH_H
#include "op/swiglu/swiglu.math.h"

enum {
  QN_SWIGLU_BACKWARD_DC,
  QN_SWIGLU_BACKWARD_A,
  QN_SWIGLU_BACKWARD_B,
  QN_SWIGLU_BACKWARD_DA,
  QN_SWIGLU_BACKWARD_DB,
  QN_SWIGLU_BACKWARD_ROLES
};

/* The storage type, how a and b are accessed, and the gradients' type and access: apart, or over a and b. */
#define QN_SWIGLU_BACKWARD_ROWS(X)                                                                                     \
  X(F32, READ, F32, WRITE)                                                                                             \
  X(BF16, READ, BF16, WRITE)                                                                                           \
  X(F16, READ, F16, WRITE)                                                                                             \
  X(F32, READ_WRITE, NONE, ABSENT)                                                                                     \
  X(BF16, READ_WRITE, NONE, ABSENT)                                                                                    \
  X(F16, READ_WRITE, NONE, ABSENT)
#define QN_SWIGLU_BACKWARD_DOUBLE_ROWS(X) X(F64, READ, F64, WRITE) X(F64, READ_WRITE, NONE, ABSENT)

QN_FN void qn_swiglu_backward_pack(const qn_swiglu_numbers *c, qn_u32 flags, int storage, const qn_f32 dc[QN_PACK],
                                   const qn_f32 a[QN_PACK], const qn_f32 b[QN_PACK], qn_f32 da[QN_PACK],
                                   qn_f32 db[QN_PACK])
{
  const qn_u32 gate = flags & QN_SWIGLU_GATE_MASK;
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) {
    const qn_swiglu_value value = qn_swiglu_activate(c, gate, storage, a[v]);
    qn_f32 d = qn_swiglu_held(storage, dc[v] * qn_splat(c->down_multiplier)), up = qn_swiglu_up(c, gate, b[v]);
    qn_f32 other = d * value.s;
    if (gate == QN_SWIGLU_CLAMPED) /* NaN compares false and stays */
      other = qn_select(qn_less(qn_splat(c->limit), qn_abs(b[v])), qn_splat(0.0f), other);
    qn_f32 of_s = qn_swiglu_held(storage, d * value.slope);
    da[v] = qn_swiglu_held(storage, of_s * up) * qn_splat(c->gate_multiplier);
    db[v] = other;
  }
}
#endif
