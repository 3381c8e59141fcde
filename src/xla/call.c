/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - reads a frame of XLA's into a call of an op: attributes by name, operands and results by place. It refuses
 * what the convention of quern/xla.h does not know; what the op itself refuses is left to the op. */
#include "xla/call.h"
#include "op/op.h"
#include "core/core.h"
#include <string.h>

/* ---- element types ---- */
static const struct {
  xla_type type;
  const char *name;
  size_t bytes;
  qn_dtype dtype;
} element_types[] = {
    {XLA_PRED, "pred", 1, QN_NONE}, {XLA_S8, "s8", 1, QN_NONE},   {XLA_S16, "s16", 2, QN_NONE},
    {XLA_S32, "s32", 4, QN_NONE},   {XLA_S64, "s64", 8, QN_NONE}, {XLA_U8, "u8", 1, QN_NONE},
    {XLA_U16, "u16", 2, QN_NONE},   {XLA_U32, "u32", 4, QN_NONE}, {XLA_U64, "u64", 8, QN_NONE},
    {XLA_F16, "f16", 2, QN_F16},    {XLA_F32, "f32", 4, QN_F32},  {XLA_F64, "f64", 8, QN_F64},
    {XLA_BF16, "bf16", 2, QN_BF16},
};
enum { N_TYPES = sizeof element_types / sizeof element_types[0] };

static size_t type_index(xla_type type) /* N_TYPES: one that is not among them */
{
  size_t k = 0;
  while (k < N_TYPES && element_types[k].type != type) k++;
  return k;
}
static const char *type_name(xla_type type)
{
  const size_t k = type_index(type);
  return k < N_TYPES ? element_types[k].name : "of another type";
}

/* ---- attributes ---- */
typedef struct attribute {
  const xla_span *name;
  xla_attribute_kind kind;
  const void *value;
} attribute;

static attribute attribute_at(const xla_frame *frame, int64_t k)
{
  const xla_attributes *all = &frame->attributes;
  return (attribute){all->names[k], all->kinds[k], all->values[k]};
}

static bool is(const xla_span *span, const char *word)
{
  return span->length == strlen(word) && !memcmp(span->at, word, span->length);
}

/* Text of XLA's as text of ours, cut to fit. */
static const char *terminated(const xla_span *span, char *text, size_t bytes)
{
  const size_t length = span->length < bytes ? span->length : bytes - 1;
  memcpy(text, span->at, length);
  text[length] = 0;
  return text;
}

static qn_status find_op(const xla_frame *frame, const qn_op_info **op)
{
  char name[64];
  for (int64_t k = 0; k < frame->attributes.n; k++) {
    const attribute a = attribute_at(frame, k);
    if (!is(a.name, "op")) continue;
    qn_require(a.kind == XLA_STRING, "xla: the attribute op is no text; it must be an op's name");
    qn_try(qn_op_find(terminated(a.value, name, sizeof name), op));
    qn_require(qn_op_is_alike(*op), "xla: the convention has no place for %s, whose tensors have shapes of their own",
               name);
    return QN_OK;
  }
  return qn_fail(QN_BAD_ARGUMENT, "xla: the attribute op is missing; it must be an op's name");
}

/* A scalar as a double and, where it is a whole number, as the 64 bits of an integer. */
typedef struct number {
  double real;
  uint64_t bits;
  bool whole;
} number;

static bool read_number(const attribute *a, number *n)
{
  const xla_scalar *s = a->value;
  float single;
  int32_t word;
  int64_t whole = 0;
  uint32_t unsigned_word;
  if (a->kind != XLA_SCALAR) return false;
  *n = (number){.whole = true};
  switch (s->type) {
  case XLA_PRED: whole = *(const unsigned char *)s->value != 0; break;
  case XLA_S32: memcpy(&word, s->value, sizeof word), whole = word; break;
  case XLA_S64: memcpy(&whole, s->value, sizeof whole); break;
  case XLA_U32: memcpy(&unsigned_word, s->value, sizeof unsigned_word), whole = unsigned_word; break;
  case XLA_U64:
    memcpy(&n->bits, s->value, sizeof n->bits);
    n->real = (double)n->bits;
    return true;
  case XLA_F32: memcpy(&single, s->value, sizeof single), n->real = single, n->whole = false; return true;
  case XLA_F64: memcpy(&n->real, s->value, sizeof n->real), n->whole = false; return true;
  default: return false;
  }
  n->real = (double)whole;
  n->bits = (uint64_t)whole;
  return true;
}

/* The number of a name among "lr|relative|squared"; -1: it is none of them. */
static int32_t place_in(const char *values, const xla_span *word)
{
  for (int32_t k = 0;; k++) {
    const size_t length = strcspn(values, "|");
    if (length == word->length && !memcmp(values, word->at, length)) return k;
    if (!values[length]) return -1;
    values += length + 1;
  }
}

static qn_status put_host_array(qn_xla_call *call, const qn_op_param *param, const attribute *a)
{
  const xla_array *array = a->value;
  qn_require(a->kind == XLA_ARRAY && (array->type == XLA_S64 || array->type == XLA_U64) && array->n == call->n,
             "%s: the attribute %s must be an array of %zu integers of 64 bits, one a tensor", call->op->name,
             param->name, call->n);
  memcpy((char *)call->params + param->offset, &array->data, sizeof array->data);
  return QN_OK;
}

static qn_status put_enum(qn_xla_call *call, const qn_op_param *param, const attribute *a)
{
  char text[64];
  qn_require(a->kind == XLA_STRING, "%s: the attribute %s must be one of %s, by name", call->op->name, param->name,
             param->values);
  const int32_t place = place_in(param->values, a->value);
  qn_require(place >= 0, "%s: %s is \"%s\", it must be one of %s", call->op->name, param->name,
             terminated(a->value, text, sizeof text), param->values);
  memcpy((char *)call->params + param->offset, &place, sizeof place);
  return QN_OK;
}

/* An attribute into the member of the params that it names; where an operand will hold it, the member is marked. */
static qn_status put_param(qn_xla_call *call, const qn_op_param *param, const attribute *a, bool *by_operand)
{
  char *at = (char *)call->params + param->offset;
  number x;
  if (param->type == QN_PARAM_HOST_U64) return put_host_array(call, param, a);
  if (param->type == QN_PARAM_ENUM) return put_enum(call, param, a);
  qn_require(read_number(a, &x), "%s: the attribute %s must be a number", call->op->name, param->name);
  if (param->type == QN_PARAM_DOUBLE) {
    memcpy(at, &x.real, sizeof x.real);
    return QN_OK;
  }
  if (param->type == QN_PARAM_U64) {
    qn_require(x.whole, "%s: the attribute %s is %g, it must be an integer", call->op->name, param->name, x.real);
    memcpy(at, &x.bits, sizeof x.bits);
    return QN_OK;
  }
  qn_require(x.whole && x.bits <= 1, "%s: the attribute %s is %g, it must be false or true", call->op->name,
             param->name, x.real);
  *by_operand = param->type != QN_PARAM_BOOL && x.bits;
  const int32_t word = (int32_t)x.bits;
  if (param->type == QN_PARAM_BOOL) memcpy(at, &word, sizeof word);
  return QN_OK;
}

/* How many tensors each role has: 0 where none is given. The roles that are given agree. */
static qn_status read_counts(const xla_frame *frame, const qn_op_info *op, size_t count[QN_MAX_TENSORS])
{
  memset(count, 0, QN_MAX_TENSORS * sizeof *count);
  for (int64_t k = 0; k < frame->attributes.n; k++) {
    const attribute a = attribute_at(frame, k);
    number x;
    for (size_t role = 0; role < op->n_tensors; role++) {
      const char *name = op->tensors[role].name;
      if (!is(a.name, name)) continue;
      qn_require(read_number(&a, &x) && x.whole && x.real >= 0 && x.real <= (double)frame->operands.n,
                 "%s: the attribute %s must say how many tensors of it there are, from 0 to the %lld operands",
                 op->name, name, (long long)frame->operands.n);
      count[role] = (size_t)x.bits;
    }
  }
  for (size_t role = 1; role < op->n_tensors; role++)
    qn_require(!count[role] || count[role] == count[0], "%s: there are %zu tensors of %s and %zu of %s", op->name,
               count[role], op->tensors[role].name, count[0], op->tensors[0].name);
  return QN_OK;
}

static qn_status read_params(qn_xla_call *call, const xla_frame *frame, bool *by_operand)
{
  const qn_op_info *op = call->op;
  qn_try(qn_op_defaults(op, call->params, op->params_bytes));
  for (int64_t k = 0; k < frame->attributes.n; k++) {
    const attribute a = attribute_at(frame, k);
    bool known = is(a.name, "op");
    char name[64];
    for (size_t role = 0; role < op->n_tensors; role++) known |= is(a.name, op->tensors[role].name);
    for (size_t p = 0; p < op->n_params && !known; p++) {
      if (!is(a.name, op->params[p].name)) continue;
      known = true;
      qn_try(put_param(call, &op->params[p], &a, &by_operand[p]));
    }
    qn_require(known, "%s: the attribute \"%s\" is none of its params", op->name,
               terminated(a.name, name, sizeof name));
  }
  return QN_OK;
}

/* ---- operands and results ---- */
static bool is_optional(const qn_op_info *op, size_t role)
{
  size_t row = 0;
  while (row < op->n_types && op->types[row].tensor[role].access != QN_ABSENT) row++;
  return row < op->n_types;
}

/* By the rows in which the optional roles given are those of this call. */
static bool is_written(const qn_op_info *op, const size_t count[QN_MAX_TENSORS], size_t role)
{
  unsigned access = 0;
  for (size_t row = 0; row < op->n_types; row++) {
    size_t r = 0;
    while (r < op->n_tensors && (!is_optional(op, r) || (op->types[row].tensor[r].access != QN_ABSENT) == !!count[r]))
      r++;
    if (r == op->n_tensors) access |= (unsigned)op->types[row].tensor[role].access;
  }
  return access & QN_WRITE;
}

static qn_status buffer_at(const xla_values *values, const char *what, int64_t k, const xla_buffer **buffer)
{
  *buffer = values->values[k];
  qn_require(values->kinds[k] == XLA_BUFFER, "xla: %s %lld is of kind %d and no buffer", what, (long long)k,
             (int)values->kinds[k]);
  qn_require(xla_reaches((*buffer)->head.size, xla_buffer, extents),
             "xla: %s %lld is described in %zu bytes, %zu are known", what, (long long)k, (*buffer)->head.size,
             sizeof(xla_buffer));
  return QN_OK;
}

/* The bytes of a dense array, and how many elements they are. */
static qn_status extent_of(const xla_buffer *b, const char *op, const char *what, size_t *elements, size_t *bytes)
{
  const size_t type = type_index(b->type);
  *elements = 1;
  for (int64_t d = 0; d < b->rank; d++) {
    qn_require(b->extents[d] >= 0 && !__builtin_mul_overflow(*elements, (size_t)b->extents[d], elements),
               "%s: extent %lld of %s is %lld", op, (long long)d, what, (long long)b->extents[d]);
  }
  qn_require(!__builtin_mul_overflow(*elements, type < N_TYPES ? element_types[type].bytes : 0, bytes),
             "%s: %s has %zu elements", op, what, *elements);
  return QN_OK;
}

static qn_status tensor_of(const qn_xla_call *call, size_t role, size_t k, const xla_buffer *b, qn_tensor *t)
{
  const char *op = call->op->name, *name = call->op->tensors[role].name;
  const size_t type = type_index(b->type);
  qn_require(type < N_TYPES && element_types[type].dtype != QN_NONE,
             "%s: %s[%zu] is %s (number %d), it must be a float", op, name, k, type_name(b->type), (int)b->type);
  qn_require(b->rank >= 0 && b->rank <= QN_MAX_NDIM, "%s: %s[%zu] has %lld dimensions, from 0 to %d are possible", op,
             name, k, (long long)b->rank, QN_MAX_NDIM);
  *t = (qn_tensor){.data = b->data,
                   .dtype = element_types[type].dtype,
                   .ndim = (int)b->rank,
                   .shape = b->extents,
                   .device = call->device};
  return QN_OK;
}

/* Operand `operand` and, if it is written, result `result` are tensor k of the role. */
static qn_status read_tensor(qn_xla_call *call, const xla_frame *frame, size_t role, size_t k, int64_t operand,
                             int64_t result)
{
  const xla_buffer *in, *out;
  qn_tensor *t = &call->tensors[role][k];
  qn_try(buffer_at(&frame->operands, "operand", operand, &in));
  qn_try(tensor_of(call, role, k, in, t));
  if (!call->operands[role]) return QN_OK;
  qn_try(buffer_at(&frame->results, "result", result, &out));
  qn_require(out->type == in->type && out->rank == in->rank &&
                 (!in->rank || !memcmp(out->extents, in->extents, (size_t)in->rank * sizeof *in->extents)),
             "%s: result %lld is not of the type and shape of %s[%zu], whose new value it is", call->op->name,
             (long long)result, call->op->tensors[role].name, k);
  call->operands[role][k] = in->data;
  t->data = out->data;
  return QN_OK;
}

/* The hyper struct on the processor: its members take the places of the params', and are checked as those are. */
static void take_hyper(qn_xla_call *call, const void *hyper)
{
  for (size_t k = 0; k < call->op->n_params; k++) {
    const qn_op_param *param = &call->op->params[k];
    if (!param->hyper_offset) continue;
    memcpy((char *)call->params + param->offset, (const char *)hyper + param->hyper_offset - 1, sizeof(uint64_t));
  }
}

/* An operand that holds a param. */
static qn_status take_param(qn_xla_call *call, const xla_frame *frame, const qn_op_param *param, int64_t operand)
{
  const xla_buffer *b;
  size_t elements, bytes;
  const char *op = call->op->name;
  qn_try(buffer_at(&frame->operands, "operand", operand, &b));
  qn_try(extent_of(b, op, param->name, &elements, &bytes));
  if (param->type == QN_PARAM_DEVICE_F32)
    qn_require(b->type == XLA_F32 && elements == 1, "%s: %s must be one f32, and is %zu of %s", op, param->name,
               elements, type_name(b->type));
  else if (param->type == QN_PARAM_DEVICE_I64)
    qn_require(bytes == 16 * call->n, "%s: %s has %zu bytes, it must have 16 a tensor, which are %zu", op, param->name,
               bytes, 16 * call->n);
  else
    qn_require(bytes == call->op->hyper_bytes, "%s: %s has %zu bytes, and the struct %zu", op, param->name, bytes,
               call->op->hyper_bytes);
  if (param->type == QN_PARAM_DEVICE_HYPER && call->device.kind == QN_CPU)
    take_hyper(call, b->data);
  else
    memcpy((char *)call->params + param->offset, &b->data, sizeof b->data);
  return QN_OK;
}

static qn_status take_workspace(qn_xla_call *call, const xla_frame *frame, int64_t result)
{
  const xla_buffer *b;
  size_t elements;
  qn_try(buffer_at(&frame->results, "result", result, &b));
  qn_try(extent_of(b, call->op->name, "the workspace", &elements, &call->workspace_bytes));
  call->workspace = b->data;
  return QN_OK;
}

static qn_status read_arrays(qn_xla_call *call, const xla_frame *frame, const bool *by_operand)
{
  const qn_op_info *op = call->op;
  int64_t operand = 0, result = 0;
  int64_t wanted = 0, made = 0;
  for (size_t role = 0; role < op->n_tensors; role++) {
    wanted += call->tensors[role] ? (int64_t)call->n : 0;
    made += call->operands[role] ? (int64_t)call->n : 0;
  }
  for (size_t p = 0; p < op->n_params; p++) wanted += by_operand[p];
  qn_require(frame->operands.n == wanted, "%s: there are %lld operands, and the attributes say %lld", op->name,
             (long long)frame->operands.n, (long long)wanted);
  qn_require(frame->results.n == made || frame->results.n == made + 1,
             "%s: there are %lld results, it writes %lld tensors and may have a workspace", op->name,
             (long long)frame->results.n, (long long)made);
  for (size_t role = 0; role < op->n_tensors; role++)
    for (size_t k = 0; call->tensors[role] && k < call->n; k++) {
      qn_try(read_tensor(call, frame, role, k, operand++, result));
      result += call->operands[role] != NULL;
    }
  for (size_t p = 0; p < op->n_params; p++)
    if (by_operand[p]) qn_try(take_param(call, frame, &op->params[p], operand++));
  return frame->results.n > made ? take_workspace(call, frame, result) : QN_OK;
}

/* ---- the call ---- */

/* One block: the params, which hold 8-byte members, and for every role its tensors and where its operands are. */
static qn_status allocate(qn_xla_call *call, const size_t count[QN_MAX_TENSORS], bool **by_operand)
{
  const qn_op_info *op = call->op;
  const size_t params = (op->params_bytes + 15) & ~(size_t)15;
  const size_t each = call->n * (sizeof(qn_tensor) + sizeof(void *));
  const size_t bytes = params + op->n_tensors * each + op->n_params * sizeof **by_operand;
  qn_try(qn_try_allocate(&call->block, bytes, "the list of an XLA call"));
  memset(call->block, 0, bytes);
  char *at = call->block;
  call->params = at;
  at += params;
  for (size_t role = 0; role < op->n_tensors; role++, at += each) {
    if (!count[role]) continue;
    call->tensors[role] = (qn_tensor *)at;
    if (is_written(op, count, role)) call->operands[role] = (const void **)(at + call->n * sizeof(qn_tensor));
  }
  *by_operand = (bool *)at;
  return QN_OK;
}

qn_status qn_xla_call_read(qn_xla_call *call, const xla_frame *frame, qn_device device)
{
  size_t count[QN_MAX_TENSORS];
  bool *by_operand;
  *call = (qn_xla_call){.device = device};
  qn_try(find_op(frame, &call->op));
  qn_try(read_counts(frame, call->op, count));
  call->n = count[0];
  qn_try(allocate(call, count, &by_operand));
  qn_try(read_params(call, frame, by_operand));
  return read_arrays(call, frame, by_operand);
}

void qn_xla_call_free(qn_xla_call *call)
{
  qn_release(call->block);
  call->block = NULL;
}
