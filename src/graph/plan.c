/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - a graph's plan as text. */
#include "graph/fuse.h"
#include "graph/lower.h"
#include <ctype.h>
#include <string.h>

struct qn_graph_plan {
  qn_text text;
};

static void add_name(const qn_graph *graph, int value, const char *key, qn_text *text)
{
  const qn_graph_value *v = &graph->value[value];
  qn_text_add(text, "{\"%s\":", key);
  if (v->node < 0)
    qn_json_add_string(text, v->name);
  else if (v->named)
    qn_json_add_string(text, graph->node[v->node].name);
  else
    qn_text_add(text, "\"%s__part%d\"", graph->node[v->node].name, value);
  if (v->named && v->node >= 0 && v->result >= 0) qn_text_add(text, ",\"index\":%d", v->result);
}

static void add_shape(const qn_graph_value *v, qn_text *text)
{
  int64_t strides[QN_GRAPH_DIMS];
  int order[QN_GRAPH_DIMS];
  qn_stored_order(v, strides, order);
  qn_text_add(text, ",\"dtype\":\"%s\",\"shape\":[", qn_dtype_name(v->dtype));
  for (int d = 0; d < v->ndim; d++) qn_text_add(text, "%s%lld", d ? "," : "", (long long)v->shape[d]);
  qn_text_add(text, "],\"strides\":[");
  for (int d = 0; d < v->ndim; d++) qn_text_add(text, "%s%lld", d ? "," : "", (long long)strides[d]);
  qn_text_add(text, "]}");
}

/* Nodes of which the kernel computes something: all between what it reads and what it stores. */
static void mark_nodes(const qn_fusion *f, const qn_fused *kernel, int value, bool top, bool *mark)
{
  const qn_graph_value *v = &f->graph->value[value];
  bool mine = top;
  for (int r = 0; r < kernel->n; r++) mine |= kernel->root[r] == value;
  if (qn_is_memory(v) || (f->is_root[value] && !mine)) return;
  if (v->node >= 0) mark[v->node] = true;
  for (int k = 0; k < v->n_arguments; k++) mark_nodes(f, kernel, qn_arguments_of(v)[k], false, mark);
}

/* At most 40 characters. */
static void add_kernel_name(const qn_fusion *f, const bool *mark, int k, qn_text *text)
{
  int room = 32;
  qn_text_add(text, "\"name\":\"k%d", k);
  for (int n = 0; n < f->graph->n_nodes; n++) {
    if (!mark[n] || f->graph->node[n].is_view) continue;
    const char *op = strchr(f->graph->node[n].op, '.');
    op = op ? op + 1 : f->graph->node[n].op;
    if (!strncmp(op, "native_", 7) || !strncmp(op, "_native_", 8)) op = strchr(op + 1, '_');
    while (*op == '_') op++;
    const char *end = strchr(op, '.');
    const int length = end ? (int)(end - op) : (int)strlen(op);
    if (length + 1 > room) break;
    bool plain = true;
    for (int j = 0; j < length; j++) plain = plain && (isalnum((unsigned char)op[j]) || op[j] == '_');
    if (!plain) break;
    qn_text_add(text, "_%.*s", length, op);
    room -= length + 1;
  }
  qn_text_add(text, "\"");
}

/* outputs: values that it stores; node: whose scratch memory stands behind them. */
static void add_tensors(const qn_graph *graph, const int *output, int n_outputs, const char *node, const qn_body *body,
                        qn_text *text)
{
  qn_text_add(text, "],\"inputs\":[");
  for (int k = 0; k < body->n_inputs; k++) {
    qn_text_add(text, k ? "," : "");
    add_name(graph, body->input[k], "ref", text);
    qn_text_add(text, ",\"parameter\":\"i%d\"}", k);
  }
  qn_text_add(text, "],\"outputs\":[");
  for (int k = 0; k < n_outputs; k++) {
    qn_text_add(text, k ? "," : "");
    add_name(graph, output[k], "name", text);
    qn_text_add(text, ",\"parameter\":\"o%d\"", k);
    add_shape(&graph->value[output[k]], text);
  }
  for (int k = 0; k < body->n_scratch; k++) {
    qn_text_add(text, ",{\"name\":");
    qn_json_add_string(text, node);
    qn_text_add(text, ",\"index\":%d,\"parameter\":\"o%d\",\"dtype\":\"%s\",\"shape\":[%lld],\"strides\":[1]%s}",
                n_outputs + k, n_outputs + k, qn_dtype_name(body->scratch[k].dtype), (long long)body->scratch[k].n,
                body->scratch[k].zeroed ? ",\"init\":0" : "");
  }
  qn_text_add(text, "],\"strided\":[");
  for (int k = 0, n = 0; k < body->n_inputs; k++)
    if (body->strided >> k & 1) qn_text_add(text, "%s\"i%d\"", n++ ? "," : "", k);
}

/* All of a step behind its tensors but the reason of its cut. */
static void add_launch(const qn_body *body, const char *dialect, qn_text *text)
{
  qn_text_add(text, "],\"dialect\":\"%s\",\"math\":\"safe\",\"source\":", dialect);
  qn_json_add_string(text, body->source.at ? body->source.at : "");
  qn_text_add(text, ",\"header\":");
  qn_json_add_string(text, body->header.at ? body->header.at : "");
  qn_text_add(text, ",\"grid\":[%llu,%llu,%llu],\"threadgroup\":[%u,1,1]", (unsigned long long)body->grid[0],
              (unsigned long long)body->grid[1], (unsigned long long)body->grid[2], body->group[0]);
  if (body->cluster) qn_text_add(text, ",\"cluster\":%u", body->cluster);
  if (body->shared_bytes) qn_text_add(text, ",\"shared_bytes\":%u", body->shared_bytes);
  qn_text_add(text, ",\"bytes\":%lld,\"operations\":%lld,\"why\":\"", (long long)body->bytes,
              (long long)body->operations);
}

static qn_status add_kernel(const qn_fusion *f, int k, qn_text *text)
{
  const qn_fused *kernel = &f->kernel[k];
  const qn_body *body = &f->body[k];
  bool *mark = qn_allocate_zero((size_t)f->graph->n_nodes + 1, sizeof *mark);
  if (!mark) return qn_fail(QN_NO_MEMORY, "no memory for a plan");
  for (int r = 0; r < kernel->n; r++) mark_nodes(f, kernel, kernel->root[r], true, mark);
  qn_text_add(text, "{\"kind\":\"kernel\",");
  add_kernel_name(f, mark, k, text);
  qn_text_add(text, ",\"nodes\":[");
  for (int n = 0, m = 0; n < f->graph->n_nodes; n++) {
    if (!mark[n]) continue;
    qn_text_add(text, m++ ? "," : "");
    qn_json_add_string(text, f->graph->node[n].name);
  }
  qn_release(mark);
  int64_t rows, length;
  int output[QN_FUSED_ROOTS], n_outputs = 0;
  for (int r = 0; r < kernel->n; r++)
    if (kernel->stored[r]) output[n_outputs++] = kernel->root[r];
  add_tensors(f->graph, output, n_outputs, "", body, text);
  qn_fused_domain(f->graph, kernel, &rows, &length);
  add_launch(body, "metal", text);
  qn_text_add(text, "%s%s", qn_schedule_name(body->schedule), body->by_lines ? ", in pieces of lines" : "");
  if (kernel->rows >= 0) qn_text_add(text, ": %lld rows of %lld", (long long)rows, (long long)length);
  qn_text_add(text, "\"}");
  return QN_OK;
}

static void add_own(const qn_fusion *f, int n, qn_text *text)
{
  const qn_graph_node *node = &f->graph->node[n];
  qn_body body;
  node->own(f, node, &body);
  qn_text_add(text, "{\"kind\":\"kernel\",\"name\":\"c%d_%s\",\"nodes\":[", n, body.what);
  qn_json_add_string(text, node->name);
  add_tensors(f->graph, node->result, node->n_results, node->name, &body, text);
  add_launch(&body, "cuda", text);
  qn_text_add(text, "%s\"}", body.why);
  text->failed |= body.header.failed || body.source.failed;
  qn_body_free(&body);
}

static qn_status write_plan(const qn_fusion *f, qn_text *text)
{
  qn_text_add(text, "{\"steps\":[");
  for (int k = 0; k < f->n_steps; k++) {
    const qn_step *step = &f->step[k];
    qn_text_add(text, k ? ",\n" : "\n");
    if (step->kind == QN_STEP_KERNEL)
      qn_try(add_kernel(f, step->kernel, text));
    else if (f->graph->node[step->node].own)
      add_own(f, step->node, text);
    else {
      qn_text_add(text, "{\"kind\":\"%s\",\"node\":", step->kind == QN_STEP_VIEW ? "view" : "extern");
      qn_json_add_string(text, f->graph->node[step->node].name);
      qn_text_add(text, "}");
    }
  }
  qn_text_add(text, "\n],\"notes\":[");
  for (int k = 0, n = 0; k < f->graph->n_nodes; k++) {
    const qn_graph_node *node = &f->graph->node[k];
    if (!node->is_extern || node->own) continue;
    qn_text_add(text, n++ ? ",\n{\"node\":" : "\n{\"node\":");
    qn_json_add_string(text, node->name);
    qn_text_add(text, ",\"why\":");
    qn_json_add_string(text, node->why ? node->why : "it has effects of its own");
    qn_text_add(text, "}");
  }
  qn_text_add(text, "]}\n");
  return text->failed ? qn_fail(QN_NO_MEMORY, "no memory for a plan") : QN_OK;
}

qn_status qn_graph_plan_create(qn_graph_plan **plan, const char *text, size_t bytes, const qn_graph_options *options)
{
  qn_require(plan && text, "a graph's plan: an argument is NULL");
  *plan = NULL;
  qn_require(!options || options->size == sizeof *options, "a graph's plan: its options have %zu bytes, not %zu",
             options->size, sizeof *options);
  qn_graph graph;
  qn_fusion fusion = {0};
  qn_try(qn_graph_read(text, bytes, &graph));
  qn_status status = qn_graph_lower(&graph);
  if (!status) status = qn_graph_split(&graph);
  if (!status) status = qn_fusion_make(&graph, !options || options->fuse, &fusion);
  qn_graph_plan *made = status ? NULL : qn_allocate_zero(1, sizeof *made);
  if (!status && !made) status = qn_fail(QN_NO_MEMORY, "no memory for a plan");
  if (!status) status = write_plan(&fusion, &made->text);
  qn_fusion_free(&fusion);
  qn_graph_free(&graph);
  if (status)
    qn_graph_plan_destroy(&made);
  else
    *plan = made;
  return status;
}

const char *qn_graph_plan_text(const qn_graph_plan *plan) { return plan ? plan->text.at : ""; }

void qn_graph_plan_destroy(qn_graph_plan **plan)
{
  if (!plan || !*plan) return;
  qn_text_free(&(*plan)->text);
  qn_release(*plan);
  *plan = NULL;
}
