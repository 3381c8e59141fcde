/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.update.cu - the phase UPDATE on a device, of tensors that are taken by tiles: the network by small products, and
 * what it says written to p, with m and v. A simdgroup keeps the network's weights in registers and takes tile after
 * tile; a row of a tile is two products of 16 elements, of lane 4 g + t's elements 0 and 1, then 2 and 3. */
#if QN_LOPT_WARPGROUPS
#include "op/lopt/warpgroup.h"
#else
#include "op/lopt/network.h"
#endif
#include "op/lopt/tile.h"

/* What a lane needs of the last layer: of its eight hidden values the two weights. */
struct last_layer {
  float direction[8], magnitude[8], of_direction, of_magnitude;
};

/* What stays for a tile. */
struct columns {
  float *bias;         /* of shared memory: the second layer's, as its sums begin, by product and t */
  float *table, *ring; /* of shared memory: what `along` gives the lane's hidden values; the rows */
  const float *other;  /* what the lane brings of a row beside q, of the first row, and how far the next one's is */
  qn_u64 apart;
  float *written, *p;        /* the lane's four elements of m or v, its one of p */
  float factor[4], scale[4]; /* of its elements; of its inputs */
  float unpower, step, decay;
  bool mine; /* its one of p is there */
};

/* Rows on their way, a ring of STAGES in shared memory: of each 16 bytes of q a lane, then, by t, of g, v, what
 * `across` gives the hidden values, and its factors, eight lanes each. */
constexpr qn_u32 STAGES = 4, STAGE = 256, OF_G = 128, OF_V = 160, OF_TABLE = 192, OF_FACTOR = 224;
constexpr qn_u32 TABLE = 8 * 32 * 4, BIAS = 4 * 4 * 4, OF_SIMD = TABLE + STAGES * STAGE + BIAS; /* floats */

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
  if (qn_lane() < 4)
    for (qn_u32 k = 0; k < 16; k++)
      c.bias[(k / 4 * 4 + d) * 4 + k % 4] = weights[B2 + 8 * d + k / 4 * 2 + k % 2] * found.power;
  c.other = d == 0   ? t.g
            : d == 1 ? t.v
            : d == 2 ? it.across.table + t.row * WIDTH + qn_lane() / 4 * 4
                     : it.across.factor + 4 * t.row;
  c.apart = d < 2 ? t.length : d == 2 ? WIDTH : 4;
  c.written = (t.third ? it.v : it.m + d * it.n) + t.at;
  c.mine = d < t.count;
  c.p = it.p + t.at + (c.mine ? d : 0);
  c.unpower = found.unpower;
  c.step = QN_LOPT_ELO ? found.lr : found.step;
  c.decay = found.decay;
}

template <bool aligned> QN_FN void bring_row(const tile &t, const columns &c, qn_u32 row)
{
  const qn_u32 d = qn_lane() & 3u;
  float *const to = c.ring + row % STAGES * STAGE, *const beside = to + OF_G + d * 32 + qn_lane() / 4 * 4;
  const float *const q = t.q + row * t.length, *const other = c.other + row * c.apart;
  if (aligned) {
    qn_copy_begin(to + 4 * qn_lane(), q);
    qn_copy_begin(beside, other);
  } else {
    float v[4];
    load4(v, q, t.count, false);
    store4(to + 4 * qn_lane(), v, 4, true);
    load4(v, other, d < 2 ? t.count : 4, false);
    store4(beside, v, 4, true);
  }
}

QN_FN void take_row(row_data &r, const float *from)
{
  const qn_u32 g = qn_lane() / 4 * 4;
  read4(r.q, from + 4 * qn_lane());
  read4(r.g, from + OF_G + g);
  read4(r.v, from + OF_V + g);
  r.factor = from[OF_FACTOR + (qn_lane() & 3u)];
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

/* What the first layer's sums of elements e and e + 1 of a lane, above and below, begin with. */
QN_FN void begin_pair(float (&h)[4][4], int e, const float *across, const columns &c)
{
  float table[8];
  read4(table, across);
  read4(table + 4, across + 4);
  QN_UNROLL
  for (int k = 0; k < 2; k++) {
    float along[8];
    read4(along, table_at(c.table, e + k, 0));
    read4(along + 4, table_at(c.table, e + k, 1));
    QN_UNROLL
    for (int i = 0; i < 8; i++) h[i / 2][2 * k + i % 2] = along[i] + table[i];
  }
}

QN_FN void begin_second(float (&d)[4][4], const columns &c)
{
  QN_UNROLL
  for (int n = 0; n < 4; n++) read4(d[n], c.bias + 16 * n + 4 * (qn_lane() & 3u));
}

#if QN_LOPT_WARPGROUPS
typedef qn_u64 network; /* its matrices */

/* A lane's four elements through the network: its share of their outputs. The second pair's products go on while the
 * first pair's sums are looked at. */
QN_FN void run_elements(float (&share)[4][2], const float (&x)[4][4], const float *across, const columns &c,
                        const network &net, const last_layer &l)
{
  float h[2][4][4], second[2][4][4];
  operand o[2], p[2][2];
  QN_UNROLL
  for (int pair = 0; pair < 2; pair++) {
    begin_pair(h[pair], 2 * pair, across, c);
    o[pair] = inputs_as(x[2 * pair], x[2 * pair + 1]);
    hold(h[pair]);
    qn_wgmma_begin();
    add_step(h[pair], o[pair], net);
    qn_wgmma_close();
  }
  QN_UNROLL
  for (int pair = 0; pair < 2; pair++) {
    begin_second(second[pair], c);
    qn_wgmma_wait<1>();
    hold(h[pair]);
    QN_UNROLL
    for (int step = 0; step < 2; step++) p[pair][step] = sums_as(h[pair][2 * step], h[pair][2 * step + 1]);
    hold(second[pair]);
    qn_wgmma_begin();
    QN_UNROLL
    for (int step = 0; step < 2; step++)
      add_step(second[pair], p[pair][step], net + (2 + 2 * step) * (MATRIX * 4 / 16));
    qn_wgmma_close();
  }
  qn_wgmma_wait<1>();
  hold(second[0]);
  add_last(share[0], share[1], second[0], l);
  qn_wgmma_wait<0>();
  hold(second[1]);
  add_last(share[2], share[3], second[1], l);
}
#else
typedef fragments network;

QN_FN void run_elements(float (&share)[4][2], const float (&x)[4][4], const float *across, const columns &c,
                        const network &net, const last_layer &l)
{
  QN_UNROLL
  for (int pair = 0; pair < 2; pair++) {
    float h[4][4], second[4][4];
    begin_pair(h, 2 * pair, across, c);
    begin_second(second, c);
    first_layer(h, x[2 * pair], x[2 * pair + 1], net);
    second_layer(second, h, net);
    add_last(share[2 * pair], share[2 * pair + 1], second, l);
  }
}
#endif

/* A row that is there: new m and v, and the outputs of element t of lane t. */
template <bool aligned>
QN_FN void run_row(float (&out)[2], const float *from, const tile &t, const columns &c, const rates &by,
                   const network &net, const last_layer &l, qn_u32 row)
{
  float share[4][2], kept[4], x[4][4];
  row_data r;
  take_row(r, from);
  QN_UNROLL
  for (int k = 0; k < 4; k++) {
    float v, q;
    inputs_of(x[k], v, q, r, k, c.factor[k], by, t.of_gradient, t.third);
    kept[k] = t.third ? v : q;
    QN_UNROLL
    for (int i = 0; i < 4; i++) x[k][i] *= c.scale[i];
  }
  store4(c.written + row * t.length, kept, t.count, aligned);
  run_elements(share, x, from + OF_TABLE + 8 * (qn_lane() & 3u), c, net, l);
  gather_last(out, share);
}

template <bool aligned>
QN_FN void update_tile(const qn_lopt_device_args &a, const tile &t, const columns &c, const network &net,
                       const last_layer &l)
{
  const rates by = rates_of(a, t.third);
  qn_simd_barrier(); /* the ring is free */
  for (qn_u32 row = 0; row < STAGES - 1; row++) {
    if (row < t.rows) bring_row<aligned>(t, c, row);
    qn_copy_close();
  }
  for (qn_u32 row = 0; row < t.rows; row++) {
    const float *const from = c.ring + row % STAGES * STAGE;
    float out[2];
    qn_copy_wait<STAGES - 2>();
    qn_simd_barrier(); /* the row is there, and the one before was used */
    if (row + STAGES - 1 < t.rows) bring_row<aligned>(t, c, row + STAGES - 1);
    qn_copy_close();
    run_row<aligned>(out, from, t, c, by, net, l, row);
    const float direction = qn_fma(out[0], c.unpower, l.of_direction);
    const float magnitude = qn_fma(out[1], c.unpower, l.of_magnitude);
    const float old = from[4 * (qn_lane() | 3u) + (qn_lane() & 3u)]; /* of the lane of p */
    const float p = QN_LOPT_ELO ? qn_lopt_moved_elo(old, direction, magnitude, a.exp_mult, c.step, c.decay)
                                : qn_lopt_moved(old, direction, magnitude, a.exp_mult, c.step, c.decay);
    if (c.mine) c.p[row * t.length] = p;
  }
  qn_copy_wait<0>();
}

/* Simdgroups that take a task together, side by side. */
constexpr qn_u32 TOGETHER = QN_LOPT_WARPGROUPS ? 4 : 1;

QN_GROUP_KERNEL(lopt_update, qn_lopt_device_args, a)
{
  float *const shared = static_cast<float *>(qn_shared_dynamic());
  const qn_u32 teams = QN_THREADS / 32 / TOGETHER;
  last_layer l;
  columns c;
#if QN_LOPT_WARPGROUPS
  qn_u32 *const matrices = reinterpret_cast<qn_u32 *>(shared + OF_SIMD * (QN_THREADS / 32));
  write_matrices(matrices, a.head, qn_thread(), QN_THREADS);
  qn_barrier();
  const network net = matrix_at(qn_shared_address(matrices));
#else
  network net;
  read_fragments(net, a.head);
#endif
  read_last(l, a.weights);
  c.table = shared + qn_simd() * OF_SIMD;
  c.ring = c.table + TABLE;
  c.bias = c.ring + STAGES * STAGE;
  for (qn_u32 task = static_cast<qn_u32>(qn_block()) * teams + qn_simd() / TOGETHER; task < a.tasks;
       task += static_cast<qn_u32>(qn_blocks()) * teams) {
    const qn_u32 k = item_of(a, task);
    const qn_lopt_device_item &it = a.items[k];
    const tile t = tile_of(it, task - a.first[k], QN_LOPT_ROWS, TOGETHER, qn_simd() % TOGETHER);
    read_columns(c, it, t, a.weights);
    if (it.flags & QN_LOPT_ALIGNED)
      update_tile<true>(a, t, c, net, l);
    else
      update_tile<false>(a, t, c, net, l);
  }
}
