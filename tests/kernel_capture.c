/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_capture.c - what a capture leaves on disk: every byte of the body, header and inputs, a kernel.json that is
 * held against its whole text, a folder for each launch, and nothing outside of start and stop. That the command
 * replays it is the command's test. */
#include "kernel/call.h"
#include "kernel_use.h"
#include "scratch.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char *content(const char *path, size_t *bytes)
{
  FILE *file = fopen(path, "rb");
  char *data = calloc(1, 1 << 16);
  *bytes = file ? fread(data, 1, 1 << 16, file) : 0;
  if (file) fclose(file);
  return data;
}

static bool holds(const char *path, const char *want)
{
  size_t bytes;
  char *data = content(path, &bytes);
  const bool same = bytes == strlen(want) && !memcmp(data, want, bytes);
  if (!same) printf("# %s holds %zu bytes:\n%s\n", path, bytes, data);
  free(data);
  return same;
}

static const char body[] = "uint i = thread_position_in_grid.x;\n// \"quoted\" \\ and \xC3\xA9\nif (i < N)\n"
                           "  out[i] = twice(inp[i * inp_strides[0]]) + lr + float(big) + odd;\n";
static const char header[] = "T twice(T x) { return x + x; }\n";

static const char json[] =
    "{\n"
    "  \"name\": \"whole\",\n"
    "  \"doc\": \"Launch 1 of a capture, on cpu:0\",\n"
    "  \"dialect\": \"metal\",\n"
    "  \"source\": \"whole.metal\",\n"
    "  \"header\": \"whole.header.metal\",\n"
    "  \"math\": \"relaxed\",\n"
    "  \"inputs\": {\"inp\": \"f32 [3]\", \"lr\": \"f32 []\", \"big\": \"i64 []\", \"odd\": \"f32 []\"},\n"
    "  \"outputs\": {\"out\": \"f32 [3]\", \"count\": \"i32 [1]\"},\n"
    "  \"templates\": {\"T\": \"f32\", \"N\": -9223372036854775808, \"YES\": true},\n"
    "  \"strided\": [\"inp\"],\n"
    "  \"atomic\": [\"count\"],\n"
    "  \"init\": {\"out\": 0.5, \"count\": -3},\n"
    "  \"strides\": {\"inp\": [-2]},\n"
    "  \"scalars\": {\"lr\": 0.10000000149011612, \"big\": -9007199254740993},\n"
    "  \"grid\": [3, 1, 1],\n"
    "  \"threadgroup\": [32, 1, 1],\n"
    "  \"inputs_file\": \"inputs.safetensors\"\n"
    "}\n";

static void inputs_are_there(const char *path)
{
  qn_safetensors list;
  size_t bytes;
  char *data = content(path, &bytes);
  const float want[] = {5, 3, 1};
  uint64_t length = 0;
  int64_t big;
  float lr, odd;
  if (!check(!qn_safetensors_read(path, &list) && list.n == 4, "the inputs are a safetensors file: %s",
             qn_last_error()))
    return;
  memcpy(&length, data, 8);
  const char *first = data + 8 + length;
  check(length % 8 == 0 && !strcmp(list.tensor[0].name, "inp") && list.tensor[0].ndim == 1 &&
            list.tensor[0].shape[0] == 3 && !memcmp(first, want, sizeof want),
        "a strided one row by row");
  memcpy(&lr, first + list.tensor[1].begin, 4), memcpy(&big, first + list.tensor[2].begin, 8);
  memcpy(&odd, first + list.tensor[3].begin, 4);
  check(lr == 0.1f && big == -9007199254740993 && isnan(odd), "values with all their bits");
  qn_safetensors_free(&list);
  free(data);
}

static void one_launch(const char *folder)
{
  float data[6] = {1, 2, 3, 4, 5, 6}, out[3], lr = 0.1f, odd = NAN;
  int64_t big = -9007199254740993, shape = 3, stride = -2;
  int32_t count = 0;
  size_t n = 9;
  char path[600];
  qn_kernel *kernel = use_make(&(use){.name = "whole",
                                      .inputs = "inp lr big odd",
                                      .outputs = "out count",
                                      .body = body,
                                      .header = header,
                                      .math = QN_MATH_RELAXED,
                                      .strided = 1,
                                      .atomic = 2});
  qn_tensor in[] = {
      {data + 4, QN_F32, 1, &shape, &stride, cpu}, VALUE(QN_F32, &lr), VALUE(QN_I64, &big), VALUE(QN_F32, &odd)};
  qn_tensor to[] = {ARRAY(out, QN_F32, 3), ARRAY(&count, QN_I32, 1)};
  const qn_template templates[] = {{"T", {.kind = QN_VALUE_DTYPE, .dtype = QN_F32}},
                                   {"N", {.kind = QN_VALUE_INT, .integer = INT64_MIN}},
                                   {"YES", {.kind = QN_VALUE_BOOL, .integer = 1}}};
  const qn_value init[] = {{.kind = QN_VALUE_FLOAT, .real = 0.5}, {.kind = QN_VALUE_INT, .integer = -3}};
  const qn_kernel_call call = CALL(.inputs = in, .outputs = to, .n_templates = 3, .templates = templates, .init = init,
                                   .grid = {3, 1, 1}, .group = {32, 1, 1});
  check(!qn_kernel_launch(kernel, &serial, &call), "a launch before: %s", qn_last_error());
  check(!qn_capture_start(folder), "a capture starts: %s", qn_last_error());
  refuses(qn_capture_start(folder), QN_BAD_ARGUMENT, "one is going on");
  qn_kernel_call wrong = call;
  wrong.grid[0] = 0;
  refuses(qn_kernel_launch(kernel, &serial, &wrong), QN_BAD_ARGUMENT, "grid");
  check(!qn_kernel_launch(kernel, &serial, &call), "a launch within: %s", qn_last_error());
  check(!qn_capture_stop(&n) && n == 1, "it stops, with %zu launches", n);
  check(!qn_kernel_launch(kernel, &serial, &call), "a launch behind");
  refuses(qn_capture_stop(&n), QN_BAD_ARGUMENT, "none is going on");
  check(n == 0 && files_in(folder) == 1, "%d folders are left", files_in(folder));
  snprintf(path, sizeof path, "%s/0001-whole", folder);
  check(files_in(path) == 4, "with %d files", files_in(path));
  snprintf(path, sizeof path, "%s/0001-whole/whole.metal", folder);
  check(holds(path, body), "the body to the byte");
  snprintf(path, sizeof path, "%s/0001-whole/whole.header.metal", folder);
  check(holds(path, header), "the header");
  snprintf(path, sizeof path, "%s/0001-whole/kernel.json", folder);
  check(holds(path, json), "kernel.json");
  snprintf(path, sizeof path, "%s/0001-whole/inputs.safetensors", folder);
  inputs_are_there(path);
  qn_kernel_destroy(&kernel);
}

/* Numbers go on behind what is there; in place and chosen groups are said; the library's own copies are not captured.
 */
static void again(const char *folder)
{
  float data[6] = {1, 2, 3, 4, 5, 6}, own[2] = {7, 8};
  int64_t shape[] = {3, 2}, strides[] = {1, 3};
  size_t n = 0;
  char path[600];
  qn_kernel *kernel = use_make(&(use){.name = "again",
                                      .dialect = QN_DIALECT_CUDA,
                                      .inputs = "a b",
                                      .body = "out[threadIdx.x] = a[threadIdx.x] + b[0];"});
  qn_tensor in[] = {{data, QN_F32, 2, shape, strides, cpu}, ARRAY(own, QN_F32, 2)};
  qn_tensor to = ARRAY(own, QN_F32, 2);
  qn_kernel_call call =
      CALL(.inputs = in, .outputs = &to, .grid = {2, 1, 1}, .group = {2, 1, 1}, .stored_in = (int[]){1});
  check(!qn_capture_start(folder), "another capture into the same folder");
  check(!qn_kernel_launch(kernel, &serial, &call), "a launch in place, with a copy: %s", qn_last_error());
  call.group[0] = call.group[1] = call.group[2] = 0;
  check(!qn_kernel_launch(kernel, &serial, &call), "and one whose group is chosen: %s", qn_last_error());
  float copied[6];
  check(!qn_copy_by_kernel(&serial, &in[0], copied) && copied[1] == 4, "a kernel of the library's own runs");
  check(!qn_capture_stop(&n) && n == 2 && files_in(folder) == 3, "two launches, %d folders", files_in(folder));
  snprintf(path, sizeof path, "%s/0002-again/kernel.json", folder);
  check(holds(path,
              "{\n  \"name\": \"again\",\n  \"doc\": \"Launch 1 of a capture, on cpu:0\",\n  \"dialect\": \"cuda\",\n"
              "  \"source\": \"again.cu\",\n  \"math\": \"safe\",\n"
              "  \"inputs\": {\"a\": \"f32 [3, 2]\", \"b\": \"f32 [2]\"},\n  \"outputs\": {\"out\": \"f32 [2]\"},\n"
              "  \"in_place\": {\"out\": \"b\"},\n  \"strides\": {\"a\": [1, 3]},\n  \"grid\": [2, 1, 1],\n"
              "  \"threadgroup\": [2, 1, 1],\n  \"inputs_file\": \"inputs.safetensors\"\n}\n"),
        "its kernel.json");
  snprintf(path, sizeof path, "%s/0003-again/kernel.json", folder);
  size_t bytes;
  char *text = content(path, &bytes);
  check(bytes && !strstr(text, "threadgroup"), "a chosen group is chosen again");
  free(text);
  qn_kernel_destroy(&kernel);
}

static void trouble(void)
{
  char longer[5000];
  float out[1] = {-1};
  size_t n = 5;
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  refuses(qn_capture_start(NULL), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_capture_start(""), QN_BAD_ARGUMENT, "empty");
  refuses(qn_capture_start(longer), QN_BAD_ARGUMENT, "4999 characters");
  refuses(qn_capture_start("/proc/nowhere/x"), QN_IO_ERROR, "/proc/nowhere/x");
  qn_kernel *kernel = use_make(&(use){.name = "lost", .body = "out[0] = 1;"});
  qn_tensor to = ARRAY(out, QN_F32, 1);
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {1, 1, 1});
  const char *folder = scratch_path("gone");
  check(!qn_capture_start(folder), "a capture whose folder goes away");
  scratch_empty(folder);
  refuses(qn_kernel_launch(kernel, &serial, &call), QN_IO_ERROR, "0001-lost");
  check(out[0] == -1, "the launch that cannot be captured does not run");
  check(!qn_capture_stop(&n) && n == 0, "and does not count");
  check(!qn_kernel_launch(kernel, &serial, &call) && out[0] == 1, "the next one runs");
  qn_kernel_destroy(&kernel);
}

/* ---- a fork in the middle of a launch's files ---- */
static int inside[2], release[2]; /* pipes */
static _Thread_local bool stay;

static void *slow_allocate(void *user, size_t bytes, size_t alignment)
{
  char byte = 0;
  (void)user;
  if (stay) {
    stay = false;
    if (write(inside[1], &byte, 1) != 1 || read(release[0], &byte, 1) != 1) return NULL;
  }
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void slow_release(void *user, void *memory, size_t bytes)
{
  (void)user, (void)bytes;
  free(memory);
}

typedef struct slow_launch {
  qn_kernel *kernel;
  qn_kernel_call call;
  qn_status status;
} slow_launch;

/* A strided input is saved from memory of its own: the capture asks for it with its lock held. */
static void *launch_slowly(void *user)
{
  slow_launch *l = user;
  stay = true;
  l->status = qn_kernel_launch(l->kernel, &serial, &l->call);
  return NULL;
}

static void forked(const char *folder)
{
  float data[4] = {1, 2, 3, 4}, out[2], of_child[2] = {0};
  int64_t every_second = 2;
  char byte = 0;
  size_t n = 0;
  pthread_t thread;
  qn_kernel *kernel = use_make(&(use){.name = "forks",
                                      .inputs = "inp",
                                      .body = "out[thread_position_in_grid.x] = "
                                              "inp[thread_position_in_grid.x] + 1;"});
  qn_tensor from = ARRAY(data, QN_F32, 2), to = ARRAY(out, QN_F32, 2), to_child = ARRAY(of_child, QN_F32, 2);
  const qn_kernel_call plain = CALL(.inputs = &from, .outputs = &to_child, .grid = {2, 1, 1});
  qn_tensor strided = from;
  strided.strides = &every_second;
  slow_launch slow = {kernel, CALL(.inputs = &strided, .outputs = &to, .grid = {2, 1, 1}), QN_OK};
  check(!qn_kernel_launch(kernel, &serial, &plain) && !qn_kernel_launch(kernel, &serial, &slow.call) && !pipe(inside) &&
            !pipe(release) && !qn_allocator_set(&(qn_allocator){slow_allocate, slow_release, NULL}) &&
            !qn_capture_start(folder),
        "a kernel that is compiled, and a capture");
  pthread_create(&thread, NULL, launch_slowly, &slow);
  check(read(inside[0], &byte, 1) == 1, "a thread writes a launch's files");
  const pid_t child = fork();
  if (!child) {
    alarm(20); /* it would wait for ever */
    _exit(qn_kernel_launch(kernel, &serial, &plain) || of_child[1] != 3 || qn_capture_stop(&n) || n != 1);
  }
  int end = -1;
  check(waitpid(child, &end, 0) == child && WIFEXITED(end) && !WEXITSTATUS(end),
        "a child of that moment launches and captures: it ended with %#x", (unsigned)end);
  check(write(release[1], &byte, 1) == 1 && !pthread_join(thread, NULL) && !slow.status && out[1] == 4,
        "the thread goes on: %s", qn_last_error());
  check(!qn_capture_stop(&n) && n == 1, "and the parent has a launch of its own");
  qn_allocator_set(NULL);
  qn_kernel_destroy(&kernel);
}

static void texts(void)
{
  qn_text text = {0};
  qn_json_add_string(&text, "a\"b\\c\n\t\x01\x7F \xC3\xA9 \xF0\x9F\x98\x80 \xFF \xC0\xAF \xED\xA0\x80 \xE2\x82");
  check(!strcmp(text.at, "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f \xC3\xA9 \xF0\x9F\x98\x80 \\ufffd \\ufffd\\ufffd "
                         "\\ufffd\\ufffd\\ufffd \\ufffd\\ufffd\""),
        "strings are escaped: %s", text.at);
  text.length = 0;
  qn_json_add_real(&text, 0.1), qn_json_add_real(&text, 3), qn_json_add_real(&text, -INFINITY);
  qn_json_add_real(&text, 1e300);
  check(!strcmp(text.at, "0.100000000000000013.0\"-inf\"1.0000000000000001e+300"), "numbers are real: %s", text.at);
  qn_text_free(&text);
  int64_t none = 0, two = 2;
  const char *path = scratch_path("some.safetensors");
  qn_safetensors list;
  qn_safetensor_made made[] = {{"empty", QN_BF16, 1, &none, NULL}, {"a\"b", QN_U16, 1, &two, "abcd"}};
  check(!qn_safetensors_write(path, made, 2, NULL) && !qn_safetensors_read(path, &list) && list.n == 2,
        "tensors are written and read: %s", qn_last_error());
  qn_safetensors_free(&list);
  refuses(qn_safetensors_write(path, made, 2, NULL), QN_IO_ERROR, "some.safetensors");
  made[0].dtype = QN_NONE;
  refuses(qn_safetensors_write(scratch_path("x"), made, 2, NULL), QN_BAD_ARGUMENT, "\"empty\"");
}

int main(void)
{
  scratch_begin();
  qn_option_set("cache_dir", scratch_path("cache"));
  char folder[512];
  snprintf(folder, sizeof folder, "%s", scratch_path("a/b/captured"));
  one_launch(folder);
  again(folder);
  trouble();
  snprintf(folder, sizeof folder, "%s", scratch_path("forked"));
  forked(folder);
  texts();
  return test_end();
}
