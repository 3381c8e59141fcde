/* SPDX-License-Identifier: Apache-2.0 */
/* softmax_cost.c - a softmax whose rows are reduced by simd_max and simd_sum, on the processor, against the loops that
 * one would write in C: the same results, and how many times the time, printed and held to nothing. */
#include "kernel_use.h"
#include <math.h>
#include <time.h>

enum { ELEMENTS = 65536, REPEATS = 12 };

static const char body[] =
    "const uint row = threadgroup_position_in_grid.x, lane = thread_index_in_simdgroup;\n"
    "const int n = x_shape[1];\n"
    "float top = -INFINITY, sum = 0;\n"
    "for (int k = lane; k < n; k += 32) top = metal::max(top, x[row * n + k]);\n"
    "top = simd_max(top);\n"
    "for (int k = lane; k < n; k += 32) sum += metal::exp(x[row * n + k] - top);\n"
    "sum = simd_sum(sum);\n"
    "for (int k = lane; k < n; k += 32) y[row * n + k] = metal::exp(x[row * n + k] - top) / sum;\n";

static float x[ELEMENTS], y[ELEMENTS], z[ELEMENTS];

static void plain(int n)
{
  for (int first = 0; first < ELEMENTS; first += n) {
    float top = x[first], sum = 0;
    for (int k = 1; k < n; k++) top = x[first + k] > top ? x[first + k] : top;
    for (int k = 0; k < n; k++) sum += expf(x[first + k] - top);
    for (int k = 0; k < n; k++) z[first + k] = expf(x[first + k] - top) / sum;
  }
}

static double now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void rows_of(qn_kernel *kernel, int n)
{
  const uint64_t rows = ELEMENTS / (uint64_t)n;
  qn_tensor in = ARRAY(x, QN_F32, (int64_t)rows, n), out = ARRAY(y, QN_F32, (int64_t)rows, n);
  const qn_kernel_call call = CALL(.inputs = &in, .outputs = &out, .grid = {32 * rows, 1, 1}, .group = {32, 1, 1});
  double fibers = 1e30, loops = 1e30, worst = 0;
  bool done = true;
  for (int k = 0; k < REPEATS; k++) {
    const double from = now_ns();
    done = done && qn_kernel_launch(kernel, &serial, &call) == QN_OK;
    const double between = now_ns();
    plain(n);
    const double to = now_ns();
    if (between - from < fibers) fibers = between - from;
    if (to - between < loops) loops = to - between;
  }
  for (int k = 0; k < ELEMENTS; k++) {
    const double off = fabs((double)y[k] / (double)z[k] - 1);
    if (!(off <= worst)) worst = off; /* NaN too; fmax, which drops it, is more than gcc 12 for aarch64 survives */
  }
  check(done && worst < 64 * 0x1p-23, "rows of %d: within %.2g of plain C", n, worst); /* the order of sums differs */
  printf("# rows of %d: %.1f us by fibers, %.1f us in plain C, %.2f times\n", n, fibers / 1e3, loops / 1e3,
         fibers / loops);
}

int main(void)
{
  for (int k = 0; k < ELEMENTS; k++) x[k] = (float)(sin(k) * 4);
  qn_kernel *kernel = use_make(&(use){.name = "softmax", .inputs = "x", .outputs = "y", .body = body});
  for (int n = 32; n <= 4096; n *= 2) rows_of(kernel, n);
  qn_kernel_destroy(&kernel);
  return test_end();
}
