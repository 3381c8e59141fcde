/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c - see turns.h. */
#include "workbench/turns.h"
#include "core/core.h"
#include "workbench/program.h"
#include <limits.h>
#include <math.h>

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
  const char *const arguments[] = {"sh", "-c", line, NULL};
  char said[QN_PROGRAM_SAID];
  qn_text output = {0};
  int ended;
  qn_try(qn_program_run(arguments, NULL, -1, SIZE_MAX, HUGE_VAL, INT_MAX, &output, &ended, said));
  qn_text_free(&output);
  return ended ? qn_fail(QN_IO_ERROR, "%s: ended with %s", command, said) : QN_OK;
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
