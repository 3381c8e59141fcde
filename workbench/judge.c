/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - the course of a judgement: the problem is opened and proved able to judge, then each candidate is compiled,
 * looked at, verified, timed. */
#include "workbench/judge_inner.h"
#include "core/core.h"
#include "workbench/judge_images.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const uint64_t orders[] = {1, 4, 16}; /* by level: of simdgroups in checking mode */

const char *const qn_judge_levels[] = {"quick", "full", "deep", NULL};

const char *qn_judge_word_text(qn_judge_word word)
{
  static const char *const words[] = {
      "faster",       "same",    "slower", "unclear",         "compile error", "launch fails", "wrong shape or type",
      "wrong values", "refused", "broken", "cannot be judged"};
  return words[word];
}

bool qn_judged(qn_judge_verdict *v, qn_judge_word word, const char *format, ...)
{
  char text[sizeof v->reason]; /* the arguments may be the former reason */
  va_list arguments;
  va_start(arguments, format);
  v->word = word;
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(v->reason, text, sizeof text);
  return false;
}

void qn_judge_note(qn_judge_verdict *v, const char *format, ...)
{
  va_list arguments;
  if (v->n_notes == QN_JUDGE_NOTES) return;
  va_start(arguments, format);
  vsnprintf(v->note[v->n_notes++], sizeof *v->note, format, arguments);
  va_end(arguments);
}

/* ---- the problem ---- */
/* On one launch: the reference answers otherwise to other inputs, and wrong outputs fail. */
static bool can_judge(qn_judge *j, qn_judge_verdict *v, qn_status *status)
{
  qn_judged_launch l = {.c = NULL}, other = {.c = NULL};
  char passing[160];
  qn_data_order o = qn_judge_data(j, j->proved, QN_DATA_AS_FILLED);
  *status = qn_judged_launch_make(&o, &l);
  if (*status == QN_OK) *status = qn_judged_launch_reference(&l);
  o.seed = qn_draw(&j->random);
  if (*status == QN_OK) *status = qn_judged_launch_make(&o, &other);
  if (*status == QN_OK) *status = qn_judged_launch_reference(&other);
  bool can = *status == QN_OK;
  if (can && qn_same_outputs(l.reference, other.reference))
    can = qn_judged(v, QN_JUDGED_NOT, "the reference gives the same outputs for other inputs");
  if (can) qn_passing_mutants(&l, other.reference, passing, sizeof passing);
  if (can && *passing)
    can = qn_judged(v, QN_JUDGED_NOT, "a wrong output passes for the reference's: %s; nothing can be proved by it",
                    passing);
  qn_judged_launch_clear(&l);
  qn_judged_launch_clear(&other);
  return can;
}

static qn_status open_problem(qn_judge *j, qn_judge_verdict *v)
{
  qn_status status;
  qn_try(qn_pool_create(&j->pool, j->ask.threads));
  qn_try(qn_judge_plan(j));
  qn_model_compile_own(j);
  if (!can_judge(j, v, &status)) return status;
  if (!qn_model_open(j, "", QN_PHASE_BOTH, -1, false, &j->baseline, v, &status)) {
    if (status == QN_OK) qn_judged(v, QN_JUDGED_NOT, "the problem's own body: %.1000s", v->reason);
    return status;
  }
  if (!qn_model_lock(&j->baseline, v) || !qn_judge_prove(j, v, &status)) return status;
  if (qn_model_open(j, "", QN_PHASE_BOTH, -1, false, &j->control, v, &status))
    (void)qn_model_lock(&j->control, v);
  else if (status == QN_OK)
    qn_judged(v, QN_JUDGED_NOT, "the problem's own body: %.1000s", v->reason);
  return status;
}

qn_status qn_judge_open(qn_judge **judge, const qn_judge_request *request, char *why, size_t bytes)
{
  qn_judge_verdict v = {.word = QN_JUDGED_UNCLEAR};
  qn_judge *j = *judge = qn_allocate_zero(1, sizeof *j);
  *why = 0;
  if (!j) return qn_fail(QN_NO_MEMORY, "a judge");
  j->ask = *request;
  j->baseline.talk = j->baseline.arena_file = j->baseline.box.report = -1;
  j->control = j->baseline;
  j->seed = request->seed;
  while (!j->seed)
    if (getrandom(&j->seed, sizeof j->seed, 0) == sizeof j->seed) j->seed &= (UINT64_C(1) << 48) - 1;
  j->random = j->seed;
  qn_status status = qn_folder_read(request->problem, &j->folder);
  if (status == QN_OK && !realpath(request->problem, j->path)) status = qn_fail(QN_BAD_FILE, "%s", request->problem);
  if (status == QN_OK && !j->folder->reference.source)
    qn_judged(&v, QN_JUDGED_NOT, "kernel %s has no reference", j->folder->name);
  else if (status == QN_OK && !j->folder->n_sizes)
    qn_judged(&v, QN_JUDGED_NOT, "kernel %s has no sizes", j->folder->name);
  else if (status == QN_OK)
    status = open_problem(j, &v);
  if (v.word == QN_JUDGED_NOT || *v.reason) snprintf(why, bytes, "%s", v.reason);
  if (status != QN_OK) qn_judge_close(judge);
  return status;
}

void qn_judge_close(qn_judge **judge)
{
  qn_judge *j = *judge;
  *judge = NULL;
  if (!j) return;
  qn_judge_process_end(&j->baseline);
  qn_judge_process_end(&j->control);
  qn_pool_destroy(&j->pool);
  qn_folder_free(&j->folder);
  qn_release(j);
}

uint64_t qn_judge_seed(const qn_judge *judge) { return judge->seed; }

/* ---- a candidate ---- */
static bool look_at_images(const qn_judge *j, int images, qn_judge_verdict *v)
{
  size_t n;
  char why[160];
  if (fcntl(images, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
    return qn_judged(v, QN_JUDGED_BROKEN, "its compiled kernels could not be closed to it");
  if (j->ask.device.kind == QN_CUDA || qn_images_allowed(images, &n, why, sizeof why)) return true;
  return qn_judged(v, QN_JUDGED_REFUSED, "%s", why);
}

static bool compile(qn_judge *j, const char *path, int images, bool inspects, qn_judge_verdict *v, qn_status *status)
{
  qn_judge_process p;
  if (j->ask.progress) qn_progress_at(j->ask.progress, 0, "compiling");
  const bool compiled = qn_model_open(j, path, QN_PHASE_COMPILE, images, inspects, &p, v, status);
  if (*status == QN_OK) qn_judge_process_end(&p);
  return compiled && look_at_images(j, images, v);
}

/* Checking mode: races, accesses out of bounds and the like, with the lines that the compiler knows. In a process that
 * is not locked, since finding a line reads files. A check that could not finish in half of the limit refuses nobody.
 */
static bool inspect(qn_judge *j, const char *path, int images, qn_judge_verdict *v, qn_status *status)
{
  qn_judge_process p;
  qn_data_order o = qn_judge_data(j, j->inspected, QN_DATA_AS_FILLED);
  qn_talk_answer a;
  if (j->no_inspection) {
    qn_judge_note(v, "checking mode does not run this kernel");
    return true;
  }
  bool right = qn_model_open(j, path, QN_PHASE_RUN, images, true, &p, v, status);
  if (*status != QN_OK) return false;
  o.at = p.arena + j->verify_offset;
  for (uint64_t seed = 0; right && !j->no_inspection && *status == QN_OK && seed < orders[j->ask.level]; seed++) {
    qn_talk_ask ask = {
        .what = QN_TALK_INSPECT, .slot = QN_VERIFY_SLOT, .seed = seed, .limit_s = j->ask.limits.seconds / 2};
    qn_judged_launch l = {.c = NULL};
    *status = qn_judged_launch_make(&o, &l);
    if (*status == QN_OK &&
        (!qn_ask_slot(&p, QN_VERIFY_SLOT, j->n_planned + 1, j->verify_offset, &a) || !qn_judge_ask(&p, &ask, &a)))
      right = qn_model_broken(&p, v);
    else if (*status == QN_OK && a.status == QN_TALK_STOPPED)
      v->in_doubt = true;
    else if (*status == QN_OK && a.status == QN_KERNEL_ERROR)
      right = qn_judged(v, QN_JUDGED_REFUSED, "checking mode: %s", a.text);
    qn_judged_launch_clear(&l);
    if (v->in_doubt) break;
  }
  if (v->in_doubt) qn_judge_note(v, "checking mode was stopped after %g s", j->ask.limits.seconds / 2);
  qn_judge_process_end(&p);
  return right && *status == QN_OK;
}

/* A GPU has no checking mode: its candidate is compiled and looked at as one for the processor, and runs there. A body
 * that does not compile or run there proves nothing, and a note says so. */
static bool inspect_anywhere(qn_judge *j, const char *path, int images, qn_judge_verdict *v, qn_status *status)
{
  const qn_device device = j->ask.device;
  qn_judge_verdict own = {.word = QN_JUDGED_UNCLEAR};
  if (device.kind != QN_CUDA) return inspect(j, path, images, v, status);
  const int compiled = qn_memory_file_make("quern-images");
  if (compiled < 0) *status = qn_fail(QN_IO_ERROR, "no file in memory for compiled kernels");
  if (compiled < 0) return false;
  j->ask.device = (qn_device){QN_CPU, 0};
  const bool can = compile(j, path, compiled, true, &own, status);
  const bool right = can && inspect(j, path, compiled, &own, status);
  j->ask.device = device;
  close(compiled);
  if (*status != QN_OK) return false;
  if (can && own.word == QN_JUDGED_REFUSED) return qn_judged(v, own.word, "%s", own.reason);
  if (!right) qn_judge_note(v, "checking mode on the processor does not run it: %.200s", own.reason);
  v->in_doubt |= own.in_doubt;
  for (size_t k = 0; k < own.n_notes; k++) qn_judge_note(v, "%s", own.note[k]);
  return true;
}

static bool run(qn_judge *j, const char *path, int images, qn_judge_verdict *v, qn_status *status)
{
  qn_judge_process p;
  const bool opened = qn_model_open(j, path, QN_PHASE_RUN, images, false, &p, v, status);
  if (*status != QN_OK) return false;
  const bool right = opened && qn_model_lock(&p, v) && qn_judge_verify(j, &p, v, status) &&
                     qn_judge_repeat(j, &p, v, status) && inspect_anywhere(j, path, images, v, status) &&
                     qn_judge_time(j, &p, v, status);
  qn_judge_process_end(&p);
  return right;
}

bool qn_judge_needs_second(const qn_judge_verdict *v)
{
  const double little = 1.25;
  return (v->word == QN_JUDGED_FASTER && v->speedup.low < little) ||
         (v->word == QN_JUDGED_SLOWER && v->speedup.high > 1 / little);
}

void qn_judge_agree(qn_judge_verdict *v, const qn_judge_verdict *second)
{
  if (second->word == v->word) return;
  qn_judge_note(v, "a second process is %s, %.3g times the baseline", qn_judge_word_text(second->word),
                second->speedup.ratio);
  v->word = QN_JUDGED_UNCLEAR;
}

static bool confirm(qn_judge *j, const char *path, int images, qn_judge_verdict *v, qn_status *status)
{
  qn_judge_verdict second = {.word = QN_JUDGED_UNCLEAR};
  qn_judge_process p;
  if (!qn_judge_needs_second(v)) return true;
  const bool opened = qn_model_open(j, path, QN_PHASE_RUN, images, false, &p, &second, status);
  if (*status != QN_OK) return false;
  const bool right = opened && qn_model_lock(&p, &second) && qn_judge_time(j, &p, &second, status);
  qn_judge_process_end(&p);
  if (right) qn_judge_agree(v, &second);
  if (!right && *status == QN_OK) qn_judged(v, second.word, "in a second process: %s", second.reason);
  qn_judge_verdict_clear(&second);
  return right;
}

static bool judge_body(qn_judge *j, const char *path, int images, qn_judge_verdict *v, qn_status *status)
{
  enum { SUSPICIOUS = 10 };
  if (!compile(j, path, images, false, v, status) || !run(j, path, images, v, status)) return false;
  if (v->speedup.ratio <= SUSPICIOUS || j->ask.level != QN_JUDGE_QUICK) return confirm(j, path, images, v, status);
  const double first = v->speedup.ratio;
  const qn_judge_verdict before = *v;
  *v = (qn_judge_verdict){.granted = before.granted};
  qn_judge_verdict cleared = before;
  qn_judge_verdict_clear(&cleared);
  const bool again = run(j, path, images, v, status);
  qn_judge_note(v, "%.3g times the baseline is suspicious; a second process was verified and timed", first);
  return again;
}

qn_status qn_judge_candidate(qn_judge *j, const char *candidate, qn_judge_verdict *v)
{
  char path[QN_TALK_PATH];
  qn_judged_kernel kernel;
  qn_status status = QN_OK;
  *v = (qn_judge_verdict){.word = QN_JUDGED_UNCLEAR};
  if (!realpath(candidate, path)) return qn_fail(QN_BAD_ARGUMENT, "%s: there is no such candidate", candidate);
  if (qn_judged_kernel_read(j->path, path, &kernel) != QN_OK) {
    const bool shape = strstr(qn_last_error(), "the problem") != NULL;
    qn_judged(v, shape ? QN_JUDGED_SHAPE : QN_JUDGED_COMPILE_ERROR, "%s", qn_last_error());
    return QN_OK;
  }
  qn_judged_kernel_free(&kernel);
  if (*j->baseline.broken) return qn_fail(QN_KERNEL_ERROR, "the problem's own body: %s", j->baseline.broken);
  if (*j->control.broken) return qn_fail(QN_KERNEL_ERROR, "the problem's own body: %s", j->control.broken);
  j->no_inspection = false; /* of this candidate */
  const int images = qn_memory_file_make("quern-images");
  if (images < 0) return qn_fail(QN_IO_ERROR, "no file in memory for compiled kernels");
  (void)judge_body(j, path, images, v, &status);
  close(images);
  return status;
}

void qn_judge_verdict_clear(qn_judge_verdict *v)
{
  for (size_t t = 0; t < QN_TIMER_COUNT; t++)
    for (size_t m = 0; m < QN_JUDGE_MODELS; m++) {
      qn_release(v->times[t].ns[m]);
      v->times[t].ns[m] = NULL;
    }
}
