/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - the header of a safetensors file: 8 bytes of little-endian length, then one JSON object of
 * name -> {"dtype", "shape", "data_offsets"}, with an optional "__metadata__" of strings. The reader takes that and
 * nothing else, and believes no number: each is held against the file. Data is read by request only. */
#include "core/json.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_HEADER_BYTES = 100 * 1000 * 1000, SHOWN = 80 };

/* A name that is safe to put in a sentence: cut, and without control characters. */
typedef struct shown {
  char text[SHOWN + 1];
} shown;

static shown show(const char *name)
{
  shown s = {{0}};
  for (size_t k = 0; k < SHOWN && name[k]; k++)
    s.text[k] = (unsigned char)name[k] < 0x20 || name[k] == 0x7F ? '?' : name[k];
  return s;
}

/* What is wrong at a place of the header. */
static qn_status bad(const char *path, const qn_json *at, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s: header:%" PRIu32 ":%" PRIu32 ": %s", path, at->line, at->column, what);
}

#define expect(condition, path, at, what)                                                                              \
  do {                                                                                                                 \
    if (!(condition)) return bad((path), (at), (what));                                                                \
  } while (0)

/* "[1, 2, 3]" of at most `most` numbers of at least 0. */
static qn_status read_numbers(const char *path, const qn_json *list, int64_t *values, int most, int *n)
{
  *n = 0;
  expect(qn_json_is(list, QN_JSON_ARRAY), path, list, "a list of numbers should stand here");
  for (const qn_json *one = qn_json_first(list); one; one = one->next) {
    expect(*n < most, path, one, most == 2 ? "more than two data_offsets" : "a shape of more than 32 dimensions");
    expect(one->type != QN_JSON_REAL, path, one, "a fraction or exponent where a whole number belongs");
    expect(qn_json_integer(one, &values[*n]) && values[*n] >= 0, path, one,
           "a whole number of at least 0 should stand here");
    ++*n;
  }
  return QN_OK;
}
_Static_assert(QN_MAX_NDIM == 32, "the sentence above says 32");

/* ---- entries ---- */

static int64_t element_bytes(const char *dtype)
{
  static const struct {
    char name[8];
    int bytes;
  } sizes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4},  {"I16", 2},
               {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}, {"C64", 8}};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    if (!strcmp(dtype, sizes[k].name)) return sizes[k].bytes;
  return strncmp(dtype, "F8_", 3) ? 0 : 1;
}

static qn_status copy_dtype(const char *path, const qn_json *dtype, qn_safetensor *t)
{
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const char *text = qn_json_string(dtype);
  expect(text, path, dtype, "a string should stand here");
  size_t n = strlen(text);
  expect(n > 0 && n < sizeof t->dtype && strspn(text, letters) == n, path, dtype, "a dtype that cannot be one");
  memcpy(t->dtype, text, n + 1);
  return QN_OK;
}

/* The header of a tensor must agree with itself: its bytes are the product of its shape and its element's size. */
static qn_status check_size(const char *path, const qn_safetensor *t)
{
  int64_t bytes = element_bytes(t->dtype);
  if (t->begin > t->end)
    return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\": data_offsets run backwards, from %" PRIu64 " to %" PRIu64, path,
                   show(t->name).text, t->begin, t->end);
  if (!bytes) return QN_OK; /* a dtype newer than this reader: its size is not known here */
  bool overflow = false, empty = false;
  for (int k = 0; k < t->ndim; k++) empty |= t->shape[k] == 0;
  for (int k = 0; k < t->ndim && !empty; k++) overflow |= __builtin_mul_overflow(bytes, t->shape[k], &bytes);
  if (empty) bytes = 0;
  if (overflow)
    return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\": its shape of %d dimensions has more than 2^63 - 1 bytes of %s",
                   path, show(t->name).text, t->ndim, t->dtype);
  if ((uint64_t)bytes != t->end - t->begin)
    return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\": shape and %s make %" PRId64 " bytes, data_offsets %" PRIu64, path,
                   show(t->name).text, t->dtype, bytes, t->end - t->begin);
  return QN_OK;
}

static qn_status read_tensor(const char *path, const qn_json *entry, qn_safetensor *t)
{
  const qn_json *dtype = qn_json_get(entry, "dtype"), *shape = qn_json_get(entry, "shape");
  const qn_json *at = qn_json_get(entry, "data_offsets");
  int64_t offsets[2] = {0, 0};
  int n = 0;
  t->name = entry->key;
  expect(qn_json_is(entry, QN_JSON_OBJECT), path, entry,
         "a tensor's {\"dtype\", \"shape\", \"data_offsets\"} should stand here");
  for (const qn_json *m = qn_json_first(entry); m; m = m->next)
    expect(m == dtype || m == shape || m == at, path, m,
           "a key of a tensor that is none of dtype, shape and data_offsets");
  expect(dtype && shape && at, path, entry, "a tensor without dtype, shape or data_offsets");
  qn_try(copy_dtype(path, dtype, t));
  qn_try(read_numbers(path, shape, t->shape, QN_MAX_NDIM, &t->ndim));
  qn_try(read_numbers(path, at, offsets, 2, &n));
  expect(n == 2, path, at, "data_offsets wants two numbers");
  t->begin = (uint64_t)offsets[0];
  t->end = (uint64_t)offsets[1];
  return check_size(path, t);
}

static qn_status check_metadata(const char *path, const qn_json *metadata)
{
  expect(qn_json_is(metadata, QN_JSON_OBJECT), path, metadata, "__metadata__ should be an object of strings");
  for (const qn_json *m = qn_json_first(metadata); m; m = m->next)
    expect(qn_json_string(m), path, m, "a string should stand here");
  return QN_OK;
}

static qn_status read_entries(const char *path, const qn_json *root, qn_safetensors *list)
{
  if (!qn_json_count(root)) return QN_OK;
  list->tensor = qn_allocate_zero(qn_json_count(root), sizeof *list->tensor);
  if (!list->tensor)
    return qn_fail(QN_NO_MEMORY, "%s: a list of %zu tensors could not be allocated", path, qn_json_count(root));
  for (const qn_json *entry = qn_json_first(root); entry; entry = entry->next) {
    if (!strcmp(entry->key, "__metadata__"))
      qn_try(check_metadata(path, entry));
    else
      qn_try(read_tensor(path, entry, &list->tensor[list->n++]));
  }
  return QN_OK;
}

/* ---- the list as a whole ---- */

static bool is_before(const qn_safetensor *a, const qn_safetensor *b)
{
  return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
}

/* Heap sort, in place: the C library's takes memory behind our hooks, and a hostile order costs it no more. */
static void sort(qn_safetensor *t, size_t n)
{
  for (size_t built = n / 2, left = n; left > 1;) {
    qn_safetensor moving;
    if (built)
      moving = t[--built];
    else {
      moving = t[--left];
      t[left] = t[0];
    }
    size_t hole = built;
    for (size_t child; (child = 2 * hole + 1) < left; hole = child) {
      if (child + 1 < left && is_before(&t[child], &t[child + 1])) child++;
      if (!is_before(&moving, &t[child])) break;
      t[hole] = t[child];
    }
    t[hole] = moving;
  }
}

/* The tensors tile the data: no gap, no overlap, nothing left. Leaves them in the data's order. */
static qn_status check_list(const char *path, qn_safetensors *list, uint64_t data_bytes)
{
  qn_safetensor *t = list->tensor;
  uint64_t at = 0;
  sort(t, list->n);
  for (size_t k = 0; k < list->n; k++) {
    if (t[k].begin != at)
      return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\" begins at %" PRIu64 "; the data before it ends at %" PRIu64, path,
                     show(t[k].name).text, t[k].begin, at);
    at = t[k].end;
  }
  if (at != data_bytes)
    return qn_fail(QN_BAD_FILE, "%s: the tensors end at byte %" PRIu64 " of the data; there are %" PRIu64 " bytes",
                   path, at, data_bytes);
  return QN_OK;
}

qn_status qn_safetensors_parse(const void *header, size_t bytes, uint64_t data_bytes, const char *path,
                               qn_safetensors *out)
{
  char name[4096];
  qn_json_tree tree = {0};
  *out = (qn_safetensors){0};
  if (!bytes || *(const char *)header != '{')
    return qn_fail(QN_BAD_FILE, "%s: header:1:1: the header does not begin with {", path);
  snprintf(name, sizeof name, "%s: header", path);
  qn_try(qn_json_read(header, bytes, name, &tree));
  out->storage = tree.memory; /* the names are in it */
  qn_status status = read_entries(path, tree.root, out);
  if (status == QN_OK) status = check_list(path, out, data_bytes);
  if (status != QN_OK) qn_safetensors_free(out);
  return status;
}

void qn_safetensors_free(qn_safetensors *list)
{
  qn_release(list->tensor);
  qn_json_free(&(qn_json_tree){.memory = list->storage});
  *list = (qn_safetensors){0};
}

/* ---- the file ---- */

static qn_status read_all(int file, void *target, size_t bytes, off_t at, const char *path)
{
  for (char *to = target; bytes;) {
    ssize_t n = pread(file, to, bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(errno));
    if (n == 0) return qn_fail(QN_BAD_FILE, "%s: it ended at byte %lld while it was read", path, (long long)at);
    to += n;
    at += n;
    bytes -= (size_t)n;
  }
  return QN_OK;
}

static qn_status read_open(int file, const char *path, qn_safetensors *out)
{
  struct stat about;
  unsigned char length[8];
  uint64_t header = 0;
  if (fstat(file, &about)) return qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(errno));
  if (!S_ISREG(about.st_mode)) return qn_fail(QN_BAD_FILE, "%s: it is not a regular file", path);
  uint64_t size = (uint64_t)about.st_size;
  if (size < sizeof length)
    return qn_fail(QN_BAD_FILE, "%s: it has %" PRIu64 " bytes, a safetensors file has at least 8", path, size);
  qn_try(read_all(file, length, sizeof length, 0, path));
  for (int k = 7; k >= 0; k--) header = header << 8 | length[k];
  if (header > size - sizeof length)
    return qn_fail(QN_BAD_FILE, "%s: it claims a header of %" PRIu64 " bytes and has %" PRIu64 " bytes in all", path,
                   header, size);
  if (header > MOST_HEADER_BYTES)
    return qn_fail(QN_BAD_FILE, "%s: it claims a header of %" PRIu64 " bytes, at most %d are read", path, header,
                   MOST_HEADER_BYTES);
  void *text = NULL;
  qn_try(qn_try_allocate(&text, (size_t)header, path));
  qn_status status = read_all(file, text, (size_t)header, sizeof length, path);
  if (status == QN_OK) status = qn_safetensors_parse(text, (size_t)header, size - sizeof length - header, path, out);
  if (status == QN_OK) out->data_begin = sizeof length + header;
  qn_release(text);
  return status;
}

qn_status qn_safetensors_read(const char *path, qn_safetensors *out)
{
  *out = (qn_safetensors){0};
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang us */
  if (file < 0) return qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(errno));
  qn_status status = read_open(file, path, out);
  close(file);
  return status;
}

qn_status qn_safetensors_read_data(const char *path, const qn_safetensors *list, const qn_safetensor *tensor,
                                   void *target)
{
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(errno));
  const uint64_t at = list->data_begin + tensor->begin;
  qn_status status = read_all(file, target, (size_t)(tensor->end - tensor->begin), (off_t)at, path);
  close(file);
  return status;
}
