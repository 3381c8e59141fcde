/* SPDX-License-Identifier: Apache-2.0 */
/* subject_arrange.c - tensors of a strided op laid out in memory in the ways that such ops take: rows at a distance,
 * halves of one tensor, even and odd columns. One piece of memory holds all tensors of all roles, between bands of a
 * pattern; a role's tensor may lie within another's rows, as the halves and the columns of one tensor do. */
#include "core/core.h"
#include "workbench/subject.h"

enum { BAND = 192, DIMS = QN_SUBJECT_NDIM, NOBODY = QN_MAX_TENSORS };

/* Where a role's columns are, in units of columns of the tensor and of elements. */
typedef struct form {
  bool in_first; /* in the rows of the pair's first */
  bool half;     /* begins behind `cols` columns */
  bool odd;      /* begins behind one element */
  uint8_t wide;  /* columns between rows; 1 or 2 times the tensor's */
  uint8_t more;  /* elements behind each row */
  uint8_t step;
} form;

/* The forms that a kind gives to a pair (two roles of one type and access, as gate and up are) and of a role that is
 * alone, of which the pitches differ. */
typedef struct arrangement {
  const char *name;
  form first, second, alone;
  bool columns_first; /* the first dimension is the one without gaps */
  bool beside;        /* a role that is written between the columns of one that is read, in place of pairs */
} arrangement;

#define ROWS(more)                                                                                                     \
  {                                                                                                                    \
    false, false, false, 1, more, 1                                                                                    \
  }
#define HALF(k)                                                                                                        \
  {                                                                                                                    \
    k, k, false, 2, 0, 1                                                                                               \
  }
#define COLUMNS(second, odd)                                                                                           \
  {                                                                                                                    \
    second, false, odd, 2, 0, 2                                                                                        \
  }

static const arrangement arrangements[QN_ARRANGEMENTS - 1] = {
    {.name = "dense", .first = ROWS(0), .second = ROWS(0), .alone = ROWS(0)},
    {.name = "rows at a distance", .first = ROWS(8), .second = ROWS(0), .alone = ROWS(5)},
    {.name = "halves of one tensor", .first = HALF(0), .second = HALF(1), .alone = ROWS(0)},
    {.name = "even and odd columns", .first = COLUMNS(0, 0), .second = COLUMNS(1, 1), .alone = ROWS(8)},
    {.name = "odd and even columns", .first = COLUMNS(0, 1), .second = COLUMNS(1, 0), .alone = ROWS(0)},
    {.name = "even columns alone", .first = COLUMNS(0, 0), .second = COLUMNS(0, 0), .alone = COLUMNS(0, 0)},
    {.name = "written between what is read", .first = HALF(0), .second = HALF(1), .alone = ROWS(0), .beside = true},
    {.name = "columns at a distance", .first = ROWS(3), .second = ROWS(0), .alone = ROWS(8), .columns_first = true},
};

/* A call being arranged, one place of the list after the other. */
typedef struct arranging {
  qn_subject *d;
  size_t n_roles;
  size_t partner[QN_MAX_TENSORS]; /* of the place at hand; NOBODY: it is alone */
  bool is_second[QN_MAX_TENSORS];
  qn_walled *walls;
} arranging;

const char *qn_arrangement_name(size_t kind)
{
  return kind < QN_ARRANGEMENTS - 1 ? arrangements[kind].name : "one of each";
}

static qn_access access_of(const arranging *a, size_t r) { return a->d->role[r].access; }
static bool is_given(const arranging *a, size_t r) { return a->d->role[r].n > 0; }
static qn_subject_place *place_of(const arranging *a, size_t r, size_t k) { return &a->d->role[r].place[k]; }

/* ---- which roles belong together ---- */
static bool alike(const arranging *a, size_t r, size_t s)
{
  return access_of(a, r) == access_of(a, s) && a->d->role[r].dtype == a->d->role[s].dtype;
}

static void join(arranging *a, size_t first, size_t second)
{
  a->partner[first] = second;
  a->partner[second] = first;
  a->is_second[first] = false;
  a->is_second[second] = true;
}

/* From the last role backwards: what an op reads besides comes before gate and up. */
static void find_pairs(arranging *a)
{
  for (size_t s = a->n_roles; s-- > 1;)
    if (is_given(a, s) && is_given(a, s - 1) && a->partner[s] == NOBODY && alike(a, s - 1, s)) join(a, s - 1, s);
}

/* The first role that is written, and the first that is only read, if they are of one type. */
static void find_beside(arranging *a)
{
  size_t written = NOBODY, read = NOBODY;
  for (size_t r = a->n_roles; r-- > 0;) {
    if (access_of(a, r) & QN_WRITE) written = r;
    if (access_of(a, r) == QN_READ) read = r;
  }
  if (written != NOBODY && read != NOBODY && a->d->role[written].width == a->d->role[read].width)
    join(a, written, read);
}

static form form_of(const arranging *a, const arrangement *how, size_t r)
{
  static const form even = COLUMNS(false, false), odd = COLUMNS(true, true),
                    half = {.half = true, .wide = 2, .step = 1};
  if (a->partner[r] == NOBODY) return how->beside ? half : how->alone;
  if (how->beside) return a->is_second[r] ? odd : even;
  return a->is_second[r] ? how->second : how->first;
}

/* ---- where they are ---- */

/* In bytes, from the first element to behind the last; 0: there is none. */
static size_t reach_of(const qn_subject_place *p, const int64_t s[DIMS], size_t width)
{
  size_t last = 0;
  for (int e = 0; e < p->ndim; e++) {
    if (!p->shape[e]) return 0;
    last += (size_t)((p->shape[e] - 1) * s[e]);
  }
  return (last + 1) * width;
}

/* The strides there; returns the elements from its rows' first to behind their last. */
static size_t stride(const qn_subject_place *p, const arrangement *how, const form *f, int64_t s[DIMS])
{
  const int last = p->ndim - 1;
  const int64_t cols = p->shape[last];
  if (how->columns_first) {
    s[0] = 1;
    for (int e = 1; e <= last; e++) s[e] = s[e - 1] * p->shape[e - 1];
    s[last] += f->more;
    return (size_t)(s[last] * cols);
  }
  s[last] = f->step;
  s[last - 1] = cols * f->wide + f->more;
  if (last == 2) s[0] = s[1] * p->shape[1];
  return (size_t)(s[0] * p->shape[0]);
}

/* How far the second of a pair begins behind its first. */
static size_t behind_first(const form *f, const qn_subject_place *p, size_t width)
{
  return (f->odd ? 1 : f->half ? (size_t)p->shape[p->ndim - 1] : 0) * width;
}

/* The first element's place of a role that lies in no other's rows: of it and of what lies in its rows the first begins
 * at a wall, or the last ends at one. */
static size_t put_at_wall(arranging *a, const arrangement *how, size_t r, size_t k, size_t end)
{
  size_t before = SIZE_MAX, behind = 0; /* from the common first byte on */
  for (size_t other = 0; other < a->n_roles; other++) {
    if (!is_given(a, other)) continue;
    const form f = form_of(a, how, other);
    if (other != r && !(other == a->partner[r] && f.in_first)) continue;
    const qn_subject_place *p = place_of(a, other, k);
    const size_t width = a->d->role[other].width, first = behind_first(&f, p, width);
    int64_t s[DIMS] = {0};
    stride(p, how, &f, s);
    const size_t reach = reach_of(p, s, width);
    if (first < before) before = first;
    if (first + reach > behind) behind = first + reach;
  }
  const bool ends = a->d->alignment == QN_ALIGN_END;
  const size_t wall = (end + BAND + (ends ? behind : 0) + QN_WALL - 1) / QN_WALL * QN_WALL;
  qn_walled_add(a->walls, wall);
  return ends ? wall - behind : wall + QN_WALL - before;
}

static void put_place(arranging *a, const arrangement *how, size_t k, size_t *end)
{
  const qn_alignment alignment = a->d->alignment;
  size_t begin[QN_MAX_TENSORS] = {0};
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) a->partner[r] = NOBODY, a->is_second[r] = false;
  if (how->beside)
    find_beside(a);
  else
    find_pairs(a);
  for (int in_first = 0; in_first < 2; in_first++) /* those within another's rows when these have a place */
    for (size_t r = 0; r < a->n_roles; r++) {
      const form f = form_of(a, how, r);
      if (!is_given(a, r) || f.in_first != (in_first == 1)) continue;
      qn_subject_place *p = place_of(a, r, k);
      const size_t width = a->d->role[r].width, elements = stride(p, how, &f, p->strides);
      if (!in_first) {
        begin[r] = alignment >= QN_ALIGN_END
                       ? put_at_wall(a, how, r, k, *end)
                       : (*end + BAND + 63) / 64 * 64 + qn_alignment_shift(alignment, r, k, width);
        *end = begin[r] + elements * width;
        if (alignment == QN_ALIGN_END) *end = *end / QN_WALL * QN_WALL + 2 * QN_WALL; /* behind that wall */
      }
      p->offset = begin[in_first ? a->partner[r] : r] + behind_first(&f, p, width);
    }
}

/* Where each element of a tensor lies. */
static qn_status note_elements(const qn_subject *d, size_t r, qn_subject_place *p)
{
  int64_t at[DIMS] = {0};
  size_t offset = p->offset;
  qn_try(qn_try_allocate(&p->at, (p->elements + 1) * sizeof *p->at, "places of elements"));
  for (size_t i = 0; i < p->elements; i++) {
    p->at[i] = (uint32_t)offset;
    for (int e = p->ndim; e-- > 0;) {
      offset += (size_t)p->strides[e] * d->role[r].width;
      if (++at[e] < p->shape[e]) break;
      offset -= (size_t)(p->strides[e] * p->shape[e]) * d->role[r].width;
      at[e] = 0;
    }
  }
  return QN_OK;
}

qn_status qn_subject_arrange(qn_subject *d, size_t kind)
{
  arranging a = {.d = d, .n_roles = d->op->info.n_tensors};
  size_t home = 0, end = 0;
  while (!d->role[home].n) home++;
  a.walls = &d->role[home].walls;
  for (size_t k = 0; k < d->n; k++) /* the last kind: each has the next */
    put_place(&a, &arrangements[kind < QN_ARRANGEMENTS - 1 ? kind : (k + d->seed) % (QN_ARRANGEMENTS - 1)], k, &end);
  for (size_t r = 0; r < a.n_roles; r++) {
    d->role[r].home = home;
    d->role[r].bytes = end + BAND;
    for (size_t k = 0; k < d->role[r].n; k++) {
      d->role[r].tensor[k].strides = d->role[r].place[k].strides;
      qn_try(note_elements(d, r, &d->role[r].place[k]));
    }
  }
  return QN_OK;
}
