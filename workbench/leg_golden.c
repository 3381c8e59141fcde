/* SPDX-License-Identifier: Apache-2.0 */
/* leg_golden.c - leg 3: several steps from golden vectors, bit for bit (f64: within 2^-42), directly, through a plan
 * whose gradients move and tensor by tensor. What made the vectors shares nothing with the library (see the op's
 * make_golden.py), so a formula that is wrong everywhere alike is caught here. A row of the type table without vectors
 * is a failure. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/golden.h"
#include "workbench/run.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct play {
  qn_trial *trial;
  const qn_golden_case *c;
  qn_golden at;
  size_t number;
  qn_way way;
  qn_buffers *buffers;
  qn_runner *runner;
  int step;
  bool stepped;
} play;

static qn_status complain(const play *p, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: %s", p->buffers->op->name, p->at.line, what);
}

/* "ROLE bits bits ..." of all tensors of the list; calls use for each. */
static qn_status each_number(play *p, void (*use)(play *p, size_t role, size_t tensor, size_t index, uint64_t bits))
{
  char text[32];
  qn_buffers *b = p->buffers;
  if (!qn_golden_word(&p->at, text, sizeof text)) return complain(p, "a role is expected");
  size_t r = 0;
  while (r < b->op->n_tensors && strcmp(b->op->tensors[r].name, text)) r++;
  if (r == b->op->n_tensors || b->role[r].access == QN_ABSENT) return complain(p, "the row has no such role");
  for (size_t k = 0; k < b->n; k++)
    for (size_t i = 0; i < (size_t)b->elements[k]; i++) {
      if (!qn_golden_word(&p->at, text, sizeof text)) return complain(p, "there are fewer numbers than elements");
      use(p, r, k, i, strtoull(text, NULL, 16));
    }
  return qn_golden_word(&p->at, text, sizeof text) ? complain(p, "there are more numbers than elements") : QN_OK;
}

static void put(play *p, size_t role, size_t tensor, size_t index, uint64_t bits)
{
  memcpy(qn_buffers_at(p->buffers, role, tensor, index), &bits, qn_dtype_bytes(p->buffers->role[role].dtype));
}

/* The library's functions of doubles are the C library's, which rounds them its own way. */
static bool same_number(qn_dtype dtype, const void *got, const void *want)
{
  const double most = 0x1p-42 * fabs(qn_number_load(dtype, want)) + 0x1p-1060;
  if (qn_number_same(dtype, got, want)) return true;
  return dtype == QN_F64 && fabs(qn_number_load(dtype, got) - qn_number_load(dtype, want)) <= most;
}

static void compare(play *p, size_t role, size_t tensor, size_t index, uint64_t bits)
{
  const qn_buffers *b = p->buffers;
  qn_dtype dtype = b->role[role].dtype;
  p->trial->elements++;
  if (p->trial->failure || same_number(dtype, qn_buffers_at(b, role, tensor, index), &bits)) return;
  char what[256];
  snprintf(what, sizeof what, "case %zu, \"%s\", %s, step %d: golden is 0x%0*llx (%.9g)", p->number, p->c->name,
           qn_way_name(p->way), p->step, (int)(2 * qn_dtype_bytes(dtype)), (unsigned long long)bits,
           qn_number_load(dtype, &bits));
  qn_difference d = {QN_FAULT_VALUE, role, tensor, index, 0};
  qn_trial_differ(p->trial, (long)p->number, what, b, NULL, &d);
}

static qn_status step(play *p)
{
  const qn_item *item = p->trial->item;
  if (!p->runner) qn_try(qn_runner_create(&p->runner, item->target.op, p->buffers, &p->c->setting, p->way, NULL));
  qn_try(qn_runner_step(p->runner));
  p->stepped = true;
  char broken[256];
  qn_difference d = qn_buffers_compare(p->buffers, p->buffers); /* with itself: guards and what is only read */
  if (d.fault != QN_FAULT_NONE)
    qn_trial_differ(p->trial, (long)p->number, p->c->name, p->buffers, NULL, &d);
  else if (!qn_runner_intact(p->runner, broken, sizeof broken))
    qn_trial_fail(p->trial, (long)p->number, "%s: %s", p->c->name, broken);
  return QN_OK;
}

/* Before the first step values go into the setting, later to where the op reads them. */
static qn_status set(play *p, qn_setting *setting)
{
  size_t k;
  double value;
  qn_try(qn_golden_value(&p->at, p->buffers->op, &k, &value));
  const qn_op_param *param = &p->buffers->op->params[k];
  if (p->runner) return qn_runner_set(p->runner, param, value);
  if (param->type == QN_PARAM_DEVICE_F32)
    setting->scalar[k] = (float)value;
  else
    qn_param_set(param, setting->params, value);
  return QN_OK;
}

static qn_status play_lines(play *p, qn_setting *setting)
{
  qn_buffers_fill(p->buffers, 1, false, false);
  while (qn_golden_line(&p->at) && !p->trial->failure) {
    if (qn_golden_is(&p->at, "end")) return p->step ? QN_OK : complain(p, "a case without steps");
    if (qn_golden_is(&p->at, "start") || qn_golden_is(&p->at, "give"))
      qn_try(each_number(p, put));
    else if (qn_golden_is(&p->at, "step"))
      p->step++, p->stepped = false;
    else if (qn_golden_is(&p->at, "set") || qn_golden_is(&p->at, "scalar"))
      qn_try(set(p, setting));
    else if (!qn_golden_is(&p->at, "want"))
      return complain(p, "this line is not understood");
    else {
      if (!p->stepped) qn_try(step(p));
      qn_try(each_number(p, compare));
    }
  }
  return p->trial->failure ? QN_OK : complain(p, "the file ends within a case");
}

static void play_case(qn_trial *trial, const qn_golden_case *c, size_t number, qn_way way)
{
  const qn_item *item = trial->item;
  qn_golden_case own = *c; /* what steps set before the first call changes it */
  play p = {.trial = trial, .c = &own, .at = c->start, .number = number, .way = way};
  for (size_t k = 0; k < QN_PARAMS_MOST; k++)
    if (c->setting.array[k]) own.setting.array[k] = own.arrays[k];
  qn_status status = qn_buffers_create(&p.buffers, &item->target.op->info, c->row, item->target.device, NULL, c->n,
                                       c->elements, way == QN_WAY_DIRECT ? QN_ALIGN_64 : QN_ALIGN_MIXED);
  if (status == QN_OK) status = play_lines(&p, &own.setting);
  if (status != QN_OK) qn_trial_fail(trial, (long)number, "case %zu, \"%s\": %s", number, c->name, qn_last_error());
  qn_runner_destroy(&p.runner);
  qn_buffers_destroy(&p.buffers);
}

void qn_leg_golden(qn_trial *trial)
{
  static const qn_way ways[] = {QN_WAY_DIRECT, QN_WAY_MOVED, QN_WAY_SINGLE};
  const qn_item *item = trial->item;
  qn_golden golden;
  qn_golden_case *c = qn_allocate(sizeof *c);
  qn_status status = QN_OK;
  size_t found = 0;
  if (!c || !qn_golden_open(&golden, item->target.op)) {
    qn_trial_fail(trial, -1, "%s has no golden vectors (src/op/%s/golden/%s.txt)", item->target.op->info.name,
                  item->target.op->info.name, item->target.op->info.name);
    qn_release(c);
    return;
  }
  for (size_t number = 0; qn_golden_next(&golden, &item->target.op->info, c, &status); number++) {
    if (c->row != item->row) continue;
    found++;
    if (!qn_trial_takes(trial, number)) continue;
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) play_case(trial, c, number, ways[k]);
  }
  if (status != QN_OK) qn_trial_fail(trial, -1, "%s", qn_last_error());
  if (!found) qn_trial_fail(trial, -1, "no golden vector has the types %s", item->about);
  qn_trial_note(trial, "%zu cases, %llu elements", trial->cases, (unsigned long long)trial->elements);
  qn_release(c);
}
