/* SPDX-License-Identifier: Apache-2.0 */
/* description.c - public structs and prototypes are written by hand, descriptions too; here one is held against the
 * other: every member of an op's params is in its table of params with the right offset, type and size, and nothing
 * else is; the size in the defaults, enums, the struct for device memory and the roles of the typed step agree. */
#include "quern/quern.h"
#include "test.h"
#include <ctype.h>
#include <stddef.h>

static const qn_op_info *op;
static size_t members_seen, hyper_seen;

/* The name of a member's type in the table. */
#define TYPE_OF(lvalue)                                                                                                \
  _Generic((lvalue), double: QN_PARAM_DOUBLE, uint64_t: QN_PARAM_U64, int32_t: QN_PARAM_ENUM,                          \
           const uint64_t *: QN_PARAM_HOST_U64, const double *: QN_PARAM_HOST_F64, const float *: QN_PARAM_DEVICE_F32,                                    \
           const int64_t *: QN_PARAM_DEVICE_I64, default: QN_PARAM_DEVICE_HYPER)

static const qn_op_param *find(const char *name)
{
  for (size_t k = 0; k < op->n_params; k++)
    if (!strcmp(op->params[k].name, name)) return &op->params[k];
  return NULL;
}

static void begin(const char *name, size_t params_bytes, size_t hyper_bytes)
{
  members_seen = hyper_seen = 0;
  check(qn_op_find(name, &op) == QN_OK, "%s is an op", name);
  check(op && op->params_bytes == params_bytes, "%s: params are of %zu bytes", name, params_bytes);
  check(op && op->hyper_bytes == hyper_bytes, "%s: the struct in device memory is of %zu bytes", name, hyper_bytes);
}

static void member(const char *name, size_t offset, qn_param_type type)
{
  const qn_op_param *param = find(name);
  members_seen++;
  if (!check(param != NULL, "%s: %s is in the table of params", op->name, name)) return;
  bool same = param->type == type || (type == QN_PARAM_ENUM && param->type == QN_PARAM_BOOL) ||
              (type == QN_PARAM_DEVICE_F32 && param->type == QN_PARAM_DEVICE_F32S) ||
              (type == QN_PARAM_DEVICE_HYPER && param->type == QN_PARAM_HOST_STRUCT);
  check(param->offset == offset, "%s: %s is at byte %zu, the table says %zu", op->name, name, offset, param->offset);
  check(same, "%s: %s is of type %d, the table says %d", op->name, name, (int)type, (int)param->type);
  check((param->type == QN_PARAM_ENUM) == (param->values != NULL), "%s: %s names its values if it is an enum", op->name,
        name);
  check(param->doc && *param->doc, "%s: %s has a line of documentation", op->name, name);
}

static void hyper_member(const char *name, size_t offset, qn_param_type type)
{
  const qn_op_param *param = find(name);
  hyper_seen++;
  check(param && param->hyper_offset == offset + 1 && param->type == type,
        "%s: %s in device memory is at byte %zu and stands for the param of that name", op->name, name, offset);
}

/* QN_LION_DECAY_SQUARED is the last value of "lr|relative|squared". */
static void value(const char *name, const char *constant, int number, int k)
{
  const qn_op_param *param = find(name);
  char lower[128];
  size_t n = 0;
  for (; constant[n] && n + 1 < sizeof lower; n++) lower[n] = (char)tolower((unsigned char)constant[n]);
  lower[n] = 0;
  const char *at = param && param->values ? param->values : "";
  for (int i = 0; i < k && *at; i++) at += strcspn(at, "|") + (at[strcspn(at, "|")] == '|');
  size_t length = strcspn(at, "|");
  bool ends = length && length < n && !strncmp(lower + n - length, at, length) && lower[n - length - 1] == '_';
  check(number == k && ends, "%s: value %d of %s is %s, the table says %.*s", op->name, number, name, constant,
        (int)length, at);
}

static void role(const char *name, size_t k, size_t n)
{
  check(op->n_tensors == n && !strcmp(op->tensors[k].name, name), "%s: role %zu of %zu is %s", op->name, k, n, name);
}

static void end(void)
{
  size_t live = 0;
  for (size_t k = 0; k < op->n_params; k++) live += op->params[k].hyper_offset != 0;
  check(members_seen == op->n_params, "%s: the table has %zu params, the struct %zu", op->name, op->n_params,
        members_seen);
  check(hyper_seen == live, "%s: %zu params may live in device memory, the struct there has %zu", op->name, live,
        hyper_seen);
  check(*(const size_t *)op->defaults == op->params_bytes, "%s: the defaults have the struct's size", op->name);
}

#define STRUCT(name) {#name, sizeof(name)},
#define OP(op_name, hyper_bytes)
#define MEMBER(op_name, name)
#define HYPER_MEMBER(op_name, hyper, name)
#define VALUE(op_name, name, constant, k)
#define ROLE(op_name, name, k, n)
#define END(op_name)
static const struct {
  const char *name;
  size_t bytes;
} structs[] = {
#include "description_headers.h"
};
#undef STRUCT
#undef OP
#undef MEMBER
#undef HYPER_MEMBER
#undef VALUE
#undef ROLE
#undef END

static void test_struct_sizes(void)
{
  for (size_t k = 0; k < sizeof structs / sizeof structs[0]; k++)
    check(qn_struct_bytes(structs[k].name) == structs[k].bytes, "%s is of %zu bytes", structs[k].name,
          structs[k].bytes);
  check(!qn_struct_bytes("qn_nothing") && !qn_struct_bytes(NULL), "a struct that is none has no size");
}

#define STRUCT(name)
#define OP(op_name, hyper_bytes)                                                                                       \
  static void test_##op_name(void)                                                                                     \
  {                                                                                                                    \
    begin(#op_name, sizeof(qn_##op_name##_params), hyper_bytes);
#define MEMBER(op_name, name)                                                                                          \
  member(#name, offsetof(qn_##op_name##_params, name), TYPE_OF(((qn_##op_name##_params *)NULL)->name));
#define HYPER_MEMBER(op_name, hyper, name) hyper_member(#name, offsetof(hyper, name), TYPE_OF(((hyper *)NULL)->name));
#define VALUE(op_name, name, constant, k) value(#name, #constant, constant, k);
#define ROLE(op_name, name, k, n) role(#name, k, n);
#define END(op_name)                                                                                                   \
  end();                                                                                                               \
  }
#include "description_headers.h"

int main(void)
{
  size_t tested = 0;
  test_struct_sizes();
#define QN_OP(name) test_##name(), tested++;
#include "ops.h"
#undef QN_OP
  check(tested == qn_op_count(), "all %zu ops were held against their headers", qn_op_count());
  return test_end();
}
