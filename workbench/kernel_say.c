/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_say.c - see kernel_say.h. */
#include "workbench/kernel_say.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/term.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- where a message points ---- */
typedef struct place {
  const char *file, *text; /* NULL: nowhere */
  int line, column;        /* column 0: unknown */
} place;

/* "FILE:3:7:", "FILE:3:" or "FILE(3):" within the message. */
static bool points_into(const char *message, const char *file, const char *text, place *p)
{
  const size_t length = file ? strlen(file) : 0;
  for (const char *at = message; length && text && (at = strstr(at, file)); at += length) {
    char *end;
    if (at[length] != ':' && at[length] != '(') continue;
    long line = strtol(at + length + 1, &end, 10);
    if (line < 1 || end == at + length + 1) continue;
    long column = *end == ':' && isdigit((unsigned char)end[1]) ? strtol(end + 1, NULL, 10) : 0;
    *p = (place){file, text, (int)line, (int)column};
    return true;
  }
  return false;
}

static place find_place(const qn_folder *f, const char *message)
{
  place p = {NULL, NULL, 0, 0};
  if (!f || points_into(message, f->body.file, f->body.source, &p) ||
      points_into(message, f->body.header_file, f->body.header, &p) ||
      points_into(message, f->reference.file, f->reference.source, &p))
    return p;
  points_into(message, f->reference.header_file, f->reference.header, &p);
  return p;
}

static const char *line_of(const char *text, int line, size_t *length)
{
  for (; line > 1; line--) {
    text = strchr(text, '\n');
    if (!text) return NULL;
    text++;
  }
  *length = strcspn(text, "\n");
  return text;
}

/* The generated text is not the body letter for letter, so that a word which the message quotes is a better guide than
 * its column. */
static size_t caret_at(const char *message, const char *line, size_t length, int column)
{
  static const char *const opens[] = {"\"", "'", "\xe2\x80\x98"};
  for (size_t k = 0; k < sizeof opens / sizeof *opens; k++) {
    const char *word = strstr(message, opens[k]);
    if (!word) continue;
    word += strlen(opens[k]);
    size_t n = 0;
    while (isalnum((unsigned char)word[n]) || word[n] == '_') n++;
    for (size_t at = 0; n && at + n <= length; at++)
      if (!strncmp(line + at, word, n) && !(at && (isalnum((unsigned char)line[at - 1]) || line[at - 1] == '_')) &&
          !(at + n < length && (isalnum((unsigned char)line[at + n]) || line[at + n] == '_')))
        return at + 1;
  }
  return column > 0 && (size_t)column <= length ? (size_t)column : 0;
}

void qn_say_failure(FILE *stream, const qn_folder *folder, const char *before)
{
  const char *message = qn_last_error();
  place p = find_place(folder, message);
  size_t length = 0;
  const char *line = p.file ? line_of(p.text, p.line, &length) : NULL;
  if (!line) {
    fprintf(stream, "%s%s\n", before, message);
    return;
  }
  size_t caret = caret_at(message, line, length, p.column);
  fprintf(stream, "%s%.*s\n%5d | %.*s\n", before, (int)strcspn(message, "\n"), message, p.line, (int)length, line);
  if (!caret) return;
  fprintf(stream, "      | ");
  for (size_t k = 1; k < caret; k++) fputc(line[k - 1] == '\t' ? '\t' : ' ', stream);
  fprintf(stream, "%s^%s\n", qn_term_colour(stream, QN_RED), qn_term_colour(stream, QN_PLAIN));
}

/* ---- values ---- */
void qn_element_text(qn_dtype dtype, const void *at, char *text, size_t bytes)
{
  long long whole = 0;
  unsigned long long natural = 0;
  double value = qn_number_load(dtype, at);
  switch (dtype) {
  case QN_F64: snprintf(text, bytes, "%.17g", value); return;
  case QN_F16:
  case QN_BF16: snprintf(text, bytes, "%.5g", value); return;
  case QN_BOOL: snprintf(text, bytes, "%s", value != 0 ? "true" : "false"); return;
  case QN_I64: memcpy(&whole, at, sizeof whole); break;
  case QN_U64: memcpy(&natural, at, sizeof natural); break;
  case QN_C64: snprintf(text, bytes, "%.9g%+.9gi", value, qn_number_load(QN_F32, (const char *)at + 4)); return;
  default: snprintf(text, bytes, "%.9g", value); return;
  }
  if (dtype == QN_U64)
    snprintf(text, bytes, "%llu", natural);
  else
    snprintf(text, bytes, "%lld", whole);
}

void qn_say_array(FILE *stream, const qn_array *array, size_t most)
{
  char value[64], shape[128] = "[";
  for (int d = 0; d < array->ndim; d++)
    snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", d ? ", " : "", (long long)array->shape[d]);
  fprintf(stream, "  %-10s %s %s]  ", array->is->name, qn_dtype_name(array->dtype), shape);
  for (size_t k = 0; k < array->elements && k < most; k++) {
    qn_element_text(array->dtype, qn_array_at(array, k), value, sizeof value);
    fprintf(stream, " %s", value);
  }
  fprintf(stream, "%s\n", array->elements > most ? " ..." : "");
}

/* ---- a process of its own ---- */
int qn_isolated(int (*work)(void *user), void *user, char *said, size_t bytes)
{
  *said = 0;
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) {
    snprintf(said, bytes, "no process could be started: %s", strerror(errno));
    return -1;
  }
  if (!child) {
    const int ended = work(user);
    fflush(NULL);
    _exit(ended); /* what exit() runs is the parent's: its handlers, its libraries' ends, a search for leaks among
                   * threads that are not here */
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  int number = WTERMSIG(status);
  snprintf(said, bytes, "it crashed: signal %d, %s", number, strsignal(number));
  return -1;
}
