/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the processor as a device: memory from the allocation hooks, work done when a call returns, a clock for
 * events. It runs no device kernels: ops have CPU kernels of their own, by tier. Arguments were checked in device.c. */
#include "core/core.h"
#include "device/host.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY_ALIGNMENT = 256 };

typedef struct clock_event {
  qn_event event; /* first: the public calls read it */
  struct timespec at;
  bool recorded;
} clock_event;

static qn_status count(int *n)
{
  *n = 1;
  return QN_OK;
}

/* The beginning of a small text file of the kernel's; "" if there is none. */
static void read_text(const char *path, char *text, size_t bytes)
{
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = file < 0 ? 0 : read(file, text, bytes - 1);
  text[n > 0 ? n : 0] = 0;
  if (file >= 0) close(file);
}

/* The text behind "key" and its colon among such lines; NULL if there is none. */
static const char *field(const char *text, const char *key)
{
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += strspn(line, "\n");
    const char *colon = strchr(line, ':');
    if (!strncmp(line, key, strlen(key)) && colon) return colon + 1 + strspn(colon + 1, " \t");
  }
  return NULL;
}

static void processor_name(char *name, size_t bytes)
{
  char text[4096];
  struct utsname machine;
  read_text("/proc/cpuinfo", text, sizeof text);
  const char *model = field(text, "model name");
  if (model)
    snprintf(name, bytes, "%.*s", (int)strcspn(model, "\n"), model);
  else if (!uname(&machine))
    snprintf(name, bytes, "%s processor", machine.machine);
  else
    snprintf(name, bytes, "unknown processor");
}

static int usable_threads(void)
{
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
  long n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than a cpu_set_t holds */
  return n > 0 ? (int)n : 1;
}

/* The size of the outermost cache as the kernel tells it, 0 if it does not. */
static int64_t last_cache_bytes(void)
{
  char path[96], text[32];
  int64_t bytes = 0;
  long outermost = 0;
  for (int k = 0; k < 8; k++) {
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", k);
    read_text(path, text, sizeof text);
    long level = strtol(text, NULL, 10);
    if (level <= outermost) continue;
    outermost = level;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", k);
    read_text(path, text, sizeof text);
    char *unit;
    bytes = strtoll(text, &unit, 10) * (*unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1);
  }
  if (!bytes) bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : 0;
}

static qn_status query(qn_device device, qn_device_info *info)
{
  (void)device;
  char text[2048];
  const size_t size = info->size;
  *info = (qn_device_info){.size = size, .multiprocessors = usable_threads(), .l2_bytes = last_cache_bytes()};
  processor_name(info->name, sizeof info->name);
  read_text("/proc/meminfo", text, sizeof text);
  const char *total = field(text, "MemTotal"), *available = field(text, "MemAvailable");
  info->memory_bytes = total ? strtoll(total, NULL, 10) * 1024 : 0;
  info->free_bytes = available ? strtoll(available, NULL, 10) * 1024 : 0;
  return QN_OK;
}

qn_status qn_host_memory_allocate(qn_device device, size_t bytes, void **memory)
{
  (void)device;
  *memory = qn_allocate_aligned(bytes, MEMORY_ALIGNMENT);
  return *memory ? QN_OK : qn_fail(QN_NO_MEMORY, "cpu: %zu bytes could not be allocated", bytes);
}

qn_status qn_host_memory_release(qn_device device, void *memory)
{
  (void)device;
  qn_release(memory);
  return QN_OK;
}

qn_status qn_host_memory_move(qn_device device, void *stream, void *target, const void *source, size_t bytes)
{
  (void)device;
  (void)stream;
  if (bytes) memmove(target, source, bytes);
  return QN_OK;
}

qn_status qn_host_memory_fill(qn_device device, void *stream, void *target, unsigned char value, size_t bytes)
{
  (void)device;
  (void)stream;
  if (bytes) memset(target, value, bytes);
  return QN_OK;
}

qn_status qn_host_stream_create(qn_device device, void **stream)
{
  (void)device;
  *stream = NULL;
  return QN_OK;
}

qn_status qn_host_stream_destroy(qn_device device, void **stream) { return qn_host_stream_create(device, stream); }

qn_status qn_host_stream_synchronize(qn_device device, void *stream)
{
  (void)device;
  (void)stream;
  return QN_OK;
}

qn_status qn_host_event_create(qn_device device, qn_event **event)
{
  clock_event *made = qn_allocate_zero(1, sizeof *made);
  if (!made) return qn_fail(QN_NO_MEMORY, "event: %zu bytes could not be allocated", sizeof *made);
  made->event.device = device;
  *event = &made->event;
  return QN_OK;
}

qn_status qn_host_event_destroy(qn_device device, qn_event **event)
{
  (void)device;
  qn_release(*event);
  *event = NULL;
  return QN_OK;
}

qn_status qn_host_event_record(qn_device device, void *stream, qn_event *event)
{
  (void)device;
  (void)stream;
  clock_event *clock = (clock_event *)event;
  clock_gettime(CLOCK_MONOTONIC_RAW, &clock->at);
  clock->recorded = true;
  return QN_OK;
}

qn_status qn_host_event_elapsed(qn_device device, qn_event *from, qn_event *to, double *ns)
{
  (void)device;
  const clock_event *a = (const clock_event *)from, *b = (const clock_event *)to;
  qn_require(a->recorded && b->recorded, "event: the %s one was never recorded", a->recorded ? "second" : "first");
  *ns = (double)(b->at.tv_sec - a->at.tv_sec) * 1e9 + (double)(b->at.tv_nsec - a->at.tv_nsec);
  return QN_OK;
}

const qn_backend qn_backend_cpu = {
    .kind = QN_CPU,
    .count = count,
    .query = query,
    QN_HOST_MEMORY,
};
