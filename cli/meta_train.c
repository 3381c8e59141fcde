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

static QN_READER(read_rate)
{
  char *end;
  const double rate = *(double *)to = strtod(text, &end);
  if (end == text || *end || !(rate > 0 && rate <= 1))
    argp_error(state, "--%s is \"%s\", it must be a number above 0 and at most 1", option->name, text);
}

static void check_given(const struct argp_state *state, void *input)
{
  const order *o = input;
  if (!o->op) argp_error(state, "an op is required: a learned optimizer that `quern list` names");
  if (!o->of.out) argp_error(state, "--out FILE is required: the weights go there");
}

static const qn_verb_option options[] = {
    {"out", 'o', "FILE", "The weights, a safetensors file; required. FILE.state is what --resume goes on from", 0,
     QN_TO_OUTPUT(of.out)},
    {"backend", 'b', "cuda[:N]|emulator", "The device; default: QUERN_DEVICE, or the best one", 0,
     QN_TO_BACKEND(backend)},
    {"threads", 'n', "N", "Threads of the emulator; default: all usable ones", 0, QN_TO_INT(threads, 1, 1024)},
    {"steps", 0, "N", "Outer steps (default 3200)", 1, QN_TO_U32(of.steps, 1, 1 << 24)},
    {"piece", 0, "N", "Outer steps between two checkpoints (default 400)", 1, QN_TO_U32(of.piece, 1, 1 << 24)},
    {"groups", 0, "LIST", "Networks in training: PAIRSxINPUTS-HIDDEN-CLASSES@BATCH, with commas", 1,
     QN_TO_WORD(of.groups)},
    {"longest", 0, "N", "Steps of the longest episode (default 2000)", 1, QN_TO_U32(of.longest, 40, 1 << 24)},
    {"lr", 0, "RATE", "The outer learning rate (default 0.002)", 1, QN_READ(read_rate, of.lr)},
    {"seed", 0, "N", "Seed (default 1). The same command writes the same file on one architecture", 1,
     QN_TO_U64(of.seed, 0, INT32_MAX)},
    {"budget", 0, "SECONDS", "Stop at the first checkpoint after this time", 2, QN_TO_SECONDS(of.budget_s, 1e6)},
    {"resume", 0, NULL, "Go on from FILE.state, to the bits of a run that was not interrupted", 2,
     QN_TO_FLAG(of.resume)},
    {"svg", 0, "FILE", "Draw the mean loss over the outer steps that this run takes", 2, QN_TO_OUTPUT(svg)},
    {"curve", 0, "FILE", "Append the loss of each outer step as a line of JSON", 2, QN_TO_OUTPUT(curve)},
    {0},
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

const qn_verb qn_verb_meta_train = {
    .name = "meta-train",
    .brief = "train the weights of a learned optimizer",
    .run = run,
    .options = options,
    .argument = {QN_TO_ONE(op), .doc = "op"},
    .end = check_given,
    .args_doc = "OP",
    .doc =
        "Train the network of a learned optimizer, and write its weights as a safetensors file.\v"
        "Thousands of small networks are trained at once on random tasks, each by an optimizer whose weights are a "
        "little off; the weights move to where the networks' losses are lower. docs/meta-training.md has the method. "
        "A line every 64 outer steps, and at each checkpoint, says the mean loss, how many pairs diverged, and the "
        "speed.",
};
