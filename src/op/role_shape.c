/* SPDX-License-Identifier: Apache-2.0 */
/* role_shape.c - see role_shape.h. A role without a rule is like the first one, and the first one is of any shape. */
#include "op/role_shape.h"
#include "core/core.h"
#include "core/expression.h"
#include "op/call.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

typedef struct reading {
  const qn_op_info *info;
  size_t role;
  qn_shape_reader at;
} reading;

static qn_status bad(const reading *r, const char *why)
{
  const qn_op_tensor *tensor = &r->info->tensors[r->role];
  return qn_fail(QN_BAD_ARGUMENT, "%s: the shape of %s, \"%s\", at character %d: %s", r->info->name, tensor->name,
                 tensor->shape, (int)(r->at.at - tensor->shape) + 1, why);
}

static qn_status read_like(const reading *r, const qn_shape_part *part, qn_role_part *made)
{
  if (!qn_word_is(part->text, r->info->tensors[0].name)) return bad(r, "a shape is like the first role's");
  if (r->info->tensors[r->role].single) return bad(r, "a tensor of the whole list is like none of it");
  if (!part->without.at) return QN_OK;
  made->cut = qn_word_is(part->without, "d0") ? 0 : 1;
  return made->cut == 0 || qn_word_is(part->without, "d1") ? QN_OK : bad(r, "a dimension is d0 or d1");
}

static qn_status read_part(const reading *r, const qn_shape_part *part, qn_role_part *made)
{
  *made = (qn_role_part){.kind = part->kind, .cut = -1, .number = part->number, .text = part->text};
  if (part->kind == QN_PART_LIKE) return read_like(r, part, made);
  if (part->kind != QN_PART_NAME || qn_word_is(part->text, "tensors")) return QN_OK;
  made->letter = *part->text.at;
  if (part->text.length != 1 || made->letter < 'a' || made->letter > 'z')
    return bad(r, "an op's extent is a letter from a to z, or \"tensors\"");
  return r->info->tensors[r->role].single ? QN_OK : bad(r, "extents have letters where a call has one tensor a role");
}

/* One bracket. */
static qn_status read_shape(reading *r, qn_shape_rule *rule)
{
  qn_shape_part part;
  int more;
  r->at.parts = 0;
  *rule = (qn_shape_rule){.follows = true, .cut = -1};
  if (!qn_shape_take(&r->at.at, "[")) return bad(r, "a [ is missing");
  while ((more = qn_shape_part_next(&r->at, &part)) > 0) {
    if (rule->n == QN_ROLE_PARTS) return bad(r, "a shape of more than 6 parts");
    qn_role_part *made = &rule->part[rule->n++];
    qn_try(read_part(r, &part, made));
    if (made->cut >= 0) rule->cut = made->cut;
    rule->follows &= part.kind != QN_PART_ANY && part.kind != QN_PART_EXPRESSION && !made->letter;
  }
  rule->alike = rule->n == 1 && rule->part[0].kind == QN_PART_LIKE && rule->cut < 0;
  return more ? bad(r, r->at.why) : QN_OK;
}

static const qn_shape_rule any = {.n = 1, .cut = -1, .part = {{.kind = QN_PART_ANY, .cut = -1, .number = -1}}};
static const qn_shape_rule like_first = {
    .n = 1, .follows = true, .alike = true, .cut = -1, .part = {{.kind = QN_PART_LIKE, .cut = -1}}};

static qn_status read_rule(const qn_op_info *info, size_t role, qn_role_rule *rule)
{
  const char *text = info->tensors[role].shape;
  reading r = {.info = info, .role = role, .at = {.at = text}};
  *rule = (qn_role_rule){.first = role ? like_first : any};
  if (!text) return QN_OK;
  qn_try(read_shape(&r, &rule->first));
  if (qn_shape_take(&r.at.at, "or")) qn_try(read_shape(&r, &rule->otherwise));
  r.at.at += strspn(r.at.at, " ");
  return *r.at.at ? bad(&r, "this belongs to no shape") : QN_OK;
}

static qn_status read_all(const qn_op_info *info, qn_op_rules *rules)
{
  rules->alike = qn_op_is_alike(info);
  for (size_t role = 0; role < info->n_tensors; role++) qn_try(read_rule(info, role, &rules->role[role]));
  return QN_OK;
}

qn_status qn_op_rules_of(const qn_op *op, qn_op_rules *own, const qn_op_rules **rules)
{
  enum { NOT_READ, BEING_READ, READ };
#define QN_OP(name) +1
  static struct {
    atomic_int state;
    qn_op_rules rules;
  } known[
#include "ops.h"
  ];
#undef QN_OP
  size_t k = 0;
  while (qn_ops[k] && qn_ops[k] != op) k++;
  int state = qn_ops[k] ? atomic_load_explicit(&known[k].state, memory_order_acquire) : BEING_READ;
  *rules = state == READ ? &known[k].rules : own;
  if (state == READ) return QN_OK;
  if (state != NOT_READ || !atomic_compare_exchange_strong(&known[k].state, &state, BEING_READ))
    return read_all(&op->info, own); /* another thread reads it */
  *rules = &known[k].rules;
  const qn_status status = read_all(&op->info, &known[k].rules);
  atomic_store_explicit(&known[k].state, status == QN_OK ? READ : NOT_READ, memory_order_release);
  return status;
}

/* ---- shapes as text ---- */

qn_words qn_shape_text(int ndim, const int64_t *shape)
{
  qn_words words = {"no dimensions"};
  size_t used = 0;
  for (int d = 0; d < ndim && used < 120; d++)
    used += (size_t)snprintf(words.text + used, 120 - used, "%s%lld", d ? "x" : "", (long long)shape[d]);
  return words;
}

qn_words qn_name_of(const qn_call *call, size_t role, size_t k)
{
  qn_words words;
  const qn_op_tensor *tensor = &call->op->info.tensors[role];
  const size_t used = (size_t)snprintf(words.text, 40, "%s", tensor->name);
  if (!tensor->single) snprintf(words.text + used, sizeof words.text - used, "[%zu]", k);
  return words;
}

qn_words qn_shaped_name_of(const qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  qn_words words = qn_name_of(call, role, k);
  const size_t used = strlen(words.text);
  snprintf(words.text + used, sizeof words.text - used, " (%.120s)", qn_shape_text(t->ndim, t->shape).text);
  return words;
}

/* ---- a shape that follows ---- */

/* What a role's shape follows from. */
typedef struct source {
  const qn_op *op;
  const qn_call *call; /* NULL: none */
  size_t n, k;
  int ndim;
  const int64_t *shape;
} source;

static const qn_shape_rule *rule_of(const source *s, const qn_role_rule *rule, int d[2])
{
  const int cut = rule->first.cut < 0 && rule->otherwise.follows ? 0 : rule->first.cut;
  if (cut < 0) return &rule->first;
  s->op->engine->dimensions(s->op, s->call, s->k, s->ndim, s->shape, d);
  return d[cut] >= 0 || !rule->otherwise.follows ? &rule->first : &rule->otherwise;
}

/* Its dimensions, of which at most QN_MAX_NDIM are written; any number of ones is none. */
static int make(const source *s, const qn_role_rule *rule, int64_t out[QN_MAX_NDIM])
{
  int d[2] = {-1, -1}, n = 0;
  const qn_shape_rule *of = rule_of(s, rule, d);
  for (unsigned p = 0; p < of->n; p++) {
    const qn_role_part *part = &of->part[p];
    const int cut = part->cut < 0 ? -1 : d[(int)part->cut];
    if (part->kind == QN_PART_NUMBER || part->kind == QN_PART_NAME) {
      if (n < QN_MAX_NDIM) out[n] = part->kind == QN_PART_NUMBER ? part->number : (int64_t)s->n;
      n++;
    }
    for (int k = 0; part->kind == QN_PART_LIKE && k < s->ndim; k++) {
      if (k == cut) continue;
      if (n < QN_MAX_NDIM) out[n] = s->shape[k];
      n++;
    }
  }
  return n;
}

static int most_dimensions(const qn_role_rule *rule)
{
  const qn_role_part *part = &rule->first.part[0];
  const bool bounded = rule->first.n && part->kind == QN_PART_ANY && part->number >= 0;
  return bounded ? (int)part->number + (int)rule->first.n - 1 : QN_MAX_NDIM;
}

qn_status qn_role_shape_of(const qn_call *call, size_t role, int ndim, const int64_t *shape, int *role_ndim,
                           int64_t *role_shape)
{
  const qn_op_info *op = &call->op->info;
  qn_op_rules own;
  const qn_op_rules *rules;
  qn_require(role < op->n_tensors, "%s: role %zu, there are %zu", op->name, role, op->n_tensors);
  qn_try(qn_op_rules_of(call->op, &own, &rules));
  const qn_role_rule *rule = &rules->role[role];
  qn_require(rule->first.follows || !role, "%s: the shape of %s, %s, follows from no other's", op->name,
             op->tensors[role].name, op->tensors[role].shape);
  qn_require(ndim >= 0 && ndim <= most_dimensions(&rules->role[0]),
             "%s: a %s of %d dimensions, from 0 to %d are possible", op->name, op->tensors[0].name, ndim,
             most_dimensions(&rules->role[0]));
  qn_require(role_ndim && role_shape && (shape || !ndim), "%s: the shape, or a place for one, is NULL", op->name);
  for (int d = 0; d < ndim; d++)
    qn_require(shape[d] >= 0, "%s: extent %d of the shape is %lld", op->name, d, (long long)shape[d]);
  const source s = {call->op, call->params ? call : NULL, call->n, 0, ndim, shape};
  *role_ndim = make(&s, role ? rule : &(const qn_role_rule){.first = like_first}, role_shape);
  qn_require(*role_ndim <= QN_MAX_NDIM, "%s: %s would have %d dimensions", op->name, op->tensors[role].name,
             *role_ndim);
  return QN_OK;
}

qn_status qn_op_role_shape(const qn_op_info *op, size_t role, size_t n, int ndim, const int64_t *shape, int *role_ndim,
                           int64_t *role_shape)
{
  qn_require(op, "op is NULL");
  return qn_role_shape_of(&(qn_call){.op = qn_op_of(op), .n = n}, role, ndim, shape, role_ndim, role_shape);
}

/* ---- a tensor against its rule ---- */

static qn_status check_extents(const qn_call *call, size_t role, size_t k, const qn_tensor *t, int most_ndim)
{
  const qn_op_info *info = &call->op->info;
  const int bits = call->rules->alike ? 60 : 40; /* of the number of elements */
  uint64_t n = 1;
  qn_require(t->ndim >= 0 && t->ndim <= most_ndim, "%s: %s has %d dimensions, from 0 to %d are possible", info->name,
             qn_name_of(call, role, k).text, t->ndim, most_ndim);
  qn_require(t->shape || !t->ndim, "%s: %s has %d dimensions and no shape", info->name, qn_name_of(call, role, k).text,
             t->ndim);
  for (int d = 0; d < t->ndim; d++) {
    qn_require(t->shape[d] >= 0, "%s: extent %d of %s is %lld", info->name, d, qn_name_of(call, role, k).text,
               (long long)t->shape[d]);
    const uint64_t factor = t->shape[d] ? (uint64_t)t->shape[d] : 1;
    qn_require(!__builtin_mul_overflow(n, factor, &n) && n <= UINT64_C(1) << bits, "%s: %s has more than 2^%d elements",
               info->name, qn_name_of(call, role, k).text, bits);
  }
  return QN_OK;
}

static qn_status fail_following(const qn_call *call, size_t role, size_t k, const qn_tensor *t, const qn_tensor *first,
                                int ndim, const int64_t *want)
{
  const qn_op_info *info = &call->op->info;
  const char *op = info->name;
  const qn_words is = qn_shape_text(t->ndim, t->shape), of = qn_shape_text(first->ndim, first->shape),
                 must = qn_shape_text(ndim < QN_MAX_NDIM ? ndim : QN_MAX_NDIM, want);
  if (info->tensors[role].single)
    return qn_fail(QN_BAD_ARGUMENT, "%s: %s has the shape %s, for %zu tensors it must be %s", op,
                   qn_name_of(call, role, k).text, is.text, call->n, must.text);
  if (call->rules->alike)
    return qn_fail(QN_BAD_ARGUMENT, "%s: %s has the shape %s and %s has %s", op, qn_name_of(call, role, k).text,
                   is.text, qn_name_of(call, 0, k).text, of.text);
  return qn_fail(QN_BAD_ARGUMENT, "%s: %s has the shape %s, for a %s of %s it must be %s", op,
                 qn_name_of(call, role, k).text, is.text, info->tensors[0].name, of.text, must.text);
}

static bool is_shape(const qn_tensor *t, int ndim, const int64_t *shape)
{
  return t->ndim == ndim && ndim <= QN_MAX_NDIM &&
         (!ndim || (t->shape && !memcmp(t->shape, shape, (size_t)ndim * sizeof *shape)));
}

/* One that is as it must be is not looked at any further: the first role's is good. */
static qn_status check_following(const qn_call *call, size_t role, size_t k, const qn_tensor *t,
                                 const qn_role_rule *rule)
{
  static const qn_tensor none;
  const qn_tensor *first = call->op->info.tensors[role].single ? &none : &call->tensors[0][k];
  if (rule->first.alike && !rule->otherwise.n && is_shape(t, first->ndim, first->shape)) return QN_OK;
  const source s = {call->op, call, call->n, k, first->ndim, first->shape};
  int64_t want[QN_MAX_NDIM];
  const int ndim = make(&s, rule, want);
  if (is_shape(t, ndim, want)) return QN_OK;
  qn_try(check_extents(call, role, k, t, QN_MAX_NDIM));
  return fail_following(call, role, k, t, first, ndim, want);
}

/* The number of an extent by its rule. Letters get theirs, `is`, if they have none. */
static qn_status number_of(qn_call *call, const qn_role_part *part, int64_t is, int64_t *number)
{
  qn_name names[26];
  char letters[26][2], text[QN_EXTENT_BYTES] = "";
  size_t n = 0;
  *number = part->kind == QN_PART_NUMBER ? part->number : (int64_t)call->n;
  if (part->kind == QN_PART_NAME && part->letter) {
    int64_t *extent = &call->extent[part->letter - 'a'];
    const uint32_t bit = UINT32_C(1) << (part->letter - 'a');
    if (!(call->known & bit)) *extent = is;
    call->known |= bit;
    *number = *extent;
  }
  if (part->kind != QN_PART_EXPRESSION) return QN_OK;
  memcpy(text, part->text.at, part->text.length);
  for (int k = 0; k < 26; k++) {
    if (!(call->known >> k & 1)) continue;
    letters[n][0] = (char)('a' + k), letters[n][1] = 0;
    names[n] = (qn_name){letters[n], call->extent[k]};
    n++;
  }
  return qn_expression(text, names, n, number);
}

/* The dimension behind those that "..." or "1..." stands for; -1: there are others than these. */
static int first_behind(const qn_shape_rule *rule, const qn_tensor *t)
{
  const int d = t->ndim - (int)rule->n + 1;
  for (int k = 0; k < d && rule->part[0].kind == QN_PART_ONES; k++)
    if (t->shape[k] != 1) return -1;
  return d;
}

/* The shape in the place of all, of a role that is only read. */
static bool is_otherwise(const qn_call *call, size_t role, const qn_tensor *t, const qn_shape_rule *rule)
{
  if (!rule->n || (int)rule->n != t->ndim || qn_call_access(call, role) & QN_WRITE) return false;
  for (unsigned p = 0; p < rule->n; p++)
    if (rule->part[p].kind != QN_PART_NUMBER || rule->part[p].number != t->shape[p]) return false;
  return true;
}

/* The part is the one that does not fit, which must be that number; NULL: there are too few or too many extents. */
static qn_status fail_bound(const qn_call *call, size_t role, size_t k, const qn_tensor *t, const qn_role_part *part,
                            int64_t number)
{
  const qn_shape_rule *rule = &call->rules->role[role].first;
  const char *must = call->op->info.tensors[role].shape;
  const bool written = qn_call_access(call, role) & QN_WRITE; /* then nothing stands in the place of all */
  int length = (int)(written ? strcspn(must, "]") + 1 : strlen(must));
  char because[80] = "";
  if (!part && rule->n == 1 && rule->part[0].kind == QN_PART_ONES) must = "one number", length = 10;
  if (part && part->kind != QN_PART_NUMBER)
    snprintf(because, sizeof because, ", and %.*s is %lld", (int)part->text.length, part->text.at, (long long)number);
  return qn_fail(QN_BAD_ARGUMENT, "%s: %s has the shape %s, it must be %.*s%s", call->op->info.name,
                 qn_name_of(call, role, k).text, qn_shape_text(t->ndim, t->shape).text, length, must, because);
}

static qn_status check_bound(qn_call *call, size_t role, size_t k, const qn_tensor *t, const qn_shape_rule *rule)
{
  const unsigned many = rule->n && (rule->part[0].kind == QN_PART_ANY || rule->part[0].kind == QN_PART_ONES);
  int d = many ? first_behind(rule, t) : 0;
  if (d < 0 || t->ndim - d != (int)(rule->n - many)) return fail_bound(call, role, k, t, NULL, 0);
  for (unsigned p = many; p < rule->n; p++, d++) {
    int64_t number;
    qn_try(number_of(call, &rule->part[p], t->shape[d], &number));
    if (number != t->shape[d]) return fail_bound(call, role, k, t, &rule->part[p], number);
  }
  return QN_OK;
}

qn_status qn_role_shape_check(qn_call *call, size_t role, size_t k, const qn_tensor *t)
{
  const qn_role_rule *rule = &call->rules->role[role];
  const qn_part_kind kind = rule->first.part[0].kind;
  if (rule->first.follows && kind != QN_PART_ONES) return check_following(call, role, k, t, rule);
  qn_try(check_extents(call, role, k, t, most_dimensions(rule)));
  if ((rule->first.n == 1 && kind == QN_PART_ANY) || is_otherwise(call, role, t, &rule->otherwise)) return QN_OK;
  return check_bound(call, role, k, t, &rule->first);
}
