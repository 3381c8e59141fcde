/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_bench_tell.c - a kernel's bench as people read it, and as a line of the records that ops' benches have. */
#include "core/core.h"
#include "workbench/kernel_bench.h"
#include "workbench/record.h"
#include "workbench/table.h"
#include "workbench/term.h"
#include <string.h>

static void label(FILE *stream, const char *text)
{
  fprintf(stream, "  %s%-10s%s ", qn_term_colour(stream, QN_DIM), text, qn_term_colour(stream, QN_PLAIN));
}

static void print_series(FILE *stream, const char *name, const qn_series *s)
{
  char interval[100];
  snprintf(interval, sizeof interval, "[%s, %s]", qn_duration(s->time.low).text, qn_duration(s->time.high).text);
  label(stream, name);
  fprintf(stream, "%10s %-22s %8.1f GB/s", qn_duration(s->time.median).text,
          s->time.n < 6 ? "(too few for an interval)" : interval, s->gbps);
  if (*s->way) fprintf(stream, "   %s", s->way);
  fputc('\n', stream);
}

static void print_head(FILE *stream, const qn_kernel_bench *k)
{
  const qn_bench *b = &k->b;
  fprintf(stream, "%s%s%s over %s: %s, types %s, %.4g MB\n", qn_term_colour(stream, QN_BOLD), k->folder->name,
          qn_term_colour(stream, QN_PLAIN), k->workload, k->settings, b->types, k->bytes * 1e-6);
  label(stream, "on");
  fprintf(stream, "%s %s, %s", qn_device_kind_name(b->ask.device.kind), b->variant, b->device.name);
  if (b->ask.device.kind != QN_CUDA) {
    const int threads = qn_pool_threads(b->ask.pool);
    fprintf(stream, ", %d thread%s, %s", threads, threads == 1 ? "" : "s", k->info.fibers ? "fibers" : "a loop");
  } else {
    fprintf(stream, ", %d registers, %d bytes shared, %d spilled", k->info.registers, k->info.shared_bytes,
            k->info.local_bytes);
  }
  fprintf(stream, ", threadgroup %u x %u x %u\n", k->info.group[0], k->info.group[1], k->info.group[2]);
}

static void print_check(FILE *stream, const qn_kernel_bench *k)
{
  const qn_bench *b = &k->b;
  label(stream, "check");
  fprintf(stream, "%s%s%s", qn_term_colour(stream, b->check.right ? QN_GREEN : QN_RED), b->check.right ? "ok" : "WRONG",
          qn_term_colour(stream, QN_PLAIN));
  if (b->check.right)
    fprintf(stream, ", %s elements: %s\n", qn_grouped(b->check.elements).text, k->proof);
  else
    fprintf(stream, ", so it gets no time: %s\n", b->check.wrong);
  if (*b->unfused_check.wrong) {
    label(stream, "");
    fprintf(stream, "%s is wrong and gets no time: %s\n", k->against, b->unfused_check.wrong);
  }
}

static void print_waits(FILE *stream, const qn_bench *b)
{
  if (b->has_host) {
    label(stream, "host");
    fprintf(stream, "%s for a warm launch of the smallest size\n", qn_duration(b->host_same_ns.median).text);
  }
  if (!b->has_first_use) return;
  label(stream, "compile");
  fprintf(stream, "%s cold, %s from disk (the compiler's own start with an empty kernel: %s)\n",
          qn_duration(b->first_use.cold_ns).text, qn_duration(b->first_use.disk_ns).text,
          qn_duration(b->first_use.empty_ns).text);
}

static void print_verdict(FILE *stream, const qn_kernel_bench *k)
{
  const qn_bench *b = &k->b;
  const qn_series *best = &b->ceiling[b->best];
  if (*b->suspicion) {
    label(stream, "");
    fprintf(stream, "%s%s%s; is the member \"bytes\" right?\n", qn_term_colour(stream, QN_RED), b->suspicion,
            qn_term_colour(stream, QN_PLAIN));
    if (b->impossible) return;
  }
  label(stream, "of copy");
  fprintf(stream, "%9.1f%% %-22s of %s, %.1f GB/s in this run\n", 100 * b->share.ratio,
          qn_interval(100 * b->share.low, 100 * b->share.high, 1).text, best->way, best->gbps);
  if (k->operations > 0) {
    label(stream, "rate");
    fprintf(stream, "%.4g GFLOP/s\n", k->operations / b->fused.time.median);
  }
  if (!b->has_unfused) return;
  label(stream, "speed-up");
  fprintf(stream, "%9.2fx %-22s over %s: %s\n", b->speedup.ratio, qn_interval(b->speedup.low, b->speedup.high, 2).text,
          k->against, qn_verdict_word(b->verdict));
}

void qn_kernel_bench_print(FILE *stream, const qn_kernel_bench *k)
{
  const qn_bench *b = &k->b;
  print_head(stream, k);
  print_check(stream, k);
  if (!b->timed) return;
  label(stream, "timer");
  fprintf(stream, "%zu rounds side by side, cache %s, intervals hold in 95 of 100 runs, a speed-up's in 999 of 1000\n",
          b->fused.n, b->cache);
  print_series(stream, "kernel", &b->fused);
  if (b->has_unfused) print_series(stream, "against", &b->unfused);
  for (size_t i = 0; i < b->n_ceilings; i++) print_series(stream, i ? "" : "copy", &b->ceiling[i]);
  print_waits(stream, b);
  print_verdict(stream, k);
}

qn_status qn_kernel_bench_append(const char *path, const qn_kernel_bench *k)
{
  const double n = (double)k->elements;
  const qn_record_subject subject = {.op = k->folder->name,
                                     .workload = k->workload,
                                     .settings = k->settings,
                                     .against = k->against,
                                     .proof = k->proof,
                                     .tensors = (int64_t)(k->folder->n_inputs + k->folder->n_outputs),
                                     .elements = (int64_t)k->elements,
                                     .bytes_per_element = k->bytes / n,
                                     .set_bytes_per_element = k->set_bytes / n,
                                     .operations_per_element = k->operations / n,
                                     .group = {k->info.group[0], k->info.group[1], k->info.group[2]},
                                     .registers = k->info.registers,
                                     .shared_bytes = k->info.shared_bytes,
                                     .local_bytes = k->info.local_bytes};
  return qn_record_append_kernel(path, &k->b, &subject);
}
