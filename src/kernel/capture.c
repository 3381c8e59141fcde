/* SPDX-License-Identifier: Apache-2.0 */
/* capture.c - between start and stop every launch of every kernel is saved to a folder of its own, before it runs: the
 * body and the header as they were given, the inputs' values, and a kernel.json with the launch, in the form that
 * `quern kernel replay` and all other verbs take. A strided input is saved row by row, its strides in kernel.json.
 * Slow, and serial. */
#include "core/file.h"
#include "kernel/call.h"
#include "kernel/launch.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

static struct {
  atomic_bool on;
  pthread_mutex_t lock; /* for what follows */
  size_t launches, number;
  char folder[PATH_BYTES - 128];
} capture = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool qn_capture_is_on(void) { return atomic_load_explicit(&capture.on, memory_order_acquire); }

/* A thread of the parent's may be in the middle of a launch's files, and the child has not got it. What the lock guards
 * is whole at any moment: a number that is taken already is passed over when its folder is made. */
static void after_fork_in_child(void) { pthread_mutex_init(&capture.lock, NULL); }

static void sanitizer_forks(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

/* ---- start and stop ---- */
static int make_with_parents(char *path)
{
  for (char *at = path + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    const int failed = mkdir(path, 0777);
    *at = '/';
    if (failed && errno != EEXIST) return failed;
  }
  const int failed = mkdir(path, 0777);
  return failed && errno == EEXIST ? 0 : failed;
}

/* The highest number of those that are there already, from an earlier capture. */
static size_t highest_number(const char *folder)
{
  size_t highest = 0, number;
  DIR *directory = opendir(folder);
  for (struct dirent *entry; directory && (entry = readdir(directory));)
    if (sscanf(entry->d_name, "%zu-", &number) == 1 && number > highest) highest = number;
  if (directory) closedir(directory);
  return highest;
}

static qn_status start_locked(const char *folder)
{
  qn_require(!qn_capture_is_on(), "capture: one is going on, into %s", capture.folder);
  strcpy(capture.folder, folder);
  if (make_with_parents(capture.folder) || access(capture.folder, W_OK | X_OK))
    return qn_fail(QN_IO_ERROR, "capture: the folder %s cannot be made or written to: %s", folder, strerror(errno));
  capture.launches = 0;
  capture.number = highest_number(capture.folder);
  atomic_store_explicit(&capture.on, true, memory_order_release);
  return QN_OK;
}

qn_status qn_capture_start(const char *folder)
{
  qn_require(folder && *folder, "capture: the folder's path is %s", folder ? "empty" : "NULL");
  qn_require(strlen(folder) < sizeof capture.folder, "capture: the folder's path has %zu characters, at most %zu",
             strlen(folder), sizeof capture.folder - 1);
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, sanitizer_forks);
  pthread_mutex_lock(&capture.lock);
  const qn_status status = start_locked(folder);
  pthread_mutex_unlock(&capture.lock);
  return status;
}

qn_status qn_capture_stop(size_t *n_launches)
{
  if (n_launches) *n_launches = 0;
  pthread_mutex_lock(&capture.lock);
  const bool was_on = atomic_exchange(&capture.on, false);
  if (n_launches && was_on) *n_launches = capture.launches;
  pthread_mutex_unlock(&capture.lock);
  return was_on ? QN_OK : qn_fail(QN_BAD_ARGUMENT, "capture: none is going on");
}

/* ---- files of one launch ---- */
typedef struct record {
  const qn_kernel *kernel;
  const qn_kernel_call *call;
  const qn_exec *exec;
  char folder[PATH_BYTES - 64];
  qn_text json;
} record;

static const char *extension(const record *r) { return r->kernel->source.dialect == QN_DIALECT_CUDA ? "cu" : "metal"; }

static qn_status make_folder(record *r)
{
  for (;;) {
    capture.number++;
    const int length =
        snprintf(r->folder, sizeof r->folder, "%s/%04zu-%s", capture.folder, capture.number, r->kernel->source.name);
    qn_require((size_t)length < sizeof r->folder, "capture: the path of folder %s is too long", capture.folder);
    if (!mkdir(r->folder, 0777)) return QN_OK;
    if (errno != EEXIST) return qn_fail(QN_IO_ERROR, "capture: %s cannot be made: %s", r->folder, strerror(errno));
  }
}

static qn_status write_file(const record *r, const char *name, const char *data, size_t bytes)
{
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/%s", r->folder, name);
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  bool written = file >= 0 && qn_write_all(file, data, bytes);
  int error = errno;
  if (file >= 0 && close(file) && written) written = false, error = errno;
  return written ? QN_OK : qn_fail(QN_IO_ERROR, "capture: %s: %s", path, strerror(error));
}

static qn_status write_text(const record *r, const char *part, const char *text)
{
  char name[96];
  if (!text) return QN_OK;
  snprintf(name, sizeof name, "%s%s.%s", r->kernel->source.name, part, extension(r));
  return write_file(r, name, text, strlen(text));
}

/* ---- inputs ---- */
typedef struct saved {
  qn_safetensor_made tensor[QN_KERNEL_MAX_TENSORS];
  void *own[2 * QN_KERNEL_MAX_TENSORS];
  size_t n_own;
} saved;

static qn_status own_memory(saved *s, size_t bytes, void **memory)
{
  qn_try(qn_try_allocate(memory, bytes, "capture: an input's values"));
  s->own[s->n_own++] = *memory;
  return QN_OK;
}

static bool is_here(const qn_tensor *t) { return t->device.kind != QN_CUDA; }

/* The values in host memory, row-major. */
static qn_status save_input(const record *r, size_t k, saved *s)
{
  const char *name = r->kernel->source.inputs[k];
  qn_tensor t = r->call->inputs[k];
  uintptr_t begin, end;
  void *memory;
  qn_try(qn_tensor_span(r->kernel->source.name, name, &t, &begin, &end));
  if (!is_here(&t)) {
    qn_try(own_memory(s, end - begin, &memory));
    qn_try(qn_memory_read(t.device, r->exec->stream, memory, (const void *)begin, end - begin));
    t.data = (char *)memory + ((uintptr_t)t.data - begin);
  }
  if (!qn_is_row_major(&t)) {
    size_t bytes = qn_dtype_bytes(t.dtype);
    for (int d = 0; d < t.ndim; d++) bytes *= (size_t)t.shape[d];
    qn_try(own_memory(s, bytes, &memory));
    qn_copy_by_loops(NULL, &t, memory);
    t.data = memory;
  }
  s->tensor[k] = (qn_safetensor_made){name, t.dtype, t.ndim, t.shape, t.data};
  return QN_OK;
}

static qn_status write_inputs(const record *r)
{
  char path[PATH_BYTES];
  saved s = {.n_own = 0};
  qn_status status = QN_OK;
  for (size_t k = 0; k < r->kernel->source.n_inputs && status == QN_OK; k++) status = save_input(r, k, &s);
  snprintf(path, sizeof path, "%s/inputs.safetensors", r->folder);
  if (status == QN_OK) status = qn_safetensors_write(path, s.tensor, r->kernel->source.n_inputs, NULL);
  while (s.n_own) qn_release(s.own[--s.n_own]);
  return status;
}

/* ---- kernel.json ---- */

/* A member's beginning: a comma where one stood before. Objects and lists within count by their own flag. */
static void key(qn_text *json, bool *first, const char *name)
{
  qn_text_add(json, "%s", *first ? "" : ", ");
  *first = false;
  if (!name) return;
  qn_json_add_string(json, name);
  qn_text_add(json, ": ");
}

static void member(qn_text *json, const char *name)
{
  qn_text_add(json, ",\n  ");
  qn_json_add_string(json, name);
  qn_text_add(json, ": ");
}

static void add_contracts(record *r, const char *name, const qn_tensor *tensors, const char *const *names, size_t n)
{
  bool first = true;
  member(&r->json, name);
  qn_text_add(&r->json, "{");
  for (size_t k = 0; k < n; k++) {
    key(&r->json, &first, names[k]);
    qn_text_add(&r->json, "\"%s [", qn_dtype_name(tensors[k].dtype));
    for (int d = 0; d < tensors[k].ndim; d++)
      qn_text_add(&r->json, "%s%lld", d ? ", " : "", (long long)tensors[k].shape[d]);
    qn_text_add(&r->json, "]\"");
  }
  qn_text_add(&r->json, "}");
}

static void add_value(qn_text *json, const qn_value *value)
{
  switch (value->kind) {
  case QN_VALUE_BOOL: qn_text_add(json, "%s", value->integer ? "true" : "false"); break;
  case QN_VALUE_INT: qn_text_add(json, "%lld", (long long)value->integer); break;
  case QN_VALUE_FLOAT: qn_json_add_real(json, value->real); break;
  case QN_VALUE_DTYPE: qn_json_add_string(json, qn_dtype_name(value->dtype)); break;
  default: qn_text_add(json, "null"); break;
  }
}

static void add_templates(record *r)
{
  bool first = true;
  if (!r->call->n_templates) return;
  member(&r->json, "templates");
  qn_text_add(&r->json, "{");
  for (size_t k = 0; k < r->call->n_templates; k++) {
    key(&r->json, &first, r->call->templates[k].name);
    add_value(&r->json, &r->call->templates[k].value);
  }
  qn_text_add(&r->json, "}");
}

static void add_flags(record *r, const char *name, uint64_t flags, const char *const *names)
{
  bool first = true;
  if (!flags) return;
  member(&r->json, name);
  qn_text_add(&r->json, "[");
  for (size_t k = 0; k < QN_KERNEL_MAX_TENSORS; k++)
    if (flags >> k & 1) {
      key(&r->json, &first, NULL);
      qn_json_add_string(&r->json, names[k]);
    }
  qn_text_add(&r->json, "]");
}

static void add_outputs_traits(record *r)
{
  const qn_kernel_source *s = &r->kernel->source;
  bool first_init = true, first_home = true;
  for (size_t k = 0; r->call->init && k < s->n_outputs; k++) {
    if (r->call->init[k].kind == QN_VALUE_NONE) continue;
    if (first_init) member(&r->json, "init"), qn_text_add(&r->json, "{");
    key(&r->json, &first_init, s->outputs[k]);
    add_value(&r->json, &r->call->init[k]);
  }
  if (!first_init) qn_text_add(&r->json, "}");
  for (size_t k = 0; r->call->stored_in && k < s->n_outputs; k++) {
    if (r->call->stored_in[k] < 0) continue;
    if (first_home) member(&r->json, "in_place"), qn_text_add(&r->json, "{");
    key(&r->json, &first_home, s->outputs[k]);
    qn_json_add_string(&r->json, s->inputs[r->call->stored_in[k]]);
  }
  if (!first_home) qn_text_add(&r->json, "}");
}

static void add_strides(record *r)
{
  bool first = true;
  for (size_t k = 0; k < r->kernel->source.n_inputs; k++) {
    const qn_tensor *t = &r->call->inputs[k];
    if (qn_is_row_major(t)) continue;
    if (first) member(&r->json, "strides"), qn_text_add(&r->json, "{");
    key(&r->json, &first, r->kernel->source.inputs[k]);
    qn_text_add(&r->json, "[");
    for (int d = 0; d < t->ndim; d++) qn_text_add(&r->json, "%s%lld", d ? ", " : "", (long long)t->strides[d]);
    qn_text_add(&r->json, "]");
  }
  if (!first) qn_text_add(&r->json, "}");
}

/* A plain value as a number where it is one that JSON and a double hold; its bits are in inputs.safetensors. */
static void add_scalars(record *r)
{
  bool first = true;
  for (size_t k = 0; k < r->kernel->source.n_inputs; k++) {
    const qn_tensor *t = &r->call->inputs[k];
    qn_value value;
    if (t->ndim || t->device.kind != QN_CPU || !qn_value_load(t->data, t->dtype, &value)) continue;
    if (value.kind == QN_VALUE_FLOAT && !isfinite(value.real)) continue;
    if (first) member(&r->json, "scalars"), qn_text_add(&r->json, "{");
    key(&r->json, &first, r->kernel->source.inputs[k]);
    add_value(&r->json, &value);
  }
  if (!first) qn_text_add(&r->json, "}");
}

static void add_launch(record *r)
{
  const qn_kernel_call *c = r->call;
  member(&r->json, "grid");
  qn_text_add(&r->json, "[%llu, %llu, %llu]", (unsigned long long)c->grid[0], (unsigned long long)c->grid[1],
              (unsigned long long)c->grid[2]);
  if (c->group[0]) {
    member(&r->json, "threadgroup");
    qn_text_add(&r->json, "[%u, %u, %u]", c->group[0], c->group[1], c->group[2]);
  }
  if (r->kernel->source.cluster) {
    member(&r->json, "cluster");
    qn_text_add(&r->json, "%u", r->kernel->source.cluster);
  }
  if (c->shared_bytes) {
    member(&r->json, "shared_bytes");
    qn_text_add(&r->json, "%zu", c->shared_bytes);
  }
}

static void add_head(record *r)
{
  static const char *const maths[] = {"safe", "relaxed", "fast"};
  const qn_kernel_source *s = &r->kernel->source;
  qn_text *json = &r->json;
  qn_text_add(json, "{\n  \"name\": \"%s\"", s->name);
  member(json, "doc");
  qn_text_add(json, "\"Launch %zu of a capture, on %s:%d\"", capture.launches + 1,
              qn_device_kind_name(r->exec->device.kind), r->exec->device.index);
  member(json, "dialect");
  qn_text_add(json, "\"%s\"", s->dialect == QN_DIALECT_CUDA ? "cuda" : "metal");
  member(json, "source");
  qn_text_add(json, "\"%s.%s\"", s->name, extension(r));
  if (s->header) {
    member(json, "header");
    qn_text_add(json, "\"%s.header.%s\"", s->name, extension(r));
  }
  member(json, "math");
  qn_text_add(json, "\"%s\"", maths[s->math]);
}

static qn_status write_json(record *r)
{
  const qn_kernel_source *s = &r->kernel->source;
  add_head(r);
  add_contracts(r, "inputs", r->call->inputs, s->inputs, s->n_inputs);
  add_contracts(r, "outputs", r->call->outputs, s->outputs, s->n_outputs);
  add_templates(r);
  add_flags(r, "strided", s->strided, s->inputs);
  add_flags(r, "atomic", s->atomic, s->outputs);
  add_outputs_traits(r);
  add_strides(r);
  add_scalars(r);
  add_launch(r);
  if (s->n_inputs) {
    member(&r->json, "inputs_file");
    qn_text_add(&r->json, "\"inputs.safetensors\"");
  }
  qn_text_add(&r->json, "\n}\n");
  qn_status status = r->json.failed
                         ? qn_fail(QN_NO_MEMORY, "capture: no memory for the text of %s/kernel.json", r->folder)
                         : write_file(r, "kernel.json", r->json.at, r->json.length);
  qn_text_free(&r->json);
  return status;
}

/* kernel.json comes last: a folder without one is not whole. */
static qn_status save(record *r)
{
  qn_try(make_folder(r));
  qn_try(write_text(r, "", r->kernel->source.body));
  qn_try(write_text(r, ".header", r->kernel->source.header));
  if (r->kernel->source.n_inputs) qn_try(write_inputs(r));
  qn_try(write_json(r));
  capture.launches++;
  return QN_OK;
}

qn_status qn_capture_note(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  record r = {.kernel = kernel, .call = call, .exec = exec};
  pthread_mutex_lock(&capture.lock);
  const qn_status status = qn_capture_is_on() ? save(&r) : QN_OK;
  pthread_mutex_unlock(&capture.lock);
  return status;
}
