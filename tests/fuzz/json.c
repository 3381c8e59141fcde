/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - throws mutated texts at the reader of JSON; see safetensors.c for how it is driven. A text that is accepted,
 * written back and read again is the same tree. */
#include "core/json.h"
#include <stdlib.h>
#include <string.h>

static bool same(const qn_json *a, const qn_json *b)
{
  if (a->type != b->type || !a->key != !b->key || (a->key && strcmp(a->key, b->key))) return false;
  switch (a->type) {
  case QN_JSON_BOOL: return a->boolean == b->boolean;
  case QN_JSON_INTEGER: return a->integer == b->integer;
  case QN_JSON_REAL: return !memcmp(&a->real, &b->real, sizeof a->real);
  case QN_JSON_STRING: return !strcmp(a->string, b->string);
  case QN_JSON_NULL: return true;
  default: break;
  }
  size_t n = 0;
  const qn_json *y = b->first;
  for (const qn_json *x = a->first; x; x = x->next, y = y->next, n++)
    if (!y || !same(x, y)) return false;
  return !y && n == a->n && n == b->n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
  qn_json_tree tree, again;
  char *exact = malloc(bytes ? bytes : 1); /* so that a read past the end is seen */
  if (!exact) return 0;
  memcpy(exact, data, bytes);
  if (qn_json_read(exact, bytes, "fuzz", &tree) == QN_OK) {
    qn_text text = {0};
    qn_json_add(&text, tree.root);
    if (!text.at || qn_json_read(text.at, text.length, "again", &again) != QN_OK || !same(tree.root, again.root))
      abort();
    qn_text_free(&text);
    qn_json_free(&again);
    qn_json_free(&tree);
  } else if (tree.root || tree.memory || strncmp(qn_last_error(), "fuzz:", 5))
    abort();
  free(exact);
  return 0;
}

#ifndef QN_LIBFUZZER
#include "mutate.h"

static const char *const seeds[] = {
    "{}",
    " [1, -2, 0.5, 1e9, -0, -0.0, 9223372036854775807, -9223372036854775808, null, true, false] ",
    "{\"a\": {\"b\": [[], {}, \"x\\n\\u00e9\\ud83d\\ude00\\\\\"]}, \"c\303\251\": 2.2250738585072014e-308}",
    "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9}",
    "\"text\"",
};
static const char *const words[] = {"{",        "}",
                                    "[",        "]",
                                    ",",        ":",
                                    "\"",       "\\u0000",
                                    "\\ud800",  "\\udc00",
                                    "-",        "1e",
                                    "0",        "1e999",
                                    "nul",      "18446744073709551616",
                                    "\xff",     "\xed\xa0\x80",
                                    "[[[[[[[[", "\"a\":",
                                    "\n",       "\\",
                                    "true",     "9223372036854775808"};

int main(int argc, char **argv)
{
  const corpus c = {seeds,
                    words,
                    sizeof seeds / sizeof *seeds,
                    sizeof words / sizeof *words,
                    "0123456789",
                    "texts",
                    "mutated texts are refused or read back as the same tree"};
  return fuzz(&c, argc, argv);
}
#endif
