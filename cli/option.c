/* SPDX-License-Identifier: Apache-2.0 */
/* option.c - see option.h: how each kind of value is read, and what argp is given. */
#include "cli/option.h"
#include "cli/verb.h"
#include "core/core.h"
#include "workbench/search.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_VERBS = 32, MOST_OPTIONS = 128 };

/* ---- values ---- */
long qn_verb_option_number(struct argp_state *state, const qn_verb_option *o, const char *text)
{
  char *end;
  const long value = strtol(text, &end, 10), least = (long)o->least, most = (long)o->most;
  if (end == text || *end || value < least || value > most)
    argp_error(state, "--%s is \"%s\", it must be a whole number from %ld to %ld", o->name, text, least, most);
  return value;
}

double qn_verb_option_seconds(struct argp_state *state, const qn_verb_option *o, const char *text)
{
  static const struct {
    const char *unit;
    double seconds;
  } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
  char *end;
  double value = strtod(text, &end);
  size_t k = 0;
  while (k < sizeof units / sizeof *units && strcmp(end, units[k].unit) != 0) k++;
  const bool known = end != text && k < sizeof units / sizeof *units;
  if (known) value *= units[k].seconds;
  if (!known || !(value > 0 && value <= o->most))
    argp_error(
        state,
        "--%s is \"%s\", it must be a number of seconds above 0 and at most %g; 90s, 20m and 2h are such numbers",
        o->name, text, o->most);
  return value;
}

int qn_verb_option_word(struct argp_state *state, const char *what, const char *text, const char *const *words,
                        const char *more)
{
  for (int k = 0; words[k]; k++)
    if (!strcmp(text, words[k])) return k;
  argp_error(state, "there is no %s %s%s%s", what, text, qn_suggest(text, words), more);
  return -1;
}

const char *qn_verb_option_output(const struct argp_state *state, const char *path)
{
  struct stat status;
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "%s", path);
  bool there = !stat(path, &status);
  if (there && S_ISDIR(status.st_mode))
    errno = EISDIR;
  else if (!access(there ? path : dirname(folder), W_OK))
    return path;
  argp_error(state, "%s cannot be written: %s", path, strerror(errno));
  return path;
}

QN_READER(qn_read_flag) { *(bool *)to = true; }
QN_READER(qn_read_word) { *(const char **)to = text; }
QN_READER(qn_read_output) { *(const char **)to = qn_verb_option_output(state, text); }
QN_READER(qn_read_int) { *(int *)to = (int)qn_verb_option_number(state, option, text); }
QN_READER(qn_read_u32) { *(uint32_t *)to = (uint32_t)qn_verb_option_number(state, option, text); }
QN_READER(qn_read_u64) { *(uint64_t *)to = (uint64_t)qn_verb_option_number(state, option, text); }
QN_READER(qn_read_seconds) { *(double *)to = qn_verb_option_seconds(state, option, text); }

QN_READER(qn_read_one)
{
  const char **one = to;
  if (*one)
    argp_error(state, "one %s%sat a time: %s or %s", option->doc ? option->doc : "", option->doc ? " " : "", *one,
               text);
  *one = text;
}

QN_READER(qn_read_backend)
{
  qn_device device;
  if (qn_verb_device_name(text, &device) != QN_OK) argp_error(state, "%s", qn_last_error());
  *(const char **)to = text;
}

QN_READER(qn_read_words)
{
  size_t *n = to;
  const char **at = (const char **)(n + 1);
  if (*n == (size_t)option->most)
    argp_error(state, "more than %g %s%s", option->most, option->name ? "--" : "",
               option->name ? option->name : option->doc);
  at[(*n)++] = text;
}

QN_READER(qn_read_strategy)
{
  if (qn_strategy_from_name(text, to) != QN_OK) argp_error(state, "%s", qn_last_error());
}

/* ---- what argp is given ---- */
typedef struct table { /* of a verb, made at its first use */
  const qn_verb *verb;
  const qn_verb_option *row[MOST_OPTIONS];
  struct argp_option option[MOST_OPTIONS + 1];
  struct argp argp;
  size_t n;
} table;

typedef struct parsing {
  const table *of;
  char *order;
} parsing;

static error_t parse(int key, char *arg, struct argp_state *state)
{
  const parsing *p = state->input;
  const qn_verb *verb = p->of->verb;
  for (size_t k = 0; k < p->of->n; k++)
    if (p->of->row[k] && p->of->option[k].key == key)
      return p->of->row[k]->read(state, p->of->row[k], p->order + p->of->row[k]->at, arg), 0;
  if (key == ARGP_KEY_ARG && verb->argument.read)
    return verb->argument.read(state, &verb->argument, p->order + verb->argument.at, arg), 0;
  if (key == ARGP_KEY_END && verb->end) verb->end(state, p->order);
  return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

/* Of two rows with one letter the first has it. */
static bool is_taken(const table *t, int letter)
{
  for (size_t k = 0; k < t->n; k++)
    if (t->option[k].key == letter) return true;
  return false;
}

static void add_rows(table *t, const qn_verb_option *rows, int group)
{
  for (const qn_verb_option *o = rows; o && o->read && t->n < MOST_OPTIONS; o++) {
    const int key = o->letter && !is_taken(t, o->letter) ? o->letter : 256 + (int)t->n;
    t->row[t->n] = o;
    t->option[t->n++] = (struct argp_option){o->name, key, o->arg, o->flags, o->doc, group + o->group};
  }
}

static table *table_of(const qn_verb *verb)
{
  static table all[MOST_VERBS];
  enum { FOLDER = 8 };
  table *t = all;
  while (t->verb && t->verb != verb && t < all + MOST_VERBS - 1) t++;
  if (t->verb) return t;
  t->verb = verb;
  add_rows(t, verb->options, 0);
  if (verb->folder_options && verb->folder_options->read) {
    t->option[t->n++] = (struct argp_option){.doc = "Of a kernel's folder, besides:", .group = FOLDER};
    add_rows(t, verb->folder_options, FOLDER);
  }
  t->argp = (struct argp){.options = t->n ? t->option : NULL, /* of an empty table argp leaks a byte */
                          .parser = parse,
                          .args_doc = verb->args_doc,
                          .doc = verb->doc,
                          .help_filter = verb->help_filter};
  return t;
}

void qn_verb_each_option(const qn_verb *verb, void (*visit)(void *user, const qn_verb_option *option), void *user)
{
  static const qn_verb_option added[] = {
      {.name = "help", .letter = '?'}, {.name = "usage"}, {.name = "version", .letter = 'V'}};
  const table *t = table_of(verb);
  for (size_t k = 0; k < t->n; k++)
    if (t->row[k]) visit(user, t->row[k]);
  for (size_t k = 0; k < sizeof added / sizeof *added; k++) visit(user, &added[k]);
}

error_t qn_verb_argp_parse(const qn_verb *verb, int argc, char **argv, void *order)
{
  parsing p = {.of = table_of(verb), .order = order};
  return argp_parse(&p.of->argp, argc, argv, verb->in_order ? ARGP_IN_ORDER : 0, NULL, &p);
}

void qn_verb_argp_help(const qn_verb *verb, FILE *stream, unsigned flags, char *name)
{
  argp_help(&table_of(verb)->argp, stream, flags, name);
}
