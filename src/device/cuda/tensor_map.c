/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_map.c - matrices for the tensor unit, in the driver's encoding. */
#include "device/cuda/tensor_map.h"
#include "device/cuda/driver.h"

enum { BOX_ROW_BYTES = 128 };

qn_status qn_cuda_tensor_map(qn_device device, qn_matrix_kind kind, const void *matrix, int64_t rows, int64_t columns,
                             uint32_t box_rows, qn_tensor_map *map)
{
  static const int types[] = {CU_TENSOR_FLOAT32, CU_TENSOR_TFLOAT32, CU_TENSOR_BFLOAT16};
  const unsigned element = kind == QN_MATRIX_BF16 ? 2 : 4;
  const unsigned long long extents[2] = {(unsigned long long)columns, (unsigned long long)rows};
  const unsigned long long strides[1] = {(unsigned long long)columns * element};
  const unsigned box[2] = {BOX_ROW_BYTES / element, box_rows}, steps[2] = {1, 1};
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope,
                       qn_cuda_call(&scope, cuTensorMapEncodeTiled, map, types[kind], 2, (void *)(uintptr_t)matrix,
                                    extents, strides, box, steps, 0, CU_TENSOR_SWIZZLE_128, CU_TENSOR_PROMOTE_256, 0));
}
