/* SPDX-License-Identifier: Apache-2.0 */
/* abi.c - the sizes of the public structs by name, for bindings that write the structs down again in another language.
 * An op's params are found by the list of ops. */
#include "quern/quern.h"
#include <string.h>

#define STRUCTS(X)                                                                                                     \
  X(qn_allocator)                                                                                                      \
  X(qn_arch)                                                                                                           \
  X(qn_cache_counts)                                                                                                   \
  X(qn_cache_entry)                                                                                                    \
  X(qn_device)                                                                                                         \
  X(qn_device_info)                                                                                                    \
  X(qn_exec)                                                                                                           \
  X(qn_fast_body)                                                                                                      \
  X(qn_fast_source)                                                                                                    \
  X(qn_fast_word)                                                                                                      \
  X(qn_finding)                                                                                                        \
  X(qn_function_source)                                                                                                \
  X(qn_graph_options)                                                                                                  \
  X(qn_gradient_check)                                                                                                 \
  X(qn_kernel_call)                                                                                                    \
  X(qn_kernel_folder)                                                                                                  \
  X(qn_kernel_info)                                                                                                    \
  X(qn_kernel_source)                                                                                                  \
  X(qn_lopt_hyper)                                                                                                     \
  X(qn_lopt_shards)                                                                                                    \
  X(qn_lopt_weight)                                                                                                    \
  X(qn_numpy_objects)                                                                                                  \
  X(qn_object_calls)                                                                                                   \
  X(qn_object_part)                                                                                                    \
  X(qn_op_info)                                                                                                        \
  X(qn_op_param)                                                                                                       \
  X(qn_op_tensor)                                                                                                      \
  X(qn_op_types)                                                                                                       \
  X(qn_option_info)                                                                                                    \
  X(qn_python_dtype)                                                                                                   \
  X(qn_template)                                                                                                       \
  X(qn_tensor)                                                                                                         \
  X(qn_torch_objects)                                                                                                  \
  X(qn_value)                                                                                                          \
  X(qn_variant)

size_t qn_struct_bytes(const char *name)
{
#define X(type)                                                                                                        \
  if (name && !strcmp(name, #type)) return sizeof(type);
  STRUCTS(X)
#undef X
#define QN_OP(op)                                                                                                      \
  if (name && !strcmp(name, "qn_" #op "_params")) return sizeof(qn_##op##_params);
#include "ops.h"
#undef QN_OP
  return 0;
}
