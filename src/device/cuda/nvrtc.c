/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c - finds NVIDIA's run-time compiler where toolkits, drivers and Python packages put it, checks it and loads
 * it, once a process. */
#include "device/cuda/nvrtc.h"
#include "device/cuda/driver.h"
#include <dlfcn.h>
#include <glob.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  atomic_bool ready;
  qn_nvrtc nvrtc;
} state;

/* A search in progress: the library, once one does; else why the last one that was found does not. */
typedef struct search {
  qn_nvrtc nvrtc;
  bool found;
  int driver_version; /* 0: there is none */
  char driver_path[256];
  char refused[768];
} search;

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* Whether the loaded library will do; if not, refused says why. */
static bool usable(search *s, void *library)
{
  qn_nvrtc *n = &s->nvrtc;
  const char *missing = NULL;
  int major = 0, minor = 0;
#define X(type, name, signature)                                                                                       \
  if (!missing && !qn_cuda_symbol(library, #name, &n->name)) missing = #name;
  QN_NVRTC_MAP(X)
#undef X
  if (missing) {
    snprintf(s->refused, sizeof s->refused, "%s lacks %s", n->path, missing);
    return false;
  }
  if (n->nvrtcVersion(&major, &minor) || n->nvrtcGetNumSupportedArchs(&n->n_archs) || n->n_archs > QN_NVRTC_MAX_ARCHS ||
      n->nvrtcGetSupportedArchs(n->arch)) {
    snprintf(s->refused, sizeof s->refused, "%s does not tell its version and architectures", n->path);
    return false;
  }
  qsort(n->arch, (size_t)n->n_archs, sizeof *n->arch, by_number);
  n->version = 1000 * major + 10 * minor;
  if (n->version < QN_NVRTC_LEAST)
    snprintf(s->refused, sizeof s->refused, "%s is NVRTC %d.%d; quern needs %d.%d or newer", n->path, major, minor,
             QN_NVRTC_LEAST / 1000, QN_NVRTC_LEAST % 1000 / 10);
  else if (s->driver_version && major > s->driver_version / 1000)
    snprintf(s->refused, sizeof s->refused,
             "%s is NVRTC %d.%d, whose kernels the driver for CUDA %d.%d cannot load: an NVRTC %d.x can serve it",
             n->path, major, minor, s->driver_version / 1000, s->driver_version % 1000 / 10, s->driver_version / 1000);
  else
    return true;
  return false;
}

static void try_library(search *s, const char *name)
{
  if (s->found) return;
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  qn_cuda_library_path(library, name, s->nvrtc.path, sizeof s->nvrtc.path);
  s->found = usable(s, library);
  if (!s->found) dlclose(library);
}

/* The files that match root/tail, the last in order first: that is the newest. root NULL or "": none. */
static void try_pattern(search *s, const char *root, const char *tail)
{
  char pattern[4096];
  glob_t files;
  if (s->found || !root || !*root) return;
  if ((size_t)snprintf(pattern, sizeof pattern, "%s/%s", root, tail) >= sizeof pattern) return;
  if (!glob(pattern, 0, NULL, &files)) {
    for (size_t k = files.gl_pathc; k-- > 0;) try_library(s, files.gl_pathv[k]);
    globfree(&files);
  }
}

static void try_python(search *s, const char *root)
{
  try_pattern(s, root, "lib/python3*/site-packages/nvidia/*/lib/libnvrtc.so.*");
  try_pattern(s, root, "lib/python3*/dist-packages/nvidia/*/lib/libnvrtc.so.*");
}

/* Keep in step with the sentence in open_locked. */
static void try_everywhere(search *s)
{
  int newest = s->driver_version ? s->driver_version / 1000 : 13;
  for (int major = newest; major >= QN_NVRTC_LEAST / 1000; major--) {
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", major);
    try_library(s, name);
  }
  try_library(s, "libnvrtc.so");
  char *slash = strrchr(s->driver_path, '/');
  if (slash) {
    *slash = 0;
    try_pattern(s, s->driver_path, "libnvrtc.so.*");
  }
  try_pattern(s, getenv("CUDA_HOME"), "lib64/libnvrtc.so.*");
  try_pattern(s, getenv("CUDA_PATH"), "lib64/libnvrtc.so.*");
  try_pattern(s, getenv("CONDA_PREFIX"), "lib/libnvrtc.so.*");
  try_pattern(s, "/usr/local", "cuda*/lib64/libnvrtc.so.*");
  try_python(s, getenv("VIRTUAL_ENV"));
  try_python(s, getenv("CONDA_PREFIX"));
  const char *home = getenv("HOME");
  char user[4096];
  if (home && (size_t)snprintf(user, sizeof user, "%s/.local", home) < sizeof user) try_python(s, user);
  try_python(s, "/usr/local");
  try_pattern(s, "/usr/lib", "python3*/dist-packages/nvidia/*/lib/libnvrtc.so.*");
}

static qn_status open_locked(void)
{
  search s = {0};
  char named[4096];
  qn_try(qn_option_text(QN_OPTION_LIBNVRTC, named, sizeof named));
  s.driver_version = qn_cuda_driver_peek(s.driver_path, sizeof s.driver_path);
  if (*named)
    try_library(&s, named);
  else
    try_everywhere(&s);
  if (s.found) {
    state.nvrtc = s.nvrtc;
    atomic_store_explicit(&state.ready, true, memory_order_release);
    return QN_OK;
  }
  if (*s.refused) return qn_fail(QN_UNSUPPORTED, "no usable NVRTC: %s", s.refused);
  if (*named) return qn_fail(QN_NO_LIBRARY, "the option libnvrtc names %s: %s", named, dlerror());
  return qn_fail(QN_NO_LIBRARY,
                 "no NVRTC: looked in the loader's path, beside the driver, in lib64 of $CUDA_HOME, $CUDA_PATH and "
                 "/usr/local/cuda*, and for the Python package nvidia-cuda-nvrtc in $VIRTUAL_ENV, $CONDA_PREFIX, "
                 "~/.local, /usr/local and /usr/lib; install that package or name the library in the option libnvrtc");
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
