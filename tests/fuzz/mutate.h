/* SPDX-License-Identifier: Apache-2.0 */
/* mutate.h - the driver of fuzzers that libFuzzer does not drive: good texts are mutated for some seconds and thrown at
 * LLVMFuzzerTestOneInput, and the result is told in TAP. What is right is the fuzzer's own business. */
#ifndef QN_FUZZ_MUTATE_H
#define QN_FUZZ_MUTATE_H
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Texts that are taken as they are, and words that readers trip over; `digits` may stand anywhere. */
typedef struct corpus {
  const char *const *seeds, *const *words;
  size_t n_seeds, n_words;
  const char *digits;
  const char *what, *holds; /* "tables", and what the TAP line says of them */
} corpus;

static uint64_t state;

static uint64_t next(void) /* xorshift64* */
{
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * UINT64_C(2685821657736338717);
}

/* Replaces some bytes at a random place by a word. */
static size_t splice(const corpus *c, char *text, size_t n, size_t most)
{
  const char *word = c->words[next() % c->n_words];
  size_t at = next() % (n + 1), cut = next() % 4, length = strlen(word);
  if (cut > n - at) cut = n - at;
  if (n - cut + length > most) return n;
  memmove(text + at + length, text + at + cut, n - at - cut);
  memcpy(text + at, word, length);
  return n - cut + length;
}

static size_t mutate(const corpus *c, char *text, size_t most)
{
  const char *seed = c->seeds[next() % c->n_seeds];
  size_t n = strlen(seed);
  memcpy(text, seed, n);
  for (uint64_t k = next() % 6; k > 0; k--) {
    const uint64_t kind = next() % 5;
    if (kind == 0)
      n = splice(c, text, n, most);
    else if (kind == 1 && n)
      text[next() % n] ^= (char)(1 << next() % 8);
    else if (kind == 2 && n)
      text[next() % n] = c->digits[next() % strlen(c->digits)];
    else if (kind == 3 && n)
      n = next() % n;             /* cut short */
    else if (n && n < most / 2) { /* say a piece twice */
      size_t from = next() % n, length = next() % (n - from + 1);
      memmove(text + from + length, text + from, n - from);
      n += length;
    }
  }
  return n;
}

/* main of such a fuzzer: PROGRAM [SECONDS [SEED]]. */
static int fuzz(const corpus *c, int argc, char **argv)
{
  enum { MOST = 4096 };
  char text[MOST];
  double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL), n = 0;
  state = seed * 2 + 1;
  printf("# seed %" PRIu64 "\n", seed);
  fflush(stdout);
  for (clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); clock() < end;)
    for (int k = 0; k < 1000; k++, n++) {
      const size_t bytes = mutate(c, text, MOST);
      LLVMFuzzerTestOneInput((const uint8_t *)text, bytes);
    }
  printf("ok 1 - %s\n# %" PRIu64 " %s\n1..1\n", c->holds, n, c->what);
  return 0;
}
#endif
