/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.h - the part of NVIDIA's run-time compiler that quern uses, and how it is found. What is compiled with which
 * options is compile.c's business. */
#ifndef QN_DEVICE_CUDA_NVRTC_H
#define QN_DEVICE_CUDA_NVRTC_H
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

/* The oldest NVRTC that works, as 1000 * major + 10 * minor: the first that takes kernel parameters over 4096 bytes. */
enum { QN_NVRTC_LEAST = 12010 };

typedef struct nvrtc_program_s *nvrtc_program;
enum { NVRTC_SUCCESS = 0, NVRTC_OUT_OF_MEMORY = 1, NVRTC_COMPILATION = 6, NVRTC_BUILTIN_FAILURE = 7 };

#define QN_NVRTC_MAP(X)                                                                                                \
  X(int, nvrtcVersion, (int *major, int *minor))                                                                       \
  X(const char *, nvrtcGetErrorString, (int result))                                                                   \
  X(int, nvrtcGetNumSupportedArchs, (int *))                                                                           \
  X(int, nvrtcGetSupportedArchs, (int *))                                                                              \
  X(int, nvrtcCreateProgram,                                                                                           \
    (nvrtc_program *, const char *source, const char *name, int n_headers, const char *const *headers,                 \
     const char *const *include_names))                                                                                \
  X(int, nvrtcDestroyProgram, (nvrtc_program *))                                                                       \
  X(int, nvrtcCompileProgram, (nvrtc_program, int n_options, const char *const *options))                              \
  X(int, nvrtcGetCUBINSize, (nvrtc_program, size_t *))                                                                 \
  X(int, nvrtcGetCUBIN, (nvrtc_program, char *))                                                                       \
  X(int, nvrtcGetPTXSize, (nvrtc_program, size_t *))                                                                   \
  X(int, nvrtcGetPTX, (nvrtc_program, char *))                                                                         \
  X(int, nvrtcGetProgramLogSize, (nvrtc_program, size_t *))                                                            \
  X(int, nvrtcGetProgramLog, (nvrtc_program, char *))

enum { QN_NVRTC_MAX_ARCHS = 64 };
typedef struct qn_nvrtc {
#define X(type, name, signature) type(*name) signature;
  QN_NVRTC_MAP(X)
#undef X
  int version;
  char path[512];
  int n_archs, arch[QN_NVRTC_MAX_ARCHS]; /* 10 * major + minor, ascending */
} qn_nvrtc;

/* Which file it is, so that a kernel compiled before is found again without loading some 100 MB of compiler. */
typedef struct qn_nvrtc_file {
  char path[512]; /* without symbolic links */
  long long bytes, changed_s, changed_ns;
} qn_nvrtc_file;

/* The NVRTC that would be loaded: by its name it is no newer than the driver, if there is a driver, as that could not
 * load what a later one makes. None: QN_NO_LIBRARY and where it was looked for; QN_UNSUPPORTED where one does not do.
 */
qn_status qn_nvrtc_find(qn_nvrtc_file *file);
/* That one, loaded at the first call that succeeds; from then on the option "libnvrtc" is no longer read. One that does
 * not do: QN_UNSUPPORTED and why. */
qn_status qn_nvrtc_open(const qn_nvrtc **nvrtc);
#endif
