/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cuda.c - the same bodies on the processor and on a GPU of this machine, bit for bit (any NaN equals any NaN);
 * skipped, with the driver's reason, where there is none. Besides what only a GPU has: grids beyond CUDA's own limits,
 * more than 2^32 elements, dynamic shared memory, a kernel that outlives its time limit. */
#include "kernel/call.h"
#include "kernel_use.h"
#include <math.h>

enum { N_IN = 1 << 20, MOST_OUT = 1 << 20 };
/* Members that a case does not name are 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

static qn_device gpu = {QN_CUDA, 0}; /* with the argument "emulator" the emulator, to try the test itself */
static qn_exec on_gpu = {.size = sizeof on_gpu, .device = {QN_CUDA, 0}};
static float *input;
static unsigned char *on_cpu, *from_gpu;
static void *device_input, *device_output;

/* ---- one body on both ---- */
typedef struct both {
  const char *what, *body, *header;
  qn_dialect dialect;
  uint64_t grid[3];
  uint32_t group[3];
  qn_dtype dtype; /* of out; QN_NONE: f32 */
  int64_t n_out;
  uint64_t atomic;
  size_t shared_bytes;
  bool init; /* out begins with 1.5, or 1 */
} both;

static bool is_nan(const unsigned char *element, qn_dtype dtype)
{
  float x;
  double d;
  uint16_t h;
  memcpy(&h, element, 2);
  if (dtype == QN_F16) return (h & 0x7FFF) > 0x7C00;
  if (dtype == QN_BF16) return (h & 0x7FFF) > 0x7F80;
  if (dtype == QN_F64) return memcpy(&d, element, 8), isnan(d);
  return dtype == QN_F32 && (memcpy(&x, element, 4), isnan(x));
}

static int64_t first_difference(const both *b, qn_dtype dtype)
{
  const size_t bytes = qn_dtype_bytes(dtype);
  for (int64_t k = 0; k < b->n_out; k++) {
    const unsigned char *x = on_cpu + (size_t)k * bytes, *y = from_gpu + (size_t)k * bytes;
    if (memcmp(x, y, bytes) && !(is_nan(x, dtype) && is_nan(y, dtype))) return k;
  }
  return -1;
}

static qn_status launch_on(const both *b, qn_kernel *kernel, const qn_exec *exec, void *in, void *out, qn_dtype dtype)
{
  const int64_t n_in = N_IN;
  int32_t n = (int32_t)b->n_out;
  const qn_tensor inputs[] = {{in, QN_F32, 1, &n_in, NULL, exec->device}, VALUE(QN_I32, &n)};
  const qn_tensor output = {out, dtype, 1, &b->n_out, NULL, exec->device};
  const qn_value init = {.kind = b->init ? QN_VALUE_FLOAT : QN_VALUE_INT, .real = dtype == QN_F32 ? 1.5 : 1};
  const qn_kernel_call call =
      CALL(.inputs = inputs, .outputs = &output, .init = &init, .shared_bytes = b->shared_bytes,
           .grid = {b->grid[0], b->grid[1], b->grid[2]}, .group = {b->group[0], b->group[1], b->group[2]});
  return qn_kernel_launch(kernel, exec, &call);
}

static void same_bits(const both *b)
{
  const qn_dtype dtype = b->dtype ? b->dtype : QN_F32;
  const size_t bytes = (size_t)b->n_out * qn_dtype_bytes(dtype);
  qn_kernel *kernel = use_make(&(use){.name = "both",
                                      .inputs = "x n",
                                      .body = b->body,
                                      .header = b->header,
                                      .dialect = b->dialect,
                                      .atomic = b->atomic});
  memset(on_cpu, 0, bytes), memset(from_gpu, 0xEE, bytes);
  qn_status status = launch_on(b, kernel, &serial, input, on_cpu, dtype);
  if (check(!status, "%s: runs on the processor: %s", b->what, status ? qn_last_error() : "")) {
    status = launch_on(b, kernel, &on_gpu, device_input, device_output, dtype);
    if (!status) status = qn_memory_read(gpu, on_gpu.stream, from_gpu, device_output, bytes);
    const int64_t at = status ? -2 : first_difference(b, dtype);
    check(at == -1, "%s: the same on the GPU (first difference at %lld): %s", b->what, (long long)at,
          status ? qn_last_error() : "");
  }
  qn_kernel_destroy(&kernel);
}

/* Everything that a thread may ask of its place, in one number. */
static const char places[] =
    "uint3 p = thread_position_in_grid, s = threads_per_grid;\n"
    "uint h = thread_index_in_threadgroup * 7 + simdgroup_index_in_threadgroup * 1009 + thread_index_in_simdgroup;\n"
    "h = h * 31 + thread_position_in_threadgroup.x + thread_position_in_threadgroup.y * 64 + "
    "thread_position_in_threadgroup.z * 4096;\n"
    "h = h * 31 + threads_per_threadgroup.x + threads_per_threadgroup.y * 64 + threads_per_threadgroup.z * 4096;\n"
    "h = h * 31 + threadgroup_position_in_grid.x + threadgroup_position_in_grid.y * 64 + "
    "threadgroup_position_in_grid.z * 4096;\n"
    "h = h * 31 + threadgroups_per_grid.x + threadgroups_per_grid.y * 64 + threadgroups_per_grid.z * 4096;\n"
    "out[(p.z * s.y + p.y) * s.x + p.x] += h;\n";
static const char cuda_places[] =
    "unsigned px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y, pz = blockIdx.z "
    "* "
    "blockDim.z + threadIdx.z;\n"
    "unsigned sx = W, sy = H;\n"
    "out[(pz * sy + py) * sx + px] += blockIdx.x + 3 * blockIdx.y + 5 * blockIdx.z + 7 * gridDim.x + 11 * gridDim.y + "
    "13 "
    "* gridDim.z + threadIdx.x * 17 + threadIdx.y * 19 + threadIdx.z * 23;\n";

static void geometry(void)
{
  same_bits(
      &(both){"places, flat, an edge group", places, NULL, QN_DIALECT_METAL, {1000, 1, 1}, {96, 1, 1}, QN_U32, 1000});
  same_bits(&(both){
      "places, three odd dimensions", places, NULL, QN_DIALECT_METAL, {37, 19, 11}, {8, 4, 4}, QN_U32, 37 * 19 * 11});
  same_bits(&(both){
      "places, a group larger than the grid", places, NULL, QN_DIALECT_METAL, {5, 3, 2}, {16, 8, 8}, QN_U32, 30});
  same_bits(&(both){"places, 70,001 groups along y",
                    places,
                    NULL,
                    QN_DIALECT_METAL,
                    {3, 70001, 2},
                    {1, 1, 1},
                    QN_U32,
                    3 * 70001 * 2});
  same_bits(&(both){
      "places, 66,001 groups along z", places, NULL, QN_DIALECT_METAL, {2, 1, 66001}, {1, 1, 1}, QN_U32, 2 * 66001});
  same_bits(&(both){"CUDA's places, three odd dimensions",
                    cuda_places,
                    "#define W 37\n#define H 19\n",
                    QN_DIALECT_CUDA,
                    {37, 19, 11},
                    {8, 4, 4},
                    QN_U32,
                    37 * 19 * 11});
  same_bits(&(both){"CUDA's places, folded: 70,001 blocks along y",
                    cuda_places,
                    "#define W 3\n#define H 70001\n",
                    QN_DIALECT_CUDA,
                    {3, 70001, 2},
                    {1, 1, 1},
                    QN_U32,
                    3 * 70001 * 2});
  same_bits(&(both){"CUDA's places, folded: 66,001 blocks along z",
                    cuda_places,
                    "#define W 5\n#define H 2\n",
                    QN_DIALECT_CUDA,
                    {5, 2, 66001},
                    {2, 2, 1},
                    QN_U32,
                    5 * 2 * 66001});
  same_bits(&(both){"an exact grid writes nothing else",
                    "out[thread_position_in_grid.x] = 2.0f;",
                    NULL,
                    QN_DIALECT_METAL,
                    {1000, 1, 1},
                    {256, 1, 1},
                    QN_F32,
                    1024,
                    .init = true});
}

static void arithmetic(void)
{
  same_bits(&(both){"exp",
                    "uint i = thread_position_in_grid.x; out[i] = metal::exp(x[i]);",
                    NULL,
                    QN_DIALECT_METAL,
                    {N_IN, 1, 1},
                    {256, 1, 1},
                    QN_F32,
                    N_IN});
  same_bits(&(both){"log, sin, tanh, rsqrt, division, fma",
                    "uint i = thread_position_in_grid.x; float v = x[i];\n"
                    "out[i] = log(abs(v) + 0.1f) + sin(v) * tanh(v) / (rsqrt(abs(v) + 1) + fma(v, v, 0.5f));",
                    NULL,
                    QN_DIALECT_METAL,
                    {N_IN, 1, 1},
                    {0},
                    QN_F32,
                    N_IN});
  same_bits(&(both){"half, mixed",
                    "uint i = thread_position_in_grid.x; half h = half(x[i]); out[i] = h * 1.5h + h * x[i] - 2;",
                    NULL,
                    QN_DIALECT_METAL,
                    {N_IN, 1, 1},
                    {0},
                    QN_F16,
                    N_IN});
  same_bits(&(both){"bfloat, mixed",
                    "uint i = thread_position_in_grid.x; bfloat h = bfloat(x[i]); out[i] = h + h * bfloat(0.3f);",
                    NULL,
                    QN_DIALECT_METAL,
                    {N_IN, 1, 1},
                    {0},
                    QN_BF16,
                    N_IN});
  same_bits(&(both){"vectors",
                    "uint i = thread_position_in_grid.x; float4 v = float4(x[i], x[i + 1], 1, 2);\n"
                    "float2 w = v.zx + v.yw; out[i] = dot(v.xyz, float3(w, 0.5)) + length(w);",
                    NULL,
                    QN_DIALECT_METAL,
                    {1000, 1, 1},
                    {0},
                    QN_F32,
                    1000});
  same_bits(&(both){"double",
                    "uint i = thread_position_in_grid.x; out[i] = double(x[i]) / 3.0 + 1e-30;",
                    NULL,
                    QN_DIALECT_METAL,
                    {1000, 1, 1},
                    {0},
                    QN_F64,
                    1000});
  same_bits(&(both){"whole numbers of 64 bits",
                    "uint i = thread_position_in_grid.x; out[i] = long(i) * 5000000000 - long(n);",
                    NULL,
                    QN_DIALECT_METAL,
                    {1000, 1, 1},
                    {0},
                    QN_I64,
                    1000});
}

static void together(void)
{
  same_bits(&(both){"simd words over an edge",
                    "uint i = thread_position_in_grid.x; float v = x[i];\n"
                    "out[i] = simd_sum(v) + simd_max(v) * simd_min(v) + simd_prefix_inclusive_sum(v) + "
                    "simd_shuffle_xor(v, 1) + simd_broadcast(v, 0);",
                    NULL,
                    QN_DIALECT_METAL,
                    {1000, 1, 1},
                    {96, 1, 1},
                    QN_F32,
                    1000});
  same_bits(
      &(both){"a sum in threadgroup memory",
              "threadgroup float part[256]; uint t = thread_index_in_threadgroup, i = thread_position_in_grid.x;\n"
              "part[t] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
              "for (uint s = 128; s > 0; s /= 2) { if (t < s) part[t] += part[t + s]; "
              "threadgroup_barrier(mem_flags::mem_threadgroup); }\n"
              "out[i] = part[0];",
              NULL,
              QN_DIALECT_METAL,
              {4096, 1, 1},
              {256, 1, 1},
              QN_F32,
              4096});
  same_bits(
      &(both){"atomics on whole numbers",
              "uint i = thread_position_in_grid.x; atomic_fetch_add_explicit(&out[i % 37], i, memory_order_relaxed);\n"
              "atomic_fetch_max_explicit(&out[40], i * 2654435761u, memory_order_relaxed);",
              NULL,
              QN_DIALECT_METAL,
              {100003, 1, 1},
              {256, 1, 1},
              QN_U32,
              64,
              1});
  same_bits(&(both){
      "atomics on floats, whose sums are exact",
      "uint i = thread_position_in_grid.x; atomic_fetch_add_explicit(&out[i % 5], 0.25f, memory_order_relaxed);",
      NULL,
      QN_DIALECT_METAL,
      {100000, 1, 1},
      {256, 1, 1},
      QN_F32,
      5,
      1,
      .init = true});
  same_bits(
      &(both){"CUDA: shared memory, shuffles, atomics",
              "__shared__ float part[8]; unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t; float v = x[i];\n"
              "for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);\n"
              "if (t % 32 == 0) part[t / 32] = v;\n__syncthreads();\n"
              "float sum = 0; for (int k = 0; k < 8; k++) sum += part[k];\n"
              "out[i] = sum; if (t == 0) atomicAdd(&out[4096], 1.0f);",
              NULL,
              QN_DIALECT_CUDA,
              {4096, 1, 1},
              {256, 1, 1},
              QN_F32,
              4097});
  same_bits(&(both){"CUDA: dynamic shared memory beyond 48 KiB",
                    "extern __shared__ float big[]; unsigned t = threadIdx.x;\n"
                    "for (unsigned k = t; k < 16000; k += blockDim.x) big[k] = x[k] * 2;\n__syncthreads();\n"
                    "out[blockIdx.x * blockDim.x + t] = big[15999 - t];",
                    NULL,
                    QN_DIALECT_CUDA,
                    {512, 1, 1},
                    {256, 1, 1},
                    QN_F32,
                    512,
                    .shared_bytes = 64000});
}

/* ---- around a launch ---- */

static void types(void)
{
  for (int d = QN_F32; d <= QN_C64; d++) {
    const qn_dtype dtype = (qn_dtype)d;
    const size_t bytes = 1000 * qn_dtype_bytes(dtype);
    const int64_t n = 1000;
    for (size_t k = 0; k < bytes; k++) on_cpu[k] = dtype == QN_BOOL ? k % 2 : (unsigned char)(k * 37 >> 2);
    qn_kernel *kernel = use_make(
        &(use){.name = "types", .inputs = "a", .body = "uint i = thread_position_in_grid.x; T v = a[i]; out[i] = v;"});
    const qn_tensor in = {device_input, dtype, 1, &n, NULL, gpu}, to = {device_output, dtype, 1, &n, NULL, gpu};
    const qn_template t = {"T", {.kind = QN_VALUE_DTYPE, .dtype = dtype}};
    const qn_kernel_call call =
        CALL(.inputs = &in, .outputs = &to, .n_templates = 1, .templates = &t, .grid = {1000, 1, 1});
    qn_status status = qn_memory_write(gpu, on_gpu.stream, device_input, on_cpu, bytes);
    if (!status) status = qn_kernel_launch(kernel, &on_gpu, &call);
    if (!status) status = qn_memory_read(gpu, on_gpu.stream, from_gpu, device_output, bytes);
    check(!status && !memcmp(on_cpu, from_gpu, bytes), "%s goes through a kernel: %s", qn_dtype_name(dtype),
          status ? qn_last_error() : "");
    qn_kernel_destroy(&kernel);
  }
  check(!qn_memory_write(gpu, on_gpu.stream, device_input, input, N_IN * sizeof *input), "the input is back");
}

static void copies(void)
{
  static const struct {
    qn_dtype dtype;
    int ndim;
    int64_t shape[5], strides[5], first;
  } views[] = {{QN_F32, 2, {700, 900}, {1, 700}, 0},
               {QN_U8, 2, {33, 70001}, {70003, 1}, 5},
               {QN_F64, 3, {17, 19, 23}, {1, 17, 323}, 0},
               {QN_BF16, 1, {100000}, {-3}, 299997},
               {QN_F32, 5, {3, 4, 5, 6, 7}, {2000, 1, 40, 4, 250}, 0},
               {QN_C64, 2, {300, 400}, {1, 300}, 0},
               {QN_F32, 3, {70000, 1, 3}, {0, 5, 2}, 0}};
  for (size_t k = 0; k < sizeof views / sizeof *views; k++) {
    size_t bytes = qn_dtype_bytes(views[k].dtype);
    const size_t at = (size_t)views[k].first * bytes;
    for (int d = 0; d < views[k].ndim; d++) bytes *= (size_t)views[k].shape[d];
    qn_tensor from = {(char *)input + at, views[k].dtype, views[k].ndim, views[k].shape, views[k].strides, cpu};
    qn_copy_by_loops(NULL, &from, on_cpu);
    from.data = (char *)device_input + at, from.device = gpu;
    qn_status status = qn_copy_by_kernel(&on_gpu, &from, device_output);
    if (!status) status = qn_memory_read(gpu, on_gpu.stream, from_gpu, device_output, bytes);
    check(!status && !memcmp(on_cpu, from_gpu, bytes), "a view of %d dimensions of %s is copied: %s", views[k].ndim,
          qn_dtype_name(views[k].dtype), status ? qn_last_error() : "");
  }
}

static void query(void)
{
  qn_kernel_info info = {.size = sizeof info};
  const int64_t n = 1 << 20;
  const qn_tensor in = {device_input, QN_F32, 1, &n, NULL, gpu}, to = {device_output, QN_F32, 1, &n, NULL, gpu};
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = &to, .grid = {1 << 20, 1, 1});
  qn_kernel *kernel = use_make(
      &(use){.name = "asked", .inputs = "x", .body = "uint i = thread_position_in_grid.x; out[i] = exp(x[i]);"});
  const bool real = gpu.kind == QN_CUDA;
  check(!qn_kernel_query(kernel, &on_gpu, &call, &info) && (info.registers > 0) == real && info.most_threads >= 256 &&
            info.group[0] >= 32 && (info.groups_at_once > 0) == real,
        "%d registers, groups of %u, %d at once, at most %d threads: %s", info.registers, info.group[0],
        info.groups_at_once, info.most_threads, qn_last_error());
  qn_kernel_destroy(&kernel);
}

/* More elements than 32 bits count: written by a grid of 2^16 by 2^16 + 1, and read at places. */
static void large(void)
{
  const int64_t rows = 65537, n = rows * 65536;
  void *memory = NULL;
  qn_device_info info = {.size = sizeof info};
  if (qn_device_query(gpu, &info) || info.free_bytes < n + ((int64_t)1 << 30)) {
    skip("the GPU has %lld bytes free, %lld are needed", (long long)info.free_bytes, (long long)n);
    return;
  }
  check(!qn_memory_allocate(gpu, (size_t)n, &memory), "%lld bytes: %s", (long long)n, qn_last_error());
  const qn_tensor to = {memory, QN_U8, 1, &n, NULL, gpu};
  const qn_value init = {.kind = QN_VALUE_INT, .integer = 9};
  const qn_kernel_call call = CALL(.outputs = &to, .init = &init, .grid = {65536, 65537, 1}, .group = {256, 1, 1});
  qn_kernel *kernel = use_make(&(use){.name = "large",
                                      .body = "uint3 p = thread_position_in_grid; long i = long(p.y) * 65536 + p.x;\n"
                                              "out[i] = uint8_t(p.x * 3 + p.y * 7 + (p.y >> 8));"});
  qn_status status = qn_kernel_launch(kernel, &on_gpu, &call);
  int wrong = 0;
  for (int64_t row = 0; row < rows && !status; row += 8192) {
    unsigned char line[65536];
    status = qn_memory_read(gpu, on_gpu.stream, line, (char *)memory + row * 65536, sizeof line);
    for (uint32_t x = 0; x < 65536; x++)
      wrong += line[x] != (unsigned char)(x * 3 + (uint32_t)row * 7 + ((uint32_t)row >> 8));
  }
  check(!status && !wrong, "%lld elements, of which %d of the rows looked at are wrong: %s", (long long)n, wrong,
        status ? qn_last_error() : "");
  qn_kernel_destroy(&kernel);
  qn_memory_release(gpu, memory);
}

static void slow(void)
{
  const int64_t one = 1;
  const qn_tensor to = {device_output, QN_F32, 1, &one, NULL, gpu};
  qn_kernel *kernel = use_make(
      &(use){.name = "slow",
             .dialect = QN_DIALECT_CUDA,
             .body = "float v = 1; for (long k = 0; k < TURNS; k++) v = v * 1.0000001f + out[0]; out[0] = v;"});
  const qn_template t = {"TURNS", {.kind = QN_VALUE_INT, .integer = 20000000}};
  qn_kernel_call call = CALL(.outputs = &to, .n_templates = 1, .templates = &t, .grid = {1, 1, 1}, .limit_ns = 5000000);
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_KERNEL_ERROR, "slow");
  check(!qn_stream_synchronize(gpu, on_gpu.stream), "and comes to its end: %s", qn_last_error());
  call.limit_ns = (int64_t)60 * 1000000000;
  check(!qn_kernel_launch(kernel, &on_gpu, &call), "within a minute it does: %s", qn_last_error());
  qn_kernel_destroy(&kernel);
}

static void compile_errors(void)
{
  const int64_t one = 1;
  const qn_tensor to = {device_output, QN_F32, 1, &one, NULL, gpu};
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {1, 1, 1});
  qn_kernel *bad = use_make(&(use){.name = "bad", .body = "float v = 1;\n\nout[0] = nowhere + v;"});
  refuses(qn_kernel_launch(bad, &on_gpu, &call), QN_COMPILE_ERROR, gpu.kind == QN_CUDA ? "bad(3)" : "bad:3");
  qn_kernel_destroy(&bad);
  for (int math = 0; math < 3; math++) {
    qn_kernel *good = use_make(&(use){.name = "mode", .math = (qn_math)math, .body = "out[0] = exp(1.0f) + QN_MATH;"});
    float got = 0;
    const bool ok =
        !qn_kernel_launch(good, &on_gpu, &call) && !qn_memory_read(gpu, on_gpu.stream, &got, device_output, 4);
    check(ok && fabsf(got - 2.7182817f - (float)math) < 1e-5f, "math mode %d: %g", math, (double)got);
    qn_kernel_destroy(&good);
  }
}

int main(int argc, char **argv)
{
  int n = 0;
  if (argc > 1 && !strcmp(argv[1], "emulator")) gpu.kind = on_gpu.device.kind = QN_EMULATOR;
  if (!check(!qn_device_count(gpu.kind, &n), "the driver, if any, works: %s", qn_last_error())) return test_end();
  if (!n) {
    skip("no GPU: %s", qn_last_error());
    return test_end();
  }
  input = malloc(N_IN * sizeof *input + 64);
  on_cpu = malloc(MOST_OUT * 8), from_gpu = malloc(MOST_OUT * 8);
  for (int k = 0; k < N_IN + 16; k++) input[k] = (float)((k * 2654435761u >> 8) % 40001) * 0.001f - 20.0f;
  input[3] = NAN, input[5] = INFINITY, input[6] = -INFINITY, input[7] = 1e-40f, input[8] = -0.0f;
  if (!check(!qn_memory_allocate(gpu, N_IN * sizeof *input + 64, &device_input) &&
                 !qn_memory_allocate(gpu, MOST_OUT * 8, &device_output) && !qn_stream_create(gpu, &on_gpu.stream) &&
                 !qn_memory_write(gpu, on_gpu.stream, device_input, input, N_IN * sizeof *input + 64),
             "memory and a stream: %s", qn_last_error()))
    return test_end();
  geometry();
  arithmetic();
  together();
  types();
  copies();
  query();
  large();
  slow();
  compile_errors();
  return test_end();
}
