/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c - the memory of running groups. An arena is made for the first group that finds none idle, grows by
 * simdgroups, and is kept for the next, since its stacks' pages are what costs; there are at most as many as groups
 * ever ran at once. */
#include "device/emulator/arena.h"
#include <stdatomic.h>

enum { MOST_IDLE = 128 };
static _Atomic(qn_arena *) idle[MOST_IDLE]; /* no lock: a fork may come at any time */

static qn_arena *take_idle(void)
{
  for (int k = 0; k < MOST_IDLE; k++) {
    if (!atomic_load_explicit(&idle[k], memory_order_relaxed)) continue;
    qn_arena *found = atomic_exchange(&idle[k], NULL);
    if (found) return found;
  }
  return NULL;
}

static void destroy(qn_arena *arena)
{
  for (unsigned k = 0; k < arena->n_made; k++) {
    for (int lane = 0; lane < QN_SIMD_LANES; lane++) qn_fiber_free(&arena->simd[k]->fiber[lane]);
    qn_stacks_free(&arena->simd[k]->stacks);
    qn_release(arena->simd[k]);
  }
  qn_release(arena->shared);
  qn_release(arena);
}

void qn_arena_give(qn_arena *arena)
{
  for (int k = 0; k < MOST_IDLE; k++) {
    qn_arena *none = NULL;
    if (atomic_compare_exchange_strong(&idle[k], &none, arena)) return;
  }
  destroy(arena);
}

static qn_status add_simd(qn_arena *arena)
{
  qn_simd *made = qn_allocate_zero(1, sizeof *made);
  if (!made) return qn_fail(QN_NO_MEMORY, "the state of a simdgroup: %zu bytes could not be allocated", sizeof *made);
  qn_status status = qn_stacks_make(&made->stacks, QN_SIMD_LANES);
  if (status != QN_OK) {
    qn_release(made);
    return status;
  }
  made->group = arena;
  made->number = arena->n_made;
  made->stale = ~UINT32_C(0);
  for (unsigned lane = 0; lane < QN_SIMD_LANES; lane++) made->self[lane] = (qn_lane){made, lane};
  arena->simd[arena->n_made++] = made;
  return QN_OK;
}

static qn_status prepare(qn_arena *arena, uint32_t threads, uint32_t shared_bytes)
{
  arena->threads = threads;
  arena->n_simds = (threads + QN_SIMD_LANES - 1) / QN_SIMD_LANES;
  while (arena->n_made < arena->n_simds) qn_try(add_simd(arena));
  if (shared_bytes > arena->shared_room) {
    void *larger = qn_allocate_aligned(shared_bytes, 128);
    if (!larger) return qn_fail(QN_NO_MEMORY, "a group's shared memory: %u bytes could not be allocated", shared_bytes);
    qn_release(arena->shared);
    arena->shared = larger;
    arena->shared_room = shared_bytes;
  }
  arena->shared_bytes = shared_bytes;
  qn_fiber_adopt(&arena->home);
  return QN_OK;
}

qn_status qn_arena_take(qn_arena **arena, uint32_t threads, uint32_t shared_bytes)
{
  qn_arena *found = take_idle();
  if (!found) found = qn_allocate_zero(1, sizeof *found);
  if (!found) return qn_fail(QN_NO_MEMORY, "the state of a group: %zu bytes could not be allocated", sizeof *found);
  qn_status status = prepare(found, threads, shared_bytes);
  if (status == QN_OK)
    *arena = found;
  else
    qn_arena_give(found);
  return status;
}

void qn_simd_refresh(qn_simd *simd)
{
  for (qn_u32 left = simd->stale & simd->live; left; left &= left - 1) {
    const unsigned lane = (unsigned)__builtin_ctz(left);
    qn_fiber_make(&simd->fiber[lane], qn_stacks_at(&simd->stacks, lane), QN_STACK_BYTES, qn_group_fiber,
                  &simd->self[lane]);
  }
  simd->stale &= ~simd->live;
}

/* Below an overflown stack lies another thread's stack, so the whole group is lost. */
static qn_status overflown(qn_arena *arena, const qn_simd *simd, unsigned lane)
{
  for (unsigned k = 0; k < arena->n_made; k++) {
    arena->simd[k]->stale = ~UINT32_C(0);
    qn_stacks_mark(&arena->simd[k]->stacks);
  }
  return qn_fail(
      QN_KERNEL_ERROR,
      "kernel %s: thread %u of a group has used more than the %d KiB of its stack: arrays of its own that are "
      "too large, or functions that call each other too deep",
      arena->function->name, simd->number * QN_SIMD_LANES + lane, QN_STACK_BYTES / 1024);
}

qn_status qn_arena_check(qn_arena *arena, bool all)
{
  for (unsigned k = 0; k < arena->n_simds; k++) {
    const qn_simd *simd = arena->simd[k];
    if (simd->stacks.guarded && !all) continue;
    for (unsigned lane = 0; lane < QN_SIMD_LANES && k * QN_SIMD_LANES + lane < arena->threads; lane++)
      if (!qn_stacks_whole(&simd->stacks, lane)) return overflown(arena, simd, lane);
  }
  return QN_OK;
}
