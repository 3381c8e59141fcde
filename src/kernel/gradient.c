/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - holds a function's vjp and jvp against central differences of its forward, in double, on the processor.
 *
 * A vjp gets random cotangents w; input element i is moved to both sides and what w makes of the outputs is compared
 * with the vjp's element i: two launches an element, so points are small. A jvp gets a random tangent of one input at a
 * time: two launches an input. Where either number is not finite nothing is proved, so that is an error and not an
 * agreement; where the function has a kink, differences give a mean of its slopes, and the sentence says so. */
#include "kernel/function.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ARRAYS = 8 * QN_KERNEL_MAX_TENSORS, PLACE_BYTES = 21 * QN_MAX_NDIM + 3 };

typedef struct trial {
  const qn_function *f;
  qn_gradient_check *check;
  qn_tensor x[QN_KERNEL_MAX_TENSORS];                                /* inputs; those in f64 are copies */
  qn_tensor y[QN_KERNEL_MAX_TENSORS];                                /* outputs at the point */
  qn_tensor low[QN_KERNEL_MAX_TENSORS], high[QN_KERNEL_MAX_TENSORS]; /* and to both sides of it */
  double step[QN_KERNEL_MAX_TENSORS];
  uint64_t random;
  void *array[MOST_ARRAYS];
  size_t n_arrays;
} trial;

/* The compared values: numbers of the kernel and of the differences, element by element of one tensor. */
typedef struct comparison {
  const char *what;         /* "the cotangent of" */
  const char *name, *along; /* of the output; NULL: there is no input besides */
  const qn_tensor *shape;
  const double *given;
  double *wanted, *noise, *skew; /* rounding's share; the slopes of the two sides, one less the other */
} comparison;

static size_t count_of(const qn_tensor *t)
{
  size_t n = 1;
  for (int k = 0; k < t->ndim; k++) n *= (size_t)t->shape[k];
  return n;
}

static double *numbers(const qn_tensor *t) { return t->data; }

static qn_status allocate(trial *t, size_t n, size_t bytes, void *pointer)
{
  void *memory = qn_allocate_zero(n ? n : 1, bytes);
  if (!memory) return qn_fail(QN_NO_MEMORY, "%s: no memory for %zu elements of a gradient check", t->f->name, n);
  t->array[t->n_arrays++] = memory;
  memcpy(pointer, &memory, sizeof memory);
  return QN_OK;
}

static void release_to(trial *t, size_t n_arrays)
{
  while (t->n_arrays > n_arrays) qn_release(t->array[--t->n_arrays]);
}

/* A row-major tensor of the type and shape of another, zeroed. */
static qn_status like(trial *t, const qn_tensor *other, qn_dtype dtype, qn_tensor *made)
{
  *made = *other;
  made->dtype = dtype;
  made->strides = NULL;
  return allocate(t, count_of(other), qn_dtype_bytes(dtype), &made->data);
}

/* From -1 to 1, and at least a half away from zero, so that no term is lost in another. */
static double draw(trial *t)
{
  uint64_t z = t->random += 0x9e3779b97f4a7c15u; /* splitmix64 (Steele, Lea and Flood, 2014) */
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  const double magnitude = 0.5 + (double)(z >> 12) * 0x1p-53;
  return z & 1 ? -magnitude : magnitude;
}

static void fill_random(trial *t, const qn_tensor *x)
{
  for (size_t k = 0, n = count_of(x); k < n; k++) numbers(x)[k] = draw(t);
}

/* ---- the point ---- */
static qn_status check_tensor(const trial *t, const char *name, const qn_tensor *x, bool with_data)
{
  qn_require(x->ndim >= 0 && x->ndim <= QN_MAX_NDIM && (!x->ndim || x->shape),
             "%s: \"%s\" has %d dimensions, or no shape", t->f->name, name, x->ndim);
  qn_require(x->device.kind == QN_CPU, "%s: \"%s\" lies on %s; gradients are checked on the processor", t->f->name,
             name, qn_device_kind_name(x->device.kind));
  for (int k = 0; k < x->ndim; k++)
    qn_require(x->shape[k] > 0, "%s: \"%s\" has an extent of %lld", t->f->name, name, (long long)x->shape[k]);
  const bool floating =
      x->dtype == QN_F32 || x->dtype == QN_BF16 || x->dtype == QN_F16 || x->dtype == QN_C64 || x->dtype == QN_NONE;
  if (floating)
    return qn_fail(QN_BAD_TYPE, "%s: \"%s\" is %s; gradients are checked in f64", t->f->name, name,
                   qn_dtype_name(x->dtype));
  qn_require(!with_data || x->data, "%s: the data of \"%s\" is NULL", t->f->name, name);
  return QN_OK;
}

/* Element k in row-major order of a tensor with strides. */
static double element_of(const qn_tensor *x, size_t k)
{
  int64_t at = 0;
  for (int d = x->ndim - 1; d >= 0; d--) {
    at += x->strides[d] * (int64_t)(k % (size_t)x->shape[d]);
    k /= (size_t)x->shape[d];
  }
  return numbers(x)[at];
}

static qn_status take_input(trial *t, size_t k, const qn_tensor *given)
{
  qn_try(check_tensor(t, t->f->forward->source.inputs[k], given, true));
  t->x[k] = *given;
  if (given->dtype != QN_F64) return QN_OK; /* integers are neither moved nor copied */
  qn_try(like(t, given, QN_F64, &t->x[k]));
  double most = 0;
  for (size_t e = 0, n = count_of(given); e < n; e++) {
    const double x = given->strides ? element_of(given, e) : numbers(given)[e];
    numbers(&t->x[k])[e] = x;
    if (fabs(x) > most && !isinf(x)) most = fabs(x);
  }
  t->step[k] = t->check->step != 0 ? t->check->step : 1e-6 * (most > 0 ? most : 1);
  return QN_OK;
}

static qn_status take_point(trial *t)
{
  const qn_kernel_call *call = t->check->forward;
  for (size_t k = 0; k < qn_function_inputs(t->f); k++) qn_try(take_input(t, k, &call->inputs[k]));
  for (size_t k = 0; k < qn_function_outputs(t->f); k++) {
    const qn_tensor *y = &call->outputs[k];
    qn_try(check_tensor(t, t->f->forward->source.outputs[k], y, false));
    qn_try(like(t, y, y->dtype, &t->y[k]));
    qn_try(like(t, y, y->dtype, &t->low[k]));
    qn_try(like(t, y, y->dtype, &t->high[k]));
  }
  return QN_OK;
}

static qn_status launch(qn_kernel *kernel, const qn_kernel_call *call, const qn_tensor *inputs,
                        const qn_tensor *outputs)
{
  const qn_exec exec = {.size = sizeof exec, .device = {QN_CPU, 0}};
  qn_kernel_call with = *call;
  with.inputs = inputs;
  with.outputs = outputs;
  return qn_kernel_launch(kernel, &exec, &with);
}

static qn_status forward(trial *t, const qn_tensor *outputs)
{
  return launch(t->f->forward, t->check->forward, t->x, outputs);
}

/* ---- verdicts ---- */
static const char *place_text(const qn_tensor *x, size_t element, char text[PLACE_BYTES])
{
  size_t index[QN_MAX_NDIM], at = 0;
  for (int d = x->ndim - 1; d >= 0; d--) {
    index[d] = element % (size_t)x->shape[d];
    element /= (size_t)x->shape[d];
  }
  text[at++] = '[';
  for (int d = 0; d < x->ndim; d++)
    at += (size_t)snprintf(text + at, PLACE_BYTES - at, "%s%zu", d ? ", " : "", index[d]);
  text[at++] = ']';
  text[at] = 0;
  return text;
}

static qn_status fail_at(const trial *t, const comparison *c, size_t k, double largest)
{
  char place[PLACE_BYTES], sides[128] = "";
  if (fabs(c->skew[k]) > 0.01 * largest)
    snprintf(sides, sizeof sides, "; the slopes of its two sides differ by %.6g, so it may not be smooth there",
             fabs(c->skew[k]));
  return qn_fail(QN_KERNEL_ERROR,
                 "%s: %s \"%s\"%s%s%s at %s is %.9g, and central differences say %.9g (largest %.6g, tolerance %.3g%s)",
                 t->f->name, c->what, c->name, c->along ? " along \"" : "", c->along ? c->along : "",
                 c->along ? "\"" : "", place_text(c->shape, k, place), c->given[k], c->wanted[k], largest,
                 t->check->tolerance, sides);
}

static qn_status compare(trial *t, const comparison *c)
{
  const size_t n = count_of(c->shape);
  double largest = 0, worst = 0;
  size_t at = 0;
  for (size_t k = 0; k < n; k++) {
    if (!isfinite(c->given[k]) || !isfinite(c->wanted[k])) return fail_at(t, c, k, largest);
    largest = fmax(largest, fmax(fabs(c->given[k]), fabs(c->wanted[k])));
  }
  for (size_t k = 0; k < n; k++) {
    const double off = fabs(c->given[k] - c->wanted[k]) - c->noise[k];
    if (off <= worst) continue;
    worst = off;
    at = k;
  }
  if (worst == 0) return QN_OK;
  t->check->worst = fmax(t->check->worst, worst / largest);
  return worst > t->check->tolerance * largest ? fail_at(t, c, at, largest) : QN_OK;
}

static qn_status begin(trial *t, comparison *c, const qn_tensor *shape, const double *given)
{
  const size_t n = count_of(shape);
  c->shape = shape;
  c->given = given;
  qn_try(allocate(t, n, sizeof(double), &c->wanted));
  qn_try(allocate(t, n, sizeof(double), &c->noise));
  return allocate(t, n, sizeof(double), &c->skew);
}

static bool chosen(const trial *t, size_t input)
{
  return t->x[input].dtype == QN_F64 && (!t->check->input || t->check->input >> input & 1);
}

/* ---- vjp ---- */
/* Element e of input k moved to both sides: what the cotangents make of it. */
static qn_status differ(trial *t, size_t k, size_t e, const qn_tensor *cotangent, comparison *c)
{
  double *x = &numbers(&t->x[k])[e];
  const double here = *x, to = here + t->step[k], from = here - t->step[k], width = to - from;
  *x = to;
  qn_status status = forward(t, t->high);
  *x = from;
  if (status == QN_OK) status = forward(t, t->low);
  *x = here;
  qn_try(status);
  double sum = 0, noise = 0, above = 0;
  for (size_t j = 0; j < qn_function_outputs(t->f); j++) {
    if (t->y[j].dtype != QN_F64) continue;
    const double *y = numbers(&t->y[j]), *low = numbers(&t->low[j]), *high = numbers(&t->high[j]);
    const double *w = numbers(&cotangent[j]);
    for (size_t i = 0, n = count_of(&t->y[j]); i < n; i++) {
      sum += w[i] * (high[i] - low[i]);
      above += w[i] * (high[i] - y[i]);
      noise += fabs(w[i]) * (fabs(high[i]) + fabs(low[i])) * (2 * DBL_EPSILON);
    }
  }
  c->wanted[e] = sum / width;
  c->noise[e] = noise / width;
  c->skew[e] = 2 * above / (to - here) - 2 * c->wanted[e];
  return QN_OK;
}

static qn_status check_vjp(trial *t)
{
  const qn_function *f = t->f;
  const qn_kernel_source *source = &f->vjp->source;
  const size_t inputs = qn_function_inputs(f), outputs = qn_function_outputs(f);
  qn_tensor in[QN_KERNEL_MAX_TENSORS], out[QN_KERNEL_MAX_TENSORS];
  qn_require(t->check->vjp, "%s: it has a vjp, and the check no call for it", f->name);
  memcpy(in, t->x, sizeof *in * inputs);
  for (size_t j = 0; j < outputs; j++) {
    qn_try(like(t, &t->y[j], QN_F64, &in[inputs + j]));
    if (t->y[j].dtype == QN_F64) fill_random(t, &in[inputs + j]);
    if (f->vjp_sees_outputs) in[inputs + outputs + j] = t->y[j];
  }
  uint32_t seen = 0;
  for (size_t k = 0; k < source->n_outputs; k++) {
    qn_try(like(t, &t->x[f->cotangent_of[k]], QN_F64, &out[k]));
    for (size_t e = 0, n = count_of(&out[k]); e < n; e++)
      numbers(&out[k])[e] = NAN; /* an element that is not written stays NaN */
    seen |= 1u << f->cotangent_of[k];
  }
  for (size_t k = 0; k < inputs; k++)
    qn_require(seen >> k & 1 || !(t->check->input >> k & 1), "%s: the vjp has no cotangent of \"%s\" to be checked",
               f->name, f->forward->source.inputs[k]);
  qn_try(launch(f->vjp, t->check->vjp, in, out));
  for (size_t k = 0; k < source->n_outputs; k++) {
    const size_t input = f->cotangent_of[k];
    comparison c = {.what = "the cotangent of", .name = t->f->forward->source.inputs[input]};
    const size_t mark = t->n_arrays;
    if (!chosen(t, input)) continue;
    qn_try(begin(t, &c, &out[k], numbers(&out[k])));
    for (size_t e = 0, n = count_of(&out[k]); e < n; e++) qn_try(differ(t, input, e, in + inputs, &c));
    qn_try(compare(t, &c));
    release_to(t, mark);
  }
  return QN_OK;
}

/* ---- jvp ---- */
/* The point moved along a tangent of input k, which is then put back. */
static qn_status move(trial *t, size_t k, const qn_tensor *tangent, double *kept)
{
  const size_t n = count_of(tangent);
  double *x = numbers(&t->x[k]);
  memcpy(kept, x, n * sizeof *kept);
  for (size_t e = 0; e < n; e++) x[e] = kept[e] + t->step[k] * numbers(tangent)[e];
  qn_status status = forward(t, t->high);
  for (size_t e = 0; e < n; e++) x[e] = kept[e] - t->step[k] * numbers(tangent)[e];
  if (status == QN_OK) status = forward(t, t->low);
  memcpy(x, kept, n * sizeof *kept);
  return status;
}

static qn_status compare_outputs(trial *t, size_t k, const qn_tensor *out)
{
  const double width = 2 * t->step[k];
  for (size_t j = 0; j < qn_function_outputs(t->f); j++) {
    comparison c = {
        .what = "the tangent of", .name = t->f->forward->source.outputs[j], .along = t->f->forward->source.inputs[k]};
    if (t->y[j].dtype != QN_F64) continue;
    const double *y = numbers(&t->y[j]), *low = numbers(&t->low[j]), *high = numbers(&t->high[j]);
    const size_t mark = t->n_arrays;
    qn_try(begin(t, &c, &out[j], numbers(&out[j])));
    for (size_t i = 0, n = count_of(&out[j]); i < n; i++) {
      c.wanted[i] = (high[i] - low[i]) / width;
      c.noise[i] = (fabs(high[i]) + fabs(low[i])) * (2 * DBL_EPSILON) / width;
      c.skew[i] = 2 * (high[i] - y[i]) / t->step[k] - 2 * c.wanted[i];
    }
    qn_try(compare(t, &c));
    release_to(t, mark);
  }
  return QN_OK;
}

static qn_status check_jvp(trial *t)
{
  const qn_function *f = t->f;
  const size_t inputs = qn_function_inputs(f), outputs = qn_function_outputs(f), tangents = qn_function_tangents(f);
  qn_tensor in[QN_KERNEL_MAX_TENSORS], out[QN_KERNEL_MAX_TENSORS];
  qn_require(t->check->jvp, "%s: it has a jvp, and the check no call for it", f->name);
  memcpy(in, t->x, sizeof *in * inputs);
  for (size_t k = 0; k < tangents; k++) qn_try(like(t, &t->x[f->tangent_of[k]], QN_F64, &in[inputs + k]));
  for (size_t j = 0; j < outputs; j++) qn_try(like(t, &t->y[j], QN_F64, &out[j]));
  for (size_t k = 0; k < tangents; k++) {
    const size_t input = f->tangent_of[k];
    double *kept = NULL;
    if (!chosen(t, input)) continue;
    const size_t n = count_of(&in[inputs + k]), mark = t->n_arrays;
    qn_try(allocate(t, n, sizeof *kept, &kept));
    fill_random(t, &in[inputs + k]);
    for (size_t j = 0; j < outputs; j++)
      for (size_t i = 0, m = count_of(&out[j]); i < m; i++) numbers(&out[j])[i] = NAN;
    qn_try(launch(f->jvp, t->check->jvp, in, out));
    qn_try(move(t, input, &in[inputs + k], kept));
    qn_try(compare_outputs(t, input, out));
    memset(in[inputs + k].data, 0, n * sizeof(double));
    release_to(t, mark);
  }
  return QN_OK;
}

/* ---- the call ---- */
static qn_status check_call(const qn_function *f, const char *which, const qn_kernel_call *call)
{
  if (!call) return QN_OK;
  qn_require(call->size == sizeof *call, "%s: the %s call has size %zu, it must be %zu", f->name, which, call->size,
             sizeof *call);
  qn_require(!call->stored_in, "%s: the %s call puts an output into an input's memory, which would move the point",
             f->name, which);
  return QN_OK;
}

static qn_status check_arguments(const qn_function *f, const qn_gradient_check *check)
{
  qn_require(f, "qn_function_check: the function is NULL");
  qn_require(check, "%s: the check is NULL", f->name);
  qn_require(check->size == sizeof *check, "%s: the check has size %zu, it must be %zu", f->name, check->size,
             sizeof *check);
  qn_require(check->forward, "%s: the check has no call of the forward", f->name);
  qn_try(check_call(f, "forward", check->forward));
  qn_try(check_call(f, "vjp", check->vjp));
  qn_try(check_call(f, "jvp", check->jvp));
  const qn_kernel_call *call = check->forward;
  qn_require((call->inputs || !qn_function_inputs(f)) && call->outputs,
             "%s: the call of the forward has no inputs or no outputs", f->name);
  qn_require(check->step >= 0 && isfinite(check->step), "%s: the step is %g", f->name, check->step);
  qn_require(check->tolerance > 0 && isfinite(check->tolerance), "%s: the tolerance is %g, it must be above 0", f->name,
             check->tolerance);
  qn_require(!(check->input >> (qn_function_inputs(f) % 32)) || qn_function_inputs(f) >= 32,
             "%s: the check asks for inputs 0x%x, and there are %zu", f->name, check->input, qn_function_inputs(f));
  if (!f->vjp && !f->jvp) return qn_fail(QN_UNSUPPORTED, "%s has neither vjp nor jvp to check", f->name);
  return QN_OK;
}

static qn_status check_chosen(const trial *t)
{
  for (size_t k = 0; k < qn_function_inputs(t->f); k++)
    qn_require(!(t->check->input >> k & 1) || t->x[k].dtype == QN_F64,
               "%s: input \"%s\" is %s, which has no derivative", t->f->name, t->f->forward->source.inputs[k],
               qn_dtype_name(t->x[k].dtype));
  return QN_OK;
}

/* Where the function itself is not finite, no difference is. */
static qn_status check_outputs(const trial *t)
{
  char place[PLACE_BYTES];
  for (size_t j = 0; j < qn_function_outputs(t->f); j++)
    for (size_t i = 0, n = count_of(&t->y[j]); t->y[j].dtype == QN_F64 && i < n; i++)
      if (!isfinite(numbers(&t->y[j])[i]))
        return qn_fail(QN_KERNEL_ERROR, "%s: \"%s\" at %s is %g; where a function is not finite, it has no gradient",
                       t->f->name, t->f->forward->source.outputs[j], place_text(&t->y[j], i, place),
                       numbers(&t->y[j])[i]);
  return QN_OK;
}

static qn_status run(trial *t)
{
  qn_try(take_point(t));
  qn_try(check_chosen(t));
  qn_try(forward(t, t->y));
  qn_try(check_outputs(t));
  if (t->f->vjp) qn_try(check_vjp(t));
  return t->f->jvp ? check_jvp(t) : QN_OK;
}

qn_status qn_function_check(qn_function *function, qn_gradient_check *check)
{
  qn_try(check_arguments(function, check));
  check->worst = 0;
  trial *t = qn_allocate_zero(1, sizeof *t);
  if (!t) return qn_fail(QN_NO_MEMORY, "%s: no memory for a gradient check", function->name);
  t->f = function;
  t->check = check;
  t->random = check->seed;
  qn_status status = run(t);
  release_to(t, 0);
  qn_release(t);
  return status;
}
