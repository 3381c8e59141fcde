/* SPDX-License-Identifier: Apache-2.0 */
/* launch_shape.h - how a device list kernel's launch is cut: a shape, threads, packs, blocks that stay. A launch shape
 * is a value with a name; which one a launch takes is asked here, and which one the last launch took is told here. That
 * any launch shape gives the same bits is the engine's business (device_list.c), what is fastest where is the tables'.
 */
#ifndef QN_OP_LAUNCH_SHAPE_H
#define QN_OP_LAUNCH_SHAPE_H
#include "op/op.h"

typedef enum qn_launch_kind {
  QN_LAUNCH_FLAT,  /* blocks take successive runs of a dense tensor's elements, rows or not */
  QN_LAUNCH_ROWS,  /* a block takes a row and loops over it */
  QN_LAUNCH_TILES, /* a block takes one column tile, threads * pack * packs elements, of a row */
  QN_LAUNCH_KINDS
} qn_launch_kind;

typedef struct qn_launch_shape {
  qn_launch_kind shape;
  uint32_t threads;    /* of a block: 64 to 1024, a power of two */
  uint32_t pack;       /* elements of a vector: 4 or 8; 1: no vectors, each element by itself */
  uint32_t packs;      /* vectors a thread takes at once: 1, 2, 4; 4 or 16 where a phase counts */
  uint32_t persistent; /* blocks a multiprocessor, which stay and loop over the work; 0: a block for each piece */
} qn_launch_shape;

enum { QN_LAUNCH_SHAPE_NAME = 32, QN_LAUNCH_SHAPE_MOST_PERSISTENT = 32 };
void qn_launch_shape_name(const qn_launch_shape *g,
                          char name[QN_LAUNCH_SHAPE_NAME]); /* "flat-256x8x1", "rows-512x8x1-p2" */
/* The other way, with a sentence on a name that is none. */
qn_status qn_launch_shape_from_name(const char *name, qn_launch_shape *g);
bool qn_launch_shape_equal(const qn_launch_shape *a, const qn_launch_shape *b);

/* What a choice depends on. */
typedef struct qn_launch_shape_key {
  const qn_op *op;
  size_t row; /* of the type table */
  qn_device device;
  uint64_t rows, cols; /* of the largest tensor of the list; dense: as its last dimension says */
  uint64_t elements;   /* of the whole list; 0: not known, and taken for many */
  bool dense;          /* all tensors; else some are pitched */
  bool counts;         /* a phase that counts: the rule alone says, nothing is tuned or forced */
} qn_launch_shape_key;

/* What a launch takes: the option "launch_shape" if it is set, else what the tune tables say (tune.h; the user's before
 * the shipped one), else the rule; why: which of these, in words of static storage. Fails only where an option holds
 * what is no launch shape's or architecture's name. Neither allocates nor takes a lock, but for the first call of a
 * thread with a key and the first after an option was set or a table written. */
qn_status qn_launch_shape_choose(const qn_launch_shape_key *key, qn_launch_shape *g, const char **why);
/* The same for an op that has a rule of its own, which is the caller's to ask where *by_rule. */
qn_status qn_launch_shape_told(const qn_launch_shape_key *key, qn_launch_shape *g, const char **why, bool *by_rule);
/* Refuses a value of the option "launch_shape" that names no launch shape. */
qn_status qn_launch_shape_check(void);
/* The rule alone: 256 threads, flat; each takes one 16-byte vector, and of a small list less; measured on an H200
 * (docs/benchmarking.md). */
void qn_launch_shape_rule(const qn_launch_shape_key *key, qn_launch_shape *g);

/* An engine notes what this thread's latest launch took, for qn_op_last_variant(): a launch shape, or any other name.
 * Of a launch shape `why` is borrowed for as long as the thread lives; of a name both are copied. */
void qn_launch_shape_note(const qn_launch_shape *g, const char *why);
void qn_variant_note(const char *name, const char *why);
#endif
