/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.c - a kernel's text as a C++ compiler can read it with the words of words/: only what no macro can carry.
 * Metal: literals of floats, words of address spaces, swizzles, attributes, the dialect's own includes. CUDA: shared
 * memory whose size the launch says. Lines and the lines of tokens stay. It works on tokens and knows no types: whether
 * `.xy` is a swizzle it takes from the names of members that the text declares. */
#include "kernel/choice.h"
#include "kernel/look.h"

typedef struct rewriter {
  qn_dialect dialect;
  bool has_short;                   /* there are numbers of 16 bits */
  const qn_tokens *tokens, *beside; /* beside: text whose structs are seen too; or NULL */
  qn_text *text;
  bool outside;         /* the text begins outside of functions */
  size_t inner, parens; /* open braces that are no namespace's, and open parentheses */
  size_t namespaces;    /* open braces of namespaces, all outside of the inner ones */
  qn_choices choices;
} rewriter;

static size_t line_of(const qn_tokens *t, size_t k)
{
  size_t line = 1;
  for (uint32_t at = 0; k < t->n && at < t->token[k].at; at++) line += t->text[at] == '\n';
  return line;
}

/* ---- writing ---- */
static void copy(rewriter *r, size_t k)
{
  qn_text_add_bytes(r->text, r->tokens->text + r->tokens->token[k].at, r->tokens->token[k].length);
}

/* The newlines of tokens [k, end), and nothing else of them. */
static void blank(rewriter *r, size_t k, size_t end)
{
  for (; k < end; k++)
    for (uint32_t j = 0; j < r->tokens->token[k].length; j++)
      if (r->tokens->text[r->tokens->token[k].at + j] == '\n') qn_text_add_bytes(r->text, "\n", 1);
}

/* ---- literals: Metal's 0.1 and 0.1h are no doubles ---- */
static void add_number(rewriter *r, size_t k)
{
  const char *at = r->tokens->text + r->tokens->token[k].at;
  const size_t n = r->tokens->token[k].length;
  const bool hex = n > 1 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X');
  bool real = false, power = false;
  for (size_t j = 0; j < n; j++) {
    power |= hex ? at[j] == 'p' || at[j] == 'P' : at[j] == 'e' || at[j] == 'E';
    real |= at[j] == '.';
  }
  real |= power;
  const char last = at[n - 1];
  const bool brain = n > 2 && (last == 'f' || last == 'F') && (at[n - 2] == 'b' || at[n - 2] == 'B');
  if (brain && (!hex || power))
    qn_text_add(r->text, "bfloat(%.*sf)", (int)(n - 2), at);
  else if ((last == 'h' || last == 'H') && real)
    qn_text_add(r->text, "half(%.*sf)", (int)(n - 1), at);
  else if (real && (last == '.' || (last >= '0' && last <= '9')))
    qn_text_add(r->text, "%.*sf", (int)n, at);
  else
    copy(r, k);
}

/* ---- swizzles ---- */
static bool looks_like_swizzle(const qn_tokens *t, size_t k)
{
  const char *at = t->text + t->token[k].at;
  const size_t n = t->token[k].length;
  if (!is_word(t, k) || n < 2 || n > 4) return false;
  return strspn(at, "xyzw") >= n || strspn(at, "rgba") >= n;
}

static bool same_word(const qn_tokens *a, size_t j, const qn_tokens *b, size_t k)
{
  return a->token[j].length == b->token[k].length &&
         !memcmp(a->text + a->token[j].at, b->text + b->token[k].at, a->token[j].length);
}

/* Whether the text has a struct with such a member: the word stands in its braces where a declarator does. */
static bool declares_member(const qn_tokens *t, const qn_tokens *of, size_t word)
{
  static const char *const kinds[] = {"struct", "class", "union", NULL};
  for (size_t k = 0; k < t->n; k++) {
    if (t->token[k].kind != QN_TOKEN_WORD || !is_one_of(t, k, kinds)) continue;
    size_t open = k;
    while (open < t->n && !is(t, open, "{") && !is(t, open, ";") && !is(t, open, "(") && !is(t, open, ">")) open++;
    if (!is(t, open, "{")) continue;
    const size_t end = closing(t, open);
    for (size_t j = open + 1; j < end; j++) {
      const char next = letter(t, after(t, j));
      const size_t back = before(t, j);
      if (is_word(t, j) && same_word(t, j, of, word) && !is(t, back, ".") && !is(t, back - 1, "-") &&
          (next == ';' || next == ',' || next == '[' || next == '=' || next == ':' || next == '{'))
        return true;
    }
  }
  return false;
}

/* = or +=, not ==, behind token k. */
static bool is_assigned(const qn_tokens *t, size_t k)
{
  k = after(t, k);
  const char c = letter(t, k);
  if (c == '=') return letter(t, k + 1) != '=';
  if (c && strchr("+-*/%&|^", c)) return letter(t, k + 1) == '=';
  return (c == '<' || c == '>') && letter(t, k + 1) == c && letter(t, k + 2) == '=';
}

static bool add_swizzle(rewriter *r, size_t k)
{
  const qn_tokens *t = r->tokens;
  const size_t back = before(t, k);
  const bool member = is(t, back, ".") || (back > 0 && back < t->n && are(t, back - 1, "-", ">"));
  if (!member || !looks_like_swizzle(t, k) || is(t, after(t, k), "(")) return false;
  if (declares_member(t, t, k) || (r->beside && declares_member(r->beside, t, k))) return false;
  qn_text_add(r->text, "%s(qn_swizzle<", is_assigned(t, k) ? "qn_set" : "qn_get");
  for (uint32_t j = 0; j < t->token[k].length; j++) {
    const char c = t->text[t->token[k].at + j];
    qn_text_add(r->text, "%s%d", j ? ", " : "",
                c == 'x' || c == 'r'   ? 0
                : c == 'y' || c == 'g' ? 1
                : c == 'w' || c == 'a' ? 3
                                       : 2);
  }
  qn_text_add(r->text, ">())");
  return true;
}

/* ---- address spaces ---- */

/* The declaration from token k on, behind specifiers, is an object: no pointer or reference to it, no function,
 * no type in a cast. */
static bool declares_thing(const qn_tokens *t, size_t k)
{
  bool named = false;
  for (; k < t->n;) {
    const char c = letter(t, k);
    if (c == '<') {
      k = after_angles(t, k);
      continue;
    }
    if (c == '(') { /* alignas(16) */
      const size_t back = before(t, k);
      if (!is(t, back, "alignas") && !is(t, back, "__attribute__")) return false;
      k = after(t, closing(t, k));
      continue;
    }
    if (c == '[' && is(t, k + 1, "[")) {
      k = after(t, closing(t, k));
      continue;
    }
    if (c == '*' || c == '&' || c == ')' || c == '>') return false;
    if (c == ';' || c == '=' || c == ',' || c == '[' || c == '{') return named;
    named |= is_word(t, k);
    k = after(t, k);
  }
  return false;
}

/* `constant float table[] = ...` outside of functions, with the specifiers round it. How many tokens it took; 0: no. */
static size_t add_constant(rewriter *r, size_t k)
{
  static const char *const specifiers[] = {"const", "constexpr", "static", "inline", "constant", NULL};
  const qn_tokens *t = r->tokens;
  size_t end = k, last = k;
  bool constant = false;
  if (!r->outside || r->inner || r->parens) return 0;
  for (; end < t->n && is_word(t, end) && is_one_of(t, end, specifiers); last = end, end = after(t, end))
    constant |= is(t, end, "constant");
  if (!constant || !declares_thing(t, end)) return 0;
  qn_text_add(r->text, "QN_CONSTANT");
  blank(r, k, last);
  return last + 1 - k;
}

static bool add_space_word(rewriter *r, size_t k)
{
  static const char *const dropped[] = {"device", "thread", "constant", "threadgroup", NULL};
  static const char *const constants[] = {"const", "constexpr", NULL};
  if (!is_one_of(r->tokens, k, dropped)) return false;
  if (is(r->tokens, k, "constant") && !is_one_of(r->tokens, before(r->tokens, k), constants) &&
      !is_one_of(r->tokens, after(r->tokens, k), constants))
    qn_text_add(r->text, "const"); /* the target of a pointer into that space */
  if (is(r->tokens, k, "threadgroup") && !r->parens && declares_thing(r->tokens, after(r->tokens, k)))
    qn_text_add(r->text, "QN_THREADGROUP");
  return true;
}

/* ---- preprocessor lines ---- */
static bool starts(const char *text, const char *word) { return !strncmp(text, word, strlen(word)); }

/* Headers whose words are there without them. */
static bool is_own_header(qn_dialect dialect, const char *name)
{
  static const char *const metal[] = {"metal_", "simd/", "mlx/", NULL};
  static const char *const cuda[] = {
      "cuda", "cooperative_groups", "device_launch_parameters", "vector_types", "mlx/", "mma.h", "sm_", NULL};
  static const char *const both[] = {"stdint.h", "cstdint",  "math.h",  "cmath",   "stddef.h",
                                     "cstddef",  "limits.h", "climits", "float.h", "cfloat",
                                     "assert.h", "cassert",  "stdio.h", "cstdio",  NULL};
  for (const char *const *h = dialect == QN_DIALECT_METAL ? metal : cuda; *h; h++)
    if (starts(name, *h)) return true;
  for (const char *const *h = both; *h; h++)
    if (starts(name, *h) && strcspn(name, ">\"") == strlen(*h)) return true;
  return false;
}

static qn_status rewrite_piece(rewriter *r, const char *piece, size_t n);

static qn_status add_directive(rewriter *r, size_t k)
{
  const char *at = r->tokens->text + r->tokens->token[k].at, *word = at + 1;
  const size_t n = r->tokens->token[k].length;
  word += strspn(word, " \t");
  if (starts(word, "include") || starts(word, "import")) {
    const char *name = word + strcspn(word, " \t<\"");
    name += strspn(name, " \t<\"");
    if (!is_own_header(r->dialect, name))
      return qn_fail(QN_BAD_ARGUMENT, "line %zu: %.*s: a kernel's text includes nothing but its dialect's own headers",
                     line_of(r->tokens, k), (int)n, at);
    blank(r, k, k + 1);
    return QN_OK;
  }
  if (starts(word, "pragma METAL")) {
    blank(r, k, k + 1);
    return QN_OK;
  }
  if (!starts(word, "define") || r->dialect != QN_DIALECT_METAL) {
    copy(r, k);
    return QN_OK;
  }
  word += strlen("define");
  word += strspn(word, " \t");
  word += strcspn(word, " \t\n(\\");
  if (*word == '(' && strchr(word, ')')) word = strchr(word, ')') + 1;
  if (word > at + n) word = at + n;
  qn_text_add_bytes(r->text, at, (size_t)(word - at));
  return rewrite_piece(r, word, n - (size_t)(word - at));
}

/* ---- CUDA: extern __shared__ alignas(16) float s[]; ---- */
static qn_status add_shared_tail(rewriter *r, size_t k, size_t *last)
{
  static const char *const aligns[] = {"alignas", "__align__", "__attribute__", NULL};
  const qn_tokens *t = r->tokens;
  size_t open = k, align[2] = {0, 0};
  while (open < t->n && !is(t, open, "[") && !is(t, open, ";")) open++;
  const size_t name = open < t->n ? before(t, open) : t->n, close = after(t, open);
  *last = close;
  if (!is(t, open, "[") || !is(t, close, "]") || !is(t, after(t, close), ";") || !is_word(t, name))
    return qn_fail(QN_UNSUPPORTED, "line %zu: extern __shared__ is taken as an array of one dimension, `type name[]`",
                   line_of(t, k));
  qn_text_add(r->text, "%s(%.*s, ", r->outside && !r->inner ? "QN_SHARED_TAIL_OUTSIDE" : "QN_SHARED_TAIL",
              (int)t->token[name].length, t->text + t->token[name].at);
  for (size_t j = k; j < name; j++)
    if (is_word(t, j) && is_one_of(t, j, aligns)) {
      align[0] = j, align[1] = closing(t, after(t, j)) + 1;
      for (size_t i = j; i < align[1] && i < name; i++) copy(r, i);
      j = align[1];
    }
  qn_text_add(r->text, ",");
  for (size_t j = after(t, k); j < name; j++)
    if (!(j >= align[0] && j < align[1]) && !is(t, j, "__shared__") && t->token[j].kind != QN_TOKEN_SPACE) {
      qn_text_add(r->text, " ");
      copy(r, j);
    }
  qn_text_add(r->text, ")");
  blank(r, k, close + 1);
  return QN_OK;
}

static bool begins_shared_tail(const qn_tokens *t, size_t k)
{
  if (!is(t, k, "extern")) return false;
  for (size_t j = after(t, k); j < t->n && !is(t, j, ";") && !is(t, j, "{"); j++)
    if (is(t, j, "__shared__")) return true;
  return false;
}

/* ---- the walk ---- */

/* A namespace's brace, or extern "C"'s, keeps what is in it outside of functions. */
static bool opens_namespace(const qn_tokens *t, size_t k)
{
  size_t back = before(t, k);
  while (back < t->n && (is_word(t, back) || is(t, back, "::")) && !is(t, back, "namespace")) back = before(t, back);
  if (is(t, back, "namespace")) return true;
  return back < t->n && t->token[back].kind == QN_TOKEN_TEXT && is(t, before(t, back), "extern");
}

static void count_brackets(rewriter *r, size_t k)
{
  const char c = letter(r->tokens, k);
  if (c == '(') r->parens++;
  if (c == ')' && r->parens) r->parens--;
  if (c == '{' && !r->inner && opens_namespace(r->tokens, k))
    r->namespaces++;
  else if (c == '{')
    r->inner++;
  if (c == '}' && r->inner)
    r->inner--;
  else if (c == '}' && r->namespaces)
    r->namespaces--;
}

/* The last token of what is left out at k, or t->n: an attribute, `using namespace metal;`. */
static size_t left_out(const qn_tokens *t, size_t k)
{
  if (are(t, k, "[", "[")) return closing(t, k);
  if (!is(t, k, "using")) return t->n;
  const size_t space = after(t, k), name = after(t, space), end = after(t, name);
  return is(t, space, "namespace") && is(t, name, "metal") && is(t, end, ";") ? end : t->n;
}

/* One token or more; *k is the last of them. */
static qn_status step_metal(rewriter *r, size_t *k)
{
  const qn_tokens *t = r->tokens;
  const size_t end = left_out(t, *k);
  if (end < t->n) {
    blank(r, *k, end + 1);
    *k = end;
    return QN_OK;
  }
  if (t->token[*k].kind == QN_TOKEN_NUMBER) {
    add_number(r, *k);
    return QN_OK;
  }
  if (t->token[*k].kind == QN_TOKEN_WORD) {
    const size_t taken = add_constant(r, *k);
    if (taken) *k += taken - 1;
    if (taken || add_swizzle(r, *k) || add_space_word(r, *k)) return QN_OK;
  }
  copy(r, *k);
  return QN_OK;
}

static qn_status step_cuda(rewriter *r, size_t *k)
{
  const qn_tokens *t = r->tokens;
  if (begins_shared_tail(t, *k)) return add_shared_tail(r, *k, k);
  if (is(t, *k, "static") && is(t, after(t, *k), "__shared__")) return QN_OK; /* __shared__ says it */
  copy(r, *k);
  return QN_OK;
}

static qn_status rewrite(rewriter *r, bool macro)
{
  qn_choices_begin(&r->choices, r->tokens, macro);
  for (size_t k = 0; k < r->tokens->n; k++) {
    count_brackets(r, k);
    if (r->has_short && qn_choices_step(&r->choices, r->tokens, k, r->text)) continue;
    if (r->tokens->token[k].kind == QN_TOKEN_DIRECTIVE)
      qn_try(add_directive(r, k));
    else if (r->dialect == QN_DIALECT_METAL)
      qn_try(step_metal(r, &k));
    else
      qn_try(step_cuda(r, &k));
  }
  return r->text->failed ? qn_fail(QN_NO_MEMORY, "no memory for a kernel's text") : QN_OK;
}

/* The expansion of a macro. */
static qn_status rewrite_piece(rewriter *r, const char *piece, size_t n)
{
  qn_tokens tokens;
  qn_text copied = {0};
  qn_text_add_bytes(&copied, piece, n);
  if (copied.failed || !copied.at) {
    qn_text_free(&copied);
    return n ? qn_fail(QN_NO_MEMORY, "no memory for %zu bytes of a macro", n) : QN_OK;
  }
  qn_status status = qn_tokens_make(copied.at, &tokens);
  if (status == QN_OK) {
    rewriter inside = {
        .dialect = r->dialect, .has_short = r->has_short, .tokens = &tokens, .beside = r->tokens, .text = r->text};
    status = rewrite(&inside, true);
    qn_tokens_free(&tokens);
  }
  qn_text_free(&copied);
  return status;
}

qn_status qn_rewrite(const qn_rewriting *how, const qn_tokens *tokens, const qn_tokens *beside, qn_text *text)
{
  rewriter r = {.dialect = how->dialect,
                .has_short = how->has_short,
                .tokens = tokens,
                .beside = beside,
                .text = text,
                .outside = how->header};
  qn_try(qn_text_is_closed(tokens->text));
  return rewrite(&r, false);
}
