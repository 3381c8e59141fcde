/* SPDX-License-Identifier: Apache-2.0 */
/* shape_rule.c - see shape_rule.h. Every sentence about a shape's text is here. */
#include "core/shape_rule.h"
#include <ctype.h>
#include <string.h>

static bool is_in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

bool qn_word_is(qn_word word, const char *text)
{
  return word.at && strlen(text) == word.length && !memcmp(word.at, text, word.length);
}

static void skip_blanks(const char **at) { *at += strspn(*at, " \t\n"); }

bool qn_shape_take(const char **at, const char *mark)
{
  const size_t length = strlen(mark);
  skip_blanks(at);
  if (strncmp(*at, mark, length) != 0 || (is_in_word(*mark) && is_in_word((*at)[length]))) return false;
  *at += length;
  return true;
}

static int wrong(qn_shape_reader *r, const char *why)
{
  r->why = why;
  return -1;
}

static qn_word take_word(qn_shape_reader *r)
{
  skip_blanks(&r->at);
  qn_word word = {r->at, 0};
  while (is_in_word(r->at[word.length])) word.length++;
  r->at += word.length;
  return word;
}

static int read_number(qn_shape_reader *r, int64_t *number)
{
  for (*number = 0; isdigit((unsigned char)*r->at); r->at++)
    if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, *r->at - '0', number))
      return wrong(r, "a number above 2^63 - 1");
  return 1;
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

/* Behind "...". */
static int read_any(qn_shape_reader *r, qn_shape_part *part)
{
  *part = (qn_shape_part){.kind = QN_PART_ANY, .number = -1};
  if (r->parts) return wrong(r, "an extent should stand here; \"...\" stands in front of all");
  return isdigit((unsigned char)*r->at) ? read_number(r, &part->number) : 1;
}

/* Up to a comma or the bracket's end outside of parentheses: a number, a name, or an expression. */
static int read_extent(qn_shape_reader *r, qn_shape_part *part)
{
  const char *const begin = r->at;
  const size_t words = strspn(begin, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
  int depth = 0;
  for (; *r->at && (depth || (*r->at != ',' && *r->at != ']')); r->at++) depth += (*r->at == '(') - (*r->at == ')');
  if (!*r->at) return wrong(r, "the ] behind the extents is missing");
  part->text = (qn_word){begin, (size_t)(r->at - begin)};
  while (isspace((unsigned char)begin[part->text.length - 1])) part->text.length--;
  if (part->text.length >= QN_EXTENT_BYTES) return wrong(r, "an extent of more than 47 characters");
  part->kind = QN_PART_EXPRESSION;
  if (words != part->text.length) return 1;
  part->kind = isdigit((unsigned char)*begin) ? QN_PART_NUMBER : QN_PART_NAME;
  if (part->kind == QN_PART_NAME) return 1;
  const char *const end = r->at;
  r->at = begin;
  if (read_number(r, &part->number) < 0) return -1;
  if (r->at != begin + part->text.length) return wrong(r, "a letter within a number");
  r->at = end;
  return 1;
}

static int read_part(qn_shape_reader *r, qn_shape_part *part)
{
  *part = (qn_shape_part){.kind = QN_PART_ONES};
  skip_blanks(&r->at);
  if (qn_shape_take(&r->at, "...")) return read_any(r, part);
  if (qn_shape_take(&r->at, "1..."))
    return r->parts ? wrong(r, "an extent should stand here; \"1...\" stands in front of all") : 1;
  if (qn_shape_take(&r->at, "like")) return read_like(r, part);
  const char *const behind = r->at + 1 + strspn(r->at + (*r->at != 0), "0123456789 \t\n");
  const bool below = *r->at == '-' && (*behind == ',' || *behind == ']');
  if (!is_in_word(*r->at) && *r->at != '(' && (*r->at != '-' || below))
    return wrong(r, *r->at ? "an extent should stand here, a number from 0 on, a name or an expression"
                           : "the ] behind the extents is missing");
  return read_extent(r, part);
}

int qn_shape_part_next(qn_shape_reader *r, qn_shape_part *part)
{
  if (!r->parts && qn_shape_take(&r->at, "]")) return 0;
  if (r->parts) {
    if (qn_shape_take(&r->at, "]")) return 0;
    if (!qn_shape_take(&r->at, ",")) return wrong(r, "a comma or the ] behind the extents is missing");
  }
  if (read_part(r, part) < 0) return -1;
  r->parts++;
  return 1;
}
