/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - measurements as lines of JSON: one a line, each complete in itself (machine, build, raw samples), so that
 * files can be joined, split and compared years later. Reading believes nothing. */
#ifndef QN_WORKBENCH_RECORD_H
#define QN_WORKBENCH_RECORD_H
#include "workbench/bench.h"

/* One line behind what the file has; made if there is none. */
qn_status qn_record_append(const char *path, const qn_bench *bench);
qn_status qn_line_append(const char *path, const char *text); /* any line; goes out in one write */

/* What compare, report and roofline need of a line. All text is the record's own. */
typedef struct qn_record_series {
  double *ns;
  size_t n;
  double bytes; /* a call moves */
  const char *name, *way;
} qn_record_series;

typedef struct qn_record {
  int line; /* in its file */
  const char *date, *commit, *device, *machine, *op, *workload, *types, *backend, *variant, *timer, *cache, *verdict,
      *compiler, *suspicion;
  bool right, timed, impossible;
  int threads;
  int64_t tensors, elements, launches;
  double operations;                        /* of a step */
  double set_bytes;                         /* all tensors together */
  qn_record_series fused, unfused, ceiling; /* unfused.n is 0 where there is none */
  double gbps, share, share_low, share_high, copy_gbps, speedup, speedup_low, speedup_high;
  double host_same_ns, host_moved_ns; /* NAN: not known */
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
/* Of the lines for one op, workload, types, backend, device and timer only the last counts. */
bool qn_record_is_last(const qn_records *records, size_t k);
void qn_records_free(qn_records *records);
#endif
