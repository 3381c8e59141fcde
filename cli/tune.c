/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - `quern tune`: finds the device variants of ops that are the fastest on this device and keeps them in the
 * user's tables; shows what the tables say. The work is workbench/tune.c's. */
#include "cli/kernel.h"
#include "op/call.h"
#include "workbench/sampler.h"
#include "workbench/tune.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_OPS = 32 };

typedef struct order {
  QN_WORD_LIST(MOST_OPS) names; /* as they were given; none: all */
  const qn_op_info *op[MOST_OPS];
  const char *backend, *json, *record;
  qn_tune_order tune;
  qn_tune_filter filter;
  qn_device device;
  bool list, fresh;
} order;

static QN_READER(read_former_only)
{
  fprintf(stderr, "quern tune: --geometries is now --variants; the next release refuses it\n");
  qn_read_word(state, option, to, text);
}

static QN_READER(read_seed)
{
  char *end;
  *(uint64_t *)to = strtoull(text, &end, 10);
  if (end == text || *end) argp_error(state, "--seed is \"%s\", it must be a number", text);
}

static const qn_verb_option options[] = {
    {"backend", 'b', "cuda[:N]|emulator|cpu", "The device; default: QUERN_DEVICE, or the best one", 0,
     QN_TO_BACKEND(backend)},
    {"budget", 0, "SECONDS", "Stop after this time, split evenly over ops; unused time is passed on", 0,
     QN_TO_SECONDS(tune.budget_s, 1e6)},
    {"strategy", 0, "NAME", "exhaustive (the default), random or halving", 0, QN_TO_STRATEGY(tune.strategy)},
    {"types", 0, "TYPES", "One row of the op's types, as in `quern bench`; default: one of each size", 0,
     QN_TO_WORD(filter.types)},
    {"shapes", 0, "RxC,...",
     "Rows and columns; of a product names of its workloads, or \"m=16 n=64 k=32\"; default: the op's own", 0,
     QN_TO_WORD(filter.shapes)},
    {"pitched", 0, NULL, "Also rows with gaps between them", 0, QN_TO_FLAG(filter.pitched)},
    {"variants", 0, "NAME,...", "Only these, such as flat-256x8x1,tiles-128x8x1 or plain,cublas", 0,
     QN_TO_WORD(tune.only)},
    {"geometries", 0, "NAME,...", "The former name of --variants", 0, QN_READ(read_former_only, tune.only),
     .flags = OPTION_HIDDEN},
    {"resume", 0, NULL, "Continue a run that was stopped", 1, QN_TO_FLAG(tune.resume)},
    {"fresh", 0, NULL, "Ignore existing tables and start from the built-in rule", 1, QN_TO_FLAG(fresh)},
    {"dry-run", 0, NULL, "Print the candidates and run nothing", 1, QN_TO_FLAG(tune.dry_run)},
    {"list", 0, NULL, "Print the tables' entries, and the present choice of a call", 1, QN_TO_FLAG(list)},
    {"json", 'j', "FILE", "Write all results in the T4 format, for other tuning tools", 1, QN_TO_OUTPUT(json)},
    {"record", 0, "FILE", "Append a line of JSON per op, and one for all: candidates tried, time", 1,
     QN_TO_OUTPUT(record)},
    {"seed", 0, "N", "Seed of the random strategy", 1, QN_READ(read_seed, tune.seed)},
    {"look", 0, "SECONDS", "Time of one look at a candidate", 2, QN_TO_SECONDS(tune.look_s, 1e6)},
    {"prove", 0, "SECONDS", "Time of the last comparison with the choice in force", 2,
     QN_TO_SECONDS(tune.prove_s, 1e6)},
    {0},
};

/* ---- what the tables say ---- */
static void print_entries(const char *op)
{
  qn_tune_entry e;
  qn_text text = {0};
  qn_tune_source source;
  for (size_t k = 0; (source = qn_tune_at(op, k, &e)); k++) {
    text.length = 0;
    qn_tune_write_line(&text, &e);
    if (!text.failed) printf("  %-7s %s", source == QN_TUNE_USER ? "yours" : "shipped", text.at);
  }
  qn_text_free(&text);
}

static qn_status print_choice(void *user, const qn_tune_choice *choice)
{
  (void)user;
  printf("    %-44s %-18s %s\n", choice->place->name, choice->name ? choice->name : "-", choice->why);
  return QN_OK;
}

static qn_status list_op(const order *o, const qn_op *op)
{
  qn_arch arch = {.size = sizeof arch};
  printf("%s\n", op->info.name);
  print_entries(op->info.name);
  if (o->device.kind == QN_CPU) return QN_OK;
  qn_try(qn_tune_arch(o->device, &arch));
  printf("  a call on %s (%s) takes\n", arch.name, arch.family);
  return qn_tune_choices(op, o->device, &o->filter, print_choice, NULL);
}

/* ---- tuning ---- */
static double now_s(void) { return (double)qn_now_ns() * 1e-9; }

typedef struct total {
  bool wrong;
  size_t ops;
  double seconds;
  qn_tune_outcome sum;
} total;

static void add(total *all, const qn_tune_outcome *out, double seconds)
{
  all->wrong = all->wrong || out->wrong;
  all->ops++;
  all->seconds += seconds;
  all->sum.places += out->places, all->sum.faster += out->faster, all->sum.kept += out->kept;
  all->sum.failed += out->failed, all->sum.left += out->left, all->sum.looked += out->looked;
  all->sum.impossible += out->impossible, all->sum.wrong += out->wrong;
}

static void tell(const qn_tune_outcome *out, double seconds)
{
  printf("  %zu shapes: %zu faster, %zu as they were, %zu left out, %zu not begun; %zu variants timed, %zu not "
         "possible, %zu wrong; %.1f s\n",
         out->places, out->faster, out->kept, out->failed, out->left, out->looked, out->impossible, out->wrong,
         seconds);
}

static qn_status tune_op(const order *o, const qn_op *op, total *all)
{
  qn_progress progress;
  qn_tune_order ask = o->tune;
  qn_tune_outcome out = {.places = 0};
  const double began = now_s();
  printf("%s\n", op->info.name);
  fflush(stdout);
  qn_progress_begin(&progress, op->info.name, 0);
  ask.progress = &progress;
  ask.out = stdout;
  qn_tune_bed bed;
  qn_tune_op *made = NULL;
  qn_status status = qn_tune_op_create(&made, op, o->device, &o->filter, o->tune.seed, &bed);
  if (status == QN_OK) status = qn_tune_run(&bed, &ask, &out);
  qn_tune_op_destroy(&made);
  qn_progress_end(&progress);
  const double seconds = now_s() - began;
  add(all, &out, seconds);
  if (ask.dry_run || status != QN_OK) return status;
  tell(&out, seconds);
  if (*out.path) printf("  kept in %s/%s.tune\n", out.path, op->info.name);
  return o->record ? qn_tune_json_record(o->record, o->device, &ask, op->info.name, &out, seconds) : QN_OK;
}

static bool is_named(const order *o, const qn_op *op)
{
  for (size_t k = 0; k < o->names.n; k++)
    if (o->op[k] == &op->info) return true;
  return false;
}

/* Shapes and names of one kind of op are none of another's: then all of the other kind are passed by. */
static bool can_tune(const order *o, const qn_op *op)
{
  const bool of_lists = o->filter.shapes || o->tune.only || o->filter.types;
  if (!op->engine->option) return false;
  if (o->names.n) return is_named(o, op);
  return !qn_op_is_alone(&op->info) || !of_lists;
}

/* Of a limited time each op has an equal part of what is left, so that none is passed by for another's sake. */
static qn_status each_op(order *o, total *all)
{
  const double until = now_s() + o->tune.budget_s;
  const bool limited = o->tune.budget_s > 0;
  size_t left = 0;
  for (size_t k = 0; k < qn_op_count(); k++) left += can_tune(o, qn_op_of(qn_op_at(k)));
  for (size_t k = 0; k < qn_op_count(); k++) {
    const qn_op *op = qn_op_of(qn_op_at(k));
    if (!can_tune(o, op)) continue;
    const double part = (until - now_s()) / (double)left--;
    if (limited) o->tune.budget_s = part > 1e-3 ? part : 1e-3;
    qn_try(o->list ? list_op(o, op) : tune_op(o, op, all));
  }
  if (o->list || o->tune.dry_run) return QN_OK;
  if (all->ops > 1) printf("all %zu ops\n", all->ops), tell(&all->sum, all->seconds);
  return o->record && all->ops > 1 ? qn_tune_json_record(o->record, o->device, &o->tune, "", &all->sum, all->seconds)
                                   : QN_OK;
}

static qn_status find_ops(order *o)
{
  for (size_t k = 0; k < o->names.n; k++) {
    qn_try(qn_verb_op(o->names.at[k], &o->op[k]));
    qn_require(qn_op_of(o->op[k])->engine->option, "%s has no device variants to choose from", o->names.at[k]);
  }
  return QN_OK;
}

static int run(int argc, char **argv)
{
  order o = {.tune.seed = 1};
  total all = {0};
  qn_verb_parse(&qn_verb_tune, argc, argv, &o);
  qn_status status = find_ops(&o);
  if (status == QN_OK) status = qn_verb_device(o.backend, &o.device);
  if (status != QN_OK) return qn_complain_status(&qn_verb_tune, status);
  if (o.device.kind == QN_CPU && !o.list) {
    printf("on the processor there is nothing to tune: its kernels are chosen by their instruction sets\n");
    return QN_EXIT_OK;
  }
  if (o.json) o.tune.results = json_array();
  qn_tune_ignore(o.fresh);
  status = each_op(&o, &all);
  qn_tune_ignore(false);
  if (o.json) {
    const qn_status written = qn_tune_json_write(o.json, o.device, o.tune.results);
    if (status == QN_OK) status = written;
  }
  if (status != QN_OK) return qn_complain_status(&qn_verb_tune, status);
  return all.wrong ? QN_EXIT_FAILED : QN_EXIT_OK;
}

const qn_verb qn_verb_tune = {
    .name = "tune",
    .brief = "find the fastest variants on this device",
    .run = run,
    .options = options,
    .folder_options = qn_folder_options[QN_FOLDER_TUNE],
    .argument = {QN_TO_WORDS(names, MOST_OPS), .doc = "ops"},
    .args_doc = "[OP...|DIR]",
    .doc =
        "Find the fastest device variant of ops on this device: launch shapes of element-wise ops, kernels of products."
        " Each candidate is compared with the reference, then timed in turns with the variant in force. The best is "
        "timed once more, and kept only where the whole interval shows that it is faster. Of the kernel in the folder "
        "DIR: the values of its member \"tune\", kept in <name>.tune in it.\v"
        "Entries are written to OP.tune in $XDG_DATA_HOME/quern/tune (QUERN_TUNE_DIR) and are used from the next call "
        "on, before those that ship. OP.state beside it is for --resume. The CPU has nothing to tune.",
};
