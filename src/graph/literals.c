/* SPDX-License-Identifier: Apache-2.0 */
/* literals.c - types, numbers and formulas as words of a body. */
#include "graph/body.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void qn_write_type(qn_text *text, qn_dtype dtype)
{
  static const char *const names[QN_DTYPE_COUNT] = {
      [QN_F32] = "float", [QN_F16] = "half",  [QN_BF16] = "bfloat", [QN_F64] = "double", [QN_I64] = "long",
      [QN_I32] = "int",   [QN_I16] = "short", [QN_I8] = "int8_t",   [QN_U8] = "uchar",   [QN_BOOL] = "bool"};
  qn_text_add(text, "%s", names[dtype]);
}

void qn_write_constants(qn_text *text, const char *type, const qn_constant *constant, size_t n)
{
  qn_text_add(text, "  enum : %s {", type);
  for (size_t k = 0; k < n; k++)
    qn_text_add(text, "%s%s = %lld", k ? ", " : " ", constant[k].name, (long long)constant[k].value);
  qn_text_add(text, " };\n");
}

void qn_write_number(qn_text *text, qn_dtype type, double real, int64_t whole)
{
  char digits[40];
  uint64_t bits;
  switch (type) {
  case QN_BOOL: qn_text_add(text, real != 0 || whole ? "true" : "false"); return;
  case QN_I32: qn_text_add(text, whole < 0 ? "(%d)" : "%d", (int)whole); return;
  case QN_I64:
    if (whole == INT64_MIN)
      qn_text_add(text, "(-9223372036854775807l - 1)");
    else
      qn_text_add(text, whole < 0 ? "(%lldl)" : "%lldl", (long long)whole);
    return;
  case QN_F64:
    memcpy(&bits, &real, sizeof bits);
    qn_text_add(text, "as_type<double>(0x%llxul)", (unsigned long long)bits);
    return;
  default: break;
  }
  const double rounded = (double)(float)real;
  if (isnan(rounded)) {
    qn_text_add(text, "NAN");
    return;
  }
  if (isinf(rounded)) {
    qn_text_add(text, rounded > 0 ? "INFINITY" : "(-INFINITY)");
    return;
  }
  snprintf(digits, sizeof digits, "%.9g", rounded);
  for (char *c = digits; *c; c++)
    if (*c == ',') *c = '.';
  qn_text_add(text, signbit(rounded) ? "(%s%sf)" : "%s%sf", digits, strpbrk(digits, ".e") ? "" : ".0");
}

void qn_write_converted(qn_text *text, const char *from, qn_dtype type, qn_dtype to)
{
  if (type == to)
    qn_text_add(text, "%s", from);
  else if (to == QN_BOOL)
    qn_text_add(text, "(%s != 0)", from);
  else {
    qn_write_type(text, to);
    qn_text_add(text, "(%s)", from);
  }
}

/* The formula with a, b, c replaced. */
void qn_write_formula(qn_text *text, const char *formula, const qn_text *operand)
{
  for (const char *s = formula; *s; s++) {
    const bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_';
    if (!letter) {
      qn_text_add_bytes(text, s, 1);
      continue;
    }
    size_t n = 0;
    while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_' || (s[n] >= '0' && s[n] <= '9'))
      n++;
    if (n == 1 && *s >= 'a' && *s <= 'c' && operand[*s - 'a'].at)
      qn_text_add(text, "%s", operand[*s - 'a'].at);
    else
      qn_text_add_bytes(text, s, n);
    s += n - 1;
  }
}
