/* SPDX-License-Identifier: Apache-2.0 */
/* beside.c - see beside.h. */
#include "workbench/beside.h"
#include "core/core.h"
#include "workbench/record.h"
#include <stdlib.h>

typedef struct talk {
  const qn_bench *bench;
  FILE *in, *out;
  bool begun;
  qn_status status;
} talk;

static qn_status say(FILE *out, qn_status (*text_of)(const qn_bench *bench, char **text), const qn_bench *bench)
{
  char *text;
  qn_try(text_of(bench, &text));
  bool failed = fprintf(out, "%s\n", text) < 0 || fflush(out) != 0;
  free(text);
  return failed ? qn_fail(QN_IO_ERROR, "nobody reads the ceilings any more") : QN_OK;
}

/* Called before each round: tells that the last one is done, or the head; then waits for a line. */
static bool next_round(void *user)
{
  talk *t = user;
  char line[64];
  if (!t->begun)
    t->status = say(t->out, qn_record_head, t->bench);
  else if (fputs("{}\n", t->out) < 0 || fflush(t->out) != 0)
    t->status = qn_fail(QN_IO_ERROR, "nobody reads the ceilings any more");
  t->begun = true;
  return t->status == QN_OK && fgets(line, sizeof line, t->in) != NULL;
}

qn_status qn_beside_run(const qn_bench_request *request, FILE *in, FILE *out)
{
  qn_bench bench;
  talk t = {.bench = &bench, .in = in, .out = out, .status = QN_OK};
  qn_bench_request ask = *request;
  ask.next = next_round;
  ask.user = &t;
  qn_status status = qn_bench_run(&ask, &bench);
  if (status == QN_OK) status = t.status;
  if (status == QN_OK) status = say(out, qn_record_ceilings, &bench);
  qn_bench_clear(&bench);
  return status;
}
