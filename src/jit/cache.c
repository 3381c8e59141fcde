/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - the store on disk: find by key, keep, look through, empty, count. Whatever goes wrong with it costs a
 * compile and is said once in the log; it is never the result of a call that wanted a kernel. */
#include "jit/cache.h"
#include "jit/directory.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
  atomic_uint_fast64_t compiled, from_disk, from_memory, dropped, unwritten;
} counts;

static void count_one(atomic_uint_fast64_t *counter) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

static const qn_cache_store *replaced;

void qn_cache_replace(const qn_cache_store *store) { replaced = store; }

void qn_cache_note_compile(void) { count_one(&counts.compiled); }

void qn_cache_note_memory_hit(void) { count_one(&counts.from_memory); }

qn_status qn_cache_count(qn_cache_counts *out)
{
  qn_require(out, "cache: the place for the counts is NULL");
  qn_require(out->size == sizeof *out, "cache: counts.size is %zu, sizeof(qn_cache_counts) is %zu", out->size,
             sizeof *out);
  out->compiled = atomic_load(&counts.compiled);
  out->from_disk = atomic_load(&counts.from_disk);
  out->from_memory = atomic_load(&counts.from_memory);
  out->dropped = atomic_load(&counts.dropped);
  out->unwritten = atomic_load(&counts.unwritten);
  return QN_OK;
}

/* Once for each state of the options: a full disk should not fill the log as well. */
static void complain(const char *path, const char *why)
{
  static atomic_uint told; /* generation + 1 */
  unsigned now = qn_option_generation() + 1;
  if (atomic_exchange(&told, now) == now) return;
  qn_log(QN_LOG_WARNING, "%s%s%s: compiled kernels are not kept, which costs time only", path, path[0] ? ": " : "",
         why);
}

/* For the calls that must not fail: -1 where there is no usable directory, said in the log unless it is just off. */
static int open_quietly(bool make, char path[QN_CACHE_PATH_BYTES])
{
  char text[16];
  int directory = -1;
  if (qn_option_text(QN_OPTION_CACHE, text, sizeof text) == QN_OK && !strcmp(text, "off")) return -1;
  if (qn_directory_open(make, path, &directory) == QN_OK) return directory;
  if (make) count_one(&counts.unwritten);
  complain("", qn_last_error());
  return -1;
}

qn_status qn_cache_get(const char *key, size_t key_bytes, void **data, size_t *bytes)
{
  char path[QN_CACHE_PATH_BYTES], name[QN_ENTRY_NAME_BYTES];
  qn_entry entry;
  *data = NULL;
  *bytes = 0;
  if (replaced) return replaced->get(key, key_bytes, data, bytes);
  int directory = open_quietly(false, path);
  if (directory < 0) return QN_OK;
  qn_entry_name(key, key_bytes, name);
  qn_entry_state state = qn_entry_read(directory, name, true, &entry);
  if (state == QN_ENTRY_INVALID) {
    bool gone = !unlinkat(directory, name, 0);
    count_one(&counts.dropped);
    qn_log(QN_LOG_WARNING, "%s/%s: it does not verify and is %s", path, name, gone ? "dropped" : "passed over");
  }
  close(directory);
  if (state != QN_ENTRY_VALID) return QN_OK;
  if (entry.key_bytes != key_bytes || memcmp(entry.key, key, key_bytes)) { /* another key with the same hash */
    qn_release(entry.storage);
    return QN_OK;
  }
  *bytes = entry.payload_bytes;
  *data = memmove(entry.storage, entry.payload, entry.payload_bytes);
  count_one(&counts.from_disk);
  return QN_OK;
}

void qn_cache_put(const char *key, size_t key_bytes, const void *data, size_t bytes)
{
  char path[QN_CACHE_PATH_BYTES], name[QN_ENTRY_NAME_BYTES], why[128];
  int64_t most;
  size_t file_bytes = qn_entry_file_bytes(key_bytes, bytes);
  if (replaced) {
    replaced->put(key, key_bytes, data, bytes);
    return;
  }
  int directory = open_quietly(true, path);
  if (directory < 0) return;
  bool written = false;
  if (qn_option_bytes(QN_OPTION_CACHE_BYTES, &most) != QN_OK)
    snprintf(why, sizeof why, "%s", qn_last_error());
  else if (file_bytes > (uint64_t)most)
    snprintf(why, sizeof why, "a kernel of %zu bytes is more than QUERN_CACHE_BYTES, %lld", file_bytes,
             (long long)most);
  else if (!(written = qn_entry_write(directory, key, key_bytes, data, bytes)))
    snprintf(why, sizeof why, "an entry could not be written: %s", strerror(errno));
  if (written) {
    qn_entry_name(key, key_bytes, name);
    qn_directory_shrink(directory, most, name);
  } else {
    count_one(&counts.unwritten);
    complain(path, why);
  }
  close(directory);
}

/* Paths that were handed out stay: there are as many as directories were in force. */
typedef struct known_path {
  struct known_path *next;
  char text[];
} known_path;

static qn_status keep_path(const char *text, const char **kept)
{
  static _Atomic(known_path *) known;
  for (known_path *k = atomic_load(&known); k; k = k->next)
    if (!strcmp(k->text, text)) {
      *kept = k->text;
      return QN_OK;
    }
  known_path *made;
  qn_try(qn_try_allocate(&made, sizeof *made + strlen(text) + 1, "cache: its directory's path"));
  strcpy(made->text, text);
  made->next = atomic_load(&known);
  while (!atomic_compare_exchange_weak(&known, &made->next, made)) continue;
  *kept = made->text;
  return QN_OK;
}

qn_status qn_cache_directory(const char **path)
{
  char text[QN_CACHE_PATH_BYTES];
  int directory;
  qn_require(path, "cache: the place for the directory's path is NULL");
  *path = NULL;
  qn_try(qn_directory_open(false, text, &directory));
  if (directory >= 0) close(directory);
  return keep_path(text, path);
}

/* One file as the visitor sees it: the summary is the key's first line, cut to fit. */
static qn_status show(int directory, const qn_directory_file *file,
                      int (*visit)(void *user, const qn_cache_entry *entry), void *user, int *stop)
{
  char summary[512] = "";
  qn_entry entry;
  qn_entry_state state = qn_entry_read(directory, file->name, false, &entry);
  if (state == QN_ENTRY_ABSENT) return QN_OK; /* gone since the directory was listed */
  if (state == QN_ENTRY_TROUBLE) return qn_fail(QN_IO_ERROR, "cache: %s could not be read just now", file->name);
  if (state == QN_ENTRY_VALID) {
    size_t length = 0;
    while (length < entry.key_bytes && length + 1 < sizeof summary && entry.key[length] != '\n') length++;
    memcpy(summary, entry.key, length);
    summary[length] = 0;
    qn_release(entry.storage);
  }
  const qn_cache_entry seen = {file->name, summary, file->bytes, (int64_t)file->used.tv_sec, state == QN_ENTRY_VALID};
  *stop = visit(user, &seen);
  return QN_OK;
}

qn_status qn_cache_each(int (*visit)(void *user, const qn_cache_entry *entry), void *user)
{
  char path[QN_CACHE_PATH_BYTES];
  int directory, stop = 0;
  qn_directory_file *files;
  size_t n;
  qn_require(visit, "cache: visit is NULL");
  qn_try(qn_directory_open(false, path, &directory));
  if (directory < 0) return QN_OK;
  qn_status status = qn_directory_list(directory, false, &files, &n);
  for (size_t k = 0; k < n && !stop && status == QN_OK; k++) status = show(directory, &files[k], visit, user, &stop);
  qn_release(files);
  close(directory);
  return status;
}

qn_status qn_cache_clear(int only_invalid, size_t *removed)
{
  char path[QN_CACHE_PATH_BYTES];
  int directory;
  qn_directory_file *files;
  size_t n, gone = 0;
  if (removed) *removed = 0;
  qn_try(qn_directory_open(false, path, &directory));
  if (directory < 0) return QN_OK;
  qn_status status = qn_directory_list(directory, false, &files, &n);
  for (size_t k = 0; k < n; k++) {
    qn_entry entry;
    qn_entry_state state = only_invalid ? qn_entry_read(directory, files[k].name, false, &entry) : QN_ENTRY_INVALID;
    if (state == QN_ENTRY_VALID) qn_release(entry.storage);
    if (state != QN_ENTRY_INVALID) continue;
    if (!unlinkat(directory, files[k].name, 0))
      gone++;
    else if (errno != ENOENT)
      status = qn_fail(QN_IO_ERROR, "cache: %s/%s cannot be removed: %s", path, files[k].name, strerror(errno));
  }
  qn_release(files);
  if (status == QN_OK || n) gone += qn_directory_drop_stale(directory);
  close(directory);
  if (removed) *removed = gone;
  return status;
}
