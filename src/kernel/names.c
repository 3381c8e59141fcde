/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - which names and counts a kernel's source may have, and its template values. */
#include "kernel/call.h"
#include <stdio.h>
#include <string.h>

static bool is_among(const char *name, const char *words)
{
  const size_t n = strlen(name);
  for (const char *at = words; (at = strstr(at, name)); at += n)
    if (at > words && at[-1] == ' ' && at[n] == ' ') return true;
  return false;
}

/* "float4", of the words that vectors begin with. */
static bool is_vector(const char *name)
{
  static const char kinds[] = " bool char uchar short ushort int uint long ulong longlong ulonglong half bfloat float "
                              "double ";
  char kind[16];
  const size_t n = strlen(name);
  if (n < 4 || n >= sizeof kind || name[n - 1] < '1' || name[n - 1] > '4') return false;
  snprintf(kind, sizeof kind, "%.*s", (int)n - 1, name);
  return is_among(kind, kinds);
}

/* C++'s own, and the namespace of the words: not even a kernel can have their names, which stand in emitted sources. */
static bool is_keyword(const char *name)
{
  static const char words[] =
      " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl "
      "const "
      "constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern "
      "false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or "
      "or_eq private protected public register reinterpret_cast return short signed sizeof static static_assert "
      "static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned "
      "using "
      "virtual void volatile wchar_t while xor xor_eq defined metal ";
  return is_among(name, words);
}

/* Words that a dialect keeps to itself, or that words/ has as macros. */
static bool is_reserved(const char *name)
{
  static const char words[] =
      " half bfloat bfloat16_t float16_t uint uchar ushort ulong size_t int8_t uint8_t int16_t uint16_t int32_t "
      "uint32_t "
      "int64_t uint64_t complex64_t vec atomic dim3 device constant threadgroup thread kernel this_grid "
      "this_thread_block assert NAN INFINITY HUGE_VALF MAXFLOAT METAL_FUNC INT_MAX INT_MIN UINT_MAX FLT_MAX FLT_MIN "
      "FLT_EPSILON M_PI_F M_E_F HALF_MAX CHAR_BIT ";
  return is_keyword(name) || is_among(name, words) || is_vector(name);
}

static bool is_place(qn_dialect dialect, const char *name)
{
  for (int k = 0; k < QN_ATTRIBUTE_COUNT && dialect == QN_DIALECT_METAL; k++)
    if (!strcmp(name, qn_attributes[k].name)) return true;
  for (int k = 0; k < QN_CUDA_PLACES && dialect == QN_DIALECT_CUDA; k++)
    if (!strcmp(name, qn_cuda_places[k].name)) return true;
  return false;
}

static qn_status check_name(const qn_kernel_source *s, const char *what, const char *name)
{
  const char *own = s->name;
  qn_require(name, "kernel %s: the name of %s is NULL", own, what);
  qn_require(qn_is_identifier(name), "kernel %s: \"%.64s\" is no identifier, and cannot name %s", own, name, what);
  qn_require(strlen(name) < 128, "kernel %s: the name of %s has %zu characters, at most 127 are taken", own, what,
             strlen(name));
  qn_require(!is_reserved(name), "kernel %s: \"%s\" is a word of the language, and cannot name %s", own, name, what);
  qn_require(!is_place(s->dialect, name),
             "kernel %s: \"%s\" is what the body asks for a thread's place with, and cannot name %s", own, name, what);
  qn_require(strncmp(name, "quern_", 6) && strncmp(name, "qn_", 3) && strncmp(name, "QN_", 3),
             "kernel %s: \"%s\" begins as quern's own names do, and cannot name %s", own, name, what);
  qn_require(strncmp(name, "__", 2), "kernel %s: \"%s\" begins as the compiler's own names do, and cannot name %s", own,
             name, what);
  return QN_OK;
}

/* x_shape, x_strides or x_ndim of the tensor x. */
static bool is_part(const char *tensor, const char *name)
{
  const size_t n = strlen(tensor);
  return !strncmp(name, tensor, n) &&
         (!strcmp(name + n, "_shape") || !strcmp(name + n, "_strides") || !strcmp(name + n, "_ndim"));
}

static qn_status check_names(const qn_kernel_source *s)
{
  const size_t n = s->n_inputs + s->n_outputs;
  for (size_t k = 0; k < n; k++) {
    qn_try(check_name(s, k < s->n_inputs ? "an input" : "an output", qn_source_tensor_name(s, k)));
    for (size_t j = 0; j < k; j++)
      qn_require(strcmp(qn_source_tensor_name(s, j), qn_source_tensor_name(s, k)),
                 "kernel %s: two of its tensors are called \"%s\"", s->name, qn_source_tensor_name(s, k));
  }
  for (size_t k = 0; k < n * n; k++)
    qn_require(!is_part(qn_source_tensor_name(s, k / n), qn_source_tensor_name(s, k % n)),
               "kernel %s: \"%s\" is what the body reads of the tensor %s, and cannot name another one", s->name,
               qn_source_tensor_name(s, k % n), qn_source_tensor_name(s, k / n));
  return QN_OK;
}

qn_status qn_templates_check(const qn_kernel *kernel, const qn_special *special)
{
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 0; k < special->n_templates; k++) {
    const char *name = special->templates[k].name;
    qn_try(check_name(s, "a template value", name));
    for (size_t j = 0; j < s->n_inputs + s->n_outputs; j++)
      qn_require(strcmp(name, qn_source_tensor_name(s, j)) && !is_part(qn_source_tensor_name(s, j), name),
                 "kernel %s: \"%s\" cannot name a template value, since a tensor is called \"%s\"", s->name, name,
                 qn_source_tensor_name(s, j));
  }
  return QN_OK;
}

qn_status qn_source_check(const qn_kernel_source *s)
{
  qn_require(s, "a kernel's source is NULL");
  qn_require(s->size == sizeof *s, "a kernel's source has size %zu, this library's is %zu", s->size, sizeof *s);
  qn_require(s->name && qn_is_identifier(s->name), "a kernel's name \"%.64s\" is no identifier",
             s->name ? s->name : "");
  qn_require(strlen(s->name) <= 40, "kernel %.64s: its name has %zu characters, at most 40 are taken", s->name,
             strlen(s->name));
  qn_require(!is_keyword(s->name), "kernel %s: its name is a word of the language, and cannot name a kernel", s->name);
  qn_require(s->body, "kernel %s: its body is NULL", s->name);
  qn_require((unsigned)s->dialect <= QN_DIALECT_CUDA, "kernel %s: %d is no dialect", s->name, (int)s->dialect);
  qn_require((unsigned)s->math <= QN_MATH_FAST, "kernel %s: %d is no math mode", s->name, (int)s->math);
  qn_require(s->n_outputs >= 1, "kernel %s: it has no output", s->name);
  qn_require(s->n_inputs + s->n_outputs <= QN_KERNEL_MAX_TENSORS,
             "kernel %s: %zu inputs and %zu outputs, at most %d in all", s->name, s->n_inputs, s->n_outputs,
             QN_KERNEL_MAX_TENSORS);
  qn_require(s->inputs || !s->n_inputs, "kernel %s: the names of its inputs are NULL", s->name);
  qn_require(s->outputs, "kernel %s: the names of its outputs are NULL", s->name);
  qn_require(!(s->strided >> s->n_inputs), "kernel %s: strided has a bit for an input that is not there", s->name);
  qn_require(!(s->atomic >> s->n_outputs), "kernel %s: atomic has a bit for an output that is not there", s->name);
  qn_require(s->cluster <= QN_KERNEL_MAX_CLUSTER && (!s->cluster || s->dialect == QN_DIALECT_CUDA),
             "kernel %s: a cluster of %u blocks: CUDA's dialect has clusters, of at most %d", s->name, s->cluster,
             QN_KERNEL_MAX_CLUSTER);
  qn_require(!s->file || !strpbrk(s->file, "\"\\\n"), "kernel %s: its file's name has a quote, backslash or newline",
             s->name);
  qn_try(check_names(s));
  return qn_contracts_parse(s);
}
