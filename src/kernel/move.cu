/* SPDX-License-Identifier: Apache-2.0 */
/* move.cu - see move.h. QN_WORD: the type of an element's bits. Neighbouring threads write neighbours, and a thread
 * several of them, so that enough bytes are on their way. */
#include "kernel/move.h"

enum { ITEMS = QN_MOVE_BYTES / sizeof(QN_WORD) };

QN_KERNEL(quern_fill, qn_fill_args, a)
{
  const qn_u64 first = qn_block() * (ITEMS * QN_MOVE_THREADS) + qn_thread();
  QN_WORD *const to = static_cast<QN_WORD *>(a.to);
  QN_UNROLL
  for (int k = 0; k < ITEMS; k++) {
    const qn_u64 i = first + static_cast<qn_u64>(k) * QN_MOVE_THREADS;
    if (i < a.n) to[i] = static_cast<QN_WORD>(a.word);
  }
}

QN_KERNEL(quern_copy, qn_copy_args, a)
{
  QN_WORD word[ITEMS];
  const qn_u32 last = a.ndim - 1;
  const qn_u64 n = static_cast<qn_u64>(a.shape[last]), group = qn_block() / a.parts;
  const qn_u64 row = group * (QN_MOVE_THREADS >> a.log) + (qn_thread() >> a.log);
  const qn_u64 x = (((qn_block() - group * a.parts) * ITEMS) << a.log) + (qn_thread() & ((1u << a.log) - 1));
  if (row >= a.rows) return;
  qn_i64 from = 0;
  qn_u64 rest = row;
  for (qn_u32 d = last; d-- > 1;) {
    const qn_u64 extent = static_cast<qn_u64>(a.shape[d]), above = rest / extent;
    from += static_cast<qn_i64>(rest - above * extent) * a.strides[d];
    rest = above;
  }
  if (last != 0) from += static_cast<qn_i64>(rest) * a.strides[0];
  const QN_WORD *const begin = static_cast<const QN_WORD *>(a.from) + from;
  QN_WORD *const to = static_cast<QN_WORD *>(a.to) + row * n;
  QN_UNROLL
  for (int k = 0; k < ITEMS; k++) {
    const qn_u64 at = x + (static_cast<qn_u64>(k) << a.log);
    if (at < n) word[k] = begin[static_cast<qn_i64>(at) * a.strides[last]];
  }
  QN_UNROLL
  for (int k = 0; k < ITEMS; k++) {
    const qn_u64 at = x + (static_cast<qn_u64>(k) << a.log);
    if (at < n) to[at] = word[k];
  }
}
