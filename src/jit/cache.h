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
/* Another store in the directory's place, for a process that compiles for another one; NULL: the directory again. What
 * `get` refuses is not compiled. Not while kernels are compiled. */
typedef struct qn_cache_store {
  qn_status (*get)(const char *key, size_t key_bytes, void **data, size_t *bytes);
  void (*put)(const char *key, size_t key_bytes, const void *data, size_t bytes);
} qn_cache_store;
void qn_cache_replace(const qn_cache_store *store);
void qn_cache_note_compile(void);
void qn_cache_note_memory_hit(void);
#endif
