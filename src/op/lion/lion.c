/* SPDX-License-Identifier: Apache-2.0 */
/* lion.c - Lion's description, from which tests, benches, bindings and documents are made, its coefficients, and the
 * typed calls of quern/lion.h, which are names over the list engine. No arithmetic on elements is here but the unfused
 * form that benches compare with. */
#include "quern/lion.h"
#include "op/lion/lion.math.h"
#include "op/call.h"
#include <math.h>
#include <stddef.h>

QN_CPU_DECLARE(lion, qn_cpu_fn);

/* ---- the formula's header cannot include the public one; they say the same ---- */
#define SAME_PLACE(member)                                                                                             \
  _Static_assert(offsetof(qn_lion_rates, member) == offsetof(qn_lion_hyper, member), "qn_lion_rates is qn_lion_hyper")
SAME_PLACE(lr);
SAME_PLACE(beta1);
SAME_PLACE(beta2);
SAME_PLACE(weight_decay);
SAME_PLACE(reference_lr);
SAME_PLACE(step);
#undef SAME_PLACE
_Static_assert(sizeof(qn_lion_rates) == sizeof(qn_lion_hyper), "qn_lion_rates is qn_lion_hyper");
_Static_assert((int)QN_LION_KEEP_LR == (int)QN_LION_DECAY_LR, "the decays have one order");
_Static_assert((int)QN_LION_KEEP_RELATIVE == (int)QN_LION_DECAY_RELATIVE, "the decays have one order");
_Static_assert((int)QN_LION_KEEP_SQUARED == (int)QN_LION_DECAY_SQUARED, "the decays have one order");
_Static_assert(sizeof(qn_lion_coef) <= QN_COEF_BYTES, "coefficients travel by value");

/* ---- the description ---- */
static const qn_op_tensor tensors[] = {
    [QN_LION_PARAM] = {.name = "param", .doc = "what is trained; with a master, its short copy", .fill_scale = 0.02},
    [QN_LION_GRAD] = {.name = "grad", .doc = "the loss's gradient with respect to it", .fill_scale = 1e-3},
    [QN_LION_MOMENTUM] = {.name = "momentum",
                          .framework_name = "exp_avg",
                          .doc = "the gradients' running mean; zeros before the first step",
                          .fill_scale = 1e-3},
    [QN_LION_MASTER] = {.name = "master", .doc = "optional f32 original of a 16-bit param", .fill_scale = 0.02},
};

static const qn_op_types types[] = {
#define X(p, p_access, g, m, w, w_access)                                                                              \
  {{{QN_##p, QN_##p_access}, {QN_##g, QN_READ}, {QN_##m, QN_READ_WRITE}, {QN_##w, QN_##w_access}}},
    QN_LION_ROWS(X)
#undef X
};

#define AT(member) offsetof(qn_lion_params, member)
#define LIVE(member) (1 + offsetof(qn_lion_hyper, member))
static const qn_op_param params_table[] = {
    {"lr", "learning rate: how far every element moves", QN_PARAM_DOUBLE, AT(lr), 0, HUGE_VAL, 0, NULL, LIVE(lr)},
    {"beta1", "weight of the momentum in the direction of the step", QN_PARAM_DOUBLE, AT(beta1), 0, 1, 1, NULL,
     LIVE(beta1)},
    {"beta2", "weight of the momentum in the next momentum", QN_PARAM_DOUBLE, AT(beta2), 0, 1, 1, NULL, LIVE(beta2)},
    {"weight_decay", "decoupled weight decay", QN_PARAM_DOUBLE, AT(weight_decay), 0, HUGE_VAL, 0, NULL,
     LIVE(weight_decay)},
    {"eps", "accepted and ignored", QN_PARAM_DOUBLE, AT(eps), -HUGE_VAL, HUGE_VAL, 0, NULL, 0},
    {"reference_lr", "lr0 or max_lr of the other forms of decay", QN_PARAM_DOUBLE, AT(reference_lr), 0, HUGE_VAL, 0,
     NULL, LIVE(reference_lr)},
    {"decay", "what is kept of a weight: 1 - lr wd, 1 - wd lr / reference_lr, 1 - wd lr^2 / reference_lr",
     QN_PARAM_ENUM, AT(decay), 0, 2, 0, "lr|relative|squared", 0},
    {"maximize", "ascend", QN_PARAM_BOOL, AT(maximize), 0, 1, 0, NULL, 0},
    {"cautious", "move only where step and gradient agree, as much further as fewer do", QN_PARAM_BOOL, AT(cautious), 0,
     1, 0, NULL, 0},
    {"rounding", "of a 16-bit param", QN_PARAM_ENUM, AT(rounding), 0, 1, 0, "nearest|stochastic", 0},
    {"momentum_rounding", "of a 16-bit momentum", QN_PARAM_ENUM, AT(momentum_rounding), 0, 1, 0, "nearest|stochastic",
     0},
    {"seed", "of stochastic rounding", QN_PARAM_U64, AT(seed), 0, HUGE_VAL, 0, NULL, 0},
    {"step", "counter of stochastic rounding, modulo 2^32", QN_PARAM_U64, AT(step), 0, HUGE_VAL, 0, NULL, LIVE(step)},
    {"first_element", "of every shard: index in the whole tensor of its first element", QN_PARAM_HOST_U64,
     AT(first_element), 0, 0, 0, NULL, 0},
    {"tensor_id", "of every tensor: its number in the model, modulo 2^32", QN_PARAM_HOST_U64, AT(tensor_id), 0, 0, 0,
     NULL, 0},
    {"grad_scale", "gradients are divided by it", QN_PARAM_DEVICE_F32, AT(grad_scale), 0, 0, 0, NULL, 0},
    {"found_inf", "where it is not 0, nothing is written", QN_PARAM_DEVICE_F32, AT(found_inf), 0, 0, 0, NULL, 0},
    {"hyper", "takes the place of the members of the same names", QN_PARAM_DEVICE_HYPER, AT(hyper), 0, 0, 0, NULL, 0},
    {"agreement", "cautious: {count, n} of every tensor over all its shards", QN_PARAM_DEVICE_I64, AT(agreement), 0, 0,
     0, NULL, 0},
};
#undef AT
#undef LIVE

static qn_status check(const qn_call *call)
{
  const qn_lion_params *p = call->params;
  qn_require(p->hyper || p->decay == QN_LION_DECAY_LR || p->reference_lr > 0,
             "lion: reference_lr is %g, it must be above 0 where decay is \"%s\"", p->reference_lr,
             p->decay == QN_LION_DECAY_RELATIVE ? "relative" : "squared");
  qn_require(!p->agreement || p->cautious, "lion: agreement is given, which cautious reads, and cautious is 0");
  return QN_OK;
}

static uint32_t flags(const void *params, size_t row)
{
  const qn_lion_params *p = params;
  bool short_param = types[row].tensor[QN_LION_PARAM].dtype != QN_F32;
  bool short_momentum = types[row].tensor[QN_LION_MOMENTUM].dtype != QN_F32;
  uint32_t all = 0;
  if (p->cautious) all |= QN_LION_CAUTIOUS;
  if (short_param && p->rounding == QN_STOCHASTIC) all |= QN_LION_STOCHASTIC;
  if (short_momentum && p->momentum_rounding == QN_STOCHASTIC) all |= QN_LION_STOCHASTIC_MOMENTUM;
  if (p->grad_scale) all |= QN_LION_GRAD_SCALE;
  if (p->hyper) all |= QN_LION_HYPER;
  return all;
}

static void coefficients(const void *params, void *coef)
{
  const qn_lion_params *p = params;
  qn_lion_coef *c = coef;
  *c = (qn_lion_coef){.direction = p->maximize ? -1.0f : 1.0f,
                      .scale = 1.0f,
                      .seed = p->seed,
                      .decay = p->decay,
                      .grad_scale = p->grad_scale,
                      .found_inf = p->found_inf,
                      .hyper = (const qn_lion_rates *)p->hyper,
                      .agreement = p->agreement};
  const qn_lion_rates rates = {p->lr, p->beta1, p->beta2, p->weight_decay, p->reference_lr, p->step};
  if (!p->hyper) qn_lion_set_rates(c, &rates);
}

static int phases(const void *params)
{
  const qn_lion_params *p = params;
  return p->cautious && !p->agreement ? 2 : 1;
}

/* ---- the unfused form: seven passes, as a framework's list functions make them. Four floats at a time keep every
 * pass at the memory's speed on any compiler and architecture; the remainder of an array is done one by one. ---- */
typedef float vector __attribute__((vector_size(16), aligned(4), may_alias));
enum { WIDTH = sizeof(vector) / sizeof(float) };

static void set_product(size_t n, float *x, const float *y, float a)
{
  size_t k = 0;
  for (; k + WIDTH <= n; k += WIDTH) *(vector *)(x + k) = a * *(const vector *)(y + k);
  for (; k < n; k++) x[k] = a * y[k];
}

static void add_product(size_t n, float *x, const float *y, float a)
{
  size_t k = 0;
  for (; k + WIDTH <= n; k += WIDTH) *(vector *)(x + k) += a * *(const vector *)(y + k);
  for (; k < n; k++) x[k] += a * y[k];
}

static void set_sign(size_t n, float *x)
{
  size_t k = 0;
  for (; k + WIDTH <= n; k += WIDTH) {
    vector v = *(vector *)(x + k);
    *(vector *)(x + k) = __builtin_convertvector((v < 0.0f) - (v > 0.0f), vector);
  }
  for (; k < n; k++) x[k] = (float)((x[k] > 0.0f) - (x[k] < 0.0f));
}

static void unfused(size_t n, float *const *arrays, const void *coef)
{
  const qn_lion_coef *c = coef;
  float *p = arrays[QN_LION_PARAM], *m = arrays[QN_LION_MOMENTUM], *u = arrays[QN_LION_ROLES];
  const float *g = arrays[QN_LION_GRAD];
  set_product(n, u, m, c->beta1);
  add_product(n, u, g, c->one_minus_beta1);
  set_sign(n, u);
  set_product(n, p, p, c->keep);
  add_product(n, p, u, -c->step_size);
  set_product(n, m, m, c->beta2);
  add_product(n, m, g, c->one_minus_beta2);
}

const qn_op qn_op_lion = {
    .info = {.name = "lion",
             .brief = "the Lion optimizer's step: a sign, a decay and a momentum in one pass",
             .doc =
                 "Every element moves by lr in the direction of a sign: c = beta1 m + (1 - beta1) g; p = keep p - lr "
                 "sign(c); m = beta2 m + (1 - beta2) g. One momentum is kept. Arithmetic is in f32, whatever the "
                 "storage; 16-bit storage is rounded once, to nearest or by chance.",
             .tensors = tensors,
             .n_tensors = QN_LION_ROLES,
             .types = types,
             .n_types = sizeof types / sizeof types[0],
             QN_OP_PARAMS(params_table, qn_lion_params, QN_LION_DEFAULTS),
             .hyper_bytes = sizeof(qn_lion_hyper),
             .agreement = QN_BITWISE,
             .oracle_units = 4,
             .unfused_doc = "seven passes over f32 arrays, as a framework's list functions make them",
             .unfused_bytes = 68,
             .operations = 9,
             .count_reads = 1u << QN_LION_GRAD | 1u << QN_LION_MOMENTUM},
    .engine = &qn_elementwise,
    .coef_bytes = sizeof(qn_lion_coef),
    .check = check,
    .flags = flags,
    .random_flags = QN_LION_STOCHASTIC | QN_LION_STOCHASTIC_MOMENTUM,
    .coefficients = coefficients,
    .phases = phases,
    .tally_offset = 1 + offsetof(qn_lion_coef, agreement),
    .first_element_offset = 1 + offsetof(qn_lion_params, first_element),
    .tensor_id_offset = 1 + offsetof(qn_lion_params, tensor_id),
    .cpu = QN_CPU_TABLE(lion),
    .device_source = "op/lion/lion.cu",
    .unfused = unfused,
    .unfused_source = "op/lion/lion.unfused.cu",
    .unfused_passes = 7,
};

/* ---- the typed calls ---- */
#define ROLES                                                                                                          \
  {                                                                                                                    \
    [QN_LION_PARAM] = param, [QN_LION_GRAD] = grad, [QN_LION_MOMENTUM] = momentum, [QN_LION_MASTER] = master           \
  }

qn_status qn_lion_step(const qn_exec *exec, const qn_lion_params *params, size_t n, const qn_tensor *param,
                       const qn_tensor *grad, const qn_tensor *momentum, const qn_tensor *master)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_step(&qn_op_lion.info, exec, params, n, roles);
}

qn_status qn_lion_prepare(const qn_exec *exec, const qn_lion_params *params, size_t n, const qn_tensor *param,
                          const qn_tensor *grad, const qn_tensor *momentum, const qn_tensor *master)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  return qn_op_prepare(&qn_op_lion.info, exec, params, n, roles);
}

qn_status qn_lion_count(const qn_exec *exec, const qn_lion_params *params, size_t n, const qn_tensor *param,
                        const qn_tensor *grad, const qn_tensor *momentum, const qn_tensor *master, int64_t *counts)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  qn_try(qn_validate_params(&qn_op_lion, params));
  qn_lion_params cautious = *params; /* whoever counts means it, whatever the step will be */
  cautious.cautious = 1;
  cautious.agreement = NULL;
  return qn_call_run(
      &(qn_call){.op = &qn_op_lion, .mode = QN_CALL_COUNT, .exec = exec, .params = &cautious, .n = n, .counts = counts},
      roles);
}

size_t qn_lion_workspace_bytes(const qn_lion_params *params, size_t n)
{
  return qn_op_workspace_bytes(&qn_op_lion.info, params, n);
}

/* A Lion plan is the engine's plan under a name of its own, so that a plan of another op does not compile. */
qn_status qn_lion_plan_create(qn_lion_plan **plan, const qn_exec *exec, const qn_lion_params *params, size_t n,
                              const qn_tensor *param, const qn_tensor *grad, const qn_tensor *momentum,
                              const qn_tensor *master)
{
  const qn_tensor *const roles[QN_MAX_TENSORS] = ROLES;
  qn_plan *made = NULL;
  qn_require(plan, "lion: the place for the plan is NULL");
  qn_status status = qn_op_plan_create(&made, &qn_op_lion.info, exec, params, n, roles);
  *plan = (qn_lion_plan *)made;
  return status;
}

qn_status qn_lion_plan_step(qn_lion_plan *plan, const qn_exec *exec, const qn_lion_params *params,
                            const qn_tensor *grad)
{
  const qn_tensor *const moved[QN_MAX_TENSORS] = {[QN_LION_GRAD] = grad};
  return qn_op_plan_step((qn_plan *)plan, exec, params, grad ? moved : NULL);
}

void qn_lion_plan_destroy(qn_lion_plan **plan)
{
  if (!plan) return;
  qn_plan *made = (qn_plan *)*plan;
  qn_plan_destroy(&made);
  *plan = NULL;
}
