/* SPDX-License-Identifier: Apache-2.0 */
/* judge_data.h - the data of a judged launch: which sizes, which numbers, and whether the outputs are right. */
#ifndef QN_WORKBENCH_JUDGE_DATA_H
#define QN_WORKBENCH_JUDGE_DATA_H
#include "workbench/judge.h"

/* What inputs of the rule `normal` are made into. */
typedef enum qn_distribution {
  QN_DATA_AS_FILLED,
  QN_DATA_SPARSE, /* nine of ten are zero */
  QN_DATA_SPIKES, /* some elements are 16 times larger, among them the last */
  QN_DATA_EQUAL,  /* all the same */
  QN_DATA_HEAVY,  /* a heavy tail: x |x| / 2 */
  QN_DATA_SMALL,  /* all times 2^-100, or 2^-12 for halves: some are denormal */
  QN_DATA_COUNT
} qn_distribution;
const char *qn_distribution_name(qn_distribution distribution);

/* A launch that the judge fills and verifies: its tensors in an arena, and the reference over the same numbers. */
typedef struct qn_judged_launch {
  qn_kernel_case *c, *reference;
  qn_name set[QN_FOLDER_NAMES];
} qn_judged_launch;

typedef struct qn_data_order {
  const qn_folder *folder; /* the problem's */
  const qn_talk_spec *spec;
  uint64_t seed;
  size_t fill;
  qn_distribution distribution;
  qn_pool *pool;
  unsigned char *at; /* in the arena */
} qn_data_order;

/* Inputs made, outputs poisoned, guards drawn; the reference is not computed yet. */
qn_status qn_judged_launch_make(const qn_data_order *order, qn_judged_launch *launch);
qn_status qn_judged_launch_reference(qn_judged_launch *launch);
void qn_judged_launch_clear(qn_judged_launch *launch);

/* Guards, inputs, outputs against `reference`. False, the word and why. */
bool qn_judged_launch_right(const qn_judged_launch *launch, const qn_kernel_case *reference, qn_judge_word *word,
                            char *why, size_t bytes);
/* Differences of float outputs; and the error over the reference's root mean square. */
void qn_judged_launch_errors(const qn_judged_launch *launch, const qn_kernel_case *reference, double *max_abs,
                             double *mean_abs, double *error);

/* The known-wrong outputs that would pass for the reference's, as a list of names; "" where none does. `other`: the
 * reference over other inputs. */
void qn_passing_mutants(const qn_judged_launch *launch, const qn_kernel_case *other, char *text, size_t bytes);
bool qn_same_outputs(const qn_kernel_case *a, const qn_kernel_case *b);

/* The spec's number of elements of all tensors, and the bytes that its arena must have. QN_BAD_ARGUMENT: the folder's
 * expressions do not allow it. */
qn_status qn_spec_amount(const qn_folder *folder, const qn_talk_spec *spec, uint64_t *elements, uint64_t *bytes);
/* An extent's values drawn from the domain: 1, primes, neighbours of powers of two, anything. */
void qn_spec_draw(const qn_folder *folder, uint64_t *random, qn_talk_spec *spec);
uint64_t qn_draw(uint64_t *random);
#endif
