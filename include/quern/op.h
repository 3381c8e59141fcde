/* SPDX-License-Identifier: Apache-2.0 */
/* op.h - an op's description of itself, and one call for all ops. The typed calls (lion.h ...) are thin names over
 * these; bindings, tests, benches and documents are made from the descriptions. All pointers are to static storage. */
#ifndef QN_OP_H
#define QN_OP_H
#include "stream.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { QN_MAX_TENSORS = 10 };

typedef enum qn_access { QN_ABSENT = 0, QN_READ = 1, QN_WRITE = 2, QN_READ_WRITE = 3 } qn_access;

/* How tests fill a tensor: a distribution with odd values in it (zeros of both signs, denormals, huge, inf, NaN). */
typedef enum qn_fill {
  QN_FILL_NORMAL,
  QN_FILL_NON_NEGATIVE,
  QN_FILL_MODERATE /* normal, and none of the odd ones next to overflow: for what is multiplied several times */
} qn_fill;

/* How a role's tensors lie in memory. */
typedef enum qn_storage {
  QN_STORAGE_DENSE,     /* one run of elements, in any order of the dimensions; roles alike have one order */
  QN_STORAGE_ROW_MAJOR, /* the run in the order of the dimensions */
  QN_STORAGE_ROWS,      /* rows at a distance of their own, with columns 1 or 2 elements apart; what such an op only
                         * writes, it writes all of */
  QN_STORAGE_PITCHED    /* a matrix: rows at a distance of their own, with columns side by side */
} qn_storage;

/* One role. The k-th tensors of all roles belong together. Their shapes, by `shape`:
 *
 *     NULL                                   the first role's; the first's: any, and where all roles say no more than
 *                                            this the op works element by element
 *     "[m, 2, k]"                            a letter is one number wherever it stands in the op
 *     "[..., n]"  "[...5]"  "[1...]"         in front: any number of extents; up to 5; any number that are 1
 *     "[tensors, 512]"                       the number of tensors of the list
 *     "[3, like param]"                      the extents of the first role, which is called so
 *     "[3, like param without d0]"           but for its largest dimension, or d1, the second largest, as the op has it
 *     "[3, like param without d1] or [0]"    and the shape where there is no such dimension
 *     "[3, like param] or [like param]"      and the shape where there is no d0
 *     "[m] or [1]"                           and one element in the place of all, where the role is only read
 */
typedef struct qn_op_tensor {
  const char *name;
  const char *framework_name; /* the name in training frameworks ("exp_avg"); NULL: the same */
  const char *doc;
  qn_fill fill;
  double fill_scale; /* standard deviation for tests and benches */
  const char *shape;
  qn_storage storage;
  int single;   /* 1: one tensor for the whole list. Where all roles are so, a call is of one tensor a role */
  int optional; /* 1: it need not be given in any row of types; else where a row has QN_ABSENT */
  /* 1 + the offset in the params of the BOOL that says whether the role is only written, else only read; in types it is
   * QN_READ_WRITE then. 0: types say it. */
  size_t written_where;
} qn_op_tensor;

/* A row of the type table: each role's storage type, and its access (QN_NONE, QN_ABSENT: not given).
 * Bytes moved per element follow from it. A row whose first tensor is f64 is computed in double on the processor, and
 * refused on devices; such rows stand last. */
typedef struct qn_op_types {
  struct {
    qn_dtype dtype;
    qn_access access;
  } tensor[QN_MAX_TENSORS];
} qn_op_types;

typedef enum qn_param_type {
  QN_PARAM_DOUBLE,
  QN_PARAM_U64,
  QN_PARAM_BOOL,         /* stored as int32_t */
  QN_PARAM_ENUM,         /* stored as int32_t; names in .values */
  QN_PARAM_DEVICE_F32,   /* const float *: one value in the tensors' device memory, or NULL */
  QN_PARAM_DEVICE_I64,   /* const int64_t *: an array in the tensors' device memory, or NULL */
  QN_PARAM_DEVICE_HYPER, /* a struct in the tensors' device memory that takes the place of members of the same name */
  QN_PARAM_HOST_U64,     /* const uint64_t *: an array on the host, one per tensor of the list, or NULL */
  QN_PARAM_HOST_F64,     /* const double *: likewise; numbers from `least` on */
  QN_PARAM_DEVICE_F32S,  /* const float *: `most` values in the tensors' device memory, which must be given */
  QN_PARAM_HOST_STRUCT   /* a struct on the host that the op's header describes, or NULL */
} qn_param_type;

typedef struct qn_op_param {
  const char *name, *doc;
  qn_param_type type;
  size_t offset;      /* in the params struct */
  double least, most; /* DOUBLE: least <= x, and x <= most or, with below_most, x < most. HUGE_VAL is no limit. U64:
                         least <= x */
  int below_most;
  const char *values;  /* ENUM: names in order, separated by '|' */
  size_t hyper_offset; /* 1 + offset of the same-named double or uint64_t in the op's hyper struct; 0: not in it */
} qn_op_param;

typedef enum qn_agreement { QN_BITWISE, QN_SCALED, QN_REDUCTION } qn_agreement;

typedef struct qn_op_info {
  const char *name, *brief, *doc; /* "lion", one line, a paragraph */
  const qn_op_tensor *tensors;
  size_t n_tensors;
  const qn_op_types *types; /* the rows that are supported */
  size_t n_types;
  const qn_op_param *params;
  size_t n_params, params_bytes, hyper_bytes;
  const void *defaults; /* a params struct that the op's QN_<NAME>_DEFAULTS initialises, its size too */
  qn_agreement agreement;
  double agreement_units;  /* of SCALED and REDUCTION */
  int oracle_roundings;    /* to 16-bit storage, on a result's way: how many the oracle's comparison allows; 0 is 1 */
  int oracle_ranged;       /* 1: the oracle's intermediate results have f32's range, so tiny ones vanish as there */
  double oracle_units;     /* reference against the double oracle: units of eps times the magnitudes of the terms */
  const char *unfused_doc; /* the unfused form, in one line */
  double unfused_bytes;    /* per element, in f32 */
  double operations;       /* arithmetic per element, a multiply-add counting two: its place in a roofline */
  uint32_t count_reads;    /* roles, as bits, that the phase which counts reads, where params ask for one */
  double element_bytes;    /* of roles whose shapes follow: what an element of the first role moves at least in all
                              roles but the single ones; 0: it follows from the rows of types */
} qn_op_info;

QN_API size_t qn_op_count(void);
QN_API const qn_op_info *qn_op_at(size_t k);                          /* NULL past the end */
QN_API qn_status qn_op_find(const char *name, const qn_op_info **op); /* unknown: the nearest name is suggested */

/* Fill a params struct with the op's defaults; bytes is sizeof the caller's struct. */
QN_API qn_status qn_op_defaults(const qn_op_info *op, void *params, size_t bytes);
/* The default of one of the op's params as a number: the index of an ENUM's value, 0 for pointers. A default outside
 * the param's range means that the caller must set the param. */
QN_API double qn_op_param_default(const qn_op_info *op, const qn_op_param *param);

/* The shape of a role's tensor that belongs to a tensor of the first role of this shape, in a list of n, where it
 * follows from these; of at most QN_MAX_NDIM dimensions. */
QN_API qn_status qn_op_role_shape(const qn_op_info *op, size_t role, size_t n, int ndim, const int64_t *shape,
                                  int *role_ndim, int64_t *role_shape);

/* The op on a list: tensors[role][k] is the k-th tensor of that role; tensors[role] is NULL for a role not given.
 * The same contract, refusals and results as the typed call. */
QN_API qn_status qn_op_step(const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                            const qn_tensor *const *tensors);
/* Compile and load now what such a step would need, so that the first step (or a stream capture) finds it ready. */
QN_API qn_status qn_op_prepare(const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                               const qn_tensor *const *tensors);
/* Workspace that a step with these params over n tensors needs, in bytes of device memory; often 0. */
QN_API size_t qn_op_workspace_bytes(const qn_op_info *op, const void *params, size_t n);
/* The same for a call with these very arguments, which for ops of tensors with shapes of their own, or that follow by
 * rule, is the one that knows; 0 where the tensors would be refused. exec's workspace is not looked at, nor overlap. */
QN_API size_t qn_op_call_workspace_bytes(const qn_op_info *op, const qn_exec *exec, const void *params, size_t n,
                                         const qn_tensor *const *tensors);

/* A plan of any op is a call that was validated once; it holds no device memory. A step passes only the roles whose
 * pointers moved (moved[role] = array of n tensors, NULL for the rest; moved = NULL: nothing moved). What moved is
 * validated again: dtype, shape, layout, device, overlap. One plan serves one step at a time. Params' flags may change
 * from step to step. */
typedef struct qn_plan qn_plan;
QN_API qn_status qn_op_plan_create(qn_plan **plan, const qn_op_info *op, const qn_exec *exec, const void *params,
                                   size_t n, const qn_tensor *const *tensors);
QN_API qn_status qn_op_plan_step(qn_plan *plan, const qn_exec *exec, const void *params, const qn_tensor *const *moved);
QN_API void qn_plan_destroy(qn_plan **plan); /* steps in flight on a device are not disturbed */

/* The variants of an op: CPU tiers and device kernels. "state" tells how far each is proved on this machine's build. */
typedef struct qn_variant {
  size_t size;         /* sizeof(qn_variant), set by the caller */
  const char *backend; /* "cpu", "cuda", "emulator" */
  const char *name;    /* "avx512", "sm_90" */
  const char *state;   /* "runs", "compiled only" (it builds for this target, which is not here), "emitted only" */
  int available;       /* 1: it could run here now */
  int chosen;          /* 1: a call on that backend would take it */
  char why[160];       /* the reason for both */
} qn_variant;
QN_API size_t qn_op_variant_count(const qn_op_info *op);
QN_API qn_status qn_op_variant_at(const qn_op_info *op, size_t k, qn_variant *variant);
/* The variant of this thread's latest device launch and its reason: "tiles-128x8x1 (forced)"; "" before the first.
 * Lives until the thread's next call of this function. */
QN_API const char *qn_op_last_variant(void);

#ifdef __cplusplus
}
#endif
#endif
