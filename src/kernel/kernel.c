/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kernel's life: its source checked and copied, its text read for what it names. What a launch is made of
 * is launch.c's business. */
#include "kernel/call.h"
#include "kernel/spaces.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */
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
    if (!strcmp(name, qn_attribute_name(k))) return true;
  for (int k = 0; k < QN_CUDA_PLACES && dialect == QN_DIALECT_CUDA; k++)
    if (!strcmp(name, qn_cuda_place_name(k))) return true;
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

static const char *name_at(const qn_kernel_source *s, size_t k)
{
  return k < s->n_inputs ? s->inputs[k] : s->outputs[k - s->n_inputs];
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
    qn_try(check_name(s, k < s->n_inputs ? "an input" : "an output", name_at(s, k)));
    for (size_t j = 0; j < k; j++)
      qn_require(strcmp(name_at(s, j), name_at(s, k)), "kernel %s: two of its tensors are called \"%s\"", s->name,
                 name_at(s, k));
  }
  for (size_t k = 0; k < n * n; k++)
    qn_require(!is_part(name_at(s, k / n), name_at(s, k % n)),
               "kernel %s: \"%s\" is what the body reads of the tensor %s, and cannot name another one", s->name,
               name_at(s, k % n), name_at(s, k / n));
  return QN_OK;
}

qn_status qn_templates_check(const qn_kernel *kernel, const qn_special *special)
{
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 0; k < special->n_templates; k++) {
    const char *name = special->templates[k].name;
    qn_try(check_name(s, "a template value", name));
    for (size_t j = 0; j < s->n_inputs + s->n_outputs; j++)
      qn_require(strcmp(name, name_at(s, j)) && !is_part(name_at(s, j), name),
                 "kernel %s: \"%s\" cannot name a template value, since a tensor is called \"%s\"", s->name, name,
                 name_at(s, j));
  }
  return QN_OK;
}

static qn_status check_source(const qn_kernel_source *s)
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
  qn_require(!s->file || !strpbrk(s->file, "\"\\\n"), "kernel %s: its file's name has a quote, backslash or newline",
             s->name);
  qn_try(check_names(s));
  return qn_contracts_parse(s);
}

/* ---- the copy: one block, pointers first ---- */
typedef struct copier {
  char *at; /* NULL: only count */
  size_t bytes;
} copier;

static const char *copy_text(copier *c, const char *text)
{
  if (!text) return NULL;
  const size_t n = strlen(text) + 1;
  char *to = c->at ? memcpy(c->at + c->bytes, text, n) : NULL;
  c->bytes += n;
  return to;
}

static const char *const *copy_texts(copier *c, const char *const *texts, size_t n)
{
  if (!texts) return NULL;
  c->bytes = (c->bytes + sizeof(char *) - 1) / sizeof(char *) * sizeof(char *);
  const char **to = c->at ? (const char **)(void *)(c->at + c->bytes) : NULL;
  c->bytes += n * sizeof *to;
  for (size_t k = 0; k < n; k++) {
    const char *text = copy_text(c, texts[k]);
    if (to) to[k] = text;
  }
  return (const char *const *)to;
}

static void copy_source(copier *c, qn_kernel_source *to, const qn_kernel_source *from)
{
  *to = *from;
  to->name = copy_text(c, from->name);
  to->body = copy_text(c, from->body);
  to->header = copy_text(c, from->header && *from->header ? from->header : NULL);
  to->file = copy_text(c, from->file ? from->file : from->name);
  to->inputs = copy_texts(c, from->inputs, from->n_inputs);
  to->outputs = copy_texts(c, from->outputs, from->n_outputs);
  to->contracts = copy_texts(c, from->contracts, from->n_inputs + from->n_outputs);
}

/* ---- what the text names ---- */
static bool names_part(const qn_kernel *kernel, const char *tensor, const char *part)
{
  char word[160];
  snprintf(word, sizeof word, "%s_%s", tensor, part);
  return qn_tokens_have(&kernel->tokens[QN_KERNEL_BODY], word) ||
         qn_tokens_have(&kernel->tokens[QN_KERNEL_HEADER], word);
}

static void read_names(qn_kernel *kernel)
{
  const qn_kernel_source *s = &kernel->source;
  for (size_t k = 0; k < s->n_inputs + s->n_outputs; k++) {
    const bool output = k >= s->n_inputs;
    const uint32_t bit = UINT32_C(1) << (output ? k - s->n_inputs : k);
    const char *name = name_at(s, k);
    if (names_part(kernel, name, "shape")) kernel->named_shape[output] |= bit;
    if (names_part(kernel, name, "strides")) kernel->named_strides[output] |= bit;
    if (names_part(kernel, name, "ndim")) kernel->named_ndim[output] |= bit;
  }
  for (size_t k = 0; k < s->n_inputs && s->dialect == QN_DIALECT_CUDA; k++)
    for (int which = 0; which < QN_KERNEL_TEXTS; which++)
      if (qn_tokens_index(&kernel->tokens[which], s->inputs[k])) kernel->indexed |= UINT32_C(1) << k;
  for (int k = 0; k < QN_ATTRIBUTE_COUNT && s->dialect == QN_DIALECT_METAL; k++)
    if (qn_tokens_have(&kernel->tokens[QN_KERNEL_BODY], qn_attribute_name(k))) kernel->attributes |= UINT32_C(1) << k;
  for (int which = 0; which < QN_KERNEL_TEXTS && s->dialect == QN_DIALECT_CUDA; which++)
    for (int k = 0; k < QN_CUDA_PLACES; k++)
      if (qn_tokens_have(&kernel->tokens[which], qn_cuda_place_name(k)) ||
          qn_tokens_have(&kernel->tokens[which], "this_grid") ||
          qn_tokens_have(&kernel->tokens[which], "this_thread_block"))
        kernel->named_places[which] |= UINT32_C(1) << k;
  kernel->needs_group = qn_words_need_group(kernel) || kernel->named_places[QN_KERNEL_HEADER];
  kernel->straight =
      s->dialect == QN_DIALECT_METAL && !kernel->needs_group && !qn_words_loop(kernel) && qn_attributes_of_grid(kernel);
}

qn_status qn_fail_in_text(const qn_kernel *kernel, int which, qn_status status)
{
  const qn_kernel_source *s = &kernel->source;
  char why[512], shown[QN_SHOWN_BYTES] = "";
  int line = 0;
  snprintf(why, sizeof why, "%s", qn_last_error());
  if (sscanf(why, "line %d:", &line) == 1) qn_show_line(which == QN_KERNEL_BODY ? s->body : s->header, line, shown);
  return qn_fail(status, "kernel %s: %s, %s%s", s->name, which == QN_KERNEL_BODY ? "body" : "header", why, shown);
}

static qn_status read_text(qn_kernel *kernel)
{
  const char *const texts[] = {
      [QN_KERNEL_BODY] = kernel->source.body, [QN_KERNEL_HEADER] = kernel->source.header ? kernel->source.header : ""};
  for (int which = 0; which < QN_KERNEL_TEXTS; which++) {
    const qn_status status = qn_tokens_make(texts[which], &kernel->tokens[which]);
    if (status == QN_BAD_ARGUMENT) return qn_fail_in_text(kernel, which, status);
    if (status != QN_OK) return status;
  }
  qn_try(qn_spaces_rename(kernel));
  read_names(kernel);
  return QN_OK;
}

qn_status qn_kernel_create(qn_kernel **kernel, const qn_kernel_source *source)
{
  static atomic_uint_fast64_t count;
  copier counter = {0};
  qn_kernel *made;
  qn_kernel_source counted;
  qn_require(kernel, "where to put the kernel is NULL");
  *kernel = NULL;
  qn_try(check_source(source));
  copy_source(&counter, &counted, source);
  qn_try(qn_try_allocate(&made, sizeof *made + counter.bytes, "a kernel"));
  memset(made, 0, sizeof *made);
  copy_source(&(copier){.at = (char *)(made + 1)}, &made->source, source);
  made->id = atomic_fetch_add(&count, 1) + 1;
  qn_status status = read_text(made);
  if (status == QN_OK)
    *kernel = made;
  else
    qn_kernel_destroy(&made);
  return status;
}

void qn_kernel_destroy(qn_kernel **kernel)
{
  if (!kernel || !*kernel) return;
  qn_kernel *k = *kernel;
  qn_launches_forget(k);
  for (int which = 0; which < QN_KERNEL_TEXTS; which++) {
    qn_tokens_free(&k->tokens[which]);
    qn_text_free(&k->renamed[which]);
  }
  qn_release(k);
  *kernel = NULL;
}
