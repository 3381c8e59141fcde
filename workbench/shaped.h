/* SPDX-License-Identifier: Apache-2.0 */
/* shaped.h - a call of an op whose tensors have shapes of their own, set up from a line of text: memory with guards
 * round every tensor, data from a seed, the reference in double with what it allows, and the comparison. Checks and
 * benches of such ops are made of it. No op is named here. */
#ifndef QN_WORKBENCH_SHAPED_H
#define QN_WORKBENCH_SHAPED_H
#include "workbench/op_check.h"
#include "workbench/progress.h"
#include "workbench/walls.h"

enum { QN_SHAPED_NDIM = 4, QN_SHAPED_PARAMS = 256, QN_SHAPED_GUARD = 256 };
enum { QN_SHAPED_REFERENCE = 100000000 }; /* operations of a reference that large calls are proved by */

/* The text of one of the op's workloads, or the name itself where it is a text. */
qn_status qn_shaped_find(const qn_op *op, const char *name, const char **text);

typedef struct qn_shaped_role {
  qn_dtype dtype;
  qn_access access; /* QN_ABSENT: not given */
  int ndim;
  int64_t shape[QN_SHAPED_NDIM];
  size_t elements, bytes;
  size_t begin, end, all; /* in the memory: the tensor's first byte, the one behind its last; all bytes */
  enum { QN_SHAPED_NUMBERS, QN_SHAPED_VALUE, QN_SHAPED_SWEEP } filled;
  double value; /* of all elements */
  qn_fence fence;
  void *memory;                  /* on the device, with guards */
  unsigned char *before, *after; /* on the host, with guards: what it was filled with, what qn_shaped_fetch found */
} qn_shaped_role;

typedef struct qn_shaped_data {
  const qn_op *op;
  size_t row;
  qn_exec exec;
  size_t shift; /* bytes that data stand behind a multiple of 256 */
  bool fenced;  /* data end so many bytes before memory that may not be touched, on the processor and host */
  bool nan, halves;
  bool planned;  /* a step is that of a plan */
  int looseness; /* of the reference, as op_check.h says */
  uint64_t seed;
  bool own_stream;
  int64_t extent[26];
  _Alignas(16) unsigned char params[QN_SHAPED_PARAMS];
  qn_shaped_role role[QN_MAX_TENSORS];
  qn_tensor tensor[QN_MAX_TENSORS];
  const qn_tensor *list[QN_MAX_TENSORS]; /* what calls take */
  qn_fence lent;
} qn_shaped_data;

/* `text` as qn_check_text has it, `more` behind it (NULL: nothing), then `settings` (NAME=VALUE). "nan" puts a NaN
 * into the first tensor that is read; "halves": f32 that is read but in one dimension is as qn_fill_halves makes it;
 * ROLE=NUMBER: all its elements are that; ROLE=sweep: they are qn_fill_sweep's. */
typedef struct qn_shaped_order {
  const qn_op *op;
  size_t row;
  qn_device device;
  qn_pool *pool;
  void *stream; /* NULL: a new one */
  const char *text, *more, *const *settings;
  size_t n_settings, shift;
  uint64_t seed;
  bool fenced, planned;
  bool bare; /* without memory: tensors have addresses of nothing, for questions about a call that is never made */
} qn_shaped_order;

/* Close it in any case. */
qn_status qn_shaped_open(qn_shaped_data *data, const qn_shaped_order *order);
void qn_shaped_close(qn_shaped_data *data);

/* What is written is as it was filled again. */
qn_status qn_shaped_reset(qn_shaped_data *data);
/* Workspace of what the call asks for now, guarded too; then the step, not waited for. */
qn_status qn_shaped_lend(qn_shaped_data *data);
qn_status qn_shaped_run(qn_shaped_data *data);
/* Waits, and reads all tensors back. */
qn_status qn_shaped_fetch(qn_shaped_data *data);

/* Of the variant that ran last. */
int qn_shaped_looseness(const qn_shaped_data *data);

typedef struct qn_shaped_want {
  double *value[QN_MAX_TENSORS], *allowed[QN_MAX_TENSORS]; /* by role; NULL: not written */
  int64_t *rows; /* of the first extent that the reference ran over; NULL: all, in order */
  int64_t n_rows;
} qn_shaped_want;
/* The reference over the data; where all of them would take more than `most` operations, over some rows. */
qn_status qn_shaped_reference(const qn_shaped_data *data, double most, qn_shaped_want *want);
void qn_shaped_want_free(qn_shaped_want *want);

/* What was fetched against what is wanted; guards and what is only read must be as they were. False: a sentence. */
bool qn_shaped_right(const qn_shaped_data *data, const qn_shaped_want *want, char *wrong, size_t bytes,
                     uint64_t *elements, double *worst);
double qn_shaped_operations(const qn_shaped_data *data);
double qn_shaped_bytes(const qn_shaped_data *data); /* read and written once each */
#endif
