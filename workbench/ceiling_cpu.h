/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling_cpu.h - the processor's half of ceiling.c: streams over lines of 64 bytes and a multiply-add loop, in the
 * widest instructions that run here, so that a ceiling is never low because they were narrow. */
#ifndef QN_WORKBENCH_CEILING_CPU_H
#define QN_WORKBENCH_CEILING_CPU_H
#include "workbench/ceiling.h"
#include <stdbool.h>

enum { QN_LINE = 64, QN_MAX_STREAMS = 8 };

/* Streams in the order reads, updates, writes; lines [from, to) of each; 64-byte aligned. */
typedef struct qn_lines {
  char *stream[QN_MAX_STREAMS];
  size_t from, to;
} qn_lines;

/* How lines are stored: through the cache, past it, or past it only where they are not read as well. */
typedef enum qn_stores { QN_STORES_PLAIN, QN_STORES_PAST, QN_STORES_MIXED, QN_STORES_COUNT } qn_stores;

void qn_cpu_stream(const qn_lines *lines, qn_mix mix, qn_stores stores);
bool qn_cpu_has_non_temporal(void);

/* Multiply-adds in registers, `rounds` of them in each of many lanes; returns the operations done. */
double qn_cpu_fma(uint64_t rounds);
#endif
