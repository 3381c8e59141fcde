/* SPDX-License-Identifier: Apache-2.0 */
/* for_packs.h - what a CPU kernel needs round its formula: packs loaded from and stored to arrays of any storage type,
 * and the walk over a piece, whose last, short pack goes through padded copies and the same arithmetic. Pointers need
 * no alignment. Included by *.cpu.c only, which is built once per tier; the oracle's arrays hold doubles whatever the
 * type table says. */
#ifndef QN_BASE_FOR_PACKS_H
#define QN_BASE_FOR_PACKS_H
#include "base/dtype.h"
#include "base/piece.h"
#include "base/random.h"

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
    x[v] = dtype == QN_BF16 ? qn_widen_bf16(qn_bits_of_halves(h)) : qn_widen_f16(h);
  }
}

#if QN_LANES == 8
/* The first n lanes, as masked loads and stores want them. */
QN_FN __m256i qn_first_lanes(int64_t n)
{
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif

/* The first n lanes of a vector, n from 1 on; zeros in the others. What is beyond n elements is not touched. */
QN_FN qn_f32 qn_load_lanes(const float *from, int64_t n)
{
  qn_f32 x;
  if (n >= QN_LANES) {
    __builtin_memcpy(&x, from, sizeof x);
    return x;
  }
#if QN_LANES == 16
  return (qn_f32)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
#elif QN_LANES == 8
  return (qn_f32)_mm256_maskload_ps(from, qn_first_lanes(n));
#else
  float lane[QN_LANES] = {0};
  for (int64_t k = 0; k < n; k++) lane[k] = from[k];
  __builtin_memcpy(&x, lane, sizeof x);
  return x;
#endif
}

QN_FN qn_halves qn_load_lanes_of_halves(const qn_u16 *from, int64_t n)
{
  qn_halves x;
  if (n >= QN_LANES) {
    __builtin_memcpy(&x, from, sizeof x);
    return x;
  }
#if QN_LANES == 16
  return (qn_halves)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), from);
#else
  qn_u16 lane[QN_LANES] = {0};
  for (int64_t k = 0; k < n; k++) lane[k] = from[k];
  __builtin_memcpy(&x, lane, sizeof x);
  return x;
#endif
}

QN_FN void qn_store_lanes(float *to, int64_t n, qn_f32 x)
{
  if (n >= QN_LANES) {
    __builtin_memcpy(to, &x, sizeof x);
    return;
  }
#if QN_LANES == 16
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)x);
#elif QN_LANES == 8
  _mm256_maskstore_ps(to, qn_first_lanes(n), (__m256)x);
#else
  float lane[QN_LANES];
  __builtin_memcpy(lane, &x, sizeof x);
  for (int64_t k = 0; k < n; k++) to[k] = lane[k];
#endif
}

QN_FN void qn_store_lanes_of_halves(qn_u16 *to, int64_t n, qn_halves x)
{
  if (n >= QN_LANES) {
    __builtin_memcpy(to, &x, sizeof x);
    return;
  }
#if QN_LANES == 16
  _mm256_mask_storeu_epi16(to, (__mmask16)((1u << n) - 1), (__m256i)x);
#else
  qn_u16 lane[QN_LANES];
  __builtin_memcpy(lane, &x, sizeof x);
  for (int64_t k = 0; k < n; k++) to[k] = lane[k];
#endif
}

QN_FN qn_halves qn_narrow(qn_dtype dtype, qn_f32 x)
{
  return dtype == QN_BF16 ? qn_halves_of(qn_narrow_bf16(x)) : qn_narrow_f16(x);
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

/* ---- columns two apart, into and out of runs; width is of an element ---- */
/* Elements, half as many of eight bytes; bytes, so that no run of a tile is stored past the caches. */
enum { QN_TILE = 256, QN_TILE_SHIFT = 32 };

QN_FN void qn_take_each(char *to, const char *from, size_t n, size_t width)
{
  for (size_t k = 0; k < n; k++) __builtin_memcpy(to + k * width, from + 2 * k * width, width);
}

QN_FN void qn_give_each(char *to, const char *from, size_t n, size_t width)
{
  for (size_t k = 0; k < n; k++) __builtin_memcpy(to + 2 * k * width, from + k * width, width);
}

#if QN_LANES > 1
/* A word of 32 bits is one element, or an even and an odd one. The last vector is left: it would read one element more
 * than there is. */
QN_FN size_t qn_take_vectors(char *to, const char *from, size_t n, size_t width)
{
  size_t k = 0;
  for (; k + QN_LANES < n; k += QN_LANES) {
    qn_bits x, y;
    __builtin_memcpy(&x, from + 2 * k * width, sizeof x);
    if (width == 2) {
      const qn_halves even = qn_halves_of(x & 0xffffu);
      __builtin_memcpy(to + k * width, &even, sizeof even);
    } else {
      __builtin_memcpy(&y, from + 2 * k * width + sizeof x, sizeof y);
      x = qn_even_lanes(x, y);
      __builtin_memcpy(to + k * width, &x, sizeof x);
    }
  }
  return k;
}

/* Lines of both, past the caches if they are only written and begin as lines do. */
QN_FN void qn_put_lanes(char *to, qn_bits x, bool streams)
{
#ifdef __x86_64__
  if (streams && (uintptr_t)to % sizeof x == 0) {
    qn_stream_lanes(to, qn_f32_of(x));
    return;
  }
#endif
  (void)streams;
  __builtin_memcpy(to, &x, sizeof x);
}

QN_FN size_t qn_give_vectors(char *to, const char *even, const char *odd, size_t n, size_t width, bool streams)
{
  size_t k = 0;
  for (; k + QN_LANES <= n; k += QN_LANES) {
    if (width == 2) {
      qn_halves x, y;
      __builtin_memcpy(&x, even + k * width, sizeof x);
      __builtin_memcpy(&y, odd + k * width, sizeof y);
      qn_put_lanes(to + 2 * k * width, qn_bits_of_halves(x) | qn_bits_of_halves(y) << 16, streams);
    } else {
      qn_bits x, y;
      __builtin_memcpy(&x, even + k * width, sizeof x);
      __builtin_memcpy(&y, odd + k * width, sizeof y);
      qn_put_lanes(to + 2 * k * width, qn_mix_low(x, y), streams);
      qn_put_lanes(to + 2 * k * width + sizeof x, qn_mix_high(x, y), streams);
    }
  }
  return k;
}
#endif

static inline void qn_take_columns(char *to, const char *from, size_t n, size_t width)
{
  size_t k = 0;
#if QN_LANES > 1
  if (width == 2 || width == 4) k = width == 2 ? qn_take_vectors(to, from, n, 2) : qn_take_vectors(to, from, n, 4);
#endif
  qn_take_each(to + k * width, from + 2 * k * width, n - k, width);
}

/* odd: what goes between them, or NULL: then what is between them is somebody else's and is not touched. */
static inline void qn_give_columns(char *to, const char *even, const char *odd, size_t n, size_t width, bool streams)
{
  size_t k = 0;
#if QN_LANES > 1
  if (odd && width == 2) k = qn_give_vectors(to, even, odd, n, 2, streams);
  if (odd && width == 4) k = qn_give_vectors(to, even, odd, n, 4, streams);
#endif
  (void)streams;
  qn_give_each(to + 2 * k * width, even + k * width, n - k, width);
  if (odd) qn_give_each(to + (2 * k + 1) * width, odd + k * width, n - k, width);
}

/* Works on n packs: data[role] points at the first one's first element, whose index in the whole tensor is `element`.
 */
typedef void qn_packs_fn(void *user, void *const data[QN_MAX_TENSORS], size_t n, qn_u64 element);

/* All elements of a piece without gaps: the whole packs where they are, the rest, fewer than a pack, from zero-padded
 * copies. */
static inline void qn_walk_run(const qn_piece *piece, const qn_op_types *row, qn_packs_fn *packs, void *user)
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

typedef char qn_tile[QN_TILE * sizeof(float) + 2 * QN_TILE_SHIFT];

/* The role that is written with this one's columns between its own, or -1. */
static inline int qn_odd_role(const qn_piece *piece, const qn_op_types *row, int even)
{
  const size_t width = qn_cpu_bytes(row->tensor[even].dtype);
  for (int role = 0; role < QN_MAX_TENSORS; role++)
    if (piece->step[role] == 2 && row->tensor[role].access == row->tensor[even].access &&
        row->tensor[role].dtype == row->tensor[even].dtype &&
        (char *)piece->data[role] == (char *)piece->data[even] + width)
      return role;
  return -1;
}

static inline void qn_give_tiles(const qn_piece *piece, const qn_op_types *row, qn_tile *tiles, size_t done, size_t n)
{
  uint32_t given = 0;
  for (int role = 0; role < QN_MAX_TENSORS; role++) {
    const size_t width = qn_cpu_bytes(row->tensor[role].dtype);
    if (piece->step[role] != 2 || !(row->tensor[role].access & QN_WRITE)) continue;
    const int odd = qn_odd_role(piece, row, role);
    if (odd < 0) continue;
    qn_give_columns((char *)piece->data[role] + 2 * done * width, tiles[role] + QN_TILE_SHIFT,
                    tiles[odd] + QN_TILE_SHIFT, n, width, piece->streams && row->tensor[role].access == QN_WRITE);
    given |= 1u << role | 1u << odd;
  }
  for (int role = 0; role < QN_MAX_TENSORS; role++) {
    const size_t width = qn_cpu_bytes(row->tensor[role].dtype);
    if (piece->step[role] != 2 || !(row->tensor[role].access & QN_WRITE) || given >> role & 1) continue;
    qn_give_columns((char *)piece->data[role] + 2 * done * width, tiles[role] + QN_TILE_SHIFT, NULL, n, width, false);
  }
}

/* A piece of which some role's columns are two apart: those go through tiles on the stack. */
static __attribute__((noinline)) void qn_walk_tiles(const qn_piece *piece, const qn_op_types *row, qn_packs_fn *packs,
                                                    void *user)
{
  _Alignas(64) qn_tile tiles[QN_MAX_TENSORS];
  qn_piece part = *piece;
  part.step = NULL;
  size_t most = QN_TILE;
  for (int role = 0; role < QN_MAX_TENSORS; role++)
    if (qn_cpu_bytes(row->tensor[role].dtype) > sizeof(float)) most = QN_TILE / 2;
  for (size_t done = 0; done < piece->n; done += part.n, part.first += part.n) {
    part.n = piece->n - done < most ? piece->n - done : most;
    for (int role = 0; role < QN_MAX_TENSORS; role++) {
      const size_t width = qn_cpu_bytes(row->tensor[role].dtype);
      if (!width) continue;
      char *const from = (char *)piece->data[role] + piece->step[role] * done * width;
      part.data[role] = piece->step[role] == 2 ? tiles[role] + QN_TILE_SHIFT : from;
      if (piece->step[role] == 2 && row->tensor[role].access & QN_READ)
        qn_take_columns(part.data[role], from, part.n, width);
    }
    qn_walk_run(&part, row, packs, user);
    if (!piece->tally) qn_give_tiles(piece, row, tiles, done, part.n);
  }
}

/* All elements of the piece. */
static inline void qn_walk(const qn_piece *piece, const qn_op_types *row, qn_packs_fn *packs, void *user)
{
  if (piece->step)
    qn_walk_tiles(piece, row, packs, user);
  else
    qn_walk_run(piece, row, packs, user);
}

/* Where pack k of an array is. */
QN_FN void *qn_pack_at(void *data, qn_dtype dtype, size_t k)
{
  return (char *)data + k * (QN_PACK_ELEMENTS * qn_cpu_bytes(dtype));
}
#endif
