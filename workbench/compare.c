/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - see compare.h. A run is one number, its median; words rest on the spread of these. Where the runs of one
 * file all came first, the machine itself may have changed in between: its ceilings, timed in the same runs, say
 * whether it did. Where the machines differ a ratio is shown and no word is said. */
#include "workbench/compare.h"
#include "core/core.h"
#include "workbench/table.h"
#include "workbench/term.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const double drift_most = 1.05; /* of the ceilings, between files whose runs were not taken in turns */

static bool alike(const qn_record *a, const qn_record *b)
{
  return !strcmp(a->op, b->op) && !strcmp(a->by, b->by) && !strcmp(a->workload, b->workload) &&
         !strcmp(a->types, b->types) && !strcmp(a->backend, b->backend) &&
         !strcmp(a->timed ? a->timer : "", b->timed ? b->timer : "");
}

/* The last line of the file that is like this one. */
static const qn_record *last_like(const qn_records *records, const qn_record *r)
{
  for (size_t k = records->n; k-- > 0;)
    if (alike(&records->record[k], r)) return &records->record[k];
  return NULL;
}

/* Is it another run of what `last` measured: of the same build, on the same machine, in the same way? */
static bool same_run(const qn_record *r, const qn_record *last)
{
  return alike(r, last) && r->right && r->timed && !strcmp(r->commit, last->commit) &&
         !strcmp(r->compiler, last->compiler) && !strcmp(r->device, last->device) &&
         !strcmp(r->machine, last->machine) && !strcmp(r->variant, last->variant) && !strcmp(r->cache, last->cache) &&
         r->threads == last->threads && r->elements == last->elements;
}

static void add_note(qn_comparison *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_note(qn_comparison *c, const char *format, ...)
{
  size_t used = strlen(c->note);
  if (used) used += (size_t)snprintf(c->note + used, sizeof c->note - used, "; ");
  if (used >= sizeof c->note) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(c->note + used, sizeof c->note - used, format, arguments);
  va_end(arguments);
}

/* ---- the runs of one side ---- */
typedef struct side {
  size_t n;
  const qn_record **run;
  double *ns, *ceiling, *share; /* of each run: its median, the ceiling's for a byte, the share of it */
  double load;                  /* the largest that a run was taken at; 0: not known */
  bool impossible;
} side;

static double load_of(const qn_record *r)
{
  const char *at = strstr(r->clocks, "load ");
  return at ? strtod(at + strlen("load "), NULL) : 0;
}

static qn_status add_run(side *s, const qn_record *r)
{
  qn_summary step, ceiling;
  qn_try(qn_summarize(r->fused.ns, r->fused.n, &step));
  qn_try(qn_summarize(r->ceiling.ns, r->ceiling.n, &ceiling));
  s->run[s->n] = r;
  s->ns[s->n] = step.median;
  s->ceiling[s->n] = ceiling.median / r->ceiling.bytes;
  s->share[s->n++] = r->share;
  s->load = fmax(s->load, load_of(r));
  s->impossible = s->impossible || r->impossible;
  return QN_OK;
}

static void free_side(side *s)
{
  qn_release(s->run);
  qn_release(s->ns);
  qn_release(s->ceiling);
  qn_release(s->share);
}

static qn_status read_side(side *s, const qn_records *records, const qn_record *last)
{
  *s = (side){.n = 0};
  qn_try(qn_try_allocate(&s->run, (records->n + 1) * sizeof *s->run, "runs"));
  qn_try(qn_try_allocate(&s->ns, (records->n + 1) * sizeof *s->ns, "times of runs"));
  qn_try(qn_try_allocate(&s->ceiling, (records->n + 1) * sizeof *s->ceiling, "ceilings of runs"));
  qn_try(qn_try_allocate(&s->share, (records->n + 1) * sizeof *s->share, "shares of runs"));
  for (size_t k = 0; k < records->n; k++)
    if (same_run(&records->record[k], last)) qn_try(add_run(s, &records->record[k]));
  return QN_OK;
}

/* The median as it is printed, so that whoever divides what is printed gets the ratio that is printed. */
static qn_status shown_median(const double *ns, size_t n, double *shown)
{
  qn_summary s;
  qn_try(qn_summarize(ns, n, &s));
  double unit = pow(10, floor(log10(s.median)) - 3);
  *shown = round(s.median / unit) * unit;
  return QN_OK;
}

/* Were the runs of both taken in turns? In the order of their dates, the files must alternate at least as often as the
 * shorter one has runs (A B B A A B ... does so just). Of equal dates the other file's comes next. */
static bool in_turns(const side *a, const side *b)
{
  size_t i = 0, k = 0, changes = 0, least = a->n < b->n ? a->n : b->n;
  int last = -1;
  while (i < a->n || k < b->n) {
    int order = i == a->n ? 1 : k == b->n ? -1 : strcmp(a->run[i]->date, b->run[k]->date);
    int next = order < 0 ? 0 : order > 0 ? 1 : last == 0;
    changes += last >= 0 && next != last;
    last = next;
    *(next ? &k : &i) += 1;
  }
  return changes >= least;
}

/* ---- what may be said ---- */

/* Of runs that were not taken in turns: the interval grows by as much as the machine's ceilings may have moved. Where
 * they moved visibly there is no word at all: a kernel may feel what moved them more than they did. */
static qn_status allow_drift(qn_comparison *c, const side *a, const side *b, bool *allowed)
{
  qn_ratio drift;
  qn_try(qn_speedup_unpaired(a->ceiling, a->n, b->ceiling, b->n, &drift));
  const double most = fmax(drift.high, 1 / drift.low);
  c->speedup.low /= most;
  c->speedup.high *= most;
  *allowed = most <= drift_most;
  if (!*allowed)
    add_note(c,
             "not taken in turns, and the ceiling of the machine itself changed by %.3fx %s between the files: let "
             "--before and --after run both",
             drift.ratio, qn_interval(drift.low, drift.high, 3).text);
  return QN_OK;
}

static void say_spread(qn_comparison *c, const side *a, const side *b)
{
  double spread = 1, load = fmax(a->load, b->load);
  for (int of_b = 0; of_b < 2; of_b++) {
    const side *s = of_b ? b : a;
    double least = s->ns[0], most = s->ns[0];
    for (size_t k = 1; k < s->n; k++) least = fmin(least, s->ns[k]), most = fmax(most, s->ns[k]);
    spread = fmax(spread, most / least);
  }
  add_note(c, "runs of one file differ by up to %.3fx", spread);
  if (load > 0) add_note(c, "at a load of up to %.1f", load);
}

static qn_status judge(qn_comparison *c, const side *a, const side *b)
{
  bool allowed = true;
  if (a->n < QN_WORD_SAMPLES || b->n < QN_WORD_SAMPLES) {
    c->speedup.low = c->speedup.high = NAN;
    add_note(c, "%zu and %zu runs, a word needs %d of each, taken in turns: let --before and --after run both", a->n,
             b->n, QN_WORD_SAMPLES);
    return QN_OK;
  }
  add_note(c, "%zu and %zu runs", a->n, b->n);
  if (!in_turns(a, b)) qn_try(allow_drift(c, a, b, &allowed));
  if (allowed) c->verdict = qn_verdict_of(&c->speedup);
  if (c->verdict == QN_UNCLEAR) say_spread(c, a, b);
  return QN_OK;
}

static qn_status compare_runs(qn_comparison *c, const side *a, const side *b)
{
  qn_summary before, after;
  c->n_before = a->n;
  c->n_after = b->n;
  qn_try(shown_median(a->ns, a->n, &c->before_ns));
  qn_try(shown_median(b->ns, b->n, &c->after_ns));
  qn_try(qn_summarize(a->share, a->n, &before));
  qn_try(qn_summarize(b->share, b->n, &after));
  c->before_share = before.median;
  c->after_share = after.median;
  qn_try(qn_speedup_unpaired(a->ns, a->n, b->ns, b->n, &c->speedup));
  qn_ratio_hold(&c->speedup, c->before_ns / c->after_ns);
  if (a->impossible || b->impossible) add_note(c, "an impossible time");
  c->comparable = c->comparable && !a->impossible && !b->impossible;
  return judge(c, a, b);
}

static qn_status compare_one(qn_comparison *c, const qn_records *before, const qn_records *after)
{
  const qn_record *a = c->before, *b = c->after;
  bool same_machine = !strcmp(a->device, b->device) && !strcmp(a->machine, b->machine);
  if (!same_machine) add_note(c, "different machines: %.40s, %.40s", a->device, b->device);
  if (a->threads != b->threads) add_note(c, "%d against %d threads", a->threads, b->threads);
  if (a->elements != b->elements) add_note(c, "%" PRId64 " against %" PRId64 " elements", a->elements, b->elements);
  if (strcmp(a->variant, b->variant) != 0) add_note(c, "%.16s against %.16s", a->variant, b->variant);
  if (!a->right || !b->right) add_note(c, "wrong %s: no time", a->right ? "after" : b->right ? "before" : "in both");
  if (!a->right || !b->right || !a->timed || !b->timed) return QN_OK;
  if (strcmp(a->cache, b->cache) != 0) add_note(c, "cache %.8s against %.8s", a->cache, b->cache);
  c->comparable = same_machine && a->elements == b->elements;
  side sides[2];
  qn_status status = read_side(&sides[0], before, a);
  sides[1] = (side){.n = 0};
  if (status == QN_OK) status = read_side(&sides[1], after, b);
  if (status == QN_OK) status = compare_runs(c, &sides[0], &sides[1]);
  free_side(&sides[0]);
  free_side(&sides[1]);
  return status;
}

qn_status qn_compare(const qn_records *before, const qn_records *after, qn_comparisons *out)
{
  *out = (qn_comparisons){0};
  qn_try(qn_try_allocate(&out->row, (before->n + 1) * sizeof *out->row, "comparisons"));
  qn_status status = QN_OK;
  for (size_t k = 0; status == QN_OK && k < before->n; k++) {
    const qn_record *r = &before->record[k], *other = last_like(after, r);
    if (last_like(before, r) != r) continue;
    if (!other) {
      out->only_before++;
      continue;
    }
    qn_comparison *c = &out->row[out->n++];
    *c = (qn_comparison){.before = r, .after = other};
    status = compare_one(c, before, after);
  }
  for (size_t k = 0; k < after->n; k++)
    out->only_after +=
        last_like(after, &after->record[k]) == &after->record[k] && !last_like(before, &after->record[k]);
  if (status != QN_OK) qn_comparisons_free(out);
  return status;
}

void qn_comparisons_free(qn_comparisons *comparisons)
{
  qn_release(comparisons->row);
  *comparisons = (qn_comparisons){0};
}

static void print_row(FILE *stream, const qn_comparison *c)
{
  static const qn_colour colours[] = {
      [QN_UNCLEAR] = QN_YELLOW, [QN_FASTER] = QN_GREEN, [QN_SAME] = QN_DIM, [QN_SLOWER] = QN_RED};
  const qn_record *a = c->before;
  fprintf(stream, "%s %s, %s, %s%s%s%s%s", a->op, a->workload, a->types, a->backend, a->timed ? ", " : "",
          a->timed ? a->timer : "", *a->by ? ", through " : "", a->by);
  if (c->n_before && c->n_after) {
    qn_amount interval = {""};
    if (!isnan(c->speedup.low)) interval = qn_interval(c->speedup.low, c->speedup.high, 3);
    fprintf(stream, "\n  %s -> %s   %.3fx %s%s%s%s%s   of ceiling %.1f%% -> %.1f%%", qn_duration(c->before_ns).text,
            qn_duration(c->after_ns).text, c->speedup.ratio, interval.text, *interval.text ? "   " : "  ",
            c->comparable ? qn_term_colour(stream, colours[c->verdict]) : "",
            c->comparable ? qn_verdict_word(c->verdict) : "no verdict",
            c->comparable ? qn_term_colour(stream, QN_PLAIN) : "", 100 * c->before_share, 100 * c->after_share);
  }
  fprintf(stream, "%s%s\n", *c->note ? "\n  " : "", c->note);
}

void qn_comparisons_print(FILE *stream, const qn_comparisons *comparisons)
{
  for (size_t k = 0; k < comparisons->n; k++) print_row(stream, &comparisons->row[k]);
  if (comparisons->n == 0) fprintf(stream, "the two files have nothing in common\n");
  if (comparisons->only_before) fprintf(stream, "%zu only before\n", comparisons->only_before);
  if (comparisons->only_after) fprintf(stream, "%zu only after\n", comparisons->only_after);
}
