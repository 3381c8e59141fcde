/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - memory, streams and events of the processor (cpu.c), which the emulator has too. */
#ifndef QN_DEVICE_HOST_H
#define QN_DEVICE_HOST_H
#include "device/backend.h"

__typeof__(qn_memory_allocate) qn_host_memory_allocate;
__typeof__(qn_memory_release) qn_host_memory_release;
__typeof__(qn_memory_copy) qn_host_memory_move;
__typeof__(qn_memory_fill) qn_host_memory_fill;
__typeof__(qn_stream_create) qn_host_stream_create;
__typeof__(qn_stream_destroy) qn_host_stream_destroy;
__typeof__(qn_stream_synchronize) qn_host_stream_synchronize;
__typeof__(qn_event_create) qn_host_event_create;
__typeof__(qn_event_destroy) qn_host_event_destroy;
__typeof__(qn_event_record) qn_host_event_record;
__typeof__(qn_event_elapsed) qn_host_event_elapsed;

#define QN_HOST_MEMORY                                                                                                 \
  .memory_allocate = qn_host_memory_allocate, .memory_release = qn_host_memory_release,                                \
  .memory_write = qn_host_memory_move, .memory_read = qn_host_memory_move, .memory_copy = qn_host_memory_move,         \
  .memory_fill = qn_host_memory_fill, .stream_create = qn_host_stream_create,                                          \
  .stream_destroy = qn_host_stream_destroy, .stream_synchronize = qn_host_stream_synchronize,                          \
  .event_create = qn_host_event_create, .event_destroy = qn_host_event_destroy, .event_record = qn_host_event_record,  \
  .event_elapsed = qn_host_event_elapsed
#endif
