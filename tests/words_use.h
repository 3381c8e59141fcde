/* SPDX-License-Identifier: Apache-2.0 */
/* words_use.h - what the tests of the dialects' words share: a body run over arrays on the processor, and the same text
 * compiled by NVRTC for an old and a new GPU, where there is an NVRTC. */
#ifndef QN_TESTS_WORDS_USE_H
#define QN_TESTS_WORDS_USE_H
#include "base/kernel.h"
#include "kernel/kernel.h"
#include "kernel_use.h"
#include <math.h>
#include <stdint.h>

/* Registers and such do not matter here: that it compiles does. Template values: as in the call. */
__attribute__((unused)) static void words_on_gpus(const char *what, const use *u, const qn_kernel_call *call)
{
  static const char *const arches[] = {"sm_75", "sm_90a"}, *const flags[] = {"--device-as-default-execution-space",
                                                                             NULL};
  char path[512];
  int version = 0;
  if (qn_cuda_compiler(&version, path, sizeof path)) {
    skip("%s: no NVRTC here", what);
    return;
  }
  qn_kernel *kernel = use_make(u);
  qn_special special = {.target = QN_CUDA, .n_templates = call->n_templates, .templates = call->templates};
  special.dims = 3, special.bound = 1024, special.items = 1;
  const size_t n_in = kernel->source.n_inputs, n = n_in + kernel->source.n_outputs;
  for (size_t k = 0; k < n; k++) {
    const qn_tensor *t = k < n_in ? &call->inputs[k] : &call->outputs[k - n_in];
    special.tensor[k].dtype = (uint8_t)t->dtype;
    special.tensor[k].ndim = (uint8_t)t->ndim;
    special.tensor[k].form = t->ndim ? QN_FORM_POINTER : QN_FORM_VALUE;
  }
  qn_argument_layout layout = {0};
  qn_text text = {0};
  qn_kernel_layout(kernel, &special, &layout);
  check(qn_kernel_generate(kernel, &special, &layout, &text) == QN_OK, "%s: text for a GPU", what);
  const qn_unit unit = {.source = u->name ? u->name : "test", .text = text.at, .flags = flags};
  for (int a = 0; a < 2; a++) {
    qn_image image = {0};
    if (!check(qn_cuda_compile_for(arches[a], &unit, &image) == QN_OK, "%s compiles for %s", what, arches[a]) &&
        image.log)
      printf("# %.1500s\n", image.log);
    qn_image_free(&image);
  }
  qn_text_free(&text);
  qn_kernel_destroy(&kernel);
}

/* The body on the processor; false if it failed, which is a failed check. */
__attribute__((unused)) static bool words_run(const char *what, const use *u, const qn_kernel_call *call)
{
  qn_kernel *kernel = use_make(u);
  const bool ok = qn_kernel_launch(kernel, &serial, call) == QN_OK;
  if (!ok) check(ok, "%s runs", what);
  qn_kernel_destroy(&kernel);
  return ok;
}

static inline uint32_t words_bits(float x)
{
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static inline float words_float(uint32_t u)
{
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}
static inline bool words_same(float a, float b) { return words_bits(a) == words_bits(b) || (isnan(a) && isnan(b)); }
#endif
