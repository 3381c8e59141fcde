/* SPDX-License-Identifier: Apache-2.0 */
/* generate_mutate.h - the generator "mutate" of `quern search`: changes one thing at a time of a source that is there.
 * Of a kernel's folder the threadgroup and templates that are numbers; of any source the factors of unrolling, and
 * constants in capitals whose value is a power of 2 (tiles, widths of vectors, threads). First the changes of the
 * problem's own source in an order that the seed alone decides, then those of each new best. */
#ifndef QN_WORKBENCH_GENERATE_MUTATE_H
#define QN_WORKBENCH_GENERATE_MUTATE_H
#include "quern/status.h"
#include <stdio.h>

/* Speaks the protocol until `in` ends. */
qn_status qn_generate_mutate(FILE *in, FILE *out);

#endif
