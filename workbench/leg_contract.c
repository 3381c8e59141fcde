/* SPDX-License-Identifier: Apache-2.0 */
/* leg_contract.c - leg 4: what must be refused is refused by step, prepare and plan alike, with a sentence that names
 * what is wrong, and changes no byte of any tensor; what must be taken is taken; random params give a status, never a
 * crash. The limits come from the table of params and, so that a wrong table is seen, from the golden file's `refuse`
 * lines. */
#include "workbench/contract.h"
#include "core/core.h"
#include "workbench/golden.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- params: each limit of the table ---- */

static void refuse_value(qn_contract *c, size_t k, double value)
{
  const qn_op_param *param = &c->op->info.params[k];
  char what[96], text[32];
  bool whole = param->type == QN_PARAM_BOOL || param->type == QN_PARAM_ENUM;
  snprintf(text, sizeof text, whole ? "%.0f" : "%g", value);
  snprintf(what, sizeof what, "%s = %s", param->name, text);
  qn_param_set(param, c->params, value);
  qn_contract_refuses(c, what, (const char *[]){param->name, text, NULL});
}

static size_t count_values(const char *values)
{
  size_t n = 1;
  for (; values && *values; values++) n += *values == '|';
  return n;
}

static void refuse_params(qn_contract *c)
{
  for (size_t k = 0; k < c->op->info.n_params; k++) {
    const qn_op_param *param = &c->op->info.params[k];
    switch (param->type) {
    case QN_PARAM_DOUBLE:
      if (isfinite(param->least)) refuse_value(c, k, nextafter(param->least, -HUGE_VAL));
      if (isfinite(param->most)) refuse_value(c, k, param->below_most ? param->most : nextafter(param->most, HUGE_VAL));
      refuse_value(c, k, NAN);
      refuse_value(c, k, HUGE_VAL);
      refuse_value(c, k, -HUGE_VAL);
      break;
    case QN_PARAM_BOOL:
      refuse_value(c, k, 2);
      refuse_value(c, k, -1);
      break;
    case QN_PARAM_ENUM:
      refuse_value(c, k, (double)count_values(param->values));
      refuse_value(c, k, -1);
      break;
    case QN_PARAM_U64: break; /* every value is taken */
    default: {                /* a pointer that no such value can be at */
      const char *odd = (const char *)c->tensor[0][0].data + 1;
      memcpy(c->params + param->offset, &odd, sizeof odd);
      qn_contract_refuses(c, "a pointer to an odd address", (const char *[]){param->name, NULL});
    }
    }
  }
}

/* "refuse lr=-0.5 decay=1 : lr -0.5" of the golden file. */
static void refuse_golden(qn_contract *c)
{
  qn_golden g;
  if (!qn_golden_open(&g, c->op)) return; /* leg 3 tells */
  while (qn_golden_line(&g)) {
    char what[128], word[96], words[4][96];
    const char *said[5] = {0};
    size_t n = 0, k;
    if (!qn_golden_is(&g, "refuse")) continue;
    snprintf(what, sizeof what, "golden: %.*s", (int)g.rest_bytes, g.rest);
    while (qn_golden_word(&g, word, sizeof word) && strcmp(word, ":")) {
      double value;
      uint64_t wide;
      char *equals = strchr(word, '=');
      if (equals) *equals = 0;
      if (!equals || qn_golden_parse(&c->op->info, word, equals + 1, &k, &value, &wide) != QN_OK)
        qn_trial_fail(c->trial, -1, "%s: this line is not understood", what);
      else
        qn_param_set(&c->op->info.params[k], c->params, value);
    }
    for (; n < 4 && qn_golden_word(&g, words[n], sizeof words[n]); n++) said[n] = words[n];
    qn_contract_refuses(c, what, said);
  }
}

/* ---- random params ---- */

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

/* What the table alone says of a value. */
static bool table_takes(const qn_op_param *param, double x)
{
  switch (param->type) {
  case QN_PARAM_DOUBLE:
    return isfinite(x) && x >= param->least && (param->below_most ? x < param->most : x <= param->most);
  case QN_PARAM_BOOL: return x == 0 || x == 1;
  case QN_PARAM_ENUM: return x >= 0 && x < (double)count_values(param->values);
  default: return true;
  }
}

/* Half of the params become something; true if the table has nothing against it. */
static bool randomise(qn_contract *c, uint64_t seed)
{
  bool fine = true;
  for (size_t k = 0; k < c->op->info.n_params; k++) {
    const qn_op_param *param = &c->op->info.params[k];
    uint64_t draw = qn_seed_mix(seed, k);
    if (draw & 1) continue;
    draw >>= 8;
    if (param->type == QN_PARAM_U64) {
      qn_param_set_u64(param, c->params, qn_seed_mix(draw, 2));
    } else if (param->type <= QN_PARAM_ENUM) {
      double x = param->type == QN_PARAM_DOUBLE ? nasty_double(draw) : nasty_whole(draw);
      /* On a device each valid choice would be a compilation; leg 1 makes them. */
      if (c->device.kind != QN_CPU && param->type != QN_PARAM_DOUBLE && table_takes(param, x)) continue;
      qn_param_set(param, c->params, x);
      fine &= table_takes(param, x);
    }
  }
  return fine;
}

static void fuzz(qn_contract *c)
{
  static const size_t rounds[] = {200, 1500, 20000};
  size_t taken = 0, refused = 0, n = rounds[c->trial->options->level];
  for (size_t k = 0; k < n && !c->trial->failure; k++) {
    bool fine = randomise(c, qn_seed_mix(c->trial->options->seed, k));
    char what[64];
    snprintf(what, sizeof what, "random params, round %zu", k);
    qn_status status = qn_contract_tries(c, what, !fine);
    taken += status == QN_OK;
    refused += qn_is_refusal(status);
  }
  if (c->trial->only < 0 && !c->trial->failure && (!refused || (c->device.kind == QN_CPU && !taken)))
    qn_trial_fail(c->trial, -1, "of %zu random calls %zu were taken and %zu refused: this shows too little", n, taken,
                  refused);
}

void qn_leg_contract(qn_trial *trial)
{
  const qn_op_info *op = &trial->item->target.op->info;
  size_t rows[2] = {0, qn_op_rows(op, trial->item->target.device.kind) - 1};
  for (size_t k = 0; k < 2 && !trial->failure; k++) {
    qn_contract c;
    if (k && rows[1] == rows[0]) break;
    if (qn_contract_open(&c, trial, rows[k]) != QN_OK)
      qn_trial_fail(trial, -1, "%s", qn_last_error());
    else {
      qn_contract_takes_all(&c);
      qn_contract_refuses_all(&c);
      refuse_params(&c);
      refuse_golden(&c);
      fuzz(&c);
    }
    qn_contract_close(&c);
  }
  qn_trial_note(trial, "%zu cases", trial->cases);
}
