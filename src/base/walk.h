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

enum { QN_PACK_ELEMENTS = QN_PACK * QN_LANES, QN_AHEAD_BYTES = 1024 };

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

QN_FN void qn_store_pack(void *to, qn_dtype dtype, const qn_f32 x[QN_PACK])
{
  (void)dtype;
  __builtin_memcpy(to, x, QN_PACK * sizeof *x);
}

QN_FN void qn_store_pack_chance(void *to, qn_dtype dtype, const qn_f32 x[QN_PACK], const qn_bits word[QN_PACK])
{
  (void)word;
  qn_store_pack(to, dtype, x);
}
#else
QN_FN void qn_load_pack(const void *from, qn_dtype dtype, qn_f32 x[QN_PACK])
{
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) { /* one by one: compilers keep copied arrays on the stack */
    qn_halves h;
    if (dtype == QN_F32) {
      __builtin_memcpy(&x[v], (const char *)from + (size_t)v * sizeof x[v], sizeof x[v]);
      continue;
    }
    __builtin_memcpy(&h, (const char *)from + (size_t)v * sizeof h, sizeof h);
    x[v] = dtype == QN_BF16 ? qn_widen_bf16(qn_bits_of_halves(h)) : qn_widen_f16(qn_bits_of_halves(h));
  }
}

QN_FN qn_halves qn_narrow(qn_dtype dtype, qn_f32 x)
{
  return qn_halves_of(dtype == QN_BF16 ? qn_narrow_bf16(x) : qn_narrow_f16(x));
}

/* To nearest even. */
QN_FN void qn_store_pack(void *to, qn_dtype dtype, const qn_f32 x[QN_PACK])
{
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) {
    if (dtype == QN_F32) {
      __builtin_memcpy((char *)to + (size_t)v * sizeof x[v], &x[v], sizeof x[v]);
      continue;
    }
    const qn_halves h = qn_narrow(dtype, x[v]);
    __builtin_memcpy((char *)to + (size_t)v * sizeof h, &h, sizeof h);
  }
}

/* A 16-bit type, by chance. */
QN_FN void qn_store_pack_chance(void *to, qn_dtype dtype, const qn_f32 x[QN_PACK], const qn_bits word[QN_PACK])
{
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) {
    const qn_halves h =
        qn_halves_of(dtype == QN_BF16 ? qn_narrow_bf16_chance(x[v], word[v]) : qn_narrow_f16_chance(x[v], word[v]));
    __builtin_memcpy((char *)to + (size_t)v * sizeof h, &h, sizeof h);
  }
}
#endif

/* What is only written, to nearest even, past the caches, which saves reading the lines first: a ninth of what Lion in
 * bf16 with a master moves, a quarter of SwiGLU. Whole lines only. qn_stream_end() puts it before what other threads
 * are told next. */
QN_FN void qn_stream_pack(void *to, qn_dtype dtype, const qn_f32 x[QN_PACK])
{
#if QN_LANES > 1 && defined(__x86_64__)
  if ((uintptr_t)to % 64 == 0) {
    QN_UNROLL
    for (int v = 0; v < QN_PACK; v++) {
      if (dtype == QN_F32)
        qn_stream_lanes((char *)to + (size_t)v * sizeof x[v], x[v]);
      else
        qn_stream_halves((char *)to + (size_t)v * sizeof(qn_halves), qn_narrow(dtype, x[v]));
    }
    return;
  }
#endif
  qn_store_pack(to, dtype, x);
}

QN_FN void qn_stream_end(void)
{
#if QN_LANES > 1 && defined(__x86_64__)
  _mm_sfence();
#endif
}

/* Asks for the memory that a pack some way ahead lies in: the processor's own prefetching stops at every page. Worth
 * 5 to 15 % of the memory's speed in Lion; without it 16-bit rows stay at 0.8 of it. */
QN_FN void qn_prefetch_pack(const void *pack, qn_dtype dtype)
{
#if QN_LANES > 1
  QN_UNROLL
  for (size_t at = 0; at < QN_PACK_ELEMENTS * qn_cpu_bytes(dtype); at += 64)
    __builtin_prefetch((const char *)pack + QN_AHEAD_BYTES + at);
#else
  (void)pack, (void)dtype;
#endif
}

/* Works on n packs: data[role] points at the first one's first element, whose index in the whole tensor is `element`.
 */
typedef void qn_packs_fn(void *user, void *const data[QN_MAX_TENSORS], size_t n, qn_u64 element);

/* All elements of the piece: the whole packs where they are, the rest, fewer than a pack, from zero-padded copies. */
static inline void qn_walk(const qn_piece *piece, const qn_op_types *row, qn_packs_fn *packs, void *user)
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
