/* SPDX-License-Identifier: Apache-2.0 */
/* cublas.c - the cuBLAS for tests that cublas.h describes. It is strict where the real one is lenient by luck: a
 * device's context must be current, pointers as aligned as was said, and a kernel of its own choice. */
#include "cublas.h"
#include "device/cuda/cublas.h"
#include "mock.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, PRODUCT = 0x50, LAYOUT = 0x4c, PREFERENCE = 0x46, KERNEL = 0x4b };

static struct {
  pthread_mutex_t mutex;
  size_t version, fail_at, calls, handles, asked, products;
  int fail_status, none;
  mock_product latest;
} mock = {.mutex = PTHREAD_MUTEX_INITIALIZER, .version = 130100};

struct cublas_handle_s {
  int number;
};

/* The contents of a slot. */
typedef struct product_room {
  int kind, compute, turned[2];
} product_room;
typedef struct layout_room {
  int kind, type;
  uint64_t rows, columns;
  int64_t leading;
} layout_room;
typedef struct preference_room {
  int kind;
  uint32_t alignment[4], reductions;
  uint64_t workspace_bytes;
} preference_room;
typedef struct kernel { /* in an algorithm */
  int kind;
  uint32_t alignment[4], reductions;
  uint64_t workspace_bytes;
} kernel;
_Static_assert(sizeof(kernel) <= sizeof(cublas_algorithm), "a kernel's note has place");

__attribute__((constructor)) static void read_script(void)
{
  const char *script = getenv("QUERN_MOCK_CUBLAS");
  for (const char *word = script; word && *word; word += strcspn(word, ","), word += *word == ',') {
    sscanf(word, "version=%zu", &mock.version);
    sscanf(word, "fail=%zu:%d", &mock.fail_at, &mock.fail_status);
    if (!strncmp(word, "none", 4)) mock.none = 1;
  }
}

#ifdef MOCK_WITHOUT_MATMUL
#define cublasLtMatmul otherMatmul
#endif
#define X(type, name, signature) __attribute__((visibility("default"))) type name signature;
QN_CUBLAS_MAP(X)
#undef X

static int begin(void)
{
  pthread_mutex_lock(&mock.mutex);
  const int status = ++mock.calls == mock.fail_at ? mock.fail_status : CUBLAS_SUCCESS;
  pthread_mutex_unlock(&mock.mutex);
  return status;
}
#define BEGIN()                                                                                                        \
  do {                                                                                                                 \
    const int failed_ = begin();                                                                                       \
    if (failed_) return failed_;                                                                                       \
  } while (0)
#define REQUIRE(condition, status)                                                                                     \
  do {                                                                                                                 \
    if (!(condition)) return status;                                                                                   \
  } while (0)

/* Is a context of the mock driver current? */
static bool in_context(void)
{
  const char *name = getenv("QUERN_LIBCUDA");
  void *driver = name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL,
       *symbol = driver ? dlsym(driver, "mock_cuda") : NULL;
  const mock_api *(*get)(void);
  if (!symbol) return false;
  memcpy(&get, &symbol, sizeof get);
  const bool current = get()->depth() > 0;
  dlclose(driver);
  return current;
}

size_t cublasLtGetVersion(void) { return mock.version; }

int cublasLtCreate(cublas_handle *handle)
{
  static struct cublas_handle_s handles[8];
  BEGIN();
  REQUIRE(in_context(), NOT_INITIALIZED);
  pthread_mutex_lock(&mock.mutex);
  *handle = &handles[mock.handles++ & 7];
  pthread_mutex_unlock(&mock.mutex);
  return CUBLAS_SUCCESS;
}

int cublasLtMatmulDescInit_internal(cublas_room *room, size_t bytes, int compute, int scale_type)
{
  BEGIN();
  REQUIRE(bytes >= 32 * sizeof(uint64_t) && scale_type == CUBLAS_R_32F, INVALID_VALUE);
  const product_room made = {.kind = PRODUCT, .compute = compute};
  memcpy(room, &made, sizeof made);
  return CUBLAS_SUCCESS;
}

int cublasLtMatmulDescSetAttribute(cublas_room *room, int attribute, const void *value, size_t bytes)
{
  product_room of;
  BEGIN();
  memcpy(&of, room, sizeof of);
  REQUIRE(of.kind == PRODUCT && bytes == 4, INVALID_VALUE);
  REQUIRE(attribute == CUBLAS_DESC_TRANSA || attribute == CUBLAS_DESC_TRANSB, INVALID_VALUE);
  memcpy(&of.turned[attribute - CUBLAS_DESC_TRANSA], value, 4);
  memcpy(room, &of, sizeof of);
  return CUBLAS_SUCCESS;
}

int cublasLtMatrixLayoutInit_internal(cublas_room *room, size_t bytes, int type, uint64_t rows, uint64_t columns,
                                      int64_t leading)
{
  BEGIN();
  REQUIRE(bytes >= 8 * sizeof(uint64_t) && rows && columns && leading >= (int64_t)rows, INVALID_VALUE);
  const layout_room made = {LAYOUT, type, rows, columns, leading};
  memcpy(room, &made, sizeof made);
  return CUBLAS_SUCCESS;
}

int cublasLtMatmulPreferenceInit_internal(cublas_room *room, size_t bytes)
{
  BEGIN();
  REQUIRE(bytes >= 8 * sizeof(uint64_t), INVALID_VALUE);
  const preference_room made = {.kind = PREFERENCE, .alignment = {256, 256, 256, 256}, .reductions = 7};
  memcpy(room, &made, sizeof made);
  return CUBLAS_SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(cublas_room *room, int attribute, const void *value, size_t bytes)
{
  preference_room of;
  BEGIN();
  memcpy(&of, room, sizeof of);
  REQUIRE(of.kind == PREFERENCE, INVALID_VALUE);
  if (attribute == CUBLAS_PREFERENCE_WORKSPACE && bytes == 8)
    memcpy(&of.workspace_bytes, value, bytes);
  else if (attribute >= CUBLAS_PREFERENCE_ALIGNMENT_A && attribute <= CUBLAS_PREFERENCE_ALIGNMENT_D && bytes == 4)
    memcpy(&of.alignment[attribute - CUBLAS_PREFERENCE_ALIGNMENT_A], value, bytes);
  else if (attribute == CUBLAS_PREFERENCE_REDUCTIONS && bytes == 4)
    memcpy(&of.reductions, value, bytes);
  else
    return INVALID_VALUE;
  memcpy(room, &of, sizeof of);
  return CUBLAS_SUCCESS;
}

/* The product's shapes must fit together: op(a) (rows of d, depth), op(b) (depth, columns of d). */
static bool fits(const product_room *p, const layout_room *a, const layout_room *b, const layout_room *d)
{
  const uint64_t depth = p->turned[0] ? a->rows : a->columns;
  return p->kind == PRODUCT && a->kind == LAYOUT && b->kind == LAYOUT && d->kind == LAYOUT &&
         (p->turned[0] ? a->columns : a->rows) == d->rows && (p->turned[1] ? b->columns : b->rows) == depth &&
         (p->turned[1] ? b->rows : b->columns) == d->columns && a->type == b->type &&
         (d->type == CUBLAS_R_32F || d->type == a->type);
}

int cublasLtMatmulAlgoGetHeuristic(cublas_handle handle, cublas_room *product, cublas_room *a, cublas_room *b,
                                   cublas_room *c, cublas_room *d, cublas_room *preference, int wanted,
                                   cublas_found *found, int *n_found)
{
  product_room p;
  layout_room of[3];
  preference_room want;
  BEGIN();
  memcpy(&p, product, sizeof p);
  memcpy(&of[0], a, sizeof of[0]);
  memcpy(&of[1], b, sizeof of[1]);
  memcpy(&of[2], d, sizeof of[2]);
  memcpy(&want, preference, sizeof want);
  REQUIRE(handle && in_context(), NOT_INITIALIZED);
  REQUIRE(c == d && wanted == 1 && want.kind == PREFERENCE && fits(&p, &of[0], &of[1], &of[2]), INVALID_VALUE);
  pthread_mutex_lock(&mock.mutex);
  mock.asked++;
  pthread_mutex_unlock(&mock.mutex);
  *n_found = 0;
  REQUIRE(!mock.none, CUBLAS_UNSUPPORTED);
  kernel made = {.kind = KERNEL, .reductions = want.reductions, .workspace_bytes = want.workspace_bytes / 2};
  memcpy(made.alignment, want.alignment, sizeof made.alignment);
  *found = (cublas_found){.workspace_bytes = made.workspace_bytes, .status = CUBLAS_SUCCESS, .waves = 1};
  memcpy(&found->algorithm, &made, sizeof made);
  *n_found = 1;
  return CUBLAS_SUCCESS;
}

static float element(const void *from, const layout_room *of, uint64_t row, uint64_t column)
{
  const uint64_t at = row + column * (uint64_t)of->leading;
  if (of->type == CUBLAS_R_32F) return ((const float *)from)[at];
  const uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t bf16_of(float value)
{
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Two parts of k, which are kept in the result's type unless only reductions in f32 were allowed. */
static void multiply(const product_room *p, const layout_room *of, const kernel *by, const void *a, const void *b,
                     void *d)
{
  const uint64_t depth = p->turned[0] ? of[0].rows : of[0].columns;
  const bool narrow = of[2].type != CUBLAS_R_32F, rounds = narrow && by->reductions != CUBLAS_REDUCTIONS_IN_F32;
  for (uint64_t j = 0; j < of[2].columns; j++)
    for (uint64_t i = 0; i < of[2].rows; i++) {
      float sum = 0;
      for (uint64_t l = 0; l < depth; l++) {
        const uint32_t half = (uint32_t)bf16_of(sum) << 16;
        if (rounds && l == depth / 2) memcpy(&sum, &half, sizeof sum);
        sum += (p->turned[0] ? element(a, &of[0], l, i) : element(a, &of[0], i, l)) *
               (p->turned[1] ? element(b, &of[1], j, l) : element(b, &of[1], l, j));
      }
      const uint64_t at = i + j * (uint64_t)of[2].leading;
      if (narrow)
        ((uint16_t *)d)[at] = bf16_of(sum);
      else
        ((float *)d)[at] = sum;
    }
}

static mock_matrix note(const void *data, const layout_room *of, int turned)
{
  return (mock_matrix){data, of->type, turned, of->rows, of->columns, of->leading};
}

int cublasLtMatmul(cublas_handle handle, cublas_room *product, const void *alpha, const void *a, cublas_room *of_a,
                   const void *b, cublas_room *of_b, const void *beta, const void *c, cublas_room *of_c, void *d,
                   cublas_room *of_d, const cublas_algorithm *algorithm, void *workspace, size_t workspace_bytes,
                   void *stream)
{
  const void *const data[] = {a, b, c, d};
  product_room p;
  layout_room of[3];
  kernel by;
  float one, zero;
  BEGIN();
  memcpy(&p, product, sizeof p);
  memcpy(&of[0], of_a, sizeof of[0]);
  memcpy(&of[1], of_b, sizeof of[1]);
  memcpy(&of[2], of_d, sizeof of[2]);
  memcpy(&by, algorithm, sizeof by);
  memcpy(&one, alpha, sizeof one);
  memcpy(&zero, beta, sizeof zero);
  REQUIRE(handle && in_context(), NOT_INITIALIZED);
  REQUIRE(c == d && of_c == of_d && one == 1 && zero == 0 && by.kind == KERNEL, INVALID_VALUE);
  REQUIRE(fits(&p, &of[0], &of[1], &of[2]), INVALID_VALUE);
  REQUIRE(workspace && (uintptr_t)workspace % 16 == 0 && workspace_bytes >= by.workspace_bytes, INVALID_VALUE);
  for (int k = 0; k < 4; k++) REQUIRE((uintptr_t)data[k] % by.alignment[k] == 0, INVALID_VALUE);
  memset(workspace, 0xa5, by.workspace_bytes); /* it is the library's to write */
  multiply(&p, of, &by, a, b, d);
  pthread_mutex_lock(&mock.mutex);
  mock.products++;
  mock.latest = (mock_product){note(a, &of[0], p.turned[0]),
                               note(b, &of[1], p.turned[1]),
                               note(d, &of[2], 0),
                               p.compute,
                               workspace,
                               stream,
                               workspace_bytes,
                               handle};
  pthread_mutex_unlock(&mock.mutex);
  return CUBLAS_SUCCESS;
}

static size_t calls(void) { return mock.calls; }
static size_t handles(void) { return mock.handles; }
static size_t asked(void) { return mock.asked; }
static size_t products(void) { return mock.products; }
static const mock_product *latest(void) { return &mock.latest; }

__attribute__((visibility("default"))) const mock_cublas_api *mock_cublas(void)
{
  static const mock_cublas_api api = {calls, handles, asked, products, latest};
  return &api;
}
