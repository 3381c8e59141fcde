/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - see compare.h. The two runs know nothing of each other, so the interval is the unpaired one; where the
 * machines differ a ratio is shown and no word is said. */
#include "workbench/compare.h"
#include "core/core.h"
#include "workbench/table.h"
#include "workbench/term.h"
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

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

static qn_status compare_one(qn_comparison *c)
{
  const qn_record *a = c->before, *b = c->after;
  bool same_machine = !strcmp(a->device, b->device) && !strcmp(a->machine, b->machine);
  if (!same_machine) add_note(c, "different machines: %.40s, %.40s", a->device, b->device);
  if (a->threads != b->threads) add_note(c, "%d against %d threads", a->threads, b->threads);
  if (a->elements != b->elements) add_note(c, "%" PRId64 " against %" PRId64 " elements", a->elements, b->elements);
  if (strcmp(a->variant, b->variant) != 0) add_note(c, "%.16s against %.16s", a->variant, b->variant);
  if (!a->right || !b->right) add_note(c, "wrong %s: no time", a->right ? "after" : b->right ? "before" : "in both");
  if (!a->timed || !b->timed) return QN_OK;
  if (strcmp(a->cache, b->cache) != 0) add_note(c, "cache %.8s against %.8s", a->cache, b->cache);
  if (a->impossible || b->impossible) add_note(c, "an impossible time");
  c->comparable = same_machine && a->elements == b->elements && !a->impossible && !b->impossible;
  qn_try(qn_ratio_unpaired(a->fused.ns, a->fused.n, b->fused.ns, b->fused.n, &c->speedup));
  c->verdict = qn_verdict_of(&c->speedup);
  return QN_OK;
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
    status = compare_one(c);
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
  const qn_record *a = c->before, *b = c->after;
  qn_summary before, after;
  fprintf(stream, "%s %s, %s, %s%s%s%s%s", a->op, a->workload, a->types, a->backend, a->timed ? ", " : "",
          a->timed ? a->timer : "", *a->by ? ", through " : "", a->by);
  if (a->timed && b->timed && qn_summarize(a->fused.ns, a->fused.n, &before) == QN_OK &&
      qn_summarize(b->fused.ns, b->fused.n, &after) == QN_OK) {
    fprintf(stream, "\n  %s -> %s   %.3fx %s   %s%s%s   of ceiling %.1f%% -> %.1f%%", qn_duration(before.median).text,
            qn_duration(after.median).text, c->speedup.ratio, qn_interval(c->speedup.low, c->speedup.high, 3).text,
            c->comparable ? qn_term_colour(stream, colours[c->verdict]) : "",
            c->comparable ? qn_verdict_word(c->verdict) : "no verdict",
            c->comparable ? qn_term_colour(stream, QN_PLAIN) : "", 100 * a->share, 100 * b->share);
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
