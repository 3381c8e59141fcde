/* SPDX-License-Identifier: Apache-2.0 */
/* cublas_mock.c - products by cuBLAS against the one of mock/, which multiplies and fails on order: how it is found and
 * refused, what it is asked for (transposes, leading dimensions, classes), that the epilogue follows on the same
 * stream, that a step allocates nothing, and who takes a product where cuBLAS cannot. */
#include "device/cuda/cublas.h"
#include "mock/cublas.h"
#include "mock/scenario.h"
#include "op/gemm_norm/gemm.h"
#include "op/tune.h"
#include "quern/quern.h"
#include "scratch.h"
#include <math.h>
#include <pthread.h>

static const qn_device gpu = {QN_CUDA, 0};
enum { M = 5, N = 12, K = 7, MOST_M = 64, MOST_N = 192, MOST_K = 256 };

static const mock_cublas_api *cublas(void)
{
  static const mock_cublas_api *api;
  const mock_cublas_api *(*get)(void);
  if (!api) {
    mock_symbol(MOCK_CUBLAS, "mock_cublas", &get);
    api = get();
  }
  return api;
}

static void use(const char *library, const char *variant)
{
  check(!qn_option_set("libcublas", library) && !qn_option_set("gemm", variant), "%s by %s", library,
        variant ? variant : "the rule");
}

/* ---- a product on the mock's device, whose numbers are whole so that every order of sums gives the same ---- */

typedef struct product {
  int64_t m, n, k;
  bool of_bf16;
  qn_gemm_norm_params params;
  qn_exec exec;
  void *y, *x, *w; /* device memory */
} product;

static float x_of(int64_t row, int64_t column) { return (float)((row * 5 + column * 3) % 7 - 1); }
static float w_of(int64_t row, int64_t column) { return (float)((row * 2 + column * 9) % 11 - 2); }

static float wanted(const product *p, int64_t row, int64_t column)
{
  float sum = 0;
  for (int64_t k = 0; k < p->k; k++) sum += x_of(row, k) * w_of(column, k);
  return sum;
}

static void fill(const product *p, void *to, int64_t rows, float (*of)(int64_t, int64_t))
{
  static _Thread_local char bytes[4 * MOST_N * MOST_K];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < p->k; c++) {
      uint32_t bits;
      const float value = of(r, c);
      memcpy(&bits, &value, sizeof bits);
      const uint16_t upper = (uint16_t)(bits >> 16);
      if (p->of_bf16)
        memcpy(bytes + 2 * (r * p->k + c), &upper, 2);
      else
        memcpy(bytes + 4 * (r * p->k + c), &bits, 4);
    }
  qn_memory_write(p->exec.device, NULL, to, bytes, (size_t)(rows * p->k) * (p->of_bf16 ? 2 : 4));
}

static qn_status call(const product *p, bool prepare, size_t *workspace_bytes)
{
  const qn_dtype type = p->of_bf16 ? QN_BF16 : QN_F32;
  const int64_t of_y[] = {p->m, p->n}, of_x[] = {p->m, p->k}, of_w[] = {p->n, p->k};
  const qn_device device = p->exec.device;
  const qn_tensor y = {p->y, type, 2, of_y, NULL, device}, x = {p->x, type, 2, of_x, NULL, device},
                  w = {p->w, type, 2, of_w, NULL, device};
  if (workspace_bytes) {
    *workspace_bytes = qn_gemm_norm_workspace_bytes(&p->exec, &p->params, &y, &x, &w, NULL, NULL, NULL, NULL);
    return QN_OK;
  }
  return prepare ? qn_gemm_norm_prepare(&p->exec, &p->params, &y, &x, &w, NULL, NULL, NULL, NULL)
                 : qn_gemm_norm_step(&p->exec, &p->params, &y, &x, &w, NULL, NULL, NULL, NULL);
}

static bool begin(product *p, qn_precision precision)
{
  const size_t size = p->of_bf16 ? 2 : 4;
  if (!p->exec.size) p->exec = (qn_exec){.size = sizeof p->exec, .device = gpu};
  if (!p->params.size) p->params = (qn_gemm_norm_params)QN_GEMM_NORM_DEFAULTS;
  p->params.precision = (int32_t)precision;
  p->params.groups = 3;
  bool good = !qn_memory_allocate(p->exec.device, size * (size_t)(p->m * p->n), &p->y) &&
              !qn_memory_allocate(p->exec.device, size * (size_t)(p->m * p->k), &p->x) &&
              !qn_memory_allocate(p->exec.device, size * (size_t)(p->n * p->k), &p->w) &&
              !qn_stream_create(p->exec.device, &p->exec.stream);
  if (good) fill(p, p->x, p->m, x_of);
  if (good) fill(p, p->w, p->n, w_of);
  if (good) call(p, false, &p->exec.workspace_bytes);
  return good &&
         (!p->exec.workspace_bytes || !qn_memory_allocate(p->exec.device, p->exec.workspace_bytes, &p->exec.workspace));
}

static void end(product *p)
{
  qn_memory_release(p->exec.device, p->y);
  qn_memory_release(p->exec.device, p->x);
  qn_memory_release(p->exec.device, p->w);
  qn_memory_release(p->exec.device, p->exec.workspace);
  qn_stream_destroy(p->exec.device, &p->exec.stream);
}

/* The mock's kernels do nothing, so that what the epilogue would begin with is still there. */
static bool is_right(const product *p)
{
  const float *z = p->of_bf16 ? p->exec.workspace : p->y;
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++)
      if (z[i * p->n + j] != wanted(p, i, j)) return false;
  return true;
}

/* By the rule, and somebody else. */
static bool passed_by_rule(void)
{
  return strncmp(qn_op_last_variant(), "cublas", 6) != 0 && strstr(qn_op_last_variant(), "(the rule)") != NULL;
}

static bool took(const char *variant) { return !strncmp(qn_op_last_variant(), variant, strlen(variant)); }

/* ---- which library ---- */

/* By the rule somebody else does the product, and forced it says why not. */
static void refused(const char *library, qn_status status, const char *words)
{
  const qn_cublas *opened;
  product p = {.m = MOST_M, .n = MOST_N, .k = MOST_K};
  use(library, NULL);
  check(begin(&p, QN_PRECISION_FP32) && !call(&p, false, NULL) && passed_by_rule(), "%s does it: %s",
        qn_op_last_variant(), qn_last_error());
  refuses(qn_cublas_open(&opened), status, words);
  refuses(qn_cublas_open(&opened), status, words);
  use(library, "cublas");
  refuses(call(&p, true, NULL), QN_UNSUPPORTED, words);
  end(&p);
}

static void absent(void)
{
  refused("/nowhere/libcublasLt.so.13", QN_NO_LIBRARY, "/nowhere/libcublasLt.so.13: No such");
}
static void unknown(void) { refused("libnowhere.so", QN_NO_LIBRARY, "the loader does not find it"); }
static void no_cublas(void) { refused(MOCK_NVRTC, QN_UNSUPPORTED, "lacks cublasLtGetVersion"); }
static void without_matmul(void) { refused(MOCK_CUBLAS_WITHOUT_MATMUL, QN_UNSUPPORTED, "lacks cublasLtMatmul"); }
static void too_old(void) { refused(MOCK_CUBLAS, QN_UNSUPPORTED, "tells the version 100200; quern needs 110000"); }
static void too_new(void)
{
  refused(scratch_path("lib64/libcublasLt.so.13"), QN_UNSUPPORTED,
          "is cuBLAS 13; the driver for CUDA 12.4 takes 11 to 12");
}

static void no_kernel(void)
{
  product p = {.m = MOST_M, .n = MOST_N, .k = MOST_K};
  use(MOCK_CUBLAS, "cublas");
  check(begin(&p, QN_PRECISION_FP32), "a product");
  refuses(call(&p, true, NULL), QN_UNSUPPORTED, "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED (15)");
  check(cublas()->asked() == 1, "asked %zu times: that there is none is kept", cublas()->asked());
  qn_option_set("gemm", NULL);
  check(!call(&p, false, NULL) && passed_by_rule(), "the rule passes it by: %s", qn_op_last_variant());
  end(&p);
}

/* As the compiler's library is; of two the newest that the driver takes. */
static void searched(void)
{
  const qn_cublas *opened;
  qn_option_set("libcublas", "");
  check(!qn_cublas_open(&opened), "found: %s", qn_last_error());
  check(!qn_option_set("libcublas", "/nowhere") && !qn_cublas_open(&opened), "what is open stays");
}

/* ---- what it is asked for ---- */

static void expect_matrix(const char *name, const mock_matrix *is, const void *data, int type, int turned,
                          uint64_t rows, uint64_t columns)
{
  check(is->data == data && is->type == type && is->turned == turned && is->rows == rows && is->columns == columns &&
            is->leading == (int64_t)rows,
        "%s: %llu x %llu by columns, leading dimension %lld, type %d, %s, at %p", name, (unsigned long long)is->rows,
        (unsigned long long)is->columns, (long long)is->leading, is->type, is->turned ? "turned" : "straight",
        is->data);
}

/* Of the driver's calls from the k-th on: none that a capture of the stream into a graph refuses, or that would do at
 * the capture what a replay must do. What replays give is tests of python/tests/test_torch_gemm.py on a GPU. */
static bool may_be_captured(size_t from)
{
  static const char *const may[] = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuLaunchKernel",
                                    "cuLaunchKernelEx"};
  for (size_t k = from; k <= mock()->calls(NULL); k++) {
    bool known = false;
    for (size_t n = 0; n < sizeof may / sizeof *may; n++) known = known || !strcmp(mock()->call_name(k), may[n]);
    if (!check(known, "call %zu of a step is %s", k - from, mock()->call_name(k))) return false;
  }
  return true;
}

static void expect_product(product *p, qn_precision precision, int compute)
{
  const int type = p->of_bf16 ? 14 : 0;
  const size_t z_bytes = p->of_bf16 ? ((size_t)(p->m * p->n) * 4 + 255) / 256 * 256 : 0;
  check(begin(p, precision) && !call(p, true, NULL), "prepared: %s", qn_last_error());
  check(p->exec.workspace_bytes == z_bytes + (32 << 20), "%zu bytes of workspace", p->exec.workspace_bytes);
  const size_t launches = mock()->launches(), memory = mock()->calls("cuMemAlloc"), products = cublas()->products();
  const size_t asked = cublas()->asked(), before = mock()->calls(NULL), made = cublas()->handles();
  check(!call(p, false, NULL) && took("cublas (forced)"), "%s: %s", qn_op_last_variant(), qn_last_error());
  check(cublas()->products() == products + 1 && mock()->launches() == launches + 1, "one product, one launch");
  check(mock()->calls("cuMemAlloc") == memory && cublas()->asked() == asked, "of what prepare made ready");
  check(may_be_captured(before + 1) && cublas()->handles() == made, "a step behind prepare may be captured");
  const mock_product *did = cublas()->latest();
  const mock_launch *behind = mock()->launch(launches);
  const void *z = p->of_bf16 ? p->exec.workspace : p->y;
  expect_matrix("w", &did->a, p->w, type, 1, (uint64_t)p->k, (uint64_t)p->n);
  expect_matrix("x", &did->b, p->x, type, 0, (uint64_t)p->k, (uint64_t)p->m);
  expect_matrix("z", &did->d, z, 0, 0, (uint64_t)p->n, (uint64_t)p->m);
  check(did->compute == compute && did->stream == p->exec.stream && did->workspace_bytes == 32 << 20 &&
            did->workspace == (char *)p->exec.workspace + z_bytes,
        "class %d: compute type %d, on the caller's stream, in %zu bytes of the caller's", (int)precision, did->compute,
        did->workspace_bytes);
  check(!strcmp(behind->kernel, "gemm_epilogue") && behind->stream == p->exec.stream && behind->threads == 256 &&
            behind->blocks == ((unsigned)p->m * 3 * 4 + 255) / 256 && behind->argument == (int)(uintptr_t)p->x,
        "%s with %u blocks of %u behind it", behind->kernel, behind->blocks, behind->threads);
  check(is_right(p), "z is the product");
  end(p);
}

static void classes(void)
{
  static const int computes[] = {[QN_PRECISION_FP32] = 69,   [QN_PRECISION_TF32] = 77, [QN_PRECISION_BF16X3] = 69,
                                 [QN_PRECISION_TF32X3] = 69, [QN_PRECISION_BF16] = 75, [QN_PRECISION_F16X3] = 69};
  use(MOCK_CUBLAS, "cublas");
  for (int k = 0; k < (int)(sizeof computes / sizeof *computes); k++)
    expect_product(&(product){.m = M, .n = N, .k = K}, (qn_precision)k, computes[k]);
  expect_product(&(product){.m = 1, .n = 12, .k = 1}, QN_PRECISION_FP32, 69);
  expect_product(&(product){.m = M, .n = N, .k = K, .of_bf16 = true}, QN_PRECISION_BF16, 68);
  check(cublas()->handles() == 1, "one handle, %zu", cublas()->handles());
  product none = {.m = M, .n = N, .k = 0};
  check(begin(&none, QN_PRECISION_FP32) == false || call(&none, true, NULL), "k = 0 is for another: %s",
        qn_last_error());
}

/* Without an epilogue cuBLAS writes y itself, of y's type, and nothing is launched behind it. Parts of k are added up
 * before they are rounded to that type. */
static void alone(void)
{
  use(MOCK_CUBLAS, "cublas");
  for (int of = 0; of < 3; of++) {
    const bool short_y = of > 0;
    product p = {.m = M, .n = N, .k = of < 2 ? 4 : MOST_K, .of_bf16 = short_y, .params = QN_GEMM_NORM_DEFAULTS};
    p.params.clamp = 0, p.params.activation = QN_ACTIVATION_NONE, p.params.norm = QN_NORM_NONE;
    check(begin(&p, short_y ? QN_PRECISION_BF16 : QN_PRECISION_FP32) && p.exec.workspace_bytes == 32 << 20,
          "%zu bytes of workspace", p.exec.workspace_bytes);
    const size_t launches = mock()->launches();
    check(!call(&p, false, NULL) && mock()->launches() == launches, "no launch: %s", qn_last_error());
    check(cublas()->latest()->d.data == p.y && cublas()->latest()->d.type == (short_y ? 14 : 0), "into y, type %d",
          cublas()->latest()->d.type);
    char y[4 * M * N];
    bool right = !qn_memory_read(gpu, NULL, y, p.y, (short_y ? 2 : 4) * M * N) && !qn_stream_synchronize(gpu, NULL);
    for (int64_t i = 0; i < M * N; i++) {
      uint32_t bits = 0;
      float value;
      memcpy((char *)&bits + (short_y ? 2 : 0), y + (short_y ? 2 : 4) * i, short_y ? 2 : 4);
      memcpy(&value, &bits, sizeof value);
      const float sum = wanted(&p, i / N, i % N);
      const float step = short_y && sum >= 256 ? ldexpf(1, ilogbf(sum) - 7) : 1; /* of bf16 */
      right = right && value == rintf(sum / step) * step;
    }
    check(right, "y is the product");
    end(&p);
  }
}

/* Aligned to 4 bytes only: cuBLAS must be told, and its choice for others not be taken. */
static void unaligned(void)
{
  product p = {.m = M, .n = N, .k = K};
  use(MOCK_CUBLAS, "cublas");
  check(begin(&p, QN_PRECISION_FP32) && !call(&p, false, NULL) && is_right(&p), "aligned: %s", qn_last_error());
  product at = p;
  void *room;
  check(!qn_memory_allocate(gpu, 4 + 4 * N * K, &room), "memory");
  at.w = (char *)room + 4;
  fill(&at, at.w, N, w_of);
  memset(at.y, 0, 4 * M * N);
  check(!call(&at, false, NULL) && is_right(&at) && cublas()->asked() == 2, "not aligned: %s", qn_last_error());
  qn_memory_release(gpu, room);
  end(&p);
}

/* Where sums go to the workspace, cuBLAS is not told of y's alignment. */
static void unaligned_result(void)
{
  product p = {.m = M, .n = N, .k = K, .of_bf16 = true};
  use(MOCK_CUBLAS, "cublas");
  check(begin(&p, QN_PRECISION_BF16) && !call(&p, false, NULL) && is_right(&p), "aligned: %s", qn_last_error());
  product at = p;
  void *room;
  check(!qn_memory_allocate(gpu, 2 + 2 * M * N, &room), "memory");
  at.y = (char *)room + 2;
  check(!call(&at, false, NULL) && is_right(&at) && cublas()->asked() == 1, "y on an odd element: asked %zu times",
        cublas()->asked());
  qn_memory_release(gpu, room);
  end(&p);
}

static void second_device(void)
{
  product p = {.m = M, .n = N, .k = K}, other = {.m = M, .n = N, .k = K};
  other.exec = (qn_exec){.size = sizeof other.exec, .device = {QN_CUDA, 1}};
  use(MOCK_CUBLAS, "cublas");
  check(begin(&p, QN_PRECISION_FP32) && !call(&p, false, NULL) && is_right(&p), "cuda:0: %s", qn_last_error());
  const void *first = cublas()->latest()->handle;
  check(begin(&other, QN_PRECISION_FP32) && !call(&other, false, NULL) && is_right(&other), "cuda:1: %s",
        qn_last_error());
  check(cublas()->handles() == 2 && cublas()->latest()->handle != first, "with a handle of its own");
  check(mock()->depth() == 0, "the caller's context is back");
  end(&p);
  end(&other);
}

/* ---- failures ---- */

static size_t first_calls;

static void all_calls(void)
{
  product p = {.m = M, .n = N, .k = K};
  use(MOCK_CUBLAS, "cublas");
  check(begin(&p, QN_PRECISION_FP32) && !call(&p, false, NULL), "a step");
  first_calls = cublas()->calls();
  check(first_calls > 20 && first_calls < 60, "%zu calls that could fail", first_calls);
}

/* The call that the script names fails: forced, a sentence; then, or by the rule, the right result. */
static void failing(void)
{
  product p = {.m = M, .n = N, .k = K};
  use(MOCK_CUBLAS, "cublas");
  bool good = begin(&p, QN_PRECISION_FP32);
  const bool asking = !p.exec.workspace_bytes; /* failed where the workspace was asked for */
  const qn_status status = good ? call(&p, false, NULL) : QN_OK;
  check(status ? strstr(qn_last_error(), "CUBLAS_STATUS_EXECUTION_FAILED (13) by ") != NULL || asking : is_right(&p),
        "a step ends with %s", qn_status_name(status));
  check(mock()->depth() == 0, "the caller's context is back");
  use(MOCK_CUBLAS, "cublas");
  if (asking) {
    call(&p, false, &p.exec.workspace_bytes);
    good = good && !qn_memory_allocate(gpu, p.exec.workspace_bytes, &p.exec.workspace);
  }
  check(good && !call(&p, false, NULL) && is_right(&p), "and then it is done: %s", qn_last_error());
  end(&p);
}

static void passed_by(void)
{
  product p = {.m = MOST_M, .n = MOST_N, .k = MOST_K};
  use(MOCK_CUBLAS, NULL);
  check(begin(&p, QN_PRECISION_FP32) && !call(&p, false, NULL) && passed_by_rule(), "%s does what cuBLAS cannot: %s",
        qn_op_last_variant(), qn_last_error());
  end(&p);
}

static void each_call(void)
{
  char script[32];
  for (size_t k = 1; k <= 32; k++) {
    snprintf(script, sizeof script, "fail=%zu:13", k);
    setenv("QUERN_MOCK_CUBLAS", script, 1);
    scenario(MOCK_CUDA, "", MOCK_NVRTC, "", failing);
  }
}

/* ---- who takes what ---- */

static void expect(const char *variant, int64_t m, int64_t n, int64_t k, uint64_t groups, qn_precision precision,
                   bool of_bf16)
{
  product p = {.m = m, .n = n, .k = k, .of_bf16 = of_bf16, .params = QN_GEMM_NORM_DEFAULTS};
  p.exec = (qn_exec){.size = sizeof p.exec, .device = gpu};
  p.params.precision = (int32_t)precision, p.params.groups = groups;
  p.y = (void *)0x10000000000, p.x = (void *)0x20000000000, p.w = (void *)0x30000000000;
  char text[64];
  snprintf(text, sizeof text, "%s (the rule)", variant);
  qn_tune_ignore(true); /* whatever the shipped table says of that class by now */
  const qn_status status = call(&p, true, NULL);
  qn_tune_ignore(false);
  check(!status && !strcmp(qn_op_last_variant(), text), "%lld x %lld -> %lld, %llu groups, class %d: %s", (long long)m,
        (long long)k, (long long)n, (unsigned long long)groups, (int)precision,
        status ? qn_last_error() : qn_op_last_variant());
}

static void on_hopper(void)
{
  use(MOCK_CUBLAS, NULL);
  expect("cublas", 1024, 8192, 8192, 256, QN_PRECISION_FP32, false);
  expect("whole-8", 3, 12, 5, 3, QN_PRECISION_FP32, false);
  expect("wgmma-128x128-k32", 352, 28, 131072, 7, QN_PRECISION_BF16, true); /* few columns of a long k */
  expect("wgmma-64x128-k2", 128, 4096, 1024, 1, QN_PRECISION_TF32, false);  /* no tile holds the group */
  expect("wgmma-256x128", 1024, 8192, 8192, 256, QN_PRECISION_TF32, false);
  expect("wgmma-128x128", 1024, 8192, 8192, 256, QN_PRECISION_BF16X3, false);
}

static void on_turing(void)
{
  use(MOCK_CUBLAS, NULL);
  expect("cublas", 1024, 8192, 8192, 256, QN_PRECISION_FP32, false);
  expect("cublas", 1024, 8192, 8192, 256, QN_PRECISION_BF16X3, false);
  expect("plain", 1024, 8192, 8192, 256, QN_PRECISION_TF32, false); /* cuBLAS would not round there */
}

/* A measured choice precedes the rule; where it cannot be followed, the choice names the reason. */
static void write_table(const char *choice)
{
  char path[300];
  snprintf(path, sizeof path, "%s", scratch_path("gemm_norm.tune"));
  FILE *file = fopen(path, "w");
  check(file != NULL, "a table");
  if (!file) return;
  fprintf(file,
          "quern tune 1 gemm_norm\narch=sm_90 types=f32/f32/f32 rows=1- cols=1- layout=dense precision=tf32 "
          "depth=1- width=1-64 choice=%s over=plain ratio=1.5 low=1.4 high=1.6 state=measured date=2026-11-22\n",
          choice);
  fclose(file);
}

static void expect_text(const char *text, qn_precision precision, int64_t k)
{
  product p = {.m = 1024, .n = 8192, .k = k, .params = QN_GEMM_NORM_DEFAULTS};
  p.exec = (qn_exec){.size = sizeof p.exec, .device = gpu};
  p.params.precision = (int32_t)precision, p.params.groups = 256;
  p.y = (void *)0x10000000000, p.x = (void *)0x20000000000, p.w = (void *)0x30000000000;
  const qn_status status = call(&p, true, NULL);
  check(!status && strstr(qn_op_last_variant(), text) == qn_op_last_variant(), "\"%s\" is told: %s", text,
        status ? qn_last_error() : qn_op_last_variant());
}

static void by_table(void)
{
  write_table("cublas");
  qn_option_set("tune_dir", scratch);
  use(MOCK_CUBLAS, NULL);
  expect_text("cublas (your tune table)", QN_PRECISION_TF32, 8192);
  expect_text("wgmma-128x128 (the shipped table, measured)", QN_PRECISION_BF16X3, 8192);
  use(MOCK_CUBLAS, "wgmma-256x128");
  expect_text("wgmma-256x128 (forced)", QN_PRECISION_TF32, 8192);
  write_table("rows-8");
  use(MOCK_CUBLAS, NULL);
  expect_text("wgmma-256x128 (the rule; rows-8, of your tune table, cannot: it reads w once for each 8 rows of x",
              QN_PRECISION_TF32, 8192);
  write_table("wgmma-128x128-k2");
  use(MOCK_CUBLAS, NULL);
  expect_text("wgmma-128x128-k2 (your tune table)", QN_PRECISION_TF32, 8192);
  write_table("no-such-variant");
  use(MOCK_CUBLAS, NULL);
  expect_text("wgmma-256x128 (the rule)", QN_PRECISION_TF32, 8192);
}

static void by_table_in_vain(void)
{
  write_table("cublas");
  qn_option_set("tune_dir", scratch);
  expect_text("wgmma-256x128 (the rule; cublas, of your tune table, cannot: the option libcublas names "
              "/nowhere/libcublasLt.so: No such file",
              QN_PRECISION_TF32, 8192);
}

/* ---- threads and forks ---- */

static void *work(void *user)
{
  bool *good = user;
  product p = {.m = M, .n = N, .k = K};
  *good = begin(&p, QN_PRECISION_FP32);
  for (int k = 0; *good && k < 50; k++) {
    memset(p.y, 0, 4 * M * N);
    *good = !call(&p, false, NULL) && is_right(&p);
  }
  end(&p);
  return NULL;
}

static void threads(void)
{
  enum { THREADS = 4 };
  pthread_t thread[THREADS];
  bool good[THREADS];
  use(MOCK_CUBLAS, "cublas");
  for (int k = 0; k < THREADS; k++) pthread_create(&thread[k], NULL, work, &good[k]);
  for (int k = 0; k < THREADS; k++) pthread_join(thread[k], NULL);
  for (int k = 0; k < THREADS; k++) check(good[k], "thread %d", k);
  check(cublas()->handles() == 1, "share a handle: %zu", cublas()->handles());
}

static void forked(void)
{
  product p = {.m = M, .n = N, .k = K};
  use(MOCK_CUBLAS, "cublas");
  check(begin(&p, QN_PRECISION_FP32) && !call(&p, false, NULL), "a step: %s", qn_last_error());
  fflush(stdout);
  const pid_t child = fork();
  if (!child)
    _exit(call(&p, false, NULL) && strstr(qn_last_error(), "process was forked") ? EXIT_SUCCESS : EXIT_FAILURE);
  int status = 0;
  check(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status), "a child is told");
  check(!call(&p, false, NULL) && is_right(&p), "its parent goes on");
  end(&p);
}

static void with_script(const char *script, const char *driver, void (*body)(void))
{
  setenv("QUERN_MOCK_CUBLAS", script, 1);
  scenario(MOCK_CUDA, driver, MOCK_NVRTC, driver, body); /* of one version */
}

int main(void)
{
  scratch_begin();
  mkdir(scratch_path("lib64"), 0700);
  check(!symlink(MOCK_CUBLAS, scratch_path("lib64/libcublasLt.so.12")) &&
            !symlink(MOCK_CUBLAS, scratch_path("lib64/libcublasLt.so.13")),
        "a toolkit");
  with_script("", "", absent);
  with_script("", "", unknown);
  with_script("", "", no_cublas);
  with_script("", "", without_matmul);
  with_script("version=100200", "", too_old);
  with_script("", "version=12040", too_new);
  with_script("none", "", no_kernel);
  setenv("CUDA_HOME", scratch, 1);
  unsetenv("LD_LIBRARY_PATH");
  with_script("", "version=12040", searched);
  with_script("", "", classes);
  with_script("", "", alone);
  with_script("", "", unaligned);
  with_script("", "", unaligned_result);
  with_script("", "devices=2", second_device);
  with_script("", "", all_calls);
  with_script("fail=1:1", "", passed_by);
  each_call();
  with_script("", "multiprocessors=132", on_hopper);
  with_script("", "arch=75,multiprocessors=132", on_turing);
  with_script("", "multiprocessors=132", by_table);
  with_script("", "multiprocessors=132", by_table_in_vain);
  with_script("", "", threads);
  with_script("", "", forked);
  return test_end();
}
