/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_processor.c - products of bf16 on the processor by its own instructions for them, where panels of all rows and
 * columns are more than is packed at once: the bits are those of two halves of the columns, each packed at once, on one
 * thread or four; and where they may not compute it, those of the tier avx512. What is computed is `quern check
 * gemm_norm`'s; a reference would take minutes here. */
#include "core/core.h"
#include "quern/quern.h"
#include "test.h"
#include <string.h>

enum { M = 72, N = 1024, K = 16384, HALF = N / 2 };

typedef struct data {
  uint16_t *x, *w, *bits[3];
} data;

/* Numbers around 1; `tiny`: one in the last row of w is subnormal. */
static void fill(data *d, bool tiny)
{
  for (int64_t k = 0; k < (int64_t)M * K; k++) d->x[k] = (uint16_t)(0x3f00 + k * 7 % 251 + (k % 3 ? 0x8000 : 0));
  for (int64_t k = 0; k < (int64_t)N * K; k++) d->w[k] = (uint16_t)(0x3e80 + k * 5 % 253);
  if (tiny) d->w[(int64_t)N * K - 3] = 1;
}

/* Columns from `first` on. */
static qn_status multiply(const data *d, int64_t first, int64_t n, uint16_t *y, int n_threads)
{
  const qn_device cpu = {QN_CPU, 0};
  const int64_t of_y[] = {M, n}, of_x[] = {M, K}, of_w[] = {n, K};
  const qn_tensor tensors[] = {{y, QN_BF16, 2, of_y, NULL, cpu},
                               {d->x, QN_BF16, 2, of_x, NULL, cpu},
                               {d->w + first * K, QN_BF16, 2, of_w, NULL, cpu}};
  qn_gemm_norm_params params = QN_GEMM_NORM_DEFAULTS;
  qn_exec exec = {.size = sizeof exec, .device = cpu};
  params.precision = QN_PRECISION_BF16, params.norm = QN_NORM_NONE, params.clamp = 0;
  params.activation = QN_ACTIVATION_NONE, params.groups = 1;
  qn_try(qn_pool_create(&exec.pool, n_threads));
  exec.workspace_bytes =
      qn_gemm_norm_workspace_bytes(&exec, &params, &tensors[0], &tensors[1], &tensors[2], NULL, NULL, NULL, NULL);
  void *const room = exec.workspace_bytes ? malloc(exec.workspace_bytes) : NULL;
  exec.workspace = room;
  const qn_status status =
      qn_gemm_norm_step(&exec, &params, &tensors[0], &tensors[1], &tensors[2], NULL, NULL, NULL, NULL);
  free(room);
  qn_pool_destroy(&exec.pool);
  return status;
}

/* Whether y of all columns has the bits of both halves. */
static bool is_of_halves(const uint16_t *all, const uint16_t *left, const uint16_t *right)
{
  bool same = true;
  for (int64_t r = 0; r < M; r++)
    same = same && !memcmp(all + r * N, left + r * HALF, HALF * sizeof *all) &&
           !memcmp(all + r * N + HALF, right + r * HALF, HALF * sizeof *all);
  return same;
}

static void by_halves(data *d, const char *tier, bool tiny)
{
  uint16_t *const all = d->bits[0], *const left = d->bits[1], *const right = d->bits[2];
  check(!qn_option_set("cpu", tier), "tier %s", tier);
  fill(d, tiny);
  if (tiny)
    check(!qn_option_set("cpu", "avx512") && !multiply(d, 0, N, left, 1), "by avx512: %s", qn_last_error());
  else
    check(!multiply(d, 0, HALF, left, 1) && !multiply(d, HALF, HALF, right, 1), "halves: %s", qn_last_error());
  qn_option_set("cpu", tier);
  for (int n = 1; n <= 4; n += 3) {
    memset(all, 0xff, (size_t)M * N * sizeof *all);
    check(!multiply(d, 0, N, all, n), "%d threads: %s", n, qn_last_error());
    check(tiny ? !memcmp(all, left, (size_t)M * N * sizeof *all) : is_of_halves(all, left, right),
          "%s, %d threads%s: all columns have the bits that parts have", tier, n, tiny ? ", tiny" : "");
  }
}

int main(void)
{
  static const char *const tiers[] = {"amx", "avx512bf16"};
  data d = {.x = malloc((size_t)M * K * 2), .w = malloc((size_t)N * K * 2)};
  for (int k = 0; k < 3; k++) d.bits[k] = malloc((size_t)M * N * 2);
  for (int k = 0; k < 2; k++) {
    if (qn_option_set("cpu", tiers[k])) {
      skip("%s: %s", tiers[k], qn_last_error());
      continue;
    }
    fill(&d, false);
    if (multiply(&d, 0, 16, d.bits[0], 1)) {
      skip("%s: %s", tiers[k], qn_last_error());
      continue;
    }
    by_halves(&d, tiers[k], false);
    by_halves(&d, tiers[k], true);
  }
  for (int k = 0; k < 3; k++) free(d.bits[k]);
  free(d.x);
  free(d.w);
  return test_end();
}
