/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h - where a call runs: device, stream, threads, workspace. All of them are the caller's. */
#ifndef QN_STREAM_H
#define QN_STREAM_H
#include "tensor.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A pool of n_threads threads in all, the caller's own among them (n_threads - 1 are started); 1 to 1024. One pool may
 * serve several calling threads at once: a call that finds it busy runs serially. After fork the child's pool runs
 * serially. Destroying waits for the call in progress. */
typedef struct qn_pool qn_pool;
QN_API qn_status qn_pool_create(qn_pool **pool, int n_threads);
/* Instead of threads of its own, those of OpenMP's runtime that the process has loaded (libgomp, libiomp5 or libomp): a
 * caller whose other work runs there has neither two threads for a processor nor a wake-up for each call. Several
 * calling threads have teams of their own. QN_NO_LIBRARY: no runtime is loaded where all libraries see it. */
QN_API qn_status qn_pool_create_openmp(qn_pool **pool, int n_threads);
QN_API void qn_pool_destroy(qn_pool **pool);     /* sets *pool to NULL; NULL and pointer to NULL are fine */
QN_API int qn_pool_threads(const qn_pool *pool); /* 1 for NULL */

/* How and where a call runs. Zero means default. Lives only for the call.
 *   device     must be the device of every tensor of the call
 *   stream     CUDA: a CUstream / cudaStream_t of that device, NULL the legacy default one. Nothing is synchronised.
 *   pool       CPU and HOST: NULL is serial
 *   workspace  memory of `device`, lent for the call, 16-byte aligned; how much: qn_<op>_workspace_bytes()
 * The thread that calls needs 64 KB of stack, for gemm_norm and learned optimizers 128 KB. */
typedef struct qn_exec {
  size_t size; /* sizeof(qn_exec) */
  qn_device device;
  void *stream;
  qn_pool *pool;
  void *workspace;
  size_t workspace_bytes;
} qn_exec;

#ifdef __cplusplus
}
#endif
#endif
