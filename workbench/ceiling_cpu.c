/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling_cpu.c - see ceiling_cpu.h. One body per vector width, instantiated for each mix with its counts as constants,
 * with plain and with non-temporal stores. What is computed means nothing; it only must not be optimised away. */
#include "workbench/ceiling_cpu.h"
#include "cpu/tier.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static volatile float sink; /* takes a result only where it has a value that it never has, which no compiler can know */

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* All parts of a line are done before the next line, so that non-temporal stores fill whole lines. */
#define DEFINE_WIDTH(suffix, TARGET, bytes, NT_STORE)                                                                  \
  typedef int vector_##suffix __attribute__((vector_size(bytes), may_alias));                                          \
  TARGET ALWAYS_INLINE void store_##suffix(char *to, vector_##suffix v, bool non_temporal)                             \
  {                                                                                                                    \
    if (non_temporal)                                                                                                  \
      NT_STORE(to, v);                                                                                                 \
    else                                                                                                               \
      *(vector_##suffix *)to = v;                                                                                      \
  }                                                                                                                    \
  TARGET ALWAYS_INLINE void body_##suffix(const qn_lines *l, int reads, int updates, int writes, qn_stores stores)     \
  {                                                                                                                    \
    vector_##suffix all = {0};                                                                                         \
    for (size_t at = l->from * QN_LINE; at < l->to * QN_LINE; at += sizeof all) {                                      \
      vector_##suffix sum = all;                                                                                       \
      for (int k = 0; k < reads; k++) sum ^= *(const vector_##suffix *)(l->stream[k] + at);                            \
      for (int k = reads; k < reads + updates; k++)                                                                    \
        store_##suffix(l->stream[k] + at, *(vector_##suffix *)(l->stream[k] + at) ^ sum, stores == QN_STORES_PAST);    \
      for (int k = reads + updates; k < reads + updates + writes; k++)                                                 \
        store_##suffix(l->stream[k] + at, sum, stores != QN_STORES_PLAIN);                                             \
      if (updates + writes == 0) all = sum;                                                                            \
    }                                                                                                                  \
    if (updates + writes == 0 && all[0] == 0x5eed && all[1] == 0x5eed) sink = 1;                                       \
  }                                                                                                                    \
  TARGET static void run_##suffix(const qn_lines *l, qn_mix mix, qn_stores stores)                                     \
  {                                                                                                                    \
    switch (mix) {                                                                                                     \
      QN_MIX_MAP(CASE_##suffix)                                                                                        \
    case QN_MIX_COUNT: break;                                                                                          \
    }                                                                                                                  \
  }
#define CASE(suffix, id, r, u, w)                                                                                      \
  case QN_MIX_##id:                                                                                                    \
    if (stores == QN_STORES_PLAIN)                                                                                     \
      body_##suffix(l, r, u, w, QN_STORES_PLAIN);                                                                      \
    else if (stores == QN_STORES_PAST)                                                                                 \
      body_##suffix(l, r, u, w, QN_STORES_PAST);                                                                       \
    else                                                                                                               \
      body_##suffix(l, r, u, w, QN_STORES_MIXED);                                                                      \
    break;
#define CASE_base(id, name, r, u, w) CASE(base, id, r, u, w)
#define CASE_avx2(id, name, r, u, w) CASE(avx2, id, r, u, w)
#define CASE_avx512(id, name, r, u, w) CASE(avx512, id, r, u, w)

#if defined(__x86_64__)
static qn_tier widest(void)
{
  if (qn_tier_runs_here(QN_TIER_AVX512)) return QN_TIER_AVX512;
  return qn_tier_runs_here(QN_TIER_AVX2) ? QN_TIER_AVX2 : QN_TIER_REF;
}

#define STORE_16(to, v) _mm_stream_si128((void *)(to), (__m128i)(v))
#define STORE_32(to, v) _mm256_stream_si256((void *)(to), (__m256i)(v))
#define STORE_64(to, v) _mm512_stream_si512((void *)(to), (__m512i)(v))
DEFINE_WIDTH(base, , 16, STORE_16)
DEFINE_WIDTH(avx2, __attribute__((target("avx2"))), 32, STORE_32)
DEFINE_WIDTH(avx512, __attribute__((target("avx512f"))), 64, STORE_64)

void qn_cpu_stream(const qn_lines *lines, qn_mix mix, qn_stores stores)
{
  switch (widest()) {
  case QN_TIER_AVX512: run_avx512(lines, mix, stores); break;
  case QN_TIER_AVX2: run_avx2(lines, mix, stores); break;
  default: run_base(lines, mix, stores);
  }
  if (stores != QN_STORES_PLAIN) _mm_sfence();
}

bool qn_cpu_has_non_temporal(void) { return true; }
#else
#define STORE_16(to, v) (*(vector_base *)(to) = (v))
DEFINE_WIDTH(base, , 16, STORE_16)
void qn_cpu_stream(const qn_lines *lines, qn_mix mix, qn_stores stores) { run_base(lines, mix, stores); }
bool qn_cpu_has_non_temporal(void) { return false; } /* no such store that both compilers offer */
#endif

/* ---- multiply-adds: enough independent chains to cover the latency of two units ---- */
enum { CHAINS = 12 };
#define DEFINE_FMA(suffix, TARGET, V, SET, FMA, lanes)                                                                 \
  TARGET static double fma_##suffix(uint64_t rounds)                                                                   \
  {                                                                                                                    \
    V chain[CHAINS], scale = SET(1.0f - 0x1p-20f), shift = SET(0x1p-20f);                                              \
    for (int k = 0; k < CHAINS; k++) chain[k] = SET((float)(k + 1));                                                   \
    for (uint64_t round = 0; round < rounds; round++) {                                                                \
      _Pragma("GCC unroll 16") for (int k = 0; k < CHAINS; k++) chain[k] = FMA(chain[k], scale, shift);                \
      __asm__ volatile("");                                                                                            \
    }                                                                                                                  \
    for (int k = 1; k < CHAINS; k++) chain[0] += chain[k];                                                             \
    if (chain[0][0] == -1.0f) sink = chain[0][1];                                                                      \
    return 2.0 * CHAINS * lanes * (double)rounds;                                                                      \
  }
#if defined(__x86_64__)
#define MULTIPLY_ADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c) /* the base instruction set has no fused one */
DEFINE_FMA(base, , __m128, _mm_set1_ps, MULTIPLY_ADD, 4)
DEFINE_FMA(avx2, __attribute__((target("avx2,fma"))), __m256, _mm256_set1_ps, _mm256_fmadd_ps, 8)
DEFINE_FMA(avx512, __attribute__((target("avx512f"))), __m512, _mm512_set1_ps, _mm512_fmadd_ps, 16)

double qn_cpu_fma(uint64_t rounds)
{
  switch (widest()) {
  case QN_TIER_AVX512: return fma_avx512(rounds);
  case QN_TIER_AVX2: return fma_avx2(rounds);
  default: return fma_base(rounds);
  }
}
#elif defined(__aarch64__)
#define MULTIPLY_ADD(a, b, c) vfmaq_f32(c, a, b)
DEFINE_FMA(base, , float32x4_t, vdupq_n_f32, MULTIPLY_ADD, 4)
double qn_cpu_fma(uint64_t rounds) { return fma_base(rounds); }
#else
typedef float vector_f32 __attribute__((vector_size(16)));
#define BROADCAST(x) ((vector_f32){x, x, x, x})
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
DEFINE_FMA(base, , vector_f32, BROADCAST, MULTIPLY_ADD, 4)
double qn_cpu_fma(uint64_t rounds) { return fma_base(rounds); }
#endif
