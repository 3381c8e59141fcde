/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h - reading the golden vectors of an op: src/op/<op>/golden/<op>.txt, which the build puts into the command,
 * so that an installed one can check too. The lines of a case, which begins with "case NAME" and ends with "end":
 *   types f32 bf16 f32 -          the row of types by role, the next line, unless it is the first row
 *   set WORDS                     of the call's text (subject.h): "lr=0.5 grad_scale=3"; behind a step, for those to
 * come size WORDS, tensor SHAPES     the last words: the call is made give ROLE BITS                a role's numbers,
 * in hexadecimal, all tensors one behind the other draw ROLE STATE SCALE         likewise in [-SCALE, SCALE), of
 * splitmix64 from that state on step                          one call; before the first one all is zero that is
 * updated and not given, and from the second one on a param `step` has counted up by one want ROLE BITS the numbers
 * then, of the role's type, or 16 digits of a double and, outside of cases: refuse NAME=VALUE ... : WORDS     params
 * that must be refused, and words that the sentence must contain */
#ifndef QN_WORKBENCH_GOLDEN_H
#define QN_WORKBENCH_GOLDEN_H
#include "op/op.h"
#include <stdbool.h>

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
/* The row of a case whose first line was read; the line `types` is read if it is there. */
qn_status qn_golden_types(qn_golden *golden, const qn_op_info *op, size_t *row);
#endif
