/* SPDX-License-Identifier: Apache-2.0 */
/* beside_pytorch.c - Lion beside the same formula in PyTorch's operations: how far they drift apart over many steps,
 * and that docs/numerics.md bounds it rightly. PyTorch's arithmetic is written out here in its two forms, additions
 * with a factor as a multiplication and an addition or as an fma; which of them runs depends on its build and device.
 * `beside_pytorch --csv` prints the figures of results/beside-pytorch.csv. */
#include "quern/lion.h"
#include "test.h"
#include <math.h>

enum { ELEMENTS = 20000, STEPS = 1000, CSV_STEPS = 5000 };
static const double UNIT = 0x1p-24;

typedef struct scenario {
  const char *name;
  bool fused; /* x += a * y is an fma */
  double weight_decay;
  bool cancels; /* momenta begin where the first sign's argument is nothing but rounding */
} scenario;
static const scenario scenarios[] = {
    {"separate", false, 0, false}, {"separate", false, 0.1, false}, {"fma", true, 0, false},
    {"fma", true, 0.1, false},     {"separate", false, 0.1, true},  {"fma", true, 0.1, true},
};

typedef struct element {
  float p, m;              /* PyTorch's */
  double m_bound, p_bound; /* how far quern's may be from them */
  double terms;            /* the largest |beta2 m| + |(1 - beta2) g| so far */
  bool turned;             /* a sign has differed */
} element;

typedef struct outcome {
  long turns, beyond_m, beyond_p, beyond_sign, drifted; /* drifted: other bits without decay and without a turn */
  long turned;                                          /* elements */
  double worst_m, worst_p;                              /* in units of the terms; in lr */
} outcome;

static float p[ELEMENTS], g[ELEMENTS], m[ELEMENTS], before[ELEMENTS];
static element peers[ELEMENTS];

/* The sum of four uniform numbers: nearly normal, of deviation 1. */
static float draw(uint64_t *state)
{
  double sum = 0;
  for (int k = 0; k < 4; k++) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    sum += (double)(*state >> 40) * 0x1p-24 - 0.5;
  }
  return (float)(sum * sqrt(3));
}

static float sign(float x) { return (float)((x > 0) - (x < 0)); }

static float add(bool fused, float x, float a, float y) { return fused ? fmaf(a, y, x) : x + a * y; }

/* u = m.mul(beta1).add(g, alpha=1 - beta1).sign(); p.mul_(keep).add_(u, alpha=-lr); m.mul_(beta2).add_(g, ...) */
static float step_peer(const scenario *s, const qn_lion_params *l, element *e, float grad)
{
  const float keep = (float)(1.0 - l->lr * l->weight_decay);
  const float direction = sign(add(s->fused, (float)l->beta1 * e->m, (float)(1 - l->beta1), grad));
  e->p = add(s->fused, e->p * keep, -(float)l->lr, direction);
  e->m = add(s->fused, (float)l->beta2 * e->m, (float)(1 - l->beta2), grad);
  return direction;
}

/* One element after a step: `old` is quern's momentum before it. */
static void judge(const scenario *s, const qn_lion_params *l, size_t k, float old, outcome *o)
{
  element *e = &peers[k];
  const double reach = fmax(fabs(old), fabs(e->m)), grad = fabs(g[k]);
  const double near_zero = l->beta1 * e->m_bound + 3 * UNIT * (l->beta1 * reach + (1 - l->beta1) * grad);
  const float argument = fmaf((float)l->beta1, old, (float)(1 - l->beta1) * g[k]);
  const double weight = fmax(fabs(e->p), fabs(p[k])) + 2 * l->lr;
  const bool turn = step_peer(s, l, e, g[k]) != sign(argument);
  const double terms = l->beta2 * reach + (1 - l->beta2) * grad;
  e->m_bound = (l->beta2 * e->m_bound + 3 * UNIT * terms) * (1 + 4 * UNIT);
  e->p_bound += 3 * UNIT * weight + (turn ? 2 * l->lr * (1 + 4 * UNIT) : 0);
  e->terms = fmax(e->terms, terms);
  e->turned |= turn;
  o->turns += turn;
  o->beyond_sign += turn && fabs(argument) > near_zero;
  o->beyond_m += fabs((double)m[k] - e->m) > e->m_bound;
  o->beyond_p += fabs((double)p[k] - e->p) > e->p_bound;
  o->drifted += !e->turned && s->weight_decay == 0 && memcmp(&p[k], &e->p, sizeof e->p);
  o->worst_m = fmax(o->worst_m, fabs((double)m[k] - e->m) / (UNIT * e->terms));
  o->worst_p = fmax(o->worst_p, fabs((double)p[k] - e->p) / l->lr);
}

static void begin(const scenario *s, const qn_lion_params *l, uint64_t *state)
{
  for (size_t k = 0; k < ELEMENTS; k++) {
    p[k] = 0.02f * draw(state);
    g[k] = 1e-3f * draw(state);
    m[k] = s->cancels ? (float)(-(1 - l->beta1) / l->beta1 * g[k]) : 0.0f;
    peers[k] = (element){.p = p[k], .m = m[k]};
  }
}

static qn_status run(const scenario *s, int steps, outcome *o)
{
  const int64_t shape[1] = {ELEMENTS};
  const qn_tensor param = {.data = p, .dtype = QN_F32, .ndim = 1, .shape = shape};
  qn_tensor grad = param, momentum = param;
  const qn_exec exec = {.size = sizeof exec};
  qn_lion_params l = QN_LION_DEFAULTS;
  uint64_t state = 1;
  grad.data = g;
  momentum.data = m;
  l.weight_decay = s->weight_decay;
  *o = (outcome){0};
  begin(s, &l, &state);
  for (int step = 0; step < steps; step++) {
    memcpy(before, m, sizeof m);
    qn_status status = qn_lion_step(&exec, &l, 1, &param, &grad, &momentum, NULL);
    if (status != QN_OK) return status;
    for (size_t k = 0; k < ELEMENTS; k++) judge(s, &l, k, before[k], o);
    for (size_t k = 0; k < ELEMENTS; k++) g[k] = 1e-3f * draw(&state);
  }
  for (size_t k = 0; k < ELEMENTS; k++) o->turned += peers[k].turned;
  return QN_OK;
}

static void print_figures(void)
{
  printf("# Made by: test_beside_pytorch --csv (tests/beside_pytorch.c). Units: 2^-24 of the largest |beta2 m| + "
         "|(1 - beta2) g| that the element saw.\n"
         "additions,weight_decay,element_steps,signs_that_differ,elements_concerned,worst_momentum_units,"
         "worst_parameter_lr\n");
  for (size_t k = 0; k < sizeof scenarios / sizeof *scenarios; k++) {
    const scenario *s = &scenarios[k];
    outcome o;
    if (s->cancels) continue;
    if (run(s, CSV_STEPS, &o) != QN_OK) exit(EXIT_FAILURE);
    printf("%s,%g,%d,%ld,%ld,%.1f,%.3f\n", s->name, s->weight_decay, ELEMENTS * CSV_STEPS, o.turns, o.turned, o.worst_m,
           o.worst_p);
  }
}

static void test_scenario(const scenario *s)
{
  outcome o;
  qn_status status = run(s, STEPS, &o);
  check(status == QN_OK, "%s, weight decay %g%s: %d steps", s->name, s->weight_decay, s->cancels ? ", cancelling" : "",
        STEPS);
  check(o.beyond_m == 0, "%ld momenta are further off than the bound", o.beyond_m);
  check(o.beyond_sign == 0, "%ld signs differ where the argument is not within rounding of zero", o.beyond_sign);
  if (s->cancels)
    check(o.turned > ELEMENTS / 10, "signs of %ld elements differ where the argument is nothing but rounding",
          o.turned);
  else
    check(o.turns <= ELEMENTS * STEPS / 1000000, "%ld signs differ in all, at most 1 in a million may", o.turns);
  check(o.beyond_p == 0, "%ld parameters are further off than the bound", o.beyond_p);
  check(o.drifted == 0, "%ld parameters have other bits without decay and without a sign that differed", o.drifted);
}

int main(int argc, char **argv)
{
  if (argc > 1 && !strcmp(argv[1], "--csv")) {
    print_figures();
    return 0;
  }
  for (size_t k = 0; k < sizeof scenarios / sizeof *scenarios; k++) test_scenario(&scenarios[k]);
  return test_end();
}
