/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - finds, checks and opens the CUDA driver and its devices, once a process, and makes sentences of its
 * errors. It never closes what it opened successfully: at exit the driver may be gone before us. */
#include "device/cuda/driver.h"
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 128 };

/* The values that `ready` and `context_ready` publish never change again. */
static struct {
  pthread_mutex_t mutex;
  pthread_once_t once;
  atomic_int lockers; /* threads that hold or want the mutex */
  atomic_bool ready, forked, lock_lost;
  qn_cuda_driver driver;
  qn_cuda_device device[MAX_DEVICES];
  atomic_bool context_ready[MAX_DEVICES];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* ---- fork: the driver does not survive it, so that the child is told rather than left to hang ---- */

/* Where a thread was opening something just then, the child has it half open and a lock that nobody will release: it
 * must touch neither. (No lock is taken before the fork: cuInit itself may fork, to load the kernel's module.) */
static void after_fork_in_child(void)
{
  if (atomic_load(&state.lockers)) atomic_store(&state.lock_lost, true);
  if (atomic_load(&state.ready)) atomic_store(&state.forked, true);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

static qn_status refuse_forked(void)
{
  return qn_fail(QN_FORKED, "cuda: this process was forked after the driver was opened; open it in the child only");
}

qn_status qn_cuda_lock(void)
{
  pthread_once(&state.once, watch_forks);
  if (atomic_load(&state.lock_lost)) return refuse_forked();
  atomic_fetch_add(&state.lockers, 1);
  pthread_mutex_lock(&state.mutex);
  return QN_OK;
}

void qn_cuda_unlock(void)
{
  pthread_mutex_unlock(&state.mutex);
  atomic_fetch_sub(&state.lockers, 1);
}

/* ---- errors ---- */

qn_status qn_cuda_status(const qn_cuda_driver *driver, int index, cu_result result, const char *function)
{
  if (result == CU_SUCCESS) return QN_OK;
  const char *name = NULL, *text = NULL;
  char unknown[32], where[24] = "";
  if (driver->cuGetErrorName(result, &name) != CU_SUCCESS || !name) {
    snprintf(unknown, sizeof unknown, "error %d", result);
    name = unknown;
  }
  if (driver->cuGetErrorString(result, &text) != CU_SUCCESS || !text) text = "the driver has no text for it";
  if (index >= 0) snprintf(where, sizeof where, "cuda:%d: ", index);
  return qn_fail(result == CU_OUT_OF_MEMORY ? QN_NO_MEMORY : QN_DRIVER_ERROR, "%s%s: %s (%d): %s", where, function,
                 name, result, text);
}

/* ---- the driver's library ---- */

bool qn_cuda_symbol(void *library, const char *name, void *pointer_to_function)
{
  void *symbol = dlsym(library, name);
  memcpy(pointer_to_function, &symbol, sizeof symbol);
  return symbol != NULL;
}

void qn_cuda_library_path(void *library, const char *name, char *path, size_t bytes)
{
  struct link_map *map = NULL;
  bool known = !dlinfo(library, RTLD_DI_LINKMAP, &map) && *map->l_name;
  const char *full = known ? map->l_name : name;
  size_t n = strnlen(full, bytes - 1); /* cut to fit: it is for people */
  memcpy(path, full, n);
  path[n] = 0;
}

typedef cu_result get_proc_fn(const char *name, void **symbol, int version, unsigned long long flags, int *found);

/* The library, loaded, its path and version; or why not. Asking the version works before cuInit and in any process. */
typedef struct loaded {
  void *library;
  int version;
  char path[256], why[768];
} loaded;

static qn_status load(loaded *l)
{
  char name[4096];
  *l = (loaded){0};
  qn_try(qn_option_text(QN_OPTION_LIBCUDA, name, sizeof name));
  l->library = dlopen(*name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!l->library) {
    snprintf(l->why, sizeof l->why, "no CUDA driver: %s (install one, or name its library in the option libcuda)",
             dlerror());
    return QN_NO_LIBRARY;
  }
  qn_cuda_library_path(l->library, *name ? name : "libcuda.so.1", l->path, sizeof l->path);
  cu_result (*driver_version)(int *);
  if (!qn_cuda_symbol(l->library, "cuDriverGetVersion", &driver_version)) {
    snprintf(l->why, sizeof l->why, "%s has no cuDriverGetVersion: it is no CUDA driver", l->path);
    dlclose(l->library);
    return QN_UNSUPPORTED;
  }
  cu_result result = driver_version(&l->version);
  if (!result) return QN_OK;
  snprintf(l->why, sizeof l->why, "%s: cuDriverGetVersion: error %d%s", l->path, result,
           result == CU_STUB_LIBRARY ? ": it is the toolkit's stub for linking, not a driver" : "");
  dlclose(l->library);
  return QN_DRIVER_ERROR;
}

static qn_status check_version(const qn_cuda_driver *driver)
{
  if (driver->version >= QN_CUDA_DRIVER_LEAST) return QN_OK;
  return qn_fail(QN_UNSUPPORTED, "the driver %s is for CUDA %d.%d; quern needs CUDA %d.%d (driver 525) or newer",
                 driver->path, driver->version / 1000, driver->version % 1000 / 10, QN_CUDA_DRIVER_LEAST / 1000,
                 QN_CUDA_DRIVER_LEAST % 1000 / 10);
}

static qn_status find_functions(void *library, qn_cuda_driver *driver)
{
  get_proc_fn *get_proc; /* every driver for 12.0 or newer has the second form; its first is another signature */
  if (!qn_cuda_symbol(library, "cuGetProcAddress_v2", &get_proc))
    return qn_fail(QN_UNSUPPORTED, "the driver %s lacks cuGetProcAddress_v2", driver->path);
  struct {
    const char *name;
    void *pointer;
  } wanted[] = {
#define X(name, signature) {#name, &driver->name},
      QN_CUDA_DRIVER_MAP(X)
#undef X
  };
  for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
    void *symbol = NULL;
    int found = 0;
    cu_result result = get_proc(wanted[k].name, &symbol, QN_CUDA_DRIVER_LEAST, CU_PROC_LEGACY_STREAM, &found);
    if (result || !symbol)
      return qn_fail(QN_UNSUPPORTED, "the driver %s (CUDA %d.%d) lacks %s (cuGetProcAddress: error %d)", driver->path,
                     driver->version / 1000, driver->version % 1000 / 10, wanted[k].name, result);
    memcpy(wanted[k].pointer, &symbol, sizeof symbol);
  }
  return QN_OK;
}

/* A machine with the driver and no GPU is one with 0 devices; the caller says so in its own words. */
static qn_status initialise(qn_cuda_driver *driver)
{
  cu_result result = driver->cuInit(0);
  driver->n_devices = 0;
  if (result == CU_NO_DEVICE) return QN_OK;
  qn_try(qn_cuda_status(driver, -1, result, "cuInit"));
  return qn_cuda_status(driver, -1, driver->cuDeviceGetCount(&driver->n_devices), "cuDeviceGetCount");
}

/* With the lock held. A library that cuInit has seen stays loaded, as it may have started threads. */
static qn_status open_locked(void)
{
  qn_cuda_driver driver = {0};
  loaded l;
  qn_status status = load(&l);
  if (status) return *l.why ? qn_fail(status, "%s", l.why) : status;
  driver.version = l.version;
  snprintf(driver.path, sizeof driver.path, "%s", l.path);
  status = check_version(&driver);
  if (!status) status = find_functions(l.library, &driver);
  if (status) {
    dlclose(l.library);
    return status;
  }
  qn_try(initialise(&driver));
  state.driver = driver;
  atomic_store_explicit(&state.ready, true, memory_order_release);
  return QN_OK;
}

qn_status qn_cuda_driver_open(const qn_cuda_driver **driver)
{
  if (atomic_load_explicit(&state.forked, memory_order_relaxed)) return refuse_forked();
  if (!atomic_load_explicit(&state.ready, memory_order_acquire)) {
    qn_try(qn_cuda_lock());
    bool opened = atomic_load(&state.ready);
    qn_status status = opened ? QN_OK : open_locked();
    qn_cuda_unlock();
    qn_try(status);
    if (!opened)
      qn_log(QN_LOG_INFO, "CUDA driver %s, version %d.%d, %d devices", state.driver.path, state.driver.version / 1000,
             state.driver.version % 1000 / 10, state.driver.n_devices);
  }
  *driver = &state.driver;
  return QN_OK;
}

int qn_cuda_driver_peek(char *path, size_t bytes)
{
  *path = 0;
  if (atomic_load_explicit(&state.ready, memory_order_acquire)) {
    snprintf(path, bytes, "%s", state.driver.path);
    return state.driver.version;
  }
  loaded l;
  if (load(&l)) return 0;
  dlclose(l.library);
  snprintf(path, bytes, "%s", l.path);
  return l.version;
}

/* ---- devices ---- */

static qn_status retain(const qn_cuda_driver *driver, int index, qn_cuda_device *device)
{
  *device = (qn_cuda_device){.index = index};
  qn_cuda_scope scope = {.driver = driver, .device = device};
  int major, minor;
  qn_try(qn_cuda_call(&scope, cuDeviceGet, &device->handle, index));
  qn_try(qn_cuda_call(&scope, cuDeviceGetAttribute, &major, CU_DEVICE_ARCH_MAJOR, device->handle));
  qn_try(qn_cuda_call(&scope, cuDeviceGetAttribute, &minor, CU_DEVICE_ARCH_MINOR, device->handle));
  qn_try(qn_cuda_call(&scope, cuDeviceGetAttribute, &device->shared_bytes, CU_DEVICE_SHARED_BYTES, device->handle));
  device->arch = 10 * major + minor;
  return qn_cuda_call(&scope, cuDevicePrimaryCtxRetain, &device->context, device->handle);
}

static qn_status check_index(const qn_cuda_driver *driver, int index)
{
  int n = driver->n_devices < MAX_DEVICES ? driver->n_devices : MAX_DEVICES;
  if (index >= 0 && index < n) return QN_OK;
  if (!n) return qn_fail(QN_NO_DEVICE, "cuda:%d: the driver %s sees no device", index, driver->path);
  return qn_fail(QN_NO_DEVICE, "cuda:%d: there %s %d, 0 to %d", index, n == 1 ? "is" : "are", n, n - 1);
}

qn_status qn_cuda_device_open(int index, const qn_cuda_device **device)
{
  const qn_cuda_driver *driver;
  qn_try(qn_cuda_driver_open(&driver));
  qn_try(check_index(driver, index));
  if (!atomic_load_explicit(&state.context_ready[index], memory_order_acquire)) {
    qn_status status = QN_OK;
    qn_try(qn_cuda_lock());
    if (!atomic_load(&state.context_ready[index])) {
      status = retain(driver, index, &state.device[index]);
      if (!status) atomic_store_explicit(&state.context_ready[index], true, memory_order_release);
    }
    qn_cuda_unlock();
    qn_try(status);
  }
  *device = &state.device[index];
  return QN_OK;
}

qn_status qn_cuda_enter(qn_device device, qn_cuda_scope *scope)
{
  *scope = (qn_cuda_scope){.driver = &state.driver};
  qn_try(qn_cuda_device_open(device.index, &scope->device));
  cu_context current = NULL;
  qn_try(qn_cuda_call(scope, cuCtxGetCurrent, &current));
  if (current == scope->device->context) return QN_OK;
  qn_try(qn_cuda_call(scope, cuCtxPushCurrent, scope->device->context));
  scope->pushed = true;
  return QN_OK;
}

qn_status qn_cuda_leave(const qn_cuda_scope *scope, qn_status status)
{
  if (!scope->pushed) return status;
  cu_context popped;
  cu_result result = scope->driver->cuCtxPopCurrent(&popped);
  return status ? status : qn_cuda_status(scope->driver, scope->device->index, result, "cuCtxPopCurrent");
}
