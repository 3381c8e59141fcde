/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.c - see json.h. The text is copied once, with a NUL behind it that ends every scan; strings are decoded in
 * that copy, where they are never longer than their spelling. Open arrays and objects stand on a stack of fixed depth.
 */
#include "core/json.h"
#include "core/utf8.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BLOCK_VALUES = 1024, FEW = 16, SHOWN = 80 };

typedef struct block {
  struct block *next;
  size_t used;
  qn_json value[];
} block;

/* The tree's memory: the copy of the text, then blocks of values. */
typedef struct memory {
  block *blocks;
  char text[];
} memory;

typedef struct reader {
  memory *memory;
  char *at, *end, *line_begin;
  const char *name;
  uint32_t line;
  size_t n_values, room; /* room: in the first block */
  int depth;
  struct {
    qn_json *value;
    const qn_json **link; /* where the next value goes */
  } open[QN_JSON_DEPTH];
} reader;

static qn_status bad(const reader *r, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s:%" PRIu32 ":%zu: %s", r->name, r->line, (size_t)(r->at - r->line_begin) + 1, what);
}

#define expect(condition, r, what)                                                                                     \
  do {                                                                                                                 \
    if (!(condition)) return bad((r), (what));                                                                         \
  } while (0)

static void skip_space(reader *r)
{
  for (;; r->at++) {
    if (*r->at == '\n') {
      r->line++;
      r->line_begin = r->at + 1;
    } else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r')
      return;
  }
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

static qn_status read_hex(reader *r, uint32_t *code)
{
  *code = 0;
  for (int k = 0; k < 4; k++, r->at++) {
    const unsigned char b = (unsigned char)*r->at;
    expect(r->at < r->end, r, "the text ends within \\u");
    uint32_t digit = b >= '0' && b <= '9'   ? b - (uint32_t)'0'
                     : b >= 'a' && b <= 'f' ? b - (uint32_t)'a' + 10
                     : b >= 'A' && b <= 'F' ? b - (uint32_t)'A' + 10
                                            : 16;
    expect(digit < 16, r, "\\u requires four hexadecimal digits");
    *code = *code << 4 | digit;
  }
  return QN_OK;
}

/* Behind a backslash. */
static qn_status read_escape(reader *r, uint32_t *code)
{
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  expect(r->at < r->end, r, "the text ends within a string");
  const char *letter = *r->at ? strchr(letters, *r->at) : NULL;
  if (letter) {
    *code = (unsigned char)meanings[letter - letters];
    r->at++;
    return QN_OK;
  }
  expect(*r->at == 'u', r, "an escape that JSON does not know");
  r->at++;
  qn_try(read_hex(r, code));
  expect(*code, r, "a string with a NUL in it");
  expect(*code < 0xDC00 || *code > 0xDFFF, r, "half a surrogate pair");
  if (*code < 0xD800 || *code > 0xDBFF) return QN_OK;
  uint32_t low = 0;
  expect(r->at[0] == '\\' && r->at[1] == 'u', r, "half a surrogate pair");
  r->at += 2;
  qn_try(read_hex(r, &low));
  expect(low >= 0xDC00 && low <= 0xDFFF, r, "half a surrogate pair");
  *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
  return QN_OK;
}

static qn_status read_string(reader *r, const char **string)
{
  expect(*r->at == '"', r, "a string should stand here");
  char *out = ++r->at;
  *string = out;
  while (*r->at != '"') {
    const unsigned char b = (unsigned char)*r->at;
    expect(r->at < r->end, r, "the text ends within a string");
    expect(b >= 0x20, r, "a control character within a string");
    if (b == '\\') {
      uint32_t code = 0;
      r->at++;
      qn_try(read_escape(r, &code));
      out += encode(code, out);
      continue;
    }
    const size_t n = qn_utf8_bytes(r->at);
    expect(n, r, "bytes that are not UTF-8");
    memmove(out, r->at, n);
    out += n;
    r->at += n;
  }
  r->at++;
  *out = 0;
  return QN_OK;
}

/* ---- numbers and words ---- */
static bool skip_digits(reader *r)
{
  const char *from = r->at;
  while (*r->at >= '0' && *r->at <= '9') r->at++;
  return r->at > from;
}

static qn_status read_integer(reader *r, const char *digits, qn_json *v)
{
  v->type = QN_JSON_INTEGER;
  v->integer = 0;
  const bool negative = *digits == '-';
  for (digits += negative; digits < r->at; digits++) {
    const int64_t digit = *digits - '0';
    if (__builtin_mul_overflow(v->integer, (int64_t)10, &v->integer) ||
        __builtin_add_overflow(v->integer, negative ? -digit : digit, &v->integer))
      return bad(r, negative ? "a number below -2^63" : "a number above 2^63 - 1");
  }
  return QN_OK;
}

static qn_status read_number(reader *r, qn_json *v)
{
  const char *from = r->at;
  bool whole = true;
  r->at += *r->at == '-';
  const char *digits = r->at;
  expect(skip_digits(r), r, "a digit should stand here");
  expect(*digits != '0' || r->at - digits == 1, r, "a number with a leading zero");
  if (*r->at == '.') {
    whole = false;
    r->at++;
    expect(skip_digits(r), r, "a digit should stand here");
  }
  if (*r->at == 'e' || *r->at == 'E') {
    whole = false;
    r->at++;
    r->at += *r->at == '+' || *r->at == '-';
    expect(skip_digits(r), r, "a digit should stand here");
  }
  if (whole) return read_integer(r, from, v);
  v->type = QN_JSON_REAL;
  v->real = qn_text_real(from, NULL);
  expect(isfinite(v->real), r, "a number beyond the range of a double");
  return QN_OK;
}

static qn_status read_word(reader *r, qn_json *v)
{
  static const char *const words[] = {"null", "false", "true"};
  for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
    const size_t n = strlen(words[k]);
    if (strncmp(r->at, words[k], n)) continue;
    r->at += n;
    v->type = k ? QN_JSON_BOOL : QN_JSON_NULL;
    v->boolean = k == 2;
    return QN_OK;
  }
  return bad(r, r->at == r->end ? "a value should stand here, and the text ends" : "a value should stand here");
}

/* ---- arrays and objects ---- */
static qn_status new_value(reader *r, qn_json **value)
{
  if (r->n_values == QN_JSON_VALUES)
    return qn_fail(QN_BAD_FILE, "%s:%" PRIu32 ":%zu: more than %d values", r->name, r->line,
                   (size_t)(r->at - r->line_begin) + 1, QN_JSON_VALUES);
  block *b = r->memory->blocks;
  if (!b || b->used == r->room) {
    const size_t room = r->n_values < BLOCK_VALUES ? r->n_values * 3 + 16 : BLOCK_VALUES;
    b = qn_allocate(sizeof *b + room * sizeof *b->value);
    if (!b) return qn_fail(QN_NO_MEMORY, "%s: a tree of more than %zu values", r->name, r->n_values);
    b->next = r->memory->blocks;
    b->used = 0;
    r->memory->blocks = b;
    r->room = room;
  }
  r->n_values++;
  *value = &b->value[b->used++];
  **value = (qn_json){.line = r->line, .column = (uint32_t)(r->at - r->line_begin) + 1};
  return QN_OK;
}

static qn_status twice(const reader *r, const qn_json *again)
{
  char shown[SHOWN + 1] = {0};
  for (size_t k = 0; k < SHOWN && again->key[k]; k++)
    shown[k] = (unsigned char)again->key[k] < 0x20 || again->key[k] == 0x7F ? '?' : again->key[k];
  return qn_fail(QN_BAD_FILE, "%s:%" PRIu32 ":%" PRIu32 ": the member \"%s\" stands twice", r->name, again->line,
                 again->column, shown);
}

static bool is_before(const qn_json *a, const qn_json *b)
{
  const int order = strcmp(a->key, b->key);
  return order ? order < 0 : a->line != b->line ? a->line < b->line : a->column < b->column;
}

/* Heap sort: the C library's may allocate behind our hooks, and a hostile order costs this one no more. */
static void sort(const qn_json **v, size_t n)
{
  for (size_t built = n / 2, left = n; left > 1;) {
    const qn_json *moving;
    if (built)
      moving = v[--built];
    else {
      moving = v[--left];
      v[left] = v[0];
    }
    size_t hole = built;
    for (size_t child; (child = 2 * hole + 1) < left; hole = child) {
      if (child + 1 < left && is_before(v[child], v[child + 1])) child++;
      if (!is_before(moving, v[child])) break;
      v[hole] = v[child];
    }
    v[hole] = moving;
  }
}

static qn_status check_keys(const reader *r, const qn_json *object)
{
  if (object->n <= FEW) {
    for (const qn_json *a = object->first; a; a = a->next)
      for (const qn_json *b = object->first; b != a; b = b->next)
        if (!strcmp(a->key, b->key)) return twice(r, a);
    return QN_OK;
  }
  void *list = NULL;
  size_t n = 0;
  qn_try(qn_try_allocate(&list, object->n * sizeof(const qn_json *), r->name));
  const qn_json **sorted = list, *again = NULL;
  for (const qn_json *m = object->first; m; m = m->next) sorted[n++] = m;
  sort(sorted, n);
  for (size_t k = 1; k < n && !again; k++)
    if (!strcmp(sorted[k - 1]->key, sorted[k]->key)) again = sorted[k];
  const qn_status status = again ? twice(r, again) : QN_OK;
  qn_release(list);
  return status;
}

static qn_status read_key(reader *r, const char **key)
{
  qn_try(read_string(r, key));
  skip_space(r);
  expect(*r->at == ':', r, "a colon should stand here");
  r->at++;
  skip_space(r);
  return QN_OK;
}

/* A value, down to the opening of an array or object, whose first value is then the next. */
static qn_status read_value(reader *r, const char *key)
{
  qn_json *v;
  qn_try(new_value(r, &v));
  v->key = key;
  if (r->depth) {
    r->open[r->depth - 1].value->n++;
    *r->open[r->depth - 1].link = v;
    r->open[r->depth - 1].link = &v->next;
  }
  if (*r->at == '{' || *r->at == '[') {
    v->type = *r->at == '{' ? QN_JSON_OBJECT : QN_JSON_ARRAY;
    expect(r->depth < QN_JSON_DEPTH, r, "more than 128 arrays and objects within each other");
    v->first = NULL;
    r->open[r->depth].value = v;
    r->open[r->depth++].link = &v->first;
    r->at++;
    return QN_OK;
  }
  if (*r->at == '"') {
    v->type = QN_JSON_STRING;
    return read_string(r, &v->string);
  }
  return *r->at == '-' || (*r->at >= '0' && *r->at <= '9') ? read_number(r, v) : read_word(r, v);
}
_Static_assert(QN_JSON_DEPTH == 128, "the sentence above says 128");

/* Within an array or object, behind its opening or a value: the next value, or the end. */
static qn_status step(reader *r)
{
  qn_json *in = r->open[r->depth - 1].value;
  const bool object = in->type == QN_JSON_OBJECT;
  const char *key = NULL;
  skip_space(r);
  if (*r->at == (object ? '}' : ']')) {
    r->at++;
    r->depth--;
    return object ? check_keys(r, in) : QN_OK;
  }
  if (in->n) {
    expect(*r->at == ',', r, object ? "an object that is not closed" : "an array that is not closed");
    r->at++;
    skip_space(r);
  }
  if (object) qn_try(read_key(r, &key));
  return read_value(r, key);
}

static qn_status read_all(reader *r)
{
  skip_space(r);
  qn_try(read_value(r, NULL));
  while (r->depth) qn_try(step(r));
  skip_space(r);
  expect(r->at == r->end, r, "something stands behind the value");
  return QN_OK;
}

qn_status qn_json_read(const char *text, size_t bytes, const char *name, qn_json_tree *tree)
{
  size_t need;
  *tree = (qn_json_tree){0};
  if (__builtin_add_overflow(bytes, sizeof(memory) + 1, &need)) return qn_fail(QN_NO_MEMORY, "%s", name);
  qn_try(qn_try_allocate(&tree->memory, need, name));
  memory *m = tree->memory;
  m->blocks = NULL;
  if (bytes) memcpy(m->text, text, bytes);
  m->text[bytes] = 0;
  reader r = {.memory = m, .at = m->text, .end = m->text + bytes, .line_begin = m->text, .name = name, .line = 1};
  const qn_status status = read_all(&r);
  if (status != QN_OK) {
    qn_json_free(tree);
    return status;
  }
  block *first = m->blocks;
  while (first->next) first = first->next;
  tree->root = first->value;
  return QN_OK;
}

void qn_json_free(qn_json_tree *tree)
{
  memory *m = tree->memory;
  for (block *b = m ? m->blocks : NULL, *next; b; b = next) {
    next = b->next;
    qn_release(b);
  }
  qn_release(m);
  *tree = (qn_json_tree){0};
}

/* ---- what was read ---- */
bool qn_json_is(const qn_json *value, qn_json_type type) { return value && value->type == type; }

const qn_json *qn_json_first(const qn_json *list)
{
  return qn_json_is(list, QN_JSON_ARRAY) || qn_json_is(list, QN_JSON_OBJECT) ? list->first : NULL;
}

size_t qn_json_count(const qn_json *list) { return qn_json_first(list) ? list->n : 0; }

const qn_json *qn_json_get(const qn_json *object, const char *key)
{
  if (!qn_json_is(object, QN_JSON_OBJECT)) return NULL;
  const qn_json *m = object->first;
  while (m && strcmp(m->key, key)) m = m->next;
  return m;
}

const qn_json *qn_json_at(const qn_json *array, size_t k)
{
  const qn_json *one = qn_json_is(array, QN_JSON_ARRAY) ? array->first : NULL;
  for (; one && k; k--) one = one->next;
  return one;
}

const char *qn_json_string(const qn_json *value) { return qn_json_is(value, QN_JSON_STRING) ? value->string : NULL; }

bool qn_json_integer(const qn_json *value, int64_t *integer)
{
  if (!qn_json_is(value, QN_JSON_INTEGER)) return false;
  *integer = value->integer;
  return true;
}

bool qn_json_number(const qn_json *value, double *number)
{
  if (!qn_json_is(value, QN_JSON_INTEGER) && !qn_json_is(value, QN_JSON_REAL)) return false;
  *number = value->type == QN_JSON_REAL ? value->real : (double)value->integer;
  return true;
}

const char *qn_json_describe(const qn_json *value)
{
  switch (value ? value->type : QN_JSON_NULL) {
  case QN_JSON_OBJECT: return "an object";
  case QN_JSON_ARRAY: return "a list";
  case QN_JSON_STRING: return "a text";
  case QN_JSON_INTEGER: return "a whole number";
  case QN_JSON_REAL: return "a number with a fraction";
  case QN_JSON_BOOL: return value->boolean ? "true" : "false";
  default: return "null";
  }
}

/* As deep as the tree, which is bounded. */
void qn_json_add(qn_text *text, const qn_json *value)
{
  switch (value ? value->type : QN_JSON_NULL) {
  case QN_JSON_BOOL: qn_text_add(text, value->boolean ? "true" : "false"); return;
  case QN_JSON_INTEGER: qn_text_add(text, "%" PRId64, value->integer); return;
  case QN_JSON_REAL: qn_json_add_real(text, value->real); return;
  case QN_JSON_STRING: qn_json_add_string(text, value->string); return;
  case QN_JSON_ARRAY:
  case QN_JSON_OBJECT:
    qn_text_add(text, value->type == QN_JSON_OBJECT ? "{" : "[");
    for (const qn_json *one = value->first; one; one = one->next) {
      if (one != value->first) qn_text_add(text, ", ");
      if (one->key) qn_json_add_string(text, one->key), qn_text_add(text, ": ");
      qn_json_add(text, one);
    }
    qn_text_add(text, value->type == QN_JSON_OBJECT ? "}" : "]");
    return;
  default: qn_text_add(text, "null");
  }
}
