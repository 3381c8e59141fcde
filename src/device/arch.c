/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c - what devices are: asked once and remembered, or imitated by order of the option "arch". What follows from an
 * architecture is decided elsewhere. */
#include "device/arch.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "device/backend.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Limits by compute capability: table "Technical Specifications per Compute Capability" of the CUDA C++ Programming
 * Guide. A capability that is not here has those of the nearest one before it. */
static const struct {
  int capability;
  const char *family;
  int shared_block_kib, shared_kib, threads;
} known[] = {
    {50, "maxwell", 48, 64, 2048},     {52, "maxwell", 48, 96, 2048},      {60, "pascal", 48, 64, 2048},
    {61, "pascal", 48, 96, 2048},      {62, "pascal", 48, 64, 2048},       {70, "volta", 96, 96, 2048},
    {75, "turing", 64, 64, 1024},      {80, "ampere", 163, 164, 2048},     {86, "ampere", 99, 100, 1536},
    {87, "ampere", 163, 164, 1536},    {88, "ampere", 99, 100, 1536},      {89, "ada", 99, 100, 1536},
    {90, "hopper", 227, 228, 2048},    {100, "blackwell", 227, 228, 2048}, {110, "blackwell", 227, 228, 1536},
    {120, "blackwell", 99, 100, 1536},
};
enum { N_KNOWN = sizeof known / sizeof *known, REGISTERS = 65536, NEWEST_FAMILY_END = 130 };

static int place_of(int capability)
{
  int place = -1;
  for (int k = 0; k < N_KNOWN && known[k].capability <= capability; k++) place = k;
  return place;
}

static const char *family_of(int capability)
{
  const int place = place_of(capability);
  return place < 0 || capability >= NEWEST_FAMILY_END ? "unknown" : known[place].family;
}

static const char *processor_family(void)
{
#if defined(__x86_64__)
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

static bool gpu_from_name(const char *name, qn_arch *arch)
{
  const char *at = name + 3;
  const size_t digits = strncmp(name, "sm_", 3) ? 0 : strspn(at, "0123456789");
  if (digits < 2 || digits > 3 || *at == '0') return false;
  if (at[digits] && strcmp(at + digits, "a") != 0 && strcmp(at + digits, "f") != 0) return false;
  for (size_t k = 0; k < digits; k++) arch->capability = 10 * arch->capability + (at[k] - '0');
  const int place = place_of(arch->capability);
  if (place < 0) return false;
  snprintf(arch->name, sizeof arch->name, "sm_%d", arch->capability);
  snprintf(arch->family, sizeof arch->family, "%s", family_of(arch->capability));
  arch->shared_block_bytes = known[place].shared_block_kib << 10;
  arch->shared_multiprocessor_bytes = known[place].shared_kib << 10;
  arch->threads_multiprocessor = known[place].threads;
  arch->registers_multiprocessor = REGISTERS;
  return true;
}

bool qn_arch_from_name(const char *name, qn_arch *arch)
{
  qn_arch made = {.size = sizeof made};
  bool good = gpu_from_name(name, &made);
  if (!strcmp(name, "emulator")) {
    good = true;
    snprintf(made.name, sizeof made.name, "emulator");
    snprintf(made.family, sizeof made.family, "emulator");
  }
  for (qn_tier tier = QN_TIER_REF; tier < QN_TIER_ORACLE; tier++) {
    if (strcmp(name, qn_tier_name(tier)) != 0) continue;
    good = true;
    snprintf(made.name, sizeof made.name, "%s", name);
    snprintf(made.family, sizeof made.family, "%s",
             tier == QN_TIER_NEON                             ? "aarch64"
             : tier == QN_TIER_AVX2 || tier == QN_TIER_AVX512 ? "x86-64"
                                                              : processor_family());
  }
  if (good) *arch = made;
  return good;
}

int qn_arch_order(const qn_arch *arch)
{
  if (arch->capability) return arch->capability;
  for (qn_tier tier = QN_TIER_REF; tier < QN_TIER_ORACLE; tier++)
    if (!strcmp(arch->name, qn_tier_name(tier))) return 1 + (int)tier;
  return 0;
}

/* ---- what the option says: read once a thread, and again after any option was set ---- */

typedef struct imitation {
  bool is_set;
  unsigned generation; /* 0: not read */
  qn_arch arch;
} imitation;

static qn_status imitated(const imitation **result)
{
  static _Thread_local imitation kept;
  const unsigned generation = qn_option_generation();
  *result = &kept;
  if (kept.generation == generation) return QN_OK;
  char text[64];
  kept.generation = 0;
  qn_try(qn_option_text(QN_OPTION_ARCH, text, sizeof text));
  kept.is_set = *text != 0;
  qn_require(!kept.is_set || qn_arch_from_name(text, &kept.arch),
             "QUERN_ARCH: \"%s\" is no architecture; \"sm_75\", \"sm_90\", \"avx2\", \"neon\" and \"emulator\" are",
             text);
  kept.generation = generation;
  return QN_OK;
}

/* ---- what the device is ---- */

enum { MOST_DEVICES = 128 }; /* as many as the backend takes */
static struct {
  atomic_bool known[MOST_DEVICES];
  qn_arch arch[MOST_DEVICES];
  pthread_mutex_t lock;
} gpus = {.lock = PTHREAD_MUTEX_INITIALIZER};

static qn_status of_gpu(qn_device device, qn_arch *arch)
{
  qn_arch asked = {.size = sizeof asked};
  if (device.index >= MOST_DEVICES) return qn_backend_cuda.arch(device, arch); /* the backend refuses */
  if (atomic_load_explicit(&gpus.known[device.index], memory_order_acquire)) {
    *arch = gpus.arch[device.index];
    return QN_OK;
  }
  qn_try(qn_backend_cuda.arch(device, &asked)); /* not under the lock: it may be long, and a fork would keep it */
  snprintf(asked.name, sizeof asked.name, "sm_%d", asked.capability);
  snprintf(asked.family, sizeof asked.family, "%s", family_of(asked.capability));
  pthread_mutex_lock(&gpus.lock);
  if (!atomic_load(&gpus.known[device.index])) {
    gpus.arch[device.index] = asked;
    atomic_store_explicit(&gpus.known[device.index], true, memory_order_release);
  }
  pthread_mutex_unlock(&gpus.lock);
  *arch = asked;
  return QN_OK;
}

/* Threads and cache of the processor do not change; which tier may run is the option's to say at any time. */
static qn_status of_processor(qn_device_kind kind, qn_arch *arch)
{
  static _Thread_local qn_arch kept;
  const char *tier = "emulator";
  if (!kept.size) {
    qn_device_info info = {.size = sizeof info};
    qn_try(qn_backend_cpu.query((qn_device){QN_CPU, 0}, &info));
    kept = (qn_arch){.size = sizeof kept, .multiprocessors = info.multiprocessors, .l2_bytes = info.l2_bytes};
  }
  *arch = kept;
  if (kind == QN_CPU) qn_try(qn_cpu_tier(&tier));
  snprintf(arch->name, sizeof arch->name, "%s", tier);
  snprintf(arch->family, sizeof arch->family, "%s", kind == QN_CPU ? processor_family() : "emulator");
  return QN_OK;
}

static void take(const qn_arch *from, qn_arch *arch)
{
  const int multiprocessors = arch->multiprocessors;
  const int64_t l2_bytes = arch->l2_bytes;
  *arch = *from;
  arch->multiprocessors = multiprocessors;
  arch->l2_bytes = l2_bytes;
}

static qn_status check(qn_device device, const qn_arch *arch)
{
  const qn_backend *backend;
  qn_require(arch, "device arch: the result is NULL");
  qn_require(arch->size >= sizeof *arch, "device arch: arch->size is %zu, not sizeof(qn_arch), %zu", arch->size,
             sizeof *arch);
  return qn_backend_of(device, &backend);
}

qn_status qn_device_arch(qn_device device, qn_arch *arch)
{
  qn_arch found = {.size = sizeof found};
  const imitation *option;
  qn_try(check(device, arch));
  if (device.kind == QN_CUDA)
    qn_try(of_gpu(device, &found));
  else
    qn_try(of_processor(device.kind, &found));
  if (device.kind == QN_EMULATOR) {
    qn_try(imitated(&option));
    if (option->is_set) take(&option->arch, &found);
    found.imitated = option->is_set;
  }
  found.size = arch->size;
  *arch = found;
  return QN_OK;
}

qn_status qn_tune_arch(qn_device device, qn_arch *arch)
{
  const imitation *option;
  qn_try(qn_device_arch(device, arch));
  qn_try(imitated(&option));
  const size_t size = arch->size;
  if (option->is_set) take(&option->arch, arch);
  arch->imitated = option->is_set;
  arch->size = size;
  return QN_OK;
}
