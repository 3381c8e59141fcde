/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_stats.c - statistics against values worked out by hand and printed tables, and a simulation: an interval
 * that claims 95 of 100 must hold that often for skewed, jumping times too. */
#include "test.h"
#include "workbench/stats.h"
#include <math.h>
#include <stdint.h>

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

/* splitmix64 and two of the shapes that times have. */
static uint64_t state = 20;
static double uniform(void)
{
  uint64_t x = state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return ((double)((x ^ x >> 31) >> 11) + 0.5) * 0x1p-53;
}
static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }
static double slow_tail(void) { return exp(0.05 * normal()) * (uniform() < 0.1 ? 3 : 1); } /* a tenth is disturbed */

static void summary(void)
{
  const double ten[] = {9, 2, 5, 4, 1, 7, 10, 3, 8, 6};
  qn_summary s;
  check(qn_summarize(ten, 10, &s) == QN_OK, "ten samples are summarized");
  check(s.n == 10 && s.min == 1 && s.max == 10 && s.median == 5.5 && s.mean == 5.5, "min, max, median %g, mean %g",
        s.median, s.mean);
  check(near(s.sd * s.sd, 55.0 / 6), "variance %g is 55/6", s.sd * s.sd);
  /* Tables of the sign test: for n = 10 the 2nd and 9th are 97.9 %, the 3rd and 8th only 89.1 %. */
  check(s.low == 2 && s.high == 9, "the interval of ten is [2, 9], not [%g, %g]", s.low, s.high);
  qn_summarize(ten, 5, &s);
  check(isnan(s.low) && isnan(s.high), "five samples have no 95 %% interval");
  qn_summarize(ten, 6, &s);
  check(s.low == 1 && s.high == 9, "six have the whole range [%g, %g]", s.low, s.high);
  qn_summarize(ten, 1, &s);
  check(s.median == 9 && s.sd == 0, "one sample is its own median and has no spread");
  refuses(qn_summarize(ten, 0, &s), QN_BAD_ARGUMENT, "no samples");
  const double sorted[] = {1, 2, 4};
  check(qn_quantile(sorted, 3, 0) == 1 && qn_quantile(sorted, 3, 1) == 4 && qn_quantile(sorted, 3, 0.75) == 3,
        "quantiles are linear between neighbours");
}

static void ratios(void)
{
  const double a[] = {2, 4, 8, 16, 32, 64}, b[] = {1, 2, 4, 8, 16, 32}, drift[] = {1.1, 1, 1, 1, 1, 1};
  qn_ratio r;
  qn_ratio_paired(a, b, 6, &r);
  check(near(r.ratio, 2) && near(r.low, 2) && near(r.high, 2), "a drift that both share cancels: %g [%g, %g]", r.ratio,
        r.low, r.high);
  check(qn_verdict_of(&r) == QN_FASTER, "twice as fast is faster");
  qn_ratio_paired(b, a, 6, &r);
  check(near(r.ratio, 0.5) && qn_verdict_of(&r) == QN_SLOWER, "and the other way round slower, by the same factor");
  qn_ratio_paired(a, b, 5, &r);
  check(isnan(r.low) && qn_verdict_of(&r) == QN_UNCLEAR, "five pairs allow no word");
  qn_ratio_paired(drift + 1, drift + 1, 5, &r);
  check(near(r.ratio, 1), "a ratio of equal times is 1");
  qn_ratio_paired(drift, drift, 6, &r);
  check(qn_verdict_of(&r) == QN_SAME, "equal times are the same");
  const double wide[] = {0.9, 1.2, 0.8, 1.1, 1.3, 0.95, 1.05}, ones[] = {1, 1, 1, 1, 1, 1, 1};
  qn_ratio_paired(wide, ones, 7, &r);
  check(r.low < 1 && r.high > 1 && qn_verdict_of(&r) == QN_UNCLEAR, "an interval [%g, %g] round 1 allows no word",
        r.low, r.high);
  /* Wilcoxon's table, n = 10, 5 % two-sided: the critical value is 8, so the 9th smallest of the 55 means from each
   * end. With logarithms 1, 10, 100 ... no two means are equal. */
  double logs[10], one[10], means[55];
  size_t m = 0;
  for (int k = 0; k < 10; k++) logs[k] = 0.001 * (1 << k), one[k] = 1;
  for (int i = 0; i < 10; i++)
    for (int k = i; k < 10; k++) means[m++] = (logs[i] + logs[k]) / 2;
  for (size_t i = 0; i < m; i++)
    for (size_t k = i + 1; k < m; k++)
      if (means[k] < means[i]) {
        double x = means[i];
        means[i] = means[k];
        means[k] = x;
      }
  for (int k = 0; k < 10; k++) logs[k] = exp(logs[k]);
  qn_ratio_paired(logs, one, 10, &r);
  check(fabs(log(r.low) - means[8]) < 1e-12 && fabs(log(r.high) - means[46]) < 1e-12,
        "ten pairs: the 9th mean from each end");
  qn_ratio_unpaired(a, 6, b, 4, &r);
  check(isnan(r.low), "four samples on one side allow no interval");
  refuses(qn_ratio_paired(a, b, 0, &r), QN_BAD_ARGUMENT, "no samples");
}

/* Of `runs` simulated measurements, how many have the truth in their interval; the bound is four deviations of that
 * count below 95 %. Too wide an interval would be as useless: the upper bound is below 100 %. */
static void covers(size_t n, int kind, const char *what)
{
  enum { RUNS = 2000 };
  int hits = 0;
  double a[200], b[200];
  for (int run = 0; run < RUNS; run++) {
    qn_summary s;
    qn_ratio r = {0};
    for (size_t k = 0; k < n; k++) {
      double shared = kind == 1 ? 1 + 0.5 * sin((double)k) : 1; /* the machine's drift, which pairs share */
      a[k] = 1.5 * shared * slow_tail();
      b[k] = shared * slow_tail();
    }
    if (kind == 0) {
      qn_summarize(b, n, &s);
      r.low = s.low, r.high = s.high;
    } else if (kind == 1) {
      qn_ratio_paired(a, b, n, &r);
    } else {
      qn_ratio_unpaired(a, n, b, n, &r);
    }
    double truth = kind == 0 ? 1.00701 : 1.5; /* the median of slow_tail(): where 0.9 of a log-normal has its half */
    hits += r.low <= truth && truth <= r.high;
  }
  check(hits >= 0.95 * RUNS - 4 * sqrt(RUNS * 0.95 * 0.05) && hits < RUNS, "%s, n = %zu: %d of %d intervals hold", what,
        n, hits, (int)RUNS);
}

int main(void)
{
  summary();
  ratios();
  covers(7, 0, "the median's interval");
  covers(30, 0, "the median's interval");
  covers(8, 1, "the paired ratio's interval");
  covers(30, 1, "the paired ratio's interval");
  covers(60, 1, "the paired ratio's interval, by the normal approximation");
  covers(8, 2, "the unpaired ratio's interval");
  covers(30, 2, "the unpaired ratio's interval");
  return test_end();
}
