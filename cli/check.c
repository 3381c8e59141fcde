/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - `quern check`: the arguments; all else is workbench/check.c. */
#include "workbench/check.h"
#include "cli/kernel.h"
#include "core/core.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_LEG = 256, KEY_SEED, KEY_ONLY, KEY_QUICK, KEY_FULL, KEY_SELFTEST, KEY_JSON };

static const char *const leg_names[] = {"all", "variants", "oracle", "golden", "contract", "selftest", NULL};

static const struct argp_option options[] = {
    {"backend", 'b', "cpu|cuda[:N]|emulator", 0, "Only this device (default: QUERN_DEVICE, or all)", 0},
    {"leg", KEY_LEG, "LEG", 0, "Only this leg: 1 or variants, 2 or oracle, 3 or golden, 4 or contract, 5 or selftest",
     0},
    {"only", KEY_ONLY, "NAME", 0, "Only items whose names begin so, as in a `rerun:` line", 0},
    {"seed", KEY_SEED, "N", 0, "Seed of the data and of random settings (default 1)", 0},
    {"quick", KEY_QUICK, NULL, 0, "Fewer cases: seconds", 0},
    {"full", KEY_FULL, NULL, 0, "All cases, all specialisations, tensors past 2^31 elements: minutes to hours", 0},
    {"selftest", KEY_SELFTEST, NULL, 0, "Plant bugs; each must be caught. The same as --leg 5", 0},
    {"jobs", 'j', "N", 0, "Processes (default: one per processor, at most 4); 1: no child process", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object per line instead of TAP", 0},
    {0},
};

static int parse_leg(const char *arg, struct argp_state *state)
{
  for (int k = 1; leg_names[k]; k++)
    if (!strcmp(arg, leg_names[k]) || (arg[0] == '0' + k && !arg[1])) return k;
  argp_error(state, "there is no leg %s%s (legs: variants, oracle, golden, contract, selftest; or 1 to 5)", arg,
             qn_suggest(arg, leg_names + 1));
  return 0;
}

static uint64_t parse_number(const char *what, const char *arg, uint64_t most, struct argp_state *state)
{
  char *end = NULL;
  errno = 0;
  unsigned long long value = strtoull(arg, &end, 10);
  if (errno || end == arg || *end || *arg == '-' || value > most)
    argp_error(state, "%s is %s, it must be a whole number up to %llu", what, arg, (unsigned long long)most);
  return value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
  qn_check_options *order = state->input;
  const qn_op_info *op;
  switch (key) {
  case 'b': order->backend = qn_verb_backend(state, arg); return 0;
  case 'j': order->jobs = (int)parse_number("--jobs", arg, 64, state); return 0;
  case KEY_LEG: order->leg = parse_leg(arg, state); return 0;
  case KEY_SEED: order->seed = parse_number("--seed", arg, UINT64_MAX, state); return 0;
  case KEY_ONLY: order->only = arg; return 0;
  case KEY_QUICK:
  case KEY_FULL:
    if (order->level != QN_NORMAL) argp_error(state, "--quick or --full, one of them and once");
    order->level = key == KEY_QUICK ? QN_QUICK : QN_FULL;
    return 0;
  case KEY_SELFTEST: order->leg = QN_LEG_SELFTEST; return 0;
  case KEY_JSON: order->json = true; return 0;
  case ARGP_KEY_ARG:
    if (order->op) argp_error(state, "one at a time: %s or %s", order->op, arg);
    if (qn_verb_op(arg, &op) != QN_OK) argp_error(state, "%s", qn_last_error());
    order->op = arg;
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .children = qn_folder_children[QN_FOLDER_CHECK],
    .args_doc = "[OP|DIR]",
    .doc = "Check ops, or the kernel of the folder DIR, on every backend and variant that can run here.\v"
           "Five legs for ops; without --leg the first four run:\n"
           "  1 variants  every variant agrees with the reference, bit for bit or within\n"
           "              the op's tolerance\n"
           "  2 oracle    the reference agrees with the same formula in double\n"
           "  3 golden    the reference agrees with an independent implementation\n"
           "  4 contract  bad input is refused with a sentence and changes nothing\n"
           "  5 selftest  planted bugs are caught; runs only with --selftest or --leg 5\n"
           "A kernel's folder: every size with every type on every device is compared with the reference in double, "
           "with guard bytes, several numbers of threads, strided inputs, and in checking mode.\n"
           "A failure names the first element that differs, its bits and its inputs, and ends in a line `rerun: ...` "
           "that runs that case. Items that cannot run here are listed with the reason.\n"
           "Exit status 0: nothing failed; 1: something failed; 2: a wrong argument; 3: the device is "
           "missing.",
};

static int run(int argc, char **argv)
{
  qn_check_options order = {.seed = 1, .level = QN_NORMAL};
  size_t failures = 0;
  qn_verb_parse(&qn_verb_check, argc, argv, &order);
  if (order.only && !order.leg && !strncmp(order.only, "leg", 3)) order.leg = order.only[3] - '0';
  qn_device device;
  const char *asked = order.backend;
  qn_status status = asked ? QN_OK : qn_option_get("device", &asked);
  if (status == QN_OK && *asked) status = qn_verb_device(asked, &device); /* what is asked for by name must be there */
  if (status == QN_OK) status = qn_check(&order, stdout, &failures);
  if (status != QN_OK) return qn_complain_status(&qn_verb_check, status);
  return failures ? QN_EXIT_FAILED : QN_EXIT_OK;
}

const qn_verb qn_verb_check = {
    .name = "check", .brief = "check ops, or a kernel's folder, on this machine", .run = run, .argp = &argp};
