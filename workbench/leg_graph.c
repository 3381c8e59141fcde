/* SPDX-License-Identifier: Apache-2.0 */
/* leg_graph.c - the part of leg 1 about stream capture: a plan's step is captured once into a CUDA graph and replayed.
 * Params in device memory must count at every replay: a changed rate gives other steps, a changed counter other
 * random numbers, and each replay equals the reference's step. The library itself captures nothing, so the functions
 * for that are looked up here. */
#include "workbench/check.h"
#include "core/core.h"
#include "device/cuda/driver.h"
#include "workbench/subject.h"
#include <dlfcn.h>

typedef struct cu_graph_s *cu_graph;
typedef struct cu_graph_exec_s *cu_graph_exec;
enum { CU_CAPTURE_THREAD_LOCAL = 1 };

#define GRAPH_MAP(X)                                                                                                   \
  X(begin, "cuStreamBeginCapture_v2", (cu_stream, int mode))                                                           \
  X(end, "cuStreamEndCapture", (cu_stream, cu_graph *))                                                                \
  X(instantiate, "cuGraphInstantiateWithFlags", (cu_graph_exec *, cu_graph, unsigned long long flags))                 \
  X(launch, "cuGraphLaunch", (cu_graph_exec, cu_stream))                                                               \
  X(destroy_exec, "cuGraphExecDestroy", (cu_graph_exec))                                                               \
  X(destroy, "cuGraphDestroy", (cu_graph))

typedef struct graph_calls {
  void *library;
#define X(member, name, signature) cu_result(*member) signature;
  GRAPH_MAP(X)
#undef X
} graph_calls;

typedef struct graph {
  qn_trial *trial;
  qn_cuda_scope scope;
  graph_calls cu;
  void *stream;
  qn_setting setting;
  size_t row;
  qn_subject got, want;
  cu_graph graph;
  cu_graph_exec exec;
} graph;

static qn_status open_calls(graph *g)
{
  g->cu.library = dlopen(g->scope.driver->path, RTLD_NOW | RTLD_LOCAL);
  if (!g->cu.library) return qn_fail(QN_NO_LIBRARY, "%s: %s", g->scope.driver->path, dlerror());
#define X(member, name, signature)                                                                                     \
  if (!qn_cuda_symbol(g->cu.library, name, &g->cu.member))                                                             \
    return qn_fail(QN_UNSUPPORTED, "%s has no %s", g->scope.driver->path, name);
  GRAPH_MAP(X)
#undef X
  return QN_OK;
}

static qn_status status_of(const graph *g, cu_result result, const char *function)
{
  return qn_cuda_status(g->scope.driver, g->scope.device->index, result, function);
}

/* Everything in device memory that the op can read there, and every enum at its last value (random numbers, where the
 * op has them). */
static void choose(graph *g)
{
  const qn_op_info *op = &g->trial->item->target.op->info;
  g->row = qn_op_rows(op, QN_CUDA) - 1;
  qn_op_defaults(op, g->setting.params, op->params_bytes);
  for (size_t k = 0; k < op->n_params; k++) {
    const qn_op_param *param = &op->params[k];
    if (param->type == QN_PARAM_DEVICE_HYPER) g->setting.given |= 1u << k;
    if (param->type == QN_PARAM_ENUM) qn_param_set(param, g->setting.params, qn_param_most(param));
  }
}

static qn_status open_all(graph *g)
{
  const qn_target *target = &g->trial->item->target;
  qn_try(open_calls(g));
  choose(g);
  qn_try(qn_stream_create(target->device, &g->stream));
  qn_subject_order order = {.op = target->op,
                            .row = g->row,
                            .device = target->device,
                            .stream = g->stream,
                            .text = "1000 0 33 70000 5 " QN_SUBJECT_ODD,
                            .setting = &g->setting,
                            .way = QN_WAY_PLAN,
                            .seed = 7};
  qn_try(qn_subject_open(&g->got, &order));
  return qn_subject_open(&g->want, qn_subject_reference_order(&order, &g->got));
}

/* The first step loads what a capture must find loaded. */
static qn_status capture(graph *g)
{
  cu_stream stream = (cu_stream)g->stream;
  qn_try(qn_subject_step(&g->got));
  qn_try(status_of(g, g->cu.begin(stream, CU_CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture"));
  qn_status launched = qn_subject_run(&g->got);
  cu_result ended = g->cu.end(stream, &g->graph);
  qn_try(launched);
  qn_try(status_of(g, ended, "cuStreamEndCapture"));
  return status_of(g, g->cu.instantiate(&g->exec, g->graph, 0), "cuGraphInstantiateWithFlags");
}

/* Params in device memory become those of this round: rates that double, a counter that counts. */
static qn_status set_round(const graph *g, qn_subject *d, unsigned rate, unsigned counter)
{
  const qn_op_info *op = &g->trial->item->target.op->info;
  bool first = true;
  for (size_t k = 0; k < op->n_params; k++) {
    const qn_op_param *param = &op->params[k];
    if (!param->hyper_offset) continue;
    if (param->type == QN_PARAM_U64) qn_param_set_u64(param, d->params, counter);
    if (param->type == QN_PARAM_DOUBLE && first) {
      qn_param_set(param, d->params, 0.001 * (double)(1u << rate));
      first = false;
    }
  }
  return qn_subject_point(d);
}

/* One replay from the same tensors, compared with the reference; its bits are folded into *hash. */
static qn_status replay(graph *g, size_t number, unsigned rate, unsigned counter, uint64_t *hash)
{
  char wrong[QN_SUBJECT_WRONG];
  qn_try(qn_subject_rewind(&g->got));
  qn_try(qn_subject_rewind(&g->want));
  qn_try(set_round(g, &g->got, rate, counter));
  qn_try(set_round(g, &g->want, rate, counter));
  qn_try(status_of(g, g->cu.launch(g->exec, (cu_stream)g->stream), "cuGraphLaunch"));
  qn_try(qn_subject_fetch(&g->got));
  qn_try(qn_subject_step(&g->want));
  if (!qn_subject_agree(&g->got, &g->want, wrong, sizeof wrong))
    qn_trial_fail(g->trial, (long)number, "case %zu: a captured step, replayed with rate %u and counter %u\n%s", number,
                  rate, counter, wrong);
  for (size_t r = 0; r < QN_MAX_TENSORS; r++)
    if (g->got.role[r].access & QN_WRITE)
      *hash = qn_seed_mix(*hash, qn_hash(g->got.role[r].after, g->got.role[r].bytes).low);
  g->trial->elements += qn_subject_elements(&g->got);
  return QN_OK;
}

static qn_status run(graph *g)
{
  static const struct {
    unsigned rate, counter;
  } rounds[] = {{0, 0}, {1, 0}, {0, 1}, {0, 0}, {3, 12}};
  enum { ROUNDS = sizeof rounds / sizeof *rounds };
  uint64_t hash[ROUNDS] = {0};
  qn_try(open_all(g));
  qn_try(capture(g));
  for (size_t k = 0; k < ROUNDS; k++)
    if (qn_trial_takes(g->trial, k)) qn_try(replay(g, k, rounds[k].rate, rounds[k].counter, &hash[k]));
  if (g->trial->only >= 0 || g->trial->failure) return QN_OK;
  if (hash[0] == hash[1]) qn_trial_fail(g->trial, -1, "a replay with another rate gives the same numbers");
  if (g->trial->item->target.op->random_flags && hash[0] == hash[2])
    qn_trial_fail(g->trial, -1, "a replay with another counter draws the same random numbers");
  if (hash[0] != hash[3]) qn_trial_fail(g->trial, -1, "two replays with the same params differ");
  return QN_OK;
}

void qn_leg_graph(qn_trial *trial)
{
  const qn_op_info *op = &trial->item->target.op->info;
  graph g = {.trial = trial};
  bool readable = false;
  for (size_t k = 0; k < op->n_params; k++) readable |= op->params[k].type == QN_PARAM_DEVICE_HYPER;
  if (!readable) {
    qn_trial_skip(trial, "%s reads no params from device memory", op->name);
    return;
  }
  qn_status status = qn_cuda_enter(trial->item->target.device, &g.scope);
  if (status == QN_OK) {
    status = run(&g);
    if (g.exec) g.cu.destroy_exec(g.exec);
    if (g.graph) g.cu.destroy(g.graph);
    qn_subject_close(&g.got);
    qn_subject_close(&g.want);
    if (g.stream) qn_stream_destroy(trial->item->target.device, &g.stream);
    if (g.cu.library) dlclose(g.cu.library);
    status = qn_cuda_leave(&g.scope, status);
  }
  if (status != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  qn_trial_note(trial, "%zu replays, %llu elements", trial->cases, (unsigned long long)trial->elements);
}
