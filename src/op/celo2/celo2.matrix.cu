/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.matrix.cu - of large matrices of one shape on a device, what stands between the products of op/gemm_norm that
 * make the network's outputs orthogonal, and the moves of the parameters. Each kernel goes over all matrices of a
 * batch, and is there for batches of f32 and of bf16. Sums over a matrix are in double: celo2_squares leaves some a
 * block, and each block that needs the sum adds them in the same order. */
#define QN_THREADS 256
#include "base/collective.h"
#include "op/celo2/celo2.math.h"
#include "op/celo2/device.h"
#include "op/celo2/scalar.math.h"

constexpr qn_u32 SIDE = QN_CELO2_TILE;
typedef qn_celo2_batch_args batch;

/* ---- numbers side by side, from memory that is f32 or bf16; `whole`: all are there, and aligned as one ---- */

QN_FN float one(const float *from) { return *from; }
QN_FN float one(const qn_u16 *from) { return qn_bf16_float(*from); }
QN_FN void put_one(float *to, float x) { *to = x; }
QN_FN void put_one(qn_u16 *to, float x) { *to = qn_float_bf16(x); }

QN_FN void read_whole(float (&v)[4], const float *from)
{
  const qn_16bytes w = qn_load16(from);
  QN_UNROLL
  for (int k = 0; k < 4; k++) v[k] = qn_bits_float(w.word[k]);
}

QN_FN void read_whole(float (&v)[4], const qn_u16 *from)
{
  const qn_8bytes w = qn_load8(from);
  QN_UNROLL
  for (int k = 0; k < 4; k++) v[k] = qn_bf16_float(static_cast<qn_u16>(w.word[k / 2] >> 16 * (k % 2)));
}

QN_FN void write_whole(float *to, const float (&v)[4])
{
  qn_store16(to, {{qn_float_bits(v[0]), qn_float_bits(v[1]), qn_float_bits(v[2]), qn_float_bits(v[3])}});
}

QN_FN void write_whole(qn_u16 *to, const float (&v)[4])
{
  qn_store8(to, {{qn_join_halves(qn_float_bf16(v[0]), qn_float_bf16(v[1])),
                  qn_join_halves(qn_float_bf16(v[2]), qn_float_bf16(v[3]))}});
}

template <class T> QN_FN void read_four(float (&v)[4], const T *from, qn_u64 n, bool whole)
{
  if (whole) {
    read_whole(v, from);
    return;
  }
  QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++) v[k] = k < n ? one(from + k) : 0.0f;
}

template <class T> QN_FN void write_four(T *to, const float (&v)[4], qn_u64 n, bool whole)
{
  if (whole) {
    write_whole(to, v);
    return;
  }
  QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++)
    if (k < n) put_one(to + k, v[k]);
}

/* A thread's matrix of the batch, its block among the blocks of that, and its number in the block. */
struct place {
  qn_u64 matrix, block;
  qn_u32 thread;
};

QN_FN qn_u64 size_of(const batch &a) { return a.length * a.width; }

template <class T> QN_FN T *matrix_of(void *all, const batch &a, const place &at)
{
  return static_cast<T *>(all) + at.matrix * size_of(a);
}

template <class T> QN_FN T *square_of(void *all, const batch &a, const place &at)
{
  return static_cast<T *>(all) + at.matrix * a.width * a.width;
}

/* ---- sums ---- */

template <class T> QN_FN void add_squares(const batch &a, const place &at, const T *from, double *scratch)
{
  const qn_u64 n = size_of(a), step = static_cast<qn_u64>(a.partials) * QN_THREADS * 4;
  double sum = 0;
  for (qn_u64 i = (at.block * QN_THREADS + at.thread) * QN_CELO2_FOUR; i < n; i += step) {
    float v[4];
    read_four(v, from + i, n - i, n % 4 == 0);
    QN_UNROLL
    for (int k = 0; k < 4; k++) sum += static_cast<double>(v[k]) * static_cast<double>(v[k]);
  }
  sum = qn_group_sum(sum, scratch);
  if (at.thread == 0) a.sums[at.matrix * a.partials + at.block] = sum;
}

QN_FN double squares_of(const batch &a, const place &at, double *scratch)
{
  double sum = 0;
  for (qn_u32 k = at.thread; k < a.partials; k += QN_THREADS) sum += a.sums[at.matrix * a.partials + k];
  return qn_group_sum(sum, scratch);
}

/* ---- tiles ---- */

constexpr qn_u32 QUADS = SIDE / 4, ROWS = QN_THREADS / QUADS, EACH = SIDE / ROWS;

/* A tile of a matrix (rows, columns), four numbers of a row a thread: `read` and then `keep` have those at a place of
 * the matrix, and `put` has four of a row of the transpose. The way between is shared memory, whose rows are a place
 * longer, so that lanes are in banks of their own when they read down it. */
template <class Read, class Keep, class Put>
QN_FN void turn_tile(const place &at, qn_u64 rows, qn_u64 columns, float *tile, Read read, Keep keep, Put put)
{
  const qn_u64 across = columns / SIDE + (columns % SIDE != 0);
  const qn_u64 row = at.block / across * SIDE, column = at.block % across * SIDE;
  const qn_u32 down = at.thread / QUADS, along = at.thread % QUADS * 4;
  float v[EACH][4];
  QN_UNROLL
  for (qn_u32 k = 0; k < EACH; k++) {
    const qn_u32 r = down + k * ROWS;
    if (row + r < rows && column + along < columns)
      read(v[k], (row + r) * columns + column + along, columns - column - along, columns % 4 == 0);
  }
  QN_UNROLL
  for (qn_u32 k = 0; k < EACH; k++) {
    const qn_u32 r = down + k * ROWS;
    if (row + r >= rows || column + along >= columns) continue;
    keep(v[k], (row + r) * columns + column + along, columns - column - along, columns % 4 == 0);
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++) tile[r * (SIDE + 1) + along + j] = v[k][j];
  }
  qn_barrier();
  QN_UNROLL
  for (qn_u32 k = 0; k < EACH; k++) {
    const qn_u32 c = down + k * ROWS;
    if (column + c >= columns || row + along >= rows) continue;
    QN_UNROLL
    for (qn_u32 j = 0; j < 4; j++) v[k][j] = tile[(along + j) * (SIDE + 1) + c];
    put(v[k], (column + c) * rows + row + along, rows - row - along, rows % 4 == 0);
  }
}

/* ---- the kernels ---- */

/* Of the network's outputs, or of what became of them. */
template <class T> QN_FN void squares(const batch &a, const place &at, double *scratch, float *)
{
  if (a.is_orthogonal)
    add_squares(a, at, matrix_of<T>(a.tall, a, at), scratch);
  else
    add_squares(a, at, a.of[at.matrix].own, scratch);
}

/* The outputs scaled, as they lie and as their transpose. */
template <class T> QN_FN void into_ball(const batch &a, const place &at, double *scratch, float *tile)
{
  const qn_celo2_matrix &m = a.of[at.matrix];
  const float scale = qn_celo2_into_ball(squares_of(a, at, scratch));
  T *const tall = matrix_of<T>(a.tall, a, at), *const wide = matrix_of<T>(a.wide, a, at);
  T *const alike = m.is_wide ? wide : tall, *const turned = m.is_wide ? tall : wide;
  turn_tile(
      at, m.is_wide ? a.width : a.length, m.is_wide ? a.length : a.width, tile,
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) { read_four(v, m.own + i, n, whole); },
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) {
        QN_UNROLL
        for (int k = 0; k < 4; k++) v[k] *= scale;
        write_four(alike + i, v, n, whole);
      },
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) { write_four(turned + i, v, n, whole); });
}

/* of_a, which is a a, becomes FIRST + SECOND a + THIRD a a, so that the next tall is tall of_a. */
template <class T> QN_FN void polynomial(const batch &a, const place &at, double *, float *)
{
  const qn_u64 n = a.width * a.width, i = (at.block * QN_THREADS + at.thread) * QN_CELO2_FOUR;
  if (i >= n) return;
  T *const to = square_of<T>(a.of_a, a, at) + i;
  float first[4], second[4];
  read_four(first, square_of<T>(a.a, a, at) + i, n - i, n % 4 == 0);
  read_four(second, to, n - i, n % 4 == 0);
  const qn_u64 diagonal = (i + a.width) / (a.width + 1) * (a.width + 1); /* the first place from i on */
  QN_UNROLL
  for (qn_u32 k = 0; k < 4; k++) {
    const bool on = i + k == diagonal || i + k == diagonal + a.width + 1;
    second[k] = (on ? QN_CELO2_FIRST : 0.0f) + (QN_CELO2_SECOND * first[k] + QN_CELO2_THIRD * second[k]);
  }
  write_four(to, second, n - i, n % 4 == 0);
}

template <class T> QN_FN void turn(const batch &a, const place &at, double *, float *tile)
{
  const T *const tall = matrix_of<T>(a.tall, a, at);
  T *const wide = matrix_of<T>(a.wide, a, at);
  turn_tile(
      at, a.length, a.width, tile,
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) { read_four(v, tall + i, n, whole); },
      [](float(&)[4], qn_u64, qn_u64, bool) {},
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) { write_four(wide + i, v, n, whole); });
}

/* Into the parameter, of tall, or of the outputs where they are not made orthogonal. */
template <class T> QN_FN void move(const batch &a, const place &at, double *scratch, float *tile)
{
  const qn_celo2_matrix &m = a.of[at.matrix];
  const T *const tall = matrix_of<T>(a.tall, a, at);
  const float scale = static_cast<float>(a.rms_mult * qn_celo2_scale(squares_of(a, at, scratch), size_of(a)));
  const float lr = m.scalars->lr, decay = m.scalars->decay;
  const bool alike = !a.is_orthogonal || !m.is_wide, aligned = reinterpret_cast<qn_u64>(m.p) % 16 == 0;
  const auto moved = [&](const float(&v)[4], qn_u64 i, qn_u64 n, bool whole) {
    float p[4];
    read_four(p, m.p + i, n, whole && aligned);
    QN_UNROLL
    for (int k = 0; k < 4; k++) p[k] = qn_lopt_moved_jointly_by(p[k], v[k] * scale, lr, decay);
    write_four(m.p + i, p, n, whole && aligned);
  };
  turn_tile(
      at, a.length, a.width, tile,
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) {
        if (a.is_orthogonal)
          read_four(v, tall + i, n, whole);
        else
          read_four(v, m.own + i, n, whole);
      },
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) {
        if (alike) moved(v, i, n, whole);
      },
      [&](float(&v)[4], qn_u64 i, qn_u64 n, bool whole) {
        if (!alike) moved(v, i, n, whole);
      });
}

#define OF_TYPE(name, suffix, type)                                                                                    \
  QN_GROUP_KERNEL(celo2_##name##suffix, qn_celo2_batch_args, a)                                                        \
  {                                                                                                                    \
    QN_SHARED(double, scratch, 32);                                                                                    \
    QN_SHARED(float, tile, SIDE *(SIDE + 1));                                                                          \
    name<type>(a, {qn_block() / a.blocks, qn_block() % a.blocks, qn_thread()}, scratch, tile);                         \
  }
#define KERNELS(name) OF_TYPE(name, , float) OF_TYPE(name, _bf16, qn_u16)
KERNELS(squares)
KERNELS(into_ball)
KERNELS(polynomial)
KERNELS(turn)
KERNELS(move)
