/* SPDX-License-Identifier: Apache-2.0 */
/* small_stack.h - a thread of as little stack as docs/c.md says that calls of ops need. */
#ifndef QN_TESTS_SMALL_STACK_H
#define QN_TESTS_SMALL_STACK_H
#include "test.h"
#include <limits.h>
#include <pthread.h>

/* Runs it on such a thread; its result, or -1 where no thread came to be. */
static inline intptr_t small_stack_run(void *(*run)(void *), void *user)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  const size_t bytes = 256 << 10; /* their frames are larger */
#else
  const size_t bytes = PTHREAD_STACK_MIN > 64 << 10 ? PTHREAD_STACK_MIN : 64 << 10; /* aarch64 has 128 KB at least */
#endif
  pthread_attr_t little;
  pthread_t thread;
  void *result = NULL;
  pthread_attr_init(&little);
  const bool ran = check(!pthread_attr_setstacksize(&little, bytes), "a stack of %zu KB", bytes >> 10) &&
                   !pthread_create(&thread, &little, run, user) && !pthread_join(thread, &result);
  pthread_attr_destroy(&little);
  return ran ? (intptr_t)result : -1;
}
#endif
