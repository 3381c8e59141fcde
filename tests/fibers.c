/* SPDX-License-Identifier: Apache-2.0 */
/* fibers.c - fibers and their stacks (device/emulator/fiber.h): what a switch keeps and what it leaves alone, fibers
 * that are made again, stacks that overflow. Built twice: with the switch of this processor, and with ucontext. It
 * prints what a switch costs, and holds it to nothing. */
#include "device/emulator/fiber.h"
#include "cpu/tier.h"
#include "test.h"
#include <fenv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 64 };

static qn_fiber home, fibers[N];
static qn_stacks stacks;

/* ---- a ring: each fiber keeps what it has in registers and on its stack, whole numbers and floats ---- */
typedef struct turn {
  unsigned k, rounds;
  double sum;
  bool aligned;
} turn;
static turn turns[N];

static __attribute__((noinline)) double mix(double a, double b) { return a * 1.0000001 + b; }

static void go_round(void *user)
{
  turn *t = user;
  qn_fiber *self = &fibers[t->k], *next = t->k + 1 < N ? &fibers[t->k + 1] : &home;
  uint64_t a = t->k, b = 3 * a + 1, c = 5 * a + 2, d = 7 * a + 3, e = 11 * a + 4, f = 13 * a + 5;
  double x = (double)t->k, y = x + 0.5;
  _Alignas(16) char block[16];
  t->aligned = ((uintptr_t)block & 15) == 0 && ((uintptr_t)__builtin_frame_address(0) & 15) == 0;
  for (;;) {
    qn_fiber_switch(self, next, false);
    a += b, b += c, c += d, d += e, e += f, f += 1;
    x = mix(x, y), y = mix(y, 1);
    t->rounds++;
    t->sum = (double)(a ^ b ^ c ^ d ^ e ^ f) + x;
  }
}

static double expected(unsigned k, unsigned rounds)
{
  uint64_t a = k, b = 3 * a + 1, c = 5 * a + 2, d = 7 * a + 3, e = 11 * a + 4, f = 13 * a + 5;
  double x = (double)k, y = x + 0.5;
  for (; rounds; rounds--) {
    a += b, b += c, c += d, d += e, e += f, f += 1;
    x = mix(x, y), y = mix(y, 1);
  }
  return (double)(a ^ b ^ c ^ d ^ e ^ f) + x;
}

static void a_ring(void)
{
  unsigned wrong = 0, aligned = 0;
  for (unsigned k = 0; k < N; k++) {
    turns[k] = (turn){.k = k};
    qn_fiber_make(&fibers[k], qn_stacks_at(&stacks, k), QN_STACK_BYTES, go_round, &turns[k]);
  }
  for (int round = 0; round < 101; round++) qn_fiber_switch(&home, &fibers[0], false);
  for (unsigned k = 0; k < N; k++) {
    wrong += turns[k].rounds != 100 || turns[k].sum != expected(k, 100);
    aligned += turns[k].aligned;
  }
  check(!wrong, "%d fibers switch round 100 times and keep whole numbers and floats: %u wrong", N, wrong);
  check(aligned == N, "%u of %d stacks are aligned to 16 bytes", aligned, N);
}

/* ---- left in the middle and made again ---- */
static int begun;

static void leave_at_once(void *user)
{
  volatile char deep[4096];
  memset((void *)(uintptr_t)deep, ++begun, sizeof deep);
  qn_fiber_switch(user, &home, true);
  begun = -1000; /* nobody comes back here */
}

static void made_again(void)
{
  for (int k = 0; k < 100; k++) {
    qn_fiber_make(&fibers[0], qn_stacks_at(&stacks, 0), QN_STACK_BYTES, leave_at_once, &fibers[0]);
    qn_fiber_switch(&home, &fibers[0], false);
  }
  check(begun == 100, "a fiber that is left and made again begins anew: %d times of 100", begun);
}

/* ---- the control word is the thread's: a switch neither brings one nor takes it away ---- */
#ifndef QN_FIBER_UCONTEXT
static int rounding_seen[2];

static void round_up(void *user)
{
  rounding_seen[0] = fegetround();
  fesetround(FE_UPWARD);
  qn_fiber_switch(user, &home, false);
  rounding_seen[1] = fegetround();
  qn_fiber_switch(user, &home, true);
}

static void the_control_word_stays(void)
{
  qn_fiber_make(&fibers[1], qn_stacks_at(&stacks, 1), QN_STACK_BYTES, round_up, &fibers[1]);
  fesetround(FE_DOWNWARD);
  qn_fiber_switch(&home, &fibers[1], false);
  const int after = fegetround();
  fesetround(FE_TOWARDZERO);
  qn_fiber_switch(&home, &fibers[1], false);
  fesetround(FE_TONEAREST);
  check(rounding_seen[0] == FE_DOWNWARD && after == FE_UPWARD && rounding_seen[1] == FE_TOWARDZERO,
        "a switch leaves the rounding mode alone");
}
#else
static void the_control_word_stays(void) { skip("swapcontext keeps a control word for each context"); }
#endif

/* ---- overflow ---- */
static void write_below(void *user)
{
  char *stack = qn_stacks_at(&stacks, 2);
  memset(stack, 0, 64);
  qn_fiber_switch(user, &home, true);
}

static void an_overflow_is_seen(void)
{
  check(qn_stacks_whole(&stacks, 2), "an unused stack is whole");
  qn_fiber_make(&fibers[2], qn_stacks_at(&stacks, 2), QN_STACK_BYTES, write_below, &fibers[2]);
  qn_fiber_switch(&home, &fibers[2], false);
  check(!qn_stacks_whole(&stacks, 2), "a stack used to its end has lost its mark");
  check(qn_stacks_whole(&stacks, 1) && qn_stacks_whole(&stacks, 3), "and the ones beside it have not");
  qn_stacks_mark(&stacks);
  check(qn_stacks_whole(&stacks, 2), "marked again it is whole");
}

static void the_guard_holds(void)
{
  if (!stacks.guarded) {
    skip("a leak checker runs in this process: no page is taken out of the heap");
    return;
  }
  int status = 0;
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    volatile char *below = (char *)qn_stacks_at(&stacks, 3) - 1;
    signal(SIGSEGV, SIG_DFL);
    *below = 1;
    _exit(0);
  }
  waitpid(pid, &status, 0);
  check(WIFSIGNALED(status) || WEXITSTATUS(status) != 0, "a write below a stack ends the process: status %d", status);
}

/* More than the process can guard: the rest have marks alone, and giving all back opens the account again. */
static void guards_are_counted(void)
{
  enum { LOTS = 10, EACH = 1024 };
  qn_stacks lots[LOTS];
  int guarded = 0, made = 0, again = 0;
  for (int k = 0; k < LOTS; k++) made += qn_stacks_make(&lots[k], EACH) == QN_OK;
  for (int k = 0; k < LOTS; k++) guarded += lots[k].guarded;
  for (int k = 0; k < LOTS; k++) qn_stacks_free(&lots[k]);
  for (int k = 0; k < 3; k++) {
    made += qn_stacks_make(&lots[0], EACH) == QN_OK;
    again += lots[0].guarded;
    memset(lots[0].memory + (lots[0].stride - QN_STACK_BYTES), 1, QN_STACK_BYTES);
    qn_stacks_free(&lots[0]);
  }
  check(made == LOTS + 3, "%d of %d times 1024 stacks could be had", made, LOTS + 3);
  if (stacks.guarded)
    check(guarded == 7 && again == 3, "of %d lots 7 are guarded (%d), and again after they are given back (%d)", LOTS,
          guarded, again);
  else
    check(guarded == 0 && again == 0, "none is guarded here");
}

static void *no_memory(void *user, size_t bytes, size_t alignment)
{
  (void)user, (void)bytes, (void)alignment;
  return NULL;
}
static void no_release(void *user, void *memory, size_t bytes) { (void)user, (void)memory, (void)bytes; }

static void no_memory_is_a_status(void)
{
  qn_stacks none;
  qn_allocator_set(&(qn_allocator){no_memory, no_release, NULL});
  refuses(qn_stacks_make(&none, 32), QN_NO_MEMORY, "32 stacks");
  qn_allocator_set(NULL);
}

/* ---- cost ---- */
static void back_and_forth(void *user)
{
  for (;;) qn_fiber_switch(user, &home, false);
}

static double now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others work on this machine too */
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void cost(void)
{
  enum { TIMES = 20000, REPEATS = 20 };
  double best = 1e30;
  qn_fiber_make(&fibers[4], qn_stacks_at(&stacks, 4), QN_STACK_BYTES, back_and_forth, &fibers[4]);
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    const double from = now_ns();
    for (int k = 0; k < TIMES; k++) qn_fiber_switch(&home, &fibers[4], false);
    const double took = now_ns() - from;
    if (took < best) best = took;
  }
  printf("# a switch takes %.1f ns between two fibers\n", best / (2.0 * TIMES));
}

int main(void)
{
  check(qn_stacks_make(&stacks, N) == QN_OK, "%d stacks", N);
  qn_fiber_adopt(&home);
  a_ring();
  made_again();
  the_control_word_stays();
  an_overflow_is_seen();
  the_guard_holds();
  guards_are_counted();
  no_memory_is_a_status();
  cost();
  for (int k = 0; k < N; k++) qn_fiber_free(&fibers[k]);
  qn_stacks_free(&stacks);
  return test_end();
}
