/* SPDX-License-Identifier: Apache-2.0 */
/* subject_text.c - the words of a text that sets a call up; subject.h has them. */
#include "core/core.h"
#include "workbench/settings.h"
#include "workbench/subject.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

qn_status qn_subject_find(const qn_op *op, const char *name, const char **text)
{
  *text = name;
  if (strchr(name, '=')) return QN_OK;
  for (const qn_check_text *w = qn_op_check_of(op)->workloads; w->name; w++)
    if (!strcmp(w->name, name)) return *text = w->text, QN_OK;
  const char *names[64] = {NULL};
  qn_text all = {0};
  size_t n = 0;
  const qn_check_text *own = qn_op_check_of(op)->workloads;
  for (const qn_check_text *w = own; w->name && n < 63; w++) {
    names[n++] = w->name;
    qn_text_add(&all, "%s, ", w->name);
  }
  const char *near = qn_nearest(name, names);
  const qn_status status = qn_fail(QN_BAD_ARGUMENT, "%s has no workload %s; %s%s%s %sor extents such as \"%s\"",
                                   op->info.name, name, near ? "did you mean " : "", near ? near : "",
                                   near ? "? There are" : "there are", all.at && !all.failed ? all.at : "", own->text);
  qn_text_free(&all);
  return status;
}

/* ---- tensors ---- */

static qn_status read_shape(const qn_subject *d, const char *word, qn_subject_place *place)
{
  *place = (qn_subject_place){.ndim = 0};
  qn_require(*word, "%s: a number of tensors stands before no shape", d->op->info.name);
  for (const char *at = word; strcmp(word, "-") != 0 && *at;) {
    char *end;
    const long long extent = strtoll(at, &end, 10);
    const bool whole = end != at && (!*end || (*end == 'x' && end[1]));
    qn_require(whole && extent >= 0 && extent <= INT64_C(1) << 40 && place->ndim < QN_SUBJECT_NDIM,
               "%s: %s is no shape", d->op->info.name, word);
    place->shape[place->ndim++] = extent;
    at = *end ? end + 1 : end;
  }
  return QN_OK;
}

/* "7x5", "-", "24*7x5": more tensors of the first role. */
static qn_status add_shapes(qn_subject *d, const char *word)
{
  enum { MOST = 1 << 20 };
  qn_subject_role *first = &d->role[0];
  const char *times = strchr(word, '*');
  const long long n = times ? strtoll(word, NULL, 10) : 1;
  qn_subject_place place, *all;
  qn_require(n >= 1 && n <= MOST && d->n + (size_t)n <= MOST, "%s: %s, and a list is of 1 to %d tensors",
             d->op->info.name, word, MOST);
  qn_try(read_shape(d, times ? times + 1 : word, &place));
  all = qn_reallocate(first->place, (d->n + (size_t)n) * sizeof *all);
  if (!all) return qn_fail(QN_NO_MEMORY, "no memory for a list of %zu tensors", d->n + (size_t)n);
  first->place = all;
  for (long long k = 0; k < n; k++) all[d->n++] = place;
  return QN_OK;
}

const qn_shape_rule *qn_subject_rule(const qn_subject *d, size_t r)
{
  return d->role[r].other ? &d->rules->role[r].otherwise : &d->rules->role[r].first;
}

static bool is_extent(const qn_subject *d, char letter)
{
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    for (unsigned j = 0; j < d->rules->role[r].first.n; j++)
      if (d->rules->role[r].first.part[j].letter == letter) return true;
  return false;
}

static qn_status set_extent(qn_subject *d, const char *word)
{
  char *end = NULL;
  qn_require(is_extent(d, word[0]), "%s: %s, and none of its tensors has such an extent", d->op->info.name, word);
  const long long extent = strtoll(word + 2, &end, 10);
  qn_require(end != word + 2 && !*end && extent >= 0 && extent <= 1 << 24,
             "%s: %s, and an extent is a number up to 2^24", d->op->info.name, word);
  d->extent[word[0] - 'a'] = extent;
  return QN_OK;
}

/* "-ROLE" or "~ROLE". */
static qn_status mark_role(qn_subject *d, const char *word)
{
  const char *name = word + 1;
  const qn_op_info *info = &d->op->info;
  size_t r = 0;
  while (r < info->n_tensors && strcmp(info->tensors[r].name, name) != 0) r++;
  qn_require(r < info->n_tensors, "%s has no tensor %s", info->name, name);
  if (*word == '-') d->role[r].access = QN_ABSENT;
  if (*word == '~') d->role[r].other = true;
  return QN_OK;
}

/* ---- numbers ---- */

/* The role whose name stands before the mark; n_tensors: there is none. */
static size_t role_before(const qn_subject *d, const char *word, const char *mark)
{
  const qn_op_info *info = &d->op->info;
  size_t r = 0;
  while (r < info->n_tensors && (strlen(info->tensors[r].name) != (size_t)(mark - word) ||
                                 strncmp(info->tensors[r].name, word, (size_t)(mark - word)) != 0))
    r++;
  return r;
}

/* "ROLE=X" or "ROLE=sweep", of what is only read. */
static bool fill_as(qn_subject *d, const char *word, const char *equals)
{
  const size_t r = role_before(d, word, equals);
  if (r == d->op->info.n_tensors) return false;
  if (d->op->info.types[d->row].tensor[r].access != QN_READ && !d->op->info.tensors[r].written_where) return false;
  d->role[r].filled = !strcmp(equals + 1, "sweep") ? QN_SUBJECT_SWEEP : QN_SUBJECT_VALUE;
  d->role[r].all = strtod(equals + 1, NULL);
  return true;
}

/* "ROLE[k]=X", "ROLE[k,i]=X" or "ROLE[k,*]=X". */
static bool set(qn_subject *d, const char *word, const char *equals)
{
  const char *bracket = strchr(word, '[');
  char *end;
  if (!bracket || bracket > equals || d->n_set == QN_SUBJECT_SETS) return false;
  const size_t r = role_before(d, word, bracket);
  if (r == d->op->info.n_tensors) return false;
  qn_subject_set *to = &d->set[d->n_set++];
  *to = (qn_subject_set){.role = r, .tensor = strtoull(bracket + 1, &end, 10), .element = SIZE_MAX - 1};
  if (*end == ',') to->element = end[1] == '*' ? SIZE_MAX : strtoull(end + 1, NULL, 10);
  to->value = strtod(equals + 1, NULL);
  return true;
}

/* "steps=4", into a place for numbers. */
static bool take_number(qn_subject *d, const char *word, const char *equals)
{
  const size_t n = (size_t)(equals - word);
  uint64_t apart = 0, behind = 0;
  uint64_t *whole = n == 5 && !strncmp(word, "steps", n)   ? &d->steps
                    : n == 5 && !strncmp(word, "apart", n) ? &apart
                    : n == 5 && !strncmp(word, "shift", n) ? &behind
                                                           : NULL;
  double *number = n == 9 && !strncmp(word, "gradients", n) ? &d->gradients
                   : n == 6 && !strncmp(word, "params", n)  ? &d->trained
                                                            : NULL;
  if (whole) {
    char *end;
    *whole = strtoull(equals + 1, &end, 10);
    if (equals[1] < '0' || equals[1] > '9' || *end || *whole > UINT64_C(1) << 48) return false;
  }
  if (whole == &apart) d->apart = (size_t)apart;
  if (whole == &behind) d->behind = (size_t)behind;
  if (number) *number = strtod(equals + 1, NULL);
  return whole || number;
}

static bool is_pointer(qn_param_type type)
{
  return type >= QN_PARAM_DEVICE_F32 && type != QN_PARAM_DEVICE_F32S && type != QN_PARAM_HOST_STRUCT;
}

/* "PARAM", "PARAM=X", "PARAM=X,Y": a param that is a pointer is given. */
static qn_status give(qn_subject *d, const char *word, bool *taken)
{
  const qn_op_info *info = &d->op->info;
  const size_t length = strcspn(word, "=");
  const char *at = word[length] ? word + length + 1 : NULL;
  for (size_t k = 0; k < info->n_params && k < QN_PARAMS_MOST && !*taken; k++) {
    const qn_param_type type = info->params[k].type;
    if (strlen(info->params[k].name) != length || strncmp(word, info->params[k].name, length) != 0) continue;
    if (!is_pointer(type)) return QN_OK;
    *taken = true;
    d->given.given |= 1u << k;
    d->given.scalar[k] = at ? (float)strtod(at, NULL) : 1;
    if (!at || type == QN_PARAM_DEVICE_F32) continue;
    qn_require(type == QN_PARAM_DEVICE_I64 || type == QN_PARAM_HOST_U64, "%s: %s cannot be set from text", info->name,
               word);
    uint64_t *numbers;
    qn_try(qn_try_allocate(&numbers, (strlen(at) + 1) * sizeof *numbers, "the numbers of a param"));
    qn_release(d->numbers[k]);
    d->numbers[k] = numbers;
    d->given.array[k] = numbers;
    for (char *end; *at; at = *end == ',' ? end + 1 : end) {
      *numbers++ = strtoull(at, &end, 10);
      qn_require(end != at, "%s: %s has no numbers between commas", info->name, word);
    }
  }
  return QN_OK;
}

/* A word without "=" that is a flag. */
static bool take_flag(qn_subject *d, const char *word)
{
  const struct {
    const char *name;
    bool *flag;
  } flags[] = {{"nan", &d->nan}, {"odd", &d->odd}, {"halves", &d->halves}, {"filled", &d->filled}};
  for (size_t k = 0; k < sizeof flags / sizeof flags[0]; k++)
    if (!strcmp(word, flags[k].name)) return *flags[k].flag = true;
  return false;
}

/* "ROLE+N". */
static bool put_apart(qn_subject *d, const char *word)
{
  const char *plus = strchr(word, '+');
  const size_t r = plus ? role_before(d, word, plus) : d->op->info.n_tensors;
  if (r == d->op->info.n_tensors) return false;
  d->role[r].apart = strtoul(plus + 1, NULL, 10);
  return true;
}

static qn_status take_word(qn_subject *d, const char *word)
{
  const char *equals = strchr(word, '=');
  bool taken = false;
  qn_try(give(d, word, &taken));
  if (taken) return QN_OK;
  if ((*word >= '0' && *word <= '9') || !strcmp(word, "-")) return add_shapes(d, word);
  if (*word == '-' || *word == '~') return mark_role(d, word);
  if (!equals && (take_flag(d, word) || put_apart(d, word))) return QN_OK;
  if (equals && (take_number(d, word, equals) || set(d, word, equals) || fill_as(d, word, equals))) return QN_OK;
  if (!d->list && word[0] >= 'a' && word[0] <= 'z' && equals == word + 1) return set_extent(d, word);
  return qn_settings_read(&d->op->info, d->params, word);
}

qn_status qn_subject_read(qn_subject *d, const char *text)
{
  char word[96];
  for (int used; text && sscanf(text, "%95s%n", word, &used) == 1; text += used) qn_try(take_word(d, word));
  return QN_OK;
}
