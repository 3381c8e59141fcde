/* SPDX-License-Identifier: Apache-2.0 */
/* walls.c - see walls.h. */
#include "workbench/walls.h"
#include "core/core.h"
#include <sys/mman.h>
#include <unistd.h>

static bool has_walls(const qn_walled *w)
{
  return w->n && w->device.kind != QN_CUDA && QN_WALL % sysconf(_SC_PAGESIZE) == 0;
}

void qn_walled_add(qn_walled *w, size_t at)
{
  if (w->n < QN_WALLS_MOST) w->at[w->n++] = at;
}

static qn_status allocate(const qn_walled *w, void **memory)
{
  if (!has_walls(w)) return qn_memory_allocate(w->device, w->bytes, memory);
  void *at = mmap(NULL, w->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *memory = at == MAP_FAILED ? NULL : at;
  return *memory ? QN_OK : qn_fail(QN_NO_MEMORY, "no memory for %zu bytes with walls", w->bytes);
}

static void release(const qn_walled *w, void *memory)
{
  if (!has_walls(w))
    (void)qn_memory_release(w->device, memory);
  else if (memory)
    munmap(memory, w->bytes);
}

static void protect(const qn_walled *w, void *memory, int how)
{
  for (size_t k = 0; k < w->n && has_walls(w) && memory; k++) mprotect((char *)memory + w->at[k], QN_WALL, how);
}

qn_status qn_fence_create(qn_device device, bool fenced, size_t bytes, qn_fence *f)
{
  const size_t whole = (bytes + QN_WALL - 1) / QN_WALL * QN_WALL;
  const bool behind = fenced && device.kind != QN_CUDA && !f->walled.n;
  f->walled.device = device;
  f->walled.bytes = behind ? whole + QN_WALL : bytes;
  if (behind) qn_walled_add(&f->walled, whole);
  qn_try(allocate(&f->walled, &f->block));
  f->memory = (char *)f->block + (behind ? whole - bytes : 0);
  qn_fence_raise(f);
  return QN_OK;
}

void qn_fence_raise(const qn_fence *f) { protect(&f->walled, f->block, PROT_NONE); }
void qn_fence_lower(const qn_fence *f) { protect(&f->walled, f->block, PROT_READ | PROT_WRITE); }

void qn_fence_destroy(qn_fence *f)
{
  if (f->block) release(&f->walled, f->block);
  *f = (qn_fence){.memory = NULL};
}
