/* SPDX-License-Identifier: Apache-2.0 */
/* fuse.h - which values become which kernels, and the order of all steps. */
#ifndef QN_GRAPH_FUSE_H
#define QN_GRAPH_FUSE_H
#include "graph/body.h"

typedef enum qn_step_kind { QN_STEP_KERNEL, QN_STEP_VIEW, QN_STEP_EXTERN } qn_step_kind;

typedef struct qn_step {
  qn_step_kind kind;
  int node;   /* of a view or extern */
  int kernel; /* in the fusion */
  int era, place;
} qn_step;

typedef struct qn_fusion {
  const qn_graph *graph;
  bool *is_root; /* by value: some kernel's */
  bool *needed;  /* by value: must be there outside of kernels */
  bool *live;    /* by value */
  qn_fused *kernel;
  qn_body *body;
  int *kernel_of; /* by value: a root's kernel, -1 */
  int n_kernels, kernels;
  qn_step *step; /* in the order of execution */
  int n_steps;
  const char **refused; /* by node: why a kernel could not be made, and it is extern after all */
} qn_fusion;

/* Nodes whose kernel cannot be made become extern; then the fusion is made again. */
qn_status qn_fusion_make(qn_graph *graph, bool fuse, qn_fusion *fusion);
void qn_fusion_free(qn_fusion *fusion);
qn_status qn_fusion_order(qn_fusion *fusion); /* order.c: fills step */
/* A view that the caller makes where it is needed: its memory is its argument's. */
bool qn_is_callers_view(const qn_fusion *fusion, int value);
#endif
