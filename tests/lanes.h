/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.h - the words of src/base for one tier, over plain arrays, so that one program tests every tier. lanes.c is
 * built once per tier with that tier's flags. */
#ifndef QN_TESTS_LANES_H
#define QN_TESTS_LANES_H
#include <stddef.h>
#include <stdint.h>

typedef struct test_lanes {
  size_t pack; /* elements; the n below are multiples of it */
  void (*philox)(const uint32_t counter[4], const uint32_t key[2], uint32_t *words); /* words[4 * lanes], by word */
  size_t lanes;
  void (*random)(uint64_t seed, uint32_t step, uint32_t id, uint32_t stream, uint64_t first, size_t n, uint32_t *words);
  void (*widen)(int is_f16, size_t n, const uint16_t *from, float *to);
  void (*narrow)(int is_f16, size_t n, const float *from, uint16_t *to);
  void (*narrow_chance)(int is_f16, size_t n, const float *from, const uint32_t *words, uint16_t *to);
  void (*sign)(size_t n, const float *from, float *to);
} test_lanes;

extern const test_lanes test_lanes_ref, test_lanes_avx2, test_lanes_avx512, test_lanes_neon;
#endif
