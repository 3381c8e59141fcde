/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_folder.c - see kernel_folder.h. The file as a whole: finding it, its members' names, the bodies beside it.
 * kernel_folder_tensors.c reads what tensors are, kernel_folder_launch.c templates, launch, sizes and workloads. */
#include "workbench/kernel_folder_inner.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct kept {
  struct kept *next;
  char text[];
} kept;

/* ---- complaints ---- */
qn_status qn_reading_wrong(const qn_reading *r, const char *member, const char *format, ...)
{
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return qn_fail(QN_BAD_FILE, "%s: %s%s%s", r->f->file, member ? member : "", member ? ": " : "", text);
}

qn_status qn_reading_within(const qn_reading *r, const char *member)
{
  char text[512];
  snprintf(text, sizeof text, "%s", qn_last_error());
  return qn_reading_wrong(r, member, "%s", text);
}

const char *qn_json_kind(const json_t *value)
{
  switch (value ? json_typeof(value) : JSON_NULL) {
  case JSON_OBJECT: return "an object";
  case JSON_ARRAY: return "a list";
  case JSON_STRING: return "a text";
  case JSON_INTEGER: return "a whole number";
  case JSON_REAL: return "a number with a fraction";
  case JSON_TRUE: return "true";
  case JSON_FALSE: return "false";
  default: return "null";
  }
}

qn_status qn_reading_members(const qn_reading *r, const char *member, const json_t *object, const char *const *known)
{
  const char *key;
  json_t *value;
  if (!json_is_object(object))
    return qn_reading_wrong(r, member, "is %s, it must be an object { ... }", qn_json_kind(object));
  json_object_foreach((json_t *)(uintptr_t)object, key, value)
  {
    bool found = false;
    for (size_t k = 0; known[k]; k++) found = found || !strcmp(key, known[k]);
    if (found) continue;
    const char *near = qn_nearest(key, known);
    return qn_reading_wrong(r, member, "there is no member \"%s\"%s%s%s", key, near ? "; did you mean \"" : "",
                            near ? near : "", near ? "\"?" : "");
  }
  return QN_OK;
}

const char *qn_reading_keep(const qn_reading *r, const char *text, size_t length)
{
  kept *k = qn_allocate(sizeof *k + length + 1);
  if (!k) return NULL;
  memcpy(k->text, text, length);
  k->text[length] = 0;
  k->next = r->f->texts;
  r->f->texts = k;
  return k->text;
}

/* ---- files beside kernel.json ---- */
qn_status qn_reading_path(const qn_reading *r, const char *member, const char *file, char **path)
{
  *path = NULL;
  if (!*file || *file == '/' || strstr(file, ".."))
    return qn_reading_wrong(r, member, "\"%s\" must be the name of a file in the folder", file);
  qn_text text = {0};
  qn_text_add(&text, "%s/%s", r->f->path, file);
  if (text.failed) return qn_fail(QN_NO_MEMORY, "a path in %s", r->f->path);
  *path = text.at;
  return QN_OK;
}

static qn_status read_text(const qn_reading *r, const char *member, const char *file, const char **text)
{
  enum { MOST_BYTES = 4 << 20 };
  char *path;
  struct stat is;
  qn_try(qn_reading_path(r, member, file, &path));
  FILE *stream = fopen(path, "rb");
  qn_status status = QN_OK;
  if (!stream || fstat(fileno(stream), &is) || !S_ISREG(is.st_mode))
    status = qn_reading_wrong(r, member, "%s cannot be read: %s", file, stream ? "it is no file" : strerror(errno));
  else if (is.st_size > MOST_BYTES)
    status = qn_reading_wrong(r, member, "%s has %lld bytes; a body has at most 4 MiB", file, (long long)is.st_size);
  qn_text all = {0};
  char piece[4096];
  for (size_t n; status == QN_OK && (n = fread(piece, 1, sizeof piece, stream)) > 0;) qn_text_add_bytes(&all, piece, n);
  if (status == QN_OK && all.length && memchr(all.at, 0, all.length))
    status = qn_reading_wrong(r, member, "%s has a NUL byte in it; it must be text", file);
  if (status == QN_OK) *text = qn_reading_keep(r, all.at ? all.at : "", all.length);
  if (status == QN_OK && (all.failed || !*text)) status = qn_fail(QN_NO_MEMORY, "%s", path);
  if (stream) fclose(stream);
  qn_text_free(&all);
  qn_release(path);
  return status;
}

/* A member that is a text; `fallback` where it is missing (NULL: it must be there). */
static qn_status text_of(const qn_reading *r, const json_t *object, const char *member, const char *fallback,
                         const char **text)
{
  const json_t *value = json_object_get(object, member);
  *text = value ? json_string_value(value) : fallback;
  if (!value && !fallback) return qn_reading_wrong(r, NULL, "the member \"%s\" is missing", member);
  if (value && !json_is_string(value))
    return qn_reading_wrong(r, member, "is %s, it must be a text", qn_json_kind(value));
  return QN_OK;
}

static qn_status choice_of(const qn_reading *r, const json_t *object, const char *member, const char *const *words,
                           int *k)
{
  const char *text;
  qn_try(text_of(r, object, member, words[*k], &text));
  for (*k = 0; words[*k]; ++*k)
    if (!strcmp(text, words[*k])) return QN_OK;
  const char *near = qn_nearest(text, words);
  return qn_reading_wrong(r, member, "is \"%s\"%s%s%s; it can be \"%s\", \"%s\"%s%s%s", text,
                          near ? ", did you mean " : "", near ? near : "", near ? "?" : "", words[0], words[1],
                          words[2] ? " or \"" : "", words[2] ? words[2] : "", words[2] ? "\"" : "");
}

/* The body's file, its header's, its dialect. */
static qn_status read_body(const qn_reading *r, const json_t *object, const char *name, qn_folder_body *body)
{
  static const char *const dialects[] = {"metal", "cuda", NULL};
  int dialect = body->dialect;
  const char *header = NULL, *usual = body->file;
  qn_try(choice_of(r, object, "dialect", dialects, &dialect));
  body->dialect = (qn_dialect)dialect;
  qn_text file = {0};
  qn_text_add(&file, "%s.%s", name, dialect == QN_DIALECT_METAL ? "metal" : "cu");
  if (!usual && file.at) usual = qn_reading_keep(r, file.at, file.length);
  qn_text_free(&file);
  if (!usual) return qn_fail(QN_NO_MEMORY, "%s", r->f->file);
  qn_try(text_of(r, object, "source", usual, &body->file));
  qn_try(read_text(r, "source", body->file, &body->source));
  qn_try(text_of(r, object, "header", "", &header));
  if (!*header) return QN_OK;
  body->header_file = header;
  return read_text(r, "header", header, &body->header);
}

static qn_status read_reference(qn_reading *r)
{
  static const char *const known[] = {"source", "header", "dialect", "grid", "threadgroup", "templates", NULL};
  qn_folder *f = r->f;
  const json_t *reference = json_object_get(r->root, "reference");
  if (!reference || json_is_null(reference)) return QN_OK;
  qn_try(qn_reading_members(r, "reference", reference, known));
  f->reference = f->body; /* its launch and templates, unless it says otherwise */
  f->reference.file = NULL;
  return read_body(r, reference, "reference", &f->reference);
}

/* ---- the whole ---- */
static const char *const members[] = {
    "name",      "doc",         "dialect",      "source",    "header",   "math",      "inputs",      "outputs",
    "templates", "strided",     "atomic",       "init",      "in_place", "grid",      "threadgroup", "shared_bytes",
    "scalars",   "fill",        "reference",    "agreement", "sizes",    "workloads", "bytes",       "operations",
    "tune",      "inputs_file", "outputs_file", "same_bits", "strides",  "ignore",    NULL};

static qn_status read_files(qn_reading *r)
{
  struct {
    const char *member;
    char **path;
  } files[] = {{"inputs_file", &r->f->inputs_file}, {"outputs_file", &r->f->outputs_file}};
  for (size_t k = 0; k < 2; k++) {
    const char *file = NULL;
    qn_try(text_of(r, r->root, files[k].member, "", &file));
    if (*file) qn_try(qn_reading_path(r, files[k].member, file, files[k].path));
  }
  return QN_OK;
}

static qn_status read_ignore(qn_reading *r)
{
  const json_t *list = json_object_get(r->root, "ignore");
  qn_text names = {0};
  if (!list) return QN_OK;
  for (size_t k = 0; k < json_array_size(list); k++) {
    const char *name = json_string_value(json_array_get(list, k));
    qn_text_add(&names, "%s%s", k ? "," : "", name ? name : "?");
  }
  qn_status status = QN_OK;
  if (!json_is_array(list))
    status = qn_reading_wrong(r, "ignore", "is %s, it must be a list like [\"same value\"]", qn_json_kind(list));
  else if (names.failed)
    status = qn_fail(QN_NO_MEMORY, "%s", r->f->file);
  else if (qn_finding_kinds(names.at ? names.at : "", &r->f->ignore) != QN_OK)
    status = qn_reading_within(r, "ignore");
  qn_text_free(&names);
  return status;
}

static bool is_identifier(const char *text)
{
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
  return *text && (*text < '0' || *text > '9') && strspn(text, letters) == strlen(text);
}

static qn_status read_members(qn_reading *r)
{
  static const char *const maths[] = {"safe", "relaxed", "fast", NULL};
  qn_folder *f = r->f;
  int math = QN_MATH_SAFE;
  qn_try(qn_reading_members(r, NULL, r->root, members));
  qn_try(text_of(r, r->root, "name", NULL, &f->name));
  if (!is_identifier(f->name)) return qn_reading_wrong(r, "name", "\"%s\" must be a C identifier", f->name);
  qn_try(text_of(r, r->root, "doc", "", &f->doc));
  qn_try(choice_of(r, r->root, "math", maths, &math));
  f->math = (qn_math)math;
  qn_try(read_body(r, r->root, f->name, &f->body));
  qn_try(qn_folder_read_tensors(r));
  qn_try(qn_folder_read_templates(r, "templates", json_object_get(r->root, "templates"), &f->body));
  qn_try(read_reference(r));
  qn_try(qn_folder_read_launch(r));
  qn_try(qn_folder_read_traits(r));
  qn_try(read_files(r));
  qn_try(read_ignore(r));
  return qn_folder_read_sizes(r);
}

static qn_status find_file(const char *path, qn_folder *f)
{
  struct stat is;
  qn_text folder = {0}, file = {0};
  if (stat(path, &is))
    return qn_fail(QN_BAD_FILE, "%s: %s%s", path, strerror(errno),
                   errno == ENOENT ? "; `quern kernel new` makes a kernel's folder" : "");
  size_t length = strlen(path);
  while (S_ISDIR(is.st_mode) && length > 1 && path[length - 1] == '/') length--;
  const char *slash = strrchr(path, '/');
  if (S_ISDIR(is.st_mode))
    qn_text_add(&folder, "%.*s", (int)length, path);
  else
    qn_text_add(&folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
  qn_text_add(&file, S_ISDIR(is.st_mode) ? "%.*s/kernel.json" : "%.*s", S_ISDIR(is.st_mode) ? (int)length : 4096, path);
  f->path = folder.at; /* the folder's now */
  f->file = file.at;
  return folder.failed || file.failed ? qn_fail(QN_NO_MEMORY, "%s", path) : QN_OK;
}

static qn_status load(qn_folder *f)
{
  json_error_t error;
  FILE *stream = fopen(f->file, "rb");
  if (!stream)
    return qn_fail(QN_BAD_FILE, "%s: %s; a kernel's folder has a file kernel.json", f->file, strerror(errno));
  json_t *root = json_loadf(stream, JSON_REJECT_DUPLICATES, &error);
  fclose(stream);
  f->json = root;
  if (!root) return qn_fail(QN_BAD_FILE, "%s:%d:%d: %s", f->file, error.line, error.column, error.text);
  qn_reading r = {f, root};
  return read_members(&r);
}

qn_status qn_folder_read(const char *path, qn_folder **folder)
{
  *folder = qn_allocate_zero(1, sizeof **folder);
  if (!*folder) return qn_fail(QN_NO_MEMORY, "the kernel's folder %s", path);
  qn_status status = find_file(path, *folder);
  if (status == QN_OK) status = load(*folder);
  if (status != QN_OK) qn_folder_free(folder);
  return status;
}

void qn_folder_free(qn_folder **folder)
{
  qn_folder *f = *folder;
  *folder = NULL;
  if (!f) return;
  for (kept *k = f->texts, *next; k; k = next) {
    next = k->next;
    qn_release(k);
  }
  char *texts[] = {f->path, f->file, f->inputs_file, f->outputs_file};
  for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) qn_release(texts[k]);
  qn_release(f->size);
  qn_release(f->workload);
  json_decref(f->json);
  qn_release(f);
}

int qn_folder_tensor_find(const qn_folder *folder, const char *name)
{
  for (size_t k = 0; k < folder->n_inputs + folder->n_outputs; k++)
    if (!strcmp(folder->tensor[k].name, name)) return (int)k;
  return -1;
}

bool qn_is_bare_name(const char *extent) { return is_identifier(extent); }
