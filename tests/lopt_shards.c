/* SPDX-License-Identifier: Apache-2.0 */
/* lopt_shards.c - steps of small_fc_lopt, elo and VeLO whose tensors several processes hold in pieces, here threads of
 * one: after each step the pieces are the whole tensors' step, vectors that all hold are the same bits in all, and what
 * a step refuses. */
#include "velo_model.h"
#include <pthread.h>

enum { PROCESSES = 3, STEPS = 3 };
typedef enum { SMALL_FC, ELO, VELO } which;

static const int64_t shapes[][5] = {{7, 5}, {5, 7},  {6, 6}, {11},     {4, 3, 2}, {2, 3, 2, 4, 3}, {1, 9},
                                    {2},    {70, 2}, {0},    {64, 48}, {3, 9, 9}, {40, 3, 50}};
enum { SHAPES = sizeof shapes / sizeof *shapes, WHOLE_HERE = 6 }; /* one that each process holds all of */

/* ---- processes that add ---- */

static pthread_barrier_t all_here;
static double *given[PROCESSES];
static _Thread_local int process;
static int calls[PROCESSES];

static qn_status add(void *user, const qn_exec *exec, double *sums, size_t n)
{
  double *total = calloc(n, sizeof *total);
  (void)user, (void)exec;
  calls[process]++;
  given[process] = sums;
  pthread_barrier_wait(&all_here);
  for (int p = 0; p < PROCESSES; p++)
    for (size_t k = 0; k < n; k++) total[k] += given[p][k];
  pthread_barrier_wait(&all_here);
  memcpy(sums, total, n * sizeof *sums);
  free(total);
  return QN_OK;
}

static qn_status add_fails(void *user, const qn_exec *exec, double *sums, size_t n)
{
  (void)user, (void)exec, (void)sums, (void)n;
  return QN_DRIVER_ERROR;
}

/* ---- pieces ---- */

/* Rows [begin, end) of a whole extent, as torch.chunk cuts. */
static void piece(int64_t whole, int of, int64_t *begin, int64_t *end)
{
  const int64_t chunk = (whole + PROCESSES - 1) / PROCESSES;
  *begin = of * chunk < whole ? of * chunk : whole;
  *end = *begin + chunk < whole ? *begin + chunk : whole;
}

/* The axis of a role's tensor that is the param's first dimension, or -1 where it has none. */
static int first_axis(qn_lopt_ties ties, int role, int ndim, const int64_t *shape)
{
  int d[2];
  qn_lopt_factored(ties, ndim, shape, d);
  if (role == STATE_ROW) return d[0] == 0 ? -1 : 1;
  if (role == STATE_COLUMN) return d[0] < 0 || d[1] == 0 ? -1 : 1;
  return role == STATE_M ? 1 : 0;
}

/* From the whole to a piece, or back. */
static void copy_rows(const qn_tensor *whole, const qn_tensor *part, int axis, int64_t begin, bool back)
{
  size_t outer = 1, inner = sizeof(float);
  const size_t rows = axis < 0 ? 1 : (size_t)part->shape[axis], all = axis < 0 ? 1 : (size_t)whole->shape[axis];
  for (int d = 0; d < part->ndim; d++) *(d < axis ? &outer : &inner) *= d == axis ? 1 : (size_t)part->shape[d];
  for (size_t o = 0; o < outer && rows * inner > 0; o++) {
    char *in_whole = (char *)whole->data + (o * all + (size_t)begin) * inner;
    char *in_part = (char *)part->data + o * rows * inner;
    memcpy(back ? in_whole : in_part, back ? in_part : in_whole, rows * inner);
  }
}

typedef struct member {
  int process;
  model pieces;
  velo *rest; /* VeLO's */
  int64_t extents[SHAPES];
  qn_lopt_shards shards;
  qn_device device;
  which kind;
  double max_grad_norm;
  int compat;
  uint64_t step;
  qn_status status;
  char why[256];
} member;

static void copy_piece(const model *whole, member *m, size_t k, int role, bool back)
{
  int64_t begin = 0, end;
  const qn_lopt_seen *r = &whole->reference[k];
  const int axis = m->extents[k] < 0 ? -1 : first_axis(whole->ties, role, r->ndim, r->shape);
  if (axis >= 0) piece(r->shape[0], m->process, &begin, &end);
  copy_rows(&whole->tensor[role][k], &m->pieces.tensor[role][k], axis, begin, back);
}

static void begin_member(member *m, const model *whole, int of)
{
  static const qn_lopt_state part[ROLES] = {QN_LOPT_STATE_V, QN_LOPT_STATE_V,   QN_LOPT_STATE_M,
                                            QN_LOPT_STATE_V, QN_LOPT_STATE_ROW, QN_LOPT_STATE_COLUMN};
  *m = (member){.process = of, .shards = {sizeof m->shards, m->extents, add, NULL}};
  m->pieces.n = whole->n, m->pieces.ties = whole->ties;
  m->rest = velo_begin();
  m->rest->m.n = whole->n;
  memcpy(m->pieces.weights, whole->weights, sizeof whole->weights);
  for (size_t k = 0; k < whole->n; k++) {
    const qn_lopt_seen *r = &whole->reference[k];
    m->extents[k] = k == WHOLE_HERE || !r->ndim ? -1 : r->shape[0];
    for (int role = 0; role < ROLES; role++) {
      qn_tensor *t = &m->pieces.tensor[role][k];
      int64_t *own = m->pieces.shape[role][k], begin, end;
      const int axis = first_axis(whole->ties, role, r->ndim, r->shape);
      *t = (qn_tensor){.dtype = QN_F32, .shape = own, .device = {QN_CPU, 0}};
      qn_lopt_state_shape(whole->ties, part[role], r->ndim, r->shape, &t->ndim, own);
      piece(r->shape[0], of, &begin, &end);
      if (m->extents[k] >= 0 && axis >= 0) own[axis] = end - begin;
      t->data = elements(t) ? calloc(elements(t), sizeof(float)) : NULL; /* what PyTorch gives for an empty piece */
      copy_piece(whole, m, k, role, false);
    }
  }
}

static qn_status any_step(which kind, const member *of, model *m, velo *rest, const qn_exec *exec,
                          const qn_lopt_shards *shards)
{
  static const float losses[STEPS] = {2.5f, 2.25f, 9};
  qn_small_fc_lopt_params small = QN_SMALL_FC_LOPT_DEFAULTS;
  qn_elo_params elo = QN_ELO_DEFAULTS;
  qn_velo_params large = velo_params(rest, 200);
  small.weights = elo.weights = m->weights, small.shards = elo.shards = large.shards = shards;
  small.step = elo.step = large.step = of->step, small.max_grad_norm = of->max_grad_norm;
  small.pylo_cuda_compat = elo.pylo_cuda_compat = of->compat;
  small.ties = elo.ties = large.ties = m->ties == QN_LOPT_TIES_JAX;
  rest->loss[0] = losses[of->step];
  set_singles(rest);
  for (int k = 0; k < 4; k++) rest->single[k].device = of->device;
  if (kind == VELO) return qn_velo_step(exec, &large, m->n, LISTS(m), SINGLES(rest));
  return kind == ELO ? qn_elo_step(exec, &elo, m->n, LISTS(m)) : qn_small_fc_lopt_step(exec, &small, m->n, LISTS(m));
}

static qn_status with_workspace(which kind, const member *of, model *m, velo *rest, const qn_lopt_shards *shards)
{
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < m->n; k++) m->tensor[role][k].device = of->device;
  const size_t needed = kind == VELO  ? qn_velo_shards_workspace_bytes(shards, m->n, m->tensor[PARAM])
                        : kind == ELO ? qn_elo_shards_workspace_bytes(shards, m->n, m->tensor[PARAM])
                                      : qn_small_fc_lopt_shards_workspace_bytes(shards, m->n, m->tensor[PARAM]);
  void *workspace = aligned_alloc(64, (needed + 63) / 64 * 64);
  memset(workspace, 0xFF, needed);
  const qn_exec exec = {.size = sizeof exec, .device = of->device, .workspace = workspace, .workspace_bytes = needed};
  const qn_status status = any_step(kind, of, m, rest, &exec, shards);
  free(workspace);
  return status;
}

static void *take_step(void *of)
{
  member *m = of;
  process = m->process;
  m->status = with_workspace(m->kind, m, &m->pieces, m->rest, &m->shards);
  snprintf(m->why, sizeof m->why, "%s", m->status == QN_OK ? "" : qn_last_error());
  return NULL;
}

static void end_member(member *m)
{
  for (size_t k = 0; k < m->pieces.n; k++)
    for (int role = 0; role < ROLES; role++) free(m->pieces.tensor[role][k].data);
  m->rest->m.n = 0;
  velo_end(m->rest);
}

static bool take_all(member *members)
{
  pthread_t thread[PROCESSES];
  bool ok = true;
  for (int p = 0; p < PROCESSES; p++) pthread_create(&thread[p], NULL, take_step, &members[p]);
  for (int p = 0; p < PROCESSES; p++) pthread_join(thread[p], NULL), ok = ok && members[p].status == QN_OK;
  return ok;
}

/* ---- the same as whole ---- */

/* The worst share of the tolerance that a param takes, and of a millionth that a state does. */
static double compare(const model *whole, member *members, size_t k, const float *before)
{
  double worst = 0;
  for (int role = 0; role < ROLES; role++) {
    const qn_tensor *t = &whole->tensor[role][k];
    const size_t n = elements(t);
    float *got = malloc((n + 1) * sizeof *got);
    model joined = {0};
    joined.ties = whole->ties, joined.tensor[role][k] = *t, joined.tensor[role][k].data = got,
    joined.reference[k] = whole->reference[k];
    for (size_t i = 0; i < n; i++) got[i] = NAN;
    for (int p = 0; p < PROCESSES; p++) copy_piece(&joined, &members[p], k, role, true);
    for (size_t i = 0; i < n; i++) {
      const double want = (double)data_of(whole, role, k)[i], is = (double)got[i];
      const double share = role == PARAM ? share_of_tolerance(is, want, (double)before[i])
                                         : fabs(is - want) / (1e-6 * fabs(want) + 1e-12);
      if (!(share <= worst)) worst = isnan(share) ? HUGE_VAL : share;
    }
    free(got);
  }
  return worst;
}

/* A tensor without the first dimension is in all shards, with the same bits; so is the LSTM's state. */
static bool same_vectors(const model *whole, member *members, size_t k)
{
  bool same = true;
  for (int role = STATE_ROW; role < ROLES; role++) {
    const qn_lopt_seen *r = &whole->reference[k];
    const qn_tensor *first = &members[0].pieces.tensor[role][k];
    const size_t bytes = elements(first) * sizeof(float);
    for (int p = 1; p < PROCESSES && bytes && first_axis(whole->ties, role, r->ndim, r->shape) < 0; p++)
      same = same && !memcmp(first->data, members[p].pieces.tensor[role][k].data, bytes);
  }
  return same;
}

static void make_whole(model *whole, which kind, bool jax)
{
  uint64_t state = 3;
  whole->ties = jax ? QN_LOPT_TIES_JAX : kind == VELO ? QN_LOPT_TIES_VELO : QN_LOPT_TIES_LATER;
  draw_weights(whole->weights);
  for (size_t k = 0; k < SHAPES; k++) {
    int ndim = 0;
    while (ndim < (kind == VELO ? 4 : 5) && shapes[k][ndim]) ndim++; /* VeLO knows up to 4 */
    add_tensor(whole, ndim, shapes[k]);
    set_param(whole, k, &state, 0.5);
  }
}

static void test_same(const char *name, which kind, qn_device_kind device, double max_grad_norm, int compat, bool jax)
{
  model whole = {0};
  member members[PROCESSES];
  float *before[SHAPES] = {0};
  double worst[SHAPES] = {0};
  bool ran = true, same = true;
  uint64_t state = 8;
  velo *rest = velo_begin();
  make_whole(&whole, kind, jax);
  const size_t made = whole.n;
  if (compat) whole.n = 4; /* of up to 2 dimensions */
  rest->m.n = whole.n;
  for (int p = 0; p < PROCESSES; p++) {
    begin_member(&members[p], &whole, p);
    members[p].kind = kind, members[p].device = (qn_device){device, 0};
    members[p].max_grad_norm = max_grad_norm, members[p].compat = compat;
    calls[p] = 0;
  }
  for (uint64_t step = 0; step < STEPS; step++) {
    for (size_t k = 0; k < whole.n; k++) {
      const size_t n = whole.reference[k].n;
      before[k] = realloc(before[k], (n + 1) * sizeof(float));
      memcpy(before[k], data_of(&whole, PARAM, k), n * sizeof(float));
      draw_array(&state, data_of(&whole, GRAD, k), n, 0.02);
      for (int p = 0; p < PROCESSES; p++) copy_piece(&whole, &members[p], k, GRAD, false);
    }
    for (int p = 0; p < PROCESSES; p++) members[p].step = step;
    ran = take_all(members) && with_workspace(kind, &members[0], &whole, rest, NULL) == QN_OK && ran;
    for (size_t k = 0; k < whole.n && ran; k++) {
      worst[k] = fmax(worst[k], compare(&whole, members, k, before[k]));
      same = same && same_vectors(&whole, members, k);
    }
    for (int p = 1; p < PROCESSES; p++)
      same = same && !memcmp(members[0].rest->hidden, members[p].rest->hidden, sizeof rest->hidden);
  }
  check(ran, "%s: %d steps run%s", name, STEPS, members[0].why);
  for (size_t k = 0; k < whole.n; k++) {
    check(worst[k] <= 1, "%s: tensor %zu takes %.3f of the tolerance in %d pieces", name, k, worst[k], PROCESSES);
    free(before[k]);
  }
  check(same, "%s: vectors that all hold have the same bits in all", name);
  /* VeLO's summaries are sums of their own on the processor alone. */
  check(calls[0] == (kind == VELO && device == QN_CPU ? 4 : 3) * STEPS && calls[1] == calls[0],
        "%s: %d sums in %d steps", name, calls[0], STEPS);
  for (int p = 0; p < PROCESSES; p++) end_member(&members[p]);
  whole.n = made;
  rest->m.n = 0;
  velo_end(rest);
  model_end(&whole);
}

/* ---- refusals ---- */

static void test_refusals(void)
{
  model whole = {0};
  member one, m;
  make_whole(&whole, SMALL_FC, false);
  begin_member(&one, &whole, 0);
  const float first = *data_of(&one.pieces, PARAM, 0);
#define REFUSED(words, spoil)                                                                                          \
  do {                                                                                                                 \
    m = one, m.shards.extents = m.extents;                                                                             \
    for (int role = 0; role < ROLES; role++)                                                                           \
      for (size_t k = 0; k < m.pieces.n; k++) m.pieces.tensor[role][k].shape = m.pieces.shape[role][k];                \
    spoil;                                                                                                             \
    take_step(&m);                                                                                                     \
    check(m.status != QN_OK && strstr(m.why, words) && *data_of(&one.pieces, PARAM, 0) == first, "refused: %s",        \
          m.why);                                                                                                      \
  } while (0)
  REFUSED("shards.size", m.shards.size--);
  REFUSED("shards.add is NULL", m.shards.add = NULL);
  REFUSED("shards.extents is NULL", m.shards.extents = NULL);
  REFUSED("3 rows, and shards.extents[0] is 2", m.extents[0] = 2);
  REFUSED("has no dimension", m.extents[9] = 4);
  REFUSED("more than 2^40", m.extents[0] = INT64_C(1) << 40);
  REFUSED("it must be 3x3", m.extents[0] = -1); /* of 3 x 5 the row lacks the other dimension */
  REFUSED("were not added", m.shards.add = add_fails);
  end_member(&one);
  model_end(&whole);
}

int main(void)
{
  pthread_barrier_init(&all_here, NULL, PROCESSES);
  draw_velo_weights();
  test_same("small_fc_lopt", SMALL_FC, QN_CPU, 0, 0, false);
  test_same("small_fc_lopt with bounded gradients", SMALL_FC, QN_CPU, 0.01, 0, false);
  test_same("small_fc_lopt as PyLO's CUDA code", SMALL_FC, QN_CPU, 0, 1, false);
  test_same("elo", ELO, QN_CPU, 0, 0, false);
  test_same("VeLO", VELO, QN_CPU, 0, 0, false);
  test_same("small_fc_lopt on a device", SMALL_FC, QN_EMULATOR, 0.01, 0, false);
  test_same("elo on a device", ELO, QN_EMULATOR, 0, 0, false);
  test_same("small_fc_lopt as PyLO's CUDA code on a device", SMALL_FC, QN_EMULATOR, 0, 1, false);
  test_same("VeLO on a device", VELO, QN_EMULATOR, 0, 0, false);
  test_same("small_fc_lopt with JAX's ties", SMALL_FC, QN_CPU, 0, 0, true);
  test_same("VeLO with JAX's ties", VELO, QN_CPU, 0, 0, true);
  test_same("small_fc_lopt with JAX's ties on a device", SMALL_FC, QN_EMULATOR, 0, 0, true);
  test_refusals();
  free(velo_mlp), free(velo_rnn);
  return test_end();
}
