/* SPDX-License-Identifier: Apache-2.0 */
/* verb.c - the rules of verb.h. argp reads the arguments. It cannot name the option that was probably meant: a pass
 * over the arguments before it does. */
#include "cli/verb.h"
#include "core/core.h"
#include "op/forced.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 128 };

typedef struct option_set {
  qn_verb_option option[MOST_OPTIONS];
  size_t n;
} option_set;

static void add(void *user, const qn_verb_option *option)
{
  option_set *set = user;
  if (set->n < MOST_OPTIONS) set->option[set->n++] = *option;
}

static bool needs_value(const qn_verb_option *o) { return o->arg && !(o->flags & OPTION_ARG_OPTIONAL); }

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
  if (k >= 0) return needs_value(&set->option[k]) && !name[length] ? 2 : 1;

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
    if (needs_value(&set->option[k])) return letter[1] ? 1 : 2;
  }
  return 1;
}

/* Leaves the command at the first unknown option. */
static void look(const qn_verb *verb, int argc, char **argv)
{
  option_set set = {.n = 0};
  qn_verb_each_option(verb, add, &set);
  for (int k = 1; k < argc;) {
    if (argv[k][0] != '-' || !argv[k][1]) {
      if (verb->in_order) return;
      if (!verb->args_doc) refuse_word(argv[0], argv[k]);
      k++;
    } else if (!strcmp(argv[k], "--")) {
      return;
    } else {
      k += argv[k][1] == '-' ? skip_long(&set, argv[0], argv + k) : skip_short(&set, argv[0], argv + k);
    }
  }
}

int qn_verb_next_word(const qn_verb *verb, int from, int argc, char **argv)
{
  option_set set = {.n = 0};
  qn_verb_each_option(verb, add, &set);
  int k = from;
  while (k < argc && argv[k][0] == '-' && argv[k][1]) {
    if (!strcmp(argv[k], "--")) return k + 1;
    k += argv[k][1] == '-' ? skip_long(&set, argv[0], argv + k) : skip_short(&set, argv[0], argv + k);
  }
  return k;
}

void qn_verb_parse_only(const qn_verb *verb, int argc, char **argv, void *order)
{
  look(verb, argc, argv);
  error_t error = qn_verb_argp_parse(verb, argc, argv, order);
  if (error) exit(qn_complain(verb, QN_EXIT_FAILED, "%s", strerror(error)));
}

qn_status qn_verb_value(const char *name, const char **value)
{
  qn_try(qn_option_get(name, value));
  return qn_forced_check(name);
}

void qn_verb_parse(const qn_verb *verb, int argc, char **argv, void *order)
{
  qn_verb_parse_only(verb, argc, argv, order);
  bool hold = true;
  for (size_t k = 0; k < qn_option_count(); k++) {
    const char *value;
    if (qn_verb_value(qn_option_at(k)->name, &value) == QN_OK) continue;
    hold = false;
    qn_complain(verb, QN_EXIT_USAGE, "%s", qn_last_error());
  }
  if (!hold) exit(QN_EXIT_USAGE);
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

qn_status qn_verb_threads(int asked, int *threads)
{
  qn_device_info cpu = {.size = sizeof cpu};
  qn_try(qn_device_query((qn_device){QN_CPU, 0}, &cpu));
  *threads = asked ? asked : cpu.multiprocessors;
  return QN_OK;
}

qn_status qn_verb_pool(int asked, qn_pool **pool)
{
  int threads;
  qn_try(qn_verb_threads(asked, &threads));
  return qn_pool_create(pool, threads);
}

void qn_verb_device_text(qn_device device, char text[32])
{
  snprintf(text, 32, device.kind == QN_CUDA ? "%s:%d" : "%s", qn_device_kind_name(device.kind), device.index);
}
