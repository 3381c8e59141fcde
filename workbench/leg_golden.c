/* SPDX-License-Identifier: Apache-2.0 */
/* leg_golden.c - leg 3: vectors that an independent implementation computed. An op without a reference in double must
 * have their bits (f64: be within 2^-42), directly, through a plan whose read-only tensors move, and tensor by tensor.
 * Results of an op with such a reference must be as near as the op says, and the reference, which leg 1 believes, must
 * have the digits that are written. What made the vectors shares nothing with the library (see the op's
 * make_golden.py), so a formula that is wrong everywhere alike is caught here. golden.h has the lines of the file. */
#include "workbench/check.h"
#include "core/core.h"
#include "workbench/golden.h"
#include "workbench/subject.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct play {
  qn_trial *trial;
  const qn_op *op;
  qn_golden at;
  size_t number; /* of the case */
  char name[96], text[512];
  size_t row;
  qn_way way;
  qn_subject d;
  bool open;
  uint64_t steps;
  double worst; /* of what is allowed */
} play;

static qn_status complain(const play *p, const char *what)
{
  return qn_fail(QN_BAD_FILE, "%s golden vectors, line %zu: %s", p->op->info.name, p->at.line, what);
}

static bool refers(const play *p) { return qn_op_check_of(p->op)->reference != NULL; }

/* ---- what is given ---- */

/* Words of the call's text; of a call that is open they count from the next step on. */
static qn_status set(play *p)
{
  const size_t used = strlen(p->text);
  char *const at = p->text + used;
  if (used + p->at.rest_bytes + 2 > sizeof p->text) return complain(p, "too much is set");
  snprintf(at, sizeof p->text - used, "%.*s ", (int)p->at.rest_bytes, p->at.rest);
  return p->open ? qn_subject_change(&p->d, at) : QN_OK;
}

static qn_status open_case(play *p)
{
  const qn_target *target = &p->trial->item->target;
  qn_try(set(p));
  p->open = true;
  return qn_subject_open(&p->d, &(qn_subject_order){.op = p->op,
                                                    .row = p->row,
                                                    .device = target->device,
                                                    .text = p->text,
                                                    .alignment = p->way == QN_WAY_DIRECT ? QN_ALIGN_64 : QN_ALIGN_MIXED,
                                                    .way = p->way,
                                                    .seed = 1});
}

static qn_status find_role(play *p, size_t *role)
{
  char word[64];
  if (!p->open || !qn_golden_word(&p->at, word, sizeof word))
    return complain(p, "a size or a tensor, then a role are expected");
  for (*role = 0; *role < p->op->info.n_tensors; ++*role)
    if (!strcmp(p->op->info.tensors[*role].name, word) && p->d.role[*role].memory) return QN_OK;
  return complain(p, "the case has no such role");
}

static double drawn(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return (double)((z ^ z >> 31) >> 40) / 0x1p23 - 1;
}

/* The next number's bits, of the role's type or, wide, those of a double. */
static qn_status next_bits(play *p, uint64_t *bits, bool *wide)
{
  char word[32];
  if (!qn_golden_word(&p->at, word, sizeof word)) return complain(p, "there are fewer numbers than elements");
  *bits = strtoull(word, NULL, 16); /* little-endian, as every supported machine */
  *wide = strlen(word) == 16;
  return QN_OK;
}

static qn_status see_end(play *p)
{
  char word[32];
  return qn_golden_word(&p->at, word, sizeof word) ? complain(p, "there are more numbers than elements") : QN_OK;
}

/* All numbers of a role: the line's bits, so that a NaN keeps its payload. */
static qn_status give(play *p)
{
  size_t r;
  bool wide;
  qn_try(find_role(p, &r));
  for (size_t k = 0; k < p->d.role[r].n; k++)
    for (size_t i = 0; i < p->d.role[r].place[k].elements; i++) {
      uint64_t bits;
      qn_try(next_bits(p, &bits, &wide));
      memcpy(p->d.role[r].before + qn_subject_at(&p->d, r, k, i), &bits, p->d.role[r].width);
    }
  qn_subject_refresh(&p->d, r);
  qn_try(see_end(p));
  return qn_subject_send(&p->d, r);
}

static qn_status draw(play *p)
{
  size_t r;
  char state_word[32], scale_word[32];
  qn_try(find_role(p, &r));
  if (!qn_golden_word(&p->at, state_word, sizeof state_word) || !qn_golden_word(&p->at, scale_word, sizeof scale_word))
    return complain(p, "a state and a scale are expected");
  uint64_t state = strtoull(state_word, NULL, 16);
  const double scale = strtod(scale_word, NULL);
  for (size_t k = 0; k < p->d.role[r].n; k++) {
    const size_t n = p->d.role[r].place[k].elements;
    double *values;
    qn_try(qn_try_allocate(&values, (n + 1) * sizeof *values, "numbers"));
    for (size_t i = 0; i < n; i++) values[i] = (double)(float)(drawn(&state) * scale);
    const qn_status status = qn_subject_put(&p->d, r, k, values);
    qn_release(values);
    qn_try(status);
  }
  return QN_OK;
}

/* ---- steps ---- */

/* A param that counts steps goes on by itself. */
static qn_status step(play *p)
{
  char wrong[QN_SUBJECT_WRONG];
  bool right;
  if (!p->open) return complain(p, "there is no tensor");
  if (p->steps++) qn_try(qn_subject_count_step(&p->d));
  p->d.referred = 0;
  qn_try(qn_subject_step(&p->d));
  if (refers(p)) {
    qn_try(qn_subject_refer(&p->d, qn_subject_looseness(&p->d), 0));
    right = qn_subject_right(&p->d, wrong, sizeof wrong, &p->trial->elements, &p->worst);
  } else {
    right = qn_subject_intact(&p->d, wrong, sizeof wrong);
  }
  if (!right)
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

/* `loose`: a variant of another looseness than the reference's was held by its own already (step). */
static void compare_near(const play *p, size_t r, size_t k, size_t i, const uint64_t *bits, bool wide, bool loose)
{
  const qn_subject_role *role = &p->d.role[r];
  const char *name = p->op->info.tensors[r].name;
  const double reference = role->value[k][i], got = qn_subject_number(&p->d, role->after, r, k, i);
  const double want = qn_number_load(wide ? QN_F64 : role->dtype, bits);
  if (!is_near(reference, want, near_of(role->dtype, wide, want)))
    qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.17g by the reference, golden is %.17g",
                  p->name, i, name, reference, want);
  if (!loose && !is_near(got, want, role->allowed[k][i]))
    qn_trial_fail(p->trial, (long)p->number, "%s: element %zu of %s is %.9g, golden is %.9g, %.3g is allowed", p->name,
                  i, name, got, want, role->allowed[k][i]);
}

/* The library's functions of doubles are the C library's, which rounds them its own way. */
static void compare_bits(const play *p, size_t r, size_t k, size_t i, const uint64_t *bits)
{
  const qn_dtype dtype = p->d.role[r].dtype;
  const unsigned char *got = p->d.role[r].after + qn_subject_at(&p->d, r, k, i);
  const double want = qn_number_load(dtype, bits), off = fabs(qn_number_load(dtype, got) - want);
  char wrong[QN_SUBJECT_WRONG];
  p->trial->elements++;
  if (p->trial->failure || qn_number_same(dtype, got, bits)) return;
  if (dtype == QN_F64 && off <= 0x1p-42 * fabs(want) + 0x1p-1060) return;
  qn_subject_tell(&p->d, &p->d, r, k, i, bits, wrong, sizeof wrong);
  qn_trial_fail(p->trial, (long)p->number, "case %zu, \"%s\", %s, step %llu: golden differs\n%s", p->number, p->name,
                qn_way_name(p->way), (unsigned long long)p->steps, wrong);
}

static qn_status compare(play *p)
{
  size_t r;
  qn_try(find_role(p, &r));
  if (!p->steps) qn_try(step(p));
  if (!(p->d.role[r].access & QN_WRITE)) return complain(p, "the role is only read");
  const bool loose = refers(p) && qn_subject_looseness(&p->d) != 0;
  if (loose) qn_try(qn_subject_refer(&p->d, 0, 0));
  for (size_t k = 0; k < p->d.role[r].n; k++)
    for (size_t i = 0; i < p->d.role[r].place[k].elements; i++) {
      uint64_t bits;
      bool wide = false;
      qn_try(next_bits(p, &bits, &wide));
      if (refers(p))
        compare_near(p, r, k, i, &bits, wide, loose);
      else
        compare_bits(p, r, k, i, &bits);
    }
  return see_end(p);
}

/* ---- cases ---- */

static qn_status take_line(play *p)
{
  const struct {
    const char *word;
    qn_status (*take)(play *p);
  } words[] = {{"set", set},   {"size", open_case}, {"tensor", open_case}, {"draw", draw},
               {"give", give}, {"step", step},      {"want", compare}};
  for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
    if (qn_golden_is(&p->at, words[k].word)) return words[k].take(p);
  return complain(p, "this line is not understood");
}

/* The lines from here to the case's end. */
static qn_status play_lines(play *p)
{
  while (!p->trial->failure && qn_golden_line(&p->at)) {
    if (qn_golden_is(&p->at, "end")) return p->steps ? QN_OK : complain(p, "a case without steps");
    qn_try(take_line(p));
  }
  return p->trial->failure ? QN_OK : complain(p, "the file ends within a case");
}

/* From its first line, in one way. */
static qn_status play_case(play *p, const qn_golden *begin, qn_way way)
{
  p->at = *begin;
  p->way = way;
  p->text[0] = 0, p->steps = 0;
  const qn_status status = play_lines(p);
  if (p->open) qn_subject_close(&p->d);
  p->open = false;
  return status;
}

/* On the emulator a case may be a compilation of its own: some of them there, and at the quick level, of an op with a
 * reference in double. */
static size_t turns_of(const play *p)
{
  const qn_level level = p->trial->options->level;
  const bool alike = !qn_op_is_alone(&p->op->info);
  if (level == QN_FULL || !refers(p)) return 1;
  if (!alike) return p->trial->item->target.device.kind == QN_EMULATOR ? 5 : 1;
  return level == QN_QUICK ? 4 : 1;
}

static qn_status play_all(play *p, size_t *found)
{
  static const qn_way ways[] = {QN_WAY_DIRECT, QN_WAY_MOVED, QN_WAY_SINGLE};
  const qn_item *item = p->trial->item;
  const size_t n_ways = refers(p) ? 1 : sizeof ways / sizeof *ways;
  qn_golden at, begin;
  if (!qn_golden_open(&at, p->op))
    return qn_fail(QN_BAD_FILE, "%s has no golden vectors (src/op/%s/golden/%s.txt)", p->op->info.name,
                   p->op->info.name, p->op->info.name);
  for (; !p->trial->failure && qn_golden_line(&at); p->number += qn_golden_is(&at, "end")) {
    if (!qn_golden_is(&at, "case")) continue;
    snprintf(p->name, sizeof p->name, "%.*s", (int)at.rest_bytes, at.rest);
    qn_try(qn_golden_types(&at, &p->op->info, &p->row));
    begin = at;
    if (item->row != QN_NO_ROW && p->row != item->row) continue;
    ++*found;
    if (p->number % turns_of(p) || !qn_trial_takes(p->trial, p->number)) continue;
    for (size_t k = 0; k < n_ways && !p->trial->failure; k++) qn_try(play_case(p, &begin, ways[k]));
  }
  return QN_OK;
}

void qn_leg_golden(qn_trial *trial)
{
  play p = {.trial = trial, .op = trial->item->target.op};
  size_t found = 0;
  qn_status status = *trial->item->target.variant ? qn_target_select(&trial->item->target) : QN_OK;
  if (status == QN_OK) status = play_all(&p, &found);
  if (status != QN_OK) qn_trial_fail(trial, (long)p.number, "%s: %s", p.name, qn_last_error());
  if (!found) qn_trial_fail(trial, -1, "no golden vector has the types %s", trial->item->about);
  if (refers(&p))
    qn_trial_note(trial, "%zu cases, %llu elements, worst %.2f of what is allowed", trial->cases,
                  (unsigned long long)trial->elements, p.worst);
  else
    qn_trial_note(trial, "%zu cases, %llu elements", trial->cases, (unsigned long long)trial->elements);
}
