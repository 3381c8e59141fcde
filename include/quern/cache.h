/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h - the store of compiled kernels: look at it, verify it, empty it. Kernels find and fill it by themselves.
 *
 * A directory of the user's (option "cache_dir"; $XDG_CACHE_HOME/quern, else ~/.cache/quern), mode 0700, one file an
 * entry. An entry's key is everything that its content depends on: the sources it can reach, options, compiler and its
 * version, architecture. Losing the directory costs a compile, never a result. */
#ifndef QN_CACHE_H
#define QN_CACHE_H
#include "status.h"
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_cache_entry {
  const char *file;    /* its name in the directory */
  const char *summary; /* first line of its key: what was compiled for what */
  int64_t bytes;       /* on disk */
  int64_t used_unix_s; /* last use, seconds since 1970 */
  int valid;           /* 1: header, lengths and checksum hold; 0: not (it will be dropped and rebuilt) */
} qn_cache_entry;

/* The directory in force. QN_UNSUPPORTED and why when the cache is off (option "cache" = "off") or the directory is
 * refused (others may write to it, it is not ours). */
QN_API qn_status qn_cache_directory(const char **path);

/* Calls visit for every entry, oldest use first, checksum verified; stops when it returns non-zero. The entry is
 * borrowed. */
QN_API qn_status qn_cache_each(int (*visit)(void *user, const qn_cache_entry *entry), void *user);

/* Removes what does not verify (only_invalid) or everything; stale temporary files too. removed may be NULL. */
QN_API qn_status qn_cache_clear(int only_invalid, size_t *removed);

/* Since the process began: compiles, loads from disk, hits in memory, entries dropped as corrupt, failed writes. */
typedef struct qn_cache_counts {
  size_t size; /* sizeof(qn_cache_counts), set by the caller */
  uint64_t compiled, from_disk, from_memory, dropped, unwritten;
} qn_cache_counts;
QN_API qn_status qn_cache_count(qn_cache_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
