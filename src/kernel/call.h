/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - what a call is held against before its launch, and what is made ready around it: contracts, memory that must
 * not be shared, row-major copies, values that outputs begin with, and the record of a capture. The launch itself is
 * launch.c's. */
#ifndef QN_KERNEL_CALL_H
#define QN_KERNEL_CALL_H
#include "kernel/kernel.h"

/* ---- check.c (qn_call_check is in launch.h) ---- */
qn_status qn_call_check_tensors(const qn_kernel *kernel, const qn_kernel_call *call);
/* Data: there, aligned, and not shared where it must not be. */
qn_status qn_call_check_memory(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);

/* ---- contract.c ----
 *     contract  [types] [shape] ["dense"]
 *     types     f32|f16|...   or any   or inp.dtype, the type of the input of that name
 *     shape     as in core/shape_rule.h: a word is the same extent wherever it stands, an expression is of words before
 *               it, "like" of a tensor before it
 * At creation: QN_BAD_ARGUMENT with the place of what is wrong. (Against a call: qn_contracts_check.) */
qn_status qn_contracts_parse(const qn_kernel_source *source);

/* ---- span.c: memory as addresses ---- */
/* Row-major, whatever strides say of extents of 1; an empty one is. */
bool qn_is_row_major(const qn_tensor *tensor);
/* The bytes that its elements take, with strides of either sign; empty: begin == end. QN_BAD_ARGUMENT: more than the
 * address space has. */
qn_status qn_tensor_span(const char *kernel, const char *name, const qn_tensor *tensor, uintptr_t *begin,
                         uintptr_t *end);
/* Outputs share nothing with each other, with exec's workspace, nor with an input other than the one whose memory
 * `stored_in` says that they are given: there they begin together and the output is no longer. Values share nothing. */
qn_status qn_call_check_spans(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);

/* ---- inputs.c: row-major copies ---- */
typedef struct qn_inputs {
  const qn_tensor *tensor; /* the call's, or `copied` where some of them were */
  qn_tensor copied[QN_KERNEL_MAX_TENSORS];
  void *own; /* processor: memory of this call; NULL */
} qn_inputs;
/* Makes what needs it row-major, in exec's workspace or, on the processor, in memory of its own. Given back behind the
 * launch; after a failure there is nothing to give back. On a GPU the copies are made in the stream's order. */
qn_status qn_inputs_copy(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, qn_inputs *inputs);
void qn_inputs_release(qn_inputs *inputs);
/* Compiles the kernels that a launch would copy with; nothing on the processor. */
qn_status qn_inputs_prepare(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);

/* ---- move.c: fills and row-major copies, by loops on the processor; by a kernel in the stream's order on a GPU, and,
 * where it is asked for by name, on any device. to NULL: the kernel is compiled and loaded, no more. ---- */
qn_status qn_fill_elements(const qn_exec *exec, const unsigned char *element, size_t bytes, void *to, uint64_t n);
qn_status qn_fill_by_kernel(const qn_exec *exec, const unsigned char *element, size_t bytes, void *to, uint64_t n);
bool qn_is_one_byte(const unsigned char *element, size_t bytes); /* a GPU's driver fills with such a one */
qn_status qn_copy_strided(const qn_exec *exec, const qn_tensor *from, void *to);
qn_status qn_copy_by_kernel(const qn_exec *exec, const qn_tensor *from, void *to);
void qn_copy_by_loops(qn_pool *pool, const qn_tensor *from, void *to);

/* ---- init.c: values as elements; what outputs hold before the body runs ---- */
/* An element of dtype as a value; false: complex numbers, and whole ones that are no int64_t. */
bool qn_value_load(const void *element, qn_dtype dtype, qn_value *value);
/* The other way; what of which tensor the value is ("first value") is for the sentence about one that does not fit. */
qn_status qn_value_store(const qn_value *value, qn_dtype dtype, const char *kernel, const char *what,
                         const char *tensor, unsigned char element[8]);
qn_status qn_outputs_check_init(const qn_kernel *kernel, const qn_kernel_call *call);
qn_status qn_outputs_prepare(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);
qn_status qn_outputs_init(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);

/* ---- capture.c: called before each launch; notes it where a capture is going on ---- */
bool qn_capture_is_on(void);
qn_status qn_capture_note(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call);
#endif
