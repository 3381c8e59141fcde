/* SPDX-License-Identifier: Apache-2.0 */
/* walls.h - memory in which pages can be made such that nobody may touch them, so that who reads past an array's end
 * ends the process. Of a GPU's memory there are no such pages: there it is ordinary memory. */
#ifndef QN_WORKBENCH_WALLS_H
#define QN_WORKBENCH_WALLS_H
#include "quern/quern.h"
#include <stdbool.h>

enum { QN_WALL = 4096, QN_WALLS_MOST = 128 }; /* bytes, a multiple of the page; of one block */

/* A block of memory and where its walls begin, which are multiples of QN_WALL behind its beginning. */
typedef struct qn_walled {
  qn_device device;
  size_t bytes, n;
  size_t at[QN_WALLS_MOST];
} qn_walled;

/* Says that there is to be a wall; more than QN_WALLS_MOST are not made. */
void qn_walled_add(qn_walled *walled, size_t at);

/* Memory with walls in it, or whose last byte stands before a wall that stays; not fenced, or of a GPU: ordinary. */
typedef struct qn_fence {
  void *memory; /* as aligned as its bytes are */
  void *block;
  qn_walled walled;
} qn_fence;

/* With the walls of fence->walled, where there are any, else with one behind the last byte. */
qn_status qn_fence_create(qn_device device, bool fenced, size_t bytes, qn_fence *fence);
void qn_fence_destroy(qn_fence *fence);
void qn_fence_raise(const qn_fence *fence);
void qn_fence_lower(const qn_fence *fence); /* its memory may be read and written as a whole until it is raised */
#endif
