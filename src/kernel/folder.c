/* SPDX-License-Identifier: Apache-2.0 */
/* folder.c - see folder.h. The file as a whole: finding it, its members' names, the bodies beside it.
 * folder_tensors.c reads what tensors are, folder_launch.c templates, launch, sizes and workloads; folder_bind.c makes
 * numbers of them, folder_call.c what a library's caller has. */
#include "kernel/folder_inner.h"
#include "core/file.h"
#include <errno.h>
#include <fcntl.h>
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

/* Refuses members that are not among the NULL-terminated names, with the nearest of them. */
static qn_status check_members(const qn_reading *r, const char *member, const qn_json *object, const char *const *known)
{
  if (!qn_json_is(object, QN_JSON_OBJECT))
    return qn_reading_wrong(r, member, "is %s, it must be an object { ... }", qn_json_describe(object));
  for (const qn_json *value = qn_json_first(object); value; value = value->next) {
    const char *key = value->key;
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
static qn_status path_of(const qn_reading *r, const char *member, const char *file, char **path)
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

qn_status qn_body_read(const char *path, const char *name, char **text, size_t *bytes)
{
  enum { MOST_BYTES = 4 << 20 };
  struct stat is;
  *text = NULL;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return qn_fail(QN_BAD_FILE, "%s cannot be read: %s", name, strerror(errno));
  qn_status status = QN_OK;
  if (fstat(file, &is) || !S_ISREG(is.st_mode))
    status = qn_fail(QN_BAD_FILE, "%s cannot be read: it is no file", name);
  else if (is.st_size > MOST_BYTES)
    status = qn_fail(QN_BAD_FILE, "%s has %lld bytes; a body has at most 4 MiB", name, (long long)is.st_size);
  if (status == QN_OK) status = qn_try_allocate(text, (size_t)is.st_size + 1, "a body");
  if (status == QN_OK && !qn_read_all(file, *text, (size_t)is.st_size))
    status = qn_fail(QN_BAD_FILE, "%s cannot be read: %s", name, errno ? strerror(errno) : "it became shorter");
  close(file);
  if (status == QN_OK) (*text)[ *bytes = (size_t)is.st_size] = 0;
  if (status == QN_OK && memchr(*text, 0, *bytes))
    status = qn_fail(QN_BAD_FILE, "%s has a NUL byte in it; it must be text", name);
  if (status == QN_OK) return QN_OK;
  qn_release(*text);
  *text = NULL;
  return status;
}

static qn_status read_text(const qn_reading *r, const char *member, const char *file, const char **text)
{
  char *path, *whole;
  size_t bytes;
  qn_try(path_of(r, member, file, &path));
  qn_status status = qn_body_read(path, file, &whole, &bytes);
  qn_release(path);
  if (status == QN_BAD_FILE) return qn_reading_within(r, member);
  if (status != QN_OK) return status;
  *text = qn_reading_keep(r, whole, bytes);
  qn_release(whole);
  return *text ? QN_OK : qn_fail(QN_NO_MEMORY, "%s", file);
}

/* A member that is a text; `fallback` where it is missing (NULL: it must be there). */
static qn_status text_of(const qn_reading *r, const qn_json *object, const char *member, const char *fallback,
                         const char **text)
{
  const qn_json *value = qn_json_get(object, member);
  *text = value ? qn_json_string(value) : fallback;
  if (!value && !fallback) return qn_reading_wrong(r, NULL, "the member \"%s\" is missing", member);
  if (value && !qn_json_is(value, QN_JSON_STRING))
    return qn_reading_wrong(r, member, "is %s, it must be a text", qn_json_describe(value));
  return QN_OK;
}

static qn_status choice_of(const qn_reading *r, const qn_json *object, const char *member, const char *const *words,
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
static qn_status read_body(const qn_reading *r, const qn_json *object, const char *name, qn_folder_body *body)
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
  const qn_json *reference = qn_json_get(r->root, "reference");
  if (!reference || qn_json_is(reference, QN_JSON_NULL)) return QN_OK;
  qn_try(check_members(r, "reference", reference, known));
  f->reference = f->body; /* its launch and templates, unless it says otherwise */
  f->reference.file = NULL;
  return read_body(r, reference, "reference", &f->reference);
}

/* ---- the whole ---- */
static const char *const members[] = {
    "name",        "doc",          "dialect",    "source",  "header",      "math",         "inputs",
    "outputs",     "templates",    "strided",    "atomic",  "init",        "in_place",     "grid",
    "threadgroup", "shared_bytes", "scalars",    "fill",    "reference",   "agreement",    "sizes",
    "workloads",   "bytes",        "operations", "tune",    "inputs_file", "outputs_file", "same_bits",
    "strides",     "ignore",       "domain",     "cluster", NULL};

static qn_status read_files(qn_reading *r)
{
  struct {
    const char *member;
    char **path;
  } files[] = {{"inputs_file", &r->f->inputs_file}, {"outputs_file", &r->f->outputs_file}};
  for (size_t k = 0; k < 2; k++) {
    const char *file = NULL;
    qn_try(text_of(r, r->root, files[k].member, "", &file));
    if (*file) qn_try(path_of(r, files[k].member, file, files[k].path));
  }
  return QN_OK;
}

static qn_status read_ignore(qn_reading *r)
{
  const qn_json *list = qn_json_get(r->root, "ignore");
  qn_text names = {0};
  if (!list) return QN_OK;
  for (size_t k = 0; k < array_size(list); k++) {
    const char *name = qn_json_string(qn_json_at(list, k));
    qn_text_add(&names, "%s%s", k ? "," : "", name ? name : "?");
  }
  qn_status status = QN_OK;
  if (!qn_json_is(list, QN_JSON_ARRAY))
    status = qn_reading_wrong(r, "ignore", "is %s, it must be a list like [\"same value\"]", qn_json_describe(list));
  else if (names.failed)
    status = qn_fail(QN_NO_MEMORY, "%s", r->f->file);
  else if (qn_finding_kinds(names.at ? names.at : "", &r->f->ignore) != QN_OK)
    status = qn_reading_within(r, "ignore");
  qn_text_free(&names);
  return status;
}

/* {"n": [1, 65536]}, or with a third number, the step. */
static qn_status read_domain(qn_reading *r)
{
  const qn_json *all = qn_json_get(r->root, "domain");
  const char *known[QN_FOLDER_NAMES + 1] = {NULL};
  qn_folder *f = r->f;
  if (!all) return QN_OK;
  for (size_t e = 0; e < f->n_extents; e++) known[e] = f->extent[e];
  qn_try(check_members(r, "domain", all, known));
  for (size_t e = 0; e < f->n_extents; e++) {
    const qn_json *range = qn_json_get(all, f->extent[e]);
    const size_t n = array_size(range);
    int64_t value[3] = {0, 0, 1};
    bool whole = n == 2 || n == 3;
    for (size_t k = 0; whole && k < n; k++) {
      whole = qn_json_is(qn_json_at(range, k), QN_JSON_INTEGER);
      value[k] = whole_of(qn_json_at(range, k));
    }
    if (!range) continue;
    if (!whole || value[0] < 1 || value[1] < value[0] || value[2] < 1)
      return qn_reading_wrong(r, "domain",
                              "%s must be a list like [1, 4096]: lowest and highest value, and where it "
                              "is not 1 the step",
                              f->extent[e]);
    f->domain[e] = (qn_folder_range){value[0], value[1], value[2]};
  }
  return QN_OK;
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
  qn_try(check_members(r, NULL, r->root, members));
  qn_try(text_of(r, r->root, "name", NULL, &f->name));
  if (!is_identifier(f->name)) return qn_reading_wrong(r, "name", "\"%s\" must be a C identifier", f->name);
  qn_try(text_of(r, r->root, "doc", "", &f->doc));
  qn_try(choice_of(r, r->root, "math", maths, &math));
  f->math = (qn_math)math;
  qn_try(read_body(r, r->root, f->name, &f->body));
  qn_try(qn_folder_read_tensors(r));
  qn_try(qn_folder_read_templates(r, "templates", qn_json_get(r->root, "templates"), &f->body));
  qn_try(read_reference(r));
  qn_try(qn_folder_read_launch(r));
  qn_try(qn_folder_read_traits(r));
  qn_try(read_files(r));
  qn_try(read_ignore(r));
  qn_try(read_domain(r));
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
  if (!S_ISDIR(is.st_mode) && (length < 5 || strcmp(path + length - 5, ".json")))
    return qn_fail(QN_BAD_FILE, "%s: it is no kernel's folder and no kernel.json", path);
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

static qn_status read_whole(FILE *stream, const char *file, qn_text *all)
{
  enum { MOST_BYTES = 16 << 20 };
  char piece[4096];
  for (size_t n; (n = fread(piece, 1, sizeof piece, stream)) > 0;) {
    qn_text_add_bytes(all, piece, n);
    if (all->failed) return qn_fail(QN_NO_MEMORY, "%s", file);
    if (all->length > MOST_BYTES) return qn_fail(QN_BAD_FILE, "%s: it has more than 16 MiB", file);
  }
  return ferror(stream) ? qn_fail(QN_BAD_FILE, "%s: it cannot be read: %s", file, strerror(errno)) : QN_OK;
}

static qn_status load(qn_folder *f)
{
  qn_text all = {0};
  FILE *stream = fopen(f->file, "rb");
  if (!stream)
    return qn_fail(QN_BAD_FILE, "%s: %s; a kernel's folder has a file kernel.json", f->file, strerror(errno));
  qn_status status = read_whole(stream, f->file, &all);
  fclose(stream);
  if (status == QN_OK) status = qn_json_read(all.at ? all.at : "", all.length, f->file, &f->json);
  qn_text_free(&all);
  if (status != QN_OK) return status;
  qn_reading r = {f, f->json.root};
  return read_members(&r);
}

qn_status qn_folder_read_any(const char *path, qn_folder **folder)
{
  *folder = qn_allocate_zero(1, sizeof **folder);
  if (!*folder) return qn_fail(QN_NO_MEMORY, "the kernel's folder %s", path);
  qn_status status = find_file(path, *folder);
  if (status == QN_OK) status = load(*folder);
  if (status != QN_OK) qn_folder_free(folder);
  return status;
}

qn_status qn_folder_read(const char *path, qn_folder **folder)
{
  qn_try(qn_folder_read_any(path, folder));
  const qn_folder *f = *folder;
  if (!f->n_extents || f->n_workloads || f->size[0].n || f->inputs_file) return QN_OK;
  qn_status status =
      qn_fail(QN_BAD_FILE, "%s: the member \"sizes\" is missing: which extents to check, like [{\"%s\": 255}]", f->file,
              f->extent[0]);
  qn_folder_free(folder);
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
  qn_json_free(&f->json);
  qn_release(f);
}

int qn_folder_tensor_find(const qn_folder *folder, const char *name)
{
  for (size_t k = 0; k < folder->n_inputs + folder->n_outputs; k++)
    if (!strcmp(folder->tensor[k].name, name)) return (int)k;
  return -1;
}

static void add_contract(const qn_folder *f, size_t k, const qn_binding *bound, qn_text *text)
{
  const qn_folder_tensor *is = &f->tensor[k];
  const int64_t *shape = bound ? bound->shape[k] + bound->tensor[k].ndim - is->ndim : NULL;
  for (size_t j = 0; j < is->n_dtypes; j++) qn_text_add(text, "%s%s", j ? "|" : "", qn_dtype_name(is->dtype[j]));
  if (is->dtype_of >= 0) qn_text_add(text, "%s.dtype", f->tensor[is->dtype_of].name);
  qn_text_add(text, " [%s", is->leading ? "..." : "");
  for (int d = 0; d < is->ndim; d++) {
    const char *extent = is->extent[d];
    qn_text_add(text, "%s", d || is->leading ? ", " : "");
    if (is_identifier(extent) || strspn(extent, "0123456789") == strlen(extent))
      qn_text_add(text, "%s", extent);
    else if (shape)
      qn_text_add(text, "%lld", (long long)shape[d]);
    else
      qn_text_add(text, "extent%zu_%d", k, d);
  }
  qn_text_add(text, "]%s", is->dense ? " dense" : "");
}

qn_status qn_folder_source_make(qn_folder_source *made, const qn_folder *f, const qn_folder_body *body,
                                const qn_binding *bound)
{
  qn_kernel_source *s = &made->source;
  memset(made, 0, sizeof *made);
  *s = (qn_kernel_source){.size = sizeof *s,
                          .name = f->name,
                          .body = body->source,
                          .header = body->header,
                          .file = body->file,
                          .dialect = body->dialect,
                          .math = f->math,
                          .cluster = body == &f->body ? f->cluster : 0,
                          .n_inputs = f->n_inputs,
                          .n_outputs = f->n_outputs,
                          .inputs = made->name,
                          .outputs = made->name + f->n_inputs,
                          .contracts = made->contract};
  for (size_t k = 0; k < f->n_inputs + f->n_outputs; k++) {
    const qn_folder_tensor *is = &f->tensor[k];
    made->name[k] = is->name;
    if (is->strided) s->strided |= UINT64_C(1) << k;
    if (is->output && is->atomic) s->atomic |= UINT64_C(1) << (k - f->n_inputs);
    add_contract(f, k, bound, &made->text[k]);
    if (made->text[k].failed) return qn_fail(QN_NO_MEMORY, "the contracts of %s", f->file);
    made->contract[k] = made->text[k].at;
  }
  return QN_OK;
}

void qn_folder_source_free(qn_folder_source *made)
{
  for (size_t k = 0; k < QN_KERNEL_MAX_TENSORS; k++) qn_text_free(&made->text[k]);
}

qn_status qn_folder_set(const qn_folder *folder, const qn_name *set, const char **own)
{
  const char *known[QN_FOLDER_NAMES + QN_KERNEL_MAX_TEMPLATES + 1] = {NULL};
  size_t n = 0;
  for (size_t k = 0; k < folder->n_extents; k++) known[n++] = folder->extent[k];
  for (size_t k = 0; k < folder->body.n_templates; k++)
    if (folder->body.templates[k].dtype_of < 0 && folder->body.templates[k].value.kind != QN_VALUE_DTYPE)
      known[n++] = folder->body.templates[k].name;
  for (size_t k = 0; k < n; k++) {
    if (strcmp(known[k], set->name)) continue;
    *own = known[k];
    qn_require(k >= folder->n_extents || set->value >= 0, "kernel %s: the extent %s is %lld, it must not be negative",
               folder->name, set->name, (long long)set->value);
    return QN_OK;
  }
  return qn_fail(QN_BAD_ARGUMENT, "kernel %s has no extent and no template %s%s", folder->name, set->name,
                 qn_suggest(set->name, known));
}
