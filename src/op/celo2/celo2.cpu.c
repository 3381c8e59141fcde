/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.cpu.c - the tasks of a batch of tensors of a step of CELO2 on the processor; built once a tier. A small matrix
 * is taken by one task from its gradient to its parameter. Of a large one, tasks are chunks, which leave the network's
 * outputs. A vector's chunk takes the whole of AdamW's step. */
#include "op/celo2/celo2.h"
#include "base/for_packs.h"

#ifndef QN_ORACLE /* its double form is the tests' own, written from the contract */
enum { ELEMENTS = QN_CELO2_ELEMENTS, CHANNELS = QN_CELO2_INPUTS, WIDTH = QN_CELO2_WIDTH, SMALL = QN_CELO2_SMALL };
#include "op/celo2/celo2.math.h"
#include "op/celo2/scalar.math.h"
#include "op/lopt/block.cpu.h"

qn_lopt_cpu_fn QN_CPU_NAME(celo2);

/* Each matrix has scales of its own, so a factor's part of the first layer's sums is no table. */
static void set_table(const qn_lopt_call *call, const qn_lopt_item *item, qn_lopt_factor *s, bool row, bool over_x)
{
  (void)call, (void)item, (void)s, (void)row, (void)over_x;
}

QN_FN void element_inputs(qn_f32 g, qn_f32 p, const qn_f32 m[3], qn_f32 v, const qn_f32 a[3], const qn_f32 b[3],
                          qn_f32 x[ELEMENTS])
{
  qn_velo_inputs(g, p, m, v, qn_rsqrt(qn_celo2_s_square(v)), a, b, x);
}

/* The six channels of one factor at a block's elements. */
static void set_factor_inputs(const qn_lopt_factor *s, const uint64_t place[BLOCK], bool straight, bool one_place,
                              float (*x)[BLOCK])
{
  for (uint64_t d = 0; d < QN_LOPT_FACTOR_CHANNELS; d++) {
    const float *from = s->channel + d * s->padded;
    if (straight && one_place)
      spread(x[d], from[place[0]]);
    else if (straight)
      memcpy(x[d], from + place[0], sizeof x[d]);
    else
      for (int e = 0; e < BLOCK; e++) x[d][e] = from[place[e]];
  }
}

static void set_channels(const qn_lopt_call *call, const qn_lopt_item *item, block *k)
{
  const bool row_over_x = item->view.row_over_x;
  set_inputs(call, item, k);
  set_factor_inputs(&item->over_x, k->over_x, k->straight, false, k->x + ELEMENTS + (row_over_x ? 0 : 6));
  set_factor_inputs(&item->over_y, k->over_y, k->straight, true, k->x + ELEMENTS + (row_over_x ? 6 : 0));
}

/* ---- elements [first, end) of one matrix ---- */

/* New m and v, and the sums of the channels' squares. */
static void add_range(const qn_lopt_call *call, const qn_lopt_item *item, uint64_t first, uint64_t end, double *total)
{
  block k;
  memset(total, 0, CHANNELS * sizeof *total);
  for (uint64_t from = first; from < end; from += RUN) {
    ALIGNED float slot[CHANNELS][SLOTS] = {{0}};
    for (uint64_t at = from; at < end && at < from + RUN; at += BLOCK) {
      begin_block(&k, at, end);
      load(call, item, &k);
      accumulate(&call->rates, item, &k);
      set_channels(call, item, &k);
      for (int j = 0; j < CHANNELS; j++) {
        memset(k.x[j] + k.n, 0, (BLOCK - k.n) * sizeof(float)); /* behind the end there are inputs too */
        add_squares(slot[j], k.x[j], BLOCK, QN_LOPT_AS_IS);
      }
    }
    for (int j = 0; j < CHANNELS; j++) total[j] += sum_of_slots(slot[j]);
  }
}

/* The first layer by channel, of a matrix of n elements. */
static void set_layer(const float *weights, const double *total, uint64_t n, float *layer)
{
  for (int j = 0; j < CHANNELS; j++) {
    const double scale = qn_celo2_scale(total[j], n);
    for (int h = 0; h < WIDTH; h++)
      layer[j * WIDTH + h] = (float)(scale * (double)weights[QN_CELO2_W1 + qn_celo2_input(j) * WIDTH + h]);
  }
}

/* The network's outputs, of states that were updated. */
static void run_range(const qn_lopt_call *call, const qn_lopt_item *item, uint64_t first, uint64_t end,
                      const float *layer, float *to)
{
  const float *w = call->weights;
  block k;
  for (uint64_t at = first; at < end; at += BLOCK) {
    ALIGNED float out[BLOCK];
    begin_block(&k, at, end);
    load(call, item, &k);
    set_channels(call, item, &k);
    for (int u = 0; u < BLOCK; u += QN_LANES) {
      qn_f32 sum[1][WIDTH], made;
      QN_UNROLL
      for (int h = 0; h < WIDTH; h++) sum[0][h] = qn_splat(w[QN_CELO2_B1 + h]);
      for (int j = 0; j < CHANNELS; j++) {
        const qn_f32 input = get(k.x[j] + u);
        QN_UNROLL
        for (int h = 0; h < WIDTH; h++) sum[0][h] = qn_fma(qn_splat(layer[j * WIDTH + h]), input, sum[0][h]);
      }
      qn_celo2_network(1, sum, w, call->rates.exp_mult, &made);
      put(out + u, made);
    }
    memcpy(to + (at - first), out, k.n * sizeof *out);
  }
}

/* ---- small matrices ---- */

static void add_row(float *to, const float *from, float factor, uint64_t n)
{
  for (uint64_t j = 0; j < n; j++) to[j] += factor * from[j];
}

/* t is (length, width), length >= width; A = t^T t, then SECOND A + THIRD A A. */
static void set_polynomial(const float *t, uint64_t length, uint64_t width, float *a, float *of_a)
{
  memset(a, 0, width * width * sizeof *a);
  for (uint64_t k = 0; k < length; k++)
    for (uint64_t i = 0; i < width; i++) add_row(a + i * width, t + k * width, t[k * width + i], width);
  for (uint64_t i = 0; i < width; i++) {
    float *row = of_a + i * width;
    memset(row, 0, width * sizeof *row);
    for (uint64_t k = 0; k < width; k++) add_row(row, a + k * width, a[i * width + k], width);
    for (uint64_t j = 0; j < width; j++) row[j] = QN_CELO2_SECOND * a[i * width + j] + QN_CELO2_THIRD * row[j];
  }
}

static void turn(const float *from, uint64_t rows, uint64_t columns, float *to)
{
  for (uint64_t i = 0; i < rows; i++)
    for (uint64_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
}

static void make_orthogonal(float *move, uint64_t rows, uint64_t columns)
{
  float a[SMALL], of_a[SMALL], turned[SMALL], row[SMALL], *t = move;
  const uint64_t n = rows * columns, width = rows < columns ? rows : columns, length = n / width;
  const float scale = qn_celo2_into_ball(squares(move, n, QN_LOPT_AS_IS));
  if (rows < columns) turn(move, rows, columns, turned), t = turned;
  for (uint64_t i = 0; i < n; i++) t[i] *= scale;
  for (int round = 0; round < QN_CELO2_ROUNDS; round++) {
    set_polynomial(t, length, width, a, of_a);
    for (uint64_t k = 0; k < length; k++, t += width) {
      for (uint64_t j = 0; j < width; j++) row[j] = QN_CELO2_FIRST * t[j];
      for (uint64_t i = 0; i < width; i++) add_row(row, of_a + i * width, t[i], width);
      memcpy(t, row, width * sizeof *t);
    }
    t -= n;
  }
  if (rows < columns) turn(turned, columns, rows, move);
}

/* Into the parameter, the moves of n elements that begin at `first`. */
static void move_range(const qn_lopt_item *item, uint64_t first, uint64_t n, const float *move, float scale)
{
  for (uint64_t at = 0; at < n; at += BLOCK) {
    const uint64_t here = n - at < BLOCK ? n - at : BLOCK;
    ALIGNED float p[BLOCK], u[BLOCK];
    fill(p, item->p + first + at, here, BLOCK);
    fill(u, move + at, here, BLOCK);
    for (int k = 0; k < BLOCK; k += QN_LANES)
      put(p + k, qn_lopt_moved_jointly_by(get(p + k), get(u + k) * qn_splat(scale), item->lr, item->decay));
    memcpy(item->p + first + at, p, here * sizeof *p);
  }
}

static void take_matrix(const qn_lopt_call *call, const qn_lopt_item *item, uint64_t first)
{
  const qn_celo2_own *own = call->own;
  const uint64_t n = qn_celo2_size(&item->view);
  double total[CHANNELS];
  ALIGNED float layer[CHANNELS * WIDTH], move[SMALL];
  add_range(call, item, first, first + n, total);
  set_layer(call->weights, total, n, layer);
  run_range(call, item, first, first + n, layer, move);
  if (own->orthogonalize) make_orthogonal(move, item->view.rows, item->view.columns);
  move_range(item, first, n, move, (float)(own->rms_mult * qn_celo2_scale(squares(move, n, QN_LOPT_AS_IS), n)));
}

/* ---- tasks ---- */

static void adam(const qn_lopt_call *call, const qn_lopt_item *item, uint64_t task)
{
  const qn_celo2_own *own = call->own;
  const float lr = (float)((double)item->lr * own->adam_lr_mult);
  const uint64_t end = chunk_end(item, task);
  for (uint64_t at = task * QN_LOPT_CHUNK; at < end; at += BLOCK) {
    const uint64_t n = end - at < BLOCK ? end - at : BLOCK;
    ALIGNED float g[BLOCK], p[BLOCK], m[BLOCK], v[BLOCK];
    fill(g, item->g + at, n, BLOCK), fill(p, item->p + at, n, BLOCK);
    fill(m, item->m + at, n, BLOCK), fill(v, item->v + at, n, BLOCK);
    for (int u = 0; u < BLOCK; u += QN_LANES) {
      const qn_f32 grad = qn_lopt_taken(call->gradient, get(g + u));
      put(m + u, qn_lopt_mean(own->m, own->m_rest, get(m + u), grad));
      put(v + u, qn_lopt_mean(own->v, own->v_rest, get(v + u), grad * grad));
      put(p + u,
          qn_celo2_adam(get(p + u), get(m + u), get(v + u), own->of_m, own->of_v, own->adam_eps, lr, own->adam_decay));
    }
    memcpy(item->p + at, p, n * sizeof *p);
    memcpy(item->m + at, m, n * sizeof *m), memcpy(item->v + at, v, n * sizeof *v);
  }
}

/* Of the task-th chunk of large matrices. */
static void chunk_of(const qn_lopt_view *v, uint64_t task, uint64_t *matrix, uint64_t *first, uint64_t *end)
{
  const uint64_t chunks = qn_celo2_chunks(v), n = qn_celo2_size(v), at = task % chunks * QN_LOPT_CHUNK;
  *matrix = task / chunks;
  *first = *matrix * n + at;
  *end = *matrix * n + (n - at < QN_LOPT_CHUNK ? n : at + QN_LOPT_CHUNK);
}

static void add_chunk(const qn_lopt_call *call, const qn_lopt_item *item, uint64_t task)
{
  uint64_t matrix, first, end;
  chunk_of(&item->view, task, &matrix, &first, &end);
  add_range(call, item, first, end, item->partial + task * CHANNELS);
}

static void set_matrix_layer(const qn_lopt_call *call, const qn_lopt_item *item, uint64_t matrix)
{
  const uint64_t chunks = qn_celo2_chunks(&item->view);
  const double *partial = item->partial + matrix * chunks * CHANNELS;
  double total[CHANNELS] = {0};
  for (uint64_t chunk = 0; chunk < chunks; chunk++)
    for (uint64_t j = 0; j < CHANNELS; j++) total[j] += partial[chunk * CHANNELS + j];
  set_layer(call->weights, total, qn_celo2_size(&item->view), item->layer + matrix * CHANNELS * WIDTH);
}

static void update(const qn_lopt_call *call, const qn_lopt_item *item, uint64_t task)
{
  const qn_lopt_view *v = &item->view;
  const uint64_t together = qn_celo2_together(v), n = qn_celo2_size(v);
  uint64_t matrix, first, end;
  if (!v->factored) {
    adam(call, item, task);
  } else if (qn_celo2_is_small(v)) {
    for (uint64_t k = task * together; k < (task + 1) * together && k < v->matrices; k++)
      take_matrix(call, item, k * n);
  } else {
    chunk_of(v, task, &matrix, &first, &end);
    run_range(call, item, first, end, item->layer + matrix * CHANNELS * WIDTH, item->moves + first);
  }
}

static void move_chunk(const qn_lopt_item *item, uint64_t task)
{
  uint64_t matrix, first, end;
  chunk_of(&item->view, task, &matrix, &first, &end);
  move_range(item, first, end - first, item->moves + first, item->layer[matrix * CHANNELS * WIDTH]);
}

void QN_CPU_NAME(celo2)(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item, uint64_t task)
{
  if (phase == QN_LOPT_SUMS) sums(call, item, task);
  if (phase == QN_LOPT_STATES) states(call, item);
  if (phase == QN_LOPT_TABLES) tables(call, item);
  if (phase == QN_LOPT_STATS) add_chunk(call, item, task);
  if (phase == QN_LOPT_FIRST_LAYER) set_matrix_layer(call, item, task);
  if (phase == QN_LOPT_UPDATE) update(call, item, task);
  if ((int)phase == (int)QN_CELO2_MOVE) move_chunk(item, task);
}
#endif
