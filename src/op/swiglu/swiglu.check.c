/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.check.c - the domain of its random problems. Part of the workbench, not of the library. */
#include "workbench/op_check.h"

const qn_op_check qn_check_swiglu = {
    .domain = {.shapes = "1..16384x1..65536", .values = "gate_multiplier=1|1|1|1.3 down_multiplier=1|1|1|0.75"}};
