/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h - a plan for a graph of tensor operations: which of them become which generated kernels, and which stay the
 * caller's. Text in, text out; docs/graph.md describes both. Nothing is compiled or run: the caller makes the kernels
 * with kernel.h and runs the steps in their order. */
#ifndef QN_GRAPH_H
#define QN_GRAPH_H
#include "status.h"
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_graph_options {
  size_t size; /* sizeof(qn_graph_options) */
  int fuse;    /* 0: a kernel for each node, to find out what a fusion changes; 1: as the cost rule says */
} qn_graph_options;

typedef struct qn_graph_plan qn_graph_plan;

/* `graph` has `bytes` bytes of JSON. options NULL: fuse. QN_BAD_ARGUMENT: a graph that contradicts itself, QN_BAD_FILE:
 * a text that is no JSON; the sentence names the node. An op that the planner does not know is no failure: it stays the
 * caller's, with the reason. */
QN_API qn_status qn_graph_plan_create(qn_graph_plan **plan, const char *graph, size_t bytes,
                                      const qn_graph_options *options);
QN_API const char *qn_graph_plan_text(const qn_graph_plan *plan); /* JSON; as long as the plan lives */
QN_API void qn_graph_plan_destroy(qn_graph_plan **plan);          /* sets *plan to NULL */

#ifdef __cplusplus
}
#endif
#endif
