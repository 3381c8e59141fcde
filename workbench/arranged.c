/* SPDX-License-Identifier: Apache-2.0 */
/* arranged.c - see arranged.h. One block of memory holds all tensors of all roles, between bands of a pattern; a role's
 * tensor may lie within another's rows, as the halves and the columns of one tensor do. */
#include "workbench/arranged.h"
#include "core/core.h"
#include "workbench/data.h"
#include <stdio.h>
#include <string.h>

/* Sizes: ragged last tiles, whole ones, rows shorter than a block and than a pack, a row of one, none at all. */
enum { PLACES = 8, BAND = 192, DIMS = 3, NOBODY = QN_MAX_TENSORS };
static const int64_t extents[PLACES][DIMS] = {{3, 14337}, {1, 11009},   {4, 16384}, {5, 3},
                                              {0, 64},    {2, 3, 1030}, {9, 1},     {37, 70}};
static int dims_of(size_t place) { return extents[place][2] ? 3 : 2; }

/* Where a role's columns are, in units of columns of the tensor and of elements. */
typedef struct form {
  bool in_first; /* in the rows of the pair's first */
  bool half;     /* begins behind `cols` columns */
  bool odd;      /* begins behind one element */
  uint8_t wide;  /* columns between rows; 1 or 2 times the tensor's */
  uint8_t more;  /* elements behind each row */
  uint8_t step;
} form;

/* What a kind makes of a pair (two roles of one type and access, as gate and up are) and of a role that is alone, of
 * which the pitches differ. */
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

typedef struct role {
  bool given;
  size_t width;         /* bytes of an element */
  size_t first[PLACES]; /* in the block: offset of the first element */
  int64_t strides[PLACES][DIMS];
  qn_tensor tensor[PLACES], dense[PLACES]; /* in the device's memory; on the host */
} role;

struct qn_arranged {
  qn_arranged_order order;
  size_t n_roles;
  role role[QN_MAX_TENSORS];
  size_t partner[QN_MAX_TENSORS]; /* of the place at hand; NOBODY: it is alone */
  bool is_second[QN_MAX_TENSORS];
  const qn_tensor *list[QN_MAX_TENSORS], *dense[QN_MAX_TENSORS];
  size_t bytes;
  unsigned char *before, *want, *got; /* images of the block */
  void *memory;
  qn_walled walled;
};

const char *qn_arrangement_name(size_t kind)
{
  return kind < QN_ARRANGEMENTS - 1 ? arrangements[kind].name : "one of each";
}

static const qn_op_types *types_of(const qn_arranged *a) { return &a->order.op->info.types[a->order.row]; }
static qn_access access_of(const qn_arranged *a, size_t r) { return types_of(a)->tensor[r].access; }

/* ---- which roles belong together ---- */
static bool alike(const qn_arranged *a, size_t r, size_t s)
{
  const qn_op_types *t = types_of(a);
  return t->tensor[r].access == t->tensor[s].access && t->tensor[r].dtype == t->tensor[s].dtype;
}

static void join(qn_arranged *a, size_t first, size_t second)
{
  a->partner[first] = second;
  a->partner[second] = first;
  a->is_second[first] = false;
  a->is_second[second] = true;
}

/* From the last role backwards: what an op reads besides comes before gate and up. */
static void find_pairs(qn_arranged *a)
{
  for (size_t s = a->n_roles; s-- > 1;)
    if (a->role[s].given && a->role[s - 1].given && a->partner[s] == NOBODY && alike(a, s - 1, s)) join(a, s - 1, s);
}

/* The first role that is written, and the first that is only read, if they are of one type. */
static void find_beside(qn_arranged *a)
{
  size_t written = NOBODY, read = NOBODY;
  for (size_t r = a->n_roles; r-- > 0;) {
    if (access_of(a, r) & QN_WRITE) written = r;
    if (access_of(a, r) == QN_READ) read = r;
  }
  if (written != NOBODY && read != NOBODY && a->role[written].width == a->role[read].width) join(a, written, read);
}

static form form_of(const qn_arranged *a, const arrangement *how, size_t r)
{
  static const form even = COLUMNS(false, false), odd = COLUMNS(true, true),
                    half = {.half = true, .wide = 2, .step = 1};
  if (a->partner[r] == NOBODY) return how->beside ? half : how->alone;
  if (how->beside) return a->is_second[r] ? odd : even;
  return a->is_second[r] ? how->second : how->first;
}

/* ---- where they are ---- */
/* In bytes, from the first element to behind the last; 0: there is none. */
static size_t reach_of(const int64_t s[DIMS], size_t place, size_t width)
{
  size_t last = 0;
  for (int d = 0; d < dims_of(place); d++) {
    if (!extents[place][d]) return 0;
    last += (size_t)((extents[place][d] - 1) * s[d]);
  }
  return (last + 1) * width;
}

static size_t shift_of(qn_alignment alignment, size_t r, size_t place, size_t width)
{
  switch (alignment) {
  case QN_ALIGN_16: return 16 * (1 + (r + place) % 2);
  case QN_ALIGN_ELEMENT: return width;
  case QN_ALIGN_MIXED: return width * ((r * 3 + place) % 9);
  default: return 0;
  }
}

static int64_t cols_of(size_t place) { return extents[place][dims_of(place) - 1]; }

static size_t elements_of(size_t place)
{
  size_t n = 1;
  for (int d = 0; d < dims_of(place); d++) n *= (size_t)extents[place][d];
  return n;
}

/* The role's strides there; returns the elements from its rows' first to behind their last. */
static size_t stride(int64_t s[DIMS], const arrangement *how, const form *f, size_t place)
{
  const int last = dims_of(place) - 1;
  const int64_t *shape = extents[place], cols = shape[last];
  if (how->columns_first) {
    s[0] = 1;
    for (int d = 1; d <= last; d++) s[d] = s[d - 1] * shape[d - 1];
    s[last] += f->more;
    return (size_t)(s[last] * cols);
  }
  s[last] = f->step;
  s[last - 1] = cols * f->wide + f->more;
  if (last == 2) s[0] = s[1] * shape[1];
  return (size_t)(s[0] * shape[0]);
}

/* How far the second of a pair begins behind its first. */
static size_t behind_first(const form *f, size_t place, size_t width)
{
  return (f->odd ? 1 : f->half ? (size_t)cols_of(place) : 0) * width;
}

/* The first element's place of a role that lies in no other's rows: of it and of what lies in its rows the first begins
 * at a wall, or the last ends at one. */
static size_t put_at_wall(qn_arranged *a, const arrangement *how, size_t r, size_t place, size_t end)
{
  size_t before = SIZE_MAX, behind = 0; /* from the common first byte on */
  for (size_t k = 0; k < a->n_roles; k++) {
    if (k != r && !(k == a->partner[r] && a->role[k].given && form_of(a, how, k).in_first)) continue;
    const form f = form_of(a, how, k);
    int64_t s[DIMS] = {0};
    stride(s, how, &f, place);
    const size_t first = behind_first(&f, place, a->role[k].width), reach = reach_of(s, place, a->role[k].width);
    if (first < before) before = first;
    if (first + reach > behind) behind = first + reach;
  }
  const bool ends = a->order.alignment == QN_ALIGN_END;
  const size_t wall = (end + BAND + (ends ? behind : 0) + QN_WALL - 1) / QN_WALL * QN_WALL;
  qn_walled_add(&a->walled, wall);
  return ends ? wall - behind : wall + QN_WALL - before;
}

static void put_place(qn_arranged *a, const arrangement *how, size_t place, size_t *end)
{
  size_t begin[QN_MAX_TENSORS];
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) a->partner[r] = NOBODY;
  if (how->beside)
    find_beside(a);
  else
    find_pairs(a);
  for (int in_first = 0; in_first < 2; in_first++) /* those within another's rows when these have a place */
    for (size_t r = 0; r < a->n_roles; r++) {
      role *to = &a->role[r];
      const form f = form_of(a, how, r);
      if (!to->given || f.in_first != (in_first == 1)) continue;
      const size_t elements = stride(to->strides[place], how, &f, place);
      if (!in_first) {
        begin[r] = a->order.alignment >= QN_ALIGN_END
                       ? put_at_wall(a, how, r, place, *end)
                       : (*end + BAND + 63) / 64 * 64 + shift_of(a->order.alignment, r, place, to->width);
        *end = begin[r] + elements * to->width;
        if (a->order.alignment == QN_ALIGN_END) *end = *end / QN_WALL * QN_WALL + 2 * QN_WALL; /* behind that wall */
      }
      to->first[place] = begin[in_first ? a->partner[r] : r] + behind_first(&f, place, to->width);
    }
}

static void put_all(qn_arranged *a)
{
  size_t end = 0;
  for (size_t place = 0; place < PLACES; place++) {
    const size_t kind = a->order.kind < QN_ARRANGEMENTS - 1 ? a->order.kind : (place + a->order.seed) % PLACES;
    put_place(a, &arrangements[kind], place, &end);
  }
  a->bytes = end + BAND;
  a->walled.device = a->order.device;
  a->walled.bytes = a->bytes;
}

/* ---- memory ---- */
static qn_status make_role(qn_arranged *a, size_t r)
{
  role *to = &a->role[r];
  const qn_dtype dtype = types_of(a)->tensor[r].dtype;
  for (size_t k = 0; k < PLACES; k++) {
    const int n = dims_of(k);
    to->tensor[k] =
        (qn_tensor){(unsigned char *)a->memory + to->first[k], dtype, n, extents[k], to->strides[k], a->order.device};
    to->dense[k] = (qn_tensor){NULL, dtype, n, extents[k], NULL, {QN_CPU, 0}};
    qn_try(qn_try_allocate(&to->dense[k].data, elements_of(k) * to->width + 1, "the checker's dense copies"));
  }
  a->list[r] = to->tensor;
  a->dense[r] = to->dense;
  return QN_OK;
}

static unsigned char pattern(size_t at) { return (unsigned char)(0xA5u ^ (at * 37u >> 2)); }

/* Bytes from the block's beginning to an element, counted as if the tensor were dense. */
static size_t offset_of(const role *r, size_t place, size_t element)
{
  size_t at = 0;
  for (int d = dims_of(place); d-- > 0; element /= (size_t)extents[place][d])
    at += element % (size_t)extents[place][d] * (size_t)r->strides[place][d];
  return r->first[place] + at * r->width;
}

/* The dense copy's elements into an image. */
static void scatter(const role *r, size_t place, unsigned char *image)
{
  const unsigned char *from = r->dense[place].data;
  for (size_t k = 0; k < elements_of(place); k++) memcpy(image + offset_of(r, place, k), from + k * r->width, r->width);
}

static void fill(qn_arranged *a)
{
  for (size_t at = 0; at < a->bytes; at++) a->before[at] = pattern(at);
  for (size_t r = 0; r < a->n_roles; r++) {
    const qn_op_tensor *about = &a->order.op->info.tensors[r];
    const qn_data_rule rule = {.dtype = types_of(a)->tensor[r].dtype,
                               .fill = about->fill,
                               .scale = about->fill_scale,
                               .poison = access_of(a, r) == QN_WRITE,
                               .seed = qn_seed_mix(a->order.seed, r)};
    for (size_t k = 0; k < PLACES && a->role[r].given; k++) {
      qn_data_fill(&rule, k, 0, elements_of(k), a->role[r].dense[k].data);
      scatter(&a->role[r], k, a->before);
    }
  }
}

static qn_status make(qn_arranged *a)
{
  for (size_t r = 0; r < a->n_roles; r++) {
    a->role[r].given = access_of(a, r) != QN_ABSENT;
    a->role[r].width = qn_dtype_bytes(types_of(a)->tensor[r].dtype);
  }
  put_all(a);
  qn_try(qn_try_allocate(&a->before, a->bytes, "the checker's image of arranged tensors"));
  qn_try(qn_try_allocate(&a->want, a->bytes, "the checker's image of arranged tensors"));
  qn_try(qn_try_allocate(&a->got, a->bytes, "the checker's image of arranged tensors"));
  qn_try(qn_walled_allocate(&a->walled, &a->memory));
  for (size_t r = 0; r < a->n_roles; r++)
    if (a->role[r].given) qn_try(make_role(a, r));
  fill(a);
  return QN_OK;
}

qn_status qn_arranged_create(qn_arranged **arranged, const qn_arranged_order *order)
{
  qn_arranged *a = NULL;
  *arranged = NULL;
  qn_try(qn_try_allocate(&a, sizeof *a, "the checker's arranged tensors"));
  *a = (qn_arranged){.order = *order, .n_roles = order->op->info.n_tensors};
  const qn_status status = make(a);
  if (status == QN_OK)
    *arranged = a;
  else
    qn_arranged_destroy(&a);
  return status;
}

void qn_arranged_destroy(qn_arranged **arranged)
{
  qn_arranged *a = *arranged;
  if (!a) return;
  qn_walled_release(&a->walled, a->memory);
  for (size_t r = 0; r < a->n_roles; r++)
    for (size_t k = 0; k < PLACES; k++) qn_release(a->role[r].dense[k].data);
  qn_release(a->before);
  qn_release(a->want);
  qn_release(a->got);
  qn_release(a);
  *arranged = NULL;
}

/* ---- a step ---- */
qn_status qn_arranged_expect(qn_arranged *a, const void *params)
{
  const qn_exec exec = {.size = sizeof exec, .device = {QN_CPU, 0}};
  qn_try(qn_option_set("cpu", "ref"));
  qn_try(qn_op_step(&a->order.op->info, &exec, params, PLACES, a->dense));
  memcpy(a->want, a->before, a->bytes);
  for (size_t r = 0; r < a->n_roles; r++)
    for (size_t k = 0; k < PLACES && access_of(a, r) & QN_WRITE; k++) scatter(&a->role[r], k, a->want);
  return QN_OK;
}

qn_status qn_arranged_upload(qn_arranged *a)
{
  qn_walled_lower(&a->walled, a->memory);
  qn_try(qn_memory_write(a->order.device, a->order.stream, a->memory, a->before, a->bytes));
  qn_walled_raise(&a->walled, a->memory);
  return QN_OK;
}

qn_status qn_arranged_download(qn_arranged *a)
{
  qn_walled_lower(&a->walled, a->memory);
  return qn_memory_read(a->order.device, a->order.stream, a->got, a->memory, a->bytes);
}

/* The first element of a tensor that is not as expected. NaN that may have other bits is taken over. */
static bool tensor_is_right(qn_arranged *a, size_t r, size_t place, char *text, size_t bytes)
{
  const qn_dtype dtype = a->role[r].dense[place].dtype;
  for (size_t k = 0; k < elements_of(place); k++) {
    const size_t at = offset_of(&a->role[r], place, k), width = a->role[r].width;
    if (!memcmp(a->got + at, a->want + at, width)) continue;
    if (!qn_number_same(dtype, a->got + at, a->want + at)) {
      snprintf(text, bytes, "%s[%zu] (%lldx%lld%s) element %zu: got 0x%llx (%.9g), must be 0x%llx (%.9g)",
               a->order.op->info.tensors[r].name, place, (long long)extents[place][0], (long long)extents[place][1],
               dims_of(place) == 3 ? "x..." : "", k, (unsigned long long)qn_number_bits(dtype, a->got + at),
               qn_number_load(dtype, a->got + at), (unsigned long long)qn_number_bits(dtype, a->want + at),
               qn_number_load(dtype, a->want + at));
      return false;
    }
    memcpy(a->got + at, a->want + at, width);
  }
  return true;
}

bool qn_arranged_right(qn_arranged *a, char *text, size_t bytes)
{
  if (!memcmp(a->got, a->want, a->bytes)) return true;
  for (size_t r = 0; r < a->n_roles; r++)
    for (size_t k = 0; k < PLACES && a->role[r].given; k++)
      if (!tensor_is_right(a, r, k, text, bytes)) return false;
  size_t at = 0;
  while (at < a->bytes && a->got[at] == a->want[at]) at++;
  if (at < a->bytes)
    snprintf(text, bytes, "byte %zu of %zu, which is no element's, was written: between rows, columns or tensors", at,
             a->bytes);
  return at == a->bytes;
}

size_t qn_arranged_count(const qn_arranged *a) { return a ? PLACES : 0; }
const qn_tensor *const *qn_arranged_list(const qn_arranged *a) { return a->list; }

uint64_t qn_arranged_elements(const qn_arranged *a)
{
  uint64_t n = 0;
  for (size_t k = 0; k < qn_arranged_count(a); k++) n += elements_of(k);
  return n;
}
