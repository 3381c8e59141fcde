/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.update.cu - the phase UPDATE on a device, of tensors that are taken by tiles: the network by small products, and
 * what it says written to p, with m and v. A simdgroup keeps the network's weights in registers, or, where four take a
 * product together, a block has them in shared memory, and takes tile after tile; a row of a tile is two products of 16
 * elements, of lane 4 g + t's elements 0 and 1, then 2 and 3. */
#if QN_LOPT_WARPGROUPS
#include "op/lopt/warpgroup.h"
#else
#include "op/lopt/network.h"
#endif
#include "op/lopt/tile.h"

constexpr float LOG2_E = 0x1.715476p0f;

/* A lane's part of the last layer: of its eight hidden values the two weights. The second layer's bias b is not
 * added: max(h + b, 0) is max(h, -b) + b, and the weights' product with b is part of the last one's. The magnitude's
 * are those of its power of two. */
struct last_layer {
  float direction[8], magnitude[8];
};

/* More numbers of a row, in shared memory, since registers are few: each t has its own. */
struct numbers {
  float of_direction, of_magnitude; /* of the biases */
  float output_scale, step, decay;  /* of the tile's tensor */
  float of_gradient, mean, rest;    /* and what t's m, or p, and the gradient are multiplied by */
};

/* The values that stay for a tile, and its progress. */
struct columns {
  qn_u32 lane;
  float *table;     /* of shared memory: what `over_x` gives the lane's hidden values */
  float *to;        /* of the ring's first place, the lane's copies */
  float *of_over_y; /* and its reads */
  const float *of_q, *of_g, *of_root, *of_p;
  const float *q, *other; /* of the next row that is copied, */
  float *written, *p;     /* and where it writes: four elements of m or v, one of p */
  qn_u32 bytes, apart;    /* from row to row, and of `other`; rows are shorter than 4 GiB (may_be_tiled) */
  /* With the inputs' scales. */
  float q_times, s_times, s_plus, over_x_g[4], over_x_q[4];
  float least[8]; /* of its hidden values: the second layer's bias, turned */
  qn_u32 copied;  /* elements there are of those it copies */
  bool any, mine; /* its four elements are there, all or some; its one of p is */
};

/* Rows on their way, a ring of STAGES in shared memory: of each the 32 columns' m of three decays and p, g and v, then
 * what `over_y` gives the hidden values, and its roots. A lane copies 16 bytes of the first four and of the others:
 * eight lanes side by side read 128 bytes on end, which costs a fraction of what lanes in the products' order do. */
constexpr qn_u32 OF_Q = 40; /* 32 columns, and what keeps lanes of one read in banks of their own */
constexpr qn_u32 OF_G = 4 * OF_Q, OF_V = 5 * OF_Q, OF_TABLE = 6 * OF_Q, OF_FACTOR = 7 * OF_Q;
constexpr qn_u32 STAGES = 4, STAGE = 8 * OF_Q, TABLE = 8 * 32 * 4; /* floats; then the ring, then numbers */
constexpr qn_u32 OF_NUMBERS = STAGES * STAGE, OF_SIMD = TABLE + OF_NUMBERS + 4 * 8;

QN_FN void read4(float *to, const float *from)
{
  const qn_16bytes v = qn_load16(from);
  QN_UNROLL
  for (int k = 0; k < 4; k++) to[k] = qn_bits_float(v.word[k]);
}

/* An output's bias, with the second layer's part. */
QN_FN float last_bias(const float *weights, int output)
{
  double sum = static_cast<double>(weights[B3 + output]);
  QN_ROLLED /* reads of all at once would take registers */
      for (int k = 0; k < WIDTH; k++) sum +=
      static_cast<double>(weights[W3 + output * WIDTH + k]) * static_cast<double>(weights[B2 + k]);
  return static_cast<float>(sum);
}

QN_FN numbers *numbers_at(const columns &c)
{
  return reinterpret_cast<numbers *>(c.of_over_y + (OF_NUMBERS - OF_TABLE));
}

QN_FN void read_last(last_layer &l, const columns &c, const float *weights, float exp_mult)
{
  const qn_u32 first = 8 * (c.lane & 3u);
  const float times = exp_mult * LOG2_E;
  QN_UNROLL
  for (qn_u32 k = 0; k < 8; k++) {
    l.direction[k] = weights[W3 + first + k];
    l.magnitude[k] = times * weights[W3 + WIDTH + first + k];
  }
  if (c.lane < 4) {
    numbers_at(c)->of_direction = last_bias(weights, 0);
    numbers_at(c)->of_magnitude = times * last_bias(weights, 1);
  }
}

/* Of element e the values 4 half to 4 half + 3: lanes side by side, and each reads what it wrote itself. */
QN_FN float *table_at(float *table, int e, int half) { return table + (2 * e + half) * 32 * 4; }

/* The part of `over_x` in the lane's hidden values, of its four columns; two at once, as registers go. */
QN_FN void write_table(float *table, const qn_lopt_device_item &it, const tile &t)
{
  const qn_lopt_device_factor &over_x = it.over_x;
  const float *const layers = over_x.layer + 8 * (qn_lane() & 3u);
  QN_UNROLL
  for (qn_u32 first = 0; first < 4; first += 2) {
    float channel[2][FACTOR_CHANNELS];
    QN_UNROLL
    for (qn_u32 e = 0; e < 2; e++) {
      const float *const state = over_x.state + t.over_x + (first + e < t.count ? first + e : 0u);
      QN_UNROLL
      for (int d = 0; d < 3; d++) {
        channel[e][d] = state[static_cast<qn_u64>(d) * over_x.n];
        channel[e][3 + d] = quick_rsqrt(qn_lopt_inverse_square(channel[e][d]));
      }
    }
    QN_UNROLL
    for (int half = 0; half < 2; half++) {
      float sum[2][4] = {};
      QN_UNROLL
      for (int s = 0; s < FACTOR_CHANNELS; s++) {
        float layer[4];
        read4(layer, layers + s * WIDTH + 4 * half);
        QN_UNROLL
        for (int e = 0; e < 2; e++) QN_UNROLL
        for (int k = 0; k < 4; k++) sum[e][k] = qn_fma(layer[k], channel[e][s], sum[e][k]);
      }
      QN_UNROLL
      for (qn_u32 e = 0; e < 2; e++) store4(table_at(table, static_cast<int>(first + e), half), sum[e], 4, true);
    }
  }
}

QN_FN void place_columns(columns &c, float *shared)
{
  qn_u32 lane = qn_lane();
#ifdef QN_PTX
  asm volatile("" : "+r"(lane)); /* it stays in a register: what it is made of would be read in every row */
#endif
  const qn_u32 d = lane & 3u, g = lane / 4 * 4;
  float *const ring = shared + TABLE;
  c.lane = lane;
  c.table = shared + 4 * lane;
  c.to = ring + lane / 8 * OF_Q + lane % 8 * 4;
  c.of_q = ring + OF_Q * d + g;
  c.of_g = ring + OF_G + g;
  c.of_root = ring + OF_FACTOR + d;
  c.of_over_y = ring + OF_TABLE + 8 * d;
  c.of_p = ring + 3 * OF_Q + lane;
}

/* The lane's copies: of columns of its own. */
QN_FN void place_copies(columns &c, const qn_lopt_device_item &it, const tile &t)
{
  const qn_u32 kind = qn_lane() / 8, part = qn_lane() % 8 * 4;
  qn_u64 column = t.column + part;
  c.copied = static_cast<qn_u32>(column >= it.length ? 0 : it.length - column < 4 ? it.length - column : 4);
  if (!c.copied) column = 0;
  const qn_u64 at = t.row * it.length + column;
  c.q = (kind == 3 ? it.p : it.m + kind * it.n) + at;
  c.other = kind == 0   ? it.g + at
            : kind == 1 ? it.v + at
            : kind == 2 ? it.over_y.table + t.row * WIDTH + part
                        : it.over_y.root + 4 * t.row;
  c.bytes = static_cast<qn_u32>(4 * it.length);
  c.apart = kind < 2 ? c.bytes : kind == 2 ? 4 * WIDTH : 16;
}

/* Scales belong to the inputs; they are multiplied into the lane's weights. */
QN_FN void read_columns(columns &c, const qn_lopt_device_args &a, const qn_lopt_device_item &it, const tile &t)
{
  const qn_u32 d = qn_lane() & 3u;
  const qn_lopt_scalars &scalars = *it.scalars;
  float scale[4];
  QN_UNROLL
  for (int k = 0; k < 4; k++) scale[k] = scalars.scale[channel_of(static_cast<int>(d), k)] * scalars.hidden_scale;
  QN_UNROLL
  for (int e = 0; e < 4; e++) {
    const qn_u64 place = t.over_x + (static_cast<qn_u32>(e) < t.count ? static_cast<qn_u32>(e) : 0u);
    const float root = it.over_x.root[4 * place + d];
    c.over_x_g[e] = root * scale[2];
    c.over_x_q[e] = root * scale[3];
  }
  write_table(c.table, it, t);
  c.q_times = scale[0];
  c.s_times = t.third ? 0.0f : scale[1];
  c.s_plus = t.third ? scale[1] : 0.0f;
  QN_UNROLL
  for (qn_u32 k = 0; k < 8; k++) c.least[k] = -a.weights[B2 + 8 * d + k] * scalars.hidden_scale;
  place_copies(c, it, t);
  c.written = (t.third ? it.v : it.m + d * it.n) + t.at;
  c.any = t.count != 0;
  c.mine = d < t.count;
  c.p = it.p + t.at + (c.mine ? d : 0);
  if (c.lane < 4) {
    numbers_at(c)->output_scale = scalars.output_scale;
    numbers_at(c)->step = QN_LOPT_JOINT_DECAY ? scalars.lr : scalars.step;
    numbers_at(c)->decay = scalars.decay;
    numbers_at(c)->of_gradient = t.of_gradient;
    const rates by = rates_of(a, t.third);
    numbers_at(c)->mean = by.decay;
    numbers_at(c)->rest = by.rest;
  }
}

/* A pointer goes on by so many bytes. */
template <class T> QN_FN void advance(T *&to, qn_u32 bytes)
{
  to = reinterpret_cast<T *>(reinterpret_cast<qn_u64>(to) + bytes);
}

/* Brings the next row to a place of the ring, if there is one. Of the roots 16 bytes are all. */
template <bool aligned> QN_FN void bring_row(columns &c, qn_u32 slot, bool there)
{
  float *const to = c.to + slot * STAGE, *const to_other = to + OF_G;
  if (aligned) {
    qn_copy_begin_if(there, to, c.q);
    qn_copy_begin_if(there && c.lane < 25, to_other, c.other);
  } else if (there) {
    float v[4];
    load4(v, c.q, c.copied, false);
    store4(to, v, 4, true);
    load4(v, c.other, c.lane < 16 ? c.copied : 4, false);
    store4(to_other, v, 4, true);
  }
  qn_copy_close();
  advance(c.q, c.bytes);
  advance(c.other, c.apart);
}

/* Four elements of a row in one instruction, of which the compiler would make four. */
QN_FN void write_row(float *to, const float (&v)[4])
{
#ifdef QN_PTX
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
#else
  store4(to, v, 4, true);
#endif
}

/* Of a row the lane's inputs, and its one of p; new m and v are written, if the row is there. */
template <bool aligned>
QN_FN void take_row(float (&x)[4][4], float &p, columns &c, const qn_lopt_device_args &a, const tile &t, qn_u32 slot,
                    bool there)
{
  const float of_gradient = QN_LOPT_BOUNDED ? numbers_at(c)->of_gradient : 1.0f;
  const rates by = {numbers_at(c)->mean, numbers_at(c)->rest, a.v, a.v_rest};
  float kept[4];
  row_data r;
  read4(r.q, c.of_q + slot * STAGE);
  read4(r.g, c.of_g + slot * STAGE);
  read4(r.v, c.of_g + slot * STAGE + (OF_V - OF_G));
  r.root = c.of_root[slot * STAGE];
  p = c.of_p[slot * STAGE];
  QN_UNROLL
  for (int k = 0; k < 4; k++) {
    float g, v, q, s;
    means_of(g, v, q, s, r, k, by, of_gradient);
    kept[k] = t.third ? v : q;
    x[k][0] = q * c.q_times;
    x[k][1] = kept[k] * qn_fma(s, c.s_times, c.s_plus);
    x[k][2] = g * (c.over_x_g[k] * r.root);
    x[k][3] = (t.third ? s : q) * (c.over_x_q[k] * r.root);
  }
  if (aligned) {
    if (there && c.any) write_row(c.written, kept);
  } else if (there) {
    store4(c.written, kept, t.count, false);
  }
  advance(c.written, c.bytes);
}

/* The lane's share of the two outputs of elements above and below, from its eight hidden values of each; of zeros
 * either will do. */
QN_FN void add_last(float (&above)[2], float (&below)[2], const float (&h)[4][4], const columns &c, const last_layer &l)
{
  QN_UNROLL
  for (int k = 0; k < 2; k++) above[k] = below[k] = 0;
  QN_UNROLL
  for (int k = 0; k < 8; k++) {
    const float x = qn_float_no_less(h[k / 2][k % 2], c.least[k]);
    const float y = qn_float_no_less(h[k / 2][2 + k % 2], c.least[k]);
    above[0] = qn_fma(x, l.direction[k], above[0]), above[1] = qn_fma(x, l.magnitude[k], above[1]);
    below[0] = qn_fma(y, l.direction[k], below[0]), below[1] = qn_fma(y, l.magnitude[k], below[1]);
  }
}

QN_FN void read_over_y(float (&over_y)[8], const columns &c, qn_u32 slot)
{
  read4(over_y, c.of_over_y + slot * STAGE);
  read4(over_y + 4, c.of_over_y + slot * STAGE + 4);
}

/* The first values of the first layer's sums, of elements e and e + 1 of a lane, above and below. */
QN_FN void begin_pair(float (&h)[4][4], int e, const float (&over_y)[8], const columns &c)
{
  QN_UNROLL
  for (int k = 0; k < 2; k++) {
    float over_x[8];
    read4(over_x, table_at(c.table, e + k, 0));
    read4(over_x + 4, table_at(c.table, e + k, 1));
    QN_UNROLL
    for (int i = 0; i < 8; i++) h[i / 2][2 * k + i % 2] = over_x[i] + over_y[i];
  }
}

/* The lane's one of p moves by what the lanes' shares say. */
QN_FN void move(columns &c, const float (&share)[4][2], float p, bool there)
{
  float out[2];
  gather_last(out, share, c.lane);
  const numbers by = *numbers_at(c);
  const float power = quick_exp2(qn_fma(out[1], by.output_scale, by.of_magnitude));
  const float direction = qn_fma(out[0], by.output_scale, by.of_direction) * power;
  p = QN_LOPT_JOINT_DECAY ? qn_lopt_moved_jointly_by(p, direction, by.step, by.decay)
                          : qn_lopt_moved_by(p, direction, by.step, by.decay);
  if (there && c.mine) *c.p = p;
  advance(c.p, c.bytes);
}

#if QN_LOPT_WARPGROUPS
typedef qn_u64 network; /* its matrices */

/* The first layer of two elements begins, and the second, of what the first has become. Ordinary instructions hardly go
 * on beside these products, of whichever simdgroup, so that nothing is gained by having several of a row under way:
 * results/wgmma-overlap-h200.txt. */
QN_FN void begin_first(float (&h)[4][4], const operand &o, int e, const float (&over_y)[8], const columns &c,
                       const network &net)
{
  begin_pair(h, e, over_y, c);
  hold(h);
  qn_wgmma_begin();
  add_step<true>(h, o, net);
  qn_wgmma_close();
}

/* The second layer takes the first one's place, whose sums it has read: into registers that nothing has written, ptxas
 * 13.0 leaves products out. */
QN_FN void begin_second(float (&h)[4][4], operand (&sums)[2], const network &net)
{
  QN_UNROLL
  for (int step = 0; step < 2; step++) sums[step] = sums_as(h[2 * step], h[2 * step + 1]);
  hold(h);
  qn_wgmma_begin();
  add_step<false>(h, sums[0], net + 2 * (MATRIX * 4 / 16));
  add_step<true>(h, sums[1], net + 4 * (MATRIX * 4 / 16));
  qn_wgmma_close();
}

QN_FN void run_elements(float (&share)[4][2], const float (&x)[4][4], const float (&over_y)[8], const columns &c,
                        const network &net, const last_layer &l)
{
  operand o[2];
  QN_UNROLL
  for (int pair = 0; pair < 2; pair++) o[pair] = inputs_as(x[2 * pair], x[2 * pair + 1]);
  QN_UNROLL
  for (int pair = 0; pair < 2; pair++) {
    float h[4][4];
    operand sums[2];
    begin_first(h, o[pair], 2 * pair, over_y, c, net);
    qn_wgmma_wait<0>();
    hold(h);
    begin_second(h, sums, net);
    qn_wgmma_wait<0>();
    hold(h);
    add_last(share[2 * pair], share[2 * pair + 1], h, c, l);
  }
}
#else
typedef fragments network;

QN_FN void run_elements(float (&share)[4][2], const float (&x)[4][4], const float (&over_y)[8], const columns &c,
                        const network &net, const last_layer &l)
{
  QN_UNROLL
  for (int pair = 0; pair < 2; pair++) {
    float h[4][4], second[4][4] = {};
    begin_pair(h, 2 * pair, over_y, c);
    first_layer(h, x[2 * pair], x[2 * pair + 1], net);
    second_layer(second, h, net);
    add_last(share[2 * pair], share[2 * pair + 1], second, c, l);
  }
}
#endif

/* Of a warpgroup's last rows those that are not there are taken too, to no effect: its simdgroups keep together, and no
 * branch parts one row from the next. */
template <bool aligned>
QN_FN void update_tile(const qn_lopt_device_args &a, const tile &t, columns &c, const network &net, const last_layer &l)
{
  const qn_u32 rows = QN_LOPT_WARPGROUPS ? qn_shuffle(t.rows, 0) : t.rows; /* one number in the compiler's eyes, too */
  QN_UNROLL
  for (qn_u32 row = 0; row < STAGES - 1; row++) bring_row<aligned>(c, row, row < rows);
  for (qn_u32 left = rows; left; left = left > STAGES ? left - STAGES : 0) QN_UNROLL
  for (qn_u32 row = 0; row < STAGES; row++) {
    float x[4][4], share[4][2], over_y[8], p;
    if (!QN_LOPT_WARPGROUPS && row >= left) break;
    qn_copy_wait<STAGES - 2>();
    qn_simd_barrier(); /* the row is there, and the one before was used */
    bring_row<aligned>(c, (row + STAGES - 1) % STAGES, left > row + STAGES - 1);
    take_row<aligned>(x, p, c, a, t, row, left > row);
    read_over_y(over_y, c, row);
    run_elements(share, x, over_y, c, net, l);
    move(c, share, p, left > row);
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
  place_columns(c, shared + qn_simd() * OF_SIMD);
  read_last(l, c, a.weights, a.exp_mult);
  for (qn_u32 task = static_cast<qn_u32>(qn_block()) * teams + qn_simd() / TOGETHER; task < a.tasks;
       task += static_cast<qn_u32>(qn_blocks()) * teams) {
    const qn_u32 k = item_of(a, task);
    const qn_lopt_device_item &it = a.items[k];
    const tile t = tile_of(it, task - a.first[k], QN_LOPT_ROWS, TOGETHER, qn_simd() % TOGETHER);
    qn_simd_barrier();                              /* the tile before is done with shared memory */
    place_columns(c, shared + qn_simd() * OF_SIMD); /* again: places are not kept while the tensor is looked up */
    read_columns(c, a, it, t);
    if (it.flags & QN_LOPT_ALIGNED)
      update_tile<true>(a, t, c, net, l);
    else
      update_tile<false>(a, t, c, net, l);
  }
}
