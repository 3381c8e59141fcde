/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizer.c - the life of a sanitizer: what its launch gives, what the executor tells of groups, threads and what
 * they wait for, the time limit, and the findings as they come. Accesses are shadow.c's business, sentences report.c's.
 */
#include "device/emulator/sanitizer_state.h"
#include <string.h>
#include <time.h>

enum { TICKS = 512 }; /* between two looks at the clock */
_Thread_local qn_sanitizer_here qn_sanitizing;

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- by the launch's owner ---- */
static qn_status copy_plan(qn_sanitizer *w, const qn_sanitizer_plan *plan)
{
  size_t bytes = plan->n_arrays * sizeof *w->array + strlen(plan->kernel) + strlen(plan->file) + 2;
  for (size_t k = 0; k < plan->n_arrays; k++) bytes += strlen(plan->arrays[k].name) + 1;
  qn_try(qn_try_allocate(&w->array, bytes, "a sanitizer's arrays"));
  char *text = (char *)(w->array + plan->n_arrays);
  w->plan = *plan;
  w->plan.kernel = text;
  text = stpcpy(text, plan->kernel) + 1;
  w->plan.file = text;
  text = stpcpy(text, plan->file) + 1;
  for (size_t k = 0; k < plan->n_arrays; k++) {
    w->array[k] = plan->arrays[k];
    w->array[k].name = text;
    text = stpcpy(text, plan->arrays[k].name) + 1;
  }
  w->plan.arrays = w->array;
  for (int d = 0; d < 3; d++) w->blocks[d] = (uint32_t)((plan->grid[d] + plan->group[d] - 1) / plan->group[d]);
  if (plan->limit_ns > 0 && __builtin_add_overflow(now_ns(), plan->limit_ns, &w->deadline_ns))
    w->deadline_ns = INT64_MAX;
  return QN_OK;
}

static void release(qn_sanitizer *w)
{
  if (w->plan.check) qn_shadow_close(w);
  qn_order_close(w);
  qn_release(w->seen);
  qn_release(w->at);
  qn_release(w->array);
  qn_release(w);
}

qn_status qn_sanitizer_create(qn_sanitizer **sanitizer, const qn_sanitizer_plan *plan)
{
  *sanitizer = NULL;
  if (!plan->function->object)
    return qn_fail(QN_UNSUPPORTED, "kernel %s: what was compiled for it cannot be sanitized", plan->kernel);
  qn_sanitizer *w = qn_allocate_zero(1, sizeof *w);
  if (!w) return qn_fail(QN_NO_MEMORY, "kernel %s: no memory to sanitize it", plan->kernel);
  w->now = 1;
  w->object = plan->function->object;
  qn_status status = copy_plan(w, plan);
  if (status == QN_OK && plan->check) {
    w->at = qn_allocate_zero(QN_SANITIZER_THREADS, sizeof *w->at);
    status = w->at ? qn_shadow_open(w) : qn_fail(QN_NO_MEMORY, "kernel %s: no memory to sanitize it", plan->kernel);
  }
  if (status != QN_OK) {
    release(w);
    return status;
  }
  qn_report_clear();
  *sanitizer = w;
  return QN_OK;
}

static void note_deadlock(qn_sanitizer *w);

qn_status qn_sanitizer_end(qn_sanitizer **sanitizer, qn_status launched)
{
  char first[512];
  qn_sanitizer *w = *sanitizer;
  qn_status status = launched;
  *sanitizer = NULL;
  if (atomic_load(&w->expired)) {
    qn_raw_finding raw = {.fault = QN_WRONG_TIME, .place = w->stopped[0]};
    memcpy(raw.before, w->stopped + 1, sizeof raw.before);
    qn_sanitizer_note(w, &raw);
  }
  qn_shadow_settle(w);
  if (w->plan.check && launched == QN_OK && w->failed == QN_OK) qn_shadow_finish(w);
  if (w->plan.check && launched == QN_KERNEL_ERROR && !w->n_raw) note_deadlock(w);
  if (qn_report_make(w, first, sizeof first))
    status = qn_fail(QN_KERNEL_ERROR, "%s", first);
  else if (launched == QN_OK)
    status = w->failed;
  release(w);
  return status;
}

void qn_sanitizer_note(qn_sanitizer *w, const qn_raw_finding *raw)
{
  if (w->plan.ignored >> qn_sanitizer_kind(raw->fault) & 1) return;
  for (size_t k = 0; k < w->n_raw; k++) {
    qn_raw_finding *old = &w->raw[k];
    if (old->fault != raw->fault || old->where != raw->where || old->line != raw->line ||
        old->other_line != raw->other_line || old->place != raw->place || old->other_place != raw->other_place)
      continue;
    old->count++;
    return;
  }
  w->lost = w->n_raw == QN_SANITIZER_RAW;
  if (w->lost) return;
  w->raw[w->n_raw] = *raw;
  if (!raw->count) w->raw[w->n_raw].count = 1;
  w->n_raw++;
}

void qn_sanitizer_leave(qn_sanitizer *w)
{
  if (w->plan.check) {
    w->at[w->thread].state = QN_THREAD_LEFT;
    w->left_any = w->left_here = true;
  }
  qn_group_leave();
}

/* ---- by the executor ---- */
static bool is_checked(const qn_sanitizer *w) { return w && w->plan.check; }
uint64_t qn_sanitizer_seed(const qn_sanitizer *w) { return w ? w->plan.seed : 0; }

static void add_object(qn_sanitizer *w)
{
  const qn_emulator_object *o = w->object;
  char *anchor = o->anchor();
  for (size_t k = 0; k < o->n_segments; k++)
    qn_shadow_add(w, &(qn_region){.begin = o->segment[k].begin,
                                  .end = o->segment[k].end,
                                  .name = "the kernel's constants",
                                  .kind = QN_REGION_OTHER,
                                  .writable = o->segment[k].writable});
  for (size_t k = 0; k < o->n_arrays; k++) {
    const uintptr_t begin = (uintptr_t)anchor + o->array[k].offset;
    qn_shadow_add(w, &(qn_region){.begin = begin,
                                  .end = begin + o->array[k].bytes,
                                  .name = o->array[k].name,
                                  .kind = o->array[k].inner ? QN_REGION_OTHER : QN_REGION_THREADGROUP,
                                  .writable = true});
  }
}

static void begin_threads(qn_sanitizer *w)
{
  memset(w->simd_time, 0, sizeof w->simd_time);
  if (w->seen) memset(w->seen, 0, QN_SANITIZER_THREADS * sizeof *w->seen);
  for (uint32_t k = 0; k < w->threads; k++) {
    qn_sanitized_thread *t = &w->at[k];
    t->state = qn_sanitizer_exists(w, w->block, k) ? QN_THREAD_RUNS : QN_THREAD_ABSENT;
    t->depth = 0;
    t->line = 0;
    memset(t->last, 0, sizeof t->last);
    t->access = 0;
    t->stray = 0;
    t->strays = 0;
    t->fenced = t->fenced_far = 0;
  }
}

bool qn_sanitizer_group_begin(qn_sanitizer *w, const qn_launch *launch, uint64_t block, void *shared)
{
  qn_sanitizing = (qn_sanitizer_here){.sanitizer = w, .ticks = 1};
  if (atomic_load_explicit(&w->expired, memory_order_relaxed)) return false;
  if (!w->plan.check || !w->object) return true;
  qn_shadow_settle(w);
  w->block = block;
  w->threads = launch->threads;
  w->group_time = ++w->now;
  qn_order_begin_group(w);
  w->left_here = false;
  begin_threads(w);
  qn_shadow_group(w);
  add_object(w);
  qn_sanitizer_allow(launch->argument, launch->argument_bytes);
  qn_sanitizer_allow(&qn_group_table, sizeof qn_group_table);
  if (shared && launch->shared_bytes)
    qn_shadow_add(w, &(qn_region){.begin = (uintptr_t)shared,
                                  .end = (uintptr_t)shared + launch->shared_bytes,
                                  .name = "shared memory",
                                  .kind = QN_REGION_THREADGROUP,
                                  .writable = true});
  return w->failed == QN_OK;
}

void qn_sanitizer_group_end(void) { qn_sanitizing.sanitizer = NULL; }

qn_sanitizer *qn_sanitizer_pause(void)
{
  qn_sanitizer *sanitizer = qn_sanitizing.sanitizer;
  qn_sanitizing.sanitizer = NULL;
  return sanitizer;
}

void qn_sanitizer_resume(qn_sanitizer *sanitizer) { qn_sanitizing.sanitizer = sanitizer; }

void qn_sanitizer_allow(const void *begin, size_t bytes)
{
  qn_sanitizer *w = qn_sanitizing.sanitizer;
  if (is_checked(w))
    qn_shadow_add(w, &(qn_region){.begin = (uintptr_t)begin,
                                  .end = (uintptr_t)begin + bytes,
                                  .name = "the kernel's argument",
                                  .kind = QN_REGION_OTHER,
                                  .writable = true});
}

void qn_sanitizer_switch(uint32_t thread, const void *stack, size_t stack_bytes)
{
  qn_sanitizer *w = qn_sanitizing.sanitizer;
  if (!is_checked(w)) return;
  qn_shadow_settle(w);
  w->thread = thread;
  w->stack = (uintptr_t)stack;
  w->stack_bytes = stack_bytes;
}

void qn_sanitizer_return(void)
{
  qn_sanitizer *w = qn_sanitizing.sanitizer;
  if (is_checked(w) && w->at[w->thread].state != QN_THREAD_ABSENT) w->at[w->thread].state = QN_THREAD_RETURNED;
}

/* ---- what those who met tell ---- */
static void note_meeting(qn_sanitizer *w, qn_sanitizer_wrong fault, uint32_t thread, uint32_t other, uint32_t lanes)
{
  const qn_sanitized_thread *a = &w->at[thread], *b = &w->at[other];
  const bool waits = b->state == QN_THREAD_WAITS || b->state == QN_THREAD_WAITS_SIMD;
  qn_raw_finding raw = {.fault = fault,
                        .block = w->block,
                        .other_block = w->block,
                        .thread = (uint16_t)thread,
                        .other_thread = (uint16_t)other,
                        .lanes = lanes,
                        .line = a->line,
                        .place = a->wait,
                        .other_line = waits ? b->line : 0,
                        .other_place = waits ? b->wait : b->access, /* the line of a return is hardly ever known */
                        .other_write = waits};
  if (!waits) memcpy(raw.before, b->last + 1, sizeof raw.before);
  qn_sanitizer_note(w, &raw);
}

/* The group could not go on: a collective whose mask has lanes that wait elsewhere. */
static void note_deadlock(qn_sanitizer *w)
{
  for (uint32_t k = 0; k < w->threads; k++) {
    const qn_sanitized_thread *t = &w->at[k];
    const uint32_t begin = k / QN_SIMD_LANES * QN_SIMD_LANES;
    uint32_t lanes = 0, missing = w->threads;
    if (t->state != QN_THREAD_WAITS_SIMD) continue;
    for (uint32_t j = begin; j < begin + QN_SIMD_LANES && j < w->threads; j++) {
      const qn_sanitized_thread *o = &w->at[j];
      if (o->state == QN_THREAD_WAITS_SIMD && o->key == t->key && o->mask == t->mask)
        lanes |= UINT32_C(1) << (j - begin);
      else if ((!t->mask || t->mask >> (j - begin) & 1) && o->state <= QN_THREAD_WAITS_SIMD && missing == w->threads)
        missing = j;
    }
    if (missing == w->threads) continue;
    note_meeting(w, QN_WRONG_LANES, k, missing, lanes);
    return;
  }
}

static void pass_group(qn_sanitizer *w)
{
  uint32_t first = w->threads;
  for (uint32_t k = 0; k < w->threads && first == w->threads; k++)
    if (w->at[k].state == QN_THREAD_WAITS) first = k;
  for (uint32_t k = 0; k < w->threads && first < w->threads; k++) {
    const qn_sanitized_thread *t = &w->at[k];
    if (t->state == QN_THREAD_RETURNED && !w->plan.may_return)
      note_meeting(w, QN_WRONG_RETURNED, first, k, 0);
    else if (t->state == QN_THREAD_WAITS && t->key != w->at[first].key)
      note_meeting(w, QN_WRONG_BARRIERS, first, k, 0);
  }
  for (uint32_t k = 0; k < w->threads; k++)
    if (w->at[k].state == QN_THREAD_WAITS) w->at[k].state = QN_THREAD_RUNS, w->at[k].stray = 0;
  w->group_time = ++w->now;
}

/* Some lanes of a simdgroup met alone: each of them has now seen what any of them had. */
static void share_seen(qn_sanitizer *w, uint32_t begin, uint32_t lanes)
{
  uint64_t most[QN_SIMD_LANES] = {0};
  if (!w->seen) w->seen = qn_allocate_zero(QN_SANITIZER_THREADS, sizeof *w->seen);
  if (!w->seen) {
    w->simd_time[begin / QN_SIMD_LANES] = w->now; /* as if all had met: no race is made up */
    return;
  }
  for (uint32_t k = 0; k < QN_SIMD_LANES; k++)
    for (uint32_t j = 0; lanes >> k & 1 && j < QN_SIMD_LANES; j++)
      if (w->seen[begin + k][j] > most[j]) most[j] = w->seen[begin + k][j];
  for (uint32_t j = 0; j < QN_SIMD_LANES; j++)
    if (lanes >> j & 1) most[j] = w->now;
  for (uint32_t k = 0; k < QN_SIMD_LANES; k++)
    if (lanes >> k & 1) memcpy(w->seen[begin + k], most, sizeof most);
}

static void pass_simd(qn_sanitizer *w, uint32_t simd, uint32_t lanes)
{
  const uint32_t begin = simd * QN_SIMD_LANES;
  const uint32_t end = begin + QN_SIMD_LANES < w->threads ? begin + QN_SIMD_LANES : w->threads;
  uint32_t there = 0;
  if (!lanes) return;
  const uint32_t first = begin + (uint32_t)__builtin_ctz(lanes);
  const uint32_t wanted = w->at[first].mask ? w->at[first].mask : ~0u;
  for (uint32_t k = begin; k < end; k++) {
    const qn_sanitized_thread *t = &w->at[k];
    const bool came = lanes >> (k - begin) & 1;
    if (t->state != QN_THREAD_ABSENT) there |= 1u << (k - begin);
    if (came ? t->key != w->at[first].key
             : !w->at[first].together && (wanted >> (k - begin) & 1) &&
                   (t->state == QN_THREAD_WAITS || t->state == QN_THREAD_WAITS_SIMD || t->state == QN_THREAD_RUNS))
      note_meeting(w, QN_WRONG_LANES, first, k, lanes);
  }
  for (uint32_t k = begin; k < end; k++)
    if (lanes >> (k - begin) & 1) w->at[k].state = QN_THREAD_RUNS;
  qn_stray_meet(w, begin, lanes);
  qn_order_meet(w, begin, lanes);
  w->now++;
  if (lanes == there)
    w->simd_time[simd] = w->now;
  else
    share_seen(w, begin, lanes);
}

void qn_sanitizer_pass(int simd, uint32_t lanes)
{
  qn_sanitizer *w = qn_sanitizing.sanitizer;
  if (!is_checked(w)) return;
  if (simd < 0)
    pass_group(w);
  else
    pass_simd(w, (uint32_t)simd, lanes);
}

/* ---- calls: a chain of call sites is a number, found by its parent and the site ---- */
static uint16_t chain_of(qn_sanitizer *w, uint16_t parent, uint32_t offset)
{
  const uint32_t hash = (offset * 2654435761u) ^ (parent * 40503u);
  for (uint16_t up = parent; up; up = (uint16_t)w->chain_parent[up]) /* recursion goes round in one chain */
    if (w->chain_offset[up] == offset) return up;
  for (uint32_t k = 0; k < 16; k++) {
    const uint32_t at = (hash + k) % (QN_SANITIZER_CALLS - 1) + 1; /* 0 is the chain of no calls */
    if (!w->chain_offset[at]) {
      if (w->n_chains > QN_SANITIZER_CALLS / 2) return parent;
      w->n_chains++;
      w->chain_offset[at] = offset;
      w->chain_parent[at] = parent;
    }
    if (w->chain_offset[at] == offset && w->chain_parent[at] == parent) return (uint16_t)at;
  }
  return parent;
}

static uint32_t offset_of(const qn_sanitizer *w, const void *place)
{
  const uintptr_t offset = (uintptr_t)place - w->object->base;
  return offset < 1u << QN_PLACE_OFFSET_BITS ? (uint32_t)offset : 0;
}

static uint16_t chain_now(const qn_sanitized_thread *t)
{
  return t->depth == 0 ? 0 : t->chain[(t->depth < QN_SANITIZER_NESTING ? t->depth : QN_SANITIZER_NESTING) - 1];
}

qn_sanitizer_place qn_sanitizer_place_of(const qn_sanitizer *w, const void *place)
{
  const uint32_t offset = offset_of(w, place);
  return offset ? offset | (qn_sanitizer_place)chain_now(&w->at[w->thread]) << QN_PLACE_OFFSET_BITS : 0;
}

static void enter(qn_sanitizer *w, const qn_entered *entered, const void *place)
{
  qn_sanitized_thread *t = &w->at[w->thread];
  const uint32_t site = t->depth ? offset_of(w, entered->from) : 0; /* the first call is the executor's */
  const uint16_t chain = chain_now(t);
  if (t->depth < QN_SANITIZER_NESTING) {
    t->chain[t->depth] = site ? chain_of(w, chain, site) : chain;
    t->frame[t->depth] = (uintptr_t)entered->frame;
  }
  if (t->depth < UINT16_MAX) t->depth++;
  qn_stop_enter(w, place);
}

static void leave_call(qn_sanitized_thread *t)
{
  if (t->depth) t->depth--;
}

void qn_sanitizer_wait(qn_wait what, int line, uint64_t key, uint32_t mask, const void *place)
{
  qn_sanitizer *w = qn_sanitizing.sanitizer;
  if (!is_checked(w)) return;
  qn_sanitized_thread *t = &w->at[w->thread];
  t->state = what == QN_WAIT_GROUP ? QN_THREAD_WAITS : QN_THREAD_WAITS_SIMD;
  t->line = line;
  t->key = key;
  t->together = what == QN_WAIT_COLLECTIVE && !mask;
  t->mask = mask;
  t->wait = w->object ? qn_sanitizer_place_of(w, place) : 0;
}

/* ---- what the kernel's object calls ---- */
static void note_last(qn_sanitized_thread *t, qn_sanitizer_place place)
{
  if (place == t->last[0]) return;
  for (size_t k = QN_SANITIZER_BEFORE; k > 0; k--) t->last[k] = t->last[k - 1];
  t->last[0] = place;
}

void qn_sanitizer_access(const void *address, qn_u32 bytes, int kind, const void *place)
{
  qn_sanitizer *w = qn_sanitizing.sanitizer;
  if (!is_checked(w) || !w->object) return;
  qn_shadow_settle(w);
  const uintptr_t a = (uintptr_t)address;
  if (kind == QN_ACCESS_ENTER)
    enter(w, address, place);
  else if (kind == QN_ACCESS_EXIT)
    leave_call(&w->at[w->thread]);
  else if (kind == QN_ACCESS_INDEX || kind == QN_ACCESS_DIVISION)
    qn_stop_told(w, address, kind, bytes, place);
  else if (kind == QN_ACCESS_FENCE)
    qn_order_fence(w, bytes != 0);
  else if (kind == QN_ACCESS_MISPLACED)
    qn_stop_misplaced(w, address, place);
  else if (kind == QN_ACCESS_LANE || kind == QN_ACCESS_NO_LANE || kind == QN_ACCESS_ONE_LANE)
    qn_stray_value(w, bytes, kind, place);
  else if (a - w->stack < w->stack_bytes && bytes <= w->stack_bytes - (a - w->stack))
    qn_stop_in_stack(w, a, bytes, kind, place);
  else if (kind != QN_ACCESS_OWN_READ && kind != QN_ACCESS_OWN_WRITE)
    qn_shadow_access(w, a, bytes, kind, qn_sanitizer_place_of(w, place));
}

static void look_at_clock(qn_sanitizer *w, const void *place)
{
  qn_sanitizing.ticks = TICKS;
  if (!w->deadline_ns) return;
  if (!atomic_load_explicit(&w->expired, memory_order_relaxed)) {
    if (now_ns() < w->deadline_ns) return;
    if (!atomic_exchange(&w->expired, true) && w->object) {
      w->stopped[0] = w->plan.check ? qn_sanitizer_place_of(w, place) : offset_of(w, place);
      for (size_t k = 0; k < QN_SANITIZER_BEFORE; k++) w->stopped[k + 1] = offset_of(w, qn_sanitizing.before[k]);
    }
  }
  qn_sanitizing.ticks = 1; /* whoever runs next is left at once too */
  qn_sanitizer_leave(w);
}

void qn_sanitizer_tick(const void *place)
{
  qn_sanitizer *w = qn_sanitizing.sanitizer;
  if (!w) return;
  if (w->plan.check && w->object) note_last(&w->at[w->thread], qn_sanitizer_place_of(w, place));
  if (place != qn_sanitizing.last) {
    for (size_t k = QN_SANITIZER_BEFORE - 1; k > 0; k--) qn_sanitizing.before[k] = qn_sanitizing.before[k - 1];
    qn_sanitizing.before[0] = qn_sanitizing.last;
    qn_sanitizing.last = place;
  }
  if (--qn_sanitizing.ticks <= 0) look_at_clock(w, place);
}
