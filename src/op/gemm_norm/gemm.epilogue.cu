/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.epilogue.cu - the epilogue of a product that stands in memory (epilogue.h), behind its kernel. The unit says
 * QN_GEMM_THREADS of a block: 64 to 256, or 1024 where groups are wide. */
#define QN_THREADS QN_GEMM_THREADS
#if QN_GEMM_THREADS > 256
#define QN_BLOCKS 1
#elif QN_GEMM_FLAGS >> 4 & 3 /* a norm, which keeps a group in registers; the compiler itself would spill a few */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 /* whose compiler takes more of them for the same */
#define QN_BLOCKS (256 / QN_GEMM_THREADS)
#else
#define QN_BLOCKS (512 / QN_GEMM_THREADS)
#endif
#else
#define QN_BLOCKS 4
#endif
#include "op/gemm_norm/epilogue.h"

QN_GROUP_KERNEL(gemm_epilogue, qn_gemm_z_args, a)
{
  QN_SHARED(float, scratch, SCRATCH);
  finish_place(a, qn_block() * qn_block_threads() + qn_thread(), scratch);
}
