/* SPDX-License-Identifier: Apache-2.0 */
/* judge_process.h - the judge's end of a process that holds a kernel: started in isolation, asked with a limit of time,
 * ended. Whatever it does becomes a sentence. */
#ifndef QN_WORKBENCH_JUDGE_PROCESS_H
#define QN_WORKBENCH_JUDGE_PROCESS_H
#include "workbench/judge_talk.h"
#include "workbench/program.h"
#include "workbench/sandbox.h"

typedef struct qn_judge_limits {
  double seconds; /* of one answer */
  int64_t memory_bytes;
} qn_judge_limits;

typedef enum qn_talk_phase { QN_PHASE_BOTH, QN_PHASE_COMPILE, QN_PHASE_RUN } qn_talk_phase;

typedef struct qn_judge_process {
  qn_sandboxed box;
  qn_judge_limits limits;
  int talk, arena_file;
  unsigned char *arena;
  uint64_t arena_bytes, nonce;
  char folder[64];
  pid_t sweeper;    /* the process that removes the folder; 0 or less: none */
  int wake;         /* its pipe */
  char broken[256]; /* how it ended before its time; "" while it answers */
  bool forbidden;   /* by a system call that no kernel needs */
  double wall_ns;   /* of the last answer, by this process's clock */
  double waited_ns; /* in it, for a processor */
} qn_judge_process;

/* images: of judge_images.h; -1 for QN_PHASE_BOTH. QN_OK with `broken`: it ended at once. Another status: there is no
 * such process here. What the job itself is wrong about is the status of its own answer. */
qn_status qn_judge_process_start(qn_judge_process *p, const qn_talk_job *job, qn_talk_phase phase, int images,
                                 const qn_judge_limits *limits, qn_talk_answer *opened);
/* False: it is broken. */
bool qn_judge_ask(qn_judge_process *p, qn_talk_ask *ask, qn_talk_answer *answer);
void qn_judge_process_end(qn_judge_process *p);
int qn_memory_file_make(const char *name); /* -1: none */
#endif
