/* SPDX-License-Identifier: Apache-2.0 */
/* small_stack.h - a thread of little stack: docs/c.md says how much calls of ops need. */
#ifndef QN_TESTS_SMALL_STACK_H
#define QN_TESTS_SMALL_STACK_H
#include "test.h"
#include <limits.h>
#include <pthread.h>

/* Runs it on a thread with so much stack; its result, or -1 where no thread came to be. */
static inline intptr_t small_stack_run(size_t kilobytes, void *(*run)(void *), void *user)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  const size_t bytes = kilobytes << 12; /* their frames are larger */
#else
  const size_t least = PTHREAD_STACK_MIN; /* aarch64: 128 KB */
  const size_t bytes = kilobytes << 10 > least ? kilobytes << 10 : least;
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
