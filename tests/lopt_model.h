/* SPDX-License-Identifier: Apache-2.0 */
/* lopt_model.h - for tests of learned optimizers: a list of tensors with their states and their references in double,
 * inputs of splitmix64 as the golden vectors draw them, and one step of both. */
#ifndef QN_TESTS_LOPT_MODEL_H
#define QN_TESTS_LOPT_MODEL_H
#include "core/core.h"
#include "op/lopt/reference.h"
#include "quern/device.h"
#include "quern/elo.h"
#include "quern/small_fc_lopt.h"
#include "test.h"

enum { MOST = 24, ROLES = 6, PARAM = 0, GRAD, STATE_M, STATE_V, STATE_ROW, STATE_COLUMN };

typedef struct model {
  size_t n;
  qn_tensor tensor[ROLES][MOST];
  int64_t shape[ROLES][MOST][6];
  qn_lopt_seen reference[MOST];
  double lr_scale[MOST];
  void *workspace;
  size_t workspace_bytes;
  qn_lopt_ties ties;
  float weights[QN_LOPT_SMALL_FC_WEIGHTS];
} model;

static inline void draw_array(uint64_t *state, float *to, size_t n, double scale)
{
  for (size_t k = 0; k < n; k++) to[k] = (float)(qn_lopt_draw(state) * scale);
}

static inline void draw_weights(float *weights) { qn_lopt_make_small_fc(NULL, weights); }

static inline size_t elements(const qn_tensor *t) { return (size_t)qn_tensor_elements(t); }
static inline float *data_of(const model *m, int role, size_t k) { return m->tensor[role][k].data; }

/* One more tensor, with zeros in all of it. */
static inline void add_tensor(model *m, int ndim, const int64_t *shape)
{
  static const qn_lopt_state part[ROLES] = {QN_LOPT_STATE_V, QN_LOPT_STATE_V,   QN_LOPT_STATE_M,
                                            QN_LOPT_STATE_V, QN_LOPT_STATE_ROW, QN_LOPT_STATE_COLUMN};
  const size_t k = m->n++;
  qn_lopt_seen *r = &m->reference[k];
  for (int role = 0; role < ROLES; role++) {
    qn_tensor *t = &m->tensor[role][k];
    int64_t *own = m->shape[role][k];
    *t = (qn_tensor){.dtype = QN_F32, .shape = own, .device = {QN_CPU, 0}};
    qn_lopt_state_shape(m->ties, part[role], ndim, shape, &t->ndim, own);
    const size_t n = elements(t);
    t->data = n ? calloc(n, sizeof(float)) : NULL;
  }
  *r = (qn_lopt_seen){0};
  if (qn_lopt_see(r, m->ties, ndim, m->shape[PARAM][k]) != QN_OK) check(false, "%s", qn_last_error());
  r->p = calloc(r->n + 1, sizeof(double)), r->m = calloc(3 * r->n + 1, sizeof(double));
  r->v = calloc(r->n + 1, sizeof(double)), r->row = calloc(3 * r->n_row + 1, sizeof(double));
  r->column = calloc(3 * r->n_column + 1, sizeof(double));
  m->lr_scale[k] = 1;
}

static inline void set_param(model *m, size_t k, uint64_t *state, double scale)
{
  float *p = data_of(m, PARAM, k);
  draw_array(state, p, m->reference[k].n, scale);
  for (size_t i = 0; i < m->reference[k].n; i++) m->reference[k].p[i] = (double)p[i];
}

static inline void model_end(model *m)
{
  for (size_t k = 0; k < m->n; k++) {
    qn_lopt_seen *r = &m->reference[k];
    for (int role = 0; role < ROLES; role++) free(m->tensor[role][k].data);
    free(r->p), free(r->m), free(r->v), free(r->row), free(r->column);
    qn_release(r->g);
  }
  free(m->workspace);
  *m = (model){0};
}

static inline qn_exec exec_of(model *m, qn_pool *pool)
{
  const size_t needed = qn_small_fc_lopt_workspace_bytes(m->n, m->tensor[PARAM]);
  if (needed > m->workspace_bytes) {
    free(m->workspace);
    m->workspace = aligned_alloc(64, (needed + 63) / 64 * 64);
    m->workspace_bytes = needed;
  }
  memset(m->workspace, 0xA5, needed); /* earlier contents must not matter */
  return (qn_exec){.size = sizeof(qn_exec), .pool = pool, .workspace = m->workspace, .workspace_bytes = needed};
}

#define LISTS_FROM(m, k)                                                                                               \
  &(m)->tensor[0][k], &(m)->tensor[1][k], &(m)->tensor[2][k], &(m)->tensor[3][k], &(m)->tensor[4][k], &(m)->tensor[5][k]
#define LISTS(m) LISTS_FROM(m, 0)

/* ---- a step on a device: all of the model goes there, and what the step made of it comes back ---- */

static qn_device on; /* where steps run */

typedef struct mirror {
  qn_tensor tensor[ROLES][MOST];
  void *weights, *hyper, *workspace;
  size_t bytes;
} mirror;

static inline void *copy_to(const void *from, size_t bytes, size_t shift)
{
  char *to = NULL;
  if (!bytes || qn_memory_allocate(on, bytes + shift, (void **)&to) != QN_OK) return NULL;
  if (qn_memory_write(on, NULL, to + shift, from, bytes) != QN_OK) check(false, "%s", qn_last_error());
  return to + shift;
}

/* `shift`: bytes beyond an aligned place at which tensors lie. */
static inline void mirror_begin(mirror *to, const model *m, const qn_lopt_hyper *hyper, size_t shift)
{
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < m->n; k++) {
      to->tensor[role][k] = m->tensor[role][k];
      to->tensor[role][k].device = on;
      to->tensor[role][k].shape = m->shape[role][k];
      to->tensor[role][k].data = copy_to(data_of(m, role, k), elements(&m->tensor[role][k]) * sizeof(float), shift);
    }
  to->weights = copy_to(m->weights, sizeof m->weights, 0);
  to->hyper = hyper ? copy_to(hyper, sizeof *hyper, 0) : NULL;
  to->bytes = qn_small_fc_lopt_workspace_bytes(m->n, to->tensor[PARAM]);
  if (to->bytes && qn_memory_allocate(on, to->bytes, &to->workspace) == QN_OK)
    qn_memory_fill(on, NULL, to->workspace, 0xA5, to->bytes); /* earlier contents must not matter */
}

static inline void mirror_end(mirror *of, model *m, size_t shift)
{
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < m->n; k++) {
      const size_t bytes = elements(&m->tensor[role][k]) * sizeof(float);
      if (!bytes) continue;
      if (qn_memory_read(on, NULL, data_of(m, role, k), of->tensor[role][k].data, bytes) != QN_OK)
        check(false, "%s", qn_last_error());
      qn_memory_release(on, (char *)of->tensor[role][k].data - shift);
    }
  qn_memory_release(on, of->weights);
  qn_memory_release(on, of->hyper);
  qn_memory_release(on, of->workspace);
}

static size_t shift_of_step; /* of tensors on a device */

static inline qn_status step_on_device(model *m, qn_pool *pool, const qn_small_fc_lopt_params *small,
                                       const qn_elo_params *elo)
{
  mirror there = {0};
  qn_small_fc_lopt_params of_small;
  qn_elo_params of_elo;
  mirror_begin(&there, m, small ? small->hyper : elo->hyper, shift_of_step);
  const qn_exec exec = {
      .size = sizeof exec, .device = on, .pool = pool, .workspace = there.workspace, .workspace_bytes = there.bytes};
  if (small) of_small = *small, of_small.weights = there.weights, of_small.hyper = there.hyper;
  if (elo) of_elo = *elo, of_elo.weights = there.weights, of_elo.hyper = there.hyper;
  const qn_status status = small ? qn_small_fc_lopt_step(&exec, &of_small, m->n, LISTS(&there))
                                 : qn_elo_step(&exec, &of_elo, m->n, LISTS(&there));
  if (status != QN_OK) check(false, "%s", qn_last_error());
  mirror_end(&there, m, shift_of_step);
  return status;
}

static inline qn_status step_small_fc(model *m, qn_pool *pool, const qn_small_fc_lopt_params *params)
{
  if (on.kind != QN_CPU) return step_on_device(m, pool, params, NULL);
  const qn_exec exec = exec_of(m, pool);
  return qn_small_fc_lopt_step(&exec, params, m->n, LISTS(m));
}

static inline qn_status step_elo(model *m, qn_pool *pool, const qn_elo_params *params)
{
  if (on.kind != QN_CPU) return step_on_device(m, pool, NULL, params);
  const qn_exec exec = exec_of(m, pool);
  return qn_elo_step(&exec, params, m->n, LISTS(m));
}

/* The contract's tolerance: 1e-6 max(1, |p|) + 1e-5 |update|. The worst share of it that any element takes. */
static inline double share_of_tolerance(double got, double want, double before)
{
  const double least = fabs(want) > 1 ? fabs(want) : 1;
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : HUGE_VAL;
  return fabs(got - want) / (1e-6 * least + 1e-5 * fabs(want - before));
}
#endif
