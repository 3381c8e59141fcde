/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.c - the numbers of small_fc_lopt and elo: golden vectors of several steps, a reference in double over shapes,
 * mixtures and values that are hard, and the same bits on every tier and for any number of threads. */
#include "lopt_golden.h"
#include "lopt_model.h"
#include "quern/runtime.h"

static const int64_t golden_shapes[][5] = {{7, 5},       {5, 7},          {6, 6}, {11},         {4, 3, 2},
                                           {5, 4, 3, 2}, {4, 4, 3, 3},    {1, 9}, {3, 3, 3, 3}, {64, 48},
                                           {0},          {2, 3, 2, 4, 3}, {70, 2}};

static int rank_of(const int64_t shape[5])
{
  int n = 0;
  while (n < 5 && shape[n]) n++;
  return n;
}

/* ---- golden vectors ---- */

typedef struct golden_case {
  char name[32], op[32];
  double lr, weight_decay;
  int compat;
} golden_case;

static qn_status take_step(model *m, const golden_case *c, uint64_t step)
{
  qn_small_fc_lopt_params small = QN_SMALL_FC_LOPT_DEFAULTS;
  qn_elo_params elo = QN_ELO_DEFAULTS;
  small.lr = elo.lr = c->lr, small.weight_decay = elo.weight_decay = c->weight_decay;
  small.step = elo.step = step, small.pylo_cuda_compat = elo.pylo_cuda_compat = c->compat;
  small.weights = elo.weights = m->weights;
  return strcmp(c->op, "elo") ? step_small_fc(m, NULL, &small) : step_elo(m, NULL, &elo);
}

/* A tensor of a case: four steps, each against its line, then the states. */
static void run_tensor(golden *g, const golden_case *c, size_t which, uint64_t start, uint64_t gradients[4])
{
  const int64_t *shape = golden_shapes[which];
  model m = {0};
  double worst = 0, worst_state = 0;
  bool ran = true;
  char text[64] = "";
  draw_weights(m.weights);
  add_tensor(&m, rank_of(shape), shape);
  const size_t n = m.reference[0].n;
  float *p = data_of(&m, PARAM, 0), *before = malloc(n * sizeof *before);
  set_param(&m, 0, &start, 0.5);
  for (uint64_t t = 0; t < 4; t++) {
    draw_array(&gradients[t], data_of(&m, GRAD, 0), n, 0.02 * (double)(t + 1));
    memcpy(before, p, n * sizeof *p);
    ran = ran && take_step(&m, c, t) == QN_OK && next_line(g) && !strncmp(g->line, "want", 4);
    worst = fmax(worst, ran ? compare(g, p, before, n) : HUGE_VAL);
  }
  for (int role = STATE_M; role < ROLES; role++) {
    ran = ran && next_line(g) && !strncmp(g->line, "state", 5);
    const double least = role == STATE_M && n == 1 ? 0.08 : 0;
    const size_t all = elements(&m.tensor[role][0]), planes = role == STATE_V ? 1 : all ? 3 : 0;
    worst_state = fmax(worst_state, ran ? compare_state(g, data_of(&m, role, 0), all, planes, least) : HUGE_VAL);
  }
  for (int d = 0; d < rank_of(shape); d++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", d ? "x" : "", (int)shape[d]);
  check(ran && worst <= 1 && worst_state <= 1,
        "golden %s, (%s), up to line %ld: parameters within %.2g and states within %.2g of the tolerance", c->name,
        text, g->number, worst, worst_state);
  free(before);
  model_end(&m);
}

/* The line "tensor 7 5" against a shape. */
static bool is_tensor(const char *line, const int64_t shape[5])
{
  const char *at = line + strlen("tensor");
  for (int d = 0; d < rank_of(shape); d++) {
    char *end;
    if (strtol(at, &end, 10) != shape[d]) return false;
    at = end;
  }
  return !at[strspn(at, " \n")];
}

static void test_golden(const char *path)
{
  golden g = {.file = fopen(path, "r")};
  golden_case c = {{0}, {0}, 0, 0, 0};
  size_t next = 0, cases = 0, tensors = 0;
  uint64_t start = 0, gradients[4] = {0};
  if (!check(g.file != NULL, "golden vectors %s", path)) return;
  while (next_line(&g)) {
    if (sscanf(g.line, "case %31s %31s %lf %lf %d", c.name, c.op, &c.lr, &c.weight_decay, &c.compat) == 5) {
      next = 0, start = 21, cases++;
      for (uint64_t t = 0; t < 4; t++) gradients[t] = 100 + t;
      continue;
    }
    /* Shapes that a case leaves out have drawn their numbers too. */
    while (next < sizeof golden_shapes / sizeof *golden_shapes && !is_tensor(g.line, golden_shapes[next])) {
      const size_t n = product(rank_of(golden_shapes[next]), golden_shapes[next]);
      for (size_t k = 0; k < n; k++) draw(&start);
      for (size_t t = 0; t < 4; t++)
        for (size_t k = 0; k < n; k++) draw(&gradients[t]);
      next++;
    }
    if (next == sizeof golden_shapes / sizeof *golden_shapes) break;
    const size_t n = product(rank_of(golden_shapes[next]), golden_shapes[next]);
    uint64_t own = start;
    for (size_t k = 0; k < n; k++) draw(&start);
    run_tensor(&g, &c, next++, own, gradients), tensors++;
  }
  check(cases == 3 && tensors == 13 + 7 + 12, "%zu cases of %zu tensors in all, to the end of the file", cases,
        tensors);
  free(g.line);
  fclose(g.file);
}

/* ---- against the reference in double ---- */

/* Steps of both; the worst share of the tolerance that a parameter takes. */
static double worst_of_steps(model *m, qn_pool *pool, bool elo, const qn_small_fc_lopt_params *small, double scale,
                             int steps)
{
  double worst = 0;
  uint64_t state = 77;
  qn_elo_params as_elo = QN_ELO_DEFAULTS;
  qn_small_fc_lopt_params params = *small;
  params.weights = as_elo.weights = m->weights;
  params.lr_scale = as_elo.lr_scale = m->lr_scale;
  as_elo.lr = 0.01, as_elo.weight_decay = 0.1;
  for (uint64_t t = 0; t < (uint64_t)steps; t++) {
    params.step = as_elo.step = t;
    double *before[MOST];
    for (size_t k = 0; k < m->n; k++) {
      const size_t n = m->reference[k].n;
      draw_array(&state, data_of(m, GRAD, k), n, scale);
      before[k] = malloc((n + 1) * sizeof(double));
      memcpy(before[k], m->reference[k].p, n * sizeof(double));
    }
    step_references(m, elo ? told_elo(m, &as_elo) : told_small_fc(m, &params));
    if ((elo ? step_elo(m, pool, &as_elo) : step_small_fc(m, pool, &params)) != QN_OK) worst = HUGE_VAL;
    for (size_t k = 0; k < m->n; k++) {
      for (size_t i = 0; i < m->reference[k].n; i++)
        worst = fmax(worst, share_of_tolerance((double)data_of(m, PARAM, k)[i], m->reference[k].p[i], before[k][i]));
      free(before[k]);
    }
  }
  return worst;
}

/* Ranks 0 to 5, empty ones, ones of one element, runs shorter and longer than blocks, chunks and sums' pieces. */
static void add_mixture(model *m)
{
  static const struct {
    int ndim;
    int64_t shape[2][5]; /* the second for the host backend, which is slow: short, and still longer than tiles */
  } shapes[] = {{0, {{0}}},
                {1, {{1}}},
                {1, {{0}}},
                {1, {{5000}, {2100}}},
                {2, {{1, 1}}},
                {2, {{0, 7}}},
                {2, {{130, 97}, {66, 36}}},
                {2, {{97, 130}, {9, 140}}},
                {2, {{2, 4200}, {2, 300}}},
                {2, {{4200, 2}, {300, 2}}},
                {2, {{1, 768}, {260, 17}}},
                {3, {{3, 70, 65}, {2, 33, 20}}},
                {4, {{24, 16, 3, 3}}},
                {4, {{20, 3, 8, 8}}},
                {4, {{16, 16, 5, 5}}},
                {5, {{3, 4, 5, 6, 7}}},
                {5, {{1, 1, 9, 1, 1}}}};
  uint64_t state = 5;
  draw_weights(m->weights);
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    add_tensor(m, shapes[k].ndim, shapes[k].shape[on.kind == QN_HOST && shapes[k].shape[1][0]]);
    set_param(m, k, &state, 0.5);
    m->lr_scale[k] = k % 3 ? 1 : 0.25;
  }
}

static void test_mixture(void)
{
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  for (int elo = 0; elo < 2; elo++) {
    model m = {0};
    add_mixture(&m);
    params.weight_decay = 0.01;
    const double worst = worst_of_steps(&m, NULL, elo, &params, 0.02, 2);
    check(worst <= 1, "%s over %zu tensors of all ranks, two steps: within %.2g of the tolerance",
          elo ? "elo" : "small_fc_lopt", m.n, worst);
    model_end(&m);
  }
}

static void test_norm(void)
{
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  model m = {0};
  add_mixture(&m);
  params.max_grad_norm = 0.1;
  const double worst = worst_of_steps(&m, NULL, false, &params, 0.02, 1);
  check(worst <= 1, "gradients of a bounded norm: within %.2g of the tolerance", worst);
  model_end(&m);
}

/* Gradients of zero and of extreme sizes: the roots' arguments are their least terms, or nothing against them. */
static void test_hard_values(void)
{
  static const double scales[] = {0, 1e-30, 1e-12, 1e-4, 1, 1e4, 1e9};
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
    for (int elo = 0; elo < 2; elo++) {
      if (on.kind == QN_HOST && (s % 3 || elo)) continue;
      model m = {0};
      static const int64_t matrix[] = {70, 33}, vector[] = {300}, block[] = {8, 6, 3, 3};
      uint64_t state = 9;
      draw_weights(m.weights);
      add_tensor(&m, 2, matrix), add_tensor(&m, 1, vector), add_tensor(&m, 4, block);
      for (size_t k = 0; k < m.n; k++) set_param(&m, k, &state, 0.5);
      const double worst = worst_of_steps(&m, NULL, elo, &params, scales[s], 3);
      check(worst <= 1, "%s, gradients of up to %g, three steps: within %.2g of the tolerance",
            elo ? "elo" : "small_fc_lopt", scales[s], worst);
      model_end(&m);
    }
}

/* A gradient of zero leaves 1e-30's share in row, column and what stands for them, as the contract has it. */
static void test_zero(void)
{
  static const int64_t matrix[] = {9, 4}, vector[] = {5};
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  model m = {0};
  draw_weights(m.weights);
  add_tensor(&m, 2, matrix), add_tensor(&m, 1, vector);
  params.weights = m.weights;
  const float least = (float)(1 - params.factor_decay0) * 1e-30f;
  bool good = step_small_fc(&m, NULL, &params) == QN_OK;
  for (size_t i = 0; i < 9; i++) {
    const float now[] = {data_of(&m, STATE_ROW, 0)[i % 4], data_of(&m, STATE_COLUMN, 0)[i],
                         data_of(&m, STATE_ROW, 1)[i % 5]};
    for (size_t k = 0; k < 3; k++) good = good && fabsf(now[k] - least) <= 1e-6f * least;
  }
  check(good, "gradients of zero leave %g in the states", (double)least);
  model_end(&m);
}

/* ---- no numbers ---- */

static size_t count_nan(const model *m, size_t k)
{
  size_t n = 0;
  for (size_t i = 0; i < m->reference[k].n; i++) n += isnan(data_of(m, PARAM, k)[i]);
  return n;
}

static void test_nan(void)
{
  static const int64_t shape[] = {40, 30};
  static const float odd[] = {NAN, INFINITY, -INFINITY};
  for (size_t o = 0; o < 3; o++) {
    model m = {0};
    uint64_t state = 9;
    qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
    qn_elo_params elo = QN_ELO_DEFAULTS;
    params.weights = elo.weights = m.weights;
    draw_weights(m.weights);
    for (size_t k = 0; k < 3; k++) {
      add_tensor(&m, 2, shape), set_param(&m, k, &state, 0.5);
      draw_array(&state, data_of(&m, GRAD, k), m.reference[k].n, 0.02);
    }
    data_of(&m, GRAD, 1)[777] = odd[o];
    check(step_small_fc(&m, NULL, &params) == QN_OK && count_nan(&m, 1) == 1200 && !count_nan(&m, 0) &&
              !count_nan(&m, 2),
          "small_fc_lopt, a gradient of %g: its tensor's %zu parameters are NaN, and no other", (double)odd[o],
          count_nan(&m, 1));
    model_end(&m);
  }
  model m = {0};
  uint64_t state = 9;
  qn_elo_params elo = QN_ELO_DEFAULTS;
  draw_weights(m.weights);
  elo.weights = m.weights;
  for (size_t k = 0; k < 2; k++) {
    add_tensor(&m, 2, shape), set_param(&m, k, &state, 0.5);
    memcpy(data_of(&m, PARAM, k), data_of(&m, PARAM, 0), 1200 * sizeof(float));
    uint64_t again = 3;
    draw_array(&again, data_of(&m, GRAD, k), 1200, 0.02);
    data_of(&m, GRAD, k)[77] = k ? NAN : 0;
  }
  check(step_elo(&m, NULL, &elo) == QN_OK &&
            !memcmp(data_of(&m, PARAM, 0), data_of(&m, PARAM, 1), 1200 * sizeof(float)) && !count_nan(&m, 0),
        "elo, a gradient of NaN: as one of zero");
  data_of(&m, GRAD, 1)[77] = -INFINITY;
  check(step_elo(&m, NULL, &elo) == QN_OK && !count_nan(&m, 0) && count_nan(&m, 1) == 1200,
        "elo, an infinite gradient: its square is not a number to go on with");
  model_end(&m);
}

/* ---- the same bits ---- */

static void run_bits(model *m, qn_pool *pool)
{
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  uint64_t state = 31;
  add_mixture(m);
  params.weights = m->weights;
  for (params.step = 3; params.step < 4; params.step++) {
    for (size_t k = 0; k < m->n; k++) draw_array(&state, data_of(m, GRAD, k), m->reference[k].n, 0.02);
    if (step_small_fc(m, pool, &params) != QN_OK) check(false, "step %d", (int)params.step);
  }
}

static bool same_bits(const model *a, const model *b)
{
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < a->n; k++) {
      const size_t bytes = elements(&a->tensor[role][k]) * sizeof(float);
      if (bytes && memcmp(data_of(a, role, k), data_of(b, role, k), bytes)) return false;
    }
  return true;
}

static void test_bits(void)
{
  model one = {0}, other = {0};
  qn_pool *pool = NULL;
  static const char *const tiers[] = {"ref", "avx2", "avx512", "neon"};
  const char *best = NULL;
  run_bits(&one, NULL);
  for (int threads = 2; threads <= 4; threads += 2) {
    qn_pool_create(&pool, threads);
    run_bits(&other, pool);
    check(same_bits(&one, &other), "%d threads give the bits that one gives", threads);
    model_end(&other);
    qn_pool_destroy(&pool);
  }
  qn_cpu_tier(&best);
  for (size_t k = 0; k < 4; k++) {
    const char *now = NULL;
    qn_option_set("cpu", tiers[k]);
    if (qn_cpu_tier(&now) == QN_OK && strcmp(now, best)) {
      run_bits(&other, NULL);
      check(same_bits(&one, &other), "the tier %s gives the bits of %s", now, best);
      model_end(&other);
    }
    qn_option_set("cpu", NULL);
  }
  model_end(&one);
}

/* hyper takes the place of lr, weight_decay and step, bit for bit. */
static void test_hyper(void)
{
  static const int64_t shape[] = {40, 30};
  const qn_lopt_hyper hyper = {.lr = 0.3, .weight_decay = 0.02, .step = 7};
  for (int elo = 0; elo < 2; elo++) {
    model m[2] = {{0}};
    bool ran = true;
    for (size_t k = 0; k < 2; k++) {
      uint64_t state = 9;
      qn_small_fc_lopt_params small = QN_SMALL_FC_LOPT_DEFAULTS;
      qn_elo_params of_elo = QN_ELO_DEFAULTS;
      draw_weights(m[k].weights);
      add_tensor(&m[k], 2, shape), set_param(&m[k], 0, &state, 0.5);
      draw_array(&state, data_of(&m[k], GRAD, 0), 1200, 0.02);
      small.weights = of_elo.weights = m[k].weights;
      small.lr = of_elo.lr = k ? NAN : 0.3, small.weight_decay = of_elo.weight_decay = k ? NAN : 0.02;
      small.step = of_elo.step = k ? 0 : 7;
      if (k) small.hyper = of_elo.hyper = &hyper;
      ran = ran && (elo ? step_elo(&m[k], NULL, &of_elo) : step_small_fc(&m[k], NULL, &small)) == QN_OK;
    }
    check(ran && same_bits(&m[0], &m[1]), "%s: hyper takes the place of lr, weight_decay and step",
          elo ? "elo" : "small_fc_lopt");
    model_end(&m[0]), model_end(&m[1]);
  }
}

/* On a device: twice, and at other alignments. */
static void test_again(void)
{
  model one = {0}, other = {0};
  run_bits(&one, NULL);
  for (shift_of_step = 0; shift_of_step <= 4; shift_of_step += 4) {
    run_bits(&other, NULL);
    check(same_bits(&one, &other), "tensors %zu bytes beyond an aligned place: the same bits", shift_of_step);
    model_end(&other);
  }
  shift_of_step = 0;
  model_end(&one);
}

/* Groups: what comes behind a tensor that fills a group gets what it gets alone. */
static void test_groups(void)
{
  static const int64_t large[] = {1030, 1020}, small[] = {90, 50};
  model all = {0}, alone = {0};
  uint64_t state = 4;
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  qn_pool *pool = NULL;
  qn_pool_create(&pool, 2);
  draw_weights(all.weights);
  params.weights = all.weights;
  add_tensor(&all, 2, large), add_tensor(&all, 2, small), add_tensor(&alone, 2, small);
  for (size_t k = 0; k < 2; k++) {
    set_param(&all, k, &state, 0.5);
    draw_array(&state, data_of(&all, GRAD, k), all.reference[k].n, 0.02);
  }
  memcpy(data_of(&alone, PARAM, 0), data_of(&all, PARAM, 1), 4500 * sizeof(float));
  memcpy(data_of(&alone, GRAD, 0), data_of(&all, GRAD, 1), 4500 * sizeof(float));
  const bool ran = step_small_fc(&all, pool, &params) == QN_OK && step_small_fc(&alone, pool, &params) == QN_OK;
  check(ran && !memcmp(data_of(&all, PARAM, 1), data_of(&alone, PARAM, 0), 4500 * sizeof(float)),
        "a tensor in a second group gets what it gets alone");
  model_end(&all), model_end(&alone);
  qn_pool_destroy(&pool);
}

int main(int count, char **arguments)
{
  if (count > 2 && !check(qn_device_from_name(arguments[2], &on) == QN_OK, "the device %s", arguments[2]))
    return test_end();
  if (count > 1) test_golden(arguments[1]);
  test_mixture();
  test_norm();
  test_hard_values();
  test_zero();
  test_nan();
  test_hyper();
  if (on.kind == QN_CPU) {
    test_bits();
    test_groups();
  } else {
    test_again();
  }
  return test_end();
}
