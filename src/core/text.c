/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - text that grows, a number of it, and the nearest of a few names. Growing text notes its first failure and
 * ignores what comes after, so that a caller checks once at the end. */
#include "core/core.h"
#include <ctype.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` bytes and the NUL. */
static bool reserve(qn_text *text, size_t more)
{
  if (text->failed) return false;
  size_t need;
  if (__builtin_add_overflow(text->length, more, &need) || __builtin_add_overflow(need, (size_t)1, &need)) {
    text->failed = true;
    return false;
  }
  if (need <= text->capacity) return true;
  size_t capacity = text->capacity ? text->capacity : 128;
  while (capacity < need) capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
  char *at = qn_reallocate(text->at, capacity);
  if (!at) {
    text->failed = true;
    return false;
  }
  text->at = at;
  text->capacity = capacity;
  return true;
}

void qn_text_add_bytes(qn_text *text, const void *bytes, size_t n)
{
  if (!reserve(text, n)) return;
  if (n) memcpy(text->at + text->length, bytes, n);
  text->length += n;
  text->at[text->length] = 0;
}

void qn_text_add(qn_text *text, const char *format, ...)
{
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0)
    text->failed = true;
  else if (reserve(text, (size_t)length)) {
    vsnprintf(text->at + text->length, (size_t)length + 1, format, again);
    text->length += (size_t)length;
  }
  va_end(again);
}

void qn_text_free(qn_text *text)
{
  qn_release(text->at);
  *text = (qn_text){0};
}

/* glibc's and musl's "C" locale is static: nothing is allocated. */
double qn_text_real(const char *digits, const char **end)
{
  char *behind = NULL;
  const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = c ? uselocale(c) : (locale_t)0;
  const double real = strtod(digits, &behind);
  if (end) *end = behind;
  if (!c) return real;
  uselocale(before);
  freelocale(c);
  return real;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

enum { LONGEST_NAME = 64 };

/* Edits (insert, delete, replace, swap of neighbours) between two names, letters' case aside. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
  size_t rows[3][LONGEST_NAME + 1];
  size_t *before = rows[0], *last = rows[1], *now = rows[2];
  for (size_t j = 0; j <= m; j++) before[j] = last[j] = j;
  for (size_t i = 1; i <= n; i++) {
    now[0] = i;
    for (size_t j = 1; j <= m; j++) {
      int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
      now[j] = least(least(now[j - 1], last[j]) + 1, last[j - 1] + (x != y));
      if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]))
        now[j] = least(now[j], before[j - 2] + 1);
    }
    size_t *free_row = before;
    before = last;
    last = now;
    now = free_row;
  }
  return last[m];
}

const char *qn_nearest(const char *word, const char *const *candidates)
{
  size_t n = strlen(word), best = 2 + n / 3; /* farther than that is another word */
  const char *nearest = NULL;
  if (n > LONGEST_NAME) return NULL;
  for (; *candidates; candidates++) {
    size_t m = strlen(*candidates);
    if (m > LONGEST_NAME) continue;
    size_t d = distance(word, n, *candidates, m);
    if (d < best && d < (n > m ? n : m)) {
      best = d;
      nearest = *candidates;
    }
  }
  return nearest;
}

const char *qn_suggest(const char *word, const char *const *candidates)
{
  static _Thread_local char text[LONGEST_NAME + 32];
  const char *near = qn_nearest(word, candidates);
  snprintf(text, sizeof text, near ? "; did you mean %s?" : "%s", near ? near : "");
  return text;
}
