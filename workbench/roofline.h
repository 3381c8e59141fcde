/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.h - what a machine can do, measured: bandwidth of three access mixes over working sets from cache to memory,
 * and arithmetic rates; and the picture of it, with kernels as points. */
#ifndef QN_WORKBENCH_ROOFLINE_H
#define QN_WORKBENCH_ROOFLINE_H
#include "workbench/record.h"
#include "workbench/sampler.h"
#include <stdio.h>

enum { QN_ROOF_MIXES = 3, QN_ROOF_SETS = 16 };

typedef struct qn_roof {
  double bytes, gbps;
  const char *way; /* the fastest */
} qn_roof;

typedef struct qn_roofline {
  qn_device device;
  qn_device_info info;
  int threads; /* 0: not the processor's */
  qn_mix mix[QN_ROOF_MIXES];
  qn_roof set[QN_ROOF_MIXES][QN_ROOF_SETS]; /* from the smallest working set to the largest */
  size_t n_sets;
  double rate[QN_RATE_COUNT];                  /* operations a second; 0: not measured here */
  double nominal_gbps, nominal[QN_RATE_COUNT]; /* from the maker's data sheet; 0: not known */
} qn_roofline;

/* largest: the largest working set, 0 for what the device suggests. */
qn_status qn_roofline_measure(qn_roofline *roofline, qn_device device, qn_pool *pool, size_t largest,
                              qn_progress *progress);

double qn_roofline_memory(const qn_roofline *roofline); /* GB/s of the largest set's best mix */
double qn_roofline_cache(const qn_roofline *roofline);  /* GB/s of the best set of all */

void qn_roofline_print(FILE *stream, const qn_roofline *roofline);
qn_status qn_roofline_append(const char *path, const qn_roofline *roofline); /* as a line of JSON */
/* The last such line of a file that is for this device (a part of its name; NULL: any). None: QN_BAD_FILE. */
qn_status qn_roofline_read(const char *path, const char *device, qn_roofline *roofline);
/* records: NULL or measurements; those of other devices are left out, *left_out says how many. */
qn_status qn_roofline_draw(const char *path, const qn_roofline *roofline, const qn_records *records, size_t *left_out);
#endif
