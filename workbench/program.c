/* SPDX-License-Identifier: Apache-2.0 */
/* program.c - see program.h. */
#include "workbench/program.h"
#include "workbench/sampler.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEP_MS = 5 };

const char *qn_program_python(void)
{
  const char *python = getenv("QUERN_PYTHON");
  return python && *python ? python : "python3";
}

void qn_program_close(int *file)
{
  if (*file >= 0) close(*file);
  *file = -1;
}

/* Between fork and exec: calls that are safe there alone. */
static _Noreturn void become(const char *const *argv, char *const *environment, int in, int out, int errors,
                             int failure, pid_t parent)
{
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_DFL);
  if (getppid() != parent) _exit(127);
  if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && (errors < 0 || dup2(errors, STDERR_FILENO) >= 0))
    execvpe(argv[0], (char *const *)argv, environment ? environment : environ);
  const int why = errno;
  if (write(failure, &why, sizeof why) < 0) _exit(126);
  _exit(127);
}

/* The pipe of `failure` closes by itself where the program begins. */
static qn_status find_out(qn_program *program, const char *name, int failure)
{
  char said[QN_PROGRAM_SAID];
  int why = 0;
  ssize_t n;
  do n = read(failure, &why, sizeof why);
  while (n < 0 && errno == EINTR);
  if (n != (ssize_t)sizeof why) return QN_OK;
  qn_program_end(program, 0, said);
  return qn_fail(QN_BAD_ARGUMENT, "%s cannot be run: %s", name, strerror(why));
}

qn_status qn_program_start(qn_program *program, const char *const *argv, char *const *environment, int errors)
{
  int ends[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
  const pid_t parent = getpid();
  *program = (qn_program){0, -1, -1};
  bool made = true;
  for (int k = 0; k < 3; k++) made = made && !pipe2(ends[k], O_CLOEXEC);
  const pid_t pid = made ? fork() : -1;
  const int why = errno;
  if (pid == 0) become(argv, environment, ends[0][0], ends[1][1], errors, ends[2][1], parent);
  qn_program_close(&ends[0][0]);
  qn_program_close(&ends[1][1]);
  qn_program_close(&ends[2][1]);
  if (pid > 0) {
    setpgid(pid, pid); /* here too: whichever of the two is first */
    *program = (qn_program){pid, ends[0][1], ends[1][0]};
    fcntl(program->to, F_SETFL, O_NONBLOCK);
    fcntl(program->from, F_SETFL, O_NONBLOCK);
  }
  const qn_status status = pid > 0
                               ? find_out(program, argv[0], ends[2][0])
                               : qn_fail(QN_IO_ERROR, "no process could be made for %s: %s", argv[0], strerror(why));
  qn_program_close(&ends[2][0]);
  if (pid > 0) return status;
  qn_program_close(&ends[0][1]);
  qn_program_close(&ends[1][0]);
  return status;
}

bool qn_program_read(const qn_program *program, qn_text *text, size_t most)
{
  char part[16384];
  while (text->length <= most && !text->failed) {
    const ssize_t n = read(program->from, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) return true;
    qn_text_add_bytes(text, part, (size_t)n);
  }
  return true;
}

bool qn_program_read_all(const qn_program *program, qn_text *text, size_t most, double limit_s,
                         const volatile int *stop)
{
  enum { POLL_MS = 100 };
  struct pollfd ready = {.fd = program->from, .events = POLLIN};
  const double until_ns = (double)qn_now_ns() + limit_s * 1e9;
  while (!qn_program_read(program, text, most)) {
    if ((stop && *stop) || (double)qn_now_ns() > until_ns) return false;
    poll(&ready, 1, POLL_MS);
  }
  return true;
}

int qn_program_end(qn_program *program, int grace_ms, char said[QN_PROGRAM_SAID])
{
  siginfo_t is = {.si_pid = 0};
  int status = 0;
  *said = 0;
  qn_program_close(&program->to);
  qn_program_close(&program->from);
  if (!program->pid) return 0;
  for (int waited = 0; waited < grace_ms; waited += STEP_MS) {
    if (waitid(P_PID, (id_t)program->pid, &is, WEXITED | WNOHANG | WNOWAIT) || is.si_pid) break;
    poll(NULL, 0, STEP_MS);
  }
  kill(-program->pid, SIGKILL); /* not collected yet, so the number is no other's */
  while (waitpid(program->pid, &status, 0) < 0 && errno == EINTR) {}
  program->pid = 0;
  if (WIFSIGNALED(status))
    snprintf(said, QN_PROGRAM_SAID, "signal %d (%.40s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else if (WEXITSTATUS(status))
    snprintf(said, QN_PROGRAM_SAID, "status %d", WEXITSTATUS(status));
  return WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
}

qn_status qn_program_run(const char *const *argv, char *const *environment, int errors, size_t most, double limit_s,
                         int grace_ms, qn_text *text, int *ended, char said[QN_PROGRAM_SAID])
{
  qn_program child;
  *ended = -1;
  qn_try(qn_program_start(&child, argv, environment, errors));
  qn_program_close(&child.to);
  const bool whole = qn_program_read_all(&child, text, most, limit_s, NULL) && !text->failed && text->length <= most;
  const int status = qn_program_end(&child, grace_ms, said);
  if (whole) *ended = status;
  return QN_OK;
}

static int remove_one(const char *path, const struct stat *is, int kind, struct FTW *walk)
{
  (void)is, (void)kind, (void)walk;
  return remove(path), 0;
}

void qn_tree_remove(const char *folder) { (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
