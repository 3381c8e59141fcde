/* SPDX-License-Identifier: Apache-2.0 */
/* file.h - read and write the whole of what was asked for, past interruptions and short counts. */
#ifndef QN_CORE_FILE_H
#define QN_CORE_FILE_H
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* False with errno set. */
static inline bool qn_write_all(int file, const void *data, size_t bytes)
{
  for (const char *at = data; bytes > 0;) {
    ssize_t n = write(file, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

/* What comes next of a pipe or a file. False where it ends before. */
static inline bool qn_read_next(int file, void *data, size_t bytes)
{
  for (char *at = data; bytes > 0;) {
    ssize_t n = read(file, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

/* From the file's beginning. False with errno set, to 0 if the file is shorter. */
static inline bool qn_read_all(int file, void *data, size_t bytes)
{
  for (size_t done = 0; done < bytes;) {
    ssize_t n = pread(file, (char *)data + done, bytes - done, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = 0;
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}
#endif
