/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c - what a kernel's author lets its body rely on, "f32|f16 [n, h, w, 2] dense": read at creation, held
 * against every call. It is read anew for each call, which for a text of this length takes less time than a kept form
 * would take memory. Sentences name kernel, tensor, and the types and extents that came. */
#include "kernel/call.h"
#include "core/expression.h"
#include "core/shape_rule.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = QN_EXTENT_BYTES, MOST_WORDS = 64, SHAPE_BYTES = 256 };

/* A word of extents and the first extent that it stood for. */
typedef struct word {
  char name[NAME_BYTES];
  int64_t extent;
  size_t tensor;
} word;

typedef struct reader {
  const qn_kernel_source *source;
  const qn_kernel_call *call; /* NULL: only read */
  size_t tensor;              /* inputs, then outputs */
  const char *text, *at;
  word words[MOST_WORDS];
  size_t n_words;
} reader;

static bool is_input(const reader *r, size_t tensor) { return tensor < r->source->n_inputs; }

static const char *name_of(const reader *r, size_t tensor) { return qn_source_tensor_name(r->source, tensor); }

static const qn_tensor *tensor_of(const reader *r, size_t tensor)
{
  return is_input(r, tensor) ? &r->call->inputs[tensor] : &r->call->outputs[tensor - r->source->n_inputs];
}

static qn_status bad(const reader *r, const char *what)
{
  return qn_fail(QN_BAD_ARGUMENT, "%s: the contract of %s \"%s\", \"%s\", at character %d: %s", r->source->name,
                 is_input(r, r->tensor) ? "input" : "output", name_of(r, r->tensor), r->text,
                 (int)(r->at - r->text) + 1, what);
}

static const char *shape_text(const qn_tensor *t, char text[SHAPE_BYTES])
{
  int at = snprintf(text, SHAPE_BYTES, "[");
  for (int k = 0; k < t->ndim && at < SHAPE_BYTES - 32; k++)
    at += snprintf(text + at, SHAPE_BYTES - (size_t)at, "%s%lld", k ? ", " : "", (long long)t->shape[k]);
  snprintf(text + at, SHAPE_BYTES - (size_t)at, "]");
  return text;
}

/* The call breaks the contract: what came, and why that is not it. */
static qn_status broken(const reader *r, const char *why)
{
  char text[SHAPE_BYTES];
  const qn_tensor *t = tensor_of(r, r->tensor);
  return qn_fail(QN_BAD_ARGUMENT, "%s: %s \"%s\" is %s %s; its contract is \"%s\": %s", r->source->name,
                 is_input(r, r->tensor) ? "input" : "output", name_of(r, r->tensor), qn_dtype_name(t->dtype),
                 shape_text(t, text), r->text, why);
}

/* ---- characters ---- */
static void skip_blanks(reader *r) { r->at += strspn(r->at, " \t\n"); }

static bool take(reader *r, char mark)
{
  skip_blanks(r);
  if (*r->at != mark) return false;
  r->at++;
  return true;
}

static bool is_letter(char c) { return isalpha((unsigned char)c) || c == '_'; }

static qn_status read_name(reader *r, char name[NAME_BYTES])
{
  size_t n = 0;
  skip_blanks(r);
  while (is_letter(r->at[n]) || (n && isdigit((unsigned char)r->at[n]))) n++;
  if (n >= NAME_BYTES) return bad(r, "a word of more than 47 characters");
  memcpy(name, r->at, n);
  name[n] = 0;
  r->at += n;
  return QN_OK;
}

/* ---- types ---- */

/* Behind a name: ".dtype", the type of the input of that name. */
static qn_status read_type_of(reader *r, const char *name, bool *fits)
{
  char member[NAME_BYTES];
  size_t k = 0;
  qn_try(read_name(r, member));
  if (strcmp(member, "dtype")) return bad(r, "behind an input's name only .dtype can stand");
  while (k < r->source->n_inputs && strcmp(r->source->inputs[k], name)) k++;
  if (k == r->source->n_inputs) return bad(r, "what stands before .dtype is no input's name");
  *fits |= r->call && tensor_of(r, r->tensor)->dtype == r->call->inputs[k].dtype;
  return QN_OK;
}

static qn_status read_type(reader *r, bool *fits)
{
  char name[NAME_BYTES];
  const char *begin = r->at;
  qn_try(read_name(r, name));
  if (take(r, '.')) return read_type_of(r, name, fits);
  const qn_dtype dtype = qn_dtype_from_name(name);
  const bool any = !strcmp(name, "any");
  if (!any && dtype == QN_NONE) {
    r->at = begin + strspn(begin, " \t\n");
    return bad(r, "a storage type should stand here (f32, bf16, i32 ..., any, or an input's name and .dtype)");
  }
  if (dtype == QN_F8E4M3) {
    r->at = begin + strspn(begin, " \t\n");
    return bad(r, "kernels from a body do not take f8e4m3; u8 has its bits");
  }
  *fits |= any || (r->call && tensor_of(r, r->tensor)->dtype == dtype);
  return QN_OK;
}

static qn_status read_types(reader *r)
{
  bool fits = false;
  skip_blanks(r);
  if (!is_letter(*r->at)) return QN_OK;
  if (!strncmp(r->at, "dense", 5) && !is_letter(r->at[5]) && !isdigit((unsigned char)r->at[5])) return QN_OK;
  do {
    qn_try(read_type(r, &fits));
  } while (take(r, '|'));
  return fits || !r->call ? QN_OK : broken(r, "that is another storage type");
}

/* ---- extents ---- */

/* The k-th extent of the text stands for the tensor's extent `at`. */
static qn_status hold_number(reader *r, int at, int64_t number)
{
  char why[96];
  const qn_tensor *t = tensor_of(r, r->tensor);
  if (t->shape[at] == number) return QN_OK;
  snprintf(why, sizeof why, "extent %d is %lld, not %lld", at, (long long)t->shape[at], (long long)number);
  return broken(r, why);
}

/* The extent bound to the name by its first use; NULL: there is no room for another name. */
static const word *word_of(reader *r, qn_word name, int64_t extent)
{
  for (size_t k = 0; k < r->n_words; k++)
    if (qn_word_is(name, r->words[k].name)) return &r->words[k];
  if (r->n_words == MOST_WORDS) return NULL;
  word *made = &r->words[r->n_words++];
  *made = (word){.extent = extent, .tensor = r->tensor};
  memcpy(made->name, name.at, name.length);
  return made;
}

static qn_status hold_word(reader *r, int at, qn_word name)
{
  char why[256];
  const int64_t extent = r->call ? tensor_of(r, r->tensor)->shape[at] : 0;
  const word *w = word_of(r, name, extent);
  if (!w) return bad(r, "contracts with more than 64 different words");
  if (w->extent == extent) return QN_OK;
  snprintf(why, sizeof why, "%s is %lld there and %lld in %s \"%s\"", w->name, (long long)extent, (long long)w->extent,
           is_input(r, w->tensor) ? "input" : "output", name_of(r, w->tensor));
  return broken(r, why);
}

/* Of words that stand before it. */
static qn_status hold_expression(reader *r, int at, qn_word expression)
{
  qn_name names[MOST_WORDS];
  char text[QN_EXTENT_BYTES] = "", why[256];
  int64_t number;
  memcpy(text, expression.at, expression.length);
  for (size_t k = 0; k < r->n_words; k++) names[k] = (qn_name){r->words[k].name, r->words[k].extent};
  const qn_status status =
      r->call ? qn_expression(text, names, r->n_words, &number) : qn_expression_check(text, names, r->n_words);
  if (status == QN_OK) return r->call ? hold_number(r, at, number) : QN_OK;
  snprintf(why, sizeof why, "%s", qn_last_error());
  return r->call ? broken(r, why) : bad(r, why);
}

/* The number of the tensor that the part is like, which stands before this one, or this one's. */
static size_t other_of(const reader *r, const qn_shape_part *part)
{
  size_t k = 0;
  while (k < r->tensor && !qn_word_is(part->text, name_of(r, k))) k++;
  return k;
}

static qn_status hold_extents(reader *r, int *at, const qn_shape_part *part)
{
  if (part->kind == QN_PART_NUMBER) return hold_number(r, (*at)++, part->number);
  for (int d = 0; part->kind == QN_PART_ONES && d < *at; d++) qn_try(hold_number(r, d, 1));
  if (part->kind != QN_PART_LIKE) return QN_OK;
  const qn_tensor *other = tensor_of(r, other_of(r, part));
  for (int d = 0; d < other->ndim; d++) qn_try(hold_number(r, (*at)++, other->shape[d]));
  return QN_OK;
}

/* Against the call's extents from `at` on; without a call its names are learned. */
static qn_status hold_part(reader *r, int *at, const qn_shape_part *part)
{
  if (part->kind == QN_PART_NAME) return hold_word(r, (*at)++, part->text);
  if (part->kind == QN_PART_EXPRESSION) return hold_expression(r, (*at)++, part->text);
  return r->call ? hold_extents(r, at, part) : QN_OK;
}

/* Reads the parts and counts their extents, without "..." and "1...". */
typedef struct extents {
  int n, parts;
  bool many;
  int64_t most; /* that these stand for; -1: any */
} extents;

static qn_status count_part(reader *r, const qn_shape_part *part, extents *e)
{
  const bool like = part->kind == QN_PART_LIKE;
  if (like && part->without.at) return bad(r, "no dimension of a tensor has a name");
  if (like && other_of(r, part) == r->tensor) return bad(r, "no tensor before this one has that name");
  if (part->kind == QN_PART_ANY || part->kind == QN_PART_ONES)
    e->many = true, e->most = part->kind == QN_PART_ANY ? part->number : -1;
  else
    e->n += !like ? 1 : r->call ? tensor_of(r, other_of(r, part))->ndim : 0;
  return e->n > QN_MAX_NDIM || e->parts++ > QN_MAX_NDIM ? bad(r, "a tensor has at most 32 dimensions") : QN_OK;
}
_Static_assert(QN_MAX_NDIM == 32, "the sentence above says 32");

static qn_status check_rank(const reader *r, const extents *e)
{
  char why[96];
  const int ndim = tensor_of(r, r->tensor)->ndim, rest = ndim - e->n;
  if (e->many ? rest >= 0 && (e->most < 0 || rest <= e->most) : !rest) return QN_OK;
  snprintf(why, sizeof why, "it has %d dimension%s, not %d%s", ndim, ndim == 1 ? "" : "s", e->n,
           !e->many   ? ""
           : rest < 0 ? " or more"
                      : " and as many as may stand before");
  return broken(r, why);
}

/* Behind "[" they are counted, and then, of a call, held against its extents. */
static qn_status read_extents(reader *r)
{
  qn_shape_part part[QN_MAX_NDIM + 2]; /* as many as count_part takes, and one; not cleared for each call */
  extents e = {0};
  int more, n = 0;
  if (!qn_shape_take(&r->at, "[")) return QN_OK;
  qn_shape_reader text = {.at = r->at};
  for (; (more = qn_shape_part_next(&text, &part[n])) > 0; n++) qn_try(count_part(r, &part[n], &e));
  r->at = text.at;
  if (more) return bad(r, text.why);
  if (r->call) qn_try(check_rank(r, &e));
  int at = r->call ? tensor_of(r, r->tensor)->ndim - e.n : 0;
  for (int k = 0; k < n; k++) qn_try(hold_part(r, &at, &part[k]));
  return QN_OK;
}

/* ---- a whole contract ---- */
static qn_status read_contract(reader *r)
{
  char name[NAME_BYTES];
  qn_try(read_types(r));
  qn_try(read_extents(r));
  skip_blanks(r);
  const char *begin = r->at;
  qn_try(read_name(r, name));
  if (*name && strcmp(name, "dense")) {
    r->at = begin;
    return bad(r, "only \"dense\" can stand here");
  }
  skip_blanks(r);
  if (*r->at) return bad(r, "this belongs to no contract");
  if (*name && r->call && !qn_is_row_major(tensor_of(r, r->tensor)))
    return broken(r, "it must be dense, and its strides are not those of a row-major one");
  return QN_OK;
}

static qn_status read_all(const qn_kernel_source *source, const qn_kernel_call *call)
{
  reader r; /* its words are not all cleared for each call */
  if (!source->contracts) return QN_OK;
  r.source = source, r.call = call, r.n_words = 0;
  for (r.tensor = 0; r.tensor < source->n_inputs + source->n_outputs; r.tensor++) {
    if (!source->contracts[r.tensor]) continue;
    r.text = r.at = source->contracts[r.tensor];
    qn_try(read_contract(&r));
  }
  return QN_OK;
}

qn_status qn_contracts_parse(const qn_kernel_source *source) { return read_all(source, NULL); }

qn_status qn_contracts_check(const qn_kernel *kernel, const qn_kernel_call *call)
{
  return read_all(&kernel->source, call);
}
