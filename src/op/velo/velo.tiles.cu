/* SPDX-License-Identifier: Apache-2.0 */
/* velo.tiles.cu - the phases STATS and UPDATE of VeLO on a device, of tensors that are taken by tiles: by ordinary f32.
 * A simdgroup takes 128 columns of some rows, one row after the other, a lane four elements side by side with all their
 * inputs, so that it reads 16 bytes at a time, every weight serves four elements, and what `over_x` gives them stays
 * with it for the whole tile. What `over_y` gives a row lies in shared memory, as the weights do. Simdgroups do not
 * wait for each other. QN_LOPT_PHASE is 0 or 1. */
#define QN_THREADS 512 /* a bound on registers; blocks have fewer */
#include "op/lopt/lane_sums.h"
#include "op/velo/network.h"

constexpr int CHANNELS = ELEMENT_INPUTS;
constexpr qn_u32 SIMDS = 8; /* of a block */

struct tile {
  const float *g;
  float *p, *v, *m;   /* and these: the lane's four elements of the first row */
  qn_u64 n, length;   /* between two decays' m; of a row */
  qn_u64 row, over_x; /* the first one in the list of rows; the lane's first place in `over_x` */
  qn_u32 count, rows;
};

QN_FN tile tile_of(const qn_lopt_device_item &it, qn_u32 task, qn_u32 height)
{
  const qn_u32 per_row = static_cast<qn_u32>(ceiling(it.length, QN_VELO_COLUMNS));
  const qn_u64 down = ceiling(it.x, height), piece = task / per_row, a = piece / down, x = piece % down * height;
  qn_u64 column = static_cast<qn_u64>(task % per_row) * QN_VELO_COLUMNS + qn_lane() * 4;
  tile t;
  t.count = static_cast<qn_u32>(column >= it.length ? 0 : it.length - column < 4 ? it.length - column : 4);
  if (!t.count) column = 0; /* some place that is there */
  t.n = it.n;
  t.length = it.length;
  t.row = a * it.x + x;
  t.rows = static_cast<qn_u32>(it.x - x < height ? it.x - x : height);
  t.over_x = a * it.length + column;
  const qn_u64 at = t.row * it.length + column;
  t.g = it.g + at, t.p = it.p + at, t.v = it.v + at, t.m = it.m + at;
  return t;
}

/* A row's elements as memory has them. */
struct row_data {
  float g[4], p[4], v[4], m[3][4];
};

template <bool aligned> QN_FN void read_row(row_data &r, const tile &t, qn_u32 row)
{
  const qn_u64 at = row * t.length;
  const qn_u32 n = aligned ? 4 : t.count;
  load4(r.g, t.g + at, n, aligned);
  load4(r.p, t.p + at, n, aligned);
  QN_UNROLL
  for (qn_u64 d = 0; d < 3; d++) load4(r.m[d], t.m + d * t.n + at, n, aligned);
  load4(r.v, t.v + at, n, aligned);
}

/* By decay, the roots of over_x at the lane's elements; zeros where none is. */
QN_FN void read_over_x(float (&root)[3][4], const qn_lopt_device_item &it, const tile &t)
{
  QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++) {
    float of[4] = {0, 0, 0, 0};
    if (k < t.count) load4(of, it.over_x.root + 4 * (t.over_x + k), 4, true);
    QN_UNROLL
    for (int d = 0; d < 3; d++) root[d][k] = of[d];
  }
}

/* Fours of floats into shared memory. */
QN_FN void copy_fours(float *to, const float *from, qn_u32 fours)
{
  for (qn_u32 k = qn_lane(); k < fours; k += 32) qn_store16(to + 4 * k, qn_load16(from + 4 * k));
}

/* Element k with this step's gradient in it. */
QN_FN void take_element(float (&x)[CHANNELS], float (&m)[3], float &v, const row_data &r, int k,
                        const float (&over_x)[3][4], const float (&over_y)[4], const qn_lopt_device_args &a, bool there)
{
  const float g = taken(r.g[k]);
  float root[3];
  v = qn_lopt_mean(a.v, a.v_rest, r.v[k], g * g);
  QN_UNROLL
  for (int d = 0; d < 3; d++) {
    m[d] = qn_lopt_mean(a.m[d], a.m_rest[d], r.m[d][k], g);
    root[d] = over_x[d][k] * over_y[d];
  }
  qn_velo_inputs(g, r.p[k], m, v, there ? quick_rsqrt(qn_lopt_s_square(v)) : 0.0f, root, root, x);
}

#if QN_LOPT_PHASE == 0
constexpr qn_u32 RUN = 32; /* rows whose sums are in f32 alone */

QN_FN void add_row(float (&sum)[32], const row_data &r, const tile &t, const float (&over_x)[3][4], const float *over_y,
                   const qn_lopt_device_args &a, bool aligned)
{
  float of_row[4];
  load4(of_row, over_y, 4, true);
  QN_UNROLL
  for (int k = 0; k < 4; k++) {
    float x[CHANNELS], m[3], v;
    take_element(x, m, v, r, k, over_x, of_row, a, aligned || static_cast<qn_u32>(k) < t.count);
    QN_UNROLL
    for (int c = 0; c < CHANNELS; c++) sum[c] = qn_fma(x[c], x[c], sum[c]);
    QN_UNROLL
    for (int d = 0; d < 3; d++) {
      sum[QN_VELO_OLD + d] += r.m[d][k];
      sum[QN_VELO_OLD + 3 + d] = qn_fma(r.m[d][k], r.m[d][k], sum[QN_VELO_OLD + 3 + d]);
    }
    sum[QN_VELO_OLD + 6] += r.v[k];
    sum[QN_VELO_OLD + 7] = qn_fma(r.v[k], r.v[k], sum[QN_VELO_OLD + 7]);
  }
}

/* Of lane l the sum l of the tile. */
template <bool aligned>
QN_FN double add_tile(const tile &t, const float (&over_x)[3][4], const float *over_y, const qn_lopt_device_args &a)
{
  double total = 0;
  for (qn_u32 first = 0; first < t.rows; first += RUN) {
    const qn_u32 last = t.rows - first < RUN ? t.rows : first + RUN;
    float sum[32] = {};
    for (qn_u32 row = first; row < last && t.count; row++) {
      row_data r;
      read_row<aligned>(r, t, row);
      add_row(sum, r, t, over_x, over_y + 4 * row, a, aligned);
    }
    total += static_cast<double>(sum_by_lane(sum));
  }
  return total;
}

QN_GROUP_KERNEL(lopt_stats, qn_lopt_device_args, a)
{
  QN_SHARED(float, shared, SIMDS *QN_VELO_STAT_ROWS * 4);
  const qn_u64 task = qn_block() * SIMDS + qn_simd();
  if (task >= a.tasks) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(task)), local = static_cast<qn_u32>(task) - a.first[k];
  const qn_lopt_device_item &it = a.items[k];
  const tile t = tile_of(it, local, QN_VELO_STAT_ROWS);
  float *const over_y = shared + qn_simd() * QN_VELO_STAT_ROWS * 4;
  float over_x[3][4];
  copy_fours(over_y, it.over_y.root + 4 * t.row, t.rows);
  read_over_x(over_x, it, t);
  qn_simd_barrier();
  const double total =
      it.flags & QN_LOPT_ALIGNED ? add_tile<true>(t, over_x, over_y, a) : add_tile<false>(t, over_x, over_y, a);
  it.partial[static_cast<qn_u64>(local) * QN_VELO_TOTALS + qn_lane()] = total;
}
#else
/* A simdgroup's shared memory: what `over_y` gives each row, the first layer by channel, then the others: 16 weights by
 * output, 4 biases, twice 4 weights, 2 biases. */
constexpr qn_u32 ROOT = 0, TABLE = ROOT + 4 * QN_VELO_ROWS, LAYER = TABLE + 4 * QN_VELO_ROWS;
constexpr qn_u32 REST = LAYER + CHANNELS * WIDTH, SECOND_BIAS = REST + B2 - W2, THIRD = REST + W3 - W2;
constexpr qn_u32 THIRD_BIAS = THIRD + 2 * WIDTH, OF_SIMD = THIRD_BIAS + 4;

/* The values that stay for a tile. */
struct columns {
  float root[3][4], table[4][WIDTH]; /* what `over_x` gives */
  float step, decay;
};

/* The second and third layer of four elements. */
QN_FN void finish(float (&direction)[4], float (&magnitude)[4], const float (&h)[4][WIDTH], const float *weights)
{
  float bias[4], of_direction[4], of_magnitude[4], last[4];
  load4(bias, weights + SECOND_BIAS, 4, true);
  load4(of_direction, weights + THIRD, 4, true);
  load4(of_magnitude, weights + THIRD + WIDTH, 4, true);
  load4(last, weights + THIRD_BIAS, 4, true);
  QN_UNROLL
  for (int k = 0; k < 4; k++) direction[k] = last[0], magnitude[k] = last[1];
  QN_UNROLL
  for (int o = 0; o < WIDTH; o++) {
    float w[4];
    load4(w, weights + REST + WIDTH * o, 4, true);
    QN_UNROLL
    for (int k = 0; k < 4; k++) {
      float sum = bias[o];
      QN_UNROLL
      for (int i = 0; i < WIDTH; i++) sum = qn_fma(w[i], h[k][i], sum);
      sum = relu(sum);
      direction[k] = qn_fma(of_direction[o], sum, direction[k]);
      magnitude[k] = qn_fma(of_magnitude[o], sum, magnitude[k]);
    }
  }
}

template <bool aligned>
QN_FN void update_row(const row_data &r, const tile &t, const columns &c, const float *weights,
                      const qn_lopt_device_args &a, qn_u32 row)
{
  const qn_u64 at = row * t.length;
  const qn_u32 there = aligned ? 4 : t.count;
  float x[4][CHANNELS], m[3][4], v[4], h[4][WIDTH], direction[4], magnitude[4], over_y[4], table[4];
  load4(over_y, weights + ROOT + 4 * row, 4, true);
  load4(table, weights + TABLE + 4 * row, 4, true);
  QN_UNROLL
  for (int k = 0; k < 4; k++) {
    float of[3];
    take_element(x[k], of, v[k], r, k, c.root, over_y, a, true);
    QN_UNROLL
    for (int d = 0; d < 3; d++) m[d][k] = of[d];
    QN_UNROLL
    for (int i = 0; i < WIDTH; i++) h[k][i] = c.table[k][i] + table[i];
  }
  QN_UNROLL
  for (qn_u64 d = 0; d < 3; d++) store4(t.m + d * t.n + at, m[d], there, aligned);
  store4(t.v + at, v, there, aligned);
  QN_UNROLL
  for (qn_u32 j = 0; j < CHANNELS; j++) {
    float w[4];
    load4(w, weights + LAYER + WIDTH * j, 4, true);
    QN_UNROLL
    for (int k = 0; k < 4; k++) QN_UNROLL
    for (int i = 0; i < WIDTH; i++) h[k][i] = qn_fma(w[i], x[k][j], h[k][i]);
  }
  QN_UNROLL
  for (int k = 0; k < 4; k++) QN_UNROLL
  for (int i = 0; i < WIDTH; i++) h[k][i] = relu(h[k][i]);
  finish(direction, magnitude, h, weights);
  float p[4];
  QN_UNROLL
  for (int k = 0; k < 4; k++) p[k] = qn_lopt_moved(r.p[k], direction[k], magnitude[k], a.exp_mult, c.step, c.decay);
  store4(t.p + at, p, there, aligned);
}

template <bool aligned>
QN_FN void update_tile(const tile &t, const columns &c, const float *weights, const qn_lopt_device_args &a)
{
  for (qn_u32 row = 0; row < t.rows; row++) {
    row_data r;
    read_row<aligned>(r, t, row);
    update_row<aligned>(r, t, c, weights, a, row);
  }
}

QN_FN void read_weights(float *to, const qn_lopt_device_item &it, const tile &t)
{
  copy_fours(to + ROOT, it.over_y.root + 4 * t.row, t.rows);
  copy_fours(to + TABLE, it.over_y.table + WIDTH * t.row, t.rows);
  copy_fours(to + LAYER, it.layer, CHANNELS);
  for (qn_u32 k = qn_lane(); k < THIRD + 2 * WIDTH - REST; k += 32) to[REST + k] = it.weights[W2 + k];
  if (qn_lane() < 2) to[THIRD_BIAS + qn_lane()] = it.weights[B3 + qn_lane()];
}

QN_GROUP_KERNEL(lopt_update, qn_lopt_device_args, a)
{
  QN_SHARED(float, shared, SIMDS *OF_SIMD);
  const qn_u64 task = qn_block() * SIMDS + qn_simd();
  if (task >= a.tasks || !a.head->go) return;
  const qn_u32 k = item_of(a, static_cast<qn_u32>(task));
  const qn_lopt_device_item &it = a.items[k];
  const tile t = tile_of(it, static_cast<qn_u32>(task) - a.first[k], QN_VELO_ROWS);
  float *const weights = shared + qn_simd() * OF_SIMD;
  columns c;
  read_weights(weights, it, t);
  read_over_x(c.root, it, t);
  QN_UNROLL
  for (qn_u32 e = 0; e < 4; e++) {
    QN_UNROLL
    for (int i = 0; i < WIDTH; i++) c.table[e][i] = 0;
    if (e < t.count) load4(c.table[e], it.over_x.table + WIDTH * (t.over_x + e), 4, true);
  }
  c.step = it.scalars->step, c.decay = it.scalars->decay;
  qn_simd_barrier();
  if (!t.count) return;
  if (it.flags & QN_LOPT_ALIGNED)
    update_tile<true>(t, c, weights, a);
  else
    update_tile<false>(t, c, weights, a);
}
#endif
