/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_launch.c - what the CUDA backend does with a kernel once it is loaded, against the driver of mock/: launches in
 * three dimensions with dynamic shared memory arrive as they were said or are refused with a sentence before the driver
 * sees them, facts about a kernel are the driver's, and a wait ends at its limit. Whether the kernels compute right is
 * for a real GPU. */
#include "core/core.h"
#include "device/backend.h"
#include "device/cuda/driver.h"
#include "mock/scenario.h"
#include <time.h>

static const qn_device gpu = {QN_CUDA, 0};
static const qn_backend *const cuda = &qn_backend_cuda;
static const qn_unit unit = {.source = "unit.cu", .text = "extern \"C\" __global__ void turn() {}\n"};

static qn_device_function *load(qn_module **module, const char *name)
{
  qn_image image;
  qn_device_function *function = NULL;
  qn_status status = cuda->compile(gpu, &unit, &image);
  if (!status) status = cuda->module_load(gpu, image.data, image.bytes, module);
  if (!status) status = cuda->module_function(gpu, *module, name, &function);
  qn_image_free(&image);
  if (!check(!status, "kernel %s is ready: %s", name, qn_last_error())) exit(EXIT_FAILURE);
  return function;
}

static void in_three_dimensions(void)
{
  qn_module *module;
  qn_device_function *turn = load(&module, "turn");
  qn_launch run = {
      .blocks = 2147483647, .blocks_y = 65535, .blocks_z = 65535, .threads = 4, .threads_y = 4, .threads_z = 64};
  check(!cuda->launch(gpu, turn, &run), "the largest of all launches: %s", qn_last_error());
  const mock_launch *seen = mock()->launch(0);
  check(seen && seen->blocks == 2147483647 && seen->blocks_yz[0] == 65535 && seen->blocks_yz[1] == 65535 &&
            seen->threads == 4 && seen->threads_yz[0] == 4 && seen->threads_yz[1] == 64 && !seen->shared_bytes,
        "arrives as it was said");
  run = (qn_launch){.blocks = 1, .threads = 1};
  check(!cuda->launch(gpu, turn, &run), "what is not said is 1");
  seen = mock()->launch(1);
  check(seen && seen->blocks_yz[0] == 1 && seen->blocks_yz[1] == 1 && seen->threads_yz[0] == 1 &&
            seen->threads_yz[1] == 1,
        "in every dimension");
  run.blocks_y = 65536;
  refuses(cuda->launch(gpu, turn, &run), QN_BAD_ARGUMENT,
          "65536 blocks along y and 1 along z; a launch takes at most 65535");
  run.blocks_y = 1, run.blocks_z = 70000;
  refuses(cuda->launch(gpu, turn, &run), QN_BAD_ARGUMENT, "70000 along z");
  run.blocks_z = 1, run.threads = 32, run.threads_y = 33;
  refuses(cuda->launch(gpu, turn, &run), QN_BAD_ARGUMENT, "1056 threads a block; it takes 1 to 1024");
  run.threads = 65536, run.threads_y = 65536, run.threads_z = 2; /* 2^33: more than 32 bits hold */
  refuses(cuda->launch(gpu, turn, &run), QN_BAD_ARGUMENT, "8589934592 threads a block");
  run.threads = 1, run.threads_y = 1, run.threads_z = 65;
  refuses(cuda->launch(gpu, turn, &run), QN_BAD_ARGUMENT, "65 threads along z; a block takes at most 64");
  run.threads_z = 1, run.threads = 0;
  refuses(cuda->launch(gpu, turn, &run), QN_BAD_ARGUMENT, "0 threads a block");
  check(mock()->launches() == 2, "and the driver saw none of those");
  cuda->module_unload(gpu, module);
}

static void shared_memory(void)
{
  qn_module *module;
  qn_device_function *kernel = load(&module, "static1024");
  qn_launch run = {.blocks = 1, .threads = 32, .shared_bytes = 47 << 10};
  check(!cuda->launch(gpu, kernel, &run) && mock()->launch(0)->shared_bytes == 47 << 10, "47 KiB and 1 of its own");
  check(mock()->calls("cuFuncSetAttribute") == 0, "need no leave");
  run.shared_bytes++;
  check(!cuda->launch(gpu, kernel, &run) && mock()->calls("cuFuncSetAttribute") == 1, "a byte more needs it: %s",
        qn_last_error());
  run.shared_bytes = 226 << 10;
  check(!cuda->launch(gpu, kernel, &run) && mock()->launch(2)->shared_bytes == 226 << 10,
        "and the device's limit works: %s", qn_last_error());
  run.shared_bytes++;
  refuses(cuda->launch(gpu, kernel, &run), QN_BAD_ARGUMENT,
          "231425 bytes of shared memory a block, and 1024 of its own; the device has 232448");
  run.shared_bytes = UINT32_MAX;
  refuses(cuda->launch(gpu, kernel, &run), QN_BAD_ARGUMENT, "4294967295 bytes of shared memory");
  check(mock()->launches() == 3 && mock()->depth() == 0, "what is refused is not launched, and no context is left");
  mock()->fail_next(3, 700); /* behind which context and push */
  run.shared_bytes = 100 << 10;
  refuses(cuda->launch(gpu, kernel, &run), QN_DRIVER_ERROR, "cuFuncSetAttribute");
  check(mock()->launches() == 3 && mock()->depth() == 0, "nor what could not be allowed");
  cuda->module_unload(gpu, module);
}

static void small_device(void)
{
  qn_module *module;
  qn_device_function *kernel = load(&module, "turn");
  qn_launch run = {.blocks = 1, .threads = 32, .shared_bytes = 49152};
  check(!cuda->launch(gpu, kernel, &run), "an older device has 48 KiB");
  run.shared_bytes++;
  refuses(cuda->launch(gpu, kernel, &run), QN_BAD_ARGUMENT, "the device has 49152");
  cuda->module_unload(gpu, module);
}

static void facts(void)
{
  qn_module *module;
  qn_function_facts f;
  int groups = -1;
  qn_device_function *light = load(&module, "static1024");
  check(!cuda->function_facts(gpu, light, &f), "facts: %s", qn_last_error());
  check(f.registers == 16 && f.shared_bytes == 1024 && !f.local_bytes && f.most_threads == 1024 && !f.fibers &&
            f.shared_limit_bytes == 227 << 10,
        "%d registers, %d bytes shared of %u, %d local, at most %d threads", f.registers, f.shared_bytes,
        f.shared_limit_bytes, f.local_bytes, f.most_threads);
  check(f.best_threads == 256, "where several sizes keep all threads at work, %u is taken", f.best_threads);
  check(!cuda->groups_at_once(gpu, light, 512, 0, &groups) && groups == 4, "%d groups of 512 at once", groups);
  check(!cuda->groups_at_once(gpu, light, 512, 100 << 10, &groups) && groups == 2, "%d with 100 KiB each: %s", groups,
        qn_last_error());
  refuses(cuda->groups_at_once(gpu, light, 512, 1 << 20, &groups), QN_BAD_ARGUMENT, "1048576 bytes of shared memory");
  refuses(cuda->groups_at_once(gpu, light, 2048, 0, &groups), QN_DRIVER_ERROR, "cuOccupancyMaxActiveBlocks");
  qn_device_function *heavy = NULL;
  check(!cuda->module_function(gpu, module, "heavy", &heavy) && !cuda->function_facts(gpu, heavy, &f) &&
            f.registers == 96 && f.local_bytes == 24 && f.most_threads == 96 && f.best_threads == 64,
        "a kernel with many registers takes %u of its at most %d threads", f.best_threads, f.most_threads);
  for (size_t k = 1; k <= 4; k++) {
    mock()->fail_next(k + 1, 700);
    check(cuda->function_facts(gpu, light, &f) == QN_DRIVER_ERROR && mock()->depth() == 0, "call %zu fails: %s", k + 1,
          qn_last_error());
  }
  char name[200];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = 0;
  check(!cuda->module_function(gpu, module, name, &heavy), "a name may be long: %s", qn_last_error());
  cuda->module_unload(gpu, module);
  check(mock()->live() == 0, "all is given back");
}

static double now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void waits(void)
{
  bool done = true;
  double start = now_ms();
  check(!cuda->stream_await(gpu, NULL, 2000000, &done) && !done, "a stream that stays busy is told so");
  check(now_ms() - start >= 2, "not before the limit: %.2f ms", now_ms() - start);
  check(!cuda->stream_await(gpu, NULL, INT64_MAX, &done) && done, "one that comes to its end, too: %s",
        qn_last_error());
  check(!cuda->stream_await(gpu, NULL, 0, &done) && done, "and a limit of 0 only asks");
  refuses(cuda->stream_await(gpu, &done, 0, &done), QN_DRIVER_ERROR, "cuStreamQuery: CUDA_ERROR_INVALID_HANDLE");
  check(!done && mock()->depth() == 0, "which is not done");
}

int main(void)
{
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", in_three_dimensions);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", shared_memory);
  scenario(MOCK_CUDA, "arch=61", MOCK_NVRTC, "archs=61:75", small_device);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", facts);
  scenario(MOCK_CUDA, "busy=400", MOCK_NVRTC, "", waits);
  return test_end();
}
