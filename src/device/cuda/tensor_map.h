/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.h - how a matrix is described to the tensor unit of a GPU of compute capability 9.0 or later, whose bulk
 * copies bring boxes of it to shared memory (base/hopper.h). */
#ifndef QN_DEVICE_CUDA_TENSOR_MAP_H
#define QN_DEVICE_CUDA_TENSOR_MAP_H
#include "base/hopper.h"
#include "core/status.h"
#include "quern/device.h"

typedef enum qn_matrix_kind {
  QN_MATRIX_F32,
  QN_MATRIX_F32_AS_TF32, /* rounded to tf32, to nearest, on its way */
  QN_MATRIX_BF16
} qn_matrix_kind;

/* A dense row-major matrix, aligned to 16 bytes, rows of a multiple of 16 bytes; a box is `box_rows` rows (1 to 256) of
 * 128 bytes, swizzled. Nothing is read. The map is good for as long as the memory is where it is. */
qn_status qn_cuda_tensor_map(qn_device device, qn_matrix_kind kind, const void *matrix, int64_t rows, int64_t columns,
                             uint32_t box_rows, qn_tensor_map *map);
#endif
