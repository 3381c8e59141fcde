/* SPDX-License-Identifier: Apache-2.0 */
/* first_use.c - see first_use.h. */
#include "workbench/first_use.h"
#include "core/core.h"
#include "jit/jit.h"
#include "quern/device.h"
#include "workbench/program.h"
#include "workbench/sampler.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static qn_status run_child(const char *const *arguments, char **environment, double *ns)
{
  enum { ANSWER_MOST = 128, END_MS = 60000 };
  qn_text text = {0};
  char said[QN_PROGRAM_SAID];
  const char *end = NULL;
  int ended;
  qn_try(qn_program_run(arguments, environment, -1, ANSWER_MOST, HUGE_VAL, END_MS, &text, &ended, said));
  const char *answer = text.at ? text.at : "";
  *ns = qn_text_real(answer, &end);
  const qn_status status = !ended && end != answer && *ns > 0
                               ? QN_OK
                               : qn_fail(QN_IO_ERROR,
                                         "first use: the process that was to measure it ended with %d and said "
                                         "\"%.60s\"",
                                         ended, answer);
  qn_text_free(&text);
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
  arguments[0] = "/proc/self/exe";
  arguments[here] = here_empty;
  qn_status status = environment ? run_child(arguments, environment, &times->empty_ns)
                                 : qn_fail(QN_NO_MEMORY, "first use: the environment of a second process");
  arguments[here] = here_op;
  if (status == QN_OK) status = run_child(arguments, environment, &times->cold_ns);
  if (status == QN_OK) status = run_child(arguments, environment, &times->disk_ns);
  qn_release(environment);
  qn_tree_remove(variable + PREFIX);
  return status;
}
