/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the parts of JSON that cannot be written by a format: strings and real numbers. The library writes JSON
 * where it captures launches; reading it is the command's, with a library made for that. */
#include "core/core.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the UTF-8 character at s, 0 if it is none: over-long forms, surrogates and what is past U+10FFFF are none.
 */
static size_t character_bytes(const unsigned char *s)
{
  const unsigned char b = s[0], c = b ? s[1] : 0;
  if (b < 0x80) return 1;
  if (b < 0xC2 || b > 0xF4) return 0;
  const size_t n = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
  const unsigned char low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
  if (c < low || c > high) return 0;
  for (size_t k = 2; k < n; k++)
    if ((s[k] & 0xC0) != 0x80) return 0;
  return n;
}

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
    const size_t n = character_bytes(s);
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
