/* SPDX-License-Identifier: Apache-2.0 */
/* meta.cu - meta-training of small_fc's network on a device: the optimizer whose weights are a particle's own, by the
 * arithmetic of lopt.math.h and the products of network.h. meta.loop.h has the kernels. */
#define QN_THREADS 128
#define QN_BLOCKS 4
#include "op/lopt/network.h"
constexpr bool VECTOR_STATES = true;
#include "op/lopt/meta.sides.h"

struct window_args {
  qn_meta_window of;
};

struct optimizer {
  alignas(16) float weights[META_WEIGHTS + 2];
  alignas(16) qn_u32 fragment[FRAGMENTS * 32]; /* four of a lane side by side */
  float time[TIMES], bias[WIDTH];              /* the first layer's, with the times */
  side_sums side[QN_META_TENSORS][2];
  float partial[META_SIMDS][QN_META_TENSORS][16];
  float scale[QN_META_TENSORS][28];
  float scratch[32];
  qn_u32 label[QN_META_BATCH];
};

QN_FN void begin_optimizer(optimizer &o, const qn_meta_window &a, qn_u64 seed, float sign, qn_u32 thread)
{
  perturb(o.weights, a, seed, sign, thread);
  for (qn_u32 i = thread; i < FRAGMENTS * 32; i += META_THREADS)
    o.fragment[i / 128 * 128 + i % 32 * 4 + i / 32 % 4] = fragment(o.weights, i / 32, i % 32);
}

/* By the threads that have least to do beside. */
QN_FN void set_times(optimizer &o, qn_u32 step, qn_u32 thread)
{
  const qn_u32 k = META_THREADS - 1 - thread;
  if (k < TIMES) o.time[k] = qn_tanh(static_cast<float>(qn_lopt_time(step, static_cast<int>(k))));
}

QN_FN void set_bias(optimizer &o)
{
  const qn_u32 h = qn_lane();
  if (qn_simd() != META_SIMDS - 1) return;
  float sum = o.weights[B1 + h];
  for (qn_u32 k = 0; k < TIMES; k++) sum = qn_fma(o.weights[h * INPUTS + TIME + k], o.time[k], sum);
  o.bias[h] = sum;
}

/* ---- a simdgroup takes 32 elements: lane 4 g + t has of the elements 4 g to 4 g + 3, which are of one row, t's four
 * inputs, as network.h lays them. Behind a vector's end are zeros, up to a multiple of 4. ---- */
struct four {
  float x[4][4], v[4], q[4]; /* x by element */
  qn_u32 at, output, input;  /* the first */
  bool there;
};

/* Its chunks of tensor k: all simdgroups have as many of all tensors' together. */
QN_FN qn_u32 first_chunk(const qn_meta_tensor &t)
{
  return (qn_simd() + META_SIMDS - t.chunk % META_SIMDS) % META_SIMDS;
}
QN_FN qn_u32 chunks_of(const qn_meta_tensor &t) { return (t.n + QN_META_CHUNK - 1) / QN_META_CHUNK; }

template <bool is_new>
QN_FN void inputs_of(four &e, const float *slab, const qn_meta_tensor &t, const optimizer &o, qn_u32 k, qn_u32 chunk,
                     const qn_meta_window &a)
{
  const qn_u32 d = qn_lane() & 3u, decay = d < 3 ? d : 0;
  const bool third = d == 3;
  float g[4], of_g[4], of_q[4];
  e.at = chunk * QN_META_CHUNK + qn_lane() / 4 * 4;
  e.there = e.at < t.n;
  if (!e.there) e.at = 0;
  e.output = is_matrix(t) ? output_of(t, e.at) : e.at;
  e.input = is_matrix(t) ? e.at - e.output * t.inputs : 0;
  read4(g, slab + t.g + e.at);
  QN_UNROLL
  for (int i = 0; i < 4; i++) g[i] = taken(g[i]);
  read4(e.v, slab + t.v + e.at);
  read4(e.q, slab + (third ? t.p : t.m + decay * t.padded) + e.at);
  if (is_matrix(t)) {
    const qn_u32 row = row_side(t);
    const float mean = o.side[k][row].state[decay] * (row ? t.of_inputs : t.of_outputs) + 1e-9f;
    const float one = slab[t.state[0] + decay * t.places + e.output];
    float other[4];
    read4(other, slab + t.state[1] + decay * t.inputs + e.input);
    QN_UNROLL
    for (int i = 0; i < 4; i++) {
      const float of_row = (row ? other[i] : one) / mean, of_column = row ? one : other[i];
      of_g[i] = of_q[i] = quick_rsqrt(qn_float_no_less(of_row, 1e-9f) * qn_float_no_less(of_column, 1e-9f));
    }
  } else {
    float f[4];
    read4(f, slab + t.state[0] + decay * t.places + e.at);
    QN_UNROLL
    for (int i = 0; i < 4; i++)
      of_g[i] = quick_rsqrt(qn_float_no_less(f[i] + 1e-9f, 1e-9f)), of_q[i] = quick_rsqrt(f[i] + B_TERM);
  }
  QN_UNROLL
  for (int i = 0; i < 4; i++) {
    if (is_new) e.v[i] = qn_lopt_mean(a.v, a.v_rest, e.v[i], g[i] * g[i]);
    if (is_new && !third) e.q[i] = qn_lopt_mean(a.m[decay], a.m_rest[decay], e.q[i], g[i]);
    const float s = quick_rsqrt(qn_lopt_s_square(e.v[i]));
    e.x[i][0] = e.q[i];
    e.x[i][1] = third ? e.v[i] : e.q[i] * s;
    e.x[i][2] = third ? g[i] : g[i] * of_g[i];
    e.x[i][3] = third ? s : e.q[i] * of_q[i];
  }
}

/* New m and v, and the squares of the 16 inputs that differ from element to element. */
QN_FN void update_means(optimizer &o, const qn_meta_window &a, float *slab)
{
  const qn_u32 lane = qn_lane(), d = lane & 3u;
  for (qn_u32 k = 0; k < a.group.tensors; k++) {
    const qn_meta_tensor &t = a.group.tensor[k];
    float square[4] = {};
    for (qn_u32 c = first_chunk(t); c < chunks_of(t); c += META_SIMDS) {
      four e;
      inputs_of<true>(e, slab, t, o, k, c, a);
      QN_UNROLL
      for (qn_u32 i = 0; i < 4; i++) QN_UNROLL
      for (int j = 0; j < 4; j++)
        if (e.there && e.at + i < t.n) square[j] = qn_fma(e.x[i][j], e.x[i][j], square[j]);
      qn_simd_barrier(); /* all lanes have read v, which lane 3 of them writes */
      if (e.there) store4(slab + (d == 3 ? t.v : t.m + d * t.padded) + e.at, d == 3 ? e.v : e.q, 4, true);
    }
    QN_UNROLL
    for (int i = 0; i < 4; i++) {
      QN_UNROLL
      for (qn_u32 far = 4; far < 32; far *= 2) square[i] += qn_shuffle_xor(square[i], far);
      if (lane < 4) o.partial[qn_simd()][k][4 * d + static_cast<qn_u32>(i)] = square[i];
    }
  }
}

/* The scales of all 28 inputs, in the order of the weights. */
QN_FN void set_scales(optimizer &o, const qn_meta_group &by, qn_u32 thread)
{
  for (qn_u32 task = thread; task < by.tensors * 28; task += META_THREADS) {
    const qn_u32 k = task / 28, j = task % 28;
    const qn_meta_tensor &t = by.tensor[k];
    float sum = 0.0f;
    qn_u32 n = t.n, input;
    if (j < 16) {
      for (qn_u32 s = 0; s < META_SIMDS; s++) sum += o.partial[s][k][j];
      input = static_cast<qn_u32>(input_of(static_cast<int>(j / 4), static_cast<int>(j % 4)));
    } else {
      const bool is_row = (j - 16) / 6 == 0;
      const qn_u32 side = is_row || !is_matrix(t) ? row_side(t) : row_side(t) ^ 1u, c = (j - 16) % 6;
      sum = c < 3 ? o.side[k][side].square[c] : o.side[k][side].inverse[c - 3];
      n = places(t, side);
      input = static_cast<qn_u32>(qn_lopt_factor_input(ELEMENT_INPUTS, is_row, static_cast<int>(c)));
    }
    o.scale[k][input] = quick_rsqrt(1e-5f + sum / static_cast<float>(n));
  }
}

/* The sides' parts of the first layer's sums; the bias goes with the first side. */
QN_FN void set_tables(const optimizer &o, const qn_meta_group &by, float *slab)
{
  const qn_u32 h = qn_lane();
  for (qn_u32 k = 0; k < by.tensors; k++) {
    const qn_meta_tensor &t = by.tensor[k];
    for (qn_u32 side = 0; side < (is_matrix(t) ? 2u : 1u); side++) {
      const bool is_row = side == row_side(t);
      float weight[6];
      QN_UNROLL
      for (int c = 0; c < 6; c++) {
        const int input = qn_lopt_factor_input(ELEMENT_INPUTS, is_row, c);
        weight[c] = o.weights[static_cast<int>(h) * INPUTS + input] * o.scale[k][input];
        if (!is_matrix(t))
          weight[c] = qn_fma(o.weights[static_cast<int>(h) * INPUTS + input + 3], o.scale[k][input], weight[c]);
      }
      for (qn_u32 place = qn_simd(); place < places(t, side); place += META_SIMDS) {
        float sum = side ? 0.0f : o.bias[h];
        QN_UNROLL
        for (qn_u32 d = 0; d < 3; d++) {
          const float state = slab[t.state[side] + d * apart(t, side) + place];
          sum = qn_fma(weight[d], state, qn_fma(weight[3 + d], inverse(state), sum));
        }
        slab[t.table[side] + place * WIDTH + h] = sum;
      }
    }
  }
}

/* The lane's part of the last layer, and of the second's bias. */
struct last_layer {
  float bias[8], direction[8], magnitude[8];
};

QN_FN void read8(float (&to)[8], const float *from)
{
  float half[4];
  read4(half, from);
  QN_UNROLL
  for (int k = 0; k < 4; k++) to[k] = half[k];
  read4(half, from + 4);
  QN_UNROLL
  for (int k = 0; k < 4; k++) to[4 + k] = half[k];
}

/* The lane's shares of the outputs of elements `first` and the next. */
QN_FN void take_pair(float (&share)[4][2], int first, const four &e, const float (&scale)[4], const float (&one)[8],
                     const float *other, const optimizer &o, const last_layer &l)
{
  float h[4][4], second[4][4] = {}, x[2][4];
  fragments net; /* read each time: in registers they would cost a third of the blocks */
  QN_UNROLL
  for (int half = 0; half < 2; half++) {
    float table[8];
    read8(table, other + static_cast<qn_u32>(first + half) * WIDTH);
    QN_UNROLL
    for (int k = 0; k < 8; k++) h[k / 2][2 * half + k % 2] = one[k] + table[k];
    QN_UNROLL
    for (int k = 0; k < 4; k++) x[half][k] = e.x[first + half][k] * scale[k];
  }
  QN_UNROLL
  for (qn_u32 i = 0; i < FRAGMENTS; i += 4) {
    const qn_16bytes words = qn_load16(o.fragment + 32 * i + 4 * qn_lane());
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++) net.word[i + j] = words.word[j];
  }
  first_layer(h, x[0], x[1], net);
  second_layer(second, h, net);
  QN_UNROLL
  for (int half = 0; half < 2; half++) {
    share[first + half][0] = share[first + half][1] = 0.0f;
    QN_UNROLL
    for (int i = 0; i < 8; i++) {
      const float y = relu(second[i / 2][2 * half + i % 2] + l.bias[i]);
      share[first + half][0] = qn_fma(y, l.direction[i], share[first + half][0]);
      share[first + half][1] = qn_fma(y, l.magnitude[i], share[first + half][1]);
    }
  }
}

/* The network, and every parameter's step. */
QN_FN void update_parameters(const optimizer &o, const qn_meta_window &a, float *slab)
{
  const qn_u32 d = qn_lane() & 3u;
  const float power = 0x1.715476p0f * a.exp_mult; /* log2 e */
  last_layer l;
  read8(l.bias, o.weights + B2 + 8 * d);
  read8(l.direction, o.weights + W3 + 8 * d);
  read8(l.magnitude, o.weights + W3 + WIDTH + 8 * d);
  for (qn_u32 k = 0; k < a.group.tensors; k++) {
    const qn_meta_tensor &t = a.group.tensor[k];
    const float step = a.step * t.lr_scale, decay = QN_LOPT_JOINT_DECAY ? a.decay : a.decay * t.lr_scale;
    float scale[4];
    QN_UNROLL
    for (int i = 0; i < 4; i++) scale[i] = o.scale[k][input_of(static_cast<int>(d), i)];
    for (qn_u32 c = first_chunk(t); c < chunks_of(t); c += META_SIMDS) {
      four e;
      float one[8] = {}, share[4][2], out[2];
      inputs_of<false>(e, slab, t, o, k, c, a);
      if (is_matrix(t)) read8(one, slab + t.table[0] + e.output * WIDTH + 8 * d);
      const float *const other =
          slab + (is_matrix(t) ? t.table[1] + e.input * WIDTH : t.table[0] + e.at * WIDTH) + 8 * d;
      take_pair(share, 0, e, scale, one, other, o, l);
      take_pair(share, 2, e, scale, one, other, o, l);
      gather_last(out, share, qn_lane());
      const float direction = (out[0] + o.weights[B3]) * quick_exp2(power * (out[1] + o.weights[B3 + 1]));
      float *const p = slab + t.p + e.at + d;
      qn_simd_barrier(); /* all lanes have read p, each of which now writes one */
      if (e.there && e.at + d < t.n)
        *p = QN_LOPT_JOINT_DECAY ? qn_lopt_moved_jointly_by(*p, direction, step, decay)
                                 : qn_lopt_moved_by(*p, direction, step, decay);
    }
  }
}

QN_FN void take_step(optimizer &o, const window_args &args, float *slab, qn_u32 step, qn_u32 thread)
{
  const qn_meta_window &a = args.of;
  set_times(o, step, thread);
  update_states(a, slab, thread);
  qn_barrier();
  sum_sides(o.side, a.group, slab);
  set_bias(o);
  qn_barrier();
  update_means(o, a, slab);
  qn_barrier();
  set_scales(o, a.group, thread);
  qn_barrier();
  set_tables(o, a.group, slab);
  qn_barrier();
  update_parameters(o, a, slab);
  qn_barrier();
}
#include "op/lopt/meta.loop.h"
