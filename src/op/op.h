/* SPDX-License-Identifier: Apache-2.0 */
/* op.h - the inner half of an op's description: the parts that the engines (list.c, device_list.c) run it by.
 * The outer half, which bindings and tests read, is quern/op.h. */
#ifndef QN_OP_OP_H
#define QN_OP_OP_H
#include "base/piece.h"
#include "cpu/tier.h"

enum { QN_COEF_BYTES = 128 };

typedef struct qn_call qn_call;     /* of op/call.h */
typedef struct qn_engine qn_engine; /* likewise */

typedef struct qn_op {
  qn_op_info info;
  const qn_engine *engine;
  const void *of_engine; /* the op's description for its engine alone */
  /* Checks beyond the description: relations between params, and with the first role's tensors, which are good; those
   * of other roles are there. NULL: nothing. */
  qn_status (*check)(const qn_call *call);
  /* The members below are the element-wise engine's, but for device_source. */
  size_t coef_bytes; /* at most QN_COEF_BYTES; passed by value to device kernels, so it may hold device pointers */
  /* Which specialisation these params ask for: CPU kernels see it in the call, device sources as QN_LIST_FLAGS. */
  uint32_t (*flags)(const void *params, size_t row);
  uint32_t random_flags; /* flags under which random numbers are drawn: shard offset and tensor number are needed */
  uint32_t row_flags;    /* flags under which a kernel asks for the row (the last dimension) that its elements lie in */
  /* Everything that does not depend on the element, computed in double and rounded once. */
  void (*coefficients)(const void *params, void *coef);
  /* 1, or more where a reduction over each tensor comes first: phases before the last fill the tally (16 bytes a
   * tensor, zeroed by the engine) and the last one reads it through `tally_offset`. NULL: 1. */
  int (*phases)(const void *params);
  size_t tally_offset;         /* 1 + offset in coef of the `const int64_t *` to the tallies of the list; 0: none */
  size_t first_element_offset; /* 1 + offset in params of the host array; 0: the op has none */
  size_t tensor_id_offset;
  qn_cpu_fn *cpu[QN_TIER_COUNT];
  bool bf16_tiers; /* of an op of an engine of its own: it has kernels for those */
  /* "ROWSxCOLS,...": the shapes that `quern tune` takes for this op's uses; NULL: single tensors, small and large. */
  const char *tune_shapes;
  const char *device_source; /* as embedded, below src/; its kernel is called as the op */
  /* The unfused form over f32 arrays, pass by pass, for benches; NULL: none. Arrays by role, then one scratch array. */
  void (*unfused)(size_t n, float *const *arrays, const void *coef);
  /* The same for devices: a source with the kernel <name>_unfused, compiled once a pass with QN_PASS=0, 1 ...; each is
   * launched with one thread for four elements and takes a qn_unfused_args with the coefficients behind it. */
  const char *unfused_source;
  int unfused_passes;
} qn_op;

/* The argument of a pass of the unfused form; coef_bytes of coefficients follow. */
typedef struct qn_unfused_args {
  float *array[QN_MAX_TENSORS + 1]; /* by role, then the scratch array; 16-byte aligned */
  uint64_t n;
} qn_unfused_args;

/* Are the k-th tensors of all roles of one shape, and work is element by element? */
static inline bool qn_op_is_alike(const qn_op_info *op)
{
  for (size_t role = 0; role < op->n_tensors; role++)
    if (op->tensors[role].shape) return false;
  return true;
}
/* Is a call of one tensor a role? */
static inline bool qn_op_is_alone(const qn_op_info *op)
{
  for (size_t role = 0; role < op->n_tensors; role++)
    if (!op->tensors[role].single) return false;
  return true;
}
/* Elements of alike tensors that need not be dense. */
static inline bool qn_op_is_strided(const qn_op_info *op) { return op->tensors[0].storage == QN_STORAGE_ROWS; }

/* Rows of types that a device of this kind takes. Rows of f64 stand last: they are computed by the oracle's
 * instantiation of the formula, on the processor alone. */
size_t qn_op_rows(const qn_op_info *op, qn_device_kind kind);
bool qn_op_row_is_double(const qn_op_info *op, size_t row);

/* A param's value in a params struct as a number: the index of an ENUM's value, 0 for pointers. */
double qn_param_get(const qn_op_param *param, const void *params);
/* The members of a description that are about its params: its table of them, the struct, the macro of its defaults. */
#define QN_OP_PARAMS(table, type, values)                                                                              \
  .params = (table), .n_params = sizeof(table) / sizeof(table)[0], .params_bytes = sizeof(type),                       \
  .defaults = &(const type)values

#ifndef QN_TIER /* files built once a tier compile longest: they are not compiled again for one more op */
#define QN_OP(name) extern const qn_op qn_op_##name;
#include "ops.h"
#undef QN_OP
#endif
extern const qn_engine qn_elementwise; /* list.c */
extern const qn_op *const qn_ops[];    /* NULL-terminated, in the order of the list in src/meson.build */

#endif
