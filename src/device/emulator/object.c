/* SPDX-License-Identifier: Apache-2.0 */
/* object.c - what a sanitized kernel's shared object says of itself: where it was loaded, its segments, and by its
 * symbol table the names, places and sizes of its threadgroup arrays, which are thread-local variables. It reads ELF
 * files of 64 bits that this process has just compiled or verified; every offset is held against the file all the same.
 */
#include "device/emulator/elf_file.h"
#include "device/emulator/sanitizer_state.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The name of a variable inside a function is the last of its mangled name, "..E4tile" or "..E4tile_0". */
static void plain_name(const char *symbol, char *name, size_t bytes)
{
  const size_t length = strlen(symbol);
  const char *best = symbol;
  size_t best_length = length;
  for (const char *p = symbol; symbol[0] == '_' && *p; p++) {
    if (*p < '1' || *p > '9' || (p > symbol && p[-1] >= '0' && p[-1] <= '9')) continue;
    char *end;
    const unsigned long n = strtoul(p, &end, 10);
    const size_t rest = length - (size_t)(end - symbol);
    if (n <= rest && (n == rest || end[n] == '_' || end[n] == 'E')) {
      best = end;
      best_length = n;
    }
  }
  if (best_length >= bytes) best_length = bytes - 1;
  memcpy(name, best, best_length);
  name[best_length] = 0;
}

static qn_status read_symbols(qn_emulator_object *object, elf_file f, const Elf64_Shdr *table, const Elf64_Shdr *names)
{
  const size_t n = table->sh_size / sizeof(Elf64_Sym);
  const Elf64_Sym *symbol = elf_part(f, table->sh_offset, table->sh_size);
  const char *text = elf_part(f, names->sh_offset, names->sh_size);
  size_t n_found = 0, anchor = SIZE_MAX;
  if (!symbol || !text || !names->sh_size || text[names->sh_size - 1]) return QN_OK;
  for (size_t k = 0; k < n; k++) n_found += ELF64_ST_TYPE(symbol[k].st_info) == STT_TLS;
  if (n_found > QN_SANITIZER_OWN_ARRAYS)
    return qn_fail(QN_UNSUPPORTED, "a sanitized kernel may have %d threadgroup arrays, and this one has %zu",
                   QN_SANITIZER_OWN_ARRAYS, n_found);
  qn_try(qn_try_allocate(&object->array, n_found * sizeof *object->array, "a kernel's threadgroup arrays"));
  for (size_t k = 0; k < n; k++) {
    if (ELF64_ST_TYPE(symbol[k].st_info) != STT_TLS || symbol[k].st_name >= names->sh_size) continue;
    qn_emulator_array *a = &object->array[object->n_arrays];
    plain_name(text + symbol[k].st_name, a->name, sizeof a->name);
    a->offset = symbol[k].st_value;
    a->bytes = symbol[k].st_size;
    a->inner = !strncmp(text + symbol[k].st_name, "_ZGV", 4);
    if (strcmp(a->name, "quern_sanitizer_anchor"))
      object->n_arrays++;
    else
      anchor = a->offset;
  }
  if (anchor == SIZE_MAX) object->n_arrays = 0;
  for (size_t k = 0; k < object->n_arrays; k++) object->array[k].offset -= anchor; /* modulo 2^64: it may be before */
  return QN_OK;
}

static qn_status read_elf(qn_emulator_object *object)
{
  const elf_file f = {object->image, object->image_bytes};
  const Elf64_Ehdr *head = elf_part(f, 0, sizeof *head);
  if (!head || head->e_ident[EI_CLASS] != ELFCLASS64) return QN_OK;
  const Elf64_Phdr *program = elf_part(f, head->e_phoff, (uint64_t)head->e_phnum * sizeof *program);
  const Elf64_Shdr *section = elf_part(f, head->e_shoff, (uint64_t)head->e_shnum * sizeof *section);
  for (int k = 0; program && k < head->e_phnum; k++)
    if (program[k].p_type == PT_LOAD && object->n_segments < sizeof object->segment / sizeof *object->segment)
      object->segment[object->n_segments++] = (qn_emulator_segment){
          object->base + program[k].p_vaddr, object->base + program[k].p_vaddr + program[k].p_memsz,
          (program[k].p_flags & PF_W) != 0};
  for (int k = 0; section && k < head->e_shnum; k++)
    if (section[k].sh_type == SHT_SYMTAB && section[k].sh_link < head->e_shnum)
      return read_symbols(object, f, &section[k], &section[section[k].sh_link]);
  return QN_OK;
}

qn_status qn_emulator_object_make(qn_emulator_object **object, void *handle, const void *image, size_t bytes)
{
  Dl_info info;
  void *anchor = dlsym(handle, "quern_sanitized");
  *object = NULL;
  if (!anchor || !dladdr(anchor, &info)) return QN_OK;
  qn_emulator_object *made = qn_allocate_zero(1, sizeof *made + bytes);
  if (!made) return qn_fail(QN_NO_MEMORY, "emulator: no memory for a sanitized kernel's object (%zu bytes)", bytes);
  made->image = memcpy(made + 1, image, bytes);
  made->image_bytes = bytes;
  made->base = (uintptr_t)info.dli_fbase;
  memcpy(&made->anchor, &anchor, sizeof anchor);
  const qn_status status = read_elf(made);
  if (status != QN_OK)
    qn_release(made);
  else
    *object = made;
  return status;
}
