/* SPDX-License-Identifier: Apache-2.0 */
/* random.c - see random.h. A problem is text from the first draw on: what sets a call up from text also says whether
 * the op takes it, and how large it is. */
#include "workbench/random.h"
#include "core/core.h"
#include "op/call.h"
#include "workbench/bench.h"
#include "workbench/fill.h"
#include "workbench/settings.h"
#include "workbench/subject.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

typedef struct dice {
  uint64_t seed, thrown;
} dice;

static uint64_t throw(dice * d, uint64_t sides) { return qn_seed_mix(d->seed, d->thrown++) % sides; }

static bool once_in(dice *d, uint64_t n) { return throw(d, n) == 0; }

static bool is_prime(uint64_t x)
{
  for (uint64_t k = 2; k * k <= x; k++)
    if (x % k == 0) return false;
  return x > 1;
}

static unsigned log_of(uint64_t x) { return 63 - (unsigned)__builtin_clzll(x); }

/* From least to most, 1 at least: an octave like another, and there as it comes, a multiple of a power of two, odd, or
 * prime. */
static uint64_t throw_extent(dice *d, uint64_t least, uint64_t most)
{
  const unsigned octave = log_of(least) + (unsigned) throw(d, log_of(most) - log_of(least) + 1);
  const uint64_t raw = (UINT64_C(1) << octave) + throw(d, UINT64_C(1) << octave), kind = throw(d, 6);
  const uint64_t unit = UINT64_C(1) << (octave > 8 ? 8 - throw(d, 6) : octave / 2);
  uint64_t x = raw;
  if (kind < 3) x = raw / unit * unit; /* as most people's */
  if (kind == 3) x = raw | 1;
  while (kind == 4 && x > 2 && !is_prime(x)) x--;
  return x < least ? least : x > most ? most : x;
}

/* ---- words ---- */

/* The k-th of parts, with `mark` between; false past the last. */
static bool part_of(const char *text, char mark, size_t k, char *part, size_t bytes)
{
  for (; k; k--) {
    text = strchr(text, mark);
    if (!text) return false;
    text++;
  }
  const char *end = strchr(text, mark);
  const size_t n = end ? (size_t)(end - text) : strlen(text);
  if (n >= bytes) return false;
  memcpy(part, text, n);
  part[n] = 0;
  return true;
}

static size_t count_parts(const char *text, char mark)
{
  size_t n = 1;
  for (; (text = strchr(text, mark)); text++) n++;
  return n;
}

static void add(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(char *text, size_t bytes, const char *format, ...)
{
  const size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, bytes - used, format, arguments);
  va_end(arguments);
}

/* "1..64", or a number. */
static uint64_t throw_range(dice *d, const char *range)
{
  char *end;
  const uint64_t least = strtoull(range, &end, 10);
  return *end == '.' ? throw_extent(d, least, strtoull(end + 2, NULL, 10)) : least;
}

/* ---- shapes ---- */

typedef struct drawing {
  qn_problem *problem;
  const qn_domain *domain;
  dice dice;
  uint64_t extent[26];
} drawing;

static void draw_extents(drawing *w, const char *rule)
{
  char part[64];
  for (size_t k = 0; part_of(rule, ',', k, part, sizeof part); k++) {
    uint64_t *extent = &w->extent[(part[0] - 'a') & 31];
    *extent = throw_range(&w->dice, part + 2);
    add(w->problem->shape, sizeof w->problem->shape, "%s%c=%llu", k ? " " : "", part[0], (unsigned long long)*extent);
  }
}

static void draw_tensor(drawing *w, const char *rule)
{
  char part[64];
  const unsigned most = w->domain->most_copies;
  const uint64_t copies = most > 1 ? throw_extent(&w->dice, 1, most) : 1;
  char *to = w->problem->shape;
  if (copies > 1) add(to, sizeof w->problem->shape, "%llu*", (unsigned long long)copies);
  for (size_t k = 0; part_of(rule, 'x', k, part, sizeof part); k++)
    add(to, sizeof w->problem->shape, "%s%llu", k ? "x" : "", (unsigned long long)throw_range(&w->dice, part));
}

static void draw_shapes(drawing *w)
{
  const unsigned most = w->domain->most_shapes;
  const size_t n = most > 1 ? throw_extent(&w->dice, 1, most) : 1;
  char rule[128];
  for (size_t k = 0; k < n; k++) {
    part_of(w->domain->shapes, ' ', throw(&w->dice, count_parts(w->domain->shapes, ' ')), rule, sizeof rule);
    if (k) add(w->problem->shape, sizeof w->problem->shape, " ");
    if (strchr(rule, '='))
      draw_extents(w, rule);
    else
      draw_tensor(w, rule);
  }
}

/* Roles left out or of their other shape, data off their boundary, rows apart. */
static void draw_layout(drawing *w)
{
  const qn_op_info *info = &w->problem->op->info;
  const bool alone = qn_op_is_alone(info), bare = once_in(&w->dice, 4);
  char *to = w->problem->shape;
  bool apart = false;
  for (size_t r = 0; r < info->n_tensors; r++) {
    const qn_op_tensor *t = &info->tensors[r];
    apart = apart || t->storage > QN_STORAGE_ROW_MAJOR;
    if (!alone) continue;
    if (t->optional && (bare || once_in(&w->dice, 2))) add(to, sizeof w->problem->shape, " -%s", t->name);
    if (t->shape && strstr(t->shape, " or ") && once_in(&w->dice, 2))
      add(to, sizeof w->problem->shape, " ~%s", t->name);
  }
  if (once_in(&w->dice, 4)) add(to, sizeof w->problem->shape, " shift=%d", 1 + (int) throw(&w->dice, 15));
  if (apart && once_in(&w->dice, 4))
    add(to, sizeof w->problem->shape, " apart=%llu", (unsigned long long)throw_extent(&w->dice, 1, 64));
}

/* ---- settings ---- */

static void set(drawing *w, const char *word)
{
  char *to = w->problem->settings;
  add(to, sizeof w->problem->settings, "%s%s", *to ? " " : "", word);
}

/* The domain's word for the param, behind "="; NULL: none. */
static const char *values_of(const drawing *w, const char *name, char *word, size_t bytes)
{
  const size_t n = strlen(name);
  for (size_t k = 0; w->domain->values && part_of(w->domain->values, ' ', k, word, bytes); k++)
    if (!strncmp(word, name, n) && word[n] == '=') return word + n + 1;
  return NULL;
}

/* The greatest divisor up to a number that is drawn. */
static uint64_t throw_divisor(dice *d, uint64_t of)
{
  uint64_t x = of ? throw_extent(d, 1, of) : 1;
  while (of && of % x) x--;
  return x;
}

static bool is_default(const qn_op *op, const char *word)
{
  _Alignas(16) unsigned char before[QN_SUBJECT_PARAMS] = {0}, after[QN_SUBJECT_PARAMS] = {0};
  if (qn_settings_begin(op, before) != QN_OK) return false;
  memcpy(after, before, sizeof after);
  return qn_settings_read(&op->info, after, word) == QN_OK && !memcmp(before, after, sizeof after);
}

static void draw_param(drawing *w, const qn_op_param *param)
{
  char word[128], value[64], both[128];
  const char *values = values_of(w, param->name, word, sizeof word);
  const bool is_enum = param->type == QN_PARAM_ENUM, is_bool = param->type == QN_PARAM_BOOL;
  if (!values && ((!is_enum && !is_bool) || once_in(&w->dice, 2))) return;
  if (!values) values = is_enum ? param->values : "0|1";
  if (!*values) return;
  if (*values == '/')
    snprintf(value, sizeof value, "%llu",
             (unsigned long long)throw_divisor(&w->dice, w->extent[(values[1] - 'a') & 31]));
  else
    part_of(values, '|', throw(&w->dice, count_parts(values, '|')), value, sizeof value);
  snprintf(both, sizeof both, "%s=%s", param->name, value);
  if (!is_default(w->problem->op, both)) set(w, both);
}

/* Params that the op's check varies go with the row of types: one of those settings. */
static bool is_varied(const char *variation, const char *name)
{
  const size_t n = strlen(name);
  return variation && !strncmp(variation, name, n) && variation[n] == '=';
}

static void draw_settings(drawing *w)
{
  const qn_op *op = w->problem->op;
  const qn_op_check *check = qn_op_check_of(op);
  const char *variation = NULL;
  size_t n = 0;
  while (check->variation && check->variation(QN_CUDA, w->problem->row, n)) n++;
  if (n) variation = check->variation(QN_CUDA, w->problem->row, throw(&w->dice, n));
  if (variation && *variation && !is_default(op, variation)) set(w, variation);
  for (size_t k = 0; k < op->info.n_params; k++)
    if (!is_varied(variation, op->info.params[k].name)) draw_param(w, &op->info.params[k]);
}

/* ---- a problem ---- */

/* What the text sets up, without memory; close it in any case. */
static qn_status open(const qn_problem *p, qn_subject *d)
{
  return qn_subject_open(
      d, &(qn_subject_order){
             .op = p->op, .row = p->row, .device = {QN_CPU, 0}, .text = p->shape, .more = p->settings, .bare = true});
}

/* Values in device memory that must be given: somewhere. */
static void point_anywhere(qn_subject *d)
{
  for (size_t k = 0; k < d->op->info.n_params; k++) {
    const void *somewhere = (const void *)((uintptr_t)(k + 32) << 40);
    if (d->op->info.params[k].type == QN_PARAM_DEVICE_F32S)
      memcpy(d->params + d->op->info.params[k].offset, &somewhere, sizeof somewhere);
  }
}

static qn_status measure(qn_problem *p)
{
  qn_subject d;
  qn_status status = open(p, &d);
  p->bytes = 0;
  if (status == QN_OK) {
    qn_call call = qn_subject_call(&d, QN_CALL_PREPARE);
    point_anywhere(&d);
    status = qn_call_validate(&call, d.tensors);
  }
  for (size_t r = 0; r < p->op->info.n_tensors; r++)
    for (size_t k = 0; d.role[r].place && d.role[r].access != QN_ABSENT && k < d.role[r].n; k++)
      p->bytes += d.role[r].place[k].elements * d.role[r].width;
  qn_subject_close(&d);
  return status;
}

qn_status qn_problem_draw(const qn_op *op, uint64_t seed, uint64_t number, uint64_t most_bytes, qn_problem *problem)
{
  enum { TRIES = 1000 };
  drawing w = {.problem = problem, .domain = &qn_op_check_of(op)->domain};
  qn_require(w.domain->shapes, "%s has no domain to draw problems from", op->info.name);
  for (uint64_t k = 0; k < TRIES; k++) {
    w.dice = (dice){qn_seed_mix(qn_seed_mix(seed, number), k), 0};
    *problem = (qn_problem){.op = op, .seed = seed, .number = number};
    problem->row = throw(&w.dice, qn_op_rows(&op->info, QN_CUDA));
    draw_shapes(&w);
    draw_layout(&w);
    draw_settings(&w);
    if (measure(problem) == QN_OK && problem->bytes && problem->bytes <= most_bytes) return QN_OK;
  }
  return qn_fail(QN_BAD_ARGUMENT, "%s: %d draws gave no problem of at most %llu bytes: %s", op->info.name, TRIES,
                 (unsigned long long)most_bytes, "allow more (--most-bytes)");
}

/* ---- as text ---- */

qn_status qn_problem_command(const qn_problem *p, const char *more, char *text, size_t bytes)
{
  char types[96], word[128];
  qn_bench_types(p->op, p->row, types, sizeof types);
  snprintf(text, bytes, "quern bench %s --types '%s' --shape '%s'", p->op->info.name, types, p->shape);
  for (size_t k = 0; *p->settings && part_of(p->settings, ' ', k, word, sizeof word); k++)
    add(text, bytes, " --set %s", word);
  add(text, bytes, "%s", more);
  qn_require(strlen(text) + 1 < bytes, "%s: the command of a problem is too long", p->op->info.name);
  return QN_OK;
}

static json_t *roles_of(const qn_subject *d)
{
  json_t *roles = json_object();
  for (size_t r = 0; r < d->op->info.n_tensors; r++)
    if (d->role[r].access != QN_ABSENT)
      json_object_set_new(roles, d->op->info.tensors[r].name, json_string(qn_dtype_name(d->role[r].dtype)));
  return roles;
}

static json_t *shape_of(const qn_subject_place *p)
{
  json_t *shape = json_array();
  for (int e = 0; e < p->ndim; e++) json_array_append_new(shape, json_integer(p->shape[e]));
  return shape;
}

/* By role, or those of the list's first role. */
static json_t *shapes_of(const qn_subject *d)
{
  json_t *shapes = d->list ? json_array() : json_object();
  for (size_t k = 0; d->list && k < d->n; k++) json_array_append_new(shapes, shape_of(&d->role[0].place[k]));
  for (size_t r = 0; !d->list && r < d->op->info.n_tensors; r++)
    if (d->role[r].access != QN_ABSENT)
      json_object_set_new(shapes, d->op->info.tensors[r].name, shape_of(d->role[r].place));
  return shapes;
}

static json_t *settings_of(const qn_problem *p)
{
  char word[128];
  json_t *settings = json_object();
  for (size_t k = 0; *p->settings && part_of(p->settings, ' ', k, word, sizeof word); k++) {
    char *equals = strchr(word, '=');
    *equals = 0;
    json_object_set_new(settings, word, json_string(equals + 1));
  }
  return settings;
}

qn_status qn_problem_print(const qn_problem *p, FILE *to)
{
  char command[1024], types[96];
  qn_subject d;
  qn_try(qn_problem_command(p, "", command, sizeof command));
  qn_bench_types(p->op, p->row, types, sizeof types);
  qn_status status = open(p, &d);
  if (status == QN_OK) {
    json_t *line = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:s}", "schema", "quern problem 1", "op",
        p->op->info.name, "seed", (json_int_t)p->seed, "number", (json_int_t)p->number, "types", types, "shape",
        p->shape, "set", p->settings, "roles", roles_of(&d), "shapes", shapes_of(&d), "settings", settings_of(p),
        "shift", (json_int_t)d.behind, "apart", (json_int_t)d.apart, "bytes", (json_int_t)p->bytes, "command", command);
    if (!line || json_dumpf(line, to, JSON_COMPACT) != 0 || fputc('\n', to) == EOF)
      status = qn_fail(QN_BAD_FILE, "%s: the problem could not be written", p->op->info.name);
    json_decref(line);
  }
  qn_subject_close(&d);
  return status;
}
