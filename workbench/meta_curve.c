/* SPDX-License-Identifier: Apache-2.0 */
/* meta_curve.c - see meta_curve.h. */
#include "workbench/meta_curve.h"
#include "workbench/svg.h"
#include <math.h>

enum { WIDTH = 760, HEIGHT = 400, LEFT = 72, RIGHT = 736, TOP = 64, BOTTOM = 340 };
static const char ink[] = "#1f2933", faint[] = "#7b8794", grid[] = "#e4e7eb", line[] = "#0b6bcb";

void qn_meta_curve_add(qn_meta_curve *c, uint32_t step, double loss)
{
  if (c->n == QN_META_CURVE_POINTS) {
    c->n /= 2;
    for (size_t k = 0; k < c->n; k++)
      c->step[k] = c->step[2 * k + 1], c->loss[k] = (c->loss[2 * k] + c->loss[2 * k + 1]) / 2;
  }
  c->step[c->n] = step, c->loss[c->n++] = loss;
}

static const qn_plot plot = {LEFT, RIGHT, TOP, BOTTOM, 12, grid, faint};

qn_status qn_meta_curve_draw(const char *path, const qn_meta_curve *c, const char *title, uint32_t steps)
{
  double low = HUGE_VAL, high = -HUGE_VAL, at_x[QN_META_CURVE_POINTS], at_y[QN_META_CURVE_POINTS];
  qn_require(c->n, "%s: no outer step was taken, so there is no curve", path);
  for (size_t k = 0; k < c->n; k++) low = fmin(low, c->loss[k]), high = fmax(high, c->loss[k]);
  const double room = fmax((high - low) / 20, 1e-3);
  const qn_axis x = {0, steps, LEFT, RIGHT, false}, y = {low - room, high + room, BOTTOM, TOP, false};
  qn_svg svg;
  qn_svg_begin(&svg, WIDTH, HEIGHT, "Meta-training");
  qn_svg_rectangle(&svg, 0, 0, WIDTH, HEIGHT, 8, "#ffffff");
  qn_svg_letters(&svg, 20, 30, title, (qn_letters){.colour = ink, .size = 16, .anchor = QN_START, .bold = true});
  qn_svg_words(&svg, 20, 50, "mean loss of all networks in training", faint, 12, QN_START);
  qn_plot_grid(&svg, &plot, &y, false, "%.4g");
  qn_plot_grid(&svg, &plot, &x, true, "%.8g");
  qn_plot_name(&svg, &plot, "outer step", ink);
  for (size_t k = 0; k < c->n; k++) at_x[k] = qn_axis_at(&x, c->step[k]), at_y[k] = qn_axis_at(&y, c->loss[k]);
  qn_svg_path(&svg, at_x, at_y, c->n, (qn_stroke){line, 2, false});
  qn_svg_circle(&svg, at_x[c->n - 1], at_y[c->n - 1], 4, line);
  return qn_svg_end(&svg, path);
}
