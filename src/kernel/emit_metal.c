/* SPDX-License-Identifier: Apache-2.0 */
/* emit_metal.c - the Metal function that MLX would generate for a call (its documentation, "Custom Metal Kernels"):
 * template, [[kernel]], buffers in order with the shapes that the body names behind their input, then the attributes,
 * then the instantiation under its host name. Before it stands the little that MLX's own library puts there: Metal's
 * standard library, MLX's names of types, and those of its helpers that the text names, in words of our own.
 *
 * Where MLX would look for a name anywhere in the text, whole words count here, as they do in a launch. */
#include "kernel/emit.h"
#include <string.h>

enum { CONSTANT_BELOW = 8 }; /* MLX puts inputs of fewer elements into constant memory */

/* MLX's names, of which the function's name is made too. */
static const char *type_name(qn_dtype dtype)
{
  static const char *const names[QN_DTYPE_COUNT] = {
      [QN_F32] = "float",   [QN_BF16] = "bfloat16_t", [QN_F16] = "float16_t", [QN_F64] = "double",
      [QN_BOOL] = "bool",   [QN_U8] = "uint8_t",      [QN_I8] = "int8_t",     [QN_U16] = "uint16_t",
      [QN_I16] = "int16_t", [QN_U32] = "uint32_t",    [QN_I32] = "int32_t",   [QN_U64] = "uint64_t",
      [QN_I64] = "int64_t", [QN_C64] = "complex64_t"};
  return names[dtype];
}

/* ---- before the function ---- */
typedef struct helper {
  const char *name, *text;
} helper;

static const helper types[] = {
    {"float16_t", "typedef half float16_t;\n"},
    {"bfloat16_t", "typedef bfloat bfloat16_t;\n"},
    {"complex64_t",
     "struct complex64_t {\n  float real, imag;\n};\n"
     "inline complex64_t operator+(complex64_t a, complex64_t b) { return {a.real + b.real, a.imag + b.imag}; }\n"
     "inline complex64_t operator-(complex64_t a, complex64_t b) { return {a.real - b.real, a.imag - b.imag}; }\n"
     "inline complex64_t operator*(complex64_t a, complex64_t b)\n{\n"
     "  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};\n}\n"},
};

static const helper helpers[] = {
    {"ceildiv", "template <typename T, typename U> inline T ceildiv(T n, U by) { return (n + by - 1) / by; }\n"},
    {"elem_to_loc",
     "template <typename I>\ninline I elem_to_loc(I elem, constant const int *shape, constant const int64_t *strides, "
     "int ndim)\n{\n  I at = 0;\n  for (int d = ndim - 1; d >= 0; d--) {\n    at += I(elem % shape[d]) * "
     "I(strides[d]);\n    elem /= shape[d];\n  }\n  return at;\n}\n"},
    {"Limits",
     "template <typename T> struct Limits {\n  static constexpr constant T max = metal::numeric_limits<T>::max();\n"
     "  static constexpr constant T min = metal::numeric_limits<T>::lowest();\n"
     "  static constexpr constant T finite_max = max, finite_min = min;\n};\n"
     "template <> struct Limits<float> {\n  static constexpr constant float max = INFINITY, min = -INFINITY;\n"
     "  static constexpr constant float finite_max = FLT_MAX, finite_min = -FLT_MAX;\n};\n"},
};

static bool has_type(const qn_kernel *kernel, const qn_kernel_call *call, const char *name)
{
  for (size_t k = 0; k < kernel->source.n_inputs + kernel->source.n_outputs; k++)
    if (!strcmp(type_name(qn_call_tensor(kernel, call, k)->dtype), name)) return true;
  for (size_t k = 0; k < call->n_templates; k++)
    if (call->templates[k].value.kind == QN_VALUE_DTYPE && !strcmp(type_name(call->templates[k].value.dtype), name))
      return true;
  return false;
}

static bool is_named(const qn_kernel *kernel, const char *name)
{
  return qn_tokens_have(&kernel->tokens[QN_KERNEL_BODY], name) ||
         qn_tokens_have(&kernel->tokens[QN_KERNEL_HEADER], name);
}

static void add_prelude(const qn_kernel *kernel, const qn_kernel_call *call, qn_text *text)
{
  static const char *const math[] = {"safe", "relaxed", "fast"};
  qn_text_add(text,
              "// %s.metal - kernel \"%s\" for Metal, made by quern " QN_VERSION
              ": the function that MLX generates for "
              "this call.\n// xcrun -sdk macosx metal -std=metal3.1 -fmetal-math-mode=%s -c %s.metal\n"
              "#include <metal_stdlib>\nusing namespace metal;\n",
              kernel->source.name, kernel->source.name, math[kernel->source.math], kernel->source.name);
  for (size_t k = 0; k < sizeof types / sizeof *types; k++)
    if (has_type(kernel, call, types[k].name) || is_named(kernel, types[k].name))
      qn_text_add(text, "%s", types[k].text);
  for (size_t k = 0; k < sizeof helpers / sizeof *helpers; k++)
    if (is_named(kernel, helpers[k].name)) qn_text_add(text, "%s", helpers[k].text);
  if (kernel->source.header) qn_text_add(text, "%s\n", kernel->source.header);
}

/* ---- the function ---- */
static void add_template_value(const qn_template *t, qn_text *text)
{
  if (t->value.kind == QN_VALUE_DTYPE)
    qn_text_add(text, "%s", type_name(t->value.dtype));
  else
    qn_text_add(text, "%lld", (long long)t->value.integer);
}

static const char *template_kind(const qn_template *t)
{
  if (t->value.kind != QN_VALUE_INT) return t->value.kind == QN_VALUE_DTYPE ? "typename" : "bool";
  return t->value.integer >= INT32_MIN && t->value.integer <= INT32_MAX ? "int" : "long";
}

static bool is_constant(const qn_tensor *t) { return qn_emit_elements(t) < CONSTANT_BELOW; }

/* Of template values and the types of tensors; what an identifier cannot have becomes _. */
static void add_name(const qn_kernel *kernel, const qn_kernel_call *call, qn_text *text)
{
  qn_text_add(text, "custom_kernel_%s", kernel->source.name);
  const size_t begin = text->length;
  for (size_t k = 0; k < call->n_templates; k++) {
    qn_text_add(text, "_");
    add_template_value(&call->templates[k], text);
  }
  for (size_t k = 0; k < kernel->source.n_inputs; k++) {
    const qn_tensor *t = &call->inputs[k];
    qn_text_add(text, "_%s%s", type_name(t->dtype), !t->ndim ? "s" : is_constant(t) ? "c" : "");
  }
  for (size_t k = 0; k < kernel->source.n_outputs; k++) qn_text_add(text, "_%s", type_name(call->outputs[k].dtype));
  for (size_t k = begin; !text->failed && k < text->length; k++)
    if (text->at[k] == '-') text->at[k] = '_';
}

static void add_input(const qn_kernel *kernel, size_t k, const qn_tensor *t, int *buffer, qn_text *text)
{
  const char *name = kernel->source.inputs[k];
  qn_text_add(text, "  const %s %s%s %s [[buffer(%d)]],\n", is_constant(t) ? "constant" : "device", type_name(t->dtype),
              t->ndim ? "*" : "&", name, (*buffer)++);
  if (!t->ndim) return;
  if (kernel->named_shape[0] >> k & 1)
    qn_text_add(text, "  const constant int* %s_shape [[buffer(%d)]],\n", name, (*buffer)++);
  if (kernel->named_strides[0] >> k & 1)
    qn_text_add(text, "  const constant int64_t* %s_strides [[buffer(%d)]],\n", name, (*buffer)++);
  if (kernel->named_ndim[0] >> k & 1)
    qn_text_add(text, "  const constant int& %s_ndim [[buffer(%d)]],\n", name, (*buffer)++);
}

static void add_parameters(const qn_kernel *kernel, const qn_kernel_call *call, qn_text *text)
{
  const qn_kernel_source *s = &kernel->source;
  int buffer = 0;
  for (size_t k = 0; k < s->n_inputs; k++) add_input(kernel, k, &call->inputs[k], &buffer, text);
  for (size_t k = 0; k < s->n_outputs; k++) {
    const bool atomic = s->atomic >> k & 1;
    qn_text_add(text, "%s  device %s%s%s* %s [[buffer(%d)]]", k ? ",\n" : "", atomic ? "atomic<" : "",
                type_name(call->outputs[k].dtype), atomic ? ">" : "", s->outputs[k], buffer++);
  }
  for (int k = 0; k < QN_ATTRIBUTE_COUNT; k++)
    if (kernel->attributes >> k & 1)
      qn_text_add(text, ",\n  %s %s [[%s]]", qn_attributes[k].type, qn_attributes[k].name, qn_attributes[k].name);
}

static void add_instance(const qn_kernel_call *call, const char *name, qn_text *text)
{
  for (int twice = 0; twice < 2; twice++) {
    qn_text_add(text, "%s%s<", twice ? ") " : "", name);
    for (size_t k = 0; k < call->n_templates; k++) {
      if (k) qn_text_add(text, ", ");
      add_template_value(&call->templates[k], text);
    }
    qn_text_add(text, ">");
  }
  qn_text_add(text, ";\n");
}

static void add_function(const qn_kernel *kernel, const qn_kernel_call *call, const char *name, qn_text *text)
{
  if (call->n_templates) {
    for (size_t k = 0; k < call->n_templates; k++)
      qn_text_add(text, "%s%s %s", k ? ", " : "template <", template_kind(&call->templates[k]),
                  call->templates[k].name);
    qn_text_add(text, ">\n");
  }
  qn_text_add(text, "[[kernel]] void %s(\n", name);
  add_parameters(kernel, call, text);
  qn_text_add(text, ") {\n");
  qn_emit_output_shapes(kernel, call, text);
  qn_text_add(text, "%s\n}\n", kernel->source.body);
  if (!call->n_templates) return;
  qn_text_add(text, "\ntemplate [[host_name(\"%s\")]] [[kernel]] decltype(", name);
  add_instance(call, name, text);
}

qn_status qn_emit_metal(const qn_kernel *kernel, const qn_kernel_call *call, qn_text *text)
{
  qn_text name = {0};
  qn_try(qn_emit_check_metal(kernel, call));
  add_name(kernel, call, &name);
  if (name.failed) return qn_fail(QN_NO_MEMORY, "kernel %s: no memory for its name", kernel->source.name);
  add_prelude(kernel, call, text);
  add_function(kernel, call, name.at, text);
  qn_text_free(&name);
  return QN_OK;
}
