/* SPDX-License-Identifier: Apache-2.0 */
/* cache_place.c - the cache's directory: where it is, when it is refused, disks that are full or read-only, its size,
 * and what is swept out of it. Whatever it is, the caller of a kernel does not notice. */
#include "cache_use.h"
#include "test.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <time.h>

static int warnings;

static void count_warning(void *user, qn_log_level level, const char *text)
{
  (void)user, (void)text;
  warnings += level == QN_LOG_WARNING;
}

/* A directory that cannot be used: the sentence says why, and calls that want kernels do not notice. */
static void refused(const char *path, const char *words)
{
  const char *where = "";
  uint64_t before = counts().unwritten;
  qn_option_set("cache_dir", path);
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 0 && counts().unwritten == before + 1, "%s: put and get do without", path);
  refuses(qn_cache_directory(&where), QN_UNSUPPORTED, words);
  check(!where && qn_cache_each(remember_name, (char[64]){0}) == QN_UNSUPPORTED, "each refuses as well");
}

static void unsafe_directories_are_refused(void)
{
  char path[512];
  const char *where = NULL;
  snprintf(path, sizeof path, "%s", fresh());
  mkdir(path, 0700);
  chmod(path, 0777);
  refused(path, "others may write to it (mode 777)");
  chmod(path, 0770);
  refused(path, "mode 770");
  check(files_in(path) == 0, "nothing was written there");
  chmod(path, 0755);
  check(qn_cache_directory(&where) == QN_OK && !strcmp(where, path), "mode 755 is taken: %s", where);
  if (geteuid() == 0) {
    check(!chown(path, 65534, 65534), "given to another user");
    refused(path, "belongs to user 65534, not to 0");
  } else {
    chmod(path, 0500);
    put(key, payload, sizeof payload);
    check(get(key, payload, sizeof payload) == 0, "a read-only directory costs only time");
    chmod(path, 0700);
  }
  snprintf(path, sizeof path, "%s", scratch_path("a-file"));
  write_file(path, "", 0, 0600);
  refused(path, "Not a directory");
  strcat(path, "/below");
  refused(path, "Not a directory");
  qn_option_set("cache_dir", "/proc/self/quern"); /* nothing can be made there, by anybody; it does not exist either */
  uint64_t before = counts().unwritten;
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 0 && counts().unwritten == before + 1,
        "a read-only file system costs only time");
}

/* Who may write to a directory on the way could put another one in the cache's place, such as one that its owner
 * unpacked from an archive. */
static void ways_that_others_may_change_are_refused(void)
{
  char parent[512], path[600], link[600];
  const char *where = NULL;
  snprintf(parent, sizeof parent, "%s", fresh());
  snprintf(path, sizeof path, "%s/quern", parent);
  snprintf(link, sizeof link, "%s/link", parent);
  mkdir(parent, 0700);
  chmod(parent, 0777);
  refused(path, "others may write to cache-");
  check(access(path, F_OK), "nothing was made there");
  chmod(parent, 01777);
  qn_option_set("cache_dir", path);
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 1, "where only owners may rename, as in /tmp, it is used");
  check(!symlink(path, link), "a link to it");
  refused(link, "it is a link");
  check(entries_in(path) == 1 && !strcmp(qn_option_set("cache_dir", path) ? "" : "set", "set") &&
            get(key, payload, sizeof payload) == 1,
        "behind it is what was there");
  unlink(link);
  check(!symlink(parent, link), "a link on the way");
  strcat(link, "/quern");
  qn_option_set("cache_dir", link);
  check(get(key, payload, sizeof payload) == 1 && qn_cache_directory(&where) == QN_OK && !strcmp(where, link),
        "that is ours is followed");
  link[strlen(link) - strlen("/quern")] = 0;
  if (geteuid() == 0) {
    check(!lchown(link, 65534, 65534), "given to another user");
    strcat(link, "/quern");
    refused(link, "link link on the way to it belongs to user 65534");
    check(!chown(parent, 65534, 65534), "and the parent, too");
    refused(path, "on the way to it belongs to user 65534");
  }
  check(!chdir(scratch), "from where we are");
  chmod(parent, 0700);
  if (geteuid() == 0 && chown(parent, 0, 0)) check(false, "the parent is ours again");
  qn_option_set("cache_dir", strrchr(parent, '/') + 1);
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 1 && entries_in(parent) > 0, "a relative path goes from there");
  qn_option_set("cache_dir", "cache-loop");
  check(!symlink("cache-loop", "cache-loop"), "a link to itself");
  refused("cache-loop/below", "symbolic links");
  check(!chdir("/"), "and back");
}

static void the_place_follows_the_environment(void)
{
  const char *where = NULL, *home = getenv("HOME");
  char kept[512], want[600];
  snprintf(kept, sizeof kept, "%s", home ? home : "");
  qn_option_set("cache_dir", NULL);
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  check(qn_cache_directory(&where) == QN_OK && !strcmp(where, "/somewhere/quern"), "XDG_CACHE_HOME: %s", where);
  const char *first = where;
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", scratch, 1);
  snprintf(want, sizeof want, "%s/.cache/quern", scratch);
  check(qn_cache_directory(&where) == QN_OK && !strcmp(where, want), "a relative one is ignored, HOME: %s", where);
  check(!strcmp(first, "/somewhere/quern"), "a path given out stays");
  unsetenv("HOME");
  refuses(qn_cache_directory(&where), QN_UNSUPPORTED, "HOME");
  setenv("HOME", kept, 1);
  unsetenv("XDG_CACHE_HOME");
  const char *directory = fresh();
  uint64_t before = counts().unwritten;
  qn_option_set("cache", "off");
  put(key, payload, sizeof payload);
  check(get(key, payload, sizeof payload) == 0 && access(directory, F_OK) && counts().unwritten == before,
        "switched off, it writes and reads nothing");
  refuses(qn_cache_directory(&where), QN_UNSUPPORTED, "QUERN_CACHE=off");
  qn_option_set("cache", NULL);
}

/* A file of 200 kB where files end at 64 kB: first half of it is written. The signal would be deadly. */
static void a_full_disk_costs_time_only(void)
{
  static char large[200000];
  struct rlimit old, small = {65536, RLIM_INFINITY};
  sigset_t pending;
  const char *directory = fresh();
  put(key, payload, sizeof payload);
  qn_log_set(count_warning, NULL, QN_LOG_WARNING);
  warnings = 0;
  uint64_t before = counts().unwritten;
  getrlimit(RLIMIT_FSIZE, &old);
  small.rlim_max = old.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  put("large", large, sizeof large);
  put("large", large, sizeof large);
  setrlimit(RLIMIT_FSIZE, &old);
  sigpending(&pending);
  check(counts().unwritten == before + 2 && warnings == 1, "two failed writes are counted, and told %d times",
        warnings);
  check(!sigismember(&pending, SIGXFSZ), "no signal is left waiting");
  check(entries_in(directory) == 1 && get(key, payload, sizeof payload) == 1,
        "no half file stays; other entries serve");
  put("large", large, sizeof large);
  check(get("large", large, sizeof large) == 1, "with room it is written");
}

/* A file system of 64 kB, where this machine lets us make one. */
static void a_tiny_disk(void)
{
  static char large[200000];
  char path[512];
  snprintf(path, sizeof path, "%s", fresh());
  mkdir(path, 0700);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    bool mounted = (!unshare(CLONE_NEWNS) || !unshare(CLONE_NEWUSER | CLONE_NEWNS)) &&
                   !mount("none", "/", "none", MS_REC | MS_PRIVATE, "") &&
                   !mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=700");
    if (!mounted) _exit(77);
    uint64_t before = counts().unwritten;
    put("large", large, sizeof large);
    bool right = get("large", large, sizeof large) == 0 && counts().unwritten == before + 1 && entries_in(path) == 0;
    put(key, payload, sizeof payload);
    right = right && get(key, payload, sizeof payload) == 1;
    right = right && !mount("none", path, "none", MS_REMOUNT | MS_RDONLY, "");
    put("after", "x", 1);
    _exit(right && get(key, payload, sizeof payload) == 1 && counts().unwritten == before + 2 ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    skip("a tiny file system cannot be mounted here; the limit on files' size stood in for it above");
  else
    check(status == 0, "on a full disk puts fail, gets serve; read-only, too: %d", status);
}

/* ---- size and age ---- */
static int64_t bytes_in_all;
static int add_bytes(void *user, const qn_cache_entry *entry)
{
  (void)user;
  bytes_in_all += entry->bytes;
  return 0;
}

static void set_age(const char *directory, const char *name, time_t seconds)
{
  char path[1024];
  const struct timespec at = {.tv_sec = time(NULL) - seconds};
  snprintf(path, sizeof path, "%s/%s", directory, name);
  utimensat(AT_FDCWD, path, (struct timespec[]){at, at}, 0);
}

static void name_of(const char *k, char name[64])
{
  qn_hash128 hash = qn_hash(k, strlen(k));
  snprintf(name, 64, "%016llx%016llx.qn", (unsigned long long)hash.high, (unsigned long long)hash.low);
}

static void the_bound_is_kept(void)
{
  static char block[1000];
  char directory[512], name[64], k[16];
  unsigned over = 0;
  snprintf(directory, sizeof directory, "%s", fresh());
  qn_option_set("cache_bytes", "8K"); /* seven entries of 1050 bytes */
  mkdir(directory, 0700);
  char foreign[600];
  snprintf(foreign, sizeof foreign, "%s/notes.qn", directory);
  write_file(foreign, block, sizeof block, 0600);
  for (int n = 0; n < 7; n++) { /* k0 is the oldest */
    snprintf(k, sizeof k, "k%d", n);
    put(k, block, sizeof block);
    name_of(k, name);
    set_age(directory, name, 100000 - n * 1000);
  }
  check(get("k0", block, sizeof block) == 1, "the oldest is used");
  for (int n = 7; n < 10; n++) {
    snprintf(k, sizeof k, "k%d", n);
    put(k, block, sizeof block);
    over += get(k, block, sizeof block) != 1; /* never what was just written */
    bytes_in_all = 0;
    qn_cache_each(add_bytes, NULL);
    over += bytes_in_all > 8192;
  }
  check(!over, "the bound holds after every put, and what was put is there");
  check(get("k0", block, sizeof block) == 1, "what was used last stays, though it was made first");
  check(get("k1", block, sizeof block) == 0 && get("k2", block, sizeof block) == 0 &&
            get("k3", block, sizeof block) == 0 && get("k4", block, sizeof block) == 1,
        "the three of oldest use are gone, the fourth is not");
  uint64_t before = counts().unwritten;
  put("huge", (char[9000]){0}, 9000);
  check(counts().unwritten == before + 1 && get("k0", block, sizeof block) == 1, "what is over the bound is not kept");
  check(!access(foreign, F_OK), "a foreign file is not touched");
  qn_option_set("cache_bytes", NULL);
}

static void a_clock_that_is_ahead(void)
{
  static const char block[1000];
  char directory[512], name[64], k[16];
  snprintf(directory, sizeof directory, "%s", fresh());
  qn_option_set("cache_bytes", "8K");
  for (int n = 0; n < 7; n++) {
    snprintf(k, sizeof k, "k%d", n);
    put(k, block, sizeof block);
    name_of(k, name);
    set_age(directory, name, -50000);
  }
  put("now", block, sizeof block);
  check(get("now", block, sizeof block) == 1, "what was just written stays, though others claim a later use");
  qn_option_set("cache_bytes", NULL);
}

static time_t age_of(const char *path)
{
  struct stat is;
  return stat(path, &is) ? -1 : time(NULL) - is.st_mtime;
}

static void use_is_noted_hourly(void)
{
  char directory[512], name[64], path[600];
  snprintf(directory, sizeof directory, "%s", fresh());
  put(key, payload, sizeof payload);
  name_of(key, name);
  snprintf(path, sizeof path, "%s/%s", directory, name);
  set_age(directory, name, 3000);
  get(key, payload, sizeof payload);
  check(age_of(path) >= 3000, "within the hour a use is not noted");
  set_age(directory, name, 4000);
  qn_cache_each(add_bytes, NULL);
  check(age_of(path) >= 4000, "looking at it is no use");
  get(key, payload, sizeof payload);
  check(age_of(path) < 100, "after an hour it is");
}

/* ---- looking through and emptying ---- */
typedef struct looked {
  int n, valid;
  int64_t last_use;
  bool ordered;
  char summary[128];
} looked;

static int look(void *user, const qn_cache_entry *entry)
{
  looked *l = user;
  l->n++;
  l->valid += entry->valid;
  l->ordered = l->ordered && entry->used_unix_s >= l->last_use;
  l->last_use = entry->used_unix_s;
  if (entry->valid) snprintf(l->summary, sizeof l->summary, "%s", entry->summary);
  return 0;
}

static void listed_and_cleared(void)
{
  char directory[512], path[600], name[64];
  size_t removed = 99;
  looked l = {.ordered = true};
  snprintf(directory, sizeof directory, "%s", fresh());
  check(qn_cache_each(look, &l) == QN_OK && l.n == 0 && qn_cache_clear(0, &removed) == QN_OK && removed == 0,
        "where there is no directory there is nothing");
  for (int n = 0; n < 10; n++) {
    char k[32];
    snprintf(k, sizeof k, "first line %d\nsecond", n);
    put(k, payload, sizeof payload);
    name_of(k, name);
    set_age(directory, name, n * 37 % 10 * 1000);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (n < 3) check(!truncate(path, 60), "an entry is damaged");
  }
  snprintf(path, sizeof path, "%s/README", directory);
  write_file(path, "mine", 4, 0600);
  check(qn_cache_each(look, &l) == QN_OK && l.n == 10 && l.valid == 7, "%d entries, %d of them valid", l.n, l.valid);
  check(l.ordered, "oldest use first");
  check(!strncmp(l.summary, "first line ", 11) && !strchr(l.summary, '\n'), "the summary is the key's first line");
  check(qn_cache_each(remember_name, name) == QN_OK, "a visitor may stop");
  check(qn_cache_clear(1, &removed) == QN_OK && removed == 3, "three invalid ones are removed: %zu", removed);
  l = (looked){0};
  qn_cache_each(look, &l);
  check(l.n == 7 && l.valid == 7, "the valid ones stay: %d", l.n);
  check(qn_cache_clear(0, &removed) == QN_OK && removed == 7, "and all: %zu", removed);
  check(entries_in(directory) == 1 && !access(path, F_OK), "a foreign file stays");
  check(qn_cache_clear(0, NULL) == QN_OK, "nobody has to ask how many");
}

static void stale_files_go(void)
{
  char directory[512], path[600];
  size_t removed = 99;
  pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, NULL, 0);
  snprintf(directory, sizeof directory, "%s", fresh());
  put(key, payload, sizeof payload);
  const struct {
    pid_t pid;
    time_t age;
    const char *suffix;
    int stays;
  } files[] = {{getpid(), 0, ".123.qn", 1}, {getpid(), 4000, ".124.qn", 0}, {dead, 0, ".125.qn", 0},
               {dead, 0, ".notes", 1},      {dead, 0, ".x.qn", 1},          {getpid(), 3000, ".126.qn", 1}};
  char name[64];
  int wrong = 0;
  for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
    snprintf(name, sizeof name, "tmp.%d%s", (int)files[k].pid, files[k].suffix);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    write_file(path, "half", 4, 0600);
    set_age(directory, name, files[k].age);
  }
  check(qn_cache_clear(1, &removed) == QN_OK && removed == 2, "two are stale: %zu", removed);
  for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
    snprintf(path, sizeof path, "%s/tmp.%d%s", directory, (int)files[k].pid, files[k].suffix);
    wrong += (access(path, F_OK) == 0) != files[k].stays;
  }
  check(!wrong, "a dead writer's and an old one go, living ones' and foreign ones stay: %d wrong", wrong);
  check(get(key, payload, sizeof payload) == 1, "entries stay");
  snprintf(name, sizeof name, "tmp.%d.9.qn", (int)dead);
  snprintf(path, sizeof path, "%s/%s", directory, name);
  write_file(path, "half", 4, 0600);
  qn_option_set("cache_bytes", "300");
  put("one more", payload, sizeof payload);
  qn_option_set("cache_bytes", NULL);
  check(access(path, F_OK), "eviction takes stale ones along");
}

int main(void)
{
  scratch_begin();
  int before = open_files();
  unsafe_directories_are_refused();
  ways_that_others_may_change_are_refused();
  the_place_follows_the_environment();
  a_full_disk_costs_time_only();
  a_tiny_disk();
  the_bound_is_kept();
  a_clock_that_is_ahead();
  use_is_noted_hourly();
  listed_and_cleared();
  stale_files_go();
  check(open_files() == before, "files open: %d before, %d after", before, open_files());
  return test_end();
}
