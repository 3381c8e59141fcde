/* SPDX-License-Identifier: Apache-2.0 */
/* judge_data.c - see judge_data.h. */
#include "workbench/judge_data.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/kernel_compare.h"
#include "workbench/kernel_fill.h"
#include <math.h>
#include <string.h>

uint64_t qn_draw(uint64_t *random)
{
  *random += UINT64_C(0x9e3779b97f4a7c15);
  return qn_seed_mix(*random, 1);
}

const char *qn_distribution_name(qn_distribution d)
{
  static const char *const names[] = {"as filled", "sparse", "spikes", "all equal", "heavy tail", "tiny"};
  return names[d];
}

/* ---- numbers ---- */
static double changed(double x, size_t k, size_t n, double first, uint64_t key, qn_distribution d, qn_dtype dtype)
{
  const uint64_t bits = qn_seed_mix(key, k);
  switch (d) {
  case QN_DATA_SPARSE: return bits % 10 ? 0 : x;
  case QN_DATA_SPIKES: return k + 1 == n || bits % 251 == 0 ? 16 * x : x;
  case QN_DATA_EQUAL: return first;
  case QN_DATA_HEAVY: return x * fabs(x) / 2;
  case QN_DATA_SMALL: return ldexp(x, dtype == QN_F16 ? -12 : -124);
  default: return x;
  }
}

/* Only where the folder asks for nearly normal numbers: other rules say what the kernel is made for. */
static bool may_change(const qn_data_order *o, const qn_array *a, size_t fill)
{
  qn_rule rule;
  const qn_folder_size *size =
      o->spec->workload ? &o->folder->workload[o->spec->base] : &o->folder->size[o->spec->base];
  if (size->fill || a->is->scalar || !qn_dtype_is_float(a->dtype) || !a->ndim || a->strided) return false;
  const char *text = a->is->n_fills ? a->is->fill[fill % a->is->n_fills] : qn_rule_default(a->dtype);
  return qn_rule_read(text, &rule) == QN_OK && rule.kind == QN_RULE_NORMAL && rule.b == 0;
}

static void change_inputs(const qn_data_order *o, qn_kernel_case *c)
{
  for (size_t i = 0; o->distribution && i < c->n_inputs; i++) {
    qn_array *a = &c->array[i];
    const size_t width = qn_dtype_bytes(a->dtype);
    if (!may_change(o, a, o->fill)) continue;
    const double first = qn_number_load(a->dtype, a->data);
    const uint64_t key = qn_seed_mix(o->seed, 0x517 + i);
    for (size_t k = 0; k < a->elements; k++) {
      unsigned char *at = a->data + k * width;
      qn_number_store(a->dtype, at,
                      changed(qn_number_load(a->dtype, at), k, a->elements, first, key, o->distribution, a->dtype));
    }
    if (a->was) memcpy(a->was, a->data, a->elements * width);
  }
}

static qn_status make_case(const qn_data_order *o, qn_judged_launch *l)
{
  qn_kernel_case_order order = {
      .device = {QN_CPU, 0}, .pool = o->pool, .fill = o->fill, .seed = o->seed, .keep = true, .arena = o->at};
  *l = (qn_judged_launch){.c = NULL};
  qn_talk_order(o->folder, o->spec, l->set, &order);
  return qn_kernel_case_create(&l->c, &order);
}

qn_status qn_judged_launch_make(const qn_data_order *o, qn_judged_launch *l)
{
  qn_try(make_case(o, l));
  change_inputs(o, l->c);
  return QN_OK;
}

qn_status qn_judged_launch_reference(qn_judged_launch *l) { return qn_kernel_case_reference(l->c, &l->reference); }

void qn_judged_launch_clear(qn_judged_launch *l)
{
  if (l->reference) qn_kernel_case_destroy(&l->reference);
  if (l->c) qn_kernel_case_destroy(&l->c);
}

/* ---- right or wrong ---- */
bool qn_judged_launch_right(const qn_judged_launch *l, const qn_kernel_case *reference, qn_judge_word *word, char *why,
                            size_t bytes)
{
  double worst = 0;
  *word = QN_JUDGED_REFUSED;
  if (!qn_kernel_case_intact(l->c, why, bytes)) return false;
  *word = QN_JUDGED_WRONG;
  return qn_compare_outputs(l->c, reference, &worst, why, bytes);
}

void qn_judged_launch_errors(const qn_judged_launch *l, const qn_kernel_case *reference, double *max_abs,
                             double *mean_abs, double *error)
{
  double sum = 0, above = 0, below = 0;
  size_t n = 0;
  for (size_t o = 0; o < l->c->n_outputs; o++) {
    const qn_array *got = qn_kernel_output(l->c, o), *want = qn_kernel_output(reference, o);
    if (!qn_dtype_is_float(got->dtype) || got->is->agreement.kind == QN_AGREE_ANY || want->dtype != QN_F64) continue;
    for (size_t k = 0; k < got->elements; k++) {
      const double w = qn_number_load(QN_F64, qn_array_at(want, k));
      const double d = qn_number_load(got->dtype, qn_array_at(got, k)) - w;
      if (!isfinite(d) || !isfinite(w)) continue;
      if (fabs(d) > *max_abs) *max_abs = fabs(d);
      sum += fabs(d);
      above += d * d;
      below += w * w;
      n++;
    }
  }
  *mean_abs = n ? sum / (double)n : 0;
  *error = below > 0 ? sqrt(above / below) : 0;
}

/* ---- known-wrong outputs ---- */
static void store_all(qn_array *to, const qn_array *from, size_t shift)
{
  const size_t width = qn_dtype_bytes(to->dtype);
  for (size_t k = 0; k < to->elements; k++) {
    const unsigned char *at = qn_array_at(from, (k + shift) % from->elements);
    if (to->dtype == from->dtype)
      memcpy(to->data + k * width, at, width);
    else
      qn_number_store(to->dtype, to->data + k * width, qn_number_load(from->dtype, at));
  }
}

static void store_mean(qn_array *to, const qn_array *want)
{
  const size_t width = qn_dtype_bytes(to->dtype);
  double sum = 0;
  for (size_t k = 0; k < want->elements; k++) {
    const double x = qn_number_load(want->dtype, qn_array_at(want, k));
    if (isfinite(x)) sum += x;
  }
  const double mean = want->elements ? sum / (double)want->elements : 0;
  memset(to->data, 0, to->elements * width);
  for (size_t k = 0; to->dtype != QN_C64 && k < to->elements; k++)
    qn_number_store(to->dtype, to->data + k * width, mean);
}

enum { ZEROS, CONSTANT, OTHER, SHUFFLED, NOTHING, MUTANTS };

static void plant(qn_kernel_case *c, const qn_kernel_case *want, const qn_kernel_case *other, int mutant)
{
  for (size_t o = 0; o < c->n_outputs; o++) {
    qn_array *a = &c->array[c->n_inputs + o];
    const size_t rows = a->ndim > 1 && a->shape[0] > 1 ? a->elements / (size_t)a->shape[0] : a->elements / 2;
    switch (mutant) {
    case ZEROS: memset(a->data, 0, qn_array_bytes(a)); break;
    case CONSTANT: store_mean(a, qn_kernel_output(want, o)); break;
    case OTHER: store_all(a, qn_kernel_output(other, o), 0); break;
    case SHUFFLED: store_all(a, qn_kernel_output(want, o), rows); break;
    default: memset(a->data, 0xff, qn_array_bytes(a));
    }
  }
}

/* Of single elements a constant and shuffled rows are the right outputs. */
static bool has_many(const qn_kernel_case *c)
{
  for (size_t k = 0; k < c->n_outputs; k++)
    if (qn_kernel_output(c, k)->elements > 1) return true;
  return false;
}

void qn_passing_mutants(const qn_judged_launch *l, const qn_kernel_case *other, char *text, size_t bytes)
{
  static const char *const names[] = {"zeros", "a constant", "the output of other inputs", "shuffled rows",
                                      "no output"};
  char why[512];
  double worst = 0;
  *text = 0;
  for (int m = 0; m < MUTANTS; m++) {
    if ((m == CONSTANT || m == SHUFFLED) && !has_many(l->c)) continue;
    plant(l->c, l->reference, other, m);
    if (!qn_compare_outputs(l->c, l->reference, &worst, why, sizeof why)) continue;
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", names[m]);
  }
}

bool qn_same_outputs(const qn_kernel_case *a, const qn_kernel_case *b)
{
  for (size_t k = 0; k < a->n_outputs; k++) {
    const qn_array *x = qn_kernel_output(a, k), *y = qn_kernel_output(b, k);
    if (memcmp(x->data, y->data, qn_array_bytes(x)) != 0) return false;
  }
  return true;
}

/* ---- sizes ---- */
qn_status qn_spec_amount(const qn_folder *folder, const qn_talk_spec *spec, uint64_t *elements, uint64_t *bytes)
{
  qn_name set[QN_FOLDER_NAMES];
  qn_kernel_case_order order = {.device = {QN_CPU, 0}, .foreign = true};
  qn_kernel_case *c = NULL;
  qn_talk_order(folder, spec, set, &order);
  qn_try(qn_kernel_case_create(&c, &order));
  *bytes = c->memory_bytes;
  *elements = 0;
  for (size_t k = 0; k < c->n_inputs + c->n_outputs; k++) *elements += c->array[k].elements;
  qn_kernel_case_destroy(&c);
  return QN_OK;
}

/* The extent's range: the domain's, else that of the folder's sizes. */
static void range_of(const qn_folder *f, size_t extent, int64_t *low, int64_t *high, int64_t *step)
{
  *step = 1;
  if (f->domain[extent].high) {
    *low = f->domain[extent].low;
    *high = f->domain[extent].high;
    *step = f->domain[extent].step;
    return;
  }
  *low = INT64_MAX;
  *high = 1;
  for (size_t s = 0; s < f->n_sizes; s++)
    for (size_t k = 0; k < f->size[s].n; k++) {
      if (strcmp(f->size[s].value[k].name, f->extent[extent]) != 0) continue;
      if (f->size[s].value[k].value < *low) *low = f->size[s].value[k].value;
      if (f->size[s].value[k].value > *high) *high = f->size[s].value[k].value;
    }
  if (*low > *high) *low = *high;
}

static int64_t draw_extent(uint64_t *random, int64_t low, int64_t high)
{
  static const int64_t known[] = {1,   2,   3,   5,   7,   15,  17,  31,  33,   61,   63,   65,   97,
                                  127, 129, 251, 255, 257, 509, 511, 513, 1021, 1023, 1025, 4093, 16381};
  enum { KNOWN = sizeof known / sizeof *known };
  const uint64_t bits = qn_draw(random);
  for (uint64_t k = 0; bits % 4 && k < KNOWN; k++) {
    const int64_t value = known[(bits / 4 + k) % KNOWN];
    if (value >= low && value <= high) return value;
  }
  const double share = (double)(bits >> 11) * 0x1p-53;
  return low + (int64_t)floor(pow((double)(high - low) + 1, share)) - 1;
}

void qn_spec_draw(const qn_folder *f, uint64_t *random, qn_talk_spec *spec)
{
  *spec = (qn_talk_spec){.drawn = true, .base = (uint32_t)(qn_draw(random) % f->n_sizes)};
  for (size_t e = 0; e < f->n_extents; e++) {
    int64_t low, high, step;
    range_of(f, e, &low, &high, &step);
    const int64_t value = draw_extent(random, low, high);
    spec->extent[e] = step > 1 ? (value + step - 1) / step * step : value;
    if (spec->extent[e] > high) spec->extent[e] = high / step * step;
  }
}
