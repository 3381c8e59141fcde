/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the public calls of quern/device.h: names, every refusal of an argument, and a round trip on the kinds
 * that every machine has. Real and mocked GPUs are for cuda_real.c and cuda_mock.c. */
#include "quern/device.h"
#include "test.h"
#include <limits.h>

static const qn_device cpu = {QN_CPU, 0}, emulator = {QN_EMULATOR, 0};

static void names(void)
{
  static const struct {
    const char *name;
    qn_device device;
  } good[] = {{"cpu", {QN_CPU, 0}},       {"cuda", {QN_CUDA, 0}},     {"emulator", {QN_EMULATOR, 0}},
              {"emu", {QN_EMULATOR, 0}},  {"host", {QN_EMULATOR, 0}}, {"cuda:0", {QN_CUDA, 0}},
              {"cuda:17", {QN_CUDA, 17}}, {"cpu:0", {QN_CPU, 0}}};
  for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
    qn_device device = {QN_DEVICE_KIND_COUNT, -1};
    qn_status status = qn_device_from_name(good[k].name, &device);
    check(!status && device.kind == good[k].device.kind && device.index == good[k].device.index, "\"%s\" is %s:%d",
          good[k].name, qn_device_kind_name(device.kind), device.index);
  }
  qn_device device = {QN_EMULATOR, 5};
  refuses(qn_device_from_name("gpu", &device), QN_BAD_ARGUMENT, "\"gpu\" is no device; did you mean \"cuda\"?");
  refuses(qn_device_from_name("cdua", &device), QN_BAD_ARGUMENT, "\"cdua\" is no device; did you mean \"cuda\"?");
  refuses(qn_device_from_name("cdua:1", &device), QN_BAD_ARGUMENT, "did you mean \"cuda\"?");
  refuses(qn_device_from_name("CPU", &device), QN_BAD_ARGUMENT, "did you mean \"cpu\"?");
  refuses(qn_device_from_name("", &device), QN_BAD_ARGUMENT, "\"cuda:1\"");
  refuses(qn_device_from_name("a name that is much longer than that of any device", &device), QN_BAD_ARGUMENT,
          "is no device");
  refuses(qn_device_from_name("cuda:", &device), QN_BAD_ARGUMENT, "after the colon");
  refuses(qn_device_from_name("cuda:-1", &device), QN_BAD_ARGUMENT, "after the colon");
  refuses(qn_device_from_name("cuda:1x", &device), QN_BAD_ARGUMENT, "after the colon");
  refuses(qn_device_from_name("cuda:99999999999", &device), QN_BAD_ARGUMENT, "after the colon");
  refuses(qn_device_from_name("cpu:1", &device), QN_BAD_ARGUMENT, "there is only cpu:0");
  refuses(qn_device_from_name(NULL, &device), QN_BAD_ARGUMENT, "name is NULL");
  refuses(qn_device_from_name("cpu", NULL), QN_BAD_ARGUMENT, "result is NULL");
  check(device.kind == QN_EMULATOR && device.index == 5, "a refused name changes nothing");
  check(!strcmp(qn_device_kind_name((qn_device_kind)99), "unknown"), "no name for a kind that is none");
}

static void kinds_and_indices(void)
{
  void *memory = &memory;
  int n = 7;
  refuses(qn_memory_allocate((qn_device){(qn_device_kind)9, 0}, 1, &memory), QN_BAD_ARGUMENT, "9 is no kind");
  check(!memory, "a result is NULL after a refusal");
  refuses(qn_memory_allocate((qn_device){QN_CUDA, -2}, 1, &memory), QN_BAD_ARGUMENT, "index -2");
  refuses(qn_memory_allocate((qn_device){QN_CPU, 1}, 1, &memory), QN_NO_DEVICE, "there is only cpu:0");
  refuses(qn_stream_synchronize((qn_device){QN_EMULATOR, INT_MAX}, NULL), QN_NO_DEVICE, "there is only emulator:0");
  refuses(qn_device_count((qn_device_kind)-1, &n), QN_BAD_ARGUMENT, "-1 is no kind");
  check(n == 0, "a refused count is 0");
  refuses(qn_device_count(QN_CPU, NULL), QN_BAD_ARGUMENT, "result is NULL");
  check(qn_device_count(QN_CPU, &n) == QN_OK && n == 1, "there is one cpu");
}

static void arguments(qn_device device)
{
  char byte = 0;
  void *stream = &byte;
  qn_event *event = NULL;
  double ns;
  qn_device_info info = {.size = sizeof info};
  refuses(qn_memory_allocate(device, 1, NULL), QN_BAD_ARGUMENT, "result is NULL");
  refuses(qn_memory_write(device, NULL, NULL, &byte, 3), QN_BAD_ARGUMENT, "write: 3 bytes, and the target is NULL");
  refuses(qn_memory_read(device, NULL, &byte, NULL, 1), QN_BAD_ARGUMENT, "read: 1 bytes, and the source is NULL");
  refuses(qn_memory_copy(device, NULL, NULL, NULL, 1), QN_BAD_ARGUMENT, "target is NULL");
  refuses(qn_memory_fill(device, NULL, NULL, 0, 1), QN_BAD_ARGUMENT, "target is NULL");
  check(!qn_memory_write(device, NULL, NULL, &byte, 0) && !qn_memory_read(device, NULL, NULL, NULL, 0) &&
            !qn_memory_copy(device, NULL, NULL, NULL, 0) && !qn_memory_fill(device, NULL, NULL, 0, 0),
        "no bytes may be anywhere");
  refuses(qn_stream_create(device, NULL), QN_BAD_ARGUMENT, "result is NULL");
  check(!qn_stream_create(device, &stream) && !stream, "a stream is NULL here");
  check(!qn_stream_destroy(device, &stream) && !qn_stream_destroy(device, NULL), "destroying none is fine");
  refuses(qn_event_create(device, NULL), QN_BAD_ARGUMENT, "result is NULL");
  refuses(qn_event_record(device, NULL, NULL), QN_BAD_ARGUMENT, "event: it is NULL");
  check(!qn_event_destroy(device, &event) && !qn_event_destroy(device, NULL), "nor is destroying no event an error");
  check(!qn_event_create(device, &event) && event, "an event");
  refuses(qn_event_elapsed(device, event, NULL, &ns), QN_BAD_ARGUMENT, "event: it is NULL");
  refuses(qn_event_elapsed(device, event, event, NULL), QN_BAD_ARGUMENT, "result is NULL");
  qn_device elsewhere = device.kind == QN_CPU ? emulator : cpu;
  refuses(qn_event_record(elsewhere, NULL, event), QN_BAD_ARGUMENT, "it belongs to");
  check(!qn_event_destroy(device, &event) && !event, "it is gone, and its pointer NULL");
  refuses(qn_device_query(device, NULL), QN_BAD_ARGUMENT, "info is NULL");
  info.size = sizeof info - 1;
  refuses(qn_device_query(device, &info), QN_BAD_ARGUMENT, "info->size");
  info.size = sizeof info;
  check(!qn_device_query(device, &info) && *info.name && info.multiprocessors > 0 && info.memory_bytes > 0,
        "%s, %d threads", info.name, info.multiprocessors);
}

static void round_trip(qn_device device)
{
  char out[300], back[300];
  void *a, *b;
  qn_event *from = NULL, *to = NULL;
  double ns = -1;
  for (size_t k = 0; k < sizeof out; k++) out[k] = (char)(k * 7);
  check(!qn_memory_allocate(device, sizeof out, &a) && !qn_memory_allocate(device, sizeof out, &b) &&
            (uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0,
        "%s memory is aligned to 256 bytes", qn_device_kind_name(device.kind));
  check(!qn_event_create(device, &from) && !qn_event_create(device, &to) && !qn_event_record(device, NULL, from),
        "a clock starts");
  check(!qn_memory_write(device, NULL, a, out, sizeof out) && !qn_memory_copy(device, NULL, b, a, sizeof out) &&
            !qn_memory_fill(device, NULL, (char *)b + 100, 0xAB, 50) &&
            !qn_memory_read(device, NULL, back, b, sizeof back),
        "bytes are written, copied, filled and read");
  memset(out + 100, 0xAB, 50);
  check(!memcmp(out, back, sizeof out), "and are the same");
  check(!qn_event_record(device, NULL, to) && !qn_event_elapsed(device, from, to, &ns) && ns >= 0, "in %.0f ns", ns);
  check(!qn_event_destroy(device, &from) && !qn_event_destroy(device, &to) && !qn_memory_release(device, a) &&
            !qn_memory_release(device, b) && !qn_memory_release(device, NULL),
        "all is given back");
  void *none = &none;
  refuses(qn_memory_allocate(device, SIZE_MAX / 8, &none), QN_NO_MEMORY, "2305843009213693951");
  check(!none, "no pointer comes of it");
  check(!qn_memory_allocate(device, 0, &none) && !none, "no bytes are NULL");
}

int main(void)
{
  names();
  kinds_and_indices();
  arguments(cpu);
  arguments(emulator);
  round_trip(cpu);
  round_trip(emulator);
  return test_end();
}
