/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu_backward.cpu.c - the gradients of gated activations over one piece of a tensor; built once per tier. */
#include "op/swiglu/swiglu.cpu.h"
#include "op/swiglu_backward/swiglu_backward.math.h"

qn_cpu_fn QN_CPU_NAME(swiglu_backward);

typedef struct job {
  qn_swiglu_numbers c;
  bool streams; /* tensors that are only written go past the caches */
} job;

QN_FN void put(bool streams, void *to, qn_dtype type, const qn_f32 x[QN_PACK])
{
  if (streams)
    qn_stream_pack(to, type, x);
  else
    qn_store_pack(to, type, x);
}

QN_FN void run(const job *j, qn_u32 gate, int storage, qn_dtype type, bool over, void *const data[QN_MAX_TENSORS],
               size_t n)
{
  const qn_swiglu_numbers c = j->c;
  const bool streams = j->streams && !over;
  const int da_role = over ? QN_SWIGLU_BACKWARD_A : QN_SWIGLU_BACKWARD_DA;
  const int db_role = over ? QN_SWIGLU_BACKWARD_B : QN_SWIGLU_BACKWARD_DB;
  for (size_t k = 0; k < n; k++) {
    qn_f32 dc[QN_PACK], a[QN_PACK], b[QN_PACK], da[QN_PACK], db[QN_PACK];
    void *at_dc = qn_pack_at(data[QN_SWIGLU_BACKWARD_DC], type, k);
    void *at_a = qn_pack_at(data[QN_SWIGLU_BACKWARD_A], type, k),
         *at_b = qn_pack_at(data[QN_SWIGLU_BACKWARD_B], type, k);
    qn_prefetch_pack(at_dc, type);
    qn_prefetch_pack(at_a, type);
    qn_prefetch_pack(at_b, type);
    qn_load_pack(at_dc, type, dc);
    qn_load_pack(at_a, type, a);
    qn_load_pack(at_b, type, b);
    qn_swiglu_backward_pack(&c, gate, storage, dc, a, b, da, db);
    put(streams, qn_pack_at(data[da_role], type, k), type, da);
    put(streams, qn_pack_at(data[db_role], type, k), type, db);
  }
}

/* Two loops a gate and type: gradients apart, and over a and b. */
#define GATE(t, gate)                                                                                                  \
  static void t##_##gate##_READ(void *user, void *const data[], size_t n, qn_u64 element)                              \
  {                                                                                                                    \
    (void)element;                                                                                                     \
    run(user, QN_SWIGLU_##gate, QN_SWIGLU_##t, QN_##t, false, data, n);                                                \
  }                                                                                                                    \
  static void t##_##gate##_READ_WRITE(void *user, void *const data[], size_t n, qn_u64 element)                        \
  {                                                                                                                    \
    (void)element;                                                                                                     \
    run(user, QN_SWIGLU_##gate, QN_SWIGLU_##t, QN_##t, true, data, n);                                                 \
  }
#define X(t) GATE(t, SILU) GATE(t, CLAMPED) GATE(t, GEGLU) GATE(t, REGLU) GATE(t, GLU) GATE(t, GEGLU_ERF)
QN_SWIGLU_TIER_ROWS(QN_SWIGLU_ROWS, QN_SWIGLU_DOUBLE_ROWS, X)
#undef X

static const struct {
  qn_op_types types;
  qn_packs_fn *run[QN_SWIGLU_GATES];
} rows[] = {
#define X(t, access, d, d_access)                                                                                      \
  {{{{QN_##t, QN_READ},                                                                                                \
     {QN_##t, QN_##access},                                                                                            \
     {QN_##t, QN_##access},                                                                                            \
     {QN_##d, QN_##d_access},                                                                                          \
     {QN_##d, QN_##d_access}}},                                                                                        \
   {t##_SILU_##access, t##_CLAMPED_##access, t##_GEGLU_##access, t##_REGLU_##access, t##_GLU_##access,                 \
    t##_GEGLU_ERF_##access}},
    QN_SWIGLU_TIER_ROWS(QN_SWIGLU_BACKWARD_ROWS, QN_SWIGLU_BACKWARD_DOUBLE_ROWS, X)
#undef X
};

void QN_CPU_NAME(swiglu_backward)(const qn_cpu_call *call, const qn_piece *piece)
{
  const qn_dtype type = rows[call->row].types.tensor[QN_SWIGLU_BACKWARD_A].dtype;
  job j = {qn_swiglu_numbers_of(call->coef, type), call->streams};
  qn_walk(piece, &rows[call->row].types, rows[call->row].run[call->flags & QN_SWIGLU_GATE_MASK], &j);
  if (j.streams) qn_stream_end();
}
