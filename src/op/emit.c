/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - an op's device kernel as one file of CUDA C, HIP C or Metal, from the very sources that a launch compiles:
 * specialised for one row of types and the flags that the params ask for, over one tensor of every role. CUDA and HIP
 * get a launcher with C linkage; Metal's comment says how the one argument is laid out. The coefficients that the
 * params make are written into the file. */
#include "base/list_kernel_args.h"
#include "core/core.h"
#include "device/preprocess.h"
#include "kernel/emit.h"
#include "op/device_list.h"
#include "op/call.h"

enum { THREADS = 256 };

typedef struct writer {
  const qn_op *op;
  const qn_op_types *types;
  qn_emit form;
  uint32_t flags, slots, pack;
  bool random;
  qn_list_offsets offsets;
  _Alignas(16) unsigned char coef[QN_COEF_BYTES];
  qn_text *text;
} writer;

static const char *const endings[] = {[QN_EMIT_CUDA] = "cu", [QN_EMIT_HIP] = "hip", [QN_EMIT_METAL] = "metal"};

static bool is_given(const writer *w, size_t role) { return w->types->tensor[role].access != QN_ABSENT; }

static const char *c_word(const writer *w, size_t role)
{
  return w->types->tensor[role].dtype == QN_F32 ? "float" : "unsigned short";
}

/* ---- the comment ---- */
static void add_prototype(const writer *w)
{
  qn_text_add(w->text, "int quern_launch_%s(const void *coef, ", w->op->info.name);
  for (size_t r = 0; r < w->op->info.n_tensors; r++)
    if (is_given(w, r))
      qn_text_add(w->text, "%s%s *%s, ", w->types->tensor[r].access == QN_READ ? "const " : "", c_word(w, r),
                  w->op->info.tensors[r].name);
  qn_text_add(w->text, "unsigned long long n, %svoid *stream)",
              w->random ? "unsigned long long first, unsigned int tensor_id, " : "");
}

static void add_roles(const writer *w)
{
  static const char *const access[] = {"", "read", "written", "updated"};
  for (size_t r = 0; r < w->op->info.n_tensors; r++)
    if (is_given(w, r))
      qn_text_add(w->text, " *   %-10s %s, %s: %s\n", w->op->info.tensors[r].name,
                  qn_dtype_name(w->types->tensor[r].dtype), access[w->types->tensor[r].access],
                  w->op->info.tensors[r].doc);
}

static void add_comment(const writer *w)
{
  const char *name = w->op->info.name, *ending = endings[w->form];
  static const char *const commands[] = {
      [QN_EMIT_CUDA] = "nvcc -std=c++17 -fmad=false",
      [QN_EMIT_HIP] = "hipcc -std=c++17 --offload-arch=gfx90a",
      [QN_EMIT_METAL] = "xcrun -sdk macosx metal -std=metal3.1 -fmetal-math-mode=safe",
  };
  qn_text_add(w->text, "/* %s.%s - %s, made by quern " QN_VERSION " from its own device source.\n *   %s -c %s.%s\n",
              name, ending, w->op->info.brief, commands[w->form], name, ending);
  if (w->form == QN_EMIT_METAL) {
    const qn_list_offsets *o = &w->offsets;
    qn_text_add(
        w->text,
        " * Kernel %s, groups of %d threads, each of %u elements. Buffer 0, %zu bytes: coefficients (quern_%s_coef) "
        "at 0, the tensors'\n * addresses from %zu on in this order, their elements at %zu, 1 at %zu, 0 at %zu",
        name, THREADS, w->pack, o->bytes, name, o->data, o->elements, o->head, o->head + 4);
    if (w->random)
      qn_text_add(w->text, ", the first element's index at %zu, the tensor's number at %zu", o->first, o->id);
    qn_text_add(w->text, ".\n");
  } else {
    qn_text_add(w->text, " *   ");
    add_prototype(w);
    qn_text_add(w->text,
                ";\n * coef: the op's coefficients, NULL: quern_%s_coef. n: elements.%s stream: as the runtime "
                "has them; the result is its error.\n",
                name, w->random ? " first, tensor_id: of the random numbers." : "");
  }
  add_roles(w);
  qn_text_add(w->text, " */\n");
}

static void add_coef(const writer *w)
{
  qn_text_add(w->text, "%s unsigned char quern_%s_coef[%zu] = {",
              w->form == QN_EMIT_METAL ? "constant" : "static const", w->op->info.name, w->op->coef_bytes);
  for (size_t k = 0; k < w->op->coef_bytes; k++) qn_text_add(w->text, "%s%u", k ? "," : "", w->coef[k]);
  qn_text_add(w->text, "};\n");
}

/* ---- the source ---- */
static qn_status add_source(const writer *w, const qn_list_unit *unit)
{
  qn_text whole = {0};
  qn_tokens tokens = {0};
  qn_status status = qn_preprocess(&(qn_unit){.source = w->op->device_source, .defines = unit->defines}, &whole);
  if (status == QN_OK && w->form != QN_EMIT_METAL)
    qn_text_add_bytes(w->text, whole.at, whole.length);
  else if (status == QN_OK) {
    status = qn_tokens_make(whole.at, &tokens);
    if (status == QN_OK) status = qn_emit_mark_parameters(&tokens, w->text);
    qn_tokens_free(&tokens);
  }
  qn_text_free(&whole);
  return status;
}

static void add_launcher(const writer *w)
{
  const qn_list_offsets *o = &w->offsets;
  const char *prefix = w->form == QN_EMIT_HIP ? "hip" : "cuda", *name = w->op->info.name;
  uint32_t slot = 0;
  qn_text_add(w->text, "#line 1 \"%s.%s (launcher)\"\nextern \"C\" ", name, endings[w->form]);
  add_prototype(w);
  qn_text_add(w->text,
              "\n{\n  alignas(16) unsigned char argument[%zu] = {};\n  void *arguments[] = {argument};\n"
              "  const unsigned int one = 1;\n  const unsigned long long blocks = n / %u + (n %% %u != 0);\n"
              "  if (n == 0) return %sSuccess;\n  if (blocks > 0x7fffffff) return %sErrorInvalidValue;\n"
              "  __builtin_memcpy(argument, coef ? coef : quern_%s_coef, %zu);\n"
              "  __builtin_memcpy(argument + %zu, &n, 8);\n  __builtin_memcpy(argument + %zu, &one, 4);\n",
              o->bytes, THREADS * w->pack, THREADS * w->pack, prefix, prefix, name, w->op->coef_bytes, o->elements,
              o->head);
  for (size_t r = 0; r < w->op->info.n_tensors; r++)
    if (is_given(w, r))
      qn_text_add(w->text, "  __builtin_memcpy(argument + %zu, &%s, 8);\n", o->data + 8 * slot++,
                  w->op->info.tensors[r].name);
  if (w->random)
    qn_text_add(w->text,
                "  __builtin_memcpy(argument + %zu, &first, 8);\n  __builtin_memcpy(argument + %zu, &tensor_id, 4);\n",
                o->first, o->id);
  qn_text_add(w->text,
              "  return %sLaunchKernel(reinterpret_cast<const void *>(&%s), dim3(static_cast<unsigned int>(blocks), 1, "
              "1), dim3(%d, 1, 1), arguments,\n                          0, static_cast<%sStream_t>(stream));\n}\n",
              prefix, name, THREADS, prefix);
}

/* ---- the call ---- */
/* Everything about the writer but the text, and the unit's defines. */
static qn_status prepare(writer *w, size_t row, const void *params, qn_list_unit *unit)
{
  const qn_op *op = w->op;
  w->types = &op->info.types[row];
  w->flags = op->flags ? op->flags(params, row) : 0;
  w->random = (w->flags & op->random_flags) != 0;
  w->pack = 8;
  for (size_t r = 0; r < op->info.n_tensors; r++) {
    w->slots += is_given(w, r);
    if (is_given(w, r) && qn_dtype_bytes(w->types->tensor[r].dtype) != 2) w->pack = 4;
  }
  if (op->phases && op->phases(params) > 1)
    return qn_fail(QN_UNSUPPORTED,
                   "%s: these params ask for a phase that counts first, which one emitted kernel is not",
                   op->info.name);
  w->offsets = qn_list_offsets_of(op->coef_bytes, w->slots, 1, w->random);
  op->coefficients(params, w->coef);
  qn_device_list_unit(op, row, w->flags, 1, false, NULL, unit);
  return QN_OK;
}

static qn_status check_params(const qn_op_info *info, size_t row, const void *params)
{
  qn_require(row < info->n_types, "%s: there is no row %zu of types, there are %zu", info->name, row, info->n_types);
  if (row >= qn_op_rows(info, QN_CUDA))
    return qn_fail(QN_UNSUPPORTED, "%s: float64 is computed on the processor alone, and has no source to emit",
                   info->name);
  qn_require(params, "%s: the params are NULL", info->name);
  for (size_t k = 0; k < info->n_params; k++) {
    const qn_op_param *p = &info->params[k];
    const void *at = (const char *)params + p->offset;
    if (p->type >= QN_PARAM_DEVICE_F32)
      qn_require(!*(void *const *)at, "%s: %s is a pointer, which an emitted file cannot hold", info->name, p->name);
  }
  return QN_OK;
}

qn_status qn_op_emit(const qn_op_info *info, qn_emit form, size_t row, const void *params, char **text)
{
  qn_text made = {0};
  qn_list_unit unit;
  qn_require(text, "qn_op_emit: where to put the text is NULL");
  *text = NULL;
  qn_require(info, "qn_op_emit: the op is NULL");
  qn_require((unsigned)form < QN_EMIT_COUNT, "%s: %d is no form of source", info->name, (int)form);
  if (!((const qn_op *)info)->coefficients)
    return qn_fail(QN_UNSUPPORTED, "%s: it is more than one kernel, and cannot be written as one file", info->name);
  if (form == QN_EMIT_MLX)
    return qn_fail(QN_UNSUPPORTED, "%s: an op has no body that MLX could take; its forms are cuda, hip and metal",
                   info->name);
  qn_try(check_params(info, row, params));
  writer w = {.op = (const qn_op *)info, .form = form, .text = &made};
  qn_try(qn_validate_params(w.op, params));
  qn_try(prepare(&w, row, params, &unit));
  add_comment(&w);
  if (form == QN_EMIT_HIP) qn_text_add(&made, "#include <hip/hip_runtime.h>\n#pragma clang fp contract(off)\n");
  if (form == QN_EMIT_METAL)
    qn_text_add(&made, "#include <metal_stdlib>\nusing namespace metal;\n#define QN_METAL_DIALECT 1\n");
  add_coef(&w);
  qn_status status = add_source(&w, &unit);
  if (status == QN_OK && form != QN_EMIT_METAL) add_launcher(&w);
  if (status == QN_OK && made.failed) status = qn_fail(QN_NO_MEMORY, "%s: no memory for its text", info->name);
  if (status == QN_OK)
    *text = made.at;
  else
    qn_text_free(&made);
  return status;
}
