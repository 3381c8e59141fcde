/* SPDX-License-Identifier: Apache-2.0 */
/* dialect.c - which of the dialects' words a kernel's text needs: a file of words/ is included where the text has one
 * of the tokens that stand for it here, so that a short body compiles as fast as it can. The files include what they
 * themselves stand on.
 *
 *   Metal  metal_types.h   always: types, constants
 *          half.h   half, bfloat, or a tensor or template value of such a type
 *          vector.h  vectors, swizzles, dot and the like; positions that are not only asked for x, y or z
 *          metal.h   functions that compilers know: exp, sin, abs, min ...
 *          metal_math.h    the rest of the real functions: tan, pow, asin ...
 *          integer.h functions of whole numbers
 *          packed.h, matrix.h, simdgroup.h, limits.h (numeric_limits), array.h, traits.h: as they say
 *          index.h   MLX's helpers: elem_to_loc, ceildiv, Limits, complex64_t (complex.h)
 *          atomic.h  atomics
 *          simd.h    barriers and words of a simdgroup
 *   CUDA   cuda.h    always: types, qualifiers, functions of whole numbers
 *          cuda_math.h, cuda_half.h, cuda_sync.h, cuda_atomic.h, cuda_mma.h: as they say; groups.h: cooperative_groups
 *          cuda_index.h  MLX's helpers: Shape, elem_to_loc, Limits, AlignedVector (loc.h, complex.h) */
#include "kernel/kernel.h"
#include <string.h>

/* A word that ends in * stands for all that begin so. */
typedef struct word_file {
  const char *file, *words;
} word_file;

static const word_file metal_files[] = {
    /* the first: qn_words_have_short */
    {"half.h",
     " half bfloat bfloat16_t float16_t half2 half3 half4 bfloat2 bfloat3 bfloat4 HALF_* packed_half* packed_bfloat* "
     "half2x* half3x* half4x* simdgroup_half8x8 simdgroup_bfloat8x8 MAXHALF M_E_H M_PI_H "
     "M_LOG2E_H M_LN2_H M_LN10_H M_PI_2_H M_PI_4_H M_1_PI_H M_2_PI_H M_SQRT2_H M_SQRT1_2_H "},
    {"vector.h", " vec bool2 bool3 bool4 char2 char3 char4 uchar2 uchar3 uchar4 short2 short3 short4 ushort2 ushort3 "
                 "ushort4 int2 int3 int4 uint2 uint3 uint4 long2 long3 long4 ulong2 ulong3 ulong4 half2 half3 half4 "
                 "bfloat2 bfloat3 bfloat4 float2 float3 float4 double2 double3 double4 any all dot cross length "
                 "length_squared distance distance_squared normalize reflect refract faceforward "},
    {"metal.h", " metal fast precise isnan isinf isfinite isnormal signbit abs min max clamp select exp exp2 expm1 log "
                "log2 log1p sin "
                "cos tanh erf sqrt rsqrt fabs floor ceil trunc rint round fmin fmax copysign step divide fma mix fract "
                "sign saturate smoothstep isordered isunordered "},
    {"metal_math.h", " tan asin acos atan sinh cosh asinh acosh atanh log10 pow fmod atan2 nextafter exp10 sinpi "
                     "cospi tanpi powr fdim ldexp frexp ilogb modf sincos "},
    {"integer.h",
     " popcount clz ctz reverse_bits rotate mulhi madhi madsat mul24 mad24 absdiff hadd rhadd addsat subsat "
     "extract_bits insert_bits min3 max3 median3 fmin3 fmax3 fmedian3 "},
    {"simd.h", " threadgroup_barrier simdgroup_barrier mem_flags simd_* quad_* "},
    {"atomic.h", " atomic atomic_* _atomic mlx_atomic* memory_order* thread_scope* "},
    {"packed.h", " packed_* "},
    {"matrix.h",
     " matrix transpose determinant float2x* float3x* float4x* half2x* half3x* half4x* bfloat2x* bfloat3x* bfloat4x* "},
    {"simdgroup.h",
     " simdgroup_matrix simdgroup_float8x8 simdgroup_half8x8 simdgroup_bfloat8x8 make_filled_simdgroup_matrix "
     "make_diagonal_simdgroup_matrix simdgroup_load simdgroup_store simdgroup_multiply* "},
    {"limits.h", " numeric_limits float_denorm_style float_round_style denorm_* round_* "},
    {"array.h", " array make_array "},
    {"traits.h",
     " is_* remove_* add_const* add_volatile* add_cv* add_pointer* add_lvalue_reference* add_rvalue_reference* declval "
     "conditional conditional_t enable_if enable_if_t integral_constant bool_constant true_type false_type void_t "
     "conjunction* disjunction* negation* alignment_of* rank rank_v extent extent_v decay decay_t underlying_type* "
     "common_type* make_signed* make_unsigned* make_scalar* make_vector* vec_elements* integer_sequence index_sequence "
     "make_integer_sequence make_index_sequence move forward "},
    {"index.h", " ceildiv elem_to_loc* Limits complex64_t "},
};

static const word_file cuda_files[] = {
    {"cuda_math.h",
     " exp* log* sin* cos* tan* asin* acos* atan* erf erff sqrt* rsqrt* fabs* floor* ceil* trunc* rint* round* "
     "nearbyint* "
     "fmin* fmax* fdim* copysign* pow* fmod* fma fmaf min max abs isnan isinf isfinite signbit ldexp* scalbn* frexp* "
     "modf* "
     "saturatef normcdff hypotf cbrtf nextafter* lrintf lroundf __exp* __log* __sin* __cos* __tan* __pow* __f* __d* "
     "__int2float* __uint2float* __saturatef __fma* __sad sinpi* cospi* "},
    {"cuda_half.h",
     " half half2 __half __half2 __nv_bfloat* nv_bfloat* __h* h2* hexp* hlog* hsqrt hrsqrt hrcp hsin hcos "
     "hfloor hceil htrunc hrint __float2half* __float2bfloat* __floats2* __bfloat* __ushort_as_* __short_as_* "
     "__low* __int2half* __uint2half* __double2half make_half2 make_bfloat162 "},
    {"cuda_sync.h",
     " __sync* __shfl* __ballot_sync __any_sync __all_sync __activemask __match* __reduce* __threadfence* "},
    {"cuda_atomic.h", " atomic* "},
    {"cuda_mma.h", " mma_* __float_to_tf32 __pipeline_* "},
    {"groups.h", " cooperative_groups cg "},
    {"cuda_index.h", " WARP_SIZE MAX_NDIM Shape Strides ceildiv elem_to_loc* Limits AlignedVector is_aligned "
                     "load_vector store_vector unsafe_load_vector unsafe_store_vector "},
    {"complex.h", " complex64_t "},
};

static bool holds(const char *words, const char *word, size_t n)
{
  for (const char *at = words; (at = strchr(at, ' ')) != NULL;) {
    const size_t length = strcspn(++at, " ");
    const bool prefix = length && at[length - 1] == '*';
    if (prefix ? n >= length - 1 && !memcmp(at, word, length - 1) : n == length && length && !memcmp(at, word, n))
      return true;
  }
  return false;
}

/* Words in macros count; so do those in comments there, which costs a little time and nothing else. */
static bool directive_holds(const char *words, const char *at, size_t n)
{
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  for (size_t k = 0; k < n;) {
    size_t length = 0;
    while (k + length < n && strchr(letters, at[k + length]) && at[k + length]) length++;
    if (length && holds(words, at + k, length)) return true;
    k += length ? length : 1;
  }
  return false;
}

static bool text_holds(const qn_tokens *tokens, const char *words)
{
  for (size_t k = 0; k < tokens->n; k++) {
    const char *at = tokens->text + tokens->token[k].at;
    const size_t n = tokens->token[k].length;
    if (tokens->token[k].kind == QN_TOKEN_WORD && holds(words, at, n)) return true;
    if (tokens->token[k].kind == QN_TOKEN_DIRECTIVE && directive_holds(words, at, n)) return true;
  }
  return false;
}

static bool kernel_holds(const qn_kernel *kernel, const char *words)
{
  for (int which = 0; which < QN_KERNEL_TEXTS; which++)
    if (text_holds(&kernel->tokens[which], words)) return true;
  return false;
}

static bool has_dtype(const qn_kernel *kernel, const qn_special *special, qn_dtype dtype)
{
  const size_t n = kernel->source.n_inputs + kernel->source.n_outputs;
  for (size_t k = 0; k < n; k++)
    if (special->tensor[k].dtype == dtype) return true;
  for (size_t k = 0; k < special->n_templates; k++)
    if (special->templates[k].value.kind == QN_VALUE_DTYPE && special->templates[k].value.dtype == dtype) return true;
  return false;
}

/* 1.5h, or a swizzle. */
static bool has_literal_of_half(const qn_tokens *tokens)
{
  for (size_t k = 0; k < tokens->n; k++) {
    const char last = tokens->text[tokens->token[k].at + tokens->token[k].length - 1];
    const char *at = tokens->text + tokens->token[k].at;
    if (tokens->token[k].kind == QN_TOKEN_NUMBER &&
        (last == 'h' || last == 'H' || memchr(at, 'b', tokens->token[k].length)))
      return true;
  }
  return false;
}

bool qn_words_have_short(const qn_kernel *kernel, const qn_special *special)
{
  if (kernel->source.dialect != QN_DIALECT_METAL) return false;
  return kernel_holds(kernel, metal_files[0].words) || has_dtype(kernel, special, QN_F16) ||
         has_dtype(kernel, special, QN_BF16) || has_literal_of_half(&kernel->tokens[QN_KERNEL_BODY]) ||
         has_literal_of_half(&kernel->tokens[QN_KERNEL_HEADER]);
}

/* thread_position_in_grid.x, as a body writes it mostly. */
static bool is_one_number(const qn_tokens *t, size_t k)
{
  return k + 2 < t->n && qn_token_is(t, k + 1, ".") && t->token[k + 2].length == 1 &&
         memchr("xyz", t->text[t->token[k + 2].at], 3);
}

bool qn_words_whole_positions(const qn_kernel *kernel)
{
  const qn_tokens *t = &kernel->tokens[QN_KERNEL_BODY];
  for (int a = 0; a < QN_ATTRIBUTE_COUNT; a++) {
    const char *name = qn_attributes[a].name;
    if (!(kernel->attributes >> a & 1) || strcmp(qn_attributes[a].type, "uint3") != 0) continue;
    for (size_t k = 0; k < t->n; k++)
      if (t->token[k].kind == QN_TOKEN_DIRECTIVE
              ? memmem(t->text + t->token[k].at, t->token[k].length, name, strlen(name)) != NULL
              : qn_token_is(t, k, name) && !is_one_number(t, k))
        return true;
  }
  return false;
}

/* A file that stands for something that is no token of the text. */
static bool is_needed(const qn_kernel *kernel, const qn_special *special, const char *file)
{
  if (!strcmp(file, "vector.h")) return qn_words_whole_positions(kernel);
  if (!strcmp(file, "atomic.h")) return kernel->source.atomic != 0;
  if (!strcmp(file, "cuda_half.h")) return has_dtype(kernel, special, QN_F16) || has_dtype(kernel, special, QN_BF16);
  if (!strcmp(file, "cuda_index.h"))
    return (kernel->named_shape[0] | kernel->named_strides[0] | kernel->named_shape[1] | kernel->named_strides[1]) != 0;
  return (!strcmp(file, "index.h") || !strcmp(file, "complex.h")) && has_dtype(kernel, special, QN_C64);
}

static void include(const char *file, qn_text *text) { qn_text_add(text, "#include \"kernel/dialect/%s\"\n", file); }

void qn_words_include(const qn_kernel *kernel, const qn_special *special, qn_text *text)
{
  const bool metal = kernel->source.dialect == QN_DIALECT_METAL;
  const word_file *files = metal ? metal_files : cuda_files;
  const size_t n = metal ? sizeof metal_files / sizeof *metal_files : sizeof cuda_files / sizeof *cuda_files;
  include(metal ? "metal_types.h" : "cuda.h", text);
  if (qn_words_have_short(kernel, special)) include("half.h", text);
  for (size_t k = metal; k < n; k++)
    if (kernel_holds(kernel, files[k].words) || is_needed(kernel, special, files[k].file)) include(files[k].file, text);
}

bool qn_words_meet(const char *word, size_t n, bool member)
{
  return holds(member ? " sync shfl* ballot any all "
                      : " threadgroup_barrier simdgroup_* simd_* quad_* __sync* __shfl* __ballot* __any* __all* "
                        "__match* __reduce* __activemask mma_* ",
               word, n);
}

bool qn_words_need_group(const qn_kernel *kernel)
{
  return kernel_holds(kernel, " threadgroup threadgroup_barrier simdgroup_* simd_* quad_* __sync* __shfl* __shared__ "
                              "__ballot* __any* __all* __match* __reduce* __activemask mma_* ") ||
         (kernel_holds(kernel, " cooperative_groups cg ") &&
          kernel_holds(kernel, " sync tiled_partition coalesced_threads this_thread thread_group coalesced_group "
                               "thread_block_tile "));
}

bool qn_words_loop(const qn_kernel *kernel)
{
  static const char *const words[] = {"for", "while", "do", "goto"};
  for (int which = 0; which < QN_KERNEL_TEXTS; which++)
    for (size_t j = 0; j < sizeof words / sizeof *words; j++)
      if (qn_tokens_have(&kernel->tokens[which], words[j])) return true;
  return false;
}

bool qn_words_straight(const qn_kernel *kernel)
{
  enum { SHORT = 256 };
  return kernel->tokens[QN_KERNEL_BODY].n + kernel->tokens[QN_KERNEL_HEADER].n <= SHORT && !qn_words_loop(kernel);
}

bool qn_attributes_of_grid(const qn_kernel *kernel)
{
  bool all = true;
  for (int k = 0; k < QN_ATTRIBUTE_COUNT; k++)
    if (kernel->attributes >> k & 1) all &= qn_attributes[k].of_grid;
  return all;
}
