/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h - a program in isolation: namespaces of its own (users, mounts, processes, IPC, network) where the kernel
 * grants them, write access to one folder alone (Landlock), limits of memory, file size and processes, an environment
 * that the caller gives. When it ends, or this process does, or it is stopped, nothing of it keeps running.
 * Sources: namespaces(7), landlock(7), seccomp(2), prctl(2), proc(5) and the kernel's sched-stats.rst. */
#ifndef QN_WORKBENCH_SANDBOX_H
#define QN_WORKBENCH_SANDBOX_H
#include "quern/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { QN_SANDBOX_FILE = 3, QN_SANDBOX_MOST_FILES = 4 };

typedef struct qn_sandbox_order {
  char *const *argv, *const *environment; /* the program is this command itself */
  const char *folder;                     /* its working directory, and the one place where it may write */
  int files[QN_SANDBOX_MOST_FILES];       /* its descriptors from QN_SANDBOX_FILE on; it has no others */
  size_t n_files;
  int64_t memory_bytes; /* of addresses; 0: no limit, as a GPU's driver needs */
  int64_t file_bytes;
  int processes;
} qn_sandbox_order;

/* Parts of the isolation that the kernel granted. */
enum { QN_SANDBOX_NAMESPACES = 1, QN_SANDBOX_NETWORK = 2, QN_SANDBOX_FILES = 4, QN_SANDBOX_CALLS = 8 };

typedef struct qn_sandboxed {
  pid_t pid, program; /* program: the process below the first ones */
  int report;
  unsigned granted;
  bool ended;
  int code, signal; /* once ended: the exit status, or the signal */
} qn_sandboxed;

qn_status qn_sandbox_start(const qn_sandbox_order *order, qn_sandboxed *process);
/* Waits at most limit_ms for its end, stops what then still runs, and collects it. False: it had to be stopped. */
bool qn_sandbox_end(qn_sandboxed *process, int limit_ms);

/* How long the program's first thread and the caller's could have run and no processor was free, in ns: on a busy
 * machine it explains the time between them. 0 where the kernel does not count it. */
int64_t qn_sandbox_waited_ns(const qn_sandboxed *process);

/* In the program itself, for all of its threads: from now on a system call that computing does not need (files,
 * processes, threads, network ...) ends it by SIGSYS. False: this kernel has no such filter. */
bool qn_sandbox_lock(void);
#endif
