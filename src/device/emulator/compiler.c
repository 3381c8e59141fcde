/* SPDX-License-Identifier: Apache-2.0 */
/* compiler.c - the system's C++ compiler as the emulator's: which one, its version, and a unit into a shared
 * object. Instruction-set flags come from a CPU tier and never from -march=native: they are part of the key of what is
 * kept, and homes are shared between machines. */
#include "cpu/tier.h"
#include "device/emulator/child.h"
#include "device/emulator/emulator.h"
#include "device/emulator/link.h"
#include "device/emulator/sanitizer.h"
#include "device/preprocess.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION_LIMIT_MS = 10000, COMPILE_LIMIT_MS = 60000, MOST_FLAGS = 8, MOST_OWN_FLAGS = 24, MOST_ARGUMENTS = 80 };

/* The text of --version, by path, read once. The list only grows, so that it needs no lock (nor care at fork). */
typedef struct known_compiler {
  struct known_compiler *next;
  const char *path, *version;
} known_compiler;
static _Atomic(known_compiler *) known;

/* Without -march a compiler takes the architecture's first generation: that is the tier "ref". The bits are the spec:
 * no contraction. */
static const char *const base_flags[] = {
    "-std=c++17", "-O2",           "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-exceptions",
    "-fno-rtti",  "-fsigned-char", /* as a GPU has it, on every processor */
    "-fPIC",      "-nostdinc",     /* a unit's text is whole: see opens_nothing_else */
    NULL};
static const char *const link_flags[] = {"-shared", "-Wl,--as-needed",
                                         "-nostartfiles",  /* these two: the linker need not look at the C++ library, */
                                         "-nodefaultlibs", /* which takes it longer than all else */
                                         NULL};
static const char *const libraries[] = {"-lm", "-lc", "-lgcc", NULL};
/* gcc, of a text with neither loops nor length: the few passes that make one vectorised loop of it (and what bodies
 * that call functions need for that), for a seventh less of its time than all of -O2. Without the second, narrower
 * loops behind the first: where that is over the launch, they never matter. */
static const char *const straight_flags[] = {"-O1",
                                             "-ftree-loop-vectorize",
                                             "-fvect-cost-model=dynamic",
                                             "--param=vect-epilogues-nomask=0",
                                             "-finline-functions",
                                             "-fstrict-aliasing",
                                             "-fno-tree-dominator-opts",
                                             "-fno-tree-dse",
                                             "-fno-ivopts",
                                             "-fno-guess-branch-probability",
                                             NULL};
static const char *const tier_flags[QN_TIER_COUNT][MOST_FLAGS] = {
    [QN_TIER_AVX2] = {"-mavx2", "-mfma", "-mf16c"},
    [QN_TIER_AVX512] = {"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c"},
};

static qn_status locate(char *path, size_t bytes)
{
  char option[QN_HOST_PATH_BYTES];
  qn_try(qn_option_text(QN_OPTION_CXX, option, sizeof option));
  const char *variable = secure_getenv("CXX");
  const char *from = option[0] ? "option cxx" : variable && *variable ? "$CXX" : "the default";
  const char *name = option[0] ? option : variable && *variable ? variable : "c++";
  if (qn_program_find(name, path, bytes)) return QN_OK;
  return qn_fail(
      QN_NO_LIBRARY,
      "emulator: the C++ compiler \"%.256s\" (%s) is not there or cannot be run: install g++, or give the path "
      "of a compiler, without arguments, as QUERN_CXX",
      name, from);
}

/* The number in "g++ (Debian 12.2.0-14) 12.2.0" or "Debian clang version 14.0.6". */
static int version_number(const char *line)
{
  const char *at = strstr(line, "version ");
  at = at ? at + strlen("version ") : strrchr(line, ' ');
  int major = 0, minor = 0;
  return at && sscanf(at, "%d.%d", &major, &minor) == 2 ? 1000 * major + 10 * minor : 0;
}

static qn_status ask_version(const char *path, const char **version)
{
  char *argv[] = {(char *)(uintptr_t)path, (char[]){"--version"}, NULL};
  qn_text said = {0};
  qn_child child;
  qn_status status = qn_child_run(argv, "", 0, NULL, 0, VERSION_LIMIT_MS, &said, &child);
  size_t line = said.at ? strcspn(said.at, "\n") : 0;
  if (status == QN_OK && child.end == QN_CHILD_TIMED_OUT)
    status =
        qn_fail(QN_NO_LIBRARY, "emulator: \"%s --version\" did not end within %d s", path, VERSION_LIMIT_MS / 1000);
  else if (status == QN_OK && (said.failed || !line || (child.end != QN_CHILD_UNKNOWN && child.code != 0)))
    status = said.failed ? qn_fail(QN_NO_MEMORY, "emulator: no memory for what \"%s --version\" says", path)
                         : qn_fail(QN_NO_LIBRARY,
                                   "emulator: %s is no compiler that works: --version ended with %d and \"%.*s\"", path,
                                   child.code, (int)line, said.at ? said.at : "");
  known_compiler *made = NULL;
  if (status == QN_OK)
    status = qn_try_allocate(&made, sizeof *made + strlen(path) + 1 + line + 1, "the compiler's version");
  if (status == QN_OK) {
    char *text = (char *)(made + 1);
    *made = (known_compiler){atomic_load(&known), text, text + strlen(path) + 1};
    sprintf(text, "%s%c%.*s", path, 0, (int)line, said.at);
    while (!atomic_compare_exchange_weak(&known, &made->next, made)) continue;
    *version = made->version;
  }
  qn_text_free(&said);
  return status;
}

qn_status qn_emulator_compiler_find(qn_emulator_compiler *compiler)
{
  qn_try(locate(compiler->path, sizeof compiler->path));
  compiler->version = NULL;
  for (known_compiler *k = atomic_load(&known); k && !compiler->version; k = k->next)
    if (!strcmp(k->path, compiler->path)) compiler->version = k->version;
  if (!compiler->version) qn_try(ask_version(compiler->path, &compiler->version));
  compiler->number = version_number(compiler->version);
  return QN_OK;
}

/* Places are kept by -g1, and -O1 leaves lines apart. gcc's counters (-fprofile-arcs) put something into empty loops,
 * where it reports no branch otherwise; clang leaves out branches that others imply unless told not to, and accesses
 * before others to the same address, whose first one is what must not happen. Frame pointers tell where return
 * addresses lie. Of clang's DWARF 5 binutils' addr2line does not read all inlined calls, and all of its "bounds"
 * would have instructions that end the process. */
qn_status qn_sanitizer_flags(bool check, const char *const **flags)
{
  static const char *const gcc[2][14] = {
      {"-O1", "-g1", "-fno-finite-loops", "-fsanitize-coverage=trace-pc", "-fprofile-arcs"},
      {"-O1", "-g1", "-fno-finite-loops", "-fsanitize-coverage=trace-pc", "-fprofile-arcs", "-fsanitize=thread",
       "-fsanitize=bounds-strict,integer-divide-by-zero,alignment,object-size", "-fno-omit-frame-pointer",
       "-DQN_SANITIZER_CHECK=1"}};
  static const char *const clang[2][14] = {
      {"-O2", "-g1", "-fno-finite-loops", "-fsanitize-coverage=trace-pc,no-prune"},
      {"-O1", "-g1", "-fno-finite-loops", "-fsanitize-coverage=trace-pc,no-prune,trace-loads,trace-stores",
       "-fsanitize=thread", "-fsanitize=array-bounds,integer-divide-by-zero,alignment,object-size",
       "-fno-omit-frame-pointer", "-gdwarf-4", "-mllvm", "-tsan-instrument-read-before-write",
       "-DQN_SANITIZER_CHECK=1"}};
  qn_emulator_compiler compiler;
  qn_try(qn_emulator_compiler_find(&compiler));
  const bool is_clang = strstr(compiler.version, "clang") != NULL;
  if (compiler.number && compiler.number < (is_clang ? 14000 : 12000))
    return qn_fail(QN_UNSUPPORTED, "emulator: checks and time limits need gcc 12 or clang 14; %s is \"%s\"",
                   compiler.path, compiler.version);
  *flags = (is_clang ? clang : gcc)[check];
  return QN_OK;
}

/* A frame beyond a fiber's stack would pass over the page beneath it: such a function is not compiled. */
qn_status qn_fiber_flags(const char *const **flags)
{
#define BYTES_TEXT(n) #n
#define BYTES(n) BYTES_TEXT(n)
  static const char *const gcc[] = {"-Werror=frame-larger-than=" BYTES(QN_FRAME_BYTES), NULL};
  static const char *const clang[] = {"-Wframe-larger-than=" BYTES(QN_FRAME_BYTES), "-Werror=frame-larger-than=", NULL};
  qn_emulator_compiler compiler;
  qn_try(qn_emulator_compiler_find(&compiler));
  *flags = strstr(compiler.version, "clang") ? clang : gcc;
  return QN_OK;
}

qn_status qn_emulator_target(qn_device device, char *text, size_t bytes)
{
  (void)device;
  qn_tier tier;
  qn_emulator_compiler compiler;
  qn_try(qn_tier_of_compiler(&tier));
  qn_try(qn_emulator_compiler_find(&compiler));
  qn_text target = {0};
  qn_text_add(&target, "emulator %s, %s\n%s", qn_tier_name(tier), compiler.version, compiler.path);
  for (size_t k = 0; base_flags[k]; k++) qn_text_add(&target, " %s", base_flags[k]);
  for (size_t k = 0; link_flags[k]; k++) qn_text_add(&target, " %s", link_flags[k]);
  for (size_t k = 0; tier_flags[tier][k]; k++) qn_text_add(&target, " %s", tier_flags[tier][k]);
  qn_status status = QN_OK;
  if (target.failed)
    status = qn_fail(QN_NO_MEMORY, "emulator: no memory for the target's description");
  else if (target.length >= bytes)
    status =
        qn_fail(QN_BAD_ARGUMENT, "emulator: the target's description has %zu bytes, %zu fit", target.length, bytes);
  else
    memcpy(text, target.at, target.length + 1);
  qn_text_free(&target);
  return status;
}

/* The first line that speaks of an error, else the first line. */
static const char *first_error(const char *said, size_t *length)
{
  const char *line = strstr(said, "error:");
  if (!line) line = strstr(said, "error ");
  if (!line) line = said;
  while (line > said && line[-1] != '\n') line--;
  *length = strcspn(line, "\n");
  return line;
}

static qn_status judge(const char *source, const qn_emulator_compiler *compiler, const qn_child *child,
                       const char *said)
{
  size_t length;
  char text[1024];
  if (child->end == QN_CHILD_TIMED_OUT)
    return qn_fail(QN_COMPILE_ERROR, "%s: %s did not end within %d s and was stopped", source, compiler->path,
                   COMPILE_LIMIT_MS / 1000);
  if (child->end == QN_CHILD_SIGNALED)
    return qn_fail(QN_COMPILE_ERROR, "%s: %s was ended by signal %d (%s)", source, compiler->path, child->code,
                   strsignal(child->code));
  if (child->end == QN_CHILD_EXITED && child->code == 0) return QN_OK;
  const char *line = first_error(said, &length);
  if (child->end == QN_CHILD_UNKNOWN && !length) return QN_OK; /* the file that it made, or did not, will tell */
  if (!length)
    return qn_fail(QN_COMPILE_ERROR, "%s: %s failed with exit status %d and said nothing", source, compiler->path,
                   child->code);
  qn_log(QN_LOG_WARNING, "%s: %s says:\n%s", source, compiler->path, said);
  qn_unit_error(source, said, line, length, text, sizeof text);
  return qn_fail(QN_COMPILE_ERROR, "%s", text);
}

typedef struct command {
  const char *argument[MOST_ARGUMENTS + 1];
  size_t n;
} command;

static void add(command *c, const char *const *arguments)
{
  for (; arguments && *arguments && c->n < MOST_ARGUMENTS; arguments++) c->argument[c->n++] = *arguments;
  c->argument[c->n] = NULL;
}
#define ADD(c, ...) add(c, (const char *const[]){__VA_ARGS__, NULL})

static bool is_straight(const qn_unit *unit, const qn_emulator_compiler *compiler)
{
  return unit->straight && compiler->number >= 12000 && !strstr(compiler->version, "clang");
}

/* Those of checks and counters bring libraries of their own. */
static bool is_instrumented(const qn_unit *unit)
{
  for (const char *const *flag = unit->flags; flag && *flag; flag++)
    if (!strncmp(*flag, "-fsanitize", 10) || !strcmp(*flag, "-fprofile-arcs")) return true;
  return false;
}

/* The files that a compile reads and writes, as descriptors of the child from QN_CHILD_FILE on, in this order. */
enum { OBJECT, OUTPUT, OPENED, OPENED_BY_ASSEMBLER, N_FILES };

/* `said` is added to. */
static qn_status run(const qn_unit *unit, const qn_emulator_compiler *compiler, const command *c, const qn_text *input,
                     const int files[N_FILES], qn_text *said)
{
  qn_child child;
  qn_require(c->n < MOST_ARGUMENTS, "%s: more than %d flags of its own", unit->source, MOST_OWN_FLAGS);
  qn_try(qn_child_run((char *const *)(uintptr_t)c->argument, input ? input->at : "", input ? input->length : 0, files,
                      N_FILES, COMPILE_LIMIT_MS, said, &child));
  return judge(unit->source, compiler, &child, said->at ? said->at : "");
}

/* A rule for make: "target: file file \\\n file". */
static qn_status list_is_empty(const qn_unit *unit, const char *list)
{
  static const char blanks[] = " \t\r\n\\";
  const char *colon = strchr(list, ':');
  for (const char *at = colon ? colon + 1 : ""; *(at += strspn(at, blanks));) {
    const size_t length = strcspn(at, blanks);
    if (strncmp(at, "<stdin>", length) && strncmp(at, "{standard", length) && strncmp(at, "input}", length))
      return qn_fail(QN_BAD_ARGUMENT,
                     "%s: its text opens the file %.*s; a kernel's text is whole in itself, since a change of another "
                     "file would not be seen",
                     unit->source, (int)length, at);
    at += length;
  }
  return QN_OK;
}

/* The key of a compiled kernel is its text, so a file that the text opened (#include in any spelling, #embed, .incbin)
 * would be missing from it: a kernel of an old file's contents would run. The compiler and its assembler list what they
 * opened. */
static qn_status opens_nothing_else(const qn_unit *unit, const int files[N_FILES])
{
  qn_status status = QN_OK;
  for (size_t k = OPENED; k <= OPENED_BY_ASSEMBLER && status == QN_OK; k++) {
    void *list = NULL;
    size_t bytes = 0;
    char text[512] = "";
    qn_try(qn_memory_file_read(files[k], "the list of opened files", &list, &bytes));
    memcpy(text, list, bytes < sizeof text ? bytes : sizeof text - 1); /* one name is enough */
    qn_release(list);
    status = list_is_empty(unit, text);
  }
  return status;
}

static qn_status run_compiler(const qn_unit *unit, const qn_emulator_compiler *compiler, qn_tier tier,
                              const qn_text *text, const int files[N_FILES], qn_image *image)
{
  const bool clang = strstr(compiler->version, "clang") != NULL;
  command compile = {.n = 0}, link;
  ADD(&compile, compiler->path);
  add(&compile, base_flags);
  add(&compile, tier_flags[tier]);
  add(&compile, unit->flags);
  if (is_straight(unit, compiler)) add(&compile, straight_flags);
  link = compile;
  add(&link, link_flags);
  ADD(&link, "-o", QN_LINK_OUTPUT, QN_LINK_OBJECT);
  add(&link, libraries);
  ADD(&compile, "-MD", "-MF", QN_CHILD_PATH "5");
  if (clang)
    ADD(&compile, "-fno-gnu-inline-asm"); /* its assembler keeps no list */
  else
    ADD(&compile, "-pipe", "-Wa,--MD," QN_CHILD_PATH "6");
  ADD(&compile, "-c", "-o", QN_LINK_OBJECT, "-x", "c++", "-");
  qn_text said = {0};
  qn_status status = run(unit, compiler, &compile, text, files, &said);
  if (status == QN_OK) status = opens_nothing_else(unit, files);
  if (status == QN_OK && (is_instrumented(unit) || !qn_link_alone(files)))
    status = run(unit, compiler, &link, NULL, files, &said);
  if (status == QN_OK) status = qn_memory_file_read(files[OUTPUT], unit->source, &image->data, &image->bytes);
  if (status == QN_OK && !image->bytes)
    status = qn_fail(QN_IO_ERROR, "%s: %s ended well and wrote no kernel", unit->source, compiler->path);
  image->log = status == QN_OK && said.length ? said.at : NULL;
  if (!image->log) qn_text_free(&said);
  return status;
}

static qn_status files_open(const qn_unit *unit, int files[N_FILES])
{
  for (size_t k = 0; k < N_FILES; k++) {
    files[k] = qn_memory_file("quern-compile", NULL, 0);
    if (files[k] >= 0) continue;
    const int error = errno;
    while (k-- > 0) close(files[k]);
    return qn_fail(QN_IO_ERROR, "%s: no file in memory for what is compiled: %s", unit->source, strerror(error));
  }
  return QN_OK;
}

qn_status qn_emulator_compile(qn_device device, const qn_unit *unit, qn_image *image)
{
  (void)device;
  qn_tier tier;
  qn_emulator_compiler compiler;
  int files[N_FILES];
  qn_text text = {0};
  *image = (qn_image){0};
  qn_try(qn_tier_of_compiler(&tier));
  qn_try(qn_emulator_compiler_find(&compiler));
  qn_status status = qn_preprocess(unit, &text);
  if (status == QN_OK && (status = files_open(unit, files)) == QN_OK) {
    status = run_compiler(unit, &compiler, tier, &text, files, image);
    for (size_t k = 0; k < N_FILES; k++) close(files[k]);
  }
  qn_text_free(&text);
  return status;
}
