/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - a GEMM on the processor: the result cut into tiles, which the pool's threads take one by one. First the
 * tiles' rows of x and columns of w are packed into panels in the lent workspace, as deep along k as it allows; then
 * each tile runs along its panels; and so on until k ends. Few rows gain nothing from that unless k is short, and are
 * computed straight from x and w; where few columns are one tile's, that packs its rows itself. Where a tile can hold
 * whole groups of the norm, it is finished while it is in the cache; wider groups get a pass of their own. The
 * arithmetic is the tier's (gemm_norm.cpu.c), and of the class bf16, where the processor has instructions for it,
 * theirs (gemm_norm.bf16.c). */
#include "op/gemm_norm/cpu.h"
#include "core/core.h"

enum {
  DIRECT_MOST = 40,    /* rows: beyond, packing pays */
  DIRECT_ROUNDED = 12, /* the same where operands are rounded, each again for every few rows */
  DIRECT_SHALLOW = 4,  /* and where k is short, and adding up lanes takes longer than packing */
  SHALLOW = 64,        /* columns of k */
  ROWS_MOST = 384,     /* of a tile; a multiple of what every tier holds in registers */
  COLUMNS_MOST = 256,
  GROUP_MOST = 1024, /* columns */
  TILES_WANTED = 32,
  TILES_LEAST = 4, /* the smallest sizes are for long sums that would be cut into fewer tiles */
  LONG_PRODUCTS = 1 << 22,
  BF16_LEAST = 4,       /* rows: fewer are read at memory's speed by vectors */
  PANELS_MOST = 4 << 20 /* floats */
};

typedef struct cut {
  int64_t rows, columns;       /* of a tile; the last ones have fewer */
  int64_t down, across;        /* tiles */
  int64_t row_pad, column_pad; /* of a tile's panels */
  int64_t depth;               /* that is packed at once */
  bool direct;                 /* nothing is packed, and all rows are one tile's */
  bool w_stays;                /* of a tier of bf16: x alone is packed, and all rows are one tile's */
  bool x_stays;                /* likewise: w alone is, and all columns are */
  bool tiles_pack_x;           /* all columns are one strip's */
  bool holds_groups;
} cut;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* Columns of a tile near `wanted`: whole groups where they are narrow enough. */
static int64_t columns_of(const qn_gemm_args *a, bool groups, int64_t wanted)
{
  if (!groups) return least(wanted, a->n);
  return a->columns >= wanted ? a->columns : wanted / a->columns * a->columns;
}

/* The largest tiles of which there are enough for many threads: they are what keeps panels from being read again. */
static void cut_tiles(cut *c, const qn_gemm_args *a, bool groups)
{
  static const struct {
    int rows, columns;
  } sizes[] = {
      {ROWS_MOST, COLUMNS_MOST},         {ROWS_MOST / 2, COLUMNS_MOST},      {ROWS_MOST / 2, COLUMNS_MOST / 2},
      {ROWS_MOST / 4, COLUMNS_MOST / 2}, {ROWS_MOST / 4, COLUMNS_MOST / 4},  {ROWS_MOST / 8, COLUMNS_MOST / 4},
      {ROWS_MOST / 8, COLUMNS_MOST / 8}, {ROWS_MOST / 16, COLUMNS_MOST / 8}, {ROWS_MOST / 16, COLUMNS_MOST / 16}};
  const bool is_long = a->m * a->n * a->k >= LONG_PRODUCTS;
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
    if (sizes[k].rows < ROWS_MOST / 8 && (!is_long || c->down * c->across >= TILES_LEAST)) break;
    c->rows = least(a->m, sizes[k].rows);
    c->columns = columns_of(a, groups, sizes[k].columns);
    c->down = over(a->m, c->rows), c->across = over(a->n, c->columns);
    if (c->down * c->across >= TILES_WANTED) break;
  }
}

static bool may_use_bf16(const qn_gemm_problem *p)
{
  return p->precision == QN_GEMM_BF16 && !p->alike && p->args.m >= BF16_LEAST;
}

static int64_t most_direct(const qn_gemm_problem *p)
{
  if (p->args.k <= SHALLOW) return DIRECT_SHALLOW;
  return qn_gemm_rounds(p) ? DIRECT_ROUNDED : DIRECT_MOST;
}

/* Of a tile whose x is read where it lies, 32 rows at a time; at most 96. */
static int64_t rows_that_stay(int64_t m)
{
  const int64_t blocks = m / (TILES_WANTED * 32);
  return 32 * least(blocks > 1 ? blocks : 1, 3);
}

static cut cut_of(const qn_gemm_problem *p, bool bf16)
{
  const qn_gemm_args *a = &p->args;
  const bool norms = qn_gemm_norm_of(p->flags) != QN_GEMM_NO_NORM;
  cut c = {.direct = !bf16 && !p->alike && a->m <= most_direct(p),
           .w_stays = bf16 && a->m <= QN_GEMM_BF16_FEW,
           .x_stays = bf16 && a->m > QN_GEMM_BF16_FEW && a->n <= QN_GEMM_BF16_FEW,
           .holds_groups = !norms || a->columns <= GROUP_MOST};
  cut_tiles(&c, a, c.holds_groups && norms);
  if (c.direct) return c;
  if (c.w_stays) c.rows = a->m, c.down = 1;
  if (c.x_stays) c.columns = a->n, c.across = 1, c.rows = rows_that_stay(a->m), c.down = over(a->m, c.rows);
  c.tiles_pack_x = !bf16 && c.across == 1 && c.columns <= QN_GEMM_STRIP_COLUMNS;
  c.row_pad = over(c.rows, QN_GEMM_ROW_PAD) * QN_GEMM_ROW_PAD;
  c.column_pad = over(c.columns, QN_GEMM_COLUMN_PAD) * QN_GEMM_COLUMN_PAD;
  const int64_t blocks = PANELS_MOST / (c.down * c.row_pad + c.across * c.column_pad) / QN_GEMM_DEPTH;
  c.depth = least(QN_GEMM_DEPTH_MOST, (blocks > 1 ? blocks : 1) * QN_GEMM_DEPTH);
  c.depth = c.w_stays || c.x_stays ? a->k : least(c.depth, a->k);
  return c;
}

/* ---- the workspace: panels, and the sums where y cannot hold them ---- */

/* Of a tile's panels. Those of the tiers of bf16 are whole blocks: more elements, of half the size. */
static int64_t x_panel(const cut *c)
{
  const int64_t depth = c->tiles_pack_x ? least(c->depth, QN_GEMM_DEPTH) : c->depth;
  return c->x_stays ? 0 : c->row_pad * over(depth, QN_GEMM_BF16_STEP) * QN_GEMM_BF16_STEP;
}
static int64_t w_panel(const cut *c)
{
  return c->w_stays ? 0 : c->column_pad * over(c->depth, QN_GEMM_BF16_STEP) * QN_GEMM_BF16_STEP;
}

static size_t panel_floats(const cut *c) { return (size_t)(c->down * x_panel(c) + c->across * w_panel(c)); }

size_t qn_gemm_cpu_workspace(const qn_gemm_problem *problem, const qn_exec *exec)
{
  (void)exec;
  const cut c = cut_of(problem, false), bf16 = cut_of(problem, may_use_bf16(problem));
  const size_t z = problem->short_data ? (size_t)problem->args.m * (size_t)problem->args.n : 0;
  const size_t panels = panel_floats(&c) > panel_floats(&bf16) ? panel_floats(&c) : panel_floats(&bf16);
  const size_t floats = panels + z;
  return floats ? floats * sizeof(float) + 64 : 0; /* lent memory is aligned to 16 only */
}

typedef struct job {
  const qn_gemm_problem *problem;
  cut cut;
  int64_t k, depth;
  float *x_panels, *w_panels, *z;
  qn_gemm_cpu_fn *tier;
  qn_pool *pool;
  atomic_uint lowest_x, lowest_w;
} job;

static qn_gemm_tile tile_of(job *j, qn_gemm_work work, int64_t down, int64_t across)
{
  const qn_gemm_args *a = &j->problem->args;
  const cut *c = &j->cut;
  const int64_t row = down * c->rows, column = across * c->columns;
  return (qn_gemm_tile){.problem = j->problem,
                        .work = work,
                        .row = row,
                        .rows = least(c->rows, a->m - row),
                        .column = column,
                        .columns = least(c->columns, a->n - column),
                        .z = j->z,
                        .x_panel = j->x_panels + down * x_panel(c),
                        .w_panel = j->w_panels + across * w_panel(c),
                        .k = j->k,
                        .depth = j->depth,
                        .row_pad = c->row_pad,
                        .column_pad = c->column_pad,
                        .norm = c->holds_groups,
                        .packs_x = c->tiles_pack_x,
                        .w_stays = c->w_stays,
                        .x_stays = c->x_stays,
                        .lowest_x = &j->lowest_x,
                        .lowest_w = &j->lowest_w};
}

/* That are packed before the tiles run. */
static int64_t panels_of_x(const cut *c) { return c->tiles_pack_x || c->x_stays ? 0 : c->down; }

static void pack(void *user, size_t k)
{
  job *j = user;
  const int64_t task = (int64_t)k, down = panels_of_x(&j->cut);
  const qn_gemm_tile tile =
      task < down ? tile_of(j, QN_GEMM_PACK_X, task, 0) : tile_of(j, QN_GEMM_PACK_W, 0, task - down);
  j->tier(&tile);
}

static void run_tile(void *user, size_t k)
{
  job *j = user;
  const int64_t task = (int64_t)k, down = j->cut.down;
  const qn_gemm_tile tile = tile_of(j, j->cut.direct ? QN_GEMM_DIRECT : QN_GEMM_PRODUCT, task % down, task / down);
  j->tier(&tile);
}

static void run_row(void *user, size_t k)
{
  const job *j = user;
  j->tier(&(qn_gemm_tile){.problem = j->problem,
                          .work = QN_GEMM_NORM,
                          .row = (int64_t)k,
                          .rows = 1,
                          .columns = j->problem->args.n,
                          .z = j->z,
                          .norm = true});
}

#ifdef QN_WITH_AVX512BF16
#define AVX512BF16 [QN_TIER_AVX512BF16] = qn_gemm_norm_cpu_avx512bf16,
#else
#define AVX512BF16
#endif
#ifdef QN_WITH_AMX
#define AMX [QN_TIER_AMX] = qn_gemm_norm_cpu_amx,
#else
#define AMX
#endif
static qn_gemm_cpu_fn *const tiers[QN_TIER_COUNT] = {AVX512BF16 AMX QN_CPU_TIERS(gemm_norm)};

static qn_status choose(const qn_gemm_problem *problem, qn_tier *tier)
{
  const void *table[QN_TIER_COUNT];
  for (qn_tier k = 0; k < QN_TIER_COUNT; k++) {
    const bool may = !qn_tier_of_bf16(k) || (may_use_bf16(problem) && qn_tier_runs_here(k));
    table[k] = tiers[k] && may && (k != QN_TIER_AMX || qn_tier_permit_amx()) ? "kernel" : NULL;
  }
  return qn_tier_choose(table, tier);
}

static void pack_all(job *j)
{
  const int64_t of_w = j->cut.w_stays ? 0 : j->cut.across;
  qn_pool_run(j->pool, (size_t)(panels_of_x(&j->cut) + of_w), pack, j);
}

qn_status qn_gemm_cpu_run(const qn_gemm_problem *problem, const qn_exec *exec)
{
  qn_tier tier;
  const qn_gemm_args *a = &problem->args;
  qn_try(choose(problem, &tier));
  job j = {.problem = problem, .cut = cut_of(problem, qn_tier_of_bf16(tier)), .tier = tiers[tier], .pool = exec->pool};
  atomic_init(&j.lowest_x, 0xffff);
  atomic_init(&j.lowest_w, 0xffff);
  float *at = (float *)(void *)((char *)exec->workspace + (64 - (uintptr_t)exec->workspace % 64) % 64);
  j.w_panels = at; /* before those of x, whose size is no whole number of cache lines */
  j.x_panels = j.w_panels + j.cut.across * w_panel(&j.cut);
  j.z = problem->short_data ? at + panel_floats(&j.cut) : a->y;
  const size_t tiles = (size_t)(j.cut.down * j.cut.across);
  if (j.cut.direct) qn_pool_run(exec->pool, tiles, run_tile, &j);
  for (; !j.cut.direct && (j.k < a->k || !j.k); j.k += j.cut.depth) {
    j.depth = least(j.cut.depth, a->k - j.k);
    pack_all(&j);
    if (qn_tier_of_bf16(tier) && !j.cut.w_stays && !j.cut.x_stays && !qn_gemm_bf16_safe(j.lowest_x, j.lowest_w)) {
      tier = QN_TIER_AVX512;
      j.tier = tiers[tier];
      pack_all(&j);
    }
    qn_pool_run(exec->pool, tiles, run_tile, &j);
    if (!j.depth) break;
  }
  if (!j.cut.holds_groups) qn_pool_run(exec->pool, (size_t)a->m, run_row, &j);
  return QN_OK;
}
