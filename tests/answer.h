/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - kernels for tests of the run-time compiler: ANSWER=n makes one that answers n, so that a wrong one shows.
 */
#ifndef QN_TESTS_ANSWER_H
#define QN_TESTS_ANSWER_H
#include "cache_use.h"
#include "jit/jit.h"
#include <stdio.h>

static const qn_device answer_emulator = {QN_EMULATOR, 0};
static const char answer_text[] = "#include \"base/kernel.h\"\nstruct answer_args { int *answer; };\n"
                                  "QN_KERNEL(answer, answer_args, a) { *a.answer = ANSWER; }\n"
                                  "QN_KERNEL(negated, answer_args, a) { *a.answer = -ANSWER; }\n";

static inline qn_status answer_find(int n, const char *name, const qn_device_function **function)
{
  char define[32];
  snprintf(define, sizeof define, "ANSWER=%d", n);
  const char *const defines[] = {define, NULL};
  const qn_unit unit = {.source = "answer.cu", .defines = defines, .text = answer_text};
  return qn_jit_function(answer_emulator, &unit, name, function);
}

static inline int answer_of(const qn_device_function *function)
{
  int answer = 0, *where = &answer;
  const qn_launch launch = {.blocks = 1, .threads = 1, .argument = &where, .argument_bytes = sizeof where};
  return qn_backend_emulator.launch(answer_emulator, function, &launch) == QN_OK ? answer : 0;
}

/* Whether the kernel that answers n can be had and does so. */
static inline bool answers(int n)
{
  const qn_device_function *function = NULL;
  return answer_find(n, "answer", &function) == QN_OK && answer_of(function) == n;
}
#endif
