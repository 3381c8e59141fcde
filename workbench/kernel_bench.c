/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bench.c - see kernel_bench.h. */
#include "workbench/kernel_bench.h"
#include "core/core.h"
#include "workbench/kernel_check.h"
#include "workbench/kernel_compare.h"
#include "workbench/measure.h"
#include <string.h>
#include <unistd.h>

enum { MOST_REFERENCE = 1 << 24 }; /* elements of all tensors that a reference in double still runs over */

/* ---- proof ---- */
static uint64_t elements_of(const qn_kernel_case *c)
{
  uint64_t n = 0;
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) n += c->array[k].elements;
  return n;
}

static qn_status prove_by_reference(qn_kernel_case *c, qn_stage_check *check)
{
  qn_kernel_case *reference = NULL;
  qn_status status = qn_kernel_case_reference(c, &reference);
  if (status == QN_OK) status = qn_kernel_case_run(c, 0xff);
  if (status == QN_OK) check->right = qn_kernel_case_right(c, reference, check->wrong, sizeof check->wrong);
  if (reference) qn_kernel_case_destroy(&reference);
  return status;
}

/* What the outputs held before must not show in what they hold after. */
static qn_status prove_by_itself(qn_kernel_case *c, qn_stage_check *check)
{
  void *first[QN_KERNEL_MAX_TENSORS] = {NULL};
  qn_status status = qn_kernel_case_run(c, 0xff);
  if (status == QN_OK) status = qn_kernel_outputs_keep(c, first);
  if (status == QN_OK) status = qn_kernel_case_run(c, 0x5b);
  check->right = status == QN_OK && qn_kernel_case_right(c, NULL, check->wrong, sizeof check->wrong);
  if (check->right)
    check->right =
        qn_kernel_outputs_same(c, first, "over other values before it was", check->wrong, sizeof check->wrong);
  for (size_t k = 0; k < c->n_outputs; k++) qn_release(first[k]);
  return status;
}

qn_status qn_kernel_prove(qn_kernel_case *c, char *proof, size_t bytes, qn_stage_check *check)
{
  const bool reference = c->folder->reference.source && elements_of(c) <= MOST_REFERENCE;
  *check = (qn_stage_check){.right = false};
  for (size_t k = 0; k < c->n_outputs; k++) check->elements += qn_kernel_output(c, k)->elements;
  snprintf(proof, bytes, "%s",
           reference                     ? "agree with the reference in double"
           : c->folder->reference.source ? "do not depend on their former values; too large for the reference"
                                         : "do not depend on their former values; there is no reference");
  return reference ? prove_by_reference(c, check) : prove_by_itself(c, check);
}

/* ---- times ---- */
static qn_status run_case(void *user) { return qn_kernel_case_launch(user); }

static double written_bytes(const qn_kernel_case *c)
{
  double bytes = 0;
  for (size_t k = 0; k < c->n_outputs; k++)
    bytes += (double)qn_kernel_output(c, k)->elements * (double)qn_dtype_bytes(qn_kernel_output(c, k)->dtype);
  return bytes;
}

static qn_status measure(qn_kernel_bench *k, qn_kernel_case *c, qn_kernel_case *other)
{
  qn_bench *b = &k->b;
  const qn_measured what = {.name = b->of.name,
                            .against_name = b->of.against,
                            .run = run_case,
                            .against = run_case,
                            .user = c,
                            .against_user = other,
                            .bytes = b->of.bytes,
                            .against_bytes = other ? other->bytes : 0,
                            .written = written_bytes(c),
                            .set_bytes = b->of.set_bytes,
                            .seconds = c->exec.device.kind == QN_CUDA ? 3 : 6};
  if (other) other->exec.stream = c->exec.stream; /* one stream, or the clocks of the device would not see both */
  qn_try(qn_measure(b, &what, &c->exec));
  qn_bench_judge(b->fused.time.median, b->floor_ns, 0, b->suspicion, sizeof b->suspicion, &b->impossible);
  return QN_OK;
}

/* The host's time of a warm launch, of the smallest size. */
static qn_status time_host(const qn_kernel_bench_request *ask, qn_kernel_bench *k)
{
  qn_kernel_case_order order = ask->order;
  qn_kernel_case *c = NULL;
  order.size = ask->small;
  qn_status status = qn_kernel_case_create(&c, &order);
  if (status == QN_OK) status = qn_measure_host(&c->exec, run_case, c, &k->b.host_same_ns);
  k->b.host_moved_ns = k->b.host_same_ns; /* a launch takes its pointers anew each time */
  k->b.has_host = status == QN_OK;
  if (c) qn_kernel_case_destroy(&c);
  return status;
}

/* ---- the run ---- */
static void describe(const qn_kernel_bench_request *ask, qn_bench *b, const qn_kernel_case *c)
{
  qn_bench_subject *of = &b->of;
  size_t used = 0;
  of->is_kernel = true;
  snprintf(of->name, sizeof of->name, "%s", c->folder->name);
  snprintf(of->workload, sizeof of->workload, "%s", ask->order.size->name);
  if (ask->against) snprintf(of->against, sizeof of->against, "%s", ask->against->folder->name);
  of->tensors = (int64_t)(c->n_inputs + c->n_outputs);
  of->elements = (int64_t)elements_of(c);
  of->bytes = c->bytes;
  of->operations = c->operations;
  for (size_t i = 0; i < c->n_inputs + c->n_outputs; i++) {
    of->set_bytes += (double)c->array[i].elements * (double)qn_dtype_bytes(c->array[i].dtype);
    if (used < sizeof b->types)
      snprintf(b->types + used, sizeof b->types - used, "%s%s", used ? " " : "", qn_dtype_name(c->array[i].dtype));
    used = strlen(b->types);
  }
  qn_kernel_case_text(c, of->settings, sizeof of->settings);
  snprintf(of->amount, sizeof of->amount, "%.900s, %.4g MB", of->settings, of->bytes * 1e-6);
  b->cache = qn_measure_cache(b, of->set_bytes);
  if (c->exec.device.kind == QN_CUDA)
    snprintf(b->variant, sizeof b->variant, "sm_%d", b->device.arch);
  else
    snprintf(b->variant, sizeof b->variant, "c++");
}

static qn_status prove(qn_kernel_bench *k, qn_kernel_case *c, qn_kernel_case *other)
{
  char proof[96];
  qn_try(qn_kernel_prove(c, k->b.of.proof, sizeof k->b.of.proof, &k->b.check));
  if (other) qn_try(qn_kernel_prove(other, proof, sizeof proof, &k->b.unfused_check));
  k->b.has_unfused = other && k->b.unfused_check.right;
  return QN_OK;
}

qn_status qn_kernel_bench_run(const qn_kernel_bench_request *ask, qn_kernel_bench *k)
{
  qn_kernel_case *c = NULL, *other = NULL;
  *k = (qn_kernel_bench){.workload = ask->order.size->name, .b.of.info.size = sizeof k->b.of.info};
  k->b.ask = (qn_bench_request){.device = ask->order.device,
                                .pool = ask->order.pool,
                                .timer = QN_TIMER_EVENT,
                                .hot = ask->hot,
                                .seconds = ask->seconds,
                                .trace = ask->trace,
                                .progress = ask->progress};
  k->b.mix = QN_MIX_COPY;
  k->b.device.size = sizeof k->b.device;
  qn_try(qn_device_query(ask->order.device, &k->b.device));
  qn_status status = qn_kernel_case_create(&c, &ask->order);
  if (status == QN_OK && ask->against) status = qn_kernel_case_create(&other, ask->against);
  if (status == QN_OK) describe(ask, &k->b, c);
  if (status == QN_OK) status = qn_kernel_query(c->kernel, &c->exec, &c->call, &k->b.of.info);
  if (status == QN_OK) status = prove(k, c, other);
  if (status == QN_OK && k->b.check.right) status = measure(k, c, k->b.has_unfused ? other : NULL);
  if (status == QN_OK && k->b.timed && ask->small) status = time_host(ask, k);
  if (other) other->exec.stream = other->stream;
  if (other) qn_kernel_case_destroy(&other);
  if (c) qn_kernel_case_destroy(&c);
  return status;
}

/* ---- first use ---- */
static qn_status prepare_empty(const qn_kernel_case *c, const char *mark, double *ns)
{
  static const int64_t shape[] = {1};
  static const char *const outputs[] = {"out"};
  char body[64];
  snprintf(body, sizeof body, "out[0] = 0; // %s\n", mark);
  const qn_kernel_source source = {
      .size = sizeof source, .name = "empty", .body = body, .n_outputs = 1, .outputs = outputs};
  qn_tensor out = {c->tensor[c->n_inputs].data, QN_F32, 1, shape, NULL, c->exec.device};
  const qn_kernel_call call = {.size = sizeof call, .outputs = &out, .grid = {1, 1, 1}, .group = {1, 1, 1}};
  qn_kernel *kernel;
  qn_try(qn_kernel_create(&kernel, &source));
  int64_t from = qn_now_ns();
  qn_status status = qn_kernel_prepare(kernel, &c->exec, &call);
  *ns = (double)(qn_now_ns() - from);
  qn_kernel_destroy(&kernel);
  return status;
}

qn_status qn_kernel_first_use_here(const qn_kernel_case_order *order, bool empty, double *ns)
{
  qn_kernel_case *c = NULL;
  char mark[32];
  double ignored;
  snprintf(mark, sizeof mark, "%ld", (long)getpid()); /* never on disk, so that the compiler is loaded */
  qn_status status = qn_kernel_case_create(&c, order);
  if (status == QN_OK) status = prepare_empty(c, mark, empty ? ns : &ignored);
  if (status == QN_OK && !empty) {
    int64_t from = qn_now_ns();
    status = qn_kernel_prepare(c->kernel, &c->exec, &c->call);
    *ns = (double)(qn_now_ns() - from);
  }
  if (c) qn_kernel_case_destroy(&c);
  return status;
}
