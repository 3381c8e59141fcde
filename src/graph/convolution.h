/* SPDX-License-Identifier: Apache-2.0 */
/* convolution.h - convolutions as kernels of the plan, where its caller allows tf32. */
#ifndef QN_GRAPH_CONVOLUTION_H
#define QN_GRAPH_CONVOLUTION_H
#include "graph/fuse.h"

/* The kernel of a node whose `is_convolution` a rule has set. body->input has x, w and the bias. */
void qn_convolution_write(const qn_fusion *fusion, const qn_graph_node *node, qn_body *body);
#endif
