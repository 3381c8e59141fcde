/* SPDX-License-Identifier: Apache-2.0 */
/* human.h - amounts as people read them. */
#ifndef QN_WORKBENCH_HUMAN_H
#define QN_WORKBENCH_HUMAN_H
#include <stdint.h>

typedef struct qn_human {
  char text[32];
} qn_human; /* by value, so that a call can stand among printf's arguments */

qn_human qn_human_bytes(int64_t bytes); /* "812 B", "4.7 KiB", "139 GiB" */
qn_human qn_human_time(int64_t unix_s); /* "2026-11-20 19:05", local */

#endif
