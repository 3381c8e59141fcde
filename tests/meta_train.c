/* SPDX-License-Identifier: Apache-2.0 */
/* meta_train.c - meta-training's kernels on the emulator: a particle's gradients against differences of its loss, its
 * steps against small_fc_lopt's own, what a pair has in common, the estimate against the differences that it is made
 * of; runs that repeat, go on and are refused. */
#include "jit/jit.h"
#include "op/lopt/meta.train.h"
#include "quern/small_fc_lopt.h"
#include "scratch.h"
#include "test.h"
#include "workbench/op_check.h"
#include <math.h>
#include <unistd.h>

enum { MOST_FLOATS = 40000, PARTICLES = 2 };
static const qn_device device = {QN_EMULATOR, 0};
static float slab[PARTICLES * MOST_FLOATS], before[PARTICLES * MOST_FLOATS], theta[QN_META_WEIGHTS], loss[PARTICLES];
static qn_meta_pair pair;
static qn_meta_group group[QN_META_GROUPS];

static const qn_device_function *kernel(const char *name)
{
  const qn_device_function *function = NULL;
  const qn_unit unit = {
      .source = "op/lopt/meta.cu",
      .defines = (const char *const[]){"QN_LOPT_GRADIENT=0", "QN_LOPT_BOUNDED=0", "QN_LOPT_PRECISION=2", NULL}};
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
  const qn_small_fc_lopt_params p = QN_SMALL_FC_LOPT_DEFAULTS;
  const double m[3] = {p.m_decay0, p.m_decay1, p.m_decay2}, f[3] = {p.factor_decay0, p.factor_decay1, p.factor_decay2};
  qn_meta_window a = {.group = group[0],
                      .slabs = slab,
                      .theta = theta,
                      .pair = &pair,
                      .loss = loss,
                      .seed = 5,
                      .steps = steps,
                      .sigma = sigma,
                      .step = (float)(p.lr * p.step_mult),
                      .exp_mult = (float)p.exp_mult,
                      .v = (float)p.v_decay,
                      .v_rest = (float)(1 - p.v_decay)};
  for (int k = 0; k < 3; k++) {
    a.m[k] = (float)m[k], a.m_rest[k] = (float)(1 - m[k]);
    a.f[k] = (float)f[k], a.f_rest[k] = (float)(1 - f[k]);
  }
  launch("meta_window", 2, group[0].shared_bytes, &a, sizeof a);
}

static void begin(const char *text, qn_u64 episode)
{
  size_t n;
  check(qn_meta_groups_read(text, group, &n) == QN_OK && n == 1 && group[0].floats <= MOST_FLOATS, "%s: %u floats",
        text, group[0].floats);
  qn_meta_first_weights(3, theta);
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

/* The same step by the op itself, of the numbers in `before` with the gradient in the slab. */
static double step_by_op(const qn_meta_tensor *t, uint64_t step)
{
  static char memory[1 << 20];
  static float m[3 * 4096], state[2][3 * 256], p[4096], v[4096];
  const double scale = (double)t->lr_scale;
  const int64_t o = t->outputs, i = t->inputs;
  const bool row = i && o > i; /* the side that the contract calls the row */
  const int64_t shape[] = {o, i}, of_m[] = {3, o, i}, of_row[] = {3, row ? i : o},
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
  const qn_tensor at[6] = {TENSOR(p, ndim, shape),        TENSOR(slab + t->g, ndim, shape),
                           TENSOR(m, ndim + 1, of_m),     TENSOR(v, ndim, shape),
                           TENSOR(state[row], 2, of_row), TENSOR(state[!row], i ? 2 : 1, of_column)};
#undef TENSOR
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  params.weights = theta, params.step = step, params.lr_scale = &scale;
  const qn_exec exec = {
      .size = sizeof exec, .device = {QN_CPU, 0}, .workspace = memory, .workspace_bytes = sizeof memory};
  double worst = 0, moved = 1e-9;
  if (qn_small_fc_lopt_step(&exec, &params, 1, &at[0], &at[1], &at[2], &at[3], &at[4], &at[5]) != QN_OK) {
    printf("# %s\n", qn_last_error());
    return HUGE_VAL;
  }
  for (qn_u32 k = 0; k < t->n; k++) {
    moved = fmax(moved, fabs((double)p[k] - (double)before[t->p + k]));
    worst = larger(worst, fabs((double)p[k] - (double)slab[t->p + k]));
    for (qn_u32 d = 0; d < 3; d++)
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
    check(worst <= 3e-4, "%s, step %u: parameters and means are the op's to %.2g of the greatest move", text, step,
          worst);
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
  static float m[QN_META_WEIGHTS], v[QN_META_WEIGHTS], moved[QN_META_WEIGHTS];
  const qn_meta_pair two[2] = {{1, 0, 10}, {2, 0, 10}};
  const float one_sided[4] = {1.1f, 1.0f, 1.0f, 1.0f}, other_sided[4] = {1.0f, 1.1f, 1.0f, 1.0f};
  float step[2][QN_META_WEIGHTS];
  memcpy(moved, theta, sizeof theta);
  for (int k = 0; k < 2; k++) {
    memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    memcpy(theta, moved, sizeof theta);
    const qn_meta_outer a = {theta, m, v, two, k ? other_sided : one_sided, 5, 2, 1, 0.01f, 0.002f, 0.3f};
    launch("meta_outer", (QN_META_WEIGHTS + QN_META_OUTER_WEIGHTS - 1) / QN_META_OUTER_WEIGHTS, 0, &a, sizeof a);
    for (int i = 0; i < QN_META_WEIGHTS; i++) step[k][i] = theta[i] - moved[i];
  }
  int opposite = 0;
  for (int i = 0; i < QN_META_WEIGHTS; i++)
    opposite += fabsf(step[0][i] + step[1][i]) < 1e-6f && fabsf(step[0][i]) > 1e-3f;
  check(opposite > QN_META_WEIGHTS * 99 / 100, "turned losses turn the step: %d of %d weights", opposite,
        (int)QN_META_WEIGHTS);
}

/* ---- runs ---- */
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
  static const qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  extern const qn_op qn_op_small_fc_lopt;
  const qn_meta_order order = {.device = device,
                               .op = &qn_op_small_fc_lopt,
                               .params = &params,
                               .groups = "3x4-4-2@4",
                               .out = out,
                               .command = "",
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
  return qn_op_check_of(&qn_op_small_fc_lopt)->meta_train(&order, done);
}

static void test_runs(void)
{
  char whole[256], parts[256];
  uint32_t done;
  size_t one, other;
  snprintf(whole, sizeof whole, "%s", scratch_path("whole.safetensors"));
  snprintf(parts, sizeof parts, "%s", scratch_path("parts.safetensors"));
  check(run(whole, 6, 0, false, 1, &done) == QN_OK && done == 6, "a run of 6 outer steps");
  check(run(parts, 6, 1e-9, false, 1, &done) == QN_OK && done == 2, "a run out of time ends behind a piece");
  check(run(parts, 6, 0, true, 1, &done) == QN_OK && done == 6, "and goes on");
  const char *a = file_of(whole, &one), *b = file_of(parts, &other);
  check(one > 9000 && one == other && !memcmp(a, b, one), "to the same file of %zu bytes", one);
  float weights[QN_META_WEIGHTS];
  check(qn_lopt_weights_read(QN_LOPT_SMALL_FC, whole, weights, QN_META_WEIGHTS) == QN_OK, "which an optimizer reads");
  qn_meta_first_weights(1, theta);
  check(memcmp(weights, theta, sizeof theta) != 0, "the weights have moved");
  refuses(run(parts, 6, 0, true, 2, &done), QN_BAD_ARGUMENT, "of another run");
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
    refuses(qn_meta_groups_read(bad[k], group, &n), QN_BAD_ARGUMENT, "groups");
  refuses(qn_meta_groups_read("1x256-256-256-8@128", group, &n), QN_BAD_ARGUMENT, "shared memory");
}

int main(void)
{
  scratch_begin();
  test_gradients("1x12-8-3@5", 2); /* episodes 2, 4 and 7 have other activations */
  test_gradients("1x8-8-12-5@8", 4);
  test_gradients("1x4-2@3", 7);
  test_steps("1x12-8-3@5");
  test_steps("1x20-36-8-6@8");
  test_pair();
  test_outer();
  test_runs();
  test_groups();
  return test_end();
}
