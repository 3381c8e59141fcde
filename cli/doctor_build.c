/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_build.c - `quern doctor` on what quern is built with and from: tools, the build directory that this command
 * runs from, the shared library and headers that other programs would get. Stale products of a build cost more hours
 * than bugs do. */
#include "cli/doctor.h"
#include "workbench/build.h"
#include "workbench/program.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first line that a program writes to standard output; false if there is no such program or it fails. */
static bool first_line(const char *const *words, char *line, size_t bytes)
{
  enum { MOST = 1 << 20, END_MS = 5000 };
  char said[QN_PROGRAM_SAID];
  qn_text text = {0};
  int ended;
  const int errors = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const bool ran = qn_program_run(words, NULL, errors, MOST, HUGE_VAL, END_MS, &text, &ended, said) == QN_OK;
  snprintf(line, bytes, "%.*s", text.at ? (int)strcspn(text.at, "\n") : 0, text.at ? text.at : "");
  qn_text_free(&text);
  if (errors >= 0) close(errors);
  return ran && !ended && *line;
}

/* ---- the build directory ---- */
typedef struct build {
  char path[512], source[512], meson[32], compiler[256];
} build;

/* The command that a target's C sources were compiled with, the wrapper aside: "cc". */
static void read_compiler(build *b)
{
  char file[600];
  snprintf(file, sizeof file, "%s/meson-info/intro-targets.json", b->path);
  json_t *targets = json_load_file(file, 0, NULL), *target, *source;
  size_t k, i;
  json_array_foreach(targets, k, target)
  {
    json_array_foreach(json_object_get(target, "target_sources"), i, source)
    {
      json_t *words = json_object_get(source, "compiler"), *language = json_object_get(source, "language");
      const char *last =
          json_string_value(json_array_get(words, json_array_size(words) ? json_array_size(words) - 1 : 0));
      if (last && language && !strcmp(json_string_value(language), "c") && !b->compiler[0])
        snprintf(b->compiler, sizeof b->compiler, "%s", last);
    }
  }
  json_decref(targets);
}

/* False where this command does not run from a build directory of meson's. */
static bool read_build(build *b)
{
  char program[512], file[600];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) return false;
  program[length] = 0;
  snprintf(b->path, sizeof b->path, "%s", dirname(dirname(program)));
  snprintf(file, sizeof file, "%s/meson-info/meson-info.json", b->path);
  json_t *info = json_load_file(file, 0, NULL);
  const char *source = NULL, *meson = NULL;
  json_unpack(info, "{s:{s:s}, s:{s:s}}", "directories", "source", &source, "meson_version", "full", &meson);
  if (source && meson) {
    snprintf(b->source, sizeof b->source, "%s", source);
    snprintf(b->meson, sizeof b->meson, "%s", meson);
    read_compiler(b);
  }
  json_decref(info);
  return source && meson;
}

/* The one that tools/meson.sh takes: the tree's own where the system's was too old or missing. */
static void find_meson(const build *b, char *program, size_t bytes)
{
  snprintf(program, bytes, "%s/.venv/bin/meson", b->source);
  if (!b->source[0] || access(program, X_OK)) snprintf(program, bytes, "meson");
}

/* nftw takes no user pointer. */
static struct {
  struct timespec than;
  char path[512];
} newest;

static bool is_later(const struct timespec *a, const struct timespec *b)
{
  return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static int look_at(const char *path, const struct stat *status, int type, struct FTW *where)
{
  (void)where;
  const char *dot = strrchr(path, '.');
  bool source = dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".cu"));
  if (type == FTW_F && source && is_later(&status->st_mtim, &newest.than)) {
    newest.than = status->st_mtim;
    snprintf(newest.path, sizeof newest.path, "%s", path);
  }
  return 0;
}

/* The newest source that is newer than this command, relative to the source directory; NULL: none. */
static const char *newer_source(const build *b)
{
  static const char *const folders[] = {"include", "src", "workbench", "cli"};
  struct stat self;
  if (stat("/proc/self/exe", &self)) return NULL;
  newest.than = self.st_mtim;
  newest.path[0] = 0;
  for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", b->source, folders[k]);
    nftw(path, look_at, 8, FTW_PHYS);
  }
  return newest.path[0] ? newest.path + strlen(b->source) + 1 : NULL;
}

void qn_doctor_build(qn_doctor *doctor)
{
  build b = {0};
  char now[256], mend[1700], meson[600];
  if (!read_build(&b)) return; /* installed: there is no build to be stale */
  const char *newer = newer_source(&b);
  snprintf(mend, sizeof mend, "ninja -C '%s'", b.path);
  if (newer)
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "build", mend, "%s is newer than this command", newer);
  else
    qn_doctor_say(doctor, QN_DOCTOR_OK, "build", NULL, "%s, no source is newer", b.path);

  find_meson(&b, meson, sizeof meson);
  snprintf(mend, sizeof mend, "%s setup --wipe '%s'   # then ninja -C '%s'", meson, b.path, b.path);
  if (first_line((const char *[]){meson, "--version", NULL}, now, sizeof now) && strcmp(now, b.meson))
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "build", mend, "set up by meson %s, meson is now %s", b.meson, now);
  bool clang = !strncmp(qn_build_compiler, "clang", 5);
  const char *then = strchr(qn_build_compiler, ' ') + 1;
  const char *const ask[] = {b.compiler, clang ? "-dumpversion" : "-dumpfullversion", NULL};
  if (b.compiler[0] && first_line(ask, now, sizeof now) && strcmp(now, then))
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "build", mend, "compiled by %s, %s is now version %s", qn_build_compiler,
                  b.compiler, now);
}

/* ---- tools ---- */
static void examine_tool(qn_doctor *doctor, const char *topic, const char *program, const char *mend)
{
  char line[256];
  bool there = first_line((const char *[]){program, "--version", NULL}, line, sizeof line);
  bool named = strstr(line, program); /* "cc (Debian 12.2.0) 12.2.0", but "1.0.1" */
  if (there)
    qn_doctor_say(doctor, QN_DOCTOR_OK, topic, NULL, "%s%s%s", named ? "" : program, named ? "" : " ", line);
  else
    qn_doctor_say(doctor, QN_DOCTOR_NONE, topic, mend, "%s is not here: quern cannot be built again", program);
}

static void examine_meson(qn_doctor *doctor, const char *program)
{
  char version[64];
  bool there = first_line((const char *[]){program, "--version", NULL}, version, sizeof version);
  if (there && strtol(version, NULL, 10) < 1)
    qn_doctor_say(doctor, QN_DOCTOR_NONE, "meson", "make build   # fetches a newer one into .venv",
                  "%s %s is too old: building needs 1.0", program, version);
  else
    examine_tool(doctor, "meson", program, "apt-get install meson");
}

void qn_doctor_tools(qn_doctor *doctor)
{
  build b = {0};
  char meson[600];
  const char *cc = getenv("CC");
  if (!read_build(&b)) return; /* installed, by pip perhaps: who uses it builds nothing */
  find_meson(&b, meson, sizeof meson);
  examine_tool(doctor, "cc", cc && *cc ? cc : "cc", "apt-get install gcc");
  examine_meson(doctor, meson);
  examine_tool(doctor, "ninja", "ninja", "apt-get install ninja-build");
}

/* ---- the shared library and the headers ---- */
/* False with a sentence where an op's parameters have another size in that library than in the headers here. */
static bool same_sizes(void *library, char *text, size_t bytes)
{
  const qn_op_info *(*op_at)(size_t);
  void *symbol = dlsym(library, "qn_op_at");
  if (!symbol) {
    snprintf(text, bytes, "has no qn_op_at");
    return false;
  }
  memcpy(&op_at, &symbol, sizeof op_at);
  for (size_t k = 0; k < qn_op_count(); k++) {
    const qn_op_info *ours = qn_op_at(k), *theirs = op_at(k);
    if (theirs && theirs->params_bytes == ours->params_bytes && !strcmp(theirs->name, ours->name)) continue;
    snprintf(text, bytes, "qn_%s_params has %zu bytes there, %zu here", ours->name, theirs ? theirs->params_bytes : 0,
             ours->params_bytes);
    return false;
  }
  return true;
}

static void examine_loaded(qn_doctor *doctor, void *library, const char *mend)
{
  const char *(*version)(void);
  char why[160];
  Dl_info where = {0};
  void *symbol = dlsym(library, "qn_version");
  if (!symbol) {
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "library", mend, "the libquern.so.0 that programs load has no qn_version");
    return;
  }
  memcpy(&version, &symbol, sizeof version);
  dladdr(symbol, &where);
  const char *path = where.dli_fname ? where.dli_fname : "libquern.so.0";
  if (strcmp(version(), qn_version()))
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "library", mend, "programs load %s, version %s; this command is %s", path,
                  version(), qn_version());
  else if (!same_sizes(library, why, sizeof why))
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "library", mend, "programs load %s, made from other headers: %s", path, why);
  else
    qn_doctor_say(doctor, QN_DOCTOR_OK, "library", NULL, "programs load %s, version %s", path, version());
}

void qn_doctor_library(qn_doctor *doctor)
{
  build b = {0};
  char mend[1200], headers[64];
  bool tree = read_build(&b);
  if (tree)
    snprintf(mend, sizeof mend, "meson install -C '%s' && ldconfig", b.path);
  else
    snprintf(mend, sizeof mend, "make install && ldconfig   # in quern's source tree; Python does not need it");
  void *library = dlopen("libquern.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library) {
    examine_loaded(doctor, library, mend);
    dlclose(library);
  } else {
    if (tree)
      snprintf(mend, sizeof mend, "export LD_LIBRARY_PATH='%s/src'   # or meson install -C '%s'", b.path, b.path);
    qn_doctor_say(doctor, QN_DOCTOR_NONE, "library", mend, "the loader finds no libquern.so.0: programs cannot use it");
  }
  if (!first_line((const char *[]){"pkg-config", "--modversion", "quern", NULL}, headers, sizeof headers)) return;
  if (tree)
    snprintf(mend, sizeof mend, "meson install -C '%s'", b.path);
  else
    snprintf(mend, sizeof mend, "make install   # in quern's source tree");
  bool same = !strcmp(headers, qn_version());
  qn_doctor_say(doctor, same ? QN_DOCTOR_OK : QN_DOCTOR_MEND, "headers", same ? NULL : mend,
                "installed for version %s%s%s", headers, same ? "" : "; this command is ", same ? "" : qn_version());
}
