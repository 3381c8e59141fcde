/* SPDX-License-Identifier: Apache-2.0 */
/* move.c - memory filled with an element, and strided views copied row by row: on the processor by loops over the pool,
 * on a GPU by kernels of the library's own (move.cu), apart from the launch of a caller's kernel. A view is first
 * brought to as few dimensions as say the same: extents of 1 go, and neighbours that are dense in each other become
 * one. */
#include "kernel/move.h"
#include "kernel/call.h"
#include "jit/jit.h"
#include <string.h>

_Static_assert(QN_MOVE_DIMS == QN_MAX_NDIM + 1, "a complex number is a dimension of two");

/* argument NULL: compiled and loaded, no more. */
static qn_status move(const qn_exec *exec, const char *name, size_t width, uint64_t blocks, const void *argument,
                      size_t bytes)
{
  static const char *const words[][2] = {
      [1] = {"QN_WORD=qn_u8"}, [2] = {"QN_WORD=qn_u16"}, [4] = {"QN_WORD=qn_u32"}, [8] = {"QN_WORD=qn_u64"}};
  const qn_device device = exec->device.kind == QN_CPU ? (qn_device){QN_EMULATOR, 0} : exec->device;
  const qn_unit unit = {.source = "kernel/move.cu", .defines = words[width]};
  const qn_device_function *function;
  const qn_backend *backend;
  qn_try(qn_backend_of(device, &backend));
  qn_try(qn_jit_function(device, &unit, name, &function));
  if (!argument) return QN_OK;
  const qn_launch launch = {.blocks = blocks,
                            .threads = QN_MOVE_THREADS,
                            .stream = exec->stream,
                            .argument = argument,
                            .argument_bytes = bytes};
  return backend->launch(device, function, &launch);
}

/* ---- fills ---- */
bool qn_is_one_byte(const unsigned char *element, size_t bytes)
{
  for (size_t k = 1; k < bytes; k++)
    if (element[k] != element[0]) return false;
  return true;
}

typedef struct fill {
  char *to;
  const unsigned char *element;
  size_t bytes;
  uint64_t n;
} fill;

enum { FILL_ELEMENTS = 1 << 18 };

static void fill_part(void *user, size_t part)
{
  const fill *f = user;
  const uint64_t first = (uint64_t)part * FILL_ELEMENTS;
  const uint64_t n = f->n - first < FILL_ELEMENTS ? f->n - first : FILL_ELEMENTS;
  char *to = f->to + first * f->bytes;
  memcpy(to, f->element, f->bytes);
  for (uint64_t done = f->bytes, all = n * f->bytes; done < all; done *= 2)
    memcpy(to + done, to, done < all - done ? done : all - done);
}

qn_status qn_fill_by_kernel(const qn_exec *exec, const unsigned char *element, size_t bytes, void *to, uint64_t n)
{
  const uint64_t per_block = QN_MOVE_THREADS * (QN_MOVE_BYTES / bytes);
  qn_fill_args a = {.to = to, .n = n};
  memcpy(&a.word, element, bytes);
  return move(exec, "quern_fill", bytes, (n + per_block - 1) / per_block, to ? &a : NULL, sizeof a);
}

qn_status qn_fill_elements(const qn_exec *exec, const unsigned char *element, size_t bytes, void *to, uint64_t n)
{
  fill f = {to, element, bytes, n};
  if (exec->device.kind != QN_CUDA)
    qn_pool_run(exec->pool, (size_t)((n + FILL_ELEMENTS - 1) / FILL_ELEMENTS), fill_part, &f);
  else if (qn_is_one_byte(element, bytes))
    return qn_memory_fill(exec->device, exec->stream, to, element[0], n * bytes);
  else
    return qn_fill_by_kernel(exec, element, bytes, to, n);
  return QN_OK;
}

/* ---- copies ---- */

/* bytes: of an element. Strides in elements; outermost first, at least one dimension. */
typedef struct view {
  const char *data;
  size_t bytes;
  int ndim;
  int64_t shape[QN_MOVE_DIMS], strides[QN_MOVE_DIMS];
} view;

static void add_dim(view *v, int64_t extent, int64_t stride)
{
  if (extent == 1) return;
  const int last = v->ndim - 1;
  if (v->ndim && v->strides[last] == extent * stride) { /* the one before steps over this one as a whole */
    v->shape[last] *= extent;
    v->strides[last] = stride;
    return;
  }
  v->shape[v->ndim] = extent;
  v->strides[v->ndim++] = stride;
}

/* A complex number is two floats: its address need not be a multiple of 8. */
static view view_of(const qn_tensor *t)
{
  const bool pairs = t->dtype == QN_C64;
  view v = {.data = t->data, .bytes = pairs ? 4 : qn_dtype_bytes(t->dtype)};
  for (int d = 0; d < t->ndim; d++) add_dim(&v, t->shape[d], t->strides[d] * (pairs ? 2 : 1));
  if (pairs) add_dim(&v, 2, 1);
  if (!v.ndim) v.shape[v.ndim] = 1, v.strides[v.ndim++] = 1;
  return v;
}

enum { PART_ELEMENTS = 1 << 16 };

/* Rows of the last dimension; long ones in segments, short ones several to a task. */
typedef struct rows {
  const view *from;
  char *to;
  int64_t n, inner, segments, per_task;
} rows;

static void copy_run(char *to, const char *from, int64_t n, int64_t stride, size_t bytes)
{
  const int64_t step = stride * (int64_t)bytes;
  if (stride == 1) {
    memcpy(to, from, (size_t)n * bytes);
    return;
  }
#define COPY(type)                                                                                                     \
  for (int64_t k = 0; k < n; k++) memcpy(to + k * (int64_t)sizeof(type), from + k * step, sizeof(type))
  switch (bytes) {
  case 1: COPY(uint8_t); break;
  case 2: COPY(uint16_t); break;
  case 4: COPY(uint32_t); break;
  default: COPY(uint64_t); break;
  }
#undef COPY
}

static const char *row_begin(const view *v, int64_t row)
{
  int64_t at = 0;
  for (int d = v->ndim - 2; d >= 0; d--) {
    at += row % v->shape[d] * v->strides[d];
    row /= v->shape[d];
  }
  return v->data + at * (int64_t)v->bytes;
}

static void copy_task(void *user, size_t task)
{
  const rows *r = user;
  const view *v = r->from;
  const int64_t stride = v->strides[v->ndim - 1], bytes = (int64_t)v->bytes;
  if (r->segments > 1) {
    const int64_t row = (int64_t)task / r->segments, first = (int64_t)task % r->segments * PART_ELEMENTS;
    const int64_t n = r->inner - first < PART_ELEMENTS ? r->inner - first : PART_ELEMENTS;
    copy_run(r->to + (row * r->inner + first) * bytes, row_begin(v, row) + first * stride * bytes, n, stride, v->bytes);
    return;
  }
  const int64_t first = (int64_t)task * r->per_task, end = first + r->per_task < r->n ? first + r->per_task : r->n;
  for (int64_t row = first; row < end; row++)
    copy_run(r->to + row * r->inner * bytes, row_begin(v, row), r->inner, stride, v->bytes);
}

void qn_copy_by_loops(qn_pool *pool, const qn_tensor *from, void *to)
{
  const view v = view_of(from);
  rows r = {.from = &v, .to = to, .n = 1, .inner = v.shape[v.ndim - 1]};
  for (int d = 0; d < v.ndim - 1; d++) r.n *= v.shape[d];
  r.segments = (r.inner + PART_ELEMENTS - 1) / PART_ELEMENTS;
  r.per_task = (PART_ELEMENTS + r.inner - 1) / r.inner;
  const int64_t tasks = r.segments > 1 ? r.n * r.segments : (r.n + r.per_task - 1) / r.per_task;
  qn_pool_run(pool, (size_t)tasks, copy_task, &r);
}

qn_status qn_copy_by_kernel(const qn_exec *exec, const qn_tensor *from, void *to)
{
  const view v = view_of(from);
  const int last = v.ndim - 1;
  qn_copy_args a = {.from = v.data, .to = to, .rows = 1, .ndim = (qn_u32)v.ndim};
  for (int d = 0; d <= last; d++) {
    a.shape[d] = v.shape[d];
    a.strides[d] = v.strides[d];
    if (d < last) a.rows *= (uint64_t)v.shape[d];
  }
  while (QN_MOVE_THREADS >> a.log > 1 && INT64_C(1) << a.log < a.shape[last]) a.log++;
  const uint64_t at_once = QN_MOVE_THREADS >> a.log; /* rows of a block */
  const uint64_t along = QN_MOVE_BYTES / v.bytes << a.log;
  a.parts = ((uint64_t)a.shape[last] + along - 1) / along;
  return move(exec, "quern_copy", v.bytes, (a.rows + at_once - 1) / at_once * a.parts, to ? &a : NULL, sizeof a);
}

qn_status qn_copy_strided(const qn_exec *exec, const qn_tensor *from, void *to)
{
  if (exec->device.kind == QN_CUDA) return qn_copy_by_kernel(exec, from, to);
  qn_copy_by_loops(exec->pool, from, to);
  return QN_OK;
}
