/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bind.c - what the library's binding of a folder (kernel/folder.h) is given: a size, a table's and the user's
 * values, arrays from files; and the amounts of the launch. No memory is taken and nothing runs. */
#include "core/core.h"
#include "workbench/kernel_case.h"
#include <string.h>

static qn_status set_name(qn_binding *b, const qn_name *set)
{
  const char *own;
  qn_try(qn_folder_set(b->folder, set, &own));
  return qn_bind_name(b, own, set->value);
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

static qn_status bind_names(qn_binding *b, const qn_kernel_case_order *o)
{
  const qn_folder *f = b->folder;
  for (size_t k = 0; k < o->n_tuned; k++) qn_try(qn_bind_name(b, o->tuned[k].name, o->tuned[k].value));
  for (size_t k = 0; o->size && k < o->size->n; k++)
    qn_try(qn_bind_name(b, o->size->value[k].name, o->size->value[k].value));
  for (size_t k = 0; k < f->n_inputs; k++) {
    const qn_file_array *given = qn_arrays_find(o->given, f->tensor[k].name);
    if (given) qn_try(qn_bind_shape(b, k, given->ndim, given->shape));
  }
  for (size_t k = 0; k < o->n_set; k++) qn_try(set_name(b, &o->set[k]));
  return QN_OK;
}

static qn_status bind_amounts(qn_kernel_case *c)
{
  const qn_folder *f = c->folder;
  int64_t value = 0;
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++)
    c->bytes += (double)c->array[k].elements * (double)qn_dtype_bytes(c->array[k].dtype);
  if (f->bytes) {
    qn_try(qn_bound_compute(&c->bound, "bytes", "", f->bytes, &value));
    qn_require(value > 0, "kernel %s: bytes, %s, is %lld; it must be above 0", f->name, f->bytes, (long long)value);
    c->bytes = (double)value;
  }
  if (f->operations) {
    qn_try(qn_bound_compute(&c->bound, "operations", "", f->operations, &value));
    c->operations = (double)value;
  }
  return QN_OK;
}

static void begin(qn_kernel_case *c)
{
  const qn_folder *f = c->folder;
  qn_bind_begin(&c->bound, f, c->body);
  c->n_inputs = f->n_inputs;
  c->n_outputs = f->n_outputs;
  for (size_t k = 0; k < f->n_inputs + f->n_outputs; k++) c->array[k].is = &f->tensor[k];
}

/* The arrays and the call have the numbers that are bound. */
static qn_status adopt(qn_kernel_case *c)
{
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    qn_array *a = &c->array[k];
    const qn_tensor *t = &c->bound.tensor[k];
    a->dtype = t->dtype;
    a->ndim = t->ndim;
    a->elements = 1;
    for (int d = 0; d < a->ndim; d++) {
      a->shape[d] = t->shape[d];
      qn_require(!__builtin_mul_overflow(a->elements, (size_t)a->shape[d], &a->elements) &&
                     a->elements <= SIZE_MAX / 64,
                 "kernel %s: %s has more elements than fit any memory", c->folder->name, a->is->name);
    }
  }
  c->call = c->bound.call;
  return QN_OK;
}

qn_status qn_kernel_case_bind(qn_kernel_case *c, const qn_kernel_case_order *o)
{
  qn_binding *b = &c->bound;
  begin(c);
  for (size_t k = 0; k < c->n_inputs; k++) {
    const qn_file_array *given = qn_arrays_find(o->given, c->array[k].is->name);
    qn_try(qn_bind_type(b, k, given ? given->dtype : o->dtype[k]));
  }
  b->n_leading = o->size ? o->size->n_leading : 0;
  b->leading = o->size ? o->size->leading : NULL;
  qn_try(bind_names(b, o));
  qn_try(qn_bind_rest(b, o->group));
  qn_try(adopt(c));
  return bind_amounts(c);
}

/* The names of `of`, but for those of templates that the reference gives another value. */
static qn_status bind_same_names(qn_kernel_case *c, const qn_kernel_case *of)
{
  const qn_folder_body *body = &c->folder->body, *reference = &c->folder->reference;
  for (size_t j = 0; j < of->bound.n_names; j++) {
    const qn_name *name = &of->bound.name[j];
    bool same = true;
    for (size_t k = 0; k < body->n_templates; k++) {
      const qn_folder_template *a = &body->templates[k], *b = &reference->templates[k];
      if (!strcmp(a->name, name->name))
        same = a->value.kind == b->value.kind && a->value.integer == b->value.integer && a->dtype_of == b->dtype_of &&
               a->expression == b->expression;
    }
    for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++)
      same = same && name->name != of->bound.name_text[k]; /* "x.bytes" */
    if (same) qn_try(qn_bind_name(&c->bound, name->name, name->value));
  }
  return QN_OK;
}

qn_status qn_kernel_case_bind_reference(qn_kernel_case *c, const qn_kernel_case *of)
{
  qn_binding *b = &c->bound;
  begin(c);
  b->reference = true;
  qn_try(bind_same_names(c, of));
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) {
    const qn_tensor *t = &of->bound.tensor[k];
    b->tensor[k].dtype = qn_dtype_is_float(t->dtype) ? QN_F64 : t->dtype;
    b->tensor[k].ndim = t->ndim;
    memcpy(b->shape[k], of->bound.shape[k], sizeof b->shape[k]);
    qn_try(qn_bind_bytes(b, k));
  }
  qn_try(qn_bind_body(b, NULL));
  return adopt(c);
}
