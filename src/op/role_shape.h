/* SPDX-License-Identifier: Apache-2.0 */
/* role_shape.h - the shape rules of an op's roles (core/shape_rule.h), read once and held against every tensor. */
#ifndef QN_OP_ROLE_SHAPE_H
#define QN_OP_ROLE_SHAPE_H
#include "core/shape_rule.h"
#include "op/op.h"

enum { QN_ROLE_PARTS = 6 };

typedef struct qn_role_part {
  qn_part_kind kind;
  char letter;     /* of a NAME; 0: the number of tensors of the list */
  signed char cut; /* of LIKE: the dimension that is left out, as the engine numbers them; -1: none */
  int64_t number;
  qn_word text; /* of an EXPRESSION */
} qn_role_part;

/* `follows`: all of it follows from the first role's shape and the number of tensors. `alike`: it is the first role's
 * shape. `cut`: that of a part. */
typedef struct qn_shape_rule {
  unsigned n;
  bool follows, alike;
  signed char cut;
  qn_role_part part[QN_ROLE_PARTS];
} qn_shape_rule;

typedef struct qn_role_rule {
  qn_shape_rule first, otherwise; /* otherwise: where the dimension to be left out, or if none is d0, is not there; n =
                                     0 and !follows: none */
} qn_role_rule;

typedef struct qn_op_rules {
  bool alike; /* as qn_op_is_alike */
  qn_role_rule role[QN_MAX_TENSORS];
} qn_op_rules;

/* Those of an op of the list, read at its first use; of another, read into `own`. Fails where a rule is none. */
qn_status qn_op_rules_of(const qn_op *op, qn_op_rules *own, const qn_op_rules **rules);

/* As qn_op_role_shape, by the params and n of a call, whose tensors are not looked at, nor pieces that params speak of.
 */
qn_status qn_role_shape_of(const qn_call *call, size_t role, int ndim, const int64_t *shape, int *role_ndim,
                           int64_t *role_shape);

/* Extents of the k-th tensor of a role are possible, and are what the rule says; letters that have no number yet get
 * it. tensors[0][k] is good, or is `t`. */
qn_status qn_role_shape_check(qn_call *call, size_t role, size_t k, const qn_tensor *t);

/* Words of a sentence. */
typedef struct qn_words {
  char text[192];
} qn_words;
/* "64x3x7x7" */
qn_words qn_shape_text(int ndim, const int64_t *shape);
/* "param[3]", or the role's name alone where it has one tensor; and with t's shape, "param[3] (64x3x7x7)" */
qn_words qn_name_of(const qn_call *call, size_t role, size_t k);
qn_words qn_shaped_name_of(const qn_call *call, size_t role, size_t k, const qn_tensor *t);
#endif
