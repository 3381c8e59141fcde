/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - an op's parameters by name, from text ("lr=1e-3", "rounding=stochastic"), as its description has them.
 */
#ifndef QN_WORKBENCH_SETTINGS_H
#define QN_WORKBENCH_SETTINGS_H
#include "op/op.h"

/* Sets one; the op's ranges are checked by the op itself at the call. Refused: no '=', an unknown name (the nearest is
 * suggested), a value that is no number or none of the names, a parameter that is a pointer. */
qn_status qn_settings_read(const qn_op_info *op, void *params, const char *text);
/* The op's defaults, and its description's values of what has none. */
qn_status qn_settings_begin(const qn_op *op, void *params);
#endif
