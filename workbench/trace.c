/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - see trace.h. The format is Google's "Trace Event Format", complete events ("ph": "X") with microseconds. */
#include "workbench/trace.h"
#include "core/core.h"
#include <errno.h>
#include <jansson.h>
#include <string.h>

struct qn_trace {
  json_t *spans;
  int failed;
};

static json_t *track_name(qn_track track, const char *name)
{
  return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M", "pid", 1, "tid", (int)track,
                   "args", "name", name);
}

qn_status qn_trace_create(qn_trace **trace)
{
  *trace = NULL;
  qn_trace *t;
  qn_try(qn_try_allocate(&t, sizeof *t, "the trace"));
  *t = (qn_trace){json_array(), 0};
  t->failed |= json_array_append_new(t->spans, track_name(QN_TRACK_HOST, "host"));
  t->failed |= json_array_append_new(t->spans, track_name(QN_TRACK_DEVICE, "device"));
  t->failed |= json_array_append_new(t->spans, track_name(QN_TRACK_KERNELS, "kernels of a step"));
  *trace = t;
  return QN_OK;
}

void qn_trace_span(qn_trace *trace, qn_track track, const char *name, int64_t begin_ns, int64_t duration_ns,
                   int64_t launches)
{
  if (!trace) return;
  json_t *span = json_pack("{s:s, s:s, s:i, s:i, s:f, s:f}", "name", name, "ph", "X", "pid", 1, "tid", (int)track, "ts",
                           (double)begin_ns * 1e-3, "dur", (double)duration_ns * 1e-3);
  if (span && launches >= 0)
    trace->failed |= json_object_set_new(span, "args", json_pack("{s:I}", "launches", (json_int_t)launches));
  trace->failed |= json_array_append_new(trace->spans, span);
}

qn_status qn_trace_write(const qn_trace *trace, const char *path)
{
  if (trace->failed) return qn_fail(QN_NO_MEMORY, "%s: the trace did not fit into memory", path);
  json_t *root = json_pack("{s:O, s:s}", "traceEvents", trace->spans, "displayTimeUnit", "ms");
  errno = 0;
  int failed = !root || json_dump_file(root, path, JSON_COMPACT);
  json_decref(root);
  return failed ? qn_fail(QN_IO_ERROR, "%s: the trace could not be written: %s", path, strerror(errno)) : QN_OK;
}

void qn_trace_destroy(qn_trace **trace)
{
  if (!trace || !*trace) return;
  json_decref((*trace)->spans);
  qn_release(*trace);
  *trace = NULL;
}
