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

/* The workspace of a transformer's tensors on a processor and on a GPU, beside 16 bytes of state an element: GPT-2's
 * with a vocabulary, else those of a vision transformer, whose patches' embedding has short rows. */
static inline void test_model(size_t (*workspace_bytes)(size_t n, const qn_tensor *param), int64_t width, size_t layers,
                              int64_t vocabulary)
{
  enum { EACH = 4, MOST_LAYERS = 24 };
  const int64_t words[] = {vocabulary, width}, patches[] = {width, 3, 16, 16};
  const int64_t shapes[EACH][2] = {{width, 3 * width}, {width, width}, {width, 4 * width}, {4 * width, width}};
  const qn_device devices[] = {{QN_CPU, 0}, {QN_CUDA, 0}};
  for (size_t d = 0; d < 2; d++) {
    qn_tensor t[1 + EACH * MOST_LAYERS];
    double state = 0;
    for (size_t k = 0; k < 1 + EACH * layers; k++) {
      const int64_t *shape = k ? shapes[(k - 1) % EACH] : vocabulary ? words : patches;
      t[k] = (qn_tensor){.dtype = QN_F32, .device = devices[d], .ndim = k || vocabulary ? 2 : 4, .shape = shape};
      double elements = 1;
      for (int i = 0; i < t[k].ndim; i++) elements *= (double)shape[i];
      state += 16 * elements;
    }
    const double share = (double)workspace_bytes(1 + EACH * layers, t) / state;
    check(share > 0 && share < 0.02, "a model with %g bytes of state: a workspace of %.2f %% on the %s", state,
          100 * share, d ? "GPU" : "processor");
  }
}
#endif
