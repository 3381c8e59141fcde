/* SPDX-License-Identifier: Apache-2.0 */
/* moments.c - means, and squared distances from them. A row of a GPU that no threadgroup can hold, and one of a
 * processor's few long columns, is read once, in parts: each part's own mean and its distances from that, and then
 * those of the parts' means from the whole one's (Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm,
 * 1979). Each layer of a dense block normalises all tensors before it: what is known of their parts is shared. */
#include "graph/lower.h"

enum { MANY_COLUMNS = 1024 }; /* work for a processor's threads, each of which has 64 */

/* The argument as {rows, parts, elements of a part}, or where rows lie side by side as {parts, elements, rows}. */
static int in_parts(qn_lowering *l, int a, uint32_t dims, int64_t parts, int64_t length, bool across)
{
  const int64_t rows = qn_value_at(l, a)->n / length, each = length / parts;
  int order[QN_GRAPH_DIMS], n = 0;
  const int ndim = qn_value_at(l, a)->ndim;
  for (int turn = 0; turn < 2; turn++)
    for (int d = 0; d < ndim; d++)
      if ((dims >> d & 1) == (uint32_t)(turn != across)) order[n++] = d;
  const int v = qn_permuted(l, a, order);
  return qn_reshaped(l, v, 3, across ? (int64_t[]){parts, each, rows} : (int64_t[]){rows, parts, each});
}

static int squares_of(qn_lowering *l, int off, uint32_t dims)
{
  return qn_reduced(l, QN_GRAPH_REDUCE_SUM, qn_words(l, QN_GRAPH_MUL, off, off, -1), dims, l->type);
}

/* What is known of the parts of a value's rows; NULL: nothing. */
static const qn_shared_moments *known(const qn_lowering *l, int a, uint32_t dims)
{
  const int era = l->graph->node[l->node].era;
  for (int k = 0; k < l->graph->n_shared; k++) {
    const qn_shared_moments *one = &l->graph->shared[k];
    if (one->value == a && one->dims == dims && one->type == l->type && one->era == era) return one;
  }
  return NULL;
}

/* The means of the parts of a value's rows, and their squared distances from these, each once for all that require
 * them. On a processor, whose sums are in double, they are not rounded to float. */
static qn_shared_moments inside_of(qn_lowering *l, int a, uint32_t dims, int64_t parts, int64_t length, bool across)
{
  if (known(l, a, dims)) return *known(l, a, dims);
  const qn_dtype type = l->type, exact = l->graph->on_cpu && type == QN_F32 ? QN_F64 : type;
  qn_shared_moments made = {.value = a, .era = l->graph->node[l->node].era, .dims = dims, .type = type};
  const int rows = in_parts(l, a, dims, parts, length, across);
  const uint32_t elements = across ? 2 : 4;
  const int sum = qn_reduced(l, QN_GRAPH_REDUCE_SUM, rows, elements, type);
  if (!l->why) l->graph->value[sum].dtype = l->type = exact;
  made.mean = qn_words(l, QN_GRAPH_DIV, sum, qn_number(l, (double)(length / parts)), -1);
  l->type = type;
  made.squares = squares_of(l, qn_words(l, QN_GRAPH_SUB, rows, made.mean, -1), elements);
  if (!l->why) l->graph->value[made.squares].dtype = exact;
  const size_t n = (size_t)l->graph->n_shared + 1;
  qn_shared_moments *more = l->why ? NULL : qn_reallocate(l->graph->shared, n * sizeof *more);
  if (!more) return qn_give_up(l, "no memory"), made;
  l->graph->shared = more;
  l->graph->shared[l->graph->n_shared++] = made;
  return made;
}

/* The tensors that a value's rows are of, in their order: of a concatenation along the one dimension that is kept its
 * arguments. Above `most` there are too many. */
static int tensors_of(const qn_lowering *l, int a, uint32_t dims, int *tensor, int most)
{
  const qn_graph_value *v = qn_value_at(l, a);
  bool whole = v->form != QN_FORM_CAT || known(l, a, dims);
  for (int d = 0; d < v->ndim && !whole; d++) whole = d == v->dim ? dims >> d & 1 : !(dims >> d & 1) && v->shape[d] > 1;
  if (whole && most > 0) *tensor = a;
  int n = whole;
  for (int k = 0; k < v->n_arguments && !whole && n <= most; k++)
    n += tensors_of(l, qn_arguments_of(v)[k], dims, tensor + n, most - n);
  return n;
}

/* The rows' means and squares, of parts, as {rows} in a shape of three dimensions. A row of a concatenation whose
 * tensors are known already, but for new ones, is not read again. */
static qn_moments of_parts(qn_lowering *l, int a, uint32_t dims, int64_t n_parts, int64_t length, bool across)
{
  enum { MOST = 12 }; /* two inputs each of the kernel that puts them together */
  int tensor[MOST], mean[MOST], squares[MOST], n = tensors_of(l, a, dims, tensor, MOST);
  bool any = false, alike = true;
  for (int k = 0; k < n && n <= MOST; k++) {
    any |= known(l, tensor[k], dims) != NULL;
    alike &= qn_graph_lies_across(l->graph, tensor[k], dims) == across;
  }
  if (n > MOST || (n > 1 && !(any && alike))) n = 1, tensor[0] = a;
  for (int k = 0; k < n; k++) {
    const qn_shared_moments one = inside_of(l, tensor[k], dims, n_parts, length, across);
    mean[k] = one.mean, squares[k] = one.squares;
  }
  if (l->why) return (qn_moments){0};
  const int means = n > 1 ? qn_concatenated(l, n, mean, across ? 2 : 0) : mean[0];
  const int inside = n > 1 ? qn_concatenated(l, n, squares, across ? 2 : 0) : squares[0];
  const uint32_t parts = across ? 1 : 2;
  const qn_dtype type = l->type, exact = l->why ? type : qn_value_at(l, inside)->dtype;
  l->type = exact;
  qn_moments m = {.mean = qn_mean_of(l, means, parts)};
  const int off = qn_words(l, QN_GRAPH_SUB, means, m.mean, -1), far = qn_words(l, QN_GRAPH_MUL, off, off, -1);
  const int between = qn_words(l, QN_GRAPH_MUL, far, qn_number(l, (double)(length / n_parts)), -1);
  m.squares = qn_reduced(l, QN_GRAPH_REDUCE_SUM, qn_words(l, QN_GRAPH_ADD, inside, between, -1), parts, exact);
  l->type = type;
  return m;
}

qn_moments qn_moments_of(qn_lowering *l, int a, uint32_t dims)
{
  int64_t shape[QN_GRAPH_DIMS], length = 1;
  const int ndim = qn_value_at(l, a)->ndim;
  for (int d = 0; d < ndim; d++) {
    shape[d] = dims >> d & 1 ? 1 : qn_value_at(l, a)->shape[d];
    if (dims >> d & 1) length *= qn_value_at(l, a)->shape[d];
  }
  const bool across = qn_graph_lies_across(l->graph, a, dims);
  const bool near = l->graph->on_cpu && (!across || qn_value_at(l, a)->n / length >= MANY_COLUMNS); /* in its caches */
  const int64_t parts = near ? 0 : qn_graph_held_parts(length, across);
  qn_moments m = {0};
  if (parts) {
    m = of_parts(l, a, dims, parts, length, across);
    m.mean = qn_reshaped(l, m.mean, ndim, shape);
    m.squares = qn_reshaped(l, m.squares, ndim, shape);
  } else
    m.mean = qn_mean_of(l, a, dims);
  m.off = qn_words(l, QN_GRAPH_SUB, a, m.mean, -1);
  if (!parts) m.squares = squares_of(l, m.off, dims);
  m.n = (double)length;
  return m;
}
