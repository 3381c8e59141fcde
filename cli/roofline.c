/* SPDX-License-Identifier: Apache-2.0 */
/* roofline.c - `quern roofline`: measures the machine's own ceilings, prints, records and draws them. */
#include "cli/verb.h"
#include "core/core.h"
#include "workbench/roofline.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct order {
  const char *backend, *json, *svg, *results;
  int threads, largest; /* MiB */
} order;

static void check_words(const struct argp_state *state, void *input)
{
  const order *o = input;
  if (o->results && !o->svg) argp_error(state, "--results are points in a picture: --svg FILE is wanted too");
}

static const qn_verb_option options[] = {
    QN_OPTION_BACKEND,
    QN_OPTION_THREADS(0, threads),
    {"largest", 0, "MIB", "The largest working set, in MiB", 0, QN_TO_INT(largest, 1, 1 << 20)},
    {"svg", 0, "FILE", "Draw the ceilings", 1, QN_TO_OUTPUT(svg)},
    {"results", 0, "FILE", "Measurements of `quern bench --json FILE`, as points in the picture", 1,
     QN_TO_WORD(results)},
    {"json", 'j', "FILE", "Append the ceilings as a line of JSON", 1, QN_TO_OUTPUT(json)},
    {0},
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
    status = qn_roofline_measure(&roofline, device, pool, (size_t)o.largest << 20, &progress);
    qn_progress_end(&progress);
  }
  if (status == QN_OK) status = give_out(&o, &roofline, o.results ? &records : NULL);
  qn_pool_destroy(&pool);
  qn_records_free(&records);
  return status == QN_OK ? QN_EXIT_OK : qn_complain_status(&qn_verb_roofline, status);
}

const qn_verb qn_verb_roofline = {
    .name = "roofline",
    .brief = "measure and draw this machine's ceilings",
    .run = run,
    .options = options,
    .end = check_words,
    .doc = "Measure this machine's ceilings: bandwidth of plain streams over working sets from cache to memory, and "
           "arithmetic rates. --svg draws them, with the kernels of --results as points.\v"
           "On the CPU each stream runs with plain and with non-temporal stores, and the better one counts. Matrix "
           "rates are those of mma.sync; newer GPUs have faster instructions.",
};
