/* SPDX-License-Identifier: Apache-2.0 */
/* product.h - the matrix products that make a move orthogonal, as problems of op/gemm_norm. */
#ifndef QN_OP_CELO2_PRODUCT_H
#define QN_OP_CELO2_PRODUCT_H
#include "op/gemm_norm/gemm.h"

/* y (m, n) = x (m, k) w^T, w (n, k), in a class (qn_precision): of bf16 numbers for bf16, else of f32. */
static inline qn_gemm_problem qn_celo2_product(const void *x, const void *w, void *y, uint64_t m, uint64_t n,
                                               uint64_t k, int precision)
{
  return (qn_gemm_problem){.args = {.x = x,
                                    .w = w,
                                    .y = y,
                                    .m = (int64_t)m,
                                    .n = (int64_t)n,
                                    .k = (int64_t)k,
                                    .row = (int64_t)k,
                                    .pitch = (int64_t)n,
                                    .slices = 1,
                                    .slice_k = (int64_t)k,
                                    .columns = (int64_t)n},
                           .precision = precision,
                           .short_data = precision == QN_GEMM_BF16,
                           .alike = true};
}

/* Those of a round, without pointers, of which the workspace is asked. */
enum { QN_CELO2_PRODUCTS = 3 };
static inline void qn_celo2_products(uint64_t length, uint64_t width, int precision,
                                     qn_gemm_problem of[QN_CELO2_PRODUCTS])
{
  of[0] = qn_celo2_product(NULL, NULL, NULL, width, width, length, precision);
  of[1] = qn_celo2_product(NULL, NULL, NULL, width, width, width, precision);
  of[2] = qn_celo2_product(NULL, NULL, NULL, length, width, width, precision);
}
#endif
