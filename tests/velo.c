/* SPDX-License-Identifier: Apache-2.0 */
/* velo.c - the numbers of VeLO: golden vectors of several steps, a reference in double over shapes, mixtures and values
 * that are hard, losses that are no numbers, and the same bits on every tier and for any number of threads. */
#include "lopt_golden.h"
#include "quern/runtime.h"
#include "velo_model.h"

/* ---- golden vectors ---- */

typedef struct golden_case {
  char name[40];
  double lr, weight_decay, num_steps;
  int compat, steps;
  velo *v;
  uint64_t start;
} golden_case;

static bool begin_case(const golden *g, golden_case *c)
{
  if (sscanf(g->line, "case %39s %lf %lf %lf %d %d", c->name, &c->lr, &c->weight_decay, &c->num_steps, &c->compat,
             &c->steps) != 6)
    return false;
  c->v = velo_begin();
  c->start = 41;
  return true;
}

/* A line "tensor 7 5". */
static bool add_golden_tensor(const golden *g, golden_case *c)
{
  int64_t shape[5];
  int ndim = 0;
  const char *at = g->line + strlen("tensor");
  for (char *end; ndim < 5; at = end) {
    shape[ndim] = strtol(at, &end, 10);
    if (end == at) break;
    ndim++;
  }
  if (strncmp(g->line, "tensor", 6) || at[strspn(at, " \n")]) return false;
  add_tensor(&c->v->m, ndim, shape);
  set_param(&c->v->m, c->v->m.n - 1, &c->start, 0.5);
  return true;
}

static double golden_step(golden *g, golden_case *c, uint64_t t)
{
  model *m = &c->v->m;
  qn_velo_params params = velo_params(c->v, c->num_steps);
  uint64_t state = 300 + t;
  double worst = 0;
  float *before[MOST];
  params.lr = c->lr, params.weight_decay = c->weight_decay, params.pylo_cuda_compat = c->compat, params.step = t;
  for (size_t k = 0; k < m->n; k++) {
    const size_t n = m->reference[k].n;
    draw_array(&state, data_of(m, GRAD, k), n, 0.02 * (double)(t + 1));
    before[k] = malloc(n * sizeof(float));
    memcpy(before[k], data_of(m, PARAM, k), n * sizeof(float));
  }
  if (strncmp(g->line, "loss", 4) || !take_floats(g, c->v->loss, 1) || step_velo(c->v, NULL, &params)) worst = HUGE_VAL;
  for (size_t k = 0; k < m->n; k++) {
    const bool is = next_line(g) && !strncmp(g->line, "want", 4);
    worst = fmax(worst, is ? compare(g, data_of(m, PARAM, k), before[k], m->reference[k].n) : HUGE_VAL);
    free(before[k]);
  }
  return worst;
}

/* The states of tensor k, and the first eight of its rows of the LSTM's, which are held to 1e-6. */
static double golden_states(golden *g, const golden_case *c, size_t k)
{
  const model *m = &c->v->m;
  double worst = 0;
  for (int role = STATE_M; role < ROLES; role++) {
    const double least = role == STATE_M && m->reference[k].n == 1 ? 0.08 : 0;
    const size_t all = elements(&m->tensor[role][k]), planes = role == STATE_V ? 1 : all ? 3 : 0;
    if (!next_line(g) || strncmp(g->line, "state", 5)) return HUGE_VAL;
    worst = fmax(worst, compare_state(g, data_of(m, role, k), all, planes, least));
  }
  for (int which = 0; which < 2; which++) {
    const float *got = (which ? c->v->cell : c->v->hidden) + k * UNITS;
    float want[8];
    if (!next_line(g) || strncmp(g->line, which ? "cell" : "hidden", which ? 4 : 6) || !take_floats(g, want, 8))
      return HUGE_VAL;
    for (size_t j = 0; j < 8; j++) {
      const double off = fabs((double)got[j] - (double)want[j]) / 1e-6;
      if (!(off <= worst)) worst = isnan(off) ? HUGE_VAL : off; /* fmax here fells gcc 12 for aarch64 */
    }
  }
  return worst;
}

static bool run_case(golden *g, golden_case *c)
{
  bool more = true;
  double worst = 0, worst_state = 0;
  while ((more = next_line(g)) && add_golden_tensor(g, c)) {}
  for (int t = 0; t < c->steps && more; t++) {
    worst = fmax(worst, golden_step(g, c, (uint64_t)t));
    if (t + 1 < c->steps) more = next_line(g);
  }
  for (size_t k = 0; k < c->v->m.n && more; k++) worst_state = fmax(worst_state, golden_states(g, c, k));
  check(more && worst <= 1 && worst_state <= 1,
        "golden %s, %d steps of %zu tensors, up to line %ld: parameters within %.2g and states within %.2g of the "
        "tolerance",
        c->name, c->steps, c->v->m.n, g->number, worst, worst_state);
  velo_end(c->v);
  return more;
}

static void test_golden(const char *path)
{
  golden g = {.file = fopen(path, "r")};
  golden_case c;
  int cases = 0;
  if (!check(g.file != NULL, "golden vectors %s", path)) return;
  while (next_line(&g) && begin_case(&g, &c) && run_case(&g, &c)) cases++;
  check(cases == 2 && feof(g.file), "%d cases, to the end of the file", cases);
  free(g.line);
  fclose(g.file);
}

/* ---- against the reference in double ---- */

/* Steps of both, with losses times a number; the worst share of the tolerance that a parameter takes. */
static double worst_of_steps(velo *v, float of_loss, qn_velo_params params, double scale, int steps)
{
  static const float losses[] = {2.5f, 2.25f, 9, 1.75f, -1.5f, 1};
  model *m = &v->m;
  double worst = 0;
  uint64_t state = 77;
  params.lr_scale = m->lr_scale;
  for (uint64_t t = 0; t < (uint64_t)steps; t++) {
    double *before[MOST];
    params.step = t, v->loss[0] = of_loss * losses[t % 6];
    for (size_t k = 0; k < m->n; k++) {
      const size_t n = m->reference[k].n;
      draw_array(&state, data_of(m, GRAD, k), n, scale);
      before[k] = malloc((n + 1) * sizeof(double));
      memcpy(before[k], m->reference[k].p, n * sizeof(double));
    }
    step_velo_reference(v, &params);
    if (step_velo(v, NULL, &params) != QN_OK) worst = HUGE_VAL;
    for (size_t k = 0; k < m->n; k++) {
      for (size_t i = 0; i < m->reference[k].n; i++)
        worst = fmax(worst, share_of_tolerance((double)data_of(m, PARAM, k)[i], m->reference[k].p[i], before[k][i]));
      free(before[k]);
    }
  }
  return worst;
}

/* Ranks 0 to 5, empty ones, ones of one element, runs shorter and longer than blocks, chunks and sums' pieces; more
 * tensors than 16 and fewer than 32. */
static void add_mixture(velo *v)
{
  static const struct {
    int ndim;
    int64_t shape[5];
  } shapes[] = {{0, {0}},
                {1, {1}},
                {1, {0}},
                {1, {5000}},
                {2, {1, 1}},
                {2, {0, 7}},
                {2, {130, 97}},
                {2, {97, 130}},
                {2, {2, 4200}},
                {2, {4200, 2}},
                {2, {1, 768}},
                {2, {144, 144}},
                {3, {3, 70, 65}},
                {4, {24, 16, 3, 3}},
                {4, {20, 3, 8, 8}},
                {4, {20, 3, 16, 16}},
                {4, {16, 16, 5, 5}},
                {5, {3, 4, 1, 6, 7}},
                {5, {1, 1, 9, 1, 1}}};
  uint64_t state = 5;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    add_tensor(&v->m, shapes[k].ndim, shapes[k].shape);
    set_param(&v->m, k, &state, 0.5);
    v->m.lr_scale[k] = k % 3 ? 1 : 0.25;
  }
}

static void test_mixture(void)
{
  for (int compat = 0; compat < (on.kind == QN_HOST ? 1 : 2); compat++) { /* the host backend is slow */
    velo *v = velo_begin();
    qn_velo_params params = velo_params(v, 50);
    params.weight_decay = 0.01, params.pylo_cuda_compat = compat;
    add_mixture(v);
    const double worst = worst_of_steps(v, compat ? -1.0f : 1.0f, params, 0.02,
                                        on.kind == QN_HOST ? 1
                                        : compat           ? 4
                                                           : 5);
    check(worst <= 1, "%zu tensors of all ranks, compat %d: within %.2g of the tolerance", v->m.n, compat, worst);
    velo_end(v);
  }
}

/* Gradients of zero and of extreme sizes; those above 1000 are clipped. */
static void test_hard_values(void)
{
  static const double scales[] = {0, 1e-30, 1e-12, 1e-4, 1, 1e4, 1e30};
  static const int64_t matrix[] = {70, 33}, vector[] = {300}, block[] = {8, 6, 3, 3}, wide[] = {20, 160};
  for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
    if (on.kind == QN_HOST && s != 0 && s != 5) continue;
    velo *v = velo_begin();
    uint64_t state = 9;
    add_tensor(&v->m, 2, matrix), add_tensor(&v->m, 1, vector), add_tensor(&v->m, 4, block);
    add_tensor(&v->m, 2, wide);
    for (size_t k = 0; k < v->m.n; k++) set_param(&v->m, k, &state, 0.5);
    const double worst = worst_of_steps(v, 1, velo_params(v, 1000), scales[s], 3);
    check(worst <= 1, "gradients of up to %g, three steps: within %.2g of the tolerance", scales[s], worst);
    velo_end(v);
  }
}

/* Parameters that are all zero have a size of their own, and one step is the whole training. */
static void test_zero_parameters(void)
{
  static const int64_t matrix[] = {33, 20};
  velo *v = velo_begin();
  add_tensor(&v->m, 2, matrix);
  const double worst = worst_of_steps(v, 1, velo_params(v, 1), 0.02, 3);
  check(worst <= 1 && data_of(&v->m, PARAM, 0)[0] != 0, "parameters of zero: within %.2g of the tolerance", worst);
  velo_end(v);
}

/* ---- what the step is told in memory ---- */

static void test_hyper(void)
{
  static const int64_t matrix[] = {33, 20};
  velo *v[2] = {velo_begin(), velo_begin()};
  const qn_lopt_hyper hyper = {0.5, 0.125, 7};
  for (int which = 0; which < 2; which++) {
    qn_velo_params params = velo_params(v[which], 20);
    uint64_t state = 3;
    add_tensor(&v[which]->m, 2, matrix), set_param(&v[which]->m, 0, &state, 0.5);
    draw_array(&state, data_of(&v[which]->m, GRAD, 0), 660, 0.02);
    v[which]->loss[0] = 1;
    if (which)
      params.hyper = &hyper, params.lr = NAN, params.weight_decay = -1;
    else
      params.lr = 0.5, params.weight_decay = 0.125, params.step = 7;
    check(step_velo(v[which], NULL, &params) == QN_OK, "a step, hyper %s", which ? "in memory" : "in params");
  }
  check(!memcmp(data_of(&v[0]->m, PARAM, 0), data_of(&v[1]->m, PARAM, 0), 660 * sizeof(float)),
        "hyper in memory gives the bits that params give");
  velo_end(v[0]), velo_end(v[1]);
}

static uint64_t sum_of_bytes(const velo *v)
{
  uint64_t sum = 0;
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < v->m.n; k++) {
      const unsigned char *at = v->m.tensor[role][k].data;
      for (size_t i = 0; i < elements(&v->m.tensor[role][k]) * sizeof(float); i++) sum = sum * 31 + at[i];
    }
  for (size_t i = 0; i < sizeof v->hidden; i++)
    sum = sum * 31 + ((const unsigned char *)v->hidden)[i] + ((const unsigned char *)v->cell)[i];
  for (size_t i = 0; i < QN_VELO_LOSS_SKIPPED * sizeof(double); i++)
    sum = sum * 31 + ((const unsigned char *)v->buffer)[i];
  return sum;
}

/* A loss that is no number: nothing moves but the count of such steps. */
static void test_skipped(void)
{
  static const float odd[] = {NAN, INFINITY, -INFINITY};
  velo *v = velo_begin();
  qn_velo_params params = velo_params(v, 30);
  add_mixture(v);
  bool good = worst_of_steps(v, 1, params, 0.02, 1) <= 1, kept = true;
  const uint64_t before = sum_of_bytes(v);
  for (int k = 0; k < 3; k++) {
    v->loss[0] = odd[k];
    good = good && step_velo(v, NULL, &params) == QN_OK && v->buffer[QN_VELO_LOSS_SKIPPED] == k + 1;
    kept = kept && sum_of_bytes(v) == before;
  }
  check(good && kept, "losses that are no numbers: three steps are skipped, and nothing is written");
  v->loss[0] = 2;
  check(step_velo(v, NULL, &params) == QN_OK && sum_of_bytes(v) != before && v->buffer[QN_VELO_LOSS_COUNT] == 2 &&
            v->buffer[QN_VELO_LOSS_SKIPPED] == 3,
        "the next step is the second");
  velo_end(v);
}

static bool all_nan(const velo *v, size_t k)
{
  for (size_t i = 0; i < v->m.reference[k].n; i++)
    if (!isnan(data_of(&v->m, PARAM, k)[i])) return false;
  return true;
}

/* A NaN in a gradient: its tensor at once, the others through the LSTM with the next step; never an empty one's rows.
 */
static void test_nan(void)
{
  static const int64_t matrix[] = {40, 30}, none[] = {0};
  velo *v = velo_begin();
  qn_velo_params params = velo_params(v, 30);
  uint64_t state = 9;
  for (size_t k = 0; k < 2; k++) {
    add_tensor(&v->m, 2, matrix), set_param(&v->m, k, &state, 0.5);
    draw_array(&state, data_of(&v->m, GRAD, k), 1200, 0.02);
  }
  add_tensor(&v->m, 1, none);
  data_of(&v->m, GRAD, 1)[777] = NAN;
  v->loss[0] = 1;
  check(step_velo(v, NULL, &params) == QN_OK && all_nan(v, 1) && !isnan(data_of(&v->m, PARAM, 0)[0]),
        "a gradient of NaN: its tensor's parameters are NaN, and no other");
  check(step_velo(v, NULL, &params) == QN_OK && all_nan(v, 0), "with the next step the others' are too");
  check(v->hidden[2 * UNITS] == velo_rnn[FIRST_H] && v->cell[2 * UNITS + 1] == velo_rnn[FIRST_C + 1],
        "an empty tensor's rows stay");
  velo_end(v);
}

/* An empty tensor that is left out changes nothing for the others. */
static void test_empty(void)
{
  static const int64_t matrix[] = {40, 30}, none[] = {0, 5};
  velo *v[2] = {velo_begin(), velo_begin()};
  for (int which = 0; which < 2; which++) {
    model *m = &v[which]->m;
    qn_velo_params params = velo_params(v[which], 30);
    uint64_t state = 9;
    if (which) add_tensor(m, 2, none);
    add_tensor(m, 2, matrix), set_param(m, m->n - 1, &state, 0.5);
    draw_array(&state, data_of(m, GRAD, m->n - 1), 1200, 0.02);
    v[which]->loss[0] = 1;
    for (params.step = 0; params.step < 2; params.step++)
      check(step_velo(v[which], NULL, &params) == QN_OK, "a step%s", which ? " with an empty tensor before" : "");
  }
  check(!memcmp(data_of(&v[0]->m, PARAM, 0), data_of(&v[1]->m, PARAM, 1), 1200 * sizeof(float)),
        "an empty tensor changes nothing for another");
  velo_end(v[0]), velo_end(v[1]);
}

/* ---- the same bits ---- */

static velo *run_bits(qn_pool *pool)
{
  velo *v = velo_begin();
  qn_velo_params params = velo_params(v, 20);
  uint64_t state = 31;
  add_mixture(v);
  v->loss[0] = 3;
  for (params.step = 3; params.step < 5; params.step++) {
    for (size_t k = 0; k < v->m.n; k++) draw_array(&state, data_of(&v->m, GRAD, k), v->m.reference[k].n, 0.02);
    if (step_velo(v, pool, &params) != QN_OK) check(false, "step %d: %s", (int)params.step, qn_last_error());
  }
  return v;
}

static void test_bits(void)
{
  static const char *const tiers[] = {"ref", "avx2", "avx512", "neon"};
  const char *best = NULL;
  velo *v = run_bits(NULL);
  const uint64_t want = sum_of_bytes(v);
  velo_end(v);
  for (int threads = 2; threads <= 4; threads += 2) {
    qn_pool *pool = NULL;
    qn_pool_create(&pool, threads);
    v = run_bits(pool);
    check(sum_of_bytes(v) == want, "%d threads give the bits that one gives", threads);
    velo_end(v);
    qn_pool_destroy(&pool);
  }
  qn_cpu_tier(&best);
  for (size_t k = 0; k < 4; k++) {
    const char *now = NULL;
    qn_option_set("cpu", tiers[k]);
    if (qn_cpu_tier(&now) == QN_OK && strcmp(now, best)) {
      v = run_bits(NULL);
      check(sum_of_bytes(v) == want, "the tier %s gives the bits of %s", now, best);
      velo_end(v);
    }
    qn_option_set("cpu", NULL);
  }
}

int main(int count, char **arguments)
{
  draw_velo_weights();
  if (count > 2 && !check(qn_device_from_name(arguments[2], &on) == QN_OK, "the device %s", arguments[2]))
    return test_end();
  if (count > 1) test_golden(arguments[1]);
  test_mixture();
  test_hard_values();
  test_zero_parameters();
  test_hyper();
  test_skipped();
  test_nan();
  test_empty();
  if (on.kind == QN_CPU) test_bits();
  free(velo_mlp), free(velo_rnn);
  return test_end();
}
