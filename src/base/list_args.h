/* SPDX-License-Identifier: Apache-2.0 */
/* list_args.h - where things stand in the one argument of a list kernel, for the host that fills it. The kernel's own
 * struct (list_kernel.h) has the same members in the same order.
 *
 *     coef | tally | data[slots][capacity] | elements[capacity] | first[capacity] if random |
 *     tensors, place | first_block[capacity] | id[capacity] if random */
#ifndef QN_BASE_LIST_ARGS_H
#define QN_BASE_LIST_ARGS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct qn_list_offsets {
  size_t tally, data, elements, first, head, first_block, id,
      bytes; /* first and id: 0 where no random number is drawn */
} qn_list_offsets;

static inline qn_list_offsets qn_list_offsets_of(size_t coef_bytes, size_t slots, size_t capacity, bool random)
{
  qn_list_offsets o = {0};
  o.tally = (coef_bytes + 7) & ~(size_t)7;
  o.data = o.tally + 8;
  o.elements = o.data + 8 * slots * capacity;
  o.head = o.elements + 8 * capacity;
  if (random) {
    o.first = o.head;
    o.head += 8 * capacity;
  }
  o.first_block = o.head + 8;
  o.bytes = o.first_block + 4 * capacity;
  if (random) {
    o.id = o.bytes;
    o.bytes += 4 * capacity;
  }
  o.bytes = (o.bytes + 7) & ~(size_t)7;
  return o;
}
#endif
