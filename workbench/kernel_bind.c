/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bind.c - from a folder and a size to numbers: storage types, extents, template values, grid and threadgroup.
 * No memory is taken and nothing runs. */
#include "core/core.h"
#include "workbench/kernel_case.h"
#include "workbench/fill.h"
#include <stdio.h>
#include <string.h>

/* ---- names ---- */
static int64_t *find_name(qn_kernel_case *c, const char *name)
{
  for (size_t k = 0; k < c->n_names; k++)
    if (!strcmp(c->name[k].name, name)) return &c->name[k].value;
  return NULL;
}

static qn_status bind_name(qn_kernel_case *c, const char *name, int64_t value)
{
  int64_t *at = find_name(c, name);
  qn_require(at || c->n_names < QN_CASE_NAMES, "kernel %s: more than %d names", c->folder->name, QN_CASE_NAMES);
  if (at)
    *at = value;
  else
    c->name[c->n_names++] = (qn_name){name, value};
  return QN_OK;
}

/* The sentence of a failed expression behind the folder's member. */
static qn_status within(const qn_kernel_case *c, const char *member, const char *name)
{
  char why[400];
  snprintf(why, sizeof why, "%s", qn_last_error());
  return qn_fail(QN_BAD_ARGUMENT, "kernel %s: %s%s%s: %s", c->folder->name, member, *name ? "." : "", name, why);
}

static qn_status compute(qn_kernel_case *c, const char *member, const char *name, const char *text, int64_t *value)
{
  return qn_expression(text, c->name, c->n_names, value) == QN_OK ? QN_OK : within(c, member, name);
}

static qn_status set_name(qn_kernel_case *c, const qn_name *set)
{
  const char *own;
  qn_try(qn_folder_set(c->folder, set, &own));
  return bind_name(c, own, set->value);
}

qn_status qn_kernel_workload(const qn_folder *f, const char *name, const qn_folder_size **size)
{
  const char *names[QN_FOLDER_MOST + 1] = {NULL};
  for (size_t k = 0; k < f->n_workloads; k++) {
    *size = &f->workload[k];
    names[k] = f->workload[k].name;
    if (!strcmp(names[k], name)) return QN_OK;
  }
  qn_text all = {0};
  for (size_t k = 0; k < f->n_workloads; k++) qn_text_add(&all, "%s%s", k ? ", " : "; there are ", names[k]);
  const char *near = qn_suggest(name, names);
  const qn_status status = qn_fail(QN_BAD_ARGUMENT, "kernel %s has no workload %s%s", f->name, name,
                                   *near                   ? near
                                   : all.at && !all.failed ? all.at
                                                           : "");
  qn_text_free(&all);
  return status;
}

/* ---- storage types ---- */
static qn_status bind_type(qn_kernel_case *c, const qn_kernel_case_order *o, size_t k)
{
  qn_array *a = &c->array[k];
  const qn_folder_tensor *is = a->is;
  const qn_file_array *given = is->output ? NULL : qn_arrays_find(o->given, is->name);
  qn_dtype wanted = given ? given->dtype : is->output ? QN_NONE : o->dtype[k];
  if (is->dtype_of >= 0) {
    a->dtype = c->array[is->dtype_of].dtype;
    qn_require(!wanted || wanted == a->dtype, "kernel %s: %s is %s, its contract wants the type of %s, which is %s",
               c->folder->name, is->name, qn_dtype_name(wanted), c->array[is->dtype_of].is->name,
               qn_dtype_name(a->dtype));
    return QN_OK;
  }
  a->dtype = wanted ? wanted : is->dtype[0];
  qn_text all = {0};
  for (size_t j = 0; j < is->n_dtypes; j++) {
    if (is->dtype[j] == a->dtype) {
      qn_text_free(&all);
      return QN_OK;
    }
    qn_text_add(&all, "%s%s", j ? "|" : "", qn_dtype_name(is->dtype[j]));
  }
  qn_status status = qn_fail(QN_BAD_ARGUMENT, "kernel %s: %s is %s, its contract wants %s", c->folder->name, is->name,
                             qn_dtype_name(a->dtype), all.at ? all.at : "another");
  qn_text_free(&all);
  return status;
}

/* ---- extents ---- */
/* What a given array says of its contract's bare names. */
static qn_status learn_extents(qn_kernel_case *c, const qn_array *a, const qn_file_array *given)
{
  const int leading = given->ndim - a->is->ndim;
  qn_require(leading == 0 || (leading > 0 && a->is->leading && leading <= QN_FOLDER_DIMS),
             "kernel %s: %s has %d extents, its contract wants %d", c->folder->name, a->is->name, given->ndim,
             a->is->ndim);
  for (int d = 0; d < a->is->ndim; d++) {
    const char *text = a->is->extent[d];
    if (!qn_is_bare_name(text)) continue;
    for (size_t e = 0; e < c->folder->n_extents; e++)
      if (!strcmp(c->folder->extent[e], text)) qn_try(bind_name(c, c->folder->extent[e], given->shape[leading + d]));
  }
  return QN_OK;
}

static qn_status bind_names(qn_kernel_case *c, const qn_kernel_case_order *o)
{
  const qn_folder *f = c->folder;
  for (size_t k = 0; k < o->n_tuned; k++) qn_try(bind_name(c, o->tuned[k].name, o->tuned[k].value));
  for (size_t k = 0; o->size && k < o->size->n; k++)
    qn_try(bind_name(c, o->size->value[k].name, o->size->value[k].value));
  for (size_t k = 0; k < f->n_inputs; k++) {
    const qn_file_array *given = qn_arrays_find(o->given, f->tensor[k].name);
    if (given) qn_try(learn_extents(c, &c->array[k], given));
  }
  for (size_t k = 0; k < o->n_set; k++) qn_try(set_name(c, &o->set[k]));
  for (size_t e = 0; e < f->n_extents; e++)
    qn_require(find_name(c, f->extent[e]), "kernel %s: the extent %s has no value; --set %s=NUMBER gives it one",
               f->name, f->extent[e], f->extent[e]);
  return QN_OK;
}

static qn_status bind_shape(qn_kernel_case *c, qn_array *a, int n_leading, const int64_t *leading)
{
  const qn_folder_tensor *is = a->is;
  const char *member = is->output ? "outputs" : "inputs";
  a->ndim = 0;
  for (int d = 0; is->leading && d < n_leading; d++) a->shape[a->ndim++] = leading[d];
  for (int d = 0; d < is->ndim; d++) qn_try(compute(c, member, is->name, is->extent[d], &a->shape[a->ndim++]));
  a->elements = 1;
  for (int d = 0; d < a->ndim; d++) {
    qn_require(a->shape[d] > 0, "kernel %s: extent %d of %s, %s, is %lld; it must be above 0", c->folder->name, d + 1,
               is->name, d < a->ndim - is->ndim ? "..." : is->extent[d - (a->ndim - is->ndim)], (long long)a->shape[d]);
    qn_require(!__builtin_mul_overflow(a->elements, (size_t)a->shape[d], &a->elements) && a->elements <= SIZE_MAX / 64,
               "kernel %s: %s has more elements than fit any memory", c->folder->name, is->name);
  }
  return QN_OK;
}

static qn_status match_given(const qn_kernel_case *c, const qn_array *a, const qn_file_array *given)
{
  for (int d = 0; d < a->ndim; d++)
    qn_require(a->ndim == given->ndim && a->shape[d] == given->shape[d],
               "kernel %s: extent %d of %s is %lld in the file, its contract makes it %lld", c->folder->name, d + 1,
               a->is->name, (long long)given->shape[d], (long long)a->shape[d]);
  return QN_OK;
}

/* ---- templates ---- */
static qn_status bind_templates(qn_kernel_case *c)
{
  for (size_t k = 0; k < c->body->n_templates; k++) {
    const qn_folder_template *t = &c->body->templates[k];
    qn_value value = t->value;
    if (t->dtype_of >= 0) value = (qn_value){.kind = QN_VALUE_DTYPE, .dtype = c->array[t->dtype_of].dtype};
    if (c->reference && value.kind == QN_VALUE_DTYPE && qn_dtype_is_float(value.dtype)) value.dtype = QN_F64;
    if (value.kind != QN_VALUE_DTYPE) {
      const int64_t *bound = find_name(c, t->name);
      if (t->expression && !bound) {
        value.kind = QN_VALUE_INT;
        qn_try(compute(c, "templates", t->name, t->expression, &value.integer));
      } else if (bound) {
        value.kind = t->expression ? QN_VALUE_INT : value.kind;
        value.integer = *bound;
      }
      qn_try(bind_name(c, t->name, value.integer));
    }
    c->templates[k] = (qn_template){t->name, value};
  }
  return QN_OK;
}

/* ---- geometry ---- */
static qn_status bind_group(qn_kernel_case *c, const uint32_t chosen[3])
{
  static const char *const names[] = {"threadgroup.x", "threadgroup.y", "threadgroup.z"};
  for (int d = 0; d < 3; d++) {
    int64_t value = chosen ? chosen[d] : 0;
    if (!value && c->body->group[0] && !(chosen && chosen[0]))
      qn_try(compute(c, "threadgroup", "", c->body->group[d], &value));
    qn_require(value >= 0 && value <= QN_KERNEL_MAX_GROUP,
               "kernel %s: threadgroup[%d] is %lld, it must be from 1 to %d", c->folder->name, d, (long long)value,
               QN_KERNEL_MAX_GROUP);
    c->call.group[d] = (uint32_t)value;
    qn_try(bind_name(c, names[d], value));
  }
  return QN_OK;
}

static qn_status bind_launch(qn_kernel_case *c, const uint32_t chosen[3])
{
  const qn_folder *f = c->folder;
  int64_t value = 0;
  qn_try(bind_group(c, chosen));
  for (int d = 0; d < 3; d++) {
    qn_try(compute(c, "grid", "", c->body->grid[d], &value));
    qn_require(value >= 1, "kernel %s: grid[%d], %s, is %lld; it must be at least 1", f->name, d, c->body->grid[d],
               (long long)value);
    c->call.grid[d] = (uint64_t)value;
  }
  value = 0;
  if (f->shared_bytes && !c->reference) qn_try(compute(c, "shared_bytes", "", f->shared_bytes, &value));
  qn_require(value >= 0 && value <= INT32_MAX, "kernel %s: shared_bytes is %lld", f->name, (long long)value);
  c->call.shared_bytes = (size_t)value;
  return QN_OK;
}

static qn_status bind_amounts(qn_kernel_case *c)
{
  const qn_folder *f = c->folder;
  int64_t value = 0;
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++)
    c->bytes += (double)c->array[k].elements * (double)qn_dtype_bytes(c->array[k].dtype);
  if (f->bytes) {
    qn_try(compute(c, "bytes", "", f->bytes, &value));
    qn_require(value > 0, "kernel %s: bytes, %s, is %lld; it must be above 0", f->name, f->bytes, (long long)value);
    c->bytes = (double)value;
  }
  if (f->operations) {
    qn_try(compute(c, "operations", "", f->operations, &value));
    c->operations = (double)value;
  }
  return QN_OK;
}

static void begin(qn_kernel_case *c)
{
  const qn_folder *f = c->folder;
  c->n_inputs = f->n_inputs;
  c->n_outputs = f->n_outputs;
  for (size_t k = 0; k < f->n_inputs + f->n_outputs; k++) c->array[k].is = &f->tensor[k];
  for (size_t k = 0; k < f->n_outputs; k++) {
    c->init[k] = f->tensor[f->n_inputs + k].init;
    c->stored_in[k] = f->tensor[f->n_inputs + k].stored_in;
  }
}

static qn_status bind_bytes(qn_kernel_case *c)
{
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    snprintf(c->name_text[k], sizeof c->name_text[k], "%.60s.bytes", c->array[k].is->name);
    qn_try(bind_name(c, c->name_text[k], (int64_t)qn_dtype_bytes(c->array[k].dtype)));
  }
  return QN_OK;
}

static int leading_of(const qn_kernel_case *c, const qn_kernel_case_order *o, const int64_t **leading)
{
  for (size_t k = 0; k < c->n_inputs; k++) {
    const qn_file_array *given = qn_arrays_find(o->given, c->array[k].is->name);
    if (!given || !c->array[k].is->leading) continue;
    *leading = given->shape;
    return given->ndim - c->array[k].is->ndim;
  }
  *leading = o->size ? o->size->leading : NULL;
  return o->size ? o->size->n_leading : 0;
}

qn_status qn_kernel_case_bind(qn_kernel_case *c, const qn_kernel_case_order *o)
{
  const int64_t *leading;
  begin(c);
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) qn_try(bind_type(c, o, k));
  qn_try(bind_bytes(c));
  qn_try(bind_names(c, o));
  qn_try(bind_templates(c));
  int n_leading = leading_of(c, o, &leading);
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_try(bind_shape(c, &c->array[k], n_leading, leading));
    const qn_file_array *given = c->array[k].is->output ? NULL : qn_arrays_find(o->given, c->array[k].is->name);
    if (given) qn_try(match_given(c, &c->array[k], given));
  }
  qn_try(bind_launch(c, o->group));
  return bind_amounts(c);
}

/* A template that the reference gives another value loses the kernel's own. */
static void forget_overridden(qn_kernel_case *c)
{
  const qn_folder_body *body = &c->folder->body, *reference = &c->folder->reference;
  for (size_t k = 0; k < body->n_templates; k++) {
    const qn_folder_template *a = &body->templates[k], *b = &reference->templates[k];
    bool same = a->value.kind == b->value.kind && a->value.integer == b->value.integer && a->dtype_of == b->dtype_of &&
                a->expression == b->expression;
    for (size_t j = 0; !same && j < c->n_names; j++)
      if (!strcmp(c->name[j].name, a->name)) c->name[j] = c->name[--c->n_names];
  }
}

qn_status qn_kernel_case_bind_reference(qn_kernel_case *c, const qn_kernel_case *of)
{
  begin(c);
  memcpy(c->name, of->name, sizeof c->name);
  c->n_names = of->n_names;
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) { /* names of `of`, which the reference may outlive */
    for (size_t j = 0; j < c->n_names; j++)
      if (c->name[j].name == of->name_text[k]) c->name[j].name = c->name_text[k];
    memcpy(c->name_text[k], of->name_text[k], sizeof c->name_text[k]);
    qn_array *a = &c->array[k];
    a->dtype = qn_dtype_is_float(of->array[k].dtype) ? QN_F64 : of->array[k].dtype;
    a->ndim = of->array[k].ndim;
    memcpy(a->shape, of->array[k].shape, sizeof a->shape);
    a->elements = of->array[k].elements;
    *find_name(c, c->name_text[k]) = (int64_t)qn_dtype_bytes(a->dtype);
  }
  forget_overridden(c);
  qn_try(bind_templates(c));
  return bind_launch(c, NULL);
}
