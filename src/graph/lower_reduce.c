/* SPDX-License-Identifier: Apache-2.0 */
/* lower_reduce.c - ops over dimensions. Sums are in float for 16-bit reals too; a variance is the mean of squared
 * distances from the mean, never a difference of large numbers. */
#include "graph/lower.h"
#include <math.h>
#include <string.h>

/* A value whose reduced extents are 1, as the described result has it. */
static void give(qn_lowering *l, int k, int v)
{
  if (l->why) return;
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[k]);
  int64_t shape[QN_GRAPH_DIMS];
  memcpy(shape, to->shape, sizeof shape);
  if (to->ndim == qn_value_at(l, v)->ndim &&
      !memcmp(shape, qn_value_at(l, v)->shape, (size_t)to->ndim * sizeof *shape)) {
    qn_result(l, k, v);
    return;
  }
  const qn_dtype dtype = to->dtype;
  if (qn_value_at(l, v)->dtype != dtype) v = qn_words_typed(l, QN_GRAPH_COPY, dtype, qn_compute_type(dtype), v, -1, -1);
  v = qn_reshaped(l, v, to->ndim, shape);
  qn_result(l, k, v);
}

/* Of a tensor of no dimensions one of 1. */
static int operand(qn_lowering *l)
{
  const int a = qn_given_value(l, 0, "self");
  const int64_t one = 1;
  return l->why || qn_value_at(l, a)->ndim ? a : qn_reshaped(l, a, 1, &one);
}

static int as_bool(qn_lowering *l, int a)
{
  if (qn_value_at(l, a)->dtype == QN_BOOL) return a;
  const qn_dtype type = qn_compute_type(qn_value_at(l, a)->dtype), before = l->type;
  l->type = type;
  const int zero = qn_number(l, 0);
  l->type = before;
  return qn_words_typed(l, QN_GRAPH_NE, QN_BOOL, type, a, zero, -1);
}

static void reduce(qn_lowering *l, int which)
{
  int a = operand(l);
  if (l->why) return;
  const uint32_t dims = qn_given_dims(l, 1, "dim", qn_value_at(l, a)->ndim);
  if (which == QN_GRAPH_REDUCE_ANY || which == QN_GRAPH_REDUCE_ALL) a = as_bool(l, a);
  if (l->why) return;
  give(l, 0, qn_reduced(l, (qn_graph_reduction)which, a, dims, l->type));
}

static void mean(qn_lowering *l, int which)
{
  (void)which;
  const int a = operand(l);
  qn_give_up_if(l, !qn_is_real(l->type), "a mean of whole numbers");
  if (!l->why) give(l, 0, qn_mean_of(l, a, qn_given_dims(l, 1, "dim", qn_value_at(l, a)->ndim)));
}

/* Where the largest (MAX) or smallest elements `top` are, and every NaN: the places there, `none` elsewhere. */
static int places_of(qn_lowering *l, int a, int top, int dim, double none)
{
  const qn_graph_value *v = qn_value_at(l, a);
  const qn_dtype type = qn_compute_type(v->dtype), narrow = v->shape[dim] < INT32_MAX ? QN_I32 : QN_I64,
                 before = l->type;
  int64_t shape[QN_GRAPH_DIMS];
  memcpy(shape, v->shape, sizeof shape);
  int there = qn_words_typed(l, QN_GRAPH_EQ, QN_BOOL, type, a, top, -1);
  if (qn_is_real(type))
    there = qn_words_typed(l, QN_GRAPH_OR, QN_BOOL, QN_BOOL, there,
                           qn_words_typed(l, QN_GRAPH_ISNAN, QN_BOOL, type, a, -1, -1), -1);
  const int place = l->why ? 0 : qn_made(l, QN_FORM_IOTA, narrow, qn_value_at(l, a)->ndim, shape, -1, -1);
  if (l->why) return 0;
  l->graph->value[place].step = 1;
  l->graph->value[place].dim = dim;
  l->type = narrow;
  const int where = qn_words(l, QN_GRAPH_WHERE, there, place, qn_number(l, none));
  l->type = before;
  return where;
}

/* On a processor in two loops, of which compilers make vectors: the first of the places where the largest is. */
static int first_place(qn_lowering *l, int which, int a, int dim, int *top)
{
  const qn_dtype type = qn_compute_type(qn_value_at(l, a)->dtype);
  const uint32_t dims = UINT32_C(1) << dim;
  *top = -1;
  if (!l->graph->on_cpu) return qn_reduced(l, (qn_graph_reduction)which, a, dims, QN_I64);
  *top = qn_reduced(l, which == QN_GRAPH_REDUCE_ARGMAX ? QN_GRAPH_REDUCE_MAX : QN_GRAPH_REDUCE_MIN, a, dims, type);
  const int where = places_of(l, a, *top, dim, (double)qn_value_at(l, a)->shape[dim]);
  return l->why ? 0 : qn_reduced(l, QN_GRAPH_REDUCE_MIN, where, dims, qn_value_at(l, where)->dtype);
}

/* Values and places along one dimension; without one, over all in row-major order. */
static void place(qn_lowering *l, int which)
{
  const bool both = qn_node_of(l)->n_results == 2, all = qn_given(l, 1, "dim")->kind == QN_ARGUMENT_NONE;
  int a = operand(l);
  if (l->why) return;
  const int64_t n = qn_value_at(l, a)->n;
  qn_give_up_if(l, all && both, "places without a dimension");
  if (all) a = qn_reshaped(l, a, 1, &n);
  const int d = all ? 0 : qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), qn_value_at(l, a)->ndim);
  if (l->why) return;
  const uint32_t dims = UINT32_C(1) << d;
  int top = -1;
  const int at = first_place(l, which, a, d, &top);
  give(l, both, at);
  if (!both) return;
  if (top < 0)
    top = qn_reduced(l, which == QN_GRAPH_REDUCE_ARGMAX ? QN_GRAPH_REDUCE_MAX : QN_GRAPH_REDUCE_MIN, a, dims, l->type);
  give(l, 0, top);
}

/* Whether it is memory, or a view of memory. */
static bool shows_memory(const qn_lowering *l, int value)
{
  const qn_graph_value *v = qn_value_at(l, value);
  while (v->form == QN_FORM_AFFINE || v->form == QN_FORM_RESHAPE) v = qn_value_at(l, v->argument[0]);
  return qn_is_memory(v);
}

/* An element of each row by its place, as of a log-softmax in a cross entropy: the sum of the row with zeros in place
 * of the others, in the loops that compute it. Of memory the op itself reads less. */
static void gather(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "self"), at = qn_given_value(l, 2, "index");
  if (l->why) return;
  int64_t shape[QN_GRAPH_DIMS];
  const qn_graph_value *v = qn_value_at(l, a), *places = qn_value_at(l, at);
  const int ndim = v->ndim, d = qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), ndim);
  qn_give_up_if(l, l->why || shows_memory(l, a), "elements of memory by their places");
  memcpy(shape, v->shape, sizeof shape);
  shape[d] = 1;
  qn_give_up_if(l, places->ndim != ndim || memcmp(shape, places->shape, (size_t)ndim * sizeof *shape),
                "several elements of a row by their places");
  shape[d] = v->shape[d];
  const int place = qn_made(l, QN_FORM_IOTA, QN_I64, ndim, shape, -1, -1);
  if (l->why) return;
  l->graph->value[place].step = 1;
  l->graph->value[place].dim = d;
  const int there = qn_words_typed(l, QN_GRAPH_EQ, QN_BOOL, QN_I64, place, at, -1);
  give(l, 0,
       qn_reduced(l, QN_GRAPH_REDUCE_SUM, qn_words(l, QN_GRAPH_WHERE, there, a, qn_number(l, 0)), UINT32_C(1) << d,
                  l->type));
}

/* which: 0 the variance, 1 with the mean, 2 its root */
static void variance(qn_lowering *l, int which)
{
  const int a = operand(l);
  if (l->why) return;
  qn_give_up_if(l, !qn_is_real(l->type), "a variance of whole numbers");
  const qn_moments m = qn_moments_of(l, a, qn_given_dims(l, 1, "dim", qn_value_at(l, a)->ndim));
  const double n = m.n - qn_given_real(l, -1, "correction", 1);
  int v = qn_words(l, QN_GRAPH_DIV, m.squares, qn_number(l, n > 0 ? n : 0), -1);
  if (which == 2) v = qn_words(l, QN_GRAPH_SQRT, v, -1, -1);
  give(l, 0, v);
  if (which == 1) give(l, 1, qn_words(l, QN_GRAPH_COPY, m.mean, -1, -1)); /* m itself is not rounded */
}

static void norm(qn_lowering *l, int k_dim)
{
  int a = operand(l);
  const double p = qn_given_real(l, 1, k_dim == 2 ? "ord" : "p", 2);
  qn_give_up_if(l, l->why || !qn_is_real(l->type), "a norm of whole numbers");
  const uint32_t dims = qn_given_dims(l, k_dim, "dim", qn_value_at(l, a)->ndim);
  int v;
  if (p == 2) {
    v = qn_reduced(l, QN_GRAPH_REDUCE_SUM, qn_words(l, QN_GRAPH_MUL, a, a, -1), dims, l->type);
    give(l, 0, qn_words(l, QN_GRAPH_SQRT, v, -1, -1));
    return;
  }
  a = qn_words(l, QN_GRAPH_ABS, a, -1, -1);
  if (isinf(p)) {
    give(l, 0, qn_reduced(l, p > 0 ? QN_GRAPH_REDUCE_MAX : QN_GRAPH_REDUCE_MIN, a, dims, l->type));
    return;
  }
  qn_give_up_if(l, p == 0, "a count of what is not 0");
  if (p != 1) a = qn_words(l, QN_GRAPH_POW, a, qn_number(l, p), -1);
  v = qn_reduced(l, QN_GRAPH_REDUCE_SUM, a, dims, l->type);
  give(l, 0, p == 1 ? v : qn_words(l, QN_GRAPH_POW, v, qn_number(l, 1 / p), -1));
}

/* log of the sum of e^a: m + log(sum e^(a - m)), m the largest, 0 where that is infinite. */
static void logsumexp(qn_lowering *l, int which)
{
  (void)which;
  const int a = operand(l);
  qn_give_up_if(l, l->why || !qn_is_real(l->type), "of whole numbers");
  const uint32_t dims = qn_given_dims(l, 1, "dim", qn_value_at(l, a)->ndim);
  const int top = qn_reduced(l, QN_GRAPH_REDUCE_MAX, a, dims, l->type);
  const int far = qn_words(l, QN_GRAPH_EQ, qn_words(l, QN_GRAPH_ABS, top, -1, -1), qn_number(l, INFINITY), -1);
  const int m = qn_words(l, QN_GRAPH_WHERE, far, qn_number(l, 0), top);
  const int e = qn_words(l, QN_GRAPH_EXP, qn_words(l, QN_GRAPH_SUB, a, m, -1), -1, -1);
  const int sum = qn_reduced(l, QN_GRAPH_REDUCE_SUM, e, dims, l->type);
  give(l, 0, qn_words(l, QN_GRAPH_ADD, qn_words(l, QN_GRAPH_LOG, sum, -1, -1), m, -1));
}

static void softmax(qn_lowering *l, int logarithm)
{
  const int a = operand(l);
  qn_give_up_if(l, l->why || !qn_is_real(l->type), "of whole numbers");
  const uint32_t dims = UINT32_C(1) << qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), qn_value_at(l, a)->ndim);
  const int top = qn_reduced(l, QN_GRAPH_REDUCE_MAX, a, dims, l->type);
  const int off = qn_words(l, QN_GRAPH_SUB, a, top, -1), e = qn_words(l, QN_GRAPH_EXP, off, -1, -1);
  const int sum = qn_reduced(l, QN_GRAPH_REDUCE_SUM, e, dims, l->type);
  if (logarithm)
    give(l, 0, qn_words(l, QN_GRAPH_SUB, off, qn_words(l, QN_GRAPH_LOG, sum, -1, -1), -1));
  else if (l->graph->on_cpu) /* one quotient a row; the sum is at least 1 */
    give(l, 0, qn_words(l, QN_GRAPH_MUL, e, qn_words(l, QN_GRAPH_RECIPROCAL, sum, -1, -1), -1));
  else
    give(l, 0, qn_words(l, QN_GRAPH_DIV, e, sum, -1));
}

/* A scan in a type that its argument must be rounded to first would round otherwise. */
static void scan(qn_lowering *l, int which)
{
  const int a = operand(l);
  if (l->why) return;
  const int d = qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), qn_value_at(l, a)->ndim);
  const qn_dtype from = qn_value_at(l, a)->dtype, to = qn_value_at(l, qn_node_of(l)->result[0])->dtype;
  qn_give_up_if(l, which == QN_GRAPH_REDUCE_LOGSUM && !qn_is_real(to), "of whole numbers");
  qn_give_up_if(l, to == QN_BOOL || (from != to && qn_is_real(to) && l->type != to), "it scans in a narrower type");
  if (l->why) return;
  give(l, 0,
       qn_value_at(l, a)->shape[d] == 1 ? qn_words(l, QN_GRAPH_COPY, a, -1, -1)
                                        : qn_scanned(l, (qn_graph_reduction)which, a, d, l->type));
}

/* The largest so far, and the last place of it: a NaN stays, and each further one is a place. */
static void scan_places(qn_lowering *l, int which)
{
  const int a = operand(l);
  if (l->why) return;
  const int d = qn_wrapped(l, qn_given_integer(l, 1, "dim", 0), qn_value_at(l, a)->ndim);
  qn_give_up_if(l, qn_node_of(l)->n_results != 2 || qn_value_at(l, a)->dtype == QN_BOOL, "places of bools");
  if (l->why) return;
  const int top = qn_scanned(l, (qn_graph_reduction)which, a, d, l->type), where = places_of(l, a, top, d, 0);
  if (l->why) return;
  const int at = qn_scanned(l, QN_GRAPH_REDUCE_MAX, where, d, qn_value_at(l, where)->dtype);
  give(l, 0, top);
  give(l, 1, at);
}

#define DIM(name, lower, which)                                                                                        \
  {                                                                                                                    \
    "aten." name ".dim", lower, which                                                                                  \
  }
const qn_graph_rule qn_graph_reduce_rules[] = {QN_ATEN("sum", reduce, QN_GRAPH_REDUCE_SUM),
                                               {"aten.sum.dim_IntList", reduce, QN_GRAPH_REDUCE_SUM},
                                               QN_ATEN("prod", reduce, QN_GRAPH_REDUCE_PROD),
                                               {"aten.prod.dim_int", reduce, QN_GRAPH_REDUCE_PROD},
                                               QN_ATEN("amax", reduce, QN_GRAPH_REDUCE_MAX),
                                               QN_ATEN("amin", reduce, QN_GRAPH_REDUCE_MIN),
                                               QN_ATEN("max", reduce, QN_GRAPH_REDUCE_MAX),
                                               QN_ATEN("min", reduce, QN_GRAPH_REDUCE_MIN),
                                               QN_ATEN("any", reduce, QN_GRAPH_REDUCE_ANY),
                                               DIM("any", reduce, QN_GRAPH_REDUCE_ANY),
                                               {"aten.any.dims", reduce, QN_GRAPH_REDUCE_ANY},
                                               QN_ATEN("all", reduce, QN_GRAPH_REDUCE_ALL),
                                               DIM("all", reduce, QN_GRAPH_REDUCE_ALL),
                                               QN_ATEN("mean", mean, 0),
                                               DIM("mean", mean, 0),
                                               QN_ATEN("argmax", place, QN_GRAPH_REDUCE_ARGMAX),
                                               QN_ATEN("argmin", place, QN_GRAPH_REDUCE_ARGMIN),
                                               DIM("max", place, QN_GRAPH_REDUCE_ARGMAX),
                                               DIM("min", place, QN_GRAPH_REDUCE_ARGMIN),
                                               QN_ATEN("gather", gather, 0),
                                               {"aten.var.correction", variance, 0},
                                               {"aten.var_mean.correction", variance, 1},
                                               {"aten.std.correction", variance, 2},
                                               QN_ATEN("linalg_vector_norm", norm, 2),
                                               {"aten.norm.ScalarOpt_dim", norm, 2},
                                               {"aten.norm.Scalar", norm, 3},
                                               QN_ATEN("cumsum", scan, QN_GRAPH_REDUCE_SUM),
                                               QN_ATEN("cumprod", scan, QN_GRAPH_REDUCE_PROD),
                                               QN_ATEN("logcumsumexp", scan, QN_GRAPH_REDUCE_LOGSUM),
                                               QN_ATEN("cummax", scan_places, QN_GRAPH_REDUCE_MAX),
                                               QN_ATEN("cummin", scan_places, QN_GRAPH_REDUCE_MIN),
                                               QN_ATEN("logsumexp", logsumexp, 0),
                                               QN_ATEN("_softmax", softmax, 0),
                                               {"aten.softmax.int", softmax, 0},
                                               QN_ATEN("_log_softmax", softmax, 1),
                                               {"aten.log_softmax.int", softmax, 1},
                                               {0}};
