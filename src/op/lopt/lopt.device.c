/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.device.c - a checked step of a learned optimizer on a device: the table of tensors, which goes into the
 * workspace (layout.h) in the parameters of the first launches, and the phases, each of which is one launch over the
 * whole list. Nothing is uploaded and nothing waits, so a step can be captured. */
#include "core/core.h"
#include "jit/jit.h"
#include "op/lopt/layout.h"
#include "quern/arch.h"
#include <stdio.h>
#include <string.h>

enum {
  LONG_PIECE = 4080, /* words: with the two before them within 32,764 bytes, and within 4096 */
  SHORT_PIECE = 500,
  MATRIX_CAPABILITY = 80,
  WARPGROUP_CAPABILITY = 90,
  WARPGROUP = 4, /* simdgroups */
  MATRIX_BYTES = 6144,
  SIMD_BYTES = 9344, /* of shared memory that one of UPDATE's takes: OF_SIMD there */
  UPDATE_THREADS_MOST = 512
};
_Static_assert(sizeof(qn_lopt_live) == sizeof(qn_lopt_hyper), "qn_lopt_live is qn_lopt_hyper");
_Static_assert(offsetof(qn_lopt_live, step) == offsetof(qn_lopt_hyper, step), "qn_lopt_live is qn_lopt_hyper");
_Static_assert(sizeof(qn_lopt_device_item) % 8 == 0, "the table is words");

/* Phases that have numbered tasks. */
enum { SUMS, STATES, MEANS, STATS, ELEMENTS, UPDATE, PHASES };
_Static_assert((int)PHASES == (int)QN_LOPT_NUMBERED, "the table has each one's first task");

static const qn_lopt_sources sources = {"op/lopt/lopt.sums.cu",   "op/lopt/lopt.factors.cu",
                                        "op/lopt/lopt.stats.cu",  "op/lopt/lopt.elements.cu",
                                        "op/lopt/lopt.update.cu", "op/lopt/lopt.shards.cu"};
const qn_lopt_tiling qn_lopt_device_tiling = {
    QN_LOPT_COLUMNS, QN_LOPT_STAT_ROWS, QN_LOPT_ROWS, QN_LOPT_LEAST_LENGTH, QN_LOPT_ELEMENTS_A_TASK, 0, false, 512,
    &sources};

/* ---- a step ---- */

typedef struct step_run {
  const qn_call *list;
  const qn_lopt_step *step;
  const qn_backend *backend;
  int precision;
  bool warpgroups; /* UPDATE takes their products */
  uint32_t update_threads;
  uint32_t multiprocessors, piece;
  size_t items;
  uint64_t tasks[PHASES];
  char *table;
  uint32_t *firsts;    /* behind it */
  qn_lopt_arena arena; /* of the tensors' parts */
  qn_lopt_shared_parts shared;
  qn_lopt_device_args args;
} step_run;

static void bind_item(const step_run *run, size_t k, qn_lopt_device_item *it)
{
  const qn_tensor *const *of = run->list->tensors;
  const qn_lopt_network *network = run->step->network;
  const qn_lopt_list_phases *list_phases = run->step->list_phases;
  const bool row_over_x = it->flags & QN_LOPT_ROW_OVER_X;
  uintptr_t all = it->length % 4;
  it->p = of[QN_LOPT_PARAM][k].data;
  it->g = of[QN_LOPT_GRAD][k].data;
  it->m = of[QN_LOPT_M][k].data;
  it->v = of[QN_LOPT_V][k].data;
  (row_over_x ? &it->over_x : &it->over_y)->state = of[QN_LOPT_ROW][k].data;
  (row_over_x ? &it->over_y : &it->over_x)->state = of[QN_LOPT_COLUMN][k].data;
  if (!(it->flags & QN_LOPT_FACTORED)) it->f = of[QN_LOPT_ROW][k].data;
  for (int role = 0; role <= QN_LOPT_V; role++) all |= (uintptr_t)of[role][k].data % 16;
  if (!all) it->flags |= QN_LOPT_ALIGNED;
  if (qn_lopt_may_be_tiled(network, it) && (network->tiling->is_fp32 || run->precision != QN_LOPT_FP32))
    it->flags |= QN_LOPT_TILED;
  it->partials = it->flags & QN_LOPT_TILED ? qn_lopt_tiles_of(it, network->tiling->stat_rows, network->tiling->columns)
                                           : qn_lopt_ceiling(it->n, network->tiling->elements);
  if (it->flags & QN_LOPT_TILED && !list_phases) it->layer = NULL;
  it->place = k;
  if (list_phases) it->weights = run->step->weights + k * run->step->weights_apart;
  if (list_phases && list_phases->flags)
    it->flags |= list_phases->flags(&of[QN_LOPT_PARAM][k], qn_lopt_whole(run->step->shards, k));
  it->lr_scale = run->step->lr_scale ? run->step->lr_scale[k] : 1;
}

/* Of a network of matrices, the numbers that its kernels' tasks have. */
static int numbered(qn_lopt_phase phase)
{
  return phase == QN_LOPT_STATS ? STATS : phase == QN_LOPT_FIRST_LAYER ? ELEMENTS : UPDATE;
}

static uint64_t tasks_of(const step_run *run, const qn_lopt_device_item *it, int phase)
{
  const qn_lopt_matrices *matrices = run->step->network->matrices;
  const bool factored = it->flags & QN_LOPT_FACTORED, tiled = it->flags & QN_LOPT_TILED;
  const qn_lopt_tiling *by = run->step->network->tiling;
  for (qn_lopt_phase of = QN_LOPT_STATS; matrices && of < QN_LOPT_PHASES; of++)
    if (numbered(of) == phase) return matrices->device_tasks(of, it);
  switch (phase) {
  case SUMS:
    if (!factored && run->step->max_grad_norm <= 0) return 0;
    return it->rows / it->x * qn_lopt_ceiling(it->x, QN_LOPT_SUM_ROWS) *
               qn_lopt_ceiling(it->length, QN_LOPT_SUM_COLUMNS) +
           (it->flags & QN_LOPT_STRAIGHT ? 0 : it->n / it->strip);
  case STATES:
    return factored ? qn_lopt_ceiling(it->over_x.n, QN_LOPT_PLACES) + qn_lopt_ceiling(it->over_y.n, QN_LOPT_PLACES) : 0;
  case MEANS:
    return factored && !run->step->means_of_decays && (it->over_y.means > 1 || it->flags & QN_LOPT_CUT)
               ? it->over_y.means
               : 0;
  case STATS: return tiled ? qn_lopt_tiles_of(it, by->stat_rows, by->columns) : 0;
  case ELEMENTS: return tiled ? 0 : qn_lopt_ceiling(it->n, by->elements);
  default: return tiled ? qn_lopt_tiles_of(it, by->rows, by->columns * (run->warpgroups ? WARPGROUP : 1)) : 0;
  }
}

/* ---- launches ---- */

/* A kernel, and the defines of its unit besides the op's settings. */
typedef struct kernel {
  const char *source, *name;
  enum { PLAIN, BARE, BY_CLASS, SECOND, BY_PRODUCTS } unit; /* BARE: none of these; BY_PRODUCTS: also the threads */
} kernel;

static qn_status find(const step_run *run, const kernel *k, const qn_device_function **function)
{
  const qn_lopt_step none = {0}, *step = k->unit == BARE ? &none : run->step;
  const bool by_class = k->unit == BY_CLASS || k->unit == BY_PRODUCTS;
  const struct {
    const char *name;
    unsigned value;
  } said[] = {{"QN_LOPT_GRADIENT", step->gradient},
              {"QN_LOPT_BOUNDED", step->max_grad_norm > 0},
              {"QN_LOPT_COMPAT", step->compat},
              {"QN_LOPT_JOINT_DECAY", step->joint_decay},
              {"QN_LOPT_MEANS_OF_DECAYS", step->means_of_decays},
              {"QN_LOPT_PRECISION", by_class ? (unsigned)run->precision : QN_LOPT_F16X3},
              {"QN_LOPT_PHASE", k->unit == SECOND},
              {"QN_LOPT_PIECE", run->piece},
              {"QN_LOPT_WARPGROUPS", run->warpgroups},
              {"QN_THREADS", run->update_threads}};
  enum { SAID = sizeof said / sizeof *said };
  char text[SAID][40];
  const char *defines[SAID + 1] = {NULL};
  for (size_t d = 0; d < SAID - (k->unit != BY_PRODUCTS); d++) {
    snprintf(text[d], sizeof text[d], "%s=%u", said[d].name, said[d].value);
    defines[d] = text[d];
  }
  return qn_jit_function(run->list->exec->device, &(qn_unit){.source = k->source, .defines = defines}, k->name,
                         function);
}

/* Shared memory of a block of UPDATE. */
static int update_bytes(uint32_t threads) { return (int)(threads / 32 * SIMD_BYTES + MATRIX_BYTES); }

static qn_status launch(const step_run *run, kernel k, uint64_t blocks, uint32_t threads, const void *argument,
                        size_t bytes)
{
  const qn_exec *exec = run->list->exec;
  const qn_device_function *function;
  if (!blocks) return QN_OK;
  qn_try(find(run, &k, &function));
  if (run->list->mode == QN_CALL_PREPARE) return QN_OK;
  return run->backend->launch(exec->device, function,
                              &(qn_launch){.blocks = blocks,
                                           .threads = threads,
                                           .shared_bytes = k.unit == BY_PRODUCTS ? (uint32_t)update_bytes(threads) : 0,
                                           .stream = exec->stream,
                                           .pool = exec->pool,
                                           .argument = argument,
                                           .argument_bytes = bytes});
}

/* The table's bytes on their way: gathered into the argument of a launch, which goes when it is full. */
typedef struct stream {
  const step_run *run;
  char *to;
  size_t fill;
  uint64_t argument[2 + LONG_PIECE]; /* place, words, data */
} stream;

static qn_status flush(stream *s)
{
  const size_t words = (s->fill + 7) / 8;
  memcpy(s->argument, &s->to, sizeof s->to);
  s->argument[1] = words;
  s->to += words * 8;
  s->fill = 0;
  return launch(s->run, (kernel){"op/lopt/lopt.table.cu", "lopt_table", BARE}, qn_lopt_ceiling(words, 256), 256,
                s->argument, (2 + (size_t)s->run->piece) * 8);
}

static qn_status put(stream *s, const void *from, size_t bytes)
{
  const size_t most = (size_t)s->run->piece * 8;
  for (size_t done = 0, part; done < bytes; done += part) {
    part = bytes - done < most - s->fill ? bytes - done : most - s->fill;
    memcpy((char *)(s->argument + 2) + s->fill, (const char *)from + done, part);
    s->fill += part;
    if (s->fill == most) qn_try(flush(s));
  }
  return QN_OK;
}

/* The k-th of the list into `it`, its parts from *r on; false: it is empty. */
static bool next_item(const step_run *run, size_t k, qn_lopt_arena *r, qn_lopt_shared_parts *s, qn_lopt_device_item *it)
{
  const qn_lopt_step *step = run->step;
  if (!qn_lopt_lay(step->network, step->shards, run->list->tensors[QN_LOPT_PARAM], k, step->max_grad_norm > 0, r, s,
                   it))
    return false;
  bind_item(run, k, it);
  return true;
}

/* Where the shared parts lie is known when all are. */
static void lay_all_shared(step_run *run, qn_lopt_arena *r)
{
  qn_lopt_shared_parts all = {0};
  qn_lopt_arena none = {.align = QN_LOPT_DEVICE_ALIGNMENT};
  qn_lopt_device_item it;
  for (size_t k = 0; run->step->shards && k < run->list->n; k++) next_item(run, k, &none, &all, &it);
  for (int k = 0; k < QN_LOPT_SHARED; k++) all.base[k] = qn_lopt_take(r, all.n[k] * sizeof(double));
  run->shared = all;
}

/* The table, in one pass: the items with their first tasks, how many there are, and all tasks. */
static qn_status put_table(step_run *run)
{
  qn_lopt_device_item it;
  qn_lopt_arena r = run->arena;
  qn_lopt_shared_parts shared = run->shared;
  stream s = {.run = run, .to = run->table};
  for (int k = 0; k < QN_LOPT_SHARED; k++) shared.n[k] = 0;
  for (size_t k = 0; k < run->list->n; k++) {
    if (!next_item(run, k, &r, &shared, &it)) continue;
    run->items++;
    for (int phase = 0; phase < PHASES; phase++) {
      it.first[phase] = (uint32_t)run->tasks[phase];
      run->tasks[phase] += tasks_of(run, &it, phase);
      if (run->tasks[phase] > INT32_MAX)
        return qn_fail(QN_UNSUPPORTED, "%s: the list has %llu pieces, a launch takes 2^31 - 1: step a part of it",
                       run->list->op->info.name, (unsigned long long)run->tasks[phase]);
    }
    qn_try(put(&s, &it, sizeof it));
  }
  return flush(&s);
}

static void set_args(step_run *run, qn_lopt_head *head)
{
  const qn_lopt_step *step = run->step;
  qn_lopt_call call = {0};
  qn_lopt_begin(&call, step);
  const qn_lopt_rates *rates = &call.rates;
  qn_lopt_device_args *a = &run->args;
  *a = (qn_lopt_device_args){.items = (const qn_lopt_device_item *)run->table,
                             .firsts = run->firsts,
                             .n = (qn_u32)run->items,
                             .head = head,
                             .weights = step->weights,
                             .hyper = (const qn_lopt_live *)step->hyper,
                             .live = {step->lr, step->weight_decay, step->step},
                             .step_mult = step->step_mult,
                             .max_grad_norm = step->max_grad_norm,
                             .v = rates->v,
                             .v_rest = rates->v_rest,
                             .exp_mult = rates->exp_mult};
  for (int k = 0; k < 3; k++) {
    a->m[k] = rates->m[k], a->m_rest[k] = rates->m_rest[k];
    a->f[k] = rates->f[k], a->f_rest[k] = rates->f_rest[k];
  }
}

/* A phase: with `tasks` a simdgroup, or a block where simds is 1, for each task; else so many blocks. */
static qn_status run_phase(step_run *run, kernel k, int phase, uint32_t simds, uint32_t threads)
{
  qn_lopt_device_args a = run->args;
  a.first = run->firsts + (size_t)phase * run->items;
  a.tasks = (qn_u32)run->tasks[phase];
  const bool together = k.unit == BY_PRODUCTS && run->warpgroups;
  uint64_t blocks = qn_lopt_ceiling(run->tasks[phase], together ? simds / WARPGROUP : simds);
  if (k.unit == BY_PRODUCTS && blocks > run->multiprocessors) blocks = run->multiprocessors;
  return launch(run, k, blocks, threads, &a, sizeof a);
}

static qn_status run_items(step_run *run, kernel k, uint64_t blocks, uint32_t threads)
{
  return launch(run, k, blocks, threads, &run->args, sizeof run->args);
}

/* Behind a phase: what this process has but a part of is gathered, and added over all. */
static qn_status share(step_run *run, const char *name, int which)
{
  const uint64_t n = run->shared.n[which];
  if (!n) return QN_OK;
  qn_try(run_items(run, (kernel){run->step->network->tiling->source->shards, name, PLAIN}, run->items, 256));
  if (run->list->mode == QN_CALL_PREPARE) return QN_OK;
  return qn_lopt_add(run->step->shards, run->list->exec, run->shared.base[which], (size_t)n);
}

qn_status qn_lopt_device_launch(const qn_lopt_device_place *place, const char *source, const char *name,
                                uint64_t blocks, uint32_t threads, const void *argument, size_t bytes)
{
  return launch(place->run, (kernel){source, name, PLAIN}, blocks, threads, argument, bytes);
}

qn_status qn_lopt_device_tasks(const qn_lopt_device_place *place, const char *source, const char *name,
                               qn_lopt_phase phase, uint64_t blocks, uint32_t threads, const void *own,
                               size_t own_bytes)
{
  const step_run *run = place->run;
  struct {
    qn_lopt_device_args args;
    unsigned char own[QN_LOPT_OWN_BYTES];
  } argument = {.args = run->args};
  const int number = numbered(phase);
  argument.args.first = run->firsts + (size_t)number * run->items;
  argument.args.tasks = (qn_u32)run->tasks[number];
  memcpy(argument.own, own, own_bytes);
  return launch(run, (kernel){source, name, PLAIN}, blocks ? blocks : run->tasks[number], threads, &argument,
                sizeof argument.args + own_bytes);
}

qn_status qn_lopt_device_each(const qn_lopt_device_place *place, qn_lopt_device_each_fn *fn, void *user)
{
  const step_run *run = place->run;
  qn_lopt_shared_parts shared = run->shared;
  qn_lopt_arena r = run->arena;
  qn_lopt_device_item it;
  for (int k = 0; k < QN_LOPT_SHARED; k++) shared.n[k] = 0;
  for (size_t k = 0; k < run->list->n; k++)
    if (next_item(run, k, &r, &shared, &it)) qn_try(fn(user, &it));
  return QN_OK;
}

static qn_status run_list_phases(const step_run *run, qn_lopt_list_phases_fn *phases)
{
  const qn_lopt_device_place place = {run, run->table, run->firsts, run->items, run->args.head};
  return phases(run->step->list_phases->user, &place);
}

static kernel in_first_layer(const char *name) { return (kernel){"op/lopt/lopt.first_layer.cu", name, BY_CLASS}; }
static kernel in_factors(const step_run *run, const char *name)
{
  return (kernel){run->step->network->tiling->source->factors, name, PLAIN};
}

/* Up to the means of the factors. */
static qn_status run_factors(step_run *run)
{
  const qn_lopt_list_phases *list_phases = run->step->list_phases;
  qn_try(list_phases ? run_list_phases(run, list_phases->before)
                     : run_items(run, in_first_layer("lopt_begin"), 1, 1024));
  if (!list_phases) qn_try(run_items(run, in_first_layer("lopt_start"), qn_lopt_ceiling(run->items, 256), 256));
  qn_try(run_phase(run, (kernel){run->step->network->tiling->source->sums, "lopt_sums", PLAIN}, SUMS, 8, 256));
  qn_try(share(run, "lopt_share_sums", QN_LOPT_SHARED_SUMS));
  if (run->step->max_grad_norm > 0) qn_try(run_items(run, in_factors(run, "lopt_norm"), run->items, 256));
  qn_try(run_phase(run, in_factors(run, "lopt_states"), STATES, 1, 256));
  qn_try(run_phase(run, in_factors(run, "lopt_means"), MEANS, 8, 256));
  return share(run, "lopt_share_states", QN_LOPT_SHARED_STATES);
}

/* The tables come with the roots, except where the weights are known only behind STATS. */
static qn_status run_elements(step_run *run)
{
  const qn_lopt_tiling *by = run->step->network->tiling;
  const qn_lopt_list_phases *list_phases = run->step->list_phases;
  const uint32_t threads = by->is_fp32 ? by->stat_threads : run->update_threads;
  qn_try(run_phase(run, in_factors(run, list_phases ? "lopt_roots" : "lopt_tables"), STATES, 1, 256));
  if (list_phases && list_phases->elements) return run_list_phases(run, list_phases->elements);
  qn_try(
      run_phase(run, (kernel){by->source->stats, "lopt_stats", PLAIN}, STATS, by->stat_threads / 32, by->stat_threads));
  qn_try(run_phase(run, (kernel){by->source->elements, "lopt_element_stats", PLAIN}, ELEMENTS, 1, 256));
  qn_try(share(run, "lopt_share_stats", QN_LOPT_SHARED_STATS));
  qn_try(list_phases ? run_list_phases(run, list_phases->between)
                     : run_items(run, in_first_layer("lopt_first_layer"), run->items, 1024));
  if (list_phases) qn_try(run_phase(run, in_factors(run, "lopt_tables"), STATES, 1, 256));
  qn_try(run_phase(run, (kernel){by->source->update, "lopt_update", by->is_fp32 ? SECOND : BY_PRODUCTS}, UPDATE,
                   threads / 32, threads));
  return run_phase(run, (kernel){by->source->elements, "lopt_element_update", SECOND}, ELEMENTS, 1, 256);
}

/* On Hopper the products of warpgroups. As many threads as the registers and shared memory allow. */
static void choose_update(step_run *run, qn_device device, const qn_arch *arch)
{
  const uint32_t wanted = run->precision == QN_LOPT_F16 ? 384 : 256;
  const bool fits = device.kind != QN_CUDA || arch->shared_block_bytes >= update_bytes(wanted);
  run->warpgroups =
      run->precision != QN_LOPT_FP32 && device.kind == QN_CUDA && arch->capability == WARPGROUP_CAPABILITY;
  run->update_threads = run->warpgroups ? UPDATE_THREADS_MOST : fits ? wanted : 256;
}

static qn_status begin(step_run *run)
{
  const qn_device device = run->list->exec->device;
  qn_arch arch = {.size = sizeof arch};
  size_t limit;
  qn_try(qn_backend_of(device, &run->backend));
  qn_try(qn_device_arch(device, &arch));
  qn_try(run->backend->argument_limit(device, &limit));
  run->multiprocessors = arch.multiprocessors > 0 ? (uint32_t)arch.multiprocessors : 1;
  run->piece = limit >= (2 + LONG_PIECE) * 8 ? LONG_PIECE : SHORT_PIECE;
  run->precision = device.kind == QN_CUDA && arch.capability < MATRIX_CAPABILITY ? QN_LOPT_FP32 : run->step->precision;
  choose_update(run, device, &arch);
  return QN_OK;
}

qn_status qn_lopt_device_run(const qn_call *list, const qn_lopt_step *step)
{
  step_run run = {.list = list, .step = step};
  qn_lopt_arena r = qn_lopt_arena_of(list->exec->workspace, QN_LOPT_DEVICE_ALIGNMENT);
  qn_try(begin(&run));
  qn_lopt_head *head = qn_lopt_take(&r, sizeof *head);
  run.table = qn_lopt_take(&r, qn_lopt_table_bytes(list->n));
  run.firsts = (uint32_t *)(void *)(run.table + list->n * sizeof(qn_lopt_device_item));
  lay_all_shared(&run, &r);
  run.arena = r;
  qn_try(put_table(&run));
  if (!run.items) return QN_OK;
  set_args(&run, head);
  qn_try(run_factors(&run));
  return run_elements(&run);
}

qn_status qn_lopt_device_run_behind(const qn_call *list, const qn_lopt_step *of, const qn_lopt_list_phases *phases,
                                    size_t first_bytes)
{
  qn_lopt_step step = *of;
  qn_exec exec = *list->exec;
  qn_call behind = *list;
  exec.workspace = qn_lopt_arena_of(list->exec->workspace, QN_LOPT_DEVICE_ALIGNMENT).base + first_bytes;
  exec.workspace_bytes -= (size_t)((char *)exec.workspace - (char *)list->exec->workspace);
  behind.exec = &exec;
  step.list_phases = phases;
  step.precision = QN_LOPT_FP32;
  return qn_lopt_device_run(&behind, &step);
}
