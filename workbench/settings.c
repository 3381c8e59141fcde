/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c - see settings.h. */
#include "workbench/settings.h"
#include "workbench/op_check.h"
#include "core/core.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMS = 64 };

static qn_status find(const qn_op_info *op, const char *name, size_t length, const qn_op_param **param)
{
  const char *names[MOST_PARAMS + 1] = {NULL};
  char word[64] = "";
  for (size_t k = 0; k < op->n_params; k++) {
    *param = &op->params[k];
    if (strlen((*param)->name) == length && !strncmp((*param)->name, name, length)) return QN_OK;
    if (k < MOST_PARAMS) names[k] = (*param)->name;
  }
  if (length < sizeof word) memcpy(word, name, length);
  return qn_fail(QN_BAD_ARGUMENT, "%s has no parameter %.*s%s", op->name, (int)length, name, qn_suggest(word, names));
}

static qn_status fail_enum(const qn_op_info *op, const qn_op_param *param, const char *value)
{
  enum { MOST_VALUES = 16 };
  char words[256], *rest = NULL;
  const char *names[MOST_VALUES + 1] = {NULL};
  size_t n = 0;
  snprintf(words, sizeof words, "%s", param->values);
  for (char *at = strtok_r(words, "|", &rest); at && n < MOST_VALUES; at = strtok_r(NULL, "|", &rest)) names[n++] = at;
  const char *near = qn_nearest(value, names);
  return qn_fail(QN_BAD_ARGUMENT, "%s: %s is \"%s\"; it can be %s%s%s%s", op->name, param->name, value, param->values,
                 near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static qn_status set_enum(const qn_op_info *op, const qn_op_param *param, const char *value, int32_t *to)
{
  int32_t k = 0;
  for (const char *at = param->values; at; k++) {
    size_t length = strcspn(at, "|");
    if (strlen(value) == length && !strncmp(at, value, length)) {
      *to = k;
      return QN_OK;
    }
    at = at[length] ? at + length + 1 : NULL;
  }
  return fail_enum(op, param, value);
}

qn_status qn_settings_read(const qn_op_info *op, void *params, const char *text)
{
  const char *equals = strchr(text, '=');
  const qn_op_param *param;
  qn_require(equals, "\"%s\" sets nothing: NAME=VALUE is wanted", text);
  qn_try(find(op, text, (size_t)(equals - text), &param));
  const char *value = equals + 1;
  char *end = NULL, *at = (char *)params + param->offset;
  errno = 0;
  switch (param->type) {
  case QN_PARAM_DOUBLE: *(double *)(void *)at = strtod(value, &end); break;
  case QN_PARAM_U64:
    qn_require(*value != '-', "%s: %s is %s, it must not be negative", op->name, param->name, value);
    *(uint64_t *)(void *)at = strtoull(value, &end, 10);
    break;
  case QN_PARAM_BOOL:
    qn_require(!strcmp(value, "0") || !strcmp(value, "1"), "%s: %s is \"%s\"; it can be 0 or 1", op->name, param->name,
               value);
    *(int32_t *)(void *)at = *value == '1';
    return QN_OK;
  case QN_PARAM_ENUM: return set_enum(op, param, value, (int32_t *)(void *)at);
  default: return qn_fail(QN_BAD_ARGUMENT, "%s: %s is a pointer and cannot be set from text", op->name, param->name);
  }
  qn_require(!errno && end != value && !*end, "%s: %s is \"%s\", which is no number", op->name, param->name, value);
  return QN_OK;
}

qn_status qn_settings_begin(const qn_op *op, void *params)
{
  const char *given = qn_op_check_of(op)->required_params;
  char word[96];
  qn_try(qn_op_defaults(&op->info, params, op->info.params_bytes));
  for (int used; given && sscanf(given, "%95s%n", word, &used) == 1; given += used)
    qn_try(qn_settings_read(&op->info, params, word));
  return QN_OK;
}
