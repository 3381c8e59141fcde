/* SPDX-License-Identifier: Apache-2.0 */
/* report_summary.c - the lines under a table of measurements: geometric mean, worst and best of its ratios, of an op on
 * a device, or of a caller beside one of its peers. */
#include "workbench/report.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct spread {
  size_t n;
  double sum, worst, best; /* sum of logarithms */
} spread;

static void include(spread *s, double ratio)
{
  if (!(ratio > 0) || !isfinite(ratio)) return;
  s->worst = s->n ? fmin(s->worst, ratio) : ratio;
  s->best = s->n ? fmax(s->best, ratio) : ratio;
  s->sum += log(ratio);
  s->n++;
}

static void add_spread(qn_text *text, const spread *s, double scale, const char *unit)
{
  if (s->n)
    qn_text_add(text, " | %zu | %.*f%s | %.*f%s | %.*f%s", s->n, scale > 1 ? 1 : 2, scale * exp(s->sum / (double)s->n),
                unit, scale > 1 ? 1 : 2, scale * s->worst, unit, scale > 1 ? 1 : 2, scale * s->best, unit);
}

static bool same_machine(const qn_record *a, const qn_record *b)
{
  return !strcmp(a->device, b->device) && !strcmp(a->backend, b->backend);
}

static void add_line(qn_text *text, const char *op, const qn_record *on, const char *ratio, const spread *s,
                     double scale, const char *unit)
{
  if (s->n < 2) return;
  qn_text_add(text, "| ");
  qn_report_cell(text, op);
  qn_text_add(text, " | ");
  qn_report_cell(text, on->device);
  qn_text_add(text, " | ");
  qn_report_cell(text, ratio);
  add_spread(text, s, scale, unit);
  qn_text_add(text, " |\n");
}

/* A head without lines is taken back. */
static void drop_empty(qn_text *text, size_t before, size_t head)
{
  if (text->failed || text->length != head || !text->at) return;
  text->length = before;
  text->at[before] = 0;
}

void qn_report_summary(qn_text *text, const qn_records *records, bool (*counts)(const qn_records *, size_t))
{
  const size_t before = text->length;
  qn_text_add(text, QN_REPORT_SUMMARY);
  const size_t head = text->length;
  for (size_t k = 0; k < records->n; k++) {
    const qn_record *first = &records->record[k];
    spread share = {0}, speedup = {0};
    bool told = !counts(records, k);
    for (size_t i = 0; i < records->n; i++) {
      const qn_record *r = &records->record[i];
      if (!counts(records, i) || strcmp(r->op, first->op) || !same_machine(r, first)) continue;
      told = told || i < k;
      include(&share, r->share);
      if (r->unfused.n) include(&speedup, r->speedup);
    }
    if (told) continue;
    add_line(text, first->op, first, "of the ceiling", &share, 100, " %");
    add_line(text, first->op, first, "over the unfused form", &speedup, 1, "x");
  }
  drop_empty(text, before, head);
}

/* Of the peer by this name over all rows of its caller; false: an earlier row has told it. */
static bool of_peer(const qn_records *records, bool (*counts)(const qn_records *, size_t), size_t k, const char *name,
                    spread *s)
{
  const qn_record *first = &records->record[k];
  for (size_t i = 0; i < records->n; i++) {
    const qn_record *r = &records->record[i];
    if (!counts(records, i) || strcmp(r->by, first->by) || strcmp(r->op, first->op) || !same_machine(r, first))
      continue;
    for (size_t p = 0; p < r->n_peers; p++) {
      if (strcmp(r->peer[p].name, name)) continue;
      if (i < k) return false;
      if (!*r->peer[p].absent && !*r->peer[p].wrong) include(s, r->peer[p].speedup);
    }
  }
  return true;
}

void qn_report_peers_summary(qn_text *text, const qn_records *records, bool (*counts)(const qn_records *, size_t))
{
  const size_t before = text->length;
  qn_text_add(text, QN_REPORT_SUMMARY);
  const size_t head = text->length;
  for (size_t k = 0; k < records->n; k++) {
    const qn_record *r = &records->record[k];
    for (size_t p = 0; counts(records, k) && p < r->n_peers; p++) {
      spread s = {0};
      char against[128];
      if (!of_peer(records, counts, k, r->peer[p].name, &s)) continue;
      snprintf(against, sizeof against, "against %.100s", r->peer[p].name);
      add_line(text, r->by, r, against, &s, 1, "x");
    }
  }
  drop_empty(text, before, head);
}
