/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - the arguments of the learned optimizers' kernels, shared by C that fills them and the kernels that read
 * them. All tensors of a list are in one table in the workspace, and every kernel goes over all of it: a task
 * is found by a search among the first ones of each tensor, which the step's first kernel puts side by side. docs of
 * the phases are in the sources of the kernels. */
#ifndef QN_OP_LOPT_DEVICE_H
#define QN_OP_LOPT_DEVICE_H
#include "base/kernel.h"

/* How a gradient is taken: as it is; with NaN 0 and the infinities the largest numbers; within +-1000, NaN staying. */
typedef enum qn_lopt_gradient { QN_LOPT_AS_IS, QN_LOPT_NUMBERS, QN_LOPT_CLIPPED } qn_lopt_gradient;
#define QN_LOPT_CLIP 1000.0f

#define QN_LOPT_B_TERM 1e-6f /* small_fc's, in B = 1/sqrt(f + term) */

/* How phases are cut into tasks. */
enum {
  QN_LOPT_SUM_ROWS = 64, /* a simdgroup's piece of SUMS */
  QN_LOPT_SUM_COLUMNS = 128,
  QN_LOPT_PLACES = 256, /* of a factor, a block's task in STATES and TABLES */
  QN_LOPT_COLUMNS = 32, /* of a simdgroup's tile in STATS and UPDATE, of small_fc, as all below */
  QN_LOPT_STAT_ROWS = 256,
  QN_LOPT_ROWS = 64,
  QN_LOPT_ELEMENTS_A_TASK = 2048, /* a block's, where elements are taken one by one */
  QN_LOPT_LEAST_LENGTH = 16,    /* of rows that are taken by tiles, and the least length that is not: their bytes are */
  QN_LOPT_MOST_LENGTH = 1 << 30 /* counted in 32 bits */
};

enum {
  QN_LOPT_FACTOR_CHANNELS = 6, /* channels of a factor: its states and their inverses */
  QN_LOPT_SQUARES = 9,         /* sums over a factor: six channels' squares, three states */
  QN_LOPT_INPUTS = 39,         /* of small_fc, which has two layers of 32 and 2 outputs */
  QN_LOPT_TIMES = 11,          /* of these, the last */
  QN_LOPT_ELEMENTS = 16,       /* those that differ from element to element where a tensor is factored */
  QN_LOPT_CHANNELS = 22,       /* and where it is not */
  QN_LOPT_MOST_INPUTS = 24,    /* of all networks */
  QN_LOPT_HIDDEN = 32,
  QN_LOPT_FRAGMENTS = 48 /* words a lane of the two layers */
};

enum { QN_LOPT_NUMBERED = 6 }; /* phases that have numbered tasks */

/* Of a tensor. */
enum {
  QN_LOPT_FACTORED = 1,
  QN_LOPT_ROW_OVER_X = 2, /* the contract's row is `over_x` */
  QN_LOPT_STRAIGHT = 4,   /* `over_y` has one place a row of elements */
  QN_LOPT_TILED = 8,      /* STATS and UPDATE take it by tiles */
  QN_LOPT_ALIGNED = 16,   /* fours of elements of a row are aligned to 16 bytes in all its tensors */
  QN_LOPT_CUT = 32,       /* a piece of a tensor that several processes hold */
  QN_LOPT_X_CUT = 64      /* of which each has some of x */
};

/* One of the two factors of a tensor's second moments. */
typedef struct qn_lopt_device_factor {
  float *state;           /* (3, n) of the caller's */
  float *root;            /* [n][4]: inverse square roots by decay, and 1 */
  float *table;           /* [n][32]: its part of the first layer's sums; over_y's with the bias; or NULL, and then: */
  float *layer;           /* [6][32]: the first layer of its channels, with their scales and hidden_scale */
  double *chunks;         /* [chunks][QN_LOPT_SQUARES] */
  qn_u64 n, whole, count; /* places, and of the whole tensor; elements in each one's mean */
  qn_u64 middle, inner;   /* of the row: as (outer, middle, inner), over whose middle its means go */
  qn_u64 means, whole_middle; /* means: how many a row has */
} qn_lopt_device_factor;

/* Numbers of a tensor that the step's first kernels compute. */
typedef struct qn_lopt_scalars {
  float of_gradient; /* gradients are multiplied by it */
  float step, lr, decay;
  float hidden_scale, output_scale; /* hidden values are kept times a power of two, outputs times its inverse */
  float scale[QN_LOPT_MOST_INPUTS];
} qn_lopt_scalars;

typedef struct qn_lopt_device_item {
  const float *g;
  float *p, *m, *v, *f;                         /* f: (3, n), where it is not factored */
  qn_u64 n, whole;                              /* elements, and of the whole tensor */
  qn_u64 x, rows, length;                       /* rows: a x, each of b y c elements */
  qn_u64 matrices, matrix_rows, matrix_columns; /* of its last two dimensions, where it is factored */
  qn_u64 strip, c;                              /* y c elements, between two places along y */
  qn_lopt_device_factor over_x, over_y;
  float *column_sums; /* [a][pieces down x][length] */
  float *row_sums;    /* [pieces of a row][rows], where it is straight */
  double *strip_sums; /* [over_y.n], where it is not */
  double *means;      /* [3][over_x.means] of the row, where there are several, or the tensor is cut; else NULL */
  /* Of one that is cut, the sums that are added over the processes: [over_x.n] where x is, and the norm; two factors'
   * sums; the channels' squares. */
  double *shared_sums, *shared_states, *shared_stats;
  double *partial;      /* [partials][channels] of the squares of channels, or the network's own sums */
  float *layer;         /* [22][32]: the first layer with the channels' scales, where UPDATE reads it from here */
  float *moves;         /* [n] of a network of matrices: its outputs */
  const float *weights; /* this tensor's, where each has its own */
  qn_lopt_scalars *scalars;
  qn_u64 partials;
  double lr_scale;
  qn_u32 flags, channels;
  qn_u64 place;                   /* in the list */
  qn_u32 first[QN_LOPT_NUMBERED]; /* of each phase the first task */
} qn_lopt_device_item;

/* Numbers that the first kernels compute once a step. */
typedef struct qn_lopt_head {
  double lr, weight_decay;
  qn_u64 go;                  /* of a step that may be skipped: 0, and nothing is written */
  double most, most_of_root;  /* the first layer's sums are at most `most` + `most_of_root` sqrt(n) */
  float bias[QN_LOPT_HIDDEN]; /* with the time's part */
  qn_u32 fragments[QN_LOPT_FRAGMENTS * 32];
} qn_lopt_head;

/* As qn_lopt_hyper of quern/lopt.h. */
typedef struct qn_lopt_live {
  double lr, weight_decay;
  qn_u64 step;
} qn_lopt_live;

/* The argument of every phase. */
typedef struct qn_lopt_device_args {
  const qn_lopt_device_item *items;
  qn_u32 *firsts;      /* [phases][n]: the items' first tasks, as they are searched */
  const qn_u32 *first; /* of these, this phase's */
  qn_u32 n, tasks;
  qn_lopt_head *head;
  const float *weights;
  const qn_lopt_live *hyper; /* or NULL, and then: */
  qn_lopt_live live;
  double step_mult, max_grad_norm;
  float m[3], m_rest[3], v, v_rest, f[3], f_rest[3], exp_mult;
} qn_lopt_device_args;

/* A piece of the table on its way to the workspace: in all it is QN_LOPT_PIECE words of data behind the two. */
#ifdef QN_LOPT_PIECE
typedef struct qn_lopt_piece_args {
  qn_u64 *to;
  qn_u64 words;
  qn_u64 data[QN_LOPT_PIECE];
} qn_lopt_piece_args;
#endif
#endif
