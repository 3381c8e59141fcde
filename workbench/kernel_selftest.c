/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_selftest.c - plants bugs in a body and runs the check over each, in a process of its own: one that crashes or
 * never ends is caught too. On the processor. */
#include "core/core.h"
#include "workbench/kernel_mutate.h"
#include "workbench/kernel_say.h"
#include "workbench/sampler.h"
#include "workbench/record_inner.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 40, MOST_QUICK = 10, LIMIT_S = 60, FIRST_LIMIT_S = 600 };
enum { SURVIVED = 0, CAUGHT = 1, NO_BUG = 2 }; /* exit statuses of the process */

typedef struct attempt {
  const qn_kernel_trial_request *ask;
  const char *body;
  int report;       /* a pipe: the first failure */
  unsigned limit_s; /* of all of it */
} attempt;

/* Whether it compiles at all. */
static bool compiles(const qn_folder *folder, const qn_kernel_trial_request *ask)
{
  qn_kernel_case_order order = ask->base;
  qn_kernel_case *c = NULL;
  order.folder = folder;
  order.size = &folder->size[0];
  order.device = (qn_device){QN_CPU, 0};
  qn_status status = qn_kernel_case_create(&c, &order);
  if (status == QN_OK) status = qn_kernel_prepare(c->kernel, &c->exec, &c->call);
  if (c) qn_kernel_case_destroy(&c);
  return status != QN_COMPILE_ERROR;
}

static int try_it(void *user)
{
  const attempt *a = user;
  qn_folder folder = *a->ask->folder;
  qn_kernel_trial_request r = *a->ask;
  folder.body.source = a->body;
  r.folder = &folder;
  r.out = NULL;
  r.progress = NULL;
  r.run = r.number = r.failures = r.skipped = 0; /* those of the bugs before are the caller's */
  *r.first = 0;
  r.quick = r.first_only = true;
  r.gpu = false;
  r.processor = true;
  r.seeds = 1;
  alarm(a->limit_s);
  if (!compiles(&folder, &r)) return NO_BUG;
  if (qn_kernel_trial(&r) != QN_OK) snprintf(r.first, sizeof r.first, "%s", qn_last_error());
  size_t length = strcspn(r.first, "\n");
  if (write(a->report, r.first, length) < 0) return CAUGHT;
  return r.failures || *r.first ? CAUGHT : SURVIVED;
}

static void tell(qn_kernel_trial_request *r, const qn_mutation *m, bool caught, const char *how)
{
  r->run++;
  r->number++;
  r->failures += !caught;
  if (r->progress) qn_progress_hide(r->progress);
  if (r->json) {
    json_t *line = json_pack("{s:I, s:b, s:s, s:s, s:i, s:s}", "test", (json_int_t)r->number, "ok", caught, "kernel",
                             r->folder->name, "planted", m->what, "line", m->line, "caught", how);
    qn_json_print(r->out, line, JSON_COMPACT);
  } else if (caught) {
    fprintf(r->out, "ok %zu - %s:%d: %s is caught: %s\n", r->number, r->folder->body.file, m->line, m->what, how);
  } else {
    fprintf(r->out,
            "not ok %zu - %s:%d: %s is not caught\n#   Sizes, rules of fill or the agreement are too weak to see it; "
            "where it cannot matter, write `// quern: equivalent` on the line\n",
            r->number, r->folder->body.file, m->line, m->what);
  }
  fflush(r->out);
}

/* The check over a body: how it ended, and what it said of a failure. */
static qn_status attempt_body(const qn_kernel_trial_request *r, const char *body, unsigned limit_s, int *status,
                              char *how, size_t bytes)
{
  int ends[2];
  char said[128];
  if (pipe(ends)) return qn_fail(QN_IO_ERROR, "no pipe for a planted bug");
  attempt a = {.ask = r, .body = body, .report = ends[1], .limit_s = limit_s};
  *status = qn_isolated(try_it, &a, said, sizeof said);
  close(ends[1]);
  ssize_t n = read(ends[0], how, bytes - 1);
  close(ends[0]);
  how[n > 0 ? n : 0] = 0;
  if (*status < 0) snprintf(how, bytes, "%s", said);
  return QN_OK;
}

/* The seconds that the check takes where nothing is planted. */
static qn_status attempt_first(const qn_kernel_trial_request *r, unsigned *seconds)
{
  char how[512];
  int status;
  const int64_t begin = qn_now_ns();
  qn_try(attempt_body(r, r->folder->body.source, FIRST_LIMIT_S, &status, how, sizeof how));
  *seconds = (unsigned)((qn_now_ns() - begin) / 1000000000);
  if (status == SURVIVED) return QN_OK;
  return qn_fail(QN_KERNEL_ERROR, "kernel %s fails its check with nothing planted: quern check %s%s%s", r->folder->name,
                 r->folder->path, *how ? ": " : "", how);
}

qn_status qn_kernel_selftest(qn_kernel_trial_request *r)
{
  qn_mutations all;
  const size_t most = r->quick ? MOST_QUICK : MOST;
  qn_try(qn_mutations_make(r->folder->body.source, &all));
  unsigned seconds = 0;
  qn_status result = attempt_first(r, &seconds);
  const unsigned limit_s = seconds > LIMIT_S / 4 ? 4 * seconds : LIMIT_S;
  const size_t step = all.n > most ? (all.n + most - 1) / most : 1;
  size_t planted = 0;
  for (size_t k = 0; result == QN_OK && k < all.n; k += step) {
    char how[512];
    int status;
    if (r->progress) qn_progress_at(r->progress, k, "planting: line %d", all.at[k].line);
    result = attempt_body(r, all.at[k].text, limit_s, &status, how, sizeof how);
    if (result != QN_OK || status == NO_BUG) continue;
    tell(r, &all.at[k], status != SURVIVED, how);
    planted++;
  }
  if (result == QN_OK && !planted)
    result = qn_fail(QN_KERNEL_ERROR, "kernel %s: its body has no place for a bug to be planted", r->folder->name);
  qn_mutations_free(&all);
  return result;
}
