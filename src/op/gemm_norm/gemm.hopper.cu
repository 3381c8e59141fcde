/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.hopper.cu - y = epilogue(x w^T) for compute capability 9.0: a tile of y is 128 columns by QN_GEMM_TILE_M rows,
 * and it is the product turned around, w x^T, that is computed. So w is the operand that a warpgroup may take from its
 * registers: where the class makes other words of f32 (bf16, or two words of bf16, f16 or tf32), w comes as f32 and is
 * taken apart on its way from shared memory to the product, by the warps that multiply, while the products before are
 * under way. w is the large operand, is read once (for f16x3 once before, to scale its rows), and no copy of it is
 * made. x, which all blocks share, has been taken apart before (gemm.split.cu). tf32, which the tensor unit makes on
 * its way, and bf16 in memory are multiplied as they lie.
 *
 * A block has three warpgroups. One thread of the first has the tensor unit bring chunks of k, 128 bytes of each row or
 * twice that, into a ring of QN_GEMM_STAGES stages; the two others each multiply 64 rows of w by all of x's and keep
 * the sums, then do the epilogue. Blocks of a cluster have neighbouring tiles along n and share x: each brings a part
 * of it to all. Blocks stay and take tile after tile; m is the fastest, so that those that run together read the same
 * rows of w. */
#define QN_THREADS 384
#include "base/hopper.h"
#include "base/matrix.h"
#include "op/gemm_norm/gemm_norm.math.h"
#include "op/gemm_norm/hopper.h"
#include "op/gemm_norm/scale.h"

/* The unit says: QN_GEMM_PRECISION, QN_GEMM_SHORT (memory holds bf16), QN_GEMM_FLAGS, QN_GEMM_COLUMNS (of a group: a
 * power of two from 4 to 64; no norm: 0), QN_GEMM_LOOSE (rows of y or vectors are not aligned for fours),
 * QN_GEMM_TILE_M (64, 128, 256), QN_GEMM_STAGES, QN_GEMM_CLUSTER; of a split class QN_GEMM_FOLD. */
enum { TF32 = 1, BF16X3 = 2, TF32X3 = 3, BF16 = 4, F16X3 = 5 };
constexpr int PRECISION = QN_GEMM_PRECISION;
constexpr bool SHORT = QN_GEMM_SHORT;
/* Of each row a chunk of k is so many times 128 bytes; and so many columns of the map are those. */
constexpr int W_PARTS = PRECISION == BF16 && !SHORT ? 2 : 1, X_PARTS = PRECISION == TF32X3 ? 2 : 1;
constexpr int PART_COLUMNS = SHORT ? 64 : 32;
constexpr int TILE_N = 128, TILE_M = QN_GEMM_TILE_M, STAGES = QN_GEMM_STAGES, CLUSTER = QN_GEMM_CLUSTER;
constexpr int FLAGS = QN_GEMM_FLAGS, COLUMNS = QN_GEMM_COLUMNS;
constexpr int W_PART = TILE_N * 128, X_PART = TILE_M * 128, W_BYTES = W_PARTS * W_PART;
constexpr int X_BYTES = X_PARTS * X_PART, STAGE_BYTES = W_BYTES + X_BYTES;
constexpr int SUMS = TILE_M / 2; /* a thread's: of two rows of w by TILE_M / 4 rows of x, twice */
/* Registers of a thread that brings and of one that multiplies, out of the 168 that each begins with: were they more in
 * all, the block would wait for them for ever. */
constexpr int GIVEN = 24, TAKEN = 240;
static_assert(128 * GIVEN + 256 * TAKEN <= QN_THREADS * 168, "a block has no more registers than it began with");
typedef float sums[SUMS];
typedef qn_wgmma<TILE_M> wgmma;

/* Shared memory behind an address that is a multiple of 1024. */
constexpr int TILES_AT = STAGES * STAGE_BYTES;    /* 64 by 64 elements of y for each warpgroup */
constexpr int BARRIERS_AT = TILES_AT + 2 * 16384; /* a stage is full, a stage is free */

struct ring {
  qn_u32 base, stage, parity;
  QN_FN ring at(qn_u32 base) { return ring{base, 0, 0}; }
  __device__ __forceinline__ qn_u32 w() const { return base + stage * STAGE_BYTES; }
  __device__ __forceinline__ qn_u32 x() const { return w() + W_BYTES; }
  __device__ __forceinline__ qn_u32 full() const { return base + BARRIERS_AT + stage * 8; }
  __device__ __forceinline__ qn_u32 free() const { return full() + STAGES * 8; }
  __device__ __forceinline__ void next()
  {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

struct tile_place {
  qn_u32 m, n, batch;
};

QN_FN tile_place tile_of(const qn_gemm_hopper_args &a, qn_u32 tile)
{
  const qn_u32 each = a.tiles / a.batches, n_tiles = each / a.m_tiles, batch = tile / each;
  tile -= batch * each;
  return a.across ? tile_place{tile / n_tiles, tile % n_tiles, batch}
                  : tile_place{tile % a.m_tiles, tile / a.m_tiles, batch};
}

/* Of the slice that begins with chunk `first`. */
QN_FN qn_u32 chunks_from(const qn_gemm_hopper_args &a, qn_u32 first)
{
  return a.chunks - first < a.slice_chunks ? a.chunks - first : a.slice_chunks;
}

/* The grid's clusters; asked for where they are needed: the thread that brings has few registers. */
QN_FN qn_u32 clusters() { return gridDim.x / CLUSTER; }
QN_FN qn_u32 rank_here() { return CLUSTER > 1 ? qn_cluster_rank() : 0; }

QN_FN void bring(const qn_gemm_hopper_args &a, ring r)
{
  const int share = TILE_M / CLUSTER;
  const qn_u32 bytes = X_BYTES + W_PARTS * 128 * a.w_rows; /* the rest of w's tile is of columns that y has not */
  for (qn_u32 pair = blockIdx.x / CLUSTER; pair < a.tiles * a.slices; pair += clusters()) {
    const qn_u32 rank = rank_here();
    const qn_u32 first = pair / a.tiles * a.slice_chunks;
    const tile_place t = tile_of(a, pair % a.tiles);
    const int m0 = static_cast<int>(t.batch) * static_cast<int>(a.of.m) + static_cast<int>(t.m) * TILE_M;
    const int n0 =
        static_cast<int>(t.batch) * static_cast<int>(a.of.n) + static_cast<int>(t.n * CLUSTER + rank) * TILE_N;
    for (qn_u32 chunk = first; chunk < first + chunks_from(a, first); chunk++, r.next()) {
      const int part = static_cast<int>(chunk) * PART_COLUMNS;
      qn_mbarrier_wait(r.free(), r.parity ^ 1);
      qn_mbarrier_expect(r.full(), bytes);
      QN_UNROLL
      for (int i = 0; i < W_PARTS; i++)
        qn_tensor_copy(r.w() + i * W_PART, &a.w, W_PARTS * part + i * PART_COLUMNS, n0, r.full());
      QN_UNROLL
      for (int i = 0; i < X_PARTS; i++) {
        const int column = X_PARTS * part + i * PART_COLUMNS;
        if (CLUSTER == 1)
          qn_tensor_copy(r.x() + i * X_PART, &a.x, column, m0, r.full());
        else
          qn_tensor_copy_to(r.x() + i * X_PART + rank * share * 128, &a.x, column, m0 + static_cast<int>(rank) * share,
                            r.full(), (1 << CLUSTER) - 1);
      }
    }
  }
}

/* A stage that a warp no longer reads is free to each block that brings something there. */
QN_FN void release(qn_u32 free)
{
  const qn_u32 lane = threadIdx.x & 31u;
  __syncwarp();
  if (lane < CLUSTER) qn_mbarrier_arrive_at(free, lane);
}

/* What a thread's rows of w, group and group + 8, are multiplied by before they are taken apart: of f16x3. */
struct row_scales {
  float of[2];
};

#if QN_GEMM_PRECISION == 1 || QN_GEMM_SHORT
QN_FN void multiply(sums &d, qn_u32 chunks, ring &r, const row_scales &)
{
  const qn_u32 part = (threadIdx.x / 128 - 1) * (64 * 128);
  qn_u32 before = r.free();
  for (qn_u32 chunk = 0; chunk < chunks; chunk++) {
    qn_mbarrier_wait(r.full(), r.parity);
    qn_u64 w = qn_wgmma_matrix(r.w() + part), x = qn_wgmma_matrix(r.x());
    qn_wgmma_begin();
    QN_UNROLL
    for (int k = 0; k < 4; k++)
      if (SHORT)
        wgmma::bf16(d, w + 2 * k, x + 2 * k, chunk > 0 || k > 0);
      else
        wgmma::tf32(d, w + 2 * k, x + 2 * k, chunk > 0 || k > 0);
    qn_wgmma_close();
    qn_wgmma_wait<1>();
    if (chunk > 0) release(before);
    before = r.free();
    r.next();
  }
  qn_wgmma_wait<0>();
  release(before);
}
#else
/* What is taken apart at once: 32 columns of w for 16 bits, in two products of 16; 16 columns for tf32, in two of 8. Of
 * a chunk that is all, or one of two steps. */
constexpr int STEPS = PRECISION == BF16X3 || PRECISION == F16X3 ? 1 : 2;
constexpr bool SPLITS = PRECISION == BF16X3 || PRECISION == TF32X3 || PRECISION == F16X3;

/* Two products' rows group and group + 8 of w, as the class's words. */
struct fragments {
  qn_u32 high[2][4], low[2][4];
};

/* Of rows group and group + 8, columns 4 t to 4 t + 3 of either half of 32. */
struct part {
  float v[2][2][4]; /* half, row, column */
};

QN_FN qn_16bytes read_shared(qn_u32 at)
{
  qn_16bytes v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(at)
               : "memory");
  return v;
}

/* Lanes of even and odd rows read the two halves in opposite order: their 16-byte parts then lie in different banks. */
QN_FN void read_part(part &p, qn_u32 w)
{
  const qn_u32 thread = threadIdx.x - 128, lane = thread & 31u, group = lane >> 2, t = lane & 3u, odd = group & 1u;
  const qn_u32 at = w + (thread >> 5) * 2048 + group * 128;
  QN_UNROLL
  for (int h = 0; h < 2; h++) {
    const qn_16bytes first = read_shared(at + h * 1024 + (((4 * odd + t) ^ group) << 4));
    const qn_16bytes second = read_shared(at + h * 1024 + (((4 * (odd ^ 1u) + t) ^ group) << 4));
    QN_UNROLL
    for (int k = 0; k < 4; k++) {
      p.v[0][h][k] = qn_bits_float(odd ? second.word[k] : first.word[k]);
      p.v[1][h][k] = qn_bits_float(odd ? first.word[k] : second.word[k]);
    }
  }
}

/* Step `step` of the chunk whose w is here; p holds what one step leaves to the next. Which four columns a lane has at
 * which places of a product is gemm.split.cu's order too. */
QN_FN void take_apart(fragments &f, part &p, qn_u32 w, int step, const row_scales &scale)
{
  if (PRECISION == BF16) w += step * W_PART;
  if (PRECISION != TF32X3 || step == 0) read_part(p, w);
  QN_UNROLL
  for (int h = 0; h < 2; h++) QN_UNROLL
  for (int b = 0; b < 2; b++) {
    if (PRECISION == TF32X3) {
      QN_UNROLL
      for (int j = 0; j < 2; j++) qn_split_tf32(p.v[step][h][2 * b + j], f.high[b][h + 2 * j], f.low[b][h + 2 * j]);
    } else if (PRECISION == F16X3) {
      QN_UNROLL
      for (int j = 0; j < 2; j++)
        qn_split_f16(p.v[b][h][2 * j] * scale.of[h], p.v[b][h][2 * j + 1] * scale.of[h], f.high[b][h + 2 * j],
                     f.low[b][h + 2 * j]);
    } else {
      qn_split_bf16(p.v[b][h][0], p.v[b][h][1], f.high[b][h], f.low[b][h]);
      qn_split_bf16(p.v[b][h][2], p.v[b][h][3], f.high[b][h + 2], f.low[b][h + 2]);
    }
  }
}

QN_FN void product(sums &d, const qn_u32 (&w)[4], qn_u64 x, int add)
{
  if (PRECISION == TF32X3)
    wgmma::tf32(d, w, x, add);
  else if (PRECISION == F16X3)
    wgmma::f16(d, w, x, add);
  else
    wgmma::bf16(d, w, x, add);
}

QN_FN void multiply_step(sums &d, const fragments &f, qn_u32 x, int step, int add)
{
  const qn_u64 high = qn_wgmma_matrix(x) + 4 * step, low = high + (X_PARTS > 1 ? X_PART / 16 : 4);
  qn_wgmma_begin();
  QN_UNROLL
  for (int b = 0; b < 2; b++) {
    if (SPLITS) {
      product(d, f.low[b], high + 2 * b, add || b > 0);
      product(d, f.high[b], low + 2 * b, 1);
    }
    product(d, f.high[b], high + 2 * b, SPLITS || add || b > 0);
  }
  qn_wgmma_close();
}

/* To the next chunk, or false where there is none. */
QN_FN bool advance(ring &r, qn_u32 &before, qn_u32 &chunk, qn_u32 chunks)
{
  before = r.free();
  r.next();
  if (++chunk == chunks) return false;
  qn_mbarrier_wait(r.full(), r.parity);
  return true;
}

/* A part of k, so many chunks. */
QN_FN void multiply_part(sums &d, qn_u32 chunks, ring &r, const row_scales &scale)
{
  fragments even, odd;
  part p;
  qn_u32 before = r.free(), chunk = 0;
  qn_mbarrier_wait(r.full(), r.parity);
  take_apart(even, p, r.w(), 0, scale);
  for (;;) {
    multiply_step(d, even, r.x(), 0, chunk > 0);
    qn_wgmma_wait<1>();
    if (chunk > 0) release(before);
    if (STEPS == 1 && !advance(r, before, chunk, chunks)) break;
    take_apart(odd, p, r.w(), STEPS - 1, scale);
    multiply_step(d, odd, r.x(), STEPS - 1, 1);
    qn_wgmma_wait<1>();
    if (STEPS == 1) release(before);
    if (!advance(r, before, chunk, chunks)) break;
    take_apart(even, p, r.w(), 0, scale);
  }
  qn_wgmma_wait<0>();
  release(before);
}

/* A tensor core cuts each sum where an ordinary core rounds it, always towards zero, and over a long k that shows more
 * than what two words leave out. So the sums of QN_GEMM_FOLD chunks are added up by ordinary ones. */
QN_FN void multiply_folded(sums &all, qn_u32 chunks, ring &r, const row_scales &scale)
{
  constexpr qn_u32 fold = QN_GEMM_FOLD;
  QN_UNROLL
  for (int i = 0; i < SUMS; i++) all[i] = 0;
  for (qn_u32 first = 0; first < chunks; first += fold) {
    sums d;
    multiply_part(d, chunks - first < fold ? chunks - first : fold, r, scale);
    QN_UNROLL
    for (int i = 0; i < SUMS; i++) all[i] += d[i];
  }
}

QN_FN void multiply(sums &d, qn_u32 chunks, ring &r, const row_scales &scale)
{
  if (SPLITS)
    multiply_folded(d, chunks, r, scale);
  else
    multiply_part(d, chunks, r, scale);
}
#endif

/* ---- the epilogue ---- */
/* A warpgroup's sums go through shared memory, 64 rows of y at a time, 64 columns each. There 16-byte parts lie
 * swizzled so that the lanes of neither side meet in a bank: the side that has a product's layout, and the side on
 * which a thread has half a row, which holds whole groups, and the other half is its neighbour's. */
constexpr int SPAN = 64, HALF = 32;

struct place {
  float *tile;
  qn_u32 thread; /* of its warpgroup */
  qn_u32 m0, n0; /* of the warpgroup's 64 columns by TILE_M rows of y */
  qn_i64 slice;  /* elements of y before it */
  qn_u32 batch;
  int meet; /* its barrier */
};

QN_FN qn_u32 swizzled(qn_u32 m, qn_u32 n) { return m * SPAN + (n ^ ((m & 7u) << 2) ^ (n >> 1 & 16u)); }

/* The swizzle's bits are apart from those that i adds: a lane has four addresses, to which constants are added. */
QN_FN void spread(const sums &d, int span, const place &p)
{
  const qn_u32 lane = p.thread & 31u, m = 2 * (lane & 3u), n = (p.thread >> 5) * 16 + (lane >> 2);
  const qn_u32 at[2] = {swizzled(m, n), swizzled(m + 1, n)};
  QN_UNROLL
  for (int s = 0; s < TILE_M / SPAN; s++)
    if (s == span) {
      QN_UNROLL
      for (int i = 0; i < 32; i++) p.tile[(at[i % 2] ^ 8u * (i / 2 % 2)) + 8 * SPAN * (i / 4)] = d[32 * s + i];
    }
}

struct half_row {
  float v[HALF];
};

/* Operands of the epilogue, four columns from n on, if that is in y; y ends before column `end`. */
QN_FN void four(float (&to)[4], const float *from, qn_i64 n, bool in, qn_i64 end)
{
  qn_16bytes v = {{0, 0, 0, 0}};
  if (!QN_GEMM_LOOSE && in) v = qn_load16(from + n);
  QN_UNROLL
  for (int k = 0; QN_GEMM_LOOSE && k < 4; k++)
    if (n + k < end) v.word[k] = qn_float_bits(from[n + k]);
  QN_UNROLL
  for (int k = 0; k < 4; k++) to[k] = qn_bits_float(v.word[k]);
}

/* Of each group in the half row, or of the whole row's 64 columns: its sum to every element's place. */
struct group_sums {
  float of[COLUMNS >= HALF || COLUMNS == 0 ? 1 : HALF / COLUMNS];
};

template <bool squares> QN_FN group_sums sum_groups(const half_row &r)
{
  constexpr int width = COLUMNS >= HALF || COLUMNS == 0 ? HALF : COLUMNS;
  group_sums s;
  QN_UNROLL
  for (int g = 0; g < HALF / width; g++) {
    float part[4] = {0, 0, 0, 0};
    QN_UNROLL
    for (int k = 0; k < width; k++) {
      const float v = r.v[g * width + k];
      part[k % 4] = squares ? qn_fma(v, v, part[k % 4]) : part[k % 4] + v;
    }
    s.of[g] = (part[0] + part[1]) + (part[2] + part[3]);
    if (COLUMNS > HALF) s.of[g] += __shfl_xor_sync(0xffffffffu, s.of[g], 1);
  }
  return s;
}

/* The passes of qn_gemm_passes, over the groups of a half row side by side: it takes the means away in place, as there
 * are no registers for both. */
QN_FN void normalise(half_row &r, const qn_gemm_args &a, qn_i64 n)
{
  constexpr int width = COLUMNS >= HALF ? HALF : COLUMNS ? COLUMNS : 1;
  const float columns = COLUMNS;
  if (qn_gemm_centres(FLAGS)) {
    const group_sums s = sum_groups<false>(r);
    QN_UNROLL
    for (int k = 0; k < HALF; k++) r.v[k] -= s.of[k / width] * (1.0f / columns);
  }
  group_sums scale = sum_groups<true>(r);
  QN_UNROLL
  for (int g = 0; g < HALF / width; g++) scale.of[g] = qn_gemm_scale(scale.of[g], columns, a.eps);
  QN_UNROLL
  for (int k = 0; k < HALF; k += 4) {
    const bool in = n + k < a.n;
    float gamma[4], beta[4];
    if (FLAGS & QN_GEMM_GAMMA) four(gamma, a.gamma + k, n, in, a.n - k);
    if (FLAGS & QN_GEMM_BETA) four(beta, a.beta + k, n, in, a.n - k);
    QN_UNROLL
    for (int i = 0; i < 4; i++)
      r.v[k + i] = qn_gemm_normed(FLAGS, r.v[k + i], 0, scale.of[(k + i) / width], gamma[i], beta[i]);
  }
}

/* The rows of w that a thread takes apart; beyond w's there are sums that nobody reads. */
QN_FN row_scales scales_of(const qn_gemm_hopper_args &a, const place &p)
{
  row_scales scale = {{1.0f, 1.0f}};
  QN_UNROLL
  for (qn_u32 h = 0; PRECISION == F16X3 && h < 2; h++) {
    const qn_i64 row = p.n0 + (p.thread >> 5) * 16 + (p.thread >> 2 & 7u) + 8 * h;
    scale.of[h] = qn_gemm_row_scale(a.w_factors[p.batch * a.of.n + (row < a.of.n ? row : a.of.n - 1)]);
  }
  return scale;
}

/* Takes back what rows were scaled by. */
QN_FN void unscale(half_row &r, const qn_gemm_hopper_args &a, const place &p, qn_i64 row, qn_i64 n)
{
  const float of_x = a.x_factors[p.batch * a.of.m + (row < a.of.m ? row : a.of.m - 1)];
  QN_UNROLL
  for (int k = 0; k < HALF; k += 4) {
    float of_w[4];
    four(of_w, a.w_factors + p.batch * a.of.n + k, n, n + k < a.of.n, a.of.n - k);
    QN_UNROLL
    for (int i = 0; i < 4; i++) {
      const float both = of_x * of_w[i];
      r.v[k + i] = r.v[k + i] * both * both;
    }
  }
}

QN_FN void finish_half_row(const qn_gemm_hopper_args &all, const place &p, int span)
{
  const qn_gemm_args &a = all.of;
  const qn_u32 m = p.thread >> 1, first = (p.thread & 1u) * HALF;
  const qn_u32 at = swizzled(m, first); /* with the bits of k, which are none of first's */
  const qn_i64 n = p.n0 + first;
  half_row r;
  QN_UNROLL
  for (int k = 0; k < HALF; k += 4) {
    const qn_16bytes v = qn_load16(p.tile + (at ^ static_cast<qn_u32>(k)));
    QN_UNROLL
    for (int i = 0; i < 4; i++) r.v[k + i] = qn_bits_float(v.word[i]);
  }
  if (PRECISION == F16X3) unscale(r, all, p, p.m0 + span * SPAN + m, n);
  QN_UNROLL
  for (int k = 0; k < HALF; k += 4) {
    const bool in = n + k < a.n;
    float bias[4], bias2[4];
    if (FLAGS & QN_GEMM_BIAS) four(bias, a.bias + k, n, in, a.n - k);
    if (FLAGS & QN_GEMM_BIAS2) four(bias2, a.bias2 + k, n, in, a.n - k);
    QN_UNROLL
    for (int i = 0; i < 4; i++) r.v[k + i] = qn_gemm_element(FLAGS, r.v[k + i], bias[i], bias2[i], a.lo, a.hi);
  }
  if (COLUMNS != 0) normalise(r, a, n);
  QN_UNROLL
  for (int k = 0; k < HALF; k += 4)
    qn_store16(p.tile + (at ^ static_cast<qn_u32>(k)), {{qn_float_bits(r.v[k]), qn_float_bits(r.v[k + 1]),
                                                         qn_float_bits(r.v[k + 2]), qn_float_bits(r.v[k + 3])}});
}

/* Four columns of y. */
QN_FN void store_four(const qn_gemm_args &a, qn_i64 at, const qn_16bytes &v)
{
  if (SHORT && !QN_GEMM_RAW) {
    qn_8bytes to;
    qn_u32 rest[2];
    qn_split_bf16(qn_bits_float(v.word[0]), qn_bits_float(v.word[1]), to.word[0], rest[0]);
    qn_split_bf16(qn_bits_float(v.word[2]), qn_bits_float(v.word[3]), to.word[1], rest[1]);
    qn_store8(static_cast<qn_u16 *>(a.y) + at, to);
  } else {
    qn_store16(static_cast<float *>(a.y) + at, v);
  }
}

/* The j-th of a lane's two columns of a row whose first one is amid a word of memory, or not. */
QN_FN qn_u32 column_of(qn_u32 amid, qn_u32 lane, qn_u32 j)
{
  return SHORT ? (2 * lane + (amid & 1u) + j) & (SPAN - 1) : lane + HALF * j;
}

/* A warp stores the 16 rows whose halves its lanes had, where rows of y are not aligned. A lane has two columns of each
 * row: of bf16 neighbours that make up a word of memory, but for the last lane's where a row begins amid a word, which
 * are the row's last and first. */
QN_FN void store_loose(const qn_gemm_args &a, const place &p, int span)
{
  const qn_u32 lane = p.thread & 31u, first = (p.thread >> 5) * 16;
  const qn_i64 row = p.m0 + span * SPAN + first, y = p.slice + row * a.pitch + p.n0;
  const qn_u32 amid = static_cast<qn_u32>(reinterpret_cast<qn_u64>(a.y) >> 1 & 1u);
  float v[16][2];
  QN_UNROLL
  for (qn_u32 i = 0; i < 16; i++) QN_UNROLL
  for (qn_u32 j = 0; j < 2; j++)
    v[i][j] = p.tile[swizzled(first + i, column_of(amid ^ static_cast<qn_u32>(y + i * a.pitch), lane, j))];
  QN_UNROLL
  for (qn_u32 i = 0; i < 16; i++) {
    const qn_i64 at = y + i * a.pitch;
    const qn_u32 n[2] = {column_of(amid ^ static_cast<qn_u32>(at), lane, 0),
                         column_of(amid ^ static_cast<qn_u32>(at), lane, 1)};
    const bool in[2] = {row + i < a.m && p.n0 + n[0] < a.n, row + i < a.m && p.n0 + n[1] < a.n};
    if (!SHORT) {
      QN_UNROLL
      for (int j = 0; j < 2; j++)
        if (in[j]) static_cast<float *>(a.y)[at + n[j]] = v[i][j];
      continue;
    }
    qn_u16 *const to = static_cast<qn_u16 *>(a.y) + at;
    qn_u32 both, rest;
    qn_split_bf16(v[i][0], v[i][1], both, rest);
    if (n[1] > n[0] && in[1]) {
      *reinterpret_cast<qn_u32 *>(to + n[0]) = both;
    } else {
      if (in[0]) to[n[0]] = static_cast<qn_u16>(both);
      if (in[1]) to[n[1]] = static_cast<qn_u16>(both >> 16);
    }
  }
}

/* Where they are: two rows at a time. */
QN_FN void store(const qn_gemm_args &a, const place &p, int span)
{
  const qn_u32 lane = p.thread & 31u, n = 4 * (lane & 15u), first = (p.thread >> 5) * 16 + (lane >> 4);
  const qn_i64 row = p.m0 + span * SPAN + first;
  const qn_i64 y = p.slice + row * a.pitch + p.n0 + n;
  if (p.n0 + n >= a.n) return;
  QN_UNROLL
  for (int i = 0; i < 8; i++)
    if (row + 2 * i < a.m) store_four(a, y + 2 * i * a.pitch, qn_load16(p.tile + swizzled(first + 2 * i, n)));
}

QN_FN void finish(const sums &d, const qn_gemm_hopper_args &all, const place &p)
{
  const qn_gemm_args &a = all.of;
  const int rows = static_cast<int>(static_cast<qn_u32>(a.m) - p.m0);
  _Pragma("unroll 1") for (int span = 0; span < TILE_M / SPAN; span++)
  {
    if (span * SPAN >= rows) break;
    spread(d, span, p);
    qn_part_barrier(p.meet, 128);
    if (FLAGS != 0 || PRECISION == F16X3) finish_half_row(all, p, span);
    __syncwarp();
    if (QN_GEMM_LOOSE)
      store_loose(a, p, span);
    else
      store(a, p, span);
    qn_part_barrier(p.meet, 128);
  }
}

QN_HOPPER_KERNEL(gemm_hopper, qn_gemm_hopper_args, a, QN_GEMM_CLUSTER)
{
  extern __shared__ __align__(1024) unsigned char memory[];
  const qn_u32 misfit = qn_shared_address(memory) & 1023u;
  unsigned char *aligned = memory + (misfit ? 1024 - misfit : 0);
  const qn_u32 base = qn_shared_address(aligned);
  ring r = ring::at(base);
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      qn_mbarrier_init(base + BARRIERS_AT + 8 * s, 1);
      qn_mbarrier_init(base + BARRIERS_AT + 8 * (STAGES + s), 8 * CLUSTER);
    }
    qn_mbarrier_init_seen();
  }
  if (CLUSTER > 1)
    qn_cluster_barrier();
  else
    __syncthreads();
  qn_await_kernel();
  qn_begin_next();
  if (threadIdx.x < 128) {
    qn_give_registers<GIVEN>();
    if (threadIdx.x == 0) bring(a, r);
  } else {
    qn_take_registers<TAKEN>();
    place p;
    const qn_u32 part = threadIdx.x / 128 - 1; /* the warpgroup, of those that multiply */
    p.tile = reinterpret_cast<float *>(aligned + TILES_AT) + part * (SPAN * SPAN);
    p.thread = threadIdx.x & 127u, p.meet = 1 + static_cast<int>(part);
    for (qn_u32 pair = blockIdx.x / CLUSTER; pair < a.tiles * a.slices; pair += clusters()) {
      sums d;
      const qn_u32 slice = pair / a.tiles;
      const tile_place t = tile_of(a, pair % a.tiles);
      p.m0 = t.m * TILE_M;
      p.n0 = (t.n * CLUSTER + rank_here()) * TILE_N + 64 * part;
      /* Beyond y's columns there are no rows to finish; these classes leave no register for the question. */
      if (PRECISION != TF32X3 && PRECISION != F16X3 && p.n0 >= a.of.n) p.m0 = static_cast<qn_u32>(a.of.m);
      p.batch = t.batch;
      p.slice = slice * a.of.slice + t.batch * a.of.m * a.of.pitch;
      multiply(d, chunks_from(a, slice * a.slice_chunks), r, scales_of(a, p));
      finish(d, a, p);
    }
  }
  if (CLUSTER > 1) qn_cluster_barrier(); /* no block ends while another may still write here or arrive here */
}
