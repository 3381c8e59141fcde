/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizer.h - a sanitized launch on the emulator: a time limit, or checks of every access against the arrays of the
 * launch and against what other threads did (shadow.c). Kernels built with the callbacks of kernel/dialect/sanitizer.h
 * report accesses and branches; the executor (group.c) reports what its threads wait for; the launch's owner gives the
 * arrays and gets the findings. Everything here but qn_sanitizer_create and qn_sanitizer_end is called by the executor,
 * on the OS thread that runs the group. Sanitized kernels always run as fibers, so that a thread can be left at any
 * access or branch; checked launches run on the caller's thread alone, so that reports do not depend on the pool. */
#ifndef QN_DEVICE_EMULATOR_SANITIZER_H
#define QN_DEVICE_EMULATOR_SANITIZER_H
#include "device/emulator/emulator.h"
#include "quern/kernel.h"

/* ---- by the launch's owner ---- */
typedef struct qn_sanitizer_array {
  const char *name;
  const void *data;
  size_t bytes;           /* from data to the last element's end */
  uint32_t element_bytes; /* 1, 2, 4 or 8 */
  bool writable;          /* an output, or an input whose memory an output has */
  bool initialised;       /* an input, an output with an init value or in place; others may not be read before written,
                             and must be written */
} qn_sanitizer_array;
typedef struct qn_sanitizer_plan {
  const char *kernel, *file; /* names of the kernel and its body in messages */
  const qn_device_function *function;
  size_t n_arrays;
  const qn_sanitizer_array *arrays;
  uint64_t grid[3]; /* threads */
  uint32_t group[3];
  bool full_groups; /* CUDA's dialect: threads of a group at an edge are numbered by the full group's sizes */
  bool may_return;  /* CUDA's: a barrier waits for threads that have not returned, and it is no fault to have */
  bool check;
  int64_t limit_ns; /* 0: none; it begins when the sanitizer is made */
  uint64_t seed;    /* 0: simdgroups in order; others: a random one */
  uint32_t ignored; /* bits of qn_finding_kind */
} qn_sanitizer_plan;
/* The plan and its arrays' list are copied, names and all. */
qn_status qn_sanitizer_create(qn_sanitizer **sanitizer, const qn_sanitizer_plan *plan);
/* The end of the launch whose status this is: keeps the findings for this thread's qn_kernel_finding_count() and frees
 * the sanitizer. With findings it is QN_KERNEL_ERROR and the first one's sentence; else `launched`. */
qn_status qn_sanitizer_end(qn_sanitizer **sanitizer, qn_status launched);
/* The flags (NULL-terminated, static) that such a unit needs for the compiler in force; QN_UNSUPPORTED if that one is
 * too old. The unit includes "kernel/dialect/sanitizer.h". */
qn_status qn_sanitizer_flags(bool check, const char *const **flags);
/* The flags by which it refuses functions of fibers with more than this on their stacks, which have little more. */
#define QN_FRAME_BYTES 57344
qn_status qn_fiber_flags(const char *const **flags);

/* ---- by the executor; each does nothing where the launch is not checked ---- */
uint64_t qn_sanitizer_seed(const qn_sanitizer *sanitizer);
/* A group begins on this OS thread. False: time is up, and the group is not to be run. */
bool qn_sanitizer_group_begin(qn_sanitizer *sanitizer, const qn_launch *launch, uint64_t block, void *shared);
void qn_sanitizer_group_end(void);
/* Memory of the executor that kernels may read and write: collectives' lanes, threads' slots. After group_begin. */
void qn_sanitizer_allow(const void *begin, size_t bytes);
/* Between the two, code of the kernel runs that is no thread's: nothing is looked at. */
qn_sanitizer *qn_sanitizer_pause(void);
void qn_sanitizer_resume(qn_sanitizer *sanitizer);
/* Thread `thread` of the group runs now, on this stack. */
void qn_sanitizer_switch(uint32_t thread, const void *stack, size_t stack_bytes);
typedef enum qn_wait {
  QN_WAIT_GROUP,
  QN_WAIT_SIMD,      /* at the simdgroup's barrier, which is for all its lanes */
  QN_WAIT_COLLECTIVE /* without a mask: for those that are here together, as Metal defines its reductions */
} qn_wait;
/* The running thread waits, in a collective for the lanes of mask. key: its line and chain of calls, as group.c
 * compares them; place: where in the object it does, since a line alone may be the header's. */
void qn_sanitizer_wait(qn_wait what, int line, uint64_t key, uint32_t mask, const void *place);
/* Those who waited go on: all of the group that are neither gone nor left (simd -1), or `lanes` of simdgroup `simd`. */
void qn_sanitizer_pass(int simd, uint32_t lanes);
/* The running thread returned from its body by itself. */
void qn_sanitizer_return(void);

/* ---- what the executor provides: the running thread is left for good, as if it had returned ---- */
_Noreturn void qn_group_leave(void);

/* ---- qn_group_words.access and .tick ---- */
void qn_sanitizer_access(const void *address, qn_u32 bytes, int kind, const void *place);
void qn_sanitizer_tick(const void *place);
#endif
