/* SPDX-License-Identifier: Apache-2.0 */
/* roofline_draw.c - the picture of a roofline: on the left operations a second over operations a byte, both
 * logarithmic, with ceilings measured (solid) and nominal (dashed); on the right, where kernels that only stream can be
 * told apart, bandwidth over the working set. Kernels are numbered points in both; what the numbers and the lines mean
 * stands below, where no name is too long and none covers a curve. */
#include "workbench/roofline.h"
#include "workbench/svg.h"
#include "workbench/table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 24 };
enum {
  WIDTH = 1120,
  KEY = 568,
  LINE = 17,
  TOP = 84,
  BOTTOM = 496,
  LEFT = 76,
  MIDDLE = 600,
  RIGHT_FROM = 690,
  RIGHT_TO = 1096
};
static const char ink[] = "#1f2933", faint[] = "#7b8794", grid[] = "#e4e7eb", memory_colour[] = "#0b6bcb",
                  cache_colour[] = "#7cb8f0", kernel_colour[] = "#c2410c";
static const char *const rate_colours[QN_RATE_COUNT] = {"#2f855a", "#8a3ffc", "#b83280"};
static const char *const mix_colours[QN_ROOF_MIXES] = {"#0b6bcb", "#2c9a8f", "#5b5bd6"};

typedef struct plot {
  qn_svg svg;
  qn_axis x, y;
  const qn_roofline *r;
} plot;

/* A kernel, ready to be placed. */
typedef struct point {
  double intensity, rate, bytes, gbps;
  char name[320];
} point;

static const qn_plot left_plot = {LEFT, MIDDLE, TOP, BOTTOM, 11, grid, faint},
                     right_plot = {RIGHT_FROM, RIGHT_TO, TOP, BOTTOM, 11, grid, faint};

/* ---- numbers as axes show them ---- */
static void say_rate(char *text, size_t bytes, double x)
{
  static const char *const units[] = {"", "K", "M", "G", "T", "P"};
  size_t k = 0;
  for (; x >= 999.5 && k < 5; k++) x /= 1000;
  snprintf(text, bytes, "%.3g %sFLOP/s", x, units[k]);
}

static void say_bytes(char *text, size_t bytes, double x)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t k = 0;
  for (; x >= 1024 && k < 4; k++) x /= 1024;
  snprintf(text, bytes, "%.3g %s", x, units[k]);
}

/* ---- points ---- */
static bool is_of(const qn_record *record, const qn_roofline *r)
{
  return !strcmp(record->device, r->info.name) && !strcmp(record->backend, qn_device_kind_name(r->device.kind));
}

static size_t find_points(const qn_roofline *r, const qn_records *records, point *points, size_t most, size_t *left_out)
{
  size_t n = 0;
  *left_out = 0;
  for (size_t k = 0; records && k < records->n; k++) {
    const qn_record *a = &records->record[k];
    if (*a->by || !a->timed || a->impossible || strcmp(a->timer, "event") != 0 || !qn_record_is_last(records, k))
      continue;
    if (!is_of(a, r) || n == most) {
      ++*left_out;
      continue;
    }
    double seconds = a->fused.bytes / (a->gbps * 1e9);
    const char *types = strspn(a->types, "f32 ") == strlen(a->types) ? "" : a->types; /* all f32 goes without saying */
    points[n] = (point){.intensity = a->operations / a->fused.bytes,
                        .rate = a->operations / seconds,
                        .bytes = a->set_bytes,
                        .gbps = a->gbps};
    snprintf(points[n].name, sizeof points->name, "%.48s %.64s%s%.160s, %.0f GB/s", a->op, a->workload,
             *types ? " " : "", types, a->gbps);
    n++;
  }
  return n;
}

static int by_rate(const void *a, const void *b)
{
  const point *x = a, *y = b;
  return (x->rate < y->rate) - (x->rate > y->rate);
}

/* Where the number of a point goes: the nearest place beside it that touches neither a point nor another number. */
typedef struct place {
  double x, y;
} place;

static bool is_free(const plot *p, place at, const place *taken, size_t n)
{
  if (at.x < p->x.from + 8 || at.x > p->x.to - 4 || at.y < TOP + 8 || at.y > BOTTOM - 8) return false;
  for (size_t k = 0; k < n; k++)
    if (fabs(at.x - taken[k].x) < 16 && fabs(at.y - taken[k].y) < 13) return false;
  return true;
}

static place find_room(const plot *p, place kernel, const place *taken, size_t n)
{
  for (int far = 0; far < 2 * MOST_POINTS; far++)
    for (int way = 0; way < 4; way++) {
      const place at = {kernel.x + (way & 1 ? -18 : 18), kernel.y + (way & 2 ? -13 : 13) * far};
      if (is_free(p, at, taken, n)) return at;
    }
  return kernel;
}

/* The points come last, over the lines to their numbers. */
static void draw_points(plot *p, const point *points, size_t n, bool left)
{
  place taken[2 * MOST_POINTS];
  for (size_t k = 0; k < n; k++) {
    taken[k].x = qn_axis_at(&p->x, left ? points[k].intensity : points[k].bytes);
    taken[k].y = qn_axis_at(&p->y, left ? points[k].rate : points[k].gbps);
  }
  for (size_t k = 0; k < n; k++) {
    const place at = find_room(p, taken[k], taken, n + k);
    char number[24];
    snprintf(number, sizeof number, "%zu", k + 1);
    taken[n + k] = at;
    qn_svg_line(&p->svg, taken[k].x, taken[k].y, at.x + (at.x < taken[k].x ? 8 : -8), at.y,
                (qn_stroke){kernel_colour, 0.7, false});
    const qn_letters how = {ink, 11.5, QN_MIDDLE, true};
    qn_svg_letters(&p->svg, at.x, at.y + 4, number, how);
  }
  for (size_t k = 0; k < n; k++) qn_svg_circle(&p->svg, taken[k].x, taken[k].y, 5.5, kernel_colour);
}

/* ---- the key ---- */

/* How wide a text is, about, in letters of 11.5: enough to set columns. */
static double width_of(const char *text) { return 6.3 * (double)strlen(text); }

/* The names of the points, column by column: of so many rows the columns' widths, and whether they fit. */
enum { MOST_COLUMNS = 3 };
static bool columns_fit(const point *points, size_t n, size_t rows, double width[MOST_COLUMNS])
{
  double all = 0;
  for (size_t c = 0; c < MOST_COLUMNS; c++) {
    width[c] = 0;
    for (size_t k = c * rows; k < (c + 1) * rows && k < n; k++)
      width[c] = fmax(width[c], width_of(points[k].name) + 40);
    all += width[c];
  }
  return all <= WIDTH - 24 && n <= MOST_COLUMNS * rows;
}

static size_t rows_of(const point *points, size_t n, double width[MOST_COLUMNS])
{
  size_t rows = 0;
  while (!columns_fit(points, n, rows, width) && rows < n) rows++;
  return rows;
}

static void draw_names(plot *p, const point *points, size_t n)
{
  double width[MOST_COLUMNS], x = 40;
  const size_t rows = rows_of(points, n, width);
  for (size_t k = 0; k < n; k++) {
    const double y = KEY + LINE * (1.5 + (double)(k % rows));
    char number[24];
    if (k && k % rows == 0) x += width[k / rows - 1];
    snprintf(number, sizeof number, "%zu", k + 1);
    const qn_letters how = {ink, 11.5, QN_END, true};
    qn_svg_letters(&p->svg, x, y, number, how);
    qn_svg_words(&p->svg, x + 8, y, points[k].name, ink, 11.5, QN_START);
  }
}

/* ---- the left plot ---- */
static double highest_rate(const qn_roofline *r)
{
  double best = 0;
  for (int k = 0; k < QN_RATE_COUNT; k++) best = fmax(best, fmax(r->rate[k], r->nominal[k]));
  return best > 0 ? best : qn_roofline_cache(r) * 1e9;
}

static void draw_grid(plot *p, const char *x_name)
{
  char text[40];
  for (double y = p->y.least; y <= p->y.most * 1.001; y *= 10) {
    say_rate(text, sizeof text, y);
    *strchr(text, 'F') = 0; /* the unit is in the title */
    qn_plot_tick(&p->svg, &left_plot, false, qn_axis_at(&p->y, y), text);
  }
  for (double x = p->x.least; x <= p->x.most * 1.001; x *= 10) {
    snprintf(text, sizeof text, "%g", x);
    qn_plot_tick(&p->svg, &left_plot, true, qn_axis_at(&p->x, x), text);
  }
  qn_plot_name(&p->svg, &left_plot, x_name, ink);
}

/* A diagonal: gbps of memory, until the highest arithmetic ceiling stops it. */
static void draw_slope(plot *p, double gbps, double top, qn_stroke stroke)
{
  double x0 = p->x.least, y0 = gbps * 1e9 * x0, x1 = fmin(top / (gbps * 1e9), p->x.most);
  if (y0 < p->y.least) x0 *= p->y.least / y0, y0 = p->y.least;
  qn_svg_line(&p->svg, qn_axis_at(&p->x, x0), qn_axis_at(&p->y, y0), qn_axis_at(&p->x, x1),
              qn_axis_at(&p->y, x1 * gbps * 1e9), stroke);
}

static void draw_level(plot *p, double rate, double from_gbps, qn_stroke stroke)
{
  double from = fmax(rate / (from_gbps * 1e9), p->x.least), at = qn_axis_at(&p->y, rate);
  qn_svg_line(&p->svg, qn_axis_at(&p->x, from), at, MIDDLE, at, stroke);
}

/* The next entry of the key's first line, at *x. Amounts in one unit have it once: "640 of 989 TFLOP/s". */
static void add_key(plot *p, double *x, const char *colour, const char *name, const char *amount, const char *nominal)
{
  char text[128];
  size_t digits = strcspn(amount, " ");
  bool once = *nominal && !strcmp(amount + digits, nominal + strcspn(nominal, " "));
  snprintf(text, sizeof text, "%s %.*s%s%s", name, once ? (int)digits : 40, amount, *nominal ? " of " : "", nominal);
  qn_svg_line(&p->svg, *x, KEY - 4, *x + 22, KEY - 4, (qn_stroke){colour, 2.4, false});
  qn_svg_words(&p->svg, *x + 28, KEY, text, ink, 11.5, QN_START);
  *x += 46 + width_of(text);
}

static void draw_rates(plot *p, double cache, double *key)
{
  for (int k = 0; k < QN_RATE_COUNT; k++) {
    char amount[40], nominal[40] = "";
    if (p->r->nominal[k] > 0) {
      draw_level(p, p->r->nominal[k], cache, (qn_stroke){rate_colours[k], 1.1, true});
      say_rate(nominal, sizeof nominal, p->r->nominal[k]);
    }
    if (p->r->rate[k] <= 0) continue;
    draw_level(p, p->r->rate[k], cache, (qn_stroke){rate_colours[k], 2.4, false});
    say_rate(amount, sizeof amount, p->r->rate[k]);
    add_key(p, key, rate_colours[k], qn_rate_name((qn_rate)k), amount, nominal);
  }
}

static void draw_bandwidths(plot *p, double memory, double cache, double top, double *key)
{
  char amount[40], nominal[40] = "";
  if (p->r->nominal_gbps > 0) {
    draw_slope(p, p->r->nominal_gbps, top, (qn_stroke){memory_colour, 1.1, true});
    snprintf(nominal, sizeof nominal, "%.0f GB/s", p->r->nominal_gbps);
  }
  if (cache > 1.15 * memory) draw_slope(p, cache, top, (qn_stroke){cache_colour, 2, false});
  draw_slope(p, memory, top, (qn_stroke){memory_colour, 2.4, false});
  snprintf(amount, sizeof amount, "%.*f GB/s", memory < 100, memory);
  add_key(p, key, memory_colour, "memory", amount, nominal);
  snprintf(amount, sizeof amount, "%.*f GB/s", cache < 100, cache);
  if (cache > 1.15 * memory) add_key(p, key, cache_colour, "cache", amount, "");
}

static void draw_left(plot *p, const point *points, size_t n)
{
  const qn_roofline *r = p->r;
  double key = 24;
  double memory = qn_roofline_memory(r), cache = qn_roofline_cache(r), top = highest_rate(r), low = memory * 1e9 * 0.02;
  p->x = (qn_axis){0.01, pow(10, ceil(log10(top / (memory * 1e9)) + 0.3)), LEFT, MIDDLE, true};
  if (p->x.most < 100) p->x.most = 100;
  for (size_t k = 0; k < n; k++) low = fmin(low, points[k].rate / 5);
  p->y = (qn_axis){pow(10, floor(log10(low))), pow(10, ceil(log10(top * 1.2))), BOTTOM, TOP, true};
  draw_grid(p, "arithmetic intensity: operations per byte moved (FLOP/byte)");
  qn_svg_words(&p->svg, LEFT - 56, TOP - 14, "FLOP/s", ink, 12, QN_START);
  draw_bandwidths(p, memory, cache, top, &key);
  draw_rates(p, cache, &key);
  draw_points(p, points, n, true);
}

/* ---- the right plot ---- */
static void draw_right_axes(plot *p)
{
  char text[40];
  double step = qn_round_up(p->y.most / 6);
  for (double y = 0; y <= p->y.most * 1.001; y += step) {
    snprintf(text, sizeof text, "%g", y);
    qn_plot_tick(&p->svg, &right_plot, false, qn_axis_at(&p->y, y), text);
  }
  double last = -1e9;
  for (double x = exp2(ceil(log2(p->x.least))); x <= p->x.most * 1.001; x *= 4) {
    double at = qn_axis_at(&p->x, x);
    const bool close = at - last < 54;
    say_bytes(text, sizeof text, x);
    if (close)
      qn_svg_line(&p->svg, at, TOP, at, BOTTOM, (qn_stroke){grid, 1, false});
    else
      qn_plot_tick(&p->svg, &right_plot, true, last = at, text);
  }
  qn_plot_name(&p->svg, &right_plot, "working set", ink);
  qn_svg_words(&p->svg, RIGHT_FROM - 56, TOP - 14, "GB/s", ink, 12, QN_START);
}

static void draw_right(plot *p, const point *points, size_t n)
{
  const qn_roofline *r = p->r;
  double most = r->set[0][r->n_sets - 1].bytes, least = r->set[0][0].bytes,
         high = fmax(qn_roofline_cache(r), r->nominal_gbps);
  for (size_t k = 0; k < n; k++)
    most = fmax(most, points[k].bytes), least = fmin(least, points[k].bytes), high = fmax(high, points[k].gbps);
  p->x = (qn_axis){least / 1.5, most * 1.5, RIGHT_FROM, RIGHT_TO, true};
  double step = qn_round_up(high * 1.05 / 6);
  p->y = (qn_axis){0, step * ceil(high * 1.05 / step), BOTTOM, TOP, false};
  draw_right_axes(p);
  if (r->nominal_gbps > 0) {
    double at = qn_axis_at(&p->y, r->nominal_gbps);
    qn_svg_line(&p->svg, RIGHT_FROM, at, RIGHT_TO, at, (qn_stroke){memory_colour, 1.1, true});
    qn_svg_words(&p->svg, RIGHT_TO - 4, at - 5, "nominal", memory_colour, 11, QN_END);
  }
  double key = RIGHT_FROM;
  for (int m = 0; m < QN_ROOF_MIXES; m++) {
    double x[QN_ROOF_SETS], y[QN_ROOF_SETS];
    for (size_t k = 0; k < r->n_sets; k++) {
      x[k] = qn_axis_at(&p->x, r->set[m][k].bytes);
      y[k] = qn_axis_at(&p->y, r->set[m][k].gbps);
    }
    qn_svg_path(&p->svg, x, y, r->n_sets, (qn_stroke){mix_colours[m], 2.2, false});
    qn_svg_line(&p->svg, key, TOP - 18, key + 22, TOP - 18, (qn_stroke){mix_colours[m], 2.2, false});
    qn_svg_words(&p->svg, key + 28, TOP - 14, qn_mix_name(r->mix[m]), ink, 11.5, QN_START);
    key += 48 + 6.2 * (double)strlen(qn_mix_name(r->mix[m]));
  }
  draw_points(p, points, n, false);
}

static void draw_title(plot *p, size_t n)
{
  const qn_roofline *r = p->r;
  char text[256];
  snprintf(text, sizeof text, "What %s can do, and what %s", r->info.name,
           n ? "the kernels reach" : "is to be reached");
  const qn_letters how = {ink, 18, QN_START, true};
  qn_svg_letters(&p->svg, 20, 34, text, how);
  int used =
      snprintf(text, sizeof text, "solid: measured%s", r->nominal_gbps > 0 ? "; dashed: the maker's data sheet" : "");
  if (r->threads && used > 0)
    snprintf(text + used, sizeof text - (size_t)used, "; %d thread%s", r->threads, r->threads == 1 ? "" : "s");
  qn_svg_words(&p->svg, 20, 54, text, faint, 12, QN_START);
}

qn_status qn_roofline_draw(const char *path, const qn_roofline *r, const qn_records *records, size_t *left_out)
{
  point points[MOST_POINTS];
  plot p = {.r = r};
  size_t n = find_points(r, records, points, MOST_POINTS, left_out);
  qsort(points, n, sizeof *points, by_rate);
  double width[MOST_COLUMNS];
  const int height = KEY + LINE * (1 + (int)rows_of(points, n, width));
  qn_svg_begin(&p.svg, WIDTH, height, "Roofline");
  qn_svg_rectangle(&p.svg, 0, 0, WIDTH, height, 8, "#ffffff");
  draw_title(&p, n);
  draw_left(&p, points, n);
  draw_right(&p, points, n);
  draw_names(&p, points, n);
  return qn_svg_end(&p.svg, path);
}
