/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_emit.c - the emitted forms as texts: Metal's against the signature that MLX documents, the others against what
 * a reader of them relies on; what a form cannot say is refused. With a folder as argument it writes all forms of all
 * kernels there, for tests that compile and run them. */
#include "emit_kernels.h"
#include <ctype.h>

/* ---- texts, blanks aside ---- */
static bool same_but_blanks(const char *a, const char *b)
{
  for (;; a++, b++) {
    while (isspace((unsigned char)*a)) a++;
    while (isspace((unsigned char)*b)) b++;
    if (*a != *b) return false;
    if (!*a) return true;
  }
}

static char *emitted(const qn_kernel *kernel, qn_emit form, const qn_kernel_call *call)
{
  char *text = NULL;
  if (qn_kernel_emit(kernel, form, call, &text) != QN_OK) printf("# %s\n", qn_last_error());
  return text;
}

/* From the function on: what stands before it is ours. */
static const char *from_function(const char *text, const char *first)
{
  const char *at = text ? strstr(text, first) : NULL;
  return at ? at : "";
}

static void as_documented(void)
{
  emit_case c;
  emit_myexp(&c);
  qn_kernel *kernel = emit_create(&c);
  char *text = emitted(kernel, QN_EMIT_METAL, &c.call);
  check(same_but_blanks(
            from_function(text, "template"),
            "template <typename T> [[kernel]] void custom_kernel_myexp_float_float16_t_float16_t("
            "const device float16_t* inp [[buffer(0)]], device float16_t* out [[buffer(1)]], uint3 "
            "thread_position_in_grid [[thread_position_in_grid]]) { uint elem = thread_position_in_grid.x; T tmp = "
            "inp[elem]; out[elem] = metal::exp(tmp); } template "
            "[[host_name(\"custom_kernel_myexp_float_float16_t_float16_t\")]] [[kernel]] "
            "decltype(custom_kernel_myexp_float_float16_t_float16_t<float>) "
            "custom_kernel_myexp_float_float16_t_float16_t<float>;"),
        "myexp's Metal form is the one that MLX documents");
  check(text && !strncmp(text, "// myexp.metal", 14) &&
            strstr(text, "\n#include <metal_stdlib>\nusing namespace metal;\n"),
        "before it stands Metal's library");
  qn_text_release(&text);
  qn_kernel_destroy(&kernel);
}

static void all_parameters(void)
{
  emit_case c;
  emit_strided(&c);
  qn_kernel *kernel = emit_create(&c);
  char *text = emitted(kernel, QN_EMIT_METAL, &c.call);
  const char *function = from_function(text, "template <int N, bool FLIP, typename T>");
  const char *end = strstr(function, ") {");
  char signature[2048];
  snprintf(signature, sizeof signature, "%.*s", end ? (int)(end - function) : 0, function);
  check(same_but_blanks(signature,
                        "template <int N, bool FLIP, typename T> [[kernel]] void "
                        "custom_kernel_strided__3_1_bfloat16_t_float_bfloat16_tc_floats_int32_ts_float_float16_t("
                        "const device float* inp [[buffer(0)]], const constant int* inp_shape [[buffer(1)]], const "
                        "constant int64_t* inp_strides [[buffer(2)]], const constant int& inp_ndim [[buffer(3)]], "
                        "const constant bfloat16_t* few [[buffer(4)]], const constant float& scale [[buffer(5)]], "
                        "const constant int32_t& count [[buffer(6)]], device float* out [[buffer(7)]], device "
                        "float16_t* twice [[buffer(8)]], uint3 thread_position_in_grid [[thread_position_in_grid]], "
                        "uint3 threads_per_grid [[threads_per_grid]]"),
        "all kinds of parameters, in MLX's order and spaces:\n# %s", end ? "" : function);
  check(strstr(function, "const int out_shape[] = {6, 8}; uint3 p") != NULL, "a shape of an output is a constant");
  check(text && strstr(text, "typedef bfloat bfloat16_t;") && strstr(text, "I elem_to_loc(I elem") &&
            strstr(text, " T ceildiv(T n, U by)") && strstr(text, "inline float helper") &&
            !strstr(text, "struct Limits"),
        "the helpers that it names, and its header, stand before it");
  check(strstr(function, "<-3, 1, bfloat16_t>;") != NULL, "its instance");
  qn_text_release(&text);
  qn_kernel_destroy(&kernel);
}

static void atomics_and_none(void)
{
  emit_case c;
  emit_histogram(&c);
  qn_kernel *kernel = emit_create(&c);
  char *text = emitted(kernel, QN_EMIT_METAL, &c.call);
  check(text && strstr(text, "\n[[kernel]] void custom_kernel_histogram_int32_t_int32_t(") &&
            strstr(text, "device atomic<int32_t>* bins [[buffer(1)]]") && !strstr(text, "host_name") &&
            !strstr(text, "template"),
        "atomic outputs; without template values nothing is instantiated");
  qn_text_release(&text);
  qn_kernel_destroy(&kernel);
}

static void comments_of_files(void)
{
  emit_case c;
  emit_histogram(&c);
  qn_kernel *kernel = emit_create(&c);
  char *text = emitted(kernel, QN_EMIT_CUDA, &c.call);
  check(text && strstr(text, "nvcc -std=c++17 -fmad=false -c histogram.cu") &&
            strstr(text, "int quern_launch_histogram(const int *inp, int *bins, const unsigned int grid[3], const "
                         "unsigned int group[3], void *stream);") &&
            strstr(text, "bins       i32, 1 dimensions, in the device's memory; to be filled with 5 before") &&
            strstr(text, "NULL: (200, 1, 1)") && !strstr(text, "#include \""),
        "a CUDA file says how it is compiled and called, and includes nothing of ours");
  qn_text_release(&text);
  text = emitted(kernel, QN_EMIT_HIP, &c.call);
  check(text && strstr(text, "#include <hip/hip_runtime.h>\n") && strstr(text, "hipLaunchKernel(") &&
            strstr(text, "#pragma clang fp contract(off)") && !strstr(text, "cudaLaunch"),
        "a HIP file says the same in HIP's words");
  qn_text_release(&text);
  qn_kernel_destroy(&kernel);
}

/* ---- refusals ---- */
static void refuse(void (*make)(emit_case *), void (*change)(emit_case *), qn_emit form, qn_status status,
                   const char *words)
{
  emit_case c;
  make(&c);
  if (change) change(&c);
  qn_kernel *kernel = emit_create(&c);
  char *text = (char *)&c;
  refuses(qn_kernel_emit(kernel, form, &c.call, &text), status, words);
  check(!text, "and gives no text");
  qn_kernel_destroy(&kernel);
}

static void make_double(emit_case *c) { c->out[0].dtype = QN_F64; }
static void make_double_template(emit_case *c) { c->templates[0].value.dtype = QN_F64; }
static void make_wide(emit_case *c) { c->templates[0].value.integer = INT64_MAX; }
static void make_half_atomic(emit_case *c) { c->source.atomic = 2; }
static void make_shared(emit_case *c) { c->call.shared_bytes = 1024; }
static void make_in_place(emit_case *c)
{
  static const int stored_in[] = {0, -1};
  c->call.stored_in = stored_in;
}
static void make_two_inits(emit_case *c)
{
  c->init[0] = (qn_value){.kind = QN_VALUE_FLOAT, .real = 1};
  c->init[1] = (qn_value){.kind = QN_VALUE_FLOAT, .real = 2};
  c->call.init = c->init;
}
static void make_one_init(emit_case *c)
{
  c->init[1] = (qn_value){.kind = QN_VALUE_FLOAT, .real = 2};
  c->call.init = c->init;
}
static void make_empty_grid(emit_case *c) { c->call.grid[1] = 0; }

static void refusals(void)
{
  refuse(emit_cuda, NULL, QN_EMIT_METAL, QN_UNSUPPORTED, "rows is written in CUDA's words, which have no Metal form");
  refuse(emit_myexp, make_double, QN_EMIT_METAL, QN_UNSUPPORTED, "out is f64, which Metal does not have");
  refuse(emit_myexp, make_double_template, QN_EMIT_MLX, QN_UNSUPPORTED, "template T is f64");
  refuse(emit_myexp, make_shared, QN_EMIT_METAL, QN_UNSUPPORTED, "1024 bytes of dynamic threadgroup memory");
  refuse(emit_strided, make_wide, QN_EMIT_MLX, QN_UNSUPPORTED, "template N is 9223372036854775807, and MLX's have 32");
  refuse(emit_strided, make_half_atomic, QN_EMIT_MLX, QN_UNSUPPORTED, "some outputs are atomic and some are not");
  refuse(emit_myexp, make_in_place, QN_EMIT_MLX, QN_UNSUPPORTED, "out is given inp's memory");
  refuse(emit_strided, make_two_inits, QN_EMIT_MLX, QN_UNSUPPORTED, "out and twice begin with different values");
  refuse(emit_strided, make_one_init, QN_EMIT_MLX, QN_UNSUPPORTED, "out and twice begin with different values");
  refuse(emit_myexp, make_empty_grid, QN_EMIT_CUDA, QN_BAD_ARGUMENT, "grid (64, 0, 1)");
  refuse(emit_myexp, NULL, QN_EMIT_COUNT, QN_BAD_ARGUMENT, "4 is no form");
  emit_case c;
  char *text;
  emit_myexp(&c);
  qn_kernel *kernel = emit_create(&c);
  refuses(qn_kernel_emit(kernel, QN_EMIT_MLX, &c.call, NULL), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_kernel_emit(NULL, QN_EMIT_MLX, &c.call, &text), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_kernel_emit(kernel, QN_EMIT_MLX, NULL, &text), QN_BAD_ARGUMENT, "no outputs");
  check(!strcmp(qn_emit_name(QN_EMIT_HIP), "hip") && !strcmp(qn_emit_name(QN_EMIT_COUNT), "none"), "names of forms");
  qn_kernel_destroy(&kernel);
}

/* ---- files for other tests ---- */
static void write_all(const char *folder)
{
  static const char *const endings[] = {"cu", "hip", "metal", "py"};
  for (size_t k = 0; k < EMIT_CASES; k++) {
    static emit_case c;
    emit_makers[k](&c);
    qn_kernel *kernel = emit_create(&c);
    for (int form = 0; form < QN_EMIT_COUNT; form++) {
      char path[4096];
      if (form == QN_EMIT_METAL && c.source.dialect == QN_DIALECT_CUDA) continue;
      char *text = emitted(kernel, (qn_emit)form, &c.call);
      snprintf(path, sizeof path, "%s/%s.%s", folder, c.source.name, endings[form]);
      FILE *file = text ? fopen(path, "w") : NULL;
      const bool written = file && fputs(text, file) >= 0;
      check((!file || fclose(file) == 0) && written, "%s", path);
      qn_text_release(&text);
    }
    qn_kernel_destroy(&kernel);
  }
}

int main(int argc, char **argv)
{
  if (argc == 2) {
    write_all(argv[1]);
    return test_end();
  }
  as_documented();
  all_parameters();
  atomics_and_none();
  comments_of_files();
  refusals();
  return test_end();
}
