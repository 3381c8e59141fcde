/* SPDX-License-Identifier: Apache-2.0 */
/* sanitizer_cost.c - what sanitizing costs: kernels run plain, with a time limit and with checks, as CSV. No test; on
 * demand: build/tests/sanitizer_cost > results/watch-cost.csv. One thread and its processor time; the least of
 * several runs, after one that compiles. */
#include "kernel_use.h"
#include <time.h>

enum { N = 1 << 16, GROUP = 256, RUNS = 5 };

static double ms_of(qn_kernel *kernel, const qn_kernel_call *call)
{
  double best = 1e30;
  for (int run = 0; run <= RUNS; run++) {
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    const qn_status status = qn_kernel_launch(kernel, &serial, call);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    if (status != QN_OK) {
      fprintf(stderr, "sanitizer_cost: %s\n", qn_last_error());
      exit(EXIT_FAILURE);
    }
    const double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6;
    if (run && ms < best) best = ms;
  }
  return best;
}

static void measure(const char *body, const char *name, float *x, float *y)
{
  qn_kernel *kernel = use_make(&(use){.name = name, .inputs = "inp", .body = body});
  qn_kernel_call call = CALL(.inputs = (qn_tensor[]){ARRAY(x, QN_F32, N)},
                             .outputs = (qn_tensor[]){ARRAY(y, QN_F32, N)}, .grid = {N, 1, 1}, .group = {GROUP, 1, 1});
  const double plain = ms_of(kernel, &call);
  call.limit_ns = INT64_C(60000000000);
  const double limited = ms_of(kernel, &call);
  call.check = 1;
  const double checked = ms_of(kernel, &call);
  printf("%s,%d,%.3f,%.3f,%.3f,%.1f,%.1f\n", name, N, plain, limited, checked, limited / plain, checked / plain);
  qn_kernel_destroy(&kernel);
}

int main(void)
{
  float *x = calloc(N, sizeof *x), *y = calloc(N, sizeof *y);
  if (!x || !y) return EXIT_FAILURE;
  printf("kernel,elements,plain_ms,limited_ms,checked_ms,limited_times,checked_times\n");
  measure("uint i = thread_position_in_grid.x;\nout[i] = metal::exp(inp[i]);", "exp", x, y);
  measure("uint i = thread_position_in_grid.x;\nout[i] = inp[i] / (1 + simd_sum(inp[i]));", "simd_sum", x, y);
  measure("uint i = thread_position_in_grid.x, t = thread_index_in_threadgroup;\nthreadgroup float s[256];\ns[t] = "
          "inp[i];\n"
          "for (uint d = 128; d > 0; d /= 2) {\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
          "  if (t < d) s[t] += s[t + d];\n}\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nout[i] = s[0];",
          "tree_sum", x, y);
  free(x);
  free(y);
  return EXIT_SUCCESS;
}
