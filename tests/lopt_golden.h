/* SPDX-License-Identifier: Apache-2.0 */
/* lopt_golden.h - for tests of learned optimizers: a file of golden vectors, line by line, and what was got held to a
 * line of it. */
#ifndef QN_TESTS_LOPT_GOLDEN_H
#define QN_TESTS_LOPT_GOLDEN_H
#include "lopt_model.h"
#include <stdio.h>

typedef struct golden {
  FILE *file;
  char *line;
  size_t room;
  long number;
} golden;

static inline bool next_line(golden *g)
{
  do {
    if (getline(&g->line, &g->room, g->file) < 0) return false;
    g->number++;
  } while (g->line[0] == '#');
  return true;
}

/* The bits on the line behind the word; false if there are not just n. */
static inline bool take_floats(const golden *g, float *to, size_t n)
{
  const char *at = strchr(g->line, ' ');
  for (size_t k = 0; k < n; k++) {
    char *end;
    const uint32_t bits = (uint32_t)strtoul(at ? at : "", &end, 16);
    if (!at || end == at) return false;
    memcpy(&to[k], &bits, sizeof bits);
    at = end;
  }
  return !at || !at[strspn(at, " \n")];
}

static inline double compare(const golden *g, const float *got, const float *before, size_t n)
{
  float *want = malloc((n + 1) * sizeof *want);
  double worst = take_floats(g, want, n) ? 0 : HUGE_VAL;
  for (size_t k = 0; k < n && worst < HUGE_VAL; k++) {
    const double share = share_of_tolerance((double)got[k], (double)want[k], (double)before[k]);
    if (share > worst) worst = share;
  }
  free(want);
  return worst;
}

/* A mean may be small where its terms are not: each of an array's planes is held to its root mean square besides. A
 * mean of one number is held to the gradients' size. */
static inline double compare_state(const golden *g, const float *got, size_t n, size_t planes, double least)
{
  float *want = malloc((n + 1) * sizeof *want);
  double worst = take_floats(g, want, n) ? 0 : HUGE_VAL;
  for (size_t plane = 0; plane < planes && worst < HUGE_VAL; plane++) {
    const size_t from = plane * (n / planes), to = from + n / planes;
    double squares = 0;
    for (size_t k = from; k < to; k++) squares += (double)want[k] * (double)want[k];
    const double size = fmax(least, sqrt(squares / (double)(n / planes)));
    for (size_t k = from; k < to; k++) {
      const double off = fabs((double)got[k] - (double)want[k]) / (3e-7 * (fabs((double)want[k]) + size));
      if (!(off <= worst)) worst = isnan(off) ? HUGE_VAL : off;
    }
  }
  free(want);
  return worst;
}
#endif
