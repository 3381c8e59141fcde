/* SPDX-License-Identifier: Apache-2.0 */
/* folder_inner.h - what the files that read kernel.json share: the reading itself, its complaints, texts kept
 * with the folder. For folder*.c alone. */
#ifndef QN_KERNEL_FOLDER_INNER_H
#define QN_KERNEL_FOLDER_INNER_H
#include "core/core.h"
#include "kernel/folder.h"

static inline size_t array_size(const qn_json *value) { return qn_json_is(value, QN_JSON_ARRAY) ? value->n : 0; }
/* 0 for what is no whole number. */
static inline int64_t whole_of(const qn_json *value) { return qn_json_is(value, QN_JSON_INTEGER) ? value->integer : 0; }

typedef struct qn_reading {
  qn_folder *f;
  const qn_json *root;
} qn_reading;

/* "<folder>/kernel.json: inputs.inp: sentence". The member's path may be NULL. */
qn_status qn_reading_wrong(const qn_reading *r, const char *member, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The failure of an inner call, with file and member before it. */
qn_status qn_reading_within(const qn_reading *r, const char *member);
/* The text's copy, which lives with the folder; NULL without memory. */
const char *qn_reading_keep(const qn_reading *r, const char *text, size_t length);

/* Names that expressions may have: extents, templates, "T.bytes" of tensors, "threadgroup.x"; without values. */
enum { QN_EXPRESSION_NAMES = QN_FOLDER_NAMES + QN_KERNEL_MAX_TEMPLATES + QN_KERNEL_MAX_TENSORS + 3 };
size_t qn_reading_names(const qn_reading *r, const qn_folder_body *body, qn_name *names);
/* An expression, given as text or whole number, kept as text. */
qn_status qn_reading_expression(const qn_reading *r, const char *member, const qn_json *value,
                                const qn_folder_body *body, const char **text);

qn_status qn_folder_read_tensors(qn_reading *r);
qn_status qn_folder_read_traits(qn_reading *r); /* what other members say of tensors */
qn_status qn_folder_read_templates(qn_reading *r, const char *member, const qn_json *object, qn_folder_body *body);
qn_status qn_folder_read_launch(qn_reading *r);
qn_status qn_folder_read_sizes(qn_reading *r);
#endif
