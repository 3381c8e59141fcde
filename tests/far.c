/* SPDX-License-Identifier: Apache-2.0 */
/* far.c - elements past 2^31 and 2^32 in every shape of launch geometry, where an index of 32 bits would show, without
 * the memory or the time of so many: tensors lie in memory that is promised and not there until it is touched, and of a
 * launch only the blocks at the far places run. The engine makes the launch as ever; the kernel that it finds, compiled
 * by the emulator, is replaced by a loop over those blocks. On a GPU `quern check` steps whole tensors
 * (leg_large.c).
 */
#include "core/core.h"
#include "device/emulator/emulator.h"
#include "op/device_variant.h"
#include "op/call.h"
#include "quern/quern.h"
#include "test.h"
#include <sys/mman.h>

enum { C, A, B, ROLES, CHOSEN = 16, WIDTH = 2 };
static const uint64_t two31 = UINT64_C(1) << 31, two32 = UINT64_C(1) << 32;
static const uint64_t room = (UINT64_C(1) << 33) + (UINT64_C(1) << 28); /* bytes of a role */
static char *memory[ROLES];

/* Where a role's elements are, in elements of its memory. */
typedef struct place {
  uint64_t first, pitch;
  int step;
} place;
typedef struct far {
  const char *name, *geometry; /* NULL: on the processor */
  uint64_t rows, cols;
  bool dense;
  place role[ROLES];
} far;

/* ---- the blocks that run ---- */
typedef void host_run(const void *, unsigned long long, unsigned long long, unsigned long long, unsigned);
static struct {
  host_run *run;
  uint64_t block[CHOSEN], stride; /* of blocks that stay: from one piece of work to the next; 0: they do not */
  size_t n, ran;
} chosen;

static void run_chosen(const void *argument, unsigned long long first, unsigned long long last,
                       unsigned long long blocks, unsigned threads)
{
  const size_t n = chosen.stride ? (first == 0) : chosen.n; /* one that stays goes on by itself */
  for (size_t k = 0; k < n; k++) {
    const uint64_t block = chosen.block[k];
    if (!chosen.stride && (block < first || block >= last)) continue;
    chosen.run(argument, block, block + 1, chosen.stride ? chosen.stride : blocks, threads);
    chosen.ran++;
  }
}

/* ---- which elements a block has: from what docs/tuning.md says of shapes ---- */
typedef struct cut {
  uint64_t tile, tiles, rows, blocks; /* columns, tiles of a row, rows of a block; in all */
} cut;

/* Rows that begin off a vector's boundary, all roles alike: a row's tiles begin on the boundary before it. */
static bool peels(const far *f, const qn_launch_shape *g)
{
  return g->shape != QN_LAUNCH_FLAT && f->dense && f->rows > 1 && f->cols % g->pack != 0;
}

static uint64_t before(const far *f, const qn_launch_shape *g, uint64_t row)
{
  return peels(f, g) ? row * f->cols % g->pack : 0;
}

static cut cut_of(const far *f, const qn_launch_shape *g)
{
  const uint64_t cols = f->cols + (peels(f, g) ? g->pack - 1 : 0);
  const uint64_t whole = (uint64_t)g->threads * g->pack * g->packs;
  uint64_t threads = 1;
  if (g->shape == QN_LAUNCH_FLAT) return (cut){whole, (f->rows * f->cols + whole - 1) / whole, 1, 0};
  while (threads < g->threads && threads * g->pack * g->packs < cols) threads *= 2;
  cut c = {threads * g->pack * g->packs, 1, g->threads / threads, 0};
  if (g->shape == QN_LAUNCH_TILES) c.tiles = (cols + c.tile - 1) / c.tile;
  c.blocks = (f->rows + c.rows - 1) / c.rows * c.tiles;
  return c;
}

static uint64_t block_of(const far *f, const qn_launch_shape *g, const cut *c, uint64_t element)
{
  if (g->shape == QN_LAUNCH_FLAT) return element / c->tile;
  const uint64_t row = element / f->cols, at = element % f->cols + before(f, g, row);
  const uint64_t tile = g->shape == QN_LAUNCH_TILES ? at / c->tile : 0;
  return row / c->rows * c->tiles + tile;
}

static void add_block(uint64_t block)
{
  for (size_t k = 0; k < chosen.n; k++)
    if (chosen.block[k] == block) return;
  chosen.block[chosen.n++] = block;
}

static void choose(const far *f, const qn_launch_shape *g)
{
  const uint64_t n = f->rows * f->cols, at[] = {0, two31 - 1, two31, two31 + 1, two32 - 1, two32, n - 1};
  const cut c = cut_of(f, g);
  const uint64_t last = block_of(f, g, &c, n - 1);
  chosen.n = chosen.ran = chosen.stride = 0;
  if (last < CHOSEN) /* rows that lie far apart */
    for (uint64_t k = 0; k <= last; k++) add_block(k);
  else if (g->persistent)
    for (uint64_t k = 3; k-- > 0;) add_block(last - k * (last / 2));
  else
    for (size_t k = 0; k < sizeof at / sizeof *at; k++)
      if (at[k] < n) add_block(block_of(f, g, &c, at[k]));
  if (g->persistent) chosen.stride = last < CHOSEN ? 1 : last / 2;
}

/* ---- their elements ---- */
typedef struct elements {
  uint64_t *at; /* row-major index */
  size_t n;
} elements;

static void add(elements *e, const far *f, uint64_t row, uint64_t from, uint64_t to)
{
  for (uint64_t col = from; row < f->rows && col < to && col < f->cols; col++) e->at[e->n++] = row * f->cols + col;
}

static elements elements_of(const far *f, const qn_launch_shape *g)
{
  const cut c = cut_of(f, g);
  const uint64_t of_row = g->shape == QN_LAUNCH_ROWS ? f->cols : c.tile;
  elements e = {malloc(chosen.n * (c.rows * of_row) * sizeof *e.at), 0};
  for (size_t k = 0; k < chosen.n; k++) {
    const uint64_t block = chosen.block[k], n = f->rows * f->cols;
    if (g->shape == QN_LAUNCH_FLAT)
      for (uint64_t at = block * c.tile; at < (block + 1) * c.tile && at < n; at++) e.at[e.n++] = at;
    for (uint64_t r = 0; g->shape != QN_LAUNCH_FLAT && r < c.rows; r++) {
      const uint64_t row = block / c.tiles * c.rows + r, tile = block % c.tiles, less = before(f, g, row);
      const uint64_t from = tile * c.tile, to = from + of_row;
      add(&e, f, row, from > less ? from - less : 0, g->shape == QN_LAUNCH_ROWS ? to : to - less);
    }
  }
  return e;
}

static char *address(const far *f, int role, uint64_t element)
{
  const place *p = &f->role[role];
  const uint64_t row = element / f->cols, col = element % f->cols;
  return memory[role] + (p->first + row * p->pitch + col * (uint64_t)p->step) * WIDTH;
}

/* Numbers into a and b there, and what the reference makes of them. */
static qn_status expect(const far *f, const elements *e, uint16_t *dense[ROLES])
{
  const int64_t shape = (int64_t)e->n;
  const qn_exec exec = {.size = sizeof exec};
  const qn_swiglu_params params = QN_SWIGLU_DEFAULTS;
  qn_tensor t[ROLES];
  uint32_t state = 1;
  for (int r = 0; r < ROLES; r++) {
    dense[r] = malloc(e->n * WIDTH);
    t[r] = (qn_tensor){dense[r], QN_BF16, 1, &shape, NULL, {QN_CPU, 0}};
    for (size_t k = 0; r != C && k < e->n; k++) {
      state = state * 1664525u + 1013904223u;
      dense[r][k] = (uint16_t)(0x3f00 + (state >> 24)); /* 0.5 to 2 */
      memcpy(address(f, r, e->at[k]), &dense[r][k], WIDTH);
    }
  }
  qn_try(qn_option_set("cpu", "ref"));
  const qn_status status = qn_swiglu_step(&exec, &params, 1, &t[C], &t[A], &t[B]);
  qn_option_set("cpu", NULL);
  return status;
}

/* ---- the step ---- */
static const qn_op *swiglu(void)
{
  const qn_op_info *info = NULL;
  return qn_op_find("swiglu", &info) == QN_OK ? qn_op_of(info) : NULL;
}

/* The function that the step will launch. */
static qn_status find_function(const far *f, const qn_launch_shape *g, qn_device_function **function)
{
  const qn_device_function *found;
  qn_list_variant v = {
      .op = swiglu(), .device = {QN_EMULATOR, 0}, .row = 1, .form = {.launch = *g, .pitched = !f->dense}};
  v.form.peel = peels(f, g);
  for (int r = 0; r < ROLES; r++)
    if (f->role[r].step == 2) v.form.steps |= 1u << r;
  for (int r = 0; r < ROLES && !v.form.steps && g->packs == 1; r++)
    v.form.each = v.form.each || (uintptr_t)(memory[r] + f->role[r].first * WIDTH) % 16 ||
                  (!f->dense && f->role[r].pitch * WIDTH % 16);
  v.form.lanes = g->shape != QN_LAUNCH_FLAT;
  while (v.form.lanes && 1u << (v.form.lanes - 1) < g->threads &&
         ((uint64_t)g->pack * g->packs << (v.form.lanes - 1)) < f->cols + (v.form.peel ? g->pack - 1 : 0))
    v.form.lanes++;
  if (v.form.steps) v.form.pairs = 3u << 4 * A | 2u << 4 * B, v.form.odds = 1u << B;
  qn_try(qn_cpu_tier(&v.tier));
  qn_try(qn_list_choose_capacity(&v, 1));
  qn_try(qn_list_find_function(&v, &found));
  *function = (qn_device_function *)found;
  return QN_OK;
}

static qn_status step(const far *f, qn_device device)
{
  const int64_t shape[] = {(int64_t)f->rows, (int64_t)f->cols};
  const qn_exec exec = {.size = sizeof exec, .device = device};
  const qn_swiglu_params params = QN_SWIGLU_DEFAULTS;
  int64_t strides[ROLES][2];
  qn_tensor t[ROLES];
  for (int r = 0; r < ROLES; r++) {
    const place *p = &f->role[r];
    strides[r][0] = (int64_t)p->pitch;
    strides[r][1] = p->step;
    t[r] = (qn_tensor){memory[r] + p->first * WIDTH, QN_BF16, 2, shape, strides[r], device};
  }
  return qn_swiglu_step(&exec, &params, 1, &t[C], &t[A], &t[B]);
}

static bool as_expected(const far *f, const elements *e, const uint16_t *want)
{
  for (size_t k = 0; k < e->n; k++) {
    uint16_t got;
    memcpy(&got, address(f, C, e->at[k]), WIDTH);
    if (got == want[k]) continue;
    printf("# element %llu of %llu x %llu: 0x%04x, must be 0x%04x\n", (unsigned long long)e->at[k],
           (unsigned long long)f->rows, (unsigned long long)f->cols, got, want[k]);
    return false;
  }
  return e->n > 0;
}

static qn_status run_blocks(const far *f, const qn_launch_shape *g)
{
  qn_device_function *function;
  qn_try(qn_option_set("launch_shape", f->geometry));
  qn_try(find_function(f, g, &function));
  chosen.run = function->run;
  function->run = run_chosen;
  const qn_status status = step(f, (qn_device){QN_EMULATOR, 0});
  function->run = chosen.run;
  return status;
}

static void run(const far *f)
{
  qn_launch_shape g = {.shape = QN_LAUNCH_ROWS, .threads = 64, .pack = 8, .packs = 1}; /* on the processor: all rows */
  uint16_t *dense[ROLES];
  if (f->geometry) qn_launch_shape_from_name(f->geometry, &g);
  choose(f, &g);
  elements e = elements_of(f, &g);
  qn_status status = expect(f, &e, dense);
  if (status == QN_OK) status = f->geometry ? run_blocks(f, &g) : step(f, (qn_device){QN_CPU, 0});
  const char *name = f->geometry ? f->geometry : "the processor";
  check(status == QN_OK && as_expected(f, &e, dense[C]), "%s, %s: %llu x %llu, %zu elements", name, f->name,
        (unsigned long long)f->rows, (unsigned long long)f->cols, e.n);
  if (f->geometry)
    check(chosen.ran == (g.persistent ? 1 : chosen.n) && strstr(qn_op_last_variant(), f->geometry),
          "%s: its kernel ran, where it was to", name);
  for (int r = 0; r < ROLES; r++) {
    free(dense[r]);
    madvise(memory[r], room, MADV_DONTNEED); /* zeros again */
  }
  free(e.at);
}

/* Both halves' columns in the memory of a. */
static void run_columns(const far *f)
{
  char *own = memory[B];
  memory[B] = memory[A];
  run(f);
  memory[B] = own;
}

static bool promise(void)
{
  for (int r = 0; r < ROLES; r++) {
    void *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    memory[r] = at;
  }
  return true;
}

#define DENSE(cols)                                                                                                    \
  {                                                                                                                    \
    {0, cols, 1}, {0, cols, 1}, { 0, cols, 1 }                                                                         \
  }

int main(void)
{
  const uint64_t n = two32 + 37, wide = two31 + 24;
  const far flat[] = {
      {"one row", "flat-256x8x1", 1, n, true, DENSE(n)},
      {"one row", "flat-64x8x4-p2", 1, n, true, DENSE(n)},
      {"one row", "tiles-128x8x1", 1, n, true, DENSE(n)},
      {"long rows", "tiles-64x8x2-p1", two32 / 14337 + 2, 14337, true, DENSE(14337)},
      {"a block a row", "rows-128x8x1", two32 / 1001 + 2, 1001, true, DENSE(1001)},
      {"many rows a block", "rows-256x8x1-p3", two32 / 70 + 2, 70, true, DENSE(70)},
  };
  const place far_rows[ROLES] = {{3, wide - 5, 1}, {1, wide, 1}, {0, two31 + 1, 1}};
  const char *const pitched[] = {"tiles-128x8x1", "rows-64x8x1-p1", NULL};
  if (!promise()) {
    skip("this system promises no 26 GB of memory that nobody touches");
    return test_end();
  }
  for (size_t k = 0; k < sizeof flat / sizeof *flat; k++) run(&flat[k]);
  for (size_t k = 0; k < sizeof pitched / sizeof *pitched; k++) {
    far f = {"rows far apart", pitched[k], 3, 5000, false, {far_rows[C], far_rows[A], far_rows[B]}};
    run(&f);
  }
  run_columns(&(far){
      "columns two apart", "tiles-256x8x1", 1, wide, false, {{0, wide, 1}, {0, two32 + 64, 2}, {1, two32 + 64, 2}}});
  qn_option_set("launch_shape", NULL);
  return test_end();
}
