/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_backward.check.c - the domain of its random problems. Part of the workbench, not of the library. */
#include "workbench/op_check.h"

const qn_op_check qn_check_swiglu_backward = {
    .domain = {.shapes = "1..16384x1..65536", .values = "gate_multiplier=1|1|1|1.3"}};
