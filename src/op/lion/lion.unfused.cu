/* SPDX-License-Identifier: Apache-2.0 */
/* lion.unfused.cu - Lion in seven passes over f32 arrays, 68 bytes an element, as a foreach implementation makes them.
 * For benches only: what a speed-up is measured against. QN_PASS says which pass; options are not supported. */
#include "op/lion/lion.math.h"

struct unfused_args { /* qn_unfused_args of op/op.h, then the coefficients */
  float *array[11];
  qn_u64 n;
  qn_lion_coef coef;
};

/* One element of the pass: `to` is updated, `from` is read by the passes that read two arrays. */
QN_FN float pass(const qn_lion_coef &c, float to, float from)
{
  switch (QN_PASS) {
  case 0: return c.beta1 * from;
  case 1: return to + c.one_minus_beta1 * from;
  case 2: return qn_sign(to);
  case 3: return to * c.keep;
  case 4: return to - c.step_size * from;
  case 5: return to * c.beta2;
  default: return to + c.one_minus_beta2 * from;
  }
}

QN_KERNEL(lion_unfused, unfused_args, a)
{
  enum { U = QN_LION_ROLES, P = QN_LION_PARAM, G = QN_LION_GRAD, M = QN_LION_MOMENTUM };
  constexpr int into[] = {U, U, U, P, P, M, M}, with[] = {M, G, U, P, U, M, G};
  constexpr bool reads_target = QN_PASS != 0, reads_other = into[QN_PASS] != with[QN_PASS];
  float *const to = a.array[into[QN_PASS]];
  const float *const from = a.array[with[QN_PASS]];
  const qn_u64 at = (qn_block() * qn_block_threads() + qn_thread()) * 4;
  if (at + 4 <= a.n) {
    qn_16bytes x = {}, y = {};
    if (reads_target) x = qn_load16(to + at);
    if (reads_other) y = qn_load16(from + at);
    QN_UNROLL
    for (int k = 0; k < 4; k++)
      x.word[k] = qn_float_bits(pass(a.coef, qn_bits_float(x.word[k]), qn_bits_float(y.word[k])));
    qn_store16(to + at, x);
  } else {
    for (qn_u64 k = at; k < a.n; k++) to[k] = pass(a.coef, to[k], from[k]);
  }
}
