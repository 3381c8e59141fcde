/* SPDX-License-Identifier: Apache-2.0 */
/* link.c - a compiled object into a shared object that this process can load. Most kernels call nothing outside
 * themselves, so that the linker need not read the C library's tables (11 of some 20 ms), nor the compiler's driver
 * find it for us: it is run by itself. One that calls what is not known to be in every process goes the driver's way,
 * with libraries; so does everything where the linker is not found or fails. */
#include "device/emulator/link.h"
#include "device/emulator/child.h"
#include "device/emulator/elf_file.h"
#include "device/emulator/emulator.h"
#include <string.h>

enum { LINK_LIMIT_MS = 60000 };

#if defined(__x86_64__)
/* The C library is in every process that has us; of these functions each of its versions will do. */
static bool is_at_hand(const char *symbol)
{
  static const char *const known[] = {"",      "_GLOBAL_OFFSET_TABLE_", "__tls_get_addr", "memcpy", "memset", "memmove",
                                      "memcmp"};
  for (size_t k = 0; k < sizeof known / sizeof *known; k++)
    if (!strcmp(symbol, known[k])) return true;
  return false;
}

/* False for what is no object file that we can read, too. */
static bool needs_nothing(elf_file f)
{
  const Elf64_Ehdr *head = elf_part(f, 0, sizeof *head);
  if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64) return false;
  const Elf64_Shdr *section = elf_part(f, head->e_shoff, (uint64_t)head->e_shnum * sizeof *section);
  for (int k = 0; section && k < head->e_shnum; k++) {
    if (section[k].sh_type != SHT_SYMTAB || section[k].sh_link >= head->e_shnum) continue;
    const Elf64_Shdr *names = &section[section[k].sh_link];
    const Elf64_Sym *symbol = elf_part(f, section[k].sh_offset, section[k].sh_size);
    const char *text = elf_part(f, names->sh_offset, names->sh_size);
    if (!symbol || !text || !names->sh_size || text[names->sh_size - 1]) return false;
    for (size_t s = 0; s < section[k].sh_size / sizeof *symbol; s++)
      if (symbol[s].st_shndx == SHN_UNDEF &&
          (symbol[s].st_name >= names->sh_size || !is_at_hand(text + symbol[s].st_name)))
        return false;
    return true;
  }
  return false;
}

bool qn_link_alone(const int files[2])
{
  char linker[QN_HOST_PATH_BYTES];
  void *data = NULL;
  size_t bytes = 0;
  if (!qn_program_find("ld", linker, sizeof linker) ||
      qn_memory_file_read(files[0], "a compiled object", &data, &bytes) != QN_OK)
    return false;
  const bool alone = needs_nothing((elf_file){data, bytes});
  qn_release(data);
  if (!alone) return false;
  const char *const argv[] = {linker, "-shared",      "--eh-frame-hdr", "--hash-style=gnu",
                              "-o",   QN_LINK_OUTPUT, QN_LINK_OBJECT,   NULL};
  qn_text said = {0};
  qn_child child;
  const qn_status status = qn_child_run((char *const *)(uintptr_t)argv, "", 0, files, 2, LINK_LIMIT_MS, &said, &child);
  const bool ended = child.end == QN_CHILD_UNKNOWN || (child.end == QN_CHILD_EXITED && !child.code);
  const bool quiet = !said.length && !said.failed;
  qn_text_free(&said);
  return status == QN_OK && ended && quiet;
}
#else /* the driver may know of a processor's errors that the linker mends */
bool qn_link_alone(const int files[2])
{
  (void)files;
  return false;
}
#endif
