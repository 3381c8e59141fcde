/* SPDX-License-Identifier: Apache-2.0 */
/* search_store.c - see search_store.h. A line that is none, as a stop may leave the last, is passed by. */
#include "workbench/search_store.h"
#include "core/core.h"
#include "core/file.h"
#include "workbench/judge_process.h"
#include "workbench/sampler.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

qn_status qn_search_store_place(char path[QN_SEARCH_PATH])
{
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  const bool own = state && *state == '/';
  qn_require(own || (home && *home == '/'),
             "neither XDG_STATE_HOME nor HOME is an absolute path; --store names a folder for what is found");
  qn_require(snprintf(path, QN_SEARCH_PATH, "%s%s/quern/search", own ? state : home, own ? "" : "/.local/state") <
                 QN_SEARCH_PATH,
             "the path of the store is too long");
  return QN_OK;
}

qn_status qn_search_store_folder(const char *root, const qn_search_problem *problem, char folder[QN_SEARCH_PATH - 256])
{
  const int most = QN_SEARCH_PATH - 256;
  qn_require(snprintf(folder, (size_t)most, "%s/%s-%.16s", root, problem->name, problem->hash) < most,
             "%.60s...: the path is too long", root);
  return QN_OK;
}

static qn_status make_folders(char *path)
{
  for (char *at = path + 1;; at++) {
    if (*at && *at != '/') continue;
    const char kept = *at;
    *at = 0;
    const bool made = !mkdir(path, 0755) || errno == EEXIST;
    const int why = errno;
    if (!made) return qn_fail(QN_IO_ERROR, "%s: the folder could not be made: %s", path, strerror(why));
    *at = kept;
    if (!kept) return QN_OK;
  }
}

/* ---- lines ---- */

/* Of all runs with this seed, until now. */
static double seconds_of(const qn_search_store *s) { return s->spent_s + (double)(qn_now_ns() - s->began_ns) * 1e-9; }

const json_t *qn_search_store_find(const qn_search_store *s, const char *hash)
{
  return json_object_get(s->known, hash);
}

/* A candidate that was judged again and was not faster is no winner of a later run either. */
static void note_selection(qn_search_store *s, const json_t *line)
{
  const char *hash = json_string_value(json_object_get(line, "hash"));
  json_t *of = hash ? json_object_get(s->known, hash) : NULL;
  if (of && json_is_false(json_object_get(line, "kept"))) json_object_set_new(of, "unconfirmed", json_true());
}

qn_status qn_search_store_add(qn_search_store *s, const char *event, json_t *line)
{
  const json_t *hash = json_object_get(line, "hash");
  json_object_set_new(line, "schema", json_string(QN_SEARCH_SCHEMA));
  json_object_set_new(line, "event", json_string(event));
  json_object_set_new(line, "seconds", json_real(seconds_of(s)));
  if (!strcmp(event, "candidate") && hash) json_object_set(s->known, json_string_value(hash), line);
  if (!strcmp(event, "selection")) note_selection(s, line);
  char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
  json_decref(line);
  qn_text all = {0};
  if (text) qn_text_add(&all, "%s\n", text);
  free(text);
  const bool wrote = all.at && !all.failed && qn_write_all(s->descriptor, all.at, all.length);
  const int why = errno;
  qn_text_free(&all);
  return wrote ? QN_OK : qn_fail(QN_IO_ERROR, "%s: it could not be written: %s", s->file, strerror(why));
}

/* Of another device or version nothing counts; of another seed the time does not. */
typedef struct reading {
  qn_search_store *store;
  uint64_t seed;
  bool ours, same_seed;
} reading;

static void take_line(reading *r, json_t *line)
{
  qn_search_store *s = r->store;
  const char *schema = json_string_value(json_object_get(line, "schema"));
  const char *event = json_string_value(json_object_get(line, "event"));
  const char *hash = json_string_value(json_object_get(line, "hash"));
  const double seconds = json_number_value(json_object_get(line, "seconds"));
  if (!schema || strcmp(schema, QN_SEARCH_SCHEMA) != 0 || !event) {
    s->left_out++;
    return;
  }
  if (!strcmp(event, "begin")) {
    const json_t *seed = json_object_get(line, "seed");
    r->ours = json_equal(json_object_get(line, "who"), s->who);
    r->same_seed = r->ours && (uint64_t)json_integer_value(seed) == r->seed;
    if (r->ours && json_is_true(json_object_get(line, "fresh"))) json_object_clear(s->known), s->spent_s = 0;
  }
  if (r->same_seed && seconds > s->spent_s) s->spent_s = seconds;
  const bool seen = !strcmp(event, "candidate") || !strcmp(event, "look");
  if (r->ours && seen && hash) json_object_set(s->known, hash, line);
  if (r->ours && !strcmp(event, "selection")) note_selection(s, line);
}

static qn_status take_up(qn_search_store *s, uint64_t seed)
{
  reading r = {.store = s, .seed = seed};
  char *text = NULL;
  size_t room = 0;
  ssize_t n;
  FILE *file = fopen(s->file, "re");
  if (!file) return qn_fail(QN_IO_ERROR, "%s: it cannot be read: %s", s->file, strerror(errno));
  bool whole = true;
  while ((n = getline(&text, &room, file)) > 0) {
    json_t *line = json_loadb(text, (size_t)n, 0, NULL);
    if (line)
      take_line(&r, line);
    else
      s->left_out++;
    json_decref(line);
    whole = text[n - 1] == '\n';
  }
  free(text);
  fclose(file);
  /* What follows must not continue half a line. */
  return whole || qn_write_all(s->descriptor, "\n", 1) ? QN_OK
                                                       : qn_fail(QN_IO_ERROR, "%s: %s", s->file, strerror(errno));
}

/* ---- the whole ---- */

static qn_status open_file(qn_search_store *s)
{
  s->descriptor = open(s->file, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (s->descriptor < 0) return qn_fail(QN_IO_ERROR, "%s: it cannot be opened: %s", s->file, strerror(errno));
  if (!flock(s->descriptor, LOCK_EX | LOCK_NB)) return QN_OK;
  return qn_fail(QN_BAD_ARGUMENT, "%s: another search of this problem is at work; --store names another folder",
                 s->file);
}

static qn_status begin(qn_search_store *s, uint64_t seed, bool fresh, const json_t *members)
{
  json_t *line = json_deep_copy(members);
  json_object_set(line, "who", s->who);
  json_object_set_new(line, "seed", json_integer((json_int_t)seed));
  json_object_set_new(line, "fresh", json_boolean(fresh));
  json_object_set_new(line, "known", json_integer((json_int_t)json_object_size(s->known)));
  return qn_search_store_add(s, "begin", line);
}

qn_status qn_search_store_open(qn_search_store *s, const char *root, const qn_search_problem *problem,
                               const json_t *who, uint64_t seed, bool fresh, const json_t *members)
{
  *s = (qn_search_store){.descriptor = -1, .known = json_object(), .began_ns = qn_now_ns()};
  s->who = json_deep_copy(who);
  qn_try(qn_search_store_folder(root, problem, s->folder));
  snprintf(s->sources, sizeof s->sources, "%s/sources", s->folder);
  snprintf(s->file, sizeof s->file, "%s/candidates.jsonl", s->folder);
  s->made = access(s->folder, F_OK) != 0;
  qn_try(make_folders(s->sources));
  qn_try(open_file(s));
  qn_try(take_up(s, seed));
  if (fresh) json_object_clear(s->known), s->spent_s = 0;
  return begin(s, seed, fresh, members);
}

void qn_search_store_close(qn_search_store *s)
{
  if (s->descriptor >= 0) close(s->descriptor); /* and with it the lock */
  json_decref(s->known);
  json_decref(s->who);
  *s = (qn_search_store){.descriptor = -1};
}

void qn_search_store_drop(qn_search_store *s)
{
  if (s->made) qn_tree_remove(s->folder);
}
