/* SPDX-License-Identifier: Apache-2.0 */
/* leg_shaped_golden.c - leg 3 for ops whose tensors have shapes of their own: vectors that an independent maker
 * computed. The reference in double must have them to some 12 digits, as it is what leg 1 believes; the target's
 * results must be as near as the op's agreement says. The lines of a case: row R, size TEXT, give ROLE bits ..., want
 * ROLE bits of doubles ..., end. */
#include "workbench/leg_shaped.h"
#include "core/core.h"
#include "workbench/golden.h"
#include "workbench/shaped.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct play {
  qn_trial *trial;
  qn_golden at;
  size_t number, row;
  char name[64];
  qn_shaped_data d;
  bool open, stepped;
  qn_shaped_want want;
  double worst;
} play;

static qn_status complain(const play *p, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: %s", p->trial->item->target.op->info.name, p->at.line,
                 what);
}

static qn_status take_size(play *p)
{
  char text[256];
  const qn_item *item = p->trial->item;
  if (p->at.rest_bytes >= sizeof text) return complain(p, "the size is too long");
  memcpy(text, p->at.rest, p->at.rest_bytes);
  text[p->at.rest_bytes] = 0;
  p->open = true;
  return qn_shaped_open(
      &p->d,
      &(qn_shaped_order){.op = item->target.op, .row = p->row, .device = item->target.device, .text = text, .seed = 1});
}

static qn_status find_role(play *p, size_t *role)
{
  char word[64];
  const qn_op_info *info = &p->d.op->info;
  if (!p->open || !qn_golden_word(&p->at, word, sizeof word)) return complain(p, "a size, then a role are expected");
  for (*role = 0; *role < info->n_tensors; ++*role)
    if (!strcmp(info->tensors[*role].name, word) && p->d.role[*role].memory) return QN_OK;
  return complain(p, "the case has no such role");
}

static qn_status give(play *p)
{
  size_t r;
  char word[32];
  qn_try(find_role(p, &r));
  qn_shaped_role *role = &p->d.role[r];
  const size_t item = qn_dtype_bytes(role->dtype);
  for (size_t k = 0; k < role->elements; k++) {
    if (!qn_golden_word(&p->at, word, sizeof word)) return complain(p, "there are fewer numbers than elements");
    const uint64_t bits = strtoull(word, NULL, 16);
    memcpy(role->before + QN_SHAPED_GUARD + p->d.shift + k * item, &bits, item);
  }
  if (qn_golden_word(&p->at, word, sizeof word)) return complain(p, "there are more numbers than elements");
  return qn_memory_write(p->d.exec.device, p->d.exec.stream, p->d.role[r].memory, role->before,
                         role->bytes + p->d.shift + 2 * QN_SHAPED_GUARD);
}

static qn_status step(play *p)
{
  char wrong[256];
  if (p->stepped) return QN_OK;
  p->stepped = true;
  qn_try(qn_shaped_lend(&p->d));
  qn_try(qn_shaped_run(&p->d));
  qn_try(qn_shaped_fetch(&p->d));
  qn_try(qn_shaped_reference(&p->d, 1e300, &p->want));
  if (!qn_shaped_right(&p->d, &p->want, wrong, sizeof wrong, &p->trial->elements, &p->worst))
    qn_trial_fail(p->trial, (long)p->number, "%s\n%s", p->name, wrong);
  return QN_OK;
}

static qn_status compare(play *p)
{
  size_t r;
  char word[32];
  qn_try(find_role(p, &r));
  qn_try(step(p));
  const qn_shaped_role *role = &p->d.role[r];
  for (size_t k = 0; k < role->elements && p->want.value[r]; k++) {
    double want;
    if (!qn_golden_word(&p->at, word, sizeof word)) return complain(p, "there are fewer numbers than elements");
    const uint64_t bits = strtoull(word, NULL, 16);
    memcpy(&want, &bits, sizeof want);
    const double got =
        qn_number_load(role->dtype, role->after + QN_SHAPED_GUARD + p->d.shift + k * qn_dtype_bytes(role->dtype));
    const double reference = p->want.value[r][k], allowed = p->want.allowed[r][k];
    if (!(fabs(reference - want) <= 1e-11 * (1 + fabs(want))))
      qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.17g by the reference, golden is %.17g",
                    p->name, k, p->d.op->info.tensors[r].name, reference, want);
    if (!(fabs(got - want) <= allowed))
      qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.9g, golden is %.9g, %.3g is allowed",
                    p->name, k, p->d.op->info.tensors[r].name, got, want, allowed);
  }
  return QN_OK;
}

static void close_case(play *p)
{
  qn_shaped_want_free(&p->want);
  if (p->open) qn_shaped_close(&p->d);
  p->open = p->stepped = false;
}

static qn_status take_line(play *p, bool taken)
{
  char word[32];
  if (qn_golden_is(&p->at, "case")) {
    snprintf(p->name, sizeof p->name, "%.*s", (int)p->at.rest_bytes, p->at.rest);
    p->row = 0;
  } else if (qn_golden_is(&p->at, "end")) {
    if (p->open && !p->stepped) return complain(p, "a case without results");
    close_case(p);
    p->number++;
  } else if (qn_golden_is(&p->at, "row") && qn_golden_word(&p->at, word, sizeof word)) {
    p->row = strtoull(word, NULL, 10);
    if (p->row >= p->trial->item->target.op->info.n_types) return complain(p, "there is no such row");
  } else if (!taken) {
    return QN_OK;
  } else if (qn_golden_is(&p->at, "size")) {
    return take_size(p);
  } else if (qn_golden_is(&p->at, "give")) {
    return give(p);
  } else if (qn_golden_is(&p->at, "want")) {
    return compare(p);
  } else {
    return complain(p, "this line is not understood");
  }
  return QN_OK;
}

/* On the host backend every case is a compilation: a few of them there. */
static bool is_for(const qn_trial *trial, size_t number)
{
  return trial->item->target.device.kind != QN_HOST || trial->options->level == QN_FULL || number % 5 == 0;
}

void qn_leg_shaped_golden(qn_trial *trial)
{
  const qn_item *item = trial->item;
  play p = {.trial = trial};
  bool taken = false;
  qn_status status = qn_target_select(&item->target);
  if (status == QN_OK && !qn_golden_open(&p.at, item->target.op))
    status = qn_fail(QN_BAD_FILE, "%s has no golden vectors", item->target.op->info.name);
  while (status == QN_OK && !trial->failure && qn_golden_line(&p.at)) {
    if (qn_golden_is(&p.at, "case")) taken = is_for(trial, p.number) && qn_trial_takes(trial, p.number);
    status = take_line(&p, taken);
  }
  if (status != QN_OK) qn_trial_fail(trial, (long)p.number, "%s: %s", p.name, qn_last_error());
  close_case(&p);
  if (trial->only < 0 && !p.number) qn_trial_fail(trial, -1, "there is no golden case");
  qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of what is allowed", trial->cases,
                (unsigned long long)trial->elements, p.worst);
}
