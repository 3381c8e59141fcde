/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_processor.c - products of bf16 on the processor by its own instructions for them, whose panels are more than is
 * packed at once. Of many columns the bits are those of two halves, each packed at once, on one thread or four; where
 * the instructions may not compute it, those of the tier avx512. Of a long k the sums are whole numbers. What is
 * computed else is `quern check gemm_norm`'s; a reference would take minutes here. */
#include "core/core.h"
#include "quern/quern.h"
#include "test.h"
#include <math.h>
#include <string.h>

enum { M = 72, N = 1024, K = 16384, HALF = N / 2, MOST = 24000000 /* elements of an operand */ };

typedef struct extents {
  int64_t m, n, k;
  uint64_t groups; /* of a norm; 0: none */
} extents;

typedef struct data {
  uint16_t *x, *w, *bits[3];
} data;

/* So many numbers around 1 in both operands; `tiny`: one in the last of N rows of w is subnormal. */
static void fill(data *d, int64_t n, bool tiny)
{
  for (int64_t k = 0; k < n; k++) d->x[k] = (uint16_t)(0x3f00 + k * 7 % 251 + (k % 3 ? 0x8000 : 0));
  for (int64_t k = 0; k < n; k++) d->w[k] = (uint16_t)(0x3e80 + k * 5 % 253);
  if (tiny) d->w[(int64_t)N * K - 3] = 1;
}

static qn_status multiply_all(const data *d, int64_t first, extents e, uint16_t *y, int n_threads)
{
  const qn_device cpu = {QN_CPU, 0};
  const int64_t of_y[] = {e.m, e.n}, of_x[] = {e.m, e.k}, of_w[] = {e.n, e.k};
  const qn_tensor tensors[] = {{y, QN_BF16, 2, of_y, NULL, cpu},
                               {d->x, QN_BF16, 2, of_x, NULL, cpu},
                               {d->w + first * e.k, QN_BF16, 2, of_w, NULL, cpu}};
  qn_gemm_norm_params params = QN_GEMM_NORM_DEFAULTS;
  qn_exec exec = {.size = sizeof exec, .device = cpu};
  params.precision = QN_PRECISION_BF16, params.norm = e.groups ? QN_NORM_GROUP : QN_NORM_NONE, params.clamp = 0;
  params.activation = QN_ACTIVATION_NONE, params.groups = e.groups ? e.groups : 1;
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

/* Columns from `first` on. */
static qn_status multiply(const data *d, int64_t first, int64_t n, uint16_t *y, int n_threads)
{
  return multiply_all(d, first, (extents){M, n, K, 0}, y, n_threads);
}

/* A k of which not even a tile's panels are packed at once: whole numbers, whose sums are exact in any order. */
static void by_parts(const data *d, const char *tier)
{
  enum { LONG = 150016 };
  uint16_t *const y = d->bits[0];
  float sum[3][2] = {{0}};
  for (int64_t k = 0; k < LONG; k++) {
    for (int r = 0; r < M; r++) d->x[r * LONG + k] = (k + r) % 3 ? 0x3f80 : 0x4000; /* 1 or 2 */
    for (int c = 0; c < M; c++) d->w[c * LONG + k] = (k + c) % 2 ? 0x3f80 : 0x4000;
    for (int of = 0; of < 6; of++)
      sum[of / 2][of % 2] += ((k + of / 2) % 3 ? 1.0f : 2.0f) * ((k + of % 2) % 2 ? 1.0f : 2.0f);
  }
  bool right = !multiply_all(d, 0, (extents){M, M, LONG, 0}, y, 2);
  for (int i = 0; i < M * M; i++) {
    const uint32_t bits = (uint32_t)y[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    const float wanted = sum[i / M % 3][i % M % 2], step = ldexpf(1, ilogbf(wanted) - 7); /* of bf16 */
    right = right && value == rintf(wanted / step) * step;
  }
  check(right, "%s, part of k after part", tier);
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
  fill(d, (int64_t)N * K, tiny);
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

/* Groups of a norm so wide that panels of one are most of what is packed at once, beside more rows than go with it. */
static void by_groups(const data *d, const char *tier)
{
  enum { ROWS = 400, GROUP = 1000, DEEP = 12000 };
  uint16_t *const all = d->bits[0], *const left = d->bits[1], *const right = d->bits[2];
  const extents whole = {ROWS, 2 * GROUP, DEEP, 2}, half = {ROWS, GROUP, DEEP, 1};
  bool same = !multiply_all(d, 0, whole, all, 2) && !multiply_all(d, 0, half, left, 2) &&
              !multiply_all(d, GROUP, half, right, 2);
  for (int64_t r = 0; r < ROWS; r++)
    same = same && !memcmp(all + r * 2 * GROUP, left + r * GROUP, GROUP * sizeof *all) &&
           !memcmp(all + (2 * r + 1) * GROUP, right + r * GROUP, GROUP * sizeof *all);
  check(same, "%s, wide groups: %s", tier, qn_last_error());
}

/* Tiles that keep their sums to themselves, as many as there are threads: of every tier's. */
static void by_threads(const data *d, const char *tier)
{
  enum { SHORT = 512 };
  if (qn_option_set("cpu", tier) || multiply_all(d, 0, (extents){M, N, SHORT, 0}, d->bits[0], 1)) {
    skip("%s: %s", tier, qn_last_error());
    return;
  }
  check(!multiply_all(d, 0, (extents){M, N, SHORT, 0}, d->bits[1], 4) &&
            !memcmp(d->bits[0], d->bits[1], (size_t)M * N * 2),
        "%s: four threads' bits are one's", tier);
}

int main(void)
{
  static const char *const others[] = {"ref", "avx2", "avx512", "neon"};
  static const char *const tiers[] = {"amx", "avx512bf16"};
  data d = {.x = calloc(MOST, 2), .w = calloc(MOST, 2)};
  for (int k = 0; k < 3; k++) d.bits[k] = malloc((size_t)1000 * 1000 * 2);
  for (int k = 0; k < 2; k++) {
    if (qn_option_set("cpu", tiers[k])) {
      skip("%s: %s", tiers[k], qn_last_error());
      continue;
    }
    if (multiply(&d, 0, 16, d.bits[0], 1)) {
      skip("%s: %s", tiers[k], qn_last_error());
      continue;
    }
    by_halves(&d, tiers[k], false);
    by_halves(&d, tiers[k], true);
    by_parts(&d, tiers[k]);
    fill(&d, MOST, false);
    by_groups(&d, tiers[k]);
  }
  fill(&d, (int64_t)N * K / 32, false);
  for (int k = 0; k < 4; k++) by_threads(&d, others[k]);
  for (int k = 0; k < 3; k++) free(d.bits[k]);
  free(d.x);
  free(d.w);
  return test_end();
}
