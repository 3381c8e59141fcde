/* SPDX-License-Identifier: Apache-2.0 */
/* device_variant.c - see device_variant.h. A variant becomes the defines of its source, and those a function, through a
 * small table in front of the compiler's. */
#include "op/device_variant.h"
#include "core/core.h"
#include "jit/jit.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum { CACHE_SLOTS = 256 };

static bool draws_random(const qn_op *op, uint32_t flags) { return (flags & op->random_flags) != 0; }

qn_list_layout qn_list_layout_of(const qn_list_variant *v)
{
  const qn_op *op = v->op;
  const qn_launch_shape *g = &v->form.launch;
  qn_list_layout l;
  uint32_t slots = 0, parts = draws_random(op, v->flags) ? QN_LIST_HAS_RANDOM : 0;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    bool given = op->info.types[v->row].tensor[r].access != QN_ABSENT;
    l.slot[r] = given ? (int)slots++ : -1;
  }
  if (g->shape != QN_LAUNCH_FLAT) parts |= QN_LIST_HAS_ROWS;
  if (v->form.pitched) parts |= QN_LIST_HAS_PITCH;
  if (g->persistent) parts |= QN_LIST_HAS_WORK;
  l.offsets = qn_list_offsets_of(op->coef_bytes, slots, v->capacity, parts);
  l.block_shift = (uint32_t)__builtin_ctz(g->threads * g->pack * g->packs);
  return l;
}

qn_status qn_list_choose_capacity(qn_list_variant *v, size_t n)
{
  static const uint32_t usual[] = {1, 16, 160}; /* one alone is not searched for */
  const qn_backend *backend;
  size_t limit;
  qn_try(qn_backend_of(v->device, &backend));
  qn_try(backend->argument_limit(v->device, &limit));
  for (size_t k = 0; k < sizeof usual / sizeof *usual; k++) {
    v->capacity = usual[k];
    if (n <= usual[k] && qn_list_layout_of(v).offsets.bytes <= limit) return QN_OK;
  }
  v->capacity = 0;
  size_t fixed = qn_list_layout_of(v).offsets.bytes;
  v->capacity = 2;
  size_t each = (qn_list_layout_of(v).offsets.bytes - fixed + 1) / 2;
  v->capacity = (uint32_t)((limit - fixed) / each) & ~1u;
  return QN_OK;
}

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

static void unit_of(const qn_list_variant *v, qn_list_unit *u)
{
  const qn_op *op = v->op;
  const qn_launch_shape *g = &v->form.launch;
  const qn_list_layout l = qn_list_layout_of(v);
  unsigned long long dtypes = 0, accesses = 0, slots = 0, given = 0;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    if (l.slot[r] < 0) continue;
    dtypes |= (unsigned long long)op->info.types[v->row].tensor[r].dtype << 4 * r;
    accesses |= (unsigned long long)op->info.types[v->row].tensor[r].access << 4 * r;
    slots |= given++ << 4 * r;
  }
  define(u, "QN_THREADS=%u", g->threads);
  define(u, "QN_PACK=%u", g->pack);
  define(u, "QN_LIST_PACKS=%u", g->packs);
  define(u, "QN_LIST_SHAPE=%d", (int)g->shape);
  define(u, "QN_LIST_PERSISTENT=%d", g->persistent != 0);
  define(u, "QN_LIST_PITCHED=%d", v->form.pitched);
  define(u, "QN_LIST_WHOLE=%d", v->form.whole);
  define(u, "QN_LIST_EACH=%d", v->form.each);
  define(u, "QN_LIST_LANES=%uu", v->form.lanes);
  define(u, "QN_LIST_NEAR=%d", v->form.near);
  define(u, "QN_LIST_PEEL=%d", v->form.peel);
  define(u, "QN_LIST_STEPS=0x%xu", v->form.steps);
  define(u, "QN_LIST_PAIRS=0x%xu", v->form.pairs);
  define(u, "QN_LIST_ODDS=0x%xu", v->form.odds);
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
                         const qn_list_form *form, qn_list_unit *unit)
{
  qn_list_variant v = {.op = op, .row = (uint32_t)row, .flags = flags, .capacity = capacity, .counts = counts};
  if (form)
    v.form = *form;
  else
    qn_launch_shape_rule(&(qn_launch_shape_key){.op = op, .row = row, .dense = true, .counts = counts}, &v.form.launch);
  unit->n = 0;
  unit_of(&v, unit);
}

static qn_status build(const qn_list_variant *v, const qn_device_function **function)
{
  qn_list_unit u = {.n = 0};
  unit_of(v, &u);
  return qn_jit_function(v->device, &(qn_unit){.source = v->op->device_source, .defines = u.defines}, v->op->info.name,
                         function);
}

/* A direct step must find its kernel without building the text of a key: a small table in front of the compiler's. */
static struct {
  pthread_rwlock_t lock;
  qn_list_variant variant[CACHE_SLOTS];
  const qn_device_function *function[CACHE_SLOTS];
} found = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static size_t slot_of(const qn_list_variant *v)
{
  uint64_t h = v->row * 31u + v->flags * 131u + v->capacity * 7u + v->counts * 3u + (uint64_t)v->device.index * 17u;
  const qn_launch_shape *g = &v->form.launch;
  h += g->threads + g->pack * 5 + g->packs * 11 + (uint64_t)g->shape * 61 + g->persistent * 37;
  h += v->form.peel * 79u + v->form.lanes * 101u + v->form.near * 103u;
  h += v->form.pitched * 43u + v->form.steps * 97u + v->form.pairs * 53u + v->form.whole * 71u + v->form.each * 73u;
  return (h ^ (uintptr_t)v->op >> 4 ^ (uint64_t)v->device.kind << 5 ^ (uintptr_t)v->tier) % CACHE_SLOTS;
}

static bool same(const qn_list_variant *a, const qn_list_variant *b)
{
  return a->op == b->op && a->device.kind == b->device.kind && a->device.index == b->device.index && a->row == b->row &&
         a->flags == b->flags && a->capacity == b->capacity && a->counts == b->counts && a->tier == b->tier &&
         qn_launch_shape_equal(&a->form.launch, &b->form.launch) && a->form.pitched == b->form.pitched &&
         a->form.whole == b->form.whole && a->form.each == b->form.each && a->form.peel == b->form.peel &&
         a->form.lanes == b->form.lanes && a->form.near == b->form.near && a->form.steps == b->form.steps &&
         a->form.pairs == b->form.pairs && a->form.odds == b->form.odds;
}

qn_status qn_list_find_function(const qn_list_variant *v, const qn_device_function **function)
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
