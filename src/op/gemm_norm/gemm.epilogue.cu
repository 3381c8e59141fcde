/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.epilogue.cu - y = epilogue(z): biases, clamp, activation and norm over a product that stands in memory, in one
 * pass. A team of QN_GEMM_TEAM threads takes a group of a row: 1 to 32 lanes of a simdgroup for groups of up to 256
 * columns, else the block. What a thread has of a group, QN_GEMM_ITEMS elements, it holds in registers between the
 * passes of the norm; 0: the group is too wide for that, and is read and computed once more for each. z may be y's own
 * memory: an element is read by the thread that writes it, before it does. */
#define QN_THREADS 256
#include "base/collective.h"
#include "base/dtype.h"
#include "op/gemm_norm/args.h"
#include "op/gemm_norm/gemm_norm.math.h"

enum { TEAM = QN_GEMM_TEAM, ITEMS = QN_GEMM_ITEMS, FLAGS = QN_GEMM_FLAGS };

QN_FN float value(const qn_gemm_z_args &a, qn_i64 row, qn_i64 column)
{
  const float bias = FLAGS & QN_GEMM_BIAS ? a.of.bias[column] : 0.0f;
  const float bias2 = FLAGS & QN_GEMM_BIAS2 ? a.of.bias2[column] : 0.0f;
  return qn_gemm_element(FLAGS, a.z[row * a.of.n + column], bias, bias2, a.of.lo, a.of.hi);
}

QN_FN void store(const qn_gemm_z_args &a, qn_i64 row, qn_i64 column, float v, float mean, float scale)
{
  if (qn_gemm_norm_of(FLAGS) != QN_GEMM_NO_NORM) {
    const float gamma = FLAGS & QN_GEMM_GAMMA ? a.of.gamma[column] : 1.0f;
    const float beta = FLAGS & QN_GEMM_BETA ? a.of.beta[column] : 0.0f;
    v = qn_gemm_normed(FLAGS, v, mean, scale, gamma, beta);
  }
#if QN_GEMM_SHORT
  static_cast<qn_u16 *>(a.of.y)[row * a.of.n + column] = static_cast<qn_u16>(qn_narrow_bf16(v));
#else
  static_cast<float *>(a.of.y)[row * a.of.n + column] = v;
#endif
}

/* Over the team; everybody gets it. */
QN_FN float team_sum(float x, float *scratch)
{
  if (TEAM > 32) return qn_group_sum(x, scratch);
  for (qn_u32 apart = TEAM / 2; apart; apart /= 2) x += qn_shuffle_xor(x, apart);
  return x;
}

/* What a team's thread `lane` has of the group of `columns` from `first` on: which of its registers, and which column.
 */
template <class Visit> QN_FN void each(qn_i64 lane, qn_i64 first, qn_i64 columns, Visit visit)
{
  const qn_i64 begin = first + lane;
  if (ITEMS) {
    QN_UNROLL
    for (int i = 0; i < ITEMS; i++)
      if (lane + i * TEAM < columns) visit(i, begin + i * TEAM);
  } else {
    for (qn_i64 j = begin; j < first + columns; j += TEAM) visit(0, j);
  }
}

QN_GROUP_KERNEL(gemm_epilogue, qn_gemm_z_args, a)
{
  QN_SHARED(float, scratch, 32);
  const qn_u64 team = (qn_block() * qn_block_threads() + qn_thread()) / TEAM;
  const qn_u64 groups = static_cast<qn_u64>(a.of.n / a.of.columns), all = groups * static_cast<qn_u64>(a.of.m);
  const qn_i64 columns = team < all ? a.of.columns : 0; /* nobody leaves: the sums need every lane */
  const qn_i64 row = static_cast<qn_i64>(team / groups), first = static_cast<qn_i64>(team % groups) * a.of.columns;
  const qn_i64 lane = qn_thread() % TEAM,
               summed = ITEMS ? ITEMS * TEAM : columns; /* a register without a column is 0 */
  float v[ITEMS ? ITEMS : 1] = {}, mean;
  const auto element = [&](int i, qn_i64 j) { return ITEMS ? v[i] : value(a, row, j); };
  const auto sum = [&] {
    float x = 0.0f;
    each(lane, first, summed, [&](int i, qn_i64 j) { x += element(i, j); });
    return team_sum(x, scratch);
  };
  const auto squares = [&] {
    float x = 0.0f;
    each(lane, first, columns, [&](int i, qn_i64 j) {
      const float c = element(i, j) - mean;
      x = qn_fma(c, c, x);
    });
    return team_sum(x, scratch);
  };
  if (ITEMS) each(lane, first, columns, [&](int i, qn_i64 j) { v[i] = value(a, row, j); });
  const float scale = qn_gemm_passes(FLAGS, static_cast<float>(a.of.columns), a.of.eps, mean, sum, squares);
  each(lane, first, columns, [&](int i, qn_i64 j) { store(a, row, j, element(i, j), mean, scale); });
}

/* Without a norm: a thread an element. */
QN_KERNEL(gemm_elements, qn_gemm_z_args, a)
{
  const qn_u64 at = qn_block() * qn_block_threads() + qn_thread(), n = static_cast<qn_u64>(a.of.n);
  if (at >= static_cast<qn_u64>(a.of.m) * n) return;
  const qn_i64 row = static_cast<qn_i64>(at / n), column = static_cast<qn_i64>(at % n);
  store(a, row, column, value(a, row, column), 0.0f, 1.0f);
}
