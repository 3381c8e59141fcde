/* SPDX-License-Identifier: Apache-2.0 */
/* words_alone.c - a kernel's text holds of the dialects' words only what it names (device/prune.h). Here every word is
 * the only one in a body of its own, so that whatever it needs and does not get is an error. The compiler reads all of
 * these texts in one run, each in a namespace of its own. Also what stays and what goes of a small text. */
#include "device/emulator/emulator.h"
#include "device/prune.h"
#include "device/preprocess.h"
#include "kernel/kernel.h"
#include "kernel_use.h"
#include "scratch.h"

typedef struct group {
  qn_dialect dialect;
  const char *words, *arguments; /* of each of these, or of one text with blanks in it */
} group;

static const group groups[] = {
    {QN_DIALECT_METAL, "isnan isinf isfinite isnormal signbit abs exp exp2 log log2 sin cos tanh erf sqrt rsqrt fabs",
     "(x)"},
    {QN_DIALECT_METAL, "floor ceil trunc rint round fract sign saturate tan asin acos atan sinh cosh asinh acosh",
     "(x)"},
    {QN_DIALECT_METAL, "atanh log10 expm1 log1p exp10 sinpi cospi tanpi ilogb any all fast::exp precise::exp", "(x)"},
    {QN_DIALECT_METAL, "min max fmin fmax copysign step divide pow powr fmod atan2 nextafter fdim", "(x, y)"},
    {QN_DIALECT_METAL, "clamp fma mix smoothstep fmin3 fmax3 fmedian3", "(x, y, y)"},
    {QN_DIALECT_METAL, "select", "(x, y, x < y)"},
    {QN_DIALECT_METAL, "ldexp", "(x, i)"},
    {QN_DIALECT_METAL, "frexp", "(x, i)"},
    {QN_DIALECT_METAL, "modf sincos", "(x, y)"},
    {QN_DIALECT_METAL, "popcount clz ctz reverse_bits", "(i)"},
    {QN_DIALECT_METAL, "rotate mulhi absdiff hadd rhadd addsat subsat mul24 ceildiv", "(i, i)"},
    {QN_DIALECT_METAL, "madhi madsat mad24 min3 max3 median3 extract_bits", "(i, i, i)"},
    {QN_DIALECT_METAL, "insert_bits", "(i, i, i, i)"},
    {QN_DIALECT_METAL, "length length_squared", "(float3(x, y, x))"},
    {QN_DIALECT_METAL, "dot distance distance_squared", "(float2(x), float2(x, y))"},
    {QN_DIALECT_METAL, "cross reflect", "(float3(x), float3(x, y, y)).x"},
    {QN_DIALECT_METAL, "normalize", "(float4(x, float2(y), x)).w"},
    {QN_DIALECT_METAL, "faceforward", "(float2(x), float2(y), float2(x)).x"},
    {QN_DIALECT_METAL, "refract", "(float2(x), float2(y), x).x"},
    {QN_DIALECT_METAL, "half2 bfloat3 short4 uchar2 ulong3 int4 bool2 double2 uint2", "(x).x"},
    {QN_DIALECT_METAL, "half bfloat bfloat16_t float16_t uchar int64_t size_t", "(x)"},
    {QN_DIALECT_METAL, "simd_sum simd_product simd_min simd_max simd_prefix_inclusive_sum quad_sum", "(x)"},
    {QN_DIALECT_METAL, "simd_and simd_or simd_xor simd_all simd_any simd_prefix_exclusive_product", "(i)"},
    {QN_DIALECT_METAL, "simd_shuffle simd_broadcast simd_shuffle_xor simd_shuffle_down quad_shuffle_up", "(x, 1)"},
    {QN_DIALECT_METAL, "simd_ballot simd_broadcast_first quad_broadcast_first", "(x), x"},
    {QN_DIALECT_METAL, "simd_is_first quad_is_first", "()"},
    {QN_DIALECT_METAL, "simd_shuffle_and_fill_up", "(x, y, 1)"},
    {QN_DIALECT_METAL, "threadgroup_barrier simdgroup_barrier", "(mem_flags::mem_threadgroup), x"},
    {QN_DIALECT_METAL, "as_type<uint>", "(x)"},
    {QN_DIALECT_METAL, "Limits<float>::max Limits<int>::min Limits<half>::max M_PI_F HALF_MAX INFINITY NAN", ""},
    {QN_DIALECT_METAL, "elem_to_loc", "(i, &i, &i, 1)"},
    {QN_DIALECT_METAL, "complex64_t", "(x, y).real"},
    {QN_DIALECT_METAL, "thread_position_in_grid.z threadgroup_position_in_grid.x thread_index_in_threadgroup", ""},
    {QN_DIALECT_METAL, "thread_position_in_grid.xy", ".y"},
    {QN_DIALECT_METAL, "fast::max precise::min fast::fmod precise::pow isordered fast::sincos precise::modf", "(x, y)"},
    {QN_DIALECT_METAL, "fast::clamp fast::fmax3 precise::median3", "(x, y, y)"},
    {QN_DIALECT_METAL, "numeric_limits<int> metal::numeric_limits<float> numeric_limits<half>", "::max()"},
    {QN_DIALECT_METAL, "is_same_v<float,half> metal::is_floating_point_v<bfloat> is_convertible_v<int,float>", ""},
    {QN_DIALECT_METAL, "conditional_t<true,float,int> remove_cv_t<float> common_type_t<int,float> decay_t<float>",
     "(x)"},
    {QN_DIALECT_METAL, "integral_constant<int,4>::value make_index_sequence<4>::size() array<float,2>{{1,2}}.size()",
     ""},
    {QN_DIALECT_METAL, "packed_float3 packed_half4 packed_uchar2", "(x).y"},
    {QN_DIALECT_METAL, "length", "(packed_float3(x))"},
    {QN_DIALECT_METAL, "float2x2 half3x3 float4x3", "(x)[1].y"},
    {QN_DIALECT_METAL, "determinant", "(float3x3(x) * float3x3(y))"},
    {QN_DIALECT_METAL, "simdgroup_float8x8 make_filled_simdgroup_matrix<float,8,8>", "(x).thread_elements()[0]"},
    {QN_DIALECT_METAL, "quad_prefix_inclusive_sum quad_prefix_exclusive_product", "(x)"},
    {QN_DIALECT_METAL, "half bfloat", "(x) > 1 ? half(x) : 0"},
    {QN_DIALECT_CUDA, "exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh", "(x)"},
    {QN_DIALECT_CUDA, "expf exp2f exp10f expm1f logf log2f log10f log1pf sinf cosf tanf asinf acosf atanf", "(x)"},
    {QN_DIALECT_CUDA, "sinhf coshf tanhf asinhf acoshf atanhf sinpif cospif erff sqrtf rsqrtf fabsf floorf", "(x)"},
    {QN_DIALECT_CUDA, "ceilf truncf rintf roundf nearbyintf saturatef normcdff cbrtf __expf __logf __sinf", "(x)"},
    {QN_DIALECT_CUDA, "__frcp_rn __fsqrt_rn __frsqrt_rn __float2int_rn __float_as_uint __saturatef lrintf", "(x)"},
    {QN_DIALECT_CUDA, "powf fmodf atan2f fminf fmaxf fdimf copysignf nextafterf hypotf __powf __fdividef min",
     "(x, y)"},
    {QN_DIALECT_CUDA, "fma fmaf __fmaf_rn", "(x, y, x)"},
    {QN_DIALECT_CUDA, "ldexpf scalbnf", "(x, i)"},
    {QN_DIALECT_CUDA, "frexpf", "(x, &i)"},
    {QN_DIALECT_CUDA, "sincosf", "(x, &y, &x), x"},
    {QN_DIALECT_CUDA, "__popc __clz __ffs __brev __ffsll __popcll", "(i)"},
    {QN_DIALECT_CUDA, "__mulhi __umulhi __umul64hi", "(i, i)"},
    {QN_DIALECT_CUDA, "__byte_perm __funnelshift_l __sad", "(i, i, i)"},
    {QN_DIALECT_CUDA, "make_float2 make_int2", "(x, y).x"},
    {QN_DIALECT_CUDA, "__half __nv_bfloat16 __float2half __float2bfloat16 __float2half_rn", "(x)"},
    {QN_DIALECT_CUDA, "__float2half2_rn", "(x).x"},
    {QN_DIALECT_CUDA, "__hadd __hmax", "(__half(x), __half(y))"},
    {QN_DIALECT_CUDA, "__habs hexp hsqrt __half2float", "(__half(x))"},
    {QN_DIALECT_CUDA, "__syncthreads __syncwarp __threadfence", "(), x"},
    {QN_DIALECT_CUDA, "__syncthreads_or", "(i)"},
    {QN_DIALECT_CUDA, "__shfl_sync __shfl_xor_sync __shfl_down_sync", "(~0u, x, 1)"},
    {QN_DIALECT_CUDA, "__any_sync __ballot_sync __match_any_sync __reduce_add_sync __reduce_max_sync", "(~0u, i)"},
    {QN_DIALECT_CUDA, "atomicAdd atomicMax atomicExch atomicInc atomicSub_system", "(&i, 1)"},
    {QN_DIALECT_CUDA, "atomicCAS", "(&i, 1, 2)"},
    {QN_DIALECT_CUDA, "cg::this_grid().thread_rank cg::this_grid().size cg::this_grid().block_rank", "()"},
    {QN_DIALECT_CUDA, "cg::this_thread_block().thread_rank cg::this_thread_block().size cg::coalesced_threads().size",
     "()"},
    {QN_DIALECT_CUDA, "cg::this_thread_block().sync cg::this_thread().sync", "(), x"},
    {QN_DIALECT_CUDA, "cg::tiled_partition<8>", "(cg::this_thread_block()).meta_group_rank()"},
    {QN_DIALECT_CUDA, "cg::reduce", "(cg::tiled_partition<8>(cg::this_thread_block()), x, cg::plus<float>())"},
    {QN_DIALECT_CUDA, "cg::inclusive_scan cg::exclusive_scan", "(cg::coalesced_threads(), i, cg::bit_or<int>())"},
    {QN_DIALECT_CUDA, "elem_to_loc", "(i, &i, &i, 1)"},
    {QN_DIALECT_CUDA, "elem_to_loc_nd<1>", "(i, &i, &i)"},
    {QN_DIALECT_CUDA, "Limits<float>::max Limits<int>::min Limits<__half>::finite_max", "()"},
    {QN_DIALECT_CUDA, "WARP_SIZE MAX_NDIM", ""},
    {QN_DIALECT_CUDA, "ceildiv", "(i, 2)"},
    {QN_DIALECT_CUDA, "load_vector<2> unsafe_load_vector<2>", "(&x, 0)[0]"},
    {QN_DIALECT_CUDA, "threadIdx.x blockIdx.y blockDim.z gridDim.x warpSize", ""},
};

static const char *const operations[] = {"add", "sub", "min", "max", "and", "or", "xor"};

static void add_kernel_text(qn_dialect dialect, const char *body, bool atomic, int number, qn_text *all)
{
  char name[32];
  snprintf(name, sizeof name, "word%d", number);
  qn_kernel *kernel = use_make(
      &(use){.name = name, .inputs = "inp", .outputs = "out", .body = body, .dialect = dialect, .atomic = atomic});
  qn_special special = {.target = QN_CPU, .dims = 1, .bound = 256, .items = 1};
  for (int k = 0; k < 2; k++)
    special.tensor[k].ndim = 1, special.tensor[k].form = QN_FORM_POINTER, special.tensor[k].dtype = QN_F32;
  if (atomic) special.tensor[1].dtype = QN_I32;
  qn_argument_layout layout = {0};
  qn_text text = {0}, lean = {0};
  qn_kernel_layout(kernel, &special, &layout);
  const bool ok = !qn_kernel_generate(kernel, &special, &layout, &text) &&
                  !qn_preprocess(&(qn_unit){.source = name, .text = text.at, .prune = true}, &lean);
  if (!ok) check(false, "the text of %s", body), exit(test_end());
  qn_text_add(all, "#define quern_group quern_group_%d\nnamespace n%d {\n%s\n}\n#undef quern_group\n", number, number,
              lean.at);
  for (const char *at = lean.at; (at = strstr(at, "#define ")); at++) { /* so that the next text begins anew */
    const char *macro = at + strlen("#define ");
    qn_text_add(all, "#undef %.*s\n", (int)strcspn(macro, " (\n"), macro);
  }
  qn_text_free(&lean);
  qn_text_free(&text);
  qn_kernel_destroy(&kernel);
}

static int add_groups(qn_text *all)
{
  char words[512], body[512], *rest;
  int n = 0;
  for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
    snprintf(words, sizeof words, "%s", groups[g].words);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
      snprintf(body, sizeof body,
               "float x = inp[0], y = inp[1]; int i = 3; (void)x, (void)y, (void)i; out[0] = (%s%s);", word,
               groups[g].arguments);
      add_kernel_text(groups[g].dialect, body, false, n++, all);
    }
  }
  for (size_t k = 0; k < sizeof operations / sizeof *operations; k++) {
    snprintf(body, sizeof body, "atomic_fetch_%s_explicit(&out[0], int(inp[0]), memory_order_relaxed);", operations[k]);
    add_kernel_text(QN_DIALECT_METAL, body, true, n++, all);
  }
  return n;
}

static void every_word_stands_alone(void)
{
  qn_emulator_compiler compiler;
  qn_text all = {0};
  char command[3 * QN_HOST_PATH_BYTES], said[512] = "";
  if (!check(qn_emulator_compiler_find(&compiler) == QN_OK, "there is a compiler")) return;
  const int n = add_groups(&all);
  write_file(scratch_path("all.cc"), all.at, all.length, 0600);
  snprintf(command, sizeof command, "'%s' -std=c++17 -fsyntax-only -w '%s' 2>&1", compiler.path,
           scratch_path("all.cc"));
  FILE *from = popen(command, "r");
  if (from && !fgets(said, sizeof said, from)) said[0] = 0;
  check(from && pclose(from) == 0 && !said[0], "%d texts of one word each compile: %s", n, said);
  qn_text_free(&all);
}

/* The part of base/maths.h in a unit whose own text is `own`:  base/maths.h, a source of some hundred lines. */
static void has(const char *what, const char *own, const char *wanted, const char *unwanted)
{
  char text[512];
  qn_text lean = {0};
  snprintf(text, sizeof text, "#include \"base/maths.h\"\n%s\n", own);
  check(qn_preprocess(&(qn_unit){.source = "own.cc", .text = text, .prune = true}, &lean) == QN_OK && lean.at &&
            strstr(lean.at, own) && (!*wanted || strstr(lean.at, wanted)) && !strstr(lean.at, unwanted),
        "%s: \"%s\" stays and \"%s\" does not", what, wanted, unwanted);
  qn_text_free(&lean);
}

static void what_is_named_stays(void)
{
  has("no name", "float a = 1;", "#ifndef QN_BASE_MATHS_H", "qn_exp");
  has("a function", "float a = qn_exp(1);", "qn_times_power(qn_f32 p", "qn_log");
  has("a type", "float a = qn_sin(1);", "typedef struct qn_angle {", "qn_sigmoid");
  has("a name in a macro", "#define F qn_exp\nfloat a = F(1);", "qn_exp(qn_f32 x)", "qn_log");
  has("a name in a comment", "float a = 1; // qn_log", "", "qn_log(");
  has("a name made by ##", "#define F(x) qn_##x(1)\nfloat a = F(log);", "qn_f32 qn_log(", "no such text");
}

int main(void)
{
  scratch_begin();
  what_is_named_stays();
  every_word_stands_alone();
  return test_end();
}
