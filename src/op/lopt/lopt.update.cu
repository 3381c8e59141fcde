/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.update.cu - the phase UPDATE on a device, of tensors that are taken by tiles: the network by small products, and
 * what it says written to p, with m and v. A simdgroup keeps the network's weights in registers and takes tile after
 * tile; a row of a tile is two products of 16 elements, of lane 4 g + t's elements 0 and 1, then 2 and 3. */
#include "op/lopt/network.h"
#include "op/lopt/tile.h"

constexpr int SIMDS = QN_THREADS / 32;

/* What a lane needs of the last layer: of its eight hidden values the two weights. */
struct last_layer {
  float direction[8], magnitude[8], of_direction, of_magnitude;
};

/* What stays for a tile. */
struct columns {
  float *table;              /* of shared memory: what `along` gives the lane's hidden values, see put_table */
  const float *across;       /* what the first row gives them */
  float *written, *p;        /* the lane's four elements of m or v, its one of p */
  float factor[4], scale[4]; /* of its elements; of its inputs */
  float bias[8];             /* the second layer's */
  float unpower, step, decay;
  bool mine; /* its one of p is there */
};

/* The next row's. */
struct ahead {
  row_data r;
  float p, table[8];
};

QN_FN void read4(float *to, const float *from)
{
  const qn_16bytes v = qn_load16(from);
  QN_UNROLL
  for (int k = 0; k < 4; k++) to[k] = qn_bits_float(v.word[k]);
}

QN_FN void read_last(last_layer &l, const float *weights)
{
  const qn_u32 first = 8 * (qn_lane() & 3u);
  QN_UNROLL
  for (qn_u32 k = 0; k < 8; k++) {
    l.direction[k] = weights[W3 + first + k];
    l.magnitude[k] = weights[W3 + WIDTH + first + k];
  }
  l.of_direction = weights[B3];
  l.of_magnitude = weights[B3 + 1];
}

/* Of element e the values 4 half to 4 half + 3: lanes side by side, and each reads what it wrote itself. */
QN_FN float *table_at(float *table, int e, int half) { return table + ((2 * e + half) * 32 + qn_lane()) * 4; }

QN_FN void read_columns(columns &c, const qn_lopt_device_item &it, const tile &t, const float *weights)
{
  const qn_u32 d = qn_lane() & 3u;
  const qn_lopt_found &found = *it.found;
  QN_UNROLL
  for (int e = 0; e < 4; e++) {
    const qn_u64 place = t.along + (static_cast<qn_u32>(e) < t.count ? static_cast<qn_u32>(e) : 0u);
    c.factor[e] = it.along.factor[4 * place + d];
    for (int half = 0; half < 2; half++)
      qn_store16(table_at(c.table, e, half), qn_load16(it.along.table + place * WIDTH + 8 * d + 4 * half));
  }
  QN_UNROLL
  for (int k = 0; k < 4; k++) c.scale[k] = found.scale[channel_of(static_cast<int>(d), k)] * found.power;
  QN_UNROLL
  for (qn_u32 k = 0; k < 8; k++) c.bias[k] = weights[B2 + 8 * d + k] * found.power;
  c.across = it.across.table + t.row * WIDTH + 8 * d;
  c.written = (t.third ? it.v : it.m + d * it.n) + t.at;
  c.mine = d < t.count;
  c.p = it.p + t.at + (c.mine ? d : 0);
  c.unpower = found.unpower;
  c.step = QN_LOPT_ELO ? found.lr : found.step;
  c.decay = found.decay;
}

template <bool aligned> QN_FN void read_ahead(ahead &a, const tile &t, const columns &c, qn_u32 row)
{
  read_row<aligned>(a.r, t, row);
  a.p = c.p[row * t.length];
  read4(a.table, c.across + row * WIDTH);
  read4(a.table + 4, c.across + row * WIDTH + 4);
}

/* The lane's share of the two outputs of elements above and below, from its eight hidden values of each. */
QN_FN void add_last(float (&above)[2], float (&below)[2], const float (&h)[4][4], const last_layer &l)
{
  QN_UNROLL
  for (int k = 0; k < 2; k++) above[k] = below[k] = 0;
  QN_UNROLL
  for (int k = 0; k < 8; k++) {
    const float x = relu(h[k / 2][k % 2]), y = relu(h[k / 2][2 + k % 2]);
    above[0] = qn_fma(x, l.direction[k], above[0]), above[1] = qn_fma(x, l.magnitude[k], above[1]);
    below[0] = qn_fma(y, l.direction[k], below[0]), below[1] = qn_fma(y, l.magnitude[k], below[1]);
  }
}

/* Of four lanes' shares of four elements' outputs, the sums of lane t's element t. */
QN_FN void gather_last(float (&out)[2], const float (&share)[4][2])
{
  const bool odd = qn_lane() & 1u, upper = qn_lane() & 2u;
  QN_UNROLL
  for (int o = 0; o < 2; o++) {
    float half[2];
    QN_UNROLL
    for (int j = 0; j < 2; j++) {
      const float first = share[2 * j][o], second = share[2 * j + 1][o];
      half[j] = (odd ? second : first) + qn_shuffle_xor(odd ? first : second, 1);
    }
    out[o] = (upper ? half[1] : half[0]) + qn_shuffle_xor(upper ? half[0] : half[1], 2);
  }
}

/* Elements e and e + 1 of a lane, above and below, through the network: its share of their outputs. */
QN_FN void run_pair(float (&above)[2], float (&below)[2], const float (&x)[2][4], int e, const ahead &now,
                    const columns &c, const fragments &f, const last_layer &l)
{
  float h[4][4], second[4][4];
  QN_UNROLL
  for (int k = 0; k < 2; k++) {
    float along[8];
    read4(along, table_at(c.table, e + k, 0));
    read4(along + 4, table_at(c.table, e + k, 1));
    QN_UNROLL
    for (int i = 0; i < 8; i++) {
      h[i / 2][2 * k + i % 2] = along[i] + now.table[i];
      second[i / 2][2 * k + i % 2] = c.bias[i];
    }
  }
  first_layer(h, x[0], x[1], f);
  second_layer(second, h, f);
  add_last(above, below, second, l);
}

/* A row: new m and v, and the outputs of element t of lane t. */
template <bool aligned>
QN_FN void run_row(float (&out)[2], const ahead &now, const tile &t, const columns &c, const rates &by,
                   const fragments &f, const last_layer &l, qn_u32 row)
{
  float share[4][2], kept[4];
  QN_UNROLL
  for (int pair = 0; pair < 2; pair++) {
    float x[2][4];
    QN_UNROLL
    for (int e = 0; e < 2; e++) {
      float v, q;
      const int k = 2 * pair + e;
      inputs_of(x[e], v, q, now.r, k, c.factor[k], by, t.of_gradient, t.third);
      kept[k] = t.third ? v : q;
      QN_UNROLL
      for (int i = 0; i < 4; i++) x[e][i] *= c.scale[i];
    }
    run_pair(share[2 * pair], share[2 * pair + 1], x, 2 * pair, now, c, f, l);
  }
  store4(c.written + row * t.length, kept, t.count, aligned);
  gather_last(out, share);
}

template <bool aligned>
QN_FN void update_tile(const qn_lopt_device_args &a, const tile &t, const columns &c, const fragments &f,
                       const last_layer &l)
{
  const rates by = rates_of(a, t.third);
  ahead next;
  read_ahead<aligned>(next, t, c, 0);
  for (qn_u32 row = 0; row < t.rows; row++) {
    const ahead now = next;
    float out[2];
    if (row + 1 < t.rows) read_ahead<aligned>(next, t, c, row + 1);
    qn_simd_barrier(); /* all lanes have read p of this row before one writes it */
    run_row<aligned>(out, now, t, c, by, f, l, row);
    const float direction = qn_fma(out[0], c.unpower, l.of_direction);
    const float magnitude = qn_fma(out[1], c.unpower, l.of_magnitude);
    const float p = QN_LOPT_ELO ? qn_lopt_moved_elo(now.p, direction, magnitude, a.exp_mult, c.step, c.decay)
                                : qn_lopt_moved(now.p, direction, magnitude, a.exp_mult, c.step, c.decay);
    if (c.mine) c.p[row * t.length] = p;
  }
}

QN_GROUP_KERNEL(lopt_update, qn_lopt_device_args, a)
{
  QN_SHARED(float, tables, SIMDS * 8 * 32 * 4);
  const qn_u64 simds = qn_blocks() * (qn_block_threads() / 32);
  fragments f;
  last_layer l;
  columns c;
  read_fragments(f, a.head);
  read_last(l, a.weights);
  c.table = tables + qn_simd() * (8 * 32 * 4);
  for (qn_u64 task = qn_block() * (qn_block_threads() / 32) + qn_simd(); task < a.tasks; task += simds) {
    const qn_u32 k = item_of(a, static_cast<qn_u32>(task));
    const qn_lopt_device_item &it = a.items[k];
    const tile t = tile_of(it, static_cast<qn_u32>(task) - a.first[k], QN_LOPT_ROWS);
    read_columns(c, it, t, a.weights);
    if (it.flags & QN_LOPT_ALIGNED)
      update_tile<true>(a, t, c, f, l);
    else
      update_tile<false>(a, t, c, f, l);
  }
}
