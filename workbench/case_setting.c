/* SPDX-License-Identifier: Apache-2.0 */
/* case_setting.c - values for an op's params, made from the table of params (case.h). Pointer params are only marked as
 * given here; subject_params.c puts what they point to into the tensors' memory. */
#include "workbench/case.h"
#include "core/core.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_pointer(qn_param_type type) { return type >= QN_PARAM_DEVICE_F32; }

void qn_param_set_u64(const qn_op_param *param, void *params, uint64_t value)
{
  memcpy((char *)params + param->offset, &value, sizeof value);
}

void qn_param_set(const qn_op_param *param, void *params, double value)
{
  char *at = (char *)params + param->offset;
  int32_t word = (int32_t)value;
  switch (param->type) {
  case QN_PARAM_DOUBLE: memcpy(at, &value, sizeof value); break;
  case QN_PARAM_U64: qn_param_set_u64(param, params, (uint64_t)value); break;
  case QN_PARAM_BOOL:
  case QN_PARAM_ENUM: memcpy(at, &word, sizeof word); break;
  default: break;
  }
}

/* ---- the values a param is tried with ---- */
typedef struct values {
  size_t n;
  double at[16];
} values;

static void add_value(values *v, double x)
{
  for (size_t k = 0; k < v->n; k++)
    if (v->at[k] == x || (isnan(v->at[k]) && isnan(x))) return;
  if (v->n < sizeof v->at / sizeof *v->at) v->at[v->n++] = x;
}

static size_t enum_count(const qn_op_param *param)
{
  size_t n = 1;
  for (const char *c = param->values; c && *c; c++) n += *c == '|';
  return n;
}

double qn_param_most(const qn_op_param *param) { return (double)(enum_count(param) - 1); }

static void double_values(const qn_op_param *param, values *v)
{
  static const double usual[] = {0.003, 0.1, 0.95, 1e-4};
  for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
    if (usual[k] >= param->least && usual[k] < param->most) add_value(v, usual[k]);
  if (isfinite(param->least)) add_value(v, param->least);
  if (isfinite(param->most)) add_value(v, param->below_most ? nextafter(param->most, param->least) : param->most);
}

static values values_of(const qn_op_info *op, const qn_op_param *param)
{
  values v = {0, {0}};
  if (!is_pointer(param->type)) add_value(&v, qn_op_param_default(op, param));
  switch (param->type) {
  case QN_PARAM_DOUBLE: double_values(param, &v); break;
  case QN_PARAM_U64:
    add_value(&v, 1);
    add_value(&v, 0xffffffff);
    add_value(&v, 0x123456789abcd);
    break;
  case QN_PARAM_BOOL:
    add_value(&v, 0);
    add_value(&v, 1);
    break;
  case QN_PARAM_ENUM:
    for (size_t k = 0; k < enum_count(param); k++) add_value(&v, (double)k);
    break;
  case QN_PARAM_DEVICE_F32:
    add_value(&v, 0);
    add_value(&v, 1);
    add_value(&v, 3);
    add_value(&v, 65536);
    add_value(&v, -1);
    add_value(&v, NAN);
    break;
  default: add_value(&v, 1); break; /* an array or a struct: given, made from the setting's seed */
  }
  return v;
}

static void choose(const qn_op_info *op, qn_setting *s, size_t k, double value)
{
  if (is_pointer(op->params[k].type)) {
    s->given |= 1u << k;
    s->scalar[k] = (float)value;
  } else {
    qn_param_set(&op->params[k], s->params, value);
  }
}

/* Each param takes another value with probability 0.35; a pointer is given with 0.2. */
static void choose_at_random(const qn_op_info *op, qn_setting *s)
{
  for (size_t k = 0; k < op->n_params; k++) {
    values v = values_of(op, &op->params[k]);
    uint64_t draw = qn_seed_mix(s->seed, k);
    if (draw % 100 >= (is_pointer(op->params[k].type) ? 20u : 35u)) continue;
    choose(op, s, k, v.at[(draw >> 32) % v.n]);
  }
}

size_t qn_settings_of(const qn_op_info *op, qn_level level, uint64_t seed, qn_setting *settings, size_t most)
{
  static const size_t random_ones[] = {8, 20, 150};
  qn_setting plain = {.given = 0};
  if (op->params_bytes > QN_PARAMS_BYTES || op->n_params > QN_PARAMS_MOST) {
    qn_fail(QN_UNSUPPORTED, "%s: params of %zu bytes and %zu members; the checker takes %d and %d", op->name,
            op->params_bytes, op->n_params, QN_PARAMS_BYTES, QN_PARAMS_MOST);
    return 0;
  }
  if (qn_op_defaults(op, plain.params, op->params_bytes) != QN_OK) return 0;

  size_t n = 0;
  settings[n++] = plain;
  for (size_t k = 0; k < op->n_params; k++) {
    values v = values_of(op, &op->params[k]);
    for (size_t i = is_pointer(op->params[k].type) ? 0 : 1; i < v.n && n < most; i++) {
      settings[n] = plain;
      settings[n].seed = qn_seed_mix(seed, n);
      choose(op, &settings[n++], k, v.at[i]);
    }
  }
  for (size_t k = 0; k < random_ones[level] && n < most; k++, n++) {
    settings[n] = plain;
    settings[n].seed = qn_seed_mix(seed, n);
    choose_at_random(op, &settings[n]);
  }
  return n;
}

static void add_enum_name(qn_text *text, const qn_op_param *param, size_t value)
{
  const char *name = param->values;
  for (; value && name; value--) {
    name = strchr(name, '|');
    if (name) name++;
  }
  if (name) qn_text_add_bytes(text, name, strcspn(name, "|"));
}

/* The shortest text that is read back as the same number. */
static void add_number(qn_text *t, double value)
{
  char text[40];
  snprintf(text, sizeof text, "%.15g", value);
  if (strtod(text, NULL) != value) snprintf(text, sizeof text, "%.17g", value);
  qn_text_add(t, "%s", text);
}

static void add_if_set(qn_text *t, const qn_op_info *op, const qn_op_param *param, const void *params)
{
  const double value = qn_param_get(param, params);
  if (is_pointer(param->type) || value == qn_op_param_default(op, param)) return;
  qn_text_add(t, " %s=", param->name);
  if (param->type == QN_PARAM_ENUM)
    add_enum_name(t, param, (size_t)value);
  else
    add_number(t, value);
}

void qn_setting_text(const qn_op_info *op, const qn_setting *s, char *text, size_t bytes)
{
  qn_text t = {0};
  for (size_t k = 0; k < op->n_params; k++) {
    const qn_op_param *param = &op->params[k];
    if (s->given >> k & 1) {
      qn_text_add(&t, " %s->", param->name);
      if (param->type == QN_PARAM_DEVICE_F32)
        qn_text_add(&t, "%g", (double)s->scalar[k]);
      else
        qn_text_add(&t, "(values from its seed)");
    }
    add_if_set(&t, op, param, s->params);
  }
  snprintf(text, bytes, "%s", t.at ? t.at + 1 : "defaults");
  qn_text_free(&t);
}

void qn_params_text(const qn_op_info *op, const void *params, char *text, size_t bytes)
{
  qn_text t = {0};
  for (size_t k = 0; k < op->n_params; k++) add_if_set(&t, op, &op->params[k], params);
  snprintf(text, bytes, "%s", t.at ? t.at + 1 : "");
  qn_text_free(&t);
}
