/* SPDX-License-Identifier: Apache-2.0 */
/* velo_model.h - for tests of VeLO: a list of tensors with all that its optimizer keeps, weights as the golden vectors
 * draw them, and one step. */
#ifndef QN_TESTS_VELO_MODEL_H
#define QN_TESTS_VELO_MODEL_H
#include "lopt_model.h"
#include "op/velo/reference.h"

enum { UNITS = QN_VELO_UNITS, FIRST_H = QN_VELO_STEP_B + 1, FIRST_C = FIRST_H + UNITS }; /* in the rnn's weights */

typedef struct velo {
  model m;
  float *mlp, *rnn; /* shared: draw_velo_weights gives them */
  float loss[1], hidden[MOST * UNITS], cell[MOST * UNITS];
  double buffer[QN_VELO_LOSS_BUFFER];
  int64_t rows[2], twenty_two[1];
  qn_tensor single[4]; /* loss, hidden, cell, loss_buffer */
} velo;

/* Both arrays, drawn once; free them behind the last test. */
static float *velo_mlp, *velo_rnn;

static inline void draw_velo_weights(void)
{
  velo_mlp = malloc(QN_LOPT_VELO_MLP_WEIGHTS * sizeof *velo_mlp);
  velo_rnn = malloc(QN_LOPT_VELO_RNN_WEIGHTS * sizeof *velo_rnn);
  qn_velo_make(&(qn_op_param){.name = "mlp"}, velo_mlp), qn_velo_make(&(qn_op_param){.name = "rnn"}, velo_rnn);
}

static inline velo *velo_begin(void)
{
  velo *v = calloc(1, sizeof *v);
  v->m.ties = QN_LOPT_TIES_VELO;
  v->mlp = velo_mlp, v->rnn = velo_rnn;
  for (size_t k = 0; k < MOST * UNITS; k++)
    v->hidden[k] = velo_rnn[FIRST_H + k % UNITS], v->cell[k] = velo_rnn[FIRST_C + k % UNITS];
  v->twenty_two[0] = QN_VELO_LOSS_BUFFER;
  return v;
}

static inline void velo_end(velo *v)
{
  model_end(&v->m);
  free(v);
}

static inline void set_singles(velo *v)
{
  const qn_device cpu = {QN_CPU, 0};
  v->rows[0] = (int64_t)v->m.n, v->rows[1] = UNITS;
  v->single[0] = (qn_tensor){.data = v->loss, .dtype = QN_F32, .device = cpu};
  v->single[1] = (qn_tensor){.data = v->hidden, .dtype = QN_F32, .ndim = 2, .shape = v->rows, .device = cpu};
  v->single[2] = (qn_tensor){.data = v->cell, .dtype = QN_F32, .ndim = 2, .shape = v->rows, .device = cpu};
  v->single[3] = (qn_tensor){.data = v->buffer, .dtype = QN_F64, .ndim = 1, .shape = v->twenty_two, .device = cpu};
}

#define SINGLES(v) &(v)->single[0], &(v)->single[1], &(v)->single[2], &(v)->single[3]

static inline qn_velo_params velo_params(const velo *v, double num_steps)
{
  qn_velo_params p = QN_VELO_DEFAULTS;
  p.mlp = v->mlp, p.rnn = v->rnn, p.num_steps = (uint64_t)num_steps;
  return p;
}

static inline qn_exec velo_exec(velo *v, qn_pool *pool)
{
  model *m = &v->m;
  const size_t needed = qn_velo_workspace_bytes(m->n, m->tensor[PARAM]);
  if (needed > m->workspace_bytes) {
    free(m->workspace);
    m->workspace = aligned_alloc(64, (needed + 63) / 64 * 64);
    m->workspace_bytes = needed;
  }
  if (needed) memset(m->workspace, 0xFF, needed); /* NaN: what was there must not matter */
  return (qn_exec){.size = sizeof(qn_exec), .pool = pool, .workspace = m->workspace, .workspace_bytes = needed};
}

/* On a device: all goes there, and what the step made of it comes back. */
typedef struct velo_there {
  qn_tensor tensor[ROLES][MOST], single[4];
  void *hyper, *workspace;
  size_t bytes;
} velo_there;

static inline qn_tensor sent(const qn_tensor *t, size_t shift)
{
  qn_tensor there = *t;
  there.device = on;
  there.data = copy_to(t->data, elements(t) * qn_dtype_bytes(t->dtype), shift);
  return there;
}

static inline void fetch(const qn_tensor *there, const qn_tensor *to, size_t shift)
{
  const size_t bytes = elements(to) * qn_dtype_bytes(to->dtype);
  if (!bytes) return;
  if (qn_memory_read(on, NULL, to->data, there->data, bytes) != QN_OK) check(false, "%s", qn_last_error());
  qn_memory_release(on, (char *)there->data - shift);
}

static inline qn_status velo_on_device(velo *v, qn_pool *pool, const qn_velo_params *params)
{
  static void *mlp, *rnn; /* until the test ends */
  velo_there there = {0};
  qn_velo_params p = *params;
  const size_t n = v->m.n;
  if (!mlp) mlp = copy_to(velo_mlp, QN_LOPT_VELO_MLP_WEIGHTS * sizeof(float), 0);
  if (!rnn) rnn = copy_to(velo_rnn, QN_LOPT_VELO_RNN_WEIGHTS * sizeof(float), 0);
  set_singles(v);
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < n; k++) there.tensor[role][k] = sent(&v->m.tensor[role][k], shift_of_step);
  for (int k = 0; k < 4; k++) there.single[k] = sent(&v->single[k], 0);
  there.hyper = params->hyper ? copy_to(params->hyper, sizeof *params->hyper, 0) : NULL;
  there.bytes = qn_velo_workspace_bytes(n, there.tensor[PARAM]);
  if (there.bytes && qn_memory_allocate(on, there.bytes, &there.workspace) == QN_OK)
    qn_memory_fill(on, NULL, there.workspace, 0xFF, there.bytes); /* NaN: what was there must not matter */
  p.mlp = mlp, p.rnn = rnn, p.hyper = there.hyper;
  const qn_exec exec = {
      .size = sizeof exec, .device = on, .pool = pool, .workspace = there.workspace, .workspace_bytes = there.bytes};
  const qn_status status = qn_velo_step(&exec, &p, n, LISTS(&there), SINGLES(&there));
  if (status != QN_OK) check(false, "%s", qn_last_error());
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < n; k++) fetch(&there.tensor[role][k], &v->m.tensor[role][k], shift_of_step);
  for (int k = 0; k < 4; k++) fetch(&there.single[k], &v->single[k], 0);
  qn_memory_release(on, there.hyper), qn_memory_release(on, there.workspace);
  return status;
}

static inline qn_status step_velo(velo *v, qn_pool *pool, const qn_velo_params *params)
{
  if (on.kind != QN_CPU) return velo_on_device(v, pool, params);
  const qn_exec exec = velo_exec(v, pool);
  set_singles(v);
  return qn_velo_step(&exec, params, v->m.n, LISTS(&v->m), SINGLES(v));
}
#endif
