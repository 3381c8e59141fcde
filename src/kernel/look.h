/* SPDX-License-Identifier: Apache-2.0 */
/* look.h - looking round from a token: for what rewrites a kernel's text. t->n is: nothing there. */
#ifndef QN_KERNEL_LOOK_H
#define QN_KERNEL_LOOK_H
#include "kernel/kernel.h"
#include <string.h>

static inline size_t after(const qn_tokens *t, size_t k)
{
  while (++k < t->n && t->token[k].kind == QN_TOKEN_SPACE) {}
  return k < t->n ? k : t->n;
}

/* t->n where nothing is before. */
static inline size_t before(const qn_tokens *t, size_t k)
{
  while (k-- > 0)
    if (t->token[k].kind != QN_TOKEN_SPACE) return k;
  return t->n;
}

static inline bool is(const qn_tokens *t, size_t k, const char *text) { return k < t->n && qn_token_is(t, k, text); }

static inline bool is_word(const qn_tokens *t, size_t k) { return k < t->n && t->token[k].kind == QN_TOKEN_WORD; }

static inline bool is_one_of(const qn_tokens *t, size_t k, const char *const *words)
{
  for (; *words; words++)
    if (is(t, k, *words)) return true;
  return false;
}

/* Mark `b` stands right behind mark `a`. */
static inline bool are(const qn_tokens *t, size_t k, const char *a, const char *b)
{
  return is(t, k, a) && is(t, k + 1, b);
}

static inline char letter(const qn_tokens *t, size_t k)
{
  return k < t->n && t->token[k].kind == QN_TOKEN_MARK ? t->text[t->token[k].at] : 0;
}

/* The token that closes the bracket at k, or t->n. */
static inline size_t closing(const qn_tokens *t, size_t k)
{
  size_t depth = 0;
  for (; k < t->n; k++) {
    const char c = letter(t, k);
    if (c == '(' || c == '[' || c == '{') depth++;
    if ((c == ')' || c == ']' || c == '}') && --depth == 0) return k;
  }
  return t->n;
}

/* Behind template arguments that begin at k, which is a <. */
static inline size_t after_angles(const qn_tokens *t, size_t k)
{
  size_t depth = 0;
  for (; k < t->n; k++) {
    const char c = letter(t, k);
    if (c == '<') depth++;
    if (c == '>' && --depth == 0) return after(t, k);
    if (c == ';' || c == '{') break;
  }
  return t->n;
}
#endif
