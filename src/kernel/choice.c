/* SPDX-License-Identifier: Apache-2.0 */
/* choice.c - finds the choices `c ? a : b` of a text by its tokens: where each condition begins, and which : is whose.
 */
#include "kernel/choice.h"
#include "kernel/look.h"

static void begin(qn_choice_level *level, bool value)
{
  level->fresh = true;
  level->value = value;
}

void qn_choices_begin(qn_choices *choices, const qn_tokens *tokens, bool macro)
{
  const char last = letter(tokens, before(tokens, tokens->n));
  choices->depth = choices->plain_until = 0;
  choices->level[0] = (qn_choice_level){.block = !macro || last == ';' || last == '}'};
  begin(&choices->level[0], !choices->level[0].block);
}

/* = or +=, not == or <=, at a =. */
static bool assigns(const qn_tokens *t, size_t k)
{
  const char back = k ? letter(t, k - 1) : 0;
  if (letter(t, k + 1) == '=' || back == '=' || back == '!') return false;
  return !(back == '<' || back == '>') || (k > 1 && letter(t, k - 2) == back);
}

/* A brace that opens statements, or members, and no list of values. */
static bool opens_block(const qn_choices *choices, const qn_tokens *t, size_t k)
{
  static const char *const words[] = {"else", "do", "const", "device", "constant", "thread", "threadgroup", NULL};
  const size_t back = before(t, k);
  const char c = letter(t, back);
  if (c == '{' || c == ',') return choices->level[choices->depth].block;
  if (c == '=' || c == '(' || c == '>' || c == '[') return false;
  return !is_word(t, back) || is_one_of(t, back, words);
}

/* `enum class x : uint {` */
static bool opens_enum(const qn_tokens *t, size_t k)
{
  for (k = before(t, k); k < t->n && (is_word(t, k) || is(t, k, ":") || is(t, k, "::")); k = before(t, k))
    if (is(t, k, "enum")) return true;
  return false;
}

static void open_bracket(qn_choices *choices, const qn_tokens *t, size_t k)
{
  static const char *const constants[] = {"static_assert", "alignas", "decltype", NULL};
  const char c = letter(t, k);
  qn_choice_level next = {.block = c == '{' && opens_block(choices, t, k)};
  next.plain = c == '[' || (c == '(' && is_one_of(t, before(t, k), constants)) || (c == '{' && opens_enum(t, k)) ||
               (c != '{' && choices->level[choices->depth].plain);
  begin(&next, !next.block);
  if (++choices->depth < QN_CHOICE_LEVELS) choices->level[choices->depth] = next;
}

static void close_bracket(qn_choices *choices)
{
  if (!choices->depth) return;
  const bool block = choices->depth < QN_CHOICE_LEVELS && choices->level[choices->depth].block;
  if (--choices->depth < QN_CHOICE_LEVELS && block) begin(&choices->level[choices->depth], false);
}

/* Behind a template's parameters, whose < is at k. Comparisons among them stand in parentheses. */
static size_t parameters_end(const qn_tokens *t, size_t k)
{
  size_t depth = 0;
  for (; k < t->n; k++) {
    const char c = letter(t, k);
    if (c == '(' || c == '[' || c == '{') k = closing(t, k);
    if (c == '<') depth++;
    if (c == '>' && --depth == 0) return k;
    if (c == ';') break;
  }
  return t->n;
}

/* A , between arguments of a template: a < behind a word is open before it, and a > closes it. */
static bool among_angles(const qn_tokens *t, size_t k)
{
  int open = 0, depth = 0;
  for (size_t j = before(t, k); j < t->n && !open; j = before(t, j)) {
    const char c = letter(t, j);
    depth += (c == ')' || c == ']' || c == '}') - (c == '(' || c == '[' || c == '{');
    if (depth < 0 || (!depth && (c == ';' || c == '='))) return false;
    if (!depth && c == '>' && !is(t, j - 1, "-")) depth += 1000;
    if (c == '<' && depth >= 1000)
      depth -= 1000;
    else if (c == '<' && !depth)
      open = is_word(t, before(t, j));
  }
  for (size_t j = after(t, k); open && j < t->n; j = after(t, j)) {
    const char c = letter(t, j);
    if (c == '(' || c == '[' || c == '{') j = closing(t, j);
    if (c == ')' || c == ']' || c == '}' || c == ';') return false;
    if (c == '<') open++;
    if (c == '>' && --open == 0) return true;
  }
  return false;
}

static void insert(qn_text *text, size_t at, const char *what)
{
  const size_t n = strlen(what), length = text->length;
  qn_text_add_bytes(text, what, n);
  if (text->failed) return;
  memmove(text->at + at + n, text->at + at, length - at);
  memcpy(text->at + at, what, n);
}

/* `0`, `2u`: a whole number alone, which may stand for a null pointer. */
static bool is_whole_literal(const qn_tokens *t, size_t k)
{
  if (k >= t->n || t->token[k].kind != QN_TOKEN_NUMBER) return false;
  const char *at = t->text + t->token[k].at, next = letter(t, after(t, k));
  for (size_t j = 0; j < t->token[k].length; j++)
    if (!strchr("0123456789uUlL", at[j])) return false;
  return !next || strchr(":;,)]}", next);
}

static void write_arm(qn_choice_level *level, const qn_tokens *t, size_t k, bool rewritten, qn_text *text)
{
  qn_text_add_bytes(text, t->text + t->token[k].at, t->token[k].length);
  if (rewritten && !is_whole_literal(t, after(t, k))) qn_text_add(text, " qn_arm() |=");
  begin(level, true);
}

static bool step_mark(qn_choices *choices, qn_choice_level *level, const qn_tokens *t, size_t k, qn_text *text)
{
  const char c = letter(t, k);
  if (c == ';') {
    level->pending = 0;
    begin(level, false);
  } else if (c == ',' && !among_angles(t, k))
    begin(level, level->value || !level->block);
  else if (c == '=' && assigns(t, k))
    begin(level, true);
  else if (c == '?' && level->pending < QN_CHOICE_PENDING) {
    const bool rewritten = level->value && !level->plain && k >= choices->plain_until;
    if (rewritten) insert(text, level->start, " qn_whole() |= ");
    level->rewritten = level->rewritten << 1 | rewritten;
    level->pending++;
    write_arm(level, t, k, rewritten, text);
    return true;
  } else if (c == ':' && level->pending) {
    const bool rewritten = level->rewritten & 1;
    level->rewritten >>= 1;
    level->pending--;
    write_arm(level, t, k, rewritten, text);
    return true;
  } else if (c == ':')
    begin(level, !level->block);
  return false;
}

bool qn_choices_step(qn_choices *choices, const qn_tokens *t, size_t k, qn_text *text)
{
  static const char *const statements[] = {"else", "do", "case", NULL};
  const char c = letter(t, k);
  qn_choice_level *level = choices->depth < QN_CHOICE_LEVELS ? &choices->level[choices->depth] : NULL;
  if (level && level->fresh) {
    level->start = text->length;
    level->fresh = false;
  }
  if (is_word(t, k) && level && is(t, k, "template") && is(t, after(t, k), "<"))
    choices->plain_until = parameters_end(t, after(t, k));
  else if (is_word(t, k) && level && (is(t, k, "return") || is_one_of(t, k, statements)))
    begin(level, is(t, k, "return"));
  else if (c == '(' || c == '[' || c == '{')
    open_bracket(choices, t, k);
  else if (c == ')' || c == ']' || c == '}')
    close_bracket(choices);
  else if (c && level && t->token[k].length == 1)
    return step_mark(choices, level, t, k, text);
  return false;
}
