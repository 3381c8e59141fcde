/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reads JSON (RFC 8259) into a tree whose memory is the tree's own. Every byte of the text is hostile: nesting
 * and the number of values are bounded, a name stands once in an object, strings are UTF-8 without NUL. Writing is
 * core.h's: qn_text_add, qn_json_add_string, qn_json_add_real; and qn_json_add for a value that was read. */
#ifndef QN_CORE_JSON_H
#define QN_CORE_JSON_H
#include "core/core.h"

enum { QN_JSON_DEPTH = 128, QN_JSON_VALUES = 1 << 22 }; /* the most that is read */

typedef enum qn_json_type {
  QN_JSON_NULL,
  QN_JSON_BOOL,
  QN_JSON_INTEGER, /* a number without point and exponent; it fits 64 bits */
  QN_JSON_REAL,
  QN_JSON_STRING,
  QN_JSON_ARRAY,
  QN_JSON_OBJECT
} qn_json_type;

typedef struct qn_json qn_json;
struct qn_json {
  qn_json_type type;
  uint32_t n;            /* of an array or object: how many stand in it */
  uint32_t line, column; /* where it begins, from 1; columns are bytes */
  const char *key;       /* of an object's member, else NULL */
  const qn_json *next;   /* behind this one in its array or object, or NULL */
  union {
    bool boolean;
    int64_t integer;
    double real;
    const char *string;
    const qn_json *first; /* in the text's order */
  };
};

typedef struct qn_json_tree {
  const qn_json *root;
  void *memory;
} qn_json_tree;

/* QN_BAD_FILE, "NAME:LINE:COLUMN: " and what is wrong; or QN_NO_MEMORY. The text need not end with NUL, and is copied.
 * On failure the tree is empty. Freeing an empty tree is fine. */
qn_status qn_json_read(const char *text, size_t bytes, const char *name, qn_json_tree *tree);
void qn_json_free(qn_json_tree *tree);

/* Each takes any value, NULL too: what is not there and what is of another type are answered alike. */
const qn_json *qn_json_get(const qn_json *object, const char *key); /* NULL: no such member */
const qn_json *qn_json_at(const qn_json *array, size_t k);          /* NULL: not so many */
const qn_json *qn_json_first(const qn_json *list);                  /* of an array or object; then ->next */
size_t qn_json_count(const qn_json *list);                          /* 0 for all but arrays and objects */
bool qn_json_is(const qn_json *value, qn_json_type type);
const char *qn_json_string(const qn_json *value); /* NULL: it is no string */
bool qn_json_integer(const qn_json *value, int64_t *integer);
bool qn_json_number(const qn_json *value, double *number); /* of an integer too */
const char *qn_json_describe(const qn_json *value);        /* "an object", "a text"; "null" for NULL */
void qn_json_add(qn_text *text, const qn_json *value);     /* reads back as the same value */
#endif
