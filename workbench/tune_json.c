/* SPDX-License-Identifier: Apache-2.0 */
/* tune_json.c - results of tuning in the T4 results format, version 1.0.0, which autotuners exchange: for each
 * configuration its times, whether it is valid, and what was measured. The format is at
 * https://github.com/odgaard/TuningSchema; nothing of it is copied here. */
#include "core/core.h"
#include "quern/device.h"
#include "workbench/build.h"
#include "workbench/record_inner.h"
#include "workbench/tune.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static json_t *measurement(const char *name, double value, const char *unit)
{
  return json_pack("{s:s, s:o, s:s}", "name", name, "value", json_real(isfinite(value) ? value : 0), "unit", unit);
}

static json_t *measurements_of(const qn_tune_result *r)
{
  json_t *all = json_array();
  if (r->median_ns > 0) json_array_append_new(all, measurement("time", r->median_ns * 1e-6, "ms"));
  if (r->speedup > 0) json_array_append_new(all, measurement("speedup over the incumbent", r->speedup, ""));
  if (r->facts.registers >= 0) json_array_append_new(all, measurement("registers", r->facts.registers, ""));
  if (r->facts.shared_bytes >= 0)
    json_array_append_new(all, measurement("shared memory", r->facts.shared_bytes, "bytes"));
  if (r->facts.blocks >= 0) json_array_append_new(all, measurement("blocks of a multiprocessor", r->facts.blocks, ""));
  return all;
}

void qn_tune_json_add(json_t *results, json_t *configuration, const qn_tune_result *r)
{
  char when[32];
  qn_json_date(when);
  json_t *runtimes = json_array();
  for (size_t k = 0; k < r->n; k++) json_array_append_new(runtimes, json_real(r->runtimes_ns[k] * 1e-6));
  json_t *result =
      json_pack("{s:s, s:o, s:[s], s:{s:o}, s:s, s:f, s:o}", "timestamp", when, "configuration", configuration,
                "objectives", "time", "times", "runtimes", runtimes, "invalidity", r->validity, "correctness",
                !strcmp(r->validity, "correct") ? 1.0 : 0.0, "measurements", measurements_of(r));
  if (*r->why) json_object_set_new(result, "why", json_string(r->why));
  json_array_append_new(results, result);
}

qn_status qn_tune_json_write(const char *path, qn_device device, json_t *results)
{
  qn_device_info info = {.size = sizeof info};
  qn_arch arch = {.size = sizeof arch};
  char when[32];
  if (!json_array_size(results)) { /* a file of earlier results is worth more than an empty one */
    json_decref(results);
    fprintf(stderr, "quern tune: nothing was timed; %s is left as it is\n", path);
    return QN_OK;
  }
  qn_json_date(when);
  qn_status status = qn_device_query(device, &info);
  if (status == QN_OK) status = qn_device_arch(device, &arch);
  json_t *all =
      json_pack("{s:s, s:{s:s, s:{s:s, s:s, s:i, s:I}, s:{s:s, s:s, s:s, s:i, s:i}}, s:o}", "schema_version", "1.0.0",
                "metadata", "timestamp", when, "hardware", "device", info.name, "architecture", arch.name,
                "multiprocessors", arch.multiprocessors, "l2_bytes", (json_int_t)arch.l2_bytes, "environment",
                "framework", "quern", "version", qn_version(), "commit", qn_build_commit, "driver_version",
                info.driver_version, "compiler_version", info.compiler_version, "results", results);
  if (status == QN_OK && (!all || json_dump_file(all, path, JSON_INDENT(1))))
    status = qn_fail(QN_IO_ERROR, "%s could not be written", path);
  json_decref(all);
  return status;
}

static json_t *record_of(const qn_tune_order *o, const char *op, const qn_tune_outcome *out, double seconds,
                         const char *device, const char *arch)
{
  char when[32];
  qn_json_date(when);
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                   "schema", "quern tune 1", "date", when, "version", qn_version(), "commit", qn_build_commit, "device",
                   device, "architecture", arch, "op", *op ? op : "all", "strategy", qn_strategy_name(o->strategy),
                   "budget_s", *op ? o->budget_s : 0.0, "seconds", seconds, "shapes", (json_int_t)out->places, "faster",
                   (json_int_t)out->faster, "as_they_were", (json_int_t)out->kept, "left_out", (json_int_t)out->failed,
                   "not_begun", (json_int_t)out->left, "timed", (json_int_t)out->looked, "not_possible",
                   (json_int_t)out->impossible, "wrong", (json_int_t)out->wrong);
}

qn_status qn_tune_json_record(const char *path, qn_device device, const qn_tune_order *order, const char *op,
                              const qn_tune_outcome *outcome, double seconds)
{
  qn_device_info info = {.size = sizeof info};
  qn_arch arch = {.size = sizeof arch};
  qn_try(qn_device_query(device, &info));
  qn_try(qn_device_arch(device, &arch));
  return qn_json_append(path, record_of(order, op, outcome, seconds, info.name, arch.name), 6);
}
