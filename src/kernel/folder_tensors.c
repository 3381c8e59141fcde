/* SPDX-License-Identifier: Apache-2.0 */
/* folder_tensors.c - what kernel.json says of tensors: their contracts ("f32|f16 [n, h, 2]"), and the members
 * that name some of them (strided, atomic, init, in_place, scalars, fill, agreement). */
#include "kernel/folder_inner.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct member_path {
  char text[160];
} member_path;

static member_path path_of(const char *member, const char *name)
{
  member_path path;
  snprintf(path.text, sizeof path.text, "%s.%s", member, name);
  return path;
}

/* ---- contracts ---- */
static const char *skip_space(const char *at) { return at + strspn(at, " \t"); }

static qn_status unknown_type(const qn_reading *r, const char *where, const char *word)
{
  const char *names[QN_DTYPE_COUNT + 1] = {NULL};
  for (int k = 1; k <= QN_C64; k++) names[k - 1] = qn_dtype_name((qn_dtype)k);
  const char *near = qn_suggest(word, names);
  if (!*word) return qn_reading_wrong(r, where, "a storage type is missing; a contract is like \"f32|f16 [n, 2]\"");
  return qn_reading_wrong(r, where, "there is no storage type %s%s", word,
                          *near ? near : " (there are f32, f16, bf16, f64, i32, u8, bool ...)");
}

/* "inp.dtype": the type of an earlier input. */
static qn_status borrow_type(const qn_reading *r, const char *where, const char *word, size_t n_earlier,
                             qn_folder_tensor *t)
{
  const char *names[QN_KERNEL_MAX_TENSORS + 1] = {NULL};
  char name[64];
  snprintf(name, sizeof name, "%.*s", (int)(strlen(word) - strlen(".dtype")), word);
  for (size_t k = 0; k < n_earlier && k < r->f->n_inputs; k++) {
    names[k] = r->f->tensor[k].name;
    if (!strcmp(name, names[k])) t->dtype_of = (int)k;
  }
  if (t->dtype_of >= 0) return QN_OK;
  return qn_reading_wrong(r, where, "%s: there is no %sinput %s%s", word, t->output ? "" : "earlier ", name,
                          qn_suggest(name, names));
}

static qn_status read_types(const qn_reading *r, const char *where, const char **at, size_t n_earlier,
                            qn_folder_tensor *t)
{
  for (;;) {
    char word[64];
    *at = skip_space(*at);
    size_t length = strcspn(*at, " \t|[");
    snprintf(word, sizeof word, "%.*s", (int)length, *at);
    *at = skip_space(*at + length);
    const char *dot = strrchr(word, '.');
    if (dot && !strcmp(dot, ".dtype")) return borrow_type(r, where, word, n_earlier, t);
    qn_dtype dtype = qn_dtype_from_name(word);
    if (dtype == QN_NONE) return unknown_type(r, where, word);
    for (size_t k = 0; k < t->n_dtypes; k++)
      if (t->dtype[k] == dtype) return qn_reading_wrong(r, where, "%s stands twice", word);
    t->dtype[t->n_dtypes++] = dtype;
    if (**at != '|') return QN_OK;
    ++*at;
  }
}

/* "like x": the extents that an earlier tensor has. */
static qn_status take_like(const qn_reading *r, const char *where, const qn_shape_part *part, qn_folder_tensor *t)
{
  const qn_folder_tensor *other = r->f->tensor;
  if (part->without.at) return qn_reading_wrong(r, where, "\"without\": no dimension of a tensor has a name");
  while (other < t && !qn_word_is(part->text, other->name)) other++;
  if (other == t)
    return qn_reading_wrong(r, where, "like %.*s: there is no tensor of that name before this one",
                            (int)part->text.length, part->text.at);
  if (other->leading && (t->ndim || t->leading))
    return qn_reading_wrong(r, where, "like %s: its \"...\" stands in front of all", other->name);
  if (t->ndim + other->ndim > QN_FOLDER_DIMS) return qn_reading_wrong(r, where, "more than %d extents", QN_FOLDER_DIMS);
  t->leading |= other->leading;
  memcpy(t->extent[t->ndim], other->extent, (size_t)other->ndim * sizeof *other->extent);
  t->ndim += other->ndim;
  return QN_OK;
}

static qn_status take_part(const qn_reading *r, const char *where, const qn_shape_part *part, qn_folder_tensor *t)
{
  if (part->kind == QN_PART_LIKE) return take_like(r, where, part, t);
  if (part->kind == QN_PART_ONES || (part->kind == QN_PART_ANY && part->number >= 0))
    return qn_reading_wrong(r, where, "how many extents \"...\" stands for is what a size says");
  t->leading |= part->kind == QN_PART_ANY;
  if (part->kind == QN_PART_ANY) return QN_OK;
  if (t->ndim == QN_FOLDER_DIMS) return qn_reading_wrong(r, where, "more than %d extents", QN_FOLDER_DIMS);
  memcpy(t->extent[t->ndim++], part->text.at, part->text.length);
  return QN_OK;
}

static qn_status read_extents(const qn_reading *r, const char *where, const char **at, qn_folder_tensor *t)
{
  qn_shape_reader parts = {.at = *at + 1};
  qn_shape_part part;
  int more;
  if (**at != '[')
    return qn_reading_wrong(r, where, "extents are missing: [n, 2] stands behind the types, [] for a single number");
  while ((more = qn_shape_part_next(&parts, &part)) > 0) qn_try(take_part(r, where, &part, t));
  *at = parts.at;
  return more ? qn_reading_wrong(r, where, "%s", parts.why) : QN_OK;
}

static qn_status read_contract(const qn_reading *r, const char *member, const char *name, const qn_json *value,
                               size_t n_earlier)
{
  qn_folder_tensor *t = &r->f->tensor[n_earlier];
  member_path where = path_of(member, name);
  const char *at = qn_json_string(value);
  *t = (qn_folder_tensor){.name = name, .text = at, .output = *member == 'o', .dtype_of = -1, .stored_in = -1};
  if (!at)
    return qn_reading_wrong(r, where.text, "is %s, it must be a contract like \"f32|f16 [n, 2]\"",
                            qn_json_describe(value));
  qn_try(read_types(r, where.text, &at, n_earlier, t));
  qn_try(read_extents(r, where.text, &at, t));
  at = skip_space(at);
  t->dense = !strncmp(at, "dense", 5);
  at = skip_space(at + (t->dense ? 5 : 0));
  if (*at) return qn_reading_wrong(r, where.text, "\"%s\" behind the extents; only \"dense\" may stand there", at);
  if (t->output && t->n_dtypes > 1)
    return qn_reading_wrong(r, where.text, "an output has one type; \"INPUT.dtype\" gives it that of an input");
  return QN_OK;
}

static qn_status read_side(qn_reading *r, const char *member, size_t *n)
{
  const qn_json *side = qn_json_get(r->root, member);
  *n = 0;
  if (!side && *member == 'o') return qn_reading_wrong(r, NULL, "the member \"outputs\" is missing");
  if (side && !qn_json_is(side, QN_JSON_OBJECT))
    return qn_reading_wrong(r, member, "is %s, it must be an object like {\"x\": \"f32 [n]\"}", qn_json_describe(side));
  for (const qn_json *value = qn_json_first(side); value; value = value->next) {
    const char *name = value->key;
    size_t k = r->f->n_inputs * (*member == 'o') + *n;
    if (k == QN_KERNEL_MAX_TENSORS) return qn_reading_wrong(r, member, "more than %d tensors", QN_KERNEL_MAX_TENSORS);
    for (size_t j = 0; j < k; j++)
      if (!strcmp(r->f->tensor[j].name, name))
        return qn_reading_wrong(r, member, "%s is an input already; an output needs a name of its own", name);
    qn_try(read_contract(r, member, name, value, k));
    ++*n;
  }
  return QN_OK;
}

qn_status qn_folder_read_tensors(qn_reading *r)
{
  qn_try(read_side(r, "inputs", &r->f->n_inputs));
  qn_try(read_side(r, "outputs", &r->f->n_outputs));
  return r->f->n_outputs ? QN_OK : qn_reading_wrong(r, "outputs", "there is none; a kernel has at least one");
}

/* ---- members that name tensors ---- */
static qn_status find(const qn_reading *r, const char *member, const char *name, int output, qn_folder_tensor **t)
{
  const char *names[QN_KERNEL_MAX_TENSORS + 1] = {NULL};
  size_t from = output > 0 ? r->f->n_inputs : 0, n = 0;
  size_t to = output ? r->f->n_inputs + r->f->n_outputs : r->f->n_inputs;
  for (size_t k = from; k < to; k++) {
    *t = &r->f->tensor[k];
    if (!strcmp((*t)->name, name)) return QN_OK;
    names[n++] = (*t)->name;
  }
  return qn_reading_wrong(r, member, "there is no %s %s%s", output > 0 ? "output" : "input", name,
                          qn_suggest(name, names));
}

static qn_status read_flags(const qn_reading *r, const char *member, int output)
{
  const qn_json *list = qn_json_get(r->root, member);
  qn_folder_tensor *t;
  if (list && !qn_json_is(list, QN_JSON_ARRAY))
    return qn_reading_wrong(r, member, "is %s, it must be a list of names", qn_json_describe(list));
  for (size_t k = 0; k < array_size(list); k++) {
    const char *name = qn_json_string(qn_json_at(list, k));
    if (!name)
      return qn_reading_wrong(r, member, "holds %s, it must hold names", qn_json_describe(qn_json_at(list, k)));
    qn_try(find(r, member, name, output, &t));
    if (output)
      t->atomic = true;
    else
      t->strided = true;
  }
  return QN_OK;
}

static qn_status number_of(const qn_reading *r, const char *where, const qn_json *value, qn_value *number)
{
  *number = (qn_value){0};
  if (qn_json_is(value, QN_JSON_BOOL)) {
    *number = (qn_value){.kind = QN_VALUE_BOOL, .integer = value->boolean};
  } else if (qn_json_is(value, QN_JSON_INTEGER)) {
    *number = (qn_value){.kind = QN_VALUE_INT, .integer = whole_of(value)};
  } else if (qn_json_is(value, QN_JSON_REAL)) {
    *number = (qn_value){.kind = QN_VALUE_FLOAT, .real = value->real};
  } else {
    return qn_reading_wrong(r, where, "is %s, it must be a number, true or false", qn_json_describe(value));
  }
  return QN_OK;
}

/* JSON has no such numbers; captures write them so. */
static bool is_no_finite_number(const qn_json *value, double *number)
{
  const char *word = qn_json_string(value);
  if (!word || (strcmp(word, "nan") && strcmp(word, "inf") && strcmp(word, "-inf"))) return false;
  *number = strcmp(word, "nan") ? *word == '-' ? -INFINITY : INFINITY : NAN;
  return true;
}

static qn_status take_init(const qn_reading *r, qn_folder_tensor *t, const qn_json *value)
{
  double number;
  if (is_no_finite_number(value, &number)) {
    t->init = (qn_value){.kind = QN_VALUE_FLOAT, .real = number};
    return QN_OK;
  }
  return number_of(r, path_of("init", t->name).text, value, &t->init);
}

static qn_status take_in_place(const qn_reading *r, qn_folder_tensor *t, const qn_json *value)
{
  qn_folder_tensor *input = NULL;
  member_path where = path_of("in_place", t->name);
  const char *name = qn_json_string(value);
  if (!name) return qn_reading_wrong(r, where.text, "is %s, it must be an input's name", qn_json_describe(value));
  qn_try(find(r, where.text, name, 0, &input));
  t->stored_in = (int)(input - r->f->tensor);
  for (size_t k = r->f->n_inputs; &r->f->tensor[k] != t; k++)
    if (r->f->tensor[k].stored_in == t->stored_in)
      return qn_reading_wrong(r, where.text, "%s is %s's memory already", name, r->f->tensor[k].name);
  return QN_OK;
}

static qn_status take_strides(const qn_reading *r, qn_folder_tensor *t, const qn_json *value)
{
  member_path where = path_of("strides", t->name);
  if ((int)array_size(value) != t->ndim || t->leading)
    return qn_reading_wrong(r, where.text, "must be a list of %d whole numbers, one an extent", t->ndim);
  for (int d = 0; d < t->ndim; d++) {
    const qn_json *stride = qn_json_at(value, (size_t)d);
    if (!qn_json_is(stride, QN_JSON_INTEGER) || whole_of(stride) > INT32_MAX || whole_of(stride) < INT32_MIN)
      return qn_reading_wrong(r, where.text, "stride %d is no whole number of 32 bits", d + 1);
    t->strides[d] = whole_of(stride);
  }
  t->laid_out = true;
  return QN_OK;
}

static qn_status take_scalar(const qn_reading *r, qn_folder_tensor *t, const qn_json *value)
{
  member_path where = path_of("scalars", t->name);
  if (t->ndim || t->leading)
    return qn_reading_wrong(r, where.text, "%s has extents; a plain value is one of none, \"f32 []\"", t->name);
  t->scalar = true;
  if (qn_json_is(value, QN_JSON_STRING))
    return qn_reading_expression(r, where.text, value, &r->f->body, &t->scalar_text);
  return number_of(r, where.text, value, &t->scalar_value);
}

static qn_status take_rule(const qn_reading *r, const char *where, qn_folder_tensor *t, const qn_json *value)
{
  qn_name names[QN_EXPRESSION_NAMES];
  qn_rule rule;
  const char *text = qn_json_string(value);
  if (!text) return qn_reading_wrong(r, where, "is %s, it must be a rule like \"normal\"", qn_json_describe(value));
  if (qn_rule_read(text, &rule) != QN_OK) return qn_reading_within(r, where);
  if ((rule.kind == QN_RULE_SPD || rule.kind == QN_RULE_DIAGONAL) && t->ndim < 2)
    return qn_reading_wrong(r, where, "%s makes matrices; %s has fewer than two extents",
                            rule.kind == QN_RULE_SPD ? "spd" : "diagonal", t->name);
  if (t->n_fills == QN_FOLDER_FILLS) return qn_reading_wrong(r, where, "more than %d rules", QN_FOLDER_FILLS);
  size_t n = qn_reading_names(r, &r->f->body, names);
  if (rule.expression && qn_expression_check(rule.expression, names, n) != QN_OK) return qn_reading_within(r, where);
  t->fill[t->n_fills++] = text;
  return QN_OK;
}

static qn_status take_fill(const qn_reading *r, qn_folder_tensor *t, const qn_json *value)
{
  member_path where = path_of("fill", t->name);
  if (!qn_json_is(value, QN_JSON_ARRAY)) return take_rule(r, where.text, t, value);
  for (size_t k = 0; k < array_size(value); k++) qn_try(take_rule(r, where.text, t, qn_json_at(value, k)));
  return QN_OK;
}

static qn_status each(const qn_reading *r, const char *member, int output, const qn_json *object,
                      qn_status (*take)(const qn_reading *r, qn_folder_tensor *t, const qn_json *value))
{
  qn_folder_tensor *t;
  if (object && !qn_json_is(object, QN_JSON_OBJECT))
    return qn_reading_wrong(r, member, "is %s, it must be an object by tensor", qn_json_describe(object));
  for (const qn_json *value = qn_json_first(object); value; value = value->next) {
    const char *name = value->key;
    qn_try(find(r, member, name, output, &t));
    qn_try(take(r, t, value));
  }
  return QN_OK;
}

/* ---- agreement ---- */
static qn_status one_agreement(const qn_reading *r, const char *where, const qn_json *value, qn_folder_agreement *a)
{
  static const char wanted[] = "\"bitwise\", \"any\", {\"ulp\": 4} or {\"scaled\": 8}";
  const char *word = qn_json_string(value);
  *a = (qn_folder_agreement){.kind = QN_AGREE_BITS};
  if (word) {
    if (!strcmp(word, "bitwise")) return QN_OK;
    a->kind = QN_AGREE_ANY;
    return !strcmp(word, "any") ? QN_OK : qn_reading_wrong(r, where, "is \"%s\"; it can be %s", word, wanted);
  }
  const qn_json *ulp = qn_json_get(value, "ulp"), *scaled = qn_json_get(value, "scaled");
  const qn_json *amount = ulp ? ulp : scaled;
  if (qn_json_count(value) != 1 || !qn_json_number(amount, &a->amount) || !(a->amount >= 0))
    return qn_reading_wrong(r, where, "must be %s, with a number of at least 0", wanted);
  a->kind = ulp ? QN_AGREE_ULP : QN_AGREE_SCALED;
  return QN_OK;
}

static qn_status take_agreement(const qn_reading *r, qn_folder_tensor *t, const qn_json *value)
{
  return one_agreement(r, path_of("agreement", t->name).text, value, &t->agreement);
}

static qn_status read_agreement(const qn_reading *r)
{
  const qn_json *value = qn_json_get(r->root, "agreement");
  bool whole = qn_json_is(value, QN_JSON_STRING) || qn_json_get(value, "ulp") || qn_json_get(value, "scaled");
  qn_folder_agreement all = {.kind = QN_AGREE_BITS};
  if (value && whole) qn_try(one_agreement(r, "agreement", value, &all));
  for (size_t k = 0; k < r->f->n_outputs; k++) {
    qn_folder_tensor *t = &r->f->tensor[r->f->n_inputs + k];
    t->agreement = all;
    if (!strcmp(t->name, "dbg")) t->agreement.kind = QN_AGREE_ANY; /* the health buffer is read, not compared */
  }
  return whole ? QN_OK : each(r, "agreement", 1, value, take_agreement);
}

qn_status qn_folder_read_traits(qn_reading *r)
{
  qn_try(read_flags(r, "strided", 0));
  qn_try(read_flags(r, "atomic", 1));
  qn_try(each(r, "init", 1, qn_json_get(r->root, "init"), take_init));
  qn_try(each(r, "in_place", 1, qn_json_get(r->root, "in_place"), take_in_place));
  qn_try(each(r, "strides", 0, qn_json_get(r->root, "strides"), take_strides));
  qn_try(each(r, "scalars", 0, qn_json_get(r->root, "scalars"), take_scalar));
  qn_try(each(r, "fill", 0, qn_json_get(r->root, "fill"), take_fill));
  return read_agreement(r);
}
