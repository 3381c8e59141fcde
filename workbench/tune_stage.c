/* SPDX-License-Identifier: Apache-2.0 */
/* tune_stage.c - see tune_stage.h. What is timed is a step without a plan: a plan would keep the first geometry's
 * launch. Its data are numbers like a bench's, a piece of them over and over: making gigabytes would take longer than
 * tuning. */
#include "workbench/tune_stage.h"
#include "quern/device.h"
#include "workbench/bench.h"
#include "workbench/data.h"
#include <stdio.h>
#include <string.h>

enum { GAP = 64, BAND = 128, PIECE = 1 << 18, SMALL = 4, PROVED = 192 };
static const int64_t small_shape[SMALL][2] = {{1, 11009}, {3, 4099}, {4, 14337}, {2, 65}};

typedef struct proof {
  qn_tune_layout layout;
  qn_launch_shape geometry;
  char why[160];
} proof;

struct qn_tune_stage {
  const qn_op *op;
  size_t row, workspace_bytes;
  qn_exec exec;
  uint64_t most;
  void *params, *arena[QN_MAX_TENSORS]; /* arenas: of timed steps, on the device */
  int64_t shape[2], strides[2];
  qn_tensor tensor[QN_MAX_TENSORS];
  const qn_tensor *list[QN_MAX_TENSORS];
  double moved;
  /* The small tensors of proofs, in one layout at a time. */
  qn_tune_layout small_layout;
  bool has_small;
  size_t small_elements;
  int64_t small_strides[SMALL][2];
  void *small[QN_MAX_TENSORS];                                              /* on the device */
  char *first[QN_MAX_TENSORS], *want[QN_MAX_TENSORS], *got[QN_MAX_TENSORS]; /* on the host */
  proof proved[PROVED];
  size_t n_proved;
};

static const qn_op_types *types_of(const qn_tune_stage *s) { return &s->op->info.types[s->row]; }
static bool given(const qn_tune_stage *s, size_t role) { return types_of(s)->tensor[role].access != QN_ABSENT; }
static size_t bytes_of(const qn_tune_stage *s, size_t role) { return qn_dtype_bytes(types_of(s)->tensor[role].dtype); }

static uint64_t pitch_of(uint64_t cols, qn_tune_layout layout) { return cols + (layout == QN_TUNE_PITCHED ? GAP : 0); }

uint64_t qn_tune_span(const qn_tune_cell *cell) { return cell->rows * pitch_of(cell->cols, cell->layout); }

static qn_status force(const qn_launch_shape *g)
{
  char name[QN_LAUNCH_SHAPE_NAME];
  if (g) qn_launch_shape_name(g, name);
  return qn_option_set("geometry", g ? name : NULL);
}

static void fill(const qn_tune_stage *s, size_t role, size_t n, void *to)
{
  const qn_op_tensor *t = &s->op->info.tensors[role];
  const qn_data_rule rule = {.dtype = types_of(s)->tensor[role].dtype,
                             .fill = t->fill,
                             .scale = t->fill_scale,
                             .poison = types_of(s)->tensor[role].access == QN_WRITE,
                             .seed = role + 1};
  qn_data_fill(&rule, 0, 0, n, to);
}

/* ---- memory of timed steps ---- */

/* The first piece from the host, the rest by doubling it. */
static qn_status fill_arena(qn_tune_stage *s, size_t role)
{
  const size_t size = bytes_of(s, role), all = (size_t)s->most * size;
  size_t done = s->most < PIECE ? all : PIECE * size;
  char *piece, *at;
  qn_try(qn_memory_allocate(s->exec.device, all, &s->arena[role]));
  at = s->arena[role];
  qn_try(qn_try_allocate(&piece, done, "numbers"));
  fill(s, role, done / size, piece);
  qn_status status = qn_memory_write(s->exec.device, s->exec.stream, at, piece, done);
  qn_release(piece);
  for (size_t n; status == QN_OK && done < all; done += n) {
    n = all - done < done ? all - done : done;
    status = qn_memory_copy(s->exec.device, s->exec.stream, at + done, at, n);
  }
  return status;
}

static qn_status set_up(qn_tune_stage *s)
{
  qn_try(qn_try_allocate(&s->params, s->op->info.params_bytes, "parameters"));
  qn_try(qn_op_defaults(&s->op->info, s->params, s->op->info.params_bytes));
  s->exec.workspace = NULL;
  s->exec.workspace_bytes = qn_op_workspace_bytes(&s->op->info, s->params, SMALL);
  if (s->exec.workspace_bytes) qn_try(qn_memory_allocate(s->exec.device, s->exec.workspace_bytes, &s->exec.workspace));
  for (size_t role = 0; role < s->op->info.n_tensors; role++)
    if (given(s, role)) qn_try(fill_arena(s, role));
  return qn_stream_synchronize(s->exec.device, s->exec.stream);
}

qn_status qn_tune_stage_create(qn_tune_stage **stage, const qn_op *op, size_t row, const qn_exec *exec, uint64_t most)
{
  qn_tune_stage *s;
  *stage = NULL;
  qn_try(qn_try_allocate(&s, sizeof *s, "the stage"));
  *s = (qn_tune_stage){.op = op, .row = row, .exec = *exec, .most = most};
  const qn_status status = set_up(s);
  if (status != QN_OK) qn_tune_stage_destroy(&s);
  *stage = s;
  return status;
}

static void drop_small(qn_tune_stage *s)
{
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    (void)qn_memory_release(s->exec.device, s->small[role]);
    qn_release(s->first[role]);
    qn_release(s->want[role]);
    qn_release(s->got[role]);
    s->small[role] = s->first[role] = s->want[role] = s->got[role] = NULL;
  }
  s->has_small = false;
}

void qn_tune_stage_destroy(qn_tune_stage **stage)
{
  if (!stage || !*stage) return;
  qn_tune_stage *s = *stage;
  (void)qn_stream_synchronize(s->exec.device, s->exec.stream);
  drop_small(s);
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) (void)qn_memory_release(s->exec.device, s->arena[role]);
  (void)qn_memory_release(s->exec.device, s->exec.workspace);
  qn_release(s->params);
  qn_release(s);
  *stage = NULL;
}

/* ---- timed steps ---- */

void qn_tune_stage_take(qn_tune_stage *s, const qn_tune_cell *cell)
{
  s->shape[0] = (int64_t)cell->rows;
  s->shape[1] = (int64_t)cell->cols;
  s->strides[0] = (int64_t)pitch_of(cell->cols, cell->layout);
  s->strides[1] = 1;
  s->moved = (double)(cell->rows * cell->cols) * qn_bench_bytes(s->op, s->row, s->params);
  for (size_t role = 0; role < s->op->info.n_tensors; role++) {
    s->tensor[role] =
        (qn_tensor){s->arena[role], types_of(s)->tensor[role].dtype, 2, s->shape, s->strides, s->exec.device};
    s->list[role] = given(s, role) ? &s->tensor[role] : NULL;
  }
}

qn_status qn_tune_stage_step(qn_tune_stage *s, const qn_launch_shape *g)
{
  qn_try(force(g));
  return qn_op_step(&s->op->info, &s->exec, s->params, 1, s->list);
}

double qn_tune_stage_moved(const qn_tune_stage *s) { return s->moved; }

/* ---- proofs ---- */

/* The small tensors of one role at `base`; bands between them. */
static size_t place_small(const qn_tune_stage *s, size_t role, char *base, qn_device device, qn_tensor *tensors)
{
  size_t at = BAND;
  for (int k = 0; k < SMALL; k++) {
    tensors[k] = (qn_tensor){base ? base + at * bytes_of(s, role) : NULL,
                             types_of(s)->tensor[role].dtype,
                             2,
                             small_shape[k],
                             s->small_strides[k],
                             device};
    at += (size_t)(small_shape[k][0] * s->small_strides[k][0]) + BAND;
    at = (at + GAP - 1) / GAP * GAP;
  }
  return at;
}

static qn_status step_small(qn_tune_stage *s, const qn_exec *exec, char *const *base)
{
  qn_tensor tensors[QN_MAX_TENSORS][SMALL];
  const qn_tensor *list[QN_MAX_TENSORS] = {NULL};
  for (size_t role = 0; role < s->op->info.n_tensors; role++) {
    if (!given(s, role)) continue;
    place_small(s, role, base[role], exec->device, tensors[role]);
    list[role] = tensors[role];
  }
  return qn_op_step(&s->op->info, exec, s->params, SMALL, list);
}

/* By the tier that is the reference, serially. */
static qn_status step_reference(qn_tune_stage *s)
{
  const char *tier;
  char kept[16];
  qn_exec cpu = {.size = sizeof cpu, .workspace_bytes = s->exec.workspace_bytes};
  qn_try(qn_option_get("cpu", &tier));
  snprintf(kept, sizeof kept, "%s", tier);
  if (cpu.workspace_bytes) qn_try(qn_try_allocate(&cpu.workspace, cpu.workspace_bytes, "a workspace"));
  qn_status status = qn_option_set("cpu", "ref");
  if (status == QN_OK) status = step_small(s, &cpu, s->want);
  qn_release(cpu.workspace);
  const qn_status back = qn_option_set("cpu", kept);
  return status == QN_OK ? back : status;
}

static qn_status make_small(qn_tune_stage *s, qn_tune_layout layout)
{
  qn_tensor unused[SMALL];
  drop_small(s);
  s->small_layout = layout;
  for (int k = 0; k < SMALL; k++) {
    s->small_strides[k][0] = (int64_t)pitch_of((uint64_t)small_shape[k][1], layout);
    s->small_strides[k][1] = 1;
  }
  s->small_elements = place_small(s, 0, NULL, s->exec.device, unused);
  for (size_t role = 0; role < s->op->info.n_tensors; role++) {
    const size_t bytes = s->small_elements * bytes_of(s, role);
    if (!given(s, role)) continue;
    qn_try(qn_memory_allocate(s->exec.device, bytes, &s->small[role]));
    qn_try(qn_try_allocate(&s->first[role], bytes, "tensors"));
    qn_try(qn_try_allocate(&s->want[role], bytes, "tensors"));
    qn_try(qn_try_allocate(&s->got[role], bytes, "tensors"));
    fill(s, role, s->small_elements, s->first[role]);
    memcpy(s->want[role], s->first[role], bytes);
  }
  qn_try(step_reference(s));
  s->has_small = true;
  return QN_OK;
}

static void compare(const qn_tune_stage *s, char *why, size_t bytes)
{
  for (size_t role = 0; role < s->op->info.n_tensors && !*why; role++) {
    if (!given(s, role)) continue;
    const size_t at = qn_data_differ(types_of(s)->tensor[role].dtype, s->got[role], s->want[role], s->small_elements);
    if (at < s->small_elements)
      snprintf(why, bytes, "wrong: %s has other bits at element %zu of ragged rows", s->op->info.tensors[role].name,
               at);
  }
}

static qn_status run_small(qn_tune_stage *s, const qn_launch_shape *g, char *why, size_t bytes)
{
  char name[QN_LAUNCH_SHAPE_NAME];
  char *base[QN_MAX_TENSORS] = {NULL};
  for (size_t role = 0; role < s->op->info.n_tensors; role++) {
    if (!given(s, role)) continue;
    base[role] = s->small[role];
    qn_try(qn_memory_write(s->exec.device, s->exec.stream, base[role], s->first[role],
                           s->small_elements * bytes_of(s, role)));
  }
  qn_try(force(g));
  const qn_status ran = step_small(s, &s->exec, base);
  if (ran != QN_OK) return snprintf(why, bytes, "not possible: %.120s", qn_last_error()), QN_OK;
  qn_launch_shape_name(g, name);
  const char *took = qn_op_last_variant();
  if (strncmp(took, name, strlen(name)) != 0 || took[strlen(name)] != ' ')
    return snprintf(why, bytes, "not possible: %.100s takes its place", *took ? took : "another kernel"), QN_OK;
  for (size_t role = 0; role < s->op->info.n_tensors; role++)
    if (given(s, role))
      qn_try(qn_memory_read(s->exec.device, s->exec.stream, s->got[role], base[role],
                            s->small_elements * bytes_of(s, role)));
  compare(s, why, bytes);
  return QN_OK;
}

qn_status qn_tune_stage_prove(qn_tune_stage *s, qn_tune_layout layout, const qn_launch_shape *g, const char **why)
{
  for (size_t k = 0; k < s->n_proved; k++)
    if (s->proved[k].layout == layout && qn_launch_shape_equal(&s->proved[k].geometry, g))
      return *why = s->proved[k].why, QN_OK;
  if (s->n_proved == PROVED) s->n_proved = 0; /* more than there are: begin anew */
  if (!s->has_small || s->small_layout != layout) qn_try(make_small(s, layout));
  proof *p = &s->proved[s->n_proved];
  *p = (proof){.layout = layout, .geometry = *g};
  qn_try(run_small(s, g, p->why, sizeof p->why));
  s->n_proved++;
  *why = p->why;
  return QN_OK;
}
