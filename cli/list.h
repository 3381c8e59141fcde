/* SPDX-License-Identifier: Apache-2.0 */
/* list.h - the part of `quern list` about launches: which variant a device takes for which shapes, by whose word, and
 * what can be forced in its place. */
#ifndef QN_CLI_LIST_H
#define QN_CLI_LIST_H
#include "cli/verb.h"
#include "op/call.h"
#include <jansson.h>

/* The first GPU, or where there is none the emulator. */
qn_device qn_list_device(void);
/* Nothing for ops without a device kernel, and on the processor, whose kernels have no launch shape. */
void qn_list_print_launch_shape(const qn_op *op, qn_device device);
/* The kernels from a body that ship, as a list of {name, doc}; printed too. */
json_t *qn_list_shipped(bool print);
json_t *qn_list_launch_shape_json(const qn_op *op, qn_device device); /* NULL: nothing is to be told */
#endif
