/* SPDX-License-Identifier: Apache-2.0 */
/* op_check.h - what an op brings for checks and benches beside its description: src/op/<op>/<op>.check.c has it, as
 * `const qn_op_check qn_check_<op>`, and it is no part of the library. Every member may be left out. */
#ifndef QN_WORKBENCH_OP_CHECK_H
#define QN_WORKBENCH_OP_CHECK_H
#include "workbench/meta_train.h"
#include "workbench/mutant.h"

struct qn_trial; /* of workbench/check.h */

typedef struct qn_check_text {
  const char *name, *text; /* name: NULL ends a list */
} qn_check_text;

/* What random problems (random.h) are drawn from; rows of types, enumerations and booleans are drawn without a word. */
typedef struct qn_domain {
  /* Alternatives, with spaces between: "m=1..4096,n=1..512", extents by their letters, or "1..64x1..4096", the shape of
   * a tensor of a list. Numbers are drawn log-uniformly, an octave like another. NULL: the op has no domain. */
  const char *shapes;
  unsigned most_shapes, most_copies; /* of a list: different shapes, and tensors of each; 0 is 1 */
  /* Words: "eps=0|1e-3", one of these; "groups=/n", a divisor of extent n. Params without a word are drawn if they are
   * enumerations or booleans, and stand at their defaults every other time. */
  const char *values;
} qn_domain;

/* A device source with its defines, as some call would have it compiled, for tests that compile them all. */
typedef struct qn_device_unit {
  const char *source;         /* NULL ends a list */
  const char *const *defines; /* NULL-terminated */
  const char *arch;           /* NULL: every architecture; "sm_90a": that alone */
} qn_device_unit;

/* A call in double. By role and tensor; NULL: the role is not given, or, of allowed, not written. */
typedef struct qn_reference {
  const qn_call *call; /* its arrays of params are on the host; of its tensors only the shapes are read */
  int looseness;       /* of the variant that ran */
  double *const *was[QN_MAX_TENSORS];     /* what the tensors held before the call */
  double *const *value[QN_MAX_TENSORS];   /* the same, and then what the call must leave there */
  double *const *allowed[QN_MAX_TENSORS]; /* how far each element may be from that: the op's agreement */
} qn_reference;

typedef struct qn_op_check {
  const qn_mutant *mutants; /* planted bugs of its own; ends with name NULL */
  /* Checks hold results against this one; without it, against the ref tier's bits. */
  qn_status (*reference)(const qn_reference *reference);
  /* Of a call, a multiply-add counting two, beside info.operations an element of the first role. */
  double (*operations)(const qn_call *call);
  const qn_check_text *cases;     /* texts (subject.h) of checks, which are small */
  const char *sample;             /* of one in which every param counts: the contract and planted bugs begin there */
  const qn_check_text *workloads; /* of benches, where tensors' extents have names; likewise */
  const qn_check_text *refused;   /* what must be: a word of the sentence, and the text */
  /* Settings under which cases run on a kind of device, for a row of types: "precision=tf32"; NULL past the last. Where
   * the first is "", every case runs under that one. */
  const char *(*variation)(qn_device_kind kind, size_t row, size_t k);
  /* NULL-terminated: settings whose results must not pass as the sample's; NULL: every param counts a little off. */
  const char *const *looser;
  qn_domain domain;
  char independent; /* the letter along which results do not depend on each other; 0: none */
  /* How a device variant makes operands the words of its class: 0 as the op's README says, 1 but for halves between
   * two words, which go either way, 2 as it likes within the class or a tighter one. NULL: 0 of all. */
  int (*looseness)(const char *variant);
  const qn_device_unit *units; /* of an op with device sources of its own; else its descriptions make them */
  const char *required_params; /* settings for calls that need any: "num_steps=200" */
  void (*random_weights)(const qn_op_param *param, float *values); /* a DEVICE_F32S param's values */
  /* What a written single holds before the first step, or in the middle of a run; arrays of params are on the host.
   * NULL: what all others do, zeros or what the description fills them with. */
  void (*initial_state)(const void *params, size_t role, bool middle, const int64_t *shape, double *values);
  qn_meta_train_fn *meta_train;        /* its weights, trained; NULL: they cannot be */
  const void *meta;                    /* the op's description for it */
  void (*far)(struct qn_trial *trial); /* of leg 1, emulator: places past 2^32 elements */
} qn_op_check;

/* Of an op that brings nothing, one with nothing in it. */
const qn_op_check *qn_op_check_of(const qn_op *op);
#endif
