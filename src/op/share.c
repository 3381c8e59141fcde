/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - see share.h. Two rows are compared by their ends and, where columns are two apart, by parity. Rows at one
 * distance can meet at two shifts only; else the rows of one are taken in turn against those of the other that they
 * reach. */
#include "op/share.h"

static uint64_t reach_of(const qn_rows *r) { return ((r->cols - 1) * r->step + 1) * r->width; } /* bytes of a row */

/* One row of each, which begin at a and b. */
static bool row_shares(const qn_rows *one, uintptr_t a, const qn_rows *other, uintptr_t b)
{
  const uintptr_t a_end = a + reach_of(one), b_end = b + reach_of(other);
  const uintptr_t low = a > b ? a : b, high = a_end < b_end ? a_end : b_end, distance = a > b ? a - b : b - a;
  const uint64_t width = one->width;
  if (low >= high) return false;
  if ((one->step == 1 && other->step == 1) || width != other->width || distance % width) return true;
  if (one->step == 2 && other->step == 2) return distance / width % 2 == 0;
  const uintptr_t of_two = one->step == 2 ? a : b; /* an element of the row with gaps among those that both reach? */
  return (low - of_two) / width % 2 == 0 || high - low > width;
}

/* Row `at` (an address) of `one` against the rows of `other` that it reaches. */
static bool row_meets(const qn_rows *one, uintptr_t at, const qn_rows *other)
{
  const uintptr_t end = at + reach_of(one), reach = reach_of(other);
  uint64_t row = at < other->begin + reach ? 0 : (at - other->begin - reach) / other->pitch + 1;
  for (; row < other->rows && other->begin + row * other->pitch < end; row++)
    if (row_shares(one, at, other, other->begin + row * other->pitch)) return true;
  return false;
}

bool qn_rows_share(const qn_rows *a, const qn_rows *b)
{
  if (a->begin > b->begin) { /* a begins first */
    const qn_rows *swap = a;
    a = b;
    b = swap;
  }
  if (a->pitch == b->pitch) { /* b's first row lies between two of a's; all others are as those are */
    const uint64_t row = (b->begin - a->begin) / a->pitch;
    for (uint64_t k = row; k <= row + 1; k++)
      if (k < a->rows && row_shares(b, b->begin, a, a->begin + k * a->pitch)) return true;
    return false;
  }
  if (a->rows > b->rows) {
    const qn_rows *swap = a;
    a = b;
    b = swap;
  }
  for (uint64_t row = 0; row < a->rows; row++)
    if (row_meets(a, a->begin + row * a->pitch, b)) return true;
  return false;
}
