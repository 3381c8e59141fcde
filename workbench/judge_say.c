/* SPDX-License-Identifier: Apache-2.0 */
/* judge_say.c - a verdict as people read it, and as a line of docs/verdict-line.schema.json. */
#include "core/core.h"
#include "core/utf8.h"
#include "workbench/judge.h"
#include "workbench/record_inner.h"
#include "workbench/table.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {"baseline", "candidate"};

static bool is_correct(const qn_judge_verdict *v) { return v->word <= QN_JUDGED_UNCLEAR; }

/* ---- text ---- */
static void print_times(FILE *out, const qn_judge_verdict *v)
{
  fprintf(out, "  %-8s  %-9s  %5s  %9s  %9s  %9s  %9s  %9s\n", "timer", "model", "n", "mean", "median", "sd", "min",
          "max");
  for (int k = 0; k < QN_TIMER_COUNT; k++) {
    const int timer = (k + (int)v->headline) % QN_TIMER_COUNT;
    for (int m = QN_JUDGE_MODELS - 1; m >= 0; m--) {
      const qn_summary *s = &v->times[timer].summary[m];
      fprintf(out, "  %-8s  %-9s  %5zu  %9s  %9s  %9s  %9s  %9s\n", qn_timer_name((qn_timer)timer), models[m], s->n,
              qn_duration(s->mean).text, qn_duration(s->median).text, qn_duration(s->sd).text, qn_duration(s->min).text,
              qn_duration(s->max).text);
    }
  }
}

static void print_limit(FILE *out, const qn_judge_verdict *v)
{
  const qn_judge_limit *l = &v->limit;
  const double time = v->times[v->headline].summary[1].median;
  fprintf(out, "  limit: %.4g MB", l->bytes * 1e-6);
  if (l->operations > 0) fprintf(out, ", %.3g operations a byte", l->operations / l->bytes);
  fprintf(out, "; bound by %s, the floor is %s, the candidate takes %.3g times that\n", qn_bound_name(l->bound),
          qn_duration(l->floor_ns).text, time / l->floor_ns);
}

static void print_isolation(FILE *out, unsigned granted)
{
  static const char *const parts[] = {"processes of its own", "no network", "no writing outside its folder",
                                      "no system calls"};
  bool missing = false;
  for (unsigned k = 0; k < 3; k++) missing |= !(granted >> k & 1);
  if (!missing) return;
  fprintf(out, "  isolation is partial: this system granted");
  for (unsigned k = 0; k < 4; k++)
    if (granted >> k & 1) fprintf(out, " %s%s", parts[k], granted >> (k + 1) ? "," : "");
  fprintf(out, "%s\n", granted ? "" : " none of its parts");
}

void qn_judge_print(FILE *out, const char *candidate, const qn_judge_verdict *v)
{
  const char *slash = strrchr(candidate, '/');
  fprintf(out, "%s: %s%s%s%s\n", slash && slash[1] ? slash + 1 : candidate, is_correct(v) ? "correct, " : "",
          qn_judge_word_text(v->word), *v->reason ? ": " : "", v->reason);
  if (v->timed && is_correct(v)) {
    fprintf(out, "  %s, %zu launches verified\n", v->workload, v->launches);
    print_times(out, v);
    fprintf(out, "  speed-up over the baseline: %.3g %s\n", v->speedup.ratio,
            qn_interval(v->speedup.low, v->speedup.high, 3).text);
    print_limit(out, v);
    fprintf(out,
            "  greatest difference %.3g, mean %.3g; error against the reference in double %.2g, baseline's %.2g: "
            "class %s\n",
            v->max_abs, v->mean_abs, v->error, v->baseline_error, v->precision);
    fprintf(out, "  %s bits when run again\n", v->deterministic ? "the same" : "other");
  }
  if (v->word != QN_JUDGED_NOT) print_isolation(out, v->granted);
  for (size_t k = 0; k < v->n_notes; k++) fprintf(out, "  note: %s\n", v->note[k]);
}

/* ---- JSON ---- */
/* Compilers quote a body's own bytes, and a sentence may end within a character. */
static json_t *text_of(const char *text)
{
  char whole[QN_TALK_PATH];
  snprintf(whole, sizeof whole, "%s", text);
  qn_utf8_mend(whole);
  return json_string(whole);
}

static json_t *series(const double *ns, size_t n, const qn_summary *s)
{
  json_t *samples = json_array();
  for (size_t k = 0; k < n; k++) json_array_append_new(samples, json_real(ns[k]));
  return json_pack("{s:o, s:o, s:[o, o], s:o, s:o, s:o, s:o}", "mean_ns", qn_number_or_null(s->mean), "median_ns",
                   qn_number_or_null(s->median), "interval_ns", qn_number_or_null(s->low), qn_number_or_null(s->high),
                   "sd_ns", qn_number_or_null(s->sd), "min_ns", qn_number_or_null(s->min), "max_ns",
                   qn_number_or_null(s->max), "samples_ns", samples);
}

static void add_times(json_t *line, const qn_judge_verdict *v)
{
  json_t *timers = json_object(), *speedup = json_object();
  for (int t = 0; t < QN_TIMER_COUNT; t++) {
    json_t *both = json_object();
    for (int m = 0; m < QN_JUDGE_MODELS; m++)
      json_object_set_new(both, models[m], series(v->times[t].ns[m], v->times[t].n, &v->times[t].summary[m]));
    json_object_set_new(timers, qn_timer_name((qn_timer)t), both);
  }
  static const char *const names[] = {"baseline", "better", "best"};
  for (size_t k = 0; k < 3; k++)
    json_object_set_new(speedup, names[k],
                        json_pack("{s:s, s:o, s:[o, o], s:s}", "of", "baseline", "ratio",
                                  qn_number_or_null(v->speedup.ratio), "interval", qn_number_or_null(v->speedup.low),
                                  qn_number_or_null(v->speedup.high), "word",
                                  is_correct(v) ? qn_judge_word_text(v->word) : "unclear"));
  json_object_set_new(line, "timer", json_string(qn_timer_name(v->headline)));
  json_object_set_new(line, "workload", json_string(v->workload));
  json_object_set_new(line, "timers", timers);
  json_object_set_new(line, "speedup", speedup);
}

static void add_figures(json_t *line, const qn_judge_verdict *v)
{
  const qn_judge_limit *l = &v->limit;
  const qn_judge_times *t = &v->times[v->headline];
  const double operations = l->operations > 0 ? l->operations : 0;
  json_object_set_new(line, "max_abs", qn_number_or_null(v->max_abs));
  json_object_set_new(line, "mean_abs", qn_number_or_null(v->mean_abs));
  json_object_set_new(line, "deterministic", json_boolean(v->deterministic));
  json_object_set_new(line, "launches", json_integer((json_int_t)v->launches));
  json_object_set_new(line, "precision",
                      json_pack("{s:s, s:o, s:o}", "class", v->precision, "error", qn_number_or_null(v->error),
                                "baseline_error", qn_number_or_null(v->baseline_error)));
  json_object_set_new(line, "roofline",
                      json_pack("{s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:{s:f, s:f, s:f, s:s}}", "operations", operations,
                                "bytes", l->bytes, "intensity", operations / l->bytes, "bound", qn_bound_name(l->bound),
                                "floor_ns", l->floor_ns, "distance", t->summary[1].median / l->floor_ns, "headroom",
                                t->summary[0].median / l->floor_ns, "ceilings", "bytes_per_second", l->gbps * 1e9,
                                "operations_per_second", l->rate, "launch_ns", l->launch_ns, "source", "measured"));
}

static json_t *isolation_of(unsigned granted)
{
  json_t *namespaces = json_array(), *denied = json_array();
  static const char *const spaces[] = {"users", "mounts", "processes", "ipc"};
  for (size_t k = 0; granted & QN_SANDBOX_NAMESPACES && k < 4; k++)
    json_array_append_new(namespaces, json_string(spaces[k]));
  if (granted & QN_SANDBOX_NETWORK) json_array_append_new(namespaces, json_string("network"));
  if (granted & QN_SANDBOX_FILES) json_array_append_new(denied, json_string("files"));
  if (granted & QN_SANDBOX_CALLS) json_array_append_new(denied, json_string("system calls"));
  return json_pack("{s:o, s:o}", "namespaces", namespaces, "denied", denied);
}

qn_status qn_judge_line(const qn_judge_request *ask, uint64_t seed, const char *candidate, const qn_judge_verdict *v,
                        char **text)
{
  json_t *line = json_pack("{s:s}", "schema", "quern verdict 1"), *head, *notes = json_array();
  qn_try(qn_json_head(ask->device, &head));
  json_object_update(line, head);
  json_decref(head);
  for (size_t k = 0; k < v->n_notes; k++) json_array_append_new(notes, text_of(v->note[k]));
  json_t *about =
      json_pack("{s:o, s:o, s:s, s:o, s:s, s:I, s:b, s:{s:s}, s:o, s:o}", "problem", text_of(ask->problem), "candidate",
                text_of(candidate), "verdict", qn_judge_word_text(v->word), "reason", text_of(v->reason), "check",
                qn_judge_levels[ask->level], "seed", (json_int_t)seed, "gradients", false, "tolerance", "name",
                "kernel.json", "isolation", isolation_of(v->granted), "notes", notes);
  if (!about) {
    json_decref(line);
    return qn_fail(QN_NO_MEMORY, "a verdict's line");
  }
  json_object_update(line, about);
  json_decref(about);
  if (v->timed) {
    add_times(line, v);
    add_figures(line, v);
  }
  *text = json_dumps(line, JSON_COMPACT);
  json_decref(line);
  return *text ? QN_OK : qn_fail(QN_NO_MEMORY, "a verdict's line");
}
