/* SPDX-License-Identifier: Apache-2.0 */
/* variant.c - the variants of an op, one by one: the processor's tiers, then what device kernels are compiled for;
 * which of them could run here now, which a call would take, and why. It looks and compiles nothing. */
#include "core/core.h"
#include "op/call.h"
#include "quern/arch.h"
#include "quern/device.h"
#include <stdio.h>
#include <string.h>

static const qn_tier tiers[] = {QN_TIER_REF,        QN_TIER_AVX2, QN_TIER_AVX512,
                                QN_TIER_AVX512BF16, QN_TIER_AMX,  QN_TIER_NEON};
/* The architectures that the device sources are compiled for in tests; the driver's own is compiled for at run time. */
static const char *const archs[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};
enum {
  N_TIERS = sizeof tiers / sizeof tiers[0],
  N_ARCHS = sizeof archs / sizeof archs[0],
};

size_t qn_op_variant_count(const qn_op_info *op)
{
  if (!op) return 0;
  return N_TIERS + (qn_op_of(op)->device_source ? 1 + N_ARCHS : 0);
}

/* An op whose description names no kernels of tiers has every tier that is built, but those of bf16 only where it says
 * so. */
static bool has_tier(const qn_op *op, qn_tier tier)
{
  if (qn_tier_of_bf16(tier) && !op->bf16_tiers) return false;
  return op->cpu[QN_TIER_REF] ? op->cpu[tier] != NULL : qn_tier_built(tier) && tier != QN_TIER_ORACLE;
}

static void say_tier(const qn_op *op, qn_tier tier, qn_variant *v)
{
  const void *table[QN_TIER_COUNT];
  qn_tier best;
  v->backend = "cpu";
  v->name = qn_tier_name(tier);
  v->available = has_tier(op, tier) && qn_tier_runs_here(tier);
  v->state = v->available ? "runs" : "compiled only";
  for (size_t k = 0; k < QN_TIER_COUNT; k++) table[k] = has_tier(op, (qn_tier)k) ? op : NULL;
  if (qn_tier_choose(table, &best) != QN_OK)
    snprintf(v->why, sizeof v->why, "%s", qn_last_error());
  else if (best == tier)
    v->chosen = 1, snprintf(v->why, sizeof v->why, "the best that runs here and that the option \"cpu\" allows");
  else if (!qn_tier_built(tier))
    snprintf(v->why, sizeof v->why, "of another architecture, and tested there, or left out of this build");
  else if (!has_tier(op, tier))
    snprintf(v->why, sizeof v->why, "this op has no kernel of it: another tier's runs");
  else if (!v->available)
    snprintf(v->why, sizeof v->why, "this processor or system lacks an instruction set of it");
  else
    snprintf(v->why, sizeof v->why, "it would run; %s %s", qn_tier_name(best),
             best > tier ? "is better" : "is what the option \"cpu\" allows");
}

static void say_host(qn_variant *v)
{
  qn_device_info info = {.size = sizeof info};
  v->backend = "emulator";
  v->name = "c++";
  v->available = qn_device_query((qn_device){QN_EMULATOR, 0}, &info) == QN_OK && info.compiler_version > 0;
  v->chosen = v->available;
  v->state = v->available ? "runs" : "emitted only";
  if (v->available)
    snprintf(v->why, sizeof v->why, "the device source, compiled by %.100s", info.compiler_path);
  else
    snprintf(v->why, sizeof v->why, "%s", qn_last_error());
}

static void say_arch(const char *arch, qn_variant *v)
{
  const qn_device gpu = {QN_CUDA, 0};
  qn_device_info info = {.size = sizeof info};
  qn_arch here = {.size = sizeof here};
  int count = 0;
  v->backend = "cuda";
  v->name = arch;
  const bool found = qn_device_count(QN_CUDA, &count) == QN_OK && count > 0 && qn_device_query(gpu, &info) == QN_OK &&
                     qn_device_arch(gpu, &here) == QN_OK;
  v->chosen = v->available = found && !strcmp(here.name, arch) && info.compiler_version > 0;
  v->state = v->available ? "runs" : "compiled only";
  if (!found)
    snprintf(v->why, sizeof v->why, "%s", qn_last_error());
  else if (v->available)
    snprintf(v->why, sizeof v->why, "compiled at run time for cuda:0, %.80s", info.name);
  else if (strcmp(here.name, arch))
    snprintf(v->why, sizeof v->why, "cuda:0 is %s", here.name);
  else
    snprintf(v->why, sizeof v->why, "%s", qn_last_error());
}

qn_status qn_op_variant_at(const qn_op_info *op, size_t k, qn_variant *variant)
{
  qn_require(op, "op is NULL");
  qn_require(variant && variant->size >= sizeof *variant, "%s: the variant is NULL or its size is not set", op->name);
  qn_require(k < qn_op_variant_count(op), "%s: variant %zu, there are %zu", op->name, k, qn_op_variant_count(op));
  *variant = (qn_variant){.size = variant->size};
  if (k < N_TIERS)
    say_tier(qn_op_of(op), tiers[k], variant);
  else if (k == N_TIERS)
    say_host(variant);
  else
    say_arch(archs[k - N_TIERS - 1], variant);
  return QN_OK;
}
