/* SPDX-License-Identifier: Apache-2.0 */
/* leg_contract.c - leg 4: step, prepare and plan refuse alike what must be refused, with a sentence that names it, and
 * change no byte of any tensor; they accept the rest; random params and shapes give a status, never a crash. The limits
 * come from the table of params and, so that a wrong table is seen, from the golden file's `refuse` lines. */
#include "workbench/contract.h"
#include "core/core.h"
#include "workbench/golden.h"
#include "workbench/settings.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- params: each limit of the table ---- */

static const qn_op_info *info_of(const qn_contract *c) { return &c->d.op->info; }

static void refuse_value(qn_contract *c, const qn_op_param *param, double value)
{
  char what[96], text[32];
  snprintf(text, sizeof text, param->type == QN_PARAM_DOUBLE ? "%g" : "%.0f", value);
  snprintf(what, sizeof what, "%s = %s", param->name, text);
  qn_param_set(param, c->params, value);
  qn_contract_refuses(c, what, QN_WORDS(param->name, text));
}

static void refuse_double(qn_contract *c, const qn_op_param *param)
{
  if (isfinite(param->least)) refuse_value(c, param, nextafter(param->least, -HUGE_VAL));
  if (isfinite(param->most)) refuse_value(c, param, param->below_most ? param->most : nextafter(param->most, HUGE_VAL));
  refuse_value(c, param, NAN);
  refuse_value(c, param, HUGE_VAL);
  refuse_value(c, param, -HUGE_VAL);
}

static void refuse_pointer(qn_contract *c, const qn_op_param *param, const void *to, const char *how)
{
  char what[96];
  snprintf(what, sizeof what, "%s %s", param->name, how);
  memcpy(c->params + param->offset, &to, sizeof to);
  qn_contract_refuses(c, what, QN_WORDS(param->name));
}

static void refuse_pointers(qn_contract *c, const qn_op_param *param)
{
  enum { MOST = 64 }; /* tensors of the call */
  static const double nan[MOST] = {1, NAN}, less[MOST] = {1, -0.5}, much[MOST] = {HUGE_VAL};
  const bool is_device = param->type == QN_PARAM_DEVICE_F32S || param->type == QN_PARAM_DEVICE_F32;
  refuse_pointer(c, param, (const char *)c->d.role[0].tensor[0].data + 1, "at an odd address");
  refuse_pointer(c, param, (const char *)c->d.role[0].tensor[0].data + 2, "at a multiple of 2");
  if (param->type == QN_PARAM_DEVICE_F32S) refuse_pointer(c, param, NULL, "that is NULL");
  for (size_t r = 0; r < info_of(c)->n_tensors && is_device; r++)
    if (c->d.role[r].access & QN_WRITE)
      refuse_pointer(c, param, (const void *)(((uintptr_t)c->tensor[r][0].data + 3) & ~(uintptr_t)3),
                     "in a written tensor");
  if (param->type != QN_PARAM_HOST_F64) return;
  refuse_pointer(c, param, nan, "that has NaN");
  refuse_pointer(c, param, less, "that is below zero");
  refuse_pointer(c, param, much, "that is infinite");
}

static void refuse_params(qn_contract *c)
{
  for (size_t k = 0; k < info_of(c)->n_params; k++) {
    const qn_op_param *param = &info_of(c)->params[k];
    switch (param->type) {
    case QN_PARAM_DOUBLE: refuse_double(c, param); break;
    case QN_PARAM_BOOL:
    case QN_PARAM_ENUM:
      refuse_value(c, param, param->type == QN_PARAM_BOOL ? 2 : qn_param_most(param) + 1);
      refuse_value(c, param, -1);
      break;
    case QN_PARAM_U64:
      if (param->least > 0) refuse_value(c, param, param->least - 1);
      break;
    default: refuse_pointers(c, param);
    }
  }
}

/* "lr=-0.5"; an enum may be a number that has no name. */
static qn_status set_word(qn_contract *c, const char *word)
{
  const char *equals = strchr(word, '=');
  const double value = equals ? strtod(equals + 1, NULL) : 0;
  for (size_t k = 0; k < info_of(c)->n_params && equals; k++) {
    const qn_op_param *param = &info_of(c)->params[k];
    const size_t length = strlen(param->name);
    if (length != (size_t)(equals - word) || strncmp(param->name, word, length) != 0) continue;
    if (param->type == QN_PARAM_U64 || (param->type == QN_PARAM_ENUM && !strchr("-0123456789", equals[1]))) break;
    qn_param_set(param, c->params, value);
    return QN_OK;
  }
  return qn_settings_read(info_of(c), c->params, word);
}

/* "refuse lr=-0.5 decay=1 : lr -0.5" of the golden file. */
static void refuse_golden(qn_contract *c)
{
  qn_golden g;
  if (!qn_golden_open(&g, c->d.op)) return; /* leg 3 fails */
  while (qn_golden_line(&g)) {
    char what[128], word[96], words[4][96];
    const char *said[5] = {0};
    if (!qn_golden_is(&g, "refuse")) continue;
    snprintf(what, sizeof what, "golden: %.*s", (int)g.rest_bytes, g.rest);
    while (qn_golden_word(&g, word, sizeof word) && strcmp(word, ":") != 0)
      if (set_word(c, word) != QN_OK) qn_trial_fail(c->trial, -1, "%s: %s", what, qn_last_error());
    for (size_t n = 0; n < 4 && qn_golden_word(&g, words[n], sizeof words[n]); n++) said[n] = words[n];
    qn_contract_refuses(c, what, said);
  }
}

/* The texts that the op says must be refused, and in what word. */
static void refuse_texts(qn_contract *c)
{
  const qn_check_text *refused = c->d.check->refused;
  for (size_t k = 0; refused && refused[k].name && !c->trial->failure; k++) {
    qn_contract other;
    if (qn_contract_open(&other, c->trial, c->d.row, refused[k].text) != QN_OK)
      qn_trial_fail(c->trial, -1, "%s: %s", refused[k].text, qn_last_error());
    other.number = c->number++;
    qn_contract_refuses(&other, refused[k].text, QN_WORDS(refused[k].name));
    qn_contract_close(&other);
  }
}

/* ---- random calls ---- */

static double nasty_double(uint64_t draw)
{
  static const double values[] = {NAN, HUGE_VAL, -HUGE_VAL, -1, -0.0, 0, 0.5, 1, 1e308, 4.9e-324, -4.9e-324, 1e-5};
  double any;
  uint64_t bits = qn_seed_mix(draw, 1);
  memcpy(&any, &bits, sizeof any);
  return draw % 16 < sizeof values / sizeof *values ? values[draw % 16] : any;
}

static double nasty_whole(uint64_t draw)
{
  static const double values[] = {0, 0, 0, 1, 1, 2, 3, -1, 2147483647, -2147483648.0, 17};
  return values[draw % (sizeof values / sizeof *values)];
}

/* Does the table alone accept a value? */
static bool table_accepts(const qn_op_param *param, double x)
{
  switch (param->type) {
  case QN_PARAM_DOUBLE:
    return isfinite(x) && x >= param->least && (param->below_most ? x < param->most : x <= param->most);
  case QN_PARAM_BOOL: return x == 0 || x == 1;
  case QN_PARAM_ENUM: return x >= 0 && x <= qn_param_most(param);
  default: return true;
  }
}

/* Half of the params become something; true if the table accepts them all. */
static bool randomise_params(qn_contract *c, uint64_t seed)
{
  bool fine = true;
  for (size_t k = 0; k < info_of(c)->n_params; k++) {
    const qn_op_param *param = &info_of(c)->params[k];
    uint64_t draw = qn_seed_mix(seed, k);
    if (draw & 1) continue;
    draw >>= 8;
    if (param->type == QN_PARAM_U64) {
      const uint64_t bits = qn_seed_mix(draw, 2);
      qn_param_set_u64(param, c->params, bits);
      fine &= bits >= (uint64_t)param->least;
    } else if (param->type <= QN_PARAM_ENUM) {
      const double x = param->type == QN_PARAM_DOUBLE ? nasty_double(draw) : nasty_whole(draw);
      /* On a device each valid choice would be a compilation; leg 1 makes them. */
      if (c->exec.device.kind != QN_CPU && param->type != QN_PARAM_DOUBLE && table_accepts(param, x)) continue;
      qn_param_set(param, c->params, x);
      fine &= table_accepts(param, x);
    }
  }
  return fine;
}

/* One tensor gets another shape. */
static void randomise_shape(qn_contract *c, uint64_t seed)
{
  static const int64_t extents[] = {0, 1, 2, 3, 7, 12, -1, 1 << 20, INT64_MAX, INT64_MIN};
  const size_t r = qn_seed_mix(seed, 3) % info_of(c)->n_tensors;
  if (!c->tensor[r]) return;
  qn_tensor *t = &c->tensor[r][qn_seed_mix(seed, 4) % c->d.role[r].n];
  t->ndim = (int)(qn_seed_mix(seed, 5) % 10) - 1;
  if (t->ndim > QN_SUBJECT_NDIM) t->ndim = QN_SUBJECT_NDIM;
  for (uint64_t k = 0; k < QN_SUBJECT_NDIM; k++) c->shape[k] = extents[qn_seed_mix(seed, 6 + k) % 10];
  t->shape = c->shape;
}

/* Kernels of an op with a reference in double are slow on the emulator, and all devices refuse by the same code. */
static size_t rounds_of(const qn_contract *c)
{
  static const size_t rounds[] = {268, 2000, 26668};
  const qn_level level = c->trial->options->level;
  if (!c->d.check->reference || level == QN_FULL) return rounds[level];
  return c->exec.device.kind == QN_EMULATOR ? 200 : 800;
}

static void fuzz(qn_contract *c)
{
  size_t taken = 0, refused = 0;
  const size_t n = rounds_of(c);
  for (size_t k = 0; k < n && !c->trial->failure; k++) {
    const uint64_t seed = qn_seed_mix(c->trial->options->seed, k);
    char what[64];
    snprintf(what, sizeof what, "random call %zu", k);
    const bool fine = k % 4 == 3 || randomise_params(c, seed);
    if (k % 4 == 3) randomise_shape(c, seed);
    const qn_status status = qn_contract_tries(c, what, !fine);
    taken += status == QN_OK;
    refused += qn_is_refusal(status);
  }
  if (c->trial->only < 0 && !c->trial->failure && (!refused || (c->exec.device.kind == QN_CPU && !taken)))
    qn_trial_fail(c->trial, -1, "of %zu random calls %zu were accepted and %zu refused: this shows too little", n,
                  taken, refused);
}

void qn_leg_contract(qn_trial *trial)
{
  const qn_target *target = &trial->item->target;
  const size_t rows[2] = {0, qn_op_rows(&target->op->info, target->device.kind) - 1};
  for (size_t k = 0; k < 1 + (rows[1] > 0) && !trial->failure; k++) {
    qn_contract c;
    if (qn_contract_open(&c, trial, rows[k], NULL) != QN_OK) {
      qn_trial_fail(trial, -1, "%s", qn_last_error());
    } else {
      qn_contract_accepts_all(&c);
      qn_contract_refuses_all(&c);
      refuse_params(&c);
      refuse_golden(&c);
      refuse_texts(&c);
      fuzz(&c);
    }
    qn_contract_close(&c);
  }
  qn_trial_note(trial, "%zu cases", trial->cases);
}
