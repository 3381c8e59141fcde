/* SPDX-License-Identifier: Apache-2.0 */
/* validate.c - all checks of a call before anything is written: counts, names, storage types, sizes,
 * devices, geometry, contracts, first values, in-place outputs, and at last the memory itself. Each refusal is a
 * sentence with kernel, tensor and values. What a device cannot do is known only once the kernel is compiled: that is
 * launch.c's. */
#include "kernel/call.h"
#include "kernel/launch.h"
#include <string.h>

const qn_tensor *qn_call_tensor(const qn_kernel *kernel, const qn_kernel_call *call, size_t k)
{
  return qn_is_input(kernel, k) ? &call->inputs[k] : &call->outputs[k - kernel->source.n_inputs];
}

static bool same_device(qn_device a, qn_device b) { return a.kind == b.kind && a.index == b.index; }

static qn_status check_shape(const qn_kernel *kernel, const char *name, const qn_tensor *t, bool shape_named)
{
  for (int d = 0; d < t->ndim; d++) {
    qn_require(t->shape[d] > 0, "kernel %s: %s has an extent of %lld, it must be above 0", kernel->source.name, name,
               (long long)t->shape[d]);
    qn_require(!shape_named || t->shape[d] <= INT32_MAX,
               "kernel %s: %s has an extent of %lld; %s_shape is of int, and holds at most %d", kernel->source.name,
               name, (long long)t->shape[d], name, INT32_MAX);
  }
  return QN_OK;
}

static qn_status check_tensor(const qn_kernel *kernel, const qn_tensor *t, size_t k)
{
  const char *name = qn_source_tensor_name(&kernel->source, k), *kernel_name = kernel->source.name;
  const bool input = qn_is_input(kernel, k);
  qn_require(qn_dtype_bytes(t->dtype), "kernel %s: %s has no storage type that is known (%d)", kernel_name, name,
             (int)t->dtype);
  qn_require(t->dtype != QN_F8E4M3, "kernel %s: %s is f8e4m3, which kernels from a body do not take: view it as u8",
             kernel_name, name);
  qn_require(t->ndim >= 0 && t->ndim <= QN_MAX_NDIM, "kernel %s: %s has %d dimensions, from 0 to %d are possible",
             kernel_name, name, t->ndim, QN_MAX_NDIM);
  qn_require(t->shape || !t->ndim, "kernel %s: the shape of %s is NULL", kernel_name, name);
  qn_require(input || qn_is_row_major(t), "kernel %s: output %s has strides; an output is row-major", kernel_name,
             name);
  const uint32_t named = kernel->named_shape[!input];
  return check_shape(kernel, name, t, named >> (input ? k : k - kernel->source.n_inputs) & 1);
}

qn_status qn_call_check_tensors(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const qn_kernel_source *s = &kernel->source;
  qn_require(call && call->size == sizeof *call, "kernel %s: the call is NULL or has another size than %zu", s->name,
             sizeof *call);
  qn_require(call->inputs || !s->n_inputs, "kernel %s: its inputs are NULL", s->name);
  qn_require(call->outputs, "kernel %s: its outputs are NULL", s->name);
  for (size_t k = 0; k < s->n_inputs + s->n_outputs; k++)
    qn_try(check_tensor(kernel, qn_call_tensor(kernel, call, k), k));
  return QN_OK;
}

/* All lie on the launch's device, but for values. */
static qn_status check_devices(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  for (size_t k = 0; k < kernel->source.n_inputs + kernel->source.n_outputs; k++) {
    const qn_tensor *t = qn_call_tensor(kernel, call, k);
    qn_require(same_device(t->device, exec->device) || (qn_is_input(kernel, k) && !t->ndim && t->device.kind == QN_CPU),
               "kernel %s: %s lies on %s:%d, the launch is for %s:%d", kernel->source.name,
               qn_source_tensor_name(&kernel->source, k), qn_device_kind_name(t->device.kind), t->device.index,
               qn_device_kind_name(exec->device.kind), exec->device.index);
  }
  return QN_OK;
}

static qn_status check_templates(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const char *name = kernel->source.name;
  qn_require(call->n_templates <= QN_KERNEL_MAX_TEMPLATES, "kernel %s: %zu template values, at most %d", name,
             call->n_templates, QN_KERNEL_MAX_TEMPLATES);
  qn_require(call->templates || !call->n_templates, "kernel %s: its template values are NULL", name);
  for (size_t k = 0; k < call->n_templates; k++) {
    const qn_template *t = &call->templates[k];
    qn_require(t->name && qn_is_identifier(t->name) && strlen(t->name) < 128,
               "kernel %s: template name \"%.64s\" is no identifier", name, t->name ? t->name : "");
    qn_require(t->value.kind == QN_VALUE_BOOL || t->value.kind == QN_VALUE_INT || t->value.kind == QN_VALUE_DTYPE,
               "kernel %s: template %s is neither a bool, an int nor a storage type", name, t->name);
    qn_require(t->value.kind != QN_VALUE_DTYPE || qn_dtype_bytes(t->value.dtype),
               "kernel %s: template %s is no storage type that is known (%d)", name, t->name, (int)t->value.dtype);
    qn_require(t->value.kind != QN_VALUE_DTYPE || t->value.dtype != QN_F8E4M3,
               "kernel %s: template %s is f8e4m3, for which kernels from a body have no word", name, t->name);
    for (size_t j = 0; j < k; j++)
      qn_require(strcmp(t->name, call->templates[j].name), "kernel %s: template %s is given twice", name, t->name);
  }
  return QN_OK;
}

static qn_status check_geometry(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const uint64_t threads = (uint64_t)call->group[0] * call->group[1] * call->group[2];
  const char *name = kernel->source.name;
  for (int d = 0; d < 3; d++) {
    qn_require(call->grid[d] >= 1 && call->grid[d] < UINT32_MAX,
               "kernel %s: grid (%llu, %llu, %llu): each must be from 1 to %u", name, (unsigned long long)call->grid[0],
               (unsigned long long)call->grid[1], (unsigned long long)call->grid[2], UINT32_MAX - 1);
  }
  if (!call->group[0] && !call->group[1] && !call->group[2]) return QN_OK;
  qn_require(threads, "kernel %s: threadgroup (%u, %u, %u): each must be at least 1, or all 0 to have it chosen", name,
             call->group[0], call->group[1], call->group[2]);
  qn_require(call->group[0] <= QN_KERNEL_MAX_GROUP && call->group[1] <= QN_KERNEL_MAX_GROUP &&
                 call->group[2] <= QN_KERNEL_MAX_GROUP && threads <= QN_KERNEL_MAX_GROUP,
             "kernel %s: threadgroup (%u, %u, %u) has %llu threads, at most %d are possible", name, call->group[0],
             call->group[1], call->group[2], (unsigned long long)threads, QN_KERNEL_MAX_GROUP);
  return QN_OK;
}

/* The body reads the input's memory by the input's shape and writes it by the output's: both row-major. */
static qn_status check_in_place(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 0; call->stored_in && k < s->n_outputs; k++) {
    const int home = call->stored_in[k];
    if (home == -1) continue;
    qn_require(home >= 0 && (size_t)home < s->n_inputs,
               "kernel %s: output %s is said to be stored in input %d, there are %zu (-1: in none)", s->name,
               s->outputs[k], home, s->n_inputs);
    const qn_tensor *t = &call->inputs[home];
    qn_require(t->ndim || t->device.kind != QN_CPU,
               "kernel %s: output %s cannot be stored in input %s, which is a value", s->name, s->outputs[k],
               s->inputs[home]);
    qn_require(qn_is_row_major(t), "kernel %s: output %s cannot be stored in input %s, which is not row-major", s->name,
               s->outputs[k], s->inputs[home]);
    for (size_t j = 0; j < k; j++)
      qn_require(call->stored_in[j] != home, "kernel %s: outputs %s and %s are both said to be stored in input %s",
                 s->name, s->outputs[j], s->outputs[k], s->inputs[home]);
  }
  return QN_OK;
}

static qn_status check_atomic(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 0; s->atomic && k < s->n_outputs; k++) {
    const qn_dtype dtype = call->outputs[k].dtype;
    qn_require(!(s->atomic >> k & 1) || (qn_dtype_bytes(dtype) > 1 && dtype != QN_C64),
               "kernel %s: output %s is atomic, and there are no atomic operations on %s", s->name, s->outputs[k],
               qn_dtype_name(dtype));
  }
  return QN_OK;
}

qn_status qn_call_check(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  const qn_backend *backend;
  qn_require(kernel, "the kernel is NULL");
  const qn_kernel_source *s = &kernel->source;
  qn_require(exec && exec->size == sizeof *exec, "kernel %s: exec is NULL or has another size than %zu", s->name,
             sizeof *exec);
  qn_try(qn_backend_of(exec->device, &backend));
  qn_try(qn_call_check_tensors(kernel, call));
  qn_try(check_devices(kernel, exec, call));
  qn_try(check_templates(kernel, call));
  qn_try(check_geometry(kernel, call));
  qn_require(!(call->ignore >> QN_FINDING_KIND_COUNT) && !(call->ignore >> QN_FINDING_TIME_LIMIT & 1),
             "kernel %s: 0x%x has bits for findings that are none, or for the time limit", s->name, call->ignore);
  qn_require(call->limit_ns >= 0, "kernel %s: a time limit of %lld ns", s->name, (long long)call->limit_ns);
  qn_require(call->shared_bytes <= UINT32_MAX, "kernel %s: %zu bytes of shared memory a group", s->name,
             call->shared_bytes);
  if (call->stored_in) qn_try(check_in_place(kernel, call));
  if (s->atomic) qn_try(check_atomic(kernel, call));
  if (call->init) qn_try(qn_outputs_check_init(kernel, call));
  return s->contracts ? qn_contracts_check(kernel, call) : QN_OK;
}

/* ---- memory ---- */
qn_status qn_call_check_memory(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  for (size_t k = 0; k < kernel->source.n_inputs + kernel->source.n_outputs; k++) {
    const qn_tensor *t = qn_call_tensor(kernel, call, k);
    qn_require(t->data, "kernel %s: the data of %s is NULL", kernel->source.name,
               qn_source_tensor_name(&kernel->source, k));
    qn_require((uintptr_t)t->data % (t->dtype == QN_C64 ? 4 : qn_dtype_bytes(t->dtype)) == 0,
               "kernel %s: %s begins at %p, which is not aligned to its %zu-byte elements", kernel->source.name,
               qn_source_tensor_name(&kernel->source, k), t->data, qn_dtype_bytes(t->dtype));
  }
  return qn_call_check_spans(kernel, exec, call);
}
