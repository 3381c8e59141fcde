/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - the algebra of indices: sums of variables times constants, and quotients and remainders of such sums by
 * constants, simplified as they are made and each kept once. Equal indices have equal numbers, so a view of a view of a
 * row is seen to be the row again, and the step along a variable is a coefficient. Every index is at least 0 where it
 * is evaluated. */
#ifndef QN_GRAPH_INDEX_H
#define QN_GRAPH_INDEX_H
#include "core/core.h"

enum { QN_INDEX_TERMS = 16 };

typedef int qn_index; /* a number in its set; 0 is the constant 0 */

typedef enum qn_index_kind { QN_INDEX_VARIABLE, QN_INDEX_QUOTIENT, QN_INDEX_REMAINDER } qn_index_kind;

/* What a sum is made of. */
typedef struct qn_index_atom {
  qn_index_kind kind;
  qn_index of;     /* of a quotient or remainder */
  int64_t by;      /* its divisor */
  int64_t most;    /* the largest value; the least is 0 */
  uint64_t varies; /* bit k: with variable k */
  bool written;    /* it is in some text; others were simplified away */
  char name[24];   /* a variable's */
} qn_index_atom;

typedef struct qn_index_sum {
  int64_t constant, least, most;
  uint64_t varies;
  int n;
  struct {
    int atom;
    int64_t step;
  } term[QN_INDEX_TERMS]; /* by atom */
} qn_index_sum;

typedef struct qn_indices {
  qn_index_atom *atom;
  qn_index_sum *sum;
  int n_atoms, n_sums, atoms, sums;
  int n_variables; /* at most 64 */
  bool failed;     /* no memory, or a sum of too many terms: what is made is of no use */
} qn_indices;

void qn_indices_free(qn_indices *set);
qn_index qn_index_constant(qn_indices *set, int64_t value);
/* A variable from 0 to extent - 1; the same name gives another variable each time. */
qn_index qn_index_variable(qn_indices *set, const char *name, int64_t extent);
/* a + step * b */
qn_index qn_index_add(qn_indices *set, qn_index a, qn_index b, int64_t step);
qn_index qn_index_quotient(qn_indices *set, qn_index a, int64_t by);
qn_index qn_index_remainder(qn_indices *set, qn_index a, int64_t by);

/* The place in row-major order among extents, and its inverse. */
qn_index qn_index_flat(qn_indices *set, int n, const int64_t *extents, const qn_index *at);
void qn_index_spread(qn_indices *set, qn_index flat, int n, const int64_t *extents, qn_index *at);
/* Places of a tensor of `to` whose elements, row by row, are those of `from`. */
void qn_index_reshape(qn_indices *set, int n_from, const int64_t *from, const qn_index *at, int n_to, const int64_t *to,
                      qn_index *place);

/* The step along a variable where the sum has no other use of it; false: it is within a quotient or remainder. */
bool qn_index_step(const qn_indices *set, qn_index a, qn_index variable, int64_t *step);
/* Whether places are neighbours for runs of 16 values of the variable and more: a remainder of it has the step 1. */
bool qn_index_runs(const qn_indices *set, qn_index a, qn_index variable);
/* Whether places are neighbours for n values of the variable that are equally far apart. */
bool qn_index_far(const qn_indices *set, qn_index a, qn_index variable, int64_t *apart, int64_t *n);
/* Whether the places `a` of all `width` values of the variable are one aligned access: 1 in their order, -1 backwards,
 * 0 no. *first is the lowest place. */
int qn_index_access(qn_indices *set, qn_index a, qn_index variable, int64_t width, qn_index *first);
/* The terms of a that do not vary with some variables; *divides: whether there are quotients or remainders. */
qn_index qn_index_shared(qn_indices *set, qn_index a, uint64_t varies, bool *divides);
void qn_index_write(const qn_indices *set, qn_index a, bool wide, qn_text *text);
/* Whether a quotient or remainder in some text is of more than 31 bits. */
bool qn_index_is_wide(const qn_indices *set);
#endif
