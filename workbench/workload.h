/* SPDX-License-Identifier: Apache-2.0 */
/* workload.h - lists of tensors that benches run over: names and shapes, no data. A few have names; "12x3000" is twelve
 * tensors of 3000 elements; the header of any safetensors file is one. */
#ifndef QN_WORKBENCH_WORKLOAD_H
#define QN_WORKBENCH_WORKLOAD_H
#include "quern/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct qn_workload_item {
  const char *name;
  int ndim;
  const int64_t *shape;
  uint64_t elements;
} qn_workload_item;

typedef struct qn_workload {
  const char *name; /* as it was asked for; a file's name without its folders */
  size_t n;
  qn_workload_item *item;
  uint64_t elements; /* of all */
  size_t shift;      /* elements that data begin behind a boundary */
  size_t apart;      /* elements between rows */
  /* NULL, or of a call of an op whose tensors have shapes of their own: extents and params, as op_check.h has them.
   * Then the items are its tensors, the elements the first one's, and these are what the call moves and computes. */
  const char *text;
  double bytes, operations;
  void *storage;
} qn_workload;

typedef struct qn_workload_name {
  const char *name, *doc;
} qn_workload_name;
extern const qn_workload_name qn_workload_names[]; /* ends with name NULL */

/* A name of the table above or NxM: N tensors of M elements, K, M and G being 2^10, 2^20 and 2^30 ("512x64K"). An
 * unknown name is refused and the nearest one suggested. */
qn_status qn_workload_find(const char *name, qn_workload *workload);

/* The tensors that the header of a safetensors file lists, of any dtype. A file that lies is refused. */
qn_status qn_workload_read(const char *path, qn_workload *workload);

void qn_workload_free(qn_workload *workload);
#endif
