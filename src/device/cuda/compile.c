/* SPDX-License-Identifier: Apache-2.0 */
/* compile.c - embedded CUDA sources to a binary for one architecture, by NVRTC. Nothing is cached here (jit/ does that)
 * and no driver is needed, except to ask a device its architecture. */
#include "device/cuda/compile.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "device/preprocess.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No contraction and IEEE division, square root and denormals: the same bits as the processor's kernels. --minimal and
 * --no-cache save time (a fifth of a small compile) and a cache behind ours. */
static const struct {
  int since;
  const char *text;
} flags[] = {
    {0, "--std=c++17"},         {0, "--fmad=false"},       {0, "--prec-div=true"}, {0, "--prec-sqrt=true"},
    {0, "--ftz=false"},         {0, "--ptxas-options=-v"}, /* registers and spills into the log */
    {0, "--no-source-include"}, /* embedded files only, whatever lies in the working directory */
    {12040, "--minimal"},       {12090, "--no-cache"},
};
enum { N_FLAGS = sizeof flags / sizeof *flags, MOST_UNIT_FLAGS = 8 };

/* ---- which architecture ---- */

/* "sm_90a", or "compute_90" where NVRTC does not know the device and its driver must finish the work. */
typedef struct target {
  char arch[24];
  bool ptx;
} target;

static bool knows(const qn_nvrtc *nvrtc, int arch)
{
  for (int k = 0; k < nvrtc->n_archs; k++)
    if (nvrtc->arch[k] == arch) return true;
  return false;
}

static qn_status refuse_arch(const qn_nvrtc *nvrtc, int arch)
{
  static const struct {
    int arch, since;
  } news[] = {{100, 12080}, {101, 12080}, {120, 12080}, {103, 12090}, {121, 12090}, {110, 13000}};
  char hint[64] = "";
  int first = nvrtc->n_archs ? nvrtc->arch[0] : 0, last = nvrtc->n_archs ? nvrtc->arch[nvrtc->n_archs - 1] : 0;
  if (arch < first) snprintf(hint, sizeof hint, "; an older NVRTC does");
  for (size_t k = 0; k < sizeof news / sizeof *news; k++)
    if (news[k].arch == arch && nvrtc->version < news[k].since)
      snprintf(hint, sizeof hint, "; that needs NVRTC %d.%d or newer", news[k].since / 1000, news[k].since % 1000 / 10);
  return qn_fail(QN_UNSUPPORTED, "NVRTC %d.%d (%s) compiles for sm_%d to sm_%d, not for sm_%d%s", nvrtc->version / 1000,
                 nvrtc->version % 1000 / 10, nvrtc->path, first, last, arch, hint);
}

/* For a device: a binary where NVRTC knows it, else PTX of the newest architecture before it. */
static qn_status target_of_device(const qn_nvrtc *nvrtc, int arch, target *t)
{
  int before = 0;
  for (int k = 0; k < nvrtc->n_archs; k++)
    if (nvrtc->arch[k] < arch) before = nvrtc->arch[k];
  t->ptx = !knows(nvrtc, arch);
  if (t->ptx && !before) return refuse_arch(nvrtc, arch);
  if (t->ptx)
    snprintf(t->arch, sizeof t->arch, "compute_%d", before);
  else
    snprintf(t->arch, sizeof t->arch, "sm_%d%s", arch, arch == 90 ? "a" : "");
  return QN_OK;
}

static qn_status target_of_name(const qn_nvrtc *nvrtc, const char *name, target *t)
{
  char *end = NULL;
  long arch = strncmp(name, "sm_", 3) || name[3] < '0' || name[3] > '9' ? 0 : strtol(name + 3, &end, 10);
  qn_require(arch >= 10 && arch < 1000 && (!*end || !strcmp(end, "a") || !strcmp(end, "f")),
             "\"%s\" is no CUDA architecture; \"sm_75\" or \"sm_90a\" would be", name);
  if (!knows(nvrtc, (int)arch)) return refuse_arch(nvrtc, (int)arch);
  t->ptx = false;
  snprintf(t->arch, sizeof t->arch, "%s", name);
  return QN_OK;
}

/* ---- the compile ---- */

static qn_status nvrtc_status(const qn_nvrtc *nvrtc, int result, const char *function, const char *source)
{
  if (result == NVRTC_SUCCESS) return QN_OK;
  return qn_fail(result == NVRTC_OUT_OF_MEMORY ? QN_NO_MEMORY : QN_COMPILE_ERROR, "%s: %s: %s", source, function,
                 nvrtc->nvrtcGetErrorString(result));
}

/* NVRTC opens its builtins by their bare name; where they lie beside it in a folder that the loader does not search,
 * having them loaded already is what lets it find them. */
static void load_builtins(const qn_nvrtc *nvrtc)
{
  char path[sizeof nvrtc->path + 64];
  const char *slash = strrchr(nvrtc->path, '/');
  if (!slash) return;
  snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - nvrtc->path), nvrtc->path,
           nvrtc->version / 1000, nvrtc->version % 1000 / 10);
  dlopen(path, RTLD_NOW | RTLD_LOCAL); /* kept open; a failure shows in the compile, with NVRTC's own words */
}

/* The log's first line that tells of an error, for the sentence; the whole log goes to the caller's log. */
static qn_status compile_error(const qn_nvrtc *nvrtc, int result, const target *t, const qn_unit *unit, char *log)
{
  char first[512] = "";
  for (const char *line = log; line && *line; line += strspn(line, "\n")) {
    const size_t length = strcspn(line, "\n");
    qn_log(QN_LOG_WARNING, "%.*s", (int)length, line);
    if (!*first && memmem(line, length, "error", 5))
      qn_unit_error(unit->source, log, line, length, first, sizeof first);
    line += length;
  }
  if (result == NVRTC_COMPILATION)
    return qn_fail(QN_COMPILE_ERROR, "%s does not compile for %s: %s", unit->source, t->arch, first);
  qn_status status = result == NVRTC_BUILTIN_FAILURE ? QN_NO_LIBRARY
                     : result == NVRTC_OUT_OF_MEMORY ? QN_NO_MEMORY
                                                     : QN_COMPILE_ERROR;
  return qn_fail(status, "%s for %s: nvrtcCompileProgram: %s%s%s", unit->source, t->arch,
                 nvrtc->nvrtcGetErrorString(result), *first ? ": " : "", first);
}

/* NULL where there is no log or no memory for it: the log is a comfort, not the result. */
static char *get_log(const qn_nvrtc *nvrtc, nvrtc_program program)
{
  size_t bytes = 0;
  if (nvrtc->nvrtcGetProgramLogSize(program, &bytes) || bytes <= 1) return NULL;
  char *log = qn_allocate(bytes + 1);
  if (!log) return NULL;
  log[bytes] = 0;
  if (!nvrtc->nvrtcGetProgramLog(program, log)) return log;
  qn_release(log);
  return NULL;
}

static qn_status get_code(const qn_nvrtc *nvrtc, nvrtc_program program, const target *t, const qn_unit *unit,
                          qn_image *image)
{
  const char *source = unit->source;
  if (t->ptx)
    qn_try(nvrtc_status(nvrtc, nvrtc->nvrtcGetPTXSize(program, &image->bytes), "nvrtcGetPTXSize", source));
  else
    qn_try(nvrtc_status(nvrtc, nvrtc->nvrtcGetCUBINSize(program, &image->bytes), "nvrtcGetCUBINSize", source));
  qn_try(qn_try_allocate(&image->data, image->bytes, "a compiled kernel"));
  if (t->ptx) return nvrtc_status(nvrtc, nvrtc->nvrtcGetPTX(program, image->data), "nvrtcGetPTX", source);
  return nvrtc_status(nvrtc, nvrtc->nvrtcGetCUBIN(program, image->data), "nvrtcGetCUBIN", source);
}

/* A flag of the unit's own stands behind ours, and the last one counts. */
static int run_compiler(const qn_nvrtc *nvrtc, nvrtc_program program, const target *t, const qn_unit *unit)
{
  char arch[48];
  const char *options[N_FLAGS + 1 + MOST_UNIT_FLAGS] = {arch};
  int n = 1;
  snprintf(arch, sizeof arch, "--gpu-architecture=%s", t->arch);
  for (size_t k = 0; k < N_FLAGS; k++)
    if (nvrtc->version >= flags[k].since) options[n++] = flags[k].text;
  for (size_t k = 0; k < MOST_UNIT_FLAGS && unit->flags && unit->flags[k]; k++) options[n++] = unit->flags[k];
  load_builtins(nvrtc);
  return nvrtc->nvrtcCompileProgram(program, n, options);
}

static qn_status compile_text(const qn_nvrtc *nvrtc, const target *t, const qn_unit *unit, const char *text,
                              qn_image *image)
{
  nvrtc_program program;
  qn_try(nvrtc_status(nvrtc, nvrtc->nvrtcCreateProgram(&program, text, unit->source, 0, NULL, NULL),
                      "nvrtcCreateProgram", unit->source));
  int result = run_compiler(nvrtc, program, t, unit);
  image->log = get_log(nvrtc, program);
  qn_status status =
      result ? compile_error(nvrtc, result, t, unit, image->log) : get_code(nvrtc, program, t, unit, image);
  nvrtc->nvrtcDestroyProgram(&program);
  return status;
}

static qn_status compile(const qn_nvrtc *nvrtc, const target *t, const qn_unit *unit, qn_image *image)
{
  qn_text text = {0};
  *image = (qn_image){0};
  qn_status status = qn_preprocess(unit, &text);
  if (!status) status = compile_text(nvrtc, t, unit, text.at, image);
  qn_text_free(&text);
  if (status) qn_image_free(image);
  return status;
}

/* ---- what others call ---- */

/* The first line is for people. With the compiler's file and the architecture everything is settled: its version, which
 * flags it takes, binary or PTX. */
qn_status qn_cuda_target(qn_device device, char *text, size_t bytes)
{
  const qn_cuda_device *opened;
  qn_nvrtc_file file;
  qn_try(qn_cuda_device_open(device.index, &opened));
  qn_try(qn_nvrtc_find(&file));
  int at = snprintf(text, bytes, "sm_%d by %s\n%lld bytes of %lld.%09lld", opened->arch, file.path, file.bytes,
                    file.changed_s, file.changed_ns);
  for (size_t k = 0; k < N_FLAGS; k++)
    if (at >= 0 && (size_t)at < bytes) at += snprintf(text + at, bytes - (size_t)at, " %s", flags[k].text);
  qn_require(at >= 0 && (size_t)at < bytes, "cuda: the compiler's description needs %d bytes, there are %zu", at + 1,
             bytes);
  return QN_OK;
}

qn_status qn_cuda_compile(qn_device device, const qn_unit *unit, qn_image *image)
{
  const qn_cuda_device *opened;
  const qn_nvrtc *nvrtc;
  target t;
  *image = (qn_image){0};
  qn_try(qn_cuda_device_open(device.index, &opened));
  qn_try(qn_nvrtc_open(&nvrtc));
  qn_try(target_of_device(nvrtc, opened->arch, &t));
  if (t.ptx)
    qn_log(QN_LOG_WARNING, "cuda:%d: NVRTC %d.%d does not know it; the driver compiles %s's code for it", device.index,
           nvrtc->version / 1000, nvrtc->version % 1000 / 10, t.arch);
  return compile(nvrtc, &t, unit, image);
}

qn_status qn_cuda_compile_for(const char *arch, const qn_unit *unit, qn_image *image)
{
  const qn_nvrtc *nvrtc;
  target t;
  *image = (qn_image){0};
  qn_try(qn_nvrtc_open(&nvrtc));
  qn_try(target_of_name(nvrtc, arch, &t));
  return compile(nvrtc, &t, unit, image);
}

qn_status qn_cuda_compiler(int *version, char *path, size_t bytes)
{
  const qn_nvrtc *nvrtc;
  qn_try(qn_nvrtc_open(&nvrtc));
  *version = nvrtc->version;
  snprintf(path, bytes, "%s", nvrtc->path);
  return QN_OK;
}
