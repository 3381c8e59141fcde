/* SPDX-License-Identifier: Apache-2.0 */
/* tensor.c - storage types: their names and sizes. */
#include "core/core.h"
#include <string.h>

static const struct {
  const char *name;
  size_t bytes;
} dtypes[QN_DTYPE_COUNT] = {
    [QN_NONE] = {"none", 0}, [QN_F32] = {"f32", 4},   [QN_BF16] = {"bf16", 2}, [QN_F16] = {"f16", 2},
    [QN_F64] = {"f64", 8},   [QN_BOOL] = {"bool", 1}, [QN_U8] = {"u8", 1},     [QN_I8] = {"i8", 1},
    [QN_U16] = {"u16", 2},   [QN_I16] = {"i16", 2},   [QN_U32] = {"u32", 4},   [QN_I32] = {"i32", 4},
    [QN_U64] = {"u64", 8},   [QN_I64] = {"i64", 8},   [QN_C64] = {"c64", 8},   [QN_F8E4M3] = {"f8e4m3", 1},
};

static int known(qn_dtype dtype) { return (unsigned)dtype < QN_DTYPE_COUNT; }

size_t qn_dtype_bytes(qn_dtype dtype) { return known(dtype) ? dtypes[dtype].bytes : 0; }

const char *qn_dtype_name(qn_dtype dtype) { return dtypes[known(dtype) ? dtype : QN_NONE].name; }

qn_dtype qn_dtype_from_name(const char *s)
{
  for (unsigned k = QN_NONE; s && k < QN_DTYPE_COUNT; k++)
    if (!strcmp(s, dtypes[k].name)) return (qn_dtype)k;
  return QN_NONE;
}

bool qn_dtype_is_float(qn_dtype dtype)
{
  return dtype == QN_F32 || dtype == QN_BF16 || dtype == QN_F16 || dtype == QN_F64;
}
