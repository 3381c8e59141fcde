/* SPDX-License-Identifier: Apache-2.0 */
/* token.c - C++ text as whole tokens. It understands nothing: it only knows where words, numbers, literals, comments
 * and preprocessor lines begin and end, so that a name is found as a name and never as a part of another, in a comment
 * or in a literal. */
#include "kernel/kernel.h"
#include <stdio.h>
#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool begins_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool goes_on(char c) { return begins_word(c) || is_digit(c); }

bool qn_is_identifier(const char *text)
{
  if (!text || !begins_word(*text)) return false;
  while (goes_on(*text)) text++;
  return !*text;
}

/* The end of a comment that begins at `at`, or NULL. */
static const char *after_comment(const char *at)
{
  if (at[1] == '/') return at + strcspn(at, "\n");
  const char *end = strstr(at + 2, "*/");
  return end ? end + 2 : NULL;
}

static const char *after_spaces(const char *at)
{
  while (at && (is_blank(*at) || (at[0] == '/' && (at[1] == '/' || at[1] == '*')) || (at[0] == '\\' && at[1] == '\n')))
    at = is_blank(*at) ? at + 1 : *at == '\\' ? at + 2 : after_comment(at);
  return at;
}

/* A number as the preprocessor sees it: 0x1.8p-3f, 1e+5, 1'000. */
static const char *after_number(const char *at)
{
  for (char last = 0; goes_on(*at) || *at == '.' || (*at == '\'' && goes_on(at[1])) ||
                      ((*at == '+' || *at == '-') && (last == 'e' || last == 'E' || last == 'p' || last == 'P'));
       at++)
    last = *at;
  return at;
}

static const char *after_literal(const char *at)
{
  const char quote = *at++;
  while (*at && *at != quote && *at != '\n') at += *at == '\\' && at[1] ? 2 : 1;
  return *at == quote ? at + 1 : NULL;
}

/* R"mark( ... )mark", where `at` is at the quote. */
static const char *after_raw(const char *at)
{
  char close[24];
  size_t length = strcspn(at + 1, "(\n");
  if (at[1 + length] != '(' || length > 16) return NULL;
  close[0] = ')';
  memcpy(close + 1, at + 1, length);
  close[length + 1] = '"';
  close[length + 2] = 0;
  const char *end = strstr(at + 1 + length, close);
  return end ? end + strlen(close) : NULL;
}

/* A preprocessor line ends where its last continuation does; a comment in it may span lines. */
static const char *after_directive(const char *at)
{
  while (at && *at && *at != '\n') {
    if (at[0] == '\\' && at[1] == '\n')
      at += 2;
    else if (at[0] == '/' && at[1] == '*')
      at = after_comment(at);
    else
      at++;
  }
  return at;
}

/* The end of the token at `at`, NULL for one that has none. A prefix of a literal (L, u8, R) is a word of its own, but
 * for the raw one, whose literal may hold anything. */
static const char *after_token(const char *at, bool first_on_line, qn_token_kind *kind)
{
  if (is_blank(*at) || (at[0] == '/' && (at[1] == '/' || at[1] == '*')) || (at[0] == '\\' && at[1] == '\n')) {
    *kind = QN_TOKEN_SPACE;
    return after_spaces(at);
  }
  if (*at == '#' && first_on_line) {
    *kind = QN_TOKEN_DIRECTIVE;
    return after_directive(at);
  }
  if (at[0] == 'R' && at[1] == '"') {
    *kind = QN_TOKEN_TEXT;
    return after_raw(at + 1);
  }
  if (begins_word(*at)) {
    *kind = QN_TOKEN_WORD;
    while (goes_on(*at)) at++;
    return at;
  }
  if (is_digit(*at) || (*at == '.' && is_digit(at[1]))) {
    *kind = QN_TOKEN_NUMBER;
    return after_number(at);
  }
  if (*at == '"' || *at == '\'') {
    *kind = QN_TOKEN_TEXT;
    return after_literal(at);
  }
  *kind = QN_TOKEN_MARK;
  return at + (at[0] == ':' && at[1] == ':' ? 2 : 1);
}

static size_t line_of(const char *text, const char *at)
{
  size_t line = 1;
  for (; text < at; text++) line += *text == '\n';
  return line;
}

/* Newest token's line has nothing before it but blanks. */
static bool is_first_on_line(const char *text, const char *at)
{
  while (at > text && (at[-1] == ' ' || at[-1] == '\t' || at[-1] == '\r')) at--;
  return at == text || at[-1] == '\n';
}

/* A literal or comment without end: at `at`, or behind blanks and comments there. */
static qn_status refuse_open(const char *text, const char *at)
{
  for (const char *end; is_blank(*at) || (*at == '\\' && at[1] == '\n') || *at == '/'; at = end) {
    end = is_blank(*at) ? at + 1 : *at == '\\' ? at + 2 : after_comment(at);
    if (!end) break;
  }
  const size_t length = strcspn(at, "\n");
  return qn_fail(QN_BAD_ARGUMENT, "line %zu: what begins with %.*s has no end", line_of(text, at),
                 (int)(length < 24 ? length : 24), at);
}

qn_status qn_tokens_make(const char *text, qn_tokens *tokens)
{
  size_t room = 0;
  *tokens = (qn_tokens){.text = text};
  qn_require(strlen(text) < UINT32_MAX, "a kernel's text of %zu bytes is too long", strlen(text));
  for (const char *at = text, *end; *at; at = end) {
    qn_token_kind kind;
    end = after_token(at, is_first_on_line(text, at), &kind);
    if (!end) {
      qn_tokens_free(tokens);
      return refuse_open(text, at);
    }
    if (tokens->n == room) {
      qn_token *more = qn_reallocate(tokens->token, (room = room ? 2 * room : 64) * sizeof *more);
      if (!more) {
        qn_tokens_free(tokens);
        return qn_fail(QN_NO_MEMORY, "no memory for %zu tokens", room);
      }
      tokens->token = more;
    }
    tokens->token[tokens->n++] = (qn_token){kind, (uint32_t)(at - text), (uint32_t)(end - at)};
  }
  return QN_OK;
}

void qn_tokens_free(qn_tokens *tokens)
{
  qn_release(tokens->token);
  *tokens = (qn_tokens){0};
}

void qn_show_line(const char *text, int line, char shown[QN_SHOWN_BYTES])
{
  const size_t n = strlen(shown);
  int number = line;
  for (; number > 1 && text; number--) {
    text = strchr(text, '\n');
    if (text) text++;
  }
  if (number == 1 && text && *text)
    snprintf(shown + n, QN_SHOWN_BYTES - n, "\n%5d | %.*s", line, (int)strcspn(text, "\n"), text);
}

bool qn_token_is(const qn_tokens *tokens, size_t k, const char *text)
{
  const size_t length = strlen(text);
  return k < tokens->n && tokens->token[k].length == length &&
         !memcmp(tokens->text + tokens->token[k].at, text, length);
}

/* Words of a #define are words of the text too. */
static bool directive_has(const char *at, size_t length, const char *word)
{
  const size_t n = strlen(word);
  for (size_t k = 0; k + n <= length; k++) {
    if (!goes_on(at[k])) continue;
    size_t end = k;
    while (end < length && goes_on(at[end])) end++;
    if (end - k == n && !memcmp(at + k, word, n)) return true;
    k = end;
  }
  return false;
}

bool qn_tokens_have(const qn_tokens *tokens, const char *word)
{
  for (size_t k = 0; k < tokens->n; k++) {
    const qn_token *t = &tokens->token[k];
    if (t->kind == QN_TOKEN_WORD
            ? qn_token_is(tokens, k, word)
            : t->kind == QN_TOKEN_DIRECTIVE && directive_has(tokens->text + t->at, t->length, word))
      return true;
  }
  return false;
}

/* Whether an operand begins at `at`: what stands before it is no operand that a * would multiply, and no type. */
static bool begins_operand(const char *text, const char *at)
{
  static const char *const words[] = {"return", "else", "do", "case", "sizeof"};

  while (at > text && is_blank(at[-1])) at--;
  if (at == text) return true;
  const char *end = at;
  while (at > text && goes_on(at[-1])) at--;
  for (size_t k = 0; at < end && k < sizeof words / sizeof *words; k++)
    if (strlen(words[k]) == (size_t)(end - at) && !memcmp(at, words[k], (size_t)(end - at))) return true;
  return at == end && end[-1] != ']' && end[-1] != ')';
}

/* The word of `length` at `at` is followed by [ or has a * before it that is no product's. */
static bool is_indexed(const char *text, const char *at, size_t length, const char *end)
{
  const char *behind = at + length, *before = at;
  while (behind < end && is_blank(*behind)) behind++;
  while (before > text && is_blank(before[-1])) before--;
  if (before > text && (before[-1] == '.' || (before - text > 1 && before[-1] == '>' && before[-2] == '-')))
    return false; /* some struct's member */
  const bool bracket = behind<end && * behind == '[', star = before> text && before[-1] == '*';
  if (star) return bracket || begins_operand(text, before - 1);
  return bracket && (before == text || before[-1] == ')' || begins_operand(text, before)); /* no `float d[2];` */
}

bool qn_tokens_index(const qn_tokens *tokens, const char *word)
{
  const size_t n = strlen(word);
  for (size_t k = 0; k < tokens->n; k++) {
    const qn_token *t = &tokens->token[k];
    const char *at = tokens->text + t->at;
    if (t->kind == QN_TOKEN_WORD && qn_token_is(tokens, k, word) && is_indexed(tokens->text, at, n, at + strlen(at)))
      return true;
    for (size_t j = 0; t->kind == QN_TOKEN_DIRECTIVE && j + n <= t->length; j++)
      if (!memcmp(at + j, word, n) && !goes_on(at[j - (j > 0)]) && (j + n == t->length || !goes_on(at[j + n])) &&
          is_indexed(at, at + j, n, at + t->length))
        return true;
  }
  return false;
}

qn_status qn_fail_in_text(const qn_kernel *kernel, int which, qn_status status)
{
  const qn_kernel_source *s = &kernel->source;
  char why[512], shown[QN_SHOWN_BYTES] = "";
  int line = 0;
  snprintf(why, sizeof why, "%s", qn_last_error());
  if (sscanf(why, "line %d:", &line) == 1) qn_show_line(which == QN_KERNEL_BODY ? s->body : s->header, line, shown);
  return qn_fail(status, "kernel %s: %s, %s%s", s->name, which == QN_KERNEL_BODY ? "body" : "header", why, shown);
}
