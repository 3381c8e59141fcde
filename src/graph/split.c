/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - few long rows are reduced in two steps, so that all of a device works on them: each row in parts that lie
 * along memory, and then the parts; on a processor few long columns too. A scan is three: the parts reduced, their
 * results scanned, and the parts scanned from what is before each. How many is a matter of the shapes alone, so the
 * order of additions is fixed. */
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

/* The memory that its elements come from, in the same shape. */
static const qn_graph_value *memory_of(const qn_graph *graph, const qn_graph_value *v)
{
  while (!v->named && (v->form == QN_FORM_WORD || v->form == QN_FORM_CAST)) {
    const qn_graph_value *same = NULL;
    for (int k = 0; k < v->n_arguments && !same; k++) {
      const qn_graph_value *a = &graph->value[v->argument[k]];
      if (a->ndim == v->ndim && !memcmp(a->shape, v->shape, (size_t)v->ndim * sizeof *v->shape)) same = a;
    }
    if (!same) break;
    v = same;
  }
  return v;
}

bool qn_graph_lies_across(const qn_graph *graph, int value, uint32_t dims)
{
  const qn_graph_value *v = memory_of(graph, &graph->value[value]);
  const bool known = v->named || v->form == QN_FORM_INPUT || v->form == QN_FORM_EXTERN;
  int inner = -1;
  for (int d = v->ndim - 1; d >= 0; d--)
    if (v->shape[d] > 1 && (inner < 0 || (known && v->strides[d] < v->strides[inner]))) inner = d;
  return inner >= 0 && !(dims >> inner & 1);
}

int64_t qn_graph_held_parts(int64_t length, bool across)
{
  enum { HELD = QN_HELD * 1024, HELD_ACROSS = QN_HELD * 32, PART = 8192, PART_ACROSS = 512, LEAST = 8, VECTOR = 8 };
  const int64_t part = across ? PART_ACROSS : PART;
  if (length <= (across ? HELD_ACROSS : HELD)) return 0;
  for (int64_t d = (length + part - 1) / part; d <= length / part * LEAST; d++)
    if (length % d == 0 && (across || length / d % VECTOR == 0)) return d;
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

/* The argument with its kept dimensions first, or (columns) last. n_kept: how many these are. */
static int kept_apart(qn_graph *graph, int value, bool columns, int *n_kept, int64_t *shape)
{
  const qn_graph_value v = graph->value[value];
  const int a = v.argument[0], ndim = graph->value[a].ndim;
  int place[QN_GRAPH_DIMS], n = 0;
  for (int part = 0; part < 2; part++) {
    for (int d = 0; d < ndim; d++)
      if ((int)(v.reduced >> d & 1) == (part != columns)) {
        place[d] = n;
        shape[n++] = graph->value[a].shape[d];
      }
    if (!part) *n_kept = columns ? ndim - n : n;
  }
  const int view = add(graph, QN_FORM_AFFINE, value, a, ndim, shape);
  for (int d = 0; view >= 0 && d < ndim; d++)
    graph->value[view].view[d] = (qn_view_index){.n = 1, .dim = {place[d]}, .step = {1}};
  return view;
}

/* A reduction or scan, like the value's, of an argument of three dimensions. */
static int add_along(qn_graph *graph, qn_value_form form, int like, int argument, int dim)
{
  int64_t shape[3];
  if (argument < 0) return argument;
  memcpy(shape, graph->value[argument].shape, sizeof shape);
  if (form == QN_FORM_REDUCE) shape[dim] = 1;
  const int v = add(graph, form, like, argument, 3, shape);
  if (v < 0) return v;
  graph->value[v].dtype = graph->value[v].compute = graph->value[like].compute;
  graph->value[v].reduction = graph->value[like].reduction;
  graph->value[v].reduced = UINT32_C(1) << dim;
  return v;
}

/* The argument as rows, parts of a row, elements of a part. */
static int in_parts(qn_graph *graph, int value, int64_t parts, int *n_kept, int64_t *shape)
{
  const int64_t length = qn_row_length(graph, &graph->value[value]),
                n = graph->value[graph->value[value].argument[0]].n;
  const int v = kept_apart(graph, value, false, n_kept, shape);
  return v < 0 ? v : add(graph, QN_FORM_RESHAPE, value, v, 3, (int64_t[]){n / length, parts, length / parts});
}

/* What is before each part: the scanned results of those before it, and of none for the first. */
static int before_parts(qn_graph *graph, int value, int scanned)
{
  const double first = qn_reduction(graph->value[value].reduction)->first;
  const int v = scanned < 0 ? scanned : add(graph, QN_FORM_PAD, value, scanned, 3, graph->value[scanned].shape);
  const int fill = v < 0 ? v : qn_graph_add(graph, QN_FORM_CONSTANT, graph->value[v].dtype, 0, NULL);
  if (fill < 0) return fill;
  graph->value[fill].node = graph->value[value].node;
  graph->value[fill].real = first;
  graph->value[fill].whole = (int64_t)first;
  graph->value[v].n_arguments = 2;
  graph->value[v].argument[1] = fill;
  graph->value[v].low[1] = 1;
  return v;
}

static bool split_scan(qn_graph *graph, int value, int64_t parts)
{
  int64_t shape[QN_GRAPH_DIMS] = {0};
  int n_kept = 0;
  const int rows = in_parts(graph, value, parts, &n_kept, shape);
  const int each = add_along(graph, QN_FORM_REDUCE, value, rows, 2);
  const int before = before_parts(graph, value, add_along(graph, QN_FORM_SCAN, value, each, 1));
  const int inside = add_along(graph, QN_FORM_SCAN, value, rows, 2);
  if (rows < 0 || each < 0 || before < 0 || inside < 0) return false;
  int v = add(graph, QN_FORM_WORD, value, inside, 3, graph->value[inside].shape);
  if (v < 0) return false;
  graph->value[v].word = graph->value[value].reduction == QN_GRAPH_REDUCE_SUM ? QN_GRAPH_ADD : QN_GRAPH_MUL;
  graph->value[v].compute = graph->value[value].compute;
  graph->value[v].dtype = graph->value[value].dtype;
  graph->value[v].n_arguments = 2;
  graph->value[v].argument[0] = before;
  graph->value[v].argument[1] = inside;
  v = add(graph, QN_FORM_RESHAPE, value, v, n_kept + 1, shape);
  if (v < 0) return false;
  qn_graph_value *whole = &graph->value[value];
  for (int d = 0, k = 0; d < whole->ndim; d++)
    whole->view[whole->reduced >> d & 1 ? n_kept : k++] = (qn_view_index){.n = 1, .dim = {d}, .step = {1}};
  whole->form = QN_FORM_AFFINE;
  whole->argument[0] = v;
  return true;
}

/* The value reduces `first`, of {kept dimensions, parts}, or (columns) of {parts, kept dimensions}. */
static bool reduce_parts(qn_graph *graph, int value, int first, bool columns, int n_kept, const int64_t *shape,
                         int64_t parts)
{
  int64_t target[QN_GRAPH_DIMS];
  int along = -1, k = columns;
  const int ndim = graph->value[graph->value[value].argument[0]].ndim;
  if (first < 0) return false;
  if (graph->on_cpu && graph->value[value].reduction == QN_GRAPH_REDUCE_SUM && graph->value[value].compute == QN_F32)
    graph->value[first].dtype = graph->value[value].compute = QN_F64; /* parts are not rounded to float */
  int v = add(graph, QN_FORM_RESHAPE, value, first, n_kept + 1, shape);
  memcpy(target, graph->value[value].shape, sizeof target);
  for (int d = ndim - 1; d >= 0; d--)
    if (graph->value[value].reduced >> d & 1) along = d;
  target[along] = parts;
  v = v < 0 ? v : add(graph, QN_FORM_AFFINE, value, v, ndim, target);
  if (v < 0) return false;
  for (int d = 0; d < ndim; d++)
    if (!(graph->value[value].reduced >> d & 1))
      graph->value[v].view[k++] = (qn_view_index){.n = 1, .dim = {d}, .step = {1}};
  graph->value[v].view[columns ? 0 : k] = (qn_view_index){.n = 1, .dim = {along}, .step = {1}};
  graph->value[value].argument[0] = v;
  return true;
}

static bool split(qn_graph *graph, int value, int64_t parts)
{
  int64_t shape[QN_GRAPH_DIMS] = {0};
  int n_kept = 0;
  const int first = add_along(graph, QN_FORM_REDUCE, value, in_parts(graph, value, parts, &n_kept, shape), 2);
  shape[n_kept] = parts;
  return reduce_parts(graph, value, first, false, n_kept, shape, parts);
}

/* Few long columns in blocks that lie along memory, each in rows of `wide` neighbours and so in as many columns more.
 */
static bool split_columns(qn_graph *graph, int value, int64_t blocks, int64_t wide)
{
  int64_t apart[QN_GRAPH_DIMS] = {0}, shape[QN_GRAPH_DIMS] = {0};
  int n_kept = 0;
  const int64_t length = qn_row_length(graph, &graph->value[value]), parts = blocks * wide;
  const int ndim = graph->value[graph->value[value].argument[0]].ndim;
  int v = kept_apart(graph, value, true, &n_kept, apart);
  const int64_t rows = graph->value[graph->value[value].argument[0]].n / length;
  if (v < 0) return false;
  v = add(graph, QN_FORM_RESHAPE, value, v, 3, (int64_t[]){blocks, length / parts, wide * rows});
  shape[0] = parts;
  memcpy(shape + 1, apart + ndim - n_kept, (size_t)n_kept * sizeof *shape);
  return reduce_parts(graph, value, add_along(graph, QN_FORM_REDUCE, value, v, 1), true, n_kept, shape, parts);
}

/* Whether a processor's columns are few and long, so that there is work for several threads, and for 64 lanes of one.
 */
static bool are_few_columns(const qn_graph *graph, const qn_graph_value *v, int64_t rows, int64_t length,
                            int64_t *blocks, int64_t *wide)
{
  enum { LANES = 64, THREADS = 8, LEAST = 1 << 18, BLOCK = 1024 };
  const qn_graph_value *a = &graph->value[v->argument[0]];
  int last = a->ndim - 1;
  while (last > 0 && a->shape[last] == 1) last--;
  if (!graph->on_cpu || v->form != QN_FORM_REDUCE || last < 0 || v->reduced >> last & 1 || length * rows < LEAST)
    return false;
  const int64_t units = (rows + LANES - 1) / LANES, most = length * rows / LANES / BLOCK;
  for (*wide = 1; *wide * rows < LANES && length % (*wide * 2) == 0;) *wide *= 2;
  *blocks = units > THREADS / 2 || most < 2 || *wide * rows % (LANES / 2)
                ? 1
                : divisor_near(length / *wide, most < THREADS ? most : THREADS);
  if (*blocks < 1) *blocks = 1;
  return *blocks * *wide > 1;
}

/* How many parts a GPU's few long columns have, so that there are some 1,024 threadgroups of 32 columns. */
static int64_t parts_of_columns(const qn_graph *graph, int value, int64_t rows, int64_t length)
{
  enum { GROUPS = 1024, LANES = 32, PART = 256, FEW_COLUMNS = 4096, LONG_COLUMN = 2048 };
  const qn_graph_value *v = &graph->value[value];
  const int64_t groups = (rows + LANES - 1) / LANES;
  if (graph->on_cpu || v->form != QN_FORM_REDUCE || rows >= FEW_COLUMNS || length < LONG_COLUMN) return 0;
  if (!qn_graph_lies_across(graph, v->argument[0], v->reduced)) return 0;
  return divisor_near(length, GROUPS / groups < length / PART ? GROUPS / groups : length / PART);
}

qn_status qn_graph_split(qn_graph *graph)
{
  const int n = graph->n_values;
  for (int k = 0; k < n; k++) {
    const qn_graph_value *v = &graph->value[k];
    const bool scans = v->form == QN_FORM_SCAN && v->reduction <= QN_GRAPH_REDUCE_PROD;
    if (!scans && (v->form != QN_FORM_REDUCE || v->reduction >= QN_GRAPH_REDUCE_ARGMAX)) continue;
    const int64_t length = qn_row_length(graph, v), rows = graph->value[v->argument[0]].n / length;
    int64_t blocks, wide;
    if ((blocks = parts_of_columns(graph, k, rows, length))) wide = 1;
    if (blocks || are_few_columns(graph, v, rows, length, &blocks, &wide)) {
      if (!split_columns(graph, k, blocks, wide)) return qn_fail(QN_NO_MEMORY, "graph: no memory for parts of columns");
      continue;
    }
    if (length < LONG_ROW || rows >= (graph->on_cpu ? 8 : FEW_ROWS)) continue;
    const int64_t parts = divisor_near(length, (graph->on_cpu ? PARTS_ON_CPU : PARTS) / rows);
    if (parts && !(scans ? split_scan : split)(graph, k, parts))
      return qn_fail(QN_NO_MEMORY, "graph: no memory for parts of rows");
  }
  return QN_OK;
}
