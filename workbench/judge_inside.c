/* SPDX-License-Identifier: Apache-2.0 */
/* judge_inside.c - the process that holds a kernel: reads its job, compiles, runs and times what it is asked for. It
 * knows neither seeds nor expected outputs, and judges nothing. */
#include "core/core.h"
#include "core/file.h"
#include "workbench/judge_images.h"
#include "workbench/judge_talk.h"
#include "workbench/kernel_tuned.h"
#include "workbench/sandbox.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct prepared {
  qn_talk_spec spec;
  qn_name set[QN_FOLDER_NAMES];
  qn_kernel_case_order order;
  bool check;
  qn_kernel_case *c; /* without memory; has the compiled kernel */
} prepared;

typedef struct inside {
  qn_talk_job job;
  qn_judged_kernel kernel;
  qn_pool *pool;
  unsigned char *arena;
  prepared spec[QN_TALK_SPECS];
  qn_talk_ask expected[QN_TALK_SPECS];
  prepared ahead[QN_TALK_SPECS]; /* expected ones */
  size_t n_expected;
  pthread_t compiles;
  bool compiling; /* the thread is there */
  qn_kernel_case *slot[QN_TALK_SLOTS];
  qn_sampling how[QN_TIMER_COUNT];
  qn_stopwatch *watch[QN_TIMER_COUNT];
  void *stream;
  bool locked;
  int threads; /* when the work began */
} inside;

static int count_threads(void)
{
  int n = 0;
  DIR *tasks = opendir("/proc/self/task");
  while (tasks && readdir(tasks)) n++;
  if (tasks) closedir(tasks);
  return n;
}

/* A system call that the filter stops: the judge is told which, and nothing more happens. */
static uint64_t asked; /* the nonce of the ask at hand */

static void tell_call(int signal, siginfo_t *info, void *context)
{
  (void)signal, (void)context;
  qn_talk_answer a = {.nonce = asked, .status = QN_TALK_FORBIDDEN, .ns = info->si_syscall};
  (void)qn_write_all(QN_TALK_ANSWERS, &a, sizeof a);
  _exit(1);
}

/* ---- opening ---- */
static qn_status open_watches(inside *s)
{
  qn_try(qn_stream_create(s->job.device, &s->stream));
  for (int t = 0; t < QN_TIMER_COUNT; t++) {
    s->how[t] = (qn_sampling){.exec = {.size = sizeof s->how[t].exec, .device = s->job.device, .stream = s->stream},
                              .timer = (qn_timer)t,
                              .flush = true};
    qn_try(qn_stopwatch_create(&s->watch[t], &s->how[t]));
  }
  return QN_OK;
}

static qn_status open_all(inside *s)
{
  qn_try(qn_judged_kernel_read(s->job.problem, s->job.candidate, &s->kernel));
  qn_try(qn_pool_create(&s->pool, s->job.threads));
  if (!s->job.arena_bytes) return QN_OK;
  void *at = mmap(NULL, s->job.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, QN_TALK_ARENA, 0);
  if (at == MAP_FAILED) return qn_fail(QN_NO_MEMORY, "%llu bytes of tensors", (unsigned long long)s->job.arena_bytes);
  s->arena = at;
  return open_watches(s);
}

/* ---- asks ---- */
static qn_status compile(inside *s, const qn_talk_ask *ask, prepared *p)
{
  char text[256];
  *p = (prepared){.spec = ask->is};
  qn_talk_order(&s->kernel.merged, &p->spec, p->set, &p->order);
  p->order.device = s->job.device;
  p->order.pool = s->pool;
  p->order.foreign = true;
  if (s->job.tuned) qn_try(qn_tuned_apply(&s->kernel.merged, &p->order, text, sizeof text));
  qn_try(qn_kernel_case_create(&p->c, &p->order));
  p->c->call.check = p->check = ask->check;
  return qn_kernel_prepare(p->c->kernel, &p->c->exec, &p->c->call);
}

static qn_status prepare(inside *s, const qn_talk_ask *ask)
{
  qn_require(ask->spec >= 0 && ask->spec < QN_TALK_SPECS, "spec %d", ask->spec);
  return compile(s, ask, &s->spec[ask->spec]);
}

/* What PREPARE will find compiled, or wait for. Its own answer tells how that ended. */
static void compile_one(void *user, size_t k)
{
  inside *s = user;
  (void)compile(s, &s->expected[k], &s->ahead[k]);
}

static void *compile_all(void *user)
{
  inside *s = user;
  qn_pool_run(s->pool, s->n_expected, compile_one, s);
  return NULL;
}

static qn_status expect(inside *s, const qn_talk_ask *ask)
{
  qn_require(s->n_expected < QN_TALK_SPECS && !s->compiling, "more than %d specs are expected", QN_TALK_SPECS);
  s->expected[s->n_expected++] = *ask;
  s->compiling = ask->last && s->job.device.kind != QN_CUDA && !pthread_create(&s->compiles, NULL, compile_all, s);
  return QN_OK;
}

static qn_status lock(inside *s)
{
  if (s->compiling) pthread_join(s->compiles, NULL);
  s->compiling = false;
  if (!s->threads) s->threads = count_threads();
  if (s->job.device.kind == QN_CUDA) return QN_UNSUPPORTED; /* its driver needs calls; a body cannot make any there */
  const struct sigaction act = {.sa_sigaction = tell_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
  (void)sigaction(SIGSYS, &act, NULL);
  s->locked = qn_sandbox_lock();
  return s->locked ? QN_OK : QN_UNSUPPORTED;
}

static qn_status fill_slot(inside *s, const qn_talk_ask *ask)
{
  qn_require(ask->slot >= 0 && ask->slot < QN_TALK_SLOTS && ask->spec >= 0 && ask->spec < QN_TALK_SPECS, "slot %d",
             ask->slot);
  qn_kernel_case **c = &s->slot[ask->slot];
  const prepared *p = &s->spec[ask->spec];
  qn_kernel_case_order order = p->order;
  if (*c) (*c)->kernel = NULL; /* the spec's */
  if (*c) qn_kernel_case_destroy(c);
  order.arena = s->arena + ask->offset;
  qn_try(qn_kernel_case_create(c, &order));
  (*c)->exec.stream = s->stream; /* the clocks' */
  (*c)->call.check = p->check;
  qn_kernel_destroy(&(*c)->kernel); /* a new one would be looked up, with calls of the system */
  (*c)->kernel = p->c->kernel;
  return qn_kernel_prepare((*c)->kernel, &(*c)->exec, &(*c)->call);
}

static qn_status run_case(void *user) { return qn_kernel_case_launch(user); }

static qn_status run(inside *s, const qn_talk_ask *ask, double *ns)
{
  qn_require(ask->slot >= 0 && ask->slot < QN_TALK_SLOTS && s->slot[ask->slot] && ask->timer >= 0 &&
                 ask->timer < QN_TIMER_COUNT,
             "slot %d", ask->slot);
  qn_kernel_case *c = s->slot[ask->slot];
  qn_timed timed = {.name = "kernel", .run = run_case, .user = c};
  qn_try(qn_kernel_case_load(c));
  qn_try(qn_stopwatch_time(s->watch[ask->timer], &timed, ns));
  return qn_kernel_case_fetch(c);
}

static qn_status inspect(inside *s, const qn_talk_ask *ask)
{
  qn_require(ask->slot >= 0 && ask->slot < QN_TALK_SLOTS && s->slot[ask->slot], "slot %d", ask->slot);
  qn_kernel_case *c = s->slot[ask->slot];
  const qn_exec was = c->exec;
  c->exec.device = (qn_device){QN_CPU, 0};
  c->call.check = 1;
  c->call.seed = ask->seed;
  c->call.ignore = s->kernel.problem->ignore;
  c->call.limit_ns = (int64_t)(ask->limit_s * 1e9);
  const int64_t from = qn_now_ns();
  qn_status status = qn_kernel_case_launch(c);
  if (status == QN_KERNEL_ERROR && qn_now_ns() - from >= c->call.limit_ns) status = (qn_status)QN_TALK_STOPPED;
  c->call.check = 0;
  c->call.limit_ns = 0;
  c->exec = was;
  return status;
}

static qn_status obey(inside *s, const qn_talk_ask *ask, double *ns)
{
  switch ((qn_talk_what)ask->what) {
  case QN_TALK_EXPECT: return expect(s, ask);
  case QN_TALK_PREPARE: return prepare(s, ask);
  case QN_TALK_LOCK: return lock(s);
  case QN_TALK_SLOT: return fill_slot(s, ask);
  case QN_TALK_RUN: return run(s, ask, ns);
  case QN_TALK_INSPECT: return inspect(s, ask);
  default: return qn_fail(QN_BAD_ARGUMENT, "ask %d", ask->what);
  }
}

static bool answer(const inside *s, uint64_t nonce, qn_status status, double ns)
{
  qn_talk_answer a = {.nonce = nonce, .status = status, .ns = ns, .threads = -1};
  if (s->threads && !s->locked) a.threads = count_threads() - s->threads;
  if (status != QN_OK)
    snprintf(a.text, sizeof a.text, "%s", *qn_last_error() ? qn_last_error() : qn_status_text(status));
  return qn_write_all(QN_TALK_ANSWERS, &a, sizeof a);
}

int qn_judge_inside(const char *phase)
{
  static inside s;
  qn_talk_ask ask;
  if (!strcmp(phase, "compile")) qn_images_write();
  if (!strcmp(phase, "run")) qn_images_read();
  if (!qn_read_next(QN_TALK_ASKS, &s.job, sizeof s.job)) return 1;
  const qn_status opened = open_all(&s);
  if (!answer(&s, 0, opened, 0) || opened != QN_OK) return 1;
  while (qn_read_next(QN_TALK_ASKS, &ask, sizeof ask)) {
    double ns = 0;
    asked = ask.nonce;
    const qn_status status = obey(&s, &ask, &ns);
    if (!answer(&s, ask.nonce, status, ns)) return 1;
  }
  _exit(0); /* what exit() runs is of no use, and some of it is no longer allowed */
}
