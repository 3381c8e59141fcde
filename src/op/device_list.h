/* SPDX-License-Identifier: Apache-2.0 */
/* device_list.h - the list engine's half for device kernels (CUDA and its twin on the host): a checked list becomes one
 * launch. list.c checks; nothing here checks a caller's input. */
#ifndef QN_OP_DEVICE_LIST_H
#define QN_OP_DEVICE_LIST_H
#include "op/launch_shape.h"

/* A plan's launch as it was last filled in: a step over the same tensors changes only its coefficients, one whose
 * tensors moved also its pointers. Its memory is the plan's: qn_list_kept_bytes, 16-byte aligned, zeroed before the
 * first step. */
typedef struct qn_list_kept qn_list_kept;
size_t qn_list_kept_bytes(void);

/* A step over a list that list.c has checked: in the type table's row `row`, all on exec->device, no overlap. */
typedef struct qn_list_run {
  const qn_op *op;
  const qn_exec *exec;
  size_t row;
  uint32_t flags;   /* the op's, for these params and this row */
  int phases;       /* 1, or 2: phase 0 counts into tally (zeroed here first), phase 1 steps */
  bool count_only;  /* phase 0 alone, added into tally */
  const void *coef; /* coef_bytes; the pointer at tally_offset is set already */
  uint64_t *tally;  /* device memory, 2 a tensor; NULL where nothing is counted */
  size_t n;
  const qn_tensor *const *tensors; /* by role; NULL: role not given; empty tensors may be among them */
  const uint64_t *first_element;   /* host, one a tensor; NULL: 0 */
  const uint64_t *tensor_id;       /* host, one a tensor; NULL: place in the list */
  bool strided;                    /* not all tensors are dense and, at one place, alike: each place has a qn_view */
  bool by_rows;                    /* the kernel asks for rows, which are the last dimension */
  qn_list_kept *kept;              /* of the plan that steps; NULL: no plan */
  bool moved;                      /* since the plan's last step some pointer changed */
} qn_list_run;

/* Elements of a checked tensor. */
static inline uint64_t qn_tensor_elements(const qn_tensor *t)
{
  uint64_t n = 1;
  for (int k = 0; k < t->ndim; k++) n *= (uint64_t)t->shape[k];
  return n;
}

/* What the choice of a launch shape depends on; the rows and columns are those of the largest tensor. */
qn_launch_shape_key qn_list_key_of(const qn_list_run *run, bool counts);
/* The launch shape of a phase, and why: flat only where all tensors are dense. */
qn_status qn_list_choose_shape(const qn_list_run *run, bool counts, qn_launch_shape *g, const char **why);

/* Compile and load what the step would launch. */
qn_status qn_device_list_prepare(const qn_list_run *run);
/* Launch it. The pointers travel in the kernel's parameter, so there is no device table: a plan keeps its checked
 * tensors (list.c) and calls this with all of them at each step. */
qn_status qn_device_list_step(const qn_list_run *run);

/* What the compiler and the driver say of the kernel that this thread's latest step launched; -1: not known there. */
typedef struct qn_list_facts {
  int registers, shared_bytes; /* of a thread; of a block */
  int blocks;                  /* at once on a multiprocessor, by registers, shared memory and threads */
} qn_list_facts;
qn_status qn_device_list_facts(qn_list_facts *facts);

/* One specialisation of an op's kernel, as the defines of its source: what a launch compiles, and what tests compile
 * for every architecture. */
enum { QN_LIST_DEFINES = 27 };
typedef struct qn_list_unit {
  char text[QN_LIST_DEFINES][64];
  const char *defines[QN_LIST_DEFINES + 1]; /* into text; NULL-terminated */
  int n;
} qn_list_unit;
typedef struct qn_list_form qn_list_form; /* device_variant.h */
/* form NULL: dense, as the rule says. */
void qn_device_list_unit(const qn_op *op, size_t row, uint32_t flags, uint32_t capacity, bool counts,
                         const qn_list_form *form, qn_list_unit *unit);

/* ---- list_variant.c: launch shapes as the engine's variants; call.h says what each function returns ---- */
struct qn_tune_key; /* of tune.h */
const char *qn_list_variant_name(const qn_op *op, size_t k);
const char *qn_list_refuses(const qn_call *call, size_t k);
const char *qn_list_choice(const qn_call *call, const char **why);
void qn_list_tune_key(const qn_call *call, struct qn_tune_key *key);

#endif
