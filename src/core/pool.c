/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - threads that the caller asked for, or lends, which share out numbered tasks. One run at a time: whoever
 * finds the pool busy (another caller, or a task that runs tasks) does its own work serially. Cutting work into tasks
 * is the caller's; the cut must not depend on the number of threads. A thread begins with its own share of the numbers,
 * which lie side by side and are the same at each run of as many tasks, so that a core finds in its cache what it left
 * there; then it helps others with theirs. */
#include "core/core.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SPINS = 200, MOST_THREADS = 1024, LENT_POOLS = 16, MOST_SHARES = 64 };

typedef struct share {
  _Alignas(64) atomic_size_t next; /* the first task that nobody has taken */
  size_t end;
} share;

/* On the stack of who runs it. */
typedef struct job {
  void (*task)(void *user, size_t k);
  void *user;
  unsigned n_shares;
  share share[MOST_SHARES];
} job;

/* GOMP_parallel of OpenMP's runtime: the function runs in as many threads as asked for, the caller's among them. */
typedef void parallel_region(void (*function)(void *), void *data, unsigned n_threads, unsigned flags);

struct qn_pool {
  int n_threads; /* with the caller's */
  int n_started;
  const qn_lender *lender;   /* whose threads these are, while it is borrowed; NULL: our own */
  parallel_region *parallel; /* OpenMP's, whose threads these are; else NULL */
  int (*number)(void);       /* omp_get_thread_num; of a pool of OpenMP's all below but `owner` is unused */
  pid_t owner;               /* after fork the threads are the parent's */
  pthread_mutex_t lock;
  pthread_cond_t work, quiet; /* there is a job, or the end; a worker has left, or the run is over */
  job *now;
  bool open, busy, stop; /* workers may join `now`; a run is on; threads must end */
  int inside;            /* workers in the present job */
  unsigned n_serving;    /* workers that have begun: the next one's number, less one */
  atomic_uint turn;      /* grows with every job and at the end: what idle workers watch for a moment before sleeping */
  pthread_t *threads;
};

static void relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void share_out(job *j, size_t n_tasks, int n_threads)
{
  unsigned n = n_threads < MOST_SHARES ? (unsigned)n_threads : MOST_SHARES;
  if (n > n_tasks) n = (unsigned)n_tasks;
  j->n_shares = n;
  const size_t each = n_tasks / n, more = n_tasks % n; /* the first `more` shares have one more */
  for (size_t k = 0, first = 0; k < n; k++) {
    atomic_init(&j->share[k].next, first);
    first += each + (k < more);
    j->share[k].end = first;
  }
}

/* Of the thread with number `me`. */
static void drain(job *j, unsigned me)
{
  for (unsigned s = 0; s < j->n_shares; s++) {
    share *of = &j->share[(me + s) % j->n_shares];
    for (size_t k; (k = atomic_fetch_add_explicit(&of->next, 1, memory_order_relaxed)) < of->end;) j->task(j->user, k);
  }
}

/* Under the lock, which it lets go meanwhile: takes part in the present job. */
static void help(qn_pool *pool, unsigned me)
{
  job *j = pool->now;
  pool->inside++;
  pthread_mutex_unlock(&pool->lock);
  drain(j, me);
  pthread_mutex_lock(&pool->lock);
  if (--pool->inside == 0) pthread_cond_broadcast(&pool->quiet);
}

/* Under the lock, which it lets go meanwhile: waits for a job after turn `seen`, or the end. Looking for a moment
 * before sleeping saves the system call where one op follows another. */
static void await(qn_pool *pool, unsigned seen)
{
  pthread_mutex_unlock(&pool->lock);
  for (int k = 0; k < SPINS && atomic_load_explicit(&pool->turn, memory_order_relaxed) == seen; k++) relax();
  pthread_mutex_lock(&pool->lock);
  while (!pool->stop && !(pool->open && atomic_load_explicit(&pool->turn, memory_order_relaxed) != seen))
    pthread_cond_wait(&pool->work, &pool->lock);
}

static void *serve(void *argument)
{
  qn_pool *pool = argument;
  unsigned seen = 0;
  qn_fp_enter(); /* threads inherit their creator's control word */
  pthread_mutex_lock(&pool->lock);
  const unsigned me = ++pool->n_serving;
  for (await(pool, seen); !pool->stop; await(pool, seen)) {
    seen = atomic_load_explicit(&pool->turn, memory_order_relaxed);
    help(pool, me);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

/* Signals stay with the caller's own threads, but those that an instruction of a thread raises: blocked, they end the
 * process without their handler. */
static int start(qn_pool *pool)
{
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  sigset_t most, old;
  int error = 0;
  sigfillset(&most);
  for (size_t k = 0; k < sizeof own / sizeof *own; k++) sigdelset(&most, own[k]);
  pthread_sigmask(SIG_SETMASK, &most, &old);
  while (!error && pool->n_started < pool->n_threads - 1) {
    error = pthread_create(&pool->threads[pool->n_started], NULL, serve, pool);
    if (!error) pool->n_started++;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return error;
}

static void set_up(qn_pool *pool)
{
  pool->owner = getpid();
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->quiet, NULL);
}

static qn_status check_order(qn_pool **pool, int n_threads)
{
  qn_require(pool, "pool: the place for the pool is NULL");
  *pool = NULL;
  qn_require(n_threads >= 1 && n_threads <= MOST_THREADS, "pool: %d threads, from 1 to %d are possible", n_threads,
             MOST_THREADS);
  return QN_OK;
}

qn_status qn_pool_create(qn_pool **pool, int n_threads)
{
  qn_try(check_order(pool, n_threads));
  size_t bytes = sizeof(qn_pool) + (size_t)(n_threads - 1) * sizeof(pthread_t);
  qn_pool *made = qn_allocate_zero(1, bytes);
  if (!made) return qn_fail(QN_NO_MEMORY, "pool of %d threads: %zu bytes could not be allocated", n_threads, bytes);
  made->threads = (pthread_t *)(made + 1);
  made->n_threads = n_threads;
  set_up(made);
  int error = start(made);
  if (error) {
    int started = made->n_started;
    qn_pool_destroy(&made);
    return qn_fail(QN_NO_MEMORY, "pool of %d threads: the system started %d and then: %s", n_threads, started + 1,
                   strerror(error));
  }
  *pool = made;
  return QN_OK;
}

qn_status qn_pool_create_openmp(qn_pool **pool, int n_threads)
{
  qn_try(check_order(pool, n_threads));
  void *parallel = dlsym(RTLD_DEFAULT, "GOMP_parallel"), *number = dlsym(RTLD_DEFAULT, "omp_get_thread_num");
  if (!parallel || !number)
    return qn_fail(QN_NO_LIBRARY, "pool: this process has loaded no runtime of OpenMP's (GOMP_parallel)");
  qn_pool *made = qn_allocate_zero(1, sizeof *made);
  if (!made)
    return qn_fail(QN_NO_MEMORY, "pool of %d threads: %zu bytes could not be allocated", n_threads, sizeof *made);
  memcpy(&made->parallel, &parallel, sizeof parallel);
  memcpy(&made->number, &number, sizeof number);
  made->n_threads = n_threads;
  made->owner = getpid();
  *pool = made;
  return QN_OK;
}

static void stop(qn_pool *pool)
{
  pthread_mutex_lock(&pool->lock);
  while (pool->busy) pthread_cond_wait(&pool->quiet, &pool->lock);
  pool->stop = true;
  atomic_fetch_add_explicit(&pool->turn, 1, memory_order_relaxed);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
  for (int k = 0; k < pool->n_started; k++) pthread_join(pool->threads[k], NULL);
  pthread_cond_destroy(&pool->quiet);
  pthread_cond_destroy(&pool->work);
  pthread_mutex_destroy(&pool->lock);
}

void qn_pool_destroy(qn_pool **pool)
{
  if (!pool || !*pool) return;
  if ((*pool)->owner == getpid() && !(*pool)->parallel)
    stop(*pool); /* in a forked child there is nothing to join, and the lock may be held */
  qn_release(*pool);
  *pool = NULL;
}

/* ---- lent threads. What they run may come late, when the pool serves another borrower: then it helps there, or finds
 * nothing to do. So these pools are few and never go away. ---- */
static qn_pool lent[LENT_POOLS];
static atomic_bool taken[LENT_POOLS];
static pthread_once_t lent_once = PTHREAD_ONCE_INIT;

static void set_up_lent(void)
{
  for (size_t k = 0; k < LENT_POOLS; k++) set_up(&lent[k]);
}

qn_pool *qn_pool_borrow(const qn_lender *lender)
{
  pthread_once(&lent_once, set_up_lent);
  if (lender->n_threads < 2 || lent[0].owner != getpid()) return NULL;
  for (size_t k = 0; k < LENT_POOLS; k++) {
    if (atomic_exchange(&taken[k], true)) continue;
    lent[k].lender = lender;
    lent[k].n_threads = lender->n_threads;
    return &lent[k];
  }
  return NULL;
}

void qn_pool_give_back(qn_pool *pool)
{
  if (pool) atomic_store(&taken[pool - lent], false);
}

static void come(void *argument)
{
  qn_pool *pool = argument;
  const qn_fp_word word = qn_fp_enter();
  pthread_mutex_lock(&pool->lock);
  if (pool->open) help(pool, (unsigned)pool->inside + 1);
  pthread_mutex_unlock(&pool->lock);
  qn_fp_leave(word);
}

/* One thread a task, the caller's among them: more would find nothing. */
static void call_lent(qn_pool *pool, size_t n_tasks)
{
  const qn_lender *lender = pool->lender;
  for (size_t k = 1; k < n_tasks && k < (size_t)lender->n_threads; k++)
    if (!lender->lend(lender->user, come, pool)) return;
}

int qn_pool_threads(const qn_pool *pool) { return pool ? pool->n_threads : 1; }

/* Offers the job to the workers; false if the pool is busy. */
static bool begin(qn_pool *pool, job *j)
{
  pthread_mutex_lock(&pool->lock);
  bool idle = !pool->busy;
  if (idle) {
    pool->now = j;
    pool->busy = pool->open = true;
    atomic_fetch_add_explicit(&pool->turn, 1, memory_order_relaxed);
    pthread_cond_broadcast(&pool->work);
  }
  pthread_mutex_unlock(&pool->lock);
  return idle;
}

/* All tasks are taken: nobody may join any more; those inside finish theirs. */
static void end(qn_pool *pool)
{
  pthread_mutex_lock(&pool->lock);
  pool->open = false;
  while (pool->inside) pthread_cond_wait(&pool->quiet, &pool->lock);
  pool->busy = false;
  pthread_cond_broadcast(&pool->quiet);
  pthread_mutex_unlock(&pool->lock);
}

typedef struct openmp_run {
  job *job;
  int (*number)(void); /* omp_get_thread_num */
  atomic_int awaited;  /* threads that have not come yet */
} openmp_run;

/* A thread that was asleep may have been put on the caller's processor, where it would wait until OpenMP's runtime
 * gives up watching for it: milliseconds. So the caller lets it pass. */
static void take_part(void *argument)
{
  enum { TURNS = 256 };
  openmp_run *run = argument;
  const int number = run->number();
  const qn_fp_word word = qn_fp_enter();
  if (number) atomic_fetch_sub_explicit(&run->awaited, 1, memory_order_relaxed);
  drain(run->job, (unsigned)number);
  for (int k = 0; !number && k < TURNS && atomic_load_explicit(&run->awaited, memory_order_relaxed) > 0; k++)
    sched_yield();
  qn_fp_leave(word);
}

void qn_pool_run(qn_pool *pool, size_t n_tasks, void (*task)(void *user, size_t k), void *user)
{
  job j; /* most of it is not used */
  const bool shared = pool && pool->n_threads > 1 && n_tasks > 1 && pool->owner == getpid();
  if (shared) {
    j.task = task, j.user = user;
    share_out(&j, n_tasks, pool->n_threads);
  }
  if (shared && pool->parallel) { /* of the pool nothing changes, so that several callers may have a team each */
    pool->parallel(take_part, &(openmp_run){&j, pool->number, pool->n_threads - 1}, (unsigned)pool->n_threads, 0);
    return;
  }
  const qn_fp_word word = qn_fp_enter();
  if (shared && begin(pool, &j)) {
    if (pool->lender) call_lent(pool, n_tasks);
    drain(&j, 0);
    end(pool);
  } else {
    for (size_t k = 0; k < n_tasks; k++) task(user, k);
  }
  qn_fp_leave(word);
}
