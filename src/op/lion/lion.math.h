/* SPDX-License-Identifier: Apache-2.0 */
/* lion.math.h - Lion's arithmetic, its coefficients and its table of types, written here and nowhere else. lion.cpu.c
 * and lion.cu load packs, call qn_lion_pack and store; the oracle is the same text in double. */
#ifndef QN_OP_LION_MATH_H
#define QN_OP_LION_MATH_H
#include "base/simd.h"

enum { QN_LION_PARAM, QN_LION_GRAD, QN_LION_MOMENTUM, QN_LION_MASTER, QN_LION_ROLES };

/* The rows of the type table: param, its access, grad, momentum, master, its access. What has a master copy is computed
 * from it, so there the param is only written. */
#define QN_LION_ROWS(X)                                                                                                \
  X(F32, READ_WRITE, F32, F32, NONE, ABSENT)                                                                           \
  X(F32, READ_WRITE, BF16, F32, NONE, ABSENT)                                                                          \
  X(F32, READ_WRITE, F16, F32, NONE, ABSENT)                                                                           \
  X(BF16, READ_WRITE, BF16, F32, NONE, ABSENT)                                                                         \
  X(BF16, READ_WRITE, BF16, BF16, NONE, ABSENT)                                                                        \
  X(BF16, READ_WRITE, F32, F32, NONE, ABSENT)                                                                          \
  X(BF16, READ_WRITE, F32, BF16, NONE, ABSENT)                                                                         \
  X(F16, READ_WRITE, F16, F32, NONE, ABSENT)                                                                           \
  X(F16, READ_WRITE, F16, BF16, NONE, ABSENT)                                                                          \
  X(F16, READ_WRITE, F32, F32, NONE, ABSENT)                                                                           \
  X(F16, READ_WRITE, F32, BF16, NONE, ABSENT)                                                                          \
  X(BF16, WRITE, BF16, BF16, F32, READ_WRITE)                                                                          \
  X(BF16, WRITE, BF16, F32, F32, READ_WRITE)                                                                           \
  X(F16, WRITE, F16, F16, F32, READ_WRITE)                                                                             \
  X(F16, WRITE, F16, F32, F32, READ_WRITE)

/* The flags of a specialisation. */
#define QN_LION_FLAGS(X)                                                                                               \
  X(CAUTIOUS)            /* move only where step and gradient agree */                                                 \
  X(STOCHASTIC)          /* a 16-bit param is rounded by chance */                                                     \
  X(STOCHASTIC_MOMENTUM) /* a 16-bit momentum is rounded by chance */                                                  \
  X(GRAD_SCALE)          /* gradients are divided by a value in device memory */                                       \
  X(HYPER)               /* lr and the like are read from device memory */

enum {
#define X(name) QN_LION_BIT_##name,
  QN_LION_FLAGS(X)
#undef X
#define X(name) QN_LION_##name = 1 << QN_LION_BIT_##name,
      QN_LION_FLAGS(X)
#undef X
};

enum { QN_LION_STREAM_PARAM, QN_LION_STREAM_MOMENTUM }; /* of random.h */

/* qn_lion_hyper and the values of qn_lion_decay, as the public header has them (lion.c holds the two together). */
typedef struct qn_lion_rates qn_lion_rates;
#ifndef QN_METAL_DIALECT /* it has no double; what needs one is not emitted for it */
struct qn_lion_rates {
  double lr, beta1, beta2, weight_decay, reference_lr;
  qn_u64 step;
};
#endif
enum { QN_LION_KEEP_LR, QN_LION_KEEP_RELATIVE, QN_LION_KEEP_SQUARED };

/* The numbers of a step that are the same for all elements. Ascending changes the gradient's sign, which is exact, so
 * it is done here. */
typedef struct qn_lion_coef {
  float beta1, one_minus_beta1, beta2, one_minus_beta2; /* the one_minus are negative where direction is */
  float step_size, keep;
  float direction; /* of the gradient: 1; -1: maximize */
  float scale;     /* gradients are divided by it, with QN_LION_GRAD_SCALE */
  qn_u64 seed;
  qn_u32 step;
  int decay;
  const QN_FAR float *grad_scale;
  const QN_FAR float *found_inf;
  const QN_FAR qn_lion_rates *hyper;
  const QN_FAR qn_i64 *agreement; /* {count, n} of every tensor of the list, for QN_LION_CAUTIOUS */
} qn_lion_coef;

#ifndef QN_METAL_DIALECT
/* In double from the caller's values, each rounded once. c->decay and c->direction are set before. */
QN_FN void qn_lion_set_rates(qn_lion_coef *c, const qn_lion_rates *r)
{
  double wd = r->weight_decay, lr = r->lr;
  double lost = c->decay == QN_LION_KEEP_LR         ? lr * wd
                : c->decay == QN_LION_KEEP_RELATIVE ? wd * lr / r->reference_lr
                                                    : wd * lr * lr / r->reference_lr;
  c->beta1 = (float)r->beta1;
  c->beta2 = (float)r->beta2;
  c->one_minus_beta1 = (float)(1.0 - r->beta1) * c->direction;
  c->one_minus_beta2 = (float)(1.0 - r->beta2) * c->direction;
  c->step_size = (float)lr;
  c->keep = (float)(1.0 - lost);
  c->step = (qn_u32)r->step;
}

#endif

/* The coefficients, with the values read that lie in device memory. */
QN_FN qn_lion_coef qn_lion_resolve(const qn_lion_coef *given, qn_u32 flags)
{
  qn_lion_coef c = *given;
#ifndef QN_METAL_DIALECT
  if (flags & QN_LION_HYPER) qn_lion_set_rates(&c, c.hyper);
#endif
  if (flags & QN_LION_GRAD_SCALE) c.scale = *c.grad_scale;
  return c;
}

/* True: found_inf is set, and nothing may be written. */
QN_FN int qn_lion_is_void(const qn_lion_coef *c) { return c->found_inf && *c->found_inf != 0.0f; }

#ifndef QN_METAL_DIALECT
/* The factor of a tensor's step where the step is cautious: n / max(count, n / 1000). */
QN_FN float qn_lion_factor(const qn_i64 *agreement)
{
  double count = (double)agreement[0], n = (double)agreement[1], least = 0.001 * n;
  return (float)(n / (count > least ? count : least));
}

#endif

/* The gradient as the update sees it, but for its direction. */
QN_FN qn_f32 qn_lion_gradient(const qn_lion_coef *c, qn_u32 flags, qn_f32 grad)
{
  return flags & QN_LION_GRAD_SCALE ? grad / qn_splat(c->scale) : grad;
}

QN_FN qn_f32 qn_lion_sign(const qn_lion_coef *c, qn_f32 gradient, qn_f32 momentum)
{
  return qn_sign(qn_fma(qn_splat(c->beta1), momentum, qn_splat(c->one_minus_beta1) * gradient));
}

/* The new param (or master) and momentum of a pack. `factor` is read with QN_LION_CAUTIOUS only. */
QN_FN void qn_lion_pack(const qn_lion_coef *c, qn_u32 flags, float factor, qn_f32 param[QN_PACK],
                        const qn_f32 grad[QN_PACK], qn_f32 momentum[QN_PACK])
{
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) {
    qn_f32 g = qn_lion_gradient(c, flags, grad[v]);
    qn_f32 s = qn_lion_sign(c, g, momentum[v]), step = qn_splat(c->step_size);
    if (flags & QN_LION_CAUTIOUS) { /* a NaN compares false and stays */
      qn_mask against = qn_at_most(s * (qn_splat(c->direction) * g), qn_splat(0.0f));
      s = qn_select(against, qn_splat(0.0f), s);
      step = step * s;
      param[v] = qn_fma(param[v], qn_splat(c->keep), -(qn_splat(factor) * step));
    } else {
      param[v] = qn_fma(param[v], qn_splat(c->keep), -(step * s));
    }
    momentum[v] = qn_fma(qn_splat(c->beta2), momentum[v], qn_splat(c->one_minus_beta2) * g);
  }
}

/* How many elements of the pack agree. Lanes past the end hold zeros, which do not. */
QN_FN qn_u32 qn_lion_count_pack(const qn_lion_coef *c, qn_u32 flags, const qn_f32 grad[QN_PACK],
                                const qn_f32 momentum[QN_PACK])
{
  qn_u32 count = 0;
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) {
    qn_f32 g = qn_lion_gradient(c, flags, grad[v]), s = qn_lion_sign(c, g, momentum[v]);
    count += qn_count(qn_less(qn_splat(0.0f), s * (qn_splat(c->direction) * g)));
  }
  return count;
}
#endif
