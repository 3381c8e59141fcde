/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - a kind of device is one table. Its first part has the types of the public calls in quern/device.h, so the
 * signatures cannot drift; the public calls check their arguments once and hand on. The second part is for kernels. */
#ifndef QN_DEVICE_BACKEND_H
#define QN_DEVICE_BACKEND_H
#include "quern/arch.h"
#include "quern/device.h"
#include <stdbool.h>

/* A compiled image: a CUDA binary, or a shared object for the emulator. Owned by whoever got it; qn_image_free.
 */
typedef struct qn_image {
  void *data;
  size_t bytes;
  char *log; /* the compiler's, with registers and spills for CUDA; NULL if it said nothing */
} qn_image;
void qn_image_free(qn_image *image);

/* A source to compile: an embedded one, or the text given here. Its includes are embedded, found by the names that
 * sources include each other under ("base/kernel.h"). */
typedef struct qn_unit {
  const char *source;         /* as embedded, below src/; with a text of its own: the name that messages give it */
  const char *const *defines; /* "NAME=VALUE" or "NAME"; NULL-terminated; NULL: none */
  const char *text;           /* NULL: the embedded source of that name */
  const char *const *flags;   /* besides the backend's own, behind them; NULL-terminated; NULL: none */
  bool straight;              /* emulator: short and without loops; a compiler may do without what only those gain by */
} qn_unit;

typedef struct qn_module qn_module;                   /* a loaded image; belongs to the backend */
typedef struct qn_device_function qn_device_function; /* a kernel of it, ready to launch; lives as long as its module */

/* Each backend's event begins with this, so that the public calls can refuse another device's. */
struct qn_event {
  qn_device device;
};

/* How a launch on the emulator is sanitized: a time limit, checks. */
typedef struct qn_sanitizer qn_sanitizer;

typedef struct qn_launch {
  uint64_t blocks; /* emulator: in all; CUDA: along x */
  uint32_t threads;
  uint32_t blocks_y, blocks_z, threads_y, threads_z; /* CUDA only; 0 is 1 */
  uint32_t shared_bytes;                             /* dynamic, a block's */
  bool early; /* CUDA: begins before the kernel before it ends, for which it waits by qn_await_kernel() */
  void *stream;
  qn_pool *pool;        /* emulator only */
  const void *argument; /* the kernel's one parameter, a struct by value */
  size_t argument_bytes;
  qn_sanitizer *sanitizer; /* emulator only; NULL: the launch is not sanitized */
} qn_launch;

/* Registers and memory of a compiled kernel; see qn_kernel_info. */
typedef struct qn_function_facts {
  int registers, shared_bytes, local_bytes, most_threads, fibers;
  size_t argument_bytes;       /* emulator; 0 on CUDA */
  uint32_t best_threads;       /* the group with most threads at once on a multiprocessor; CPU: 256 */
  uint32_t shared_limit_bytes; /* static and dynamic, a block's */
} qn_function_facts;

typedef struct qn_backend {
  qn_device_kind kind;
  qn_status (*count)(int *count);
  __typeof__(qn_device_query) *query;
  qn_status (*arch)(qn_device device, qn_arch *arch); /* numbers alone; CUDA only, see arch.c */
  __typeof__(qn_memory_allocate) *memory_allocate;
  __typeof__(qn_memory_release) *memory_release;
  __typeof__(qn_memory_write) *memory_write;
  __typeof__(qn_memory_read) *memory_read;
  __typeof__(qn_memory_copy) *memory_copy;
  __typeof__(qn_memory_fill) *memory_fill;
  __typeof__(qn_stream_create) *stream_create;
  __typeof__(qn_stream_destroy) *stream_destroy;
  __typeof__(qn_stream_synchronize) *stream_synchronize;
  __typeof__(qn_event_create) *event_create;
  __typeof__(qn_event_destroy) *event_destroy;
  __typeof__(qn_event_record) *event_record;
  __typeof__(qn_event_elapsed) *event_elapsed;
  /* --- kernels; NULL where the kind runs none (QN_CPU) --- */
  /* Everything besides sources and defines that a compiled image depends on, as text: compiler, version, arch, flags.
   */
  qn_status (*target)(qn_device device, char *text, size_t bytes);
  qn_status (*compile)(qn_device device, const qn_unit *unit, qn_image *image);
  qn_status (*module_load)(qn_device device, const void *image, size_t bytes, qn_module **module);
  void (*module_unload)(qn_device device, qn_module *module); /* with its functions; NULL is fine */
  qn_status (*module_function)(qn_device device, qn_module *module, const char *name, qn_device_function **function);
  qn_status (*launch)(qn_device device, const qn_device_function *function, const qn_launch *launch);
  qn_status (*function_facts)(qn_device device, const qn_device_function *function, qn_function_facts *facts);
  /* Allows a kernel to have clusters of more than 8 blocks. It comes before every other query of the kernel and before
   * its launches. CUDA only. */
  qn_status (*allow_large_clusters)(qn_device device, const qn_device_function *function);
  /* How many groups of so many threads and so much dynamic shared memory a multiprocessor holds at once; 0 on the host.
   */
  qn_status (*groups_at_once)(qn_device device, const qn_device_function *function, uint32_t threads,
                              uint32_t shared_bytes, int *groups);
  /* Waits until the stream has done all that was given to it, or limit_ns have passed; *done says which. */
  qn_status (*stream_await)(qn_device device, void *stream, int64_t limit_ns, bool *done);
  /* Most bytes of `argument` that the device, driver and compiler take: 4096 or 32764. */
  qn_status (*argument_limit)(qn_device device, size_t *bytes);
} qn_backend;

extern const qn_backend qn_backend_cpu, qn_backend_cuda, qn_backend_emulator;
qn_status qn_backend_of(qn_device device, const qn_backend **backend); /* kind checked */

/* Every backend's launch notes its own before it begins: counts for qn_launch_count(), tells the observer. */
void qn_launch_note(const char *kernel, void *stream);
/* For a trace: called with each launch from now on; NULL: none. Set it while nothing is launched. */
typedef void qn_launch_observer(void *user, const char *kernel, void *stream);
void qn_launch_observe(qn_launch_observer *observer, void *user);

/* CUDA without a device: compile for a named architecture ("sm_90a"), for tests and `quern list`. */
qn_status qn_cuda_compile_for(const char *arch, const qn_unit *unit, qn_image *image);
/* NVRTC's version as 1000 * major + 10 * minor, and its path. */
qn_status qn_cuda_compiler(int *version, char *path, size_t bytes);
#endif
