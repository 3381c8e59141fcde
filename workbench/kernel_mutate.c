/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_mutate.c - see kernel_mutate.h. Works on whole tokens, understands no C++: a change that does not compile is
 * thrown away later. */
#include "workbench/kernel_mutate.h"
#include "core/core.h"
#include "kernel/kernel.h"
#include <string.h>

typedef struct maker {
  const char *text;
  qn_tokens tokens;
  qn_mutations *made;
  bool failed;
} maker;

static int line_at(const char *text, size_t at)
{
  int line = 1;
  for (size_t k = 0; k < at; k++) line += text[k] == '\n';
  return line;
}

static bool is_exempt(const char *text, size_t at)
{
  static const char mark[] = "quern: equivalent";
  size_t begin = at, end = at;
  while (begin && text[begin - 1] != '\n') begin--;
  while (text[end] && text[end] != '\n') end++;
  return memmem(text + begin, end - begin, mark, sizeof mark - 1) != NULL;
}

/* [from, to) becomes "before", what stood there if `keep`, "behind". */
static void plant(maker *m, const char *what, size_t from, size_t to, const char *before, bool keep, const char *behind)
{
  qn_text text = {0};
  if (is_exempt(m->text, from)) return;
  qn_text_add_bytes(&text, m->text, from);
  qn_text_add(&text, "%s", before);
  if (keep) qn_text_add_bytes(&text, m->text + from, to - from);
  qn_text_add(&text, "%s%s", behind, m->text + to);
  qn_mutation *more = text.failed ? NULL : qn_reallocate(m->made->at, (m->made->n + 1) * sizeof *more);
  if (!more) {
    qn_text_free(&text);
    m->failed = true;
    return;
  }
  m->made->at = more;
  more[m->made->n++] = (qn_mutation){what, line_at(m->text, from), text.at};
}

/* ---- neighbours that are no space ---- */
static size_t before(const qn_tokens *t, size_t k)
{
  while (k-- > 0)
    if (t->token[k].kind != QN_TOKEN_SPACE) return k;
  return SIZE_MAX;
}

static size_t behind(const qn_tokens *t, size_t k)
{
  while (++k < t->n)
    if (t->token[k].kind != QN_TOKEN_SPACE) return k;
  return SIZE_MAX;
}

static bool is_mark(const qn_tokens *t, size_t k, const char *mark) { return k < t->n && qn_token_is(t, k, mark); }
static bool touches(const qn_tokens *t, size_t k) { return k + 1 < t->n && t->token[k + 1].kind == QN_TOKEN_MARK; }
static bool touched(const qn_tokens *t, size_t k) { return k > 0 && t->token[k - 1].kind == QN_TOKEN_MARK; }

/* Whether what stands before can be the left side of an operator. */
static bool is_operand(const qn_tokens *t, size_t k)
{
  if (k >= t->n) return false;
  const qn_token_kind kind = t->token[k].kind;
  return (kind == QN_TOKEN_WORD && !qn_token_is(t, k, "return")) || kind == QN_TOKEN_NUMBER || is_mark(t, k, ")") ||
         is_mark(t, k, "]");
}

/* "float t[32]": the name before [ has a word before it. */
static bool declares(const qn_tokens *t, size_t bracket)
{
  size_t name = before(t, bracket);
  while (is_mark(t, name, "]")) { /* the second of t[32][33] */
    int depth = 0;
    do depth += is_mark(t, name, "]") - is_mark(t, name, "[");
    while (depth && name--);
    name = before(t, name);
  }
  size_t type = name < t->n ? before(t, name) : SIZE_MAX;
  return type < t->n &&
         ((t->token[type].kind == QN_TOKEN_WORD && !qn_token_is(t, type, "return")) || is_mark(t, type, ">"));
}

/* ---- kinds of bugs ---- */
static void plant_index(maker *m, size_t k)
{
  const qn_tokens *t = &m->tokens;
  int depth = 0;
  if (declares(t, k) || !is_operand(t, before(t, k))) return;
  for (size_t end = k; end < t->n; end++) {
    depth += is_mark(t, end, "[") - is_mark(t, end, "]");
    if (depth) continue;
    const size_t from = t->token[k].at + 1, to = t->token[end].at;
    plant(m, "an index one too high", from, to, "(", true, ") + 1");
    return;
  }
}

static void plant_mark(maker *m, size_t k)
{
  static const struct {
    const char *mark, *instead, *what;
  } arithmetic[] = {{"+", "-", "minus for plus"},
                    {"-", "+", "plus for minus"},
                    {"*", "+", "plus for times"},
                    {"/", "*", "times for over"},
                    {"%", "/", "over for modulo"}};
  const qn_tokens *t = &m->tokens;
  const size_t at = t->token[k].at, left = before(t, k);
  if (is_mark(t, k, "[")) plant_index(m, k);
  if ((is_mark(t, k, "<") || is_mark(t, k, ">")) && at && m->text[at - 1] == ' ') {
    if (m->text[at + 1] == ' ') plant(m, "a bound one off", at, at + 1, "", true, "=");
    if (m->text[at + 1] == '=') plant(m, "a bound one off", at + 1, at + 2, "", false, " ");
  }
  if (touched(t, k) && !is_mark(t, k - 1, ")") && !is_mark(t, k - 1, "]")) return;
  for (size_t a = 0; a < sizeof arithmetic / sizeof *arithmetic; a++) {
    if (!is_mark(t, k, arithmetic[a].mark)) continue;
    if (!is_operand(t, left)) {
      if (is_mark(t, k, "-") && !touches(t, k)) plant(m, "a sign dropped", at, at + 1, "", false, " ");
      continue;
    }
    if (touches(t, k) && !is_mark(t, k + 1, "(") && !(is_mark(t, k + 1, "=") && m->text[at] != '/')) continue;
    plant(m, arithmetic[a].what, at, at + 1, arithmetic[a].instead, false, "");
  }
}

static void plant_word(maker *m, size_t k)
{
  static const char *const barriers[] = {"threadgroup_barrier", "simdgroup_barrier", "__syncthreads", "__syncwarp"};
  static const struct {
    const char *word, *instead;
  } words[] = {{"simd_sum", "simd_max"}, {"simd_max", "simd_min"}, {"simd_min", "simd_max"}, {"min", "max"},
               {"max", "min"},           {"true", "false"},        {"false", "true"}};
  const qn_tokens *t = &m->tokens;
  const size_t at = t->token[k].at, length = t->token[k].length;
  for (size_t b = 0; b < sizeof barriers / sizeof *barriers; b++) {
    size_t open = behind(t, k), close = open;
    if (!qn_token_is(t, k, barriers[b]) || !is_mark(t, open, "(")) continue;
    for (int depth = 0; close < t->n; close++) {
      depth += is_mark(t, close, "(") - is_mark(t, close, ")");
      if (!depth) break;
    }
    if (close < t->n) plant(m, "a barrier left out", at, t->token[close].at + 1, "", false, "");
  }
  for (size_t w = 0; w < sizeof words / sizeof *words; w++)
    if (qn_token_is(t, k, words[w].word)) plant(m, "another function", at, at + length, words[w].instead, false, "");
}

static void plant_number(maker *m, size_t k)
{
  const qn_tokens *t = &m->tokens;
  size_t left = before(t, k);
  while (left < t->n && !is_mark(t, left, "[") &&
         (t->token[left].kind != QN_TOKEN_MARK || is_mark(t, left, "+") || is_mark(t, left, "*")))
    left = before(t, left);
  if (is_mark(t, left, "[") && declares(t, left)) return; /* more room than is needed is no bug */
  plant(m, "a number one too high", t->token[k].at, t->token[k].at + t->token[k].length, "(", true, " + 1)");
}

qn_status qn_mutations_make(const char *text, qn_mutations *mutations)
{
  maker m = {.text = text, .made = mutations};
  *mutations = (qn_mutations){0};
  qn_try(qn_tokens_make(text, &m.tokens));
  for (size_t k = 0; k < m.tokens.n && !m.failed; k++) {
    switch (m.tokens.token[k].kind) {
    case QN_TOKEN_MARK: plant_mark(&m, k); break;
    case QN_TOKEN_WORD: plant_word(&m, k); break;
    case QN_TOKEN_NUMBER: plant_number(&m, k); break;
    default: break;
    }
  }
  qn_tokens_free(&m.tokens);
  if (!m.failed) return QN_OK;
  qn_mutations_free(mutations);
  return qn_fail(QN_NO_MEMORY, "bugs to plant");
}

void qn_mutations_free(qn_mutations *mutations)
{
  for (size_t k = 0; k < mutations->n; k++) qn_release(mutations->at[k].text);
  qn_release(mutations->at);
  *mutations = (qn_mutations){0};
}
