/* SPDX-License-Identifier: Apache-2.0 */
/* shim.h - an emitted Metal source with our metal_stdlib in the place of its include: the emulator compiles texts
 * that are whole in themselves. */
#ifndef QN_TESTS_SHIM_H
#define QN_TESTS_SHIM_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* To be freed; NULL where the include or the file is missing. */
static inline char *shim_put(const char *file, const char *source)
{
  static const char include[] = "#include <metal_stdlib>\n";
  const char *at = strstr(source, include);
  FILE *from = at ? fopen(file, "rb") : NULL;
  if (!from) return NULL;
  fseek(from, 0, SEEK_END);
  const size_t bytes = (size_t)ftell(from), head = (size_t)(at - source);
  rewind(from);
  char *whole = malloc(strlen(source) + bytes + 64);
  memcpy(whole, source, head);
  const size_t n = head + fread(whole + head, 1, bytes, from);
  fclose(from);
  sprintf(whole + n, "\n#line 1 \"emitted.metal\"\n%s", at + sizeof include - 1);
  return whole;
}
#endif
