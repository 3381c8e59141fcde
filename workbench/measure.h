/* SPDX-License-Identifier: Apache-2.0 */
/* measure.h - the times of a bench: a step, its counterpart and the ceilings, sampled in the same rounds, and the
 * figures that follow. Ops and kernels from a body differ in what they hand over here. */
#ifndef QN_WORKBENCH_MEASURE_H
#define QN_WORKBENCH_MEASURE_H
#include "workbench/bench.h"

typedef struct qn_measured {
  const char *name, *against_name;
  qn_status (*run)(void *user); /* NULL: only the ceilings are timed, in rounds that bench.ask.next allows */
  qn_status (*against)(void *user);
  void *user, *against_user;
  double bytes, against_bytes; /* that a call moves */
  double written;              /* of the step's bytes; these may stay in the cache */
  double set_bytes;            /* of all tensors, the size of the ceilings' sets */
  const qn_mix *mixes;         /* of the ceilings, besides the bench's own, which comes first */
  size_t n_mixes;
  double seconds; /* for the rounds, unless bench.ask.seconds says otherwise */
} qn_measured;

/* Fills times, ceilings, shares, speed-up, verdict, launches, allocated bytes and clocks of a bench whose ask, device,
 * mix, cache and has_unfused stand. */
qn_status qn_measure(qn_bench *bench, const qn_measured *what, const qn_exec *exec);
/* The host's time of a call, in bursts that the queue takes without waiting. */
qn_status qn_measure_host(const qn_exec *exec, qn_status (*run)(void *user), void *user, qn_summary *summary);
size_t qn_measure_ceiling_bytes(double set_bytes);
bool qn_measure_flushes(const qn_bench_request *ask);
/* Contents of the cache when a sample begins: "cold", "hot", "mixed" or "unknown". */
const char *qn_measure_cache(const qn_bench *bench, double set_bytes);
#endif
