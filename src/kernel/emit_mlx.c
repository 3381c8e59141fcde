/* SPDX-License-Identifier: Apache-2.0 */
/* emit_mlx.c - the Python that makes the same kernel and the same call in MLX (mx.fast.metal_kernel, or cuda_kernel for
 * CUDA's words), as a function of its inputs, and calls it on zeros when it is run as a program. What MLX cannot say is
 * refused rather than left out: outputs in an input's memory, values that differ from output to output. */
#include "kernel/emit.h"
#include <math.h>
#include <string.h>

typedef struct writer {
  const qn_kernel *kernel;
  const qn_kernel_call *call;
  const qn_emit_words *words;
  qn_text *text;
} writer;

static const char *type_name(qn_dtype dtype)
{
  static const char *const names[QN_DTYPE_COUNT] = {
      [QN_F32] = "float32", [QN_BF16] = "bfloat16", [QN_F16] = "float16", [QN_F64] = "float64",  [QN_BOOL] = "bool_",
      [QN_U8] = "uint8",    [QN_I8] = "int8",       [QN_U16] = "uint16",  [QN_I16] = "int16",    [QN_U32] = "uint32",
      [QN_I32] = "int32",   [QN_U64] = "uint64",    [QN_I64] = "int64",   [QN_C64] = "complex64"};
  return names[dtype];
}

/* ---- what MLX cannot say ---- */
static qn_status check_init(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 1; call->init && k < s->n_outputs; k++) {
    const qn_value *a = &call->init[0], *b = &call->init[k];
    const double x = a->kind == QN_VALUE_FLOAT ? a->real : (double)a->integer;
    const double y = b->kind == QN_VALUE_FLOAT ? b->real : (double)b->integer;
    const bool same = (a->kind == QN_VALUE_NONE) == (b->kind == QN_VALUE_NONE);
    if (!same || (a->kind != QN_VALUE_NONE && x != y && !(isnan(x) && isnan(y))))
      return qn_fail(QN_UNSUPPORTED,
                     "kernel %s: %s and %s begin with different values, and MLX has one for all outputs", s->name,
                     s->outputs[0], s->outputs[k]);
  }
  return QN_OK;
}

static qn_status check(const qn_kernel *kernel, const qn_kernel_call *call)
{
  const qn_kernel_source *s = &kernel->source;
  const uint64_t all = s->n_outputs == 64 ? ~UINT64_C(0) : (UINT64_C(1) << s->n_outputs) - 1;
  if (s->dialect == QN_DIALECT_METAL) qn_try(qn_emit_check_metal(kernel, call));
  if (s->cluster)
    return qn_fail(QN_UNSUPPORTED, "kernel %s: a cluster of %u blocks, and MLX's kernels have none", s->name,
                   s->cluster);
  if (s->atomic && s->atomic != all)
    return qn_fail(QN_UNSUPPORTED, "kernel %s: some outputs are atomic and some are not, and MLX has one word for all",
                   s->name);
  for (size_t k = 0; call->stored_in && k < s->n_outputs; k++)
    if (call->stored_in[k] >= 0)
      return qn_fail(QN_UNSUPPORTED, "kernel %s: %s is given %s's memory, and MLX's outputs have their own", s->name,
                     s->outputs[k], s->inputs[call->stored_in[k]]);
  for (size_t k = 0; k < call->n_templates; k++) {
    const qn_value *v = &call->templates[k].value;
    if (v->kind == QN_VALUE_INT && (v->integer < INT32_MIN || v->integer > INT32_MAX))
      return qn_fail(QN_UNSUPPORTED, "kernel %s: template %s is %lld, and MLX's have 32 bits", s->name,
                     call->templates[k].name, (long long)v->integer);
  }
  return check_init(kernel, call);
}

/* ---- Python's values ---- */
/* A text as one literal, its lines kept. */
static void add_text(qn_text *text, const char *what)
{
  qn_text_add(text, "\"\"\"");
  for (; *what; what++) {
    const unsigned char c = (unsigned char)*what;
    if (c == '\\' || c == '"')
      qn_text_add(text, "\\%c", c);
    else if ((c < 32 && c != '\n') || c == 127)
      qn_text_add(text, "\\x%02x", c);
    else
      qn_text_add_bytes(text, what, 1);
  }
  qn_text_add(text, "\"\"\"");
}

static void add_real(qn_text *text, double x)
{
  if (isfinite(x))
    qn_text_add(text, x == floor(x) && fabs(x) < 1e15 ? "%.1f" : "%.17g", x);
  else
    qn_text_add(text, "float(\"%s\")", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
}

static void add_value(qn_text *text, const qn_value *v)
{
  switch (v->kind) {
  case QN_VALUE_NONE: qn_text_add(text, "None"); break;
  case QN_VALUE_BOOL: qn_text_add(text, v->integer ? "True" : "False"); break;
  case QN_VALUE_INT: qn_text_add(text, "%lld", (long long)v->integer); break;
  case QN_VALUE_FLOAT: add_real(text, v->real); break;
  case QN_VALUE_DTYPE: qn_text_add(text, "mx.%s", type_name(v->dtype)); break;
  }
}

static void add_names(qn_text *text, const char *key, size_t n, const char *const *names)
{
  qn_text_add(text, "    %s=[", key);
  for (size_t k = 0; k < n; k++) qn_text_add(text, "%s\"%s\"", k ? ", " : "", names[k]);
  qn_text_add(text, "],\n");
}

static void add_shape(qn_text *text, const qn_tensor *t)
{
  qn_text_add(text, "(");
  for (int d = 0; d < t->ndim; d++) qn_text_add(text, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
  qn_text_add(text, t->ndim == 1 ? ",)" : ")");
}

/* ---- the program ---- */
static bool is_metal(const writer *w) { return w->kernel->source.dialect == QN_DIALECT_METAL; }

static void add_source(const writer *w)
{
  const qn_kernel_source *s = &w->kernel->source;
  qn_text source = {0};
  if (is_metal(w)) qn_emit_output_shapes(w->kernel, w->call, &source);
  qn_text_add(&source, "%s", s->body);
  qn_text_add(w->text, "    source=");
  if (source.failed)
    w->text->failed = true;
  else
    add_text(w->text, source.at);
  qn_text_free(&source);
  qn_text_add(w->text, ",\n");
  if (!s->header) return;
  qn_text_add(w->text, "    header=");
  add_text(w->text, s->header);
  qn_text_add(w->text, ",\n");
}

static void add_kernel(const writer *w)
{
  const qn_kernel_source *s = &w->kernel->source;
  static const char *const math[] = {"safe", "relaxed", "fast"};
  qn_text_add(w->text, "kernel = mx.fast.%s(\n    name=\"%s\",\n", is_metal(w) ? "metal_kernel" : "cuda_kernel",
              s->name);
  add_names(w->text, "input_names", s->n_inputs, s->inputs);
  add_names(w->text, "output_names", s->n_outputs, s->outputs);
  add_source(w);
  qn_text_add(w->text, "    ensure_row_contiguous=%s,\n", s->strided ? "False" : "True");
  if (is_metal(w)) qn_text_add(w->text, "    atomic_outputs=%s,\n", s->atomic ? "True" : "False");
  if (is_metal(w) && s->math != QN_MATH_SAFE)
    qn_text_add(w->text, "    compile_options={\"math_mode\": \"%s\"},\n", math[s->math]);
  if (!is_metal(w) && w->call->shared_bytes) qn_text_add(w->text, "    shared_memory=%zu,\n", w->call->shared_bytes);
  qn_text_add(w->text, ")\n");
}

static void add_parameters(const writer *w)
{
  const qn_kernel_source *s = &w->kernel->source;
  for (size_t k = 0; k < s->n_inputs; k++) qn_text_add(w->text, "%s%s_", k ? ", " : "", s->inputs[k]);
}

/* Where some inputs come with their strides, MLX copies none: those that are to be row-major are made so here. */
static void add_inputs(const writer *w)
{
  const qn_kernel_source *s = &w->kernel->source;
  qn_text_add(w->text, "        inputs=[");
  for (size_t k = 0; k < s->n_inputs; k++) {
    const bool copied = s->strided && !(s->strided >> k & 1) && w->call->inputs[k].ndim;
    qn_text_add(w->text, copied ? "%smx.contiguous(%s_)" : "%s%s_", k ? ", " : "", s->inputs[k]);
  }
  qn_text_add(w->text, "],\n");
}

static void add_templates(const writer *w)
{
  if (!w->call->n_templates) return;
  qn_text_add(w->text, "        template=[");
  for (size_t k = 0; k < w->call->n_templates; k++) {
    qn_text_add(w->text, "%s(\"%s\", ", k ? ", " : "", w->call->templates[k].name);
    if (w->words->template_value[k])
      qn_text_add(w->text, "%s", w->words->template_value[k]);
    else
      add_value(w->text, &w->call->templates[k].value);
    qn_text_add(w->text, ")");
  }
  qn_text_add(w->text, "],\n");
}

static void add_outputs(const writer *w)
{
  const size_t n = w->kernel->source.n_outputs;
  qn_text_add(w->text, "        output_shapes=[");
  for (size_t k = 0; k < n; k++) {
    qn_text_add(w->text, "%s", k ? ", " : "");
    if (w->words->output_shape[k])
      qn_text_add(w->text, "%s", w->words->output_shape[k]);
    else
      add_shape(w->text, &w->call->outputs[k]);
  }
  qn_text_add(w->text, "],\n        output_dtypes=[");
  for (size_t k = 0; k < n; k++) qn_text_add(w->text, "%smx.%s", k ? ", " : "", type_name(w->call->outputs[k].dtype));
  qn_text_add(w->text, "],\n");
}

/* Of the grid in threads, then of the group. */
static void add_launch(const writer *w)
{
  const char *const words[] = {w->words->grid, w->words->group}, *const names[] = {"grid", "threadgroup"};
  uint32_t group[3];
  qn_emit_group(w->call, group);
  for (size_t k = 0; k < 2; k++) {
    qn_text_add(w->text, "        %s=", names[k]);
    if (words[k]) qn_text_add(w->text, "%s", words[k]);
    for (int d = 0; !words[k] && d < 3; d++)
      qn_text_add(w->text, "%s%llu%s", d ? ", " : "(", (unsigned long long)(k ? group[d] : w->call->grid[d]),
                  d == 2 ? ")" : "");
    qn_text_add(w->text, ",\n");
  }
}

static void add_call(const writer *w)
{
  qn_text_add(w->text, "\n\ndef %s_(", w->kernel->source.name);
  add_parameters(w);
  qn_text_add(w->text, "%s):\n%s    return kernel(\n", w->words->parameters ? w->words->parameters : "",
              w->words->statements ? w->words->statements : "");
  add_inputs(w);
  add_templates(w);
  add_launch(w);
  add_outputs(w);
  if (w->call->init && w->call->init[0].kind != QN_VALUE_NONE) {
    qn_text_add(w->text, "        init_value=");
    add_value(w->text, &w->call->init[0]);
    qn_text_add(w->text, ",\n");
  }
  qn_text_add(w->text, "    )\n");
}

/* A scalar's value where there is one; else what MLX makes of zeros. */
static void add_example(const writer *w, const qn_tensor *t)
{
  float single;
  int32_t whole;
  const bool value = !t->ndim && t->device.kind == QN_CPU && t->data;
  if (value && t->dtype == QN_F32) {
    memcpy(&single, t->data, sizeof single);
    add_real(w->text, (double)single);
  } else if (value && t->dtype == QN_I32) {
    memcpy(&whole, t->data, sizeof whole);
    qn_text_add(w->text, "%d", whole);
  } else if (value && t->dtype == QN_BOOL) {
    qn_text_add(w->text, *(const unsigned char *)t->data ? "True" : "False");
  } else {
    qn_text_add(w->text, "mx.zeros(");
    add_shape(w->text, t);
    qn_text_add(w->text, ", dtype=mx.%s)", type_name(t->dtype));
  }
}

static void add_main(const writer *w)
{
  const qn_kernel_source *s = &w->kernel->source;
  qn_text_add(w->text, "\n\nif __name__ == \"__main__\":\n    for output in %s_(\n", s->name);
  for (size_t k = 0; k < s->n_inputs; k++) {
    qn_text_add(w->text, "        ");
    add_example(w, &w->call->inputs[k]);
    qn_text_add(w->text, ",\n");
  }
  qn_text_add(w->text, "    ):\n        print(output)\n");
}

qn_status qn_emit_mlx(const qn_kernel *kernel, const qn_kernel_call *call, const qn_emit_words *words, qn_text *text)
{
  const writer w = {kernel, call, words, text};
  qn_try(check(kernel, call));
  qn_text_add(text,
              "\"\"\"Kernel \"%s\" and %s for MLX, made by quern " QN_VERSION ".\"\"\"\n\n"
              "import mlx.core as mx\n\n%s",
              kernel->source.name, words->statements ? "a function that calls it at any size" : "one call of it",
              words->functions ? words->functions : "");
  add_kernel(&w);
  add_call(&w);
  add_main(&w);
  return QN_OK;
}
