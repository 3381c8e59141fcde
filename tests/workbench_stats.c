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
  refuses(qn_ratio_paired(a, b, 0, &r), QN_BAD_ARGUMENT, "no samples");
}

/* A ratio for a word: the quotient of the medians, inside an interval of 999 in 1000. */
static void speedups(void)
{
  double above[16], below[16], shifts[64];
  qn_ratio r;
  for (int k = 0; k < 16; k++) above[k] = exp(0.001 * (1 << k)), below[k] = 1;
  qn_speedup_paired(above, below, 10, &r);
  check(isnan(r.low) && qn_verdict_of(&r) == QN_UNCLEAR, "ten pairs allow no word");
  qn_speedup_paired(above, below, QN_WORD_PAIRS, &r);
  check(near(r.low, above[0]) && near(r.high, above[10]) && qn_verdict_of(&r) == QN_FASTER,
        "eleven do, with the whole range [%g, %g]", r.low, r.high);
  check(near(r.ratio, above[5]), "the ratio %g is that of the medians", r.ratio);
  qn_speedup_unpaired(above, 6, below, 7, &r);
  check(isnan(r.low), "six samples and seven allow no interval");
  /* The orders of 8 and 8 whose U is 0, 1, 2, 3 are 1, 1, 2, 3 of 12870: three from each end are below 0.0005. */
  for (int k = 0; k < 8; k++) above[k] = exp(k), below[k] = exp(0.1 * k);
  size_t m = 0;
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 8; k++) shifts[m++] = i - 0.1 * k;
  for (size_t i = 0; i < m; i++)
    for (size_t k = i + 1; k < m; k++)
      if (shifts[k] < shifts[i]) {
        double x = shifts[i];
        shifts[i] = shifts[k];
        shifts[k] = x;
      }
  qn_speedup_unpaired(above, 8, below, 8, &r);
  check(fabs(log(r.low) - shifts[2]) < 1e-12 && fabs(log(r.high) - shifts[61]) < 1e-12,
        "eight and eight: the third shift from each end, [%g, %g]", log(r.low), log(r.high));
  qn_speedup_unpaired(above, 7, below, 7, &r);
  check(fabs(log(r.low) + 0.6) < 1e-12 && fabs(log(r.high) - 6) < 1e-12, "seven and seven: the whole range");
  /* Times with two speeds: the medians fall on different ones, and most pairs say that nothing differs. */
  for (int k = 0; k < 15; k++) above[k] = k < 8 ? 2 : 1, below[k] = k < 7 ? 2 : 1;
  qn_speedup_paired(above, below, 15, &r);
  check(r.ratio == 2 && r.low <= 1 && r.high == 2 && qn_verdict_of(&r) == QN_UNCLEAR,
        "the interval [%g, %g] reaches to the ratio of the two medians", r.low, r.high);
  refuses(qn_speedup_paired(above, below, 0, &r), QN_BAD_ARGUMENT, "no samples");
  refuses(qn_speedup_unpaired(above, 1, below, 0, &r), QN_BAD_ARGUMENT, "no samples");
}

/* Of `runs` simulated measurements, how many have the truth in their interval; the bound is four deviations of that
 * count below what is claimed. Too wide an interval would be as useless: the upper bound is below 100 %. */
enum { MEDIAN, RATIO, PAIRED, UNPAIRED };
static void covers(size_t n, int kind, const char *what)
{
  const int runs = kind < PAIRED ? 2000 : 20000;
  const double claim = kind < PAIRED ? 0.95 : 0.999;
  int hits = 0;
  double a[200], b[200];
  for (int run = 0; run < runs; run++) {
    qn_summary s;
    qn_ratio r = {0};
    for (size_t k = 0; k < n; k++) {
      double shared = kind == RATIO || kind == PAIRED ? 1 + 0.5 * sin((double)k) : 1; /* the machine's drift */
      a[k] = 1.5 * shared * slow_tail();
      b[k] = shared * slow_tail();
    }
    if (kind == MEDIAN) {
      qn_summarize(b, n, &s);
      r.low = s.low, r.high = s.high;
    } else if (kind == RATIO) {
      qn_ratio_paired(a, b, n, &r);
    } else if (kind == PAIRED) {
      qn_speedup_paired(a, b, n, &r);
    } else {
      qn_speedup_unpaired(a, n, b, n, &r);
    }
    double truth = kind == MEDIAN ? 1.00701 : 1.5; /* of slow_tail(): where 0.9 of a log-normal has its half */
    hits += r.low <= truth && truth <= r.high;
  }
  check(hits >= claim * runs - 4 * sqrt(runs * claim * (1 - claim)) && hits < runs,
        "%s, n = %zu: %d of %d intervals hold", what, n, hits, runs);
}

int main(void)
{
  summary();
  ratios();
  speedups();
  covers(7, MEDIAN, "the median's interval");
  covers(30, MEDIAN, "the median's interval");
  covers(8, RATIO, "the paired ratio's interval");
  covers(30, RATIO, "the paired ratio's interval");
  covers(60, RATIO, "the paired ratio's interval, by the normal approximation");
  covers(12, PAIRED, "a speed-up's interval");
  covers(8, UNPAIRED, "the interval of a speed-up between runs");
  covers(24, UNPAIRED, "the interval of a speed-up between runs, by the normal approximation");
  return test_end();
}
