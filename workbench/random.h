/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - problems drawn from an op's domain (op_check.h), the same by seed and number on every machine: only whole
 * numbers are computed. A problem is words of the command, so each can be run again by itself. */
#ifndef QN_WORKBENCH_RANDOM_H
#define QN_WORKBENCH_RANDOM_H
#include "op/op.h"
#include <stdio.h>

enum { QN_PROBLEM_BYTES = 256 << 20 }; /* of all tensors, at most, unless a caller says otherwise */

typedef struct qn_problem {
  const qn_op *op;
  uint64_t seed, number;
  size_t row;         /* of the type table */
  char shape[384];    /* as --shape of `quern bench` reads it */
  char settings[384]; /* NAME=VALUE words; what has none is as its default */
  uint64_t bytes;     /* of all tensors */
} qn_problem;

/* Problem `number` of the seed. What the op refuses, or has more than `most_bytes`, is drawn again; an op without a
 * domain, or without such a small problem, is refused. */
qn_status qn_problem_draw(const qn_op *op, uint64_t seed, uint64_t number, uint64_t most_bytes, qn_problem *problem);
/* The command that benches this problem alone. */
qn_status qn_problem_command(const qn_problem *problem, const char *more, char *text, size_t bytes);
/* A line of JSON: the problem's words, its shapes and settings taken apart, and the command. */
qn_status qn_problem_print(const qn_problem *problem, FILE *to);
#endif
