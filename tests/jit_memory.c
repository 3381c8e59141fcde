/* SPDX-License-Identifier: Apache-2.0 */
/* jit_memory.c - the k-th allocation fails, for every k of a first use with a cold cache, of a load from disk, and of
 * the calls on the cache: a status that says so, nothing lost, and the same call works at the next try. */
#include "answer.h"
#include "core/core.h"
#include "failing.h"
#include "jit/cache.h"
#include "scratch.h"
#include "test.h"

static void fail_kth(int k)
{
  atomic_store(&allocated, 0);
  atomic_store(&fail_at, k);
}

static bool had_kth(int k)
{
  atomic_store(&fail_at, 0);
  return atomic_load(&allocated) >= k;
}

static int fault(const char *what, int k, int n)
{
  printf("# allocation %d: %s (%d), last error: %s\n", k, what, n, qn_last_error());
  fflush(stdout);
  return 1;
}

/* In a child: the kernel that answers n is asked for while the k-th allocation fails. What the process learns once (the
 * compiler's version, the hooks for fork) it has learned before with another kernel. */
static int one_failure(int k, int n)
{
  const qn_device_function *function = NULL;
  if (!answers(1)) return fault("the first kernel is not there", k, 1);
  int before = atomic_load(&outstanding);
  fail_kth(k);
  qn_status status = answer_find(n, "answer", &function);
  if (!had_kth(k)) return DONE;
  if (status == QN_OK) return answer_of(function) == n ? 0 : fault("a wrong kernel", k, answer_of(function));
  if (status != QN_NO_MEMORY) return fault("another status than QN_NO_MEMORY", k, (int)status);
  if (!strstr(qn_last_error(), "memory") && !strstr(qn_last_error(), "allocated"))
    return fault("a vague sentence", k, 0);
  int lost = atomic_load(&outstanding) - before;
  uint64_t compiled = counts().compiled;
  if (!answers(n)) return fault("the next try fails", k, n);
  /* kernels compiled and loaded before the failure stay for the next try: that is no leak */
  if (lost && counts().compiled != compiled) return fault("blocks lost", k, lost);
  return 0;
}

/* Kernels n(k) = first + step * k; a fresh process for each k. */
static void every_allocation_fails_once(const char *what, int first, int step)
{
  int status = 0, k = 0;
  do {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(one_failure(k + 1, first + step * k));
    waitpid(pid, &status, 0);
    k++;
  } while (status == 0 && k < 200);
  check(WIFEXITED(status) && WEXITSTATUS(status) == DONE && k > 5, "%s: each of %d allocations failed once", what,
        k - 1);
}

static int keep_going(void *user, const qn_cache_entry *entry)
{
  (void)entry;
  ++*(int *)user;
  return 0;
}

static qn_status list_all(void) { return qn_cache_each(keep_going, &(int){0}); }

static qn_status clear_invalid(void) { return qn_cache_clear(1, NULL); }

static qn_status directory(void)
{
  const char *path;
  return qn_cache_directory(&path);
}

static void cache_calls(const char *name, qn_status (*call)(void))
{
  int k = 1, wrong = 0, before = atomic_load(&outstanding);
  for (;; k++) {
    fail_kth(k);
    qn_status status = call();
    if (!had_kth(k)) break;
    wrong += status == QN_OK || !*qn_last_error();
    wrong += atomic_load(&outstanding) != before;
  }
  check(!wrong && call() == QN_OK, "%s: %d allocations failed, %d wrong", name, k - 1, wrong);
}

int main(void)
{
  scratch_begin();
  qn_allocator_set(&(qn_allocator){hook_allocate, hook_release, NULL});
  qn_option_set("cache_dir", scratch_path("cache"));
  pid_t pid = fork();
  if (pid == 0) _exit(!answers(1) || !answers(2));
  int status = -1;
  waitpid(pid, &status, 0);
  check(status == 0, "two kernels are on disk");
  every_allocation_fails_once("a compile", 1000, 1);
  every_allocation_fails_once("a load from disk", 2, 0);
  cache_calls("directory", directory);
  cache_calls("each", list_all);
  int clear_before = 0, clear_after = 0;
  qn_cache_each(keep_going, &clear_before);
  for (int k = 1; k <= 3; k++) { /* a file that cannot be read for want of memory is not invalid */
    fail_kth(k);
    clear_invalid();
    had_kth(k);
  }
  qn_cache_each(keep_going, &clear_after);
  check(clear_before > 1 && clear_after == clear_before,
        "clear removes nothing for want of memory: %d entries, then %d", clear_before, clear_after);
  return test_end();
}
