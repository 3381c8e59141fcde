/* SPDX-License-Identifier: Apache-2.0 */
/* find.c - the places where NVIDIA's libraries lie, in the order in which they are looked at. It reads names only,
 * where it can: some of these libraries have hundreds of megabytes. */
#include "device/cuda/find.h"
#include "device/cuda/driver.h"
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int qn_cuda_library_major(const char *stem, const char *path)
{
  char name[64];
  const int n = snprintf(name, sizeof name, "/lib%s.so.", stem);
  const char *number = strstr(path, name);
  return number ? atoi(number + n) : 0;
}

static void search_file(qn_cuda_search *s, const char *path)
{
  if (!s->found) s->found = s->take(s, path);
}

/* With RTLD_NOLOAD, of what is loaded already. */
static void try_loader(qn_cuda_search *s, const char *name, int mode)
{
  char path[PATH_MAX];
  void *library = s->found ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL | mode);
  if (!library) return;
  qn_cuda_library_path(library, name, path, sizeof path);
  search_file(s, path);
  if (!s->found || mode) dlclose(library);
}

static void search_loader(qn_cuda_search *s, const char *name) { try_loader(s, name, 0); }

static void try_loader_names(qn_cuda_search *s, int mode)
{
  int newest = s->driver_version ? s->driver_version / 1000 : 13;
  for (int major = newest; major >= s->least_major; major--) {
    char name[64];
    snprintf(name, sizeof name, "lib%s.so.%d", s->stem, major);
    try_loader(s, name, mode);
  }
}

/* The files that match root/folder/libSTEM.so.*, the last in order first: that is the newest. root NULL or "": none. */
static void try_folder(qn_cuda_search *s, const char *root, const char *folder)
{
  char pattern[PATH_MAX];
  glob_t files;
  if (s->found || !root || !*root) return;
  if ((size_t)snprintf(pattern, sizeof pattern, "%s%s/lib%s.so.*", root, folder, s->stem) >= sizeof pattern) return;
  if (!glob(pattern, 0, NULL, &files)) {
    for (size_t k = files.gl_pathc; k-- > 0;) search_file(s, files.gl_pathv[k]);
    globfree(&files);
  }
}

static void try_loader_path(qn_cuda_search *s)
{
  char folder[PATH_MAX];
  for (const char *at = getenv("LD_LIBRARY_PATH"); at && *at; at += *at == ':') {
    size_t length = strcspn(at, ":");
    if ((size_t)snprintf(folder, sizeof folder, "%.*s", (int)length, at) < sizeof folder) try_folder(s, folder, "");
    at += length;
  }
}

static void try_python(qn_cuda_search *s, const char *root)
{
  try_folder(s, root, "/lib/python3*/site-packages/nvidia/*/lib");
  try_folder(s, root, "/lib/python3*/dist-packages/nvidia/*/lib");
}

/* Keep in step with QN_CUDA_SEARCHED. */
static void search_everywhere(qn_cuda_search *s)
{
  char beside[sizeof s->driver_path];
  snprintf(beside, sizeof beside, "%s", s->driver_path);
  char *slash = strrchr(beside, '/');
  if (slash) *slash = 0;
  try_loader_names(s, RTLD_NOLOAD);
  try_loader_path(s);
  try_folder(s, slash ? beside : NULL, "");
  try_folder(s, getenv("CUDA_HOME"), "/lib64");
  try_folder(s, getenv("CUDA_PATH"), "/lib64");
  try_folder(s, getenv("CONDA_PREFIX"), "/lib");
  try_folder(s, "/usr/local", "/cuda*/lib64");
  try_python(s, getenv("VIRTUAL_ENV"));
  try_python(s, getenv("CONDA_PREFIX"));
  const char *home = getenv("HOME");
  char user[PATH_MAX];
  if (home && (size_t)snprintf(user, sizeof user, "%s/.local", home) < sizeof user) try_python(s, user);
  try_python(s, "/usr/local");
  try_folder(s, "/usr/lib", "/python3*/dist-packages/nvidia/*/lib");
  try_loader_names(s, 0);
}

void qn_cuda_search_run(qn_cuda_search *search, const char *named)
{
  search->driver_version = qn_cuda_driver_peek(search->driver_path, sizeof search->driver_path);
  errno = 0;
  if (!*named)
    search_everywhere(search);
  else if (strchr(named, '/'))
    search_file(search, named);
  else
    search_loader(search, named);
}
