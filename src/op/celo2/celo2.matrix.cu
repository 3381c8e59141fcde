/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.matrix.cu - of one large matrix on a device, what stands between the products of op/gemm_norm that make the
 * network's outputs orthogonal, and the move of the parameter. Sums over all of it are in double: celo2_squares leaves
 * some a block, and each block that needs the sum adds them in the same order. */
#define QN_THREADS 256
#include "base/collective.h"
#include "op/celo2/celo2.math.h"
#include "op/celo2/device.h"
#include "op/celo2/scalar.math.h"

QN_GROUP_KERNEL(celo2_squares, qn_celo2_matrix_args, a)
{
  QN_SHARED(double, scratch, 32);
  const qn_u64 n = a.rows * a.columns, step = static_cast<qn_u64>(a.partials) * QN_THREADS;
  double sum = 0;
  for (qn_u64 i = qn_block() * QN_THREADS + qn_thread(); i < n; i += step)
    sum += static_cast<double>(a.own[i]) * static_cast<double>(a.own[i]);
  sum = qn_group_sum(sum, scratch);
  if (qn_thread() == 0) a.sums[qn_block()] = sum;
}

QN_FN double sum_of(const qn_celo2_matrix_args &a, double *scratch, qn_u32 thread)
{
  double sum = 0;
  for (qn_u32 k = thread; k < a.partials; k += QN_THREADS) sum += a.sums[k];
  return qn_group_sum(sum, scratch);
}

/* The block's tile of `from`, (rows, columns), becomes what `make` says of each place, and its transpose goes `to`: by
 * way of shared memory, whose rows are a place longer, so that lanes are side by side in both and in banks of their
 * own.
 */
template <class Make>
QN_FN void turn_tile(qn_u64 block, float *from, float *to, qn_u64 rows, qn_u64 columns, float *tile, Make make)
{
  constexpr qn_u32 SIDE = QN_CELO2_TILE;
  const qn_u64 across = columns / SIDE + (columns % SIDE != 0);
  const qn_u64 row = block / across * SIDE, column = block % across * SIDE;
  const qn_u32 lane = qn_lane(), first = qn_simd();
  for (qn_u32 k = first; k < SIDE && row + k < rows; k += QN_THREADS / 32) {
    const qn_u64 i = (row + k) * columns + column + lane;
    if (column + lane >= columns) break;
    from[i] = tile[k * (SIDE + 1) + lane] = make(i);
  }
  qn_barrier();
  for (qn_u32 k = first; k < SIDE && column + k < columns; k += QN_THREADS / 32)
    if (row + lane < rows) to[(column + k) * rows + row + lane] = tile[lane * (SIDE + 1) + k];
}

/* Scales the outputs, and writes their transpose. */
QN_GROUP_KERNEL(celo2_into_ball, qn_celo2_matrix_args, a)
{
  QN_SHARED(double, scratch, 32);
  QN_SHARED(float, tile, QN_CELO2_TILE *(QN_CELO2_TILE + 1));
  const float scale = qn_celo2_into_ball(sum_of(a, scratch, qn_thread()));
  turn_tile(qn_block(), a.own, a.turned, a.rows, a.columns, tile, [&](qn_u64 i) { return a.own[i] * scale; });
}

QN_GROUP_KERNEL(celo2_polynomial, qn_celo2_matrix_args, a)
{
  const qn_u64 i = qn_block() * QN_THREADS + qn_thread();
  if (i < a.width * a.width) a.of_a[i] = QN_CELO2_SECOND * a.a[i] + QN_CELO2_THIRD * a.of_a[i];
}

QN_GROUP_KERNEL(celo2_next, qn_celo2_matrix_args, a)
{
  const bool tall = a.rows >= a.columns;
  float *const from = tall ? a.own : a.turned, *const to = tall ? a.turned : a.own;
  QN_SHARED(float, tile, QN_CELO2_TILE *(QN_CELO2_TILE + 1));
  turn_tile(qn_block(), from, to, a.length, a.width, tile,
            [&](qn_u64 i) { return QN_CELO2_FIRST * from[i] + a.product[i]; });
}

QN_GROUP_KERNEL(celo2_move, qn_celo2_matrix_args, a)
{
  QN_SHARED(double, scratch, 32);
  const qn_u64 n = a.rows * a.columns, i = qn_block() * QN_THREADS + qn_thread();
  const float scale = static_cast<float>(a.rms_mult * qn_celo2_scale(sum_of(a, scratch, qn_thread()), n));
  if (i < n) a.p[i] = qn_lopt_moved_jointly_by(a.p[i], a.own[i] * scale, a.scalars->lr, a.scalars->decay);
}
