/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c - see oracle.h. It calls the op's oracle tier, which is the op's own formula compiled for double. */
#include "workbench/oracle.h"
#include "core/core.h"
#include <float.h>
#include <math.h>
#include <string.h>

static const double UNIT = 0x1p-24, STIR = 4;
static const double SMALLEST = 0x1p-149; /* f32's step near zero: products round there by that much */
static const double TINY = 0x1p-72;      /* below, a product with a coefficient may vanish in f32 and not in double */

static qn_status make_arrays(qn_oracle *o)
{
  const qn_subject *d = o->subject;
  o->n = d->role[0].place[o->tensor].elements;
  size_t bytes = (o->n + 1) * sizeof(double);
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    if (!d->role[r].n) continue;
    qn_try(qn_try_allocate(&o->in[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->out[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->stirred[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->scale[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->jump[r], bytes, "the oracle"));
    qn_try(qn_try_allocate(&o->vanish[r], bytes, "the oracle"));
    for (size_t i = 0; i < o->n; i++)
      o->in[r][i] = d->role[r].access & QN_READ ? qn_subject_number(d, d->role[r].before, r, o->tensor, i) : NAN;
  }
  return QN_OK;
}

/* The oracle on `in`, with input role `moved` moved by `sign` STIR units, or, sign 0, its tiny numbers zero (moved >=
 * n_tensors: nothing is moved); results in `to`. */
static void evaluate(const qn_oracle *o, size_t moved, double sign, double *const *to)
{
  qn_piece piece = {.n = o->n, .place = o->place};
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    if (!o->in[r]) continue;
    memcpy(to[r], o->in[r], o->n * sizeof(double));
    for (size_t i = 0; i < o->n && r == moved; i++)
      to[r][i] = sign == 0 && fabs(to[r][i]) < TINY ? 0 : to[r][i] * (1 + sign * STIR * UNIT);
    piece.data[r] = to[r];
  }
  if (o->n) o->op->cpu[QN_TIER_ORACLE](&o->call, &piece);
}

static void measure_scale(qn_oracle *o)
{
  size_t roles = o->op->info.n_tensors;
  evaluate(o, roles, 0, o->out);
  for (size_t r = 0; r < roles; r++)
    for (size_t i = 0; i < o->n && o->in[r]; i++) {
      o->scale[r][i] = fabs(o->out[r][i]);
      o->jump[r][i] = o->vanish[r][i] = 0;
    }
  for (size_t moved = 0; moved < roles; moved++) {
    if (!(o->subject->role[moved].access & QN_READ)) continue;
    for (int sign = -1; sign <= 1; sign++) {
      if (sign == 0 && o->op->info.oracle_ranged) continue;
      evaluate(o, moved, sign, o->stirred);
      for (size_t r = 0; r < roles; r++)
        for (size_t i = 0; i < o->n && o->in[r]; i++) {
          double change = fabs(o->stirred[r][i] - o->out[r][i]);
          if (!isfinite(change)) continue;
          if (sign) o->scale[r][i] += change / (2 * STIR * UNIT); /* half of it from each direction */
          double *most = sign ? &o->jump[r][i] : &o->vanish[r][i];
          *most = fmax(*most, change);
        }
    }
  }
}

/* Where a reduction comes first, its result is what the reference counts, for the oracle's last phase too: only where a
 * sign is within rounding can the oracle's own count differ. */
static void count(qn_oracle *o, int phases)
{
  qn_piece piece = {.n = o->n, .tally = o->counted[0]}, wide = {.n = o->n, .tally = o->counted[1]};
  for (size_t r = 0; r < o->op->info.n_tensors; r++) {
    if (!o->in[r]) continue;
    piece.data[r] = o->subject->role[r].before + o->subject->role[r].place[o->tensor].offset;
    wide.data[r] = o->in[r];
  }
  for (o->call.phase = 0; o->call.phase < phases - 1 && o->n; o->call.phase++) {
    o->op->cpu[QN_TIER_REF](&o->call, &piece);
    o->op->cpu[QN_TIER_ORACLE](&o->call, &wide);
  }
  const uint64_t *tally = o->counted[0];
  memcpy(o->coef + o->op->tally_offset - 1, &tally, sizeof tally);
  o->place = 0;
}

qn_status qn_oracle_open(qn_oracle *o, const qn_op *op, const void *params, const qn_subject *subject, size_t tensor)
{
  *o = (qn_oracle){.op = op, .subject = subject, .tensor = tensor, .place = (uint32_t)tensor};
  int phases = op->phases ? op->phases(params) : 1;
  o->call =
      (qn_cpu_call){.row = subject->row, .flags = op->flags ? op->flags(params, subject->row) : 0, .coef = o->coef};
  op->coefficients(params, o->coef);
  qn_try(make_arrays(o));
  if (phases > 1) count(o, phases);
  o->call.phase = phases - 1;
  measure_scale(o);
  return QN_OK;
}

void qn_oracle_close(qn_oracle *o)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    qn_release(o->in[r]);
    qn_release(o->out[r]);
    qn_release(o->stirred[r]);
    qn_release(o->scale[r]);
    qn_release(o->jump[r]);
    qn_release(o->vanish[r]);
  }
}

bool qn_oracle_uncertain(const qn_oracle *o, size_t role, size_t index)
{
  const double smooth = 256 * STIR * UNIT * fabs(o->out[role][index]) + 4 * SMALLEST;
  return fmax(o->jump[role][index], o->vanish[role][index]) > smooth;
}

static double largest(qn_dtype dtype) { return dtype == QN_F16 ? 65504 : dtype == QN_BF16 ? 0x1.fep127 : FLT_MAX; }

/* A rounding to nearest adds half a step of 16-bit storage, one by chance a whole one; f32's is among the units. */
static double storage_error(const qn_oracle *o, qn_dtype dtype, double value)
{
  if (qn_dtype_bytes(dtype) != 2) return 0;
  return qn_number_step(dtype, value) * (o->call.flags & o->op->random_flags ? 1 : 0.5);
}

double qn_oracle_miss(const qn_oracle *o, size_t role, size_t index, double got, const double *given, double units,
                      int steps)
{
  qn_dtype dtype = o->subject->role[role].dtype;
  double want = given ? *given : o->out[role][index], scale = o->scale[role][index];
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
  double allowed = steps * storage_error(o, dtype, fmax(fabs(want), fabs(got))) + units * SMALLEST;
  if (qn_oracle_uncertain(o, role, index)) allowed += o->jump[role][index];
  allowed += o->vanish[role][index]; /* however small beside the result: a tiny momentum decides a sign, or none */
  if (isinf(want) || isinf(got)) {
    double finite = isinf(got) ? want : got, infinite = isinf(got) ? got : want;
    bool at_the_edge =
        fabs(finite) + allowed + units * UNIT * scale >= largest(dtype) && (finite > 0) == (infinite > 0);
    return got == want || (at_the_edge && !(isinf(want) && !given)) ? 0 : INFINITY;
  }
  double error = fabs(got - want) - allowed;
  return error <= 0 ? 0 : error / (UNIT * scale);
}
