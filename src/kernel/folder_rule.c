/* SPDX-License-Identifier: Apache-2.0 */
/* folder_rule.c - reads a rule of "fill": a word and its numbers. the workbench's kernel_fill.c makes the numbers. */
#include "core/core.h"
#include "kernel/folder.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct form {
  const char *word;
  qn_rule_kind kind;
  int least, most; /* numbers behind it */
  double a, b;     /* where they are missing */
  const char *shown;
} form;

static const form forms[] = {
    {"normal", QN_RULE_NORMAL, 0, 2, 1, 0, "normal [DEVIATION [MEAN]]"},
    {"uniform", QN_RULE_UNIFORM, 2, 2, 0, 1, "uniform FROM TO"},
    {"zeros", QN_RULE_VALUE, 0, 0, 0, 0, "zeros"},
    {"ones", QN_RULE_VALUE, 0, 0, 1, 0, "ones"},
    {"value", QN_RULE_VALUE, 1, 1, 0, 0, "value X"},
    {"index", QN_RULE_INDEX, 0, 0, 0, 0, "index"},
    {"below", QN_RULE_BELOW, 0, 0, 0, 0, "below EXPRESSION"},
    {"spd", QN_RULE_SPD, 0, 1, 1, 0, "spd [DIAGONAL]"},
    {"diagonal", QN_RULE_DIAGONAL, 0, 1, 4, 0, "diagonal [DIAGONAL]"},
    {"odd", QN_RULE_ODD, 0, 1, 1, 0, "odd [DEVIATION]"},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static qn_status no_such(const char *text, size_t length)
{
  const char *words[N_FORMS + 1] = {NULL};
  char word[32] = "";
  qn_text all = {0};
  memcpy(word, text, length < sizeof word ? length : sizeof word - 1);
  for (size_t k = 0; k < N_FORMS; k++) {
    words[k] = forms[k].word;
    qn_text_add(&all, "%s%s", k ? ", " : "", words[k]);
  }
  qn_status status = qn_fail(QN_BAD_ARGUMENT, "there is no rule \"%s\"%s (rules: %s)", word, qn_suggest(word, words),
                             all.at ? all.at : "");
  qn_text_free(&all);
  return status;
}

qn_status qn_rule_read(const char *text, qn_rule *rule)
{
  const char *at = text + strspn(text, " ");
  size_t length = strcspn(at, " ");
  const form *f = forms;
  while (f < forms + N_FORMS && (strlen(f->word) != length || strncmp(f->word, at, length))) f++;
  if (f == forms + N_FORMS) return no_such(at, length);
  *rule = (qn_rule){.kind = f->kind, .a = f->a, .b = f->b};
  at += length;
  at += strspn(at, " ");
  if (f->kind == QN_RULE_BELOW) {
    rule->expression = at;
    qn_require(*at, "\"%s\": it must be \"%s\"", text, f->shown);
    return QN_OK;
  }
  int n = 0;
  for (; *at; n++) {
    const char *end;
    double number = qn_text_real(at, &end);
    qn_require(end != at && (!*end || *end == ' ') && isfinite(number) && n < f->most, "\"%s\": it must be \"%s\"",
               text, f->shown);
    *(n ? &rule->b : &rule->a) = number;
    at = end + strspn(end, " ");
  }
  qn_require(n >= f->least, "\"%s\": it must be \"%s\"", text, f->shown);
  qn_require(f->kind != QN_RULE_UNIFORM || rule->a < rule->b, "\"%s\": FROM must be below TO", text);
  return QN_OK;
}
