/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.device.c - the one launch of the quantised forward on a device: how a row is cut, which kernel serves
 * it, where that kernel is kept. What is refused was refused before. */
#include "core/core.h"
#include "jit/jit.h"
#include "op/geometry.h"
#include "op/swiglu_quantize/swiglu_quantize.unit.h"
#include "quern/arch.h"
#include <stdatomic.h>
#include <stdio.h>

enum {
  TILE_THREADS = 256,
  MOST_THREADS = 1024,
  MOST_PACKS = 8,
  DEVICES = 16,
  CUTS = 7,
  STATIC_BYTES = 1024,
  HOST_SHARED_BYTES = 227 << 10,
  KINDS = 3 * 32 * CUTS
};

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
static qn_swiglu_quantize_cut wide_row(uint64_t vectors, unsigned threads, int shared_bytes)
{
  const uint64_t bytes = blocks_of(vectors, threads) * threads * 16;
  const bool fits = shared_bytes > STATIC_BYTES && bytes <= (uint64_t)(shared_bytes - STATIC_BYTES);
  return (qn_swiglu_quantize_cut){fits ? QN_SWIGLU_ROW_SHARED : QN_SWIGLU_ROW_TWICE, threads,
                                  fits ? (unsigned)bytes : 0};
}

/* A block takes a row; a thread at least `least` vectors of it, a power of two, and as many as a block of
 * `most_threads` needs. */
static qn_swiglu_quantize_cut row_in_block(uint64_t vectors, unsigned least, unsigned most_threads, int shared_bytes)
{
  qn_swiglu_quantize_cut cut = {.packs = least};
  while (cut.packs <= MOST_PACKS &&
         (blocks_of(vectors, cut.packs) > most_threads || blocks_of(vectors, cut.packs) > most_threads_of(cut.packs)))
    cut.packs *= 2;
  if (cut.packs > MOST_PACKS) return wide_row(vectors, most_threads, shared_bytes);
  cut.threads = (unsigned)blocks_of(blocks_of(vectors, cut.packs), 32) * 32;
  if (!cut.threads) cut.threads = 32;
  return cut;
}

/* Few rows want many threads each, since nothing else hides what a load takes, up to half a multiprocessor's where two
 * rows share one; of many rows several do, and larger pieces of each thread share the cost of the maximum and of two
 * quotients (results/swiglu-quantize-h200.jsonl). */
static qn_status cut_of(const qn_exec *exec, const qn_swiglu_quantize_args *args, const qn_swiglu_quantize_kind *kind,
                        qn_swiglu_quantize_cut *cut, const char **why)
{
  const uint64_t vectors = blocks_of(args->cols, pack_of(kind));
  qn_geometry forced;
  bool is_forced;
  qn_arch arch = {.size = sizeof arch};
  *why = "the rule";
  *cut = (qn_swiglu_quantize_cut){.packs = 1, .threads = TILE_THREADS};
  if (!kind->computes) return QN_OK;
  qn_try(qn_geometry_forced(&forced, &is_forced));
  qn_try(qn_device_arch(exec->device, &arch));
  const int shared = exec->device.kind == QN_CUDA ? arch.shared_block_bytes : HOST_SHARED_BYTES;
  if (is_forced) {
    *why = "forced";
    *cut = row_in_block(vectors, forced.packs, forced.threads, shared);
    return QN_OK;
  }
  const uint64_t at_once = (uint64_t)arch.multiprocessors;
  *cut = row_in_block(vectors, args->rows <= 2 * at_once ? 1 : 4,
                      args->rows <= at_once ? MOST_THREADS : MOST_THREADS / 2, shared);
  return QN_OK;
}

/* ---- the kernel ---- */

/* Functions live as long as the process: what a GPU's call needs again is found without building a key's text. */
typedef struct found {
  _Atomic(const qn_device_function *) function;
  _Atomic uint64_t stamp;
} found;
static found on_gpu[DEVICES][KINDS];

/* 0: scales are given; else by how many vectors a thread holds in registers, those without last. */
static unsigned index_of(const qn_swiglu_quantize_kind *kind, unsigned packs)
{
  unsigned k = 1;
  if (!kind->computes) return 0;
  if (packs == QN_SWIGLU_ROW_TWICE) return CUTS - 1;
  if (packs == QN_SWIGLU_ROW_SHARED) return CUTS - 2;
  for (; packs > 1; packs /= 2) k++;
  return k;
}

void qn_swiglu_quantize_unit_of(const qn_swiglu_quantize_kind *kind, unsigned packs, qn_swiglu_quantize_unit *u)
{
  snprintf(u->text[0], sizeof u->text[0], "QN_THREADS=%u", kind->computes ? most_threads_of(packs) : TILE_THREADS);
  snprintf(u->text[1], sizeof u->text[1], "QN_PACK=%u", pack_of(kind));
  snprintf(u->text[2], sizeof u->text[2], "QN_SWIGLU_STORAGE=%d", kind->storage);
  snprintf(u->text[3], sizeof u->text[3], "QN_SWIGLU_FLAGS=%uu", kind->flags);
  snprintf(u->text[4], sizeof u->text[4], "QN_SWIGLU_COMPUTES=%d", kind->computes);
  snprintf(u->text[5], sizeof u->text[5], "QN_SWIGLU_PACKS=%u", kind->computes ? packs : 1);
  for (int k = 0; k < QN_SWIGLU_QUANTIZE_DEFINES; k++) u->defines[k] = u->text[k];
  u->defines[QN_SWIGLU_QUANTIZE_DEFINES] = NULL;
  u->unit = (qn_unit){.source = "op/swiglu_quantize/swiglu_quantize.cu", .defines = u->defines};
}

static qn_status build(qn_device device, const qn_swiglu_quantize_kind *kind, unsigned packs,
                       const qn_device_function **function)
{
  qn_swiglu_quantize_unit u;
  qn_swiglu_quantize_unit_of(kind, packs, &u);
  return qn_jit_function(device, &u.unit, "swiglu_quantize", function);
}

static qn_status find(qn_device device, const qn_swiglu_quantize_kind *kind, unsigned packs,
                      const qn_device_function **function)
{
  const unsigned k = (kind->flags * 3 + (unsigned)kind->storage) * CUTS + index_of(kind, packs);
  if (device.kind != QN_CUDA || device.index >= DEVICES || k >= KINDS) return build(device, kind, packs, function);
  found *slot = &on_gpu[device.index][k];
  const uint64_t stamp = qn_jit_stamp();
  *function = atomic_load(&slot->function);
  if (*function && atomic_load(&slot->stamp) == stamp) return QN_OK;
  qn_try(build(device, kind, packs, function));
  atomic_store(&slot->function, *function);
  atomic_store(&slot->stamp, stamp);
  return QN_OK;
}

/* ---- the launch ---- */
static void note(const qn_swiglu_quantize_kind *kind, const qn_swiglu_quantize_cut *cut, const char *why)
{
  char name[QN_GEOMETRY_NAME];
  const char *const shape = kind->computes ? "rows" : "tiles";
  if (cut->packs == QN_SWIGLU_ROW_SHARED)
    snprintf(name, sizeof name, "%s-%ux%u-shared", shape, cut->threads, pack_of(kind));
  else
    snprintf(name, sizeof name, "%s-%ux%ux%u", shape, cut->threads, pack_of(kind), cut->packs);
  qn_variant_note(name, why);
}

qn_status qn_swiglu_quantize_launch(const qn_exec *exec, const qn_swiglu_quantize_args *args,
                                    const qn_swiglu_quantize_kind *kind)
{
  qn_swiglu_quantize_cut cut;
  const qn_device_function *function;
  const qn_backend *backend;
  const char *why;
  qn_try(cut_of(exec, args, kind, &cut, &why));
  const uint64_t tiles = kind->computes ? 1 : blocks_of(args->cols, (uint64_t)TILE_THREADS * pack_of(kind));
  qn_require(args->rows <= INT32_MAX / (tiles ? tiles : 1),
             "swiglu_quantize: %llu rows of %llu columns are more blocks than a launch has",
             (unsigned long long)args->rows, (unsigned long long)args->cols);
  qn_try(qn_backend_of(exec->device, &backend));
  qn_try(find(exec->device, kind, cut.packs, &function));
  const qn_launch launch = {.blocks = args->rows * tiles,
                            .threads = cut.threads,
                            .shared_bytes = cut.shared_bytes,
                            .stream = exec->stream,
                            .pool = exec->pool,
                            .argument = args,
                            .argument_bytes = sizeof *args};
  qn_try(backend->launch(exec->device, function, &launch));
  note(kind, &cut, why);
  return QN_OK;
}
