/* SPDX-License-Identifier: Apache-2.0 */
/* report_html.c - the page: what was judged, means, leaderboard, pictures and every candidate's fate. Text from lines
 * goes through qn_text_add_escaped alone, and the page forbids itself the network. */
#include "workbench/report_html.h"
#include "core/core.h"
#include "core/source.h"
#include "workbench/report.h"
#include "workbench/svg.h"
#include "workbench/table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const qn_source qn_page_sources[]; /* report.css, report.js, as the build embedded them */

static const char *base_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash && slash[1] ? slash + 1 : path;
}

/* ---- cells ---- */
static void cell_text(qn_text *page, const char *class, const char *text)
{
  qn_text_add(page, "<td%s%s%s>", class ? " class=\"" : "", class ? class : "", class ? "\"" : "");
  qn_text_add_escaped(page, text);
  qn_text_add(page, "</td>");
}

static void cell_path(qn_text *page, const char *path)
{
  qn_text_add(page, "<td title=\"");
  qn_text_add_escaped(page, path);
  qn_text_add(page, "\">");
  qn_text_add_escaped(page, base_name(path));
  qn_text_add(page, "</td>");
}

static void cell_number(qn_text *page, double x)
{
  if (isfinite(x))
    qn_text_add(page, "<td class=\"n\" data-v=\"%.9g\">%.3g</td>", x, x);
  else
    qn_text_add(page, "<td class=\"n\"></td>");
}

static void cell_count(qn_text *page, size_t n) { qn_text_add(page, "<td class=\"n\" data-v=\"%zu\">%zu</td>", n, n); }

static void cell_time(qn_text *page, double ns)
{
  if (isfinite(ns))
    qn_text_add(page, "<td class=\"n\" data-v=\"%.9g\">%s</td>", ns, qn_duration(ns).text);
  else
    qn_text_add(page, "<td class=\"n\"></td>");
}

static void cell_ratio(qn_text *page, const qn_html_ratio *r)
{
  if (r->ratio <= 0) {
    qn_text_add(page, "<td class=\"n\"></td>");
    return;
  }
  qn_text_add(page, "<td class=\"n\" data-v=\"%.9g\" title=\"%s\">%.3g</td>", r->ratio,
              isfinite(r->low) && isfinite(r->high) ? qn_interval(r->low, r->high, 3).text : "no interval", r->ratio);
}

static void cell_word(qn_text *page, const qn_html_verdict *v)
{
  const char *colour = !v->correct && strcmp(v->verdict, "baselines") != 0 ? " bad"
                       : !strcmp(v->verdict, "faster")                     ? " faster"
                       : !strcmp(v->verdict, "slower")                     ? " slower"
                                                                           : "";
  qn_text_add(page, "<td class=\"word%s\">", colour);
  qn_text_add_escaped(page, v->verdict);
  qn_text_add(page, "</td>");
}

static void cell_level(qn_text *page, int64_t level)
{
  char text[32];
  qn_html_level(text, level);
  cell_text(page, NULL, text);
}

/* Heads separated by |; one that begins with # is of numbers. */
static void begin_table(qn_text *page, const char *heads)
{
  qn_text_add(page, "<div class=\"wide\"><table><thead><tr>");
  while (*heads) {
    const size_t n = strcspn(heads, "|"), skip = *heads == '#';
    qn_text_add(page, "<th%s>%.*s</th>", skip ? " class=\"n\"" : "", (int)(n - skip), heads + skip);
    heads += n + (heads[n] == '|');
  }
  qn_text_add(page, "</tr></thead><tbody>\n");
}

static void end_table(qn_text *page) { qn_text_add(page, "</tbody></table></div>\n"); }

/* ---- sections ---- */
static void add_means(qn_text *page, const qn_html_mean *means, size_t n)
{
  qn_text_add(page,
              "<h2>Speed-up by level</h2>\n<p>Geometric means. A problem counts by its best candidate, and as 1 where "
              "none is correct and clearly faster, because the baseline runs in its place. Precision classes and "
              "devices have means of their own. Problems that cannot be judged stand in the last column alone.</p>\n");
  qn_html_draw_means(page, means, n);
  begin_table(page, "device|class|level|#problems|#correct|#faster|#hybrids|#over eager|#over compile|#over the better|"
                    "#over the best|#where compile wins|#cannot be judged|#with these as 1");
  for (size_t k = 0; k < n; k++) {
    const qn_html_mean *m = &means[k];
    qn_text_add(page, "<tr>");
    cell_text(page, NULL, m->device);
    cell_text(page, NULL, m->class);
    cell_level(page, m->level);
    cell_count(page, m->problems);
    cell_count(page, m->correct);
    cell_count(page, m->faster);
    cell_count(page, m->hybrids);
    for (int over = 0; over < QN_OVER_COUNT; over++) cell_number(page, m->mean[over]);
    cell_number(page, m->where_compile_wins);
    cell_count(page, m->excluded);
    cell_number(page, m->with_excluded);
    qn_text_add(page, "</tr>\n");
  }
  end_table(page);
}

static void add_wins(qn_text *page, const qn_html_mean *means, size_t n)
{
  size_t both = 0;
  for (size_t k = 0; k < n; k++) both += means[k].both;
  if (!both) return;
  qn_text_add(page, "<h2>Eager or compiled</h2>\n<p>The share of problems in which PyTorch's default torch.compile has "
                    "the lower median.</p>\n");
  qn_html_draw_wins(page, means, n);
}

/* Greatest speed-up first. */
static int by_ratio(const void *x, const void *y)
{
  const qn_html_verdict *a = *(qn_html_verdict *const *)x, *b = *(qn_html_verdict *const *)y;
  const double ra = a->over[QN_OVER_BETTER].ratio, rb = b->over[QN_OVER_BETTER].ratio;
  return ra != rb ? (ra < rb) - (ra > rb) : (a > b) - (a < b);
}

static void add_leader(qn_text *page, const qn_html_verdict *v)
{
  qn_text_add(page, "<tr>");
  cell_path(page, v->candidate);
  cell_path(page, v->problem);
  cell_level(page, v->level);
  cell_word(page, v);
  for (int over = QN_OVER_COUNT; over-- > 0;) cell_ratio(page, &v->over[over]);
  cell_time(page, v->median_ns);
  cell_number(page, v->distance);
  cell_text(page, NULL, v->bound);
  cell_text(page, NULL, v->class);
  cell_text(page, NULL, v->hybrid ? "yes" : "");
  cell_text(page, NULL, v->by);
  cell_text(page, NULL, v->device);
  qn_text_add(page, "</tr>\n");
}

static void add_leaders(qn_text *page, const qn_html_lines *lines, qn_html_verdict **order)
{
  size_t n = 0;
  for (size_t k = 0; k < lines->n_verdicts; k++)
    if (lines->verdict[k].last && lines->verdict[k].correct) order[n++] = &lines->verdict[k];
  if (!n) return;
  qsort(order, n, sizeof *order, by_ratio);
  qn_text_add(page, "<h2>Leaderboard</h2>\n<p>Correct candidates, the last verdict of each. A ratio shows its interval "
                    "where the pointer rests; the limit is the time over the least that the machine allows.</p>\n");
  begin_table(page, "candidate|problem|level|verdict|#over the best|#over the better|#over compile|#over eager|#time|"
                    "#of the limit|bound|class|hybrid|by|device");
  for (size_t k = 0; k < n; k++) add_leader(page, order[k]);
  end_table(page);
}

static void add_searches(qn_text *page, const qn_html_lines *lines)
{
  if (!lines->n_searches) return;
  qn_text_add(page, "<h2>Search</h2>\n<p>The best candidate over time, of each seed and number of generators.</p>\n");
  qn_html_draw_searches(page, lines);
  begin_table(page, "problem|#generators|#seed|#judged|#best|#seconds");
  for (size_t k = 0; k < lines->n_searches; k++) {
    const qn_html_search *s = &lines->search[k];
    qn_text_add(page, "<tr>");
    cell_path(page, s->problem);
    cell_count(page, s->generators);
    cell_count(page, (size_t)s->seed);
    cell_count(page, s->judged);
    cell_number(page, s->best);
    cell_number(page, s->end_s);
    qn_text_add(page, "</tr>\n");
  }
  end_table(page);
}

static void add_fates(qn_text *page, const qn_html_lines *lines)
{
  if (!lines->n_verdicts) return;
  qn_text_add(page, "<h2>Every candidate's fate</h2>\n<p>All verdicts, in the order of the files.</p>\n");
  begin_table(page, "date|problem|candidate|by|check|verdict|#speed-up|reason");
  for (size_t k = 0; k < lines->n_verdicts; k++) {
    const qn_html_verdict *v = &lines->verdict[k];
    char date[17] = "";
    strncat(date, v->date, sizeof date - 1);
    qn_text_add(page, "<tr>");
    cell_text(page, NULL, date);
    cell_path(page, v->problem);
    cell_path(page, v->candidate);
    cell_text(page, NULL, v->by);
    cell_text(page, NULL, v->check);
    cell_word(page, v);
    cell_ratio(page, &v->over[QN_OVER_BETTER]);
    cell_text(page, "reason", v->reason);
    qn_text_add(page, "</tr>\n");
  }
  end_table(page);
}

static void add_head(qn_text *page, const qn_html_lines *lines)
{
  qn_text_add(page,
              "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
              "script-src 'unsafe-inline'\">\n"
              "<meta name=\"viewport\" content=\"width=device-width\"><title>Verdicts</title>\n<style>\n%s</style>"
              "</head><body>\n<h1>Verdicts</h1>\n<p class=\"faint\">Verdicts: %zu. Searches: %zu. Lines: %zu.</p>\n",
              qn_page_sources[0].text, lines->n_verdicts, lines->n_searches, lines->lines);
  if (lines->malformed + lines->foreign == 0) return;
  qn_text_add(page,
              "<p class=\"warn\">%zu lines are malformed and %zu of another schema; the first: ", lines->malformed,
              lines->foreign);
  qn_text_add_escaped(page, lines->first_bad);
  qn_text_add(page, "</p>\n");
}

static void add_page(qn_text *page, const qn_html_lines *lines, const qn_html_mean *means, size_t n,
                     qn_html_verdict **order)
{
  add_head(page, lines);
  if (n) add_means(page, means, n);
  add_wins(page, means, n);
  add_leaders(page, lines, order);
  qn_html_draw_rooflines(page, lines);
  add_searches(page, lines);
  add_fates(page, lines);
  qn_text_add(page,
              "<footer><p>Made by <code>quern report --html</code> from these lines alone.</p></footer>\n<script>\n"
              "%s</script></body></html>\n",
              qn_page_sources[1].text);
}

qn_status qn_html_write(const char *path, const qn_html_lines *lines)
{
  qn_html_mean *means = NULL;
  qn_html_verdict **order = NULL;
  qn_text page = {0};
  size_t n;
  if (!lines->n_verdicts && !lines->n_searches)
    return qn_fail(QN_BAD_FILE, "no verdict and no search in %zu lines%s%s", lines->lines,
                   *lines->first_bad ? "; the first that is none: " : "", lines->first_bad);
  qn_status status = qn_html_means(lines, &means, &n);
  if (status == QN_OK) status = qn_try_allocate(&order, (lines->n_verdicts + 1) * sizeof *order, "the leaderboard");
  if (status == QN_OK) {
    add_page(&page, lines, means, n, order);
    status = page.failed ? qn_fail(QN_NO_MEMORY, "%s: the page does not fit into memory", path)
                         : qn_text_write_file(path, &page);
  }
  qn_release(means);
  qn_release(order);
  qn_text_free(&page);
  return status;
}
