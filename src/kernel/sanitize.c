/* SPDX-License-Identifier: Apache-2.0 */
/* sanitize.c - a launch with checks or a time limit: on the processor the arrays that its sanitizer needs to know, on
 * a GPU a wait that ends. What is found and how is the emulator's business (device/emulator/sanitizer.h). */
#include "kernel/sanitize.h"
#include "device/emulator/sanitizer.h"
#include "kernel/call.h"
#include "kernel/launch.h"

qn_status qn_sanitized_flags(const qn_special *special, bool fibers, const char *const *math,
                             const char *flags[QN_UNIT_FLAGS])
{
  const char *const *sanitizer = NULL, *const *frame = NULL;
  size_t n = 0;
  if (special->target != QN_CUDA && (fibers || special->check || special->limit)) qn_try(qn_fiber_flags(&frame));
  if (special->check || special->limit) qn_try(qn_sanitizer_flags(special->check, &sanitizer));
  for (; *math && n + 1 < QN_UNIT_FLAGS; math++) flags[n++] = *math;
  for (; sanitizer && *sanitizer && n + 1 < QN_UNIT_FLAGS; sanitizer++) flags[n++] = *sanitizer;
  for (; frame && *frame && n + 1 < QN_UNIT_FLAGS; frame++) flags[n++] = *frame;
  flags[n] = NULL;
  return QN_OK;
}

/* Bit k: an output is stored in input k. */
static uint32_t inputs_written(const qn_kernel *kernel, const qn_kernel_call *call)
{
  uint32_t written = 0;
  for (size_t k = 0; call->stored_in && k < kernel->source.n_outputs; k++)
    if (call->stored_in[k] >= 0) written |= UINT32_C(1) << call->stored_in[k];
  return written;
}

static bool has_first_values(const qn_kernel *kernel, const qn_kernel_call *call, size_t k)
{
  const size_t output = k - kernel->source.n_inputs;
  return (call->init && call->init[output].kind != QN_VALUE_NONE) || (call->stored_in && call->stored_in[output] >= 0);
}

static qn_status list_arrays(const qn_kernel *kernel, const qn_kernel_call *call, const qn_tensor *const *tensor,
                             qn_sanitizer_array *array, size_t *n)
{
  const uint32_t written = inputs_written(kernel, call);
  *n = 0;
  for (size_t k = 0; k < kernel->source.n_inputs + kernel->source.n_outputs; k++) {
    uintptr_t begin, end;
    const char *name = qn_source_tensor_name(&kernel->source, k);
    const bool input = qn_is_input(kernel, k);
    qn_try(qn_tensor_span(kernel->source.name, name, tensor[k], &begin, &end));
    if (begin == end) continue;
    array[(*n)++] = (qn_sanitizer_array){.name = name,
                                         .data = (const char *)tensor[k]->data - ((uintptr_t)tensor[k]->data - begin),
                                         .bytes = end - begin,
                                         .element_bytes = (uint32_t)qn_dtype_bytes(tensor[k]->dtype),
                                         .writable = !input || written >> k & 1,
                                         .initialised = input || has_first_values(kernel, call, k)};
  }
  return QN_OK;
}

/* The first finding's sentence, and beneath it the lines of the body that it speaks of. */
static qn_status show_lines(const qn_kernel *kernel, qn_status status)
{
  char shown[QN_SHOWN_BYTES] = "";
  qn_finding f = {.size = sizeof f};
  if (status != QN_KERNEL_ERROR || !qn_kernel_finding_count() || qn_kernel_finding_at(0, &f) != QN_OK) return status;
  qn_show_line(kernel->source.body, f.line, shown);
  if (f.other_line != f.line) qn_show_line(kernel->source.body, f.other_line, shown);
  return qn_fail(status, "%s%s", f.text, shown);
}

static qn_status launch_on_host(const qn_kernel *kernel, const qn_kernel_call *call, const uint32_t group[3],
                                const qn_tensor *const *tensor, const qn_device_function *function,
                                const qn_launch *launch)
{
  qn_sanitizer_array array[QN_KERNEL_MAX_TENSORS];
  qn_sanitizer_plan plan = {.kernel = kernel->source.name,
                            .file = kernel->source.file,
                            .function = function,
                            .arrays = array,
                            .full_groups = kernel->source.dialect == QN_DIALECT_CUDA,
                            .may_return = kernel->source.dialect == QN_DIALECT_CUDA,
                            .check = call->check != 0,
                            .limit_ns = call->limit_ns,
                            .seed = call->seed,
                            .ignored = call->ignore};
  for (int d = 0; d < 3; d++) {
    plan.grid[d] = call->grid[d];
    plan.group[d] = group[d];
  }
  qn_launch sanitized = *launch;
  qn_try(list_arrays(kernel, call, tensor, array, &plan.n_arrays));
  qn_try(qn_sanitizer_create(&sanitized.sanitizer, &plan));
  if (plan.check) sanitized.pool = NULL; /* one thread: the report is the same each time */
  const qn_status status = qn_backend_emulator.launch((qn_device){QN_EMULATOR, 0}, function, &sanitized);
  return show_lines(kernel, qn_sanitizer_end(&sanitized.sanitizer, status));
}

qn_status qn_launch_sanitized(const qn_kernel *kernel, const qn_kernel_call *call, const uint32_t group[3],
                              const qn_tensor *const *tensor, qn_device device, const qn_device_function *function,
                              const qn_launch *launch)
{
  const qn_backend *backend;
  bool done = true;
  if (device.kind == QN_EMULATOR) return launch_on_host(kernel, call, group, tensor, function, launch);
  qn_try(qn_backend_of(device, &backend));
  qn_try(backend->launch(device, function, launch));
  qn_try(backend->stream_await(device, launch->stream, call->limit_ns, &done));
  if (done) return QN_OK;
  return qn_fail(
      QN_KERNEL_ERROR,
      "kernel %s ran longer than %g ms and runs still: a GPU's kernel cannot be stopped, and its stream waits "
      "for it",
      kernel->source.name, (double)call->limit_ns * 1e-6);
}
