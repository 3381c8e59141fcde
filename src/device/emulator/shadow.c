/* SPDX-License-Identifier: Apache-2.0 */
/* shadow.c - each access of a checked launch against the launch's memory (is it inside an array, may it be written, was
 * it written before) and against what other threads did there. For the latter each cell of some bytes remembers its
 * last accesses with their time on the sanitizer's clock, which grows whenever threads are ordered: two accesses are
 * ordered by what the barriers between them promise and not by the order in which this executor happened to run them.
 * A cell that forgets can hide a race; it can never make one up. */
#include "device/emulator/sanitizer_state.h"
#include <string.h>

enum { ARRAY_SLOTS = 2, THREADGROUP_SLOTS = 4, NEAR_BYTES = 1 << 20 };

/* ---- regions ---- */
static qn_status open_region(qn_region *r, size_t slots)
{
  const size_t bytes = r->end - r->begin, cells = (bytes + r->grain - 1) / r->grain;
  r->slots = (uint8_t)slots;
  r->shadow = qn_allocate_zero(cells, slots * sizeof *r->shadow);
  r->written = r->initialised ? NULL : qn_allocate_zero(bytes / 8 + 1, 1);
  if (r->shadow && (r->written || r->initialised)) return QN_OK;
  return qn_fail(QN_NO_MEMORY, "no memory for the shadow of %s: a check needs %zu bytes for each byte written", r->name,
                 slots * sizeof *r->shadow / r->grain);
}

static void close_region(qn_region *r)
{
  qn_release(r->shadow);
  qn_release(r->written);
}

static void insert(qn_sanitizer *w, const qn_region *region)
{
  size_t k = w->n_regions;
  if (k == QN_SANITIZER_ARRAYS || region->begin == region->end) return;
  for (; k > 0 && w->region[k - 1].begin > region->begin; k--) w->region[k] = w->region[k - 1];
  w->region[k] = *region;
  w->n_regions++;
}

/* Arrays may share memory (an output that is stored in an input; two views of one input): one region has it then. */
static qn_region *overlapping(qn_sanitizer *w, uintptr_t begin, uintptr_t end)
{
  for (size_t k = 0; k < w->n_regions; k++)
    if (w->region[k].begin < end && begin < w->region[k].end) return &w->region[k];
  return NULL;
}

static void join(qn_sanitizer *w, const qn_sanitizer_array *a)
{
  qn_region new = {.begin = (uintptr_t)a->data,
                   .end = (uintptr_t)a->data + a->bytes,
                   .name = a->name,
                   .kind = QN_REGION_ARRAY,
                   .grain = (uint8_t)(a->element_bytes > 8 ? 8 : a->element_bytes),
                   .writable = a->writable,
                   .initialised = a->initialised,
                   .element_bytes = a->element_bytes};
  for (qn_region *old; (old = overlapping(w, new.begin, new.end));) {
    if (old->begin < new.begin) new.begin = old->begin;
    if (old->end > new.end) new.end = old->end;
    if (old->writable && !new.writable) new.name = old->name;
    if (old->grain < new.grain) new.grain = old->grain;
    new.writable |= old->writable;
    new.initialised |= old->initialised;
    memmove(old, old + 1, (size_t)(w->region + --w->n_regions - old) * sizeof *old);
  }
  insert(w, &new);
}

qn_status qn_shadow_open(qn_sanitizer *w)
{
  for (size_t k = 0; k < w->plan.n_arrays; k++) join(w, &w->array[k]);
  w->n_fixed = w->n_regions;
  for (size_t k = 0; k < w->n_regions; k++)
    if (w->region[k].writable) qn_try(open_region(&w->region[k], ARRAY_SLOTS));
  return QN_OK;
}

void qn_shadow_close(qn_sanitizer *w)
{
  for (size_t k = 0; k < w->n_regions; k++) close_region(&w->region[k]);
  w->n_regions = 0;
}

qn_region *qn_shadow_region(qn_sanitizer *w, uintptr_t address)
{
  size_t low = 0, high = w->n_regions;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (w->region[middle].begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low && address < w->region[low - 1].end ? &w->region[low - 1] : NULL;
}

void qn_shadow_add(qn_sanitizer *w, const qn_region *region)
{
  qn_region new = *region;
  qn_region *old = qn_shadow_region(w, region->begin);
  if (old && old->begin == region->begin && old->end == region->end) return; /* of the group before */
  if (new.kind == QN_REGION_THREADGROUP && w->failed == QN_OK) {
    new.grain = 4;
    w->failed = open_region(&new, THREADGROUP_SLOTS);
  }
  insert(w, &new);
}

/* Threadgroup memory holds nothing at a group's beginning. */
void qn_shadow_group(qn_sanitizer *w)
{
  for (size_t k = 0; k < w->n_regions; k++) {
    qn_region *r = &w->region[k];
    if (r->kind != QN_REGION_THREADGROUP || !r->touched) continue;
    const size_t bytes = r->end - r->begin;
    memset(r->written, 0, bytes / 8 + 1);
    memset(r->shadow, 0, (bytes + r->grain - 1) / r->grain * r->slots * sizeof *r->shadow);
    r->touched = false;
  }
}

/* ---- outside ---- */
static uint32_t site_of(qn_sanitizer_place place) { return (place ^ place >> 10) % QN_SANITIZER_SITES; }

/* Whose element it was meant to be: the array's that the same place in the kernel accessed before; else the nearest,
 * where an index is more likely to be too large than below zero. */
static const qn_region *meant(const qn_sanitizer *w, uintptr_t address, qn_sanitizer_place place)
{
  const qn_region *best = NULL;
  uintptr_t least = NEAR_BYTES;
  for (size_t k = 0; k < w->n_regions; k++)
    if (w->region[k].begin == w->site[site_of(place)]) return &w->region[k];
  for (size_t k = 0; k < w->n_regions; k++) {
    const qn_region *r = &w->region[k];
    const uintptr_t away = address < r->begin ? 8 * (r->begin - address) : address >= r->end ? address - r->end + 1 : 0;
    if (r->kind == QN_REGION_OTHER || away >= least) continue;
    best = r;
    least = away;
  }
  return best;
}

static void outside(qn_sanitizer *w, uintptr_t address, size_t bytes, bool write, qn_sanitizer_place place)
{
  qn_raw_finding raw = {.fault = write ? QN_WRONG_WRITE_OUTSIDE : QN_WRONG_READ_OUTSIDE,
                        .block = w->block,
                        .thread = (uint16_t)w->thread,
                        .place = place,
                        .first = -1,
                        .last = -1};
  const qn_region *r = meant(w, address, place);
  if (r) {
    raw.where = r->name;
    raw.first = (int64_t)(address - r->begin);
    raw.last = raw.first + (int64_t)bytes - 1;
    raw.array_bytes = (int64_t)(r->end - r->begin);
  } else {
    raw.first = (int64_t)address;
    raw.last = raw.first + (int64_t)bytes - 1;
    raw.array_bytes = -1; /* first is an address */
  }
  qn_sanitizer_note(w, &raw);
  qn_sanitizer_leave(w);
}

static void note_in(qn_sanitizer *w, const qn_region *r, qn_sanitizer_wrong fault, uintptr_t address, size_t bytes,
                    qn_sanitizer_place place)
{
  qn_sanitizer_note(w, &(qn_raw_finding){.fault = fault,
                                         .block = w->block,
                                         .thread = (uint16_t)w->thread,
                                         .place = place,
                                         .where = r->name,
                                         .first = (int64_t)(address - r->begin),
                                         .last = (int64_t)(address - r->begin + bytes) - 1,
                                         .array_bytes = (int64_t)(r->end - r->begin)});
}

/* ---- written before read ---- */
static bool all_written(const qn_region *r, size_t at, size_t bytes)
{
  for (size_t k = at; k < at + bytes; k++)
    if (!(r->written[k / 8] >> k % 8 & 1)) return false;
  return true;
}

static void set_written(qn_region *r, size_t at, size_t bytes)
{
  for (size_t k = at; k < at + bytes; k++) r->written[k / 8] |= (uint8_t)(1u << k % 8);
}

/* ---- what others did there ---- */
static bool conflict(const qn_sanitizer *w, const qn_shadow_slot *a, const qn_shadow_slot *b)
{
  return (a->mask & b->mask) && (a->write || b->write) && !(a->atomic && b->atomic) && !qn_order_has(w, a);
}

static bool replaceable(const qn_sanitizer *w, const qn_shadow_slot *old, const qn_shadow_slot *new)
{
  const bool covered = (old->mask & ~new->mask) == 0;
  if (old->block == new->block && old->thread == new->thread)
    return covered && (new->write || !old->write) && new->atomic <= old->atomic;
  return covered && (new->write || !old->write) && qn_order_has(w, old);
}

/* Which of two accesses is to be forgotten rather: a read, and of one kind the one of the same group as `new`, since
 * barriers order it sooner than another group's. */
static bool is_worth_less(const qn_shadow_slot *a, const qn_shadow_slot *b, const qn_shadow_slot *new)
{
  if (a->write != b->write) return b->write;
  return a->block == new->block && b->block != new->block;
}

/* The slot that `new` goes to: its thread's own, an empty one, one that says nothing more, else the one that is worth
 * least, by turns. */
static qn_shadow_slot *slot_for(const qn_sanitizer *w, qn_shadow_slot *cell, size_t n, const qn_shadow_slot *new)
{
  for (size_t k = 0; k < n; k++)
    if (cell[k].time && replaceable(w, &cell[k], new)) return &cell[k];
  for (size_t k = 0; k < n; k++)
    if (!cell[k].time) return &cell[k];
  qn_shadow_slot *least = &cell[w->now % n];
  for (size_t k = 0; k < n; k++)
    if (is_worth_less(&cell[k], least, new)) least = &cell[k];
  return least;
}

static void race(qn_sanitizer *w, const qn_region *r, size_t cell, const qn_shadow_slot *old, const qn_shadow_slot *new)
{
  const unsigned shared = (unsigned)(old->mask & new->mask);
  const int low = __builtin_ctz(shared), high = 31 - __builtin_clz(shared);
  const qn_raw_finding raw = {.fault = QN_WRONG_RACE,
                              .write = new->write,
                              .other_write = old->write,
                              .block = w->block,
                              .thread = (uint16_t)w->thread,
                              .other_block = old->block,
                              .other_thread = (uint16_t)old->thread,
                              .place = new->place,
                              .other_place = old->place,
                              .where = r->name,
                              .first = (int64_t)(cell * r->grain) + low,
                              .last = (int64_t)(cell * r->grain) + high,
                              .array_bytes = (int64_t)(r->end - r->begin)};
  if (!new->write || !old->write || new->atomic || w->n_late == sizeof w->late / sizeof *w->late) {
    qn_sanitizer_note(w, &raw);
    return;
  }
  qn_late_finding *late = &w->late[w->n_late++];
  *late = (qn_late_finding){.raw = raw, .at = r->begin + cell * r->grain + (unsigned)low};
  memcpy(late->was, (const void *)late->at, (size_t)(high - low + 1));
}

/* The value there is the other thread's, or that of a later writer, whose own race is reported. */
void qn_shadow_settle(qn_sanitizer *w)
{
  for (size_t k = 0; k < w->n_late; k++) {
    qn_late_finding *late = &w->late[k];
    const size_t bytes = (size_t)(late->raw.last - late->raw.first + 1);
    if (!memcmp((const void *)late->at, late->was, bytes)) late->raw.fault = QN_WRONG_SAME;
    qn_sanitizer_note(w, &late->raw);
  }
  w->n_late = 0;
}

static void look(qn_sanitizer *w, qn_region *r, size_t at, size_t bytes, qn_shadow_slot new)
{
  for (size_t end = at + bytes, cell = at / r->grain; at < end; cell++) {
    const size_t cell_begin = cell * r->grain, cell_end = cell_begin + r->grain;
    const size_t last = end < cell_end ? end : cell_end;
    qn_shadow_slot *slot = r->shadow + cell * r->slots;
    new.mask = ((1u << (last - cell_begin)) - 1) & ~((1u << (at - cell_begin)) - 1) & 0xff;
    for (size_t k = 0; k < r->slots; k++)
      if (slot[k].time && conflict(w, &slot[k], &new)) {
        race(w, r, cell, &slot[k], &new);
        break;
      }
    *slot_for(w, slot, r->slots, &new) = new;
    at = last;
  }
}

void qn_shadow_access(qn_sanitizer *w, uintptr_t address, size_t bytes, int kind, qn_sanitizer_place place)
{
  const bool write = kind != QN_ACCESS_READ && kind != QN_ACCESS_ATOMIC_READ, atomic = kind >= QN_ACCESS_ATOMIC;
  const bool read = kind == QN_ACCESS_READ || kind == QN_ACCESS_ATOMIC || kind == QN_ACCESS_ATOMIC_READ;
  qn_region *r = qn_shadow_region(w, address);
  if (!r || bytes > r->end - address) outside(w, address, bytes, write, place);
  if (write && !r->writable) {
    note_in(w, r, QN_WRONG_WRITE_INPUT, address, bytes, place);
    qn_sanitizer_leave(w);
  }
  if (atomic) qn_order_atomic(w, address, kind != QN_ACCESS_ATOMIC_WRITE, write);
  if (r->kind != QN_REGION_OTHER) {
    w->site[site_of(place)] = r->begin;
    w->at[w->thread].access = place;
  }
  if (!r->shadow) return;
  if (write && w->at[w->thread].stray) qn_stray_write(w);
  const size_t at = address - r->begin;
  r->touched = true;
  if (read && r->written && !w->left_here && !all_written(r, at, bytes)) {
    note_in(w, r, QN_WRONG_UNINITIALISED, address, bytes, place);
    set_written(r, at, bytes); /* once is enough */
  }
  look(w, r, at, bytes,
       (qn_shadow_slot){.time = w->now & ((UINT64_C(1) << 40) - 1),
                        .thread = w->thread & (QN_SANITIZER_THREADS - 1),
                        .write = write,
                        .atomic = atomic,
                        .block = (uint32_t)w->block,
                        .place = place});
  if (write && r->written) set_written(r, at, bytes);
}

/* ---- at the end ---- */
static void note_gap(qn_sanitizer *w, const qn_region *r)
{
  const size_t bytes = r->end - r->begin, element = r->element_bytes;
  size_t first = SIZE_MAX, last = 0, missing = 0;
  for (size_t k = 0; k < bytes / element; k++) {
    if (all_written(r, k * element, element)) continue;
    missing++;
    if (first == SIZE_MAX) first = k;
    if (last + 1 == k || first == k) last = k; /* of the first row of them */
  }
  if (missing)
    qn_sanitizer_note(w, &(qn_raw_finding){.fault = QN_WRONG_NOT_WRITTEN,
                                           .where = r->name,
                                           .first = (int64_t)(first * element),
                                           .last = (int64_t)((last + 1) * element) - 1,
                                           .array_bytes = (int64_t)bytes,
                                           .lanes = (uint32_t)element,
                                           .count = missing});
}

void qn_shadow_finish(qn_sanitizer *w)
{
  if (w->left_any || atomic_load(&w->expired)) return; /* they would have written it */
  for (size_t k = 0; k < w->n_regions; k++)
    if (w->region[k].kind == QN_REGION_ARRAY && w->region[k].written) note_gap(w, &w->region[k]);
}
