/* SPDX-License-Identifier: Apache-2.0 */
/* fill.h - data for checks and benches, made from a seed and an index alone, and numbers of every storage type as
 * doubles. It shares no code with the kernels, so that a mistake there is not made twice. */
#ifndef QN_WORKBENCH_FILL_H
#define QN_WORKBENCH_FILL_H
#include "quern/op.h"
#include <stdbool.h>

/* The same 64 well-mixed bits for the same (seed, k) on every machine. */
uint64_t qn_seed_mix(uint64_t seed, uint64_t k);

/* One stored number as a double, and a double stored to nearest, ties to even; f8e4m3 has no infinities: what is beyond
 * its largest number is stored as that. Whole types within their range, bool as 0 or 1; 64-bit ones beyond 2^53 are not
 * exact. A c64 is two f32: its callers count it as such. */
double qn_number_load(qn_dtype dtype, const void *at);
void qn_number_store(qn_dtype dtype, void *at, double value);
/* Its bits; two numbers are the same if their bits are, or if both are NaN (payloads differ between processors). */
uint64_t qn_number_bits(qn_dtype dtype, const void *at);
bool qn_number_same(qn_dtype dtype, const void *a, const void *b);
/* The first of n that is not the same; n if there is none. */
size_t qn_numbers_differ(qn_dtype dtype, const void *a, const void *b, size_t n);
/* Distance from |value| to the next larger number of that type, denormals included. */
double qn_number_step(qn_dtype dtype, double value);

typedef struct qn_filling {
  qn_fill kind;
  double scale;  /* standard deviation of the normal ones */
  uint64_t seed; /* of all roles of a list: decides where all of them are zero */
  uint64_t role; /* sets one role's numbers apart from another's */
  bool odd;      /* zeros of both signs, denormals, huge and tiny ones, infinities, NaN among the normal ones */
} qn_filling;

/* n elements, the first being number `first` of its tensor: a tensor filled in pieces is the same as in one go. */
void qn_fill_numbers(const qn_filling *filling, qn_dtype dtype, void *at, size_t n, uint64_t first);

/* n elements at which formulas turn: NaN, infinities, zeros, large and small ones, what lies about powers'
 * ends; then, by turns, equally spaced ones from -16 to 16 and powers of two with their signs from 2^-40 to 2^20. */
void qn_fill_sweep(qn_dtype dtype, void *at, size_t n);
/* Of each four elements one lies in the middle between two numbers of 8 bits and one between two of 11, all others
 * where they were: which way words of bf16 and tf32 round halves is seen there. f32 alone. */
void qn_fill_halves(void *at, size_t n);

#endif
