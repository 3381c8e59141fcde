/* SPDX-License-Identifier: Apache-2.0 */
/* report_draw.c - the page's pictures. Colours are the page's own variables, for light and for dark; what a shape
 * stands for shows where the pointer rests. */
#include "core/core.h"
#include "workbench/report_html.h"
#include "workbench/svg.h"
#include "workbench/table.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 1100, LEFT = 70, RIGHT = 1076, BAR = 15, NAMES = 330 };
static const char ink[] = "var(--ink)", faint[] = "var(--faint)", rule[] = "var(--rule)", blue[] = "var(--blue)",
                  green[] = "var(--green)", orange[] = "var(--orange)", violet[] = "var(--violet)",
                  grey[] = "var(--grey)";

static void letters(qn_svg *svg, double x, double y, const char *text, const char *colour, qn_anchor anchor)
{
  qn_svg_words(svg, x, y, text, colour, 12, anchor);
}

/* A colour and what it stands for, at *x; moves *x on. */
static void add_key(qn_svg *svg, double *x, double y, const char *colour, const char *name)
{
  qn_svg_rectangle(svg, *x, y - 9, 12, 10, 2, colour);
  letters(svg, *x + 18, y, name, ink, QN_START);
  *x += 42 + 6.6 * (double)strlen(name);
}

static void name_of(char *text, size_t bytes, const qn_html_mean *m)
{
  char level[32];
  qn_html_level(level, m->level);
  snprintf(text, bytes, "%s, %.20s, %.24s", level, m->class, m->device);
}

/* ---- speed-up by level ---- */
static const struct {
  qn_html_over over;
  const char *name, *colour;
} bars[] = {{QN_OVER_EAGER, "over eager", "var(--blue)"},
            {QN_OVER_COMPILE, "over torch.compile", "var(--violet)"},
            {QN_OVER_BETTER, "over the better", "var(--green)"}};
enum { BARS = 3, GROUP = BARS * BAR + 16, MOST_GROUPS = 60 };

static double group_height(size_t n) { return 34 + GROUP * (double)n + 24; }

static void draw_bar(qn_svg *svg, const qn_axis *x, double y, const char *of, const char *name, const char *colour,
                     double value)
{
  char text[256], number[40];
  if (!isfinite(value)) return;
  const double at = qn_axis_at(x, value), one = qn_axis_at(x, 1);
  snprintf(text, sizeof text, "%s, %s: %.4g", of, name, value);
  snprintf(number, sizeof number, "%.3g", value);
  qn_svg_group(svg, text);
  qn_svg_rectangle(svg, fmin(at, one), y, fmax(fabs(at - one), 1.5), BAR - 3, 2, colour);
  letters(svg, fmax(at, one) + 6, y + 10, number, ink, QN_START);
  qn_svg_group_end(svg);
}

void qn_html_draw_means(qn_text *page, const qn_html_mean *means, size_t n)
{
  double most = 2;
  if (n > MOST_GROUPS) n = MOST_GROUPS; /* the table has all */
  for (size_t k = 0; k < n; k++)
    for (int b = 0; b < BARS; b++)
      if (isfinite(means[k].mean[bars[b].over])) most = fmax(most, means[k].mean[bars[b].over]);
  qn_svg svg;
  const qn_axis x = {1, most * 1.05, NAMES, RIGHT - 40, true};
  double key = NAMES;
  qn_svg_begin(&svg, WIDTH, (int)group_height(n), "Speed-up by level");
  for (int b = 0; b < BARS; b++) add_key(&svg, &key, 16, bars[b].colour, bars[b].name);
  for (double at = 1; at <= x.most; at *= most > 8 ? 2 : sqrt(2)) {
    char text[24];
    snprintf(text, sizeof text, "%.3g", at);
    qn_svg_line(&svg, qn_axis_at(&x, at), 28, qn_axis_at(&x, at), group_height(n) - 22, (qn_stroke){rule, 1, false});
    letters(&svg, qn_axis_at(&x, at), group_height(n) - 6, text, faint, QN_MIDDLE);
  }
  for (size_t k = 0; k < n; k++) {
    const double y = 34 + GROUP * (double)k;
    char name[160];
    name_of(name, sizeof name, &means[k]);
    letters(&svg, NAMES - 12, y + 26, name, ink, QN_END);
    for (int b = 0; b < BARS; b++)
      draw_bar(&svg, &x, y + BAR * b, name, bars[b].name, bars[b].colour, means[k].mean[bars[b].over]);
  }
  qn_svg_into(&svg, page);
}

/* ---- eager or compiled ---- */
static void draw_share(qn_svg *svg, double y, const qn_html_mean *m)
{
  char name[160], text[256];
  const double share = (double)m->compile_wins / (double)m->both, middle = NAMES + share * (RIGHT - NAMES);
  name_of(name, sizeof name, m);
  letters(svg, NAMES - 12, y + 13, name, ink, QN_END);
  snprintf(text, sizeof text, "%s: compiled wins %zu of %zu, eager %zu", name, m->compile_wins, m->both,
           m->both - m->compile_wins);
  qn_svg_group(svg, text);
  qn_svg_rectangle(svg, NAMES, y, middle - NAMES, 18, 0, violet);
  qn_svg_rectangle(svg, middle, y, RIGHT - middle, 18, 0, blue);
  qn_svg_group_end(svg);
  snprintf(text, sizeof text, "%zu of %zu", m->compile_wins, m->both);
  qn_svg_letters(svg, NAMES + 6, y + 13, text, (qn_letters){"var(--paper)", 12, QN_START, true});
}

void qn_html_draw_wins(qn_text *page, const qn_html_mean *means, size_t n)
{
  const qn_html_mean *row[MOST_GROUPS];
  size_t rows = 0;
  double key = NAMES;
  for (size_t k = 0; k < n && rows < MOST_GROUPS; k++)
    if (means[k].both) row[rows++] = &means[k];
  qn_svg svg;
  qn_svg_begin(&svg, WIDTH, 32 + 26 * (int)rows, "Eager or compiled");
  add_key(&svg, &key, 16, violet, "compiled is faster");
  add_key(&svg, &key, 16, blue, "eager is faster");
  for (size_t k = 0; k < rows; k++) draw_share(&svg, 30 + 26 * (double)k, row[k]);
  qn_svg_into(&svg, page);
}

/* ---- axes with powers of ten ---- */
enum { TOP = 34, BOTTOM = 400, HEIGHT = 448 };
static const qn_plot plot = {LEFT, RIGHT, TOP, BOTTOM, 12, rule, faint};

static void draw_decades(qn_svg *svg, const qn_axis *axis, bool horizontal, bool rate)
{
  static const char *const units[] = {"", "K", "M", "G", "T", "P", "E"};
  for (double at = axis->least; at <= axis->most * 1.001; at *= 10) {
    double shown = at;
    char text[40];
    size_t unit = 0;
    for (; rate && shown >= 999 && unit < 6; unit++) shown /= 1000;
    snprintf(text, sizeof text, "%.3g%s", shown, units[unit]);
    qn_plot_tick(svg, &plot, horizontal, qn_axis_at(axis, at), text);
  }
}

/* ---- roofline ---- */
static bool has_point(const qn_html_verdict *v, const char *device)
{
  return v->last && v->operations > 0 && v->bytes > 0 && (v->median_ns > 0 || v->better_ns > 0) &&
         !strcmp(v->device, device);
}

static double time_of(const qn_html_verdict *v, bool candidate) { return candidate ? v->median_ns : v->better_ns; }

static void draw_point(qn_svg *svg, const qn_axis *x, const qn_axis *y, const qn_html_verdict *v, bool candidate)
{
  const double ns = time_of(v, candidate), rate = v->operations / ns * 1e9;
  char text[1024];
  if (!(ns > 0)) return;
  snprintf(text, sizeof text, "%.300s%s%.300s: %.4g operations/byte, %.4g operations/s, %s", v->problem,
           candidate ? ", " : ", better baseline", candidate ? v->candidate : "", v->operations / v->bytes, rate,
           qn_duration(ns).text);
  qn_svg_group(svg, text);
  qn_svg_circle(svg, qn_axis_at(x, v->operations / v->bytes), qn_axis_at(y, rate), candidate ? 5.5 : 4,
                !candidate   ? grey
                : v->correct ? green
                             : orange);
  qn_svg_group_end(svg);
}

typedef struct roof {
  double memory, rate, least_x, most_x, least_y, most_y;
} roof;

static roof roof_of(const qn_html_lines *lines, const char *device)
{
  roof r = {.least_x = HUGE_VAL, .least_y = HUGE_VAL};
  for (size_t k = 0; k < lines->n_verdicts; k++) {
    const qn_html_verdict *v = &lines->verdict[k];
    if (!has_point(v, device)) continue;
    if (v->bytes_per_second > r.memory) r.memory = v->bytes_per_second;
    if (v->operations_per_second > r.rate) r.rate = v->operations_per_second;
    r.least_x = fmin(r.least_x, v->operations / v->bytes);
    r.most_x = fmax(r.most_x, v->operations / v->bytes);
    for (int candidate = 0; candidate < 2; candidate++) {
      const double ns = time_of(v, candidate);
      if (ns > 0) r.least_y = fmin(r.least_y, v->operations / ns * 1e9);
      if (ns > 0) r.most_y = fmax(r.most_y, v->operations / ns * 1e9);
    }
  }
  r.most_y = fmax(r.most_y, r.rate);
  if (r.memory > 0 && r.rate > 0) r.most_x = fmax(r.most_x, r.rate / r.memory * 4);
  return r;
}

/* From the left edge up to the rate, then level. */
static void draw_ceilings(qn_svg *svg, const qn_axis *x, const qn_axis *y, const roof *r)
{
  char text[128];
  const double rate = r->rate > 0 ? r->rate : y->most, knee = fmin(rate / r->memory, x->most);
  if (!(r->memory > 0)) return;
  const double from = fmax(x->least, y->least / r->memory);
  snprintf(text, sizeof text, "memory: %.4g GB/s", r->memory * 1e-9);
  qn_svg_group(svg, text);
  if (from < knee)
    qn_svg_line(svg, qn_axis_at(x, from), qn_axis_at(y, from * r->memory), qn_axis_at(x, knee),
                qn_axis_at(y, fmin(knee * r->memory, y->most)), (qn_stroke){blue, 2.4, false});
  qn_svg_group_end(svg);
  if (!(r->rate > 0) || knee >= x->most) return;
  snprintf(text, sizeof text, "arithmetic: %.4g operations/s", r->rate);
  qn_svg_group(svg, text);
  qn_svg_line(svg, qn_axis_at(x, fmax(knee, x->least)), qn_axis_at(y, rate), RIGHT, qn_axis_at(y, rate),
              (qn_stroke){violet, 2.4, false});
  qn_svg_group_end(svg);
}

static void draw_roofline(qn_text *page, const qn_html_lines *lines, const char *device)
{
  const roof r = roof_of(lines, device);
  const qn_axis x = {pow(10, floor(log10(r.least_x))), pow(10, ceil(log10(r.most_x * 1.01))), LEFT, RIGHT, true};
  const qn_axis y = {pow(10, floor(log10(r.least_y))), pow(10, ceil(log10(r.most_y * 1.01))), BOTTOM, TOP, true};
  double key = LEFT;
  qn_svg svg;
  qn_svg_begin(&svg, WIDTH, HEIGHT, device);
  add_key(&svg, &key, 16, green, "candidate");
  add_key(&svg, &key, 16, grey, "better baseline");
  if (r.memory > 0) add_key(&svg, &key, 16, blue, "memory");
  if (r.rate > 0) add_key(&svg, &key, 16, violet, "arithmetic");
  draw_decades(&svg, &x, true, false);
  draw_decades(&svg, &y, false, true);
  qn_plot_name(&svg, &plot, "operations per byte", ink);
  letters(&svg, RIGHT, 16, "operations per second", faint, QN_END);
  draw_ceilings(&svg, &x, &y, &r);
  for (int candidate = 0; candidate < 2; candidate++)
    for (size_t k = 0; k < lines->n_verdicts; k++)
      if (has_point(&lines->verdict[k], device)) draw_point(&svg, &x, &y, &lines->verdict[k], candidate);
  qn_text_add(page, "<h2>Roofline: ");
  qn_text_add_escaped(page, device);
  qn_text_add(page, "</h2>\n<p>Lines are ceilings that the judge measured.</p>\n");
  qn_svg_into(&svg, page);
}

void qn_html_draw_rooflines(qn_text *page, const qn_html_lines *lines)
{
  const char *drawn[8];
  size_t n = 0;
  for (size_t k = 0; k < lines->n_verdicts && n < 8; k++) {
    const char *device = lines->verdict[k].device;
    bool known = !has_point(&lines->verdict[k], device);
    for (size_t j = 0; j < n && !known; j++) known = !strcmp(drawn[j], device);
    if (known) continue;
    drawn[n++] = device;
    draw_roofline(page, lines, device);
  }
}

/* ---- searches ---- */
static const char *colour_of(size_t generators)
{
  return generators == 1 ? blue : generators == 2 ? green : generators == 4 ? orange : violet;
}

static void draw_steps(qn_svg *svg, const qn_axis *x, const qn_axis *y, const qn_html_search *s)
{
  const char *colour = colour_of(s->generators);
  for (size_t k = 0; k < s->n; k++) {
    const double from = qn_axis_at(x, s->step[k].seconds), at = qn_axis_at(y, s->step[k].best);
    const double to = qn_axis_at(x, k + 1 < s->n ? s->step[k + 1].seconds : s->end_s);
    char text[512];
    snprintf(text, sizeof text, "%zu generator%s, seed %lld: %.4g after %.4g s, by %.200s", s->generators,
             s->generators == 1 ? "" : "s", (long long)s->seed, s->step[k].best, s->step[k].seconds, s->step[k].what);
    qn_svg_group(svg, text);
    qn_svg_line(svg, from, at, to, at, (qn_stroke){colour, 2.2, false});
    if (k + 1 < s->n) qn_svg_line(svg, to, at, to, qn_axis_at(y, s->step[k + 1].best), (qn_stroke){colour, 2.2, false});
    if (k) qn_svg_circle(svg, from, at, 4.5, colour);
    qn_svg_group_end(svg);
  }
}

static void draw_search(qn_text *page, const qn_html_lines *lines, const char *problem)
{
  double most_x = 1, most_y = 1.2, key = LEFT;
  for (size_t k = 0; k < lines->n_searches; k++) {
    if (strcmp(lines->search[k].problem, problem) != 0) continue;
    most_x = fmax(most_x, lines->search[k].end_s);
    most_y = fmax(most_y, lines->search[k].best);
  }
  const qn_axis x = {0, most_x, LEFT, RIGHT, false}, y = {1, 1 + (most_y - 1) * 1.08, BOTTOM, TOP, false};
  qn_svg svg;
  qn_svg_begin(&svg, WIDTH, HEIGHT, problem);
  for (size_t generators = 1; generators <= 8; generators++) {
    size_t n = 0;
    char text[40];
    for (size_t k = 0; k < lines->n_searches; k++)
      n += lines->search[k].generators == generators && !strcmp(lines->search[k].problem, problem);
    snprintf(text, sizeof text, "%zu generator%s", generators, generators == 1 ? "" : "s");
    if (n) add_key(&svg, &key, 16, colour_of(generators), text);
  }
  qn_plot_grid(&svg, &plot, &x, true, "%.4g");
  qn_plot_grid(&svg, &plot, &y, false, "%.4g");
  qn_plot_name(&svg, &plot, "seconds of search", ink);
  letters(&svg, RIGHT, 16, "speed-up of the best so far", faint, QN_END);
  for (size_t k = 0; k < lines->n_searches; k++)
    if (!strcmp(lines->search[k].problem, problem)) draw_steps(&svg, &x, &y, &lines->search[k]);
  qn_text_add(page, "<p>");
  qn_text_add_escaped(page, problem);
  qn_text_add(page, "</p>\n");
  qn_svg_into(&svg, page);
}

void qn_html_draw_searches(qn_text *page, const qn_html_lines *lines)
{
  for (size_t k = 0; k < lines->n_searches && k < 100; k++) {
    bool known = false;
    for (size_t j = 0; j < k && !known; j++) known = !strcmp(lines->search[j].problem, lines->search[k].problem);
    if (!known) draw_search(page, lines, lines->search[k].problem);
  }
}
