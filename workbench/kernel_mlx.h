/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_mlx.h - the expressions of a folder as Python's, so that an emitted MLX program serves all sizes: extents
 * are read from the shapes of its inputs, templates, grid and shapes of outputs follow from them. */
#ifndef QN_WORKBENCH_KERNEL_MLX_H
#define QN_WORKBENCH_KERNEL_MLX_H
#include "core/core.h"
#include "kernel/emit.h"
#include "workbench/kernel_case.h"

typedef struct qn_mlx_words {
  qn_emit_words words; /* of the texts below */
  qn_text functions, parameters, statements, grid, group;
  qn_text output_shape[QN_KERNEL_MAX_TENSORS], template_value[QN_KERNEL_MAX_TEMPLATES];
} qn_mlx_words;

/* False: the source has numbers of one call in it, shapes of outputs or the bytes of dynamic memory. */
bool qn_mlx_words_serves(const qn_kernel_case *c);
/* Values that the order gives to templates and to the group stay constants. Free it in any case. */
qn_status qn_mlx_words_make(qn_mlx_words *python, const qn_kernel_case *c, const qn_kernel_case_order *order);
void qn_mlx_words_free(qn_mlx_words *python);
#endif
