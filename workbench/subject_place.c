/* SPDX-License-Identifier: Apache-2.0 */
/* subject_place.c - the shapes of a call's tensors, and where in a role's memory each lies: between guards, at the
 * alignment that is asked for, at walls. */
#include "core/core.h"
#include "workbench/subject.h"

const char *qn_alignment_name(qn_alignment alignment)
{
  static const char *const names[QN_ALIGN_COUNT] = {"64 bytes", "16 bytes",      "one element off",
                                                    "mixed",    "ends at walls", "begins at walls"};
  return names[alignment];
}

/* ---- shapes ---- */

/* The extents of the letters in the role's shape, or the shape that follows from the first role's tensor. */
static qn_status find_shape(const qn_subject *d, size_t r, size_t k, qn_subject_place *p)
{
  const qn_op_info *info = &d->op->info;
  if (d->list && !r) return QN_OK;
  if (d->list) {
    const qn_call call = {.op = d->op, .params = d->params, .n = d->n};
    return qn_role_shape_of(&call, r, d->role[0].place[k].ndim, d->role[0].place[k].shape, &p->ndim, p->shape);
  }
  const qn_shape_rule *rule = qn_subject_rule(d, r);
  for (unsigned j = 0; j < rule->n; j++) {
    const qn_role_part *part = &rule->part[j];
    const bool named = part->kind == QN_PART_NAME && part->letter;
    if (!named && part->kind != QN_PART_NUMBER) continue; /* any number of extents: none */
    const int64_t extent = named ? d->extent[part->letter - 'a'] : part->number;
    qn_require(extent >= 0, "%s: the text says no %c, as \"%c=64\" does", info->name, part->letter, part->letter);
    p->shape[p->ndim++] = extent;
  }
  return QN_OK;
}

static void lay_out(const qn_subject *d, size_t r, qn_subject_place *p)
{
  const size_t between = d->apart + d->role[r].apart;
  const bool apart = between && p->ndim > 1 && d->op->info.tensors[r].storage > QN_STORAGE_ROW_MAJOR;
  size_t next = 1;
  p->elements = 1;
  for (int e = 0; e < p->ndim; e++) p->elements *= (size_t)p->shape[e];
  p->cols = apart ? (size_t)p->shape[p->ndim - 1] : p->elements;
  p->rows = !p->elements ? 0 : p->elements / p->cols;
  p->pitch = p->cols + (apart ? between : 0);
  for (int e = p->ndim; e-- > 0;) {
    p->strides[e] = (int64_t)next;
    next *= (size_t)p->shape[e] + (apart && e + 1 == p->ndim ? between : 0);
  }
}

/* ---- places ---- */

size_t qn_alignment_shift(qn_alignment alignment, size_t r, size_t k, size_t width)
{
  switch (alignment) {
  case QN_ALIGN_16: return 16 * (1 + (r + k) % 2);
  case QN_ALIGN_ELEMENT: return width;
  case QN_ALIGN_MIXED: return width * ((r * 3 + k) % 9);
  default: return 0;
  }
}

/* Where a tensor of so many bytes lies whose place begins behind `at`. */
static size_t place_at_wall(qn_subject_role *role, qn_alignment alignment, size_t at, size_t bytes)
{
  const size_t before = alignment == QN_ALIGN_END ? QN_SUBJECT_GUARD + bytes : 0;
  const size_t wall = (at + before + QN_WALL - 1) / QN_WALL * QN_WALL;
  qn_walled_add(&role->walls, wall);
  return alignment == QN_ALIGN_END ? wall - bytes : wall + QN_WALL;
}

static bool lies_at_wall(const qn_subject *d, const qn_subject_role *role, size_t k)
{
  if (d->alignment < QN_ALIGN_END) return false;
  return role->n <= QN_ALIGN_WALLS || k == (d->alignment == QN_ALIGN_END ? role->n - 1 : 0);
}

/* Small between many tensors, whose guards are looked at after every step. */
static size_t guard_of(const qn_subject_role *role) { return role->n > QN_ALIGN_WALLS ? 64 : QN_SUBJECT_GUARD; }

static void place_tensor(qn_subject *d, size_t r, size_t k)
{
  qn_subject_role *role = &d->role[r];
  qn_subject_place *p = &role->place[k];
  const size_t line = d->lean ? QN_SUBJECT_LINE * role->width : 64; /* the same elements in every role */
  const size_t guard = d->lean ? QN_SUBJECT_LINE * role->width : guard_of(role);
  const size_t bytes = (p->rows ? (p->rows - 1) * p->pitch + p->cols : 0) * role->width;
  const bool at_wall = lies_at_wall(d, role, k);
  p->offset = at_wall ? place_at_wall(role, d->alignment, role->bytes, bytes)
                      : (role->bytes + guard + line - 1) / line * line +
                            qn_alignment_shift(d->alignment, r, k, role->width) + d->behind * role->width;
  role->bytes = p->offset + bytes + (at_wall && d->alignment == QN_ALIGN_END ? QN_WALL : 0);
}

qn_status qn_subject_place_role(qn_subject *d, size_t r)
{
  qn_subject_role *role = &d->role[r];
  role->home = r;
  role->n = role->single ? 1 : d->n;
  if (!role->place) qn_try(qn_try_allocate(&role->place, (role->n + 1) * sizeof *role->place, "tensors"));
  qn_try(qn_try_allocate(&role->tensor, (role->n + 1) * sizeof *role->tensor, "tensors"));
  for (size_t k = 0; k < role->n; k++) {
    qn_subject_place *p = &role->place[k];
    if (!d->list || r) *p = (qn_subject_place){.ndim = 0};
    qn_try(find_shape(d, r, k, p));
    lay_out(d, r, p);
    if (!d->arranged) place_tensor(d, r, k);
    role->tensor[k] = (qn_tensor){.dtype = role->dtype,
                                  .ndim = p->ndim,
                                  .shape = p->shape,
                                  .strides = p->pitch > p->cols ? p->strides : NULL,
                                  .device = d->exec.device};
  }
  if (d->lean)
    role->bytes += QN_SUBJECT_LINE * role->width;
  else if (!d->fenced || role->walls.n)
    role->bytes += guard_of(role);
  role->bytes = (role->bytes + 63) / 64 * 64; /* or its beginning is no multiple of that */
  d->tensors[r] = role->tensor;
  return QN_OK;
}

size_t qn_subject_at(const qn_subject *d, size_t r, size_t k, size_t i)
{
  const qn_subject_place *p = &d->role[r].place[k];
  if (p->at) return p->at[i];
  return p->offset + (i / p->cols * p->pitch + i % p->cols) * d->role[r].width;
}
