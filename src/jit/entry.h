/* SPDX-License-Identifier: Apache-2.0 */
/* entry.h - one file of the cache: how it is laid out, read with distrust, and written so that nobody sees half of it.
 */
#ifndef QN_JIT_ENTRY_H
#define QN_JIT_ENTRY_H
#include "core/core.h"
#include <time.h>

enum { QN_ENTRY_NAME_BYTES = 64 };

typedef struct qn_entry {
  char *storage; /* the whole file, to be released with qn_release */
  const char *key, *payload;
  size_t key_bytes, payload_bytes;
} qn_entry;

typedef enum qn_entry_state {
  QN_ENTRY_VALID,
  QN_ENTRY_ABSENT,
  QN_ENTRY_INVALID, /* not an entry of this directory and name, or damaged, or unreadable: to be dropped */
  QN_ENTRY_TROUBLE  /* no memory or file numbers left: it may be fine */
} qn_entry_state;

/* The name of the entry for a key: its hash, so that names say nothing and any key fits. */
void qn_entry_name(const char *key, size_t key_bytes, char name[QN_ENTRY_NAME_BYTES]);
bool qn_entry_is_name(const char *name);
/* Reads and verifies it. `use` notes that it was used, in its time of modification, once an hour at most. */
qn_entry_state qn_entry_read(int directory, const char *name, bool use, qn_entry *entry);
/* False with errno set; then nothing is left behind. The directory's first entry makes its secret. */
bool qn_entry_write(int directory, const char *key, size_t key_bytes, const void *payload, size_t payload_bytes);
size_t qn_entry_file_bytes(size_t key_bytes, size_t payload_bytes); /* SIZE_MAX if that is more */

/* A file that a writer has not brought to its end: its name is one of ours, and its writer is dead or it is older than
 * an hour. */
bool qn_entry_is_temporary(const char *name);
bool qn_entry_is_stale(const char *temporary_name, time_t modified);
#endif
