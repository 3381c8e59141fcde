/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - a kernel's source to keep or to hand to another build. The call is checked as a launch of it would be, and
 * nothing is compiled or run. */
#include "kernel/emit.h"

const char *qn_emit_name(qn_emit form)
{
  static const char *const names[QN_EMIT_COUNT] = {"cuda", "hip", "metal", "mlx"};
  return (unsigned)form < QN_EMIT_COUNT ? names[form] : "none";
}

static qn_status emit(const qn_kernel *kernel, qn_emit form, const qn_kernel_call *call, const qn_emit_words *words,
                      qn_text *text)
{
  switch (form) {
  case QN_EMIT_CUDA: return qn_emit_device(kernel, false, call, text);
  case QN_EMIT_HIP: return qn_emit_device(kernel, true, call, text);
  case QN_EMIT_METAL: return qn_emit_metal(kernel, call, text);
  default: return qn_emit_mlx(kernel, call, words, text);
  }
}

static qn_status emit_with(const qn_kernel *kernel, qn_emit form, const qn_kernel_call *call,
                           const qn_emit_words *words, char **text)
{
  qn_text made = {0};
  qn_require(text, "qn_kernel_emit: where to put the text is NULL");
  *text = NULL;
  qn_require(kernel, "qn_kernel_emit: the kernel is NULL");
  qn_require((unsigned)form < QN_EMIT_COUNT, "kernel %s: %d is no form of source", kernel->source.name, (int)form);
  qn_require(call && call->size == sizeof *call && call->outputs, "kernel %s: the call has no outputs, or another size",
             kernel->source.name);
  const qn_exec exec = {.size = sizeof exec, .device = call->outputs[0].device};
  qn_try(qn_call_check(kernel, &exec, call));
  qn_status status = emit(kernel, form, call, words, &made);
  if (status == QN_OK && made.failed)
    status = qn_fail(QN_NO_MEMORY, "kernel %s: no memory for its text", kernel->source.name);
  if (status == QN_OK)
    *text = made.at;
  else
    qn_text_free(&made);
  return status;
}

qn_status qn_kernel_emit(const qn_kernel *kernel, qn_emit form, const qn_kernel_call *call, char **text)
{
  static const qn_emit_words none;
  return emit_with(kernel, form, call, &none, text);
}

qn_status qn_kernel_emit_mlx(const qn_kernel *kernel, const qn_kernel_call *call, const qn_emit_words *words,
                             char **text)
{
  return emit_with(kernel, QN_EMIT_MLX, call, words, text);
}
