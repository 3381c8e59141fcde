/* SPDX-License-Identifier: Apache-2.0 */
/* contract_lion.c - every refusal of Lion's calls: a status, a sentence with the words that help, and not one byte
 * written. Each block catches one missing check. */
#include "lion_list.h"
#include "quern/runtime.h"
#include "small_stack.h"
#include "test.h"
#include <math.h>

static const qn_dtype f32_types[ROLES] = {QN_F32, QN_F32, QN_F32, QN_NONE};
static const qn_dtype bf16_types[ROLES] = {QN_BF16, QN_BF16, QN_F32, QN_F32};
static const size_t sizes[] = {6, 0, 40};

static lion_list make(const qn_dtype types[ROLES]) { return lion_list_make(3, sizes, types, 7, false); }

/* `change` is done to a good list l; then the step must refuse it. */
#define REFUSED_AS(status, types, words, change)                                                                       \
  do {                                                                                                                 \
    lion_list l = make(types), before = make(types);                                                                   \
    l.exec.workspace = l.workspace, l.exec.workspace_bytes = 16 * l.n;                                                 \
    change;                                                                                                            \
    refuses(qn_lion_step(&l.exec, &l.params, l.n, l.t[PARAM], l.t[GRAD], l.t[MOMENTUM], l.t[MASTER]), status, words);  \
    check(!memcmp(l.block, before.block, l.bytes), "nothing was written");                                             \
    lion_list_free(&l), lion_list_free(&before);                                                                       \
  } while (0)

#define REFUSED(types, words, change) REFUSED_AS(QN_BAD_ARGUMENT, types, words, change)

static void numbers(void)
{
  REFUSED(f32_types, "lr is -1", l.params.lr = -1);
  REFUSED(f32_types, "lr is nan", l.params.lr = NAN);
  REFUSED(f32_types, "lr is inf", l.params.lr = INFINITY);
  REFUSED(f32_types, "beta1 is 1, it must lie in [0, 1)", l.params.beta1 = 1);
  REFUSED(f32_types, "beta1 is -0.5", l.params.beta1 = -0.5);
  REFUSED(f32_types, "beta2 is 1.5", l.params.beta2 = 1.5);
  REFUSED(f32_types, "beta2 is nan", l.params.beta2 = NAN);
  REFUSED(f32_types, "weight_decay is -2", l.params.weight_decay = -2);
  REFUSED(f32_types, "weight_decay is nan", l.params.weight_decay = NAN);
  REFUSED(f32_types, "eps is nan", l.params.eps = NAN);
  REFUSED(f32_types, "reference_lr is -1", l.params.reference_lr = -1);
  REFUSED(f32_types, "reference_lr is 0", (l.params.reference_lr = 0, l.params.decay = QN_LION_DECAY_RELATIVE));
  REFUSED(f32_types, "\"squared\"", (l.params.reference_lr = 0, l.params.decay = QN_LION_DECAY_SQUARED));
  REFUSED(f32_types, "decay is 3, it must be 0 to 2 (lr|relative|squared)", l.params.decay = 3);
  REFUSED(f32_types, "decay is -1", l.params.decay = -1);
  REFUSED(f32_types, "maximize is 2", l.params.maximize = 2);
  REFUSED(f32_types, "cautious is -1", l.params.cautious = -1);
  REFUSED(f32_types, "rounding is 2", l.params.rounding = 2);
  REFUSED(f32_types, "momentum_rounding is 7", l.params.momentum_rounding = 7);
}

static void structs(void)
{
  struct {
    qn_lion_params params;
    char later[8];
  } grown = {QN_LION_DEFAULTS, {0}};
  REFUSED(f32_types, "params->size is 0", l.params.size = 0);
  REFUSED(f32_types, "params->size is", l.params.size -= 8);
  REFUSED(f32_types, "params->size is", l.params.size = SIZE_MAX);
  REFUSED(f32_types, "exec->size is 0", l.exec.size = 0);
  REFUSED(f32_types, "exec->size is", l.exec.size -= 8);
  REFUSED(f32_types, "device kind is 9", l.exec.device.kind = (qn_device_kind)9);
  REFUSED(f32_types, "cpu:1", l.exec.device.index = 1);
  lion_list l = make(f32_types);
  refuses(qn_lion_step(NULL, &l.params, l.n, l.t[0], l.t[1], l.t[2], NULL), QN_BAD_ARGUMENT, "exec is NULL");
  refuses(qn_lion_step(&l.exec, NULL, l.n, l.t[0], l.t[1], l.t[2], NULL), QN_BAD_ARGUMENT, "params is NULL");
  grown.params.size = sizeof grown;
  check(!qn_lion_step(&l.exec, &grown.params, l.n, l.t[0], l.t[1], l.t[2], NULL), "a longer struct of zeros is fine");
  grown.later[3] = 1;
  refuses(qn_lion_step(&l.exec, &grown.params, l.n, l.t[0], l.t[1], l.t[2], NULL), QN_BAD_ARGUMENT, "does not know");
  check(!qn_lion_step(&l.exec, &l.params, 0, NULL, NULL, NULL, NULL), "an empty list is fine");
  l.params.lr = -1;
  refuses(qn_lion_step(&l.exec, &l.params, 0, NULL, NULL, NULL, NULL), QN_BAD_ARGUMENT, "lr is -1");
  check(qn_lion_workspace_bytes(NULL, 3) == 0, "no params need no workspace");
  lion_list_free(&l);
}

static void pointers(void)
{
  static const uint64_t far[3] = {0, 0, (UINT64_C(1) << 60) - 39};
  const char odd[16] = {0};
  REFUSED(f32_types, "param is NULL", (free(l.t[PARAM]), l.t[PARAM] = NULL));
  REFUSED(f32_types, "grad is NULL", (free(l.t[GRAD]), l.t[GRAD] = NULL));
  REFUSED(f32_types, "momentum is NULL", (free(l.t[MOMENTUM]), l.t[MOMENTUM] = NULL));
  REFUSED(f32_types, "the data of grad[2] (40) is NULL", l.t[GRAD][2].data = NULL);
  REFUSED(f32_types, "grad[0] cannot be at address", l.t[GRAD][0].data = (char *)l.t[GRAD][0].data + 1);
  REFUSED(f32_types, "grad_scale is at", l.params.grad_scale = (const float *)(const void *)(odd + 1));
  REFUSED(f32_types, "found_inf is at", l.params.found_inf = (const float *)(const void *)(odd + 2));
  REFUSED(f32_types, "grad_scale (0x", l.params.grad_scale = l.t[PARAM][2].data);
  REFUSED(f32_types, "found_inf (0x", l.params.found_inf = l.t[MOMENTUM][0].data);
  REFUSED(f32_types, "hyper (0x", l.params.hyper = l.t[PARAM][2].data);
  REFUSED(f32_types, "agreement is given", l.params.agreement = l.workspace);
  REFUSED(f32_types, "first_element[2] is 11529", l.params.first_element = far);
  REFUSED(f32_types, "the workspace is 0 bytes", (l.params.cautious = 1, l.exec.workspace_bytes = 0));
  REFUSED(f32_types, "the workspace is 47 bytes", (l.params.cautious = 1, l.exec.workspace_bytes = 47));
  REFUSED(f32_types, "48 are needed", (l.params.cautious = 1, l.exec.workspace = NULL));
  REFUSED(f32_types, "not a multiple of 16", (l.params.cautious = 1, l.exec.workspace = l.workspace + 1));
  REFUSED(f32_types, "the workspace (0x", (l.params.cautious = 1, l.exec.workspace = l.t[PARAM][2].data));
  lion_list l = make(f32_types);
  l.params.grad_scale = l.t[GRAD][0].data;
  check(!lion_list_step(&l), "what is only read may be shared: %s", qn_last_error());
  l.params.grad_scale = NULL;
  refuses(qn_lion_count(&l.exec, &l.params, l.n, l.t[0], l.t[1], l.t[2], NULL, NULL), QN_BAD_ARGUMENT,
          "the counts are");
  refuses(qn_lion_count(&l.exec, &l.params, l.n, l.t[0], l.t[1], l.t[2], NULL, l.t[2][2].data), QN_BAD_ARGUMENT,
          "the counts");
  lion_list_free(&l);
}

static const qn_device second_gpu = {QN_CUDA, 2};

static void types(void)
{
  static const qn_dtype half_momentum[ROLES] = {QN_F32, QN_F32, QN_BF16, QN_NONE};
  static const qn_dtype mixed[ROLES] = {QN_BF16, QN_F16, QN_F32, QN_NONE};
  static const qn_dtype master_of_f32[ROLES] = {QN_F32, QN_F32, QN_F32, QN_F32};
  static const qn_dtype master_grad[ROLES] = {QN_BF16, QN_F32, QN_F32, QN_F32};
  REFUSED_AS(QN_BAD_TYPE, half_momentum, "momentum bf16; as param/grad/momentum/master there are: f32/f32/f32, ",
             (void)0);
  REFUSED_AS(QN_BAD_TYPE, mixed, "there is no kernel for param bf16, grad f16, momentum f32", (void)0);
  REFUSED_AS(QN_BAD_TYPE, master_of_f32, "master f32", (void)0);
  REFUSED_AS(QN_BAD_TYPE, master_grad, "param bf16, grad f32, momentum f32, master f32", (void)0);
  REFUSED_AS(QN_BAD_TYPE, f32_types, "momentum[2] is bf16 and momentum[0] is f32", l.t[MOMENTUM][2].dtype = QN_BF16);
  REFUSED_AS(QN_BAD_TYPE, f32_types, "the dtype of grad[0] is 0", l.t[GRAD][0].dtype = QN_NONE);
  REFUSED_AS(QN_BAD_TYPE, f32_types, "the dtype of grad[0] is 77", l.t[GRAD][0].dtype = (qn_dtype)77);
  REFUSED_AS(QN_BAD_TYPE, f32_types, "grad f64", l.t[GRAD][0].dtype = QN_F64);
  REFUSED(f32_types, "param[1] is on cuda:2 and the call is on cpu:0", l.t[PARAM][1].device = second_gpu);
  REFUSED(bf16_types, "master[0] is on emulator:0", l.t[MASTER][0].device.kind = QN_EMULATOR);
}

static void shapes(void)
{
  static const int64_t negative[] = {-40}, other[] = {5, 8}, same[] = {8, 5}, huge[] = {INT64_MAX, 16};
  static const int64_t gaps[] = {10, 1}, overlapping[] = {4, 1}, transposed[] = {1, 8}, backwards[] = {-5, 1};
#define SHAPE(role, d, s, st) (l.t[role][2].ndim = (d), l.t[role][2].shape = (s), l.t[role][2].strides = (st))
#define ALL(d, s, st) (SHAPE(PARAM, d, s, st), SHAPE(GRAD, d, s, st), SHAPE(MOMENTUM, d, s, st))
  REFUSED(f32_types, "extent 0 of param[2] is -40", ALL(1, negative, NULL));
  REFUSED(f32_types, "param[2] has -1 dimensions", ALL(-1, same, NULL));
  REFUSED(f32_types, "param[2] has 33 dimensions, from 0 to 32", ALL(33, same, NULL));
  REFUSED(f32_types, "2 dimensions and no shape", ALL(2, NULL, NULL));
  REFUSED(f32_types, "more than 2^60 elements", ALL(2, huge, NULL));
  REFUSED(f32_types, "grad[2] has the shape 40 and param[2] has 8x5",
          (SHAPE(PARAM, 2, same, NULL), SHAPE(MOMENTUM, 2, same, NULL)));
  REFUSED(f32_types, "grad[2] has the shape 5x8 and param[2] has 8x5",
          (ALL(2, same, NULL), SHAPE(GRAD, 2, other, NULL)));
  REFUSED(f32_types, "param[2] (8x5) is not dense", ALL(2, same, gaps));
  REFUSED(f32_types, "param[2] (8x5) is not dense", ALL(2, same, overlapping));
  REFUSED(f32_types, "param[2] (8x5) is not dense", ALL(2, same, backwards));
  REFUSED(f32_types, "grad[2] (8x5) is laid out in another order than param[2]",
          (ALL(2, same, NULL), SHAPE(GRAD, 2, same, transposed)));
  REFUSED(f32_types, "momentum[2] (8x5) is laid out in another order than param[2]",
          (ALL(2, same, transposed), SHAPE(MOMENTUM, 2, same, NULL)));
#undef ALL
#undef SHAPE
}

/* Pointers that leave the block would be caught by its guard; here they only cross each other. */
static void overlaps(void)
{
#define MOVE(a, j, b, k, by) (l.t[a][j].data = (char *)l.t[b][k].data + (by))
  REFUSED(f32_types, "param[2]", MOVE(PARAM, 0, PARAM, 2, 156));
  REFUSED(f32_types, "momentum[0]", MOVE(MOMENTUM, 0, PARAM, 0, 20));
  REFUSED(f32_types, "share memory", MOVE(GRAD, 0, MOMENTUM, 2, 0));
  REFUSED(f32_types, "share memory", MOVE(GRAD, 2, PARAM, 2, -4));
  REFUSED(bf16_types, "param[2]", MOVE(GRAD, 2, PARAM, 2, 4));
  REFUSED(bf16_types, "master[2]", MOVE(MOMENTUM, 2, MASTER, 2, 0));
  lion_list l = make(f32_types);
  MOVE(GRAD, 0, GRAD, 2, 8);
  check(!lion_list_step(&l), "gradients may be shared");
  MOVE(GRAD, 0, PARAM, 2, 160);
  check(!lion_list_step(&l), "what touches does not overlap");
  MOVE(MOMENTUM, 1, PARAM, 2, 4);
  check(!lion_list_step(&l), "an empty tensor overlaps nothing");
  lion_list_free(&l);
#undef MOVE
}

/* More spans than the sweep's table holds: each round must know how far those before reached. Thousands of gradients
 * lie within the first one, which is fine, and then a written tensor lies at its end. */
static void long_lists(void)
{
  enum { N = 5002 };
  const size_t first_bytes = 1 << 20;
  size_t *elements = calloc(N, sizeof *elements);
  for (size_t k = 0; k < N; k++) elements[k] = k % 3;
  elements[0] = first_bytes / 4;
  elements[N - 1] = 1;
  lion_list l = lion_list_make(N, elements, f32_types, 3, false);
  unsigned char *before = malloc(l.bytes), *first = l.t[GRAD][0].data;
  for (size_t k = 1; k < N; k++) l.t[GRAD][k].data = first + 64 * k;
  check(!lion_list_step(&l), "a list of %d tensors", N);
  memcpy(before, l.block, l.bytes);
  void *was = l.t[PARAM][N - 1].data;
  l.t[PARAM][N - 1].data = first + first_bytes - 4;
  refuses(lion_list_step(&l), QN_BAD_ARGUMENT, "param[5001]");
  qn_lion_plan *plan;
  refuses(qn_lion_plan_create(&plan, &l.exec, &l.params, N, l.t[0], l.t[1], l.t[2], NULL), QN_BAD_ARGUMENT,
          "param[5001]");
  l.t[PARAM][N - 1].data = l.t[MOMENTUM][1].data;
  refuses(lion_list_step(&l), QN_BAD_ARGUMENT, "momentum[1]");
  l.t[PARAM][N - 1].data = was;
  check(!memcmp(before, l.block, l.bytes), "nothing was written");
  check(!lion_list_step(&l), "and without that it steps");
  lion_list_free(&l);
  free(before);
  free(elements);
}

/* A list in no order of address, over 16 MB: with any two neighbours brought to share bytes it is refused, so the sweep
 * saw them side by side. */
static void scattered_lists(void)
{
  enum { N = 300, ALL = 3 * N, APART = 18504 };
  static size_t elements[N], place[ALL];
  for (size_t k = 0; k < N; k++) elements[k] = 2;
  lion_list l = lion_list_make(N, elements, f32_types, 3, false);
  char *arena = calloc(ALL, APART);
  for (size_t k = 0; k < ALL; k++) place[k] = k * 7919 % ALL; /* 7919 is prime: each place once */
  for (size_t k = 0; k < ALL; k++) l.t[k % 3][k / 3].data = arena + place[k] * APART;
  check(!lion_list_step(&l), "%d tensors, scattered", ALL);
  size_t caught = 0, tried = 0;
  for (size_t k = 0; k < ALL; k++) {
    qn_tensor *t = &l.t[k % 3][k / 3];
    if (k % 3 == GRAD || place[k] == 0) continue; /* a gradient's neighbour may be a gradient */
    t->data = arena + (place[k] - 1) * APART + 4;
    caught += lion_list_step(&l) == QN_BAD_ARGUMENT && strstr(qn_last_error(), "share memory");
    t->data = arena + place[k] * APART;
    tried++;
  }
  check(caught == tried, "%zu of %zu pairs of neighbours that share bytes are refused", caught, tried);
  free(arena);
  lion_list_free(&l);
}

/* So many tensors that an address and a number of theirs do not fit one word, in memory that lies far apart: that of
 * the program and that of large allocations. */
static void far_lists(void)
{
  enum { N = 70000, ODD = 40000 };
  static float own[2];
  size_t *elements = malloc(N * sizeof *elements);
  for (size_t k = 0; k < N; k++) elements[k] = 1;
  lion_list l = lion_list_make(N, elements, f32_types, 5, false);
  void *was = l.t[MOMENTUM][ODD].data;
  l.t[PARAM][ODD].data = &own[0];
  l.t[GRAD][ODD].data = &own[1];
  check(!lion_list_step(&l), "%d tensors, far apart", 3 * N);
  l.t[MOMENTUM][ODD].data = &own[1];
  refuses(lion_list_step(&l), QN_BAD_ARGUMENT, "grad[40000]");
  l.t[MOMENTUM][ODD].data = l.t[MOMENTUM][N - 1].data;
  refuses(lion_list_step(&l), QN_BAD_ARGUMENT, "momentum[69999]");
  l.t[MOMENTUM][ODD].data = was;
  check(!lion_list_step(&l), "and again");
  lion_list_free(&l);
  free(elements);
}

static void *step_list(void *list) { return (void *)(uintptr_t)lion_list_step(list); }

/* A thread that has little stack steps, over lists that fit the table of overlap's check and that do not. */
static void small_stack(void)
{
  static size_t elements[2000];
  const size_t lengths[] = {3, 512, 2000};
  for (size_t k = 0; k < 2000; k++) elements[k] = 3;
  for (size_t k = 0; k < 3; k++) {
    lion_list l = lion_list_make(lengths[k], elements, f32_types, 5, false);
    check(!small_stack_run(64, step_list, &l), "is enough for a step over %zu tensors", lengths[k]);
    lion_list_free(&l);
  }
}

static void plans(void)
{
  lion_list l = make(f32_types), before = make(f32_types);
  qn_lion_plan *plan = NULL;
  qn_tensor moved[3];
  static const int64_t shape[] = {39};
  refuses(qn_lion_plan_create(NULL, &l.exec, &l.params, l.n, l.t[0], l.t[1], l.t[2], NULL), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_lion_plan_create(&plan, &l.exec, &l.params, l.n, l.t[0], NULL, l.t[2], NULL), QN_BAD_ARGUMENT, "grad");
  check(!plan, "no plan came of it");
  refuses(qn_lion_plan_step(NULL, &l.exec, &l.params, NULL), QN_BAD_ARGUMENT, "NULL");
  check(!qn_lion_plan_create(&plan, &l.exec, &l.params, l.n, l.t[0], l.t[1], l.t[2], NULL), "a plan");
#define MOVED_REFUSED(status, words, change)                                                                           \
  do {                                                                                                                 \
    memcpy(moved, l.t[GRAD], sizeof moved);                                                                            \
    change;                                                                                                            \
    refuses(qn_lion_plan_step(plan, &l.exec, &l.params, moved), status, words);                                        \
  } while (0)
  MOVED_REFUSED(QN_BAD_ARGUMENT, "grad[2] has the shape 39", moved[2].shape = shape);
  MOVED_REFUSED(QN_BAD_TYPE, "grad[2] is f16", moved[2].dtype = QN_F16);
  MOVED_REFUSED(QN_BAD_ARGUMENT, "grad[0] is on cuda:0", moved[0].device.kind = QN_CUDA);
  MOVED_REFUSED(QN_BAD_ARGUMENT, "the data of grad[2] (40) is NULL", moved[2].data = NULL);
  MOVED_REFUSED(QN_BAD_ARGUMENT, "grad[2] cannot be at", moved[2].data = (char *)moved[2].data + 2);
  MOVED_REFUSED(QN_BAD_ARGUMENT, "momentum[2]", moved[0].data = (char *)l.t[MOMENTUM][2].data + 156);
  MOVED_REFUSED(QN_BAD_ARGUMENT, "param[2]", moved[2].data = (char *)l.t[PARAM][2].data - 4);
  MOVED_REFUSED(QN_BAD_ARGUMENT, "no shape", moved[2].shape = NULL);
#undef MOVED_REFUSED
  l.params.lr = NAN;
  refuses(qn_lion_plan_step(plan, &l.exec, &l.params, NULL), QN_BAD_ARGUMENT, "lr is nan");
  l.params.lr = 1, l.params.cautious = 1;
  refuses(qn_lion_plan_step(plan, &l.exec, &l.params, NULL), QN_BAD_ARGUMENT, "48 are needed");
  l.exec.workspace = l.t[GRAD][2].data, l.exec.workspace_bytes = 48;
  refuses(qn_lion_plan_step(plan, &l.exec, &l.params, NULL), QN_BAD_ARGUMENT, "the workspace (0x");
  l.exec.device.kind = QN_EMULATOR;
  refuses(qn_lion_plan_step(plan, &l.exec, &l.params, NULL), QN_BAD_ARGUMENT, "the plan was made for cpu:0");
  l.exec.device.kind = QN_CPU, l.params.cautious = 0;
  l.params.found_inf = l.t[PARAM][2].data;
  refuses(qn_lion_plan_step(plan, &l.exec, &l.params, NULL), QN_BAD_ARGUMENT, "found_inf (0x");
  l.params.found_inf = NULL;
  const qn_tensor *const master[QN_MAX_TENSORS] = {[MASTER] = l.t[PARAM]};
  refuses(qn_op_plan_step((qn_plan *)plan, &l.exec, &l.params, master), QN_BAD_ARGUMENT, "the plan has none");
  const qn_tensor *const param[QN_MAX_TENSORS] = {[PARAM] = l.t[MOMENTUM]};
  refuses(qn_op_plan_step((qn_plan *)plan, &l.exec, &l.params, param), QN_BAD_ARGUMENT, "share memory");
  check(!memcmp(l.block, before.block, l.bytes), "nothing was written");
  check(!qn_lion_plan_step(plan, &l.exec, &l.params, NULL), "after all refusals the plan is as it was");
  l.params.lr = 1;
  check(!qn_lion_step(&before.exec, &l.params, l.n, before.t[0], before.t[1], before.t[2], NULL) &&
            lion_list_difference(&l, &before) < 0,
        "and steps where its tensors were");
  qn_lion_plan_destroy(&plan);
  check(!plan, "destroyed");
  qn_lion_plan_destroy(&plan);
  qn_lion_plan_destroy(NULL);
  lion_list_free(&l), lion_list_free(&before);
}

/* The k-th allocation fails, for every k there is: a status, and nothing is leaked. */
static long allocations_left, allocations_held;

static void *allocate(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  if (allocations_left-- == 0) return NULL;
  allocations_held++;
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *user, void *memory, size_t bytes)
{
  (void)user, (void)bytes;
  allocations_held--;
  free(memory);
}

static void plans_without_memory(void)
{
  lion_list l = make(f32_types);
  qn_lion_plan *plan = NULL;
  qn_status status = QN_NO_MEMORY;
  check(!qn_lion_prepare(&l.exec, &l.params, l.n, l.t[0], l.t[1], l.t[2], NULL), "prepared");
  check(!qn_allocator_set(&(qn_allocator){allocate, release, NULL}), "allocations are counted");
  long k = 0;
  for (; status == QN_NO_MEMORY && k < 100; k++) {
    allocations_left = k;
    status = qn_lion_plan_create(&plan, &l.exec, &l.params, l.n, l.t[0], l.t[1], l.t[2], NULL);
    if (status)
      check(status == QN_NO_MEMORY && !plan && !allocations_held, "allocation %ld fails: %s", k, qn_last_error());
  }
  check(!status && k > 1, "with %ld allocations there is a plan", k - 1);
  allocations_left = 0; /* a step allocates nothing */
  check(!qn_lion_plan_step(plan, &l.exec, &l.params, l.t[GRAD]), "a planned step needs no memory");
  check(!lion_list_step(&l), "nor does another");
  allocations_left = -1;
  qn_lion_plan_destroy(&plan);
  check(!allocations_held, "all memory is back");
  check(!qn_allocator_set(NULL), "allocations as usual");
  lion_list_free(&l);
}

static void generic_calls(void)
{
  const qn_op_info *op;
  lion_list l = make(f32_types);
  char params[512];
  refuses(qn_op_find("lyon", &op), QN_BAD_ARGUMENT, "did you mean \"lion\"?");
  refuses(qn_op_find("velociraptor", &op), QN_BAD_ARGUMENT, "velociraptor");
  refuses(qn_op_find(NULL, &op), QN_BAD_ARGUMENT, "NULL");
  check(!qn_op_find("lion", &op) && !strcmp(op->name, "lion"), "lion is found");
  check(!qn_op_at(qn_op_count()) && qn_op_at(0), "the list of ops ends");
  refuses(qn_op_defaults(op, params, 8), QN_BAD_ARGUMENT, "params has 8 bytes");
  static const qn_lion_params defaults = QN_LION_DEFAULTS; /* static: zeros between members */
  check(!qn_op_defaults(op, params, sizeof defaults) && !memcmp(params, &defaults, sizeof defaults),
        "the table's defaults are the header's");
  refuses(qn_op_step(op, &l.exec, &l.params, l.n, NULL), QN_BAD_ARGUMENT, "tensors is NULL");
  refuses(qn_op_step(NULL, &l.exec, &l.params, l.n, NULL), QN_BAD_ARGUMENT, "op is NULL");
  for (size_t k = 0; k < qn_op_variant_count(op); k++) {
    qn_variant v = {.size = sizeof v};
    check(!qn_op_variant_at(op, k, &v) && v.name && v.state && v.why[0] && v.chosen <= v.available, "%s %s: %s",
          v.backend, v.name, v.why);
  }
  qn_variant none = {.size = sizeof none};
  refuses(qn_op_variant_at(op, qn_op_variant_count(op), &none), QN_BAD_ARGUMENT, "there are");
  lion_list_free(&l);
}

int main(void)
{
  small_stack(); /* first: what is done once takes stack too */
  numbers();
  structs();
  pointers();
  types();
  shapes();
  overlaps();
  long_lists();
  scattered_lists();
  far_lists();
  plans();
  plans_without_memory();
  generic_calls();
  return test_end();
}
