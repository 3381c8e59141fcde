/* SPDX-License-Identifier: Apache-2.0 */
/* stats.h - what can be said about samples of time. Nothing here is random and nothing assumes a normal distribution:
 * times on a real machine have a floor and a long tail, so medians and ranks speak, and every figure has an interval
 * that holds in at least 95 of 100 runs, or none where there are too few samples for one. A speed-up ends in a word,
 * and many are read at once: its interval holds in at least 999 of 1000. */
#ifndef QN_WORKBENCH_STATS_H
#define QN_WORKBENCH_STATS_H
#include "quern/status.h"
#include <stddef.h>

typedef struct qn_summary {
  size_t n;
  double median, min, max, mean, sd; /* sd: of the samples, n - 1 below */
  double low, high;                  /* where the median is; NAN below 6 samples */
} qn_summary;

/* n >= 1 finite samples. The interval is made of two order statistics (the sign test turned round). */
qn_status qn_summarize(const double *samples, size_t n, qn_summary *summary);

/* The q-quantile (0..1) of sorted samples, linear between neighbours. */
double qn_quantile(const double *sorted, size_t n, double q);

/* A ratio of two times. Ratios live on a logarithmic scale, where twice as fast and twice as slow are equally far from
 * 1 and interference multiplies: estimate and interval are those of the logarithm. */
typedef struct qn_ratio {
  size_t n;
  double ratio, low, high; /* low, high: NAN where there are too few samples */
} qn_ratio;

/* above[k] / below[k], where the k-th samples were taken side by side (A B A B): slow drift of the machine cancels.
 * Hodges-Lehmann estimate and Wilcoxon's signed-rank interval of the logarithms; 6 pairs at least for an interval. */
qn_status qn_ratio_paired(const double *above, const double *below, size_t n, qn_ratio *ratio);

/* A ratio for a word: that of the two medians, which stand beside it, in an interval that holds in 999 of 1000 and has
 * the ratio in it. Paired: as above, 11 pairs at least for an interval. Unpaired: samples that know nothing of each
 * other, the interval of Mann and Whitney; 7 of each at least. Samples may be the medians of runs. */
enum { QN_WORD_PAIRS = 11, QN_WORD_SAMPLES = 7 };
qn_status qn_speedup_paired(const double *above, const double *below, size_t n, qn_ratio *ratio);
qn_status qn_speedup_unpaired(const double *above, size_t n_above, const double *below, size_t n_below,
                              qn_ratio *ratio);

/* This is the ratio, and the interval reaches to it if it did not. */
void qn_ratio_hold(qn_ratio *ratio, double value);

/* What a speed-up (old time / new time) allows one to say. SAME: the whole interval lies within 2 % of 1, so a
 * difference, if any, does not matter. UNCLEAR: no interval, or one that allows more than one of the other words. */
typedef enum qn_verdict { QN_UNCLEAR, QN_FASTER, QN_SAME, QN_SLOWER } qn_verdict;
qn_verdict qn_verdict_of(const qn_ratio *speedup);
const char *qn_verdict_word(qn_verdict verdict); /* "unclear", "faster", "same", "slower" */

#endif
