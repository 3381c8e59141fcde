/* SPDX-License-Identifier: Apache-2.0 */
/* dlpack.h - DLPack 1's structs (github.com/dmlc/dlpack), whose layout its major version fixes, and what they say in
 * the library's words. */
#ifndef QN_PYTHON_DLPACK_H
#define QN_PYTHON_DLPACK_H
#include "quern/tensor.h"

typedef struct qn_dl_tensor {
  void *data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} qn_dl_tensor;
enum { QN_DL_CPU = 1, QN_DL_CUDA = 2, QN_DL_CUDA_HOST = 3 };
enum { QN_DL_INT, QN_DL_UINT, QN_DL_FLOAT, QN_DL_BFLOAT = 4, QN_DL_COMPLEX, QN_DL_BOOL, QN_DL_F8E4M3 = 10 };

/* DLPackExchangeAPI: a framework's functions on its own objects. Not 0 is an error, with a Python exception set. */
typedef struct qn_dl_table {
  uint32_t major, minor;
  struct qn_dl_table *before;
  void *allocate, *object_to_managed, *managed_to_object; /* not used here */
  int (*read)(void *object, qn_dl_tensor *out);           /* shape and strides live as long as the object */
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} qn_dl_table;

qn_tensor qn_dl_seen(const qn_dl_tensor *t); /* dtype QN_NONE, device QN_EMULATOR: what the library has no name for */
#endif
