/* SPDX-License-Identifier: Apache-2.0 */
/* mutant.h - planted bugs: an op made wrong in one way, to see that the legs of the check catch it. Those that fit any
 * op are in mutant.c; an op's own are in src/op/<op>/<op>.check.c (op_check.h). */
#ifndef QN_WORKBENCH_MUTANT_H
#define QN_WORKBENCH_MUTANT_H
#include "op/op.h"
#include <stdbool.h>

/* Where a bug is planted, and so which leg must see it. */
enum {
  QN_IN_ONE_TIER = 1,       /* in the best tier alone: leg 1 */
  QN_EVERYWHERE_ORACLE = 2, /* in all tiers, the reference too: leg 2 */
  QN_EVERYWHERE_GOLDEN = 4, /* the same: leg 3 */
  QN_IN_DESCRIPTION = 8,    /* by alter: leg 4 */
  QN_IN_LAYOUTS = 32,       /* in the best tier alone: the part of leg 1 about tensors that are not dense */
  QN_HARMLESS = 16          /* no bug: nothing may see it, or the planting itself is what is caught */
};

typedef struct qn_mutant {
  const char *name, *what;
  unsigned where;
  qn_cpu_fn *fn;                 /* takes the tier's place; NULL: the description alone is wrong */
  void (*alter)(qn_op *op);      /* changes the description; NULL: nothing */
  bool (*fits)(const qn_op *op); /* false: such an op cannot have this bug; NULL: every op can */
} qn_mutant;

/* For fn: the op that it stands in, unchanged, and the function whose place it takes. */
extern const qn_op *qn_mutant_of;
extern qn_cpu_fn *qn_mutant_original;

extern const qn_mutant qn_mutants[]; /* for any op; ends with name NULL */

#endif
