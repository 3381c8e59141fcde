/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc_plans.h - compiles kernels of plans that no processor runs, for the one architecture that has them: a recurrent
 * net's, of the shapes at which registers or shared memory are full, and small ones. */
#ifndef NVRTC_PLANS_H
#define NVRTC_PLANS_H
#include "core/json.h"
#include "kernel/emit.h"
#include "quern/graph.h"

typedef struct recurrent_case {
  const char *kind;
  int gates, hidden, inputs, layers, directions, batch, steps;
  bool biased;
} recurrent_case;

static char *describe_recurrent(const recurrent_case *c, char *text, size_t bytes)
{
  const bool lstm = !strcmp(c->kind, "lstm");
  const long rows = (long)c->gates * c->hidden, more = c->hidden + (c->biased ? 2 : 0);
  const long weights = c->directions * rows * (c->inputs + more + (c->layers - 1) * (c->directions * c->hidden + more));
  char state[96];
  snprintf(state, sizeof state, "\"dtype\":\"f32\",\"shape\":[%d,%d,%d]", c->layers * c->directions, c->batch,
           c->hidden);
  snprintf(
      text, bytes,
      "{\"device\":\"cuda\",\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[%d,%d,%d]},{\"name\":\"h\",%s},"
      "{\"name\":\"c\",%s},{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[%ld]}],\"nodes\":[{\"name\":\"y\",\"op\":"
      "\"quern.recurrent.default\",\"args\":[{\"ref\":\"x\"},{\"ref\":\"h\"},%s,{\"ref\":\"w\"},\"%s\",%d,%d,%s,%s,"
      "false],\"kwargs\":{},\"results\":[{\"dtype\":\"f32\",\"shape\":[%d,%d,%d]},{%s}%s%s%s]}],\"outputs\":[{"
      "\"ref\":\"y\",\"index\":0}]}",
      c->steps, c->batch, c->inputs, state, state, weights, lstm ? "{\"ref\":\"c\"}" : "null", c->kind, c->hidden,
      c->layers, c->biased ? "true" : "false", c->directions > 1 ? "true" : "false", c->steps, c->batch,
      c->directions * c->hidden, state, lstm ? ",{" : "", lstm ? state : "", lstm ? "}" : "");
  return text;
}

static int64_t json_int(const qn_json *object, const char *key)
{
  int64_t value = 0;
  qn_json_integer(qn_json_get(object, key), &value);
  return value;
}

/* The text that a launch of the step compiles. NULL: a sentence is there. */
static char *text_of_step(const qn_json *step)
{
  static const char *const kinds[] = {"inputs", "outputs"};
  static const int64_t shape[] = {1}, strides[] = {1};
  const char *names[2][8];
  qn_tensor tensors[2][8];
  size_t n[2] = {0, 0};
  for (int k = 0; k < 2; k++)
    for (const qn_json *one = qn_json_first(qn_json_get(step, kinds[k])); one && n[k] < 8; one = one->next) {
      const qn_json *dtype = qn_json_get(one, "dtype");
      tensors[k][n[k]] = (qn_tensor){.dtype = dtype && !strcmp(dtype->string, "i32") ? QN_I32 : QN_F32,
                                     .device = {QN_CUDA, 0},
                                     .ndim = 1,
                                     .shape = shape,
                                     .strides = strides};
      names[k][n[k]++] = qn_json_get(one, "parameter")->string;
    }
  const qn_kernel_source source = {.size = sizeof source,
                                   .name = qn_json_get(step, "name")->string,
                                   .body = qn_json_get(step, "source")->string,
                                   .header = qn_json_get(step, "header")->string,
                                   .dialect = QN_DIALECT_CUDA,
                                   .n_inputs = n[0],
                                   .n_outputs = n[1],
                                   .inputs = names[0],
                                   .outputs = names[1],
                                   .strided = 1,
                                   .cluster = (uint32_t)json_int(step, "cluster")};
  const qn_json *grid = qn_json_first(qn_json_get(step, "grid")),
                *group = qn_json_first(qn_json_get(step, "threadgroup"));
  const qn_kernel_call call = {.size = sizeof call,
                               .inputs = tensors[0],
                               .outputs = tensors[1],
                               .grid = {(uint64_t)grid->integer, 1, 1},
                               .group = {(uint32_t)group->integer, 1, 1},
                               .shared_bytes = (size_t)json_int(step, "shared_bytes")};
  qn_kernel *kernel = NULL;
  qn_special special;
  qn_argument_layout layout;
  qn_text text = {0};
  if (qn_kernel_create(&kernel, &source) != QN_OK) return NULL;
  qn_special_make(kernel, QN_CUDA, &call, &special);
  special.items = 1;
  qn_kernel_layout(kernel, &special, &layout);
  if (qn_kernel_generate(kernel, &special, &layout, &text) != QN_OK) qn_text_free(&text);
  qn_kernel_destroy(&kernel);
  return text.at;
}

static void compile_recurrent(const char *arch)
{
  static const recurrent_case cases[] = {
      {"lstm", 4, 256, 128, 6, 1, 10, 512, true}, {"lstm", 4, 256, 128, 6, 2, 10, 512, true},
      {"gru", 3, 256, 640, 2, 1, 16, 9, true},    {"gru", 3, 72, 300, 1, 2, 40, 9, false},
      {"lstm", 4, 1, 1, 1, 1, 1, 1, true},        {"tanh", 1, 50, 20, 3, 1, 5, 17, true},
      {"relu", 1, 256, 1000, 1, 2, 3, 4, false}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const recurrent_case *c = &cases[k];
    char what[96], graph[2048];
    snprintf(what, sizeof what, "a recurrent net (%s): %d units of %d, %d x %d", c->kind, c->hidden, c->inputs,
             c->layers, c->directions);
    describe_recurrent(c, graph, sizeof graph);
    qn_graph_plan *plan = NULL;
    qn_json_tree tree = {0};
    char *text = NULL;
    if (qn_graph_plan_create(&plan, graph, strlen(graph), NULL) == QN_OK &&
        qn_json_read(qn_graph_plan_text(plan), strlen(qn_graph_plan_text(plan)), "plan", &tree) == QN_OK) {
      const qn_json *step = qn_json_first(qn_json_get(tree.root, "steps"));
      if (qn_json_get(step, "cluster")) text = text_of_step(step);
    }
    const qn_unit unit = {.source = "recurrent", .text = text};
    enum { MOST = 16 }; /* addresses, while weights have nearly all registers */
    if (check(text != NULL, "%s has a kernel", what)) compile_within(arch, &unit, what, MOST);
    qn_text text_to_free = {.at = text};
    qn_text_free(&text_to_free);
    qn_json_free(&tree);
    qn_graph_plan_destroy(&plan);
  }
}
#endif
