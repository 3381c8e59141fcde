/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.c - `quern kernel` with its actions, and the verbs of ops (check, bench, tune, emit, list) over a kernel's
 * folder: one table of options, each with the actions that take it, and one of actions. What they do stands in
 * kernel_*.c. */
#include "cli/kernel.h"
#include "core/core.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  NEW = 1,
  LIST = 2,
  RUN = 4,
  CHECK = 8,
  BENCH = 16,
  SANITIZE = 32,
  TUNE = 64,
  EMIT = 128,
  REPLAY = 256,
  WATCH = 512,
  LAUNCHES = RUN | CHECK | BENCH | SANITIZE | TUNE | EMIT | REPLAY | WATCH,
  ONE_SIZE = RUN | BENCH | SANITIZE | TUNE | EMIT
};

typedef struct action {
  const char *name;
  int bit;
  int (*run)(const qn_kernel_order *order);
  const char *brief, *doc;
  const qn_verb *verb; /* `quern check DIR` is of this verb; NULL: `quern kernel run DIR` */
} action;

static const action actions[] = {
    {"new", NEW, qn_action_new, "make a folder with a working kernel",
     "Make the folder DIR with a kernel named after its last part: body, reference, sizes, workloads. It passes its "
     "check as it is.",
     NULL},
    {"run", RUN, qn_action_run, "run one size, print or write the outputs",
     "Run a kernel once and print the first values of inputs and outputs.", NULL},
    {"watch", WATCH, qn_action_watch, "compile and check again at every save",
     "Compile and check the kernel whenever a file of its folder changes, until Ctrl-C.", NULL},
    {"sanitize", SANITIZE, qn_action_sanitize, "find races and other faults with many seeds",
     "Run a kernel in checking mode on the CPU with random orders of simdgroups and report every finding. Default: the "
     "last of the folder's sizes.",
     NULL},
    {"replay", REPLAY, qn_action_replay, "run a captured launch again",
     "Run a captured launch on its inputs, and compare with its outputs where they were saved.", NULL},
    {"check", CHECK, qn_action_check, NULL, NULL, &qn_verb_check},
    {"bench", BENCH, qn_action_bench, NULL, NULL, &qn_verb_bench},
    {"tune", TUNE, qn_action_tune, NULL, NULL, &qn_verb_tune},
    {"emit", EMIT, qn_action_emit, NULL, NULL, &qn_verb_emit},
    {"list", LIST, qn_action_list, NULL, NULL, &qn_verb_list},
};
enum { N_ACTIONS = sizeof actions / sizeof *actions };

enum {
  KEY_SET = 256,
  KEY_TYPE,
  KEY_GROUP,
  KEY_SEED,
  KEY_SEEDS,
  KEY_IGNORE,
  KEY_INPUT,
  KEY_LIMIT,
  KEY_ISOLATED,
  KEY_QUICK,
  KEY_SELFTEST,
  KEY_JSON,
  KEY_AGAINST,
  KEY_HOT,
  KEY_SECONDS,
  KEY_DRY,
  KEY_UNTUNED,
  KEY_DIALECT,
  KEY_FROM,
  KEY_PASSES,
  KEY_BUDGET,
  KEY_STRATEGY,
  KEY_VARIANTS,
  KEY_TRACE,
  KEY_FIRST
};

typedef struct choice {
  int actions;
  struct argp_option option;
} choice;

static const choice choices[] = {
    {LAUNCHES, {"backend", 'b', "cpu|cuda[:N]|emulator", 0, "The device; default: QUERN_DEVICE, or the best one", 0}},
    {RUN | SANITIZE | EMIT | REPLAY, {"size", 's', "N", 0, "The N-th of the folder's sizes, from 1", 0}},
    {ONE_SIZE, {"workload", 'w', "WORKLOAD", 0, "One of the folder's workloads", 0}},
    {LAUNCHES, {"set", KEY_SET, "NAME=VALUE", 0, "An extent or a template; may be repeated", 0}},
    {ONE_SIZE, {"dtype", KEY_TYPE, "INPUT=TYPE", 0, "The storage type of an input; may be repeated", 0}},
    {ONE_SIZE, {"threadgroup", KEY_GROUP, "X[,Y[,Z]]", 0, "Threads of a group instead of the folder's", 0}},
    {LAUNCHES, {"untuned", KEY_UNTUNED, NULL, 0, "Ignore the folder's tune table", 0}},
    {LAUNCHES & ~EMIT, {"threads", 'n', "N", 0, "Threads on the CPU; default: all usable ones", 0}},
    {LAUNCHES & ~EMIT, {"seed", KEY_SEED, "N", 0, "Seed of the inputs (default 1)", 0}},
    {RUN | SANITIZE | REPLAY,
     {"input", KEY_INPUT, "NAME=FILE.npy", 0, "An input from a .npy or .safetensors file; may be repeated", 1}},
    {RUN | REPLAY, {"out", 'o', "FILE.safetensors", 0, "Write the outputs", 1}},
    {RUN, {"verbose", 'v', NULL, 0, "Print the generated source first", 1}},
    {RUN | SANITIZE | REPLAY, {"isolated", KEY_ISOLATED, NULL, 0, "Run in a child process, and report a crash", 1}},
    {RUN | SANITIZE | REPLAY, {"time-limit", KEY_LIMIT, "S", 0, "Stop a launch that takes longer", 1}},
    {CHECK | SANITIZE, {"seeds", KEY_SEEDS, "N", 0, "Random orders of simdgroups in checking mode", 1}},
    {CHECK | SANITIZE,
     {"ignore", KEY_IGNORE, "KIND[,KIND]", 0, "Kinds of findings to ignore, such as \"same value\"", 1}},
    {CHECK | WATCH, {"quick", KEY_QUICK, NULL, 0, "Fewer types and seeds", 1}},
    {CHECK, {"selftest", KEY_SELFTEST, NULL, 0, "Plant bugs in the body; each must be caught", 1}},
    {BENCH, {"against", KEY_AGAINST, "DIR", 0, "Time another kernel's folder in turns with it", 1}},
    {BENCH, {"hot", KEY_HOT, NULL, 0, "Leave the device's cache as it is between calls", 1}},
    {BENCH | TUNE, {"seconds", KEY_SECONDS, "S", 0, "Most time for a measurement's rounds", 1}},
    {TUNE, {"dry-run", KEY_DRY, NULL, 0, "Print the candidates and run nothing", 1}},
    {TUNE, {"budget", KEY_BUDGET, "SECONDS", 0, "Stop after this time", 1}},
    {TUNE, {"strategy", KEY_STRATEGY, "NAME", 0, "exhaustive (the default), random or halving", 1}},
    {TUNE, {"variants", KEY_VARIANTS, "NAME,...", 0, "Only these, such as 128x1x1+TILE=4", 1}},
    {EMIT, {"form", 'f', "cuda|hip|metal|mlx", 0, "The language (default: cuda)", 1}},
    {EMIT, {"out", 'o', "FILE", 0, "Write this file instead of standard output", 1}},
    {NEW, {"dialect", KEY_DIALECT, "metal|cuda", 0, "The body's language (default: metal)", 1}},
    {NEW, {"from", KEY_FROM, "NAME", 0, "Copy a kernel that ships (quern list) or a folder", 1}},
    {WATCH, {"passes", KEY_PASSES, "N", 0, "Stop after N checks", 1}},
    {LIST | RUN | CHECK | SANITIZE | REPLAY, {"json", KEY_JSON, NULL, 0, "Print JSON", 2}},
    {TUNE, {"json", 'j', "FILE", 0, "Write all results in the T4 format, for other tuning tools", 2}},
    {BENCH, {"json", 'j', "FILE", 0, "Append each measurement with its raw samples to FILE", 2}},
    {BENCH, {"trace", KEY_TRACE, "FILE", 0, "Write a Chrome trace", 2}},
    {BENCH, {"first-use-here", KEY_FIRST, "empty", OPTION_HIDDEN | OPTION_ARG_OPTIONAL, "One first use, measured", 2}},
};
enum { N_CHOICES = sizeof choices / sizeof *choices };

/* ---- values ---- */
static void read_setting(struct argp_state *state, qn_kernel_order *o, char *text)
{
  char *equals = strchr(text, '='), *end;
  if (!equals || equals == text) argp_error(state, "--set is \"%s\", NAME=VALUE is wanted", text);
  if (o->n_set == QN_KERNEL_SETTINGS) argp_error(state, "more than %d --set", QN_KERNEL_SETTINGS);
  if (!equals) return; /* argp_error has left */
  const char *value = equals + 1;
  errno = 0;
  long long number = !strcmp(value, "true") ? 1 : !strcmp(value, "false") ? 0 : strtoll(value, &end, 10);
  bool word = !strcmp(value, "true") || !strcmp(value, "false");
  if (!word && (errno || end == value || *end))
    argp_error(state, "--set %s: \"%s\" is no whole number, true or false", text, value);
  *equals = 0;
  o->set[o->n_set++] = (qn_name){text, number};
}

static void read_group(struct argp_state *state, qn_kernel_order *o, const char *text)
{
  const char *at = text;
  for (int d = 0; d < 3; d++) o->group[d] = 1;
  for (int d = 0; d < 3; d++) {
    char *end;
    long value = strtol(at, &end, 10);
    if (end == at || (*end && *end != ',') || value < 1 || value > QN_KERNEL_MAX_GROUP || (d == 2 && *end))
      argp_error(state, "--threadgroup is \"%s\", it must be one to three numbers from 1 to %d, like 32,8", text,
                 QN_KERNEL_MAX_GROUP);
    o->group[d] = (uint32_t)value;
    if (!*end) return;
    at = end + 1;
  }
}

static void keep_pair(struct argp_state *state, const char *what, const char *text, const char **list, size_t *n)
{
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1]) argp_error(state, "--%s is \"%s\", NAME=... is wanted", what, text);
  if (*n == QN_KERNEL_SETTINGS) argp_error(state, "more than %d --%s", QN_KERNEL_SETTINGS, what);
  list[(*n)++] = text;
}

static const char *read_word(struct argp_state *state, const char *what, const char *text, const char *const *words)
{
  for (size_t k = 0; words[k]; k++)
    if (!strcmp(text, words[k])) return words[k];
  argp_error(state, "there is no %s %s%s", what, text, qn_suggest(text, words));
  return NULL;
}

static error_t parse_more(int key, char *arg, struct argp_state *state)
{
  static const char *const forms[] = {"cuda", "hip", "metal", "mlx", NULL}, *const dialects[] = {"metal", "cuda", NULL};
  qn_kernel_order *o = state->input;
  switch (key) {
  case 'o': o->out = qn_verb_output(state, arg); return 0;
  case KEY_LIMIT: o->limit_s = qn_verb_seconds(state, "time-limit", arg, 3600); return 0;
  case KEY_SECONDS: o->seconds = qn_verb_seconds(state, "seconds", arg, 3600); return 0;
  case 'v': o->verbose = true; return 0;
  case KEY_ISOLATED: o->isolated = true; return 0;
  case KEY_QUICK: o->quick = true; return 0;
  case KEY_SELFTEST: o->selftest = true; return 0;
  case KEY_JSON: o->json = true; return 0;
  case 'j': o->json_file = qn_verb_output(state, arg); return 0;
  case KEY_TRACE: o->trace = qn_verb_output(state, arg); return 0;
  case KEY_AGAINST: o->against = arg; return 0;
  case KEY_HOT: o->hot = true; return 0;
  case KEY_DRY: o->dry_run = true; return 0;
  case KEY_BUDGET: o->budget_s = qn_verb_seconds(state, "budget", arg, 1e6); return 0;
  case KEY_VARIANTS: o->variants = arg; return 0;
  case KEY_STRATEGY:
    if (qn_strategy_from_name(arg, &o->strategy) != QN_OK) argp_error(state, "%s", qn_last_error());
    return 0;
  case KEY_UNTUNED: o->untuned = true; return 0;
  case 'f': o->form = read_word(state, "form", arg, forms); return 0;
  case KEY_DIALECT: o->dialect = read_word(state, "dialect", arg, dialects); return 0;
  case KEY_FROM: o->from = arg; return 0;
  case KEY_PASSES: o->passes = (int)qn_verb_number(state, "passes", arg, 1, 1000000); return 0;
  case KEY_FIRST:
    o->first_use = true;
    o->first_use_empty = arg != NULL;
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
  qn_kernel_order *o = state->input;
  switch (key) {
  case 'b': o->backend = qn_verb_backend(state, arg); return 0;
  case 's': o->size = (int)qn_verb_number(state, "size", arg, 1, QN_FOLDER_MOST); return 0;
  case 'w': o->workload = arg; return 0;
  case 'n': o->threads = (int)qn_verb_number(state, "threads", arg, 1, 1024); return 0;
  case KEY_SET: read_setting(state, o, arg); return 0;
  case KEY_TYPE: keep_pair(state, "dtype", arg, o->type, &o->n_types); return 0;
  case KEY_INPUT: keep_pair(state, "input", arg, o->input, &o->n_inputs); return 0;
  case KEY_GROUP: read_group(state, o, arg); return 0;
  case KEY_SEED: o->seed = (uint64_t)qn_verb_number(state, "seed", arg, 0, 1L << 48); return 0;
  case KEY_IGNORE:
    if (qn_finding_kinds(arg, &o->ignore) != QN_OK) argp_error(state, "--ignore: %s", qn_last_error());
    return 0;
  case KEY_SEEDS: o->seeds = (int)qn_verb_number(state, "seeds", arg, 1, 100000); return 0;
  case ARGP_KEY_ARG:
    if (o->folder) argp_error(state, "one at a time: %s or %s", o->folder, arg);
    o->folder = arg;
    return 0;
  case ARGP_KEY_END:
    if (o->size && o->workload) argp_error(state, "either --size or --workload, not both");
    return 0;
  default: return parse_more(key, arg, state);
  }
}

/* ---- options of several actions ---- */
static bool has_option(const struct argp_option *options, const char *name)
{
  for (; options->name; options++)
    if (!strcmp(options->name, name)) return true;
  return false;
}

/* The options of the actions in `bits` that are not in `without`, in a table that ends. */
static void take_options(int bits, const struct argp_option *without, struct argp_option *options)
{
  size_t n = 0;
  for (size_t k = 0; k < N_CHOICES; k++)
    if (choices[k].actions & bits && !(without && has_option(without, choices[k].option.name)))
      options[n] = choices[k].option, options[n++].group *= !without; /* a verb has one group of them */
  options[n] = (struct argp_option){0};
}

/* A verb of ops shows in its help the options that only a folder has. */
static error_t refuse_without_folder(int key, char *arg, struct argp_state *state)
{
  (void)arg;
  for (size_t k = 0; key > 0 && k < N_CHOICES; k++)
    if (choices[k].option.key == key)
      argp_error(state, "--%s is for a kernel's folder, and no argument is one", choices[k].option.name);
  return ARGP_ERR_UNKNOWN;
}

static struct argp_option folder_options[QN_FOLDER_VERBS][N_CHOICES + 1];
#define FOLDER_ARGP(verb)                                                                                              \
  {                                                                                                                    \
    .options = folder_options[verb], .parser = refuse_without_folder                                                   \
  }
static const struct argp folder_argp[QN_FOLDER_VERBS] = {FOLDER_ARGP(QN_FOLDER_CHECK), FOLDER_ARGP(QN_FOLDER_BENCH),
                                                         FOLDER_ARGP(QN_FOLDER_TUNE), FOLDER_ARGP(QN_FOLDER_EMIT)};
#define FOLDER_CHILD(verb)                                                                                             \
  {                                                                                                                    \
    {&folder_argp[verb], 0, "Of a kernel's folder, besides:", 8}, { 0 }                                                \
  }
const struct argp_child qn_folder_children[QN_FOLDER_VERBS][2] = {
    FOLDER_CHILD(QN_FOLDER_CHECK), FOLDER_CHILD(QN_FOLDER_BENCH), FOLDER_CHILD(QN_FOLDER_TUNE),
    FOLDER_CHILD(QN_FOLDER_EMIT)};

/* And of an op, where the verb is asked about a folder. */
static const struct argp_option *op_options;

static error_t refuse_with_folder(int key, char *arg, struct argp_state *state)
{
  (void)arg;
  for (const struct argp_option *o = op_options; key > 0 && o->name; o++)
    if (o->key == key) argp_error(state, "--%s is for ops, not for a kernel's folder", o->name);
  return ARGP_ERR_UNKNOWN;
}

__attribute__((constructor)) static void fill_options(void)
{
  for (size_t k = 0, n = 0; k < N_ACTIONS && n < QN_FOLDER_VERBS; k++)
    if (actions[k].verb) take_options(actions[k].bit, actions[k].verb->argp->options, folder_options[n++]);
}

/* ---- `quern kernel` alone ---- */
static char *fill_help(int key, const char *text, void *input)
{
  (void)input;
  if (key != ARGP_KEY_HELP_POST_DOC) return (char *)text;
  qn_text all = {0};
  qn_text_add(&all, "Actions:\n");
  for (size_t k = 0; k < N_ACTIONS; k++)
    if (!actions[k].verb) qn_text_add(&all, "  %-8s %s\n", actions[k].name, actions[k].brief);
  qn_text_add(&all, "\n%s",
              text ? text
                   : "Each action has its own help: quern kernel run --help. quern check, bench, tune, emit and list "
                     "take a kernel's folder in an op's place.");
  char *copy = all.failed ? NULL : strdup(all.at);
  qn_text_free(&all);
  return copy;
}

static error_t parse_none(int key, char *arg, struct argp_state *state)
{
  const char *names[N_ACTIONS + 1] = {NULL};
  for (size_t k = 0, n = 0; k < N_ACTIONS; k++)
    if (!actions[k].verb) names[n++] = actions[k].name;
  if (key == ARGP_KEY_ARG && qn_is_kernel_folder(arg))
    argp_error(state, "which action? quern kernel run %s, quern check %s, quern bench %s ...", arg, arg, arg);
  const qn_op_info *op;
  const char *const *ships;
  const size_t n_ships = qn_shipped_names(&ships);
  for (size_t k = 0; key == ARGP_KEY_ARG && k < n_ships; k++)
    if (!strcmp(arg, ships[k])) argp_error(state, "%s", (qn_verb_op(arg, &op), qn_last_error()));
  if (key == ARGP_KEY_ARG && qn_verb_op(arg, &op) == QN_OK)
    argp_error(state, "%s is an op: quern check %s, quern bench %s ...", arg, arg, arg);
  if (key == ARGP_KEY_ARG)
    argp_error(state, "there is no action %s%s (actions: new, run, watch, sanitize, replay)", arg,
               qn_suggest(arg, names));
  if (key == ARGP_KEY_NO_ARGS) argp_error(state, "which action? new, run, watch, sanitize or replay");
  if (key > 0 && key < KEY_FIRST + 1) argp_error(state, "the action comes first: quern kernel run --option ...");
  return key == ARGP_KEY_ARG || key == ARGP_KEY_END || key == ARGP_KEY_NO_ARGS ? 0 : ARGP_ERR_UNKNOWN;
}

static struct argp_option all_options[N_CHOICES + 1];
static const struct argp all_argp = {
    .options = all_options,
    .parser = parse_none,
    .args_doc = "new|run|watch|sanitize|replay DIR",
    .doc = "Make, run and watch a kernel from a body on CPU and GPU. Its folder holds kernel.json and one thread's "
           "work in Metal or CUDA C.",
    .help_filter = fill_help,
};

/* Completion and the search for the nearest option know them all; the overview's help names none, because what an
 * option means depends on the action. */
__attribute__((constructor)) static void fill_all_options(void)
{
  take_options(~(CHECK | BENCH | TUNE | EMIT | LIST), NULL, all_options);
  for (struct argp_option *o = all_options; o->name; o++) o->flags |= OPTION_HIDDEN;
}

/* ---- one action ---- */
static int act(const action *a, int argc, char **argv)
{
  static struct argp_option options[N_CHOICES + 1], others[64];
  static char name[32], title[40];
  static const struct argp others_argp = {.options = others, .parser = refuse_with_folder};
  static const struct argp_child children[] = {{&others_argp, 0, NULL, 0}, {0}};
  struct argp argp = {.options = options, .parser = parse, .args_doc = "DIR", .doc = a->doc, .children = children};
  snprintf(name, sizeof name, "%s%s", a->verb ? "" : "kernel ", a->name);
  snprintf(title, sizeof title, "quern %s", name);
  take_options(a->bit, NULL, options);
  op_options = a->verb ? a->verb->argp->options : others;
  size_t n = 0;
  for (const struct argp_option *o = op_options; o->name && n < 63; o++)
    if (!has_option(options, o->name)) others[n++] = *o;
  others[n] = (struct argp_option){0};
  if (!n) argp.children = NULL; /* glibc's --help leaks for a child without options */
  const qn_verb verb = {name, a->brief, NULL, &argp};
  qn_kernel_order o = {.verb = &verb, .seed = 1};
  argv[0] = title;
  qn_verb_parse(&verb, argc, argv, &o);
  if (o.folder || a->bit == LIST) return a->run(&o);
  return qn_complain(&verb, QN_EXIT_USAGE, "which folder? `quern %s DIR`%s", name,
                     a->bit == NEW ? "" : "; `quern kernel new DIR` makes one");
}

bool qn_kernel_takes(const qn_verb *verb, int argc, char **argv, int *status)
{
  const action *a = actions;
  while (a < actions + N_ACTIONS && a->verb != verb) a++;
  if (a == actions + N_ACTIONS) return false;
  for (int k = 1; k < argc; k++)
    if (!strcmp(argv[k], "--help") || !strcmp(argv[k], "-?") || !strcmp(argv[k], "-h")) return false;
  for (int k = 0; (k = qn_verb_next_word(verb->argp, k + 1, argc, argv)) < argc;) {
    if (!qn_is_kernel_folder(argv[k])) continue;
    *status = act(a, argc, argv);
    return true;
  }
  return false;
}

static int run(int argc, char **argv)
{
  if (argc > 1 && !strcmp(argv[1], "race")) { /* its former name, accepted for one more release */
    fputs("quern kernel: \"race\" is now called \"sanitize\"\n", stderr);
    static char name[] = "sanitize";
    argv[1] = name;
  }
  for (const action *a = actions; argc > 1 && a < actions + N_ACTIONS; a++) {
    if (strcmp(argv[1], a->name) != 0) continue;
    if (a->verb) /* likewise */
      fprintf(stderr, "quern kernel: \"quern kernel %s\" is now \"quern %s\"\n", a->name, a->name);
    return act(a, argc - 1, argv + 1);
  }
  qn_verb_parse(&qn_verb_kernel, argc, argv, NULL);
  return QN_EXIT_USAGE;
}

const qn_verb qn_verb_kernel = {"kernel", "make, run and watch a kernel from a body", run, &all_argp};
