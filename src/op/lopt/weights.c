/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - the weights of learned optimizers: which tensors their published files hold, and reading them. What the
 * header of a file says is held against the file by core/safetensors.c, and against the tables here. */
#include "core/core.h"
#include "op/lopt/lopt.h"
#include <math.h>
#include <string.h>

enum { MOST_TENSORS = 19 };

typedef struct table {
  const char *name, *file; /* of the kind; where it is published */
  size_t n;                /* floats in all */
  struct {
    const char *name;
    int64_t shape[3]; /* up to the first 0 */
  } tensor[MOST_TENSORS];
  const char *unread[6]; /* that such a file holds besides */
} table;

static const table tables[] = {
    [QN_LOPT_SMALL_FC] = {.name = "small_fc",
                          .file = "btherien/mulo or DiamondXL/elo",
                          .n = QN_LOPT_SMALL_FC_WEIGHTS,
                          .tensor = {{"network.input.weight", {32, 39}},
                                     {"network.input.bias", {32}},
                                     {"network.linear_0.weight", {32, 32}},
                                     {"network.linear_0.bias", {32}},
                                     {"network.output.weight", {2, 32}},
                                     {"network.output.bias", {2}}}},
    [QN_LOPT_VELO_MLP] = {.name = "velo_mlp",
                          .file = "Pauljanson002/VeLO_MLP",
                          .n = QN_LOPT_VELO_MLP_WEIGHTS,
                          .tensor = {{"input_weights_", {256, 4, 30}},
                                     {"input_bias_", {256, 4}},
                                     {"hidden_weights_.0", {256, 4, 4}},
                                     {"hidden_bias_.0", {256, 4}},
                                     {"output_weights_", {256, 3, 4}},
                                     {"output_bias_", {256, 3}}},
                          .unread = {"input_weights", "input_bias", "hidden_weights.0", "hidden_bias.0",
                                     "output_weights", "output_bias"}},
    [QN_LOPT_VELO_RNN] = {.name = "velo_rnn",
                          .file = "Pauljanson002/VeLO_RNN",
                          .n = QN_LOPT_VELO_RNN_WEIGHTS,
                          .tensor = {{"mix_layer2.weight", {512, 30}},
                                     {"mix_layer2.bias", {512}},
                                     {"final_mix_layer.weight", {512, 30}},
                                     {"final_mix_layer.bias", {512}},
                                     {"lstm.linear.weight", {2048, 1024}},
                                     {"lstm.linear.bias", {2048}},
                                     {"rnn_to_controls.weight", {256, 512}},
                                     {"rnn_to_controls.bias", {256}},
                                     {"step_size.weight", {1, 512}},
                                     {"step_size.bias", {1}},
                                     {"lstm_init_state.0", {1, 512}},
                                     {"lstm_init_state.1", {1, 512}}},
                          .unread = {"mix_layer1.weight", "mix_layer1.bias"}},
    [QN_LOPT_CELO2_MLP] = {.name = "celo2_mlp",
                           .file = "DiamondXL/celo2",
                           .n = QN_LOPT_CELO2_MLP_WEIGHTS,
                           .tensor = {{"w0.0", {1, 8}},
                                      {"w0.1", {1, 8}},
                                      {"w0.2", {1, 8}},
                                      {"w0.3", {3, 8}},
                                      {"w0.4", {1, 8}},
                                      {"w0.5", {3, 8}},
                                      {"w0.6", {1, 8}},
                                      {"w0.7", {3, 8}},
                                      {"w0.8", {1, 8}},
                                      {"w0.9", {3, 8}},
                                      {"w0.10", {3, 8}},
                                      {"w0.11", {3, 8}},
                                      {"w0.12", {3, 8}},
                                      {"w0.13", {3, 8}},
                                      {"b0", {8}},
                                      {"dense_w.0", {8, 8}},
                                      {"dense_b.0", {8}},
                                      {"dense_w.1", {8, 3}},
                                      {"dense_b.1", {3}}}},
};

static qn_status find_table(qn_lopt_weights kind, const table **of)
{
  qn_require((unsigned)kind < sizeof tables / sizeof *tables, "lopt: the kind of weights is %d, there are 0 to %zu",
             (int)kind, sizeof tables / sizeof *tables - 1);
  *of = &tables[kind];
  return QN_OK;
}

/* Tensor k of a table, or false past the last. */
static bool weight_of(const table *of, size_t k, qn_lopt_weight *weight)
{
  *weight = (qn_lopt_weight){0};
  for (size_t i = 0; i <= k; i++) {
    if (i == MOST_TENSORS || !of->tensor[i].name) return false;
    *weight = (qn_lopt_weight){.name = of->tensor[i].name, .begin = weight->begin + weight->n, .n = 1};
    for (int d = 0; d < 3 && of->tensor[i].shape[d]; d++) {
      weight->shape[weight->ndim++] = of->tensor[i].shape[d];
      weight->n *= (size_t)of->tensor[i].shape[d];
    }
  }
  return true;
}

qn_status qn_lopt_weight_at(qn_lopt_weights kind, size_t k, qn_lopt_weight *weight)
{
  const table *of = NULL;
  qn_require(weight, "lopt: the place for the weight's description is NULL");
  qn_try(find_table(kind, &of));
  qn_require(weight_of(of, k, weight), "lopt: the weights of %s have no tensor %zu", of->name, k);
  return QN_OK;
}

/* ---- a file ---- */

static bool belongs(const table *of, const char *name)
{
  for (size_t k = 0; k < MOST_TENSORS && of->tensor[k].name; k++)
    if (!strcmp(of->tensor[k].name, name)) return true;
  for (size_t k = 0; k < sizeof of->unread / sizeof *of->unread && of->unread[k]; k++)
    if (!strcmp(of->unread[k], name)) return true;
  return false;
}

static const qn_safetensor *find(const qn_safetensors *list, const char *name)
{
  for (size_t k = 0; k < list->n; k++)
    if (!strcmp(list->tensor[k].name, name)) return &list->tensor[k];
  return NULL;
}

static qn_status check_weight(const char *path, const table *of, const qn_lopt_weight *want, const qn_safetensor *got)
{
  if (!got)
    return qn_fail(QN_BAD_FILE, "%s: there is no tensor \"%s\", which the weights of %s have (%s)", path, want->name,
                   of->name, of->file);
  if (strcmp(got->dtype, "F32"))
    return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\" is %s, it must be F32", path, want->name, got->dtype);
  if (got->ndim == want->ndim && !memcmp(got->shape, want->shape, (size_t)got->ndim * sizeof *got->shape)) return QN_OK;
  return qn_fail(QN_BAD_FILE, "%s: tensor \"%s\" has the shape %s, it must be %s", path, want->name,
                 qn_shape_text(got->ndim, got->shape).text, qn_shape_text(want->ndim, want->shape).text);
}

static qn_status check_file(const char *path, const table *of, const qn_safetensors *list)
{
  qn_lopt_weight want;
  for (size_t k = 0; weight_of(of, k, &want); k++) qn_try(check_weight(path, of, &want, find(list, want.name)));
  for (size_t k = 0; k < list->n; k++)
    if (!belongs(of, list->tensor[k].name))
      return qn_fail(QN_BAD_FILE, "%s: tensor \"%.80s\" does not belong to the weights of %s (%s)", path,
                     list->tensor[k].name, of->name, of->file);
  return QN_OK;
}

/* A weight that is no number would make every parameter one. */
static qn_status take(const char *path, const qn_safetensors *list, const qn_lopt_weight *want, float *weights)
{
  float *to = weights + want->begin;
  qn_try(qn_safetensors_read_data(path, list, find(list, want->name), to));
  for (size_t k = 0; k < want->n; k++)
    if (!isfinite(to[k]))
      return qn_fail(QN_BAD_FILE, "%s: element %zu of tensor \"%s\" is %g", path, k, want->name, (double)to[k]);
  return QN_OK;
}

static qn_status read_checked(const char *path, const table *of, const qn_safetensors *list, float *weights)
{
  float *read;
  qn_lopt_weight want;
  qn_status status = QN_OK;
  qn_try(check_file(path, of, list));
  qn_try(qn_try_allocate(&read, of->n * sizeof *read, "weights, until all are read"));
  for (size_t k = 0; status == QN_OK && weight_of(of, k, &want); k++) status = take(path, list, &want, read);
  if (status == QN_OK) memcpy(weights, read, of->n * sizeof *read);
  qn_release(read);
  return status;
}

qn_status qn_lopt_weights_read(qn_lopt_weights kind, const char *path, float *weights, size_t n)
{
  const table *of = NULL;
  qn_safetensors list;
  qn_try(find_table(kind, &of));
  qn_require(path, "lopt: the path of the weights is NULL");
  qn_require(weights, "lopt: the place for the weights of %s is NULL", of->name);
  qn_require(n == of->n, "lopt: there is room for %zu floats, the weights of %s are %zu", n, of->name, of->n);
  qn_try(qn_safetensors_read(path, &list));
  const qn_status status = read_checked(path, of, &list, weights);
  qn_safetensors_free(&list);
  return status;
}
