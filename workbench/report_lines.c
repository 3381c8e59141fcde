/* SPDX-License-Identifier: Apache-2.0 */
/* report_lines.c - lines of verdicts and of searches as report_html.h has them. A line is believed as far as its types
 * and ranges go; one that is wrong does not count, and the page says so. */
#include "core/core.h"
#include "workbench/report_html.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINE = 1 << 24, MOST_LINES = 100000 };
static const char verdict_schema[] = "quern verdict 1", search_schema[] = "quern search 1";
const char *const qn_html_over_names[QN_OVER_COUNT] = {"eager", "compile default", "better", "best"};

static const char *text_or(const json_t *object, const char *key, const char *otherwise)
{
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : otherwise;
}

/* A number from least to most, else NAN. */
static double number(const json_t *object, const char *key, double least, double most)
{
  const json_t *value = json_object_get(object, key);
  const double x = json_is_number(value) ? json_number_value(value) : NAN;
  return x >= least && x <= most ? x : NAN;
}

static double median(const json_t *models, const char *name)
{
  return number(json_object_get(models, name), "median_ns", 1e-3, 1e18);
}

/* One more element at the end of a growing array. */
static void *grown(void **array, size_t n, size_t each)
{
  if (n == 0 || (n >= 16 && (n & (n - 1)) == 0)) {
    void *more = qn_reallocate(*array, (n ? 2 * n : 16) * each);
    if (!more) return NULL;
    *array = more;
  }
  void *at = (char *)*array + n * each;
  memset(at, 0, each);
  return at;
}

/* ---- a verdict ---- */
static bool read_over(const json_t *speedup, const char *name, qn_html_ratio *r)
{
  const json_t *object = json_object_get(speedup, name), *interval = json_object_get(object, "interval");
  *r = (qn_html_ratio){.low = NAN, .high = NAN};
  if (!object) return true;
  const double ratio = number(object, "ratio", 1e-9, 1e9);
  if (isnan(ratio)) return false;
  r->ratio = ratio;
  if (json_array_size(interval) == 2 && json_is_number(json_array_get(interval, 0)) &&
      json_is_number(json_array_get(interval, 1))) {
    r->low = json_number_value(json_array_get(interval, 0));
    r->high = json_number_value(json_array_get(interval, 1));
  }
  r->faster = !strcmp(text_or(object, "word", ""), "faster");
  return true;
}

static void read_roofline(const json_t *line, qn_html_verdict *v)
{
  const json_t *roofline = json_object_get(line, "roofline"), *ceilings = json_object_get(roofline, "ceilings");
  v->operations = number(roofline, "operations", 1e-9, 1e30);
  v->bytes = number(roofline, "bytes", 1e-9, 1e30);
  v->distance = number(roofline, "distance", 0, 1e12);
  v->bound = text_or(roofline, "bound", "");
  v->bytes_per_second = number(ceilings, "bytes_per_second", 1e-3, 1e30);
  v->operations_per_second = number(ceilings, "operations_per_second", 1e-3, 1e30);
}

static bool read_verdict(const json_t *line, qn_html_verdict *v)
{
  static const char *const correct[] = {"faster", "same", "slower", "unclear"};
  const json_t *level = json_object_get(line, "level"), *speedup = json_object_get(line, "speedup");
  const json_t *models = json_object_get(json_object_get(line, "timers"), text_or(line, "timer", ""));
  const json_t *candidate = json_object_get(line, "candidate");
  v->problem = text_or(line, "problem", NULL);
  v->verdict = text_or(line, "verdict", NULL);
  if (!v->problem || !v->verdict || !(json_is_string(candidate) || json_is_null(candidate))) return false;
  if (level && !(json_is_integer(level) && json_integer_value(level) >= 0)) return false;
  v->candidate = json_is_string(candidate) ? json_string_value(candidate) : "";
  v->reason = text_or(line, "reason", "");
  v->date = text_or(line, "date", "");
  v->check = text_or(line, "check", "");
  v->device = text_or(json_object_get(line, "machine"), "device", "a device without a name");
  v->by = "";
  v->level = level ? json_integer_value(level) : QN_HTML_NO_LEVEL;
  for (size_t k = 0; k < 4; k++) v->correct |= !strcmp(v->verdict, correct[k]);
  v->judged = strcmp(v->verdict, "cannot be judged") != 0;
  v->hybrid = json_is_true(json_object_get(line, "hybrid"));
  v->class = text_or(json_object_get(line, "precision"), "class", v->correct ? "not stated" : "");
  for (size_t k = 0; k < QN_OVER_COUNT; k++)
    if (!read_over(speedup, qn_html_over_names[k], &v->over[k])) return false;
  v->median_ns = median(models, "candidate");
  v->eager_ns = median(models, "eager");
  v->compile_ns = median(models, "compile default");
  v->better_ns = median(models, text_or(json_object_get(speedup, "better"), "of", ""));
  if (isnan(v->better_ns)) v->better_ns = fmin(v->eager_ns, v->compile_ns); /* of the baselines alone */
  read_roofline(line, v);
  return true;
}

static bool add_verdict(qn_html_lines *lines, const json_t *line, const char *by)
{
  qn_html_verdict v = {0}, *at;
  if (!read_verdict(line, &v)) return false;
  if (by) v.by = by;
  at = grown((void **)&lines->verdict, lines->n_verdicts, sizeof v);
  if (!at) return false;
  *at = v;
  lines->n_verdicts++;
  return true;
}

/* ---- a search ---- */
static bool add_step(qn_html_search *s, double seconds, double best, const char *what)
{
  qn_html_step *step = grown((void **)&s->step, s->n, sizeof *step);
  if (!step) return false;
  *step = (qn_html_step){seconds, best, what};
  s->n++;
  s->best = best;
  return true;
}

/* A search that goes on is the same one: seconds go on with it. */
static bool begin_search(qn_html_lines *lines, const json_t *line, double seconds, qn_html_search **now)
{
  const char *problem = text_or(line, "problem", NULL);
  const json_t *generators = json_object_get(line, "generators");
  const int64_t seed = json_integer_value(json_object_get(line, "seed"));
  const size_t n = json_array_size(generators);
  if (!problem || !n) return false;
  qn_html_search *before = *now;
  if (before && !json_is_true(json_object_get(line, "fresh")) && before->generators == n && before->seed == seed &&
      !strcmp(before->problem, problem))
    return true;
  *now = grown((void **)&lines->search, lines->n_searches, sizeof **now);
  if (!*now) return false;
  lines->n_searches++;
  **now = (qn_html_search){.problem = problem, .seed = seed, .generators = n, .best = 1, .end_s = seconds};
  return add_step(*now, seconds, 1, "the baseline");
}

/* now: the search that this file is in, NULL before the first. */
static bool add_event(qn_html_lines *lines, const json_t *line, qn_html_search **now)
{
  const char *event = text_or(line, "event", ""), *fate = text_or(line, "fate", "");
  const double seconds = number(line, "seconds", 0, 1e9);
  if (isnan(seconds)) return false;
  if (!strcmp(event, "begin")) return begin_search(lines, line, seconds, now);
  if (!*now) return false; /* the file begins in the middle */
  (*now)->end_s = fmax((*now)->end_s, seconds);
  const bool candidate = !strcmp(event, "candidate"), look = !strcmp(event, "look");
  const bool kept = !strcmp(event, "selection") && json_is_true(json_object_get(line, "kept")) &&
                    json_object_get(line, "variant"); /* of space; it has proved it */
  if (!candidate && !look && !kept) return true;
  (*now)->judged += !kept;
  const json_t *verdict = json_object_get(line, "verdict");
  const char *by = text_or(line, "by", "the problem itself");
  if (candidate && json_is_object(verdict) && !add_verdict(lines, verdict, by)) return false;
  const double speedup = number(line, "speedup", 1e-9, 1e9);
  if ((!kept && strcmp(fate, "faster") != 0) || !(speedup > (*now)->best)) return true;
  return add_step(*now, seconds, speedup, kept ? text_or(line, "variant", "a variant") : by);
}

/* ---- a file ---- */
static void leave_out(qn_html_lines *lines, size_t *count, const char *path, size_t number, const char *why)
{
  ++*count;
  if (!*lines->first_bad) snprintf(lines->first_bad, sizeof lines->first_bad, "%.150s:%zu: %.80s", path, number, why);
}

static void take_line(qn_html_lines *lines, const char *path, size_t number, const char *text, size_t length,
                      qn_html_search **now)
{
  json_error_t error;
  json_t *line = length > MOST_LINE ? NULL : json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  const char *schema = text_or(line, "schema", NULL);
  lines->lines++;
  if (!line) {
    leave_out(lines, &lines->malformed, path, number, length > MOST_LINE ? "more than 16 MiB" : error.text);
  } else if (!schema) {
    leave_out(lines, &lines->malformed, path, number, "it has no member schema");
  } else if (strcmp(schema, verdict_schema) != 0 && strcmp(schema, search_schema) != 0) {
    leave_out(lines, &lines->foreign, path, number, "neither a verdict nor of a search");
  } else if (!strcmp(schema, verdict_schema) ? !add_verdict(lines, line, NULL) : !add_event(lines, line, now)) {
    leave_out(lines, &lines->malformed, path, number, "a member is missing, or not as its schema has it");
    json_array_append(lines->kept, line); /* what was read before the fault may be in use */
  } else {
    json_array_append(lines->kept, line);
  }
  json_decref(line);
}

qn_status qn_html_lines_add(qn_html_lines *lines, const char *path)
{
  FILE *file = fopen(path, "re");
  if (!file) return qn_fail(QN_BAD_FILE, "%s: %s", path, strerror(errno));
  if (!lines->kept) lines->kept = json_array();
  char *text = NULL;
  size_t room = 0, number = 0;
  ssize_t n;
  qn_html_search *now = NULL;
  errno = 0;
  while (lines->lines < MOST_LINES && (n = getline(&text, &room, file)) > 0) {
    number++;
    if (strspn(text, " \t\r\n") < (size_t)n) take_line(lines, path, number, text, (size_t)n, &now);
  }
  const bool failed = ferror(file), more = lines->lines == MOST_LINES && fgetc(file) != EOF;
  const int why = errno;
  free(text);
  fclose(file);
  if (failed) return qn_fail(QN_IO_ERROR, "%s: it could not be read: %s", path, strerror(why));
  return more ? qn_fail(QN_BAD_FILE, "%s: more than %d lines are too many for one page", path, MOST_LINES) : QN_OK;
}

/* By problem, candidate and device, then by the order of the files. */
static int by_work(const void *x, const void *y)
{
  const qn_html_verdict *a = *(qn_html_verdict *const *)x, *b = *(qn_html_verdict *const *)y;
  int order = strcmp(a->problem, b->problem);
  if (!order) order = strcmp(a->candidate, b->candidate);
  if (!order) order = strcmp(a->device, b->device);
  if (!order) order = strcmp(a->by, b->by);
  return order ? order : (a > b) - (a < b);
}

static bool same_work(const qn_html_verdict *a, const qn_html_verdict *b)
{
  return !strcmp(a->problem, b->problem) && !strcmp(a->candidate, b->candidate) && !strcmp(a->device, b->device) &&
         !strcmp(a->by, b->by);
}

void qn_html_lines_end(qn_html_lines *lines)
{
  const size_t n = lines->n_verdicts;
  qn_html_verdict **order = qn_allocate((n + 1) * sizeof *order);
  if (!order) return;
  for (size_t k = 0; k < n; k++) order[k] = &lines->verdict[k];
  qsort(order, n, sizeof *order, by_work);
  for (size_t k = 0; k < n; k++) order[k]->last = k + 1 == n || !same_work(order[k], order[k + 1]);
  qn_release(order);
}

void qn_html_lines_free(qn_html_lines *lines)
{
  for (size_t k = 0; k < lines->n_searches; k++) qn_release(lines->search[k].step);
  qn_release(lines->search);
  qn_release(lines->verdict);
  json_decref(lines->kept);
  *lines = (qn_html_lines){0};
}
