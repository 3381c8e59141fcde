/* SPDX-License-Identifier: Apache-2.0 */
/* op.h - the inner half of an op's description: what the list engine (list.c, device_list.c) needs to check and run it.
 * The outer half, which bindings and tests read, is quern/op.h. */
#ifndef QN_OP_OP_H
#define QN_OP_OP_H
#include "base/piece.h"
#include "cpu/tier.h"

enum { QN_COEF_BYTES = 128 };

typedef struct qn_call qn_call;     /* of op/call.h */
typedef struct qn_engine qn_engine; /* likewise */

/* Extents, params and "-role" for what is not given, apart by spaces: "m=128 n=1024 k=512 groups=32 -bias2". */
typedef struct qn_shaped_size {
  const char *name, *text; /* name: NULL ends a list */
} qn_shaped_size;

/* A device source with its defines, as some call would have it compiled, for tests that compile them all. */
typedef struct qn_shaped_unit {
  const char *source;         /* NULL ends a list */
  const char *const *defines; /* NULL-terminated */
  const char *arch;           /* NULL: every architecture; "sm_90a": that alone */
} qn_shaped_unit;

struct qn_tune_key; /* of op/tune.h */

/* What checks, benches and tuning know of an op whose tensors have shapes of their own. */
typedef struct qn_shaped {
  /* In double, over inputs as doubles: what each written role must hold, and how far from it an element may be, which
   * is the op's agreement. reference[role] and allowed[role]: NULL where the role is not written. For checks. */
  void (*reference)(const qn_call *call, const double *const *input, double *const *reference, double *const *allowed);
  double (*operations)(const qn_call *call); /* of a call, a multiply-add counting two */
  const qn_shaped_size *cases, *workloads;   /* of checks, which are small; of benches */
  const qn_shaped_size *refused;             /* must be: a word of the sentence, and the text; NULL: none */
  /* Settings under which every case runs, for a row of types: "precision=tf32"; NULL past the last. */
  const char *(*variation)(size_t row, size_t k);
  const char *const *looser; /* NULL-terminated: settings whose results must not pass as those of the defaults */
  char independent;          /* the letter along which results do not depend on each other; 0: none */
  /* How a device variant makes operands the words of its class: 0 as the op's README says, 1 but for halves between
   * two words, which go either way, 2 as it likes within the class or a tighter one. NULL: 0 of all. */
  int (*looseness)(const char *variant);
  /* Names of device variants, NULL past the last, and the option that forces one; NULL: it has none. */
  const char *(*variant)(size_t k);
  const char *variant_option;
  qn_status (*check_option)(void); /* refuses its value where that names no variant */
  /* Which one a device call takes now, and why, in words that last until the thread's next question; NULL: a sentence.
   */
  const char *(*choice)(const qn_call *call, const char **why);
  /* Why the k-th cannot take the call; NULL: it can. */
  const char *(*refusal)(const qn_call *call, size_t k);
  /* What the tune tables' entry for the call is found by. */
  void (*tune_key)(const qn_call *call, struct qn_tune_key *key);
  const qn_shaped_unit *units;
} qn_shaped;

/* What an op of lists whose shapes follow by rule (info.rules) has besides. */
typedef struct qn_ruled {
  /* The shape of a role's tensor for one of the first role, both checked to be shapes; its dimensions. */
  int (*shape)(size_t role, size_t n, int ndim, const int64_t *shape, int64_t *role_shape);
  int most_dimensions; /* of the first role */
} qn_ruled;

typedef struct qn_op {
  qn_op_info info;
  const qn_engine *engine;
  const qn_shaped *shaped; /* NULL, or what this kind has besides; then the members below stay empty, but for */
  const qn_ruled *ruled;   /* device_source; likewise */
  size_t coef_bytes; /* at most QN_COEF_BYTES; passed by value to device kernels, so it may hold device pointers */
  /* What the table of ranges cannot say: relations between members. NULL: nothing. */
  qn_status (*check)(const void *params, size_t row);
  /* Which specialisation these params ask for: CPU kernels see it in the call, device sources as QN_LIST_FLAGS. */
  uint32_t (*flags)(const void *params, size_t row);
  uint32_t random_flags; /* flags under which random numbers are drawn: shard offset and tensor number are needed */
  uint32_t row_flags;    /* flags under which a kernel asks for the row (the last dimension) that its elements lie in */
  /* Everything that does not depend on the element, computed in double and rounded once. */
  void (*coefficients)(const void *params, void *coef);
  /* 1, or more where a reduction over each tensor comes first: phases before the last fill the tally (16 bytes a
   * tensor, zeroed by the engine) and the last one reads it through `tally_offset`. NULL: 1. */
  int (*phases)(const void *params);
  size_t tally_offset;         /* 1 + offset in coef of the `const int64_t *` to the tallies of the list; 0: none */
  size_t first_element_offset; /* 1 + offset in params of the host array; 0: the op has none */
  size_t tensor_id_offset;
  qn_cpu_fn *cpu[QN_TIER_COUNT];
  /* "ROWSxCOLS,...": the shapes that `quern tune` takes for this op's uses; NULL: single tensors, small and large. */
  const char *tune_shapes;
  const char *device_source; /* as embedded: "op/lion/lion.cu"; its kernel is called as the op */
  /* The unfused form over f32 arrays, pass by pass, for benches; NULL: none. Arrays by role, then one scratch array. */
  void (*unfused)(size_t n, float *const *arrays, const void *coef);
  /* The same for devices: a source with the kernel <name>_unfused, compiled once a pass with QN_PASS=0, 1 ...; each is
   * launched with one thread for four elements and takes a qn_unfused_args with the coefficients behind it. */
  const char *unfused_source;
  int unfused_passes;
} qn_op;

/* What a pass of the unfused form is launched with; coef_bytes of coefficients follow. */
typedef struct qn_unfused_args {
  float *array[QN_MAX_TENSORS + 1]; /* by role, then the scratch array; 16-byte aligned */
  uint64_t n;
} qn_unfused_args;

/* Rows of types that a device of this kind takes. Rows of f64 stand last: they are computed by the oracle's
 * instantiation of the formula, on the processor alone. */
size_t qn_op_rows(const qn_op_info *op, qn_device_kind kind);
bool qn_op_row_is_double(const qn_op_info *op, size_t row);

#ifndef QN_TIER /* what is built once a tier takes longest to compile: it is not compiled again for one more op */
#define QN_OP(name) extern const qn_op qn_op_##name;
#include "ops.h"
#undef QN_OP
#endif
extern const qn_engine qn_elementwise; /* list.c */
extern const qn_op *const qn_ops[];    /* NULL-terminated, in the order of the list in src/meson.build */

#endif
