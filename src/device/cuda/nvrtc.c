/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c - finds NVIDIA's run-time compiler where toolkits, drivers and Python packages put it, and loads and checks
 * it when something must be compiled. Finding reads names and dates only, where it can. */
#include "device/cuda/nvrtc.h"
#include "device/cuda/driver.h"
#include "device/cuda/find.h"
#include <dlfcn.h>
#include <errno.h>
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
  qn_cuda_search of; /* first */
  qn_nvrtc_file file;
  char refused[768]; /* why the last file that was found does not do; "" */
} search;

static int major_of(const char *path) { return qn_cuda_library_major("nvrtc", path); }

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
  int of = s->of.driver_version;
  snprintf(s->refused, sizeof s->refused,
           "%s is NVRTC %s, whose kernels the driver for CUDA %d.%d cannot load: an NVRTC %d.x can serve it", path,
           version, of / 1000, of % 1000 / 10, of / 1000);
}

static bool take(qn_cuda_search *of, const char *path)
{
  search *s = (search *)of;
  if (!stat_file(path, &s->file)) return false;
  int major = major_of(s->file.path);
  if (major && major < QN_NVRTC_LEAST / 1000) {
    snprintf(s->refused, sizeof s->refused, "%s is NVRTC %d; quern needs %d.%d or newer", s->file.path, major,
             QN_NVRTC_LEAST / 1000, QN_NVRTC_LEAST % 1000 / 10);
    return false;
  }
  if (!major || !of->driver_version || major <= of->driver_version / 1000) return true;
  refuse_newer(s, s->file.path, strstr(s->file.path, "/libnvrtc.so.") + strlen("/libnvrtc.so."));
  return false;
}

static qn_status find_locked(void)
{
  search s = {.of = {.stem = "nvrtc", .least_major = QN_NVRTC_LEAST / 1000, .take = take}};
  char named[PATH_MAX];
  unsigned generation = qn_option_generation();
  if (state.found && (atomic_load(&state.ready) || state.generation == generation)) return QN_OK;
  qn_try(qn_option_text(QN_OPTION_LIBNVRTC, named, sizeof named));
  qn_cuda_search_run(&s.of, named);
  state.file = s.file;
  state.found = s.of.found;
  state.generation = generation;
  if (s.of.found) return QN_OK;
  if (*s.refused) return qn_fail(QN_UNSUPPORTED, "no usable NVRTC: %s", s.refused);
  if (*named)
    return qn_fail(QN_NO_LIBRARY, "the option libnvrtc names %s: %s", named,
                   strchr(named, '/') ? strerror(errno) : "the loader does not find it");
  return qn_fail(QN_NO_LIBRARY, "no NVRTC: " QN_CUDA_SEARCHED, "nvidia-cuda-nvrtc", "libnvrtc");
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
  s.of.driver_version = qn_cuda_driver_peek(s.of.driver_path, sizeof s.of.driver_path);
  if (!s.of.driver_version || major <= s.of.driver_version / 1000) return QN_OK;
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
