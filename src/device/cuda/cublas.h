/* SPDX-License-Identifier: Apache-2.0 */
/* cublas.h - the part of NVIDIA's cuBLAS that quern uses, cublasLt's product, declared by itself so that no CUDA header
 * is needed; how the library is found and opened; and one product by it. What the product is for, and where another is
 * better, is its caller's business. */
#ifndef QN_DEVICE_CUDA_CUBLAS_H
#define QN_DEVICE_CUDA_CUBLAS_H
#include "core/status.h"
#include "quern/device.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The oldest that works, as its version is told: 10000 * major + 100 * minor. */
enum { QN_CUBLAS_LEAST = 110000 };

typedef struct cublas_handle_s *cublas_handle;
typedef struct cublas_algorithm {
  uint64_t data[8];
} cublas_algorithm;
typedef struct cublas_found {
  cublas_algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
} cublas_found;

/* Memory for a description, which the library fills: no version needs more. So nothing is allocated to describe a
 * product. */
typedef struct cublas_room {
  uint64_t data[64];
} cublas_room;

/* The numbers of the interface. */
enum {
  CUBLAS_SUCCESS = 0,
  CUBLAS_NO_MEMORY = 3,
  CUBLAS_UNSUPPORTED = 15,
  CUBLAS_R_32F = 0,
  CUBLAS_R_16BF = 14,
  CUBLAS_32F = 68,
  CUBLAS_32F_PEDANTIC = 69,  /* products and sums of f32, whatever the environment allows */
  CUBLAS_32F_FAST_16BF = 75, /* f32 operands rounded to bf16 */
  CUBLAS_32F_FAST_TF32 = 77,
  CUBLAS_DESC_TRANSA = 3, /* int32: 1 transposes */
  CUBLAS_DESC_TRANSB = 4,
  CUBLAS_PREFERENCE_WORKSPACE = 1,   /* uint64: bytes at most */
  CUBLAS_PREFERENCE_REDUCTIONS = 3,  /* uint32: ways to add parts of k up, a bit each */
  CUBLAS_PREFERENCE_ALIGNMENT_A = 5, /* uint32: bytes; then of B, C and D */
  CUBLAS_PREFERENCE_ALIGNMENT_B = 6,
  CUBLAS_PREFERENCE_ALIGNMENT_C = 7,
  CUBLAS_PREFERENCE_ALIGNMENT_D = 8,
  CUBLAS_REDUCTIONS_IN_F32 = 2 /* the others keep parts in the result's type */
};

/* Every function: without one of them the library is not used, and the sentence names it. Matrices are column-major:
 * D = alpha op(A) op(B) + beta C. */
#define QN_CUBLAS_MAP(X)                                                                                               \
  X(size_t, cublasLtGetVersion, (void))                                                                                \
  X(int, cublasLtCreate, (cublas_handle *))                                                                            \
  X(int, cublasLtMatmulDescInit_internal, (cublas_room *, size_t bytes, int compute, int scale_type))                  \
  X(int, cublasLtMatmulDescSetAttribute, (cublas_room *, int attribute, const void *value, size_t bytes))              \
  X(int, cublasLtMatrixLayoutInit_internal,                                                                            \
    (cublas_room *, size_t bytes, int type, uint64_t rows, uint64_t columns, int64_t leading))                         \
  X(int, cublasLtMatmulPreferenceInit_internal, (cublas_room *, size_t bytes))                                         \
  X(int, cublasLtMatmulPreferenceSetAttribute, (cublas_room *, int attribute, const void *value, size_t bytes))        \
  X(int, cublasLtMatmulAlgoGetHeuristic,                                                                               \
    (cublas_handle, cublas_room * product, cublas_room * a, cublas_room * b, cublas_room * c, cublas_room * d,         \
     cublas_room * preference, int wanted, cublas_found *, int *n_found))                                              \
  X(int, cublasLtMatmul,                                                                                               \
    (cublas_handle, cublas_room * product, const void *alpha, const void *a, cublas_room *of_a, const void *b,         \
     cublas_room *of_b, const void *beta, const void *c, cublas_room *of_c, void *d, cublas_room *of_d,                \
     const cublas_algorithm *, void *workspace, size_t workspace_bytes, void *stream))

typedef struct qn_cublas {
#define X(type, name, signature) type(*name) signature;
  QN_CUBLAS_MAP(X)
#undef X
  int version; /* 130100 for 13.1.0 */
  char path[512];
} qn_cublas;

/* How operands are taken. */
typedef enum qn_cublas_class {
  QN_CUBLAS_F32,
  QN_CUBLAS_TF32,    /* f32 operands, rounded */
  QN_CUBLAS_BF16,    /* f32 operands, rounded */
  QN_CUBLAS_OF_BF16, /* bf16 operands */
  QN_CUBLAS_CLASSES
} qn_cublas_class;

/* z = x w^T, sums in f32. Dense, row-major: x (m, k), w (n, k), z (m, n) of f32; no extent is 0. */
typedef struct qn_cublas_product {
  qn_cublas_class operands;
  int64_t m, n, k;
  const void *x, *w;
  void *z;         /* f32, or bf16 */
  bool narrow;     /* bf16 */
  void *workspace; /* aligned to 16 bytes; cuBLAS's own use */
  size_t workspace_bytes;
  void *stream;
} qn_cublas_product;

/* The library, opened at the first call that succeeds; from then on every thread gets the same table and the option
 * "libcublas" is no longer read. None: QN_NO_LIBRARY and where it was looked for; QN_UNSUPPORTED where one does not do.
 * A failure is kept until an option is set, so that not every call searches. */
qn_status qn_cublas_open(const qn_cublas **cublas);
/* All that the product needs but its data: library, the device's handle, cuBLAS's choice of a kernel, which is kept for
 * the next product of the kind. Of the pointers only the alignment counts, and z and workspace may be NULL for one that
 * is aligned well. Cheap from the second call on. */
qn_status qn_cublas_prepare(qn_device device, const qn_cublas_product *product);
/* On the stream: nothing is allocated or waited for, but for what prepare would do. */
qn_status qn_cublas_multiply(qn_device device, const qn_cublas_product *product);
#endif
