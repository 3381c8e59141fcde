/* SPDX-License-Identifier: Apache-2.0 */
/* folder_bind.c - from a folder and what is known of a launch to numbers: storage types, extents, template values, grid
 * and threadgroup. No memory is taken and nothing runs. */
#include "core/core.h"
#include "kernel/call.h"
#include "kernel/folder.h"
#include <stdio.h>
#include <string.h>

static const qn_folder_tensor *is_of(const qn_binding *b, size_t k) { return &b->folder->tensor[k]; }
static size_t count_of(const qn_binding *b) { return b->folder->n_inputs + b->folder->n_outputs; }

/* ---- names ---- */
static int64_t *find_name(qn_binding *b, const char *name)
{
  for (size_t k = 0; k < b->n_names; k++)
    if (!strcmp(b->name[k].name, name)) return &b->name[k].value;
  return NULL;
}

qn_status qn_bind_name(qn_binding *b, const char *name, int64_t value)
{
  int64_t *at = find_name(b, name);
  qn_require(at || b->n_names < QN_BINDING_NAMES, "kernel %s: more than %d names", b->folder->name, QN_BINDING_NAMES);
  if (at)
    *at = value;
  else
    b->name[b->n_names++] = (qn_name){name, value};
  return QN_OK;
}

qn_status qn_bound_compute(const qn_binding *b, const char *member, const char *name, const char *text, int64_t *value)
{
  char why[400];
  if (qn_expression(text, b->name, b->n_names, value) == QN_OK) return QN_OK;
  snprintf(why, sizeof why, "%s", qn_last_error());
  return qn_fail(QN_BAD_ARGUMENT, "kernel %s: %s%s%s: %s", b->folder->name, member, *name ? "." : "", name, why);
}

void qn_bind_begin(qn_binding *b, const qn_folder *folder, const qn_folder_body *body)
{
  memset(b, 0, sizeof *b);
  b->folder = folder;
  b->body = body;
  b->call = (qn_kernel_call){.size = sizeof b->call,
                             .inputs = b->tensor,
                             .outputs = b->tensor + folder->n_inputs,
                             .n_templates = body->n_templates,
                             .templates = b->templates};
  for (size_t k = 0; k < count_of(b); k++) b->tensor[k].shape = b->shape[k];
  for (size_t k = 0; k < folder->n_outputs; k++) {
    const qn_folder_tensor *is = is_of(b, folder->n_inputs + k);
    b->init[k] = is->init;
    b->stored_in[k] = is->stored_in;
    if (is->init.kind != QN_VALUE_NONE) b->call.init = b->init;
    if (is->stored_in >= 0) b->call.stored_in = b->stored_in;
  }
}

/* ---- storage types ---- */
qn_status qn_bind_type(qn_binding *b, size_t k, qn_dtype wanted)
{
  const qn_folder_tensor *is = is_of(b, k);
  qn_dtype *dtype = &b->tensor[k].dtype;
  if (is->dtype_of >= 0) {
    *dtype = b->tensor[is->dtype_of].dtype;
    if (!wanted || wanted == *dtype) return QN_OK;
    return qn_fail(QN_BAD_TYPE, "kernel %s: %s is %s, its contract wants the type of %s, which is %s", b->folder->name,
                   is->name, qn_dtype_name(wanted), is_of(b, (size_t)is->dtype_of)->name, qn_dtype_name(*dtype));
  }
  *dtype = wanted ? wanted : is->dtype[0];
  qn_text all = {0};
  for (size_t j = 0; j < is->n_dtypes; j++) {
    if (is->dtype[j] == *dtype) {
      qn_text_free(&all);
      return QN_OK;
    }
    qn_text_add(&all, "%s%s", j ? "|" : "", qn_dtype_name(is->dtype[j]));
  }
  qn_status status = qn_fail(QN_BAD_TYPE, "kernel %s: %s is %s, its contract wants %s", b->folder->name, is->name,
                             qn_dtype_name(*dtype), all.at ? all.at : "another");
  qn_text_free(&all);
  return status;
}

/* ---- extents ---- */
qn_status qn_bind_shape(qn_binding *b, size_t k, int ndim, const int64_t *shape)
{
  const qn_folder_tensor *is = is_of(b, k);
  const int leading = ndim - is->ndim;
  qn_require(leading == 0 || (leading > 0 && is->leading && ndim <= QN_MAX_NDIM),
             "kernel %s: %s has %d dimension%s, its contract \"%s\" wants %d%s", b->folder->name, is->name, ndim,
             ndim == 1 ? "" : "s", is->text, is->ndim, is->leading ? " or more" : "");
  b->given |= UINT64_C(1) << k;
  b->tensor[k].ndim = ndim;
  for (int d = 0; d < ndim; d++) b->shape[k][d] = shape[d];
  if (is->leading && !b->learned_leading) {
    b->learned_leading = true;
    b->n_leading = leading;
    b->leading = b->shape[k];
  }
  for (size_t e = 0; e < b->folder->n_extents; e++)
    for (int d = 0; d < is->ndim && !(b->learned >> e & 1); d++) {
      if (strcmp(b->folder->extent[e], is->extent[d]) != 0) continue;
      b->learned |= UINT64_C(1) << e;
      qn_try(qn_bind_name(b, b->folder->extent[e], shape[leading + d]));
    }
  return QN_OK;
}

/* Of the tensors that are not given; those that are given are held against their contracts. */
static qn_status bind_extents(qn_binding *b, size_t k)
{
  const qn_folder_tensor *is = is_of(b, k);
  const bool given = b->given >> k & 1;
  const int leading = given ? b->tensor[k].ndim - is->ndim : is->leading ? b->n_leading : 0;
  int64_t extent;
  for (int d = 0; d < leading && !given; d++) b->shape[k][d] = b->leading[d];
  for (int d = 0; d < is->ndim; d++) {
    int64_t *at = &b->shape[k][leading + d];
    qn_try(qn_bound_compute(b, is->output ? "outputs" : "inputs", is->name, is->extent[d], &extent));
    qn_require(!given || *at == extent, "kernel %s: extent %d of %s is %lld, its contract \"%s\" makes it %lld",
               b->folder->name, leading + d + 1, is->name, (long long)*at, is->text, (long long)extent);
    *at = extent;
  }
  b->tensor[k].ndim = leading + is->ndim;
  for (int d = 0; d < b->tensor[k].ndim; d++)
    qn_require(b->shape[k][d] > 0, "kernel %s: extent %d of %s, %s, is %lld; it must be above 0", b->folder->name,
               d + 1, is->name, d < leading ? "..." : is->extent[d - leading], (long long)b->shape[k][d]);
  return QN_OK;
}

/* ---- templates ---- */
static qn_status bind_template(qn_binding *b, const qn_folder_template *t, qn_template *made)
{
  qn_value value = t->value;
  if (made->value.kind == QN_VALUE_DTYPE) return QN_OK; /* given */
  if (t->dtype_of >= 0) value = (qn_value){.kind = QN_VALUE_DTYPE, .dtype = b->tensor[t->dtype_of].dtype};
  if (b->reference && value.kind == QN_VALUE_DTYPE && qn_dtype_is_float(value.dtype)) value.dtype = QN_F64;
  if (value.kind != QN_VALUE_DTYPE) {
    const int64_t *bound = find_name(b, t->name);
    value.kind = t->expression ? QN_VALUE_INT : value.kind;
    if (bound)
      value.integer = value.kind == QN_VALUE_BOOL ? *bound != 0 : *bound;
    else if (t->expression)
      qn_try(qn_bound_compute(b, "templates", t->name, t->expression, &value.integer));
    qn_try(qn_bind_name(b, t->name, value.integer));
  }
  *made = (qn_template){t->name, value};
  return QN_OK;
}

/* ---- geometry ---- */
static qn_status bind_group(qn_binding *b, const uint32_t chosen[3])
{
  static const char *const names[] = {"threadgroup.x", "threadgroup.y", "threadgroup.z"};
  for (int d = 0; d < 3; d++) {
    int64_t value = chosen ? chosen[d] : 0;
    if (!value && b->body->group[0] && !(chosen && chosen[0]))
      qn_try(qn_bound_compute(b, "threadgroup", "", b->body->group[d], &value));
    qn_require(value >= 0 && value <= QN_KERNEL_MAX_GROUP,
               "kernel %s: threadgroup[%d] is %lld, it must be from 1 to %d", b->folder->name, d, (long long)value,
               QN_KERNEL_MAX_GROUP);
    b->call.group[d] = (uint32_t)value;
    qn_try(qn_bind_name(b, names[d], value));
  }
  return QN_OK;
}

qn_status qn_bind_body(qn_binding *b, const uint32_t group[3])
{
  const qn_folder *f = b->folder;
  int64_t value = 0;
  for (size_t k = 0; k < b->body->n_templates; k++) qn_try(bind_template(b, &b->body->templates[k], &b->templates[k]));
  qn_try(bind_group(b, group));
  for (size_t k = 0; k < count_of(b) && !b->reference; k++) qn_try(bind_extents(b, k));
  for (int d = 0; d < 3; d++) {
    qn_try(qn_bound_compute(b, "grid", "", b->body->grid[d], &value));
    qn_require(value >= 1, "kernel %s: grid[%d], %s, is %lld; it must be at least 1", f->name, d, b->body->grid[d],
               (long long)value);
    b->call.grid[d] = (uint64_t)value;
  }
  value = 0;
  if (f->shared_bytes && !b->reference) qn_try(qn_bound_compute(b, "shared_bytes", "", f->shared_bytes, &value));
  qn_require(value >= 0 && value <= INT32_MAX, "kernel %s: shared_bytes is %lld", f->name, (long long)value);
  b->call.shared_bytes = (size_t)value;
  return QN_OK;
}

qn_status qn_bind_bytes(qn_binding *b, size_t k)
{
  snprintf(b->name_text[k], sizeof b->name_text[k], "%.60s.bytes", is_of(b, k)->name);
  return qn_bind_name(b, b->name_text[k], (int64_t)qn_dtype_bytes(b->tensor[k].dtype));
}

qn_status qn_bind_rest(qn_binding *b, const uint32_t group[3])
{
  const qn_folder *f = b->folder;
  for (size_t k = f->n_inputs; k < count_of(b); k++) qn_try(qn_bind_type(b, k, QN_NONE));
  for (size_t k = 0; k < count_of(b); k++) qn_try(qn_bind_bytes(b, k));
  for (size_t e = 0; e < f->n_extents; e++)
    qn_require(find_name(b, f->extent[e]),
               "kernel %s: the extent %s has no value: no input has it; --set %s=NUMBER gives it one", f->name,
               f->extent[e], f->extent[e]);
  return qn_bind_body(b, group);
}

/* ---- a plain value ---- */
qn_status qn_bound_scalar(const qn_binding *b, size_t input, unsigned char element[8])
{
  const qn_folder_tensor *is = is_of(b, input);
  qn_value value = is->scalar_value;
  if (is->scalar_text) {
    value.kind = QN_VALUE_INT;
    qn_try(qn_bound_compute(b, "scalars", is->name, is->scalar_text, &value.integer));
  }
  return qn_value_store(&value, b->tensor[input].dtype, b->folder->name, "value", is->name, element);
}
