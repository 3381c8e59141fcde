/* SPDX-License-Identifier: Apache-2.0 */
/* meta.layout.c - the networks that meta-training trains, read from text, and the places of their numbers in a
 * particle's slab and in a block's shared memory. */
#include "core/core.h"
#include "op/lopt/meta.train.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_PAIRS = 1 << 16, SHARED_MOST = 160 << 10 };

static qn_u32 fours(qn_u32 n) { return (n + 3) / 4 * 4; }

static qn_u32 take(qn_u32 *used, qn_u32 floats)
{
  const qn_u32 at = *used;
  *used += fours(floats);
  return at;
}

static void lay_tensor(const qn_meta_network *network, qn_meta_group *g, qn_meta_tensor *t, qn_u32 outputs,
                       qn_u32 inputs, qn_u32 *chunk)
{
  *t =
      (qn_meta_tensor){.n = inputs ? outputs * inputs : outputs, .outputs = outputs, .inputs = inputs, .chunk = *chunk};
  t->padded = fours(t->n), t->places = fours(outputs);
  *chunk += (t->n + QN_META_CHUNK - 1) / QN_META_CHUNK;
  t->p = take(&g->floats, t->n), t->m = take(&g->floats, 3 * t->padded);
  t->v = take(&g->floats, t->n), t->g = take(&g->floats, t->n);
  t->state[0] = take(&g->floats, 3 * t->places), t->state[1] = take(&g->floats, 3 * inputs);
  t->table[0] = take(&g->floats, network->table * t->places), t->table[1] = take(&g->floats, network->table * inputs);
  t->of_outputs = 1.0f / (float)outputs, t->of_inputs = inputs ? 1.0f / (float)inputs : 0;
  t->lr_scale = inputs && network->fan_in ? (float)network->fan_in / (float)inputs : 1.0f;
}

/* (length, width) as it is, or its transpose, with rows that are multiples of 4. */
static void lay_moves(qn_meta_group *g)
{
  qn_u32 most = 0, square = 0;
  for (qn_u32 l = 0; l < g->layers; l++) {
    const qn_u32 a = fours(g->width[l]), b = fours(g->width[l + 1]), width = a < b ? a : b;
    if (a * b > most) most = a * b;
    if (width * width > square) square = width * width;
  }
  for (int k = 0; k < 2; k++) g->move[k] = take(&g->floats, most), g->gram[k] = take(&g->floats, square);
}

static void lay(const qn_meta_network *network, qn_meta_group *g)
{
  qn_u32 used = 0, chunk = 0, widest = QN_META_TEACHER;
  g->tensors = 2 * g->layers, g->floats = 0;
  for (qn_u32 l = 0; l < g->layers; l++) {
    lay_tensor(network, g, &g->tensor[2 * l], g->width[l + 1], g->width[l], &chunk);
    lay_tensor(network, g, &g->tensor[2 * l + 1], g->width[l + 1], 0, &chunk);
    if (g->width[l + 1] > widest) widest = g->width[l + 1];
  }
  g->teacher = take(&g->floats, QN_META_TEACHER * (g->width[0] + g->width[g->layers]));
  g->spectrum = take(&g->floats, g->width[0]);
  if (network->orthogonal) lay_moves(g);
  for (qn_u32 l = 0; l <= g->layers; l++) g->value[l] = take(&used, g->width[l] * (g->batch + 1));
  for (qn_u32 l = 1; l < g->layers; l++) g->slope[l] = take(&used, g->width[l] * (g->batch + 1));
  for (int k = 0; k < 2; k++) g->delta[k] = take(&used, widest * (g->batch + 1));
  g->shared_bytes = used * (qn_u32)sizeof(float);
}

static bool number(const char **at, qn_u32 most, qn_u32 *value)
{
  char *end;
  if (**at < '0' || **at > '9') return false;
  const unsigned long read = strtoul(*at, &end, 10);
  *at = end;
  *value = (qn_u32)read;
  return read >= 1 && read <= most;
}

static bool read_group(const char **at, qn_meta_group *g)
{
  memset(g, 0, sizeof *g);
  if (!number(at, MOST_PAIRS, &g->pairs) || *(*at)++ != 'x' || !number(at, QN_META_WIDTH, &g->width[0])) return false;
  while (**at == '-' && g->layers < QN_META_LAYERS) {
    ++*at;
    if (g->width[g->layers] % 4 || !number(at, QN_META_WIDTH, &g->width[++g->layers])) return false;
  }
  return g->layers && g->width[g->layers] >= 2 && *(*at)++ == '@' && number(at, QN_META_BATCH, &g->batch);
}

qn_status qn_meta_groups_read(const qn_meta_network *network, const char *text, qn_meta_group group[QN_META_GROUPS],
                              size_t *n)
{
  const char *at = text;
  *n = 0;
  do {
    qn_require(*n < QN_META_GROUPS, "groups: \"%s\" has more than %d groups", text, QN_META_GROUPS);
    qn_meta_group *g = &group[*n];
    qn_require(read_group(&at, g) && (*at == ',' || !*at),
               "groups: \"%s\", group %zu: it must be PAIRSxINPUTS-HIDDEN-CLASSES@BATCH such as 512x32-32-8@32, with 1 "
               "to %d layers, widths up to %d that are multiples of 4, 2 classes or more, and batches up to %d",
               text, *n + 1, QN_META_LAYERS, QN_META_WIDTH, QN_META_BATCH);
    lay(network, g);
    qn_require(
        g->shared_bytes <= SHARED_MOST,
        "groups: \"%s\", group %zu: its batch takes %u bytes of shared memory, %d is the most: make widths or the "
        "batch smaller",
        text, *n + 1, g->shared_bytes, SHARED_MOST);
    ++*n;
  } while (*at++ == ',');
  return QN_OK;
}
