/* SPDX-License-Identifier: Apache-2.0 */
/* cache_store.c - what the cache finds in its own directory: whole, torn, flipped and forged entries, links, pipes.
 * Nothing of it may give wrong bytes, hang, or fail a caller. The directory itself is cache_place.c's business. */
#include "cache_use.h"
#include "test.h"
#include <signal.h>

enum { HEADER_BYTES = 48 };

static const char *directory_in_force(void)
{
  const char *directory = "";
  qn_cache_directory(&directory);
  return directory;
}

/* The path of the only entry of the cache in force, made by one put. */
static const char *one_entry(void)
{
  static char path[1024];
  char name[64] = "";
  const char *directory = fresh();
  put(key, payload, sizeof payload);
  qn_cache_each(remember_name, name);
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static size_t read_entry(const char *path, char *bytes, size_t capacity)
{
  FILE *file = fopen(path, "rb");
  size_t n = file ? fread(bytes, 1, capacity, file) : 0;
  if (file) fclose(file);
  return n;
}

static void keeps_and_finds(void)
{
  struct stat is;
  const char *directory = fresh();
  qn_cache_counts before = counts();
  check(get(key, payload, sizeof payload) == 0 && access(directory, F_OK), "looking makes no directory");
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 1, "what was put is found");
  put("an empty one", "", 0);
  check(get("an empty one", "", 0) == 1, "and an empty payload");
  put(key, "other", 5);
  check(get(key, "other", 5) == 1, "a second put takes the first one's place");
  check(!stat(directory, &is) && (is.st_mode & 07777) == 0700, "the directory's mode is %o", is.st_mode & 07777u);
  check(entries_in(directory) == 2, "two entries, %d files", entries_in(directory));
  qn_cache_counts after = counts();
  check(after.from_disk - before.from_disk == 3 && after.dropped == before.dropped &&
            after.unwritten == before.unwritten,
        "counted: 3 loads, nothing dropped or unwritten");
  char deep[512];
  snprintf(deep, sizeof deep, "%s/a/b/c", scratch);
  qn_option_set("cache_dir", deep);
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 1, "missing parents are made");
}

/* Writes these bytes as the entry; whatever they are, the get finds nothing and drops them; a put makes it good. */
static unsigned drops(const char *path, const void *bytes, size_t n)
{
  uint64_t before = counts().dropped;
  unsigned wrong = 0;
  write_file(path, bytes, n, 0600);
  wrong += get(key, payload, sizeof payload) != 0;
  wrong += counts().dropped != before + 1;
  wrong += !access(path, F_OK);
  return wrong;
}

static void damaged_entries_are_dropped(void)
{
  char good[1024], bad[1024];
  const char *path = one_entry();
  size_t n = read_entry(path, good, sizeof good);
  unsigned wrong = 0;
  check(n == HEADER_BYTES + strlen(key) + PAYLOAD_BYTES, "an entry is header, key and payload: %zu bytes", n);
  for (size_t length = 0; length < n; length++) wrong += drops(path, good, length);
  check(!wrong, "all %zu truncations are dropped: %u wrong", n, wrong);
  for (size_t bit = wrong = 0; bit < 8 * n; bit++) {
    memcpy(bad, good, n);
    bad[bit / 8] = (char)(bad[bit / 8] ^ 1 << bit % 8);
    wrong += drops(path, bad, n);
  }
  check(!wrong, "all %zu flips of one bit are dropped: %u wrong", 8 * n, wrong);
  memcpy(bad, good, n);
  bad[n] = 0;
  check(!drops(path, bad, n + 1), "an entry with a byte too many is dropped");
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 1, "and is made good by the next put");
}

/* As the directory keeps it for its entries' hashes. */
static void read_secret(const char *directory, uint64_t secret[2])
{
  char path[1024];
  snprintf(path, sizeof path, "%s/secret", directory);
  if (read_entry(path, (char *)secret, 16) != 16) check(false, "%s has 16 bytes", path);
}

/* The hash is right and the lengths lie: their sum fits by wrapping round, or shifts the border. */
static void lying_lengths_are_dropped(void)
{
  char good[1024], bad[1024];
  const char *path = one_entry();
  size_t n = read_entry(path, good, sizeof good);
  const uint64_t body = n - HEADER_BYTES;
  uint64_t secret[2];
  read_secret(directory_in_force(), secret);
  const uint64_t lies[][2] = {
      {UINT64_MAX, body + 1},   {body + 1, UINT64_MAX}, {1ull << 63, (1ull << 63) + body}, {body, 1},
      {UINT64_MAX, UINT64_MAX}, {0, body - 1},          {strlen(key), PAYLOAD_BYTES - 1}};
  unsigned wrong = 0;
  for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
    memcpy(bad, good, n);
    memcpy(bad + 32, lies[k], 16);
    qn_hash128 hash = qn_hash_keyed(secret, bad + 24, n - 24);
    memcpy(bad + 8, &hash, 16);
    wrong += drops(path, bad, n);
  }
  check(!wrong, "lengths that lie under a right hash are dropped: %u wrong", wrong);
  memcpy(bad, good, n);
  memcpy(bad + 32, (uint64_t[]){strlen(key) + 1, PAYLOAD_BYTES - 1}, 16);
  qn_hash128 hash = qn_hash_keyed(secret, bad + 24, n - 24);
  memcpy(bad + 8, &hash, 16);
  check(!drops(path, bad, n), "a forged entry with another key is dropped");
  write_file(path, good, n, 0600);
  check(get(key, payload, sizeof payload) == 1, "the good one is taken");
  check(truncate(path, (off_t)1 << 41) == 0 && get(key, payload, sizeof payload) == 0 && access(path, F_OK),
        "a sparse file of two terabytes is dropped unread");
}

static int count_valid(void *user, const qn_cache_entry *entry)
{
  *(int *)user += entry->valid;
  return 0;
}

/* A whole entry that was not written here, under its own name, is worth nothing without the secret. */
static void entries_from_elsewhere_are_dropped(void)
{
  char good[1024], other[1024];
  const char *path = one_entry();
  size_t n = read_entry(path, good, sizeof good);
  snprintf(other, sizeof other, "%s", one_entry());
  check(!drops(other, good, n), "another directory's entry is dropped");
  put(key, payload, sizeof payload);
  n = read_entry(other, good, sizeof good);
  char secret[1024];
  snprintf(secret, sizeof secret, "%s/secret", directory_in_force());
  struct stat is;
  check(!stat(secret, &is) && (is.st_mode & 07777) == 0600 && is.st_size == 16, "the secret is its owner's alone");
  chmod(secret, 0644);
  check(get(key, payload, sizeof payload) == 0, "a secret that others could read is none");
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 1 && !stat(secret, &is) && (is.st_mode & 07777) == 0600,
        "and is made anew with the next entry");
  check(!drops(other, good, n), "under which older ones do not verify");
  put(key, payload, sizeof payload);
  chmod(other, 0622);
  check(get(key, payload, sizeof payload) == 0 && access(other, F_OK), "an entry that others may write to is dropped");
}

static void other_keys_are_not_taken(void)
{
  char good[1024];
  const char *path = one_entry();
  size_t n = read_entry(path, good, sizeof good);
  char other[1024];
  int valid = 0;
  unlink(path);
  put("another key", "x", 1);
  char name[64] = "";
  qn_cache_each(remember_name, name);
  snprintf(other, sizeof other, "%s/%s", directory_in_force(), name);
  write_file(other, good, n, 0600);
  check(qn_cache_each(count_valid, &valid) == QN_OK && valid == 0, "an entry under another key's name does not verify");
  check(get("another key", "x", 1) == 0 && access(other, F_OK), "is not taken, and is dropped");
}

static void stop_hanging(int number)
{
  (void)number;
  static const char text[] = "not ok - the test hangs\n";
  _exit(write(1, text, sizeof text - 1) > 0 ? 1 : 2);
}

static void strange_files_are_dropped(void)
{
  char target[512], good[1024];
  const char *path = one_entry();
  size_t n = read_entry(path, good, sizeof good);
  snprintf(target, sizeof target, "%s", scratch_path("elsewhere"));
  write_file(target, good, n, 0600);
  unlink(path);
  check(!symlink(target, path) && get(key, payload, sizeof payload) == 0,
        "a link is not followed, even to a right entry");
  struct stat is;
  check(lstat(path, &is) && !stat(target, &is), "the link is dropped, what it points to stays");
  signal(SIGALRM, stop_hanging);
  alarm(20);
  check(!mkfifo(path, 0600) && get(key, payload, sizeof payload) == 0 && access(path, F_OK),
        "a pipe is dropped, without waiting");
  alarm(0);
  uint64_t before = counts().unwritten;
  check(!mkdir(path, 0700) && get(key, payload, sizeof payload) == 0,
        "a directory under the entry's name is passed over");
  put(key, payload, sizeof payload);
  check(counts().unwritten == before + 1, "and a put that it stops is counted");
  size_t removed = 99;
  refuses(qn_cache_clear(0, &removed), QN_IO_ERROR, path);
  rmdir(path);
  if (geteuid() == 0) {
    put(key, payload, sizeof payload);
    check(!chown(path, 65534, 65534) && get(key, payload, sizeof payload) == 0 && access(path, F_OK),
          "another user's file is dropped");
  } else {
    put(key, payload, sizeof payload);
    check(!chmod(path, 0) && get(key, payload, sizeof payload) == 0 && access(path, F_OK),
          "an unreadable file is dropped");
  }
}

static void arguments_are_checked(void)
{
  qn_cache_counts c = {.size = 7};
  refuses(qn_cache_count(NULL), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_cache_count(&c), QN_BAD_ARGUMENT, "is 7");
  refuses(qn_cache_each(NULL, NULL), QN_BAD_ARGUMENT, "visit is NULL");
  refuses(qn_cache_directory(NULL), QN_BAD_ARGUMENT, "NULL");
}

int main(void)
{
  scratch_begin();
  int before = open_files();
  keeps_and_finds();
  damaged_entries_are_dropped();
  lying_lengths_are_dropped();
  entries_from_elsewhere_are_dropped();
  other_keys_are_not_taken();
  strange_files_are_dropped();
  arguments_are_checked();
  check(open_files() == before, "files open: %d before, %d after", before, open_files());
  return test_end();
}
