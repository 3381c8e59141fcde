/* SPDX-License-Identifier: Apache-2.0 */
/* lion.c - what Lion's options mean, by equality of bits: against the formula written again here, and between calls
 * that must give the same (lists and single tensors, plans and steps, any pool, shards and wholes, callers that flush
 * subnormals). Refusals are in contract_lion.c; every variant against the reference is `quern check`'s. */
#include "lion_list.h"
#include "quern/runtime.h"
#include "test.h"
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const qn_dtype f32_types[ROLES] = {QN_F32, QN_F32, QN_F32, QN_NONE};
static const qn_dtype bf16_types[ROLES] = {QN_BF16, QN_BF16, QN_BF16, QN_NONE};
static const qn_dtype f16_types[ROLES] = {QN_F16, QN_F16, QN_F32, QN_NONE};
static const qn_dtype master_types[ROLES] = {QN_BF16, QN_BF16, QN_BF16, QN_F32};
static const qn_dtype *const all_types[] = {f32_types, bf16_types, f16_types, master_types};
enum { TYPES = sizeof all_types / sizeof all_types[0] };

/* Sizes that cuts, packs and tails break on. */
static const size_t sizes[] = {1, 0, 1023, 1024, 1025, 63, 64, 65, 65536, 65537, 131075, 3, 16, 0, 7};
enum { LIST = sizeof sizes / sizeof sizes[0] };

static lion_list make(const qn_dtype types[ROLES]) { return lion_list_make(LIST, sizes, types, 11, true); }

static void same(lion_list *a, lion_list *b, const char *what)
{
  const long at = lion_list_difference(a, b);
  check(at < 0, "%s (%ld)", what, at);
  lion_list_free(a), lion_list_free(b);
}

static float as_float(const void *at) { return *(const float *)at; }

/* ---- the formula ---- */
static void formula(void)
{
  const double keeps[3] = {1 - 3e-3 * 0.1, 1 - 0.1 * 3e-3 / 1e-2, 1 - 0.1 * 3e-3 * 3e-3 / 1e-2};
  for (int decay = 0; decay < 3; decay++) {
    lion_list l = make(f32_types), was = make(f32_types);
    l.params.lr = 3e-3, l.params.weight_decay = 0.1, l.params.decay = decay, l.params.reference_lr = 1e-2;
    check(!lion_list_step(&l), "a step");
    size_t wrong = 0;
    for (size_t k = 0; k < LIST; k++)
      for (size_t i = 0; i < sizes[k]; i++) {
        const float p = ((float *)was.t[PARAM][k].data)[i], g = ((float *)was.t[GRAD][k].data)[i];
        const float m = ((float *)was.t[MOMENTUM][k].data)[i];
        const float c = fmaf(0.9f, m, (float)(1 - 0.9) * g), s = isnan(c) ? c : (float)((c > 0) - (c < 0));
        const float want[2] = {fmaf(p, (float)keeps[decay], -(3e-3f * s)), fmaf(0.99f, m, (float)(1 - 0.99) * g)};
        const float got[2] = {((float *)l.t[PARAM][k].data)[i], ((float *)l.t[MOMENTUM][k].data)[i]};
        for (int r = 0; r < 2; r++) wrong += isnan(want[r]) ? !isnan(got[r]) : memcmp(&want[r], &got[r], 4) != 0;
      }
    check(!wrong, "decay %d: every element is the formula's (%zu are not)", decay, wrong);
    lion_list_free(&l), lion_list_free(&was);
  }
}

static void zeros_and_nans(void)
{
  const size_t n = 100;
  lion_list l = lion_list_make(1, &n, f32_types, 1, false);
  float *p = l.t[PARAM][0].data, *g = l.t[GRAD][0].data, *m = l.t[MOMENTUM][0].data;
  for (size_t i = 0; i < n; i++) p[i] = 0.5f, g[i] = i % 2 ? 0.0f : -0.0f, m[i] = 0;
  g[50] = NAN;
  l.params.weight_decay = 0;
  for (int k = 0; k < 10; k++) check(!lion_list_step(&l), "step %d", k);
  size_t moved = 0;
  for (size_t i = 0; i < n; i++) moved += i != 50 && p[i] != 0.5f;
  check(!moved && isnan(p[50]) && isnan(m[50]), "where gradients are 0 no weight drifts; NaN shows (%zu moved)", moved);
  lion_list_free(&l);
}

/* ---- options ---- */
static void options(const qn_dtype types[ROLES])
{
  lion_list a = make(types), b = make(types);
  a.params.maximize = 1;
  for (size_t k = 0; k < LIST; k++) /* the sign bit of every gradient */
    for (size_t i = 0; i < sizes[k]; i++)
      ((unsigned char *)b.t[GRAD][k].data)[(i + 1) * qn_dtype_bytes(types[GRAD]) - 1] ^= 0x80;
  check(!lion_list_step(&a) && !lion_list_step(&b), "steps");
  for (size_t k = 0; k < LIST; k++)
    memcpy(b.t[GRAD][k].data, a.t[GRAD][k].data, sizes[k] * qn_dtype_bytes(types[GRAD]));
  same(&a, &b, "to maximize is to negate gradients");

  const float found[2] = {0, 1};
  a = make(types), b = make(types);
  a.params.found_inf = &found[1];
  for (int cautious = 0; cautious < 2; cautious++) {
    a.params.cautious = cautious;
    check(!lion_list_step(&a) && !memcmp(a.block, b.block, a.bytes), "found_inf: nothing is written");
  }
  a.params.found_inf = &found[0], a.params.cautious = 0;
  check(!lion_list_step(&a) && !lion_list_step(&b), "steps");
  same(&a, &b, "found_inf of 0 changes nothing");

  const qn_lion_hyper hyper = {3e-4, 0.8, 0.95, 0.2, 1e-3, (UINT64_C(5) << 32) + 9};
  a = make(types), b = make(types);
  a.params.hyper = &hyper;
  a.params.lr = a.params.beta1 = a.params.beta2 = a.params.weight_decay = a.params.reference_lr = NAN; /* not read */
  b.params.lr = 3e-4, b.params.beta1 = 0.8, b.params.beta2 = 0.95, b.params.weight_decay = 0.2;
  b.params.reference_lr = 1e-3, b.params.step = 9;
  a.params.decay = b.params.decay = QN_LION_DECAY_RELATIVE;
  a.params.rounding = b.params.rounding = a.params.momentum_rounding = b.params.momentum_rounding = QN_STOCHASTIC;
  check(!lion_list_step(&a) && !lion_list_step(&b), "steps");
  same(&a, &b, "hyper-parameters from memory are the same as given ones; the step counts modulo 2^32");
}

static void grad_scale(void)
{
  const float scale = 3;
  lion_list a = make(f32_types), b = make(f32_types);
  a.params.grad_scale = &scale;
  for (size_t k = 0; k < LIST; k++)
    for (size_t i = 0; i < sizes[k]; i++) ((float *)b.t[GRAD][k].data)[i] /= scale;
  check(!lion_list_step(&a) && !lion_list_step(&b), "steps");
  for (size_t k = 0; k < LIST; k++) memcpy(b.t[GRAD][k].data, a.t[GRAD][k].data, 4 * sizes[k]);
  same(&a, &b, "gradients are divided by grad_scale, correctly rounded, first");
}

/* ---- cautious ---- */
static void cautious(bool maximize)
{
  lion_list l = make(f32_types), was = make(f32_types), given = make(f32_types);
  int64_t counts[2 * LIST], want[2 * LIST];
  lion_list *const each[] = {&l, &was, &given};
  for (int t = 0; t < 3; t++) /* one tensor where all but 50 of 65536 disagree: fewer than a thousandth */
    for (size_t i = 50; i < sizes[8]; i++) {
      const float g = ((float *)each[t]->t[GRAD][8].data)[i];
      ((float *)each[t]->t[MOMENTUM][8].data)[i] = -1000 * g;
    }
  l.params.cautious = 1, l.params.maximize = given.params.maximize = maximize;
  check(!qn_lion_count(&l.exec, &given.params, LIST, l.t[0], l.t[1], l.t[2], NULL, counts), "counted");
  check(!memcmp(l.block, was.block, l.bytes), "counting writes no tensor");
  check(!lion_list_step(&l), "a step");
  size_t wrong = 0;
  for (size_t k = 0; k < LIST; k++) {
    const float *p = was.t[PARAM][k].data, *g = was.t[GRAD][k].data, *m = was.t[MOMENTUM][k].data;
    const float sign = maximize ? -1 : 1;
    want[2 * k] = 0, want[2 * k + 1] = (int64_t)sizes[k];
    for (int pass = 0; pass < 2; pass++)
      for (size_t i = 0; i < sizes[k]; i++) {
        const float c = fmaf(0.9f, m[i], (float)(1 - 0.9) * (sign * g[i]));
        float s = isnan(c) ? c : (float)((c > 0) - (c < 0));
        const bool agrees = s * (sign * g[i]) > 0;
        if (pass == 0) want[2 * k] += agrees;
        if (pass == 0) continue;
        const double count = (double)want[2 * k], least = 0.001 * (double)sizes[k];
        const float factor = (float)((double)sizes[k] / (count > least ? count : least));
        if (!agrees && !isnan(s)) s = 0;
        const float moved = fmaf(p[i], (float)(1 - 1e-3 * 0.1), -(factor * (1e-3f * s)));
        const float got = as_float((float *)l.t[PARAM][k].data + i);
        wrong += isnan(moved) ? !isnan(got) : memcmp(&moved, &got, 4) != 0;
      }
  }
  check(!memcmp(counts, want, sizeof counts), "maximize %d: the counts are exact", maximize);
  check(!wrong, "maximize %d: every element moves as its tensor's share of agreement says (%zu do not)", maximize,
        wrong);
  given.params.cautious = 1, given.params.agreement = counts;
  check(qn_lion_workspace_bytes(&given.params, LIST) == 0 && qn_lion_workspace_bytes(&l.params, LIST) == 16 * LIST,
        "workspace only where the call counts");
  check(!qn_lion_step(&given.exec, &given.params, LIST, given.t[0], given.t[1], given.t[2], NULL), "with given counts");
  lion_list_free(&was);
  same(&l, &given, "given counts are as good as own ones");
}

/* ---- the same bits, however it is cut ---- */
static void pools(const qn_dtype types[ROLES])
{
  for (int cautious_too = 0; cautious_too < 2; cautious_too++) {
    lion_list want = make(types);
    want.params.cautious = cautious_too;
    want.params.rounding = want.params.momentum_rounding = QN_STOCHASTIC;
    check(!lion_list_step(&want), "serially");
    for (int threads = 1; threads <= 7; threads++) {
      qn_pool *pool;
      lion_list l = make(types);
      l.params = want.params;
      check(!qn_pool_create(&pool, threads), "a pool of %d", threads);
      l.exec.pool = pool;
      check(!lion_list_step(&l) && lion_list_difference(&want, &l) < 0, "%d threads give the same bits", threads);
      qn_pool_destroy(&pool);
      lion_list_free(&l);
    }
    lion_list_free(&want);
  }
}

static void single_tensors(const qn_dtype types[ROLES])
{
  lion_list a = make(types), b = make(types);
  a.params.rounding = b.params.rounding = QN_STOCHASTIC;
  a.params.momentum_rounding = b.params.momentum_rounding = QN_STOCHASTIC;
  check(!lion_list_step(&a), "the list");
  for (uint64_t k = 0; k < LIST; k++) {
    b.params.tensor_id = &k;
    check(!qn_lion_step(&b.exec, &b.params, 1, &b.t[0][k], &b.t[1][k], &b.t[2][k], b.t[3] ? &b.t[3][k] : NULL),
          "tensor %d alone", (int)k);
  }
  same(&a, &b, "a list is its tensors one by one");
}

/* Two shards of a tensor, cut at any element, are the tensor. */
static void shards(const qn_dtype types[ROLES])
{
  static const size_t cuts[] = {1, 2, 3, 4, 1024, 70001};
  const size_t n = 70003;
  for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
    lion_list whole = lion_list_make(1, &n, types, 5, true), cut = lion_list_make(1, &n, types, 5, true);
    const uint64_t id[2] = {9, 9}, first[2] = {1000 + 3, 1000 + 3 + cuts[c]};
    const int64_t extent[2] = {(int64_t)cuts[c], (int64_t)(n - cuts[c])};
    qn_tensor t[ROLES][2];
    whole.params.rounding = whole.params.momentum_rounding = QN_STOCHASTIC;
    whole.params.seed = 1234567890123456789u;
    whole.params.tensor_id = id, whole.params.first_element = first;
    for (int role = 0; role < ROLES; role++)
      for (int part = 0; cut.t[role] && part < 2; part++) {
        t[role][part] = cut.t[role][0];
        t[role][part].shape = &extent[part];
        if (part) t[role][part].data = (char *)t[role][part].data + cuts[c] * qn_dtype_bytes(types[role]);
      }
    check(!lion_list_step(&whole), "the whole");
    check(!qn_lion_step(&whole.exec, &whole.params, 2, t[0], t[1], t[2], cut.t[3] ? t[3] : NULL), "cut at %zu",
          cuts[c]);
    same(&whole, &cut, "the shards are the whole");
  }
}

/* Pointers that are aligned to an element only. */
static void unaligned(const qn_dtype types[ROLES])
{
  lion_list a = make(types), b = make(types);
  a.params.momentum_rounding = b.params.momentum_rounding = QN_STOCHASTIC;
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; b.t[role] && k < LIST; k++) {
      char *from = b.t[role][k].data, *to = from + (1 + k % 3) * qn_dtype_bytes(types[role]);
      memmove(to, from, sizes[k] * qn_dtype_bytes(types[role]));
      b.t[role][k].data = to;
    }
  check(!lion_list_step(&a) && !lion_list_step(&b), "steps");
  for (int role = 0; role < ROLES; role++)
    for (size_t k = 0; b.t[role] && k < LIST; k++) {
      char *from = b.t[role][k].data, *to = (char *)b.block + ((unsigned char *)a.t[role][k].data - a.block);
      memmove(to, from, sizes[k] * qn_dtype_bytes(types[role]));
    }
  same(&a, &b, "pointers need no alignment");
}

static void layouts(void)
{
  static const int64_t shape[] = {2, 3, 4, 5}, rows[] = {60, 20, 5, 1}, last[] = {60, 1, 15, 3};
  static const int64_t one[] = {1, 120, 1}, odd[] = {77, 1, -3};
  const size_t n = 120;
  for (int way = 0; way < 3; way++) {
    lion_list a = lion_list_make(1, &n, f32_types, 5, true), b = lion_list_make(1, &n, f32_types, 5, true);
    for (int role = 0; role < 3; role++) {
      b.t[role]->ndim = way == 2 ? 3 : 4;
      b.t[role]->shape = way == 2 ? one : shape;
      b.t[role]->strides = way == 1 ? last : role == GRAD ? NULL : way == 2 ? odd : rows;
    }
    check(!lion_list_step(&a) && !lion_list_step(&b), "steps");
    same(&a, &b,
         way == 0   ? "row-major, said or not"
         : way == 1 ? "channels last"
                    : "strides of extents of 1 mean nothing");
  }
}

/* ---- plans ---- */
static void plans(const qn_dtype types[ROLES])
{
  lion_list a = make(types), b = make(types), c = lion_list_make(LIST, sizes, types, 99, true);
  qn_lion_plan *plan;
  check(!qn_lion_plan_create(&plan, &a.exec, &a.params, LIST, a.t[0], a.t[1], a.t[2], a.t[3]), "a plan");
  for (int step = 0; step < 4; step++) {
    a.params.step = b.params.step = (uint64_t)step;
    a.params.rounding = b.params.rounding = step % 2;
    const qn_tensor *moved = step == 0 ? NULL : step == 1 ? c.t[GRAD] : step == 2 ? NULL : a.t[GRAD];
    check(!qn_lion_plan_step(plan, &a.exec, &a.params, moved), "planned step %d", step);
    check(
        !qn_lion_step(&b.exec, &b.params, LIST, b.t[0], step == 1 || step == 2 ? c.t[GRAD] : b.t[GRAD], b.t[2], b.t[3]),
        "step %d", step);
  }
  qn_lion_plan_destroy(&plan);
  lion_list_free(&c);
  same(&a, &b, "a plan's steps are steps; gradients stay where they moved to");
}

static void planned_roles_move(void)
{
  lion_list a = make(f32_types), b = make(f32_types), c = make(f32_types);
  qn_plan *plan;
  const qn_op_info *op = qn_op_at(0);
  const qn_tensor *const roles[QN_MAX_TENSORS] = {a.t[0], a.t[1], a.t[2]}, *const moved[QN_MAX_TENSORS] = {c.t[0]};
  check(!qn_op_plan_create(&plan, op, &a.exec, &a.params, LIST, roles), "a plan");
  check(!qn_op_plan_step(plan, &a.exec, &a.params, moved), "params moved");
  check(!lion_list_step(&b), "a step");
  for (size_t k = 0; k < LIST; k++) memcpy(a.t[PARAM][k].data, c.t[PARAM][k].data, 4 * sizes[k]);
  const qn_tensor *const shared[QN_MAX_TENSORS] = {[GRAD] = c.t[PARAM]};
  refuses(qn_op_plan_step(plan, &a.exec, &a.params, shared), QN_BAD_ARGUMENT, "share memory");
  qn_plan_destroy(&plan);
  lion_list_free(&c);
  same(&a, &b, "written roles may move too, and are looked out for where they went");
}

/* As with an allocator that hands out again what was let go. */
static void planned_roles_change_places(void)
{
  lion_list a = make(f32_types), b = make(f32_types), c = make(f32_types), d = make(f32_types);
  qn_plan *plan;
  const qn_tensor *const roles[QN_MAX_TENSORS] = {a.t[PARAM], a.t[GRAD], a.t[MOMENTUM]};
  const qn_tensor *const moved[QN_MAX_TENSORS] = {[PARAM] = c.t[PARAM], [GRAD] = a.t[PARAM]};
  const qn_tensor *const shared[QN_MAX_TENSORS] = {[PARAM] = d.t[PARAM], [GRAD] = d.t[PARAM]};
  check(!qn_op_plan_create(&plan, qn_op_at(0), &a.exec, &a.params, LIST, roles), "a plan");
  check(!qn_op_plan_step(plan, &a.exec, &a.params, moved), "gradients are where params were: %s", qn_last_error());
  check(!qn_lion_step(&b.exec, &b.params, LIST, b.t[PARAM], d.t[PARAM], b.t[MOMENTUM], NULL), "a step");
  refuses(qn_op_plan_step(plan, &a.exec, &a.params, shared), QN_BAD_ARGUMENT, "share memory");
  for (size_t k = 0; k < LIST; k++) memcpy(a.t[PARAM][k].data, c.t[PARAM][k].data, 4 * sizes[k]);
  qn_plan_destroy(&plan);
  lion_list_free(&c);
  lion_list_free(&d);
  same(&a, &b, "roles may move to where others were");
}

/* ---- the floating-point state of the caller ---- */
#if defined(__x86_64__)
static uint64_t get_state(void) { return _mm_getcsr(); }
static void set_state(uint64_t state) { _mm_setcsr((unsigned)state); }
enum { FLUSHING = 0x8040 | 0x6000 }; /* flush to zero, denormals are zero, rounding toward zero */
#elif defined(__aarch64__)
static uint64_t get_state(void)
{
  uint64_t state;
  __asm__ volatile("mrs %0, fpcr" : "=r"(state));
  return state;
}
static void set_state(uint64_t state) { __asm__ volatile("msr fpcr, %0" ::"r"(state)); }
enum { FLUSHING = 0x1000000 | 0xc00000 };
#endif

#if defined(__x86_64__) || defined(__aarch64__)
static void flushing_callers(const qn_dtype types[ROLES])
{
  lion_list a = make(types), b = make(types);
  qn_pool *pool;
  const uint64_t usual = get_state();
  a.params.lr = b.params.lr = 1e-41; /* subnormal as a float */
  a.params.weight_decay = b.params.weight_decay = 0.3;
  check(!lion_list_step(&a), "a caller as usual");
  set_state(usual | FLUSHING);
  const bool made = !qn_pool_create(&pool, 3);
  b.exec.pool = pool;
  const bool stepped = !lion_list_step(&b);
  const uint64_t after = get_state();
  set_state(usual);
  check(made && stepped && (after & FLUSHING) == FLUSHING, "a caller that flushes subnormals gets its state back");
  qn_pool_destroy(&pool);
  same(&a, &b, "and the same bits");
}
#endif

int main(void)
{
  formula();
  zeros_and_nans();
  grad_scale();
  cautious(false);
  cautious(true);
  layouts();
  planned_roles_move();
  planned_roles_change_places();
  for (int k = 0; k < TYPES; k++) {
    options(all_types[k]);
    pools(all_types[k]);
    single_tensors(all_types[k]);
    shards(all_types[k]);
    unaligned(all_types[k]);
    plans(all_types[k]);
#if defined(__x86_64__) || defined(__aarch64__)
    flushing_callers(all_types[k]);
#endif
  }
  return test_end();
}
