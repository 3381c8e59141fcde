/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - tests of the thread pool: every task once, whoever is busy, after fork, with the caller's control word set
 * to flush denormals, where threads cannot be had, and in OpenMP's threads. Clean under ThreadSanitizer. */
#include "core/core.h"
#include "cpu/tier.h"
#include "test.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5000 };
static atomic_int times[MOST];

static void count(void *user, size_t k)
{
  (void)user;
  atomic_fetch_add(&times[k], 1);
}

/* Runs n tasks and tells whether each ran `each` times. */
static bool all_ran(qn_pool *pool, size_t n, int each)
{
  bool ok = true;
  for (size_t k = 0; k < MOST; k++) atomic_store(&times[k], 0);
  for (int k = 0; k < each; k++) qn_pool_run(pool, n, count, NULL);
  for (size_t k = 0; k < MOST; k++) ok &= atomic_load(&times[k]) == (k < n ? each : 0);
  return ok;
}

static void test_every_task_once(qn_status create(qn_pool **, int))
{
  static const size_t sizes[] = {0, 1, 2, 3, 7, 64, 1000, MOST};
  static const int threads[] = {1, 2, 3, 8, 70};
  for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
    qn_pool *pool = NULL;
    check(create(&pool, threads[t]) == QN_OK && qn_pool_threads(pool) == threads[t], "a pool of %d threads",
          threads[t]);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
      check(all_ran(pool, sizes[k], 1), "%zu tasks on %d threads: each ran once", sizes[k], threads[t]);
    check(all_ran(pool, 5, 2000), "2000 short runs one after the other, %d threads", threads[t]);
    qn_pool_destroy(&pool);
    check(!pool, "destroy leaves NULL");
  }
  check(all_ran(NULL, 100, 1) && qn_pool_threads(NULL) == 1, "no pool is serial");
  qn_pool *none = NULL;
  qn_pool_destroy(&none);
  qn_pool_destroy(NULL);
}

/* Two tasks that wait for each other end only if they run at the same time. */
static atomic_int arrived;
static void meet(void *user, size_t k)
{
  (void)user;
  (void)k;
  atomic_fetch_add(&arrived, 1);
  while (atomic_load(&arrived) < 2) sched_yield();
}

static void test_at_once(qn_pool *pool)
{
  alarm(60);
  atomic_store(&arrived, 0);
  qn_pool_run(pool, 2, meet, NULL);
  alarm(0);
  check(atomic_load(&arrived) == 2, "two tasks run at the same time");
}

/* The first task waits for the first one of the second half, which no thread has reason to wait with: a thread begins
 * with its own share. */
enum { TASKS = 40 };
static atomic_int order[TASKS], n_begun;
static void begin_in_order(void *user, size_t k)
{
  (void)user;
  atomic_store(&order[k], atomic_fetch_add(&n_begun, 1));
  while (k == 0 && atomic_load(&order[TASKS / 2]) < 0) sched_yield();
}

static void test_shares(qn_status create(qn_pool **, int))
{
  qn_pool *pool = NULL;
  for (int k = 0; k < TASKS; k++) atomic_store(&order[k], -1);
  atomic_store(&n_begun, 0);
  create(&pool, 2);
  alarm(60);
  qn_pool_run(pool, TASKS, begin_in_order, NULL);
  alarm(0);
  check(atomic_load(&order[TASKS / 2]) < 2 && atomic_load(&n_begun) == TASKS, "the second thread begins in the middle");
  qn_pool_destroy(&pool);
}

static void nest(void *user, size_t k)
{
  (void)k;
  qn_pool_run(user, 10, count, NULL);
}

static void *run_many(void *pool)
{
  for (int k = 0; k < 200; k++) qn_pool_run(pool, 50, count, NULL);
  return NULL;
}

static void test_busy(qn_pool *pool)
{
  for (size_t k = 0; k < MOST; k++) atomic_store(&times[k], 0);
  qn_pool_run(pool, 20, nest, pool);
  check(atomic_load(&times[0]) == 20 && atomic_load(&times[9]) == 20, "tasks may run tasks on the same pool");
  pthread_t caller[6];
  for (size_t k = 0; k < MOST; k++) atomic_store(&times[k], 0);
  for (int k = 0; k < 6; k++) pthread_create(&caller[k], NULL, run_many, pool);
  for (int k = 0; k < 6; k++) pthread_join(caller[k], NULL);
  check(atomic_load(&times[0]) == 1200 && atomic_load(&times[49]) == 1200, "six callers share one pool");
}

/* A pool is destroyed while another thread's run is on: destroy waits. */
static atomic_int begun, ended;
static void slow(void *user, size_t k)
{
  (void)user;
  (void)k;
  atomic_fetch_add(&begun, 1);
  usleep(20000);
  atomic_fetch_add(&ended, 1);
}

static void *run_slow(void *pool)
{
  qn_pool_run(pool, 4, slow, NULL);
  return NULL;
}

static void test_destroy_waits(void)
{
  qn_pool *pool = NULL;
  pthread_t caller;
  qn_pool_create(&pool, 2);
  pthread_create(&caller, NULL, run_slow, pool);
  while (!atomic_load(&begun)) sched_yield();
  qn_pool_destroy(&pool);
  check(atomic_load(&ended) == 4, "destroy waits for the run in progress");
  pthread_join(caller, NULL);
}

/* ---- the control word ---- */

static atomic_int flushed;
static void add_denormals(void *user, size_t k)
{
  (void)user;
  (void)k;
  volatile float tiny = 1e-40f, sum = tiny + tiny;
  if (sum == 0) atomic_fetch_add(&flushed, 1);
  usleep(1000); /* so that every thread gets some */
}

static void set_flush_to_zero(bool on)
{
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(on ? 0x9FC0 : 0x1F80);
#elif defined(__aarch64__)
  uint64_t word = on ? UINT64_C(1) << 24 : 0;
  __asm__ volatile("msr fpcr, %0" ::"r"(word));
#endif
}

static bool flushes(void)
{
  volatile float tiny = 1e-40f, sum = tiny + tiny;
  return sum == 0;
}

static void test_control_word(qn_status create(qn_pool **, int))
{
  qn_pool *pool = NULL;
  set_flush_to_zero(true);
  bool before = flushes();
  create(&pool, 3);
  qn_pool_run(pool, 30, add_denormals, NULL);
  qn_pool_run(NULL, 3, add_denormals, NULL);
  bool after = flushes();
  set_flush_to_zero(false);
  check(atomic_load(&flushed) == 0, "tasks keep denormals on every thread, though the creator flushes them");
  check(before == after, "and the caller's own word is put back");
#if defined(__x86_64__) || defined(__aarch64__)
  check(before, "the caller did flush");
#endif
  qn_pool_destroy(&pool);
}

/* ---- fork, signals, refusals ---- */

static void test_fork(qn_pool *pool)
{
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(20);
    bool ok = all_ran(pool, 100, 3);
    qn_pool_destroy(&pool);
    _exit(ok && !pool ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child runs serially and may destroy its copy");
  check(all_ran(pool, 100, 1), "the parent's pool goes on");
}

static atomic_int blocked, own_blocked;
static void look_at_mask(void *user, size_t k)
{
  (void)k;
  sigset_t set;
  pthread_sigmask(SIG_SETMASK, NULL, &set);
  if (!pthread_equal(pthread_self(), *(pthread_t *)user) && sigismember(&set, SIGINT)) atomic_fetch_add(&blocked, 1);
  if (sigismember(&set, SIGSYS) || sigismember(&set, SIGSEGV)) atomic_fetch_add(&own_blocked, 1);
  usleep(2000);
}

static void test_signals(qn_pool *pool)
{
  pthread_t self = pthread_self();
  sigset_t set;
  qn_pool_run(pool, 40, look_at_mask, &self);
  pthread_sigmask(SIG_SETMASK, NULL, &set);
  check(atomic_load(&blocked) > 0 && !sigismember(&set, SIGINT),
        "the pool's threads take no signals, the caller's mask is as it was");
  check(!atomic_load(&own_blocked), "a signal that a thread raises itself finds its handler");
}

static void test_refusals(void)
{
  qn_pool *pool = (qn_pool *)&pool;
  refuses(qn_pool_create(&pool, 0), QN_BAD_ARGUMENT, "0 threads, from 1 to 1024");
  check(!pool, "a refused pool is NULL");
  refuses(qn_pool_create(&pool, -3), QN_BAD_ARGUMENT, "-3 threads");
  refuses(qn_pool_create(&pool, 1025), QN_BAD_ARGUMENT, "1025 threads");
  refuses(qn_pool_create(NULL, 2), QN_BAD_ARGUMENT, "NULL");
  pthread_attr_t attributes, usual;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (size_t)1 << 47); /* more than the address space: no thread can start */
  pthread_setattr_default_np(&attributes);
  qn_status status = qn_pool_create(&pool, 4);
  pthread_setattr_default_np(&usual);
  check(status == QN_NO_MEMORY && !pool && strstr(qn_last_error(), "pool of 4 threads: the system started 1"),
        "where threads cannot be had: %s", qn_last_error());
  pthread_attr_destroy(&attributes);
  pthread_attr_destroy(&usual);
}

/* ---- OpenMP's threads ---- */

#if defined(__has_feature)
#define HAS(feature) __has_feature(feature)
#else
#define HAS(feature) 0
#endif

static void test_openmp(void)
{
  qn_pool *pool = (qn_pool *)&pool;
  refuses(qn_pool_create_openmp(&pool, 0), QN_BAD_ARGUMENT, "0 threads, from 1 to 1024");
  refuses(qn_pool_create_openmp(NULL, 2), QN_BAD_ARGUMENT, "NULL");
#if defined(__SANITIZE_THREAD__) || HAS(thread_sanitizer)
  skip("OpenMP's threads: ThreadSanitizer does not see how libgomp's threads wait for each other");
#else
  refuses(qn_pool_create_openmp(&pool, 2), QN_NO_LIBRARY, "has loaded no runtime of OpenMP's");
  check(!pool, "a refused pool is NULL");
  if (!dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL)) {
    skip("OpenMP's threads: no libgomp.so.1");
    return;
  }
  test_every_task_once(qn_pool_create_openmp);
  test_shares(qn_pool_create_openmp);
  test_control_word(qn_pool_create_openmp);
  check(qn_pool_create_openmp(&pool, 4) == QN_OK, "a pool of 4 of OpenMP's");
  test_at_once(pool);
  test_busy(pool);
  test_fork(pool);
  qn_pool_destroy(&pool);
#endif
}

int main(void)
{
  qn_pool *pool = NULL;
  test_every_task_once(qn_pool_create);
  test_shares(qn_pool_create);
  check(qn_pool_create(&pool, 4) == QN_OK, "a pool of 4");
  test_at_once(pool);
  test_busy(pool);
  test_destroy_waits();
  test_control_word(qn_pool_create);
  test_fork(pool);
  test_signals(pool);
  test_refusals();
  test_openmp();
  qn_pool_destroy(&pool);
  return test_end();
}
