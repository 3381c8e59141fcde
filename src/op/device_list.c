/* SPDX-License-Identifier: Apache-2.0 */
/* device_list.c - one launch for a list of tensors. The pointers travel in the kernel's one parameter, so nothing is
 * uploaded, nothing is staged and a step that only moved its gradients costs a copy of their pointers. A list with more
 * tensors than a parameter holds (about 700 where driver and GPU take 32,764 bytes) becomes several launches.
 *
 * Geometry, chosen by measurement on an H200 (docs/benchmarking.md): 256 threads, one pack of 4 elements a thread, a
 * flat grid; a block finds its tensor by binary search over the first blocks, which sit in the constant bank. Larger
 * chunks, more packs a thread, tables in global memory and persistent grids were all slower. */
#include "op/device_list.h"
#include "base/list_args.h"
#include "core/core.h"
#include "jit/jit.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 256, COUNT_PACKS = 16, ARGUMENT_BYTES = 32764, CACHE_SLOTS = 256 };

/* What one kernel is specialised for. */
typedef struct variant {
  const qn_op *op;
  qn_device device;
  uint32_t row, flags, capacity, counts;
  const char *tier; /* the host backend compiles for it; NULL: a GPU. One of tier.c's names, so pointers compare */
} variant;

/* Where things stand in the argument of a variant, and how its blocks are cut. */
typedef struct layout {
  qn_list_offsets offsets;
  int slot[QN_MAX_TENSORS]; /* of a role among those given; -1: absent */
  uint32_t pack, packs;     /* elements of a thread's pack, packs of a thread */
  uint32_t block_shift;     /* log2 of a block's elements: a division for each tensor would cost more than the rest */
} layout;

static bool draws_random(const qn_op *op, uint32_t flags) { return (flags & op->random_flags) != 0; }

/* A pack is one 16-byte access of f32; of 8 elements where all tensors are of 16 bits, so that their accesses are too.
 */
static uint32_t pack_elements(const variant *v)
{
  const qn_op_types *types = &v->op->info.types[v->row];
  for (size_t r = 0; r < v->op->info.n_tensors; r++) {
    if (types->tensor[r].access != QN_ABSENT && qn_dtype_bytes(types->tensor[r].dtype) != 2) return 4;
  }
  return 8;
}

static layout layout_of(const variant *v)
{
  const qn_op *op = v->op;
  layout l = {.pack = pack_elements(v), .packs = v->counts ? COUNT_PACKS : 1};
  uint32_t slots = 0;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    bool given = op->info.types[v->row].tensor[r].access != QN_ABSENT;
    l.slot[r] = given ? (int)slots++ : -1;
  }
  l.offsets = qn_list_offsets_of(op->coef_bytes, slots, v->capacity, draws_random(op, v->flags));
  l.block_shift = (uint32_t)__builtin_ctz(THREADS * l.pack * l.packs);
  return l;
}

/* Few capacities, so that few kernels are compiled; the largest that the parameter limit allows last. */
static qn_status choose_capacity(const variant *base, size_t n, uint32_t *capacity)
{
  static const uint32_t usual[] = {16, 160};
  const qn_backend *backend;
  size_t limit;
  qn_try(qn_backend_of(base->device, &backend));
  qn_try(backend->argument_limit(base->device, &limit));
  variant v = *base;
  for (size_t k = 0; k < sizeof usual / sizeof *usual; k++) {
    v.capacity = usual[k];
    if (n <= usual[k] && layout_of(&v).offsets.bytes <= limit) {
      *capacity = usual[k];
      return QN_OK;
    }
  }
  v.capacity = 0;
  size_t fixed = layout_of(&v).offsets.bytes;
  v.capacity = 2;
  size_t each = (layout_of(&v).offsets.bytes - fixed + 1) / 2;
  *capacity = (uint32_t)((limit - fixed) / each) & ~1u;
  return QN_OK;
}

/* ---- from a variant to its kernel ---- */

static void define(qn_list_unit *u, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void define(qn_list_unit *u, const char *format, ...)
{
  va_list values;
  va_start(values, format);
  vsnprintf(u->text[u->n], sizeof u->text[u->n], format, values);
  va_end(values);
  u->defines[u->n] = u->text[u->n];
  u->defines[++u->n] = NULL;
}

static void unit_of(const variant *v, qn_list_unit *u)
{
  const qn_op *op = v->op;
  layout l = layout_of(v);
  unsigned long long dtypes = 0, accesses = 0, slots = 0, given = 0;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    if (l.slot[r] < 0) continue;
    dtypes |= (unsigned long long)op->info.types[v->row].tensor[r].dtype << 4 * r;
    accesses |= (unsigned long long)op->info.types[v->row].tensor[r].access << 4 * r;
    slots |= given++ << 4 * r;
  }
  define(u, "QN_THREADS=%d", THREADS);
  define(u, "QN_PACK=%u", l.pack);
  define(u, "QN_LIST_PACKS=%u", l.packs);
  define(u, "QN_LIST_CAPACITY=%u", v->capacity);
  define(u, "QN_LIST_RANDOM=%d", draws_random(op, v->flags));
  define(u, "QN_LIST_COUNTS=%u", v->counts);
  define(u, "QN_LIST_ROLES=%zu", op->info.n_tensors);
  define(u, "QN_LIST_GIVEN=%llu", given);
  define(u, "QN_LIST_DTYPES=0x%llxu", dtypes);
  define(u, "QN_LIST_ACCESSES=0x%llxu", accesses);
  define(u, "QN_LIST_SLOTS=0x%llxu", slots);
  define(u, "QN_LIST_FLAGS=%uu", v->flags);
}

void qn_device_list_unit(const qn_op *op, size_t row, uint32_t flags, uint32_t capacity, bool counts,
                         qn_list_unit *unit)
{
  unit->n = 0;
  unit_of(&(variant){.op = op, .row = (uint32_t)row, .flags = flags, .capacity = capacity, .counts = counts}, unit);
}

static qn_status build(const variant *v, const qn_device_function **function)
{
  qn_list_unit u = {.n = 0};
  unit_of(v, &u);
  return qn_jit_function(v->device, &(qn_unit){.source = v->op->device_source, .defines = u.defines}, v->op->info.name,
                         function);
}

/* A direct step must find its kernel without building the text of a key: a small table in front of the compiler's. */
static struct {
  pthread_rwlock_t lock;
  variant variant[CACHE_SLOTS];
  const qn_device_function *function[CACHE_SLOTS];
} found = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static size_t slot_of(const variant *v)
{
  uint64_t h = v->row * 31u + v->flags * 131u + v->capacity * 7u + v->counts * 3u + (uint64_t)v->device.index * 17u;
  return (h ^ (uintptr_t)v->op >> 4 ^ (uint64_t)v->device.kind << 5 ^ (uintptr_t)v->tier) % CACHE_SLOTS;
}

static bool same(const variant *a, const variant *b)
{
  return a->op == b->op && a->device.kind == b->device.kind && a->device.index == b->device.index && a->row == b->row &&
         a->flags == b->flags && a->capacity == b->capacity && a->counts == b->counts && a->tier == b->tier;
}

static qn_status find_function(const variant *v, const qn_device_function **function)
{
  size_t slot = slot_of(v);
  pthread_rwlock_rdlock(&found.lock);
  bool hit = found.function[slot] && same(&found.variant[slot], v);
  if (hit) *function = found.function[slot];
  pthread_rwlock_unlock(&found.lock);
  if (hit) return QN_OK;
  qn_try(build(v, function));
  pthread_rwlock_wrlock(&found.lock);
  found.variant[slot] = *v;
  found.function[slot] = *function;
  pthread_rwlock_unlock(&found.lock);
  return QN_OK;
}

static qn_status tier_of(qn_device device, const char **tier)
{
  *tier = NULL;
  return device.kind == QN_HOST ? qn_cpu_tier(tier) : QN_OK;
}

static qn_status variant_of(const qn_list_run *run, bool counts, variant *v)
{
  *v = (variant){
      .op = run->op, .device = run->exec->device, .row = (uint32_t)run->row, .flags = run->flags, .counts = counts};
  qn_try(tier_of(v->device, &v->tier));
  return choose_capacity(v, run->n, &v->capacity);
}

/* ---- the argument ---- */

static void put_pointers(unsigned char *argument, const layout *l, uint32_t capacity, const qn_list_run *run,
                         size_t begin, size_t n)
{
  for (size_t r = 0; r < run->op->info.n_tensors; r++) {
    if (l->slot[r] < 0 || !run->tensors || !run->tensors[r]) continue;
    uint64_t *data = (uint64_t *)(argument + l->offsets.data) + (size_t)l->slot[r] * capacity;
    for (size_t k = 0; k < n; k++) data[k] = (uintptr_t)run->tensors[r][begin + k].data;
  }
}

/* Everything of one launch but the coefficients, for the tensors from `begin` on: as many as the parameter holds and
 * the grid has blocks for. Returns how many, and their blocks. */
static size_t put_list(unsigned char *argument, const layout *l, uint32_t capacity, const qn_list_run *run,
                       size_t begin, uint64_t *blocks)
{
  uint32_t *head = (uint32_t *)(argument + l->offsets.head);
  uint64_t *elements = (uint64_t *)(argument + l->offsets.elements), *first = (uint64_t *)(argument + l->offsets.first);
  uint32_t *first_block = (uint32_t *)(argument + l->offsets.first_block), *id = (uint32_t *)(argument + l->offsets.id);
  size_t n = 0;
  *blocks = 0;
  for (; n < capacity && begin + n < run->n; n++) {
    size_t place = begin + n;
    uint64_t count = qn_tensor_elements(&run->tensors[0][place]);
    uint64_t needed = (count >> l->block_shift) + ((count & (((uint64_t)1 << l->block_shift) - 1)) != 0);
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
  put_pointers(argument, l, capacity, run, begin, n);
  return n;
}

static qn_status launch(const variant *v, const layout *l, const qn_device_function *function, const qn_list_run *run,
                        unsigned char *argument, uint64_t blocks)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(v->device, &backend));
  if (blocks == 0) return QN_OK;
  memcpy(argument, run->coef, run->op->coef_bytes);
  memcpy(argument + l->offsets.tally, &run->tally, sizeof run->tally);
  qn_launch what = {.blocks = blocks,
                    .threads = THREADS,
                    .stream = run->exec->stream,
                    .pool = run->exec->pool,
                    .argument = argument,
                    .argument_bytes = l->offsets.bytes};
  return backend->launch(v->device, function, &what);
}

struct qn_list_kept {
  _Alignas(16) unsigned char argument[ARGUMENT_BYTES];
  bool filled; /* with all of the list, for this variant */
  variant variant;
  layout layout;
  const qn_device_function *function;
  uint64_t blocks;
};

size_t qn_list_kept_bytes(void) { return sizeof(qn_list_kept); }

static qn_status run_kept(const qn_list_run *run, qn_list_kept *kept)
{
  if (run->moved) put_pointers(kept->argument, &kept->layout, kept->variant.capacity, run, 0, run->n);
  return launch(&kept->variant, &kept->layout, kept->function, run, kept->argument, kept->blocks);
}

/* Where random numbers are drawn the caller may give the shards' offsets anew, so nothing is kept. */
static bool may_keep(const qn_list_run *run, const qn_list_kept *kept)
{
  const char *tier;
  return kept->filled && kept->variant.flags == run->flags && !draws_random(run->op, run->flags) &&
         tier_of(run->exec->device, &tier) == QN_OK && tier == kept->variant.tier;
}

/* `argument` is room for a launch; kept is NULL or has that room. */
static qn_status run_phase(const qn_list_run *run, bool counts, unsigned char *argument, qn_list_kept *kept)
{
  variant v;
  const qn_device_function *function;
  if (kept) kept->filled = false;
  qn_try(variant_of(run, counts, &v));
  qn_try(find_function(&v, &function));
  layout l = layout_of(&v);
  for (size_t begin = 0, n; begin < run->n; begin += n) {
    uint64_t blocks;
    n = put_list(argument, &l, v.capacity, run, begin, &blocks);
    qn_try(launch(&v, &l, function, run, argument, blocks));
    if (kept && n == run->n) {
      kept->variant = v;
      kept->layout = l;
      kept->function = function;
      kept->blocks = blocks;
      kept->filled = true;
    }
  }
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

qn_status qn_device_list_prepare(const qn_list_run *run)
{
  for (int counts = run->phases > 1 || run->count_only; counts >= 0; counts--) {
    variant v;
    const qn_device_function *function;
    if (!counts && run->count_only) break;
    qn_try(variant_of(run, counts, &v));
    qn_try(find_function(&v, &function));
  }
  return QN_OK;
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
