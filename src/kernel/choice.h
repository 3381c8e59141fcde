/* SPDX-License-Identifier: Apache-2.0 */
/* choice.h - `c ? a : b` in a text that may have numbers of 16 bits. Metal mixes the two arms as an operator does (half
 * with 0: half; half with float: float); of two classes that convert into each other C++ says nothing. So an arm is
 * handed to qn_arm() |= and the whole to qn_whole() |= (dialect/half.h): assignments bind weakest and from the right,
 * so that nobody need know where an arm ends. A choice whose value nobody takes, as a statement, is left alone. */
#ifndef QN_KERNEL_CHOICE_H
#define QN_KERNEL_CHOICE_H
#include "kernel/kernel.h"

enum { QN_CHOICE_LEVELS = 64, QN_CHOICE_PENDING = 64 };

/* One for each open bracket. */
typedef struct qn_choice_level {
  size_t start;       /* in the rewritten text: where the condition of a choice would begin */
  bool fresh;         /* it begins with what comes next */
  bool value;         /* an expression whose value is taken; else a statement begins there */
  bool block;         /* of statements */
  bool plain;         /* wants a constant expression, in which an assignment is none, and never a number of 16 bits */
  unsigned pending;   /* ? without : */
  uint64_t rewritten; /* bit 0: the last one of these */
} qn_choice_level;

typedef struct qn_choices {
  size_t depth, plain_until; /* plain_until: a token; a template's parameters end there */
  qn_choice_level level[QN_CHOICE_LEVELS];
} qn_choices;

/* `macro`: the text is what a macro stands for. */
void qn_choices_begin(qn_choices *choices, const qn_tokens *tokens, bool macro);
/* Before token k is written; true: it was, here. */
bool qn_choices_step(qn_choices *choices, const qn_tokens *tokens, size_t k, qn_text *text);
#endif
