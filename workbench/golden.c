/* SPDX-License-Identifier: Apache-2.0 */
/* golden.c - see golden.h. */
#include "workbench/golden.h"
#include "core/core.h"
#include "core/source.h"
#include "workbench/case.h"
#include <stdio.h>
#include <string.h>

extern const qn_source qn_golden_sources[]; /* made by the build; ends with name NULL */

bool qn_golden_open(qn_golden *g, const qn_op *op)
{
  char name[128];
  snprintf(name, sizeof name, "op/%s/golden/%s.txt", op->info.name, op->info.name);
  for (const qn_source *s = qn_golden_sources; s->name; s++) {
    if (strcmp(s->name, name)) continue;
    *g = (qn_golden){.next = s->text, .end = s->text + s->bytes};
    return true;
  }
  return false;
}

bool qn_golden_line(qn_golden *g)
{
  while (g->next < g->end) {
    const char *at = g->next, *stop = memchr(at, '\n', (size_t)(g->end - at));
    if (!stop) stop = g->end;
    g->next = stop < g->end ? stop + 1 : stop;
    g->line++;
    if (at == stop || *at == '#') continue;
    const char *space = memchr(at, ' ', (size_t)(stop - at));
    g->word = at;
    g->word_bytes = (size_t)((space ? space : stop) - at);
    g->rest = space ? space + 1 : stop;
    g->rest_bytes = (size_t)(stop - g->rest);
    return true;
  }
  return false;
}

bool qn_golden_is(const qn_golden *g, const char *word)
{
  return strlen(word) == g->word_bytes && !memcmp(word, g->word, g->word_bytes);
}

bool qn_golden_word(qn_golden *g, char *word, size_t bytes)
{
  while (g->rest_bytes && *g->rest == ' ') g->rest++, g->rest_bytes--;
  size_t n = 0;
  while (n < g->rest_bytes && g->rest[n] != ' ') n++;
  if (!n || n >= bytes) return false;
  memcpy(word, g->rest, n);
  word[n] = 0;
  g->rest += n;
  g->rest_bytes -= n;
  return true;
}

qn_status qn_golden_types(qn_golden *g, const qn_op_info *op, size_t *row)
{
  char name[128];
  qn_golden next = *g;
  *row = 0;
  if (!qn_golden_line(&next) || !qn_golden_is(&next, "types")) return QN_OK;
  *g = next;
  for (; *row < op->n_types; ++*row) {
    qn_row_name(op, *row, name, sizeof name);
    if (strlen(name) == g->rest_bytes && !memcmp(name, g->rest, g->rest_bytes)) return QN_OK;
  }
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: the op has no row with the types %.*s", op->name, g->line,
                 (int)g->rest_bytes, g->rest);
}
