/* SPDX-License-Identifier: Apache-2.0 */
/* term.h - what the terminal behind a stream can do. Everything is plain in a pipe or a file, under NO_COLOR, and where
 * TERM is "dumb" or unset: there no escape is ever written. */
#ifndef QN_WORKBENCH_TERM_H
#define QN_WORKBENCH_TERM_H
#include <stdbool.h>
#include <stdio.h>

typedef enum qn_colour { QN_PLAIN, QN_BOLD, QN_DIM, QN_RED, QN_GREEN, QN_YELLOW, QN_CYAN } qn_colour;

bool qn_term_is(FILE *stream); /* a terminal that understands \r and escapes */
/* The escape that turns the colour on (QN_PLAIN: all off), or "" where there are none:
 * `printf("%sok%s\n", qn_term_colour(stdout, QN_GREEN), qn_term_colour(stdout, QN_PLAIN))` */
const char *qn_term_colour(FILE *stream, qn_colour colour);
/* Columns: the terminal's; in a pipe $COLUMNS if it is a number, else 80. */
int qn_term_width(FILE *stream);
/* Text behind what stands in the line already, up to `column`: on a terminal broken at spaces to fit and continued at
 * that column, in a pipe on one line, for tools that read lines. Ends the line. */
void qn_term_wrap(FILE *stream, int column, const char *text);

#endif
