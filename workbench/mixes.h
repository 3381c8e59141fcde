/* SPDX-License-Identifier: Apache-2.0 */
/* mixes.h - the access mixes, once: streams that are only read, updated in place, only written. A row of a type table
 * takes the one that is nearest in proportion (ceiling.h). */
#define QN_MIX_MAP(X)                                                                                                  \
  X(COPY, "copy", 1, 0, 1)                                                                                             \
  X(2R1W, "2-read-1-write", 2, 0, 1)                                                                                   \
  X(3R2W, "3-read-2-write in place", 1, 2, 0)                                                                          \
  X(2R1W_IN_PLACE, "2-read-1-write in place", 1, 1, 0)                                                                 \
  X(5R4W, "5-read-4-write in place", 1, 4, 0)                                                                          \
  X(5R3W, "5-read-3-write in place", 2, 3, 0)                                                                          \
  X(4R4W, "4-read-4-write in place", 1, 3, 1)                                                                          \
  X(5R5W, "5-read-5-write in place", 1, 4, 1)                                                                          \
  X(READ, "read", 4, 0, 0)                                                                                             \
  X(FILL, "fill", 0, 0, 1)
