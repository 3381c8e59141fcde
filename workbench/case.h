/* SPDX-License-Identifier: Apache-2.0 */
/* case.h - the cases to check and to time, made from the descriptions alone: targets (op x backend x variant),
 * settings (values of an op's params), layouts (lists of sizes) and ways to call, and from these numbered cases. The
 * same seed and level give the same cases, so that a number is enough to run one again. No op is named here. */
#ifndef QN_WORKBENCH_CASE_H
#define QN_WORKBENCH_CASE_H
#include "workbench/fill.h"
#include "workbench/op_check.h"

typedef enum qn_level { QN_QUICK, QN_NORMAL, QN_FULL } qn_level;

/* ---- targets ---- */
typedef struct qn_target {
  const qn_op *op;
  qn_device device;
  char backend[16], variant[24]; /* "cpu", "avx512" */
  bool runs;                     /* here, now */
  char why[192];                 /* the reason if not */
} qn_target;

/* Every variant of the op on every backend, up to `most`; those of a device kind that has no device among them, with
 * the reason. index picks one of several devices of a kind. Returns how many. */
size_t qn_targets_of(const qn_op *op, int index, qn_target *targets, size_t most);
/* From here on calls on the CPU take this target's tier; for other kinds it is the device that decides. */
qn_status qn_target_select(const qn_target *target);

/* ---- rows ---- */
/* "f32 f32 f32" or "bf16 f32 bf16 -": the row's storage by role. */
void qn_row_name(const qn_op_info *op, size_t row, char *text, size_t bytes);
const char *qn_row_type(const qn_op_info *op, size_t row);

/* ---- settings ---- */
enum { QN_PARAMS_BYTES = 512, QN_PARAMS_MOST = 32, QN_SETTINGS_MOST = 512 };
typedef struct qn_setting {
  _Alignas(16) unsigned char params[QN_PARAMS_BYTES]; /* the op's struct; pointer members are NULL */
  uint32_t given;                        /* bit k: pointer param k is given, with values made from `seed` */
  float scalar[QN_PARAMS_MOST];          /* DEVICE_F32: the value */
  const uint64_t *array[QN_PARAMS_MOST]; /* HOST_U64: one a tensor, DEVICE_I64: two; borrowed; NULL: from `seed` */
  uint64_t seed;
} qn_setting;

/* Defaults first, then each value of each param by itself, then random combinations. Returns how many, or 0 and the
 * failure in qn_last_error(). */
size_t qn_settings_of(const qn_op_info *op, qn_level level, uint64_t seed, qn_setting *settings, size_t most);
/* "lr=0.003 decay=relative grad_scale->3": what is not at its default. */
void qn_setting_text(const qn_op_info *op, const qn_setting *setting, char *text, size_t bytes);
/* The params that are not the defaults, as a user would set them: "rounding=stochastic cautious=1"; pointers aside. */
void qn_params_text(const qn_op_info *op, const void *params, char *text, size_t bytes);
double qn_param_most(const qn_op_param *param); /* an enum's last value */
/* Write a number param (DOUBLE, U64, BOOL, ENUM) of a params struct; qn_param_get() of op/op.h reads one. */
void qn_param_set(const qn_op_param *param, void *params, double value);
void qn_param_set_u64(const qn_op_param *param, void *params, uint64_t value);

/* ---- layouts: lists of element counts ---- */
enum { QN_LIST_MOST = 2048 };
typedef struct qn_layout {
  const char *name;
  size_t n;
  size_t elements[QN_LIST_MOST];
} qn_layout;
void qn_layout_make(size_t k, qn_layout *layout);

/* ---- cases ---- */
typedef enum qn_way {
  QN_WAY_DIRECT, /* the list in one call */
  QN_WAY_PLAN,   /* a plan, nothing moves */
  QN_WAY_MOVED,  /* a plan, the read-only tensors are elsewhere at every step */
  QN_WAY_SINGLE, /* tensor by tensor */
  QN_WAY_SHARD,  /* every tensor in pieces that say where they begin */
  QN_WAY_COUNT,
  QN_WAY_REFERENCE = QN_WAY_COUNT, /* on the processor: the ref tier's function by itself, what all others must equal */
  QN_WAY_ELSEWHERE                 /* a plan made for other addresses, from which all tensors moved */
} qn_way;
const char *qn_way_name(qn_way way);

/* What a case's results are held to. */
enum {
  QN_BESIDE_BITS = 1,  /* those of the ref tier; of another call where tiers add up in orders of their own */
  QN_BESIDE_DOUBLE = 2 /* the op's reference in double, by each variant that can be named */
};

typedef struct qn_case {
  size_t number, layout;
  const qn_setting *setting, *other; /* of the first step and of every second one; NULL: as the text says */
  const qn_check_text *text;         /* of an op with a reference in double, instead of a layout */
  const char *more;                  /* words behind it */
  unsigned beside;
  int alignment; /* qn_alignment */
  qn_way way;
  int threads; /* of the pool; 0: none */
  int steps;   /* of a text: 0, as it says */
  uint64_t seed;
} qn_case;

typedef struct qn_cases {
  qn_setting *settings;
  size_t n_settings, n, dropped; /* dropped: settings that need one more compilation than the level allows */
  qn_case *at;
} qn_cases;

/* Have all tiers the ref tier's bits? */
bool qn_tiers_agree(const qn_op *op);
/* All cases of one row on one target; first: of each text its first variation alone. Release with qn_cases_free. */
qn_status qn_cases_make(qn_cases *cases, const qn_target *target, size_t row, bool first, qn_level level,
                        uint64_t seed);
void qn_cases_free(qn_cases *cases);

#endif
