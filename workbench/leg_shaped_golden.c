/* SPDX-License-Identifier: Apache-2.0 */
/* leg_shaped_golden.c - leg 3 for ops whose tensors have shapes of their own: vectors that an independent maker
 * computed. The reference in double must have them to some 12 digits, as it is what leg 1 believes; the target's
 * results must be as near as the op's agreement says. The lines of a case: row R, size TEXT, give ROLE bits ..., want
 * ROLE bits of doubles ..., end. */
#include "workbench/leg_shaped.h"
#include "core/core.h"
#include "workbench/play.h"
#include "workbench/shaped.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct play {
  qn_play in;
  size_t row;
  qn_shaped_data d;
  bool open, stepped;
  qn_shaped_want want;
} play;

static qn_status complain(const play *p, const char *what) { return qn_play_complain(&p->in, what); }

static qn_status take_size(play *p)
{
  char text[256];
  const qn_item *item = p->in.trial->item;
  if (p->in.at.rest_bytes >= sizeof text) return complain(p, "the size is too long");
  memcpy(text, p->in.at.rest, p->in.at.rest_bytes);
  text[p->in.at.rest_bytes] = 0;
  p->open = true;
  return qn_shaped_open(
      &p->d,
      &(qn_shaped_order){.op = item->target.op, .row = p->row, .device = item->target.device, .text = text, .seed = 1});
}

static qn_status find_role(play *p, size_t *role)
{
  char word[64];
  const qn_op_info *info = &p->d.op->info;
  if (!p->open || !qn_golden_word(&p->in.at, word, sizeof word)) return complain(p, "a size, then a role are expected");
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
    if (!qn_golden_word(&p->in.at, word, sizeof word)) return complain(p, "there are fewer numbers than elements");
    const uint64_t bits = strtoull(word, NULL, 16);
    memcpy(role->before + role->begin + k * item, &bits, item);
  }
  if (qn_golden_word(&p->in.at, word, sizeof word)) return complain(p, "there are more numbers than elements");
  return qn_memory_write(p->d.exec.device, p->d.exec.stream, p->d.role[r].memory, role->before, role->all);
}

static qn_status step(play *p)
{
  char wrong[256];
  if (p->stepped) return QN_OK;
  p->stepped = true;
  qn_try(qn_shaped_lend(&p->d));
  qn_try(qn_shaped_run(&p->d));
  qn_try(qn_shaped_fetch(&p->d));
  p->d.looseness = qn_shaped_looseness(&p->d);
  qn_try(qn_shaped_reference(&p->d, 1e300, &p->want));
  if (!qn_shaped_right(&p->d, &p->want, wrong, sizeof wrong, &p->in.trial->elements, &p->in.worst))
    qn_trial_fail(p->in.trial, (long)p->in.number, "%s\n%s", p->in.name, wrong);
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
    if (!qn_golden_word(&p->in.at, word, sizeof word)) return complain(p, "there are fewer numbers than elements");
    const uint64_t bits = strtoull(word, NULL, 16);
    memcpy(&want, &bits, sizeof want);
    const double got = qn_number_load(role->dtype, role->after + role->begin + k * qn_dtype_bytes(role->dtype));
    qn_play_compare(&p->in, p->d.op->info.tensors[r].name, k,
                    &(qn_play_number){.want = want,
                                      .got = got,
                                      .allowed = p->want.allowed[r][k],
                                      .reference = p->want.value[r][k],
                                      .near = 1e-11 * (1 + fabs(want))});
  }
  return QN_OK;
}

static void close_case(play *p)
{
  qn_shaped_want_free(&p->want);
  if (p->open) qn_shaped_close(&p->d);
  p->open = p->stepped = false;
}

static qn_status take_line(void *leg, bool taken)
{
  play *p = leg;
  char word[32];
  if (qn_golden_is(&p->in.at, "case")) {
    p->row = 0;
  } else if (qn_golden_is(&p->in.at, "end")) {
    if (p->open && !p->stepped) return complain(p, "a case without results");
    close_case(p);
  } else if (qn_golden_is(&p->in.at, "row") && qn_golden_word(&p->in.at, word, sizeof word)) {
    p->row = strtoull(word, NULL, 10);
    if (p->row >= p->in.trial->item->target.op->info.n_types) return complain(p, "there is no such row");
  } else if (!taken) {
    return QN_OK;
  } else if (qn_golden_is(&p->in.at, "size")) {
    return take_size(p);
  } else if (qn_golden_is(&p->in.at, "give")) {
    return give(p);
  } else if (qn_golden_is(&p->in.at, "want")) {
    return compare(p);
  } else {
    return complain(p, "this line is not understood");
  }
  return QN_OK;
}

/* On the host backend every case is a compilation: a few of them there. */
void qn_leg_shaped_golden(qn_trial *trial)
{
  play p = {.in.trial = trial};
  const bool few = trial->item->target.device.kind == QN_HOST && trial->options->level != QN_FULL;
  qn_play_lines(&p.in, few ? 5 : 1, take_line, &p);
  close_case(&p);
}
