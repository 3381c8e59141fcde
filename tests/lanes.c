/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.c - see lanes.h. Nothing here is a test. */
#include "lanes.h"
#include "base/for_packs.h"

static void load(const void *from, size_t at, qn_f32 x[QN_PACK])
{
  __builtin_memcpy(x, (const float *)from + at, QN_PACK * sizeof *x);
}

static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t *words)
{
  qn_bits x[4];
  for (int k = 0; k < 4; k++) x[k] = qn_splat_bits(counter[k]);
  qn_philox(x, key[0], key[1]);
  __builtin_memcpy(words, x, sizeof x);
}

static void random_words(uint64_t seed, uint32_t step, uint32_t id, uint32_t stream, uint64_t first, size_t n,
                         uint32_t *words)
{
  const qn_random from = {seed, step, id, stream};
  qn_bits word[QN_PACK];
  for (size_t at = 0; at < n; at += QN_PACK_ELEMENTS) {
    qn_random_pack(&from, first + at, word);
    __builtin_memcpy(words + at, word, sizeof word);
  }
}

static void widen(int is_f16, size_t n, const uint16_t *from, float *to)
{
  qn_f32 x[QN_PACK];
  for (size_t at = 0; at < n; at += QN_PACK_ELEMENTS) {
    qn_load_pack(from + at, is_f16 ? QN_F16 : QN_BF16, x);
    __builtin_memcpy(to + at, x, sizeof x);
  }
}

static void narrow(int is_f16, size_t n, const float *from, uint16_t *to)
{
  qn_f32 x[QN_PACK];
  for (size_t at = 0; at < n; at += QN_PACK_ELEMENTS) {
    load(from, at, x);
    qn_store_pack(to + at, is_f16 ? QN_F16 : QN_BF16, x);
  }
}

static void narrow_chance(int is_f16, size_t n, const float *from, const uint32_t *words, uint16_t *to)
{
  qn_f32 x[QN_PACK];
  qn_bits word[QN_PACK];
  for (size_t at = 0; at < n; at += QN_PACK_ELEMENTS) {
    load(from, at, x);
    __builtin_memcpy(word, words + at, sizeof word);
    qn_store_pack_chance(to + at, is_f16 ? QN_F16 : QN_BF16, x, word);
  }
}

static void sign(size_t n, const float *from, float *to)
{
  qn_f32 x[QN_PACK];
  for (size_t at = 0; at < n; at += QN_PACK_ELEMENTS) {
    load(from, at, x);
    for (int v = 0; v < QN_PACK; v++) x[v] = qn_sign(x[v]);
    __builtin_memcpy(to + at, x, sizeof x);
  }
}

const test_lanes QN_JOIN(test_lanes_, QN_TIER) = {
    .pack = QN_PACK_ELEMENTS,
    .philox = philox,
    .lanes = QN_LANES,
    .random = random_words,
    .widen = widen,
    .narrow = narrow,
    .narrow_chance = narrow_chance,
    .sign = sign,
};
