/* SPDX-License-Identifier: Apache-2.0 */
/* beside.h - the ceilings of a bench, timed for another program beside its own samples: `python -m quern.bench` asks
 * for a round of them between its rounds, so that its shares are of ceilings of the same moments, and takes workload,
 * machine and bytes from here instead of having copies. It times no op.
 *
 * Out: one line of JSON, what a line of `quern bench --json` says before anything is timed, besides "shapes" (of the
 * list, in order) and "flush_bytes" (overwritten before each cold sample); then, for each line that comes in, a round
 * of the ceilings and a line "{}"; at the end of the input a last line with "ceilings", "ceiling", "copy", "floor_ns"
 * and "clocks", as such a line has them. */
#ifndef QN_WORKBENCH_BESIDE_H
#define QN_WORKBENCH_BESIDE_H
#include "workbench/bench.h"
#include <stdio.h>

/* The request's own `next` is replaced. An input that ends before its first line gets the head alone. */
qn_status qn_beside_run(const qn_bench_request *request, FILE *in, FILE *out);
#endif
