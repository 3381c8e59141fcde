/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.c - which variant solves a problem on a device: the one that the option "gemm" names, else, of those that
 * can, the one whose guessed time is least. qn_op_last_variant() tells which it was. No variant is named here. */
#include "core/core.h"
#include "op/gemm/gemm.h"
#include "op/geometry.h"
#include <string.h>

static const qn_gemm_variant *const families[] = {qn_gemm_hopper, qn_gemm_mma, qn_gemm_sliced, qn_gemm_plain,
                                                  qn_gemm_cublas};
enum { FAMILIES = sizeof families / sizeof families[0], VARIANTS_MOST = 256 };

static qn_status target_of(qn_device device, qn_gemm_target *target)
{
  *target = (qn_gemm_target){.device = device, .arch.size = sizeof target->arch};
  return qn_device_arch(device, &target->arch);
}

/* ---- which ---- */

const char *qn_gemm_variant_name(size_t k)
{
  for (size_t f = 0; f < FAMILIES; f++)
    for (const qn_gemm_variant *v = families[f]; v->name; v++)
      if (!k--) return v->name;
  return NULL;
}

/* Why it cannot, or NULL. */
static const char *refusal(const qn_gemm_variant *v, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  if (!(v->precisions >> problem->precision & 1)) return "it has no such class of precision";
  return v->refuses(v, problem, target);
}

static const char *lack(const qn_gemm_variant *v, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  return v->lacks ? v->lacks(v, problem, target) : NULL;
}

static qn_status forced(const char *name, const qn_gemm_problem *problem, const qn_gemm_target *target,
                        const qn_gemm_variant **variant)
{
  const char *names[VARIANTS_MOST + 1] = {NULL};
  size_t n = 0;
  for (size_t f = 0; f < FAMILIES; f++)
    for (const qn_gemm_variant *v = families[f]; v->name; v++) {
      if (n < VARIANTS_MOST) names[n++] = v->name;
      if (strcmp(v->name, name) != 0) continue;
      const char *why = refusal(v, problem, target);
      if (!why) why = lack(v, problem, target);
      if (why)
        return qn_fail(QN_UNSUPPORTED, "gemm_norm: the variant %s, which the option gemm asks for, cannot do this: %s",
                       name, why);
      *variant = v;
      return QN_OK;
    }
  const char *near = qn_nearest(name, names);
  return qn_fail(QN_BAD_ARGUMENT, "the option gemm (QUERN_GEMM) is \"%s\", and there is no such variant%s%s", name,
                 near ? "; did you mean " : "", near ? near : "");
}

/* The option's value, read once a thread and again after any option was set. */
static qn_status option(const char **name)
{
  static _Thread_local struct {
    unsigned generation; /* 0: not read */
    char text[96];
  } kept;
  const unsigned generation = qn_option_generation();
  *name = kept.text;
  if (kept.generation == generation) return QN_OK;
  kept.generation = 0;
  qn_try(qn_option_text(QN_OPTION_GEMM, kept.text, sizeof kept.text));
  kept.generation = generation;
  return QN_OK;
}

static qn_status choose(const qn_gemm_problem *problem, const qn_gemm_target *target, const qn_gemm_variant **variant,
                        const char **why)
{
  const char *name;
  double best = 0;
  *variant = NULL;
  qn_try(option(&name));
  *why = "forced";
  if (*name) return forced(name, problem, target, variant);
  *why = "the rule";
  for (size_t f = 0; f < FAMILIES; f++)
    for (const qn_gemm_variant *v = families[f]; v->name; v++) {
      if (refusal(v, problem, target)) continue;
      const double guess = v->guess_us(v, problem, target);
      if ((*variant && guess >= best) || lack(v, problem, target)) continue;
      *variant = v;
      best = guess;
    }
  return *variant ? QN_OK : qn_fail(QN_UNSUPPORTED, "gemm_norm: no variant can do this on this device");
}

qn_status qn_gemm_device_run(const qn_gemm_problem *problem, const qn_exec *exec, bool prepare)
{
  qn_gemm_target target;
  const qn_gemm_variant *variant;
  const char *why;
  qn_try(target_of(exec->device, &target));
  qn_try(choose(problem, &target, &variant, &why));
  qn_variant_note(variant->name, why);
  return variant->run(
      variant, problem,
      &(qn_gemm_call){
          .exec = exec, .target = &target, .prepare = prepare, .workspace = prepare ? NULL : exec->workspace});
}

size_t qn_gemm_device_workspace(const qn_gemm_problem *problem, const qn_exec *exec)
{
  qn_gemm_target target;
  const qn_gemm_variant *variant;
  const char *why;
  if (target_of(exec->device, &target) != QN_OK || choose(problem, &target, &variant, &why) != QN_OK) return 0;
  return variant->workspace_bytes ? variant->workspace_bytes(variant, problem, &target) : 0;
}
