/* SPDX-License-Identifier: Apache-2.0 */
/* mutant.c - planted bugs that any element-wise op can have: wrappers round one of its functions. */
#include "workbench/mutant.h"
#include "workbench/fill.h"
#include "workbench/golden.h"
#include "core/core.h"
#include <float.h>
#include <math.h>
#include <string.h>

const qn_op *qn_mutant_of;
qn_cpu_fn *qn_mutant_original;

static const qn_op_types *types_of(const qn_cpu_call *call) { return &qn_mutant_of->info.types[call->row]; }

static void harmless(const qn_cpu_call *call, const qn_piece *piece) { qn_mutant_original(call, piece); }

static void does_nothing(const qn_cpu_call *call, const qn_piece *piece)
{
  (void)call;
  (void)piece;
}

static void skips_tail(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_piece shorter = *piece;
  shorter.n &= ~(size_t)15;
  qn_mutant_original(call, &shorter);
}

static void over_runs(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_piece longer = *piece;
  longer.n++;
  qn_mutant_original(call, &longer);
}

static void under_runs(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_mutant_original(call, piece);
  for (size_t r = 0; r < qn_mutant_of->info.n_tensors; r++)
    if (types_of(call)->tensor[r].access & QN_WRITE) ((unsigned char *)piece->data[r])[-1] ^= 1;
}

static void writes_what_it_reads(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_mutant_original(call, piece);
  for (size_t r = 0; r < qn_mutant_of->info.n_tensors; r++)
    if (types_of(call)->tensor[r].access == QN_READ)
      memset(piece->data[r], 0, qn_dtype_bytes(types_of(call)->tensor[r].dtype));
}

static void counts_from_piece(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_piece moved = *piece;
  moved.first = 0;
  qn_mutant_original(call, &moved);
}

static void forgets_tensor(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_piece moved = *piece;
  moved.tensor_id = 0;
  qn_mutant_original(call, &moved);
}

static void miscounts(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_mutant_original(call, piece);
  if (piece->tally) __atomic_fetch_add(&piece->tally[0], 1, __ATOMIC_RELAXED);
}

/* Every number written, replaced by what `change` makes of it. */
static void change_results(const qn_cpu_call *call, const qn_piece *piece, double (*change)(double))
{
  qn_mutant_original(call, piece);
  if (piece->tally) return;
  for (size_t r = 0; r < qn_mutant_of->info.n_tensors; r++) {
    qn_dtype dtype = types_of(call)->tensor[r].dtype;
    if (!(types_of(call)->tensor[r].access & QN_WRITE)) continue;
    for (size_t i = 0; i < piece->n; i++) {
      void *at = (char *)piece->data[r] + i * qn_dtype_bytes(dtype);
      qn_number_store(dtype, at, change(qn_number_load(dtype, at)));
    }
  }
}

static double flush(double x) { return fabs(x) < FLT_MIN ? copysign(0, x) : x; }
static double drop_nan(double x) { return isnan(x) ? 0 : x; }
static double drop_minus_zero(double x) { return x + 0.0; }
static double bound(double x) { return isinf(x) ? copysign(FLT_MAX, x) : x; }

static void flushes_denormals(const qn_cpu_call *call, const qn_piece *piece) { change_results(call, piece, flush); }
static void drops_nan(const qn_cpu_call *call, const qn_piece *piece) { change_results(call, piece, drop_nan); }
static void bounds_infinity(const qn_cpu_call *call, const qn_piece *piece) { change_results(call, piece, bound); }
static void loses_minus_zero(const qn_cpu_call *call, const qn_piece *piece)
{
  change_results(call, piece, drop_minus_zero);
}

/* ---- tensors that are not dense ---- */

/* Where a tensor's first row was seen; of one call at a time, on one thread. */
static void *first_row[64][QN_MAX_TENSORS];

static void ignores_pitch(const qn_cpu_call *call, const qn_piece *piece)
{
  enum { PLACES = sizeof first_row / sizeof *first_row };
  qn_piece moved = *piece;
  for (size_t r = 0; r < qn_mutant_of->info.n_tensors && piece->place < PLACES; r++) {
    const size_t width = qn_dtype_bytes(types_of(call)->tensor[r].dtype), step = piece->step ? piece->step[r] : 1;
    void **first = &first_row[piece->place][r];
    if (piece->first == 0) *first = piece->data[r];
    if (piece->row && *first && width) moved.data[r] = (char *)*first + piece->first * step * width;
  }
  qn_mutant_original(call, &moved);
}

static void ignores_step(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_piece dense = *piece;
  dense.step = NULL;
  qn_mutant_original(call, &dense);
}

static void writes_between(const qn_cpu_call *call, const qn_piece *piece)
{
  qn_mutant_original(call, piece);
  for (size_t r = 0; piece->step && r < qn_mutant_of->info.n_tensors; r++) {
    const qn_op_types *types = types_of(call);
    if (piece->n > 1 && piece->step[r] == 2 && types->tensor[r].access & QN_WRITE)
      ((unsigned char *)piece->data[r])[qn_dtype_bytes(types->tensor[r].dtype)] ^= 1;
  }
}

/* ---- an op whose class is not bitwise ---- */

static double one_off(double x) { return isfinite(x) ? (double)nextafterf((float)x, 1e30f) : x; }
static double far_off(double x) { return x * (1 + 0x1p-12); }
static void is_one_off(const qn_cpu_call *call, const qn_piece *piece) { change_results(call, piece, one_off); }
static void is_far_off(const qn_cpu_call *call, const qn_piece *piece) { change_results(call, piece, far_off); }

static void scaled(qn_op *op)
{
  op->info.agreement = QN_SCALED;
  op->info.agreement_units = 4;
}

/* ---- a 16-bit result cut off instead of rounded ---- */

/* The row that differs from `row` in one written role alone, which it keeps as f32. */
static bool find_wide_row(const qn_op_info *op, size_t row, size_t *wide, size_t *role)
{
  for (*wide = 0; *wide < op->n_types; ++*wide) {
    size_t differ = 0;
    for (size_t r = 0; r < op->n_tensors; r++) {
      if (op->types[row].tensor[r].dtype == op->types[*wide].tensor[r].dtype) continue;
      differ++;
      *role = r;
    }
    if (differ == 1 && op->types[row].tensor[*role].dtype == QN_BF16 &&
        op->types[*wide].tensor[*role].dtype == QN_F32 && op->types[row].tensor[*role].access == QN_READ_WRITE)
      return true;
  }
  return false;
}

static void truncates(const qn_cpu_call *call, const qn_piece *piece)
{
  size_t wide, role = 0;
  qn_cpu_call as_wide = *call;
  qn_piece with = *piece;
  float *numbers = piece->tally || !find_wide_row(&qn_mutant_of->info, call->row, &wide, &role)
                       ? NULL
                       : qn_allocate((piece->n + 1) * sizeof *numbers);
  if (!numbers) {
    qn_mutant_original(call, piece);
    return;
  }
  uint16_t *half = piece->data[role];
  for (size_t i = 0; i < piece->n; i++) numbers[i] = (float)qn_number_load(QN_BF16, half + i);
  as_wide.row = wide;
  with.data[role] = numbers;
  qn_mutant_original(&as_wide, &with);
  for (size_t i = 0; i < piece->n; i++) {
    uint32_t bits;
    memcpy(&bits, &numbers[i], sizeof bits);
    half[i] = isnan(numbers[i]) ? 0x7fc0 : (uint16_t)(bits >> 16);
  }
  qn_release(numbers);
}

/* ---- descriptions that refuse too little ---- */

static qn_op_param no_limits[64];

static void forgets_ranges(qn_op *op)
{
  for (size_t k = 0; k < op->info.n_params && k < sizeof no_limits / sizeof *no_limits; k++) {
    no_limits[k] = op->info.params[k];
    if (no_limits[k].type != QN_PARAM_DOUBLE) continue;
    no_limits[k].least = -HUGE_VAL;
    no_limits[k].most = HUGE_VAL;
  }
  op->info.params = no_limits;
}

static void forgets_relations(qn_op *op) { op->check = NULL; }

/* ---- which op can have which ---- */

static bool draws_random(const qn_op *op) { return op->random_flags != 0; }
static bool counts(const qn_op *op) { return op->tally_offset != 0; }
static bool has_relations(const qn_op *op) { return op->check != NULL; }
static bool reads_only(const qn_op *op)
{
  for (size_t r = 0; r < op->info.n_tensors; r++)
    if (op->info.types[0].tensor[r].access == QN_READ) return true;
  return false;
}
static bool has_wide_row(const qn_op *op)
{
  size_t wide, role;
  for (size_t row = 0; row < op->info.n_types; row++)
    if (find_wide_row(&op->info, row, &wide, &role)) return true;
  return false;
}

/* Only the golden file can say what a range must be. */
static bool has_refusals(const qn_op *op)
{
  qn_golden golden;
  if (!qn_golden_open(&golden, op)) return false;
  while (qn_golden_line(&golden))
    if (qn_golden_is(&golden, "refuse")) return true;
  return false;
}
static bool has_refused_relations(const qn_op *op) { return has_relations(op) && has_refusals(op); }

enum {
  ALL = QN_IN_ONE_TIER | QN_EVERYWHERE_ORACLE | QN_EVERYWHERE_GOLDEN,
  BITS = QN_IN_ONE_TIER | QN_EVERYWHERE_GOLDEN /* too small or too rare for an oracle in other bits */
};

const qn_mutant qn_mutants[] = {
    {"harmless", "a wrapper that changes nothing", QN_HARMLESS, harmless, NULL, NULL},
    {"scaled-near", "of class SCALED(4), one last place off", QN_HARMLESS, is_one_off, scaled, NULL},
    {"scaled-far", "of class SCALED(4), 4096 units off", QN_IN_ONE_TIER, is_far_off, scaled, NULL},
    {"no-op", "a kernel that does nothing", ALL, does_nothing, NULL, NULL},
    {"tail", "the last elements are left out", ALL, skips_tail, NULL, NULL},
    {"over-run", "one element behind the end is written", BITS, over_runs, NULL, NULL},
    {"under-run", "one byte before the beginning is written", BITS, under_runs, NULL, NULL},
    {"writes-input", "what is only to be read is written", BITS, writes_what_it_reads, NULL, reads_only},
    {"truncation", "16-bit results are cut off, not rounded", ALL, truncates, NULL, has_wide_row},
    {"flush", "denormal results become zero", BITS, flushes_denormals, NULL, NULL},
    {"nan", "NaN becomes zero", ALL, drops_nan, NULL, NULL},
    {"infinity", "infinity becomes the largest number", ALL, bounds_infinity, NULL, NULL},
    {"minus-zero", "-0 becomes +0", BITS, loses_minus_zero, NULL, NULL},
    {"piece-random", "random numbers are counted from the piece", BITS, counts_from_piece, NULL, draws_random},
    {"tensor-random", "all tensors draw the same random numbers", BITS, forgets_tensor, NULL, draws_random},
    {"tally", "a piece counts one too many", BITS, miscounts, NULL, counts},
    {"pitch", "rows are taken as if one began where the other ends", QN_IN_LAYOUTS, ignores_pitch, NULL, NULL},
    {"step", "columns two apart are taken as if nothing were between", QN_IN_LAYOUTS, ignores_step, NULL, NULL},
    {"between", "what lies between two columns is written", QN_IN_LAYOUTS, writes_between, NULL, NULL},
    {"no-ranges", "params outside their ranges are taken", QN_IN_DESCRIPTION, NULL, forgets_ranges, has_refusals},
    {"no-relations", "params that exclude each other are taken", QN_IN_DESCRIPTION, NULL, forgets_relations,
     has_refused_relations},
    {NULL, NULL, 0, NULL, NULL, NULL},
};
