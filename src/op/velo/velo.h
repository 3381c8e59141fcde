/* SPDX-License-Identifier: Apache-2.0 */
/* velo.h - VeLO's step, inside. Its own phases come before the batches of op/lopt/batches.c. They run over the whole
 * list, from sums over every tensor to the weights of every tensor's network. velo.c refuses and runs the phases,
 * features.c makes the LSTM's inputs, velo_rnn.cpu.c has the sums and the LSTM, velo.cpu.c a batch's tasks.
 *
 * Of the LSTM a lane is a tensor: its arrays have a row an input or unit, and a column a tensor. */
#ifndef QN_OP_VELO_VELO_H
#define QN_OP_VELO_VELO_H
#include "op/lopt/lopt.h"
#include "op/velo/device.h"
#include "quern/velo.h"

enum {
  QN_VELO_SUMMARY_CHUNK = 16384,
  /* Behind a tensor's mixed weights. */
  QN_VELO_LR_MULT = QN_VELO_BANK,
  QN_VELO_SIZE, /* of the parameter: the root of the mean of its squares, with a term */
  QN_VELO_MIXED = 176
};
_Static_assert((int)QN_VELO_UNITS == (int)QN_VELO_HIDDEN, "the public name is the hidden state's");
_Static_assert(QN_VELO_STEP_B + 1 + 2 * QN_VELO_UNITS == QN_LOPT_VELO_RNN_WEIGHTS, "the array is the twelve tensors");
_Static_assert(QN_VELO_BANK *QN_VELO_BANKS == QN_LOPT_VELO_MLP_WEIGHTS && QN_VELO_SIZE < QN_VELO_MIXED, "so is this");

/* Behind the six roles that tensors have. */
enum { QN_VELO_ROLE_LOSS = QN_LOPT_ROLES, QN_VELO_ROLE_HIDDEN, QN_VELO_ROLE_CELL, QN_VELO_ROLE_BUFFER, QN_VELO_ROLES };

/* A tensor, as the LSTM sees it. */
typedef struct qn_velo_item {
  const float *p, *m, *v; /* NULL where it is empty */
  uint64_t n, whole;      /* elements here, and in all pieces */
  bool cut;
  int rank;        /* dimensions greater than 1 */
  double *partial; /* [chunks][9] */
  uint64_t chunks;
  double param_mean; /* of its squares */
} qn_velo_item;

typedef enum qn_velo_phase {
  QN_VELO_SUMS,     /* over the old state and the parameters; a task is a chunk of a tensor */
  QN_VELO_FEATURES, /* of a tensor: the inputs, and its hidden state, into columns */
  QN_VELO_MIX,      /* 16 units of Z */
  QN_VELO_LSTM,     /* 4 units, all gates; the new cell */
  QN_VELO_HEADS,    /* 4 controls; the last task has the factor of the lr */
  QN_VELO_BANKS_OF, /* of a tensor: its mixed weights; the new hidden state */
  QN_VELO_PHASES
} qn_velo_phase;

typedef struct qn_velo_call {
  size_t n;
  uint64_t padded; /* columns: n rounded up to an odd multiple of 16, so that rows do not lie in one set of a cache */
  const float *mlp, *rnn;
  const float *loss;
  double *loss_buffer;
  float *hidden, *cell;
  const qn_lopt_shards *shards;
  uint64_t num_steps, step;
  double losses[QN_VELO_LOSSES]; /* the inputs that come from the loss, and one of nothing */
  /* in the workspace */
  uint64_t *task; /* [n + 1]: where a tensor's tasks of SUMS begin */
  qn_velo_item *item;
  float *x;        /* [30][padded] */
  float *z;        /* [1024][padded]: Z, and the old hidden state */
  float *unit;     /* [512][padded]: the new hidden state */
  float *control;  /* [260][padded]: 256 controls, the factor of the lr, 3 of nothing */
  float *mixed;    /* [n][176] */
  double *partial; /* the tensors' */
  double *shared;  /* [n][9]: of pieces, the sums that are added */
} qn_velo_call;

/* One task of a phase; tasks may run at once. */
typedef void qn_velo_cpu_fn(const qn_velo_call *call, qn_velo_phase phase, uint64_t task);

extern const qn_lopt_network qn_lopt_velo[2]; /* by the params' ties */

/* Dimensions greater than 1, of a tensor, or of the one whose first extent is `whole`. */
int qn_velo_rank(const qn_tensor *t, int64_t whole);

/* ---- features.c ---- */
/* The loss's means' half-lives, from 10 to num_steps by equal factors. */
double qn_velo_half_life(uint64_t num_steps, int k);
/* The loss into the buffer, and the nine inputs that come from it; false: no number, so the step is skipped. */
bool qn_velo_take_loss(qn_velo_call *call);
/* The phase FEATURES. */
void qn_velo_features(const qn_velo_call *call, size_t k);

/* ---- velo.device.c: the whole of a checked step on a device; its workspace ---- */
extern const qn_lopt_tiling qn_velo_device_tiling;
qn_status qn_velo_device_run(const qn_call *list, const qn_lopt_step *step, const qn_velo_call *call);
size_t qn_velo_device_bytes(size_t n);
#endif
