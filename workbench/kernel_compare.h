/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_compare.h - outputs against the reference, in the units that kernel.json names, and against other outputs, bit
 * for bit. Any NaN equals any NaN. */
#ifndef QN_WORKBENCH_KERNEL_COMPARE_H
#define QN_WORKBENCH_KERNEL_COMPARE_H
#include "workbench/kernel_case.h"

typedef struct qn_output_comparison {
  bool right;
  size_t elements, wrong; /* compared; that differ too much */
  double worst;           /* the largest difference, in the agreement's units */
  char why[512];          /* where not right: the first wrong element, what it is and what it should be */
} qn_output_comparison;

/* `want` has f64 where `got` has a float type, else the same type. */
void qn_compare_reference(const qn_array *got, const qn_array *want, const qn_folder_agreement *agreement,
                          qn_output_comparison *comparison);
/* All outputs; reference NULL: right. *worst becomes no smaller. False, and why. */
bool qn_compare_outputs(const qn_kernel_case *c, const qn_kernel_case *reference, double *worst, char *why,
                        size_t bytes);
/* data: elements of got's type in row-major order. */
void qn_compare_bits(const qn_array *got, const void *data, const char *whose, qn_output_comparison *comparison);
/* Copies of a fetched case's outputs, to be released; what is there is released first. */
qn_status qn_kernel_outputs_keep(const qn_kernel_case *c, void *kept[QN_KERNEL_MAX_TENSORS]);
/* The same bits as kept ones, but for sums of floats in the order of arrival. False, and why. */
bool qn_kernel_outputs_same(const qn_kernel_case *c, void *const kept[QN_KERNEL_MAX_TENSORS], const char *whose,
                            char *why, size_t bytes);
const char *qn_agreement_text(const qn_folder_agreement *agreement, char *text, size_t bytes); /* "within 4 ulp of" */
#endif
