/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - the header of a safetensors file: 8 bytes of little-endian length, then one JSON object of
 * name -> {"dtype", "shape", "data_offsets"}, with an optional "__metadata__" of strings. The reader takes that and
 * nothing else, and believes no number: each is held against the file. Data is read by request only. */
#include "core/core.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_HEADER_BYTES = 100 * 1000 * 1000, SHOWN = 80 };

/* A place in the header. `text` takes the names, decoded: they are never longer than their spelling. */
typedef struct cursor {
  const unsigned char *begin, *at, *end;
  char *text;
  const char *path;
} cursor;

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

static qn_status bad(const cursor *c, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s: header byte %zu: %s", c->path, (size_t)(c->at - c->begin), what);
}

#define expect(condition, c, what)                                                                                     \
  do {                                                                                                                 \
    if (!(condition)) return bad((c), (what));                                                                         \
  } while (0)

static void skip_space(cursor *c)
{
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

/* Whether the next thing is this character; then it is taken. */
static bool take(cursor *c, char character)
{
  skip_space(c);
  if (c->at == c->end || *c->at != (unsigned char)character) return false;
  c->at++;
  return true;
}

/* ---- strings ---- */

static size_t encode(uint32_t code, char *out)
{
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t k = n - 1; k > 0; k--, code >>= 6) out[k] = (char)(0x80 | (code & 0x3F));
  out[0] = (char)((0xF00 >> n & 0xFF) | code);
  return n;
}

/* Bytes of the UTF-8 character at the cursor, 0 if it is none: over-long forms, surrogates and what is past U+10FFFF
 * are none. */
static size_t utf8_length(const cursor *c)
{
  size_t left = (size_t)(c->end - c->at), n;
  unsigned char b = c->at[0], low = 0x80, high = 0xBF;
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF)
    n = 2;
  else if (b >= 0xE0 && b <= 0xEF)
    n = 3;
  else if (b >= 0xF0 && b <= 0xF4)
    n = 4;
  else
    return 0;
  if (b == 0xE0) low = 0xA0;
  if (b == 0xED) high = 0x9F;
  if (b == 0xF0) low = 0x90;
  if (b == 0xF4) high = 0x8F;
  if (left < n || c->at[1] < low || c->at[1] > high) return 0;
  for (size_t k = 2; k < n; k++)
    if ((c->at[k] & 0xC0) != 0x80) return 0;
  return n;
}

static qn_status read_hex(cursor *c, uint32_t *code)
{
  *code = 0;
  for (int k = 0; k < 4; k++) {
    expect(c->at < c->end, c, "the header ends within \\u");
    unsigned char b = *c->at;
    uint32_t digit = b >= '0' && b <= '9'   ? b - (uint32_t)'0'
                     : b >= 'a' && b <= 'f' ? b - (uint32_t)'a' + 10
                     : b >= 'A' && b <= 'F' ? b - (uint32_t)'A' + 10
                                            : 16;
    expect(digit < 16, c, "\\u wants four hexadecimal digits");
    *code = *code << 4 | digit;
    c->at++;
  }
  return QN_OK;
}

/* Behind a backslash. */
static qn_status read_escape(cursor *c, uint32_t *code)
{
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  expect(c->at < c->end, c, "the header ends within a string");
  unsigned char b = *c->at++;
  if (b != 'u') {
    const char *letter = b ? strchr(letters, b) : NULL;
    expect(letter, c, "an escape that JSON does not know");
    *code = (unsigned char)meanings[letter - letters];
    return QN_OK;
  }
  qn_try(read_hex(c, code));
  expect(*code, c, "a name or text with a NUL in it");
  expect(*code < 0xDC00 || *code > 0xDFFF, c, "half a surrogate pair");
  if (*code < 0xD800 || *code > 0xDBFF) return QN_OK;
  uint32_t low = 0;
  expect(c->end - c->at >= 2 && c->at[0] == '\\' && c->at[1] == 'u', c, "half a surrogate pair");
  c->at += 2;
  qn_try(read_hex(c, &low));
  expect(low >= 0xDC00 && low <= 0xDFFF, c, "half a surrogate pair");
  *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
  return QN_OK;
}

/* A string, decoded into c->text, with a NUL behind it. */
static qn_status read_string(cursor *c, const char **string)
{
  expect(take(c, '"'), c, "a string should stand here");
  char *out = c->text;
  *string = out;
  for (;;) {
    expect(c->at < c->end, c, "the header ends within a string");
    if (*c->at == '"') break;
    expect(*c->at >= 0x20, c, "a control character within a string");
    if (*c->at == '\\') {
      uint32_t code = 0;
      c->at++;
      qn_try(read_escape(c, &code));
      out += encode(code, out);
      continue;
    }
    size_t n = utf8_length(c);
    expect(n, c, "bytes that are not UTF-8");
    memcpy(out, c->at, n);
    out += n;
    c->at += n;
  }
  c->at++;
  *out++ = 0;
  c->text = out;
  return QN_OK;
}

/* ---- numbers ---- */

/* A whole number from 0 to 2^63 - 1, without sign, fraction, exponent or leading zeros. */
static qn_status read_number(cursor *c, int64_t *value)
{
  int64_t v = 0;
  skip_space(c);
  const unsigned char *first = c->at;
  expect(c->at < c->end && *c->at >= '0' && *c->at <= '9', c, "a whole number of at least 0 should stand here");
  for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
    expect(!__builtin_mul_overflow(v, 10, &v) && !__builtin_add_overflow(v, *c->at - '0', &v), c,
           "a number above 2^63 - 1");
  expect(*first != '0' || c->at - first == 1, c, "a number with a leading zero");
  expect(c->at == c->end || !strchr(".eE", *c->at) || !*c->at, c,
         "a fraction or exponent where a whole number belongs");
  *value = v;
  return QN_OK;
}

/* "[1, 2, 3]" of at most `most` numbers. */
static qn_status read_numbers(cursor *c, int64_t *values, int most, int *n)
{
  *n = 0;
  expect(take(c, '['), c, "a list of numbers should stand here");
  if (take(c, ']')) return QN_OK;
  do {
    expect(*n < most, c, most == 2 ? "more than two data_offsets" : "a shape of more than 32 dimensions");
    qn_try(read_number(c, &values[(*n)++]));
  } while (take(c, ','));
  expect(take(c, ']'), c, "a list that is not closed");
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

static qn_status copy_dtype(const cursor *c, const char *text, qn_safetensor *t)
{
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  size_t n = strlen(text);
  expect(n > 0 && n < sizeof t->dtype && strspn(text, letters) == n, c, "a dtype that cannot be one");
  memcpy(t->dtype, text, n + 1);
  return QN_OK;
}

/* The header of a tensor must agree with itself: its bytes are the product of its shape and its element's size. */
static qn_status check_size(const cursor *c, const qn_safetensor *t)
{
  int64_t bytes = element_bytes(t->dtype);
  if (t->begin > t->end)
    return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\": data_offsets run backwards, from %" PRIu64 " to %" PRIu64, c->path,
                   show(t->name).text, t->begin, t->end);
  if (!bytes) return QN_OK; /* a dtype newer than this reader: its size is not known here */
  bool overflow = false, empty = false;
  for (int k = 0; k < t->ndim; k++) empty |= t->shape[k] == 0;
  for (int k = 0; k < t->ndim && !empty; k++) overflow |= __builtin_mul_overflow(bytes, t->shape[k], &bytes);
  if (empty) bytes = 0;
  if (overflow)
    return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\": its shape of %d dimensions has more than 2^63 - 1 bytes of %s",
                   c->path, show(t->name).text, t->ndim, t->dtype);
  if ((uint64_t)bytes != t->end - t->begin)
    return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\": shape and %s make %" PRId64 " bytes, data_offsets %" PRIu64,
                   c->path, show(t->name).text, t->dtype, bytes, t->end - t->begin);
  return QN_OK;
}

static qn_status read_tensor(cursor *c, qn_safetensor *t)
{
  enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
  unsigned seen = 0;
  expect(take(c, '{'), c, "a tensor's {\"dtype\", \"shape\", \"data_offsets\"} should stand here");
  do {
    const char *key = NULL, *text = NULL;
    char *keep = c->text; /* neither key nor dtype is kept */
    int64_t offsets[2] = {0, 0};
    int n = 0;
    qn_try(read_string(c, &key));
    unsigned which = !strcmp(key, "dtype")          ? DTYPE
                     : !strcmp(key, "shape")        ? SHAPE
                     : !strcmp(key, "data_offsets") ? OFFSETS
                                                    : 0;
    expect(which, c, "a key of a tensor that is none of dtype, shape and data_offsets");
    expect(!(seen & which), c, "a key of a tensor that stands twice");
    expect(take(c, ':'), c, "a colon should stand here");
    seen |= which;
    if (which == SHAPE) qn_try(read_numbers(c, t->shape, QN_MAX_NDIM, &t->ndim));
    if (which == DTYPE) {
      qn_try(read_string(c, &text));
      qn_try(copy_dtype(c, text, t));
    }
    if (which == OFFSETS) {
      qn_try(read_numbers(c, offsets, 2, &n));
      expect(n == 2, c, "data_offsets wants two numbers");
      t->begin = (uint64_t)offsets[0];
      t->end = (uint64_t)offsets[1];
    }
    c->text = keep;
  } while (take(c, ','));
  expect(take(c, '}'), c, "a tensor's entry that is not closed");
  expect(seen == (DTYPE | SHAPE | OFFSETS), c, "a tensor without dtype, shape or data_offsets");
  return check_size(c, t);
}

static qn_status read_metadata(cursor *c)
{
  expect(take(c, '{'), c, "__metadata__ should be an object of strings");
  if (take(c, '}')) return QN_OK;
  do {
    const char *ignored = NULL;
    char *keep = c->text;
    qn_try(read_string(c, &ignored));
    expect(take(c, ':'), c, "a colon should stand here");
    qn_try(read_string(c, &ignored));
    c->text = keep;
  } while (take(c, ','));
  expect(take(c, '}'), c, "__metadata__ is not closed");
  return QN_OK;
}

static qn_status append(qn_safetensors *list, size_t *room, const cursor *c)
{
  if (list->n == *room) {
    size_t more = *room ? 2 * *room : 64;
    qn_safetensor *tensor = qn_reallocate(list->tensor, more * sizeof *tensor);
    if (!tensor) return qn_fail(QN_NO_MEMORY, "%s: a list of %zu tensors could not be allocated", c->path, more);
    list->tensor = tensor;
    *room = more;
  }
  memset(&list->tensor[list->n++], 0, sizeof *list->tensor);
  return QN_OK;
}

static qn_status read_entries(cursor *c, qn_safetensors *list)
{
  size_t room = 0;
  bool metadata = false;
  expect(c->at < c->end && *c->at == '{', c, "the header does not begin with {");
  c->at++;
  if (!take(c, '}')) {
    do {
      const char *name = NULL;
      qn_try(read_string(c, &name));
      expect(take(c, ':'), c, "a colon should stand here");
      if (!strcmp(name, "__metadata__")) {
        expect(!metadata, c, "__metadata__ stands twice");
        metadata = true;
        qn_try(read_metadata(c));
        continue;
      }
      qn_try(append(list, &room, c));
      list->tensor[list->n - 1].name = name;
      qn_try(read_tensor(c, &list->tensor[list->n - 1]));
    } while (take(c, ','));
    expect(take(c, '}'), c, "the header's object is not closed");
  }
  skip_space(c);
  expect(c->at == c->end, c, "something stands behind the header's object");
  return QN_OK;
}

/* ---- the list as a whole ---- */

static int by_place(const qn_safetensor *a, const qn_safetensor *b)
{
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  if (a->end != b->end) return a->end < b->end ? -1 : 1;
  return strcmp(a->name, b->name);
}

static int by_name(const qn_safetensor *a, const qn_safetensor *b) { return strcmp(a->name, b->name); }

/* Heap sort, in place: the C library's takes memory behind our hooks, and a hostile order costs it no more. */
static void sort(qn_safetensor *t, size_t n, int (*order)(const qn_safetensor *, const qn_safetensor *))
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
      if (child + 1 < left && order(&t[child], &t[child + 1]) < 0) child++;
      if (order(&moving, &t[child]) >= 0) break;
      t[hole] = t[child];
    }
    t[hole] = moving;
  }
}

/* No name twice; and the tensors tile the data: no gap, no overlap, nothing left. Leaves them in the data's order. */
static qn_status check_list(const cursor *c, qn_safetensors *list, uint64_t data_bytes)
{
  qn_safetensor *t = list->tensor;
  uint64_t at = 0;
  sort(t, list->n, by_name);
  for (size_t k = 1; k < list->n; k++)
    if (!strcmp(t[k - 1].name, t[k].name))
      return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\" stands twice", c->path, show(t[k].name).text);
  sort(t, list->n, by_place);
  for (size_t k = 0; k < list->n; k++) {
    if (t[k].begin != at)
      return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\" begins at %" PRIu64 "; the data before it ends at %" PRIu64,
                     c->path, show(t[k].name).text, t[k].begin, at);
    at = t[k].end;
  }
  if (at != data_bytes)
    return qn_fail(QN_BAD_FILE, "%s: the tensors end at byte %" PRIu64 " of the data; there are %" PRIu64 " bytes",
                   c->path, at, data_bytes);
  return QN_OK;
}

qn_status qn_safetensors_parse(const void *header, size_t bytes, uint64_t data_bytes, const char *path,
                               qn_safetensors *out)
{
  *out = (qn_safetensors){0};
  qn_try(qn_try_allocate(&out->storage, bytes + 1, path));
  cursor c = {header, header, (const unsigned char *)header + bytes, out->storage, path};
  qn_status status = read_entries(&c, out);
  if (status == QN_OK) status = check_list(&c, out, data_bytes);
  if (status != QN_OK) qn_safetensors_free(out);
  return status;
}

void qn_safetensors_free(qn_safetensors *list)
{
  qn_release(list->tensor);
  qn_release(list->storage);
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
