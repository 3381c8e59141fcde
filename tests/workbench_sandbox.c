/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_sandbox.c - threads that were started and had no processor yet when the filter of system calls closes: on
 * one processor most of 64 have not. They live, as does what they are given to do. */
#include "core/core.h"
#include "test.h"
#include "workbench/sandbox.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 64, TURNS = 10, NO_POOL = 3, NO_FILTER = 4, FEW = 5 };

static atomic_int done;
static void count(void *user, size_t k)
{
  (void)user, (void)k;
  done++;
}

static int locked_pool(void)
{
  const struct timespec moment = {0, 20000000};
  cpu_set_t one;
  qn_pool *pool = NULL;
  CPU_ZERO(&one);
  CPU_SET((unsigned)sched_getcpu(), &one);
  (void)sched_setaffinity(0, sizeof one, &one);
  if (qn_pool_create(&pool, THREADS)) return NO_POOL;
  if (!qn_sandbox_lock()) return NO_FILTER;
  qn_pool_run(pool, THREADS, count, NULL);
  (void)nanosleep(&moment, NULL);
  return done == THREADS ? 0 : FEW;
}

int main(void)
{
  int killed = 0, other = 0;
  for (int k = 0; k < TURNS; k++) {
    const pid_t child = fork();
    if (!child) _exit(locked_pool());
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child) return EXIT_FAILURE;
    killed += WIFSIGNALED(status);
    other = WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : other;
  }
  if (other == NO_FILTER)
    skip("this kernel has no filter of system calls");
  else
    check(!killed && !other, "threads that start late live: %d of %d processes killed, status %d", killed, TURNS,
          other);
  return test_end();
}
