/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - measurements as lines of JSON: one a line, each complete in itself (machine, build, raw samples), so that
 * files can be joined, split and compared years later. Reading believes nothing. */
#ifndef QN_WORKBENCH_RECORD_H
#define QN_WORKBENCH_RECORD_H
#include "workbench/bench.h"

/* One line behind what the file has; made if there is none. That of a kernel from a body has a member "kernel". */
qn_status qn_record_append(const char *path, const qn_bench *bench);
/* Parts of such a line as texts, the caller's to free: what is known before anything is timed, with the list's shapes
 * and what a cold sample overwrites; what is said of the ceilings. */
qn_status qn_record_head(const qn_bench *bench, char **text);
qn_status qn_record_ceilings(const qn_bench *bench, char **text);
qn_status qn_line_append(const char *path, const char *text); /* any line; goes out in one write */

/* What compare, report and roofline need of a line. All text is the record's own. */
typedef struct qn_record_series {
  double *ns;
  size_t n;
  double bytes; /* a call moves */
  const char *name, *way;
} qn_record_series;

/* What `python -m quern.bench` timed beside the op: another implementation, or another op. */
typedef struct qn_record_peer {
  const char *name, *version, *wrong, *absent; /* wrong: how; "" if it is right. absent: why it has no times; "" */
  const char *verdict;                         /* of the op's own step against it */
  bool other_op;
  qn_record_series step, wall, host; /* wall, host: n is 0 where the step is synchronous */
  double share, speedup, speedup_low, speedup_high;
} qn_record_peer;

/* `by` is what called the op, "" where that is the command: the times are those of the op through it. */
typedef struct qn_record {
  int line; /* in its file */
  const char *date, *commit, *device, *machine, *op, *workload, *types, *backend, *variant, *timer, *cache, *verdict,
      *compiler, *suspicion, *by, *clocks; /* clocks: "" where not known */
  bool right, timed, impossible;
  int threads;
  int64_t tensors, elements, launches;
  double operations;                        /* of a step */
  double set_bytes;                         /* all tensors together */
  qn_record_series fused, unfused, ceiling; /* unfused.n is 0 where there is none */
  double gbps, share, share_low, share_high, copy_gbps, speedup, speedup_low, speedup_high;
  double host_same_ns, host_moved_ns; /* NAN: not known */
  qn_record_series wall, host;        /* with peers, on a device: of steps behind one another; of the host alone */
  qn_record_peer *peer;
  size_t n_peers;
  void *json;
} qn_record;

typedef struct qn_records {
  size_t n;
  qn_record *record;
} qn_records;

/* A file that is not such lines is refused with the number of the first line that is wrong, and why; so is one without
 * any measurement. Lines of `quern roofline` may be among them. */
qn_status qn_records_read(const char *path, qn_records *records);
/* The same behind what the list has, be it nothing; a failure empties it. */
qn_status qn_records_add(const char *path, qn_records *records);
/* Of the lines for one op, workload, types, backend, device, timer and caller only the last counts. */
bool qn_record_is_last(const qn_records *records, size_t k);
void qn_records_free(qn_records *records);
#endif
