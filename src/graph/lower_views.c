/* SPDX-License-Identifier: Apache-2.0 */
/* lower_views.c - ops that move no numbers, or only places: an index map each. Those of PyTorch's that share memory are
 * marked as views: where somebody outside needs one, the caller makes it. */
#include "graph/lower.h"
#include <string.h>

static void described(const qn_lowering *l, int k, int *ndim, int64_t shape[QN_GRAPH_DIMS])
{
  const qn_graph_value *v = qn_value_at(l, qn_node_of(l)->result[k]);
  *ndim = v->ndim;
  memcpy(shape, v->shape, sizeof v->shape);
}

/* The same elements row by row, in the described shape. */
static void reshape(qn_lowering *l, int copies)
{
  int ndim;
  int64_t shape[QN_GRAPH_DIMS];
  described(l, 0, &ndim, shape);
  const int a = qn_given_value(l, 0, "self");
  if (l->why) return;
  qn_result(l, 0, qn_reshaped(l, a, ndim, shape));
  qn_node_of(l)->is_view = !copies;
}

int qn_permuted(qn_lowering *l, int a, const int *order)
{
  int64_t shape[QN_GRAPH_DIMS];
  const int n = qn_value_at(l, a)->ndim;
  for (int d = 0; d < n; d++) shape[d] = qn_value_at(l, a)->shape[order[d]];
  const int v = qn_viewed(l, a, n, shape);
  for (int d = 0; d < n && !l->why; d++)
    l->graph->value[v].view[order[d]] = (qn_view_index){.n = 1, .dim = {d}, .step = {1}};
  return v;
}

/* which: 0 permute, 1 transpose of two, 2 t */
static void permute(qn_lowering *l, int which)
{
  const int a = qn_given_value(l, 0, "self"), n = qn_value_at(l, a)->ndim;
  int order[QN_GRAPH_DIMS];
  int64_t list[QN_GRAPH_DIMS];
  for (int d = 0; d < n; d++) order[d] = d;
  if (which == 0) {
    qn_give_up_if(l, qn_given_list(l, 1, "dims", list, QN_GRAPH_DIMS) != n, "an order of other dimensions");
    for (int d = 0; d < n; d++) order[d] = qn_wrapped(l, list[d], n);
  } else if (n > 1) {
    const int p = which == 2 ? 0 : qn_wrapped(l, qn_given_integer(l, 1, "dim0", 0), n);
    const int q = which == 2 ? 1 : qn_wrapped(l, qn_given_integer(l, 2, "dim1", 0), n);
    order[p] = q;
    order[q] = p;
  }
  if (l->why) return;
  qn_result(l, 0, qn_permuted(l, a, order));
  qn_node_of(l)->is_view = true;
}

static void expand(qn_lowering *l, int which)
{
  (void)which;
  int ndim;
  int64_t shape[QN_GRAPH_DIMS];
  described(l, 0, &ndim, shape);
  const int a = qn_given_value(l, 0, "self"), n = qn_value_at(l, a)->ndim, v = qn_viewed(l, a, ndim, shape);
  if (n > ndim) qn_give_up(l, "it expands to fewer dimensions");
  for (int d = 0; d < n && !l->why; d++) {
    const int64_t have = qn_value_at(l, a)->shape[d], want = shape[d + ndim - n];
    if (have != want && have != 1) qn_give_up(l, "it expands a dimension that is not 1");
    l->graph->value[v].view[d] = (qn_view_index){.n = have != 1, .dim = {d + ndim - n}, .step = {1}};
  }
  qn_result(l, 0, v);
  qn_node_of(l)->is_view = true;
}

static int sliced(qn_lowering *l, int a, int dim, int64_t low, int64_t step, int64_t extent)
{
  int64_t shape[QN_GRAPH_DIMS];
  const int n = qn_value_at(l, a)->ndim;
  memcpy(shape, qn_value_at(l, a)->shape, sizeof shape);
  const int64_t most = low + step * (extent - 1);
  if (low < 0 || most < 0 || low >= shape[dim] || most >= shape[dim]) return qn_give_up(l, "it reaches outside"), 0;
  shape[dim] = extent;
  const int v = qn_viewed(l, a, n, shape);
  if (!l->why) l->graph->value[v].view[dim] = (qn_view_index){.low = low, .n = 1, .dim = {dim}, .step = {step}};
  return v;
}

static void slice(qn_lowering *l, int which)
{
  (void)which;
  int ndim;
  int64_t shape[QN_GRAPH_DIMS];
  described(l, 0, &ndim, shape);
  const int a = qn_given_value(l, 0, "self"), n = qn_value_at(l, a)->ndim;
  const int dim = qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), n);
  qn_give_up_if(l, l->why || ndim != n, "a slice of other dimensions");
  int64_t start = qn_given_integer(l, 2, "start", 0);
  const int64_t extent = qn_value_at(l, a)->shape[dim];
  if (start < 0) start = start + extent < 0 ? 0 : start + extent;
  qn_result(l, 0, sliced(l, a, dim, start, qn_given_integer(l, 4, "step", 1), shape[dim]));
  qn_node_of(l)->is_view = true;
}

static void take(qn_lowering *l, int which)
{
  (void)which;
  int ndim;
  int64_t shape[QN_GRAPH_DIMS];
  described(l, 0, &ndim, shape);
  const int a = qn_given_value(l, 0, "self");
  const int dim = qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), qn_value_at(l, a)->ndim);
  int64_t at = qn_given_integer(l, 2, "index", 0);
  if (l->why) return;
  if (at < 0) at += qn_value_at(l, a)->shape[dim];
  const int one = sliced(l, a, dim, at, 1, 1);
  if (l->why) return;
  qn_result(l, 0, qn_reshaped(l, one, ndim, shape));
  qn_node_of(l)->is_view = true;
}

/* The results one behind the other along a dimension. */
static void split(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "self");
  const int dim = qn_wrapped(l, qn_given_integer(l, 2, "dim", 0), qn_value_at(l, a)->ndim);
  int64_t low = 0;
  for (int k = 0; k < qn_node_of(l)->n_results && !l->why; k++) {
    const int64_t extent = qn_value_at(l, qn_node_of(l)->result[k])->shape[dim];
    qn_result(l, k, sliced(l, a, dim, low, 1, extent));
    low += extent;
  }
  qn_node_of(l)->is_view = true;
}

static void flip(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "self"), n = qn_value_at(l, a)->ndim;
  const qn_argument *list = qn_given(l, 1, "dims");
  const uint32_t dims = list->kind == QN_ARGUMENT_LIST && !list->n ? 0 : qn_given_dims(l, 1, "dims", n);
  int64_t shape[QN_GRAPH_DIMS];
  memcpy(shape, qn_value_at(l, a)->shape, sizeof shape);
  const int v = qn_viewed(l, a, n, shape);
  for (int d = 0; d < n && !l->why; d++)
    if (dims >> d & 1)
      l->graph->value[v].view[d] = (qn_view_index){.low = shape[d] - 1, .n = 1, .dim = {d}, .step = {-1}};
  qn_result(l, 0, v);
}

/* Tensors one behind the other; of a stack, each with a new dimension of 1. */
static void cat(qn_lowering *l, int stack)
{
  enum { MOST = 16 };
  const qn_argument *list = qn_given(l, 0, "tensors");
  int ndim, parts[MOST];
  int64_t shape[QN_GRAPH_DIMS];
  described(l, 0, &ndim, shape);
  const int dim = qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), ndim);
  qn_give_up_if(l, list->kind != QN_ARGUMENT_LIST || list->n > MOST, "more than 16 tensors");
  for (int k = 0; k < list->n && !l->why; k++) {
    int64_t one[QN_GRAPH_DIMS];
    memcpy(one, shape, sizeof one);
    qn_give_up_if(l, list->list[k].kind != QN_ARGUMENT_VALUE, "an argument is no tensor");
    one[dim] = 1;
    parts[k] = stack ? qn_reshaped(l, list->list[k].value, ndim, one) : list->list[k].value;
    const qn_graph_value *part = qn_value_at(l, parts[k]);
    qn_give_up_if(l, part->ndim != ndim || part->dtype != qn_value_at(l, qn_node_of(l)->result[0])->dtype,
                  "tensors of several types or dimensions");
    for (int d = 0; d < ndim; d++)
      if (d != dim && part->shape[d] != shape[d]) qn_give_up(l, "tensors of other extents");
  }
  const int v = l->why ? 0 : qn_concatenated(l, list->n, parts, dim);
  if (!l->why) qn_result(l, 0, v);
}

/* pad is {low, high} from the last dimension on; a negative one cuts off. */
static void pad(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "self"), n = qn_value_at(l, a)->ndim;
  int64_t list[2 * QN_GRAPH_DIMS], low[QN_GRAPH_DIMS] = {0}, shape[QN_GRAPH_DIMS];
  const int pads = qn_given_list(l, 1, "pad", list, 2 * QN_GRAPH_DIMS);
  qn_give_up_if(l, pads / 2 > n || l->why, "more dimensions are padded than there are");
  memcpy(shape, qn_value_at(l, a)->shape, sizeof shape);
  for (int k = 0; k < pads / 2; k++) {
    qn_give_up_if(l, list[2 * k] < 0 || list[2 * k + 1] < 0, "it cuts off");
    low[n - 1 - k] = list[2 * k];
    shape[n - 1 - k] += list[2 * k] + list[2 * k + 1];
  }
  qn_result(l, 0, qn_padded(l, a, low, shape, qn_given_real(l, 2, "value", 0)));
}

/* Elements above or below a diagonal, 0 elsewhere. */
static void triangle(qn_lowering *l, int upper)
{
  const int a = qn_given_value(l, 0, "self"), n = qn_value_at(l, a)->ndim;
  qn_give_up_if(l, l->why || n < 2, "a triangle of fewer than two dimensions");
  int at[2];
  for (int k = 0; k < 2; k++) {
    const int64_t shape[] = {k ? 1 : qn_value_at(l, a)->shape[n - 2], k ? qn_value_at(l, a)->shape[n - 1] : 1};
    at[k] = qn_made(l, QN_FORM_IOTA, QN_I64, 2, shape, -1, -1);
    if (l->why) return;
    l->graph->value[at[k]].dim = k;
    l->graph->value[at[k]].step = 1;
  }
  const qn_dtype type = l->type;
  l->type = QN_I64;
  const int off = qn_words(l, QN_GRAPH_SUB, at[1], at[0], -1);
  const int inside =
      qn_words(l, upper ? QN_GRAPH_GE : QN_GRAPH_LE, off, qn_number(l, qn_given_real(l, 1, "diagonal", 0)), -1);
  l->type = type;
  qn_result(l, 0, qn_words(l, QN_GRAPH_WHERE, inside, a, qn_number(l, 0)));
}

/* Rows of a table by whole numbers. */
static void embedding(qn_lowering *l, int which)
{
  (void)which;
  const int table = qn_given_value(l, 0, "weight"), at = qn_given_value(l, 1, "indices");
  int ndim;
  int64_t shape[QN_GRAPH_DIMS];
  described(l, 0, &ndim, shape);
  qn_give_up_if(l, l->why || qn_value_at(l, table)->ndim != 2 || qn_is_real(qn_value_at(l, at)->dtype),
                "a table that is not of rows");
  const qn_graph_value *rows = qn_value_at(l, at);
  qn_give_up_if(l,
                ndim != rows->ndim + 1 || shape[ndim - 1] != qn_value_at(l, table)->shape[1] ||
                    memcmp(shape, rows->shape, (size_t)rows->ndim * sizeof *shape),
                "its described shape is not what the op makes");
  qn_result(l, 0, qn_made(l, QN_FORM_GATHER, qn_value_at(l, table)->dtype, ndim, shape, table, at));
}

/* Each element `by` times along the last n dimensions. PyTorch finds an element's place by a product in float, which is
 * exact for powers of 2; of scales that are given, the extents' quotient must be one. */
static void upsample_nearest(qn_lowering *l, int n)
{
  int ndim;
  int64_t out[QN_GRAPH_DIMS], shape[QN_GRAPH_DIMS];
  described(l, 0, &ndim, out);
  const int a = qn_given_value(l, 0, "input"), first = ndim - n;
  qn_give_up_if(l, l->why || qn_value_at(l, a)->ndim != ndim || ndim + n > QN_GRAPH_DIMS, "other dimensions");
  memcpy(shape, qn_value_at(l, a)->shape, sizeof shape);
  for (int d = ndim - 1; d >= first; d--) {
    const int64_t have = shape[d], by = out[d] / have;
    qn_give_up_if(l, by * have != out[d] || (by & (by - 1)), "a scale that is no power of 2");
    shape[first + 2 * (d - first)] = have;
    shape[first + 2 * (d - first) + 1] = by;
  }
  for (int k = 2; k < qn_node_of(l)->n_arguments; k++) {
    const qn_argument *given = qn_given(l, k, NULL);
    const int many = given->kind == QN_ARGUMENT_LIST ? given->n : given->kind != QN_ARGUMENT_NONE;
    for (int j = 0; j < many; j++) {
      const int d = given->kind == QN_ARGUMENT_LIST ? j : k - 2;
      const double scale = qn_real_of(given->kind == QN_ARGUMENT_LIST ? &given->list[j] : given, 0);
      qn_give_up_if(l, d >= n || scale != (double)shape[first + 2 * d + 1], "a scale that is no quotient of extents");
    }
  }
  const int v = qn_viewed(l, a, ndim + n, shape);
  for (int d = 0; d < n && !l->why; d++)
    l->graph->value[v].view[first + d] = (qn_view_index){.n = 1, .dim = {first + 2 * d}, .step = {1}};
  if (!l->why) qn_result(l, 0, qn_reshaped(l, v, ndim, out));
}

const qn_graph_rule qn_graph_view_rules[] = {{"aten.upsample_nearest1d.vec", upsample_nearest, 1},
                                             {"aten.upsample_nearest2d.vec", upsample_nearest, 2},
                                             {"aten.upsample_nearest3d.vec", upsample_nearest, 3},
                                             QN_ATEN("upsample_nearest1d", upsample_nearest, 1),
                                             QN_ATEN("upsample_nearest2d", upsample_nearest, 2),
                                             QN_ATEN("upsample_nearest3d", upsample_nearest, 3),
                                             QN_ATEN("view", reshape, 0),
                                             QN_ATEN("_unsafe_view", reshape, 0),
                                             QN_ATEN("reshape", reshape, 0),
                                             QN_ATEN("_reshape_copy", reshape, 1),
                                             QN_ATEN("squeeze", reshape, 0),
                                             {"aten.squeeze.dim", reshape, 0},
                                             {"aten.squeeze.dims", reshape, 0},
                                             QN_ATEN("unsqueeze", reshape, 0),
                                             {"aten.flatten.using_ints", reshape, 0},
                                             QN_ATEN("alias", reshape, 0),
                                             QN_ATEN("detach", reshape, 0),
                                             QN_ATEN("permute", permute, 0),
                                             {"aten.transpose.int", permute, 1},
                                             QN_ATEN("t", permute, 2),
                                             QN_ATEN("expand", expand, 0),
                                             {"aten.slice.Tensor", slice, 0},
                                             {"aten.select.int", take, 0},
                                             {"aten.split.Tensor", split, 0},
                                             QN_ATEN("split_with_sizes", split, 0),
                                             QN_ATEN("flip", flip, 0),
                                             QN_ATEN("cat", cat, 0),
                                             QN_ATEN("stack", cat, 1),
                                             QN_ATEN("constant_pad_nd", pad, 0),
                                             QN_ATEN("triu", triangle, 1),
                                             QN_ATEN("tril", triangle, 0),
                                             QN_ATEN("embedding", embedding, 0),
                                             {0}};
