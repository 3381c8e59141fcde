/* SPDX-License-Identifier: Apache-2.0 */
/* judge_model.c - a model: a process with a kernel (judge_process.h) that has a judge's launches prepared. What goes
 * wrong in it becomes a verdict. */
#include "workbench/judge_inner.h"
#include "core/core.h"
#include "quern/cache.h"
#include "workbench/kernel_tuned.h"
#include <stdio.h>
#include <string.h>

/* ---- the problem's own body ---- */
static void compile_own(void *user, size_t k)
{
  const qn_judge *j = user;
  char text[256];
  qn_name set[QN_FOLDER_NAMES];
  qn_kernel_case *c = NULL;
  qn_kernel_case_order order = {.device = j->ask.device, .pool = j->pool, .foreign = true};
  qn_talk_order(j->folder, k < j->n_planned ? &j->planned[k].spec : &j->timed, set, &order);
  if (!j->ask.untuned && qn_tuned_apply(j->folder, &order, text, sizeof text) != QN_OK) return;
  if (qn_kernel_case_create(&c, &order) == QN_OK) (void)qn_kernel_prepare(c->kernel, &c->exec, &c->call);
  qn_kernel_case_destroy(&c);
}

void qn_model_compile_own(qn_judge *j)
{
  const char *cache;
  if (j->ask.device.kind == QN_CUDA || qn_cache_directory(&cache) != QN_OK) return;
  qn_pool_run(j->pool, j->n_planned + 1, compile_own, j);
}

/* ---- asking ---- */
static bool ask_prepare(qn_judge_process *p, const qn_talk_spec *spec, size_t number, bool check,
                        qn_talk_answer *answer)
{
  qn_talk_ask ask = {.what = QN_TALK_PREPARE, .spec = (int)number, .is = *spec, .check = check};
  return qn_judge_ask(p, &ask, answer);
}

bool qn_ask_slot(qn_judge_process *p, int slot, size_t spec, uint64_t offset, qn_talk_answer *answer)
{
  qn_talk_ask ask = {.what = QN_TALK_SLOT, .slot = slot, .spec = (int)spec, .offset = offset};
  return qn_judge_ask(p, &ask, answer);
}

static bool ask_run(qn_judge_process *p, int slot, qn_timer timer, qn_talk_answer *answer)
{
  qn_talk_ask ask = {.what = QN_TALK_RUN, .slot = slot, .timer = (int)timer};
  return qn_judge_ask(p, &ask, answer);
}

static qn_talk_job job_of(const qn_judge *j, const char *candidate)
{
  qn_talk_job job = {.device = j->ask.device, .threads = j->ask.threads, .tuned = !j->ask.untuned};
  snprintf(job.problem, sizeof job.problem, "%s", j->path);
  snprintf(job.candidate, sizeof job.candidate, "%s", candidate);
  job.arena_bytes = j->arena_bytes;
  return job;
}

/* Launch number k of a process: verified, timed, or in checking mode. NULL: not in this process. */
static const qn_talk_spec *launch_of(const qn_judge *j, const qn_judge_process *p, size_t k, bool inspects)
{
  const bool check = k == j->n_planned + 1, own = p == &j->baseline || p == &j->control;
  if (inspects && !check) return NULL;
  if (k < j->n_planned) return p == &j->control || j->planned[k].dropped ? NULL : &j->planned[k].spec;
  if (!check) return &j->timed;
  return own || j->ask.device.kind == QN_CUDA || j->no_inspection ? NULL : &j->planned[j->inspected].spec;
}

/* Checking mode first: its compile takes longest. */
static bool expect_all(const qn_judge *j, qn_judge_process *p, qn_judge_verdict *v)
{
  qn_talk_answer a;
  for (size_t k = j->n_planned + 2; k-- > 0;) {
    const qn_talk_spec *spec = launch_of(j, p, k, false);
    qn_talk_ask ask = {.what = QN_TALK_EXPECT, .check = k == j->n_planned + 1, .last = k == 0};
    if (!spec && !ask.last) continue;
    ask.is = spec ? *spec : j->timed;
    if (!qn_judge_ask(p, &ask, &a)) return qn_model_broken(p, v);
  }
  return true;
}

/* "compile error" is the compiler's sentence; other failures to prepare are a launch that this candidate does not
 * allow. */
static bool prepare_all(qn_judge *j, qn_judge_process *p, bool inspects, qn_judge_verdict *v)
{
  qn_talk_answer a;
  const bool own = p == &j->baseline || p == &j->control;
  for (size_t k = 0; k < j->n_planned + 2; k++) {
    const bool check = k == j->n_planned + 1;
    const qn_talk_spec *spec = launch_of(j, p, k, inspects);
    if (!spec) continue;
    if (!ask_prepare(p, spec, k, check, &a))
      return qn_judged(v, p->forbidden ? QN_JUDGED_REFUSED : QN_JUDGED_BROKEN, "while it is compiled: %s", p->broken);
    if (a.status == QN_OK) continue;
    if (check && a.status == QN_UNSUPPORTED) {
      j->no_inspection = true;
      continue;
    }
    if (own && k < j->n_planned && spec->drawn) {
      j->planned[k].dropped = true;
      continue;
    }
    if (a.status == QN_COMPILE_ERROR) return qn_judged(v, QN_JUDGED_COMPILE_ERROR, "%s", a.text);
    return qn_judged(v, QN_JUDGED_LAUNCH, "%s", a.text);
  }
  return true;
}

bool qn_model_open(qn_judge *j, const char *candidate, qn_talk_phase phase, int images, bool inspects,
                   qn_judge_process *p, qn_judge_verdict *v, qn_status *status)
{
  qn_talk_answer a = {.status = QN_OK};
  qn_talk_job job = job_of(j, candidate);
  if (phase == QN_PHASE_COMPILE) job.arena_bytes = 0;
  *status = qn_judge_process_start(p, &job, phase, images, &j->ask.limits, &a);
  if (*status != QN_OK) return false;
  v->granted = (v->granted & QN_SANDBOX_CALLS) | p->box.granted; /* calls: of the process that was verified */
  if (*p->broken) return qn_judged(v, QN_JUDGED_BROKEN, "%s", p->broken);
  if (a.status != QN_OK) return qn_judged(v, QN_JUDGED_BROKEN, "%s", a.text);
  if (phase != QN_PHASE_RUN && !inspects && !expect_all(j, p, v)) return false;
  return prepare_all(j, p, inspects, v);
}

bool qn_model_broken(const qn_judge_process *p, qn_judge_verdict *v)
{
  return qn_judged(v, p->forbidden ? QN_JUDGED_REFUSED : QN_JUDGED_BROKEN, "%s", p->broken);
}

/* Both models, or one of them would pay for the filter alone. */
bool qn_model_lock(qn_judge_process *p, qn_judge_verdict *v)
{
  qn_talk_ask ask = {.what = QN_TALK_LOCK};
  qn_talk_answer a;
  if (!qn_judge_ask(p, &ask, &a)) return qn_model_broken(p, v);
  if (a.status == QN_OK) v->granted |= QN_SANDBOX_CALLS;
  return true;
}

bool qn_model_run(qn_judge_process *p, int slot, qn_timer timer, double *ns, qn_judge_verdict *v)
{
  qn_talk_answer a;
  if (!ask_run(p, slot, timer, &a)) return qn_model_broken(p, v);
  if (a.status != QN_OK) return qn_judged(v, QN_JUDGED_LAUNCH, "%s", a.text);
  if (a.threads > 0) return qn_judged(v, QN_JUDGED_REFUSED, "it started %d threads of its own", a.threads);
  if (!(a.ns > 0)) return qn_judged(v, QN_JUDGED_REFUSED, "a time that is no positive number came out of its process");
  if (ns) *ns = a.ns;
  return true;
}
