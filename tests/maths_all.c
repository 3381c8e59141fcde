/* SPDX-License-Identifier: Apache-2.0 */
/* maths_all.c [FUNCTION...] > results/maths.csv - measures the functions of src/base/maths.h, or those named, over all
 * 2^32 floats against libm in double: the worst error in units in the last place, where, the share that is correctly
 * rounded, and against MPFR the worst of the sixteen worst. On the best tier that runs here; tests/maths.c shows that
 * the others have its bits. On demand: some two minutes of one processor a function, on all there are; built
 * where MPFR is found (libmpfr-dev). Not a test. */
#include "maths.h"
#include "core/core.h"
#include "cpu/tier.h"
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, CHUNKS = 1 << 12, BATCH = 4096, KEPT = 16 };

typedef struct place {
  double error;
  uint32_t at;
} place;

typedef struct tally {
  place worst[KEPT]; /* in falling order */
  uint64_t right;
} tally;

typedef struct job {
  const maths_lanes *lanes;
  int function;
  tally *tally; /* one a chunk */
} job;

static void keep(tally *t, place p)
{
  int k = KEPT - 1;
  if (!(p.error > t->worst[k].error)) return;
  for (; k > 0 && p.error > t->worst[k - 1].error; k--) t->worst[k] = t->worst[k - 1];
  t->worst[k] = p;
}

static void measure(void *user, size_t chunk)
{
  const job *j = user;
  tally *t = &j->tally[chunk];
  float x[BATCH], y[BATCH];
  for (uint32_t done = 0; done < CHUNK; done += BATCH) {
    const uint32_t first = (uint32_t)chunk * CHUNK + done;
    for (uint32_t i = 0; i < BATCH; i++) x[i] = maths_float(first + i);
    j->lanes->function[j->function](BATCH, x, y);
    for (uint32_t i = 0; i < BATCH; i++) {
      const double exact = maths_all[j->function].exact((double)x[i]);
      t->right += y[i] == (float)exact || (isnan(y[i]) && isnan(exact));
      keep(t, (place){maths_error(y[i], exact), first + i});
    }
  }
}

/* ---- MPFR ---- */
static void mpfr_sigmoid(mpfr_t y, const mpfr_t x)
{
  mpfr_neg(y, x, MPFR_RNDN);
  mpfr_exp(y, y, MPFR_RNDN);
  mpfr_add_ui(y, y, 1, MPFR_RNDN);
  mpfr_ui_div(y, 1, y, MPFR_RNDN);
}

static void mpfr_gelu(mpfr_t y, const mpfr_t x)
{
  mpfr_t root;
  mpfr_init2(root, 300);
  mpfr_sqrt_ui(root, 2, MPFR_RNDN);
  mpfr_div(y, x, root, MPFR_RNDN);
  mpfr_neg(y, y, MPFR_RNDN);
  mpfr_erfc(y, y, MPFR_RNDN);
  mpfr_mul(y, y, x, MPFR_RNDN);
  mpfr_div_ui(y, y, 2, MPFR_RNDN);
  mpfr_clear(root);
}

static double mpfr_error(int function, uint32_t at, float got)
{
  mpfr_t x, y;
  mpfr_inits2(300, x, y, (mpfr_ptr)0);
  mpfr_set_flt(x, maths_float(at), MPFR_RNDN);
  switch (function) {
  case MATHS_exp: mpfr_exp(y, x, MPFR_RNDN); break;
  case MATHS_exp2: mpfr_exp2(y, x, MPFR_RNDN); break;
  case MATHS_expm1: mpfr_expm1(y, x, MPFR_RNDN); break;
  case MATHS_log: mpfr_log(y, x, MPFR_RNDN); break;
  case MATHS_log2: mpfr_log2(y, x, MPFR_RNDN); break;
  case MATHS_log1p: mpfr_log1p(y, x, MPFR_RNDN); break;
  case MATHS_sin: mpfr_sin(y, x, MPFR_RNDN); break;
  case MATHS_cos: mpfr_cos(y, x, MPFR_RNDN); break;
  case MATHS_tanh: mpfr_tanh(y, x, MPFR_RNDN); break;
  case MATHS_sigmoid:
  case MATHS_sigmoid16: mpfr_sigmoid(y, x); break;
  case MATHS_erf: mpfr_erf(y, x, MPFR_RNDN); break;
  case MATHS_gelu:
  case MATHS_gelu16: mpfr_gelu(y, x); break;
  case MATHS_rsqrt: mpfr_rec_sqrt(y, x, MPFR_RNDN); break;
  }
  const double unit = maths_unit(mpfr_get_d(y, MPFR_RNDN));
  mpfr_set_d(x, (double)got, MPFR_RNDN);
  mpfr_sub(y, y, x, MPFR_RNDN);
  const double error = fabs(mpfr_get_d(y, MPFR_RNDN)) / unit;
  mpfr_clears(x, y, (mpfr_ptr)0);
  return error;
}

static bool print(const maths_lanes *lanes, int function, qn_pool *pool)
{
  job j = {lanes, function, qn_allocate_zero(CHUNKS, sizeof(tally))};
  tally all = {0};
  double by_mpfr = 0;
  if (!j.tally) return false;
  qn_pool_run(pool, CHUNKS, measure, &j);
  for (size_t k = 0; k < CHUNKS; k++) {
    all.right += j.tally[k].right;
    for (int w = 0; w < KEPT; w++) keep(&all, j.tally[k].worst[w]);
  }
  qn_release(j.tally);
  for (int w = 0; w < KEPT; w++) {
    float x[64] = {maths_float(all.worst[w].at)}, y[64];
    lanes->function[function](64, x, y);
    const double error = mpfr_error(function, all.worst[w].at, y[0]);
    if (error > by_mpfr) by_mpfr = error;
  }
  printf("%s,%llu,%.4f,0x%08x,%.9g,%.4f,%.6f\n", maths_all[function].name, 1ull << 32, all.worst[0].error,
         all.worst[0].at, (double)maths_float(all.worst[0].at), by_mpfr, (double)all.right / 0x1p32);
  fflush(stdout);
  return true;
}

int main(int argc, char **argv)
{
  static const maths_lanes *const table[QN_TIER_COUNT] = MATHS_LANES;
  qn_tier tier;
  qn_pool *pool = NULL;
  if (qn_tier_choose((const void *const *)table, &tier) || qn_pool_create(&pool, (int)sysconf(_SC_NPROCESSORS_ONLN))) {
    fprintf(stderr, "maths_all: %s\n", qn_last_error());
    return EXIT_FAILURE;
  }
  bool ok = true;
  printf("function,inputs,worst_ulp,at_bits,at,worst_ulp_mpfr,share_correctly_rounded\n");
  for (int f = 0; f < MATHS_COUNT; f++) {
    bool wanted = argc < 2;
    for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], maths_all[f].name);
    if (wanted) ok = print(table[tier], f, pool) && ok;
  }
  qn_pool_destroy(&pool);
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
