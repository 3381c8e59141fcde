/* SPDX-License-Identifier: Apache-2.0 */
/* quern.c - the command: picks the verb and hands over. Knows no verb but `help` and `version`, which stand here; the
 * rest come from the table that cli/meson.build makes. */
#include "cli/kernel.h"
#include "cli/verb.h"
#include "core/core.h"
#include "cpu/tier.h"
#include "workbench/build.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

extern const qn_verb qn_verb_help, qn_verb_version;
const qn_verb *const qn_verbs[] = {
#define QN_VERB(name) &qn_verb_##name,
#include "verbs.h"
#undef QN_VERB
    &qn_verb_help,
    &qn_verb_version,
    NULL,
};

typedef struct row {
  const char *name, *doc;
} row;

static const row exit_statuses[] = {
    {"0", "done"},
    {"1", "failure: a check found a wrong kernel, or a file could not be written"},
    {"2", "the command line, a QUERN_ variable or an input file is wrong; nothing was done"},
    {"3", "the machine lacks a required GPU, driver or compiler"},
};

static const qn_verb *find_verb(const char *name)
{
  for (const qn_verb *const *verb = qn_verbs; *verb; verb++)
    if (!strcmp((*verb)->name, name)) return *verb;
  return NULL;
}

static void print_version(FILE *stream, struct argp_state *state)
{
  (void)state;
  fprintf(stream, "quern %s%s%s%s\n", qn_version(), *qn_build_commit ? " (" : "", qn_build_commit,
          *qn_build_commit ? ")" : "");
  fprintf(stream, "built with %s, %s\ntiers:", qn_build_compiler, qn_build_type);
  for (qn_tier tier = 0; tier < QN_TIER_ORACLE; tier++)
    if (qn_tier_built(tier)) fprintf(stream, " %s%s", qn_tier_name(tier), qn_tier_runs_here(tier) ? "" : " (not here)");
  fputs("\nThis is free software under the Apache License 2.0, with no warranty.\n", stream);
}

/* "  name    doc", wrapped below the doc's first word, as argp does with options but not with other text. */
static void add_row(qn_text *text, int width, row r)
{
  enum { RIGHT = 78 };
  size_t column = 0, room = (size_t)(RIGHT - 4 - width);
  qn_text_add(text, "  %-*s  ", width, r.name);
  while (*r.doc) {
    size_t length = strcspn(r.doc, " ");
    if (column && column + 1 + length > room) {
      qn_text_add(text, "\n%*s", width + 4, "");
      column = 0;
    }
    qn_text_add(text, "%s%.*s", column ? " " : "", (int)length, r.doc);
    column += length + (column > 0);
    r.doc += length;
    r.doc += *r.doc == ' ';
  }
  qn_text_add(text, "\n");
}

/* The parts of --help that are made from tables: verbs and variables. argp frees what this returns. */
static char *fill_help(int key, const char *text, void *input)
{
  (void)input;
  if (key != ARGP_KEY_HELP_POST_DOC) return (char *)text;
  qn_text all = {0};
  qn_text_add(&all, "Verbs:\n");
  for (size_t k = 0; qn_verbs[k]; k++) add_row(&all, 10, (row){qn_verbs[k]->name, qn_verbs[k]->brief});
  qn_text_add(&all,
              "\nEach verb has its own --help. First steps: quern doctor, quern check, quern bench.\n\nVariables:\n");
  for (size_t k = 0; k < qn_option_count(); k++)
    add_row(&all, 17, (row){qn_option_at(k)->variable, qn_option_at(k)->doc});
  add_row(&all, 17, (row){"NO_COLOR", "set: no colours"});
  qn_text_add(&all, "\nExit status:\n");
  for (size_t k = 0; k < sizeof exit_statuses / sizeof *exit_statuses; k++) add_row(&all, 1, exit_statuses[k]);
  char *copy = all.failed ? NULL : strdup(all.at);
  qn_text_free(&all);
  return copy;
}

typedef struct choice {
  const char *verb;
  int at;
} choice;

static QN_READER(take_verb)
{
  choice *chosen = to;
  chosen->verb = text;
  chosen->at = state->next - 1;
  state->next = state->argc; /* the rest is the verb's */
}

static const qn_verb top = {
    .argument = {.read = take_verb},
    .args_doc = "VERB [ARGUMENT...]",
    .doc = "Check and time fused compute kernels, and compare them with the limit of this machine.",
    .help_filter = fill_help,
    .in_order = true,
};

static int unknown_verb(const char *name)
{
  const char *names[64];
  size_t n = 0;
  for (; qn_verbs[n] && n < 63; n++) names[n] = qn_verbs[n]->name;
  names[n] = NULL;
  fprintf(stderr, "quern: there is no verb %s%s\nTry 'quern --help'.\n", name, qn_suggest(name, names));
  return QN_EXIT_USAGE;
}

/* ---- help and version ---- */
static QN_READER(take_word)
{
  char **word = to; /* a verb, an action of `quern kernel` */
  const bool more = word[0] && !strcmp(word[0], qn_verb_kernel.name) && !word[1];
  if (word[0] && !more) argp_error(state, "one verb at a time: %s or %s", word[0], text);
  word[more] = text;
}

static int run_help(int argc, char **argv)
{
  char *asked[2] = {NULL, NULL};
  qn_verb_parse_only(&qn_verb_help, argc, argv, asked);
  const char *name = asked[0];
  const qn_verb *verb = name ? find_verb(name) : NULL;
  if (name && !verb) return unknown_verb(name);
  char title[64];
  snprintf(title, sizeof title, "quern%s%s", verb ? " " : "", verb ? verb->name : "");
  char help[] = "--help", *words[] = {title, asked[1] ? asked[1] : help, asked[1] ? help : NULL, NULL};
  if (verb) return verb->run(asked[1] ? 3 : 2, words);
  choice none = {NULL, 0};
  qn_verb_argp_parse(&top, 2, words, &none); /* prints and exits */
  return QN_EXIT_FAILED;
}

const qn_verb qn_verb_help = {.name = "help",
                              .brief = "print the help of a verb",
                              .run = run_help,
                              .argument = {.read = take_word},
                              .args_doc = "[VERB]",
                              .doc = "Print the help of the command or of a verb."};

static int run_version(int argc, char **argv)
{
  qn_verb_parse_only(&qn_verb_version, argc, argv, NULL);
  print_version(stdout, NULL);
  return QN_EXIT_OK;
}

const qn_verb qn_verb_version = {.name = "version",
                                 .brief = "print version, commit, compiler and CPU tiers",
                                 .run = run_version,
                                 .doc = "Print version, commit, compiler and CPU tiers of this build."};

/* ---- the environment: a misspelt variable would silently have no effect ---- */
static void warn_of_unknown_variables(void)
{
  enum { PREFIX = 6 }; /* of "QUERN_": as all have it, it must not make them alike */
  const char *names[QN_OPTION_COUNT + 1] = {NULL};
  for (size_t k = 0; k < QN_OPTION_COUNT; k++) names[k] = qn_option_at(k)->variable + PREFIX;
  for (char **variable = environ; *variable; variable++) {
    char name[64];
    size_t length = strcspn(*variable, "=");
    if (strncmp(*variable, "QUERN_", PREFIX) || length >= sizeof name) continue;
    memcpy(name, *variable, length);
    name[length] = 0;
    if (!strcmp(name, "QUERN_GEOMETRY")) {
      fputs("quern: the variable QUERN_GEOMETRY is now QUERN_LAUNCH_SHAPE; the next release does not read it\n",
            stderr);
      continue;
    }
    /* Of the Python package, which runs this command too, and which this command runs. */
    bool known = !strcmp(name, "QUERN_LIBRARY") || !strcmp(name, "QUERN_COMMAND") || !strcmp(name, "QUERN_PYTHON");
    for (size_t k = 0; names[k]; k++) known = known || !strcmp(names[k], name + PREFIX);
    const char *near = known ? NULL : qn_nearest(name + PREFIX, names);
    if (!known)
      fprintf(stderr, "quern: the variable %s means nothing here%s%s%s\n", name, near ? "; did you mean QUERN_" : "",
              near ? near : "", near ? "?" : "");
  }
}

/* A full disk behind standard output must not look like success; argp's own --help leaves through exit as well. */
static void close_output(void)
{
  if (!ferror(stdout) && !fflush(stdout)) return;
  fprintf(stderr, "quern: standard output could not be written: %s\n", strerror(errno));
  _exit(QN_EXIT_FAILED);
}

int main(int argc, char **argv)
{
  char name[64] = "quern";
  choice chosen = {NULL, 0};
  atexit(close_output);
  argp_err_exit_status = QN_EXIT_USAGE;
  argp_program_version_hook = print_version;
  setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
  if (argc < 1) return QN_EXIT_USAGE;
  argv[0] = name;
  qn_verb_parse_only(&top, argc, argv, &chosen);
  if (!chosen.verb) {
    qn_verb_argp_help(&top, stderr, ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK, name);
    return QN_EXIT_USAGE;
  }
  const qn_verb *verb = find_verb(chosen.verb);
  if (!verb) return unknown_verb(chosen.verb);
  warn_of_unknown_variables();
  snprintf(name, sizeof name, "quern %s", verb->name);
  argv[chosen.at] = name;
  int status;
  argc -= chosen.at;
  argv += chosen.at;
  return qn_kernel_takes(verb, argc, argv, &status) ? status : verb->run(argc, argv);
}
