/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.c - do tensors of a list share bytes of which any is written? By order of address and without allocating: a
 * table takes the spans' addresses, is sorted digit by digit, and is swept. Where a list is longer than half the table
 * (the other half is the sort's) the table takes the lowest addresses not yet seen, as a heap, in as many rounds as it
 * needs, n log n each; who may allocate lends a table that is long enough. The table of a step is on its stack, and
 * small: a thread of 64 KB can step. Tensors that are not dense may cross without sharing an element: those that do are
 * compared one with another (share.c). */
#include "core/status.h"
#include "op/call.h"
#include "op/share.h"
#include "op/view.h"
#include <stdio.h>
#include <string.h>

enum { OWN_TABLE = 2 * (3 * 512 + 1) }; /* 24 KB: three tensors of 512 parameters and the workspace, and a spare */

/* A key is where a span begins, counted from a base, and behind that, in the lowest bits, which span it is: no two are
 * equal, and their order is that of the addresses. The table is a heap with the highest key on top while it fills. */
static void sink(uint64_t *heap, size_t n, size_t at)
{
  const uint64_t moving = heap[at];
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && heap[child] < heap[child + 1]) child++;
    if (moving >= heap[child]) break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

static void make_heap(uint64_t *heap, size_t n)
{
  for (size_t k = n / 2; k-- > 0;) sink(heap, n, k);
}

static void sort_heap(uint64_t *heap, size_t n)
{
  while (n > 1) {
    const uint64_t top = heap[0];
    heap[0] = heap[--n];
    sink(heap, n, 0);
    heap[n] = top;
  }
}

/* So few that counting their digits would cost more than all the rest of a call. */
enum { FEW = 32 };

static void sort_few(uint64_t *keys, size_t n, unsigned lowest)
{
  for (size_t k = 1; k < n; k++) {
    const uint64_t key = keys[k];
    size_t at = k;
    for (; at && keys[at - 1] >> lowest > key >> lowest; at--) keys[at] = keys[at - 1];
    keys[at] = key;
  }
}

/* By the bits from `lowest` on, lowest digit first; what is equal keeps its order. `spare` has room for as many keys. A
 * digit that all have in common, as the highest ones of addresses do, costs nothing. */
static void sort_digits(uint64_t *keys, uint64_t *spare, size_t n, unsigned lowest)
{
  uint64_t differ = 0, *from = keys, *to = spare;
  for (size_t k = 1; k < n; k++) differ |= keys[k] ^ keys[0];
  for (unsigned shift = lowest; shift < 64; shift += 8) {
    uint32_t place[256] = {0}, sum = 0;
    if (!(differ >> shift & 255)) continue;
    for (size_t k = 0; k < n; k++) place[from[k] >> shift & 255]++;
    for (size_t digit = 0; digit < 256; digit++) {
      const uint32_t count = place[digit];
      place[digit] = sum;
      sum += count;
    }
    for (size_t k = 0; k < n; k++) to[place[from[k] >> shift & 255]++] = from[k];
    uint64_t *swap = from;
    from = to;
    to = swap;
  }
  if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

static bool view_of(const qn_tensor *t, qn_view *view)
{
  const qn_tensor *const alone[QN_MAX_TENSORS] = {t};
  return qn_view_make(alone, 0, false, view);
}

qn_span qn_span_of(const qn_call *call, size_t role, size_t k)
{
  if (role == QN_MAX_TENSORS) {
    const uintptr_t begin = (uintptr_t)call->lent[k].memory;
    return (qn_span){begin, begin + call->lent[k].bytes, role, k};
  }
  const qn_tensor *t = &call->tensors[role][k];
  const uintptr_t begin = (uintptr_t)t->data;
  uint64_t n = qn_tensor_elements(t);
  qn_view view;
  if (call->strided && view_of(t, &view)) n = qn_view_reach(&view, 0);
  return (qn_span){begin, begin + n * qn_dtype_bytes(t->dtype), role, k};
}

/* Which span a key stands for: k * ROLES + role. */
enum { ROLES = 16 };
_Static_assert((int)QN_MAX_TENSORS < (int)ROLES, "the roles and the memory that is lent");

static qn_span span_at(const qn_call *call, size_t index) { return qn_span_of(call, index % ROLES, index / ROLES); }

/* Of a role, or of what is lent. */
static size_t spans_of(const qn_call *call, size_t role)
{
  if (role == QN_MAX_TENSORS) return call->n_lent;
  return call->tensors[role] ? qn_call_count(call, role) : 0;
}

/* Keys that no round has had yet: the lowest of them, and where those begin that are left for the next. */
typedef struct lowest {
  uint64_t *table;
  size_t n, room;
  unsigned bits;        /* of a key say which span it is */
  uintptr_t base, next; /* no span left begins below base; below next, once this round has seen them all */
  uintptr_t last;       /* where the last of the round before begins, */
  size_t last_index;    /* and which it is */
  bool left;
} lowest;

static lowest lowest_of(const qn_call *call, uint64_t *own, size_t own_room)
{
  lowest l = {.table = own, .room = own_room, .bits = 64 - (unsigned)__builtin_clzll((call->n + QN_MAX_LENT) * ROLES)};
  if (call->scratch) l.table = call->scratch, l.room = call->scratch_bytes / sizeof *l.table;
  return l;
}

static void leave(lowest *l, uintptr_t begin)
{
  if (!l->left || begin < l->next) l->next = begin;
  l->left = true;
}

static void offer(lowest *l, const qn_span *span)
{
  const size_t index = span->k * ROLES + span->role;
  if (span->begin == span->end || span->begin < l->base) return;
  if (span->begin == l->last && index <= l->last_index) return;
  if (span->begin - l->base > UINT64_MAX >> l->bits) {
    leave(l, span->begin);
    return;
  }
  const uint64_t key = (uint64_t)(span->begin - l->base) << l->bits | index;
  if (l->n < l->room) {
    l->table[l->n++] = key;
    if (l->n == l->room) make_heap(l->table, l->n);
    return;
  }
  const uint64_t out = key < l->table[0] ? l->table[0] : key;
  leave(l, l->base + (uintptr_t)(out >> l->bits));
  if (out == key) return;
  l->table[0] = key;
  sink(l->table, l->n, 0);
}

static size_t index_at(const lowest *l, size_t at) { return l->table[at] & ((UINT64_C(1) << l->bits) - 1); }

static void take_lowest(const qn_call *call, lowest *l)
{
  l->n = 0;
  l->left = false;
  for (size_t role = 0; role <= QN_MAX_TENSORS; role++)
    for (size_t k = 0, n = spans_of(call, role); k < n; k++) {
      const qn_span span = qn_span_of(call, role, k);
      offer(l, &span);
    }
  if (2 * l->n <= l->room && l->n < UINT32_MAX) { /* which is which of two that begin alike matters to a next round */
    if (l->n <= FEW)
      sort_few(l->table, l->n, l->left ? 0 : l->bits);
    else
      sort_digits(l->table, l->table + l->n, l->n, l->left ? 0 : l->bits);
    return;
  }
  if (l->n < l->room) make_heap(l->table, l->n);
  sort_heap(l->table, l->n);
}

/* False: every span was in some round. */
static bool go_on(lowest *l)
{
  if (!l->left) return false;
  if (l->n) {
    l->last = l->base + (uintptr_t)(l->table[l->n - 1] >> l->bits);
    l->last_index = index_at(l, l->n - 1);
  }
  l->base = l->next;
  return true;
}

static void describe(const qn_call *call, const qn_span *span, char *text, size_t bytes)
{
  const char *name = span->role == QN_MAX_TENSORS ? call->lent[span->k].name : call->op->info.tensors[span->role].name;
  if (span->role == QN_MAX_TENSORS || call->op->info.tensors[span->role].single)
    snprintf(text, bytes, "%s", name);
  else
    snprintf(text, bytes, "%s[%zu]", name, span->k);
}

qn_status qn_fail_overlap(const qn_call *call, const qn_span *a, const qn_span *b)
{
  char one[64], other[64];
  describe(call, a, one, sizeof one);
  describe(call, b, other, sizeof other);
  return qn_fail(QN_BAD_ARGUMENT,
                 "%s: %s (0x%zx to 0x%zx) and %s (0x%zx to 0x%zx) share memory, and at least one of them is written",
                 call->op->info.name, one, (size_t)a->begin, (size_t)a->end, other, (size_t)b->begin, (size_t)b->end);
}

size_t qn_overlap_scratch(size_t n_tensors) { return 2 * (n_tensors + 2) * sizeof(uint64_t); }

/* ---- spans that cross in a list that is not dense ---- */
static bool is_written(const qn_call *call, const qn_span *span)
{
  if (span->role == QN_MAX_TENSORS) return call->lent[span->k].is_written;
  return qn_call_access(call, span->role) & QN_WRITE;
}

static qn_rows rows_of(const qn_call *call, const qn_span *span)
{
  qn_view v;
  if (span->role >= QN_MAX_TENSORS || !view_of(&call->tensors[span->role][span->k], &v))
    return (qn_rows){span->begin, 1, span->end - span->begin, span->end - span->begin, 1, 1};
  const uint64_t width = qn_dtype_bytes(call->tensors[span->role][span->k].dtype);
  return (qn_rows){span->begin, v.rows, v.cols, v.pitch[0] * width, v.step[0], width};
}

static qn_status check_pair(const qn_call *call, const qn_span *a, const qn_span *b)
{
  if (a->end <= b->begin || b->end <= a->begin || (!is_written(call, a) && !is_written(call, b))) return QN_OK;
  const qn_rows one = rows_of(call, a), other = rows_of(call, b);
  return qn_rows_share(&one, &other) ? qn_fail_overlap(call, a, b) : QN_OK;
}

/* Is `a` before `b` in the order of keys? */
static bool before(const qn_span *a, const qn_span *b)
{
  if (a->begin != b->begin) return a->begin < b->begin;
  return a->k != b->k ? a->k < b->k : a->role < b->role;
}

/* `now`, at `at` of this round's table, against all that are before it in the order of keys: those from `from` on, and
 * where these are not all that may cross it (earlier), every tensor of the list. */
static qn_status check_crossing(const qn_call *call, const lowest *l, size_t from, size_t at, bool earlier)
{
  const qn_span now = span_at(call, index_at(l, at));
  for (size_t k = from; k < at && !earlier; k++) {
    const qn_span other = span_at(call, index_at(l, k));
    qn_try(check_pair(call, &other, &now));
  }
  for (size_t role = 0; role <= QN_MAX_TENSORS && earlier; role++)
    for (size_t k = 0, n = spans_of(call, role); k < n; k++) {
      const qn_span other = qn_span_of(call, role, k);
      if (other.begin != other.end && before(&other, &now)) qn_try(check_pair(call, &other, &now));
    }
  return QN_OK;
}

/* Spans of which each crosses one before it are a cluster; only within one can elements be shared. */
static qn_status check_strided(const qn_call *call)
{
  uintptr_t reached = 0; /* by the cluster */
  uint64_t own[OWN_TABLE];
  lowest l = lowest_of(call, own, OWN_TABLE);
  bool later = false; /* a round that is not the first */
  do {
    bool earlier = later; /* the cluster began in an earlier round */
    size_t from = 0;      /* its first, in this round's table */
    take_lowest(call, &l);
    for (size_t k = 0; k < l.n; k++) {
      const qn_span now = span_at(call, index_at(&l, k));
      if (now.begin >= reached) {
        from = k;
        earlier = false;
      } else {
        qn_try(check_crossing(call, &l, from, k, earlier));
      }
      if (now.end > reached) reached = now.end;
    }
    later = true;
  } while (go_on(&l));
  return QN_OK;
}

qn_status qn_check_overlap(const qn_call *call)
{
  if (call->strided) return check_strided(call);
  qn_span any = {0}, written = {0}; /* of those before, the one that reaches furthest */
  uint64_t own[OWN_TABLE];
  lowest l = lowest_of(call, own, OWN_TABLE);
  do {
    take_lowest(call, &l);
    for (size_t k = 0; k < l.n; k++) {
      const qn_span now = span_at(call, index_at(&l, k));
      const bool writes = is_written(call, &now);
      const qn_span *earlier = writes ? &any : &written;
      if (now.begin < earlier->end) return qn_fail_overlap(call, earlier, &now);
      if (now.end > any.end) any = now;
      if (writes && now.end > written.end) written = now;
    }
  } while (go_on(&l));
  return QN_OK;
}
