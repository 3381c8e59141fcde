/* SPDX-License-Identifier: Apache-2.0 */
/* first_use.c - see first_use.h. */
#include "workbench/first_use.h"
#include "core/core.h"
#include "jit/jit.h"
#include "quern/device.h"
#include "workbench/sampler.h"
#include <errno.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ELEMENTS = 4096 };

static qn_status make_tensors(const qn_op *op, size_t row, qn_device device, void **memory, qn_tensor *tensor,
                              const qn_tensor **given)
{
  static const int64_t shape[] = {ELEMENTS};
  for (size_t role = 0; role < op->info.n_tensors; role++) {
    qn_dtype dtype = op->info.types[row].tensor[role].dtype;
    if (dtype == QN_NONE) continue;
    qn_try(qn_memory_allocate(device, ELEMENTS * qn_dtype_bytes(dtype), &memory[role]));
    tensor[role] = (qn_tensor){memory[role], dtype, 1, shape, NULL, device};
    given[role] = &tensor[role];
  }
  return QN_OK;
}

static qn_status prepare_empty(qn_device device)
{
  static const char text[] =
      "#include \"base/kernel.h\"\nstruct nothing { int none; };\nQN_KERNEL(empty, nothing, a) {}\n";
  const qn_device_function *function;
  return qn_jit_function(device, &(qn_unit){.source = "workbench/empty.cu", .text = text}, "empty", &function);
}

qn_status qn_first_use_here(const qn_op *op, const void *params, size_t row, qn_device device, bool empty, double *ns)
{
  void *memory[QN_MAX_TENSORS] = {NULL};
  qn_tensor tensor[QN_MAX_TENSORS];
  const qn_tensor *given[QN_MAX_TENSORS] = {NULL};
  const qn_exec exec = {.size = sizeof exec, .device = device};
  qn_status status = make_tensors(op, row, device, memory, tensor, given);
  int64_t from = qn_now_ns();
  if (status == QN_OK) status = empty ? prepare_empty(device) : qn_op_prepare(&op->info, &exec, params, 1, given);
  *ns = (double)(qn_now_ns() - from);
  for (size_t role = 0; role < QN_MAX_TENSORS; role++) (void)qn_memory_release(device, memory[role]);
  return status;
}

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where)
{
  (void)what;
  (void)kind;
  (void)where;
  return remove(path);
}

/* The environment with the cache on and at `directory`; the array is allocated, the strings are not copied. */
static char **child_environment(char *directory)
{
  static char on[] = "QUERN_CACHE=on";
  size_t n = 0, kept = 0;
  while (environ[n]) n++;
  char **own = qn_allocate((n + 3) * sizeof *own);
  if (!own) return NULL;
  for (size_t k = 0; k < n; k++)
    if (strncmp(environ[k], "QUERN_CACHE=", 12) != 0 && strncmp(environ[k], "QUERN_CACHE_DIR=", 16) != 0)
      own[kept++] = environ[k];
  own[kept++] = on;
  own[kept++] = directory;
  own[kept] = NULL;
  return own;
}

static qn_status read_answer(int from, pid_t child, double *ns)
{
  char text[128] = "", *end = text;
  size_t used = 0;
  ssize_t n;
  int state = 0;
  while (used < sizeof text - 1 && (n = read(from, text + used, sizeof text - 1 - used)) > 0) used += (size_t)n;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
  *ns = strtod(text, &end);
  if (WIFEXITED(state) && !WEXITSTATUS(state) && end != text && *ns > 0) return QN_OK;
  return qn_fail(QN_IO_ERROR, "first use: the process that was to measure it ended with %d and said \"%.60s\"",
                 WIFEXITED(state) ? WEXITSTATUS(state) : -1, text);
}

static qn_status run_child(const char *const *arguments, char **environment, double *ns)
{
  int ends[2];
  pid_t child;
  posix_spawn_file_actions_t actions;
  if (pipe(ends)) return qn_fail(QN_IO_ERROR, "first use: no pipe: %s", strerror(errno));
  int error = posix_spawn_file_actions_init(&actions);
  if (!error) {
    error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_addclose(&actions, ends[0]);
    if (!error)
      error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
  }
  close(ends[1]);
  qn_status status = error ? qn_fail(QN_IO_ERROR, "first use: no second process: %s", strerror(error))
                           : read_answer(ends[0], child, ns);
  close(ends[0]);
  return status;
}

qn_status qn_first_use(const char **arguments, size_t here, const char *here_empty, qn_first_use_times *times)
{
  enum { PREFIX = sizeof "QUERN_CACHE_DIR=" - 1 };
  char variable[4096];
  const char *temporary = getenv("TMPDIR");
  int n = snprintf(variable, sizeof variable, "QUERN_CACHE_DIR=%s/quern-first-use-XXXXXX",
                   temporary && *temporary ? temporary : "/tmp");
  qn_require(n > 0 && n < (int)sizeof variable, "first use: the path in TMPDIR is too long");
  if (!mkdtemp(variable + PREFIX))
    return qn_fail(QN_IO_ERROR, "first use: no directory %s: %s", variable + PREFIX, strerror(errno));
  char **environment = child_environment(variable);
  const char *here_op = arguments[here];
  arguments[here] = here_empty;
  qn_status status = environment ? run_child(arguments, environment, &times->empty_ns)
                                 : qn_fail(QN_NO_MEMORY, "first use: the environment of a second process");
  arguments[here] = here_op;
  if (status == QN_OK) status = run_child(arguments, environment, &times->cold_ns);
  if (status == QN_OK) status = run_child(arguments, environment, &times->disk_ns);
  qn_release(environment);
  nftw(variable + PREFIX, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  return status;
}
