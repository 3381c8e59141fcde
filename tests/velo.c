/* SPDX-License-Identifier: Apache-2.0 */
/* velo.c - what `quern check` does not ask of VeLO: that a skipped step writes nothing at all and that the next one
 * goes on, where a NaN spreads to, that empty tensors change nothing, and how many launches a step is. */
#include "velo_model.h"

/* Ranks 0 to 5, empty ones, ones of one element, runs shorter and longer than blocks, chunks and sums' pieces; more
 * tensors than 16 and fewer than 32. */
static void add_mixture(velo *v)
{
  static const struct {
    int ndim;
    int64_t shape[5];
  } shapes[] = {{0, {0}},
                {1, {1}},
                {1, {0}},
                {1, {5000}},
                {2, {1, 1}},
                {2, {0, 7}},
                {2, {130, 97}},
                {2, {97, 130}},
                {2, {2, 4200}},
                {2, {4200, 2}},
                {2, {1, 768}},
                {2, {144, 144}},
                {3, {3, 70, 65}},
                {4, {24, 16, 3, 3}},
                {4, {20, 3, 8, 8}},
                {4, {20, 3, 16, 16}},
                {4, {16, 16, 5, 5}},
                {5, {3, 4, 1, 6, 7}},
                {5, {1, 1, 9, 1, 1}}};
  uint64_t state = 5;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    add_tensor(&v->m, shapes[k].ndim, shapes[k].shape);
    set_param(&v->m, k, &state, 0.5);
    v->m.lr_scale[k] = k % 3 ? 1 : 0.25;
  }
}

static uint64_t sum_of_bytes(const velo *v)
{
  uint64_t sum = 0;
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; k < v->m.n; k++) {
      const unsigned char *at = v->m.tensor[role][k].data;
      for (size_t i = 0; i < elements(&v->m.tensor[role][k]) * sizeof(float); i++) sum = sum * 31 + at[i];
    }
  for (size_t i = 0; i < sizeof v->hidden; i++)
    sum = sum * 31 + ((const unsigned char *)v->hidden)[i] + ((const unsigned char *)v->cell)[i];
  for (size_t i = 0; i < QN_VELO_LOSS_SKIPPED * sizeof(double); i++)
    sum = sum * 31 + ((const unsigned char *)v->buffer)[i];
  return sum;
}

/* A loss that is no number: nothing moves but the count of such steps. */
static void test_skipped(void)
{
  static const float odd[] = {NAN, INFINITY, -INFINITY};
  velo *v = velo_begin();
  qn_velo_params params = velo_params(v, 30);
  uint64_t state = 7;
  add_mixture(v);
  for (size_t k = 0; k < v->m.n; k++) draw_array(&state, data_of(&v->m, GRAD, k), v->m.reference[k].n, 0.02);
  v->loss[0] = 1;
  bool good = step_velo(v, NULL, &params) == QN_OK, kept = true;
  const uint64_t before = sum_of_bytes(v);
  for (int k = 0; k < 3; k++) {
    v->loss[0] = odd[k];
    good = good && step_velo(v, NULL, &params) == QN_OK && v->buffer[QN_VELO_LOSS_SKIPPED] == k + 1;
    kept = kept && sum_of_bytes(v) == before;
  }
  check(good && kept, "losses that are no numbers: three steps are skipped, and nothing is written");
  v->loss[0] = 2;
  check(step_velo(v, NULL, &params) == QN_OK && sum_of_bytes(v) != before && v->buffer[QN_VELO_LOSS_COUNT] == 2 &&
            v->buffer[QN_VELO_LOSS_SKIPPED] == 3,
        "the next step is the second");
  velo_end(v);
}

static bool all_nan(const velo *v, size_t k)
{
  for (size_t i = 0; i < v->m.reference[k].n; i++)
    if (!isnan(data_of(&v->m, PARAM, k)[i])) return false;
  return true;
}

/* A NaN in a gradient: its tensor at once, the others through the LSTM with the next step; never an empty one's rows.
 */
static void test_nan(void)
{
  static const int64_t matrix[] = {40, 30}, none[] = {0};
  velo *v = velo_begin();
  qn_velo_params params = velo_params(v, 30);
  uint64_t state = 9;
  for (size_t k = 0; k < 2; k++) {
    add_tensor(&v->m, 2, matrix), set_param(&v->m, k, &state, 0.5);
    draw_array(&state, data_of(&v->m, GRAD, k), 1200, 0.02);
  }
  add_tensor(&v->m, 1, none);
  data_of(&v->m, GRAD, 1)[777] = NAN;
  v->loss[0] = 1;
  check(step_velo(v, NULL, &params) == QN_OK && all_nan(v, 1) && !isnan(data_of(&v->m, PARAM, 0)[0]),
        "a gradient of NaN: its tensor's parameters are NaN, and no other");
  check(step_velo(v, NULL, &params) == QN_OK && all_nan(v, 0), "with the next step the others' are too");
  check(v->hidden[2 * UNITS] == velo_rnn[FIRST_H] && v->cell[2 * UNITS + 1] == velo_rnn[FIRST_C + 1],
        "an empty tensor's rows stay");
  velo_end(v);
}

/* An empty tensor that is left out changes nothing for the others. */
static void test_empty(void)
{
  static const int64_t matrix[] = {40, 30}, none[] = {0, 5};
  velo *v[2] = {velo_begin(), velo_begin()};
  for (int which = 0; which < 2; which++) {
    model *m = &v[which]->m;
    qn_velo_params params = velo_params(v[which], 30);
    uint64_t state = 9;
    if (which) add_tensor(m, 2, none);
    add_tensor(m, 2, matrix), set_param(m, m->n - 1, &state, 0.5);
    draw_array(&state, data_of(m, GRAD, m->n - 1), 1200, 0.02);
    v[which]->loss[0] = 1;
    for (params.step = 0; params.step < 2; params.step++)
      check(step_velo(v[which], NULL, &params) == QN_OK, "a step%s", which ? " with an empty tensor before" : "");
  }
  check(!memcmp(data_of(&v[0]->m, PARAM, 0), data_of(&v[1]->m, PARAM, 1), 1200 * sizeof(float)),
        "an empty tensor changes nothing for another");
  velo_end(v[0]), velo_end(v[1]);
}

/* Of one step over so many matrices and vectors. */
static uint64_t launches_of(size_t pairs)
{
  static const int64_t matrix[] = {40, 30}, vector[] = {30};
  velo *v = velo_begin();
  const qn_velo_params params = velo_params(v, 30);
  for (size_t k = 0; k < pairs; k++) add_tensor(&v->m, 2, matrix), add_tensor(&v->m, 1, vector);
  v->loss[0] = 1;
  const uint64_t before = qn_launch_count();
  const bool ran = step_velo(v, NULL, &params) == QN_OK;
  const uint64_t launches = qn_launch_count() - before;
  velo_end(v);
  return ran ? launches : UINT64_MAX;
}

/* As many whatever the list's length. */
static void test_launches(void)
{
  const uint64_t few = launches_of(1), many = launches_of(MOST / 2);
  check(few == many && few == (on.kind == QN_CPU ? 0 : 12), "%llu launches a step, over 2 tensors and over %d",
        (unsigned long long)few, MOST);
}

int main(int count, char **arguments)
{
  if (count > 1 && !check(qn_device_from_name(arguments[1], &on) == QN_OK, "the device %s", arguments[1]))
    return test_end();
  draw_velo_weights();
  test_skipped();
  test_nan();
  test_empty();
  test_launches();
  free(velo_mlp), free(velo_rnn);
  return test_end();
}
