/* SPDX-License-Identifier: Apache-2.0 */
/* prune.h - a unit's text without what nothing in it names. */
#ifndef QN_DEVICE_PRUNE_H
#define QN_DEVICE_PRUNE_H
#include "core/core.h"

/* Adds to `pruned` what of `whole` can matter: all of the unit's own text, and of the embedded sources, which #line
 * names, the declarations that something kept names, directly or through others. Lines keep their numbers by #line. */
qn_status qn_text_prune(const char *whole, qn_text *pruned);
#endif
