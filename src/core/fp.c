/* SPDX-License-Identifier: Apache-2.0 */
/* fp.c - the IEEE state of the floating-point unit. */
#include "core/core.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* x86: MXCSR with all exceptions masked, to nearest, no flush-to-zero, no denormals-are-zero. The word is put back
 * whole, so the caller's sticky exception flags are as they were. */
#if defined(__x86_64__)
enum { IEEE_MXCSR = 0x1F80 };

qn_fp_word qn_fp_enter(void)
{
  unsigned word = _mm_getcsr();
  if (word != IEEE_MXCSR) _mm_setcsr(IEEE_MXCSR);
  return word;
}

void qn_fp_leave(qn_fp_word word) { _mm_setcsr((unsigned)word); }
#elif defined(__aarch64__)
/* FPCR of 0 is IEEE: FZ, FZ16, FIZ and the rounding mode are all in it. */
qn_fp_word qn_fp_enter(void)
{
  qn_fp_word word;
  __asm__ volatile("mrs %0, fpcr" : "=r"(word));
  if (word) __asm__ volatile("msr fpcr, %0" ::"r"(UINT64_C(0)));
  return word;
}

void qn_fp_leave(qn_fp_word word) { __asm__ volatile("msr fpcr, %0" ::"r"(word)); }
#else
qn_fp_word qn_fp_enter(void) { return 0; }

void qn_fp_leave(qn_fp_word word) { (void)word; }
#endif
