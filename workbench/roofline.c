/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.c - measures what roofline.h names, prints and records it. The picture is roofline_draw.c's. */
#include "workbench/roofline.h"
#include "core/core.h"
#include "workbench/build.h"
#include "workbench/human.h"
#include "workbench/record_inner.h"
#include "workbench/term.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* From data sheets: memory in GB/s, then 10^12 operations a second, matrix rates without sparsity. */
static const struct nominal {
  const char *name; /* what the device's name begins with */
  double gbps, tera[QN_RATE_COUNT];
} sheets[] = {
    {"NVIDIA H200", 4800, {66.9, 494.7, 989.4}},       {"NVIDIA H100 80GB HBM3", 3350, {66.9, 494.7, 989.4}},
    {"NVIDIA H100 PCIe", 2000, {51.2, 378, 756}},      {"NVIDIA A100-SXM4-80GB", 2039, {19.5, 156, 312}},
    {"NVIDIA A100-SXM4-40GB", 1555, {19.5, 156, 312}}, {"NVIDIA GeForce RTX 4090", 1008, {82.6, 82.6, 165.2}},
};

static void look_up(qn_roofline *r)
{
  for (size_t k = 0; k < sizeof sheets / sizeof *sheets; k++) {
    if (strncmp(r->info.name, sheets[k].name, strlen(sheets[k].name)) != 0) continue;
    r->nominal_gbps = sheets[k].gbps;
    for (int rate = 0; rate < QN_RATE_COUNT; rate++) r->nominal[rate] = sheets[k].tera[rate] * 1e12;
    return;
  }
}

static qn_status run_rate(void *user)
{
  qn_ceiling_call *c = user;
  return qn_ceiling_rate(c->ceiling, (qn_rate)c->way, &c->moved);
}

/* The median time of one thing, hot. */
static qn_status take(const qn_sampling *how, qn_status (*run)(void *), qn_ceiling_call *c, double *ns)
{
  qn_timed runner = {.name = "ceiling", .run = run, .user = c, .decides = true};
  qn_summary summary;
  qn_status status = qn_sample(how, &runner, 1);
  if (status == QN_OK) status = qn_summarize(runner.ns, runner.n, &summary);
  if (status == QN_OK) *ns = summary.median;
  qn_timed_clear(&runner);
  return status;
}

/* Small sets are gone over again and again within one sample, so that starting it does not count. */
static int passes_for(const qn_roofline *r, size_t bytes)
{
  const size_t enough = r->device.kind == QN_CUDA ? (size_t)256 << 20 : (size_t)32 << 20;
  const size_t most = r->device.kind == QN_CUDA ? 50 : 10000;
  size_t passes = enough / bytes;
  return (int)(passes < 1 ? 1 : passes > most ? most : passes);
}

static qn_status measure_set(qn_roofline *r, const qn_sampling *how, qn_ceiling *ceiling, size_t set, size_t bytes)
{
  for (int m = 0; m < QN_ROOF_MIXES; m++) {
    qn_roof *roof = &r->set[m][set];
    *roof = (qn_roof){.bytes = (double)bytes};
    for (int way = 0; way < qn_ceiling_ways(ceiling, r->mix[m]); way++) {
      qn_ceiling_call c = {ceiling, r->mix[m], way, bytes, passes_for(r, bytes), 0};
      double ns;
      qn_try(take(how, qn_ceiling_run, &c, &ns));
      if (c.moved / ns <= roof->gbps) continue;
      roof->gbps = c.moved / ns;
      roof->way = qn_ceiling_way_name(ceiling, r->mix[m], way);
    }
  }
  return QN_OK;
}

static qn_status measure_rates(qn_roofline *r, const qn_sampling *how, qn_ceiling *ceiling)
{
  for (int rate = 0; rate < QN_RATE_COUNT; rate++) {
    qn_ceiling_call c = {.ceiling = ceiling, .way = rate};
    double ns;
    qn_status status = take(how, run_rate, &c, &ns);
    if (status == QN_UNSUPPORTED || status == QN_COMPILE_ERROR) continue; /* this device has no such unit */
    if (status != QN_OK) return status;
    r->rate[rate] = c.moved / (ns * 1e-9);
  }
  return QN_OK;
}

static qn_status measure_all(qn_roofline *r, const qn_exec *exec, size_t smallest, qn_progress *progress)
{
  qn_progress quiet = {.on = false}; /* the sampler's own rounds are too short to be told */
  const qn_sampling how = {.exec = *exec,
                           .timer = QN_TIMER_EVENT,
                           .warm = true,
                           .budget_s = 0.5,
                           .error = 0.01,
                           .least = 5,
                           .most = 25,
                           .progress = &quiet};
  qn_ceiling *ceiling;
  qn_try(qn_ceiling_create(&ceiling, exec, smallest << (2 * (r->n_sets - 1))));
  qn_status status = QN_OK;
  for (size_t set = 0; status == QN_OK && set < r->n_sets; set++) {
    size_t bytes = smallest << (2 * set);
    qn_progress_at(progress, 100 * set / r->n_sets, "streams over %s", qn_human_bytes((int64_t)bytes).text);
    status = measure_set(r, &how, ceiling, set, bytes);
  }
  if (status == QN_OK) status = measure_rates(r, &how, ceiling);
  qn_ceiling_destroy(&ceiling);
  return status;
}

qn_status qn_roofline_measure(qn_roofline *r, qn_device device, qn_pool *pool, size_t largest, qn_progress *progress)
{
  qn_exec exec = {.size = sizeof exec, .device = device, .pool = pool};
  *r = (qn_roofline){.device = device, .info.size = sizeof r->info, .mix = {QN_MIX_COPY, QN_MIX_2R1W, QN_MIX_3R2W}};
  qn_try(qn_device_query(device, &r->info));
  look_up(r);
  if (device.kind != QN_CUDA) r->threads = qn_pool_threads(pool);
  const size_t smallest = device.kind == QN_CUDA ? (size_t)1 << 20 : (size_t)16 << 10;
  size_t want = largest                      ? largest
                : device.kind == QN_CUDA     ? (size_t)4 << 30
                : device.kind == QN_EMULATOR ? (size_t)4 << 20
                                             : (size_t)1 << 30;
  while (want > smallest && (int64_t)want > r->info.free_bytes / 2) want /= 4;
  qn_require(want >= smallest, "the largest working set is %zu bytes, the smallest is %zu", want, smallest);
  for (r->n_sets = 1; r->n_sets < QN_ROOF_SETS && smallest << (2 * r->n_sets) <= want;) r->n_sets++;
  qn_try(qn_stream_create(device, &exec.stream));
  qn_status status = measure_all(r, &exec, smallest, progress);
  (void)qn_stream_destroy(device, &exec.stream);
  return status;
}

double qn_roofline_memory(const qn_roofline *r)
{
  double best = 0;
  for (int m = 0; m < QN_ROOF_MIXES; m++) best = fmax(best, r->set[m][r->n_sets - 1].gbps);
  return best;
}

double qn_roofline_cache(const qn_roofline *r)
{
  double best = 0;
  for (int m = 0; m < QN_ROOF_MIXES; m++)
    for (size_t k = 0; k < r->n_sets; k++) best = fmax(best, r->set[m][k].gbps);
  return best;
}

void qn_roofline_print(FILE *stream, const qn_roofline *r)
{
  fprintf(stream, "%s%s%s, %s", qn_term_colour(stream, QN_BOLD), qn_device_kind_name(r->device.kind),
          qn_term_colour(stream, QN_PLAIN), r->info.name);
  if (r->threads) fprintf(stream, ", %d thread%s", r->threads, r->threads == 1 ? "" : "s");
  fprintf(stream, "\n  %-12s", "working set");
  for (int m = 0; m < QN_ROOF_MIXES; m++) fprintf(stream, " %26s", qn_mix_name(r->mix[m]));
  fprintf(stream, "   GB/s\n");
  for (size_t k = 0; k < r->n_sets; k++) {
    fprintf(stream, "  %-12s", qn_human_bytes((int64_t)r->set[0][k].bytes).text);
    for (int m = 0; m < QN_ROOF_MIXES; m++) fprintf(stream, " %26.1f", r->set[m][k].gbps);
    fputc('\n', stream);
  }
  for (int rate = 0; rate < QN_RATE_COUNT; rate++)
    if (r->rate[rate] > 0)
      fprintf(stream, "  %-18s %8.2f TFLOP/s\n", qn_rate_name((qn_rate)rate), r->rate[rate] * 1e-12);
  fprintf(stream,
          r->nominal_gbps > 0 ? "  data sheet         %8.0f GB/s\n"
                              : "  the data sheet of this device is not known: no nominal ceilings\n",
          r->nominal_gbps);
}

static json_t *sets_of(const qn_roofline *r)
{
  json_t *sets = json_array();
  for (int m = 0; m < QN_ROOF_MIXES; m++)
    for (size_t k = 0; k < r->n_sets; k++)
      json_array_append_new(sets, json_pack("{s:s, s:f, s:f, s:s}", "mix", qn_mix_name(r->mix[m]), "bytes",
                                            r->set[m][k].bytes, "gbps", r->set[m][k].gbps, "way", r->set[m][k].way));
  return sets;
}

static json_t *rates_of(const qn_roofline *r)
{
  json_t *rates = json_object();
  for (int rate = 0; rate < QN_RATE_COUNT; rate++)
    if (r->rate[rate] > 0) json_object_set_new(rates, qn_rate_name((qn_rate)rate), json_real(r->rate[rate]));
  return rates;
}

qn_status qn_roofline_append(const char *path, const qn_roofline *r)
{
  char date[32];
  qn_json_date(date);
  json_t *line =
      json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:o}", "schema", "quern roofline 1", "date", date, "commit",
                qn_build_commit, "backend", qn_device_kind_name(r->device.kind), "device", r->info.name, "threads",
                r->threads, "streams", sets_of(r), "operations_per_second", rates_of(r));
  return qn_json_append(path, line, 9);
}

/* ---- the way back ---- */
static qn_status read_sets(const char *path, int line, const json_t *streams, qn_roofline *r)
{
  size_t n = json_array_size(streams), counts[QN_ROOF_MIXES] = {0};
  for (size_t k = 0; k < n; k++) {
    const json_t *stream = json_array_get(streams, k);
    const char *mix = json_string_value(json_object_get(stream, "mix"));
    double bytes = json_number_value(json_object_get(stream, "bytes")),
           gbps = json_number_value(json_object_get(stream, "gbps"));
    if (!mix || !(bytes >= 1 && bytes < 1e15) || !(gbps > 0 && gbps < 1e9))
      return qn_fail(QN_BAD_FILE, "%s:%d: stream %zu of the roofline is no figure", path, line, k);
    for (int m = 0; m < QN_ROOF_MIXES; m++)
      if (!strcmp(mix, qn_mix_name(r->mix[m])) && counts[m] < QN_ROOF_SETS)
        r->set[m][counts[m]++] = (qn_roof){.bytes = bytes, .gbps = gbps, .way = ""};
  }
  for (int m = 0; m < QN_ROOF_MIXES; m++)
    if (counts[m] != counts[0] || counts[0] == 0)
      return qn_fail(QN_BAD_FILE, "%s:%d: the roofline has not the same working sets for all streams", path, line);
  r->n_sets = counts[0];
  return QN_OK;
}

static qn_status read_roofline(const char *path, int line, const json_t *object, qn_roofline *r)
{
  const char *backend = json_string_value(json_object_get(object, "backend"));
  const char *device = json_string_value(json_object_get(object, "device"));
  *r = (qn_roofline){.info.size = sizeof r->info, .mix = {QN_MIX_COPY, QN_MIX_2R1W, QN_MIX_3R2W}};
  if (!backend || !device) return qn_fail(QN_BAD_FILE, "%s:%d: the roofline names no backend or device", path, line);
  qn_try(qn_device_from_name(backend, &r->device));
  snprintf(r->info.name, sizeof r->info.name, "%s", device);
  r->threads = (int)json_integer_value(json_object_get(object, "threads"));
  const json_t *rates = json_object_get(object, "operations_per_second");
  for (int rate = 0; rate < QN_RATE_COUNT; rate++)
    r->rate[rate] = fmax(0, json_number_value(json_object_get(rates, qn_rate_name((qn_rate)rate))));
  look_up(r);
  return read_sets(path, line, json_object_get(object, "streams"), r);
}

qn_status qn_roofline_read(const char *path, const char *device, qn_roofline *r)
{
  FILE *file = fopen(path, "re");
  if (!file) return qn_fail(QN_BAD_FILE, "%s: %s", path, strerror(errno));
  char *text = NULL;
  size_t capacity = 0;
  bool found = false;
  qn_status status = QN_OK;
  for (int line = 1; status == QN_OK && getline(&text, &capacity, file) >= 0; line++) {
    json_t *object = json_loads(text, 0, NULL);
    const char *schema = json_string_value(json_object_get(object, "schema"));
    const char *name = json_string_value(json_object_get(object, "device"));
    if (schema && name && !strcmp(schema, "quern roofline 1") && (!device || strstr(name, device))) {
      status = read_roofline(path, line, object, r);
      found = true;
    }
    json_decref(object);
  }
  fclose(file);
  free(text);
  if (status != QN_OK || found) return status;
  return qn_fail(QN_BAD_FILE, "%s: there is no roofline%s%s in it", path, device ? " of " : "", device ? device : "");
}
