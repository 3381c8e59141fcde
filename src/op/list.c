/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - the engine of element-wise ops: a list of tensors that validate.c found good, on the processor here, on
 * devices by device_list.c. The processor's work is cut at places that depend on the list alone, never on the number of
 * threads, and nothing is allocated. */
#include "op/call.h"
#include "core/core.h"
#include "op/launch_shape.h"
#include "op/view.h"
#include <string.h>

/* A unit is the smallest piece that the cut makes: a multiple of every tier's pack and of the elements that share a
 * block of random words. Tensors take whole units, so many tiny ones share a task and a huge one has many. */
enum { UNIT_ELEMENTS = 1024, TASK_UNITS = 16, MARKS = 512 };
/* Lists of so many bytes, over all tensors, leave little in the caches that a next pass could find; what is written
 * past them then costs a stream less. 2^21 elements of three f32 tensors, which `quern check` takes, are as many. */
enum { STREAM_BYTES = 3 << 23 };
/* What the calling thread does alone: to wake another one takes as long as up to so many elements of such lists do, and
 * milliseconds where the system lets it sleep on. PyTorch's own ops share from as many on. To begin a tensor costs as
 * much as some elements, and an element in double as much as several. */
enum { ALONE_ELEMENTS = 32768, TENSOR_ELEMENTS = 128, DOUBLE_ELEMENTS = 16 };

/* All tensors laid end to end in units. Every stride-th one's beginning is marked, so any unit is found by a search
 * among the marks and a short walk, and the map has one size whatever the list's length. */
typedef struct map {
  uint64_t units, elements, mark[MARKS];
  size_t stride, n_marks;
} map;

static uint64_t ceiling(uint64_t n, uint64_t of) { return n / of + (n % of != 0); }

/* How the tensors of a place are cut where they are walked by rows: a unit is a part of a row, or some short rows. */
typedef struct cut {
  qn_view view;
  uint64_t of_row; /* units in a row; 0: a unit is `rows` rows */
  uint64_t rows;
} cut;

static cut cut_of(const qn_list_run *run, size_t k)
{
  cut c = {.rows = 1};
  (void)qn_view_make(run->tensors, k, run->by_rows, &c.view); /* the check has made it */
  if (c.view.cols >= UNIT_ELEMENTS)
    c.of_row = ceiling(c.view.cols, UNIT_ELEMENTS);
  else if (c.view.cols)
    c.rows = UNIT_ELEMENTS / c.view.cols;
  return c;
}

static uint64_t units_of(const qn_list_run *run, size_t k)
{
  if (!run->strided && !run->by_rows) return ceiling(qn_tensor_elements(&run->tensors[0][k]), UNIT_ELEMENTS);
  const cut c = cut_of(run, k);
  return c.of_row ? c.view.rows * c.of_row : ceiling(c.view.rows, c.rows);
}

static void make_map(map *m, const qn_list_run *run)
{
  m->units = m->elements = m->n_marks = 0;
  m->stride = (run->n + MARKS - 1) / MARKS;
  for (size_t k = 0; k < run->n; k++) {
    if (k % m->stride == 0) m->mark[m->n_marks++] = m->units;
    m->units += units_of(run, k);
    m->elements += qn_tensor_elements(&run->tensors[0][k]);
  }
}

/* One phase on the processor, as its tasks see it. */
typedef struct phase {
  const qn_list_run *run;
  qn_cpu_fn *fn;
  qn_cpu_call call;
  uint64_t *tally; /* NULL: nothing is counted in this phase */
  map map;
} phase;

/* The tensor that a unit lies in, and the unit at which that tensor begins. */
static size_t find_tensor(const phase *p, uint64_t unit, uint64_t *begin)
{
  size_t low = 0, high = p->map.n_marks;
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    if (p->map.mark[middle] <= unit)
      low = middle;
    else
      high = middle;
  }
  size_t k = low * p->map.stride;
  *begin = p->map.mark[low];
  for (uint64_t units; *begin + (units = units_of(p->run, k)) <= unit; k++) *begin += units;
  return k;
}

/* All but the pointers: n elements of tensor k, the first of which is number `from`. */
static qn_piece make_piece(const phase *p, size_t k, uint64_t from, uint64_t n)
{
  const qn_list_run *run = p->run;
  return (qn_piece){.n = (size_t)n,
                    .first = from + (run->first_element ? run->first_element[k] : 0),
                    .tensor_id = (uint32_t)(run->tensor_id ? run->tensor_id[k] : k),
                    .place = (uint32_t)k,
                    .streams = p->call.streams,
                    .tally = p->tally ? p->tally + 2 * k : NULL};
}

/* Elements [from, to) of tensor k. */
static void run_piece(const phase *p, size_t k, uint64_t from, uint64_t to)
{
  const qn_list_run *run = p->run;
  qn_piece piece = make_piece(p, k, from, to - from);
  for (size_t role = 0; role < run->op->info.n_tensors; role++) {
    if (!run->tensors[role]) continue;
    const qn_tensor *t = &run->tensors[role][k];
    piece.data[role] = (char *)t->data + from * qn_dtype_bytes(t->dtype);
  }
  p->fn(&p->call, &piece);
}

/* Columns [from, to) of a row of tensor k. */
static void run_columns(const phase *p, size_t k, const qn_view *v, uint64_t row, uint64_t from, uint64_t to)
{
  const qn_list_run *run = p->run;
  qn_piece piece = make_piece(p, k, row * v->cols + from, to - from);
  piece.row = row;
  for (size_t role = 0; role < run->op->info.n_tensors; role++) {
    if (!run->tensors[role]) continue;
    const qn_tensor *t = &run->tensors[role][k];
    piece.data[role] =
        (char *)t->data + (size_t)(row * v->pitch[role] + from * v->step[role]) * qn_dtype_bytes(t->dtype);
    if (v->step[role] == 2) piece.step = v->step;
  }
  p->fn(&p->call, &piece);
}

/* ---- narrow rows: one kernel call for several, side by side in a buffer ---- */

/* Columns of a row at most; bytes of all roles' buffers, which lie on the caller's stack: a row of each fits. */
enum { NARROW = 128, BESIDE_BYTES = QN_MAX_TENSORS * NARROW * sizeof(double) };

/* The narrowest rows without a call for each. */
static inline void copy_row(char *to, const char *from, size_t bytes)
{
  switch (bytes) {
  case 2: memcpy(to, from, 2); break;
  case 4: memcpy(to, from, 4); break;
  case 8: memcpy(to, from, 8); break;
  case 16: memcpy(to, from, 16); break;
  case 32: memcpy(to, from, 32); break;
  case 64: memcpy(to, from, 64); break;
  default: memcpy(to, from, bytes);
  }
}

/* Copies rows of a role to the buffer or from it. */
static void move_rows(const qn_tensor *t, const qn_view *v, size_t role, uint64_t row, uint64_t rows, char *buffer,
                      bool to_buffer)
{
  const size_t width = qn_dtype_bytes(t->dtype), bytes = (size_t)v->cols * width;
  for (uint64_t r = 0; r < rows; r++, buffer += bytes) {
    char *at = (char *)t->data + (size_t)((row + r) * v->pitch[role]) * width;
    copy_row(to_buffer ? buffer : at, to_buffer ? at : buffer, bytes);
  }
}

/* Are there narrow rows whose columns lie side by side and whose number does not count? */
static bool is_narrow(const qn_list_run *run, const qn_view *v)
{
  bool steps = false;
  for (size_t role = 0; role < run->op->info.n_tensors; role++) steps |= run->tensors[role] && v->step[role] != 1;
  return !run->by_rows && !steps && v->cols <= NARROW;
}

/* Apart, so that its buffer is on the stack for narrow rows alone. */
static __attribute__((noinline)) void run_narrow(const phase *p, size_t k, const qn_view *v, uint64_t row, uint64_t end)
{
  const qn_list_run *run = p->run;
  const qn_op_types *types = &run->op->info.types[run->row];
  _Alignas(64) char all[BESIDE_BYTES], *buffer[QN_MAX_TENSORS];
  const size_t each = BESIDE_BYTES / run->op->info.n_tensors / 64 * 64;
  size_t widest = 1;
  for (size_t role = 0; role < run->op->info.n_tensors; role++) {
    const size_t bytes = run->tensors[role] ? qn_dtype_bytes(run->tensors[role][k].dtype) : 0;
    if (bytes > widest) widest = bytes;
    buffer[role] = all + role * each;
  }
  const uint64_t fit = each / (v->cols * widest);
  for (uint64_t rows; row < end; row += rows) {
    rows = fit < end - row ? fit : end - row;
    qn_piece piece = make_piece(p, k, row * v->cols, rows * v->cols);
    piece.streams = false;
    for (size_t role = 0; role < run->op->info.n_tensors; role++) {
      if (!run->tensors[role]) continue;
      piece.data[role] = buffer[role];
      if (types->tensor[role].access & QN_READ)
        move_rows(&run->tensors[role][k], v, role, row, rows, buffer[role], true);
    }
    p->fn(&p->call, &piece);
    for (size_t role = 0; role < run->op->info.n_tensors; role++)
      if (run->tensors[role] && types->tensor[role].access != QN_READ)
        move_rows(&run->tensors[role][k], v, role, row, rows, buffer[role], false);
  }
}

/* Units [unit, end) of tensor k, row by row. */
static void run_rows(const phase *p, size_t k, uint64_t unit, uint64_t end)
{
  const cut c = cut_of(p->run, k);
  const qn_view *v = &c.view;
  if (!c.of_row && is_narrow(p->run, v)) {
    run_narrow(p, k, v, unit * c.rows, end * c.rows < v->rows ? end * c.rows : v->rows);
    return;
  }
  if (!c.of_row) {
    for (uint64_t row = unit * c.rows; row < end * c.rows && row < v->rows; row++)
      run_columns(p, k, v, row, 0, v->cols);
    return;
  }
  while (unit < end) {
    const uint64_t row = unit / c.of_row, part = unit % c.of_row, left = end - unit;
    const uint64_t last = c.of_row - part < left ? c.of_row : part + left;
    const uint64_t to = last * UNIT_ELEMENTS < v->cols ? last * UNIT_ELEMENTS : v->cols;
    run_columns(p, k, v, row, part * UNIT_ELEMENTS, to);
    unit += last - part;
  }
}

static void run_task(void *user, size_t task)
{
  const phase *p = user;
  uint64_t unit = (uint64_t)task * TASK_UNITS, begin;
  const uint64_t end = unit + TASK_UNITS < p->map.units ? unit + TASK_UNITS : p->map.units;
  for (size_t k = find_tensor(p, unit, &begin); unit < end; k++) {
    const uint64_t n = qn_tensor_elements(&p->run->tensors[0][k]), units = units_of(p->run, k);
    if (units) {
      const uint64_t last = begin + units < end ? begin + units : end;
      const uint64_t to = (last - begin) * UNIT_ELEMENTS;
      if (p->run->strided || p->run->by_rows)
        run_rows(p, k, unit - begin, last - begin);
      else
        run_piece(p, k, (unit - begin) * UNIT_ELEMENTS, to < n ? to : n);
      unit = last;
    }
    begin += units;
  }
}

/* Of an element, in all tensors that are given. */
static size_t row_bytes(const qn_list_run *run)
{
  const qn_op_types *types = &run->op->info.types[run->row];
  size_t bytes = 0;
  for (size_t r = 0; r < run->op->info.n_tensors; r++) bytes += qn_dtype_bytes(types->tensor[r].dtype);
  return bytes ? bytes : 1;
}

static qn_status choose(const qn_op *op, size_t row, qn_cpu_fn **fn)
{
  const void *table[QN_TIER_COUNT];
  qn_tier tier;
  for (size_t k = 0; k < QN_TIER_COUNT; k++) table[k] = op->cpu[k] ? op : NULL;
  qn_try(qn_tier_choose(table, &tier));
  if (qn_op_row_is_double(&op->info, row)) {
    *fn = op->cpu[QN_TIER_ORACLE];
    qn_variant_note(qn_tier_name(QN_TIER_ORACLE), "float64 is computed by the formula in double");
    return QN_OK;
  }
  *fn = op->cpu[tier];
  qn_variant_note(qn_tier_name(tier), "the processor's best that is allowed");
  return QN_OK;
}

static qn_status run_on_cpu(const qn_list_run *run, qn_call_mode mode)
{
  phase p = {.run = run, .call = {.row = run->row, .flags = run->flags, .coef = run->coef}};
  qn_try(choose(run->op, run->row, &p.fn));
  if (mode == QN_CALL_PREPARE) return QN_OK;
  if (run->tally) memset(run->tally, 0, 2 * run->n * sizeof *run->tally);
  make_map(&p.map, run);
  p.call.streams = p.map.units * UNIT_ELEMENTS >= STREAM_BYTES / row_bytes(run);
  const size_t tasks = (size_t)((p.map.units + TASK_UNITS - 1) / TASK_UNITS);
  const uint64_t each = qn_op_row_is_double(&run->op->info, run->row) ? DOUBLE_ELEMENTS : 1;
  qn_pool *const pool = each * p.map.elements + TENSOR_ELEMENTS * run->n > ALONE_ELEMENTS ? run->exec->pool : NULL;
  const int phases = run->count_only ? 1 : run->phases;
  for (; p.call.phase < phases; p.call.phase++) {
    p.tally = run->count_only || p.call.phase + 1 < run->phases ? run->tally : NULL;
    qn_pool_run(pool, tasks, run_task, &p);
  }
  return QN_OK;
}

/* ---- one call ---- */
static const uint64_t *host_array(const void *params, size_t offset)
{
  const uint64_t *array = NULL;
  if (offset) memcpy(&array, (const char *)params + offset - 1, sizeof array);
  return array;
}

static int phases_of(const qn_op *op, const void *params) { return op->phases ? op->phases(params) : 1; }

static size_t workspace(const qn_call *call)
{
  if (phases_of(call->op, call->params) < 2) return 0;
  return call->n > SIZE_MAX / 16 ? SIZE_MAX : 16 * call->n;
}

static qn_status run(const qn_call *call)
{
  const qn_op *op = call->op;
  _Alignas(16) char coef[QN_COEF_BYTES];
  if (!call->n) return QN_OK;
  qn_list_run run = {.op = op,
                     .exec = call->exec,
                     .row = call->row,
                     .flags = op->flags ? op->flags(call->params, call->row) : 0,
                     .phases = phases_of(op, call->params),
                     .count_only = call->mode == QN_CALL_COUNT,
                     .coef = coef,
                     .n = call->n,
                     .tensors = call->tensors,
                     .first_element = host_array(call->params, op->first_element_offset),
                     .tensor_id = host_array(call->params, op->tensor_id_offset),
                     .strided = call->strided,
                     .by_rows = qn_call_by_rows(call),
                     .kept = call->kept,
                     .moved = call->moved};
  op->coefficients(call->params, coef);
  if (run.phases > 1) {
    run.tally = call->mode == QN_CALL_COUNT ? (uint64_t *)call->counts : call->exec->workspace;
    memcpy(coef + op->tally_offset - 1, &run.tally, sizeof run.tally);
  }
  if (call->exec->device.kind == QN_CPU) return run_on_cpu(&run, call->mode);
  return call->mode == QN_CALL_PREPARE ? qn_device_list_prepare(&run) : qn_device_list_step(&run);
}

const qn_engine qn_elementwise = {.workspace = workspace,
                                  .run = run,
                                  .option = "launch_shape",
                                  .check_option = qn_launch_shape_check,
                                  .variant = qn_list_variant_name,
                                  .refuses = qn_list_refuses,
                                  .choice = qn_list_choice,
                                  .key = qn_list_tune_key,
                                  .facts = qn_device_list_facts};
