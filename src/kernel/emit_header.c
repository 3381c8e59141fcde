/* SPDX-License-Identifier: Apache-2.0 */
/* emit_header.c - what compilers want said of every function, said in emitted text. A launch compiles with a compiler
 * that takes every function for the GPU's; nvcc and hipcc want it written at each. Metal wants to know where every
 * pointer points: a parameter that does not say it is the thread's own. It reads declarations by their tokens:
 * what has parentheses before any = is a function; structs and namespaces are looked into, bodies are not. */
#include "kernel/emit.h"

typedef struct reader {
  const qn_tokens *tokens;
  qn_text *text;
  size_t at; /* the text before it has been written */
} reader;

/* A declaration: what it is, and where it ends: at its ; or its {, or the last token. */
typedef struct declaration {
  size_t begin, end; /* begin: behind template <...> */
  size_t open;       /* a function's ( */
  bool function, scope, block;
} declaration;

static bool is(const reader *r, size_t k, const char *word)
{
  return k < r->tokens->n && qn_token_is(r->tokens, k, word);
}

static bool is_any(const reader *r, size_t k, const char *const *words)
{
  for (; *words; words++)
    if (is(r, k, *words)) return true;
  return false;
}

static bool is_blank(const reader *r, size_t k)
{
  return r->tokens->token[k].kind == QN_TOKEN_SPACE || r->tokens->token[k].kind == QN_TOKEN_DIRECTIVE;
}

static size_t next(const reader *r, size_t k)
{
  while (++k < r->tokens->n && is_blank(r, k)) {}
  return k;
}

/* Writes the tokens before k. */
static void write_to(reader *r, size_t k)
{
  for (; r->at < k && r->at < r->tokens->n; r->at++)
    qn_text_add_bytes(r->text, r->tokens->text + r->tokens->token[r->at].at, r->tokens->token[r->at].length);
}

/* The token that closes the bracket at k, or the last. */
static size_t closing(const reader *r, size_t k)
{
  static const char *const opening[] = {"(", "[", "{", NULL}, *const ending[] = {")", "]", "}", NULL};
  for (size_t depth = 0; k < r->tokens->n; k++) {
    if (is_any(r, k, opening)) depth++;
    if (is_any(r, k, ending) && --depth == 0) return k;
  }
  return r->tokens->n ? r->tokens->n - 1 : 0;
}

static size_t behind_template(const reader *r, size_t k)
{
  while (is(r, k, "template")) {
    size_t depth = 0;
    for (k = next(r, k); k < r->tokens->n; k = next(r, k)) {
      if (is(r, k, "<")) depth++;
      if (is(r, k, ">") && --depth == 0) break;
    }
    k = next(r, k);
  }
  return k;
}

static declaration read_declaration(const reader *r, size_t k)
{
  static const char *const none[] = {"typedef",  "using",      "static_assert", "enum", "__device__",
                                     "__host__", "__global__", "QN_DEVICE",     NULL};
  static const char *const scopes[] = {"namespace", "struct", "class", "union", "extern", NULL};
  static const char *const no_function[] = {"alignas", "__attribute__", "decltype", NULL};
  declaration d = {.begin = behind_template(r, k)};
  bool value = false, other = false;
  size_t before = d.begin;
  d.scope = is_any(r, d.begin, scopes);
  for (k = d.begin; k < r->tokens->n; before = k, k = next(r, k)) {
    if (is(r, k, ";") || is(r, k, "{")) break;
    other |= is_any(r, k, none);
    if (is(r, k, "operator")) {
      while (k < r->tokens->n && !is(r, k, "(")) k = next(r, k);
      d.function = true;
    }
    value |= is(r, k, "=");
    if (!is(r, k, "(") && !is(r, k, "[")) continue;
    if (is(r, k, "(") && !value && !is_any(r, before, no_function)) {
      if (!d.open) d.open = k;
      d.function = true;
    }
    k = closing(r, k);
  }
  d.end = k;
  d.block = is(r, k, "{");
  d.function &= !other;
  d.scope &= d.block && !d.function && !value && !other;
  return d;
}

/* The parameters between the parentheses from k on: pointers, references and arrays that say no place. */
static void mark_parameters(reader *r, size_t k)
{
  static const char *const places[] = {"device", "thread", "constant", "threadgroup", "QN_FAR", NULL};
  static const char *const indirect[] = {"*", "&", "[", NULL};
  const size_t end = closing(r, k);
  for (size_t begin = next(r, k); begin < end; begin = next(r, k)) {
    bool points = false, says = false;
    size_t depth = 0;
    for (k = begin; k < end && (depth || !is(r, k, ",")); k = next(r, k)) {
      depth += is(r, k, "<");
      depth -= depth && is(r, k, ">");
      points |= is_any(r, k, indirect);
      says |= is_any(r, k, places);
    }
    write_to(r, begin);
    if (points && !says) qn_text_add(r->text, "thread ");
  }
}

static qn_status mark(const qn_tokens *tokens, bool parameters, qn_text *text)
{
  reader r = {tokens, text, 0};
  static const char *const ends[] = {"}", ";", ",", ":", NULL}, *const access[] = {"public", "private", "protected",
                                                                                   NULL};
  for (size_t k = tokens->n && is_blank(&r, 0) ? next(&r, 0) : 0; k < tokens->n; k = next(&r, k)) {
    if (is_any(&r, k, ends) || is_any(&r, k, access)) continue;
    if (is(&r, k, "{")) { /* a body behind a list of members */
      k = closing(&r, k);
      continue;
    }
    const declaration d = read_declaration(&r, k);
    write_to(&r, d.begin);
    if (d.function && !parameters) qn_text_add(text, "QN_DEVICE ");
    if (d.function && parameters && d.open) mark_parameters(&r, d.open);
    k = d.block && !d.scope ? closing(&r, d.end) : d.end;
  }
  write_to(&r, tokens->n);
  return text->failed ? qn_fail(QN_NO_MEMORY, "no memory for a header") : QN_OK;
}

qn_status qn_emit_mark_functions(const qn_tokens *tokens, qn_text *text) { return mark(tokens, false, text); }

qn_status qn_emit_mark_parameters(const qn_tokens *tokens, qn_text *text) { return mark(tokens, true, text); }
