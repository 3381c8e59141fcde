/* SPDX-License-Identifier: Apache-2.0 */
/* emit.h - what the forms of an emitted kernel share: emit.c checks and chooses, emit_device.c (with
 * emit_header.c) writes CUDA C and HIP C, emit_metal.c the Metal function, emit_mlx.c the Python. All get a call that
 * was checked. */
#ifndef QN_KERNEL_EMIT_H
#define QN_KERNEL_EMIT_H
#include "kernel/launch.h"

qn_status qn_emit_device(const qn_kernel *kernel, bool hip, const qn_kernel_call *call, qn_text *text);
qn_status qn_emit_metal(const qn_kernel *kernel, const qn_kernel_call *call, qn_text *text);

/* Python's words in place of the numbers of one call, for a program that serves all sizes; NULL: the number. */
typedef struct qn_emit_words {
  const char *functions;  /* before the kernel's own */
  const char *parameters; /* of the function, behind its inputs: ", *, m=32" */
  const char *statements; /* its first lines */
  const char *grid, *group;
  const char *output_shape[QN_KERNEL_MAX_TENSORS];
  const char *template_value[QN_KERNEL_MAX_TEMPLATES];
} qn_emit_words;
qn_status qn_emit_mlx(const qn_kernel *kernel, const qn_kernel_call *call, const qn_emit_words *words, qn_text *text);
/* qn_kernel_emit of MLX's form with words. */
qn_status qn_kernel_emit_mlx(const qn_kernel *kernel, const qn_kernel_call *call, const qn_emit_words *words,
                             char **text);

/* The call's group, or one of 256 threads at most where it leaves the choice. */
void qn_emit_group(const qn_kernel_call *call, uint32_t group[3]);
uint64_t qn_emit_elements(const qn_tensor *tensor);
/* QN_UNSUPPORTED: a type, a template value or dynamic memory that Metal has not. */
qn_status qn_emit_check_metal(const qn_kernel *kernel, const qn_kernel_call *call);
/* Metal knows no shapes of outputs: constants of this call, in one line, for a body that names them. */
void qn_emit_output_shapes(const qn_kernel *kernel, const qn_kernel_call *call, qn_text *text);
/* A header with QN_DEVICE before each function that says nothing of that kind. */
qn_status qn_emit_mark_functions(const qn_tokens *tokens, qn_text *text);
/* Text in Metal's dialect with `thread` before each pointer, reference or array parameter that names no place. */
qn_status qn_emit_mark_parameters(const qn_tokens *tokens, qn_text *text);
#endif
