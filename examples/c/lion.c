/* SPDX-License-Identifier: Apache-2.0 */
/* lion.c - a whole C program: it fits y = w x + b with Lion, over a list of two tensors. docs/c.md walks through it.
 *     cc lion.c -o lion $(pkg-config --cflags --libs quern) && ./lion */
#include <quern/quern.h>
#include <stdio.h>

enum { POINTS = 32, STEPS = 400 };

typedef struct model {
  float w[2][2], b[2];                   /* the trained values, */
  float grad_w[2][2], grad_b[2];         /* its gradients, */
  float momentum_w[2][2], momentum_b[2]; /* and what Lion keeps from step to step: zeros at first */
} model;

/* The mean square error over points on a plane, and its gradients. */
static double gradients(model *m)
{
  double loss = 0;
  for (int r = 0; r < 2; r++) m->grad_b[r] = m->grad_w[r][0] = m->grad_w[r][1] = 0;
  for (int k = 0; k < POINTS; k++) {
    const float x[2] = {(float)(k % 8) / 8, (float)k / POINTS};
    const float y[2] = {x[0] - 2 * x[1] + 0.5f, 3 * x[1]};
    for (int r = 0; r < 2; r++) {
      const float error = m->w[r][0] * x[0] + m->w[r][1] * x[1] + m->b[r] - y[r];
      for (int c = 0; c < 2; c++) m->grad_w[r][c] += error * x[c] / POINTS;
      m->grad_b[r] += error / POINTS;
      loss += 0.5 * (double)error * (double)error / POINTS;
    }
  }
  return loss;
}

static qn_status train(model *m)
{
  /* README: begin */
  const int64_t shape[2] = {2, 2};   /* of w; the last extent alone is that of b */
  const qn_device cpu = {QN_CPU, 0}; /* with {QN_CUDA, 0} the data below are pointers to device memory */
  const qn_tensor param[2] = {{m->w, QN_F32, 2, shape, NULL, cpu}, {m->b, QN_F32, 1, shape + 1, NULL, cpu}};
  const qn_tensor grad[2] = {{m->grad_w, QN_F32, 2, shape, NULL, cpu}, {m->grad_b, QN_F32, 1, shape + 1, NULL, cpu}};
  const qn_tensor momentum[2] = {{m->momentum_w, QN_F32, 2, shape, NULL, cpu},
                                 {m->momentum_b, QN_F32, 1, shape + 1, NULL, cpu}};
  qn_exec exec = {.size = sizeof exec, .device = cpu}; /* .stream on a GPU, .pool for more threads than this one */
  qn_lion_params params = QN_LION_DEFAULTS;
  params.lr = 0.03;

  qn_lion_plan *plan = NULL; /* the list, checked once */
  qn_status status = qn_lion_plan_create(&plan, &exec, &params, 2, param, grad, momentum, NULL);
  for (int step = 0; status == QN_OK && step < STEPS; step++) {
    const double loss = gradients(m);
    if (step % 100 == 0) printf("step %3d: loss %.6f\n", step, loss);
    params.lr = 0.03 * (1 - (double)step / STEPS);
    status = qn_lion_plan_step(plan, &exec, &params, NULL); /* NULL: the gradients are where they were */
  }
  if (status != QN_OK) fprintf(stderr, "lion: %s\n", qn_last_error());
  qn_lion_plan_destroy(&plan);
  /* README: end */
  return status;
}

int main(void)
{
  model m = {.b = {0, 0}};
  if (train(&m) != QN_OK) return 1;
  printf("w = %.2f %.2f, %.2f %.2f; b = %.2f %.2f\n", m.w[0][0], m.w[0][1], m.w[1][0], m.w[1][1], m.b[0], m.b[1]);
  return gradients(&m) < 1e-3 ? 0 : 1;
}
