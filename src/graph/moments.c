/* SPDX-License-Identifier: Apache-2.0 */
/* moments.c - means, and squared distances from them. A row of a GPU that no threadgroup can hold, and one of a
 * processor's few long columns, is read once, in parts: each part's own mean and its distances from that, and then
 * those of the parts' means from the whole one's (Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm,
 * 1979). */
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

/* Of parts: the rows' means and squares, as {rows} in a shape of three dimensions. On a processor, whose sums are in
 * double, the parts' are not rounded to float. */
static qn_moments of_parts(qn_lowering *l, int rows, int64_t length, bool across)
{
  const uint32_t elements = across ? 2 : 4, parts = across ? 1 : 2;
  const qn_dtype type = l->type, exact = l->graph->on_cpu && type == QN_F32 ? QN_F64 : type;
  const int sum = qn_reduced(l, QN_GRAPH_REDUCE_SUM, rows, elements, type);
  if (!l->why) l->graph->value[sum].dtype = l->type = exact;
  const int mean = qn_words(l, QN_GRAPH_DIV, sum, qn_number(l, (double)length), -1);
  l->type = type;
  const int inside = squares_of(l, qn_words(l, QN_GRAPH_SUB, rows, mean, -1), elements);
  if (!l->why) l->graph->value[inside].dtype = l->type = exact;
  qn_moments m = {.mean = qn_mean_of(l, mean, parts)};
  const int off = qn_words(l, QN_GRAPH_SUB, mean, m.mean, -1), far = qn_words(l, QN_GRAPH_MUL, off, off, -1);
  const int between = qn_words(l, QN_GRAPH_MUL, far, qn_number(l, (double)length), -1);
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
    m = of_parts(l, in_parts(l, a, dims, parts, length, across), length / parts, across);
    m.mean = qn_reshaped(l, m.mean, ndim, shape);
    m.squares = qn_reshaped(l, m.squares, ndim, shape);
  } else
    m.mean = qn_mean_of(l, a, dims);
  m.off = qn_words(l, QN_GRAPH_SUB, a, m.mean, -1);
  if (!parts) m.squares = squares_of(l, m.off, dims);
  m.n = (double)length;
  return m;
}
