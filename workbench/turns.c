/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c - see turns.h. */
#include "workbench/turns.h"
#include "core/core.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* "COMMAND --json 'FILE'", the file as one word of the shell. */
static qn_status line_of(const qn_turn *turn, qn_text *line)
{
  qn_text_add(line, "%s --json '", turn->command);
  for (const char *c = turn->file; *c; c++) {
    if (*c == '\'')
      qn_text_add(line, "'\\''");
    else
      qn_text_add(line, "%c", *c);
  }
  qn_text_add(line, "'");
  return line->failed ? qn_fail(QN_NO_MEMORY, "a command line") : QN_OK;
}

static qn_status run_line(const char *line, const char *command)
{
  char shell[] = "sh", option[] = "-c";
  char *arguments[] = {shell, option, (char *)(uintptr_t)line, NULL};
  pid_t child;
  int state = 0;
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (!error) {
    error = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!error) error = posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  if (error) return qn_fail(QN_IO_ERROR, "%s: %s", command, strerror(error));
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(state) && !WEXITSTATUS(state)) return QN_OK;
  if (WIFSIGNALED(state)) return qn_fail(QN_IO_ERROR, "%s: ended by signal %d", command, WTERMSIG(state));
  return qn_fail(QN_IO_ERROR, "%s: ended with status %d", command, WEXITSTATUS(state));
}

qn_status qn_turns_run(const qn_turn *a, const qn_turn *b, size_t n, qn_progress *progress)
{
  const qn_turn *turns[] = {a, b};
  qn_text lines[2] = {{0}, {0}};
  qn_status status = line_of(a, &lines[0]);
  if (status == QN_OK) status = line_of(b, &lines[1]);
  for (size_t k = 0; status == QN_OK && k < 2 * n; k++) {
    const size_t which = (k + k / 2) % 2; /* A B, B A, ...: what drifts steadily favours neither */
    qn_progress_at(progress, k, "run %zu of %zu: %s", k + 1, 2 * n, turns[which]->command);
    status = run_line(lines[which].at, turns[which]->command);
  }
  qn_text_free(&lines[0]);
  qn_text_free(&lines[1]);
  return status;
}
