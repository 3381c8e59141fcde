/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - what ran when, as a Chrome trace (chrome://tracing, ui.perfetto.dev): one track for the host, one for the
 * device with spans of whole steps, one with the kernels of a step. */
#ifndef QN_WORKBENCH_TRACE_H
#define QN_WORKBENCH_TRACE_H
#include "quern/status.h"
#include <stdint.h>

typedef struct qn_trace qn_trace;
typedef enum qn_track { QN_TRACK_HOST, QN_TRACK_DEVICE, QN_TRACK_KERNELS } qn_track;

qn_status qn_trace_create(qn_trace **trace);
/* begin_ns: of CLOCK_MONOTONIC_RAW. launches: of device kernels within; negative: nothing is said about them. NULL for
 * the trace is fine and does nothing. A failure to keep a span is told by qn_trace_write. */
void qn_trace_span(qn_trace *trace, qn_track track, const char *name, int64_t begin_ns, int64_t duration_ns,
                   int64_t launches);
qn_status qn_trace_write(const qn_trace *trace, const char *path);
void qn_trace_destroy(qn_trace **trace);
#endif
