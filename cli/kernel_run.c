/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_run.c - `quern kernel run`: one launch, printed or written. */
#include "cli/kernel.h"
#include "core/core.h"
#include "workbench/kernel_compare.h"
#include "workbench/kernel_say.h"
#include "workbench/sampler.h"
#include "workbench/table.h"
#include "workbench/record_inner.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 8 };

static qn_status print_source(qn_kernel_case *c)
{
  char *text = NULL;
  qn_try(qn_kernel_text(c->kernel, &c->exec, &c->call, &text));
  fputs(text, stdout);
  qn_text_release(&text);
  return QN_OK;
}

static void add_values(json_t *object, const qn_array *a)
{
  json_t *shape = json_array(), *values = json_array();
  for (int d = 0; d < a->ndim; d++) json_array_append_new(shape, json_integer(a->shape[d]));
  for (size_t k = 0; k < a->elements && k < SHOWN; k++) {
    char text[64];
    qn_element_text(a->dtype, qn_array_at(a, k), text, sizeof text);
    json_array_append_new(values, json_string(text));
  }
  json_object_set_new(object, a->is->name,
                      json_pack("{s:s, s:o, s:o}", "dtype", qn_dtype_name(a->dtype), "shape", shape, "first", values));
}

static void print_json(const qn_kernel_session *s, const qn_kernel_case *c, const qn_kernel_info *info, double ns)
{
  json_t *inputs = json_object(), *outputs = json_object();
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) add_values(k < c->n_inputs ? inputs : outputs, &c->array[k]);
  json_t *all =
      json_pack("{s:s, s:s, s:[I, I, I], s:[i, i, i], s:f, s:s, s:o, s:o}", "kernel", s->folder->name, "backend",
                qn_device_kind_name(s->device.kind), "grid", (json_int_t)c->call.grid[0], (json_int_t)c->call.grid[1],
                (json_int_t)c->call.grid[2], "threadgroup", (int)info->group[0], (int)info->group[1],
                (int)info->group[2], "ns", ns, "tuned", s->tuned, "inputs", inputs, "outputs", outputs);
  qn_json_print(stdout, all, JSON_INDENT(2));
}

static void print_text(const qn_kernel_session *s, const qn_kernel_case *c, const qn_kernel_info *info, double ns)
{
  char names[256];
  qn_kernel_case_text(c, names, sizeof names);
  printf("%s on %s%s%s: grid %llu x %llu x %llu, threadgroup %u x %u x %u, %s%s%s\n", s->folder->name,
         qn_device_kind_name(s->device.kind), *names ? ", " : "", names, (unsigned long long)c->call.grid[0],
         (unsigned long long)c->call.grid[1], (unsigned long long)c->call.grid[2], info->group[0], info->group[1],
         info->group[2], qn_duration(ns).text, *s->tuned ? ", tuned: " : "", s->tuned);
  printf("in\n");
  for (size_t k = 0; k < c->n_inputs; k++) qn_say_array(stdout, &c->array[k], SHOWN);
  printf("out\n");
  for (size_t k = 0; k < c->n_outputs; k++) qn_say_array(stdout, qn_kernel_output(c, k), SHOWN);
}

static qn_status write_outputs(const qn_kernel_case *c, const char *path)
{
  qn_safetensor_made out[QN_KERNEL_MAX_TENSORS];
  for (size_t k = 0; k < c->n_outputs; k++) {
    const qn_array *a = qn_kernel_output(c, k);
    out[k] = (qn_safetensor_made){a->is->name, a->dtype, a->ndim, a->shape, a->data};
  }
  return qn_arrays_write(path, out, c->n_outputs);
}

/* A captured launch's own outputs, where they are kept, bit for bit. */
static qn_status compare_kept(const qn_kernel_session *s, const qn_kernel_case *c, bool *wrong)
{
  qn_arrays kept = {0};
  qn_status status = qn_arrays_read(&kept, s->folder->outputs_file, NULL);
  for (size_t k = 0; status == QN_OK && k < c->n_outputs; k++) {
    const qn_array *a = qn_kernel_output(c, k);
    const qn_file_array *was = qn_arrays_find(&kept, a->is->name);
    qn_output_comparison compared;
    if (!was || was->dtype != a->dtype || was->bytes != qn_array_bytes(a)) {
      status =
          qn_fail(QN_BAD_FILE, "%s: %s is not there with this type and size", s->folder->outputs_file, a->is->name);
      continue;
    }
    qn_compare_bits(a, was->data, "when it was kept it was", &compared);
    *wrong = *wrong || !compared.right;
    printf("%s: %s\n", a->is->name, compared.right ? "the kept bits" : compared.why);
  }
  qn_arrays_free(&kept);
  return status;
}

/* Compiled before the clock runs; once over data that nothing has touched since they were made. */
static qn_status launch(const qn_kernel_session *s, qn_kernel_case *c, qn_kernel_info *info, double *ns)
{
  *info = (qn_kernel_info){.size = sizeof *info};
  c->call.limit_ns = (int64_t)(s->order->limit_s * 1e9);
  qn_try(qn_kernel_query(c->kernel, &c->exec, &c->call, info));
  int64_t from = qn_now_ns();
  qn_try(qn_kernel_case_launch(c));
  qn_try(qn_stream_synchronize(s->device, c->stream));
  *ns = (double)(qn_now_ns() - from);
  return qn_kernel_case_fetch(c);
}

/* What the kernel says of itself, or did to memory that is not its own. */
static qn_status judge(const qn_kernel_session *s)
{
  char why[256];
  const int dbg = qn_folder_tensor_find(s->folder, "dbg");
  if (!qn_kernel_case_intact(s->c, why, sizeof why))
    return qn_fail(QN_KERNEL_ERROR, "kernel %s: %s", s->folder->name, why);
  if (dbg < 0 || s->c->array[dbg].dtype != QN_F32 || s->c->array[dbg].elements != QN_HEALTH_COUNT) return QN_OK;
  float health[QN_HEALTH_COUNT];
  memcpy(health, s->c->array[dbg].data, sizeof health);
  return qn_health_status(s->folder->name, health);
}

static qn_status run(qn_kernel_session *s, bool *wrong)
{
  const qn_folder_size *size;
  qn_kernel_case_order order;
  qn_kernel_info info;
  double ns = 0;
  qn_try(qn_kernel_size_of(s, &size));
  qn_try(qn_kernel_case_of(s, size, &order));
  order.keep = true;
  qn_try(qn_kernel_case_create(&s->c, &order));
  if (s->order->verbose) qn_try(print_source(s->c));
  qn_try(launch(s, s->c, &info, &ns));
  if (s->order->json)
    print_json(s, s->c, &info, ns);
  else
    print_text(s, s->c, &info, ns);
  if (s->folder->outputs_file && !s->order->inputs.n) qn_try(compare_kept(s, s->c, wrong));
  if (s->order->out) qn_try(write_outputs(s->c, s->order->out));
  return judge(s);
}

static int run_here(void *order) { return qn_kernel_act(order, run); }

int qn_action_run(const qn_kernel_order *order) { return qn_kernel_apart(order, run_here); }

/* A folder that a capture made is one with its inputs in a file. */
int qn_action_replay(const qn_kernel_order *order)
{
  qn_folder *folder = NULL;
  if (qn_folder_read(order->folder, &folder) != QN_OK) return qn_complain_status(order->verb, QN_BAD_FILE);
  const bool captured = folder->inputs_file != NULL || folder->n_inputs == 0;
  qn_folder_free(&folder);
  if (captured) return qn_action_run(order);
  return qn_complain(order->verb, QN_EXIT_USAGE,
                     "%s is no captured launch: its kernel.json has no \"inputs_file\"; "
                     "`quern kernel run` makes inputs",
                     order->folder);
}
