/* SPDX-License-Identifier: Apache-2.0 */
/* search_run.c - see search_run.h. Generators are served in turn, one candidate each; a generator is asked once all
 * that it gave has been told. With our own generators the order of candidates depends on the seed alone. */
#include "workbench/search_run.h"
#include "workbench/sampler.h"
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { POLL_MS = 100, REPEATS_MOST = 256, END_MS = 500 };

typedef struct search {
  const qn_search_order *order;
  qn_search_result *result;
  qn_generator generator[QN_SEARCH_GENERATORS];
  size_t next; /* the generator whose turn it is */
  int64_t began_ns;
  json_t *seen;       /* hashes that this run has had */
  json_t *own;        /* the problem's line; NULL: an op has none */
  const json_t *best; /* a line of the store; NULL */
  json_t *content;    /* of the best */
  qn_search_judging judging;
  qn_search_candidate at; /* in judgement where judging.child.pid */
} search;

static void say(void *order, const char *sentence)
{
  const qn_search_order *o = order;
  if (o->progress) qn_progress_hide(o->progress);
  fflush(stdout);
  fprintf(stderr, "quern search: %s\n", sentence);
}

static double spent_s(const search *s) { return (double)(qn_now_ns() - s->began_ns) * 1e-9; }

/* ---- the best ---- */

double qn_search_speedup(const json_t *line)
{
  if (json_is_true(json_object_get(line, "correct")) && !json_integer_value(json_object_get(line, "generator")))
    return 1;
  const json_t *speedup = json_object_get(line, "speedup");
  return json_is_true(json_object_get(line, "correct")) && json_is_number(speedup) ? json_number_value(speedup) : NAN;
}

void qn_search_path(const qn_search_store *store, const json_t *line, char path[QN_SEARCH_PATH])
{
  const char *source = json_string_value(json_object_get(line, "source"));
  snprintf(path, QN_SEARCH_PATH, "%s/%.200s", store->folder, source ? source : "");
}

static void add_step(search *s, const json_t *line)
{
  qn_search_result *r = s->result;
  if (r->n_steps == QN_SEARCH_STEPS) memmove(r->step + 1, r->step + 2, (--r->n_steps - 1) * sizeof *r->step);
  qn_search_step *step = &r->step[r->n_steps++];
  const char *by = json_string_value(json_object_get(line, "by"));
  *step = (qn_search_step){.seconds = json_number_value(json_object_get(line, "seconds")),
                           .speedup = qn_search_speedup(line)};
  snprintf(step->by, sizeof step->by, "%s", by ? by : "");
  snprintf(step->hash, sizeof step->hash, "%s", json_string_value(json_object_get(line, "hash")));
}

/* The problem itself, or one that the judge says is faster: what is unclear leads nobody anywhere. */
static bool may_lead(const json_t *line)
{
  const char *fate = json_string_value(json_object_get(line, "fate"));
  return !json_integer_value(json_object_get(line, "generator")) || (fate && !strcmp(fate, "faster"));
}

/* True where it is the best now. A candidate whose source is gone is none. */
static bool consider(search *s, const json_t *line)
{
  char path[QN_SEARCH_PATH];
  json_t *content = NULL;
  const double speedup = qn_search_speedup(line);
  if (!may_lead(line) || isnan(speedup) || (s->best && speedup <= qn_search_speedup(s->best))) return false;
  qn_search_path(s->order->store, line, path);
  if (qn_search_candidate_load(json_string_value(json_object_get(line, "kind")), path,
                               json_string_value(json_object_get(line, "hash")), &content) != QN_OK)
    return false;
  json_decref(s->content);
  s->content = content;
  s->best = line;
  add_step(s, line);
  for (size_t k = 0; k < s->order->n_generators; k++) s->generator[k].passed = false;
  return true;
}

/* ---- judging ---- */

static void count_fate(qn_search_result *r, const char *word)
{
  size_t k = 0;
  while (k < r->n_fates && strcmp(r->fate[k].word, word) != 0) k++;
  if (k == QN_SEARCH_FATES) return;
  if (k == r->n_fates) snprintf(r->fate[r->n_fates++].word, sizeof r->fate[k].word, "%s", word);
  r->fate[k].n++;
}

static qn_status add_line(search *s, const qn_search_candidate *c, const qn_search_verdict *v, double judged_s)
{
  json_t *line = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:f}", "generator", (json_int_t)c->generator, "id",
                           c->id, "hash", c->hash, "kind", c->kind, "note", c->note, "fate", v->word, "reason",
                           v->reason, "correct", v->correct, "judged_s", judged_s);
  json_object_set_new(
      line, "source",
      json_sprintf("sources/%s%s", c->hash, strcmp(c->kind, "folder") ? s->order->problem->ending : ""));
  if (c->generator) json_object_set_new(line, "by", json_string(s->order->generator[c->generator - 1]));
  if (v->line) json_object_set_new(line, "line", json_integer(v->line));
  if (isfinite(v->speedup)) json_object_set_new(line, "speedup", json_real(v->speedup));
  if (v->text) json_object_set(line, "verdict", v->text);
  if (!line) return qn_fail(QN_NO_MEMORY, "a candidate's line");
  return qn_search_store_add(s->order->store, "candidate", line);
}

static void tell(search *s, const qn_search_candidate *c, bool again, bool best)
{
  const json_t *line = qn_search_store_find(s->order->store, c->hash);
  qn_generator *g = c->generator ? &s->generator[c->generator - 1] : NULL;
  if (!g) return;
  g->untold--;
  qn_generator_send(g, qn_search_message_tell(line, c->id, again, best));
}

static qn_status finish(search *s)
{
  const double judged_s = (double)(qn_now_ns() - s->judging.began_ns) * 1e-9;
  qn_search_verdict v;
  qn_search_judge_end(s->order->bench, &s->judging, &v);
  const qn_status status = add_line(s, &s->at, &v, judged_s);
  if (status == QN_OK) {
    const bool best = consider(s, qn_search_store_find(s->order->store, s->at.hash));
    count_fate(s->result, v.word);
    s->result->judged++;
    if (s->at.generator) s->generator[s->at.generator - 1].judged++;
    tell(s, &s->at, false, best);
  }
  qn_search_verdict_close(&v);
  qn_search_candidate_close(&s->at);
  return status;
}

/* Takes the candidate over. */
static qn_status begin(search *s, qn_search_candidate *c)
{
  char path[QN_SEARCH_PATH];
  const qn_search_order *o = s->order;
  s->at = *c;
  qn_try(qn_search_candidate_write(o->problem, c->content, c->hash, o->store->sources, path));
  return qn_search_judge_begin(o->bench, path, "quick", &s->judging);
}

/* One that an earlier run, or this one, has seen: it is told again what came of it. */
static void repeat(search *s, qn_search_candidate *c)
{
  qn_generator *g = &s->generator[c->generator - 1];
  const bool own = json_object_get(s->seen, c->hash) != NULL;
  tell(s, c, true, false);
  json_object_set_new(s->seen, c->hash, json_true());
  s->result->repeated++;
  g->repeats = own ? g->repeats + 1 : 0;
  if (g->repeats == REPEATS_MOST) qn_generator_drop(g, "%d candidates in a row were known", REPEATS_MOST);
  qn_search_candidate_close(c);
}

static qn_status take_next(search *s)
{
  qn_search_candidate c;
  const size_t n = s->order->n_generators;
  for (size_t tried = 0; tried < n && !s->judging.child.pid; tried++) {
    qn_generator *g = &s->generator[s->next];
    s->next = (s->next + 1) % n;
    if (!qn_generator_take(g, &c)) continue;
    g->untold++;
    if (qn_search_store_find(s->order->store, c.hash)) {
      repeat(s, &c);
      continue;
    }
    g->repeats = 0;
    json_object_set_new(s->seen, c.hash, json_true());
    qn_try(begin(s, &c));
  }
  return QN_OK;
}

/* ---- turns ---- */

static bool is_through(const qn_generator *g) { return g->gone || g->done || g->passed; }
static bool may_ask(const qn_generator *g) { return !is_through(g) && !g->asked_ns && !g->n_queue && !g->untold; }

static bool is_idle(const search *s)
{
  if (s->judging.child.pid) return false;
  for (size_t k = 0; k < s->order->n_generators; k++) {
    const qn_generator *g = &s->generator[k];
    if (g->n_queue || !is_through(g)) return false;
  }
  return true;
}

static void wait_and_serve(search *s)
{
  struct pollfd ready[2 * QN_SEARCH_GENERATORS + 1];
  const size_t n = s->order->n_generators;
  const bool judging = s->judging.child.pid != 0;
  bool waiting = true;
  for (size_t k = 0; k < n && k < QN_SEARCH_GENERATORS; k++) {
    qn_generator_poll(&s->generator[k], &ready[2 * k]);
    waiting = waiting && (judging || !s->generator[k].n_queue);
  }
  ready[2 * n] = (struct pollfd){.fd = judging ? s->judging.child.from : -1, .events = POLLIN};
  if (poll(ready, (nfds_t)(2 * n + 1), waiting ? POLL_MS : 0) < 0) return;
  for (size_t k = 0; k < n; k++) qn_generator_serve(&s->generator[k], &ready[2 * k], s->order->patience_s);
}

static const char *end_of(const search *s)
{
  const qn_search_order *o = s->order;
  if (*o->stop) return "stopped";
  if (o->budget_s > 0 && spent_s(s) > o->budget_s) return "the time is spent";
  if (o->most && s->result->judged >= o->most) return "as many as --most were judged";
  return is_idle(s) ? "no generator has more" : NULL;
}

static void show(const search *s)
{
  const qn_search_result *r = s->result;
  char best[48] = "none yet";
  if (!s->order->progress) return;
  if (s->best) snprintf(best, sizeof best, "%.3fx", qn_search_speedup(s->best));
  qn_progress_at(s->order->progress, 0, "%zu judged, best %s%s%.60s", r->judged, best,
                 s->judging.child.pid ? "; judging " : "", s->judging.child.pid ? s->at.id : "");
}

static qn_status turns(search *s)
{
  const qn_search_order *o = s->order;
  while (!(s->result->reason = end_of(s))) {
    for (size_t k = 0; k < o->n_generators; k++)
      if (may_ask(&s->generator[k]))
        qn_generator_ask(&s->generator[k], qn_search_message_ask(s->best, s->content, o->budget_s - spent_s(s)));
    wait_and_serve(s);
    if (s->judging.child.pid && qn_search_judge_read(o->bench, &s->judging)) qn_try(finish(s));
    if (!s->judging.child.pid && !end_of(s)) qn_try(take_next(s));
    show(s);
  }
  return QN_OK;
}

/* ---- the beginning and the end ---- */

/* The problem judged as its own candidate: what it takes, its floor, and whether it can be judged at all. */
static qn_status judge_own(search *s)
{
  char path[QN_SEARCH_PATH];
  const qn_search_order *o = s->order;
  qn_search_candidate c;
  qn_search_verdict v = {.text = NULL};
  qn_status status = qn_search_candidate_own(o->problem, &c);
  const json_t *line = status == QN_OK ? qn_search_store_find(o->store, c.hash) : NULL;
  if (status == QN_OK && !line) {
    if (o->progress) qn_progress_at(o->progress, 0, "judging the problem itself");
    const int64_t from_ns = qn_now_ns();
    status = qn_search_candidate_write(o->problem, c.content, c.hash, o->store->sources, path);
    if (status == QN_OK) status = qn_search_judge_run(o->bench, path, "quick", o->stop, &v);
    if (status == QN_OK && !*o->stop && !v.correct)
      status = qn_fail(QN_BAD_ARGUMENT,
                       "the problem is no problem to search: judged as its own candidate, the verdict "
                       "is \"%s\"%s%.600s",
                       v.word, *v.reason ? ": " : "", v.reason);
    if (status == QN_BAD_ARGUMENT) qn_search_store_drop(o->store);
    if (status == QN_OK && !*o->stop) status = add_line(s, &c, &v, (double)(qn_now_ns() - from_ns) * 1e-9);
    line = status == QN_OK ? qn_search_store_find(o->store, c.hash) : NULL;
    qn_search_verdict_close(&v);
  }
  if (line) json_object_set_new(s->seen, c.hash, json_true()), s->own = json_deep_copy(line);
  qn_search_candidate_close(&c);
  return status;
}

static qn_status start_generators(search *s)
{
  const qn_search_order *o = s->order;
  const char *const mutate[] = {o->bench->command, "search", "--generate-here", "mutate", NULL};
  const char *const graph[] = {qn_program_python(), "-m", "quern.generators.graph", NULL};
  for (size_t k = 0; k < o->n_generators; k++) {
    const char *name = o->generator[k];
    const char *const *ours = !strcmp(name, "mutate") ? mutate : !strcmp(name, "graph") ? graph : NULL;
    qn_generator *g = &s->generator[k];
    *g = (qn_generator){.command = name,
                        .number = k + 1,
                        .problem = o->problem,
                        .say = say,
                        .user = (void *)(uintptr_t)o,
                        .child = {0, -1, -1}};
    qn_try(qn_generator_start(g, ours));
    qn_generator_send(g, qn_search_message_problem(o, s->own, k + 1));
  }
  return QN_OK;
}

static void stop_generators(search *s)
{
  for (size_t k = 0; k < s->order->n_generators; k++) {
    qn_generator *g = &s->generator[k];
    if (!g->command) continue; /* it never began */
    qn_generator_send(g, json_pack("{s:s}", "type", "end"));
    qn_program_close(&g->child.to);
  }
  for (size_t k = 0; k < s->order->n_generators; k++) {
    qn_generator *g = &s->generator[k];
    qn_search_candidate c;
    if (!g->command) continue;
    const bool ran = !g->gone;
    qn_generator_stop(g, END_MS);
    if (ran) *g->ended = 0; /* by us */
    while (qn_generator_take(g, &c)) qn_search_candidate_close(&c);
    s->result->of[k].offered = g->offered;
    s->result->of[k].judged = g->judged;
    snprintf(s->result->of[k].ended, sizeof s->result->of[k].ended, "%s", g->ended);
  }
}

static qn_status add_end(const search *s)
{
  json_t *line = json_pack("{s:s, s:i, s:i}", "reason", s->result->reason, "judged", (int)s->result->judged, "repeated",
                           (int)s->result->repeated);
  json_t *all = json_array();
  for (size_t k = 0; k < s->order->n_generators; k++)
    json_array_append_new(all, json_pack("{s:s, s:i, s:i, s:s}", "command", s->order->generator[k], "offered",
                                         (int)s->result->of[k].offered, "judged", (int)s->result->of[k].judged, "ended",
                                         s->result->of[k].ended));
  json_object_set_new(line, "generators", all);
  return qn_search_store_add(s->order->store, "end", line);
}

qn_status qn_search_go(const qn_search_order *order, qn_search_result *result)
{
  char said[QN_PROGRAM_SAID];
  const char *hash;
  json_t *line;
  *result = (qn_search_result){.reason = "stopped"};
  search s = {.order = order,
              .result = result,
              .began_ns = qn_now_ns(),
              .seen = json_object(),
              .judging = {.child = {0, -1, -1}}};
  qn_status status = judge_own(&s);
  if (status == QN_OK) json_object_foreach(order->store->known, hash, line) consider(&s, line);
  if (status == QN_OK && !*order->stop) status = start_generators(&s);
  if (status == QN_OK && !*order->stop) status = turns(&s);
  stop_generators(&s);
  if (s.judging.child.pid) {
    qn_program_end(&s.judging.child, 0, said);
    qn_text_free(&s.judging.text);
  }
  qn_search_candidate_close(&s.at);
  if (status == QN_OK) status = add_end(&s);
  json_decref(s.seen);
  json_decref(s.own);
  json_decref(s.content);
  return status;
}
