/* SPDX-License-Identifier: Apache-2.0 */
/* workload.c - see workload.h. Shapes of GPT-2 are those of its published weights (Radford et al., 2019): a tied
 * embedding, learned positions, and per block two norms, attention and a four times wider MLP; ViT's are timm's. */
#include "workbench/workload.h"
#include "core/core.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const qn_workload_name qn_workload_names[] = {
    {"1x67.1M", "one tensor of 2^26 = 67,108,864 elements"},
    {"1x1.5G", "one tensor of 1,500,000,000 elements"},
    {"512x64K", "512 tensors of 65,536 elements"},
    {"1x16384^2", "one matrix of 16384 x 16384"},
    {"gpt-10m", "a GPT of four layers of 384: 52 tensors, 10,342,656 elements"},
    {"gpt2-124m", "GPT-2 small: 148 tensors, 124,439,808 elements"},
    {"gpt2-355m", "GPT-2 medium: 292 tensors, 354,823,168 elements"},
    {"gpt2-xl", "GPT-2 XL: 580 tensors, 1,557,611,200 elements"},
    {"vit-b16", "ViT-B/16: 152 tensors, 86,567,656 elements"},
    {NULL, NULL},
};

enum { MOST_TENSORS = 1 << 20 };
static const uint64_t most_elements = UINT64_C(1)
                                      << 48; /* no machine's memory; keeps sums of bytes far from overflow */

/* Everything of a list in one block: items, then shapes, then names. */
typedef struct builder {
  qn_workload *out;
  int64_t *shape;
  char *name;
} builder;

static qn_status begin(builder *b, qn_workload *out, const char *name, size_t n, size_t extents, size_t name_bytes)
{
  size_t items = n * sizeof(qn_workload_item), shapes = extents * sizeof(int64_t), own = strlen(name) + 1;
  *out = (qn_workload){0};
  qn_try(qn_try_allocate(&out->storage, items + shapes + name_bytes + own, "the workload's list"));
  out->item = out->storage;
  *b = (builder){out, (int64_t *)((char *)out->storage + items), (char *)out->storage + items + shapes};
  out->name = memcpy(b->name, name, own);
  b->name += own;
  return QN_OK;
}

static qn_status add(builder *b, const char *name, int ndim, const int64_t *shape)
{
  qn_workload *w = b->out;
  uint64_t elements = 1;
  for (int k = 0; k < ndim; k++)
    qn_require(!__builtin_mul_overflow(elements, (uint64_t)shape[k], &elements) && elements <= most_elements,
               "workload %s: tensor %s has more than 2^48 elements", w->name, name);
  qn_require(w->elements + elements <= most_elements, "workload %s has more than 2^48 elements", w->name);
  size_t bytes = strlen(name) + 1;
  if (ndim) memcpy(b->shape, shape, (size_t)ndim * sizeof *shape);
  memcpy(b->name, name, bytes);
  w->item[w->n++] = (qn_workload_item){b->name, ndim, b->shape, elements};
  w->elements += elements;
  b->shape += ndim;
  b->name += bytes;
  return QN_OK;
}

static qn_status make_equal(const char *name, size_t n, int64_t elements, qn_workload *out)
{
  builder b;
  qn_require(n <= MOST_TENSORS, "workload %s: %zu tensors, the most is %d", name, n, MOST_TENSORS);
  qn_try(begin(&b, out, name, n, n, n * 16));
  for (size_t k = 0; k < n; k++) {
    char item[16];
    snprintf(item, sizeof item, "t%u", (unsigned)k);
    qn_status status = add(&b, item, 1, &elements);
    if (status != QN_OK) {
      qn_workload_free(out);
      return status;
    }
  }
  return QN_OK;
}

typedef struct named {
  const char *name;
  int ndim;
  int64_t shape[4];
} named;

/* `n` tensors of each of `blocks` blocks, "h.0." before their names. */
static qn_status add_blocks(builder *b, const char *before, int blocks, const named *of, size_t n)
{
  for (int k = 0; k < blocks; k++)
    for (size_t j = 0; j < n; j++) {
      char full[40];
      snprintf(full, sizeof full, "%s.%d.%s", before, k, of[j].name);
      qn_try(add(b, full, of[j].ndim, of[j].shape));
    }
  return QN_OK;
}

static qn_status make_vit(const char *name, int64_t d, int blocks, qn_workload *out)
{
  const named begin_with[] = {{"cls_token", 3, {1, 1, d}},
                              {"pos_embed", 3, {1, 197, d}},
                              {"patch_embed.proj.weight", 4, {d, 3, 16, 16}},
                              {"patch_embed.proj.bias", 1, {d}}};
  const named block[] = {{"norm1.weight", 1, {d}},           {"norm1.bias", 1, {d}},
                         {"attn.qkv.weight", 2, {3 * d, d}}, {"attn.qkv.bias", 1, {3 * d}},
                         {"attn.proj.weight", 2, {d, d}},    {"attn.proj.bias", 1, {d}},
                         {"norm2.weight", 1, {d}},           {"norm2.bias", 1, {d}},
                         {"mlp.fc1.weight", 2, {4 * d, d}},  {"mlp.fc1.bias", 1, {4 * d}},
                         {"mlp.fc2.weight", 2, {d, 4 * d}},  {"mlp.fc2.bias", 1, {d}}};
  const named end_with[] = {
      {"norm.weight", 1, {d}}, {"norm.bias", 1, {d}}, {"head.weight", 2, {1000, d}}, {"head.bias", 1, {1000}}};
  enum { PER_BLOCK = sizeof block / sizeof *block, ENDS = 4 };
  const size_t n = (size_t)blocks * PER_BLOCK + 2 * ENDS;
  builder b;
  qn_try(begin(&b, out, name, n, 4 * n, 40 * n));
  for (int k = 0; k < ENDS; k++) qn_try(add(&b, begin_with[k].name, begin_with[k].ndim, begin_with[k].shape));
  qn_try(add_blocks(&b, "blocks", blocks, block, PER_BLOCK));
  for (int k = 0; k < ENDS; k++) qn_try(add(&b, end_with[k].name, end_with[k].ndim, end_with[k].shape));
  return QN_OK;
}

static qn_status make_square(const char *name, int64_t d, qn_workload *out)
{
  const int64_t shape[] = {d, d};
  builder b;
  qn_try(begin(&b, out, name, 1, 2, 8));
  return add(&b, "t0", 2, shape);
}

/* d wide, `blocks` deep. */
static qn_status make_gpt2(const char *name, int64_t d, int blocks, int64_t words, int64_t places, qn_workload *out)
{
  const named block[] = {
      {"ln_1.weight", 1, {d}},
      {"ln_1.bias", 1, {d}},
      {"attn.c_attn.weight", 2, {d, 3 * d}},
      {"attn.c_attn.bias", 1, {3 * d}},
      {"attn.c_proj.weight", 2, {d, d}},
      {"attn.c_proj.bias", 1, {d}},
      {"ln_2.weight", 1, {d}},
      {"ln_2.bias", 1, {d}},
      {"mlp.c_fc.weight", 2, {d, 4 * d}},
      {"mlp.c_fc.bias", 1, {4 * d}},
      {"mlp.c_proj.weight", 2, {4 * d, d}},
      {"mlp.c_proj.bias", 1, {d}},
  };
  enum { PER_BLOCK = sizeof block / sizeof *block };
  const int64_t vocabulary[] = {words, d}, positions[] = {places, d};
  size_t n = (size_t)blocks * PER_BLOCK + 4;
  builder b;
  qn_try(begin(&b, out, name, n, 2 * n, 32 * n));
  qn_try(add(&b, "wte.weight", 2, vocabulary));
  qn_try(add(&b, "wpe.weight", 2, positions));
  qn_try(add_blocks(&b, "h", blocks, block, PER_BLOCK));
  qn_try(add(&b, "ln_f.weight", 1, &d));
  return add(&b, "ln_f.bias", 1, &d);
}

/* "3000", "64K": digits and one suffix, at least 1. Returns what stands behind, NULL if it is no number. */
static const char *read_count(const char *text, uint64_t *count)
{
  if (!isdigit((unsigned char)*text)) return NULL;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  static const char suffixes[] = "KMG";
  const char *suffix = *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
  int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
  if (errno || value == 0 || value > most_elements >> shift) return NULL;
  *count = value << shift;
  return end + (suffix != NULL);
}

qn_status qn_workload_find(const char *name, qn_workload *workload)
{
  if (!strcmp(name, "1x67.1M")) return make_equal(name, 1, INT64_C(1) << 26, workload);
  if (!strcmp(name, "1x1.5G")) return make_equal(name, 1, 1500000000, workload);
  if (!strcmp(name, "1x16384^2")) return make_square(name, 16384, workload);
  if (!strcmp(name, "gpt-10m")) return make_gpt2(name, 384, 4, 8192, 256, workload);
  if (!strcmp(name, "gpt2-124m")) return make_gpt2(name, 768, 12, 50257, 1024, workload);
  if (!strcmp(name, "gpt2-355m")) return make_gpt2(name, 1024, 24, 50257, 1024, workload);
  if (!strcmp(name, "gpt2-xl")) return make_gpt2(name, 1600, 48, 50257, 1024, workload);
  if (!strcmp(name, "vit-b16")) return make_vit(name, 768, 12, workload);
  uint64_t n, elements;
  const char *rest = read_count(name, &n);
  if (rest && (*rest == 'x' || *rest == 'X'))
    rest = read_count(rest + 1, &elements);
  else
    rest = NULL;
  if (rest && !*rest) return make_equal(name, (size_t)n, (int64_t)elements, workload);

  const char *names[sizeof qn_workload_names / sizeof *qn_workload_names];
  for (size_t k = 0; k < sizeof names / sizeof *names; k++) names[k] = qn_workload_names[k].name;
  const char *near = qn_nearest(name, names);
  qn_text all = {0};
  for (size_t k = 0; names[k]; k++) qn_text_add(&all, "%s, ", names[k]);
  const qn_status status =
      qn_fail(QN_BAD_ARGUMENT, "there is no workload %s; %s%s%s %sand NxM, N tensors of M elements each, as 12x3000",
              name, near ? "did you mean " : "", near ? near : "", near ? "? There are" : "there are",
              all.at && !all.failed ? all.at : "");
  qn_text_free(&all);
  return status;
}

qn_status qn_workload_read(const char *path, qn_workload *workload)
{
  const char *slash = strrchr(path, '/');
  qn_safetensors list;
  qn_try(qn_safetensors_read(path, &list));
  size_t extents = 0, name_bytes = 0;
  for (size_t k = 0; k < list.n; k++) {
    extents += (size_t)list.tensor[k].ndim;
    name_bytes += strlen(list.tensor[k].name) + 1;
  }
  builder b;
  qn_status status = begin(&b, workload, slash ? slash + 1 : path, list.n, extents, name_bytes);
  for (size_t k = 0; status == QN_OK && k < list.n; k++)
    status = add(&b, list.tensor[k].name, list.tensor[k].ndim, list.tensor[k].shape);
  if (status == QN_OK && workload->elements == 0)
    status = qn_fail(QN_BAD_FILE, "%s: its %zu tensors have no elements: there is nothing to time", path, list.n);
  qn_safetensors_free(&list);
  if (status != QN_OK) qn_workload_free(workload);
  return status;
}

void qn_workload_free(qn_workload *workload)
{
  qn_release(workload->storage);
  *workload = (qn_workload){0};
}
