/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c - finds NVIDIA's run-time compiler where toolkits, drivers and Python packages put it, and loads and checks
 * it when something must be compiled. Finding reads names and dates only, where it can. */
#include "device/cuda/nvrtc.h"
#include "device/cuda/driver.h"
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* `file` is guarded by qn_cuda_lock; `nvrtc` never changes again once `ready` publishes it. */
static struct {
  bool found;
  unsigned generation; /* of the options under which it was found */
  qn_nvrtc_file file;
  atomic_bool ready;
  qn_nvrtc nvrtc;
} state;

/* ---- finding: a file that by its name will do ---- */

typedef struct search {
  qn_nvrtc_file file;
  bool found;
  int driver_version; /* 0: there is none */
  char driver_path[256];
  char refused[768]; /* why the last file that was found does not do; "" */
} search;

/* The 13 of libnvrtc.so.13; 0 where the name does not tell. */
static int major_of(const char *path)
{
  const char *number = strstr(path, "/libnvrtc.so.");
  return number ? atoi(number + strlen("/libnvrtc.so.")) : 0;
}

static bool stat_file(const char *path, qn_nvrtc_file *file)
{
  struct stat info;
  char real[PATH_MAX];
  if (!realpath(path, real) || stat(real, &info) || !S_ISREG(info.st_mode)) return false;
  size_t length = strlen(real);
  if (length >= sizeof file->path) {
    errno = ENAMETOOLONG;
    return false;
  }
  *file = (qn_nvrtc_file){.bytes = info.st_size, .changed_s = info.st_mtim.tv_sec, .changed_ns = info.st_mtim.tv_nsec};
  memcpy(file->path, real, length + 1);
  return true;
}

static void refuse_newer(search *s, const char *path, const char *version)
{
  int of = s->driver_version;
  snprintf(s->refused, sizeof s->refused,
           "%s is NVRTC %s, whose kernels the driver for CUDA %d.%d cannot load: an NVRTC %d.x can serve it", path,
           version, of / 1000, of % 1000 / 10, of / 1000);
}

static void try_file(search *s, const char *path)
{
  if (s->found || !stat_file(path, &s->file)) return;
  int major = major_of(s->file.path);
  if (major && major < QN_NVRTC_LEAST / 1000)
    snprintf(s->refused, sizeof s->refused, "%s is NVRTC %d; quern needs %d.%d or newer", s->file.path, major,
             QN_NVRTC_LEAST / 1000, QN_NVRTC_LEAST % 1000 / 10);
  else if (major && s->driver_version && major > s->driver_version / 1000)
    refuse_newer(s, s->file.path, strstr(s->file.path, "/libnvrtc.so.") + strlen("/libnvrtc.so."));
  else
    s->found = true;
}

/* The file of a library that the loader finds by its bare name; with RTLD_NOLOAD, that is loaded already. What this
 * loads stays so, as it is about to be used. */
static void try_loader(search *s, const char *name, int mode)
{
  char path[PATH_MAX];
  void *library = s->found ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL | mode);
  if (!library) return;
  qn_cuda_library_path(library, name, path, sizeof path);
  try_file(s, path);
  if (!s->found || mode) dlclose(library);
}

static void try_loader_names(search *s, int mode)
{
  int newest = s->driver_version ? s->driver_version / 1000 : 13;
  for (int major = newest; major >= QN_NVRTC_LEAST / 1000; major--) {
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", major);
    try_loader(s, name, mode);
  }
}

/* The files that match root/tail, the last in order first: that is the newest. root NULL or "": none. */
static void try_pattern(search *s, const char *root, const char *tail)
{
  char pattern[PATH_MAX];
  glob_t files;
  if (s->found || !root || !*root) return;
  if ((size_t)snprintf(pattern, sizeof pattern, "%s/%s", root, tail) >= sizeof pattern) return;
  if (!glob(pattern, 0, NULL, &files)) {
    for (size_t k = files.gl_pathc; k-- > 0;) try_file(s, files.gl_pathv[k]);
    globfree(&files);
  }
}

static void try_loader_path(search *s)
{
  char folder[PATH_MAX];
  for (const char *at = getenv("LD_LIBRARY_PATH"); at && *at; at += *at == ':') {
    size_t length = strcspn(at, ":");
    if ((size_t)snprintf(folder, sizeof folder, "%.*s", (int)length, at) < sizeof folder)
      try_pattern(s, folder, "libnvrtc.so.*");
    at += length;
  }
}

static void try_python(search *s, const char *root)
{
  try_pattern(s, root, "lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*");
  try_pattern(s, root, "lib/python3*/dist-packages/nvidia/*/lib/libnvrtc.so.*");
}

/* Keep in step with the sentence in find_locked. */
static void try_everywhere(search *s)
{
  char *slash = strrchr(s->driver_path, '/');
  if (slash) *slash = 0;
  try_loader_names(s, RTLD_NOLOAD);
  try_loader_path(s);
  try_pattern(s, slash ? s->driver_path : NULL, "libnvrtc.so.*");
  try_pattern(s, getenv("CUDA_HOME"), "lib64/libnvrtc.so.*");
  try_pattern(s, getenv("CUDA_PATH"), "lib64/libnvrtc.so.*");
  try_pattern(s, getenv("CONDA_PREFIX"), "lib/libnvrtc.so.*");
  try_pattern(s, "/usr/local", "cuda*/lib64/libnvrtc.so.*");
  try_python(s, getenv("VIRTUAL_ENV"));
  try_python(s, getenv("CONDA_PREFIX"));
  const char *home = getenv("HOME");
  char user[PATH_MAX];
  if (home && (size_t)snprintf(user, sizeof user, "%s/.local", home) < sizeof user) try_python(s, user);
  try_python(s, "/usr/local");
  try_pattern(s, "/usr/lib", "python3*/dist-packages/nvidia/*/lib/libnvrtc.so.*");
  try_loader_names(s, 0);
}

static qn_status find_locked(void)
{
  search s = {0};
  char named[PATH_MAX];
  unsigned generation = qn_option_generation();
  if (state.found && (atomic_load(&state.ready) || state.generation == generation)) return QN_OK;
  qn_try(qn_option_text(QN_OPTION_LIBNVRTC, named, sizeof named));
  s.driver_version = qn_cuda_driver_peek(s.driver_path, sizeof s.driver_path);
  errno = 0;
  if (!*named)
    try_everywhere(&s);
  else if (strchr(named, '/'))
    try_file(&s, named);
  else
    try_loader(&s, named, 0);
  state.file = s.file;
  state.found = s.found;
  state.generation = generation;
  if (s.found) return QN_OK;
  if (*s.refused) return qn_fail(QN_UNSUPPORTED, "no usable NVRTC: %s", s.refused);
  if (*named)
    return qn_fail(QN_NO_LIBRARY, "the option libnvrtc names %s: %s", named,
                   strchr(named, '/') ? strerror(errno) : "the loader does not find it");
  return qn_fail(QN_NO_LIBRARY,
                 "no NVRTC: looked in the loader's path, beside the driver, in lib64 of $CUDA_HOME, $CUDA_PATH and "
                 "/usr/local/cuda*, and for the Python package nvidia-cuda-nvrtc in $VIRTUAL_ENV, $CONDA_PREFIX, "
                 "~/.local, /usr/local and /usr/lib; install that package or name the library in the option libnvrtc");
}

qn_status qn_nvrtc_find(qn_nvrtc_file *file)
{
  qn_try(qn_cuda_lock());
  qn_status status = find_locked();
  *file = state.file;
  qn_cuda_unlock();
  return status;
}

/* ---- loading ---- */

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Whether the loaded library will do. */
static qn_status check_library(void *library, qn_nvrtc *n)
{
  search s = {0};
  int major = 0, minor = 0;
#define X(type, name, signature)                                                                                       \
  if (!qn_cuda_symbol(library, #name, &n->name))                                                                       \
    return qn_fail(QN_UNSUPPORTED, "no usable NVRTC: %s lacks %s", n->path, #name);
  QN_NVRTC_MAP(X)
#undef X
  if (n->nvrtcVersion(&major, &minor) || n->nvrtcGetNumSupportedArchs(&n->n_archs) || n->n_archs > QN_NVRTC_MAX_ARCHS ||
      n->nvrtcGetSupportedArchs(n->arch))
    return qn_fail(QN_UNSUPPORTED, "no usable NVRTC: %s does not tell its version and architectures", n->path);
  qsort(n->arch, (size_t)n->n_archs, sizeof *n->arch, by_number);
  n->version = 1000 * major + 10 * minor;
  if (n->version < QN_NVRTC_LEAST)
    return qn_fail(QN_UNSUPPORTED, "no usable NVRTC: %s is NVRTC %d.%d; quern needs %d.%d or newer", n->path, major,
                   minor, QN_NVRTC_LEAST / 1000, QN_NVRTC_LEAST % 1000 / 10);
  s.driver_version = qn_cuda_driver_peek(s.driver_path, sizeof s.driver_path);
  if (!s.driver_version || major <= s.driver_version / 1000) return QN_OK;
  char version[32];
  snprintf(version, sizeof version, "%d.%d", major, minor);
  refuse_newer(&s, n->path, version);
  return qn_fail(QN_UNSUPPORTED, "no usable NVRTC: %s", s.refused);
}

/* What was found may have been exchanged since, and kernels already looked for under its old date. */
static qn_status open_locked(void)
{
  qn_nvrtc_file now;
  qn_nvrtc nvrtc = {0};
  qn_try(find_locked());
  state.found = false; /* until all is well: the next try finds anew */
  if (!stat_file(state.file.path, &now) || now.bytes != state.file.bytes || now.changed_s != state.file.changed_s ||
      now.changed_ns != state.file.changed_ns)
    return qn_fail(QN_NO_LIBRARY, "%s was exchanged while it was in use; try again", state.file.path);
  void *library = dlopen(state.file.path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return qn_fail(QN_NO_LIBRARY, "no usable NVRTC: %s", dlerror());
  memcpy(nvrtc.path, state.file.path, sizeof nvrtc.path);
  qn_status status = check_library(library, &nvrtc);
  if (status) {
    dlclose(library);
    return status;
  }
  state.found = true;
  state.nvrtc = nvrtc;
  atomic_store_explicit(&state.ready, true, memory_order_release);
  return QN_OK;
}

qn_status qn_nvrtc_open(const qn_nvrtc **nvrtc)
{
  if (!atomic_load_explicit(&state.ready, memory_order_acquire)) {
    qn_try(qn_cuda_lock());
    bool opened = atomic_load(&state.ready);
    qn_status status = opened ? QN_OK : open_locked();
    qn_cuda_unlock();
    qn_try(status);
    if (!opened)
      qn_log(QN_LOG_INFO, "NVRTC %d.%d: %s", state.nvrtc.version / 1000, state.nvrtc.version % 1000 / 10,
             state.nvrtc.path);
  }
  *nvrtc = &state.nvrtc;
  return QN_OK;
}
