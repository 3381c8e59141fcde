/* SPDX-License-Identifier: Apache-2.0 */
/* jit_storm.c - processes and threads at once on one cold cache, and processes killed at any moment: nobody ever gets
 * wrong bytes, nothing half-written is ever taken for an entry, and what was left behind is swept away. */
#include "answer.h"
#include "core/core.h"
#include "jit/cache.h"
#include "scratch.h"
#include "test.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum {
  N_PROCESSES = 2,
  N_THREADS = 16,
  N_KERNELS = 3,
  N_KEYS = 8,
  MOST_KILLS = 3000,
  ENOUGH_KILLS = 60,
  N_COMPILE_KILLS = 12,
  BYTES = 300000
};

static void sleep_us(long us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); }

static unsigned next_random(void)
{
  static unsigned x = 12345;
  return x = x * 1664525u + 1013904223u;
}

/* ---- processes and threads on a cold cache ---- */
static struct shared {
  atomic_int ready, wrong, compiled, from_disk;
} * shared;

static void *ask_all(void *argument)
{
  int k = (int)(intptr_t)argument;
  atomic_fetch_add(&shared->ready, 1);
  while (atomic_load(&shared->ready) < N_PROCESSES * N_THREADS) sleep_us(100);
  for (int n = 0; n < N_KERNELS; n++) atomic_fetch_add(&shared->wrong, !answers(1 + (n + k) % N_KERNELS));
  return NULL;
}

static int one_process(void)
{
  pthread_t threads[N_THREADS];
  alarm(120);
  for (int k = 0; k < N_THREADS; k++) pthread_create(&threads[k], NULL, ask_all, (void *)(intptr_t)k);
  for (int k = 0; k < N_THREADS; k++) pthread_join(threads[k], NULL);
  qn_cache_counts c = counts();
  atomic_fetch_add(&shared->compiled, (int)c.compiled);
  atomic_fetch_add(&shared->from_disk, (int)c.from_disk);
  return c.compiled + c.from_disk == N_KERNELS && !c.dropped && !c.unwritten ? 0 : 1;
}

static void all_at_once(void)
{
  int failed = 0, status;
  fflush(stdout);
  for (int k = 0; k < N_PROCESSES; k++)
    if (fork() == 0) _exit(one_process());
  while (wait(&status) > 0) failed += status != 0;
  check(!failed && !atomic_load(&shared->wrong),
        "%d processes of %d threads on a cold cache: %d failed, %d wrong kernels", N_PROCESSES, N_THREADS, failed,
        atomic_load(&shared->wrong));
  int compiled = atomic_load(&shared->compiled), loaded = atomic_load(&shared->from_disk);
  check(compiled >= N_KERNELS && compiled <= N_KERNELS * N_PROCESSES, "%d kernels: %d compiles and %d loads from disk",
        N_KERNELS, compiled, loaded);
}

/* ---- kill -9 ---- */
static void fill(char *data, int k, unsigned salt)
{
  for (int i = 0; i < BYTES; i++) data[i] = (char)(k * 31 + i * 7);
  memcpy(data + BYTES / 2, &salt, sizeof salt); /* versions of one entry differ in the middle alone */
}

/* Writes entries for ever. */
static void write_until_killed(void)
{
  static char data[BYTES];
  for (unsigned salt = 0;; salt++)
    for (int k = 0; k < N_KEYS; k++) {
      char name[32];
      snprintf(name, sizeof name, "entry %d", k);
      fill(data, k, salt);
      qn_cache_put(name, strlen(name), data, BYTES);
    }
}

static int wrong_entries(void)
{
  static char want[BYTES];
  int wrong = 0;
  for (int k = 0; k < N_KEYS; k++) {
    char name[32];
    void *data = NULL;
    size_t bytes = 0;
    unsigned salt;
    snprintf(name, sizeof name, "entry %d", k);
    if (qn_cache_get(name, strlen(name), &data, &bytes) != QN_OK) wrong++;
    if (!data) continue;
    if (bytes == BYTES) {
      memcpy(&salt, (char *)data + BYTES / 2, sizeof salt);
      fill(want, k, salt);
    }
    wrong += bytes != BYTES || memcmp(data, want, BYTES);
    qn_release(data);
  }
  return wrong;
}

static int count_invalid(void *user, const qn_cache_entry *entry)
{
  *(int *)user += !entry->valid;
  return 0;
}

static int count_valid(void *user, const qn_cache_entry *entry)
{
  *(int *)user += entry->valid;
  return 0;
}

static int temporaries(const char *path)
{
  int n = 0;
  DIR *directory = opendir(path);
  for (struct dirent *entry; directory && (entry = readdir(directory));) n += !strncmp(entry->d_name, "tmp.", 4);
  if (directory) closedir(directory);
  return n;
}

static void killed_while_writing(void)
{
  int invalid = 0, wrong = 0, left = 0, kills = 0;
  size_t removed = 0;
  const char *path = scratch_path("killed");
  qn_option_set("cache_dir", path);
  for (; kills < ENOUGH_KILLS || (left < 3 && kills < MOST_KILLS); kills++) {
    pid_t pid = fork();
    if (pid == 0) write_until_killed();
    sleep_us(1000 + next_random() % 10000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    qn_cache_each(count_invalid, &invalid);
    wrong += wrong_entries();
    left = temporaries(path);
  }
  check(!invalid && !wrong, "%d writers killed: %d invalid entries, %d wrong ones", kills, invalid, wrong);
  check(counts().dropped == 0, "readers had nothing to drop");
  check(left >= 3, "%d of them were in the middle of a file", left);
  check(qn_cache_clear(1, &removed) == QN_OK && removed == (size_t)left && temporaries(path) == 0,
        "clear takes what they left: %zu files", removed);
  int valid = 0;
  qn_cache_each(count_valid, &valid);
  check(valid > 0 && files_in(path) == valid + 1 /* the secret */ && !wrong_entries(),
        "all %d entries stay, and nothing else", valid);
}

static void killed_while_compiling(void)
{
  int wrong = 0;
  for (int k = 0; k < N_COMPILE_KILLS; k++) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) _exit(!answers(100 + k));
    sleep_us(3000 + next_random() % 100000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    wrong += !answers(100 + k);
  }
  check(!wrong, "%d processes killed while they make a kernel: the next one has it each time (%d wrong)",
        N_COMPILE_KILLS, wrong);
  check(qn_cache_clear(1, NULL) == QN_OK && temporaries(scratch_path("killed")) == 0, "and nothing half-written stays");
}

int main(void)
{
  scratch_begin();
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return EXIT_FAILURE;
  qn_option_set("cache_dir", scratch_path("cold"));
  all_at_once();
  killed_while_writing();
  killed_while_compiling();
  return test_end();
}
