/* SPDX-License-Identifier: Apache-2.0 */
/* emit_kernels.h - kernels for tests of emitted sources, each with one call: what the forms have to say stands in them
 * at least once. Data is made by position, so that every test has the same. */
#ifndef QN_TESTS_EMIT_KERNELS_H
#define QN_TESTS_EMIT_KERNELS_H
#include "base/kernel.h"
#include "quern/quern.h"
#include "test.h"
#include <math.h>

enum { EMIT_MOST = 6, EMIT_BYTES = 4096 };

typedef struct emit_case {
  qn_kernel_source source;
  qn_kernel_call call;
  const char *inputs[EMIT_MOST], *outputs[EMIT_MOST];
  qn_tensor in[EMIT_MOST], out[EMIT_MOST];
  qn_template templates[EMIT_MOST];
  qn_value init[EMIT_MOST];
  int64_t shapes[2 * EMIT_MOST][4], strides[4];
  _Alignas(64) unsigned char data[2 * EMIT_MOST][EMIT_BYTES];
  int tensors;
} emit_case;

static inline void emit_fill(qn_dtype dtype, size_t n, unsigned char *data)
{
  for (size_t k = 0; k < n; k++) {
    const float x = (float)sin(0.37 * (double)k + 0.2) * 4;
    const uint16_t half = qn_float_f16(x);
    if (dtype == QN_F32) memcpy(data + 4 * k, &x, 4);
    if (dtype == QN_BF16) memcpy(data + 2 * k, &(uint16_t){qn_float_bf16(x)}, 2);
    if (dtype == QN_F16) memcpy(data + 2 * k, &half, 2);
    if (dtype == QN_I32) memcpy(data + 4 * k, &(int32_t){(int32_t)(x * 8)}, 4);
    if (dtype == QN_BOOL) data[k] = x > 0;
  }
}

static inline qn_tensor emit_tensor(emit_case *c, qn_dtype dtype, int ndim, const int64_t *shape)
{
  const int at = c->tensors++;
  size_t n = 1;
  for (int d = 0; d < ndim; d++) n *= (size_t)(c->shapes[at][d] = shape[d]);
  emit_fill(dtype, n, c->data[at]);
  return (qn_tensor){c->data[at], dtype, ndim, c->shapes[at], NULL, {QN_CPU, 0}};
}

static inline void emit_input(emit_case *c, const char *name, qn_dtype dtype, int ndim, const int64_t *shape)
{
  const size_t k = c->source.n_inputs++;
  c->inputs[k] = name;
  c->in[k] = emit_tensor(c, dtype, ndim, shape);
}

static inline void emit_output(emit_case *c, const char *name, qn_dtype dtype, int ndim, const int64_t *shape)
{
  const size_t k = c->source.n_outputs++;
  c->outputs[k] = name;
  c->out[k] = emit_tensor(c, dtype, ndim, shape);
}

static inline void emit_begin(emit_case *c, const char *name, const char *body)
{
  memset(c, 0, sizeof *c);
  c->source = (qn_kernel_source){
      .size = sizeof c->source, .name = name, .body = body, .inputs = c->inputs, .outputs = c->outputs};
  c->call = (qn_kernel_call){.size = sizeof c->call,
                             .inputs = c->in,
                             .outputs = c->out,
                             .templates = c->templates,
                             .grid = {1, 1, 1},
                             .group = {1, 1, 1}};
}

static inline void emit_template(emit_case *c, const char *name, qn_value value)
{
  c->templates[c->call.n_templates++] = (qn_template){name, value};
}

static inline void emit_grid(emit_case *c, uint64_t x, uint64_t y, uint64_t z, uint32_t gx, uint32_t gy, uint32_t gz)
{
  const uint64_t grid[] = {x, y, z};
  const uint32_t group[] = {gx, gy, gz};
  memcpy(c->call.grid, grid, sizeof grid);
  memcpy(c->call.group, group, sizeof group);
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

/* The example of MLX's documentation, in f16. */
static inline void emit_myexp(emit_case *c)
{
  emit_begin(c, "myexp", "uint elem = thread_position_in_grid.x;\nT tmp = inp[elem];\nout[elem] = metal::exp(tmp);");
  emit_input(c, "inp", QN_F16, 2, SHAPE(4, 16));
  emit_output(c, "out", QN_F16, 2, SHAPE(4, 16));
  emit_template(c, "T", (qn_value){.kind = QN_VALUE_DTYPE, .dtype = QN_F32});
  emit_grid(c, 64, 1, 1, 256, 1, 1);
}

/* Shapes, strides, scalars, a small input, a header, templates of all kinds, two outputs, three dimensions. */
static inline void emit_strided(emit_case *c)
{
  emit_begin(c, "strided",
             "uint3 p = thread_position_in_grid;\n"
             "if (p.z) return;\n"
             "uint elem = p.y * threads_per_grid.x + p.x;\n"
             "uint loc = elem_to_loc(elem, inp_shape, inp_strides, inp_ndim);\n"
             "float x = inp[loc] * scale + few[p.x % 3] + (FLIP ? N : 0);\n"
             "twice[elem] = helper(x, count) * out_shape[1]; // \"\\n\"\n"
             "out[elem] = x + ceildiv(int(elem), 4);");
  c->source.header = "inline float helper(float x, int n) { return x * 2 + n; }";
  c->source.strided = 1;
  emit_input(c, "inp", QN_F32, 2, SHAPE(6, 8));
  emit_input(c, "few", QN_BF16, 1, SHAPE(3));
  emit_input(c, "scale", QN_F32, 0, NULL);
  emit_input(c, "count", QN_I32, 0, NULL);
  c->strides[0] = 1, c->strides[1] = 6;
  c->in[0].strides = c->strides;
  emit_output(c, "out", QN_F32, 2, SHAPE(6, 8));
  emit_output(c, "twice", QN_F16, 2, SHAPE(6, 8));
  emit_template(c, "N", (qn_value){.kind = QN_VALUE_INT, .integer = -3});
  emit_template(c, "FLIP", (qn_value){.kind = QN_VALUE_BOOL, .integer = 1});
  emit_template(c, "T", (qn_value){.kind = QN_VALUE_DTYPE, .dtype = QN_BF16});
  emit_grid(c, 8, 6, 1, 4, 4, 1);
}

/* Simdgroups, a barrier and threadgroup memory, in groups that are not full. */
static inline void emit_sums(emit_case *c)
{
  emit_begin(c, "sums",
             "threadgroup float parts[32];\n"
             "uint i = thread_position_in_grid.x;\n"
             "float sum = simd_sum(inp[i]);\n"
             "float most = simd_max(inp[i]);\n"
             "if (thread_index_in_simdgroup == 0) parts[simdgroup_index_in_threadgroup] = sum;\n"
             "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
             "float all = Limits<float>::finite_min > 0 ? 1 : 0.1;\n"
             "for (uint k = 0; k < simdgroups_per_threadgroup; k++) all += parts[k];\n"
             "out[i] = all + most + simd_shuffle_xor(inp[i], 1) + simd_prefix_inclusive_sum(inp[i]);");
  emit_input(c, "inp", QN_F32, 1, SHAPE(300));
  emit_output(c, "out", QN_F32, 1, SHAPE(300));
  emit_grid(c, 300, 1, 1, 128, 1, 1);
}

/* Atomic outputs with a value to begin with. */
static inline void emit_histogram(emit_case *c)
{
  emit_begin(c, "histogram",
             "uint i = thread_position_in_grid.x;\n"
             "atomic_fetch_add_explicit(&bins[(inp[i] + 64) % 8], 1, memory_order_relaxed);");
  c->source.atomic = 1;
  emit_input(c, "inp", QN_I32, 1, SHAPE(200));
  emit_output(c, "bins", QN_I32, 1, SHAPE(8));
  c->init[0] = (qn_value){.kind = QN_VALUE_INT, .integer = 5};
  c->call.init = c->init;
  emit_grid(c, 200, 1, 1, 64, 1, 1);
}

/* CUDA's words: three dimensions, shared memory, a shuffle, an atomic. */
static inline void emit_cuda(emit_case *c)
{
  emit_begin(c, "rows",
             "__shared__ float parts[4];\n"
             "unsigned int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;\n"
             "float sum = inp[y * inp_shape[1] + x] * lr;\n"
             "for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);\n"
             "if (threadIdx.x == 0) parts[threadIdx.y] = sum;\n"
             "__syncthreads();\n"
             "out[y * inp_shape[1] + x] = parts[threadIdx.y] + bias(inp_ndim);");
  c->source.dialect = QN_DIALECT_CUDA;
  c->source.header = "__device__ float bias(int n) { return n + 0.5f; }";
  emit_input(c, "inp", QN_F32, 2, SHAPE(8, 32));
  emit_input(c, "lr", QN_F32, 0, NULL);
  emit_output(c, "out", QN_F32, 2, SHAPE(8, 32));
  emit_grid(c, 32, 8, 1, 32, 4, 1);
}

static void (*const emit_makers[])(emit_case *c) = {emit_myexp, emit_strided, emit_sums, emit_histogram, emit_cuda};
enum { EMIT_CASES = sizeof emit_makers / sizeof *emit_makers };

/* The kernel of a case; NULL after a failed check. */
static inline qn_kernel *emit_create(const emit_case *c)
{
  qn_kernel *kernel = NULL;
  check(qn_kernel_create(&kernel, &c->source) == QN_OK, "%s: made", c->source.name);
  return kernel;
}
#endif
