/* SPDX-License-Identifier: Apache-2.0 */
/* stops.c - what a checked thread does with itself: indices and pointers of which the compiler tells that they lead out
 * of their array or are not aligned, divisions without a result, its stack, and values that a shuffle took from a lane
 * that is not there. Accesses to the launch's memory are shadow.c's business. */
#include "device/emulator/sanitizer_state.h"
#include <string.h>

/* The compiler's data on a failed index, division or pointer: its place and its type, and of a pointer the logarithm
 * of its alignment and what is done with it. */
typedef struct told {
  const char *file;
  uint32_t line, column;
  const struct told_type {
    uint16_t kind, more;
    char name[];
  } * type;
  uint8_t align, use;
} told;
enum { USE_STORE = 1 };

/* Of the running thread. Where the compiler names a line of the body, that is it. */
static qn_raw_finding begin(const qn_sanitizer *w, qn_sanitizer_wrong fault, const told *what, const void *place)
{
  const size_t file = strlen(w->plan.file), length = what && what->file ? strlen(what->file) : 0;
  const bool in_body = length >= file && what && !strcmp(what->file + length - file, w->plan.file);
  return (qn_raw_finding){.fault = fault,
                          .block = w->block,
                          .thread = (uint16_t)w->thread,
                          .line = in_body ? (int)what->line : 0,
                          .place = in_body ? 0 : qn_sanitizer_place_of(w, place),
                          .where = "",
                          .first = -1,
                          .last = -1};
}

static _Noreturn void stop(qn_sanitizer *w, const qn_raw_finding *raw)
{
  qn_sanitizer_note(w, raw);
  qn_sanitizer_leave(w);
}

void qn_stop_told(qn_sanitizer *w, const void *what, int kind, uint32_t index, const void *place)
{
  const told *t = what;
  qn_raw_finding raw = begin(w, kind == QN_ACCESS_INDEX ? QN_WRONG_INDEX : QN_WRONG_DIVISION, t, place);
  if (kind == QN_ACCESS_INDEX) {
    raw.where = t->type->name;
    raw.first = (int32_t)index;
  }
  stop(w, &raw);
}

/* ---- pointers ---- */
/* Arrays count as aligned to whatever their elements want: on a GPU they are. But for one that begins elsewhere. */
static bool is_aligned(const qn_region *r, uintptr_t at, uintptr_t align)
{
  enum { SURE = 16 };
  return at % align == 0 || (r && r->begin % (align < SURE ? align : SURE) == 0 && (at - r->begin) % align == 0);
}

void qn_stop_misplaced(qn_sanitizer *w, const qn_misplaced *m, const void *place)
{
  const told *t = m->what;
  const uintptr_t at = (uintptr_t)m->at, align = (uintptr_t)1 << t->align;
  const qn_region *r = qn_shadow_region(w, at);
  if (at % align) {
    if (is_aligned(r, at, align)) return;
    qn_raw_finding raw = begin(w, QN_WRONG_ALIGNMENT, t, place);
    raw.write = t->use == USE_STORE;
    raw.lanes = (uint32_t)align;
    raw.where = r ? r->name : "";
    raw.first = raw.last = (int64_t)(r ? at - r->begin : at);
    raw.array_bytes = r ? (int64_t)(r->end - r->begin) : -1;
    stop(w, &raw);
  }
  if (r || !at) return; /* the access itself reports this error */
  qn_raw_finding raw = begin(w, QN_WRONG_OWN, t, place);
  raw.write = t->use == USE_STORE;
  stop(w, &raw);
}

/* ---- the stack ---- */
void qn_stop_enter(qn_sanitizer *w, const void *place)
{
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (here - w->stack >= w->stack_bytes || here - w->stack > QN_SANITIZER_STACK_SPARE) return;
  qn_raw_finding raw = begin(w, QN_WRONG_STACK, NULL, place);
  raw.where = "stack";
  raw.array_bytes = (int64_t)w->stack_bytes;
  stop(w, &raw);
}

/* Below all calls no variable is; nor, where frames grow down from their pointers, above the first or where a call's
 * return address lies. */
void qn_stop_in_stack(qn_sanitizer *w, uintptr_t address, size_t bytes, int kind, const void *place)
{
  enum { KEPT = 2 * sizeof(void *) }; /* the return address and the caller's frame */
  const qn_sanitized_thread *t = &w->at[w->thread];
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  bool outside = address < here;
#if defined(__x86_64__)
  const uintptr_t end = address + bytes;
  outside |= t->depth && end > t->frame[0];
  for (unsigned k = 0; k < t->depth && k < QN_SANITIZER_NESTING; k++)
    outside |= address < t->frame[k] + KEPT && end > t->frame[k];
#else
  (void)bytes, (void)t;
#endif
  if (!outside) return;
  qn_raw_finding raw = begin(w, QN_WRONG_OWN, NULL, place);
  raw.write = kind != QN_ACCESS_READ && kind != QN_ACCESS_ATOMIC_READ && kind != QN_ACCESS_OWN_READ;
  stop(w, &raw);
}

/* ---- lanes that are not there ---- */
/* A thread has a stray value from the shuffle that gave it one until it writes memory, which is the fault, or until a
 * broadcast or a barrier of the group: code that reduces by shuffles lets lanes have such values and drops them. */
void qn_stray_value(qn_sanitizer *w, uint32_t source, int kind, const void *place)
{
  qn_sanitized_thread *t = &w->at[w->thread];
  const qn_sanitized_thread *from = &w->at[w->thread / QN_SIMD_LANES * QN_SIMD_LANES + source];
  if (kind == QN_ACCESS_NO_LANE) {
    t->stray = qn_sanitizer_place_of(w, place);
    t->stray_lane = (uint8_t)source;
  } else if (t->strays >> source & 1) {
    if (from == t) return;
    t->stray = from->stray ? from->stray : qn_sanitizer_place_of(w, place);
    t->stray_lane = from->stray ? from->stray_lane : (uint8_t)source;
  } else if (kind == QN_ACCESS_ONE_LANE)
    t->stray = 0;
}

void qn_stray_meet(qn_sanitizer *w, uint32_t begin, uint32_t lanes)
{
  uint32_t strays = 0;
  for (uint32_t k = 0; k < QN_SIMD_LANES; k++)
    if (lanes >> k & 1 && w->at[begin + k].stray) strays |= UINT32_C(1) << k;
  for (uint32_t k = 0; k < QN_SIMD_LANES; k++)
    if (lanes >> k & 1) w->at[begin + k].strays = strays;
}

void qn_stray_write(qn_sanitizer *w)
{
  qn_sanitized_thread *t = &w->at[w->thread];
  qn_sanitizer_note(w, &(qn_raw_finding){.fault = QN_WRONG_ABSENT,
                                         .block = w->block,
                                         .thread = (uint16_t)w->thread,
                                         .place = t->stray,
                                         .where = "",
                                         .first = -1,
                                         .last = -1,
                                         .lanes = t->stray_lane});
  t->stray = 0;
}
