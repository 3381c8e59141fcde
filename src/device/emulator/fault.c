/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c - says why a group of threads cannot go on: who waits where. */
#include "device/emulator/arena.h"

/* Threads that wait for the same. */
typedef struct place {
  bool barrier;
  int line, called; /* the line of the outermost call that it is in; 0: none */
  uint64_t key;
  qn_u32 mask;
  unsigned n, first;
} place;

enum { MOST_PLACES = 16, TOLD_PLACES = 4 };

static void note(place *places, unsigned *n, const place *found)
{
  unsigned k = 0;
  while (k < *n &&
         (places[k].barrier != found->barrier || places[k].key != found->key || places[k].mask != found->mask))
    k++;
  if (k == MOST_PLACES) return;
  if (k == *n) places[(*n)++] = *found;
  places[k].n++;
}

/* Barriers first, then by line, as a reader looks for them. */
static bool before(const place *a, const place *b) { return a->barrier != b->barrier ? a->barrier : a->line < b->line; }

static int line_of_call(const qn_call_site *call)
{
  while (call && call->up) call = call->up;
  return call ? (int)(call->place >> 32) : 0;
}

static unsigned collect(const qn_arena *arena, place *places)
{
  unsigned n = 0;
  for (unsigned k = 0; k < arena->n_simds; k++) {
    const qn_simd *s = arena->simd[k];
    for (qn_u32 left = s->gathered | s->at_barrier; left; left &= left - 1) {
      const unsigned lane = (unsigned)__builtin_ctz(left);
      const bool barrier = s->at_barrier >> lane & 1;
      note(places, &n,
           &(place){.barrier = barrier,
                    .line = s->line[lane],
                    .called = line_of_call(s->slot[lane][1]),
                    .key = qn_simd_place(s, lane, s->line[lane]),
                    .mask = barrier ? 0 : s->mask[lane],
                    .first = k * QN_SIMD_LANES + lane});
    }
  }
  for (unsigned i = 1; i < n; i++)
    for (unsigned j = i; j > 0 && before(&places[j], &places[j - 1]); j--) {
      const place kept = places[j];
      places[j] = places[j - 1];
      places[j - 1] = kept;
    }
  return n;
}

static void tell(qn_text *text, const place *p)
{
  qn_text_add(text, "%s%u thread%s (the first is %u) wait%s at ", text->length ? ", " : "", p->n, p->n > 1 ? "s" : "",
              p->first, p->n > 1 ? "" : "s");
  qn_text_add(text, p->barrier ? "the barrier of " : "a simdgroup's collective of ");
  if (p->line)
    qn_text_add(text, "line %d", p->line);
  else
    qn_text_add(text, "an unknown line");
  if (p->called) qn_text_add(text, ", called at line %d,", p->called);
  if (p->mask) qn_text_add(text, " for the lanes 0x%08x", (unsigned)p->mask);
}

qn_status qn_group_explain(const qn_arena *g)
{
  place places[MOST_PLACES];
  qn_text text = {0};
  const unsigned long long block = g->block;
  if (g->fault == QN_GROUP_FAULT_MASK)
    return qn_fail(QN_KERNEL_ERROR,
                   "kernel %s, block %llu: thread %u calls a collective at line %d for the lanes 0x%08x, of which its "
                   "own, %u, is none",
                   g->function->name, block, g->at->number * QN_SIMD_LANES + g->lane, g->fault_line,
                   (unsigned)g->fault_mask, g->lane);
  const unsigned n = collect(g, places), returned = g->threads - g->live;
  for (unsigned k = 0; k < n && k < TOLD_PLACES; k++) tell(&text, &places[k]);
  if (n > TOLD_PLACES) qn_text_add(&text, ", others elsewhere");
  if (returned) qn_text_add(&text, ", %u %s returned", returned, returned > 1 ? "have" : "has");
  const char *why = g->fault == QN_GROUP_FAULT_DIVERGENT ? "threads of one simdgroup wait at different barriers"
                                                         : "its threads wait for each other and none can go on";
  qn_status status = qn_fail(QN_KERNEL_ERROR, "kernel %s, block %llu: %s: %s", g->function->name, block, why,
                             text.at ? text.at : "no memory to say where");
  qn_text_free(&text);
  return status;
}
