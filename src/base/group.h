/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - what a kernel on the processor asks of the executor of its group of threads (device/emulator/group.c), when
 * its threads are fibers: barriers, exchange within a simdgroup, dynamic shared memory; and what a checked or limited
 * build reports. One struct of function pointers, written by the loader into the variable `quern_group` that a kernel's
 * object exports if it needs it; so that the object links nothing. Read by C and by the kernel's C++. */
#ifndef QN_BASE_GROUP_H
#define QN_BASE_GROUP_H
#include "base/kernel.h"

enum { QN_SIMD_LANES = 32 };
/* The events that a checked build reports through `access`. FENCE: for the device, or (`bytes` 0) for the group. ENTER
 * and EXIT: a call, `address` being a qn_entered; DIVISION: an integer division that has no result; INDEX: an index
 * (`bytes`) outside its array; `address` is then the compiler's account of the place. MISPLACED: a pointer that its
 * type's alignment forbids, or that leads out of what it points into; `address` is a qn_misplaced. After INDEX and
 * DIVISION the thread does not go on, nor after an access outside the launch's memory or a misplaced one. LANE: the
 * thread has the value of lane `bytes` by a shuffle; ONE_LANE: by one that many lanes have alike; NO_LANE: that lane is
 * not there.
 */
enum {
  QN_ACCESS_READ,
  QN_ACCESS_WRITE,
  QN_ACCESS_ATOMIC, /* reads and writes */
  QN_ACCESS_ATOMIC_READ,
  QN_ACCESS_ATOMIC_WRITE,
  QN_ACCESS_EXCHANGE, /* an atomic that gives what was there, which may be nothing */
  QN_ACCESS_FENCE,
  QN_ACCESS_ENTER,
  QN_ACCESS_EXIT,
  QN_ACCESS_INDEX,
  QN_ACCESS_DIVISION,
  QN_ACCESS_MISPLACED,
  QN_ACCESS_LANE,
  QN_ACCESS_ONE_LANE,
  QN_ACCESS_NO_LANE,
  QN_ACCESS_OWN_READ, /* told of all memory, and looked at where it is the thread's own */
  QN_ACCESS_OWN_WRITE
};
typedef struct qn_entered {
  const void *from, *frame; /* the return address, and where it lies: {frame of the caller, return address} */
} qn_entered;
typedef struct qn_misplaced {
  const void *what, *at; /* the compiler's account, and the pointer */
} qn_misplaced;

/* A call that a thread is in. Words in it are at other places than in another call. */
typedef struct qn_call_site {
  const struct qn_call_site *up; /* the call around it */
  qn_u64 place, key;             /* its line in the upper half; a number made of this chain of calls */
} qn_call_site;

typedef struct qn_group_words {
  /* The thread waits for all threads of its group (simd 0), or for those of its simdgroup (simd 1), that have not
   * returned. line: of the text, 0 if unknown. */
  void (*barrier)(int simd, int line);
  /* A collective of the simdgroup: waits until every live lane (mask 0) or every live lane of `mask` is here, puts this
   * lane's `bytes` (1 to 16) at all + lane * 16, and returns the mask of lanes that took part. `all` stays valid until
   * this lane's next collective. Lanes that took no part read as zero. What happens to lanes in different branches
   * stands in group.c: with mask 0 those go together that wait at one `line` in one chain of calls. */
  qn_u32 (*exchange)(const void *mine, qn_u32 bytes, qn_u32 mask, int line, const unsigned char **all);
  /* The same, where the lanes want one value made of all of theirs: before any of them goes on, work(all, took) is
   * called once and may change what stands at `all`. Work that each lane would do by itself is then done once. It calls
   * none of these words. */
  qn_u32 (*combine)(const void *mine, qn_u32 bytes, qn_u32 mask, int line,
                    void (*work)(unsigned char *all, qn_u32 took), const unsigned char **all);
  /* Two pointers of this thread's own, at one address for as long as it lives, NULL at its beginning: one for the
   * kernel's use, and the innermost call that it is in (a qn_call_site). */
  void **(*slot)(void)__attribute__((const));
  void *(*shared)(void); /* this group's dynamic shared memory, 128-byte aligned */
  /* Checked and limited builds. kind: QN_ACCESS_... place: the return address in the kernel's object. */
  void (*access)(const void *address, qn_u32 bytes, int kind, const void *place);
  void (*tick)(const void *place); /* at every branch: counts, and leaves the thread when the limit has passed */
} qn_group_words;

/* A fiber's body: thread `thread` of block `block`. Exported by an object as NAME_thread where a kernel needs a group;
 * NAME then is not called. */
typedef void qn_group_thread(const void *argument, qn_u64 block, qn_u64 blocks, qn_u32 thread, qn_u32 threads);
#endif
