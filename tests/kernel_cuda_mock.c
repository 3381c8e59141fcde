/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cuda_mock.c - launches of kernels from a body on CUDA, against the driver and compiler of mock/: which
 * launches with which geometry arrive, in which order with copies and first values, what is refused before anything
 * happens, and that a call of the driver's that fails is told and leaves nothing behind. What kernels compute is
 * kernel_cuda.c's. */
#include "kernel/folder.h"
#include "kernel_use.h"
#include "mock/scenario.h"
#include "scratch.h"

static const qn_device gpu = {QN_CUDA, 0};
static qn_exec on_gpu = {.size = sizeof on_gpu, .device = {QN_CUDA, 0}};

static void *device_memory(size_t bytes)
{
  void *memory = NULL;
  if (qn_memory_allocate(gpu, bytes, &memory)) check(false, "memory: %s", qn_last_error());
  return memory;
}

static qn_tensor of_gpu(qn_tensor t, void *data)
{
  t.data = data, t.device = gpu;
  return t;
}

/* Launches a kernel that writes one output; what the driver saw of the latest launch. */
static const mock_launch *seen(const use *u, const uint64_t grid[3], const uint32_t group[3], size_t shared_bytes)
{
  static void *memory;
  if (!memory) memory = device_memory(256);
  const int64_t one = 1;
  const qn_tensor to = {memory, QN_F32, 1, &one, NULL, gpu};
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {grid[0], grid[1], grid[2]},
                                   .group = {group[0], group[1], group[2]}, .shared_bytes = shared_bytes);
  qn_kernel *kernel = use_make(u);
  const size_t before = mock()->launches();
  const bool ok = check(!qn_kernel_launch(kernel, &on_gpu, &call) && mock()->launches() == before + 1, "one launch: %s",
                        qn_last_error());
  qn_kernel_destroy(&kernel);
  static const mock_launch none;
  return ok ? mock()->launch(before) : &none;
}
#define SEEN(u, gx, gy, gz, tx, ty, tz, shared) seen((u), (uint64_t[]){gx, gy, gz}, (uint32_t[]){tx, ty, tz}, (shared))

static void geometry(void)
{
  const use metal = {.name = "in_metal", .body = "out[0] = thread_position_in_threadgroup.x;"};
  const use cuda = {.name = "cuda", .dialect = QN_DIALECT_CUDA, .body = "out[0] = threadIdx.y + blockIdx.z;"};
  const mock_launch *l = SEEN(&metal, 1000, 1, 1, 256, 1, 1, 0);
  check(!strcmp(l->kernel, "quern_in_metal") && l->blocks == 4 && l->threads == 256 && l->blocks_yz[0] == 1,
        "Metal, flat: %u blocks of %u", l->blocks, l->threads);
  l = SEEN(&metal, 33, 70000, 2, 8, 4, 4, 0);
  check(l->blocks == 5 * 17500 * 1 && l->threads == 128 && l->blocks_yz[0] == 1 && l->threads_yz[0] == 1,
        "Metal, in three dimensions, is laid along x: %u blocks of %u", l->blocks, l->threads);
  l = SEEN(&cuda, 33, 9, 130, 8, 4, 2, 0);
  check(l->blocks == 5 && l->blocks_yz[0] == 3 && l->blocks_yz[1] == 65 && l->threads == 8 && l->threads_yz[0] == 4 &&
            l->threads_yz[1] == 2,
        "CUDA has its own: %u %u %u blocks", l->blocks, l->blocks_yz[0], l->blocks_yz[1]);
  l = SEEN(&cuda, 3, 65535, 1, 1, 1, 1, 0);
  check(l->blocks == 3 && l->blocks_yz[0] == 65535, "up to 65,535 along y");
  l = SEEN(&cuda, 3, 65536, 2, 1, 1, 1, 0);
  check(l->blocks == 3 * 65536 * 2 && l->blocks_yz[0] == 1 && l->blocks_yz[1] == 1, "beyond, blocks are folded: %u",
        l->blocks);
  l = SEEN(&cuda, 1, 1, 70000, 1, 1, 1, 0);
  check(l->blocks == 70000 && l->blocks_yz[1] == 1, "along z too: %u", l->blocks);
  l = SEEN(&cuda, 64, 1, 1, 64, 1, 1, 100 << 10);
  check(l->shared_bytes == 100 << 10, "dynamic shared memory: %u bytes", l->shared_bytes);
  l = SEEN(&metal, 5000, 1, 1, 0, 0, 0, 0);
  check(l->threads == 256 && l->blocks == 20, "a chosen group has %u threads", l->threads);
  l = SEEN(&metal, 3, 5000, 1, 0, 0, 0, 0);
  check(l->threads == 256 && l->blocks == 79, "in two dimensions too: %u blocks of %u", l->blocks, l->threads);
  check(strstr(qn_last_error(), "refused") == NULL, "nothing was refused");
}

static void math_modes(void)
{
  const char *(*options)(void);
  const char *const wanted[] = {"--fmad=false", "--fmad=true", "--use_fast_math"};
  for (int math = 0; math < 3; math++) {
    SEEN(&((use){.name = "mode", .math = (qn_math)math, .body = "out[0] = 1;"}), 1, 1, 1, 1, 1, 1, 0);
    mock_symbol(MOCK_NVRTC, "mock_nvrtc_options", &options);
    check(strstr(options(), wanted[math]) != NULL, "math mode %d compiles with %s: %s", math, wanted[math], options());
  }
}

/* ---- copies, first values ---- */

static void around(void)
{
  const int64_t shape[] = {5, 7}, strides[] = {1, 8}, extent = 35;
  float host[64], back[64];
  for (int k = 0; k < 64; k++) host[k] = (float)k;
  qn_tensor in = {NULL, QN_F32, 2, shape, strides, gpu}, to[3];
  size_t bytes = 0;
  void *stream = NULL;
  in.data = device_memory(sizeof host);
  for (int k = 0; k < 3; k++) to[k] = (qn_tensor){device_memory(35 * 4), QN_F32, 1, &extent, NULL, gpu};
  qn_kernel *kernel =
      use_make(&(use){.name = "around", .inputs = "a", .outputs = "p q r", .body = "p[0] = a[0]; q[0] = r[0] = 1;"});
  const qn_value init[] = {{.kind = QN_VALUE_INT}, {.kind = QN_VALUE_NONE}, {.kind = QN_VALUE_FLOAT, .real = 1.5}};
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = to, .init = init, .grid = {35, 1, 1}, .group = {32, 1, 1});
  check(!qn_memory_write(gpu, NULL, in.data, host, sizeof host) && !qn_memory_fill(gpu, NULL, to[0].data, 0xEE, 140) &&
            !qn_kernel_workspace_bytes(kernel, &call, &bytes) && bytes == 144,
        "a copy of %zu bytes: %s", bytes, qn_last_error());
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_BAD_ARGUMENT, "need a workspace of 144 bytes, 0 are lent");
  qn_exec exec = on_gpu;
  exec.workspace = device_memory(256);
  exec.workspace_bytes = 143;
  refuses(qn_kernel_launch(kernel, &exec, &call), QN_BAD_ARGUMENT, "143 are lent");
  exec.workspace = (char *)exec.workspace + 4, exec.workspace_bytes = 200;
  refuses(qn_kernel_launch(kernel, &exec, &call), QN_BAD_ARGUMENT, "aligned to 16");
  exec.workspace = (char *)exec.workspace - 4;
  check(!qn_memory_read(gpu, NULL, back, to[0].data, 140) && ((unsigned char *)back)[0] == 0xEE && !mock()->launches(),
        "what is refused launches and fills nothing");
  check(!qn_stream_create(gpu, &stream), "a stream");
  exec.stream = stream;
  check(!qn_kernel_prepare(kernel, &exec, &call) && !mock()->launches(), "a launch made ready launches nothing: %s",
        qn_last_error());
  const size_t loads = mock()->calls("cuLibraryLoadData");
  const size_t fills = mock()->calls("cuMemsetD8Async");
  check(!qn_kernel_launch(kernel, &exec, &call), "a launch with a copy and first values: %s", qn_last_error());
  check(mock()->launches() == 3 && !strcmp(mock()->launch(0)->kernel, "quern_copy") &&
            !strcmp(mock()->launch(1)->kernel, "quern_fill") && !strcmp(mock()->launch(2)->kernel, "quern_around"),
        "is a copy, a fill and the kernel, of %zu launches", mock()->launches());
  check(mock()->calls("cuMemsetD8Async") == fills + 1, "and a fill by the driver, where all bytes are 0");
  check(loads == 2 && mock()->calls("cuLibraryLoadData") == loads, "%zu modules were loaded before, none then", loads);
  bool same = true;
  for (size_t k = 0; k < mock()->launches(); k++) same &= mock()->launch(k)->stream == stream;
  check(same, "all on the call's stream");
  check(!qn_memory_read(gpu, NULL, back, to[0].data, 140) && back[0] == 0 && back[34] == 0, "zeros are there");
  qn_kernel_destroy(&kernel);
  qn_stream_destroy(gpu, &stream);
}

/* ---- refusals that only a device can say ---- */

static void limits(void)
{
  const qn_tensor to = of_gpu(ARRAY(NULL, QN_F32, 1), device_memory(16));
  qn_kernel *kernel = use_make(&(use){.name = "limits", .dialect = QN_DIALECT_CUDA, .body = "out[0] = threadIdx.z;"});
  qn_value init = {.kind = QN_VALUE_INT};
  qn_kernel_call call = CALL(.outputs = &to, .init = &init, .grid = {1, 1, 128}, .group = {1, 1, 128});
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_BAD_ARGUMENT, "CUDA takes at most 64 along z");
  call.group[2] = 64;
  call.shared_bytes = 228 << 10;
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_BAD_ARGUMENT, "233472 bytes of shared memory a group");
  call.shared_bytes = 0;
  check(!mock()->launches() && !mock()->calls("cuMemsetD8Async"), "what is refused fills nothing");
  qn_kernel_info info = {.size = sizeof info};
  check(!qn_kernel_query(kernel, &on_gpu, &call, &info) && info.registers == 16 && info.most_threads == 1024 &&
            info.groups_at_once == 32,
        "%d registers, %d groups at once", info.registers, info.groups_at_once);
  call.check = 1;
  check(qn_kernel_launch(kernel, &on_gpu, &call) && mock()->launches() == 0, "checks are the processor's: %s",
        qn_last_error());
  call.check = 0;
  qn_tensor lost = to;
  lost.device = cpu;
  call.outputs = &lost;
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_BAD_ARGUMENT, "out lies on cpu:0, the launch is for cuda:0");
  qn_kernel_destroy(&kernel);
}

static void clusters(void)
{
  const int64_t one = 1;
  const qn_tensor to = {device_memory(16), QN_F32, 1, &one, NULL, gpu};
  const use few = {.name = "few", .dialect = QN_DIALECT_CUDA, .body = "out[0] = 1;", .cluster = 8};
  const mock_launch *l = SEEN(&few, 16 * 32, 1, 1, 32, 1, 1, 0);
  check(l->blocks == 16 && l->threads == 32 && !mock()->calls("cuFuncSetAttribute"), "two clusters of 8 blocks");
  const use many = {.name = "many", .dialect = QN_DIALECT_CUDA, .body = "out[0] = 1;", .cluster = 12};
  qn_kernel *kernel = use_make(&many);
  qn_kernel_call call = CALL(.outputs = &to, .grid = {12 * 32, 1, 1}, .group = {32, 1, 1});
  for (int k = 0; k < 2; k++) check(!qn_kernel_launch(kernel, &on_gpu, &call), "a cluster of 12: %s", qn_last_error());
  check(mock()->calls("cuFuncSetAttribute") == 1, "more than 8 blocks are allowed once");
  const size_t before = mock()->launches();
  call.grid[0] = 13 * 32;
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_BAD_ARGUMENT,
          "a grid of 416 x 1 x 1 threads is not one of whole");
  call.grid[0] = 12 * 32 - 1;
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_BAD_ARGUMENT, "is not one of whole clusters of 12 groups");
  call.grid[0] = 12 * 32, call.group[0] = call.group[1] = call.group[2] = 0;
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_BAD_ARGUMENT,
          "with a cluster of blocks a call gives the thread");
  check(mock()->launches() == before, "what is refused launches nothing");
  qn_kernel_destroy(&kernel);
}

static void no_clusters(void)
{
  const int64_t one = 1;
  const qn_tensor to = {device_memory(16), QN_F32, 1, &one, NULL, gpu};
  qn_kernel *kernel =
      use_make(&(use){.name = "older", .dialect = QN_DIALECT_CUDA, .body = "out[0] = 1;", .cluster = 2});
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {64, 1, 1}, .group = {32, 1, 1});
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_UNSUPPORTED,
          "a cluster of 2 blocks needs a GPU of compute capability 9.0 or above");
  qn_kernel_destroy(&kernel);
}

static void time_limit(void)
{
  const qn_tensor to = of_gpu(ARRAY(NULL, QN_F32, 1), device_memory(16));
  qn_kernel *kernel = use_make(&(use){.name = "slow", .body = "out[0] = 1;"});
  qn_kernel_call call = CALL(.outputs = &to, .grid = {1, 1, 1}, .limit_ns = 1000000);
  refuses(qn_kernel_launch(kernel, &on_gpu, &call), QN_KERNEL_ERROR, "slow");
  check(mock()->launches() == 1, "it runs on: %s", qn_last_error());
  call.limit_ns = INT64_MAX;
  check(!qn_kernel_launch(kernel, &on_gpu, &call), "one that ends in time is no error: %s", qn_last_error());
  qn_kernel_destroy(&kernel);
}

/* ---- a capture reads back ---- */

static void captured(void)
{
  const float host[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape = 3, stride = 2;
  qn_safetensors list;
  size_t n = 0;
  char path[600];
  float values[3];
  scratch_begin();
  const char *folder = scratch_path("captured");
  qn_tensor in = {device_memory(24), QN_F32, 1, &shape, &stride, gpu},
            to = {device_memory(12), QN_F32, 1, &shape, NULL, gpu};
  qn_kernel *kernel = use_make(&(use){.name = "held", .inputs = "a", .strided = 1, .body = "out[0] = a[0];"});
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = &to, .grid = {3, 1, 1});
  check(!qn_memory_write(gpu, NULL, in.data, host, 24) && !qn_capture_start(folder) &&
            !qn_kernel_launch(kernel, &on_gpu, &call) && !qn_capture_stop(&n) && n == 1,
        "a launch on a GPU is captured: %s", qn_last_error());
  snprintf(path, sizeof path, "%s/0001-held/inputs.safetensors", folder);
  check(!qn_safetensors_read(path, &list) && list.n == 1, "with its input: %s", qn_last_error());
  FILE *file = fopen(path, "rb");
  check(file && !fseek(file, -12, SEEK_END) && fread(values, 4, 3, file) == 3 && values[0] == 1 && values[1] == 3 &&
            values[2] == 5,
        "row by row: %g %g %g", (double)values[0], (double)values[1], (double)values[2]);
  if (file) fclose(file);
  qn_safetensors_free(&list);
  qn_kernel_destroy(&kernel);
}

static void captured_cluster(void)
{
  const int64_t one = 1;
  const qn_tensor to = {device_memory(16), QN_F32, 1, &one, NULL, gpu};
  size_t n = 0;
  char path[600];
  qn_folder *folder = NULL;
  qn_folder_source made;
  scratch_begin();
  const char *all = scratch_path("captured");
  qn_kernel *kernel = use_make(&(use){.name = "near", .dialect = QN_DIALECT_CUDA, .body = "out[0] = 1;", .cluster = 4});
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {128, 1, 1}, .group = {32, 1, 1});
  check(!qn_capture_start(all) && !qn_kernel_launch(kernel, &on_gpu, &call) && !qn_capture_stop(&n) && n == 1,
        "a launch of a cluster is captured: %s", qn_last_error());
  snprintf(path, sizeof path, "%s/0001-near", all);
  if (check(!qn_folder_read(path, &folder), "and read: %s", qn_last_error())) {
    check(!qn_folder_source_make(&made, folder, &folder->body, NULL) && made.source.cluster == 4, "with its cluster");
    qn_folder_source_free(&made);
  }
  qn_folder_free(&folder);
  qn_kernel_destroy(&kernel);
}

/* ---- every call of the driver may fail ---- */
static size_t *calls_of_a_run;

static qn_status whole_run(void)
{
  const int64_t shape[] = {2, 3}, strides[] = {1, 2};
  void *a = NULL, *b = NULL, *w = NULL;
  qn_kernel *kernel = NULL;
  qn_status status = qn_memory_allocate(gpu, 64, &a);
  if (!status) status = qn_memory_allocate(gpu, 64, &b);
  if (!status) status = qn_memory_allocate(gpu, 64, &w);
  if (!status) status = use_create(&kernel, &(use){.name = "whole", .inputs = "a", .body = "out[0] = a[0];"});
  const qn_exec exec = {.size = sizeof exec, .device = gpu, .workspace = w, .workspace_bytes = 64};
  const qn_tensor in = {a, QN_F32, 2, shape, strides, gpu}, to = {b, QN_F32, 2, shape, NULL, gpu};
  const qn_value init = {.kind = QN_VALUE_INT, .integer = 1};
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = &to, .init = &init, .grid = {6, 1, 1});
  if (!status) status = qn_kernel_launch(kernel, &exec, &call);
  qn_kernel_destroy(&kernel);
  void *all[] = {a, b, w};
  for (int k = 0; k < 3; k++) {
    qn_status freed = qn_memory_release(gpu, all[k]);
    if (freed && !strstr(qn_last_error(), "cuCtxPopCurrent"))
      freed = qn_memory_release(gpu, all[k]) ? freed : QN_DRIVER_ERROR;
    if (!status) status = freed;
  }
  return status;
}

static void clean_run(void)
{
  check(!whole_run(), "every call works: %s", qn_last_error());
  *calls_of_a_run = mock()->calls(NULL);
}

static void failing_run(void)
{
  const size_t k = strtoul(strchr(getenv("QUERN_MOCK"), '=') + 1, NULL, 10);
  const qn_status status = whole_run();
  const char *name = mock()->call_name(k);
  const bool told = status == QN_DRIVER_ERROR, again = whole_run() == QN_OK;
  check(told && again, "call %zu, %s, fails: %stold, the next try %s", k, name, told ? "" : "not ",
        again ? "works" : "fails");
}

int main(void)
{
  calls_of_a_run = mmap(NULL, sizeof *calls_of_a_run, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", geometry);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", math_modes);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", around);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", limits);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", clusters);
  scenario(MOCK_CUDA, "arch=89", MOCK_NVRTC, "", no_clusters);
  scenario(MOCK_CUDA, "busy=100", MOCK_NVRTC, "", time_limit);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", captured);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", captured_cluster);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", clean_run);
  char script[32];
  for (size_t k = 1; k <= *calls_of_a_run; k++) {
    snprintf(script, sizeof script, "fail=%zu:700", k);
    scenario(MOCK_CUDA, script, MOCK_NVRTC, "", failing_run);
  }
  return test_end();
}
