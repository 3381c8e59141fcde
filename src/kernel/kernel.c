/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - a kernel's life: its source checked and copied, its text read for what it names. What a launch is made of
 * is launch.c's business. */
#include "kernel/kernel.h"
#include "kernel/spaces.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

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
    const char *name = qn_source_tensor_name(s, k);
    if (names_part(kernel, name, "shape")) kernel->named_shape[output] |= bit;
    if (names_part(kernel, name, "strides")) kernel->named_strides[output] |= bit;
    if (names_part(kernel, name, "ndim")) kernel->named_ndim[output] |= bit;
  }
  for (size_t k = 0; k < s->n_inputs && s->dialect == QN_DIALECT_CUDA; k++)
    for (int which = 0; which < QN_KERNEL_TEXTS; which++)
      if (qn_tokens_index(&kernel->tokens[which], s->inputs[k])) kernel->indexed |= UINT32_C(1) << k;
  for (int k = 0; k < QN_ATTRIBUTE_COUNT && s->dialect == QN_DIALECT_METAL; k++)
    if (qn_tokens_have(&kernel->tokens[QN_KERNEL_BODY], qn_attributes[k].name)) kernel->attributes |= UINT32_C(1) << k;
  for (int which = 0; which < QN_KERNEL_TEXTS && s->dialect == QN_DIALECT_CUDA; which++)
    for (int k = 0; k < QN_CUDA_PLACES; k++)
      if (qn_tokens_have(&kernel->tokens[which], qn_cuda_places[k].name) ||
          qn_tokens_have(&kernel->tokens[which], "this_grid") ||
          qn_tokens_have(&kernel->tokens[which], "this_thread_block"))
        kernel->named_places[which] |= UINT32_C(1) << k;
  kernel->needs_group = qn_words_need_group(kernel) || kernel->named_places[QN_KERNEL_HEADER];
  kernel->straight =
      s->dialect == QN_DIALECT_METAL && !kernel->needs_group && !qn_words_loop(kernel) && qn_attributes_of_grid(kernel);
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
  qn_try(qn_source_check(source));
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
