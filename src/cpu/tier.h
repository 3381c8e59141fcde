/* SPDX-License-Identifier: Apache-2.0 */
/* tier.h - instruction-set tiers of CPU kernels, in order of preference, and which of them run here. */
#ifndef QN_CPU_TIER_H
#define QN_CPU_TIER_H
#include "core/status.h"
#include <stdbool.h>

/* ORACLE is the same formula in double, over arrays of double: the accuracy oracle of the workbench, and what rows of
 * f64 are dispatched to. */
#define QN_TIER_MAP(X) X(ref) X(avx2) X(avx512) X(avx512bf16) X(amx) X(neon) X(oracle)
typedef enum qn_tier {
  QN_TIER_REF,
  QN_TIER_AVX2,
  QN_TIER_AVX512,
  QN_TIER_AVX512BF16, /* avx512 and dot products of pairs of bf16 numbers: of matrix products alone */
  QN_TIER_AMX,        /* avx512 and matrices of bf16 in registers: likewise */
  QN_TIER_NEON,
  QN_TIER_ORACLE,
  QN_TIER_COUNT
} qn_tier;

const char *qn_tier_name(qn_tier tier);
bool qn_tier_built(qn_tier tier);     /* for this architecture */
bool qn_tier_runs_here(qn_tier tier); /* every flag the tier is built with is tested */
/* The best tier at or below the option "cpu" whose entry in the table is not NULL. A tier that the option names and
 * that cannot run here is QN_UNSUPPORTED with a sentence. */
qn_status qn_tier_choose(const void *const *table, qn_tier *tier);
/* Of matrix products of bf16 numbers alone? All other code of such a tier is that of avx512. */
static inline bool qn_tier_of_bf16(qn_tier tier) { return tier == QN_TIER_AVX512BF16 || tier == QN_TIER_AMX; }
/* The same for code that has every tier but those of bf16. */
qn_status qn_tier_in_force(qn_tier *tier);
/* The best tier at or below the option "cpu" that this processor runs, built into this library or left out of it: for
 * what is compiled where it runs. */
qn_status qn_tier_of_compiler(qn_tier *tier);
/* Asks the system, once a process, for room for AMX's registers in the threads' state. False: it has none to give, and
 * the instructions must not run. */
bool qn_tier_permit_amx(void);

/* Declares one function per tier that this build has, and lists them as an initialiser of a table by tier (NULL: none):
 * `QN_CPU_DECLARE(OP, qn_cpu_fn)` and `.cpu = QN_CPU_TABLE(OP)`; those of TIERS without the oracle. */
#if defined(__x86_64__)
#define QN_CPU_DECLARE_TIERS(op, type) type qn_##op##_cpu_ref, qn_##op##_cpu_avx2, qn_##op##_cpu_avx512
#ifdef QN_WITHOUT_AVX512
#define QN_CPU_AVX512(op)
#else
#define QN_CPU_AVX512(op) [QN_TIER_AVX512] = qn_##op##_cpu_avx512,
#endif
#define QN_CPU_TIERS(op) [QN_TIER_REF] = qn_##op##_cpu_ref, QN_CPU_AVX512(op)[QN_TIER_AVX2] = qn_##op##_cpu_avx2
#elif defined(__aarch64__)
#define QN_CPU_DECLARE_TIERS(op, type) type qn_##op##_cpu_ref, qn_##op##_cpu_neon
#define QN_CPU_TIERS(op) [QN_TIER_REF] = qn_##op##_cpu_ref, [QN_TIER_NEON] = qn_##op##_cpu_neon
#else
#define QN_CPU_DECLARE_TIERS(op, type) type qn_##op##_cpu_ref
#define QN_CPU_TIERS(op) [QN_TIER_REF] = qn_##op##_cpu_ref
#endif
#define QN_CPU_DECLARE(op, type) QN_CPU_DECLARE_TIERS(op, type), qn_##op##_cpu_oracle
#define QN_CPU_TABLE(op)                                                                                               \
  {                                                                                                                    \
    QN_CPU_TIERS(op), [QN_TIER_ORACLE] = qn_##op##_cpu_oracle                                                          \
  }
#endif
