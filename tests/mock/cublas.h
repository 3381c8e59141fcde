/* SPDX-License-Identifier: Apache-2.0 */
/* cublas.h - a cuBLAS for tests: it multiplies, in plain loops and in the memory of mock.h's driver, notes what it was
 * asked for, and fails on order. It is a shared library to be named in the option "libcublas"; the test gets its notes
 * through the exported mock_cublas().
 *
 * Its behaviour is in the variable QUERN_MOCK_CUBLAS, read when it is loaded, words separated by commas:
 *   version=130100     what cublasLtGetVersion says (130100)
 *   fail=7:13          the 7th call that can fail, of any function, gives the status 13 and does nothing
 *   none               it has a kernel for nothing
 * Built with MOCK_WITHOUT_MATMUL it has no cublasLtMatmul. */
#ifndef QN_TESTS_MOCK_CUBLAS_H
#define QN_TESTS_MOCK_CUBLAS_H
#include <stddef.h>
#include <stdint.h>

/* Of one matrix, as the library sees them: by columns. */
typedef struct mock_matrix {
  const void *data;
  int type, turned;
  uint64_t rows, columns;
  int64_t leading;
} mock_matrix;

typedef struct mock_product {
  mock_matrix a, b, d;
  int compute;
  void *workspace, *stream;
  size_t workspace_bytes;
  const void *handle;
} mock_product;

typedef struct mock_cublas_api {
  size_t (*calls)(void);    /* that could have failed */
  size_t (*handles)(void);  /* made */
  size_t (*asked)(void);    /* for a kernel */
  size_t (*products)(void); /* made */
  const mock_product *(*latest)(void);
} mock_cublas_api;
const mock_cublas_api *mock_cublas(void);
#endif
