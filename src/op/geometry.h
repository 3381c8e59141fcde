/* SPDX-License-Identifier: Apache-2.0 */
/* geometry.h - how a device list kernel's launch is cut: a shape, threads, packs, blocks that stay. A geometry is a
 * value with a name; which one a launch takes is asked here, and which one the last launch took is told here. That any
 * geometry gives the same bits is the engine's business (device_list.c), what is fastest where is the tables'. */
#ifndef QN_OP_GEOMETRY_H
#define QN_OP_GEOMETRY_H
#include "op/op.h"

typedef enum qn_geometry_shape {
  QN_GEOMETRY_FLAT,  /* blocks take successive runs of a dense tensor's elements, rows or not */
  QN_GEOMETRY_ROWS,  /* a block takes a row and loops over it */
  QN_GEOMETRY_TILES, /* a block takes one column tile, threads * pack * packs elements, of a row */
  QN_GEOMETRY_SHAPES
} qn_geometry_shape;

typedef struct qn_geometry {
  qn_geometry_shape shape;
  uint32_t threads;    /* of a block: 64 to 1024, a power of two */
  uint32_t pack;       /* elements of a vector: 4 or 8 */
  uint32_t packs;      /* vectors a thread takes at once: 1, 2, 4; 16 where a phase counts */
  uint32_t persistent; /* blocks a multiprocessor, which stay and loop over the work; 0: a block for each piece */
} qn_geometry;

enum { QN_GEOMETRY_NAME = 32, QN_GEOMETRY_MOST_PERSISTENT = 32 };
void qn_geometry_name(const qn_geometry *g, char name[QN_GEOMETRY_NAME]); /* "flat-256x8x1", "rows-512x8x1-p2" */
/* The other way, with a sentence on a name that is none. */
qn_status qn_geometry_from_name(const char *name, qn_geometry *g);
bool qn_geometry_equal(const qn_geometry *a, const qn_geometry *b);

/* What a choice depends on. */
typedef struct qn_geometry_key {
  const qn_op *op;
  size_t row; /* of the type table */
  qn_device device;
  uint64_t rows, cols; /* of the largest tensor of the list; dense: as its last dimension says */
  bool dense;          /* all tensors; else some are pitched */
  bool counts;         /* a phase that counts: the rule alone says, nothing is tuned or forced */
} qn_geometry_key;

/* What a launch takes: the option "geometry" if it is set, else what the tune tables say (tune.h; the user's before the
 * shipped one), else the rule; why: which of these, in words of static storage. Fails only where an option holds what
 * is no geometry's or architecture's name. Neither allocates nor takes a lock, but for the first call of a thread with
 * a key and the first after an option was set or a table written. */
qn_status qn_geometry_choose(const qn_geometry_key *key, qn_geometry *g, const char **why);
/* The same for an op that has a rule of its own, which is the caller's to ask where *by_rule. */
qn_status qn_geometry_told(const qn_geometry_key *key, qn_geometry *g, const char **why, bool *by_rule);
/* What the option "geometry" says; *is_set false where it is not set. */
qn_status qn_geometry_forced(qn_geometry *g, bool *is_set);
/* Refuses what the option holds where that is no geometry. */
qn_status qn_geometry_check(void);
/* The rule alone: 256 threads, one 16-byte vector each, flat; measured on an H200 (docs/benchmarking.md). */
void qn_geometry_rule(const qn_geometry_key *key, qn_geometry *g);

/* An engine notes what this thread's latest launch took, for qn_op_last_variant(): a geometry, or any other name.
 * `name` is copied, `why` must be of static storage. */
void qn_geometry_note(const qn_geometry *g, const char *why);
void qn_variant_note(const char *name, const char *why);
#endif
