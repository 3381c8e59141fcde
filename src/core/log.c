/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - the library's voice: a callback of the caller's, or silence. It never writes to a file or a terminal. */
#include "core/core.h"
#include <stdarg.h>
#include <stdio.h>

static struct {
  qn_log_fn *fn;
  void *user;
  qn_log_level most;
} log_to;

void qn_log_set(qn_log_fn *fn, void *user, qn_log_level most)
{
  log_to.fn = fn;
  log_to.user = user;
  log_to.most = fn ? most : QN_LOG_OFF;
}

void qn_log(qn_log_level level, const char *format, ...)
{
  if (level > log_to.most) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length >= 0) log_to.fn(log_to.user, level, text);
}
