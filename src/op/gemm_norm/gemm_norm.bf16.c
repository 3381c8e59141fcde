/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.bf16.c - one task of a product of bf16 numbers by instructions of their own; built once for each tier that
 * has them, with the flags of the tier avx512 and its own. Everything else, the epilogue above all, is that tier's.
 *
 *   amx         16 rows of 32 elements of k in a register, 16 x 16 sums in another, 8,192 products in an instruction of
 *               16 cycles
 *   avx512bf16  the sums of a row in vectors; 32 products in an instruction, twice as many as of f32
 *
 * Both add up pairs of products in f32, rounded to nearest even, but take subnormal numbers for zero and make zero of
 * subnormal sums. So each operand's least magnitude is noted, and where a product could come near that, the tier avx512
 * computes it (cpu.h). Of operands in f32 the nearest bf16 numbers are taken.
 *
 * Many rows: both operands are packed into blocks of 16 rows by 32 elements of k, those of w with their pairs of k side
 * by side, as the instructions want their second operand. Few rows: x is packed so, w is the first operand as it lies
 * in memory, and the sums come out turned. */
#include "base/for_packs.h"
#include "op/gemm_norm/cpu.h"
#include <immintrin.h>
#include <string.h>

enum { DEEP = 512 }; /* elements of k along which 32 columns of w are 32 KiB, which stay in the first cache */
enum {
  SIDE = QN_GEMM_BF16_SIDE,
  STEP = QN_GEMM_BF16_STEP,
  BLOCK = SIDE * STEP,
  PAIR = 2 * SIDE,
  OTHERS_MOST = QN_GEMM_BF16_FEW
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* ---- operands ---- */

/* Sixteen numbers as bf16, to nearest even; NaN stays NaN. */
static __m256i narrow(__m512i bits)
{
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 nan = _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(0x7f800000));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(near, nan, quiet), 16));
}

/* n elements, at most 32, and zeros behind them. */
static __m512i load(const void *from, int64_t at, int64_t n, bool is_short)
{
  const uint32_t there = n >= STEP ? ~0u : n > 0 ? (1u << n) - 1 : 0;
  if (is_short) return _mm512_maskz_loadu_epi16(there, (const uint16_t *)from + at);
  const float *f = (const float *)from + at;
  const __m256i low = narrow(_mm512_castps_si512(_mm512_maskz_loadu_ps((__mmask16)there, f)));
  const __m256i high = narrow(_mm512_castps_si512(_mm512_maskz_loadu_ps((__mmask16)(there >> 16), f + SIDE)));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* The least magnitude but zero, less one, of two words each. */
static __m512i lesser(__m512i so_far, __m512i x)
{
  const __m512i size = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
  return _mm512_min_epu16(so_far, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
}

static void tell(atomic_uint *of_all, __m512i lanes)
{
  uint16_t of[STEP];
  unsigned lowest = 0xffff;
  memcpy(of, &lanes, sizeof of);
  for (int k = 0; k < STEP; k++)
    if (of[k] < lowest) lowest = of[k];
  unsigned known = atomic_load_explicit(of_all, memory_order_relaxed);
  while (lowest < known && !atomic_compare_exchange_weak(of_all, &known, lowest)) continue;
}

/* Rows of 16 words become columns. */
static void turn(__m512i r[SIDE])
{
  __m512i t[SIDE];
  for (int k = 0; k < SIDE; k += 2) {
    t[k] = _mm512_unpacklo_epi32(r[k], r[k + 1]);
    t[k + 1] = _mm512_unpackhi_epi32(r[k], r[k + 1]);
  }
  for (int k = 0; k < SIDE; k += 4)
    for (int j = 0; j < 2; j++) {
      r[k + 2 * j] = _mm512_unpacklo_epi64(t[k + j], t[k + j + 2]);
      r[k + 2 * j + 1] = _mm512_unpackhi_epi64(t[k + j], t[k + j + 2]);
    }
  for (int k = 0; k < 4; k++)
    for (int half = 0; half < 2; half++) {
      t[k + 8 * half] = _mm512_shuffle_i32x4(r[k + 8 * half], r[k + 4 + 8 * half], 0x88);
      t[k + 4 + 8 * half] = _mm512_shuffle_i32x4(r[k + 8 * half], r[k + 4 + 8 * half], 0xdd);
    }
  for (int k = 0; k < 8; k++) {
    r[k] = _mm512_shuffle_i32x4(t[k], t[k + 8], 0x88);
    r[k + 8] = _mm512_shuffle_i32x4(t[k], t[k + 8], 0xdd);
  }
}

/* Rows [row, row + rows) and `depth` elements from k on of a matrix with `pitch` columns, as blocks: 16 rows at a time,
 * of these 32 elements at a time. `pairs`: as the second operand. Returns what follows the last block. */
static uint16_t *pack(uint16_t *to, const void *from, int64_t pitch, int64_t row, int64_t rows, int64_t k,
                      int64_t depth, bool is_short, bool pairs, atomic_uint *lowest)
{
  __m512i seen = _mm512_set1_epi16(-1);
  for (int64_t r = 0; r < rows; r += SIDE)
    for (int64_t d = 0; d < depth; d += STEP, to += BLOCK) {
      __m512i block[SIDE];
      for (int64_t i = 0; i < SIDE; i++) {
        const bool there = r + i < rows;
        block[i] = there ? load(from, (row + r + i) * pitch + k + d, depth - d, is_short) : _mm512_setzero_si512();
        seen = lesser(seen, block[i]);
      }
      if (pairs) turn(block);
      memcpy(to, block, sizeof block);
    }
  tell(lowest, seen);
  return to;
}

/* All of a tile's depth: DEEP elements of all rows, then the next ones; for an operand that meets one that stays where
 * it lies, all in one. */
static void pack_panel(const qn_gemm_tile *t, float *panel, const void *from, int64_t row, int64_t rows, bool pairs,
                       atomic_uint *lowest)
{
  const qn_gemm_problem *p = t->problem;
  const int64_t deep = t->w_stays || t->x_stays ? t->depth : DEEP;
  uint16_t *to = (uint16_t *)(void *)panel;
  for (int64_t k = 0; k < t->depth; k += deep)
    to = pack(to, from, p->args.k, row, rows, t->k + k, least(deep, t->depth - k), p->short_data, pairs, lowest);
}

/* ---- sums ---- */

/* Two blocks of the first operand by two of the second; where one has no second, its sums are not needed. */
typedef struct operand {
  const char *first, *second; /* NULL: none */
  int64_t pitch, step;        /* bytes from row to row, and from block to block along k */
} operand;

typedef struct sums {
  float *at; /* 32 by 32 */
  int64_t pitch;
  bool none; /* they are zeros, and not stored yet */
} sums;

/* begin() goes before sums, end() behind them; zero() or resume(), then add_up() of some elements of k, any number of
 * times, then take(): in between the sums may be in registers. */
#ifndef __AVX512BF16__ /* amx */
static void begin(void)
{
  _Alignas(64) struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } all = {.palette = 1};
  for (int k = 0; k < 8; k++) all.bytes[k] = 64, all.rows[k] = SIDE;
  _tile_loadconfig(&all);
}

static void end(void) { _tile_release(); }
#define CHUNK (INT64_MAX / 2) /* its registers hold the sums of one pair of operands, from zero() to take() */

static void zero(sums *s)
{
  (void)s;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/* `what` is done with each register of sums and its block in memory. */
#define EACH_BLOCK(what, s, bytes)                                                                                     \
  what(0, (s)->at, bytes);                                                                                             \
  what(1, (s)->at + SIDE, bytes);                                                                                      \
  what(2, (s)->at + SIDE * (s)->pitch, bytes);                                                                         \
  what(3, (s)->at + SIDE * (s)->pitch + SIDE, bytes)

static void resume(sums *s)
{
  const size_t bytes = (size_t)s->pitch * sizeof *s->at;
  EACH_BLOCK(_tile_loadd, s, bytes);
}

static void take(sums *s)
{
  const size_t bytes = (size_t)s->pitch * sizeof *s->at;
  EACH_BLOCK(_tile_stored, s, bytes);
}

static void add_up(sums *s, operand a, operand b, int64_t depth)
{
  (void)s;
  for (; depth > 0; depth -= STEP, a.first += a.step, b.first += b.step) {
    _tile_stream_loadd(4, a.first, a.pitch);
    _tile_loadd(6, b.first, b.pitch);
    _tile_dpbf16ps(0, 4, 6);
    if (b.second) {
      _tile_loadd(7, b.second, b.pitch);
      _tile_dpbf16ps(1, 4, 7);
      b.second += b.step;
    }
    if (a.second) {
      _tile_stream_loadd(5, a.second, a.pitch);
      _tile_dpbf16ps(2, 5, 6);
      if (b.second) _tile_dpbf16ps(3, 5, 7);
      a.second += a.step;
    }
  }
}
#else
enum { ROWS = 8 };     /* whose sums, in two vectors each, are in registers */
enum { CHUNK = 4096 }; /* elements of k of 32 rows, which stay in the second cache: a multiple of a block's */

static void begin(void) {}
static void end(void) {}
static void zero(sums *s) { s->none = true; }
static void resume(sums *s) { s->none = false; }
static void take(sums *s)
{
  for (int r = 0; s->none && r < PAIR; r++) memset(s->at + r * s->pitch, 0, PAIR * sizeof *s->at);
}

/* Of ROWS rows by one or two blocks of the second operand. */
static inline __attribute__((always_inline)) void add_rows(sums *s, int row, const char *a, operand of, operand b,
                                                           int64_t depth, int blocks)
{
  __m512 v[ROWS][2];
  QN_UNROLL
  for (int r = 0; r < ROWS; r++) QN_UNROLL
  for (int n = 0; n < blocks; n++)
    v[r][n] = s->none ? _mm512_setzero_ps() : _mm512_load_ps(s->at + (row + r) * s->pitch + n * SIDE);
  for (; depth > 0; depth -= STEP, a += of.step, b.first += b.step, b.second += blocks > 1 ? b.step : 0)
    for (int k = 0; k < least(depth, STEP); k += 2) {
      const __m512i w = _mm512_loadu_si512(b.first + k / 2 * b.pitch);
      const __m512i other = blocks > 1 ? _mm512_loadu_si512(b.second + k / 2 * b.pitch) : w;
      QN_UNROLL
      for (int r = 0; r < ROWS; r++) {
        int32_t pair;
        memcpy(&pair, a + r * of.pitch + 2 * k, sizeof pair);
        const __m512i x = _mm512_set1_epi32(pair);
        v[r][0] = _mm512_dpbf16_ps(v[r][0], (__m512bh)x, (__m512bh)w);
        if (blocks > 1) v[r][1] = _mm512_dpbf16_ps(v[r][1], (__m512bh)x, (__m512bh)other);
      }
    }
  QN_UNROLL
  for (int r = 0; r < ROWS; r++) QN_UNROLL
  for (int n = 0; n < blocks; n++) _mm512_store_ps(s->at + (row + r) * s->pitch + n * SIDE, v[r][n]);
}

static void add_up(sums *s, operand a, operand b, int64_t depth)
{
  for (int r = 0; depth > 0 && r < (a.second ? PAIR : SIDE); r += ROWS) {
    const char *rows = (r < SIDE ? a.first : a.second) + r % SIDE * a.pitch;
    if (b.second)
      add_rows(s, r, rows, a, b, depth, 2);
    else
      add_rows(s, r, rows, a, b, depth, 1);
  }
  s->none &= depth <= 0;
}
#endif

/* Rows by columns of the sums into z, or added to it. */
static void put(const sums *s, float *z, int64_t pitch, int64_t rows, int64_t columns, bool add)
{
  for (int64_t r = 0; r < least(rows, PAIR); r++)
    for (int64_t c = 0; c < least(columns, PAIR); c += SIDE) {
      const __mmask16 there = (__mmask16)(columns - c >= SIDE ? 0xffff : (1u << (columns - c)) - 1);
      float *to = z + r * pitch + c;
      __m512 v = _mm512_load_ps(s->at + r * s->pitch + c);
      if (add) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(there, to));
      _mm512_mask_storeu_ps(to, there, v);
    }
}

/* Two blocks of the sums, turned, each to the other's place. */
static void turn_blocks(float *a, float *b, int64_t pitch)
{
  __m512i of_a[SIDE], of_b[SIDE];
  for (int k = 0; k < SIDE; k++) of_a[k] = _mm512_load_si512(a + k * pitch), of_b[k] = _mm512_load_si512(b + k * pitch);
  turn(of_a);
  turn(of_b);
  for (int k = 0; k < SIDE; k++) _mm512_store_si512(b + k * pitch, of_a[k]), _mm512_store_si512(a + k * pitch, of_b[k]);
}

static void turn_sums(const sums *s)
{
  float *const last = s->at + SIDE * s->pitch + SIDE;
  turn_blocks(s->at, s->at, s->pitch);
  turn_blocks(s->at + SIDE, last - SIDE, s->pitch);
  turn_blocks(last, last, s->pitch);
}

/* The blocks of 32 rows from `at` on, of `rows` in all. */
static operand packed(const float *panel, int64_t at, int64_t rows, int64_t depth)
{
  const int64_t group = over(depth, STEP) * BLOCK;
  const uint16_t *blocks = (const uint16_t *)(const void *)panel + at / SIDE * group;
  return (operand){(const char *)blocks, at + SIDE < rows ? (const char *)(blocks + group) : NULL, 2 * STEP, 2 * BLOCK};
}

/* From element k on, a multiple of a block's. */
static operand further(operand of, int64_t k)
{
  const int64_t bytes = k / STEP * of.step;
  return (operand){of.first + bytes, of.second ? of.second + bytes : NULL, of.pitch, of.step};
}

static void product(const qn_gemm_tile *t)
{
  _Alignas(64) float block[PAIR * PAIR];
  begin();
  for (int64_t k = 0; k < t->depth || !k; k += DEEP) {
    const int64_t deep = least(DEEP, t->depth - k), first = t->k + k;
    const float *x = t->x_panel + over(t->rows, SIDE) * SIDE * k / 2;
    const float *w = t->w_panel + over(t->columns, SIDE) * SIDE * k / 2;
    for (int64_t c = 0; c < t->columns; c += PAIR)
      for (int64_t r = 0; r < t->rows; r += PAIR) {
        float *z = qn_gemm_sum_of(t, t->row + r, t->column + c);
        sums s = t->z_whole ? (sums){z, t->z_pitch, false} : (sums){block, PAIR, false};
        if (t->z_whole && first > 0)
          resume(&s);
        else
          zero(&s);
        add_up(&s, packed(x, r, t->rows, deep), packed(w, c, t->columns, deep), deep);
        take(&s);
        if (!t->z_whole) put(&s, z, t->z_pitch, t->rows - r, t->columns - c, first > 0);
      }
  }
  end();
}

/* ---- few rows or columns ---- */

/* The operand that stays where it lies, with as many rows, and the other one's panel. */
typedef struct staying {
  const void *from;
  int64_t rows, others, begin, end; /* of the tile: rows [begin, end) */
  const float *panel;
  atomic_uint *lowest; /* of the panel */
} staying;

static staying staying_of(const qn_gemm_tile *t)
{
  const qn_gemm_args *a = &t->problem->args;
  if (t->w_stays) return (staying){a->w, a->n, a->m, t->column, t->column + t->columns, t->x_panel, t->lowest_x};
  return (staying){a->x, a->m, a->n, t->row, t->row + t->rows, t->w_panel, t->lowest_w};
}

/* Notes the least magnitudes of elements [k, end) of rows [row, row + 32), and brings these near. */
static void look_at(const qn_gemm_tile *t, const staying *of, int64_t row, int64_t k, int64_t end, __m512i *seen)
{
  const int64_t depth = t->problem->args.k;
  for (int64_t r = row; r < least(row + PAIR, of->end); r++)
    for (int64_t at = k; at < end; at += STEP) *seen = lesser(*seen, load(of->from, r * depth + at, depth - at, true));
}

/* Whether all products with the panel are far from what the instructions drop. */
static bool is_safe(const staying *of, __m512i seen)
{
  atomic_uint lowest = 0xffff;
  tell(&lowest, seen);
  return qn_gemm_bf16_safe(atomic_load(of->lowest), atomic_load(&lowest));
}

/* Adds elements [k, end) of rows [row, row + 32) with the other operand's 32 from `other` on: as the first operand,
 * where they lie or, where they end or are f32, by way of a copy, of which it notes the least magnitudes. */
static void add_part(const qn_gemm_tile *t, const staying *of, sums *s, int64_t row, int64_t other, int64_t k,
                     int64_t end, __m512i *seen)
{
  const qn_gemm_problem *p = t->problem;
  const int64_t pitch = p->args.k;
  const int64_t whole = p->short_data && of->rows - row >= PAIR ? k + (end - k) / STEP * STEP : k;
  const operand b = packed(of->panel, other, of->others, pitch);
  const char *first = (const char *)of->from + (row * pitch + k) * 2;
  _Alignas(64) uint16_t copy[PAIR * STEP];
  add_up(s, (operand){first, first + SIDE * pitch * 2, 2 * pitch, 2 * STEP}, further(b, k), whole - k);
  for (k = whole; k < end; k += STEP) {
    for (int64_t r = 0; r < PAIR; r++) {
      const bool there = row + r < of->rows;
      const __m512i v = there ? load(of->from, (row + r) * pitch + k, end - k, p->short_data) : _mm512_setzero_si512();
      *seen = lesser(*seen, v);
      memcpy(copy + r * STEP, &v, sizeof v);
    }
    add_up(s, (operand){(const char *)copy, (const char *)(copy + BLOCK), 2 * STEP, 0}, further(b, k),
           least(STEP, end - k));
  }
}

/* Rows [row, row + 32) with all of the other operand. False: their products are not safe, and nothing is written. */
static bool few(const qn_gemm_tile *t, const staying *of, int64_t row)
{
  const qn_gemm_args *a = &t->problem->args;
  _Alignas(64) float blocks[OTHERS_MOST / PAIR][PAIR * PAIR];
  __m512i seen = _mm512_set1_epi16(-1);
  sums s[OTHERS_MOST / PAIR];
  for (int k = 0; k < OTHERS_MOST / PAIR; k++) s[k] = (sums){blocks[k], PAIR, false};
  for (int64_t k = 0; k < a->k || !k; k += CHUNK) {
    const int64_t end = least(k + CHUNK, a->k);
    if (t->problem->short_data) look_at(t, of, row, k, end, &seen);
    for (int64_t other = 0; other < of->others; other += PAIR) {
      if (!k) zero(&s[other / PAIR]);
      add_part(t, of, &s[other / PAIR], row, other, k, end, &seen);
      if (end == a->k) take(&s[other / PAIR]);
    }
  }
  if (!is_safe(of, seen)) return false;
  for (int64_t other = 0; other < of->others; other += PAIR) {
    sums *const of_other = &s[other / PAIR];
    if (t->w_stays) {
      turn_sums(of_other);
      put(of_other, qn_gemm_sum_of(t, other, row), t->z_pitch, a->m - other, of->end - row, false);
    } else {
      put(of_other, qn_gemm_sum_of(t, row, other), t->z_pitch, of->end - row, a->n - other, false);
    }
  }
  return true;
}

static void direct(const qn_gemm_tile *t)
{
  const staying of = staying_of(t);
  begin();
  for (int64_t row = of.begin; row < of.end; row += PAIR) {
    const int64_t rows = least(PAIR, of.end - row);
    if (few(t, &of, row)) continue;
    qn_gemm_tile other = *t;
    other.work = QN_GEMM_DIRECT_SUMS;
    if (t->w_stays)
      other.column = row, other.columns = rows;
    else
      other.row = row, other.rows = rows;
    end();
    qn_gemm_norm_cpu_avx512(&other);
    begin();
  }
  end();
}

void QN_CPU_NAME(gemm_norm)(const qn_gemm_tile *t)
{
  const qn_gemm_problem *p = t->problem;
  const qn_gemm_args *a = &p->args;
  qn_gemm_tile rest = *t;
  rest.work = QN_GEMM_FINISH;
  switch (t->work) {
  case QN_GEMM_PACK_X: pack_panel(t, t->x_panel, a->x, t->row, t->rows, t->w_stays, t->lowest_x); break;
  case QN_GEMM_PACK_W: pack_panel(t, t->w_panel, a->w, t->column, t->columns, true, t->lowest_w); break;
  case QN_GEMM_PRODUCT:
    if (t->w_stays || t->x_stays)
      direct(t);
    else
      product(t);
    if (t->k + t->depth == a->k) qn_gemm_norm_cpu_avx512(&rest);
    break;
  default: qn_gemm_norm_cpu_avx512(t);
  }
}
