/* SPDX-License-Identifier: Apache-2.0 */
/* celo2.h - CELO2's step, inside. Its tensors of two or more dimensions are matrices, the last two dimensions each.
 * Small ones are whole tasks of celo2.cpu.c. Of large ones, the batches' phases (op/lopt/batches.c) leave the network's
 * outputs, of which orthogonal.c makes moves by matrix products. celo2.c refuses, and describes the op. */
#ifndef QN_OP_CELO2_CELO2_H
#define QN_OP_CELO2_CELO2_H
#include "op/celo2/device.h"
#include "op/lopt/lopt.h"
#include "quern/celo2.h"

_Static_assert((int)QN_CELO2_WEIGHTS == (int)QN_LOPT_CELO2_MLP_WEIGHTS, "the array is the nineteen tensors");

static inline uint64_t qn_celo2_size(const qn_lopt_view *v) { return v->rows * v->columns; }
static inline bool qn_celo2_is_small(const qn_lopt_view *v) { return qn_celo2_size(v) <= QN_CELO2_SMALL; }
/* Of small matrices, those of a task; of large ones, the tasks of one. */
static inline uint64_t qn_celo2_together(const qn_lopt_view *v)
{
  return qn_lopt_most(1, QN_LOPT_CHUNK / qn_lopt_most(1, qn_celo2_size(v)));
}
static inline uint64_t qn_celo2_chunks(const qn_lopt_view *v)
{
  return qn_lopt_ceiling(qn_celo2_size(v), QN_LOPT_CHUNK);
}

/* Of large matrices, behind the engine's phases: the moves into the parameter. A matrix's scale is the first number of
 * its place in `layer`. */
enum { QN_CELO2_MOVE = QN_LOPT_PHASES };

/* ---- orthogonal.c: of the large matrices of a tensor, the network's outputs into moves, and these into the parameter
 * ---- */
qn_status qn_celo2_behind(const qn_lopt_call *call, const qn_exec *exec, qn_lopt_item *item, void *lent);
size_t qn_celo2_lent_bytes(const qn_lopt_view *view);

/* ---- celo2.device.c: the whole of a checked step on a device; the workspace that is its matrices' ---- */
extern const qn_lopt_tiling qn_celo2_device_tiling;
void qn_celo2_device_lay(qn_lopt_arena *r, qn_lopt_device_item *item);
uint64_t qn_celo2_device_tasks(qn_lopt_phase phase, const qn_lopt_device_item *item);
qn_status qn_celo2_device_run(const qn_call *list, const qn_lopt_step *step);
size_t qn_celo2_first_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_call *list);
#endif
