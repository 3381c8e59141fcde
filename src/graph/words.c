/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - the table of formulas, as texts and as functions of doubles. */
#include "graph/words.h"
#include <math.h>

#define X(name, kind, n, cost, formula)                                                                                \
  static double word_##name(double a, double b, double c)                                                              \
  {                                                                                                                    \
    (void)a, (void)b, (void)c;                                                                                         \
    return formula;                                                                                                    \
  }
QN_GRAPH_WORDS(X)
#undef X
#define X(name, first, formula)                                                                                        \
  static double reduce_##name(double a, double b) { return formula; }
QN_GRAPH_REDUCTIONS(X)
#undef X

static const qn_word_info words[] = {
#define X(name, kind, n, cost, formula) {#name, #formula, QN_WORD_##kind, n, cost, word_##name},
    QN_GRAPH_WORDS(X)
#undef X
};
static const qn_reduction_info reductions[] = {
#define X(name, first, formula) {#name, #formula, (double)(first), reduce_##name},
    QN_GRAPH_REDUCTIONS(X)
#undef X
};

const qn_word_info *qn_word(qn_graph_word word) { return &words[word]; }
const qn_reduction_info *qn_reduction(qn_graph_reduction reduction) { return &reductions[reduction]; }
