/* SPDX-License-Identifier: Apache-2.0 */
/* report_html.h - verdicts and searches, read from lines of JSON, as one page of HTML that needs nothing else. */
#ifndef QN_WORKBENCH_REPORT_HTML_H
#define QN_WORKBENCH_REPORT_HTML_H
#include "core/core.h"
#include <jansson.h>

/* Baselines and choices of them that a speed-up is over, as lines name them. */
typedef enum qn_html_over { QN_OVER_EAGER, QN_OVER_COMPILE, QN_OVER_BETTER, QN_OVER_BEST, QN_OVER_COUNT } qn_html_over;
extern const char *const qn_html_over_names[QN_OVER_COUNT];

typedef struct qn_html_ratio {
  double ratio, low, high; /* ratio 0: not in the line; low, high: NAN where not known */
  bool faster;
} qn_html_ratio;

/* A verdict; all text is the line's. A number that the line does not have is NAN. */
typedef struct qn_html_verdict {
  const char *problem, *candidate, *verdict, *reason, *date, *check, *device, *class, *bound;
  const char *by; /* the generator that a search had it from; "": it stands for itself */
  int64_t level;  /* -1: none */
  bool correct, judged, hybrid;
  bool last; /* of its problem, candidate and device */
  qn_html_ratio over[QN_OVER_COUNT];
  double median_ns, eager_ns, compile_ns, better_ns;
  double operations, bytes, distance, bytes_per_second, operations_per_second;
} qn_html_verdict;

/* A step of a search: its best so far. */
typedef struct qn_html_step {
  double seconds, best;
  const char *what;
} qn_html_step;

/* The candidates of one seed and number of generators, from one `begin` on. */
typedef struct qn_html_search {
  const char *problem;
  int64_t seed;
  size_t generators, judged, n;
  double best, end_s;
  qn_html_step *step;
} qn_html_search;

typedef struct qn_html_lines {
  qn_html_verdict *verdict;
  size_t n_verdicts;
  qn_html_search *search;
  size_t n_searches;
  size_t lines, malformed, foreign; /* foreign: of another schema */
  char first_bad[256];              /* why the first of them does not count; "" */
  json_t *kept;                     /* what the texts above belong to */
} qn_html_lines;

/* Adds a file's lines; one that is none of these is counted and left out. */
qn_status qn_html_lines_add(qn_html_lines *lines, const char *path);
void qn_html_lines_end(qn_html_lines *lines); /* once all files are added: which verdicts are the last */
void qn_html_lines_free(qn_html_lines *lines);

/* Means over the problems of a level; of one device and precision class, because no mean goes over two of either. A
 * problem counts by its best candidate of the class, as 1 where none is clearly faster; of another class than the
 * baseline's only problems with a candidate of it count. */
typedef struct qn_html_mean {
  const char *device, *class;
  int64_t level; /* -1: problems without one; -2: all */
  size_t problems, correct, faster, hybrids, excluded, both, compile_wins;
  double mean[QN_OVER_COUNT], with_excluded, where_compile_wins; /* NAN: no such line */
} qn_html_mean;
enum { QN_HTML_NO_LEVEL = -1, QN_HTML_ALL_LEVELS = -2 };
qn_status qn_html_means(const qn_html_lines *lines, qn_html_mean **means, size_t *n);
/* "level 2", "no level", "all" */
void qn_html_level(char text[32], int64_t level);

/* Pictures, as elements in the page; nothing where there is nothing to draw. */
void qn_html_draw_means(qn_text *page, const qn_html_mean *means, size_t n);
void qn_html_draw_wins(qn_text *page, const qn_html_mean *means, size_t n);
void qn_html_draw_rooflines(qn_text *page, const qn_html_lines *lines);
void qn_html_draw_searches(qn_text *page, const qn_html_lines *lines);

/* Writes the page whole or not at all; refused where no line is a verdict or of a search. */
qn_status qn_html_write(const char *path, const qn_html_lines *lines);
#endif
