/* SPDX-License-Identifier: Apache-2.0 */
/* tune_places.h - where an op's tune table has entries: a row of types, a shape or workload, a layout, and a class of
 * precision; and the range of shapes that an entry stands for. No op is named here. */
#ifndef QN_WORKBENCH_TUNE_PLACES_H
#define QN_WORKBENCH_TUNE_PLACES_H
#include "op/call.h"
#include "op/tune.h"

enum { QN_PLACE_TEXT = 160 };
typedef struct qn_tune_place {
  size_t row; /* of the type table */
  bool pitched;
  char name[QN_PLACE_TEXT + 112];        /* "bf16/bf16/bf16 4096x14336 dense", "f32 kernelbench precision=tf32" */
  char shape[QN_PLACE_TEXT];             /* "4096x14336", "kernelbench" */
  char text[QN_PLACE_TEXT], classed[48]; /* of the subject (subject.h); more words, of the class of precision */
} qn_tune_place;

typedef struct qn_tune_filter {
  const char *types;  /* as `quern bench --types`; NULL: all rows, of ops on lists one of each size */
  const char *shapes; /* "4096x14336,16x4096", or "kernelbench,m=16 n=64 k=32"; NULL: the op's own */
  bool pitched;       /* of ops on lists: also rows with gaps between them */
} qn_tune_filter;

/* Calls `at` for each place until it fails. A wrong filter is refused before the first call. */
qn_status qn_tune_places(const qn_op *op, qn_device device, const qn_tune_filter *filter,
                         qn_status (*at)(void *user, const qn_tune_place *place), void *user);
/* The ranges and names of an entry that is measured for the key. */
void qn_tune_classes(const qn_op *op, const qn_tune_key *key, qn_tune_entry *entry);
#endif
