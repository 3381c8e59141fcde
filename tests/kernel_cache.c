/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_cache.c - compiled kernels from bodies are found again, and never the wrong one: another body, header, math
 * mode, template value or dialect under the same name, in one process and from the disk; many threads at once; a child
 * of fork; options that change; and no code that is loaded changes how the process computes. */
#include "kernel_use.h"
#include "scratch.h"
#include <pthread.h>
#include <stdatomic.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static qn_cache_counts counts(void)
{
  qn_cache_counts c = {.size = sizeof c};
  qn_cache_count(&c);
  return c;
}

/* The result of a kernel with one output for a grid of 1; NaN where it fails. */
static float answer_with(const use *u, size_t n_templates, const qn_template *templates)
{
  float out[1] = {-1};
  qn_kernel *kernel = use_make(u);
  const qn_tensor to = ARRAY(out, QN_F32, 1);
  const qn_kernel_call call =
      CALL(.outputs = &to, .n_templates = n_templates, .templates = templates, .grid = {1, 1, 1});
  if (qn_kernel_launch(kernel, &serial, &call)) check(false, "a kernel runs: %s", qn_last_error());
  qn_kernel_destroy(&kernel);
  return out[0];
}
static float answer(const use *u) { return answer_with(u, 0, NULL); }

/* ---- one name ---- */

static void same_name(void)
{
  const char *mode = "#ifdef QN_MATH\nout[0] = QN_MATH + 1;\n#endif";
  check(answer(&(use){.name = "one", .body = "out[0] = 1;"}) == 1 &&
            answer(&(use){.name = "one", .body = "out[0] = 2;"}) == 2,
        "another body is another kernel");
  const use with = {.name = "one", .header = "float f() { return 3; }", .body = "out[0] = f();"};
  use other = with;
  other.header = "float f() { return 4; }";
  check(answer(&with) == 3 && answer(&other) == 4 && answer(&with) == 3, "another header, too");
  for (int turn = 0; turn < 2; turn++)
    for (int math = QN_MATH_SAFE; math <= QN_MATH_FAST; math++) {
      const float got = answer(&(use){.name = "one", .math = (qn_math)math, .body = mode});
      check(got == (float)(math + 1), "math mode %d compiles as %g", math, (double)got - 1);
    }
  qn_template t[] = {{"N", {.kind = QN_VALUE_INT, .integer = 5}}, {"T", {.kind = QN_VALUE_DTYPE, .dtype = QN_F32}}};
  const use taking = {.name = "one", .body = "out[0] = N * 10 + sizeof(T);"};
  bool right = answer_with(&taking, 2, t) == 54;
  t[0].value.integer = 6, t[1].value.dtype = QN_U16;
  right &= answer_with(&taking, 2, t) == 62;
  t[0].value = (qn_value){.kind = QN_VALUE_BOOL, .integer = 1};
  right &= answer_with(&taking, 2, t) == 12;
  check(right, "and template values");
}

/* One kernel object through many launches of different kinds: each finds its own code again. */
static void one_object(void)
{
  float out[8], in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int32_t whole[8] = {10, 20, 30, 40};
  qn_kernel *kernel = use_make(
      &(use){.name = "many", .inputs = "a", .body = "out[thread_position_in_grid.x] = a[0] * 2 + N + a_ndim;"});
  const uint64_t compiled = counts().compiled;
  uint64_t from_memory = 0;
  int wrong = 0;
  for (int turn = 0; turn < 3; turn++) {
    if (turn) from_memory = counts().from_memory;
    for (int n = 0; n < 4; n++)
      for (int kind = 0; kind < 2; kind++)
        for (int ndim = 1; ndim <= 2; ndim++) {
          int64_t shape[] = {4, 1};
          const qn_tensor from = {kind ? (void *)whole : (void *)in, kind ? QN_I32 : QN_F32, ndim, shape, NULL, cpu};
          const qn_tensor to = ARRAY(out, QN_F32, 8);
          const qn_template t = {"N", {.kind = QN_VALUE_INT, .integer = n}};
          const qn_kernel_call call =
              CALL(.inputs = &from, .outputs = &to, .n_templates = 1, .templates = &t, .grid = {8, 1, 1});
          wrong += qn_kernel_launch(kernel, &serial, &call) || out[7] != (kind ? 20.0f : 2.0f) + (float)(n + ndim);
        }
  }
  check(!wrong && counts().compiled == compiled + 8,
        "8 kinds of launch are compiled once each: %d wrong, %llu compiled", wrong,
        (unsigned long long)(counts().compiled - compiled));
  check(from_memory && counts().from_memory == from_memory, "and found again by the kernel itself");
  qn_kernel_destroy(&kernel);
}

/* ---- the disk ---- */

static int in_child(int (*work)(void))
{
  fflush(stdout);
  const pid_t child = fork();
  if (!child) {
    alarm(120);
    _exit(work());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static int compiles_seven(void)
{
  const qn_cache_counts before = counts();
  const bool right = answer(&(use){.name = "disk", .body = "out[0] = 7;"}) == 7;
  return right ? (int)(counts().compiled - before.compiled) + 10 * (int)(counts().from_disk - before.from_disk) : 99;
}

static int compiles_eight(void)
{
  const qn_cache_counts before = counts();
  const bool right = answer(&(use){.name = "disk", .body = "out[0] = 8;"}) == 8;
  return right ? (int)(counts().compiled - before.compiled) + 10 * (int)(counts().from_disk - before.from_disk) : 99;
}

static void from_disk(void)
{
  int got = in_child(compiles_seven);
  check(got == 1, "a process compiles: %d", got);
  got = in_child(compiles_seven);
  check(got == 10, "the next one loads from the disk: %d", got);
  got = in_child(compiles_eight);
  check(got == 1, "but not another body's: %d", got);
  got = in_child(compiles_seven);
  check(got == 10, "and both are kept: %d", got);
}

/* ---- many threads ---- */

enum { THREADS = 16 };
static pthread_barrier_t barrier;
static qn_kernel *shared;
static atomic_int faults;
static char first_fault[512]; /* what the first one said */

static void count_fault(void)
{
  if (!atomic_fetch_add(&faults, 1)) snprintf(first_fault, sizeof first_fault, "%s", qn_last_error());
}

/* All at once: the shared kernel, then one that each thread makes of the same text, then one of its own. */
static void *storm(void *argument)
{
  const int k = (int)(intptr_t)argument;
  float out[64];
  const qn_tensor to = ARRAY(out, QN_F32, 64);
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {64, 1, 1}, .group = {16, 1, 1});
  char body[96];
  pthread_barrier_wait(&barrier);
  for (int turn = 0; turn < 50; turn++) {
    out[63] = 0;
    if (qn_kernel_launch(shared, &serial, &call) || out[63] != 163) count_fault();
  }
  for (int which = 0; which < 2; which++) {
    qn_kernel *own = NULL;
    snprintf(body, sizeof body, "out[thread_position_in_grid.x] = thread_position_in_grid.x + %d;",
             which ? 1000 + k : 200);
    if (use_create(&own, &(use){.name = which ? "own" : "alike", .body = body}) ||
        qn_kernel_launch(own, &serial, &call) || out[63] != (float)(which ? 1063 + k : 263))
      count_fault();
    qn_kernel_destroy(&own);
  }
  return NULL;
}

static void many_threads(void)
{
  pthread_t thread[THREADS];
  const uint64_t before = counts().compiled;
  shared =
      use_make(&(use){.name = "shared", .body = "out[thread_position_in_grid.x] = thread_position_in_grid.x + 100;"});
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int k = 0; k < THREADS; k++) pthread_create(&thread[k], NULL, storm, (void *)(intptr_t)k);
  for (int k = 0; k < THREADS; k++) pthread_join(thread[k], NULL);
  pthread_barrier_destroy(&barrier);
  const uint64_t compiled = counts().compiled - before;
  check(!atomic_load(&faults), "%d threads launch and compile at once, %d faults%s%s", THREADS, atomic_load(&faults),
        *first_fault ? ": " : "", first_fault);
  check(compiled == 2 + THREADS, "one compile for each kernel: %llu, not %d", (unsigned long long)compiled,
        2 + THREADS);
  qn_kernel_destroy(&shared);
}

/* A body that does not compile, asked for by all at once: all are told, and nobody waits for ever. */
static void *bad_storm(void *argument)
{
  (void)argument;
  float out[1];
  const qn_tensor to = ARRAY(out, QN_F32, 1);
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {1, 1, 1});
  pthread_barrier_wait(&barrier);
  if (qn_kernel_launch(shared, &serial, &call) != QN_COMPILE_ERROR || !strstr(qn_last_error(), "bad:1"))
    atomic_fetch_add(&faults, 1);
  return NULL;
}

static void many_failures(void)
{
  pthread_t thread[THREADS];
  atomic_store(&faults, 0);
  shared = use_make(&(use){.name = "bad", .body = "out[0] = nowhere;"});
  pthread_barrier_init(&barrier, NULL, THREADS);
  for (int k = 0; k < THREADS; k++) pthread_create(&thread[k], NULL, bad_storm, NULL);
  for (int k = 0; k < THREADS; k++) pthread_join(thread[k], NULL);
  pthread_barrier_destroy(&barrier);
  check(!atomic_load(&faults), "%d threads are told of one bad body, %d are not", THREADS, atomic_load(&faults));
  qn_kernel_destroy(&shared);
}

/* ---- fork ---- */

static int child_goes_on(void)
{
  float out[2] = {0};
  const qn_tensor to = ARRAY(out, QN_F32, 2);
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {2, 1, 1});
  bool right = !qn_kernel_launch(shared, &serial, &call) && out[1] == 9;
  right = right && answer(&(use){.name = "born", .body = "out[0] = 11;"}) == 11;
  qn_kernel_destroy(&shared);
  return right ? 0 : 1;
}

static void forked(void)
{
  float out[2] = {0};
  const qn_tensor to = ARRAY(out, QN_F32, 2);
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {2, 1, 1});
  shared = use_make(&(use){.name = "parent", .body = "out[thread_position_in_grid.x] = 9;"});
  check(!qn_kernel_launch(shared, &serial, &call), "a parent has a kernel");
  check(in_child(child_goes_on) == 0, "its child launches it, and compiles one of its own");
  check(!qn_kernel_launch(shared, &serial, &call) && out[1] == 9, "the parent goes on");
  qn_kernel_destroy(&shared);
}

/* ---- options ---- */

static void options_change(void)
{
  float out[1] = {0};
  const qn_tensor to = ARRAY(out, QN_F32, 1);
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {1, 1, 1});
  qn_kernel *kernel =
      use_make(&(use){.name = "tiers", .body = "#ifdef __AVX2__\nout[0] = 2;\n#else\nout[0] = 1;\n#endif"});
  const char *tier = NULL;
  qn_cpu_tier(&tier);
  const bool wide = tier && !strncmp(tier, "avx", 3);
  qn_option_set("cpu", "ref");
  check(!qn_kernel_launch(kernel, &serial, &call) && out[0] == 1, "tier ref: %g", (double)out[0]);
  qn_option_set("cpu", NULL);
  check(!qn_kernel_launch(kernel, &serial, &call) && out[0] == (wide ? 2 : 1), "the best tier: %g", (double)out[0]);
  qn_option_set("cpu", "ref");
  check(!qn_kernel_launch(kernel, &serial, &call) && out[0] == 1, "and back: %g", (double)out[0]);
  qn_option_set("cpu", NULL);
  qn_kernel_destroy(&kernel);
}

/* ---- the process's arithmetic ---- */

/* Loading code that was linked for fast math must not make subnormals zero for everybody else. */
static void control_word(void)
{
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  const float got = answer(&(use){.name = "quick", .math = QN_MATH_FAST, .body = "out[0] = exp(0.0f) + sqrt(9.0f);"});
  const unsigned after = _mm_getcsr();
  check(got == 4, "a kernel in fast mode runs: %g", (double)got);
  check((before & 0x8040) == 0 && after == before, "the control word is as it was: %x, %x", before, after);
#endif
  volatile float tiny = 1e-39f;
  check(tiny * 0.5f != 0, "and subnormals are there");
}

int main(void)
{
  scratch_begin();
  qn_option_set("cache_dir", scratch_path("cache"));
  from_disk();
  same_name();
  one_object();
  many_threads();
  many_failures();
  forked();
  options_change();
  control_word();
  return test_end();
}
