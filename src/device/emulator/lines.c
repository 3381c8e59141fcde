/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - from places in a sanitized kernel's object to lines of its body, by addr2line (binutils' or LLVM's), which
 * stands beside the compiler or on PATH. It is run once for a launch with findings, and never for one without. */
#include "device/emulator/child.h"
#include "device/emulator/sanitizer_state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_MS = 20000 };

static bool find_program(char *path, size_t bytes)
{
  static const char *const names[] = {"addr2line", "llvm-addr2line"};
  qn_emulator_compiler compiler;
  const char *slash = qn_emulator_compiler_find(&compiler) == QN_OK ? strrchr(compiler.path, '/') : NULL;
  for (size_t k = 0; slash && k < sizeof names / sizeof *names; k++)
    if ((size_t)snprintf(path, bytes, "%.*s/%s", (int)(slash - compiler.path), compiler.path, names[k]) < bytes &&
        !access(path, X_OK))
      return true;
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (qn_program_find(names[k], path, bytes)) return true;
  return false;
}

static bool ask(const qn_emulator_object *object, const qn_text *offsets, qn_text *said)
{
  char program[QN_HOST_PATH_BYTES];
  char *argv[] = {program, (char[]){"-a"}, (char[]){"-i"}, (char[]){"-e"}, (char[]){QN_CHILD_PATH "3"}, NULL};
  qn_child child = {0};
  if (!find_program(program, sizeof program)) return false;
  const int file = qn_memory_file("quern-object", object->image, object->image_bytes);
  if (file < 0) return false;
  const bool done = qn_child_run(argv, offsets->at, offsets->length, &file, 1, LIMIT_MS, said, &child) == QN_OK &&
                    (child.end == QN_CHILD_UNKNOWN || (child.end == QN_CHILD_EXITED && !child.code)) && said->at &&
                    !said->failed;
  close(file);
  return done;
}

/* "FOLDER/FILE:12 (discriminator 1)" is line 12 of FILE; 0: another file's. */
static int line_of(const char *text, size_t length, const char *file)
{
  const size_t n = strlen(file);
  for (size_t k = 0; k + n < length; k++)
    if ((k == 0 || text[k - 1] == '/') && !strncmp(text + k, file, n) && text[k + n] == ':')
      return atoi(text + k + n + 1);
  return 0;
}

/* The symbolizer's output for one address: the address, then its frames, innermost first, up to the next address. */
static const char *read_answer(const char *at, const char *file, int *line)
{
  *line = 0;
  at += strcspn(at, "\n");
  for (at += *at == '\n'; *at && strncmp(at, "0x", 2); at += *at == '\n') {
    const size_t length = strcspn(at, "\n");
    if (!*line) *line = line_of(at, length, file);
    at += length;
  }
  return at;
}

bool qn_lines_find(const qn_emulator_object *object, const char *file, qn_line_query *query, size_t n)
{
  qn_text offsets = {0}, said = {0};
  for (size_t k = 0; k < n; k++)
    for (const uint32_t *o = query[k].offset; *o; o++) qn_text_add(&offsets, "0x%x\n", *o - 1); /* the call's */
  const bool done = offsets.length && !offsets.failed && ask(object, &offsets, &said);
  const char *at = done ? said.at : "";
  for (size_t k = 0; k < n && done; k++)
    for (const uint32_t *o = query[k].offset; *o; o++) {
      int line;
      at = read_answer(at, file, &line);
      if (!query[k].line) query[k].line = line;
    }
  qn_text_free(&offsets);
  qn_text_free(&said);
  return done;
}
