/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - throws mutated tables at the reader of tune tables. With clang's -fsanitize=fuzzer (QN_LIBFUZZER defined)
 * libFuzzer drives it; alone it mutates good tables for some seconds and reports in TAP: fuzz_tune [SECONDS [SEED]].
 * Whatever is accepted must be what the reader promises, and be written and read again as the same entry. */
#include "core/core.h"
#include "op/tune.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_name(const char *text, size_t bytes)
{
  const size_t n = strnlen(text, bytes);
  if (n == 0 || n == bytes) return false;
  for (size_t k = 0; k < n; k++)
    if (text[k] <= ' ' || text[k] > '~') return false;
  return true;
}

static void hold(const qn_tune_entry *e)
{
  qn_text text = {0};
  qn_tune_entry again;
  const char *why;
  if (!is_name(e->arch, sizeof e->arch) || !is_name(e->types, sizeof e->types)) abort();
  if (!is_name(e->choice, sizeof e->choice) || !is_name(e->date, sizeof e->date)) abort();
  if (e->rows_least < 1 || e->rows_least > e->rows_most || e->cols_least < 1 || e->cols_least > e->cols_most) abort();
  if (!isfinite(e->ratio) || !isfinite(e->low) || !isfinite(e->high) || !isfinite(e->copy)) abort();
  if (e->ratio < 0 || (e->ratio > 0 && !(0 < e->low && e->low <= e->ratio && e->ratio <= e->high))) abort();
  if (e->state == QN_TUNE_MEASURED && !(e->ratio > 0 && *e->over)) abort();
  qn_tune_write_line(&text, e);
  if (text.failed) abort();
  text.at[text.length - 1] = 0; /* the line's end */
  if (text.length - 1 <= QN_TUNE_LINE && !qn_tune_parse_line(text.at, &again, &why)) abort();
  qn_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
  qn_tune_table table;
  size_t dropped;
  uint8_t *exact = malloc(bytes ? bytes : 1); /* so that a read past the end is seen */
  if (!exact) return 0;
  memcpy(exact, data, bytes);
  if (qn_tune_parse("op", "fuzz", (const char *)exact, bytes, &table, &dropped) == QN_OK) {
    for (size_t k = 0; k < table.n; k++) hold(&table.entry[k]);
    qn_tune_free(&table);
  } else if (table.n || table.entry || !*qn_last_error())
    abort();
  free(exact);
  return 0;
}

#ifndef QN_LIBFUZZER
static uint64_t state;

static uint64_t next(void) /* xorshift64* */
{
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * UINT64_C(2685821657736338717);
}

static const char *const seeds[] = {
    "quern tune 1 op\n",
    "quern tune 1 op\narch=sm_90 types=bf16/f32/- rows=1-1024 cols=8193- layout=dense choice=tiles-128x8x1 "
    "over=flat-256x8x1 "
    "ratio=1.043 low=1.039 high=1.047 registers=32 blocks=8 copy=1.012 state=measured date=2026-11-22 commit=1a2b3c4\n",
    "quern tune 1 op\n# word\n\narch=sm_100 types=* rows=1- cols=1-16384 layout=* choice=rows-64x8x1 state=published "
    "date=2026-11-22\narch=avx512 types=f16 rows=1- cols=1- layout=pitched choice=a over=a ratio=1.000 low=0.999 "
    "high=1.001 state=measured date=2026-11-22\n"};
static const char *const words[] = {" ",
                                    "\n",
                                    "=",
                                    "-",
                                    "/",
                                    "*",
                                    "nan",
                                    "inf",
                                    "1e9",
                                    "0",
                                    "-1",
                                    "0.0",
                                    "999999.999999999",
                                    "18446744073709551616",
                                    "999999999999999999",
                                    " arch=sm_120",
                                    " ratio=",
                                    "\xff",
                                    "\r\n"};

/* Replaces some bytes at a random place by a word. */
static size_t splice(char *text, size_t n, size_t most)
{
  const char *word = words[next() % (sizeof words / sizeof *words)];
  size_t at = next() % (n + 1), cut = next() % 4, length = strlen(word);
  if (cut > n - at) cut = n - at;
  if (n - cut + length > most) return n;
  memmove(text + at + length, text + at + cut, n - at - cut);
  memcpy(text + at, word, length);
  return n - cut + length;
}

static size_t mutate(char *text, size_t most)
{
  const char *seed = seeds[next() % (sizeof seeds / sizeof *seeds)];
  size_t n = strlen(seed);
  memcpy(text, seed, n);
  for (uint64_t k = next() % 5; k > 0; k--) {
    const uint64_t kind = next() % 5;
    if (kind == 0)
      n = splice(text, n, most);
    else if (kind == 1 && n)
      text[next() % n] ^= (char)(1 << next() % 8);
    else if (kind == 2 && n)
      text[next() % n] = "0123456789.-"[next() % 12];
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

int main(int argc, char **argv)
{
  enum { MOST = 4096 };
  char text[MOST];
  double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL), n = 0;
  state = seed * 2 + 1;
  printf("# seed %" PRIu64 "\n", seed);
  fflush(stdout);
  for (clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC); clock() < end;)
    for (int k = 0; k < 1000; k++, n++) LLVMFuzzerTestOneInput((const uint8_t *)text, mutate(text, MOST));
  printf("ok 1 - of mutated tables only whole entries are taken\n# %" PRIu64 " tables\n1..1\n", n);
  return 0;
}
#endif
