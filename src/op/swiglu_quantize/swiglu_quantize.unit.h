/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.unit.h - what a device kernel of the quantised forward is compiled from, for the call and for the
 * test that compiles all of them. */
#ifndef QN_OP_SWIGLU_QUANTIZE_UNIT_H
#define QN_OP_SWIGLU_QUANTIZE_UNIT_H
#include "device/backend.h"
#include "op/swiglu_quantize/swiglu_quantize.h"

/* The source of a kind's kernel for one device, with the text of its defines. */
enum { QN_SWIGLU_QUANTIZE_DEFINES = 6 };
typedef struct qn_swiglu_quantize_unit {
  char text[QN_SWIGLU_QUANTIZE_DEFINES][40];
  const char *defines[QN_SWIGLU_QUANTIZE_DEFINES + 1];
  qn_unit unit;
} qn_swiglu_quantize_unit;
void qn_swiglu_quantize_unit_of(const qn_swiglu_quantize_kind *kind, unsigned packs, qn_swiglu_quantize_unit *u);

/* How a row is cut: vectors that a thread holds in registers, 1, 2, 4 or 8, or where else it is; threads of a block. */
enum { QN_SWIGLU_ROW_TWICE = 0, QN_SWIGLU_ROW_SHARED = 16 };
typedef struct qn_swiglu_quantize_cut {
  unsigned packs, threads, shared_bytes;
} qn_swiglu_quantize_cut;
#endif
