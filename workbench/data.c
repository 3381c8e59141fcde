/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - see data.h. Counter-based: splitmix64 (Steele, Lea, Flood, 2014) of a key and the element's index. */
#include "workbench/data.h"
#include "base/kernel.h"
#include "workbench/fill.h"
#include <math.h>
#include <string.h>

static inline uint64_t mix(uint64_t x)
{
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);

/* Sum of the four 16-bit words of a hash, centred; its deviation is 65536 / sqrt(3). */
static inline float normal(uint64_t key, uint64_t k)
{
  uint64_t x = mix(key + k * golden);
  int sum = (int)(x & 0xffff) + (int)(x >> 16 & 0xffff) + (int)(x >> 32 & 0xffff) + (int)(x >> 48);
  return (float)(sum - 2 * 65535);
}

static inline float value(const qn_data_rule *rule, float unit, uint64_t key, uint64_t k)
{
  float x = unit * normal(key, k);
  return rule->fill == QN_FILL_NON_NEGATIVE ? fabsf(x) : x;
}

void qn_data_fill(const qn_data_rule *rule, uint64_t tensor, uint64_t first, size_t n, void *to)
{
  if (rule->poison) {
    memset(to, 0xff, n * qn_dtype_bytes(rule->dtype)); /* a NaN in every type */
    return;
  }
  uint64_t key = mix(rule->seed + golden * (tensor + 1));
  float unit = (float)(rule->scale * sqrt(3.0) / 65536);
  switch (rule->dtype) {
  case QN_F32:
    for (size_t k = 0; k < n; k++) ((float *)to)[k] = value(rule, unit, key, first + k);
    break;
  case QN_BF16:
    for (size_t k = 0; k < n; k++) ((uint16_t *)to)[k] = qn_float_bf16(value(rule, unit, key, first + k));
    break;
  case QN_F16:
    for (size_t k = 0; k < n; k++) ((uint16_t *)to)[k] = qn_float_f16(value(rule, unit, key, first + k));
    break;
  case QN_F64:
    for (size_t k = 0; k < n; k++) ((double *)to)[k] = value(rule, unit, key, first + k);
    break;
  case QN_F8E4M3:
    for (size_t k = 0; k < n; k++) ((uint8_t *)to)[k] = qn_float_f8e4m3(value(rule, unit, key, first + k));
    break;
  default: break; /* no op stores other types */
  }
}

double qn_data_value(qn_dtype dtype, const void *data, size_t k)
{
  return qn_number_load(dtype, (const char *)data + k * qn_dtype_bytes(dtype));
}

size_t qn_data_differ(qn_dtype dtype, const void *a, const void *b, size_t n)
{
  size_t bytes = qn_dtype_bytes(dtype);
  if (!memcmp(a, b, n * bytes)) return n;
  for (size_t k = 0; k < n; k++) {
    if (!qn_number_same(dtype, (const char *)a + k * bytes, (const char *)b + k * bytes)) return k;
  }
  return n;
}
