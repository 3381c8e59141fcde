/* SPDX-License-Identifier: Apache-2.0 */
/* figures.h - statistics, workloads and the head of a line, for programs that take samples of their own (python -m
 * quern.bench): one line of JSON for a question, one for its answer.
 *
 *     {"samples": [ns...]}                               -> {"median", "low", "high", "min", "max", "mean", "sd"}
 *     {"above": [...], "below": [...]}                   -> {"ratio", "low", "high"}  as qn_ratio_paired
 *     {"above": [...], "below": [...], "word": true}     -> the same, as qn_speedup_paired
 *     {"verdict": [low, high]}                           -> {"verdict"}
 *     {"workload": "gpt2-124m"}                          -> {"shapes": [[50257, 768], ...]}
 *     {"head": "cuda", "index": 0}                       -> {"date", "version", "commit", "machine", "build"}
 *
 * A question that is refused is answered by {"error": sentence}. */
#ifndef QN_WORKBENCH_FIGURES_H
#define QN_WORKBENCH_FIGURES_H
#include "quern/status.h"
#include <stdio.h>

/* Until the end of `in`. */
qn_status qn_figures_run(FILE *in, FILE *out);
#endif
