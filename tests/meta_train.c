/* SPDX-License-Identifier: Apache-2.0 */
/* meta_train.c - meta-training's kernels on the emulator: a particle's gradients against differences of its loss, its
 * steps against the op's own, the equal parts of a pair, the gradient's estimate against a pair's losses; runs that
 * repeat, resume and are refused. Each op whose network can be trained is the `subject` in turn. */
#include "jit/jit.h"
#include "op/lopt/meta.train.h"
#include "op/lopt/lopt.h"
#include "quern/celo2.h"
#include "quern/elo.h"
#include "quern/small_fc_lopt.h"
#include "scratch.h"
#include "test.h"
#include "workbench/build.h"
#include "workbench/op_check.h"
#include <math.h>
#include <unistd.h>

enum { MOST_FLOATS = 40000, PARTICLES = 2, MOST_WEIGHTS = QN_LOPT_SMALL_FC_WEIGHTS };
static const qn_device device = {QN_EMULATOR, 0};
static float slab[PARTICLES * MOST_FLOATS], before[PARTICLES * MOST_FLOATS], theta[MOST_WEIGHTS], loss[PARTICLES];
static qn_meta_pair pair;
static qn_meta_group group[QN_META_GROUPS];

/* An op, its settings, and a step of its own with them. */
typedef struct subject_of {
  const char *name;
  const void *params;
  qn_status (*step)(const qn_exec *exec, uint64_t step, const double *scale, const qn_tensor at[6]);
} subject_of;
static const subject_of *subject;
static const qn_op *op;
static const qn_meta_network *network;

static void take(const subject_of *of)
{
  const qn_op_info *info = NULL;
  if (qn_op_find(of->name, &info) != QN_OK) printf("Bail out! %s\n", qn_last_error());
  subject = of, op = qn_op_of(info), network = qn_op_check_of(op)->meta;
}

static const qn_device_function *kernel(const char *name)
{
  const qn_device_function *function = NULL;
  qn_meta_defines defines;
  qn_meta_define(op, subject->params, &defines);
  const qn_unit unit = {.source = network->source, .defines = defines.all};
  if (qn_jit_function(device, &unit, name, &function) != QN_OK) printf("Bail out! %s\n", qn_last_error());
  return function;
}

static void launch(const char *name, uint64_t blocks, uint32_t shared_bytes, const void *argument, size_t bytes)
{
  const qn_backend *backend = NULL;
  qn_status status = qn_backend_of(device, &backend);
  if (status == QN_OK)
    status = backend->launch(device, kernel(name),
                             &(qn_launch){.blocks = blocks,
                                          .threads = QN_META_THREADS,
                                          .shared_bytes = shared_bytes,
                                          .argument = argument,
                                          .argument_bytes = bytes});
  if (status != QN_OK) printf("Bail out! %s\n", qn_last_error());
}

/* The pair trains for some steps from pair.step on. */
static void train(qn_u32 steps, float sigma)
{
  qn_meta_window_of a;
  qn_meta_begin_window(op, subject->params, &a);
  a.of.group = group[0], a.of.slabs = slab, a.of.theta = theta, a.of.pair = &pair, a.of.loss = loss;
  a.of.seed = 5, a.of.steps = steps, a.of.sigma = sigma;
  launch("meta_window", 2, group[0].shared_bytes, &a, sizeof a.of + network->own_bytes);
}

static void begin(const char *text, qn_u64 episode)
{
  size_t n;
  check(qn_meta_groups_read(network, text, group, &n) == QN_OK && n == 1 && group[0].floats <= MOST_FLOATS,
        "%s: %u floats", text, group[0].floats);
  qn_meta_first_weights(network, 3, theta);
  memset(slab, 0x7f, sizeof slab); /* an episode begins whatever there was */
  pair = (qn_meta_pair){episode, 0, 100};
  train(1, 0);
  pair.step = 1;
  memcpy(before, slab, sizeof slab);
}

static float loss_at(qn_u32 place, float off)
{
  memcpy(slab, before, sizeof slab);
  slab[place] += off;
  train(1, 0);
  return loss[0];
}

/* Unlike fmax it keeps a NaN. */
static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

/* In each tensor the gradients of a few parameters, by differences of the loss of the same batch. */
static void test_gradients(const char *text, qn_u64 episode)
{
  static float g[MOST_FLOATS];
  begin(text, episode);
  train(1, 0);
  memcpy(g, slab, sizeof g);
  for (qn_u32 k = 0; k < group[0].tensors; k++) {
    const qn_meta_tensor *t = &group[0].tensor[k];
    double worst = 0, size = 1e-3;
    for (qn_u32 i = 0; i < t->n; i += 1 + t->n / 7) {
      const float off = 4e-3f;
      const double difference = ((double)loss_at(t->p + i, off) - (double)loss_at(t->p + i, -off)) / (2 * (double)off);
      worst = larger(worst, fabs(difference - (double)g[t->g + i]));
      size = fmax(size, fabs(difference));
    }
    check(worst <= 0.02 * size, "%s, tensor %u: gradients agree with differences of the loss to %.2g of %.2g", text, k,
          worst, size);
  }
}

/* Three decays of n places, which lie `apart` in a slab, side by side. */
static void copy_decays(float *to, const float *from, qn_u32 n, qn_u32 apart)
{
  for (qn_u32 d = 0; d < 3; d++) memcpy(to + d * n, from + d * apart, n * sizeof *to);
}

/* ---- the ops' steps, of their weights in theta ---- */
#define SUBJECT(op, type, ...)                                                                                         \
  static type op##_params = __VA_ARGS__;                                                                               \
  static qn_status step_##op(const qn_exec *exec, uint64_t step, const double *scale, const qn_tensor at[6])           \
  {                                                                                                                    \
    type params = op##_params;                                                                                         \
    params.weights = theta, params.step = step, params.lr_scale = scale;                                               \
    return qn_##op##_step(exec, &params, 1, &at[0], &at[1], &at[2], &at[3], &at[4], &at[5]);                           \
  }
SUBJECT(small_fc_lopt, qn_small_fc_lopt_params, QN_SMALL_FC_LOPT_DEFAULTS)
SUBJECT(elo, qn_elo_params, QN_ELO_DEFAULTS)
SUBJECT(celo2, qn_celo2_params, QN_CELO2_DEFAULTS)
#undef SUBJECT

/* The same step by the op itself, of the numbers in `before` with the gradient in the slab. */
static double step_by_op(const qn_meta_tensor *t, uint64_t step)
{
  static char memory[1 << 20];
  static float m[3 * 4096], state[2][3 * 256], p[4096], v[4096];
  const double scale = (double)t->lr_scale;
  const int64_t o = t->outputs, i = t->inputs;
  const bool row = i && o > i, plain = network->orthogonal && !i; /* row: the side that the contract calls so */
  const int64_t shape[] = {o, i}, of_m[] = {3, o, i}, of_row[] = {plain ? 0 : 3, row ? i : o},
                of_column[] = {i ? 3 : 0, row ? o : i};
  const int ndim = i ? 2 : 1;
  copy_decays(m, before + t->m, t->n, t->padded);
  copy_decays(state[0], before + t->state[0], t->outputs, t->places);
  copy_decays(state[1], before + t->state[1], t->inputs, t->inputs);
  memcpy(p, before + t->p, t->n * sizeof *p), memcpy(v, before + t->v, t->n * sizeof *v);
#define TENSOR(data, ndim, shape)                                                                                      \
  {                                                                                                                    \
    data, QN_F32, ndim, shape, NULL, { QN_CPU, 0 }                                                                     \
  }
  const qn_tensor at[6] = {TENSOR(p, ndim, shape),
                           TENSOR(slab + t->g, ndim, shape),
                           TENSOR(m, plain ? 1 : ndim + 1, plain ? shape : of_m),
                           TENSOR(v, ndim, shape),
                           TENSOR(state[row], plain ? 1 : 2, of_row),
                           TENSOR(state[!row], i ? 2 : 1, of_column)};
#undef TENSOR
  const qn_exec exec = {
      .size = sizeof exec, .device = {QN_CPU, 0}, .workspace = memory, .workspace_bytes = sizeof memory};
  double worst = 0, moved = 1e-9;
  if (subject->step(&exec, step, &scale, at) != QN_OK) {
    printf("# %s\n", qn_last_error());
    return HUGE_VAL;
  }
  for (qn_u32 k = 0; k < t->n; k++) {
    moved = fmax(moved, fabs((double)p[k] - (double)before[t->p + k]));
    worst = larger(worst, fabs((double)p[k] - (double)slab[t->p + k]));
    for (qn_u32 d = 0; d < (plain ? 1 : 3); d++)
      worst = larger(worst, fabs((double)m[d * t->n + k] - (double)slab[t->m + d * t->padded + k]));
    worst = larger(worst, fabs((double)v[k] - (double)slab[t->v + k]));
  }
  return worst / moved;
}

static void test_steps(const char *text)
{
  begin(text, 9);
  for (qn_u32 step = 1; step < 4; step++) {
    pair.step = step;
    train(1, 0);
    double worst = 0;
    for (qn_u32 k = 0; k < group[0].tensors; k++) worst = larger(worst, step_by_op(&group[0].tensor[k], step));
    check(worst <= 3e-4, "%s, %s, step %u: parameters and means are the op's to %.2g of the greatest move",
          subject->name, text, step, worst);
    memcpy(before, slab, sizeof slab);
  }
}

static void test_pair(void)
{
  begin("1x12-8-3@5", 2);
  const qn_u32 floats = group[0].floats;
  check(!memcmp(slab, slab + floats, floats * sizeof *slab) && loss[0] == loss[1],
        "without a sigma both of a pair do the same");
  pair = (qn_meta_pair){2, 0, 100};
  train(1, 0.02f);
  check(loss[0] == loss[1] && memcmp(slab + group[0].tensor[0].p, slab + floats + group[0].tensor[0].p, 4) != 0,
        "with one they have the same start and data, and go apart");
  const float was = loss[0];
  pair.episode = 3;
  train(1, 0);
  check(loss[0] != was, "another episode is another task");
}

/* Of two pairs with known losses the first step of theta: a sign, since Adam's first step is one. */
static void test_outer(void)
{
  static float m[MOST_WEIGHTS], v[MOST_WEIGHTS], moved[MOST_WEIGHTS];
  const qn_meta_pair two[2] = {{1, 0, 10}, {2, 0, 10}};
  const float one_sided[4] = {1.1f, 1.0f, 1.0f, 1.0f}, other_sided[4] = {1.0f, 1.1f, 1.0f, 1.0f};
  float step[2][MOST_WEIGHTS];
  const int weights = (int)network->weights;
  memcpy(moved, theta, sizeof theta);
  for (int k = 0; k < 2; k++) {
    memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    memcpy(theta, moved, sizeof theta);
    const qn_meta_outer a = {theta, m, v, two, k ? other_sided : one_sided, 5, 2, 1, 0.01f, 0.002f, 0.3f};
    launch("meta_outer", qn_lopt_ceiling(network->weights, QN_META_OUTER_WEIGHTS), 0, &a, sizeof a);
    for (int i = 0; i < weights; i++) step[k][i] = theta[i] - moved[i];
  }
  int opposite = 0;
  for (int i = 0; i < weights; i++) opposite += fabsf(step[0][i] + step[1][i]) < 1e-6f && fabsf(step[0][i]) > 1e-3f;
  check(opposite > weights * 98 / 100, "turned losses turn the step: %d of %d weights", opposite, weights);
}

/* A layer's weights begin with a variance of 1 over its inputs, cut at two deviations, biases as zeros. */
static void test_first_weights(size_t begin, size_t outputs, size_t inputs)
{
  double sum = 0, most = 0, biases = 0;
  qn_meta_first_weights(network, 4, theta);
  for (size_t k = begin; k < begin + outputs * inputs; k++) {
    const double x = (double)theta[k] * sqrt((double)inputs);
    sum += x * x, most = larger(most, fabs(x));
  }
  for (size_t k = 0; k < outputs; k++) biases = larger(biases, fabs((double)theta[begin + outputs * inputs + k]));
  sum /= (double)(outputs * inputs);
  check(sum > 0.5 && sum < 1 && most > 1.5 && most < 2.001 && biases == 0,
        "%s, a layer of %zu inputs: a variance of %.2g and at most %.3g, by 1 over the inputs", subject->name, inputs,
        sum, most);
}

/* ---- runs ---- */
extern const qn_op qn_op_elo, qn_op_small_fc_lopt;

static char *file_of(const char *path, size_t *bytes)
{
  static char data[3][1 << 16];
  static unsigned turn;
  char *const to = data[turn++ % 3];
  FILE *file = fopen(path, "rb");
  *bytes = file ? fread(to, 1, sizeof data[0], file) : 0;
  if (file) fclose(file);
  return to;
}

static qn_status run(const char *out, uint32_t steps, double budget_s, bool resume, uint64_t seed, uint32_t *done)
{
  const qn_meta_order order = {.device = device,
                               .op = op,
                               .params = op->info.defaults,
                               .groups = "3x4-4-2@4",
                               .out = out,
                               .command = "quern",
                               .seed = seed,
                               .steps = steps,
                               .piece = 2,
                               .window = 3,
                               .shortest = 4,
                               .longest = 8,
                               .lr = 0.01,
                               .sigma = 0.01,
                               .most = 0.3,
                               .budget_s = budget_s,
                               .resume = resume};
  return qn_op_check_of(op)->meta_train(&order, done);
}

static void test_runs(void)
{
  char whole[256], parts[256], said[256];
  uint32_t done;
  size_t one, other;
  snprintf(whole, sizeof whole, "%s", scratch_path("whole.safetensors"));
  snprintf(parts, sizeof parts, "%s", scratch_path("parts.safetensors"));
  check(run(whole, 6, 0, false, 1, &done) == QN_OK && done == 6, "a run of 6 outer steps");
  check(run(parts, 6, 1e-9, false, 1, &done) == QN_OK && done == 2, "a run out of time ends behind a piece");
  check(run(parts, 6, 0, true, 1, &done) == QN_OK && done == 6, "and goes on");
  const char *a = file_of(whole, &one), *b = file_of(parts, &other);
  check(one > network->weights * sizeof(float) && one == other && !memcmp(a, b, one), "to the same file of %zu bytes",
        one);
  snprintf(said, sizeof said,
           "\"op\":\"%s\",\"command\":\"quern\",\"commit\":\"%s\",\"seed\":\"1\",\"tasks\":\"3x4-4-2@4\"",
           subject->name, qn_build_commit);
  check(memmem(a, one, said, strlen(said)) != NULL, "which says %s", said);
  check(!memmem(a, one, "\"fan_in\":\"", 10) == !network->fan_in, "and whether rates are divided by inputs");
  float weights[MOST_WEIGHTS];
  check(qn_lopt_weights_read(network->kind, whole, weights, network->weights) == QN_OK, "which an optimizer reads");
  qn_meta_first_weights(network, 1, theta);
  check(memcmp(weights, theta, network->weights * sizeof *theta) != 0, "the weights have moved");
  refuses(run(parts, 6, 0, true, 2, &done), QN_BAD_ARGUMENT, "of another run");
  const qn_op *const own = op;
  op = op == &qn_op_small_fc_lopt ? &qn_op_elo : &qn_op_small_fc_lopt;
  refuses(run(parts, 6, 0, true, 1, &done), network->orthogonal ? QN_BAD_FILE : QN_BAD_ARGUMENT,
          network->orthogonal ? "no state" : "of another run");
  op = own;
  check(run(parts, 6, 0, false, 2, &done) == QN_OK, "another seed");
  b = file_of(parts, &other);
  check(memcmp(a, b, one) != 0, "gives other weights");
  refuses(run("/nowhere/x", 2, 0, false, 1, &done), QN_IO_ERROR, "/nowhere/x");
}

static void test_groups(void)
{
  static const char *const bad[] = {"",        "x",         "0x4-2@1",        "1x4@1",    "1x4-1@1",
                                    "1x4-2@0", "1x4-2@129", "1x257-2@1",      "1x4-2@1,", "1x4-2@1x",
                                    "1x6-2@1", "1x4-6-2@1", "1x4-2-2-2-2-2@1"};
  size_t n;
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
    refuses(qn_meta_groups_read(network, bad[k], group, &n), QN_BAD_ARGUMENT, "groups");
  refuses(qn_meta_groups_read(network, "1x256-256-256-8@128", group, &n), QN_BAD_ARGUMENT, "shared memory");
}

int main(void)
{
  static const subject_of all[] = {{"small_fc_lopt", &small_fc_lopt_params, step_small_fc_lopt},
                                   {"elo", &elo_params, step_elo},
                                   {"celo2", &celo2_params, step_celo2}};
  scratch_begin();
  take(&all[0]);
  test_gradients("1x12-8-3@5", 2); /* episodes 2, 4 and 7 have other activations */
  test_gradients("1x8-8-12-5@8", 4);
  test_gradients("1x4-2@3", 7);
  test_groups();
  small_fc_lopt_params.weight_decay = elo_params.weight_decay = celo2_params.weight_decay = 0.2;
  celo2_params.exp_mult = 0.1, celo2_params.rms_mult = 0.7;
  celo2_params.adam_lr_mult = 2, celo2_params.adam_weight_decay = 0.1;
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    take(&all[k]);
    test_first_weights(0, network->orthogonal ? 8 : 32, network->orthogonal ? 30 : 39);
    test_first_weights(network->orthogonal ? 248 : 1280, network->orthogonal ? 8 : 32, network->orthogonal ? 8 : 32);
    test_steps("1x12-8-3@5");
    test_steps("1x20-36-8-6@8");
    test_pair();
    test_outer();
    test_runs();
  }
  return test_end();
}
