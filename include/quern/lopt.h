/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.h - what learned optimizers have in common: which dimensions of a tensor are factored, the shapes of its state,
 * and the weights of their networks, read from the files in which they are published. The steps are in
 * small_fc_lopt.h and elo.h. All storage is f32. */
#ifndef QN_LOPT_H
#define QN_LOPT_H
#include "op.h"
#ifdef __cplusplus
extern "C" {
#endif

/* ---- the state of a tensor ----
 * Of a parameter of shape s, zeros before the first step, the axis of the three decays first:
 *     m       (3, s)             means of the gradient
 *     v       s                  mean of its square
 *     row     (3, s without d0)  means of its square's mean along d0; where nothing is factored (3, s), of its square
 *     column  (3, s without d1)  the same along d1; where nothing is factored there is none: the shape (0)
 * d0 is the largest dimension, d1 the second largest. A tensor of fewer than two dimensions is not factored. */
enum { QN_LOPT_MOST_DIMENSIONS = 5 };
typedef enum qn_lopt_state { QN_LOPT_STATE_M, QN_LOPT_STATE_V, QN_LOPT_STATE_ROW, QN_LOPT_STATE_COLUMN } qn_lopt_state;

/* Which of two equal dimensions counts as the larger:
 *     LATER  the later one
 *     VELO   the same, but the two largest change places where they are equal, unless they are the first two of four
 *     JAX    the later one of JAX's layout, where torch's (outputs, inputs, places) is (places, inputs, outputs): the
 *            dimensions in the order 2, 3 ... 1, 0
 * Where a step's params have `ties` 0, PyLO's choice, it is LATER, of velo VELO; where they have 1 it is JAX. */
typedef enum qn_lopt_ties { QN_LOPT_TIES_LATER, QN_LOPT_TIES_VELO, QN_LOPT_TIES_JAX } qn_lopt_ties;

/* d[0] and d[1], or -1 and -1. ndim from 0 to QN_LOPT_MOST_DIMENSIONS. */
QN_API qn_status qn_lopt_factored(qn_lopt_ties ties, int ndim, const int64_t *shape, int d[2]);
/* The shape of one part of the state, of at most QN_LOPT_MOST_DIMENSIONS + 1 dimensions. */
QN_API qn_status qn_lopt_state_shape(qn_lopt_ties ties, qn_lopt_state state, int ndim, const int64_t *shape,
                                     int *state_ndim, int64_t state_shape[QN_LOPT_MOST_DIMENSIONS + 1]);

/* ---- weights ----
 * A step takes them as one array: the tensors of the file, each row-major, in this order:
 *     small_fc   2402     network.input.weight (32, 39), .bias (32), network.linear_0.weight (32, 32), .bias (32),
 *                         network.output.weight (2, 32), .bias (2): the files of btherien/mulo and DiamondXL/elo
 *     velo_mlp   40704    input_weights_ (256, 4, 30), input_bias_ (256, 4), hidden_weights_.0 (256, 4, 4),
 *                         hidden_bias_.0 (256, 4), output_weights_ (256, 3, 4), output_bias_ (256, 3): of
 *                         Pauljanson002/VeLO_MLP, whose six tensors without the last underscore are not read
 *     velo_rnn   2263809  mix_layer2.weight (512, 30), .bias (512), final_mix_layer.weight (512, 30), .bias (512),
 *                         lstm.linear.weight (2048, 1024), .bias (2048), rnn_to_controls.weight (256, 512), .bias
 *                         (256), step_size.weight (1, 512), .bias (1), lstm_init_state.0 and .1 (1, 512): of
 *                         Pauljanson002/VeLO_RNN, whose mix_layer1 is not read
 *     celo2_mlp  347      w0.0 to w0.13, which are together (30, 8), an input a row: (1, 8), (1, 8), (1, 8), (3, 8),
 *                         (1, 8), (3, 8), (1, 8), (3, 8), (1, 8), (3, 8), (3, 8), (3, 8), (3, 8), (3, 8); b0 (8),
 *                         dense_w.0 (8, 8), dense_b.0 (8), dense_w.1 (8, 3), dense_b.1 (3): of DiamondXL/celo2 and
 *                         DiamondXL/elo-celo2 */
typedef enum qn_lopt_weights {
  QN_LOPT_SMALL_FC,
  QN_LOPT_VELO_MLP,
  QN_LOPT_VELO_RNN,
  QN_LOPT_CELO2_MLP
} qn_lopt_weights;
enum {
  QN_LOPT_SMALL_FC_WEIGHTS = 2402,
  QN_LOPT_VELO_MLP_WEIGHTS = 40704,
  QN_LOPT_VELO_RNN_WEIGHTS = 2263809,
  QN_LOPT_CELO2_MLP_WEIGHTS = 347
};

/* From a safetensors file into `weights`, in host memory, of n floats, which must be as many as the kind has. A file
 * that is damaged, or that lacks a tensor, has one of another shape or dtype, or one that does not belong there, is
 * QN_BAD_FILE with a sentence, and nothing is written. */
QN_API qn_status qn_lopt_weights_read(qn_lopt_weights kind, const char *path, float *weights, size_t n);

/* The tensors of a kind, in the array's order, for bindings: name, dimensions, and the element of the array at which it
 * begins. QN_BAD_ARGUMENT past the last. */
typedef struct qn_lopt_weight {
  const char *name; /* static storage */
  int ndim;
  int64_t shape[3];
  size_t begin, n;
} qn_lopt_weight;
QN_API qn_status qn_lopt_weight_at(qn_lopt_weights kind, size_t k, qn_lopt_weight *weight);

/* ---- what a step may read from device memory, so that a captured graph sees it change ----
 * In the tensors' device memory, aligned to 8. It takes the place of the members of the same names. */
typedef struct qn_lopt_hyper {
  double lr, weight_decay;
  uint64_t step;
} qn_lopt_hyper;

/* ---- a step over tensors that several processes hold in pieces ----
 * Of a tensor, each process holds rows of its first dimension: param, grad, m and v are these, and of row and column
 * what belongs to them; where the first dimension is the one that a vector lacks, each holds all of the vector, and all
 * are the same. All processes take the step at the same time, with the same list in the same order; a process may hold
 * no rows of a tensor. The step is the whole tensors' to the rounding of the order in which sums are added. */
typedef struct qn_lopt_shards {
  size_t size;            /* sizeof(qn_lopt_shards) */
  const int64_t *extents; /* host, one a tensor: the first extent of the whole; -1: each holds all of this tensor */
  /* Makes of the n numbers (f64, in the tensors' device memory) their sums over all processes, the same bits in each,
   * by the time that what is next in the call's stream runs. Called three times for some million elements, by the
   * thread that takes the step. Where it fails, the step does, and is not whole: some of the state has moved. */
  qn_status (*add)(void *user, const qn_exec *exec, double *sums, size_t n);
  void *user;
} qn_lopt_shards;

/* ---- how the network's products are taken, a class by name, never changed in silence ----
 *     fp32     products of f32, sums in f32
 *     tf32     both operands rounded to 11 bits, halves away from zero
 *     bf16x3   each operand in two bf16 words, three products of them: some 3e-5 of the update's root mean square
 *     f16x3    the same in two f16 words: as fp32, to some 8e-7 of it; weights are below 65504
 *     f16      both operands rounded to 11 bits, to nearest even; weights are below 65504
 * Sums are in f32 in all. On the processor, and on GPUs before sm_80, all are computed as fp32. */
typedef enum qn_lopt_precision {
  QN_LOPT_FP32,
  QN_LOPT_TF32,
  QN_LOPT_BF16X3,
  QN_LOPT_F16X3,
  QN_LOPT_F16
} qn_lopt_precision;

#ifdef __cplusplus
}
#endif
#endif
