/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - runs a compiler without a shell. Input and output are files in memory, not pipes: nobody has to feed or
 * drain them, and no SIGPIPE can come of it. What the caller's process does with signals and children is respected: we
 * wait for our own child by its number alone. */
#include "device/host/child.h"
#include "core/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

qn_status qn_file_read(const char *path, void **data, size_t *bytes)
{
  struct stat is;
  char *at = NULL;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return qn_fail(QN_IO_ERROR, "%s: %s", path, strerror(errno));
  qn_status status = QN_OK;
  if (fstat(file, &is) || !S_ISREG(is.st_mode))
    status = qn_fail(QN_IO_ERROR, "%s is not a regular file", path);
  else
    status = qn_try_allocate(&at, (size_t)is.st_size, path);
  if (status == QN_OK && !qn_read_all(file, at, (size_t)is.st_size))
    status = qn_fail(QN_IO_ERROR, "%s: its %lld bytes could not be read", path, (long long)is.st_size);
  close(file);
  if (status != QN_OK) {
    qn_release(at);
    return status;
  }
  *data = at;
  *bytes = (size_t)is.st_size;
  return QN_OK;
}

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u /* Linux 6.3; older ones answer EINVAL and need no flag */
#endif

int qn_memory_file(const char *name, const void *data, size_t bytes)
{
  int file = memfd_create(name, MFD_CLOEXEC | MFD_EXEC);
  if (file < 0) file = memfd_create(name, MFD_CLOEXEC);
  if (file < 0) return -1;
  if (qn_write_all(file, data, bytes) && lseek(file, 0, SEEK_SET) == 0) return file;
  int error = errno;
  close(file);
  errno = error;
  return -1;
}

qn_status qn_scratch_make(char *path, size_t bytes)
{
  const char *parent = secure_getenv("TMPDIR");
  if (!parent || parent[0] != '/') parent = "/tmp";
  int length = snprintf(path, bytes, "%s/quern-XXXXXX", parent);
  qn_require(length > 0 && (size_t)length < bytes, "TMPDIR has %zu characters, too many", strlen(parent));
  if (!mkdtemp(path))
    return qn_fail(QN_IO_ERROR, "no temporary directory could be made in %s: %s", parent, strerror(errno));
  return QN_OK;
}

void qn_scratch_remove(const char *path)
{
  DIR *directory = opendir(path);
  if (!directory) return;
  for (struct dirent *entry; (entry = readdir(directory));)
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) unlinkat(dirfd(directory), entry->d_name, 0);
  closedir(directory);
  rmdir(path);
}

/* Variables that would change what the compiler reads or writes, and the language of its messages. */
static bool kept_variable(const char *entry)
{
  static const char *const dropped[] = {
      "CPATH=",        "C_INCLUDE_PATH=", "CPLUS_INCLUDE_PATH=",
      "LIBRARY_PATH=", "LD_RUN_PATH=",    "DEPENDENCIES_OUTPUT=",
      "GCC_COLORS=",   "LANGUAGE=",       "LC_ALL=",
      "TMPDIR=",       "COMPILER_PATH=",  "SUNPRO_DEPENDENCIES=",
  };
  for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++)
    if (!strncmp(entry, dropped[k], strlen(dropped[k]))) return false;
  return true;
}

/* One block: the pointers, then the texts that are ours. */
static char **environment(const char *directory)
{
  static const char locale[] = "LC_ALL=C";
  size_t n = 0, k = 0, bytes = directory ? sizeof "TMPDIR=" + strlen(directory) : 0;
  while (environ[n]) n++;
  char **list = qn_allocate((n + 3) * sizeof *list + sizeof locale + bytes);
  if (!list) return NULL;
  char *text = (char *)(list + n + 3);
  for (size_t from = 0; from < n && environ[from]; from++)
    if (kept_variable(environ[from])) list[k++] = environ[from];
  list[k++] = memcpy(text, locale, sizeof locale);
  if (directory) {
    list[k++] = text + sizeof locale;
    snprintf(text + sizeof locale, bytes, "TMPDIR=%s", directory);
  }
  list[k] = NULL;
  return list;
}

/* Signals are as a fresh program expects them, and a group of its own lets a late one be killed with its children. */
static int attributes_set(posix_spawnattr_t *attributes)
{
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  int error =
      posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  if (!error) error = posix_spawnattr_setsigdefault(attributes, &all);
  if (!error) error = posix_spawnattr_setsigmask(attributes, &none);
  if (!error) error = posix_spawnattr_setpgroup(attributes, 0);
  return error;
}

static int spawn(pid_t *pid, char *const argv[], char *const variables[], int input, int output)
{
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    error = attributes_set(&attributes);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    if (!error) error = posix_spawn(pid, argv[0], &actions, &attributes, argv, variables);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

static int64_t now_ms(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A file that can be read when the process has ended; -1 on a kernel that has none (before Linux 5.3). */
static int end_of(pid_t pid)
{
#ifdef SYS_pidfd_open
  return (int)syscall(SYS_pidfd_open, pid, 0);
#else
  (void)pid;
  return -1;
#endif
}

/* No wait with a limit leaves SIGCHLD alone on every kernel that we run on: where there is no file that tells the end,
 * we ask every millisecond. */
static void wait_a_while(int end, int most_ms)
{
  const struct timespec pause = {.tv_nsec = 1000000};
  struct pollfd one = {.fd = end, .events = POLLIN};
  if (end < 0 || (poll(&one, 1, most_ms) < 0 && errno != EINTR)) nanosleep(&pause, NULL);
}

static qn_child await(pid_t pid, int limit_ms)
{
  const int64_t start = now_ms();
  const int end = end_of(pid);
  qn_child child = {QN_CHILD_UNKNOWN, 0};
  for (bool killed = false;;) {
    int status;
    pid_t ended = waitpid(pid, &status, killed ? 0 : WNOHANG);
    if (ended < 0 && errno == EINTR) continue;
    if (ended != 0 && killed)
      child = (qn_child){QN_CHILD_TIMED_OUT, 0};
    else if (ended > 0)
      child = WIFEXITED(status) ? (qn_child){QN_CHILD_EXITED, WEXITSTATUS(status)}
                                : (qn_child){QN_CHILD_SIGNALED, WTERMSIG(status)};
    if (ended != 0) break;
    const int64_t left = limit_ms - (now_ms() - start);
    if (left > 0)
      wait_a_while(end, (int)left);
    else
      killed = !kill(-pid, SIGKILL) || errno == ESRCH;
  }
  if (end >= 0) close(end);
  return child;
}

static void collect(int output, qn_text *said)
{
  char part[4096];
  off_t at = 0;
  for (ssize_t n; (n = pread(output, part, sizeof part, at)) > 0; at += n) qn_text_add_bytes(said, part, (size_t)n);
}

qn_status qn_child_run(char *const argv[], const void *input, size_t input_bytes, const char *directory, int limit_ms,
                       qn_text *said, qn_child *child)
{
  pid_t pid = 0;
  char **variables = environment(directory);
  if (!variables) return qn_fail(QN_NO_MEMORY, "%s: no memory for its environment", argv[0]);
  int in = qn_memory_file("quern-in", input, input_bytes), out = in < 0 ? -1 : qn_memory_file("quern-out", NULL, 0);
  int error = out < 0 ? errno : spawn(&pid, argv, variables, in, out);
  qn_status status = QN_OK;
  if (out < 0)
    status = qn_fail(QN_IO_ERROR, "%s: no file in memory for its input and output: %s", argv[0], strerror(error));
  else if (error)
    status = qn_fail(QN_NO_LIBRARY, "%s could not be started: %s", argv[0], strerror(error));
  else {
    *child = await(pid, limit_ms);
    collect(out, said);
  }
  if (in >= 0) close(in);
  if (out >= 0) close(out);
  qn_release(variables);
  return status;
}
