/* SPDX-License-Identifier: Apache-2.0 */
/* judge.c - the course of a judgement: the problem is opened and proved able to judge, then each candidate is compiled,
 * looked at, verified, timed. judge_time.c times. */
#include "workbench/judge_inner.h"
#include "core/core.h"
#include "workbench/judge_images.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* By level: most elements of a verified launch, hidden sizes, changed distributions of each size, orders of simdgroups
 * in checking mode. */
static const struct {
  uint64_t elements;
  size_t hidden;
  int distributions;
  uint64_t orders;
} levels[] = {{1 << 17, 6, 1, 1}, {1 << 20, 16, 2, 4}, {1 << 24, 32, QN_DATA_COUNT - 1, 16}};

const char *qn_judge_level_name(qn_judge_level level)
{
  static const char *const names[] = {"quick", "full", "deep"};
  return names[level];
}

const char *qn_judge_word_text(qn_judge_word word)
{
  static const char *const words[] = {
      "faster",       "same",    "slower", "unclear",         "compile error", "launch fails", "wrong shape or type",
      "wrong values", "refused", "broken", "cannot be judged"};
  return words[word];
}

bool qn_judged(qn_judge_verdict *v, qn_judge_word word, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  v->word = word;
  vsnprintf(v->reason, sizeof v->reason, format, arguments);
  va_end(arguments);
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

/* ---- asking ---- */
bool qn_ask_prepare(qn_judge_process *p, const qn_talk_spec *spec, size_t number, bool check, qn_talk_answer *answer)
{
  qn_talk_ask ask = {.what = QN_TALK_PREPARE, .spec = (int)number, .is = *spec, .check = check};
  return qn_judge_ask(p, &ask, answer);
}

bool qn_ask_slot(qn_judge_process *p, int slot, size_t spec, uint64_t offset, qn_talk_answer *answer)
{
  qn_talk_ask ask = {.what = QN_TALK_SLOT, .slot = slot, .spec = (int)spec, .offset = offset};
  return qn_judge_ask(p, &ask, answer);
}

bool qn_ask_run(qn_judge_process *p, int slot, qn_timer timer, qn_talk_answer *answer)
{
  qn_talk_ask ask = {.what = QN_TALK_RUN, .slot = slot, .timer = (int)timer};
  return qn_judge_ask(p, &ask, answer);
}

/* ---- the plan: which launches ---- */
static bool is_plain(const qn_folder_size *size) { return !size->health && !size->fill; }

static void add_spec(qn_judge *j, const qn_talk_spec *spec, size_t turn)
{
  qn_planned *p = &j->planned[j->n_planned];
  uint64_t elements, bytes;
  *p = (qn_planned){.spec = *spec};
  for (size_t k = 0; k < j->folder->n_inputs; k++) {
    const qn_folder_tensor *t = &j->folder->tensor[k];
    if (t->n_dtypes) p->spec.dtype[k] = (uint8_t)t->dtype[turn % t->n_dtypes];
  }
  if (j->n_planned + 3 >= QN_TALK_SPECS || qn_spec_amount(j->folder, &p->spec, &elements, &bytes) != QN_OK) return;
  if (elements > levels[j->ask.level].elements) return;
  if (bytes > j->verify_bytes) j->verify_bytes = bytes;
  j->n_planned++;
}

static void plan_sizes(qn_judge *j)
{
  const qn_folder *f = j->folder;
  for (size_t k = 0; k < f->n_sizes; k++)
    if (!f->size[k].health) add_spec(j, &(qn_talk_spec){.base = (uint32_t)k}, k);
  const size_t shown = j->n_planned;
  for (size_t tries = 0; tries < 8 * levels[j->ask.level].hidden; tries++) {
    qn_talk_spec spec;
    qn_spec_draw(f, &j->random, &spec);
    if (j->n_planned >= shown + levels[j->ask.level].hidden) break;
    if (is_plain(&f->size[spec.base])) add_spec(j, &spec, tries);
  }
}

/* ---- the timed launch ---- */
static double most_timed_bytes(const qn_judge *j)
{
  static const double cpu[] = {1 << 20, 64 << 20, 1 << 30}, gpu[] = {256 << 20, 1L << 30, 4L << 30};
  return j->ask.device.kind == QN_CUDA ? gpu[j->ask.level] : cpu[j->ask.level];
}

static qn_status find_workload(const qn_judge *j, const char *name, qn_talk_spec *spec)
{
  const qn_folder *f = j->folder;
  const char *names[QN_FOLDER_MOST + 1] = {NULL};
  for (size_t k = 0; k < f->n_workloads; k++) {
    names[k] = f->workload[k].name;
    if (strcmp(names[k], name) != 0) continue;
    *spec = (qn_talk_spec){.workload = true, .base = (uint32_t)k};
    return QN_OK;
  }
  const char *near = qn_nearest(name, names);
  return qn_fail(QN_BAD_ARGUMENT, "kernel %s has no workload %s%s%s%s", f->name, name, near ? "; did you mean " : "",
                 near ? near : "", near ? "?" : "");
}

/* The first workload that is not too large, else the largest size that is not. */
static qn_status plan_timed(qn_judge *j)
{
  const qn_folder *f = j->folder;
  uint64_t elements, bytes, best = 0;
  if (j->ask.workload) {
    qn_try(find_workload(j, j->ask.workload, &j->timed));
    return qn_spec_amount(f, &j->timed, &elements, &j->timed_bytes);
  }
  for (size_t k = 0; k < f->n_workloads; k++) {
    const qn_talk_spec spec = {.workload = true, .base = (uint32_t)k};
    qn_try(qn_spec_amount(f, &spec, &elements, &bytes));
    if ((double)bytes > most_timed_bytes(j)) continue;
    j->timed = spec;
    j->timed_bytes = bytes;
    return QN_OK;
  }
  for (size_t k = 0; k < f->n_sizes; k++) {
    const qn_talk_spec spec = {.base = (uint32_t)k};
    if (!is_plain(&f->size[k]) || qn_spec_amount(f, &spec, &elements, &bytes) != QN_OK) continue;
    if (best && (bytes < best || (double)bytes > most_timed_bytes(j))) continue;
    best = bytes;
    j->timed = spec;
  }
  j->timed_bytes = best;
  return best ? QN_OK : qn_fail(QN_BAD_ARGUMENT, "kernel %s has no size that can be timed", f->name);
}

/* ---- a model: a process with a kernel, its launches prepared ---- */
static qn_talk_job job_of(const qn_judge *j, const char *candidate)
{
  qn_talk_job job = {.device = j->ask.device, .threads = j->ask.threads, .tuned = !j->ask.untuned};
  snprintf(job.problem, sizeof job.problem, "%s", j->path);
  snprintf(job.candidate, sizeof job.candidate, "%s", candidate);
  job.arena_bytes = j->arena_bytes;
  return job;
}

/* "compile error" is the compiler's sentence; other failures to prepare are a launch that this candidate does not
 * allow. */
static bool prepare_all(qn_judge *j, qn_judge_process *p, bool inspects, qn_judge_verdict *v)
{
  qn_talk_answer a;
  const bool own = p == &j->baseline || p == &j->control;
  for (size_t k = inspects ? j->n_planned + 1 : p == &j->control ? j->n_planned : 0; k < j->n_planned + 2; k++) {
    const bool check = k == j->n_planned + 1;
    const qn_talk_spec *spec = k < j->n_planned ? &j->planned[k].spec
                               : check          ? &j->planned[j->inspected].spec
                                                : &j->timed;
    if (k < j->n_planned && j->planned[k].dropped) continue;
    if (check && (own || j->ask.device.kind == QN_CUDA || j->no_inspection)) continue;
    if (!qn_ask_prepare(p, spec, k, check, &a))
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

static bool open_model(qn_judge *j, const char *candidate, qn_talk_phase phase, int images, bool inspects,
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
  return prepare_all(j, p, inspects, v);
}

/* ---- verification ---- */
bool qn_model_broken(const qn_judge_process *p, qn_judge_verdict *v)
{
  return qn_judged(v, p->forbidden ? QN_JUDGED_REFUSED : QN_JUDGED_BROKEN, "%s", p->broken);
}

/* Both models, or one of them would pay for the filter alone. */
static bool lock(qn_judge_process *p, qn_judge_verdict *v)
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
  if (!qn_ask_run(p, slot, timer, &a)) return qn_model_broken(p, v);
  if (a.status != QN_OK) return qn_judged(v, QN_JUDGED_LAUNCH, "%s", a.text);
  if (a.threads > 0) return qn_judged(v, QN_JUDGED_REFUSED, "it started %d threads of its own", a.threads);
  if (!(a.ns > 0)) return qn_judged(v, QN_JUDGED_REFUSED, "a time that is no positive number came out of its process");
  if (ns) *ns = a.ns;
  return true;
}

static void describe(const qn_judged_launch *l, const qn_data_order *o, char *text, size_t bytes)
{
  qn_kernel_case_text(l->c, text, bytes);
  const size_t used = strlen(text);
  if (o->distribution) snprintf(text + used, bytes - used, " (data: %s)", qn_distribution_name(o->distribution));
}

/* One launch of a model over data that nobody saw before. The reference is computed after the model has run. */
static bool verify_one(qn_judge *j, qn_judge_process *p, size_t number, qn_data_order *o, qn_judge_verdict *v,
                       qn_status *status)
{
  char why[512], about[200];
  qn_talk_answer a;
  qn_judged_launch l = {.c = NULL};
  const uint64_t offset = j->verify_offset + (qn_draw(&j->random) & 0xff) * QN_GUARD;
  bool right = false;
  o->at = p->arena + offset;
  *status = qn_judged_launch_make(o, &l);
  if (*status == QN_OK) {
    describe(&l, o, about, sizeof about);
    if (!qn_ask_slot(p, QN_VERIFY_SLOT, number, offset, &a))
      right = qn_model_broken(p, v);
    else if (a.status != QN_OK)
      right = qn_judged(v, QN_JUDGED_LAUNCH, "%s: %s", about, a.text);
    else
      right = qn_model_run(p, QN_VERIFY_SLOT, QN_TIMER_SIMPLE, NULL, v);
    if (!right && *v->reason && (v->word == QN_JUDGED_BROKEN || v->word == QN_JUDGED_LAUNCH) &&
        !strstr(v->reason, about)) {
      char first[512];
      snprintf(first, sizeof first, "%.500s", v->reason);
      qn_judged(v, v->word, "%s: %s", about, first);
    }
  }
  if (right) *status = qn_judged_launch_reference(&l);
  if (right && *status == QN_OK) {
    qn_judge_word word;
    right = qn_judged_launch_right(&l, l.reference, &word, why, sizeof why);
    if (!right) qn_judged(v, word, "%s: %s", about, why);
    v->launches += right;
  }
  qn_judged_launch_clear(&l);
  return right && *status == QN_OK;
}

static qn_data_order data_of(qn_judge *j, size_t number, qn_distribution d)
{
  return (qn_data_order){.folder = j->folder,
                         .spec = &j->planned[number].spec,
                         .seed = qn_draw(&j->random),
                         .fill = (size_t)qn_draw(&j->random) % 8,
                         .distribution = d,
                         .pool = j->pool};
}

/* What the baseline itself does not bear is not asked of a candidate: hidden sizes that its launch refuses, data on
 * which its outputs are not right. A size of the folder's own must be right. */
static bool prove_baseline(qn_judge *j, qn_judge_verdict *v, qn_status *status)
{
  for (size_t k = 0; k < j->n_planned; k++) {
    qn_planned *p = &j->planned[k];
    if (p->dropped) continue;
    for (int d = 0; d < QN_DATA_COUNT; d++) {
      if (d && (size_t)d != 1 + k % (QN_DATA_COUNT - 1) && j->ask.level == QN_JUDGE_QUICK) continue;
      qn_data_order o = data_of(j, k, (qn_distribution)d);
      if (verify_one(j, &j->baseline, k, &o, v, status)) {
        p->bears |= 1u << d;
        continue;
      }
      if (*status != QN_OK && *status != QN_BAD_ARGUMENT && *status != QN_KERNEL_ERROR) return false;
      if (!d && !p->spec.drawn) return qn_judged(v, QN_JUDGED_NOT, "the problem's own body is wrong: %s", v->reason);
      if (*j->baseline.broken)
        return qn_judged(v, QN_JUDGED_NOT, "the problem's own body is broken: %s", j->baseline.broken);
      *status = QN_OK;
      *v->reason = 0;
      if (!d) p->dropped = true;
      if (!d) break;
    }
  }
  for (size_t k = j->n_planned; k-- > 0;) { /* both must be launches that are prepared */
    if (j->planned[k].dropped) continue;
    if (j->planned[j->proved].dropped) j->proved = k;
    if (j->planned[j->inspected].dropped) j->inspected = k;
  }
  if (j->planned[j->proved].dropped)
    return qn_judged(v, QN_JUDGED_NOT, "the problem's own body is right at none of the sizes that are verified");
  return true;
}

/* On data that the folder does not name: where the baseline is wrong on the very same, they prove nothing. */
static bool is_excused(qn_judge *j, size_t number, qn_data_order *o, qn_judge_verdict *v, qn_status *status)
{
  qn_judge_verdict own = {.n_notes = 0};
  if (*status != QN_OK || v->word != QN_JUDGED_WRONG || (!o->distribution && !j->planned[number].spec.drawn))
    return false;
  if (verify_one(j, &j->baseline, number, o, &own, status) || *status != QN_OK || *j->baseline.broken) return false;
  j->planned[number].bears &= ~(1u << o->distribution);
  v->word = QN_JUDGED_UNCLEAR;
  *v->reason = 0;
  return true;
}

static bool verify_all(qn_judge *j, qn_judge_process *p, qn_judge_verdict *v, qn_status *status)
{
  for (size_t k = 0; k < j->n_planned; k++) {
    if (j->planned[k].dropped) continue;
    int changed = levels[j->ask.level].distributions;
    for (int turn = 0; turn < QN_DATA_COUNT; turn++) {
      const int d = turn ? 1 + (int)((k + (size_t)turn - 1) % (QN_DATA_COUNT - 1)) : 0;
      if (!(j->planned[k].bears >> d & 1) || (d && changed-- <= 0)) continue;
      qn_data_order o = data_of(j, k, (qn_distribution)d);
      if (j->ask.progress) qn_progress_at(j->ask.progress, k, "verifying");
      if (!verify_one(j, p, k, &o, v, status) && !is_excused(j, k, &o, v, status)) return false;
    }
  }
  return true;
}

/* The same data again: the same bits? */
static bool repeat(qn_judge *j, qn_judge_process *p, qn_judge_verdict *v, qn_status *status)
{
  qn_data_order o = data_of(j, j->proved, QN_DATA_AS_FILLED);
  qn_judged_launch l[2] = {{.c = NULL}, {.c = NULL}};
  qn_talk_answer a;
  const uint64_t room = (j->verify_bytes + QN_GUARD - 1) / QN_GUARD * QN_GUARD;
  bool right = true;
  for (int k = 0; k < 2 && right && *status == QN_OK; k++) {
    const uint64_t offset = j->verify_offset + (uint64_t)k * room;
    o.at = p->arena + offset;
    *status = qn_judged_launch_make(&o, &l[k]);
    if (*status != QN_OK) break;
    if (!qn_ask_slot(p, QN_VERIFY_SLOT, j->proved, offset, &a))
      right = qn_model_broken(p, v);
    else
      right = qn_model_run(p, QN_VERIFY_SLOT, QN_TIMER_SIMPLE, NULL, v);
  }
  if (right && *status == QN_OK) v->deterministic = qn_same_outputs(l[0].c, l[1].c);
  for (int k = 0; k < 2; k++) qn_judged_launch_clear(&l[k]);
  return right && *status == QN_OK;
}

/* ---- the problem ---- */
/* On one launch: the reference answers otherwise to other inputs, and wrong outputs fail. */
static bool can_judge(qn_judge *j, qn_judge_verdict *v, qn_status *status)
{
  qn_judged_launch l = {.c = NULL}, other = {.c = NULL};
  char passing[160];
  qn_data_order o = data_of(j, j->proved, QN_DATA_AS_FILLED);
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

static qn_status plan(qn_judge *j)
{
  const uint64_t guard = QN_GUARD, shift = 256 * QN_GUARD;
  plan_sizes(j);
  if (!j->n_planned)
    return qn_fail(QN_BAD_ARGUMENT, "kernel %s has no size with at most %llu elements, which level %s verifies",
                   j->folder->name, (unsigned long long)levels[j->ask.level].elements,
                   qn_judge_level_name(j->ask.level));
  qn_try(plan_timed(j));
  uint64_t most = 0, least = UINT64_MAX;
  for (size_t k = 0; k < j->n_planned; k++) {
    uint64_t elements = 0, bytes;
    if (j->planned[k].spec.drawn || !is_plain(&j->folder->size[j->planned[k].spec.base])) continue;
    qn_try(qn_spec_amount(j->folder, &j->planned[k].spec, &elements, &bytes));
    if (elements > most && elements <= 1 << 16) most = elements, j->proved = k;
    if (elements < least && elements >= 64) least = elements, j->inspected = k;
  }
  j->timed_room = (j->timed_bytes + guard - 1) / guard * guard + shift;
  j->verify_offset = QN_TIMED_SLOTS * j->timed_room;
  j->arena_bytes = j->verify_offset + 2 * (j->verify_bytes + guard) + 2 * shift;
  return QN_OK;
}

static qn_status open_problem(qn_judge *j, qn_judge_verdict *v)
{
  qn_status status;
  qn_try(qn_pool_create(&j->pool, j->ask.threads));
  qn_try(plan(j));
  if (!can_judge(j, v, &status)) return status;
  if (!open_model(j, "", QN_PHASE_BOTH, -1, false, &j->baseline, v, &status)) {
    if (status == QN_OK) qn_judged(v, QN_JUDGED_NOT, "the problem's own body: %.1000s", v->reason);
    return status;
  }
  if (!lock(&j->baseline, v) || !prove_baseline(j, v, &status)) return status;
  if (open_model(j, "", QN_PHASE_BOTH, -1, false, &j->control, v, &status))
    (void)lock(&j->control, v);
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
  const bool compiled = open_model(j, path, QN_PHASE_COMPILE, images, inspects, &p, v, status);
  if (*status == QN_OK) qn_judge_process_end(&p);
  return compiled && look_at_images(j, images, v);
}

/* Checking mode: races, accesses out of bounds and the like, with the lines that the compiler knows. In a process that
 * is not locked, since finding a line reads files. A check that could not finish in half of the limit refuses nobody.
 */
static bool inspect(qn_judge *j, const char *path, int images, qn_judge_verdict *v, qn_status *status)
{
  qn_judge_process p;
  qn_data_order o = data_of(j, j->inspected, QN_DATA_AS_FILLED);
  qn_talk_answer a;
  if (j->no_inspection) {
    qn_judge_note(v, "checking mode does not run this kernel");
    return true;
  }
  bool right = open_model(j, path, QN_PHASE_RUN, images, true, &p, v, status);
  if (*status != QN_OK) return false;
  o.at = p.arena + j->verify_offset;
  for (uint64_t seed = 0; right && !j->no_inspection && *status == QN_OK && seed < levels[j->ask.level].orders;
       seed++) {
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
  const bool opened = open_model(j, path, QN_PHASE_RUN, images, false, &p, v, status);
  if (*status != QN_OK) return false;
  const bool right = opened && lock(&p, v) && verify_all(j, &p, v, status) && repeat(j, &p, v, status) &&
                     inspect_anywhere(j, path, images, v, status) && qn_judge_time(j, &p, v, status);
  qn_judge_process_end(&p);
  return right;
}

static bool judge_body(qn_judge *j, const char *path, int images, qn_judge_verdict *v, qn_status *status)
{
  enum { SUSPICIOUS = 10 };
  if (!compile(j, path, images, false, v, status) || !run(j, path, images, v, status)) return false;
  if (v->speedup.ratio <= SUSPICIOUS || j->ask.level != QN_JUDGE_QUICK) return true;
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
