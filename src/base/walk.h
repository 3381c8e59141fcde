/* SPDX-License-Identifier: Apache-2.0 */
/* walk.h - what a CPU kernel needs round its formula: packs loaded from and stored to arrays of any storage type, and
 * the walk over a piece, whose last, short pack goes through padded copies and the same arithmetic. Pointers need no
 * alignment. Included by *.cpu.c only, which is built once per tier; the oracle's arrays hold doubles whatever the type
 * table says. */
#ifndef QN_BASE_WALK_H
#define QN_BASE_WALK_H
#include "base/dtype.h"
#include "base/random.h"
#include "op/op.h"

#define QN_JOIN_(a, b) a##b
#define QN_JOIN(a, b) QN_JOIN_(a, b)
#define QN_CPU_NAME(op) QN_JOIN(qn_##op##_cpu_, QN_TIER) /* QN_TIER comes from the build: ref, avx2, ... */

enum { QN_PACK_ELEMENTS = QN_PACK * QN_LANES };

QN_FN size_t qn_cpu_bytes(qn_dtype dtype)
{
#ifdef QN_ORACLE
  return dtype == QN_NONE ? 0 : sizeof(qn_f32);
#else
  return dtype == QN_NONE ? 0 : dtype == QN_F32 ? 4 : 2;
#endif
}

#ifdef QN_ORACLE
QN_FN void qn_load_pack(const void *from, qn_dtype dtype, qn_f32 x[QN_PACK])
{
  (void)dtype;
  __builtin_memcpy(x, from, QN_PACK * sizeof *x);
}

QN_FN void qn_store_pack(void *to, qn_dtype dtype, const qn_f32 x[QN_PACK], const qn_bits *word)
{
  (void)dtype, (void)word;
  __builtin_memcpy(to, x, QN_PACK * sizeof *x);
}
#else
#if QN_LANES == 1
typedef qn_u16 qn_halves; /* 16 bits a lane */
#define QN_LANES_TO(x, type) ((type)(x))
#else
typedef qn_u16 qn_halves __attribute__((vector_size(2 * QN_LANES)));
#define QN_LANES_TO(x, type) __builtin_convertvector(x, type)
#endif

QN_FN void qn_load_pack(const void *from, qn_dtype dtype, qn_f32 x[QN_PACK])
{
  if (dtype == QN_F32) {
    __builtin_memcpy(x, from, QN_PACK * sizeof *x);
    return;
  }
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) {
    qn_halves h;
    __builtin_memcpy(&h, (const char *)from + (size_t)v * sizeof h, sizeof h);
    x[v] = dtype == QN_BF16 ? qn_widen_bf16(QN_LANES_TO(h, qn_bits)) : qn_widen_f16(QN_LANES_TO(h, qn_bits));
  }
}

/* 16-bit types are rounded to nearest even, or by chance where random words are given. */
QN_FN void qn_store_pack(void *to, qn_dtype dtype, const qn_f32 x[QN_PACK], const qn_bits *word)
{
  if (dtype == QN_F32) {
    __builtin_memcpy(to, x, QN_PACK * sizeof *x);
    return;
  }
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) {
    qn_bits u = dtype == QN_BF16 ? (word ? qn_narrow_bf16_chance(x[v], word[v]) : qn_narrow_bf16(x[v]))
                                 : (word ? qn_narrow_f16_chance(x[v], word[v]) : qn_narrow_f16(x[v]));
    qn_halves h = QN_LANES_TO(u, qn_halves);
    __builtin_memcpy((char *)to + (size_t)v * sizeof h, &h, sizeof h);
  }
}
#endif

/* Works on n packs: data[role] points at the first one's first element, whose index in the whole tensor is `element`.
 */
typedef void qn_packs_fn(void *user, void *const data[QN_MAX_TENSORS], size_t n, qn_u64 element);

/* All elements of the piece: the whole packs where they are, the rest, fewer than a pack, from zero-padded copies. */
static void qn_walk(const qn_piece *piece, const qn_op_types *row, qn_packs_fn *packs, void *user)
{
  const size_t n = piece->n / QN_PACK_ELEMENTS, done = n * QN_PACK_ELEMENTS, left = piece->n - done;
  _Alignas(64) char copy[QN_MAX_TENSORS][QN_PACK * sizeof(qn_f32)];
  void *data[QN_MAX_TENSORS], *rest[QN_MAX_TENSORS];
  if (n) packs(user, piece->data, n, piece->first);
  if (!left) return;
  for (int role = 0; role < QN_MAX_TENSORS; role++) {
    const size_t bytes = qn_cpu_bytes(row->tensor[role].dtype);
    data[role] = copy[role];
    rest[role] = bytes ? (char *)piece->data[role] + done * bytes : NULL;
    if (!(row->tensor[role].access & QN_READ)) continue;
    __builtin_memset(copy[role], 0, sizeof copy[role]);
    __builtin_memcpy(copy[role], rest[role], left * bytes);
  }
  packs(user, data, 1, piece->first + done);
  if (piece->tally) return; /* a phase that counts writes nothing: the copy of what is only written is not filled */
  for (int role = 0; role < QN_MAX_TENSORS; role++)
    if (row->tensor[role].access & QN_WRITE)
      __builtin_memcpy(rest[role], copy[role], left * qn_cpu_bytes(row->tensor[role].dtype));
}

/* Where pack k of an array is. */
QN_FN void *qn_pack_at(void *data, qn_dtype dtype, size_t k)
{
  return (char *)data + k * (QN_PACK_ELEMENTS * qn_cpu_bytes(dtype));
}
#endif
