/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_device.c - `quern doctor` on devices: what is there, and whether a real kernel, compiled and launched now,
 * gives the right bits. One golden case stands for all ops; checking them is the work of `quern check`. */
#include "cli/doctor.h"
#include "cpu/tier.h"
#include "device/cuda/nvrtc.h"
#include "workbench/check.h"
#include "workbench/human.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether the first golden case of the first op, computed there, has its bits. `mend`: if it could not be computed. */
static bool try_out(qn_doctor *doctor, qn_device device, const char *topic, const char *mend)
{
  static const qn_check_options quick = {.level = QN_QUICK};
  const qn_op *op = qn_ops[0];
  const qn_item item = {.leg = QN_LEG_GOLDEN, .target = {.op = op, .device = device}};
  qn_trial trial = {.options = &quick, .item = &item};
  char check[96];
  const double began = seconds();
  qn_leg_golden(&trial);
  const double ms = 1e3 * (seconds() - began);
  const bool right = !trial.failure && trial.elements;
  const int line = trial.failure ? (int)strcspn(trial.failure, "\n") : 0;
  snprintf(check, sizeof check, "quern check %s --backend %s", op->info.name, qn_device_kind_name(device.kind));
  if (right)
    qn_doctor_say(doctor, QN_DOCTOR_OK, topic, NULL, "golden steps of %s ran in %.*f ms: %llu numbers, every bit right",
                  op->info.name, ms < 10 ? 2 : 0, ms, (unsigned long long)trial.elements);
  else
    qn_doctor_say(doctor, QN_DOCTOR_MEND, topic, trial.elements || !mend ? check : mend, "%s: a golden step %s: %.*s",
                  op->info.name, trial.elements ? "gave wrong bits" : "failed", line,
                  trial.failure ? trial.failure : "");
  qn_trial_free(&trial);
  return right;
}

/* What it means that something is not here: nothing, unless it was asked for by --require or named in an option. In
 * the latter case *mend becomes the way to have it looked for again. */
static qn_doctor_finding without(const qn_doctor *doctor, qn_device_kind kind, const char *option, const char **mend)
{
  static char unset[64];
  const char *value = "";
  bool named = qn_option_get(option, &value) == QN_OK && *value;
  for (size_t k = 0; named && k < qn_option_count(); k++)
    if (!strcmp(qn_option_at(k)->name, option)) snprintf(unset, sizeof unset, "unset %s", qn_option_at(k)->variable);
  if (named) *mend = unset;
  return named || doctor->needs[kind] ? QN_DOCTOR_MEND : QN_DOCTOR_NONE;
}

/* What the option "arch" makes of the device, where it is set. */
static bool say_arch(qn_doctor *doctor, qn_device device, const char *topic)
{
  qn_arch arch = {.size = sizeof arch};
  if (qn_tune_arch(device, &arch) != QN_OK) {
    qn_doctor_say(doctor, QN_DOCTOR_MEND, topic, "unset QUERN_ARCH", "%s", qn_last_error());
    return false;
  }
  if (arch.imitated)
    qn_doctor_say(doctor, QN_DOCTOR_OK, topic, NULL, "%s %s (%s), by QUERN_ARCH",
                  device.kind == QN_EMULATOR ? "imitates" : "what it is stays, and takes the tune tables of", arch.name,
                  arch.family);
  return true;
}

/* ---- the processor ---- */
static void tiers_text(qn_text *text)
{
  for (qn_tier tier = 0; tier < QN_TIER_ORACLE; tier++)
    if (qn_tier_built(tier))
      qn_text_add(text, "%s%s%s", text->length ? ", " : "", qn_tier_name(tier),
                  qn_tier_runs_here(tier) ? "" : " (not on this processor)");
}

bool qn_doctor_cpu(qn_doctor *doctor)
{
  qn_device cpu = {QN_CPU, 0};
  qn_device_info info = {.size = sizeof info};
  const char *chosen;
  qn_text tiers = {0};
  if (qn_device_query(cpu, &info) == QN_OK)
    qn_doctor_say(doctor, QN_DOCTOR_OK, "cpu", NULL, "%s, %d threads, %s of memory", info.name, info.multiprocessors,
                  qn_human_bytes(info.memory_bytes).text);
  else
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "cpu", "mount -t proc proc /proc", "%s", qn_last_error());
  if (qn_option_get("cpu", &chosen) != QN_OK) return false; /* reported with the options */
  tiers_text(&tiers);
  if (qn_cpu_tier(&chosen) == QN_OK)
    qn_doctor_say(doctor, QN_DOCTOR_OK, "cpu", NULL, "tiers built: %s; %s would run", tiers.at ? tiers.at : "none",
                  chosen);
  else
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "cpu", "unset QUERN_CPU", "%s", qn_last_error());
  qn_text_free(&tiers);
  return try_out(doctor, cpu, "cpu", NULL);
}

/* ---- device sources on the processor ---- */
bool qn_doctor_emulator(qn_doctor *doctor)
{
  const char *mend = "apt-get install g++   # or export QUERN_CXX=/path/to/c++";
  qn_device emulator = {QN_EMULATOR, 0};
  qn_device_info info = {.size = sizeof info};
  if (qn_device_query(emulator, &info) != QN_OK || !info.compiler_version) {
    const char *why = qn_last_error();
    qn_doctor_finding finding = without(doctor, QN_EMULATOR, "cxx", &mend);
    qn_doctor_say(doctor, finding, "emulator", mend, "device sources cannot be run without a GPU: %s", why);
    return false;
  }
  qn_doctor_say(doctor, QN_DOCTOR_OK, "emulator", NULL, "C++ compiler %s, version %d.%d", info.compiler_path,
                info.compiler_version / 1000, info.compiler_version % 1000 / 10);
  if (!say_arch(doctor, emulator, "emulator")) return false;
  return try_out(doctor, emulator, "emulator", mend);
}

/* ---- NVIDIA GPUs ---- */
/* pip leaves a system's own Python alone with --target, and quern looks there. An NVRTC newer than the driver's CUDA
 * would make kernels that the driver cannot load. */
static const char *nvrtc_mend(int driver_version)
{
  return driver_version && driver_version < 13000
             ? "pip install --upgrade --target ~/.local/lib/python3/site-packages nvidia-cuda-nvrtc-cu12"
             : "pip install --upgrade --target ~/.local/lib/python3/site-packages nvidia-cuda-nvrtc";
}

/* Whether it is there and knows the GPU's architecture. gpu NULL: there is none, and none is missed. What is fine is
 * said if `first`, once for all GPUs. */
static bool examine_nvrtc(qn_doctor *doctor, const qn_device_info *gpu, bool first)
{
  const qn_nvrtc *nvrtc;
  const char *mend = nvrtc_mend(gpu ? gpu->driver_version : 0);
  qn_status status = qn_nvrtc_open(&nvrtc);
  if (status != QN_OK) {
    qn_doctor_finding finding = without(doctor, QN_CUDA, "libnvrtc", &mend);
    bool wrong = gpu || status != QN_NO_LIBRARY;
    qn_doctor_say(doctor, wrong ? QN_DOCTOR_MEND : finding, "nvrtc", mend, "%s", qn_last_error());
    return false;
  }
  bool known = !gpu;
  for (int k = 0; k < nvrtc->n_archs; k++) known = known || nvrtc->arch[k] == gpu->arch;
  int least = nvrtc->n_archs ? nvrtc->arch[0] : 0, most = nvrtc->n_archs ? nvrtc->arch[nvrtc->n_archs - 1] : 0;
  if (known && first)
    qn_doctor_say(doctor, QN_DOCTOR_OK, "nvrtc", NULL, "%d.%d, %s, compiles for sm_%d to sm_%d", nvrtc->version / 1000,
                  nvrtc->version % 1000 / 10, nvrtc->path, least, most);
  if (!known)
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "nvrtc", mend, "%d.%d, %s, compiles for sm_%d to sm_%d; the GPU is sm_%d",
                  nvrtc->version / 1000, nvrtc->version % 1000 / 10, nvrtc->path, least, most, gpu->arch);
  return known;
}

static bool examine_gpu(qn_doctor *doctor, int index, bool first)
{
  char topic[24];
  qn_device device = {QN_CUDA, index};
  qn_device_info info = {.size = sizeof info};
  snprintf(topic, sizeof topic, "cuda:%d", index);
  if (qn_device_query(device, &info) != QN_OK) {
    qn_doctor_say(doctor, QN_DOCTOR_MEND, topic, "nvidia-smi   # says whether the driver sees it", "%s",
                  qn_last_error());
    return false;
  }
  if (first)
    qn_doctor_say(doctor, QN_DOCTOR_OK, "driver", NULL, "CUDA %d.%d, %s", info.driver_version / 1000,
                  info.driver_version % 1000 / 10, info.driver_path);
  qn_doctor_say(doctor, QN_DOCTOR_OK, topic, NULL, "%s, sm_%d, %d multiprocessors, %s of memory, %s free", info.name,
                info.arch, info.multiprocessors, qn_human_bytes(info.memory_bytes).text,
                qn_human_bytes(info.free_bytes).text);
  if (!say_arch(doctor, device, topic)) return false;
  return examine_nvrtc(doctor, &info, first) && try_out(doctor, device, topic, NULL);
}

bool qn_doctor_cuda(qn_doctor *doctor, int index)
{
  int count = 0;
  if (qn_device_count(QN_CUDA, &count) != QN_OK) {
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "cuda", "apt-get install --reinstall nvidia-driver   # then reboot", "%s",
                  qn_last_error());
    return false;
  }
  if (count == 0) {
    const char *mend = "apt-get install nvidia-driver   # on a machine with an NVIDIA GPU";
    qn_doctor_finding finding = without(doctor, QN_CUDA, "libcuda", &mend);
    qn_doctor_say(doctor, finding, "cuda", mend, "no GPU to use: %s", qn_last_error());
    examine_nvrtc(doctor, NULL, true);
    return false;
  }
  if (index >= count) {
    qn_doctor_say(doctor, QN_DOCTOR_MEND, "cuda", "quern doctor --require cuda",
                  "cuda:%d: there are %d, counted from 0", index, count);
    return false;
  }
  int from = index < 0 ? 0 : index, to = index < 0 ? count : index + 1;
  bool works = true;
  for (int k = from; k < to; k++) works &= examine_gpu(doctor, k, k == from);
  return works;
}
