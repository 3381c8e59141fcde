/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_lock.c - the filter of system calls of sandbox.h: what stays open is what memory, locks, clocks, signals and
 * pipes that are open already need. */
#include "workbench/sandbox.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef THIS_ARCH
static const int allowed[] = {
    SYS_read,         SYS_write,           SYS_writev,
    SYS_close,        SYS_fstat,           SYS_lseek,
    SYS_mmap,         SYS_munmap,          SYS_mremap,
    SYS_mprotect,     SYS_madvise,         SYS_brk,
    SYS_futex,        SYS_sched_yield,     SYS_sched_getaffinity,
    SYS_nanosleep,    SYS_clock_nanosleep, SYS_clock_gettime,
    SYS_clock_getres, SYS_gettimeofday,    SYS_ppoll,
    SYS_rt_sigreturn, SYS_rt_sigprocmask,  SYS_rt_sigaction,
    SYS_sigaltstack,  SYS_restart_syscall, SYS_getpid,
    SYS_gettid,       SYS_getrandom,       SYS_exit,
    SYS_exit_group,   SYS_set_robust_list, /* and rseq: of a thread that was started and has not run yet */
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_rseq
    SYS_rseq,
#endif
};
enum { N_ALLOWED = sizeof allowed / sizeof *allowed };

bool qn_sandbox_lock(void)
{
  struct sock_filter code[N_ALLOWED + 8];
  unsigned n = 0;
  code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (unsigned k = 0; k < N_ALLOWED; k++)
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[k],
                                             (unsigned char)(N_ALLOWED - k), 0);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {(unsigned short)n, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
  return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}
#else
bool qn_sandbox_lock(void) { return false; }
#endif
