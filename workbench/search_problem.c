/* SPDX-License-Identifier: Apache-2.0 */
/* search_problem.c - see search_problem.h. */
#include "workbench/search_problem.h"
#include "core/core.h"
#include "core/file.h"
#include "core/utf8.h"
#include "quern/op.h"
#include "kernel/folder.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Its own ModelNew: the model again. */
static const char own_model[] = "\n\nclass ModelNew(Model):\n    pass\n";

/* ---- texts ---- */

static qn_status read_text(const char *path, json_t **text)
{
  char *whole;
  size_t bytes;
  qn_try(qn_body_read(path, path, &whole, &bytes));
  *text = json_stringn(whole, bytes);
  qn_release(whole);
  return *text ? QN_OK : qn_fail(QN_BAD_FILE, "%s: it is no text in UTF-8", path);
}

static qn_status write_text(const char *path, const json_t *text)
{
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  const bool wrote = file >= 0 && qn_write_all(file, json_string_value(text), json_string_length(text));
  const int why = errno;
  if (file >= 0) close(file);
  return wrote ? QN_OK : qn_fail(QN_IO_ERROR, "%s: it could not be written: %s", path, strerror(why));
}

void qn_search_hash(const char *text, char hash[QN_SEARCH_HASH])
{
  const qn_hash128 h = qn_hash(text, strlen(text));
  snprintf(hash, QN_SEARCH_HASH, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}

static qn_status hash_json(const json_t *value, char hash[QN_SEARCH_HASH])
{
  char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
  if (!text) return qn_fail(QN_NO_MEMORY, "the hash of a candidate");
  qn_search_hash(text, hash);
  free(text);
  return QN_OK;
}

/* ---- problems ---- */

static qn_status add_file(const qn_folder *f, const char *name, json_t *files)
{
  char path[QN_SEARCH_PATH];
  json_t *text = NULL;
  if (!name || json_object_get(files, name)) return QN_OK;
  qn_require(snprintf(path, sizeof path, "%s/%s", f->path, name) < (int)sizeof path, "%.60s...: the path is too long",
             f->path);
  qn_try(read_text(path, &text));
  json_object_set_new(files, name, text);
  return QN_OK;
}

static qn_status read_kernel(qn_search_problem *p, const qn_folder *f)
{
  json_error_t error;
  json_t *files = json_object();
  const char *slash = strrchr(f->file, '/'), *dot = strrchr(f->body.file, '.');
  json_object_set_new(p->about, "files", files);
  const char *const names[] = {slash ? slash + 1 : f->file, f->body.file, f->body.header_file, f->reference.file,
                               f->reference.header_file};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) qn_try(add_file(f, names[k], files));
  const char *text = json_string_value(json_object_get(files, names[0]));
  json_t *kernel = text ? json_loads(text, 0, &error) : NULL;
  if (!kernel) return qn_fail(QN_BAD_FILE, "%s: it is no JSON", f->file);
  json_object_set_new(p->about, "kernel", kernel);
  json_object_set(p->about, "source", json_object_get(files, f->body.file));
  json_object_set_new(p->about, "body", json_string(f->body.file));
  json_object_set_new(p->about, "accepts", json_pack("[s, s]", "body", "folder"));
  snprintf(p->name, sizeof p->name, "%s", f->name);
  snprintf(p->ending, sizeof p->ending, "%s", dot ? dot : f->body.dialect == QN_DIALECT_CUDA ? ".cu" : ".metal");
  return QN_OK;
}

static qn_status open_kernel(qn_search_problem *p, const char *path)
{
  qn_folder *f = NULL;
  qn_try(qn_folder_read(path, &f));
  qn_status status = realpath(f->path, p->path) ? QN_OK : qn_fail(QN_BAD_FILE, "%s: %s", f->path, strerror(errno));
  if (status == QN_OK) status = read_kernel(p, f);
  qn_folder_free(&f);
  return status;
}

static qn_status open_model(qn_search_problem *p, const char *path)
{
  json_t *text = NULL;
  if (!realpath(path, p->path)) return qn_fail(QN_BAD_FILE, "%s: %s", path, strerror(errno));
  qn_try(read_text(p->path, &text));
  const char *last = strrchr(p->path, '/') + 1;
  snprintf(p->name, sizeof p->name, "%.*s", (int)(strlen(last) - strlen(".py")), last);
  snprintf(p->ending, sizeof p->ending, ".py");
  json_object_set_new(p->about, "source", text);
  json_object_set_new(p->about, "accepts", json_pack("[s]", "model"));
  return QN_OK;
}

static qn_status open_any(qn_search_problem *p, const char *path)
{
  const size_t n = strlen(path);
  const qn_op_info *op;
  p->kind = qn_op_find(path, &op) == QN_OK          ? QN_PROBLEM_OP
            : n > 3 && !strcmp(path + n - 3, ".py") ? QN_PROBLEM_MODEL
                                                    : QN_PROBLEM_KERNEL;
  if (p->kind == QN_PROBLEM_MODEL) return open_model(p, path);
  if (p->kind == QN_PROBLEM_KERNEL) return open_kernel(p, path);
  snprintf(p->name, sizeof p->name, "%s", path);
  snprintf(p->path, sizeof p->path, "%s", path);
  json_object_set_new(p->about, "accepts", json_array());
  return QN_OK;
}

qn_status qn_search_problem_open(qn_search_problem *p, const char *path, const char *workload)
{
  static const char *const kinds[] = {"kernel", "op", "model"};
  *p = (qn_search_problem){.about = json_object()};
  qn_try(open_any(p, path));
  json_object_set_new(p->about, "kind", json_string(kinds[p->kind]));
  json_object_set_new(p->about, "name", json_string(p->name));
  if (workload) json_object_set_new(p->about, "workload", json_string(workload));
  return hash_json(p->about, p->hash);
}

void qn_search_problem_close(qn_search_problem *p)
{
  json_decref(p->about);
  p->about = NULL;
}

/* ---- candidates ---- */

static bool accepts(const qn_search_problem *p, const char *kind)
{
  const json_t *all = json_object_get(p->about, "accepts");
  for (size_t k = 0; k < json_array_size(all); k++)
    if (!strcmp(json_string_value(json_array_get(all, k)), kind)) return true;
  return false;
}

static qn_status check_files(json_t *files)
{
  const char *name;
  json_t *text;
  enum { MOST_FILES = 16 };
  qn_require(json_is_object(files) && json_object_get(files, "kernel.json"),
             "a candidate of kind folder has no file kernel.json in its member files");
  qn_require(json_object_size(files) <= MOST_FILES, "a candidate has %zu files, at most %d", json_object_size(files),
             MOST_FILES);
  json_object_foreach(files, name, text)
  {
    qn_require(*name && *name != '.' && strlen(name) < 100 && !strchr(name, '/'),
               "a candidate's file \"%.60s\" is no plain name", name);
    qn_require(json_is_string(text), "a candidate's file \"%s\" is no text", name);
  }
  return QN_OK;
}

/* The member that a kind has, and nothing else of the message. */
static qn_status take_content(const json_t *message, const char *kind, json_t **content)
{
  const char *member = !strcmp(kind, "folder") ? "files" : "source";
  json_t *value = json_object_get(message, member);
  if (!strcmp(kind, "folder"))
    qn_try(check_files(value));
  else
    qn_require(json_string_length(value), "a candidate of kind %s has no text in its member %s", kind, member);
  *content = json_pack("{s:s, s:O}", "kind", kind, member, value);
  return *content ? QN_OK : qn_fail(QN_NO_MEMORY, "a candidate");
}

qn_status qn_search_candidate_read(const qn_search_problem *p, const json_t *message, qn_search_candidate *c)
{
  const char *kind = json_string_value(json_object_get(message, "kind"));
  const char *id = json_string_value(json_object_get(message, "id"));
  const char *note = json_string_value(json_object_get(message, "note"));
  *c = (qn_search_candidate){.generator = 0};
  qn_require(kind && accepts(p, kind), "a candidate of kind \"%.40s\" is not what this problem accepts",
             kind ? kind : "");
  qn_require(id && *id && strlen(id) < sizeof c->id, "a candidate has no id of 1 to %zu characters", sizeof c->id - 1);
  snprintf(c->id, sizeof c->id, "%s", id);
  snprintf(c->kind, sizeof c->kind, "%s", kind);
  snprintf(c->note, sizeof c->note, "%.*s", (int)sizeof c->note - 1, note ? note : "");
  qn_utf8_mend(c->note);
  qn_try(take_content(message, kind, &c->content));
  return hash_json(c->content, c->hash);
}

void qn_search_candidate_close(qn_search_candidate *c)
{
  json_decref(c->content);
  c->content = NULL;
}

qn_status qn_search_candidate_own(const qn_search_problem *p, qn_search_candidate *c)
{
  json_t *message = NULL, *source = json_object_get(p->about, "source");
  if (p->kind == QN_PROBLEM_KERNEL)
    message = json_pack("{s:s, s:s, s:O}", "kind", "body", "id", "problem", "source", source);
  else if (p->kind == QN_PROBLEM_MODEL)
    message = json_pack("{s:s, s:s, s:o}", "kind", "model", "id", "problem", "source",
                        json_sprintf("%s%s", json_string_value(source), own_model));
  const qn_status status = qn_search_candidate_read(p, message, c);
  json_decref(message);
  if (status == QN_OK) snprintf(c->note, sizeof c->note, "the problem's own");
  return status;
}

static qn_status make_folder(const char *path)
{
  if (!mkdir(path, 0755) || errno == EEXIST) return QN_OK;
  return qn_fail(QN_IO_ERROR, "%s: it could not be made: %s", path, strerror(errno));
}

qn_status qn_search_candidate_write_to(const json_t *content, const char *path)
{
  const char *name;
  char at[QN_SEARCH_PATH];
  json_t *text, *files = json_object_get(content, "files");
  if (!files) return write_text(path, json_object_get(content, "source"));
  qn_try(make_folder(path));
  json_object_foreach(files, name, text)
  {
    qn_require(snprintf(at, sizeof at, "%s/%s", path, name) < (int)sizeof at, "%.60s...: the path is too long", path);
    qn_try(write_text(at, text));
  }
  return QN_OK;
}

qn_status qn_search_candidate_write(const qn_search_problem *p, const json_t *content, const char *hash,
                                    const char *folder, char path[QN_SEARCH_PATH])
{
  const char *ending = json_object_get(content, "files") ? "" : p->ending;
  qn_require(snprintf(path, QN_SEARCH_PATH, "%s/%s%s", folder, hash, ending) < QN_SEARCH_PATH,
             "%.60s...: the path is too long", folder);
  return qn_search_candidate_write_to(content, path);
}

static qn_status load_files(const char *path, json_t *files)
{
  char at[QN_SEARCH_PATH];
  qn_status status = QN_OK;
  DIR *folder = opendir(path);
  if (!folder) return qn_fail(QN_BAD_FILE, "%s: %s", path, strerror(errno));
  for (struct dirent *entry; status == QN_OK && (entry = readdir(folder));) {
    json_t *text = NULL;
    if (*entry->d_name == '.') continue;
    snprintf(at, sizeof at, "%.3800s/%s", path, entry->d_name);
    status = read_text(at, &text);
    if (status == QN_OK) json_object_set_new(files, entry->d_name, text);
  }
  closedir(folder);
  return status;
}

static qn_status load(const char *kind, const char *path, json_t *content)
{
  json_t *value = NULL;
  if (!kind) return qn_fail(QN_BAD_FILE, "%s: its line has no kind", path);
  json_object_set_new(content, "kind", json_string(kind));
  if (strcmp(kind, "folder") != 0) {
    qn_try(read_text(path, &value));
    return json_object_set_new(content, "source", value), QN_OK;
  }
  value = json_object();
  json_object_set_new(content, "files", value);
  return load_files(path, value);
}

qn_status qn_search_candidate_load(const char *kind, const char *path, const char *hash, json_t **content)
{
  char is[QN_SEARCH_HASH] = "";
  *content = json_object();
  qn_status status = load(kind, path, *content);
  if (status == QN_OK) status = hash_json(*content, is);
  if (status == QN_OK && strcmp(is, hash) != 0)
    status = qn_fail(QN_BAD_FILE, "%s: it is not what it was when it was judged", path);
  if (status == QN_OK) return QN_OK;
  json_decref(*content);
  *content = NULL;
  return status;
}
