/* SPDX-License-Identifier: Apache-2.0 */
/* cache_use.h - the cache on disk as tests use it: a fresh place, put, get, and what was counted. */
#ifndef QN_TESTS_CACHE_USE_H
#define QN_TESTS_CACHE_USE_H
#include "core/core.h"
#include "jit/cache.h"
#include "scratch.h"

enum { PAYLOAD_BYTES = 100 };
static const char key[] = "kernel for a target\nand the rest of the key";
static const char payload[PAYLOAD_BYTES] = "a payload of a hundred bytes, most of them zero";

static inline qn_cache_counts counts(void)
{
  qn_cache_counts c = {.size = sizeof c};
  qn_cache_count(&c);
  return c;
}

/* A new place for the cache; it is chosen, not made. */
static inline const char *fresh(void)
{
  static int n;
  static char path[512];
  snprintf(path, sizeof path, "%s/cache-%d", scratch, n++);
  qn_option_set("cache_dir", path);
  return path;
}

/* Files of a cache's directory beside its secret. */
static inline int entries_in(const char *directory)
{
  char secret[600];
  snprintf(secret, sizeof secret, "%s/secret", directory);
  return files_in(directory) - !access(secret, F_OK);
}

static inline void put(const char *k, const void *data, size_t bytes) { qn_cache_put(k, strlen(k), data, bytes); }

/* 1: found and right; 0: not found; -1: wrong, or a status. */
static inline int get(const char *k, const void *want, size_t want_bytes)
{
  void *data = (void *)1;
  size_t bytes = 1;
  if (qn_cache_get(k, strlen(k), &data, &bytes) != QN_OK) return -1;
  int found = data ? bytes == want_bytes && !memcmp(data, want, bytes) ? 1 : -1 : 0;
  qn_release(data);
  return found;
}

static inline int remember_name(void *user, const qn_cache_entry *entry)
{
  snprintf(user, 64, "%s", entry->file);
  return 1;
}
#endif
