/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kernel's life: its source checked and copied, its text read for what it names. What a launch is made of
 * is launch.c's business. */
#include "kernel/call.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Words that C++ or a dialect keeps to itself: a parameter cannot have their names. */
static bool is_reserved(const char *name)
{
  static const char *const reserved[] = {
      "alignas",     "alignof",    "and",          "asm",      "auto",     "bool",
      "break",       "case",       "catch",        "char",     "class",    "const",
      "constexpr",   "const_cast", "continue",     "decltype", "default",  "delete",
      "do",          "double",     "dynamic_cast", "else",     "enum",     "explicit",
      "export",      "extern",     "false",        "float",    "for",      "friend",
      "goto",        "if",         "inline",       "int",      "long",     "mutable",
      "namespace",   "new",        "noexcept",     "not",      "nullptr",  "operator",
      "or",          "private",    "protected",    "public",   "register", "reinterpret_cast",
      "return",      "short",      "signed",       "sizeof",   "static",   "static_assert",
      "static_cast", "struct",     "switch",       "template", "this",     "thread_local",
      "throw",       "true",       "try",          "typedef",  "typeid",   "typename",
      "union",       "unsigned",   "using",        "virtual",  "void",     "volatile",
      "while",       "xor",        "half",         "uint",     "device",   "constant",
      "threadgroup", "thread",     "kernel",       "metal"};
  for (size_t k = 0; k < sizeof reserved / sizeof *reserved; k++)
    if (!strcmp(name, reserved[k])) return true;
  return false;
}

static qn_status check_name(const char *kernel, const char *what, const char *name)
{
  qn_require(name, "kernel %s: the name of an %s is NULL", kernel, what);
  qn_require(qn_is_identifier(name), "kernel %s: \"%.64s\" is no identifier, and cannot name an %s", kernel, name,
             what);
  qn_require(strlen(name) < 128, "kernel %s: the name of an %s has %zu characters, at most 127 are taken", kernel, what,
             strlen(name));
  qn_require(!is_reserved(name), "kernel %s: \"%s\" is a word of the language, and cannot name an %s", kernel, name,
             what);
  qn_require(strncmp(name, "quern_", 6) && strncmp(name, "qn_", 3) && strncmp(name, "QN_", 3),
             "kernel %s: \"%s\" begins as quern's own names do, and cannot name an %s", kernel, name, what);
  return QN_OK;
}

static const char *name_at(const qn_kernel_source *s, size_t k)
{
  return k < s->n_inputs ? s->inputs[k] : s->outputs[k - s->n_inputs];
}

static qn_status check_names(const qn_kernel_source *s)
{
  const size_t n = s->n_inputs + s->n_outputs;
  for (size_t k = 0; k < n; k++) {
    qn_try(check_name(s->name, k < s->n_inputs ? "input" : "output", name_at(s, k)));
    for (size_t j = 0; j < k; j++)
      qn_require(strcmp(name_at(s, j), name_at(s, k)), "kernel %s: two of its tensors are called \"%s\"", s->name,
                 name_at(s, k));
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
  for (int k = 0; k < QN_ATTRIBUTE_COUNT && s->dialect == QN_DIALECT_METAL; k++)
    if (qn_tokens_have(&kernel->tokens[QN_KERNEL_BODY], qn_attribute_name(k))) kernel->attributes |= UINT32_C(1) << k;
  for (int which = 0; which < QN_KERNEL_TEXTS && s->dialect == QN_DIALECT_CUDA; which++)
    for (int k = 0; k < QN_CUDA_PLACES; k++)
      if (qn_tokens_have(&kernel->tokens[which], qn_cuda_place_name(k)))
        kernel->named_places[which] |= UINT32_C(1) << k;
  kernel->needs_group = qn_words_need_group(kernel) || kernel->named_places[QN_KERNEL_HEADER];
  kernel->straight =
      s->dialect == QN_DIALECT_METAL && !kernel->needs_group && !qn_words_loop(kernel) && qn_attributes_of_grid(kernel);
}

static qn_status read_text(qn_kernel *kernel)
{
  qn_status status = qn_tokens_make(kernel->source.body, &kernel->tokens[QN_KERNEL_BODY]);
  if (status == QN_OK)
    status = qn_tokens_make(kernel->source.header ? kernel->source.header : "", &kernel->tokens[QN_KERNEL_HEADER]);
  if (status == QN_BAD_ARGUMENT) {
    char why[512];
    snprintf(why, sizeof why, "%s", qn_last_error());
    return qn_fail(status, "kernel %s: %s", kernel->source.name, why);
  }
  if (status == QN_OK) read_names(kernel);
  return status;
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

qn_status qn_kernel_of_ours(qn_kernel *_Atomic *kept, const qn_kernel_source *source, qn_kernel **kernel)
{
  qn_kernel *made, *none = NULL;
  *kernel = atomic_load(kept);
  if (*kernel) return QN_OK;
  qn_try(qn_kernel_create(&made, source));
  made->ours = true;
  *kernel = made;
  if (atomic_compare_exchange_strong(kept, &none, made)) return QN_OK;
  *kernel = none; /* another thread's, first */
  qn_kernel_destroy(&made);
  return QN_OK;
}

void qn_kernel_destroy(qn_kernel **kernel)
{
  if (!kernel || !*kernel) return;
  qn_kernel *k = *kernel;
  qn_launches_forget(k);
  for (int which = 0; which < QN_KERNEL_TEXTS; which++) qn_tokens_free(&k->tokens[which]);
  qn_release(k);
  *kernel = NULL;
}
