/* SPDX-License-Identifier: Apache-2.0 */
/* fiber.h - threads of execution that share one OS thread and switch by hand, and the stacks that they run on. A switch
 * keeps what a called function must keep (System V's and AArch64's rules) and nothing else: no signal mask, and not the
 * floating-point control word, which belongs to the OS thread (cpu/tier.h). Who runs when is group.c's business. */
#ifndef QN_DEVICE_EMULATOR_FIBER_H
#define QN_DEVICE_EMULATOR_FIBER_H
#include "core/core.h"

/* QN_FIBER_UCONTEXT: by the C library's swapcontext, which is a system call a switch; for other processors, and for
 * tests. */
#if !defined(QN_FIBER_UCONTEXT) && !(defined(__x86_64__) && defined(__LP64__)) && !defined(__aarch64__)
#define QN_FIBER_UCONTEXT 1
#endif
#ifdef QN_FIBER_UCONTEXT
#include <ucontext.h>
#endif
#if defined(__has_feature)
#define QN_FIBER_HAS(feature) __has_feature(feature)
#else
#define QN_FIBER_HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || QN_FIBER_HAS(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define QN_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) || QN_FIBER_HAS(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define QN_FIBER_TSAN 1
#endif

typedef struct qn_fiber {
  void *sp; /* while it does not run: its registers lie there */
  char *stack;
  size_t stack_bytes;
  void (*run)(void *user); /* does not return */
  void *user;
#ifdef QN_FIBER_UCONTEXT
  ucontext_t context;
#endif
#ifdef QN_FIBER_ASAN
  void *fake_stack;
  struct qn_fiber *from; /* who switched here last */
#endif
#ifdef QN_FIBER_TSAN
  void *tsan;
#endif
} qn_fiber;

/* Ready to begin run(user) on this stack at the first switch to it. One that was made before, and left in the middle or
 * not, may be made again. All of *fiber is zero before the first time. */
void qn_fiber_make(qn_fiber *fiber, void *stack, size_t stack_bytes, void (*run)(void *user), void *user);
/* The caller's own thread, to be switched back to. */
void qn_fiber_adopt(qn_fiber *fiber);
void qn_fiber_free(qn_fiber *fiber); /* frees the sanitizers' record of it; the stack is the caller's */

#ifdef QN_FIBER_UCONTEXT
static inline void qn_fiber_jump(qn_fiber *from, qn_fiber *to) { swapcontext(&from->context, &to->context); }
#else
void qn_stack_switch(void **from, void *to); /* fiber_switch.S */
static inline void qn_fiber_jump(qn_fiber *from, qn_fiber *to) { qn_stack_switch(&from->sp, to->sp); }
#endif

#ifdef QN_FIBER_ASAN
/* Who came from the caller's own thread is told its bounds here; nobody else knows them. */
static inline void qn_fiber_arrived(qn_fiber *fiber, void *fake_stack)
{
  const void *stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(fake_stack, &stack, &bytes);
  fiber->from->stack = (char *)(uintptr_t)stack;
  fiber->from->stack_bytes = bytes;
}
#endif

/* `from`, which runs, waits until somebody switches to it; `ends`: nobody will, until it is made again. */
static inline void qn_fiber_switch(qn_fiber *from, qn_fiber *to, bool ends)
{
#ifdef QN_FIBER_ASAN
  to->from = from;
  __sanitizer_start_switch_fiber(ends ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
#endif
#ifdef QN_FIBER_TSAN
  __tsan_switch_to_fiber(to->tsan, 0);
#endif
  (void)ends;
  qn_fiber_jump(from, to);
#ifdef QN_FIBER_ASAN
  qn_fiber_arrived(from, from->fake_stack);
#endif
}

/* ---- stacks: n of them in one piece from the allocation hooks, so that tests can fail it and users see it. Below each
 * lies a page that may not be touched, where that can be had: it cannot where so many stacks exist that the system's
 * count of mappings would run out, and where a leak checker reads all of the heap. A mark at the low end tells, later,
 * of an overflow that met no such page. ---- */
enum { QN_STACK_BYTES = 64 * 1024 };
typedef struct qn_stacks {
  char *memory;
  size_t n, stride;
  bool guarded;
} qn_stacks;
qn_status qn_stacks_make(qn_stacks *stacks, size_t n);
void qn_stacks_free(qn_stacks *stacks);
void qn_stacks_mark(const qn_stacks *stacks);            /* again */
void *qn_stacks_at(const qn_stacks *stacks, size_t k);   /* QN_STACK_BYTES of it */
bool qn_stacks_whole(const qn_stacks *stacks, size_t k); /* its mark is there */
#endif
