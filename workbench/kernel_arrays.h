/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_arrays.h - arrays in files: safetensors read and written, NumPy's .npy read. Every number in a file is
 * hostile. */
#ifndef QN_WORKBENCH_KERNEL_ARRAYS_H
#define QN_WORKBENCH_KERNEL_ARRAYS_H
#include "core/core.h"

typedef struct qn_file_array {
  char *name;
  qn_dtype dtype;
  int ndim;
  int64_t shape[QN_MAX_NDIM];
  size_t bytes;
  void *data; /* row-major */
} qn_file_array;

typedef struct qn_arrays {
  size_t n;
  qn_file_array *array;
} qn_arrays;

/* Adds what the file holds: all arrays of a .safetensors file, or the one of a .npy file, which is called `name`; with
 * a name, of a safetensors file only the array of that name, or its only one. QN_BAD_FILE says what is wrong. */
qn_status qn_arrays_read(qn_arrays *arrays, const char *path, const char *name);
const qn_file_array *qn_arrays_find(const qn_arrays *arrays, const char *name);
void qn_arrays_free(qn_arrays *arrays);

/* Writes a safetensors file, in the place of one that is there; a failure leaves that one as it is. */
qn_status qn_arrays_write(const char *path, const qn_safetensor_made *arrays, size_t n);
#endif
