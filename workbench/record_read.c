/* SPDX-License-Identifier: Apache-2.0 */
/* record_read.c - lines of JSON as records. A line must be whole, of the schema that this version writes, with finite
 * positive times: figures are made from its samples again, and what a file claims of them is not believed. */
#include "workbench/record.h"
#include "core/core.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINE = 1 << 24, MOST_SAMPLES = 4096, MOST_LINES = 100000, MOST_PEERS = 64 };

/* Where reading is: complaints name it. */
typedef struct place {
  const char *path;
  int line;
} place;

#define bad_line(at, format, ...) qn_fail(QN_BAD_FILE, "%s:%d: " format, (at)->path, (at)->line, __VA_ARGS__)

static qn_status want_text(const place *at, const json_t *object, const char *key, const char **text)
{
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) return bad_line(at, "%s is no text", key);
  *text = json_string_value(value);
  for (const char *c = *text; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127) return bad_line(at, "%s has a control character in it", key);
  return QN_OK;
}

static qn_status want_number(const place *at, const json_t *object, const char *key, double least, double most,
                             double *x)
{
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) return bad_line(at, "%s is no number", key);
  *x = json_number_value(value);
  if (!(*x >= least && *x <= most)) return bad_line(at, "%s is %g, it must be from %g to %g", key, *x, least, most);
  return QN_OK;
}

static qn_status want_whole(const place *at, const json_t *object, const char *key, double most, int64_t *n)
{
  double x;
  qn_try(want_number(at, object, key, 0, most, &x));
  *n = (int64_t)x;
  return QN_OK;
}

static qn_status want_flag(const place *at, const json_t *object, const char *key, bool *flag)
{
  const json_t *value = json_object_get(object, key);
  if (!json_is_boolean(value)) return bad_line(at, "%s is neither true nor false", key);
  *flag = json_is_true(value);
  return QN_OK;
}

static double number_or_nan(const json_t *value) { return json_is_number(value) ? json_number_value(value) : NAN; }

static qn_status read_series(const place *at, const json_t *object, const char *what, qn_record_series *s)
{
  const json_t *samples = json_object_get(object, "samples_ns");
  if (!json_is_object(object)) return bad_line(at, "%s is not there", what);
  if (!json_is_array(samples)) return bad_line(at, "%s has no samples", what);
  size_t n = json_array_size(samples);
  if (n < 1 || n > MOST_SAMPLES) return bad_line(at, "%s has %zu samples, it must be 1 to %d", what, n, MOST_SAMPLES);
  qn_try(want_text(at, object, "name", &s->name));
  qn_try(want_text(at, object, "way", &s->way));
  qn_try(want_number(at, object, "bytes", 1, 1e18, &s->bytes));
  qn_try(qn_try_allocate(&s->ns, n * sizeof(double), "samples"));
  for (s->n = 0; s->n < n; s->n++) {
    s->ns[s->n] = number_or_nan(json_array_get(samples, s->n));
    if (!(s->ns[s->n] > 0 && s->ns[s->n] < 1e15)) return bad_line(at, "%s: sample %zu is no time above 0", what, s->n);
  }
  return QN_OK;
}

static qn_status read_ratio(const place *at, const json_t *line, const char *key, double *ratio, double *low,
                            double *high)
{
  const json_t *object = json_object_get(line, key), *interval = json_object_get(object, "interval");
  if (!json_is_object(object)) return bad_line(at, "%s is not there", key);
  qn_try(want_number(at, object, "ratio", 1e-9, 1e9, ratio));
  *low = number_or_nan(json_array_get(interval, 0));
  *high = number_or_nan(json_array_get(interval, 1));
  return QN_OK;
}

/* Of a step that returns before it is done. */
static qn_status read_apart(const place *at, const json_t *object, qn_record_series *wall, qn_record_series *host)
{
  if (json_object_get(object, "wall")) qn_try(read_series(at, json_object_get(object, "wall"), "wall", wall));
  return json_object_get(object, "host") ? read_series(at, json_object_get(object, "host"), "host", host) : QN_OK;
}

static qn_status read_peer(const place *at, const json_t *object, qn_record_peer *p)
{
  qn_try(want_text(at, object, "name", &p->name));
  qn_try(want_text(at, object, "version", &p->version));
  qn_try(want_text(at, object, "absent", &p->absent));
  if (*p->absent) return QN_OK;
  qn_try(want_text(at, json_object_get(object, "check"), "wrong", &p->wrong));
  qn_try(want_flag(at, object, "other_op", &p->other_op));
  qn_try(read_series(at, json_object_get(object, "step"), p->name, &p->step));
  qn_try(read_apart(at, object, &p->wall, &p->host));
  double low, high;
  qn_try(read_ratio(at, object, "share", &p->share, &low, &high));
  qn_try(read_ratio(at, object, "speedup", &p->speedup, &p->speedup_low, &p->speedup_high));
  return want_text(at, object, "verdict", &p->verdict);
}

static qn_status read_peers(const place *at, const json_t *line, qn_record *r)
{
  const json_t *peers = json_object_get(line, "peers");
  size_t n = json_array_size(peers);
  if (n > MOST_PEERS) return bad_line(at, "%zu peers, the most is %d", n, MOST_PEERS);
  qn_try(read_apart(at, line, &r->wall, &r->host));
  if (!n) return QN_OK;
  qn_try(qn_try_allocate(&r->peer, n * sizeof *r->peer, "peers"));
  memset(r->peer, 0, n * sizeof *r->peer);
  while (r->n_peers < n) {
    const size_t k = r->n_peers++; /* counted first: what a bad one holds is released too */
    qn_try(read_peer(at, json_array_get(peers, k), &r->peer[k]));
  }
  return QN_OK;
}

static qn_status read_times(const place *at, const json_t *line, qn_record *r)
{
  const json_t *ceilings = json_object_get(line, "ceilings"), *unfused = json_object_get(line, "unfused");
  double best, copy;
  qn_try(want_text(at, line, "timer", &r->timer));
  qn_try(want_text(at, line, "cache", &r->cache));
  qn_try(want_text(at, line, "suspicion", &r->suspicion));
  qn_try(want_flag(at, line, "impossible", &r->impossible));
  if (!*r->by) qn_try(want_whole(at, line, "launches", 1e9, &r->launches));
  qn_try(read_series(at, json_object_get(line, "fused"), "fused", &r->fused));
  qn_try(want_number(at, line, "ceiling", 0, (double)json_array_size(ceilings) - 1, &best));
  qn_try(want_number(at, line, "copy", 0, (double)json_array_size(ceilings) - 1, &copy));
  qn_try(read_series(at, json_array_get(ceilings, (size_t)best), "the ceiling", &r->ceiling));
  qn_try(read_ratio(at, line, "share", &r->share, &r->share_low, &r->share_high));
  r->copy_gbps = number_or_nan(json_object_get(json_array_get(ceilings, (size_t)copy), "gbps"));
  r->host_same_ns = number_or_nan(json_object_get(line, "host_same_ns"));
  r->host_moved_ns = number_or_nan(json_object_get(line, "host_moved_ns"));
  if (unfused) {
    qn_try(read_series(at, unfused, "unfused", &r->unfused));
    qn_try(read_ratio(at, line, "speedup", &r->speedup, &r->speedup_low, &r->speedup_high));
    qn_try(want_text(at, line, "verdict", &r->verdict));
  }
  qn_try(read_peers(at, line, r));
  qn_summary summary;
  qn_try(qn_summarize(r->fused.ns, r->fused.n, &summary));
  r->gbps = r->fused.bytes / summary.median;
  return QN_OK;
}

/* What was measured besides op and workload: the types, and behind them the parameters that are not the defaults, if
 * any: lines that differ in either are of different measurements. The text becomes a part of the line, which owns it.
 */
static qn_status read_form(const place *at, json_t *line, qn_record *r)
{
  const char *settings = json_string_value(json_object_get(line, "settings"));
  qn_try(want_text(at, line, "types", &r->types));
  if (!settings || !*settings) return QN_OK;
  json_t *form = json_sprintf("%s, %s", r->types, settings);
  if (!form || json_object_set_new(line, "form", form)) return qn_fail(QN_NO_MEMORY, "a line of measurements");
  r->types = json_string_value(form);
  return QN_OK;
}

static qn_status read_line(const place *at, json_t *line, qn_record *r)
{
  const char *schema;
  double threads, operations, set;
  if (!json_is_object(line)) return bad_line(at, "it is no object, but a measurement is %s", "one");
  qn_try(want_text(at, line, "schema", &schema));
  if (strcmp(schema, "quern bench 1") != 0)
    return bad_line(at, "its schema is \"%.40s\", not \"quern bench 1\"", schema);
  const json_t *machine = json_object_get(line, "machine"), *build = json_object_get(line, "build"),
               *check = json_object_get(line, "check");
  qn_try(want_text(at, line, "date", &r->date));
  qn_try(want_text(at, line, "commit", &r->commit));
  qn_try(want_text(at, line, "op", &r->op));
  r->by = r->clocks = "";
  if (json_object_get(machine, "clocks")) qn_try(want_text(at, machine, "clocks", &r->clocks));
  if (json_object_get(line, "by")) qn_try(want_text(at, line, "by", &r->by));
  qn_try(want_text(at, line, "workload", &r->workload));
  qn_try(read_form(at, line, r));
  qn_try(want_text(at, line, "backend", &r->backend));
  qn_try(want_text(at, line, "variant", &r->variant));
  qn_try(want_text(at, machine, "device", &r->device));
  qn_try(want_text(at, machine, "processor", &r->machine));
  qn_try(want_text(at, build, "compiler", &r->compiler));
  qn_try(want_number(at, machine, "threads", 1, 1024, &threads));
  qn_try(want_whole(at, line, "tensors", 1e9, &r->tensors));
  qn_try(want_whole(at, line, "elements", 1e15, &r->elements));
  qn_try(want_number(at, line, "operations_per_element", 0, 1e9, &operations));
  qn_try(want_number(at, line, "set_bytes_per_element", 0, 1e6, &set));
  qn_try(want_flag(at, check, "right", &r->right));
  r->threads = (int)threads;
  r->set_bytes = set * (double)r->elements;
  r->operations = operations * (double)r->elements;
  r->timed = json_object_get(line, "fused") != NULL;
  return r->timed ? read_times(at, line, r) : QN_OK;
}

/* Other lines that quern writes may stand in the same file. */
static bool is_other(const json_t *line)
{
  const char *schema = json_string_value(json_object_get(line, "schema"));
  return schema && (!strcmp(schema, "quern roofline 1") || !strcmp(schema, "quern break-even 1"));
}

/* Grows the list by one and reads into it; on failure the record is there, for qn_records_free. */
static qn_status add_line(const place *at, const char *text, size_t length, qn_records *records)
{
  json_error_t error;
  json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (!line) return bad_line(at, "no JSON, column %d: %s", error.column, error.text);
  if (is_other(line)) {
    json_decref(line);
    return QN_OK;
  }
  qn_record *grown = qn_reallocate(records->record, (records->n + 1) * sizeof *grown);
  if (!grown) {
    json_decref(line);
    return qn_fail(QN_NO_MEMORY, "%s: %zu measurements do not fit into memory", at->path, records->n + 1);
  }
  records->record = grown;
  qn_record *r = &records->record[records->n++];
  *r = (qn_record){.line = at->line, .json = line, .host_same_ns = NAN, .host_moved_ns = NAN};
  return read_line(at, line, r);
}

qn_status qn_records_add(const char *path, qn_records *records)
{
  place at = {path, 0};
  char *text = NULL;
  size_t capacity = 0;
  FILE *file = fopen(path, "re");
  if (!file) return qn_fail(QN_BAD_FILE, "%s: %s", path, strerror(errno));
  qn_status status = QN_OK;
  ssize_t length;
  while (status == QN_OK && (length = getline(&text, &capacity, file)) >= 0) {
    at.line++;
    if (strspn(text, " \t\r\n") == (size_t)length) continue;
    if (length > MOST_LINE)
      status = bad_line(&at, "the line has %zd bytes, the most is %d", length, MOST_LINE);
    else if (records->n == MOST_LINES)
      status = bad_line(&at, "more than %d measurements", MOST_LINES);
    else
      status = add_line(&at, text, (size_t)length, records);
  }
  if (status == QN_OK && ferror(file)) status = qn_fail(QN_BAD_FILE, "%s: %s", path, strerror(errno));
  fclose(file);
  free(text);
  if (status != QN_OK) qn_records_free(records);
  return status;
}

qn_status qn_records_read(const char *path, qn_records *records)
{
  *records = (qn_records){0};
  qn_try(qn_records_add(path, records));
  return records->n ? QN_OK : qn_fail(QN_BAD_FILE, "%s: there is no measurement in it", path);
}

bool qn_record_is_last(const qn_records *records, size_t k)
{
  const qn_record *a = &records->record[k];
  for (size_t i = k + 1; i < records->n; i++) {
    const qn_record *b = &records->record[i];
    if (a->timed == b->timed && !strcmp(a->op, b->op) && !strcmp(a->workload, b->workload) && !strcmp(a->by, b->by) &&
        !strcmp(a->types, b->types) && !strcmp(a->backend, b->backend) && !strcmp(a->device, b->device) &&
        (!a->timed || !strcmp(a->timer, b->timer)))
      return false;
  }
  return true;
}

static void free_peers(qn_record *r)
{
  for (size_t k = 0; k < r->n_peers; k++) {
    qn_release(r->peer[k].step.ns);
    qn_release(r->peer[k].wall.ns);
    qn_release(r->peer[k].host.ns);
  }
  qn_release(r->peer);
  qn_release(r->wall.ns);
  qn_release(r->host.ns);
}

void qn_records_free(qn_records *records)
{
  for (size_t k = 0; k < records->n; k++) {
    qn_record *r = &records->record[k];
    qn_release(r->fused.ns);
    qn_release(r->unfused.ns);
    qn_release(r->ceiling.ns);
    free_peers(r);
    json_decref(r->json);
  }
  qn_release(records->record);
  *records = (qn_records){0};
}
