/* SPDX-License-Identifier: Apache-2.0 */
/* meta.check.c - the loop of meta-training: a launch a group and two more an outer step, nothing read back but the mean
 * loss, and behind each piece the weights and what a run goes on from, written to files. */
#include "core/core.h"
#include "core/file.h"
#include "jit/jit.h"
#include "op/lopt/lopt.h"
#include "op/lopt/meta.train.h"
#include "workbench/build.h"
#include "workbench/op_check.h"
#include "workbench/sampler.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const qn_meta_network qn_meta_small_fc = {.source = "op/lopt/meta.cu",
                                          .kind = QN_LOPT_SMALL_FC,
                                          .weights = QN_LOPT_SMALL_FC_WEIGHTS,
                                          .table = QN_LOPT_HIDDEN,
                                          .fan_in = 32};

/* Networks of different shapes; wider ones cost more and are fewer. */
static const char default_groups[] = "64x32-256-8@32,128x24-128-8@32,256x48-64-12@64,512x32-32-8@32,512x16-24-24-8@16";

enum { REPORTS = 64 }; /* outer steps whose losses are read back together */

typedef struct meta_run {
  const qn_meta_order *order;
  const qn_meta_network *network;
  const char *networks;
  const qn_backend *backend;
  const qn_device_function *window, *outer, *next;
  qn_meta_group group[QN_META_GROUPS];
  size_t groups;
  qn_u32 pairs;
  float *theta, *m, *v, *loss, *report, *slabs[QN_META_GROUPS]; /* of the device */
  qn_meta_pair *pair, *fresh;                                   /* fresh: of the host */
  float *state;                                                 /* of the host: theta, m and v, a row each */
  uint32_t done;
  int64_t began_ns;
  double particle_steps;
} meta_run;

/* ---- random numbers of the host: SplitMix64 ---- */
static double draw(uint64_t *state)
{
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

static double draw_normal(uint64_t *state)
{
  const double u = draw(state);
  return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * draw(state));
}

/* Of the layer that tensor k is part of: its tensors but the last, whose outputs have biases, which are that. */
static size_t inputs_of(qn_lopt_weights kind, size_t k)
{
  qn_lopt_weight first, w;
  size_t begin = k;
  while (begin && qn_lopt_weight_at(kind, begin - 1, &w) == QN_OK && w.ndim == 2) begin--;
  if (qn_lopt_weight_at(kind, begin, &first) != QN_OK) return 0;
  while (qn_lopt_weight_at(kind, ++k, &w) == QN_OK && w.ndim == 2) continue;
  return (w.begin - first.begin) / w.n;
}

void qn_meta_first_weights(const qn_meta_network *network, uint64_t seed, float *weights)
{
  qn_lopt_weight w;
  for (size_t k = 0; qn_lopt_weight_at(network->kind, k, &w) == QN_OK; k++)
    for (size_t j = 0; j < w.n; j++) {
      double x = w.ndim == 2 ? draw_normal(&seed) : 0;
      while (fabs(x) > 2) x = draw_normal(&seed); /* cut at two deviations */
      weights[w.begin + j] = w.ndim == 2 ? (float)(x / sqrt((double)inputs_of(network->kind, k))) : 0.0f;
    }
}

/* ---- memory ---- */
static qn_status allocate(const meta_run *run, size_t bytes, void *at)
{
  void *made = NULL;
  qn_try(qn_memory_allocate(run->order->device, bytes, &made));
  memcpy(at, &made, sizeof made);
  return QN_OK;
}

static size_t state_bytes(const meta_run *run) { return 3 * run->network->weights * sizeof(float); }

void qn_meta_define(const qn_op *op, const void *params, qn_meta_defines *to)
{
  const qn_lopt_step step = qn_lopt_step_of(op, params);
  const struct {
    const char *name;
    unsigned value;
  } said[QN_META_DEFINES] = {{"QN_LOPT_GRADIENT", step.gradient},
                             {"QN_LOPT_JOINT_DECAY", step.joint_decay},
                             {"QN_LOPT_BOUNDED", 0},
                             {"QN_LOPT_PRECISION", QN_LOPT_BF16X3}};
  for (int k = 0; k < QN_META_DEFINES; k++) {
    snprintf(to->text[k], sizeof to->text[k], "%s=%u", said[k].name, said[k].value);
    to->all[k] = to->text[k];
  }
  to->all[QN_META_DEFINES] = NULL;
}

static qn_status open_run(meta_run *run)
{
  qn_meta_defines defines;
  qn_meta_define(run->order->op, run->order->params, &defines);
  const qn_unit unit = {.source = run->network->source, .defines = defines.all};
  const qn_device device = run->order->device;
  qn_try(qn_backend_of(device, &run->backend));
  qn_require(run->backend->launch,
             "meta-training runs on a GPU, and tiny networks on the emulator: --backend emulator");
  qn_try(qn_jit_function(device, &unit, "meta_window", &run->window));
  qn_try(qn_jit_function(device, &unit, "meta_outer", &run->outer));
  qn_try(qn_jit_function(device, &unit, "meta_next", &run->next));
  for (size_t k = 0; k < run->groups; k++) {
    run->pairs += run->group[k].pairs;
    qn_try(allocate(run, (size_t)run->group[k].pairs * 2 * run->group[k].floats * sizeof(float), &run->slabs[k]));
  }
  qn_try(allocate(run, state_bytes(run), &run->theta));
  run->m = run->theta + run->network->weights, run->v = run->m + run->network->weights;
  qn_try(qn_try_allocate(&run->state, state_bytes(run), "the weights"));
  memset(run->state, 0, state_bytes(run));
  qn_try(allocate(run, run->pairs * 2 * sizeof(float), &run->loss));
  qn_try(allocate(run, REPORTS * QN_META_GROUPS * 2 * sizeof(float), &run->report));
  qn_try(allocate(run, run->pairs * sizeof *run->pair, &run->pair));
  return qn_try_allocate(&run->fresh, run->pairs * sizeof *run->fresh, "the pairs");
}

static void close_run(meta_run *run)
{
  const qn_device device = run->order->device;
  void *const all[] = {run->theta, run->loss, run->report, run->pair};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    if (all[k]) (void)qn_memory_release(device, all[k]);
  for (size_t k = 0; k < run->groups; k++)
    if (run->slabs[k]) (void)qn_memory_release(device, run->slabs[k]);
  qn_release(run->fresh);
  qn_release(run->state);
}

/* ---- a file and its state ---- */
static qn_status replace(const char *path, const qn_safetensor_made *tensors, size_t n, const char *const *metadata)
{
  qn_text made = {0};
  qn_text_add(&made, "%s.part", path);
  if (made.failed) return qn_fail(QN_NO_MEMORY, "no memory for a path");
  (void)unlink(made.at);
  qn_status status = qn_safetensors_write(made.at, tensors, n, metadata);
  if (status == QN_OK && rename(made.at, path)) status = qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(errno));
  qn_text_free(&made);
  return status;
}

/* What a run that goes on must have in common with the one before. */
static void describe(const meta_run *run, qn_text *to)
{
  const qn_meta_order *o = run->order;
  qn_text_add(to,
              "%s of %s seed %" PRIu64 " steps %u piece %u window %u episodes %u to %u lr %.17g sigma %.17g most %.17g",
              run->networks, o->op->info.name, o->seed, o->steps, o->piece, o->window, o->shortest, o->longest, o->lr,
              o->sigma, o->most);
}

/* The state's tensors, of which the last is the description. */
enum { STATE_VALUES, STATE_STEPS, STATE_RUN, STATE_TENSORS };

static qn_status write_state(const meta_run *run, const qn_text *what)
{
  qn_text path = {0};
  const int64_t values[2] = {3, run->network->weights}, one = 1, length = (int64_t)what->length;
  const uint64_t steps = run->done;
  const qn_safetensor_made made[STATE_TENSORS] = {{"state", QN_F32, 2, values, run->state},
                                                  {"outer_steps", QN_U64, 1, &one, &steps},
                                                  {"run", QN_U8, 1, &length, what->at}};
  qn_text_add(&path, "%s.state", run->order->out);
  qn_status status =
      path.failed ? qn_fail(QN_NO_MEMORY, "no memory for a path") : replace(path.at, made, STATE_TENSORS, NULL);
  qn_text_free(&path);
  return status;
}

static qn_status write_files(meta_run *run)
{
  enum { MOST = 20 };
  qn_safetensor_made made[MOST];
  qn_lopt_weight w[MOST];
  size_t n = 0;
  const qn_meta_network *of = run->network;
  char step[24], fan_in[24], seed[24];
  qn_text what = {0};
  describe(run, &what);
  snprintf(step, sizeof step, "%u", run->done);
  snprintf(seed, sizeof seed, "%" PRIu64, run->order->seed);
  snprintf(fan_in, sizeof fan_in, "%u", of->fan_in);
  const char *const metadata[] = {"made_by",
                                  "quern meta-train",
                                  "op",
                                  run->order->op->info.name,
                                  "command",
                                  run->order->command,
                                  "commit",
                                  qn_build_commit,
                                  "seed",
                                  seed,
                                  "tasks",
                                  run->networks,
                                  "run",
                                  what.failed ? "" : what.at,
                                  "outer_steps",
                                  step,
                                  of->fan_in ? "fan_in" : NULL,
                                  fan_in,
                                  NULL};
  qn_status status = what.failed ? qn_fail(QN_NO_MEMORY, "no memory for a description") : QN_OK;
  if (status == QN_OK) status = qn_memory_read(run->order->device, NULL, run->state, run->theta, state_bytes(run));
  for (; n < MOST && status == QN_OK && qn_lopt_weight_at(of->kind, n, &w[n]) == QN_OK; n++)
    made[n] = (qn_safetensor_made){w[n].name, QN_F32, w[n].ndim, w[n].shape, run->state + w[n].begin};
  if (status == QN_OK) status = replace(run->order->out, made, n, metadata);
  if (status == QN_OK) status = write_state(run, &what);
  qn_text_free(&what);
  return status;
}

static qn_status read_tensors(meta_run *run, const char *path, const qn_safetensors *list, const qn_text *what,
                              char *was)
{
  const qn_safetensor *t = list->tensor;
  uint64_t steps = 0;
  const bool fits = list->n == STATE_TENSORS && t[STATE_VALUES].end - t[STATE_VALUES].begin == state_bytes(run) &&
                    t[STATE_STEPS].end - t[STATE_STEPS].begin == sizeof steps;
  if (!fits) return qn_fail(QN_BAD_FILE, "%s: it is no state of meta-training", path);
  qn_try(qn_safetensors_read_data(path, list, &t[STATE_RUN], was));
  qn_require(!strcmp(was, what->at), "%s: it is of another run: %s; this one is: %s", path, was, what->at);
  qn_try(qn_safetensors_read_data(path, list, &t[STATE_VALUES], run->state));
  qn_try(qn_safetensors_read_data(path, list, &t[STATE_STEPS], &steps));
  run->done = (uint32_t)steps;
  return QN_OK;
}

static qn_status read_state(meta_run *run, const char *path)
{
  qn_safetensors list = {0};
  qn_text what = {0};
  char *was = NULL;
  describe(run, &what);
  qn_status status = what.failed ? qn_fail(QN_NO_MEMORY, "no memory for a description") : QN_OK;
  if (status == QN_OK) status = qn_safetensors_read(path, &list);
  const size_t bytes =
      list.n == STATE_TENSORS ? (size_t)(list.tensor[STATE_RUN].end - list.tensor[STATE_RUN].begin) : 0;
  if (status == QN_OK) status = qn_try_allocate(&was, bytes + 1, "a description");
  if (status == QN_OK) {
    was[bytes] = 0;
    status = read_tensors(run, path, &list, &what, was);
  }
  qn_safetensors_free(&list);
  qn_release(was);
  qn_text_free(&what);
  return status;
}

static qn_status begin_weights(meta_run *run)
{
  qn_text path = {0};
  qn_text_add(&path, "%s.state", run->order->out);
  if (path.failed) return qn_fail(QN_NO_MEMORY, "no memory for a path");
  qn_status status = QN_OK;
  if (run->order->resume)
    status = read_state(run, path.at);
  else
    qn_meta_first_weights(run->network, run->order->seed, run->state);
  qn_text_free(&path);
  if (status != QN_OK) return status;
  return qn_memory_write(run->order->device, NULL, run->theta, run->state, state_bytes(run));
}

/* ---- the loop ---- */
static qn_status launch(const meta_run *run, const qn_device_function *function, uint64_t blocks, uint32_t shared_bytes,
                        const void *argument, size_t bytes)
{
  return run->backend->launch(run->order->device, function,
                              &(qn_launch){.blocks = blocks,
                                           .threads = QN_META_THREADS,
                                           .shared_bytes = shared_bytes,
                                           .pool = run->order->pool,
                                           .argument = argument,
                                           .argument_bytes = bytes});
}

/* All pairs begin an episode, of lengths that end at different times. */
static qn_status begin_piece(meta_run *run)
{
  const qn_meta_order *o = run->order;
  uint64_t state = o->seed ^ UINT64_C(0x6d657461) * (run->done + 1);
  const uint64_t piece = run->done / o->piece;
  for (qn_u32 k = 0; k < run->pairs; k++) {
    const double length = o->shortest * pow((double)o->longest / o->shortest, draw(&state));
    run->fresh[k] = (qn_meta_pair){(piece << 40) + k, 0, (qn_u32)(1 + length * draw(&state))};
  }
  return qn_memory_write(o->device, NULL, run->pair, run->fresh, run->pairs * sizeof *run->fresh);
}

void qn_meta_begin_window(const qn_op *op, const void *params, qn_meta_window_of *to)
{
  const qn_lopt_op *of = op->of_engine;
  const qn_lopt_step step = qn_lopt_step_of(op, params);
  qn_meta_window *a = &to->of;
  qn_lopt_call call;
  qn_lopt_begin(&call, &step);
  *to = (qn_meta_window_of){.of = {.step = (float)(step.joint_decay ? step.lr : step.lr * step.step_mult),
                                   .decay = (float)(step.weight_decay * (step.joint_decay ? 1 : step.lr)),
                                   .exp_mult = call.rates.exp_mult,
                                   .v = call.rates.v,
                                   .v_rest = call.rates.v_rest}};
  memcpy(a->m, call.rates.m, sizeof a->m), memcpy(a->m_rest, call.rates.m_rest, sizeof a->m_rest);
  memcpy(a->f, call.rates.f, sizeof a->f), memcpy(a->f_rest, call.rates.f_rest, sizeof a->f_rest);
  if (of->own_of) of->own_of(params, 0, to->own);
}

static qn_status train_window(const meta_run *run)
{
  const qn_meta_order *o = run->order;
  qn_meta_window_of a;
  qn_meta_begin_window(o->op, o->params, &a);
  a.of.theta = run->theta, a.of.seed = o->seed, a.of.steps = o->window, a.of.sigma = (float)o->sigma;
  qn_u32 first = 0;
  for (size_t k = 0; k < run->groups; first += run->group[k++].pairs) {
    a.of.group = run->group[k], a.of.slabs = run->slabs[k];
    a.of.pair = run->pair + first, a.of.loss = run->loss + 2 * first;
    qn_try(launch(run, run->window, 2 * (uint64_t)run->group[k].pairs, run->group[k].shared_bytes, &a,
                  sizeof a.of + run->network->own_bytes));
  }
  return QN_OK;
}

/* Warm-up over 50 steps, then half a cosine down to a twentieth. */
static double rate_at(const qn_meta_order *o, uint32_t step)
{
  const double warm = fmin(1, (step + 1) / 50.0), part = (double)step / o->steps;
  return o->lr * warm * (0.05 + 0.95 * 0.5 * (1 + cos(3.14159265358979323846 * part)));
}

static qn_status outer_step(const meta_run *run, qn_u32 slot)
{
  const qn_meta_order *o = run->order;
  qn_try(train_window(run));
  const qn_meta_outer outer = {run->theta,    run->m,     run->v,        run->pair,       run->loss,
                               o->seed,       run->pairs, run->done + 1, (float)o->sigma, (float)rate_at(o, run->done),
                               (float)o->most};
  qn_try(
      launch(run, run->outer, qn_lopt_ceiling(run->network->weights, QN_META_OUTER_WEIGHTS), 0, &outer, sizeof outer));
  const qn_meta_next next = {run->pair, run->loss,   o->seed,    run->pairs,
                             o->window, o->shortest, o->longest, run->report + 2 * slot};
  return launch(run, run->next, 1, 0, &next, sizeof next);
}

static qn_status report(meta_run *run, qn_u32 slots)
{
  const qn_meta_order *o = run->order;
  float losses[2 * REPORTS];
  if (!slots) return QN_OK;
  qn_try(qn_memory_read(o->device, NULL, losses, run->report, slots * 2 * sizeof(float)));
  double sum = 0, lost = 0;
  for (qn_u32 k = 0; k < slots; k++) {
    sum += (double)losses[2 * k], lost += (double)losses[2 * k + 1];
    if (o->curve)
      fprintf(o->curve, "{\"schema\":\"quern meta 1\",\"step\":%u,\"loss\":%.6g,\"lost\":%.0f}\n",
              run->done - slots + k + 1, (double)losses[2 * k], (double)losses[2 * k + 1]);
  }
  run->particle_steps += 2.0 * run->pairs * o->window * slots;
  const double seconds = (double)(qn_now_ns() - run->began_ns) * 1e-9;
  if (o->at) o->at(o->user, run->done, sum / slots, lost / slots, run->particle_steps / seconds);
  return QN_OK;
}

static qn_status train_piece(meta_run *run)
{
  const qn_meta_order *o = run->order;
  qn_u32 slot = 0;
  qn_try(begin_piece(run));
  do {
    qn_try(outer_step(run, slot++));
    run->done++;
    if (slot < REPORTS && run->done < o->steps && run->done % o->piece) continue;
    qn_try(report(run, slot));
    slot = 0;
  } while (run->done < o->steps && run->done % o->piece);
  return write_files(run);
}

qn_status qn_lopt_meta_train(const qn_meta_order *order, uint32_t *done)
{
  meta_run *run;
  *done = 0;
  qn_require(order->piece && order->steps && order->window, "meta-training: steps, piece and window must be 1 or more");
  qn_try(qn_try_allocate(&run, sizeof *run, "meta-training"));
  *run = (meta_run){.order = order,
                    .network = qn_op_check_of(order->op)->meta,
                    .networks = order->groups ? order->groups : default_groups};
  qn_status status = qn_meta_groups_read(run->network, run->networks, run->group, &run->groups);
  if (status == QN_OK) status = open_run(run);
  if (status == QN_OK) status = begin_weights(run);
  run->began_ns = qn_now_ns();
  while (status == QN_OK && run->done < order->steps) {
    status = train_piece(run);
    if (order->budget_s > 0 && (double)(qn_now_ns() - run->began_ns) * 1e-9 > order->budget_s) break;
  }
  *done = run->done;
  close_run(run);
  qn_release(run);
  return status;
}
