/* SPDX-License-Identifier: Apache-2.0 */
/* lion.cpu.c - Lion over one piece of a tensor; built once per tier. Every row of the type table has a loop of its own,
 * and one more for the steps that no flag complicates. */
#include "base/for_packs.h"
#include "op/lion/lion.math.h"

qn_cpu_fn QN_CPU_NAME(lion);

typedef struct job {
  qn_lion_coef c;
  qn_u32 flags, tensor_id;
  float factor;
  bool streams; /* tensors that are only written go past the caches */
  uint64_t agreeing;
} job;

/* Out of line, once for all rows: it is long, and its arithmetic hides the call. */
static __attribute__((noinline)) void store_by_chance(const job *j, qn_u32 stream, void *to, qn_dtype dtype,
                                                      const qn_f32 x[QN_PACK], qn_u64 element)
{
  const qn_random from = {j->c.seed, j->c.step, j->tensor_id, stream};
  qn_bits word[QN_PACK];
  qn_random_pack(&from, element, word);
  qn_store_pack_chance(to, dtype, x, word);
}

/* `flags` are j->flags; a constant where a row has a loop of its own for them. */
QN_FN void step(const job *j, qn_u32 flags, const qn_op_types *row, void *const data[QN_MAX_TENSORS], size_t n,
                qn_u64 element)
{
  const int source = row->tensor[QN_LION_MASTER].dtype == QN_NONE ? QN_LION_PARAM : QN_LION_MASTER;
  const qn_dtype p_type = row->tensor[QN_LION_PARAM].dtype, g_type = row->tensor[QN_LION_GRAD].dtype;
  const qn_dtype m_type = row->tensor[QN_LION_MOMENTUM].dtype, source_type = row->tensor[source].dtype;
  const qn_lion_coef c = j->c;
  const float factor = j->factor;
  const bool streams = j->streams;
  for (size_t k = 0; k < n; k++) {
    qn_f32 param[QN_PACK], grad[QN_PACK], momentum[QN_PACK];
    void *p = qn_pack_at(data[QN_LION_PARAM], p_type, k), *m = qn_pack_at(data[QN_LION_MOMENTUM], m_type, k);
    void *from = qn_pack_at(data[source], source_type, k), *g = qn_pack_at(data[QN_LION_GRAD], g_type, k);
    qn_prefetch_pack(from, source_type);
    qn_prefetch_pack(g, g_type);
    qn_prefetch_pack(m, m_type);
    qn_load_pack(from, source_type, param);
    qn_load_pack(g, g_type, grad);
    qn_load_pack(m, m_type, momentum);
    qn_lion_pack(&c, flags, factor, param, grad, momentum);
    if (source == QN_LION_MASTER) qn_store_pack(from, source_type, param);
    if (p_type != QN_F32 && flags & QN_LION_STOCHASTIC)
      store_by_chance(j, QN_LION_STREAM_PARAM, p, p_type, param, element + k * QN_PACK_ELEMENTS);
    else if (source == QN_LION_MASTER && streams)
      qn_stream_pack(p, p_type, param);
    else
      qn_store_pack(p, p_type, param);
    if (m_type != QN_F32 && flags & QN_LION_STOCHASTIC_MOMENTUM)
      store_by_chance(j, QN_LION_STREAM_MOMENTUM, m, m_type, momentum, element + k * QN_PACK_ELEMENTS);
    else
      qn_store_pack(m, m_type, momentum);
  }
}

QN_FN void count(job *j, const qn_op_types *row, void *const data[QN_MAX_TENSORS], size_t n)
{
  const qn_dtype g_type = row->tensor[QN_LION_GRAD].dtype, m_type = row->tensor[QN_LION_MOMENTUM].dtype;
  const qn_lion_coef c = j->c;
  for (size_t k = 0; k < n; k++) {
    qn_f32 grad[QN_PACK], momentum[QN_PACK];
    qn_load_pack(qn_pack_at(data[QN_LION_GRAD], g_type, k), g_type, grad);
    qn_load_pack(qn_pack_at(data[QN_LION_MOMENTUM], m_type, k), m_type, momentum);
    j->agreeing += qn_lion_count_pack(&c, j->flags, grad, momentum);
  }
}

/* Three loops for every row of the type table: no flags, flags, counting. */
#define ROW(p, g, m, w) row_##p##_##g##_##m##_##w
#define X(p, p_access, g, m, w, w_access)                                                                              \
  static const qn_op_types ROW(p, g, m, w) = {                                                                         \
      {{QN_##p, QN_##p_access}, {QN_##g, QN_READ}, {QN_##m, QN_READ_WRITE}, {QN_##w, QN_##w_access}}};                 \
  static void QN_JOIN(ROW(p, g, m, w), _plain)(void *user, void *const data[], size_t n, qn_u64 element)               \
  {                                                                                                                    \
    step(user, 0, &ROW(p, g, m, w), data, n, element);                                                                 \
  }                                                                                                                    \
  static void QN_JOIN(ROW(p, g, m, w), _step)(void *user, void *const data[], size_t n, qn_u64 element)                \
  {                                                                                                                    \
    step(user, ((const job *)user)->flags, &ROW(p, g, m, w), data, n, element);                                        \
  }                                                                                                                    \
  static void QN_JOIN(ROW(p, g, m, w), _count)(void *user, void *const data[], size_t n, qn_u64 element)               \
  {                                                                                                                    \
    (void)element;                                                                                                     \
    count(user, &ROW(p, g, m, w), data, n);                                                                            \
  }
QN_LION_ROWS(X)
#undef X

static const struct {
  const qn_op_types *types;
  qn_packs_fn *plain, *step, *count;
} rows[] = {
#define X(p, p_access, g, m, w, w_access)                                                                              \
  {&ROW(p, g, m, w), QN_JOIN(ROW(p, g, m, w), _plain), QN_JOIN(ROW(p, g, m, w), _step),                                \
   QN_JOIN(ROW(p, g, m, w), _count)},
    QN_LION_ROWS(X)
#undef X
};

void QN_CPU_NAME(lion)(const qn_cpu_call *call, const qn_piece *piece)
{
  const qn_op_types *types = rows[call->row].types;
  job j = {.c = qn_lion_resolve(call->coef, call->flags),
           .flags = call->flags,
           .tensor_id = piece->tensor_id,
           .streams = call->streams};
  if (piece->tally) {
    qn_walk(piece, types, rows[call->row].count, &j);
    __atomic_fetch_add(&piece->tally[0], j.agreeing, __ATOMIC_RELAXED);
    __atomic_fetch_add(&piece->tally[1], piece->n, __ATOMIC_RELAXED);
    return;
  }
  if (qn_lion_is_void(&j.c)) return;
  if (j.flags & QN_LION_CAUTIOUS) j.factor = qn_lion_factor(j.c.agreement + 2 * (size_t)piece->place);
  qn_walk(piece, types, j.flags ? rows[call->row].step : rows[call->row].plain, &j);
  if (j.streams) qn_stream_end();
}
