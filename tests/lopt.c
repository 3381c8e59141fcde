/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.c - what `quern check` does not ask of small_fc_lopt and elo: gradients that are no numbers, the least that
 * states become, numbers in device memory, hidden values past what f16 holds, how many launches a step is, a list of
 * more than one group. */
#include "lopt_model.h"
#include "quern/runtime.h"

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
    params.weights = m.weights;
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
  static const int64_t line[] = {33};
  add_tensor(&m, 1, line), set_param(&m, 2, &state, 0.5);
  draw_array(&state, data_of(&m, GRAD, 2), 33, 0.02);
  data_of(&m, GRAD, 2)[5] = INFINITY;
  check(step_elo(&m, NULL, &elo) == QN_OK && count_nan(&m, 2) == 1 && isnan(data_of(&m, PARAM, 2)[5]),
        "of a tensor of one dimension that parameter alone is none: %zu are", count_nan(&m, 2));
  model_end(&m);
}

/* ---- the same bits ---- */

static bool same_bits(const model *a, const model *b)
{
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < a->n; k++) {
      const size_t bytes = elements(&a->tensor[role][k]) * sizeof(float);
      if (bytes && memcmp(data_of(a, role, k), data_of(b, role, k), bytes)) return false;
    }
  return true;
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

/* The first layer and the second's bias times a power of two, the last layer by it: the same numbers come out, though
 * hidden values no longer lie within f16, whose products the default class takes. */
static void scale_weights(float *weights, float times)
{
  enum { W2 = 32 * 40, B2 = W2 + 32 * 32, W3 = B2 + 32, B3 = W3 + 2 * 32 };
  for (size_t i = 0; i < W2; i++) weights[i] *= times;
  for (size_t i = B2; i < W3; i++) weights[i] *= times;
  for (size_t i = W3; i < B3; i++) weights[i] /= times;
}

static double worst_between(const model *a, const model *b)
{
  double worst = 0;
  for (size_t i = 0; i < a->reference[0].n; i++) {
    const double got = (double)data_of(b, PARAM, 0)[i], want = (double)data_of(a, PARAM, 0)[i];
    const double share = share_of_tolerance(got, want, a->reference[0].p[i]);
    if (share > worst) worst = share;
  }
  return worst;
}

static void test_large_weights(void)
{
  static const int64_t shape[] = {40, 30};
  model m[2] = {{0}};
  bool ran = true;
  for (size_t k = 0; k < 2; k++) {
    uint64_t state = 9;
    qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
    draw_weights(m[k].weights);
    if (k) scale_weights(m[k].weights, 0x1p16f);
    add_tensor(&m[k], 2, shape), set_param(&m[k], 0, &state, 0.5);
    draw_array(&state, data_of(&m[k], GRAD, 0), 1200, 0.02);
    params.weights = m[k].weights;
    ran = ran && step_small_fc(&m[k], NULL, &params) == QN_OK;
  }
  const double worst = worst_between(&m[0], &m[1]);
  check(ran && worst <= 1, "weights that make hidden values 2^16 times as large: %.2f of the tolerance", worst);
  model_end(&m[0]), model_end(&m[1]);
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

/* lopt [DEVICE|groups]: a list of more than one group has a million elements, too many for an emulated processor. */
/* ---- launches ---- */

/* Of one step over so many matrices and vectors. */
static uint64_t launches_of(bool elo, size_t pairs)
{
  static const int64_t matrix[] = {40, 30}, vector[] = {30};
  qn_small_fc_lopt_params small = QN_SMALL_FC_LOPT_DEFAULTS;
  qn_elo_params other = QN_ELO_DEFAULTS;
  model m = {0};
  draw_weights(m.weights);
  small.weights = other.weights = m.weights;
  for (size_t k = 0; k < pairs; k++) add_tensor(&m, 2, matrix), add_tensor(&m, 1, vector);
  const uint64_t before = qn_launch_count();
  const bool ran = (elo ? step_elo(&m, NULL, &other) : step_small_fc(&m, NULL, &small)) == QN_OK;
  const uint64_t launches = qn_launch_count() - before;
  model_end(&m);
  return ran ? launches : UINT64_MAX;
}

/* As many whatever the list's length: a table, the phases, and what is taken element by element. */
static void test_launches(void)
{
  for (int elo = 0; elo < 2; elo++) {
    const uint64_t few = launches_of(elo, 1), many = launches_of(elo, MOST / 2);
    check(few == many && few == (on.kind == QN_CPU ? 0 : 11), "%s: %llu launches a step, over 2 tensors and over %d",
          elo ? "elo" : "small_fc_lopt", (unsigned long long)few, MOST);
  }
}

int main(int count, char **arguments)
{
  const char *what = count > 1 ? arguments[1] : "cpu";
  const bool groups = !strcmp(what, "groups");
  if (!groups && !check(qn_device_from_name(what, &on) == QN_OK, "the device %s", what)) return test_end();
  test_zero();
  test_nan();
  test_hyper();
  test_large_weights();
  test_launches();
  if (groups) test_groups();
  return test_end();
}
