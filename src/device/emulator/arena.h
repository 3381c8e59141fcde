/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h - all that a running group of threads consists of: its state, and the memory that is kept from one run to the
 * next. group.c has the rules that change the state, arena.c the memory, fault.c the sentences when a group fails. */
#ifndef QN_DEVICE_EMULATOR_ARENA_H
#define QN_DEVICE_EMULATOR_ARENA_H
#include "device/emulator/fiber.h"
#include "device/emulator/emulator.h"

enum { QN_GROUP_THREADS = 1024, QN_GROUP_SIMDS = QN_GROUP_THREADS / QN_SIMD_LANES };

typedef struct qn_arena qn_arena;
typedef struct qn_simd qn_simd;

/* The results of a collective for its lanes. Each lane holds on to one until its next collective. */
typedef struct qn_result {
  unsigned char lane[QN_SIMD_LANES][16];
  qn_u32 took;
} qn_result;
typedef void (*qn_work)(unsigned char *all, qn_u32 took); /* of base/group.h's combine */

typedef struct qn_lane { /* the state of one fiber */
  qn_simd *simd;
  unsigned lane;
} qn_lane;

/* 32 threads. Bit k of a set is lane k. A live lane runs, is ready, or waits: in `gathered` or in `at_barrier`. */
struct qn_simd {
  qn_arena *group;
  unsigned number;
  qn_u32 live, ready, gathered, at_barrier;
  qn_u32 stale; /* fibers to be made before they run: new, or left in the middle */
  bool mixed;   /* those gathered wait for different collectives; else for this one: */
  uint64_t key_place;
  qn_u32 key_mask;
  uint64_t barrier_place;
  uint8_t held[QN_SIMD_LANES]; /* which result a live lane has that is in no collective */
  int line[QN_SIMD_LANES];     /* where a lane waits */
  qn_u32 mask[QN_SIMD_LANES];
  qn_work work[QN_SIMD_LANES];
  unsigned char mine[QN_SIMD_LANES][16];
  qn_fiber fiber[QN_SIMD_LANES];
  qn_lane self[QN_SIMD_LANES];
  qn_stacks stacks;
  qn_result result[QN_SIMD_LANES + 1]; /* in code that does not diverge only the first is used */
  void *slot[QN_SIMD_LANES][2];        /* of base/group.h */
};

/* Where a lane is: a line, with its chain of calls. */
static inline uint64_t qn_simd_place(const qn_simd *s, unsigned lane, int line)
{
  const qn_call_site *call = s->slot[lane][1];
  return __builtin_expect(call != NULL, 0) ? (uint32_t)line ^ (call->key << 32 ^ call->key) : (uint32_t)line;
}

typedef enum qn_group_fault { QN_GROUP_FAULT_NONE, QN_GROUP_FAULT_MASK, QN_GROUP_FAULT_DIVERGENT } qn_group_fault;

/* A group. Bit k of `ready` is simdgroup k: it has ready lanes, or may have some that can go on apart. */
struct qn_arena {
  qn_simd *at; /* whose lane runs */
  unsigned lane;
  qn_u32 ready;
  uint32_t threads, n_simds, live, waiting; /* threads at a barrier */
  bool sanitized;                           /* events are reported to the launch's sanitizer (sanitizer.h) */
  bool shuffled;                            /* simdgroups run in a random order */
  bool divergent;                           /* lanes of one simdgroup wait at barriers of different lines */
  uint64_t random;
  const qn_device_function *function;
  const qn_launch *launch;
  uint64_t block;
  void *shared;
  size_t shared_bytes, shared_room;
  qn_group_fault fault;
  int fault_line;
  qn_u32 fault_mask;
  qn_fiber home; /* who runs the blocks */
  unsigned n_made;
  qn_simd *simd[QN_GROUP_SIMDS];
};

/* ---- arena.c ---- */
/* With simdgroups for so many threads and so much shared memory; an idle one of before, or a new one. */
qn_status qn_arena_take(qn_arena **arena, uint32_t threads, uint32_t shared_bytes);
void qn_arena_give(qn_arena *arena);
/* Makes the fibers of this simdgroup that are stale and live. */
void qn_simd_refresh(qn_simd *simd);
/* QN_KERNEL_ERROR where a stack has overflowed. `all`: also look at stacks with guard pages. */
qn_status qn_arena_check(qn_arena *arena, bool all);

/* ---- group.c ---- */
void qn_group_fiber(void *user); /* of a qn_lane */

/* ---- fault.c ---- */
qn_status qn_group_explain(const qn_arena *arena); /* why live threads have not ended: QN_KERNEL_ERROR */
#endif
