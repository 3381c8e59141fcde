/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - a measurement as a line of JSON, appended to a file by one write, so that two processes may share it.
 * record_read.c is the way back. */
#include "workbench/record.h"
#include "core/core.h"
#include "workbench/build.h"
#include "workbench/record_inner.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Short enough to read, exact enough to be the same number again where it matters: times are whole nanoseconds or the
 * device's half microseconds. */
json_t *qn_number_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

void qn_json_print(FILE *out, json_t *given, size_t flags)
{
  json_dumpf(given, out, flags);
  fputc('\n', out);
  json_decref(given);
}

void qn_json_date(char date[32])
{
  const time_t now = time(NULL);
  struct tm utc;
  strftime(date, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}

static json_t *interval_of(double low, double high)
{
  return json_pack("[o, o]", qn_number_or_null(low), qn_number_or_null(high));
}

static json_t *samples_of(const qn_series *s)
{
  json_t *array = json_array();
  for (size_t k = 0; k < s->n; k++) json_array_append_new(array, json_real(s->ns[k]));
  return array;
}

static json_t *series_of(const qn_series *s)
{
  json_t *out =
      json_pack("{s:s, s:s, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", s->name, "way", s->way, "bytes",
                s->bytes, "median_ns", qn_number_or_null(s->time.median), "interval_ns",
                interval_of(s->time.low, s->time.high), "min_ns", qn_number_or_null(s->time.min), "max_ns",
                qn_number_or_null(s->time.max), "mean_ns", qn_number_or_null(s->time.mean), "sd_ns",
                qn_number_or_null(s->time.sd), "gbps", qn_number_or_null(s->gbps), "samples_ns", samples_of(s));
  return out;
}

static json_t *ratio_of(const qn_ratio *r)
{
  return json_pack("{s:o, s:o}", "ratio", qn_number_or_null(r->ratio), "interval", interval_of(r->low, r->high));
}

json_t *qn_json_machine(const qn_device_info *device)
{
  struct utsname os = {0};
  char system[200] = "";
  qn_device_info cpu = {.size = sizeof cpu};
  if (!uname(&os)) snprintf(system, sizeof system, "%.40s %.80s %.40s", os.sysname, os.release, os.machine);
  if (qn_device_query((qn_device){QN_CPU, 0}, &cpu) != QN_OK) cpu.name[0] = 0;
  return json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:i, s:i, s:i}", "device", device->name, "processor", cpu.name,
                   "system", system, "arch", device->arch, "memory_bytes", (json_int_t)device->memory_bytes,
                   "cache_bytes", (json_int_t)device->l2_bytes, "multiprocessors", device->multiprocessors, "driver",
                   device->driver_version, "device_compiler", device->compiler_version);
}

static json_t *machine_of(const qn_bench *b)
{
  json_t *machine = qn_json_machine(&b->device);
  json_object_set_new(machine, "threads", json_integer(qn_pool_threads(b->ask.pool)));
  json_object_set_new(machine, "clocks", json_string(b->clocks));
  return machine;
}

static json_t *params_of(const qn_bench *b)
{
  json_t *out = json_object();
  const qn_op_info *op = b->ask.op ? &b->ask.op->info : NULL;
  for (size_t k = 0; op && k < op->n_params; k++) {
    const qn_op_param *param = &op->params[k];
    const double x = qn_param_get(param, b->ask.params);
    uint64_t whole = 0;
    if (param->type == QN_PARAM_U64) memcpy(&whole, (const char *)b->ask.params + param->offset, sizeof whole);
    if (param->type > QN_PARAM_ENUM) continue; /* pointers: a bench gives none */
    json_object_set_new(out, param->name,
                        param->type == QN_PARAM_DOUBLE ? qn_number_or_null(x)
                        : param->type == QN_PARAM_U64  ? json_integer((json_int_t)whole)
                                                       : json_integer((json_int_t)x));
  }
  return out;
}

static json_t *ceilings_of(const qn_bench *b)
{
  json_t *array = json_array();
  for (size_t k = 0; k < b->n_ceilings; k++) json_array_append_new(array, series_of(&b->ceiling[k]));
  return array;
}

static void add_ceilings(json_t *line, const qn_bench *b)
{
  json_object_set_new(line, "ceilings", ceilings_of(b));
  json_object_set_new(line, "ceiling", json_integer((json_int_t)b->best));
  json_object_set_new(line, "copy", json_integer((json_int_t)b->copy));
  json_object_set_new(line, "floor_ns", qn_number_or_null(b->floor_ns));
}

static void add_times(json_t *line, const qn_bench *b)
{
  json_object_set_new(line, "timer", json_string(qn_timer_name(b->ask.timer)));
  json_object_set_new(line, "cache", json_string(b->cache));
  json_object_set_new(line, "fused", series_of(&b->fused));
  if (b->has_unfused) {
    json_object_set_new(line, "unfused", series_of(&b->unfused));
    json_object_set_new(line, "speedup", ratio_of(&b->speedup));
    json_object_set_new(line, "verdict", json_string(qn_verdict_word(b->verdict)));
  }
  add_ceilings(line, b);
  json_object_set_new(line, "share", ratio_of(&b->share));
  json_object_set_new(line, "share_of_copy", ratio_of(&b->share_of_copy));
  json_object_set_new(line, "suspicion", json_string(b->suspicion));
  json_object_set_new(line, "impossible", json_boolean(b->impossible));
  json_object_set_new(line, "launches", json_integer(b->launches));
  json_object_set_new(line, "allocated_bytes", json_integer((json_int_t)b->allocated));
  json_object_set_new(line, "workspace_bytes", json_integer((json_int_t)b->workspace));
  if (b->has_first_use) {
    json_object_set_new(line, "first_use_empty_ns", qn_number_or_null(b->first_use.empty_ns));
    json_object_set_new(line, "first_use_cold_ns", qn_number_or_null(b->first_use.cold_ns));
    json_object_set_new(line, "first_use_disk_ns", qn_number_or_null(b->first_use.disk_ns));
  }
  if (!b->has_host) return;
  json_object_set_new(line, "host_same_ns", qn_number_or_null(b->host_same_ns.median));
  json_object_set_new(line, "host_moved_ns", qn_number_or_null(b->host_moved_ns.median));
}

static json_t *kernel_of(const qn_bench_subject *of)
{
  const qn_kernel_info *i = &of->info;
  return json_pack("{s:[i, i, i], s:i, s:i, s:i, s:s, s:s}", "threadgroup", (int)i->group[0], (int)i->group[1],
                   (int)i->group[2], "registers", i->registers, "shared_bytes", i->shared_bytes, "local_bytes",
                   i->local_bytes, "against", of->against, "proof", of->proof);
}

static json_t *line_of(const qn_bench *b)
{
  char date[32];
  qn_json_date(date);
  const qn_bench_subject *of = &b->of;
  const double elements = (double)of->elements;
  json_t *line = json_pack(
      "{s:s, s:s, s:s, s:s, s:o, s:{s:s, s:s}, s:s, s:s, s:I, s:I, s:s, s:s, s:o, s:s, s:s, s:f, s:f, "
      "s:f, s:f, s:{s:b, s:I, s:s}}",
      "schema", "quern bench 1", "date", date, "version", qn_version(), "commit", qn_build_commit, "machine",
      machine_of(b), "build", "compiler", qn_build_compiler, "type", qn_build_type, "op", of->name, "workload",
      of->workload, "tensors", (json_int_t)of->tensors, "elements", (json_int_t)of->elements, "types", b->types,
      "settings", of->settings, "params", params_of(b), "backend", qn_device_kind_name(b->ask.device.kind), "variant",
      b->variant, "bytes_per_element", (of->bytes - of->besides) / elements, "bytes_besides", of->besides,
      "set_bytes_per_element", of->set_bytes / elements, "operations_per_element", of->operations / elements, "check",
      "right", (int)b->check.right, "elements", (json_int_t)b->check.elements, "wrong", b->check.wrong);
  if (line && of->is_kernel) json_object_set_new(line, "kernel", kernel_of(of));
  if (line && b->timed) add_times(line, b);
  return line;
}

qn_status qn_line_append(const char *path, const char *text)
{
  static char end[] = "\n";
  struct iovec parts[] = {{(void *)(uintptr_t)text, strlen(text)}, {end, 1}};
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(errno));
  ssize_t done = writev(file, parts, 2);
  int failed = done < 0 ? errno : 0;
  if (close(file) && !failed) failed = errno;
  if (failed) return qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(failed));
  if ((size_t)done == parts[0].iov_len + 1) return QN_OK;
  return qn_fail(QN_IO_ERROR, "%s: only %zd of %zu bytes could be written", path, done, parts[0].iov_len + 1);
}

/* The caller's to free. Takes the line. */
static qn_status text_of(json_t *line, unsigned digits, char **text)
{
  *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(digits)) : NULL;
  json_decref(line);
  return *text ? QN_OK : qn_fail(QN_NO_MEMORY, "the measurement did not fit into memory");
}

qn_status qn_json_append(const char *path, json_t *line, unsigned digits)
{
  char *text;
  qn_try(text_of(line, digits, &text));
  const qn_status status = qn_line_append(path, text);
  free(text);
  return status;
}

json_t *qn_json_shapes(const qn_workload *work)
{
  json_t *shapes = json_array();
  for (size_t k = 0; k < work->n; k++) {
    json_t *shape = json_array();
    for (int d = 0; d < work->item[k].ndim; d++)
      json_array_append_new(shape, json_integer((json_int_t)work->item[k].shape[d]));
    json_array_append_new(shapes, shape);
  }
  return shapes;
}

qn_status qn_record_head(const qn_bench *bench, char **text)
{
  json_t *line = line_of(bench);
  json_object_set_new(line, "shapes", qn_json_shapes(bench->ask.work));
  json_object_set_new(line, "cache", json_string(bench->cache));
  json_object_set_new(
      line, "flush_bytes",
      json_integer(bench->ask.hot ? 0 : (json_int_t)qn_flush_bytes(&bench->device, bench->ask.device.kind)));
  return text_of(line, 12, text);
}

qn_status qn_record_ceilings(const qn_bench *bench, char **text)
{
  json_t *line = json_object();
  add_ceilings(line, bench);
  json_object_set_new(line, "clocks", json_string(bench->clocks));
  return text_of(line, 12, text);
}

qn_status qn_record_append(const char *path, const qn_bench *bench) { return qn_json_append(path, line_of(bench), 12); }
