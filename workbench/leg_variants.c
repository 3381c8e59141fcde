/* SPDX-License-Identifier: Apache-2.0 */
/* leg_variants.c - legs 1 and 2 of `quern check` over the cases of case.h. Beside bits: the candidate goes first, on
 * memory of its own that the other call never sees; the other is the ref tier, called directly and serially, or, of an
 * op with a reference in double, the ref tier's step; on devices a call at other addresses; where tiers add up in
 * orders of their own, the same call without a pool. Beside double: a variant is as near to the op's reference as the
 * op says. After each step all elements, all guard bytes, the read-only tensors and what params point to are compared.
 */
#include "workbench/check.h"
#include "core/core.h"
#include "op/launch_shape.h"
#include "workbench/subject.h"
#include <stdio.h>

/* One case: the candidate and the target that its results are compared with. */
typedef struct pair {
  qn_trial *trial;
  const qn_case *c;
  char how[64]; /* the name of the candidate or of the target */
  bool by_tier; /* the other call is the ref tier's */
  qn_layout layout;
  qn_subject_order order;
  qn_subject got, want;
} pair;

typedef struct tried {
  size_t calls, refused;
  double worst;
} tried;

static const qn_target *target_of(const qn_trial *trial) { return &trial->item->target; }

/* `said`: of the call that failed, or what is wrong. */
static void fail(const pair *p, uint64_t step, const char *said)
{
  const qn_case *c = p->c;
  char words[1024], setting[512] = "";
  if (c->text)
    snprintf(words, sizeof words, "%s: %s %s", c->text->name, c->text->text, c->more);
  else {
    qn_setting_text(&target_of(p->trial)->op->info, step % 2 ? c->other : c->setting, setting, sizeof setting);
    snprintf(words, sizeof words, "%s; list \"%s\" (%zu tensors)", setting, p->layout.name, p->layout.n);
  }
  qn_trial_fail(p->trial, (long)c->number, "case %zu: %s, %s, pool of %d, alignment %s; %s, step %llu\n%s", c->number,
                words, qn_way_name(c->way), c->threads, qn_alignment_name((qn_alignment)c->alignment), p->how,
                (unsigned long long)step + 1, said);
}

static void begin(pair *p)
{
  const qn_case *c = p->c;
  if (!c->text) qn_layout_make(c->layout, &p->layout);
  p->order = (qn_subject_order){.op = target_of(p->trial)->op,
                                .row = p->trial->item->row,
                                .device = target_of(p->trial)->device,
                                .text = c->text ? c->text->text : QN_SUBJECT_ODD,
                                .more = c->more,
                                .elements = c->text ? NULL : &p->layout,
                                .setting = c->setting,
                                .alignment = (qn_alignment)c->alignment,
                                .way = c->way,
                                .seed = c->seed,
                                .fenced = true};
}

/* ---- beside the reference in double ---- */

static qn_status step_beside(pair *p, tried *t)
{
  char wrong[QN_SUBJECT_WRONG];
  qn_subject *d = &p->got;
  qn_try(qn_op_prepare(&d->op->info, &d->exec, d->params, d->n, d->tensors));
  for (uint64_t step = 0; step < d->steps && !p->trial->failure; step++) {
    qn_try(qn_subject_turn(d, step));
    qn_try(qn_subject_step(d));
    qn_try(qn_subject_refer(d, qn_subject_looseness(d), 0));
    if (!qn_subject_right(d, wrong, sizeof wrong, &p->trial->elements, &t->worst)) fail(p, step, wrong);
  }
  t->calls++;
  return QN_OK;
}

/* Each variant that can do this, by name, from where the first one began. */
static qn_status see_named(pair *p, tried *t)
{
  const qn_engine *engine = p->got.op->engine;
  const char *name;
  for (size_t k = 0; engine->variant && (name = engine->variant(p->got.op, k)) && !p->trial->failure; k++) {
    qn_try(qn_subject_rewind(&p->got));
    qn_try(qn_option_set(engine->option, name));
    snprintf(p->how, sizeof p->how, "the variant %s", name);
    const qn_status status = step_beside(p, t);
    qn_option_set(engine->option, NULL);
    if (status != QN_UNSUPPORTED) qn_try(status);
  }
  return QN_OK;
}

static qn_status see_double(pair *p, tried *t)
{
  snprintf(p->how, sizeof p->how, "the variant that is chosen");
  qn_status status = qn_subject_open(&p->got, &p->order);
  if (status == QN_OK) status = step_beside(p, t);
  if (status == QN_OK && p->order.device.kind != QN_CPU) status = see_named(p, t);
  qn_subject_close(&p->got);
  return status;
}

/* ---- beside bits ---- */

static qn_status open_pair(pair *p)
{
  const bool on_cpu = p->order.device.kind == QN_CPU, agree = qn_tiers_agree(p->order.op);
  qn_subject_order order = p->order;
  order.pool = qn_trial_pool(p->trial, p->c->threads);
  qn_try(qn_subject_open(&p->got, &order));
  snprintf(p->how, sizeof p->how, "beside %s",
           !p->c->text ? "the reference"
           : !agree    ? "itself with one thread"
           : on_cpu    ? "the ref tier"
                       : "itself at other addresses");
  if (!p->c->text) return qn_subject_open(&p->want, qn_subject_reference_order(&order, &p->got));
  p->by_tier = on_cpu && agree;
  order.pool = NULL;
  if (!on_cpu && agree) order.alignment = order.alignment == QN_ALIGN_64 ? QN_ALIGN_ELEMENT : QN_ALIGN_64;
  return qn_subject_open(&p->want, &order);
}

/* The data and the params of this step. */
static qn_status turn(const pair *p, qn_subject *d, uint64_t step)
{
  qn_try(qn_subject_turn(d, step));
  return p->c->other == p->c->setting ? QN_OK : qn_subject_use(d, step % 2 ? p->c->other : p->c->setting);
}

/* Of a list no option is set meanwhile: a plan would keep nothing. */
static qn_status take_step(const pair *p, qn_subject *d, char said[512])
{
  qn_status status = p->by_tier ? qn_option_set("cpu", d == &p->want ? "ref" : target_of(p->trial)->variant) : QN_OK;
  if (status == QN_OK) status = qn_subject_step(d);
  snprintf(said, 512, "%s%s", status == QN_OK ? "" : ": ", status == QN_OK ? "" : qn_last_error());
  return status;
}

/* False: nothing more to learn from this case. */
static bool step_pair(pair *p, uint64_t step, tried *t)
{
  char said[2][512], wrong[QN_SUBJECT_WRONG + 1100];
  if (turn(p, &p->got, step) != QN_OK || turn(p, &p->want, step) != QN_OK) {
    snprintf(wrong, sizeof wrong, "the step could not be set up: %s", qn_last_error());
    return fail(p, step, wrong), false;
  }
  const qn_status got = take_step(p, &p->got, said[0]), want = take_step(p, &p->want, said[1]);
  if (got != want || (p->c->text && got != QN_OK)) {
    snprintf(wrong, sizeof wrong, "it gives %s%s; the reference gives %s%s", qn_status_name(got), said[0],
             qn_status_name(want), said[1]);
    return fail(p, step, wrong), false;
  }
  if (!(got == QN_OK ? qn_subject_agree(&p->got, &p->want, wrong, sizeof wrong)
                     : qn_subject_untouched(&p->got, wrong, sizeof wrong)))
    fail(p, step, wrong);
  t->refused += got != QN_OK;
  p->trial->elements += qn_subject_elements(&p->got);
  return got == QN_OK && !p->trial->failure;
}

static qn_status see_bits(pair *p, tried *t)
{
  const qn_status status = open_pair(p);
  const uint64_t steps = p->c->steps ? (uint64_t)p->c->steps : p->got.steps;
  for (uint64_t step = 0; status == QN_OK && step < steps && step_pair(p, step, t); step++) {}
  qn_subject_close(&p->got);
  qn_subject_close(&p->want);
  return status;
}

/* ---- all of them ---- */

/* The cases' lists are small, and of those the rule launches in a way of their own: most go as large ones do. */
static qn_status launch_as_large(const pair *p)
{
  const qn_target *target = target_of(p->trial);
  char name[QN_LAUNCH_SHAPE_NAME];
  qn_launch_shape g;
  if (target->op->engine != &qn_elementwise || target->device.kind == QN_CPU || p->c->seed % 4 == 0) return QN_OK;
  qn_launch_shape_rule(&(qn_launch_shape_key){.op = target->op, .row = p->trial->item->row, .dense = true}, &g);
  qn_launch_shape_name(&g, name);
  return qn_option_set("launch_shape", name);
}

static void run_case(qn_trial *trial, const qn_case *c, unsigned beside, tried *t)
{
  pair p = {.trial = trial, .c = c, .how = "a call"};
  begin(&p);
  qn_status status = qn_target_select(target_of(trial));
  if (status == QN_OK) status = launch_as_large(&p);
  if (status == QN_OK && beside & QN_BESIDE_DOUBLE) status = see_double(&p, t);
  if (status == QN_OK && beside & QN_BESIDE_BITS) status = see_bits(&p, t);
  if (status != QN_OK) fail(&p, 0, qn_last_error());
  qn_option_set("launch_shape", NULL);
}

static void run_cases(qn_trial *trial, bool oracle)
{
  qn_cases cases;
  tried t = {0};
  if (qn_cases_make(&cases, target_of(trial), trial->item->row, oracle, trial->options->level, trial->options->seed)) {
    qn_trial_fail(trial, -1, "%s", qn_last_error());
    return;
  }
  for (size_t k = 0; k < cases.n; k++)
    if (qn_trial_takes(trial, cases.at[k].number))
      run_case(trial, &cases.at[k], oracle ? QN_BESIDE_DOUBLE : cases.at[k].beside, &t);
  if (trial->only < 0 && t.refused * 2 > trial->cases)
    qn_trial_fail(trial, -1, "%zu of %zu cases were refused by reference and variant alike: this shows too little",
                  t.refused, trial->cases);
  const unsigned long long elements = trial->elements;
  if (t.calls)
    qn_trial_note(trial, "%zu cases, %zu calls, %llu elements, worst %.2f of what is allowed", trial->cases, t.calls,
                  elements, t.worst);
  else if (cases.dropped)
    qn_trial_note(trial, "%zu cases, %llu elements; %zu settings need further compilations: --full", trial->cases,
                  elements, cases.dropped);
  else
    qn_trial_note(trial, "%zu cases, %llu elements, the ref tier's bits", trial->cases, elements);
  qn_cases_free(&cases);
}

void qn_leg_variants(qn_trial *trial) { run_cases(trial, false); }
void qn_leg_reference(qn_trial *trial) { run_cases(trial, true); }
