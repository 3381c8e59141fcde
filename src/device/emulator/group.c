/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - runs kernels whose threads need each other: the threads of a block are fibers on one OS thread, and the
 * words of base/group.h switch among them. The memory for it is arena.c's; the pool is emulator.c's.
 *
 * The rules. A thread runs until it waits or returns. Then the next ready lane of its simdgroup runs, by number, and
 * only when none can go on, the next simdgroup; so the order, and with it every result, is the kernel's alone.
 *   A place is a line and the chain of calls by which it was reached (qn_call_site).
 *   Barrier of the group: passed when every thread that has not returned waits at one. Lanes of one simdgroup must wait
 *     at the same place, as PTX asks of the lanes of a warp; simdgroups may wait at different ones.
 *   Collective without a mask: all live lanes of the simdgroup, once they wait at the same place. Where some of them
 *     wait elsewhere (at another place, at a barrier of the group) or in vain, and so no lane of the simdgroup can run,
 *     those at the first place in the text go on by themselves, the outermost call deciding: code that lanes reach in a
 *     branch stands before the place where the branches meet. The simdgroup's own barrier is a collective of no bytes.
 *   Collective with a mask: all live lanes of the mask, which name the same mask, on whatever lines (PTX's rule for
 *     shfl.sync).
 *   A thread that returned, or was left, is counted nowhere any more.
 *   When no thread can go on and some wait, the launch fails with a sentence that says who waits where. A thread that
 *     turns in a loop until another one writes waits for ever: fibers do not interrupt each other. */
#include "device/emulator/arena.h"
#include "device/emulator/sanitizer.h"
#include <string.h>

typedef qn_arena arena; /* in this file an arena is the group that runs in it */
typedef qn_simd simd;

static _Thread_local arena
    *running; /* read before a switch and never after: the kernel's side may be another thread's */

enum { MOST_CALLS = 64 };

static inline qn_u32 bit_of(unsigned lane) { return UINT32_C(1) << lane; }

/* ---- who runs next ---- */
static void complete(simd *s, qn_u32 took);

/* The places that lead to where a lane waits, outermost first. Returns how many. */
static unsigned way_of(const simd *s, unsigned lane, uint64_t *way)
{
  unsigned n = 0, depth = 0;
  for (const qn_call_site *c = s->slot[lane][1]; c; c = c->up) depth++;
  for (const qn_call_site *c = s->slot[lane][1]; c; c = c->up)
    if (--depth < MOST_CALLS) way[depth] = c->place, n = n ? n : depth + 1;
  way[n++] = (uint64_t)(uint32_t)s->line[lane] << 32;
  return n;
}

/* Lane a waits before lane b in the text. */
static bool is_before(const simd *s, unsigned a, unsigned b)
{
  uint64_t way[MOST_CALLS + 1], other[MOST_CALLS + 1];
  const unsigned n = way_of(s, a, way), n_other = way_of(s, b, other);
  for (unsigned k = 0; k < n && k < n_other; k++)
    if (way[k] != other[k]) return way[k] < other[k];
  return n < n_other;
}

/* No lane of s can run: may some that wait in collectives go on without the others? */
__attribute__((noinline)) static bool go_on_apart(simd *s)
{
  qn_u32 open = s->gathered, lowest = 0;
  for (qn_u32 left = open, same; left; left &= ~same) {
    const unsigned lane = (unsigned)__builtin_ctz(left);
    const qn_u32 mask = s->mask[lane];
    same = 0;
    for (unsigned k = lane; k < QN_SIMD_LANES; k++)
      if (left & bit_of(k) && s->mask[k] == mask &&
          (mask || qn_simd_place(s, k, s->line[k]) == qn_simd_place(s, lane, s->line[lane])))
        same |= bit_of(k);
    if (mask && same == (mask & s->live)) {
      complete(s, same);
      return true;
    }
    if (!mask && (!lowest || is_before(s, lane, (unsigned)__builtin_ctz(lowest)))) lowest = same;
  }
  if (lowest) complete(s, lowest);
  return lowest != 0;
}

/* A random number for the order of simdgroups: splitmix64. */
static uint64_t next_random(arena *g)
{
  uint64_t z = g->random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static simd *pick_simd(arena *g)
{
  qn_u32 ready = g->ready;
  if (g->shuffled)
    for (uint64_t skip = next_random(g) % (unsigned)__builtin_popcount(ready); skip; skip--) ready &= ready - 1;
  return g->simd[__builtin_ctz(ready)];
}

/* The simdgroup whose lane runs next; NULL: nobody can. */
static simd *next_simd(arena *g)
{
  while (g->ready) {
    simd *s = pick_simd(g);
    if (s->ready || go_on_apart(s)) return s;
    g->ready &= ~bit_of(s->number);
  }
  return NULL;
}

static void run_lane(arena *g, simd *s)
{
  const unsigned lane = (unsigned)__builtin_ctz(s->ready);
  s->ready &= s->ready - 1;
  g->at = s;
  g->lane = lane;
  if (g->sanitized)
    qn_sanitizer_switch(s->number * QN_SIMD_LANES + lane, s->fiber[lane].stack, s->fiber[lane].stack_bytes);
}

/* The running thread waits, or has ended: the next one runs. With nobody left, or nobody who can, the caller does. */
static inline void yield(arena *g, bool ends)
{
  simd *from = g->at, *to = from->ready && !g->shuffled ? from : next_simd(g);
  qn_fiber *fiber = &from->fiber[g->lane];
  if (!to) {
    g->at = NULL;
    qn_fiber_switch(fiber, &g->home, ends);
    return;
  }
  run_lane(g, to);
  qn_fiber *next = &to->fiber[g->lane];
  if (next != fiber) qn_fiber_switch(fiber, next, ends);
}

/* ---- collectives ---- */
/* A result that no lane reads any more. Lanes that wait in a collective have done with theirs; where all live lanes
 * take part that is every one. */
static unsigned free_result(const simd *s, qn_u32 took)
{
  uint64_t used = 0;
  for (qn_u32 left = s->live & ~s->gathered & ~took; left; left &= left - 1)
    used |= UINT64_C(1) << s->held[__builtin_ctz(left)];
  return (unsigned)__builtin_ctzll(~used);
}

/* The lanes `took`, all of which wait, have what they waited for. */
static void complete(simd *s, qn_u32 took)
{
  if (s->group->sanitized) qn_sanitizer_pass((int)s->number, took);
  const unsigned k = took == s->live ? 0 : free_result(s, took);
  qn_result *result = &s->result[k];
  const qn_work work = s->work[__builtin_ctz(took)];
  memcpy(result->lane, s->mine, sizeof result->lane);
  result->took = took;
  for (qn_u32 left = ~took; left; left &= left - 1) memset(result->lane[__builtin_ctz(left)], 0, sizeof *result->lane);
  if (work) {
    qn_sanitizer *sanitizer =
        s->group->sanitized ? qn_sanitizer_pause() : NULL; /* nobody may be left in the middle of this */
    work(result->lane[0], took);
    if (sanitizer) qn_sanitizer_resume(sanitizer);
  }
  if (took == s->live)
    memset(s->held, 0, sizeof s->held);
  else
    for (qn_u32 left = took; left; left &= left - 1) s->held[__builtin_ctz(left)] = (uint8_t)k;
  s->gathered &= ~took;
  s->ready |= took;
  s->mixed = s->gathered != 0; /* the first of those that stay may not be who began */
}

static inline void put(unsigned char *to, const void *from, qn_u32 bytes)
{
  switch (bytes) {
  case 4: memcpy(to, from, 4); break;
  case 8: memcpy(to, from, 8); break;
  case 16: memcpy(to, from, 16); break;
  default: memcpy(to, from, bytes);
  }
}

/* The group ends here, with its fault; the running thread does not come back. */
static _Noreturn void fail(arena *g, qn_group_fault fault, int line, qn_u32 mask)
{
  g->fault = fault;
  g->fault_line = line;
  g->fault_mask = mask;
  g->at->stale |= bit_of(g->lane);
  qn_fiber_switch(&g->at->fiber[g->lane], &g->home, true);
  __builtin_unreachable();
}

/* The running lane comes to a collective, and leaves it with result[held]. */
static inline void collect(arena *g, simd *s, qn_u32 mask, int line, qn_work work)
{
  const unsigned lane = g->lane;
  const uint64_t place = qn_simd_place(s, lane, line);
  if (!s->gathered) {
    s->key_place = place;
    s->key_mask = mask;
    s->mixed = false;
  } else if (mask != s->key_mask || (!mask && place != s->key_place))
    s->mixed = true;
  s->line[lane] = line;
  s->mask[lane] = mask;
  s->work[lane] = work;
  s->gathered |= bit_of(lane);
  if (!s->mixed && s->gathered == (mask ? mask & s->live : s->live)) {
    complete(s, s->gathered);
    s->ready &= ~bit_of(lane);
  } else {
    yield(g, false);
  }
}

static inline __attribute__((always_inline)) qn_u32 meet(const void *mine, qn_u32 bytes, qn_u32 mask, int line,
                                                         qn_work work, const unsigned char **all, const void *place)
{
  arena *g = running;
  simd *s = g->at;
  const unsigned lane = g->lane;
  if (g->sanitized) qn_sanitizer_wait(QN_WAIT_COLLECTIVE, line, qn_simd_place(s, lane, line), mask, place);
  if (mask && !(mask & bit_of(lane))) fail(g, QN_GROUP_FAULT_MASK, line, mask);
  put(s->mine[lane], mine, bytes);
  collect(g, s, mask, line, work);
  const qn_result *result = &s->result[s->held[lane]];
  *all = result->lane[0];
  return result->took;
}

static qn_u32 combine(const void *mine, qn_u32 bytes, qn_u32 mask, int line, qn_work work, const unsigned char **all)
{
  return meet(mine, bytes, mask, line, work, all, __builtin_return_address(0));
}

static qn_u32 exchange(const void *mine, qn_u32 bytes, qn_u32 mask, int line, const unsigned char **all)
{
  return meet(mine, bytes, mask, line, NULL, all, __builtin_return_address(0));
}

/* ---- barriers ---- */
/* All threads of the group wait, but for those that have returned: they go on. */
static void pass_barrier(arena *g)
{
  if (g->sanitized) qn_sanitizer_pass(-1, 0);
  if (g->divergent) fail(g, QN_GROUP_FAULT_DIVERGENT, 0, 0);
  for (unsigned k = 0; k < g->n_simds; k++) {
    simd *s = g->simd[k];
    if (!s->at_barrier) continue;
    s->ready |= s->at_barrier;
    s->at_barrier = 0;
    g->ready |= bit_of(k);
  }
  g->waiting = 0;
}

static void barrier_of_group(arena *g, int line)
{
  simd *s = g->at;
  const unsigned lane = g->lane;
  const uint64_t place = qn_simd_place(s, lane, line);
  if (!s->at_barrier)
    s->barrier_place = place;
  else if (s->barrier_place != place)
    g->divergent = true;
  s->line[lane] = line;
  s->at_barrier |= bit_of(lane);
  if (++g->waiting == g->live) {
    pass_barrier(g);
    if (!g->shuffled) {
      s->ready &= ~bit_of(lane);
      return;
    }
  }
  yield(g, false);
}

static void barrier(int simd_only, int line)
{
  arena *g = running;
  const uint64_t at = qn_simd_place(g->at, g->lane, line);
  if (g->sanitized)
    qn_sanitizer_wait(simd_only ? QN_WAIT_SIMD : QN_WAIT_GROUP, line, at, 0, __builtin_return_address(0));
  if (simd_only)
    collect(g, g->at, 0, line, NULL);
  else
    barrier_of_group(g, line);
}

static void *shared(void) { return running->shared; }

__attribute__((const)) static void **slot(void)
{
  arena *g = running;
  return g->at->slot[g->lane];
}

/* ---- a thread's life ---- */
static void thread_ends(arena *g, bool left)
{
  simd *s = g->at;
  if (g->sanitized && !left) qn_sanitizer_return();
  s->live &= ~bit_of(g->lane);
  if (left) s->stale |= bit_of(g->lane);
  if (--g->live && g->waiting == g->live) pass_barrier(g);
  yield(g, left);
}

/* A fiber runs its lane of one block after the other. */
void qn_group_fiber(void *user)
{
  const qn_lane *self = user;
  simd *s = self->simd;
  const unsigned lane = self->lane;
  for (;;) {
    arena *g = s->group;
    const qn_launch *l = g->launch;
    s->slot[lane][0] = s->slot[lane][1] = NULL;
#ifdef QN_FIBER_UCONTEXT
    qn_fp_enter(); /* swapcontext has brought the word that this fiber left with */
#endif
    g->function->thread(l->argument, g->block, l->blocks, s->number * QN_SIMD_LANES + lane, g->threads);
    thread_ends(g, false);
  }
}

_Noreturn void qn_group_leave(void)
{
  thread_ends(running, true);
  __builtin_unreachable();
}

const qn_group_words qn_group_table = {.barrier = barrier,
                                       .exchange = exchange,
                                       .combine = combine,
                                       .slot = slot,
                                       .shared = shared,
                                       .access = qn_sanitizer_access,
                                       .tick = qn_sanitizer_tick};

/* ---- blocks ---- */
static void begin_block(arena *g, uint64_t block)
{
  const uint32_t rest = g->threads % QN_SIMD_LANES;
  g->block = block;
  g->live = g->threads;
  g->waiting = 0;
  g->fault = QN_GROUP_FAULT_NONE;
  g->divergent = false;
  g->ready = g->n_simds == 32 ? ~UINT32_C(0) : bit_of(g->n_simds) - 1;
  for (unsigned k = 0; k < g->n_simds; k++) {
    simd *s = g->simd[k];
    s->live = s->ready = k + 1 == g->n_simds && rest ? bit_of(rest) - 1 : ~UINT32_C(0);
    s->gathered = s->at_barrier = 0;
    qn_simd_refresh(s);
  }
  if (g->shared_bytes) memset(g->shared, 0, g->shared_bytes);
}

/* False: the launch is to end here. */
static bool begin_sanitized(arena *g, uint64_t block)
{
  const qn_launch *l = g->launch;
  g->random = qn_sanitizer_seed(l->sanitizer) ^ block * UINT64_C(0xd6e8feb86659fd93);
  if (!qn_sanitizer_group_begin(l->sanitizer, l, block, g->shared)) return false;
  for (unsigned k = 0; k < g->n_simds; k++) qn_sanitizer_allow(g->simd[k], sizeof *g->simd[k]);
  return true;
}

static qn_status run_block(arena *g, uint64_t block)
{
  if (g->sanitized && !begin_sanitized(g, block)) return QN_OK;
  begin_block(g, block);
  qn_fp_enter(); /* whatever the block before did to the control word */
  run_lane(g, pick_simd(g));
  qn_fiber_switch(&g->home, &g->at->fiber[g->lane], false);
  qn_status status = g->live ? qn_group_explain(g) : QN_OK;
  for (unsigned k = 0; k < g->n_simds && g->live; k++) g->simd[k]->stale |= g->simd[k]->live;
  return status == QN_OK ? qn_arena_check(g, false) : status;
}

qn_status qn_group_run(const qn_device_function *function, const qn_launch *launch, uint64_t first, uint64_t last)
{
  arena *g, *outer = running;
  qn_try(qn_arena_take(&g, launch->threads, launch->shared_bytes));
  const qn_fp_word word = qn_fp_enter();
  qn_status status = QN_OK;
  g->function = function;
  g->launch = launch;
  g->sanitized = launch->sanitizer != NULL;
  g->shuffled = qn_sanitizer_seed(launch->sanitizer) != 0;
  running = g;
  for (uint64_t block = first; block < last && status == QN_OK; block++) status = run_block(g, block);
  if (status == QN_OK) status = qn_arena_check(g, true);
  if (g->sanitized) qn_sanitizer_group_end();
  running = outer;
  qn_fp_leave(word);
  qn_arena_give(g);
  return status;
}
