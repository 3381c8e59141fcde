/* SPDX-License-Identifier: Apache-2.0 */
/* group.c - how threads of a group wait for each other on the emulator (device/emulator/group.c): barriers and
 * collectives of any number of threads, with lanes that have returned and lanes in other branches; what is said when
 * nobody can go on; memory that runs out, stacks that overflow, control words. The kernels speak the table of
 * base/group.h itself. */
#include "group_use.h"
#include "cpu/tier.h"
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A kernel NAME over `struct NAME_args`, whose body sees a, block, thread, threads and lane. */
#define PRELUDE                                                                                                        \
  "#include \"base/kernel.h\"\n#include \"base/group.h\"\n"                                                            \
  "extern \"C\" { const qn_group_words *quern_group; }\n"                                                              \
  "struct args { qn_u32 *out, *more; qn_u32 n, kind; };\n"                                                             \
  "static inline qn_u32 together(qn_u32 mine, qn_u32 mask, int line, qn_u32 *took) {\n"                                \
  "  const unsigned char *all; qn_u32 sum = 0, one;\n"                                                                 \
  "  *took = quern_group->exchange(&mine, 4, mask, line, &all);\n"                                                     \
  "  for (int k = 0; k < 32; k++) { __builtin_memcpy(&one, all + 16 * k, 4); sum += one; }\n"                          \
  "  return sum;\n}\n"
#define KERNEL(name)                                                                                                   \
  "extern \"C\" decltype(sizeof 0) " #name "_argument_bytes() { return sizeof(args); }\n"                              \
  "static void body(const args &a, qn_u64 block, qn_u32 thread, qn_u32 threads, qn_u32 lane);\n"                       \
  "extern \"C\" void " #name "_thread(const void *p, qn_u64 block, qn_u64, qn_u32 thread, qn_u32 threads) {\n"         \
  "  body(*static_cast<const args *>(p), block, thread, threads, thread % 32);\n}\n"                                   \
  "static void body(const args &a, qn_u64 block, qn_u32 thread, qn_u32 threads, qn_u32 lane) {\n"                      \
  "  (void)a, (void)block, (void)thread, (void)threads, (void)lane;\n#line 1\n"

typedef struct args {
  uint32_t *out, *more, n, kind;
} args;

enum { BLOCKS = 11, MOST = 1024 };
static uint32_t out[BLOCKS * MOST], more[BLOCKS * MOST];

static qn_status run(const char *text, const char *name, uint64_t blocks, uint32_t threads, qn_pool *pool, uint32_t n,
                     uint32_t kind)
{
  memset(out, 0xee, sizeof out);
  memset(more, 0xee, sizeof more);
  return group_launch(group_function(text, name), blocks, threads, 0, pool, &(args){out, more, n, kind}, sizeof(args));
}

/* ---- any number of threads, some of which return early, with a barrier behind them ---- */
static const char early_text[] =
    PRELUDE KERNEL(early) "static thread_local qn_u32 sums[32], passed;\n"
                          "if (thread == 0) passed = 0;\n"
                          "qn_u32 took, sum = together(thread + 1, 0, 3, &took);\n"
                          "if (lane == 0) sums[thread / 32] = sum;\n"
                          "a.more[block * threads + thread] = took;\n"
                          "if (thread % 3 == a.n) { a.out[block * threads + thread] = 7; return; }\n"
                          "quern_group->barrier(0, 7);\n"
                          "qn_u32 total = 0;\n"
                          "for (qn_u32 k = 0; k < (threads + 31) / 32; k++) total += sums[k];\n"
                          "sum = together(1, 0, 10, &took);\n"
                          "passed++;\n"
                          "quern_group->barrier(0, 12);\n"
                          "a.out[block * threads + thread] = total + 1000000 * passed;\n"
                          "a.more[block * threads + thread] = took ^ sum << 27;\n}\n";

static unsigned wrong_early(uint32_t threads, uint32_t returns)
{
  unsigned wrong = 0, rest = 0;
  for (uint32_t t = 0; t < threads; t++) rest += t % 3 != returns;
  for (uint32_t i = 0; i < BLOCKS * threads; i++) {
    const uint32_t t = i % threads, base = t & ~31u, end = base + 32 < threads ? base + 32 : threads;
    uint32_t first = 0, second = 0, n = 0;
    for (uint32_t k = base; k < end; k++) {
      first |= UINT32_C(1) << (k - base);
      if (k % 3 != returns) second |= UINT32_C(1) << (k - base), n++;
    }
    if (t % 3 == returns)
      wrong += out[i] != 7 || more[i] != first;
    else
      wrong += out[i] != threads * (threads + 1) / 2 + 1000000 * rest || more[i] != (second ^ n << 27);
  }
  return wrong;
}

static void early_returns(void)
{
  static const uint32_t counts[] = {1, 2, 3, 31, 32, 33, 63, 64, 100, 255, 256, 1000, 1023, 1024};
  static const int pools[] = {0, 1, 2, 7};
  for (size_t p = 0; p < sizeof pools / sizeof *pools; p++) {
    qn_pool *pool = NULL;
    unsigned wrong = 0;
    if (pools[p]) qn_pool_create(&pool, pools[p]);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
      for (uint32_t returns = 0; returns < 4; returns++) {
        wrong += run(early_text, "early", BLOCKS, counts[k], pool, returns, 0) != QN_OK;
        wrong += wrong_early(counts[k], returns);
      }
    check(!wrong, "a pool of %d: 1 to 1024 threads, a third of which may return, pass barriers: %u wrong", pools[p],
          wrong);
    qn_pool_destroy(&pool);
  }
}

/* ---- lanes in different branches ---- */
static const char branches_text[] = PRELUDE KERNEL(
    branches) "qn_u32 took = 0, *at = a.out + 4 * thread, *of = a.more + 4 * thread;\n"
              "if (lane < 12)\n"
              "  at[0] = together(lane, 0, 3, &of[0]);\n"
              "else if (lane < 20)\n"
              "  at[0] = together(lane, 0, 5, &of[0]);\n"
              "at[1] = together(lane, 0, 6, &of[1]);\n"
              "at[2] = 0;\n"
              "for (qn_u32 k = 0; k < lane % 4; k++) at[2] += together(1, 0, 8, &took);\n"
              "at[3] = together(lane, 0, 9, &of[3]);\n"
              "if (lane < 5) { quern_group->barrier(1, 10); at[0] += 100; quern_group->barrier(0, 11); return; }\n"
              "at[3] += 1000 * together(1, 0, 12, &of[2]);\n"
              "quern_group->barrier(0, 11);\n}\n";

static void different_branches(void)
{
  unsigned wrong[5] = {0};
  check(run(branches_text, "branches", 1, 64, NULL, 0, 0) == QN_OK, "lanes in different branches come to an end");
  for (unsigned t = 0; t < 64; t++) {
    const unsigned lane = t % 32;
    const uint32_t *at = out + 4 * t, *of = more + 4 * t;
    if (lane < 20) wrong[0] += at[0] != (lane < 12 ? 66u + (lane < 5 ? 100 : 0) : 124u);
    if (lane < 20) wrong[0] += of[0] != (lane < 12 ? 0xfffu : 0xff000u);
    wrong[1] += at[1] != 496 || of[1] != ~0u;
    wrong[2] += at[2] != (uint32_t[]){0, 24, 40, 48}[lane % 4]; /* 24 lanes, then 16, then 8 */
    wrong[3] += at[3] % 1000 != 496 || of[3] != ~0u;
    if (lane >= 5) wrong[4] += at[3] / 1000 != 27 || of[2] != ~0u << 5;
  }
  check(!wrong[0], "each branch of an if has its own collective: %u wrong", wrong[0]);
  check(!wrong[1], "behind it all lanes are together again: %u wrong", wrong[1]);
  check(!wrong[2], "a loop goes on with the lanes that are in it: %u wrong", wrong[2]);
  check(!wrong[3], "and behind it all are together: %u wrong", wrong[3]);
  check(!wrong[4], "lanes at a barrier are not waited for in a collective: %u wrong", wrong[4]);
}

/* A result stays until its lane's next collective, whatever other lanes do meanwhile. */
static const char keep_text[] = PRELUDE KERNEL(
    keep) "const unsigned char *all, *other; qn_u32 mine = thread + 1, sum = 0, one;\n"
          "quern_group->exchange(&mine, 4, 0, 2, &all);\n"
          "if (lane > 0) for (qn_u32 k = 0; k < 40 + lane; k++) { mine = 7777; quern_group->exchange(&mine, 4, 0, 3, "
          "&other); }\n"
          "if (lane == 0) quern_group->barrier(0, 4);\n"
          "if (lane == 0) for (int k = 0; k < 32; k++) { __builtin_memcpy(&one, all + 16 * k, 4); sum += one; }\n"
          "a.out[thread] = sum;\n}\n";

static void results_are_kept(void)
{
  qn_status status = run(keep_text, "keep", 1, 64, NULL, 0, 0);
  check(status == QN_OK && out[0] == 528 && out[32] == 528 + 1024,
        "what a lane was given stays while others exchange: %u and %u", out[0], out[32]);
}

/* ---- masks ---- */
static const char masks_text[] =
    PRELUDE KERNEL(masks) "qn_u32 *at = a.out + 4 * thread, *of = a.more + 4 * thread;\n"
                          "const qn_u32 quarter = 0xffu << (lane & ~7u);\n"
                          "at[0] = together(lane, quarter, 3, &of[0]);\n"
                          "if (lane % 8 < 3) at[1] = together(lane, quarter, 4, &of[1]);\n"
                          "else if (lane % 8 < 6) at[1] = together(lane, quarter, 5, &of[1]);\n"
                          "else return;\n"
                          "at[2] = together(1, 0xffffffffu, 7, &of[2]);\n"
                          "}\n";

static void masks(void)
{
  unsigned wrong[3] = {0};
  check(run(masks_text, "masks", 1, 64, NULL, 0, 0) == QN_OK, "collectives with masks come to an end");
  for (unsigned t = 0; t < 64; t++) {
    const unsigned lane = t % 32, base = lane & ~7u;
    const uint32_t *at = out + 4 * t, *of = more + 4 * t;
    wrong[0] += at[0] != 8 * base + 28 || of[0] != 0xffu << base;
    if (lane % 8 < 6) wrong[1] += at[1] != 6 * base + 15 && at[1] != 8 * base + 28;
    if (lane % 8 < 6) wrong[2] += at[2] != 24 || of[2] != 0x3f3f3f3fu;
  }
  check(!wrong[0], "masks of eight lanes each: %u wrong", wrong[0]);
  check(!wrong[1], "lanes that returned are not waited for, lanes of one mask meet on two lines: %u wrong", wrong[1]);
  check(!wrong[2], "a full mask means those that have not returned: %u wrong", wrong[2]);
}

/* ---- nobody can go on ---- */
static const char stuck_text[] = PRELUDE KERNEL(
    stuck) "qn_u32 took;\n"
           "a.out[block * threads + thread] = 1;\n"
           "if (block < a.n) return; "
           "volatile qn_u32 spin = thread || a.kind % 6 || (a.kind == 6) != (block > a.n) ? 0 : 8000000; "
           "while (spin) spin = spin - 1;\n"
           "if (a.kind % 6 == 0 && thread < 9) quern_group->barrier(0, 4); else if (a.kind % 6 == 0) "
           "quern_group->barrier(0, 5);\n"
           "if (a.kind == 1 && thread < 4) together(1, 0xffu, 5, &took);\n"
           "if (a.kind == 1 && thread == 50) return;\n"
           "if (a.kind == 1) quern_group->barrier(0, 7);\n"
           "if (a.kind == 2) together(1, lane == 6 ? 0xffu << 8 : 0xffu << (lane & ~7u), 8, &took);\n"
           "if (a.kind == 3 && thread < 32) quern_group->barrier(0, 9); else if (a.kind == 3) "
           "quern_group->barrier(0, 10);\n"
           "\n"
           "if (a.kind == 5 && lane == 3) together(1, 0xffu, 0, &took); else if (a.kind == 5) "
           "quern_group->barrier(0, 14);\n"
           "a.out[block * threads + thread] = 2;\n}\n";

static void nobody_can_go_on(void)
{
  refuses(run(stuck_text, "stuck", 1, 64, NULL, 0, 0), QN_KERNEL_ERROR,
          "kernel stuck, block 0: threads of one simdgroup wait at different barriers: 9 threads (the first is 0) wait "
          "at the barrier of line 4, 55 threads (the first is 9) wait at the barrier of line 5");
  refuses(run(stuck_text, "stuck", 1, 64, NULL, 0, 1), QN_KERNEL_ERROR,
          "59 threads (the first is 4) wait at the barrier of line 7, 4 threads (the first is 0) wait at a simdgroup's "
          "collective of line 5 for the lanes 0x000000ff, 1 has returned");
  refuses(run(stuck_text, "stuck", 1, 64, NULL, 0, 2), QN_KERNEL_ERROR,
          "thread 6 calls a collective at line 8 for the lanes 0x0000ff00, of which its own, 6, is none");
  check(run(stuck_text, "stuck", 1, 64, NULL, 0, 3) == QN_OK, "simdgroups may pass one barrier at different lines");
  refuses(
      run(stuck_text, "stuck", 1, 32, NULL, 0, 5), QN_KERNEL_ERROR,
      "31 threads (the first is 0) wait at the barrier of line 14, 1 thread (the first is 3) waits at a simdgroup's "
      "collective of an unknown line for the lanes 0x000000ff");
}

/* The sentence is the lowest block's, for any pool, whether it fails late (kind 0) or early (6); blocks before it have
 * run; and the next launch finds all in order. */
static void the_lowest_block_speaks(void)
{
  static const int pools[] = {0, 1, 2, 7};
  for (size_t p = 0; p < sizeof pools / sizeof *pools; p++) {
    qn_pool *pool = NULL;
    unsigned wrong = 0;
    if (pools[p]) qn_pool_create(&pool, pools[p]);
    for (uint32_t times = 0; times < 12; times++) {
      qn_status status = run(stuck_text, "stuck", BLOCKS, 320, pool, 5, times % 2 * 6);
      wrong += status != QN_KERNEL_ERROR || !strstr(qn_last_error(), "block 5:");
      for (uint32_t i = 0; i < 5 * 320; i++) wrong += out[i] != 1;
      for (uint32_t i = 5 * 320; i < BLOCKS * 320; i++) wrong += out[i] == 2;
    }
    wrong += run(early_text, "early", BLOCKS, 320, pool, 1, 0) != QN_OK || wrong_early(320, 1);
    check(!wrong, "a pool of %d: block 5 is the first that fails, and says so; then all is well again: %u wrong",
          pools[p], wrong);
    qn_pool_destroy(&pool);
  }
}

/* ---- words from deep inside functions ---- */
static const char nested_text[] =
    PRELUDE "static __attribute__((noinline)) qn_u32 deep(qn_u32 depth, qn_u32 thread) {\n"
            "  qn_u32 took, pad[16]; for (int k = 0; k < 16; k++) pad[k] = thread + k;\n"
            "  if (depth == 0) { quern_group->barrier(0, 1); return together(thread, 0xffffffffu, 2, &took); }\n"
            "  qn_u32 below = deep(depth - 1, thread);\n"
            "  quern_group->barrier(depth & 1, 3);\n"
            "  for (int k = 0; k < 16; k++) below += pad[k] != thread + k;\n"
            "  return below + 1;\n}\n" KERNEL(
                nested) "a.out[block * threads + thread] = deep(a.n + thread / 32 * 0, thread);\n}\n";

static void nested_calls(void)
{
  unsigned wrong = run(nested_text, "nested", 3, 96, NULL, 100, 0) != QN_OK;
  for (uint32_t i = 0; i < 3 * 96; i++) wrong += out[i] != 100 + 496 + (i % 96 & ~31u) * 32;
  check(!wrong, "barriers from 100 calls deep keep every frame: %u wrong", wrong);
}

/* ---- dynamic shared memory ---- */
static const char shared_text[] = PRELUDE KERNEL(
    shared) "unsigned char *memory = static_cast<unsigned char *>(quern_group->shared()); qn_u32 wrong = 0;\n"
            "if (reinterpret_cast<decltype(sizeof 0)>(memory) % 128) wrong += 1000;\n"
            "for (qn_u32 k = thread; k < a.n; k += threads) { wrong += memory[k] != 0; memory[k] = 1 + thread % 251; "
            "}\n"
            "quern_group->barrier(0, 4);\n"
            "for (qn_u32 k = thread; k < a.n; k++) wrong += memory[k] != 1 + k % threads % 251;\n"
            "a.out[block * threads + thread] = wrong;\n}\n";

static void shared_memory(void)
{
  const qn_device_function *f = group_function(shared_text, "shared");
  unsigned wrong = 0;
  for (uint32_t bytes = 1; bytes < 100000; bytes = bytes * 7 + 1) {
    args a = {out, more, bytes, 0};
    memset(out, 0xee, sizeof out);
    wrong += group_launch(f, 3, 96, bytes, NULL, &a, sizeof a) != QN_OK;
    for (int i = 0; i < 3 * 96; i++) wrong += out[i] != 0;
  }
  check(!wrong, "dynamic shared memory is aligned, zero at a block's beginning, and the group's: %u wrong", wrong);
  refuses(group_launch(f, 1, 32, QN_HOST_SHARED_BYTES + 1, NULL, &(args){0}, sizeof(args)), QN_BAD_ARGUMENT,
          "232449 bytes of shared memory");
}

/* ---- the control word: IEEE in every block, whatever the caller has and a block does; the caller's is put back ----
 */
#if defined(__x86_64__)
static const char control_text[] = PRELUDE KERNEL(
    control) "qn_u32 took; volatile float small = 0x1p-140f;\n"
             "a.out[block * threads + thread] = qn_float_bits(small * 0.5f) != qn_float_bits(0x1p-141f);\n"
             "together(1, 0, 3, &took);\n"
             "a.more[block * threads + thread] = qn_float_bits(small * 0.5f) != qn_float_bits(0x1p-141f);\n"
             "together(1, 0, 5, &took);\n"
             "if (block == a.n && thread == 7) __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u);\n}\n";

static void control_words(void)
{
  const unsigned was = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(was | 0x8040u);
  qn_status status = run(control_text, "control", 4, 64, NULL, 1, 0);
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(was);
  unsigned wrong = status != QN_OK;
  for (int i = 0; i < 4 * 64; i++)
    if (i / 64 != 1) wrong += out[i] || more[i]; /* block 1 has what its thread 7 did */
  check(!wrong && (after & 0x8040u) == 0x8040u,
        "denormals are kept in every block, and the caller's word is put back: %u", wrong);
}
#else
static void control_words(void) { skip("the kernel that changes its control word is written for x86-64"); }
#endif

/* ---- memory that runs out: each allocation in turn; first of all tests, since arenas are kept ---- */
static struct {
  int left, taken;
} hooks;

static void *counted(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  hooks.taken++;
  return hooks.left-- > 0 ? aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1)) : NULL;
}
static void released(void *user, void *memory, size_t bytes) { (void)user, (void)bytes, free(memory); }

static void memory_runs_out(void)
{
  const qn_device_function *f = group_function(shared_text, "shared");
  unsigned failed = 0, wrong = 0;
  qn_status status = QN_NO_MEMORY;
  for (int k = 0; k < 100 && status != QN_OK; k++) {
    args a = {out, more, 100, 0};
    memset(out, 0xee, sizeof out);
    hooks.left = k % 3; /* earlier allocations are kept after a failure, and the next try goes on from there */
    hooks.taken = 0;
    qn_allocator_set(&(qn_allocator){counted, released, NULL});
    status = group_launch(f, 1, 256, 100, NULL, &a, sizeof a);
    qn_allocator_set(NULL);
    if (status != QN_OK) failed++, wrong += status != QN_NO_MEMORY || out[0] != 0xeeeeeeeeu || hooks.left >= 0;
  }
  check(status == QN_OK && !wrong && failed >= 9, "%u launches lacked memory and said so, then one did not: %u wrong",
        failed, wrong);
  hooks.taken = 0;
  qn_allocator_set(&(qn_allocator){counted, released, NULL});
  status = group_launch(f, 5, 256, 100, NULL, &(args){out, more, 100, 0}, sizeof(args));
  qn_allocator_set(NULL);
  check(status == QN_OK && hooks.taken == 0, "the next launch takes no memory: %d allocations", hooks.taken);
}

/* ---- a stack that overflows: the kernel looks for the mark below it and writes over that ---- */
static const char overflow_text[] = PRELUDE KERNEL(overflow) "if (thread != a.n) return;\n"
                                                             "volatile qn_u64 here = 0, *at = &here;\n"
                                                             "while (*at != 0x71756572732d6c6fu) at--;\n"
                                                             "*at = 0;\n}\n";

static void stacks_overflow(void)
{
  refuses(run(overflow_text, "overflow", 1, 64, NULL, 40, 0), QN_KERNEL_ERROR,
          "kernel overflow: thread 40 of a group has used more than the 64 KiB");
  unsigned wrong = run(early_text, "early", BLOCKS, 64, NULL, 1, 0) != QN_OK || wrong_early(64, 1);
  check(!wrong, "the next launch has whole stacks again: %u wrong", wrong);
}

/* ---- many callers at once ---- */
static void *call_often(void *user)
{
  uint32_t mine[96], *wrong = user;
  const qn_device_function *f = group_function(nested_text, "nested");
  for (int times = 0; times < 50; times++) {
    *wrong += group_launch(f, 1, 96, 0, NULL, &(args){mine, NULL, 5, 0}, sizeof(args)) != QN_OK;
    for (uint32_t i = 0; i < 96; i++) *wrong += mine[i] != 5 + 496 + (i & ~31u) * 32;
  }
  return NULL;
}

static void many_callers(void)
{
  enum { CALLERS = 6 };
  pthread_t threads[CALLERS];
  uint32_t wrong[CALLERS] = {0}, sum = 0;
  for (int k = 0; k < CALLERS; k++) pthread_create(&threads[k], NULL, call_often, &wrong[k]);
  for (int k = 0; k < CALLERS; k++) {
    pthread_join(threads[k], NULL);
    sum += wrong[k];
  }
  check(!sum, "%d threads launch at once: %u wrong", CALLERS, sum);
}

/* ---- cost: printed, held to nothing ---- */
static const char cost_text[] = PRELUDE KERNEL(cost) "qn_u32 took, sum = thread;\n"
                                                     "for (qn_u32 k = 0; k < a.n; k++) if (a.kind) sum += "
                                                     "together(sum, 0, 3, &took); else quern_group->barrier(0, 2);\n"
                                                     "a.out[thread] = sum;\n}\n";

static double thread_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void cost(void)
{
  enum { TIMES = 200, REPEATS = 10 };
  for (uint32_t kind = 0; kind < 2; kind++)
    for (uint32_t threads = 32; threads <= 1024; threads *= 32) {
      double best = 1e30;
      for (int k = 0; k < REPEATS; k++) {
        const double from = thread_ns();
        run(cost_text, "cost", 1, threads, NULL, TIMES, kind);
        const double took = thread_ns() - from;
        if (took < best) best = took;
      }
      printf("# %s of %u threads: %.1f ns a thread\n", kind ? "an exchange and a sum" : "a barrier", threads,
             best / TIMES / threads);
    }
}

int main(void)
{
  memory_runs_out();
  early_returns();
  different_branches();
  results_are_kept();
  masks();
  nobody_can_go_on();
  the_lowest_block_speaks();
  nested_calls();
  shared_memory();
  control_words();
  stacks_overflow();
  many_callers();
  cost();
  return test_end();
}
