/* SPDX-License-Identifier: Apache-2.0 */
/* watched.h - the inside of a watch, shared by watch.c (its life, and what the executor tells), shadow.c (accesses),
 * order.c (who is ordered behind whom), stops.c (what the compiler and the stack tell), report.c (findings as
 * sentences) and object.c (a watched kernel's object). For no other file. */
#ifndef QN_DEVICE_HOST_WATCHED_H
#define QN_DEVICE_HOST_WATCHED_H
#include "core/core.h"
#include "device/host/watch.h"
#include <stdatomic.h>

enum {
  QN_WATCH_THREADS = 1024, /* of a group */
  QN_WATCH_SIMDS = QN_WATCH_THREADS / QN_SIMD_LANES,
  QN_WATCH_RAW = 256,    /* findings by their places in the object; several may be one line */
  QN_WATCH_KEPT = 16,    /* findings by their lines: these the caller gets */
  QN_WATCH_ARRAYS = 192, /* arrays and other memory of a launch: tensors, the object's segments, stacks, and of them */
  QN_WATCH_OWN_ARRAYS = 128, /* a kernel's own threadgroup arrays, beyond which it is not loaded to be watched */
  QN_WATCH_CALLS = 4096,     /* chains of calls that are told apart */
  QN_WATCH_SITES = 1024,
  QN_WATCH_BEFORE = 3,
  QN_WATCH_NESTING = 128,     /* and how deep */
  QN_WATCH_STACK_SPARE = 8192 /* a call that begins with less than this left is not made */
};

/* A place in the kernel: the return address's offset in the object, and the chain of calls it was reached by. */
typedef uint32_t qn_watch_place;
enum { QN_PLACE_OFFSET_BITS = 20 };

/* ---- object.c: what a watched kernel's shared object says of itself ---- */
typedef struct qn_host_array {
  char name[48];
  size_t offset, bytes; /* in the thread-local block, from the anchor */
  bool inner;           /* the compiler's own: whether an array was initialised */
} qn_host_array;
typedef struct qn_host_segment {
  uintptr_t begin, end;
  bool writable;
} qn_host_segment;
typedef struct qn_host_object qn_host_object;
struct qn_host_object {
  void *image; /* a copy, for the lines in it */
  size_t image_bytes;
  uintptr_t base;
  char *(*anchor)(void); /* a thread-local variable of it */
  size_t n_segments, n_arrays;
  qn_host_segment segment[8];
  qn_host_array *array; /* its threadgroup arrays */
};
/* NULL and QN_OK for an object that was not built to be watched. */
qn_status qn_host_object_make(qn_host_object **object, void *handle, const void *image, size_t bytes);

/* ---- shadow.c ---- */
/* One access that a cell remembers. */
typedef struct qn_shadow_slot {
  uint64_t time : 40; /* 0: none */
  uint64_t mask : 8;  /* bytes of the cell */
  uint64_t thread : 10;
  uint64_t write : 1, atomic : 1;
  uint32_t block;
  qn_watch_place place;
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
typedef enum qn_watch_wrong {
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
} qn_watch_wrong;
typedef struct qn_raw_finding {
  qn_watch_wrong fault;
  bool write, other_write; /* a race's accesses */
  uint16_t thread, other_thread;
  uint32_t lanes;       /* that took part; a missing element's bytes; an alignment; a lane that was not there */
  int line, other_line; /* where known without the object: barriers, indices */
  qn_watch_place place, other_place;      /* 0: none */
  qn_watch_place before[QN_WATCH_BEFORE]; /* branches before the latter (before the former where time ran out) */
  uint64_t block, other_block;
  const char *where; /* the array's name; lives as long as the watch or the object */
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
typedef struct qn_watched_thread {
  uint8_t state;
  uint16_t depth; /* calls that it is in */
  uint16_t chain[QN_WATCH_NESTING];
  int line; /* where it waits */
  uint64_t key;
  bool together;        /* in a collective for whoever is there */
  qn_watch_place stray; /* the shuffle that gave it the value of an absent lane; 0: none did */
  uint8_t stray_lane;
  uint32_t strays;                   /* of its simdgroup's lanes, when it met them last, those with such a value */
  uintptr_t frame[QN_WATCH_NESTING]; /* of its calls: where each return address lies */
  qn_watch_place wait;
  uint32_t mask;                            /* for whom */
  qn_watch_place last[QN_WATCH_BEFORE + 1]; /* its latest branches, each other than the next */
  qn_watch_place access;                    /* and its latest access */
  uint64_t fenced, fenced_far;              /* when it last had a fence, and one for the device; 0: none */
} qn_watched_thread;

typedef struct qn_order qn_order;
struct qn_watch {
  qn_watch_plan plan;
  qn_watch_array *array; /* with the names behind them */
  uint32_t blocks[3];
  int64_t deadline_ns; /* 0: none */
  atomic_bool expired;
  qn_watch_place stopped[QN_WATCH_BEFORE + 1]; /* where the limit was noticed first, and branches before it */
  const qn_host_object *object;

  /* From here on only where the launch is checked: on one OS thread. */
  uint64_t block, now; /* the group that runs; a clock that grows whenever threads are ordered */
  uint32_t threads, thread;
  uintptr_t stack, stack_bytes;
  qn_watched_thread *at;     /* QN_WATCH_THREADS of them */
  size_t n_regions, n_fixed; /* sorted by address; those of all groups */
  qn_region region[QN_WATCH_ARRAYS];
  uint64_t group_time, simd_time[QN_WATCH_SIMDS]; /* when these were last ordered */
  uint64_t (*seen)[QN_SIMD_LANES]; /* per thread: up to when it saw each lane; NULL: no part of a simdgroup met alone */
  qn_order *order;                 /* by fences and atomics; NULL: there was no fence */
  bool order_unknown, left_any, left_here;
  uintptr_t site[QN_WATCH_SITES]; /* by a place's bits: the array that was last accessed from there */
  uint32_t chain_parent[QN_WATCH_CALLS], chain_offset[QN_WATCH_CALLS]; /* open addressing */
  size_t n_chains;
  size_t n_raw;
  size_t n_late; /* of the access that is being made */
  qn_late_finding late[32];
  bool lost; /* there were more */
  qn_raw_finding raw[QN_WATCH_RAW];
  qn_status failed; /* no memory for what is needed to look */
};

/* What this OS thread runs. */
typedef struct qn_watch_here {
  qn_watch *watch;
  int ticks;                                  /* until the clock is looked at */
  const void *last, *before[QN_WATCH_BEFORE]; /* branches: the latest, and those before it that were others */
} qn_watch_here;
extern _Thread_local qn_watch_here qn_watching;

qn_status qn_shadow_open(qn_watch *watch); /* the plan's arrays */
void qn_shadow_close(qn_watch *watch);
/* Memory of this group alone; QN_REGION_THREADGROUP is tracked. */
void qn_shadow_add(qn_watch *watch, const qn_region *region);
void qn_shadow_group(qn_watch *watch);                           /* another group: forget what was added */
qn_region *qn_shadow_region(qn_watch *watch, uintptr_t address); /* that holds it, or NULL */
void qn_shadow_access(qn_watch *watch, uintptr_t address, size_t bytes, int kind, qn_watch_place place);
void qn_shadow_finish(qn_watch *watch); /* what was never written */

void qn_shadow_settle(qn_watch *watch); /* the access before has been made */

/* ---- watch.c ---- */
qn_watch_place qn_watch_place_of(const qn_watch *watch, const void *place); /* with the running thread's calls */
void qn_watch_note(qn_watch *watch, const qn_raw_finding *raw);             /* once for each fault and pair of places */
_Noreturn void qn_watch_leave(qn_watch *watch);                             /* the running thread */

/* ---- order.c: who is ordered behind whom ---- */
void qn_order_close(qn_watch *watch);
void qn_order_begin_group(qn_watch *watch);
void qn_order_meet(qn_watch *watch, uint32_t begin, uint32_t lanes); /* of a simdgroup */
void qn_order_fence(qn_watch *watch, bool far);                      /* far: for the device, else for the group */
void qn_order_atomic(qn_watch *watch, uintptr_t address, bool reads, bool writes);
bool qn_order_has(const qn_watch *watch, const qn_shadow_slot *slot); /* before the running thread */

/* ---- stops.c: what the compiler tells of, the thread's own stack, and lanes that are not there ---- */
void qn_stop_enter(qn_watch *watch, const void *place); /* the stack may be used up */
_Noreturn void qn_stop_told(qn_watch *watch, const void *what, int kind, uint32_t index, const void *place);
void qn_stop_misplaced(qn_watch *watch, const qn_misplaced *misplaced, const void *place);
void qn_stop_in_stack(qn_watch *watch, uintptr_t address, size_t bytes, int kind, const void *place);
void qn_stray_value(qn_watch *watch, uint32_t source, int kind, const void *place);
void qn_stray_meet(qn_watch *watch, uint32_t begin, uint32_t lanes);
void qn_stray_write(qn_watch *watch);

/* ---- report.c ---- */
size_t qn_report_make(qn_watch *watch, char *first, size_t bytes); /* keeps findings for this thread; how many */
void qn_report_clear(void);
qn_finding_kind qn_watch_kind(qn_watch_wrong fault);
void qn_watch_position(const qn_watch *watch, uint64_t block, uint32_t thread, uint32_t position[3]);
bool qn_watch_exists(const qn_watch *watch, uint64_t block, uint32_t thread);
/* lines.c: the line of FILE for each place's chain of offsets */
typedef struct qn_line_query {
  uint32_t offset[QN_WATCH_NESTING]; /* innermost first; ends in 0 */
  int line;                          /* of the body; 0: unknown */
} qn_line_query;
/* Fills in the lines. False: there is no program that reads them. */
bool qn_lines_find(const qn_host_object *object, const char *file, qn_line_query *query, size_t n);
#endif
