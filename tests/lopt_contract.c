/* SPDX-License-Identifier: Apache-2.0 */
/* lopt_contract.c - learned optimizers: which dimensions are factored, the shapes of states, what a step refuses with
 * nothing written, and weights from files, good ones and bad ones. */
#include "lopt_good.h"
#include "scratch.h"
#include "small_stack.h"

/* ---- factored dimensions ---- */

static const struct {
  int ndim;
  int64_t shape[5];
  int d[3][2]; /* by ties: d0, d1 */
} factored[] = {
    {0, {0}, {{-1, -1}, {-1, -1}, {-1, -1}}},       {1, {9}, {{-1, -1}, {-1, -1}, {-1, -1}}},
    {2, {7, 5}, {{0, 1}, {0, 1}, {0, 1}}},          {2, {5, 7}, {{1, 0}, {1, 0}, {1, 0}}},
    {2, {6, 6}, {{1, 0}, {0, 1}, {0, 1}}},          {2, {1, 768}, {{1, 0}, {1, 0}, {1, 0}}},
    {3, {3, 5, 5}, {{2, 1}, {1, 2}, {1, 2}}},       {3, {5, 3, 5}, {{2, 0}, {0, 2}, {0, 2}}},
    {3, {3, 5, 3}, {{1, 2}, {1, 2}, {1, 0}}},       {4, {4, 4, 3, 3}, {{1, 0}, {1, 0}, {0, 1}}},
    {4, {64, 32, 3, 3}, {{0, 1}, {0, 1}, {0, 1}}},  {4, {768, 3, 16, 16}, {{0, 3}, {0, 3}, {0, 3}}},
    {4, {3, 3, 3, 3}, {{3, 2}, {2, 3}, {0, 1}}},    {4, {3, 2, 3, 3}, {{3, 2}, {2, 3}, {0, 3}}},
    {3, {4, 4, 3}, {{1, 0}, {0, 1}, {0, 1}}},       {4, {3, 2, 5, 5}, {{3, 2}, {2, 3}, {3, 2}}},
    {5, {4, 4, 3, 3, 3}, {{1, 0}, {0, 1}, {0, 1}}}, {5, {2, 9, 9, 1, 9}, {{4, 2}, {2, 4}, {1, 4}}},
    {5, {4, 4, 4, 4, 4}, {{4, 3}, {3, 4}, {0, 1}}},
};

static void test_factored(void)
{
  for (size_t k = 0; k < sizeof factored / sizeof *factored; k++)
    for (int ties = QN_LOPT_TIES_LATER; ties <= QN_LOPT_TIES_JAX; ties++) {
      int d[2];
      const bool found = qn_lopt_factored((qn_lopt_ties)ties, factored[k].ndim, factored[k].shape, d) == QN_OK;
      check(found && !memcmp(d, factored[k].d[ties], sizeof d), "shape %zu, ties %d: d0 %d, d1 %d", k, ties, d[0],
            d[1]);
    }
}

static bool shape_is(qn_lopt_state state, int ndim, const int64_t *shape, int want_ndim, const int64_t *want)
{
  int64_t got[QN_LOPT_MOST_DIMENSIONS + 1];
  int got_ndim = -1;
  return qn_lopt_state_shape(QN_LOPT_TIES_LATER, state, ndim, shape, &got_ndim, got) == QN_OK &&
         got_ndim == want_ndim && !memcmp(got, want, (size_t)want_ndim * sizeof *want);
}

static void test_states(void)
{
  const int64_t conv[] = {768, 3, 16, 16}, m[] = {3, 768, 3, 16, 16}, row[] = {3, 3, 16, 16},
                column[] = {3, 768, 3, 16};
  const int64_t vector[] = {9}, of_vector[] = {3, 9}, none[] = {0}, three[] = {3};
  check(shape_is(QN_LOPT_STATE_M, 4, conv, 5, m) && shape_is(QN_LOPT_STATE_V, 4, conv, 4, conv) &&
            shape_is(QN_LOPT_STATE_ROW, 4, conv, 4, row) && shape_is(QN_LOPT_STATE_COLUMN, 4, conv, 4, column),
        "the states of a patch embedding");
  check(shape_is(QN_LOPT_STATE_ROW, 1, vector, 2, of_vector) && shape_is(QN_LOPT_STATE_COLUMN, 1, vector, 1, none),
        "the states of a vector");
  check(shape_is(QN_LOPT_STATE_M, 0, NULL, 1, three) && shape_is(QN_LOPT_STATE_COLUMN, 0, NULL, 1, none),
        "the states of one number");
  const int64_t bad[] = {3, -1};
  int d[2];
  int64_t out[6];
  refuses(qn_lopt_factored(QN_LOPT_TIES_LATER, 6, m, d), QN_BAD_ARGUMENT, "6 dimensions");
  refuses(qn_lopt_factored(QN_LOPT_TIES_LATER, -1, m, d), QN_BAD_ARGUMENT, "-1 dimensions");
  refuses(qn_lopt_factored(QN_LOPT_TIES_LATER, 2, bad, d), QN_BAD_ARGUMENT, "extent 1 of the shape is -1");
  refuses(qn_lopt_factored(QN_LOPT_TIES_LATER, 2, NULL, d), QN_BAD_ARGUMENT, "is NULL");
  refuses(qn_lopt_factored((qn_lopt_ties)3, 2, m, d), QN_BAD_ARGUMENT, "ties is 3");
  refuses(qn_lopt_factored(QN_LOPT_TIES_LATER, 2, m, NULL), QN_BAD_ARGUMENT, "is NULL");
  refuses(qn_lopt_state_shape(QN_LOPT_TIES_LATER, (qn_lopt_state)4, 2, m, d, out), QN_BAD_ARGUMENT, "is 4");
  refuses(qn_lopt_state_shape(QN_LOPT_TIES_LATER, QN_LOPT_STATE_M, 2, m, NULL, NULL), QN_BAD_ARGUMENT, "is NULL");
}

/* ---- shapes by the rules of roles ---- */

static void role_shape_is(const char *name, size_t role, int ndim, const int64_t *shape, int want_ndim,
                          const int64_t *want)
{
  const qn_op_info *op = NULL;
  int64_t got[QN_MAX_NDIM];
  int got_ndim = -1;
  const bool found =
      qn_op_find(name, &op) == QN_OK && qn_op_role_shape(op, role, 3, ndim, shape, &got_ndim, got) == QN_OK;
  check(found && got_ndim == want_ndim && !memcmp(got, want, (size_t)want_ndim * sizeof *want),
        "%s: the shape of role %zu in a list of 3: %d dimensions: %s", name, role, got_ndim,
        found ? "" : qn_last_error());
}

static void test_role_shapes(void)
{
  const int64_t conv[] = {8, 3, 4, 5}, m[] = {3, 8, 3, 4, 5}, row[] = {3, 3, 4, 5}, column[] = {3, 8, 3, 4};
  const int64_t equal[] = {2, 6, 6}, later[] = {3, 2, 6}, none[] = {0}, of_vector[] = {3, 8}, hidden[] = {3, 512};
  const int64_t buffer[] = {22};
  role_shape_is("small_fc_lopt", STATE_M, 4, conv, 5, m);
  role_shape_is("elo", STATE_ROW, 4, conv, 4, row);
  role_shape_is("velo", STATE_COLUMN, 4, conv, 4, column);
  role_shape_is("velo", STATE_ROW, 3, equal, 3, later);
  role_shape_is("velo", STATE_ROW, 1, conv, 2, of_vector);
  role_shape_is("elo", STATE_COLUMN, 1, conv, 1, none);
  role_shape_is("celo2", STATE_M, 4, conv, 5, m);
  role_shape_is("celo2", STATE_M, 1, conv, 1, conv);
  role_shape_is("celo2", STATE_M, 0, NULL, 0, none);
  role_shape_is("celo2", STATE_ROW, 4, conv, 4, row);
  role_shape_is("celo2", STATE_ROW, 1, conv, 1, none);
  role_shape_is("velo", ROLES, 4, conv, 0, none);
  role_shape_is("velo", ROLES + 1, 0, NULL, 2, hidden);
  role_shape_is("velo", ROLES + 3, 0, NULL, 1, buffer);
  role_shape_is("lion", 2, 4, conv, 4, conv);
  const qn_op_info *op = NULL;
  int64_t got[QN_MAX_NDIM];
  int ndim;
  check(qn_op_find("gemm_norm", &op) == QN_OK, "gemm_norm is an op");
  refuses(qn_op_role_shape(op, 1, 1, 2, conv, &ndim, got), QN_BAD_ARGUMENT, "x, [m, k], follows from no other's");
  check(qn_op_find("elo", &op) == QN_OK, "elo is an op");
  refuses(qn_op_role_shape(op, 1, 1, 6, conv, &ndim, got), QN_BAD_ARGUMENT, "from 0 to 5 are possible");
  refuses(qn_op_role_shape(op, 9, 1, 2, conv, &ndim, got), QN_BAD_ARGUMENT, "role 9, there are 6");
  refuses(qn_op_role_shape(op, 1, 1, 2, NULL, &ndim, got), QN_BAD_ARGUMENT, "is NULL");
}

/* ---- what a step refuses ---- */

static model good;

/* A step of a copy of the good list and params, after `spoil`. */
static bool refused(void (*spoil)(model *, qn_exec *, qn_small_fc_lopt_params *), qn_status status, const char *words)
{
  model m = good;
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < m.n; k++) m.tensor[role][k].shape = m.shape[role][k];
  qn_exec exec = exec_of(&m, NULL);
  params.weights = good.weights;
  spoil(&m, &exec, &params);
  const qn_status got = qn_small_fc_lopt_step(&exec, &params, m.n, LISTS(&m));
  const bool ok = got == status && strstr(qn_last_error(), words) && is_good(&good);
  check(ok, "refused: %s", qn_last_error());
  good.workspace = m.workspace, good.workspace_bytes = m.workspace_bytes;
  return ok;
}

#define SPOIL(name, statement)                                                                                         \
  static void name(model *m, qn_exec *exec, qn_small_fc_lopt_params *p)                                                \
  {                                                                                                                    \
    (void)m, (void)exec, (void)p;                                                                                      \
    statement;                                                                                                         \
  }
SPOIL(no_gradient, m->tensor[GRAD][1].data = NULL)
SPOIL(short_gradient, m->shape[GRAD][0][0] = 11)
SPOIL(rank_six, m->tensor[PARAM][0].ndim = 6)
SPOIL(rank_minus, m->tensor[PARAM][0].ndim = -1)
SPOIL(extent_minus, m->shape[PARAM][0][0] = -1)
SPOIL(huge, m->shape[PARAM][0][0] = INT64_C(1) << 39)
SPOIL(no_shape, m->tensor[PARAM][0].shape = NULL)
SPOIL(rows_swapped, m->shape[STATE_ROW][0][1] = 12)
SPOIL(column_of_vector, m->shape[STATE_COLUMN][1][0] = 3)
SPOIL(m_last, m->tensor[STATE_M][0].ndim = 2)
SPOIL(bf16_gradient, m->tensor[GRAD][0].dtype = QN_BF16)
SPOIL(other_device, m->tensor[STATE_V][0].device.kind = QN_EMULATOR)
SPOIL(other_exec, exec->device.kind = QN_EMULATOR)
SPOIL(odd_address, m->tensor[GRAD][0].data = (char *)m->tensor[GRAD][0].data + 2)
SPOIL(same_param, m->tensor[PARAM][1].data = m->tensor[PARAM][0].data)
SPOIL(state_is_grad, m->tensor[STATE_V][0].data = m->tensor[GRAD][0].data)
SPOIL(no_workspace, exec->workspace = NULL)
SPOIL(small_workspace, exec->workspace_bytes--)
SPOIL(odd_workspace, exec->workspace = (char *)exec->workspace + 8)
SPOIL(workspace_is_grad, exec->workspace = m->tensor[GRAD][0].data)
SPOIL(no_weights, p->weights = NULL)
SPOIL(odd_weights, p->weights = (const float *)(const void *)((const char *)p->weights + 1))
SPOIL(weights_are_v, p->weights = m->tensor[STATE_V][0].data)
SPOIL(lr_minus, p->lr = -1)
SPOIL(lr_nan, p->lr = NAN)
SPOIL(decay_one, p->factor_decay1 = 1)
SPOIL(norm_minus, p->max_grad_norm = -0.5)
SPOIL(decay_minus, p->weight_decay = -2)
SPOIL(size_of_params, p->size = 8)
SPOIL(compat_two, p->pylo_cuda_compat = 2)
SPOIL(ties_two, p->ties = 2)
SPOIL(size_of_exec, exec->size = 1)
static const double bad_scale[] = {1, -3};
SPOIL(scale_minus, p->lr_scale = bad_scale)
static const int64_t strides_of_columns[] = {1, 12};
SPOIL(by_columns, m->tensor[PARAM][0].strides = strides_of_columns)

static void test_refusals(void)
{
  refused(no_gradient, QN_BAD_ARGUMENT, "the data of grad[1] (9) is NULL");
  refused(short_gradient, QN_BAD_ARGUMENT, "grad[0] has the shape 11x7, for a param of 12x7 it must be 12x7");
  refused(rank_six, QN_BAD_ARGUMENT, "param[0] has 6 dimensions");
  refused(rank_minus, QN_BAD_ARGUMENT, "param[0] has -1 dimensions");
  refused(extent_minus, QN_BAD_ARGUMENT, "extent 0 of param[0] is -1");
  refused(huge, QN_BAD_ARGUMENT, "has more than 2^40 elements");
  refused(no_shape, QN_BAD_ARGUMENT, "2 dimensions and no shape");
  refused(rows_swapped, QN_BAD_ARGUMENT, "row[0] has the shape 3x12, for a param of 12x7 it must be 3x7");
  refused(column_of_vector, QN_BAD_ARGUMENT, "column[1] has the shape 3, for a param of 9 it must be 0");
  refused(m_last, QN_BAD_ARGUMENT, "m[0] has the shape 3x12");
  refused(bf16_gradient, QN_BAD_TYPE, "grad[0] is bf16, it must be f32");
  refused(other_device, QN_BAD_ARGUMENT, "v[0] is on emulator:0 and the call is on cpu:0");
  refused(other_exec, QN_BAD_ARGUMENT, "the call is on emulator:0");
  refused(odd_address, QN_BAD_ARGUMENT, "not a multiple of 4");
  refused(same_param, QN_BAD_ARGUMENT, "param[1]");
  refused(state_is_grad, QN_BAD_ARGUMENT, "grad[0]");
  refused(no_workspace, QN_BAD_ARGUMENT, "the workspace is");
  refused(small_workspace, QN_BAD_ARGUMENT, "are needed");
  refused(odd_workspace, QN_BAD_ARGUMENT, "not a multiple of 16");
  refused(workspace_is_grad, QN_BAD_ARGUMENT, "share memory");
  refused(no_weights, QN_BAD_ARGUMENT, "weights is NULL");
  refused(odd_weights, QN_BAD_ARGUMENT, "not a multiple of 4");
  refused(weights_are_v, QN_BAD_ARGUMENT, "and weights (0x");
  refused(lr_minus, QN_BAD_ARGUMENT, "lr is -1");
  refused(lr_nan, QN_BAD_ARGUMENT, "lr is nan");
  refused(decay_one, QN_BAD_ARGUMENT, "factor_decay1 is 1");
  refused(norm_minus, QN_BAD_ARGUMENT, "max_grad_norm is -0.5");
  refused(decay_minus, QN_BAD_ARGUMENT, "weight_decay is -2");
  refused(size_of_params, QN_BAD_ARGUMENT, "params->size is 8");
  refused(compat_two, QN_BAD_ARGUMENT, "pylo_cuda_compat is 2");
  refused(ties_two, QN_BAD_ARGUMENT, "ties is 2");
  refused(size_of_exec, QN_BAD_ARGUMENT, "exec->size is 1");
  refused(scale_minus, QN_BAD_ARGUMENT, "lr_scale[1] is -3");
  refused(by_columns, QN_BAD_ARGUMENT, "param[0] (12x7) is not row-major");
}

/* A plan's step takes tensors at other places, and of no other shape. */
static void test_plan(void)
{
  qn_plan *plan = NULL;
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  qn_exec exec = exec_of(&good, NULL);
  const qn_tensor *const lists[] = {LISTS(&good)}, *moved[QN_MAX_TENSORS] = {NULL};
  const int64_t shorter[] = {11, 7};
  const qn_op_info *op = NULL;
  params.weights = good.weights;
  check(qn_op_find("small_fc_lopt", &op) == QN_OK &&
            qn_op_plan_create(&plan, op, &exec, &params, good.n, lists) == QN_OK,
        "a plan: %s", qn_last_error());
  qn_tensor gradients[4];
  memcpy(gradients, good.tensor[GRAD], good.n * sizeof *gradients);
  moved[GRAD] = gradients;
  gradients[0].shape = shorter;
  refuses(qn_op_plan_step(plan, &exec, &params, moved), QN_BAD_ARGUMENT, "grad[0] has the shape 11x7");
  gradients[0].shape = good.tensor[GRAD][0].shape;
  gradients[0].data = good.tensor[PARAM][0].data;
  refuses(qn_op_plan_step(plan, &exec, &params, moved), QN_BAD_ARGUMENT, "share memory");
  check(is_good(&good), "and nothing was written");
  qn_plan_destroy(&plan);
}

static void test_null(void)
{
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  qn_elo_params elo = QN_ELO_DEFAULTS;
  qn_exec exec = exec_of(&good, NULL);
  const qn_tensor *t = good.tensor[0];
  params.weights = elo.weights = good.weights;
  refuses(qn_small_fc_lopt_step(NULL, &params, 1, t, t, t, t, t, t), QN_BAD_ARGUMENT, "exec is NULL");
  refuses(qn_small_fc_lopt_step(&exec, NULL, 1, t, t, t, t, t, t), QN_BAD_ARGUMENT, "params is NULL");
  refuses(qn_small_fc_lopt_step(&exec, &params, 1, t, NULL, t, t, t, t), QN_BAD_ARGUMENT, "grad is NULL");
  refuses(qn_elo_step(&exec, NULL, 1, t, t, t, t, t, t), QN_BAD_ARGUMENT, "elo: params is NULL");
  check(qn_small_fc_lopt_step(&exec, &params, 0, NULL, NULL, NULL, NULL, NULL, NULL) == QN_OK, "an empty list");
  elo.lr = -1;
  refuses(qn_elo_step(&exec, &elo, 0, NULL, NULL, NULL, NULL, NULL, NULL), QN_BAD_ARGUMENT, "elo: lr is -1");
  static const int64_t three[] = {2, 3, 4};
  model m = {0};
  add_tensor(&m, 3, three);
  exec = exec_of(&m, NULL);
  params.pylo_cuda_compat = 1;
  refuses(qn_small_fc_lopt_step(&exec, &params, 1, LISTS(&m)), QN_BAD_ARGUMENT, "param[0] has 3 dimensions");
  m.tensor[0][0].ndim = 6;
  check(!qn_small_fc_lopt_workspace_bytes(1, m.tensor[0]) && !qn_elo_workspace_bytes(1, NULL) &&
            !qn_elo_workspace_bytes(0, NULL),
        "no workspace for what would be refused");
  const qn_op_info *op = NULL;
  params.pylo_cuda_compat = 0;
  check(qn_op_find("small_fc_lopt", &op) == QN_OK && !qn_op_workspace_bytes(op, &params, 1),
        "and none without tensors");
  m.tensor[0][0].ndim = 3;
  model_end(&m);
}

/* A step's workspace, of one tensor on the emulator. */
static size_t bytes_with(int ties, const int64_t shape[3])
{
  const qn_op_info *op = NULL;
  model m = {.ties = ties ? QN_LOPT_TIES_JAX : QN_LOPT_TIES_LATER};
  qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
  add_tensor(&m, 3, shape);
  for (int role = 0; role < ROLES; role++) m.tensor[role][0].device.kind = QN_EMULATOR;
  const qn_exec exec = {.size = sizeof exec, .device = {QN_EMULATOR, 0}};
  const qn_tensor *const lists[] = {LISTS(&m)};
  params.weights = good.weights, params.ties = ties;
  const size_t bytes =
      qn_op_find("small_fc_lopt", &op) == QN_OK ? qn_op_call_workspace_bytes(op, &exec, &params, 1, lists) : 0;
  const size_t enough = qn_small_fc_lopt_workspace_bytes(1, m.tensor[PARAM]);
  check(bytes && bytes <= enough, "ties=%d: a workspace of %zu bytes, of the %zu that shapes alone say", ties, bytes,
        enough);
  model_end(&m);
  return bytes;
}

/* A workspace that is lent by shapes alone is enough for both; states of the other choice are refused. */
static void *test_ties(void *user)
{
  static const int64_t wide[] = {3, 700, 3}, shape[] = {5, 3, 5};
  check(bytes_with(0, wide) > bytes_with(1, wide), "PyLO's choice needs more");
  for (int ties = 0; ties < 2; ties++) {
    model m = {.ties = ties ? QN_LOPT_TIES_JAX : QN_LOPT_TIES_LATER};
    qn_small_fc_lopt_params params = QN_SMALL_FC_LOPT_DEFAULTS;
    add_tensor(&m, 3, shape);
    const qn_exec exec = exec_of(&m, NULL);
    params.weights = good.weights, params.ties = ties;
    check(qn_small_fc_lopt_step(&exec, &params, 1, LISTS(&m)) == QN_OK, "a step with ties=%d: %s", ties,
          qn_last_error());
    params.ties = !ties;
    refuses(qn_small_fc_lopt_step(&exec, &params, 1, LISTS(&m)), QN_BAD_ARGUMENT,
            ties ? "row[0] has the shape 3x3x5, for a param of 5x3x5 it must be 3x5x3"
                 : "row[0] has the shape 3x5x3, for a param of 5x3x5 it must be 3x3x5");
    model_end(&m);
  }
  return user;
}

/* Sizes past 2^31: the workspace of a matrix of 2^40 elements is counted, and one of more is refused. */
static void test_large(void)
{
  const int64_t shape[] = {INT64_C(1) << 20, INT64_C(1) << 20}, more[] = {INT64_C(1) << 20, (INT64_C(1) << 20) + 1};
  qn_tensor t = {.dtype = QN_F32, .ndim = 2, .shape = shape};
  const double bytes = (double)qn_small_fc_lopt_workspace_bytes(1, &t);
  check(bytes > 0x1p40 / 4096 * 22 * 8 && bytes < 0x1p40 * 16 / 50,
        "a matrix of 2^40 elements: a workspace of %g bytes", bytes);
  t.shape = more;
  check(!qn_small_fc_lopt_workspace_bytes(1, &t), "and none for one that is larger");
}

/* ---- weights ---- */

typedef struct file {
  qn_safetensor_made tensor[16];
  size_t n;
} file;

/* A file of a kind, its tensors in another order than the array's, the k-th float of the array being k + 1. */
static float *values;

static file make_file(qn_lopt_weights kind)
{
  static qn_lopt_weight w[16];
  file f = {.n = 0};
  while (qn_lopt_weight_at(kind, f.n, &w[f.n]) == QN_OK) f.n++;
  for (size_t k = 0; k < f.n; k++) {
    const qn_lopt_weight *of = &w[f.n - 1 - k];
    f.tensor[k] = (qn_safetensor_made){of->name, QN_F32, of->ndim, of->shape, values + of->begin};
  }
  return f;
}

static const char *write_weights(const file *f)
{
  const char *path = scratch_path("weights.safetensors");
  remove(path);
  if (qn_safetensors_write(path, f->tensor, f->n, NULL) != QN_OK) printf("Bail out! %s\n", qn_last_error());
  return path;
}

static void test_kind(qn_lopt_weights kind, size_t n, const char *unread)
{
  float *read = calloc(n, sizeof *read);
  const int64_t two[] = {2};
  file f = make_file(kind);
  bool in_order = qn_lopt_weights_read(kind, write_weights(&f), read, n) == QN_OK;
  for (size_t k = 0; k < n && in_order; k++) in_order = read[k] == values[k];
  check(in_order, "%zu weights of kind %d in the array's order, whatever the file's", n, (int)kind);
  if (unread) {
    f.tensor[f.n++] = (qn_safetensor_made){unread, QN_F32, 1, two, values};
    check(qn_lopt_weights_read(kind, write_weights(&f), read, n) == QN_OK, "%s is not read", unread);
  }
  free(read);
}

/* A file that is wrong in one thing is refused, and what was in the array stays. */
static void wrong(const file *f, const char *words)
{
  float read[QN_LOPT_SMALL_FC_WEIGHTS];
  memset(read, 0x5A, sizeof read);
  const qn_status got = qn_lopt_weights_read(QN_LOPT_SMALL_FC, write_weights(f), read, QN_LOPT_SMALL_FC_WEIGHTS);
  bool kept = true;
  for (size_t k = 0; k < sizeof read; k++) kept = kept && ((const char *)read)[k] == 0x5A;
  check(got == QN_BAD_FILE && strstr(qn_last_error(), words) && kept, "refused: %s", qn_last_error());
}

static void test_wrong_files(void)
{
  const int64_t turned[] = {39, 32}, flat[] = {1248};
  file f = make_file(QN_LOPT_SMALL_FC);
  f.n--;
  wrong(&f, "there is no tensor \"network.input.weight\"");
  f = make_file(QN_LOPT_SMALL_FC);
  f.tensor[f.n - 1].shape = turned;
  wrong(&f, "tensor \"network.input.weight\" has the shape 39x32, it must be 32x39");
  f.tensor[f.n - 1].shape = flat, f.tensor[f.n - 1].ndim = 1;
  wrong(&f, "has the shape 1248");
  f = make_file(QN_LOPT_SMALL_FC);
  f.tensor[0].dtype = QN_I32;
  wrong(&f, "tensor \"network.output.bias\" is I32, it must be F32");
  f = make_file(QN_LOPT_SMALL_FC);
  f.tensor[f.n++] = (qn_safetensor_made){"network.linear_1.bias", QN_F32, 1, flat, values};
  wrong(&f, "tensor \"network.linear_1.bias\" does not belong");
  const float kept = values[1300];
  values[1300] = NAN;
  f = make_file(QN_LOPT_SMALL_FC);
  wrong(&f, "element 20 of tensor \"network.linear_0.weight\" is nan");
  values[1300] = kept;
  f = make_file(QN_LOPT_VELO_MLP);
  wrong(&f, "there is no tensor \"network.input.weight\"");
}

static void test_bad_calls(void)
{
  float read[QN_LOPT_SMALL_FC_WEIGHTS];
  qn_lopt_weight w;
  const file f = make_file(QN_LOPT_SMALL_FC);
  const char *path = write_weights(&f);
  refuses(qn_lopt_weights_read((qn_lopt_weights)4, path, read, 2402), QN_BAD_ARGUMENT, "the kind of weights is 4");
  refuses(qn_lopt_weights_read(QN_LOPT_SMALL_FC, path, read, 2401), QN_BAD_ARGUMENT, "room for 2401 floats");
  refuses(qn_lopt_weights_read(QN_LOPT_SMALL_FC, path, NULL, 2402), QN_BAD_ARGUMENT, "is NULL");
  refuses(qn_lopt_weights_read(QN_LOPT_SMALL_FC, NULL, read, 2402), QN_BAD_ARGUMENT, "path of the weights is NULL");
  refuses(qn_lopt_weights_read(QN_LOPT_SMALL_FC, scratch_path("none"), read, 2402), QN_IO_ERROR, "No such file");
  refuses(qn_lopt_weight_at(QN_LOPT_SMALL_FC, 6, &w), QN_BAD_ARGUMENT, "have no tensor 6");
  refuses(qn_lopt_weight_at(QN_LOPT_VELO_RNN, 12, &w), QN_BAD_ARGUMENT, "have no tensor 12");
  refuses(qn_lopt_weight_at(QN_LOPT_SMALL_FC, 0, NULL), QN_BAD_ARGUMENT, "is NULL");
  if (truncate(path, 9000)) check(false, "%s is cut", path);
  refuses(qn_lopt_weights_read(QN_LOPT_SMALL_FC, path, read, 2402), QN_BAD_FILE, "the tensors end at byte 9608");
}

int main(void)
{
  check(qn_struct_bytes("qn_small_fc_lopt_params") == sizeof(qn_small_fc_lopt_params) &&
            qn_struct_bytes("qn_elo_params") == sizeof(qn_elo_params) &&
            qn_struct_bytes("qn_lopt_weight") == sizeof(qn_lopt_weight),
        "bindings can ask for the structs' sizes");
  test_factored();
  test_states();
  test_role_shapes();
  draw_weights(good.weights), add_good(&good);
  test_refusals();
  test_plan();
  test_null();
  check(!small_stack_run(128, test_ties, NULL), "is enough for steps");
  test_large();
  test_model(qn_small_fc_lopt_workspace_bytes, 1024, 24, 50257);
  test_model(qn_small_fc_lopt_workspace_bytes, 768, 12, 0);
  model_end(&good);
  scratch_begin();
  values = malloc(QN_LOPT_VELO_RNN_WEIGHTS * sizeof *values);
  for (size_t k = 0; k < QN_LOPT_VELO_RNN_WEIGHTS; k++) values[k] = (float)(k + 1);
  test_kind(QN_LOPT_SMALL_FC, QN_LOPT_SMALL_FC_WEIGHTS, NULL);
  test_kind(QN_LOPT_VELO_MLP, QN_LOPT_VELO_MLP_WEIGHTS, "input_weights");
  test_kind(QN_LOPT_VELO_RNN, QN_LOPT_VELO_RNN_WEIGHTS, "mix_layer1.bias");
  test_wrong_files();
  test_bad_calls();
  free(values);
  return test_end();
}
