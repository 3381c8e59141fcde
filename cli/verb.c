/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c - the manners of verb.h. argp reads the arguments; what it cannot do, naming the option that was probably
 * meant, is done by a look at the arguments before it sees them. */
#include "cli/verb.h"
#include "core/core.h"
#include "op/forced.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OPTIONS = 128 };

typedef struct option_set {
  qn_verb_option option[MOST_OPTIONS];
  size_t n;
} option_set;

static void visit_own(const struct argp *argp, void (*visit)(void *user, const qn_verb_option *option), void *user)
{
  const struct argp_option *meant = NULL; /* an alias takes what the option before it takes */
  for (const struct argp_option *o = argp->options; o && (o->name || o->key || o->doc || o->group); o++) {
    if (!(o->flags & OPTION_ALIAS)) meant = o;
    if (!meant || o->flags & OPTION_DOC || !(o->name || o->key)) continue;
    qn_verb_option option = {.name = o->name, .arg = meant->arg};
    option.letter = o->key > ' ' && o->key < 127 ? (char)o->key : 0;
    option.needs_value = meant->arg && !(meant->flags & OPTION_ARG_OPTIONAL);
    visit(user, &option);
  }
  for (const struct argp_child *child = argp->children; child && child->argp; child++)
    visit_own(child->argp, visit, user);
}

void qn_verb_each_option(const struct argp *argp, void (*visit)(void *user, const qn_verb_option *option), void *user)
{
  static const qn_verb_option added[] = {
      {"help", NULL, '?', false}, {"usage", NULL, 0, false}, {"version", NULL, 'V', false}};
  visit_own(argp, visit, user);
  for (size_t k = 0; k < sizeof added / sizeof *added; k++) visit(user, &added[k]);
}

static void add(void *user, const qn_verb_option *option)
{
  option_set *set = user;
  if (set->n < MOST_OPTIONS) set->option[set->n++] = *option;
}

/* Its place in the set, or -1. An abbreviation is known too: whether it is ambiguous argp will say. */
static int find_long(const option_set *set, const char *name, size_t length)
{
  int found = -1;
  for (size_t k = 0; k < set->n; k++) {
    if (!set->option[k].name || strncmp(set->option[k].name, name, length)) continue;
    if (!set->option[k].name[length]) return (int)k;
    found = (int)k;
  }
  return found;
}

static int find_short(const option_set *set, char letter)
{
  for (size_t k = 0; k < set->n; k++)
    if (set->option[k].letter == letter) return (int)k;
  return -1;
}

static _Noreturn void refuse(const char *command, const char *option, const char *suggestion)
{
  fprintf(stderr, "%s: there is no option %s%s\nTry '%s --help'.\n", command, option, suggestion, command);
  exit(QN_EXIT_USAGE);
}

static _Noreturn void refuse_word(const char *command, const char *word)
{
  fprintf(stderr, "%s: it takes no argument but options, not \"%s\"\nTry '%s --help'.\n", command, word, command);
  exit(QN_EXIT_USAGE);
}

/* How many arguments the long option at argv[0] takes up. */
static int skip_long(const option_set *set, const char *command, char **argv)
{
  const char *name = argv[0] + 2;
  size_t length = strcspn(name, "=");
  int k = find_long(set, name, length);
  if (k >= 0) return set->option[k].needs_value && !name[length] ? 2 : 1;

  const char *names[MOST_OPTIONS + 1];
  size_t n = 0;
  for (size_t i = 0; i < set->n; i++)
    if (set->option[i].name) names[n++] = set->option[i].name;
  names[n] = NULL;
  char word[64], text[80], suggestion[80] = "";
  snprintf(word, sizeof word, "%.*s", (int)length, name);
  snprintf(text, sizeof text, "--%s", word);
  const char *near = qn_nearest(word, names);
  if (near) snprintf(suggestion, sizeof suggestion, "; did you mean --%s?", near);
  refuse(command, text, suggestion);
}

/* The same for a cluster of short options; -h is what everybody tries first. */
static int skip_short(const option_set *set, const char *command, char **argv)
{
  static char help[] = "--help";
  for (const char *letter = argv[0] + 1; *letter; letter++) {
    int k = find_short(set, *letter);
    if (k < 0 && !strcmp(argv[0], "-h")) {
      argv[0] = help;
      return 1;
    }
    if (k < 0) refuse(command, (char[]){'-', *letter, 0}, "");
    if (set->option[k].needs_value) return letter[1] ? 1 : 2;
  }
  return 1;
}

void qn_verb_look(const struct argp *argp, bool in_order, int argc, char **argv)
{
  option_set set = {.n = 0};
  qn_verb_each_option(argp, add, &set);
  for (int k = 1; k < argc;) {
    if (argv[k][0] != '-' || !argv[k][1]) {
      if (in_order) return;
      if (!argp->args_doc) refuse_word(argv[0], argv[k]);
      k++;
    } else if (!strcmp(argv[k], "--")) {
      return;
    } else {
      k += argv[k][1] == '-' ? skip_long(&set, argv[0], argv + k) : skip_short(&set, argv[0], argv + k);
    }
  }
}

int qn_verb_next_word(const struct argp *argp, int from, int argc, char **argv)
{
  option_set set = {.n = 0};
  qn_verb_each_option(argp, add, &set);
  int k = from;
  while (k < argc && argv[k][0] == '-' && argv[k][1]) {
    if (!strcmp(argv[k], "--")) return k + 1;
    k += argv[k][1] == '-' ? skip_long(&set, argv[0], argv + k) : skip_short(&set, argv[0], argv + k);
  }
  return k;
}

void qn_verb_parse_only(const qn_verb *verb, int argc, char **argv, void *input)
{
  qn_verb_look(verb->argp, false, argc, argv);
  error_t error = argp_parse(verb->argp, argc, argv, 0, NULL, input);
  if (error) exit(qn_complain(verb, QN_EXIT_FAILED, "%s", strerror(error)));
}

qn_status qn_verb_value(const char *name, const char **value)
{
  qn_try(qn_option_get(name, value));
  return qn_forced_check(name);
}

void qn_verb_parse(const qn_verb *verb, int argc, char **argv, void *input)
{
  qn_verb_parse_only(verb, argc, argv, input);
  bool hold = true;
  for (size_t k = 0; k < qn_option_count(); k++) {
    const char *value;
    if (qn_verb_value(qn_option_at(k)->name, &value) == QN_OK) continue;
    hold = false;
    qn_complain(verb, QN_EXIT_USAGE, "%s", qn_last_error());
  }
  if (!hold) exit(QN_EXIT_USAGE);
}

const char *qn_verb_output(const struct argp_state *state, const char *path)
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

long qn_verb_number(struct argp_state *state, const char *option, const char *text, long least, long most)
{
  char *end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end || value < least || value > most)
    argp_error(state, "--%s is \"%s\", it must be a whole number from %ld to %ld", option, text, least, most);
  return value;
}

double qn_verb_seconds(struct argp_state *state, const char *option, const char *text, double most)
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
  if (!known || !(value > 0 && value <= most))
    argp_error(
        state,
        "--%s is \"%s\", it must be a number of seconds above 0 and at most %g; 90s, 20m and 2h are such numbers",
        option, text, most);
  return value;
}

int qn_complain(const qn_verb *verb, int status, const char *format, ...)
{
  fflush(stdout); /* what was said before stays before */
  fprintf(stderr, "quern %s: ", verb->name);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  return status;
}

int qn_exit_of(qn_status status)
{
  switch (status) {
  case QN_OK: return QN_EXIT_OK;
  case QN_BAD_ARGUMENT:
  case QN_BAD_TYPE:
  case QN_BAD_FILE: return QN_EXIT_USAGE;
  case QN_UNSUPPORTED:
  case QN_NO_DEVICE:
  case QN_NO_LIBRARY: return QN_EXIT_ENVIRONMENT;
  default: return QN_EXIT_FAILED;
  }
}

int qn_complain_status(const qn_verb *verb, qn_status status)
{
  return qn_complain(verb, qn_exit_of(status), "%s", *qn_last_error() ? qn_last_error() : qn_status_text(status));
}

qn_status qn_verb_device_name(const char *name, qn_device *device)
{
  static bool noted;
  if (!strncmp(name, "host", 4) && !noted) fputs("quern: the device \"host\" is now called \"emulator\"\n", stderr);
  noted |= !strncmp(name, "host", 4);
  return qn_device_from_name(name, device);
}

const char *qn_verb_backend(const struct argp_state *state, const char *name)
{
  qn_device device;
  if (qn_verb_device_name(name, &device) != QN_OK) argp_error(state, "%s", qn_last_error());
  return name;
}

qn_status qn_verb_device(const char *name, qn_device *device)
{
  int count = 0;
  if (!name) {
    qn_try(qn_option_get("device", &name));
    if (!*name) {
      bool cuda = qn_device_count(QN_CUDA, &count) == QN_OK && count > 0;
      *device = (qn_device){cuda ? QN_CUDA : QN_CPU, 0};
      return QN_OK;
    }
  }
  qn_try(qn_verb_device_name(name, device));
  qn_try(qn_device_count(device->kind, &count));
  if (count == 0) return qn_fail(QN_NO_DEVICE, "%s: there is none here: %s", name, qn_last_error());
  if (device->index >= count) return qn_fail(QN_NO_DEVICE, "%s: there are %d, counted from 0", name, count);
  return QN_OK;
}

qn_status qn_verb_pool(int threads, qn_pool **pool)
{
  qn_device_info cpu = {.size = sizeof cpu};
  qn_try(qn_device_query((qn_device){QN_CPU, 0}, &cpu));
  return qn_pool_create(pool, threads ? threads : cpu.multiprocessors);
}

void qn_verb_device_text(qn_device device, char text[32])
{
  snprintf(text, 32, device.kind == QN_CUDA ? "%s:%d" : "%s", qn_device_kind_name(device.kind), device.index);
}
