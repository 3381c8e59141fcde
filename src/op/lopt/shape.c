/* SPDX-License-Identifier: Apache-2.0 */
/* shape.c - which dimensions of a tensor learned optimizers factor, and the shapes of their state. */
#include "core/status.h"
#include "op/lopt/lopt.h"
#include <string.h>

static qn_status check_shape(int ndim, const int64_t *shape)
{
  qn_require(ndim >= 0 && ndim <= QN_LOPT_MOST_DIMENSIONS, "lopt: a shape of %d dimensions, from 0 to %d are possible",
             ndim, QN_LOPT_MOST_DIMENSIONS);
  qn_require(shape || !ndim, "lopt: the shape of %d dimensions is NULL", ndim);
  for (int k = 0; k < ndim; k++)
    qn_require(shape[k] >= 0, "lopt: extent %d of the shape is %lld", k, (long long)shape[k]);
  return QN_OK;
}

void qn_lopt_largest(qn_lopt_ties ties, int ndim, const int64_t *of, int64_t whole, int d[2])
{
  int64_t shape[QN_LOPT_MOST_DIMENSIONS];
  d[0] = d[1] = -1;
  if (ndim < 2) return;
  memcpy(shape, of, (size_t)ndim * sizeof *shape);
  if (whole >= 0) shape[0] = whole;
  for (int j = 0; j < ndim; j++) {
    const int k = ties != QN_LOPT_TIES_JAX ? j : j + 2 < ndim ? j + 2 : ndim - 1 - j; /* places, inputs, outputs */
    if (d[0] < 0 || shape[k] >= shape[d[0]])
      d[1] = d[0], d[0] = k;
    else if (d[1] < 0 || shape[k] >= shape[d[1]])
      d[1] = k;
  }
  const bool first_two_of_four = ndim == 4 && d[1] == 0 && d[0] == 1;
  if (ties != QN_LOPT_TIES_VELO || shape[d[0]] != shape[d[1]] || first_two_of_four) return;
  const int swap = d[0];
  d[0] = d[1], d[1] = swap;
}

qn_status qn_lopt_factored(qn_lopt_ties ties, int ndim, const int64_t *shape, int d[2])
{
  qn_require(d, "lopt: the place for the dimensions is NULL");
  qn_require((unsigned)ties <= QN_LOPT_TIES_JAX, "lopt: ties is %d, it must be 0 to 2", (int)ties);
  qn_try(check_shape(ndim, shape));
  qn_lopt_largest(ties, ndim, shape, -1, d);
  return QN_OK;
}

static int state_shape(qn_lopt_ties ties, qn_lopt_state state, int ndim, const int64_t *shape, int64_t *out)
{
  int d[2], n = 0;
  qn_lopt_largest(ties, ndim, shape, -1, d);
  const int without = state == QN_LOPT_STATE_ROW ? d[0] : state == QN_LOPT_STATE_COLUMN ? d[1] : -1;
  if (state == QN_LOPT_STATE_COLUMN && d[1] < 0) {
    out[0] = 0;
    return 1;
  }
  if (state != QN_LOPT_STATE_V) out[n++] = 3;
  for (int k = 0; k < ndim; k++)
    if (k != without) out[n++] = shape[k];
  return n;
}

qn_status qn_lopt_state_shape(qn_lopt_ties ties, qn_lopt_state state, int ndim, const int64_t *shape, int *state_ndim,
                              int64_t out[QN_LOPT_MOST_DIMENSIONS + 1])
{
  qn_require(state_ndim && out, "lopt: the place for the state's shape is NULL");
  qn_require((unsigned)ties <= QN_LOPT_TIES_JAX, "lopt: ties is %d, it must be 0 to 2", (int)ties);
  qn_require((unsigned)state <= QN_LOPT_STATE_COLUMN, "lopt: the part of the state is %d, there are 0 to 3",
             (int)state);
  qn_try(check_shape(ndim, shape));
  *state_ndim = state_shape(ties, state, ndim, shape, out);
  return QN_OK;
}

qn_lopt_view qn_lopt_view_of(qn_lopt_ties ties, int ndim, const int64_t *shape, int64_t whole)
{
  int d[2];
  qn_lopt_view v = {.a = 1, .x = 1, .b = 1, .y = 1, .c = 1, .n = 1, .cut = whole >= 0, .whole_n = 1};
  qn_lopt_largest(ties, ndim, shape, whole, d);
  v.factored = d[0] >= 0;
  const int x = d[0] < d[1] ? d[0] : d[1], y = d[0] < d[1] ? d[1] : d[0];
  for (int k = 0; k < ndim; k++) {
    uint64_t *extent = !v.factored ? &v.y : k < x ? &v.a : k == x ? &v.x : k < y ? &v.b : k == y ? &v.y : &v.c;
    *extent *= (uint64_t)shape[k];
    v.n *= (uint64_t)shape[k];
    v.whole_n *= (uint64_t)(v.cut && !k ? whole : shape[k]);
  }
  v.x_cut = v.cut && !x;
  v.whole_x = v.x_cut ? (uint64_t)whole : v.x;
  v.whole_a = 1;
  for (int k = 0; k < x; k++) v.whole_a *= (uint64_t)(v.cut && !k ? whole : shape[k]);
  v.row_over_x = v.factored && x == d[0];
  if (!v.factored) return v;
  v.rows = (uint64_t)shape[ndim - 2], v.columns = (uint64_t)shape[ndim - 1], v.matrices = 1;
  for (int k = 0; k < ndim - 2; k++) v.matrices *= (uint64_t)shape[k];
  return v;
}
