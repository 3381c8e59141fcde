/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - see report.h. */
#include "workbench/report.h"
#include "workbench/svg.h"
#include "workbench/stats.h"
#include "workbench/table.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void qn_report_cell(qn_text *text, const char *s)
{
  for (; *s; s++) {
    if (strchr("|<>`*_[]\\", *s)) qn_text_add_bytes(text, "\\", 1);
    qn_text_add_bytes(text, s, 1);
  }
}

void qn_report_work(qn_text *text, const qn_record *r)
{
  qn_report_cell(text, r->workload);
  qn_text_add(text, " | ");
  qn_report_cell(text, r->types);
  qn_text_add(text, " | ");
  qn_report_cell(text, r->device);
  if (strcmp(r->backend, "cuda") != 0) qn_text_add(text, ", %d thread%s", r->threads, r->threads == 1 ? "" : "s");
}

void qn_report_method(qn_text *text, const qn_record *r)
{
  qn_text_add(text, " | %.10s, ", r->date);
  qn_report_cell(text, r->timer);
  qn_text_add(text, ", ");
  qn_report_cell(text, r->cache);
  qn_text_add(text, ", ");
  qn_report_cell(text, *r->commit ? r->commit : "no commit");
  qn_text_add(text, " |\n");
}

static void add_row(qn_text *text, const qn_record *r)
{
  qn_summary time;
  if (qn_summarize(r->fused.ns, r->fused.n, &time) != QN_OK) {
    text->failed = true;
    return;
  }
  qn_text_add(text, "| ");
  qn_report_cell(text, r->op);
  qn_text_add(text, " | ");
  qn_report_work(text, r);
  qn_text_add(text, " (");
  qn_report_cell(text, r->backend);
  qn_text_add(text, " ");
  qn_report_cell(text, r->variant);
  qn_text_add(text, ") | %s | %.*f | %.1f %% of ", qn_duration(time.median).text, r->gbps < 100 ? 1 : 0, r->gbps,
              100 * r->share);
  qn_report_cell(text, r->ceiling.name);
  qn_text_add(text, " | ");
  if (r->unfused.n)
    qn_text_add(text, "%.2fx %s, %s", r->speedup, qn_interval(r->speedup_low, r->speedup_high, 2).text, r->verdict);
  else
    qn_text_add(text, "-");
  qn_report_method(text, r);
}

static bool counts(const qn_records *records, size_t k)
{
  const qn_record *r = &records->record[k];
  return !*r->by && r->timed && r->right && !r->impossible && !strcmp(r->timer, "event") &&
         qn_record_is_last(records, k);
}

/* ---- variants: what was run, from the measurements; the rest as this build says ---- */
static const qn_record *run_of(const qn_records *records, const char *op, const qn_variant *v)
{
  for (size_t k = records->n; k-- > 0;) {
    const qn_record *r = &records->record[k];
    if (!*r->by && r->right && !strcmp(r->op, op) && !strcmp(r->backend, v->backend) && !strcmp(r->variant, v->name))
      return r;
  }
  return NULL;
}

static void add_variants(qn_text *text, const qn_records *records)
{
  qn_text_add(text, "\n| op | backend | variant | proved |\n|---|---|---|---|\n");
  for (size_t op = 0; op < qn_op_count(); op++) {
    const qn_op_info *info = qn_op_at(op);
    for (size_t k = 0; k < qn_op_variant_count(info); k++) {
      qn_variant v = {.size = sizeof v};
      if (qn_op_variant_at(info, k, &v) != QN_OK) continue;
      const qn_record *r = run_of(records, info->name, &v);
      qn_text_add(text, "| %s | %s | %s | ", info->name, v.backend, v.name);
      if (r) {
        qn_text_add(text, "run: ");
        qn_report_cell(text, r->device);
        qn_text_add(text, ", %.10s |\n", r->date);
      } else {
        qn_text_add(text, "%s |\n", v.state);
      }
    }
  }
}

/* Devices in the order of their best figure; within a device the order of the files. */
static double best_of(const qn_records *records, const char *device)
{
  double best = 0;
  for (size_t k = 0; k < records->n; k++)
    if (counts(records, k) && !strcmp(records->record[k].device, device)) best = fmax(best, records->record[k].gbps);
  return best;
}

void qn_report_write(qn_text *text, const qn_records *records)
{
  qn_text_add(text,
              "| op | workload | types | on | time | GB/s | of the ceiling in the same run | over the unfused form | "
              "measured |\n|---|---|---|---|---|---|---|---|---|\n");
  for (double below = HUGE_VAL;;) {
    double next = 0; /* the best device below the last one */
    for (size_t k = 0; k < records->n; k++) {
      double best = counts(records, k) ? best_of(records, records->record[k].device) : 0;
      if (best < below && best > next) next = best;
    }
    if (next <= 0) break;
    for (size_t k = 0; k < records->n; k++)
      if (counts(records, k) && best_of(records, records->record[k].device) == next) add_row(text, &records->record[k]);
    below = next;
  }
  qn_report_summary(text, records, counts);
  add_variants(text, records);
}

/* ---- into a file ---- */
static qn_status read_whole(const char *path, qn_text *text)
{
  char part[4096];
  size_t n;
  FILE *file = fopen(path, "re");
  if (!file) return qn_fail(QN_BAD_FILE, "%s: %s", path, strerror(errno));
  while ((n = fread(part, 1, sizeof part, file)) > 0) qn_text_add_bytes(text, part, n);
  bool failed = ferror(file);
  fclose(file);
  if (failed) return qn_fail(QN_IO_ERROR, "%s: it could not be read", path);
  return text->failed ? qn_fail(QN_NO_MEMORY, "%s: it does not fit into memory", path) : QN_OK;
}

static qn_status splice(const char *path, const qn_text *whole, const qn_text *text, qn_text *out)
{
  const char *from = whole->at ? strstr(whole->at, QN_REPORT_BEGIN) : NULL;
  const char *to = from ? strstr(from, QN_REPORT_END) : NULL;
  if (!from || !to)
    return qn_fail(QN_BAD_FILE, "%s: it has no lines %s and %s, in this order, to write between", path, QN_REPORT_BEGIN,
                   QN_REPORT_END);
  if (strstr(from + 1, QN_REPORT_BEGIN) || strstr(to + 1, QN_REPORT_END))
    return qn_fail(QN_BAD_FILE, "%s: %s or %s stands in it twice", path, QN_REPORT_BEGIN, QN_REPORT_END);
  qn_text_add_bytes(out, whole->at, (size_t)(from - whole->at));
  qn_text_add(out, "%s\n", QN_REPORT_BEGIN);
  qn_text_add_bytes(out, text->at, text->length);
  qn_text_add_bytes(out, to, whole->length - (size_t)(to - whole->at));
  return out->failed ? qn_fail(QN_NO_MEMORY, "%s: the new text does not fit into memory", path) : QN_OK;
}

qn_status qn_report_insert(const char *path, const qn_text *text)
{
  qn_text whole = {0}, out = {0};
  qn_status status = text->failed ? qn_fail(QN_NO_MEMORY, "%s: the tables do not fit into memory", path) : QN_OK;
  if (status == QN_OK) status = read_whole(path, &whole);
  if (status == QN_OK) status = splice(path, &whole, text, &out);
  if (status == QN_OK) status = qn_text_write_file(path, &out);
  qn_text_free(&whole);
  qn_text_free(&out);
  return status;
}
