/* SPDX-License-Identifier: Apache-2.0 */
/* lexer.c - where words, numbers, strings and comments of C end. It judges nothing: what does not end, ends with its
 * line or the text. */
#include "device/lexer.h"
#include <string.h>

static bool begins_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static const char *pass_word(const char *at, const char *end)
{
  while (at < end && (begins_word(*at) || is_digit(*at))) at++;
  return at;
}

/* With exponents' signs and with the ' between digits. */
static const char *pass_number(const char *at, const char *end)
{
  for (; at < end; at++) {
    const bool sign = (*at == '+' || *at == '-') && memchr("eEpP", at[-1], 4);
    const bool quote = *at == '\'' && at + 1 < end && pass_word(at + 1, at + 2) > at + 1;
    if (!sign && !quote && *at != '.' && !begins_word(*at) && !is_digit(*at)) break;
  }
  return at;
}

static const char *pass_string(const char *at, const char *end)
{
  const char quote = *at++;
  while (at < end && *at != quote && *at != '\n') at += at + 1 < end && *at == '\\' ? 2 : 1;
  return at + (at < end && *at == quote);
}

static const char *pass_comment(const char *at, const char *end)
{
  if (at[1] == '/') return qn_directive_end(at, end);
  for (at += 2; at < end && (at = memchr(at, '*', (size_t)(end - at))); at++)
    if (at + 1 < end && at[1] == '/') return at + 2;
  return end;
}

qn_lexeme qn_lex(const char **at, const char *end)
{
  const char *p = *at;
  for (; p < end; p++) {
    if (*p == '\\' || (*p > 0 && *p <= ' ')) continue;
    if (*p != '/' || p + 1 >= end || (p[1] != '/' && p[1] != '*')) break;
    p = pass_comment(p, end) - 1;
  }
  if (p >= end || !*p) return (*at = p, (qn_lexeme){p, 0, 0});
  qn_lexeme l = {p, 1, *p};
  const char *behind = p + 1;
  if (begins_word(*p))
    l.kind = 'w', behind = pass_word(p, end);
  else if (is_digit(*p) || (*p == '.' && p + 1 < end && is_digit(p[1])))
    l.kind = '0', behind = pass_number(p + 1, end);
  else if (*p == '"' || *p == '\'')
    l.kind = '"', behind = pass_string(p, end);
  else if (*p == '#' && p + 1 < end && p[1] == '#')
    l.kind = 'p', behind = p + 2;
  l.length = (size_t)(behind - p);
  *at = behind;
  return l;
}

bool qn_lexeme_is(qn_lexeme l, const char *word)
{
  return l.kind == 'w' && strlen(word) == l.length && !memcmp(l.at, word, l.length);
}

const char *qn_line_end(const char *at, const char *end)
{
  const char *line = memchr(at, '\n', (size_t)(end - at));
  return line ? line + 1 : end;
}

size_t qn_lines(const char *at, const char *end)
{
  size_t n = 0;
  for (; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++) n++;
  return n;
}

const char *qn_directive_end(const char *at, const char *end)
{
  const char *next = qn_line_end(at, end);
  while (next < end && next - at > 1 && next[-2] == '\\') next = qn_line_end(next, end);
  return next;
}
