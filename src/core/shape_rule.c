/* SPDX-License-Identifier: Apache-2.0 */
/* shape_rule.c - see shape_rule.h. Every sentence about a shape's text is here. */
#include "core/shape_rule.h"
#include <string.h>

static const char no_end[] = "the bracket does not end: the ] behind the extents is missing";

/* As in the C locale; contracts are read at every launch. */
static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool is_in_word(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

static inline const char *behind_blanks(const char *at)
{
  while (*at == ' ' || *at == '\t' || *at == '\n') at++;
  return at;
}

bool qn_word_is(qn_word word, const char *text)
{
  return word.at && !strncmp(word.at, text, word.length) && !text[word.length];
}

bool qn_shape_take(const char **at, const char *mark)
{
  const char *behind = *at = behind_blanks(*at);
  for (; *mark; mark++, behind++)
    if (*behind != *mark) return false;
  if (is_in_word(mark[-1]) && is_in_word(*behind)) return false;
  *at = behind;
  return true;
}

static int wrong(qn_shape_reader *r, const char *why)
{
  r->why = why;
  return -1;
}

static qn_word take_word(qn_shape_reader *r)
{
  r->at = behind_blanks(r->at);
  qn_word word = {r->at, 0};
  while (is_in_word(r->at[word.length])) word.length++;
  r->at += word.length;
  return word;
}

static int read_number(qn_shape_reader *r, int64_t *number)
{
  for (*number = 0; is_digit(*r->at); r->at++)
    if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, *r->at - '0', number))
      return wrong(r, "a number above 2^63 - 1");
  return is_in_word(*r->at) ? wrong(r, "a letter within a number") : 1;
}

/* Does an extent end here? */
static bool ends(const char *at)
{
  at = behind_blanks(at);
  return *at == ',' || *at == ']';
}

/* Behind "like". */
static int read_like(qn_shape_reader *r, qn_shape_part *part)
{
  part->kind = QN_PART_LIKE;
  part->text = take_word(r);
  if (!part->text.length) return wrong(r, "the name of a tensor should stand behind \"like\"");
  if (!qn_shape_take(&r->at, "without")) return 1;
  part->without = take_word(r);
  return part->without.length ? 1 : wrong(r, "a dimension's name should stand behind \"without\"");
}

/* Behind "..." or "1...". */
static int read_many(qn_shape_reader *r, qn_shape_part *part, qn_part_kind kind)
{
  *part = (qn_shape_part){.kind = kind, .number = -1};
  if (r->parts) return wrong(r, "an extent should stand here; \"...\" stands in front of all");
  return kind == QN_PART_ANY && is_digit(*r->at) ? read_number(r, &part->number) : 1;
}

/* Up to a comma or the bracket's end outside of parentheses. */
static int read_expression(qn_shape_reader *r, qn_shape_part *part)
{
  const char *const begin = r->at;
  int depth = 0;
  if (!is_in_word(*begin) && *begin != '(' && *begin != '-')
    return wrong(r, *begin ? "an extent should stand here, a number from 0 on, a name or an expression" : no_end);
  for (; *r->at && (depth || !ends(r->at)); r->at++) depth += (*r->at == '(') - (*r->at == ')');
  if (!*r->at) return wrong(r, no_end);
  *part = (qn_shape_part){.kind = QN_PART_EXPRESSION, .text = {begin, (size_t)(r->at - begin)}};
  return part->text.length < QN_EXTENT_BYTES ? 1 : wrong(r, "an extent of more than 47 characters");
}

static int read_part(qn_shape_reader *r, qn_shape_part *part)
{
  const char *const begin = r->at = behind_blanks(r->at);
  if (*begin == '.' && qn_shape_take(&r->at, "...")) return read_many(r, part, QN_PART_ANY);
  if (*begin == '1' && qn_shape_take(&r->at, "1...")) return read_many(r, part, QN_PART_ONES);
  *part = (qn_shape_part){.kind = is_digit(*begin) ? QN_PART_NUMBER : QN_PART_NAME};
  if (part->kind == QN_PART_NUMBER && read_number(r, &part->number) < 0) return -1;
  if (part->kind == QN_PART_NAME) part->text = take_word(r);
  part->text = (qn_word){begin, (size_t)(r->at - begin)};
  if (part->text.length && part->text.length < QN_EXTENT_BYTES && ends(r->at)) return 1;
  if (qn_word_is(part->text, "like")) return read_like(r, part);
  r->at = begin;
  if (*begin == '-' && is_digit(begin[1]) && ends(begin + 1 + strspn(begin + 1, "0123456789")))
    return wrong(r, "an extent should stand here, a number from 0 on, a name or an expression");
  return read_expression(r, part);
}

int qn_shape_part_next(qn_shape_reader *r, qn_shape_part *part)
{
  if (qn_shape_take(&r->at, "]")) return 0;
  if (r->parts && !qn_shape_take(&r->at, ",")) return wrong(r, *r->at ? "extents are parted by commas" : no_end);
  if (read_part(r, part) < 0) return -1;
  r->parts++;
  return 1;
}
