/* SPDX-License-Identifier: Apache-2.0 */
/* list_kernel_args.h - where things stand in the one argument of a list kernel, for the host that fills it. The
 * kernel's own struct (list_kernel.h) has the same members in the same order.
 *
 *     coef | data[slots][capacity] | elements[capacity] | first[capacity] if random | cols[capacity] if rowwise |
 *     pitch[slots][capacity] if pitched | tally | tensors, place | first_block[capacity] | id[capacity] if random |
 *     tiles[capacity], inverse[capacity], shift[capacity] if rowwise | work if persistent */
#ifndef QN_BASE_LIST_KERNEL_ARGS_H
#define QN_BASE_LIST_KERNEL_ARGS_H
#include <stddef.h>
#include <stdint.h>

enum { QN_LIST_HAS_RANDOM = 1, QN_LIST_HAS_ROWS = 2, QN_LIST_HAS_PITCH = 4, QN_LIST_HAS_WORK = 8 };

/* What is not there is 0. */
typedef struct qn_list_offsets {
  size_t data, elements, first, cols, pitch, tally, head, first_block, id, tiles, inverse, shift, work, bytes;
} qn_list_offsets;

/* Where n words begin that stand at `end`, which moves behind them. */
static inline size_t qn_list_words(size_t *end, size_t n, size_t bytes)
{
  const size_t at = *end;
  *end += n * bytes;
  return at;
}

/* parts: bits of the enum above. */
static inline qn_list_offsets qn_list_offsets_of(size_t coef_bytes, size_t slots, size_t capacity, uint32_t parts)
{
  qn_list_offsets o = {0};
  size_t end = (coef_bytes + 7) & ~(size_t)7;
  o.data = qn_list_words(&end, slots * capacity, 8);
  o.elements = qn_list_words(&end, capacity, 8);
  if (parts & QN_LIST_HAS_RANDOM) o.first = qn_list_words(&end, capacity, 8);
  if (parts & QN_LIST_HAS_ROWS) o.cols = qn_list_words(&end, capacity, 8);
  if (parts & QN_LIST_HAS_PITCH) o.pitch = qn_list_words(&end, slots * capacity, 8);
  o.tally = qn_list_words(&end, 1, 8);
  o.head = qn_list_words(&end, 2, 4);
  o.first_block = qn_list_words(&end, capacity, 4);
  if (parts & QN_LIST_HAS_RANDOM) o.id = qn_list_words(&end, capacity, 4);
  if (parts & QN_LIST_HAS_ROWS) o.tiles = qn_list_words(&end, capacity, 4);
  if (parts & QN_LIST_HAS_ROWS) o.inverse = qn_list_words(&end, capacity, 4);
  if (parts & QN_LIST_HAS_ROWS) o.shift = qn_list_words(&end, capacity, 4);
  if (parts & QN_LIST_HAS_WORK) o.work = qn_list_words(&end, 1, 4);
  o.bytes = (end + 7) & ~(size_t)7;
  return o;
}
#endif
