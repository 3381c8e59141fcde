/* SPDX-License-Identifier: Apache-2.0 */
/* shape_rule.h - the one grammar of tensors' shapes, for the roles of ops, for kernel.json and for the contracts of
 * kernels from a body:
 *
 *     "[n, 2, ceildiv(h, T)]"                extents: names, numbers, and expressions of these (expression.h)
 *     "[..., h]"  "[...5]"                   in front: any number of extents; in front: up to 5
 *     "[1...]"                               in front: any number of extents of 1
 *     "[3, like param]"                      the extents of another tensor
 *     "[3, like param without d0]"           but for one of them, which the op names
 *     "[3, like param without d1] or [0]"    and the shape where that tensor has no such dimension
 *     "[3, like param] or [like param]"      and the shape where that tensor has no d0
 *
 * The text is read part by part, without memory; what a part means for a tensor is its reader's business. */
#ifndef QN_CORE_SHAPE_RULE_H
#define QN_CORE_SHAPE_RULE_H
#include "quern/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QN_EXTENT_BYTES = 48 }; /* of an extent's text, with the 0 behind it */

typedef struct qn_word {
  const char *at; /* NULL: none */
  size_t length;
} qn_word;

typedef enum qn_part_kind {
  QN_PART_NUMBER,
  QN_PART_NAME,
  QN_PART_EXPRESSION, /* `text`, not looked into */
  QN_PART_ANY,        /* number: the most extents that it stands for; -1: any */
  QN_PART_ONES,
  QN_PART_LIKE /* `text`: the other tensor's name */
} qn_part_kind;

typedef struct qn_shape_part {
  qn_part_kind kind;
  int64_t number;
  qn_word text, without;
} qn_shape_part;

typedef struct qn_shape_reader {
  const char *at;  /* the next character */
  const char *why; /* the error at that place */
  int parts;       /* that were read */
} qn_shape_reader;

/* Behind its "[". 1: the next part; 0: there is none, and the reader is behind "]"; -1: `why` at `at`. */
int qn_shape_part_next(qn_shape_reader *reader, qn_shape_part *part);
/* Is the word this one? */
bool qn_word_is(qn_word word, const char *text);
/* Passes blanks and, where it stands next, the mark or the word. */
bool qn_shape_take(const char **at, const char *mark);
#endif
