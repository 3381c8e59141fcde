/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_compare.c - see kernel_compare.h. */
#include "workbench/kernel_compare.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/kernel_say.h"
#include <float.h>
#include <math.h>
#include <string.h>

const char *qn_agreement_text(const qn_folder_agreement *a, char *text, size_t bytes)
{
  switch (a->kind) {
  case QN_AGREE_ULP: snprintf(text, bytes, "within %g ulp of", a->amount); break;
  case QN_AGREE_SCALED: snprintf(text, bytes, "within %g eps of the largest of", a->amount); break;
  case QN_AGREE_ANY: snprintf(text, bytes, "not held against"); break;
  default: snprintf(text, bytes, "the bits of"); break;
  }
  return text;
}

/* A c64 is compared as two f32. */
static qn_dtype part_type(qn_dtype dtype) { return dtype == QN_C64 ? QN_F32 : dtype; }
static size_t parts_of(qn_dtype dtype) { return dtype == QN_C64 ? 2 : 1; }

/* The largest finite magnitude of what the reference gave. */
static double magnitude_of(const qn_array *want)
{
  const qn_dtype part = part_type(want->dtype);
  double largest = 0;
  for (size_t k = 0; k < want->elements; k++)
    for (size_t p = 0; p < parts_of(want->dtype); p++) {
      double x = fabs(qn_number_load(part, qn_array_at(want, k) + p * qn_dtype_bytes(part)));
      if (isfinite(x) && x > largest) largest = x;
    }
  return largest;
}

/* The difference in the agreement's units: 0 is the nearest that the type has; INFINITY another kind of number. */
static double distance(qn_dtype type, const void *at, double want, const qn_folder_agreement *a, double unit)
{
  unsigned char rounded[16];
  double got = qn_number_load(type, at);
  qn_number_store(type, rounded, want);
  double nearest = qn_number_load(type, rounded);
  if (isnan(got) || isnan(want)) return isnan(got) && isnan(want) ? 0 : INFINITY;
  if (!memcmp(rounded, at, qn_dtype_bytes(type))) return 0;
  if (a->kind == QN_AGREE_BITS) return INFINITY;
  if (isinf(want)) return INFINITY;
  if (isinf(got)) { /* past the largest number of its type: as far as the next one would be */
    double largest = type == QN_F16 ? 65504 : type == QN_BF16 ? 0x1.fep127 : type == QN_F32 ? FLT_MAX : DBL_MAX;
    got = copysign(largest + qn_number_step(type, largest), got);
  }
  if (isinf(nearest) && signbit(got) != signbit(want)) return INFINITY;
  if (a->kind == QN_AGREE_ULP) unit = qn_number_step(type, want);
  return unit > 0 ? fabs(got - want) / unit : got == want ? 0 : INFINITY;
}

static void say(const qn_array *got, size_t k, const char *whose, const char *should, qn_output_comparison *c)
{
  char place[96], is[64];
  qn_array_place(got, k, place, sizeof place);
  qn_element_text(got->dtype, qn_array_at(got, k), is, sizeof is);
  snprintf(c->why, sizeof c->why, "%s%s is %s, %s %s", got->is->name, place, is, whose, should);
}

static void conclude(const qn_array *got, qn_output_comparison *c)
{
  c->elements = got->elements;
  c->right = !c->wrong;
  size_t used = strlen(c->why);
  if (c->wrong > 1) snprintf(c->why + used, sizeof c->why - used, "; %zu of %zu are wrong", c->wrong, c->elements);
}

void qn_compare_reference(const qn_array *got, const qn_array *want, const qn_folder_agreement *a,
                          qn_output_comparison *c)
{
  const qn_dtype type = part_type(got->dtype), from = part_type(want->dtype);
  const bool real = qn_dtype_is_float(type);
  const qn_folder_agreement exact = {QN_AGREE_BITS, 0};
  *c = (qn_output_comparison){.right = true};
  if (a->kind == QN_AGREE_ANY) return;
  double unit = 0;
  if (a->kind == QN_AGREE_SCALED) unit = qn_number_step(type, 1) * magnitude_of(want);
  for (size_t k = 0; k < got->elements; k++)
    for (size_t p = 0; p < parts_of(got->dtype); p++) {
      const unsigned char *at = qn_array_at(got, k) + p * qn_dtype_bytes(type);
      const unsigned char *ref = qn_array_at(want, k) + p * qn_dtype_bytes(from);
      double off;
      if (real)
        off = distance(type, at, qn_number_load(from, ref), a->kind == QN_AGREE_BITS ? &exact : a, unit);
      else
        off = memcmp(at, ref, qn_dtype_bytes(type)) ? INFINITY : 0;
      if (off > c->worst) c->worst = off;
      if (off <= (real ? a->amount : 0)) continue;
      char should[160], value[64], away[64] = "";
      qn_element_text(want->dtype, qn_array_at(want, k), value, sizeof value);
      if (isfinite(off)) snprintf(away, sizeof away, ", %.3g %s away", off, a->kind == QN_AGREE_ULP ? "ulp" : "eps");
      snprintf(should, sizeof should, "%s%s", value, away);
      if (!c->wrong++) say(got, k, "the reference", should, c);
      break;
    }
  conclude(got, c);
}

bool qn_compare_outputs(const qn_kernel_case *c, const qn_kernel_case *reference, double *worst, char *why,
                        size_t bytes)
{
  for (size_t k = 0; reference && k < c->n_outputs; k++) {
    qn_output_comparison compared;
    qn_compare_reference(qn_kernel_output(c, k), qn_kernel_output(reference, k), &qn_kernel_output(c, k)->is->agreement,
                         &compared);
    if (compared.worst > *worst) *worst = compared.worst;
    if (compared.right) continue;
    snprintf(why, bytes, "%s", compared.why);
    return false;
  }
  return true;
}

void qn_compare_bits(const qn_array *got, const void *data, const char *whose, qn_output_comparison *c)
{
  const size_t width = qn_dtype_bytes(got->dtype);
  const bool real = qn_dtype_is_float(got->dtype);
  *c = (qn_output_comparison){.right = true, .elements = got->elements};
  if (!got->strided && !memcmp(got->data, data, got->elements * width)) return;
  for (size_t k = 0; k < got->elements; k++) {
    const unsigned char *at = qn_array_at(got, k), *want = (const unsigned char *)data + k * width;
    if (!memcmp(at, want, width) || (real && qn_number_same(got->dtype, at, want))) continue;
    char value[64];
    qn_element_text(got->dtype, want, value, sizeof value);
    if (!c->wrong++) say(got, k, whose, value, c);
  }
  conclude(got, c);
}

qn_status qn_kernel_outputs_keep(const qn_kernel_case *c, void *kept[QN_KERNEL_MAX_TENSORS])
{
  for (size_t k = 0; k < c->n_outputs; k++) {
    const qn_array *a = qn_kernel_output(c, k);
    qn_release(kept[k]);
    qn_try(qn_try_allocate(&kept[k], qn_array_bytes(a), "outputs to compare with"));
    memcpy(kept[k], a->data, qn_array_bytes(a));
  }
  return QN_OK;
}

/* Whether an output's bits may differ from launch to launch: sums of floats in the order of arrival. */
static bool is_unordered(const qn_array *a) { return a->is->atomic && (qn_dtype_is_float(a->dtype)); }

bool qn_kernel_outputs_same(const qn_kernel_case *c, void *const kept[QN_KERNEL_MAX_TENSORS], const char *whose,
                            char *why, size_t bytes)
{
  for (size_t k = 0; k < c->n_outputs; k++) {
    qn_output_comparison compared;
    if (is_unordered(qn_kernel_output(c, k)) || !kept[k]) continue;
    qn_compare_bits(qn_kernel_output(c, k), kept[k], whose, &compared);
    if (compared.right) continue;
    snprintf(why, bytes, "%s", compared.why);
    return false;
  }
  return true;
}
