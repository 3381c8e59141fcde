/* SPDX-License-Identifier: Apache-2.0 */
/* words_cuda.c - CUDA's dialect on the processor: expressions that hold by CUDA's documents, words of a warp and a
 * block against their definitions, dynamic shared memory, functions that give metal::exp's bits; that __half and
 * __nv_bfloat16 convert and round as they must, for all 65536 of each; and that the same texts compile for GPUs. */
#include "words_use.h"

/* ---- expressions ---- */
static const char *const truths[] = {
    "sizeof(float3) == 12 && sizeof(float4) == 16 && alignof(float4) == 16 && alignof(float2) == 8 && sizeof(uint3) == "
    "12",
    "sizeof(double2) == 16 && sizeof(char4) == 4 && alignof(char4) == 4 && sizeof(half2) == 4 && sizeof(longlong2) == "
    "16",
    "make_float3(1, 2, 3).z == 3 && make_uint2(4, 5).y == 5 && make_int4(1, 2, 3, 4).w == 4",
    "dim3(3).y == 1 && dim3(3, 4).y == 4 && blockDim.x == 32 && gridDim.x == 2 && blockDim.z == 1 && warpSize == 32",
    "0.1 != 0.1f && sizeof(0.1) == 8",
    "__popc(255u) == 8 && __clz(1) == 31 && __clz(0) == 32 && __ffs(8) == 4 && __ffs(0) == 0 && __brev(1u) == "
    "0x80000000u",
    "__popcll(~0ull) == 64 && __clzll(1) == 63 && __ffsll(1ll << 40) == 41 && __brevll(1ull) == 1ull << 63",
    "__byte_perm(0x33221100u, 0x77665544u, 0x5410u) == 0x55441100u && __umulhi(1u << 31, 4u) == 2 && __mulhi(-1, 5) == "
    "-1",
    "__umul64hi(~0ull, 2) == 1 && __funnelshift_l(0x80000000u, 1u, 1) == 3 && __funnelshift_r(2u, 1u, 1) == "
    "0x80000001u",
    "__float_as_int(1.0f) == 0x3f800000 && __int_as_float(0x40000000) == 2.0f && __float_as_uint(-0.0f) == 0x80000000u",
    "__double_as_longlong(1.0) == 0x3ff0000000000000ll && __longlong_as_double(0) == 0.0",
    "fminf(1.0f, 2.0f) == 1 && fmaxf(NAN, 2.0f) == 2 && min(3, 2) == 2 && max(3u, 2u) == 3 && max(1.0f, 2.5f) == 2.5f",
    "fabsf(-2.0f) == 2 && floorf(-0.5f) == -1 && ceilf(0.5f) == 1 && rintf(2.5f) == 2 && roundf(2.5f) == 3 && "
    "truncf(-1.5f) == -1",
    "expf(0.0f) == 1 && logf(1.0f) == 0 && sqrtf(9.0f) == 3 && rsqrtf(4.0f) == 0.5f && powf(2.0f, 10.0f) == 1024 && "
    "cbrtf(-27.0f) == -3",
    "fabsf(__expf(1.0f) - expf(1.0f)) < 1e-5f && fabsf(__fdividef(1.0f, 3.0f) - 1.0f / 3.0f) < 1e-6f && "
    "__frcp_rn(4.0f) == 0.25f",
    "fmaf(2.0f, 3.0f, 4.0f) == 10 && __fmaf_rn(2.0f, 3.0f, 4.0f) == 10 && fma(2.0, 3.0, 4.0) == 10 && hypotf(3.0f, "
    "4.0f) == 5",
    "fabs(exp(1.0) - 2.718281828459045) < 1e-12 && sqrt(2.0) * sqrt(2.0) - 2 < 1e-12 && isnan(NAN) && isinf(INFINITY)",
    "__float2int_rz(-1.5f) == -1 && __float2int_rn(2.5f) == 2 && __float2int_rd(-0.5f) == -1 && __int2float_rn(3) == 3",
    "__half2float(__float2half(1.5f)) == 1.5f && __bfloat162float(__float2bfloat16(2.5f)) == 2.5f",
    "__half2float(__hadd(__float2half(1), __float2half(2))) == 3 && __hgt(__float2half(2), __float2half(1))",
    "__half2float(__hfma(__float2half(2), __float2half(3), __float2half(4))) == 10",
    "__half2float(__hfma(__ushort_as_half(0x3c01), __ushort_as_half(0x3c01), __ushort_as_half(0x8001))) == "
    "1.001953125f",
    "__half_as_ushort(__hfma(__ushort_as_half(0x3d56), __ushort_as_half(0x3a00), __ushort_as_half(1))) == 0x3c01",
    "__half_as_ushort(__float2half(1.0f)) == 0x3c00 && __bfloat16_as_ushort(__float2bfloat16(1.0f)) == 0x3f80",
    "__low2float(__floats2half2_rn(1, 2)) == 1 && __high2float(__hmul2(__floats2half2_rn(1, 2), __float2half2_rn(3))) "
    "== 6",
    "__half22float2(__floats2half2_rn(1, 2) + __half2half2(__float2half(1))).y == 3 && "
    "__bfloat1622float2(__floats2bfloat162_rn(1, 2)).x == 1",
    "__half2float(hexp(__float2half(0))) == 1 && __half2float(hsqrt(__float2half(4))) == 2 && "
    "__hisnan(__ushort_as_half(0x7e00))",
    "float(__half(0.5f) * __half(3)) == 1.5f && float(__half(1) + 2) == 3 && __half(1) < __half(2) && "
    "float(-__half(1)) == -1",
    "sizeof(__half) == 2 && sizeof(__nv_bfloat162) == 4 && float(__hmax(__half(1), __half(2))) == 2 && half_is_half()",
    "uses_place(x) == 33 && table[1] == 2.5f && aligned_to_16 == 16",
    "INT_MAX == 2147483647 && FLT_MAX > 3e38f",
};
enum { TRUTHS = sizeof truths / sizeof *truths };

static void all_true(void)
{
  static const char header[] =
      "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <stdint.h>\n"
      "__device__ __forceinline__ bool half_is_half() { half h = 1.0f; return float(h) == 1; }\n"
      "__device__ int uses_place(int x) { return blockIdx.x * blockDim.x + threadIdx.x + x; }\n"
      "__constant__ float table[2] = {1.0f, 2.5f};\n"
      "struct __align__(16) quad { float v[4]; };\n"
      "constexpr int aligned_to_16 = alignof(quad);\n";
  static uint8_t held[TRUTHS];
  qn_text body = {0};
  qn_text_add(&body, "if (blockIdx.x != 1 || threadIdx.x != 0) return; int x = 1;\n");
  for (int k = 0; k < TRUTHS; k++) qn_text_add(&body, "out[%d] = %s;\n", k, truths[k]);
  const use u = {.name = "truths", .header = header, .body = body.at, .dialect = QN_DIALECT_CUDA};
  const qn_tensor o = ARRAY(held, QN_BOOL, TRUTHS);
  const qn_kernel_call call = CALL(.outputs = &o, .grid = {64, 1, 1}, .group = {32, 1, 1});
  words_on_gpus("CUDA's words", &u, &call);
  if (words_run("CUDA's words", &u, &call))
    for (int k = 0; k < TRUTHS; k++) check(held[k] == 1, "%s", truths[k]);
  qn_text_free(&body);
}

/* ---- the warp and the block: 2 blocks of 48 threads, so one warp is of 16 ---- */
enum { BLOCK = 48, THREADS = 2 * BLOCK };
static int32_t found[THREADS];

typedef int32_t definition(int t, int lane, int n); /* thread of the block, lane, lanes of the warp */
static int32_t shuffled(int t, int l, int n) { return (void)l, (void)n, t / 32 * 32 + 3; }
static int32_t up(int t, int l, int n) { return (void)n, l < 2 ? t : t - 2; }
static int32_t down8(int t, int l, int n) { return (void)n, l % 8 < 5 ? t + 3 : t; }
static int32_t butterfly(int t, int l, int n) { return (void)l, (void)n, t ^ 5; }
static int32_t ballot(int t, int l, int n)
{
  int32_t votes = 0;
  for (int k = 0; k < n; k++) votes |= (int32_t)((uint32_t)(k % 3 == 1) << k);
  return (void)t, (void)l, votes;
}
static int32_t any_all(int t, int l, int n) { return (void)t, (void)l, 1 + (n == 32 ? 0 : 2); }
static int32_t summed(int t, int l, int n) { return (void)l, n * (t / 32 * 32) + n * (n - 1) / 2; }
static int32_t extremes(int t, int l, int n) { return (void)l, t / 32 * 32 * 100 + t / 32 * 32 + n - 1; }
static int32_t matched(int t, int l, int n)
{
  int32_t same = 0;
  for (int k = 0; k < n; k++) same |= (int32_t)((uint32_t)(k % 4 == l % 4) << k);
  return (void)t, same;
}
static int32_t counted(int t, int l, int n) { return (void)t, (void)l, (void)n, 16 * 100 + 10; }
static int32_t active(int t, int l, int n) { return (void)t, (void)l, n == 32 ? -1 : 0xffff; }
static int32_t tail(int t, int l, int n) { return (void)l, (void)n, BLOCK - 1 - t; }
static int32_t tiles(int t, int l, int n) { return (void)n, (t / 8 * 8) * 1000 + l % 8 * 10 + 8 - 8; }
static int32_t halves(int t, int l, int n) { return (void)l, (void)n, (t ^ 1) * 2; }

static void warps(void)
{
  static const struct {
    const char *name, *expression;
    definition *want;
  } all[] = {
      {"shfl", "__shfl_sync(0xffffffffu, t, 3)", shuffled},
      {"shfl_up", "__shfl_up_sync(~0u, t, 2)", up},
      {"shfl_down", "__shfl_down_sync(~0u, t, 3, 8)", down8},
      {"shfl_xor", "int(__shfl_xor_sync(~0u, float(t), 5))", butterfly},
      {"ballot", "int(__ballot_sync(~0u, t % 32 % 3 == 1))", ballot},
      {"any_all", "(__any_sync(~0u, t % 32 == 7) ? 1 : 0) + (__all_sync(~0u, t < 32) ? 0 : 2)", any_all},
      {"reduce_add", "__reduce_add_sync(~0u, t)", summed},
      {"reduce_extremes", "__reduce_min_sync(~0u, t) * 100 + __reduce_max_sync(~0u, t)", extremes},
      {"match", "int(__match_any_sync(~0u, t % 4))", matched},
      {"count",
       "__syncthreads_count(t % 3 == 0) * 100 + (__syncthreads_or(t == 5) ? 10 : 0) + (__syncthreads_and(t > 0) ? 1 : "
       "0)",
       counted},
      {"active", "int(__activemask())", active},
      {"tail", "([&] { tail[t] = t; __syncthreads(); return tail[blockDim.x - 1 - t]; })()", tail},
      {"tiles", "tile.shfl(t, 0) * 1000 + int(tile.thread_rank()) * 10 + int(tile.size()) - 8", tiles},
      {"halves",
       "int(float(__shfl_xor_sync(~0u, __float2half(float(t)), 1)) + "
       "__bfloat162float(__shfl_xor_sync(~0u, __float2bfloat16(float(t)), 1)))",
       halves},
  };
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    char body[640];
    int wrong = 0;
    snprintf(body, sizeof body,
             "extern __shared__ int tail[]; __shared__ float unused[4]; namespace cg = cooperative_groups;\n"
             "auto tile = cg::tiled_partition<8>(cg::this_thread_block());\n"
             "int t = threadIdx.x; (void)tile, (void)tail, (void)unused; __syncwarp();\n"
             "out[blockIdx.x * blockDim.x + t] = %s;",
             all[k].expression);
    const use u = {
        .name = all[k].name, .body = body, .header = "#include <cooperative_groups.h>\n", .dialect = QN_DIALECT_CUDA};
    const qn_tensor o = ARRAY(found, QN_I32, THREADS);
    const qn_kernel_call call =
        CALL(.outputs = &o, .grid = {THREADS, 1, 1}, .group = {BLOCK, 1, 1}, .shared_bytes = 4 * BLOCK);
    words_on_gpus(all[k].name, &u, &call);
    if (!words_run(all[k].name, &u, &call)) continue;
    for (int i = 0; i < THREADS; i++) {
      const int t = i % BLOCK;
      wrong += found[i] != all[k].want(t, t % 32, t < 32 ? 32 : 16);
    }
    check(!wrong, "%s: %d of %d wrong", all[k].name, wrong, THREADS);
  }
}

/* MLX's helpers and cooperative_groups, on shapes, strides and inputs of 0 dimensions; the numbers are the Python
 * package's tests' too. */
static void of_mlx(void)
{
  static float values[15], all[32];
  static float number = 2.5f;
  static const int64_t shape[] = {3, 5}, turned[] = {-5, 1};
  const use u = {
      .name = "mlx",
      .dialect = QN_DIALECT_CUDA,
      .inputs = "inp scale",
      .strided = 1,
      .header = "#include <cooperative_groups.h>\n"
                "__device__ int extents(const Shape &s) { int n = 1; for (int e : s) n *= e; return n; }\n",
      .body =
          "auto grid = cooperative_groups::this_grid(); auto block = cg::this_thread_block();\n"
          "auto tile = cg::tiled_partition<16>(block); auto i = grid.thread_rank();\n"
          "auto at = elem_to_loc((unsigned)i % 15, inp_shape.data(), inp_strides.data(), inp_ndim);\n"
          "auto [a, b] = elem_to_loc_nd<2>(i % 15, inp_shape, inp_strides, inp_strides);\n"
          "float sum = cg::reduce(tile, (int)tile.thread_rank(), cg::plus<int>()) + cg::reduce(tile, 1.0f, "
          "[](float x, float y) { return x * y; });\n"
          "auto some = cg::coalesced_threads(); block.sync(); some.sync(); tile.sync();\n"
          "bool ok = sum == 121 && at == a && at == b && extents(inp_shape) == 15 && some.size() == WARP_SIZE &&\n"
          "  cg::inclusive_scan(tile, 1, cg::plus<int>()) == tile.thread_rank() + 1 && tile.meta_group_size() == 2 "
          "&&\n  cg::thread_group(tile).size() == 16 && some.shfl_up(i, 1) + (i > 0) == i && grid.num_blocks() == 1 "
          "&&\n  Limits<float>::finite_max() > 3e38f && ceildiv(7, 2) == 4;\n"
          "float two[2] = {*scale, 0}; auto v = load_vector<2>(two, 0);\n"
          "out[i] = ok ? inp[at] * scale[0] + v[1] : -1;"};
  const qn_tensor i[] = {{values + 10, QN_F32, 2, shape, turned, {QN_CPU, 0}}, VALUE(QN_F32, &number)};
  const qn_tensor o = ARRAY(all, QN_F32, 32);
  const qn_kernel_call call = CALL(.inputs = i, .outputs = &o, .grid = {32, 1, 1}, .group = {32, 1, 1});
  int wrong = 0;
  for (int k = 0; k < 15; k++) values[k] = (float)k;
  words_on_gpus("MLX's words", &u, &call);
  if (!words_run("MLX's words", &u, &call)) return;
  for (int k = 0; k < 32; k++) wrong += all[k] != 2.5f * (float)(10 - k % 15 / 5 * 5 + k % 5);
  check(!wrong, "MLX's words: %d of 32 wrong, the first is %g", wrong, (double)all[0]);
}

static void atomics(void)
{
  static float sums[4];
  const use u = {.name = "atomics",
                 .dialect = QN_DIALECT_CUDA,
                 .outputs = "out whole small",
                 .body =
                     "int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                     "atomicAdd(out, 1.0f); atomicMax(whole, i); atomicMin(whole + 1, -i); atomicAdd(&whole[2], 2);\n"
                     "atomicCAS(&whole[3], 0, 9); atomicExch(&whole[4], 4); atomicOr(&whole[5], 1 << i % 8);\n"
                     "atomicSub(&whole[6], 1); atomicAdd(small, __float2half(1.0f)); __threadfence();"};
  int32_t whole[8] = {0};
  uint16_t small[2] = {0};
  const qn_tensor o[] = {ARRAY(sums, QN_F32, 4), ARRAY(whole, QN_I32, 8), ARRAY(small, QN_F16, 2)};
  const qn_kernel_call call =
      CALL(.outputs = o, .grid = {256, 1, 1}, .group = {32, 1, 1},
           .init = (qn_value[3]){{.kind = QN_VALUE_INT}, {.kind = QN_VALUE_INT}, {.kind = QN_VALUE_INT}});
  words_on_gpus("atomics", &u, &call);
  if (words_run("atomics", &u, &call))
    check(sums[0] == 256 && whole[0] == 255 && whole[1] == -255 && whole[2] == 512 && whole[3] == 9 && whole[4] == 4 &&
              whole[5] == 255 && whole[6] == -256 && small[0] == 0x5c00,
          "atomics: %g %d %d %d %d %d %d %d %#x", (double)sums[0], whole[0], whole[1], whole[2], whole[3], whole[4],
          whole[5], whole[6], small[0]);
}

/* ---- half and bfloat, in Metal's words: all values, and arithmetic against double rounded once ---- */
static uint16_t every[65536], back[65536], sum[65536], product[65536], quotient[65536], sign[65536];
static float wide[65536], with_float[65536];
static bool less[65536];

static void shorts(const char *type, qn_dtype dtype, float (*to_float)(uint16_t), uint16_t (*from_float)(float))
{
  char body[640];
  int wrong = 0, wrong_arithmetic = 0;
  snprintf(body, sizeof body,
           "uint i = thread_position_in_grid.x; %s x = inp[i], y = inp[(i * 40503u + 77u) %% 65536u];\n"
           "wide[i] = x; back[i] = float(x); sum[i] = x + y; product[i] = x * y; quotient[i] = x / y; sign[i] = -x;\n"
           "with_float[i] = x + 0.1; less[i] = x < y && !(x >= y) && x != y;",
           type);
  const use u = {
      .name = type, .inputs = "inp", .outputs = "wide back sum product quotient sign with_float less", .body = body};
  for (int k = 0; k < 65536; k++) every[k] = (uint16_t)k;
  const qn_tensor i = ARRAY(every, dtype, 65536);
  const qn_tensor o[] = {ARRAY(wide, QN_F32, 65536),       ARRAY(back, dtype, 65536),     ARRAY(sum, dtype, 65536),
                         ARRAY(product, dtype, 65536),     ARRAY(quotient, dtype, 65536), ARRAY(sign, dtype, 65536),
                         ARRAY(with_float, QN_F32, 65536), ARRAY(less, QN_BOOL, 65536)};
  const qn_kernel_call call = CALL(.inputs = &i, .outputs = o, .grid = {65536, 1, 1}, .group = {256, 1, 1});
  words_on_gpus(type, &u, &call);
  if (!words_run(type, &u, &call)) return;
  for (uint32_t k = 0; k < 65536; k++) {
    const float x = to_float((uint16_t)k), y = to_float((uint16_t)((k * 40503u + 77u) % 65536u));
    wrong +=
        !words_same(wide[k], x) || !(isnan(x) ? isnan(to_float(back[k])) : back[k] == k) || sign[k] != (k ^ 0x8000u);
    wrong_arithmetic += !words_same(to_float(sum[k]), to_float(from_float(x + y))) +
                        !words_same(to_float(product[k]), to_float(from_float(x * y))) +
                        !words_same(to_float(quotient[k]), to_float(from_float(x / y))) +
                        !words_same(with_float[k], x + 0.1f) + (less[k] != (x < y));
  }
  check(!wrong, "%s: conversions and signs of all 65536 (%d wrong)", type, wrong);
  check(!wrong_arithmetic, "%s: arithmetic and comparisons (%d wrong)", type, wrong_arithmetic);
}

static float from_f16(uint16_t h) { return qn_f16_float(h); }
static float from_bf16(uint16_t h) { return qn_bf16_float(h); }
static uint16_t to_f16(float x) { return qn_float_f16(x); }
static uint16_t to_bf16(float x) { return qn_float_bf16(x); }

/* ---- types and vectors of Metal ---- */
static const char *const vectors[] = {
    "sizeof(float3) == 16 && sizeof(float2) == 8 && sizeof(half3) == 8 && sizeof(char3) == 4 && sizeof(long4) == 32",
    "alignof(float4) == 16 && alignof(half2) == 4 && sizeof(bool3) == 4 && sizeof(uchar2) == 2 && sizeof(ulong2) == 16",
    "float3(1).z == 1 && float4(float2(1, 2), 3, 4).w == 4 && float4(1, float3(2, 3, 4)).y == 2 && int2(float2(1.9, "
    "-1.9)).y == -1",
    "float4(1, 2, 3, 4).zyx.x == 3 && float4(1, 2, 3, 4).rgb.b == 3 && float2(1, 2)[1] == 2 && uint3(1, 2, 3).g == 2",
    "all(float2(1, 2) + 1 == float2(2, 3)) && any(int3(1, 2, 3) > 2) && !all(int3(1, 2, 3) > 2)",
    "all(2 * float2(1, 2) - float2(1, 1) == float2(1, 3)) && all((int2(7, 8) & 3) == int2(3, 0)) && all(int2(1, 2) << "
    "2 == int2(4, 8))",
    "dot(float3(1, 2, 3), float3(4, 5, 6)) == 32 && cross(float3(1, 0, 0), float3(0, 1, 0)).z == 1 && length(float2(3, "
    "4)) == 5",
    "normalize(float2(3, 4)).x == 0.6 && distance(float2(0, 0), float2(3, 4)) == 5 && length_squared(float2(3, 4)) == "
    "25",
    "all(select(float2(1, 2), float2(3, 4), bool2(true, false)) == float2(3, 2)) && all(-int2(1, -2) == int2(-1, 2))",
    "all(clamp(float3(-1, 0.5, 2), 0.0, 1.0) == float3(0, 0.5, 1)) && all(max(int2(1, 5), int2(3, 2)) == int2(3, 5))",
    "all(mix(float2(0), float2(2), 0.5) == float2(1)) && all(floor(float2(1.5, -0.5)) == float2(1, -1)) && "
    "exp(float2(0)).y == 1",
    "all(half2(1, 2) * half(2) == half2(2, 4)) && float(half3(0.5).z) == 0.5 && all(abs(int2(-1, 2)) == int2(1, 2))",
    "all(isnan(float2(NAN, 1)) == bool2(true, false)) && all(as_type<uint2>(float2(1, 2)) == uint2(0x3f800000, "
    "0x40000000))",
    "reflect(float2(1, -1), float2(0, 1)).y == 1 && swizzles() && assigned() && loops() == 10",
    "float(1.5h) == 1.5 && sizeof(1.5h) == 2 && float(0.1h) != 0.1 && float(1.5bf) == 1.5 && sizeof(0.1) == 4",
    "as_type<ushort>(half(65519)) == 0x7bff && as_type<ushort>(half(65520)) == 0x7c00 && as_type<ushort>(h_constant) "
    "== 0x2e66",
    "as_type<ushort>(bfloat(16842753)) == 0x4b81 && as_type<ushort>(tiny_constant) == 1 && f_constant.y == 2.5",
    "int(half(3.7)) == 3 && bool(half(1)) && float(half(3) / 2) == 1.5 && sizeof(half(1) + half(1)) == 2 && "
    "sizeof(half(1) + 1.0) == 4",
    "sizeof(half(1) * 2) == 2 && float(min(half(1), half(2))) == 1 && half_steps() && sizeof(max(half(1), 2)) == 2",
};
enum { VECTORS = sizeof vectors / sizeof *vectors };

static void metal_types(void)
{
  static const char header[] =
      "#include <metal_stdlib>\nusing namespace metal;\n"
      "constant half h_constant = 0.1h; constant half tiny_constant = 5.9604645e-8h; constant float3 f_constant = "
      "float3(1, 2.5, 4);\n"
      "struct line { float2 ab; float r; };\n"
      "template <typename V> float second(V v) { return v.yx.x; }\n"
      "bool swizzles() { float4 v(1, 2, 3, 4); return second(v) == 2 && v.wzyx.x == 4 && v.xx.y == 1; }\n"
      "bool assigned() { float4 v(1, 2, 3, 4); v.zw = v.xy; v.xy += 1.0; v.xy *= float2(2, 3); v.r = 9; thread float4 "
      "*p = &v;\n"
      "  p->yz = float2(7, 8); line l; l.ab = v.xw; l.r = 5; return all(v == float4(9, 7, 8, 2)) && l.ab.y == 2 && l.r "
      "== 5; }\n"
      "int loops() { int4 v(1, 2, 3, 4); int sum = 0; for (int k = 0; k < 4; k++) sum += v[k]; v++; v += 1; return "
      "sum; }\n"
      "bool half_steps() { half h = 1; h += 0.5; h *= 2; h -= 1; h /= 4; h++; ++h; return float(h) == 2.5; }\n";
  static uint8_t held[VECTORS];
  qn_text body = {0};
  for (int k = 0; k < VECTORS; k++) qn_text_add(&body, "out[%d] = %s;\n", k, vectors[k]);
  const use u = {.name = "vectors", .header = header, .body = body.at};
  const qn_tensor o = ARRAY(held, QN_BOOL, VECTORS);
  const qn_kernel_call call = CALL(.outputs = &o, .grid = {1, 1, 1}, .group = {1, 1, 1});
  words_on_gpus("Metal's types", &u, &call);
  if (words_run("Metal's types", &u, &call))
    for (int k = 0; k < VECTORS; k++) check(held[k] == 1, "%s", vectors[k]);
  qn_text_free(&body);
}

int main(void)
{
  metal_types();
  shorts("half", QN_F16, from_f16, to_f16);
  shorts("bfloat", QN_BF16, from_bf16, to_bf16);
  all_true();
  warps();
  of_mlx();
  atomics();
  return test_end();
}
