/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - for tests that write files: a private directory that goes away at the end, and what else a process holds
 * (open files, children), so that leaks of them show. */
#ifndef QN_TESTS_SCRATCH_H
#define QN_TESTS_SCRATCH_H
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char scratch[256];
static pid_t scratch_owner;

static inline int scratch_drop(const char *path, const struct stat *is, int type, struct FTW *ftw)
{
  (void)is, (void)type, (void)ftw;
  return remove(path);
}

static inline void scratch_empty(const char *path) { nftw(path, scratch_drop, 8, FTW_DEPTH | FTW_PHYS); }

static inline void scratch_end(void)
{
  if (getpid() == scratch_owner) scratch_empty(scratch);
}

static inline void scratch_begin(void)
{
  const char *parent = getenv("TMPDIR");
  snprintf(scratch, sizeof scratch, "%s/quern-test-XXXXXX", parent && *parent ? parent : "/tmp");
  if (!mkdtemp(scratch)) {
    printf("Bail out! no directory %s: %s\n", scratch, strerror(errno));
    exit(EXIT_FAILURE);
  }
  scratch_owner = getpid();
  atexit(scratch_end);
}

/* "scratch/name", in one of four places that take turns. */
static inline const char *scratch_path(const char *name)
{
  static char paths[4][512];
  static unsigned turn;
  char *path = paths[turn++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
  return path;
}

static inline int files_in(const char *path)
{
  int n = 0;
  DIR *directory = opendir(path);
  if (!directory) return -1;
  for (struct dirent *entry; (entry = readdir(directory));) n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
  closedir(directory);
  return n;
}

static inline int open_files(void) { return files_in("/proc/self/fd") - 1; /* the listing's own */ }

static inline int has_children(void) { return waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD; }

static inline void write_file(const char *path, const void *data, size_t bytes, unsigned mode)
{
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) || chmod(path, mode)) {
    printf("Bail out! %s: %s\n", path, strerror(errno));
    exit(EXIT_FAILURE);
  }
}
#endif
