/* SPDX-License-Identifier: Apache-2.0 */
/* graph_reference.h - what a graph's values are, element by element in double, by loops that know nothing of the
 * planner's algebra of indices: views are followed by numbers. */
#ifndef QN_TESTS_GRAPH_REFERENCE_H
#define QN_TESTS_GRAPH_REFERENCE_H
#include "graph/lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reference {
  qn_graph graph;
  double **value; /* by value: row-major, NULL until computed */
} reference;

static void unravel(const qn_graph_value *v, int64_t flat, int64_t *at)
{
  for (int d = v->ndim - 1; d >= 0; d--) {
    at[d] = flat % v->shape[d];
    flat /= v->shape[d];
  }
}

static int64_t ravel(const qn_graph_value *v, const int64_t *at)
{
  int64_t flat = 0;
  for (int d = 0; d < v->ndim; d++) flat = flat * v->shape[d] + at[d];
  return flat;
}

static double rounded(double x, qn_dtype dtype)
{
  switch (dtype) {
  case QN_F32: return (double)(float)x;
  case QN_F16:
    return isfinite(x) && fabs(x) < 65520 ? ldexp(rint(ldexp(x, 10 - (x == 0           ? 0
                                                                      : ilogb(x) < -14 ? -14
                                                                                       : ilogb(x)))),
                                                  (x == 0           ? 0
                                                   : ilogb(x) < -14 ? -14
                                                                    : ilogb(x)) -
                                                      10)
                                          : x;
  case QN_BF16: return isfinite(x) && x != 0 ? ldexp(rint(ldexp(x, 7 - ilogb(x))), ilogb(x) - 7) : x;
  case QN_F64: return x;
  case QN_BOOL: return x != 0;
  default: return trunc(x);
  }
}

static double broadcast_element(const reference *r, const qn_graph_value *v, const int64_t *at, int argument)
{
  const qn_graph_value *a = &r->graph.value[argument];
  int64_t place[QN_GRAPH_DIMS];
  for (int d = 0; d < a->ndim; d++) place[d] = a->shape[d] == 1 ? 0 : at[d + v->ndim - a->ndim];
  return r->value[argument][ravel(a, place)];
}

static double word_element(const reference *r, const qn_graph_value *v, const int64_t *at)
{
  double x[3] = {0};
  const qn_word_info *word = qn_word(v->word);
  for (int k = 0; k < v->n_arguments; k++) {
    x[k] = broadcast_element(r, v, at, v->argument[k]);
    if (word->kind == QN_WORD_LOGIC || (word->kind == QN_WORD_WHERE && k == 0))
      x[k] = x[k] != 0;
    else if (!qn_is_real(v->compute))
      x[k] = rounded(x[k], v->compute);
  }
  const double y = word->reference(x[0], x[1], x[2]);
  return qn_is_real(v->dtype) ? y : rounded(y, v->dtype);
}

static double reduced_element(const reference *r, const qn_graph_value *v, const int64_t *at)
{
  const qn_graph_value *a = &r->graph.value[v->argument[0]];
  const qn_reduction_info *info = qn_reduction(v->reduction);
  const bool place = v->reduction == QN_GRAPH_REDUCE_ARGMAX || v->reduction == QN_GRAPH_REDUCE_ARGMIN;
  double sum = info->first;
  int64_t best = -1, n = 0;
  for (int64_t k = 0; k < a->n; k++) {
    int64_t where[QN_GRAPH_DIMS];
    bool mine = true;
    unravel(a, k, where);
    for (int d = 0; d < a->ndim; d++) mine = mine && (v->reduced >> d & 1 || where[d] == at[d]);
    if (!mine) continue;
    const double x = r->value[v->argument[0]][k], y = info->reference(sum, x);
    if (place && (best < 0 || (isnan(x) && !isnan(sum)) || (!isnan(sum) && y != sum))) best = n;
    sum = y;
    n++;
  }
  return place ? (double)best : sum;
}

/* The element before along the row is computed already. */
static double scanned_element(const reference *r, const qn_graph_value *v, int64_t flat, const int64_t *at)
{
  const qn_reduction_info *info = qn_reduction(v->reduction);
  int64_t step = 1;
  int d = v->ndim - 1;
  for (; !(v->reduced >> d & 1); d--) step *= v->shape[d];
  return info->reference(at[d] ? r->value[v - r->graph.value][flat - step] : info->first,
                         r->value[v->argument[0]][flat]);
}

static double element(const reference *r, const qn_graph_value *v, int64_t flat)
{
  int64_t at[QN_GRAPH_DIMS], place[QN_GRAPH_DIMS] = {0};
  const qn_graph_value *a = v->n_arguments ? &r->graph.value[qn_arguments_of(v)[0]] : NULL;
  unravel(v, flat, at);
  switch (v->form) {
  case QN_FORM_CONSTANT: return qn_is_real(v->dtype) ? v->real : (double)v->whole;
  case QN_FORM_IOTA: return v->real + v->step * (double)at[v->dim];
  case QN_FORM_WORD: return word_element(r, v, at);
  case QN_FORM_CAST: return rounded(r->value[v->argument[0]][flat], v->dtype);
  case QN_FORM_RESHAPE: return r->value[v->argument[0]][flat];
  case QN_FORM_AFFINE:
    for (int d = 0; d < a->ndim; d++) {
      place[d] = v->view[d].low;
      for (int k = 0; k < v->view[d].n; k++) place[d] += v->view[d].step[k] * at[v->view[d].dim[k]];
    }
    return r->value[v->argument[0]][ravel(a, place)];
  case QN_FORM_PAD:
    for (int d = 0; d < a->ndim; d++) {
      place[d] = at[d] - v->low[d];
      if (place[d] < 0 || place[d] >= a->shape[d]) return r->value[v->argument[1]][0];
    }
    return r->value[v->argument[0]][ravel(a, place)];
  case QN_FORM_CAT:
    for (int k = 0; k < v->n_arguments; k++) {
      a = &r->graph.value[v->arguments[k]];
      if (at[v->dim] < a->shape[v->dim]) return r->value[v->arguments[k]][ravel(a, at)];
      at[v->dim] -= a->shape[v->dim];
    }
    return NAN;
  case QN_FORM_GATHER:
    place[1] = at[v->ndim - 1];
    place[0] = (int64_t)r->value[v->argument[1]][flat / v->shape[v->ndim - 1]];
    return r->value[v->argument[0]][ravel(a, place)];
  case QN_FORM_REDUCE: return reduced_element(r, v, at);
  case QN_FORM_SCAN: return scanned_element(r, v, flat, at);
  default: return NAN;
  }
}

static void compute(reference *r, int value)
{
  const qn_graph_value *v = &r->graph.value[value];
  if (r->value[value]) return;
  for (int k = 0; k < v->n_arguments; k++) compute(r, qn_arguments_of(v)[k]);
  r->value[value] = malloc((size_t)v->n * sizeof(double));
  for (int64_t k = 0; k < v->n; k++) r->value[value][k] = element(r, v, k);
}

static qn_status reference_read(reference *r, const char *text)
{
  *r = (reference){0};
  qn_try(qn_graph_read(text, strlen(text), &r->graph));
  qn_try(qn_graph_lower(&r->graph));
  r->value = calloc((size_t)r->graph.n_values, sizeof *r->value);
  return QN_OK;
}

static void reference_free(reference *r)
{
  for (int k = 0; r->value && k < r->graph.n_values; k++) free(r->value[k]);
  free(r->value);
  qn_graph_free(&r->graph);
}
#endif
