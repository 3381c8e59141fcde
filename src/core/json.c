/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the parts of JSON that cannot be written by a format: strings and real numbers. json_read.c reads it. */
#include "core/core.h"
#include "core/utf8.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_escape(qn_text *text, unsigned char c)
{
  static const char characters[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  const char *at = strchr(characters, c);
  if (at)
    qn_text_add(text, "\\%c", letters[at - characters]);
  else
    qn_text_add(text, "\\u%04x", c);
}

void qn_json_add_string(qn_text *text, const char *string)
{
  qn_text_add_bytes(text, "\"", 1);
  for (const unsigned char *s = (const unsigned char *)string; *s;) {
    const size_t n = qn_utf8_bytes((const char *)s);
    if (!n)
      qn_text_add(text, "\\ufffd");
    else if (*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7F)
      add_escape(text, *s);
    else
      qn_text_add_bytes(text, s, n);
    s += n ? n : 1;
  }
  qn_text_add_bytes(text, "\"", 1);
}

/* With a point or an exponent, so that it reads back as a real number; the point is a point in every locale. */
void qn_json_add_real(qn_text *text, double value)
{
  char digits[40];
  if (!isfinite(value)) {
    qn_text_add(text, isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
    return;
  }
  snprintf(digits, sizeof digits, "%.17g", value);
  for (char *c = digits; *c; c++)
    if (!strchr("0123456789+-eE", *c)) *c = '.';
  qn_text_add(text, "%s%s", digits, strpbrk(digits, ".eE") ? "" : ".0");
}
