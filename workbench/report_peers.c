/* SPDX-License-Identifier: Apache-2.0 */
/* report_peers.c - the table of measurements that were taken beside other implementations: a row for the op as it was
 * called and one for each peer, in the order in which they ran. The time of a wrong peer stands in brackets. */
#include "workbench/report.h"
#include "workbench/stats.h"
#include "workbench/table.h"
#include <stdio.h>

/* The median of samples, as text; "-" where there are none. */
static qn_amount median_of(const qn_record_series *s, bool brackets)
{
  qn_summary summary;
  qn_amount out = {"-"};
  if (!s->n || qn_summarize(s->ns, s->n, &summary) != QN_OK) return out;
  snprintf(out.text, sizeof out.text, brackets ? "(%.30s)" : "%.30s", qn_duration(summary.median).text);
  return out;
}

static void add_figures(qn_text *text, const qn_record_series *step, const qn_record_series *wall,
                        const qn_record_series *host, double share, bool brackets)
{
  qn_summary summary;
  if (qn_summarize(step->ns, step->n, &summary) != QN_OK) {
    text->failed = true;
    return;
  }
  double gbps = step->bytes / summary.median;
  qn_text_add(text, " | %s | ", median_of(step, brackets).text);
  if (brackets)
    qn_text_add(text, "- | -");
  else
    qn_text_add(text, "%.*f | %.1f %%", gbps < 100 ? 1 : 0, gbps, 100 * share);
  qn_text_add(text, " | %s | %s | ", median_of(wall, brackets).text, median_of(host, brackets).text);
}

static void add_run(qn_text *text, const qn_record *r)
{
  qn_text_add(text, "| ");
  qn_report_work(text, r);
  qn_text_add(text, " | ");
}

static void add_own(qn_text *text, const qn_record *r)
{
  add_run(text, r);
  qn_report_cell(text, r->by);
  add_figures(text, &r->fused, &r->wall, &r->host, r->share, false);
  qn_report_method(text, r);
}

static void add_peer(qn_text *text, const qn_record_peer *p)
{
  qn_text_add(text, "| | | | ");
  qn_report_cell(text, p->name);
  if (*p->version) qn_text_add(text, " (");
  qn_report_cell(text, p->version);
  if (*p->version) qn_text_add(text, ")");
  if (*p->absent) {
    qn_text_add(text, " | - | - | - | - | - | ");
    qn_report_cell(text, p->absent);
    qn_text_add(text, " | |\n");
    return;
  }
  add_figures(text, &p->step, &p->wall, &p->host, p->share, *p->wrong);
  if (*p->wrong) {
    qn_text_add(text, "wrong: ");
    qn_report_cell(text, p->wrong);
  } else {
    qn_text_add(text, "%.2fx %s, ", p->speedup, qn_interval(p->speedup_low, p->speedup_high, 2).text);
    qn_report_cell(text, p->other_op ? "another op" : p->verdict);
  }
  qn_text_add(text, " | |\n");
}

static bool counts(const qn_records *records, size_t k)
{
  const qn_record *r = &records->record[k];
  return *r->by && r->timed && r->right && !r->impossible && qn_record_is_last(records, k);
}

void qn_report_peers(qn_text *text, const qn_records *records)
{
  qn_text_add(text, "| workload | types | on | step of | time | GB/s | of the ceiling in the same run | step of many "
                    "without a wait | host alone | quern against it | measured |\n"
                    "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (size_t k = 0; k < records->n; k++) {
    const qn_record *r = &records->record[k];
    if (!counts(records, k)) continue;
    add_own(text, r);
    for (size_t p = 0; p < r->n_peers; p++) add_peer(text, &r->peer[p]);
  }
  qn_report_peers_summary(text, records, counts);
}
