/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - the driver for tests that mock.h describes. It is strict where the real one is lenient by luck: memory,
 * streams and events must belong to the current context's device. */
#include "mock.h"
#include "device/cuda/driver.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  INVALID_VALUE = 1,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  MAX_DEVICES = 8,
  MAX_CALLS = 1 << 16,
  MAX_LAUNCHES = 4096,
  MAX_DEPTH = 64,
  PLAIN_BYTES = 48 << 10, /* of shared memory, without asking and with */
  SHARED_BYTES = 227 << 10,
  THREADS_AT_ONCE = 2048
};

/* The object behind a handle: anything that must be given back. Device memory is one too, found by address. */
enum { MEMORY, STREAM, EVENT, LIBRARY };
typedef struct object {
  struct object *next;
  int kind, device;
  void *memory; /* its own, or where it is only a handle the object itself */
  size_t bytes;
  double ms;                   /* of an event; below 0: not recorded */
  struct cu_kernel_s *kernels; /* likewise */
} object;

struct cu_context_s {
  int device;
};
struct cu_kernel_s {
  struct cu_kernel_s *next;
  int static_bytes, dynamic_bytes; /* shared; the second is what a launch may ask for */
  char name[64];
};

static struct {
  pthread_mutex_t mutex;
  int version, devices, arch, multiprocessors, busy, fail_error;
  size_t memory, fail_at, n_calls, n_launches;
  char missing[64];
  const char *call[MAX_CALLS + 1];
  mock_launch launch[MAX_LAUNCHES];
  object *objects;
  struct cu_context_s context[MAX_DEVICES + 1]; /* the last is foreign */
  int retained[MAX_DEVICES];
  bool initialised;
} mock = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .version = 13000,
          .devices = 1,
          .arch = 90,
          .multiprocessors = 4,
          .memory = 256u << 20};

static _Thread_local struct cu_context_s *stack[MAX_DEPTH];
static _Thread_local int depth;

__attribute__((constructor)) static void read_script(void)
{
  const char *script = getenv("QUERN_MOCK");
  for (int k = 0; k <= MAX_DEVICES; k++) mock.context[k].device = k;
  for (const char *word = script; word && *word; word += strcspn(word, ","), word += *word == ',') {
    sscanf(word, "version=%d", &mock.version);
    sscanf(word, "devices=%d", &mock.devices);
    sscanf(word, "arch=%d", &mock.arch);
    sscanf(word, "multiprocessors=%d", &mock.multiprocessors);
    sscanf(word, "memory=%zu", &mock.memory);
    sscanf(word, "busy=%d", &mock.busy);
    sscanf(word, "missing=%63[^,]", mock.missing);
    sscanf(word, "fail=%zu:%d", &mock.fail_at, &mock.fail_error);
  }
}

/* Every call begins here: it is noted, and may be the one that fails. */
static cu_result begin(const char *function)
{
  pthread_mutex_lock(&mock.mutex);
  size_t k = ++mock.n_calls;
  if (k <= MAX_CALLS) mock.call[k] = function;
  cu_result result = k == mock.fail_at ? mock.fail_error : CU_SUCCESS;
  pthread_mutex_unlock(&mock.mutex);
  return result;
}
#define BEGIN()                                                                                                        \
  do {                                                                                                                 \
    cu_result failed_ = begin(__func__);                                                                               \
    if (failed_) return failed_;                                                                                       \
  } while (0)
#define REQUIRE(condition, error)                                                                                      \
  do {                                                                                                                 \
    if (!(condition)) return error;                                                                                    \
  } while (0)
#define BEGIN_IN_CONTEXT()                                                                                             \
  BEGIN();                                                                                                             \
  REQUIRE(depth &&stack[depth - 1]->device < mock.devices, INVALID_CONTEXT)

static int here(void) { return stack[depth - 1]->device; }

static object *add(int kind, size_t bytes, void *memory)
{
  object *made = calloc(1, sizeof *made);
  if (!made) abort();
  made->kind = kind;
  made->device = here();
  made->bytes = bytes;
  made->memory = memory ? memory : made;
  made->ms = -1;
  pthread_mutex_lock(&mock.mutex);
  made->next = mock.objects;
  mock.objects = made;
  pthread_mutex_unlock(&mock.mutex);
  return made;
}

/* The object of that kind and the current device which holds these bytes. */
static object *find(int kind, const void *at, size_t bytes)
{
  pthread_mutex_lock(&mock.mutex);
  object *found = mock.objects;
  for (; found; found = found->next) {
    const char *begin_at = found->memory, *p = at;
    if (found->kind == kind && found->device == here() && p >= begin_at &&
        (kind > MEMORY ? p == begin_at : p + bytes <= begin_at + found->bytes))
      break;
  }
  pthread_mutex_unlock(&mock.mutex);
  return found;
}

static cu_result drop(int kind, const void *at, int error)
{
  object *found = find(kind, at, 0);
  REQUIRE(found && found->memory == at, error);
  pthread_mutex_lock(&mock.mutex);
  for (object **link = &mock.objects; *link; link = &(*link)->next)
    if (*link == found) {
      *link = found->next;
      break;
    }
  pthread_mutex_unlock(&mock.mutex);
  if (kind == MEMORY) free(found->memory);
  for (struct cu_kernel_s *kernel = found->kernels, *next; kernel; kernel = next) {
    next = kernel->next;
    free(kernel);
  }
  free(found);
  return CU_SUCCESS;
}

static size_t live_bytes(int device)
{
  size_t bytes = 0;
  pthread_mutex_lock(&mock.mutex);
  for (const object *at = mock.objects; at; at = at->next)
    if (at->kind == MEMORY && at->device == device) bytes += at->bytes;
  pthread_mutex_unlock(&mock.mutex);
  return bytes;
}

static void *pointer(cu_address address) { return (void *)(uintptr_t)address; }
static bool stream_is_ours(cu_stream stream) { return !stream || find(STREAM, stream, 0); }

#define X(name, signature) static cu_result name signature;
QN_CUDA_DRIVER_MAP(X)
#undef X

/* ---- the driver and its devices ---- */

static cu_result cuGetErrorName(cu_result result, const char **name)
{
  static const struct {
    cu_result result;
    const char *name;
  } names[] = {{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
               {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
               {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
               {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
               {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
               {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
               {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
               {CU_NOT_READY, "CUDA_ERROR_NOT_READY"},
               {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (names[k].result == result) {
      *name = names[k].name;
      return CU_SUCCESS;
    }
  return INVALID_VALUE;
}

static cu_result cuGetErrorString(cu_result result, const char **text)
{
  *text = result == 700 ? "an illegal memory access was encountered" : "as the test ordered, or the mock found";
  return CU_SUCCESS;
}

__attribute__((visibility("default"))) cu_result cuDriverGetVersion(int *version);
cu_result cuDriverGetVersion(int *version)
{
  *version = mock.version;
  return CU_SUCCESS;
}

static cu_result cuInit(unsigned flags)
{
  BEGIN();
  REQUIRE(!flags, INVALID_VALUE);
  REQUIRE(mock.devices > 0, CU_NO_DEVICE);
  mock.initialised = true;
  return CU_SUCCESS;
}

static cu_result cuDeviceGetCount(int *n)
{
  BEGIN();
  REQUIRE(mock.initialised, 3);
  *n = mock.devices;
  return CU_SUCCESS;
}

static cu_result cuDeviceGet(cu_device *device, int index)
{
  BEGIN();
  REQUIRE(index >= 0 && index < mock.devices, INVALID_DEVICE);
  *device = index;
  return CU_SUCCESS;
}

static cu_result cuDeviceGetName(char *name, int bytes, cu_device device)
{
  BEGIN();
  snprintf(name, (size_t)bytes, "Mock GPU %d", device);
  return CU_SUCCESS;
}

static cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device)
{
  BEGIN();
  REQUIRE(device < mock.devices, INVALID_DEVICE);
  switch (attribute) {
  case CU_DEVICE_MULTIPROCESSORS: *value = mock.multiprocessors; break;
  case CU_DEVICE_L2_BYTES: *value = 1 << 20; break;
  case CU_DEVICE_THREADS_AT_ONCE: *value = THREADS_AT_ONCE; break;
  case CU_DEVICE_SHARED_AT_ONCE: *value = mock.arch >= 70 ? SHARED_BYTES + 1024 : 2 * PLAIN_BYTES; break;
  case CU_DEVICE_REGISTERS_AT_ONCE: *value = 65536; break;
  case CU_DEVICE_ARCH_MAJOR: *value = mock.arch / 10; break;
  case CU_DEVICE_ARCH_MINOR: *value = mock.arch % 10; break;
  case CU_DEVICE_SHARED_BYTES: *value = mock.arch >= 70 ? SHARED_BYTES : PLAIN_BYTES; break;
  default: return INVALID_VALUE;
  }
  return CU_SUCCESS;
}

static cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
  BEGIN();
  REQUIRE(device < mock.devices, INVALID_DEVICE);
  mock.retained[device]++;
  *context = &mock.context[device];
  return CU_SUCCESS;
}

static cu_result cuCtxGetCurrent(cu_context *context)
{
  BEGIN();
  *context = depth ? stack[depth - 1] : NULL;
  return CU_SUCCESS;
}

static cu_result cuCtxPushCurrent(cu_context context)
{
  BEGIN();
  REQUIRE(depth < MAX_DEPTH, CU_OUT_OF_MEMORY);
  stack[depth++] = context;
  return CU_SUCCESS;
}

static cu_result cuCtxPopCurrent(cu_context *context)
{
  BEGIN();
  REQUIRE(depth, INVALID_CONTEXT);
  *context = stack[--depth];
  return CU_SUCCESS;
}

/* ---- memory ---- */

static cu_result cuMemGetInfo(size_t *free_bytes, size_t *total)
{
  BEGIN_IN_CONTEXT();
  *total = mock.memory;
  *free_bytes = mock.memory - live_bytes(here());
  return CU_SUCCESS;
}

static cu_result cuMemAlloc(cu_address *address, size_t bytes)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(bytes, INVALID_VALUE);
  REQUIRE(bytes <= mock.memory - live_bytes(here()), CU_OUT_OF_MEMORY);
  void *memory = aligned_alloc(256, (bytes + 255) & ~(size_t)255);
  REQUIRE(memory, CU_OUT_OF_MEMORY);
  add(MEMORY, bytes, memory);
  *address = (cu_address)(uintptr_t)memory;
  return CU_SUCCESS;
}

static cu_result cuMemFree(cu_address address)
{
  BEGIN_IN_CONTEXT();
  return drop(MEMORY, pointer(address), INVALID_VALUE);
}

static cu_result cuMemcpyHtoDAsync(cu_address target, const void *source, size_t bytes, cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(stream_is_ours(stream), INVALID_HANDLE);
  REQUIRE(find(MEMORY, pointer(target), bytes), INVALID_VALUE);
  memcpy(pointer(target), source, bytes);
  return CU_SUCCESS;
}

static cu_result cuMemcpyDtoHAsync(void *target, cu_address source, size_t bytes, cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(stream_is_ours(stream), INVALID_HANDLE);
  REQUIRE(find(MEMORY, pointer(source), bytes), INVALID_VALUE);
  memcpy(target, pointer(source), bytes);
  return CU_SUCCESS;
}

static cu_result cuMemcpyDtoDAsync(cu_address target, cu_address source, size_t bytes, cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(stream_is_ours(stream), INVALID_HANDLE);
  REQUIRE(find(MEMORY, pointer(source), bytes) && find(MEMORY, pointer(target), bytes), INVALID_VALUE);
  memmove(pointer(target), pointer(source), bytes);
  return CU_SUCCESS;
}

static cu_result cuMemsetD8Async(cu_address target, unsigned char value, size_t bytes, cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(stream_is_ours(stream), INVALID_HANDLE);
  REQUIRE(find(MEMORY, pointer(target), bytes), INVALID_VALUE);
  memset(pointer(target), value, bytes);
  return CU_SUCCESS;
}

/* ---- streams and events ---- */

static cu_result cuStreamCreate(cu_stream *stream, unsigned flags)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(flags == CU_STREAM_NON_BLOCKING, INVALID_VALUE);
  *stream = (cu_stream)(void *)add(STREAM, 0, NULL);
  return CU_SUCCESS;
}

static cu_result cuStreamDestroy(cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  return drop(STREAM, stream, INVALID_HANDLE);
}

static cu_result cuStreamSynchronize(cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  return stream_is_ours(stream) ? CU_SUCCESS : INVALID_HANDLE;
}

static cu_result cuStreamQuery(cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(stream_is_ours(stream), INVALID_HANDLE);
  return mock.busy > 0 && mock.busy-- ? CU_NOT_READY : CU_SUCCESS;
}

static cu_result cuEventCreate(cu_event *event, unsigned flags)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(flags == CU_EVENT_DEFAULT, INVALID_VALUE);
  *event = (cu_event)(void *)add(EVENT, 0, NULL);
  return CU_SUCCESS;
}

static cu_result cuEventDestroy(cu_event event)
{
  BEGIN_IN_CONTEXT();
  return drop(EVENT, event, INVALID_HANDLE);
}

static cu_result cuEventRecord(cu_event event, cu_stream stream)
{
  BEGIN_IN_CONTEXT();
  object *found = find(EVENT, event, 0);
  REQUIRE(found && stream_is_ours(stream), INVALID_HANDLE);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  found->ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
  return CU_SUCCESS;
}

static cu_result cuEventSynchronize(cu_event event)
{
  BEGIN_IN_CONTEXT();
  return find(EVENT, event, 0) ? CU_SUCCESS : INVALID_HANDLE;
}

static cu_result cuEventElapsedTime(float *ms, cu_event from, cu_event to)
{
  BEGIN_IN_CONTEXT();
  const object *a = find(EVENT, from, 0), *b = find(EVENT, to, 0);
  REQUIRE(a && b && a->ms >= 0 && b->ms >= 0, INVALID_HANDLE);
  *ms = (float)(b->ms - a->ms);
  return CU_SUCCESS;
}

/* ---- kernels ---- */

static cu_result cuLibraryLoadData(cu_library *library, const void *image, int *jit_options, void **jit_values,
                                   unsigned n_jit, int *options, void **values, unsigned n)
{
  BEGIN_IN_CONTEXT();
  REQUIRE(image && !jit_options && !jit_values && !n_jit && !options && !values && !n, INVALID_VALUE);
  *library = (cu_library)(void *)add(LIBRARY, 0, NULL);
  return CU_SUCCESS;
}

static cu_result cuLibraryUnload(cu_library library)
{
  BEGIN_IN_CONTEXT();
  return drop(LIBRARY, library, INVALID_HANDLE);
}

/* Every name is a kernel that does not begin with "absent". */
static cu_result cuLibraryGetKernel(cu_kernel *kernel, cu_library library, const char *name)
{
  BEGIN_IN_CONTEXT();
  object *found = find(LIBRARY, library, 0);
  REQUIRE(found, INVALID_HANDLE);
  REQUIRE(strncmp(name, "absent", 6), NOT_FOUND);
  struct cu_kernel_s *made = calloc(1, sizeof *made); /* lives as long as its library */
  if (!made) abort();
  made->next = found->kernels;
  found->kernels = made;
  snprintf(made->name, sizeof made->name, "%s", name);
  sscanf(name, "static%d", &made->static_bytes);
  made->dynamic_bytes = PLAIN_BYTES - made->static_bytes;
  *kernel = made;
  return CU_SUCCESS;
}

static cu_result cuKernelGetFunction(cu_function *function, cu_kernel kernel)
{
  BEGIN_IN_CONTEXT();
  *function = (cu_function)(void *)kernel;
  return CU_SUCCESS;
}

static bool is_heavy(const struct cu_kernel_s *kernel) { return !strncmp(kernel->name, "heavy", 5); }
static int most_threads(const struct cu_kernel_s *kernel) { return is_heavy(kernel) ? 96 : 1024; }

static cu_result cuFuncGetAttribute(int *value, int attribute, cu_function function)
{
  BEGIN_IN_CONTEXT();
  const struct cu_kernel_s *kernel = (const struct cu_kernel_s *)(void *)function;
  REQUIRE(kernel, INVALID_VALUE);
  switch (attribute) {
  case CU_FUNCTION_MAX_THREADS: *value = most_threads(kernel); break;
  case CU_FUNCTION_SHARED_BYTES: *value = kernel->static_bytes; break;
  case CU_FUNCTION_LOCAL_BYTES: *value = is_heavy(kernel) ? 24 : 0; break;
  case CU_FUNCTION_REGISTERS: *value = is_heavy(kernel) ? 96 : 16; break;
  case CU_FUNCTION_DYNAMIC_SHARED_BYTES: *value = kernel->dynamic_bytes; break;
  default: return INVALID_VALUE;
  }
  return CU_SUCCESS;
}

static cu_result cuFuncSetAttribute(cu_function function, int attribute, int value)
{
  BEGIN_IN_CONTEXT();
  struct cu_kernel_s *kernel = (struct cu_kernel_s *)(void *)function;
  if (kernel && attribute == CU_FUNCTION_LARGE_CLUSTERS) {
    REQUIRE(mock.arch >= 90 && value == 1, INVALID_VALUE);
    return CU_SUCCESS;
  }
  REQUIRE(kernel && attribute == CU_FUNCTION_DYNAMIC_SHARED_BYTES, INVALID_VALUE);
  REQUIRE(value >= 0 && value + kernel->static_bytes <= (mock.arch >= 70 ? SHARED_BYTES : PLAIN_BYTES), INVALID_VALUE);
  kernel->dynamic_bytes = value;
  return CU_SUCCESS;
}

static cu_result cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                        const unsigned long long *extents, const unsigned long long *strides,
                                        const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                                        int promotion, int fill)
{
  (void)type, (void)rank, (void)extents, (void)strides, (void)box, (void)steps;
  (void)interleave, (void)swizzle, (void)promotion, (void)fill;
  memset(map, 0, 128);
  memcpy(map, &address, sizeof address);
  return CU_SUCCESS;
}

static cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function, int threads,
                                                             size_t shared_bytes)
{
  BEGIN_IN_CONTEXT();
  const struct cu_kernel_s *kernel = (const struct cu_kernel_s *)(void *)function;
  REQUIRE(kernel && threads > 0 && threads <= most_threads(kernel), INVALID_VALUE);
  REQUIRE(shared_bytes <= (size_t)kernel->dynamic_bytes, INVALID_VALUE);
  const size_t shared = shared_bytes + (size_t)kernel->static_bytes;
  *blocks = (is_heavy(kernel) ? 640 : THREADS_AT_ONCE) / threads;
  if (*blocks > 32) *blocks = 32;
  if (shared && *blocks > (int)(SHARED_BYTES / shared)) *blocks = (int)(SHARED_BYTES / shared);
  return CU_SUCCESS;
}

/* The real one's limits: 2^31 - 1 blocks along x, 65,535 along y and z, 64 threads along z. */
static cu_result cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                cu_stream stream, void **arguments, void **extra)
{
  BEGIN_IN_CONTEXT();
  const struct cu_kernel_s *kernel = (const struct cu_kernel_s *)(void *)function;
  REQUIRE(stream_is_ours(stream), INVALID_HANDLE);
  REQUIRE(grid_x - 1 < 0x7fffffff && grid_y - 1 < 65535 && grid_z - 1 < 65535 && !extra, INVALID_VALUE);
  REQUIRE(block_x && block_y && block_z - 1 < 64 && block_x <= 1024 && block_y <= 1024 &&
              block_x * block_y * block_z <= (unsigned)most_threads(kernel),
          INVALID_VALUE);
  REQUIRE(shared_bytes <= (unsigned)kernel->dynamic_bytes, INVALID_VALUE);
  pthread_mutex_lock(&mock.mutex);
  if (mock.n_launches < MAX_LAUNCHES) {
    mock_launch *note = &mock.launch[mock.n_launches];
    *note = (mock_launch){.device = here(),
                          .blocks = grid_x,
                          .threads = block_x,
                          .blocks_yz = {grid_y, grid_z},
                          .threads_yz = {block_y, block_z},
                          .shared_bytes = shared_bytes,
                          .stream = stream};
    snprintf(note->kernel, sizeof note->kernel, "%s", kernel->name);
    note->argument = arguments ? *(const int *)arguments[0] : 0;
  }
  mock.n_launches++;
  pthread_mutex_unlock(&mock.mutex);
  return CU_SUCCESS;
}

/* The attribute is what quern asks for; no kernel runs here that could begin early. */
static cu_result cuLaunchKernelEx(const cu_launch_config *c, cu_function function, void **arguments, void **extra)
{
  REQUIRE(c && c->n_attributes == 1 && c->attributes[0].what == CU_LAUNCH_EARLY && c->attributes[0].value == 1,
          INVALID_VALUE);
  return cuLaunchKernel(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
                        c->shared_bytes, c->stream, arguments, extra);
}

#ifdef MOCK_OLD_GET_PROC_ADDRESS /* a library that has the first form only */
#define cuGetProcAddress_v2 cuGetProcAddress
#endif
__attribute__((visibility("default"))) cu_result cuGetProcAddress_v2(const char *name, void **symbol, int version,
                                                                     unsigned long long flags, int *found);
cu_result cuGetProcAddress_v2(const char *name, void **symbol, int version, unsigned long long flags, int *found)
{
  static const struct {
    const char *name;
    void (*function)(void);
  } table[] = {
#define X(function, signature) {#function, (void (*)(void))function},
      QN_CUDA_DRIVER_MAP(X)
#undef X
  };
  REQUIRE(version == 12000 && flags == CU_PROC_LEGACY_STREAM, INVALID_VALUE);
  *symbol = NULL;
  *found = 1;
  for (size_t k = 0; k < sizeof table / sizeof *table; k++)
    if (!strcmp(table[k].name, name) && strcmp(mock.missing, name)) {
      memcpy(symbol, &table[k].function, sizeof *symbol);
      *found = 0;
      return CU_SUCCESS;
    }
  return NOT_FOUND;
}

/* ---- what tests ask ---- */

static size_t calls(const char *function)
{
  size_t n = 0;
  for (size_t k = 1; k <= mock.n_calls && k <= MAX_CALLS; k++) n += !function || !strcmp(mock.call[k], function);
  return n;
}
static const char *call_name(size_t k) { return k && k <= mock.n_calls && k <= MAX_CALLS ? mock.call[k] : "none"; }
static size_t launches(void) { return mock.n_launches; }
static const mock_launch *launch_at(size_t k)
{
  return k < mock.n_launches && k < MAX_LAUNCHES ? &mock.launch[k] : NULL;
}
static size_t live(void)
{
  size_t n = 0;
  for (const object *at = mock.objects; at; at = at->next) n++;
  return n;
}
static int stack_depth(void) { return depth; }
static int retained(int device) { return mock.retained[device]; }
static void push(int device) { stack[depth++] = &mock.context[device < 0 ? MAX_DEVICES : device]; }
static void fail_next(size_t k, int error)
{
  mock.fail_at = mock.n_calls + k;
  mock.fail_error = error;
}

__attribute__((visibility("default"))) const mock_api *mock_cuda(void)
{
  static const mock_api api = {calls,      call_name,   launches, launch_at, live,
                               live_bytes, stack_depth, retained, push,      fail_next};
  return &api;
}
