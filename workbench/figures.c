/* SPDX-License-Identifier: Apache-2.0 */
/* figures.c - see figures.h. */
#include "workbench/figures.h"
#include "core/core.h"
#include "quern/device.h"
#include "workbench/build.h"
#include "workbench/record_inner.h"
#include "workbench/stats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The caller's to release. */
static qn_status samples_of(const json_t *question, const char *name, double **ns, size_t *n)
{
  const json_t *list = json_object_get(question, name);
  *n = json_array_size(list);
  qn_require(*n > 0, "%s must be a list of samples", name);
  qn_try(qn_try_allocate(ns, *n * sizeof **ns, "samples"));
  bool good = true;
  for (size_t k = 0; k < *n; k++) {
    (*ns)[k] = json_number_value(json_array_get(list, k));
    good = good && isfinite((*ns)[k]) && (*ns)[k] >= 0;
  }
  if (good) return QN_OK;
  qn_release(*ns);
  *ns = NULL;
  return qn_fail(QN_BAD_ARGUMENT, "%s holds a sample that is no time", name);
}

static qn_status summary_of(const json_t *question, json_t **answer)
{
  double *ns;
  size_t n;
  qn_summary s = {0};
  qn_try(samples_of(question, "samples", &ns, &n));
  qn_status status = qn_summarize(ns, n, &s);
  qn_release(ns);
  *answer =
      json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "median", qn_number_or_null(s.median), "low",
                qn_number_or_null(s.low), "high", qn_number_or_null(s.high), "min", qn_number_or_null(s.min), "max",
                qn_number_or_null(s.max), "mean", qn_number_or_null(s.mean), "sd", qn_number_or_null(s.sd));
  return status;
}

static qn_status ratio_of(const json_t *question, json_t **answer)
{
  double *above = NULL, *below = NULL;
  size_t n_above, n_below;
  qn_ratio r = {0};
  qn_status status = samples_of(question, "above", &above, &n_above);
  if (status == QN_OK) status = samples_of(question, "below", &below, &n_below);
  const size_t n = status == QN_OK && n_below < n_above ? n_below : n_above;
  if (status == QN_OK)
    status = json_is_true(json_object_get(question, "word")) ? qn_speedup_paired(above, below, n, &r)
                                                             : qn_ratio_paired(above, below, n, &r);
  qn_release(above);
  qn_release(below);
  *answer = json_pack("{s:o, s:o, s:o}", "ratio", qn_number_or_null(r.ratio), "low", qn_number_or_null(r.low), "high",
                      qn_number_or_null(r.high));
  return status;
}

static double bound_of(const json_t *question, size_t k)
{
  const json_t *value = json_array_get(json_object_get(question, "verdict"), k);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static qn_status verdict_of(const json_t *question, json_t **answer)
{
  const qn_ratio r = {.ratio = 1, .low = bound_of(question, 0), .high = bound_of(question, 1)};
  *answer = json_pack("{s:s}", "verdict", qn_verdict_word(qn_verdict_of(&r)));
  return QN_OK;
}

qn_status qn_json_head(qn_device device, json_t **head)
{
  qn_device_info info = {.size = sizeof info};
  char date[32];
  qn_try(qn_device_query(device, &info));
  qn_json_date(date);
  *head =
      json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:s}}", "date", date, "version", qn_version(), "commit", qn_build_commit,
                "machine", qn_json_machine(&info), "build", "compiler", qn_build_compiler, "type", qn_build_type);
  return QN_OK;
}

static qn_status head_of(const json_t *question, json_t **answer)
{
  const char *kind = json_string_value(json_object_get(question, "head"));
  const int index = (int)json_integer_value(json_object_get(question, "index"));
  return qn_json_head((qn_device){kind && !strcmp(kind, "cuda") ? QN_CUDA : QN_CPU, index}, answer);
}

static qn_status shapes_of(const json_t *question, json_t **answer)
{
  const char *name = json_string_value(json_object_get(question, "workload"));
  qn_workload work;
  qn_try(qn_workload_find(name ? name : "", &work));
  *answer = json_pack("{s:o}", "shapes", qn_json_shapes(&work));
  qn_workload_free(&work);
  return QN_OK;
}

static json_t *answer_to(const char *line)
{
  static const struct {
    const char *member;
    qn_status (*answer)(const json_t *question, json_t **answer);
  } questions[] = {{"samples", summary_of},
                   {"above", ratio_of},
                   {"verdict", verdict_of},
                   {"workload", shapes_of},
                   {"head", head_of}};
  json_error_t error;
  json_t *question = json_loads(line, 0, &error), *answer = NULL;
  qn_status status = qn_fail(QN_BAD_ARGUMENT, "it is no question: samples, above and below, verdict, workload or head");
  for (size_t k = 0; k < sizeof questions / sizeof *questions; k++)
    if (json_object_get(question, questions[k].member)) {
      status = questions[k].answer(question, &answer);
      break;
    }
  json_decref(question);
  if (status == QN_OK && answer) return answer;
  json_decref(answer);
  return json_pack("{s:s}", "error", qn_last_error());
}

qn_status qn_figures_run(FILE *in, FILE *out)
{
  char *line = NULL;
  size_t room = 0;
  bool written = true;
  while (written && getline(&line, &room, in) > 0) {
    json_t *answer = answer_to(line);
    char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    written = text && fprintf(out, "%s\n", text) > 0 && fflush(out) == 0;
    free(text);
    json_decref(answer);
  }
  free(line);
  return written ? QN_OK : qn_fail(QN_IO_ERROR, "nobody reads the figures any more");
}
