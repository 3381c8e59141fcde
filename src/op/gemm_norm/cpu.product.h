/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.product.h - a tile's sums of products, of gemm_norm.cpu.c, which is built once a tier.
 *
 * Blocks of 256 of k: rows of w are packed into panels, in which a step along k lies side by side, and a kernel that
 * holds ROWS by VECTORS sums in registers runs along a panel and rows of x, which are read where they lie. Few rows are
 * multiplied straight from memory, in vectors along k. Operands are rounded as the precision class says; the x3
 * classes, which stand for f32 on tensor cores, are plain f32 here. */
#ifndef QN_OP_GEMM_NORM_CPU_PRODUCT_H
#define QN_OP_GEMM_NORM_CPU_PRODUCT_H
#include "base/for_packs.h"
#include "op/gemm_norm/cpu.h"

/* The sums that a kernel holds, as many as the registers have room for, beside what a step along k loads: in rows of x
 * and vectors along n; and where vectors lie along k, in rows of x, by four of w. */
#if QN_LANES == 16
enum { ROWS = 6, VECTORS = 4, DIRECT_ROWS = 6 };
#elif QN_LANES == 8
enum { ROWS = 6, VECTORS = 2, DIRECT_ROWS = 3 };
#elif QN_LANES == 4
enum { ROWS = 8, VECTORS = 2, DIRECT_ROWS = 4 };
#else
enum { ROWS = 4, VECTORS = 4, DIRECT_ROWS = 4 };
#endif
enum { COLUMNS = VECTORS * QN_LANES };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- sums of lanes ---- */

typedef float four __attribute__((vector_size(16)));

#if QN_LANES > 1
/* Halves added to halves until four lanes are left. */
QN_FN four fold(qn_f32 x)
{
#if QN_LANES == 16
  const four low = __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 8, 9, 10, 11);
  return low + (__builtin_shufflevector(x, x, 4, 5, 6, 7) + __builtin_shufflevector(x, x, 12, 13, 14, 15));
#elif QN_LANES == 8
  return __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else
  return x;
#endif
}

QN_FN float sum_of_lanes(qn_f32 x)
{
  const four v = fold(x);
  return (v[0] + v[2]) + (v[1] + v[3]);
}

/* The sums of four vectors, one behind the other. */
QN_FN void sums_of_lanes(float to[4], const qn_f32 of[4])
{
  const four a = fold(of[0]), b = fold(of[1]), c = fold(of[2]), d = fold(of[3]);
  const four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const four sums = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  __builtin_memcpy(to, &sums, sizeof sums);
}
#else
QN_FN float sum_of_lanes(qn_f32 x) { return x; }
QN_FN void sums_of_lanes(float to[4], const qn_f32 of[4]) { __builtin_memcpy(to, of, 4 * sizeof *to); }
#endif

/* ---- operands ---- */

/* As tf32: 11 bits, halves away from zero; as bf16: 8 bits, to nearest even. Infinities and NaN stay. */
QN_FN qn_bits rounded(qn_bits bits, bool tf32)
{
  qn_bits off = tf32 ? qn_splat_bits(0x1000u) : 0x7fffu + (bits >> 16 & 1u);
  qn_bits near = (bits + off) & (tf32 ? ~0x1fffu : 0xffff0000u);
  return qn_select_bits(qn_less_bits(bits & 0x7fffffffu, qn_splat_bits(0x7f800000u)), near, bits);
}

/* How an operand's elements come into registers. */
typedef enum kind { AS_THEY_ARE, AS_TF32, AS_BF16, FROM_BF16 } kind;

static kind kind_of(const qn_gemm_problem *p)
{
  if (p->short_data) return FROM_BF16;
  if (!qn_gemm_rounds(p)) return AS_THEY_ARE;
  return p->precision == QN_GEMM_TF32 ? AS_TF32 : AS_BF16;
}

QN_FN qn_f32 load_operand(const void *from, int64_t at, int64_t n, kind as)
{
  if (as == FROM_BF16) return qn_widen_bf16(qn_bits_of_halves(qn_load_lanes_of_halves((const qn_u16 *)from + at, n)));
  const qn_f32 x = qn_load_lanes((const float *)from + at, n);
  return as == AS_THEY_ARE ? x : qn_f32_of(rounded(qn_bits_of(x), as == AS_TF32));
}

/* n elements of an operand as they come into registers. */
QN_FN void copy_as(float *to, const void *from, int64_t at, int64_t n, kind as)
{
  for (int64_t k = 0; k < n; k += QN_LANES) qn_store_lanes(to + k, n - k, load_operand(from, at + k, n - k, as));
}

/* Fetches n elements, which nothing of the processor's own foresees, from the row that comes next. */
QN_FN void prefetch(const void *from, int64_t at, int64_t n, kind as)
{
  const int64_t width = as == FROM_BF16 ? 2 : 4;
  for (int64_t k = 0; k < n * width; k += 64) __builtin_prefetch((const char *)from + at * width + k, 0, 2);
}

/* ---- packing ---- */

#if QN_LANES > 1
/* Of each 128 bits: elements i and j of x, k and l of y. */
#if QN_LANES == 16
#define IN_LANES(x, y, i, j, k, l)                                                                                     \
  __builtin_shufflevector(x, y, i, j, k, l, i + 4, j + 4, k + 4, l + 4, i + 8, j + 8, k + 8, l + 8, i + 12, j + 12,    \
                          k + 12, l + 12)
#elif QN_LANES == 8
#define IN_LANES(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l, i + 4, j + 4, k + 4, l + 4)
#else
#define IN_LANES(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#endif

/* Four rows: of each 128 bits columns become rows. */
QN_FN void turn_four(qn_f32 a[4])
{
  enum { N = QN_LANES };
  const qn_f32 low = IN_LANES(a[0], a[1], 0, N, 1, N + 1), low2 = IN_LANES(a[2], a[3], 0, N, 1, N + 1);
  const qn_f32 high = IN_LANES(a[0], a[1], 2, N + 2, 3, N + 3), high2 = IN_LANES(a[2], a[3], 2, N + 2, 3, N + 3);
  a[0] = IN_LANES(low, low2, 0, 1, N, N + 1);
  a[1] = IN_LANES(low, low2, 2, 3, N + 2, N + 3);
  a[2] = IN_LANES(high, high2, 0, 1, N, N + 1);
  a[3] = IN_LANES(high, high2, 2, 3, N + 2, N + 3);
}
#undef IN_LANES

/* As many rows as lanes: columns become rows. */
QN_FN void turn(qn_f32 a[QN_LANES])
{
  QN_UNROLL
  for (int r = 0; r < QN_LANES; r += 4) turn_four(a + r);
#if QN_LANES == 16
  qn_f32 to[16];
  QN_UNROLL
  for (int r = 0; r < 4; r++) {
#define BLOCKS(x, y, i, j)                                                                                             \
  __builtin_shufflevector(x, y, 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, 4 * j, 4 * j + 1, 4 * j + 2, 4 * j + 3,        \
                          4 * i + 16, 4 * i + 17, 4 * i + 18, 4 * i + 19, 4 * j + 16, 4 * j + 17, 4 * j + 18,          \
                          4 * j + 19)
    const qn_f32 even = BLOCKS(a[r], a[r + 4], 0, 2), odd = BLOCKS(a[r], a[r + 4], 1, 3);
    const qn_f32 even2 = BLOCKS(a[r + 8], a[r + 12], 0, 2), odd2 = BLOCKS(a[r + 8], a[r + 12], 1, 3);
    to[r] = BLOCKS(even, even2, 0, 2), to[r + 4] = BLOCKS(odd, odd2, 0, 2);
    to[r + 8] = BLOCKS(even, even2, 1, 3), to[r + 12] = BLOCKS(odd, odd2, 1, 3);
#undef BLOCKS
  }
  QN_UNROLL
  for (int r = 0; r < 16; r++) a[r] = to[r];
#elif QN_LANES == 8
  QN_UNROLL
  for (int r = 0; r < 4; r++) {
    const qn_f32 low = __builtin_shufflevector(a[r], a[r + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    a[r + 4] = __builtin_shufflevector(a[r], a[r + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    a[r] = low;
  }
#endif
}
#else
QN_FN void turn(qn_f32 a[1]) { (void)a; }
#endif

/* Vectors of the kernel for so many columns: all, half or one. */
static int64_t vectors_for(int64_t columns)
{
  return columns > QN_LANES * (VECTORS / 2) ? VECTORS : columns > QN_LANES ? VECTORS / 2 : 1;
}

/* A vector of a panel: a lane is a row of w, the last of `there` again where there are fewer. */
QN_FN void pack_vector(float *to, const void *w, int64_t pitch, int64_t first, int64_t there, int64_t depth, kind as)
{
  for (int64_t d = 0; d < depth; d += QN_LANES) {
    const int64_t n = least(QN_LANES, depth - d);
    qn_f32 a[QN_LANES];
    QN_UNROLL
    for (int r = 0; r < QN_LANES; r++) {
      const int64_t at = first + least(r, there - 1) * pitch + d;
      a[r] = n == QN_LANES ? load_operand(w, at, QN_LANES, as) : load_operand(w, at, n, as);
      if (there > QN_LANES) prefetch(w, first + least(r + QN_LANES, there - 1) * pitch + d, 1, as);
    }
    turn(a);
    QN_UNROLL
    for (int k = 0; k < QN_LANES; k++)
      if (k < n) qn_store_lanes(to + (d + k) * COLUMNS, QN_LANES, a[k]);
  }
}

/* Columns from `column` on of the tile and depth elements of k from k on: of w, into the tile's panels. */
QN_FN void pack_as(const qn_gemm_tile *t, int64_t column, int64_t columns, int64_t k, int64_t depth, kind as)
{
  const qn_gemm_args *a = &t->problem->args;
  float *to = t->w_panel;
  for (int64_t at = 0; at < columns; at += COLUMNS, to += COLUMNS * depth)
    for (int64_t v = 0; v < vectors_for(columns - at); v++) {
      const int64_t row = least(at + v * QN_LANES, columns - 1);
      pack_vector(to + v * QN_LANES, a->w, a->k, (t->column + column + row) * a->k + k, columns - row, depth, as);
    }
}

/* ---- the product ---- */

/* Sums of `rows` by `vectors` along depth elements, in registers; of them `there` by `columns` then into z, or added to
 * it. They leave the registers at once: a part of a vector is stored by a call, and what is alive across one is kept in
 * memory from the start. */
QN_FN void sums(int rows, int vectors, int64_t depth, const float *const x[ROWS], const float *w, float *z,
                int64_t pitch, bool add, int64_t there, int64_t columns)
{
  qn_f32 sum[ROWS][VECTORS];
  _Alignas(64) float of[ROWS][COLUMNS];
  QN_UNROLL
  for (int r = 0; r < rows; r++) QN_UNROLL
  for (int v = 0; v < vectors; v++) sum[r][v] = qn_splat(0.0f);
  for (int64_t k = 0; k < depth; k++, w += COLUMNS) {
    qn_f32 row[VECTORS];
    QN_UNROLL
    for (int v = 0; v < vectors; v++) row[v] = qn_load_lanes(w + v * QN_LANES, QN_LANES);
    QN_UNROLL
    for (int r = 0; r < rows; r++) QN_UNROLL
    for (int v = 0; v < vectors; v++) sum[r][v] = qn_fma(qn_splat(x[r][k]), row[v], sum[r][v]);
  }
  QN_UNROLL
  for (int r = 0; r < rows; r++) QN_UNROLL
  for (int v = 0; v < vectors; v++) qn_store_lanes(of[r] + v * QN_LANES, QN_LANES, sum[r][v]);
  for (int r = 0; r < least(rows, there); r++, z += pitch)
    for (int64_t c = 0; c < least(vectors * QN_LANES, columns); c += QN_LANES) {
      const int64_t n = columns - c;
      const qn_f32 more = qn_load_lanes(of[r] + c, QN_LANES);
      qn_store_lanes(z + c, n, add ? qn_load_lanes(z + c, n) + more : more);
    }
}

/* With no more rows and vectors than there are, about. */
static void multiply(int64_t depth, const float *const x[ROWS], const float *w, float *z, int64_t pitch, bool add,
                     int64_t rows, int64_t columns)
{
  const int64_t vectors = vectors_for(columns);
  if (vectors == VECTORS && rows > ROWS / 2)
    sums(ROWS, VECTORS, depth, x, w, z, pitch, add, rows, columns);
  else if (vectors == VECTORS)
    sums(ROWS / 2, VECTORS, depth, x, w, z, pitch, add, rows, columns);
  else if (vectors == VECTORS / 2)
    sums(ROWS, VECTORS / 2, depth, x, w, z, pitch, add, rows, columns);
  else
    sums(ROWS, 1, depth, x, w, z, pitch, add, rows, columns);
}

/* Sums of some columns along some of k, past whose panels rows of x go: where they lie, or, where they do not come into
 * registers as they are, copied. */
QN_FN void block_as(const qn_gemm_tile *t, int64_t column, int64_t columns, int64_t k, int64_t depth, kind as)
{
  _Alignas(64) float near[ROWS * QN_GEMM_DEPTH];
  const qn_gemm_args *a = &t->problem->args;
  pack_as(t, column, columns, k, depth, as);
  for (int64_t r = 0; r < t->rows; r += ROWS) {
    const int64_t rows = least(ROWS, t->rows - r), first = (t->row + r) * a->k + k;
    const float *x[ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
      const int64_t at = first + least(i, rows - 1) * a->k; /* what is missing is computed in vain */
      x[i] = as == AS_THEY_ARE ? (const float *)a->x + at : near + i * QN_GEMM_DEPTH;
      if (as != AS_THEY_ARE) copy_as(near + i * QN_GEMM_DEPTH, a->x, at, depth, as);
      if (r + ROWS + i < t->rows) prefetch(a->x, first + (ROWS + i) * a->k, depth, as);
    }
    for (int64_t c = 0; c < columns; c += COLUMNS)
      multiply(depth, x, t->w_panel + c * depth, qn_gemm_sum_of(t, t->row + r, t->column + column + c), t->z_pitch,
               k > 0, rows, columns - c);
  }
}

static void block(const qn_gemm_tile *t, int64_t column, int64_t columns, int64_t k, int64_t depth)
{
  switch (kind_of(t->problem)) {
  case AS_THEY_ARE: block_as(t, column, columns, k, depth, AS_THEY_ARE); break;
  case AS_TF32: block_as(t, column, columns, k, depth, AS_TF32); break;
  case AS_BF16: block_as(t, column, columns, k, depth, AS_BF16); break;
  case FROM_BF16: block_as(t, column, columns, k, depth, FROM_BF16); break;
  }
}

static void product(const qn_gemm_tile *t)
{
  const int64_t all = t->problem->args.k;
  for (int64_t c = 0; c < t->columns; c += QN_GEMM_PANEL_COLUMNS)
    for (int64_t k = 0; k < all || k == 0; k += QN_GEMM_DEPTH) /* where there is no depth, one block: zeros */
      block(t, c, least(QN_GEMM_PANEL_COLUMNS, t->columns - c), k, least(QN_GEMM_DEPTH, all - k));
}

/* ---- vectors along k, straight from memory ---- */

/* Elements of k along which so many rows of w stay in the first cache while rows of x go by. */
enum { DIRECT_COLUMNS = 4, DIRECT_DEPTH = 1024 };

/* Columns [column, column + columns) and elements [k, k + depth) of k. */
typedef struct direct_block {
  int64_t column, columns, k, depth;
} direct_block;

/* A step along k, of n elements, of rows of x and w of which k's first elements are at x_at and w_at. */
QN_FN void dot_step(const qn_gemm_args *a, const int64_t x_at[DIRECT_ROWS], const int64_t w_at[DIRECT_COLUMNS],
                    int rows, int64_t k, int64_t n, kind as, qn_f32 sum[DIRECT_ROWS][DIRECT_COLUMNS])
{
  qn_f32 x[DIRECT_ROWS];
  QN_UNROLL
  for (int r = 0; r < rows; r++) x[r] = load_operand(a->x, x_at[r] + k, n, as);
  QN_UNROLL
  for (int c = 0; c < DIRECT_COLUMNS; c++) {
    const qn_f32 w = load_operand(a->w, w_at[c] + k, n, as);
    QN_UNROLL
    for (int r = 0; r < rows; r++) sum[r][c] = qn_fma(x[r], w, sum[r][c]);
  }
}

/* As many sums in registers as `rows` rows of x and DIRECT_COLUMNS of w have; of columns, what is missing is computed
 * in vain. */
QN_FN void dots(const qn_gemm_tile *t, int64_t row, int rows, const direct_block *b, kind as)
{
  const qn_gemm_args *a = &t->problem->args;
  qn_f32 sum[DIRECT_ROWS][DIRECT_COLUMNS];
  int64_t x_at[DIRECT_ROWS], w_at[DIRECT_COLUMNS], k = 0;
  QN_UNROLL
  for (int r = 0; r < rows; r++) x_at[r] = (row + r) * a->k + b->k;
  QN_UNROLL
  for (int c = 0; c < DIRECT_COLUMNS; c++) w_at[c] = (b->column + least(c, b->columns - 1)) * a->k + b->k;
  QN_UNROLL
  for (int r = 0; r < rows; r++) QN_UNROLL
  for (int c = 0; c < DIRECT_COLUMNS; c++) sum[r][c] = qn_splat(0.0f);
  for (; k + QN_LANES <= b->depth; k += QN_LANES) dot_step(a, x_at, w_at, rows, k, QN_LANES, as, sum);
  if (b->depth % QN_LANES) dot_step(a, x_at, w_at, rows, k, b->depth % QN_LANES, as, sum);
  float of[DIRECT_ROWS][DIRECT_COLUMNS];
  QN_UNROLL
  for (int r = 0; r < rows; r++) sums_of_lanes(of[r], sum[r]);
  for (int r = 0; r < rows; r++) {
    float *z = qn_gemm_sum_of(t, row + r, b->column);
    for (int c = 0; c < least(DIRECT_COLUMNS, b->columns); c++) z[c] = b->k > 0 ? z[c] + of[r][c] : of[r][c];
  }
}

QN_FN void dots_of_rows(const qn_gemm_tile *t, const direct_block *b, kind as)
{
  const int64_t end = t->row + t->rows;
  int64_t r = t->row;
#if QN_LANES == 16
  for (; r + DIRECT_ROWS <= end && end - r != 8; r += DIRECT_ROWS) dots(t, r, DIRECT_ROWS, b, as);
  for (; r + 4 <= end; r += 4) dots(t, r, 4, b, as); /* eight are twice four */
#else
  for (; r + DIRECT_ROWS <= end; r += DIRECT_ROWS) dots(t, r, DIRECT_ROWS, b, as);
#endif
  if (r + 2 <= end) dots(t, r, 2, b, as), r += 2;
  if (r < end) dots(t, r, 1, b, as);
}

QN_FN void direct_as(const qn_gemm_tile *t, kind as)
{
  const int64_t all = t->problem->args.k;
  for (int64_t k = 0; k < all || k == 0; k += DIRECT_DEPTH)
    for (int64_t c = 0; c < t->columns; c += DIRECT_COLUMNS)
      dots_of_rows(
          t,
          &(direct_block){
              .column = t->column + c, .columns = t->columns - c, .k = k, .depth = least(DIRECT_DEPTH, all - k)},
          as);
}

static void direct(const qn_gemm_tile *t)
{
  switch (kind_of(t->problem)) {
  case AS_THEY_ARE: direct_as(t, AS_THEY_ARE); break;
  case AS_TF32: direct_as(t, AS_TF32); break;
  case AS_BF16: direct_as(t, AS_BF16); break;
  case FROM_BF16: direct_as(t, FROM_BF16); break;
  }
}
#endif
