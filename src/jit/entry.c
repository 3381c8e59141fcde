/* SPDX-License-Identifier: Apache-2.0 */
/* entry.c - one file of the cache. A header, the whole key, the payload; a hash over all but itself and the magic,
 * keyed by the directory's secret, so that a file from elsewhere does not verify. The file is written under a temporary
 * name and renamed, so that a reader sees the old one, the new one or none. It is not synchronised to the disk: after a
 * power cut the hash tells a torn file, and losing one costs a compile. Which files there should be is not this file's
 * business. */
#include "jit/entry.h"
#include "core/file.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* As on disk; homes are shared between machines, but an entry is for one architecture, which is in its key, so it is
 * in that one's byte order (another's does not verify). */
typedef struct header {
  char magic[8];
  uint64_t hash_low, hash_high; /* of everything behind them */
  uint64_t version, key_bytes, payload_bytes;
} header;

enum { VERSION = 2, TOUCH_SECONDS = 3600, STALE_SECONDS = 3600, SECRET_BYTES = 16 };
static const char magic[8] = {'q', 'u', 'e', 'r', 'n', 'k', 'r', '\n'};
static const off_t most_file_bytes = (off_t)1 << 30; /* no kernel is that large, but a sparse file is soon made */

#define ENTRY_SUFFIX ".qn"
#define TEMPORARY_PREFIX "tmp."
#define SECRET_NAME "secret"

void qn_entry_name(const char *key, size_t key_bytes, char name[QN_ENTRY_NAME_BYTES])
{
  qn_hash128 hash = qn_hash(key, key_bytes);
  snprintf(name, QN_ENTRY_NAME_BYTES, "%016llx%016llx" ENTRY_SUFFIX, (unsigned long long)hash.high,
           (unsigned long long)hash.low);
}

bool qn_entry_is_name(const char *name)
{
  return strspn(name, "0123456789abcdef") == 32 && !strcmp(name + 32, ENTRY_SUFFIX);
}

size_t qn_entry_file_bytes(size_t key_bytes, size_t payload_bytes)
{
  size_t bytes;
  if (__builtin_add_overflow(key_bytes, payload_bytes, &bytes)) return SIZE_MAX;
  return __builtin_add_overflow(bytes, sizeof(header), &bytes) ? SIZE_MAX : bytes;
}

static qn_hash128 hash_of(const uint64_t secret[2], const char *file, size_t bytes)
{
  size_t skip = offsetof(header, version);
  return qn_hash_keyed(secret, file + skip, bytes - skip);
}

/* Every number in the header is held against the file's size before it is used. */
static bool verify(const uint64_t secret[2], char *file, size_t bytes, qn_entry *entry)
{
  header h;
  if (bytes < sizeof h) return false;
  memcpy(&h, file, sizeof h);
  if (memcmp(h.magic, magic, sizeof magic) || h.version != VERSION) return false;
  if (h.key_bytes > bytes - sizeof h || h.payload_bytes != bytes - sizeof h - h.key_bytes) return false;
  qn_hash128 hash = hash_of(secret, file, bytes);
  if (hash.low != h.hash_low || hash.high != h.hash_high) return false;
  *entry =
      (qn_entry){file, file + sizeof h, file + sizeof h + h.key_bytes, (size_t)h.key_bytes, (size_t)h.payload_bytes};
  return true;
}

/* A regular file of ours that nobody else may write to (no link, pipe or device: opening those could wait or lead
 * elsewhere). -1: *state says why. */
static int open_entry(int directory, const char *name, struct stat *is, qn_entry_state *state)
{
  int file = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    bool trouble = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EINTR || errno == EIO;
    *state = errno == ENOENT ? QN_ENTRY_ABSENT : trouble ? QN_ENTRY_TROUBLE : QN_ENTRY_INVALID;
    return -1;
  }
  if (!fstat(file, is) && S_ISREG(is->st_mode) && is->st_uid == geteuid() && !(is->st_mode & (S_IWGRP | S_IWOTH)) &&
      is->st_size <= most_file_bytes)
    return file;
  close(file);
  *state = QN_ENTRY_INVALID;
  return -1;
}

/* Nobody but its owner can read it. */
static qn_entry_state read_secret(int directory, uint64_t secret[2])
{
  struct stat is;
  qn_entry_state state = QN_ENTRY_INVALID;
  int file = open_entry(directory, SECRET_NAME, &is, &state);
  if (file < 0) return state;
  state = !(is.st_mode & (S_IRWXG | S_IRWXO)) && is.st_size == SECRET_BYTES && qn_read_all(file, secret, SECRET_BYTES)
              ? QN_ENTRY_VALID
              : QN_ENTRY_INVALID;
  close(file);
  return state;
}

static bool store(int directory, const char *name, const void *data, size_t bytes, bool instead);

/* The directory's secret, made where there is none that will do. Of two writers that make one at once, one's stays. */
static bool find_secret(int directory, uint64_t secret[2])
{
  qn_entry_state state = read_secret(directory, secret);
  for (int turn = 0; turn < 2 && (state == QN_ENTRY_ABSENT || state == QN_ENTRY_INVALID); turn++) {
    uint64_t made[2];
    if (state == QN_ENTRY_INVALID && unlinkat(directory, SECRET_NAME, 0)) return false;
    if (getrandom(made, sizeof made, 0) != sizeof made) return false;
    if (!store(directory, SECRET_NAME, made, sizeof made, false) && errno != EEXIST) return false;
    state = read_secret(directory, secret);
  }
  return state == QN_ENTRY_VALID;
}

/* Under the name of its own key, too: a whole entry under another's name would never be found. */
static bool is_named(const qn_entry *entry, const char *name)
{
  char right[QN_ENTRY_NAME_BYTES];
  qn_entry_name(entry->key, entry->key_bytes, right);
  return !strcmp(name, right);
}

qn_entry_state qn_entry_read(int directory, const char *name, bool use, qn_entry *entry)
{
  struct stat is;
  uint64_t secret[2];
  qn_entry_state state = read_secret(directory, secret);
  if (state == QN_ENTRY_TROUBLE) return state;
  const bool keyed = state == QN_ENTRY_VALID;
  int file = open_entry(directory, name, &is, &state);
  if (file < 0) return state;
  char *at = qn_allocate((size_t)is.st_size);
  if (!at)
    state = QN_ENTRY_TROUBLE;
  else
    state = keyed && qn_read_all(file, at, (size_t)is.st_size) && verify(secret, at, (size_t)is.st_size, entry) &&
                    is_named(entry, name)
                ? QN_ENTRY_VALID
                : QN_ENTRY_INVALID;
  if (state == QN_ENTRY_VALID && use && time(NULL) - is.st_mtime > TOUCH_SECONDS)
    (void)futimens(file, NULL); /* on a read-only disk the order of eviction suffers, nothing else */
  close(file);
  if (state != QN_ENTRY_VALID) qn_release(at);
  return state;
}

/* A file system over a limit of the process's (RLIMIT_FSIZE) answers with a deadly signal as well as an error: it is
 * held back and taken away. */
static bool write_quietly(int file, const void *data, size_t bytes)
{
  sigset_t set, old, pending;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  sigpending(&pending);
  bool ours = !sigismember(&pending, SIGXFSZ) && !pthread_sigmask(SIG_BLOCK, &set, &old);
  bool written = qn_write_all(file, data, bytes);
  int error = errno;
  if (ours) {
    if (!written && error == EFBIG) sigtimedwait(&set, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
  }
  errno = error;
  return written;
}

/* `instead`: in the place of what is there; else that stays, and the error is EEXIST. */
static bool store(int directory, const char *name, const void *data, size_t bytes, bool instead)
{
  static atomic_uint count;
  char temporary[QN_ENTRY_NAME_BYTES];
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t); /* with the process's number: in containers several have the same */
  snprintf(temporary, sizeof temporary, TEMPORARY_PREFIX "%ld.%lld%09ld%u" ENTRY_SUFFIX, (long)getpid(),
           (long long)t.tv_sec, t.tv_nsec, atomic_fetch_add(&count, 1));
  int file = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  bool done = write_quietly(file, data, bytes);
  int error = errno;
  if (close(file) && done) {
    error = errno;
    done = false;
  }
  if (done &&
      (instead ? renameat(directory, temporary, directory, name) : linkat(directory, temporary, directory, name, 0))) {
    error = errno;
    done = false;
  }
  if (!done || !instead) unlinkat(directory, temporary, 0);
  errno = error;
  return done;
}

bool qn_entry_write(int directory, const char *key, size_t key_bytes, const void *payload, size_t payload_bytes)
{
  char name[QN_ENTRY_NAME_BYTES];
  header h = {.version = VERSION, .key_bytes = key_bytes, .payload_bytes = payload_bytes};
  uint64_t secret[2];
  size_t bytes = qn_entry_file_bytes(key_bytes, payload_bytes);
  if (!find_secret(directory, secret)) return false;
  char *file = bytes == SIZE_MAX ? NULL : qn_allocate(bytes);
  if (!file) {
    errno = ENOMEM;
    return false;
  }
  memcpy(h.magic, magic, sizeof magic);
  memcpy(file, &h, sizeof h);
  memcpy(file + sizeof h, key, key_bytes);
  if (payload_bytes) memcpy(file + sizeof h + key_bytes, payload, payload_bytes);
  qn_hash128 hash = hash_of(secret, file, bytes);
  memcpy(file + offsetof(header, hash_low), &hash.low, sizeof hash.low);
  memcpy(file + offsetof(header, hash_high), &hash.high, sizeof hash.high);
  qn_entry_name(key, key_bytes, name);
  bool done = store(directory, name, file, bytes, true);
  int error = errno;
  qn_release(file);
  errno = error;
  return done;
}

/* The writer's process number in "tmp.PID.TIME.qn", 0 for any other name. */
static long writer_of(const char *name)
{
  char *end;
  if (strncmp(name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX))) return 0;
  const char *digits = name + strlen(TEMPORARY_PREFIX);
  if (*digits < '1' || *digits > '9') return 0;
  errno = 0;
  long pid = strtol(digits, &end, 10);
  if (errno || pid > INT32_MAX || *end != '.') return 0;
  size_t n = strspn(end + 1, "0123456789");
  return n && !strcmp(end + 1 + n, ENTRY_SUFFIX) ? pid : 0;
}

bool qn_entry_is_temporary(const char *name) { return writer_of(name) > 0; }

bool qn_entry_is_stale(const char *temporary_name, time_t modified)
{
  long pid = writer_of(temporary_name);
  if (pid <= 0) return false;
  return time(NULL) - modified > STALE_SECONDS || (kill((pid_t)pid, 0) && errno == ESRCH);
}
