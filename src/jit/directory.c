/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c - the cache's directory. Code is loaded from it, so a directory that others can write to, or that is
 * somebody else's, is refused. It is opened anew for each use: compiles are rare, and an open file number would be one
 * more thing that fork, exec and unmounting have to reckon with. */
#include "jit/directory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

qn_status qn_directory_find(const qn_directory_place *place, qn_option option, char *path, size_t bytes)
{
  qn_try(qn_option_text(option, path, bytes));
  if (path[0]) return QN_OK;
  const char *base = secure_getenv(place->variable), *home = secure_getenv("HOME");
  int length;
  if (base && base[0] == '/') /* a relative one is to be ignored, says its specification */
    length = snprintf(path, bytes, "%s/%s", base, place->below);
  else if (home && home[0] == '/')
    length = snprintf(path, bytes, "%s/%s", home, place->home);
  else
    return qn_fail(QN_UNSUPPORTED, "%s: it has no place: none of %s, %s, HOME is a path", place->what,
                   qn_option_at(option)->variable, place->variable);
  if (length < 0 || (size_t)length >= bytes)
    return qn_fail(QN_UNSUPPORTED, "%s: the path of its directory has %d bytes, too many", place->what, length);
  return QN_OK;
}

qn_status qn_directory_path(char path[QN_CACHE_PATH_BYTES])
{
  static const qn_directory_place place = {"cache", "XDG_CACHE_HOME", "quern", ".cache/quern"};
  char text[16];
  qn_try(qn_option_text(QN_OPTION_CACHE, text, sizeof text));
  if (!strcmp(text, "off")) return qn_fail(QN_UNSUPPORTED, "cache: it is switched off (QUERN_CACHE=off)");
  return qn_directory_find(&place, QN_OPTION_CACHE_DIR, path, QN_CACHE_PATH_BYTES);
}

static int make_with_parents(char *path)
{
  for (char *at = path + 1; (at = strchr(at, '/')); at++) {
    *at = 0;
    int made = mkdir(path, 0700);
    *at = '/';
    if (made && errno != EEXIST) return made;
  }
  int made = mkdir(path, 0700);
  return made && errno == EEXIST ? 0 : made;
}

qn_status qn_directory_open_private(const char *what, bool make, char *path, int *directory)
{
  struct stat is;
  *directory = -1;
  int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT && !make) return QN_OK;
  if (file < 0 && errno == ENOENT && make_with_parents(path) == 0)
    file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0 || fstat(file, &is)) {
    int error = errno;
    if (file >= 0) close(file);
    return qn_fail(QN_UNSUPPORTED, "%s: directory %s cannot be used: %s", what, path, strerror(error));
  }
  if (is.st_uid != geteuid() || (is.st_mode & (S_IWGRP | S_IWOTH))) {
    close(file);
    if (is.st_uid != geteuid())
      return qn_fail(QN_UNSUPPORTED, "%s: directory %s is refused: it belongs to user %lu, not to %lu", what, path,
                     (unsigned long)is.st_uid, (unsigned long)geteuid());
    return qn_fail(QN_UNSUPPORTED,
                   "%s: directory %s is refused: others may write to it (mode %03o); chmod 700 mends it", what, path,
                   (unsigned)is.st_mode & 0777u);
  }
  *directory = file;
  return QN_OK;
}

qn_status qn_directory_open(bool make, char path[QN_CACHE_PATH_BYTES], int *directory)
{
  *directory = -1;
  qn_try(qn_directory_path(path));
  return qn_directory_open_private("cache", make, path, directory);
}

static int by_use(const void *a, const void *b)
{
  const qn_directory_file *x = a, *y = b;
  if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
  if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
  return strcmp(x->name, y->name);
}

static qn_status append(qn_directory_file **files, size_t *n, const char *name, const struct stat *is)
{
  if ((*n & (*n - 1)) == 0) { /* full at every power of 2 */
    qn_directory_file *more = qn_reallocate(*files, (*n ? 2 * *n : 1) * sizeof *more);
    if (!more) return qn_fail(QN_NO_MEMORY, "cache: no memory for a list of %zu files", *n + 1);
    *files = more;
  }
  qn_directory_file *file = &(*files)[(*n)++];
  *file = (qn_directory_file){.bytes = (int64_t)is->st_size, .used = is->st_mtim};
  snprintf(file->name, sizeof file->name, "%s", name);
  return QN_OK;
}

qn_status qn_directory_list(int directory, bool temporary, qn_directory_file **files, size_t *n)
{
  qn_status status = QN_OK;
  struct stat is;
  *files = NULL;
  *n = 0;
  int own = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *listing = own < 0 ? NULL : fdopendir(own);
  if (!listing) {
    int error = errno;
    if (own >= 0) close(own);
    return qn_fail(QN_IO_ERROR, "cache: its directory cannot be listed: %s", strerror(error));
  }
  for (struct dirent *entry; status == QN_OK && (entry = readdir(listing));) {
    if (strlen(entry->d_name) >= QN_ENTRY_NAME_BYTES) continue;
    if (!(temporary ? qn_entry_is_temporary(entry->d_name) : qn_entry_is_name(entry->d_name))) continue;
    if (!fstatat(directory, entry->d_name, &is, AT_SYMLINK_NOFOLLOW)) status = append(files, n, entry->d_name, &is);
  }
  closedir(listing);
  if (status == QN_OK && *n) qsort(*files, *n, sizeof **files, by_use);
  if (status != QN_OK) {
    qn_release(*files);
    *files = NULL;
    *n = 0;
  }
  return status;
}

size_t qn_directory_drop_stale(int directory)
{
  qn_directory_file *files;
  size_t n, dropped = 0;
  if (qn_directory_list(directory, true, &files, &n) != QN_OK) return 0;
  for (size_t k = 0; k < n; k++)
    if (qn_entry_is_stale(files[k].name, files[k].used.tv_sec)) dropped += !unlinkat(directory, files[k].name, 0);
  qn_release(files);
  return dropped;
}

void qn_directory_shrink(int directory, int64_t most, const char *keep)
{
  qn_directory_file *files;
  size_t n;
  int64_t total = 0;
  if (qn_directory_list(directory, false, &files, &n) != QN_OK) return;
  for (size_t k = 0; k < n; k++)
    if (__builtin_add_overflow(total, files[k].bytes, &total)) total = INT64_MAX; /* sizes can be lies */
  bool over = total > most;
  for (size_t k = 0; k < n && total > most; k++) {
    if (!strcmp(files[k].name, keep)) continue;
    if (!unlinkat(directory, files[k].name, 0)) total -= files[k].bytes;
  }
  if (over) qn_directory_drop_stale(directory);
  qn_release(files);
}
