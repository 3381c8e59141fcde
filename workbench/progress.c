/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - see progress.h. The line is built whole and written by one call, cut to the terminal's width. */
#include "workbench/progress.h"
#include "workbench/term.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum { REDRAW_NS = 100000000, LINE_BYTES = 512 };

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void qn_progress_begin(qn_progress *progress, const char *what, size_t total)
{
  *progress = (qn_progress){.what = what, .total = total, .began_ns = now_ns(), .on = qn_term_is(stderr)};
}

/* Cut to `columns` without splitting a UTF-8 character; one column a character is near enough for what we print. */
static void cut(char *line, int columns)
{
  for (char *c = line; *c; c++) {
    if (((unsigned char)*c & 0xC0) == 0x80) continue;
    if (columns-- == 0) {
      *c = 0;
      return;
    }
  }
}

void qn_progress_at(qn_progress *progress, size_t done, const char *format, ...)
{
  if (!progress->on) return;
  int64_t now = now_ns();
  if (progress->drawn_ns && now - progress->drawn_ns < REDRAW_NS) return;
  progress->drawn_ns = now;

  char line[LINE_BYTES];
  int seconds = (int)((now - progress->began_ns) / 1000000000), used;
  if (progress->total) {
    size_t percent = done >= progress->total ? 100 : (size_t)(100.0 * (double)done / (double)progress->total);
    used = snprintf(line, sizeof line, "%s %3zu%% %d:%02d ", progress->what, percent, seconds / 60, seconds % 60);
  } else {
    used = snprintf(line, sizeof line, "%s %d:%02d ", progress->what, seconds / 60, seconds % 60);
  }
  if (used >= 0 && used < LINE_BYTES) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
  }
  cut(line, qn_term_width(stderr) - 1); /* the last column would wrap on some terminals */
  fprintf(stderr, "\r%s\033[K", line);
  fflush(stderr);
  progress->shown = true;
}

void qn_progress_hide(qn_progress *progress)
{
  if (!progress->shown) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
  progress->shown = false;
  progress->drawn_ns = 0;
}

void qn_progress_end(qn_progress *progress)
{
  qn_progress_hide(progress);
  progress->on = false;
}
