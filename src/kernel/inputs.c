/* SPDX-License-Identifier: Apache-2.0 */
/* inputs.c - row-major copies of a call's strided inputs. A view is first brought to as few dimensions as say the same:
 * extents of 1 go, and neighbours that are dense in each other become one. The processor copies by loops over the pool,
 * a GPU by a kernel from a body, whose threads lie along the last dimension so that what they write is dense. */
#include "kernel/call.h"
#include "kernel/launch.h"
#include <stdatomic.h>
#include <string.h>

enum { MOST_DIMS = QN_MAX_NDIM + 1, WORKSPACE_ALIGNMENT = 16 };

/* bytes: of an element. Strides in elements; outermost first, at least one dimension. */
typedef struct view {
  const char *data;
  size_t bytes;
  int ndim;
  int64_t shape[MOST_DIMS], strides[MOST_DIMS];
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

/* ---- on the processor ---- */
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

/* ---- by a kernel ---- */

/* The grid's x and y are the last two dimensions, z is all before them. */
static qn_status copy_kernel(qn_kernel **kernel)
{
  static qn_kernel *_Atomic kept;
  static const char *const inputs[] = {"inp", "row", "plane"}, *const outputs[] = {"out"};
  static const qn_kernel_source source = {
      .size = sizeof source,
      .name = "quern_copy",
      .body = "uint3 p = thread_position_in_grid;\n"
              "long from = long(p.x) * inp_strides[NDIM - 1], to = long(p.x) + long(p.y) * row + long(p.z) * plane;\n"
              "if constexpr (NDIM > 1) from += long(p.y) * inp_strides[NDIM - 2];\n"
              "uint rest = p.z;\n"
              "for (int d = NDIM - 3; d >= 0; d--) {\n"
              "  from += long(rest % uint(inp_shape[d])) * inp_strides[d];\n"
              "  rest /= uint(inp_shape[d]);\n"
              "}\n"
              "out[to] = inp[from];\n",
      .n_inputs = 3,
      .n_outputs = 1,
      .inputs = inputs,
      .outputs = outputs,
      .strided = 1};
  return qn_kernel_of_ours(&kept, &source, kernel);
}

static int64_t product(const int64_t *shape, int n)
{
  int64_t p = 1;
  for (int d = 0; d < n; d++) p *= shape[d];
  return p;
}

/* row, plane: elements between rows and planes of the target. ready: only so that nothing is left for the launch. */
static qn_status copy_block(const qn_exec *exec, const view *v, char *to, int64_t row, int64_t plane, bool ready)
{
  static const qn_dtype dtypes[] = {[1] = QN_U8, [2] = QN_U16, [4] = QN_U32, [8] = QN_U64};
  const qn_dtype dtype = dtypes[v->bytes];
  const int outer = v->ndim > 2 ? v->ndim - 2 : 0;
  const int64_t x = v->shape[v->ndim - 1], y = v->ndim > 1 ? v->shape[v->ndim - 2] : 1, z = product(v->shape, outer);
  const int64_t extent = x + (y - 1) * row + (z - 1) * plane;
  qn_kernel *kernel;
  qn_try(copy_kernel(&kernel));
  const qn_tensor inputs[] = {{(void *)(uintptr_t)v->data, dtype, v->ndim, v->shape, v->strides, exec->device},
                              {.data = &row, .dtype = QN_I64},
                              {.data = &plane, .dtype = QN_I64}};
  const qn_tensor output = {to, dtype, 1, &extent, NULL, exec->device};
  const qn_template templates[] = {{"NDIM", {.kind = QN_VALUE_INT, .integer = v->ndim}}};
  const qn_kernel_call call = {.size = sizeof call,
                               .inputs = inputs,
                               .outputs = &output,
                               .n_templates = 1,
                               .templates = templates,
                               .grid = {(uint64_t)x, (uint64_t)y, (uint64_t)z}};
  return ready ? qn_kernel_prepare(kernel, exec, &call) : qn_kernel_launch(kernel, exec, &call);
}

/* A grid has less than 2^32 threads along each dimension and 2^31 groups in all: larger views go in parts. The
 * dimension that is parted is the outermost of a plane number, or a row, or a plane. */
static qn_status copy_parts(const qn_exec *exec, const view *v, char *to, int64_t row, int64_t plane)
{
  const int64_t most = (int64_t)1 << 30;
  const int outer = v->ndim > 2 ? v->ndim - 2 : 0;
  int d = outer && product(v->shape, outer) > most ? 0 : -1;
  if (d < 0 && v->ndim > 1 && v->shape[v->ndim - 2] > most) d = v->ndim - 2;
  if (d < 0 && v->shape[v->ndim - 1] > most) d = v->ndim - 1;
  if (d < 0 && v->ndim > 1 && product(v->shape, v->ndim) > 32 * most) d = 0;
  if (d < 0) return copy_block(exec, v, to, row, plane, false);
  view half = *v;
  const int64_t first = v->shape[d] / 2;
  const int64_t pitch = d == v->ndim - 1 ? 1 : d == v->ndim - 2 ? row : plane * product(v->shape + 1, outer - 1);
  half.shape[d] = first;
  qn_try(copy_parts(exec, &half, to, row, plane));
  half.shape[d] = v->shape[d] - first;
  half.data += first * v->strides[d] * (int64_t)v->bytes;
  return copy_parts(exec, &half, to + first * pitch * (int64_t)v->bytes, row, plane);
}

qn_status qn_copy_by_kernel(const qn_exec *exec, const qn_tensor *from, void *to)
{
  const view v = view_of(from);
  const int64_t row = v.shape[v.ndim - 1], plane = v.ndim > 1 ? row * v.shape[v.ndim - 2] : row;
  return copy_parts(exec, &v, to, row, plane);
}

static qn_status copy_prepare(const qn_exec *exec, const qn_tensor *from)
{
  view v = view_of(from);
  for (int d = 0; d < v.ndim; d++) v.shape[d] = v.shape[d] < 2 ? v.shape[d] : 2; /* the same code, whatever the size */
  return copy_block(exec, &v, NULL, 2, 4, true);
}

/* ---- of a call ---- */

/* Bytes of the copy of input k, rounded up for the next one; 0: it is taken as it is. */
static qn_status copy_bytes(const qn_kernel *kernel, const qn_kernel_call *call, size_t k, size_t *bytes)
{
  const qn_tensor *t = &call->inputs[k];
  *bytes = 0;
  if (kernel->source.strided >> k & 1 || qn_is_row_major(t)) return QN_OK;
  size_t n = qn_dtype_bytes(t->dtype);
  bool fits = true;
  for (int d = 0; d < t->ndim; d++) fits &= !__builtin_mul_overflow(n, (size_t)t->shape[d], &n);
  qn_require(fits && n < SIZE_MAX / QN_KERNEL_MAX_TENSORS / 2,
             "kernel %s: a row-major copy of input %s would have more bytes than there are addresses",
             kernel->source.name, kernel->source.inputs[k]);
  *bytes = (n + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
  return QN_OK;
}

static qn_status all_bytes(const qn_kernel *kernel, const qn_kernel_call *call, size_t *bytes)
{
  *bytes = 0;
  for (size_t k = 0; k < kernel->source.n_inputs; k++) {
    size_t own;
    qn_try(copy_bytes(kernel, call, k, &own));
    *bytes += own;
  }
  return QN_OK;
}

qn_status qn_kernel_workspace_bytes(const qn_kernel *kernel, const qn_kernel_call *call, size_t *bytes)
{
  qn_require(kernel && call && bytes, "workspace: the %s is NULL",
             !kernel ? "kernel"
             : !call ? "call"
                     : "place for the bytes");
  *bytes = 0;
  qn_try(qn_call_check_tensors(kernel, call));
  return all_bytes(kernel, call, bytes);
}

static qn_status find_room(const qn_kernel *kernel, const qn_exec *exec, size_t bytes, qn_inputs *inputs, char **room)
{
  const bool lent = exec->workspace && exec->workspace_bytes >= bytes;
  *room = exec->workspace;
  if (lent && (uintptr_t)exec->workspace % WORKSPACE_ALIGNMENT == 0) return QN_OK;
  qn_require(!lent, "kernel %s: the workspace begins at %p, it is to be aligned to %d bytes", kernel->source.name,
             exec->workspace, WORKSPACE_ALIGNMENT);
  if (exec->device.kind == QN_CUDA)
    return qn_fail(QN_BAD_ARGUMENT,
                   "kernel %s: row-major copies of its strided inputs need a workspace of %zu bytes, %zu are lent; "
                   "qn_kernel_workspace_bytes says how much",
                   kernel->source.name, bytes, exec->workspace ? exec->workspace_bytes : 0);
  inputs->own = qn_allocate(bytes);
  *room = inputs->own;
  return inputs->own ? QN_OK
                     : qn_fail(QN_NO_MEMORY,
                               "kernel %s: %zu bytes for row-major copies of its inputs could not be "
                               "allocated",
                               kernel->source.name, bytes);
}

static qn_status copy_one(const qn_exec *exec, const qn_tensor *from, char *to)
{
  if (exec->device.kind != QN_CUDA) {
    qn_copy_by_loops(exec->pool, from, to);
    return QN_OK;
  }
  const qn_exec plain = {.size = sizeof plain, .device = exec->device, .stream = exec->stream};
  return qn_copy_by_kernel(&plain, from, to);
}

qn_status qn_inputs_copy(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call, qn_inputs *inputs)
{
  size_t bytes, own;
  char *room;
  inputs->tensor = call->inputs;
  inputs->own = NULL;
  qn_try(all_bytes(kernel, call, &bytes));
  if (!bytes) return QN_OK;
  qn_try(find_room(kernel, exec, bytes, inputs, &room));
  qn_status status = QN_OK;
  inputs->tensor = inputs->copied;
  for (size_t k = 0; k < kernel->source.n_inputs && status == QN_OK; k++) {
    inputs->copied[k] = call->inputs[k];
    status = copy_bytes(kernel, call, k, &own);
    if (status != QN_OK || !own) continue;
    status = copy_one(exec, &call->inputs[k], room);
    inputs->copied[k].data = room;
    inputs->copied[k].strides = NULL;
    room += own;
  }
  if (status != QN_OK) qn_inputs_release(inputs);
  return status;
}

qn_status qn_inputs_prepare(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  const qn_exec plain = {.size = sizeof plain, .device = exec->device, .stream = exec->stream};
  for (size_t k = 0; exec->device.kind == QN_CUDA && k < kernel->source.n_inputs; k++) {
    size_t bytes;
    qn_try(copy_bytes(kernel, call, k, &bytes));
    if (bytes) qn_try(copy_prepare(&plain, &call->inputs[k]));
  }
  return QN_OK;
}

void qn_inputs_release(qn_inputs *inputs)
{
  qn_release(inputs->own);
  inputs->own = NULL;
}
