/* SPDX-License-Identifier: Apache-2.0 */
/* lopt_good.h - for tests of what learned optimizers refuse: a list that they do not, whether it is as it was, and how
 * large a workspace is beside a model's state. */
#ifndef QN_TESTS_LOPT_GOOD_H
#define QN_TESTS_LOPT_GOOD_H
#include "lopt_model.h"

static inline void add_good(model *m)
{
  static const int64_t matrix[] = {12, 7}, vector[] = {9};
  uint64_t state = 1;
  add_tensor(m, 2, matrix), add_tensor(m, 1, vector);
  for (size_t k = 0; k < m->n; k++) {
    set_param(m, k, &state, 0.5);
    draw_array(&state, data_of(m, GRAD, k), m->reference[k].n, 0.02);
  }
}

/* Parameters are as they were drawn, and states as they began. */
static inline bool is_good(const model *m)
{
  for (size_t k = 0; k < m->n; k++)
    for (size_t i = 0; i < m->reference[k].n; i++)
      if ((double)data_of(m, PARAM, k)[i] != m->reference[k].p[i] || data_of(m, STATE_V, k)[i] != 0) return false;
  return true;
}

/* A GPT-2: what a step needs beside the optimizer's own state is under 2% of that. */
static inline void test_gpt2(size_t (*workspace_bytes)(size_t n, const qn_tensor *param), int64_t width, size_t layers)
{
  enum { EACH = 4, MOST_LAYERS = 24 };
  const int64_t shapes[2 + EACH][2] = {{50257, width}, {1024, width},      {width, 3 * width},
                                       {width, width}, {width, 4 * width}, {4 * width, width}};
  qn_tensor t[2 + EACH * MOST_LAYERS];
  const size_t n = 2 + EACH * layers;
  double state = 0;
  for (size_t k = 0; k < n; k++) {
    t[k] = (qn_tensor){.dtype = QN_F32, .ndim = 2, .shape = shapes[k < 2 ? k : 2 + (k - 2) % EACH]};
    state += 16 * (double)t[k].shape[0] * (double)t[k].shape[1];
  }
  const size_t bytes = workspace_bytes(n, t);
  check(bytes && (double)bytes < 0.02 * state, "a model with %g bytes of state: a workspace of %zu", state, bytes);
}
#endif
