/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - which accesses of other threads are ordered before the running thread: by barriers of the group, by those
 * and words of its simdgroup, and by fences and atomics. A fence and then an atomic of one address hands what the
 * thread had before the fence to threads that have an atomic of that address later, in its group at once, in later
 * groups if the fence was for the device; groups run one after the other. Where memory for this runs out, all counts as
 * ordered: no race is made up. */
#include "device/emulator/sanitizer_state.h"
#include <string.h>

enum { PLACES = 1 << 12, MOST_ACQUIRED = 1 << 20, MOST_STEPS = 1 << 14 };

/* What one thread of one group handed on at a place. */
typedef struct released {
  uint32_t block, thread;
  uint64_t fence, group, simd;  /* what it had before its fence, and of others before those times */
  bool wide;                    /* and of others of its group what nobody can say any more: all of it */
  uint32_t first_got, last_got; /* of `got`: what its group had been handed then */
} released;

/* An address of atomics, where somebody handed something on. */
typedef struct place {
  uintptr_t address;
  size_t n, room;
  released *list;         /* by block */
  uint64_t block, *clock; /* of the group that runs: up to when each of its threads is handed on here */
  uint64_t looked;        /* the last question that came by */
} place;

typedef struct got { /* a thread was handed what is at a place */
  uint32_t place, thread;
  uint64_t time;
} got;

struct qn_order {
  place place[PLACES];
  size_t n_places;
  got *got;
  size_t n_got, got_room, first_got; /* those of the group that runs are the last */
  uint64_t
      *known[QN_SANITIZER_THREADS]; /* by atomics: up to when a thread knows each other of its group; NULL: nothing */
  bool any_known;
  uint64_t question;
};

void qn_order_close(qn_sanitizer *w)
{
  qn_order *o = w->order;
  if (!o) return;
  for (size_t k = 0; k < PLACES; k++) {
    qn_release(o->place[k].list);
    qn_release(o->place[k].clock);
  }
  for (size_t k = 0; k < QN_SANITIZER_THREADS; k++) qn_release(o->known[k]);
  qn_release(o->got);
  qn_release(o);
  w->order = NULL;
}

void qn_order_begin_group(qn_sanitizer *w)
{
  qn_order *o = w->order;
  if (!o) return;
  o->first_got = o->n_got;
  for (size_t k = 0; k < w->threads && o->any_known; k++)
    if (o->known[k]) memset(o->known[k], 0, QN_SANITIZER_THREADS * sizeof **o->known);
  o->any_known = false;
}

/* ---- within the group ---- */
/* Up to when thread `of` knows thread `other`. */
static uint64_t known_up_to(const qn_sanitizer *w, uint32_t of, uint32_t other)
{
  uint64_t most = w->group_time;
  if (of / QN_SIMD_LANES == other / QN_SIMD_LANES) {
    if (w->simd_time[of / QN_SIMD_LANES] > most) most = w->simd_time[of / QN_SIMD_LANES];
    if (w->seen && w->seen[of][other % QN_SIMD_LANES] > most) most = w->seen[of][other % QN_SIMD_LANES];
  }
  if (w->order && w->order->any_known && w->order->known[of] && w->order->known[of][other] > most)
    most = w->order->known[of][other];
  return most;
}

static bool is_known(const qn_sanitizer *w, uint32_t thread, uint64_t time)
{
  return thread == w->thread || time < known_up_to(w, w->thread, thread);
}

static uint64_t *known_of(qn_sanitizer *w, uint32_t thread)
{
  qn_order *o = w->order;
  if (!o->known[thread]) o->known[thread] = qn_allocate_zero(QN_SANITIZER_THREADS, sizeof **o->known);
  if (o->known[thread])
    o->any_known = true;
  else
    w->order_unknown = true;
  return o->known[thread];
}

static void take_over(qn_sanitizer *w, uint32_t thread, const uint64_t *from)
{
  uint64_t *to = known_of(w, thread);
  for (uint32_t k = 0; to && k < w->threads; k++)
    if (from[k] > to[k]) to[k] = from[k];
}

/* Lanes of a simdgroup that met know what any of them knew. */
void qn_order_meet(qn_sanitizer *w, uint32_t begin, uint32_t lanes)
{
  const qn_order *o = w->order;
  if (!o || !o->any_known) return;
  for (uint32_t k = 0; k < QN_SIMD_LANES; k++)
    for (uint32_t j = 0; lanes >> k & 1 && o->known[begin + k] && j < QN_SIMD_LANES; j++)
      if (lanes >> j & 1 && j != k) take_over(w, begin + j, o->known[begin + k]);
}

/* ---- places ---- */
static place *find_place(qn_order *o, uintptr_t address, bool make)
{
  const size_t first = (size_t)((uint64_t)address * 0x9e3779b97f4a7c15u >> 40);
  for (size_t k = 0; k < 64; k++) {
    place *p = &o->place[(first + k) % PLACES];
    if (p->address == address) return p;
    if (p->address) continue;
    if (!make) return NULL;
    p->address = address;
    o->n_places++;
    return p;
  }
  return NULL;
}

static void hand_on_in_group(qn_sanitizer *w, place *p)
{
  if (!p->clock) p->clock = qn_allocate(QN_SANITIZER_THREADS * sizeof *p->clock), p->block = UINT64_MAX;
  if (!p->clock) {
    w->order_unknown = true;
    return;
  }
  if (p->block != w->block) memset(p->clock, 0, QN_SANITIZER_THREADS * sizeof *p->clock);
  p->block = w->block;
  for (uint32_t k = 0; k < w->threads; k++) {
    const uint64_t time = k == w->thread ? w->at[k].fenced : known_up_to(w, w->thread, k);
    if (time > p->clock[k]) p->clock[k] = time;
  }
}

static void hand_on_to_groups(qn_sanitizer *w, place *p)
{
  qn_order *o = w->order;
  const qn_sanitized_thread *t = &w->at[w->thread];
  const released new = {.block = (uint32_t)w->block,
                        .thread = w->thread,
                        .fence = t->fenced_far,
                        .group = w->group_time,
                        .simd = w->simd_time[w->thread / QN_SIMD_LANES],
                        .wide = w->seen || (o->any_known && o->known[w->thread]),
                        .first_got = (uint32_t)o->first_got,
                        .last_got = (uint32_t)o->n_got};
  for (size_t k = p->n; k > 0 && p->list[k - 1].block == new.block; k--)
    if (p->list[k - 1].thread == new.thread) {
      p->list[k - 1] = new;
      return;
    }
  if (p->n == p->room) {
    released *more = qn_reallocate(p->list, (p->room = p->room ? 2 * p->room : 16) * sizeof *more);
    if (!more) {
      w->order_unknown = true;
      return;
    }
    p->list = more;
  }
  p->list[p->n++] = new;
}

static void get(qn_sanitizer *w, place *p)
{
  qn_order *o = w->order;
  if (p->clock && p->block == w->block) take_over(w, w->thread, p->clock);
  if (!p->n || p->list[0].block == (uint32_t)w->block) return; /* nothing of other groups */
  const uint32_t number = (uint32_t)(p - o->place);
  for (size_t k = o->n_got; k > o->first_got; k--)
    if (o->got[k - 1].place == number && o->got[k - 1].thread == w->thread) return;
  if (o->n_got == o->got_room) {
    got *more = o->n_got < MOST_ACQUIRED
                    ? qn_reallocate(o->got, (o->got_room = o->got_room ? 2 * o->got_room : 64) * sizeof *more)
                    : NULL;
    if (!more) {
      w->order_unknown = true;
      return;
    }
    o->got = more;
  }
  o->got[o->n_got++] = (got){number, w->thread, ++w->now};
}

void qn_order_fence(qn_sanitizer *w, bool far)
{
  qn_sanitized_thread *t = &w->at[w->thread];
  t->fenced = ++w->now;
  if (far) t->fenced_far = t->fenced;
  if (!w->order) w->order = qn_allocate_zero(1, sizeof *w->order);
  w->order_unknown |= !w->order;
}

void qn_order_atomic(qn_sanitizer *w, uintptr_t address, bool reads, bool writes)
{
  const qn_sanitized_thread *t = &w->at[w->thread];
  if (!w->order || w->order_unknown) return;
  place *p = find_place(w->order, address, writes && t->fenced);
  if (!p) {
    w->order_unknown |= writes && t->fenced;
    return;
  }
  if (reads) get(w, p);
  if (!writes || !t->fenced) return;
  hand_on_in_group(w, p);
  if (t->fenced_far) hand_on_to_groups(w, p);
  w->now++;
}

/* ---- of other groups ---- */
static bool hands_on(const released *r, const qn_shadow_slot *s)
{
  if (r->thread == s->thread || r->wide) return s->time < r->fence;
  return s->time < r->group || (r->thread / QN_SIMD_LANES == s->thread / QN_SIMD_LANES && s->time < r->simd);
}

static bool place_has(const place *p, const qn_shadow_slot *s)
{
  size_t low = 0, high = p->n;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (p->list[middle].block < s->block)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < p->n && p->list[low].block == s->block; low++)
    if (hands_on(&p->list[low], s)) return true;
  return false;
}

/* Or who handed on there had been handed it. */
static bool place_leads_to(qn_order *o, place *p, const qn_shadow_slot *s, unsigned *steps)
{
  if (p->looked == o->question) return false;
  p->looked = o->question;
  if (place_has(p, s)) return true;
  for (size_t k = p->n; k > 0; k--)
    for (uint32_t j = p->list[k - 1].first_got; j < p->list[k - 1].last_got; j++) {
      if (++*steps > MOST_STEPS) return true;
      if (place_leads_to(o, &o->place[o->got[j].place], s, steps)) return true;
    }
  return false;
}

static bool is_handed_on(const qn_sanitizer *w, const qn_shadow_slot *s)
{
  qn_order *o = w->order;
  unsigned steps = 0;
  if (w->order_unknown) return true;
  for (size_t k = o ? o->first_got : 0; o && k < o->n_got; k++)
    if (is_known(w, o->got[k].thread, o->got[k].time) && place_has(&o->place[o->got[k].place], s)) return true;
  if (o) o->question++;
  for (size_t k = o ? o->first_got : 0; o && k < o->n_got; k++)
    if (is_known(w, o->got[k].thread, o->got[k].time) && place_leads_to(o, &o->place[o->got[k].place], s, &steps))
      return true;
  return false;
}

bool qn_order_has(const qn_sanitizer *w, const qn_shadow_slot *s)
{
  if (s->block != (uint32_t)w->block) return is_handed_on(w, s);
  return w->order_unknown || is_known(w, s->thread, s->time);
}
