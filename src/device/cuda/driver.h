/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - the part of the CUDA driver's interface that quern uses, declared by itself so that no CUDA header is
 * needed, and how the driver and its devices are opened. What is done with them is in cuda.c. */
#ifndef QN_DEVICE_CUDA_DRIVER_H
#define QN_DEVICE_CUDA_DRIVER_H
#include "core/core.h"
#include "device/backend.h"

/* The oldest driver that works is CUDA 12.0's (525): it is the first with cuLibraryLoadData. cuGetProcAddress is asked
 * for this version and no other, because the number picks each function's signature, and these are 12.0's. */
enum { QN_CUDA_DRIVER_LEAST = 12000 };

typedef int cu_result;
typedef int cu_device;
typedef unsigned long long cu_address;
typedef struct cu_context_s *cu_context;
typedef struct cu_stream_s *cu_stream;
typedef struct cu_event_s *cu_event;
typedef struct cu_library_s *cu_library;
typedef struct cu_kernel_s *cu_kernel;
typedef struct cu_function_s *cu_function;

/* CUlaunchConfig, and a CUlaunchAttribute whose value is an int. */
typedef struct cu_launch_attribute {
  int what, none, value, rest[15];
} cu_launch_attribute;
typedef struct cu_launch_config {
  unsigned grid[3], block[3], shared_bytes;
  cu_stream stream;
  cu_launch_attribute *attributes;
  unsigned n_attributes;
} cu_launch_config;

/* The numbers of the interface. */
enum {
  CU_SUCCESS = 0,
  CU_OUT_OF_MEMORY = 2,
  CU_STUB_LIBRARY = 34,
  CU_NO_DEVICE = 100,
  CU_NOT_READY = 600,
  CU_DEVICE_MULTIPROCESSORS = 16,
  CU_DEVICE_L2_BYTES = 38,
  CU_DEVICE_THREADS_AT_ONCE = 39, /* of a multiprocessor; so the next two */
  CU_DEVICE_SHARED_AT_ONCE = 81,
  CU_DEVICE_REGISTERS_AT_ONCE = 82,
  CU_DEVICE_ARCH_MAJOR = 75,
  CU_DEVICE_ARCH_MINOR = 76,
  CU_DEVICE_SHARED_BYTES = 97, /* of a block, where a kernel asks for more than 48 KiB */
  CU_FUNCTION_MAX_THREADS = 0,
  CU_FUNCTION_SHARED_BYTES = 1, /* static */
  CU_FUNCTION_LOCAL_BYTES = 3,
  CU_FUNCTION_REGISTERS = 4,
  CU_FUNCTION_LARGE_CLUSTERS = 14,      /* of more than 8 blocks are allowed */
  CU_FUNCTION_DYNAMIC_SHARED_BYTES = 8, /* that a launch may ask for */
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DEFAULT = 0,       /* timed; waits spin */
  CU_LAUNCH_EARLY = 6,        /* an attribute: programmatic stream serialization */
  CU_EARLY_IN_GRAPHS = 12030, /* the first version that captures such a launch */
  CU_PROC_LEGACY_STREAM = 1,
  CU_TENSOR_FLOAT32 = 7,
  CU_TENSOR_BFLOAT16 = 9,
  CU_TENSOR_TFLOAT32 = 11, /* f32 that is rounded to tf32 on its way */
  CU_TENSOR_SWIZZLE_128 = 3,
  CU_TENSOR_PROMOTE_256 = 3 /* to L2 in pieces of so many bytes */
};

/* Every function: without one of them the driver is not used, and the sentence names it. */
#define QN_CUDA_DRIVER_MAP(X)                                                                                          \
  X(cuGetErrorName, (cu_result, const char **))                                                                        \
  X(cuGetErrorString, (cu_result, const char **))                                                                      \
  X(cuInit, (unsigned flags))                                                                                          \
  X(cuDeviceGetCount, (int *))                                                                                         \
  X(cuDeviceGet, (cu_device *, int index))                                                                             \
  X(cuDeviceGetName, (char *, int bytes, cu_device))                                                                   \
  X(cuDeviceGetAttribute, (int *, int attribute, cu_device))                                                           \
  X(cuDevicePrimaryCtxRetain, (cu_context *, cu_device))                                                               \
  X(cuCtxGetCurrent, (cu_context *))                                                                                   \
  X(cuCtxPushCurrent, (cu_context))                                                                                    \
  X(cuCtxPopCurrent, (cu_context *))                                                                                   \
  X(cuMemGetInfo, (size_t * free, size_t * total))                                                                     \
  X(cuMemAlloc, (cu_address *, size_t))                                                                                \
  X(cuMemFree, (cu_address))                                                                                           \
  X(cuMemcpyHtoDAsync, (cu_address, const void *, size_t, cu_stream))                                                  \
  X(cuMemcpyDtoHAsync, (void *, cu_address, size_t, cu_stream))                                                        \
  X(cuMemcpyDtoDAsync, (cu_address, cu_address, size_t, cu_stream))                                                    \
  X(cuMemsetD8Async, (cu_address, unsigned char, size_t, cu_stream))                                                   \
  X(cuStreamCreate, (cu_stream *, unsigned flags))                                                                     \
  X(cuStreamDestroy, (cu_stream))                                                                                      \
  X(cuStreamSynchronize, (cu_stream))                                                                                  \
  X(cuStreamQuery, (cu_stream))                                                                                        \
  X(cuEventCreate, (cu_event *, unsigned flags))                                                                       \
  X(cuEventDestroy, (cu_event))                                                                                        \
  X(cuEventRecord, (cu_event, cu_stream))                                                                              \
  X(cuEventSynchronize, (cu_event))                                                                                    \
  X(cuEventElapsedTime, (float *ms, cu_event from, cu_event to))                                                       \
  X(cuLibraryLoadData, (cu_library *, const void *image, int *jit_options, void **jit_values, unsigned n_jit,          \
                        int *options, void **values, unsigned n))                                                      \
  X(cuLibraryUnload, (cu_library))                                                                                     \
  X(cuLibraryGetKernel, (cu_kernel *, cu_library, const char *name))                                                   \
  X(cuKernelGetFunction, (cu_function *, cu_kernel))                                                                   \
  X(cuFuncGetAttribute, (int *, int attribute, cu_function))                                                           \
  X(cuFuncSetAttribute, (cu_function, int attribute, int value))                                                       \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, cu_function, int threads, size_t shared_bytes))               \
  X(cuTensorMapEncodeTiled, (void *map, int type, unsigned rank, void *address, const unsigned long long *extents,     \
                             const unsigned long long *strides, const unsigned *box, const unsigned *steps,            \
                             int interleave, int swizzle, int promotion, int fill))                                    \
  X(cuLaunchKernel,                                                                                                    \
    (cu_function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,               \
     unsigned block_z, unsigned shared_bytes, cu_stream, void **arguments, void **extra))                              \
  X(cuLaunchKernelEx, (const cu_launch_config *, cu_function, void **arguments, void **extra))

typedef struct qn_cuda_driver {
#define X(name, signature) cu_result(*name) signature;
  QN_CUDA_DRIVER_MAP(X)
#undef X
  int version;    /* 13000 for 13.0 */
  int n_devices;  /* 0: the driver works and sees none */
  char path[256]; /* of the library */
} qn_cuda_driver;

/* A device whose primary context is retained, until the process ends. */
typedef struct qn_cuda_device {
  int index;
  cu_device handle;
  cu_context context;
  int arch;         /* 10 * major + minor */
  int shared_bytes; /* of a block, at most: static and dynamic */
} qn_cuda_device;

/* The driver, opened at the first call that succeeds; from then on every thread gets the same table and the option
 * "libcuda" is no longer read. A call that fails leaves nothing open and the next one tries again. No library:
 * QN_NO_LIBRARY. In a process forked after the driver was opened: QN_FORKED. */
qn_status qn_cuda_driver_open(const qn_cuda_driver **driver);
/* Version and path of the driver that is or would be opened, without opening it (so that a later fork is fine); 0:
 * none. */
int qn_cuda_driver_peek(char *path, size_t bytes);
/* The device, its primary context retained at the first call. */
qn_status qn_cuda_device_open(int index, const qn_cuda_device **device);

/* A result of `function` on a device (-1: none yet) as a status with a sentence: names, number and the driver's text.
 */
qn_status qn_cuda_status(const qn_cuda_driver *driver, int index, cu_result result, const char *function);

/* A call's work in the device's context. enter makes it current, leave puts back what was; leave hands on `status`. */
typedef struct qn_cuda_scope {
  const qn_cuda_driver *driver;
  const qn_cuda_device *device;
  bool pushed;
} qn_cuda_scope;
qn_status qn_cuda_enter(qn_device device, qn_cuda_scope *scope);
qn_status qn_cuda_leave(const qn_cuda_scope *scope, qn_status status);

/* `qn_cuda_call(&scope, cuMemFree, address)` is the status of that call. */
#define qn_cuda_call(scope, function, ...)                                                                             \
  qn_cuda_status((scope)->driver, (scope)->device->index, (scope)->driver->function(__VA_ARGS__), #function)

/* The lock of whatever is opened once: driver, devices, compiler. QN_FORKED where the parent held it during the fork.
 */
qn_status qn_cuda_lock(void);
void qn_cuda_unlock(void);

/* A symbol of a library into a function pointer of any type, without casting between object and function pointers. */
bool qn_cuda_symbol(void *library, const char *name, void *pointer_to_function);
/* Where a library that was opened as `name` was found. */
void qn_cuda_library_path(void *library, const char *name, char *path, size_t bytes);
#endif
