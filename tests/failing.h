/* SPDX-License-Identifier: Apache-2.0 */
/* failing.h - allocation hooks that count, and let the k-th allocation fail; for tests that try every k, each in a
 * child of its own. */
#ifndef QN_TESTS_FAILING_H
#define QN_TESTS_FAILING_H
#include "quern/runtime.h"
#include <stdatomic.h>
#include <stdlib.h>

enum { DONE = 10 }; /* a child's exit status: there was no k-th allocation */

static atomic_int allocated, outstanding, fail_at; /* fail_at 0: none */

static void *hook_allocate(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  if (atomic_fetch_add(&allocated, 1) + 1 == atomic_load(&fail_at)) return NULL;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory) atomic_fetch_add(&outstanding, 1);
  return memory;
}

static void hook_release(void *user, void *memory, size_t bytes)
{
  (void)user, (void)bytes;
  atomic_fetch_sub(&outstanding, 1);
  free(memory);
}
#endif
