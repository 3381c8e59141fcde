/* SPDX-License-Identifier: Apache-2.0 */
/* emulator.c - the device kernels' own sources on the processor: the table of the emulator, and launches as loops over
 * blocks and threads, or over groups of fibers (group.c), on the caller's pool. It exists so that the very sources and
 * launch geometry of GPU kernels run where there is no GPU; it is not meant to be fast. Memory, events and streams are
 * the processor's. */
#include "core/core.h"
#include "device/emulator/emulator.h"
#include "device/host.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Blocks are dealt in groups of so many whatever the pool, so what runs together never depends on its threads. Fibers
 * cost more: there a task is so many threads, or one block. */
enum {
  GROUP_BLOCKS = 16,
  SIMDGROUP = 32,
  TASK_THREADS = 512,
  MOST_THREADS = 1024,
  BEST_THREADS = 256,
  TASKS = 1024,
  ARGUMENT_LIMIT = 32764
};
static const uint64_t most_blocks = 0x7fffffff; /* of a CUDA grid's first dimension */

static qn_status count(int *n) { return qn_backend_cpu.count(n); }

static qn_status query(qn_device device, qn_device_info *info)
{
  qn_emulator_compiler compiler;
  qn_try(qn_backend_cpu.query(device, info));
  if (qn_emulator_compiler_find(&compiler) != QN_OK) return QN_OK; /* qn_last_error says why there is none */
  info->compiler_version = compiler.number;
  for (size_t k = 0; k + 1 < sizeof info->compiler_path && compiler.path[k]; k++)
    info->compiler_path[k] = compiler.path[k];
  return QN_OK;
}

typedef struct task_run {
  const qn_device_function *function;
  const qn_launch *launch;
  qn_status (*task)(const qn_device_function *function, const qn_launch *launch, uint64_t first, uint64_t last);
  uint64_t blocks;      /* a task's */
  atomic_size_t failed; /* the lowest task that has; those behind it are not begun */
  pthread_mutex_t lock; /* of what that one says */
  qn_status status;
  char sentence[1024];
} task_run;

/* The first misaligned access of the task that runs on this thread; bytes 0: none yet. */
static _Thread_local struct {
  const void *address;
  qn_u32 bytes;
} misaligned;

void qn_emulator_misaligned(const void *address, qn_u32 bytes)
{
  if (misaligned.bytes) return;
  misaligned.address = address;
  misaligned.bytes = bytes;
}

static qn_status run_loop(const qn_device_function *function, const qn_launch *l, uint64_t first, uint64_t last)
{
  function->run(l->argument, first, last, l->blocks, l->threads);
  return QN_OK;
}

/* A task that fails is the launch's status if no task before it fails. All of those run to their end or have failed:
 * tasks are begun in order. So the sentence does not depend on the pool. */
static void run_task(void *user, size_t k)
{
  task_run *run = user;
  const qn_launch *l = run->launch;
  if (k > atomic_load(&run->failed)) return;
  uint64_t first = (uint64_t)k * run->blocks, rest = l->blocks - first;
  misaligned.bytes = 0;
  qn_status status = run->task(run->function, l, first, first + (rest < run->blocks ? rest : run->blocks));
  if (status == QN_OK && misaligned.bytes)
    status =
        qn_fail(QN_KERNEL_ERROR,
                "kernel %s: a vector access of %u bytes at address %p, which is no multiple of %u: a GPU stops there",
                run->function->name, misaligned.bytes, misaligned.address, misaligned.bytes);
  if (status == QN_OK) return;
  pthread_mutex_lock(&run->lock);
  if (k < atomic_load(&run->failed)) {
    atomic_store(&run->failed, k);
    run->status = status;
    strncpy(run->sentence, qn_last_error(), sizeof run->sentence - 1);
  }
  pthread_mutex_unlock(&run->lock);
}

static qn_status run_tasks(task_run *run)
{
  const qn_launch *l = run->launch;
  qn_launch_note(run->function->name, l->stream);
  pthread_mutex_init(&run->lock, NULL);
  atomic_init(&run->failed, SIZE_MAX);
  qn_pool_run(l->pool, (size_t)((l->blocks + run->blocks - 1) / run->blocks), run_task, run);
  pthread_mutex_destroy(&run->lock);
  return run->status == QN_OK ? QN_OK : qn_fail(run->status, "%s", run->sentence);
}

static qn_status launch_fibers(const qn_device_function *function, const qn_launch *l)
{
  qn_require(l->shared_bytes <= QN_HOST_SHARED_BYTES,
             "kernel %s: %u bytes of shared memory, at most %d are possible here", function->name, l->shared_bytes,
             QN_HOST_SHARED_BYTES);
  return run_tasks(&(task_run){.function = function,
                               .launch = l,
                               .task = qn_group_run,
                               .blocks = l->threads < TASK_THREADS ? TASK_THREADS / l->threads : 1});
}

/* As few as keep all threads of a large machine busy, and no fewer: a task's first bytes wait for memory, and what is
 * fetched ahead at its end is another thread's. Of blocks with fewer threads than a simdgroup each thread does much: a
 * few such blocks are dealt one by one. */
static uint64_t task_blocks(const qn_launch *l)
{
  const uint64_t least = l->threads >= SIMDGROUP ? GROUP_BLOCKS : 1, blocks = l->blocks / TASKS;
  return blocks < least ? least : blocks;
}

static qn_status launch(qn_device device, const qn_device_function *function, const qn_launch *l)
{
  (void)device;
  qn_require(l->blocks <= most_blocks, "kernel %s: %llu blocks, at most %llu fit a grid", function->name,
             (unsigned long long)l->blocks, (unsigned long long)most_blocks);
  qn_require(l->threads >= 1 && l->threads <= MOST_THREADS, "kernel %s: %u threads a block, from 1 to %d are possible",
             function->name, l->threads, MOST_THREADS);
  qn_require(l->argument_bytes == function->argument_bytes,
             "kernel %s: its argument has %zu bytes, the launch gives %zu", function->name, function->argument_bytes,
             l->argument_bytes);
  if (function->thread) return launch_fibers(function, l);
  return run_tasks(&(task_run){.function = function, .launch = l, .task = run_loop, .blocks = task_blocks(l)});
}

static qn_status function_facts(qn_device device, const qn_device_function *function, qn_function_facts *facts)
{
  (void)device;
  *facts = (qn_function_facts){.most_threads = MOST_THREADS,
                               .fibers = function->thread != NULL,
                               .argument_bytes = function->argument_bytes,
                               .shared_bytes = function->shared_bytes,
                               .best_threads = BEST_THREADS,
                               .shared_limit_bytes = QN_HOST_SHARED_BYTES};
  return QN_OK;
}

static qn_status groups_at_once(qn_device device, const qn_device_function *function, uint32_t threads,
                                uint32_t shared_bytes, int *groups)
{
  (void)device, (void)function, (void)threads, (void)shared_bytes;
  *groups = 0;
  return QN_OK;
}

static qn_status stream_await(qn_device device, void *stream, int64_t limit_ns, bool *done)
{
  (void)device, (void)stream, (void)limit_ns;
  *done = true; /* when a launch returns its work is done */
  return QN_OK;
}

static qn_status argument_limit(qn_device device, size_t *bytes)
{
  (void)device;
  *bytes = ARGUMENT_LIMIT;
  return QN_OK;
}

const qn_backend qn_backend_emulator = {
    .kind = QN_EMULATOR,
    .count = count,
    .query = query,
    QN_HOST_MEMORY,
    .target = qn_emulator_target,
    .compile = qn_emulator_compile,
    .module_load = qn_emulator_module_load,
    .module_function = qn_emulator_module_function,
    .launch = launch,
    .function_facts = function_facts,
    .groups_at_once = groups_at_once,
    .stream_await = stream_await,
    .argument_limit = argument_limit,
};
