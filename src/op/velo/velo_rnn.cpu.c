/* SPDX-License-Identifier: Apache-2.0 */
/* velo_rnn.cpu.c - VeLO's phases over the whole list on the processor: sums over every tensor, the LSTM over all of
 * them at once, and what its controls make of the banks; built once a tier.
 *
 * A lane is a tensor, so a sum runs in the order of its inputs whatever the width, 128 of them in f32 and then these in
 * order; all tiers give the same bits. A weight is read once for all tensors. */
#include "op/velo/velo.h"
#include "base/most.h"
#include "base/for_packs.h"

#ifndef QN_ORACLE /* its double form is the tests' own, written from the contract */
#include "op/lopt/lanes.cpu.h"
#include "op/velo/scalar.math.h"
#include "op/velo/velo.math.h"

qn_velo_cpu_fn QN_CPU_NAME(velo_rnn);

enum { UNITS = QN_VELO_UNITS, SLOTS = 16, PIECE = 128, ROWS = 4 };

/* ---- the phase SUMS ---- */

/* Macros, as a function that gives so wide a vector has no fixed way to do so. */
#if QN_LANES == 1
typedef double wide;
#define WIDEN(x) ((double)(x))
#define NARROW(to, x) (*(to) = (float)(x))
#else
typedef double wide __attribute__((vector_size(8 * QN_LANES)));
#define WIDEN(x) __builtin_convertvector(x, wide)
#define NARROW(to, x) put(to, __builtin_convertvector(x, qn_f32))
#endif

/* sum += x, squares += x^2: of floats, so that the product is exact in double. */
QN_FN void add(wide *sum, wide *squares, const float *x)
{
  const wide value = WIDEN(get(x));
  *sum += value;
  *squares += value * value;
}

/* Lanes [u, u + QN_LANES) of the slots, over n elements, a multiple of 16. */
QN_FN void add_slots(const float *const x[5], uint64_t n, int u, double slot[QN_VELO_SUMMARIES][SLOTS])
{
  wide sum[5], squares[5], zero = WIDEN(qn_splat(0.0f));
  for (int k = 0; k < 5; k++) sum[k] = squares[k] = zero;
  for (uint64_t i = (uint64_t)u; i < n; i += SLOTS) QN_UNROLL
  for (int k = 0; k < 5; k++) add(&sum[k], &squares[k], x[k] + i);
  /* x is p, m (3), v; the sums are p^2, m (3), m^2 (3), v, v^2 */
  memcpy(slot[0] + u, &squares[0], sizeof zero);
  for (int k = 0; k < 3; k++) memcpy(slot[1 + k] + u, &sum[1 + k], sizeof zero);
  for (int k = 0; k < 3; k++) memcpy(slot[4 + k] + u, &squares[1 + k], sizeof zero);
  memcpy(slot[7] + u, &sum[4], sizeof zero);
  memcpy(slot[8] + u, &squares[4], sizeof zero);
}

static void add_all(const float *const x[5], uint64_t n, double total[QN_VELO_SUMMARIES])
{
  ALIGNED double slot[QN_VELO_SUMMARIES][SLOTS];
  for (int u = 0; u < SLOTS; u += QN_LANES) add_slots(x, n, u, slot);
  for (int k = 0; k < QN_VELO_SUMMARIES; k++) {
    for (int half = SLOTS / 2; half; half /= 2)
      for (int j = 0; j < half; j++) slot[k][j] += slot[k][j + half];
    total[k] += slot[k][0];
  }
}

static void sums(const qn_velo_call *call, uint64_t task)
{
  const qn_velo_item *item = &call->item[qn_lopt_item_of(call->task, call->n, task)];
  const uint64_t chunk = task - call->task[item - call->item], from = chunk * QN_VELO_SUMMARY_CHUNK;
  const uint64_t left = item->n - from, n = left < QN_VELO_SUMMARY_CHUNK ? left : QN_VELO_SUMMARY_CHUNK;
  const uint64_t whole = n / SLOTS * SLOTS;
  const float *m = item->m + from;
  const float *const x[5] = {item->p + from, m, m + item->n, m + 2 * item->n, item->v + from};
  double *total = item->partial + chunk * QN_VELO_SUMMARIES;
  float rest[5][SLOTS];
  const float *of_rest[5];
  memset(total, 0, QN_VELO_SUMMARIES * sizeof *total);
  add_all(x, whole, total);
  for (int k = 0; k < 5; k++) fill(rest[k], x[k] + whole, n - whole, SLOTS), of_rest[k] = rest[k];
  add_all(of_rest, SLOTS, total);
}

/* ---- products ---- */

/* Vectors of tensors that registers have room for, times four rows of weights. */
#if QN_LANES == 8
enum { ACROSS = 2 };
#else
enum { ACROSS = 4 };
#endif

/* out[r][u] += the sum over k of w[r][k] in[k][u], in the order of k from 0, for `across` vectors. */
QN_FN void add_tile(const float *const w[ROWS], uint64_t inputs, const float *in, uint64_t apart, int across,
                    float *const out[ROWS])
{
  qn_f32 sum[ROWS * ACROSS];
  QN_UNROLL
  for (int s = 0; s < ROWS * across; s++) sum[s] = qn_splat(0.0f);
  for (uint64_t k = 0; k < inputs; k++) {
    const float *x = in + k * apart;
    QN_UNROLL
    for (int s = 0; s < ROWS * across; s++)
      sum[s] = qn_fma(qn_splat(w[s / across][k]), get(x + s % across * QN_LANES), sum[s]);
  }
  QN_UNROLL
  for (int s = 0; s < ROWS * across; s++) {
    float *to = out[s / across] + s % across * QN_LANES;
    put(to, get(to) + sum[s]);
  }
}

/* Four rows of weights by `columns` columns, up to 64 and a multiple of a vector's; out has what is added to. */
static void add_rows(const float *const w[ROWS], uint64_t inputs, const float *in, uint64_t apart, uint64_t columns,
                     float (*out)[BLOCK])
{
  for (uint64_t u = 0; u < columns;) {
    float *const to[ROWS] = {out[0] + u, out[1] + u, out[2] + u, out[3] + u};
    const uint64_t left = (columns - u) / QN_LANES;
    const int across = left < ACROSS ? (int)left : ACROSS;
    if (across == ACROSS)
      add_tile(w, inputs, in + u, apart, ACROSS, to);
    else if (ACROSS > 3 && across == 3)
      add_tile(w, inputs, in + u, apart, 3, to);
    else if (ACROSS > 2 && across == 2)
      add_tile(w, inputs, in + u, apart, 2, to);
    else
      add_tile(w, inputs, in + u, apart, 1, to);
    u += (uint64_t)across * QN_LANES;
  }
}

/* `groups` times four rows: those of group g begin at w[r] + g * row_of, and out has 4 groups rows. */
static void add_product(const float *const w[ROWS], uint64_t groups, uint64_t row_of, uint64_t inputs, const float *in,
                        uint64_t apart, uint64_t columns, float (*out)[BLOCK])
{
  for (uint64_t from = 0; from < inputs; from += PIECE) {
    const uint64_t here = inputs - from < PIECE ? inputs - from : PIECE;
    for (uint64_t g = 0; g < groups; g++) {
      const uint64_t at = g * row_of + from;
      const float *const rows[ROWS] = {w[0] + at, w[1] + at, w[2] + at, w[3] + at};
      add_rows(rows, here, in + from * apart, apart, columns, out + g * ROWS);
    }
  }
}

/* Up to 64 from u on, those of no tensor only where a vector has them too. */
static uint64_t columns_from(const qn_velo_call *call, uint64_t u)
{
  const uint64_t left = qn_lopt_ceiling(call->n - u, QN_LANES) * QN_LANES;
  return left < BLOCK ? left : BLOCK;
}

/* Rows h to h + 4 of a layer, for the columns from u on. */
static void four_rows(const qn_velo_call *call, const float *w, const float *bias, uint64_t inputs, const float *in,
                      uint64_t h, uint64_t u, float (*out)[BLOCK])
{
  const float *const rows[ROWS] = {w + h * inputs, w + (h + 1) * inputs, w + (h + 2) * inputs, w + (h + 3) * inputs};
  for (uint64_t r = 0; r < ROWS; r++) spread(out[r], bias[h + r]);
  add_product(rows, 1, 0, inputs, in + u, call->padded, columns_from(call, u), out);
}

/* ---- the phase MIX ---- */

/* V of four units: what the mixing layer's most is over all tensors that have elements; NaN if one is. */
static void most_of_all(const qn_velo_call *call, uint64_t h, float most[ROWS])
{
  ALIGNED float out[ROWS][BLOCK];
  for (int r = 0; r < ROWS; r++) most[r] = 0;
  for (uint64_t u = 0; u < call->n; u += BLOCK) {
    four_rows(call, call->rnn + QN_VELO_MIX_W, call->rnn + QN_VELO_MIX_B, QN_VELO_INPUTS, call->x, h, u, out);
    for (uint64_t e = 0; e < BLOCK && u + e < call->n; e++)
      for (int r = 0; r < ROWS && call->item[u + e].whole; r++) most[r] = qn_float_most(most[r], out[r][e]);
  }
}

static void mix(const qn_velo_call *call, uint64_t task)
{
  ALIGNED float out[ROWS][BLOCK];
  for (uint64_t h = 16 * task; h < 16 * task + 16; h += ROWS) {
    float most[ROWS];
    most_of_all(call, h, most);
    for (uint64_t u = 0; u < call->n; u += BLOCK) {
      const uint64_t columns = columns_from(call, u);
      four_rows(call, call->rnn + QN_VELO_FINAL_W, call->rnn + QN_VELO_FINAL_B, QN_VELO_INPUTS, call->x, h, u, out);
      for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t e = 0; e < columns; e += QN_LANES)
          put(call->z + (h + r) * call->padded + u + e, get(out[r] + e) + qn_splat(most[r]));
    }
  }
}

/* ---- the phase LSTM ---- */

/* One unit of the tensors from u on, by its four gates. */
static void set_unit(const qn_velo_call *call, uint64_t unit, uint64_t u, uint64_t columns, float (*gate)[BLOCK])
{
  ALIGNED float cell[BLOCK] = {0};
  for (uint64_t e = 0; e < columns && u + e < call->n; e++) cell[e] = call->cell[(u + e) * UNITS + unit];
  for (uint64_t e = 0; e < columns; e += QN_LANES) {
    qn_f32 now = get(cell + e);
    put(call->unit + unit * call->padded + u + e,
        qn_velo_unit(get(gate[0] + e), get(gate[1] + e), get(gate[2] + e), get(gate[3] + e), &now));
    put(cell + e, now);
  }
  for (uint64_t e = 0; e < columns && u + e < call->n; e++)
    if (call->item[u + e].whole) call->cell[(u + e) * UNITS + unit] = cell[e];
}

static void lstm(const qn_velo_call *call, uint64_t task)
{
  enum { AT_ONCE = 4 }; /* units */
  const uint64_t first = AT_ONCE * task;
  const float *w[ROWS], *bias = call->rnn + QN_VELO_LSTM_B;
  for (uint64_t r = 0; r < ROWS; r++) w[r] = call->rnn + QN_VELO_LSTM_W + (r * UNITS + first) * 2 * UNITS;
  for (uint64_t u = 0; u < call->n; u += BLOCK) {
    ALIGNED float gate[AT_ONCE * ROWS][BLOCK];
    const uint64_t columns = columns_from(call, u);
    for (uint64_t g = 0; g < AT_ONCE * ROWS; g++) spread(gate[g], bias[g % ROWS * UNITS + first + g / ROWS]);
    add_product(w, AT_ONCE, 2 * UNITS, 2 * UNITS, call->z + u, call->padded, columns, gate);
    for (uint64_t g = 0; g < AT_ONCE; g++) set_unit(call, first + g, u, columns, gate + g * ROWS);
  }
}

/* ---- the phase HEADS ---- */

static void heads(const qn_velo_call *call, uint64_t task)
{
  const uint64_t first = ROWS * task;
  const bool is_last = first == QN_VELO_BANKS;
  const float *w = call->rnn + (is_last ? QN_VELO_STEP_W : QN_VELO_CONTROL_W + first * UNITS);
  const float *bias = call->rnn + (is_last ? QN_VELO_STEP_B : QN_VELO_CONTROL_B + first);
  for (uint64_t u = 0; u < call->n; u += BLOCK) {
    ALIGNED float out[ROWS][BLOCK];
    const uint64_t columns = columns_from(call, u);
    const float *rows[ROWS];
    for (uint64_t r = 0; r < ROWS; r++) rows[r] = is_last ? w : w + r * UNITS, spread(out[r], bias[is_last ? 0 : r]);
    add_product(rows, 1, 0, UNITS, call->unit + u, call->padded, columns, out);
    for (uint64_t r = 0; r < ROWS; r++)
      memcpy(call->control + (first + r) * call->padded + u, out[r], columns * sizeof(float));
  }
}

/* ---- the phase BANKS_OF ---- */

/* Numbers [j, j + lanes) of one of a bank's tensors, of n numbers a bank. */
QN_FN void mix_lanes(const double control[QN_VELO_BANKS], const float *bank, uint64_t n, uint64_t j, float *mixed)
{
  wide sum = WIDEN(qn_splat(0.0f));
  for (uint64_t k = 0; k < QN_VELO_BANKS; k++) sum += control[k] * WIDEN(get(bank + k * n + j));
  sum *= QN_VELO_MIXING;
  NARROW(mixed + j, sum);
}

/* The last ones, fewer than 16. */
static void mix_rest(const double control[QN_VELO_BANKS], const float *bank, uint64_t n, uint64_t j, float *mixed)
{
  double sum[SLOTS] = {0};
  for (uint64_t k = 0; k < QN_VELO_BANKS; k++)
    for (uint64_t i = j; i < n; i++) sum[i - j] += control[k] * (double)bank[k * n + i];
  for (uint64_t i = j; i < n; i++) mixed[i] = (float)(sum[i - j] * QN_VELO_MIXING);
}

static void mix_banks(const qn_velo_call *call, uint64_t k)
{
  static const uint64_t begin[] = QN_VELO_BEGINS;
  float *mixed = call->mixed + k * QN_VELO_MIXED;
  const qn_velo_item *item = &call->item[k];
  double control[QN_VELO_BANKS];
  if (!item->whole) return;
  for (uint64_t j = 0; j < QN_VELO_BANKS; j++) control[j] = (double)call->control[j * call->padded + k];
  for (int t = 0; t < 6; t++) {
    const float *bank = call->mlp + QN_VELO_BANKS * begin[t];
    const uint64_t n = begin[t + 1] - begin[t];
    uint64_t j = 0;
    for (; j + QN_LANES <= n; j += QN_LANES) mix_lanes(control, bank, n, j, mixed + begin[t]);
    mix_rest(control, bank, n, j, mixed + begin[t]);
  }
  mixed[QN_VELO_LR_MULT] = call->control[QN_VELO_BANKS * call->padded + k];
  mixed[QN_VELO_SIZE] = qn_velo_size(item->param_mean);
  for (uint64_t j = 0; j < UNITS; j++) call->hidden[k * UNITS + j] = call->unit[j * call->padded + k];
}

void QN_CPU_NAME(velo_rnn)(const qn_velo_call *call, qn_velo_phase phase, uint64_t task)
{
  if (phase == QN_VELO_SUMS) sums(call, task);
  if (phase == QN_VELO_FEATURES) qn_velo_features(call, (size_t)task);
  if (phase == QN_VELO_MIX) mix(call, task);
  if (phase == QN_VELO_LSTM) lstm(call, task);
  if (phase == QN_VELO_HEADS) heads(call, task);
  if (phase == QN_VELO_BANKS_OF) mix_banks(call, task);
}
#endif
