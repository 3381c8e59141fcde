/* SPDX-License-Identifier: Apache-2.0 */
/* lion.check.c - Lion made wrong in the ways that have been seen in other implementations, for `quern check
 * --selftest`. Each is written out for the plain case (row 0, f32, no flags) and leaves all else to the function whose
 * place it takes, so that what is caught is the one bug. Part of the workbench, not of the library. */
#include "workbench/op_check.h"
#include "op/lion/lion.math.h"
#include <math.h>

typedef void element_fn(const qn_lion_coef *c, float *p, float g, float *m);

static float sign(float x) { return x != x ? x : (float)((x > 0) - (x < 0)); }
static float direction(const qn_lion_coef *c, float g, float m) { return fmaf(c->beta1, m, c->one_minus_beta1 * g); }
static float next_momentum(const qn_lion_coef *c, float g, float m)
{
  return fmaf(c->beta2, m, c->one_minus_beta2 * g);
}

static void each_plain(const qn_cpu_call *call, const qn_piece *piece, element_fn *element)
{
  const qn_lion_coef *c = call->coef;
  if (call->row != 0 || call->flags || piece->tally || c->found_inf) {
    qn_mutant_original(call, piece);
    return;
  }
  float *p = piece->data[QN_LION_PARAM], *m = piece->data[QN_LION_MOMENTUM];
  const float *g = piece->data[QN_LION_GRAD];
  for (size_t i = 0; i < piece->n; i++) element(c, &p[i], g[i], &m[i]);
}

static void right(const qn_lion_coef *c, float *p, float g, float *m)
{
  *p = fmaf(*p, c->keep, -(c->step_size * sign(direction(c, g, *m))));
  *m = next_momentum(c, g, *m);
}

static void zero_is_plus(const qn_lion_coef *c, float *p, float g, float *m)
{
  float d = direction(c, g, *m);
  *p = fmaf(*p, c->keep, -(c->step_size * (d == 0 ? 1 : sign(d))));
  *m = next_momentum(c, g, *m);
}

static void zero_is_minus(const qn_lion_coef *c, float *p, float g, float *m)
{
  float d = direction(c, g, *m);
  *p = fmaf(*p, c->keep, -(c->step_size * (d == 0 ? -1 : sign(d))));
  *m = next_momentum(c, g, *m);
}

static void nan_is_zero(const qn_lion_coef *c, float *p, float g, float *m)
{
  float d = direction(c, g, *m);
  *p = fmaf(*p, c->keep, -(c->step_size * (d != d ? 0 : sign(d))));
  *m = next_momentum(c, g, *m);
}

static void late_direction(const qn_lion_coef *c, float *p, float g, float *m)
{
  *m = next_momentum(c, g, *m);
  *p = fmaf(*p, c->keep, -(c->step_size * sign(direction(c, g, *m))));
}

static void decay_in_gradient(const qn_lion_coef *c, float *p, float g, float *m)
{
  float decay = c->step_size > 0 ? (1 - c->keep) / c->step_size : 0, coupled = fmaf(decay, *p, g);
  *p = *p - c->step_size * sign(direction(c, coupled, *m));
  *m = next_momentum(c, coupled, *m);
}

static void decay_without_rate(const qn_lion_coef *c, float *p, float g, float *m)
{
  float keep = c->step_size > 0 ? 1 - (1 - c->keep) / c->step_size : c->keep;
  *p = fmaf(*p, keep, -(c->step_size * sign(direction(c, g, *m))));
  *m = next_momentum(c, g, *m);
}

/* The sign's bit is taken from one bit below, and zero is not looked for. */
static void wrong_bit(const qn_lion_coef *c, float *p, float g, float *m)
{
  float d = direction(c, g, *m);
  qn_u32 one = 0x3f800000u | (qn_float_bits(d) & 0x40000000u) << 1;
  *p = fmaf(*p, c->keep, -(c->step_size * (d != d ? d : qn_bits_float(one))));
  *m = next_momentum(c, g, *m);
}

static void rounds_twice(const qn_lion_coef *c, float *p, float g, float *m)
{
  float kept = *p * c->keep;
  *p = kept - c->step_size * sign(direction(c, g, *m));
  *m = next_momentum(c, g, *m);
}

static void betas_swapped(const qn_lion_coef *c, float *p, float g, float *m)
{
  *p = fmaf(*p, c->keep, -(c->step_size * sign(next_momentum(c, g, *m))));
  *m = direction(c, g, *m);
}

#define PLANT(name)                                                                                                    \
  static void name##_fn(const qn_cpu_call *call, const qn_piece *piece) { each_plain(call, piece, name); }
PLANT(right)
PLANT(zero_is_plus)
PLANT(zero_is_minus)
PLANT(nan_is_zero)
PLANT(late_direction)
PLANT(decay_in_gradient)
PLANT(decay_without_rate)
PLANT(wrong_bit)
PLANT(rounds_twice)
PLANT(betas_swapped)

/* The coefficients changed, everything else as it was. */
static void with(const qn_cpu_call *call, const qn_piece *piece, const qn_lion_coef *c)
{
  qn_cpu_call changed = *call;
  changed.coef = c;
  qn_mutant_original(&changed, piece);
}

static void forgets_maximize(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_lion_coef c = *(const qn_lion_coef *)call->coef;
  c.direction = 1;
  c.one_minus_beta1 = fabsf(c.one_minus_beta1);
  c.one_minus_beta2 = fabsf(c.one_minus_beta2);
  with(call, piece, &c);
}

static void forgets_found_inf(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_lion_coef c = *(const qn_lion_coef *)call->coef;
  c.found_inf = NULL;
  with(call, piece, &c);
}

static void forgets_factor(const qn_cpu_call *call, const qn_piece *piece)
{
  static const qn_i64 all_agree[2] = {1, 1};
  qn_lion_coef c = *(const qn_lion_coef *)call->coef;
  qn_piece first = *piece;
  if (call->flags & QN_LION_CAUTIOUS && !piece->tally) {
    first.place = 0;
    c.agreement = all_agree;
  }
  with(call, &first, &c);
}

static void scales_up(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_lion_coef c = *(const qn_lion_coef *)call->coef;
  float inverse = c.grad_scale ? 1 / *c.grad_scale : 1;
  c.grad_scale = &inverse;
  with(call, piece, &c);
}

enum {
  FORMULA = QN_IN_ONE_TIER | QN_EVERYWHERE_ORACLE | QN_EVERYWHERE_GOLDEN,
  BITS = QN_IN_ONE_TIER | QN_EVERYWHERE_GOLDEN
};

static const qn_mutant mutants[] = {
    {"lion-right", "the formula by itself, right", QN_HARMLESS, right_fn, NULL, NULL},
    {"lion-sign-plus", "sign(0) is +1: weights without gradient drift", FORMULA, zero_is_plus_fn, NULL, NULL},
    {"lion-sign-minus", "sign(0) is -1", FORMULA, zero_is_minus_fn, NULL, NULL},
    {"lion-sign-nan", "sign(NaN) is 0: a weight freezes", FORMULA, nan_is_zero_fn, NULL, NULL},
    {"lion-stale", "the momentum is updated before the direction is taken", FORMULA, late_direction_fn, NULL, NULL},
    {"lion-coupled", "weight decay goes into the gradient", FORMULA, decay_in_gradient_fn, NULL, NULL},
    {"lion-decay", "the decay is not multiplied by lr", FORMULA, decay_without_rate_fn, NULL, NULL},
    {"lion-bit", "the sign is masked with the wrong bit", FORMULA, wrong_bit_fn, NULL, NULL},
    {"lion-twice", "a product is rounded before it is added", BITS, rounds_twice_fn, NULL, NULL},
    {"lion-betas", "beta1 and beta2 are exchanged", FORMULA, betas_swapped_fn, NULL, NULL},
    {"lion-maximize", "maximize is ignored", BITS, forgets_maximize, NULL, NULL},
    {"lion-found-inf", "found_inf is ignored", FORMULA, forgets_found_inf, NULL, NULL},
    {"lion-factor", "cautious does not scale what is left", FORMULA, forgets_factor, NULL, NULL},
    {"lion-scale", "gradients are multiplied by the scale", FORMULA, scales_up, NULL, NULL},
    {NULL, NULL, 0, NULL, NULL, NULL},
};

const qn_op_check qn_check_lion = {
    .mutants = mutants,
    .domain = {
        .shapes = "1..16777216 1..8192x1..8192", .most_shapes = 6, .most_copies = 24, .values = "weight_decay=0|0.1"}};
