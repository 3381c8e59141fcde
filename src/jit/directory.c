/* SPDX-License-Identifier: Apache-2.0 */
/* directory.c - the cache's directory. Code is loaded from it, so a directory that is somebody else's, or that others
 * can write to or exchange for another one, is refused. It is opened anew for each use: compiles are rare, and an open
 * file number would be one more thing that fork, exec and unmounting have to reckon with. */
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

static qn_status path_in_force(char path[QN_CACHE_PATH_BYTES])
{
  static const qn_directory_place place = {"cache", "XDG_CACHE_HOME", "quern", ".cache/quern"};
  char text[16];
  qn_try(qn_option_text(QN_OPTION_CACHE, text, sizeof text));
  if (!strcmp(text, "off")) return qn_fail(QN_UNSUPPORTED, "cache: it is switched off (QUERN_CACHE=off)");
  return qn_directory_find(&place, QN_OPTION_CACHE_DIR, path, QN_CACHE_PATH_BYTES);
}

/* The way to a directory, part by part. A part that somebody else could exchange would lead anywhere. */
typedef struct walk {
  const char *what, *path;
  bool make;
  int at, links;                  /* at: a file that stands for where we are; AT_FDCWD: the root, whose parts begin / */
  char rest[QN_CACHE_PATH_BYTES]; /* parts still to go */
} walk;

static qn_status cannot(const walk *w, int error)
{
  return qn_fail(QN_UNSUPPORTED, "%s: directory %s cannot be used: %s", w->what, w->path, strerror(error));
}

static bool is_trusted(uid_t user) { return user == 0 || user == geteuid(); }

static bool others_may_write(const struct stat *is) { return is->st_mode & (S_IWGRP | S_IWOTH); }

/* The root is named and never opened: qemu's user mode has another one for programs that open it. */
static bool look(const walk *w, struct stat *is) { return w->at >= 0 ? !fstat(w->at, is) : !stat("/", is); }

/* In a sticky one others cannot exchange what is not theirs. `name`: of the part, for the sentence. */
static qn_status judge_parent(const walk *w, const char *name)
{
  struct stat is;
  if (!look(w, &is)) return cannot(w, errno);
  if (!is_trusted(is.st_uid))
    return qn_fail(QN_UNSUPPORTED, "%s: directory %s is refused: %s on the way to it belongs to user %lu", w->what,
                   w->path, name, (unsigned long)is.st_uid);
  if (others_may_write(&is) && !(is.st_mode & S_ISVTX))
    return qn_fail(QN_UNSUPPORTED, "%s: directory %s is refused: others may write to %s on the way to it (mode %03o)",
                   w->what, w->path, name, (unsigned)is.st_mode & 0777u);
  return QN_OK;
}

static qn_status to_root(walk *w)
{
  if (w->at >= 0) close(w->at);
  w->at = AT_FDCWD;
  return judge_parent(w, "/");
}

/* A link in the place of a part, ours or root's, is put in its place in the rest. The last part must be none. */
static qn_status follow(walk *w, const char *name, const char *rest)
{
  struct stat is;
  char to[QN_CACHE_PATH_BYTES];
  if (fstatat(w->at, name, &is, AT_SYMLINK_NOFOLLOW)) return cannot(w, errno);
  if (!S_ISLNK(is.st_mode)) return cannot(w, ENOTDIR);
  if (!*rest)
    return qn_fail(QN_UNSUPPORTED, "%s: directory %s is refused: it is a link; name what it points to", w->what,
                   w->path);
  if (!is_trusted(is.st_uid))
    return qn_fail(QN_UNSUPPORTED, "%s: directory %s is refused: link %s on the way to it belongs to user %lu", w->what,
                   w->path, name, (unsigned long)is.st_uid);
  if (++w->links > 40) return cannot(w, ELOOP);
  const ssize_t n = readlinkat(w->at, name, to, sizeof to);
  if (n < 0) return cannot(w, errno);
  if ((size_t)n + 1 + strlen(rest) >= sizeof to) return cannot(w, ENAMETOOLONG);
  to[n] = '/';
  strcpy(to + n + 1, rest);
  strcpy(w->rest, to);
  return to[0] == '/' ? to_root(w) : QN_OK;
}

static qn_status enter(walk *w, const char *name, const char *rest, bool *absent)
{
  const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
  int file = openat(w->at, name, flags);
  if (file < 0 && errno == ENOENT && w->make && (!mkdirat(w->at, name, 0700) || errno == EEXIST))
    file = openat(w->at, name, flags);
  *absent = file < 0 && errno == ENOENT && !w->make;
  if (*absent) return QN_OK;
  if (file < 0 && (errno == ENOTDIR || errno == ELOOP)) return follow(w, name, rest);
  if (file < 0) return cannot(w, errno);
  if (w->at >= 0) close(w->at);
  w->at = file;
  memmove(w->rest, rest, strlen(rest) + 1);
  return *rest ? judge_parent(w, name) : QN_OK;
}

/* To the end of the rest. */
static qn_status go(walk *w, bool *absent)
{
  *absent = false;
  qn_try(to_root(w));
  for (char name[QN_CACHE_PATH_BYTES]; !*absent;) {
    const char *from = w->rest + strspn(w->rest, "/");
    const size_t length = strcspn(from, "/");
    if (!length) return QN_OK;
    snprintf(name, sizeof name, "%s%.*s", w->at >= 0 ? "" : "/", (int)length, from);
    qn_try(enter(w, name, from + length + strspn(from + length, "/"), absent));
  }
  return QN_OK;
}

/* From the root on. */
static qn_status begin(walk *w)
{
  char here[QN_CACHE_PATH_BYTES] = "";
  if (w->path[0] != '/' && !getcwd(here, sizeof here)) return cannot(w, errno);
  const int length = snprintf(w->rest, sizeof w->rest, "%s/%s", here, w->path);
  return length < 0 || (size_t)length >= sizeof w->rest ? cannot(w, ENAMETOOLONG) : QN_OK;
}

static qn_status judge_end(const walk *w)
{
  struct stat is;
  if (!look(w, &is)) return cannot(w, errno);
  if (is.st_uid != geteuid())
    return qn_fail(QN_UNSUPPORTED, "%s: directory %s is refused: it belongs to user %lu, not to %lu", w->what, w->path,
                   (unsigned long)is.st_uid, (unsigned long)geteuid());
  if (others_may_write(&is))
    return qn_fail(QN_UNSUPPORTED,
                   "%s: directory %s is refused: others may write to it (mode %03o); chmod 700 mends it", w->what,
                   w->path, (unsigned)is.st_mode & 0777u);
  return QN_OK;
}

qn_status qn_directory_open_private(const char *what, bool make, const char *path, int *directory)
{
  walk w = {.what = what, .path = path, .make = make, .at = AT_FDCWD};
  bool absent = false;
  *directory = -1;
  qn_status status = begin(&w);
  if (status == QN_OK) status = go(&w, &absent);
  if (status == QN_OK && !absent) status = judge_end(&w);
  if (status == QN_OK && !absent &&
      (*directory = openat(w.at, w.at >= 0 ? "." : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
    status = cannot(&w, errno);
  if (w.at >= 0) close(w.at);
  return status;
}

qn_status qn_directory_open(bool make, char path[QN_CACHE_PATH_BYTES], int *directory)
{
  *directory = -1;
  qn_try(path_in_force(path));
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
