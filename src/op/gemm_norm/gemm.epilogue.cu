/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.epilogue.cu - y = epilogue(z): biases, clamp, activation and norm over a product that stands in memory, in one
 * pass. z may be slices of k, which are added in their order. Threads take QN_GEMM_PACK neighbouring columns at once: 4
 * where rows and vectors are aligned for that, else 1. A team of QN_GEMM_TEAM threads takes a group of a row: 1 to 32
 * lanes of a simdgroup, or the block. What a thread has of a group, QN_GEMM_ITEMS packs, it holds in registers between
 * the passes of the norm; 0: the group is too wide for that, and is read and computed once more for each. z may be y's
 * own memory: an element is read by the thread that writes it, before it does. */
#define QN_THREADS 256
#if QN_GEMM_FLAGS >> 4 & 3 /* a norm, which keeps a group in registers; the compiler itself would spill a few */
#define QN_BLOCKS 2
#else
#define QN_BLOCKS 4
#endif
#include "base/collective.h"
#include "base/dtype.h"
#include "op/gemm_norm/args.h"
#include "op/gemm_norm/gemm_norm.math.h"

enum { TEAM = QN_GEMM_TEAM, ITEMS = QN_GEMM_ITEMS, FLAGS = QN_GEMM_FLAGS, PACK = QN_GEMM_PACK };

struct pack {
  float v[PACK];
};

/* A division of 64 bits takes longer than all the rest. */
QN_FN qn_u64 divided(qn_u64 a, qn_u64 b)
{
  return a < 1ull << 32 && b < 1ull << 32 ? static_cast<qn_u32>(a) / static_cast<qn_u32>(b) : a / b;
}

QN_FN pack load(const float *from)
{
  pack to;
  if (PACK == 4) {
    const qn_16bytes v = qn_load16(from);
    QN_UNROLL
    for (int k = 0; k < PACK; k++) to.v[k] = qn_bits_float(v.word[k]);
  } else {
    to.v[0] = *from;
  }
  return to;
}

QN_FN void add(pack &to, const pack &more)
{
  QN_UNROLL
  for (int k = 0; k < PACK; k++) to.v[k] += more.v[k];
}

/* Of sums, up to the norm. */
QN_FN void finish(pack &p, const qn_gemm_z_args &a, qn_i64 column)
{
  pack bias = {}, bias2 = {};
  if (FLAGS & QN_GEMM_BIAS) bias = load(a.of.bias + column);
  if (FLAGS & QN_GEMM_BIAS2) bias2 = load(a.of.bias2 + column);
  QN_UNROLL
  for (int k = 0; k < PACK; k++) p.v[k] = qn_gemm_element(FLAGS, p.v[k], bias.v[k], bias2.v[k], a.of.lo, a.of.hi);
}

QN_FN pack value(const qn_gemm_z_args &a, qn_i64 row, qn_i64 column)
{
  const float *z = a.z + row * a.pitch + column;
  pack p = load(z);
  for (qn_i64 s = 1; s < a.slices; s++) add(p, load(z + s * a.slice));
  finish(p, a, column);
  return p;
}

QN_FN void store(const qn_gemm_z_args &a, qn_i64 row, qn_i64 column, pack p, float mean, float scale)
{
  const qn_i64 at = row * a.of.n + column;
  if (qn_gemm_norm_of(FLAGS) != QN_GEMM_NO_NORM) {
    pack gamma = {}, beta = {};
    if (FLAGS & QN_GEMM_GAMMA) gamma = load(a.of.gamma + column);
    if (FLAGS & QN_GEMM_BETA) beta = load(a.of.beta + column);
    QN_UNROLL
    for (int k = 0; k < PACK; k++) p.v[k] = qn_gemm_normed(FLAGS, p.v[k], mean, scale, gamma.v[k], beta.v[k]);
  }
#if QN_GEMM_SHORT
  qn_u32 half[4] = {};
  QN_UNROLL
  for (int k = 0; k < PACK; k++) half[k] = qn_narrow_bf16(p.v[k]);
  if (PACK == 4)
    qn_store8(static_cast<qn_u16 *>(a.of.y) + at, {{half[0] | half[1] << 16, half[2] | half[3] << 16}});
  else
    static_cast<qn_u16 *>(a.of.y)[at] = static_cast<qn_u16>(half[0]);
#else
  qn_u32 bits[4] = {};
  QN_UNROLL
  for (int k = 0; k < PACK; k++) bits[k] = qn_float_bits(p.v[k]);
  if (PACK == 4)
    qn_store16(static_cast<float *>(a.of.y) + at, {{bits[0], bits[1], bits[2], bits[3]}});
  else
    static_cast<float *>(a.of.y)[at] = p.v[0];
#endif
}

/* Over the team; everybody gets it. */
QN_FN float team_sum(float x, float *scratch)
{
  if (TEAM > 32) return qn_group_sum(x, scratch);
  for (qn_u32 apart = TEAM / 2; apart; apart /= 2) x += qn_shuffle_xor(x, apart);
  return x;
}

/* Visits the packs of a team's thread `lane` in the group of `columns` from `first` on: the pack's number, its column.
 */
template <class Visit> QN_FN void each(qn_i64 lane, qn_i64 first, qn_i64 columns, Visit visit)
{
  if (ITEMS) {
    const int from = static_cast<int>(lane) * PACK, few = static_cast<int>(columns);
    first += from;
    QN_UNROLL
    for (int i = 0; i < ITEMS; i++)
      if (from + i * TEAM * PACK < few) visit(i, first + i * TEAM * PACK);
  } else {
    for (qn_i64 j = lane * PACK; j < columns; j += TEAM * PACK) visit(0, first + j);
  }
}

/* Without a norm: a thread a pack. */
QN_FN void elements(const qn_gemm_z_args &a, qn_u64 at)
{
  const qn_u64 packs = static_cast<qn_u64>(a.of.n) / PACK, row = divided(at, packs);
  if (row >= static_cast<qn_u64>(a.of.m)) return;
  const qn_i64 column = static_cast<qn_i64>(at - row * packs) * PACK;
  store(a, static_cast<qn_i64>(row), column, value(a, static_cast<qn_i64>(row), column), 0.0f, 1.0f);
}

QN_GROUP_KERNEL(gemm_epilogue, qn_gemm_z_args, a)
{
  QN_SHARED(float, scratch, 32);
  qn_await_kernel();
  const qn_u64 thread = qn_block() * qn_block_threads() + qn_thread(), team = thread / TEAM;
  if (qn_gemm_norm_of(FLAGS) == QN_GEMM_NO_NORM) {
    elements(a, thread);
    return;
  }
  const qn_u64 groups = static_cast<qn_u64>(a.of.n / a.of.columns), all = groups * static_cast<qn_u64>(a.of.m);
  const qn_i64 columns = team < all ? a.of.columns : 0; /* nobody leaves: the sums need every lane */
  const qn_i64 row = static_cast<qn_i64>(divided(team, groups));
  const qn_i64 first = static_cast<qn_i64>(team - static_cast<qn_u64>(row) * groups) * a.of.columns;
  const qn_i64 lane = qn_thread() % TEAM;
  pack v[ITEMS ? ITEMS : 1] = {}; /* a register without a column is 0 */
  float mean;
  const auto element = [&](int i, qn_i64 j) { return ITEMS ? v[i] : value(a, row, j); };
  const auto sum = [&] {
    float x = 0.0f;
    each(lane, first, columns, [&](int i, qn_i64 j) {
      const pack p = element(i, j);
      QN_UNROLL
      for (int k = 0; k < PACK; k++) x += p.v[k];
    });
    return team_sum(x, scratch);
  };
  const auto squares = [&] {
    float x = 0.0f;
    each(lane, first, columns, [&](int i, qn_i64 j) {
      const pack p = element(i, j);
      QN_UNROLL
      for (int k = 0; k < PACK; k++) x = qn_fma(p.v[k] - mean, p.v[k] - mean, x);
    });
    return team_sum(x, scratch);
  };
  if (ITEMS) { /* slice by slice, so that the reads of one are under way together */
    const float *z = a.z + row * a.pitch;
    for (qn_i64 s = 0; s < a.slices; s++, z += a.slice)
      each(lane, first, columns, [&](int i, qn_i64 j) { add(v[i], load(z + j)); });
    each(lane, first, columns, [&](int i, qn_i64 j) { finish(v[i], a, j); });
  }
  const float scale = qn_gemm_passes(FLAGS, static_cast<float>(a.of.columns), a.of.eps, mean, sum, squares);
  each(lane, first, columns, [&](int i, qn_i64 j) { store(a, row, j, element(i, j), mean, scale); });
}
