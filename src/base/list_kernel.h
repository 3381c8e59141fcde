/* SPDX-License-Identifier: Apache-2.0 */
/* list_kernel.h - the device kernel of an element-wise op over a list of tensors, all but its formula: a block finds
 * its tensor and its chunk, a thread loads one pack of every role, widens it to f32, and after the formula narrows and
 * stores.
 *
 *     QN_LIST_KERNEL(lion, qn_lion_coef, a)
 *     {
 *       const qn_list_chunk chunk = qn_list_find(a, qn_block());
 *       qn_list_pack x;
 *       if (!qn_list_load(a, chunk, qn_thread(), 0, &x)) return;
 *       qn_list_values(x, role, values); ... formula over values ...
 *       qn_list_store(a, chunk, x, role, values, NULL);
 *     }
 *
 * device_list.c defines for each variant QN_LIST_ROLES, of which QN_LIST_GIVEN are not absent; QN_LIST_DTYPES,
 * QN_LIST_ACCESSES and QN_LIST_SLOTS (hexadecimal, role 0 the lowest digit, as the numbers of quern/tensor.h and
 * quern/op.h; a slot is the place of a role among those given), QN_LIST_CAPACITY tensors an argument, QN_PACK elements
 * a pack, QN_LIST_PACKS packs a thread, QN_LIST_FLAGS (the op's), QN_LIST_RANDOM, QN_LIST_COUNTS (1: the kernel that
 * only counts), QN_THREADS. A tensor whose bases are not aligned for vector access, and the last, partial pack of a
 * tensor, go element by element: same formula, same bits. */
#ifndef QN_BASE_LIST_KERNEL_H
#define QN_BASE_LIST_KERNEL_H
#include "base/dtype.h"
#include "base/kernel.h"
#include "base/lane.h"
#include "base/random.h"

enum { QN_NONE, QN_F32, QN_BF16, QN_F16, QN_F64 };    /* as quern/tensor.h */
enum { QN_ABSENT, QN_READ, QN_WRITE, QN_READ_WRITE }; /* as quern/op.h */

/* What a role is. Shifts of constants, not tables: a table indexed by role would go to local memory. */
QN_FN constexpr int qn_list_dtype(int role) { return QN_LIST_DTYPES >> 4 * role & 15; }
QN_FN constexpr int qn_list_access(int role) { return QN_LIST_ACCESSES >> 4 * role & 15; }
QN_FN constexpr int qn_list_slot(int role) { return QN_LIST_SLOTS >> 4 * role & 15; } /* its place among those given */
QN_FN constexpr int qn_list_bytes(int role) { return qn_list_dtype(role) == QN_F32 ? 4 : 2; }

/* The argument; list_args.h has the same members in the same order. */
template <class Coef> struct qn_list_args {
  Coef coef;
  QN_FAR qn_u64 *tally;
  QN_FAR char *data[QN_LIST_GIVEN][QN_LIST_CAPACITY];
  qn_u64 elements[QN_LIST_CAPACITY];
#if QN_LIST_RANDOM
  qn_u64 first[QN_LIST_CAPACITY]; /* index in the whole tensor of element 0 */
#endif
  qn_u32 tensors, place; /* in this launch; number in the list of the first of them */
  qn_u32 first_block[QN_LIST_CAPACITY];
#if QN_LIST_RANDOM
  qn_u32 id[QN_LIST_CAPACITY];
#endif
};

#define QN_LIST_KERNEL(name, Coef, a) QN_KERNEL(name, qn_list_args<Coef>, a)

/* A block's share: elements [begin, elements) of a tensor, of which it takes the first QN_THREADS * QN_PACK *
 * QN_LIST_PACKS. */
struct qn_list_chunk {
  qn_u32 tensor;
  qn_u64 begin, elements;
  bool aligned; /* for vector access, every role */
};

/* One thread's elements of every role as they are stored (16-bit ones two to a word), and which of the tensor's they
 * are. They are widened only by qn_list_values, so that what needs no data (random words) can be computed while they
 * travel. */
struct qn_list_pack {
  qn_u32 stored[QN_LIST_ROLES][QN_PACK];
  qn_u64 at;
  qn_u32 valid; /* 1 to QN_PACK of them exist */
};

template <class Args> QN_FN qn_list_chunk qn_list_find(const Args &a, qn_u64 block)
{
  qn_u32 low = 0, high = a.tensors;
  while (high - low > 1) {
    qn_u32 middle = (low + high) / 2;
    if (a.first_block[middle] <= block)
      low = middle;
    else
      high = middle;
  }
  qn_list_chunk chunk = {low, (block - a.first_block[low]) * (QN_THREADS * QN_PACK * QN_LIST_PACKS), a.elements[low],
                         true};
  QN_UNROLL
  for (int r = 0; r < QN_LIST_ROLES; r++) {
    if (qn_list_access(r) == QN_ABSENT) continue;
    const qn_u64 base = reinterpret_cast<qn_u64>(a.data[qn_list_slot(r)][low]);
    const int bytes = QN_PACK * qn_list_bytes(r);
    if (base & (bytes < 16 ? bytes - 1 : 15)) chunk.aligned = false;
  }
  return chunk;
}

/* ---- one role of one pack ---- */
QN_FN qn_f32 qn_list_widen(int dtype, qn_bits bits)
{
  return dtype == QN_F32 ? qn_f32_of(bits) : dtype == QN_BF16 ? qn_widen_bf16(bits) : qn_widen_f16(bits);
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

/* Elements that do not exist are zero. */
QN_FN void qn_list_load_each(int dtype, const QN_FAR char *from, qn_u32 valid, qn_u32 *to)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    const bool exists = qn_u32(k) < valid;
    if (dtype == QN_F32) {
      to[k] = exists ? reinterpret_cast<const QN_FAR qn_u32 *>(from)[k] : 0;
    } else {
      const qn_u32 half = exists ? reinterpret_cast<const QN_FAR qn_u16 *>(from)[k] : 0;
      to[k / 2] = k % 2 ? to[k / 2] | half << 16 : half;
    }
  }
}

QN_FN void qn_list_store_each(int dtype, QN_FAR char *to, qn_u32 valid, const qn_u32 *narrowed)
{
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++) {
    const bool exists = qn_u32(k) < valid;
    if (exists && dtype == QN_F32) reinterpret_cast<QN_FAR qn_u32 *>(to)[k] = narrowed[k];
    if (exists && dtype != QN_F32) reinterpret_cast<QN_FAR qn_u16 *>(to)[k] = qn_u16(narrowed[k]);
  }
}

/* ---- all roles of one pack ---- */

/* Loads what the roles read of pack number `pack` of this thread; false: there is none, the tensor has ended. */
template <class Args>
QN_FN bool qn_list_load(const Args &a, const qn_list_chunk &chunk, qn_u32 index, int pack, qn_list_pack *x)
{
  x->at = chunk.begin + (qn_u64(pack) * QN_THREADS + index) * QN_PACK;
  if (x->at >= chunk.elements) return false;
  const qn_u64 left = chunk.elements - x->at;
  x->valid = left < QN_PACK ? qn_u32(left) : QN_PACK;
  const bool vector = chunk.aligned && x->valid == QN_PACK;
  if (vector) {
    QN_UNROLL
    for (int r = 0; r < QN_LIST_ROLES; r++)
      if (qn_list_access(r) & QN_READ)
        qn_list_load_vector(qn_list_dtype(r), a.data[qn_list_slot(r)][chunk.tensor] + x->at * qn_list_bytes(r),
                            x->stored[r]);
  } else {
    QN_UNROLL
    for (int r = 0; r < QN_LIST_ROLES; r++)
      if (qn_list_access(r) & QN_READ)
        qn_list_load_each(qn_list_dtype(r), a.data[qn_list_slot(r)][chunk.tensor] + x->at * qn_list_bytes(r), x->valid,
                          x->stored[r]);
  }
  return true;
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
  qn_random_pack(&from, a.first[chunk.tensor] + x.at, to->word);
#endif
}

/* Narrows and stores a role: to nearest even, or by chance where there is noise and storage is of 16 bits. A role that
 * is absent or only read is left alone. */
template <class Args>
QN_FN void qn_list_store(const Args &a, const qn_list_chunk &chunk, const qn_list_pack &x, int role,
                         const qn_f32 *values, const qn_list_noise *noise)
{
  const int dtype = qn_list_dtype(role);
  if (!(qn_list_access(role) & QN_WRITE)) return;
  qn_u32 narrowed[QN_PACK];
  QN_UNROLL
  for (int k = 0; k < QN_PACK; k++)
    narrowed[k] = noise ? qn_list_narrow_chance(dtype, values[k], noise->word[k]) : qn_list_narrow(dtype, values[k]);
  QN_FAR char *to = a.data[qn_list_slot(role)][chunk.tensor] + x.at * qn_list_bytes(role);
  if (chunk.aligned && x.valid == QN_PACK)
    qn_list_store_vector(dtype, to, narrowed);
  else
    qn_list_store_each(dtype, to, x.valid, narrowed);
}

#if QN_LIST_COUNTS
/* The end of a counting kernel, which every thread of the block reaches: the tensor's {count, elements}. */
template <class Args> QN_FN void qn_list_tally(const Args &a, const qn_list_chunk &chunk, qn_u32 thread, qn_u32 count)
{
  qn_u64 *const tally = a.tally + 2 * (a.place + chunk.tensor);
  qn_tally_add(tally, count);
  if (chunk.begin == 0 && thread == 0) qn_tally_add(tally + 1, chunk.elements);
}
#endif
#endif
