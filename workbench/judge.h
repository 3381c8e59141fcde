/* SPDX-License-Identifier: Apache-2.0 */
/* judge.h - is a candidate for a kernel's folder correct, how fast is it beside the folder's own body, how close to the
 * machine's limit, how exact; or refused, and why. The candidate runs in processes of its own (judge_process.h). This
 * process makes the inputs, computes the reference, compares, and computes every figure. docs/judging.md. */
#ifndef QN_WORKBENCH_JUDGE_H
#define QN_WORKBENCH_JUDGE_H
#include "workbench/judge_process.h"
#include "workbench/progress.h"
#include "workbench/stats.h"
#include <stdio.h>

typedef enum qn_judge_level { QN_JUDGE_QUICK, QN_JUDGE_FULL, QN_JUDGE_DEEP } qn_judge_level;
extern const char *const qn_judge_levels[]; /* their names, then NULL */

typedef struct qn_judge_request {
  const char *problem; /* the folder */
  qn_device device;
  int threads;
  qn_judge_level level;
  uint64_t seed;        /* of inputs and hidden sizes; 0: nobody knows it before */
  const char *workload; /* timed; NULL: the first that is not too large, else the largest size */
  double seconds;       /* of the timed calls; 0: by level */
  qn_judge_limits limits;
  bool untuned;
  qn_progress *progress; /* NULL */
} qn_judge_request;

typedef enum qn_judge_word {
  QN_JUDGED_FASTER,
  QN_JUDGED_SAME,
  QN_JUDGED_SLOWER,
  QN_JUDGED_UNCLEAR,
  QN_JUDGED_COMPILE_ERROR,
  QN_JUDGED_LAUNCH,
  QN_JUDGED_SHAPE,
  QN_JUDGED_WRONG,
  QN_JUDGED_REFUSED,
  QN_JUDGED_BROKEN,
  QN_JUDGED_NOT
} qn_judge_word;
const char *qn_judge_word_text(qn_judge_word word); /* "faster" ... "wrong values" ... "cannot be judged" */

enum { QN_JUDGE_MODELS = 2, QN_JUDGE_NOTES = 8 };

typedef struct qn_judge_times {
  double *ns[QN_JUDGE_MODELS]; /* of the baseline and of the candidate, taken side by side */
  size_t n;
  qn_summary summary[QN_JUDGE_MODELS];
} qn_judge_times;

typedef enum qn_bound { QN_BOUND_MEMORY, QN_BOUND_COMPUTE, QN_BOUND_LAUNCH } qn_bound;
const char *qn_bound_name(qn_bound bound);

/* The machine's limit for the timed launch, measured in the same rounds. */
typedef struct qn_judge_limit {
  double bytes, operations, gbps, rate; /* rate: operations a second, 0: not measured; operations 0: not said */
  double floor_ns, launch_ns;           /* what the machine needs at the least; a launch alone */
  qn_bound bound;
} qn_judge_limit;

typedef struct qn_judge_verdict {
  qn_judge_word word;
  char reason[1200];
  size_t n_notes;
  char note[QN_JUDGE_NOTES][320];
  char workload[160];
  bool timed;
  qn_judge_times times[QN_TIMER_COUNT];
  qn_timer headline;
  qn_ratio speedup;
  qn_judge_limit limit;
  double max_abs, mean_abs;     /* of the timed launches' outputs */
  double error, baseline_error; /* root mean square, over that of the reference */
  const char *precision;        /* "baseline's", "tf32" ...; NULL: not known */
  bool in_doubt;                /* a check could not finish, or the clocks disagree: no word about the speed */
  size_t launches;              /* verified */
  bool deterministic;
  unsigned granted; /* bits of sandbox.h */
} qn_judge_verdict;

typedef struct qn_judge qn_judge;
/* Opens the problem, proves its baseline, and finds out whether it can judge anybody. QN_OK and *why not empty: it
 * cannot be judged. */
qn_status qn_judge_open(qn_judge **judge, const qn_judge_request *request, char *why, size_t bytes);
void qn_judge_close(qn_judge **judge);
/* `candidate`: a body's file or a kernel's folder. A status tells of what kept the judge from judging. */
qn_status qn_judge_candidate(qn_judge *judge, const char *candidate, qn_judge_verdict *verdict);
void qn_judge_verdict_clear(qn_judge_verdict *verdict);
uint64_t qn_judge_seed(const qn_judge *judge);

/* judge_say.c: a verdict for a reader; as a line of JSON (python/quern/kernelbench has the same members). */
void qn_judge_print(FILE *stream, const char *candidate, const qn_judge_verdict *verdict);
qn_status qn_judge_line(const qn_judge_request *request, uint64_t seed, const char *candidate,
                        const qn_judge_verdict *verdict, char **text);
#endif
