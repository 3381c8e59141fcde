/* SPDX-License-Identifier: Apache-2.0 */
/* device_list.c - one launch for a list of tensors. The pointers travel in the kernel's one parameter, so nothing is
 * uploaded, nothing is staged and a step that only moved its gradients costs a copy of their pointers. A list with more
 * tensors than a parameter holds (about 700 where driver and GPU take 32,764 bytes) becomes several launches.
 *
 * A block finds its tensor by binary search over the first blocks, which sit in the constant bank. How blocks are cut
 * is the launch shape (launch_shape.h); tensors that are not dense are rows of columns (view.h), and a launch's are
 * alike in which columns are two apart, because that is compiled in. */
#include "op/device_list.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "op/device_variant.h"
#include "op/tune.h"
#include "op/view.h"
#include "quern/device.h"
#include <stdatomic.h>
#include <string.h>

/* Of so few elements a launch takes as long as its first loads, and ragged ones are taken one by one: less code. */
enum { ARGUMENT_BYTES = 32764, SMALL_ELEMENTS = 1 << 17 };

static bool draws_random(const qn_op *op, uint32_t flags) { return (flags & op->random_flags) != 0; }

static qn_status tier_of(qn_device device, const char **tier)
{
  qn_tier of_compiler;
  *tier = NULL;
  if (device.kind != QN_EMULATOR) return QN_OK;
  qn_try(qn_tier_of_compiler(&of_compiler));
  *tier = qn_tier_name(of_compiler);
  return QN_OK;
}

/* ---- the launch shape ---- */

qn_launch_shape_key qn_list_key_of(const qn_list_run *run, bool counts)
{
  uint64_t most = 0, all = 0;
  size_t largest = 0;
  for (size_t k = 0; k < run->n; k++) {
    const uint64_t n = qn_tensor_elements(&run->tensors[0][k]);
    all += n;
    if (n > most) most = n, largest = k;
  }
  const qn_tensor *t = &run->tensors[0][largest];
  const uint64_t cols = t->ndim && most ? (uint64_t)t->shape[t->ndim - 1] : most;
  return (qn_launch_shape_key){.op = run->op,
                               .row = run->row,
                               .device = run->exec->device,
                               .rows = cols ? most / cols : 0,
                               .cols = cols,
                               .elements = all,
                               .dense = !run->strided && !run->by_rows,
                               .counts = counts};
}

qn_status qn_list_choose_shape(const qn_list_run *run, bool counts, qn_launch_shape *g, const char **why)
{
  const qn_launch_shape_key key = qn_list_key_of(run, counts);
  qn_try(qn_launch_shape_choose(&key, g, why));
  if (g->pack == 1 && draws_random(run->op, run->flags)) g->pack = 4; /* random words come by fours */
  if (key.dense || g->shape != QN_LAUNCH_FLAT) return QN_OK;
  g->shape = QN_LAUNCH_TILES;
  *why = run->strided ? "flat was asked for, which takes dense tensors only"
                      : "flat was asked for, which does not know rows";
  return QN_OK;
}

/* How a launch shape walks the tensors of a place. Tiles of tensors that are not dense do not care which row they are
 * of: there rows are merged as far as they go. */
static qn_view view_of(const qn_list_run *run, size_t k, const qn_launch_shape *g)
{
  qn_view v;
  const bool row_is_last = run->by_rows || !run->strided || g->shape == QN_LAUNCH_ROWS;
  if (row_is_last && qn_view_make(run->tensors, k, true, &v)) return v;
  if (run->strided && qn_view_make(run->tensors, k, false, &v)) return v;
  v = (qn_view){.rows = 1, .cols = qn_tensor_elements(&run->tensors[0][k])}; /* dense, in an order of its own */
  return v;
}

/* Which roles' columns are two apart, and which of those lie between another's. */
static void sign_place(const qn_list_run *run, size_t k, const qn_view *v, qn_list_form *form)
{
  const size_t roles = run->op->info.n_tensors;
  form->steps = form->pairs = form->odds = 0;
  for (size_t r = 0; r < roles; r++)
    if (run->tensors[r] && v->step[r] == 2) form->steps |= 1u << r;
  for (size_t r = 0; r < roles && form->steps; r++)
    for (size_t s = 0; s < roles; s++) {
      if (!(form->steps >> r & 1) || !(form->steps >> s & 1) || (form->odds >> r & 1)) continue;
      const qn_op_types *types = &run->op->info.types[run->row];
      if (types->tensor[r].access != types->tensor[s].access ||
          !qn_view_pairs(v, &run->tensors[r][k], r, &run->tensors[s][k], s))
        continue;
      form->pairs |= (uint32_t)(s + 1) << 4 * r | (uint32_t)(r + 1) << 4 * s;
      form->odds |= 1u << s;
      break;
    }
}

/* Elements that a row's first pack may lack, for which there must be threads. */
static uint64_t most_before(const qn_list_variant *v) { return v->form.peel ? v->form.launch.pack - 1 : 0; }

/* log2 of a row's threads: as many as it needs, a power of two and no more than a block's. */
static uint32_t row_threads(const qn_launch_shape *g, uint64_t cols)
{
  uint32_t shift = 0;
  while (1u << shift < g->threads && ((uint64_t)g->pack * g->packs << shift) < cols) shift++;
  return shift;
}

/* Do 32 bits hold every index of a lone tensor, also those of threads behind its end? A first pack that begins before
 * its row would need one below 0. */
static bool is_near(const qn_list_run *run, const qn_view *view, const qn_list_variant *v)
{
  const uint64_t limit = (uint64_t)1 << 31;
  const uint64_t behind = (uint64_t)v->form.launch.threads * v->form.launch.pack * v->form.launch.packs;
  const uint64_t rows = (view ? view->rows : 0) + v->form.launch.threads;
  if (v->capacity != 1 || v->form.peel || qn_tensor_elements(&run->tensors[0][0]) >= limit - behind) return false;
  for (size_t r = 0; view && r < run->op->info.n_tensors; r++) {
    const uint64_t pitch = v->form.pitched && run->tensors[r] ? view->pitch[r] : view->cols;
    if (view->cols >= limit / 4 || pitch >= limit / 2 / rows) return false;
  }
  return true;
}

/* How a lone tensor of every role is accessed: in nothing but whole packs on 16-byte boundaries, or, where a row is off
 * them or where the tensor is small and rows end in part of a pack, in single elements; and vectors of one are those,
 * of any list. view: NULL in a flat launch shape. */
static void sign_access(const qn_list_run *run, const qn_view *view, qn_list_variant *v)
{
  v->form.whole = false;
  v->form.each = v->form.launch.pack == 1;
  v->form.lanes = view && v->capacity == 1 ? 1 + row_threads(&v->form.launch, view->cols + most_before(v)) : 0;
  v->form.near = is_near(run, view, v);
  if (v->form.each || v->capacity != 1 || v->counts || v->form.steps || v->form.peel) return;
  const uint64_t elements = qn_tensor_elements(&run->tensors[0][0]);
  const uint64_t rest = (view ? view->cols : elements) % v->form.launch.pack;
  uint64_t off = 0;
  for (size_t r = 0; r < run->op->info.n_tensors; r++) {
    if (!run->tensors[r]) continue;
    off |= (uintptr_t)run->tensors[r][0].data % 16;
    if (v->form.pitched) off |= view->pitch[r] * qn_dtype_bytes(run->tensors[r][0].dtype) % 16;
  }
  v->form.whole = !rest && !off;
  v->form.each =
      v->form.launch.packs == 1 && !draws_random(run->op, v->flags) && (off || (rest && elements <= SMALL_ELEMENTS));
}

/* How many elements behind a pack's boundary a place's rows begin, and the rows of each behind the one before, if that
 * is the same in all roles, whose columns are side by side. `is_off`: somewhere it is not 0. */
static bool agrees(const qn_list_run *run, size_t k, const qn_view *view, uint32_t pack, bool *is_off)
{
  uint64_t begin = 0, next = 0;
  bool first = true;
  for (size_t r = 0; r < run->op->info.n_tensors; r++) {
    if (!run->tensors[r]) continue;
    const qn_tensor *t = &run->tensors[r][k];
    const uint64_t at = (uintptr_t)t->data / qn_dtype_bytes(t->dtype) % pack;
    const uint64_t row = !view ? 0 : (run->strided ? view->pitch[r] : view->cols) % pack;
    if ((view && run->strided && view->step[r] != 1) || (uintptr_t)t->data % qn_dtype_bytes(t->dtype)) return false;
    if (!first && (at != begin || row != next)) return false;
    begin = at;
    next = row;
    first = false;
  }
  *is_off = *is_off || begin || (next && view->rows > 1);
  return true;
}

/* Small launches have less code without it, and random words are drawn by whole packs. */
static bool peels(const qn_list_run *run, const qn_list_variant *v)
{
  const qn_launch_shape *g = &v->form.launch;
  uint64_t elements = 0;
  bool is_off = false;
  if (v->counts || draws_random(run->op, v->flags)) return false;
  for (size_t k = 0; k < run->n; k++) {
    const uint64_t n = qn_tensor_elements(&run->tensors[0][k]);
    elements += n;
    if (!n) continue;
    const qn_view view = g->shape == QN_LAUNCH_FLAT ? (qn_view){0} : view_of(run, k, g);
    if (!agrees(run, k, g->shape == QN_LAUNCH_FLAT ? NULL : &view, g->pack, &is_off)) return false;
  }
  return is_off && elements > SMALL_ELEMENTS;
}

static bool same_places(const qn_list_form *a, const qn_list_form *b)
{
  return a->steps == b->steps && a->pairs == b->pairs && a->odds == b->odds;
}

/* But for what tensors that are not dense ask for, place by place. */
static qn_status variant_of(const qn_list_run *run, bool counts, qn_list_variant *v, const char **why)
{
  *v = (qn_list_variant){.op = run->op,
                         .device = run->exec->device,
                         .row = (uint32_t)run->row,
                         .flags = run->flags,
                         .counts = counts,
                         .form = {.pitched = run->strided}};
  qn_try(qn_list_choose_shape(run, counts, &v->form.launch, why));
  qn_try(tier_of(v->device, &v->tier));
  v->form.peel = peels(run, v);
  return qn_list_choose_capacity(v, run->n);
}

/* Multiprocessors, asked for once. */
static qn_status multiprocessors(qn_device device, uint32_t *n)
{
  enum { KNOWN = 64 };
  static atomic_uint known[KNOWN];
  qn_device_info info = {.size = sizeof info};
  const size_t at = device.kind == QN_CUDA ? (size_t)device.index + 1 : 0;
  *n = at < KNOWN ? atomic_load_explicit(&known[at], memory_order_relaxed) : 0;
  if (*n) return QN_OK;
  qn_try(qn_device_query(device, &info));
  *n = info.multiprocessors > 0 ? (uint32_t)info.multiprocessors : 1;
  if (at < KNOWN) atomic_store_explicit(&known[at], *n, memory_order_relaxed);
  return QN_OK;
}

/* ---- the argument ---- */

static void put_pointers(unsigned char *argument, const qn_list_layout *l, uint32_t capacity, const qn_list_run *run,
                         size_t begin, size_t n)
{
  for (size_t r = 0; r < run->op->info.n_tensors; r++) {
    if (l->slot[r] < 0 || !run->tensors || !run->tensors[r]) continue;
    uint64_t *data = (uint64_t *)(argument + l->offsets.data) + (size_t)l->slot[r] * capacity;
    for (size_t k = 0; k < n; k++) data[k] = (uintptr_t)run->tensors[r][begin + k].data;
  }
}

static uint64_t ceiling(uint64_t n, uint64_t of) { return n / of + (n % of != 0); }

/* What list_kernel.h's qn_list_row multiplies by where rows have so many tiles, and shifts by: log2, rounded up. */
static uint32_t inverse_of(uint32_t tiles, uint32_t *log)
{
  *log = tiles > 1 ? 32 - (uint32_t)__builtin_clz(tiles - 1) : 0;
  return (uint32_t)(((((uint64_t)1 << *log) - tiles) << 32) / tiles + 1);
}

/* A row-wise variant's words on tensor n of the launch; returns its blocks. */
static uint64_t put_rows(unsigned char *argument, const qn_list_layout *l, const qn_list_variant *v,
                         const qn_view *view, size_t n)
{
  const qn_launch_shape *g = &v->form.launch;
  const uint64_t cols = view->cols + most_before(v);
  const uint32_t shift = row_threads(g, cols);
  uint32_t log;
  const uint64_t tiles = ceiling(cols, (uint64_t)g->pack * g->packs << shift);
  ((uint64_t *)(argument + l->offsets.cols))[n] = view->cols;
  ((uint32_t *)(argument + l->offsets.tiles))[n] = (uint32_t)tiles;
  ((uint32_t *)(argument + l->offsets.inverse))[n] = inverse_of((uint32_t)tiles, &log);
  ((uint32_t *)(argument + l->offsets.shift))[n] = shift | log << 8;
  for (size_t r = 0; r < v->op->info.n_tensors && l->offsets.pitch; r++)
    if (l->slot[r] >= 0)
      ((uint64_t *)(argument + l->offsets.pitch))[(size_t)l->slot[r] * v->capacity + n] = view->pitch[r];
  const uint64_t blocks = ceiling(view->rows, g->threads >> shift);
  return g->shape == QN_LAUNCH_TILES ? blocks * tiles : blocks;
}

/* The blocks of a tensor, flat. */
static uint64_t blocks_of(const qn_list_layout *l, uint64_t elements)
{
  return (elements >> l->block_shift) + ((elements & (((uint64_t)1 << l->block_shift) - 1)) != 0);
}

/* Everything of one launch but the coefficients, for the tensors from `begin` on: as many as the parameter holds, the
 * grid has blocks for, and are like the first in what is compiled in. Returns how many, and their blocks. */
static size_t put_list(unsigned char *argument, const qn_list_layout *l, qn_list_variant *v, const qn_list_run *run,
                       size_t begin, uint64_t *blocks)
{
  uint32_t *head = (uint32_t *)(argument + l->offsets.head);
  uint64_t *elements = (uint64_t *)(argument + l->offsets.elements), *first = (uint64_t *)(argument + l->offsets.first);
  uint32_t *first_block = (uint32_t *)(argument + l->offsets.first_block), *id = (uint32_t *)(argument + l->offsets.id);
  size_t n = 0;
  *blocks = 0;
  for (; n < v->capacity && begin + n < run->n; n++) {
    size_t place = begin + n;
    uint64_t count = qn_tensor_elements(&run->tensors[0][place]), needed;
    if (l->offsets.cols) {
      const qn_view view = view_of(run, place, &v->form.launch);
      qn_list_form form = v->form;
      if (run->strided && count) sign_place(run, place, &view, &form);
      if (*blocks && count && !same_places(&form, &v->form)) break;
      if (count && !*blocks) v->form = form;
      sign_access(run, &view, v);
      needed = count ? put_rows(argument, l, v, &view, n) : 0;
    } else {
      sign_access(run, NULL, v);
      needed = count ? blocks_of(l, count + most_before(v)) : 0;
    }
    if (n && *blocks + needed > INT32_MAX) break;
    elements[n] = count;
    first_block[n] = (uint32_t)*blocks;
    *blocks += needed;
    if (!l->offsets.first) continue;
    first[n] = run->first_element ? run->first_element[place] : 0;
    id[n] = (uint32_t)(run->tensor_id ? run->tensor_id[place] : place);
  }
  head[0] = (uint32_t)n;
  head[1] = (uint32_t)begin;
  if (l->offsets.work) *(uint32_t *)(argument + l->offsets.work) = (uint32_t)*blocks;
  put_pointers(argument, l, v->capacity, run, begin, n);
  return n;
}

/* What is launched of so many blocks. */
static qn_status grid_of(const qn_list_variant *v, uint64_t *blocks)
{
  uint32_t n;
  if (!v->form.launch.persistent) return QN_OK;
  qn_try(multiprocessors(v->device, &n));
  const uint64_t most = (uint64_t)n * v->form.launch.persistent;
  if (*blocks > most) *blocks = most;
  return QN_OK;
}

/* What this thread launched last, for questions about it. */
static _Thread_local struct {
  const qn_device_function *function; /* NULL: nothing */
  qn_device device;
  uint32_t threads;
} latest;

qn_status qn_device_list_facts(qn_list_facts *facts)
{
  const qn_backend *backend;
  qn_function_facts function;
  *facts = (qn_list_facts){-1, -1, -1};
  if (!latest.function || latest.device.kind != QN_CUDA) return QN_OK;
  qn_try(qn_backend_of(latest.device, &backend));
  qn_try(backend->function_facts(latest.device, latest.function, &function));
  facts->registers = function.registers;
  facts->shared_bytes = function.shared_bytes;
  return backend->groups_at_once(latest.device, latest.function, latest.threads, 0, &facts->blocks);
}

static qn_status launch(const qn_list_variant *v, const qn_list_layout *l, const qn_device_function *function,
                        const qn_list_run *run, unsigned char *argument, uint64_t blocks)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(v->device, &backend));
  if (blocks == 0) return QN_OK;
  qn_try(grid_of(v, &blocks));
  memcpy(argument, run->coef, run->op->coef_bytes);
  memcpy(argument + l->offsets.tally, &run->tally, sizeof run->tally);
  qn_launch what = {.blocks = blocks,
                    .threads = v->form.launch.threads,
                    .stream = run->exec->stream,
                    .pool = run->exec->pool,
                    .argument = argument,
                    .argument_bytes = l->offsets.bytes};
  latest.function = function;
  latest.device = v->device;
  latest.threads = v->form.launch.threads;
  return backend->launch(v->device, function, &what);
}

struct qn_list_kept {
  _Alignas(16) unsigned char argument[ARGUMENT_BYTES];
  bool filled; /* with all of the list, for this variant */
  qn_list_variant variant;
  qn_list_layout layout;
  const qn_device_function *function;
  uint64_t blocks;
  unsigned options, files; /* generations, of the options and the tune tables: what a launch shape may come from */
  const char *why;         /* that launch shape */
};

size_t qn_list_kept_bytes(void) { return sizeof(qn_list_kept); }

static qn_status run_kept(const qn_list_run *run, qn_list_kept *kept)
{
  qn_launch_shape_note(&kept->variant.form.launch, kept->why);
  if (run->moved) put_pointers(kept->argument, &kept->layout, kept->variant.capacity, run, 0, run->n);
  return launch(&kept->variant, &kept->layout, kept->function, run, kept->argument, kept->blocks);
}

/* A lone tensor that moved may be off its boundary now, or no more. */
static bool same_access(const qn_list_run *run, const qn_list_kept *kept)
{
  const qn_launch_shape *g = &kept->variant.form.launch;
  if (!run->moved || kept->variant.capacity != 1) return true;
  const qn_view view = g->shape == QN_LAUNCH_FLAT ? (qn_view){0} : view_of(run, 0, g);
  qn_list_variant now = kept->variant;
  sign_access(run, g->shape == QN_LAUNCH_FLAT ? NULL : &view, &now);
  return now.form.whole == kept->variant.form.whole && now.form.each == kept->variant.form.each;
}

/* Where random numbers are drawn the caller may give the shards' offsets anew, so nothing is kept; nor where a pair of
 * roles' columns may have moved apart. */
static bool may_keep(const qn_list_run *run, const qn_list_kept *kept)
{
  const char *tier;
  return kept->filled && kept->variant.flags == run->flags && !draws_random(run->op, run->flags) &&
         !((run->strided || kept->variant.form.peel) && run->moved) && same_access(run, kept) &&
         kept->options == qn_option_generation() && kept->files == qn_tune_generation() &&
         tier_of(run->exec->device, &tier) == QN_OK && tier == kept->variant.tier;
}

/* `argument` is room for a launch; kept is NULL or has that room. */
static qn_status run_phase(const qn_list_run *run, bool counts, unsigned char *argument, qn_list_kept *kept)
{
  qn_list_variant v;
  const qn_device_function *function;
  const char *why;
  if (kept) kept->filled = false;
  qn_try(variant_of(run, counts, &v, &why));
  const qn_list_layout l = qn_list_layout_of(&v);
  for (size_t begin = 0, n; begin < run->n; begin += n) {
    uint64_t blocks;
    n = put_list(argument, &l, &v, run, begin, &blocks);
    qn_try(qn_list_find_function(&v, &function));
    qn_try(launch(&v, &l, function, run, argument, blocks));
    if (kept && n == run->n) {
      kept->variant = v;
      kept->layout = l;
      kept->function = function;
      kept->blocks = blocks;
      kept->options = qn_option_generation();
      kept->files = qn_tune_generation();
      kept->why = why;
      kept->filled = true;
    }
  }
  if (!counts) qn_launch_shape_note(&v.form.launch, why);
  return QN_OK;
}

static qn_status run_unkept(const qn_list_run *run, bool counts)
{
  _Alignas(16) unsigned char argument[ARGUMENT_BYTES];
  return run_phase(run, counts, argument, NULL);
}

static qn_status clear_tally(const qn_list_run *run)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(run->exec->device, &backend));
  return backend->memory_fill(run->exec->device, run->exec->stream, run->tally, 0, 2 * sizeof *run->tally * run->n);
}

/* Every variant that the list's places ask for. */
static qn_status prepare_phase(const qn_list_run *run, bool counts)
{
  qn_list_variant v;
  const qn_device_function *function;
  const char *why;
  qn_try(variant_of(run, counts, &v, &why));
  const bool flat = v.form.launch.shape == QN_LAUNCH_FLAT;
  for (size_t k = 0; k < run->n; k++) {
    const qn_view view = flat ? (qn_view){0} : view_of(run, k, &v.form.launch);
    if (run->strided) {
      if (!view.cols && run->n > 1) continue;
      sign_place(run, k, &view, &v.form);
    }
    sign_access(run, flat ? NULL : &view, &v);
    qn_try(qn_list_find_function(&v, &function));
    if (!run->strided) break;
  }
  return QN_OK;
}

qn_status qn_device_list_prepare(const qn_list_run *run)
{
  if (run->phases > 1 || run->count_only) qn_try(prepare_phase(run, true));
  return run->count_only ? QN_OK : prepare_phase(run, false);
}

qn_status qn_device_list_step(const qn_list_run *run)
{
  if (run->phases > 1 || run->count_only) {
    qn_try(clear_tally(run));
    qn_try(run_unkept(run, true));
  }
  if (run->count_only) return QN_OK;
  if (!run->kept) return run_unkept(run, false);
  return may_keep(run, run->kept) ? run_kept(run, run->kept) : run_phase(run, false, run->kept->argument, run->kept);
}
