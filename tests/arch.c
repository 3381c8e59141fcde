/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c - what a device is, asked of a driver that is a mock, of the processor, and imitated by the emulator. */
#include "core/core.h"
#include "device/arch.h"
#include "mock/scenario.h"
#include "quern/device.h"

static const qn_device cpu = {QN_CPU, 0}, gpu = {QN_CUDA, 0}, emulator = {QN_EMULATOR, 0};

static void names(void)
{
  static const struct {
    const char *name, *is, *family;
    int capability, shared_kib;
  } good[] = {{"sm_75", "sm_75", "turing", 75, 64},
              {"sm_80", "sm_80", "ampere", 80, 163},
              {"sm_86", "sm_86", "ampere", 86, 99},
              {"sm_89", "sm_89", "ada", 89, 99},
              {"sm_90a", "sm_90", "hopper", 90, 227},
              {"sm_100", "sm_100", "blackwell", 100, 227},
              {"sm_103f", "sm_103", "blackwell", 103, 227},
              {"sm_120", "sm_120", "blackwell", 120, 99},
              {"sm_140", "sm_140", "unknown", 140, 99},
              {"avx512", "avx512", "x86-64", 0, 0},
              {"avx2", "avx2", "x86-64", 0, 0},
              {"neon", "neon", "aarch64", 0, 0},
              {"emulator", "emulator", "emulator", 0, 0}};
  static const char *const bad[] = {"",        "sm",      "sm_", "sm_9",  "sm_0",   "sm_040", "sm_90b",
                                    "sm_90aa", "sm_1234", "90",  "sm_40", "oracle", "hopper", "avx5121"};
  for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
    qn_arch a = {.size = 0};
    check(qn_arch_from_name(good[k].name, &a) && !strcmp(a.name, good[k].is) && !strcmp(a.family, good[k].family) &&
              a.capability == good[k].capability && a.shared_block_bytes == good[k].shared_kib << 10,
          "%s is %s of %s", good[k].name, a.name, a.family);
  }
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    qn_arch a = {.size = 7};
    check(!qn_arch_from_name(bad[k], &a) && a.size == 7, "\"%s\" is none", bad[k]);
  }
  qn_arch a, b;
  qn_arch_from_name("avx2", &a);
  qn_arch_from_name("avx512", &b);
  check(qn_arch_order(&a) < qn_arch_order(&b), "avx2 is older than avx512");
}

static void of_the_processor(void)
{
  qn_arch a = {.size = sizeof a};
  const char *tier = "";
  check(qn_device_arch(cpu, &a) == QN_OK && qn_cpu_tier(&tier) == QN_OK && !strcmp(a.name, tier), "the processor is %s",
        a.name);
  check(a.multiprocessors > 0 && !a.capability && !a.imitated && strcmp(a.family, "emulator") != 0, "of %s, %d threads",
        a.family, a.multiprocessors);
  qn_option_set("cpu", "ref");
  check(qn_device_arch(cpu, &a) == QN_OK && !strcmp(a.name, "ref"), "the option \"cpu\" counts");
  qn_option_set("cpu", NULL);
  check(qn_device_arch(emulator, &a) == QN_OK && !strcmp(a.name, "emulator") && !a.imitated, "the emulator is itself");
  a.size = 8;
  refuses(qn_device_arch(cpu, &a), QN_BAD_ARGUMENT, "arch->size is 8");
  refuses(qn_device_arch(cpu, NULL), QN_BAD_ARGUMENT, "result is NULL");
  a.size = sizeof a;
  refuses(qn_device_arch((qn_device){QN_CPU, 1}, &a), QN_NO_DEVICE, "only cpu:0");
}

static void imitates(void)
{
  qn_arch a = {.size = sizeof a};
  int threads = qn_device_arch(emulator, &a) == QN_OK ? a.multiprocessors : -1;
  qn_option_set("arch", "sm_100");
  check(qn_device_arch(emulator, &a) == QN_OK && !strcmp(a.name, "sm_100") && !strcmp(a.family, "blackwell") &&
            a.imitated && a.capability == 100 && a.multiprocessors == threads && a.shared_block_bytes == 227 << 10,
        "the emulator imitates %s, %d threads", a.name, a.multiprocessors);
  check(qn_device_arch(cpu, &a) == QN_OK && !a.imitated && !a.capability, "the processor stays what it is");
  check(qn_tune_arch(cpu, &a) == QN_OK && !strcmp(a.name, "sm_100") && a.imitated, "but for the tables");
  qn_option_set("arch", "sm_9x");
  refuses(qn_device_arch(emulator, &a), QN_BAD_ARGUMENT, "\"sm_9x\" is no architecture");
  check(qn_device_arch(cpu, &a) == QN_OK, "which is nothing to the processor");
  qn_option_set("arch", NULL);
  check(qn_device_arch(emulator, &a) == QN_OK && !strcmp(a.name, "emulator"), "and is itself again");
}

static void of_a_gpu(void)
{
  qn_arch a = {.size = sizeof a};
  check(qn_device_arch(gpu, &a) == QN_OK, "a GPU: %s", qn_last_error());
  check(!strcmp(a.name, "sm_86") && !strcmp(a.family, "ampere") && a.capability == 86 && a.multiprocessors == 4 &&
            a.l2_bytes == 1 << 20 && a.shared_block_bytes == 227 << 10 && a.shared_multiprocessor_bytes == 228 << 10 &&
            a.registers_multiprocessor == 65536 && a.threads_multiprocessor == 2048,
        "%s of %s, as the driver says", a.name, a.family);
  size_t calls = mock()->calls("cuDeviceGetAttribute");
  check(qn_device_arch(gpu, &a) == QN_OK && mock()->calls("cuDeviceGetAttribute") == calls, "it is asked once");
  qn_option_set("arch", "sm_100");
  check(qn_device_arch(gpu, &a) == QN_OK && !strcmp(a.name, "sm_86") && !a.imitated, "a GPU is what it is");
  check(qn_tune_arch(gpu, &a) == QN_OK && !strcmp(a.name, "sm_100") && a.multiprocessors == 4 && a.imitated,
        "its tables are those of %s", a.name);
  refuses(qn_device_arch((qn_device){QN_CUDA, 1}, &a), QN_NO_DEVICE, "cuda:1");
  refuses(qn_device_arch((qn_device){QN_CUDA, 500}, &a), QN_NO_DEVICE, "cuda:500");
}

static void failing(void)
{
  qn_arch a = {.size = sizeof a, .multiprocessors = -3};
  int n;
  (void)qn_device_count(QN_CUDA, &n);
  size_t tries = 0;
  bool well = false;
  for (; tries < 20 && !well; tries++) {
    mock()->fail_next(1 + tries, 700);
    well = qn_device_arch(gpu, &a) == QN_OK;
    if (!well && !check(a.multiprocessors == -3 && strstr(qn_last_error(), "700"), "call %zu fails: %s", tries + 1,
                        qn_last_error()))
      break;
  }
  check(well && tries > 5 && a.multiprocessors == 4, "a driver that fails is asked again, %zu times", tries);
}

int main(void)
{
  names();
  of_the_processor();
  imitates();
  scenario(MOCK_CUDA, "arch=86", MOCK_NVRTC, "", of_a_gpu);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", failing);
  return test_end();
}
