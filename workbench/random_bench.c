/* SPDX-License-Identifier: Apache-2.0 */
/* random_bench.c - see random_bench.h. */
#include "workbench/random_bench.h"
#include "core/core.h"
#include "workbench/table.h"
#include <math.h>
#include <stdlib.h>

enum { WORST = 5 };
static const double slower = 0.97;

static qn_status describe(const qn_problem *p, const qn_bench *b, char **text)
{
  char command[1024];
  qn_text all = {0};
  qn_try(qn_problem_command(p, "", command, sizeof command));
  qn_text_add(&all, "%5llu  ", (unsigned long long)p->number);
  if (!b->check.right)
    qn_text_add(&all, "WRONG: %s", b->check.wrong);
  else if (b->impossible)
    qn_text_add(&all, "WRONG: %s", b->suspicion);
  else if (b->has_unfused)
    qn_text_add(&all, "%7.3f  %s, unfused %s, %.1f %% of the ceiling", b->speedup.ratio,
                qn_duration(b->fused.time.median).text, qn_duration(b->unfused.time.median).text, 100 * b->share.ratio);
  else
    qn_text_add(&all, "%7s  %s, %.1f %% of the ceiling", "-", qn_duration(b->fused.time.median).text,
                100 * b->share.ratio);
  if (b->check.right && b->has_host) qn_text_add(&all, ", host %s", qn_duration(b->host_same_ns.median).text);
  qn_text_add(&all, "\n         %s\n", command);
  if (all.failed) return qn_fail(QN_NO_MEMORY, "no memory for a problem's line");
  *text = all.at;
  return QN_OK;
}

static qn_status make_room(qn_sweep *s)
{
  if (s->n < s->room) return QN_OK;
  const size_t room = s->room ? 2 * s->room : 64;
  qn_sweep_row *row = qn_reallocate(s->row, room * sizeof *row);
  if (!row) return qn_fail(QN_NO_MEMORY, "no memory for %zu problems", room);
  s->row = row;
  s->room = room;
  return QN_OK;
}

qn_status qn_sweep_add(qn_sweep *s, const qn_problem *problem, const qn_bench *bench, FILE *to)
{
  char *text;
  qn_try(make_room(s));
  qn_try(describe(problem, bench, &text));
  fputs(text, to);
  fflush(to);
  const bool counts = bench->timed && !bench->impossible;
  s->n_wrong += !bench->check.right || bench->impossible;
  s->row[s->n++] = (qn_sweep_row){.speedup = counts && bench->has_unfused ? bench->speedup.ratio : 0,
                                  .share = counts ? bench->share.ratio : 0,
                                  .text = text};
  return QN_OK;
}

static int by_speedup(const void *a, const void *b)
{
  const double x = ((const qn_sweep_row *)a)->speedup, y = ((const qn_sweep_row *)b)->speedup;
  return (x > y) - (x < y);
}

static int by_share(const void *a, const void *b)
{
  const double x = ((const qn_sweep_row *)a)->share, y = ((const qn_sweep_row *)b)->share;
  return (x > y) - (x < y);
}

/* Of the rows of one kind, which are ordered. */
static void print_kind(const qn_sweep *s, bool unfused, FILE *to)
{
  double logs = 0, least = HUGE_VAL;
  size_t n = 0, under = 0, told = 0;
  for (size_t k = 0; k < s->n; k++) {
    const double ratio = unfused ? s->row[k].speedup : s->row[k].share;
    if (ratio <= 0 || (!unfused && s->row[k].speedup > 0)) continue;
    logs += log(ratio);
    least = fmin(least, ratio);
    under += ratio < slower;
    n++;
  }
  if (!n) return;
  fprintf(to, "%s: geometric mean %.3f, least %.3f, under %.2f in %zu of %zu\n",
          unfused ? "unfused over fused" : "of the ceiling, alone", exp(logs / (double)n), least, slower, under, n);
  for (size_t k = 0; k < s->n && told < WORST; k++)
    if (unfused ? s->row[k].speedup > 0 : s->row[k].share > 0 && s->row[k].speedup <= 0)
      fputs(s->row[k].text, to), told++;
}

void qn_sweep_print(const qn_sweep *s, const char *op, FILE *to)
{
  fprintf(to, "%s: %zu problems, %zu wrong\n", op, s->n, s->n_wrong);
  qsort(s->row, s->n, sizeof *s->row, by_speedup);
  print_kind(s, true, to);
  qsort(s->row, s->n, sizeof *s->row, by_share);
  print_kind(s, false, to);
}

void qn_sweep_clear(qn_sweep *s)
{
  for (size_t k = 0; k < s->n; k++) qn_release(s->row[k].text);
  qn_release(s->row);
  *s = (qn_sweep){0};
}
