/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_check.c - what `quern check` says when something fails: a failure's rerun line runs the same case and finds
 * the same element; a crash is one failed item; outcomes come in order, whatever order they were made in. */
#include "test.h"
#include "workbench/jobs.h"
#include "workbench/mutant.h"
#include <math.h>
#include <signal.h>

static const qn_mutant *find(const char *name)
{
  const qn_mutant *m = qn_mutants;
  while (m->name && strcmp(m->name, name)) m++;
  return m->name ? m : NULL;
}

/* The op with the bug in its reference, and an item of leg 3 on it: golden vectors exist on every machine. */
static qn_op planted;
static qn_item make_item(const qn_op *op, size_t row)
{
  const qn_mutant *mutant = find("minus-zero");
  planted = *op;
  qn_mutant_of = op;
  qn_mutant_original = op->cpu[QN_TIER_REF];
  planted.cpu[QN_TIER_REF] = mutant->fn;
  qn_item item = {.leg = QN_LEG_GOLDEN, .row = row, .name = "leg3/cpu/ref/row0", .run = qn_leg_golden};
  item.target = (qn_target){.op = &planted, .device = {QN_CPU, 0}, .backend = "cpu", .variant = "ref", .runs = true};
  return item;
}

static void test_rerun(void)
{
  qn_item item = make_item(qn_ops[0], 0);
  qn_check_options options = {.seed = 7, .level = QN_QUICK};
  qn_outcome first, again, other;
  char only[128] = "";
  qn_jobs_run_one(&options, &item, &first);
  const char *rerun = first.failure ? strstr(first.failure, "rerun: quern check ") : NULL;
  check(rerun && strstr(rerun, " --seed 7 --quick"), "a failure ends in a rerun line with seed and level");
  const char *begin = rerun ? strstr(rerun, "--only '") : NULL;
  if (begin) snprintf(only, sizeof only, "%.*s", (int)strcspn(begin + 8, "'"), begin + 8);
  check(!strncmp(only, "leg3/cpu/ref/row0/case", 22), "it names the case: %s", only);
  options.only = only;
  qn_jobs_run_one(&options, &item, &again);
  check(again.failure && first.failure && !strcmp(first.failure, again.failure), "that case alone fails alike");
  options.only = "leg3/cpu/ref/row0/case1000000";
  qn_jobs_run_one(&options, &item, &other);
  check(other.failure && strstr(other.failure, "has no case 1000000"),
        "a case that is none fails, and is not passed over");
  free(first.failure);
  free(again.failure);
  free(other.failure);
}

/* ---- jobs ---- */
static void passes(qn_trial *trial) { qn_trial_note(trial, "row %zu", trial->item->row); }
static void fails(qn_trial *trial) { qn_trial_fail(trial, 3, "on purpose, %s", "with\nlines"); }
static void skips(qn_trial *trial) { qn_trial_skip(trial, "because %d", 5); }
static void crashes(qn_trial *trial)
{
  (void)trial;
  signal(SIGABRT, SIG_DFL);
  abort();
}

enum { ITEMS = 40 };
typedef struct seen {
  size_t n, wrong, failed, skipped, crashed;
} seen;

static void tell(void *user, size_t k, const qn_outcome *o)
{
  seen *s = user;
  char note[32];
  snprintf(note, sizeof note, "row %zu", k);
  s->wrong += k != s->n++;
  s->failed += o->failure && strstr(o->failure, "on purpose, with\nlines") && strstr(o->failure, "/case3'");
  s->crashed += o->failure && strstr(o->failure, "signal 6");
  s->skipped += o->skipped && !strcmp(o->skipped, "because 5");
  s->wrong += !o->failure && !o->skipped && strcmp(o->note, note);
}

static void progress(void *user, size_t done, size_t running)
{
  (void)user;
  if (done > ITEMS || running >= ITEMS) abort();
}

static void test_jobs(int jobs)
{
  void (*const runs[])(qn_trial *) = {passes, fails, passes, skips};
  qn_item items[ITEMS];
  qn_check_options options = {.seed = 1, .jobs = jobs};
  seen s = {0};
  for (size_t k = 0; k < ITEMS; k++) {
    items[k] = (qn_item){.row = k, .run = runs[k % 4], .name = "leg1/cpu/none"};
    items[k].target = (qn_target){.op = qn_ops[0], .device = {QN_CPU, 0}, .backend = "cpu", .runs = true};
    if (jobs > 1 && k == 12) items[k].run = crashes;
  }
  bool ran = qn_jobs_run(&options, items, ITEMS, tell, progress, &s) == QN_OK;
  check(ran && s.n == ITEMS && !s.wrong, "%d jobs: all %d outcomes came, in order, with their notes", jobs, ITEMS);
  check(s.failed == ITEMS / 4 && s.skipped == ITEMS / 4, "%d jobs: %zu failures and %zu skips came through whole", jobs,
        s.failed, s.skipped);
  check(s.crashed == (jobs > 1), "%d jobs: a crash is one failed item, and the rest is run", jobs);
}

/* ---- numbers: what the checker compares with must be right itself ---- */
static void test_numbers(void)
{
  static const struct {
    qn_dtype dtype;
    double value;
    unsigned bits;
  } known[] = {
      {QN_BF16, 1, 0x3f80},
      {QN_BF16, 0x1.01p0, 0x3f80},
      {QN_BF16, 0x1.03p0, 0x3f82},
      {QN_BF16, 0x1.ffp127, 0x7f80},
      {QN_BF16, 0x1.fefffp127, 0x7f7f},
      {QN_BF16, 0x1p-133, 0x0001},
      {QN_F16, 65504, 0x7bff},
      {QN_F16, 65519.99, 0x7bff},
      {QN_F16, 65520, 0x7c00},
      {QN_F16, -0.0, 0x8000},
      {QN_F16, 0x1p-24, 0x0001},
      {QN_F16, 0x1p-25, 0x0000},
      {QN_F16, 0x1.8p-24, 0x0002},
      {QN_F16, 0x1.ff8p-15, 0x03ff},
      {QN_F16, 0x1.fffp-15, 0x0400},
      {QN_F16, -INFINITY, 0xfc00},
      {QN_F32, 0.1, 0x3dcccccd},
      {QN_F32, 0x1p-149, 0x00000001},
      {QN_F8E4M3, 1, 0x38},
      {QN_F8E4M3, -448, 0xfe},
      {QN_F8E4M3, INFINITY, 0x7e},
      {QN_F8E4M3, 17, 0x58},
      {QN_F8E4M3, 19, 0x5a},
      {QN_F8E4M3, 0x1p-9, 0x01},
      {QN_F8E4M3, 0x1p-10, 0x00},
      {QN_F8E4M3, 0x1.8p-9, 0x02},
      {QN_F8E4M3, -0x1p-10, 0x80},
  };
  size_t wrong = 0;
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    uint32_t bits = 0;
    qn_number_store(known[k].dtype, &bits, known[k].value);
    if (!check(bits == known[k].bits, "%s of %a is 0x%x", qn_dtype_name(known[k].dtype), known[k].value, known[k].bits))
      printf("# it is 0x%x\n", bits);
  }
  for (uint32_t bits = 0; bits < 65536; bits++)
    for (int dtype = QN_BF16; dtype <= QN_F16; dtype++) {
      uint16_t half = (uint16_t)bits, back;
      double value = qn_number_load((qn_dtype)dtype, &half);
      qn_number_store((qn_dtype)dtype, &back, value);
      wrong += isnan(value) ? !qn_number_same((qn_dtype)dtype, &half, &back) : back != half;
    }
  check(!wrong, "every 16-bit number is itself again after load and store");
  for (int bits = 0; bits < 256; bits++) {
    uint8_t code = (uint8_t)bits, back;
    qn_number_store(QN_F8E4M3, &back, qn_number_load(QN_F8E4M3, &code));
    wrong += !qn_number_same(QN_F8E4M3, &code, &back);
  }
  check(!wrong, "so is every 8-bit one");
}

int main(void)
{
  test_numbers();
  test_rerun();
  test_jobs(1);
  test_jobs(3);
  return test_end();
}
