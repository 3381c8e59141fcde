/* SPDX-License-Identifier: Apache-2.0 */
/* emit_device.c - a kernel as one file of CUDA C or HIP C: the text that a launch compiles for a GPU with every include
 * in its place, and behind it a launcher with C linkage that fills the argument and launches. The kernel is specialised
 * for the call that it was emitted for: types, template values, number of dimensions, flat or not, largest group.
 * Grids, groups, pointers, shapes and strides are the launcher's parameters. */
#include "device/preprocess.h"
#include "kernel/emit.h"
#include <string.h>

typedef struct writer {
  const qn_kernel *kernel;
  const qn_kernel_call *call;
  qn_special special;
  qn_argument_layout layout;
  uint32_t group[3], blocks[3];
  bool hip;
  qn_text *text;
} writer;

/* In C, for the launcher's parameters: what has no type there comes as its address, or as its 16 bits. */
static const char *c_word(qn_dtype dtype)
{
  static const char *const words[QN_DTYPE_COUNT] = {[QN_F32] = "float",
                                                    [QN_BF16] = "unsigned short",
                                                    [QN_F16] = "unsigned short",
                                                    [QN_F64] = "double",
                                                    [QN_BOOL] = "unsigned char",
                                                    [QN_U8] = "unsigned char",
                                                    [QN_I8] = "signed char",
                                                    [QN_U16] = "unsigned short",
                                                    [QN_I16] = "short",
                                                    [QN_U32] = "unsigned int",
                                                    [QN_I32] = "int",
                                                    [QN_U64] = "unsigned long long",
                                                    [QN_I64] = "long long",
                                                    [QN_C64] = "float"};
  return words[dtype];
}

static const char *tensor_name(const writer *w, const qn_argument_member *member)
{
  return qn_source_tensor_name(&w->kernel->source, member->tensor);
}

static bool is_input(const writer *w, const qn_argument_member *member)
{
  return member->tensor < w->kernel->source.n_inputs;
}

/* ---- the launcher's parameters ---- */
static void add_parameter(const writer *w, const qn_argument_member *member)
{
  const qn_tensor *t = qn_call_tensor(w->kernel, w->call, member->tensor);
  const char *name = tensor_name(w, member);
  switch ((qn_member_kind)member->kind) {
  case QN_MEMBER_POINTER:
    qn_text_add(w->text, "%s%s *%s, ", is_input(w, member) ? "const " : "", c_word(t->dtype), name);
    break;
  case QN_MEMBER_VALUE:
    qn_text_add(w->text, t->dtype == QN_C64 ? "const %s *%s, " : "%s %s, ", c_word(t->dtype), name);
    break;
  case QN_MEMBER_SHAPE: qn_text_add(w->text, "const int *%s_shape, ", name); break;
  case QN_MEMBER_STRIDES: qn_text_add(w->text, "const long long *%s_strides, ", name); break;
  case QN_MEMBER_NDIM: break; /* is compiled in */
  }
}

static void add_prototype(const writer *w)
{
  qn_text_add(w->text, "int quern_launch_%s(", w->kernel->source.name);
  for (size_t i = 0; i < w->layout.n; i++) add_parameter(w, &w->layout.member[i]);
  qn_text_add(w->text, "const unsigned int grid[3], const unsigned int group[3], void *stream)");
}

/* ---- the comment ---- */
static void add_tensor_line(const writer *w, size_t k)
{
  const qn_tensor *t = qn_call_tensor(w->kernel, w->call, k);
  const qn_kernel_source *s = &w->kernel->source;
  const bool input = k < s->n_inputs;
  const char *name = qn_source_tensor_name(&w->kernel->source, k);
  qn_text_add(w->text, " *   %-10s %s, ", name, qn_dtype_name(t->dtype));
  if (w->special.tensor[k].form == QN_FORM_VALUE)
    qn_text_add(w->text, t->dtype == QN_BF16 || t->dtype == QN_F16 ? "a value, as its 16 bits"
                         : t->dtype == QN_C64                      ? "a value, two floats in host memory"
                                                                   : "a value");
  else
    qn_text_add(w->text, "%d dimensions, in the device's memory%s", t->ndim,
                input && !(s->strided >> k & 1) && t->ndim ? ", row-major" : "");
  const qn_value *init = !input && w->call->init ? &w->call->init[k - s->n_inputs] : NULL;
  if (init && init->kind != QN_VALUE_NONE)
    qn_text_add(w->text, "; to be filled with %g before",
                init->kind == QN_VALUE_FLOAT ? init->real : (double)init->integer);
  qn_text_add(w->text, "\n");
}

static void add_comment(const writer *w)
{
  const qn_kernel_source *s = &w->kernel->source;
  static const char *const nvcc[] = {"-fmad=false ", "", "--use_fast_math "};
  const char *math = w->hip ? (s->math == QN_MATH_FAST ? "-ffast-math " : "") : nvcc[s->math];
  qn_text_add(w->text,
              "/* %s.%s - kernel \"%s\" as %s C, made by quern " QN_VERSION
              " from its body.\n *   %s %s-c %s.%s\n *   ",
              s->name, w->hip ? "hip" : "cu", s->name, w->hip ? "HIP" : "CUDA",
              w->hip       ? "hipcc -std=c++17 --offload-arch=gfx90a"
              : s->cluster ? "nvcc -std=c++17 -arch=sm_90a"
                           : "nvcc -std=c++17",
              math, s->name, w->hip ? "hip" : "cu");
  add_prototype(w);
  qn_text_add(w->text, ";\n");
  for (size_t k = 0; k < s->n_inputs + s->n_outputs; k++) add_tensor_line(w, k);
  qn_text_add(w->text,
              " * grid: threads in all along x, y, z; NULL: (%llu, %llu, %llu). group: threads of a group, %d at most; "
              "NULL: (%u, %u, %u).\n * stream: a %sStream_t. Returns a %sError_t; the work is queued, not waited for. "
              "*/\n",
              (unsigned long long)w->call->grid[0], (unsigned long long)w->call->grid[1],
              (unsigned long long)w->call->grid[2], (int)w->special.bound, w->group[0], w->group[1], w->group[2],
              w->hip ? "hip" : "cuda", w->hip ? "hip" : "cuda");
}

/* ---- the launcher ---- */
static void add_member(const writer *w, const qn_argument_member *member)
{
  const qn_tensor *t = qn_call_tensor(w->kernel, w->call, member->tensor);
  const char *name = tensor_name(w, member);
  const char *address =
      member->kind == QN_MEMBER_POINTER || (member->kind == QN_MEMBER_VALUE && t->dtype != QN_C64) ? "&" : "";
  static const char *const parts[] = {
      [QN_MEMBER_POINTER] = "", [QN_MEMBER_VALUE] = "", [QN_MEMBER_SHAPE] = "_shape", [QN_MEMBER_STRIDES] = "_strides"};
  const size_t bytes = member->kind == QN_MEMBER_POINTER ? sizeof(void *)
                       : member->kind == QN_MEMBER_VALUE ? qn_dtype_bytes(t->dtype)
                       : member->kind == QN_MEMBER_SHAPE ? 4 * (size_t)t->ndim
                                                         : 8 * (size_t)t->ndim;
  if (member->kind == QN_MEMBER_NDIM)
    qn_text_add(w->text, "  const int n%u = %d;\n  __builtin_memcpy(argument + %u, &n%u, 4);\n", member->tensor,
                t->ndim, member->offset, member->tensor);
  else
    qn_text_add(w->text, "  __builtin_memcpy(argument + %u, %s%s%s, %zu);\n", member->offset, address, name,
                parts[member->kind], bytes);
}

/* Refuses inputs that this specialisation was not made for. */
static void add_refusals(const writer *w, const char *error)
{
  qn_text_add(w->text,
              "  const unsigned int usual_grid[3] = {%uu, %uu, %uu}, usual_group[3] = {%uu, %uu, %uu};\n"
              "  if (!grid) grid = usual_grid;\n  if (!group) group = usual_group;\n"
              "  if (!grid[0] || !grid[1] || !grid[2] || !group[0] || !group[1] || !group[2]) return %s;\n"
              "  if (static_cast<unsigned long long>(group[0]) * group[1] * group[2] > %u) return %s;\n",
              (unsigned)w->call->grid[0], (unsigned)w->call->grid[1], (unsigned)w->call->grid[2], w->group[0],
              w->group[1], w->group[2], error, w->special.bound, error);
  if (w->special.dims == 1)
    qn_text_add(w->text,
                "  if (grid[1] != 1 || grid[2] != 1 || group[1] != 1 || group[2] != 1) return %s; /* made "
                "flat */\n",
                error);
}

static void add_geometry(const writer *w, const char *error)
{
  const bool native = w->kernel->source.dialect == QN_DIALECT_CUDA, folded = w->special.folded[0] != 0;
  qn_text_add(w->text, "  unsigned int geometry[10] = {grid[0], grid[1], grid[2], group[0], group[1], group[2]};\n"
                       "  for (int d = 0; d < 3; d++) geometry[6 + d] = static_cast<unsigned int>((grid[d] - 1ull) / "
                       "group[d] + 1);\n"
                       "  const unsigned int *blocks = geometry + 6;\n  __builtin_memcpy(argument, geometry, "
                       "sizeof geometry);\n");
  if (folded)
    qn_text_add(w->text,
                "  if (blocks[0] != %lluu || blocks[1] != %lluu || blocks[2] != %lluu) return %s; /* folded "
                "for these */\n",
                (unsigned long long)w->special.folded[0], (unsigned long long)w->special.folded[1],
                (unsigned long long)w->special.folded[2], error);
  if (native && !folded)
    qn_text_add(w->text,
                "  if (blocks[1] > 65535 || blocks[2] > 65535) return %s;\n  const dim3 of_grid(blocks[0], "
                "blocks[1], blocks[2]);\n",
                error);
  else
    qn_text_add(w->text,
                "  const unsigned long long all = static_cast<unsigned long long>(blocks[0]) * blocks[1];\n"
                "  if (all > 0x7fffffff || all * blocks[2] > 0x7fffffff) return %s;\n"
                "  const dim3 of_grid(static_cast<unsigned int>(all * blocks[2]), 1, 1);\n",
                error);
  qn_text_add(w->text, native ? "  const dim3 of_group(group[0], group[1], group[2]);\n"
                              : "  const dim3 of_group(group[0] * group[1] * group[2], 1, 1);\n");
}

static void add_launcher(const writer *w)
{
  const char *prefix = w->hip ? "hip" : "cuda", *name = w->kernel->source.name;
  const char *error = w->hip ? "hipErrorInvalidValue" : "cudaErrorInvalidValue";
  const size_t shared = w->call->shared_bytes;
  qn_text_add(w->text, "extern \"C\" ");
  add_prototype(w);
  qn_text_add(w->text,
              "\n{\n  static_assert(sizeof(QN_WORDS::quern_argument) == %zu, \"the argument is as the launcher fills "
              "it\");\n  alignas(16) unsigned char argument[%zu] = {};\n  void *arguments[] = {argument};\n",
              w->layout.bytes, w->layout.bytes);
  add_refusals(w, error);
  add_geometry(w, error);
  for (size_t i = 0; i < w->layout.n; i++) add_member(w, &w->layout.member[i]);
  qn_text_add(w->text, "  const void *kernel = reinterpret_cast<const void *>(&quern_%s);\n", name);
  if (shared > 48 * 1024)
    qn_text_add(w->text,
                "  const %sError_t room = %sFuncSetAttribute(kernel, %sFuncAttributeMaxDynamicSharedMemorySize, %zu);\n"
                "  if (room != %sSuccess) return room;\n",
                prefix, prefix, prefix, shared, prefix);
  if (w->kernel->source.cluster > 8)
    qn_text_add(w->text, "  const cudaError_t large = cudaFuncSetAttribute(kernel, "
                         "cudaFuncAttributeNonPortableClusterSizeAllowed, 1);\n"
                         "  if (large != cudaSuccess) return large;\n");
  qn_text_add(
      w->text,
      "  return %sLaunchKernel(kernel, of_grid, of_group, arguments, %zu, static_cast<%sStream_t>(stream));\n}\n",
      prefix, shared, prefix);
}

/* Lines are counted from here again, in this file. */
static void add_line(const writer *w)
{
  size_t line = 2;
  for (size_t k = 0; !w->text->failed && k < w->text->length; k++) line += w->text->at[k] == '\n';
  qn_text_add(w->text, "#line %zu \"%s.%s\"\n", line, w->kernel->source.name, w->hip ? "hip" : "cu");
}

/* nvcc and hipcc come with the C library's macros, of which the words have their own (INT_MAX): those go first. */
static void add_undefines(const qn_text *whole, qn_text *text)
{
  static const char define[] = "#define ";
  for (const char *at = whole->at; at && *at; at = strchr(at, '\n'), at += at != NULL) {
    if (strncmp(at, define, sizeof define - 1)) continue;
    const char *name = at + sizeof define - 1;
    const size_t length = strcspn(name, " \t(\n");
    if (strncmp(name, "QN_", 3) && strncmp(name, "__", 2)) qn_text_add(text, "#undef %.*s\n", (int)length, name);
  }
}

/* The generated text, with the header's functions marked: everything but its tokens is the kernel's own. */
static qn_status generate(const writer *w, qn_text *generated)
{
  qn_text header = {0};
  qn_kernel marked = *w->kernel;
  if (!w->kernel->source.header) return qn_kernel_generate(w->kernel, &w->special, &w->layout, generated);
  qn_status status = qn_emit_mark_functions(&w->kernel->tokens[QN_KERNEL_HEADER], &header);
  if (status == QN_OK) status = qn_tokens_make(header.at, &marked.tokens[QN_KERNEL_HEADER]);
  if (status == QN_OK) {
    marked.source.header = header.at;
    status = qn_kernel_generate(&marked, &w->special, &w->layout, generated);
    qn_tokens_free(&marked.tokens[QN_KERNEL_HEADER]);
  }
  qn_text_free(&header);
  return status;
}

static qn_status add_kernel(const writer *w)
{
  qn_text generated = {0}, whole = {0};
  if (w->hip) qn_text_add(&generated, "#include \"kernel/dialect/hip.h\"\n");
  qn_status status = generate(w, &generated);
  if (status == QN_OK)
    status = qn_preprocess(&(qn_unit){.source = w->kernel->source.file, .text = generated.at}, &whole);
  if (status == QN_OK) {
    add_undefines(&whole, w->text);
    qn_text_add_bytes(w->text, whole.at, whole.length);
  }
  qn_text_free(&generated);
  qn_text_free(&whole);
  return status;
}

qn_status qn_emit_device(const qn_kernel *kernel, bool hip, const qn_kernel_call *call, qn_text *text)
{
  writer w = {.kernel = kernel, .call = call, .hip = hip, .text = text};
  qn_kernel_call of = *call;
  if (hip && kernel->source.cluster)
    return qn_fail(QN_UNSUPPORTED, "kernel %s: a cluster of %u blocks, and HIP has none", kernel->source.name,
                   kernel->source.cluster);
  qn_emit_group(call, w.group);
  memcpy(of.group, w.group, sizeof of.group);
  of.check = 0;
  qn_special_make(kernel, QN_CUDA, &of, &w.special);
  for (int d = 0; d < 3; d++) w.blocks[d] = (uint32_t)((call->grid[d] + w.group[d] - 1) / w.group[d]);
  qn_special_fold(kernel, w.blocks, &w.special);
  qn_kernel_layout(kernel, &w.special, &w.layout);
  add_comment(&w);
  qn_text_add(text, "%s#include <stdio.h>\n", hip ? "#include <hip/hip_runtime.h>\n" : "");
  if (hip && kernel->source.math == QN_MATH_SAFE)
    qn_text_add(text, "#pragma clang fp contract(off)\n"); /* every operation is rounded, as elsewhere */
  qn_try(add_kernel(&w));
  add_line(&w);
  add_launcher(&w);
  return QN_OK;
}
