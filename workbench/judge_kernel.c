/* SPDX-License-Identifier: Apache-2.0 */
/* judge_kernel.c - a candidate in the place of the problem's body: tensors, sizes, rules of fill, reference and
 * agreement are the problem's; text, dialect, templates and launch are the candidate's. */
#include "core/core.h"
#include "workbench/judge_talk.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a body's file ---- */
static bool ends_with(const char *text, const char *end)
{
  const size_t length = strlen(text), n = strlen(end);
  return length >= n && !strcmp(text + length - n, end);
}

/* The problem's launch and templates, and its header where the dialect is the same. */
static qn_status take_body(const char *path, qn_judged_kernel *k)
{
  const char *slash = strrchr(path, '/');
  const qn_dialect dialect = ends_with(path, ".cu") ? QN_DIALECT_CUDA : QN_DIALECT_METAL;
  size_t bytes;
  if (!ends_with(path, ".cu") && !ends_with(path, ".metal"))
    return qn_fail(QN_BAD_FILE, "%s: a candidate is a body (.metal or .cu) or a kernel's folder", path);
  qn_try(qn_body_read(path, path, &k->text, &bytes));
  qn_folder_body *b = &k->merged.body;
  if (b->dialect != dialect) b->header = b->header_file = NULL;
  b->dialect = dialect;
  b->source = k->text;
  b->file = slash ? slash + 1 : path;
  return QN_OK;
}

/* ---- a folder ---- */
static qn_status match_tensor(const qn_folder *own, const qn_folder_tensor *a, const qn_folder_tensor *b)
{
  bool same = !strcmp(a->name, b->name) && a->output == b->output && a->n_dtypes == b->n_dtypes &&
              a->dtype_of == b->dtype_of && a->ndim == b->ndim && a->leading == b->leading && a->scalar == b->scalar &&
              a->stored_in == b->stored_in;
  for (size_t k = 0; same && k < a->n_dtypes; k++) same = a->dtype[k] == b->dtype[k];
  for (int d = 0; same && d < a->ndim; d++) same = !strcmp(a->extent[d], b->extent[d]);
  if (same) return QN_OK;
  return qn_fail(QN_BAD_FILE, "%s: %s %s is not the problem's %s: name, types, extents and in_place must be the same",
                 own->file, b->output ? "output" : "input", b->name, a->name);
}

static qn_status take_folder(const char *path, qn_judged_kernel *k)
{
  qn_try(qn_folder_read(path, &k->own));
  const qn_folder *p = k->problem, *own = k->own;
  if (p->n_inputs != own->n_inputs || p->n_outputs != own->n_outputs)
    return qn_fail(QN_BAD_FILE, "%s: it has %zu inputs and %zu outputs, the problem has %zu and %zu", own->file,
                   own->n_inputs, own->n_outputs, p->n_inputs, p->n_outputs);
  for (size_t t = 0; t < p->n_inputs + p->n_outputs; t++) {
    qn_try(match_tensor(own, &p->tensor[t], &own->tensor[t]));
    k->merged.tensor[t].strided = own->tensor[t].strided;
    k->merged.tensor[t].init = own->tensor[t].init;
    k->merged.tensor[t].atomic = own->tensor[t].atomic;
  }
  k->merged.body = own->body;
  k->merged.math = own->math;
  k->merged.shared_bytes = own->shared_bytes;
  k->merged.path = own->path; /* of its tune table */
  k->merged.name = own->name;
  return QN_OK;
}

qn_status qn_judged_kernel_read(const char *problem, const char *candidate, qn_judged_kernel *k)
{
  struct stat is;
  *k = (qn_judged_kernel){.own = NULL};
  qn_status status = qn_folder_read(problem, &k->problem);
  if (status == QN_OK) k->merged = *k->problem;
  if (status == QN_OK && *candidate) {
    if (stat(candidate, &is))
      status = qn_fail(QN_BAD_FILE, "%s: %s", candidate, strerror(errno));
    else
      status = S_ISDIR(is.st_mode) || ends_with(candidate, "kernel.json") ? take_folder(candidate, k)
                                                                          : take_body(candidate, k);
  }
  if (status != QN_OK) qn_judged_kernel_free(k);
  return status;
}

void qn_judged_kernel_free(qn_judged_kernel *k)
{
  qn_folder_free(&k->own);
  qn_folder_free(&k->problem);
  qn_release(k->text);
  *k = (qn_judged_kernel){.own = NULL};
}

/* ---- a launch's numbers ---- */
void qn_talk_order(const qn_folder *f, const qn_talk_spec *spec, qn_name set[QN_FOLDER_NAMES],
                   qn_kernel_case_order *order)
{
  order->folder = f;
  order->size = spec->workload ? &f->workload[spec->base] : &f->size[spec->base];
  for (size_t k = 0; k < f->n_inputs; k++) order->dtype[k] = (qn_dtype)spec->dtype[k];
  if (!spec->drawn) return;
  for (size_t k = 0; k < f->n_extents; k++) set[k] = (qn_name){f->extent[k], spec->extent[k]};
  order->set = set;
  order->n_set = f->n_extents;
}
