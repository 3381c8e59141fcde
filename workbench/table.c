/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - see table.h. */
#include "workbench/table.h"
#include "workbench/op_check.h"
#include "workbench/subject_stage.h"
#include "workbench/term.h"
#include <inttypes.h>
#include <math.h>

qn_amount qn_grouped(uint64_t n)
{
  char digits[24];
  qn_amount out;
  int length = snprintf(digits, sizeof digits, "%" PRIu64, n), used = 0;
  for (int k = 0; k < length; k++) {
    if (k && (length - k) % 3 == 0) out.text[used++] = ',';
    out.text[used++] = digits[k];
  }
  out.text[used] = 0;
  return out;
}

static const struct unit {
  double ns;
  const char *name;
} units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};

static const struct unit *unit_of(double ns)
{
  size_t k = 0;
  while (k < 3 && ns < units[k].ns) k++;
  return &units[k];
}

static int digits_behind(double x) { return x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : 3; }

qn_amount qn_duration(double ns)
{
  qn_amount out;
  const struct unit *unit = unit_of(ns);
  double x = ns / unit->ns;
  snprintf(out.text, sizeof out.text, "%.*f %s", digits_behind(x), x, unit->name);
  return out;
}

qn_amount qn_interval(double low, double high, int digits)
{
  qn_amount out;
  if (isnan(low) || isnan(high))
    snprintf(out.text, sizeof out.text, "(too few samples)");
  else
    snprintf(out.text, sizeof out.text, "[%.*f, %.*f]", digits, low, digits, high);
  return out;
}

/* The interval in the unit of the median, which stands before it. */
static qn_amount time_interval(const qn_summary *s)
{
  const struct unit *unit = unit_of(s->median);
  return qn_interval(s->low / unit->ns, s->high / unit->ns, digits_behind(s->median / unit->ns));
}

static void label(FILE *stream, const char *text)
{
  fprintf(stream, "  %s%-10s%s ", qn_term_colour(stream, QN_DIM), text, qn_term_colour(stream, QN_PLAIN));
}

static void print_series(FILE *stream, const char *name, const qn_series *s)
{
  label(stream, name);
  fprintf(stream, "%10s %-20s %8.1f GB/s", qn_duration(s->time.median).text, time_interval(&s->time).text, s->gbps);
  if (*s->way) fprintf(stream, "   %s, %s", s->name, s->way);
  fputc('\n', stream);
}

static void print_launch(FILE *stream, const qn_kernel_info *info, bool gpu)
{
  if (gpu)
    fprintf(stream, ", %d registers, %d bytes shared, %d spilled", info->registers, info->shared_bytes,
            info->local_bytes);
  else
    fprintf(stream, ", %s", info->fibers ? "fibers" : "a loop");
  fprintf(stream, ", threadgroup %u x %u x %u", info->group[0], info->group[1], info->group[2]);
}

static void print_head(FILE *stream, const qn_bench *b)
{
  const bool gpu = b->ask.device.kind == QN_CUDA;
  fprintf(stream, "%s%s%s over %s: %s, types %s\n", qn_term_colour(stream, QN_BOLD), b->of.name,
          qn_term_colour(stream, QN_PLAIN), b->of.workload, b->of.amount, b->types);
  label(stream, "on");
  fprintf(stream, "%s %s, %s", qn_device_kind_name(b->ask.device.kind), b->variant, b->device.name);
  if (!gpu)
    fprintf(stream, ", %d thread%s", qn_pool_threads(b->ask.pool), qn_pool_threads(b->ask.pool) == 1 ? "" : "s");
  if (b->of.is_kernel) print_launch(stream, &b->of.info, gpu);
  if (*b->clocks) fprintf(stream, " (%s)", b->clocks);
  fputc('\n', stream);
}

static void print_check(FILE *stream, const qn_bench *b)
{
  label(stream, "check");
  if (b->check.right)
    fprintf(stream, "%sok%s, %s written elements %s\n", qn_term_colour(stream, QN_GREEN),
            qn_term_colour(stream, QN_PLAIN), qn_grouped(b->check.elements).text, b->of.proof);
  else
    fprintf(stream, "%sWRONG%s, so it gets no time: %s\n", qn_term_colour(stream, QN_RED),
            qn_term_colour(stream, QN_PLAIN), b->check.wrong);
  if (*b->unfused_check.wrong) {
    label(stream, "");
    fprintf(stream, "%s does not give these results and gets no time: %s\n", b->of.against, b->unfused_check.wrong);
  }
}

static void print_share(FILE *stream, const qn_bench *b)
{
  const qn_series *best = &b->ceiling[b->best];
  label(stream, "of ceiling");
  fprintf(stream, "%9.1f%% %-20s of %s with %s, %.1f GB/s in this run\n", 100 * b->share.ratio,
          qn_interval(100 * b->share.low, 100 * b->share.high, 1).text, best->name, best->way, best->gbps);
  if (!(b->of.operations > 0) || !(b->of.is_kernel || b->ask.work->text)) return;
  label(stream, "computes");
  fprintf(stream, "%10.3g TFLOP/s\n", b->of.operations / b->fused.time.median * 1e-3);
}

static void print_speedup(FILE *stream, const qn_bench *b)
{
  static const qn_colour colours[] = {
      [QN_UNCLEAR] = QN_YELLOW, [QN_FASTER] = QN_GREEN, [QN_SAME] = QN_PLAIN, [QN_SLOWER] = QN_RED};
  label(stream, "speed-up");
  fprintf(stream, "%9.2fx %-20s over %s: %s%s%s\n", b->speedup.ratio,
          qn_interval(b->speedup.low, b->speedup.high, 2).text, b->of.against,
          colours[b->verdict] == QN_PLAIN ? "" : qn_term_colour(stream, colours[b->verdict]),
          qn_verdict_word(b->verdict), qn_term_colour(stream, QN_PLAIN));
}

static void print_step(FILE *stream, const qn_bench *b)
{
  label(stream, "a step");
  if (b->ask.device.kind != QN_CPU)
    fprintf(stream, "%" PRId64 " launch%s, ", b->launches, b->launches == 1 ? "" : "es");
  fprintf(stream, "%" PRIu64 " bytes allocated", b->allocated);
  if (b->has_host && b->of.is_kernel)
    fprintf(stream, "; host %s for a launch of the smallest size", qn_duration(b->host_same_ns.median).text);
  else if (b->has_host)
    fprintf(stream, "; host %s, with moved inputs %s", qn_duration(b->host_same_ns.median).text,
            qn_duration(b->host_moved_ns.median).text);
  fputc('\n', stream);
  if (!b->has_first_use) return;
  label(stream, "first use");
  fprintf(stream, "%s in a new process (an empty kernel: %s), %s where the kernel is on disk\n",
          qn_duration(b->first_use.cold_ns).text, qn_duration(b->first_use.empty_ns).text,
          qn_duration(b->first_use.disk_ns).text);
}

/* What an op's states take, and what a step is lent beside them. */
static void print_memory(FILE *stream, const qn_bench *b)
{
  const double state = qn_element_bytes_of(b->ask.op, b->ask.row).state * (double)b->ask.work->elements;
  label(stream, "memory");
  fprintf(stream, "%.1f MB of state, and a workspace of %.2f MB, %.2f%% of it; %.2f MB move besides elements\n",
          state * 1e-6, (double)b->workspace * 1e-6, 100 * (double)b->workspace / state,
          qn_step_bytes_besides(b->ask.op, b->ask.work->n) * 1e-6);
}

void qn_bench_print(FILE *stream, const qn_bench *b)
{
  print_head(stream, b);
  print_check(stream, b);
  if (!b->timed) return;
  label(stream, "timer");
  fprintf(stream,
          "%s, %zu rounds side by side, cache %s, intervals hold in 95 of 100 runs, a speed-up's in 999 of 1000\n",
          qn_timer_name(b->ask.timer), b->fused.n, b->cache);
  print_series(stream, b->of.is_kernel ? "kernel" : "fused", &b->fused);
  if (b->has_unfused) print_series(stream, b->of.is_kernel ? "against" : "unfused", &b->unfused);
  for (size_t k = 0; k < b->n_ceilings; k++) print_series(stream, k ? "" : "ceilings", &b->ceiling[k]);
  print_step(stream, b);
  if (b->ask.op && b->ask.op->info.element_bytes > 0) print_memory(stream, b);
  if (*b->suspicion) {
    label(stream, "");
    fprintf(stream, "%s%s%s%s\n", qn_term_colour(stream, b->impossible ? QN_RED : QN_YELLOW), b->suspicion,
            qn_term_colour(stream, QN_PLAIN), b->of.is_kernel ? "; is the member \"bytes\" right?" : "");
    if (b->impossible) return;
  }
  print_share(stream, b);
  if (b->has_unfused) print_speedup(stream, b);
}
