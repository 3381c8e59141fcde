/* SPDX-License-Identifier: Apache-2.0 */
/* expression.h - whole-number expressions over names, as kernel.json has them for extents, grids and bytes:
 * "ceildiv(n, TILE) * 32", "8 * n". 64-bit; what does not fit is an error, never a wrapped number. It knows no files
 * and no kernels. */
#ifndef QN_CORE_EXPRESSION_H
#define QN_CORE_EXPRESSION_H
#include "core/core.h"

typedef struct qn_name {
  const char *name; /* an identifier, or two with a dot between: "inp.bytes" */
  int64_t value;
} qn_name;

/* + - * / % (as C has them), parentheses, decimal numbers, names, and of two or more numbers min, max; of two ceildiv
 * (division rounded up) and align (the first rounded up to a multiple of the second). QN_BAD_ARGUMENT says what is
 * wrong and at which character, counted from 1; an unknown name with the nearest there is. */
qn_status qn_expression(const char *text, const qn_name *names, size_t n, int64_t *value);
/* The same without computing: grammar and names only. */
qn_status qn_expression_check(const char *text, const qn_name *names, size_t n);

/* The same in postfix, a blank behind each word: "n 4 ceildiv( 32 *". `name` writes what stands for a name. */
typedef struct qn_expression_writer {
  qn_text *text;
  qn_status (*name)(const struct qn_expression_writer *to, const char *name, size_t length);
  const void *user;
} qn_expression_writer;
qn_status qn_expression_postfix(const char *text, const qn_expression_writer *to);

/* Calls visit for each name of the text, functions left out; grammar is not looked at. */
void qn_expression_names(const char *text, void (*visit)(void *user, const char *name, size_t length), void *user);
/* A word that is a function's name. */
bool qn_expression_is_function(const char *name, size_t length);
#endif
