/* SPDX-License-Identifier: Apache-2.0 */
/* search_generator.h - a program that proposes candidates, in lines of JSON over its standard input and output
 * (docs/search-protocol.schema.json). Nothing that it sends is believed: lines have a greatest length, a queue a
 * greatest number, an answer a greatest time, and mistakes a greatest count; past any of them it is dropped. */
#ifndef QN_WORKBENCH_SEARCH_GENERATOR_H
#define QN_WORKBENCH_SEARCH_GENERATOR_H
#include "core/core.h"
#include "workbench/program.h"
#include "workbench/search_problem.h"
#include <poll.h>
#include <stdint.h>

enum { QN_GENERATOR_QUEUE = 8 };

typedef struct qn_generator {
  const char *command; /* as it was given */
  size_t number;       /* from 1 */
  const qn_search_problem *problem;
  void (*say)(void *user, const char *sentence); /* for people; it names the generator */
  void *user;
  qn_program child;
  char *line; /* what has come of a line */
  size_t n, room;
  bool skipping; /* the rest of a line that is too long */
  size_t skipped_bytes, lines, mistakes, chatter, repeats;
  qn_text out; /* not yet written */
  size_t sent;
  qn_search_candidate queue[QN_GENERATOR_QUEUE];
  size_t n_queue, untold;            /* untold: taken from the queue, no verdict yet */
  int64_t asked_ns;                  /* 0: it has answered */
  bool done, gone, passed;           /* done, passed: by its own word; passed: until there is a new best */
  size_t offered, judged;            /* candidates */
  char ended[QN_PROGRAM_SAID + 300]; /* gone: why; "" where it was done */
} qn_generator;

/* command: words with spaces go through the shell. `self`: the arguments of one of our own, or NULL. Destroy it in any
 * case. */
qn_status qn_generator_start(qn_generator *g, const char *const *self);
void qn_generator_stop(qn_generator *g, int grace_ms);
/* message is given away. */
void qn_generator_send(qn_generator *g, json_t *message);
/* Asks for up to n more candidates. message, given away, is the rest of "ask". */
void qn_generator_ask(qn_generator *g, json_t *message);
/* What to wait for, and what to do after; a generator that is late by `patience_s` is dropped. */
void qn_generator_poll(const qn_generator *g, struct pollfd ready[2]);
void qn_generator_serve(qn_generator *g, const struct pollfd ready[2], double patience_s);
/* The first of its queue, the caller's to close; false: it is empty. */
bool qn_generator_take(qn_generator *g, qn_search_candidate *candidate);
/* It is worth nothing more: a sentence, and it is ended. */
void qn_generator_drop(qn_generator *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif
