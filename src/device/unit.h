/* SPDX-License-Identifier: Apache-2.0 */
/* unit.h - the whole text of a unit, from embedded sources alone. */
#ifndef QN_DEVICE_UNIT_H
#define QN_DEVICE_UNIT_H
#include "core/core.h"
#include "device/backend.h"

/* Adds the unit's defines, then its source with every `#include "name"` replaced by that embedded source, each piece
 * under a #line that names it; of a lean unit only what something names (lean.h). A quoted name that is not embedded is
 * QN_BAD_ARGUMENT; includes in <> stay. */
qn_status qn_unit_expand(const qn_unit *unit, qn_text *text);
#endif
