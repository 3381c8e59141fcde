/* SPDX-License-Identifier: Apache-2.0 */
/* report_means.c - geometric means over problems by device, precision class and level (report_html.h). */
#include "core/core.h"
#include "workbench/report_html.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char own_class[] = "baseline's";

/* A problem on a device: its verdicts are those from `from` to `to` in the order of by_problem. */
typedef struct work {
  qn_html_verdict **from, **to;
} work;

void qn_html_level(char text[32], int64_t level)
{
  if (level == QN_HTML_ALL_LEVELS)
    snprintf(text, 32, "all");
  else if (level == QN_HTML_NO_LEVEL)
    snprintf(text, 32, "no level");
  else
    snprintf(text, 32, "level %lld", (long long)level);
}

static int by_problem(const void *x, const void *y)
{
  const qn_html_verdict *a = *(qn_html_verdict *const *)x, *b = *(qn_html_verdict *const *)y;
  int order = strcmp(a->device, b->device);
  if (!order) order = (a->level > b->level) - (a->level < b->level);
  return order ? order : strcmp(a->problem, b->problem);
}

static double gain(const qn_html_verdict *v, qn_html_over over)
{
  return v->correct && v->over[over].faster ? v->over[over].ratio : 1;
}

/* The verdict of a problem that counts in a class: the correct one with the greatest gain; NULL: none. */
static const qn_html_verdict *best_of(const work *w, const char *class)
{
  const qn_html_verdict *best = NULL;
  for (qn_html_verdict **v = w->from; v < w->to; v++)
    if ((*v)->correct && !strcmp((*v)->class, class) &&
        (!best || gain(*v, QN_OVER_BETTER) > gain(best, QN_OVER_BETTER)))
      best = *v;
  return best;
}

typedef struct sums {
  double log[QN_OVER_COUNT], log_wins;
  bool known[QN_OVER_COUNT];
} sums;

/* The baselines' times may stand in any verdict of the problem. */
static bool compile_wins(const work *w, bool *both)
{
  for (qn_html_verdict **v = w->from; v < w->to; v++)
    if ((*v)->eager_ns > 0 && (*v)->compile_ns > 0) return *both = true, (*v)->compile_ns < (*v)->eager_ns;
  return *both = false;
}

static void count(const work *w, qn_html_mean *m, sums *s)
{
  const qn_html_verdict *best = best_of(w, m->class);
  bool judged = false, both;
  for (qn_html_verdict **v = w->from; v < w->to; v++) judged |= (*v)->judged;
  if (!best && strcmp(m->class, own_class) != 0) return;
  if (!judged) {
    m->excluded++;
    return;
  }
  const bool wins = compile_wins(w, &both);
  m->problems++;
  m->both += both;
  m->compile_wins += wins;
  if (!best) return; /* counts 1 */
  m->correct++;
  m->faster += best->over[QN_OVER_BETTER].faster;
  m->hybrids += best->hybrid;
  if (wins) s->log_wins += log(gain(best, QN_OVER_BETTER));
  for (int k = 0; k < QN_OVER_COUNT; k++) {
    s->known[k] |= best->over[k].ratio > 0;
    s->log[k] += log(gain(best, (qn_html_over)k));
  }
}

static void finish(qn_html_mean *m, const sums *s)
{
  const double n = (double)m->problems;
  for (int k = 0; k < QN_OVER_COUNT; k++) m->mean[k] = n > 0 && (s->known[k] || !m->correct) ? exp(s->log[k] / n) : NAN;
  m->with_excluded =
      m->problems + m->excluded ? exp(s->log[QN_OVER_BETTER] / (double)(m->problems + m->excluded)) : NAN;
  m->where_compile_wins = m->compile_wins ? exp(s->log_wins / (double)m->compile_wins) : NAN;
}

static bool has_class(const qn_html_verdict *v, const char *class) { return v->correct && !strcmp(v->class, class); }

/* A row of a device, class and level, where it has a problem. */
static void add_row(qn_html_mean *rows, size_t *n, const work *works, size_t n_works, qn_html_mean m)
{
  sums s = {0};
  for (size_t k = 0; k < n_works; k++) {
    const qn_html_verdict *first = *works[k].from;
    if (!strcmp(first->device, m.device) && (m.level == QN_HTML_ALL_LEVELS || m.level == first->level))
      count(&works[k], &m, &s);
  }
  finish(&m, &s);
  if (m.problems + m.excluded) rows[(*n)++] = m;
}

/* The rows of a device and class: each level, then all where there are two or more. */
static void add_class(qn_html_mean *rows, size_t *n, const work *works, size_t n_works, const char *device,
                      const char *class)
{
  const size_t before = *n;
  int64_t last = QN_HTML_ALL_LEVELS;
  for (size_t k = 0; k < n_works; k++) {
    const qn_html_verdict *first = *works[k].from;
    if (strcmp(first->device, device) != 0 || first->level == last) continue;
    last = first->level;
    add_row(rows, n, works, n_works, (qn_html_mean){.device = device, .class = class, .level = last});
  }
  if (*n > before + 1)
    add_row(rows, n, works, n_works, (qn_html_mean){.device = device, .class = class, .level = QN_HTML_ALL_LEVELS});
}

/* Classes of a device in the order of their first candidate, the baseline's before them. */
static void add_device(qn_html_mean *rows, size_t *n, const work *works, size_t n_works, qn_html_verdict **v,
                       size_t n_v)
{
  const char *device = v[0]->device;
  add_class(rows, n, works, n_works, device, own_class);
  for (size_t k = 0; k < n_v; k++) {
    bool known = !v[k]->correct || !strcmp(v[k]->class, own_class);
    for (size_t j = 0; j < k && !known; j++) known = has_class(v[j], v[k]->class);
    if (!known) add_class(rows, n, works, n_works, device, v[k]->class);
  }
}

/* Verdicts of a search's candidates are left out: the search has its own choice and says what it kept. */
static size_t take_counting(const qn_html_lines *lines, qn_html_verdict **order)
{
  size_t n = 0;
  for (size_t k = 0; k < lines->n_verdicts; k++)
    if (lines->verdict[k].last && !*lines->verdict[k].by) order[n++] = &lines->verdict[k];
  qsort(order, n, sizeof *order, by_problem);
  return n;
}

qn_status qn_html_means(const qn_html_lines *lines, qn_html_mean **means, size_t *n_means)
{
  qn_html_verdict **order;
  work *works = NULL;
  *means = NULL, *n_means = 0;
  qn_try(qn_try_allocate(&order, (lines->n_verdicts + 1) * sizeof *order, "the order of verdicts"));
  const size_t n = take_counting(lines, order);
  qn_status status = qn_try_allocate(&works, (n + 1) * sizeof *works, "problems");
  /* A class is new with a verdict, a level with a problem: 2 rows a verdict and class are enough. */
  if (status == QN_OK) status = qn_try_allocate(means, (4 * n + 4) * sizeof **means, "means");
  size_t n_works = 0;
  for (size_t k = 0; status == QN_OK && k < n; k++) {
    if (!k || by_problem(&order[k - 1], &order[k])) works[n_works++] = (work){order + k, order + k};
    works[n_works - 1].to = order + k + 1;
  }
  for (size_t from = 0, to; status == QN_OK && from < n; from = to) {
    for (to = from; to < n && !strcmp(order[to]->device, order[from]->device);) to++;
    add_device(*means, n_means, works, n_works, order + from, to - from);
  }
  qn_release(order);
  qn_release(works);
  return status;
}
