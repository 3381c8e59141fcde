/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_session.c - what every action of `quern kernel` opens before it does anything: folder, device, threads, files
 * of inputs, tuned values; and how its failures are told. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_say.h"
#include "workbench/kernel_tuned.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The input before "=", and what is behind it. */
static qn_status find_input(const qn_folder *f, const char *text, size_t *input, const char **value)
{
  const char *names[QN_KERNEL_MAX_TENSORS + 1] = {NULL};
  const size_t n = strcspn(text, "=");
  char name[64];
  *value = text + n + 1;
  snprintf(name, sizeof name, "%.*s", (int)n, text);
  for (*input = 0; *input < f->n_inputs; ++*input) {
    names[*input] = f->tensor[*input].name;
    if (!strcmp(name, names[*input])) return QN_OK;
  }
  return qn_fail(QN_BAD_ARGUMENT, "kernel %s has no input %s%s", f->name, name, qn_suggest(name, names));
}

static qn_status read_inputs(qn_kernel_session *s)
{
  size_t input;
  const char *path;
  for (size_t k = 0; k < s->order->inputs.n; k++) {
    qn_try(find_input(s->folder, s->order->inputs.at[k], &input, &path));
    qn_try(qn_arrays_read(&s->given, path, s->folder->tensor[input].name));
  }
  return s->folder->inputs_file ? qn_arrays_read(&s->given, s->folder->inputs_file, NULL) : QN_OK;
}

qn_status qn_kernel_open(qn_kernel_session *s, const qn_kernel_order *order)
{
  *s = (qn_kernel_session){.order = order};
  const char *own;
  qn_try(qn_folder_read(order->folder, &s->folder));
  for (size_t k = 0; k < order->n_set; k++) qn_try(qn_folder_set(s->folder, &order->set[k], &own));
  qn_try(qn_verb_device(order->backend, &s->device));
  return read_inputs(s);
}

void qn_kernel_close(qn_kernel_session *s)
{
  if (s->c) qn_kernel_case_destroy(&s->c);
  qn_pool_destroy(&s->pool);
  qn_arrays_free(&s->given);
  qn_folder_free(&s->folder);
}

qn_status qn_kernel_size_of(const qn_kernel_session *s, const qn_folder_size **size)
{
  const qn_folder *f = s->folder;
  *size = f->n_sizes ? &f->size[0] : &f->workload[0];
  if (s->order->size) {
    qn_require((size_t)s->order->size <= f->n_sizes, "--size is %d, kernel %s has %zu", s->order->size, f->name,
               f->n_sizes);
    *size = &f->size[s->order->size - 1];
  }
  return s->order->workload ? qn_kernel_workload(f, s->order->workload, size) : QN_OK;
}

static qn_status take_type(const qn_kernel_session *s, const char *text, qn_kernel_case_order *order)
{
  const char *names[QN_DTYPE_COUNT] = {NULL}, *type;
  size_t input;
  for (int k = 1; k <= QN_C64; k++) names[k - 1] = qn_dtype_name((qn_dtype)k);
  qn_try(find_input(s->folder, text, &input, &type));
  order->dtype[input] = qn_dtype_from_name(type);
  qn_require(order->dtype[input], "there is no storage type %s%s", type, qn_suggest(type, names));
  return QN_OK;
}

qn_status qn_kernel_case_of(qn_kernel_session *s, const qn_folder_size *size, qn_kernel_case_order *order)
{
  const qn_kernel_order *o = s->order;
  if (!s->pool) qn_try(qn_verb_pool(o->threads, &s->pool));
  *order = (qn_kernel_case_order){.folder = s->folder,
                                  .size = size,
                                  .device = s->device,
                                  .pool = s->pool,
                                  .set = o->set,
                                  .n_set = o->n_set,
                                  .seed = o->seed,
                                  .given = &s->given};
  memcpy(order->group, o->group, sizeof order->group);
  for (size_t k = 0; k < o->types.n; k++) qn_try(take_type(s, o->types.at[k], order));
  return o->untuned ? QN_OK : qn_tuned_apply(s->folder, order, s->tuned, sizeof s->tuned);
}

int qn_kernel_complain(const qn_kernel_session *s, qn_status status)
{
  char before[48];
  fflush(stdout);
  snprintf(before, sizeof before, "quern %s: ", s->order->verb->name);
  if (*qn_last_error())
    qn_say_failure(stderr, s->folder, before);
  else
    fprintf(stderr, "%s%s\n", before, qn_status_text(status));
  return qn_exit_of(status);
}

int qn_kernel_act(const qn_kernel_order *order, qn_status (*work)(qn_kernel_session *s, bool *bad))
{
  qn_kernel_session s;
  bool bad = false;
  qn_status status = qn_kernel_open(&s, order);
  if (status == QN_OK) status = work(&s, &bad);
  const int result = status != QN_OK ? qn_kernel_complain(&s, status) : bad ? QN_EXIT_FAILED : QN_EXIT_OK;
  qn_kernel_close(&s);
  return result;
}

qn_status qn_kernel_trial_of(const qn_kernel_session *s, int limit_s, qn_kernel_trial_request *r)
{
  const qn_kernel_order *o = s->order;
  int threads;
  qn_try(qn_verb_threads(o->threads, &threads));
  *r = (qn_kernel_trial_request){.folder = s->folder,
                                 .processor = !o->backend || s->device.kind != QN_CUDA,
                                 .gpu = s->device.kind == QN_CUDA,
                                 .device = s->device,
                                 .threads = threads,
                                 .seeds = o->seeds ? o->seeds : 1,
                                 .ignore = o->ignore,
                                 .quick = o->quick,
                                 .tuned = !o->untuned,
                                 .limit_ns = limit_s * INT64_C(1000000000)};
  r->base = (qn_kernel_case_order){.set = o->set, .n_set = o->n_set, .seed = o->seed, .given = &s->given};
  return QN_OK;
}

int qn_kernel_apart(const qn_kernel_order *order, int (*work)(void *order))
{
  char said[128];
  qn_kernel_order copy = *order;
  if (!order->isolated) return work(&copy);
  const int status = qn_isolated(work, &copy, said, sizeof said);
  return status >= 0 ? status : qn_complain(order->verb, QN_EXIT_FAILED, "kernel %s: %s", order->folder, said);
}
