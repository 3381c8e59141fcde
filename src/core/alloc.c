/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.c - all memory that the library takes on the host. In front of each block stands what is needed to give it back
 * to the hook that it came from: hooks get the size, and may be exchanged while blocks are out. */
#include "core/core.h"
#include <stdlib.h>
#include <string.h>

typedef struct header {
  void *base;   /* the hook's result */
  size_t total; /* asked from the hook */
  size_t bytes; /* asked by the caller */
  void (*release)(void *user, void *memory, size_t bytes);
  void *user;
} header;

enum { ALIGNMENT = 64 };
_Static_assert(sizeof(header) <= ALIGNMENT, "the header must fit in front of the smallest alignment");

static void *system_allocate(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  size_t whole = (bytes + alignment - 1) & ~(alignment - 1); /* aligned_alloc wants a multiple */
  return whole < bytes ? NULL : aligned_alloc(alignment, whole);
}

static void system_release(void *user, void *memory, size_t bytes)
{
  (void)user;
  (void)bytes;
  free(memory);
}

static const qn_allocator system_allocator = {system_allocate, system_release, NULL};
static qn_allocator in_force = {system_allocate, system_release, NULL};

qn_status qn_allocator_set(const qn_allocator *allocator)
{
  if (allocator)
    qn_require(allocator->allocate && allocator->release, "allocator: %s is NULL, both functions must be given",
               allocator->allocate ? "release" : "allocate");
  in_force = allocator ? *allocator : system_allocator;
  return QN_OK;
}

static header *header_of(void *memory) { return (header *)((char *)memory - sizeof(header)); }

void *qn_allocate_aligned(size_t bytes, size_t alignment)
{
  size_t total;
  if (alignment < ALIGNMENT) alignment = ALIGNMENT;
  if (__builtin_add_overflow(bytes, alignment, &total)) return NULL;
  const qn_allocator from = in_force;
  char *base = from.allocate(from.user, total, alignment);
  if (!base) return NULL;
  void *memory = base + alignment;
  *header_of(memory) = (header){base, total, bytes, from.release, from.user};
  return memory;
}

void *qn_allocate(size_t bytes) { return qn_allocate_aligned(bytes, ALIGNMENT); }

void *qn_allocate_zero(size_t count, size_t bytes)
{
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) return NULL;
  void *memory = qn_allocate(total);
  return memory ? memset(memory, 0, total) : NULL;
}

void *qn_reallocate(void *memory, size_t bytes)
{
  void *larger = qn_allocate(bytes);
  if (!larger || !memory) return larger;
  size_t old = header_of(memory)->bytes;
  memcpy(larger, memory, old < bytes ? old : bytes);
  qn_release(memory);
  return larger;
}

void qn_release(void *memory)
{
  if (!memory) return;
  header h = *header_of(memory);
  h.release(h.user, h.base, h.total);
}

char *qn_duplicate(const char *text)
{
  size_t bytes = strlen(text) + 1;
  char *copy = qn_allocate(bytes);
  return copy ? memcpy(copy, text, bytes) : NULL;
}

qn_status qn_try_allocate(void *pointer_to_pointer, size_t bytes, const char *what)
{
  void *memory = qn_allocate(bytes);
  memcpy(pointer_to_pointer, &memory, sizeof memory);
  return memory ? QN_OK : qn_fail(QN_NO_MEMORY, "%s: %zu bytes could not be allocated", what, bytes);
}
