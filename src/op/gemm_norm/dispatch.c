/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.c - which variant solves a problem on a device: the one that the option "gemm" names, else the one that was
 * measured to be the fastest, by the tune tables, else, of those that can, the one whose guessed time is least.
 * qn_op_last_variant() tells which it was, and why. No variant is named here. */
#include "core/core.h"
#include "device/arch.h"
#include "op/gemm_norm/gemm.h"
#include "op/launch_shape.h"
#include "op/tune.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const qn_gemm_variant *const families[] = {qn_gemm_hopper, qn_gemm_mma,   qn_gemm_sliced, qn_gemm_cores,
                                                  qn_gemm_rows,   qn_gemm_whole, qn_gemm_plain,  qn_gemm_cublas};
enum { FAMILIES = sizeof families / sizeof families[0], VARIANTS_MOST = 256, SLICES_MOST = 256 };

const char *const qn_gemm_precision_names[QN_GEMM_PRECISIONS] = {"fp32", "tf32", "bf16x3", "tf32x3", "bf16", "f16x3"};

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
  qn_gemm_problem by_tf32 = *problem;
  by_tf32.precision = QN_GEMM_TF32X3;
  if (v->precisions >> problem->precision & 1) return v->refuses(v, problem, target);
  if (problem->precision != QN_GEMM_F16X3 || !(v->precisions >> QN_GEMM_TF32X3 & 1))
    return "it has no such class of precision";
  return v->refuses(v, &by_tf32, target);
}

static const char *lack(const qn_gemm_variant *v, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  return v->lacks ? v->lacks(v, problem, target) : NULL;
}

/* Both; NULL: it can. */
static const char *obstacle(const qn_gemm_variant *v, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  const char *why = refusal(v, problem, target);
  return why ? why : lack(v, problem, target);
}

/* The choice of that name; no variant: there is none. "sliced-16x32-k8" is one of 8 slices of k, without a number it
 * is as many as are thought to be the fastest. */
static qn_gemm_choice named(const char *name)
{
  for (size_t f = 0; f < FAMILIES; f++)
    for (const qn_gemm_variant *v = families[f]; v->name; v++) {
      const size_t length = strlen(v->name);
      char *end;
      if (strncmp(v->name, name, length) != 0) continue;
      if (!name[length]) return (qn_gemm_choice){v, 0};
      if (!v->step || strncmp(name + length, "-k", 2) != 0 || name[length + 2] < '1' || name[length + 2] > '9')
        continue;
      const long slices = strtol(name + length + 2, &end, 10);
      if (!*end && slices <= SLICES_MOST) return (qn_gemm_choice){v, slices};
    }
  return (qn_gemm_choice){NULL, 0};
}

/* The one that the option asks for. */
static qn_status asked(const char *name, qn_gemm_choice *choice)
{
  const char *names[VARIANTS_MOST + 1] = {NULL};
  *choice = named(name);
  if (choice->variant) return QN_OK;
  for (size_t k = 0; k < VARIANTS_MOST && qn_gemm_variant_name(k); k++) names[k] = qn_gemm_variant_name(k);
  return qn_fail(QN_BAD_ARGUMENT, "the option gemm (QUERN_GEMM) is \"%s\", and there is no such variant%s", name,
                 qn_suggest(name, names));
}

static qn_status forced(const char *name, const qn_gemm_problem *problem, const qn_gemm_target *target,
                        qn_gemm_choice *choice)
{
  qn_try(asked(name, choice));
  const char *why = obstacle(choice->variant, problem, target);
  if (why)
    return qn_fail(QN_UNSUPPORTED, "gemm_norm: the variant %s, which the option gemm asks for, cannot do this: %s",
                   name, why);
  qn_gemm_choice_guess(choice, problem, target);
  return QN_OK;
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

qn_status qn_gemm_option_check(void)
{
  const char *name;
  qn_gemm_choice choice;
  qn_try(option(&name));
  return *name ? asked(name, &choice) : QN_OK;
}

/* ---- what was measured ---- */

void qn_gemm_tune_key(const qn_gemm_problem *problem, qn_tune_key *key)
{
  const qn_gemm_args *a = &problem->args;
  const bool normed = qn_gemm_norm_of(problem->flags) != QN_GEMM_NO_NORM;
  *key = (qn_tune_key){.types = problem->short_data ? "bf16/bf16/bf16" : "f32/f32/f32",
                       .rows = (uint64_t)a->m,
                       .cols = (uint64_t)a->n,
                       .layout = QN_TUNE_DENSE,
                       .precision = qn_gemm_precision_names[problem->precision],
                       .depth = (uint64_t)a->k,
                       .width = normed ? (uint64_t)a->columns : 1};
}

/* What was chosen lately, so that a call asks neither tables, which takes a lock, nor the rule. */
typedef struct kept_choice {
  unsigned options, files; /* generations; 0: nothing is kept */
  qn_device device;
  qn_tune_key key; /* its texts are of static storage */
  uint32_t flags, aligned;
  int64_t batches;
  qn_gemm_choice choice;
  char why[200];
} kept_choice;

static bool same_key(const qn_tune_key *a, const qn_tune_key *b)
{
  return a->types == b->types && a->rows == b->rows && a->cols == b->cols && a->precision == b->precision &&
         a->depth == b->depth && a->width == b->width;
}

static bool same(const kept_choice *a, const kept_choice *b)
{
  return a->files == b->files && a->options == b->options && same_key(&a->key, &b->key) && a->flags == b->flags &&
         a->aligned == b->aligned && a->batches == b->batches && a->device.kind == b->device.kind &&
         a->device.index == b->device.index;
}

/* Which of the tensors lie on whole parts of 16 bytes, and whether y does on 8, which bf16's rows are stored by. */
static uint32_t aligned(const qn_gemm_args *a)
{
  const void *const all[] = {a->x, a->w, a->y, a->bias, a->bias2, a->gamma, a->beta};
  uint32_t bits = 0;
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) bits |= (uint32_t)((uintptr_t)all[k] % 16 == 0) << k;
  return bits | (uint32_t)((uintptr_t)a->y % 8 == 0) << (sizeof all / sizeof *all);
}

/* What the tables say of it; no variant: nothing that can be followed, and why not. */
static qn_status by_tables(kept_choice *kept, const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  qn_arch arch = {.size = sizeof arch};
  qn_tune_entry entry;
  snprintf(kept->why, sizeof kept->why, "the rule");
  if (kept->batches > 1) return QN_OK; /* they have times of products alone */
  qn_try(qn_tune_arch(kept->device, &arch));
  const qn_tune_source source = qn_tune_find("gemm_norm", &arch, &kept->key, &entry);
  if (source == QN_TUNE_NONE) return QN_OK;
  const qn_gemm_choice choice = named(entry.choice);
  if (!choice.variant) {
    qn_log(QN_LOG_WARNING, "the tune table of gemm_norm: an entry for %s is ignored: there is no variant \"%s\"",
           entry.arch, entry.choice);
    return QN_OK;
  }
  const char *why = obstacle(choice.variant, problem, target), *reason = qn_tune_reason(source, &entry, &arch);
  if (why)
    snprintf(kept->why, sizeof kept->why, "the rule; %s, of %s, cannot: %s", choice.variant->name, reason, why);
  else
    snprintf(kept->why, sizeof kept->why, "%s", reason);
  if (!why) kept->choice = choice;
  return QN_OK;
}

int qn_gemm_looseness(const char *variant)
{
  const qn_gemm_variant *v = named(variant).variant;
  return v ? v->looseness : 0;
}

/* ---- the choice ---- */

/* The one whose guessed time is least, of those that can; what they may lack is asked only where it matters. */
static qn_gemm_choice by_rule(const qn_gemm_problem *problem, const qn_gemm_target *target)
{
  qn_gemm_choice fastest = {NULL, 0};
  double best = 0;
  for (size_t f = 0; f < FAMILIES; f++)
    for (const qn_gemm_variant *v = families[f]; v->name; v++) {
      qn_gemm_choice choice = {v, 0};
      if (refusal(v, problem, target)) continue;
      const double guess = qn_gemm_choice_guess(&choice, problem, target);
      if ((fastest.variant && guess >= best) || lack(v, problem, target)) continue;
      fastest = choice;
      best = guess;
    }
  return fastest;
}

static qn_status look_up(const qn_gemm_problem *problem, const qn_gemm_target *target, kept_choice *kept)
{
  qn_try(by_tables(kept, problem, target));
  if (!kept->choice.variant) kept->choice = by_rule(problem, target);
  if (!kept->choice.variant) return qn_fail(QN_UNSUPPORTED, "gemm_norm: no variant can do this on this device");
  qn_gemm_choice_guess(&kept->choice, problem, target);
  return QN_OK;
}

static qn_status choose(const qn_gemm_problem *problem, const qn_gemm_target *target, qn_gemm_choice *choice,
                        const char **why)
{
  enum { KEPT = 32 };
  static _Thread_local kept_choice all[KEPT];
  const char *name;
  qn_try(option(&name));
  *why = "forced";
  if (*name) return forced(name, problem, target, choice);
  kept_choice asked = {.options = qn_option_generation(),
                       .files = 1 + qn_tune_generation(),
                       .device = target->device,
                       .flags = problem->flags,
                       .aligned = aligned(&problem->args),
                       .batches = qn_gemm_batches(problem)};
  qn_gemm_tune_key(problem, &asked.key);
  const uint64_t mixed =
      ((asked.key.rows * 31 + asked.key.cols) * 31 + asked.key.depth) * 31 + (uint64_t)problem->precision;
  kept_choice *kept = &all[(mixed ^ mixed >> 7) % KEPT];
  if (!same(kept, &asked)) {
    qn_try(look_up(problem, target, &asked));
    *kept = asked;
  }
  *choice = kept->choice;
  *why = kept->why;
  return QN_OK;
}

/* Its name, with the slices where there are any, in words that last until the thread's next question. */
static const char *name_of(qn_gemm_choice choice)
{
  static _Thread_local char text[64];
  if (choice.slices < 2) return choice.variant->name;
  snprintf(text, sizeof text, "%s-k%d", choice.variant->name, (int)choice.slices);
  return text;
}

qn_status qn_gemm_device_run(const qn_gemm_problem *problem, const qn_exec *exec, bool prepare)
{
  qn_gemm_target target;
  qn_gemm_choice choice;
  const char *why;
  qn_try(target_of(exec->device, &target));
  qn_try(choose(problem, &target, &choice, &why));
  const size_t bytes = prepare ? 0 : qn_gemm_choice_bytes(choice, problem, &target);
  qn_require(bytes <= exec->workspace_bytes,
             "gemm_norm: the workspace has %zu bytes and %s uses %zu: a tune table or an option changed meanwhile",
             exec->workspace_bytes, name_of(choice), bytes);
  qn_variant_note(name_of(choice), why);
  return qn_gemm_choice_run(
      choice, problem,
      &(qn_gemm_call){
          .exec = exec, .target = &target, .prepare = prepare, .workspace = prepare ? NULL : exec->workspace});
}

const char *qn_gemm_device_choice(const qn_gemm_problem *problem, qn_device device, const char **why)
{
  qn_gemm_target target;
  qn_gemm_choice choice;
  if (target_of(device, &target) != QN_OK || choose(problem, &target, &choice, why) != QN_OK) return NULL;
  return name_of(choice);
}

const char *qn_gemm_device_refusal(const qn_gemm_problem *problem, qn_device device, size_t k)
{
  qn_gemm_target target;
  const char *name = qn_gemm_variant_name(k);
  if (!name) return "there is no such variant";
  if (target_of(device, &target) != QN_OK) return qn_last_error();
  return obstacle(named(name).variant, problem, &target);
}

size_t qn_gemm_device_workspace(const qn_gemm_problem *problem, const qn_exec *exec)
{
  qn_gemm_target target;
  qn_gemm_choice choice;
  const char *why;
  if (target_of(exec->device, &target) != QN_OK || choose(problem, &target, &choice, &why) != QN_OK) return 0;
  return qn_gemm_choice_bytes(choice, problem, &target);
}
