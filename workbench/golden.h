/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h - reading the golden vectors of an op: src/op/<op>/golden/<op>.txt, which the build puts into the command,
 * so that an installed one can check too. The op's make_golden.py says what the lines mean. */
#ifndef QN_WORKBENCH_GOLDEN_H
#define QN_WORKBENCH_GOLDEN_H
#include "workbench/case.h"

enum { QN_GOLDEN_TENSORS = 16 };

/* A place in the file: the line at hand as its first word and the rest. */
typedef struct qn_golden {
  const char *next, *end;  /* of the text still to be read */
  const char *word, *rest; /* not ended by NUL: rest goes to the line's end */
  size_t word_bytes, rest_bytes, line;
} qn_golden;

/* False: the op has no golden vectors. */
bool qn_golden_open(qn_golden *golden, const qn_op *op);
bool qn_golden_line(qn_golden *golden); /* the next line that is not a comment; false: none */
bool qn_golden_is(const qn_golden *golden, const char *word);
/* Takes the next word of the rest, ended by NUL; false: there is none. */
bool qn_golden_word(qn_golden *golden, char *word, size_t bytes);

/* The numbers of a case up to its first step. */
typedef struct qn_golden_case {
  char name[96];
  size_t row, n, elements[QN_GOLDEN_TENSORS];
  qn_setting setting;
  uint64_t arrays[QN_PARAMS_MOST][2 * QN_GOLDEN_TENSORS];
  qn_golden start; /* where its first `start` line is to come */
} qn_golden_case;

/* Reads the next case up to its tensors. False at the file's end; a line that cannot be understood sets *status. */
bool qn_golden_next(qn_golden *golden, const qn_op_info *op, qn_golden_case *c, qn_status *status);
/* "set lr 0.5", "scalar grad_scale 3": which param and what value; an enum's name becomes its number. */
qn_status qn_golden_value(qn_golden *golden, const qn_op_info *op, size_t *param, double *value);
/* The same from texts. Wide is the exact value of a U64. */
qn_status qn_golden_parse(const qn_op_info *op, const char *name, const char *text, size_t *param, double *value,
                          uint64_t *wide);

#endif
