/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c - see svg.h. */
#include "workbench/svg.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

double qn_round_up(double x)
{
  const double power = pow(10, floor(log10(x))), share = x / power;
  return power * (share > 5 ? 10 : share > 2 ? 5 : share > 1 ? 2 : 1);
}

double qn_axis_at(const qn_axis *axis, double x)
{
  double share = axis->logarithmic ? log(x / axis->least) / log(axis->most / axis->least)
                                   : (x - axis->least) / (axis->most - axis->least);
  return axis->from + share * (axis->to - axis->from);
}

void qn_text_add_escaped(qn_text *text, const char *s)
{
  for (; *s; s++) {
    if (*s == '&')
      qn_text_add(text, "&amp;");
    else if (*s == '<')
      qn_text_add(text, "&lt;");
    else if (*s == '>')
      qn_text_add(text, "&gt;");
    else if (*s == '"')
      qn_text_add(text, "&quot;");
    else if (*s == '\n')
      qn_text_add(text, " ");
    else if ((unsigned char)*s >= ' ')
      qn_text_add_bytes(text, s, 1);
  }
}

void qn_svg_begin(qn_svg *svg, int width, int height, const char *title)
{
  *svg = (qn_svg){0};
  qn_text_add(&svg->text,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
              "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n<title>",
              width, height, width, height);
  qn_text_add_escaped(&svg->text, title);
  qn_text_add(&svg->text, "</title>\n");
}

void qn_svg_rectangle(qn_svg *svg, double x, double y, double width, double height, double radius, const char *fill)
{
  qn_text_add(&svg->text, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" fill=\"%s\"/>\n", x,
              y, width, height, radius, fill);
}

static void add_stroke(qn_text *text, qn_stroke stroke)
{
  qn_text_add(text, " stroke=\"%s\" stroke-width=\"%.2f\"%s/>\n", stroke.colour, stroke.width,
              stroke.dashed ? " stroke-dasharray=\"6 4\"" : "");
}

void qn_svg_line(qn_svg *svg, double x1, double y1, double x2, double y2, qn_stroke stroke)
{
  qn_text_add(&svg->text, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", x1, y1, x2, y2);
  add_stroke(&svg->text, stroke);
}

void qn_svg_path(qn_svg *svg, const double *x, const double *y, size_t n, qn_stroke stroke)
{
  qn_text_add(&svg->text, "<polyline fill=\"none\" stroke-linejoin=\"round\" points=\"");
  for (size_t k = 0; k < n; k++) qn_text_add(&svg->text, "%s%.1f,%.1f", k ? " " : "", x[k], y[k]);
  qn_text_add(&svg->text, "\"");
  add_stroke(&svg->text, stroke);
}

void qn_svg_circle(qn_svg *svg, double x, double y, double radius, const char *fill)
{
  qn_text_add(&svg->text,
              "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"1.5\"/>\n", x,
              y, radius, fill);
}

void qn_svg_letters(qn_svg *svg, double x, double y, const char *text, qn_letters how)
{
  static const char *const anchors[] = {"start", "middle", "end"};
  qn_text_add(&svg->text, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\" fill=\"%s\" text-anchor=\"%s\"%s", x, y,
              how.size, how.colour, anchors[how.anchor], how.bold ? " font-weight=\"600\"" : "");
  qn_text_add(&svg->text, ">");
  qn_text_add_escaped(&svg->text, text);
  qn_text_add(&svg->text, "</text>\n");
}

void qn_svg_words(qn_svg *svg, double x, double y, const char *text, const char *colour, double size, qn_anchor anchor)
{
  qn_svg_letters(svg, x, y, text, (qn_letters){.colour = colour, .size = size, .anchor = anchor});
}

void qn_plot_tick(qn_svg *svg, const qn_plot *p, bool along_x, double place, const char *number)
{
  const qn_stroke stroke = {p->rule, 1, false};
  if (along_x) {
    qn_svg_line(svg, place, p->top, place, p->bottom, stroke);
    qn_svg_words(svg, place, p->bottom + 18, number, p->faint, p->size, QN_MIDDLE);
  } else {
    qn_svg_line(svg, p->left, place, p->right, place, stroke);
    qn_svg_words(svg, p->left - 8, place + 4, number, p->faint, p->size, QN_END);
  }
}

void qn_plot_grid(qn_svg *svg, const qn_plot *p, const qn_axis *axis, bool along_x, const char *format)
{
  const double range = axis->most - axis->least, step = qn_round_up(range / 5);
  for (double at = ceil(axis->least / step) * step; at <= axis->most + step / 1000; at += step) {
    char text[40];
    snprintf(text, sizeof text, format, at);
    qn_plot_tick(svg, p, along_x, qn_axis_at(axis, at), text);
  }
}

void qn_plot_name(qn_svg *svg, const qn_plot *p, const char *name, const char *colour)
{
  qn_svg_words(svg, (p->left + p->right) / 2.0, p->bottom + 40, name, colour, 12, QN_MIDDLE);
}

void qn_svg_group(qn_svg *svg, const char *hover)
{
  qn_text_add(&svg->text, "<g><title>");
  qn_text_add_escaped(&svg->text, hover);
  qn_text_add(&svg->text, "</title>\n");
}

void qn_svg_group_end(qn_svg *svg) { qn_text_add(&svg->text, "</g>\n"); }

void qn_svg_into(qn_svg *svg, qn_text *page)
{
  qn_text_add(&svg->text, "</svg>\n");
  if (svg->text.failed) page->failed = true;
  qn_text_add_bytes(page, svg->text.at, svg->text.length);
  qn_text_free(&svg->text);
}

qn_status qn_text_write_file(const char *path, const qn_text *text)
{
  char beside[4096];
  struct stat old;
  if (snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid()) >= (int)sizeof beside)
    return qn_fail(QN_BAD_ARGUMENT, "%.60s...: the path is too long", path);
  FILE *file = fopen(beside, "we");
  const bool failed = !file || fwrite(text->at, 1, text->length, file) != text->length;
  int why = failed ? errno : 0; /* the first reason: later calls set another */
  if (file && !stat(path, &old) && fchmod(fileno(file), old.st_mode & 07777) && !why) why = errno;
  if (file && fclose(file) && !why) why = errno;
  if (!why && !rename(beside, path)) return QN_OK;
  qn_status status = qn_fail(QN_IO_ERROR, "%s: it could not be written: %s", path, strerror(why ? why : errno));
  if (file) unlink(beside);
  return status;
}

qn_status qn_svg_end(qn_svg *svg, const char *path)
{
  qn_text_add(&svg->text, "</svg>\n");
  const qn_status status = svg->text.failed ? qn_fail(QN_NO_MEMORY, "%s: the picture did not fit into memory", path)
                                            : qn_text_write_file(path, &svg->text);
  qn_text_free(&svg->text);
  return status;
}
