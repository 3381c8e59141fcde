/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - tables for documents, made from measurements and from nothing else. */
#ifndef QN_WORKBENCH_REPORT_H
#define QN_WORKBENCH_REPORT_H
#include "core/core.h"
#include "workbench/record.h"

/* Markdown: a row for each measurement that counts, with hardware, date and method beside it, fastest device first;
 * then each variant of each op with how far it is proved: run (where and when), compiled only, emitted only. */
void qn_report_write(qn_text *text, const qn_records *records);

/* The same for what was measured beside other implementations (`python -m quern.bench`): a row for the op and one for
 * each peer, with the time of a wrong one in brackets. Such measurements are in no other table. */
void qn_report_peers(qn_text *text, const qn_records *records);

/* Under such a table: geometric mean, worst and best of its ratios, where two rows or more have one. */
#define QN_REPORT_SUMMARY                                                                                              \
  "\n| over all rows | on | ratio | rows | geometric mean | worst | best |\n|---|---|---|---|---|---|---|\n"
void qn_report_summary(qn_text *text, const qn_records *records, bool (*counts)(const qn_records *, size_t));
void qn_report_peers_summary(qn_text *text, const qn_records *records, bool (*counts)(const qn_records *, size_t));

/* A cell may hold anything that a file had: nothing that ends a cell or begins markup. */
void qn_report_cell(qn_text *text, const char *s);

/* Cells that all tables of measurements have: workload, types and machine; date, timer, cache and commit, to the row's
 * end. */
void qn_report_work(qn_text *text, const qn_record *r);
void qn_report_method(qn_text *text, const qn_record *r);

/* Replaces what stands between the two marks in a file by the text; the rest stays, byte for byte, and the file is
 * replaced whole. Refused: no marks, or not one of each in their order. */
#define QN_REPORT_BEGIN "<!-- quern report: begin -->"
#define QN_REPORT_END "<!-- quern report: end -->"
qn_status qn_report_insert(const char *path, const qn_text *text);
#endif
