/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.h - shared by the descriptions of the forward, the backward and the forward that quantizes: their structs of
 * params begin with the same members. */
#ifndef QN_OP_SWIGLU_SWIGLU_H
#define QN_OP_SWIGLU_SWIGLU_H
#include "core/status.h"
#include "op/swiglu/swiglu.args.h"
#include <stddef.h>

/* Coefficients on the processor: what devices get too, and the doubles of f64 rows. */
typedef struct qn_swiglu_cpu_coef {
  qn_swiglu_coef f32;
  double gate_multiplier, down_multiplier, alpha, limit;
} qn_swiglu_cpu_coef;

#define QN_SWIGLU_NUMBER(type, member, doc, least)                                                                     \
  {                                                                                                                    \
#member, doc, QN_PARAM_DOUBLE, offsetof(type, member), least, HUGE_VAL, 0, NULL, 0                                 \
  }
#define QN_SWIGLU_PARAMS(type)                                                                                         \
  QN_SWIGLU_NUMBER(type, gate_multiplier, "of a, before the activation", -HUGE_VAL),                                   \
      QN_SWIGLU_NUMBER(type, down_multiplier, "of the result", -HUGE_VAL),                                             \
      QN_SWIGLU_NUMBER(type, alpha, "clamped: of the sigmoid's argument", -HUGE_VAL),                                  \
      QN_SWIGLU_NUMBER(type, limit, "clamped: of a from above, of b on both sides", 0),                                \
  {                                                                                                                    \
    "activation", "of the gate", QN_PARAM_ENUM, offsetof(type, activation), 0, 5, 0,                                   \
        "swiglu|clamped|geglu|reglu|glu|geglu_erf", 0                                                                  \
  }

/* Holds that another call's params begin as the forward's, so that the two below serve it too. */
#define QN_SWIGLU_SAME_PLACE(type, member)                                                                             \
  _Static_assert(offsetof(type, member) == offsetof(qn_swiglu_params, member), "params begin as the forward's")
#define QN_SWIGLU_PARAMS_BEGIN(type)                                                                                   \
  QN_SWIGLU_SAME_PLACE(type, gate_multiplier);                                                                         \
  QN_SWIGLU_SAME_PLACE(type, down_multiplier);                                                                         \
  QN_SWIGLU_SAME_PLACE(type, alpha);                                                                                   \
  QN_SWIGLU_SAME_PLACE(type, limit);                                                                                   \
  QN_SWIGLU_SAME_PLACE(type, activation)

/* The members of a qn_op that the forward and the backward share, behind .info. */
#define QN_SWIGLU_OF_OP(name)                                                                                          \
  .engine = &qn_elementwise, .coef_bytes = sizeof(qn_swiglu_coef), .check = qn_swiglu_check, .flags = flags,           \
  .coefficients = qn_swiglu_cpu_coefficients, .cpu = QN_CPU_TABLE(name),                                               \
  .tune_shapes = "1x4096,1x14336,1x28672,1x53248,16x4096,16x14336,16x28672,16x53248,256x4096,256x8192,256x14336,"      \
                 "256x28672,256x53248,1024x4096,"                                                                      \
                 "1024x8192,1024x14336,1024x28672,1024x53248,16384x1024,8192x4096,8192x8192,8192x14336,4096x28672,"    \
                 "4096x53248",                                                                                         \
  .device_source = "op/" #name "/" #name ".cu"

void qn_swiglu_coefficients(const void *params, void *coef);     /* a qn_swiglu_coef */
void qn_swiglu_cpu_coefficients(const void *params, void *coef); /* a qn_swiglu_cpu_coef, of which devices get the first
                                                                    member */
struct qn_call;                                                  /* of op/call.h */
qn_status qn_swiglu_check(const struct qn_call *call);
#endif
