/* SPDX-License-Identifier: Apache-2.0 */
/* svg.h - pictures written by hand: a handful of shapes, and axes that map numbers to places. It decides no colours. */
#ifndef QN_WORKBENCH_SVG_H
#define QN_WORKBENCH_SVG_H
#include "core/core.h"

typedef struct qn_svg {
  qn_text text;
} qn_svg;

typedef struct qn_axis {
  double least, most; /* of the numbers */
  double from, to;    /* of the places: from > to where larger is higher */
  bool logarithmic;
} qn_axis;
double qn_axis_at(const qn_axis *axis, double x);
/* A round number at or above x: 1, 2 or 5 times a power of ten. */
double qn_round_up(double x);

typedef struct qn_stroke {
  const char *colour;
  double width;
  bool dashed;
} qn_stroke;

typedef enum qn_anchor { QN_START, QN_MIDDLE, QN_END } qn_anchor;
typedef struct qn_letters {
  const char *colour;
  double size;
  qn_anchor anchor;
  bool bold;
} qn_letters;

void qn_svg_begin(qn_svg *svg, int width, int height, const char *title);
void qn_svg_rectangle(qn_svg *svg, double x, double y, double width, double height, double radius, const char *fill);
void qn_svg_line(qn_svg *svg, double x1, double y1, double x2, double y2, qn_stroke stroke);
void qn_svg_path(qn_svg *svg, const double *x, const double *y, size_t n, qn_stroke stroke);
void qn_svg_circle(qn_svg *svg, double x, double y, double radius, const char *fill);
/* The text may hold anything: it is escaped. */
void qn_svg_letters(qn_svg *svg, double x, double y, const char *text, qn_letters how);
/* The same, not bold. */
void qn_svg_words(qn_svg *svg, double x, double y, const char *text, const char *colour, double size, qn_anchor anchor);

/* Where a plot stands, and its grid's look. */
typedef struct qn_plot {
  double left, right, top, bottom, size; /* of letters */
  const char *rule, *faint;
} qn_plot;
/* A line across the plot, along x from bottom to top, with its number beside the plot. */
void qn_plot_tick(qn_svg *svg, const qn_plot *plot, bool along_x, double place, const char *number);
/* Ticks at round numbers, so that some five fit. */
void qn_plot_grid(qn_svg *svg, const qn_plot *plot, const qn_axis *axis, bool along_x, const char *format)
    __attribute__((format(printf, 5, 0)));
/* What the plot's x is of, below it. */
void qn_plot_name(qn_svg *svg, const qn_plot *plot, const char *name, const char *colour);

/* What is drawn between the two shows this text where the pointer rests. */
void qn_svg_group(qn_svg *svg, const char *hover);
void qn_svg_group_end(qn_svg *svg);
/* Any text, safe between elements of XML or HTML and in a quoted attribute. */
void qn_text_add_escaped(qn_text *text, const char *s);
/* Writes a file whole or not at all. */
qn_status qn_text_write_file(const char *path, const qn_text *text);
/* The picture as an element of a page; frees it. */
void qn_svg_into(qn_svg *svg, qn_text *page);
/* Writes the file whole or not at all, and frees the picture. */
qn_status qn_svg_end(qn_svg *svg, const char *path);
#endif
