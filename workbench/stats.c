/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - see stats.h. Order statistics and rank tests on raw samples; it knows neither clocks nor kernels. */
#include "workbench/stats.h"
#include "core/core.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How much an interval leaves out on each side, and where the normal distribution does so. */
typedef struct level {
  double tail, z;
} level;
static const level figure = {0.025, 1.959963984540054}; /* 95 %: what is read beside other figures */
static const level word = {0.0005, 3.2905267314918945}; /* the 99.9 % level of verdicts */
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

/* The largest c with P(Binomial(n, 1/2) <= c - 1) <= tail of a figure: the median lies between the c-th smallest and
 * the c-th largest sample. 0: n is too small. */
static size_t median_rank(size_t n)
{
  if (n > 1000) return (size_t)(0.5 * (double)n - 0.5 * figure.z * sqrt((double)n)); /* 2^-n is near underflow there */
  double term = pow(0.5, (double)n), sum = 0;
  size_t c = 0;
  while (sum + term <= figure.tail) {
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
static size_t signed_rank(size_t n, level l)
{
  enum { EXACT = 50, SUMS = EXACT * (EXACT + 1) / 2 + 1 };
  if (n > EXACT) {
    double pairs = (double)n * (double)(n + 1);
    return (size_t)(pairs / 4 - l.z * sqrt(pairs * (double)(2 * n + 1) / 24));
  }
  double ways[SUMS] = {1}; /* subsets of the ranks 1..k by their sum, over 2^k */
  for (size_t k = 1, most = 0; k <= n; k++) {
    most += k;
    for (size_t s = most + 1; s-- > 0;) ways[s] = 0.5 * (ways[s] + (s >= k ? ways[s - k] : 0));
  }
  double sum = 0;
  size_t c = 0;
  while (sum + ways[c] <= l.tail) sum += ways[c++];
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

static qn_status paired(const double *above, const double *below, size_t n, level l, qn_ratio *ratio)
{
  double *walsh;
  qn_require(n > 0, "a ratio of no samples was asked for");
  qn_require(n <= 4096, "a ratio of %zu pairs was asked for, the most is 4096", n);
  qn_try(qn_try_allocate(&walsh, n * (n + 1) / 2 * sizeof *walsh, "pairwise means"));
  size_t m = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t k = i; k < n; k++) walsh[m++] = 0.5 * (log(above[i] / below[i]) + log(above[k] / below[k]));
  set_ratio(ratio, walsh, m, signed_rank(n, l), n);
  qn_release(walsh);
  return QN_OK;
}

qn_status qn_ratio_paired(const double *above, const double *below, size_t n, qn_ratio *ratio)
{
  return paired(above, below, n, figure, ratio);
}

qn_status qn_speedup_paired(const double *above, const double *below, size_t n, qn_ratio *ratio)
{
  qn_summary old, new;
  qn_try(paired(above, below, n, word, ratio));
  qn_try(qn_summarize(above, n, &old));
  qn_try(qn_summarize(below, n, &new));
  qn_ratio_hold(ratio, old.median / new.median);
  return QN_OK;
}

/* The largest c with P(U <= c - 1) <= tail, U the statistic of Mann and Whitney of a and b samples. 0: there are too
 * few. The ways to a U are the coefficients of the product of (1 - q^(b+i)) / (1 - q^i) for i from 1 to a, counted
 * exactly while they are few; then by the normal approximation. */
static size_t rank_sum(size_t a, size_t b, level l)
{
  enum { EXACT = 40, SUMS = EXACT / 2 * (EXACT / 2) + 1 };
  if (a + b > EXACT) {
    double pairs = (double)a * (double)b;
    double c = pairs / 2 - l.z * sqrt(pairs * (double)(a + b + 1) / 12);
    return c >= 1 ? (size_t)c : 0;
  }
  double ways[SUMS] = {1}, all = 1, sum = 0;
  for (size_t i = 1; i <= a; i++) {
    for (size_t u = a * b; u >= b + i; u--) ways[u] -= ways[u - b - i];
    for (size_t u = i; u <= a * b; u++) ways[u] += ways[u - i];
    all *= (double)(b + i) / (double)i;
  }
  size_t c = 0;
  while (c < a * b && sum + ways[c] <= l.tail * all) sum += ways[c++];
  return c;
}

qn_status qn_speedup_unpaired(const double *above, size_t n_above, const double *below, size_t n_below, qn_ratio *ratio)
{
  double *shift;
  qn_summary old, new;
  qn_require(n_above > 0 && n_below > 0, "a ratio of no samples was asked for");
  qn_require(n_above <= 4096 && n_below <= 4096, "a ratio of %zu and %zu samples was asked for, the most is 4096 each",
             n_above, n_below);
  qn_try(qn_summarize(above, n_above, &old));
  qn_try(qn_summarize(below, n_below, &new));
  qn_try(qn_try_allocate(&shift, n_above * n_below * sizeof *shift, "pairwise differences"));
  size_t m = 0;
  for (size_t i = 0; i < n_above; i++)
    for (size_t k = 0; k < n_below; k++) shift[m++] = log(above[i] / below[k]);
  set_ratio(ratio, shift, m, rank_sum(n_above, n_below, word), n_above < n_below ? n_above : n_below);
  qn_release(shift);
  qn_ratio_hold(ratio, old.median / new.median);
  return QN_OK;
}

void qn_ratio_hold(qn_ratio *ratio, double value)
{
  ratio->ratio = value;
  if (value < ratio->low) ratio->low = value;
  if (value > ratio->high) ratio->high = value;
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
