/* SPDX-License-Identifier: Apache-2.0 */
/* balance.c - brackets of a kernel's body and header that have no partner. A compiler tells them at the end of the
 * generated text, which nobody has seen, or takes what follows for something else; here it is the line of the bracket
 * itself. Of a conditional the first branch counts, and macros may open and close what they like: where a text has
 * either, brackets are looked at only after a compiler has failed. */
#include "kernel/kernel.h"
#include <stdio.h>
#include <string.h>

enum { MOST_OPEN = 512 };

typedef struct open_brackets {
  size_t n, token[MOST_OPEN];
} open_brackets;

static char bracket(const qn_tokens *t, size_t k)
{
  const char c = t->token[k].kind == QN_TOKEN_MARK ? t->text[t->token[k].at] : 0;
  return c && strchr("(){}[]", c) ? c : 0;
}

static bool closes(char open, char close)
{
  return (open == '(' && close == ')') || (open == '[' && close == ']') || (open == '{' && close == '}');
}

/* The word of a preprocessor line. */
static bool directive_is(const qn_tokens *t, size_t k, const char *word)
{
  if (t->token[k].kind != QN_TOKEN_DIRECTIVE) return false;
  const char *at = t->text + t->token[k].at + 1;
  at += strspn(at, " \t");
  return !strncmp(at, word, strlen(word));
}

static bool is_conditional(const qn_tokens *t, size_t k)
{
  return directive_is(t, k, "if") || directive_is(t, k, "el") || directive_is(t, k, "endif");
}

static bool macro_balances(const qn_tokens *t, size_t k)
{
  int depth[3] = {0};
  for (uint32_t j = 0; j < t->token[k].length; j++) {
    const char c = t->text[t->token[k].at + j], *found = c ? strchr("()[]{}", c) : NULL;
    if (found) depth[(found - "()[]{}") / 2] += (found - "()[]{}") % 2 ? -1 : 1;
  }
  return !depth[0] && !depth[1] && !depth[2];
}

bool qn_brackets_are_plain(const qn_kernel *kernel)
{
  for (int which = 0; which < QN_KERNEL_TEXTS; which++) {
    const qn_tokens *t = &kernel->tokens[which];
    for (size_t k = 0; k < t->n; k++)
      if (t->token[k].kind == QN_TOKEN_DIRECTIVE && (is_conditional(t, k) || !macro_balances(t, k))) return false;
  }
  return true;
}

/* Behind the branches of a conditional other than the first, at its #endif. */
static size_t after_branches(const qn_tokens *t, size_t k)
{
  size_t depth = 1;
  while (++k < t->n && depth) {
    if (directive_is(t, k, "if")) depth++;
    if (directive_is(t, k, "endif")) depth--;
  }
  return k - 1;
}

static void place_of(const qn_tokens *t, size_t k, int *line, int *column)
{
  *line = *column = 1;
  for (const char *at = t->text; at < t->text + t->token[k].at; at++) {
    *column = *at == '\n' ? 1 : *column + 1;
    *line += *at == '\n';
  }
}

/* The bracket k has no partner; `other`: what stands at line `at` in its partner's place, or 0. */
static qn_status tell(const qn_kernel *kernel, int which, size_t k, char other, int at)
{
  const qn_tokens *t = &kernel->tokens[which];
  const char c = bracket(t, k);
  char more[64] = "";
  int line, column;
  place_of(t, k, &line, &column);
  if (other) snprintf(more, sizeof more, " before the %c of line %d", other, at);
  return qn_fail(QN_COMPILE_ERROR, "%s%s:%d:%d: error: this %c %s%s", kernel->source.file,
                 which == QN_KERNEL_HEADER ? " (header)" : "", line, column, c,
                 strchr(")]}", c) ? "closes nothing that the text opened"
                 : other          ? "is not closed"
                                  : "is never closed",
                 more);
}

static qn_status check_text(const qn_kernel *kernel, int which)
{
  const qn_tokens *t = &kernel->tokens[which];
  open_brackets open = {.n = 0};
  for (size_t k = 0; k < t->n; k++) {
    if (directive_is(t, k, "el")) k = after_branches(t, k);
    if (k >= t->n) break;
    const char c = bracket(t, k);
    if (!c) continue;
    if (c == '(' || c == '[' || c == '{') {
      if (open.n == MOST_OPEN) return QN_OK;
      open.token[open.n++] = k;
    } else if (!open.n) {
      return tell(kernel, which, k, 0, 0);
    } else if (closes(bracket(t, open.token[open.n - 1]), c)) {
      open.n--;
    } else {
      int line, column;
      place_of(t, k, &line, &column);
      return tell(kernel, which, open.token[open.n - 1], c, line);
    }
  }
  return open.n ? tell(kernel, which, open.token[open.n - 1], 0, 0) : QN_OK;
}

qn_status qn_brackets_check(const qn_kernel *kernel)
{
  qn_try(check_text(kernel, QN_KERNEL_HEADER));
  return check_text(kernel, QN_KERNEL_BODY);
}
