/* SPDX-License-Identifier: Apache-2.0 */
/* module.c - loads a shared object from memory and finds kernels in it. What is loaded stays: functions of it may be
 * anywhere. */
#include "device/emulator/child.h"
#include "device/emulator/elf_file.h"
#include "device/emulator/emulator.h"
#include "device/emulator/sanitizer_state.h"
#include "core/file.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct qn_module {
  qn_module *next;
  void *handle;
  _Atomic(qn_device_function *) functions;
  qn_emulator_object *object; /* of sanitized kernels */
  int shared_bytes;
};

static _Atomic(qn_module *) loaded; /* all of them: nobody gives one back */

/* The loader takes a path that it has seen for the library that it has loaded, so every load needs another spelling of
 * /proc/self/fd/N: the bits of a count as "/" and "/./". */
static void *load_from_memory(const void *image, size_t bytes, char *why, size_t why_bytes)
{
  static atomic_uint count;
  char path[160] = "/proc/self/fd";
  int file = qn_memory_file("quern-kernel", image, bytes);
  if (file < 0) {
    snprintf(why, why_bytes, "no file in memory: %s", strerror(errno));
    return NULL;
  }
  size_t length = strlen(path);
  for (unsigned bits = atomic_fetch_add(&count, 1) + 1; bits; bits >>= 1)
    length += (size_t)snprintf(path + length, sizeof path - length, "%s", bits & 1 ? "/." : "/");
  snprintf(path + length, sizeof path - length, "/%d", file);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) snprintf(why, why_bytes, "%s", dlerror());
  close(file);
  return handle;
}

/* A private temporary directory (mode 0700) under $TMPDIR or /tmp; and away with it and the file in it. */
static qn_status scratch_make(char *path, size_t bytes)
{
  const char *parent = secure_getenv("TMPDIR");
  if (!parent || parent[0] != '/') parent = "/tmp";
  int length = snprintf(path, bytes, "%s/quern-XXXXXX", parent);
  qn_require(length > 0 && (size_t)length < bytes, "TMPDIR has %zu characters, too many", strlen(parent));
  if (!mkdtemp(path))
    return qn_fail(QN_IO_ERROR, "no temporary directory could be made in %s: %s", parent, strerror(errno));
  return QN_OK;
}

static void scratch_remove(const char *path)
{
  DIR *directory = opendir(path);
  if (!directory) return;
  for (struct dirent *entry; (entry = readdir(directory));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) unlinkat(dirfd(directory), entry->d_name, 0);
  closedir(directory);
  rmdir(path);
}

/* Where code in anonymous files is forbidden. */
static void *load_from_file(const void *image, size_t bytes, char *why, size_t why_bytes)
{
  char directory[QN_HOST_PATH_BYTES], path[QN_HOST_PATH_BYTES + 16];
  void *handle = NULL;
  if (scratch_make(directory, sizeof directory) != QN_OK) {
    snprintf(why, why_bytes, "%s", qn_last_error());
    return NULL;
  }
  snprintf(path, sizeof path, "%s/kernel.so", directory);
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0700);
  bool written = file >= 0 && qn_write_all(file, image, bytes);
  if (!written) snprintf(why, why_bytes, "a temporary file: %s", strerror(errno));
  if (file >= 0) close(file);
  if (written && !(handle = dlopen(path, RTLD_NOW | RTLD_LOCAL))) snprintf(why, why_bytes, "%s", dlerror());
  scratch_remove(directory);
  return handle;
}

/* Threadgroup arrays are thread-local variables. */
static int thread_local_bytes(const void *image, size_t bytes)
{
  const elf_file f = {image, bytes};
  const Elf64_Ehdr *head = elf_part(f, 0, sizeof *head);
  if (!head || head->e_ident[EI_CLASS] != ELFCLASS64) return 0;
  const Elf64_Phdr *program = elf_part(f, head->e_phoff, (uint64_t)head->e_phnum * sizeof *program);
  for (int k = 0; program && k < head->e_phnum; k++)
    if (program[k].p_type == PT_TLS) return program[k].p_memsz < INT_MAX ? (int)program[k].p_memsz : INT_MAX;
  return 0;
}

qn_status qn_emulator_module_load(qn_device device, const void *image, size_t bytes, qn_module **module)
{
  (void)device;
  char first[256], second[256];
  if (bytes < 4 || memcmp(image, "\177ELF", 4))
    return qn_fail(QN_BAD_FILE, "emulator: what should be a compiled kernel (%zu bytes) is no shared object", bytes);
  qn_module *made = qn_allocate_zero(1, sizeof *made);
  if (!made) return qn_fail(QN_NO_MEMORY, "emulator: no memory for a module");
  made->handle = load_from_memory(image, bytes, first, sizeof first);
  if (!made->handle) made->handle = load_from_file(image, bytes, second, sizeof second);
  if (!made->handle) {
    qn_release(made);
    return qn_fail(QN_BAD_FILE,
                   "emulator: a compiled kernel cannot be loaded, neither from memory (%s) nor from a file (%s); where "
                   "temporary files may not be executed (noexec), set TMPDIR to a place where they may",
                   first, second);
  }
  const qn_group_words **words = dlsym(made->handle, "quern_group"); /* where a kernel's threads need a group */
  if (words) *words = &qn_group_table;
  void (**misaligned)(const void *, qn_u32) = dlsym(made->handle, "quern_misaligned");
  if (misaligned) *misaligned = qn_emulator_misaligned;
  const qn_status status = qn_emulator_object_make(&made->object, made->handle, image, bytes);
  if (status != QN_OK) {
    dlclose(made->handle);
    qn_release(made);
    return status;
  }
  made->shared_bytes = thread_local_bytes(image, bytes);
  made->next = atomic_load(&loaded);
  while (!atomic_compare_exchange_weak(&loaded, &made->next, made)) continue;
  *module = made;
  return QN_OK;
}

/* Functions are added at the list's head and stay, so that looking needs no lock; two threads that add the same one at
 * once leave a twin, which does no harm. */
qn_status qn_emulator_module_function(qn_device device, qn_module *module, const char *name,
                                      qn_device_function **function)
{
  (void)device;
  char size_name[256], thread_name[256];
  size_t (*argument_bytes)(void);
  for (qn_device_function *f = atomic_load(&module->functions); f; f = f->next)
    if (!strcmp(f->name, name)) {
      *function = f;
      return QN_OK;
    }
  int length = snprintf(size_name, sizeof size_name, "%s_argument_bytes", name);
  qn_require(length > 0 && (size_t)length < sizeof size_name, "emulator: a kernel's name of %zu characters",
             strlen(name));
  snprintf(thread_name, sizeof thread_name, "%s_thread", name);
  void *run = dlsym(module->handle, name), *size = dlsym(module->handle, size_name);
  void *thread = dlsym(module->handle, thread_name); /* only where its threads need a group */
  qn_require((run || thread) && size, "emulator: there is no kernel \"%s\" in this module", name);
  qn_device_function *made = qn_allocate_zero(1, sizeof *made + strlen(name) + 1);
  if (!made) return qn_fail(QN_NO_MEMORY, "emulator: no memory for kernel \"%s\"", name);
  memcpy(&made->run, &run, sizeof run);
  memcpy(&made->thread, &thread, sizeof thread);
  memcpy(&argument_bytes, &size, sizeof size);
  made->argument_bytes = argument_bytes();
  made->object = module->object;
  made->shared_bytes = module->shared_bytes;
  strcpy(made->name, name);
  made->next = atomic_load(&module->functions);
  while (!atomic_compare_exchange_weak(&module->functions, &made->next, made)) continue;
  *function = made;
  return QN_OK;
}
