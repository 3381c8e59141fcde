/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - throws mutated tables at the reader of tune tables. With clang's -fsanitize=fuzzer (QN_LIBFUZZER defined)
 * libFuzzer drives it; alone it mutates good tables for some seconds and reports in TAP: fuzz_tune [SECONDS [SEED]].
 * Whatever is accepted must be what the reader promises, and be written and read again as the same entry. */
#include "core/core.h"
#include "op/tune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
  if (e->depth_least > e->depth_most || e->width_least > e->width_most) abort();
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
#include "mutate.h"

static const char *const seeds[] = {
    "quern tune 1 op\n",
    "quern tune 1 op\narch=sm_90 types=bf16/f32/- rows=1-1024 cols=8193- layout=dense choice=tiles-128x8x1 "
    "over=flat-256x8x1 "
    "ratio=1.043 low=1.039 high=1.047 registers=32 blocks=8 copy=1.012 state=measured date=2026-11-22 commit=1a2b3c4\n",
    "quern tune 1 op\n# word\n\narch=sm_100 types=* rows=1- cols=1-16384 layout=* choice=rows-64x8x1 state=published "
    "date=2026-11-22\narch=avx512 types=f16 rows=1- cols=1- layout=pitched choice=a over=a ratio=1.000 low=0.999 "
    "high=1.001 state=measured date=2026-11-22\n",
    ("quern tune 1 op\narch=sm_90 types=f32/f32/f32 rows=65-256 cols=1025-4096 layout=dense precision=tf32 depth=1025- "
     "width=1-64 choice=cublas over=plain ratio=2.000 low=1.900 high=2.100 state=measured date=2026-11-22\n")};
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

int main(int argc, char **argv)
{
  const corpus c = {seeds,
                    words,
                    sizeof seeds / sizeof *seeds,
                    sizeof words / sizeof *words,
                    "0123456789.-",
                    "tables",
                    "of mutated tables only whole entries are taken"};
  return fuzz(&c, argc, argv);
}
#endif
