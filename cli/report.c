/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - `quern report FILE...`: the tables and the picture of the README, from recorded measurements alone. */
#include "cli/verb.h"
#include "workbench/figures.h"
#include "workbench/report.h"
#include "workbench/report_html.h"
#include "workbench/roofline.h"
#include <stdio.h>

enum { MOST_FILES = 64 };

typedef struct order {
  QN_WORD_LIST(MOST_FILES) files;
  const char *into, *svg, *device, *html;
  bool peers, figures;
} order;

static void check_words(const struct argp_state *state, void *input)
{
  const order *o = input;
  if (o->files.n == 0 && !o->figures) argp_error(state, "files are wanted, as `quern bench --json FILE` writes them");
  if (o->html && (o->into || o->svg || o->peers || o->device))
    argp_error(state, "--html makes a page of its own: it goes with none of --into, --peers, --svg and --device");
}

static const qn_verb_option options[] = {
    {"into", 0, "FILE.md", "Write the tables between the marks in this file instead of printing them", 0,
     QN_TO_WORD(into)},
    {"peers", 0, NULL, "Make the table of `python -m quern.bench` instead", 0, QN_TO_FLAG(peers)},
    {"svg", 0, "FILE", "Draw the files' roofline, with their measurements as points", 0, QN_TO_OUTPUT(svg)},
    {"html", 0, "FILE.html",
     "Make one page of verdicts and searches instead: means, leaderboard, every candidate's fate, roofline", 0,
     QN_TO_OUTPUT(html)},
    {"figures-here", 0, NULL, NULL, 0, QN_TO_FLAG(figures), .flags = OPTION_HIDDEN}, /* workbench/figures.h */
    {"device", 0, "NAME", "A part of the name of the device whose roofline is drawn", 0, QN_TO_WORD(device)},
    {0},
};

/* The last of the files that has the roofline counts. */
static qn_status draw(const order *o, const qn_records *records)
{
  qn_roofline roofline;
  size_t left_out;
  qn_status status = QN_BAD_FILE;
  for (size_t k = o->files.n; status != QN_OK && k-- > 0;)
    status = qn_roofline_read(o->files.at[k], o->device, &roofline);
  return status == QN_OK ? qn_roofline_draw(o->svg, &roofline, records, &left_out) : status;
}

static qn_status write_page(const order *o)
{
  qn_html_lines lines = {0};
  qn_status status = QN_OK;
  for (size_t k = 0; status == QN_OK && k < o->files.n; k++) status = qn_html_lines_add(&lines, o->files.at[k]);
  if (status == QN_OK) qn_html_lines_end(&lines);
  if (status == QN_OK) status = qn_html_write(o->html, &lines);
  if (status == QN_OK)
    printf("%s: verdicts %zu, searches %zu, lines %zu\n", o->html, lines.n_verdicts, lines.n_searches, lines.lines);
  if (status == QN_OK && lines.malformed + lines.foreign)
    fprintf(stderr, "quern report: %zu lines are malformed and %zu of another schema; the first: %s\n", lines.malformed,
            lines.foreign, lines.first_bad);
  qn_html_lines_free(&lines);
  return status;
}

static int run(int argc, char **argv)
{
  order o = {.files.n = 0};
  qn_records records = {0};
  qn_text text = {0};
  qn_verb_parse(&qn_verb_report, argc, argv, &o);
  qn_status status = o.figures ? qn_figures_run(stdin, stdout) : QN_OK;
  if (o.figures) return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_report, status);
  if (o.html) {
    status = write_page(&o);
    return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_report, status);
  }
  for (size_t k = 0; status == QN_OK && k < o.files.n; k++) status = qn_records_add(o.files.at[k], &records);
  if (status == QN_OK && !records.n && !o.svg)
    status = qn_fail(QN_BAD_FILE, "no measurement in %s%s", o.files.at[0], o.files.n > 1 ? " and the others" : "");
  if (status == QN_OK) {
    if (o.peers)
      qn_report_peers(&text, &records);
    else
      qn_report_write(&text, &records);
    if (o.into)
      status = qn_report_insert(o.into, &text);
    else
      fwrite(text.at, 1, text.length, stdout);
  }
  if (status == QN_OK && o.svg) status = draw(&o, &records);
  qn_text_free(&text);
  qn_records_free(&records);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_report, status);
}

const qn_verb qn_verb_report = {
    .name = "report",
    .brief = "make a document's tables and picture from measurements",
    .run = run,
    .options = options,
    .argument = {QN_TO_WORDS(files, MOST_FILES), .doc = "files"},
    .end = check_words,
    .args_doc = "FILE.jsonl...",
    .doc = "Make the tables of a document from recorded measurements: the last one by the event timer of each op, "
           "workload, types and device; then each variant with its state.\v"
           "--into replaces the text between the lines " QN_REPORT_BEGIN " and " QN_REPORT_END ".",
};
