/* SPDX-License-Identifier: Apache-2.0 */
/* ceiling.c - see ceiling.h. On the processor the streams of ceiling_cpu.c, shared out over the pool; on other devices
 * ceiling.cu, compiled for the mix. Timing them is the sampler's business. */
#include "workbench/ceiling.h"
#include "core/core.h"
#include "core/source.h"
#include "jit/jit.h"
#include "workbench/ceiling_cpu.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

extern const qn_source qn_workbench_sources[]; /* ceiling.cu, as the build embedded it */

typedef struct shape {
  const char *name;
  int reads, updates, writes;
} shape;

static const shape shapes[] = {
#define X(id, name, reads, updates, writes) {name, reads, updates, writes},
    QN_MIX_MAP(X)
#undef X
};

struct qn_ceiling {
  qn_exec exec;
  const qn_backend *backend;
  char *block;
  size_t bytes;
  double multiprocessors;
  const qn_device_function *stream[QN_MIX_COUNT][2], *rate[QN_RATE_COUNT]; /* found at their first use */
};

/* Streams do not begin at equal places in their pages: a load that follows a store to the same place of another page
 * is held up on some processors. */
/* Streams do not begin at equal addresses modulo a page, and a warp's 512 bytes are whole lines of a GPU's cache. */
enum { STAGGER = 5 * 512, PAGE = 4096, CPU_TASK_BYTES = 256 << 10, DEVICE_THREADS = 256 };

const char *qn_mix_name(qn_mix mix) { return shapes[mix].name; }

qn_mix qn_mix_of(const qn_op_types *row)
{
  double bytes[4] = {0};
  for (int k = 0; k < QN_MAX_TENSORS; k++) {
    double b = (double)qn_dtype_bytes(row->tensor[k].dtype);
    bytes[row->tensor[k].access] += b;
  }
  double all = bytes[QN_READ] + bytes[QN_WRITE] + bytes[QN_READ_WRITE], best = HUGE_VAL;
  qn_mix nearest = QN_MIX_COPY;
  for (qn_mix mix = 0; mix < QN_MIX_COUNT; mix++) {
    const shape *s = &shapes[mix];
    double n = s->reads + s->updates + s->writes;
    double off = fabs(s->reads / n - bytes[QN_READ] / all) + fabs(s->updates / n - bytes[QN_READ_WRITE] / all) +
                 fabs(s->writes / n - bytes[QN_WRITE] / all);
    if (off >= best) continue;
    best = off;
    nearest = mix;
  }
  return nearest;
}

static void touch(void *user, size_t k)
{
  qn_ceiling *c = user;
  size_t from = k << 20, n = c->bytes - from < 1 << 20 ? c->bytes - from : 1 << 20;
  memset(c->block + from, 0x3c, n);
}

qn_status qn_ceiling_create(qn_ceiling **ceiling, const qn_exec *exec, size_t bytes)
{
  qn_device_info info = {.size = sizeof info};
  qn_ceiling *c;
  *ceiling = NULL;
  qn_try(qn_device_query(exec->device, &info));
  qn_try(qn_try_allocate(&c, sizeof *c, "the ceilings"));
  *c = (qn_ceiling){.exec = *exec, .bytes = bytes + QN_MAX_STREAMS * (PAGE + STAGGER)};
  c->multiprocessors = info.multiprocessors > 0 ? info.multiprocessors : 1;
  void *block = NULL;
  qn_status status = qn_backend_of(exec->device, &c->backend);
  if (status == QN_OK) status = qn_memory_allocate(exec->device, c->bytes, &block);
  c->block = block;
  if (status == QN_OK && exec->device.kind == QN_CPU)
    qn_pool_run(exec->pool, (c->bytes + (1 << 20) - 1) >> 20, touch, c);
  else if (status == QN_OK)
    status = qn_memory_fill(exec->device, exec->stream, block, 0x3c, c->bytes);
  if (status != QN_OK) qn_ceiling_destroy(&c);
  *ceiling = c;
  return status;
}

void qn_ceiling_destroy(qn_ceiling **ceiling)
{
  if (!ceiling || !*ceiling) return;
  (void)qn_memory_release((*ceiling)->exec.device, (*ceiling)->block); /* nothing is left to be done about a failure */
  qn_release(*ceiling);
  *ceiling = NULL;
}

static bool on_cpu(const qn_ceiling *c) { return c->exec.device.kind == QN_CPU; }

static bool writes(qn_mix mix) { return shapes[mix].updates + shapes[mix].writes > 0; }

int qn_ceiling_ways(const qn_ceiling *c, qn_mix mix)
{
  if (on_cpu(c))
    return !qn_cpu_has_non_temporal() || !writes(mix) ? 1 : shapes[mix].updates && shapes[mix].writes ? 3 : 2;
  return mix == QN_MIX_COPY ? 3 : 2;
}

const char *qn_ceiling_way_name(const qn_ceiling *c, qn_mix mix, int way)
{
  static const char *const stores[QN_STORES_COUNT] = {"plain stores", "non-temporal stores", "both kinds of stores"};
  static const char *const device[] = {"16 bytes a thread", "8 bytes a thread", "the driver's copy"};
  if (!on_cpu(c)) return device[way];
  return writes(mix) ? stores[way] : "loads";
}

/* ---- streams ---- */
static size_t place_streams(const qn_ceiling *c, const shape *s, size_t bytes, char *stream[QN_MAX_STREAMS])
{
  int n = s->reads + s->updates + s->writes;
  size_t most = c->bytes - QN_MAX_STREAMS * (PAGE + STAGGER);
  size_t each = (bytes < most ? bytes : most) / (size_t)n / QN_LINE * QN_LINE;
  size_t apart = (each + PAGE - 1) / PAGE * PAGE + STAGGER;
  for (int k = 0; k < n; k++) stream[k] = c->block + (size_t)k * apart;
  return each;
}

typedef struct share {
  qn_lines lines;
  size_t lines_each, lines_task;
  qn_mix mix;
  qn_stores stores;
  int passes;
} share;

static void stream_task(void *user, size_t k)
{
  const share *s = user;
  qn_lines lines = s->lines;
  lines.from = k * s->lines_task;
  lines.to = lines.from + s->lines_task < s->lines_each ? lines.from + s->lines_task : s->lines_each;
  for (int pass = 0; pass < s->passes; pass++) qn_cpu_stream(&lines, s->mix, s->stores);
}

/* Once over memory: small tasks, so that a disturbed thread does less. Many passes: a fixed part a thread, which stays
 * in its own cache as it would for a kernel that runs again and again. */
static void stream_on_cpu(const qn_ceiling *c, qn_mix mix, int way, size_t each, int passes, char *const *stream)
{
  share s = {.lines_each = each / QN_LINE, .mix = mix, .stores = (qn_stores)way, .passes = passes};
  memcpy(s.lines.stream, stream, sizeof s.lines.stream);
  size_t threads = (size_t)qn_pool_threads(c->exec.pool);
  size_t tasks = passes > 1 ? threads : each / CPU_TASK_BYTES; /* a small set is not worth a second thread's waking */
  s.lines_task = tasks > 1 ? (s.lines_each + tasks - 1) / tasks : s.lines_each;
  if (s.lines_task == 0) return;
  qn_pool_run(c->exec.pool, (s.lines_each + s.lines_task - 1) / s.lines_task, stream_task, &s);
}

static qn_status launch(const qn_ceiling *c, const qn_device_function *function, uint64_t blocks, const void *argument,
                        size_t bytes)
{
  const qn_launch l = {.blocks = blocks,
                       .threads = DEVICE_THREADS,
                       .stream = c->exec.stream,
                       .pool = c->exec.pool,
                       .argument = argument,
                       .argument_bytes = bytes};
  return c->backend->launch(c->exec.device, function, &l);
}

static qn_status find(const qn_ceiling *c, const char *const *defines, const char *kernel,
                      const qn_device_function **function)
{
  const qn_unit unit = {.source = "workbench/ceiling.cu", .defines = defines, .text = qn_workbench_sources[0].text};
  return *function ? QN_OK : qn_jit_function(c->exec.device, &unit, kernel, function);
}

static qn_status find_stream(const qn_ceiling *c, const shape *s, int thread_bytes, const qn_device_function **function)
{
  char reads[16], updates[16], stores[16], in_thread[16];
  snprintf(reads, sizeof reads, "READS=%d", s->reads);
  snprintf(updates, sizeof updates, "UPDATES=%d", s->updates);
  snprintf(stores, sizeof stores, "WRITES=%d", s->writes);
  snprintf(in_thread, sizeof in_thread, "BYTES=%d", thread_bytes);
  return find(c, (const char *const[]){reads, updates, stores, in_thread, NULL}, "ceiling_stream", function);
}

static qn_status stream_on_device(qn_ceiling *c, qn_mix mix, int way, size_t each, char *const *stream)
{
  struct {
    char *stream[QN_MAX_STREAMS];
    uint64_t pieces;
  } argument;
  if (way == 2) return qn_memory_copy(c->exec.device, c->exec.stream, stream[1], stream[0], each);
  memcpy(argument.stream, stream, sizeof argument.stream);
  const int thread_bytes = way ? 8 : 16;
  argument.pieces = each / (size_t)thread_bytes;
  qn_try(find_stream(c, &shapes[mix], thread_bytes, &c->stream[mix][way]));
  return launch(c, c->stream[mix][way], (argument.pieces + DEVICE_THREADS - 1) / DEVICE_THREADS, &argument,
                sizeof argument);
}

qn_status qn_ceiling_stream(qn_ceiling *c, qn_mix mix, int way, size_t bytes, int passes, double *moved)
{
  const shape *s = &shapes[mix];
  char *stream[QN_MAX_STREAMS] = {NULL};
  size_t each = place_streams(c, s, bytes, stream);
  qn_require(each > 0 && passes > 0, "a ceiling over %zu bytes, %d times: at least a line of %d for each stream, once",
             bytes, passes, QN_LINE);
  *moved = (double)each * (s->reads + 2 * s->updates + s->writes) * passes;
  if (on_cpu(c)) {
    stream_on_cpu(c, mix, way, each, passes, stream);
    return QN_OK;
  }
  for (int pass = 0; pass < passes; pass++) qn_try(stream_on_device(c, mix, way, each, stream));
  return QN_OK;
}

/* ---- arithmetic ---- */
const char *qn_rate_name(qn_rate rate)
{
  static const char *const names[] = {"fp32 multiply-add", "TF32 mma.sync", "bf16 mma.sync"};
  return names[rate];
}

enum { CPU_ROUNDS = 2000000, DEVICE_ROUNDS = 4096, BLOCKS_A_PROCESSOR = 8, CHAINS = 8 /* of ceiling.cu */ };

static void fma_task(void *user, size_t k) { ((double *)user)[k] = qn_cpu_fma(CPU_ROUNDS); }

qn_status qn_ceiling_rate(qn_ceiling *c, qn_rate rate, double *operations)
{
  enum { MOST = 1024 };
  if (on_cpu(c)) {
    double done[MOST];
    if (rate != QN_RATE_FMA_F32)
      return qn_fail(QN_UNSUPPORTED, "%s: the processor's own is not measured", qn_rate_name(rate));
    int threads = qn_pool_threads(c->exec.pool);
    qn_pool_run(c->exec.pool, (size_t)threads, fma_task, done);
    *operations = done[0] * threads;
    return QN_OK;
  }
  if (c->exec.device.kind == QN_EMULATOR)
    return qn_fail(QN_UNSUPPORTED, "%s: the emulator runs a warp as a loop, its rate says nothing", qn_rate_name(rate));
  static const char *const define[] = {"RATE_FMA_F32", "RATE_MMA_TF32", "RATE_MMA_BF16"};
  const char *const defines[] = {"RATE", define[rate], NULL};
  struct {
    void *out;
    uint64_t rounds;
  } argument = {c->block, DEVICE_ROUNDS};
  double blocks = c->multiprocessors * BLOCKS_A_PROCESSOR, threads = blocks * DEVICE_THREADS;
  static const double in_thread[] = {2, 2.0 * 16 * 8 * 8 / 32, 2.0 * 16 * 8 * 16 / 32}; /* a chain's, in one round */
  *operations = threads * CHAINS * DEVICE_ROUNDS * in_thread[rate];
  qn_try(find(c, defines, "ceiling_rate", &c->rate[rate]));
  return launch(c, c->rate[rate], (uint64_t)blocks, &argument, sizeof argument);
}

qn_status qn_ceiling_run(void *call)
{
  qn_ceiling_call *c = call;
  return qn_ceiling_stream(c->ceiling, c->mix, c->way, c->bytes, c->passes ? c->passes : 1, &c->moved);
}
