/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_list.c - what every op asks of the CUDA driver for a list of tensors, counted by the mock: one launch, on the
 * tensors' device, on the caller's stream; no allocation, copy or synchronisation in a step. What the kernels compute
 * is for the emulator and real GPUs. */
#include "mock/scenario.h"
#include "op/device_list.h"
#include "op/op.h"
#include "op/tune.h"
#include "quern/quern.h"
#include "scratch.h"
#include <stdatomic.h>

enum { N = 148, MANY = 3000, ELEMENTS = 1000 };

/* A list of n tensors a role, in one allocation a role: the op's first row of types. */
typedef struct list {
  const qn_op_info *op;
  size_t n;
  qn_tensor *of[QN_MAX_TENSORS]; /* NULL: not given */
  void *memory[QN_MAX_TENSORS];
  char params[1024];
} list;

static const int64_t shape[] = {ELEMENTS}, empty_shape[] = {0};

static bool make(list *l, const qn_op_info *op, size_t n, qn_device device)
{
  *l = (list){.op = op, .n = n};
  qn_status status = op->params_bytes <= sizeof l->params ? qn_op_defaults(op, l->params, op->params_bytes) : QN_OK;
  for (size_t r = 0; r < op->n_tensors && !status; r++) {
    const qn_dtype dtype = op->types[0].tensor[r].dtype;
    if (op->types[0].tensor[r].access == QN_ABSENT) continue;
    const size_t bytes = ELEMENTS * qn_dtype_bytes(dtype);
    status = qn_memory_allocate(device, n * bytes, &l->memory[r]);
    l->of[r] = calloc(n, sizeof *l->of[r]);
    for (size_t k = 0; k < n; k++)
      l->of[r][k] = (qn_tensor){
          .data = (char *)l->memory[r] + k * bytes, .dtype = dtype, .ndim = 1, .shape = shape, .device = device};
  }
  return check(!status, "%s: a list of %zu tensors on cuda:%d: %s", op->name, n, device.index,
               status ? qn_last_error() : "");
}

static void drop(list *l, qn_device device)
{
  for (size_t r = 0; r < QN_MAX_TENSORS; r++) {
    qn_memory_release(device, l->memory[r]);
    free(l->of[r]);
  }
}

static qn_status step(const list *l, const qn_exec *exec)
{
  return qn_op_step(l->op, exec, l->params, l->n, (const qn_tensor *const *)l->of);
}

/* ---- the host's allocations ---- */

static atomic_size_t n_allocations;
static void *counting_allocate(void *user, size_t bytes, size_t alignment)
{
  (void)user;
  atomic_fetch_add(&n_allocations, 1);
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void counting_release(void *user, void *memory, size_t bytes)
{
  (void)user;
  (void)bytes;
  free(memory);
}

/* ---- what a step asks ---- */

/* The calls since `before` are those of one launch and nothing else. */
static bool only_a_launch(size_t before)
{
  static const char *const calls[] = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernel", "cuCtxPopCurrent"};
  bool same = mock()->calls(NULL) - before == 4;
  for (size_t k = 0; k < 4; k++) same &= !strcmp(mock()->call_name(before + 1 + k), calls[k]);
  return same;
}

/* As the mock says of any kernel: 16 registers, no shared memory, 2048 threads at once. */
static void known_facts(const list *l)
{
  qn_list_facts f = {0};
  const int threads = (int)mock()->launch(mock()->launches() - 1)->threads;
  check(!qn_device_list_facts(&f) && f.registers == 16 && !f.shared_bytes && f.blocks == 2048 / threads,
        "%s: its kernel has %d registers, %d bytes of shared memory, and %d blocks at once", l->op->name, f.registers,
        f.shared_bytes, f.blocks);
}

static void warm_steps(const list *l, const qn_exec *exec)
{
  const char *name = l->op->name;
  const mock_launch *first = mock()->launch(0);
  check(mock()->launches() == 1, "%s: %zu tensors are %zu launch", name, l->n, mock()->launches());
  check(first && !strcmp(first->kernel, name) && first->device == exec->device.index && first->stream == exec->stream,
        "%s: of its kernel, on cuda:%d and the caller's stream", name, exec->device.index);
  size_t before = mock()->calls(NULL), allocated = atomic_load(&n_allocations);
  check(!step(l, exec) && only_a_launch(before), "%s: the next step is a launch and nothing else", name);
  check(atomic_load(&n_allocations) == allocated, "%s: and allocates nothing", name);
  check(mock()->launch(1)->blocks == first->blocks && mock()->launch(1)->threads == first->threads,
        "%s: %u blocks of %u threads again", name, first->blocks, first->threads);
}

static void planned_steps(const list *l, const qn_exec *exec)
{
  const char *name = l->op->name;
  qn_plan *plan = NULL;
  const qn_tensor *moved[QN_MAX_TENSORS] = {NULL};
  for (size_t r = 0; r < l->op->n_tensors; r++)
    if (l->op->types[0].tensor[r].access == QN_READ) moved[r] = l->of[r];
  check(!qn_op_plan_create(&plan, l->op, exec, l->params, l->n, (const qn_tensor *const *)l->of), "%s: a plan: %s",
        name, plan ? "" : qn_last_error());
  for (int k = 0; k < 2; k++) {
    size_t before = mock()->calls(NULL), allocated = atomic_load(&n_allocations);
    check(!qn_op_plan_step(plan, exec, l->params, k ? moved : NULL) && only_a_launch(before) &&
              atomic_load(&n_allocations) == allocated,
          "%s: a planned step with its gradients %s is a launch and nothing else", name, k ? "moved" : "in place");
  }
  qn_plan_destroy(&plan);
}

/* Of a lone tensor in whole packs the kernel has no code for odd elements: where what is read moves off its boundary
 * another is loaded, once. */
static void odd_places(const qn_op_info *op, const qn_exec *exec)
{
  list l;
  qn_plan *plan = NULL;
  const qn_tensor *moved[QN_MAX_TENSORS] = {NULL};
  if (!make(&l, op, 1, exec->device)) return;
  qn_option_set("launch_shape", "flat-256x4x1"); /* with few elements the rule takes single ones, wherever they are */
  for (size_t r = 0; r < op->n_tensors; r++)
    if (op->types[0].tensor[r].access == QN_READ) moved[r] = l.of[r];
  check(!qn_op_plan_create(&plan, op, exec, l.params, 1, (const qn_tensor *const *)l.of), "%s: a plan of one tensor",
        op->name);
  for (int k = 0; k < 4; k++) { /* as it is, off its boundary, there again, and back */
    for (size_t r = 0; r < op->n_tensors; r++)
      if (moved[r])
        l.of[r]->data = (char *)l.memory[r] + (k == 1 || k == 2 ? qn_dtype_bytes(op->types[0].tensor[r].dtype) : 0);
    const size_t before = mock()->calls(NULL);
    check(!qn_op_plan_step(plan, exec, l.params, moved) && only_a_launch(before) == (k != 1),
          "%s: with what it reads %s", op->name, k == 1 || k == 2 ? "off its boundary" : "in its place");
  }
  qn_option_set("launch_shape", NULL);
  qn_plan_destroy(&plan);
  drop(&l, exec->device);
}

/* A plan's launch shape is the tune table's of today: a table that appears between two steps counts in the second. */
static void new_tables(const qn_op_info *op, const qn_exec *exec)
{
  static const char *const choices[] = {"flat-128x8x1", "flat-512x8x1"};
  list l;
  qn_plan *plan = NULL;
  char name[64], text[256];
  qn_arch arch = {.size = sizeof arch};
  if (!make(&l, op, 1, exec->device) || !check(!qn_device_arch(exec->device, &arch), "its architecture")) return;
  scratch_begin();
  chmod(scratch, 0700);
  qn_option_set("tune_dir", scratch);
  snprintf(name, sizeof name, "%s.tune", op->name);
  check(!qn_op_plan_create(&plan, op, exec, l.params, 1, (const qn_tensor *const *)l.of), "%s: a plan", op->name);
  for (size_t k = 0; k < 2; k++) {
    FILE *file = fopen(scratch_path(name), "w");
    snprintf(text, sizeof text,
             "quern tune 1 %s\narch=%s types=* rows=1- cols=1- layout=* choice=%s state=published date=2026-11-22\n",
             op->name, arch.name, choices[k]);
    check(file && fputs(text, file) >= 0 && !fclose(file) && !chmod(scratch_path(name), 0600), "a tune table");
    qn_tune_forget();
    const qn_status status = qn_op_plan_step(plan, exec, l.params, NULL);
    check(!status && !strncmp(qn_op_last_variant(), choices[k], strlen(choices[k])), "%s: %s", op->name,
          status ? qn_last_error() : qn_op_last_variant());
  }
  qn_option_set("tune_dir", NULL);
  qn_plan_destroy(&plan);
  drop(&l, exec->device);
}

static bool takes_lists(const qn_op *op) { return op->device_source && qn_op_is_alike(&op->info); }

static void each_op(void)
{
  const qn_device device = {QN_CUDA, 1};
  const qn_allocator counting = {counting_allocate, counting_release, NULL};
  qn_allocator_set(&counting);
  int n_ops = 0;
  for (size_t k = 0; qn_ops[k]; k++) {
    qn_exec exec = {.size = sizeof exec, .device = device};
    list l;
    if (!takes_lists(qn_ops[k]) || strcmp(qn_ops[k]->info.name, getenv("CUDA_LIST_OP"))) continue;
    n_ops++;
    check(!qn_stream_create(device, &exec.stream), "a stream");
    if (make(&l, &qn_ops[k]->info, N, device) &&
        check(!step(&l, &exec), "%s: a step compiles and runs: %s", l.op->name, qn_last_error())) {
      warm_steps(&l, &exec);
      known_facts(&l);
      planned_steps(&l, &exec);
      odd_places(l.op, &exec);
      new_tables(l.op, &exec);
    }
    check(mock()->retained(0) == 0 && mock()->live_bytes(0) == 0, "the other device was left alone");
    check(mock()->depth() == 0, "no context is left current");
    drop(&l, device);
    qn_stream_destroy(device, &exec.stream);
  }
  check(n_ops == 1, "the op was there");
}

/* A plan is for one device: what moved to another, and a step there, are refused. */
static void two_devices(void)
{
  const qn_device device = {QN_CUDA, 0};
  qn_exec exec = {.size = sizeof exec, .device = device};
  list l;
  qn_plan *plan = NULL;
  const qn_tensor *moved[QN_MAX_TENSORS] = {NULL};
  const qn_op_info *op = &qn_ops[0]->info;
  size_t read = 0;
  while (op->types[0].tensor[read].access != QN_READ) read++;
  if (!make(&l, op, 2, device)) return;
  moved[read] = l.of[read];
  check(!qn_op_plan_create(&plan, op, &exec, l.params, 2, (const qn_tensor *const *)l.of), "%s: a plan on cuda:0",
        op->name);
  l.of[read][1].device.index = 1;
  refuses(qn_op_plan_step(plan, &exec, l.params, moved), QN_BAD_ARGUMENT, "cuda:1");
  l.of[read][1].device.index = 0;
  exec.device.index = 1;
  refuses(qn_op_plan_step(plan, &exec, l.params, NULL), QN_BAD_ARGUMENT, "cuda:1");
  check(mock()->launches() == 0, "and nothing was launched");
  exec.device.index = 0;
  check(!qn_op_plan_step(plan, &exec, l.params, moved), "%s: what is on cuda:0 is taken", op->name);
  qn_plan_destroy(&plan);
  drop(&l, device);
}

/* Tensors of so many elements, at addresses that nobody looks at. */
static qn_status far_step(const qn_op *op, const qn_exec *exec, int64_t elements, size_t n)
{
  static qn_tensor tensors[QN_MAX_TENSORS][4];
  static int64_t extent;
  char params[1024];
  const qn_tensor *roles[QN_MAX_TENSORS] = {NULL};
  extent = elements;
  qn_try(qn_op_defaults(&op->info, params, op->info.params_bytes));
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    const qn_dtype dtype = op->info.types[0].tensor[r].dtype;
    if (op->info.types[0].tensor[r].access == QN_ABSENT) continue;
    for (size_t k = 0; k < n; k++)
      tensors[r][k] = (qn_tensor){(void *)(uintptr_t)((4 * r + k + 1) << 46), dtype, 1, &extent, NULL, exec->device};
    roles[r] = tensors[r];
  }
  return qn_op_step(&op->info, exec, params, n, roles);
}

/* A launch has less than 2^31 blocks: what has more goes into several, or is refused. */
static void far_lists(void)
{
  const qn_exec exec = {.size = sizeof exec, .device = {QN_CUDA, 0}};
  const qn_op *op = qn_ops[0];
  check(!far_step(op, &exec, (INT64_C(1) << 32) + 37, 1), "%s: 2^32 + 37 elements: %s", op->info.name, qn_last_error());
  const uint64_t of_block = (UINT64_C(1) << 32) / (mock()->launch(0)->blocks - 1);
  check(mock()->launch(0)->blocks * of_block > UINT64_C(1) << 32 && of_block >= 64 && of_block <= 8192, "are %u blocks",
        mock()->launch(0)->blocks);
  check(!far_step(op, &exec, (int64_t)(of_block << 30), 3) && mock()->launches() == 4, "3 times 2^30 blocks: %s",
        qn_last_error());
  for (size_t k = 1; k < 4; k++)
    check(mock()->launch(k)->blocks == 1u << 30, "launch %zu has %u blocks", k, mock()->launch(k)->blocks);
  refuses(far_step(op, &exec, (int64_t)(of_block << 31), 1), QN_BAD_ARGUMENT, "2147483648 blocks");
}

/* A list longer than an argument is a few launches; one of empty tensors is none; one on two devices is refused. */
static void odd_lists(void)
{
  const qn_device device = {QN_CUDA, 0};
  const qn_exec exec = {.size = sizeof exec, .device = device};
  list l;
  const qn_op *op = qn_ops[0];
  if (!make(&l, &op->info, MANY, device)) return;
  check(!step(&l, &exec), "%s: %zu tensors: %s", op->info.name, l.n, qn_last_error());
  uint64_t blocks = 0;
  for (size_t k = 0; k < mock()->launches(); k++) blocks += mock()->launch(k)->blocks;
  check(mock()->launches() > 1 && mock()->launches() <= MANY / 500 && blocks >= MANY, "are %zu launches, %llu blocks",
        mock()->launches(), (unsigned long long)blocks);
  size_t launched = mock()->launches();
  l.of[0][MANY - 1].device.index = 1;
  refuses(step(&l, &exec), QN_BAD_ARGUMENT, "cuda:1");
  for (size_t r = 0; r < op->info.n_tensors; r++)
    for (size_t k = 0; l.of[r] && k < MANY; k++) {
      l.of[r][k].device.index = 0;
      l.of[r][k].shape = empty_shape;
    }
  check(!step(&l, &exec) && mock()->launches() == launched, "empty tensors are no launch");
  l.n = 0;
  check(!step(&l, &exec) && mock()->launches() == launched, "nor is an empty list");
  drop(&l, device);
}

int main(void)
{
  for (size_t k = 0; qn_ops[k]; k++) {
    setenv("CUDA_LIST_OP", qn_ops[k]->info.name, 1);
    if (takes_lists(qn_ops[k])) scenario(MOCK_CUDA, "devices=2", MOCK_NVRTC, "", each_op);
  }
  scenario(MOCK_CUDA, "devices=2", MOCK_NVRTC, "", odd_lists);
  scenario(MOCK_CUDA, "devices=2", MOCK_NVRTC, "", two_devices);
  scenario(MOCK_CUDA, "", MOCK_NVRTC, "", far_lists);
  return test_end();
}
