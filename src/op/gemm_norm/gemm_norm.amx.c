/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.amx.c - one task of a product of bf16 numbers on the tiles of AMX: 16 rows of 32 elements of k in a
 * register, 16 x 16 sums in another, 8,192 products in an instruction of 16 cycles. Built with the flags of the tier
 * avx512 and two more; the epilogue is that tier's.
 *
 * An instruction adds up pairs of products in f32, rounded to nearest even, but takes subnormal numbers for zero and
 * makes zero of subnormal sums. So each operand's least magnitude is noted, and where a product could come near that,
 * the tier avx512 computes it (cpu.h). Of operands in f32 the nearest bf16 numbers are taken.
 *
 * Many rows: both operands are packed into blocks of one register, those of w with their pairs of k side by side, as
 * the instruction wants its second operand. Few rows: x is packed so, w is the first operand as it lies in memory, and
 * the sums come out turned. */
#include "op/gemm_norm/cpu.h"
#ifdef QN_WITH_AMX
#include <immintrin.h>
#include <string.h>

enum { SIDE = 16, STEP = QN_GEMM_AMX_STEP, BLOCK = SIDE * STEP, PAIR = 2 * SIDE };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

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
 * of these 32 elements at a time. `pairs`: as the second operand. */
static void pack(uint16_t *to, const void *from, int64_t pitch, int64_t row, int64_t rows, int64_t k, int64_t depth,
                 bool is_short, bool pairs, atomic_uint *lowest)
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
}

/* ---- sums ---- */

/* Two registers of the first operand by two of the second; where one has no second, its sums are not needed. */
typedef struct operand {
  const char *first, *second; /* NULL: none */
  int64_t pitch, step;        /* bytes from row to row, and from block to block along k */
} operand;

static void add_up(operand a, operand b, int64_t steps)
{
  for (; steps > 0; steps--, a.first += a.step, b.first += b.step) {
    _tile_loadd(4, a.first, a.pitch);
    _tile_loadd(6, b.first, b.pitch);
    _tile_dpbf16ps(0, 4, 6);
    if (b.second) {
      _tile_loadd(7, b.second, b.pitch);
      _tile_dpbf16ps(1, 4, 7);
      b.second += b.step;
    }
    if (a.second) {
      _tile_loadd(5, a.second, a.pitch);
      _tile_dpbf16ps(2, 5, 6);
      if (b.second) _tile_dpbf16ps(3, 5, 7);
      a.second += a.step;
    }
  }
}

typedef struct sums {
  _Alignas(64) float at[PAIR][PAIR];
} sums;

static void zero(void)
{
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

static void take(sums *s)
{
  _tile_stored(0, s->at[0], sizeof s->at[0]);
  _tile_stored(1, s->at[0] + SIDE, sizeof s->at[0]);
  _tile_stored(2, s->at[SIDE], sizeof s->at[0]);
  _tile_stored(3, s->at[SIDE] + SIDE, sizeof s->at[0]);
}

/* Rows by columns of the sums into z, or added to it. */
static void put(const sums *s, float *z, int64_t pitch, int64_t rows, int64_t columns, bool add)
{
  for (int64_t r = 0; r < least(rows, PAIR); r++)
    for (int64_t c = 0; c < least(columns, PAIR); c += SIDE) {
      const __mmask16 there = (__mmask16)(columns - c >= SIDE ? 0xffff : (1u << (columns - c)) - 1);
      float *to = z + r * pitch + c;
      __m512 v = _mm512_load_ps(&s->at[r][c]);
      if (add) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(there, to));
      _mm512_mask_storeu_ps(to, there, v);
    }
}

static void turn_sums(sums *s)
{
  const sums old = *s;
  for (int r = 0; r < PAIR; r += SIDE)
    for (int c = 0; c < PAIR; c += SIDE) {
      __m512i block[SIDE];
      for (int k = 0; k < SIDE; k++) block[k] = _mm512_load_si512(&old.at[r + k][c]);
      turn(block);
      for (int k = 0; k < SIDE; k++) _mm512_store_si512(&s->at[c + k][r], block[k]);
    }
}

/* The blocks of 32 rows from `at` on, of `rows` in all. */
static operand packed(const float *panel, int64_t at, int64_t rows, int64_t depth)
{
  const int64_t group = over(depth, STEP) * BLOCK;
  const uint16_t *blocks = (const uint16_t *)(const void *)panel + at / SIDE * group;
  return (operand){(const char *)blocks, at + SIDE < rows ? (const char *)(blocks + group) : NULL, 2 * STEP, 2 * BLOCK};
}

static void product(const qn_gemm_tile *t)
{
  const int64_t n = t->problem->args.n;
  sums s;
  begin();
  for (int64_t c = 0; c < t->columns; c += PAIR)
    for (int64_t r = 0; r < t->rows; r += PAIR) {
      zero();
      add_up(packed(t->x_panel, r, t->rows, t->depth), packed(t->w_panel, c, t->columns, t->depth),
             over(t->depth, STEP));
      take(&s);
      put(&s, t->z + (t->row + r) * n + t->column + c, n, t->rows - r, t->columns - c, t->k > 0);
    }
  _tile_release();
}

/* ---- few rows ---- */

/* Columns [column, column + 32) of y, for all rows: as many rows of w are the first operand, where they lie or, where
 * they end or are f32, by way of a copy. */
static void few(const qn_gemm_tile *t, int64_t column)
{
  const qn_gemm_problem *p = t->problem;
  const qn_gemm_args *a = &p->args;
  const int64_t whole = p->short_data && a->n - column >= PAIR ? a->k / STEP : 0, steps = over(a->k, STEP);
  _Alignas(64) uint16_t copy[PAIR * STEP];
  sums s;
  for (int64_t r = 0; r < a->m; r += PAIR) {
    operand x = packed(t->x_panel, r, a->m, a->k);
    const char *w = (const char *)a->w + column * a->k * 2;
    zero();
    add_up((operand){w, w + SIDE * a->k * 2, 2 * a->k, 2 * STEP}, x, whole);
    for (int64_t k = whole; k < steps; k++) {
      for (int64_t row = 0; row < PAIR; row++) {
        const bool there = column + row < a->n;
        const __m512i v = there ? load(a->w, (column + row) * a->k + k * STEP, a->k - k * STEP, p->short_data)
                                : _mm512_setzero_si512();
        memcpy(copy + row * STEP, &v, sizeof v);
      }
      const operand at = {x.first + k * x.step, x.second ? x.second + k * x.step : NULL, x.pitch, x.step};
      add_up((operand){(const char *)copy, (const char *)(copy + BLOCK), 2 * STEP, 0}, at, 1);
    }
    take(&s);
    turn_sums(&s);
    put(&s, t->z + r * a->n + column, a->n, a->m - r, t->column + t->columns - column, false);
  }
}

/* Whether all products of these columns of w are far from what the instruction drops. It also brings them near. */
static bool is_safe(const qn_gemm_tile *t, int64_t column, int64_t columns)
{
  const qn_gemm_args *a = &t->problem->args;
  __m512i seen = _mm512_set1_epi16(-1);
  for (int64_t c = column; c < column + columns; c++)
    for (int64_t k = 0; k < a->k; k += STEP)
      seen = lesser(seen, load(a->w, c * a->k + k, a->k - k, t->problem->short_data));
  atomic_uint lowest = 0xffff;
  tell(&lowest, seen);
  return qn_gemm_amx_safe(atomic_load(t->lowest_x), atomic_load(&lowest));
}

static void direct(const qn_gemm_tile *t)
{
  begin();
  for (int64_t c = 0; c < t->columns; c += PAIR) {
    const int64_t columns = least(PAIR, t->columns - c);
    if (is_safe(t, t->column + c, columns)) {
      few(t, t->column + c);
      continue;
    }
    qn_gemm_tile other = *t;
    other.work = QN_GEMM_DIRECT_SUMS, other.column += c, other.columns = columns;
    _tile_release();
    qn_gemm_norm_cpu_avx512(&other);
    begin();
  }
  _tile_release();
}

void qn_gemm_norm_cpu_amx(const qn_gemm_tile *t)
{
  const qn_gemm_problem *p = t->problem;
  const qn_gemm_args *a = &p->args;
  uint16_t *x = (uint16_t *)(void *)t->x_panel, *w = (uint16_t *)(void *)t->w_panel;
  qn_gemm_tile rest = *t;
  rest.work = QN_GEMM_FINISH;
  switch (t->work) {
  case QN_GEMM_PACK_X:
    pack(x, a->x, a->k, t->row, t->rows, t->k, t->depth, p->short_data, t->w_stays, t->lowest_x);
    break;
  case QN_GEMM_PACK_W:
    pack(w, a->w, a->k, t->column, t->columns, t->k, t->depth, p->short_data, true, t->lowest_w);
    break;
  case QN_GEMM_PRODUCT:
    if (t->w_stays)
      direct(t);
    else
      product(t);
    if (t->k + t->depth == a->k) qn_gemm_norm_cpu_avx512(&rest);
    break;
  default: qn_gemm_norm_cpu_avx512(t);
  }
}
#endif
