/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - few long rows are reduced in two steps, so that all of a device works on them: each row in parts that lie
 * along memory, and then the parts. How many is a matter of the shapes alone, so the order of additions is fixed. */
#include "graph/graph.h"
#include <string.h>

enum { LONG_ROW = 65536, FEW_ROWS = 96, PARTS = 1024, PARTS_ON_CPU = 64 };

/* A divisor of n near `about`, from a quarter of it to four times; 0: none. */
static int64_t divisor_near(int64_t n, int64_t about)
{
  for (int64_t d = 0; d < 4 * about; d++) {
    if (about + d <= 4 * about && n % (about + d) == 0) return about + d;
    if (about - d > 1 && about - d >= about / 4 && n % (about - d) == 0) return about - d;
  }
  return 0;
}

static int add(qn_graph *graph, qn_value_form form, int like, int argument, int ndim, const int64_t *shape)
{
  const int v = qn_graph_add(graph, form, graph->value[argument].dtype, ndim, shape);
  if (v < 0) return v;
  graph->value[v].node = graph->value[like].node;
  graph->value[v].n_arguments = 1;
  graph->value[v].argument[0] = argument;
  return v;
}

/* The argument with its kept dimensions first. */
static int kept_first(qn_graph *graph, int value, int *n_kept, int64_t *shape)
{
  const qn_graph_value v = graph->value[value];
  const int a = v.argument[0], ndim = graph->value[a].ndim;
  int place[QN_GRAPH_DIMS], n = 0;
  for (int part = 0; part < 2; part++) {
    for (int d = 0; d < ndim; d++)
      if ((int)(v.reduced >> d & 1) == part) {
        place[d] = n;
        shape[n++] = graph->value[a].shape[d];
      }
    if (!part) *n_kept = n;
  }
  const int view = add(graph, QN_FORM_AFFINE, value, a, ndim, shape);
  for (int d = 0; view >= 0 && d < ndim; d++)
    graph->value[view].view[d] = (qn_view_index){.n = 1, .dim = {place[d]}, .step = {1}};
  return view;
}

static bool split(qn_graph *graph, int value, int64_t parts)
{
  int64_t shape[QN_GRAPH_DIMS] = {0}, target[QN_GRAPH_DIMS];
  int n_kept = 0, along = -1, k = 0;
  const int ndim = graph->value[graph->value[value].argument[0]].ndim;
  const int64_t rows = graph->value[value].n, n = graph->value[graph->value[value].argument[0]].n;
  int v = kept_first(graph, value, &n_kept, shape);
  if (v >= 0) v = add(graph, QN_FORM_RESHAPE, value, v, 3, (int64_t[]){rows, parts, n / rows / parts});
  const int first = v < 0 ? v : add(graph, QN_FORM_REDUCE, value, v, 3, (int64_t[]){rows, parts, 1});
  if (first < 0) return false;
  graph->value[first].dtype = graph->value[first].compute = graph->value[value].compute;
  graph->value[first].reduction = graph->value[value].reduction;
  graph->value[first].reduced = 4;
  shape[n_kept] = parts;
  v = add(graph, QN_FORM_RESHAPE, value, first, n_kept + 1, shape);
  memcpy(target, graph->value[value].shape, sizeof target);
  for (int d = ndim - 1; d >= 0; d--)
    if (graph->value[value].reduced >> d & 1) along = d;
  target[along] = parts;
  v = v < 0 ? v : add(graph, QN_FORM_AFFINE, value, v, ndim, target);
  if (v < 0) return false;
  for (int d = 0; d < ndim; d++)
    if (!(graph->value[value].reduced >> d & 1))
      graph->value[v].view[k++] = (qn_view_index){.n = 1, .dim = {d}, .step = {1}};
  graph->value[v].view[k] = (qn_view_index){.n = 1, .dim = {along}, .step = {1}};
  graph->value[value].argument[0] = v;
  return true;
}

qn_status qn_graph_split(qn_graph *graph)
{
  const int n = graph->n_values;
  for (int k = 0; k < n; k++) {
    const qn_graph_value *v = &graph->value[k];
    if (v->form != QN_FORM_REDUCE || v->reduction >= QN_GRAPH_REDUCE_ARGMAX) continue;
    const int64_t length = graph->value[v->argument[0]].n / v->n;
    if (length < LONG_ROW || v->n >= (graph->on_cpu ? 8 : FEW_ROWS)) continue;
    const int64_t parts = divisor_near(length, (graph->on_cpu ? PARTS_ON_CPU : PARTS) / v->n);
    if (parts && !split(graph, k, parts)) return qn_fail(QN_NO_MEMORY, "graph: no memory for parts of rows");
  }
  return QN_OK;
}
