/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_case.h - one launch of a folder's kernel, ready to be repeated: names bound to numbers, arrays made and put on
 * the device between guard bytes, the library's call filled. Also the reference for the same numbers, in double. It
 * judges nothing. */
#ifndef QN_WORKBENCH_KERNEL_CASE_H
#define QN_WORKBENCH_KERNEL_CASE_H
#include "quern/device.h"
#include "workbench/kernel_arrays.h"
#include "kernel/folder.h"

enum { QN_GUARD = 256, QN_CASE_DIMS = QN_MAX_NDIM };

/* What to make. Zero means the folder's own choice. */
typedef struct qn_kernel_case_order {
  const qn_folder *folder;
  const qn_folder_size *size;
  qn_device device;
  qn_pool *pool;
  size_t n_tuned; /* values of templates, below the size's */
  qn_name tuned[QN_KERNEL_MAX_TEMPLATES];
  size_t n_set; /* values of extents and templates, above the size's */
  const qn_name *set;
  uint32_t group[3];
  qn_dtype dtype[QN_KERNEL_MAX_TENSORS]; /* of inputs; NONE: the contract's first */
  size_t fill;                           /* the how many-th of each input's rules, those with fewer begin again */
  uint64_t seed;
  bool strided;           /* inputs lie in memory with holes and in another order of dimensions */
  bool keep;              /* inputs are kept a second time, to see whether they were changed */
  const qn_arrays *given; /* inputs from a file instead, by name */
  unsigned char *arena;   /* host memory lies here (256-byte aligned), shared with another process; NULL: of its own */
  bool foreign;           /* the other process fills it, nothing is written here; without an arena: no memory at all,
                           * for qn_kernel_prepare */
} qn_kernel_case_order;

typedef struct qn_array {
  const qn_folder_tensor *is;
  qn_dtype dtype;
  int ndim;
  int64_t shape[QN_CASE_DIMS], strides[QN_CASE_DIMS]; /* in elements */
  bool strided;
  size_t elements, span, origin;     /* of the shape; holes counted; the first element's place in it */
  unsigned char *block, *data, *was; /* host: guards and all; the first element; an input's copy */
  void *memory;                      /* the device's block; the host's own on the processor */
} qn_array;

typedef struct qn_kernel_case {
  const qn_folder *folder;
  const qn_folder_body *body;
  bool reference;
  qn_exec exec;
  void *stream;
  qn_kernel *kernel;
  size_t n_inputs, n_outputs;
  qn_array array[QN_KERNEL_MAX_TENSORS];
  qn_tensor tensor[QN_KERNEL_MAX_TENSORS];
  qn_binding bound; /* names, template values, the call without its arrays */
  qn_kernel_call call;
  double bytes, operations; /* of a launch; operations 0: not said */
  bool lent, foreign;       /* as the order has them */
  size_t memory_bytes;      /* of all blocks: what an arena must have */
} qn_kernel_case;

/* Host memory is made and filled, device memory taken and written. Names, shapes and rules that do not fit are told
 * with the folder's member. */
qn_status qn_kernel_case_create(qn_kernel_case **made, const qn_kernel_case_order *order);
/* The reference launched over the same inputs, floats as f64, on the processor: its outputs are there. */
qn_status qn_kernel_case_reference(const qn_kernel_case *of, qn_kernel_case **made);
void qn_kernel_case_destroy(qn_kernel_case **made);

/* Outputs hold `poison` in every byte, guards their pattern, inputs what they held at first. */
qn_status qn_kernel_case_reset(qn_kernel_case *c, unsigned char poison);
qn_status qn_kernel_case_load(qn_kernel_case *c);   /* what host memory holds goes to the device, guards and all */
qn_status qn_kernel_case_launch(qn_kernel_case *c); /* does not wait */
/* Waits, and brings outputs (and inputs, where they are kept) to the host. */
qn_status qn_kernel_case_fetch(qn_kernel_case *c);
/* Reset, launch and fetch. */
qn_status qn_kernel_case_run(qn_kernel_case *c, unsigned char poison);
/* After a fetch: true, or false and what was written that is no output's. */
bool qn_kernel_case_intact(const qn_kernel_case *c, char *text, size_t bytes);

static inline const qn_array *qn_kernel_output(const qn_kernel_case *c, size_t k) { return &c->array[c->n_inputs + k]; }
static inline size_t qn_array_bytes(const qn_array *a) { return a->elements * qn_dtype_bytes(a->dtype); }
/* The k-th element, in row-major order of the shape, in host memory. */
const unsigned char *qn_array_at(const qn_array *array, size_t k);
/* Its place as "[3, 17]". */
void qn_array_place(const qn_array *array, size_t k, char *text, size_t bytes);
/* "n=255 TILE=4 inp=f16": what was chosen. */
void qn_kernel_case_text(const qn_kernel_case *c, char *text, size_t bytes);

/* The folder's workload of that name, or what is near. */
qn_status qn_kernel_workload(const qn_folder *folder, const char *name, const qn_folder_size **size);

/* kernel_bind.c: types, names, shapes, templates, geometry; no memory is taken. */
qn_status qn_kernel_case_bind(qn_kernel_case *c, const qn_kernel_case_order *order);
qn_status qn_kernel_case_bind_reference(qn_kernel_case *c, const qn_kernel_case *of);
#endif
