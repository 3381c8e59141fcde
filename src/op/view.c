/* SPDX-License-Identifier: Apache-2.0 */
/* view.c - see view.h. From the innermost dimension outwards, a dimension joins the one before where every role's
 * stride is that one's times its extent; at most two may remain. */
#include "op/view.h"
#include <string.h>

typedef struct dimension {
  uint64_t n;
  int64_t stride[QN_MAX_TENSORS]; /* by role; 0 for roles that are not given */
} dimension;

/* Role 0's tensor of place k, or that of the first role that is given. */
static const qn_tensor *first_of(const qn_tensor *const tensors[QN_MAX_TENSORS], size_t k)
{
  size_t role = 0;
  while (!tensors[role]) role++;
  return &tensors[role][k];
}

/* The row-major stride of dimension d. */
static int64_t dense_stride(const qn_tensor *t, int d)
{
  int64_t stride = 1;
  for (int i = t->ndim; --i > d;) stride *= t->shape[i];
  return stride;
}

static void read_dimension(const qn_tensor *const tensors[QN_MAX_TENSORS], size_t k, int d, dimension *to)
{
  *to = (dimension){.n = (uint64_t)first_of(tensors, k)->shape[d]};
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    if (!tensors[role]) continue;
    const qn_tensor *t = &tensors[role][k];
    to->stride[role] = t->strides ? t->strides[d] : dense_stride(t, d);
  }
}

/* The order of dimensions, outermost first: as they are, or by falling stride of the first role. Extents of 1 count
 * for nothing, but for a last one that is the row. */
static int order_of(const qn_tensor *t, bool row_is_last, int order[QN_MAX_NDIM])
{
  int n = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] == 1 && !(row_is_last && d == t->ndim - 1)) continue;
    int at = n++;
    for (; at > 0 && !row_is_last && t->strides && t->strides[order[at - 1]] < t->strides[d]; at--)
      order[at] = order[at - 1];
    order[at] = d;
  }
  return n;
}

static bool joins(const dimension *outer, const dimension *inner)
{
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    int64_t joined;
    if (__builtin_mul_overflow(inner->stride[role], (int64_t)inner->n, &joined) || outer->stride[role] != joined)
      return false;
  }
  return true;
}

static bool has_columns(const qn_tensor *const tensors[QN_MAX_TENSORS], const dimension *d)
{
  for (size_t role = 0; role < QN_MAX_TENSORS; role++)
    if (tensors[role] && d->stride[role] != 1 && d->stride[role] != 2) return false;
  return true;
}

/* found: innermost first, at most two. */
static bool view_of(const qn_tensor *const tensors[QN_MAX_TENSORS], const dimension *found, qn_view *v)
{
  v->rows = found[1].n;
  v->cols = found[0].n;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) {
    if (!tensors[role]) continue;
    const int64_t step = found[0].n > 1 ? found[0].stride[role] : 1;
    const int64_t reach = (int64_t)(found[0].n - 1) * step + 1, pitch = found[1].n > 1 ? found[1].stride[role] : reach;
    if ((step != 1 && step != 2) || pitch < reach) return false;
    v->step[role] = (uint8_t)step;
    v->pitch[role] = (uint64_t)pitch;
  }
  return true;
}

bool qn_view_make(const qn_tensor *const tensors[QN_MAX_TENSORS], size_t k, bool row_is_last, qn_view *v)
{
  const qn_tensor *first = first_of(tensors, k);
  dimension found[2] = {{.n = 1}, {.n = 1}};
  int order[QN_MAX_NDIM], n_found = 0;
  memset(v, 0, sizeof *v);
  for (int d = 0; d < first->ndim; d++)
    if (!first->shape[d]) return true;
  for (int n = order_of(first, row_is_last, order), i = n; i-- > 0;) {
    dimension next;
    read_dimension(tensors, k, order[i], &next);
    const bool is_row = row_is_last && n_found == 1; /* the last dimension stays by itself */
    if (n_found && !is_row && joins(&next, &found[n_found - 1])) {
      found[n_found - 1].n *= next.n;
      continue;
    }
    if (n_found == 0 && !row_is_last && !has_columns(tensors, &next)) n_found = 1; /* rows of one column */
    if (n_found == 2) return false;
    found[n_found++] = next;
  }
  return view_of(tensors, found, v);
}

/* ---- dense tensors ---- */

/* Strides of extents of 1 are never used. */
bool qn_same_layout(const qn_tensor *a, const qn_tensor *b)
{
  int64_t row_major = 1;
  if (!a->strides && !b->strides) return true;
  for (int d = a->ndim; d-- > 0;) {
    const int64_t one = a->strides ? a->strides[d] : row_major, other = b->strides ? b->strides[d] : row_major;
    if (a->shape[d] > 1 && one != other) return false;
    row_major *= a->shape[d];
  }
  return true;
}

bool qn_is_dense(const qn_tensor *t)
{
  uint32_t used = 0;
  int64_t next = 1; /* the stride that the next dimension in that order must have */
  if (!t->strides) return true;
  for (;;) {
    int left = 0, found = -1;
    for (int d = t->ndim; d-- > 0;) {
      if (t->shape[d] == 1 || used >> d & 1) continue;
      left++;
      if (t->strides[d] == next) found = d;
    }
    if (!left) return true;
    if (found < 0) return false;
    used |= 1u << found;
    next *= t->shape[found];
  }
}
