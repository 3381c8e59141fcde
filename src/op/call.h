/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one call of an op, of every kind: call.c validates and runs it by the op's engine, plan.c remembers it.
 * The parts of validation are validate_params.c, validate.c (tensors), role_shape.c (their shapes), and overlap.c
 * (shared bytes). What a caller sees is quern/op.h. A step allocates nothing. */
#ifndef QN_OP_CALL_H
#define QN_OP_CALL_H
#include "op/device_list.h"
#include "op/op.h"
#include "op/role_shape.h"
#include <string.h>

typedef enum qn_call_mode {
  QN_CALL_STEP,
  QN_CALL_PREPARE, /* only what a first step would compile; needs no workspace */
  QN_CALL_COUNT    /* only the phase that counts, for params that ask for one, into `counts` */
} qn_call_mode;

/* Memory that a step reads or writes beside its tensors. */
typedef struct qn_lent {
  const char *name; /* for sentences: "the workspace" */
  const void *memory;
  size_t bytes;
  bool is_written;
} qn_lent;
enum { QN_MAX_LENT = 6 };

struct qn_call {
  const qn_op *op;
  qn_call_mode mode;
  const qn_exec *exec;
  const void *params;
  size_t n;
  const qn_tensor *tensors[QN_MAX_TENSORS]; /* by role, qn_call_count() of each; NULL: not given */
  int64_t *counts;
  size_t row;               /* of the type table; validation finds it */
  const qn_op_rules *rules; /* of the roles' shapes; validation sets it */
  int64_t extent[26];       /* of ops whose extents have names, by letter: extent['m' - 'a'] */
  uint32_t known;           /* letters that have a number, as bits */
  qn_lent lent[QN_MAX_LENT];
  size_t n_lent;
  void *scratch; /* lent for the check of overlap; NULL: none */
  size_t scratch_bytes;
  qn_list_kept *kept; /* of a plan for a device; moved: since its last step some pointer changed */
  bool moved;
  bool strided; /* some tensor is not dense, or two of one place are laid out differently; validation finds it */
};

struct qn_tune_key; /* of tune.h */

/* What kinds of ops differ in. */
struct qn_engine {
  /* d0 and d1 of shape rules, of a shape of the first role's k-th tensor; -1: there is none. call: NULL where there is
   * none. NULL: no rule names them. */
  void (*dimensions)(const qn_op *op, const qn_call *call, size_t k, int ndim, const int64_t *shape, int d[2]);
  /* Bytes that a step of a validated call needs; of a call without tensors: by params and n, 0 where these do not say
   * it. */
  size_t (*workspace)(const qn_call *call);
  qn_status (*run)(const qn_call *call); /* a validated call, in its mode */
  /* Of an engine that chooses among device kernels, its variants: the option that forces one, which check_option()
   * refuses where it names none. NULL: there is no choice. */
  const char *option;
  qn_status (*check_option)(void);
  /* The names of those that are worth a trial, NULL past the last; the option may know others. */
  const char *(*variant)(const qn_op *op, size_t k);
  /* Why the k-th cannot serve the call, or cannot be the best one; NULL: it can. */
  const char *(*refuses)(const qn_call *call, size_t k);
  /* Which one a device call takes now, and why, in words that last until the thread's next question; NULL: a sentence.
   */
  const char *(*choice)(const qn_call *call, const char **why);
  /* What the tune tables' entry for the call is found by. */
  void (*key)(const qn_call *call, struct qn_tune_key *key);
  /* What the compiler says of the kernel that this thread launched last. NULL: nothing is known. */
  qn_status (*facts)(qn_list_facts *facts);
};

/* ---- call.c ---- */
/* Validates and runs in the call's mode. */
qn_status qn_call_run(qn_call *call, const qn_tensor *const *tensors);
/* Everything that is refused. */
qn_status qn_call_validate(qn_call *call, const qn_tensor *const *tensors);
/* Adds to what is lent; nothing where it has no bytes. */
void qn_call_lend(qn_call *call, const char *name, const void *memory, size_t bytes, bool is_written);
/* The workspace is there and large enough; it joins what is lent. */
qn_status qn_call_lend_workspace(qn_call *call);

/* ---- validate_params.c ---- */
qn_status qn_validate_exec_and_params(const qn_call *call);
qn_status qn_validate_params(const qn_op *op, const void *params);
/* What params point to, which is lent. */
qn_status qn_validate_arrays(qn_call *call);

/* ---- validate.c, of a call whose exec and params are good ---- */
/* All tensors, which the call takes, and what is lent but the workspace. */
qn_status qn_validate_tensors(qn_call *call, const qn_tensor *const *tensors);
/* The same in parts, for a plan's step of whose tensors few are new: tensor t in the place of tensors[role][k]; what
 * remains where all tensors are known to be good. */
qn_status qn_validate_tensor(qn_call *call, size_t role, size_t k, const qn_tensor *t);
qn_status qn_validate_rest(qn_call *call);

/* ---- overlap.c ---- */
typedef struct qn_span {
  uintptr_t begin, end; /* addresses; end is past the last byte */
  size_t role, k;       /* role QN_MAX_TENSORS: lent[k] */
} qn_span;
/* The bytes of a checked tensor, from its first to its last, or of what is lent; begin == end if there are none. */
qn_span qn_span_of(const qn_call *call, size_t role, size_t k);
/* Scratch with which a check over so many tensors (of all roles) takes one round. */
size_t qn_overlap_scratch(size_t n_tensors);
/* No written bytes are shared, those that are lent included. */
qn_status qn_check_overlap(const qn_call *call);
qn_status qn_fail_overlap(const qn_call *call, const qn_span *a, const qn_span *b);

static inline const qn_op *qn_op_of(const qn_op_info *info) { return (const qn_op *)info; } /* its first member */

/* Tensors of a role that is given. */
static inline size_t qn_call_count(const qn_call *call, size_t role)
{
  return call->op->info.tensors[role].single ? 1 : call->n;
}

/* Do these params ask for the row that elements lie in? */
static inline bool qn_call_by_rows(const qn_call *call)
{
  const qn_op *op = call->op;
  return op->row_flags && op->flags(call->params, call->row) & op->row_flags;
}

/* Of roles that params decide, what the types say where there are none: a plan between its steps. */
static inline qn_access qn_call_access(const qn_call *call, size_t role)
{
  const size_t where = call->op->info.tensors[role].written_where;
  int32_t writes;
  if (!where || !call->params) return call->op->info.types[call->row].tensor[role].access;
  memcpy(&writes, (const char *)call->params + where - 1, sizeof writes);
  return writes ? QN_WRITE : QN_READ;
}
#endif
