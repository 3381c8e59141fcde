/* SPDX-License-Identifier: Apache-2.0 */
/* folder_launch.c - what kernel.json says of a launch: templates, grid, threadgroup, the reference's own of
 * these, what is tuned; and over what it runs: sizes and workloads. Expressions are held against the names there are;
 * they are computed when a size is known. */
#include "kernel/folder_inner.h"
#include <stdio.h>
#include <string.h>

/* ---- names and expressions ---- */
size_t qn_reading_names(const qn_reading *r, const qn_folder_body *body, qn_name *names)
{
  static const char *const groups[] = {"threadgroup.x", "threadgroup.y", "threadgroup.z"};
  const qn_folder *f = r->f;
  size_t n = 0;
  for (size_t k = 0; k < f->n_extents; k++) names[n++] = (qn_name){f->extent[k], 1};
  for (size_t k = 0; k < body->n_templates; k++)
    if (body->templates[k].expression || body->templates[k].value.kind == QN_VALUE_INT ||
        body->templates[k].value.kind == QN_VALUE_BOOL)
      names[n++] = (qn_name){body->templates[k].name, 1};
  for (size_t k = 0; k < f->n_inputs + f->n_outputs; k++) {
    char name[80];
    int length = snprintf(name, sizeof name, "%.70s.bytes", f->tensor[k].name);
    const char *kept = qn_reading_keep(r, name, (size_t)length);
    if (kept) names[n++] = (qn_name){kept, 1};
  }
  for (size_t k = 0; k < 3; k++) names[n++] = (qn_name){groups[k], 1};
  return n;
}

qn_status qn_reading_expression(const qn_reading *r, const char *member, const qn_json *value,
                                const qn_folder_body *body, const char **text)
{
  qn_name names[QN_EXPRESSION_NAMES];
  if (qn_json_is(value, QN_JSON_INTEGER)) {
    char number[32];
    int length = snprintf(number, sizeof number, "%lld", (long long)whole_of(value));
    *text = qn_reading_keep(r, number, (size_t)length);
    return *text ? QN_OK : qn_fail(QN_NO_MEMORY, "%s", r->f->file);
  }
  *text = qn_json_string(value);
  if (!*text)
    return qn_reading_wrong(r, member, "is %s, it must be a whole number or an expression in quotes",
                            qn_json_describe(value));
  size_t n = qn_reading_names(r, body, names);
  return qn_expression_check(*text, names, n) == QN_OK ? QN_OK : qn_reading_within(r, member);
}

static qn_status optional_expression(const qn_reading *r, const char *member, const char **text)
{
  const qn_json *value = qn_json_get(r->root, member);
  return value ? qn_reading_expression(r, member, value, &r->f->body, text) : QN_OK;
}

/* ---- templates ---- */
static qn_status read_word(const qn_reading *r, const char *where, const char *word, qn_folder_template *t)
{
  const char *names[QN_KERNEL_MAX_TENSORS + 1] = {NULL}, *dot = strrchr(word, '.');
  char name[64];
  qn_dtype dtype = qn_dtype_from_name(word);
  if (dtype != QN_NONE) {
    t->value = (qn_value){.kind = QN_VALUE_DTYPE, .dtype = dtype};
    return QN_OK;
  }
  if (!dot || strcmp(dot, ".dtype")) {
    t->expression = word; /* held against the names when all are known */
    return QN_OK;
  }
  snprintf(name, sizeof name, "%.*s", (int)(dot - word), word);
  for (size_t k = 0; k < r->f->n_inputs + r->f->n_outputs; k++) {
    names[k] = r->f->tensor[k].name;
    if (!strcmp(names[k], name)) t->dtype_of = (int)k;
  }
  if (t->dtype_of >= 0) return QN_OK;
  return qn_reading_wrong(r, where, "%s: there is no input or output %s%s", word, name, qn_suggest(name, names));
}

static qn_status read_template(const qn_reading *r, const char *where, const qn_json *value, qn_folder_template *t)
{
  t->dtype_of = -1;
  t->expression = NULL;
  t->value = (qn_value){0};
  if (qn_json_is(value, QN_JSON_BOOL))
    t->value = (qn_value){.kind = QN_VALUE_BOOL, .integer = value->boolean};
  else if (qn_json_is(value, QN_JSON_INTEGER))
    t->value = (qn_value){.kind = QN_VALUE_INT, .integer = whole_of(value)};
  else if (qn_json_is(value, QN_JSON_STRING))
    return read_word(r, where, qn_json_string(value), t);
  else
    return qn_reading_wrong(r, where,
                            "is %s, it must be a storage type, \"INPUT.dtype\", a whole number, an "
                            "expression, true or false",
                            qn_json_describe(value));
  return QN_OK;
}

/* Behind those that the body has already (the reference has the kernel's own, and may give them other values). */
qn_status qn_folder_read_templates(qn_reading *r, const char *member, const qn_json *object, qn_folder_body *body)
{
  if (object && !qn_json_is(object, QN_JSON_OBJECT))
    return qn_reading_wrong(r, member, "is %s, it must be an object like {\"T\": \"inp.dtype\"}",
                            qn_json_describe(object));
  for (const qn_json *value = qn_json_first(object); value; value = value->next) {
    const char *name = value->key;
    char where[160];
    size_t k = 0;
    snprintf(where, sizeof where, "%s.%s", member, name);
    while (k < body->n_templates && strcmp(body->templates[k].name, name)) k++;
    if (k == QN_KERNEL_MAX_TEMPLATES) return qn_reading_wrong(r, member, "more than %d", QN_KERNEL_MAX_TEMPLATES);
    body->templates[k].name = name;
    qn_try(read_template(r, where, value, &body->templates[k]));
    if (k == body->n_templates) body->n_templates++;
  }
  return QN_OK;
}

static qn_status check_templates(const qn_reading *r, const char *member, const qn_folder_body *body)
{
  qn_name names[QN_EXPRESSION_NAMES];
  size_t n = qn_reading_names(r, body, names);
  for (size_t k = 0; k < body->n_templates; k++) {
    char where[160];
    snprintf(where, sizeof where, "%s.%s", member, body->templates[k].name);
    const char *text = body->templates[k].expression;
    if (text && qn_expression_check(text, names, n) != QN_OK) return qn_reading_within(r, where);
  }
  return QN_OK;
}

/* ---- extents ---- */
typedef struct collection {
  qn_folder *f;
  bool full;
} collection;

static void collect(void *user, const char *name, size_t length)
{
  collection *c = user;
  qn_folder *f = c->f;
  for (size_t k = 0; k < f->n_extents; k++)
    if (strlen(f->extent[k]) == length && !strncmp(f->extent[k], name, length)) return;
  for (size_t k = 0; k < f->body.n_templates; k++)
    if (strlen(f->body.templates[k].name) == length && !strncmp(f->body.templates[k].name, name, length)) return;
  if (memchr(name, '.', length)) return; /* "inp.bytes" is no extent */
  c->full = c->full || f->n_extents == QN_FOLDER_NAMES;
  if (!c->full && length < QN_EXTENT_BYTES) memcpy(f->extent[f->n_extents++], name, length);
}

static qn_status check_extents(const qn_reading *r)
{
  qn_name names[QN_EXPRESSION_NAMES];
  size_t n = qn_reading_names(r, &r->f->body, names);
  for (size_t k = 0; k < r->f->n_inputs + r->f->n_outputs; k++)
    for (int d = 0; d < r->f->tensor[k].ndim; d++) {
      char where[160];
      snprintf(where, sizeof where, "%s.%s", k < r->f->n_inputs ? "inputs" : "outputs", r->f->tensor[k].name);
      if (qn_expression_check(r->f->tensor[k].extent[d], names, n) != QN_OK) return qn_reading_within(r, where);
    }
  return QN_OK;
}

static qn_status find_extents(qn_reading *r)
{
  collection c = {r->f, false};
  for (size_t k = 0; k < r->f->n_inputs + r->f->n_outputs; k++)
    for (int d = 0; d < r->f->tensor[k].ndim; d++) qn_expression_names(r->f->tensor[k].extent[d], collect, &c);
  if (c.full) return qn_reading_wrong(r, NULL, "contracts name more than %d extents", QN_FOLDER_NAMES);
  return check_extents(r);
}

/* ---- grid and threadgroup ---- */
static qn_status read_three(const qn_reading *r, const char *member, const qn_json *list, const qn_folder_body *body,
                            const char **three)
{
  size_t n = array_size(list);
  if (!n || n > 3)
    return qn_reading_wrong(r, member, "must be a list of one to three numbers or expressions, like [\"n\", 1, 1]");
  for (size_t k = 0; k < 3; k++) {
    char where[64];
    snprintf(where, sizeof where, "%s[%zu]", member, k);
    three[k] = "1";
    if (k < n) qn_try(qn_reading_expression(r, where, qn_json_at(list, k), body, &three[k]));
  }
  return QN_OK;
}

static qn_status read_geometry(const qn_reading *r, const qn_json *object, const char *prefix, qn_folder_body *body)
{
  char member[64];
  const qn_json *grid = qn_json_get(object, "grid"), *group = qn_json_get(object, "threadgroup");
  snprintf(member, sizeof member, "%sgrid", prefix);
  if (grid) qn_try(read_three(r, member, grid, body, body->grid));
  if (!body->grid[0])
    return qn_reading_wrong(r, NULL, "the member \"grid\" is missing: how many threads in all, like [\"n\", 1, 1]");
  snprintf(member, sizeof member, "%sthreadgroup", prefix);
  return group ? read_three(r, member, group, body, body->group) : QN_OK;
}

/* ---- tune ---- */
static qn_status tune_group(const qn_reading *r, const qn_json *candidate, size_t k)
{
  size_t n = array_size(candidate);
  if (!n || n > 3) return qn_reading_wrong(r, "tune.threadgroup", "must hold lists of one to three whole numbers");
  for (size_t d = 0; d < 3; d++) {
    int64_t x = d < n ? whole_of(qn_json_at(candidate, d)) : 1;
    if (x < 1 || x > QN_KERNEL_MAX_GROUP)
      return qn_reading_wrong(r, "tune.threadgroup", "candidate %zu: every number must be from 1 to %d", k + 1,
                              QN_KERNEL_MAX_GROUP);
    r->f->tune_group[k][d] = (uint32_t)x;
  }
  return QN_OK;
}

static qn_status tune_template(const qn_reading *r, const char *name, const qn_json *list)
{
  const char *names[QN_KERNEL_MAX_TEMPLATES + 2] = {"threadgroup", NULL};
  char where[160];
  qn_folder_template *t = NULL;
  snprintf(where, sizeof where, "tune.%s", name);
  for (size_t k = 0; k < r->f->body.n_templates; k++) {
    names[k + 1] = r->f->body.templates[k].name;
    if (!strcmp(names[k + 1], name)) t = &r->f->body.templates[k];
  }
  if (!t) return qn_reading_wrong(r, where, "there is no template %s%s", name, qn_suggest(name, names));
  if (t->value.kind != QN_VALUE_INT && t->value.kind != QN_VALUE_BOOL)
    return qn_reading_wrong(r, where, "only templates that are whole numbers, true or false can be tuned");
  for (; t->n_candidates < array_size(list); t->n_candidates++) {
    const qn_json *value = qn_json_at(list, t->n_candidates);
    bool fits = t->value.kind == QN_VALUE_INT ? qn_json_is(value, QN_JSON_INTEGER) : qn_json_is(value, QN_JSON_BOOL);
    if (!fits)
      return qn_reading_wrong(r, where, "holds %s, the template is %s", qn_json_describe(value),
                              t->value.kind == QN_VALUE_INT ? "a whole number" : "true or false");
    t->candidate[t->n_candidates] = qn_json_is(value, QN_JSON_BOOL) ? value->boolean : whole_of(value);
  }
  return QN_OK;
}

static qn_status read_tune(const qn_reading *r)
{
  const qn_json *tune = qn_json_get(r->root, "tune");
  if (tune && !qn_json_is(tune, QN_JSON_OBJECT))
    return qn_reading_wrong(r, "tune", "is %s, it must be an object like {\"threadgroup\": [[64], [128]]}",
                            qn_json_describe(tune));
  for (const qn_json *list = qn_json_first(tune); list; list = list->next) {
    const char *name = list->key;
    size_t n = array_size(list);
    if (!n || n > QN_FOLDER_CANDIDATES)
      return qn_reading_wrong(r, "tune", "%s must be a list of 1 to %d values", name, QN_FOLDER_CANDIDATES);
    if (strcmp(name, "threadgroup")) {
      qn_try(tune_template(r, name, list));
      continue;
    }
    for (size_t k = 0; k < n; k++) qn_try(tune_group(r, qn_json_at(list, k), k));
    r->f->n_groups = n;
  }
  return QN_OK;
}

qn_status qn_folder_read_launch(qn_reading *r)
{
  qn_folder *f = r->f;
  const qn_json *reference = qn_json_get(r->root, "reference");
  const qn_json *same = qn_json_get(r->root, "same_bits");
  qn_try(find_extents(r));
  qn_try(check_templates(r, "templates", &f->body));
  qn_try(read_geometry(r, r->root, "", &f->body));
  if (f->reference.source) {
    memcpy(f->reference.grid, f->body.grid, sizeof f->body.grid);
    memcpy(f->reference.group, f->body.group, sizeof f->body.group);
    qn_try(qn_folder_read_templates(r, "reference.templates", qn_json_get(reference, "templates"), &f->reference));
    qn_try(check_templates(r, "reference.templates", &f->reference));
    qn_try(read_geometry(r, reference, "reference.", &f->reference));
  }
  if (same && !qn_json_is(same, QN_JSON_BOOL))
    return qn_reading_wrong(r, "same_bits", "is %s, it must be true or false", qn_json_describe(same));
  f->same_bits = same ? same->boolean : f->math == QN_MATH_SAFE;
  const qn_json *cluster = qn_json_get(r->root, "cluster");
  if (cluster) {
    if (!qn_json_is(cluster, QN_JSON_INTEGER) || cluster->integer < 1 || cluster->integer > QN_KERNEL_MAX_CLUSTER)
      return qn_reading_wrong(r, "cluster", "is %s, it must be a number of blocks from 1 to %d",
                              qn_json_describe(cluster), QN_KERNEL_MAX_CLUSTER);
    f->cluster = (uint32_t)cluster->integer;
  }
  qn_try(optional_expression(r, "shared_bytes", &f->shared_bytes));
  qn_try(optional_expression(r, "bytes", &f->bytes));
  qn_try(optional_expression(r, "operations", &f->operations));
  return read_tune(r);
}

/* ---- sizes and workloads ---- */
static qn_status read_leading(const qn_reading *r, const char *where, const qn_json *list, qn_folder_size *size)
{
  if (!qn_json_is(list, QN_JSON_ARRAY) || array_size(list) > QN_FOLDER_DIMS)
    return qn_reading_wrong(r, where, "\"...\" must be a list of at most %d extents, like [8, 16]", QN_FOLDER_DIMS);
  for (size_t k = 0; k < array_size(list); k++) {
    if (whole_of(qn_json_at(list, k)) < 1) return qn_reading_wrong(r, where, "\"...\" must hold whole numbers above 0");
    size->leading[size->n_leading++] = whole_of(qn_json_at(list, k));
  }
  return QN_OK;
}

static bool binds(const qn_folder *f, const char *name, const char **known)
{
  size_t n = 0;
  for (size_t k = 0; k < f->n_extents; k++) known[n++] = f->extent[k];
  for (size_t k = 0; k < f->body.n_templates; k++)
    if (f->body.templates[k].value.kind != QN_VALUE_DTYPE && f->body.templates[k].dtype_of < 0)
      known[n++] = f->body.templates[k].name;
  known[n] = NULL;
  for (size_t k = 0; k < n; k++)
    if (!strcmp(known[k], name)) return true;
  return false;
}

/* A size's own rules: {"a": "zeros"}. */
static qn_status check_fill(const qn_reading *r, const char *where, const qn_json *object)
{
  qn_rule rule;
  if (!qn_json_is(object, QN_JSON_OBJECT))
    return qn_reading_wrong(r, where, "fill is %s, not an object", qn_json_describe(object));
  for (const qn_json *value = qn_json_first(object); value; value = value->next) {
    const char *name = value->key;
    int k = qn_folder_tensor_find(r->f, name);
    if (k < 0 || r->f->tensor[k].output) return qn_reading_wrong(r, where, "fill: there is no input %s", name);
    if (!qn_json_is(value, QN_JSON_STRING))
      return qn_reading_wrong(r, where, "fill.%s is %s, not a rule", name, qn_json_describe(value));
    if (qn_rule_read(qn_json_string(value), &rule) != QN_OK) return qn_reading_within(r, where);
  }
  return QN_OK;
}

static bool is_extent(const qn_folder *f, const char *name)
{
  for (size_t k = 0; k < f->n_extents; k++)
    if (!strcmp(f->extent[k], name)) return true;
  return false;
}

static qn_status read_value(const qn_reading *r, const char *where, const char *name, const qn_json *value,
                            qn_folder_size *size)
{
  const char *known[QN_FOLDER_NAMES + QN_KERNEL_MAX_TEMPLATES + 1];
  if (!strcmp(name, "...")) return read_leading(r, where, value, size);
  if (!strcmp(name, "fill")) {
    size->fill = value;
    return check_fill(r, where, value);
  }
  if (!strcmp(name, "health") && qn_json_is(value, QN_JSON_INTEGER)) {
    size->health = (int)whole_of(value);
    return QN_OK;
  }
  if (!binds(r->f, name, known))
    return qn_reading_wrong(r, where, "%s is no extent of a contract and no template%s", name, qn_suggest(name, known));
  if (!qn_json_is(value, QN_JSON_INTEGER) && !(qn_json_is(value, QN_JSON_BOOL) && !is_extent(r->f, name)))
    return qn_reading_wrong(r, where, "%s is %s, it must be a whole number", name, qn_json_describe(value));
  int64_t number = qn_json_is(value, QN_JSON_BOOL) ? value->boolean : whole_of(value);
  if (size->n == QN_FOLDER_NAMES) return qn_reading_wrong(r, where, "more than %d values", QN_FOLDER_NAMES);
  size->value[size->n++] = (qn_name){name, number};
  return QN_OK;
}

/* All extents are bound, above 0 where they are (an extent of 0 makes an empty tensor and nothing to launch). */
static qn_status check_size(const qn_reading *r, const char *where, const qn_folder_size *size)
{
  for (size_t e = 0; e < r->f->n_extents; e++) {
    const char *name = r->f->extent[e];
    size_t k = 0;
    while (k < size->n && strcmp(size->value[k].name, name)) k++;
    if (k == size->n) return qn_reading_wrong(r, where, "the extent %s has no value", name);
    if (size->value[k].value < 0)
      return qn_reading_wrong(r, where, "%s is %lld, it must not be negative", name, (long long)size->value[k].value);
  }
  return QN_OK;
}

static const char *name_size(const qn_reading *r, const qn_folder_size *size)
{
  qn_text text = {0};
  for (int k = 0; k < size->n_leading; k++)
    qn_text_add(&text, "%s%lld%s", k ? "," : "...=", (long long)size->leading[k], k + 1 < size->n_leading ? "" : " ");
  for (size_t k = 0; k < size->n; k++)
    qn_text_add(&text, "%s%s=%lld", k ? " " : "", size->value[k].name, (long long)size->value[k].value);
  if (size->health) qn_text_add(&text, "%shealth=%d", text.length ? " " : "", size->health);
  if (!text.length) qn_text_add(&text, "as it is");
  const char *name = text.failed ? NULL : qn_reading_keep(r, text.at, text.length);
  qn_text_free(&text);
  return name ? name : "?";
}

static qn_status read_one(const qn_reading *r, const char *where, const qn_json *object, qn_folder_size *size)
{
  if (!qn_json_is(object, QN_JSON_OBJECT))
    return qn_reading_wrong(r, where, "is %s, it must be an object like {\"n\": 255}", qn_json_describe(object));
  for (const qn_json *value = qn_json_first(object); value; value = value->next)
    qn_try(read_value(r, where, value->key, value, size));
  return r->f->inputs_file ? QN_OK : check_size(r, where, size);
}

static qn_status allocate(qn_folder_size **sizes, size_t n)
{
  *sizes = qn_allocate_zero(n ? n : 1, sizeof **sizes);
  return *sizes ? QN_OK : qn_fail(QN_NO_MEMORY, "%zu sizes of a kernel", n);
}

static qn_status read_workloads(qn_reading *r)
{
  const qn_json *workloads = qn_json_get(r->root, "workloads");
  if (workloads && !qn_json_is(workloads, QN_JSON_OBJECT))
    return qn_reading_wrong(r, "workloads", "is %s, it must be an object like {\"2^20\": {\"n\": 1048576}}",
                            qn_json_describe(workloads));
  if (qn_json_count(workloads) > QN_FOLDER_MOST)
    return qn_reading_wrong(r, "workloads", "more than %d", QN_FOLDER_MOST);
  qn_try(allocate(&r->f->workload, qn_json_count(workloads)));
  for (const qn_json *value = qn_json_first(workloads); value; value = value->next) {
    const char *name = value->key;
    char where[160];
    snprintf(where, sizeof where, "workloads.%s", name);
    qn_folder_size *size = &r->f->workload[r->f->n_workloads];
    qn_try(read_one(r, where, value, size));
    size->name = name;
    r->f->n_workloads++;
  }
  return QN_OK;
}

qn_status qn_folder_read_sizes(qn_reading *r)
{
  const qn_json *sizes = qn_json_get(r->root, "sizes");
  size_t n = array_size(sizes);
  if (sizes && (!qn_json_is(sizes, QN_JSON_ARRAY) || !n || n > QN_FOLDER_MOST))
    return qn_reading_wrong(r, "sizes", "must be a list of 1 to %d sizes, like [{\"n\": 1}, {\"n\": 255}]",
                            QN_FOLDER_MOST);
  qn_try(allocate(&r->f->size, n));
  for (size_t k = 0; k < n; k++) {
    char where[32];
    snprintf(where, sizeof where, "sizes[%zu]", k);
    qn_try(read_one(r, where, qn_json_at(sizes, k), &r->f->size[k]));
    r->f->size[k].name = name_size(r, &r->f->size[k]);
  }
  r->f->n_sizes = n;
  qn_try(read_workloads(r));
  if (n || r->f->n_workloads) return QN_OK;
  r->f->n_sizes = 1; /* nothing to choose: shapes are numbers, or come with the inputs */
  r->f->size[0].name = "as it is";
  return QN_OK;
}
