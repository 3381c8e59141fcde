/* SPDX-License-Identifier: Apache-2.0 */
/* factors.cpu.h - for files built once a tier: the phases STATES and TABLES, which make a tensor's two factors from its
 * sums, and their roots and tables from them. Tables depend on the network: such a file has a set_table of its own. */
#ifndef QN_OP_LOPT_FACTORS_CPU_H
#define QN_OP_LOPT_FACTORS_CPU_H
#include "op/lopt/sums.cpu.h"

/* The states of a factor from its sums, each over `count` elements. The means use the first plane of roots. */
static void set_states(const qn_lopt_call *call, qn_lopt_factor *s, uint64_t count, double of_squares)
{
  float *mean = s->root;
  if (!s->n) return; /* an empty piece: its state may be NULL */
  memset(mean, 0, s->padded * sizeof *mean);
  for (uint64_t j = 0; j < s->n; j++) mean[j] = qn_lopt_mean_square(s->sums[j] * of_squares, (double)count);
  for (int k = 0; k < 3; k++) {
    float *state = s->state + (uint64_t)k * s->n, *kept = s->channel + (uint64_t)k * s->padded;
    float *inverse = kept + 3 * s->padded;
    fill(kept, state, s->n, s->padded);
    for (uint64_t j = 0; j < s->padded; j += QN_LANES) {
      const qn_f32 x = qn_lopt_mean(call->rates.f[k], call->rates.f_rest[k], get(kept + j), get(mean + j));
      put(kept + j, x);
      put(inverse + j, qn_lopt_inverse(x));
    }
    memcpy(state, kept, s->n * sizeof *state);
  }
}

/* A row's states summed over the other factored dimension, which is the middle one of (outer, middle, inner). */
static void set_row_sums(qn_lopt_factor *s, uint64_t middle, uint64_t inner, uint64_t k)
{
  const float *x = s->channel + k * s->padded;
  double *sum = s->row_sums + k * s->row_places;
  for (uint64_t place = 0; place < s->row_places; place++) {
    const uint64_t i = place / inner * middle * inner + place % inner;
    sum[place] = 0;
    for (uint64_t j = 0; j < middle; j++) sum[place] += (double)x[i + j * inner];
  }
}

/* Their means, each at all the places that it is of. */
static void set_row_means(qn_lopt_factor *s, uint64_t middle, uint64_t inner, uint64_t whole_middle, uint64_t k)
{
  const double *sum = s->row_sums + k * s->row_places;
  float *mean = s->root + k * s->padded;
  memset(mean, 0, s->padded * sizeof *mean);
  for (uint64_t place = 0; place < s->row_places; place++) {
    const uint64_t i = place / inner * middle * inner + place % inner;
    const float of_all = (float)(sum[place] / (double)whole_middle);
    for (uint64_t j = 0; j < middle; j++) mean[i + j * inner] = of_all;
  }
}

/* The published CUDA code's: over the three decays, for each place. */
static void set_compat_means(qn_lopt_factor *s)
{
  const float *a = s->channel, *b = a + s->padded, *c = b + s->padded;
  for (uint64_t j = 0; j < s->n; j++)
    for (uint64_t k = 0; k < 3; k++) s->root[k * s->padded + j] = qn_lopt_mean_of_decays(a[j], b[j], c[j]);
}

/* Of a row whose other dimension is the middle one, of `whole_middle` in the whole tensor. */
static void set_roots(const qn_lopt_call *call, qn_lopt_factor *s, uint64_t middle, uint64_t inner,
                      uint64_t whole_middle)
{
  const bool row = s->row_places > 0;
  for (uint64_t k = 0; k < 3 && row; k++) set_row_means(s, middle, inner, whole_middle, k);
  if (row && call->means_of_decays) set_compat_means(s);
  for (uint64_t j = 0; j < 3 * s->padded; j += QN_LANES) {
    qn_f32 x = get(s->channel + j);
    if (row) x = qn_lopt_over_mean(x, get(s->root + j));
    put(s->root + j, qn_lopt_root(x));
  }
}

/* The factor's part of the first layer's sums at each of its places. */
static void set_table(const qn_lopt_call *call, const qn_lopt_item *item, qn_lopt_factor *s, bool row, bool over_x);

/* The first layer's weights for the factor's six channels, scaled. */
static inline void factor_layer(const qn_lopt_call *call, const qn_lopt_item *item, const qn_lopt_factor *s, bool row,
                                float *layer)
{
  double scale[QN_LOPT_FACTOR_CHANNELS];
  for (uint64_t k = 0; k < QN_LOPT_FACTOR_CHANNELS; k++) scale[k] = qn_lopt_scale(s->squares[k], s->whole);
  qn_lopt_factor_layer(call->network, item->weights, row, scale, layer);
}

/* A table of planes, [width][padded], that begin with the bias, or with 0. */
static inline void set_planes(qn_lopt_factor *s, const float *layer, uint64_t width, const float *bias)
{
  for (uint64_t h = 0; h < width; h++)
    for (uint64_t j = 0; j < s->padded; j += QN_LANES) {
      qn_f32 sum = qn_splat(bias ? bias[h] : 0.0f);
      for (uint64_t k = 0; k < QN_LOPT_FACTOR_CHANNELS; k++)
        sum = qn_fma(qn_splat(layer[k * width + h]), get(s->channel + k * s->padded + j), sum);
      put(s->table + h * s->padded + j, sum);
    }
}

/* The number that gradients are multiplied by where their norm is bounded. */
static void set_norm(const qn_lopt_call *call, qn_lopt_item *item)
{
  item->of_gradient = 1.0f;
  if (call->max_grad_norm <= 0) return;
  item->of_gradient = qn_lopt_bound(call->max_grad_norm, item->view.cut ? item->norm : qn_lopt_norm(item));
}

static void set_sums(qn_lopt_factor *s, uint64_t middle, uint64_t inner)
{
  for (uint64_t k = 0; k < QN_LOPT_FACTOR_CHANNELS; k++)
    s->squares[k] = squares(s->channel + k * s->padded, s->n, QN_LOPT_AS_IS);
  for (uint64_t k = 0; k < 3 && s->row_places; k++) set_row_sums(s, middle, inner, k);
}

static void states(const qn_lopt_call *call, qn_lopt_item *item)
{
  const qn_lopt_view *v = &item->view;
  set_norm(call, item);
  if (!v->factored) return;
  const double of_squares = (double)item->of_gradient * (double)item->of_gradient;
  set_states(call, &item->over_x, v->whole_x, of_squares);
  set_states(call, &item->over_y, v->y, of_squares);
  set_sums(&item->over_x, v->y, v->c);
  set_sums(&item->over_y, v->x, v->b * v->c);
}

static void tables(const qn_lopt_call *call, qn_lopt_item *item)
{
  const qn_lopt_view *v = &item->view;
  if (!v->factored) return;
  set_roots(call, &item->over_x, v->y, v->c, v->y);
  set_roots(call, &item->over_y, v->x, v->b * v->c, v->whole_x);
  set_table(call, item, &item->over_x, v->row_over_x, true);
  set_table(call, item, &item->over_y, !v->row_over_x, false);
}

#endif
