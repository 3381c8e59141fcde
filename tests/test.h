/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - tests print TAP, a line a check: `check(x == 2, "x is %d", x);`, `refuses(call(), QN_BAD_ARGUMENT, "-3")`,
 * and `return test_end();`. From one thread. */
#ifndef QN_TESTS_TEST_H
#define QN_TESTS_TEST_H
#include "quern/status.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_count, test_failures, test_held;

/* The lines of a text behind its first are comments of TAP. */
__attribute__((unused)) static void test_print(const char *text)
{
  for (; *text; text++) {
    if (*text == '\n')
      printf("\n# ");
    else
      putchar(*text);
  }
}

__attribute__((format(printf, 5, 6), unused)) static bool test_report(bool ok, const char *file, int line,
                                                                      const char *expression, const char *format, ...)
{
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  printf("%sok %d - ", ok ? "" : "not ", ++test_count);
  test_print(text);
  if (!ok) {
    printf("\n# %s:%d: %s\n# last error: ", file, line, expression);
    test_print(qn_last_error());
  }
  printf("\n");
  fflush(stdout);
  test_failures += !ok;
  return ok;
}

/* One line of TAP: the condition (evaluated first, given back), and what it shows as a format with values. */
#define check(condition, ...)                                                                                          \
  (test_held = (condition), test_report(test_held != 0, __FILE__, __LINE__, #condition, __VA_ARGS__))

/* The call must fail with this status, and its sentence must contain these words (values, above all). */
#define refuses(call, status, words) test_refusal((call), (status), (words), __FILE__, __LINE__, #call)
__attribute__((unused)) static bool test_refusal(qn_status got, qn_status want, const char *words, const char *file,
                                                 int line, const char *expression)
{
  bool ok = got == want && strstr(qn_last_error(), words);
  test_report(ok, file, line, expression, "%s refuses with %s and \"%s\"", expression, qn_status_name(want), words);
  if (!ok) printf("# it returned %s\n", qn_status_name(got));
  return ok;
}

__attribute__((format(printf, 1, 2), unused)) static void skip(const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  printf("ok %d - # SKIP ", ++test_count); /* only for a test that cannot run here */
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
}

__attribute__((unused)) static int test_end(void)
{
  printf("1..%d\n", test_count);
  return test_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
#endif
