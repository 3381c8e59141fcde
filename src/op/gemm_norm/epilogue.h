/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue.h - y = epilogue(z): biases, clamp, activation and norm, in one pass over the sums z in memory. z may be
 * slices of k; they are added in their order. A thread takes QN_GEMM_PACK neighbouring columns at once, a pack: 4 where
 * rows of z are aligned for that, else 1. QN_GEMM_LOOSE: vectors and rows of y are not, and the last pack of a row may
 * have fewer. A team of QN_GEMM_TEAM threads takes a group of a row: 1 to 32 lanes of a simdgroup, or the block; or a
 * thread takes QN_GEMM_GROUPS neighbouring groups, which make up whole packs. A thread keeps its QN_GEMM_ITEMS packs in
 * registers between the passes of the norm. QN_GEMM_ITEMS is 0 where registers do not hold them; each pass then reads
 * and computes the group again. z may be y's own memory: the thread that writes an element reads it before.
 *
 * Loads go before their uses, and none is behind a condition: compilers let such a load wait for the one before it. The
 * vectors are the caller's and do not change, so they are read before the kernel that writes z has ended. */
#ifndef QN_OP_GEMM_NORM_EPILOGUE_H
#define QN_OP_GEMM_NORM_EPILOGUE_H
#include "base/collective.h"
#include "base/dtype.h"
#include "op/gemm_norm/args.h"
#include "op/gemm_norm/gemm_norm.math.h"

enum { TEAM = QN_GEMM_TEAM, ITEMS = QN_GEMM_ITEMS, GROUPS = QN_GEMM_GROUPS };
enum { FLAGS = QN_GEMM_FLAGS, PACK = QN_GEMM_PACK };
constexpr bool LOOSE = QN_GEMM_LOOSE && PACK > 1;
/* Rows of y that are not aligned are stored by way of shared memory, where a simdgroup has neighbouring packs of one.
 */
constexpr bool STAGED = LOOSE && TEAM >= 32 && ITEMS > 0;
constexpr int SCRATCH = 32 + (STAGED ? QN_THREADS * PACK : 0); /* of shared memory, for sums and for packs */

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

/* The biases are added already. */
QN_FN void activate(pack &p, const qn_gemm_z_args &a)
{
  constexpr qn_u32 rest = FLAGS & ~(QN_GEMM_BIAS | QN_GEMM_BIAS2);
  QN_UNROLL
  for (int k = 0; k < PACK; k++) p.v[k] = qn_gemm_element(rest, p.v[k], 0.0f, 0.0f, a.of.lo, a.of.hi);
}

/* The pack's first `there` columns. */
QN_FN void store(const qn_gemm_z_args &a, qn_i64 row, qn_i64 column, int there, const pack &p)
{
  const qn_i64 at = row * a.of.n + column;
  if (LOOSE || PACK == 1) {
    QN_UNROLL
    for (int k = 0; k < PACK; k++)
      if (k < there) qn_gemm_store(a.of.y, at + k, p.v[k]);
    return;
  }
  qn_u32 word[4] = {};
  QN_UNROLL
  for (int k = 0; k < PACK; k++) word[k] = QN_GEMM_SHORT ? qn_float_bf16(p.v[k]) : qn_float_bits(p.v[k]);
  if (QN_GEMM_SHORT)
    qn_store8(static_cast<qn_u16 *>(a.of.y) + at, {{word[0] | word[1] << 16, word[2] | word[3] << 16}});
  else
    qn_store16(static_cast<float *>(a.of.y) + at, {{word[0], word[1], word[2], word[3]}});
}

/* Over the team; everybody gets it. */
QN_FN float team_sum(float x, float *scratch)
{
  if (TEAM > 32) return qn_group_sum(x, scratch);
  for (qn_u32 apart = TEAM / 2; TEAM > 1 && apart; apart /= 2) x += qn_shuffle_xor(x, apart);
  return x;
}

/* A thread's place in a group of a row: N packs, or one pack after the other where registers do not hold the group. A
 * place behind the group's end reads the last pack, a team without a group reads the first group, and neither stores:
 * the sums of the norm need every lane. */
enum { N = ITEMS ? ITEMS : 1, SURE = ITEMS * 2 / 3 /* packs that every thread has, as plan.c counts them */ };
#if QN_GEMM_ITEMS
typedef int offset; /* takes fewer registers */
#else
typedef qn_i64 offset;
#endif

struct seat {
  qn_i64 row, first; /* column */
  offset from, columns;
  bool there;
};

/* How many columns of the thread's i-th pack are of the group. */
QN_FN int there(const seat &s, int i)
{
  const offset left = s.columns - s.from - i * TEAM * PACK;
  return left < PACK ? static_cast<int>(left) : PACK;
}

QN_FN bool in(const seat &s, int i) { return s.there && (i < SURE || s.from + i * TEAM * PACK < s.columns); }

QN_FN qn_i64 column(const seat &s, int i)
{
  const offset at = s.from + i * TEAM * PACK;
  return s.first + (i < SURE || at < s.columns ? at : (s.columns - 1) / PACK * PACK);
}

QN_FN seat seat_of(const qn_gemm_z_args &a, qn_u64 thread)
{
  const qn_i64 columns = GROUPS * a.of.columns;
  const qn_u64 groups = divided(static_cast<qn_u64>(a.of.n), static_cast<qn_u64>(columns));
  const bool there = thread / TEAM < groups * static_cast<qn_u64>(a.of.m);
  const qn_u64 team = there ? thread / TEAM : 0, row = divided(team, groups);
  return {static_cast<qn_i64>(row), static_cast<qn_i64>(team - row * groups) * columns,
          static_cast<offset>(thread % TEAM) * PACK, static_cast<offset>(columns), there};
}

/* Vectors of the epilogue are fetched for so many packs at once: all, where registers hold them, before the sums. */
constexpr bool EARLY = N * PACK <= (QN_THREADS > 256 ? 4 : 8);
enum { SPAN = EARLY ? N : N > 16 ? 4 : (N + 3) / 4 };

template <int n> QN_FN void fetch(pack (&to)[n], const float *from, const seat &s, int first)
{
  QN_UNROLL
  for (int i = 0; i < n; i++) to[i] = load(from + column(s, first + i));
}

/* The same of a vector, which ends with y's columns. */
template <int n>
QN_FN void fetch_vector(pack (&to)[n], const float *from, const qn_gemm_z_args &a, const seat &s, int first)
{
  if (!LOOSE) return fetch(to, from, s, first);
  QN_UNROLL
  for (int i = 0; i < n; i++) QN_UNROLL
  for (int k = 0; k < PACK; k++) {
    const qn_i64 at = column(s, first + i) + k;
    to[i].v[k] = from[at < a.of.n ? at : a.of.n - 1];
  }
}

/* Two vectors, of which FLAGS has those bits. */
struct vectors {
  pack first[SPAN], second[SPAN];
};

QN_FN void fetch_biases(vectors &v, const qn_gemm_z_args &a, const seat &s, int first)
{
  if (FLAGS & QN_GEMM_BIAS) fetch_vector(v.first, a.of.bias, a, s, first);
  if (FLAGS & QN_GEMM_BIAS2) fetch_vector(v.second, a.of.bias2, a, s, first);
}

QN_FN void fetch_factors(vectors &v, const qn_gemm_z_args &a, const seat &s, int first)
{
  if (FLAGS & QN_GEMM_GAMMA) fetch_vector(v.first, a.of.gamma, a, s, first);
  if (FLAGS & QN_GEMM_BETA) fetch_vector(v.second, a.of.beta, a, s, first);
}

/* The next slices of k, in their order: their reads are under way together. */
template <int n> QN_FN void add_slices(pack (&v)[N], const float *z, const qn_gemm_z_args &a, const seat &s)
{
  pack more[n][N];
  QN_UNROLL
  for (int k = 0; k < n; k++) fetch(more[k], z + k * a.slice, s, 0);
  QN_UNROLL
  for (int k = 0; k < n; k++) QN_UNROLL
  for (int i = 0; i < N; i++) add(v[i], more[k][i]);
}

QN_FN void fetch_sums(pack (&v)[N], const qn_gemm_z_args &a, const seat &s)
{
  const float *const z = a.z + s.row * a.pitch;
  qn_i64 slice = 1;
  fetch(v, z, s, 0);
  if (EARLY) {
    QN_ROLLED
    for (; slice + 4 <= a.slices; slice += 4) add_slices<4>(v, z + slice * a.slice, a, s);
  }
  QN_ROLLED
  for (; slice < a.slices; slice++) add_slices<1>(v, z + slice * a.slice, a, s);
  QN_UNROLL
  for (int i = 0; i < N; i++) QN_UNROLL
  for (int k = 0; k < PACK; k++)
    if (LOOSE && i >= SURE && k >= there(s, i)) v[i].v[k] = 0.0f; /* behind the row nothing was written */
}

/* Adds the biases to the sums, and applies clamp and activation. */
QN_FN void finish(pack (&v)[N], const qn_gemm_z_args &a, const seat &s, vectors &biases)
{
  QN_UNROLL
  for (int first = 0; first < N; first += SPAN) {
    if (!EARLY) fetch_biases(biases, a, s, first);
    QN_UNROLL
    for (int i = 0; i < SPAN; i++)
      if (first + i < N) {
        if (FLAGS & QN_GEMM_BIAS) add(v[first + i], biases.first[i]);
        if (FLAGS & QN_GEMM_BIAS2) add(v[first + i], biases.second[i]);
        activate(v[first + i], a);
      }
  }
}

/* Over a thread's g-th group, or over its team. */
enum { EACH_GROUP = N * PACK / GROUPS };
template <class Of> QN_FN float sum_of(const pack (&v)[N], const seat &s, int g, float *scratch, Of of)
{
  float x = 0.0f;
  QN_UNROLL
  for (int i = 0; i < N; i++) QN_UNROLL
  for (int k = 0; k < PACK; k++) {
    const bool counts = GROUPS > 1 ? (i * PACK + k) / EACH_GROUP == g : in(s, i);
    x = counts && (!LOOSE || i < SURE || k < there(s, i)) ? of(x, v[i].v[k]) : x;
  }
  return team_sum(x, scratch);
}

/* A simdgroup's packs, the i-th of each thread. */
QN_FN void store_staged(const qn_gemm_z_args &a, const seat &s, int i, const pack &p, float *scratch)
{
  const int lane = static_cast<int>(qn_lane());
  float *const packs = scratch + 32 + qn_simd() * 32 * PACK;
  const offset first = s.from + (i * TEAM - lane) * PACK + lane;
  QN_UNROLL
  for (int k = 0; k < PACK; k++) packs[lane * PACK + k] = p.v[k];
  qn_simd_barrier();
  QN_UNROLL
  for (int k = 0; k < PACK; k++)
    if (s.there && first + 32 * k < s.columns)
      qn_gemm_store(a.of.y, s.row * a.of.n + s.first + first + 32 * k, packs[32 * k + lane]);
  qn_simd_barrier();
}

/* Groups that registers hold. */
QN_FN void group(const qn_gemm_z_args &a, const seat &s, float *scratch)
{
  vectors biases, factors;
  pack v[N];
  float mean, means[GROUPS], scales[GROUPS];
  if (EARLY) fetch_biases(biases, a, s, 0), fetch_factors(factors, a, s, 0);
  qn_await_kernel();
  fetch_sums(v, a, s);
  finish(v, a, s, biases);
  const auto sum = [](float x, float y) { return x + y; };
  const auto squares = [&](float x, float y) { return qn_fma(y - mean, y - mean, x); };
  QN_UNROLL
  for (int g = 0; g < GROUPS; g++) {
    scales[g] = qn_gemm_passes(
        FLAGS, static_cast<float>(a.of.columns), a.of.eps, mean, [&] { return sum_of(v, s, g, scratch, sum); },
        [&] { return sum_of(v, s, g, scratch, squares); });
    means[g] = mean;
  }
  QN_UNROLL
  for (int first = 0; first < N; first += SPAN) {
    if (!EARLY) fetch_factors(factors, a, s, first);
    QN_UNROLL
    for (int i = 0; i < SPAN; i++) {
      if (first + i >= N) continue;
      pack to;
      QN_UNROLL
      for (int k = 0; k < PACK; k++) {
        const int g = GROUPS > 1 ? ((first + i) * PACK + k) / EACH_GROUP : 0;
        to.v[k] = qn_gemm_normed(FLAGS, v[first + i].v[k], means[g], scales[g], factors.first[i].v[k],
                                 factors.second[i].v[k]);
      }
      if (STAGED)
        store_staged(a, s, first + i, to, scratch);
      else if (in(s, first + i))
        store(a, s.row, column(s, first + i), there(s, first + i), to);
    }
  }
}

/* A group that registers do not hold: each pass computes its elements again, pack by pack. */
template <class Visit> QN_FN void each_pack(const qn_gemm_z_args &a, seat s, Visit visit)
{
  for (; in(s, 0); s.from += TEAM * PACK) {
    vectors biases;
    pack v[N];
    fetch_biases(biases, a, s, 0);
    fetch_sums(v, a, s);
    finish(v, a, s, biases);
    visit(s, v[0]);
  }
}

template <class Of> QN_FN float wide_sum(const qn_gemm_z_args &a, const seat &s, float *scratch, Of of)
{
  float x = 0.0f;
  each_pack(a, s, [&](const seat &here, const pack &p) {
    QN_UNROLL
    for (int k = 0; k < PACK; k++) x = !LOOSE || k < there(here, 0) ? of(x, p.v[k]) : x;
  });
  return team_sum(x, scratch);
}

QN_FN void wide_group(const qn_gemm_z_args &a, const seat &s, float *scratch)
{
  float mean;
  const auto sum = [](float x, float y) { return x + y; };
  const auto squares = [&](float x, float y) { return qn_fma(y - mean, y - mean, x); };
  qn_await_kernel();
  const float scale = qn_gemm_passes(
      FLAGS, static_cast<float>(a.of.columns), a.of.eps, mean, [&] { return wide_sum(a, s, scratch, sum); },
      [&] { return wide_sum(a, s, scratch, squares); });
  each_pack(a, s, [&](const seat &here, const pack &p) {
    vectors factors;
    fetch_factors(factors, a, here, 0);
    pack to;
    QN_UNROLL
    for (int k = 0; k < PACK; k++)
      to.v[k] = qn_gemm_normed(FLAGS, p.v[k], mean, scale, factors.first[0].v[k], factors.second[0].v[k]);
    store(a, here.row, column(here, 0), there(here, 0), to);
  });
}

/* The work of thread `thread` of all: a pack of columns without a norm, else its part of a group. All lanes call it,
 * and all threads where a team is the block. */
QN_FN void finish_place(const qn_gemm_z_args &a, qn_u64 thread, float *scratch)
{
  if (qn_gemm_norm_of(FLAGS) != QN_GEMM_NO_NORM) {
    const seat s = seat_of(a, thread);
    if (ITEMS)
      group(a, s, scratch);
    else
      wide_group(a, s, scratch);
    return;
  }
  const qn_u64 packs = (static_cast<qn_u64>(a.of.n) + PACK - 1) / PACK, row = divided(thread, packs);
  if (row >= static_cast<qn_u64>(a.of.m)) return;
  const qn_i64 at = static_cast<qn_i64>(thread - row * packs) * PACK;
  const qn_i64 left = a.of.n - at;
  const seat s = {static_cast<qn_i64>(row), at, 0, static_cast<offset>(left < PACK ? left : PACK), true};
  vectors biases;
  pack v[N];
  fetch_biases(biases, a, s, 0);
  qn_await_kernel();
  fetch_sums(v, a, s);
  finish(v, a, s, biases);
  store(a, s.row, at, there(s, 0), v[0]);
}
#endif
