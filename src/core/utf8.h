/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - which bytes are a character. */
#ifndef QN_CORE_UTF8_H
#define QN_CORE_UTF8_H
#include <stddef.h>

/* Bytes of the UTF-8 character at `text`, which a NUL ends; 0 if it is none: over-long forms, surrogates and what is
 * past U+10FFFF are none. */
static inline size_t qn_utf8_bytes(const char *text)
{
  const unsigned char *s = (const unsigned char *)text;
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

/* Puts '?' in place of bytes that are no UTF-8: a text may be cut within a character. */
static inline void qn_utf8_mend(char *text)
{
  for (size_t n; *text; text += n ? n : 1)
    if (!(n = qn_utf8_bytes(text))) *text = '?';
}
#endif
