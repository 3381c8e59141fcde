/* SPDX-License-Identifier: Apache-2.0 */
/* lower_norms.c - normalisations, out of means and variances, in both modes. */
#include "graph/lower.h"
#include <string.h>

typedef struct moments {
  int off, rstd, mean, variance; /* a - mean; 1 / sqrt(variance + eps) */
} moments;

static moments moments_of(qn_lowering *l, int a, uint32_t dims, double eps)
{
  const qn_moments found = qn_moments_of(l, a, dims);
  moments m = {.mean = found.mean, .off = found.off};
  m.variance = qn_words(l, QN_GRAPH_DIV, found.squares, qn_number(l, found.n), -1);
  m.rstd = qn_words(l, QN_GRAPH_RSQRT, qn_words(l, QN_GRAPH_ADD, m.variance, qn_number(l, eps), -1), -1, -1);
  return m;
}

/* The described shape of a result, of another one with as many elements. */
static void give_as(qn_lowering *l, int k, int v)
{
  if (l->why || k >= qn_node_of(l)->n_results) return;
  const qn_graph_value *to = qn_value_at(l, qn_node_of(l)->result[k]);
  if (!to->n) return; /* what a mode does not make is empty */
  int64_t shape[QN_GRAPH_DIMS];
  memcpy(shape, to->shape, sizeof shape);
  const int ndim = to->ndim;
  const qn_dtype dtype = to->dtype;
  v = qn_words_typed(l, QN_GRAPH_COPY, dtype, qn_compute_type(dtype), v, -1, -1);
  if (!l->why) qn_result(l, k, qn_reshaped(l, v, ndim, shape));
}

/* y * weight + bias, where they are, as vectors along dimension `dim` of `ndim`, -1: over the last ones. */
static int scaled(qn_lowering *l, int y, const qn_argument *weight, const qn_argument *bias, int dim, int ndim)
{
  const qn_argument *both[] = {weight, bias};
  for (int k = 0; k < 2; k++) {
    if (both[k]->kind != QN_ARGUMENT_VALUE || l->why) continue;
    int v = both[k]->value;
    int64_t shape[QN_GRAPH_DIMS];
    for (int d = 0; d < ndim; d++) shape[d] = d == dim ? qn_value_at(l, v)->n : 1;
    if (dim >= 0) v = qn_reshaped(l, v, ndim, shape);
    if (!l->why) y = qn_words(l, k ? QN_GRAPH_ADD : QN_GRAPH_MUL, y, v, -1);
  }
  return y;
}

/* The last dimensions, as many as "normalized_shape" has. */
static uint32_t normalized_dims(qn_lowering *l, int ndim)
{
  int64_t shape[QN_GRAPH_DIMS];
  const int n = qn_given_list(l, 1, "normalized_shape", shape, QN_GRAPH_DIMS);
  if (l->why || n < 1 || n > ndim) return qn_give_up(l, "normalised over more dimensions than there are"), 0;
  return ((UINT32_C(1) << n) - 1) << (ndim - n);
}

static void layer_norm(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "input"), ndim = qn_value_at(l, a)->ndim;
  const uint32_t dims = normalized_dims(l, ndim);
  if (l->why) return;
  const moments m = moments_of(l, a, dims, qn_given_real(l, 4, "eps", 1e-5));
  const int y = qn_words(l, QN_GRAPH_MUL, m.off, m.rstd, -1);
  qn_result(l, 0, scaled(l, y, qn_given(l, 2, "weight"), qn_given(l, 3, "bias"), -1, ndim));
  give_as(l, 1, m.mean);
  give_as(l, 2, m.rstd);
}

static void group_norm(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "input"), ndim = qn_value_at(l, a)->ndim;
  const int64_t groups = qn_given_integer(l, 6, "group", 1);
  int64_t before[QN_GRAPH_DIMS];
  memcpy(before, qn_value_at(l, a)->shape, sizeof before);
  qn_give_up_if(l, l->why || ndim < 2 || groups < 1 || before[1] % groups, "groups that do not fit");
  const int64_t rows[] = {before[0], groups, qn_value_at(l, a)->n / before[0] / groups};
  const moments m = moments_of(l, qn_reshaped(l, a, 3, rows), 4, qn_given_real(l, 7, "eps", 1e-5));
  const int y = qn_reshaped(l, qn_words(l, QN_GRAPH_MUL, m.off, m.rstd, -1), ndim, before);
  qn_result(l, 0, scaled(l, y, qn_given(l, 1, "weight"), qn_given(l, 2, "bias"), 1, ndim));
  give_as(l, 1, m.mean);
  give_as(l, 2, m.rstd);
}

static int along_channels(qn_lowering *l, int v, int ndim)
{
  int64_t shape[QN_GRAPH_DIMS];
  for (int d = 0; d < ndim; d++) shape[d] = d == 1 ? qn_value_at(l, v)->n : 1;
  return qn_reshaped(l, v, ndim, shape);
}

/* By the running mean and variance. */
static void batch_norm_eval(qn_lowering *l, int a, int k_mean, double eps)
{
  const int ndim = qn_value_at(l, a)->ndim;
  const int mean = qn_given_value(l, k_mean, "running_mean"), variance = qn_given_value(l, k_mean + 1, "running_var");
  if (l->why) return;
  const int v = qn_words(l, QN_GRAPH_ADD, along_channels(l, variance, ndim), qn_number(l, eps), -1);
  const int off = qn_words(l, QN_GRAPH_SUB, a, along_channels(l, mean, ndim), -1);
  const int y = qn_words(l, QN_GRAPH_MUL, off, qn_words(l, QN_GRAPH_RSQRT, v, -1, -1), -1);
  qn_result(l, 0, scaled(l, y, qn_given(l, 1, "weight"), qn_given(l, 2, "bias"), 1, ndim));
}

/* running * (1 - momentum) + momentum * now */
static int moved(qn_lowering *l, int k, int now, double momentum, double by)
{
  const int running = qn_given_value(l, k, NULL), ndim = qn_value_at(l, now)->ndim;
  if (l->why) return 0;
  const int kept = qn_words(l, QN_GRAPH_MUL, along_channels(l, running, ndim), qn_number(l, 1 - momentum), -1);
  return qn_words(l, QN_GRAPH_ADD, kept, qn_words(l, QN_GRAPH_MUL, now, qn_number(l, momentum * by), -1), -1);
}

/* which: 0 by running statistics, 1 by the batch's own, 2 these and new running ones, 3 as the argument `training` says
 */
static void batch_norm(qn_lowering *l, int which)
{
  const int a = qn_given_value(l, 0, "input"), ndim = qn_value_at(l, a)->ndim;
  qn_give_up_if(l, l->why || ndim < 2, "a batch without channels");
  const bool statistics = which != 1, flagged = which >= 2;
  const double eps = qn_given_real(l, which == 0 ? 6 : which == 1 ? 5 : 7, "eps", 1e-5);
  const bool training = which == 1 || (flagged && qn_given_bool(l, 5, "training"));
  if (!training) {
    batch_norm_eval(l, a, 3, eps);
    return;
  }
  qn_give_up_if(l, which == 3 && qn_given(l, 3, "running_mean")->kind == QN_ARGUMENT_VALUE,
                "it changes its running statistics");
  const uint32_t dims = ((UINT32_C(1) << ndim) - 1) & ~UINT32_C(2);
  const moments m = moments_of(l, a, dims, eps);
  const int y = qn_words(l, QN_GRAPH_MUL, m.off, m.rstd, -1);
  qn_result(l, 0, scaled(l, y, qn_given(l, 1, "weight"), qn_given(l, 2, "bias"), 1, ndim));
  give_as(l, 1, m.mean);
  give_as(l, 2, m.rstd);
  if (!statistics || which != 2 || l->why) return;
  const double n = (double)qn_value_at(l, a)->n / (double)qn_value_at(l, a)->shape[1],
               momentum = qn_given_real(l, 6, "momentum", 0.1);
  give_as(l, 3, moved(l, 3, m.mean, momentum, 1));
  give_as(l, 4, moved(l, 4, m.variance, momentum, n > 1 ? n / (n - 1) : 1));
}

static void rms_norm(qn_lowering *l, int which)
{
  (void)which;
  const int a = qn_given_value(l, 0, "input"), ndim = qn_value_at(l, a)->ndim;
  const uint32_t dims = normalized_dims(l, ndim);
  if (l->why) return;
  static const double least[] = {[QN_F32] = 0x1p-23, [QN_F64] = 0x1p-52};
  const int squares = qn_mean_of(l, qn_words(l, QN_GRAPH_MUL, a, a, -1), dims);
  const double eps = qn_given_real(l, 3, "eps", l->type <= QN_F64 ? least[l->type] : 0);
  const int rstd = qn_words(l, QN_GRAPH_RSQRT, qn_words(l, QN_GRAPH_ADD, squares, qn_number(l, eps), -1), -1, -1);
  const int y = qn_words(l, QN_GRAPH_MUL, a, rstd, -1);
  qn_result(l, 0, scaled(l, y, qn_given(l, 2, "weight"), qn_given(l, 99, "none"), -1, ndim));
  give_as(l, 1, rstd);
}

const qn_graph_rule qn_graph_norm_rules[] = {QN_ATEN("native_layer_norm", layer_norm, 0),
                                             QN_ATEN("native_group_norm", group_norm, 0),
                                             QN_ATEN("_native_batch_norm_legit_no_training", batch_norm, 0),
                                             {"aten._native_batch_norm_legit.no_stats", batch_norm, 1},
                                             QN_ATEN("_native_batch_norm_legit_functional", batch_norm, 2),
                                             QN_ATEN("_native_batch_norm_legit", batch_norm, 3),
                                             QN_ATEN("native_batch_norm", batch_norm, 3),
                                             QN_ATEN("_fused_rms_norm", rms_norm, 0),
                                             QN_ATEN("rms_norm", rms_norm, 0),
                                             {0}};
