/* SPDX-License-Identifier: Apache-2.0 */
/* verb.h - what a verb of the command is, and the rules that all verbs share: how arguments are read, how a mistake
 * is reported, what an exit status means. A verb is one file cli/<name>.c that defines `qn_verb_<name>`, and one word
 * in the list in cli/meson.build; help, completion and man pages follow from its table of options. */
#ifndef QN_CLI_VERB_H
#define QN_CLI_VERB_H
#include "cli/option.h"
#include "quern/quern.h"
#include <stdio.h>

/* What `quern` exits with; printed in its --help. */
enum { QN_EXIT_OK = 0, QN_EXIT_FAILED = 1, QN_EXIT_USAGE = 2, QN_EXIT_ENVIRONMENT = 3 };

/* argv[0] is "quern NAME", so that messages of argp name the verb. run returns the exit status. */
typedef struct qn_verb {
  const char *name, *brief;
  int (*run)(int argc, char **argv);
  const qn_verb_option *options,
      *folder_options;     /* folder_options: of a kernel's folder alone, in --help below the others */
  qn_verb_option argument; /* of what is no option; without `read`: refused */
  void (*end)(const struct argp_state *state, void *order); /* what is wrong with all of it ends the command */
  const char *args_doc, *doc;                               /* of argp */
  char *(*help_filter)(int key, const char *text, void *input);
  bool in_order; /* options stand before the first word */
} qn_verb;

#define QN_VERB(name) extern const qn_verb qn_verb_##name;
#include "verbs.h"
#undef QN_VERB
extern const qn_verb *const qn_verbs[]; /* NULL-terminated, in the order of `quern --help` */

/* Reads the arguments into `order`. An unknown option ends the command with QN_EXIT_USAGE, as every argp_error does;
 * the message names the nearest option that exists. A QUERN_ variable with a wrong value ends it too, before any use.
 */
void qn_verb_parse(const qn_verb *verb, int argc, char **argv, void *order);
/* Without the look at the variables: for verbs that work, or report, whatever they hold. */
void qn_verb_parse_only(const qn_verb *verb, int argc, char **argv, void *order);
/* The place of the first argument from `from` on that is neither an option nor an option's value; argc or more: none.
 * `from` is no option's value itself. */
int qn_verb_next_word(const qn_verb *verb, int from, int argc, char **argv);
/* Every option, those that argp adds by itself at the end. */
void qn_verb_each_option(const qn_verb *verb, void (*visit)(void *user, const qn_verb_option *option), void *user);
/* option.c: what argp itself does. */
error_t qn_verb_argp_parse(const qn_verb *verb, int argc, char **argv, void *order);
void qn_verb_argp_help(const qn_verb *verb, FILE *stream, unsigned flags, char *name);

/* "quern NAME: sentence" on standard error; returns `status`, so that it can be said in one line:
 * `return qn_complain(&qn_verb_bench, QN_EXIT_USAGE, "there is no workload %s", name);` */
int qn_complain(const qn_verb *verb, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with qn_last_error() as the sentence and the exit status that fits the library's status: a bad argument or
 * file is QN_EXIT_USAGE, what this machine lacks is QN_EXIT_ENVIRONMENT, all else QN_EXIT_FAILED. */
int qn_complain_status(const qn_verb *verb, qn_status status);
int qn_exit_of(qn_status status);

/* The op that an argument names; else a sentence: a kernel's folder could stand there too (cli/kernel.h). */
qn_status qn_verb_op(const char *name, const qn_op_info **op);
/* qn_device_from_name(), and a note on standard error for a former name. */
qn_status qn_verb_device_name(const char *name, qn_device *device);
/* The device that --backend names ("cpu", "cuda:1", "emulator"); NULL: the option "device" (QUERN_DEVICE); that unset:
 * the first CUDA device, else the CPU. Checked to exist. */
qn_status qn_verb_device(const char *name, qn_device *device);
/* How many threads a pool has where `asked` are asked for; 0: as many as there are usable processors. */
qn_status qn_verb_threads(int asked, int *threads);
qn_status qn_verb_pool(int asked, qn_pool **pool);
void qn_verb_device_text(qn_device device, char text[32]); /* as --backend names it */
/* The value in force of an option, as a command takes it: a name that no user of the option knows is refused too. */
qn_status qn_verb_value(const char *name, const char **value);

#endif
