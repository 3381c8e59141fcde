/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.c - `quern roofline`: measures the machine's own ceilings, prints, records and draws them. */
#include "cli/verb.h"
#include "core/core.h"
#include "workbench/roofline.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct order {
  const char *backend, *json, *svg, *results;
  int threads;
  int64_t largest;
} order;

enum { KEY_SVG = 256, KEY_RESULTS, KEY_LARGEST };

static const struct argp_option options[] = {
    {"backend", 'b', "cpu|cuda[:N]|emulator", 0, "The device; default: QUERN_DEVICE, or the best one", 0},
    {"threads", 'n', "N", 0, "Threads on the CPU; default: all usable ones", 0},
    {"largest", KEY_LARGEST, "MIB", 0, "The largest working set, in MiB", 0},
    {"svg", KEY_SVG, "FILE", 0, "Draw the ceilings", 1},
    {"results", KEY_RESULTS, "FILE", 0, "Measurements of `quern bench --json FILE`, as points in the picture", 1},
    {"json", 'j', "FILE", 0, "Append the ceilings as a line of JSON", 1},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
  order *o = state->input;
  switch (key) {
  case 'b': o->backend = arg; return 0;
  case 'n': o->threads = (int)qn_verb_number(state, "threads", arg, 1, 1024); return 0;
  case KEY_LARGEST: o->largest = qn_verb_number(state, "largest", arg, 1, 1 << 20) << 20; return 0;
  case KEY_SVG: o->svg = qn_verb_output(state, arg); return 0;
  case KEY_RESULTS: o->results = arg; return 0;
  case 'j': o->json = qn_verb_output(state, arg); return 0;
  case ARGP_KEY_END:
    if (o->results && !o->svg) argp_error(state, "--results are points in a picture: --svg FILE is wanted too");
    return 0;
  default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Measure this machine's ceilings: bandwidth of plain streams over working sets from cache to memory, and "
           "arithmetic rates. --svg draws them, with the kernels of --results as points.\v"
           "On the CPU each stream runs with plain and with non-temporal stores, and the better one counts. Matrix "
           "rates are those of mma.sync; newer GPUs have faster instructions.",
};

static qn_status give_out(const order *o, const qn_roofline *r, const qn_records *records)
{
  size_t left_out = 0;
  qn_roofline_print(stdout, r);
  if (o->json) qn_try(qn_roofline_append(o->json, r));
  if (o->svg) qn_try(qn_roofline_draw(o->svg, r, records, &left_out));
  if (left_out) printf("%zu measurements of other devices are not in the picture\n", left_out);
  return QN_OK;
}

static int run(int argc, char **argv)
{
  order o = {0};
  qn_device device;
  qn_records records = {0};
  qn_pool *pool = NULL;
  qn_progress progress;
  qn_roofline roofline;
  qn_verb_parse(&qn_verb_roofline, argc, argv, &o);
  qn_status status = qn_verb_device(o.backend, &device);
  if (status == QN_OK && o.results) status = qn_records_read(o.results, &records);
  if (status == QN_OK) status = qn_verb_pool(o.threads, &pool);
  if (status == QN_OK) {
    qn_progress_begin(&progress, "roofline", 100);
    status = qn_roofline_measure(&roofline, device, pool, (size_t)o.largest, &progress);
    qn_progress_end(&progress);
  }
  if (status == QN_OK) status = give_out(&o, &roofline, o.results ? &records : NULL);
  qn_pool_destroy(&pool);
  qn_records_free(&records);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_roofline, status);
}

const qn_verb qn_verb_roofline = {"roofline", "measure and draw this machine's ceilings", run, &argp};
