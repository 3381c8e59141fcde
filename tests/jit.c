/* SPDX-License-Identifier: Apache-2.0 */
/* jit.c - where a kernel comes from: memory, disk or a compile, and how often; with many threads, after fork, with what
 * the cache holds being nonsense, and with compilers that fail. */
#include "answer.h"
#include "core/core.h"
#include "jit/cache.h"
#include "scratch.h"
#include "test.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { N_THREADS = 16 };
static atomic_int allocations;

static void *count_allocate(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  atomic_fetch_add(&allocations, 1);
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void count_release(void *user, void *memory, size_t bytes)
{
  (void)user, (void)bytes;
  free(memory);
}

/* Runs the function in a child of fork; true if it gave true. */
static bool in_child(bool (*run)(void))
{
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(30); /* a hang is a failure */
    _exit(run() ? 0 : 1);
  }
  int status = -1;
  return waitpid(pid, &status, 0) == pid && status == 0;
}

/* ---- memory, disk, compile ---- */
static bool first_process(void)
{
  qn_cache_counts before = counts();
  bool right = answers(1) && answers(1);
  qn_cache_counts after = counts();
  return right && after.compiled == before.compiled + 1 && after.from_memory == before.from_memory + 1 &&
         after.from_disk == before.from_disk;
}

static void found_where_it_is(void)
{
  const qn_device_function *first = NULL, *other = NULL;
  check(in_child(first_process), "a process compiles a kernel once and then has it in memory");
  qn_cache_counts c = counts();
  check(answers(1) && counts().from_disk == c.from_disk + 1 && counts().compiled == c.compiled,
        "the next has it from disk");
  answer_find(1, "answer", &first);
  c = counts();
  atomic_store(&allocations, 0);
  for (int k = 0; k < 1000; k++) answer_find(1, "answer", &other);
  check(other == first && counts().from_memory == c.from_memory + 1000, "1000 times from memory: the same function");
  check(atomic_load(&allocations) == 0, "with %d allocations", atomic_load(&allocations));
  check(answers(2) && counts().compiled == c.compiled + 1, "another define is another kernel");
  check(answer_find(2, "negated", &other) == QN_OK && answer_of(other) == -2 && counts().compiled == c.compiled + 1,
        "another kernel of the same source needs no compile");
  const char *const defines[] = {"ANSWER=2", NULL};
  const qn_unit twin = {.source = "answer.cu",
                        .defines = defines,
                        .text = "#include \"base/kernel.h\"\nstruct answer_args { int *answer; };\n"
                                "QN_KERNEL(answer, answer_args, a) { *a.answer = ANSWER + 40; }\n"};
  check(qn_jit_function(answer_emulator, &twin, "answer", &other) == QN_OK && answer_of(other) == 42,
        "another text under the same name and defines is another kernel: %d", answer_of(other));
  check(answers(2), "and the first one is still there");
}

/* Two compilers of one version, and units that differ in nothing but flags of their own. */
static void compilers_and_flags_are_in_the_key(void)
{
  static const char *const compiler[] = {"twin-a", "twin-b"};
  static const char *const five[] = {"-DANSWER=5", NULL}, *const six[] = {"-DANSWER=6", NULL};
  const qn_device_function *function = NULL;
  const char *cxx = getenv("CXX");
  char text[256];
  const int n =
      snprintf(text, sizeof text, "#!/bin/sh\n[ \"$1\" = --version ] && echo 'twin 1.0' && exit\nexec %s \"$@\"\n",
               cxx && *cxx ? cxx : "c++");
  for (int k = 0; k < 2; k++) {
    write_file(scratch_path(compiler[k]), text, (size_t)n, 0755);
    qn_option_set("cxx", scratch_path(compiler[k]));
    const qn_cache_counts c = counts();
    check(answers(1) && counts().compiled == c.compiled + 1, "a compiler at another place makes its own kernel");
  }
  qn_option_set("cxx", NULL);
  for (int k = 0; k < 2; k++) {
    const qn_unit unit = {.source = "answer.cu", .flags = k ? six : five, .text = answer_text};
    check(!qn_jit_function(answer_emulator, &unit, "answer", &function) && answer_of(function) == 5 + k,
          "a unit with the flag %s answers %d", unit.flags[0], answer_of(function));
  }
}

static void options_are_in_the_key(void)
{
  const qn_device_function *first = NULL, *second = NULL, *third = NULL;
  const char *tier = "";
  qn_cpu_tier(&tier);
  answer_find(1, "answer", &first);
  qn_cache_counts c = counts();
  if (!strcmp(tier, "ref"))
    skip("the best tier here is ref, there is no other to change to");
  else {
    qn_option_set("cpu", "ref");
    check(answer_find(1, "answer", &second) == QN_OK && second != first && counts().compiled == c.compiled + 1,
          "another CPU tier is another kernel");
    qn_option_set("cpu", NULL);
  }
  c = counts();
  check(answer_find(1, "answer", &third) == QN_OK && third == first && counts().compiled == c.compiled &&
            counts().from_disk == c.from_disk,
        "back again, the first one is in memory");
  qn_option_set("cache_bytes", "100M");
  check(answer_find(1, "answer", &third) == QN_OK && third == first && counts().compiled == c.compiled,
        "an option that kernels do not depend on changes nothing");
  qn_option_set("cache_bytes", NULL);
}

/* ---- what the cache holds is nonsense with a right checksum ---- */
static bool compiles_77(void) { return answers(77); }
static char entry_file[64];

static int find_77(void *user, const qn_cache_entry *entry)
{
  (void)user;
  if (!strstr(entry->summary, "ANSWER=77")) return 0;
  snprintf(entry_file, sizeof entry_file, "%s", entry->file);
  return 1;
}

static bool has_77_from_disk(void)
{
  qn_cache_counts c = counts();
  return answers(77) && counts().compiled == c.compiled;
}

static void nonsense_is_compiled_again(void)
{
  char path[512];
  static char file[1 << 20];
  uint64_t key_bytes = 0;
  check(in_child(compiles_77) && qn_cache_each(find_77, NULL) == QN_OK && entry_file[0], "a kernel is in the cache: %s",
        entry_file);
  snprintf(path, sizeof path, "%s/%s", scratch_path("cache"), entry_file);
  FILE *stream = fopen(path, "rb");
  size_t n = stream ? fread(file, 1, sizeof file, stream) : 0;
  if (stream) fclose(stream);
  memcpy(&key_bytes, file + 32, 8);
  check(n > 48 + key_bytes, "its key has %llu bytes", (unsigned long long)key_bytes);
  qn_cache_put(file + 48, (size_t)key_bytes, "no shared object", 16);
  qn_cache_counts c = counts();
  check(answers(77) && counts().compiled == c.compiled + 1 && counts().from_disk == c.from_disk + 1,
        "what cannot be loaded is compiled again");
  check(in_child(has_77_from_disk), "and what was nonsense is good again");
}

/* ---- threads ---- */
typedef struct worker {
  pthread_t thread;
  int n; /* the answer asked for */
  const qn_device_function *function;
  qn_status status;
  char why[256];
} worker;
static pthread_barrier_t barrier;

static void *ask(void *argument)
{
  worker *w = argument;
  pthread_barrier_wait(&barrier);
  w->status = answer_find(w->n, "answer", &w->function);
  snprintf(w->why, sizeof w->why, "%s", w->status == QN_OK ? "" : qn_last_error());
  return NULL;
}

/* Thread k asks for the answer first + k % kinds. */
static void ask_at_once(worker workers[N_THREADS], int first, int kinds)
{
  pthread_barrier_init(&barrier, NULL, N_THREADS);
  for (int k = 0; k < N_THREADS; k++) {
    workers[k] = (worker){.n = first + k % kinds};
    pthread_create(&workers[k].thread, NULL, ask, &workers[k]);
  }
  for (int k = 0; k < N_THREADS; k++) pthread_join(workers[k].thread, NULL);
  pthread_barrier_destroy(&barrier);
}

static void threads_share_a_compile(void)
{
  worker w[N_THREADS];
  for (int kinds = 1; kinds <= 4; kinds += 3) {
    int wrong = 0;
    qn_cache_counts c = counts();
    ask_at_once(w, 100 * kinds, kinds);
    for (int k = 0; k < N_THREADS; k++)
      wrong += w[k].status != QN_OK || w[k].function != w[k % kinds].function || answer_of(w[k].function) != w[k].n;
    check(!wrong && counts().compiled - c.compiled == (uint64_t)kinds, "16 threads, %d kernels: %d compiles, %d wrong",
          kinds, (int)(counts().compiled - c.compiled), wrong);
  }
}

static const char *script(const char *name, const char *body)
{
  char text[1024];
  const char *path = scratch_path(name), *cxx = getenv("CXX");
  int n = snprintf(text, sizeof text,
                   "#!/bin/sh\ncd %s\nif [ \"$1\" = --version ]; then echo '%s 1.0'; exit 0; fi\n%s\nexec %s \"$@\"\n",
                   scratch, name, body, cxx && *cxx ? cxx : "c++");
  write_file(path, text, (size_t)n, 0755);
  return path;
}

/* Each compile waits (at most 20 s) until a second one runs. */
static void kernels_compile_side_by_side(void)
{
  worker w[N_THREADS];
  int failed = 0;
  qn_option_set("cxx", script("together", ": >here.$$; for i in $(seq 2000); do [ $(ls here.* | wc -l) -ge 2 ] && "
                                          "break; sleep 0.01; done; [ $i -lt 2000 ] || exit 9"));
  ask_at_once(w, 500, 2);
  for (int k = 0; k < N_THREADS; k++) failed += w[k].status != QN_OK;
  check(!failed, "two kernels compile at the same time: %d of 16 threads failed: %s", failed, w[0].why);
  qn_option_set("cxx", NULL);
}

static void a_failure_is_shared(void)
{
  worker w[N_THREADS];
  int wrong = 0, runs = 0;
  qn_option_set("cxx", script("fails", "sleep 1; echo run >>runs; echo \"answer.cu:7:7: error: as ordered\"; exit 1"));
  ask_at_once(w, 600, 1);
  for (int k = 0; k < N_THREADS; k++) wrong += w[k].status != QN_COMPILE_ERROR || !strstr(w[k].why, "as ordered");
  FILE *stream = fopen(scratch_path("runs"), "r");
  for (int c; stream && (c = fgetc(stream)) != EOF;) runs += c == '\n';
  if (stream) fclose(stream);
  check(!wrong && runs < 4, "16 threads wait for a compile that fails: %d runs, %d without its sentence", runs, wrong);
  refuses(answer_find(600, "answer", &w[0].function), QN_COMPILE_ERROR, "answer.cu:7:7");
  qn_option_set("cxx", NULL);
  check(answers(600), "with a compiler that works the next call has it");
}

/* ---- fork ---- */
static bool works_after_fork(void)
{
  qn_cache_counts c = counts();
  return answers(1) && counts().compiled == c.compiled && answers(700) && counts().compiled == c.compiled + 1;
}

static void *compile_slowly(void *argument)
{
  (void)argument;
  return answers(701) ? argument : NULL;
}

static bool has_701(void) { return answers(701); }

static void fork_leaves_the_child_whole(void)
{
  pthread_t thread;
  void *right = NULL;
  check(in_child(works_after_fork), "a child uses the parent's kernels and makes its own");
  qn_option_set("cxx", script("slow", ": >compiling; sleep 1"));
  pthread_create(&thread, NULL, compile_slowly, scratch);
  while (access(scratch_path("compiling"), F_OK)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  check(in_child(has_701), "a child made in the middle of a compile makes that kernel itself");
  pthread_join(thread, &right);
  check(right == scratch, "and so does the parent");
  qn_option_set("cxx", NULL);
}

/* A thread that sets options and looks kernels up by their full key all the time, in its locks as often as not. */
static atomic_bool enough;

static void *look_up(void *argument)
{
  char text[64];
  (void)argument;
  while (!atomic_load(&enough)) {
    qn_option_set("cache_bytes", "100M");
    answers(1);
    for (int k = 0; k < 1000; k++) qn_option_text(QN_OPTION_CPU, text, sizeof text);
  }
  return NULL;
}

static bool has_1(void) { return answers(1); }

static void fork_beside_a_busy_thread(void)
{
#ifdef __SANITIZE_ADDRESS__
  skip("a child of fork hangs in a lock of AddressSanitizer's own allocator, which GCC's does not free in the child");
  return;
#endif
  pthread_t thread;
  int failed = 0;
  pthread_create(&thread, NULL, look_up, NULL);
  for (int k = 0; k < 200 && !failed; k++) failed += !in_child(has_1);
  atomic_store(&enough, true);
  pthread_join(thread, NULL);
  qn_option_set("cache_bytes", NULL);
  check(!failed, "200 children made beside a thread in the same locks find their kernel");
}

/* ---- refusals ---- */
static void refusals(void)
{
  const qn_device_function *function = NULL;
  static char define[5000];
  memset(define, 'x', sizeof define - 1);
  const char *const defines[] = {define, NULL};
  const qn_unit unit = {.source = "answer.cu", .text = answer_text}, unknown = {.source = "op/none.cu"},
                long_one = {.source = "answer.cu", .text = answer_text, .defines = defines},
                deep = {.source = "answer.cu", .text = "#include \"answer.cu\"\n"};
  refuses(qn_jit_function((qn_device){QN_CPU, 0}, &unit, "answer", &function), QN_UNSUPPORTED, "\"cpu\"");
  refuses(qn_jit_function((qn_device){QN_EMULATOR, 3}, &unit, "answer", &function), QN_NO_DEVICE, "emulator:3");
  refuses(qn_jit_function(answer_emulator, &unknown, "answer", &function), QN_BAD_ARGUMENT, "op/none.cu");
  refuses(qn_jit_function(answer_emulator, &deep, "answer", &function), QN_BAD_ARGUMENT, "not among the embedded");
  refuses(qn_jit_function(answer_emulator, &long_one, "answer", &function), QN_BAD_ARGUMENT, "defines");
  refuses(answer_find(1, "question", &function), QN_BAD_ARGUMENT, "\"question\"");
  refuses(qn_jit_function(answer_emulator, &unit, "answer", &function), QN_COMPILE_ERROR, "ANSWER");
  check(answers(1), "and all is as before");
}

int main(void)
{
  scratch_begin();
  qn_allocator_set(&(qn_allocator){count_allocate, count_release, NULL});
  qn_option_set("cache_dir", scratch_path("cache"));
  found_where_it_is();
  options_are_in_the_key();
  compilers_and_flags_are_in_the_key();
  nonsense_is_compiled_again();
  threads_share_a_compile();
  kernels_compile_side_by_side();
  a_failure_is_shared();
  fork_leaves_the_child_whole();
  fork_beside_a_busy_thread();
  refusals();
  check(!has_children(), "no child is left");
  return test_end();
}
