/* SPDX-License-Identifier: Apache-2.0 */
/* list_variant.c - the device variants of element-wise ops, as call.h's engine describes them: launch shapes. Those
 * listed here are worth a trial; the option forces any other. */
#include "core/core.h"
#include "op/call.h"
#include "op/launch_shape.h"
#include "op/tune.h"
#include "quern/arch.h"

/* One kind of block under one vector length: 1, 2 and 4 vectors a thread, and the first two with blocks that stay. */
#define BLOCK(kind, threads, stay, pack)                                                                               \
  kind "-" threads "x" pack "x1", kind "-" threads "x" pack "x1-p" stay, kind "-" threads "x" pack "x2",               \
      kind "-" threads "x" pack "x2-p" stay, kind "-" threads "x" pack "x4"
#define KIND(kind, pack) BLOCK(kind, "128", "16", pack), BLOCK(kind, "256", "8", pack), BLOCK(kind, "512", "4", pack)
#define ALL(pack) KIND("flat", pack), KIND("rows", pack), BLOCK("rows", "1024", "2", pack), KIND("tiles", pack)
static const char *const names[] = {ALL("4"), ALL("8")};

enum { NAMES = sizeof names / sizeof *names, MOST_ELEMENTS = 16384 /* of a block: a multiprocessor's registers */ };

static qn_list_run run_of(const qn_call *call)
{
  return (qn_list_run){.op = call->op,
                       .exec = call->exec,
                       .row = call->row,
                       .n = call->n,
                       .tensors = call->tensors,
                       .strided = call->strided,
                       .by_rows = qn_call_by_rows(call)};
}

static uint64_t ceiling(uint64_t n, uint64_t of) { return n / of + (n % of != 0); }

static uint64_t power_above(uint64_t value)
{
  uint64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

static uint64_t pieces_of(const qn_launch_shape_key *key, const qn_launch_shape *g, uint64_t tile)
{
  if (g->shape == QN_LAUNCH_ROWS) return key->rows;
  if (g->shape == QN_LAUNCH_TILES) return key->rows * ceiling(key->cols, tile);
  return ceiling(key->rows * key->cols, tile);
}

const char *qn_list_variant_name(const qn_op *op, size_t k)
{
  (void)op;
  return k < NAMES ? names[k] : NULL;
}

const char *qn_list_refuses(const qn_call *call, size_t k)
{
  const qn_list_run run = run_of(call);
  qn_launch_shape_key key = qn_list_key_of(&run, false);
  qn_arch arch = {.size = sizeof arch};
  qn_launch_shape g, rule;
  if (k >= NAMES || qn_launch_shape_from_name(names[k], &g) != QN_OK) return "there is no such launch shape";
  key.elements = 0; /* the vectors of a large list, which are tried on small ones too */
  qn_launch_shape_rule(&key, &rule);
  const uint64_t tile = (uint64_t)g.threads * g.pack * g.packs;
  if (g.pack != rule.pack) return "vectors of these types have another length";
  if (g.shape == QN_LAUNCH_FLAT && !key.dense) return "flat takes dense tensors only";
  if (g.shape != QN_LAUNCH_FLAT && key.rows < 2) return "one row is as well cut flat";
  if (g.shape != QN_LAUNCH_FLAT && tile > power_above(key.cols) && tile > 64 * (uint64_t)g.pack)
    return "a block takes more columns than a row has";
  if (tile > MOST_ELEMENTS) return "a block asks for more registers than a multiprocessor has";
  if (!g.persistent) return NULL;
  if (qn_device_arch(call->exec->device, &arch) != QN_OK) return qn_last_error();
  const uint64_t at_once = (uint64_t)(arch.multiprocessors > 0 ? arch.multiprocessors : 1) * g.persistent;
  return pieces_of(&key, &g, tile) > 2 * at_once ? NULL : "there is too little work for blocks that stay";
}

const char *qn_list_choice(const qn_call *call, const char **why)
{
  static _Thread_local char name[QN_LAUNCH_SHAPE_NAME];
  const qn_list_run run = run_of(call);
  qn_launch_shape g;
  if (qn_list_choose_shape(&run, false, &g, why) != QN_OK) return NULL;
  qn_launch_shape_name(&g, name);
  return name;
}

void qn_list_tune_key(const qn_call *call, qn_tune_key *tune)
{
  static _Thread_local char types[QN_TUNE_TYPES];
  const qn_list_run run = run_of(call);
  const qn_launch_shape_key key = qn_list_key_of(&run, false);
  qn_tune_types(call->op, call->row, types);
  *tune = (qn_tune_key){
      .types = types, .rows = key.rows, .cols = key.cols, .layout = key.dense ? QN_TUNE_DENSE : QN_TUNE_PITCHED};
}
