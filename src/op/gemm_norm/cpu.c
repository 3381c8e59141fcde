/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - a GEMM on the processor: the result cut into tiles, which the pool's threads take one by one. A tile packs
 * blocks of its columns of w into panels of its own, which its cache keeps while its rows of x go by. Few rows gain
 * nothing from that unless k is short, and are computed straight from x and w. Tiles of bf16 are wider than what a
 * cache keeps: first their rows and columns are packed for all of them, as deep along k as the lent workspace allows.
 * Where a tile can hold whole groups of the norm, it is finished while it is in the cache; wider groups get a pass of
 * their own. The arithmetic is the tier's (gemm_norm.cpu.c), and of the class bf16, where the processor has
 * instructions for it, theirs (gemm_norm.bf16.c). */
#include "op/gemm_norm/cpu.h"
#include "core/core.h"

enum {
  DIRECT_MOST = 80,    /* rows: beyond, packing pays */
  DIRECT_ROUNDED = 12, /* the same where operands are rounded, each again for every few rows */
  DIRECT_SHALLOW = 4,  /* and where k is short, and adding up lanes takes longer than packing */
  SHALLOW = 64,        /* columns of k */
  ROWS_LEAST = 48,     /* of a tile: fewer for LONG_PRODUCTS alone, which would be cut into fewer than TILES_LEAST */
  GROUP_MOST = 1024,   /* columns */
  TILES_WANTED = 16,   /* and one for each TILE_PRODUCTS, up to TILES_MOST */
  TILES_MOST = 64,
  TILE_PRODUCTS = 1 << 26,
  BF16_TILES_WANTED = 32,
  TILES_LEAST = 4,
  LONG_PRODUCTS = 1 << 22,
  BF16_LEAST = 4,              /* rows: fewer are read at memory's speed by vectors */
  BF16_PANELS_MOST = 15 << 20, /* elements: more is fresh memory at each call, where callers take it from malloc */
  BF16_DEPTH_MOST = 2048,
  SLOTS_MOST = 128, /* threads that compute tiles at once: beyond, they wait for each other */
  LINE = 16,        /* floats of a cache line */
  BLOCK = 32        /* rows and columns */
};

typedef struct cut {
  int64_t rows, columns;          /* of a tile; the last ones have fewer */
  int64_t down, across;           /* tiles */
  int64_t down_once, across_once; /* of those, what is packed at once */
  int64_t row_pad, column_pad;    /* of a tile's panels */
  int64_t depth;                  /* that is packed at once; of other tiers than bf16's, all */
  bool bf16;                      /* panels are of bf16 */
  bool direct;                    /* nothing is packed, and all rows are one tile's */
  bool w_stays;                   /* of a tier of bf16: x alone is packed, and all rows are one tile's */
  bool x_stays;                   /* likewise: w alone is, and all columns are */
  bool holds_groups;
  bool keeps_sums; /* a tile, to itself; else all of y has some */
  int64_t pitch;   /* of sums, from row to row */
  int64_t slots;   /* of what tiles keep to themselves, as many as are at work */
} cut;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

/* Columns of a tile near `wanted`: whole groups where they are narrow enough. */
static int64_t columns_of(const qn_gemm_args *a, bool groups, int64_t wanted)
{
  if (!groups) return least(wanted, a->n);
  return a->columns >= wanted ? a->columns : wanted / a->columns * a->columns;
}

/* The largest tiles of which there are enough for many threads: they are what keeps panels from being packed, or read,
 * again. */
static void cut_tiles(cut *c, const qn_gemm_args *a, bool groups)
{
  static const int sizes[2][9][2] = {
      /* rows, columns */
      {{768, 128}, {384, 128}, {384, 64}, {192, 64}, {192, 32}, {96, 32}, {48, 32}, {24, 32}, {24, 16}},
      {{384, 256}, {192, 256}, {192, 128}, {96, 128}, {96, 64}, {48, 64}, {48, 32}, {24, 32}, {24, 16}}};
  const bool is_long = a->m * a->n * a->k >= LONG_PRODUCTS;
  const int64_t wanted =
      c->bf16 ? BF16_TILES_WANTED : most(TILES_WANTED, least(TILES_MOST, a->m * a->n * a->k / TILE_PRODUCTS));
  for (size_t k = 0; k < 9; k++) {
    const int rows = sizes[c->bf16][k][0], columns = sizes[c->bf16][k][1];
    if (rows < ROWS_LEAST && (!is_long || c->down * c->across >= TILES_LEAST)) break;
    c->rows = least(a->m, rows);
    c->columns = columns_of(a, groups, columns);
    c->down = over(a->m, c->rows), c->across = over(a->n, c->columns);
    if (c->down * c->across >= wanted) break;
  }
}

/* A tile packs its columns of w itself, into panels of its own. */
static bool packs_own(const cut *c) { return !c->bf16 && !c->direct; }

static bool may_use_bf16(const qn_gemm_problem *p)
{
  return p->precision == QN_GEMM_BF16 && !p->alike && p->args.m >= BF16_LEAST;
}

static int64_t most_direct(const qn_gemm_problem *p)
{
  if (p->args.k <= SHALLOW) return DIRECT_SHALLOW;
  return qn_gemm_rounds(p) || p->short_data ? DIRECT_ROUNDED : DIRECT_MOST;
}

/* Of a tile whose x is read where it lies, 32 rows at a time; at most 96. */
static int64_t rows_that_stay(int64_t m)
{
  const int64_t blocks = m / (BF16_TILES_WANTED * 32);
  return 32 * least(blocks > 1 ? blocks : 1, 3);
}

/* A tile's sums stay in the cache, where a row of y is a power of two apart from the next or is bf16. That takes that
 * they are whole when they leave it. */
static void keep_sums(cut *c, const qn_gemm_problem *p)
{
  const bool whole = c->holds_groups && (c->direct || c->depth == p->args.k);
  const bool added = !c->direct && p->args.k > QN_GEMM_DEPTH;
  c->keeps_sums = whole && (c->bf16 || p->short_data || added);
  c->pitch = c->keeps_sums ? over(c->columns, BLOCK) * BLOCK + LINE : p->args.n; /* no multiple of much */
  c->slots = c->keeps_sums || packs_own(c) ? least(c->down * c->across, SLOTS_MOST) : 0;
}

/* Of bf16. */
static void cut_panels(cut *c, const qn_gemm_args *a)
{
  if (c->w_stays) c->rows = a->m, c->down = 1;
  if (c->x_stays) c->columns = a->n, c->across = 1, c->rows = rows_that_stay(a->m), c->down = over(a->m, c->rows);
  c->row_pad = over(c->rows, QN_GEMM_BF16_SIDE) * QN_GEMM_BF16_SIDE;
  c->column_pad = over(c->columns, BLOCK) * BLOCK;
  const int64_t most = BF16_PANELS_MOST;
  const int64_t blocks = most / (c->down * c->row_pad + c->across * c->column_pad) / QN_GEMM_DEPTH;
  c->depth = least(BF16_DEPTH_MOST, (blocks > 1 ? blocks : 1) * QN_GEMM_DEPTH);
  c->depth = c->w_stays || c->x_stays ? a->k : least(c->depth, a->k);
  if (c->depth < a->k && (c->row_pad + c->column_pad) * a->k <= most) {
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
  c.down_once = c.down, c.across_once = c.across, c.depth = a->k;
  if (bf16) cut_panels(&c, a);
  keep_sums(&c, p);
  return c;
}

/* ---- the workspace: panels, and the sums where y cannot hold them ---- */

/* Of a tile's panels that are packed for all, whole blocks of bf16, in floats. */
static int64_t panel(const cut *c, int64_t pad)
{
  return pad * over(c->depth, QN_GEMM_BF16_STEP) * QN_GEMM_BF16_STEP / 2;
}
static int64_t x_panel(const cut *c) { return c->bf16 && !c->x_stays ? panel(c, c->row_pad) : 0; }
static int64_t w_panel(const cut *c) { return c->bf16 && !c->w_stays ? panel(c, c->column_pad) : 0; }

static size_t panel_floats(const cut *c) { return (size_t)(c->down_once * x_panel(c) + c->across_once * w_panel(c)); }

/* Of what a tile keeps to itself: panels of w, then sums. */
static size_t own_panel_floats(const cut *c)
{
  const int64_t pad = over(c->columns, QN_GEMM_COLUMN_PAD) * QN_GEMM_COLUMN_PAD;
  return packs_own(c) ? (size_t)(least(pad, QN_GEMM_PANEL_COLUMNS) * over(least(c->depth, QN_GEMM_DEPTH), LINE) * LINE)
                      : 0;
}
static size_t slot_floats(const cut *c)
{
  return own_panel_floats(c) + (c->keeps_sums ? (size_t)(over(c->rows, BLOCK) * BLOCK * c->pitch) : 0);
}

/* Of panels, whole cache lines, and sums behind them. */
static size_t floats_of(const qn_gemm_problem *problem, const cut *c)
{
  const bool all = problem->short_data && !c->keeps_sums;
  return (size_t)over((int64_t)panel_floats(c), LINE) * LINE + (size_t)c->slots * slot_floats(c) +
         (all ? (size_t)problem->args.m * (size_t)problem->args.n : 0);
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
  float *x_panels, *w_panels, *slots, *z;
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
                        .norm = c->holds_groups,
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
  float *own = j->slots + slot * slot_floats(&j->cut);
  if (packs_own(&j->cut)) tile.w_panel = own;
  if (j->cut.keeps_sums) {
    tile.z = own + own_panel_floats(&j->cut);
    tile.z_row = tile.row, tile.z_column = tile.column, tile.z_whole = true;
  }
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
  j->slots = at + over((int64_t)panel_floats(&j->cut), LINE) * LINE;
  j->z = j->problem->short_data ? j->slots + (size_t)j->cut.slots * slot_floats(&j->cut) : (float *)j->problem->args.y;
}

/* Tiles of which there are as many panels as there is room for, of elements [k, k + depth). False: instructions of bf16
 * cannot do one. */
static bool run_some(job *j)
{
  const cut *c = &j->cut;
  const bool packs_x = c->bf16 && !c->x_stays, packs_w = c->bf16 && !c->w_stays;
  for (j->first_down = 0; j->first_down < c->down; j->first_down += c->down_once) {
    j->n_down = least(c->down_once, c->down - j->first_down);
    if (packs_x) qn_pool_run(j->pool, (size_t)j->n_down, pack_x, j);
    for (j->first_across = 0; j->first_across < c->across; j->first_across += c->across_once) {
      j->n_across = least(c->across_once, c->across - j->first_across);
      if (packs_w && (c->across_once < c->across || !j->first_down))
        qn_pool_run(j->pool, (size_t)j->n_across, pack_w, j);
      if (packs_x && packs_w && !qn_gemm_bf16_safe(j->lowest_x, j->lowest_w)) return false;
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
  for (j->k = 0; j->k < k || !j->k; j->k += j->cut.depth) {
    j->depth = least(j->cut.depth, k - j->k);
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
