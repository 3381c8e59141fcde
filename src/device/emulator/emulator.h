/* SPDX-License-Identifier: Apache-2.0 */
/* emulator.h - the parts of the emulator: its compiler, and what that made, loaded. */
#ifndef QN_DEVICE_EMULATOR_EMULATOR_H
#define QN_DEVICE_EMULATOR_EMULATOR_H
#include "base/group.h"
#include "device/backend.h"

enum {
  QN_HOST_PATH_BYTES = 4096 + 256,
  QN_HOST_SHARED_BYTES = 227 * 1024 /* a group's, at most: as the largest device that is known */
};

typedef struct qn_emulator_compiler {
  char path[QN_HOST_PATH_BYTES];
  const char *version; /* the first line of --version; static life */
  int number;          /* 1000 * major + 10 * minor; 0 if that line holds no number */
} qn_emulator_compiler;

/* The compiler in force; QN_NO_LIBRARY with what was tried. */
qn_status qn_emulator_compiler_find(qn_emulator_compiler *compiler);
qn_status qn_emulator_target(qn_device device, char *text, size_t bytes);
qn_status qn_emulator_compile(qn_device device, const qn_unit *unit, qn_image *image);

/* A kernel is its loop over blocks [first, last) of `blocks`, as QN_KERNEL in base/kernel.h exports it. */
struct qn_device_function {
  qn_device_function *next; /* of the same module */
  void (*run)(const void *argument, unsigned long long first, unsigned long long last, unsigned long long blocks,
              unsigned threads);
  qn_group_thread *thread; /* NAME_thread: its threads are fibers, and `run` may be NULL; NULL: `run` is a loop */
  size_t argument_bytes;
  int shared_bytes;                        /* static: the object's thread-local variables */
  const struct qn_emulator_object *object; /* of a sanitized kernel (sanitizer_state.h); else NULL */
  char name[];
};
qn_status qn_emulator_module_load(qn_device device, const void *image, size_t bytes, qn_module **module);
qn_status qn_emulator_module_function(qn_device device, qn_module *module, const char *name,
                                      qn_device_function **function);

/* emulator.c: a kernel's vector access at an address that is no multiple of its bytes; its launch fails when the task
 * ends.
 */
void qn_emulator_misaligned(const void *address, qn_u32 bytes);

/* group.c: blocks [first, last) of a kernel whose threads are fibers, on this thread. QN_KERNEL_ERROR: a deadlock (a
 * barrier that some threads have not reached and never will), or a stack that overflowed, with its sentence; then the
 * blocks behind it are not run. */
qn_status qn_group_run(const qn_device_function *function, const qn_launch *launch, uint64_t first, uint64_t last);
extern const qn_group_words qn_group_table;
#endif
