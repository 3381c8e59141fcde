/* SPDX-License-Identifier: Apache-2.0 */
/* judge_inner.h - what the files of the judge share that go through the course of a judgement: judge.c, judge_plan.c,
 * judge_model.c, judge_verify.c, judge_time.c. For these alone. */
#ifndef QN_WORKBENCH_JUDGE_INNER_H
#define QN_WORKBENCH_JUDGE_INNER_H
#include "workbench/judge_data.h"
#include <limits.h>
#include <stdlib.h>

enum { QN_TIMED_SLOTS = 3, QN_VERIFY_SLOT = QN_TIMED_SLOTS };

typedef struct qn_planned {
  qn_talk_spec spec;
  bool dropped;   /* a hidden size that the baseline does not take */
  unsigned bears; /* bit d: the baseline is right on distribution d */
} qn_planned;

struct qn_judge {
  qn_judge_request ask;
  char path[PATH_MAX];
  uint64_t seed, random;
  qn_folder *folder;
  qn_pool *pool;
  qn_planned planned[QN_TALK_SPECS];
  size_t n_planned, proved, inspected; /* numbers of plans: what mutants are planted in, what checking mode runs */
  bool no_inspection;                  /* checking mode does not take this kernel */
  qn_talk_spec timed;                  /* number n_planned in the processes; n_planned + 1 is for checking mode */
  uint64_t verify_bytes, timed_bytes, timed_room, verify_offset, arena_bytes;
  qn_judge_process baseline, control; /* control: the baseline once more, of the timed launch alone */
};

bool qn_judged(qn_judge_verdict *v, qn_judge_word word, const char *format, ...) __attribute__((format(printf, 3, 4)));
void qn_judge_note(qn_judge_verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Where a process's memory lies and when it runs may make it a little faster or slower than another of the same kernel:
 * a word with little between it and the baseline is said by two processes, or not at all. */
bool qn_judge_needs_second(const qn_judge_verdict *v);
void qn_judge_agree(qn_judge_verdict *v, const qn_judge_verdict *second); /* unclear, with a note, where they differ */
/* judge_plan.c */
qn_status qn_judge_plan(qn_judge *j);
/* judge_model.c. False: it is broken, or its verdict is said. */
bool qn_model_open(qn_judge *j, const char *candidate, qn_talk_phase phase, int images, bool inspects,
                   qn_judge_process *p, qn_judge_verdict *v, qn_status *status);
/* Into the user's cache, where the baseline and the control find it, and the next judgement. What fails fails there. */
void qn_model_compile_own(qn_judge *j);
bool qn_model_lock(qn_judge_process *p, qn_judge_verdict *v);
bool qn_model_broken(const qn_judge_process *p, qn_judge_verdict *v); /* false */
bool qn_model_run(qn_judge_process *p, int slot, qn_timer timer, double *ns, qn_judge_verdict *v);
bool qn_ask_slot(qn_judge_process *p, int slot, size_t spec, uint64_t offset, qn_talk_answer *answer);
/* judge_verify.c */
/* Of a launch of the plan, with a new seed. */
qn_data_order qn_judge_data(qn_judge *j, size_t number, qn_distribution d);
bool qn_judge_prove(qn_judge *j, qn_judge_verdict *v, qn_status *status);
bool qn_judge_verify(qn_judge *j, qn_judge_process *p, qn_judge_verdict *v, qn_status *status);
bool qn_judge_repeat(qn_judge *j, qn_judge_process *p, qn_judge_verdict *v, qn_status *status);
/* judge_time.c: times, the word, the limit, the precision. */
bool qn_judge_time(qn_judge *j, qn_judge_process *candidate, qn_judge_verdict *v, qn_status *status);
#endif
