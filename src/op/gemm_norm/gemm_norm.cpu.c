/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_norm.cpu.c - one tile of a matrix product with its epilogue; built once a tier.
 *
 * Blocks of 256 of k: rows of x and of w are packed into panels, in which a step along k lies side by side, and a
 * kernel that holds ROWS by VECTORS sums in registers runs along each pair of panels. Few rows are multiplied straight
 * from memory, in vectors along k. Operands are rounded as the precision class says; the x3 classes, which stand for
 * f32 on tensor cores, are plain f32 here. Behind the last block come biases, clamp and activation, then the norm, on
 * what the cache still has. */
#include "op/gemm_norm/cpu.h"
#ifndef QN_ORACLE /* its double form is the checks' own (reference.c) */
#include "base/for_packs.h"
#include "op/gemm_norm/gemm_norm.math.h"

qn_gemm_cpu_fn QN_CPU_NAME(gemm_norm);

/* The sums that the kernel holds, in rows of x and vectors along n: as many as the registers have room for, beside what
 * a step along k loads. */
#if QN_LANES == 16
enum { ROWS = 12, VECTORS = 2 };
#elif QN_LANES == 8
enum { ROWS = 6, VECTORS = 2 };
#elif QN_LANES == 4
enum { ROWS = 8, VECTORS = 2 };
#else
enum { ROWS = 4, VECTORS = 4 };
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
QN_FN void store_sums(float *to, const qn_f32 of[4])
{
  const four a = fold(of[0]), b = fold(of[1]), c = fold(of[2]), d = fold(of[3]);
  const four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const four sums = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  __builtin_memcpy(to, &sums, sizeof sums);
}
#else
QN_FN float sum_of_lanes(qn_f32 x) { return x; }
QN_FN void store_sums(float *to, const qn_f32 of[4]) { __builtin_memcpy(to, of, 4 * sizeof *to); }
#endif

/* ---- packing ---- */

typedef qn_u32 four_bits __attribute__((vector_size(16)));
typedef qn_u16 four_halves __attribute__((vector_size(8)));

QN_FN four load_four(const void *from, int64_t element, bool is_short)
{
  four x;
  four_halves h;
  if (!is_short) {
    __builtin_memcpy(&x, (const float *)from + element, sizeof x);
    return x;
  }
  __builtin_memcpy(&h, (const qn_u16 *)from + element, sizeof h);
  return (four)(__builtin_convertvector(h, four_bits) << 16);
}

QN_FN float load_one(const void *from, int64_t element, bool is_short)
{
  return is_short ? qn_bf16_float(((const qn_u16 *)from)[element]) : ((const float *)from)[element];
}

/* Four rows of a panel, `width` wide, or the first two of them, from as many rows of the matrix: depth elements of
 * each. */
QN_FN void pack_rows(float *to, int64_t width, const void *from, int64_t first, int64_t pitch, int64_t depth,
                     bool is_short, int rows)
{
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4, to += 4 * width) {
    if (k % 16 == 0) /* of the next rows, whose first lines no prefetcher of the processor knows */
      for (int row = rows; row < 2 * rows; row++)
        __builtin_prefetch((const char *)from + (first + row * pitch + k) * (is_short ? 2 : 4));
    four a[4];
    QN_UNROLL
    for (int row = 0; row < 4; row++) a[row] = load_four(from, first + row % rows * pitch + k, is_short);
    const four ab = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5),
               cd = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
    const four ab2 = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
    const four cd2 = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
    const four turned[4] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                            __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5),
                            __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7)};
    QN_UNROLL
    for (int step = 0; step < 4; step++) __builtin_memcpy(to + step * width, &turned[step], (size_t)rows * sizeof *to);
  }
  for (; k < depth; k++, to += width)
    for (int row = 0; row < rows; row++) to[row] = load_one(from, first + row * pitch + k, is_short);
}

/* Rows [row, row + rows) and depth elements from k on of a matrix, as panels of `width` rows; what is missing of the
 * last one is 0. */
QN_FN void pack_as(float *to, int64_t width, const void *from, int64_t pitch, int64_t row, int64_t rows, int64_t k,
                   int64_t depth, bool is_short)
{
  for (int64_t at = 0; at < rows; at += width, to += width * depth) {
    const int64_t there = least(width, rows - at), first = (row + at) * pitch + k;
    if (there < width) __builtin_memset(to, 0, (size_t)(width * depth) * sizeof *to);
    int64_t r = 0;
    for (; r + 4 <= there; r += 4) pack_rows(to + r, width, from, first + r * pitch, pitch, depth, is_short, 4);
    for (; r + 2 <= there; r += 2) pack_rows(to + r, width, from, first + r * pitch, pitch, depth, is_short, 2);
    for (; r < there; r++)
      for (int64_t d = 0; d < depth; d++) to[d * width + r] = load_one(from, first + r * pitch + d, is_short);
  }
}

/* As tf32: 11 bits, halves away from zero; as bf16: 8 bits, to nearest even. Infinities and NaN stay. */
QN_FN qn_bits rounded(qn_bits bits, bool tf32)
{
  qn_bits off = tf32 ? qn_splat_bits(0x1000u) : 0x7fffu + (bits >> 16 & 1u);
  qn_bits near = (bits + off) & (tf32 ? ~0x1fffu : 0xffff0000u);
  return qn_select_bits(qn_less_bits(bits & 0x7fffffffu, qn_splat_bits(0x7f800000u)), near, bits);
}

static void round_panels(float *panels, int64_t n, bool tf32)
{
  for (int64_t k = 0; k < n; k += QN_LANES)
    qn_store_lanes(panels + k, n - k, qn_f32_of(rounded(qn_bits_of(qn_load_lanes(panels + k, n - k)), tf32)));
}

/* Rows [row, row + rows) of a matrix, and of the tile's depth the block that begins at k. */
static void pack_block(const qn_gemm_tile *t, float *to, int64_t width, const void *from, int64_t row, int64_t rows,
                       int64_t k)
{
  const qn_gemm_problem *p = t->problem;
  const int64_t depth = least(QN_GEMM_DEPTH, t->depth - k), all = (rows + width - 1) / width * width;
  if (p->short_data)
    pack_as(to, width, from, p->args.k, row, rows, t->k + k, depth, true);
  else
    pack_as(to, width, from, p->args.k, row, rows, t->k + k, depth, false);
  if (qn_gemm_rounds(p)) round_panels(to, all * depth, p->precision == QN_GEMM_TF32);
}

/* The whole of the tile's depth, block after block, each `pad` wide. */
static void pack(const qn_gemm_tile *t, float *to, int64_t width, int64_t pad, const void *from, int64_t row,
                 int64_t rows)
{
  for (int64_t k = 0; k < t->depth; k += QN_GEMM_DEPTH) pack_block(t, to + k * pad, width, from, row, rows, k);
}

/* ---- the product ---- */

/* Sums of `rows` by `vectors` along depth elements, in registers; of them `there` by `columns` then into z, or added to
 * it. They leave the registers at once: a part of a vector is stored by a call, and what is alive across one is kept in
 * memory from the start. */
QN_FN void sums(int rows, int vectors, int64_t depth, const float *x, const float *w, float *z, int64_t pitch, bool add,
                int64_t there, int64_t columns)
{
  qn_f32 sum[ROWS][VECTORS];
  _Alignas(64) float of[ROWS][COLUMNS];
  QN_UNROLL
  for (int r = 0; r < rows; r++) QN_UNROLL
  for (int v = 0; v < vectors; v++) sum[r][v] = qn_splat(0.0f);
  for (; depth > 0; depth--, x += ROWS, w += COLUMNS) {
    qn_f32 row[VECTORS];
    QN_UNROLL
    for (int v = 0; v < vectors; v++) row[v] = qn_load_lanes(w + v * QN_LANES, QN_LANES);
    QN_UNROLL
    for (int r = 0; r < rows; r++) QN_UNROLL
    for (int v = 0; v < vectors; v++) sum[r][v] = qn_fma(qn_splat(x[r]), row[v], sum[r][v]);
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
static void multiply(int64_t depth, const float *x, const float *w, float *z, int64_t pitch, bool add, int64_t rows,
                     int64_t columns)
{
  if (columns > QN_LANES * (VECTORS / 2)) {
    if (rows > ROWS / 2)
      sums(ROWS, VECTORS, depth, x, w, z, pitch, add, rows, columns);
    else if (rows > ROWS / 4)
      sums(ROWS / 2, VECTORS, depth, x, w, z, pitch, add, rows, columns);
    else
      sums(ROWS / 4, VECTORS, depth, x, w, z, pitch, add, rows, columns);
  } else if (rows > ROWS / 2) {
    sums(ROWS, VECTORS / 2, depth, x, w, z, pitch, add, rows, columns);
  } else {
    sums(ROWS / 2, VECTORS / 2, depth, x, w, z, pitch, add, rows, columns);
  }
}

/* Of a strip, a block of whose rows of x stays in the second cache while panels of w go by. Its sums lie side by side
 * until k ends: the rows of z may be a power of two apart, and then few of them fit into a cache at once. */
enum { STRIP_ROWS = QN_GEMM_ROW_PAD * 4, STRIP_COLUMNS = QN_GEMM_STRIP_COLUMNS };

static void strip(const qn_gemm_tile *t, int64_t r0, int64_t c0)
{
  _Alignas(64) float kept[STRIP_ROWS * STRIP_COLUMNS];
  const int64_t rows = least(STRIP_ROWS, t->rows - r0), columns = least(STRIP_COLUMNS, t->columns - c0);
  float *z = qn_gemm_sum_of(t, t->row + r0, t->column + c0);
  const bool keeps = t->depth > QN_GEMM_DEPTH;
  float *to = keeps ? kept : z;
  const int64_t pitch = keeps ? STRIP_COLUMNS : t->z_pitch;
  for (int64_t k = 0; k < t->depth || k == 0; k += QN_GEMM_DEPTH) { /* where there is no depth, one block: zeros */
    const int64_t depth = least(QN_GEMM_DEPTH, t->depth - k);
    float *x = t->x_panel + (t->packs_x ? 0 : k * t->row_pad) + r0 * depth;
    const float *w = t->w_panel + k * t->column_pad + c0 * depth;
    const bool add = keeps ? k > 0 : t->k > 0;
    if (t->packs_x) pack_block(t, x, ROWS, t->problem->args.x, t->row + r0, rows, k);
    for (int64_t c = 0; c < columns; c += COLUMNS)
      for (int64_t r = 0; r < rows; r += ROWS)
        multiply(depth, x + r * depth, w + c * depth, to + r * pitch + c, pitch, add, rows - r, columns - c);
  }
  for (int64_t r = 0; keeps && r < rows; r++)
    for (int64_t c = 0; c < columns; c += QN_LANES) {
      const qn_f32 sum = qn_load_lanes(kept + r * STRIP_COLUMNS + c, columns - c);
      float *at = z + r * t->z_pitch + c;
      qn_store_lanes(at, columns - c, t->k > 0 ? qn_load_lanes(at, columns - c) + sum : sum);
    }
}

static void product(const qn_gemm_tile *t)
{
  for (int64_t r = 0; r < t->rows; r += STRIP_ROWS)
    for (int64_t c = 0; c < t->columns; c += STRIP_COLUMNS) strip(t, r, c);
}

/* ---- few rows: vectors along k, straight from memory ---- */

/* How an operand's elements come into registers. */
typedef enum kind { AS_THEY_ARE, AS_TF32, AS_BF16, FROM_BF16 } kind;

QN_FN qn_f32 load_operand(const void *from, int64_t at, int64_t n, kind as)
{
  if (as == FROM_BF16) return qn_widen_bf16(qn_bits_of_halves(qn_load_lanes_of_halves((const qn_u16 *)from + at, n)));
  const qn_f32 x = qn_load_lanes((const float *)from + at, n);
  return as == AS_THEY_ARE ? x : qn_f32_of(rounded(qn_bits_of(x), as == AS_TF32));
}

enum { DIRECT_ROWS = QN_LANES == 8 ? 3 : 4, DIRECT_COLUMNS = 4 }; /* AVX2 has 16 registers */

/* A step along k, of n elements. */
QN_FN void dot_step(const qn_gemm_args *a, qn_f32 sum[DIRECT_ROWS][DIRECT_COLUMNS], int64_t row, int rows,
                    int64_t column, int columns, int64_t k, int64_t n, kind as)
{
  qn_f32 x[DIRECT_ROWS];
  QN_UNROLL
  for (int r = 0; r < rows; r++) x[r] = load_operand(a->x, (row + r) * a->k + k, n, as);
  QN_UNROLL
  for (int c = 0; c < columns; c++) {
    const qn_f32 w = load_operand(a->w, (column + c) * a->k + k, n, as);
    QN_UNROLL
    for (int r = 0; r < rows; r++) sum[r][c] = qn_fma(x[r], w, sum[r][c]);
  }
}

/* Products of `rows` rows of x with `columns` of w, as many sums in registers. */
QN_FN void dots(const qn_gemm_tile *t, int64_t row, int rows, int64_t column, int columns, kind as)
{
  const qn_gemm_args *a = &t->problem->args;
  qn_f32 sum[DIRECT_ROWS][DIRECT_COLUMNS];
  int64_t k = 0;
  QN_UNROLL
  for (int r = 0; r < rows; r++) QN_UNROLL
  for (int c = 0; c < columns; c++) sum[r][c] = qn_splat(0.0f);
  for (; k + QN_LANES <= a->k; k += QN_LANES) dot_step(a, sum, row, rows, column, columns, k, QN_LANES, as);
  if (k < a->k) dot_step(a, sum, row, rows, column, columns, k, a->k - k, as);
  QN_UNROLL
  for (int r = 0; r < rows; r++) {
    float *z = qn_gemm_sum_of(t, row + r, column);
    if (columns == DIRECT_COLUMNS)
      store_sums(z, sum[r]);
    else
      *z = sum_of_lanes(sum[r][0]);
  }
}

QN_FN void dots_of_rows(const qn_gemm_tile *t, int64_t column, int columns, kind as)
{
  const int64_t end = t->row + t->rows;
  int64_t r = t->row;
  for (; r + DIRECT_ROWS <= end; r += DIRECT_ROWS) dots(t, r, DIRECT_ROWS, column, columns, as);
  switch (end - r) {
  case 1: dots(t, r, 1, column, columns, as); break;
  case 2: dots(t, r, 2, column, columns, as); break;
  case 3: dots(t, r, 3, column, columns, as); break;
  }
}

QN_FN void direct_as(const qn_gemm_tile *t, kind as)
{
  const int64_t end = t->column + t->columns;
  int64_t c = t->column;
  for (; c + DIRECT_COLUMNS <= end; c += DIRECT_COLUMNS) dots_of_rows(t, c, DIRECT_COLUMNS, as);
  for (; c < end; c++) dots_of_rows(t, c, 1, as);
}

static void direct(const qn_gemm_tile *t)
{
  const qn_gemm_problem *p = t->problem;
  if (p->short_data)
    direct_as(t, FROM_BF16);
  else if (!qn_gemm_rounds(p))
    direct_as(t, AS_THEY_ARE);
  else if (p->precision == QN_GEMM_TF32)
    direct_as(t, AS_TF32);
  else
    direct_as(t, AS_BF16);
}

/* ---- the epilogue: vectors along a row ---- */

/* Where elements of y go: there, or (NULL) back to their sums. */
typedef struct result {
  void *y;
  bool is_short;
} result;

static result result_of(const qn_gemm_tile *t, int64_t row, int64_t column)
{
  const qn_gemm_problem *p = t->problem;
  return (result){(char *)p->args.y + (row * p->args.n + column) * (p->short_data ? 2 : 4), p->short_data};
}

/* Its columns from j on, n of them or a vector. */
QN_FN void store_result(result to, int64_t j, int64_t n, qn_f32 x)
{
  if (to.is_short)
    qn_store_lanes_of_halves((qn_u16 *)to.y + j, n, qn_halves_of(qn_narrow_bf16(x)));
  else
    qn_store_lanes((float *)to.y + j, n, x);
}

/* Vectors of the epilogue, from the tile's first column on, and what else it asks for. */
typedef struct operands {
  const float *bias, *bias2;
  float lo, hi;
} operands;

/* Columns from j on, n of them or a vector. */
QN_FN void elements_from(operands of, qn_u32 flags, float *z, result to, int64_t j, int64_t n)
{
  qn_f32 bias = qn_splat(0.0f), bias2 = bias;
  if (flags & QN_GEMM_BIAS) bias = qn_load_lanes(of.bias + j, n);
  if (flags & QN_GEMM_BIAS2) bias2 = qn_load_lanes(of.bias2 + j, n);
  const qn_f32 v = qn_gemm_element(flags, qn_load_lanes(z + j, n), bias, bias2, of.lo, of.hi);
  if (to.y)
    store_result(to, j, n, v);
  else
    qn_store_lanes(z + j, n, v);
}

QN_FN void elements_as(const qn_gemm_tile *t, qn_u32 flags, int64_t row, bool last)
{
  const qn_gemm_args *a = &t->problem->args;
  const int64_t columns = t->columns;
  const operands of = {flags & QN_GEMM_BIAS ? a->bias + t->column : NULL,
                       flags & QN_GEMM_BIAS2 ? a->bias2 + t->column : NULL, a->lo, a->hi};
  const result to = last ? result_of(t, row, t->column) : (result){NULL, false};
  float *z = qn_gemm_sum_of(t, row, t->column);
  int64_t j = 0;
  for (; j + QN_LANES <= columns; j += QN_LANES) elements_from(of, flags, z, to, j, QN_LANES);
  if (j < columns) elements_from(of, flags, z, to, j, columns - j);
}

/* A loop for every activation, so that it is a constant in it. */
static void elements(const qn_gemm_tile *t, int64_t row, bool last)
{
  const qn_u32 rest = t->problem->flags & ~(qn_u32)QN_GEMM_ACTIVATION_MASK;
  switch (t->problem->flags & QN_GEMM_ACTIVATION_MASK) {
#define CASE(activation)                                                                                               \
  case activation: elements_as(t, rest | activation, row, last); break;
    CASE(QN_GEMM_NONE)
    CASE(QN_GEMM_RELU)
    CASE(QN_GEMM_GELU)
    CASE(QN_GEMM_GELU_TANH)
    CASE(QN_GEMM_SILU)
    CASE(QN_GEMM_MISH)
    CASE(QN_GEMM_SIGMOID)
    CASE(QN_GEMM_TANH)
#undef CASE
  }
}

/* Do elements stay as they are, where they are? */
static bool are_done(const qn_gemm_tile *t, bool last)
{
  const qn_u32 changes = QN_GEMM_ACTIVATION_MASK | QN_GEMM_CLAMPS | QN_GEMM_BIAS | QN_GEMM_BIAS2;
  return !(t->problem->flags & changes) && !(last && t->z != t->problem->args.y);
}

/* The sum of n numbers less their mean, or of the squares of that: lane by lane, then of the lanes. */
QN_FN float sum_of(const float *v, int64_t n, float mean, bool squares)
{
  static const qn_u32 lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  qn_f32 sums = qn_splat(0.0f);
  for (int64_t k = 0; k < n; k += QN_LANES) {
    qn_f32 x = qn_load_lanes(v + k, n - k) - qn_splat(mean);
    if (n - k < QN_LANES) {
      qn_bits lanes;
      __builtin_memcpy(&lanes, lane, sizeof lanes);
      x = qn_select(qn_less_bits(lanes, qn_splat_bits((qn_u32)(n - k))), x, qn_splat(0.0f));
    }
    sums = squares ? qn_fma(x, x, sums) : sums + x;
  }
  return sum_of_lanes(sums);
}

/* Columns from j on, n of them, as the norm leaves them. */
QN_FN void store_normed(const qn_gemm_tile *t, int64_t row, int64_t j, int64_t n, float mean, qn_f32 scale)
{
  const qn_gemm_args *a = &t->problem->args;
  const qn_u32 flags = t->problem->flags;
  qn_f32 gamma = qn_splat(1.0f), beta = qn_splat(0.0f);
  if (flags & QN_GEMM_GAMMA) gamma = qn_load_lanes(a->gamma + j, n);
  if (flags & QN_GEMM_BETA) beta = qn_load_lanes(a->beta + j, n);
  const qn_f32 v = qn_load_lanes(qn_gemm_sum_of(t, row, j), n);
  store_result(result_of(t, row, j), 0, n, qn_gemm_normed(flags, v, qn_splat(mean), scale, gamma, beta));
}

/* One group, whose first column is j. */
static void norm_group(const qn_gemm_tile *t, int64_t row, int64_t j)
{
  const qn_gemm_args *a = &t->problem->args;
  const float *v = qn_gemm_sum_of(t, row, j), columns = (float)a->columns;
  const float mean = qn_gemm_centres(t->problem->flags) ? sum_of(v, a->columns, 0.0f, false) / columns : 0.0f;
  const qn_f32 scale = qn_gemm_scale(qn_splat(sum_of(v, a->columns, mean, true)), columns, a->eps);
  for (int64_t k = 0; k < a->columns; k += QN_LANES) store_normed(t, row, j + k, a->columns - k, mean, scale);
}

/* All groups of some rows of the tile, where they are narrower than a vector: a group a lane. */
static void norm_narrow(const qn_gemm_tile *t, int64_t row, int64_t rows)
{
  const qn_gemm_args *a = &t->problem->args;
  const qn_u32 flags = t->problem->flags;
  const int64_t columns = a->columns, across = t->columns / columns, end = t->column + t->columns;
  int64_t r = row, c = 0; /* of the next group */
  while (r < row + rows) {
    float *at[QN_LANES], of[QN_LANES][QN_LANES];
    qn_f32 x[QN_LANES], mean = qn_splat(0.0f), squares = mean;
    int there = 0;
    for (; there < QN_LANES && r < row + rows; there++) {
      at[there] = qn_gemm_sum_of(t, r, t->column + c * columns);
      if (++c == across) c = 0, r++;
    }
    for (int g = there; g < QN_LANES; g++) at[g] = at[0];
    for (int64_t k = 0; k < columns; k++) {
      for (int64_t g = 0; g < QN_LANES; g++) of[k][g] = at[g][k];
      __builtin_memcpy(&x[k], of[k], sizeof x[k]);
      mean = mean + x[k];
    }
    mean = qn_gemm_centres(flags) ? mean / qn_splat((float)columns) : qn_splat(0.0f);
    for (int64_t k = 0; k < columns; k++) squares = qn_fma(x[k] - mean, x[k] - mean, squares);
    const qn_f32 scale = qn_gemm_scale(squares, (float)columns, a->eps);
    for (int64_t k = 0; k < columns; k++) {
      x[k] = (x[k] - mean) * scale;
      __builtin_memcpy(of[k], &x[k], sizeof x[k]);
      for (int64_t g = 0; g < there; g++) at[g][k] = of[k][g];
    }
  }
  for (r = row; r < row + rows; r++)
    for (int64_t j = t->column; j < end; j += QN_LANES) store_normed(t, r, j, end - j, 0.0f, qn_splat(1.0f));
}

static void finish(const qn_gemm_tile *t, bool elements_too)
{
  const qn_gemm_args *a = &t->problem->args;
  const bool norms = qn_gemm_norm_of(t->problem->flags) != QN_GEMM_NO_NORM, narrow = a->columns < QN_LANES;
  const int64_t end = t->row + t->rows, groups = t->columns / (narrow ? a->columns : 1);
  const int64_t at_once = norms && narrow && groups < QN_LANES ? (QN_LANES + groups - 1) / groups : 1;
  elements_too = elements_too && !are_done(t, !norms);
  for (int64_t row = t->row; row < end; row += at_once) {
    const int64_t rows = least(at_once, end - row);
    for (int64_t r = row; elements_too && r < row + rows; r++) elements(t, r, !norms);
    if (!norms || !t->norm) continue;
    if (narrow)
      norm_narrow(t, row, rows);
    else
      for (int64_t j = t->column; j < t->column + t->columns; j += a->columns) norm_group(t, row, j);
  }
}

void QN_CPU_NAME(gemm_norm)(const qn_gemm_tile *t)
{
  const qn_gemm_args *a = &t->problem->args;
  switch (t->work) {
  case QN_GEMM_PACK_X: pack(t, t->x_panel, ROWS, t->row_pad, a->x, t->row, t->rows); break;
  case QN_GEMM_PACK_W: pack(t, t->w_panel, COLUMNS, t->column_pad, a->w, t->column, t->columns); break;
  case QN_GEMM_PRODUCT:
    product(t);
    if (t->k + t->depth == a->k) finish(t, true);
    break;
  case QN_GEMM_DIRECT:
    direct(t);
    finish(t, true);
    break;
  case QN_GEMM_DIRECT_SUMS: direct(t); break;
  case QN_GEMM_FINISH: finish(t, true); break;
  case QN_GEMM_NORM: finish(t, false); break;
  }
}
#endif
