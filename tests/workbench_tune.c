/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_tune.c - the tuner over an op whose variants are planted: one is faster, one slower, one gives a wrong
 * number, one writes past a tensor, one says that another ran. Only the faster one may enter the table. */
#include "op/call.h"
#include "op/launch_shape.h"
#include "scratch.h"
#include "test.h"
#include "workbench/sampler.h"
#include "workbench/tune.h"

static const char *const names[] = {"first", "fast", "slow", "wrong", "overrun", "liar", "cannot"};
enum { NAMES = sizeof names / sizeof *names };
static const char *in_force = "first"; /* where the option is not set */

static const char *chosen(void)
{
  const char *name;
  return qn_option_get("gemm", &name) == QN_OK && *name ? name : in_force;
}

static const char *variant(const qn_op *op, size_t k)
{
  (void)op;
  return k < NAMES ? names[k] : NULL;
}

static const char *obstacle(const qn_call *call, size_t k)
{
  (void)call;
  return strcmp(names[k], "cannot") ? NULL : "it lacks something";
}

static const char *choice(const qn_call *call, const char **why)
{
  (void)call;
  *why = "planted";
  return chosen();
}

static qn_status check_option(void)
{
  for (size_t k = 0; k < NAMES; k++)
    if (!strcmp(chosen(), names[k])) return QN_OK;
  return qn_fail(QN_BAD_ARGUMENT, "it has none of that name");
}

static void wait_us(int64_t us)
{
  for (const int64_t from = qn_now_ns(); qn_now_ns() - from < 1000 * us;) continue;
}

static qn_status run(const qn_call *call)
{
  const char *name = chosen(), *tier;
  const qn_tensor *last = &call->tensors[0][call->n - 1];
  float *data = last->data;
  qn_try(qn_elementwise.run(call));
  if (call->mode != QN_CALL_STEP) return QN_OK;
  if (qn_option_get("cpu", &tier) == QN_OK && !strcmp(tier, "ref")) return QN_OK; /* the reference has no variants */
  size_t n = 1;
  for (int k = 0; k < last->ndim; k++) n *= (size_t)last->shape[k];
  if (!strcmp(name, "first")) wait_us(200);
  if (!strcmp(name, "slow")) wait_us(1000);
  if (!strcmp(name, "wrong")) data[n - 1] += 1;
  if (!strcmp(name, "overrun")) data[n] = 1;
  qn_variant_note(strcmp(name, "liar") ? name : "fast", "planted");
  return QN_OK;
}

static qn_engine engine;
static qn_op planted;

static qn_status tune(const char *only, qn_tune_outcome *outcome)
{
  qn_progress quiet = {.on = false};
  const qn_tune_filter filter = {.types = "f32", .shapes = "1x2000"};
  qn_tune_bed bed;
  qn_tune_op *made = NULL;
  qn_status status = qn_tune_op_create(&made, &planted, (qn_device){QN_CPU, 0}, &filter, 1, &bed);
  if (status == QN_OK)
    status =
        qn_tune_run(&bed, &(qn_tune_order){.only = only, .look_s = 0.01, .prove_s = 0.03, .progress = &quiet}, outcome);
  qn_tune_op_destroy(&made);
  return status;
}

static bool table_says(const char *choice_is, const char *over)
{
  qn_tune_entry e = {.choice = "no entry"};
  const bool found = qn_tune_at("planted", 0, &e) == QN_TUNE_USER;
  return check(found && !strcmp(e.choice, choice_is) && !strcmp(e.over, over), "the table says %s over %s, %.3f",
               e.choice, e.over, e.ratio);
}

static void make_op(void)
{
  const qn_op_info *lion = NULL;
  check(qn_op_find("lion", &lion) == QN_OK, "there is lion");
  engine = qn_elementwise;
  engine.option = "gemm";
  engine.run = run;
  engine.check_option = check_option;
  engine.variant = variant;
  engine.refuses = obstacle;
  engine.choice = choice;
  engine.facts = NULL;
  planted = *qn_op_of(lion);
  planted.info.name = "planted";
  planted.engine = &engine;
}

int main(void)
{
  qn_tune_outcome o;
  qn_tune_entry e;
  scratch_begin();
  chmod(scratch, 0700);
  qn_option_set("tune_dir", scratch);
  make_op();
  check(tune("fast,nothing", &o) == QN_BAD_ARGUMENT && strstr(qn_last_error(), "planted has no variant \"nothing\""),
        "a name of no variant is refused: %s", qn_last_error());
  check(qn_tune_at("planted", 0, &e) == QN_TUNE_NONE, "and nothing is written");
  in_force = "wrong";
  check(tune(NULL, &o) == QN_OK && o.failed == 1 && !*o.path, "a wrong variant in force: the place is left out");
  in_force = "first";
  check(tune("slow", &o) == QN_OK && o.kept == 1 && o.faster == 0 && o.looked == 1, "a slower one does not replace it");
  table_says("first", "first");
  check(tune(NULL, &o) == QN_OK, "all of them: %s", qn_last_error());
  check(o.places == 1 && o.wrong == 2 && o.impossible == 1 && o.looked == 2, "%zu wrong, %zu not possible, %zu timed",
        o.wrong, o.impossible, o.looked);
  check(o.faster == 1 && o.kept == 0, "one is faster");
  table_says("fast", "first");
  return test_end();
}
