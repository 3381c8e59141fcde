/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc.c - a run-time compiler for tests: an image is a line of text, a source with "#error" in it does not compile.
 * Its behaviour is in the variable QUERN_MOCK_NVRTC, read when it is loaded, words separated by commas:
 *   version=12040                what nvrtcVersion says, as 1000 * major + 10 * minor (13000)
 *   archs=75:80:90               what it compiles for (75:80:86:89:90:100:120)
 *   fail=nvrtcGetCUBIN:7         that function gives that result
 * Built with MOCK_WITHOUT_CUBIN it has no nvrtcGetCUBIN. */
#include "device/cuda/nvrtc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nvrtc_program_s {
  char *source, name[128], log[256], image[256];
};

static struct {
  int version, n_archs, arch[QN_NVRTC_MAX_ARCHS], programs, fail_result;
  char failing[64], options[1024];
} mock = {.version = 13000, .n_archs = 7, .arch = {120, 100, 90, 89, 86, 80, 75}};

__attribute__((constructor)) static void read_script(void)
{
  const char *script = getenv("QUERN_MOCK_NVRTC");
  for (const char *word = script; word && *word; word += strcspn(word, ","), word += *word == ',') {
    sscanf(word, "version=%d", &mock.version);
    sscanf(word, "fail=%63[^:,]:%d", mock.failing, &mock.fail_result);
    if (strncmp(word, "archs=", 6)) continue;
    mock.n_archs = 0;
    for (const char *at = word + 5; (*at == '=' || *at == ':') && mock.n_archs < QN_NVRTC_MAX_ARCHS;) {
      char *end;
      mock.arch[mock.n_archs++] = (int)strtol(at + 1, &end, 10);
      at = end;
    }
  }
}

#define X(type, name, signature) __attribute__((visibility("default"))) type name signature;
QN_NVRTC_MAP(X)
#undef X
#define BEGIN()                                                                                                        \
  do {                                                                                                                 \
    if (!strcmp(mock.failing, __func__)) return mock.fail_result;                                                      \
  } while (0)

int nvrtcVersion(int *major, int *minor)
{
  BEGIN();
  *major = mock.version / 1000;
  *minor = mock.version % 1000 / 10;
  return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(int result)
{
  static const char *const names[] = {"NVRTC_SUCCESS",
                                      "NVRTC_ERROR_OUT_OF_MEMORY",
                                      "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                      "NVRTC_ERROR_INVALID_INPUT",
                                      "NVRTC_ERROR_INVALID_PROGRAM",
                                      "NVRTC_ERROR_INVALID_OPTION",
                                      "NVRTC_ERROR_COMPILATION",
                                      "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"};
  return result >= 0 && result < 8 ? names[result] : "NVRTC_ERROR unknown";
}

int nvrtcGetNumSupportedArchs(int *n)
{
  BEGIN();
  *n = mock.n_archs;
  return NVRTC_SUCCESS;
}

int nvrtcGetSupportedArchs(int *archs)
{
  BEGIN();
  memcpy(archs, mock.arch, (size_t)mock.n_archs * sizeof *archs);
  return NVRTC_SUCCESS;
}

int nvrtcCreateProgram(nvrtc_program *program, const char *source, const char *name, int n_headers,
                       const char *const *headers, const char *const *include_names)
{
  BEGIN();
  if (n_headers || headers || include_names) return 3;
  nvrtc_program made = calloc(1, sizeof *made);
  if (!made) return NVRTC_OUT_OF_MEMORY;
  made->source = strdup(source);
  snprintf(made->name, sizeof made->name, "%s", name);
  mock.programs++;
  *program = made;
  return NVRTC_SUCCESS;
}

int nvrtcDestroyProgram(nvrtc_program *program)
{
  free((*program)->source);
  free(*program);
  *program = NULL;
  mock.programs--;
  return NVRTC_SUCCESS;
}

int nvrtcCompileProgram(nvrtc_program program, int n_options, const char *const *options)
{
  const char *arch = "none";
  *mock.options = 0;
  for (int k = 0; k < n_options; k++) {
    size_t length = strlen(mock.options);
    snprintf(mock.options + length, sizeof mock.options - length, " %s", options[k]);
    if (!strncmp(options[k], "--gpu-architecture=", 19)) arch = options[k] + 19;
  }
  if (!strcmp(mock.failing, __func__))
    snprintf(program->log, sizeof program->log, "nvrtc: error: ordered by the test\n");
  BEGIN();
  if (strstr(program->source, "#error")) {
    snprintf(program->log, sizeof program->log, "a remark\n%s(3): error: the source says so\n", program->name);
    return NVRTC_COMPILATION;
  }
  snprintf(program->log, sizeof program->log, "ptxas info    : Used 16 registers\n");
  snprintf(program->image, sizeof program->image, "mock image of %s for %s", program->name, arch);
  return NVRTC_SUCCESS;
}

static int image_bytes(nvrtc_program program, size_t *bytes)
{
  *bytes = strlen(program->image) + 1;
  return NVRTC_SUCCESS;
}

static int image_copy(nvrtc_program program, char *image)
{
  strcpy(image, program->image);
  return NVRTC_SUCCESS;
}

int nvrtcGetCUBINSize(nvrtc_program program, size_t *bytes)
{
  BEGIN();
  return strstr(program->image, " sm_") ? image_bytes(program, bytes) : 4;
}

#ifndef MOCK_WITHOUT_CUBIN
int nvrtcGetCUBIN(nvrtc_program program, char *image)
{
  BEGIN();
  return image_copy(program, image);
}
#endif

int nvrtcGetPTXSize(nvrtc_program program, size_t *bytes)
{
  BEGIN();
  return image_bytes(program, bytes);
}

int nvrtcGetPTX(nvrtc_program program, char *image)
{
  BEGIN();
  return image_copy(program, image);
}

int nvrtcGetProgramLogSize(nvrtc_program program, size_t *bytes)
{
  BEGIN();
  *bytes = strlen(program->log) + 1;
  return NVRTC_SUCCESS;
}

int nvrtcGetProgramLog(nvrtc_program program, char *log)
{
  BEGIN();
  strcpy(log, program->log);
  return NVRTC_SUCCESS;
}

/* Queries of tests: programs not destroyed, and the options of the latest compile. */
__attribute__((visibility("default"))) int mock_nvrtc_programs(void);
int mock_nvrtc_programs(void) { return mock.programs; }
__attribute__((visibility("default"))) const char *mock_nvrtc_options(void);
const char *mock_nvrtc_options(void) { return mock.options; }
