/* SPDX-License-Identifier: Apache-2.0 */
/* maths_device.c [--all] - the functions of src/base/maths.h in a device kernel have the processor's bits: on the host
 * backend, and on each GPU of this machine (skipped, with the driver's reason, where there is none). A sample of a few
 * million floats evenly over all of them; with --all a GPU runs all 2^32 of every function, in some minutes. The
 * reciprocal is a function of its own here: on a GPU it is no division. What it claims is tried from 1 to 2^126. */
#include "maths.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "device/backend.h"
#include "maths_unit.h"
#include "test.h"
#include <unistd.h>

enum { LENGTH = 1024, RUNS = 1 << 16, THREADS = 128, FUNCTIONS = MATHS_COUNT + 1 };

static const maths_lanes *lanes; /* the best tier's: that tiers agree is tests/maths.c's business */
static qn_pool *pool;

static const char *name_of(int function) { return function < MATHS_COUNT ? maths_all[function].name : "reciprocal"; }

/* ---- what the processor says ---- */
typedef struct slice {
  int function;
  uint32_t first, step;
  uint64_t *sum;
} slice;

static void inputs_of(uint32_t first, uint32_t step, size_t run, float x[LENGTH])
{
  for (uint32_t k = 0; k < LENGTH; k++) x[k] = maths_float(first + ((uint32_t)run * LENGTH + k) * step);
}

static void run_here(int function, const float x[LENGTH], float y[LENGTH])
{
  if (function < MATHS_COUNT)
    lanes->function[function](LENGTH, x, y);
  else
    lanes->reciprocal(LENGTH, x, y);
}

static void sum_run(void *user, size_t run)
{
  const slice *s = user;
  float x[LENGTH], y[LENGTH];
  uint64_t sum = 0;
  inputs_of(s->first, s->step, run, x);
  run_here(s->function, x, y);
  for (uint32_t k = 0; k < LENGTH; k++) sum += maths_mixed(maths_bits(x[k]), maths_bits(y[k]), isnan(y[k]));
  s->sum[run] = sum;
}

/* ---- what a device says ---- */
typedef struct kernel {
  qn_device device;
  const qn_backend *backend;
  qn_module *module;
  qn_device_function *function;
  void *sum, *result;
} kernel;

static qn_status build(kernel *k, int function)
{
  char define[64];
  const char *const defines[] = {define, NULL};
  qn_image image = {0};
  snprintf(define, sizeof define, "QN_MATHS=qn_%s", name_of(function));
  const qn_unit unit = {.source = MATHS_UNIT_SOURCE, .defines = defines, .text = MATHS_UNIT_TEXT};
  qn_status status = k->backend->compile(k->device, &unit, &image);
  if (!status) status = k->backend->module_load(k->device, image.data, image.bytes, &k->module);
  if (!status) status = k->backend->module_function(k->device, k->module, "maths", &k->function);
  qn_image_free(&image);
  return status;
}

static qn_status launch(const kernel *k, const maths_args *a)
{
  const qn_launch run = {.blocks = (a->runs + THREADS - 1) / THREADS,
                         .threads = THREADS,
                         .pool = pool,
                         .argument = a,
                         .argument_bytes = sizeof *a};
  return k->backend->launch(k->device, k->function, &run);
}

/* The first input of a run on which the two differ. */
static void tell(const kernel *k, const slice *s, size_t run)
{
  float x[LENGTH], here[LENGTH], there[LENGTH];
  const maths_args a = {.result = k->result,
                        .runs = 1,
                        .first = s->first + (uint32_t)run * LENGTH * s->step,
                        .step = s->step,
                        .length = LENGTH};
  if (launch(k, &a) || qn_memory_read(k->device, NULL, there, k->result, sizeof there)) return;
  inputs_of(a.first, s->step, 0, x);
  run_here(s->function, x, here);
  for (int i = 0; i < LENGTH; i++)
    if (maths_bits(here[i]) != maths_bits(there[i]) && !(isnan(here[i]) && isnan(there[i]))) {
      printf("# of 0x%08x (%g) the processor makes 0x%08x (%g), the device 0x%08x (%g)\n", maths_bits(x[i]),
             (double)x[i], maths_bits(here[i]), (double)here[i], maths_bits(there[i]), (double)there[i]);
      return;
    }
}

/* Runs of `s` that differ, or more than there are where something fails. */
static size_t compare(const kernel *k, const slice *s, size_t runs, uint64_t *there)
{
  const maths_args a = {.sum = k->sum, .runs = runs, .first = s->first, .step = s->step, .length = LENGTH};
  size_t wrong = 0;
  if (launch(k, &a)) return runs + 1;
  qn_pool_run(pool, runs, sum_run, (void *)s);
  if (qn_memory_read(k->device, NULL, there, k->sum, runs * sizeof *there)) return runs + 1;
  for (size_t run = 0; run < runs; run++)
    if (there[run] != s->sum[run] && !wrong++) tell(k, s, run);
  return wrong;
}

/* All inputs that the function is for, or a sample. The last run may begin again at the first input, except where that
 * is outside. */
static void one_function(kernel *k, int function, bool all, uint64_t *here, uint64_t *there)
{
  const bool part = function == MATHS_COUNT;
  const uint64_t first = part ? 0x3f800000u : 0, count = part ? 0x7e800000u - first : UINT64_C(1) << 32; /* to 2^126 */
  const uint64_t step = all ? 1 : part ? 257 : 1021, length = step * LENGTH;
  const uint64_t runs = part ? count / length : (count + length - 1) / length;
  size_t wrong = 0;
  if (!check(!build(k, function), "%s: %s compiles and loads: %s", qn_device_kind_name(k->device.kind),
             name_of(function), qn_last_error()))
    return;
  for (uint64_t run = 0; run < runs; run += RUNS) {
    const slice s = {function, (uint32_t)(first + run * length), (uint32_t)step, here};
    wrong += compare(k, &s, runs - run < RUNS ? (size_t)(runs - run) : RUNS, there);
  }
  check(runs > 0 && !wrong, "%s: %s of %llu floats has the processor's bits (%zu runs of %d differ): %s",
        qn_device_kind_name(k->device.kind), name_of(function), (unsigned long long)(runs * LENGTH), wrong, LENGTH,
        wrong ? qn_last_error() : "");
  if (k->backend->module_unload) k->backend->module_unload(k->device, k->module); /* the host's modules stay */
  k->module = NULL;
}

static void run_device(qn_device device, bool all)
{
  kernel k = {.device = device};
  uint64_t *here = qn_allocate(RUNS * sizeof *here), *there = qn_allocate(RUNS * sizeof *there);
  const bool ok = here && there && !qn_backend_of(device, &k.backend) &&
                  !qn_memory_allocate(device, RUNS * sizeof *here, &k.sum) &&
                  !qn_memory_allocate(device, LENGTH * sizeof(float), &k.result);
  if (check(ok, "memory on %s:%d: %s", qn_device_kind_name(device.kind), device.index, ok ? "" : qn_last_error()))
    for (int f = 0; f < FUNCTIONS; f++) one_function(&k, f, all, here, there);
  if (k.sum) qn_memory_release(device, k.sum);
  if (k.result) qn_memory_release(device, k.result);
  qn_release(here);
  qn_release(there);
}

int main(int argc, char **argv)
{
  static const maths_lanes *const table[QN_TIER_COUNT] = MATHS_LANES;
  const bool all = argc > 1 && !strcmp(argv[1], "--all");
  qn_tier tier;
  int n = 0;
  if (!check(!qn_tier_choose((const void *const *)table, &tier), "a tier: %s", qn_last_error())) return test_end();
  lanes = table[tier];
  check(!qn_pool_create(&pool, (int)sysconf(_SC_NPROCESSORS_ONLN)), "a pool of threads");
  run_device((qn_device){QN_EMULATOR, 0}, false);
  if (!check(!qn_device_count(QN_CUDA, &n), "the driver, if any, works: %s", qn_last_error())) return test_end();
  if (!n) skip("no GPU: %s", qn_last_error());
  for (int k = 0; k < n; k++) run_device((qn_device){QN_CUDA, k}, all);
  qn_pool_destroy(&pool);
  return test_end();
}
