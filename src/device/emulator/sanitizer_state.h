/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizer_state.h - the inside of a sanitizer, shared by sanitizer.c (its life, and what the executor tells),
 * shadow.c (accesses), order.c (who is ordered behind whom), stops.c (what the compiler and the stack tell), report.c
 * (findings as sentences) and object.c (a sanitized kernel's object). For no other file. */
#ifndef QN_DEVICE_EMULATOR_SANITIZER_STATE_H
#define QN_DEVICE_EMULATOR_SANITIZER_STATE_H
#include "core/core.h"
#include "device/emulator/sanitizer.h"
#include <stdatomic.h>

enum {
  QN_SANITIZER_THREADS = 1024, /* of a group */
  QN_SANITIZER_SIMDS = QN_SANITIZER_THREADS / QN_SIMD_LANES,
  QN_SANITIZER_RAW = 256, /* findings by their places in the object; several may be one line */
  QN_SANITIZER_KEPT = 16, /* findings by their lines: these the caller gets */
  QN_SANITIZER_ARRAYS =
      192, /* arrays and other memory of a launch: tensors, the object's segments, stacks, and of them */
  QN_SANITIZER_OWN_ARRAYS = 128, /* a kernel's own threadgroup arrays, beyond which it is not loaded to be sanitized */
  QN_SANITIZER_CALLS = 4096,     /* distinct chains of calls */
  QN_SANITIZER_SITES = 1024,
  QN_SANITIZER_BEFORE = 3,
  QN_SANITIZER_NESTING = 128,     /* and how deep */
  QN_SANITIZER_STACK_SPARE = 8192 /* a call that begins with less than this left is not made */
};

/* A place in the kernel: the return address's offset in the object, and the chain of calls it was reached by. */
typedef uint32_t qn_sanitizer_place;
enum { QN_PLACE_OFFSET_BITS = 20 };

/* ---- object.c: what a sanitized kernel's shared object says of itself ---- */
typedef struct qn_emulator_array {
  char name[48];
  size_t offset, bytes; /* in the thread-local block, from the anchor */
  bool inner;           /* the compiler's own: whether an array was initialised */
} qn_emulator_array;
typedef struct qn_emulator_segment {
  uintptr_t begin, end;
  bool writable;
} qn_emulator_segment;
typedef struct qn_emulator_object qn_emulator_object;
struct qn_emulator_object {
  void *image; /* a copy, for the lines in it */
  size_t image_bytes;
  uintptr_t base;
  char *(*anchor)(void); /* a thread-local variable of it */
  size_t n_segments, n_arrays;
  qn_emulator_segment segment[8];
  qn_emulator_array *array; /* its threadgroup arrays */
};
/* NULL and QN_OK for an object that was not built to be sanitized. */
qn_status qn_emulator_object_make(qn_emulator_object **object, void *handle, const void *image, size_t bytes);

/* ---- shadow.c ---- */
/* One access that a cell remembers. */
typedef struct qn_shadow_slot {
  uint64_t time : 40; /* 0: none */
  uint64_t mask : 8;  /* bytes of the cell */
  uint64_t thread : 10;
  uint64_t write : 1, atomic : 1;
  uint32_t block;
  qn_sanitizer_place place;
} qn_shadow_slot;

typedef enum qn_region_kind {
  QN_REGION_ARRAY,
  QN_REGION_THREADGROUP, /* a threadgroup array, or a group's dynamic shared memory */
  QN_REGION_OTHER        /* the argument, the object's own data, the executor's */
} qn_region_kind;
typedef struct qn_region {
  uintptr_t begin, end;
  const char *name;
  qn_region_kind kind;
  uint8_t grain, slots; /* bytes of a cell, accesses that it remembers */
  bool writable, initialised;
  uint32_t element_bytes;
  qn_shadow_slot *shadow; /* NULL: nobody writes there */
  uint8_t *written;       /* a bit a byte; NULL: all of it is */
  bool touched;           /* threadgroup memory: by this group */
} qn_region;

/* ---- findings, raw ---- */
typedef enum qn_sanitizer_wrong {
  QN_WRONG_READ_OUTSIDE,
  QN_WRONG_WRITE_OUTSIDE,
  QN_WRONG_WRITE_INPUT,
  QN_WRONG_INDEX,
  QN_WRONG_OWN, /* outside of the thread's own arrays */
  QN_WRONG_ALIGNMENT,
  QN_WRONG_ABSENT,
  QN_WRONG_STACK,
  QN_WRONG_DIVISION,
  QN_WRONG_RACE,
  QN_WRONG_SAME,     /* a race of writes of equal values */
  QN_WRONG_RETURNED, /* before a barrier */
  QN_WRONG_BARRIERS, /* two of them */
  QN_WRONG_LANES,
  QN_WRONG_UNINITIALISED,
  QN_WRONG_NOT_WRITTEN,
  QN_WRONG_TIME
} qn_sanitizer_wrong;
typedef struct qn_raw_finding {
  qn_sanitizer_wrong fault;
  bool write, other_write; /* a race's accesses */
  uint16_t thread, other_thread;
  uint32_t lanes;       /* that took part; a missing element's bytes; an alignment; a lane that was not there */
  int line, other_line; /* where known without the object: barriers, indices */
  qn_sanitizer_place place, other_place; /* 0: none */
  qn_sanitizer_place
      before[QN_SANITIZER_BEFORE]; /* branches before the latter (before the former where time ran out) */
  uint64_t block, other_block;
  const char *where; /* the array's name; lives as long as the sanitizer or the object */
  int64_t first, last, array_bytes;
  uint64_t count; /* how often */
} qn_raw_finding;

/* A race of two writes, until the second is made and shows whether it changed anything. */
typedef struct qn_late_finding {
  qn_raw_finding raw;
  uintptr_t at;
  unsigned char was[8];
} qn_late_finding;

typedef enum qn_thread_state {
  QN_THREAD_RUNS, /* or has not begun */
  QN_THREAD_WAITS,
  QN_THREAD_WAITS_SIMD,
  QN_THREAD_RETURNED,
  QN_THREAD_LEFT,  /* by us */
  QN_THREAD_ABSENT /* none, at the grid's edge */
} qn_thread_state;
typedef struct qn_sanitized_thread {
  uint8_t state;
  uint16_t depth; /* calls that it is in */
  uint16_t chain[QN_SANITIZER_NESTING];
  int line; /* where it waits */
  uint64_t key;
  bool together;            /* in a collective for whoever is there */
  qn_sanitizer_place stray; /* the shuffle that gave it the value of an absent lane; 0: none did */
  uint8_t stray_lane;
  uint32_t strays;                       /* of its simdgroup's lanes, when it met them last, those with such a value */
  uintptr_t frame[QN_SANITIZER_NESTING]; /* of its calls: where each return address lies */
  qn_sanitizer_place wait;
  uint32_t mask;                                    /* for whom */
  qn_sanitizer_place last[QN_SANITIZER_BEFORE + 1]; /* its latest branches, each other than the next */
  qn_sanitizer_place access;                        /* and its latest access */
  uint64_t fenced, fenced_far;                      /* when it last had a fence, and one for the device; 0: none */
} qn_sanitized_thread;

typedef struct qn_order qn_order;
struct qn_sanitizer {
  qn_sanitizer_plan plan;
  qn_sanitizer_array *array; /* with the names behind them */
  uint32_t blocks[3];
  int64_t deadline_ns; /* 0: none */
  atomic_bool expired;
  qn_sanitizer_place stopped[QN_SANITIZER_BEFORE + 1]; /* where the limit was noticed first, and branches before it */
  const qn_emulator_object *object;

  /* From here on only where the launch is checked: on one OS thread. */
  uint64_t block, now; /* the group that runs; a clock that grows whenever threads are ordered */
  uint32_t threads, thread;
  uintptr_t stack, stack_bytes;
  qn_sanitized_thread *at;   /* QN_SANITIZER_THREADS of them */
  size_t n_regions, n_fixed; /* sorted by address; those of all groups */
  qn_region region[QN_SANITIZER_ARRAYS];
  uint64_t group_time, simd_time[QN_SANITIZER_SIMDS]; /* when these were last ordered */
  uint64_t (*seen)[QN_SIMD_LANES]; /* per thread: up to when it saw each lane; NULL: no part of a simdgroup met alone */
  qn_order *order;                 /* by fences and atomics; NULL: there was no fence */
  bool order_unknown, left_any, left_here;
  uintptr_t site[QN_SANITIZER_SITES]; /* by a place's bits: the array that was last accessed from there */
  uint32_t chain_parent[QN_SANITIZER_CALLS], chain_offset[QN_SANITIZER_CALLS]; /* open addressing */
  size_t n_chains;
  size_t n_raw;
  size_t n_late; /* of the access that is being made */
  qn_late_finding late[32];
  bool lost; /* there were more */
  qn_raw_finding raw[QN_SANITIZER_RAW];
  qn_status failed; /* no memory for what is needed to look */
};

/* The group that this OS thread runs. */
typedef struct qn_sanitizer_here {
  qn_sanitizer *sanitizer;
  int ticks;                                      /* until the clock is looked at */
  const void *last, *before[QN_SANITIZER_BEFORE]; /* branches: the latest, and those before it that were others */
} qn_sanitizer_here;
extern _Thread_local qn_sanitizer_here qn_sanitizing;

qn_status qn_shadow_open(qn_sanitizer *sanitizer); /* the plan's arrays */
void qn_shadow_close(qn_sanitizer *sanitizer);
/* Memory of this group alone; QN_REGION_THREADGROUP is tracked. */
void qn_shadow_add(qn_sanitizer *sanitizer, const qn_region *region);
void qn_shadow_group(qn_sanitizer *sanitizer);                           /* another group: forget what was added */
qn_region *qn_shadow_region(qn_sanitizer *sanitizer, uintptr_t address); /* that holds it, or NULL */
void qn_shadow_access(qn_sanitizer *sanitizer, uintptr_t address, size_t bytes, int kind, qn_sanitizer_place place);
void qn_shadow_finish(qn_sanitizer *sanitizer); /* reports elements that no thread wrote */

void qn_shadow_settle(qn_sanitizer *sanitizer); /* the access before has been made */

/* ---- sanitizer.c ---- */
qn_sanitizer_place qn_sanitizer_place_of(const qn_sanitizer *sanitizer,
                                         const void *place);                /* with the running thread's calls */
void qn_sanitizer_note(qn_sanitizer *sanitizer, const qn_raw_finding *raw); /* once for each fault and pair of places */
_Noreturn void qn_sanitizer_leave(qn_sanitizer *sanitizer);                 /* the running thread */

/* ---- order.c: who is ordered behind whom ---- */
void qn_order_close(qn_sanitizer *sanitizer);
void qn_order_begin_group(qn_sanitizer *sanitizer);
void qn_order_meet(qn_sanitizer *sanitizer, uint32_t begin, uint32_t lanes); /* of a simdgroup */
void qn_order_fence(qn_sanitizer *sanitizer, bool far); /* far: for the device, else for the group */
void qn_order_atomic(qn_sanitizer *sanitizer, uintptr_t address, bool reads, bool writes);
bool qn_order_has(const qn_sanitizer *sanitizer, const qn_shadow_slot *slot); /* before the running thread */

/* ---- stops.c: what the compiler tells of, the thread's own stack, and lanes that are not there ---- */
void qn_stop_enter(qn_sanitizer *sanitizer, const void *place); /* the stack may be used up */
_Noreturn void qn_stop_told(qn_sanitizer *sanitizer, const void *what, int kind, uint32_t index, const void *place);
void qn_stop_misplaced(qn_sanitizer *sanitizer, const qn_misplaced *misplaced, const void *place);
void qn_stop_in_stack(qn_sanitizer *sanitizer, uintptr_t address, size_t bytes, int kind, const void *place);
void qn_stray_value(qn_sanitizer *sanitizer, uint32_t source, int kind, const void *place);
void qn_stray_meet(qn_sanitizer *sanitizer, uint32_t begin, uint32_t lanes);
void qn_stray_write(qn_sanitizer *sanitizer);

/* ---- report.c ---- */
size_t qn_report_make(qn_sanitizer *sanitizer, char *first,
                      size_t bytes); /* keeps findings for this thread; how many */
void qn_report_clear(void);
qn_finding_kind qn_sanitizer_kind(qn_sanitizer_wrong fault);
bool qn_sanitizer_exists(const qn_sanitizer *sanitizer, uint64_t block, uint32_t thread);
/* lines.c: the line of FILE for each place's chain of offsets */
typedef struct qn_line_query {
  uint32_t offset[QN_SANITIZER_NESTING]; /* innermost first; ends in 0 */
  int line;                              /* of the body; 0: unknown */
} qn_line_query;
/* Fills in the lines. False: there is no program that reads them. */
bool qn_lines_find(const qn_emulator_object *object, const char *file, qn_line_query *query, size_t n);
#endif
