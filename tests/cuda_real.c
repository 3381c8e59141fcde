/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_real.c - the CUDA backend on the GPUs of this machine, each in turn; skipped, with the driver's reason, where
 * there is none. What it alone can show: that the declared interface is the driver's, that arguments of the full size
 * arrive, that a refused allocation leaves the device usable, and that a launch may be captured before its first run.
 */
#include "core/core.h"
#include "device/backend.h"
#include "device/cuda/driver.h"
#include "test.h"
#include <dlfcn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const qn_unit unit = {.source = "real.cu",
                             .text = "#include \"base/kernel.h\"\n"
                                     "struct scale_args { float *x; qn_u64 n; float by; };\n"
                                     "QN_KERNEL(scale, scale_args, a)\n"
                                     "{\n"
                                     "  qn_u64 i = qn_block() * qn_block_threads() + qn_thread();\n"
                                     "  if (i < a.n) a.x[i] *= a.by;\n"
                                     "}\n"
                                     "struct whole_args { qn_u64 *sum; qn_u32 word[WORDS]; };\n"
                                     "QN_KERNEL(whole, whole_args, a)\n"
                                     "{\n"
                                     "  qn_u64 sum = 0;\n"
                                     "  for (int k = 0; k < WORDS; k++) sum += a.word[k];\n"
                                     "  if (qn_thread() == 0) *a.sum = sum;\n"
                                     "}\n"};

typedef struct scale_args {
  void *x;
  uint64_t n;
  float by;
} scale_args;

static double now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void tell(qn_device device)
{
  qn_device_info info = {.size = sizeof info};
  check(!qn_device_query(device, &info), "cuda:%d is %s, sm_%d, %d multiprocessors, L2 %.0f MiB", device.index,
        info.name, info.arch, info.multiprocessors, (double)info.l2_bytes / 0x1p20);
  check(info.arch >= 50 && info.multiprocessors > 0 && info.l2_bytes > 0 && info.free_bytes <= info.memory_bytes &&
            info.free_bytes > 0,
        "%.1f of %.1f GiB are free", (double)info.free_bytes / 0x1p30, (double)info.memory_bytes / 0x1p30);
  check(info.driver_version >= QN_CUDA_DRIVER_LEAST && *info.driver_path == '/', "driver %d, %s", info.driver_version,
        info.driver_path);
  check(info.compiler_version >= 12000 && *info.compiler_path, "NVRTC %d, %s (%s)", info.compiler_version,
        info.compiler_path, info.compiler_version ? "found" : qn_last_error());
}

static void move_bytes(qn_device device, void *stream)
{
  enum { BYTES = 1 << 20 };
  unsigned char *out = qn_allocate(BYTES), *back = qn_allocate_zero(1, BYTES);
  void *a = NULL, *b = NULL;
  for (size_t k = 0; k < BYTES; k++) out[k] = (unsigned char)(k * k >> 5);
  check(!qn_memory_allocate(device, BYTES, &a) && !qn_memory_allocate(device, BYTES, &b), "memory: %s",
        qn_last_error());
  check((uintptr_t)a % 256 == 0, "aligned to 256 bytes");
  check(!qn_memory_write(device, stream, a, out, BYTES) && !qn_memory_copy(device, stream, b, a, BYTES) &&
            !qn_memory_fill(device, stream, (char *)b + 1000, 0x5A, 2000) &&
            !qn_memory_read(device, stream, back, b, BYTES),
        "bytes are written, copied, filled and read: %s", qn_last_error());
  memset(out + 1000, 0x5A, 2000);
  check(!memcmp(out, back, BYTES), "and are the same");
  check(!qn_memory_release(device, a) && !qn_memory_release(device, b), "memory is given back");
  qn_release(out);
  qn_release(back);
}

static void impossible(qn_device device)
{
  void *memory = &memory;
  refuses(qn_memory_allocate(device, (size_t)1 << 50, &memory), QN_NO_MEMORY, "1125899906842624 bytes asked for");
  check(!memory && !qn_memory_allocate(device, 4096, &memory) && !qn_memory_fill(device, NULL, memory, 1, 4096) &&
            !qn_stream_synchronize(device, NULL) && !qn_memory_release(device, memory),
        "and the device works on: %s", qn_last_error());
}

static void clock_works(qn_device device, void *stream)
{
  enum { BYTES = 256 << 20 };
  qn_event *from = NULL, *to = NULL;
  void *memory = NULL;
  double short_ns = 0, long_ns = 0;
  bool ok =
      !qn_event_create(device, &from) && !qn_event_create(device, &to) && !qn_memory_allocate(device, BYTES, &memory);
  for (int k = 1; k <= 20 && ok; k += 19) {
    ok = !qn_event_record(device, stream, from);
    for (int j = 0; j < k && ok; j++) ok = !qn_memory_fill(device, stream, memory, 0, BYTES);
    ok = ok && !qn_event_record(device, stream, to) &&
         !qn_event_elapsed(device, from, to, k == 1 ? &short_ns : &long_ns);
  }
  check(ok && short_ns > 0 && long_ns > 5 * short_ns, "1 fill of 256 MiB takes %.0f ns, 20 take %.0f: %s", short_ns,
        long_ns, ok ? "" : qn_last_error());
  check(!qn_event_destroy(device, &from) && !qn_event_destroy(device, &to) && !qn_memory_release(device, memory),
        "all is given back");
}

/* ---- kernels ---- */

typedef struct kernels {
  qn_module *module;
  qn_device_function *scale, *whole;
  size_t limit, words;
} kernels;

static bool load_kernels(qn_device device, kernels *k)
{
  const qn_backend *cuda = &qn_backend_cuda;
  char words[32];
  const char *const defines[] = {words, NULL};
  qn_image image = {0};
  *k = (kernels){0};
  qn_status status = cuda->argument_limit(device, &k->limit);
  k->words = (k->limit - sizeof(uint64_t)) / sizeof(uint32_t) & ~(size_t)1;
  snprintf(words, sizeof words, "WORDS=%zu", k->words);
  double start = now_ms();
  if (!status)
    status = cuda->compile(device, &(qn_unit){.source = unit.source, .defines = defines, .text = unit.text}, &image);
  double compiled = now_ms();
  if (!status) status = cuda->module_load(device, image.data, image.bytes, &k->module);
  if (!status) status = cuda->module_function(device, k->module, "scale", &k->scale);
  double loaded = now_ms();
  if (!status) status = cuda->module_function(device, k->module, "whole", &k->whole);
  printf("# compiled in %.1f ms, loaded in %.2f ms\n", compiled - start, loaded - compiled);
  qn_image_free(&image);
  return check(!status, "kernels are compiled and loaded: %s", status ? qn_last_error() : "");
}

typedef int begin_fn(void *stream, int mode);
typedef int end_fn(void *stream, void **graph);
typedef int instantiate_fn(void **exec, void *graph, unsigned long long flags);
typedef int launch_fn(void *exec, void *stream);

/* Captures a kernel's very first launch, and replays it twice: nothing may have run at the capture. */
static void capture(qn_device device, void *stream, const kernels *k)
{
  const qn_cuda_driver *driver = NULL;
  begin_fn *begin = NULL;
  end_fn *end = NULL;
  instantiate_fn *instantiate = NULL;
  launch_fn *replay = NULL;
  float values[] = {3, 5}, back[2] = {0};
  void *memory = NULL, *graph = NULL, *exec = NULL;
  bool ok = !qn_cuda_driver_open(&driver);
  void *library = ok ? dlopen(driver->path, RTLD_NOW) : NULL;
  ok = library && qn_cuda_symbol(library, "cuStreamBeginCapture_v2", &begin) &&
       qn_cuda_symbol(library, "cuStreamEndCapture", &end) &&
       qn_cuda_symbol(library, "cuGraphInstantiateWithFlags", &instantiate) &&
       qn_cuda_symbol(library, "cuGraphLaunch", &replay);
  ok = ok && !qn_memory_allocate(device, sizeof values, &memory) &&
       !qn_memory_write(device, stream, memory, values, sizeof values);
  const scale_args args = {memory, 2, 2.0f};
  const qn_launch run = {
      .blocks = 1, .threads = 256, .stream = stream, .argument = &args, .argument_bytes = sizeof args};
  check(ok && begin(stream, 0) == 0 && !qn_backend_cuda.launch(device, k->scale, &run) && end(stream, &graph) == 0,
        "a kernel's first launch is captured: %s", qn_last_error());
  ok = ok && !qn_memory_read(device, stream, back, memory, sizeof back);
  check(ok && back[0] == 3 && back[1] == 5, "nothing ran meanwhile: %g %g", (double)back[0], (double)back[1]);
  qn_cuda_scope scope;
  ok = ok && !qn_cuda_enter(device, &scope);
  ok = ok && instantiate(&exec, graph, 0) == 0 && replay(exec, stream) == 0 && replay(exec, stream) == 0;
  ok = ok && !qn_cuda_leave(&scope, QN_OK) && !qn_memory_read(device, stream, back, memory, sizeof back);
  check(ok && back[0] == 12 && back[1] == 20, "two replays multiply by 2 twice: %g %g", (double)back[0],
        (double)back[1]);
  qn_memory_release(device, memory);
}

static void full_argument(qn_device device, void *stream, const kernels *k)
{
  uint64_t want = 0, got = 0;
  const size_t bytes = sizeof(uint64_t) + k->words * sizeof(uint32_t);
  void *sum = NULL;
  char *argument = qn_allocate_zero(1, k->limit);
  bool ok = argument && !qn_memory_allocate(device, sizeof got, &sum);
  for (size_t w = 0; w < k->words; w++) {
    uint32_t value = (uint32_t)(w * 2654435761u);
    memcpy(argument + sizeof(uint64_t) + w * sizeof value, &value, sizeof value);
    want += value;
  }
  memcpy(argument, &sum, sizeof sum);
  const qn_launch run = {.blocks = 1, .threads = 32, .stream = stream, .argument = argument, .argument_bytes = bytes};
  ok = ok && !qn_backend_cuda.launch(device, k->whole, &run);
  ok = ok && !qn_memory_read(device, stream, &got, sum, sizeof got);
  check(ok && got == want, "an argument of %zu bytes arrives whole (%llx, %llx): %s", bytes, (unsigned long long)got,
        (unsigned long long)want, ok ? "" : qn_last_error());
  qn_memory_release(device, sum);
  qn_release(argument);
}

static void many_launches(qn_device device, void *stream, const kernels *k)
{
  enum { N = 2000 };
  float value = 1, back = 0;
  void *memory = NULL;
  bool ok = !qn_memory_allocate(device, sizeof value, &memory) &&
            !qn_memory_write(device, stream, memory, &value, sizeof value);
  const scale_args args = {memory, 1, -1.0f};
  const qn_launch run = {
      .blocks = 1, .threads = 32, .stream = stream, .argument = &args, .argument_bytes = sizeof args};
  double start = now_ms();
  for (int j = 0; j < N && ok; j++) ok = !qn_backend_cuda.launch(device, k->scale, &run);
  double took = now_ms() - start;
  ok = ok && !qn_memory_read(device, stream, &back, memory, sizeof back);
  check(ok && back == 1, "%d launches ran in order: %g %s", N, (double)back, ok ? "" : qn_last_error());
  printf("# %.2f microseconds of the host's time a launch\n", took * 1e3 / N);
  qn_memory_release(device, memory);
}

static void kernels_run(qn_device device, void *stream)
{
  kernels k;
  if (load_kernels(device, &k)) {
    capture(device, stream, &k);
    full_argument(device, stream, &k);
    many_launches(device, stream, &k);
  }
  qn_backend_cuda.module_unload(device, k.module);
}

static void forked(qn_device device)
{
  fflush(stdout);
  pid_t child = fork();
  void *memory;
  if (!child) {
    alarm(20);
    _exit(qn_memory_allocate(device, 16, &memory) == QN_FORKED ? 0 : 1);
  }
  int status = -1;
  check(waitpid(child, &status, 0) == child && status == 0, "a forked child is told so: 0x%x", status);
}

int main(void)
{
  int n = 0;
  if (!check(!qn_device_count(QN_CUDA, &n), "the driver, if any, works: %s", qn_last_error())) return test_end();
  if (!n) skip("no GPU: %s", qn_last_error());
  for (int k = 0; k < n; k++) {
    const qn_device device = {QN_CUDA, k};
    void *stream = NULL;
    tell(device);
    check(!qn_stream_create(device, &stream), "a stream");
    move_bytes(device, stream);
    move_bytes(device, NULL);
    impossible(device);
    clock_works(device, stream);
    kernels_run(device, stream);
    check(!qn_stream_destroy(device, &stream) && !stream, "the stream is gone");
    forked(device);
  }
  return test_end();
}
