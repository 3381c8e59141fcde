/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - a kernel in a folder: kernel.json, its body in a file of its own, a reference, sizes, workloads.
 * What docs/kernel-folder.md describes is read here into a struct; every mistake is told with file, member and what is
 * expected. Nothing is compiled and nothing runs here. */
#ifndef QN_KERNEL_FOLDER_H
#define QN_KERNEL_FOLDER_H
#include "quern/kernel.h"
#include "core/expression.h"
#include "core/json.h"
#include "core/shape_rule.h"

enum {
  QN_FOLDER_DIMS = 16,      /* of a tensor */
  QN_FOLDER_NAMES = 48,     /* extents that sizes bind */
  QN_FOLDER_FILLS = 8,      /* rules for one input */
  QN_FOLDER_MOST = 256,     /* sizes; workloads */
  QN_FOLDER_CANDIDATES = 64 /* values of one tuned name */
};

/* How near an output must come to the reference. */
typedef enum qn_folder_agreement_kind {
  QN_AGREE_BITS,
  QN_AGREE_ULP,
  QN_AGREE_SCALED,
  QN_AGREE_ANY
} qn_folder_agreement_kind;
typedef struct qn_folder_agreement {
  qn_folder_agreement_kind kind;
  double amount; /* ULP: units in the last place of the stored type; SCALED: eps of it times the largest |reference| */
} qn_folder_agreement;

/* One tensor of the contract, "f32|f16 [n, h, w, 2]". Texts are the folder's own. */
typedef struct qn_folder_tensor {
  const char *name, *text; /* the contract as it stands in the file */
  bool output;
  size_t n_dtypes;
  qn_dtype dtype[QN_DTYPE_COUNT]; /* that it may be stored in */
  int dtype_of;                   /* the input whose type it has; -1: one of its own */
  int ndim;
  bool leading, dense; /* "..." in front; "dense" behind */
  char extent[QN_FOLDER_DIMS][QN_EXTENT_BYTES];
  bool strided, atomic, laid_out;
  int64_t strides[QN_FOLDER_DIMS]; /* laid_out: of a captured input, in elements */
  bool scalar;                     /* of 0 dimensions, in host memory: */
  qn_value scalar_value;
  const char *scalar_text; /* an expression that gives the value instead; NULL */
  size_t n_fills;
  const char *fill[QN_FOLDER_FILLS];
  qn_value init; /* of an output; NONE: nothing */
  int stored_in; /* of an output: the input whose memory it takes; -1 */
  qn_folder_agreement agreement;
} qn_folder_tensor;

/* A template's value: of fixed kind, an input's type, or an expression. */
typedef struct qn_folder_template {
  const char *name;
  qn_value value;
  int dtype_of;           /* -1 */
  const char *expression; /* NULL */
  size_t n_candidates;    /* of "tune" */
  int64_t candidate[QN_FOLDER_CANDIDATES];
} qn_folder_template;

/* A body with its launch. The kernel's own, and the reference's. */
typedef struct qn_folder_body {
  const char *file, *source; /* "exp.metal", its text */
  const char *header_file, *header;
  qn_dialect dialect;
  const char *grid[3], *group[3]; /* expressions; group[0] NULL: chosen by the library */
  size_t n_templates;
  qn_folder_template templates[QN_KERNEL_MAX_TEMPLATES];
} qn_folder_body;

/* A size or a workload: values of extents and templates; leading extents ("..."). */
typedef struct qn_folder_size {
  const char *name; /* of a workload; of a size "n=255 m=3" */
  size_t n;
  qn_name value[QN_FOLDER_NAMES];
  int n_leading;
  int64_t leading[QN_FOLDER_DIMS];
  const qn_json *fill; /* its own rules by input; NULL */
  int health;          /* the error that `dbg` must report here; 0: success */
} qn_folder_size;

/* The values of an extent that a kernel is made for: from low to high in steps. */
typedef struct qn_folder_range {
  int64_t low, high, step;
} qn_folder_range;

typedef struct qn_folder {
  char *path, *file; /* of the folder, of kernel.json */
  const char *name, *doc;
  qn_math math;
  size_t n_inputs, n_outputs;
  qn_folder_tensor tensor[QN_KERNEL_MAX_TENSORS]; /* inputs, then outputs */
  qn_folder_body body, reference;                 /* reference.source NULL: there is none */
  size_t n_extents;
  char extent[QN_FOLDER_NAMES][QN_EXTENT_BYTES]; /* names that each size must bind */
  qn_folder_range domain[QN_FOLDER_NAMES];       /* of the extents; high 0: not said */
  uint32_t cluster;                              /* blocks; 0: none */
  const char *shared_bytes;                      /* expressions; NULL: 0 / made from the tensors */
  const char *bytes, *operations;
  uint32_t ignore; /* kinds of findings that are none: bits of qn_finding_kind */
  bool same_bits;  /* processor and GPU are to give the same bits */
  size_t n_sizes, n_workloads;
  qn_folder_size *size, *workload;
  size_t n_groups; /* of "tune": candidates */
  uint32_t tune_group[QN_FOLDER_CANDIDATES][3];
  char *inputs_file, *outputs_file; /* paths; NULL */
  qn_json_tree json;                /* holds the texts */
  void *texts;
} qn_folder;

/* A text of at most 4 MiB, to be released; messages call it `name`. */
qn_status qn_body_read(const char *path, const char *name, char **text, size_t *bytes);
/* `path` is the folder, or its kernel.json. */
qn_status qn_folder_read(const char *path, qn_folder **folder);
qn_status qn_folder_read_any(const char *path, qn_folder **folder); /* one without sizes too */
void qn_folder_free(qn_folder **folder);

/* What a caller may set: an extent, or a template that is a number. *own: its name, the folder's own text. */
qn_status qn_folder_set(const qn_folder *folder, const qn_name *set, const char **own);
int qn_folder_tensor_find(const qn_folder *folder, const char *name); /* -1 */
/* ---- folder_bind.c: a launch in numbers ---- */
enum { QN_BINDING_NAMES = 160 };
typedef struct qn_binding {
  qn_kernel_call call; /* over the arrays below */
  const qn_folder *folder;
  const qn_folder_body *body; /* the folder's, or its reference: */
  bool reference;             /* floats are f64 in templates, and shapes are there already */
  uint64_t given, learned;    /* bit k: the shape of input k; the extent k, from an input */
  bool learned_leading;
  int n_leading; /* of "...", in `leading` */
  const int64_t *leading;
  qn_tensor tensor[QN_KERNEL_MAX_TENSORS]; /* types and shapes; no memory, nor strides */
  int64_t shape[QN_KERNEL_MAX_TENSORS][QN_MAX_NDIM];
  qn_template templates[QN_KERNEL_MAX_TEMPLATES];
  qn_value init[QN_KERNEL_MAX_TENSORS];
  int stored_in[QN_KERNEL_MAX_TENSORS];
  size_t n_names;
  qn_name name[QN_BINDING_NAMES];
  char name_text[QN_KERNEL_MAX_TENSORS][72];
} qn_binding; /* it has addresses of its own parts: not to be copied */

/* In this order: begin, the inputs' types, their shapes and values of names as far as they are known, the rest. A name
 * has the value that it was given last; of inputs the first that has it counts. Sentences begin "kernel NAME: " and
 * name the member; QN_BAD_TYPE: a storage type that the contract has not. */
void qn_bind_begin(qn_binding *b, const qn_folder *folder, const qn_folder_body *body);
qn_status qn_bind_type(qn_binding *b, size_t tensor, qn_dtype dtype); /* NONE: the contract's first */
qn_status qn_bind_shape(qn_binding *b, size_t input, int ndim, const int64_t *shape);
qn_status qn_bind_name(qn_binding *b, const char *name, int64_t value);
qn_status qn_bind_rest(qn_binding *b, const uint32_t group[3]); /* NULL or 0: the body's */
/* Parts of the rest: "x.bytes"; what is the body's. */
qn_status qn_bind_bytes(qn_binding *b, size_t tensor);
qn_status qn_bind_body(qn_binding *b, const uint32_t group[3]);

qn_status qn_bound_compute(const qn_binding *b, const char *member, const char *name, const char *text, int64_t *value);
/* The value of "scalars" as an element. */
qn_status qn_bound_scalar(const qn_binding *b, size_t input, unsigned char element[8]);

/* The source of the folder's kernel or of its reference. bound: of one launch, to whose numbers expressions come in
 * contracts; NULL: an expression is any extent. To be freed, also after a failure. */
typedef struct qn_folder_source {
  qn_kernel_source source;
  const char *name[QN_KERNEL_MAX_TENSORS], *contract[QN_KERNEL_MAX_TENSORS];
  qn_text text[QN_KERNEL_MAX_TENSORS];
} qn_folder_source;
qn_status qn_folder_source_make(qn_folder_source *made, const qn_folder *folder, const qn_folder_body *body,
                                const qn_binding *bound);
void qn_folder_source_free(qn_folder_source *made);

/* A rule of "fill": how an input's numbers are made (the workbench makes them). */
typedef enum qn_rule_kind {
  QN_RULE_NORMAL,
  QN_RULE_UNIFORM,
  QN_RULE_VALUE,
  QN_RULE_INDEX,
  QN_RULE_BELOW,
  QN_RULE_SPD,
  QN_RULE_DIAGONAL,
  QN_RULE_ODD
} qn_rule_kind;
typedef struct qn_rule {
  qn_rule_kind kind;
  double a,
      b; /* normal: deviation, mean; uniform: from, to; value; spd, diagonal: added to the diagonal; odd: deviation */
  const char *expression; /* of below: the first whole number that does not occur; within the rule's text */
} qn_rule;
/* "normal 2", "uniform -1 1", "zeros", "ones", "value 3", "index", "below n", "spd 0.1", "diagonal 4", "odd". */
qn_status qn_rule_read(const char *text, qn_rule *rule);
#endif
