/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.device.c - the one launch of the quantised forward on a device: how a row is cut, and which kernel
 * serves it. What is refused was refused before. */
#include "core/core.h"
#include "jit/jit.h"
#include "op/launch_shape.h"
#include "op/swiglu_quantize/swiglu_quantize.h"
#include "op/tune.h"
#include "quern/arch.h"
#include "quern/swiglu_quantize.h"
#include <stdio.h>

enum { TILE_THREADS = 256, MOST_THREADS = 1024, MOST_PACKS = 8, STATIC_BYTES = 1024, HOST_SHARED_BYTES = 227 << 10 };

/* How a row is cut: vectors that a thread holds in registers, 1, 2, 4 or 8, or where else it is; threads of a block. */
enum { ROW_TWICE = 0, ROW_SHARED = 16 };
typedef struct cut {
  unsigned packs, threads, shared_bytes;
} cut;

/* Elements of a thread's vector: 16 bytes of a. */
static unsigned pack_of(const qn_swiglu_quantize_kind *kind) { return kind->storage == QN_SWIGLU_F32 ? 4 : 8; }

/* ---- how a row is cut ---- */
static uint64_t blocks_of(uint64_t n, uint64_t of) { return (n + of - 1) / of; }

/* Threads that a block may have: those of many vectors need more than 64 registers. */
static unsigned most_threads_of(unsigned packs)
{
  return packs > 2 && packs <= MOST_PACKS ? MOST_THREADS / 2 : MOST_THREADS;
}

/* Of a row that registers do not hold: shared memory, if the device has as much of it, else none. */
static cut wide_row(uint64_t vectors, unsigned threads, int shared_bytes)
{
  const uint64_t bytes = blocks_of(vectors, threads) * threads * 16;
  const bool fits = shared_bytes > STATIC_BYTES && bytes <= (uint64_t)(shared_bytes - STATIC_BYTES);
  return (cut){fits ? ROW_SHARED : ROW_TWICE, threads, fits ? (unsigned)bytes : 0};
}

/* A block takes a row; a thread at least `least` vectors of it, a power of two, and as many as a block of
 * `most_threads` needs. */
static cut row_in_block(uint64_t vectors, unsigned least, unsigned most_threads, int shared_bytes)
{
  cut c = {.packs = least};
  while (c.packs <= MOST_PACKS &&
         (blocks_of(vectors, c.packs) > most_threads || blocks_of(vectors, c.packs) > most_threads_of(c.packs)))
    c.packs *= 2;
  if (c.packs > MOST_PACKS) return wide_row(vectors, most_threads, shared_bytes);
  c.threads = (unsigned)blocks_of(blocks_of(vectors, c.packs), 32) * 32;
  if (!c.threads) c.threads = 32;
  return c;
}

/* Few rows want many threads each, since nothing else hides what a load takes, up to half a multiprocessor's where two
 * rows share one; of many rows several do, and larger pieces of each thread share the cost of the maximum and of two
 * quotients (results/swiglu-quantize-h200.jsonl). Threads are the most, packs the least. */
static qn_launch_shape rule(uint64_t rows, uint64_t at_once)
{
  return (qn_launch_shape){.shape = QN_LAUNCH_ROWS,
                           .threads = rows <= at_once ? MOST_THREADS : MOST_THREADS / 2,
                           .pack = 8, /* of a name alone */
                           .packs = rows <= 2 * at_once ? 1 : 4};
}

/* What the option says, else a tune table, else the rule. */
static qn_status choose(const qn_call *call, const qn_arch *arch, qn_launch_shape *g, const char **why)
{
  const qn_tensor *c = call->tensors[QN_SWIGLU_QUANTIZE_C];
  const qn_launch_shape_key key = {.op = call->op,
                                   .row = call->row,
                                   .device = call->exec->device,
                                   .rows = (uint64_t)c->shape[0],
                                   .cols = (uint64_t)c->shape[1],
                                   .dense = !call->strided};
  bool by_rule;
  qn_try(qn_launch_shape_told(&key, g, why, &by_rule));
  if (by_rule) *g = rule(key.rows, (uint64_t)arch->multiprocessors);
  return QN_OK;
}

static qn_status cut_of(const qn_call *call, const qn_swiglu_quantize_problem *problem, cut *c, const char **why)
{
  const uint64_t vectors = blocks_of(problem->args.cols, pack_of(&problem->kind));
  qn_arch arch = {.size = sizeof arch};
  qn_launch_shape g;
  *why = "the rule";
  *c = (cut){.packs = 1, .threads = TILE_THREADS};
  if (!problem->kind.computes) return QN_OK;
  qn_try(qn_device_arch(call->exec->device, &arch));
  qn_try(choose(call, &arch, &g, why));
  *c = row_in_block(vectors, g.packs, g.threads,
                    call->exec->device.kind == QN_CUDA ? arch.shared_block_bytes : HOST_SHARED_BYTES);
  return QN_OK;
}

/* ---- the kernel: its defines are words that stand here, so that finding it formats nothing ---- */
#define DEFINE(name, value) "QN_" #name "=" #value

static qn_status find(qn_device device, const qn_swiglu_quantize_kind *kind, unsigned packs,
                      const qn_device_function **function)
{
  static const char *const storages[] = {DEFINE(SWIGLU_STORAGE, 0), DEFINE(SWIGLU_STORAGE, 1),
                                         DEFINE(SWIGLU_STORAGE, 2)},
                           *const gates[] = {DEFINE(SWIGLU_GATE, 0), DEFINE(SWIGLU_GATE, 1), DEFINE(SWIGLU_GATE, 2),
                                             DEFINE(SWIGLU_GATE, 3), DEFINE(SWIGLU_GATE, 4), DEFINE(SWIGLU_GATE, 5)},
                           *const downs[] = {DEFINE(SWIGLU_HAS_DOWN, 0), DEFINE(SWIGLU_HAS_DOWN, 1)},
                           *const scaled[] = {DEFINE(SWIGLU_HAS_SCALE, 0), DEFINE(SWIGLU_HAS_SCALE, 1)},
                           *const computes[] = {DEFINE(SWIGLU_COMPUTES, 0), DEFINE(SWIGLU_COMPUTES, 1)},
                           *const held[] = {
                               [ROW_TWICE] = DEFINE(SWIGLU_PACKS, 0), [1] = DEFINE(SWIGLU_PACKS, 1),
                               [2] = DEFINE(SWIGLU_PACKS, 2),         [4] = DEFINE(SWIGLU_PACKS, 4),
                               [8] = DEFINE(SWIGLU_PACKS, 8),         [ROW_SHARED] = DEFINE(SWIGLU_PACKS, 16)};
  const char *const defines[] = {storages[kind->storage],
                                 gates[kind->flags & QN_SWIGLU_GATE_MASK],
                                 downs[(kind->flags & QN_SWIGLU_DOWN) != 0],
                                 scaled[(kind->flags & QN_SWIGLU_SCALED) != 0],
                                 computes[kind->computes],
                                 held[packs],
                                 NULL};
  return qn_jit_function(device, &(qn_unit){.source = "op/swiglu_quantize/swiglu_quantize.cu", .defines = defines},
                         "swiglu_quantize", function);
}

/* ---- the launch ---- */
static void note(const qn_swiglu_quantize_kind *kind, const cut *c, const char *why)
{
  char name[QN_LAUNCH_SHAPE_NAME];
  const char *const shape = kind->computes ? "rows" : "tiles";
  if (c->packs == ROW_SHARED)
    snprintf(name, sizeof name, "%s-%ux%u-shared", shape, c->threads, pack_of(kind));
  else
    snprintf(name, sizeof name, "%s-%ux%ux%u", shape, c->threads, pack_of(kind), c->packs);
  qn_variant_note(name, why);
}

qn_status qn_swiglu_quantize_launch(const qn_call *call, const qn_swiglu_quantize_problem *problem)
{
  const qn_exec *exec = call->exec;
  const qn_swiglu_quantize_args *args = &problem->args;
  const qn_device_function *function;
  const qn_backend *backend;
  const char *why;
  cut c;
  qn_try(cut_of(call, problem, &c, &why));
  const uint64_t tiles =
      problem->kind.computes ? 1 : blocks_of(args->cols, (uint64_t)TILE_THREADS * pack_of(&problem->kind));
  qn_require(args->rows <= INT32_MAX / (tiles ? tiles : 1),
             "swiglu_quantize: %llu rows of %llu columns are more blocks than a launch has",
             (unsigned long long)args->rows, (unsigned long long)args->cols);
  qn_try(qn_backend_of(exec->device, &backend));
  qn_try(find(exec->device, &problem->kind, c.packs, &function));
  if (call->mode == QN_CALL_PREPARE) return QN_OK;
  const qn_launch launch = {.blocks = args->rows * tiles,
                            .threads = c.threads,
                            .shared_bytes = c.shared_bytes,
                            .stream = exec->stream,
                            .pool = exec->pool,
                            .argument = args,
                            .argument_bytes = sizeof *args};
  qn_try(backend->launch(exec->device, function, &launch));
  note(&problem->kind, &c, why);
  return QN_OK;
}

/* ---- for tuning: launch shapes that cut rows into blocks of every kind ---- */
static const char *const variants[] = {"rows-1024x8x1", "rows-512x8x1", "rows-512x8x2", "rows-512x8x4",
                                       "rows-256x8x1",  "rows-256x8x4", "rows-128x8x1", "rows-64x8x1"};
enum { VARIANTS = sizeof variants / sizeof *variants };

const char *qn_swiglu_quantize_variant(const qn_op *op, size_t k)
{
  (void)op;
  return k < VARIANTS ? variants[k] : NULL;
}

static bool computes(const qn_call *call) { return ((const qn_swiglu_quantize_params *)call->params)->computes; }

const char *qn_swiglu_quantize_choice(const qn_call *call, const char **why)
{
  static _Thread_local char name[QN_LAUNCH_SHAPE_NAME] = "tiles-256x8x1";
  qn_arch arch = {.size = sizeof arch};
  qn_launch_shape g = {.shape = QN_LAUNCH_TILES, .threads = TILE_THREADS, .pack = 8, .packs = 1};
  *why = "the rule";
  if (computes(call) && (qn_device_arch(call->exec->device, &arch) != QN_OK || choose(call, &arch, &g, why) != QN_OK))
    return NULL;
  qn_launch_shape_name(&g, name);
  return name;
}

const char *qn_swiglu_quantize_refuses(const qn_call *call, size_t k)
{
  (void)k;
  return computes(call) ? NULL : "scales are given: a block takes a tile of a row";
}

void qn_swiglu_quantize_key(const qn_call *call, struct qn_tune_key *key)
{
  static _Thread_local char types[QN_TUNE_TYPES];
  qn_tune_types(call->op, call->row, types);
  *key = (qn_tune_key){.types = types,
                       .rows = (uint64_t)call->extent['m' - 'a'],
                       .cols = (uint64_t)call->extent['n' - 'a'],
                       .layout = call->strided ? QN_TUNE_PITCHED : QN_TUNE_DENSE};
}
