/* SPDX-License-Identifier: Apache-2.0 */
/* span.c - a call's tensors as ranges of addresses: is one row-major, where does one begin and end, and does what is
 * written share memory with anything else. At most 64 of them: all pairs are looked at. */
#include "kernel/call.h"

bool qn_is_row_major(const qn_tensor *t)
{
  int64_t want = 1;
  bool row_major = true;
  if (!t->strides) return true;
  for (int k = t->ndim - 1; k >= 0; k--) {
    if (t->shape[k] == 0) return true;
    row_major &= t->shape[k] == 1 || t->strides[k] == want;
    if (__builtin_mul_overflow(want, t->shape[k], &want)) return false;
  }
  return row_major;
}

qn_status qn_tensor_span(const char *kernel, const char *name, const qn_tensor *t, uintptr_t *begin, uintptr_t *end)
{
  int64_t low = 0, high = 1, step = 1, reach; /* in elements, from data */
  bool fits = true, empty = false;
  for (int k = 0; k < t->ndim; k++) empty |= t->shape[k] == 0;
  for (int k = t->ndim - 1; k >= 0 && fits && !empty; k--) {
    const int64_t stride = t->strides ? t->strides[k] : step;
    fits = !__builtin_mul_overflow(step, t->shape[k], &step) &&
           !__builtin_mul_overflow(t->shape[k] - 1, stride, &reach) &&
           !__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
  }
  const int64_t bytes = (int64_t)qn_dtype_bytes(t->dtype);
  fits = fits && !__builtin_mul_overflow(low, bytes, &low) && !__builtin_mul_overflow(high, bytes, &high);
  const uintptr_t at = (uintptr_t)t->data;
  *begin = *end = at;
  if (empty) return QN_OK;
  fits = fits && (uintptr_t)-low <= at && !__builtin_add_overflow(at, (uintptr_t)high, end);
  *begin = at - (uintptr_t)-low;
  qn_require(fits, "%s: \"%s\": shape and strides reach outside of all memory", kernel, name);
  return QN_OK;
}

/* One range and whose it is: inputs, then outputs, then the workspace. */
typedef struct range {
  uintptr_t begin, end;
  const char *what, *name;
} range;

static bool share(const range *a, const range *b)
{
  return a->begin < b->end && b->begin < a->end && a->begin < a->end && b->begin < b->end;
}

static qn_status fail_shared(const qn_kernel *kernel, const range *a, const range *b, const char *why)
{
  return qn_fail(QN_BAD_ARGUMENT, "%s: %s \"%s\" (0x%zx to 0x%zx) and %s \"%s\" (0x%zx to 0x%zx) share memory%s",
                 kernel->source.name, a->what, a->name, (size_t)a->begin, (size_t)a->end, b->what, b->name,
                 (size_t)b->begin, (size_t)b->end, why);
}

/* A value is taken before anything is written. */
static bool is_value(const qn_tensor *t) { return t->ndim == 0 && t->device.kind == QN_CPU; }

static qn_status find_ranges(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, range *ranges)
{
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 0; k < s->n_inputs; k++) {
    ranges[k] = (range){.what = "input", .name = s->inputs[k]};
    if (is_value(&call->inputs[k])) continue;
    qn_try(qn_tensor_span(s->name, s->inputs[k], &call->inputs[k], &ranges[k].begin, &ranges[k].end));
  }
  for (size_t k = 0; k < s->n_outputs; k++) {
    range *r = &ranges[s->n_inputs + k];
    *r = (range){.what = "output", .name = s->outputs[k]};
    qn_try(qn_tensor_span(s->name, s->outputs[k], &call->outputs[k], &r->begin, &r->end));
  }
  const uintptr_t lent = (uintptr_t)exec->workspace;
  ranges[s->n_inputs + s->n_outputs] =
      (range){lent, lent ? lent + exec->workspace_bytes : lent, "the call's", "workspace"};
  return QN_OK;
}

static qn_status check_in_place(const qn_kernel *kernel, const range *output, const range *input)
{
  if (output->begin == input->begin && output->end <= input->end) return QN_OK;
  return qn_fail(QN_BAD_ARGUMENT,
                 "%s: output \"%s\" (0x%zx to 0x%zx) is said to be stored in input \"%s\" (0x%zx to 0x%zx): it must "
                 "begin there and be no longer",
                 kernel->source.name, output->name, (size_t)output->begin, (size_t)output->end, input->name,
                 (size_t)input->begin, (size_t)input->end);
}

qn_status qn_call_check_spans(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  const size_t n_inputs = kernel->source.n_inputs, n = n_inputs + kernel->source.n_outputs;
  range ranges[2 * QN_KERNEL_MAX_TENSORS + 1];
  qn_try(find_ranges(kernel, exec, call, ranges));
  for (size_t k = n_inputs; k < n; k++) {
    const int home = call->stored_in ? call->stored_in[k - n_inputs] : -1;
    if (home >= 0) qn_try(check_in_place(kernel, &ranges[k], &ranges[home]));
    for (size_t j = 0; j < k; j++)
      if ((int)j != home && share(&ranges[j], &ranges[k]))
        return fail_shared(kernel, &ranges[k], &ranges[j],
                           j < n_inputs ? "; an output that may be stored in an input says so in stored_in" : "");
  }
  for (size_t k = 0; k < n; k++)
    if (share(&ranges[k], &ranges[n])) return fail_shared(kernel, &ranges[k], &ranges[n], "");
  return QN_OK;
}
