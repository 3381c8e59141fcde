/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - `quern check`: five legs, each of which catches what the others cannot.
 *   1 variants   every variant on every backend equals the one reference: the ref tier, serial, called directly
 *   2 oracle     the reference against the same formula in double, in units of its rounding errors
 *   3 golden     every variant against vectors that an independent implementation made
 *   4 contract   what must be refused is refused with a sentence, and changes nothing
 *   5 selftest   planted bugs: each must be caught by the legs above
 * An item is one leg on one target and one row of the type table; it runs numbered cases and is told as one line. */
#ifndef QN_WORKBENCH_CHECK_H
#define QN_WORKBENCH_CHECK_H
#include "workbench/case.h"
#include <stdio.h>

enum { QN_LEG_VARIANTS = 1, QN_LEG_ORACLE, QN_LEG_GOLDEN, QN_LEG_CONTRACT, QN_LEG_SELFTEST };

typedef struct qn_check_options {
  const char *op;      /* NULL: all */
  const char *backend; /* "cpu", "cuda:1", "emulator"; NULL: the option "device"; that unset: all */
  const char *only;    /* "leg1/cpu/avx512/row3/case17", or the beginning of such a name; NULL: all */
  int leg;             /* 0: the first four */
  uint64_t seed;
  qn_level level;
  int jobs; /* processes; 0: one a processor, four at most */
  bool json;
} qn_check_options;

/* Writes TAP or JSON lines to `out`, progress to standard error. QN_OK and *failures, or a failure that kept it from
 * starting (an unknown name). */
qn_status qn_check(const qn_check_options *options, FILE *out, size_t *failures);

/* The text, each line behind "#   ". */
void qn_tap_lines(FILE *out, const char *text);

/* ---- for the legs ---- */
typedef struct qn_trial qn_trial;
typedef struct qn_item {
  int leg;
  qn_target target; /* op and device; variant "" where the leg takes what the library chooses */
  size_t row;       /* QN_NO_ROW: the item is not about one */
  char name[64];    /* "leg1/cpu/avx512/row3" */
  char about[96];   /* "bf16 f32 bf16 -" */
  void (*run)(qn_trial *trial);
} qn_item;
enum { QN_NO_ROW = 0xffff };

/* An item being run. */
struct qn_trial {
  const qn_check_options *options;
  const qn_item *item;
  long only;         /* this case alone; -1: all */
  size_t cases;      /* that ran */
  uint64_t elements; /* that were compared */
  char note[256];    /* told with the item's line */
  char *failure;     /* NULL: none; else what failed, many lines */
  char *skipped;     /* NULL: it ran; else why not */
};

/* True if the case is to run; counts it. */
bool qn_trial_takes(qn_trial *trial, size_t number);
/* Only the first failure is kept. `number`: of the case, -1: none. */
void qn_trial_fail(qn_trial *trial, long number, const char *format, ...) __attribute__((format(printf, 3, 4)));
void qn_trial_skip(qn_trial *trial, const char *format, ...) __attribute__((format(printf, 2, 3)));
void qn_trial_note(qn_trial *trial, const char *format, ...) __attribute__((format(printf, 2, 3)));
void qn_trial_free(qn_trial *trial);
/* Runs one item here and now. */
void qn_trial_run(qn_trial *trial);

/* A pool of that many threads, made at its first use and kept; NULL for 0. */
qn_pool *qn_trial_pool(qn_trial *trial, int threads);
void qn_leg_variants(qn_trial *trial);
void qn_leg_reference(qn_trial *trial); /* leg 2 of ops with a reference in double */
void qn_leg_oracle(qn_trial *trial);    /* of all others */
void qn_leg_spoilt(qn_trial *trial);    /* of leg 5: spoilt results, and steps that are another's */
void qn_leg_golden(qn_trial *trial);
void qn_leg_contract(qn_trial *trial);
void qn_leg_large(qn_trial *trial);   /* of leg 1: 2^24 elements of odd values */
void qn_leg_huge(qn_trial *trial);    /* of leg 1: one tensor of more than 2^31 elements */
void qn_leg_layouts(qn_trial *trial); /* of leg 1, strided ops: tensors that are not dense, every geometry */
void qn_leg_graph(qn_trial *trial);   /* of leg 1, CUDA: a captured step, replayed */

/* Appends to items those of leg 5 for bugs planted in the op's functions and description; none with a reference in
 * double, whose functions are its engine's. */
size_t qn_selftest_items(const qn_op *op, qn_item *items, size_t most);
#endif
