/* SPDX-License-Identifier: Apache-2.0 */
/* xla.h - the ops inside XLA programs, JAX's above all: handlers of XLA's typed foreign function interface (its ABI
 * 0.1 to 0.3 and later minors of 0), one a platform, for all ops. XLA calls them; a program only registers them,
 *     jax.ffi.register_ffi_target("quern_step", jax.ffi.pycapsule(library.qn_xla_cpu_step), platform="cpu")
 * and for "CUDA" qn_xla_cuda_step, as "execute" and as "initialize" (there kernels are compiled and loaded, so that
 * nothing is left for a step that is captured into a graph).
 *
 * A call site says
 *   attributes  op: the op's name; of each role that is given: its name, how many tensors (all roles alike); of each
 *               param: its name and value (numbers, booleans, an enum by its name, a host array of 64-bit integers);
 *               of each param in device memory: its name and true, where an operand holds it. What is not said has the
 *               op's default.
 *   operands    the tensors, role by role in the description's order; then those params in the description's order:
 *               one f32, or two 64-bit integers a tensor, or the op's hyper struct as its bytes
 *   results     the tensors of the roles that this call writes (by the rows of types in which just these roles are
 *               given), role by role, each to be declared an alias of its operand; then, where the op needs one, a
 *               workspace of qn_op_workspace_bytes()
 * Where XLA gave a result other memory than its operand, the operand is copied there first: an operand that was not
 * donated is never written. Arrays are dense and row-major.
 *
 * A step runs on XLA's stream, or on XLA's threads, and allocates host memory for the call's list only. Failures come
 * back as XLA's errors with the sentence of qn_last_error(). On the processor the hyper struct is read and checked as
 * params are; on a device it is not read by the host. */
#ifndef QN_XLA_H
#define QN_XLA_H
#include "op.h"
#ifdef __cplusplus
extern "C" {
#endif

struct XLA_FFI_CallFrame; /* XLA's own */
struct XLA_FFI_Error;

QN_API struct XLA_FFI_Error *qn_xla_cpu_step(struct XLA_FFI_CallFrame *frame);
QN_API struct XLA_FFI_Error *qn_xla_cuda_step(struct XLA_FFI_CallFrame *frame);

#ifdef __cplusplus
}
#endif
#endif
