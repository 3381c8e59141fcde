/* SPDX-License-Identifier: Apache-2.0 */
/* contract.c - what a kernel's author lets its body rely on, "f32|f16 [n, h, w, 2] dense": read at creation, held
 * against every call. It is read anew for each call, which for a text of this length takes less time than a kept form
 * would take memory. Sentences name kernel, tensor, and the types and extents that came. */
#include "kernel/call.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 32, MOST_WORDS = 64, SHAPE_BYTES = 256 };

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
  if (n >= NAME_BYTES) return bad(r, "a word of more than 31 characters");
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

static qn_status hold_word(reader *r, int at, const char *name)
{
  char why[256];
  const int64_t extent = tensor_of(r, r->tensor)->shape[at];
  for (size_t k = 0; k < r->n_words; k++) {
    const word *w = &r->words[k];
    if (strcmp(w->name, name)) continue;
    if (w->extent == extent) return QN_OK;
    snprintf(why, sizeof why, "%s is %lld there and %lld in %s \"%s\"", name, (long long)extent, (long long)w->extent,
             is_input(r, w->tensor) ? "input" : "output", name_of(r, w->tensor));
    return broken(r, why);
  }
  if (r->n_words == MOST_WORDS) return bad(r, "contracts with more than 64 different words");
  word *made = &r->words[r->n_words++];
  *made = (word){.extent = extent, .tensor = r->tensor};
  strcpy(made->name, name);
  return QN_OK;
}

/* One extent; `at` is its place in the tensor, where there is a call. */
static qn_status read_extent(reader *r, int at)
{
  char name[NAME_BYTES];
  skip_blanks(r);
  if (is_letter(*r->at)) {
    qn_try(read_name(r, name));
    return r->call ? hold_word(r, at, name) : QN_OK;
  }
  if (!isdigit((unsigned char)*r->at)) return bad(r, "an extent should stand here, a number or a word");
  int64_t number = 0;
  for (; isdigit((unsigned char)*r->at); r->at++)
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *r->at - '0', &number))
      return bad(r, "a number above 2^63 - 1");
  return r->call ? hold_number(r, at, number) : QN_OK;
}

/* How many extents stand between here and the bracket's end. */
static int count_extents(const reader *r)
{
  int n = 1;
  const char *at = r->at + strspn(r->at, " \t\n");
  if (*at == ']') return 0;
  for (; *at && *at != ']'; at++) n += *at == ',';
  return n;
}

static qn_status check_rank(const reader *r, int n, bool leading)
{
  char why[96];
  if (!r->call) return QN_OK;
  const int ndim = tensor_of(r, r->tensor)->ndim;
  if (leading ? ndim >= n : ndim == n) return QN_OK;
  snprintf(why, sizeof why, "it has %d dimension%s, not %d%s", ndim, ndim == 1 ? "" : "s", n,
           leading ? " or more" : "");
  return broken(r, why);
}

static qn_status read_extents(reader *r)
{
  if (!take(r, '[')) return QN_OK;
  skip_blanks(r);
  const bool leading = !strncmp(r->at, "...", 3);
  if (leading) {
    r->at += 3;
    skip_blanks(r);
    if (*r->at != ']' && !take(r, ',')) return bad(r, "behind \"...\" a comma or the bracket's end should stand");
  }
  const int n = count_extents(r);
  if (n > QN_MAX_NDIM) return bad(r, "a tensor has at most 32 dimensions");
  qn_try(check_rank(r, n, leading));
  const int first = r->call ? tensor_of(r, r->tensor)->ndim - n : 0;
  for (int k = 0; k < n; k++) {
    if (k && !take(r, ',')) return bad(r, "extents are parted by commas");
    qn_try(read_extent(r, first + k));
  }
  return take(r, ']') ? QN_OK : bad(r, "the bracket does not end");
}
_Static_assert(QN_MAX_NDIM == 32, "the sentence above says 32");

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
