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
  BF16_LEAST = 4,              /* rows: fewer are read at memory's speed by vectors */
  PANELS_MOST = 4 << 20,       /* floats */
  BF16_PANELS_MOST = 15 << 20, /* elements: more is fresh memory at each call, where callers take it from malloc */
  SLOTS_MOST = 128,            /* threads that compute tiles at once: beyond, they wait for each other */
  LINE = 16,                   /* floats of a cache line */
  BLOCK = 32                   /* rows and columns */
};

typedef struct cut {
  int64_t rows, columns;          /* of a tile; the last ones have fewer */
  int64_t down, across;           /* tiles */
  int64_t down_once, across_once; /* of those, what is packed at once */
  int64_t row_pad, column_pad;    /* of a tile's panels */
  int64_t depth;                  /* that is packed at once */
  bool bf16;                      /* panels are of bf16 */
  bool direct;                    /* nothing is packed, and all rows are one tile's */
  bool w_stays;                   /* of a tier of bf16: x alone is packed, and all rows are one tile's */
  bool x_stays;                   /* likewise: w alone is, and all columns are */
  bool tiles_pack_x;              /* all columns are one strip's */
  bool holds_groups;
  int64_t slots, pitch; /* of sums that tiles keep to themselves, as many as are at work; 0: all of y has some */
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

/* A tile's sums stay in the cache, where a row of y is a power of two apart from the next or is bf16. That takes that
 * they are whole when they leave it. */
static void keep_sums(cut *c, const qn_gemm_problem *p)
{
  const bool whole = c->holds_groups && (c->direct || c->depth == p->args.k);
  c->pitch = p->args.n;
  if (!whole || !(c->bf16 || p->short_data)) return;
  c->slots = least(c->down * c->across, SLOTS_MOST);
  c->pitch = over(c->columns, BLOCK) * BLOCK + LINE; /* no multiple of much */
}

static void cut_panels(cut *c, const qn_gemm_args *a)
{
  if (c->w_stays) c->rows = a->m, c->down = 1;
  if (c->x_stays) c->columns = a->n, c->across = 1, c->rows = rows_that_stay(a->m), c->down = over(a->m, c->rows);
  c->tiles_pack_x = !c->bf16 && c->across == 1 && c->columns <= QN_GEMM_STRIP_COLUMNS;
  const int64_t row_pad = c->bf16 ? QN_GEMM_BF16_SIDE : QN_GEMM_ROW_PAD;
  c->row_pad = over(c->rows, row_pad) * row_pad;
  c->column_pad = over(c->columns, QN_GEMM_COLUMN_PAD) * QN_GEMM_COLUMN_PAD;
  const int64_t most = c->bf16 ? BF16_PANELS_MOST : PANELS_MOST;
  const int64_t blocks = most / (c->down * c->row_pad + c->across * c->column_pad) / QN_GEMM_DEPTH;
  c->depth = least(QN_GEMM_DEPTH_MOST, (blocks > 1 ? blocks : 1) * QN_GEMM_DEPTH);
  c->depth = c->w_stays || c->x_stays ? a->k : least(c->depth, a->k);
  if (c->bf16 && c->depth < a->k && (c->row_pad + c->column_pad) * a->k <= most) {
    /* Some rows and columns along all of k, so that no sums of all of y are kept. */
    const int64_t of_row = c->row_pad * a->k, of_column = c->column_pad * a->k, half = most / 2 / of_row;
    c->depth = a->k;
    c->down_once = least(c->down, half > 1 ? half : 1);
    const int64_t rest = (most - c->down_once * of_row) / of_column;
    c->across_once = least(c->across, rest > 1 ? rest : 1); /* wide groups: a little more than the most */
  }
}

static cut cut_of(const qn_gemm_problem *p, bool bf16)
{
  const qn_gemm_args *a = &p->args;
  const bool norms = qn_gemm_norm_of(p->flags) != QN_GEMM_NO_NORM;
  cut c = {.bf16 = bf16,
           .direct = !bf16 && !p->alike && a->m <= most_direct(p),
           .w_stays = bf16 && a->m <= QN_GEMM_BF16_FEW,
           .x_stays = bf16 && a->m > QN_GEMM_BF16_FEW && a->n <= QN_GEMM_BF16_FEW,
           .holds_groups = !norms || a->columns <= GROUP_MOST};
  cut_tiles(&c, a, c.holds_groups && norms);
  c.down_once = c.down, c.across_once = c.across;
  if (!c.direct) cut_panels(&c, a);
  keep_sums(&c, p);
  return c;
}

/* ---- the workspace: panels, and the sums where y cannot hold them ---- */

/* Of a tile's panels, in floats. Those of bf16 are whole blocks. */
static int64_t panel(const cut *c, int64_t pad, int64_t depth)
{
  return c->bf16 ? pad * over(depth, QN_GEMM_BF16_STEP) * QN_GEMM_BF16_STEP / 2 : pad * depth;
}
static int64_t x_panel(const cut *c)
{
  return c->x_stays ? 0 : panel(c, c->row_pad, c->tiles_pack_x ? least(c->depth, QN_GEMM_DEPTH) : c->depth);
}
static int64_t w_panel(const cut *c) { return c->w_stays ? 0 : panel(c, c->column_pad, c->depth); }

static size_t panel_floats(const cut *c) { return (size_t)(c->down_once * x_panel(c) + c->across_once * w_panel(c)); }
static size_t slot_floats(const cut *c) { return (size_t)(over(c->rows, BLOCK) * BLOCK * c->pitch); }

/* Of panels, whole cache lines, and sums behind them. */
static size_t floats_of(const qn_gemm_problem *problem, const cut *c)
{
  const size_t all = problem->short_data ? (size_t)problem->args.m * (size_t)problem->args.n : 0;
  return over((int64_t)panel_floats(c), LINE) * LINE + (c->slots ? (size_t)c->slots * slot_floats(c) : all);
}

size_t qn_gemm_cpu_workspace(const qn_gemm_problem *problem, const qn_exec *exec)
{
  (void)exec;
  const cut c = cut_of(problem, false), bf16 = cut_of(problem, may_use_bf16(problem));
  const size_t all[] = {floats_of(problem, &c), floats_of(problem, &bf16)}, floats = all[all[0] < all[1]];
  return floats ? floats * sizeof(float) + 64 : 0; /* lent memory is aligned to 16 only */
}

typedef struct job {
  const qn_gemm_problem *problem;
  cut cut;
  int64_t k, depth;
  int64_t first_down, n_down, first_across, n_across; /* tiles whose panels there are */
  float *x_panels, *w_panels, *z;
  qn_gemm_cpu_fn *tier;
  qn_pool *pool;
  atomic_uint lowest_x, lowest_w;
  atomic_flag taken[SLOTS_MOST];
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
                        .z_pitch = c->pitch,
                        .x_panel = j->x_panels + (down - j->first_down) * x_panel(c),
                        .w_panel = j->w_panels + (across - j->first_across) * w_panel(c),
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

static void pack_x(void *user, size_t k)
{
  job *j = user;
  const qn_gemm_tile tile = tile_of(j, QN_GEMM_PACK_X, j->first_down + (int64_t)k, 0);
  j->tier(&tile);
}

static void pack_w(void *user, size_t k)
{
  job *j = user;
  const qn_gemm_tile tile = tile_of(j, QN_GEMM_PACK_W, 0, j->first_across + (int64_t)k);
  j->tier(&tile);
}

/* The lowest that is free, which the cache may still have. */
static size_t take_slot(job *j)
{
  for (size_t k = 0;; k = (k + 1) % (size_t)j->cut.slots)
    if (!atomic_flag_test_and_set_explicit(&j->taken[k], memory_order_acquire)) return k;
}

static void run_tile(void *user, size_t k)
{
  job *j = user;
  const int64_t down = j->first_down + (int64_t)k % j->n_down, across = j->first_across + (int64_t)k / j->n_down;
  qn_gemm_tile tile = tile_of(j, j->cut.direct ? QN_GEMM_DIRECT : QN_GEMM_PRODUCT, down, across);
  if (!j->cut.slots) {
    j->tier(&tile);
    return;
  }
  const size_t slot = take_slot(j);
  tile.z = j->z + slot * slot_floats(&j->cut);
  tile.z_row = tile.row, tile.z_column = tile.column, tile.z_whole = true;
  j->tier(&tile);
  atomic_flag_clear_explicit(&j->taken[slot], memory_order_release);
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
                          .z_pitch = j->problem->args.n,
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

/* Where panels and sums are. */
static void place(job *j, const qn_exec *exec)
{
  float *at = (float *)(void *)((char *)exec->workspace + (64 - (uintptr_t)exec->workspace % 64) % 64);
  j->w_panels = at; /* before those of x, whose size is no whole number of cache lines */
  j->x_panels = at + j->cut.across_once * w_panel(&j->cut);
  j->z = (float *)j->problem->args.y;
  if (j->problem->short_data || j->cut.slots) j->z = at + over((int64_t)panel_floats(&j->cut), LINE) * LINE;
}

/* Tiles of which there are as many panels as there is room for, of elements [k, k + depth). False: instructions of bf16
 * cannot do one. */
static bool run_some(job *j)
{
  const cut *c = &j->cut;
  const bool packs_x = !c->direct && !c->tiles_pack_x && !c->x_stays, packs_w = !c->direct && !c->w_stays;
  for (j->first_down = 0; j->first_down < c->down; j->first_down += c->down_once) {
    j->n_down = least(c->down_once, c->down - j->first_down);
    if (packs_x) qn_pool_run(j->pool, (size_t)j->n_down, pack_x, j);
    for (j->first_across = 0; j->first_across < c->across; j->first_across += c->across_once) {
      j->n_across = least(c->across_once, c->across - j->first_across);
      if (packs_w && (c->across_once < c->across || !j->first_down))
        qn_pool_run(j->pool, (size_t)j->n_across, pack_w, j);
      if (c->bf16 && packs_x && packs_w && !qn_gemm_bf16_safe(j->lowest_x, j->lowest_w)) return false;
      qn_pool_run(j->pool, (size_t)(j->n_down * j->n_across), run_tile, j);
    }
  }
  return true;
}

/* By a tier, in the cut that it takes. False: as above. */
static bool run_by(job *j, const qn_exec *exec, qn_tier tier)
{
  const int64_t k = j->problem->args.k;
  j->tier = tiers[tier];
  j->cut = cut_of(j->problem, qn_tier_of_bf16(tier));
  place(j, exec);
  const int64_t depth = j->cut.direct ? k : j->cut.depth;
  for (j->k = 0; j->k < k || !j->k; j->k += depth) {
    j->depth = least(depth, k - j->k);
    if (!run_some(j)) return false;
    if (!j->depth) break;
  }
  return true;
}

qn_status qn_gemm_cpu_run(const qn_gemm_problem *problem, const qn_exec *exec)
{
  qn_tier tier;
  qn_try(choose(problem, &tier));
  job j = {.problem = problem, .pool = exec->pool};
  atomic_init(&j.lowest_x, 0xffff);
  atomic_init(&j.lowest_w, 0xffff);
  for (size_t k = 0; k < SLOTS_MOST; k++) atomic_flag_clear(&j.taken[k]);
  if (!run_by(&j, exec, tier)) run_by(&j, exec, QN_TIER_AVX512);
  if (!j.cut.holds_groups) qn_pool_run(exec->pool, (size_t)problem->args.m, run_row, &j);
  return QN_OK;
}
