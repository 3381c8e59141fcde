/* SPDX-License-Identifier: Apache-2.0 */
/* ruled.h - a list of an op whose shapes follow by rule, set up from a line of text and stepped: memory with guards
 * round every tensor, data from a seed, new gradients for every step, what params point to, and the same list in
 * double, which the op's reference steps. Checks of such ops are made of it. No op is named here. */
#ifndef QN_WORKBENCH_RULED_H
#define QN_WORKBENCH_RULED_H
#include "op/op.h"
#include "workbench/walls.h"
#include <stdbool.h>

enum { QN_RULED_TENSORS = 32, QN_RULED_NDIM = 8, QN_RULED_GUARD = 64, QN_RULED_PARAMS = 512, QN_RULED_POINTERS = 32 };
enum { QN_RULED_SET = 8 };

/* All tensors of a role, in one piece of memory. */
typedef struct qn_ruled_role {
  qn_dtype dtype;
  size_t width; /* bytes of an element */
  qn_access access;
  bool single, held; /* one for the whole list; of `holds`, at every step */
  double holds;
  size_t n, bytes;                 /* tensors; of the memory, guards included */
  size_t offset[QN_RULED_TENSORS]; /* of a tensor's first byte */
  size_t elements[QN_RULED_TENSORS];
  int64_t shape[QN_RULED_TENSORS][QN_RULED_NDIM];
  qn_tensor tensor[QN_RULED_TENSORS];
  qn_fence fence;                         /* the last tensor's end is the memory's */
  unsigned char *memory, *before, *after; /* on the device; on the host, as it was filled and as it was fetched */
  /* Of the list in double: now, before its latest step, and how far elements may be off. */
  double *value[QN_RULED_TENSORS], *was[QN_RULED_TENSORS], *allowed[QN_RULED_TENSORS];
} qn_ruled_role;

/* One element of a tensor that is another number than the data are: of what is only read at every step, else before the
 * first one. */
typedef struct qn_ruled_set {
  size_t role, tensor, element; /* SIZE_MAX: all; else from the first, or, past the last, the middle one */
  double value;
} qn_ruled_set;

typedef struct qn_ruled_data {
  const qn_op *op;
  qn_exec exec;
  size_t n, shift;
  uint64_t seed, steps;      /* steps: as the text says, 1 unless it does */
  double gradients, trained; /* standard deviations of what is only read, and of the first role */
  bool fenced;               /* memory may not be touched behind the last tensor of a role, on the processor and host */
  bool filled, scaled, hyper;
  bool planned; /* a step is that of a plan */
  qn_ruled_set set[QN_RULED_SET];
  size_t n_set;
  _Alignas(16) unsigned char params[QN_RULED_PARAMS];
  void *pointed[QN_RULED_POINTERS], *values[QN_RULED_POINTERS]; /* by param: in the device's memory, on the host */
  qn_ruled_role role[QN_MAX_TENSORS];
  const qn_tensor *list[QN_MAX_TENSORS]; /* what calls take */
  qn_fence fence;
  unsigned char *lent; /* workspace with a guard before it */
} qn_ruled_data;

/* `text`: shapes ("7x5", "11", "-"), NAME=VALUE of params, and the words steps=N, gradients=X (their deviation),
 * params=X (likewise), filled (what is updated begins as in the middle of a run, else as before the first step),
 * lr_scale or another param of one number a tensor (given), hyper (params that may be in device memory are), and ROLE=X
 * (what the list has one of and is only read is X, at every step), and ROLE[k]=X, ROLE[k,i]=X, ROLE[k,*]=X: of tensor
 * k, or of a single where k is 0, the element in the middle, element i, or all. `more`: likewise; NULL: nothing. */
typedef struct qn_ruled_order {
  const qn_op *op;
  qn_device device;
  qn_pool *pool;
  const char *text, *more;
  size_t shift; /* bytes that data stand behind a multiple of 64 */
  uint64_t seed;
  bool fenced, planned;
} qn_ruled_order;

/* Close it in any case. */
qn_status qn_ruled_open(qn_ruled_data *data, const qn_ruled_order *order);
void qn_ruled_close(qn_ruled_data *data);

/* Step t is next: new gradients, the count of steps, params in device memory. */
qn_status qn_ruled_turn(qn_ruled_data *data, uint64_t t);
qn_status qn_ruled_run(qn_ruled_data *data);   /* the step, not waited for */
qn_status qn_ruled_fetch(qn_ruled_data *data); /* waits, and reads all back */
qn_status qn_ruled_refer(qn_ruled_data *data); /* the same step in double */

/* A tensor's values, all of them, to the device and to the list in double. */
qn_status qn_ruled_put(qn_ruled_data *data, size_t role, size_t tensor, const double *values);

/* What was fetched against the list in double, the element that is worst in terms of what the op allows; guards and
 * what is only read must be as they were. False: a sentence. */
bool qn_ruled_right(const qn_ruled_data *data, char *wrong, size_t bytes, uint64_t *elements, double *worst);
/* Guards and what is only read alone. */
bool qn_ruled_intact(const qn_ruled_data *data, char *wrong, size_t bytes);
/* Two lists of one order: every written element bit for bit, any NaN being equal to any NaN. */
bool qn_ruled_same(const qn_ruled_data *a, const qn_ruled_data *b, char *wrong, size_t bytes);
/* The same bytes in all memory as before the latest run. */
bool qn_ruled_untouched(const qn_ruled_data *data, char *wrong, size_t bytes);
#endif
