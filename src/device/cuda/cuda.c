/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - NVIDIA GPUs as devices: memory, streams, events, and the backend's table. Every call makes the device's
 * primary context current and puts back what was; nothing here synchronises but what the public header says waits.
 * Opening is driver.c's business, compiling is compile.c's, kernels are module.c's. */
#include "device/cuda/compile.h"
#include "device/cuda/driver.h"
#include "device/cuda/module.h"
#include <stdio.h>
#include <time.h>

/* Whatever is made is given back where the call fails after all: where the caller's context could not be put back, ours
 * is still current. */

static cu_address address(const void *memory) { return (cu_address)(uintptr_t)memory; }

/* ---- devices ---- */

static qn_status count(int *n)
{
  const qn_cuda_driver *driver;
  *n = 0;
  qn_status status = qn_cuda_driver_open(&driver);
  if (status == QN_NO_LIBRARY) return QN_OK; /* no driver is no device; the sentence stands */
  qn_try(status);
  *n = driver->n_devices;
  if (!*n) (void)qn_fail(QN_NO_DEVICE, "cuda: the driver %s sees no device", driver->path);
  return QN_OK;
}

static qn_status query_in_context(const qn_cuda_scope *scope, qn_device_info *info)
{
  cu_device handle = scope->device->handle;
  size_t free_bytes, total_bytes;
  int l2;
  qn_try(qn_cuda_call(scope, cuDeviceGetName, info->name, (int)sizeof info->name, handle));
  qn_try(qn_cuda_call(scope, cuDeviceGetAttribute, &info->multiprocessors, CU_DEVICE_MULTIPROCESSORS, handle));
  qn_try(qn_cuda_call(scope, cuDeviceGetAttribute, &l2, CU_DEVICE_L2_BYTES, handle));
  qn_try(qn_cuda_call(scope, cuMemGetInfo, &free_bytes, &total_bytes));
  info->l2_bytes = l2;
  info->memory_bytes = (int64_t)total_bytes;
  info->free_bytes = (int64_t)free_bytes;
  return QN_OK;
}

static qn_status query(qn_device device, qn_device_info *info)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  qn_try(qn_cuda_leave(&scope, query_in_context(&scope, info)));
  info->arch = scope.device->arch;
  info->driver_version = scope.driver->version;
  snprintf(info->driver_path, sizeof info->driver_path, "%s", scope.driver->path);
  if (qn_cuda_compiler(&info->compiler_version, info->compiler_path, sizeof info->compiler_path)) {
    info->compiler_version = 0; /* none; the sentence says why */
    *info->compiler_path = 0;
  }
  return QN_OK;
}

static qn_status arch(qn_device device, qn_arch *arch)
{
  qn_cuda_scope scope = {0};
  int l2 = 0;
  qn_try(qn_cuda_driver_open(&scope.driver));
  qn_try(qn_cuda_device_open(device.index, &scope.device));
  const struct {
    int attribute, *value;
  } wanted[] = {{CU_DEVICE_MULTIPROCESSORS, &arch->multiprocessors},
                {CU_DEVICE_L2_BYTES, &l2},
                {CU_DEVICE_THREADS_AT_ONCE, &arch->threads_multiprocessor},
                {CU_DEVICE_SHARED_AT_ONCE, &arch->shared_multiprocessor_bytes},
                {CU_DEVICE_REGISTERS_AT_ONCE, &arch->registers_multiprocessor}};
  for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
    qn_try(qn_cuda_call(&scope, cuDeviceGetAttribute, wanted[k].value, wanted[k].attribute, scope.device->handle));
  arch->capability = scope.device->arch;
  arch->shared_block_bytes = scope.device->shared_bytes;
  arch->l2_bytes = l2;
  return QN_OK;
}

/* ---- memory ---- */

/* Too little memory is no error of the driver's: it says how much was asked for and how much there is. */
static qn_status allocation_status(const qn_cuda_scope *scope, cu_result result, size_t bytes)
{
  size_t free_bytes = 0, total_bytes = 0;
  qn_status status = qn_cuda_status(scope->driver, scope->device->index, result, "cuMemAlloc");
  if (!status || scope->driver->cuMemGetInfo(&free_bytes, &total_bytes)) return status;
  if (status != QN_NO_MEMORY && bytes <= total_bytes) return status;
  return qn_fail(QN_NO_MEMORY, "cuda:%d: %zu bytes asked for, %zu of %zu are free (cuMemAlloc: error %d)",
                 scope->device->index, bytes, free_bytes, total_bytes, result);
}

static qn_status memory_allocate(qn_device device, size_t bytes, void **memory)
{
  qn_cuda_scope scope;
  cu_address got = 0;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = allocation_status(&scope, scope.driver->cuMemAlloc(&got, bytes), bytes);
  status = qn_cuda_leave(&scope, status);
  if (status && got) scope.driver->cuMemFree(got);
  *memory = status ? NULL : (void *)(uintptr_t)got;
  return status;
}

static qn_status memory_release(qn_device device, void *memory)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope, qn_cuda_call(&scope, cuMemFree, address(memory)));
}

static qn_status memory_write(qn_device device, void *stream, void *target, const void *source, size_t bytes)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = qn_cuda_call(&scope, cuMemcpyHtoDAsync, address(target), source, bytes, stream);
  if (!status) status = qn_cuda_call(&scope, cuStreamSynchronize, stream);
  return qn_cuda_leave(&scope, status);
}

static qn_status memory_read(qn_device device, void *stream, void *target, const void *source, size_t bytes)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = qn_cuda_call(&scope, cuMemcpyDtoHAsync, target, address(source), bytes, stream);
  if (!status) status = qn_cuda_call(&scope, cuStreamSynchronize, stream);
  return qn_cuda_leave(&scope, status);
}

static qn_status memory_copy(qn_device device, void *stream, void *target, const void *source, size_t bytes)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope,
                       qn_cuda_call(&scope, cuMemcpyDtoDAsync, address(target), address(source), bytes, stream));
}

static qn_status memory_fill(qn_device device, void *stream, void *target, unsigned char value, size_t bytes)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope, qn_cuda_call(&scope, cuMemsetD8Async, address(target), value, bytes, stream));
}

/* ---- streams and events ---- */

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static qn_status stream_create(qn_device device, void **stream)
{
  qn_cuda_scope scope;
  cu_stream made = NULL;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = qn_cuda_leave(&scope, qn_cuda_call(&scope, cuStreamCreate, &made, CU_STREAM_NON_BLOCKING));
  if (status && made) scope.driver->cuStreamDestroy(made);
  *stream = status ? NULL : made;
  return status;
}

static qn_status stream_destroy(qn_device device, void **stream)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = qn_cuda_call(&scope, cuStreamDestroy, *stream);
  if (!status) *stream = NULL;
  return qn_cuda_leave(&scope, status);
}

static qn_status stream_synchronize(qn_device device, void *stream)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope, qn_cuda_call(&scope, cuStreamSynchronize, stream));
}

/* Asks, and sleeps between: a blocking wait takes no limit. The first milliseconds are asked closely. */
static qn_status stream_await(qn_device device, void *stream, int64_t limit_ns, bool *done)
{
  qn_cuda_scope scope;
  *done = false;
  qn_try(qn_cuda_enter(device, &scope));
  const int64_t start = now_ns();
  cu_result result;
  for (int64_t passed = 0; (result = scope.driver->cuStreamQuery(stream)) == CU_NOT_READY && passed < limit_ns;
       passed = now_ns() - start)
    nanosleep(&(struct timespec){.tv_nsec = passed < 5000000 ? 20000 : 1000000}, NULL);
  *done = result == CU_SUCCESS;
  return qn_cuda_leave(
      &scope, result == CU_NOT_READY ? QN_OK : qn_cuda_status(scope.driver, device.index, result, "cuStreamQuery"));
}

typedef struct cuda_event {
  qn_event event; /* first: what the public calls see */
  cu_event handle;
} cuda_event;

static qn_status event_create(qn_device device, qn_event **event)
{
  qn_cuda_scope scope;
  cuda_event *made;
  qn_try(qn_try_allocate(&made, sizeof *made, "an event"));
  *made = (cuda_event){.event = {device}};
  qn_status status = qn_cuda_enter(device, &scope);
  if (!status) status = qn_cuda_leave(&scope, qn_cuda_call(&scope, cuEventCreate, &made->handle, CU_EVENT_DEFAULT));
  if (status && made->handle) scope.driver->cuEventDestroy(made->handle);
  if (status)
    qn_release(made);
  else
    *event = &made->event;
  return status;
}

static qn_status event_destroy(qn_device device, qn_event **event)
{
  qn_cuda_scope scope;
  cuda_event *made = (cuda_event *)*event;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = qn_cuda_call(&scope, cuEventDestroy, made->handle);
  if (!status) {
    qn_release(made);
    *event = NULL;
  }
  return qn_cuda_leave(&scope, status);
}

static qn_status event_record(qn_device device, void *stream, qn_event *event)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope, qn_cuda_call(&scope, cuEventRecord, ((cuda_event *)event)->handle, stream));
}

static qn_status event_elapsed(qn_device device, qn_event *from, qn_event *to, double *ns)
{
  qn_cuda_scope scope;
  cu_event a = ((cuda_event *)from)->handle, b = ((cuda_event *)to)->handle;
  float ms = 0;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = qn_cuda_call(&scope, cuEventSynchronize, b);
  if (!status) status = qn_cuda_call(&scope, cuEventElapsedTime, &ms, a, b);
  *ns = 1e6 * (double)ms;
  return qn_cuda_leave(&scope, status);
}

const qn_backend qn_backend_cuda = {
    .kind = QN_CUDA,
    .count = count,
    .query = query,
    .arch = arch,
    .memory_allocate = memory_allocate,
    .memory_release = memory_release,
    .memory_write = memory_write,
    .memory_read = memory_read,
    .memory_copy = memory_copy,
    .memory_fill = memory_fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_elapsed = event_elapsed,
    .target = qn_cuda_target,
    .compile = qn_cuda_compile,
    .module_load = qn_cuda_module_load,
    .module_unload = qn_cuda_module_unload,
    .module_function = qn_cuda_module_function,
    .launch = qn_cuda_launch,
    .function_facts = qn_cuda_function_facts,
    .allow_large_clusters = qn_cuda_allow_large_clusters,
    .groups_at_once = qn_cuda_groups_at_once,
    .stream_await = stream_await,
    .argument_limit = qn_cuda_argument_limit,
};
