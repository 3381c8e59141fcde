/* SPDX-License-Identifier: Apache-2.0 */
/* cublas.c - cuBLAS, found and opened when a product first asks for it; a handle a device, which lives as long as the
 * process, as the device's context does (at exit the driver may be gone before us); and products by it. It takes the
 * part named cublasLt, whose calls are given stream and workspace each, so that threads share a handle, and that
 * allocates nothing in a call. */
#include "device/cuda/cublas.h"
#include "core/core.h"
#include "device/cuda/driver.h"
#include "device/cuda/find.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 128, KEPT = 64, BEST_ALIGNMENT = 256 };

/* What choices of cuBLAS's are kept under: all that it was asked for them. */
typedef struct kind {
  int device, operands;
  int64_t m, n, k;
  size_t workspace_bytes;
  uint32_t alignment_x, alignment_w, alignment_z, narrow; /* without padding: kinds are compared as bytes */
} kind;

typedef struct choice {
  bool known;
  kind of;
  cublas_found found; /* its status: the library's word where there is none */
} choice;

/* `cublas` never changes again once `ready` publishes it, as a handle that is not NULL; failures are guarded by
 * qn_cuda_lock, choices by the mutex. */
static struct {
  atomic_bool ready;
  qn_cublas cublas;
  _Atomic(cublas_handle) handle[DEVICES];
  struct {
    unsigned generation; /* of the options at the time; 0: there was none */
    qn_status status;
    char why[768];
  } failed[1 + DEVICES]; /* the library, then handles */
  pthread_mutex_t mutex;
  choice choice[KEPT];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- errors ---- */

static qn_status told(int device, int result, const char *function)
{
  static const char *const names[] = {[1] = "NOT_INITIALIZED", [CUBLAS_NO_MEMORY] = "ALLOC_FAILED",
                                      [7] = "INVALID_VALUE",   [8] = "ARCH_MISMATCH",
                                      [11] = "MAPPING_ERROR",  [13] = "EXECUTION_FAILED",
                                      [14] = "INTERNAL_ERROR", [CUBLAS_UNSUPPORTED] = "NOT_SUPPORTED"};
  if (result == CUBLAS_SUCCESS) return QN_OK;
  const bool known = result > 0 && result < (int)(sizeof names / sizeof *names) && names[result];
  const qn_status status = result == CUBLAS_NO_MEMORY     ? QN_NO_MEMORY
                           : result == CUBLAS_UNSUPPORTED ? QN_UNSUPPORTED
                                                          : QN_DRIVER_ERROR;
  return qn_fail(status, "cuda:%d: %s: CUBLAS_STATUS_%s (%d) by %s", device, function, known ? names[result] : "?",
                 result, state.cublas.path);
}

/* ---- the library ---- */

typedef struct search {
  qn_cuda_search of; /* first */
  char path[512], refused[768];
} search;

static bool take(qn_cuda_search *of, const char *path)
{
  search *s = (search *)of;
  char real[PATH_MAX];
  if (!realpath(path, real) || access(real, R_OK)) return false;
  if (strlen(real) >= sizeof s->path) {
    errno = ENAMETOOLONG;
    return false;
  }
  const int major = qn_cuda_library_major("cublasLt", path);
  snprintf(s->path, sizeof s->path, "%s", real);
  if (!major || (major >= of->least_major && (!of->driver_version || major <= of->driver_version / 1000))) return true;
  snprintf(s->refused, sizeof s->refused, "%s is cuBLAS %d; the driver for CUDA %d.%d takes %d to %d", s->path, major,
           of->driver_version / 1000, of->driver_version % 1000 / 10, of->least_major, of->driver_version / 1000);
  return false;
}

static qn_status find(char path[512])
{
  search s = {.of = {.stem = "cublasLt", .least_major = QN_CUBLAS_LEAST / 10000, .take = take}};
  char named[PATH_MAX];
  qn_try(qn_option_text(QN_OPTION_LIBCUBLAS, named, sizeof named));
  qn_cuda_search_run(&s.of, named);
  memcpy(path, s.path, sizeof s.path);
  if (s.of.found) return QN_OK;
  if (*s.refused) return qn_fail(QN_UNSUPPORTED, "no usable cuBLAS: %s", s.refused);
  if (*named)
    return qn_fail(QN_NO_LIBRARY, "the option libcublas names %s: %s", named,
                   strchr(named, '/') ? strerror(errno) : "the loader does not find it");
  return qn_fail(QN_NO_LIBRARY, "no cuBLAS: " QN_CUDA_SEARCHED, "nvidia-cublas", "libcublas");
}

static qn_status check_library(void *library, qn_cublas *c)
{
#define X(type, name, signature)                                                                                       \
  if (!qn_cuda_symbol(library, #name, &c->name))                                                                       \
    return qn_fail(QN_UNSUPPORTED, "no usable cuBLAS: %s lacks %s", c->path, #name);
  QN_CUBLAS_MAP(X)
#undef X
  c->version = (int)c->cublasLtGetVersion();
  if (c->version >= QN_CUBLAS_LEAST) return QN_OK;
  return qn_fail(QN_UNSUPPORTED, "no usable cuBLAS: %s tells the version %d; quern needs %d or newer", c->path,
                 c->version, QN_CUBLAS_LEAST);
}

static qn_status load(void)
{
  qn_cublas cublas = {0};
  qn_try(find(cublas.path));
  void *library = dlopen(cublas.path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return qn_fail(QN_NO_LIBRARY, "no usable cuBLAS: %s", dlerror());
  const qn_status status = check_library(library, &cublas);
  if (status) {
    dlclose(library);
    return status;
  }
  state.cublas = cublas;
  atomic_store_explicit(&state.ready, true, memory_order_release);
  return QN_OK;
}

/* Under qn_cuda_lock: what failed under these options before fails again without a try; else the try's end is kept. */
static bool failed_before(size_t which, qn_status *status)
{
  if (state.failed[which].generation != qn_option_generation()) return false;
  *status = qn_fail(state.failed[which].status, "%s", state.failed[which].why);
  return true;
}

static qn_status keep_failure(size_t which, qn_status status)
{
  if (status == QN_OK) return status;
  state.failed[which].generation = qn_option_generation();
  state.failed[which].status = status;
  snprintf(state.failed[which].why, sizeof state.failed[which].why, "%s", qn_last_error());
  return status;
}

qn_status qn_cublas_open(const qn_cublas **cublas)
{
  *cublas = &state.cublas;
  if (atomic_load_explicit(&state.ready, memory_order_acquire)) return QN_OK;
  qn_status status = QN_OK;
  qn_try(qn_cuda_lock());
  const bool opened = atomic_load(&state.ready);
  if (!opened && !failed_before(0, &status)) status = keep_failure(0, load());
  qn_cuda_unlock();
  if (status == QN_OK && !opened) qn_log(QN_LOG_INFO, "cuBLAS %d: %s", state.cublas.version, state.cublas.path);
  return status;
}

/* ---- a device's handle ---- */

/* In the device's context. */
static qn_status open_handle(int device, cublas_handle *handle)
{
  const qn_cublas *cublas;
  qn_status status = QN_OK;
  *handle = atomic_load_explicit(&state.handle[device], memory_order_acquire);
  if (*handle) return QN_OK;
  qn_try(qn_cublas_open(&cublas));
  qn_try(qn_cuda_lock());
  *handle = atomic_load(&state.handle[device]);
  if (!*handle && !failed_before(1 + (size_t)device, &status)) {
    status = keep_failure(1 + (size_t)device, told(device, cublas->cublasLtCreate(handle), "cublasLtCreate"));
    if (status == QN_OK) atomic_store_explicit(&state.handle[device], *handle, memory_order_release);
  }
  qn_cuda_unlock();
  return status;
}

/* ---- a product ---- */

typedef struct description {
  cublas_room product, w, x, z;
} description;

/* cuBLAS sees row-major matrices as their transposes: z^T (n, m) = (w^T)^T x^T, where w^T is (k, n) and x^T (k, m). */
static int describe(const qn_cublas *c, const qn_cublas_product *p, description *d)
{
  static const int computes[] = {CUBLAS_32F_PEDANTIC, CUBLAS_32F_FAST_TF32, CUBLAS_32F_FAST_16BF, CUBLAS_32F};
  _Static_assert(sizeof computes / sizeof *computes == QN_CUBLAS_CLASSES, "one for each");
  const int type = p->operands == QN_CUBLAS_OF_BF16 ? CUBLAS_R_16BF : CUBLAS_R_32F;
  const int of_z = p->narrow ? CUBLAS_R_16BF : CUBLAS_R_32F;
  const int32_t turned = 1, straight = 0;
  const uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
  *d = (description){0};
  int bad = c->cublasLtMatmulDescInit_internal(&d->product, sizeof d->product, computes[p->operands], CUBLAS_R_32F);
  if (!bad) bad = c->cublasLtMatmulDescSetAttribute(&d->product, CUBLAS_DESC_TRANSA, &turned, sizeof turned);
  if (!bad) bad = c->cublasLtMatmulDescSetAttribute(&d->product, CUBLAS_DESC_TRANSB, &straight, sizeof straight);
  if (!bad) bad = c->cublasLtMatrixLayoutInit_internal(&d->w, sizeof d->w, type, k, n, p->k);
  if (!bad) bad = c->cublasLtMatrixLayoutInit_internal(&d->x, sizeof d->x, type, k, m, p->k);
  if (!bad) bad = c->cublasLtMatrixLayoutInit_internal(&d->z, sizeof d->z, of_z, n, m, p->n);
  return bad;
}

static uint32_t alignment(const void *p)
{
  const uintptr_t at = (uintptr_t)p | BEST_ALIGNMENT;
  return (uint32_t)(at & -at);
}

static kind kind_of(int device, const qn_cublas_product *p)
{
  return (kind){.device = device,
                .operands = (int)p->operands,
                .m = p->m,
                .n = p->n,
                .k = p->k,
                .workspace_bytes = p->workspace_bytes,
                .alignment_x = alignment(p->x),
                .alignment_w = alignment(p->w),
                .alignment_z = alignment(p->z),
                .narrow = p->narrow};
}

static int ask(const qn_cublas *c, cublas_handle handle, const kind *of, description *d, cublas_found *found)
{
  const uint64_t bytes = of->workspace_bytes;
  const struct {
    int attribute;
    uint32_t value;
  } wanted[] = {{CUBLAS_PREFERENCE_ALIGNMENT_A, of->alignment_w},
                {CUBLAS_PREFERENCE_ALIGNMENT_B, of->alignment_x},
                {CUBLAS_PREFERENCE_ALIGNMENT_C, of->alignment_z},
                {CUBLAS_PREFERENCE_ALIGNMENT_D, of->alignment_z},
                {CUBLAS_PREFERENCE_REDUCTIONS, CUBLAS_REDUCTIONS_IN_F32}};
  const size_t n_wanted = sizeof wanted / sizeof *wanted - !of->narrow; /* f32 results lose nothing in any way */
  cublas_room preference = {{0}};
  int n = 0, bad = c->cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference);
  if (!bad)
    bad = c->cublasLtMatmulPreferenceSetAttribute(&preference, CUBLAS_PREFERENCE_WORKSPACE, &bytes, sizeof bytes);
  for (size_t k = 0; k < n_wanted && !bad; k++)
    bad = c->cublasLtMatmulPreferenceSetAttribute(&preference, wanted[k].attribute, &wanted[k].value,
                                                  sizeof wanted[k].value);
  if (!bad)
    bad = c->cublasLtMatmulAlgoGetHeuristic(handle, &d->product, &d->w, &d->x, &d->z, &d->z, &preference, 1, found, &n);
  if (bad) return bad;
  return n > 0 && found->workspace_bytes <= bytes ? found->status : CUBLAS_UNSUPPORTED;
}

static choice *slot_of(const kind *of)
{
  const uint64_t h = ((uint64_t)of->m * 31 + (uint64_t)of->n) * 31 + (uint64_t)of->k + (uint64_t)of->operands * 7 +
                     (uint64_t)of->device * 5 + of->alignment_x + of->alignment_z;
  return &state.choice[(h ^ h >> 7) % KEPT];
}

/* cuBLAS's choice for the kind: asked for once, then kept. That it has none is kept too; what else fails is not. */
static qn_status choose(const qn_cublas *c, cublas_handle handle, const kind *of, description *d, cublas_found *found)
{
  choice *slot = slot_of(of);
  pthread_mutex_lock(&state.mutex);
  const bool known = slot->known && !memcmp(&slot->of, of, sizeof *of);
  if (known) *found = slot->found;
  pthread_mutex_unlock(&state.mutex);
  if (!known) {
    *found = (cublas_found){0};
    found->status = ask(c, handle, of, d, found);
    if (found->status == CUBLAS_SUCCESS || found->status == CUBLAS_UNSUPPORTED) {
      pthread_mutex_lock(&state.mutex);
      *slot = (choice){.known = true, .of = *of, .found = *found};
      pthread_mutex_unlock(&state.mutex);
    }
  }
  return told(of->device, found->status, "cublasLtMatmulAlgoGetHeuristic");
}

/* In the device's context. */
static qn_status begin(int device, const qn_cublas_product *p, cublas_handle *handle, description *d,
                       cublas_found *found)
{
  const kind of = kind_of(device, p);
  qn_try(open_handle(device, handle));
  qn_try(told(device, describe(&state.cublas, p, d), "the description of a product"));
  return choose(&state.cublas, *handle, &of, d, found);
}

qn_status qn_cublas_prepare(qn_device device, const qn_cublas_product *product)
{
  const qn_cublas *cublas;
  qn_cuda_scope scope;
  cublas_handle handle;
  description d;
  cublas_found found;
  qn_try(qn_cublas_open(&cublas));
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope, begin(device.index, product, &handle, &d, &found));
}

static qn_status multiply(int device, const qn_cublas_product *p)
{
  static const float one = 1.0f, zero = 0.0f;
  cublas_handle handle;
  description d;
  cublas_found found;
  qn_try(begin(device, p, &handle, &d, &found));
  qn_launch_note("cublasLtMatmul", p->stream);
  return told(device,
              state.cublas.cublasLtMatmul(handle, &d.product, &one, p->w, &d.w, p->x, &d.x, &zero, p->z, &d.z, p->z,
                                          &d.z, &found.algorithm, p->workspace, p->workspace_bytes, p->stream),
              "cublasLtMatmul");
}

qn_status qn_cublas_multiply(qn_device device, const qn_cublas_product *product)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope, multiply(device.index, product));
}
