/* SPDX-License-Identifier: Apache-2.0 */
/* preprocess.c - puts a unit's text together from the embedded sources. The compilers and the kernel's key get
 * the same text, so nothing that a kernel can reach is missing from its key. It is no preprocessor:
 * what stands in a branch not taken is put in its place too, and include guards do the rest. */
#include "device/preprocess.h"
#include "core/source.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 16, MOST_SOURCES = 64, NAME_BYTES = 256 };

typedef struct expansion {
  qn_text *text;
  const qn_source *whole[MOST_SOURCES]; /* these stand in the text where no #if can hide them: once is enough */
  size_t n_whole;
} expansion;

/* The text behind a line's #, or NULL. */
static const char *directive(const char *line)
{
  line += strspn(line, " \t");
  if (*line != '#') return NULL;
  return line + 1 + strspn(line + 1, " \t");
}

static bool starts(const char *text, const char *word) { return text && !strncmp(text, word, strlen(word)); }

/* The name in a directive `include "name"`; false for any other. */
static bool included_name(const char *at, char name[NAME_BYTES])
{
  if (!starts(at, "include")) return false;
  at += strlen("include");
  at += strspn(at, " \t");
  if (*at++ != '"') return false;
  size_t length = strcspn(at, "\"\n");
  if (at[length] != '"' || length >= NAME_BYTES) return false;
  memcpy(name, at, length);
  name[length] = 0;
  return true;
}

static bool is_whole(const expansion *e, const qn_source *source)
{
  for (size_t k = 0; k < e->n_whole; k++)
    if (e->whole[k] == source) return true;
  return false;
}

/* `hidden`: the text stands inside an #if. An #ifndef that comes first and holds to the end is the include guard, which
 * hides nothing. */
static qn_status expand(expansion *e, const char *name, const char *source, bool hidden, int nesting)
{
  char inner[NAME_BYTES];
  int depth = 0, guard = -1; /* -1: no directive yet */
  if (nesting > MOST_DEPTH)
    return qn_fail(QN_BAD_ARGUMENT, "%s: sources include each other more than %d deep", name, MOST_DEPTH);
  qn_text_add(e->text, "#line 1 \"%s\"\n", name);
  size_t number = 1;
  for (const char *line = source; *line; number++) {
    const char *word = directive(line);
    size_t length = strcspn(line, "\n");
    if (word && guard < 0) guard = starts(word, "ifndef");
    depth += starts(word, "if") - starts(word, "endif");
    if (word && depth == 0) guard = 0;
    if (included_name(word, inner)) {
      const qn_source *found = qn_source_find(inner);
      qn_require(found, "%s:%zu includes \"%s\", which is not among the embedded sources", name, number, inner);
      if (!is_whole(e, found)) {
        bool inner_hidden = hidden || depth > guard;
        if (!inner_hidden && e->n_whole < MOST_SOURCES) e->whole[e->n_whole++] = found;
        qn_try(expand(e, inner, found->text, inner_hidden, nesting + 1));
        qn_text_add(e->text, "#line %zu \"%s\"\n", number, name);
      }
      length = 0; /* its line stays, empty, so that the numbers of those behind it do */
    }
    qn_text_add_bytes(e->text, line, length);
    qn_text_add_bytes(e->text, "\n", 1);
    line += strcspn(line, "\n");
    line += *line == '\n';
  }
  return QN_OK;
}

qn_status qn_preprocess(const qn_unit *unit, qn_text *text)
{
  const char *source = unit->text;
  if (!source) {
    const qn_source *found = qn_source_find(unit->source);
    qn_require(found, "\"%s\" is not among the embedded sources", unit->source);
    source = found->text;
  }
  for (const char *const *define = unit->defines; define && *define; define++) {
    size_t length = strcspn(*define, "=");
    qn_text_add(text, "#define %.*s %s\n", (int)length, *define, (*define)[length] ? *define + length + 1 : "1");
  }
  qn_try(expand(&(expansion){.text = text}, unit->source, source, false, 0));
  return text->failed ? qn_fail(QN_NO_MEMORY, "%s: no memory for its text", unit->source) : QN_OK;
}

/* ---- a compiler's messages ---- */

/* The last line of `source` that a template was made from: gcc's and clang's "SOURCE:3:5:" at a line's beginning,
 * NVRTC's "at line 3 of SOURCE". 0: none. */
static int line_from(const char *said, const char *source)
{
  static const char before[] = "at line ", between[] = " of ";
  const size_t n = strlen(source);
  int line = 0, found;
  for (const char *at = said; (at = strstr(at, source)); at += n) {
    const char *digits = at;
    if ((at == said || at[-1] == '\n') && at[n] == ':' && sscanf(at + n + 1, "%d", &found) == 1) line = found;
    if (at - said < (ptrdiff_t)(sizeof before + sizeof between) || memcmp(at - 4, between, 4) || isalnum(at[n]))
      continue;
    for (digits -= 4; digits > said && isdigit((unsigned char)digits[-1]);) digits--;
    if (digits - said >= 8 && !memcmp(digits - 8, before, 8)) line = atoi(digits);
  }
  return line;
}

void qn_unit_error(const char *source, const char *said, const char *line, size_t length, char *text, size_t bytes)
{
  static const char words[] = "kernel/dialect/";
  const char *error = memmem(line, length, "error", 5);
  const int from = error && length > strlen(words) && !memcmp(line, words, strlen(words)) ? line_from(said, source) : 0;
  if (from)
    snprintf(text, bytes, "%s:%d: %.*s", source, from, (int)(length - (size_t)(error - line)), error);
  else
    snprintf(text, bytes, "%.*s", (int)length, line);
}
