/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc_mock.c - the compiling half of the CUDA backend against a compiler that fails on order: versions, missing
 * functions, options, the choice of architecture, errors. That real sources compile is for nvrtc.c. */
#include "core/core.h"
#include "device/backend.h"
#include "device/cuda/nvrtc.h"
#include "mock/scenario.h"
#include "scratch.h"

static const qn_device gpu = {QN_CUDA, 0};
static const qn_unit unit = {.source = "unit.cu", .text = "extern \"C\" __global__ void turn() {}\n"};

static bool says(const char *words) { return strstr(qn_last_error(), words) != NULL; }

static int programs(void)
{
  int (*get)(void);
  mock_symbol(MOCK_NVRTC, "mock_nvrtc_programs", &get);
  return get();
}

static const char *options(void)
{
  const char *(*get)(void);
  mock_symbol(MOCK_NVRTC, "mock_nvrtc_options", &get);
  return get();
}

static qn_status compile(const char *arch, qn_image *image) { return qn_cuda_compile_for(arch, &unit, image); }

static qn_status open_compiler(void)
{
  char path[512];
  int version;
  return qn_cuda_compiler(&version, path, sizeof path);
}

/* ---- which compiler ---- */

static void absent(void) { refuses(open_compiler(), QN_NO_LIBRARY, "/nowhere/libnvrtc.so"); }
static void no_compiler(void) { refuses(open_compiler(), QN_UNSUPPORTED, "lacks nvrtcVersion"); }
static void without_cubin(void) { refuses(open_compiler(), QN_UNSUPPORTED, "lacks nvrtcGetCUBIN"); }
static void too_old(void)
{
  refuses(open_compiler(), QN_UNSUPPORTED, "is NVRTC 11.8");
  check(says("12.1 or newer"), "and what is needed");
}
static void too_new(void)
{
  refuses(open_compiler(), QN_UNSUPPORTED, "is NVRTC 13.0");
  check(says("driver for CUDA 12.4"), "it names the driver that cannot load its kernels");
}
static void same_major(void) { check(open_compiler() == QN_OK, "a later minor version than the driver's will do"); }
static void mute(void) { refuses(open_compiler(), QN_UNSUPPORTED, "does not tell its version"); }

/* ---- the search: a toolkit with compilers of three versions ---- */

/* With some bytes more, which the loader does not mind. */
static void copy_compiler(const char *name, size_t more)
{
  static char bytes[1 << 22];
  FILE *from = fopen(MOCK_NVRTC, "rb"), *to = fopen(scratch_path(name), "wb");
  size_t n = from ? fread(bytes, 1, sizeof bytes, from) : 0;
  bool ok = n && n + more < sizeof bytes && to && fwrite(bytes, 1, n + more, to) == n + more;
  if (from) fclose(from);
  if (!to || fclose(to) || !ok) {
    printf("Bail out! %s could not be copied to %s\n", MOCK_NVRTC, scratch_path(name));
    exit(EXIT_FAILURE);
  }
}

static void found_is(const char *want)
{
  char path[512] = "";
  int version = 0;
  check(qn_cuda_compiler(&version, path, sizeof path) == QN_OK && strstr(path, want), "%s is found: %s", want,
        *path ? path : qn_last_error());
}
static void for_13(void) { found_is("/lib64/libnvrtc.so.13"); }
static void for_12(void) { found_is("/lib64/libnvrtc.so.12"); }

/* A kernel is looked for under the compiler's date; another file in its place must not compile for that key. */
static void exchanged(void)
{
  char target[512], again[512];
  qn_image image;
  check(qn_backend_cuda.target(gpu, target, sizeof target) == QN_OK, "a compiler is found");
  remove(scratch_path("lib64/libnvrtc.so.13"));
  copy_compiler("lib64/libnvrtc.so.13", 1);
  refuses(qn_backend_cuda.compile(gpu, &unit, &image), QN_NO_LIBRARY, "was exchanged while it was in use");
  check(qn_backend_cuda.target(gpu, again, sizeof again) == QN_OK && strcmp(target, again) != 0,
        "the next target is another");
  check(qn_backend_cuda.compile(gpu, &unit, &image) == QN_OK, "and compiles: %s", qn_last_error());
  qn_image_free(&image);
}

/* An option set before anything was compiled counts, one set after that does not. */
static void chosen_later(void)
{
  char target[512];
  qn_image image;
  check(qn_backend_cuda.target(gpu, target, sizeof target) == QN_OK && strstr(target, strrchr(MOCK_NVRTC, '/')),
        "one compiler is found");
  check(!qn_option_set("libnvrtc", scratch_path("lib64/libnvrtc.so.13")) &&
            !qn_backend_cuda.target(gpu, target, sizeof target) && strstr(target, "/lib64/libnvrtc.so.13"),
        "another is chosen before it was loaded");
  check(!qn_backend_cuda.compile(gpu, &unit, &image), "and compiles");
  qn_image_free(&image);
  check(!qn_option_set("libnvrtc", MOCK_NVRTC) && !qn_backend_cuda.target(gpu, target, sizeof target) &&
            strstr(target, "/lib64/libnvrtc.so.13"),
        "what is loaded stays");
}

static void search(void)
{
  mkdir(scratch_path("lib64"), 0700);
  copy_compiler("lib64/libnvrtc.so.11.2", 0);
  copy_compiler("lib64/libnvrtc.so.12", 0);
  copy_compiler("lib64/libnvrtc.so.13", 0);
  setenv("CUDA_HOME", scratch, 1);
  unsetenv("LD_LIBRARY_PATH");
  scenario(MOCK_CUDA, "version=13000", "", "", for_13);
  scenario(MOCK_CUDA, "version=12040", "", "version=12040", for_12);
  scenario(MOCK_CUDA, "version=13000", MOCK_NVRTC, "", chosen_later);
  scenario(MOCK_CUDA, "version=13000", "", "", exchanged);
}

/* ---- options and architectures ---- */

static const char *const bits[] = {"--fmad=false", "--prec-div=true",    "--prec-sqrt=true",   "--ftz=false",
                                   "--std=c++17",  "--ptxas-options=-v", "--no-source-include"};

static void newest(void)
{
  qn_image image;
  char target[512];
  check(qn_backend_cuda.target(gpu, target, sizeof target) == QN_OK && !strncmp(target, "sm_90 by /", 10) &&
            strstr(target, strrchr(MOCK_NVRTC, '/')),
        "the target is sm_90 by the compiler's file");
  check(!dlopen(MOCK_NVRTC, RTLD_NOW | RTLD_NOLOAD), "which is not loaded for that");
  check(qn_backend_cuda.compile(gpu, &unit, &image) == QN_OK, "a unit compiles: %s", qn_last_error());
  check(!strcmp(image.data, "mock image of unit.cu for sm_90a"), "for the device's architecture: %s",
        (const char *)image.data);
  check(image.bytes == strlen(image.data) + 1, "all %zu bytes of it", image.bytes);
  check(image.log && strstr(image.log, "16 registers"), "with the compiler's log");
  for (size_t k = 0; k < sizeof bits / sizeof *bits; k++)
    check(strstr(options(), bits[k]) && strstr(target, bits[k]), "%s is an option and part of the target", bits[k]);
  check(strstr(options(), "--minimal") && strstr(options(), "--no-cache"), "as are what only a new compiler takes");
  refuses(qn_backend_cuda.target(gpu, target, 20), QN_BAD_ARGUMENT, "there are 20");
  qn_image_free(&image);
  check(programs() == 0 && !image.data && !image.log, "nothing is left");
}

static void oldest(void)
{
  qn_image image;
  check(compile("sm_80", &image) == QN_OK, "the oldest version compiles");
  check(!strstr(options(), "--minimal") && !strstr(options(), "--no-cache"), "without options it does not know:%s",
        options());
  for (size_t k = 0; k < sizeof bits / sizeof *bits; k++) check(strstr(options(), bits[k]) != NULL, "with %s", bits[k]);
  qn_image_free(&image);
  refuses(compile("sm_100", &image), QN_UNSUPPORTED, "not for sm_100; that needs NVRTC 12.8 or newer");
  refuses(compile("sm_50", &image), QN_UNSUPPORTED, "not for sm_50; an older NVRTC does");
  static const char *const wrong[] = {"", "sm_", "sm_9", "sm_90x", "90", "compute_90", "sm_90ab", "sm_-90"};
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
    refuses(compile(wrong[k], &image), QN_BAD_ARGUMENT, "is no CUDA architecture");
}

/* A device newer than the compiler gets PTX of the architecture before it. */
static void newer_device(void)
{
  qn_image image;
  check(qn_backend_cuda.compile(gpu, &unit, &image) == QN_OK, "a unit compiles for a device that is too new: %s",
        qn_last_error());
  check(!strcmp(image.data, "mock image of unit.cu for compute_86"), "as %s", (const char *)image.data);
  qn_image_free(&image);
}

static void older_device(void)
{
  qn_image image;
  refuses(qn_backend_cuda.compile(gpu, &unit, &image), QN_UNSUPPORTED, "not for sm_61; an older NVRTC does");
  check(!image.data && !image.log, "no image comes of it");
}

/* ---- errors ---- */

static char logged[1024];
static void note(void *user, qn_log_level level, const char *text)
{
  (void)user;
  if (level == QN_LOG_WARNING) snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s|", text);
}

static void source_error(void)
{
  qn_image image;
  const qn_unit wrong = {.source = "wrong.cu", .text = "#error no\n"};
  const qn_unit unknown = {.source = "op/none/none.cu"};
  qn_log_set(note, NULL, QN_LOG_WARNING);
  refuses(qn_cuda_compile_for("sm_90a", &wrong, &image), QN_COMPILE_ERROR,
          "wrong.cu does not compile for sm_90a: wrong.cu(3): error: the source says so");
  check(!strcmp(logged, "a remark|wrong.cu(3): error: the source says so|"), "the whole log is logged: %s", logged);
  check(programs() == 0 && !image.data && !image.log, "nothing is left");
  refuses(qn_cuda_compile_for("sm_90a", &unknown, &image), QN_BAD_ARGUMENT, "op/none/none.cu");
  check(compile("sm_90a", &image) == QN_OK, "the next compile works");
  qn_image_free(&image);
}

static void failing_function(void)
{
  qn_image image;
  char name[64];
  sscanf(getenv("QUERN_MOCK_NVRTC"), "fail=%63[^:]", name);
  bool builtins = strstr(getenv("QUERN_MOCK_NVRTC"), ":7"), memory = strstr(getenv("QUERN_MOCK_NVRTC"), ":1");
  qn_status want = builtins ? QN_NO_LIBRARY : memory ? QN_NO_MEMORY : QN_COMPILE_ERROR;
  refuses(compile("sm_90a", &image), want, name);
  check(says("unit.cu"), "and the source: %s", qn_last_error());
  check(programs() == 0 && !image.data && !image.log, "nothing is left of it");
}

/* Without a log a compile is a compile. */
static void no_log(void)
{
  qn_image image;
  check(compile("sm_90a", &image) == QN_OK && image.data && !image.log, "an image without its log");
  qn_image_free(&image);
}

int main(void)
{
  const char *none = "/nowhere/libcuda.so";
  scratch_begin();
  search();
  scenario(none, "", "/nowhere/libnvrtc.so", "", absent);
  scenario(none, "", "libm.so.6", "", no_compiler);
  scenario(none, "", MOCK_NVRTC_WITHOUT_CUBIN, "", without_cubin);
  scenario(none, "", MOCK_NVRTC, "version=11080", too_old);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcVersion:7", mute);
  scenario(MOCK_CUDA, "version=12040", MOCK_NVRTC, "version=13000", too_new);
  scenario(MOCK_CUDA, "version=12040", MOCK_NVRTC, "version=12090", same_major);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", newest);
  scenario(none, "", MOCK_NVRTC, "version=12010,archs=75:80:90", oldest);
  scenario(MOCK_CUDA, "arch=89", MOCK_NVRTC, "archs=75:90:86", newer_device);
  scenario(MOCK_CUDA, "arch=61", MOCK_NVRTC, "", older_device);
  scenario(none, "", MOCK_NVRTC, "", source_error);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcCreateProgram:1", failing_function);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcCreateProgram:2", failing_function);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcCompileProgram:5", failing_function);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcCompileProgram:7", failing_function);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcGetCUBINSize:4", failing_function);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcGetCUBIN:4", failing_function);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcGetProgramLogSize:4", no_log);
  scenario(none, "", MOCK_NVRTC, "fail=nvrtcGetProgramLog:4", no_log);
  return test_end();
}
