/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - runs a compiler without a shell. Input and output are files in memory, not pipes: nobody has to feed or
 * drain them, and no SIGPIPE can come of it. What the caller's process does with signals and children is respected: we
 * wait for our own child by its number alone. */
#include "device/emulator/child.h"
#include "core/file.h"
#include <assert.h>
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

#ifndef MFD_EXEC
#define MFD_EXEC 0x10u /* Linux 6.3; older ones answer EINVAL and need no flag */
#endif

int qn_memory_file(const char *name, const void *data, size_t bytes)
{
  int made = memfd_create(name, MFD_CLOEXEC | MFD_EXEC);
  if (made < 0) made = memfd_create(name, MFD_CLOEXEC);
  if (made < 0) return -1;
  /* Above every descriptor that a child is given, so that giving it one never closes another. */
  int file = fcntl(made, F_DUPFD_CLOEXEC, QN_CHILD_FILE + QN_CHILD_MOST_FILES);
  int error = errno;
  close(made);
  if (file >= 0 && qn_write_all(file, data, bytes) && lseek(file, 0, SEEK_SET) == 0) return file;
  if (file >= 0) {
    error = errno;
    close(file);
  }
  errno = error;
  return -1;
}

qn_status qn_memory_file_read(int file, const char *what, void **data, size_t *bytes)
{
  struct stat is;
  char *at = NULL;
  if (fstat(file, &is)) return qn_fail(QN_IO_ERROR, "%s: %s", what, strerror(errno));
  qn_try(qn_try_allocate(&at, (size_t)is.st_size, what));
  if (!qn_read_all(file, at, (size_t)is.st_size)) {
    qn_release(at);
    return qn_fail(QN_IO_ERROR, "%s: its %lld bytes could not be read", what, (long long)is.st_size);
  }
  *data = at;
  *bytes = (size_t)is.st_size;
  return QN_OK;
}

/* Variables that would change what the compiler reads or writes, and the language of its messages. */
static bool kept_variable(const char *entry)
{
  static const char *const dropped[] = {
      "CPATH=",       "C_INCLUDE_PATH=",      "CPLUS_INCLUDE_PATH=",  "LIBRARY_PATH=",
      "LD_RUN_PATH=", "DEPENDENCIES_OUTPUT=", "GCC_COLORS=",          "LANGUAGE=",
      "LC_ALL=",      "COMPILER_PATH=",       "SUNPRO_DEPENDENCIES=",
  };
  for (size_t k = 0; k < sizeof dropped / sizeof *dropped; k++)
    if (!strncmp(entry, dropped[k], strlen(dropped[k]))) return false;
  return true;
}

/* One block: the pointers, then the text that is ours. */
static char **environment(void)
{
  static const char locale[] = "LC_ALL=C";
  size_t n = 0, k = 0;
  while (environ[n]) n++;
  char **list = qn_allocate((n + 2) * sizeof *list + sizeof locale);
  if (!list) return NULL;
  for (size_t from = 0; from < n && environ[from]; from++)
    if (kept_variable(environ[from])) list[k++] = environ[from];
  list[k++] = memcpy(list + n + 2, locale, sizeof locale);
  list[k] = NULL;
  return list;
}

/* A terminal whose other end only this process holds. When this process ends, however it does, the kernel hangs the
 * terminal up and so ends every process of the session that it controls. -1 where there are no terminals to be had. */
static int terminal_make(char *path, size_t bytes)
{
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0 && !grantpt(terminal) && !unlockpt(terminal) && !ptsname_r(terminal, path, bytes)) return terminal;
  if (terminal >= 0) close(terminal);
  return -1;
}

/* Signals are as a fresh program expects them. A session of its own lets a late one be killed with its children. */
static int attributes_set(posix_spawnattr_t *attributes)
{
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  int error = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  if (!error) error = posix_spawnattr_setsigdefault(attributes, &all);
  if (!error) error = posix_spawnattr_setsigmask(attributes, &none);
  return error;
}

/* The first terminal that the leader of a session opens controls the session. `files` begins with input and output. */
static int actions_set(posix_spawn_file_actions_t *actions, const char *terminal, const int *files, size_t n_files)
{
  int error = terminal ? posix_spawn_file_actions_addopen(actions, STDERR_FILENO, terminal, O_RDWR, 0) : 0;
  if (!error) error = posix_spawn_file_actions_adddup2(actions, files[0], STDIN_FILENO);
  if (!error) error = posix_spawn_file_actions_adddup2(actions, files[1], STDOUT_FILENO);
  if (!error) error = posix_spawn_file_actions_adddup2(actions, files[1], STDERR_FILENO);
  for (size_t k = 2; k < n_files && !error; k++)
    error = posix_spawn_file_actions_adddup2(actions, files[k], QN_CHILD_FILE + (int)k - 2);
  return error;
}

static int spawn(pid_t *pid, char *const argv[], char *const variables[], const char *terminal, const int *files,
                 size_t n_files)
{
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    error = attributes_set(&attributes);
    if (!error) error = actions_set(&actions, terminal, files, n_files);
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

/* To its end. A terminal that cannot be opened after all (another /dev in this process's root) is done without. */
static int run(char *const argv[], char *const variables[], const int *files, size_t n_files, int limit_ms,
               qn_child *child)
{
  char path[64];
  pid_t pid = 0;
  const int terminal = terminal_make(path, sizeof path);
  int error = terminal < 0 ? ENOTTY : spawn(&pid, argv, variables, path, files, n_files);
  if (error) error = spawn(&pid, argv, variables, NULL, files, n_files);
  if (!error) *child = await(pid, limit_ms);
  if (terminal >= 0) close(terminal);
  return error;
}

qn_status qn_child_run(char *const argv[], const void *input, size_t input_bytes, const int *files, size_t n_files,
                       int limit_ms, qn_text *said, qn_child *child)
{
  int all[2 + QN_CHILD_MOST_FILES] = {-1, -1};
  char **variables = environment();
  if (!variables) return qn_fail(QN_NO_MEMORY, "%s: no memory for its environment", argv[0]);
  assert(n_files <= QN_CHILD_MOST_FILES);
  for (size_t k = 0; k < n_files; k++) all[2 + k] = files[k];
  all[0] = qn_memory_file("quern-in", input, input_bytes);
  if (all[0] >= 0) all[1] = qn_memory_file("quern-out", NULL, 0);
  qn_status status = QN_OK;
  if (all[1] < 0) {
    status = qn_fail(QN_IO_ERROR, "%s: no file in memory for its input and output: %s", argv[0], strerror(errno));
  } else {
    const int error = run(argv, variables, all, 2 + n_files, limit_ms, child);
    if (error) status = qn_fail(QN_NO_LIBRARY, "%s could not be started: %s", argv[0], strerror(error));
    if (!error) collect(all[1], said);
  }
  for (size_t k = 0; k < 2; k++)
    if (all[k] >= 0) close(all[k]);
  qn_release(variables);
  return status;
}

/* As a shell would find it, but a value is a path or a name, never a command with arguments. */
bool qn_program_find(const char *name, char *path, size_t bytes)
{
  if (strchr(name, '/')) return (size_t)snprintf(path, bytes, "%s", name) < bytes && !access(path, X_OK);
  const char *list = secure_getenv("PATH");
  for (const char *at = list ? list : "/usr/local/bin:/usr/bin:/bin"; *at; at += *at == ':') {
    size_t length = strcspn(at, ":");
    int need = snprintf(path, bytes, "%.*s/%s", (int)length, at, name);
    if (length && need > 0 && (size_t)need < bytes && !access(path, X_OK)) return true;
    at += length;
  }
  return false;
}
