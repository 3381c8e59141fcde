/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.c - see buffers.h. One block of memory a role holds all its tensors, with at least GUARD bytes of a pattern
 * before the first, between any two and behind the last. */
#include "workbench/buffers.h"
#include "core/core.h"
#include <string.h>

enum { GUARD = 64 };

const char *qn_alignment_name(qn_alignment alignment)
{
  static const char *const names[QN_ALIGN_COUNT] = {"64 bytes", "16 bytes",      "one element off",
                                                    "mixed",    "ends at walls", "begins at walls"};
  return names[alignment];
}

static unsigned char guard_byte(size_t at) { return (unsigned char)(0xA5u ^ (at * 37u >> 2)); }

static size_t shift_of(qn_alignment alignment, size_t role, size_t tensor, size_t width)
{
  switch (alignment) {
  case QN_ALIGN_16: return 16 * (1 + (role + tensor) % 2);
  case QN_ALIGN_ELEMENT: return width;
  case QN_ALIGN_MIXED: return width * ((role * 3 + tensor) % 9);
  default: return 0;
  }
}

/* Where a tensor of so many bytes lies whose place begins behind `at`. */
static size_t place_at_wall(qn_role *role, qn_alignment alignment, size_t at, size_t bytes)
{
  if (alignment == QN_ALIGN_END) {
    const size_t wall = (at + GUARD + bytes + QN_WALL - 1) / QN_WALL * QN_WALL;
    qn_walled_add(&role->walled, wall);
    return wall - bytes;
  }
  const size_t wall = (at + QN_WALL - 1) / QN_WALL * QN_WALL;
  qn_walled_add(&role->walled, wall);
  return wall + QN_WALL;
}

static bool lies_at_wall(const qn_buffers *b, qn_alignment alignment, size_t k)
{
  if (alignment < QN_ALIGN_END) return false;
  return b->n <= QN_ALIGN_WALLS || k == (alignment == QN_ALIGN_END ? b->n - 1 : 0);
}

static void place_tensors(qn_buffers *b, size_t r, qn_alignment alignment)
{
  qn_role *role = &b->role[r];
  const size_t width = qn_dtype_bytes(role->dtype);
  size_t at = 0;
  for (size_t k = 0; k < b->n; k++) {
    const size_t bytes = (size_t)b->elements[k] * width;
    const bool at_wall = lies_at_wall(b, alignment, k);
    role->offset[k] = at_wall ? place_at_wall(role, alignment, at, bytes)
                              : (at + GUARD + 63) / 64 * 64 + shift_of(alignment, r, k, width);
    at = role->offset[k] + bytes + (at_wall && alignment == QN_ALIGN_END ? QN_WALL : 0);
  }
  role->bytes = at + GUARD;
  role->walled.device = b->device;
  role->walled.bytes = role->bytes + width;
}

static qn_status make_role(qn_buffers *b, size_t r, qn_alignment alignment)
{
  qn_role *role = &b->role[r];
  qn_try(qn_try_allocate(&role->offset, (b->n + 1) * sizeof *role->offset, "the checker's offsets"));
  place_tensors(b, r, alignment);
  qn_try(qn_try_allocate(&role->image, role->bytes, "the checker's image of a tensor list"));
  qn_try(qn_try_allocate(&role->before, role->bytes, "the checker's copy of a tensor list"));
  void *memory = NULL;
  qn_try(qn_walled_allocate(&role->walled, &memory));
  role->memory = role->base = memory;

  qn_try(qn_try_allocate(&b->tensor[r], (b->n + 1) * sizeof *b->tensor[r], "the checker's tensors"));
  for (size_t k = 0; k < b->n; k++)
    b->tensor[r][k] = (qn_tensor){role->memory + role->offset[k], role->dtype, 1, &b->elements[k], NULL, b->device};
  b->list[r] = b->tensor[r];
  return QN_OK;
}

static qn_status make(qn_buffers *b, const size_t *elements, qn_alignment alignment)
{
  qn_try(qn_try_allocate(&b->elements, (b->n + 1) * sizeof *b->elements, "the checker's shapes"));
  for (size_t k = 0; k < b->n; k++) b->elements[k] = (int64_t)elements[k];
  for (size_t r = 0; r < b->op->n_tensors; r++) {
    b->role[r].dtype = b->op->types[b->row].tensor[r].dtype;
    b->role[r].access = b->op->types[b->row].tensor[r].access;
    if (b->role[r].access != QN_ABSENT) qn_try(make_role(b, r, alignment));
  }
  return QN_OK;
}

qn_status qn_buffers_create(qn_buffers **buffers, const qn_op_info *op, size_t row, qn_device device, void *stream,
                            size_t n, const size_t *elements, qn_alignment alignment)
{
  *buffers = NULL;
  qn_buffers *b = NULL;
  qn_try(qn_try_allocate(&b, sizeof *b, "the checker's buffers"));
  *b = (qn_buffers){.op = op, .row = row, .n = n, .device = device, .stream = stream};
  qn_status status = make(b, elements, alignment);
  if (status == QN_OK)
    *buffers = b;
  else
    qn_buffers_destroy(&b);
  return status;
}

void qn_buffers_destroy(qn_buffers **buffers)
{
  qn_buffers *b = *buffers;
  if (!b) return;
  for (size_t r = 0; r < b->op->n_tensors; r++) {
    qn_role *role = &b->role[r];
    qn_walled_release(&role->walled, role->base);
    qn_walled_release(&role->walled, role->spare);
    qn_release(role->offset);
    qn_release(role->image);
    qn_release(role->before);
    qn_release(b->tensor[r]);
  }
  qn_release(b->elements);
  qn_release(b);
  *buffers = NULL;
}

static void fill_guards(const qn_buffers *b, const qn_role *role)
{
  size_t at = 0;
  for (size_t k = 0; k <= b->n; k++) {
    size_t end = k < b->n ? role->offset[k] : role->bytes;
    for (; at < end; at++) role->image[at] = guard_byte(at);
    if (k < b->n) at += (size_t)b->elements[k] * qn_dtype_bytes(role->dtype);
  }
}

void qn_buffers_fill(qn_buffers *b, uint64_t seed, bool odd, bool only_read)
{
  for (size_t r = 0; r < b->op->n_tensors; r++) {
    qn_role *role = &b->role[r];
    if (role->access == QN_ABSENT || (only_read && role->access != QN_READ)) continue;
    fill_guards(b, role);
    for (size_t k = 0; k < b->n; k++) {
      const qn_op_tensor *about = &b->op->tensors[r];
      qn_filling filling = {about->fill, about->fill_scale, qn_seed_mix(seed, k), r, odd};
      size_t n = (size_t)b->elements[k];
      if (role->access == QN_WRITE)
        memset(role->image + role->offset[k], 0xFF, n * qn_dtype_bytes(role->dtype));
      else
        qn_fill_numbers(&filling, role->dtype, role->image + role->offset[k], n, 0);
    }
  }
}

void qn_buffers_copy(qn_buffers *to, const qn_buffers *from)
{
  for (size_t r = 0; r < to->op->n_tensors; r++) {
    const qn_role *role = &to->role[r];
    if (role->access == QN_ABSENT) continue;
    fill_guards(to, role);
    for (size_t k = 0; k < to->n; k++)
      if (to->elements[k])
        memcpy(qn_buffers_at(to, r, k, 0), qn_buffers_at(from, r, k, 0),
               (size_t)to->elements[k] * qn_dtype_bytes(role->dtype));
  }
}

qn_status qn_buffers_upload(qn_buffers *b)
{
  for (size_t r = 0; r < b->op->n_tensors; r++) {
    qn_role *role = &b->role[r];
    if (role->access == QN_ABSENT) continue;
    memcpy(role->before, role->image, role->bytes);
    qn_walled_lower(&role->walled, role->base);
    qn_try(qn_memory_write(b->device, b->stream, role->memory, role->image, role->bytes));
    qn_walled_raise(&role->walled, role->base);
  }
  return QN_OK;
}

qn_status qn_buffers_download(qn_buffers *b)
{
  for (size_t r = 0; r < b->op->n_tensors; r++) {
    qn_role *role = &b->role[r];
    qn_walled_lower(&role->walled, role->base);
    if (role->access != QN_ABSENT) qn_try(qn_memory_read(b->device, b->stream, role->image, role->memory, role->bytes));
  }
  return QN_OK;
}

qn_status qn_buffers_move(qn_buffers *b)
{
  for (size_t r = 0; r < b->op->n_tensors; r++) {
    qn_role *role = &b->role[r];
    if (role->access != QN_READ) continue;
    void *to = role->spare;
    if (!to) qn_try(qn_walled_allocate(&role->walled, &to));
    role->spare = role->base;
    role->base = to;
    role->memory = role->base + (++role->moves % 3 || role->walled.n ? 0 : qn_dtype_bytes(role->dtype));
    qn_try(qn_memory_fill(b->device, b->stream, role->spare, 0xFF, role->walled.bytes));
    for (size_t k = 0; k < b->n; k++) b->tensor[r][k].data = role->memory + role->offset[k];
  }
  return QN_OK;
}

/* The bytes between tensor k - 1 and tensor k (k = n: behind the last). */
static bool guards_hold(const qn_buffers *b, size_t r, qn_difference *difference)
{
  const qn_role *role = &b->role[r];
  size_t width = qn_dtype_bytes(role->dtype), at = 0;
  for (size_t k = 0; k <= b->n; k++) {
    size_t end = k < b->n ? role->offset[k] : role->bytes, begin = at;
    for (; at < end; at++) {
      if (role->image[at] == guard_byte(at)) continue;
      bool before = k == 0 || (k < b->n && end - at < at - begin);
      *difference = (qn_difference){QN_FAULT_GUARD, r, before ? k : k - 1, before ? at - end : at - begin, 1};
      return false;
    }
    if (k < b->n) at += (size_t)b->elements[k] * width;
  }
  return true;
}

static bool same_bytes(const qn_buffers *b, size_t r, qn_fault fault, qn_difference *difference)
{
  const qn_role *role = &b->role[r];
  size_t width = qn_dtype_bytes(role->dtype);
  if (!memcmp(role->image, role->before, role->bytes)) return true;
  for (size_t k = 0; k < b->n; k++)
    for (size_t i = 0; i < (size_t)b->elements[k]; i++) {
      if (!memcmp(qn_buffers_at(b, r, k, i), qn_buffers_before(b, r, k, i), width)) continue;
      *difference = (qn_difference){fault, r, k, i, 1};
      return false;
    }
  return guards_hold(b, r, difference);
}

/* The two sets may be aligned differently, so tensors are compared one by one. */
static bool same_numbers(const qn_buffers *got, const qn_buffers *want, size_t r, qn_difference *difference)
{
  qn_dtype dtype = got->role[r].dtype;
  size_t count = 0;
  for (size_t k = 0; k < got->n; k++) {
    size_t n = (size_t)got->elements[k];
    if (!n || !memcmp(qn_buffers_at(got, r, k, 0), qn_buffers_at(want, r, k, 0), n * qn_dtype_bytes(dtype))) continue;
    for (size_t i = 0; i < n; i++) {
      if (qn_number_same(dtype, qn_buffers_at(got, r, k, i), qn_buffers_at(want, r, k, i))) continue;
      if (!count++) *difference = (qn_difference){QN_FAULT_VALUE, r, k, i, 0};
    }
  }
  if (count) difference->count = count;
  return !count;
}

qn_difference qn_buffers_compare(const qn_buffers *got, const qn_buffers *want)
{
  qn_difference difference = {QN_FAULT_NONE, 0, 0, 0, 0};
  for (size_t r = 0; r < got->op->n_tensors; r++) {
    if (got->role[r].access == QN_ABSENT) continue;
    if (got->role[r].access == QN_READ && !same_bytes(got, r, QN_FAULT_READ_ONLY, &difference)) return difference;
    if (!guards_hold(got, r, &difference) || !same_numbers(got, want, r, &difference)) return difference;
  }
  return difference;
}

qn_difference qn_buffers_unchanged(const qn_buffers *b)
{
  qn_difference difference = {QN_FAULT_NONE, 0, 0, 0, 0};
  for (size_t r = 0; r < b->op->n_tensors; r++)
    if (b->role[r].access != QN_ABSENT && !same_bytes(b, r, QN_FAULT_VALUE, &difference)) return difference;
  return difference;
}
