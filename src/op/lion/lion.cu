/* SPDX-License-Identifier: Apache-2.0 */
/* lion.cu - Lion over a list of tensors, for the GPU and for the emulator. QN_LIST_COUNTS: only cautious' first
 * phase. */
#include "base/list_kernel.h"
#include "op/lion/lion.math.h"

#if QN_LIST_COUNTS
QN_LIST_COUNT_KERNEL(lion, qn_lion_coef, a, x)
{
  const qn_lion_coef c = qn_lion_resolve(&a.coef, QN_LIST_FLAGS);
  qn_f32 grad[QN_PACK], momentum[QN_PACK];
  qn_list_values(x, QN_LION_GRAD, grad);
  qn_list_values(x, QN_LION_MOMENTUM, momentum);
  return qn_lion_count_pack(&c, QN_LIST_FLAGS, grad, momentum);
}
#else
/* The random words. They need no data, so they are computed while it travels. */
template <class Args>
QN_FN void draw(const Args &a, const qn_list_chunk &chunk, const qn_list_pack &x, const qn_lion_coef &c,
                qn_list_noise *param, qn_list_noise *momentum)
{
  constexpr bool chance = QN_LIST_FLAGS & QN_LION_STOCHASTIC;
  constexpr bool chance_momentum = QN_LIST_FLAGS & QN_LION_STOCHASTIC_MOMENTUM;
  if (chance) qn_list_draw(a, chunk, x, {c.seed, c.step, 0, QN_LION_STREAM_PARAM}, param);
  if (chance_momentum) qn_list_draw(a, chunk, x, {c.seed, c.step, 0, QN_LION_STREAM_MOMENTUM}, momentum);
}

QN_LIST_KERNEL(lion, qn_lion_coef, a, chunk, x)
{
  const qn_lion_coef c = qn_lion_resolve(&a.coef, QN_LIST_FLAGS);
  constexpr bool master = qn_list_access(QN_LION_MASTER) != QN_ABSENT;
  constexpr bool chance = QN_LIST_FLAGS & QN_LION_STOCHASTIC;
  constexpr bool chance_momentum = QN_LIST_FLAGS & QN_LION_STOCHASTIC_MOMENTUM;
  constexpr bool late = QN_LIST_FLAGS & QN_LION_HYPER; /* then the step's number travels too, and registers are few */
  qn_list_noise noise, noise_momentum;
  qn_f32 param[QN_PACK], grad[QN_PACK], momentum[QN_PACK];
  if (qn_lion_is_void(&c)) return;
  if (!late) draw(a, chunk, x, c, &noise, &noise_momentum);
  qn_list_values(x, master ? QN_LION_MASTER : QN_LION_PARAM, param);
  qn_list_values(x, QN_LION_GRAD, grad);
  qn_list_values(x, QN_LION_MOMENTUM, momentum);
  if (late) draw(a, chunk, x, c, &noise, &noise_momentum);
#ifdef QN_METAL_DIALECT
  const float factor = 1.0f; /* cautious is not emitted for it */
#else
  const float factor =
      QN_LIST_FLAGS & QN_LION_CAUTIOUS ? qn_lion_factor(c.agreement + 2 * (a.place + chunk.tensor)) : 1.0f;
#endif
  qn_lion_pack(&c, QN_LIST_FLAGS, factor, param, grad, momentum);
  if (master) qn_list_store(a, chunk, x, QN_LION_MASTER, param, nullptr);
  qn_list_store(a, chunk, x, QN_LION_PARAM, param, chance ? &noise : nullptr);
  qn_list_store(a, chunk, x, QN_LION_MOMENTUM, momentum, chance_momentum ? &noise_momentum : nullptr);
}
#endif
