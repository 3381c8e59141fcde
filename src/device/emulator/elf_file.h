/* SPDX-License-Identifier: Apache-2.0 */
/* elf_file.h - the bytes of an ELF file in memory, of which only what lies inside them can be had. */
#ifndef QN_DEVICE_EMULATOR_ELF_FILE_H
#define QN_DEVICE_EMULATOR_ELF_FILE_H
#include <elf.h>
#include <stddef.h>
#include <stdint.h>

typedef struct elf_file {
  const char *at;
  size_t bytes;
} elf_file;

static inline const void *elf_part(elf_file f, uint64_t offset, uint64_t bytes)
{
  return offset <= f.bytes && bytes <= f.bytes - offset ? f.at + offset : NULL;
}
#endif
