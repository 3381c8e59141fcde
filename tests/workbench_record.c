/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_record.c - what happens to measurements afterwards: lines of JSON there and back, files that lie, the words
 * of a comparison on made-up times, the tables of a document, and the picture of a made-up machine. */
#include "test.h"
#include "quern/lion.h"
#include "scratch.h"
#include "workbench/compare.h"
#include "workbench/fill.h"
#include "workbench/report.h"
#include "workbench/roofline.h"
#include <math.h>

/* ---- there and back ---- */
static void round_trip(void)
{
  qn_lion_params params = QN_LION_DEFAULTS;
  qn_workload work;
  qn_bench b;
  qn_records records;
  qn_progress quiet = {.on = false};
  const char *path = scratch_path("trip.jsonl");
  qn_workload_find("3x500", &work);
  const qn_bench_request request = {
      .op = &qn_op_lion, .params = &params, .work = &work, .unfused = true, .seconds = 0.01, .progress = &quiet};
  bool ran =
      qn_bench_run(&request, &b) == QN_OK && qn_record_append(path, &b) == QN_OK && qn_record_append(path, &b) == QN_OK;
  check(ran && qn_records_read(path, &records) == QN_OK && records.n == 2, "two measurements are two lines");
  const qn_record *r = &records.record[1];
  check(r->line == 2 && !strcmp(r->op, "lion") && !strcmp(r->workload, "3x500") && !strcmp(r->types, "f32 f32 f32"),
        "the second says what ran");
  check(!strcmp(r->device, b.device.name) && !strcmp(r->variant, b.variant) && !strcmp(r->timer, "event") && r->right,
        "and on what, and how");
  check(r->tensors == 3 && r->elements == 1500 && r->set_bytes == 18000, "over how much");
  bool same = r->fused.n == b.fused.n && r->unfused.n == b.unfused.n && r->fused.bytes == b.fused.bytes;
  for (size_t k = 0; same && k < b.fused.n; k++)
    same = fabs(r->fused.ns[k] - b.fused.ns[k]) <= 1e-11 * b.fused.ns[k] &&
           fabs(r->unfused.ns[k] - b.unfused.ns[k]) <= 1e-11 * b.unfused.ns[k];
  check(same, "every sample comes back");
  check(fabs(r->share / b.share.ratio - 1) < 1e-9 && fabs(r->speedup / b.speedup.ratio - 1) < 1e-9 &&
            !strcmp(r->ceiling.name, b.ceiling[b.best].name),
        "so do share, speed-up and ceiling");
  check(qn_record_is_last(&records, 1) && !qn_record_is_last(&records, 0), "of two lines for the same the last counts");
  qn_records_free(&records);
  refuses(qn_record_append("/nowhere/at/all.jsonl", &b), QN_IO_ERROR, "/nowhere/at/all.jsonl");
  qn_bench_clear(&b);
  qn_workload_free(&work);
}

/* ---- made-up lines ---- */
typedef struct made_up {
  const char *workload, *device, *timer;
  double ns; /* samples lie within 1 % of it */
  int n;
  int second;     /* when, after 20:00 */
  double ceiling; /* how much slower the machine's own ceilings were; 0: not at all */
  const char *commit;
} made_up;

static made_up plain(const char *workload, const char *device, const char *timer, double ns, int n)
{
  return (made_up){workload, device, timer, ns, n, 0, 0, "abc"};
}

static const char *line_of(const made_up *m)
{
  static char text[8192];
  char samples[4096] = "";
  for (int k = 0; k < m->n; k++)
    sprintf(samples + strlen(samples), "%s%.3f", k ? "," : "", m->ns * (1 + 0.01 * ((k * 7 % 11) / 11.0 - 0.5)));
  const char series[] = "\"way\":\"16 bytes a thread\",\"bytes\":2000000000,\"gbps\":4100,\"samples_ns\":[";
  snprintf(text, sizeof text,
           "{\"schema\":\"quern bench "
           "1\",\"date\":\"2026-11-20T20:%02d:%02dZ\",\"commit\":\"%s\",\"machine\":{\"device\":\"%s\","
           "\"processor\":\"P\",\"threads\":2,\"clocks\":\"load "
           "2.50\"},\"build\":{\"compiler\":\"gcc\"},\"op\":\"lion\",\"workload\":\"%s\","
           "\"tensors\":1,\"elements\":100000000,\"types\":\"f32 f32 f32\",\"backend\":\"cuda\",\"variant\":\"sm_90\","
           "\"operations_per_element\":9,\"set_bytes_per_element\":12,\"check\":{\"right\":true},\"timer\":\"%s\","
           "\"cache\":\"cold\",\"suspicion\":\"\",\"impossible\":false,\"launches\":1,\"ceiling\":0,\"copy\":0,"
           "\"share\":{\"ratio\":0.99,\"interval\":[0.98,1]},\"fused\":{\"name\":\"lion\",%s%s]},"
           "\"ceilings\":[{\"name\":\"copy\",%s%.3f]}]}\n",
           m->second / 60, m->second % 60, m->commit, m->device, m->workload, m->timer, series, samples, series,
           480000 * (m->ceiling > 0 ? m->ceiling : 1));
  return text;
}

static const char *file_of(const char *name, const made_up *lines, size_t n)
{
  qn_text text = {0};
  for (size_t k = 0; k < n; k++) qn_text_add(&text, "%s", line_of(&lines[k]));
  const char *path = scratch_path(name);
  write_file(path, text.at, text.length, 0600);
  qn_text_free(&text);
  return path;
}

enum { MOST_RUNS = 16 };

/* Two files of n runs each, made by of(k): the k-th run of all. `order` says whose the k-th is: "abba..." */
typedef struct pair {
  made_up line[2][MOST_RUNS];
  size_t n[2];
} pair;

static void add_run(pair *p, bool after, made_up line)
{
  line.second = (int)(p->n[0] + p->n[1]) * 20;
  p->line[after][p->n[after]++] = line;
}

/* `runs` of each, in turns or one file after the other; `slower`: by how much each run's machine was, in order. */
static pair pair_of(size_t runs, bool turns, double before_ns, double after_ns, const double *slower)
{
  pair p = {.n = {0, 0}};
  for (size_t k = 0; k < 2 * runs; k++) {
    const bool after = turns ? (k + k / 2) % 2 : k >= runs;
    const double slow = slower ? slower[k] : 1;
    add_run(&p, after, (made_up){"w", "G", "event", (after ? after_ns : before_ns) * slow, 20, 0, slow, "abc"});
  }
  return p;
}

typedef struct both {
  qn_records a, b;
  qn_comparisons c;
} both;

static bool compare_pair(both *x, const pair *p)
{
  return qn_records_read(file_of("a.jsonl", p->line[0], p->n[0]), &x->a) == QN_OK &&
         qn_records_read(file_of("b.jsonl", p->line[1], p->n[1]), &x->b) == QN_OK &&
         qn_compare(&x->a, &x->b, &x->c) == QN_OK && x->c.n == 1;
}

static void free_both(both *x)
{
  qn_comparisons_free(&x->c);
  qn_records_free(&x->a);
  qn_records_free(&x->b);
}

static void compared(const char *what, pair p, qn_verdict verdict, bool comparable, const char *note)
{
  both x;
  bool read = compare_pair(&x, &p);
  const qn_comparison *c = x.c.row;
  check(read && c->verdict == verdict && c->comparable == comparable, "%s: %.3f [%.3f, %.3f], %s", what,
        c->speedup.ratio, c->speedup.low, c->speedup.high, qn_verdict_word(c->verdict));
  check(strstr(c->note, note) != NULL, "its note is \"%s\"", c->note);
  free_both(&x);
}

static void comparisons(void)
{
  double steady[2 * MOST_RUNS], drifting[2 * MOST_RUNS], stormy[2 * MOST_RUNS];
  for (int k = 0; k < 2 * MOST_RUNS; k++) {
    steady[k] = 1 + 0.004 * (k * 7 % 5);
    drifting[k] = 1 + 0.05 * k;
    stormy[k] = 1 + 0.09 * (k * 7 % 11);
  }
  compared("one run against one", pair_of(1, true, 500000, 400000, NULL), QN_UNCLEAR, true, "a word needs 7");
  compared("six against six", pair_of(6, true, 500000, 400000, NULL), QN_UNCLEAR, true, "6 and 6 runs");
  compared("the same times", pair_of(8, true, 500000, 500000, NULL), QN_SAME, true, "8 and 8 runs");
  compared("a fifth less, on a quiet machine", pair_of(8, true, 500000, 400000, steady), QN_FASTER, true, "");
  compared("a quarter more", pair_of(8, true, 400000, 500000, steady), QN_SLOWER, true, "");
  compared("a fifth less, on a machine that slows down", pair_of(8, true, 500000, 400000, stormy), QN_UNCLEAR, true,
           "at a load of up to 2.5");
  compared("itself, there", pair_of(8, true, 500000, 500000, drifting), QN_UNCLEAR, true, "differ by up to");
  compared("itself, one file after the other", pair_of(8, false, 500000, 500000, drifting), QN_UNCLEAR, true,
           "not taken in turns");
  compared("a fifth less so, on a quiet machine", pair_of(8, false, 500000, 400000, steady), QN_FASTER, true, "");
  pair other = pair_of(8, true, 500000, 500000, NULL);
  for (size_t k = 0; k < 8; k++) other.line[1][k].device = "H";
  compared("another machine", other, QN_SAME, false, "different machines: G, H");
  other = pair_of(8, true, 500000, 400000, NULL);
  for (size_t k = 0; k < 4; k++) other.line[1][k].commit = "older";
  compared("half the runs of another build", other, QN_UNCLEAR, true, "8 and 4 runs");

  both x;
  const made_up base = plain("w", "G", "event", 500000, 20);
  const made_up before[] = {base, plain("only", "G", "event", 1, 9), {"w", "G", "event", 250000, 20, 0, 0, "d"}};
  const made_up after[] = {base, plain("w", "G", "simple", 1, 9)};
  qn_records_read(file_of("a.jsonl", before, 3), &x.a);
  qn_records_read(file_of("b.jsonl", after, 2), &x.b);
  check(qn_compare(&x.a, &x.b, &x.c) == QN_OK && x.c.n == 1 && x.c.only_before == 1 && x.c.only_after == 1,
        "what only one file has is counted, not compared");
  check(fabs(x.c.row[0].speedup.ratio - 0.5) < 1e-3, "and the last build of a file is the one compared");
  free_both(&x);
}

/* ---- a machine that others use ---- */
static double uniform(void)
{
  static uint64_t k;
  return ((double)(qn_seed_mix(14, k++) >> 11) + 0.5) * 0x1p-53;
}

/* By how much each run is slower: load that comes and goes and stays for a while, and now and then a run that is hit
 * hard. The ceilings feel it too, but not as much. */
static void load_machine(double spread, double *slower, size_t n)
{
  double load = 0;
  for (size_t k = 0; k < n; k++) {
    load = 0.8 * load + spread * (uniform() + uniform() + uniform() - 1.5);
    slower[k] = exp(load + (uniform() < 0.1 ? 2 * spread : 0));
  }
}

/* Whoever divides the two times that are printed gets the ratio that is printed, and the interval has it. */
static bool agrees(const qn_comparisons *c)
{
  char *text = NULL;
  size_t bytes = 0;
  double before, after, ratio, low, high;
  char units[2][3];
  FILE *stream = open_memstream(&text, &bytes);
  qn_comparisons_print(stream, c);
  fclose(stream);
  const char *times = strchr(text, '\n');
  int n = times ? sscanf(times, " %lf %2s -> %lf %2s %lfx [%lf, %lf]", &before, units[0], &after, units[1], &ratio,
                         &low, &high)
                : 0;
  if (n >= 5) before *= strcmp(units[0], units[1]) ? (*units[0] == 'm' ? 1000 : 0.001) : 1; /* ms and us */
  bool good = n >= 5 && fabs(ratio - before / after) < 0.00051 && (n == 5 || (low <= ratio && ratio <= high));
  if (!good) printf("# %s", text);
  free(text);
  return good;
}

/* Comparisons whose real ratio is `truth`: how often which word. */
static void judged(size_t runs, bool turns, double truth, double spread, size_t words[4])
{
  enum { TIMES = 60 };
  double slower[2 * MOST_RUNS];
  size_t agreed = 0;
  memset(words, 0, 4 * sizeof *words);
  for (int k = 0; k < TIMES; k++) {
    both x;
    load_machine(spread, slower, 2 * runs);
    pair p = pair_of(runs, turns, 500000 * truth, 500000, slower);
    for (int of = 0; of < 2; of++)
      for (size_t i = 0; i < runs; i++) {
        p.line[of][i].ns *= 1 + 0.02 * (uniform() - 0.5);
        p.line[of][i].ceiling = pow(p.line[of][i].ceiling, 0.5 + 0.5 * uniform());
      }
    if (compare_pair(&x, &p)) words[x.c.row[0].verdict]++;
    agreed += agrees(&x.c);
    free_both(&x);
  }
  check(agreed == TIMES, "%zu runs each%s, really %.2fx, a load of %.2f: ratio, times and interval agree", runs,
        turns ? " in turns" : "", truth, spread);
}

static void busy_machine(void)
{
  size_t words[4];
  for (int turns = 0; turns < 2; turns++)
    for (size_t runs = 1; runs <= 13; runs += 6)
      for (double spread = 0.02; spread < 1; spread *= 3) {
        judged(runs, turns, 1, spread, words);
        check(!words[QN_FASTER] && !words[QN_SLOWER], "and itself is never faster or slower: %zu and %zu of 60",
              words[QN_FASTER], words[QN_SLOWER]);
      }
  judged(8, true, 1.3, 0.05, words);
  check(words[QN_FASTER] >= 55 && !words[QN_SLOWER], "a real difference is told: %zu of 60", words[QN_FASTER]);
  judged(8, false, 1.3, 0.005, words);
  check(words[QN_FASTER] >= 55 && !words[QN_SLOWER], "on a quiet machine without turns too: %zu of 60",
        words[QN_FASTER]);
}

/* ---- files that lie: one valid line, then one in which `from` has become `to` ---- */
static void lies(const char *from, const char *to, const char *words)
{
  const made_up base = plain("w", "G", "event", 500000, 9);
  qn_text text = {0};
  qn_records records;
  const char *line = line_of(&base), *at = strstr(line, from);
  const char *path = scratch_path("lie.jsonl");
  qn_text_add(&text, "%s%.*s%s%s", line, (int)(at - line), line, to, at + strlen(from));
  write_file(path, text.at, text.length, 0600);
  refuses(qn_records_read(path, &records), QN_BAD_FILE, "lie.jsonl:2: ");
  check(strstr(qn_last_error(), words) != NULL, "and says \"%s\"", qn_last_error());
  check(records.n == 0 && !records.record, "and leaves nothing");
  qn_text_free(&text);
}

static void liars(void)
{
  qn_records records;
  lies("\"schema\"", "{\"schema\"", "no JSON");
  lies("quern bench 1", "quern bench 2", "schema");
  lies("\"op\":\"lion\"", "\"op\":7", "op is no text");
  lies("\"op\":\"lion\"", "\"op\":\"lion\",\"op\":\"x\"", "no JSON");
  lies("\"workload\":\"w\"", "\"workload\":\"w\\u001b[31m\"", "control character");
  lies("\"samples_ns\":[4", "\"samples_ns\":[-4", "sample 0");
  lies("\"samples_ns\":[4", "\"samples_ns\":[\"x\",4", "sample 0");
  lies("\"ceiling\":0", "\"ceiling\":7", "ceiling is 7");
  lies("\"elements\":100000000", "\"elements\":-1", "elements is -1");
  lies("\"right\":true", "\"right\":\"yes\"", "right");
  lies("\"share\":{", "\"shore\":{", "share");
  lies("\"ratio\":0.99", "\"ratio\":0", "ratio is 0");
  write_file(scratch_path("none.jsonl"), "\n\n", 2, 0600);
  refuses(qn_records_read(scratch_path("none.jsonl"), &records), QN_BAD_FILE, "no measurement");
  char zeros[64] = {0};
  write_file(scratch_path("zero.jsonl"), zeros, sizeof zeros, 0600);
  refuses(qn_records_read(scratch_path("zero.jsonl"), &records), QN_BAD_FILE, "zero.jsonl:1: ");
  refuses(qn_records_read(scratch_path("missing.jsonl"), &records), QN_BAD_FILE, "missing.jsonl");
  refuses(qn_records_read(scratch, &records), QN_BAD_FILE, scratch);
}

/* ---- documents ---- */
static char *content(const char *path)
{
  static char text[65536];
  FILE *file = fopen(path, "r");
  size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[n] = 0;
  return text;
}

static void documents(void)
{
  const made_up lines[] = {plain("w", "Slow", "event", 5e6, 9), plain("a|b", "Fast <1>", "event", 5e5, 9),
                           plain("w", "Fast <1>", "simple", 5e5, 9)};
  qn_records records;
  qn_text text = {0};
  qn_records_read(file_of("r.jsonl", lines, 3), &records);
  qn_report_write(&text, &records);
  const char *fast = strstr(text.at, "| lion | a\\|b | f32 f32 f32 | Fast \\<1\\> (cuda sm\\_90) | ");
  const char *slow = strstr(text.at, "| lion | w | f32 f32 f32 | Slow (cuda sm\\_90) |");
  check(fast && slow && fast < slow, "a row for each, escaped, the fastest device first");
  check(strstr(text.at, "2026-11-20, event, cold, abc |") != NULL, "with date, method and commit beside it");
  check(strstr(text.at, "simple") == NULL, "the event timer only");
  check(strstr(text.at, "| lion | cpu | ref | ") != NULL, "and how far each variant is proved");
  check(strstr(text.at, "| lion | cuda | sm_90 | run: ") != NULL || strstr(text.at, "sm_90a") != NULL,
        "run where it was run");
  const char *path = scratch_path("doc.md");
  const char old[] = "before\n" QN_REPORT_BEGIN "\nSTALE\n" QN_REPORT_END "\nafter\n";
  write_file(path, old, strlen(old), 0640);
  check(qn_report_insert(path, &text) == QN_OK && qn_report_insert(path, &text) == QN_OK,
        "a document takes them, twice too");
  const char *now = content(path), head[] = "before\n" QN_REPORT_BEGIN "\n| op |";
  bool kept = !strncmp(now, head, strlen(head)) && strstr(now, QN_REPORT_END "\nafter\n");
  check(kept && !strstr(now, "STALE"), "and keeps what stands round them");
  write_file(path, "no marks", 8, 0600);
  refuses(qn_report_insert(path, &text), QN_BAD_FILE, "doc.md");
  check(!strcmp(content(path), "no marks"), "without marks it is left as it was");
  qn_text_free(&text);
  qn_records_free(&records);
}

/* ---- the picture ---- */
static qn_roofline machine(void)
{
  qn_roofline r = {.device = {QN_CUDA, 0},
                   .info.name = "NVIDIA H200 & <co>",
                   .mix = {QN_MIX_COPY, QN_MIX_2R1W, QN_MIX_3R2W},
                   .n_sets = 7,
                   .rate = {59e12, 330e12, 640e12},
                   .nominal_gbps = 4800,
                   .nominal = {66.9e12, 494.7e12, 989.4e12}};
  const double gbps[] = {900, 2900, 6400, 5600, 4300, 4250, 4280};
  for (int m = 0; m < QN_ROOF_MIXES; m++)
    for (size_t k = 0; k < r.n_sets; k++)
      r.set[m][k] = (qn_roof){(double)(1 << 20) * pow(4, (double)k), gbps[k] * (1 + 0.03 * m), ""};
  return r;
}

static size_t count(const char *text, const char *word)
{
  size_t n = 0;
  for (; (text = strstr(text, word)); text++) n++;
  return n;
}

static void picture(void)
{
  const made_up lines[] = {plain("1x67.1M", "NVIDIA H200 & <co>", "event", 470000, 9),
                           plain("512x64K", "NVIDIA H200 & <co>", "event", 510000, 9),
                           plain("gpt2-124m", "NVIDIA H200 & <co>", "event", 485000, 9),
                           plain("gpt2-124m", "Other", "event", 485000, 9)};
  qn_records records;
  qn_roofline r = machine(), back;
  size_t left_out = 0;
  const char *svg = scratch_path("roof.svg"), *path = scratch_path("roof.jsonl");
  qn_records_read(file_of("p.jsonl", lines, 4), &records);
  check(qn_roofline_draw(svg, &r, &records, &left_out) == QN_OK && left_out == 1,
        "a roofline is drawn, without another machine's kernel");
  const char *text = content(svg);
  check(!strncmp(text, "<svg ", 5) && !strcmp(text + strlen(text) - 7, "</svg>\n"), "it is a whole SVG");
  check(strstr(text, "NVIDIA H200 &amp; &lt;co&gt;") && !strstr(text, "<co>"), "names are escaped");
  check(count(text, "<circle ") == 6, "three kernels are points in both plots, not %zu", count(text, "<circle "));
  check(count(text, "font-weight=\"600\"") == 1 + 3 * 3, "with a number at each, and one at each name below");
  check(count(text, "stroke-dasharray") == 5, "nominal ceilings are dashed: memory twice and three rates");
  check(!strstr(text, "nan") && !strstr(text, "inf"), "every place is a number");
  check(strstr(text, "lion gpt2-124m, 4") != NULL, "kernels are named with their figures");
  check(qn_roofline_append(path, &r) == QN_OK && qn_roofline_read(path, "H200", &back) == QN_OK,
        "it goes to a line and back");
  check(back.n_sets == 7 && back.set[2][6].gbps == r.set[2][6].gbps && back.rate[1] == r.rate[1] &&
            back.nominal_gbps == 4800,
        "with all its figures, and those of the data sheet looked up again");
  refuses(qn_roofline_read(path, "MI300", &back), QN_BAD_FILE, "MI300");
  check(qn_records_add(path, &records) == QN_OK && records.n == 4, "among measurements such a line is passed over");
  qn_records_free(&records);
}

int main(void)
{
  scratch_begin();
  round_trip();
  comparisons();
  busy_machine();
  liars();
  documents();
  picture();
  return test_end();
}
