/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_use.h - what the tests of kernels from a body share: a kernel with few words, tensors over plain arrays, a
 * call, a launch that is checked. */
#ifndef QN_TESTS_KERNEL_USE_H
#define QN_TESTS_KERNEL_USE_H
#include "core/core.h"
#include "quern/quern.h"
#include "test.h"

static const qn_device cpu = {QN_CPU, 0};

/* Names parted by blanks: "a b". At most 8. */
typedef struct names {
  char storage[256];
  const char *name[8];
  size_t n;
} names;

__attribute__((unused)) static void names_split(names *list, const char *text)
{
  list->n = 0;
  snprintf(list->storage, sizeof list->storage, "%s", text);
  char *rest = NULL;
  for (char *word = strtok_r(list->storage, " ", &rest); word && list->n < 8; word = strtok_r(NULL, " ", &rest))
    list->name[list->n++] = word;
}

/* The parts of a source that tests change; the rest is default. */
typedef struct use {
  const char *name, *inputs, *outputs, *body, *header, *file;
  qn_dialect dialect;
  qn_math math;
  uint64_t strided, atomic;
  uint32_t cluster;
  const char *const *contracts;
} use;

__attribute__((unused)) static qn_status use_create(qn_kernel **kernel, const use *u)
{
  names inputs, outputs;
  names_split(&inputs, u->inputs ? u->inputs : "");
  names_split(&outputs, u->outputs ? u->outputs : "out");
  const qn_kernel_source source = {.size = sizeof source,
                                   .name = u->name ? u->name : "test",
                                   .body = u->body,
                                   .header = u->header,
                                   .file = u->file,
                                   .dialect = u->dialect,
                                   .math = u->math,
                                   .n_inputs = inputs.n,
                                   .n_outputs = outputs.n,
                                   .inputs = inputs.name,
                                   .outputs = outputs.name,
                                   .strided = u->strided,
                                   .atomic = u->atomic,
                                   .cluster = u->cluster,
                                   .contracts = u->contracts};
  return qn_kernel_create(kernel, &source);
}

/* A kernel that must come to be. */
__attribute__((unused)) static qn_kernel *use_make(const use *u)
{
  qn_kernel *kernel = NULL;
  if (use_create(&kernel, u)) {
    check(false, "kernel %s is made", u->name ? u->name : "test");
    exit(test_end());
  }
  return kernel;
}

/* Row-major, on the processor; shapes of 1 to 4 dimensions are given as extents, 0 ends them. */
typedef struct array {
  int64_t shape[8], strides[8];
  qn_tensor t;
} array;

__attribute__((unused)) static qn_tensor tensor_of(array *a, void *data, qn_dtype dtype, int ndim, const int64_t *shape)
{
  for (int d = 0; d < ndim; d++) a->shape[d] = shape[d];
  return a->t = (qn_tensor){data, dtype, ndim, a->shape, NULL, cpu};
}
#define ARRAY(data, dtype, ...)                                                                                        \
  tensor_of(&(array){0}, (data), (dtype), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                   \
            (int64_t[]){__VA_ARGS__})
#define VALUE(dtype, pointer) ((qn_tensor){(pointer), (dtype), 0, NULL, NULL, {QN_CPU, 0}})

static const qn_exec serial = {.size = sizeof serial};
#define CALL(...) ((qn_kernel_call){.size = sizeof(qn_kernel_call), __VA_ARGS__})
#endif
