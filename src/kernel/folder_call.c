/* SPDX-License-Identifier: Apache-2.0 */
/* folder_call.c - quern/kernel.h's kernels in folders: the folder as a kernel's source, and a launch of it as a call.
 */
#include "kernel/folder.h"
#include <stdio.h>
#include <string.h>

typedef struct declared {
  qn_kernel_folder shown; /* first: the caller's address is this one's */
  qn_folder *folder;
  qn_folder_source source;
  const char *template[QN_KERNEL_MAX_TEMPLATES];
  qn_text file;
} declared;

/* A call with all that it points to. */
typedef struct made_call {
  qn_binding bound; /* first, and in it the call */
  uint32_t set;     /* bit k: template k has a given value */
  bool set_group;
  qn_tensor input[QN_KERNEL_MAX_TENSORS];
  unsigned char scalar[QN_KERNEL_MAX_TENSORS][8];
} made_call;

/* ---- the folder ---- */
static qn_status declare(declared *d)
{
  const qn_folder *f = d->folder;
  qn_try(qn_folder_source_make(&d->source, f, &f->body, NULL));
  qn_text_add(&d->file, "%s/%s", f->path, f->body.file);
  if (d->file.failed) return qn_fail(QN_NO_MEMORY, "the path of %s", f->body.file);
  d->shown = (qn_kernel_folder){.path = f->path,
                                .doc = f->doc,
                                .source = d->source.source,
                                .n_templates = f->body.n_templates,
                                .templates = d->template};
  d->shown.source.file = d->file.at;
  for (size_t k = 0; k < f->body.n_templates; k++) d->template[k] = f->body.templates[k].name;
  for (size_t k = 0; k < f->n_inputs; k++)
    if (f->tensor[k].scalar) d->shown.scalars |= UINT64_C(1) << k;
  return QN_OK;
}

qn_status qn_kernel_folder_create(qn_kernel_folder **folder, const char *path)
{
  qn_require(folder && path, "a kernel's folder: %s is NULL", folder ? "the path" : "where to put it");
  *folder = NULL;
  declared *d = qn_allocate_zero(1, sizeof *d);
  if (!d) return qn_fail(QN_NO_MEMORY, "the kernel's folder %s", path);
  qn_status status = qn_folder_read_any(path, &d->folder);
  if (status == QN_OK) status = declare(d);
  *folder = &d->shown;
  if (status != QN_OK) qn_kernel_folder_destroy(folder);
  return status;
}

void qn_kernel_folder_destroy(qn_kernel_folder **folder)
{
  if (!folder || !*folder) return;
  declared *d = (declared *)*folder;
  *folder = NULL;
  qn_folder_source_free(&d->source);
  qn_text_free(&d->file);
  qn_folder_free(&d->folder);
  qn_release(d);
}

/* ---- a call ---- */
static qn_status give_input(made_call *m, size_t k, const qn_tensor *given)
{
  qn_binding *b = &m->bound;
  const qn_folder_tensor *is = &b->folder->tensor[k];
  m->input[k] = *given;
  qn_require(given->dtype || is->scalar, "kernel %s: %s has no storage type", b->folder->name, is->name);
  qn_require(given->shape || !given->ndim, "kernel %s: the shape of %s is NULL", b->folder->name, is->name);
  qn_try(qn_bind_type(b, k, given->dtype));
  if (given->dtype) return qn_bind_shape(b, k, given->ndim, given->shape);
  m->input[k] = (qn_tensor){.data = m->scalar[k], .dtype = b->tensor[k].dtype, .device = {QN_CPU, 0}};
  return QN_OK;
}

static qn_status give_template(made_call *m, const qn_template *given)
{
  const qn_folder *f = m->bound.folder;
  const qn_value *value = &given->value;
  const char *own;
  qn_require(given->name, "kernel %s: a template's name is NULL", f->name);
  for (size_t k = 0; k < f->body.n_templates && value->kind == QN_VALUE_DTYPE; k++) {
    const qn_folder_template *t = &f->body.templates[k];
    if (strcmp(t->name, given->name) || (t->dtype_of < 0 && t->value.kind != QN_VALUE_DTYPE)) continue;
    m->bound.templates[k] = (qn_template){t->name, *value};
    return QN_OK;
  }
  qn_try(qn_folder_set(f, &(qn_name){given->name, value->integer}, &own));
  qn_require(value->kind == QN_VALUE_BOOL || value->kind == QN_VALUE_INT,
             "kernel %s: the template %s must be a whole number, true or false", f->name, own);
  for (size_t k = 0; k < f->body.n_templates; k++) m->set |= (uint32_t)(f->body.templates[k].name == own) << k;
  return qn_bind_name(&m->bound, own, value->integer);
}

static qn_status make_call(made_call *m, const qn_folder *f, const qn_kernel_call *given)
{
  qn_binding *b = &m->bound;
  qn_kernel_call *call = &b->call;
  qn_bind_begin(b, f, &f->body);
  for (size_t k = 0; k < f->n_inputs; k++) qn_try(give_input(m, k, &given->inputs[k]));
  for (size_t k = 0; k < given->n_templates; k++) qn_try(give_template(m, &given->templates[k]));
  qn_try(qn_bind_rest(b, given->group));
  for (size_t k = 0; k < f->n_inputs; k++)
    if (!given->inputs[k].dtype) qn_try(qn_bound_scalar(b, k, m->scalar[k]));
  m->set_group = given->group[0];
  call->inputs = m->input;
  call->limit_ns = given->limit_ns;
  call->check = given->check;
  call->seed = given->seed;
  call->ignore = given->ignore | f->ignore;
  return QN_OK;
}

qn_status qn_kernel_folder_call(const qn_kernel_folder *folder, const qn_kernel_call *given, qn_kernel_call **call)
{
  qn_require(call, "where to put the call is NULL");
  *call = NULL;
  qn_require(folder, "a call of a kernel's folder: the folder is NULL");
  const qn_folder *f = ((const declared *)folder)->folder;
  qn_require(given && given->size == sizeof *given, "kernel %s: the call is NULL or has another size than %zu", f->name,
             sizeof *given);
  qn_require(given->inputs || !f->n_inputs, "kernel %s: inputs is NULL", f->name);
  qn_require(given->templates || !given->n_templates, "kernel %s: templates is NULL", f->name);
  made_call *m = qn_allocate_zero(1, sizeof *m);
  if (!m) return qn_fail(QN_NO_MEMORY, "a call of kernel %s", f->name);
  qn_status status = make_call(m, f, given);
  *call = &m->bound.call;
  if (status != QN_OK) qn_kernel_call_release(call);
  return status;
}

void qn_kernel_call_release(qn_kernel_call **call)
{
  if (!call) return;
  qn_release(*call);
  *call = NULL;
}

/* ---- an output's shape over those of inputs ---- */
/* Where the extent is one of an input, counted from its end; false: no input has it bare. */
static bool write_place(const qn_folder *f, const char *extent, qn_text *text)
{
  for (size_t k = 0; k < f->n_inputs; k++)
    for (int d = 0; d < f->tensor[k].ndim; d++) {
      if (strcmp(f->tensor[k].extent[d], extent) != 0) continue;
      qn_text_add(text, "%zu:%d ", k, d - f->tensor[k].ndim);
      return true;
    }
  return false;
}

/* What follows from extents is written in the name's place, all else as a number. */
static qn_status write_name(const qn_expression_writer *to, const char *name, size_t length)
{
  const made_call *m = to->user;
  const qn_binding *b = &m->bound;
  char word[80];
  snprintf(word, sizeof word, "%.*s", (int)length, name);
  if (write_place(b->folder, word, to->text)) return QN_OK;
  for (size_t k = 0; k < b->body->n_templates; k++)
    if (b->body->templates[k].expression && !strcmp(b->body->templates[k].name, word) && !(m->set >> k & 1))
      return qn_expression_postfix(b->body->templates[k].expression, to);
  const char axis = strncmp(word, "threadgroup.", 12) ? 0 : word[12];
  if (axis && b->body->group[0] && !m->set_group) return qn_expression_postfix(b->body->group[axis - 'x'], to);
  for (size_t k = 0; k < b->n_names; k++)
    if (!strcmp(b->name[k].name, word)) qn_text_add(to->text, "%lld ", (long long)b->name[k].value);
  return QN_OK;
}

qn_status qn_kernel_folder_shape(const qn_kernel_call *call, size_t output, char **text)
{
  qn_require(call && text, "the shape of an output: %s is NULL", call ? "where to put the text" : "the call");
  *text = NULL;
  const made_call *m = (const made_call *)call;
  const qn_folder *f = m->bound.folder;
  qn_require(output < f->n_outputs, "kernel %s: there is no output %zu", f->name, output);
  const qn_folder_tensor *is = &f->tensor[f->n_inputs + output];
  qn_text made = {0};
  const qn_expression_writer to = {.text = &made, .name = write_name, .user = m};
  qn_status status = QN_OK;
  size_t from = 0; /* the input whose "..." it is */
  while (from < f->n_inputs && !f->tensor[from].leading) from++;
  for (int d = 0; d < m->bound.tensor[f->n_inputs + output].ndim - is->ndim; d++)
    qn_text_add(&made, "%zu:%d , ", from, d);
  for (int d = 0; status == QN_OK && d < is->ndim; d++) {
    status = qn_expression_postfix(is->extent[d], &to);
    qn_text_add(&made, ", ");
  }
  if (status == QN_OK && made.failed) status = qn_fail(QN_NO_MEMORY, "kernel %s: a shape's text", f->name);
  if (status != QN_OK)
    qn_text_free(&made);
  else
    *text = made.at;
  return status;
}
