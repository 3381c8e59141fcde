/* SPDX-License-Identifier: Apache-2.0 */
/* lopt.table.cu - brings a piece of the table of tensors from the launch's parameter to the workspace, so that nothing
 * is uploaded and a captured graph holds the table itself. */
#define QN_THREADS 256
#include "op/lopt/device.h"

QN_KERNEL(lopt_table, qn_lopt_piece_args, a)
{
  const qn_u64 i = qn_block() * qn_block_threads() + qn_thread();
  if (i < a.words) a.to[i] = a.data[i];
}
