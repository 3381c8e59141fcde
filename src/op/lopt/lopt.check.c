/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.check.c - for `quern check`, on the emulator: places past 2^32 elements, of the kernels of learned
 * optimizers that take elements one by one. A tensor of 65537 by 65537 has addresses, and memory where something lies:
 * at its end. The last two blocks of a launch over it must leave the bits that the same numbers in a tensor of one row
 * leave. */
#include "core/core.h"
#include "device/emulator/emulator.h"
#include "jit/jit.h"
#include "op/lopt/check.h"
#include "workbench/fill.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { SIDE = 65537, THREADS = 256, BLOCKS = 2, STATES = 3 };

/* Sums that a block leaves. */
static uint64_t totals_of(const qn_lopt_network *k) { return k->tiling->sums ? k->tiling->sums : k->elements; }

/* A tensor of `rows` by `length`, of which the last `used` elements hold numbers. */
typedef struct tensor {
  uint64_t rows, length, n, used, tasks;
  size_t bytes;
  char *memory;
  qn_lopt_device_item item;
} tensor;

static float *lay(tensor *t, uint64_t floats)
{
  float *at = (float *)(void *)(t->memory + t->bytes);
  t->bytes += (floats * sizeof *at + 255) / 256 * 256;
  return at;
}

/* Where all arrays lie; with no memory, how much there must be. */
static void lay_all(tensor *t, const qn_lopt_network *k)
{
  qn_lopt_device_item *it = &t->item;
  t->bytes = 0;
  t->n = t->rows * t->length;
  t->tasks = qn_lopt_ceiling(t->n, k->tiling->elements);
  *it = (qn_lopt_device_item){.n = t->n, .whole = t->n, .x = t->rows, .rows = t->rows, .length = t->length};
  it->strip = t->length, it->c = 1, it->flags = QN_LOPT_FACTORED | QN_LOPT_STRAIGHT, it->channels = k->elements;
  it->over_x.n = t->length, it->over_y.n = t->rows;
  it->g = lay(t, t->n), it->p = lay(t, t->n), it->v = lay(t, t->n), it->m = lay(t, STATES * t->n);
  it->over_x.root = lay(t, 4 * t->length), it->over_x.state = lay(t, STATES * t->length);
  it->over_x.table = lay(t, t->length * k->hidden), it->over_x.layer = lay(t, QN_LOPT_FACTOR_CHANNELS * k->hidden);
  it->over_y.root = lay(t, 4 * t->rows), it->over_y.table = lay(t, t->rows * k->hidden);
  it->layer = lay(t, QN_LOPT_MOST_INPUTS * k->hidden), it->weights = lay(t, QN_LOPT_SMALL_FC_WEIGHTS);
  it->scalars = (qn_lopt_scalars *)(void *)lay(t, sizeof *it->scalars);
  it->partial = (double *)(void *)lay(t, 2 * t->tasks * totals_of(k));
  if (k->hidden <= QN_LOPT_FACTOR_CHANNELS) it->over_x.layer = NULL; /* its table is used */
}

static bool open_tensor(tensor *t, const qn_lopt_network *k)
{
  lay_all(t, k);
  void *at = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  t->memory = at == MAP_FAILED ? NULL : at;
  if (t->memory) lay_all(t, k);
  return t->memory;
}

/* Numbers that depend on the array and on how far they are from its end. */
static void fill_end(float *array, uint64_t n, uint64_t used, uint64_t seed, bool positive)
{
  for (uint64_t k = 0; k < used; k++) {
    const double x = (double)(qn_seed_mix(seed, used - k) >> 40) / 0x1p23 - 1;
    array[n - used + k] = (float)(positive ? 0.5 + 0.4 * x : x);
  }
}

static void fill_all(tensor *t, const qn_lopt_network *k)
{
  qn_lopt_device_item *it = &t->item;
  const uint64_t n = t->n, used = t->used, last = t->length;
  fill_end((float *)(uintptr_t)it->g, n, used, 1, false), fill_end(it->p, n, used, 2, false);
  fill_end(it->v, n, used, 3, true);
  for (uint64_t d = 0; d < STATES; d++) {
    fill_end(it->m + d * n, n, used, 4 + d, false);
    fill_end(it->over_x.state + d * last, last, used, 7 + d, true);
  }
  fill_end(it->over_x.root, 4 * last, 4 * used, 10, true),
      fill_end(it->over_x.table, last * k->hidden, used * k->hidden, 11, false);
  fill_end(it->over_y.root, 4 * t->rows, 4, 12, true);
  fill_end(it->over_y.table, t->rows * k->hidden, k->hidden, 13, false);
  if (it->over_x.layer)
    fill_end(it->over_x.layer, QN_LOPT_FACTOR_CHANNELS * k->hidden, QN_LOPT_FACTOR_CHANNELS * k->hidden, 14, false);
  fill_end(it->layer, k->elements * k->hidden, k->elements * k->hidden, 15, false);
  fill_end((float *)(uintptr_t)it->weights, QN_LOPT_SMALL_FC_WEIGHTS, QN_LOPT_SMALL_FC_WEIGHTS, 16, false);
  *it->scalars = (qn_lopt_scalars){
      .of_gradient = 1, .step = 0.01f, .lr = 0.01f, .decay = 0.1f, .hidden_scale = 1, .output_scale = 1};
}

static qn_status find(const qn_lopt_network *k, bool updates, const qn_device_function **function)
{
  char phase[32];
  const char *const defines[] = {QN_LOPT_SET(0, 0, 0, 0, 0), "QN_LOPT_PRECISION=3", phase, NULL};
  snprintf(phase, sizeof phase, "QN_LOPT_PHASE=%d", updates);
  return qn_jit_function((qn_device){QN_EMULATOR, 0},
                         &(qn_unit){.source = k->tiling->source->elements, .defines = defines},
                         updates ? "lopt_element_update" : "lopt_element_stats", function);
}

/* The last two blocks of a phase. */
static qn_status run_end(const tensor *t, const qn_lopt_network *k, bool updates)
{
  static const qn_u32 zero;
  qn_lopt_head head = {.go = 1};
  qn_lopt_device_args args = {.items = &t->item, .first = &zero, .n = 1, .tasks = (qn_u32)t->tasks, .head = &head};
  const qn_device_function *function;
  qn_try(find(k, updates, &function));
  args.weights = t->item.weights, args.exp_mult = 0.1f, args.v = 0.9f, args.v_rest = 0.1f;
  for (int d = 0; d < STATES; d++) args.m[d] = 0.8f, args.m_rest[d] = 0.2f;
  const qn_launch launch = {.blocks = t->tasks, .threads = THREADS, .argument = &args, .argument_bytes = sizeof args};
  return qn_group_run(function, &launch, t->tasks - BLOCKS, t->tasks);
}

/* The last elements of two arrays. */
static bool same_end(const char *what, const float *far, uint64_t far_n, const float *near, uint64_t near_n,
                     uint64_t used, qn_trial *trial)
{
  trial->elements += used;
  for (uint64_t k = 1; k <= used; k++) {
    if (!memcmp(&far[far_n - k], &near[near_n - k], sizeof *far)) continue;
    qn_trial_fail(trial, -1, "%s of element %llu of %llu is %.9g, it must be %.9g", what,
                  (unsigned long long)(far_n - k), (unsigned long long)far_n, (double)far[far_n - k],
                  (double)near[near_n - k]);
    return false;
  }
  return true;
}

static qn_status compare(qn_trial *trial, const qn_lopt_network *k, const tensor *far, const tensor *near)
{
  const qn_lopt_device_item *a = &far->item, *b = &near->item;
  const uint64_t sums = 2 * BLOCKS * totals_of(k); /* of doubles, as floats */
  for (int updates = 0; updates < 2; updates++) {
    qn_try(run_end(far, k, updates));
    qn_try(run_end(near, k, updates));
  }
  if (!same_end("the sums", (const float *)(const void *)a->partial, 2 * far->tasks * totals_of(k),
                (const float *)(const void *)b->partial, 2 * near->tasks * totals_of(k), sums, trial))
    return QN_OK;
  const bool same = same_end("param", a->p, far->n, b->p, near->n, near->used, trial) &&
                    same_end("v", a->v, far->n, b->v, near->n, near->used, trial);
  for (uint64_t d = 0; d < STATES && same; d++)
    if (!same_end("m", a->m + d * far->n, far->n, b->m + d * near->n, near->n, near->used, trial)) break;
  return QN_OK;
}

void qn_lopt_check_far(qn_trial *trial, const qn_lopt_network *k)
{
  tensor far = {.rows = SIDE, .length = SIDE}, near = {.rows = 1};
  far.used = near.used = near.length = (uint64_t)SIDE * SIDE % k->tiling->elements + k->tiling->elements;
  if (qn_trial_takes(trial, 0)) {
    if (!open_tensor(&far, k) || !open_tensor(&near, k)) {
      qn_trial_skip(trial, "there are not so many addresses: %zu bytes: %s", far.bytes, strerror(errno));
    } else {
      fill_all(&far, k);
      fill_all(&near, k);
      if (compare(trial, k, &far, &near) != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
    }
  }
  if (far.memory) munmap(far.memory, far.bytes);
  if (near.memory) munmap(near.memory, near.bytes);
  qn_trial_note(trial, "%llu numbers at the end of %d by %d", (unsigned long long)trial->elements, SIDE, SIDE);
}

/* The processor has one class of precision. */
const char *qn_lopt_variation(qn_device_kind kind, size_t row, size_t k)
{
  static const char *const all[] = {"", "precision=fp32", NULL};
  (void)row;
  return kind == QN_CPU && k ? NULL : all[k];
}

void qn_lopt_small_fc_far(qn_trial *trial) { qn_lopt_check_far(trial, &qn_lopt_small_fc[0]); }

/* ---- the reference ---- */

/* Elements of a plane: a role whose extents are not the parameter's has planes as its first dimension, such as the
 * three decays; the rows of a per-list tensor are planes too. */
static size_t plane_of(const qn_call *call, size_t role, size_t k)
{
  const qn_tensor *t = &call->tensors[role][k];
  const size_t n = (size_t)qn_tensor_elements(t);
  const bool alike = call->op->info.tensors[role].single ? t->ndim < 2 : n == qn_tensor_elements(&call->tensors[0][k]);
  return n / (alike || !n ? 1 : (size_t)t->shape[0]);
}

static void allow_tensor(const qn_reference *r, size_t role, size_t k, qn_lopt_allowed_fn *allowed)
{
  const double *want = r->value[role][k], *was = r->was[role][k];
  const size_t n = (size_t)qn_tensor_elements(&r->call->tensors[role][k]), plane = plane_of(r->call, role, k);
  for (size_t from = 0; from < n; from += plane) {
    double wanted = 0, changed = 0;
    for (size_t i = from; i < from + plane; i++) {
      const double change = want[i] - was[i];
      wanted += isfinite(want[i]) ? want[i] * want[i] : 0;
      changed += isfinite(change) ? change * change : 0;
    }
    const double size = sqrt(wanted / (double)plane), moved = sqrt(changed / (double)plane);
    for (size_t i = from; i < from + plane; i++) r->allowed[role][k][i] = allowed(role, want[i], was[i], size, moved);
  }
}

void qn_lopt_allow(const qn_reference *r, qn_lopt_allowed_fn *allowed)
{
  for (size_t role = 0; role < r->call->op->info.n_tensors; role++)
    for (size_t k = 0; r->allowed[role] && k < qn_call_count(r->call, role); k++) allow_tensor(r, role, k, allowed);
}

qn_status qn_lopt_refer(const qn_op *op, const qn_reference *r)
{
  const qn_lopt_step step = qn_lopt_step_of(op, r->call->params);
  qn_try(qn_lopt_reference(&step, r->call->n, r->call->tensors[QN_LOPT_PARAM], r->value));
  qn_lopt_allow(r, qn_lopt_allowed);
  return QN_OK;
}
