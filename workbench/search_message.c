/* SPDX-License-Identifier: Apache-2.0 */
/* search_message.c - what the search tells generators (docs/search-protocol.schema.json), from lines of its store. */
#include "workbench/search_run.h"
#include <math.h>

static void copy(json_t *to, const char *name, json_t *value)
{
  if (value) json_object_set(to, name, value);
}

/* The median of the candidate's headline timer; NAN. */
static double time_ns_of(const json_t *verdict)
{
  const char *timer = json_string_value(json_object_get(verdict, "timer"));
  const json_t *timers = timer ? json_object_get(json_object_get(verdict, "timers"), timer) : NULL;
  const json_t *median = json_object_get(json_object_get(timers, "candidate"), "median_ns");
  return json_is_number(median) ? json_number_value(median) : NAN;
}

/* Floor, bound and headroom, as the judge has them. */
static void add_limit(json_t *message, const json_t *verdict)
{
  static const char *const names[] = {"bound", "floor_ns", "distance", "headroom"};
  const json_t *roofline = json_object_get(verdict, "roofline");
  const double ns = time_ns_of(verdict);
  if (isfinite(ns)) json_object_set_new(message, "time_ns", json_real(ns));
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    copy(message, names[k], json_object_get(roofline, names[k]));
}

json_t *qn_search_message_problem(const qn_search_order *o, const json_t *own, size_t generator)
{
  json_t *message = json_deep_copy(o->problem->about);
  const json_t *verdict = json_object_get(own, "verdict"), *kernel = json_object_get(message, "kernel");
  json_object_set_new(message, "type", json_string("problem"));
  json_object_set_new(message, "protocol", json_integer(1));
  json_object_set_new(message, "seed", json_integer((json_int_t)o->seed));
  json_object_set_new(message, "generator", json_integer((json_int_t)generator));
  json_object_set_new(message, "budget_s", json_real(o->budget_s));
  copy(message, "device", o->store->who);
  copy(message, "workloads", json_object_get(kernel, "workloads"));
  copy(message, "tolerance", json_object_get(kernel, "agreement"));
  copy(message, "tolerance", json_object_get(verdict, "tolerance"));
  add_limit(message, verdict);
  return message;
}

json_t *qn_search_message_tell(const json_t *line, const char *id, bool again, bool best)
{
  static const char *const names[] = {"reason", "line", "correct", "speedup"};
  const json_t *verdict = json_object_get(line, "verdict");
  json_t *message = json_pack("{s:s, s:s, s:b, s:b}", "type", "tell", "id", id, "duplicate", again, "best", best);
  copy(message, "verdict", json_object_get(line, "fate"));
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) copy(message, names[k], json_object_get(line, names[k]));
  copy(message, "precision", json_object_get(verdict, "precision"));
  copy(message, "notes", json_object_get(verdict, "notes"));
  add_limit(message, verdict);
  return message;
}

json_t *qn_search_message_ask(const json_t *best, const json_t *content, double seconds_left)
{
  json_t *message = json_pack("{s:f, s:n}", "seconds_left", seconds_left > 0 ? seconds_left : 0, "best");
  if (!best || !content) return message;
  json_t *is = json_deep_copy(content);
  copy(is, "id", json_object_get(best, "id"));
  copy(is, "hash", json_object_get(best, "hash"));
  copy(is, "generator", json_object_get(best, "generator"));
  copy(is, "speedup", json_object_get(best, "speedup"));
  add_limit(is, json_object_get(best, "verdict"));
  json_object_set_new(message, "best", is);
  return message;
}
