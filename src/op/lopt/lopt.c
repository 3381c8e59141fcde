/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.c - a step of a learned optimizer over a list of tensors: what it refuses beyond its description, and the
 * whole of a step. batches.c runs what was checked. */
#include "op/lopt/lopt.h"
#include "core/core.h"
#include "quern/device.h"
#include <string.h>

QN_CPU_DECLARE_TIERS(lopt, qn_lopt_cpu_fn);
static qn_lopt_cpu_fn *const tiers[QN_TIER_COUNT] = {QN_CPU_TIERS(lopt)};
#define NETWORK(ties)                                                                                                  \
  {                                                                                                                    \
    ties, QN_LOPT_HIDDEN, QN_LOPT_INPUTS, QN_LOPT_ELEMENTS, QN_LOPT_B_TERM, tiers, &qn_lopt_device_tiling, NULL        \
  }
const qn_lopt_network qn_lopt_small_fc[2] = {NETWORK(QN_LOPT_TIES_LATER), NETWORK(QN_LOPT_TIES_JAX)};
#undef NETWORK

const qn_op_tensor qn_lopt_tensors[QN_LOPT_ROLES] = {QN_LOPT_TENSORS};
const qn_op_types qn_lopt_types[1] = {{{QN_LOPT_TYPES}}};

static qn_lopt_step step_of(const qn_call *list) { return qn_lopt_step_of(list->op, list->params); }

qn_status qn_lopt_check_small_fc(const qn_call *list)
{
  const qn_lopt_step step = step_of(list);
  qn_try(qn_lopt_check_shards(list, step.shards));
  for (size_t k = 0; k < list->n && step.compat; k++)
    qn_require(list->tensors[QN_LOPT_PARAM][k].ndim <= 2,
               "%s: param[%zu] has %d dimensions: pylo_cuda_compat is for up to 2", list->op->info.name, k,
               list->tensors[QN_LOPT_PARAM][k].ndim);
  return QN_OK;
}

void qn_lopt_dimensions(const qn_op *op, const qn_call *call, size_t k, int ndim, const int64_t *shape, int d[2])
{
  const qn_lopt_op *of = op->of_engine;
  const qn_lopt_shards *shards = NULL;
  int32_t ties = 0;
  if (call && of->shards) memcpy(&shards, (const char *)call->params + of->shards, sizeof shards);
  if (call) memcpy(&ties, (const char *)call->params + of->ties, sizeof ties);
  qn_lopt_largest(of->networks[ties != 0].ties, ndim, shape, qn_lopt_whole(shards, k), d);
}

/* ---- the workspace ---- */

static size_t bytes_of(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_call *list)
{
  const qn_lopt_op *of = list->op->of_engine;
  const qn_tensor *param = list->tensors[QN_LOPT_PARAM];
  if (!list->n || !param) return 0;
  const size_t first = of->first_bytes ? of->first_bytes(network, shards, list) : 0;
  if (param->device.kind == QN_CPU)
    return first + qn_lopt_batches_bytes(network, shards, list->n, param) + QN_LOPT_ALIGNMENT;
  return first + qn_lopt_device_bytes(network, shards, list->n, param) +
         (of->first_bytes ? QN_LOPT_DEVICE_ALIGNMENT : 0);
}

size_t qn_lopt_workspace(const qn_call *list)
{
  const qn_lopt_step step = step_of(list);
  return bytes_of(step.network, step.shards, list);
}

/* Would a step take params of these shapes, and such shards? */
static bool are_shapes(qn_call *call, const qn_lopt_shards *shards)
{
  qn_op_rules own;
  if (!call->n || !call->tensors[0] || qn_op_rules_of(call->op, &own, &call->rules) != QN_OK) return false;
  for (size_t k = 0; k < call->n; k++)
    if (qn_role_shape_check(call, QN_LOPT_PARAM, k, &call->tensors[0][k]) != QN_OK) return false;
  return qn_lopt_check_shards(call, shards) == QN_OK;
}

size_t qn_lopt_workspace_of(const qn_op *op, const qn_lopt_shards *shards, size_t n, const qn_tensor *param)
{
  const qn_lopt_op *of = op->of_engine;
  qn_call call = {.op = op, .n = n, .tensors = {param}};
  if (!are_shapes(&call, shards)) return 0;
  return qn_lopt_most(bytes_of(&of->networks[0], shards, &call), bytes_of(&of->networks[1], shards, &call));
}

/* ---- a step ---- */

void qn_lopt_read_hyper(qn_lopt_step *step)
{
  const qn_lopt_hyper *hyper = step->hyper;
  if (hyper) step->lr = hyper->lr, step->weight_decay = hyper->weight_decay, step->step = hyper->step;
}

/* The settings of the network's own tasks, where a step has them. */
typedef union own_settings {
  double aligned;
  char bytes[QN_LOPT_OWN_BYTES];
} own_settings;

static void set_own(const qn_call *list, qn_lopt_step *step, own_settings *own)
{
  const qn_lopt_op *of = list->op->of_engine;
  if (of->own_of) of->own_of(list->params, step->step, own), step->own = own;
}

static qn_status run(const qn_call *list)
{
  const qn_lopt_op *of = list->op->of_engine;
  qn_lopt_step step = step_of(list);
  own_settings own;
  qn_lopt_call call;
  qn_tier tier;
  if (!list->n) return QN_OK;
  if (list->exec->device.kind != QN_CPU) {
    set_own(list, &step, &own);
    return of->device_run ? of->device_run(list, &step) : qn_lopt_device_run(list, &step);
  }
  qn_try(qn_tier_in_force(&tier));
  if (list->mode == QN_CALL_PREPARE) return QN_OK;
  qn_lopt_read_hyper(&step);
  set_own(list, &step, &own);
  qn_lopt_begin(&call, &step);
  if (of->networks == qn_lopt_small_fc) qn_lopt_prepare(&call, &step);
  return qn_lopt_run_batches(list, &step, &call, tier, qn_lopt_arena_of(list->exec->workspace, QN_LOPT_ALIGNMENT).base);
}

const qn_engine qn_lopt_engine = {.dimensions = qn_lopt_dimensions, .workspace = qn_lopt_workspace, .run = run};
