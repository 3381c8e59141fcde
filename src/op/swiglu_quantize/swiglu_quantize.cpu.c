/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.cpu.c - gated activations with an f8e4m3 result over rows; built once per tier. A row whose scale is
 * computed is gone through twice, the second time out of the caches. Every gate and type has a loop of its own. It has
 * no double oracle: what is new behind swiglu's is held by the op's reference and by golden vectors. */
#include "base/for_packs.h"
#include "op/swiglu_quantize/swiglu_quantize.math.h"

#ifndef QN_ORACLE
qn_swiglu_quantize_fn QN_CPU_NAME(swiglu_quantize);

/* A pack of a row at column `at`; the last, short one is padded with zeros, of which every gate makes zeros. */
QN_FN void load(const char *row, qn_dtype type, qn_u64 at, qn_u64 cols, qn_f32 x[QN_PACK])
{
  const size_t bytes = qn_cpu_bytes(type);
  _Alignas(64) char copy[QN_PACK * sizeof(qn_f32)];
  if (cols - at >= QN_PACK_ELEMENTS) {
    qn_load_pack(row + at * bytes, type, x);
    return;
  }
  __builtin_memset(copy, 0, sizeof copy);
  __builtin_memcpy(copy, row + at * bytes, (size_t)(cols - at) * bytes);
  qn_load_pack(copy, type, x);
}

QN_FN void values(const qn_swiglu_quantize_args *args, qn_u32 flags, int storage, qn_dtype type, qn_u64 row, qn_u64 at,
                  qn_f32 to[QN_PACK])
{
  qn_f32 a[QN_PACK], b[QN_PACK];
  load(args->a + row * args->a_stride, type, at, args->cols, a);
  load(args->b + row * args->b_stride, type, at, args->cols, b);
  qn_swiglu_quantize_values(&args->coef, flags, storage, a, b, to);
}

QN_FN float largest(const qn_swiglu_quantize_args *args, qn_u32 flags, int storage, qn_dtype type, qn_u64 row)
{
  qn_f32 most = qn_splat(0.0f), x[QN_PACK];
  float lane[QN_LANES], all = 0;
  for (qn_u64 at = 0; at < args->cols; at += QN_PACK_ELEMENTS) {
    values(args, flags, storage, type, row, at, x);
    QN_UNROLL
    for (int v = 0; v < QN_PACK; v++) {
      const qn_f32 size = qn_swiglu_finite_size(x[v]);
      most = qn_select(qn_less(most, size), size, most);
    }
  }
  __builtin_memcpy(lane, &most, sizeof lane);
  for (int k = 0; k < QN_LANES; k++) all = lane[k] > all ? lane[k] : all;
  return all;
}

QN_FN void one_row(const qn_swiglu_quantize_args *args, qn_u32 flags, int storage, qn_dtype type, bool computes,
                   qn_u64 row)
{
  char *c = args->c + row * args->c_stride;
  float *scale = args->scale + row * args->scale_step;
  qn_f32 x[QN_PACK];
  _Alignas(64) qn_bytes to[QN_PACK];
  if (computes) *scale = qn_swiglu_scale(largest(args, flags, storage, type, row));
  const qn_f32 inverse = qn_splat(1.0f / *scale);
  for (qn_u64 at = 0; at < args->cols; at += QN_PACK_ELEMENTS) {
    values(args, flags, storage, type, row, at, x);
    QN_UNROLL
    for (int v = 0; v < QN_PACK; v++) to[v] = qn_bytes_of(qn_narrow_f8e4m3(x[v] * inverse));
    const qn_u64 left = args->cols - at;
    if (left >= QN_PACK_ELEMENTS)
      __builtin_memcpy(c + at, to, QN_PACK_ELEMENTS);
    else
      __builtin_memcpy(c + at, to, (size_t)left);
  }
}

typedef void row_fn(const qn_swiglu_quantize_args *args, bool down, bool computes, qn_u64 row);
#define GATE(t, gate)                                                                                                  \
  static void t##_##gate(const qn_swiglu_quantize_args *args, bool down, bool computes, qn_u64 row)                    \
  {                                                                                                                    \
    one_row(args, QN_SWIGLU_##gate | (down ? QN_SWIGLU_DOWN : 0), QN_SWIGLU_##t, QN_##t, computes, row);               \
  }
#define X(t) GATE(t, SILU) GATE(t, CLAMPED) GATE(t, GEGLU) GATE(t, REGLU) GATE(t, GLU) GATE(t, GEGLU_ERF)
QN_SWIGLU_ROWS(X)
#undef X

static row_fn *const rows[][QN_SWIGLU_GATES] = {
#define X(t) [QN_SWIGLU_##t] = {t##_SILU, t##_CLAMPED, t##_GEGLU, t##_REGLU, t##_GLU, t##_GEGLU_ERF},
    QN_SWIGLU_ROWS(X)
#undef X
};

void QN_CPU_NAME(swiglu_quantize)(const qn_swiglu_quantize_args *args, const qn_swiglu_quantize_kind *kind,
                                  qn_u64 first, qn_u64 last)
{
  row_fn *const run = rows[kind->storage][kind->flags & QN_SWIGLU_GATE_MASK];
  for (qn_u64 row = first; row < last; row++) run(args, kind->flags & QN_SWIGLU_DOWN, kind->computes, row);
}
#endif
