/* SPDX-License-Identifier: Apache-2.0 */
/* velo.device.c - a checked step of VeLO on a device: its phases over the whole list, each of one launch
 * (velo.list.cu), before and between those that op/lopt/lopt.device.c has over elements. Nothing waits, and the loss is
 * looked at there, so a step can be captured. */
#include "core/core.h"
#include "op/velo/device.h"
#include "op/velo/velo.h"
#include <math.h>

enum { THREADS = 256, MOST_THREADS = 512, ROW_OF_X = 32 };

static const qn_lopt_sources sources = {"op/velo/velo.sums.cu",  "op/velo/velo.factors.cu",
                                        "op/velo/velo.tiles.cu", "op/velo/velo.elements.cu",
                                        "op/velo/velo.tiles.cu", "op/velo/velo.shards.cu"};
const qn_lopt_tiling qn_velo_device_tiling = {QN_VELO_COLUMNS,
                                              QN_VELO_STAT_ROWS,
                                              QN_VELO_ROWS,
                                              QN_VELO_LEAST_LENGTH,
                                              QN_VELO_ELEMENTS_A_TASK,
                                              QN_VELO_TOTALS,
                                              true,
                                              256,
                                              &sources};

/* Lays out the whole list's arrays; returns their bytes. */
static size_t lay(qn_velo_device_args *a, size_t n, qn_lopt_arena r)
{
  a->losses = qn_lopt_take(&r, (QN_VELO_LOSSES - 1) * sizeof(double));
  a->size = qn_lopt_take(&r, n * sizeof(double));
  a->scale = qn_lopt_take(&r, n * QN_VELO_OLD * sizeof(double));
  a->x = qn_lopt_take(&r, n * ROW_OF_X * sizeof(float));
  a->z = qn_lopt_take(&r, n * 2 * QN_VELO_UNITS * sizeof(float));
  a->unit = qn_lopt_take(&r, n * QN_VELO_UNITS * sizeof(float));
  a->mixed = qn_lopt_take(&r, n * QN_VELO_OF_TENSOR * sizeof(float));
  return r.used;
}

size_t qn_velo_device_bytes(size_t n)
{
  qn_velo_device_args measured;
  return lay(&measured, n, (qn_lopt_arena){.align = QN_LOPT_DEVICE_ALIGNMENT});
}

static uint32_t rank_in_flags(const qn_tensor *p, int64_t whole) { return (uint32_t)qn_velo_rank(p, whole) << 28; }

static qn_status run_kernel(const qn_lopt_device_place *place, const char *name, uint64_t blocks, uint32_t threads,
                            const qn_velo_device_args *a)
{
  return qn_lopt_device_launch(place, "op/velo/velo.list.cu", name, blocks, threads, a, sizeof *a);
}

static qn_status run_loss(void *user, const qn_lopt_device_place *place)
{
  qn_velo_device_args *a = user;
  a->items = place->items, a->firsts = place->firsts, a->n = place->n, a->head = place->head;
  return run_kernel(place, "velo_loss", 1, THREADS, a);
}

/* Of the sums that STATS has left every tensor's weights. */
static qn_status run_lstm(void *user, const qn_lopt_device_place *place)
{
  const qn_velo_device_args *a = user;
  qn_try(run_kernel(place, "velo_features", a->n, MOST_THREADS, a));
  qn_try(run_kernel(place, "velo_mix", QN_VELO_UNITS / 32, MOST_THREADS, a));
  qn_try(run_kernel(place, "velo_lstm", QN_VELO_UNITS / 16 * qn_lopt_ceiling(a->n, 64), THREADS, a));
  return run_kernel(place, "velo_heads", a->n, MOST_THREADS, a);
}

qn_status qn_velo_device_run(const qn_call *list, const qn_lopt_step *of, const qn_velo_call *call)
{
  const qn_lopt_hyper *hyper = of->hyper;
  qn_velo_device_args a = {.mlp = call->mlp,
                           .rnn = call->rnn,
                           .loss = call->loss,
                           .buffer = call->loss_buffer,
                           .hidden = call->hidden,
                           .cell = call->cell,
                           .hyper = (const qn_lopt_live *)hyper,
                           .live = {of->lr, of->weight_decay, of->step},
                           .steps = (double)call->num_steps,
                           .step_mult = of->step_mult};
  const qn_lopt_list_phases list_phases = {run_loss, run_lstm, rank_in_flags, &a, NULL};
  qn_lopt_step step = *of;
  for (int k = 0; k < QN_VELO_LOSSES; k++) a.rate[k] = 1 / qn_velo_half_life(call->num_steps, k);
  const size_t bytes = lay(&a, list->n, qn_lopt_arena_of(list->exec->workspace, QN_LOPT_DEVICE_ALIGNMENT));
  step.weights = a.mixed, step.weights_apart = QN_VELO_OF_TENSOR;
  return qn_lopt_device_run_behind(list, &step, &list_phases, bytes);
}
