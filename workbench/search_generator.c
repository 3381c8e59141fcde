/* SPDX-License-Identifier: Apache-2.0 */
/* search_generator.c - see search_generator.h. */
#include "workbench/search_generator.h"
#include "workbench/sampler.h"
#include "core/utf8.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  PART = 65536,
  LINE_MOST = 4 << 20,     /* bytes of a line */
  SKIPPED_MOST = 64 << 20, /* bytes of lines that were too long */
  OUT_MOST = 64 << 20,     /* bytes that it has not read */
  MISTAKES_MOST = 16,
  CHATTER_MOST = 10000, /* lines since its last candidate */
  SAID_MOST = 400       /* characters of a "log" */
};

/* ---- sentences ---- */

static void say(const qn_generator *g, const char *format, va_list values)
{
  char text[900], sentence[1200];
  vsnprintf(text, sizeof text, format, values);
  snprintf(sentence, sizeof sentence, "generator %zu (%.120s)%s", g->number, g->command, text);
  g->say(g->user, sentence);
}

static void tell(const qn_generator *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(const qn_generator *g, const char *format, ...)
{
  va_list values;
  va_start(values, format);
  say(g, format, values);
  va_end(values);
}

void qn_generator_stop(qn_generator *g, int grace_ms)
{
  char said[QN_PROGRAM_SAID];
  const bool ran = g->child.pid > 0;
  qn_program_end(&g->child, grace_ms, said);
  if (ran && !g->gone && !g->done && *said) snprintf(g->ended, sizeof g->ended, "%s", said);
  g->gone = true;
  qn_release(g->line);
  g->line = NULL;
  g->n = g->room = 0;
  qn_text_free(&g->out);
}

void qn_generator_drop(qn_generator *g, const char *format, ...)
{
  va_list values;
  char why[300];
  if (g->gone) return;
  va_start(values, format);
  vsnprintf(why, sizeof why, format, values);
  va_end(values);
  tell(g, " is dropped: %s", why);
  qn_generator_stop(g, 0);
  snprintf(g->ended, sizeof g->ended, "%s", why);
}

/* A mistake costs a sentence, a great many the generator. */
static void mistake(qn_generator *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void mistake(qn_generator *g, const char *format, ...)
{
  va_list values;
  va_start(values, format);
  say(g, format, values);
  va_end(values);
  g->asked_ns = 0; /* it was its answer */
  if (++g->mistakes == MISTAKES_MOST) qn_generator_drop(g, "%d lines were wrong", MISTAKES_MOST);
}

/* ---- what it says ---- */

static void take_candidate(qn_generator *g, const json_t *message)
{
  qn_search_candidate c;
  g->asked_ns = 0;
  const qn_status status = qn_search_candidate_read(g->problem, message, &c);
  c.generator = g->number;
  g->offered++;
  g->chatter = 0;
  if (status == QN_OK) {
    g->queue[g->n_queue++] = c;
    return;
  }
  const char *id = json_string_value(json_object_get(message, "id"));
  char why[600];
  snprintf(why, sizeof why, "%s", qn_last_error());
  qn_utf8_mend(why);
  qn_generator_send(
      g, json_pack("{s:s, s:s, s:s, s:s}", "type", "tell", "id", id ? id : "", "verdict", "malformed", "reason", why));
  mistake(g, ", line %zu: %s", g->lines, qn_last_error());
  qn_search_candidate_close(&c);
}

static void take_message(qn_generator *g, const json_t *message)
{
  const char *type = json_string_value(json_object_get(message, "type"));
  const char *text = json_string_value(json_object_get(message, "text"));
  if (type && !strcmp(type, "candidate")) {
    take_candidate(g, message);
  } else if (type && !strcmp(type, "done")) {
    g->done = true;
    g->asked_ns = 0;
  } else if (type && !strcmp(type, "pass")) {
    g->passed = true;
    g->asked_ns = 0;
  } else if (type && !strcmp(type, "log") && text) {
    tell(g, ": %.*s", SAID_MOST, text);
  } else {
    mistake(g, ", line %zu: its type is \"%.40s\"; candidate, pass, done and log are known", g->lines,
            type ? type : "");
  }
}

static void take_line(qn_generator *g, const char *text, size_t n)
{
  json_error_t error;
  g->lines++;
  if (++g->chatter > CHATTER_MOST) {
    qn_generator_drop(g, "it wrote %d lines without a candidate", CHATTER_MOST);
    return;
  }
  if (!n) return;
  json_t *message = json_loadb(text, n, 0, &error);
  if (json_is_object(message))
    take_message(g, message);
  else
    mistake(g, ", line %zu: it is no JSON object: %.160s", g->lines, message ? "another value" : error.text);
  json_decref(message);
}

static void skip(qn_generator *g, size_t n)
{
  g->skipped_bytes += n;
  if (g->skipped_bytes > SKIPPED_MOST)
    qn_generator_drop(g, "lines of more than %d MiB came from it, %d MiB of them", LINE_MOST >> 20, SKIPPED_MOST >> 20);
}

/* The whole lines among what came, until its queue is full; the rest waits. */
static void take_lines(qn_generator *g)
{
  size_t from = 0;
  while (!g->gone && g->n_queue < QN_GENERATOR_QUEUE) {
    char *end = memchr(g->line + from, '\n', g->n - from);
    if (!end) break;
    if (g->skipping)
      skip(g, (size_t)(end - g->line) - from), g->skipping = false;
    else
      take_line(g, g->line + from, (size_t)(end - g->line) - from);
    from = (size_t)(end - g->line) + 1;
    if (g->gone) return;
  }
  g->n -= from;
  memmove(g->line, g->line + from, g->n);
  if (memchr(g->line, '\n', g->n)) return;
  if (g->skipping) {
    skip(g, g->n);
    g->n = 0;
  } else if (g->n > LINE_MOST) {
    g->skipping = true;
    skip(g, g->n);
    g->n = 0;
    if (!g->gone) mistake(g, ", line %zu: it is longer than %d MiB and is passed by", ++g->lines, LINE_MOST >> 20);
  }
}

/* ---- reading and writing ---- */

static void end_of_output(qn_generator *g)
{
  char said[QN_PROGRAM_SAID];
  qn_program_end(&g->child, 2000, said);
  const bool early = !g->done;
  if (early)
    tell(g, " ended%s%s%s", *said ? " with " : " by itself", said, g->asked_ns ? " while it was asked for more" : "");
  snprintf(g->ended, sizeof g->ended, "%s", early ? (*said ? said : "it ended by itself") : "");
  qn_generator_stop(g, 0);
}

/* At most a part of a line's greatest length at a time, so that one generator does not hold up the others. */
static void read_some(qn_generator *g)
{
  if (g->room < g->n + PART) {
    char *more = qn_reallocate(g->line, g->n + 2 * PART + g->n / 2);
    if (!more) {
      qn_generator_drop(g, "no memory for its line");
      return;
    }
    g->line = more;
    g->room = g->n + 2 * PART + g->n / 2;
  }
  const ssize_t got = read(g->child.from, g->line + g->n, g->room - g->n);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    end_of_output(g);
    return;
  }
  g->n += (size_t)got;
  take_lines(g);
}

static void write_some(qn_generator *g)
{
  if (g->child.to < 0 || g->sent == g->out.length) return;
  const ssize_t n = write(g->child.to, g->out.at + g->sent, g->out.length - g->sent);
  if (n > 0) g->sent += (size_t)n;
  if (n < 0 && errno != EAGAIN && errno != EINTR)
    qn_program_close(&g->child.to); /* it reads no more; its output counts */
  if (g->sent == g->out.length) g->sent = g->out.length = 0;
}

void qn_generator_send(qn_generator *g, json_t *message)
{
  char *text = g->gone ? NULL : json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(9));
  json_decref(message);
  if (!text) return;
  if (g->out.length > OUT_MOST) {
    qn_generator_drop(g, "it does not read what it is told");
  } else {
    qn_text_add_bytes(&g->out, text, strlen(text));
    qn_text_add_bytes(&g->out, "\n", 1);
    if (g->out.failed) qn_generator_drop(g, "no memory for what it is told");
    write_some(g);
  }
  free(text);
}

void qn_generator_ask(qn_generator *g, json_t *message)
{
  g->asked_ns = qn_now_ns();
  json_object_set_new(message, "type", json_string("ask"));
  json_object_set_new(message, "n", json_integer(QN_GENERATOR_QUEUE));
  qn_generator_send(g, message);
}

void qn_generator_poll(const qn_generator *g, struct pollfd ready[2])
{
  const bool reads = !g->gone && g->n_queue < QN_GENERATOR_QUEUE;
  const bool writes = !g->gone && g->child.to >= 0 && g->sent < g->out.length;
  ready[0] = (struct pollfd){.fd = reads ? g->child.from : -1, .events = POLLIN};
  ready[1] = (struct pollfd){.fd = writes ? g->child.to : -1, .events = POLLOUT};
}

void qn_generator_serve(qn_generator *g, const struct pollfd ready[2], double patience_s)
{
  if (!g->gone && ready[1].revents) write_some(g);
  if (!g->gone && ready[0].revents) read_some(g);
  if (!g->gone && g->asked_ns && (double)(qn_now_ns() - g->asked_ns) * 1e-9 > patience_s)
    qn_generator_drop(g, "no candidate came within %g s", patience_s);
}

bool qn_generator_take(qn_generator *g, qn_search_candidate *c)
{
  if (!g->n_queue) return false;
  *c = g->queue[0];
  memmove(g->queue, g->queue + 1, --g->n_queue * sizeof *g->queue);
  if (!g->gone) take_lines(g);
  return true;
}

/* ---- the process ---- */

qn_status qn_generator_start(qn_generator *g, const char *const *self)
{
  const char *const alone[] = {g->command, NULL}, *const shell[] = {"/bin/sh", "-c", g->command, NULL};
  const bool shelled = strpbrk(g->command, " \t$&;|<>'\"");
  const qn_status status = qn_program_start(&g->child, self ? self : shelled ? shell : alone, NULL, -1);
  if (status != QN_BAD_ARGUMENT || self || strchr(g->command, '/')) return status;
  return qn_fail(status, "%s cannot be run: it is neither space, mutate nor graph, nor a program on the PATH%s%s",
                 g->command, access(g->command, F_OK) ? "" : "; the file here is ./",
                 access(g->command, F_OK) ? "" : g->command);
}
