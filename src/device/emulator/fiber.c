/* SPDX-License-Identifier: Apache-2.0 */
/* fiber.c - the beginning of a fiber, and stacks. The switch itself is in fiber.h and fiber_switch.S. */
#include "device/emulator/fiber.h"
#include "valgrind_here.h"
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef QN_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#endif
#ifdef QN_HAVE_VALGRIND
#include <valgrind/valgrind.h>
#define QN_STACK_KNOWN(low, high) ((void)VALGRIND_STACK_REGISTER(low, high))
#else
#define QN_STACK_KNOWN(low, high) ((void)(low), (void)(high))
#endif

/* Stacks of one size lie at one distance, and what runs at once would meet in the same few sets of the cache: the tops
 * are moved apart. */
enum { STEP_BYTES = 128, STEPS = 32 };

static char *top_of(const qn_fiber *fiber)
{
  uintptr_t top = (uintptr_t)fiber->stack + fiber->stack_bytes;
  size_t step = (uintptr_t)fiber->stack / fiber->stack_bytes % STEPS;
  return (char *)(top & ~(uintptr_t)15) - step * STEP_BYTES;
}

static void begin(void *argument)
{
  qn_fiber *fiber = argument;
#ifdef QN_FIBER_ASAN
  qn_fiber_arrived(fiber, NULL);
#endif
  fiber->run(fiber->user);
}

#ifdef QN_FIBER_UCONTEXT
/* makecontext passes numbers of type int. */
static void begin_context(unsigned high, unsigned low) { begin((void *)(uintptr_t)((uint64_t)high << 32 | low)); }

static void set_up(qn_fiber *fiber)
{
  const uint64_t address = (uintptr_t)fiber;
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = (size_t)(top_of(fiber) - fiber->stack);
  fiber->context.uc_link = NULL;
  makecontext(&fiber->context, (void (*)(void))begin_context, 2, (unsigned)(address >> 32), (unsigned)address);
}
#else
void qn_stack_begin(void); /* fiber_switch.S; not called: returned to */

/* The frame that qn_stack_switch takes off the stack. */
static void set_up(qn_fiber *fiber)
{
#if defined(__x86_64__)
  enum { R12 = 3, R13 = 2, RETURN = 6, WORDS = 8 };
#else
  enum { R12 = 0, R13 = 1, RETURN = 11, WORDS = 20 };
#endif
  uintptr_t *registers = (uintptr_t *)(void *)top_of(fiber) - WORDS;
#if defined(__x86_64__)
  registers--; /* the return takes one word, and then the stack is aligned */
#endif
  memset(registers, 0, WORDS * sizeof *registers);
  registers[R12] = (uintptr_t)begin;
  registers[R13] = (uintptr_t)fiber;
  registers[RETURN] = (uintptr_t)qn_stack_begin;
  fiber->sp = registers;
}
#endif

void qn_fiber_make(qn_fiber *fiber, void *stack, size_t stack_bytes, void (*run)(void *user), void *user)
{
  qn_fiber_free(fiber);
  fiber->stack = stack;
  fiber->stack_bytes = stack_bytes;
  fiber->run = run;
  fiber->user = user;
#ifdef QN_FIBER_ASAN
  __asan_unpoison_memory_region(stack, stack_bytes); /* frames that were left */
#endif
#ifdef QN_FIBER_TSAN
  fiber->tsan = __tsan_create_fiber(0);
#endif
  set_up(fiber);
}

void qn_fiber_adopt(qn_fiber *fiber)
{
  (void)fiber;
#ifdef QN_FIBER_TSAN
  fiber->tsan = __tsan_get_current_fiber();
#endif
}

void qn_fiber_free(qn_fiber *fiber)
{
  (void)fiber;
#ifdef QN_FIBER_TSAN
  if (fiber->tsan) __tsan_destroy_fiber(fiber->tsan);
  fiber->tsan = NULL;
#endif
}

/* ---- stacks ---- */
/* A process may have 65,530 mappings (vm.max_map_count); a page with rights of its own makes two more. */
enum { MOST_GUARDS = 8192 };
static atomic_size_t guards;
static const uint64_t mark[2] = {0x71756572732d6c6fu, 0x772d656e642d6d6bu};

/* It reads whole blocks of the heap at exit, and would fall over a page without rights. */
extern void __lsan_do_leak_check(void) __attribute__((weak));

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static bool protect(const qn_stacks *stacks, size_t n, int rights)
{
  for (size_t k = 0; k < n; k++)
    if (mprotect(stacks->memory + k * stacks->stride, page_bytes(), rights)) return false;
  return true;
}

/* All of them or none. */
static bool guard(const qn_stacks *stacks)
{
  if (__lsan_do_leak_check || atomic_fetch_add(&guards, stacks->n) + stacks->n > MOST_GUARDS) {
    if (!__lsan_do_leak_check) atomic_fetch_sub(&guards, stacks->n);
    return false;
  }
  if (protect(stacks, stacks->n, PROT_NONE)) return true;
  protect(stacks, stacks->n, PROT_READ | PROT_WRITE); /* memory of hooks need not be the system's ordinary pages */
  atomic_fetch_sub(&guards, stacks->n);
  return false;
}

qn_status qn_stacks_make(qn_stacks *stacks, size_t n)
{
  const size_t stride = QN_STACK_BYTES + page_bytes(), bytes = n * stride;
  *stacks = (qn_stacks){.n = n, .stride = stride};
  stacks->memory = qn_allocate_aligned(bytes, page_bytes());
  if (!stacks->memory)
    return qn_fail(QN_NO_MEMORY, "%zu stacks for a group's threads: %zu bytes could not be allocated", n, bytes);
  stacks->guarded = guard(stacks);
  qn_stacks_mark(stacks);
  for (size_t k = 0; k < n; k++) {
    char *stack = qn_stacks_at(stacks, k);
    QN_STACK_KNOWN(stack, stack + QN_STACK_BYTES - 1);
  }
  return QN_OK;
}

void qn_stacks_mark(const qn_stacks *stacks)
{
  for (size_t k = 0; k < stacks->n; k++) memcpy(qn_stacks_at(stacks, k), mark, sizeof mark);
}

void qn_stacks_free(qn_stacks *stacks)
{
  if (stacks->memory && stacks->guarded) {
    protect(stacks, stacks->n, PROT_READ | PROT_WRITE);
    atomic_fetch_sub(&guards, stacks->n);
  }
  qn_release(stacks->memory);
  *stacks = (qn_stacks){0};
}

void *qn_stacks_at(const qn_stacks *stacks, size_t k)
{
  return stacks->memory + k * stacks->stride + (stacks->stride - QN_STACK_BYTES);
}

bool qn_stacks_whole(const qn_stacks *stacks, size_t k) { return !memcmp(qn_stacks_at(stacks, k), mark, sizeof mark); }
