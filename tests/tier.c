/* SPDX-License-Identifier: Apache-2.0 */
/* tier.c - tests of the choice of instruction-set tiers, the floating-point control word and the processor's device
 * table. That kernels keep the bits under a strange control word is tested with the ops. */
#include "core/core.h"
#include "cpu/tier.h"
#include "device/backend.h"
#include "test.h"
#include <fenv.h>
#include <time.h>

#if defined(__x86_64__)
/* The flags of /proc/cpuinfo, independent of our own detection. */
static bool kernel_lists(const char *flag)
{
  static char text[1 << 16];
  char word[32];
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (!file) return false;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  snprintf(word, sizeof word, " %s ", flag);
  const char *flags = strstr(text, "\nflags");
  return flags && strstr(flags, word);
}
#endif

static void test_detection(void)
{
  check(qn_tier_built(QN_TIER_REF) && qn_tier_runs_here(QN_TIER_REF), "ref is built and runs everywhere");
#if defined(__x86_64__)
  bool avx2 = kernel_lists("avx2") && kernel_lists("fma") && kernel_lists("f16c");
  bool avx512 = avx2 && kernel_lists("avx512f") && kernel_lists("avx512bw") && kernel_lists("avx512dq") &&
                kernel_lists("avx512vl");
  check(qn_tier_runs_here(QN_TIER_AVX2) == avx2, "avx2 %s, as the kernel says", avx2 ? "runs" : "does not run");
  qn_tier best;
  qn_option_set("cpu", "auto");
  check(!qn_tier_of_compiler(&best) && best == (avx512 ? QN_TIER_AVX512
                                                : avx2 ? QN_TIER_AVX2
                                                       : QN_TIER_REF),
        "kernels are compiled for the processor, whatever this build left out: %s", qn_tier_name(best));
  qn_option_set("cpu", NULL);
  avx512 = avx512 && qn_tier_built(QN_TIER_AVX512);
  check(qn_tier_runs_here(QN_TIER_AVX512) == avx512, "avx512 %s, as the kernel says", avx512 ? "runs" : "does not run");
  const bool bf16 = avx512 && qn_tier_built(QN_TIER_AVX512BF16) && kernel_lists("avx512_bf16");
  check(qn_tier_runs_here(QN_TIER_AVX512BF16) == bf16, "avx512bf16 %s, as the kernel says",
        bf16 ? "runs" : "does not run");
  const bool amx = avx512 && qn_tier_built(QN_TIER_AMX) && kernel_lists("amx_tile") && kernel_lists("amx_bf16");
  check(qn_tier_runs_here(QN_TIER_AMX) == amx, "amx %s, as the kernel says", amx ? "runs" : "does not run");
  check(!amx || qn_tier_permit_amx(), "and the system gives it room for its registers");
  check(!qn_tier_built(QN_TIER_NEON) && !qn_tier_runs_here(QN_TIER_NEON), "neon is not built for x86");
#elif defined(__aarch64__)
  check(qn_tier_runs_here(QN_TIER_NEON) && !qn_tier_built(QN_TIER_AVX2), "neon runs on every aarch64, avx2 on none");
#endif
  check(!qn_tier_built(QN_TIER_COUNT) && !qn_tier_built((qn_tier)-1) && !strcmp(qn_tier_name(QN_TIER_COUNT), "unknown"),
        "a value that is no tier is none");
}

static void test_choice(void)
{
  const void *all[QN_TIER_COUNT], *only_ref[QN_TIER_COUNT] = {[QN_TIER_REF] = "ref"}, *none[QN_TIER_COUNT] = {NULL};
  const char *name = NULL;
  qn_tier tier;
  qn_tier best = QN_TIER_REF;
  for (int k = 0; k < QN_TIER_COUNT; k++) all[k] = "kernel";
  for (int k = QN_TIER_REF; k <= QN_TIER_NEON; k++)
    if (qn_tier_runs_here((qn_tier)k)) best = (qn_tier)k;
  qn_option_set("cpu", "auto");
  check(qn_tier_choose(all, &tier) == QN_OK && tier == best, "auto chooses the best that runs: %s", qn_tier_name(tier));
  check(qn_tier_in_force(&tier) == QN_OK && tier == (qn_tier_of_bf16(best) ? QN_TIER_AVX512 : best),
        "code without products of bf16 has no tier of these");
  check(qn_cpu_tier(&name) == QN_OK && !strcmp(name, qn_tier_name(tier)), "and that is what is said: %s", name);
  check(qn_tier_choose(only_ref, &tier) == QN_OK && tier == QN_TIER_REF, "an op without wide kernels gets ref");
  refuses(qn_tier_choose(none, &tier), QN_UNSUPPORTED, "there is no kernel");
  for (int k = QN_TIER_REF; k <= QN_TIER_NEON; k++) {
    qn_option_set("cpu", qn_tier_name((qn_tier)k));
    if (qn_tier_runs_here((qn_tier)k))
      check(qn_tier_choose(all, &tier) == QN_OK && tier == (qn_tier)k && !qn_tier_of_compiler(&tier) &&
                tier == (qn_tier_of_bf16((qn_tier)k) ? QN_TIER_AVX512 : (qn_tier)k),
            "%s can be forced", qn_tier_name((qn_tier)k));
    else
      refuses(qn_tier_choose(all, &tier), QN_UNSUPPORTED, qn_tier_name((qn_tier)k));
  }
  refuses(qn_cpu_tier(NULL), QN_BAD_ARGUMENT, "NULL");
  qn_option_set("cpu", NULL);
}

static void test_control_word(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
  fesetround(FE_UPWARD);
#if defined(__x86_64__)
  const unsigned strange = __builtin_ia32_stmxcsr() | 0x8040 | 0x3D; /* flush, denormals are zero, all sticky flags */
  __builtin_ia32_ldmxcsr(strange);
#endif
  volatile float tiny = 1e-40f, one = 1.0f, little = 1e-10f;
  bool upward = one + little > one;
  qn_fp_word word = qn_fp_enter();
  bool keeps = tiny + tiny != 0, nearest = one + little == one;
  qn_fp_leave(word);
  upward &= one + little > one;
#if defined(__x86_64__)
  check(__builtin_ia32_stmxcsr() == strange, "the word comes back whole");
#endif
  fesetenv(FE_DFL_ENV);
  check(keeps && nearest, "inside, denormals stand and rounding is to nearest");
  check(upward, "outside, the caller's rounding is as it was: upward");
#endif
}

static void test_device(void)
{
  const qn_backend *cpu = &qn_backend_cpu;
  const qn_device device = {QN_CPU, 0};
  qn_device_info info = {.size = sizeof info};
  check(cpu->query(device, &info) == QN_OK && info.name[0] && info.multiprocessors >= 1 &&
            info.memory_bytes > 1 << 20 && info.free_bytes > 0 && info.free_bytes <= info.memory_bytes &&
            info.l2_bytes >= 0,
        "%s, %d threads, %lld of %lld bytes free, last cache %lld", info.name, info.multiprocessors,
        (long long)info.free_bytes, (long long)info.memory_bytes, (long long)info.l2_bytes);
  unsigned char *memory = NULL, host[100];
  check(cpu->memory_allocate(device, 300, (void **)&memory) == QN_OK && (uintptr_t)memory % 256 == 0,
        "memory is aligned to 256 bytes");
  cpu->memory_fill(device, NULL, memory, 0xA5, 300);
  memset(host, 7, sizeof host);
  cpu->memory_write(device, NULL, memory + 100, host, 100);
  cpu->memory_copy(device, NULL, memory + 150, memory + 100, 100);
  cpu->memory_read(device, NULL, host, memory + 200, 100);
  check(memory[99] == 0xA5 && memory[100] == 7 && host[49] == 7 && host[50] == 0xA5,
        "write, overlapping copy, read and fill move what they should");
  cpu->memory_release(device, memory);
  refuses(cpu->memory_allocate(device, SIZE_MAX - 1000, (void **)&memory), QN_NO_MEMORY,
          "cpu: 18446744073709550615 bytes");
  qn_event *from = NULL, *to = NULL;
  double ns = -1;
  check(cpu->event_create(device, &from) == QN_OK && cpu->event_create(device, &to) == QN_OK &&
            from->device.kind == QN_CPU,
        "events know their device");
  cpu->event_record(device, NULL, from);
  refuses(cpu->event_elapsed(device, from, to, &ns), QN_BAD_ARGUMENT, "the second one was never recorded");
  nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  cpu->event_record(device, NULL, to);
  check(cpu->event_elapsed(device, from, to, &ns) == QN_OK && ns >= 2e6 && ns < 60e9,
        "2 ms of sleep are %.0f ns between events", ns);
  cpu->event_destroy(device, &from);
  cpu->event_destroy(device, &to);
  check(!from && !to, "destroyed events are NULL");
}

int main(void)
{
  test_detection();
  test_choice();
  test_control_word();
  test_device();
  return test_end();
}
