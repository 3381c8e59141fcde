/* SPDX-License-Identifier: Apache-2.0 */
/* generate.c - the text of a kernel from its body: what it includes, the template values, the header, the body as a
 * function whose parameters are what it names, and the entry that the device's executor calls. The argument of a launch
 * is one struct: the launch grid, then the members of its layout. How a body's words are carried over is
 * rewrite.c's and words/'s business. */
#include "kernel/kernel.h"
#include <stdio.h>
#include <string.h>

static bool is_position(int k) { return !strcmp(qn_attributes[k].type, "uint3"); }

static const char *dtype_word(qn_dialect dialect, qn_dtype dtype)
{
  static const char *const words[QN_DTYPE_COUNT][2] = {
      [QN_F32] = {"float", "float"},       [QN_BF16] = {"bfloat16_t", "__nv_bfloat16"},
      [QN_F16] = {"half", "__half"},       [QN_F64] = {"double", "double"},
      [QN_BOOL] = {"bool", "bool"},        [QN_U8] = {"uint8_t", "unsigned char"},
      [QN_I8] = {"int8_t", "signed char"}, [QN_U16] = {"uint16_t", "unsigned short"},
      [QN_I16] = {"int16_t", "short"},     [QN_U32] = {"uint32_t", "unsigned int"},
      [QN_I32] = {"int32_t", "int"},       [QN_U64] = {"uint64_t", "unsigned long"},
      [QN_I64] = {"int64_t", "long"},      [QN_C64] = {"complex64_t", "complex64_t"},
  };
  return words[dtype][dialect == QN_DIALECT_CUDA];
}

/* ---- the argument ---- */
static bool is_output(const qn_kernel *kernel, size_t k) { return !qn_is_input(kernel, k); }

static bool names(const qn_kernel *kernel, const uint32_t named[2], size_t k)
{
  const bool output = is_output(kernel, k);
  return named[output] >> (output ? k - kernel->source.n_inputs : k) & 1;
}

static void add_member(qn_argument_layout *layout, qn_member_kind kind, size_t tensor, size_t bytes)
{
  layout->member[layout->n++] = (qn_argument_member){(uint8_t)kind, (uint8_t)tensor, (uint16_t)layout->bytes};
  layout->bytes += (bytes + 7) / 8 * 8;
}

void qn_kernel_layout(const qn_kernel *kernel, const qn_special *special, qn_argument_layout *layout)
{
  const qn_kernel_source *s = &kernel->source;
  layout->n = 0;
  layout->bytes = sizeof(qn_launch_grid);
  for (size_t k = 0; k < s->n_inputs + s->n_outputs; k++) {
    const size_t ndim = special->tensor[k].ndim;
    if (special->tensor[k].form == QN_FORM_VALUE)
      add_member(layout, QN_MEMBER_VALUE, k, qn_dtype_bytes((qn_dtype)special->tensor[k].dtype));
    else
      add_member(layout, QN_MEMBER_POINTER, k, sizeof(void *));
    if (special->tensor[k].form != QN_FORM_POINTER) continue;
    if (ndim && names(kernel, kernel->named_shape, k)) add_member(layout, QN_MEMBER_SHAPE, k, 4 * ndim);
    if (ndim && names(kernel, kernel->named_strides, k)) add_member(layout, QN_MEMBER_STRIDES, k, 8 * ndim);
    if (names(kernel, kernel->named_ndim, k)) add_member(layout, QN_MEMBER_NDIM, k, 4);
  }
}

/* ---- the text ---- */
typedef struct writer {
  const qn_kernel *kernel;
  const qn_special *special;
  const qn_argument_layout *layout;
  qn_text *text;
  bool cuda_words; /* the body is in CUDA's dialect */
  bool on_gpu, group, has_short;
  bool vectors; /* positions are vectors, else structs of three numbers */
} writer;

static void add_defines(const writer *w)
{
  qn_text_add(w->text, "#define QN_WORDS %s\n#define QN_MATH %d\n", w->cuda_words ? "quern_cuda" : "quern_metal",
              (int)w->kernel->source.math);
  if (w->special->dims == 1) qn_text_add(w->text, "#define QN_FLAT 1\n");
  if (w->cuda_words) qn_text_add(w->text, "#define QN_FULL_GROUPS 1\n");
  if (w->special->check) qn_text_add(w->text, "#define QN_CHECKED 1\n");
  if (w->special->limit) qn_text_add(w->text, "#define QN_LIMITED 1\n");
  if (!w->cuda_words && qn_attributes_of_grid(w->kernel)) qn_text_add(w->text, "#define QN_MERGED 1\n");
}

static void add_templates(const writer *w)
{
  for (size_t k = 0; k < w->special->n_templates; k++) {
    const qn_template *t = &w->special->templates[k];
    const int64_t n = t->value.integer;
    if (t->value.kind == QN_VALUE_DTYPE)
      qn_text_add(w->text, "using %s = %s;\n", t->name, dtype_word(w->kernel->source.dialect, t->value.dtype));
    else if (t->value.kind == QN_VALUE_BOOL)
      qn_text_add(w->text, "static constexpr bool %s = %s;\n", t->name, n ? "true" : "false");
    else if (n >= INT32_MIN && n <= INT32_MAX)
      qn_text_add(w->text, "static constexpr int %s = %s%lld%s;\n", t->name, n < 0 ? "(-" : "",
                  n < 0 ? -(long long)(n + 1) : (long long)n, n < 0 ? " - 1)" : "");
    else
      qn_text_add(w->text, "static constexpr long %s = %s%lldl%s;\n", t->name, n < 0 ? "(-" : "",
                  n < 0 ? -(long long)(n + 1) : (long long)n, n < 0 ? " - 1)" : "");
  }
}

/* "const float *QN_RESTRICT" */
static void add_pointer_type(const writer *w, size_t k)
{
  const char *word = dtype_word(w->kernel->source.dialect, (qn_dtype)w->special->tensor[k].dtype);
  const bool output = is_output(w->kernel, k);
  if (!output)
    qn_text_add(w->text, "const %s *", word);
  else if (w->kernel->source.atomic >> (k - w->kernel->source.n_inputs) & 1 && !w->cuda_words)
    qn_text_add(w->text, "atomic<%s> *", word);
  else
    qn_text_add(w->text, "%s *", word);
}

static void add_members(const writer *w)
{
  for (size_t i = 0; i < w->layout->n; i++) {
    const qn_argument_member *member = &w->layout->member[i];
    const size_t k = member->tensor, ndim = w->special->tensor[k].ndim;
    const char *word = dtype_word(w->kernel->source.dialect, (qn_dtype)w->special->tensor[k].dtype);
    qn_text_add(w->text, "  alignas(8) ");
    switch ((qn_member_kind)member->kind) {
    case QN_MEMBER_POINTER:
      add_pointer_type(w, k);
      qn_text_add(w->text, "m%zu;\n", i);
      break;
    case QN_MEMBER_VALUE: qn_text_add(w->text, "%s m%zu;\n", word, i); break;
    case QN_MEMBER_SHAPE: qn_text_add(w->text, "int m%zu[%zu];\n", i, ndim); break;
    case QN_MEMBER_STRIDES: qn_text_add(w->text, "long m%zu[%zu];\n", i, ndim); break;
    case QN_MEMBER_NDIM: qn_text_add(w->text, "int m%zu;\n", i); break;
    }
  }
}

/* An input of 0 dimensions that the body uses as a pointer, as MLX's for CUDA does. */
static bool is_indexed(const writer *w, size_t k) { return !is_output(w->kernel, k) && w->kernel->indexed >> k & 1; }

static void add_parameter(const writer *w, const qn_argument_member *member, const char *name)
{
  const size_t k = member->tensor;
  const char *word = dtype_word(w->kernel->source.dialect, (qn_dtype)w->special->tensor[k].dtype);
  switch ((qn_member_kind)member->kind) {
  case QN_MEMBER_POINTER:
    if (w->special->tensor[k].form == QN_FORM_REFERENCE && !is_indexed(w, k)) {
      qn_text_add(w->text, "const %s &%s", word, name);
      break;
    }
    add_pointer_type(w, k);
    qn_text_add(w->text, "%s%s", w->special->in_place ? "" : "__restrict__ ", name);
    break;
  case QN_MEMBER_VALUE: qn_text_add(w->text, "const %s %s%s", word, is_indexed(w, k) ? "*" : "&", name); break;
  case QN_MEMBER_SHAPE:
    qn_text_add(w->text, "%s%s_shape", w->cuda_words ? "const QN_WORDS::Shape " : "const int *", name);
    break;
  case QN_MEMBER_STRIDES:
    qn_text_add(w->text, "%s%s_strides", w->cuda_words ? "const QN_WORDS::Strides " : "const long *", name);
    break;
  case QN_MEMBER_NDIM: qn_text_add(w->text, "const int &%s_ndim", name); break;
  }
}

static bool passes_place(const writer *w, int k)
{
  return w->cuda_words && !w->on_gpu && w->kernel->named_places[QN_KERNEL_BODY] >> k & 1;
}

static void add_parameters(const writer *w)
{
  const char *between = "";
  for (size_t i = 0; i < w->layout->n; i++) {
    qn_text_add(w->text, "%s", between);
    add_parameter(w, &w->layout->member[i], qn_source_tensor_name(&w->kernel->source, w->layout->member[i].tensor));
    between = ", ";
  }
  for (int k = 0; k < QN_ATTRIBUTE_COUNT; k++)
    if (w->kernel->attributes >> k & 1)
      qn_text_add(w->text, ", const %s %s", is_position(k) && !w->vectors ? "qn_spot" : qn_attributes[k].type,
                  qn_attributes[k].name);
  for (int k = 0; k < QN_CUDA_PLACES; k++)
    if (passes_place(w, k)) qn_text_add(w->text, ", const %s %s", qn_cuda_places[k].type, qn_cuda_places[k].name);
}

/* The argument's members, as the body's function takes them. */
static void add_members_of(const writer *w)
{
  const char *between = "";
  for (size_t i = 0; i < w->layout->n; i++) {
    const size_t k = w->layout->member[i].tensor;
    const int kind = w->layout->member[i].kind, ndim = w->special->tensor[k].ndim;
    const bool reference = w->special->tensor[k].form == QN_FORM_REFERENCE;
    qn_text_add(w->text, "%s", between);
    if (w->cuda_words && (kind == QN_MEMBER_SHAPE || kind == QN_MEMBER_STRIDES))
      qn_text_add(w->text, "{a.m%zu, %d}", i, ndim);
    else if (kind == QN_MEMBER_POINTER)
      qn_text_add(w->text, "%sa.m%zu", reference && !is_indexed(w, k) ? "*" : "", i);
    else
      qn_text_add(w->text, "%sa.m%zu", kind == QN_MEMBER_VALUE && is_indexed(w, k) ? "&" : "", i);
    between = ", ";
  }
}

static void add_places(const writer *w)
{
  for (int k = 0; k < QN_ATTRIBUTE_COUNT; k++)
    if (w->kernel->attributes >> k & 1)
      qn_text_add(w->text, ", %s%s%s",
                  !is_position(k) ? "qn_u32("
                  : w->vectors    ? "QN_WORDS::uint3"
                                  : "qn_spot",
                  qn_attributes[k].value, is_position(k) ? "" : ")");
  for (int k = 0; k < QN_CUDA_PLACES; k++)
    if (passes_place(w, k)) qn_text_add(w->text, ", QN_WORDS::%s%s", qn_cuda_places[k].type, qn_cuda_places[k].value);
}

static qn_status rewrite(const writer *w, int which, const qn_tokens *tokens)
{
  const qn_rewriting how = {w->kernel->source.dialect, which == QN_KERNEL_HEADER, w->has_short};
  return qn_rewrite(&how, tokens, &w->kernel->tokens[QN_KERNEL_TEXTS - 1 - which], w->text);
}

static qn_status add_with_calls(const writer *w, int which)
{
  qn_text marked = {0};
  qn_tokens tokens = {0};
  qn_status status = qn_calls_mark(w->kernel, which, &marked);
  if (status == QN_OK && marked.at) status = qn_tokens_make(marked.at, &tokens);
  if (status == QN_OK) status = rewrite(w, which, marked.at ? &tokens : &w->kernel->tokens[which]);
  qn_tokens_free(&tokens);
  qn_text_free(&marked);
  return status;
}

static qn_status add_user_text(const writer *w, int which)
{
  const qn_kernel_source *s = &w->kernel->source;
  const char *kind = which == QN_KERNEL_HEADER ? " (header)" : "";
  qn_text_add(w->text, "#line 1 \"%s%s\"\n", s->file, kind);
  const qn_status status = w->group ? add_with_calls(w, which) : rewrite(w, which, &w->kernel->tokens[which]);
  if (status != QN_OK) return qn_fail_in_text(w->kernel, which, status);
  qn_text_add(w->text, "\n#line 1 \"%s (generated)\"\n", s->file);
  return QN_OK;
}

/* Functions of a CUDA header on the processor see their thread's place through its slot; on a GPU only a folded grid
 * needs words in place of the builtins. */
static void add_place_words(const writer *w, bool begin)
{
  for (int k = 0; k < QN_CUDA_PLACES; k++) {
    if (w->on_gpu || !(w->kernel->named_places[QN_KERNEL_HEADER] >> k & 1)) continue;
    if (begin)
      qn_text_add(w->text, "#define %s (static_cast<const qn_cuda_place *>(*quern_group->slot())->%s_)\n",
                  qn_cuda_places[k].name, qn_cuda_places[k].name);
    else
      qn_text_add(w->text, "#undef %s\n", qn_cuda_places[k].name);
  }
}

static bool has_header_places(const writer *w) { return !w->on_gpu && w->kernel->named_places[QN_KERNEL_HEADER]; }

static qn_status add_body(const writer *w)
{
  qn_text_add(w->text, "namespace QN_WORDS {\n");
  if (has_header_places(w))
    qn_text_add(w->text,
                "struct qn_cuda_place { qn_u32 index_; uint3 threadIdx_, blockIdx_; dim3 blockDim_, gridDim_; };\n");
  qn_text_add(w->text, "struct quern_argument {\n  qn_launch_grid grid;\n");
  add_members(w);
  qn_text_add(w->text, "};\nnamespace quern_body {\n");
  add_templates(w);
  if (w->kernel->source.header) {
    add_place_words(w, true);
    qn_try(add_user_text(w, QN_KERNEL_HEADER));
    add_place_words(w, false);
  }
  qn_text_add(w->text, "QN_FN void quern_run(");
  add_parameters(w);
  qn_text_add(w->text, ")\n{\n");
  qn_try(add_user_text(w, QN_KERNEL_BODY));
  qn_text_add(w->text, "}\n}\n}\n");
  return QN_OK;
}

static void add_call(const writer *w)
{
  qn_text_add(w->text, "QN_WORDS::quern_body::quern_run(");
  add_members_of(w);
  add_places(w);
  qn_text_add(w->text, ");\n");
}

/* A GPU's entry of which a thread takes several positions, a group's width apart. One word a thread keeps too few bytes
 * on their way: a copy of floats reaches 0.64 of what one of four floats a thread does. All loads go before the first
 * store, which the compiler may do only where it sees no edge between and the pointers as parameters of one function
 * around all positions. */
static void add_gpu_items(const writer *w)
{
  qn_text_add(w->text, "namespace QN_WORDS {\nnamespace quern_body {\nQN_FN void quern_items(const qn_launch_grid &g");
  for (size_t i = 0; i < w->layout->n; i++) {
    char name[32];
    snprintf(name, sizeof name, "m%zu_", i);
    qn_text_add(w->text, ", ");
    add_parameter(w, &w->layout->member[i], name);
  }
  qn_text_add(w->text,
              ")\n{\n  const qn_u32 step = ::blockDim.x;\n  const qn_u64 first = qn_u64(::blockIdx.x) * (%d * step) + "
              "::threadIdx.x, end = g.grid[0];\n  auto run = [&](qn_u32 x) {\n    const qn_place_of_thread p = {{0, 0, "
              "0}, {0, 0, 0}, {1, 1, "
              "1}, {x, 0, 0}, 0};\n    (void)p;\n    quern_run(",
              w->special->items);
  for (size_t i = 0; i < w->layout->n; i++) {
    static const char *const behind[] = {
        [QN_MEMBER_SHAPE] = "_shape", [QN_MEMBER_STRIDES] = "_strides", [QN_MEMBER_NDIM] = "_ndim"};
    const char *tail = behind[w->layout->member[i].kind];
    qn_text_add(w->text, "%sm%zu_%s", i ? ", " : "", i, tail ? tail : "");
  }
  add_places(w);
  qn_text_add(
      w->text,
      ");\n  };\n  if (first + %d * step < end) {\n    QN_UNROLL\n    for (qn_u32 k = 0; k < %d; k++) "
      "run(static_cast<qn_u32>(first) + k * step);\n  } else {\n#pragma unroll 1\n    for (qn_u64 x = first; x < "
      "end; x += step) run(static_cast<qn_u32>(x));\n  }\n}\n}\n}\n",
      w->special->items - 1, w->special->items);
}

/* A GPU's entry. Metal's words come from linear numbers; CUDA's are the hardware's own, but where the grid is folded:
 * blocks beyond 65,535 along y or z are laid along x. */
static void add_gpu_entry(const writer *w)
{
  if (w->special->items > 1) add_gpu_items(w);
  qn_text_add(w->text, "extern \"C\" __global__ void ");
  if (w->kernel->source.cluster)
    qn_text_add(w->text, "__cluster_dims__(%u, 1, 1) __launch_bounds__(%d, 1)", w->kernel->source.cluster,
                w->special->bound);
  else
    qn_text_add(w->text, "__launch_bounds__(%d)", w->special->bound);
  qn_text_add(w->text,
              " quern_%s(const QN_GRID_CONSTANT QN_WORDS::quern_argument a)\n{\n  const qn_launch_grid &g = "
              "a.grid;\n",
              w->kernel->source.name);
  if (w->special->items > 1) {
    qn_text_add(w->text, "  QN_WORDS::quern_body::quern_items(g, ");
    add_members_of(w);
    qn_text_add(w->text, ");\n}\n");
    return;
  }
  if (w->cuda_words)
    qn_text_add(w->text, "  if (qn_u64(blockIdx.x) * blockDim.x + threadIdx.x >= g.grid[0] || qn_u64(blockIdx.y) * "
                         "blockDim.y + threadIdx.y >= g.grid[1] ||\n      qn_u64(blockIdx.z) * blockDim.z + "
                         "threadIdx.z >= g.grid[2]) return;\n");
  else
    qn_text_add(w->text, "  qn_place_of_thread p = qn_place_of_block(g, ::blockIdx.x);\n"
                         "  if (!qn_place_thread(g, p, ::threadIdx.x)) return;\n");
  qn_text_add(w->text, "  ");
  add_call(w);
  qn_text_add(w->text, "}\n");
}

static void add_host_entry(const writer *w)
{
  const char *name = w->kernel->source.name;
  qn_text_add(w->text,
              "extern \"C\" decltype(sizeof 0) quern_%s_argument_bytes() { return sizeof(QN_WORDS::quern_argument); "
              "}\n",
              name);
  if (w->group)
    qn_text_add(w->text,
                "extern \"C\" void quern_%s_thread(const void *argument, qn_u64 block, qn_u64, qn_u32 thread, qn_u32)\n"
                "{\n  const QN_WORDS::quern_argument &a = *static_cast<const QN_WORDS::quern_argument "
                "*>(argument);\n  const qn_launch_grid &g = a.grid;\n  qn_place_of_thread p = qn_place_of_block(g, "
                "block);\n  if (!qn_place_thread(g, p, thread)) return;\n",
                name);
  if (has_header_places(w))
    qn_text_add(w->text,
                "  const QN_WORDS::qn_cuda_place here = {thread, %s, %s, %s, %s};\n  *quern_group->slot() = "
                "const_cast<QN_WORDS::qn_cuda_place *>(&here);\n",
                qn_cuda_places[0].value, qn_cuda_places[1].value, qn_cuda_places[2].value, qn_cuda_places[3].value);
  else if (w->group) /* the slot begins with the thread's number, which words of a simdgroup ask for */
    qn_text_add(w->text, "  *quern_group->slot() = &thread;\n");
  if (w->group) {
    qn_text_add(w->text, "  ");
    add_call(w);
    qn_text_add(w->text, "}\n");
  }
  qn_text_add(w->text,
              "extern \"C\" void quern_%s(const void *argument, qn_u64 first, qn_u64 last, qn_u64 blocks, qn_u32 "
              "threads)\n{\n",
              name);
  if (w->group) {
    qn_text_add(w->text, "  (void)argument, (void)first, (void)last, (void)blocks, (void)threads;\n}\n");
    return;
  }
  qn_text_add(w->text, "  const QN_WORDS::quern_argument a = *static_cast<const QN_WORDS::quern_argument "
                       "*>(argument);\n  const qn_launch_grid g = a.grid;\n  (void)blocks, (void)threads;\n"
                       "  qn_each_thread(g, first, last, [&](const qn_place_of_thread &p) "
                       "__attribute__((always_inline)) { (void)p; ");
  add_call(w);
  qn_text_add(w->text, "  });\n}\n");
}

qn_status qn_kernel_generate(const qn_kernel *kernel, const qn_special *special, const qn_argument_layout *layout,
                             qn_text *text)
{
  const bool sanitized = special->check || special->limit;
  const writer w = {.kernel = kernel,
                    .special = special,
                    .layout = layout,
                    .text = text,
                    .cuda_words = kernel->source.dialect == QN_DIALECT_CUDA,
                    .on_gpu = special->target == QN_CUDA,
                    .has_short = qn_words_have_short(kernel, special),
                    .vectors = qn_words_whole_positions(kernel),
                    .group = special->target != QN_CUDA && (kernel->needs_group || sanitized)};
  qn_try(qn_templates_check(kernel, special));
  add_defines(&w);
  qn_text_add(text, "#include \"kernel/dialect/thread_position.h\"\n");
  if (w.group)
    qn_text_add(text, "#include \"base/group.h\"\nextern \"C\" const qn_group_words *quern_group;\n"
                      "const qn_group_words *quern_group;\n");
  if (sanitized && !w.on_gpu) qn_text_add(text, "#include \"kernel/dialect/sanitizer.h\"\n");
  qn_words_include(kernel, special, text);
  if (w.on_gpu && w.cuda_words && (special->folded[0] || special->folded[1] || special->folded[2]))
    qn_text_add(
        text,
        "namespace QN_WORDS {\nstruct qn_folded_index { qn_u32 x, y, z; };\n"
        "static __device__ __forceinline__ qn_folded_index qn_folded() { const qn_u32 b = ::blockIdx.x, row = b "
        "/ %lluu; return {b - row * %lluu, row %% %lluu, row / %lluu}; }\n}\n"
        "#define blockIdx (QN_WORDS::qn_folded())\n"
        "#define gridDim (dim3(%lluu, %lluu, %lluu))\n",
        (unsigned long long)special->folded[0], (unsigned long long)special->folded[0],
        (unsigned long long)special->folded[1], (unsigned long long)special->folded[1],
        (unsigned long long)special->folded[0], (unsigned long long)special->folded[1],
        (unsigned long long)special->folded[2]);
  /* A header's functions are nobody else's, so that they may be taken into the loop over threads. */
  if (!w.on_gpu) qn_text_add(text, "#pragma GCC visibility push(hidden)\n");
  qn_try(add_body(&w));
  if (!w.on_gpu) qn_text_add(text, "#pragma GCC visibility pop\n");
  if (w.on_gpu)
    add_gpu_entry(&w);
  else
    add_host_entry(&w);
  return text->failed ? qn_fail(QN_NO_MEMORY, "kernel %s: no memory for its text", kernel->source.name) : QN_OK;
}
