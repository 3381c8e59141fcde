/* SPDX-License-Identifier: Apache-2.0 */
/* lexer.h - C's words one by one, for who only needs to know where names, brackets and directives are. */
#ifndef QN_DEVICE_LEXER_H
#define QN_DEVICE_LEXER_H
#include <stdbool.h>
#include <stddef.h>

/* kind: 'w' a word, '0' a number, '"' a string or character, 'p' the pasting ##, else the character itself; 0 behind
 * the last. */
typedef struct qn_lexeme {
  const char *at;
  size_t length;
  char kind;
} qn_lexeme;

/* The next one from *at on, which moves behind it; blanks, comments and ends of lines are passed over. */
qn_lexeme qn_lex(const char **at, const char *end);
bool qn_lexeme_is(qn_lexeme l, const char *word);

size_t qn_lines(const char *at, const char *end); /* how many end there */
/* The beginning of the next line; of the next that a backslash does not join to this one. */
const char *qn_line_end(const char *at, const char *end);
const char *qn_directive_end(const char *at, const char *end);
#endif
