/* SPDX-License-Identifier: Apache-2.0 */
/* forced.h - the options whose values are names that only their users know: an architecture, and an engine's variants.
 * A call judges them when it needs them; a command asks before it does anything. */
#ifndef QN_OP_FORCED_H
#define QN_OP_FORCED_H
#include "quern/status.h"

/* Is the value of the option called `name` one that its user knows? QN_OK for every other option. */
qn_status qn_forced_check(const char *name);
#endif
