/* SPDX-License-Identifier: Apache-2.0 */
/* leg_subject_golden.c - leg 3 for ops with a reference in double: vectors that an independent maker computed. The
 * target's results must be as near as the op says; the reference, which leg 1 believes, must have them to the digits in
 * which they are written. The lines of a case, which begins with "case NAME" and ends with "end":
 *   row R             of the type table; 0 unless said
 *   set WORDS         of the call's text (subject.h)
 *   size WORDS, tensor SHAPES     the last of them
 *   give ROLE BITS    a role's numbers, in hexadecimal
 *   draw ROLE STATE SCALE         likewise in [-SCALE, SCALE), of splitmix64 from that state on
 *   step              one call; before the first one all is zero that is updated and not given
 *   want ROLE BITS    the numbers then, of the role's type, or 16 digits of a double; the first one steps if none has
 */
#include "workbench/leg_subject.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/golden.h"
#include "workbench/subject.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct play {
  qn_trial *trial;
  qn_golden at;
  size_t number; /* of the case */
  char name[64], text[512];
  size_t row;
  qn_subject d;
  bool open;
  uint64_t steps;
  double worst; /* of what is allowed */
} play;

static qn_status complain(const play *p, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: %s", p->trial->item->target.op->info.name, p->at.line,
                 what);
}

/* ---- what is given ---- */

/* The line's rest as words of the text. */
static qn_status add_text(play *p)
{
  const size_t used = strlen(p->text);
  if (used + p->at.rest_bytes + 2 > sizeof p->text) return complain(p, "too much is set");
  snprintf(p->text + used, sizeof p->text - used, "%.*s ", (int)p->at.rest_bytes, p->at.rest);
  return QN_OK;
}

static qn_status open_case(play *p)
{
  const qn_target *target = &p->trial->item->target;
  qn_try(add_text(p));
  p->open = true;
  return qn_subject_open(
      &p->d,
      &(qn_subject_order){.op = target->op, .row = p->row, .device = target->device, .text = p->text, .seed = 1});
}

static qn_status take_row(play *p)
{
  char word[32] = "";
  qn_golden_word(&p->at, word, sizeof word);
  p->row = strtoull(word, NULL, 10);
  return p->row < p->trial->item->target.op->info.n_types ? QN_OK : complain(p, "there is no such row");
}

static qn_status find_role(play *p, size_t *role)
{
  char word[64];
  if (!p->open || !qn_golden_word(&p->at, word, sizeof word))
    return complain(p, "a size or a tensor, then a role are expected");
  for (*role = 0; *role < p->d.op->info.n_tensors; ++*role)
    if (!strcmp(p->d.op->info.tensors[*role].name, word) && p->d.role[*role].memory) return QN_OK;
  return complain(p, "the case has no such role");
}

static double drawn(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ z >> 31) >> 40) / 0x1p23 - 1;
}

/* The next number of the line, and whether it is written as a double. */
static qn_status next_number(play *p, size_t r, double *x, bool *wide)
{
  char word[32];
  if (!qn_golden_word(&p->at, word, sizeof word)) return complain(p, "there are fewer numbers than elements");
  const uint64_t bits = strtoull(word, NULL, 16); /* little-endian, as every supported machine */
  *wide = strlen(word) == 16;
  *x = qn_number_load(*wide ? QN_F64 : p->d.role[r].dtype, &bits);
  return QN_OK;
}

/* No numbers are left on the line. */
static qn_status see_end(play *p)
{
  char word[32];
  return qn_golden_word(&p->at, word, sizeof word) ? complain(p, "there are more numbers than elements") : QN_OK;
}

/* All numbers of a role: drawn, or with no state the line's. */
static qn_status put(play *p, size_t r, uint64_t *state, double scale)
{
  qn_status status = QN_OK;
  for (size_t k = 0; k < p->d.role[r].n && status == QN_OK; k++) {
    const size_t n = p->d.role[r].place[k].elements;
    double *values;
    bool wide;
    qn_try(qn_try_allocate(&values, (n + 1) * sizeof *values, "numbers"));
    for (size_t i = 0; i < n && status == QN_OK; i++) {
      if (state) values[i] = (double)(float)(drawn(state) * scale);
      if (!state) status = next_number(p, r, &values[i], &wide);
    }
    if (status == QN_OK) status = qn_subject_put(&p->d, r, k, values);
    qn_release(values);
  }
  return status;
}

static qn_status give(play *p)
{
  size_t r;
  qn_try(find_role(p, &r));
  qn_try(put(p, r, NULL, 0));
  return see_end(p);
}

static qn_status draw(play *p)
{
  size_t r;
  char state_word[32], scale_word[32];
  qn_try(find_role(p, &r));
  if (!qn_golden_word(&p->at, state_word, sizeof state_word) || !qn_golden_word(&p->at, scale_word, sizeof scale_word))
    return complain(p, "a state and a scale are expected");
  uint64_t state = strtoull(state_word, NULL, 16);
  return put(p, r, &state, strtod(scale_word, NULL));
}

/* ---- steps ---- */

static qn_status step(play *p)
{
  char wrong[512];
  const qn_op_info *info = &p->trial->item->target.op->info;
  if (!p->open) return complain(p, "there is no tensor");
  for (size_t k = 0; k < info->n_params; k++)
    if (!strcmp(info->params[k].name, "step")) memcpy(p->d.params + info->params[k].offset, &p->steps, 8);
  p->steps++;
  p->d.referred = 0;
  qn_try(qn_subject_step(&p->d));
  qn_try(qn_subject_refer(&p->d, qn_subject_looseness(&p->d), 0));
  if (!qn_subject_right(&p->d, wrong, sizeof wrong, &p->trial->elements, &p->worst))
    qn_trial_fail(p->trial, (long)p->number, "%s, step %llu\n%s", p->name, (unsigned long long)p->steps, wrong);
  return QN_OK;
}

static bool is_near(double x, double want, double near)
{
  return x == want || (isnan(x) && isnan(want)) || fabs(x - want) <= near;
}

/* Digits that are written as a double are the maker's, which adds up in another order; those of a double's own role are
 * its result. */
static double near_of(qn_dtype dtype, bool wide, double want)
{
  if (wide && dtype != QN_F64) return 1e-11 * (1 + fabs(want));
  return (dtype == QN_F64 ? 1e-13 : 6e-8) * fabs(want) + 1e-13 * (1 + fabs(want));
}

static void compare_number(const play *p, size_t r, size_t k, size_t i, double want, bool wide)
{
  const qn_subject_role *role = &p->d.role[r];
  const char *name = p->d.op->info.tensors[r].name;
  const double reference = role->value[k][i], got = qn_subject_number(&p->d, role->after, r, k, i);
  if (!is_near(reference, want, near_of(role->dtype, wide, want)))
    qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.17g by the reference, golden is %.17g",
                  p->name, i, name, reference, want);
  if (!is_near(got, want, role->allowed[k][i]))
    qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.9g, golden is %.9g, %.3g is allowed", p->name,
                  i, name, got, want, role->allowed[k][i]);
}

static qn_status compare(play *p)
{
  size_t r;
  qn_try(find_role(p, &r));
  if (!p->steps) qn_try(step(p));
  if (!(p->d.role[r].access & QN_WRITE)) return complain(p, "the role is only read");
  for (size_t k = 0; k < p->d.role[r].n; k++)
    for (size_t i = 0; i < p->d.role[r].place[k].elements; i++) {
      double want;
      bool wide;
      qn_try(next_number(p, r, &want, &wide));
      compare_number(p, r, k, i, want, wide);
    }
  return see_end(p);
}

/* ---- lines ---- */

static void close_case(play *p)
{
  if (p->open) qn_subject_close(&p->d);
  p->open = false;
}

static qn_status take_line(play *p, bool taken)
{
  const struct {
    const char *word;
    qn_status (*take)(play *p);
  } words[] = {{"row", take_row}, {"set", add_text}, {"size", open_case}, {"tensor", open_case},
               {"draw", draw},    {"give", give},    {"step", step},      {"want", compare}};
  for (size_t k = 0; k < sizeof words / sizeof words[0] && taken; k++)
    if (qn_golden_is(&p->at, words[k].word)) return words[k].take(p);
  return taken ? complain(p, "this line is not understood") : QN_OK;
}

static qn_status end_case(play *p)
{
  if (p->open && !p->steps) return complain(p, "a case without steps");
  close_case(p);
  p->number++;
  return QN_OK;
}

/* On the emulator a case may be a compilation of its own: some of them there, and at the quick level. */
static size_t turns_of(const qn_trial *trial)
{
  const bool alike = !qn_op_is_alone(&trial->item->target.op->info);
  if (trial->options->level == QN_FULL) return 1;
  if (!alike) return trial->item->target.device.kind == QN_EMULATOR ? 5 : 1;
  return trial->options->level == QN_QUICK ? 4 : 1;
}

static qn_status play_all(play *p)
{
  bool taken = false, inside = false;
  if (!qn_golden_open(&p->at, p->trial->item->target.op))
    return qn_fail(QN_BAD_FILE, "%s has no golden vectors", p->trial->item->target.op->info.name);
  while (!p->trial->failure && qn_golden_line(&p->at)) {
    if (qn_golden_is(&p->at, "case")) {
      snprintf(p->name, sizeof p->name, "%.*s", (int)p->at.rest_bytes, p->at.rest);
      p->text[0] = 0, p->steps = 0, p->row = 0;
      taken = p->number % turns_of(p->trial) == 0 && qn_trial_takes(p->trial, p->number);
      inside = true;
    } else if (qn_golden_is(&p->at, "end")) {
      qn_try(end_case(p));
      inside = false;
    } else {
      qn_try(take_line(p, taken));
    }
  }
  return !p->trial->failure && inside ? complain(p, "the file ends within a case") : QN_OK;
}

void qn_leg_subject_golden(qn_trial *trial)
{
  play p = {.trial = trial};
  qn_status status = qn_target_select(&trial->item->target);
  if (status == QN_OK) status = play_all(&p);
  if (status != QN_OK) qn_trial_fail(trial, (long)p.number, "%s: %s", p.name, qn_last_error());
  if (trial->only < 0 && !p.number) qn_trial_fail(trial, -1, "there is no golden case");
  qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of what is allowed", trial->cases,
                (unsigned long long)trial->elements, p.worst);
  close_case(&p);
}
