/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - a graph from its description. References go to what stands before them, so there is no circle; sizes are
 * bounded, so that places and products of extents fit 64 bits. */
#include "core/json.h"
#include "graph/graph.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t most_elements = INT64_C(1) << 48;

typedef struct entry {
  const char *name;
  int value, n; /* the first of n values; n = 0: an input */
} entry;

typedef struct source {
  const qn_json *root;
  qn_graph *graph;
  entry *entry; /* sorted by name */
  int n_entries, entries;
} source;

/* ---- what others use ---- */
qn_dtype qn_compute_type(qn_dtype dtype)
{
  switch (dtype) {
  case QN_F64:
  case QN_I64:
  case QN_BOOL: return dtype;
  case QN_F32:
  case QN_F16:
  case QN_BF16: return QN_F32;
  default: return QN_I32;
  }
}

bool qn_is_real(qn_dtype dtype) { return dtype >= QN_F32 && dtype <= QN_F64; }
bool qn_is_memory(const qn_graph_value *v) { return v->form == QN_FORM_INPUT || v->form == QN_FORM_EXTERN; }

bool qn_is_in_order(const qn_graph_value *v, const int64_t *strides, const int *order)
{
  int64_t step = 1;
  for (int k = v->ndim - 1; k >= 0; k--) {
    const int d = order ? order[k] : k;
    if (v->shape[d] != 1 && strides[d] != step) return false;
    step *= v->shape[d];
  }
  return true;
}

void qn_stored_order(const qn_graph_value *v, int64_t *strides, int *order)
{
  int sorted[QN_GRAPH_DIMS];
  for (int d = 0; d < v->ndim; d++) {
    int k = d;
    for (; k > 0 && (v->shape[sorted[k - 1]] == 1 || v->strides[sorted[k - 1]] < v->strides[d]); k--)
      sorted[k] = sorted[k - 1];
    order[d] = d;
    sorted[k] = d;
  }
  if (!qn_is_in_order(v, v->strides, NULL) && qn_is_in_order(v, v->strides, sorted))
    memcpy(order, sorted, (size_t)v->ndim * sizeof *order);
  int64_t step = 1;
  for (int k = v->ndim - 1; k >= 0; k--) {
    strides[order[k]] = step;
    step *= v->shape[order[k]];
  }
}
bool qn_is_view(const qn_graph_value *v) { return v->form == QN_FORM_AFFINE || v->form == QN_FORM_RESHAPE; }
bool qn_has_rows(const qn_graph_value *v) { return v->form == QN_FORM_REDUCE || v->form == QN_FORM_SCAN; }

int64_t qn_row_length(const qn_graph *graph, const qn_graph_value *v)
{
  const qn_graph_value *a = &graph->value[v->argument[0]];
  int64_t length = 1;
  for (int d = 0; d < a->ndim; d++)
    if (v->reduced >> d & 1) length *= a->shape[d];
  return length;
}

const int *qn_arguments_of(const qn_graph_value *v) { return v->arguments ? v->arguments : v->argument; }

int qn_graph_add(qn_graph *graph, qn_value_form form, qn_dtype dtype, int ndim, const int64_t *shape)
{
  qn_graph_value value = {.form = form, .dtype = dtype, .ndim = ndim, .n = 1};
  if (ndim > QN_GRAPH_DIMS) return -1;
  for (int d = 0; d < ndim; d++) {
    value.shape[d] = shape[d];
    if (__builtin_mul_overflow(value.n, shape[d], &value.n) || value.n > most_elements) return -1;
  }
  if (graph->n_values == graph->values) {
    const int more = graph->values ? graph->values * 2 : 64;
    qn_graph_value *grown = qn_reallocate(graph->value, (size_t)more * sizeof *grown);
    if (!grown) return -1;
    graph->value = grown;
    graph->values = more;
  }
  graph->value[graph->n_values] = value;
  return graph->n_values++;
}

static void free_arguments(qn_argument *list, int n)
{
  for (int k = 0; k < n; k++) {
    free_arguments(list[k].list, list[k].n);
    qn_release(list[k].text);
    qn_release((char *)list[k].name);
  }
  qn_release(list);
}

void qn_graph_free(qn_graph *graph)
{
  for (int k = 0; k < graph->n_values; k++) {
    qn_release(graph->value[k].name);
    qn_release(graph->value[k].arguments);
  }
  for (int k = 0; k < graph->n_nodes; k++) {
    qn_graph_node *node = &graph->node[k];
    free_arguments(node->argument, node->n_arguments);
    free_arguments(node->keyword, node->n_keywords);
    qn_release(node->result);
    qn_release(node->name);
    qn_release(node->op);
  }
  qn_release(graph->value);
  qn_release(graph->node);
  qn_release(graph->output);
  qn_release(graph->shared);
  *graph = (qn_graph){0};
}

/* ---- names ---- */
static int position(const source *s, const char *name, bool *found)
{
  int low = 0, high = s->n_entries;
  while (low < high) {
    const int middle = (low + high) / 2, order = strcmp(s->entry[middle].name, name);
    if (!order) return *found = true, middle;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  *found = false;
  return low;
}

static qn_status enter(source *s, const char *name, int value, int n)
{
  bool found;
  const int at = position(s, name, &found);
  qn_require(!found, "graph: two values are named %s", name);
  if (s->n_entries == s->entries) {
    const int more = s->entries ? s->entries * 2 : 64;
    entry *grown = qn_reallocate(s->entry, (size_t)more * sizeof *grown);
    if (!grown) return qn_fail(QN_NO_MEMORY, "graph: no memory for %d names", more);
    s->entry = grown;
    s->entries = more;
  }
  memmove(&s->entry[at + 1], &s->entry[at], (size_t)(s->n_entries - at) * sizeof *s->entry);
  s->entry[at] = (entry){name, value, n};
  s->n_entries++;
  return QN_OK;
}

static bool is_identifier(const char *s)
{
  if (!*s || (*s >= '0' && *s <= '9') || strlen(s) > 200) return false;
  for (; *s; s++)
    if (!(*s == '_' || (*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z'))) return false;
  return true;
}

static qn_status name_of(const qn_json *part, const char *what, const char **name)
{
  const qn_json *one = qn_json_get(part, "name");
  qn_require(qn_json_is(one, QN_JSON_STRING), "graph: %s has no name", what);
  qn_require(is_identifier(one->string), "graph: %s is named \"%.60s\", which is no identifier", what, one->string);
  *name = one->string;
  return QN_OK;
}

/* ---- tensors ---- */
static qn_status extents(const qn_json *part, const char *key, const char *name, int *n, int64_t *list)
{
  const qn_json *all = qn_json_get(part, key);
  *n = 0;
  qn_require(qn_json_is(all, QN_JSON_ARRAY), "graph: %s has no %s", name, key);
  for (const qn_json *one = qn_json_first(all); one; one = one->next) {
    qn_require(qn_json_is(one, QN_JSON_INTEGER), "graph: %s: its %s is not of whole numbers", name, key);
    qn_require(*n < QN_MAX_NDIM, "graph: %s has more than %d dimensions", name, QN_MAX_NDIM);
    list[(*n)++] = one->integer;
  }
  return QN_OK;
}

/* A tensor of more dimensions than the planner has is one of none with no elements: nothing can be made of it. */
static qn_status tensor(source *s, const qn_json *part, const char *name, qn_value_form form, int node, int *value)
{
  int n = 0, n_strides = 0;
  int64_t shape[QN_MAX_NDIM] = {0}, strides[QN_MAX_NDIM] = {0}, far = 0, step = 1;
  const qn_json *dtype = qn_json_get(part, "dtype");
  qn_require(qn_json_is(dtype, QN_JSON_STRING), "graph: %s has no dtype", name);
  const qn_dtype type = qn_dtype_from_name(dtype->string);
  const bool known = type >= QN_F32 && type <= QN_I64 && type != QN_U16 && type != QN_U32 && type != QN_U64;
  qn_require(known, "graph: %s is of type \"%.20s\": f32, f16, bf16, f64, i64, i32, i16, i8, u8 and bool are known",
             name, dtype->string);
  qn_try(extents(part, "shape", name, &n, shape));
  if (qn_json_get(part, "strides"))
    qn_try(extents(part, "strides", name, &n_strides, strides));
  else {
    n_strides = n;
    for (int d = n - 1; d >= 0; d--) {
      strides[d] = step;
      if (shape[d] > 1 && __builtin_mul_overflow(step, shape[d], &step)) step = most_elements;
    }
  }
  qn_require(n == n_strides, "graph: %s has %d extents and %d strides", name, n, n_strides);
  for (int d = 0; d < n; d++) {
    int64_t reach;
    qn_require(shape[d] >= 0, "graph: %s has an extent of %lld", name, (long long)shape[d]);
    qn_require(strides[d] >= 0, "graph: %s has a stride of %lld", name, (long long)strides[d]);
    qn_require(!__builtin_mul_overflow(shape[d], strides[d], &reach) && reach <= most_elements - far,
               "graph: %s reaches over more than 2^48 elements", name);
    far += reach;
  }
  const bool wide = n > QN_GRAPH_DIMS;
  const int v = qn_graph_add(s->graph, form, type, wide ? 1 : n, wide ? &(int64_t){0} : shape);
  qn_require(v >= 0, "graph: %s has more than 2^48 elements, or there is no memory for it", name);
  qn_graph_value *made = &s->graph->value[v];
  made->node = node;
  made->named = true;
  memcpy(made->strides, strides, sizeof made->strides);
  *value = v;
  return QN_OK;
}

static qn_status input(source *s, const qn_json *part)
{
  const char *name;
  int v;
  qn_try(name_of(part, "an input", &name));
  qn_try(tensor(s, part, name, QN_FORM_INPUT, -1, &v));
  s->graph->value[v].name = qn_duplicate(name);
  if (!s->graph->value[v].name) return qn_fail(QN_NO_MEMORY, "graph: no memory for a name");
  return enter(s, name, v, 0);
}

/* ---- arguments ---- */
static qn_status reference(const source *s, const qn_json *part, const char *user, int *value)
{
  const qn_json *ref = qn_json_is(part, QN_JSON_STRING) ? part : qn_json_get(part, "ref");
  const qn_json *index = qn_json_is(part, QN_JSON_STRING) ? NULL : qn_json_get(part, "index");
  qn_require(qn_json_is(ref, QN_JSON_STRING), "graph: %s: a reference is no name", user);
  bool found;
  const int at = position(s, ref->string, &found);
  qn_require(found, "graph: %s: there is no value \"%.60s\" before it", user, ref->string);
  const entry *e = &s->entry[at];
  const int64_t k = qn_json_is(index, QN_JSON_INTEGER) ? index->integer : index ? -1 : 0;
  qn_require(k >= 0 && k < (e->n ? e->n : 1), "graph: %s: %s has no result of that index", user, ref->string);
  *value = e->value + (int)k;
  return QN_OK;
}

static qn_status argument(source *s, const qn_json *part, const char *user, qn_argument *a);

static qn_status argument_list(source *s, const qn_json *part, const char *user, int *n, qn_argument **list)
{
  if (!part->n) return QN_OK;
  *list = qn_allocate_zero((size_t)part->n, sizeof **list);
  if (!*list) return qn_fail(QN_NO_MEMORY, "graph: no memory for the arguments of %s", user);
  *n = part->n;
  int k = 0;
  for (const qn_json *one = qn_json_first(part); one; one = one->next, k++) {
    if (one->key && !((*list)[k].name = qn_duplicate(one->key)))
      return qn_fail(QN_NO_MEMORY, "graph: no memory for the arguments of %s", user);
    qn_try(argument(s, one, user, &(*list)[k]));
  }
  return QN_OK;
}

static qn_status text_argument(const char *text, qn_argument *a)
{
  a->kind = QN_ARGUMENT_TEXT;
  a->text = qn_duplicate(text);
  return a->text ? QN_OK : qn_fail(QN_NO_MEMORY, "graph: no memory for an argument");
}

static qn_status object_argument(source *s, const qn_json *part, const char *user, qn_argument *a)
{
  const qn_json *number = qn_json_get(part, "float"), *word = qn_json_first(part);
  if (qn_json_get(part, "ref")) {
    a->kind = QN_ARGUMENT_VALUE;
    return reference(s, part, user, &a->value);
  }
  if (number) {
    const bool nan = qn_json_is(number, QN_JSON_STRING) && !strcmp(number->string, "nan");
    const bool minus = qn_json_is(number, QN_JSON_STRING) && !strcmp(number->string, "-inf");
    qn_require(nan || minus || (qn_json_is(number, QN_JSON_STRING) && !strcmp(number->string, "inf")),
               "graph: %s: a float is none of \"nan\", \"inf\", \"-inf\"", user);
    a->kind = QN_ARGUMENT_REAL;
    a->real = nan ? (double)NAN : minus ? -(double)INFINITY : (double)INFINITY;
    return QN_OK;
  }
  return text_argument(qn_json_is(word, QN_JSON_STRING) ? word->string : "", a); /* a dtype, a device, a layout */
}

static qn_status argument(source *s, const qn_json *part, const char *user, qn_argument *a)
{
  switch (part->type) {
  case QN_JSON_NULL: return QN_OK;
  case QN_JSON_BOOL:
    a->kind = QN_ARGUMENT_BOOL;
    a->integer = part->boolean;
    return QN_OK;
  case QN_JSON_INTEGER:
    a->kind = QN_ARGUMENT_INTEGER;
    a->integer = part->integer;
    return QN_OK;
  case QN_JSON_REAL:
    a->kind = QN_ARGUMENT_REAL;
    a->real = part->real;
    return QN_OK;
  case QN_JSON_STRING: return text_argument(part->string, a);
  case QN_JSON_ARRAY: a->kind = QN_ARGUMENT_LIST; return argument_list(s, part, user, &a->n, &a->list);
  default: return object_argument(s, part, user, a);
  }
}

/* ---- nodes ---- */
/* An op that changes its arguments keeps its place among the others. */
static bool has_effects(const char *op)
{
  const char *dot = strrchr(op, '.');
  const size_t n = strlen(op);
  if (n > 4 && (!strcmp(op + n - 4, ".out") || !strcmp(op + n - 4, "_out"))) return true;
  if (dot > op && dot[-1] == '_' && strncmp(op, "prims", 5)) return true;
  return strstr(op, "with_update.default") != NULL;
}

/* A batch norm that trains writes its running statistics. */
static bool changes_statistics(const qn_graph_node *node)
{
  return strstr(node->op, "batch_norm") && !strstr(node->op, "functional") && node->n_arguments > 5 &&
         node->argument[3].kind == QN_ARGUMENT_VALUE && node->argument[5].kind == QN_ARGUMENT_BOOL &&
         node->argument[5].integer;
}

static qn_status results(source *s, const qn_json *part, const char *name, int node, int *first, int *n)
{
  const qn_json *several = qn_json_get(part, "results");
  *first = s->graph->n_values;
  *n = 1;
  int v;
  if (!several) {
    qn_try(tensor(s, part, name, QN_FORM_EXTERN, node, &v));
    s->graph->value[v].result = -1;
    return QN_OK;
  }
  qn_require(qn_json_is(several, QN_JSON_ARRAY) && several->n >= 1 && several->n <= QN_GRAPH_ARGUMENTS,
             "graph: %s has no results, or more than %d", name, QN_GRAPH_ARGUMENTS);
  *n = several->n;
  int k = 0;
  for (const qn_json *one = qn_json_first(several); one; one = one->next, k++) {
    qn_try(tensor(s, one, name, QN_FORM_EXTERN, node, &v));
    s->graph->value[v].result = k;
  }
  return QN_OK;
}

static qn_status read_node(source *s, const qn_json *part, int *era)
{
  qn_graph *graph = s->graph;
  const int k = graph->n_nodes;
  const char *name;
  int first, n;
  qn_try(name_of(part, "a node", &name));
  const qn_json *op = qn_json_get(part, "op"), *args = qn_json_get(part, "args");
  const qn_json *kwargs = qn_json_get(part, "kwargs"), *kept = qn_json_get(part, "extern");
  const qn_json *random = qn_json_get(part, "random");
  qn_require(!kept || kept->type == QN_JSON_BOOL, "graph: node %s: extern is neither true nor false", name);
  qn_require(!random || random->type == QN_JSON_BOOL, "graph: node %s: random is neither true nor false", name);
  qn_require(qn_json_is(op, QN_JSON_STRING), "graph: node %s has no op", name);
  qn_require(!args || qn_json_is(args, QN_JSON_ARRAY), "graph: node %s: its args are no list", name);
  qn_require(!kwargs || qn_json_is(kwargs, QN_JSON_OBJECT), "graph: node %s: its kwargs are no object", name);
  qn_graph_node *node = &graph->node[graph->n_nodes++];
  node->name = qn_duplicate(name);
  node->op = qn_duplicate(op->string);
  if (!node->name || !node->op) return qn_fail(QN_NO_MEMORY, "graph: no memory for node %s", name);
  if (args) qn_try(argument_list(s, args, name, &node->n_arguments, &node->argument));
  if (kwargs) qn_try(argument_list(s, kwargs, name, &node->n_keywords, &node->keyword));
  qn_try(results(s, part, name, k, &first, &n));
  qn_try(qn_try_allocate(&node->result, (size_t)n * sizeof *node->result, "a node's results"));
  for (int j = 0; j < n; j++) node->result[j] = first + j;
  node->n_results = n;
  node->is_kept = kept && kept->boolean;
  node->is_random = random && random->boolean;
  node->has_effects = has_effects(op->string) || changes_statistics(node) || node->is_random;
  *era += node->has_effects;
  node->era = *era;
  *era += node->has_effects;
  return enter(s, name, first, n);
}

static qn_status outputs(source *s, const qn_json *list)
{
  qn_require(qn_json_is(list, QN_JSON_ARRAY) && list->n, "graph: it has no outputs");
  qn_try(qn_try_allocate(&s->graph->output, (size_t)list->n * sizeof *s->graph->output, "the graph's outputs"));
  for (const qn_json *one = qn_json_first(list); one; one = one->next) {
    qn_try(reference(s, one, "outputs", &s->graph->output[s->graph->n_outputs]));
    s->graph->n_outputs++;
  }
  return QN_OK;
}

static qn_status read_all(source *s)
{
  const qn_json *whole = s->root;
  const qn_json *ins = qn_json_get(whole, "inputs"), *nodes = qn_json_get(whole, "nodes");
  const qn_json *device = qn_json_get(whole, "device");
  qn_require(qn_json_is(whole, QN_JSON_OBJECT), "graph: it is no object");
  qn_require(qn_json_is(ins, QN_JSON_ARRAY), "graph: it has no list of inputs");
  qn_require(qn_json_is(nodes, QN_JSON_ARRAY), "graph: it has no list of nodes");
  const bool cuda = !device || (qn_json_is(device, QN_JSON_STRING) && !strncmp(device->string, "cuda", 4));
  s->graph->on_cpu = qn_json_is(device, QN_JSON_STRING) && !strcmp(device->string, "cpu");
  qn_require(cuda || s->graph->on_cpu, "graph: its device is neither \"cuda\" nor \"cpu\"");
  const qn_json *convolutions = qn_json_get(whole, "convolutions");
  qn_require(!convolutions || (qn_json_is(convolutions, QN_JSON_STRING) && !strcmp(convolutions->string, "tf32")),
             "graph: its convolutions are not \"tf32\"");
  s->graph->convolutions = convolutions && cuda;
  for (const qn_json *one = qn_json_first(ins); one; one = one->next) qn_try(input(s, one));
  s->graph->node = qn_allocate_zero((size_t)nodes->n + 1, sizeof *s->graph->node);
  if (!s->graph->node) return qn_fail(QN_NO_MEMORY, "graph: no memory for %d nodes", nodes->n);
  int era = 0;
  for (const qn_json *one = qn_json_first(nodes); one; one = one->next) qn_try(read_node(s, one, &era));
  return outputs(s, qn_json_get(whole, "outputs"));
}

qn_status qn_graph_read(const char *text, size_t bytes, qn_graph *graph)
{
  qn_json_tree tree;
  *graph = (qn_graph){0};
  qn_try(qn_json_read(text, bytes, "graph", &tree));
  source s = {.root = tree.root, .graph = graph};
  const qn_status status = read_all(&s);
  qn_release(s.entry);
  qn_json_free(&tree);
  if (status) qn_graph_free(graph);
  return status;
}
