/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - the public calls of quern/device.h: each checks its arguments once and hands on to the backend of the
 * device's kind. Whether a device of that index exists is for the backend to say. */
#include "core/core.h"
#include "device/backend.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[QN_DEVICE_KIND_COUNT + 1] = {"cpu", "cuda", "emulator", NULL};

const char *qn_device_kind_name(qn_device_kind kind)
{
  return (unsigned)kind < QN_DEVICE_KIND_COUNT ? kind_names[kind] : "unknown";
}

/* "emu" is short for the emulator; "host" is its former name, accepted for one more release. */
static int kind_of(const char *name, size_t length)
{
  if (length == 3 && !strncmp(name, "emu", length)) return QN_EMULATOR;
  if (length == 4 && !strncmp(name, "host", length)) return QN_EMULATOR;
  for (int k = 0; k < QN_DEVICE_KIND_COUNT; k++)
    if (strlen(kind_names[k]) == length && !strncmp(kind_names[k], name, length)) return k;
  return -1;
}

static qn_status refuse_name(const char *name, size_t length)
{
  char word[32] = "";
  if (length < sizeof word) memcpy(word, name, length);
  const char *nearest = *word ? qn_nearest(word, kind_names) : NULL;
  if (!strcmp(word, "gpu") || !strcmp(word, "GPU") || !strcmp(word, "nvidia")) nearest = kind_names[QN_CUDA];
  if (nearest) return qn_fail(QN_BAD_ARGUMENT, "\"%.64s\" is no device; did you mean \"%s\"?", name, nearest);
  return qn_fail(QN_BAD_ARGUMENT, "\"%.64s\" is no device; \"cpu\", \"cuda\", \"cuda:1\" and \"emulator\" are", name);
}

qn_status qn_device_from_name(const char *name, qn_device *device)
{
  qn_require(name && device, "device: the %s is NULL", name ? "result" : "name");
  size_t length = strcspn(name, ":");
  int kind = kind_of(name, length);
  if (kind < 0) return refuse_name(name, length);
  long index = 0;
  if (name[length]) {
    const char *digits = name + length + 1;
    bool number = *digits && strspn(digits, "0123456789") == strlen(digits) && strlen(digits) < 10;
    qn_require(number, "\"%.64s\" is no device: after the colon stands its number, as in \"cuda:1\"", name);
    index = strtol(digits, NULL, 10);
  }
  qn_require(kind == QN_CUDA || !index, "\"%.64s\": there is only %s:0", name, kind_names[kind]);
  *device = (qn_device){(qn_device_kind)kind, (int)index};
  return QN_OK;
}

static const qn_backend *const backends[QN_DEVICE_KIND_COUNT] = {&qn_backend_cpu, &qn_backend_cuda,
                                                                 &qn_backend_emulator};

qn_status qn_backend_of(qn_device device, const qn_backend **backend)
{
  qn_require((unsigned)device.kind < QN_DEVICE_KIND_COUNT, "device: %d is no kind of device", (int)device.kind);
  qn_require(device.index >= 0, "device: index %d of %s is negative", device.index, kind_names[device.kind]);
  if (device.kind != QN_CUDA && device.index)
    return qn_fail(QN_NO_DEVICE, "%s:%d: there is only %s:0", kind_names[device.kind], device.index,
                   kind_names[device.kind]);
  *backend = backends[device.kind];
  return QN_OK;
}

qn_status qn_device_count(qn_device_kind kind, int *count)
{
  const qn_backend *backend;
  qn_require(count, "device count: the result is NULL");
  *count = 0;
  qn_try(qn_backend_of((qn_device){kind, 0}, &backend));
  return backend->count(count);
}

qn_status qn_device_query(qn_device device, qn_device_info *info)
{
  const qn_backend *backend;
  qn_require(info, "device query: info is NULL");
  qn_require(info->size >= sizeof *info, "device query: info->size is %zu, not sizeof(qn_device_info), %zu", info->size,
             sizeof *info);
  qn_try(qn_backend_of(device, &backend));
  qn_device_info filled = {.size = info->size};
  qn_try(backend->query(device, &filled));
  *info = filled;
  return QN_OK;
}

/* ---- memory ---- */

qn_status qn_memory_allocate(qn_device device, size_t bytes, void **memory)
{
  const qn_backend *backend;
  qn_require(memory, "memory: the result is NULL");
  *memory = NULL;
  qn_try(qn_backend_of(device, &backend));
  return bytes ? backend->memory_allocate(device, bytes, memory) : QN_OK; /* no bytes: NULL, as of an empty tensor */
}

qn_status qn_memory_release(qn_device device, void *memory)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(device, &backend));
  return memory ? backend->memory_release(device, memory) : QN_OK;
}

/* Checks shared by the calls that move bytes; the backend checks their streams. */
static qn_status check_move(const char *call, qn_device device, const void *target, const void *source, size_t bytes,
                            const qn_backend **backend)
{
  qn_try(qn_backend_of(device, backend));
  qn_require(!bytes || (target && source), "memory %s: %zu bytes, and the %s is NULL", call, bytes,
             target ? "source" : "target");
  return QN_OK;
}

qn_status qn_memory_write(qn_device device, void *stream, void *target, const void *source, size_t bytes)
{
  const qn_backend *backend;
  qn_try(check_move("write", device, target, source, bytes, &backend));
  return bytes ? backend->memory_write(device, stream, target, source, bytes) : QN_OK;
}

qn_status qn_memory_read(qn_device device, void *stream, void *target, const void *source, size_t bytes)
{
  const qn_backend *backend;
  qn_try(check_move("read", device, target, source, bytes, &backend));
  return bytes ? backend->memory_read(device, stream, target, source, bytes) : QN_OK;
}

qn_status qn_memory_copy(qn_device device, void *stream, void *target, const void *source, size_t bytes)
{
  const qn_backend *backend;
  qn_try(check_move("copy", device, target, source, bytes, &backend));
  return bytes ? backend->memory_copy(device, stream, target, source, bytes) : QN_OK;
}

qn_status qn_memory_fill(qn_device device, void *stream, void *target, unsigned char value, size_t bytes)
{
  const qn_backend *backend;
  qn_try(check_move("fill", device, target, target, bytes, &backend));
  return bytes ? backend->memory_fill(device, stream, target, value, bytes) : QN_OK;
}

/* ---- streams and events ---- */

qn_status qn_stream_create(qn_device device, void **stream)
{
  const qn_backend *backend;
  qn_require(stream, "stream: the result is NULL");
  *stream = NULL;
  qn_try(qn_backend_of(device, &backend));
  return backend->stream_create(device, stream);
}

qn_status qn_stream_destroy(qn_device device, void **stream)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(device, &backend));
  return stream && *stream ? backend->stream_destroy(device, stream) : QN_OK;
}

qn_status qn_stream_synchronize(qn_device device, void *stream)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(device, &backend));
  return backend->stream_synchronize(device, stream);
}

static qn_status check_event(qn_device device, const qn_event *event)
{
  qn_require(event, "event: it is NULL");
  qn_require(event->device.kind == device.kind && event->device.index == device.index,
             "event: it belongs to %s:%d, and is used on %s:%d", qn_device_kind_name(event->device.kind),
             event->device.index, qn_device_kind_name(device.kind), device.index);
  return QN_OK;
}

qn_status qn_event_create(qn_device device, qn_event **event)
{
  const qn_backend *backend;
  qn_require(event, "event: the result is NULL");
  *event = NULL;
  qn_try(qn_backend_of(device, &backend));
  return backend->event_create(device, event);
}

qn_status qn_event_destroy(qn_device device, qn_event **event)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(device, &backend));
  if (!event || !*event) return QN_OK;
  qn_try(check_event(device, *event));
  return backend->event_destroy(device, event);
}

qn_status qn_event_record(qn_device device, void *stream, qn_event *event)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(device, &backend));
  qn_try(check_event(device, event));
  return backend->event_record(device, stream, event);
}

qn_status qn_event_elapsed(qn_device device, qn_event *from, qn_event *to, double *ns)
{
  const qn_backend *backend;
  qn_try(qn_backend_of(device, &backend));
  qn_try(check_event(device, from));
  qn_try(check_event(device, to));
  qn_require(ns, "event: the result is NULL");
  return backend->event_elapsed(device, from, to, ns);
}

void qn_image_free(qn_image *image)
{
  qn_release(image->data);
  qn_release(image->log);
  *image = (qn_image){0};
}

static atomic_uint_fast64_t launches;

static qn_launch_observer *observer;
static void *observer_user;

void qn_launch_observe(qn_launch_observer *called, void *user)
{
  observer = called;
  observer_user = user;
}

void qn_launch_note(const char *kernel, void *stream)
{
  atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
  if (observer) observer(observer_user, kernel, stream);
}

uint64_t qn_launch_count(void) { return atomic_load_explicit(&launches, memory_order_relaxed); }
