/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.c - see sandbox.h. Three processes stand one below the other: one that enters the namespaces, the first
 * process of the process namespace, whose end ends all others in it, and the program. */
#include "workbench/sandbox.h"
#include "core/core.h"
#include "core/file.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what the program's first process tells: which parts were granted, then how it ended ---- */
typedef struct report {
  uint32_t granted;
  int32_t code, signal;
} report;

/* ---- namespaces ---- */
static bool write_text(const char *path, const char *text)
{
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  const bool done = file >= 0 && qn_write_all(file, text, strlen(text));
  if (file >= 0) close(file);
  return done;
}

static bool enter_users(void)
{
  char map[64];
  const unsigned user = geteuid(), group = getegid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC)) return false;
  if (!write_text("/proc/self/setgroups", "deny")) return false;
  snprintf(map, sizeof map, "%u %u 1", user, user);
  if (!write_text("/proc/self/uid_map", map)) return false;
  snprintf(map, sizeof map, "%u %u 1", group, group);
  return write_text("/proc/self/gid_map", map);
}

/* Some kernels (AppArmor's) grant the namespace and then no right in it, and there is no way back: a process tries. */
static unsigned enter_namespaces(void)
{
  int status;
  const pid_t trial = fork();
  if (trial == 0) _exit(!enter_users());
  if (trial < 0 || waitpid(trial, &status, 0) != trial || status || !enter_users()) return 0;
  return QN_SANDBOX_NAMESPACES | (unshare(CLONE_NEWNET) ? 0 : QN_SANDBOX_NETWORK);
}

static void mount_own(void)
{
  (void)mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
  (void)mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  (void)mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64m");
}

/* ---- Landlock, by the numbers of its documentation: the C library's headers may be older ---- */
enum {
  LANDLOCK_CREATE = 444,
  LANDLOCK_ADD = 445,
  LANDLOCK_RESTRICT = 446,
  WRITE_FILE = 1 << 1,
  MAKE_AND_REMOVE = 0x1ff0, /* bits 4 to 12 */
  REFER = 1 << 13,
  TRUNCATE = 1 << 14,
  TCP = 3
};

static void allow(int rules, const char *path, uint64_t access)
{
  struct __attribute__((packed)) {
    uint64_t access;
    int32_t parent;
  } rule = {access, open(path, O_PATH | O_CLOEXEC)};
  if (rule.parent < 0) return;
  (void)syscall(LANDLOCK_ADD, rules, 1, &rule, 0);
  close(rule.parent);
}

static void allow_devices(int rules, uint64_t access)
{
  static const char *const devices[] = {
      "/dev/null", "/dev/zero", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-caps"};
  char path[32];
  for (size_t k = 0; k < sizeof devices / sizeof *devices; k++) allow(rules, devices[k], access);
  for (int k = 0; k < 16; k++) {
    snprintf(path, sizeof path, "/dev/nvidia%d", k);
    allow(rules, path, access);
  }
}

static unsigned restrict_files(const char *folder)
{
  const long version = syscall(LANDLOCK_CREATE, NULL, (size_t)0, 1);
  if (version < 1) return 0;
  const uint64_t files = WRITE_FILE | MAKE_AND_REMOVE | (version >= 2 ? REFER : 0) | (version >= 3 ? TRUNCATE : 0);
  const uint64_t handled[2] = {files, version >= 4 ? TCP : 0};
  const int rules = (int)syscall(LANDLOCK_CREATE, handled, version >= 4 ? sizeof handled : sizeof *handled, 0);
  if (rules < 0) return 0;
  allow(rules, folder, files);
  allow(rules, "/dev/shm", files);
  allow(rules, "/proc/self", files); /* a GPU's driver writes there */
  allow_devices(rules, files & (WRITE_FILE | TRUNCATE));
  const bool done = !syscall(LANDLOCK_RESTRICT, rules, 0);
  close(rules);
  return done ? QN_SANDBOX_FILES : 0;
}

/* ---- limits ---- */
static void limit(int kind, int64_t most)
{
  struct rlimit now;
  if (most <= 0 || getrlimit((__rlimit_resource_t)kind, &now)) return;
  rlim_t value = (rlim_t)most;
  if (now.rlim_max != RLIM_INFINITY && now.rlim_max < value) value = now.rlim_max;
  now = (struct rlimit){value, value};
  (void)setrlimit((__rlimit_resource_t)kind, &now);
}

static void set_limits(const qn_sandbox_order *o)
{
  limit(RLIMIT_AS, o->memory_bytes);
  limit(RLIMIT_FSIZE, o->file_bytes);
  struct sysinfo now; /* the user's other tasks count too, at least where there is no namespace of users */
  limit(RLIMIT_NPROC, o->processes + (sysinfo(&now) ? 0 : now.procs));
  limit(RLIMIT_NOFILE, 256);
  const struct rlimit none = {0, 0};
  (void)setrlimit(RLIMIT_CORE, &none);
}

/* ---- the three processes; nothing here allocates, since the caller may have threads ---- */
typedef struct start {
  const qn_sandbox_order *order;
  int program; /* this command's file */
  int report;  /* the writing end */
} start;

static void close_from(int first, bool at_exec)
{
  enum { CLOEXEC = 4 };
#ifdef SYS_close_range
  if (!syscall(SYS_close_range, (unsigned)first, ~0u, at_exec ? CLOEXEC : 0)) return;
#endif
  for (int k = first; k < 1024; k++)
    if (at_exec)
      (void)fcntl(k, F_SETFD, FD_CLOEXEC);
    else
      close(k);
}

/* The files stand at their numbers, whatever numbers they had; report and program above them. */
static void place_files(start *s)
{
  enum { ABOVE = QN_SANDBOX_FILE + QN_SANDBOX_MOST_FILES };
  int held[QN_SANDBOX_MOST_FILES];
  const size_t n = s->order->n_files;
  s->report = fcntl(s->report, F_DUPFD_CLOEXEC, ABOVE + 64);
  s->program = fcntl(s->program, F_DUPFD_CLOEXEC, ABOVE + 64);
  for (size_t k = 0; k < n; k++) held[k] = fcntl(s->order->files[k], F_DUPFD_CLOEXEC, ABOVE + 64);
  for (size_t k = 0; k < n; k++) dup2(held[k], QN_SANDBOX_FILE + (int)k);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
}

static _Noreturn void run_program(const start *s, unsigned granted)
{
  report told = {.granted = granted};
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  told.granted |= restrict_files(s->order->folder);
  set_limits(s->order);
  const bool there = !chdir(s->order->folder);
  if (!qn_write_all(s->report, &told, sizeof told) || !there) _exit(127);
  close_from(QN_SANDBOX_FILE + (int)s->order->n_files, true);
  fexecve(s->program, s->order->argv, s->order->environment);
  _exit(127);
}

static _Noreturn void be_first(start *s, unsigned granted)
{
  int status = 0;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (granted) mount_own();
  const pid_t program = fork();
  if (program == 0) run_program(s, granted);
  for (pid_t pid; program > 0 && (pid = waitpid(-1, &status, 0)) != program;)
    if (pid < 0 && errno != EINTR) break;
  const report told = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                       .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  (void)qn_write_all(s->report, &told, sizeof told);
  _exit(0);
}

static _Noreturn void enter(start *s)
{
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  (void)setsid();
  place_files(s);
  const unsigned granted = enter_namespaces();
  if (!granted) be_first(s, 0);
  const pid_t first = fork();
  if (first == 0) be_first(s, granted);
  close_from(QN_SANDBOX_FILE, false);
  if (first > 0) waitpid(first, NULL, 0);
  _exit(0);
}

/* ---- the caller's side ---- */
static bool read_report(qn_sandboxed *p, report *told, int limit_ms)
{
  struct pollfd one = {.fd = p->report, .events = POLLIN};
  int ready;
  while ((ready = poll(&one, 1, limit_ms)) < 0 && errno == EINTR) continue;
  return ready > 0 && read(p->report, told, sizeof *told) == sizeof *told;
}

/* The number that stands `before` others in a file of /proc; 0: there is none. */
static int64_t number_of(const char *path, int before)
{
  char text[128], *at = text;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = file >= 0 ? read(file, text, sizeof text - 1) : 0;
  int64_t number = 0;
  if (file >= 0) close(file);
  text[n > 0 ? n : 0] = 0;
  for (int k = 0; k <= before; k++) number = strtoll(at, &at, 10);
  return number;
}

/* 0: it has none. */
static pid_t child_of(pid_t pid)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  return (pid_t)number_of(path, 0);
}

/* The last of a row of processes; the program has started none yet. */
static pid_t last_below(pid_t pid)
{
  for (pid_t next = pid; next > 0; next = child_of(next)) pid = next;
  return pid;
}

int64_t qn_sandbox_waited_ns(const qn_sandboxed *p)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/schedstat", (int)p->program);
  return number_of(path, 1) + number_of("/proc/thread-self/schedstat", 1);
}

qn_status qn_sandbox_start(const qn_sandbox_order *order, qn_sandboxed *p)
{
  enum { START_MS = 20000 };
  int ends[2];
  report told;
  *p = (qn_sandboxed){.report = -1};
  if (pipe2(ends, O_CLOEXEC)) return qn_fail(QN_IO_ERROR, "no pipe for a process in isolation: %s", strerror(errno));
  start s = {order, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ends[1]};
  if (s.program >= 0 && (p->pid = fork()) == 0) enter(&s);
  const int error = errno;
  if (s.program >= 0) close(s.program);
  close(ends[1]);
  p->report = ends[0];
  if (p->pid > 0 && read_report(p, &told, START_MS)) {
    p->granted = told.granted;
    p->program = last_below(p->pid);
    return QN_OK;
  }
  (void)qn_sandbox_end(p, 0);
  return qn_fail(QN_IO_ERROR, "no process in isolation could be started: %s", strerror(error));
}

bool qn_sandbox_end(qn_sandboxed *p, int limit_ms)
{
  report told = {.granted = 0};
  bool ended = p->ended;
  if (p->report >= 0 && !ended && read_report(p, &told, limit_ms)) {
    ended = p->ended = true;
    p->code = told.code;
    p->signal = told.signal;
  }
  if (p->report >= 0) close(p->report);
  p->report = -1;
  if (p->pid > 0) {
    /* The first process of a namespace ends when all others of it have: they write no more behind this call. */
    const pid_t first = p->granted & QN_SANDBOX_NAMESPACES ? child_of(p->pid) : -p->pid;
    (void)kill(first ? first : p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) continue;
  }
  p->pid = 0;
  return ended;
}
