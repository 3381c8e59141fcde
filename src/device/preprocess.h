/* SPDX-License-Identifier: Apache-2.0 */
/* preprocess.h - the whole text of a unit, from embedded sources alone. */
#ifndef QN_DEVICE_PREPROCESS_H
#define QN_DEVICE_PREPROCESS_H
#include "core/core.h"
#include "device/backend.h"

/* Adds the unit's defines, then its source with every `#include "name"` replaced by that embedded source, each piece
 * under a #line that names it. A quoted name that is not embedded is QN_BAD_ARGUMENT; includes in <> stay. */
qn_status qn_preprocess(const qn_unit *unit, qn_text *text);
/* A compiler's line that speaks of an error, for a sentence: one in an embedded source is told at the line of the
 * unit's own text from which the compiler says that it came there. `said`: all that the compiler said. */
void qn_unit_error(const char *source, const char *said, const char *line, size_t length, char *text, size_t bytes);
#endif
