/* SPDX-License-Identifier: Apache-2.0 */
/* random.h - random words by position: Philox4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2,
 * 3"). A word depends on what it is for and on nothing that ran before, so any order, cut and machine gives the same.
 *
 * Element i of the whole tensor takes word i mod 4 of block i / 4, of
 *     key     = seed (low, high 32 bits)
 *     counter = block (low 32 bits), block (next 26 bits) + stream * 2^28, tensor_id, step
 * Elements are counted in the whole tensor, so a shard draws what the unsharded tensor would; they are below 2^60. */
#ifndef QN_BASE_RANDOM_H
#define QN_BASE_RANDOM_H
#include "base/simd.h"

/* The source of a tensor's random words; `stream` tells the uses of one tensor's elements apart. */
typedef struct qn_random {
  qn_u64 seed;
  qn_u32 step, tensor_id, stream;
} qn_random;

/* Ten rounds, in place; every lane has its own counter. */
QN_FN void qn_philox(qn_bits counter[4], qn_u32 key0, qn_u32 key1)
{
  QN_UNROLL
  for (int round = 0; round < 10; round++) {
    qn_bits high0, high2;
    qn_bits low0 = qn_multiply_wide(counter[0], 0xd2511f53u, &high0);
    qn_bits low2 = qn_multiply_wide(counter[2], 0xcd9e8d57u, &high2);
    counter[0] = high2 ^ counter[1] ^ qn_splat_bits(key0);
    counter[2] = high0 ^ counter[3] ^ qn_splat_bits(key1);
    counter[1] = low2;
    counter[3] = low0;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
}

/* Which block, counted from a group's first, the lanes of one Philox call work on: lane 4k + r on block (lanes / 4) r +
 * k. Then a 4 x 4 transposition inside each group of four lanes puts all words in memory order. */
#if QN_LANES == 16
#define QN_BLOCK_OF_LANE ((qn_bits){0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15})
#elif QN_LANES == 8
#define QN_BLOCK_OF_LANE ((qn_bits){0, 2, 4, 6, 1, 3, 5, 7})
#elif QN_LANES == 4
#define QN_BLOCK_OF_LANE ((qn_bits){0, 1, 2, 3})
#else
#define QN_BLOCK_OF_LANE 0u
#endif

/* The words of the 4 * QN_LANES elements from 4 * block on, in memory order. */
QN_FN void qn_random_group(const qn_random *from, qn_u64 block, qn_bits word[4])
{
  qn_bits x[4];
  x[0] = qn_splat_bits((qn_u32)block) + QN_BLOCK_OF_LANE;
  qn_bits carry = qn_select_bits(qn_less_bits(x[0], qn_splat_bits((qn_u32)block)), qn_splat_bits(1u), qn_splat_bits(0));
  x[1] = ((qn_splat_bits((qn_u32)(block >> 32)) + carry) & 0x03ffffffu) | (from->stream << 28);
  x[2] = qn_splat_bits(from->tensor_id);
  x[3] = qn_splat_bits(from->step);
  qn_philox(x, (qn_u32)from->seed, (qn_u32)(from->seed >> 32));
#if QN_LANES == 1
  QN_UNROLL
  for (int k = 0; k < 4; k++) word[k] = x[k];
#else
  qn_bits even_low = qn_zip_low(x[0], x[2]), odd_low = qn_zip_low(x[1], x[3]);
  qn_bits even_high = qn_zip_high(x[0], x[2]), odd_high = qn_zip_high(x[1], x[3]);
  word[0] = qn_zip_low(even_low, odd_low);
  word[1] = qn_zip_high(even_low, odd_low);
  word[2] = qn_zip_low(even_high, odd_high);
  word[3] = qn_zip_high(even_high, odd_high);
#endif
}

/* The words of a pack whose first element is `first` of the whole tensor. A shard that does not begin at a multiple of
 * 4 draws two packs and takes from the middle. */
QN_FN void qn_random_pack(const qn_random *from, qn_u64 first, qn_bits word[QN_PACK])
{
  qn_u32 shift = (qn_u32)first & 3u;
  if (shift == 0) {
    QN_UNROLL
    for (int v = 0; v < QN_PACK; v += 4) qn_random_group(from, first / 4 + (qn_u64)v / 4 * QN_LANES, word + v);
    return;
  }
  qn_bits around[QN_PACK + 4];
  QN_UNROLL
  for (int v = 0; v < QN_PACK + 4; v += 4) qn_random_group(from, first / 4 + (qn_u64)v / 4 * QN_LANES, around + v);
#if QN_LANES == 1 /* no index that varies: a GPU keeps the words in registers */
  QN_UNROLL
  for (int v = 0; v < QN_PACK; v++) word[v] = shift == 1 ? around[v + 1] : shift == 2 ? around[v + 2] : around[v + 3];
#else
  qn_u32 flat[(QN_PACK + 4) * QN_LANES];
  __builtin_memcpy(flat, around, sizeof flat);
  __builtin_memcpy(word, flat + shift, QN_PACK * sizeof word[0]);
#endif
}
#endif
