/* SPDX-License-Identifier: Apache-2.0 */
/* tier.c - which instruction-set tiers this processor and this system run, and the choice among them. It knows no op:
 * an op brings its own table of kernels by tier. */
#include "cpu/tier.h"
#include "core/core.h"
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const char *const names[] = {
#define X(name) #name,
    QN_TIER_MAP(X)
#undef X
};

#if defined(__x86_64__)
#define TIERS_HERE (1u << QN_TIER_REF | 1u << QN_TIER_AVX2 | 1u << QN_TIER_AVX512 | 1u << QN_TIER_ORACLE)
#elif defined(__aarch64__)
#define TIERS_HERE (1u << QN_TIER_REF | 1u << QN_TIER_NEON | 1u << QN_TIER_ORACLE)
#else
#define TIERS_HERE (1u << QN_TIER_REF | 1u << QN_TIER_ORACLE)
#endif
#ifdef QN_WITHOUT_AVX512
#define WITHOUT 1u << QN_TIER_AVX512
#else
#define WITHOUT 0u
#endif
#ifdef QN_WITH_AVX512BF16
#define WITH_AVX512BF16 1u << QN_TIER_AVX512BF16
#else
#define WITH_AVX512BF16 0u
#endif
#ifdef QN_WITH_AMX
#define WITH_AMX 1u << QN_TIER_AMX
#else
#define WITH_AMX 0u
#endif
#define TIERS_BUILT ((TIERS_HERE & ~(WITHOUT)) | WITH_AVX512BF16 | WITH_AMX)

const char *qn_tier_name(qn_tier tier) { return (unsigned)tier < QN_TIER_COUNT ? names[tier] : "unknown"; }

bool qn_tier_built(qn_tier tier) { return (unsigned)tier < QN_TIER_COUNT && (TIERS_BUILT >> tier & 1); }

#if defined(__x86_64__)
enum { ARCH_GET_XCOMP_SUPP = 0x1021, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 }; /* Linux 5.16 */
#endif

/* The first flag of src/meson.build that a tier is built with and that is missing here, or NULL. The compiler's test of
 * an AVX flag covers the state that the system must save (XCR0) as well; clang does not know the name "f16c". */
static const char *missing_flag(qn_tier tier)
{
#if defined(__x86_64__)
  unsigned a, b, c = 0, d;
  __builtin_cpu_init();
  if (tier < QN_TIER_AVX2 || tier > QN_TIER_AMX) return NULL;
  if (!__builtin_cpu_supports("avx2")) return "avx2";
  if (!__builtin_cpu_supports("fma")) return "fma";
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C)) return "f16c";
  if (tier == QN_TIER_AVX2) return NULL;
  if (!__builtin_cpu_supports("avx512f")) return "avx512f";
  if (!__builtin_cpu_supports("avx512bw")) return "avx512bw";
  if (!__builtin_cpu_supports("avx512dq")) return "avx512dq";
  if (!__builtin_cpu_supports("avx512vl")) return "avx512vl";
  if (tier == QN_TIER_AVX512) return NULL;
  if (tier == QN_TIER_AVX512BF16) return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1u << 5 ? NULL : "avx512-bf16";
  unsigned long supported = 0; /* of the parts of a thread's state that the system keeps on demand */
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 24)) return "amx-tile";
  if (!(d & 1u << 22)) return "amx-bf16";
  if (syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) || !(supported & 1ul << XFEATURE_XTILEDATA))
    return "amx-tile in the system";
#else
  (void)tier; /* NEON belongs to every aarch64 */
#endif
  return NULL;
}

/* A bit for each tier of this architecture that runs here. Looked at once: a step asks each time, and in a virtual
 * machine the question is a trip to the host of some 10 microseconds. Two threads that ask at first find the same. */
static unsigned runs_here(void)
{
  const unsigned known = 1u << 31;
  static atomic_uint seen;
  unsigned run = atomic_load_explicit(&seen, memory_order_relaxed);
  if (!run) {
    run = known;
    for (qn_tier k = 0; k < QN_TIER_COUNT; k++)
      run |= (unsigned)(((TIERS_HERE | TIERS_BUILT) >> k & 1) && !missing_flag(k)) << k;
    atomic_store_explicit(&seen, run, memory_order_relaxed);
  }
  return run;
}

bool qn_tier_runs_here(qn_tier tier)
{
  return (unsigned)tier < QN_TIER_COUNT && (runs_here() & TIERS_BUILT) >> tier & 1;
}

/* The highest tier that the option "cpu" lets run. */
static qn_status allowed(qn_tier *most)
{
  char text[16];
  qn_try(qn_option_text(QN_OPTION_CPU, text, sizeof text));
  *most = QN_TIER_NEON;
  if (!strcmp(text, "auto")) return QN_OK;
  for (*most = QN_TIER_REF; strcmp(text, names[*most]);) ++*most; /* the option's values are tiers' names */
  if (!qn_tier_built(*most))
    return qn_fail(QN_UNSUPPORTED,
                   "cpu tier %s: this library has none: it is of another architecture or left out of this build", text);
  const char *flag = qn_tier_runs_here(*most) ? NULL : missing_flag(*most);
  if (flag) return qn_fail(QN_UNSUPPORTED, "cpu tier %s: this processor or system has no %s", text, flag);
  return QN_OK;
}

qn_status qn_tier_choose(const void *const *table, qn_tier *tier)
{
  qn_tier most;
  qn_try(allowed(&most));
  for (int k = (int)most; k >= QN_TIER_REF; k--)
    if (table[k] && qn_tier_runs_here((qn_tier)k)) {
      *tier = (qn_tier)k;
      return QN_OK;
    }
  return qn_fail(QN_UNSUPPORTED, "cpu tier %s and below: there is no kernel", qn_tier_name(most));
}

qn_status qn_tier_in_force(qn_tier *tier)
{
  const void *table[QN_TIER_COUNT];
  for (size_t k = 0; k < QN_TIER_COUNT; k++) table[k] = qn_tier_of_bf16((qn_tier)k) ? NULL : names[k];
  return qn_tier_choose(table, tier);
}

qn_status qn_tier_of_compiler(qn_tier *tier)
{
  qn_tier most;
  qn_try(allowed(&most));
  while (qn_tier_of_bf16(most) || !(runs_here() >> most & 1)) --most; /* ref runs everywhere */
  *tier = most;
  return QN_OK;
}

qn_status qn_cpu_tier(const char **name)
{
  qn_tier tier;
  qn_require(name, "cpu tier: the place for the name is NULL");
  qn_try(qn_tier_in_force(&tier));
  *name = names[tier];
  return QN_OK;
}

bool qn_tier_permit_amx(void)
{
#if defined(__x86_64__)
  enum { UNKNOWN, NO, YES };
  static atomic_int known;
  int answer = atomic_load_explicit(&known, memory_order_relaxed);
  if (answer == UNKNOWN) {
    answer = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) ? NO : YES;
    atomic_store_explicit(&known, answer, memory_order_relaxed);
  }
  return answer == YES;
#else
  return false;
#endif
}
