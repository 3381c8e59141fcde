/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - `quern compare A.jsonl B.jsonl`: what two files of measurements say about each other. */
#include "cli/verb.h"
#include "workbench/compare.h"
#include <stdio.h>

typedef struct order {
  const char *before, *after;
} order;

static error_t parse(int key, char *arg, struct argp_state *state)
{
  order *o = state->input;
  switch (key) {
  case ARGP_KEY_ARG:
    if (o->after) argp_error(state, "two files are compared, %s is one more", arg);
    *(o->before ? &o->after : &o->before) = arg;
    return 0;
  case ARGP_KEY_END:
    if (!o->after) argp_error(state, "two files are wanted, as `quern bench --json FILE` writes them");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {
    .parser = parse,
    .args_doc = "BEFORE.jsonl AFTER.jsonl",
    .doc =
        "Compare two files of measurements: for each op, workload, types, backend and timer that both have, the ratio "
        "of times with its 95 % interval and a word.\v"
        "faster, slower  the interval allows only this\n"
        "same            the whole interval is within 2 % of 1\n"
        "unclear         too few samples, or the interval allows more than one word\n\n"
        "Where the machines differ the ratio is shown and no word is said. Of several lines of the same kind in a file "
        "the last one counts.",
};

static int run(int argc, char **argv)
{
  order o = {0};
  qn_records before, after;
  qn_comparisons comparisons;
  qn_verb_parse(&qn_verb_compare, argc, argv, &o);
  qn_status status = qn_records_read(o.before, &before);
  if (status != QN_OK) return qn_complain_status(&qn_verb_compare, status);
  status = qn_records_read(o.after, &after);
  if (status == QN_OK) {
    status = qn_compare(&before, &after, &comparisons);
    if (status == QN_OK) {
      qn_comparisons_print(stdout, &comparisons);
      qn_comparisons_free(&comparisons);
    }
    qn_records_free(&after);
  }
  qn_records_free(&before);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_compare, status);
}

const qn_verb qn_verb_compare = {"compare", "compare two files of measurements", run, &argp};
