/* SPDX-License-Identifier: Apache-2.0 */
/* dlpack.c - a tensor as DLPack describes it, as the library does. */
#include "python/dlpack.h"

static qn_dtype by_bits(int bits, qn_dtype of_8, qn_dtype of_16, qn_dtype of_32, qn_dtype of_64)
{
  return bits == 8 ? of_8 : bits == 16 ? of_16 : bits == 32 ? of_32 : bits == 64 ? of_64 : QN_NONE;
}

static qn_dtype dtype_of(const qn_dl_tensor *t)
{
  const int bits = t->dtype.bits;
  if (t->dtype.lanes != 1) return QN_NONE;
  switch (t->dtype.code) {
  case QN_DL_FLOAT: return by_bits(bits, QN_NONE, QN_F16, QN_F32, QN_F64);
  case QN_DL_INT: return by_bits(bits, QN_I8, QN_I16, QN_I32, QN_I64);
  case QN_DL_UINT: return by_bits(bits, QN_U8, QN_U16, QN_U32, QN_U64);
  case QN_DL_BFLOAT: return bits == 16 ? QN_BF16 : QN_NONE;
  case QN_DL_COMPLEX: return bits == 64 ? QN_C64 : QN_NONE;
  case QN_DL_BOOL: return bits == 8 ? QN_BOOL : QN_NONE;
  case QN_DL_F8E4M3: return bits == 8 ? QN_F8E4M3 : QN_NONE;
  default: return QN_NONE;
  }
}

qn_tensor qn_dl_seen(const qn_dl_tensor *t)
{
  qn_device device = {QN_EMULATOR, 0};
  if (t->device.type == QN_DL_CUDA) device = (qn_device){QN_CUDA, t->device.id};
  if (t->device.type == QN_DL_CPU || t->device.type == QN_DL_CUDA_HOST) device = (qn_device){QN_CPU, 0};
  return (qn_tensor){(char *)t->data + t->byte_offset, dtype_of(t), t->ndim, t->shape, t->strides, device};
}
