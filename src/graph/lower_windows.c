/* SPDX-License-Identifier: Apache-2.0 */
/* lower_windows.c - pooling: the tensor, padded, seen with a dimension more for each of a window's, and reduced over
 * these. A convolution of each channel alone is a sum of such windows times the filter. */
#include "graph/lower.h"
#include <math.h>
#include <string.h>

typedef struct window {
  int n; /* dimensions that have one, the last ones */
  int64_t extent[3], step[3], pad[3], apart[3];
} window;

static void each(qn_lowering *l, int k, const char *name, int n, int64_t *list, const int64_t *otherwise)
{
  int64_t given[3] = {0};
  const int m = qn_given_list(l, k, name, given, 3);
  for (int d = 0; d < n; d++) list[d] = m == n ? given[d] : m == 1 ? given[0] : otherwise[d];
  if (m > 1 && m != n) qn_give_up(l, "a window of other dimensions");
}

/* a of {..., h, w} as {..., oh, ow, kh, kw}, with `fill` around it. */
static int windowed(qn_lowering *l, int a, const window *w, const int64_t *out, double fill)
{
  const int ndim = qn_value_at(l, a)->ndim, first = ndim - w->n;
  if (ndim + w->n > QN_GRAPH_DIMS) return qn_give_up(l, "more than 12 dimensions"), 0;
  int64_t low[QN_GRAPH_DIMS] = {0}, padded[QN_GRAPH_DIMS], shape[QN_GRAPH_DIMS];
  bool any = false;
  memcpy(padded, qn_value_at(l, a)->shape, sizeof padded);
  memcpy(shape, padded, sizeof shape);
  for (int d = 0; d < w->n; d++) {
    const int64_t need = (out[d] - 1) * w->step[d] + (w->extent[d] - 1) * w->apart[d] + 1;
    low[first + d] = w->pad[d];
    if (need > padded[first + d] + w->pad[d] || w->pad[d]) any = true;
    padded[first + d] += w->pad[d];
    if (need > padded[first + d]) padded[first + d] = need;
    shape[first + d] = out[d];
    shape[ndim + d] = w->extent[d];
  }
  if (any) a = qn_padded(l, a, low, padded, fill);
  const int v = l->why ? 0 : qn_viewed(l, a, ndim + w->n, shape);
  for (int d = 0; d < w->n && !l->why; d++)
    l->graph->value[v].view[first + d] =
        (qn_view_index){.n = 2, .dim = {first + d, ndim + d}, .step = {w->step[d], w->apart[d]}};
  return v;
}

static int reduced_windows(qn_lowering *l, qn_graph_reduction reduction, int v, const window *w, int ndim)
{
  const int r = qn_reduced(l, reduction, v, ((UINT32_C(1) << w->n) - 1) << ndim, l->type);
  if (l->why) return 0;
  const int channels = ndim - w->n - 1;
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[0]);
  if (channels > 0 && to->shape[channels] > 1 && to->strides[channels] == 1) l->graph->value[r].dim = channels;
  int64_t shape[QN_GRAPH_DIMS];
  memcpy(shape, qn_value_at(l, r)->shape, sizeof shape);
  return qn_reshaped(l, r, ndim, shape);
}

static bool outputs(qn_lowering *l, int a, const window *w, int64_t *out)
{
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[0]), *from = qn_value_at(l, a);
  if (to->ndim != from->ndim || from->ndim < w->n) return qn_give_up(l, "a window of other dimensions"), false;
  for (int d = 0; d < w->n; d++) {
    out[d] = to->shape[to->ndim - w->n + d];
    if (w->extent[d] < 1 || w->step[d] < 1 || w->apart[d] < 1 || w->pad[d] < 0 ||
        (out[d] - 1) * w->step[d] - w->pad[d] >= from->shape[from->ndim - w->n + d])
      return qn_give_up(l, "a window that is outside"), false;
  }
  return true;
}

static const int64_t zeros[3], ones[3] = {1, 1, 1};

static void max_pool(qn_lowering *l, int n)
{
  const int a = qn_given_value(l, 0, "self");
  window w = {.n = n};
  int64_t out[3];
  each(l, 1, "kernel_size", n, w.extent, ones);
  each(l, 2, "stride", n, w.step, w.extent);
  each(l, 3, "padding", n, w.pad, zeros);
  each(l, 4, "dilation", n, w.apart, ones);
  qn_give_up_if(l, !qn_is_real(l->type), "a window of whole numbers");
  if (l->why || !outputs(l, a, &w, out)) return;
  const int ndim = qn_value_at(l, a)->ndim, v = windowed(l, a, &w, out, -INFINITY);
  if (!l->why) qn_result(l, 0, reduced_windows(l, QN_GRAPH_REDUCE_MAX, v, &w, ndim));
}

/* The divisor counts what is inside of the tensor, or of the tensor with its padding. */
static void avg_pool(qn_lowering *l, int n)
{
  const int a = qn_given_value(l, 0, "self");
  window w = {.n = n};
  int64_t out[3];
  each(l, 1, "kernel_size", n, w.extent, ones);
  each(l, 2, "stride", n, w.step, w.extent);
  each(l, 3, "padding", n, w.pad, zeros);
  each(l, -1, NULL, n, w.apart, ones);
  const bool up = qn_given_bool(l, 4, "ceil_mode");
  const bool all =
      qn_given(l, 5, "count_include_pad")->kind == QN_ARGUMENT_NONE || qn_given_bool(l, 5, "count_include_pad");
  const int64_t by = qn_given_integer(l, 6, "divisor_override", 0);
  qn_give_up_if(l, up, "a pool whose last window is not whole");
  qn_give_up_if(l, !qn_is_real(l->type), "a window of whole numbers");
  if (l->why || !outputs(l, a, &w, out)) return;
  const int ndim = qn_value_at(l, a)->ndim, v = windowed(l, a, &w, out, 0);
  if (l->why) return;
  const int sum = reduced_windows(l, QN_GRAPH_REDUCE_SUM, v, &w, ndim);
  int count = qn_number(l, (double)(by ? by : w.extent[0] * (n > 1 ? w.extent[1] : 1) * (n > 2 ? w.extent[2] : 1)));
  if (!by && !all) {
    int64_t shape[QN_GRAPH_DIMS];
    memcpy(shape, qn_value_at(l, a)->shape, sizeof shape);
    const int one = qn_viewed(l, qn_number(l, 1), ndim, shape);
    count = reduced_windows(l, QN_GRAPH_REDUCE_SUM, windowed(l, one, &w, out, 0), &w, ndim);
  }
  if (!l->why) qn_result(l, 0, qn_words(l, QN_GRAPH_DIV, sum, count, -1));
}

static void adaptive_avg_pool(qn_lowering *l, int n)
{
  const int a = qn_given_value(l, 0, "self"), ndim = qn_value_at(l, a)->ndim;
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[0]);
  window w = {.n = n};
  int64_t out[3], count = 1;
  qn_give_up_if(l, l->why || to->ndim != ndim || ndim < n || !qn_is_real(l->type), "a pool of other dimensions");
  for (int d = 0; d < n; d++) {
    const int64_t have = qn_value_at(l, a)->shape[ndim - n + d];
    out[d] = to->shape[ndim - n + d];
    qn_give_up_if(l, have % out[d], "windows of several sizes");
    w.extent[d] = w.step[d] = have / out[d];
    w.apart[d] = 1;
    count *= w.extent[d];
  }
  const int sum = reduced_windows(l, QN_GRAPH_REDUCE_SUM, windowed(l, a, &w, out, 0), &w, ndim);
  if (!l->why) qn_result(l, 0, qn_words(l, QN_GRAPH_DIV, sum, qn_number(l, (double)count), -1));
}

/* a, of a number for each channel or a filter's elements behind these, where the result's channels (and windows) are.
 */
static int along_channels(qn_lowering *l, int a, int ndim, const int64_t *shape)
{
  const int n = qn_value_at(l, a)->ndim, v = l->why ? 0 : qn_viewed(l, a, ndim, shape);
  for (int d = 0; d < n && !l->why; d++)
    l->graph->value[v].view[d] = (qn_view_index){.n = d != 1, .dim = {d ? ndim - n + d : 1}, .step = {1}};
  return v;
}

void qn_lower_channels_alone(qn_lowering *l)
{
  const int a = qn_given_value(l, 0, NULL), filter = qn_given_value(l, 1, NULL), ndim = qn_value_at(l, a)->ndim;
  const bool biased = qn_given(l, 2, NULL)->kind == QN_ARGUMENT_VALUE;
  window w = {.n = ndim - 2};
  int64_t out[3], shape[QN_GRAPH_DIMS];
  each(l, 3, NULL, w.n, w.step, ones);
  each(l, 4, NULL, w.n, w.pad, zeros);
  each(l, 5, NULL, w.n, w.apart, ones);
  if (l->why) return;
  for (int d = 0; d < w.n; d++) {
    w.extent[d] = qn_value_at(l, filter)->shape[2 + d];
    out[d] = qn_value_at(l, qn_node_of(l)->result[0])->shape[2 + d];
  }
  const int v = windowed(l, a, &w, out, 0);
  const int padded = qn_value_at(l, v)->argument[0];
  if (l->why) return;
  l->graph->value[padded].chosen = padded != a; /* so that compilers find what the windows of a thread share */
  memcpy(shape, qn_value_at(l, v)->shape, sizeof shape);
  const int taps = along_channels(l, filter, ndim + w.n, shape);
  if (l->why) return;
  int sum = reduced_windows(l, QN_GRAPH_REDUCE_SUM, qn_words(l, QN_GRAPH_MUL, v, taps, -1), &w, ndim);
  if (biased) sum = qn_words(l, QN_GRAPH_ADD, sum, along_channels(l, qn_given_value(l, 2, NULL), ndim, shape), -1);
  if (!l->why) qn_result(l, 0, sum);
}

const qn_graph_rule qn_graph_window_rules[] = {QN_ATEN("max_pool2d_with_indices", max_pool, 2),
                                               QN_ATEN("max_pool3d_with_indices", max_pool, 3),
                                               QN_ATEN("max_pool1d", max_pool, 1),
                                               QN_ATEN("max_pool2d", max_pool, 2),
                                               QN_ATEN("max_pool3d", max_pool, 3),
                                               QN_ATEN("avg_pool1d", avg_pool, 1),
                                               QN_ATEN("avg_pool2d", avg_pool, 2),
                                               QN_ATEN("avg_pool3d", avg_pool, 3),
                                               QN_ATEN("_adaptive_avg_pool2d", adaptive_avg_pool, 2),
                                               QN_ATEN("_adaptive_avg_pool3d", adaptive_avg_pool, 3),
                                               {0}};
