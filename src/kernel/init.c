/* SPDX-License-Identifier: Apache-2.0 */
/* init.c - what outputs hold before the body runs: a value made an element of the output's type. */
#include "base/kernel.h"
#include "kernel/call.h"
#include <math.h>
#include <string.h>

/* ---- a value as an element ---- */

typedef struct whole {
  int64_t low;
  uint64_t high;
} whole;

static whole range_of(qn_dtype dtype)
{
  switch (dtype) {
  case QN_BOOL: return (whole){0, 1};
  case QN_U8: return (whole){0, UINT8_MAX};
  case QN_I8: return (whole){INT8_MIN, INT8_MAX};
  case QN_U16: return (whole){0, UINT16_MAX};
  case QN_I16: return (whole){INT16_MIN, INT16_MAX};
  case QN_U32: return (whole){0, UINT32_MAX};
  case QN_I32: return (whole){INT32_MIN, INT32_MAX};
  case QN_U64: return (whole){0, INT64_MAX}; /* as much as a qn_value says */
  default: return (whole){INT64_MIN, INT64_MAX};
  }
}

static bool is_floating(qn_dtype dtype) { return qn_dtype_is_float(dtype) || dtype == QN_C64; }

static void store_real(double x, qn_dtype dtype, unsigned char element[8])
{
  const float narrow = (float)x;
  const uint16_t half = dtype == QN_F16 ? qn_float_f16(narrow) : qn_float_bf16(narrow);
  memset(element, 0, 8); /* of a complex number this is the imaginary part */
  if (dtype == QN_F64)
    memcpy(element, &x, sizeof x);
  else if (dtype == QN_F16 || dtype == QN_BF16)
    memcpy(element, &half, sizeof half);
  else
    memcpy(element, &narrow, sizeof narrow);
}

/* Little-endian, as all that quern runs on: the low bytes are the element. */
static qn_status store_whole(int64_t n, qn_dtype dtype, const char *kernel, const char *what, const char *tensor,
                             unsigned char element[8])
{
  const whole range = range_of(dtype);
  qn_require(n >= range.low && (n < 0 || (uint64_t)n <= range.high), "kernel %s: the %s of %s: %lld is no %s", kernel,
             what, tensor, (long long)n, qn_dtype_name(dtype));
  memcpy(element, &n, sizeof n);
  return QN_OK;
}

qn_status qn_value_store(const qn_value *value, qn_dtype dtype, const char *kernel, const char *what,
                         const char *tensor, unsigned char element[8])
{
  qn_require(qn_dtype_bytes(dtype), "kernel %s: %s: %d is no storage type that is known", kernel, tensor, (int)dtype);
  qn_require(dtype != QN_F8E4M3, "kernel %s: %s is f8e4m3, which kernels from a body do not take", kernel, tensor);
  qn_require(value->kind == QN_VALUE_BOOL || value->kind == QN_VALUE_INT || value->kind == QN_VALUE_FLOAT,
             "kernel %s: the %s of %s is neither a bool nor a number (kind %d)", kernel, what, tensor,
             (int)value->kind);
  const bool real = value->kind == QN_VALUE_FLOAT;
  if (is_floating(dtype)) {
    store_real(real ? value->real : (double)value->integer, dtype, element);
    return QN_OK;
  }
  if (!real)
    return store_whole(value->kind == QN_VALUE_BOOL ? value->integer != 0 : value->integer, dtype, kernel, what, tensor,
                       element);
  const double x = value->real;
  qn_require(x == floor(x) && x >= -0x1p63 && x < 0x1p63, "kernel %s: the %s of %s: %.17g is no %s", kernel, what,
             tensor, x, qn_dtype_name(dtype));
  return store_whole((int64_t)x, dtype, kernel, what, tensor, element);
}

static double load_real(const void *element, qn_dtype dtype)
{
  double x;
  float narrow;
  uint16_t half;
  memcpy(&half, element, sizeof half);
  if (dtype == QN_F16) return (double)qn_f16_float(half);
  if (dtype == QN_BF16) return (double)qn_bf16_float(half);
  if (dtype == QN_F64) return memcpy(&x, element, sizeof x), x;
  return memcpy(&narrow, element, sizeof narrow), (double)narrow;
}

bool qn_value_load(const void *element, qn_dtype dtype, qn_value *value)
{
  uint64_t bits = 0;
  const unsigned unused = 64 - 8 * (unsigned)qn_dtype_bytes(dtype);
  if (dtype == QN_C64) return false;
  if (is_floating(dtype)) {
    *value = (qn_value){.kind = QN_VALUE_FLOAT, .real = load_real(element, dtype)};
    return true;
  }
  memcpy(&bits, element, qn_dtype_bytes(dtype));
  *value = (qn_value){.kind = dtype == QN_BOOL ? QN_VALUE_BOOL : QN_VALUE_INT};
  value->integer = range_of(dtype).low ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
  return dtype != QN_U64 || value->integer >= 0;
}

/* ---- of a call ---- */

static uint64_t elements_of(const qn_tensor *t)
{
  uint64_t n = 1;
  for (int d = 0; d < t->ndim; d++) n *= (uint64_t)t->shape[d];
  return n;
}

qn_status qn_outputs_check_init(const qn_kernel *kernel, const qn_kernel_call *call)
{
  unsigned char element[8];
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 0; call->init && k < s->n_outputs; k++) {
    const qn_tensor *t = &call->outputs[k];
    if (call->init[k].kind == QN_VALUE_NONE) continue;
    qn_try(qn_value_store(&call->init[k], t->dtype, s->name, "first value", s->outputs[k], element));
    qn_require(!call->stored_in || call->stored_in[k] < 0,
               "kernel %s: output %s is stored in input %s, and a first value would overwrite that", s->name,
               s->outputs[k], s->inputs[call->stored_in[k]]);
    qn_require((uintptr_t)t->data % qn_dtype_bytes(t->dtype) == 0,
               "kernel %s: output %s begins at %p; for a first value it is aligned to its %zu-byte elements", s->name,
               s->outputs[k], t->data, qn_dtype_bytes(t->dtype));
  }
  return QN_OK;
}

/* Of the fills that a launch would make, those that are kernels. */
qn_status qn_outputs_prepare(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  unsigned char element[8];
  for (size_t k = 0; call->init && exec->device.kind == QN_CUDA && k < kernel->source.n_outputs; k++) {
    const qn_tensor *t = &call->outputs[k];
    if (call->init[k].kind == QN_VALUE_NONE) continue;
    qn_try(qn_value_store(&call->init[k], t->dtype, kernel->source.name, "first value", kernel->source.outputs[k],
                          element));
    if (!qn_is_one_byte(element, qn_dtype_bytes(t->dtype)))
      qn_try(qn_fill_by_kernel(exec, element, qn_dtype_bytes(t->dtype), NULL, elements_of(t)));
  }
  return QN_OK;
}

qn_status qn_outputs_init(const qn_kernel *kernel, const qn_exec *exec, const qn_kernel_call *call)
{
  unsigned char element[8];
  for (size_t k = 0; call->init && k < kernel->source.n_outputs; k++) {
    if (call->init[k].kind == QN_VALUE_NONE) continue;
    const qn_tensor *t = &call->outputs[k];
    qn_try(qn_value_store(&call->init[k], t->dtype, kernel->source.name, "first value", kernel->source.outputs[k],
                          element));
    qn_try(qn_fill_elements(exec, element, qn_dtype_bytes(t->dtype), t->data, elements_of(t)));
  }
  return QN_OK;
}
