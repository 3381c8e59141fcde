/* SPDX-License-Identifier: Apache-2.0 */
/* op_check.h - what an op brings for checks and benches beside its description: src/op/<op>/<op>.check.c has it, as
 * `const qn_op_check qn_check_<op>`, and it is no part of the library. */
#ifndef QN_WORKBENCH_OP_CHECK_H
#define QN_WORKBENCH_OP_CHECK_H
#include "workbench/mutant.h"

struct qn_trial; /* of workbench/check.h */

/* Of an op of lists whose shapes follow by rule. */
typedef struct qn_ruled_check {
  void (*make)(const qn_op_param *param, float *values); /* a DEVICE_F32S param's values, made */
  const char *given; /* settings of the params that must be set, for calls that need any: "num_steps=200"; NULL: none */
  /* What a written single holds before the first step, or in the middle of a run; arrays of params are on the host.
   * NULL: what all others do, zeros or what the description fills them with. */
  void (*begin)(const void *params, size_t role, bool middle, const int64_t *shape, double *values);
  /* A step in double, in place: data[role][k] is tensor k's, or a single's at k = 0. Of tensors it reads the shapes,
   * of params arrays as well. */
  qn_status (*reference)(const void *params, size_t n, const qn_tensor *const *tensors,
                         double *const *const data[QN_MAX_TENSORS]);
  /* How far an element may be from what the reference says it must be, which was `before`; size and moved are root mean
   * squares over its plane of the first role's elements: of what is wanted, and of what is wanted less `before`. */
  double (*allowed)(size_t role, double want, double before, double size, double moved);
  const qn_shaped_size *cases;   /* of checks, in the last of which all params count: shapes ("7x5", "11", "-" of no
                                    dimensions), params, words of the check */
  const char *const *variations; /* settings of params under which a device's cases run besides; NULL: none */
  const qn_shaped_unit *units;   /* for tests of device sources */
  double tensor_operations;      /* of a tensor, whatever its size; info.operations are an element's besides */
  void (*far)(struct qn_trial *trial); /* of leg 1, host: places past 2^32 elements */
} qn_ruled_check;

typedef struct qn_op_check {
  const qn_mutant *mutants; /* planted bugs of its own; ends with name NULL; NULL: none */
  const qn_ruled_check *ruled;
} qn_op_check;

/* Of an op that brings nothing, one with nothing in it. */
const qn_op_check *qn_op_check_of(const qn_op *op);
const qn_ruled_check *qn_ruled_check_of(const qn_op *op);
#endif
