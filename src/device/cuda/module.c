/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - compiled kernels on an NVIDIA GPU: loaded, found, asked about and launched. What a launch may not have is
 * refused here with a sentence, since the driver's own word for it is "invalid argument". */
#include "device/cuda/module.h"
#include "device/cuda/driver.h"
#include <stdio.h>
#include <string.h>

/* A block has so much shared memory without being asked for more; along y and z a grid and a block are smaller. */
enum {
  PLAIN_SHARED_BYTES = 48 << 10,
  MOST_BLOCKS = INT32_MAX,
  MOST_BLOCKS_YZ = 65535,
  MOST_THREADS_Z = 64,
  EARLY_ARCH = 90
};

struct qn_device_function {
  qn_device_function *next; /* of the same module */
  cu_function handle;
  int max_threads;  /* a block of it can have */
  int shared_bytes; /* static */
  char name[];
};

struct qn_module {
  cu_library library;
  qn_device_function *functions;
};

qn_status qn_cuda_module_load(qn_device device, const void *image, size_t bytes, qn_module **module)
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

void qn_cuda_module_unload(qn_device device, qn_module *module)
{
  qn_cuda_scope scope;
  if (!module) return;
  if (!qn_cuda_enter(device, &scope))
    (void)qn_cuda_leave(&scope, qn_cuda_call(&scope, cuLibraryUnload, module->library));
  while (module->functions) {
    qn_device_function *next = module->functions->next;
    qn_release(module->functions);
    module->functions = next;
  }
  qn_release(module);
}

/* Asking for an attribute has the driver load the code now, so that a launch in a stream capture finds it there. */
static qn_status find_function(const qn_cuda_scope *scope, const qn_module *module, qn_device_function *function)
{
  char call[256];
  cu_kernel kernel;
  snprintf(call, sizeof call, "cuLibraryGetKernel(\"%s\")", function->name);
  cu_result result = scope->driver->cuLibraryGetKernel(&kernel, module->library, function->name);
  qn_try(qn_cuda_status(scope->driver, scope->device->index, result, call));
  qn_try(qn_cuda_call(scope, cuKernelGetFunction, &function->handle, kernel));
  qn_try(qn_cuda_call(scope, cuFuncGetAttribute, &function->max_threads, CU_FUNCTION_MAX_THREADS, function->handle));
  return qn_cuda_call(scope, cuFuncGetAttribute, &function->shared_bytes, CU_FUNCTION_SHARED_BYTES, function->handle);
}

/* One thread at a time for one module; the kernels' table in jit/ sees to it. */
qn_status qn_cuda_module_function(qn_device device, qn_module *module, const char *name, qn_device_function **function)
{
  qn_cuda_scope scope;
  qn_device_function *made;
  qn_try(qn_try_allocate(&made, sizeof *made + strlen(name) + 1, "a kernel's handle"));
  *made = (qn_device_function){.next = module->functions};
  strcpy(made->name, name);
  qn_status status = qn_cuda_enter(device, &scope);
  if (!status) status = qn_cuda_leave(&scope, find_function(&scope, module, made));
  if (status)
    qn_release(made);
  else
    *function = module->functions = made;
  return status;
}

qn_status qn_cuda_allow_large_clusters(qn_device device, const qn_device_function *function)
{
  qn_cuda_scope scope;
  qn_try(qn_cuda_enter(device, &scope));
  return qn_cuda_leave(&scope,
                       qn_cuda_call(&scope, cuFuncSetAttribute, function->handle, CU_FUNCTION_LARGE_CLUSTERS, 1));
}

/* ---- what the compiler made of it ---- */

/* The sizes in the order in which one is taken where several keep as many threads at work. */
static qn_status find_best(const qn_cuda_scope *scope, const qn_device_function *function, uint32_t *best)
{
  static const int sizes[] = {256, 128, 512, 384, 192, 768, 1024, 64, 32};
  int most = 0;
  *best = function->max_threads < 32 ? (uint32_t)function->max_threads : 32;
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    int blocks;
    if (sizes[k] > function->max_threads) continue;
    qn_try(qn_cuda_call(scope, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function->handle, sizes[k],
                        (size_t)0));
    if (blocks * sizes[k] <= most) continue;
    most = blocks * sizes[k];
    *best = (uint32_t)sizes[k];
  }
  return QN_OK;
}

qn_status qn_cuda_function_facts(qn_device device, const qn_device_function *function, qn_function_facts *facts)
{
  qn_cuda_scope scope;
  cu_function handle = function->handle;
  *facts = (qn_function_facts){.shared_bytes = function->shared_bytes, .most_threads = function->max_threads};
  qn_try(qn_cuda_enter(device, &scope));
  facts->shared_limit_bytes = (uint32_t)scope.device->shared_bytes;
  qn_status status = qn_cuda_call(&scope, cuFuncGetAttribute, &facts->registers, CU_FUNCTION_REGISTERS, handle);
  if (!status) status = qn_cuda_call(&scope, cuFuncGetAttribute, &facts->local_bytes, CU_FUNCTION_LOCAL_BYTES, handle);
  if (!status) status = find_best(&scope, function, &facts->best_threads);
  return qn_cuda_leave(&scope, status);
}

/* More than 48 KiB of a block must be allowed first. It is always allowed up to the device's limit, so that threads
 * which launch the same kernel with different amounts do not take from each other. */
static qn_status allow_shared(const qn_cuda_scope *scope, const qn_device_function *function, uint32_t bytes)
{
  if ((uint64_t)function->shared_bytes + bytes <= PLAIN_SHARED_BYTES) return QN_OK;
  return qn_cuda_call(scope, cuFuncSetAttribute, function->handle, CU_FUNCTION_DYNAMIC_SHARED_BYTES,
                      scope->device->shared_bytes - function->shared_bytes);
}

static qn_status check_shared(const qn_cuda_device *opened, const qn_device_function *function, uint32_t bytes)
{
  qn_require((uint64_t)function->shared_bytes + bytes <= (uint64_t)opened->shared_bytes,
             "cuda:%d: %s: %u bytes of shared memory a block, and %d of its own; the device has %d", opened->index,
             function->name, bytes, function->shared_bytes, opened->shared_bytes);
  return QN_OK;
}

qn_status qn_cuda_groups_at_once(qn_device device, const qn_device_function *function, uint32_t threads,
                                 uint32_t shared_bytes, int *groups)
{
  qn_cuda_scope scope;
  *groups = 0;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = check_shared(scope.device, function, shared_bytes);
  if (!status) status = allow_shared(&scope, function, shared_bytes);
  if (!status)
    status = qn_cuda_call(&scope, cuOccupancyMaxActiveBlocksPerMultiprocessor, groups, function->handle, (int)threads,
                          (size_t)shared_bytes);
  return qn_cuda_leave(&scope, status);
}

/* ---- the launch ---- */

qn_status qn_cuda_argument_limit(qn_device device, size_t *bytes)
{
  const qn_cuda_driver *driver;
  const qn_cuda_device *opened;
  qn_try(qn_cuda_driver_open(&driver));
  qn_try(qn_cuda_device_open(device.index, &opened));
  *bytes = driver->version >= 12010 && opened->arch >= 70 ? 32764 : 4096; /* every NVRTC that we take can do it */
  return QN_OK;
}

static unsigned or_one(uint32_t n) { return n ? n : 1; }

static qn_status check_geometry(qn_device device, const qn_device_function *function, const qn_launch *run)
{
  const uint64_t threads = (uint64_t)run->threads * or_one(run->threads_y) * or_one(run->threads_z);
  qn_require(run->blocks <= MOST_BLOCKS, "cuda:%d: %s: %llu blocks; a launch takes at most %d", device.index,
             function->name, (unsigned long long)run->blocks, MOST_BLOCKS);
  qn_require(run->blocks_y <= MOST_BLOCKS_YZ && run->blocks_z <= MOST_BLOCKS_YZ,
             "cuda:%d: %s: %u blocks along y and %u along z; a launch takes at most %d", device.index, function->name,
             or_one(run->blocks_y), or_one(run->blocks_z), MOST_BLOCKS_YZ);
  qn_require(threads && threads <= (uint64_t)function->max_threads,
             "cuda:%d: %s: %llu threads a block; it takes 1 to %d", device.index, function->name,
             (unsigned long long)threads, function->max_threads);
  qn_require(run->threads_z <= MOST_THREADS_Z, "cuda:%d: %s: %u threads along z; a block takes at most %d",
             device.index, function->name, run->threads_z, MOST_THREADS_Z);
  return QN_OK;
}

static qn_status launch_early(const qn_cuda_scope *scope, const qn_device_function *function, const qn_launch *run,
                              void **arguments)
{
  cu_launch_attribute early = {.what = CU_LAUNCH_EARLY, .value = 1};
  const cu_launch_config config = {.grid = {(unsigned)run->blocks, or_one(run->blocks_y), or_one(run->blocks_z)},
                                   .block = {run->threads, or_one(run->threads_y), or_one(run->threads_z)},
                                   .shared_bytes = run->shared_bytes,
                                   .stream = run->stream,
                                   .attributes = &early,
                                   .n_attributes = 1};
  return qn_cuda_call(scope, cuLaunchKernelEx, &config, function->handle, arguments, NULL);
}

qn_status qn_cuda_launch(qn_device device, const qn_device_function *function, const qn_launch *run)
{
  qn_cuda_scope scope;
  void *arguments[] = {(void *)(uintptr_t)run->argument};
  size_t limit;
  qn_try(check_geometry(device, function, run));
  qn_try(qn_cuda_argument_limit(device, &limit));
  qn_require(run->argument_bytes <= limit, "cuda:%d: %s: an argument of %zu bytes; at most %zu are taken", device.index,
             function->name, run->argument_bytes, limit);
  if (!run->blocks) return QN_OK;
  qn_try(qn_cuda_enter(device, &scope));
  qn_status status = check_shared(scope.device, function, run->shared_bytes);
  if (!status) status = allow_shared(&scope, function, run->shared_bytes);
  if (!status) {
    qn_launch_note(function->name, run->stream);
    if (run->early && scope.device->arch >= EARLY_ARCH && scope.driver->version >= CU_EARLY_IN_GRAPHS)
      status = launch_early(&scope, function, run, arguments);
    else
      status = qn_cuda_call(&scope, cuLaunchKernel, function->handle, (unsigned)run->blocks, or_one(run->blocks_y),
                            or_one(run->blocks_z), run->threads, or_one(run->threads_y), or_one(run->threads_z),
                            run->shared_bytes, run->stream, run->argument ? arguments : NULL, NULL);
  }
  return qn_cuda_leave(&scope, status);
}
