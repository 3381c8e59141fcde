/* SPDX-License-Identifier: Apache-2.0 */
/* golden.c - see golden.h. Names of params and roles are looked up in the op's description, so the file can say nothing
 * that the op does not have. */
#include "workbench/golden.h"
#include "core/core.h"
#include "core/source.h"
#include <stdio.h>
#include <stdlib.h>
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

/* ---- params ---- */

static bool enum_value(const qn_op_param *param, const char *text, double *value)
{
  size_t k = 0, n = strlen(text);
  for (const char *at = param->values; at; k++) {
    if (strcspn(at, "|") == n && !memcmp(at, text, n)) {
      *value = (double)k;
      return true;
    }
    at = strchr(at, '|');
    if (at) at++;
  }
  return false;
}

qn_status qn_golden_parse(const qn_op_info *op, const char *name, const char *text, size_t *param, double *value,
                          uint64_t *wide)
{
  char *end = NULL;
  for (size_t k = 0; k < op->n_params; k++) {
    if (strcmp(op->params[k].name, name)) continue;
    *param = k;
    *wide = strtoull(text, NULL, 10);
    if (op->params[k].type == QN_PARAM_ENUM && enum_value(&op->params[k], text, value)) return QN_OK;
    *value = strtod(text, &end);
    if (end == text || *end)
      return qn_fail(QN_BAD_FILE, "%s golden vectors: %s is no value of %s", op->name, text, name);
    return QN_OK;
  }
  return qn_fail(QN_BAD_FILE, "%s golden vectors: %s is none of the op's params", op->name, name);
}

qn_status qn_golden_value(qn_golden *g, const qn_op_info *op, size_t *param, double *value)
{
  char name[64], text[64];
  uint64_t wide;
  if (!qn_golden_word(g, name, sizeof name) || !qn_golden_word(g, text, sizeof text))
    return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: a name and a value are expected", op->name, g->line);
  return qn_golden_parse(op, name, text, param, value, &wide);
}

static qn_status read_set(qn_golden *g, const qn_op_info *op, qn_setting *s)
{
  char name[64], text[64];
  size_t k;
  double value;
  uint64_t wide;
  if (!qn_golden_word(g, name, sizeof name) || !qn_golden_word(g, text, sizeof text))
    return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: a name and a value are expected", op->name, g->line);
  qn_try(qn_golden_parse(op, name, text, &k, &value, &wide));
  if (op->params[k].type == QN_PARAM_DEVICE_F32) {
    s->given |= 1u << k;
    s->scalar[k] = (float)value;
  } else if (op->params[k].type == QN_PARAM_U64) {
    qn_param_set_u64(&op->params[k], s->params, wide);
  } else {
    qn_param_set(&op->params[k], s->params, value);
  }
  return QN_OK;
}

static qn_status read_given(qn_golden *g, const qn_op_info *op, qn_golden_case *c)
{
  char name[64], text[64];
  size_t n = 0;
  if (!qn_golden_word(g, name, sizeof name))
    return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: a name is expected", op->name, g->line);
  for (size_t k = 0; k < op->n_params; k++) {
    if (strcmp(op->params[k].name, name)) continue;
    c->setting.given |= 1u << k;
    while (n < 2 * QN_GOLDEN_TENSORS && qn_golden_word(g, text, sizeof text)) {
      c->arrays[k][n++] = strtoull(text, NULL, 10);
      c->setting.array[k] = c->arrays[k];
    }
    return QN_OK;
  }
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: %s is none of the op's params", op->name, g->line, name);
}

/* ---- cases ---- */

static qn_status read_types(const qn_golden *g, const qn_op_info *op, qn_golden_case *c)
{
  char name[128];
  for (c->row = 0; c->row < op->n_types; c->row++) {
    qn_row_name(op, c->row, name, sizeof name);
    if (strlen(name) == g->rest_bytes && !memcmp(name, g->rest, g->rest_bytes)) return QN_OK;
  }
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: the op has no row with the types %.*s", op->name, g->line,
                 (int)g->rest_bytes, g->rest);
}

static qn_status read_header(qn_golden *g, const qn_op_info *op, qn_golden_case *c)
{
  char text[64];
  for (;;) {
    c->start = *g; /* so that the first `start` line is read again */
    if (!qn_golden_line(g)) return qn_fail(QN_BAD_FILE, "%s golden vectors: case %s has no end", op->name, c->name);
    if (qn_golden_is(g, "start")) return QN_OK;
    if (qn_golden_is(g, "types"))
      qn_try(read_types(g, op, c));
    else if (qn_golden_is(g, "elements"))
      while (c->n < QN_GOLDEN_TENSORS && qn_golden_word(g, text, sizeof text))
        c->elements[c->n++] = (size_t)strtoull(text, NULL, 10);
    else if (qn_golden_is(g, "set") || qn_golden_is(g, "scalar"))
      qn_try(read_set(g, op, &c->setting));
    else if (qn_golden_is(g, "given") || qn_golden_is(g, "array"))
      qn_try(read_given(g, op, c));
    else
      return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: %.*s is not understood", op->name, g->line,
                     (int)g->word_bytes, g->word);
  }
}

bool qn_golden_next(qn_golden *g, const qn_op_info *op, qn_golden_case *c, qn_status *status)
{
  while (qn_golden_line(g)) {
    if (!qn_golden_is(g, "case")) continue;
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "%.*s", (int)g->rest_bytes, g->rest);
    *status = qn_op_defaults(op, c->setting.params, op->params_bytes);
    if (*status == QN_OK) *status = read_header(g, op, c);
    return *status == QN_OK;
  }
  *status = QN_OK;
  return false;
}
