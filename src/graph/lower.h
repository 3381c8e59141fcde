/* SPDX-License-Identifier: Apache-2.0 */
/* lower.h - what the rules that make values of a node's op share. A rule fills node->result, or says why the node stays
 * the caller's. */
#ifndef QN_GRAPH_LOWER_H
#define QN_GRAPH_LOWER_H
#include "graph/graph.h"

typedef struct qn_lowering {
  qn_graph *graph;
  int node;
  qn_dtype type;   /* numbers of intermediate values: the first result's compute type */
  const char *why; /* NULL until something says that the node cannot be lowered */
} qn_lowering;

typedef struct qn_graph_rule {
  const char *op;
  void (*lower)(qn_lowering *l, int which);
  int which; /* a word or reduction, where several ops share a rule */
} qn_graph_rule;
/* The rule of an op's default overload. */
#define QN_ATEN(name, lower, which)                                                                                    \
  {                                                                                                                    \
    "aten." name ".default", lower, which                                                                              \
  }
extern const qn_graph_rule qn_graph_word_rules[], qn_graph_view_rules[], qn_graph_reduce_rules[], qn_graph_norm_rules[],
    qn_graph_window_rules[], qn_graph_convolution_rules[], qn_graph_recurrent_rules[];

/* Decides for each node; every value that it makes comes after its arguments. */
qn_status qn_graph_lower(qn_graph *graph);

qn_graph_node *qn_node_of(const qn_lowering *l);
void qn_give_up(qn_lowering *l, const char *why); /* the first reason counts */
#define qn_give_up_if(l, condition, why)                                                                               \
  do {                                                                                                                 \
    if (condition) {                                                                                                   \
      qn_give_up(l, why);                                                                                              \
      return;                                                                                                          \
    }                                                                                                                  \
  } while (0)
/* The k-th argument or the keyword `name`; one that is not there has kind NONE. */
const qn_argument *qn_given(const qn_lowering *l, int k, const char *name);
int qn_given_value(qn_lowering *l, int k, const char *name); /* a tensor, else it gives up and returns 0 */
/* A tensor, or a number as a constant of the intermediate type. */
int qn_given_operand(qn_lowering *l, int k, const char *name);
double qn_real_of(const qn_argument *a, double otherwise); /* of a number */
double qn_given_real(const qn_lowering *l, int k, const char *name, double otherwise);
int64_t qn_given_integer(const qn_lowering *l, int k, const char *name, int64_t otherwise);
bool qn_given_bool(const qn_lowering *l, int k, const char *name);
int qn_given_list(qn_lowering *l, int k, const char *name, int64_t *list, int most); /* a number is a list of one */

const qn_graph_value *qn_value_at(const qn_lowering *l, int value);
/* A new value of the node, with its arguments (-1: none); without memory it gives up and returns 0. */
int qn_made(qn_lowering *l, qn_value_form form, qn_dtype dtype, int ndim, const int64_t *shape, int a, int b);
int qn_number(qn_lowering *l, double value);
int qn_words(qn_lowering *l, qn_graph_word word, int a, int b, int c); /* of the intermediate type; -1: no argument */
int qn_words_typed(qn_lowering *l, qn_graph_word word, qn_dtype result, qn_dtype compute, int a, int b, int c);
int qn_reshaped(qn_lowering *l, int a, int ndim, const int64_t *shape);
int qn_reduced(qn_lowering *l, qn_graph_reduction reduction, int a, uint32_t dims,
               qn_dtype dtype); /* extents of 1 stay */
int qn_scanned(qn_lowering *l, qn_graph_reduction reduction, int a, int dim, qn_dtype dtype);
int qn_mean_of(qn_lowering *l, int a, uint32_t dims);
/* a's mean over dimensions, which are 1 in it; a - mean; the sum of its squares, of n elements. */
typedef struct qn_moments {
  int mean, off, squares;
  double n;
} qn_moments;
qn_moments qn_moments_of(qn_lowering *l, int a, uint32_t dims); /* moments.c */
/* A view of `a` with all its dimensions as they are: view[] is to be changed. */
int qn_viewed(qn_lowering *l, int a, int ndim, const int64_t *shape);
/* A convolution of which it is known that each channel of the result is of one of the input's: lower_windows.c */
void qn_lower_channels_alone(qn_lowering *l);
int qn_permuted(qn_lowering *l, int a, const int *order); /* lower_views.c */
int qn_padded(qn_lowering *l, int a, const int64_t *low, const int64_t *shape, double fill);
/* Values, at least one, one behind the other along a dimension, alike in the others. */
int qn_concatenated(qn_lowering *l, int n, const int *parts, int dim);
void qn_result(qn_lowering *l, int k, int value); /* of the described shape and type, else it gives up */
/* Dimensions as bits: none or an empty list is all. */
uint32_t qn_given_dims(qn_lowering *l, int k, const char *name, int ndim);
int qn_wrapped(qn_lowering *l, int64_t dim, int ndim);
#endif
