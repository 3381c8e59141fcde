/* SPDX-License-Identifier: Apache-2.0 */
/* velo_contract.c - what a step of VeLO refuses beyond small_fc_lopt's refusals (lopt_contract.c), with nothing
 * written, and its workspace. */
#include "lopt_good.h"
#include "velo_model.h"

static velo *good;
static double buffer_before[QN_VELO_LOSS_BUFFER];

static void make_good(void)
{
  good = velo_begin();
  add_good(&good->m);
  good->loss[0] = 1, good->buffer[3] = 0.5;
  memcpy(buffer_before, good->buffer, sizeof buffer_before);
}

static bool untouched(void)
{
  bool kept = is_good(&good->m) && !memcmp(buffer_before, good->buffer, sizeof buffer_before);
  for (size_t k = 0; k < 2 * UNITS; k++)
    kept = kept && good->hidden[k] == velo_rnn[FIRST_H + k % UNITS] && good->cell[k] == velo_rnn[FIRST_C + k % UNITS];
  return kept;
}

/* The parts of a call that a case may spoil; the tensors are copies, their data is not. */
typedef struct call {
  qn_tensor tensor[ROLES][2], single[4];
  int64_t shape[2][6], rows[2];
  qn_exec exec;
  qn_velo_params params;
} call;

static void refused(void (*spoil)(call *), qn_status status, const char *words)
{
  call c;
  set_singles(good);
  memcpy(c.single, good->single, sizeof c.single);
  memcpy(c.rows, good->rows, sizeof c.rows);
  c.single[1].shape = c.rows;
  for (int role = 0; role < ROLES; role++) memcpy(c.tensor[role], good->m.tensor[role], sizeof c.tensor[role]);
  c.exec = velo_exec(good, NULL);
  c.params = velo_params(good, 10);
  spoil(&c);
  const qn_tensor *single[4];
  for (int k = 0; k < 4; k++) single[k] = c.single[k].ndim == -99 ? NULL : &c.single[k];
  const qn_status got = qn_velo_step(&c.exec, &c.params, 2, c.tensor[0], c.tensor[1], c.tensor[2], c.tensor[3],
                                     c.tensor[4], c.tensor[5], single[0], single[1], single[2], single[3]);
  check(got == status && strstr(qn_last_error(), words) && untouched(), "refused: %s", qn_last_error());
}

#define SPOIL(name, statement)                                                                                         \
  static void name(call *c) { statement; }
static const int64_t two[] = {2}, by_columns[] = {1, 2};
static const double bad_scale[] = {1, -3};
SPOIL(no_steps, c->params.num_steps = 0)
SPOIL(no_mlp, c->params.mlp = NULL)
SPOIL(no_rnn, c->params.rnn = NULL)
SPOIL(odd_rnn, c->params.rnn = (const float *)(const void *)((const char *)c->params.rnn + 2))
SPOIL(lr_minus, c->params.lr = -1)
SPOIL(scale_minus, c->params.lr_scale = bad_scale)
SPOIL(decay_one, c->params.v_decay = 1)
SPOIL(size_of_params, c->params.size = 8)
SPOIL(no_loss, c->single[0].ndim = -99)
SPOIL(no_cell, c->single[2].ndim = -99)
SPOIL(two_losses, (c->single[0].ndim = 1, c->single[0].shape = two))
SPOIL(loss_f64, c->single[0].dtype = QN_F64)
SPOIL(loss_nowhere, c->single[0].data = NULL)
SPOIL(loss_odd, c->single[0].data = (char *)c->single[0].data + 1)
SPOIL(loss_away, c->single[0].device.kind = QN_EMULATOR)
SPOIL(hidden_short, c->rows[0] = 1)
SPOIL(hidden_flat, c->single[1].ndim = 1)
SPOIL(hidden_turned, c->single[1].strides = by_columns)
SPOIL(buffer_f32, c->single[3].dtype = QN_F32)
SPOIL(buffer_short, c->single[3].shape = two)
SPOIL(buffer_odd, c->single[3].data = (char *)c->single[3].data + 4)
SPOIL(cell_is_hidden, c->single[2].data = c->single[1].data)
SPOIL(hidden_is_v, c->single[1].data = c->tensor[STATE_V][0].data)
SPOIL(loss_in_buffer, c->single[0].data = c->single[3].data)
SPOIL(loss_in_param, c->single[0].data = c->tensor[PARAM][0].data)
SPOIL(rnn_is_cell, c->params.rnn = c->single[2].data)
SPOIL(mlp_is_workspace, c->params.mlp = c->exec.workspace)
SPOIL(no_workspace, c->exec.workspace = NULL)
SPOIL(small_workspace, c->exec.workspace_bytes--)
SPOIL(other_exec, c->exec.device.kind = QN_EMULATOR)

static void test_params(void)
{
  refused(no_steps, QN_BAD_ARGUMENT, "num_steps is 0, it must be at least 1");
  refused(no_mlp, QN_BAD_ARGUMENT, "mlp is NULL");
  refused(no_rnn, QN_BAD_ARGUMENT, "rnn is NULL");
  refused(odd_rnn, QN_BAD_ARGUMENT, "not a multiple of 4");
  refused(lr_minus, QN_BAD_ARGUMENT, "lr is -1");
  refused(scale_minus, QN_BAD_ARGUMENT, "lr_scale[1] is -3");
  refused(decay_one, QN_BAD_ARGUMENT, "v_decay is 1");
  refused(size_of_params, QN_BAD_ARGUMENT, "params->size is 8");
  refused(no_workspace, QN_BAD_ARGUMENT, "the workspace is");
  refused(small_workspace, QN_BAD_ARGUMENT, "qn_velo_workspace_bytes says so");
  refused(other_exec, QN_BAD_ARGUMENT, "param[0] is on cpu:0 and the call is on emulator:0");
}

static void test_singles(void)
{
  refused(no_loss, QN_BAD_ARGUMENT, "velo: loss is NULL");
  refused(no_cell, QN_BAD_ARGUMENT, "velo: cell is NULL");
  refused(two_losses, QN_BAD_ARGUMENT, "loss has the shape 2, it must be one number");
  refused(loss_f64, QN_BAD_TYPE, "loss is f64, it must be f32");
  refused(loss_nowhere, QN_BAD_ARGUMENT, "the data of loss");
  refused(loss_odd, QN_BAD_ARGUMENT, "loss cannot be at");
  refused(loss_away, QN_BAD_ARGUMENT, "loss is on emulator:0");
  refused(hidden_short, QN_BAD_ARGUMENT, "hidden has the shape 1x512, for 2 tensors it must be 2x512");
  refused(hidden_flat, QN_BAD_ARGUMENT, "hidden has the shape 2,");
  refused(hidden_turned, QN_BAD_ARGUMENT, "hidden (2x512) is not row-major");
  refused(buffer_f32, QN_BAD_TYPE, "loss_buffer is f32, it must be f64");
  refused(buffer_short, QN_BAD_ARGUMENT, "loss_buffer has the shape 2, for 2 tensors it must be 22");
  refused(buffer_odd, QN_BAD_ARGUMENT, "not a multiple of 8");
  refused(cell_is_hidden, QN_BAD_ARGUMENT, ") and cell (0x");
  refused(hidden_is_v, QN_BAD_ARGUMENT, ") and hidden (0x");
  refused(loss_in_buffer, QN_BAD_ARGUMENT, "velo: loss (0x");
  refused(loss_in_param, QN_BAD_ARGUMENT, ") and loss (0x");
  refused(rnn_is_cell, QN_BAD_ARGUMENT, "share memory");
  refused(mlp_is_workspace, QN_BAD_ARGUMENT, "velo: mlp (0x");
}

static void test_rank(void)
{
  static const int64_t five[] = {2, 3, 2, 3, 2}, four[] = {2, 3, 1, 3, 2};
  velo *v = velo_begin();
  qn_velo_params params = velo_params(v, 10);
  add_tensor(&v->m, 5, five);
  check(step_velo(v, NULL, &params) == QN_BAD_ARGUMENT &&
            strstr(qn_last_error(), "param[0] (2x3x2x3x2) has 5 dimensions greater than 1"),
        "refused: %s", qn_last_error());
  velo_end(v);
  v = velo_begin();
  add_tensor(&v->m, 5, four);
  check(step_velo(v, NULL, &params) == QN_OK, "four dimensions greater than 1 of five");
  velo_end(v);
}

/* No tensors: nothing. */
static void test_none(void)
{
  velo *v = velo_begin();
  qn_velo_params params = velo_params(v, 10);
  v->loss[0] = 3;
  check(step_velo(v, NULL, &params) == QN_OK && v->buffer[QN_VELO_LOSS_COUNT] == 0, "an empty list");
  qn_tensor t = v->single[1];
  t.ndim = 6;
  check(!qn_velo_workspace_bytes(1, &t) && !qn_velo_workspace_bytes(1, NULL) && !qn_velo_workspace_bytes(0, NULL),
        "no workspace for what would be refused");
  velo_end(v);
}

int main(void)
{
  check(qn_struct_bytes("qn_velo_params") == sizeof(qn_velo_params), "bindings can ask for the struct's size");
  draw_velo_weights();
  make_good();
  test_params();
  test_singles();
  test_rank();
  test_none();
  test_model(qn_velo_workspace_bytes, 768, 12, 0);
  velo_end(good);
  free(velo_mlp), free(velo_rnn);
  return test_end();
}
