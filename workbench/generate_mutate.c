/* SPDX-License-Identifier: Apache-2.0 */
/* generate_mutate.c - see generate_mutate.h. */
#include "workbench/generate_mutate.h"
#include "core/core.h"
#include "workbench/fill.h"
#include "workbench/record_inner.h"
#include <jansson.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_LEAST = 32, GROUP_MOST = 1024, CONSTANT_MOST = 1 << 16, CHANGES_MOST = 400 };

/* A parent in parts: a kernel's description and files, or a source alone. */
typedef struct parts {
  json_t *kernel, *files; /* NULL of a model */
  const char *body;       /* the name of the file that is changed */
  const char *source, *kind;
  json_t *changes;
} parts;

/* ---- one change ---- */

static void add_source(parts *p, qn_text *source, const char *note)
{
  json_t *change = NULL, *text = source->failed || !source->at ? NULL : json_string(source->at);
  qn_text_free(source);
  if (!text || json_array_size(p->changes) >= CHANGES_MOST) {
    json_decref(text);
    return;
  }
  if (p->kernel) {
    json_t *files = json_copy(p->files);
    json_object_set_new(files, p->body, text);
    change = json_pack("{s:s, s:o, s:s}", "kind", "folder", "files", files, "note", note);
  } else {
    change = json_pack("{s:s, s:o, s:s}", "kind", p->kind, "source", text, "note", note);
  }
  json_array_append_new(p->changes, change);
}

/* kernel is given away. */
static void add_kernel(parts *p, json_t *kernel, const char *note)
{
  json_t *files = json_copy(p->files);
  char *text = json_dumps(kernel, JSON_INDENT(2));
  json_decref(kernel);
  if (text) json_object_set_new(files, "kernel.json", json_string(text));
  free(text);
  if (json_array_size(p->changes) < CHANGES_MOST)
    json_array_append_new(p->changes, json_pack("{s:s, s:O, s:s}", "kind", "folder", "files", files, "note", note));
  json_decref(files);
}

/* ---- a kernel's launch ---- */

static void change_group(parts *p)
{
  const json_t *now = json_object_get(p->kernel, "threadgroup");
  json_int_t group[3] = {0, 1, 1};
  char note[80];
  for (size_t d = 0; d < json_array_size(now) && d < 3; d++) {
    if (!json_is_integer(json_array_get(now, d))) return; /* an expression */
    group[d] = json_integer_value(json_array_get(now, d));
  }
  const json_int_t was = group[0];
  for (json_int_t x = 1; x <= GROUP_MOST; x *= 2) {
    const json_int_t all = x * group[1] * group[2];
    if (x == was || all < GROUP_LEAST || all > GROUP_MOST) continue;
    json_t *kernel = json_deep_copy(p->kernel);
    json_object_set_new(kernel, "threadgroup", json_pack("[I, I, I]", x, group[1], group[2]));
    snprintf(note, sizeof note, "threadgroup %d,%d,%d", (int)x, (int)group[1], (int)group[2]);
    add_kernel(p, kernel, note);
  }
}

static void set_template(parts *p, const char *name, json_int_t value)
{
  char note[120];
  json_t *kernel = json_deep_copy(p->kernel);
  json_object_set_new(json_object_get(kernel, "templates"), name, json_integer(value));
  snprintf(note, sizeof note, "%.60s = %lld", name, (long long)value);
  add_kernel(p, kernel, note);
}

/* The values that "tune" names, else half and twice. */
static void change_templates(parts *p)
{
  const char *name;
  json_t *value;
  json_object_foreach(json_object_get(p->kernel, "templates"), name, value)
  {
    const json_t *known = json_object_get(json_object_get(p->kernel, "tune"), name);
    const json_int_t now = json_integer_value(value);
    if (!json_is_integer(value)) continue;
    for (size_t k = 0; k < json_array_size(known); k++)
      if (json_is_integer(json_array_get(known, k)) && json_integer_value(json_array_get(known, k)) != now)
        set_template(p, name, json_integer_value(json_array_get(known, k)));
    if (known || now < 1 || now > CONSTANT_MOST) continue;
    if (now > 1) set_template(p, name, now / 2);
    set_template(p, name, 2 * now);
  }
}

/* ---- a source ---- */

/* The number at from[0..n) replaced. */
static void set_number(parts *p, const char *from, size_t n, long value, const char *what, size_t what_n)
{
  char note[120];
  qn_text text = {0};
  qn_text_add_bytes(&text, p->source, (size_t)(from - p->source));
  qn_text_add(&text, "%ld%s", value, from + n);
  snprintf(note, sizeof note, "%.*s = %ld", what_n < 60 ? (int)what_n : 60, what, value);
  add_source(p, &text, note);
}

static void change_number(parts *p, const char *from, const char *what, size_t what_n)
{
  char *end;
  const long now = strtol(from, &end, 10);
  const bool ends = !isalnum((unsigned char)*end) && *end != '_' && *end != '.';
  if (end == from || !ends || now < 1 || now > CONSTANT_MOST || (now & (now - 1)) != 0) return;
  if (now > 1) set_number(p, from, (size_t)(end - from), now / 2, what, what_n);
  set_number(p, from, (size_t)(end - from), 2 * now, what, what_n);
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* TILE, BLOCK_M; and the two that Triton's launches have. */
static bool is_constant(const char *word, size_t n)
{
  bool letter = false;
  if ((n == 9 && !strncmp(word, "num_warps", n)) || (n == 10 && !strncmp(word, "num_stages", n))) return true;
  for (size_t k = 0; k < n; k++) {
    if (islower((unsigned char)word[k])) return false;
    letter = letter || isupper((unsigned char)word[k]);
  }
  return letter && n > 1;
}

/* "NAME = 8", "#define NAME 8". */
static void change_constant(parts *p, const char *line, const char *word, size_t n)
{
  const char *at = word + n + strspn(word + n, " \t");
  const bool defined = !strncmp(line, "#define", 7) && at > word + n;
  if (*at == '=' && at[1] != '=')
    at += 1 + strspn(at + 1, " \t");
  else if (!defined)
    return;
  if (isdigit((unsigned char)*at)) change_number(p, at, word, n);
}

static void change_unrolling(parts *p, const char *line)
{
  static const char unroll[] = "#pragma unroll";
  char note[40];
  const size_t n = sizeof unroll - 1;
  if (!strncmp(line, unroll, n)) {
    const char *at = line + n + strspn(line + n, " \t(");
    if (isdigit((unsigned char)*at)) change_number(p, at, "unroll", 6);
    return;
  }
  if (strncmp(line, "for (", 5) != 0 && strncmp(line, "for(", 4) != 0) return;
  const char *before = line; /* the line above has a factor already */
  while (before > p->source && isspace((unsigned char)before[-1])) before--;
  while (before > p->source && before[-1] != '\n') before--;
  before += strspn(before, " \t");
  if (before < line && !strncmp(before, unroll, n)) return;
  for (int factor = 2; factor <= 8; factor *= 2) {
    qn_text text = {0};
    qn_text_add_bytes(&text, p->source, (size_t)(line - p->source));
    qn_text_add(&text, "%s%s %d\n%s", line > p->source && line[-1] != '\n' ? "\n" : "", unroll, factor, line);
    snprintf(note, sizeof note, "unroll by %d", factor);
    add_source(p, &text, note);
  }
}

static void change_source(parts *p)
{
  for (const char *line = p->source; *line;) {
    line += strspn(line, " \t");
    if (p->kernel)
      change_unrolling(p, line);
    else if (!strncmp(line, "#pragma", 7))
      change_unrolling(p, line);
    const size_t length = strcspn(line, "\n");
    for (const char *at = line; at < line + length;) {
      size_t n = 0;
      while (is_word(at[n])) n++;
      if (n && is_constant(at, n)) change_constant(p, line, at, n);
      at += n ? n : 1;
    }
    line += length + (line[length] == '\n');
  }
}

/* ---- a parent ---- */

/* Its description and files: the problem's own, with what the parent has in their place. */
static qn_status read_kernel(parts *p, const json_t *problem, const json_t *parent)
{
  const char *text = json_string_value(json_object_get(json_object_get(parent, "files"), "kernel.json"));
  p->files = json_copy(json_object_get(problem, "files"));
  if (parent) json_object_update(p->files, json_object_get(parent, "files"));
  p->kernel = text ? json_loads(text, 0, NULL) : json_deep_copy(json_object_get(problem, "kernel"));
  qn_require(p->kernel && p->files, "a parent without kernel.json");
  p->body = json_string_value(json_object_get(p->kernel, "source"));
  if (!p->body) p->body = json_string_value(json_object_get(problem, "body"));
  if (p->body && json_object_get(parent, "source"))
    json_object_set(p->files, p->body, json_object_get(parent, "source"));
  p->source = p->body ? json_string_value(json_object_get(p->files, p->body)) : NULL;
  return QN_OK;
}

/* Appends the contents (kind, source or files) that differ from a parent's by one change; each has a member "note".
 * problem: the protocol's message; parent: a candidate's content, or NULL for the problem's own. */
static qn_status mutate(const json_t *problem, const json_t *parent, json_t *changes)
{
  const char *kind = json_string_value(json_object_get(problem, "kind"));
  parts p = {.changes = changes, .kind = "model"};
  qn_status status = QN_OK;
  if (kind && !strcmp(kind, "kernel"))
    status = read_kernel(&p, problem, parent);
  else if (parent)
    p.source = json_string_value(json_object_get(parent, "source"));
  if (status == QN_OK && p.kernel) {
    change_group(&p);
    change_templates(&p);
  }
  if (status == QN_OK && p.source) change_source(&p);
  json_decref(p.kernel);
  json_decref(p.files);
  return status;
}

/* ---- the protocol ---- */

typedef struct talk {
  FILE *out;
  json_t *problem, *waiting; /* an array, the next last */
  json_t *parents;           /* hashes of those that were changed */
  uint64_t seed;
  size_t given, wanted; /* wanted: an ask is not answered yet */
} talk;

static void say(const talk *t, json_t *message)
{
  qn_json_print(t->out, message, JSON_COMPACT);
  fflush(t->out);
}

static qn_status change(talk *t, const json_t *parent)
{
  json_t *changes = json_array();
  const qn_status status = mutate(t->problem, parent, changes);
  for (size_t n = json_array_size(changes); n > 0; n--) { /* drawn one after the other */
    const size_t k = (size_t)(qn_seed_mix(t->seed + json_object_size(t->parents), n) % n);
    json_array_append(t->waiting, json_array_get(changes, k));
    json_array_remove(changes, k);
  }
  json_decref(changes);
  return status;
}

/* Changes of the best, once the problem's own are through. */
static qn_status answer(talk *t, const json_t *best)
{
  char id[32];
  const char *hash = json_string_value(json_object_get(best, "hash"));
  const bool first = json_object_get(t->problem, "kernel") && !json_integer_value(json_object_get(best, "generator"));
  if (!json_array_size(t->waiting) && hash && !first && !json_object_get(t->parents, hash)) {
    json_object_set_new(t->parents, hash, json_true());
    qn_try(change(t, best));
  }
  if (!json_array_size(t->waiting)) {
    say(t, json_pack("{s:s}", "type", "pass"));
    return QN_OK;
  }
  for (; t->wanted && json_array_size(t->waiting); t->wanted--) {
    json_t *next = json_incref(json_array_get(t->waiting, 0));
    json_array_remove(t->waiting, 0);
    snprintf(id, sizeof id, "mutate-%zu", ++t->given);
    json_object_set_new(next, "type", json_string("candidate"));
    json_object_set_new(next, "id", json_string(id));
    say(t, next);
  }
  return QN_OK;
}

static qn_status hear(talk *t, json_t *message)
{
  const char *type = json_string_value(json_object_get(message, "type"));
  if (type && !strcmp(type, "problem") && !t->problem) {
    t->problem = json_incref(message);
    t->seed = (uint64_t)json_integer_value(json_object_get(message, "seed"));
    return change(t, NULL);
  }
  if (!type || strcmp(type, "ask") != 0 || !t->problem) return QN_OK;
  const json_int_t n = json_integer_value(json_object_get(message, "n"));
  t->wanted = n > 0 && n < CHANGES_MOST ? (size_t)n : 1;
  return answer(t, json_object_get(message, "best"));
}

qn_status qn_generate_mutate(FILE *in, FILE *out)
{
  talk t = {.out = out, .waiting = json_array(), .parents = json_object()};
  qn_status status = QN_OK;
  char *text = NULL;
  size_t room = 0;
  for (ssize_t n; status == QN_OK && (n = getline(&text, &room, in)) > 0;) {
    json_t *message = json_loadb(text, (size_t)n, 0, NULL);
    status = hear(&t, message);
    json_decref(message);
  }
  free(text);
  json_decref(t.problem);
  json_decref(t.waiting);
  json_decref(t.parents);
  return status;
}
