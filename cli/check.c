/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - `quern check`: the arguments; all else is workbench/check.c. */
#include "workbench/check.h"
#include "cli/kernel.h"
#include "core/core.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef qn_check_options order;

static const char *const leg_names[] = {"variants", "oracle", "golden", "contract", "selftest", NULL};

static QN_READER(read_leg)
{
  static const char more[] = " (legs: variants, oracle, golden, contract, selftest; or 1 to 5)";
  const bool is_number = *text >= '1' && *text <= '5' && !text[1];
  *(int *)to = is_number ? *text - '0' : 1 + qn_verb_option_word(state, "leg", text, leg_names, more);
}

static uint64_t number(struct argp_state *state, const qn_verb_option *option, const char *text, uint64_t most)
{
  char *end = NULL;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || end == text || *end || *text == '-' || value > most)
    argp_error(state, "--%s is %s, it must be a whole number up to %llu", option->name, text, (unsigned long long)most);
  return value;
}

static QN_READER(read_jobs) { *(int *)to = (int)number(state, option, text, 64); }

static QN_READER(read_seed) { *(uint64_t *)to = number(state, option, text, UINT64_MAX); }

static QN_READER(read_level)
{
  qn_level *level = to;
  if (*level != QN_NORMAL) argp_error(state, "--quick or --full, one of them and once");
  *level = !strcmp(option->name, "quick") ? QN_QUICK : QN_FULL;
}

static QN_READER(read_selftest) { *(int *)to = QN_LEG_SELFTEST; }

static QN_READER(read_op)
{
  const qn_op_info *op;
  qn_read_one(state, option, to, text);
  if (qn_verb_op(text, &op) != QN_OK) argp_error(state, "%s", qn_last_error());
}

static const qn_verb_option options[] = {
    {"backend", 'b', "cpu|cuda[:N]|emulator", "Only this device (default: QUERN_DEVICE, or all)", 0,
     QN_TO_BACKEND(backend)},
    {"leg", 0, "LEG", "Only this leg: 1 or variants, 2 or oracle, 3 or golden, 4 or contract, 5 or selftest", 0,
     QN_READ(read_leg, leg)},
    {"only", 0, "NAME", "Only items whose names begin so, as in a `rerun:` line", 0, QN_TO_WORD(only)},
    {"seed", 0, "N", "Seed of the data and of random settings (default 1)", 0, QN_READ(read_seed, seed)},
    {"quick", 0, NULL, "Fewer cases: seconds", 0, QN_READ(read_level, level)},
    {"full", 0, NULL, "All cases, all specialisations, tensors past 2^31 elements: minutes to hours", 0,
     QN_READ(read_level, level)},
    {"selftest", 0, NULL, "Plant bugs; each must be caught. The same as --leg 5", 0, QN_READ(read_selftest, leg)},
    {"jobs", 'j', "N", "Processes (default: one per processor, at most 4); 1: no child process", 0,
     QN_READ(read_jobs, jobs)},
    {"json", 0, NULL, "Print one JSON object per line instead of TAP", 0, QN_TO_FLAG(json)},
    {0},
};

static int run(int argc, char **argv)
{
  order o = {.seed = 1, .level = QN_NORMAL};
  size_t failures = 0;
  qn_verb_parse(&qn_verb_check, argc, argv, &o);
  if (o.only && !o.leg && !strncmp(o.only, "leg", 3)) o.leg = o.only[3] - '0';
  qn_device device;
  const char *asked = o.backend;
  qn_status status = asked ? QN_OK : qn_option_get("device", &asked);
  if (status == QN_OK && *asked) status = qn_verb_device(asked, &device); /* what is asked for by name must be there */
  if (status == QN_OK) status = qn_check(&o, stdout, &failures);
  if (status != QN_OK) return qn_complain_status(&qn_verb_check, status);
  return failures ? QN_EXIT_FAILED : QN_EXIT_OK;
}

const qn_verb qn_verb_check = {
    .name = "check",
    .brief = "check ops, or a kernel's folder, on this machine",
    .run = run,
    .options = options,
    .folder_options = qn_folder_options[QN_FOLDER_CHECK],
    .argument = {QN_READ(read_op, op)},
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
