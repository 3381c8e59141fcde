/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h - a graph of tensors as the planner sees it: the values that a description names, and those that its nodes
 * are made of. Values stand in an order in which each comes after its arguments. */
#ifndef QN_GRAPH_GRAPH_H
#define QN_GRAPH_GRAPH_H
#include "core/core.h"
#include "graph/words.h"
#include "quern/graph.h"

enum { QN_GRAPH_DIMS = 12, QN_GRAPH_ARGUMENTS = 64 };
/* Elements of a row that a GPU's thread keeps in registers: one of a group, and one that has the row to itself. */
enum { QN_HELD = 32, QN_HELD_ALONE = 64 };

typedef enum qn_value_form {
  QN_FORM_INPUT,    /* memory that the caller has */
  QN_FORM_EXTERN,   /* memory that an op outside of the planner writes */
  QN_FORM_CONSTANT, /* one number everywhere */
  QN_FORM_IOTA,     /* real + step * the index along `dim` */
  QN_FORM_WORD,     /* a word of the table, of arguments broadcast to the shape */
  QN_FORM_CAST,     /* rounded to the type */
  QN_FORM_AFFINE,   /* a view: each index of the argument is a sum of steps of the indices */
  QN_FORM_RESHAPE,  /* a view: the same elements row by row */
  QN_FORM_PAD,      /* the argument at index - low where it is there, else the second argument */
  QN_FORM_CAT,      /* the arguments one behind the other along `dim` */
  QN_FORM_GATHER,   /* rows of the first argument, chosen along its dimension 0 by the second */
  QN_FORM_REDUCE,   /* the argument over the dimensions of `reduced`, which are 1 here */
  QN_FORM_SCAN      /* the argument along the dimension of `reduced`: each element with all before it */
} qn_value_form;

/* The index along a dimension of a view's argument: low + step[0] * index[dim[0]] + step[1] * index[dim[1]]. */
typedef struct qn_view_index {
  int64_t low;
  int n;
  int dim[2];
  int64_t step[2];
} qn_view_index;

typedef struct qn_graph_value {
  qn_value_form form;
  qn_dtype dtype;
  int ndim;
  int64_t shape[QN_GRAPH_DIMS];
  int64_t n; /* elements */
  int node;  /* that it is a part of; -1: an input */
  bool named;
  char *name; /* of an input */
  int result; /* which of its node's; -1: the only one */
  int n_arguments;
  int argument[3], *arguments; /* the second: of CAT */
  qn_graph_word word;
  qn_graph_reduction reduction;
  qn_dtype compute; /* the type that a word's arguments are brought to */
  double real, step;
  int64_t whole; /* the constant of a whole type */
  int dim;       /* of a reduction: the kept dimension whose elements lie side by side in memory; 0: the last */
  uint32_t reduced;
  int64_t strides[QN_GRAPH_DIMS]; /* of memory */
  qn_view_index view[QN_GRAPH_DIMS];
  int64_t low[QN_GRAPH_DIMS];
  bool chosen; /* of PAD: the nearest element is computed in any case, and chosen where it is the one */
} qn_graph_value;

/* An argument of a node. */
typedef enum qn_argument_kind {
  QN_ARGUMENT_NONE,
  QN_ARGUMENT_VALUE,
  QN_ARGUMENT_BOOL,
  QN_ARGUMENT_INTEGER,
  QN_ARGUMENT_REAL,
  QN_ARGUMENT_TEXT,
  QN_ARGUMENT_LIST
} qn_argument_kind;
typedef struct qn_argument {
  qn_argument_kind kind;
  int value; /* of VALUE: in the graph */
  int64_t integer;
  double real;
  char *text;
  const char *name; /* of a keyword's: in the description */
  int n;
  struct qn_argument *list;
} qn_argument;

struct qn_fusion;
struct qn_graph_node;
struct qn_body;
/* Writes the kernel of a node: its text, its inputs and launch; what it stores are the node's results. */
typedef void qn_own_kernel(const struct qn_fusion *fusion, const struct qn_graph_node *node, struct qn_body *body);

typedef struct qn_graph_node {
  char *name, *op;
  int n_arguments, n_keywords, n_results;
  qn_argument *argument, *keyword;
  int *result;        /* values */
  bool is_kept;       /* by the caller, who says so */
  bool is_extern;     /* stays the caller's */
  bool is_view;       /* the caller's too where somebody needs the view itself; it moves nothing */
  bool is_random;     /* it draws random numbers */
  bool has_effects;   /* of its own: it stays, in its place */
  int era;            /* nodes on both sides of one with effects are of different eras */
  const char *why;    /* it is extern */
  qn_own_kernel *own; /* extern to all that is fused, it has a kernel of the plan's, which this writes; NULL: none */
} qn_graph_node;

/* Parts' means and squared distances of a value: whoever else requires them reads these. */
typedef struct qn_shared_moments {
  int value, era;
  uint32_t dims;
  qn_dtype type;
  int mean, squares;
} qn_shared_moments;

typedef struct qn_graph {
  qn_graph_value *value;
  qn_graph_node *node;
  int n_values, values, n_nodes;
  int *output, n_outputs;
  qn_shared_moments *shared;
  int n_shared;
  bool on_cpu;
  bool convolutions; /* have kernels of the plan's, in tf32 */
} qn_graph;

qn_status qn_graph_read(const char *text, size_t bytes, qn_graph *graph); /* read.c */
void qn_graph_free(qn_graph *graph);
qn_status qn_graph_split(qn_graph *graph); /* split.c: long reductions in two steps; behind qn_graph_lower */
/* Whether rows along these dimensions lie side by side in memory: neighbours are of another row. */
bool qn_graph_lies_across(const qn_graph *graph, int value, uint32_t dims);
/* Parts of a row that a threadgroup can hold; 0: it holds the whole row, or there are none. */
int64_t qn_graph_held_parts(int64_t length, bool across);
/* A new value of zeros but for these; -1: no memory, or more elements than 2^62. */
int qn_graph_add(qn_graph *graph, qn_value_form form, qn_dtype dtype, int ndim, const int64_t *shape);

/* The type numbers are computed in: f32 for the smaller reals, i32 for the smaller integers. */
qn_dtype qn_compute_type(qn_dtype dtype);
bool qn_is_real(qn_dtype dtype);
bool qn_is_memory(const qn_graph_value *value);
bool qn_is_view(const qn_graph_value *value);
bool qn_has_rows(const qn_graph_value *value); /* a reduction or a scan */
/* Whether strides are row-major for these dimensions, from the outermost to the innermost; NULL: as they stand. Extents
 * of 1 have any stride. */
bool qn_is_in_order(const qn_graph_value *value, const int64_t *strides, const int *order);
/* Strides of the memory that a kernel stores a value in, and its dimensions from the outermost to the innermost: those
 * described where they are row-major in another order of the dimensions, else row-major. */
void qn_stored_order(const qn_graph_value *value, int64_t *strides, int *order);
/* How many elements a row of its argument has. */
int64_t qn_row_length(const qn_graph *graph, const qn_graph_value *value);
const int *qn_arguments_of(const qn_graph_value *value);
#endif
