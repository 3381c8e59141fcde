/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - statuses as text, and this thread's latest failure as a sentence. It allocates nothing: a failure must be
 * reportable when memory is out. */
#include "core/status.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE_BYTES = 1024 };
static _Thread_local char sentence[SENTENCE_BYTES];

static const char *const names[] = {
#define X(name, text) #name,
    QN_STATUS_MAP(X)
#undef X
};
static const char *const texts[] = {
#define X(name, text) text,
    QN_STATUS_MAP(X)
#undef X
};

static int known(qn_status status) { return (unsigned)status < QN_STATUS_COUNT; }

const char *qn_status_name(qn_status status) { return known(status) ? names[status] : "QN_UNKNOWN"; }

const char *qn_status_text(qn_status status) { return known(status) ? texts[status] : "QN_UNKNOWN"; }

const char *qn_last_error(void) { return sentence; }

const char *qn_version(void) { return QN_VERSION; }

/* Ends a text that did not fit in "...", not within a character of several bytes. */
static void mark_as_cut(char *text, size_t bytes)
{
  size_t at = bytes - 4;
  while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) at--;
  memcpy(text + at, "...", 4);
}

qn_status qn_fail_at(qn_status status, const char *format, ...)
{
  char made[SENTENCE_BYTES]; /* apart, because an argument may be qn_last_error() itself */
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(made, sizeof made, format, arguments);
  va_end(arguments);
  if (length < 0)
    snprintf(made, sizeof made, "%s", qn_status_text(status));
  else if ((size_t)length >= sizeof made)
    mark_as_cut(made, sizeof made);
  memcpy(sentence, made, sizeof sentence);
  return status;
}
