/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - `quern compare A.jsonl B.jsonl`: what two files of measurements say about each other; with --before and
 * --after it fills them first. */
#include "cli/verb.h"
#include "workbench/compare.h"
#include "workbench/turns.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct order {
  qn_turn before, after;
  int runs; /* 0: not given */
} order;

static void look(const struct argp_state *state, void *input)
{
  const order *o = input;
  if (!o->after.file) argp_error(state, "two files are wanted, as `quern bench --json FILE` writes them");
  if (!o->before.command != !o->after.command)
    argp_error(state, "--before and --after are given together: two commands are run in turns");
  if (o->runs && !o->before.command) argp_error(state, "--runs is of the commands in --before and --after");
  if (o->before.command && !strcmp(o->before.file, o->after.file))
    argp_error(state, "each command has a file of its own, both are %s", o->after.file);
}

static QN_READER(read_file)
{
  order *o = to;
  if (o->after.file) argp_error(state, "two files are compared, %s is one more", text);
  *(o->before.file ? &o->after.file : &o->before.file) = text;
}

static const qn_verb_option options[] = {
    {"before", 'b', "COMMAND", "Run this shell command with --json BEFORE.jsonl, in turns with --after", 0,
     QN_TO_WORD(before.command)},
    {"after", 'a', "COMMAND", "Run this one with --json AFTER.jsonl", 0, QN_TO_WORD(after.command)},
    {"runs", 'n', "N", "Runs of each; default: 8", 0, QN_TO_INT(runs, 1, 1000)},
    {0},
};

static qn_status take_runs(const order *o)
{
  qn_progress progress;
  const size_t runs = o->runs ? (size_t)o->runs : QN_WORD_SAMPLES + 1;
  qn_progress_begin(&progress, "compare", 2 * runs);
  qn_status status = qn_turns_run(&o->before, &o->after, runs, &progress);
  qn_progress_end(&progress);
  return status;
}

static qn_status compare(const order *o)
{
  qn_records before, after;
  qn_comparisons comparisons;
  qn_try(qn_records_read(o->before.file, &before));
  qn_status status = qn_records_read(o->after.file, &after);
  if (status == QN_OK) {
    status = qn_compare(&before, &after, &comparisons);
    if (status == QN_OK) {
      qn_comparisons_print(stdout, &comparisons);
      qn_comparisons_free(&comparisons);
    }
    qn_records_free(&after);
  }
  qn_records_free(&before);
  return status;
}

static int run(int argc, char **argv)
{
  order o = {.runs = 0};
  qn_verb_parse(&qn_verb_compare, argc, argv, &o);
  qn_status status = o.before.command ? take_runs(&o) : QN_OK;
  if (status == QN_OK) status = compare(&o);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_compare, status);
}

const qn_verb qn_verb_compare = {
    .name = "compare",
    .brief = "compare two files of measurements, or two commands",
    .run = run,
    .options = options,
    .argument = {.read = read_file},
    .end = look,
    .args_doc = "BEFORE.jsonl AFTER.jsonl",
    .doc =
        "Compare two files of measurements: for each op, workload, types, backend and timer that both have, the two "
        "times, their ratio with its 99.9 % interval, and a word.\v"
        "faster, slower  the interval allows only this\n"
        "same            the whole interval is within 2 % of 1\n"
        "unclear         the interval allows more than one word, or there is none; the line names the reason\n\n"
        "Each line is one run. The interval is made of whole runs, because two runs of the same kernel differ by more "
        "than the rounds within one. A word requires 7 runs in each file, in turns, or on a machine whose ceilings did "
        "not change between the files. --before and --after make such runs:\n\n"
        "  quern compare --before 'old/quern bench OP' --after 'quern bench OP' old.jsonl new.jsonl\n\n"
        "Runs are the lines with the commit, compiler, variant, threads and machine of the file's last line of their "
        "kind. For different machines the ratio is printed without a word.",
};
