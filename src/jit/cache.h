/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - the store on disk: key text to bytes. Content-keyed, private, checked, bounded; losing it costs only time.
 */
#ifndef QN_JIT_CACHE_H
#define QN_JIT_CACHE_H
#include "quern/cache.h"

/* Found: QN_OK and *data (release with qn_release), *bytes. Not found, off, unreadable or corrupt (then dropped):
 * QN_OK, NULL. */
qn_status qn_cache_get(const char *key, size_t key_bytes, void **data, size_t *bytes);
/* Best effort: a full or read-only disk is logged and counted, not an error. */
void qn_cache_put(const char *key, size_t key_bytes, const void *data, size_t bytes);
void qn_cache_note_compile(void);
void qn_cache_note_memory_hit(void);
#endif
