/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - see search.h. */
#include "workbench/search.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/sampler.h"
#include <math.h>
#include <string.h>

enum { BATCH = 8, LEFT = 4 };
static const char *const names[QN_STRATEGY_COUNT + 1] = {"exhaustive", "random", "halving", NULL};

const char *qn_strategy_name(qn_strategy strategy) { return names[strategy]; }

qn_status qn_strategy_from_name(const char *name, qn_strategy *strategy)
{
  for (int k = 0; k < QN_STRATEGY_COUNT; k++) {
    if (strcmp(name, names[k]) != 0) continue;
    *strategy = (qn_strategy)k;
    return QN_OK;
  }
  const char *near = qn_nearest(name, names);
  return qn_fail(QN_BAD_ARGUMENT, "there is no strategy %s%s%s%s; exhaustive, random and halving are", name,
                 near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
}

/* Candidates in the order in which they are looked at, and what was seen of each. */
typedef struct field {
  size_t n, which[QN_SEARCH_MOST], looked;
  double speedup[QN_SEARCH_MOST]; /* of which[k] */
  bool seen[QN_SEARCH_MOST];
} field;

static void line_up(const qn_search *s, field *f)
{
  f->n = s->n;
  f->looked = 0;
  for (size_t k = 0; k < f->n; k++) {
    f->which[k] = k;
    f->speedup[k] = NAN;
    f->seen[k] = false;
  }
  for (size_t k = f->n; s->strategy == QN_STRATEGY_RANDOM && k > 1; k--) {
    const size_t other = (size_t)(qn_seed_mix(s->seed, k) % k), kept = f->which[k - 1];
    f->which[k - 1] = f->which[other];
    f->which[other] = kept;
  }
}

/* The first of the field, some at a time where the budget may end it. */
static qn_status look(const qn_search *s, field *f, double seconds, double until_ns)
{
  const size_t step = s->budget_s > 0 ? BATCH : f->n;
  for (size_t k = 0; k < f->n; k += step) {
    const size_t n = f->n - k < step ? f->n - k : step;
    if (s->budget_s > 0 && k && (double)qn_now_ns() > until_ns) break;
    qn_try(s->look(s->user, f->which + k, n, seconds, f->speedup + k));
    for (size_t i = k; i < k + n; i++) {
      f->looked += !f->seen[i];
      f->seen[i] = true;
    }
  }
  return QN_OK;
}

static bool before(const field *f, size_t a, size_t b)
{
  return f->speedup[a] > f->speedup[b] || (isnan(f->speedup[b]) && !isnan(f->speedup[a]));
}

/* By what was seen, the best first: insertion, as there are few. */
static void sort(field *f)
{
  for (size_t k = 1; k < f->n; k++)
    for (size_t i = k; i > 0 && before(f, i, i - 1); i--) {
      const size_t which = f->which[i];
      const double speedup = f->speedup[i];
      const bool seen = f->seen[i];
      f->which[i] = f->which[i - 1], f->speedup[i] = f->speedup[i - 1], f->seen[i] = f->seen[i - 1];
      f->which[i - 1] = which, f->speedup[i - 1] = speedup, f->seen[i - 1] = seen;
    }
}

qn_status qn_search_run(const qn_search *s, size_t *best, double *speedup, size_t *looked)
{
  field f;
  const double until_ns = (double)qn_now_ns() + 1e9 * s->budget_s;
  const bool halves = s->strategy == QN_STRATEGY_HALVING;
  *best = s->n;
  *speedup = NAN;
  *looked = 0;
  qn_require(s->n <= QN_SEARCH_MOST, "%zu candidates, at most %d can be searched", s->n, QN_SEARCH_MOST);
  line_up(s, &f);
  double seconds = halves ? s->look_s / 4 : s->look_s;
  qn_try(look(s, &f, seconds, until_ns));
  sort(&f);
  while (halves && f.n > LEFT && !(s->budget_s > 0 && (double)qn_now_ns() > until_ns)) {
    while (f.n > LEFT && isnan(f.speedup[f.n - 1])) f.n--;
    f.n = f.n / 2 > LEFT ? f.n / 2 : LEFT < f.n ? LEFT : f.n;
    seconds *= 2;
    qn_try(look(s, &f, seconds, until_ns));
    sort(&f);
  }
  *looked = f.looked;
  if (!f.n || isnan(f.speedup[0])) return QN_OK;
  *best = f.which[0];
  *speedup = f.speedup[0];
  return QN_OK;
}
