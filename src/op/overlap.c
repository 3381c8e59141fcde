/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.c - do tensors of a list share bytes of which any is written? By order of address and without allocating: a
 * table takes the spans' addresses, is sorted digit by digit, and is swept. Where a list is longer than half the table
 * (the other half is the sort's) the table takes the lowest addresses not yet seen, as a heap, in as many rounds as it
 * needs, n log n each; who may allocate lends a table that is long enough. Tensors that are not dense may cross without
 * sharing an element: those that do are compared one with another (share.c). */
#include "core/status.h"
#include "op/list.h"
#include "op/share.h"
#include "op/view.h"
#include <stdio.h>
#include <string.h>

enum { OWN_TABLE = 4096 };

typedef struct key {
  uintptr_t begin;
  size_t index; /* of the span; breaks ties, so that no two keys are equal */
} key;

static bool before(key a, key b) { return a.begin != b.begin ? a.begin < b.begin : a.index < b.index; }

/* The table is a heap with the highest key on top. */
static void sink(key *heap, size_t n, size_t at)
{
  const key moving = heap[at];
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
    if (!before(moving, heap[child])) break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

static void make_heap(key *heap, size_t n)
{
  for (size_t k = n / 2; k-- > 0;) sink(heap, n, k);
}

static void sort_heap(key *heap, size_t n)
{
  while (n > 1) {
    const key top = heap[0];
    heap[0] = heap[--n];
    sink(heap, n, 0);
    heap[n] = top;
  }
}

/* By begin, lowest digit first; what is equal keeps its order. `spare` has room for as many keys. A digit that all have
 * in common, as the highest ones of addresses do, costs nothing. */
static void sort_digits(key *keys, key *spare, size_t n)
{
  uintptr_t differ = 0;
  key *from = keys, *to = spare;
  for (size_t k = 1; k < n; k++) differ |= keys[k].begin ^ keys[0].begin;
  for (unsigned shift = 0; shift < 8 * sizeof differ; shift += 8) {
    size_t place[256] = {0}, sum = 0;
    if (!(differ >> shift & 255)) continue;
    for (size_t k = 0; k < n; k++) place[from[k].begin >> shift & 255]++;
    for (size_t digit = 0; digit < 256; digit++) {
      const size_t count = place[digit];
      place[digit] = sum;
      sum += count;
    }
    for (size_t k = 0; k < n; k++) to[place[from[k].begin >> shift & 255]++] = from[k];
    key *swap = from;
    from = to;
    to = swap;
  }
  if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

qn_span qn_span_of(const qn_list *list, size_t role, size_t k)
{
  const qn_tensor *t = &list->tensors[role][k];
  const uintptr_t begin = (uintptr_t)t->data;
  uint64_t n = qn_tensor_elements(t);
  qn_view view;
  if (list->strided && qn_view_make(list->tensors, k, false, &view)) n = qn_view_reach(&view, role);
  return (qn_span){begin, begin + n * qn_dtype_bytes(t->dtype), role, k};
}

qn_span qn_span_beside(const qn_list *list)
{
  const uintptr_t begin = (uintptr_t)(list->mode == QN_LIST_COUNT ? list->counts : list->exec->workspace);
  size_t bytes = list->mode == QN_LIST_PREPARE ? 0 : qn_list_workspace(list->op, list->params, list->n);
  return (qn_span){begin, begin + bytes, QN_MAX_TENSORS, 0};
}

/* Which span a key stands for: k * ROLES + role. */
enum { ROLES = 16 };
_Static_assert((int)QN_MAX_TENSORS < (int)ROLES, "the roles and the memory beside them");

static qn_span span_at(const qn_list *list, const qn_span *beside, size_t index)
{
  const size_t role = index % ROLES, k = index / ROLES;
  return role < QN_MAX_TENSORS ? qn_span_of(list, role, k) : *beside;
}

/* The lowest keys above `last` (NULL: of all), as a heap while it fills. */
typedef struct lowest {
  const key *last;
  size_t n, room;
  key *table;
} lowest;

static void offer(lowest *l, const qn_span *span)
{
  const key next = {span->begin, span->k * ROLES + span->role};
  if (span->begin == span->end || (l->last && !before(*l->last, next))) return;
  if (l->n < l->room) {
    l->table[l->n++] = next;
    if (l->n == l->room) make_heap(l->table, l->n);
  } else if (before(next, l->table[0])) {
    l->table[0] = next;
    sink(l->table, l->n, 0);
  }
}

static void take_lowest(const qn_list *list, const qn_span *beside, const key *last, lowest *l)
{
  l->n = 0;
  l->last = last;
  for (size_t role = 0; role < QN_MAX_TENSORS; role++)
    for (size_t k = 0; list->tensors[role] && k < list->n; k++) {
      const qn_span span = qn_span_of(list, role, k);
      offer(l, &span);
    }
  offer(l, beside);
  if (2 * l->n <= l->room) {
    sort_digits(l->table, l->table + l->n, l->n);
    return;
  }
  if (l->n < l->room) make_heap(l->table, l->n);
  sort_heap(l->table, l->n);
}

static void describe(const qn_op *op, const qn_span *span, char *text, size_t bytes)
{
  if (span->role >= QN_MAX_TENSORS)
    snprintf(text, bytes, "the workspace or the counts");
  else
    snprintf(text, bytes, "%s[%zu]", op->info.tensors[span->role].name, span->k);
}

qn_status qn_fail_overlap(const qn_op *op, const qn_span *a, const qn_span *b)
{
  char one[64], other[64];
  describe(op, a, one, sizeof one);
  describe(op, b, other, sizeof other);
  return qn_fail(QN_BAD_ARGUMENT,
                 "%s: %s (0x%zx to 0x%zx) and %s (0x%zx to 0x%zx) share memory, and at least one of them is written",
                 op->info.name, one, (size_t)a->begin, (size_t)a->end, other, (size_t)b->begin, (size_t)b->end);
}

size_t qn_overlap_scratch(size_t n_tensors) { return 2 * (n_tensors + 2) * sizeof(key); }

/* ---- spans that cross in a list that is not dense ---- */
static bool is_written(const qn_list *list, const qn_span *span)
{
  return span->role >= QN_MAX_TENSORS || qn_list_access(list, span->role) & QN_WRITE;
}

static qn_rows rows_of(const qn_list *list, const qn_span *span)
{
  qn_view v;
  if (span->role >= QN_MAX_TENSORS || !qn_view_make(list->tensors, span->k, false, &v))
    return (qn_rows){span->begin, 1, span->end - span->begin, span->end - span->begin, 1, 1};
  const uint64_t width = qn_dtype_bytes(list->tensors[span->role][span->k].dtype);
  return (qn_rows){span->begin, v.rows, v.cols, v.pitch[span->role] * width, v.step[span->role], width};
}

static qn_status check_pair(const qn_list *list, const qn_span *a, const qn_span *b)
{
  if (a->end <= b->begin || b->end <= a->begin || (!is_written(list, a) && !is_written(list, b))) return QN_OK;
  const qn_rows one = rows_of(list, a), other = rows_of(list, b);
  return qn_rows_share(&one, &other) ? qn_fail_overlap(list->op, a, b) : QN_OK;
}

/* `now` against all that are before it in the order of keys: the last of this round's table, from `from` on, and where
 * that is not all of those that cross it (earlier), every tensor of the list. */
static qn_status check_crossing(const qn_list *list, const qn_span *beside, const key *table, size_t from, size_t at,
                                bool earlier)
{
  const qn_span now = span_at(list, beside, table[at].index);
  for (size_t k = from; k < at && !earlier; k++) {
    const qn_span other = span_at(list, beside, table[k].index);
    qn_try(check_pair(list, &other, &now));
  }
  for (size_t role = 0; role < QN_MAX_TENSORS && earlier; role++)
    for (size_t k = 0; list->tensors[role] && k < list->n; k++) {
      const qn_span other = qn_span_of(list, role, k);
      if (other.begin != other.end && before((key){other.begin, k * ROLES + role}, table[at]))
        qn_try(check_pair(list, &other, &now));
    }
  return earlier && beside->begin != beside->end && now.role < QN_MAX_TENSORS ? check_pair(list, beside, &now) : QN_OK;
}

/* Spans of which each crosses one before it are a cluster; only within one can elements be shared. */
static qn_status check_strided(const qn_list *list)
{
  const qn_span beside = qn_span_beside(list);
  uintptr_t reached = 0; /* by the cluster */
  size_t from = 0;       /* its first, in this round's table */
  bool earlier = false;  /* it began in an earlier round */
  key own[OWN_TABLE], last;
  lowest l = {.table = own, .room = OWN_TABLE};
  if (list->scratch) l.table = list->scratch, l.room = list->scratch_bytes / sizeof(key);
  for (const key *after = NULL;; after = &last) {
    take_lowest(list, &beside, after, &l);
    earlier = after != NULL;
    from = 0;
    for (size_t k = 0; k < l.n; k++) {
      const qn_span now = span_at(list, &beside, l.table[k].index);
      if (now.begin >= reached) {
        from = k;
        earlier = false;
      } else {
        qn_try(check_crossing(list, &beside, l.table, from, k, earlier));
      }
      if (now.end > reached) reached = now.end;
    }
    if (l.n < l.room) return QN_OK;
    last = l.table[l.n - 1];
  }
}

qn_status qn_check_overlap(const qn_list *list)
{
  if (list->strided) return check_strided(list);
  const qn_span beside = qn_span_beside(list);
  qn_span any = {0}, written = {0}; /* of those before, the one that reaches furthest */
  key own[OWN_TABLE], last;
  lowest l = {.table = own, .room = OWN_TABLE};
  if (list->scratch) l.table = list->scratch, l.room = list->scratch_bytes / sizeof(key);
  for (const key *after = NULL;; after = &last) {
    take_lowest(list, &beside, after, &l);
    for (size_t k = 0; k < l.n; k++) {
      const qn_span now = span_at(list, &beside, l.table[k].index);
      const bool writes = is_written(list, &now);
      const qn_span *earlier = writes ? &any : &written;
      if (now.begin < earlier->end) return qn_fail_overlap(list->op, earlier, &now);
      if (now.end > any.end) any = now;
      if (writes && now.end > written.end) written = now;
    }
    if (l.n < l.room) return QN_OK;
    last = l.table[l.n - 1];
  }
}
