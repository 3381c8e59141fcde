/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c - from nodes to values of the planner's few forms, by the rules of lower_*.c; what has no rule stays the
 * caller's. */
#include "graph/lower.h"
#include <math.h>
#include <string.h>

qn_graph_node *qn_node_of(const qn_lowering *l) { return &l->graph->node[l->node]; }
const qn_graph_value *qn_value_at(const qn_lowering *l, int value) { return &l->graph->value[value]; }

void qn_give_up(qn_lowering *l, const char *why)
{
  if (!l->why) l->why = why;
}

/* ---- arguments ---- */
const qn_argument *qn_given(const qn_lowering *l, int k, const char *name)
{
  static const qn_argument none = {0};
  const qn_graph_node *node = qn_node_of(l);
  if (k >= 0 && k < node->n_arguments) return &node->argument[k];
  for (int j = 0; name && j < node->n_keywords; j++)
    if (!strcmp(node->keyword[j].name, name)) return &node->keyword[j];
  return &none;
}

int qn_given_value(qn_lowering *l, int k, const char *name)
{
  const qn_argument *a = qn_given(l, k, name);
  if (a->kind == QN_ARGUMENT_VALUE) return a->value;
  qn_give_up(l, "an argument is no tensor");
  return 0;
}

double qn_real_of(const qn_argument *a, double otherwise)
{
  if (a->kind == QN_ARGUMENT_REAL) return a->real;
  return a->kind == QN_ARGUMENT_INTEGER || a->kind == QN_ARGUMENT_BOOL ? (double)a->integer : otherwise;
}

static int constant(qn_lowering *l, qn_dtype dtype, double real, int64_t whole)
{
  const int v = qn_graph_add(l->graph, QN_FORM_CONSTANT, dtype, 0, NULL);
  if (v < 0) return qn_give_up(l, "no memory"), 0;
  l->graph->value[v].node = l->node;
  l->graph->value[v].real = real;
  l->graph->value[v].whole = whole;
  return v;
}

int qn_number(qn_lowering *l, double value)
{
  return constant(l, l->type, value, isfinite(value) && fabs(value) < 9e18 ? (int64_t)value : 0);
}

int qn_given_operand(qn_lowering *l, int k, const char *name)
{
  const qn_argument *a = qn_given(l, k, name);
  if (a->kind == QN_ARGUMENT_VALUE) return a->value;
  if (a->kind == QN_ARGUMENT_INTEGER || a->kind == QN_ARGUMENT_BOOL)
    return constant(l, a->kind == QN_ARGUMENT_BOOL ? QN_BOOL : QN_I64, (double)a->integer, a->integer);
  if (a->kind == QN_ARGUMENT_REAL) return constant(l, QN_F64, a->real, 0);
  qn_give_up(l, "an argument is neither a tensor nor a number");
  return 0;
}

double qn_given_real(const qn_lowering *l, int k, const char *name, double otherwise)
{
  return qn_real_of(qn_given(l, k, name), otherwise);
}

int64_t qn_given_integer(const qn_lowering *l, int k, const char *name, int64_t otherwise)
{
  const qn_argument *a = qn_given(l, k, name);
  return a->kind == QN_ARGUMENT_INTEGER || a->kind == QN_ARGUMENT_BOOL ? a->integer : otherwise;
}

bool qn_given_bool(const qn_lowering *l, int k, const char *name) { return qn_given_integer(l, k, name, 0) != 0; }

int qn_given_list(qn_lowering *l, int k, const char *name, int64_t *list, int most)
{
  const qn_argument *a = qn_given(l, k, name);
  if (a->kind == QN_ARGUMENT_INTEGER) return *list = a->integer, 1;
  if (a->kind != QN_ARGUMENT_LIST) return 0;
  for (int j = 0; j < a->n; j++)
    if (j >= most || a->list[j].kind != QN_ARGUMENT_INTEGER)
      return qn_give_up(l, "a list has something else than a few whole numbers"), 0;
    else
      list[j] = a->list[j].integer;
  return a->n;
}

int qn_wrapped(qn_lowering *l, int64_t dim, int ndim)
{
  const int64_t d = dim < 0 ? dim + ndim : dim;
  if (d >= 0 && d < ndim) return (int)d;
  if (ndim == 0 && (dim == 0 || dim == -1)) return 0;
  qn_give_up(l, "a dimension is not there");
  return 0;
}

uint32_t qn_given_dims(qn_lowering *l, int k, const char *name, int ndim)
{
  int64_t list[QN_GRAPH_DIMS];
  const int n = qn_given_list(l, k, name, list, QN_GRAPH_DIMS);
  uint32_t dims = 0;
  for (int j = 0; j < n; j++) dims |= UINT32_C(1) << qn_wrapped(l, list[j], ndim);
  return n ? dims : (UINT32_C(1) << ndim) - 1;
}

int qn_made(qn_lowering *l, qn_value_form form, qn_dtype dtype, int ndim, const int64_t *shape, int a, int b)
{
  const int v = qn_graph_add(l->graph, form, dtype, ndim, shape);
  if (v < 0) return qn_give_up(l, "no memory, or too many elements"), 0;
  qn_graph_value *value = &l->graph->value[v];
  value->node = l->node;
  value->n_arguments = (a >= 0) + (b >= 0);
  if (a >= 0) value->argument[0] = a;
  if (b >= 0) value->argument[1] = b;
  return v;
}

static bool broadcast(qn_lowering *l, int a, int *ndim, int64_t *shape)
{
  const qn_graph_value *v = qn_value_at(l, a);
  const int n = v->ndim > *ndim ? v->ndim : *ndim;
  int64_t both[QN_GRAPH_DIMS];
  for (int d = 1; d <= n; d++) {
    const int64_t x = d <= v->ndim ? v->shape[v->ndim - d] : 1, y = d <= *ndim ? shape[*ndim - d] : 1;
    if (x != y && x != 1 && y != 1) {
      qn_give_up(l, "its arguments' shapes do not broadcast");
      return false;
    }
    both[n - d] = x == 1 ? y : x;
  }
  memcpy(shape, both, (size_t)n * sizeof *both);
  *ndim = n;
  return true;
}

int qn_words_typed(qn_lowering *l, qn_graph_word word, qn_dtype result, qn_dtype compute, int a, int b, int c)
{
  const int arguments[] = {a, b, c}, n = qn_word(word)->n;
  int ndim = 0;
  int64_t shape[QN_GRAPH_DIMS];
  for (int k = 0; k < n; k++)
    if (!broadcast(l, arguments[k], &ndim, shape)) return 0;
  const int v = qn_made(l, QN_FORM_WORD, result, ndim, shape, -1, -1);
  qn_graph_value *value = &l->graph->value[v];
  if (l->why) return 0;
  value->word = word;
  value->compute = compute;
  value->n_arguments = n;
  memcpy(value->argument, arguments, sizeof arguments);
  return v;
}

int qn_words(qn_lowering *l, qn_graph_word word, int a, int b, int c)
{
  const bool truth = qn_word(word)->kind == QN_WORD_COMPARE || qn_word(word)->kind == QN_WORD_LOGIC;
  return qn_words_typed(l, word, truth ? QN_BOOL : l->type, l->type, a, b, c);
}

int qn_reshaped(qn_lowering *l, int a, int ndim, const int64_t *shape)
{
  const int v = qn_made(l, QN_FORM_RESHAPE, qn_value_at(l, a)->dtype, ndim, shape, a, -1);
  if (l->why) return 0;
  if (l->graph->value[v].n != qn_value_at(l, a)->n) return qn_give_up(l, "a view has another number of elements"), 0;
  return v;
}

int qn_viewed(qn_lowering *l, int a, int ndim, const int64_t *shape)
{
  const int v = qn_made(l, QN_FORM_AFFINE, qn_value_at(l, a)->dtype, ndim, shape, a, -1);
  if (l->why) return 0;
  qn_graph_value *value = &l->graph->value[v];
  for (int d = 0; d < qn_value_at(l, a)->ndim; d++)
    value->view[d] = (qn_view_index){.n = d < ndim, .dim = {d}, .step = {1}};
  return v;
}

int qn_padded(qn_lowering *l, int a, const int64_t *low, const int64_t *shape, double fill)
{
  const int other = qn_number(l, fill);
  const int v = qn_made(l, QN_FORM_PAD, qn_value_at(l, a)->dtype, qn_value_at(l, a)->ndim, shape, a, other);
  if (l->why) return 0;
  qn_graph_value *value = &l->graph->value[v];
  memcpy(value->low, low, (size_t)value->ndim * sizeof *low);
  return v;
}

int qn_concatenated(qn_lowering *l, int n, const int *parts, int dim)
{
  int64_t shape[QN_GRAPH_DIMS];
  if (n < 1) return qn_give_up(l, "nothing to put together"), 0;
  memcpy(shape, qn_value_at(l, parts[0])->shape, sizeof shape);
  for (int k = 1; k < n; k++) shape[dim] += qn_value_at(l, parts[k])->shape[dim];
  int *arguments = qn_allocate((size_t)n * sizeof *arguments);
  const int v = arguments ? qn_made(l, QN_FORM_CAT, qn_value_at(l, parts[0])->dtype, qn_value_at(l, parts[0])->ndim,
                                    shape, -1, -1)
                          : (qn_give_up(l, "no memory"), 0);
  if (l->why) return qn_release(arguments), 0;
  memcpy(arguments, parts, (size_t)n * sizeof *parts);
  qn_graph_value *value = &l->graph->value[v];
  value->dim = dim;
  value->n_arguments = n;
  value->arguments = arguments;
  return v;
}

/* A scan that rounds at each element: a processor computes it in double, as PyTorch does there. */
static bool rounds_often(const qn_graph_value *v)
{
  return v->form == QN_FORM_SCAN && v->compute == QN_F32 &&
         (v->reduction == QN_GRAPH_REDUCE_SUM || v->reduction == QN_GRAPH_REDUCE_PROD ||
          v->reduction == QN_GRAPH_REDUCE_LOGSUM);
}

static int along_rows(qn_lowering *l, qn_value_form form, qn_graph_reduction reduction, int a, uint32_t dims,
                      qn_dtype dtype)
{
  int64_t shape[QN_GRAPH_DIMS] = {0};
  const int ndim = qn_value_at(l, a)->ndim;
  for (int d = 0; d < ndim; d++) shape[d] = form == QN_FORM_REDUCE && dims >> d & 1 ? 1 : qn_value_at(l, a)->shape[d];
  const int v = qn_made(l, form, dtype, ndim, shape, a, -1);
  if (l->why) return 0;
  qn_graph_value *value = &l->graph->value[v];
  value->reduction = reduction;
  const bool place = reduction == QN_GRAPH_REDUCE_ARGMAX || reduction == QN_GRAPH_REDUCE_ARGMIN;
  value->compute = qn_compute_type(place ? qn_value_at(l, a)->dtype : dtype);
  value->reduced = dims;
  if (l->graph->on_cpu && rounds_often(value)) value->compute = QN_F64;
  return v;
}

int qn_reduced(qn_lowering *l, qn_graph_reduction reduction, int a, uint32_t dims, qn_dtype dtype)
{
  return along_rows(l, QN_FORM_REDUCE, reduction, a, dims, dtype);
}

int qn_scanned(qn_lowering *l, qn_graph_reduction reduction, int a, int dim, qn_dtype dtype)
{
  return along_rows(l, QN_FORM_SCAN, reduction, a, UINT32_C(1) << dim, dtype);
}

int qn_mean_of(qn_lowering *l, int a, uint32_t dims)
{
  const int sum = qn_reduced(l, QN_GRAPH_REDUCE_SUM, a, dims, l->type);
  const double n = (double)qn_value_at(l, a)->n / (double)qn_value_at(l, sum)->n;
  return qn_words(l, QN_GRAPH_DIV, sum, qn_number(l, n), -1);
}

static bool same_shape(const qn_graph_value *a, const qn_graph_value *b)
{
  return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

void qn_result(qn_lowering *l, int k, int v)
{
  qn_graph_node *node = qn_node_of(l);
  if (l->why || k >= node->n_results) return;
  const qn_graph_value *described = qn_value_at(l, node->result[k]);
  if (!same_shape(described, qn_value_at(l, v))) {
    qn_give_up(l, "its described shape is not what the op makes");
    return;
  }
  const qn_graph_value *is = qn_value_at(l, v);
  const bool own = is->node == l->node && !is->named;
  if (!own || (is->dtype != described->dtype && is->form != QN_FORM_WORD))
    v = qn_words_typed(l, QN_GRAPH_COPY, described->dtype, qn_compute_type(described->dtype), v, -1, -1);
  if (l->why) return;
  qn_graph_value *value = &l->graph->value[v];
  described = qn_value_at(l, node->result[k]);
  value->dtype = described->dtype;
  value->named = true;
  value->result = described->result;
  memcpy(value->strides, described->strides, sizeof value->strides);
  node->result[k] = v;
}

/* ---- nodes ---- */
static const qn_graph_rule *rule_of(const char *op)
{
  static const qn_graph_rule *const lists[] = {
      qn_graph_word_rules,   qn_graph_view_rules,        qn_graph_reduce_rules,   qn_graph_norm_rules,
      qn_graph_window_rules, qn_graph_convolution_rules, qn_graph_recurrent_rules};
  for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
    for (const qn_graph_rule *rule = lists[k]; rule->op; rule++)
      if (!strcmp(rule->op, op)) return rule;
  return NULL;
}

/* Why a node has no rule. */
static const char *without_rule(const char *op)
{
  static const char *const products[] = {"aten.mm.", "aten.addmm.", "aten.bmm.", "aten.baddbmm.",
                                         "aten.scaled_dot_product_attention."};
  for (size_t k = 0; k < sizeof products / sizeof *products; k++)
    if (!strncmp(op, products[k], strlen(products[k]))) return "a product, which this plan leaves to a library";
  return "the planner has no rule for this op";
}

/* A type of which a body can read and write elements, and how many of them. */
static const char *unfit(const qn_graph_value *v)
{
  if (v->ndim > QN_GRAPH_DIMS) return "more than 12 dimensions";
  if (!v->n) return "no elements";
  return NULL;
}

static const char *unfit_arguments(const qn_graph *graph, const qn_argument *list, int n)
{
  const char *why = NULL;
  for (int k = 0; k < n && !why; k++)
    if (list[k].kind == QN_ARGUMENT_VALUE)
      why = unfit(&graph->value[list[k].value]);
    else if (list[k].kind == QN_ARGUMENT_LIST)
      why = unfit_arguments(graph, list[k].list, list[k].n);
  return why;
}

static void lower_node(qn_lowering *l)
{
  const qn_graph_node *node = qn_node_of(l);
  const qn_graph_rule *rule = rule_of(node->op);
  if (!rule || node->is_kept || node->is_random) {
    const char *kept = rule ? "the caller keeps it" : without_rule(node->op);
    qn_give_up(l, node->is_random ? "it draws random numbers" : kept);
    return;
  }
  const char *why = unfit(qn_value_at(l, node->result[0]));
  if (!why) why = unfit_arguments(l->graph, node->argument, node->n_arguments);
  if (!why) why = unfit_arguments(l->graph, node->keyword, node->n_keywords);
  if (why) {
    qn_give_up(l, why);
    return;
  }
  l->type = qn_compute_type(qn_value_at(l, node->result[0])->dtype);
  rule->lower(l, rule->which);
}

/* Arguments of later nodes name the described result; it is another value now. */
static void move_references(qn_argument *list, int n, const int *moved)
{
  for (int k = 0; k < n; k++)
    if (list[k].kind == QN_ARGUMENT_VALUE)
      list[k].value = moved[list[k].value];
    else if (list[k].kind == QN_ARGUMENT_LIST)
      move_references(list[k].list, list[k].n, moved);
}

static void lower_one(qn_graph *graph, int k, int *moved, const bool *used)
{
  qn_lowering l = {.graph = graph, .node = k};
  qn_graph_node *node = &graph->node[k];
  move_references(node->argument, node->n_arguments, moved);
  move_references(node->keyword, node->n_keywords, moved);
  int before[QN_GRAPH_ARGUMENTS];
  const int n = node->n_results, n_shared = graph->n_shared;
  memcpy(before, node->result, (size_t)n * sizeof *before);
  lower_node(&l);
  node = &graph->node[k];
  for (int j = 0; j < n; j++)
    if (used[before[j]] && node->result[j] == before[j]) qn_give_up(&l, "one of its results has no rule");
  for (int j = 0; j < n; j++) {
    if (!l.why && node->result[j] != before[j]) {
      moved[before[j]] = node->result[j];
      continue;
    }
    if (node->result[j] != before[j]) { /* what it made so far is given back */
      graph->value[node->result[j]].named = false;
      node->result[j] = before[j];
    }
  }
  if (l.why) graph->n_shared = n_shared;
  node->is_extern = l.why != NULL;
  node->why = l.why;
  if (l.why) node->is_view = false;
}

static void mark_used(const qn_argument *list, int n, bool *used)
{
  for (int k = 0; k < n; k++)
    if (list[k].kind == QN_ARGUMENT_VALUE)
      used[list[k].value] = true;
    else if (list[k].kind == QN_ARGUMENT_LIST)
      mark_used(list[k].list, list[k].n, used);
}

qn_status qn_graph_lower(qn_graph *graph)
{
  const int n = graph->n_values;
  int *moved = NULL;
  bool *used = qn_allocate_zero((size_t)n + 1, sizeof *used);
  if (!used) return qn_fail(QN_NO_MEMORY, "no memory for %d values", n);
  const qn_status status = qn_try_allocate(&moved, ((size_t)n + 1) * sizeof *moved, "the planner's values");
  for (int k = 0; k < n && !status; k++) moved[k] = k;
  for (int k = 0; k < graph->n_nodes && !status; k++) {
    mark_used(graph->node[k].argument, graph->node[k].n_arguments, used);
    mark_used(graph->node[k].keyword, graph->node[k].n_keywords, used);
  }
  for (int k = 0; k < graph->n_outputs; k++) used[graph->output[k]] = true;
  for (int k = 0; k < graph->n_nodes && !status; k++) lower_one(graph, k, moved, used);
  for (int k = 0; k < graph->n_outputs && !status; k++) graph->output[k] = moved[graph->output[k]];
  qn_release(moved);
  qn_release(used);
  return status;
}
