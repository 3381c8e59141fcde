/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.h - words for matrix products in device kernels: a simdgroup multiplies two small matrices and adds a third,
 * and what brings their elements there: copies to shared memory that overlap with work, and reads of 8 by 8 matrices.
 * All are words of the simdgroup in the sense of base/collective.h. On a GPU mma.sync, ldmatrix and cp.async of PTX; on
 * the host, and on GPUs without them, the same layouts by exchange among lanes.
 *
 * D = A B + D, 16 by 8. Element (row, column) of D, of float, is in lane 4 (row % 8) + column / 2, as
 * d[2 (row / 8) + column % 2]. With group = lane / 4 and t = lane % 4 each lane holds
 *   m16n8k8, tf32    A 16 by 8: a[0] (group, t), a[1] (group + 8, t), a[2] (group, t + 4), a[3] (group + 8, t + 4)
 *                    B 8 by 8:  b[0] (t, group), b[1] (t + 4, group)
 *   m16n8k16, 16 bit A 16 by 16, two columns a word, the lower one low: a[0] (group, 2t), a[1] (group + 8, 2t),
 *                    a[2] (group, 2t + 8), a[3] (group + 8, 2t + 8)
 *                    B 16 by 8, two rows a word: b[0] (2t, group), b[1] (2t + 8, group)
 *
 * The sums. The twin adds a[.][0] b[0][.], then a[.][1] b[1][.] and so on to d, each product and each sum rounded to
 * nearest in float; a product of tf32, bf16 or f16 values is exact there but where it overflows or is a subnormal. A
 * tensor core adds several products at once and cuts what is below its width, in an order that no document says; so
 * results agree bit for bit only where every partial sum is exact, as with small whole numbers. An op that uses these
 * words has an agreement class with a tolerance, and says so. */
#ifndef QN_BASE_MATRIX_H
#define QN_BASE_MATRIX_H
#include "base/collective.h"

#ifdef __cplusplus
#if defined(QN_CUDA_DIALECT) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define QN_MATRIX_PTX 1
#endif

/* ---- tf32: a float whose last 13 bits are zero; to nearest, halves away from zero ---- */
QN_FN qn_u32 qn_float_tf32(float x)
{
#ifdef QN_MATRIX_PTX
  qn_u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  const qn_u32 bits = qn_float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffffffu;
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & ~0x1fffu;
#endif
}

/* ---- x as the sum of two shorter words, high + low up to 2^-17 of x in bf16, 2^-23 in tf32 and f16; an infinite x
 * leaves a NaN in low. f16 ends at 65504, and its words are no closer to x than 2^-25. Of 16 bits two values at once,
 * the first in the low halves. ---- */
QN_FN void qn_split_bf16(float x, float y, qn_u32 &high, qn_u32 &low)
{
#ifdef QN_MATRIX_PTX
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
      : "=r"(low)
      : "f"(y - qn_bits_float(high & 0xffff0000u)), "f"(x - qn_bits_float(high << 16)));
#else
  high = qn_join_halves(qn_float_bf16(x), qn_float_bf16(y));
  low = qn_join_halves(qn_float_bf16(x - qn_bits_float(high << 16)),
                       qn_float_bf16(y - qn_bits_float(high & 0xffff0000u)));
#endif
}

QN_FN void qn_split_f16(float x, float y, qn_u32 &high, qn_u32 &low)
{
#ifdef QN_PTX
  float hx, hy;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(y), "f"(x));
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(hx), "=f"(hy) : "r"(high));
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(low) : "f"(y - hy), "f"(x - hx));
#else
  high = qn_join_halves(qn_float_f16(x), qn_float_f16(y));
  low = qn_join_halves(qn_float_f16(x - qn_f16_float(static_cast<qn_u16>(high))),
                       qn_float_f16(y - qn_f16_float(static_cast<qn_u16>(high >> 16))));
#endif
}

QN_FN void qn_split_tf32(float x, qn_u32 &high, qn_u32 &low)
{
  high = qn_float_tf32(x);
  low = qn_float_tf32(x - qn_bits_float(high));
}

/* ---- products ---- */
struct qn_of_tf32 { /* the last 13 bits are not looked at */
  QN_FN float value(qn_u32 word, int) { return qn_bits_float(word & ~0x1fffu); }
};
struct qn_of_bf16 {
  QN_FN float value(qn_u32 word, int half) { return qn_bf16_float(static_cast<qn_u16>(half ? word >> 16 : word)); }
};
struct qn_of_f16 {
  QN_FN float value(qn_u32 word, int half) { return qn_f16_float(static_cast<qn_u16>(half ? word >> 16 : word)); }
};

#ifndef QN_MATRIX_PTX
/* What a lane multiplies: words (k, row or column) of two rows of A and two columns of B, k counted in words. */
struct qn_matrix_part {
  qn_u32 a[2][8], b[2][8];
};

QN_FN void qn_matrix_gather(qn_matrix_part &part, const qn_u32 (&a)[4], const qn_u32 (&b)[2], int line)
{
  const qn_u32 lane = qn_lane(), row = lane & ~3u, column = 8 * (lane & 3u);
  const qn_16bytes mine_a = {{a[0], a[1], a[2], a[3]}};
  const qn_8bytes mine_b = {{b[0], b[1]}};
#ifdef QN_CUDA_DIALECT
  for (qn_u32 t = 0; t < 4; t++) {
    const qn_16bytes of = qn_shuffle(mine_a, row + t, line);
    for (int k = 0; k < 4; k++) part.a[k & 1][t + 4 * (k >> 1)] = of.word[k];
    for (qn_u32 c = 0; c < 2; c++) {
      const qn_8bytes at = qn_shuffle(mine_b, column + 4 * c + t, line);
      for (int k = 0; k < 2; k++) part.b[c][t + 4 * k] = at.word[k];
    }
  }
#else
  const unsigned char *all;
  qn_16bytes of;
  qn_8bytes at;
  quern_group->exchange(&mine_a, sizeof mine_a, QN_ALL_LANES, line, &all);
  for (qn_u32 t = 0; t < 4; t++) {
    __builtin_memcpy(&of, all + 16 * (row + t), sizeof of);
    for (int k = 0; k < 4; k++) part.a[k & 1][t + 4 * (k >> 1)] = of.word[k];
  }
  quern_group->exchange(&mine_b, sizeof mine_b, QN_ALL_LANES, line, &all);
  for (qn_u32 t = 0; t < 4; t++)
    for (qn_u32 c = 0; c < 2; c++) {
      __builtin_memcpy(&at, all + 16 * (column + 4 * c + t), sizeof at);
      for (int k = 0; k < 2; k++) part.b[c][t + 4 * k] = at.word[k];
    }
#endif
}

/* `halves` values a word. Words lie by k within each of the two halves of the k's: t, then t + 4. */
template <class Of, int halves>
QN_FN void qn_matrix_twin(float (&d)[4], const qn_u32 (&a)[4], const qn_u32 (&b)[2], int line)
{
  qn_matrix_part part;
  float row[2][8 * halves], column[2][8 * halves];
  qn_matrix_gather(part, a, b, line);
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < 8 * halves; k++) {
      row[r][k] = Of::value(part.a[r][k / halves], k % halves);
      column[r][k] = Of::value(part.b[r][k / halves], k % halves);
    }
  for (int r = 0; r < 2; r++)
    for (int c = 0; c < 2; c++)
      for (int k = 0; k < 8 * halves; k++) {
        const float product = row[r][k] * column[c][k];
        d[2 * r + c] = d[2 * r + c] + product;
      }
}
#endif

QN_FN void qn_mma_tf32(float (&d)[4], const qn_u32 (&a)[4], const qn_u32 (&b)[2], int line = QN_LINE)
{
#ifdef QN_MATRIX_PTX
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  (void)line;
#else
  qn_matrix_twin<qn_of_tf32, 1>(d, a, b, line);
#endif
}

QN_FN void qn_mma_bf16(float (&d)[4], const qn_u32 (&a)[4], const qn_u32 (&b)[2], int line = QN_LINE)
{
#ifdef QN_MATRIX_PTX
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  (void)line;
#else
  qn_matrix_twin<qn_of_bf16, 2>(d, a, b, line);
#endif
}

QN_FN void qn_mma_f16(float (&d)[4], const qn_u32 (&a)[4], const qn_u32 (&b)[2], int line = QN_LINE)
{
#ifdef QN_MATRIX_PTX
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  (void)line;
#else
  qn_matrix_twin<qn_of_f16, 2>(d, a, b, line);
#endif
}

/* ---- copies of 16 bytes, both aligned to 16, to shared memory, that go on while the thread does: what was begun up to
 * a qn_copy_close() is one batch, and qn_copy_wait<n>() waits until all of the thread's batches but the latest n are
 * there. A barrier then shows them to others. On the host, and before sm_80, a copy is done at once. ---- */
QN_FN void qn_copy_begin(void *to_shared, const void *from)
{
#ifdef QN_MATRIX_PTX
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<qn_u32>(__cvta_generic_to_shared(to_shared))),
      "l"(from)
      : "memory");
#else
  qn_store16(to_shared, qn_load16(from));
#endif
}

/* The same, or nothing: without a branch. */
QN_FN void qn_copy_begin_if(bool wanted, void *to_shared, const void *from)
{
#ifdef QN_MATRIX_PTX
  asm volatile("{\n"
               ".reg .pred wanted;\n"
               "setp.ne.u32 wanted, %2, 0;\n"
               "@wanted cp.async.cg.shared.global [%0], [%1], 16;\n"
               "}" ::"r"(static_cast<qn_u32>(__cvta_generic_to_shared(to_shared))),
               "l"(from), "r"(static_cast<qn_u32>(wanted))
               : "memory");
#else
  if (wanted) qn_copy_begin(to_shared, from);
#endif
}

QN_FN void qn_copy_close()
{
#ifdef QN_MATRIX_PTX
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int n> QN_FN void qn_copy_wait()
{
#ifdef QN_MATRIX_PTX
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}
#endif
#endif
