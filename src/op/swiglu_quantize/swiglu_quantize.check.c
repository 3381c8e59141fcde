/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_quantize.check.c - what checks and benches of the op need: cases, workloads, and a reference, which is plain
 * arithmetic behind the ref tier of swiglu. Its numbers of f8e4m3 are the workbench's. No part of the library. */
#include "core/core.h"
#include "op/swiglu/swiglu.h"
#include "op/swiglu_quantize/swiglu_quantize.h"
#include "quern/quern.h"
#include "workbench/fill.h"
#include "workbench/op_check.h"
#include <float.h>
#include <math.h>

/* ---- the reference ---- */

/* What swiglu stores of a row, as numbers. */
static void values_of(const qn_reference *r, qn_dtype dtype, size_t row, size_t n, char *store, double *value)
{
  const qn_swiglu_quantize_problem problem = qn_swiglu_quantize_problem_of(r->call);
  const size_t bytes = qn_dtype_bytes(dtype), part = (n * bytes + 63) / 64 * 64;
  const double *a = r->value[QN_SWIGLU_QUANTIZE_A][0] + row * n, *b = r->value[QN_SWIGLU_QUANTIZE_B][0] + row * n;
  char *at[] = {[QN_SWIGLU_C] = store, [QN_SWIGLU_A] = store + part, [QN_SWIGLU_B] = store + 2 * part};
  qn_swiglu_cpu_coef coef;
  qn_swiglu_cpu_coefficients(r->call->params, &coef);
  for (size_t k = 0; k < n; k++) {
    qn_number_store(dtype, at[QN_SWIGLU_A] + k * bytes, a[k]);
    qn_number_store(dtype, at[QN_SWIGLU_B] + k * bytes, b[k]);
  }
  const qn_piece piece = {.n = n, .data = {at[0], at[1], at[2]}};
  qn_op_swiglu.cpu[QN_TIER_REF](&(qn_cpu_call){.row = r->call->row, .flags = problem.kind.flags, .coef = &coef},
                                &piece);
  for (size_t k = 0; k < n; k++) value[k] = qn_number_load(dtype, at[QN_SWIGLU_C] + k * bytes);
}

static float scale_of(const double *value, size_t n)
{
  double most = 0;
  for (size_t k = 0; k < n; k++)
    if (fabs(value[k]) <= FLT_MAX && fabs(value[k]) > most) most = fabs(value[k]);
  return most == 0 ? 1 : fmaxf((float)most / 448, 0x1p-126f);
}

static qn_status reference(const qn_reference *r)
{
  const qn_dtype dtype = r->call->op->info.types[r->call->row].tensor[QN_SWIGLU_QUANTIZE_A].dtype;
  const size_t m = (size_t)r->call->extent['m' - 'a'], n = (size_t)r->call->extent['n' - 'a'];
  const bool computes = ((const qn_swiglu_quantize_params *)r->call->params)->computes;
  double *const c = r->value[QN_SWIGLU_QUANTIZE_C][0], *const scale = r->value[QN_SWIGLU_QUANTIZE_SCALE][0];
  const bool one = r->call->tensors[QN_SWIGLU_QUANTIZE_SCALE]->shape[0] == 1;
  char *store;
  double *value;
  qn_try(qn_try_allocate(&value, (n + 1) * sizeof *value, "a row"));
  if (qn_try_allocate(&store, 3 * (n * sizeof(float) + 64), "a row") != QN_OK) return qn_release(value), QN_NO_MEMORY;
  for (size_t row = 0; row < m; row++) {
    values_of(r, dtype, row, n, store, value);
    if (computes) scale[row] = (double)scale_of(value, n);
    const float inverse = 1 / (float)scale[one ? 0 : row];
    for (size_t k = 0; k < n; k++) {
      uint8_t code;
      qn_number_store(QN_F8E4M3, &code, (double)((float)value[k] * inverse));
      c[row * n + k] = qn_number_load(QN_F8E4M3, &code);
    }
  }
  qn_release(store);
  qn_release(value);
  return QN_OK;
}

/* ---- cases ---- */

/* Scales given for all, given a row, computed; every gate; lone elements, ragged vectors, rows of many threads, of
 * shared memory and of none; rows apart, of one tensor farther than of the others, so that it alone is off its
 * boundary; rows of zeros and of numbers whose scale is the least; what is not finite. Every third one, from the first
 * on, is for the quick level; every fourth begins at a multiple of 64 bytes, every other one at one of 16. */
static const qn_check_text cases[] = {
    {"one", "m=1 n=1"},
    {"one scale", "m=3 n=64 ~scale"},
    {"geglu", "m=4 n=31 ~scale activation=geglu"},
    {"computed", "m=3 n=255 computes=1 gate_multiplier=1.3 down_multiplier=0.75"},
    {"clamped", "m=3 n=65 ~scale activation=clamped limit=0.5"},
    {"reglu", "m=2 n=2049 activation=reglu"},
    {"scales of rows", "m=3 n=255 gate_multiplier=1.3 down_multiplier=0.75"},
    {"glu", "m=2 n=129 computes=1 activation=glu"},
    {"geglu_erf", "m=3 n=66 computes=1 activation=geglu_erf"},
    {"lone columns", "m=9 n=1 computes=1"},
    {"no columns", "m=2 n=0 computes=1"},
    {"no columns, given", "m=2 n=0 ~scale"},
    {"c alone off its boundary", "m=3 n=64 c+1 computes=1"},
    {"no rows", "m=0 n=7"},
    {"lone row", "m=1 n=4096 computes=1"},
    {"odd numbers", "m=5 n=700 computes=1 odd"},
    {"a alone, given", "m=3 n=255 a+1 odd"},
    {"rows apart", "m=3 n=64 c+16 a+8 b+8 ~scale"},
    {"b alone", "m=3 n=64 b+1 computes=1 odd"},
    {"whole vectors, given", "m=3 n=2048"},
    {"zeros", "m=4 n=100 a=0 computes=1"},
    {"every kind of number, computed", "m=3 n=512 a=sweep b=1 activation=reglu computes=1"},
    {"the least scale", "m=2 n=50 a=1e-39 b=1 computes=1 activation=reglu"},
    {"not a number", "m=5 n=200 computes=1 nan"},
    {"c alone, given", "m=3 n=64 c+1 ~scale"},
    {"not a number, given", "m=5 n=200 nan"},
    {"every kind of number", "m=2 n=512 a=sweep b=1 scale=1 activation=reglu ~scale"},
    {"wide", "m=2 n=4100 computes=1 odd"},
    {"whole vectors", "m=2 n=4096 computes=1"},
    {"past registers", "m=1 n=40001 computes=1"},
    {"many rows", "m=2500 n=40 computes=1"},
    {"past shared memory", "m=1 n=120001 computes=1 gate_multiplier=1.3"},
    {NULL, NULL},
};

static const char sample[] =
    "m=3 n=70 computes=1 activation=clamped gate_multiplier=1.3 down_multiplier=0.75 alpha=1.5 limit=0.5";

/* As feed-forward layers of 7 to 405 billion weights have them, of a token to many. */
static const qn_check_text workloads[] = {
    {"decode", "m=1 n=14336 computes=1"},      {"rows-16", "m=16 n=14336 computes=1"},
    {"rows-256", "m=256 n=14336 computes=1"},  {"prefill", "m=2048 n=14336 computes=1"},
    {"many-rows", "m=8192 n=4096 computes=1"}, {"wide-decode", "m=1 n=53248 computes=1"},
    {"wide-256", "m=256 n=28672 computes=1"},  {"wide-prefill", "m=2048 n=53248 computes=1"},
    {"given-decode", "m=1 n=14336 ~scale"},    {"given", "m=2048 n=14336 ~scale"},
    {"given-rows", "m=2048 n=14336"},          {NULL, NULL},
};

/* The word that the refusal must hold, and what must be refused. */
static const qn_check_text refused[] = {
    {"it must be [m], and m is 3", "m=3 n=8 ~scale computes=1"},
    {"limit is 0", "m=2 n=8 activation=clamped limit=0"},
    {NULL, NULL},
};

static const char *variation(qn_device_kind kind, size_t row, size_t k)
{
  (void)kind, (void)row;
  return k ? NULL : "";
}

/* ---- device sources: of every type the plainest kernel and a full one; each gate, with all, on one architecture a
 * type; every way to hold a row ---- */
#define DEFINE(name, value) "QN_SWIGLU_" #name "=" #value
#define UNIT(arch, storage, gate, is_full, computes, packs)                                                            \
  {                                                                                                                    \
    "op/swiglu_quantize/swiglu_quantize.cu",                                                                           \
        (const char *const[]){DEFINE(STORAGE, storage),                                                                \
                              DEFINE(GATE, gate),                                                                      \
                              DEFINE(HAS_DOWN, is_full),                                                               \
                              DEFINE(HAS_SCALE, is_full),                                                              \
                              DEFINE(COMPUTES, computes),                                                              \
                              DEFINE(PACKS, packs),                                                                    \
                              NULL},                                                                                   \
        arch                                                                                                           \
  }
static const qn_device_unit units[] = {
    UNIT(NULL, 0, 0, 0, 0, 1),
    UNIT(NULL, 1, 0, 0, 0, 1),
    UNIT(NULL, 2, 0, 0, 0, 1),
    UNIT(NULL, 0, 5, 1, 1, 1),
    UNIT(NULL, 1, 5, 1, 1, 2),
    UNIT(NULL, 2, 5, 1, 1, 4),
    UNIT("sm_75", 0, 0, 1, 1, 2),
    UNIT("sm_80", 1, 0, 1, 1, 4),
    UNIT("sm_86", 2, 0, 1, 1, 8),
    UNIT("sm_89", 0, 1, 1, 1, 4),
    UNIT("sm_90a", 1, 1, 1, 1, 8),
    UNIT("sm_100", 2, 1, 1, 1, 16),
    UNIT("sm_120", 0, 2, 1, 1, 8),
    UNIT("sm_75", 1, 2, 1, 1, 16),
    UNIT("sm_80", 2, 2, 1, 1, 0),
    UNIT("sm_86", 0, 3, 1, 1, 16),
    UNIT("sm_89", 1, 3, 1, 1, 0),
    UNIT("sm_90a", 2, 3, 1, 1, 1),
    UNIT("sm_100", 0, 4, 1, 1, 0),
    UNIT("sm_120", 1, 4, 1, 1, 1),
    UNIT("sm_75", 2, 4, 1, 1, 2),
    UNIT("sm_90a", 0, 0, 0, 1, 16),
    UNIT("sm_90a", 1, 0, 0, 1, 4),
    UNIT("sm_90a", 2, 0, 0, 1, 0),
    {NULL, NULL, NULL},
};

const qn_op_check qn_check_swiglu_quantize = {
    .reference = reference,
    .cases = cases,
    .sample = sample,
    .workloads = workloads,
    .refused = refused,
    .variation = variation,
    .domain = {.shapes = "m=1..16384,n=1..65536", .values = "gate_multiplier=1|1|1|1.3"},
    .independent = 'm',
    .units = units};
