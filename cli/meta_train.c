/* SPDX-License-Identifier: Apache-2.0 */
/* meta_train.c - `quern meta-train`: trains the network of a learned optimizer, and writes its weights. */
#include "cli/verb.h"
#include "core/core.h"
#include "workbench/meta_curve.h"
#include "workbench/op_check.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct order {
  const char *op, *backend, *curve, *svg;
  int threads;
  qn_meta_order of;
  qn_text command;
} order;

enum {
  KEY_STEPS = 256,
  KEY_PIECE,
  KEY_GROUPS,
  KEY_SEED,
  KEY_BUDGET,
  KEY_RESUME,
  KEY_CURVE,
  KEY_SVG,
  KEY_LR,
  KEY_LONGEST
};

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "The weights, a safetensors file; required. FILE.state is what --resume goes on from", 0},
    {"backend", 'b', "cuda[:N]|emulator", 0, "The device; default: QUERN_DEVICE, or the best one", 0},
    {"threads", 'n', "N", 0, "Threads of the emulator; default: all usable ones", 0},
    {"steps", KEY_STEPS, "N", 0, "Outer steps (default 3200)", 1},
    {"piece", KEY_PIECE, "N", 0, "Outer steps between two checkpoints (default 400)", 1},
    {"groups", KEY_GROUPS, "LIST", 0, "Networks in training: PAIRSxINPUTS-HIDDEN-CLASSES@BATCH, with commas", 1},
    {"longest", KEY_LONGEST, "N", 0, "Steps of the longest episode (default 2000)", 1},
    {"lr", KEY_LR, "RATE", 0, "The outer learning rate (default 0.002)", 1},
    {"seed", KEY_SEED, "N", 0, "Seed (default 1). The same command writes the same file on one architecture", 1},
    {"budget", KEY_BUDGET, "SECONDS", 0, "Stop at the first checkpoint after this time", 2},
    {"resume", KEY_RESUME, NULL, 0, "Go on from FILE.state, to the bits of a run that was not interrupted", 2},
    {"svg", KEY_SVG, "FILE", 0, "Draw the mean loss over the outer steps that this run takes", 2},
    {"curve", KEY_CURVE, "FILE", 0, "Append the loss of each outer step as a line of JSON", 2},
    {0},
};

static double read_rate(struct argp_state *state, const char *text)
{
  char *end;
  const double rate = strtod(text, &end);
  if (end == text || *end || !(rate > 0 && rate <= 1))
    argp_error(state, "--lr is \"%s\", it must be a number above 0 and at most 1", text);
  return rate;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
  order *o = state->input;
  switch (key) {
  case 'o': o->of.out = qn_verb_output(state, arg); return 0;
  case 'b': o->backend = arg; return 0;
  case 'n': o->threads = (int)qn_verb_number(state, "threads", arg, 1, 1024); return 0;
  case KEY_STEPS: o->of.steps = (uint32_t)qn_verb_number(state, "steps", arg, 1, 1 << 24); return 0;
  case KEY_PIECE: o->of.piece = (uint32_t)qn_verb_number(state, "piece", arg, 1, 1 << 24); return 0;
  case KEY_GROUPS: o->of.groups = arg; return 0;
  case KEY_LONGEST: o->of.longest = (uint32_t)qn_verb_number(state, "longest", arg, 40, 1 << 24); return 0;
  case KEY_LR: o->of.lr = read_rate(state, arg); return 0;
  case KEY_SEED: o->of.seed = (uint64_t)qn_verb_number(state, "seed", arg, 0, INT32_MAX); return 0;
  case KEY_BUDGET: o->of.budget_s = qn_verb_seconds(state, "budget", arg, 1e6); return 0;
  case KEY_RESUME: o->of.resume = true; return 0;
  case KEY_CURVE: o->curve = qn_verb_output(state, arg); return 0;
  case KEY_SVG: o->svg = qn_verb_output(state, arg); return 0;
  case ARGP_KEY_ARG:
    if (o->op) argp_error(state, "one op at a time: %s and %s", o->op, arg);
    o->op = arg;
    return 0;
  case ARGP_KEY_END:
    if (!o->op) argp_error(state, "an op is required: a learned optimizer that `quern list` names");
    if (!o->of.out) argp_error(state, "--out FILE is required: the weights go there");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "OP",
    .doc =
        "Train the network of a learned optimizer, and write its weights as a safetensors file.\v"
        "Thousands of small networks are trained at once on random tasks, each by an optimizer whose weights are a "
        "little off; the weights move to where the networks' losses are lower. docs/meta-training.md has the method. "
        "A line every 64 outer steps, and at each checkpoint, says the mean loss, how many pairs diverged, and the "
        "speed.",
};

typedef struct teller {
  qn_meta_curve curve;
  uint32_t steps;
} teller;

static void tell(void *user, uint32_t step, double loss, double lost, double rate)
{
  teller *t = user;
  qn_meta_curve_add(&t->curve, step, loss);
  printf("step %u of %u: loss %.4f, %.1f pairs lost a step, %.3g particle steps a second\n", step, t->steps, loss, lost,
         rate);
  fflush(stdout);
}

static qn_status train(order *o, uint32_t *done)
{
  const qn_op_info *info;
  teller t = {.steps = o->of.steps};
  qn_try(qn_verb_op(o->op, &info));
  o->of.op = qn_op_of(info);
  o->of.params = info->defaults;
  const qn_op_check *check = qn_op_check_of(o->of.op);
  qn_require(check->meta_train, "%s has no weights that could be trained", info->name);
  qn_try(qn_verb_device(o->backend, &o->of.device));
  qn_try(qn_verb_pool(o->threads, &o->of.pool));
  if (o->curve) {
    o->of.curve = fopen(o->curve, "a");
    if (!o->of.curve) return qn_fail(QN_IO_ERROR, "%s: %s", o->curve, strerror(errno));
  }
  o->of.command = o->command.failed ? "" : o->command.at;
  o->of.at = tell, o->of.user = &t;
  qn_try(check->meta_train(&o->of, done));
  return o->svg ? qn_meta_curve_draw(o->svg, &t.curve, info->name, o->of.steps) : QN_OK;
}

static int run(int argc, char **argv)
{
  order o = {.of = {.steps = 3200,
                    .piece = 400,
                    .window = 25,
                    .shortest = 40,
                    .longest = 2000,
                    .seed = 1,
                    .lr = 0.002,
                    .sigma = 0.01,
                    .most = 0.3}};
  uint32_t done = 0;
  for (int k = 0; k < argc; k++) qn_text_add(&o.command, "%s%s", k ? " " : "", argv[k]);
  qn_verb_parse(&qn_verb_meta_train, argc, argv, &o);
  qn_status status = train(&o, &done);
  const bool torn = o.of.curve && ferror(o.of.curve), shut = !o.of.curve || !fclose(o.of.curve);
  if (status == QN_OK && (torn || !shut)) status = qn_fail(QN_IO_ERROR, "%s: it could not be written", o.curve);
  if (status == QN_OK) printf("%s: %u of %u outer steps\n", o.of.out, done, o.of.steps);
  qn_pool_destroy(&o.of.pool);
  qn_text_free(&o.command);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_meta_train, status);
}

const qn_verb qn_verb_meta_train = {"meta-train", "train the weights of a learned optimizer", run, &argp};
