/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.h - the engine of learned optimizers, inside. lopt.c refuses, batches.c cuts a step into batches of tensors and
 * numbered tasks, first_layer.c puts statistics into the network's first layer, shape.c finds the factored dimensions,
 * weights.c reads weights. Each network has tasks of its own: lopt.cpu.c has small_fc's, *.cpu.h the code that all
 * networks share. The ops' folders have the names, params and descriptions of steps.
 *
 * shards.c adds, between phases, the sums of the processes that hold a tensor together.
 *
 * A tensor is seen as (a, x, b, y, c): x and y are its two factored dimensions in order of place, a, b and c what lies
 * before, between and behind them; a tensor that is not factored is one y. Its second moments are kept as two factors:
 * `over_x` has means over x, so its places follow the elements of a row; `over_y` has means over y. `row_over_x` tells
 * which of them is the contract's row; the other is the column.
 */
#ifndef QN_OP_LOPT_LOPT_H
#define QN_OP_LOPT_LOPT_H
#include "op/call.h"
#include <math.h>
#include <stddef.h>
#include "quern/lopt.h"
#include "op/lopt/device.h"

enum { QN_LOPT_PARAM, QN_LOPT_GRAD, QN_LOPT_M, QN_LOPT_V, QN_LOPT_ROW, QN_LOPT_COLUMN, QN_LOPT_ROLES };

/* ---- shape.c, of shapes that were checked; `whole` is the first extent of a shard's whole tensor, or -1 ---- */
typedef struct qn_lopt_view {
  uint64_t a, x, b, y, c, n;
  bool factored, row_over_x;
  bool cut, x_cut; /* a shard, of which the others hold more of a, of x, or of y where it has but y */
  uint64_t whole_a, whole_x, whole_n; /* of the whole tensor */
  uint64_t matrices, rows, columns;   /* of its last two dimensions, where it is factored */
} qn_lopt_view;
qn_lopt_view qn_lopt_view_of(qn_lopt_ties ties, int ndim, const int64_t *shape, int64_t whole);
void qn_lopt_largest(qn_lopt_ties ties, int ndim, const int64_t *shape, int64_t whole, int d[2]);

typedef enum qn_lopt_phase {
  QN_LOPT_SUMS,        /* of the gradients' squares */
  QN_LOPT_STATES,      /* the two factors, and their sums */
  QN_LOPT_TABLES,      /* their roots, and their part of the first layer's sums */
  QN_LOPT_STATS,       /* m, v (and f), and the mean squares of the channels */
  QN_LOPT_FIRST_LAYER, /* these into the first layer */
  QN_LOPT_UPDATE,      /* network, parameter */
  QN_LOPT_PHASES
} qn_lopt_phase;

/* How a device takes elements, and where its kernels of this network are. */
typedef struct qn_lopt_sources {
  const char *sums, *factors, *stats, *elements, *update, *shards;
} qn_lopt_sources;
typedef struct qn_lopt_tiling {
  unsigned columns, stat_rows, rows; /* of a tile; of STATS; of UPDATE */
  unsigned least_length;             /* of rows that are taken by tiles */
  unsigned elements;                 /* a block's, where they are taken one by one */
  unsigned sums;                     /* numbers that STATS leaves of each piece; 0: one a channel */
  bool is_fp32;                      /* tiles are of the class fp32 too, and so of all: UPDATE needs no products */
  unsigned stat_threads;             /* of a block of STATS, and of UPDATE where it is_fp32 */
  const qn_lopt_sources *source;
} qn_lopt_tiling;

static inline uint64_t qn_lopt_ceiling(uint64_t n, uint64_t of) { return n / of + (n % of != 0); }
static inline uint64_t qn_lopt_most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* A workspace that is given out in parts; without a base it is measured. */
typedef struct qn_lopt_arena {
  char *base;
  size_t used, align; /* of every part */
} qn_lopt_arena;
static inline void *qn_lopt_take(qn_lopt_arena *r, uint64_t bytes)
{
  char *at = r->base ? r->base + r->used : NULL;
  r->used += (size_t)qn_lopt_ceiling(bytes, r->align) * r->align;
  return at;
}
/* From the first place that is aligned. */
static inline qn_lopt_arena qn_lopt_arena_of(void *memory, size_t align)
{
  return (qn_lopt_arena){.base = (char *)memory + (align - (uintptr_t)memory % align) % align, .align = align};
}

/* A network, and what else its optimizers have in common. */
typedef struct qn_lopt_call qn_lopt_call;
typedef struct qn_lopt_item qn_lopt_item;
/* One task of a tensor; tasks of a phase may run at once. */
typedef void qn_lopt_cpu_fn(const qn_lopt_call *call, qn_lopt_phase phase, qn_lopt_item *item, uint64_t task);
/* What a network has that takes a tensor as the matrices of its last two dimensions, each with mean squares of its own:
 * its arrays, in the place of `partial` and `layer`; how many tasks STATS, FIRST_LAYER and UPDATE have; and, on the
 * processor, what comes behind UPDATE, tensor by tensor, and the memory that it is lent, a multiple of 64. */
typedef struct qn_lopt_matrices {
  void (*lay)(qn_lopt_arena *r, qn_lopt_item *item);
  uint64_t (*tasks)(qn_lopt_phase phase, const qn_lopt_item *item);
  qn_status (*behind)(const qn_lopt_call *call, const qn_exec *exec, qn_lopt_item *item, void *lent);
  size_t (*lent_bytes)(const qn_lopt_view *view);
  void (*device_lay)(qn_lopt_arena *r, qn_lopt_device_item *item);
  uint64_t (*device_tasks)(qn_lopt_phase phase, const qn_lopt_device_item *item);
} qn_lopt_matrices;
typedef struct qn_lopt_network {
  qn_lopt_ties ties;
  unsigned hidden, inputs; /* of the first layer, whose weights (hidden, inputs) are the first there are */
  unsigned elements;       /* inputs that differ from element to element where a tensor is factored; else 6 more do */
  float b_term;            /* in B = 1/sqrt(f + b_term) where nothing is factored */
  qn_lopt_cpu_fn *const *tiers;
  const qn_lopt_tiling *tiling;
  const qn_lopt_matrices *matrices; /* NULL: mean squares are over whole tensors */
} qn_lopt_network;
extern const qn_lopt_network qn_lopt_small_fc[2]; /* by the params' ties */

/* Decays and 1 less each; each rounded once. */
typedef struct qn_lopt_rates {
  float m[3], m_rest[3], v, v_rest, f[3], f_rest[3], exp_mult;
} qn_lopt_rates;

/* Of a network whose weights are each tensor's own, known behind STATS, phases over the whole list on a device: where
 * the table of tensors that are not empty lies there, how many there are, where their first tasks go, and how kernels
 * are launched. */
typedef struct qn_lopt_device_place {
  const void *run, *items;
  uint32_t *firsts;
  uint64_t n;
  void *head;
} qn_lopt_device_place;
enum { QN_LOPT_OWN_BYTES = 128, QN_LOPT_DEVICE_ALIGNMENT = 256 };
qn_status qn_lopt_device_launch(const qn_lopt_device_place *place, const char *source, const char *name,
                                uint64_t blocks, uint32_t threads, const void *argument, size_t bytes);
typedef qn_status qn_lopt_list_phases_fn(void *user, const qn_lopt_device_place *place);
typedef struct qn_lopt_list_phases {
  qn_lopt_list_phases_fn *before, *between;                 /* the others; STATS and what needs the tensors' weights */
  uint32_t (*flags)(const qn_tensor *param, int64_t whole); /* that its kernels have in the table besides; or NULL */
  void *user;
  qn_lopt_list_phases_fn *elements; /* in the place of STATS and of all behind it; NULL: none */
} qn_lopt_list_phases;
/* A kernel over the numbered tasks of STATS, FIRST_LAYER or UPDATE, of a network of matrices, a block each, or of so
 * many blocks: its argument is a qn_lopt_device_args and `own` behind it. */
qn_status qn_lopt_device_tasks(const qn_lopt_device_place *place, const char *source, const char *name,
                               qn_lopt_phase phase, uint64_t blocks, uint32_t threads, const void *own,
                               size_t own_bytes);
/* Calls fn for each tensor that is not empty, as the table has it. */
typedef qn_status qn_lopt_device_each_fn(void *user, const qn_lopt_device_item *item);
qn_status qn_lopt_device_each(const qn_lopt_device_place *place, qn_lopt_device_each_fn *fn, void *user);

/* The settings of a step, from its op's params. */
typedef struct qn_lopt_step {
  const qn_lopt_network *network;
  double m[3], v, f[3]; /* decays */
  double lr, step_mult, exp_mult, weight_decay;
  double max_grad_norm;   /* 0: none */
  const double *lr_scale; /* one a tensor; NULL: all 1 */
  const float *weights;
  uint64_t weights_apart;     /* of each tensor's from the one's before; 0: all have the same */
  const qn_lopt_hyper *hyper; /* NULL: lr, weight_decay and step are the call's */
  uint64_t step;
  const qn_lopt_shards *shards;           /* NULL: tensors are whole */
  const qn_lopt_list_phases *list_phases; /* on a device; NULL: all tensors have the same weights */
  int precision;                          /* qn_lopt_precision */
  qn_lopt_gradient gradient;              /* how gradients are taken */
  bool joint_decay;                       /* the update is qn_lopt_moved_jointly */
  bool means_of_decays;                   /* of the row's states, in place of those along d1 */
  bool compat;
  const void *own; /* of qn_lopt_op's own_of */
} qn_lopt_step;

/* One of the two factors of a tensor, and the arrays made of it. Arrays of `padded` floats hold n and are multiples
 * of 16.
 */
typedef struct qn_lopt_factor {
  float *state;                            /* (3, n) of the caller's */
  uint64_t n, padded, whole;               /* the whole tensor's vector has `whole` places */
  double *sums;                            /* [n], of the squares of gradients */
  double squares[QN_LOPT_FACTOR_CHANNELS]; /* the channels', summed over the places */
  double *row_sums;    /* [3][row_places]: a row's states, summed along the other factored dimension */
  uint64_t row_places; /* 0: the factor is a column */
  float *root;         /* [3][padded]: inverse square roots, a row's over its mean */
  float *channel;      /* [6][padded]: the states, and their roots' inverses */
  float *table;        /* [padded * hidden]: their part of the first layer's sums, as the network's tasks lay it */
} qn_lopt_factor;

/* A tensor of a batch. */
struct qn_lopt_item {
  qn_lopt_view view;
  const float *g;
  float *p, *m, *v, *f; /* f: (3, n), where it is not factored */
  qn_lopt_factor over_x, over_y;
  double *partial; /* [chunks][channels], of the squares of channels */
  uint64_t chunks;
  double norm;  /* the square of the gradient's, where shards share it */
  float *layer; /* [channels][hidden]: the first layer's weights with the channels' scales */
  const float *weights;
  float *moves;      /* [n] of a network of matrices: its outputs */
  float of_gradient; /* gradients are multiplied by it */
  float step, lr, decay;
};

struct qn_lopt_call {
  const qn_lopt_network *network;
  qn_lopt_rates rates;
  qn_lopt_gradient gradient;
  bool joint_decay, compat;
  bool means_of_decays; /* of the row's states, in place of those along d1 */
  bool b_is_a;          /* where nothing is factored; else B is 1/sqrt(f + b_term) */
  float b_term;
  double max_grad_norm;
  const float *weights;
  const void *own; /* as the step's */
  /* small_fc's alone */
  double bias[QN_LOPT_HIDDEN];                  /* the first layer's, with the time's part */
  float second[QN_LOPT_HIDDEN][QN_LOPT_HIDDEN]; /* by input */
  float third[QN_LOPT_HIDDEN][2];
};

/* Places in the array of weights. */
enum {
  QN_LOPT_W1 = 0,
  QN_LOPT_B1 = QN_LOPT_W1 + QN_LOPT_HIDDEN * QN_LOPT_INPUTS,
  QN_LOPT_W2 = QN_LOPT_B1 + QN_LOPT_HIDDEN,
  QN_LOPT_B2 = QN_LOPT_W2 + QN_LOPT_HIDDEN * QN_LOPT_HIDDEN,
  QN_LOPT_W3 = QN_LOPT_B2 + QN_LOPT_HIDDEN,
  QN_LOPT_B3 = QN_LOPT_W3 + 2 * QN_LOPT_HIDDEN
};
_Static_assert(QN_LOPT_B3 + 2 == QN_LOPT_SMALL_FC_WEIGHTS, "the array is the six tensors");

/* Elements in a task of STATS and UPDATE; about as many reads in one of SUMS. Part of the sums' order. */
enum { QN_LOPT_CHUNK = 4096, QN_LOPT_READS = 32768, QN_LOPT_TILE = 64 };

/* Tiles of columns of a run, all of them, and in a task; strips between two places along y, likewise. */
static inline uint64_t qn_lopt_tiles(const qn_lopt_view *v)
{
  return v->factored ? v->a * qn_lopt_ceiling(v->b * v->y * v->c, QN_LOPT_TILE) : 0;
}
static inline uint64_t qn_lopt_tiles_a_task(const qn_lopt_view *v)
{
  return qn_lopt_most(1, QN_LOPT_READS / (QN_LOPT_TILE * qn_lopt_most(1, v->x)));
}
static inline uint64_t qn_lopt_strips(const qn_lopt_view *v) { return v->a * v->x * v->b; }
static inline uint64_t qn_lopt_strips_a_task(const qn_lopt_view *v)
{
  return qn_lopt_most(1, QN_LOPT_READS / qn_lopt_most(1, v->y * v->c));
}

/* ---- first_layer.c ---- */
/* Decays and what else all kinds' tasks are told. */
void qn_lopt_begin(qn_lopt_call *call, const qn_lopt_step *step);
/* And then small_fc's biases, the time's part in them, and transposed layers. */
void qn_lopt_prepare(qn_lopt_call *call, const qn_lopt_step *step);
/* The first layer's weights for the six channels of the row, or of the column: layer[6][hidden]. */
void qn_lopt_factor_layer(const qn_lopt_network *network, const float *weights, bool row,
                          const double scale[QN_LOPT_FACTOR_CHANNELS], float *layer);
/* The phase FOLD. */
void qn_lopt_first_layer(const qn_lopt_network *network, qn_lopt_item *item);

/* ---- lopt.c ---- */
/* On the processor: the values in memory take the place of the call's. */
void qn_lopt_read_hyper(qn_lopt_step *step);
/* The engine; its description of an op, which makes a step of params; and the `check` of small_fc's ops. */
extern const qn_engine qn_lopt_engine;
typedef struct qn_lopt_op {
  qn_lopt_step (*step_of)(const void *params);
  const qn_lopt_network *networks; /* [2], by the params' ties */
  size_t ties, shards;             /* where params have them; shards 0: nowhere */
  /* Bytes that the op takes of the workspace before the engine does, from a multiple of the arena's alignment on, of a
   * list that is not empty; NULL: none. */
  size_t (*first_bytes)(const qn_lopt_network *network, const qn_lopt_shards *shards, const qn_call *list);
  /* Settings that only the network's own tasks read, up to QN_LOPT_OWN_BYTES; NULL: none. */
  void (*own_of)(const void *params, uint64_t step, void *own);
  qn_status (*device_run)(const qn_call *list, const qn_lopt_step *step); /* NULL: qn_lopt_device_run */
} qn_lopt_op;
/* Parts of an engine of one's own. */
void qn_lopt_dimensions(const qn_op *op, const qn_call *call, size_t k, int ndim, const int64_t *shape, int d[2]);
size_t qn_lopt_workspace(const qn_call *list);
static inline qn_lopt_step qn_lopt_step_of(const qn_op *op, const void *params)
{
  return ((const qn_lopt_op *)op->of_engine)->step_of(params);
}
/* That of an op of small_fc, whose step_of is `step_of`. */
#define QN_LOPT_SMALL_FC_OP(type)                                                                                      \
  {                                                                                                                    \
    .step_of = step_of, .networks = qn_lopt_small_fc, .ties = offsetof(type, ties), .shards = offsetof(type, shards)   \
  }
qn_status qn_lopt_check_small_fc(const qn_call *list);
/* Enough with any ties; 0 where a step would be refused for its shapes. */
size_t qn_lopt_workspace_of(const qn_op *op, const qn_lopt_shards *shards, size_t n, const qn_tensor *param);

/* ---- batches.c ---- */
/* The workspace that batches of these tensors need; the step's phases over all of them, batch by batch. `workspace` is
 * a multiple of 64. Only what adds the sums of shards can fail. */
enum { QN_LOPT_ALIGNMENT = 64 };
size_t qn_lopt_batches_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, size_t n,
                             const qn_tensor *param);
qn_status qn_lopt_run_batches(const qn_call *list, const qn_lopt_step *step, const qn_lopt_call *call, qn_tier tier,
                              void *workspace);
/* The task of so many before which those of item k begin at first[k]: the item that has it. */
size_t qn_lopt_item_of(const uint64_t *first, size_t items, uint64_t task);

/* ---- shards.c ---- */
/* The first extent of the whole of tensor k, or -1. */
static inline int64_t qn_lopt_whole(const qn_lopt_shards *shards, size_t k) { return shards ? shards->extents[k] : -1; }
qn_status qn_lopt_check_shards(const qn_call *list, const qn_lopt_shards *shards);
/* The sum of a gradient's squares, from the phase SUMS. */
double qn_lopt_norm(const qn_lopt_item *item);
/* The most numbers of a tensor that a phase leaves to be added. */
uint64_t qn_lopt_shared_room(const qn_lopt_network *network, const qn_lopt_item *item);
/* Has the caller's function add n sums. */
qn_status qn_lopt_add(const qn_lopt_shards *shards, const qn_exec *exec, double *sums, size_t n);
/* Behind a phase: its sums of n items become those of the whole tensors. `room` is of all items' shared_room. */
qn_status qn_lopt_share(const qn_lopt_call *call, const qn_lopt_shards *shards, const qn_exec *exec,
                        qn_lopt_phase phase, size_t n, qn_lopt_item *item, double *room);

/* ---- lopt.device.c: a step on a device, of what was checked; and its workspace ---- */
extern const qn_lopt_tiling qn_lopt_device_tiling;
qn_status qn_lopt_device_run(const qn_call *list, const qn_lopt_step *step);
/* The same with phases over the whole list, in fp32, behind the first bytes of the workspace, a multiple of 256, which
 * are theirs. */
qn_status qn_lopt_device_run_behind(const qn_call *list, const qn_lopt_step *step, const qn_lopt_list_phases *phases,
                                    size_t first_bytes);
size_t qn_lopt_device_bytes(const qn_lopt_network *network, const qn_lopt_shards *shards, size_t n,
                            const qn_tensor *param);

/* ---- for the ops' descriptions ---- */
/* The six roles, and how they are stored. */
#define QN_LOPT_SHAPE(text) .shape = (text), .storage = QN_STORAGE_ROW_MAJOR
#define QN_LOPT_TENSORS                                                                                                \
  [QN_LOPT_PARAM] = {"param", NULL, "what is trained", QN_FILL_MODERATE, 0.02, QN_LOPT_SHAPE("[...5]")},               \
  [QN_LOPT_GRAD] = {"grad",           NULL, "the loss's gradient with respect to it",                                  \
                    QN_FILL_MODERATE, 1e-3, QN_LOPT_SHAPE("[like param]")},                                            \
  [QN_LOPT_M] = {"m",                                                                                                  \
                 "exp_avg",                                                                                            \
                 "three means of the gradient; zeros before the first step",                                           \
                 QN_FILL_MODERATE,                                                                                     \
                 1e-3,                                                                                                 \
                 QN_LOPT_SHAPE("[3, like param]")},                                                                    \
  [QN_LOPT_V] =                                                                                                        \
      {"v", "exp_avg_sq", "the mean of its square", QN_FILL_NON_NEGATIVE, 1e-6, QN_LOPT_SHAPE("[like param]")},        \
  [QN_LOPT_ROW] = {"row",                                                                                              \
                   "exp_avg_sq_r",                                                                                     \
                   "three means of its square's mean along the largest dimension",                                     \
                   QN_FILL_NON_NEGATIVE,                                                                               \
                   1e-6,                                                                                               \
                   QN_LOPT_SHAPE("[3, like param without d0] or [3, like param]")},                                    \
  [QN_LOPT_COLUMN] = {"column",                                                                                        \
                      "exp_avg_sq_c",                                                                                  \
                      "the same along the second largest",                                                             \
                      QN_FILL_NON_NEGATIVE,                                                                            \
                      1e-6,                                                                                            \
                      QN_LOPT_SHAPE("[3, like param without d1] or [0]")}
#define QN_LOPT_TYPES                                                                                                  \
  [QN_LOPT_PARAM] = {QN_F32, QN_READ_WRITE}, [QN_LOPT_GRAD] = {QN_F32, QN_READ},                                       \
  [QN_LOPT_M] = {QN_F32, QN_READ_WRITE}, [QN_LOPT_V] = {QN_F32, QN_READ_WRITE},                                        \
  [QN_LOPT_ROW] = {QN_F32, QN_READ_WRITE}, [QN_LOPT_COLUMN] = {QN_F32, QN_READ_WRITE}
extern const qn_op_tensor qn_lopt_tensors[QN_LOPT_ROLES];
extern const qn_op_types qn_lopt_types[1];
/* An element's bytes: g, p, m and v read, p, m and v written; the two factors are small beside them. Its operations are
 * the network's 1600 multiply-adds of which a vector's tables leave it, and some 60 besides. */
#define QN_LOPT_OF_INFO                                                                                                \
  .tensors = qn_lopt_tensors, .n_tensors = QN_LOPT_ROLES, .types = qn_lopt_types, .n_types = 1, .element_bytes = 44,   \
  .operations = 3260, .agreement = QN_SCALED
/* Rows of a table of params: one of a number; the decays; the last ones. */
#define QN_LOPT_NUMBER(type, member, doc, least)                                                                       \
  {                                                                                                                    \
#member, doc, QN_PARAM_DOUBLE, offsetof(type, member), least, HUGE_VAL, 0, NULL, 0                                 \
  }
/* One that the op's hyper struct has too. */
#define QN_LOPT_LIVE(type, member, doc)                                                                                \
  {                                                                                                                    \
#member, doc, QN_PARAM_DOUBLE, offsetof(type, member), 0, HUGE_VAL, 0, NULL, 1 + offsetof(qn_lopt_hyper, member)   \
  }
#define QN_LOPT_DECAY(type, member, of)                                                                                \
  {                                                                                                                    \
#member, "what a mean of " of " keeps", QN_PARAM_DOUBLE, offsetof(type, member), 0, 1, 1, NULL, 0                  \
  }
#define QN_LOPT_DECAYS(type)                                                                                           \
  QN_LOPT_DECAY(type, m_decay0, "the gradient"), QN_LOPT_DECAY(type, m_decay1, "the gradient"),                        \
      QN_LOPT_DECAY(type, m_decay2, "the gradient"), QN_LOPT_DECAY(type, v_decay, "its square"),                       \
      QN_LOPT_DECAY(type, factor_decay0, "its square's means"),                                                        \
      QN_LOPT_DECAY(type, factor_decay1, "its square's means"),                                                        \
      QN_LOPT_DECAY(type, factor_decay2, "its square's means")
#define QN_LOPT_LAST(type, member, doc, kind, most, values, live)                                                      \
  {                                                                                                                    \
#member, doc, QN_PARAM_##kind, offsetof(type, member), 0, most, 0, values, live                                    \
  }
#define QN_LOPT_TIES_ROW(type)                                                                                         \
  QN_LOPT_LAST(type, ties, "which of equal dimensions counts as the larger, as PyLO or as JAX has it", ENUM, 1,        \
               "pylo|jax", 0)
#define QN_LOPT_STEP_ROW(type)                                                                                         \
  QN_LOPT_LAST(type, step, "steps taken before this one", U64, HUGE_VAL, NULL, 1 + offsetof(qn_lopt_hyper, step))
#define QN_LOPT_WEIGHTS_ROW(type, n)                                                                                   \
  QN_LOPT_LAST(type, weights, "the network's, as qn_lopt_weights_read reads them", DEVICE_F32S, n, NULL, 0)
#define QN_LOPT_RATE_ROWS(type)                                                                                        \
  QN_LOPT_LAST(type, lr_scale, "factors of the learning rate", HOST_F64, HUGE_VAL, NULL, 0),                           \
      QN_LOPT_LAST(type, hyper, "takes the place of lr, weight_decay and step", DEVICE_HYPER, 0, NULL, 0)
#define QN_LOPT_SHARDS_ROW(type)                                                                                       \
  QN_LOPT_LAST(type, shards, "tensors are pieces that several processes hold: quern/lopt.h", HOST_STRUCT, 0, NULL, 0)
#define QN_LOPT_LAST_ROWS(type)                                                                                        \
  QN_LOPT_STEP_ROW(type),                                                                                              \
      QN_LOPT_LAST(type, pylo_cuda_compat, "as PyLO's CUDA code; up to 2 dimensions", BOOL, 1, NULL, 0),               \
      QN_LOPT_WEIGHTS_ROW(type, QN_LOPT_SMALL_FC_WEIGHTS), QN_LOPT_RATE_ROWS(type),                                    \
      QN_LOPT_LAST(type, precision, "the class of the network's products", ENUM, 4, "fp32|tf32|bf16x3|f16x3|f16", 0),  \
      QN_LOPT_TIES_ROW(type), QN_LOPT_SHARDS_ROW(type)

/* The members of a step that all params have, and those of small_fc's. */
#define QN_LOPT_OF_STEP(params)                                                                                        \
  .m = {(params)->m_decay0, (params)->m_decay1, (params)->m_decay2}, .v = (params)->v_decay,                           \
  .f = {(params)->factor_decay0, (params)->factor_decay1, (params)->factor_decay2}, .lr = (params)->lr,                \
  .exp_mult = (params)->exp_mult, .weight_decay = (params)->weight_decay, .lr_scale = (params)->lr_scale,              \
  .hyper = (params)->hyper, .step = (params)->step
/* Where they have these. */
#define QN_LOPT_OF_SHARDS(params) .shards = (params)->shards, .compat = (params)->pylo_cuda_compat
#define QN_LOPT_OF_SMALL_FC(params)                                                                                    \
  QN_LOPT_OF_SHARDS(params), .network = &qn_lopt_small_fc[(params)->ties],                                             \
                             .means_of_decays = (params)->pylo_cuda_compat, .weights = (params)->weights,              \
                             .precision = (params)->precision

#endif
