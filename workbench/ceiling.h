/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling.h - what the machine itself can do: the fastest plain streams of each access mix, and arithmetic rates. A
 * kernel's share is taken of the ceiling with its own mix, measured in the same run. No op is known here. */
#ifndef QN_WORKBENCH_CEILING_H
#define QN_WORKBENCH_CEILING_H
#include "quern/op.h"
#include "workbench/mixes.h"

typedef enum qn_mix {
#define X(id, name, reads, updates, writes) QN_MIX_##id,
  QN_MIX_MAP(X)
#undef X
      QN_MIX_COUNT
} qn_mix;
const char *qn_mix_name(qn_mix mix);
/* The mix whose proportions of streams come nearest to those of a row, counted in bytes. */
qn_mix qn_mix_of(const qn_op_types *row);

/* Streams over one block of memory, and how to run them on this device: "plain" or "non-temporal" stores, "1 vector" or
 * "4 vectors" of 16 bytes a thread, "the driver's copy". */
typedef struct qn_ceiling qn_ceiling;
qn_status qn_ceiling_create(qn_ceiling **ceiling, const qn_exec *exec, size_t bytes); /* most that a run touches */
void qn_ceiling_destroy(qn_ceiling **ceiling);
int qn_ceiling_ways(const qn_ceiling *ceiling, qn_mix mix);
const char *qn_ceiling_way_name(const qn_ceiling *ceiling, qn_mix mix, int way);

/* One pass over a working set of about `bytes` (whole lines of all streams, at most what create was told), `passes`
 * times. *moved: bytes read plus bytes written in all, an update counting twice. Does not synchronise. */
qn_status qn_ceiling_stream(qn_ceiling *ceiling, qn_mix mix, int way, size_t bytes, int passes, double *moved);

/* The same as a sampler's runner (sampler.h); passes 0: one. */
typedef struct qn_ceiling_call {
  qn_ceiling *ceiling;
  qn_mix mix;
  int way;
  size_t bytes;
  int passes;
  double moved;
} qn_ceiling_call;
qn_status qn_ceiling_run(void *call);

/* Arithmetic rates, in registers only; *operations: how many were done, a multiply-add counting two. */
typedef enum qn_rate { QN_RATE_FMA_F32, QN_RATE_MMA_TF32, QN_RATE_MMA_BF16, QN_RATE_COUNT } qn_rate;
const char *qn_rate_name(qn_rate rate);
/* QN_UNSUPPORTED and why where this device has no such unit or its rate would say nothing. */
qn_status qn_ceiling_rate(qn_ceiling *ceiling, qn_rate rate, double *operations);
#endif
