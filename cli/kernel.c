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

typedef qn_kernel_order order;

/* ---- values ---- */
static QN_READER(read_setting)
{
  qn_kernel_order *o = to;
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

static QN_READER(read_group)
{
  uint32_t *group = to;
  const char *at = text;
  for (int d = 0; d < 3; d++) group[d] = 1;
  for (int d = 0; d < 3; d++) {
    char *end;
    long value = strtol(at, &end, 10);
    if (end == at || (*end && *end != ',') || value < 1 || value > QN_KERNEL_MAX_GROUP || (d == 2 && *end))
      argp_error(state, "--threadgroup is \"%s\", it must be one to three numbers from 1 to %d, like 32,8", text,
                 QN_KERNEL_MAX_GROUP);
    group[d] = (uint32_t)value;
    if (!*end) return;
    at = end + 1;
  }
}

static QN_READER(read_pair)
{
  const char *equals = strchr(text, '=');
  if (!equals || equals == text || !equals[1])
    argp_error(state, "--%s is \"%s\", NAME=... is wanted", option->name, text);
  qn_read_words(state, option, to, text);
}

static QN_READER(read_form)
{
  static const char *const forms[] = {"cuda", "hip", "metal", "mlx", NULL};
  *(const char **)to = forms[qn_verb_option_word(state, "form", text, forms, "")];
}

static QN_READER(read_dialect)
{
  static const char *const dialects[] = {"metal", "cuda", NULL};
  *(const char **)to = dialects[qn_verb_option_word(state, "dialect", text, dialects, "")];
}

static QN_READER(read_ignored)
{
  if (qn_finding_kinds(text, to) != QN_OK) argp_error(state, "--ignore: %s", qn_last_error());
}

static QN_READER(read_first_use)
{
  qn_kernel_order *o = to;
  o->first_use = true;
  o->first_use_empty = text != NULL;
}

static void check_words(const struct argp_state *state, void *input)
{
  const qn_kernel_order *o = input;
  if (o->size && o->workload) argp_error(state, "either --size or --workload, not both");
}

typedef struct choice {
  int actions;
  qn_verb_option option;
} choice;

static const choice choices[] = {
    {LAUNCHES, QN_OPTION_BACKEND},
    {RUN | SANITIZE | EMIT | REPLAY,
     {"size", 's', "N", "The N-th of the folder's sizes, from 1", 0, QN_TO_INT(size, 1, QN_FOLDER_MOST)}},
    {ONE_SIZE, {"workload", 'w', "WORKLOAD", "One of the folder's workloads", 0, QN_TO_WORD(workload)}},
    {LAUNCHES, {"set", 0, "NAME=VALUE", "An extent or a template; may be repeated", 0, .read = read_setting}},
    {ONE_SIZE,
     {"dtype", 0, "INPUT=TYPE", "The storage type of an input; may be repeated", 0,
      QN_READ_WITHIN(read_pair, types, 0, QN_KERNEL_SETTINGS)}},
    {ONE_SIZE,
     {"threadgroup", 0, "X[,Y[,Z]]", "Threads of a group instead of the folder's", 0, QN_READ(read_group, group)}},
    {LAUNCHES, {"untuned", 0, NULL, "Ignore the folder's tune table", 0, QN_TO_FLAG(untuned)}},
    {LAUNCHES & ~EMIT, QN_OPTION_THREADS(0, threads)},
    {LAUNCHES & ~EMIT, {"seed", 0, "N", "Seed of the inputs (default 1)", 0, QN_TO_U64(seed, 0, 1L << 48)}},
    {RUN | SANITIZE | REPLAY,
     {"input", 0, "NAME=FILE.npy", "An input from a .npy or .safetensors file; may be repeated", 1,
      QN_READ_WITHIN(read_pair, inputs, 0, QN_KERNEL_SETTINGS)}},
    {RUN | REPLAY, {"out", 'o', "FILE.safetensors", "Write the outputs", 1, QN_TO_OUTPUT(out)}},
    {RUN, {"verbose", 'v', NULL, "Print the generated source first", 1, QN_TO_FLAG(verbose)}},
    {RUN | SANITIZE | REPLAY,
     {"isolated", 0, NULL, "Run in a child process, and report a crash", 1, QN_TO_FLAG(isolated)}},
    {RUN | SANITIZE | REPLAY,
     {"time-limit", 0, "S", "Stop a launch that takes longer", 1, QN_TO_SECONDS(limit_s, 3600)}},
    {CHECK | SANITIZE,
     {"seeds", 0, "N", "Random orders of simdgroups in checking mode", 1, QN_TO_INT(seeds, 1, 100000)}},
    {CHECK | SANITIZE,
     {"ignore", 0, "KIND[,KIND]", "Kinds of findings to ignore, such as \"same value\"", 1,
      QN_READ(read_ignored, ignore)}},
    {CHECK | WATCH, {"quick", 0, NULL, "Fewer types and seeds", 1, QN_TO_FLAG(quick)}},
    {CHECK, {"selftest", 0, NULL, "Plant bugs in the body; each must be caught", 1, QN_TO_FLAG(selftest)}},
    {BENCH, {"against", 0, "DIR", "Time another kernel's folder in turns with it", 1, QN_TO_WORD(against)}},
    {BENCH, {"hot", 0, NULL, "Leave the device's cache as it is between calls", 1, QN_TO_FLAG(hot)}},
    {BENCH | TUNE, {"seconds", 0, "S", "Most time for a measurement's rounds", 1, QN_TO_SECONDS(seconds, 3600)}},
    {TUNE, {"dry-run", 0, NULL, "Print the candidates and run nothing", 1, QN_TO_FLAG(tune.dry_run)}},
    {TUNE, {"budget", 0, "SECONDS", "Stop after this time", 1, QN_TO_SECONDS(tune.budget_s, 1e6)}},
    {TUNE, {"strategy", 0, "NAME", "exhaustive (the default), random or halving", 1, QN_TO_STRATEGY(tune.strategy)}},
    {TUNE, {"variants", 0, "NAME,...", "Only these, such as 128x1x1+TILE=4", 1, QN_TO_WORD(tune.only)}},
    {EMIT, {"form", 'f', "cuda|hip|metal|mlx", "The language (default: cuda)", 1, QN_READ(read_form, form)}},
    {EMIT, {"out", 'o', "FILE", "Write this file instead of standard output", 1, QN_TO_OUTPUT(out)}},
    {NEW, {"dialect", 0, "metal|cuda", "The body's language (default: metal)", 1, QN_READ(read_dialect, dialect)}},
    {NEW, {"from", 0, "NAME", "Copy a kernel that ships (quern list) or a folder", 1, QN_TO_WORD(from)}},
    {WATCH, {"passes", 0, "N", "Stop after N checks", 1, QN_TO_INT(passes, 1, 1000000)}},
    {LIST | RUN | CHECK | SANITIZE | REPLAY, {"json", 0, NULL, "Print JSON", 2, QN_TO_FLAG(json)}},
    {TUNE,
     {"json", 'j', "FILE", "Write all results in the T4 format, for other tuning tools", 2, QN_TO_OUTPUT(json_file)}},
    {BENCH, {"json", 'j', "FILE", "Append each measurement with its raw samples to FILE", 2, QN_TO_OUTPUT(json_file)}},
    {BENCH, {"trace", 0, "FILE", "Write a Chrome trace", 2, QN_TO_OUTPUT(trace)}},
    {BENCH,
     {"first-use-here", 0, "empty", "One first use, measured", 2, .read = read_first_use,
      .flags = OPTION_HIDDEN | OPTION_ARG_OPTIONAL}},
};
enum { N_CHOICES = sizeof choices / sizeof *choices, MOST_OPTIONS = N_CHOICES + 64 };

/* ---- options of several actions ---- */
static bool has_option(const qn_verb_option *options, const char *name)
{
  for (; options->read; options++)
    if (!strcmp(options->name, name)) return true;
  return false;
}

/* The options of the actions in `bits` that are not in `without`, in a table that ends; `instead` reads them all. */
static void take_options(int bits, const qn_verb_option *without, qn_verb_option_read *instead, int flags,
                         qn_verb_option *options)
{
  size_t n = 0;
  for (size_t k = 0; k < N_CHOICES; k++) {
    if (!(choices[k].actions & bits) || (without && has_option(without, choices[k].option.name))) continue;
    options[n] = choices[k].option;
    if (instead) options[n].read = instead, options[n].group = 0, options[n].flags |= flags;
    n++;
  }
  options[n] = (qn_verb_option){0};
}

/* A verb of ops shows in its help the options that only a folder has. */
static QN_READER(refuse_without_folder)
{
  argp_error(state, "--%s is for a kernel's folder, and no argument is one", option->name);
}

/* And of an op, where the verb is asked about a folder. */
static QN_READER(refuse_with_folder) { argp_error(state, "--%s is for ops, not for a kernel's folder", option->name); }

static QN_READER(refuse_without_action) { argp_error(state, "the action comes first: quern kernel run --option ..."); }

qn_verb_option qn_folder_options[QN_FOLDER_VERBS][QN_FOLDER_OPTIONS];
static qn_verb_option all_options[N_CHOICES + 1];
_Static_assert((int)N_CHOICES < (int)QN_FOLDER_OPTIONS, "room for the options of a folder");

/* Completion and the search for the nearest option know those of all actions; the overview's help names none, because
 * what an option means depends on the action. */
__attribute__((constructor)) static void fill_options(void)
{
  for (size_t k = 0, n = 0; k < N_ACTIONS && n < QN_FOLDER_VERBS; k++)
    if (actions[k].verb)
      take_options(actions[k].bit, actions[k].verb->options, refuse_without_folder, 0, qn_folder_options[n++]);
  take_options(~(CHECK | BENCH | TUNE | EMIT | LIST), NULL, refuse_without_action, OPTION_HIDDEN, all_options);
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

static QN_READER(refuse_word)
{
  const char *names[N_ACTIONS + 1] = {NULL};
  for (size_t k = 0, n = 0; k < N_ACTIONS; k++)
    if (!actions[k].verb) names[n++] = actions[k].name;
  if (qn_is_kernel_folder(text))
    argp_error(state, "which action? quern kernel run %s, quern check %s, quern bench %s ...", text, text, text);
  const qn_op_info *op;
  const char *const *ships;
  const size_t n_ships = qn_shipped_names(&ships);
  for (size_t k = 0; k < n_ships; k++)
    if (!strcmp(text, ships[k])) argp_error(state, "%s", (qn_verb_op(text, &op), qn_last_error()));
  if (qn_verb_op(text, &op) == QN_OK)
    argp_error(state, "%s is an op: quern check %s, quern bench %s ...", text, text, text);
  argp_error(state, "there is no action %s%s (actions: new, run, watch, sanitize, replay)", text,
             qn_suggest(text, names));
}

static void want_action(const struct argp_state *state, void *input)
{
  (void)input;
  argp_error(state, "which action? new, run, watch, sanitize or replay");
}

/* ---- one action ---- */
static int act(const action *a, int argc, char **argv)
{
  static qn_verb_option options[MOST_OPTIONS + 1];
  static char name[32], title[40];
  static qn_verb verb;
  size_t n = 0;
  snprintf(name, sizeof name, "%s%s", a->verb ? "" : "kernel ", a->name);
  snprintf(title, sizeof title, "quern %s", name);
  take_options(a->bit, NULL, NULL, 0, options);
  while (options[n].read) n++;
  for (const qn_verb_option *o = a->verb ? a->verb->options : options + n; o->read && n < MOST_OPTIONS; o++) {
    if (has_option(options, o->name)) continue;
    options[n] = *o;
    options[n++].read = refuse_with_folder;
  }
  verb = (qn_verb){.name = name,
                   .brief = a->brief,
                   .options = options,
                   .argument = {QN_TO_ONE(folder)},
                   .end = check_words,
                   .args_doc = "DIR",
                   .doc = a->doc};
  qn_kernel_order o = {.verb = &verb, .seed = 1, .tune.out = stdout};
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
  for (int k = 0; (k = qn_verb_next_word(verb, k + 1, argc, argv)) < argc;) {
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

const qn_verb qn_verb_kernel = {
    .name = "kernel",
    .brief = "make, run and watch a kernel from a body",
    .run = run,
    .options = all_options,
    .argument = {.read = refuse_word},
    .end = want_action,
    .args_doc = "new|run|watch|sanitize|replay DIR",
    .help_filter = fill_help,
    .doc = "Make, run and watch a kernel from a body on CPU and GPU. Its folder holds kernel.json and one thread's "
           "work in Metal or CUDA C.",
};
