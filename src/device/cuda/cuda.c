/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - NVIDIA GPUs as devices: memory, streams, events, kernels. Every call makes the device's primary context
 * current and puts back what was; nothing here synchronises but what the public header says waits. Opening is
 * driver.c's business, compiling is compile.c's. */
#include "device/cuda/compile.h"
#include "device/cuda/driver.h"
#include <stdio.h>
#include <string.h>

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

/* ---- kernels ---- */

struct qn_function {
  qn_function *next; /* of the same module */
  cu_function handle;
  int max_threads; /* a block of it can have */
  char name[64];
};

struct qn_module {
  cu_library library;
  qn_function *functions;
};

static qn_status module_load(qn_device device, const void *image, size_t bytes, qn_module **module)
{
  qn_cuda_scope scope;
  qn_module *made;
  qn_require(bytes, "cuda:%d: the image of a module is empty", device.index);
  qn_try(qn_try_allocate(&made, sizeof *made, "a module"));
  *made = (qn_module){0};
  qn_status status = qn_cuda_enter(device, &scope);
  if (!status)
    status = qn_cuda_leave(
        &scope, qn_cuda_call(&scope, cuLibraryLoadData, &made->library, image, NULL, NULL, 0, NULL, NULL, 0));
  if (status && made->library) scope.driver->cuLibraryUnload(made->library);
  if (status)
    qn_release(made);
  else
    *module = made;
  return status;
}

static void module_unload(qn_device device, qn_module *module)
{
  qn_cuda_scope scope;
  if (!module) return;
  if (!qn_cuda_enter(device, &scope))
    (void)qn_cuda_leave(&scope, qn_cuda_call(&scope, cuLibraryUnload, module->library));
  while (module->functions) {
    qn_function *next = module->functions->next;
    qn_release(module->functions);
    module->functions = next;
  }
  qn_release(module);
}

/* Asking for an attribute has the driver load the code now, so that a launch in a stream capture finds it there. */
static qn_status find_function(const qn_cuda_scope *scope, const qn_module *module, qn_function *function)
{
  char call[sizeof function->name + 32];
  cu_kernel kernel;
  snprintf(call, sizeof call, "cuLibraryGetKernel(\"%s\")", function->name);
  cu_result result = scope->driver->cuLibraryGetKernel(&kernel, module->library, function->name);
  qn_try(qn_cuda_status(scope->driver, scope->device->index, result, call));
  qn_try(qn_cuda_call(scope, cuKernelGetFunction, &function->handle, kernel));
  return qn_cuda_call(scope, cuFuncGetAttribute, &function->max_threads, CU_FUNCTION_MAX_THREADS, function->handle);
}

/* One thread at a time for one module; the kernels' table in jit/ sees to it. */
static qn_status module_function(qn_device device, qn_module *module, const char *name, qn_function **function)
{
  qn_cuda_scope scope;
  qn_function *made;
  qn_require(strlen(name) < sizeof made->name, "cuda: a kernel's name has %zu characters; at most %zu are taken",
             strlen(name), sizeof made->name - 1);
  qn_try(qn_try_allocate(&made, sizeof *made, "a kernel's handle"));
  *made = (qn_function){.next = module->functions};
  snprintf(made->name, sizeof made->name, "%s", name);
  qn_status status = qn_cuda_enter(device, &scope);
  if (!status) status = qn_cuda_leave(&scope, find_function(&scope, module, made));
  if (status)
    qn_release(made);
  else
    *function = module->functions = made;
  return status;
}

static qn_status argument_limit(qn_device device, size_t *bytes)
{
  const qn_cuda_driver *driver;
  const qn_cuda_device *opened;
  qn_try(qn_cuda_driver_open(&driver));
  qn_try(qn_cuda_device_open(device.index, &opened));
  *bytes = driver->version >= 12010 && opened->arch >= 70 ? 32764 : 4096; /* every NVRTC that we take can do it */
  return QN_OK;
}

static qn_status launch(qn_device device, const qn_function *function, const qn_launch *run)
{
  enum { MAX_BLOCKS = INT32_MAX };
  qn_cuda_scope scope;
  void *arguments[] = {(void *)(uintptr_t)run->argument};
  size_t limit;
  qn_require(run->blocks <= MAX_BLOCKS, "cuda:%d: %s: %llu blocks; a launch takes at most %d", device.index,
             function->name, (unsigned long long)run->blocks, MAX_BLOCKS);
  qn_require(run->threads && run->threads <= (unsigned)function->max_threads,
             "cuda:%d: %s: %u threads a block; it takes 1 to %d", device.index, function->name, run->threads,
             function->max_threads);
  qn_try(argument_limit(device, &limit));
  qn_require(run->argument_bytes <= limit, "cuda:%d: %s: an argument of %zu bytes; at most %zu are taken", device.index,
             function->name, run->argument_bytes, limit);
  if (!run->blocks) return QN_OK;
  qn_launch_note();
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope,
                       qn_cuda_call(&scope, cuLaunchKernel, function->handle, (unsigned)run->blocks, 1, 1, run->threads,
                                    1, 1, 0, run->stream, run->argument ? arguments : NULL, NULL));
}

const qn_backend qn_backend_cuda = {
    .kind = QN_CUDA,
    .count = count,
    .query = query,
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
    .module_load = module_load,
    .module_unload = module_unload,
    .module_function = module_function,
    .launch = launch,
    .argument_limit = argument_limit,
};
