/* SPDX-License-Identifier: Apache-2.0 */
/* emit_common.c - what several forms of an emitted kernel ask of its call. */
#include "kernel/emit.h"

enum { FLAT_GROUP = 256 };

void qn_emit_group(const qn_kernel_call *call, uint32_t group[3])
{
  uint32_t left = FLAT_GROUP;
  for (int d = 0; d < 3; d++) {
    uint32_t threads = 1;
    while (threads < call->grid[d] && 2 * threads <= left) threads *= 2;
    if (d == 2 && threads > 64) threads = 64;
    group[d] = call->group[0] ? call->group[d] : threads;
    left /= threads;
  }
}

uint64_t qn_emit_elements(const qn_tensor *tensor)
{
  uint64_t n = 1;
  for (int d = 0; d < tensor->ndim; d++) n *= (uint64_t)tensor->shape[d];
  return n;
}

static int64_t stride_of(const qn_tensor *tensor, int dimension)
{
  int64_t stride = 1;
  if (tensor->strides) return tensor->strides[dimension];
  for (int d = dimension + 1; d < tensor->ndim; d++) stride *= tensor->shape[d];
  return stride;
}

qn_status qn_emit_check_metal(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const qn_kernel_source *s = &kernel->source;
  if (s->dialect != QN_DIALECT_METAL)
    return qn_fail(QN_UNSUPPORTED, "kernel %s is written in CUDA's words, which have no Metal form", s->name);
  for (size_t k = 0; k < s->n_inputs + s->n_outputs; k++)
    if (qn_call_tensor(kernel, call, k)->dtype == QN_F64)
      return qn_fail(QN_UNSUPPORTED, "kernel %s: %s is f64, which Metal does not have", s->name,
                     qn_source_tensor_name(&kernel->source, k));
  for (size_t k = 0; k < call->n_templates; k++)
    if (call->templates[k].value.kind == QN_VALUE_DTYPE && call->templates[k].value.dtype == QN_F64)
      return qn_fail(QN_UNSUPPORTED, "kernel %s: template %s is f64, which Metal does not have", s->name,
                     call->templates[k].name);
  if (call->shared_bytes)
    return qn_fail(QN_UNSUPPORTED,
                   "kernel %s: %zu bytes of dynamic threadgroup memory, for which its Metal form has no "
                   "parameter",
                   s->name, call->shared_bytes);
  return QN_OK;
}

void qn_emit_output_shapes(const qn_kernel *kernel, const qn_kernel_call *call, qn_text *text)
{
  for (size_t k = 0; k < kernel->source.n_outputs; k++) {
    const qn_tensor *t = &call->outputs[k];
    const char *name = kernel->source.outputs[k];
    if (t->ndim && kernel->named_shape[1] >> k & 1) {
      qn_text_add(text, "const int %s_shape[] = {", name);
      for (int d = 0; d < t->ndim; d++) qn_text_add(text, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
      qn_text_add(text, "}; ");
    }
    if (t->ndim && kernel->named_strides[1] >> k & 1) {
      qn_text_add(text, "const int64_t %s_strides[] = {", name);
      for (int d = 0; d < t->ndim; d++) qn_text_add(text, "%s%lld", d ? ", " : "", (long long)stride_of(t, d));
      qn_text_add(text, "}; ");
    }
    if (kernel->named_ndim[1] >> k & 1) qn_text_add(text, "const int %s_ndim = %d; ", name, t->ndim);
  }
}
