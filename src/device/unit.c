/* SPDX-License-Identifier: Apache-2.0 */
/* unit.c - puts a unit's text together from the embedded sources. The same text is what the host's compiler gets and
 * what a kernel's key is made of, so nothing that a kernel can reach is missing from its key. It is no preprocessor:
 * an include inside a branch not taken is put in its place too, and include guards do the rest. */
#include "device/unit.h"
#include "core/source.h"
#include <string.h>

enum { MOST_DEPTH = 16, NAME_BYTES = 256 };

/* The name in a line `#include "name"`; false for any other line. */
static bool included_name(const char *line, size_t length, char name[NAME_BYTES])
{
  const char *at = line, *end = line + length;
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  if (at == end || *at++ != '#') return false;
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  if ((size_t)(end - at) < strlen("include") || memcmp(at, "include", strlen("include"))) return false;
  at += strlen("include");
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  if (at == end || *at++ != '"') return false;
  const char *close = memchr(at, '"', (size_t)(end - at));
  if (!close || close - at >= NAME_BYTES) return false;
  memcpy(name, at, (size_t)(close - at));
  name[close - at] = 0;
  return true;
}

static qn_status expand(const char *name, const char *source, int depth, qn_text *text)
{
  char inner[NAME_BYTES];
  size_t number = 1;
  if (depth > MOST_DEPTH)
    return qn_fail(QN_BAD_ARGUMENT, "%s: sources include each other more than %d deep", name, MOST_DEPTH);
  qn_text_add(text, "#line 1 \"%s\"\n", name);
  for (const char *line = source; *line; number++) {
    size_t length = strcspn(line, "\n");
    if (included_name(line, length, inner)) {
      const qn_source *found = qn_source_find(inner);
      qn_require(found, "%s:%zu includes \"%s\", which is not among the embedded sources", name, number, inner);
      qn_try(expand(inner, found->text, depth + 1, text));
      qn_text_add(text, "#line %zu \"%s\"\n", number + 1, name);
    } else {
      qn_text_add_bytes(text, line, length);
      qn_text_add_bytes(text, "\n", 1);
    }
    line += length + (line[length] == '\n');
  }
  return QN_OK;
}

qn_status qn_unit_expand(const qn_unit *unit, qn_text *text)
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
  qn_try(expand(unit->source, source, 0, text));
  return text->failed ? qn_fail(QN_NO_MEMORY, "%s: no memory for its text", unit->source) : QN_OK;
}
