/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.h - storage types, devices by name, and the description of an array that the caller owns. */
#ifndef QN_TENSOR_H
#define QN_TENSOR_H
#include "status.h"
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* QN_CPU: the processor's own kernels. QN_CUDA: NVIDIA GPUs. QN_EMULATOR: the device kernels' sources, compiled for and
 * run on the processor as loops over blocks and threads; for tests and machines without a GPU. */
typedef enum qn_device_kind { QN_CPU, QN_CUDA, QN_EMULATOR, QN_DEVICE_KIND_COUNT } qn_device_kind;
typedef struct qn_device {
  qn_device_kind kind;
  int index; /* 0 for QN_CPU and QN_EMULATOR */
} qn_device;

/* The registry's ops take the first four and the last; kernels from a body take all but the last. BOOL is a byte, 0 or
 * 1; C64 two f32; F8E4M3 a byte as OCP's E4M3: no infinities, 448 the largest, 0x7f and 0xff NaN. */
typedef enum qn_dtype {
  QN_NONE,
  QN_F32,
  QN_BF16,
  QN_F16,
  QN_F64,
  QN_BOOL,
  QN_U8,
  QN_I8,
  QN_U16,
  QN_I16,
  QN_U32,
  QN_I32,
  QN_U64,
  QN_I64,
  QN_C64,
  QN_F8E4M3,
  QN_DTYPE_COUNT
} qn_dtype;
QN_API size_t qn_dtype_bytes(qn_dtype dtype);      /* 0 for QN_NONE and unknown values */
QN_API const char *qn_dtype_name(qn_dtype dtype);  /* "f32", "bf16", "bool", "u8", "c64" ..., "none" */
QN_API qn_dtype qn_dtype_from_name(const char *s); /* QN_NONE if it is none */

enum { QN_MAX_NDIM = 32 };

/* An array of the caller's. shape has ndim extents; strides, in elements, may be NULL: row-major. A tensor of 0
 * dimensions is one element; one with an extent of 0 is empty and its data may be NULL. Borrowed for the call only. */
typedef struct qn_tensor {
  void *data;
  qn_dtype dtype;
  int ndim;
  const int64_t *shape, *strides;
  qn_device device;
} qn_tensor;

#ifdef __cplusplus
}
#endif
#endif
