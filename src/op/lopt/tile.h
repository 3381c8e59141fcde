/* SPDX-License-Identifier: Apache-2.0 */
/* tile.h - a simdgroup's tile of a tensor in STATS and UPDATE: 32 columns, whose rows it takes one after the other.
 * Lane 4 g + t sees the elements 4 g to 4 g + 3 of a row, four inputs of each (network.h has which): so a lane reads 16
 * bytes of g, of v, and of m of its decay or of p, and what comes from `over_x` stays with it for the whole tile. All
 * that a row needs is copied here from the table of tensors, which would be read again behind every write. */
#ifndef QN_OP_LOPT_TILE_H
#define QN_OP_LOPT_TILE_H
#include "op/lopt/phase.h"

struct tile {
  const float *g, *v, *q; /* the lane's four elements of the first row; q: m of its decay, or p */
  const float *root;      /* the first row's, of the lane's decay */
  qn_u64 length, at, row; /* of a row; of the first row: elements before it, and in the list of rows */
  qn_u64 over_x, column;  /* the lane's first place in `over_x`; the tile's first column */
  qn_u32 count, rows;     /* of its elements that are there; of the tile */
  float of_gradient;
  bool third; /* t is 3, the lane of p */
};

/* The `which`-th of `together` side by side. */
QN_FN tile tile_of(const qn_lopt_device_item &it, qn_u32 task, qn_u32 height, qn_u32 together, qn_u32 which)
{
  const qn_u32 per_row = static_cast<qn_u32>(ceiling(it.length, QN_LOPT_COLUMNS * together)), d = qn_lane() & 3u;
  const qn_u64 down = ceiling(it.x, height), piece = task / per_row, a = piece / down, x = piece % down * height;
  tile t;
  t.column = (static_cast<qn_u64>(task % per_row) * together + which) * QN_LOPT_COLUMNS;
  qn_u64 column = t.column + qn_lane() / 4 * 4;
  t.count = static_cast<qn_u32>(column >= it.length ? 0 : it.length - column < 4 ? it.length - column : 4);
  if (!t.count) column = 0; /* some place that is there */
  t.length = it.length;
  t.row = a * it.x + x;
  t.rows = static_cast<qn_u32>(it.x - x < height ? it.x - x : height);
  t.over_x = a * it.length + column;
  t.at = t.row * it.length + column;
  t.third = d == 3;
  t.g = it.g + t.at;
  t.v = it.v + t.at;
  t.q = (t.third ? it.p : it.m + d * it.n) + t.at;
  t.root = it.over_y.root + 4 * t.row + d;
  t.of_gradient = QN_LOPT_BOUNDED ? it.scalars->of_gradient : 1.0f;
  return t;
}

/* A lane's factors of its running mean and of the gradient; p stays unchanged. */
struct rates {
  float decay, rest, v, v_rest;
};

QN_FN rates rates_of(const qn_lopt_device_args &a, bool third)
{
  const qn_u32 d = qn_lane() & 3u;
  return {third    ? 1.0f
          : d == 0 ? a.m[0]
          : d == 1 ? a.m[1]
                   : a.m[2],
          third    ? 0.0f
          : d == 0 ? a.m_rest[0]
          : d == 1 ? a.m_rest[1]
                   : a.m_rest[2],
          a.v, a.v_rest};
}

/* A row's elements as memory has them. */
struct row_data {
  float g[4], v[4], q[4], root;
};

/* Rows are aligned: all four are there, or none, and these are read from the first column. */
template <bool aligned> QN_FN void read_row(row_data &r, const tile &t, qn_u32 row)
{
  const qn_u64 at = row * t.length;
  const qn_u32 n = aligned ? 4 : t.count;
  load4(r.g, t.g + at, n, aligned);
  load4(r.v, t.v + at, n, aligned);
  load4(r.q, t.q + at, n, aligned);
  r.root = t.root[4 * row];
}

/* Of element k the lane's v and q now, the gradient g as the op takes it, and s. */
QN_FN void means_of(float &g, float &v, float &q, float &s, const row_data &r, int k, const rates &by,
                    float of_gradient)
{
  g = gradient(r.g[k], of_gradient);
  v = qn_lopt_mean(by.v, by.v_rest, r.v[k], g * g);
  q = qn_lopt_mean(by.decay, by.rest, r.q[k], g);
  s = quick_rsqrt(qn_lopt_s_square(v));
}

/* The lane's inputs of element k, and its v and q now. */
QN_FN void inputs_of(float (&x)[4], float &v, float &q, const row_data &r, int k, float over_x, const rates &by,
                     float of_gradient, bool third)
{
  float g, s;
  means_of(g, v, q, s, r, k, by, of_gradient);
  qn_lopt_decay_inputs(g, q, s, over_x * r.root, over_x * r.root, x);
  if (third) x[1] = v, x[3] = s; /* its factor is 1 */
}
#endif
