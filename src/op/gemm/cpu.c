/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - a GEMM on the processor: the result cut into tiles, which the pool's threads take one by one, each with a
 * slot of the lent workspace for what it packs. Where a tile can hold whole groups of the norm, it is finished while it
 * is in the cache; wider groups get a second pass. The arithmetic is the tier's (gemm_norm.cpu.c). */
#include "op/gemm/cpu.h"
#include "core/core.h"
#include <stdatomic.h>
#include <string.h>

enum { ROWS_MOST = 384, COLUMNS_MOST = 256, GROUP_MOST = 1024, TILES_WANTED = 32 };

typedef struct cut {
  int64_t rows, columns; /* of a tile; the last ones have fewer */
  int64_t down, across;  /* tiles */
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

/* As large as the second cache holds twice; smaller ones where there would be too few for many threads. */
static cut cut_of(const qn_gemm_problem *p)
{
  const qn_gemm_args *a = &p->args;
  cut c = {.rows = least(a->m, ROWS_MOST)};
  c.holds_groups = qn_gemm_norm_of(p->flags) == QN_GEMM_NO_NORM || a->columns <= GROUP_MOST;
  const bool groups = c.holds_groups && qn_gemm_norm_of(p->flags) != QN_GEMM_NO_NORM;
  for (int64_t wanted = COLUMNS_MOST; wanted >= 64; wanted /= 2) {
    c.columns = columns_of(a, groups, wanted);
    c.down = over(a->m, c.rows), c.across = over(a->n, c.columns);
    if (c.down * c.across >= TILES_WANTED) break;
  }
  return c;
}

/* ---- the workspace: flags of slots, the slots, and the sums where y cannot hold them ---- */

typedef struct space {
  size_t slots, slot_bytes, flag_bytes, z_bytes;
} space;

static size_t whole(size_t bytes) { return (bytes + 63) / 64 * 64; }

static space space_of(const qn_gemm_problem *p, const cut *c, const qn_exec *exec)
{
  const size_t panels = (size_t)(c->rows + c->columns + 2 * QN_GEMM_PAD) * QN_GEMM_DEPTH * sizeof(float);
  const size_t threads = (size_t)qn_pool_threads(exec->pool), tiles = (size_t)(c->down * c->across);
  space s = {.slots = threads < tiles ? threads : tiles, .slot_bytes = whole(panels)};
  s.flag_bytes = whole(s.slots * sizeof(atomic_uint));
  s.z_bytes = p->short_data ? whole((size_t)p->args.m * (size_t)p->args.n * sizeof(float)) : 0;
  return s;
}

size_t qn_gemm_cpu_workspace(const qn_gemm_problem *problem, const qn_exec *exec)
{
  const cut c = cut_of(problem);
  const space s = space_of(problem, &c, exec);
  return s.flag_bytes + s.slots * s.slot_bytes + s.z_bytes + 64; /* lent memory is aligned to 16 only */
}

typedef struct job {
  const qn_gemm_problem *problem;
  cut cut;
  space space;
  atomic_uint *taken; /* a flag a slot */
  char *slots;
  float *z;
  qn_gemm_cpu_fn *tier;
} job;

/* No more tiles are in work than the pool has threads, so one is free. */
static size_t take_slot(const job *j)
{
  for (size_t k = 0;; k = (k + 1) % j->space.slots)
    if (!atomic_exchange_explicit(&j->taken[k], 1, memory_order_acquire)) return k;
}

static void run_tile(void *user, size_t k)
{
  const job *j = user;
  const qn_gemm_args *a = &j->problem->args;
  const int64_t row = (int64_t)k % j->cut.down * j->cut.rows, column = (int64_t)k / j->cut.down * j->cut.columns;
  const size_t slot = take_slot(j);
  float *panel = (float *)(void *)(j->slots + slot * j->space.slot_bytes);
  j->tier(&(qn_gemm_tile){.problem = j->problem,
                          .row = row,
                          .rows = least(j->cut.rows, a->m - row),
                          .column = column,
                          .columns = least(j->cut.columns, a->n - column),
                          .z = j->z,
                          .x_panel = panel,
                          .w_panel = panel + (j->cut.rows + QN_GEMM_PAD) * QN_GEMM_DEPTH,
                          .product = true,
                          .norm = j->cut.holds_groups});
  atomic_store_explicit(&j->taken[slot], 0, memory_order_release);
}

static void run_row(void *user, size_t k)
{
  const job *j = user;
  j->tier(&(qn_gemm_tile){
      .problem = j->problem, .row = (int64_t)k, .rows = 1, .columns = j->problem->args.n, .z = j->z, .norm = true});
}

qn_status qn_gemm_cpu_run(const qn_gemm_problem *problem, const qn_exec *exec)
{
  static qn_gemm_cpu_fn *const tiers[QN_TIER_COUNT] = QN_CPU_TABLE(gemm_norm);
  const void *table[QN_TIER_COUNT];
  qn_tier tier;
  for (size_t k = 0; k < QN_TIER_COUNT; k++) table[k] = tiers[k] ? tiers : NULL;
  qn_try(qn_tier_choose(table, &tier));
  job j = {.problem = problem, .cut = cut_of(problem), .tier = tiers[tier]};
  j.space = space_of(problem, &j.cut, exec);
  char *at = (char *)exec->workspace + (64 - (uintptr_t)exec->workspace % 64) % 64;
  j.taken = (atomic_uint *)(void *)at;
  j.slots = at + j.space.flag_bytes;
  j.z = problem->short_data ? (float *)(void *)(j.slots + j.space.slots * j.space.slot_bytes) : problem->args.y;
  for (size_t k = 0; k < j.space.slots; k++) atomic_init(&j.taken[k], 0);
  qn_pool_run(exec->pool, (size_t)(j.cut.down * j.cut.across), run_tile, &j);
  if (!j.cut.holds_groups) qn_pool_run(exec->pool, (size_t)problem->args.m, run_row, &j);
  return QN_OK;
}
