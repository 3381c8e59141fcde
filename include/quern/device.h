/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - devices, their memory, streams and events, one shape for all kinds. The ops do not need these calls (a
 * framework's own memory and streams do as well); tests, benches and small programs do. */
#ifndef QN_DEVICE_H
#define QN_DEVICE_H
#include "stream.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_device_info {
  size_t size;          /* sizeof(qn_device_info), set by the caller */
  char name[128];       /* "NVIDIA H200", the processor's model name */
  int arch;             /* CUDA: 10 * major + minor, 90 for an H200; else 0 */
  int multiprocessors;  /* CUDA: streaming multiprocessors; CPU and HOST: hardware threads usable by this process */
  int64_t memory_bytes; /* in all */
  int64_t free_bytes;   /* now */
  int64_t l2_bytes;     /* CUDA: L2; CPU: the last level's size as the kernel tells it, 0 if unknown */
  int driver_version;   /* CUDA: as cuDriverGetVersion gives it, 13000 for 13.0; else 0 */
  int compiler_version; /* CUDA: NVRTC's, same form; HOST: the C++ compiler's; 0: none found (qn_last_error says why) */
  char driver_path[256];   /* the library that was loaded; "" if none */
  char compiler_path[256]; /* NVRTC's or the C++ compiler's path; "" if none */
} qn_device_info;

/* Names: "cpu", "cuda", "emulator"; "cuda:1" for a device. The parser says the nearest name on a mistake. */
QN_API const char *qn_device_kind_name(qn_device_kind kind);
QN_API qn_status qn_device_from_name(const char *name, qn_device *device);

/* How many devices of the kind there are. No driver: QN_OK and 0, with the reason in qn_last_error(). A driver that is
 * there but unusable (too old, a missing symbol, a failing call): a status that names it. */
QN_API qn_status qn_device_count(qn_device_kind kind, int *count);
QN_API qn_status qn_device_query(qn_device device, qn_device_info *info);
/* Kernels and cuBLAS products that the library has launched on devices so far, of all threads of the process: what a
 * call adds is what it launched. Nothing is launched on a processor. */
QN_API uint64_t qn_launch_count(void);

/* Device memory; 256-byte aligned. An impossible amount is QN_NO_MEMORY and names it. free(NULL) is fine. */
QN_API qn_status qn_memory_allocate(qn_device device, size_t bytes, void **memory);
QN_API qn_status qn_memory_release(qn_device device, void *memory);
/* write: host to device. read: device to host. Both wait until the bytes have moved; they run behind the stream's work.
 * copy and fill are within one device, in stream order, and do not wait. */
QN_API qn_status qn_memory_write(qn_device device, void *stream, void *target, const void *source, size_t bytes);
QN_API qn_status qn_memory_read(qn_device device, void *stream, void *target, const void *source, size_t bytes);
QN_API qn_status qn_memory_copy(qn_device device, void *stream, void *target, const void *source, size_t bytes);
QN_API qn_status qn_memory_fill(qn_device device, void *stream, void *target, unsigned char value, size_t bytes);

/* A stream that does not synchronise with the legacy default one. On CPU and HOST a stream is NULL and work is done
 * when the call returns. */
QN_API qn_status qn_stream_create(qn_device device, void **stream);
QN_API qn_status qn_stream_destroy(qn_device device, void **stream);
QN_API qn_status qn_stream_synchronize(qn_device device, void *stream);

/* Events take times on the device's own clock (CPU and HOST: CLOCK_MONOTONIC_RAW). elapsed waits for the second. */
typedef struct qn_event qn_event;
QN_API qn_status qn_event_create(qn_device device, qn_event **event);
QN_API qn_status qn_event_destroy(qn_device device, qn_event **event);
QN_API qn_status qn_event_record(qn_device device, void *stream, qn_event *event);
QN_API qn_status qn_event_elapsed(qn_device device, qn_event *from, qn_event *to, double *ns);

#ifdef __cplusplus
}
#endif
#endif
