/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_case.c - see kernel_case.h. Memory, numbers, and the library's call; kernel_bind.c says of what size. */
#include "workbench/kernel_case.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/kernel_fill.h"
#include <stdio.h>
#include <string.h>

enum { PATTERN = 0xa5 };

static size_t width_of(const qn_array *a) { return qn_dtype_bytes(a->dtype); }
static size_t span_bytes(const qn_array *a) { return a->span * width_of(a); }
static size_t block_bytes(const qn_array *a) { return span_bytes(a) + 2 * QN_GUARD; }
static bool on_host(const qn_kernel_case *c) { return c->exec.device.kind != QN_CUDA; }

/* The input whose memory an output takes, or itself. */
static qn_array *home_of(qn_kernel_case *c, qn_array *a)
{
  return a->is->output && a->is->stored_in >= 0 ? &c->array[a->is->stored_in] : a;
}

static bool is_overwritten(const qn_kernel_case *c, size_t input)
{
  for (size_t k = 0; k < c->n_outputs; k++)
    if (c->bound.stored_in[k] == (int)input) return true;
  return false;
}

static unsigned char *base_of(const qn_array *a) { return a->block + QN_GUARD; } /* of the span */

/* ---- places of elements ---- */
/* From the span's beginning, in elements. */
static size_t offset_of(const qn_array *a, size_t k)
{
  if (!a->strided) return k;
  int64_t offset = (int64_t)a->origin;
  for (int d = a->ndim - 1; d >= 0; d--) {
    offset += (int64_t)(k % (size_t)a->shape[d]) * a->strides[d];
    k /= (size_t)a->shape[d];
  }
  return (size_t)offset;
}

const unsigned char *qn_array_at(const qn_array *a, size_t k) { return base_of(a) + offset_of(a, k) * width_of(a); }

void qn_array_place(const qn_array *a, size_t k, char *text, size_t bytes)
{
  size_t index[QN_CASE_DIMS], used = 0;
  for (int d = a->ndim - 1; d >= 0; d--) {
    index[d] = k % (size_t)a->shape[d];
    k /= (size_t)a->shape[d];
  }
  snprintf(text, bytes, "[");
  for (int d = 0; d < a->ndim; d++) {
    used = strlen(text);
    snprintf(text + used, bytes - used, "%s%zu", d ? ", " : "", index[d]);
  }
  used = strlen(text);
  snprintf(text + used, bytes - used, "]");
}

/* The order of dimensions turned round, and every other element a hole. */
static void turn_round(qn_array *a)
{
  int64_t stride = 2;
  for (int d = 0; d < a->ndim; d++) {
    a->strides[d] = stride;
    stride *= a->shape[d];
  }
}

static void lay_out(qn_kernel_case *c, const qn_kernel_case_order *o)
{
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    const bool may = o && k < c->n_inputs && a->ndim && !is_overwritten(c, k);
    a->span = a->elements;
    a->strided = may && (a->is->laid_out || (o->strided && !a->is->dense));
    if (!a->strided) continue;
    if (a->is->laid_out)
      memcpy(a->strides, a->is->strides, sizeof a->is->strides);
    else
      turn_round(a);
    a->span = 1;
    a->origin = 0;
    for (int d = 0; d < a->ndim; d++) {
      const int64_t reach = (a->shape[d] - 1) * a->strides[d];
      a->span += (size_t)(reach < 0 ? -reach : reach);
      a->origin += (size_t)(reach < 0 ? -reach : 0);
    }
  }
}

/* ---- memory ---- */
static qn_status check_memory(const qn_kernel_case *c)
{
  qn_device_info info = {.size = sizeof info};
  double need = 0;
  qn_try(qn_device_query(c->exec.device, &info));
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) need += (double)block_bytes(&c->array[k]);
  if (info.free_bytes <= 0 || need < 0.97 * (double)info.free_bytes) return QN_OK;
  return qn_fail(QN_NO_MEMORY, "kernel %s takes %.2f GB here, %.2f GB are free: choose a smaller size", c->folder->name,
                 need * 1e-9, (double)info.free_bytes * 1e-9);
}

/* A block's host memory: of its own, or in the arena behind the blocks before. */
static qn_status take_block(qn_kernel_case *c, qn_array *a, unsigned char *arena)
{
  if (c->lent)
    a->block = arena + c->memory_bytes;
  else if (!c->foreign)
    a->block = qn_allocate_aligned(block_bytes(a), QN_GUARD);
  c->memory_bytes += (block_bytes(a) + QN_GUARD - 1) / QN_GUARD * QN_GUARD;
  if (!a->block && !c->foreign) return qn_fail(QN_NO_MEMORY, "%zu bytes for %s", block_bytes(a), a->is->name);
  if (a->block) a->data = base_of(a) + a->origin * width_of(a);
  if (!c->foreign) memset(a->block, PATTERN, block_bytes(a));
  return QN_OK;
}

static qn_status take_memory(qn_kernel_case *c, unsigned char *arena)
{
  c->lent = arena != NULL;
  if (!c->foreign) qn_try(check_memory(c));
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    if (home_of(c, a) != a) {
      qn_array *home = home_of(c, a);
      qn_require(home->dtype == a->dtype && home->elements == a->elements && !home->is->scalar,
                 "kernel %s: in_place.%s: %s has %zu elements of %s, %s %zu of %s", c->folder->name, a->is->name,
                 a->is->name, a->elements, qn_dtype_name(a->dtype), home->is->name, home->elements,
                 qn_dtype_name(home->dtype));
      a->block = home->block;
      a->data = home->data;
      a->memory = home->memory;
      continue;
    }
    qn_try(take_block(c, a, arena));
    a->memory = a->block;
    if (on_host(c) || a->is->scalar || !a->block) continue;
    a->memory = NULL;
    qn_try(qn_memory_allocate(c->exec.device, block_bytes(a), &a->memory));
  }
  return QN_OK;
}

/* ---- numbers ---- */
static void scatter(qn_array *a, const unsigned char *dense)
{
  const size_t width = width_of(a);
  if (!a->strided) {
    memcpy(a->data, dense, a->elements * width);
    return;
  }
  for (size_t k = 0; k < a->elements; k++) memcpy(base_of(a) + offset_of(a, k) * width, dense + k * width, width);
}

static const char *rule_of(const qn_kernel_case *c, const qn_kernel_case_order *o, const qn_array *a)
{
  const qn_json *own = o->size ? qn_json_get(o->size->fill, a->is->name) : NULL;
  if (own) return qn_json_string(own) ? qn_json_string(own) : "?";
  if (a->is->n_fills) return a->is->fill[o->fill % a->is->n_fills];
  (void)c;
  return qn_rule_default(a->dtype);
}

static qn_status fill_input(qn_kernel_case *c, const qn_kernel_case_order *o, size_t k)
{
  qn_array *a = &c->array[k];
  qn_filler f = {.dtype = a->dtype, .seed = o->seed, .role = k, .ndim = a->ndim, .shape = a->shape};
  unsigned char *dense = a->data;
  qn_status status = qn_rule_read(rule_of(c, o, a), &f.rule);
  if (status == QN_OK && f.rule.expression)
    status = qn_expression(f.rule.expression, c->bound.name, c->bound.n_names, &f.below);
  if (status == QN_OK && a->strided) status = qn_try_allocate(&dense, a->elements * width_of(a), "an input");
  if (status == QN_OK) status = qn_fill_array(&f, o->pool, dense);
  if (status == QN_OK && a->strided) scatter(a, dense);
  if (dense != a->data) qn_release(dense);
  if (status != QN_BAD_ARGUMENT) return status;
  char why[400];
  snprintf(why, sizeof why, "%s", qn_last_error());
  return qn_fail(status, "kernel %s: fill.%s: %s", c->folder->name, a->is->name, why);
}

static qn_status set_scalar(qn_kernel_case *c, qn_array *a)
{
  unsigned char element[8];
  qn_try(qn_bound_scalar(&c->bound, (size_t)(a - c->array), element));
  memcpy(a->data, element, width_of(a));
  return QN_OK;
}

static qn_status make_numbers(qn_kernel_case *c, const qn_kernel_case_order *o)
{
  for (size_t k = 0; k < c->n_inputs; k++) {
    qn_array *a = &c->array[k];
    const qn_file_array *given = qn_arrays_find(o->given, a->is->name);
    if (given)
      scatter(a, given->data);
    else if (a->is->scalar)
      qn_try(set_scalar(c, a));
    else
      qn_try(fill_input(c, o, k));
    if (!o->keep && !is_overwritten(c, k)) continue;
    qn_try(qn_try_allocate(&a->was, span_bytes(a), "an input's copy"));
    memcpy(a->was, base_of(a), span_bytes(a));
  }
  return QN_OK;
}

/* ---- the library's side ---- */
static qn_status create_kernel(qn_kernel_case *c)
{
  qn_folder_source made;
  qn_status status = qn_folder_source_make(&made, c->folder, c->body, &c->bound);
  if (c->reference) made.source.math = QN_MATH_SAFE;
  if (c->reference) made.source.contracts = NULL;
  if (status == QN_OK) status = qn_kernel_create(&c->kernel, &made.source);
  qn_folder_source_free(&made);
  return status;
}

static void fill_call(qn_kernel_case *c)
{
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    const bool host = on_host(c) || a->is->scalar;
    c->tensor[k] = (qn_tensor){.data = host || !a->memory ? a->data : (unsigned char *)a->memory + (a->data - a->block),
                               .dtype = a->dtype,
                               .ndim = a->ndim,
                               .shape = a->shape,
                               .strides = a->strided ? a->strides : NULL,
                               .device = a->is->scalar ? (qn_device){QN_CPU, 0} : c->exec.device};
  }
  c->call.inputs = c->tensor;
  c->call.outputs = c->tensor + c->n_inputs;
}

static qn_status take_workspace(qn_kernel_case *c)
{
  size_t bytes = 0;
  bool strided = false;
  for (size_t k = 0; k < c->n_inputs; k++) strided = strided || c->array[k].strided;
  if (!strided) return QN_OK;
  qn_try(qn_kernel_workspace_bytes(c->kernel, &c->call, &bytes));
  if (bytes) qn_try(qn_memory_allocate(c->exec.device, bytes, &c->exec.workspace));
  c->exec.workspace_bytes = bytes;
  return QN_OK;
}

static qn_status finish(qn_kernel_case *c)
{
  qn_try(create_kernel(c));
  fill_call(c);
  if (c->foreign && !c->lent) return QN_OK;
  qn_try(take_workspace(c));
  return c->foreign ? QN_OK : qn_kernel_case_reset(c, 0xff);
}

static qn_status allocate(qn_kernel_case **made, const qn_folder *folder, qn_device device, qn_pool *pool)
{
  qn_kernel_case *c = *made = qn_allocate_zero(1, sizeof *c);
  if (!c) return qn_fail(QN_NO_MEMORY, "a launch of kernel %s", folder->name);
  c->folder = folder;
  c->body = &folder->body;
  c->exec = (qn_exec){.size = sizeof c->exec, .device = device, .pool = pool};
  return QN_OK;
}

qn_status qn_kernel_case_create(qn_kernel_case **made, const qn_kernel_case_order *order)
{
  qn_try(allocate(made, order->folder, order->device, order->pool));
  qn_kernel_case *c = *made;
  c->foreign = order->foreign;
  qn_status status = qn_kernel_case_bind(c, order);
  lay_out(c, order);
  if (status == QN_OK) status = qn_stream_create(order->device, &c->stream);
  c->exec.stream = c->stream;
  if (status == QN_OK) status = take_memory(c, order->arena);
  if (status == QN_OK && !c->foreign) status = make_numbers(c, order);
  if (status == QN_OK) status = finish(c);
  if (status != QN_OK) qn_kernel_case_destroy(made);
  return status;
}

/* The same numbers: every float type's are exact in f64. */
static qn_status copy_numbers(qn_kernel_case *c, const qn_kernel_case *of)
{
  for (size_t k = 0; k < c->n_inputs; k++) {
    qn_array *a = &c->array[k];
    const qn_array *from = &of->array[k];
    const unsigned char *base = from->was ? from->was : base_of(from); /* as it was before any launch */
    for (size_t e = 0; e < a->elements; e++) {
      const unsigned char *at = base + offset_of(from, e) * width_of(from);
      if (a->dtype == from->dtype)
        memcpy(a->data + e * width_of(a), at, width_of(a));
      else
        qn_number_store(a->dtype, a->data + e * width_of(a), qn_number_load(from->dtype, at));
    }
    if (!is_overwritten(c, k)) continue;
    qn_try(qn_try_allocate(&a->was, span_bytes(a), "an input's copy"));
    memcpy(a->was, base_of(a), span_bytes(a));
  }
  return QN_OK;
}

qn_status qn_kernel_case_reference(const qn_kernel_case *of, qn_kernel_case **made)
{
  qn_try(allocate(made, of->folder, (qn_device){QN_CPU, 0}, of->exec.pool));
  qn_kernel_case *c = *made;
  c->reference = true;
  c->body = &of->folder->reference;
  qn_status status = qn_kernel_case_bind_reference(c, of);
  lay_out(c, NULL);
  if (status == QN_OK) status = take_memory(c, NULL);
  if (status == QN_OK) status = copy_numbers(c, of);
  if (status == QN_OK) status = finish(c);
  if (status == QN_OK) status = qn_kernel_case_launch(c);
  if (status == QN_OK) status = qn_kernel_case_fetch(c);
  if (status != QN_OK) qn_kernel_case_destroy(made);
  return status;
}

void qn_kernel_case_destroy(qn_kernel_case **made)
{
  qn_kernel_case *c = *made;
  *made = NULL;
  if (!c) return;
  qn_kernel_destroy(&c->kernel);
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    if (home_of(c, a) != a) continue;
    if (a->memory != a->block) (void)qn_memory_release(c->exec.device, a->memory);
    if (!c->lent) qn_release(a->block);
    qn_release(a->was);
  }
  (void)qn_memory_release(c->exec.device, c->exec.workspace);
  (void)qn_stream_destroy(c->exec.device, &c->stream);
  qn_release(c);
}

/* ---- launching ---- */
qn_status qn_kernel_case_reset(qn_kernel_case *c, unsigned char poison)
{
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    if (home_of(c, a) != a) continue;
    if (a->is->output) memset(base_of(a), poison, span_bytes(a));
    if (a->was) memcpy(base_of(a), a->was, span_bytes(a));
    memset(a->block, PATTERN, QN_GUARD);
    memset(base_of(a) + span_bytes(a), PATTERN, QN_GUARD);
  }
  return qn_kernel_case_load(c);
}

qn_status qn_kernel_case_load(qn_kernel_case *c)
{
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    if (home_of(c, a) != a || a->memory == a->block) continue;
    qn_try(qn_memory_write(c->exec.device, c->exec.stream, a->memory, a->block, block_bytes(a)));
  }
  return QN_OK;
}

qn_status qn_kernel_case_launch(qn_kernel_case *c) { return qn_kernel_launch(c->kernel, &c->exec, &c->call); }

qn_status qn_kernel_case_fetch(qn_kernel_case *c)
{
  qn_try(qn_stream_synchronize(c->exec.device, c->exec.stream));
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    if (home_of(c, a) != a || a->memory == a->block) continue;
    if (a->is->output || a->was || c->foreign)
      qn_try(qn_memory_read(c->exec.device, c->exec.stream, a->block, a->memory, block_bytes(a)));
  }
  return QN_OK;
}

qn_status qn_kernel_case_run(qn_kernel_case *c, unsigned char poison)
{
  qn_try(qn_kernel_case_reset(c, poison));
  qn_try(qn_kernel_case_launch(c));
  return qn_kernel_case_fetch(c);
}

static bool guard_holds(const unsigned char *guard)
{
  for (size_t k = 0; k < QN_GUARD; k++)
    if (guard[k] != PATTERN) return false;
  return true;
}

bool qn_kernel_case_intact(const qn_kernel_case *c, char *text, size_t bytes)
{
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    const qn_array *a = &c->array[k];
    const char *name = a->is->name;
    if (a->is->output && a->is->stored_in >= 0) continue;
    const bool before = !guard_holds(a->block), behind = !guard_holds(base_of(a) + span_bytes(a));
    if (before || behind) {
      snprintf(text, bytes, "it wrote to memory %s %s, which is nobody's", before ? "before" : "behind", name);
      return false;
    }
    if (a->is->output || !a->was || is_overwritten(c, k) || !memcmp(base_of(a), a->was, span_bytes(a))) continue;
    snprintf(text, bytes, "it changed the input %s", name);
    return false;
  }
  return true;
}

void qn_kernel_case_text(const qn_kernel_case *c, char *text, size_t bytes)
{
  size_t used = 0;
  *text = 0;
  for (size_t k = 0; k < c->bound.n_names && used < bytes; k++) {
    if (strchr(c->bound.name[k].name, '.')) continue;
    snprintf(text + used, bytes - used, "%s%s=%lld", used ? " " : "", c->bound.name[k].name,
             (long long)c->bound.name[k].value);
    used = strlen(text);
  }
  for (size_t k = 0; k < c->n_inputs && used < bytes; k++) {
    if (c->array[k].is->n_dtypes < 2) continue;
    snprintf(text + used, bytes - used, "%s%s=%s", used ? " " : "", c->array[k].is->name,
             qn_dtype_name(c->array[k].dtype));
    used = strlen(text);
  }
}
