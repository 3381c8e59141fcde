/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - the words of base/collective.h and base/matrix.h: the emulator's twins against plain C, with the
 * same bits for every number of pool threads; and where NVRTC is at hand the same texts compile for a GPU without
 * tensor core words for every type (sm_75) and for one with them (sm_90a). How threads wait is group.c's test. */
#include "group_use.h"
#include <math.h>

#define PRELUDE "#include \"base/collective.h\"\n#include \"base/matrix.h\"\n"

/* ---- reductions ---- */
typedef struct reduce_args {
  const float *x;
  float *sum, *tree, *most;
  uint32_t *whole;
} reduce_args;

static const char reduce_text[] =
    PRELUDE "struct reduce_args { const float *x; float *sum, *tree, *most; qn_u32 *whole; };\n"
            "QN_GROUP_KERNEL(reduce, reduce_args, a) {\n"
            "  QN_SHARED(float, scratch, 32);\n"
            "  QN_SHARED(qn_u32, whole, 32);\n"
            "  QN_SHARED(float, tree, 256);\n"
            "  const qn_u64 i = qn_block() * qn_block_threads() + qn_thread();\n"
            "  a.sum[i] = qn_group_sum(a.x[i], scratch);\n"
            "  a.most[i] = qn_group_max(a.x[i], scratch);\n"
            "  a.whole[i] = qn_group_sum(qn_thread() + 1u, whole);\n"
            "  tree[qn_thread()] = a.x[i];\n"
            "  for (qn_u32 apart = 128; apart; apart /= 2) {\n"
            "    qn_barrier();\n"
            "    if (qn_thread() < apart && qn_thread() + apart < qn_block_threads())\n"
            "      tree[qn_thread()] += tree[qn_thread() + apart];\n"
            "  }\n"
            "  if (qn_thread() == 0) a.tree[qn_block()] = tree[0];\n"
            "}\n";

enum { BLOCKS = 37, MOST = BLOCKS * 256 };

static float tree_of(const float *x, int n, int apart)
{
  float t[1024];
  memcpy(t, x, (size_t)n * sizeof *t);
  for (; apart; apart /= 2)
    for (int k = 0; k < apart && k + apart < n; k++) t[k] += t[k + apart];
  return t[0];
}

/* As the words say: within simdgroups, then over them. */
static float sum_of(const float *x, int n)
{
  float of[32] = {0};
  for (int k = 0; k < n; k += 32) of[k / 32] = tree_of(x + k, 32, 16);
  return tree_of(of, 32, 16);
}

static unsigned wrong_block(const reduce_args *a, size_t block, int n)
{
  const float *x = a->x + block * (size_t)n;
  float most = x[0];
  unsigned wrong = a->tree[block] != tree_of(x, n, 128);
  for (int k = 1; k < n; k++) most = fmaxf(most, x[k]);
  for (int k = 0; k < n; k++) {
    const size_t i = block * (size_t)n + (size_t)k;
    wrong += a->sum[i] != sum_of(x, n) || a->most[i] != most;
    wrong += a->whole[i] != (uint32_t)(n * (n + 1) / 2);
  }
  return wrong;
}

static void reductions(int pool_threads)
{
  static float x[MOST], sum[MOST], tree[BLOCKS], most[MOST];
  static uint32_t whole[MOST];
  const qn_device_function *f = group_function(reduce_text, "reduce");
  qn_pool *pool = NULL;
  unsigned wrong = 0;
  if (pool_threads) qn_pool_create(&pool, pool_threads);
  for (int k = 0; k < MOST; k++) x[k] = sinf((float)k) * expf((float)(k % 17));
  for (int threads = 32; threads <= 256; threads += 32) {
    reduce_args a = {x, sum, tree, most, whole};
    memset(sum, 0, sizeof sum);
    wrong += group_launch(f, BLOCKS, (uint32_t)threads, 0, pool, &a, sizeof a) != QN_OK;
    for (size_t block = 0; block < BLOCKS; block++) wrong += wrong_block(&a, block, threads);
  }
  check(!wrong, "a pool of %d: sums, trees and maxima of blocks of 32 to 256 are those of plain C: %u wrong",
        pool_threads, wrong);
  qn_pool_destroy(&pool);
}

static void odd_numbers(void)
{
  static float x[32], sum[32], tree[1], most[32];
  static uint32_t whole[32];
  reduce_args a = {x, sum, tree, most, whole};
  const qn_device_function *f = group_function(reduce_text, "reduce");
  unsigned wrong = 0;
  for (int odd = 0; odd < 2; odd++) {
    for (int k = 0; k < 32; k++) x[k] = k % 2 == odd ? 0.0f : -0.0f;
    group_launch(f, 1, 32, 0, NULL, &a, sizeof a);
    for (int k = 0; k < 32; k++) wrong += signbit(most[k]) != 0;
  }
  check(!wrong, "of zeros the positive one is the larger: %u lanes say otherwise", wrong);
  for (int at = 0; at < 32; at++) {
    for (int k = 0; k < 32; k++) x[k] = (float)k;
    x[at] = NAN;
    group_launch(f, 1, 32, 0, NULL, &a, sizeof a);
    for (int k = 0; k < 32; k++) wrong += !isnan(most[k]) || !isnan(sum[k]);
  }
  check(!wrong, "a NaN in any lane is every lane's extreme: %u wrong", wrong);
}

/* ---- shuffles ---- */
typedef struct move_args {
  uint64_t *out; /* 4 a lane */
} move_args;

static const char move_text[] =
    PRELUDE "struct move_args { qn_u64 *out; };\n"
            "QN_GROUP_KERNEL(move, move_args, a) {\n"
            "  qn_u64 *out = a.out + 4 * (qn_block() * qn_block_threads() + qn_thread());\n"
            "  const qn_u32 lane = qn_lane();\n"
            "  const qn_u64 mine = 0x100000001ull * (qn_thread() + 1u);\n"
            "  out[0] = qn_shuffle(mine, lane * 7u + 3u);\n"
            "  out[1] = qn_shuffle_xor(static_cast<qn_u8>(qn_thread()), 5u);\n"
            "  const qn_16bytes wide = {{lane, lane + 1u, lane + 2u, lane + 3u}}, got = qn_shuffle_xor(wide, 31u);\n"
            "  out[2] = got.word[0] + 100u * got.word[3];\n"
            "  out[3] = qn_simd() + 100u * qn_simds();\n"
            "}\n";

static void moves(void)
{
  enum { THREADS = 96 };
  static uint64_t out[2 * THREADS * 4];
  move_args a = {out};
  unsigned wrong[4] = {0};
  check(group_launch(group_function(move_text, "move"), 2, THREADS, 0, NULL, &a, sizeof a) == QN_OK, "shuffles run");
  for (unsigned i = 0; i < 2 * THREADS; i++) {
    const unsigned t = i % THREADS, lane = t % 32, base = t - lane;
    const uint64_t *o = out + 4 * i;
    wrong[0] += o[0] != 0x100000001u * (uint64_t)(base + (lane * 7 + 3) % 32 + 1);
    wrong[1] += o[1] != base + (lane ^ 5);
    wrong[2] += o[2] != (lane ^ 31) + 100 * ((lane ^ 31) + 3);
    wrong[3] += o[3] != t / 32 + 300;
  }
  static const char *const names[4] = {"qn_shuffle", "qn_shuffle_xor", "16 bytes each", "qn_simd and qn_simds"};
  for (int k = 0; k < 4; k++) check(!wrong[k], "%s: %u lanes are wrong", names[k], wrong[k]);
}

/* ---- matrix products ---- */
typedef struct product_args {
  const float *a, *b; /* 16 by k, k by 8, row-major */
  float *d;
  int kind; /* 0 tf32, 1 bf16, 2 f16 */
} product_args;

static const char product_text[] =
    PRELUDE "struct product_args { const float *a, *b; float *d; int kind; };\n"
            "QN_FN qn_u32 pair(float low, float high, bool bf16) {\n"
            "  return qn_join_halves(bf16 ? qn_float_bf16(low) : qn_float_f16(low), bf16 ? qn_float_bf16(high) : "
            "qn_float_f16(high));\n"
            "}\n"
            "QN_GROUP_KERNEL(product, product_args, p) {\n"
            "  const qn_u32 lane = qn_lane(), g = lane / 4, t = lane % 4;\n"
            "  float d[4];\n"
            "  for (int i = 0; i < 4; i++) d[i] = p.d[8 * (g + 8 * (i / 2)) + 2 * t + i % 2];\n"
            "  qn_u32 a[4], b[2];\n"
            "  if (p.kind == 0) {\n"
            "    for (int i = 0; i < 4; i++) a[i] = qn_float_tf32(p.a[8 * (g + 8 * (i % 2)) + t + 4 * (i / 2)]);\n"
            "    for (int i = 0; i < 2; i++) b[i] = qn_float_tf32(p.b[8 * (t + 4 * i) + g]);\n"
            "    qn_mma_tf32(d, a, b);\n"
            "  } else {\n"
            "    for (int i = 0; i < 4; i++) {\n"
            "      const float *at = p.a + 16 * (g + 8 * (i % 2)) + 2 * t + 8 * (i / 2);\n"
            "      a[i] = pair(at[0], at[1], p.kind == 1);\n"
            "    }\n"
            "    for (int i = 0; i < 2; i++) {\n"
            "      const float *at = p.b + 8 * (2 * t + 8 * i) + g;\n"
            "      b[i] = pair(at[0], at[8], p.kind == 1);\n"
            "    }\n"
            "    if (p.kind == 1) qn_mma_bf16(d, a, b); else qn_mma_f16(d, a, b);\n"
            "  }\n"
            "  for (int i = 0; i < 4; i++) p.d[8 * (g + 8 * (i / 2)) + 2 * t + i % 2] = d[i];\n"
            "}\n";

/* Small whole numbers: every sum is exact, in any order. */
static void products(void)
{
  static const char *const names[] = {"m16n8k8 of tf32", "m16n8k16 of bf16", "m16n8k16 of f16"};
  const qn_device_function *f = group_function(product_text, "product");
  for (int kind = 0; kind < 3; kind++) {
    const int n = kind ? 16 : 8;
    float a[256], b[128], d[128], want[128];
    unsigned wrong = 0;
    for (int k = 0; k < 256; k++) a[k] = (float)((k * 7 + 3) % 23 - 11);
    for (int k = 0; k < 128; k++) b[k] = (float)((k * 5 + 1) % 19 - 9), d[k] = want[k] = (float)(k - 60);
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 8; j++)
        for (int k = 0; k < n; k++) want[8 * i + j] += a[n * i + k] * b[8 * k + j];
    product_args args = {a, b, d, kind};
    wrong += group_launch(f, 1, 32, 0, NULL, &args, sizeof args) != QN_OK;
    for (int k = 0; k < 128; k++) wrong += d[k] != want[k];
    check(!wrong, "%s: %u of 128 elements differ from the plain product", names[kind], wrong);
  }
}

/* The order that matrix.h documents, on numbers whose sums are rounded. */
static void the_order_of_sums(void)
{
  const qn_device_function *f = group_function(product_text, "product");
  float a[128], b[64], d[128], want[128];
  unsigned wrong = 0;
  for (int k = 0; k < 128; k++)
    a[k] = ldexpf(1.0f + (float)(k * 37 % 1024) / 1024, k % 9), d[k] = want[k] = 1.0f / (float)(k + 3);
  for (int k = 0; k < 64; k++) b[k] = ldexpf(1.0f + (float)(k * 91 % 1024) / 1024, -(k % 7));
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++)
      for (int k = 0; k < 8; k++) want[8 * i + j] += a[8 * i + k] * b[8 * k + j];
  product_args args = {a, b, d, 0};
  wrong += group_launch(f, 1, 32, 0, NULL, &args, sizeof args) != QN_OK;
  for (int k = 0; k < 128; k++) wrong += d[k] != want[k];
  check(!wrong, "the twin adds by growing k: %u of 128 elements differ in a bit", wrong);
}

/* ---- copies that overlap, dynamic shared memory, tf32 ---- */
typedef struct copy_args {
  const float *x;
  float *y;
  uint32_t *tf32;
} copy_args;

static const char copy_text[] =
    PRELUDE "struct copy_args { const float *x; float *y; qn_u32 *tf32; };\n"
            "QN_GROUP_KERNEL(copy, copy_args, a) {\n"
            "  float *tile = static_cast<float *>(qn_shared_dynamic());\n"
            "  const qn_u64 i = qn_block() * qn_block_threads() + qn_thread();\n"
            "  qn_copy_begin(tile + 4 * qn_thread(), a.x + 4 * i);\n"
            "  qn_copy_close();\n"
            "  qn_copy_wait<0>();\n"
            "  qn_barrier();\n"
            "  for (int k = 0; k < 4; k++) a.y[4 * i + k] = tile[4 * (qn_block_threads() - 1 - qn_thread()) + k];\n"
            "  a.tf32[i] = qn_float_tf32(a.x[4 * i]);\n"
            "}\n";

static uint32_t tf32_of(float x)
{
  if (isnan(x)) return 0x7fffffff;
  const double step = ldexp(1.0, (fabsf(x) < 0x1p-126f ? -126 : ilogbf(x)) - 10),
               units = floor(fabs((double)x) / step + 0.5);
  const float rounded = isinf(x) ? x : copysignf((float)(units * step), x);
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  return bits;
}

static void copies(void)
{
  enum { THREADS = 128, GROUPS = 9 };
  static _Alignas(16) float x[4 * THREADS * GROUPS], y[4 * THREADS * GROUPS];
  static uint32_t tf32[THREADS * GROUPS];
  static const float hard[] = {INFINITY,   -INFINITY,  NAN,        0,         -0.0f,     0x1.fffffep127f,
                               0x1.002p0f, 0x1.001p0f, 0x1.003p0f, 0x1p-149f, 0x1p-137f, -0x1.8p-137f};
  unsigned wrong = 0, wrong_tf32 = 0;
  qn_pool *pool = NULL;
  qn_pool_create(&pool, 2);
  for (int k = 0; k < 4 * THREADS * GROUPS; k++)
    x[k] = ldexpf(1.0f + (float)(k * 7919 % 8388608) * 0x1p-23f, k % 200 - 100);
  for (size_t k = 0; k < sizeof hard / sizeof *hard; k++) x[4 * k] = hard[k];
  copy_args a = {x, y, tf32};
  wrong += group_launch(group_function(copy_text, "copy"), GROUPS, THREADS, 4 * THREADS * sizeof *x, pool, &a,
                        sizeof a) != QN_OK;
  for (int i = 0; i < THREADS * GROUPS; i++) {
    const int block = i / THREADS, other = block * THREADS + THREADS - 1 - i % THREADS;
    wrong += memcmp(y + 4 * i, x + 4 * other, 16) != 0;
    wrong_tf32 += tf32[i] != tf32_of(x[4 * i]);
  }
  check(!wrong, "copies to dynamic shared memory: %u wrong", wrong);
  check(!wrong_tf32, "tf32 is the nearest with 10 bits, halves away from zero: %u wrong", wrong_tf32);
  qn_pool_destroy(&pool);
}

/* ---- the same texts for GPUs ---- */
static void for_gpus(void)
{
  static const char *const texts[] = {reduce_text, move_text, product_text, copy_text}, *const archs[] = {"sm_75",
                                                                                                          "sm_90a"};
  char path[4096];
  int version = 0;
  if (qn_cuda_compiler(&version, path, sizeof path) != QN_OK) {
    skip("no NVRTC here: %s", qn_last_error());
    return;
  }
  for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
    for (size_t i = 0; i < 2; i++) {
      qn_image image = {0};
      qn_status status = qn_cuda_compile_for(archs[i], &(qn_unit){.source = "test.cu", .text = texts[k]}, &image);
      check(status == QN_OK && image.bytes > 0, "text %zu compiles for %s", k, archs[i]);
      qn_image_free(&image);
    }
}

int main(void)
{
  static const int pools[] = {0, 1, 2, 7};
  for (size_t k = 0; k < sizeof pools / sizeof *pools; k++) reductions(pools[k]);
  odd_numbers();
  moves();
  products();
  the_order_of_sums();
  copies();
  for_gpus();
  return test_end();
}
