/* SPDX-License-Identifier: Apache-2.0 */
/* includes.c - whether a kernel's text can reach into another file. The text is the key of what is compiled from it, so
 * another file's contents would be missing from the key. The preprocessor joins lines that end in a backslash and
 * drops comments before it looks for directives; so does this scan, which knows C++'s comments and literals and nothing
 * else. Includes in their plain form are left to the rewriter, which knows the dialect's own headers. */
#include "kernel/kernel.h"
#include <string.h>

typedef struct scan {
  const char *at;
  size_t line;
  bool joined; /* two lines were joined, or a comment dropped, since this was last cleared */
} scan;

/* The next character, behind any joined lines; 0 at the end. */
static char peek(scan *s)
{
  for (;;) {
    if (*s->at != '\\') return *s->at;
    const char *end = s->at + 1 + strspn(s->at + 1, " \t\r\f\v");
    if (*end != '\n') return '\\';
    s->at = end + 1;
    s->line++;
    s->joined = true;
  }
}

static char take(scan *s)
{
  const char c = peek(s);
  if (c) s->at++;
  s->line += c == '\n';
  return c;
}

static bool is_word_part(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The character behind the next one, lines joined. */
static char peek_second(const scan *s)
{
  scan ahead = *s;
  take(&ahead);
  return peek(&ahead);
}

/* Past a comment, if one begins here. */
static bool skip_comment(scan *s)
{
  const char second = peek(s) == '/' ? peek_second(s) : 0;
  if (second != '/' && second != '*') return false;
  take(s), take(s);
  if (second == '/')
    while (peek(s) && peek(s) != '\n') take(s);
  else
    for (char last = 0, c; (c = take(s)) && !(last == '*' && c == '/'); last = c) {}
  s->joined = true;
  return true;
}

/* Blanks and comments, newlines left standing. */
static void skip_blanks(scan *s)
{
  for (char c; (c = peek(s)) == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || skip_comment(s);)
    if (c != '/') take(s);
}

/* A literal ends on its line; the one behind R holds anything, and its lines are not joined. */
static void skip_literal(scan *s, bool raw)
{
  const char quote = take(s);
  const size_t mark = raw ? strcspn(s->at, "(\n\"\\ ") : 0;
  if (raw && quote == '"' && s->at[mark] == '(' && mark <= 16) {
    char close[20] = {')'};
    memcpy(close + 1, s->at, mark);
    close[mark + 1] = '"';
    const char *end = strstr(s->at, close), *from = s->at;
    s->at = end ? end + mark + 2 : from + strlen(from);
    for (; from < s->at; from++) s->line += *from == '\n';
    return;
  }
  for (char c; (c = peek(s)) && c != '\n';) {
    take(s);
    if (c == '\\' && peek(s) && peek(s) != '\n') take(s);
    if (c == quote) return;
  }
}

/* A word, cut to fit. */
static void take_word(scan *s, char *word, size_t bytes)
{
  size_t n = 0;
  for (; is_word_part(peek(s));) {
    const char c = take(s);
    if (n + 1 < bytes) word[n++] = c;
  }
  word[n] = 0;
}

static bool is_one_of(const char *word, const char *const *words)
{
  for (; *words; words++)
    if (!strcmp(word, *words)) return true;
  return false;
}

/* At a directive's # or %:, which `odd` stood behind something else than blanks. */
static qn_status look_at_directive(scan *s, bool odd)
{
  static const char *const reaching[] = {"include", "include_next", "import", "embed", "__include_macros", NULL};
  const size_t line = s->line;
  char word[24];
  odd |= take(s) != '#';
  if (peek(s) == ':') take(s);
  s->joined = false;
  skip_blanks(s);
  take_word(s, word, sizeof word);
  if (!is_one_of(word, reaching)) return QN_OK;
  odd |= s->joined;
  skip_blanks(s);
  const bool named = peek(s) == '<' || peek(s) == '"', plain = !strcmp(word, "include") || !strcmp(word, "import");
  if (!odd && !s->joined && plain && named) return QN_OK;
  return qn_fail(QN_BAD_ARGUMENT,
                 "line %zu: #%s in this form: a kernel's text includes nothing but its dialect's own headers, written "
                 "as #include <name> on a line of its own",
                 line, word);
}

static qn_status look_at_word(scan *s)
{
  static const char *const asking[] = {"__has_include", "__has_include_next", "__has_embed", NULL};
  static const char *const raw[] = {"R", "LR", "uR", "UR", "u8R", NULL};
  const size_t line = s->line;
  char word[24];
  take_word(s, word, sizeof word);
  if (is_one_of(word, asking))
    return qn_fail(QN_BAD_ARGUMENT, "line %zu: %s: a kernel's text cannot ask for files: its dialect's words are there",
                   line, word);
  /* A digit separator belongs to its number. */
  while (word[0] >= '0' && word[0] <= '9' && peek(s) == '\'' && is_word_part(peek_second(s))) {
    take(s);
    take_word(s, (char[2]){0}, 2);
  }
  if (peek(s) == '"' && is_one_of(word, raw)) skip_literal(s, true);
  return QN_OK;
}

qn_status qn_text_is_closed(const char *text)
{
  scan s = {.at = text, .line = 1};
  for (bool begins = true, odd = false;;) { /* begins: nothing but blanks and comments on this line */
    s.joined = false;
    skip_blanks(&s);
    odd |= s.joined;
    const char c = peek(&s);
    if (!c) return QN_OK;
    if (c == '\n') {
      take(&s);
      begins = true;
      odd = false;
    } else {
      if (begins && (c == '#' || (c == '%' && peek_second(&s) == ':')))
        qn_try(look_at_directive(&s, odd));
      else if (is_word_part(c))
        qn_try(look_at_word(&s));
      else if (c == '"' || c == '\'')
        skip_literal(&s, false);
      else
        take(&s);
      begins = false;
    }
  }
}
