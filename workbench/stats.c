/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - see stats.h. Order statistics and rank tests on raw samples; it knows neither clocks nor kernels. */
#include "workbench/stats.h"
#include "core/core.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double tail = 0.025; /* on each side */
static const double tail_z = 1.959963984540054;
static const double same_band = 1.02;

static int ascending(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double qn_quantile(const double *sorted, size_t n, double q)
{
  double at = q * (double)(n - 1);
  size_t k = (size_t)at;
  if (k + 1 >= n) return sorted[n - 1];
  return sorted[k] + (at - (double)k) * (sorted[k + 1] - sorted[k]);
}

/* The largest c with P(Binomial(n, 1/2) <= c - 1) <= tail: the median lies between the c-th smallest and the c-th
 * largest sample. 0: n is too small. */
static size_t median_rank(size_t n)
{
  if (n > 1000) return (size_t)(0.5 * (double)n - 0.5 * tail_z * sqrt((double)n)); /* 2^-n is near underflow there */
  double term = pow(0.5, (double)n), sum = 0;
  size_t c = 0;
  while (sum + term <= tail) {
    sum += term;
    term *= (double)(n - c) / (double)(c + 1);
    c++;
  }
  return c;
}

qn_status qn_summarize(const double *samples, size_t n, qn_summary *summary)
{
  double *sorted;
  qn_require(n > 0, "statistics of no samples were asked for");
  qn_try(qn_try_allocate(&sorted, n * sizeof *sorted, "samples to sort"));
  memcpy(sorted, samples, n * sizeof *sorted);
  qsort(sorted, n, sizeof *sorted, ascending);
  double sum = 0, square = 0;
  for (size_t k = 0; k < n; k++) sum += sorted[k];
  double mean = sum / (double)n;
  for (size_t k = 0; k < n; k++) square += (sorted[k] - mean) * (sorted[k] - mean);
  size_t c = median_rank(n);
  *summary = (qn_summary){
      .n = n,
      .median = qn_quantile(sorted, n, 0.5),
      .min = sorted[0],
      .max = sorted[n - 1],
      .mean = mean,
      .sd = n > 1 ? sqrt(square / (double)(n - 1)) : 0,
      .low = c ? sorted[c - 1] : NAN,
      .high = c ? sorted[n - c] : NAN,
  };
  qn_release(sorted);
  return QN_OK;
}

/* The largest c with P(V <= c - 1) <= tail, V Wilcoxon's signed-rank statistic of n pairs. 0: n is too small. Exact
 * while the table of subset sums is small, then by the normal approximation, whose error is below one rank there. */
static size_t signed_rank(size_t n)
{
  enum { EXACT = 50, SUMS = EXACT * (EXACT + 1) / 2 + 1 };
  if (n > EXACT) {
    double pairs = (double)n * (double)(n + 1);
    return (size_t)(pairs / 4 - tail_z * sqrt(pairs * (double)(2 * n + 1) / 24));
  }
  double ways[SUMS] = {1}; /* subsets of the ranks 1..k by their sum, over 2^k */
  for (size_t k = 1, most = 0; k <= n; k++) {
    most += k;
    for (size_t s = most + 1; s-- > 0;) ways[s] = 0.5 * (ways[s] + (s >= k ? ways[s - k] : 0));
  }
  double sum = 0;
  size_t c = 0;
  while (sum + ways[c] <= tail) sum += ways[c++];
  return c;
}

/* Median and interval of m sorted logarithms, c-th from each end. */
static void set_ratio(qn_ratio *ratio, double *logs, size_t m, size_t c, size_t n)
{
  qsort(logs, m, sizeof *logs, ascending);
  ratio->n = n;
  ratio->ratio = exp(qn_quantile(logs, m, 0.5));
  ratio->low = c ? exp(logs[c - 1]) : NAN;
  ratio->high = c ? exp(logs[m - c]) : NAN;
}

qn_status qn_ratio_paired(const double *above, const double *below, size_t n, qn_ratio *ratio)
{
  double *walsh;
  qn_require(n > 0, "a ratio of no samples was asked for");
  qn_require(n <= 4096, "a ratio of %zu pairs was asked for, the most is 4096", n);
  qn_try(qn_try_allocate(&walsh, n * (n + 1) / 2 * sizeof *walsh, "pairwise means"));
  size_t m = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t k = i; k < n; k++) walsh[m++] = 0.5 * (log(above[i] / below[i]) + log(above[k] / below[k]));
  set_ratio(ratio, walsh, m, signed_rank(n), n);
  qn_release(walsh);
  return QN_OK;
}

qn_status qn_ratio_unpaired(const double *above, size_t n_above, const double *below, size_t n_below, qn_ratio *ratio)
{
  double *shift;
  qn_require(n_above > 0 && n_below > 0, "a ratio of no samples was asked for");
  qn_require(n_above <= 4096 && n_below <= 4096, "a ratio of %zu and %zu samples was asked for, the most is 4096 each",
             n_above, n_below);
  qn_try(qn_try_allocate(&shift, n_above * n_below * sizeof *shift, "pairwise differences"));
  size_t m = 0;
  for (size_t i = 0; i < n_above; i++)
    for (size_t k = 0; k < n_below; k++) shift[m++] = log(above[i] / below[k]);
  double pairs = (double)m;
  double c = pairs / 2 - tail_z * sqrt(pairs * (double)(n_above + n_below + 1) / 12);
  bool enough = n_above >= 5 && n_below >= 5;
  set_ratio(ratio, shift, m, enough && c >= 1 ? (size_t)c : 0, n_above < n_below ? n_above : n_below);
  qn_release(shift);
  return QN_OK;
}

qn_verdict qn_verdict_of(const qn_ratio *speedup)
{
  if (isnan(speedup->low) || isnan(speedup->high)) return QN_UNCLEAR;
  if (speedup->low >= 1 / same_band && speedup->high <= same_band) return QN_SAME;
  if (speedup->low > 1) return QN_FASTER;
  return speedup->high < 1 ? QN_SLOWER : QN_UNCLEAR;
}

const char *qn_verdict_word(qn_verdict verdict)
{
  static const char *const words[] = {"unclear", "faster", "same", "slower"};
  return words[verdict];
}
