/* SPDX-License-Identifier: Apache-2.0 */
/* leg_ruled_golden.c - leg 3 for ops of lists whose shapes follow by rule: several steps that an independent maker
 * computed. Results of the target must be as near as the op's description allows; the reference in double must have
 * them to f32's rounding, in which they are written. The lines of a case: set PARAM VALUE ..., tensor SHAPES, then
 * draw ROLE STATE SCALE (a tensor's numbers in [-SCALE, SCALE), of splitmix64 from that state on), step, want ROLE
 * bits, end. Before the first step all is zero but for what is drawn. */
#include "workbench/leg_ruled.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/op_check.h"
#include "workbench/play.h"
#include "workbench/ruled.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct play {
  qn_play in;
  char text[512];
  qn_ruled_data d;
  bool open;
  uint64_t steps;
} play;

static qn_status complain(const play *p, const char *what) { return qn_play_complain(&p->in, what); }

/* The line's rest as words of a list's text; behind "tensor" it is complete. */
static qn_status add_text(play *p, bool complete)
{
  const size_t used = strlen(p->text);
  if (used + p->in.at.rest_bytes + 2 > sizeof p->text) return complain(p, "too much is set");
  memcpy(p->text + used, p->in.at.rest, p->in.at.rest_bytes);
  p->text[used + p->in.at.rest_bytes] = ' ';
  p->text[used + p->in.at.rest_bytes + 1] = 0;
  if (!complete) return QN_OK;
  const qn_item *item = p->in.trial->item;
  p->open = true;
  return qn_ruled_open(
      &p->d, &(qn_ruled_order){.op = item->target.op, .device = item->target.device, .text = p->text, .seed = 1});
}

static qn_status find_role(play *p, size_t *role)
{
  char word[64];
  if (!p->open || !qn_golden_word(&p->in.at, word, sizeof word))
    return complain(p, "a tensor, then a role are expected");
  for (*role = 0; *role < p->d.op->info.n_tensors; ++*role)
    if (!strcmp(p->d.op->info.tensors[*role].name, word)) return QN_OK;
  return complain(p, "there is no such role");
}

static double drawn(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ z >> 31) >> 40) / 0x1p23 - 1;
}

/* The next number of the line, of the role's type. */
static bool next_number(play *p, size_t r, double *x)
{
  char word[32];
  if (!qn_golden_word(&p->in.at, word, sizeof word)) return false;
  const uint64_t bits = strtoull(word, NULL, 16);
  *x = qn_number_load(p->d.role[r].dtype, &bits); /* little-endian, as every supported machine */
  return true;
}

/* All numbers of a role: drawn, or with no state the line's. */
static qn_status put(play *p, size_t r, uint64_t *state, double scale)
{
  qn_status status = QN_OK;
  for (size_t k = 0; k < p->d.role[r].n && status == QN_OK; k++) {
    const size_t n = p->d.role[r].elements[k];
    double *values;
    bool more = true;
    qn_try(qn_try_allocate(&values, (n + 1) * sizeof *values, "numbers"));
    for (size_t i = 0; i < n && more; i++)
      if (state)
        values[i] = (double)(float)(drawn(state) * scale);
      else
        more = next_number(p, r, &values[i]);
    status = more ? qn_ruled_put(&p->d, r, k, values) : complain(p, "there are fewer numbers than elements");
    qn_release(values);
  }
  return status;
}

static qn_status draw(play *p)
{
  size_t r;
  char state_word[32], scale_word[32];
  qn_try(find_role(p, &r));
  if (!qn_golden_word(&p->in.at, state_word, sizeof state_word) ||
      !qn_golden_word(&p->in.at, scale_word, sizeof scale_word))
    return complain(p, "a state and a scale are expected");
  uint64_t state = strtoull(state_word, NULL, 16);
  return put(p, r, &state, strtod(scale_word, NULL));
}

static qn_status give(play *p)
{
  size_t r;
  qn_try(find_role(p, &r));
  return put(p, r, NULL, 0);
}

static qn_status step(play *p)
{
  char wrong[512];
  const qn_op_info *info = &p->d.op->info;
  for (size_t k = 0; k < info->n_params; k++)
    if (!strcmp(info->params[k].name, "step")) memcpy(p->d.params + info->params[k].offset, &p->steps, 8);
  p->steps++;
  qn_try(qn_ruled_run(&p->d));
  qn_try(qn_ruled_fetch(&p->d));
  qn_try(qn_ruled_refer(&p->d));
  if (!qn_ruled_right(&p->d, wrong, sizeof wrong, &p->in.trial->elements, &p->in.worst))
    qn_trial_fail(p->in.trial, (long)p->in.number, "%s, step %llu\n%s", p->in.name, (unsigned long long)p->steps,
                  wrong);
  return QN_OK;
}

static qn_status compare_tensor(play *p, size_t r, size_t k)
{
  const qn_ruled_role *role = &p->d.role[r];
  const size_t n = role->elements[k];
  const double eps = role->dtype == QN_F64 ? 1e-13 : 6e-8;
  double want;
  for (size_t i = 0; i < n; i++) {
    if (!next_number(p, r, &want)) return complain(p, "there are fewer numbers than elements");
    qn_play_compare(
        &p->in, p->d.op->info.tensors[r].name, i,
        &(qn_play_number){.want = want,
                          .got = qn_number_load(role->dtype, role->after + role->offset[k] + i * role->width),
                          .allowed = role->allowed[k][i],
                          .reference = role->value[k][i],
                          .near = eps * fabs(want) + 1e-13 * (1 + fabs(want))});
  }
  return QN_OK;
}

static qn_status compare(play *p)
{
  size_t r;
  char word[32];
  qn_try(find_role(p, &r));
  for (size_t k = 0; k < p->d.role[r].n; k++) qn_try(compare_tensor(p, r, k));
  return qn_golden_word(&p->in.at, word, sizeof word) ? complain(p, "there are more numbers than elements") : QN_OK;
}

static void close_case(play *p)
{
  if (p->open) qn_ruled_close(&p->d);
  p->open = false;
}

static qn_status take_line(void *leg, bool taken)
{
  play *p = leg;
  if (qn_golden_is(&p->in.at, "case")) {
    p->text[0] = 0, p->steps = 0;
    return QN_OK;
  }
  if (qn_golden_is(&p->in.at, "end")) {
    if (p->open && !p->steps) return complain(p, "a case without steps");
    close_case(p);
    return QN_OK;
  }
  if (!taken) return QN_OK;
  if (qn_golden_is(&p->in.at, "set")) return add_text(p, false);
  if (qn_golden_is(&p->in.at, "tensor")) return add_text(p, true);
  if (qn_golden_is(&p->in.at, "draw")) return draw(p);
  if (qn_golden_is(&p->in.at, "give")) return give(p);
  if (qn_golden_is(&p->in.at, "step")) return p->open ? step(p) : complain(p, "there is no tensor");
  if (qn_golden_is(&p->in.at, "want")) return compare(p);
  return complain(p, "this line is not understood");
}

/* Some of the cases at the quick level. */
void qn_leg_ruled_golden(qn_trial *trial)
{
  play p = {.in.trial = trial};
  qn_play_lines(&p.in, trial->options->level == QN_QUICK ? 4 : 1, take_line, &p);
  close_case(&p);
}
