/* SPDX-License-Identifier: Apache-2.0 */
/* list_kernel.h - the device kernel of an element-wise op over a list of tensors, all but its formula: a block finds
 * its tensor and its chunk, a thread loads one pack of every role, widens it to f32, and after the formula narrows and
 * stores.
 *
 *     QN_LIST_KERNEL(scale, qn_scale_coef, a, chunk, x)
 *     {
 *       qn_list_values(x, role, values); ... formula over values ...
 *       qn_list_store(a, chunk, x, role, values, nullptr);
 *     }
 *
 * The body is one pack of one thread. Which elements it has, and how many packs a thread takes, are the geometry's
 * business (op/launch_shape.h), so that one text serves all: flat, where blocks take successive runs of dense tensors;
 * tiles, where a block takes a tile of columns of a row; rows, where it takes a row, tile by tile. Short rows share a
 * block: as many threads as a row needs are one row's, a power of two.
 *
 * device_list.c defines for each variant QN_LIST_ROLES, of which QN_LIST_GIVEN are not absent; QN_LIST_DTYPES,
 * QN_LIST_ACCESSES and QN_LIST_SLOTS (hexadecimal, role 0 the lowest digit, as the numbers of quern/tensor.h and
 * quern/op.h; a slot is the place of a role among those given), QN_LIST_CAPACITY tensors an argument, QN_PACK elements
 * a pack, QN_LIST_PACKS packs a thread, QN_LIST_FLAGS (the op's), QN_LIST_RANDOM, QN_LIST_COUNTS (1: the kernel that
 * only counts), QN_THREADS, QN_LIST_SHAPE and QN_LIST_PERSISTENT (the geometry's). Tensors that are not dense:
 * QN_LIST_PITCHED, each role's rows have a pitch of their own; QN_LIST_STEPS, roles (bits) whose columns are two apart;
 * QN_LIST_PAIRS, by role 1 + the role whose columns lie between its own, or 0; QN_LIST_ODDS, roles that are such a
 * pair's second. A row whose bases are not aligned for vector access, the last, partial pack of a row, and columns two
 * apart that are no pair's go element by element: same formula, same bits. QN_LIST_WHOLE: a lone tensor that has none
 * of these: without their code its loads are reached sooner, which counts where a launch is over few rows;
 * QN_LIST_EACH: nothing is taken but single elements, as of a lone tensor that is off its boundary, or where QN_PACK is
 * 1. QN_LIST_NEAR: 32 bits hold every index of a lone tensor. QN_LIST_LANES: 1 + log2 of the threads that a lone
 * tensor's row has; 0: the argument says.
 * QN_LIST_PEEL: rows begin off a vector's boundary, equally far in all roles; a row's first pack begins on the boundary
 * before it and lacks its first elements, so that the packs behind are aligned. */
#ifndef QN_BASE_LIST_KERNEL_H
#define QN_BASE_LIST_KERNEL_H
#include "base/dtype.h"
#include "base/kernel.h"
#include "base/simd.h"
#include "base/random.h"

enum { QN_NONE, QN_F32, QN_BF16, QN_F16, QN_F64 };    /* as quern/tensor.h */
enum { QN_ABSENT, QN_READ, QN_WRITE, QN_READ_WRITE }; /* as quern/op.h */

/* As op/launch_shape.h numbers them. */
#define QN_LIST_SHAPE_FLAT 0
#define QN_LIST_SHAPE_ROWS 1
#define QN_LIST_SHAPE_TILES 2

#if QN_LIST_NEAR
typedef qn_u32 qn_list_index; /* of elements, counted from a tensor's first */
#else
typedef qn_u64 qn_list_index;
#endif

/* The kind of a role. Shifts of constants, not tables: a table indexed by role would go to local memory. */
QN_FN constexpr int qn_list_dtype(int role) { return QN_LIST_DTYPES >> 4 * role & 15; }
QN_FN constexpr int qn_list_access(int role) { return QN_LIST_ACCESSES >> 4 * role & 15; }
QN_FN constexpr int qn_list_slot(int role) { return QN_LIST_SLOTS >> 4 * role & 15; } /* its place among those given */
QN_FN constexpr int qn_list_bytes(int role) { return qn_list_dtype(role) == QN_F32 ? 4 : 2; }

QN_FN constexpr int qn_list_given(int role)
{
  return qn_list_access(role) != QN_ABSENT ? role : qn_list_given(role + 1);
}

#define QN_LIST_ROWWISE (QN_LIST_SHAPE != QN_LIST_SHAPE_FLAT)

QN_FN constexpr int qn_list_step(int role) { return 1 + (QN_LIST_STEPS >> role & 1); }
QN_FN constexpr int qn_list_partner(int role) { return int(QN_LIST_PAIRS >> 4 * role & 15) - 1; } /* -1: none */
QN_FN constexpr bool qn_list_is_odd(int role) { return QN_LIST_ODDS >> role & 1; }

/* The argument; list_kernel_args.h has the same members in the same order. */
template <class Coef> struct qn_list_args {
  Coef coef;
  QN_FAR char *data[QN_LIST_GIVEN][QN_LIST_CAPACITY];
  qn_u64 elements[QN_LIST_CAPACITY];
#if QN_LIST_RANDOM
  qn_u64 first[QN_LIST_CAPACITY]; /* index in the whole tensor of element 0 */
#endif
#if QN_LIST_ROWWISE
  qn_u64 cols[QN_LIST_CAPACITY];
#endif
#if QN_LIST_PITCHED
  qn_u64 pitch[QN_LIST_GIVEN][QN_LIST_CAPACITY]; /* elements from row to row */
#endif
  QN_FAR qn_u64 *tally;  /* behind what every thread reads at once, which then is in few lines of the constant cache */
  qn_u32 tensors, place; /* in this launch; number in the list of the first of them */
  qn_u32 first_block[QN_LIST_CAPACITY];
#if QN_LIST_RANDOM
  qn_u32 id[QN_LIST_CAPACITY];
#endif
#if QN_LIST_ROWWISE
  qn_u32 tiles[QN_LIST_CAPACITY], inverse[QN_LIST_CAPACITY]; /* of a row; what divides by it, see qn_list_row */
  qn_u32 shift[QN_LIST_CAPACITY]; /* log2 of a row's threads, and 256 times that of tiles, rounded up */
#endif
#if QN_LIST_PERSISTENT
  qn_u32 work; /* blocks, were each to take one piece of work */
#endif
};

/* A lone tensor's blocks begin at 0. */
template <class Args> QN_FN qn_u32 qn_list_first_block(const Args &a, qn_u32 tensor)
{
  return QN_LIST_CAPACITY == 1 ? 0 : a.first_block[tensor];
}

/* A thread's share: packs of a tensor from position `begin` on, `stride` apart, as many as QN_LIST_PACKS and as begin
 * below `end`. A position is an element's index in the row, or where rows do not count in the tensor; with QN_LIST_PEEL
 * begin and end count from the boundary before it, `before` elements back. */
struct qn_list_chunk {
  qn_u32 tensor;
  bool aligned; /* for vector access, every role */
  bool first;   /* is this thread the first of the tensor's? */
  qn_list_index begin, end, stride;
  qn_list_index row, origin; /* its number and the index in the tensor of its first element; 0, 0 in a flat one */
  /* A pack's elements are 2^spread apart. Where vectors cannot be, the threads of a simdgroup then access elements side
   * by side; 0: the pack's elements are, as vectors and random words must be. */
  qn_u32 spread, before;
};

/* One thread's elements of every role as they are stored (16-bit ones two to a word), and which of the tensor's they
 * are. They are widened only by qn_list_values, so that what needs no data (random words) can be computed while they
 * travel. */
struct qn_list_pack {
  qn_u32 stored[QN_LIST_ROLES][QN_PACK];
  qn_list_index at; /* position; of a row's first pack with QN_LIST_PEEL it may be before 0, that is to say wrapped */
  qn_u32 valid;     /* 0 to QN_PACK of them exist, */
  qn_u32 missing;   /* but for the first so many, with QN_LIST_PEEL */
};

/* The first elements that a pack lacks; a constant where none can. */
QN_FN qn_u32 qn_list_missing(const qn_list_pack &x) { return QN_LIST_PEEL ? x.missing : 0; }

/* The element at a position of a role. */
template <class Args>
QN_FN QN_FAR char *qn_list_address(const Args &a, const qn_list_chunk &chunk, int role, qn_list_index at)
{
#if QN_LIST_PITCHED
  const qn_list_index pitch = qn_list_index(a.pitch[qn_list_slot(role)][chunk.tensor]);
  const qn_list_index element = chunk.row * pitch + at * qn_list_step(role);
#else
  const qn_list_index element = chunk.origin + at;
#endif
  return a.data[qn_list_slot(role)][chunk.tensor] + qn_u64(element) * qn_list_bytes(role);
}

/* Is the chunk's row (the tensor, where rows do not count) aligned for vector access? */
template <class Args> QN_FN bool qn_list_is_aligned(const Args &a, const qn_list_chunk &chunk)
{
  bool aligned = true;
  QN_UNROLL
  for (int r = 0; r < QN_LIST_ROLES; r++) {
    if (qn_list_access(r) == QN_ABSENT) continue;
    if (qn_list_step(r) == 2 && (qn_list_partner(r) < 0 || qn_list_is_odd(r))) continue;
    const qn_u64 base = reinterpret_cast<qn_u64>(qn_list_address(a, chunk, r, 0));
    const int bytes = QN_PACK * qn_list_bytes(r) * qn_list_step(r);
    if (base & (bytes < 16 ? bytes - 1 : 15)) aligned = false;
  }
  return aligned;
}

QN_FN constexpr qn_u32 qn_list_log(qn_u32 x) { return x > 1 ? 1 + qn_list_log(x / 2) : 0; }

/* A tensor's last, partial pack is taken by the last thread of its block, which is in another warp than the vectors
 * before it unless the block is nearly full: in one warp, its element-wise loads and theirs would wait for each other,
 * which is what a launch of one block takes longest for. Other threads that would have it have nothing. */
QN_FN qn_list_index qn_list_move_last(qn_list_index block, qn_list_index begin, qn_list_index end, qn_u32 index)
{
  const qn_list_index last = end & ~qn_list_index(QN_PACK - 1);
  if (last == end || last < block || begin < last) return begin;
  return index == QN_THREADS - 1 ? last : end;
}

/* The row of a block, whose tiles are numbered row by row: block / tiles, without the long way of a division to the
 * first load. Granlund and Montgomery, Division by invariant integers using multiplication, figure 4.1; the sum does
 * not overflow, since a launch has fewer than 2^31 blocks. */
template <class Args> QN_FN qn_u32 qn_list_row(const Args &a, qn_u32 tensor, qn_u32 block)
{
  return (qn_u32(qn_u64(a.inverse[tensor]) * block >> 32) + block) >> (a.shift[tensor] >> 8);
}

/* May a row have several tiles, which are blocks'? Not where it has fewer threads than a block. */
QN_FN constexpr bool qn_list_has_tiles()
{
  return QN_LIST_SHAPE == QN_LIST_SHAPE_TILES && !(QN_LIST_LANES && QN_LIST_LANES <= qn_list_log(QN_THREADS));
}

template <class Args> QN_FN qn_list_chunk qn_list_find(const Args &a, qn_u64 work, qn_u32 index)
{
  qn_u32 low = 0, high = QN_LIST_CAPACITY == 1 ? 1 : a.tensors;
  while (high - low > 1) {
    qn_u32 middle = (low + high) / 2;
    if (a.first_block[middle] <= work)
      low = middle;
    else
      high = middle;
  }
  qn_list_chunk chunk = {};
  chunk.tensor = low;
#if QN_LIST_ROWWISE
  const qn_u32 block = qn_u32(work) - qn_list_first_block(a, low);
  const qn_u32 shift = QN_LIST_LANES ? QN_LIST_LANES - 1 : a.shift[low] & 255;
  const qn_u32 lane = index & ((1u << shift) - 1);
  const qn_u32 rows = qn_list_has_tiles() ? qn_list_row(a, low, block) : block;
  const qn_u32 tile = qn_list_has_tiles() ? block - rows * a.tiles[low] : 0;
  const qn_list_index cols = qn_list_index(a.cols[low]);
  chunk.row = qn_list_index(rows) * (qn_u32(QN_THREADS) >> shift) + (index >> shift);
  chunk.origin = chunk.row * cols;
  chunk.end = chunk.origin < qn_list_index(a.elements[low]) ? cols : 0;
  chunk.stride = qn_list_index(QN_PACK) << shift;
  const qn_list_index begin = qn_list_index(tile) * QN_LIST_PACKS * chunk.stride;
#else
  const qn_u32 lane = index, shift = qn_list_log(QN_THREADS);
  const qn_list_index begin =
      qn_list_index(work - qn_list_first_block(a, low)) * (QN_THREADS * QN_PACK * QN_LIST_PACKS);
  chunk.end = qn_list_index(a.elements[low]);
  chunk.stride = QN_THREADS * QN_PACK;
#endif
  chunk.begin = begin + lane * QN_PACK;
  chunk.first = chunk.begin == 0 && chunk.row == 0;
  chunk.aligned = QN_LIST_WHOLE || QN_LIST_PEEL || (!QN_LIST_EACH && qn_list_is_aligned(a, chunk));
  if (QN_LIST_PEEL && chunk.end) {
    constexpr int role = qn_list_given(0);
    const qn_u64 base = reinterpret_cast<qn_u64>(qn_list_address(a, chunk, role, 0));
    chunk.before = qn_u32(base / qn_list_bytes(role)) % QN_PACK;
    chunk.end += chunk.before;
  }
  if (QN_LIST_WHOLE || QN_LIST_PEEL || QN_LIST_PACKS != 1) return chunk;
  if (!chunk.aligned && !QN_LIST_RANDOM) {
    chunk.spread = shift < 5 ? shift : 5;
    const qn_u32 beside = lane & ((1u << chunk.spread) - 1);
    chunk.begin = begin + ((lane - beside) * QN_PACK + beside);
  } else if (!QN_LIST_ROWWISE) {
    chunk.begin = qn_list_move_last(begin, chunk.begin, chunk.end, index);
  }
  return chunk;
}

/* The next tile of the thread's row; false: there is none, or it is another block's. */
QN_FN bool qn_list_go_on(qn_list_chunk &chunk)
{
#if QN_LIST_SHAPE == QN_LIST_SHAPE_ROWS
  chunk.begin += chunk.stride * QN_LIST_PACKS;
  chunk.first = false;
  return chunk.begin < chunk.end;
#else
  return false;
#endif
}

/* The block's next piece of work; false: there is none. */
template <class Args> QN_FN bool qn_list_stay(const Args &a, qn_u64 blocks, qn_u64 &work)
{
#if QN_LIST_PERSISTENT
  work += blocks;
  return work < a.work;
#else
  return false;
#endif
}

/* ---- one role of one pack ---- */
QN_FN qn_f32 qn_list_widen(int dtype, qn_bits bits)
{
  return dtype == QN_F32 ? qn_f32_of(bits) : dtype == QN_BF16 ? qn_widen_bf16(bits) : qn_widen_f16((qn_halves)bits);
}

QN_FN qn_bits qn_list_narrow(int dtype, qn_f32 x)
{
  return dtype == QN_F32 ? qn_bits_of(x) : dtype == QN_BF16 ? qn_narrow_bf16(x) : qn_narrow_f16(x);
}

QN_FN qn_bits qn_list_narrow_chance(int dtype, qn_f32 x, qn_bits word)
{
  return dtype == QN_F32    ? qn_bits_of(x)
         : dtype == QN_BF16 ? qn_narrow_bf16_chance(x, word)
                            : qn_narrow_f16_chance(x, word);
}

QN_FN void qn_list_load_vector(int dtype, const QN_FAR char *from, qn_u32 *to)
{
  const int words = dtype == QN_F32 ? QN_PACK : QN_PACK / 2;
  if (words == 2) {
    const qn_8bytes v = qn_load8(from);
    to[0] = v.word[0], to[1] = v.word[1];
    return;
  }
  QN_UNROLL
  for (int w = 0; w < words; w += 4) {
    const qn_16bytes v = qn_load16(from + 4 * w);
    to[w] = v.word[0], to[w + 1] = v.word[1], to[w + 2] = v.word[2], to[w + 3] = v.word[3];
  }
}

/* Of narrowed elements only the low 16 bits count where storage is of 16 bits. */
QN_FN void qn_list_store_vector(int dtype, QN_FAR char *to, const qn_u32 *x)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k += dtype == QN_F32 || QN_PACK == 4 ? 4 : 8) {
    if (dtype == QN_F32)
      qn_store16(to + 4 * k, {{x[k], x[k + 1], x[k + 2], x[k + 3]}});
    else if (QN_PACK == 4)
      qn_store8(to + 2 * k, {{qn_join_halves(x[k], x[k + 1]), qn_join_halves(x[k + 2], x[k + 3])}});
    else
      qn_store16(to + 2 * k, {{qn_join_halves(x[k], x[k + 1]), qn_join_halves(x[k + 2], x[k + 3]),
                               qn_join_halves(x[k + 4], x[k + 5]), qn_join_halves(x[k + 6], x[k + 7])}});
  }
}

/* The same of bf16 that is not narrowed yet: two at once, with nothing to join. */
QN_FN void qn_list_store_bf16(QN_FAR char *to, const qn_f32 *x)
{
  qn_u32 word[4];
  QN_UNROLL
  for (int w = 0; w < QN_PACK / 2; w++) word[w] = qn_floats_bf16(x[2 * w], x[2 * w + 1]);
  if (QN_PACK == 4)
    qn_store8(to, {{word[0], word[1]}});
  else
    qn_store16(to, {{word[0], word[1], word[2], word[3]}});
}

/* A pair's columns lie one after the other: words are split, or joined. */
QN_FN void qn_list_load_pair(int dtype, const QN_FAR char *from, qn_u32 *even, qn_u32 *odd)
{
  const int words = dtype == QN_F32 ? 2 * QN_PACK : QN_PACK;
  qn_u32 both[2 * QN_PACK];
  QN_UNROLL
  for (int w = 0; w < words; w += 4) {
    const qn_16bytes v = qn_load16(from + 4 * w);
    both[w] = v.word[0], both[w + 1] = v.word[1], both[w + 2] = v.word[2], both[w + 3] = v.word[3];
  }
  QN_UNROLL
  for (int k = 0; k < words / 2; k++) {
    even[k] = dtype == QN_F32 ? both[2 * k] : qn_join_halves(both[2 * k], both[2 * k + 1]);
    odd[k] = dtype == QN_F32 ? both[2 * k + 1] : qn_join_high_halves(both[2 * k], both[2 * k + 1]);
  }
}

QN_FN void qn_list_store_pair(int dtype, QN_FAR char *to, const qn_u32 *even, const qn_u32 *odd)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k += dtype == QN_F32 ? 2 : 4) {
    if (dtype == QN_F32)
      qn_store16(to + 8 * k, {{even[k], odd[k], even[k + 1], odd[k + 1]}});
    else
      qn_store16(to + 4 * k, {{qn_join_halves(even[k], odd[k]), qn_join_halves(even[k + 1], odd[k + 1]),
                               qn_join_halves(even[k + 2], odd[k + 2]), qn_join_halves(even[k + 3], odd[k + 3])}});
  }
}

/* Elements that do not exist, the first `missing` and those from `valid` on, are zero. */
QN_FN void qn_list_load_each(int dtype, int step, const QN_FAR char *from, qn_u32 missing, qn_u32 valid, qn_u32 *to)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    const bool exists = qn_u32(k) >= missing && qn_u32(k) < valid;
    if (dtype == QN_F32) {
      to[k] = exists ? reinterpret_cast<const QN_FAR qn_u32 *>(from)[k * step] : 0;
    } else {
      const qn_u32 half = exists ? reinterpret_cast<const QN_FAR qn_u16 *>(from)[k * step] : 0;
      to[k / 2] = k % 2 ? to[k / 2] | half << 16 : half;
    }
  }
}

QN_FN void qn_list_store_each(int dtype, int step, QN_FAR char *to, qn_u32 missing, qn_u32 valid,
                              const qn_u32 *narrowed)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    const bool exists = qn_u32(k) >= missing && qn_u32(k) < valid;
    if (exists && dtype == QN_F32) reinterpret_cast<QN_FAR qn_u32 *>(to)[k * step] = narrowed[k];
    if (exists && dtype != QN_F32) reinterpret_cast<QN_FAR qn_u16 *>(to)[k * step] = qn_u16(narrowed[k]);
  }
}

/* ---- all roles of one pack ---- */

/* The vectors that a role reads of a pack. A pair's second comes with its first. */
template <class Args> QN_FN void qn_list_load_role(const Args &a, const qn_list_chunk &chunk, int role, qn_list_pack &x)
{
  const QN_FAR char *const from = qn_list_address(a, chunk, role, x.at);
  if (qn_list_partner(role) >= 0) {
    if (!qn_list_is_odd(role))
      qn_list_load_pair(qn_list_dtype(role), from, x.stored[role], x.stored[qn_list_partner(role)]);
  } else if (qn_list_step(role) == 2) {
    qn_list_load_each(qn_list_dtype(role), 2, from, 0, QN_PACK, x.stored[role]);
  } else {
    qn_list_load_vector(qn_list_dtype(role), from, x.stored[role]);
  }
}

/* The same one by one, of all roles. */
template <class Args>
QN_FN void qn_list_load_singles(const Args &a, const qn_list_chunk &chunk, qn_u32 missing, qn_u32 valid,
                                qn_list_pack &x)
{
  QN_UNROLL
  for (int r = 0; r < QN_LIST_ROLES; r++)
    if (qn_list_access(r) & QN_READ)
      qn_list_load_each(qn_list_dtype(r), qn_list_step(r) << chunk.spread, qn_list_address(a, chunk, r, x.at), missing,
                        valid, x.stored[r]);
}

/* Loads what the roles read of pack number `pack` of this thread; valid is 0 if there is none. */
template <class Args> QN_FN void qn_list_load(const Args &a, const qn_list_chunk &chunk, int pack, qn_list_pack &x)
{
  x.at = chunk.begin + qn_list_index(pack) * chunk.stride;
  x.valid = x.missing = 0;
  if (x.at >= chunk.end) return;
  const qn_list_index left = ((chunk.end - x.at - 1) >> chunk.spread) + 1;
  x.valid = QN_LIST_WHOLE || QN_PACK == 1 || left >= QN_PACK ? QN_PACK : qn_u32(left);
  if (QN_LIST_PEEL) {
    x.missing = x.at ? 0 : chunk.before;
    x.at -= chunk.before;
  }
  const bool full = x.valid == QN_PACK && !qn_list_missing(x);
  if (chunk.aligned && full) {
    QN_UNROLL
    for (int r = 0; r < QN_LIST_ROLES; r++)
      if (qn_list_access(r) & QN_READ) qn_list_load_role(a, chunk, r, x);
  } else if (full) {
    qn_list_load_singles(a, chunk, 0, QN_PACK, x);
  } else {
    qn_list_load_singles(a, chunk, qn_list_missing(x), x.valid, x);
  }
}

/* A role's elements in f32. */
QN_FN void qn_list_values(const qn_list_pack &x, int role, qn_f32 *to)
{
  const int dtype = qn_list_dtype(role);
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    const qn_u32 word = x.stored[role][dtype == QN_F32 ? k : k / 2];
    to[k] = qn_list_widen(dtype, dtype == QN_F32 ? word : k % 2 ? word >> 16 : word & 0xffffu);
  }
}

/* The random words of a pack for one use of its elements; `from` needs no tensor_id, which is the list's. */
struct qn_list_noise {
  qn_u32 word[QN_PACK];
};

template <class Args>
QN_FN void qn_list_draw(const Args &a, const qn_list_chunk &chunk, const qn_list_pack &x, qn_random from,
                        qn_list_noise *to)
{
#if QN_LIST_RANDOM
  from.tensor_id = a.id[chunk.tensor];
  qn_random_pack(&from, a.first[chunk.tensor] + chunk.origin + x.at, to->word);
#endif
}

/* Narrows and stores a role: to nearest even, or by chance where there is noise and storage is of 16 bits. A role that
 * is absent or only read is left alone. Of two roles that may be the even and odd columns of one tensor the one with
 * the lower number is stored first, after the values of both have been taken: it waits in the pack for the other. */
template <class Args>
QN_FN void qn_list_store(const Args &a, const qn_list_chunk &chunk, qn_list_pack &x, int role, const qn_f32 *values,
                         const qn_list_noise *noise)
{
  const int dtype = qn_list_dtype(role), partner = qn_list_partner(role);
  if (!(qn_list_access(role) & QN_WRITE)) return;
  if (QN_LIST_WHOLE && dtype == QN_BF16 && !noise && qn_list_step(role) == 1)
    return qn_list_store_bf16(qn_list_address(a, chunk, role, x.at), values);
  qn_u32 narrowed[QN_PACK];
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++)
    narrowed[k] = noise ? qn_list_narrow_chance(dtype, values[k], noise->word[k]) : qn_list_narrow(dtype, values[k]);
  QN_FAR char *to = qn_list_address(a, chunk, role, x.at);
  const bool full = x.valid == QN_PACK && !qn_list_missing(x);
  const bool vector = chunk.aligned && full && (qn_list_step(role) == 1 || partner >= 0);
  if (!vector && full) {
    qn_list_store_each(dtype, qn_list_step(role) << chunk.spread, to, 0, QN_PACK, narrowed);
  } else if (!vector) {
    qn_list_store_each(dtype, qn_list_step(role) << chunk.spread, to, qn_list_missing(x), x.valid, narrowed);
  } else if (partner < 0) {
    qn_list_store_vector(dtype, to, narrowed);
  } else if (role < partner) {
    QN_UNROLL
    for (int k = 0; k < QN_PACK; k++) x.stored[role][k] = narrowed[k];
  } else if (qn_list_is_odd(role)) {
    qn_list_store_pair(dtype, qn_list_address(a, chunk, partner, x.at), x.stored[partner], narrowed);
  } else {
    qn_list_store_pair(dtype, to, narrowed, x.stored[partner]);
  }
}

/* ---- the kernel ---- */
/* All packs of a thread are asked for before the first is worked on, so that they travel together. */
#define QN_LIST_KERNEL(name, Coef, a, chunk, x)                                                                        \
  QN_FN void name##_pack(const QN_NEAR qn_list_args<Coef> &a, const QN_NEAR qn_list_chunk &chunk,                      \
                         QN_NEAR qn_list_pack &x);                                                                     \
  QN_KERNEL(name, qn_list_args<Coef>, a)                                                                               \
  {                                                                                                                    \
    qn_u64 work = qn_block();                                                                                          \
    do {                                                                                                               \
      qn_list_chunk chunk = qn_list_find(a, work, qn_thread());                                                        \
      do {                                                                                                             \
        qn_list_pack x[QN_LIST_PACKS];                                                                                 \
        QN_UNROLL                                                                                                      \
        for (int k = 0; k < QN_LIST_PACKS; k++) qn_list_load(a, chunk, k, x[k]);                                       \
        QN_UNROLL                                                                                                      \
        for (int k = 0; k < QN_LIST_PACKS; k++) {                                                                      \
          if (!x[k].valid) continue;                                                                                   \
          if (QN_LIST_WHOLE || QN_PACK == 1) x[k].valid = QN_PACK; /* a constant: no code for fewer */                 \
          name##_pack(a, chunk, x[k]);                                                                                 \
        }                                                                                                              \
      } while (qn_list_go_on(chunk));                                                                                  \
    } while (qn_list_stay(a, qn_blocks(), work));                                                                      \
  }                                                                                                                    \
  QN_FN void name##_pack(const QN_NEAR qn_list_args<Coef> &a, const QN_NEAR qn_list_chunk &chunk,                      \
                         QN_NEAR qn_list_pack &x)

#if QN_LIST_COUNTS
/* The end of a counting kernel, which every thread of the block reaches: the tensor's {count, elements}. */
template <class Args> QN_FN void qn_list_tally(const Args &a, const qn_list_chunk &chunk, qn_u32 count)
{
  qn_u64 *const tally = a.tally + 2 * (a.place + chunk.tensor);
  qn_tally_add(tally, count);
  if (chunk.first) qn_tally_add(tally + 1, a.elements[chunk.tensor]);
}

/* The kernel of the phase that counts: its body gives what a pack adds to the tensor's count. */
#define QN_LIST_COUNT_KERNEL(name, Coef, a, x)                                                                         \
  QN_FN qn_u32 name##_count(const qn_list_args<Coef> &a, const qn_list_pack &x);                                       \
  QN_KERNEL(name, qn_list_args<Coef>, a)                                                                               \
  {                                                                                                                    \
    const qn_list_chunk chunk = qn_list_find(a, qn_block(), qn_thread());                                              \
    qn_u32 count = 0;                                                                                                  \
    for (int first = 0; first < QN_LIST_PACKS; first += 4) {                                                           \
      qn_list_pack x[4]; /* as many loads travel together */                                                           \
      QN_UNROLL                                                                                                        \
      for (int k = 0; k < 4; k++) qn_list_load(a, chunk, first + k, x[k]);                                             \
      QN_UNROLL                                                                                                        \
      for (int k = 0; k < 4; k++)                                                                                      \
        if (x[k].valid) count += name##_count(a, x[k]);                                                                \
      if (!x[3].valid) break;                                                                                          \
    }                                                                                                                  \
    qn_list_tally(a, chunk, count);                                                                                    \
  }                                                                                                                    \
  QN_FN qn_u32 name##_count(const qn_list_args<Coef> &a, const qn_list_pack &x)
#endif
#endif
