/* SPDX-License-Identifier: Apache-2.0 */
/* beside_ops.h - functions of the library that are no ops of the registry, as `quern check` meets them: by name, on
 * every tier and device, with golden vectors. What they bring stands in their folders' <name>.check.c. */
#ifndef QN_WORKBENCH_BESIDE_OPS_H
#define QN_WORKBENCH_BESIDE_OPS_H
#include "workbench/check.h"

typedef struct qn_beside_op {
  const qn_op *op; /* a name and rows of types for people, and what tells where it can run; no call goes through it */
  void (*variants)(qn_trial *trial); /* leg 1, of each target and row */
  void (*golden)(qn_trial *trial);   /* leg 3, likewise */
} qn_beside_op;

extern const qn_beside_op qn_check_swiglu_quantize;
#endif
