/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - throws mutated headers at the reader. With clang's -fsanitize=fuzzer (QN_LIBFUZZER defined) libFuzzer
 * drives it; alone it is a test that mutates good headers for some seconds and reports in TAP: fuzz_safetensors
 * [SECONDS [SEED]]. Whatever is accepted is held against the promises that the reader makes. */
#include "core/core.h"
#include <stdlib.h>
#include <string.h>

/* The caller relies on: distinct names, offsets that tile the data, sizes without overflow. */
static void hold(const qn_safetensors *list, uint64_t data_bytes)
{
  uint64_t at = 0;
  for (size_t k = 0; k < list->n; k++) {
    const qn_safetensor *t = &list->tensor[k];
    if (t->begin != at || t->end < t->begin || t->ndim < 0 || t->ndim > QN_MAX_NDIM || !*t->dtype) abort();
    for (int d = 0; d < t->ndim; d++)
      if (t->shape[d] < 0) abort();
    if (!strcmp(t->dtype, "U8")) {
      uint64_t bytes = 1;
      for (int d = 0; d < t->ndim; d++) bytes *= (uint64_t)t->shape[d];
      if (bytes != t->end - t->begin) abort();
    }
    at = t->end;
  }
  if (at != data_bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
  qn_safetensors list;
  uint64_t data_bytes = 24;
  uint8_t *exact = malloc(bytes ? bytes : 1); /* so that a read past the end is seen */
  if (!exact) return 0;
  memcpy(exact, data, bytes);
  if (qn_safetensors_parse(exact, bytes, data_bytes, "fuzz", &list) == QN_OK) {
    hold(&list, data_bytes);
    qn_safetensors_free(&list);
  } else if (list.n || list.tensor || list.storage || !*qn_last_error())
    abort();
  free(exact);
  return 0;
}

#ifndef QN_LIBFUZZER
#include "mutate.h"

static const char *const seeds[] = {
    "{}",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,3,4],\"data_offsets\":[0,24]}}",
    ("{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\":\"\\ud83d\\ude00\"},\"w\":{\"dtype\":\"F32\",\"shape\":[4],"
     "\"data_offsets\":[0,16]},\"b\\n\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[16,18]},"
     "\"c\303\251\":{\"dtype\":\"U8\",\"shape\":[6,1],\"data_offsets\":[18,24]}}   "),
    ("{\"x\":{\"data_offsets\":[0,24],\"shape\":[3],\"dtype\":\"I64\"},\"y\":{\"dtype\":\"F16\",\"shape\":[0],"
     "\"data_offsets\":[24,24]}}"),
};
static const char *const words[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    "\\u0000",
                                    "\\ud800",
                                    "-1",
                                    "1e9",
                                    "0",
                                    "24",
                                    "F4_E2M1",
                                    "18446744073709551616",
                                    "9223372036854775807",
                                    "4611686018427387904",
                                    "\"shape\":",
                                    "\"dtype\":\"U8\"",
                                    "\xff",
                                    "\xed\xa0\x80",
                                    "__metadata__",
                                    "[[[[[[[["};

int main(int argc, char **argv)
{
  const corpus c = {seeds,
                    words,
                    sizeof seeds / sizeof *seeds,
                    sizeof words / sizeof *words,
                    "0123456789",
                    "headers",
                    "mutated headers are refused or keep the reader's promises"};
  return fuzz(&c, argc, argv);
}
#endif
