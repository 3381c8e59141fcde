/* SPDX-License-Identifier: Apache-2.0 */
/* expression.c - see expression.h. A descent over the text; parentheses and signs count towards a depth, so that a
 * hostile text cannot use up the stack. */
#include "core/expression.h"
#include "core/core.h"
#include <ctype.h>
#include <string.h>

enum { MOST_DEPTH = 64, MOST_NAME = 64, MOST_NAMES = 256, SHOWN = 60 };

typedef struct parser {
  const char *text, *at;
  const qn_name *names;
  size_t n_names;
  int depth;
  bool dry;                       /* nothing is computed */
  const qn_expression_writer *to; /* it is written in postfix; NULL: it is not */
} parser;

static const char *const functions[] = {"min", "max", "ceildiv", "align", NULL};

static qn_status sum_of(parser *p, int64_t *value);

/* "what, at character 7 of "..."", with a long text cut. */
static qn_status wrong(const parser *p, const char *at, const char *what)
{
  size_t length = strlen(p->text);
  return qn_fail(QN_BAD_ARGUMENT, "%s at character %zu of \"%.*s%s\"", what, (size_t)(at - p->text) + 1, SHOWN, p->text,
                 length > SHOWN ? "..." : "");
}

static void skip_space(parser *p)
{
  while (*p->at == ' ' || *p->at == '\t') p->at++;
}

static bool take(parser *p, char c)
{
  skip_space(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

static void write_word(const parser *p, const char *word, size_t length)
{
  if (!p->to) return;
  qn_text_add_bytes(p->to->text, word, length);
  qn_text_add_bytes(p->to->text, " ", 1);
}

static bool begins_name(char c) { return isalpha((unsigned char)c) || c == '_'; }
static bool is_in_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

bool qn_expression_is_function(const char *name, size_t length)
{
  for (size_t k = 0; functions[k]; k++)
    if (strlen(functions[k]) == length && !strncmp(functions[k], name, length)) return true;
  return false;
}

void qn_expression_names(const char *text, void (*visit)(void *user, const char *name, size_t length), void *user)
{
  while (*text) {
    size_t length = 0;
    while (is_in_name(text[length])) length++;
    if (length && begins_name(*text) && !qn_expression_is_function(text, length)) visit(user, text, length);
    text += length ? length : 1;
  }
}

/* ---- arithmetic that refuses ---- */
static qn_status divide(parser *p, const char *at, char mark, int64_t a, int64_t b, int64_t *value)
{
  if (b == 0) return wrong(p, at, "a division by zero");
  if (a == INT64_MIN && b == -1) return wrong(p, at, "a number past 64 bits");
  *value = mark == '/' ? a / b : a % b;
  return QN_OK;
}

static qn_status combine(parser *p, const char *at, char mark, int64_t a, int64_t b, int64_t *value)
{
  if (p->dry) {
    write_word(p, &mark, 1);
    *value = 1;
    return QN_OK;
  }
  bool over = false;
  switch (mark) {
  case '+': over = __builtin_add_overflow(a, b, value); break;
  case '-': over = __builtin_sub_overflow(a, b, value); break;
  case '*': over = __builtin_mul_overflow(a, b, value); break;
  default: return divide(p, at, mark, a, b, value);
  }
  return over ? wrong(p, at, "a number past 64 bits") : QN_OK;
}

/* a over b, rounded up; b above 0. */
static qn_status ceildiv(parser *p, const char *at, int64_t a, int64_t b, int64_t *value)
{
  if (p->dry) return QN_OK;
  if (b <= 0) return wrong(p, at, b ? "a division by a negative number" : "a division by zero");
  *value = a / b + (a % b > 0);
  return QN_OK;
}

static qn_status call(parser *p, const char *name, size_t length, int64_t *value)
{
  int64_t next = 0;
  int n = 1;
  qn_try(sum_of(p, value));
  for (; take(p, ','); n++) {
    qn_try(sum_of(p, &next));
    if (*name == 'm')
      *value = (name[1] == 'i' ? next < *value : next > *value) ? next : *value;
    else if (n == 1)
      qn_try(ceildiv(p, name, *value, next, value));
    if (n == 1 && *name == 'a' && !p->dry) qn_try(combine(p, name, '*', *value, next, value));
    write_word(p, name, length + 1); /* with its ( */
  }
  if (!take(p, ')')) return wrong(p, p->at, "a comma or ) is missing");
  if (n < 2 || (*name != 'm' && n > 2))
    return wrong(p, name, length == 3 ? "min and max want two numbers or more" : "ceildiv and align want two numbers");
  return QN_OK;
}

/* ---- names and numbers ---- */
static qn_status unknown(const parser *p, const char *name, size_t length)
{
  const char *names[MOST_NAMES + 1] = {NULL};
  char word[MOST_NAME] = "", what[2 * MOST_NAME + 64];
  size_t n = 0;
  for (; n < p->n_names && n < MOST_NAMES; n++) names[n] = p->names[n].name;
  memcpy(word, name, length < sizeof word ? length : sizeof word - 1);
  const char *near = qn_nearest(word, names);
  qn_text text = {0};
  qn_text_add(&text, "an unknown name %s%s%s%s", word, near ? " (did you mean " : "", near ? near : "",
              near ? "?)" : "");
  for (size_t k = 0; !near && k < n && k < 8; k++) qn_text_add(&text, "%s%s", k ? ", " : " (known: ", names[k]);
  if (!near && n) qn_text_add(&text, "%s)", n > 8 ? " ..." : "");
  size_t shown = text.failed ? 0 : text.length < sizeof what ? text.length : sizeof what - 1;
  if (shown) memcpy(what, text.at, shown);
  what[shown] = 0;
  qn_text_free(&text);
  return wrong(p, name, what);
}

static qn_status name_of(parser *p, int64_t *value)
{
  const char *name = p->at;
  while (is_in_name(*p->at)) p->at++;
  size_t length = (size_t)(p->at - name);
  if (qn_expression_is_function(name, length) && take(p, '(')) return call(p, name, length, value);
  if (p->to) {
    *value = 1;
    return p->to->name(p->to, name, length);
  }
  for (size_t k = 0; k < p->n_names; k++) {
    if (strlen(p->names[k].name) != length || strncmp(p->names[k].name, name, length)) continue;
    *value = p->names[k].value;
    return QN_OK;
  }
  return unknown(p, name, length);
}

static qn_status number_of(parser *p, int64_t *value)
{
  const char *at = p->at;
  *value = 0;
  for (; isdigit((unsigned char)*p->at); p->at++)
    if (__builtin_mul_overflow(*value, 10, value) || __builtin_add_overflow(*value, *p->at - '0', value))
      return wrong(p, at, "a number past 64 bits");
  write_word(p, at, (size_t)(p->at - at));
  return is_in_name(*p->at) ? wrong(p, p->at, "a letter or point within a whole number") : QN_OK;
}

/* A number, a name, a call, a sum in parentheses, or one of these behind a sign. */
static qn_status unit_of(parser *p, int64_t *value)
{
  if (++p->depth > MOST_DEPTH) return wrong(p, p->at, "more than 64 parentheses and signs within each other");
  skip_space(p);
  const char *at = p->at;
  qn_status status;
  if (take(p, '-')) {
    write_word(p, "0", 1);
    status = unit_of(p, value);
    if (status == QN_OK) status = combine(p, at, '-', 0, *value, value);
  } else if (take(p, '(')) {
    status = sum_of(p, value);
    if (status == QN_OK && !take(p, ')')) status = wrong(p, p->at, "a ) is missing");
  } else if (isdigit((unsigned char)*at)) {
    status = number_of(p, value);
  } else if (begins_name(*at)) {
    status = name_of(p, value);
  } else {
    status = wrong(p, at, *at ? "no number, name or ( stands" : "a number, name or ( is missing");
  }
  p->depth--;
  return status;
}

static qn_status product_of(parser *p, int64_t *value)
{
  qn_try(unit_of(p, value));
  for (;;) {
    int64_t right = 0;
    skip_space(p);
    const char *at = p->at;
    if (!*at || !strchr("*/%", *at)) return QN_OK;
    p->at++;
    qn_try(unit_of(p, &right));
    qn_try(combine(p, at, *at, *value, right, value));
  }
}

static qn_status sum_of(parser *p, int64_t *value)
{
  qn_try(product_of(p, value));
  for (;;) {
    int64_t right = 0;
    skip_space(p);
    const char *at = p->at;
    if (!*at || !strchr("+-", *at)) return QN_OK;
    p->at++;
    qn_try(product_of(p, &right));
    qn_try(combine(p, at, *at, *value, right, value));
  }
}

static qn_status whole(parser *p, int64_t *value)
{
  qn_try(sum_of(p, value));
  skip_space(p);
  return *p->at ? wrong(p, p->at, "an operator or the end is missing") : QN_OK;
}

qn_status qn_expression(const char *text, const qn_name *names, size_t n, int64_t *value)
{
  parser p = {.text = text, .at = text, .names = names, .n_names = n};
  return whole(&p, value);
}

qn_status qn_expression_check(const char *text, const qn_name *names, size_t n)
{
  parser p = {.text = text, .at = text, .names = names, .n_names = n, .dry = true};
  int64_t value;
  return whole(&p, &value);
}

qn_status qn_expression_postfix(const char *text, const qn_expression_writer *to)
{
  parser p = {.text = text, .at = text, .dry = true, .to = to};
  int64_t value;
  return whole(&p, &value);
}
