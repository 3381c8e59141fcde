/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h - one measurement of one op: proved, then timed side by side with its unfused form and with the ceilings of
 * this machine, then judged. It measures and returns; printing and recording are done elsewhere. */
#ifndef QN_WORKBENCH_BENCH_H
#define QN_WORKBENCH_BENCH_H
#include "quern/kernel.h"
#include "workbench/first_use.h"
#include "workbench/ceiling.h"
#include "workbench/sampler.h"
#include "workbench/stage.h"
#include "workbench/stats.h"

typedef struct qn_bench_request {
  const qn_op *op;
  const void *params;
  size_t row; /* of the type table */
  const qn_workload *work;
  qn_device device;
  qn_pool *pool;
  qn_timer timer;
  bool hot;       /* device caches are left as they are */
  bool unfused;   /* compare with the unfused form, where it has this row */
  double seconds; /* for the rounds of each measurement; 0: a default by device */
  uint64_t seed;
  /* NULL, or: only the ceilings are timed, one round each time that this says yes. The samples of another program,
   * which asks for the rounds, then stand side by side with them (beside.h). Called with `bench` filled but for the
   * times. */
  bool (*next)(void *user);
  void *user;
  qn_trace *trace; /* NULL: none */
  qn_progress *progress;
} qn_bench_request;

/* Times of one thing, and what they come to. */
typedef struct qn_series {
  char name[48]; /* "fused", "unfused", "copy" */
  char way[32];  /* of a ceiling: "non-temporal stores"; "" */
  double *ns;
  size_t n;
  double bytes; /* a call moves */
  qn_summary time;
  double gbps; /* at the median */
} qn_series;

enum { QN_MOST_CEILINGS = 16 };

/* What was measured, as tables and records tell it: a step of an op, or a launch of a kernel from a body. */
typedef struct qn_bench_subject {
  char name[64], workload[128];
  char settings[1024];
  char amount[1024]; /* "148 tensors, 124,439,808 elements of 20 bytes" */
  char proof[96];    /* of a right check: "equal the reference bit for bit" */
  char against[64];  /* the counterpart; "" for a kernel that has none */
  int64_t tensors, elements;
  double bytes, besides; /* that a step moves; of these, what does not grow with the elements */
  double set_bytes, operations;
  bool is_kernel;
  qn_kernel_info info; /* of a kernel from a body */
} qn_bench_subject;

typedef struct qn_bench {
  qn_bench_request ask; /* of a kernel from a body: without op, params and work */
  qn_bench_subject of;
  qn_device_info device;
  char variant[64], types[96]; /* "avx512"; "f32 f32 f32" */
  const char *cache;           /* "cold", "hot", "mixed": what the samples found in it */
  qn_stage_check check, unfused_check;
  bool timed, has_unfused;
  qn_series fused, unfused, ceiling[QN_MOST_CEILINGS];
  size_t n_ceilings, best, copy; /* the best way of the row's own mix, and of plain copying */
  qn_mix mix;
  qn_ratio share, share_of_copy; /* of the ceiling's rate */
  qn_ratio speedup;              /* over the unfused form */
  qn_verdict verdict;
  double floor_ns;     /* no step can be faster */
  char suspicion[192]; /* why the time is not believed: "impossible: ..." or "suspicious: ..."; "" */
  bool impossible;
  int64_t launches;   /* of a step */
  uint64_t allocated; /* bytes on the host, by a step */
  uint64_t workspace; /* bytes that it is lent */
  bool has_host;      /* the step is asynchronous, so that its host time is a figure of its own */
  qn_summary host_same_ns, host_moved_ns;
  bool has_first_use;
  qn_first_use_times first_use; /* waits for the kernel in a new process */
  char clocks[96];              /* while it ran, where readable */
} qn_bench;

/* A wrong kernel is QN_OK with check.right false and nothing timed. Too little memory, a failing device: a status, and
 * nothing is left behind. Clear it in any case. */
qn_status qn_bench_run(const qn_bench_request *request, qn_bench *bench);
void qn_bench_clear(qn_bench *bench);

/* For an element, from the row of the type table: bytes that are moved, and bytes that there are. */
double qn_bench_bytes(const qn_op *op, size_t row, const void *params);
double qn_bench_set(const qn_op *op, size_t row);

/* "f32", or the dtypes of all roles that are given, in order: finds the row; no such row is refused, and the rows
 * listed. */
qn_status qn_bench_row(const qn_op *op, const char *types, size_t *row);
void qn_bench_types(const qn_op *op, size_t row, char *text, size_t bytes);

/* The judgement of a time: refused where no machine can do it, doubted where it is too good to be believed at once. */
void qn_bench_judge(double ns, double floor_ns, double baseline_ns, char *why, size_t bytes, bool *impossible);
#endif
