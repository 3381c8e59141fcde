/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h - the cache's directory: where it is, whether it is safe to use, what lies in it. */
#ifndef QN_JIT_DIRECTORY_H
#define QN_JIT_DIRECTORY_H
#include "jit/entry.h"

enum { QN_CACHE_PATH_BYTES = 4096 + 256 };

/* Opened and found to be ours alone; QN_UNSUPPORTED with why not. *directory is -1 where it does not exist and `make`
 * is false; with `make` it is made, parents included. The caller closes it. */
qn_status qn_directory_open(bool make, char path[QN_CACHE_PATH_BYTES], int *directory);

/* Where a directory of ours is by the rules of freedesktop.org: what the option says, else `below` in the directory
 * that the variable names, else `home` in the home. QN_UNSUPPORTED where none of them is an absolute path, or it is too
 * long. */
typedef struct qn_directory_place {
  const char *what;     /* begins the sentences */
  const char *variable; /* "XDG_CACHE_HOME" */
  const char *below, *home;
} qn_directory_place;
qn_status qn_directory_find(const qn_directory_place *place, qn_option option, char *path, size_t bytes);

/* The same judgement of any directory that is trusted; `what` begins its sentences. The directory is ours, no link, and
 * others may not write to it; each directory on the way to it, and each link, is ours or root's, and others may not
 * write to it unless it is sticky. */
qn_status qn_directory_open_private(const char *what, bool make, const char *path, int *directory);

typedef struct qn_directory_file {
  char name[QN_ENTRY_NAME_BYTES];
  int64_t bytes;
  struct timespec used;
} qn_directory_file;

/* The entries, oldest use first, and (temporary) those files instead that writers have in hand or left behind. Files
 * with other names are not ours and are never listed. To be released with qn_release. */
qn_status qn_directory_list(int directory, bool temporary, qn_directory_file **files, size_t *n);
size_t qn_directory_drop_stale(int directory); /* how many temporary files that was */
/* Removes entries, oldest use first, until all of them have at most `most` bytes; `keep` stays. */
void qn_directory_shrink(int directory, int64_t most, const char *keep);
#endif
