/* SPDX-License-Identifier: Apache-2.0 */
/* judge_images.c - see judge_images.h. A kernel's object may call arithmetic, and copy and clear memory; anything else
 * of the C library would be a way to a clock, a file, a thread or the process around it. */
#include "workbench/judge_images.h"
#include "core/core.h"
#include "core/file.h"
#include "device/emulator/elf_file.h"
#include "jit/cache.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct image_head {
  uint64_t key_bytes, bytes;
} image_head;

/* ---- the processes that hold the kernel ---- */
static qn_status find(const char *key, size_t key_bytes, void **data, size_t *bytes)
{
  image_head head;
  char *stored = NULL;
  qn_try(qn_try_allocate(&stored, key_bytes, "a kernel's key"));
  for (off_t at = 0; pread(QN_IMAGES_FILE, &head, sizeof head, at) == (ssize_t)sizeof head;
       at += (off_t)(sizeof head + head.key_bytes + head.bytes)) {
    if (head.key_bytes != key_bytes ||
        pread(QN_IMAGES_FILE, stored, key_bytes, at + (off_t)sizeof head) != (ssize_t)key_bytes ||
        memcmp(stored, key, key_bytes) != 0)
      continue;
    qn_release(stored);
    qn_try(qn_try_allocate(data, head.bytes, "a compiled kernel"));
    *bytes = head.bytes;
    if (pread(QN_IMAGES_FILE, *data, head.bytes, at + (off_t)(sizeof head + key_bytes)) == (ssize_t)head.bytes)
      return QN_OK;
    qn_release(*data);
    return qn_fail(QN_IO_ERROR, "a compiled kernel could not be read");
  }
  qn_release(stored);
  return qn_fail(QN_COMPILE_ERROR, "its kernel is not among those that were compiled for it");
}

static qn_status find_nothing(const char *key, size_t key_bytes, void **data, size_t *bytes)
{
  (void)key, (void)key_bytes, (void)data, (void)bytes;
  return QN_OK;
}

static void keep(const char *key, size_t key_bytes, const void *data, size_t bytes)
{
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* several are compiled at a time */
  const image_head head = {key_bytes, bytes};
  pthread_mutex_lock(&one);
  (void)lseek(QN_IMAGES_FILE, 0, SEEK_END);
  (void)(qn_write_all(QN_IMAGES_FILE, &head, sizeof head) && qn_write_all(QN_IMAGES_FILE, key, key_bytes) &&
         qn_write_all(QN_IMAGES_FILE, data, bytes)); /* what is missing is found missing */
  pthread_mutex_unlock(&one);
}

static void keep_nothing(const char *key, size_t key_bytes, const void *data, size_t bytes)
{
  (void)key, (void)key_bytes, (void)data, (void)bytes;
}

void qn_images_write(void)
{
  static const qn_cache_store store = {find_nothing, keep};
  qn_cache_replace(&store);
}

void qn_images_read(void)
{
  static const qn_cache_store store = {find, keep_nothing};
  qn_cache_replace(&store);
}

/* ---- the judge ---- */
static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static bool in_list(const char *const *list, size_t n, const char *name)
{
  return bsearch(&name, list, n, sizeof *list, by_name) != NULL;
}

/* Functions of arithmetic, with or without the f of float; what every shared object may refer to; what a kernel's own
 * text makes of a thread's stack and of loops over bytes. Sorted. */
static bool may_call(const char *name)
{
  static const char *const sums[] = {
      "acos",      "acosh", "asin",      "asinh",  "atan",   "atan2", "atanh",     "cbrt",   "ceil",  "copysign",
      "cos",       "cosh",  "erf",       "erfc",   "exp",    "exp10", "exp2",      "expm1",  "fabs",  "fdim",
      "floor",     "fma",   "fmax",      "fmin",   "fmod",   "frexp", "hypot",     "ilogb",  "ldexp", "lgamma",
      "llrint",    "log",   "log10",     "log1p",  "log2",   "logb",  "lrint",     "lround", "modf",  "nearbyint",
      "nextafter", "pow",   "remainder", "remquo", "rint",   "round", "roundeven", "scalbn", "sin",   "sincos",
      "sinh",      "sqrt",  "tan",       "tanh",   "tgamma", "trunc",
  };
  static const char *const others[] = {"",
                                       "_GLOBAL_OFFSET_TABLE_",
                                       "_ITM_deregisterTMCloneTable",
                                       "_ITM_registerTMCloneTable",
                                       "__cxa_finalize",
                                       "__gmon_start__",
                                       "__stack_chk_fail",
                                       "__tls_get_addr",
                                       "memcmp",
                                       "memcpy",
                                       "memmove",
                                       "memset"};
  char plain[32];
  snprintf(plain, sizeof plain, "%s", name);
  const size_t length = strlen(plain);
  if (in_list(others, sizeof others / sizeof *others, name) || in_list(sums, sizeof sums / sizeof *sums, name))
    return true;
  if (length > 1 && length < sizeof plain - 1 && plain[length - 1] == 'f') plain[length - 1] = 0;
  return in_list(sums, sizeof sums / sizeof *sums, plain);
}

/* Names that a kernel's own text gives: mangled ones, and quern's. */
static bool may_define(const char *name)
{
  return !strncmp(name, "_Z", 2) || !strncmp(name, "quern_", 6) || may_call(name) || !strcmp(name, "_init") ||
         !strcmp(name, "_fini") || !strcmp(name, "_edata") || !strcmp(name, "_end") || !strcmp(name, "__bss_start");
}

static bool object_allowed(elf_file f, char *why, size_t bytes)
{
  const Elf64_Ehdr *head = elf_part(f, 0, sizeof *head);
  const Elf64_Shdr *section = head ? elf_part(f, head->e_shoff, (uint64_t)head->e_shnum * sizeof *section) : NULL;
  bool found = false;
  for (int k = 0; section && head->e_ident[EI_CLASS] == ELFCLASS64 && k < head->e_shnum; k++) {
    if (section[k].sh_type != SHT_DYNSYM || section[k].sh_link >= head->e_shnum) continue;
    const Elf64_Shdr *names = &section[section[k].sh_link];
    const Elf64_Sym *symbol = elf_part(f, section[k].sh_offset, section[k].sh_size);
    const char *text = elf_part(f, names->sh_offset, names->sh_size);
    if (!symbol || !text || !names->sh_size || text[names->sh_size - 1]) break;
    found = true;
    for (size_t s = 0; s < section[k].sh_size / sizeof *symbol; s++) {
      const char *name = symbol[s].st_name < names->sh_size ? text + symbol[s].st_name : "?";
      const bool calls = symbol[s].st_shndx == SHN_UNDEF;
      if (calls ? may_call(name) : may_define(name)) continue;
      snprintf(why, bytes, "it %s %.64s, which is no part of a kernel", calls ? "calls" : "defines", name);
      return false;
    }
  }
  if (!found) snprintf(why, bytes, "its compiled kernel cannot be read");
  return found;
}

bool qn_images_allowed(int file, size_t *n, char *why, size_t bytes)
{
  struct stat is;
  bool allowed = true;
  *n = 0;
  if (fstat(file, &is) || is.st_size == 0) return true;
  const char *all = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (all == MAP_FAILED) {
    snprintf(why, bytes, "its compiled kernels cannot be read");
    return false;
  }
  const elf_file whole = {all, (size_t)is.st_size};
  for (uint64_t at = 0; allowed && at < whole.bytes; (*n)++) {
    image_head head;
    const void *here = elf_part(whole, at, sizeof head);
    if (here) memcpy(&head, here, sizeof head);
    const char *image = here && head.key_bytes < whole.bytes && head.bytes <= whole.bytes
                            ? elf_part(whole, at + sizeof head + head.key_bytes, head.bytes)
                            : NULL;
    if (!image || head.bytes < 4) {
      snprintf(why, bytes, "its compiled kernels cannot be read");
      allowed = false;
      break;
    }
    allowed = object_allowed((elf_file){image, head.bytes}, why, bytes);
    at += sizeof head + head.key_bytes + head.bytes;
  }
  munmap((void *)(uintptr_t)all, whole.bytes);
  return allowed;
}
