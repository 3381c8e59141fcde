/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_mock.c - the CUDA backend against a driver that fails on order: what is absent, too old or incomplete is named,
 * any call may fail at any time and leaves nothing behind, work goes to its device, and a launch is one launch. What
 * the numbers are is for a real GPU (cuda_real.c). */
#include "core/core.h"
#include "device/backend.h"
#include "device/cuda/driver.h"
#include "jit/jit.h"
#include "mock/scenario.h"
#include <pthread.h>

static const qn_device gpu = {QN_CUDA, 0}, second = {QN_CUDA, 1};
static const qn_unit unit = {.source = "unit.cu", .text = "extern \"C\" __global__ void turn() {}\n"};

static bool says(const char *words) { return strstr(qn_last_error(), words) != NULL; }

/* ---- what cannot be used ---- */

static void no_driver(void)
{
  int n = -1;
  qn_device_info info = {.size = sizeof info};
  check(qn_device_count(QN_CUDA, &n) == QN_OK && n == 0, "without a driver there are 0 devices");
  check(says("/nowhere/libcuda.so"), "and the reason names the library");
  refuses(qn_device_query(gpu, &info), QN_NO_LIBRARY, "/nowhere/libcuda.so");
}

static void no_cuda_driver(void)
{
  int n = -1;
  refuses(qn_device_count(QN_CUDA, &n), QN_UNSUPPORTED, "cuDriverGetVersion");
  check(n == 0, "a count that fails leaves 0, not %d", n);
}

static void too_old(void)
{
  int n = -1;
  refuses(qn_device_count(QN_CUDA, &n), QN_UNSUPPORTED, "CUDA 11.8");
  check(says("12.0"), "the sentence says what is needed");
}

static void no_get_proc_address(void)
{
  int n = -1;
  refuses(qn_device_count(QN_CUDA, &n), QN_UNSUPPORTED, "cuGetProcAddress_v2");
}

static void missing(void)
{
  int n = -1;
  refuses(qn_device_count(QN_CUDA, &n), QN_UNSUPPORTED, strchr(getenv("QUERN_MOCK"), '=') + 1);
}

static void no_device(void)
{
  int n = -1;
  void *memory;
  check(qn_device_count(QN_CUDA, &n) == QN_OK && n == 0, "a driver may see no device");
  check(says("sees no device"), "and the reason says so");
  refuses(qn_memory_allocate(gpu, 16, &memory), QN_NO_DEVICE, "cuda:0");
}

static void unusable(void)
{
  scenario("/nowhere/libcuda.so", "", MOCK_NVRTC, "", no_driver);
  scenario("libm.so.6", "", MOCK_NVRTC, "", no_cuda_driver);
  scenario(MOCK_CUDA, "version=11080", MOCK_NVRTC, "", too_old);
  scenario(MOCK_CUDA_OLD, "", MOCK_NVRTC, "", no_get_proc_address);
  scenario(MOCK_CUDA, "devices=0", MOCK_NVRTC, "", no_device);
#define X(name, signature) scenario(MOCK_CUDA, "missing=" #name, MOCK_NVRTC, "", missing);
  QN_CUDA_DRIVER_MAP(X)
#undef X
}

/* ---- a call that fails ---- */

/* The resources of a run; finish frees them, however far the run came. */
typedef struct held {
  void *memory, *stream;
  qn_event *from, *to;
  qn_module *module;
  qn_device_function *function;
} held;

static qn_status prepare(const qn_backend *cuda, held *h)
{
  qn_image image;
  qn_device_info info = {.size = sizeof info};
  int n;
  qn_try(qn_device_count(QN_CUDA, &n));
  qn_try(qn_device_query(gpu, &info));
  qn_try(qn_memory_allocate(gpu, 256, &h->memory));
  qn_try(qn_stream_create(gpu, &h->stream));
  qn_try(qn_event_create(gpu, &h->from));
  qn_try(qn_event_create(gpu, &h->to));
  qn_try(cuda->compile(gpu, &unit, &image));
  qn_status status = cuda->module_load(gpu, image.data, image.bytes, &h->module);
  qn_image_free(&image);
  return status ? status : cuda->module_function(gpu, h->module, "turn", &h->function);
}

static qn_status work(const qn_backend *cuda, const held *h)
{
  char bytes[256] = "written", back[256] = "";
  double ns;
  const int argument = 5;
  const qn_launch run = {
      .blocks = 3, .threads = 32, .stream = h->stream, .argument = &argument, .argument_bytes = sizeof argument};
  qn_try(qn_event_record(gpu, h->stream, h->from));
  qn_try(qn_memory_write(gpu, h->stream, h->memory, bytes, 128));
  qn_try(qn_memory_copy(gpu, h->stream, (char *)h->memory + 128, h->memory, 128));
  qn_try(qn_memory_fill(gpu, h->stream, h->memory, 'x', 7));
  qn_try(cuda->launch(gpu, h->function, &run));
  qn_try(qn_event_record(gpu, h->stream, h->to));
  qn_try(qn_event_elapsed(gpu, h->from, h->to, &ns));
  qn_try(qn_stream_synchronize(gpu, h->stream));
  qn_try(qn_memory_read(gpu, NULL, back, h->memory, sizeof back));
  bool right = !memcmp(back, "xxxxxxx", 7) && !strcmp(back + 128, "written");
  return right ? QN_OK : qn_fail(QN_DRIVER_ERROR, "the bytes read are not those written");
}

/* Gives all back; what fails is tried once more, as only one call fails, but for a context that could not be put back
 * after the work was done. The first failure is the status. */
static qn_status finish(held *h)
{
  qn_status first = QN_OK;
  for (int attempt = 0; attempt < 2; attempt++) {
    qn_status status;
#define GIVE_BACK(call, member)                                                                                        \
  if (h->member) {                                                                                                     \
    status = call;                                                                                                     \
    if (!status || says("cuCtxPopCurrent")) h->member = NULL;                                                          \
    if (!first) first = status;                                                                                        \
  }
    GIVE_BACK(qn_event_destroy(gpu, &h->from), from)
    GIVE_BACK(qn_event_destroy(gpu, &h->to), to)
    GIVE_BACK(qn_stream_destroy(gpu, &h->stream), stream)
    GIVE_BACK(qn_memory_release(gpu, h->memory), memory)
#undef GIVE_BACK
  }
  return first;
}

static qn_status everything(held *h)
{
  const qn_backend *cuda;
  qn_try(qn_backend_of(gpu, &cuda));
  qn_status status = prepare(cuda, h);
  if (!status) status = work(cuda, h);
  qn_status finished = finish(h);
  return status ? status : finished;
}

static size_t *calls_of_a_run; /* shared with the children */

static void clean_run(void)
{
  held h = {0};
  check(everything(&h) == QN_OK, "every call works: %s", qn_last_error());
  *calls_of_a_run = mock()->calls(NULL);
  qn_backend_cuda.module_unload(gpu, h.module);
  check(mock()->live() == 0, "nothing is left, of %zu calls", mock()->calls(NULL));
  check(mock()->depth() == 0, "as many contexts popped as pushed");
  check(mock()->retained(0) == 1, "the primary context is retained once");
  check(mock()->calls("cuMemAlloc") == 1 && mock()->launches() == 1, "one allocation and one launch were made");
}

/* The k-th call gives error 700: the status names that call and that error, and the next try works. */
static void failing_run(void)
{
  held h = {0};
  size_t k = strtoul(strchr(getenv("QUERN_MOCK"), '=') + 1, NULL, 10);
  qn_status status = everything(&h);
  char sentence[1024];
  snprintf(sentence, sizeof sentence, "%s", qn_last_error());
  const char *name = mock()->call_name(k);
  bool stuck = !strcmp(name, "cuCtxPopCurrent"); /* a context that cannot be popped stays */
  bool named =
      status == QN_DRIVER_ERROR && strstr(sentence, name) && strstr(sentence, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  qn_backend_cuda.module_unload(gpu, h.module);
  bool balanced = mock()->live() == 0 && mock()->depth() == (stuck ? 1 : 0);
  held again = {0};
  bool works = everything(&again) == QN_OK;
  qn_backend_cuda.module_unload(gpu, again.module);
  bool once = mock()->retained(0) == 1 && mock()->live() == 0;
  check(named && balanced && works && once, "call %zu, %s, fails: %s (%snamed, %sbalanced, the next try %s)", k, name,
        sentence, named ? "" : "not ", balanced ? "" : "not ", works && once ? "works" : "fails");
}

static void failures(void)
{
  char script[32];
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", clean_run);
  check(*calls_of_a_run > 40, "a run makes %zu calls of the driver", *calls_of_a_run);
  for (size_t k = 1; k <= *calls_of_a_run; k++) {
    snprintf(script, sizeof script, "fail=%zu:700", k);
    scenario(MOCK_CUDA, script, MOCK_NVRTC, "", failing_run);
  }
}

/* ---- memory ---- */

static void memory_limits(void)
{
  void *memory = &memory;
  refuses(qn_memory_allocate(gpu, (size_t)1 << 40, &memory), QN_NO_MEMORY, "1099511627776 bytes asked for");
  check(says("1048576 of 1048576 are free"), "and how much there is: %s", qn_last_error());
  check(!memory, "no pointer comes out of a refusal");
  refuses(qn_memory_allocate(gpu, SIZE_MAX, &memory), QN_NO_MEMORY, "cuda:0");
  check(qn_memory_allocate(gpu, 4096, &memory) == QN_OK && memory, "what fits is given afterwards");
  check((uintptr_t)memory % 256 == 0, "256-byte aligned");
  void *second_half = NULL;
  refuses(qn_memory_allocate(gpu, (1 << 20) - 4095, &second_half), QN_NO_MEMORY, "1044480 of 1048576 are free");
  mock()->fail_next(3, CU_OUT_OF_MEMORY); /* behind the current context and its push */
  refuses(qn_memory_allocate(gpu, 64, &second_half), QN_NO_MEMORY, "64 bytes asked for");
  check(qn_memory_release(gpu, memory) == QN_OK && mock()->live() == 0, "and taken back");
  check(qn_memory_release(gpu, NULL) == QN_OK, "NULL is fine");
  check(qn_memory_allocate(gpu, 0, &memory) == QN_OK && !memory, "no bytes are NULL");
}

/* ---- several devices and contexts ---- */

static qn_status turn_on(qn_device device, void *stream)
{
  qn_image image;
  qn_module *module;
  qn_device_function *function;
  const qn_launch run = {.blocks = 1, .threads = 1, .stream = stream};
  qn_try(qn_backend_cuda.compile(device, &unit, &image));
  qn_status status = qn_backend_cuda.module_load(device, image.data, image.bytes, &module);
  qn_image_free(&image);
  qn_try(status);
  status = qn_backend_cuda.module_function(device, module, "turn", &function);
  if (!status) status = qn_backend_cuda.launch(device, function, &run);
  qn_backend_cuda.module_unload(device, module);
  return status;
}

static void two_devices(void)
{
  void *memory, *stream;
  char byte = 1;
  qn_event *event;
  double ns;
  check(qn_memory_allocate(second, 100, &memory) == QN_OK, "memory of the second device");
  check(mock()->live_bytes(1) == 100 && mock()->live_bytes(0) == 0, "is the second device's");
  check(mock()->retained(0) == 0 && mock()->retained(1) == 1, "and the first one was not opened");
  check(qn_memory_write(second, NULL, memory, &byte, 1) == QN_OK, "it is written there");
  refuses(qn_memory_write(gpu, NULL, memory, &byte, 1), QN_DRIVER_ERROR, "cuda:0: cuMemcpyHtoDAsync");
  check(qn_stream_create(second, &stream) == QN_OK && turn_on(second, stream) == QN_OK,
        "a kernel runs on a stream there");
  check(mock()->launches() == 1 && mock()->launch(0)->device == 1 && mock()->launch(0)->stream == stream,
        "on that device and stream");
  refuses(turn_on(gpu, stream), QN_DRIVER_ERROR, "cuda:0: cuLaunchKernel: CUDA_ERROR_INVALID_HANDLE");
  check(qn_event_create(second, &event) == QN_OK, "an event of the second device");
  refuses(qn_event_record(gpu, NULL, event), QN_BAD_ARGUMENT, "belongs to cuda:1");
  refuses(qn_event_elapsed(second, event, event, &ns), QN_DRIVER_ERROR, "cuEventElapsedTime");
  check(qn_event_destroy(second, &event) == QN_OK && qn_stream_destroy(second, &stream) == QN_OK &&
            qn_memory_release(second, memory) == QN_OK && mock()->live() == 0,
        "all is given back");
  refuses(qn_memory_allocate((qn_device){QN_CUDA, 2}, 1, &memory), QN_NO_DEVICE, "cuda:2: there are 2, 0 to 1");
}

/* One device's findings and loaded modules are not another's. */
static void kernels_of_two_devices(void)
{
  const qn_device_function *of_first = NULL, *of_second = NULL;
  const qn_launch run = {.blocks = 1, .threads = 1};
  check(!qn_jit_function(gpu, &unit, "turn", &of_first) && !qn_jit_function(second, &unit, "turn", &of_second) &&
            of_first != of_second && mock()->calls("cuLibraryLoadData") == 2,
        "two devices load a kernel each");
  check(!qn_backend_cuda.launch(second, of_second, &run) && mock()->launch(0)->device == 1, "which runs there");
}

static void contexts(void)
{
  void *memory;
  check(qn_memory_allocate(gpu, 64, &memory) == QN_OK, "memory, no context being current");
  mock()->push(-1);
  check(qn_memory_fill(gpu, NULL, memory, 0, 64) == QN_OK && mock()->depth() == 1, "a caller's context comes back");
  mock()->push(0);
  size_t pushes = mock()->calls("cuCtxPushCurrent");
  check(qn_memory_fill(gpu, NULL, memory, 0, 64) == QN_OK && mock()->calls("cuCtxPushCurrent") == pushes,
        "the device's own context, if current, is not pushed again");
  check(mock()->depth() == 2, "nor popped");
  char byte = 0;
  size_t waits = mock()->calls("cuStreamSynchronize");
  check(!qn_memory_write(gpu, NULL, memory, &byte, 1) && mock()->calls("cuStreamSynchronize") == waits + 1 &&
            !qn_memory_read(gpu, NULL, &byte, memory, 1) && mock()->calls("cuStreamSynchronize") == waits + 2 &&
            !qn_memory_copy(gpu, NULL, memory, memory, 1) && mock()->calls("cuStreamSynchronize") == waits + 2,
        "writing and reading wait, copying does not");
  qn_memory_release(gpu, memory);
}

/* ---- launches ---- */

static void launches(void)
{
  qn_image image;
  qn_module *module;
  qn_device_function *function;
  size_t limit = 0;
  const qn_backend *cuda = &qn_backend_cuda;
  qn_status status = cuda->compile(gpu, &unit, &image);
  if (!status) status = cuda->module_load(gpu, image.data, image.bytes, &module);
  if (!status) status = cuda->module_function(gpu, module, "turn", &function);
  check(!status, "a kernel is ready: %s", qn_last_error());
  if (status) return;
  refuses(cuda->module_function(gpu, module, "absent", &(qn_device_function *){NULL}), QN_DRIVER_ERROR,
          "cuLibraryGetKernel(\"absent\"): CUDA_ERROR_NOT_FOUND");
  const int argument = 5;
  qn_launch run = {.blocks = 7, .threads = 256, .argument = &argument, .argument_bytes = sizeof argument};
  size_t before = mock()->calls(NULL);
  check(cuda->launch(gpu, function, &run) == QN_OK, "it is launched");
  const mock_launch *seen = mock()->launch(0);
  check(mock()->calls(NULL) - before == 4, "by 4 calls: which context, push, launch, pop");
  check(seen && !strcmp(seen->kernel, "turn") && seen->blocks == 7 && seen->threads == 256 && seen->argument == 5,
        "as it was said");
  run.blocks = (uint64_t)1 << 31;
  refuses(cuda->launch(gpu, function, &run), QN_BAD_ARGUMENT, "2147483648 blocks");
  run.blocks = 1;
  run.threads = 1025;
  refuses(cuda->launch(gpu, function, &run), QN_BAD_ARGUMENT, "1025 threads");
  run.threads = 1;
  check(cuda->argument_limit(gpu, &limit) == QN_OK, "the limit of an argument is %zu", limit);
  run.argument_bytes = limit + 1;
  refuses(cuda->launch(gpu, function, &run), QN_BAD_ARGUMENT, "bytes; at most");
  run.argument_bytes = run.blocks = 0;
  check(cuda->launch(gpu, function, &run) == QN_OK && mock()->launches() == 1, "no blocks are no launch");
  cuda->module_unload(gpu, module);
  qn_image_free(&image);
  check(mock()->live() == 0, "the module is gone");
  size_t want = strtoul(strchr(getenv("QUERN_MOCK"), ':') + 1, NULL, 10); /* behind the words that the mock reads */
  check(limit == want, "an argument may have %zu bytes, not %zu", want, limit);
}

/* ---- fork and threads ---- */

static void forked(void)
{
  void *memory;
  int n;
  check(qn_memory_allocate(gpu, 16, &memory) == QN_OK, "the driver is open");
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(20);
    bool refused = qn_memory_allocate(gpu, 16, &memory) == QN_FORKED && qn_device_count(QN_CUDA, &n) == QN_FORKED &&
                   qn_backend_cuda.target(gpu, (char[512]){0}, 512) == QN_FORKED && strstr(qn_last_error(), "forked");
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  check(waitpid(child, &status, 0) == child && status == 0, "a child is told so, and does not hang: 0x%x", status);
  check(qn_memory_release(gpu, memory) == QN_OK, "the parent goes on");
}

static void *open_and_fill(void *start)
{
  void *memory = NULL;
  pthread_barrier_wait(start);
  qn_status status = qn_memory_allocate(gpu, 32, &memory);
  if (!status) status = qn_memory_fill(gpu, NULL, memory, 1, 32);
  if (!status) status = qn_memory_release(gpu, memory);
  return status ? start : NULL;
}

static void many_threads(void)
{
  enum { N = 16 };
  pthread_t thread[N];
  pthread_barrier_t start;
  int failed = 0;
  pthread_barrier_init(&start, NULL, N);
  for (int k = 0; k < N; k++) pthread_create(&thread[k], NULL, open_and_fill, &start);
  for (int k = 0; k < N; k++) {
    void *result;
    pthread_join(thread[k], &result);
    failed += result != NULL;
  }
  pthread_barrier_destroy(&start);
  check(!failed, "%d threads open the device at once, %d of them in vain", N, failed);
  check(mock()->calls("cuInit") == 1 && mock()->retained(0) == 1, "it is opened once");
}

/* ---- what is told ---- */

/* Either path may go through symbolic links. */
static bool is_file(const char *path, const char *same) { return strstr(path, strrchr(same, '/')) != NULL; }

static void told(void)
{
  qn_device_info info = {.size = sizeof info};
  check(qn_device_query(second, &info) == QN_OK, "a device tells about itself: %s", qn_last_error());
  check(!strcmp(info.name, "Mock GPU 1") && info.arch == 86 && info.multiprocessors == 4, "%s, sm_%d", info.name,
        info.arch);
  check(info.memory_bytes == 1 << 20 && info.free_bytes == 1 << 20 && info.l2_bytes == 1 << 20, "its memory");
  check(info.driver_version == 12020 && is_file(info.driver_path, MOCK_CUDA), "driver %d at %s", info.driver_version,
        info.driver_path);
  check(info.compiler_version == 12040 && is_file(info.compiler_path, MOCK_NVRTC), "compiler %d at %s",
        info.compiler_version, info.compiler_path);
  info.size = 8;
  refuses(qn_device_query(second, &info), QN_BAD_ARGUMENT, "info->size is 8");
}

static void no_compiler(void)
{
  qn_device_info info = {.size = sizeof info};
  check(qn_device_query(gpu, &info) == QN_OK && info.compiler_version == 0 && !*info.compiler_path,
        "a device without a compiler is a device");
  check(says("/nowhere/libnvrtc.so"), "the sentence says what is missing: %s", qn_last_error());
}

int main(void)
{
  calls_of_a_run = mmap(NULL, sizeof *calls_of_a_run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  unusable();
  failures();
  scenario(MOCK_CUDA, "memory=1048576", MOCK_NVRTC, "", memory_limits);
  scenario(MOCK_CUDA, "devices=2", MOCK_NVRTC, "", two_devices);
  scenario(MOCK_CUDA, "devices=2", MOCK_NVRTC, "", kernels_of_two_devices);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", contexts);
  scenario(MOCK_CUDA, "want:32764", MOCK_NVRTC, "", launches);
  scenario(MOCK_CUDA, "version=12000,want:4096", MOCK_NVRTC, "version=12010", launches);
  scenario(MOCK_CUDA, "version=12010,want:32764", MOCK_NVRTC, "version=12010", launches);
  scenario(MOCK_CUDA, "arch=61,want:4096", MOCK_NVRTC, "archs=61:75", launches);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", forked);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", many_threads);
  scenario(MOCK_CUDA, "devices=2,arch=86,version=12020,memory=1048576", MOCK_NVRTC, "version=12040", told);
  scenario(MOCK_CUDA, "", "/nowhere/libnvrtc.so", "", no_compiler);
  return test_end();
}
