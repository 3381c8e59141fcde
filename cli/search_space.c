/* SPDX-License-Identifier: Apache-2.0 */
/* search_space.c - the generator "space" of `quern search`: see search.h. */
#include "cli/search.h"
#include "core/core.h"
#include "op/call.h"
#include "workbench/bench.h"
#include "workbench/sampler.h"
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MOST = 65536, CONFIRM_S = 600 };

/* ---- the tuner over the problem ---- */

static qn_status tune_kernel(const qn_search_words *w, const qn_search_problem *p, const qn_tune_order *order,
                             qn_tune_outcome *out)
{
  qn_kernel_session s;
  const qn_kernel_order kernel = {.verb = &qn_verb_search,
                                  .folder = p->path,
                                  .backend = w->backend,
                                  .workload = w->workload,
                                  .tune = *order,
                                  .seconds = w->look_s,
                                  .seed = w->seed};
  qn_status status = qn_kernel_open(&s, &kernel);
  if (status == QN_OK) status = qn_kernel_tune(&s, NULL, out);
  qn_kernel_close(&s);
  return status;
}

static qn_status tune_op(const qn_search_words *w, const qn_search_problem *p, qn_device device,
                         const qn_tune_order *order, qn_tune_outcome *out)
{
  const qn_op_info *info;
  qn_tune_bed bed;
  qn_tune_op *made = NULL;
  const qn_tune_filter filter = {.types = w->types, .shapes = w->shapes, .pitched = false};
  qn_try(qn_verb_op(p->name, &info));
  qn_require(qn_op_of(info)->engine->option, "%s has no device variants to choose from", p->name);
  qn_require(device.kind != QN_CPU, "on the processor an op has one variant for each instruction set: there is nothing "
                                    "to search; --backend cuda or emulator names a device");
  qn_status status = qn_tune_op_create(&made, qn_op_of(info), device, &filter, w->seed, &bed);
  if (status == QN_OK) status = qn_tune_run(&bed, order, out);
  qn_tune_op_destroy(&made);
  return status;
}

static qn_status tune(const qn_search_words *w, const qn_search_problem *p, qn_device device, qn_tune_order order,
                      qn_tune_outcome *out)
{
  order.strategy = w->strategy, order.seed = w->seed;
  order.look_s = w->look_s, order.prove_s = w->prove_s;
  return p->kind == QN_PROBLEM_KERNEL ? tune_kernel(w, p, &order, out) : tune_op(w, p, device, &order, out);
}

/* ---- what it sees ---- */

static void key_of(const qn_tune_place *place, const char *over, const char *name, char key[QN_SEARCH_HASH])
{
  char text[1024];
  snprintf(text, sizeof text, "%s over %s: %s", place->name, over, name);
  qn_search_hash(text, key);
}

static bool knows(void *user, const qn_tune_place *place, const char *over, const char *name, double *speedup)
{
  char key[QN_SEARCH_HASH];
  const qn_space *s = user;
  key_of(place, over, name, key);
  const json_t *was = json_object_get(qn_search_store_find(s->store, key), "speedup");
  if (json_is_number(was)) *speedup = json_number_value(was);
  return json_is_number(was);
}

static void saw(void *user, const qn_tune_place *place, const char *over, const char *name, const qn_tune_result *r)
{
  char key[QN_SEARCH_HASH];
  qn_space *s = user;
  const bool right = !strcmp(r->validity, "correct");
  key_of(place, over, name, key);
  json_t *line = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "generator", (json_int_t)s->generator, "by",
                           "space", "hash", key, "place", place->name, "over", over, "variant", name, "fate",
                           right                                 ? "timed"
                           : !strcmp(r->validity, "correctness") ? "wrong values"
                                                                 : "not possible",
                           "reason", r->why);
  if (right) json_object_set_new(line, "speedup", json_real(r->speedup));
  if (right) json_object_set_new(line, "time_ns", json_real(r->median_ns));
  const qn_status status = line ? qn_search_store_add(s->store, "look", line) : QN_NO_MEMORY;
  if (s->failure == QN_OK) s->failure = status;
}

static void chose(void *user, const qn_tune_place *place, const char *over, const char *name, double speedup)
{
  qn_space *s = user;
  const qn_op_info *info;
  qn_space_choice *more = qn_reallocate(s->choice, (s->n + 1) * sizeof *more);
  if (!more) {
    s->failure = qn_fail(QN_NO_MEMORY, "what was chosen");
    return;
  }
  s->choice = more;
  qn_space_choice *c = &more[s->n++];
  *c = (qn_space_choice){.speedup = speedup, .pitched = place->pitched};
  snprintf(c->place, sizeof c->place, "%s", place->name);
  snprintf(c->over, sizeof c->over, "%s", over);
  snprintf(c->name, sizeof c->name, "%s", name);
  if (s->problem->kind != QN_PROBLEM_OP || qn_verb_op(s->problem->name, &info) != QN_OK) return;
  qn_bench_types(qn_op_of(info), place->row, c->types, sizeof c->types);
  if (qn_op_is_alone(info))
    snprintf(c->shapes, sizeof c->shapes, "%s%s%s", place->text, *place->classed ? " " : "", place->classed);
  else
    snprintf(c->shapes, sizeof c->shapes, "%s", place->shape);
}

qn_status qn_space_look(qn_space *s, double budget_s, qn_progress *progress)
{
  const qn_tune_watch watch = {.user = s, .knows = knows, .saw = saw, .chose = chose};
  const qn_tune_order order = {.only = s->words->variants, .budget_s = budget_s, .watch = &watch, .progress = progress};
  const qn_status status = tune(s->words, s->problem, s->device, order, &s->outcome);
  return status == QN_OK ? s->failure : status;
}

/* ---- the proof in a fresh process ---- */

int qn_space_confirm_here(const qn_search_words *w, const qn_search_problem *p, qn_device device)
{
  char *said = NULL;
  size_t bytes = 0;
  qn_tune_outcome out = {.places = 0};
  qn_progress quiet = {.on = false};
  FILE *lines = open_memstream(&said, &bytes);
  const qn_tune_order order = {.only = w->confirm, .out = lines, .progress = &quiet};
  qn_status status = lines ? tune(w, p, device, order, &out) : qn_fail(QN_NO_MEMORY, "lines");
  if (lines) fclose(lines);
  json_t *all =
      json_pack("{s:i, s:i, s:i, s:i, s:s, s:s}", "faster", (int)out.faster, "as_before", (int)out.kept, "failed",
                (int)out.failed, "wrong", (int)out.wrong, "path", out.path, "said", said ? said : "");
  if (status == QN_OK) json_dumpf(all, stdout, JSON_COMPACT);
  putchar('\n');
  json_decref(all);
  free(said);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_search, status);
}

static qn_status add_selection(qn_space *s, const qn_space_choice *c, const json_t *answer, bool kept)
{
  json_t *line = json_pack("{s:I, s:s, s:s, s:s, s:s, s:b, s:f}", "generator", (json_int_t)s->generator, "by", "space",
                           "place", c->place, "over", c->over, "variant", c->name, "kept", kept, "speedup", c->speedup);
  if (answer) json_object_update(line, (json_t *)(uintptr_t)answer);
  return qn_search_store_add(s->store, "selection", line);
}

qn_status qn_space_confirm(qn_space *s, const qn_space_choice *c, bool *kept)
{
  char seed[32], look[32], prove[32];
  const qn_search_words *w = s->words;
  const char *argv[24] = {s->command, "search", s->problem->path, "--backend", s->backend, "--confirm-here", c->name};
  size_t n = 7;
  qn_text text = {0};
  char said_of_end[QN_PROGRAM_SAID];
  int ended;
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)w->seed);
  snprintf(look, sizeof look, "%g", w->look_s);
  snprintf(prove, sizeof prove, "%g", w->prove_s);
  argv[n++] = "--seed", argv[n++] = seed;
  if (*c->types) argv[n++] = "--types", argv[n++] = c->types;
  if (*c->shapes) argv[n++] = "--shapes", argv[n++] = c->shapes;
  if (w->workload) argv[n++] = "--workload", argv[n++] = w->workload;
  if (w->look_s > 0) argv[n++] = "--look", argv[n++] = look;
  if (w->prove_s > 0) argv[n++] = "--prove", argv[n++] = prove;
  qn_try(qn_program_run(argv, NULL, -1, ANSWER_MOST, CONFIRM_S, 2000, &text, &ended, said_of_end));
  json_t *answer = ended >= 0 && text.at ? json_loadb(text.at, text.length, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
  qn_text_free(&text);
  *kept = json_integer_value(json_object_get(answer, "faster")) > 0;
  const char *said = json_string_value(json_object_get(answer, "said"));
  if (said && *said) printf("%s", said);
  if (!answer) printf("  %s: %s could not be confirmed, the variant in force stays\n", c->place, c->name);
  const qn_status status = add_selection(s, c, answer, *kept);
  json_decref(answer);
  return status;
}
