/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu.cpu.c - gated activations over one piece of a tensor; built once per tier. Every type and gate has a loop of
 * its own, so that both are constants in it. */
#include "op/swiglu/swiglu.cpu.h"

qn_cpu_fn QN_CPU_NAME(swiglu);

typedef struct job {
  qn_swiglu_numbers c;
  bool streams; /* the result goes past the caches */
} job;

QN_FN void run(const job *j, qn_u32 flags, int storage, qn_dtype type, void *const data[QN_MAX_TENSORS], size_t n)
{
  const qn_swiglu_numbers c = j->c;
  const bool streams = j->streams;
  for (size_t k = 0; k < n; k++) {
    qn_f32 a[QN_PACK], b[QN_PACK], to[QN_PACK];
    void *at_a = qn_pack_at(data[QN_SWIGLU_A], type, k), *at_b = qn_pack_at(data[QN_SWIGLU_B], type, k);
    void *at_c = qn_pack_at(data[QN_SWIGLU_C], type, k);
    qn_prefetch_pack(at_a, type);
    qn_prefetch_pack(at_b, type);
    qn_load_pack(at_a, type, a);
    qn_load_pack(at_b, type, b);
    qn_swiglu_pack(&c, flags, storage, a, b, to);
    if (streams)
      qn_stream_pack(at_c, type, to);
    else
      qn_store_pack(at_c, type, to);
  }
}

/* Two loops a gate and type: with down_multiplier and without. */
#define GATE(t, gate)                                                                                                  \
  static void t##_##gate(void *user, void *const data[], size_t n, qn_u64 element)                                     \
  {                                                                                                                    \
    (void)element;                                                                                                     \
    run(user, QN_SWIGLU_##gate, QN_SWIGLU_##t, QN_##t, data, n);                                                       \
  }                                                                                                                    \
  static void t##_##gate##_down(void *user, void *const data[], size_t n, qn_u64 element)                              \
  {                                                                                                                    \
    (void)element;                                                                                                     \
    run(user, QN_SWIGLU_##gate | QN_SWIGLU_DOWN, QN_SWIGLU_##t, QN_##t, data, n);                                      \
  }
#define X(t) GATE(t, SILU) GATE(t, CLAMPED) GATE(t, GEGLU) GATE(t, REGLU) GATE(t, GLU) GATE(t, GEGLU_ERF)
QN_SWIGLU_TIER_ROWS(QN_SWIGLU_ROWS, QN_SWIGLU_DOUBLE_ROWS, X)
#undef X

static const struct {
  qn_op_types types;
  qn_packs_fn *run[QN_SWIGLU_GATES][2];
} rows[] = {
#define PAIR(t, gate) [QN_SWIGLU_##gate] = {t##_##gate, t##_##gate##_down}
#define X(t)                                                                                                           \
  {{{{QN_##t, QN_WRITE}, {QN_##t, QN_READ}, {QN_##t, QN_READ}}},                                                       \
   {PAIR(t, SILU), PAIR(t, CLAMPED), PAIR(t, GEGLU), PAIR(t, REGLU), PAIR(t, GLU), PAIR(t, GEGLU_ERF)}},
    QN_SWIGLU_TIER_ROWS(QN_SWIGLU_ROWS, QN_SWIGLU_DOUBLE_ROWS, X)
#undef X
};

void QN_CPU_NAME(swiglu)(const qn_cpu_call *call, const qn_piece *piece)
{
  const qn_dtype type = rows[call->row].types.tensor[QN_SWIGLU_A].dtype;
  job j = {qn_swiglu_numbers_of(call->coef, type), call->streams};
  qn_walk(piece, &rows[call->row].types,
          rows[call->row].run[call->flags & QN_SWIGLU_GATE_MASK][call->flags & QN_SWIGLU_DOWN ? 1 : 0], &j);
  if (j.streams) qn_stream_end();
}
