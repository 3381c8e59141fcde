/* SPDX-License-Identifier: Apache-2.0 */
/* option.h - a verb's options as one table: what --help says of each, and which member of the verb's order its value is
 * read into. argp's tables and parser, completion and the search for the nearest option are made from it. */
#ifndef QN_CLI_OPTION_H
#define QN_CLI_OPTION_H
#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

/* Reads an option's text into `to`, the member of the order that the row names. A wrong one ends the command. */
typedef struct qn_verb_option qn_verb_option;
typedef void qn_verb_option_read(struct argp_state *state, const qn_verb_option *option, void *to, char *text);

#define QN_READER(name)                                                                                                \
  void name(__attribute__((unused)) struct argp_state *state, __attribute__((unused)) const qn_verb_option *option,    \
            __attribute__((unused)) void *to, __attribute__((unused)) char *text)

/* A table ends with a row without `read`. */
struct qn_verb_option {
  const char *name; /* NULL: arguments that are no options */
  char letter;      /* 0: none */
  const char *arg;  /* NULL: no value follows */
  const char *doc;
  int group; /* of argp */
  qn_verb_option_read *read;
  size_t at;          /* of the member */
  double least, most; /* of a number; of a list, how many it takes */
  int flags;          /* of argp */
};

/* Members of the type that is called `order` where the table stands. */
#define QN_READ(function, member) .read = function, .at = offsetof(order, member)
#define QN_READ_WITHIN(function, member, from, to) QN_READ(function, member), .least = from, .most = to
#define QN_TO_FLAG(member) QN_READ(qn_read_flag, member) /* bool */
#define QN_TO_WORD(member) QN_READ(qn_read_word, member) /* const char *: as it is */
#define QN_TO_ONE(member)                                                                                              \
  QN_READ(qn_read_one, member) /* likewise, of an argument of which there is one; doc: what it is */
#define QN_TO_OUTPUT(member) QN_READ(qn_read_output, member)   /* likewise, a file that can be written */
#define QN_TO_BACKEND(member) QN_READ(qn_read_backend, member) /* likewise, a device's name */
#define QN_TO_INT(member, from, to) QN_READ_WITHIN(qn_read_int, member, from, to)
#define QN_TO_U32(member, from, to) QN_READ_WITHIN(qn_read_u32, member, from, to)
#define QN_TO_U64(member, from, to) QN_READ_WITHIN(qn_read_u64, member, from, to)
#define QN_TO_SECONDS(member, to) QN_READ_WITHIN(qn_read_seconds, member, 0, to) /* double */
#define QN_TO_WORDS(member, to) QN_READ_WITHIN(qn_read_words, member, 0, to)     /* QN_WORD_LIST(to) */
#define QN_TO_STRATEGY(member) QN_READ(qn_read_strategy, member)
#define QN_WORD_LIST(most)                                                                                             \
  struct {                                                                                                             \
    size_t n;                                                                                                          \
    const char *at[most];                                                                                              \
  }
qn_verb_option_read qn_read_flag, qn_read_word, qn_read_one, qn_read_output, qn_read_backend, qn_read_int, qn_read_u32,
    qn_read_u64, qn_read_seconds, qn_read_words, qn_read_strategy;

/* Rows that several verbs have. */
#define QN_OPTION_BACKEND                                                                                              \
  {                                                                                                                    \
    "backend", 'b', "cpu|cuda[:N]|emulator", "The device; default: QUERN_DEVICE, or the best one", 0,                  \
        QN_TO_BACKEND(backend)                                                                                         \
  }
#define QN_OPTION_THREADS(group, member)                                                                               \
  {                                                                                                                    \
    "threads", 'n', "N", "Threads on the CPU; default: all usable ones", group, QN_TO_INT(member, 1, 1024)             \
  }

/* For a reader: the number in the row's range; the seconds, above 0. */
long qn_verb_option_number(struct argp_state *state, const qn_verb_option *option, const char *text);
double qn_verb_option_seconds(struct argp_state *state, const qn_verb_option *option, const char *text);
/* Which of the words it is, NULL at their end; else the command ends with the nearest one, and `more`. */
int qn_verb_option_word(struct argp_state *state, const char *what, const char *text, const char *const *words,
                        const char *more);
/* A file to write: the command ends now, before minutes of work whose result would have nowhere to go. Makes none. */
const char *qn_verb_option_output(const struct argp_state *state, const char *path);
#endif
