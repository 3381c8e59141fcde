/* SPDX-License-Identifier: Apache-2.0 */
/* search_keep.c - see search_keep.h. */
#include "workbench/search_keep.h"
#include "core/core.h"
#include "core/file.h"
#include "workbench/record_inner.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIED_MOST = 3 };
static const char schema[] = "quern search kept 1";

/* ---- an entry ---- */

static const char *text_of(const json_t *entry, const char *name)
{
  const char *text = json_string_value(json_object_get(entry, name));
  return text ? text : "";
}

/* What differs of device and versions, as a sentence; false: nothing. */
static bool find_difference(const json_t *was, const json_t *is, char *why, size_t bytes)
{
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)is, name, value)
  {
    const json_t *old = json_object_get(was, name);
    if (json_equal(value, old)) continue;
    char *a = json_dumps(old, JSON_ENCODE_ANY), *b = json_dumps(value, JSON_ENCODE_ANY);
    snprintf(why, bytes, "what is kept is of another %s: %.100s, here it is %.100s", name, a ? a : "none", b ? b : "");
    free(a);
    free(b);
    return true;
  }
  return false;
}

static bool is_ours(const json_t *entry, const qn_search_problem *p, const json_t *who, char *why, size_t bytes)
{
  const json_t *source = json_object_get(entry, "source");
  if (strcmp(text_of(entry, "schema"), schema) != 0 || !json_is_string(source) || !*text_of(entry, "kind"))
    snprintf(why, bytes, "what is kept is damaged, or of another version");
  else if (strcmp(text_of(entry, "problem_hash"), p->hash) != 0)
    snprintf(why, bytes, "what is kept is of another problem, or of this one before it was changed");
  else
    return !find_difference(json_object_get(entry, "who"), who, why, bytes);
  return false;
}

void qn_search_kept_close(qn_search_kept *k)
{
  json_decref(k->entry);
  json_decref(k->content);
  k->entry = k->content = NULL;
}

void qn_search_kept_read(const char *folder, const qn_search_problem *p, const json_t *who, qn_search_kept *k)
{
  char path[QN_SEARCH_PATH];
  json_error_t error;
  *k = (qn_search_kept){.entry = NULL};
  snprintf(path, sizeof path, "%s/kept.json", folder);
  if (access(path, F_OK)) {
    snprintf(k->why, sizeof k->why, "nothing is kept");
    return;
  }
  json_t *entry = json_load_file(path, 0, &error);
  if (!entry) snprintf(k->why, sizeof k->why, "%.300s is damaged: %.160s", path, error.text);
  if (entry && is_ours(entry, p, who, k->why, sizeof k->why)) {
    const char *source = text_of(entry, "source");
    snprintf(k->path, sizeof k->path, "%s/%.200s", folder, source);
    if (strstr(source, ".."))
      snprintf(k->why, sizeof k->why, "what is kept is damaged");
    else if (qn_search_candidate_load(text_of(entry, "kind"), k->path, text_of(entry, "hash"), &k->content) == QN_OK)
      k->entry = json_incref(entry);
    else
      snprintf(k->why, sizeof k->why, "%s", qn_last_error());
  }
  json_decref(entry);
}

/* Replaced whole, so that nobody reads half of it. */
static qn_status write_entry(const char *folder, const json_t *entry)
{
  char path[QN_SEARCH_PATH], beside[QN_SEARCH_PATH + 8];
  snprintf(path, sizeof path, "%s/kept.json", folder);
  snprintf(beside, sizeof beside, "%s.new", path);
  const bool wrote = !json_dump_file(entry, beside, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  if (wrote && !rename(beside, path)) return QN_OK;
  return qn_fail(QN_IO_ERROR, "%s: it could not be written: %s", path, strerror(errno));
}

static qn_status keep(const qn_search_order *o, const json_t *line, const qn_search_verdict *v)
{
  char date[32];
  qn_json_date(date);
  const json_t *workloads = json_object_get(json_object_get(o->problem->about, "kernel"), "workloads");
  json_t *entry = json_pack("{s:s, s:s, s:s, s:s, s:O, s:s, s:f, s:O}", "schema", schema, "date", date, "problem",
                            o->problem->path, "problem_hash", o->problem->hash, "who", o->store->who, "check", "full",
                            "speedup", v->speedup, "verdict", v->text);
  static const char *const names[] = {"hash", "kind", "source", "note", "by", "id"};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (json_object_get(line, names[k])) json_object_set(entry, names[k], json_object_get(line, names[k]));
  if (workloads) json_object_set(entry, "shapes", (json_t *)(uintptr_t)workloads);
  const qn_status status = entry ? write_entry(o->store->folder, entry) : qn_fail(QN_NO_MEMORY, "the winner's entry");
  json_decref(entry);
  return status;
}

/* ---- the selection ---- */

/* The best that is slower than `below`, and better than the baseline; NULL. */
static const json_t *best_below(const qn_search_store *store, double below)
{
  const char *hash;
  json_t *line;
  const json_t *best = NULL;
  json_object_foreach(store->known, hash, line)
  {
    const double speedup = qn_search_speedup(line);
    const bool own = !json_integer_value(json_object_get(line, "generator"));
    if (own || strcmp(text_of(line, "fate"), "faster") != 0 || json_object_get(line, "unconfirmed")) continue;
    if (!(speedup > 1 && speedup < below)) continue;
    if (!best || speedup > qn_search_speedup(best)) best = line;
  }
  return best;
}

static qn_status judge_again(const qn_search_order *o, const json_t *line, const qn_search_kept *kept, bool *faster)
{
  char path[QN_SEARCH_PATH];
  qn_search_verdict v;
  qn_search_path(o->store, line, path);
  if (o->progress) qn_progress_at(o->progress, 0, "measuring the best once more");
  qn_try(qn_search_judge_run(o->bench, path, "full", o->stop, &v));
  const double before = json_number_value(json_object_get(kept->entry, "speedup")); /* 0: nothing is kept */
  *faster = v.correct && !strcmp(v.word, "faster") && v.speedup > before;
  json_t *said = json_pack("{s:s, s:s, s:s, s:b}", "hash", text_of(line, "hash"), "fate", v.word, "reason", v.reason,
                           "kept", *faster);
  if (isfinite(v.speedup)) json_object_set_new(said, "speedup", json_real(v.speedup));
  if (v.text) json_object_set(said, "verdict", v.text);
  const bool stopped = *o->stop; /* a signal may set it at any time */
  qn_status status = stopped ? QN_OK : qn_search_store_add(o->store, "selection", said);
  if (stopped) json_decref(said);
  if (status == QN_OK && *faster) status = keep(o, line, &v);
  qn_search_verdict_close(&v);
  return status;
}

qn_status qn_search_select(const qn_search_order *o, qn_search_kept *kept, size_t *tried)
{
  bool faster = false;
  const json_t *line;
  double below = HUGE_VAL;
  qn_status status = QN_OK;
  *tried = 0;
  qn_search_kept_read(o->store->folder, o->problem, o->store->who, kept);
  while (status == QN_OK && !faster && !*o->stop && *tried < TRIED_MOST && (line = best_below(o->store, below))) {
    if (kept->entry && !strcmp(text_of(kept->entry, "hash"), text_of(line, "hash"))) break; /* it was confirmed */
    status = judge_again(o, line, kept, &faster);
    below = qn_search_speedup(line);
    ++*tried;
  }
  if (!faster || status != QN_OK) return status;
  qn_search_kept_close(kept);
  qn_search_kept_read(o->store->folder, o->problem, o->store->who, kept);
  return QN_OK;
}
