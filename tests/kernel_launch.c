/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_launch.c - launches of kernels from a body on the processor: what the body sees of its tensors (values,
 * shapes, strides, copies, first values, memory in place), which threads run, and what templates make of it. What is
 * refused is kernel_refusals.c's, the dialects' words have tests of their own. */
#include "kernel/call.h"
#include "kernel_use.h"
#include "scratch.h"
#include <math.h>

static bool launched(qn_kernel *kernel, const qn_kernel_call *call, const char *what)
{
  return check(!qn_kernel_launch(kernel, &serial, call), "%s is launched: %s", what, qn_last_error());
}

/* ---- plain ---- */

static void exponential(void)
{
  float x[1000], y[1000];
  int wrong = 0;
  for (int k = 0; k < 1000; k++) x[k] = (float)(k - 500) * 0.01f, y[k] = -1;
  qn_kernel *kernel = use_make(&(use){
      .name = "myexp", .inputs = "inp", .body = "uint i = thread_position_in_grid.x; out[i] = metal::exp(inp[i]);"});
  qn_tensor in = ARRAY(x, QN_F32, 1000), out = ARRAY(y, QN_F32, 1000);
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = &out, .grid = {1000, 1, 1}, .group = {256, 1, 1});
  if (launched(kernel, &call, "the first kernel"))
    for (int k = 0; k < 1000; k++) wrong += fabs((double)y[k] / exp((double)x[k]) - 1) > 1e-7 * 1.2;
  check(!wrong, "exp of 1000 numbers, %d wrong", wrong);
  qn_kernel_destroy(&kernel);
  check(!kernel, "a kernel destroyed is NULL");
  qn_kernel_destroy(&kernel);
  qn_kernel_destroy(NULL);
}

/* ---- values, and names that begin alike ---- */

/* A known trap: array `data` and value `a`, with data_shape in the body: `a_shape` stands in it as a part. */
static void hostile_names(void)
{
  float data[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
  float a = 10;
  int32_t dat = 1000;
  qn_kernel *kernel = use_make(&(use){
      .inputs = "a data dat",
      .body = "uint i = thread_position_in_grid.x;\n"
              "out[i] = a * data[i] + float(data_shape[0] * 100 + data_shape[1]) + float(dat) + float(data_ndim);"});
  qn_tensor in[] = {VALUE(QN_F32, &a), ARRAY(data, QN_F32, 2, 3), VALUE(QN_I32, &dat)};
  qn_tensor to = ARRAY(out, QN_F32, 6);
  const qn_kernel_call call = CALL(.inputs = in, .outputs = &to, .grid = {6, 1, 1}, .group = {4, 1, 1});
  if (launched(kernel, &call, "a kernel whose names are parts of one another"))
    check(out[0] == 10 + 203 + 1000 + 2 && out[5] == 60 + 203 + 1000 + 2,
          "values and shapes are in their places: %g %g", (double)out[0], (double)out[5]);
  a = -1; /* another value is no other code */
  qn_cache_counts before = {.size = sizeof before}, after = before;
  qn_cache_count(&before);
  launched(kernel, &call, "the same with another value");
  qn_cache_count(&after);
  check(out[5] == -6 + 203 + 1000 + 2 && before.compiled == after.compiled, "a value is not compiled in: %g",
        (double)out[5]);
  qn_kernel_destroy(&kernel);
}

/* A scalar on the device is read there, a value at the call; the body cannot tell. */
static void zero_dimensions(void)
{
  float values[3] = {2, 3, 5}, out[1] = {0};
  bool yes = true;
  qn_kernel *kernel = use_make(&(use){.inputs = "x y z yes", .body = "out[0] = yes ? x + y * z : 0.0f;"});
  qn_tensor in[] = {VALUE(QN_F32, &values[0]), VALUE(QN_F32, &values[1]), VALUE(QN_F32, &values[2]),
                    VALUE(QN_BOOL, &yes)};
  qn_tensor to = {out, QN_F32, 0, NULL, NULL, cpu};
  const qn_kernel_call call = CALL(.inputs = in, .outputs = &to, .grid = {1, 1, 1});
  if (launched(kernel, &call, "values alone, into 0 dimensions"))
    check(out[0] == 17, "2 + 3 * 5 is %g", (double)out[0]);
  const qn_exec host = {.size = sizeof host, .device = {QN_EMULATOR, 0}};
  in[1].device = in[2].device = to.device = host.device;
  out[0] = 0;
  check(!qn_kernel_launch(kernel, &host, &call) && out[0] == 17,
        "references and values mixed, on the host device: %g %s", (double)out[0], qn_last_error());
  qn_kernel_destroy(&kernel);
}

/* ---- views ---- */

static void strided_views(void)
{
  float data[24], out[6] = {0};
  for (int k = 0; k < 24; k++) data[k] = (float)k;
  const int64_t shape[] = {2, 3}, strides[] = {1, 8}; /* a transposed, stepped view */
  const char *body = "uint i = thread_position_in_grid.x; out[i] = inp[i];";
  qn_tensor in = {data + 1, QN_F32, 2, shape, strides, cpu}, to = ARRAY(out, QN_F32, 2, 3);
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = &to, .grid = {6, 1, 1}, .group = {6, 1, 1});
  size_t bytes = 0;
  qn_kernel *copied = use_make(&(use){.inputs = "inp", .body = body});
  check(!qn_kernel_workspace_bytes(copied, &call, &bytes) && bytes == 32, "the copy takes %zu bytes: %s", bytes,
        qn_last_error());
  const float want[] = {1, 9, 17, 2, 10, 18};
  if (launched(copied, &call, "a strided view")) check(!memcmp(out, want, sizeof want), "comes row by row");
  _Alignas(16) float lent[8] = {0};
  memset(out, 0, sizeof out);
  const qn_exec with = {.size = sizeof with, .workspace = lent, .workspace_bytes = sizeof lent};
  check(!qn_kernel_launch(copied, &with, &call) && !memcmp(out, want, sizeof want) && !memcmp(lent, want, sizeof want),
        "by way of the workspace where there is one");
  qn_kernel *as_is = use_make(&(use){.inputs = "inp",
                                     .strided = 1,
                                     .body = "uint i = thread_position_in_grid.x;\n"
                                             "out[i] = inp[(i / 3) * inp_strides[0] + (i % 3) * inp_strides[1]];"});
  memset(out, 0, sizeof out);
  check(!qn_kernel_workspace_bytes(as_is, &call, &bytes) && !bytes, "what takes its strides needs no copy");
  if (launched(as_is, &call, "with its strides")) check(!memcmp(out, want, sizeof want), "gives the same");
  const int64_t backwards[] = {-8, -1};
  in = (qn_tensor){data + 23, QN_F32, 2, shape, backwards, cpu};
  const float reverse[] = {23, 22, 21, 15, 14, 13};
  launched(copied, &call, "a view that runs backwards");
  check(!memcmp(out, reverse, sizeof reverse), "is copied too: %g %g", (double)out[0], (double)out[5]);
  qn_kernel_destroy(&copied);
  qn_kernel_destroy(&as_is);
}

/* Every view of up to 5 dimensions that a generator makes, by loops and by the kernel that a GPU uses. */
static uint64_t next(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static bool one_view(uint64_t seed, qn_dtype dtype)
{
  enum { ROOM = 40000 };
  static _Alignas(64) unsigned char data[ROOM * 8], by_loops[ROOM * 8], by_kernel[ROOM * 8];
  int64_t shape[5], strides[5], n = 1, low = 0, high = 0;
  const size_t bytes = qn_dtype_bytes(dtype);
  const int ndim = 1 + (int)(next(&seed) % 5);
  for (int d = 0; d < ndim; d++) {
    shape[d] = 1 + (int64_t)(next(&seed) % (ndim > 2 ? 6 : 70));
    strides[d] = (int64_t)(next(&seed) % 140) - 40;
    if (d == ndim - 1 && next(&seed) % 2) strides[d] = 1;
    if (d && next(&seed) % 3 == 0) strides[d - 1] = strides[d] * shape[d];
    n *= shape[d];
  }
  for (int d = 0; d < ndim; d++) *(strides[d] < 0 ? &low : &high) += strides[d] * (shape[d] - 1);
  if (high - low >= ROOM || n > ROOM) return true;
  for (size_t k = 0; k < sizeof data; k++) data[k] = (unsigned char)(k * 131 ^ k >> 7);
  const qn_tensor from = {data - low * (int64_t)bytes, dtype, ndim, shape, strides, cpu};
  for (int64_t k = 0; k < n; k++) {
    int64_t at = -low, rest = k;
    for (int d = ndim - 1; d >= 0; d--) at += rest % shape[d] * strides[d], rest /= shape[d];
    memcpy(by_kernel + (size_t)k * bytes, data + (size_t)at * bytes, bytes);
  }
  qn_kernel *kernel = use_make(&(use){.inputs = "inp", .body = "out[0] = inp[0];"});
  qn_tensor one = ARRAY(by_loops + sizeof by_loops - 8, dtype, 1);
  const qn_exec with = {.size = sizeof with, .workspace = by_loops, .workspace_bytes = (size_t)(n + 16) * bytes};
  const qn_kernel_call call = CALL(.inputs = &from, .outputs = &one, .grid = {1, 1, 1});
  bool same = !qn_kernel_launch(kernel, &with, &call);
  if (!qn_is_row_major(&from)) same = same && !memcmp(by_loops, by_kernel, (size_t)n * bytes);
  qn_kernel_destroy(&kernel);
  if (same && seed % 8 == 0) {
    memset(by_loops, 0xEE, sizeof by_loops);
    same = !qn_copy_by_kernel(&serial, &from, by_loops) && !memcmp(by_loops, by_kernel, (size_t)n * bytes);
  }
  if (!same)
    printf("# seed %llu, %s, %d dimensions: %s\n", (unsigned long long)seed, qn_dtype_name(dtype), ndim,
           qn_last_error());
  return same;
}

static void many_views(void)
{
  static const qn_dtype dtypes[] = {QN_U8, QN_BF16, QN_F32, QN_F64, QN_C64};
  int wrong = 0;
  for (uint64_t k = 0; k < 400; k++) wrong += !one_view(k * 7919 + 1, dtypes[k % 5]);
  check(!wrong, "400 views are copied element for element, %d wrong", wrong);
}

/* ---- which threads run ---- */

static bool covered(qn_kernel *kernel, const uint64_t grid[3], const uint32_t group[3])
{
  const size_t n = (size_t)(grid[0] * grid[1] * grid[2]);
  int32_t *count = qn_allocate_zero(n + 64, sizeof *count),
          dims[3] = {(int32_t)grid[0], (int32_t)grid[1], (int32_t)grid[2]};
  qn_tensor in = ARRAY(dims, QN_I32, 3), out = ARRAY(count, QN_I32, (int64_t)(n + 64));
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = &out, .grid = {grid[0], grid[1], grid[2]},
                                   .group = {group[0], group[1], group[2]});
  bool good = !qn_kernel_launch(kernel, &serial, &call);
  for (size_t k = 0; k < n + 64 && good; k++) good = count[k] == (k < n);
  if (!good)
    printf("# grid %llu %llu %llu, group %u %u %u: %s\n", (unsigned long long)grid[0], (unsigned long long)grid[1],
           (unsigned long long)grid[2], group[0], group[1], group[2], qn_last_error());
  qn_release(count);
  return good;
}

static void exact_grids(void)
{
  static const uint64_t grids[][3] = {{1, 1, 1},    {7, 1, 1},     {257, 1, 1},   {1, 9, 1},
                                      {1, 1, 5},    {7, 5, 3},     {33, 17, 9},   {64, 3, 2},
                                      {1000, 2, 1}, {1, 70000, 1}, {1, 1, 66000}, {31, 31, 31}};
  static const uint32_t groups[][3] = {{0, 0, 0}, {1, 1, 1}, {32, 1, 1}, {256, 1, 1},
                                       {8, 8, 4}, {3, 5, 7}, {1, 1, 64}, {1024, 1, 1}};
  qn_kernel *kernel =
      use_make(&(use){.inputs = "dims",
                      .body = "uint3 p = thread_position_in_grid;\n"
                              "uint x = uint(dims[0]), y = uint(dims[1]), z = uint(dims[2]);\n"
                              "if (p.x < x && p.y < y && p.z < z) out[(p.z * y + p.y) * x + p.x] += 1;\n"
                              "else out[x * y * z] += 1;"});
  int wrong = 0, tried = 0;
  for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
    for (size_t t = 0; t < sizeof groups / sizeof *groups; t++, tried++) wrong += !covered(kernel, grids[g], groups[t]);
  check(!wrong, "each thread of %d grids runs once and no other does, %d wrong", tried, wrong);
  qn_kernel_destroy(&kernel);
}

/* ---- outputs ---- */

static void first_values(void)
{
  float a[3] = {9, 9, 9};
  int16_t b[3] = {9, 9, 9};
  uint16_t c[3] = {9, 9, 9}, d[3] = {9, 9, 9};
  float e[6] = {9, 9, 9, 9, 9, 9};
  unsigned char f[3] = {9, 9, 9};
  uint64_t g[3] = {9, 9, 9};
  qn_kernel *kernel = use_make(&(use){.outputs = "a b c d e f g", .body = "a[0] = 7;"});
  qn_tensor out[] = {ARRAY(a, QN_F32, 3), ARRAY(b, QN_I16, 3),  ARRAY(c, QN_F16, 3), ARRAY(d, QN_BF16, 3),
                     ARRAY(e, QN_C64, 3), ARRAY(f, QN_BOOL, 3), ARRAY(g, QN_U64, 3)};
  const qn_value init[] = {{.kind = QN_VALUE_FLOAT, .real = 0.1},
                           {.kind = QN_VALUE_INT, .integer = -300},
                           {.kind = QN_VALUE_FLOAT, .real = 65520},
                           {.kind = QN_VALUE_FLOAT, .real = 1.0},
                           {.kind = QN_VALUE_INT, .integer = 2},
                           {.kind = QN_VALUE_BOOL, .integer = 4},
                           {.kind = QN_VALUE_NONE}};
  const qn_kernel_call call = CALL(.outputs = out, .init = init, .grid = {1, 1, 1});
  launched(kernel, &call, "a kernel with first values");
  check(a[0] == 7 && a[1] == 0.1f && a[2] == 0.1f, "f32: behind the body's own work %g %g", (double)a[0], (double)a[2]);
  check(b[0] == -300 && b[2] == -300, "i16: %d", b[2]);
  check(c[0] == 0x7C00 && c[2] == 0x7C00 && d[0] == 0x3F80 && d[2] == 0x3F80, "f16 %x, bf16 %x", c[2], d[2]);
  check(e[0] == 2 && e[1] == 0 && e[4] == 2 && e[5] == 0, "c64: %g + %gi", (double)e[4], (double)e[5]);
  check(f[0] == 1 && f[2] == 1 && g[0] == 9 && g[2] == 9, "bool %d; none: %llu as it was", f[2],
        (unsigned long long)g[2]);
  unsigned char wide[8] = {1, 2, 3, 4, 5, 6, 7, 8}, many[8 * 77];
  int wrong = 0;
  for (size_t bytes = 1; bytes <= 8; bytes *= 2) {
    memset(many, 0xEE, sizeof many);
    wrong += qn_fill_by_kernel(&serial, wide, bytes, many, 77) != QN_OK;
    for (size_t k = 0; k < sizeof many; k++) wrong += many[k] != (k < 77 * bytes ? wide[k % bytes] : 0xEE);
  }
  check(!wrong, "the kernel that fills on a GPU fills what it is told, %d wrong: %s", wrong, qn_last_error());
  qn_kernel_destroy(&kernel);
}

static void in_place(void)
{
  float x[100], y[100];
  for (int k = 0; k < 100; k++) x[k] = y[k] = (float)k;
  qn_kernel *kernel =
      use_make(&(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x; out[i] = inp[i] * 2.0f + 1.0f;"});
  qn_tensor in = ARRAY(x, QN_F32, 100), out = ARRAY(x, QN_F32, 100);
  const qn_kernel_call call =
      CALL(.inputs = &in, .outputs = &out, .grid = {100, 1, 1}, .group = {32, 1, 1}, .stored_in = (int[]){0});
  bool same = launched(kernel, &call, "an output stored in an input");
  for (int k = 0; k < 100; k++) same &= x[k] == y[k] * 2 + 1;
  check(same, "reads and writes the same memory");
  qn_kernel_destroy(&kernel);
  kernel = use_make(&(use){
      .inputs = "inp", .body = "uint i = thread_position_in_grid.x; out[i] = inp[i] * 2; out[i] = out[i] + inp[i];"});
  memcpy(x, y, sizeof x);
  same = launched(kernel, &call, "a body that reads what it wrote");
  for (int k = 0; k < 100; k++) same &= x[k] == y[k] * 4;
  check(same, "sees its own writes through the input: 1 becomes %g", (double)x[1]);
  qn_kernel_destroy(&kernel);
}

/* ---- templates ---- */

static void template_values(void)
{
  int64_t out[4] = {0};
  qn_kernel *kernel = use_make(&(use){.header = "T twice(T x) { return x + x; }",
                                      .body = "out[0] = SMALL; out[1] = LARGE; out[2] = YES ? 1 : 2; out[3] = "
                                              "long(twice(T(2.75))) + long(sizeof(T)) * 100;"});
  qn_tensor to = ARRAY(out, QN_I64, 4);
  qn_template t[] = {{"SMALL", {.kind = QN_VALUE_INT, .integer = -7}},
                     {"LARGE", {.kind = QN_VALUE_INT, .integer = -5000000000}},
                     {"YES", {.kind = QN_VALUE_BOOL, .integer = 1}},
                     {"T", {.kind = QN_VALUE_DTYPE, .dtype = QN_F32}}};
  qn_kernel_call call = CALL(.outputs = &to, .n_templates = 4, .templates = t, .grid = {1, 1, 1});
  launched(kernel, &call, "a kernel with template values");
  check(out[0] == -7 && out[1] == -5000000000 && out[2] == 1 && out[3] == 405, "%lld %lld %lld %lld", (long long)out[0],
        (long long)out[1], (long long)out[2], (long long)out[3]);
  t[0].value.integer = INT64_MIN, t[1].value.integer = INT64_MAX, t[2].value.integer = 0, t[3].value.dtype = QN_I16;
  launched(kernel, &call, "the same with others");
  check(out[0] == INT64_MIN && out[1] == INT64_MAX && out[2] == 2 && out[3] == 204, "%lld %lld %lld %lld",
        (long long)out[0], (long long)out[1], (long long)out[2], (long long)out[3]);
  t[0].value.integer = INT32_MIN, t[3].value.dtype = QN_F64;
  launched(kernel, &call, "and others");
  check(out[0] == INT32_MIN && out[3] == 805, "%lld %lld", (long long)out[0], (long long)out[3]);
  qn_kernel_destroy(&kernel);
}

static void all_types(void)
{
  static const qn_dtype dtypes[] = {QN_F32, QN_BF16, QN_F16, QN_F64, QN_BOOL, QN_U8,  QN_I8,
                                    QN_U16, QN_I16,  QN_U32, QN_I32, QN_U64,  QN_I64, QN_C64};
  qn_kernel *kernel = use_make(&(use){.inputs = "inp", .body = "uint i = thread_position_in_grid.x; out[i] = inp[i];"});
  for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
    _Alignas(8) unsigned char from[8 * 5], to[8 * 5];
    for (size_t b = 0; b < sizeof from; b++)
      from[b] = dtypes[k] == QN_BOOL ? b % 2 : (unsigned char)(0x3A + b % 5), to[b] = 0;
    qn_tensor in = ARRAY(from, dtypes[k], 5), out = ARRAY(to, dtypes[k], 5);
    const qn_kernel_call call = CALL(.inputs = &in, .outputs = &out, .grid = {5, 1, 1});
    check(!qn_kernel_launch(kernel, &serial, &call) && !memcmp(from, to, 5 * qn_dtype_bytes(dtypes[k])),
          "%s goes through a kernel: %s", qn_dtype_name(dtypes[k]), qn_last_error());
  }
  qn_kernel_destroy(&kernel);
}

int main(void)
{
  scratch_begin();
  qn_option_set("cache_dir", scratch_path("cache"));
  exponential();
  hostile_names();
  zero_dimensions();
  strided_views();
  many_views();
  exact_grids();
  first_values();
  in_place();
  template_values();
  all_types();
  return test_end();
}
