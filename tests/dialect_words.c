/* SPDX-License-Identifier: Apache-2.0 */
/* dialect_words.c WORDS FILE.md [--write | --backend cuda] - which words of the two dialects exist. Each line of
 * WORDS is a word and a snippet that uses it. All snippets of a dialect are compiled at once, for the processor and
 * with NVRTC; the lines that the compiler names are words that do not exist. The others run on the processor, and give
 * the number that their line says. The tables in FILE.md between `<!-- words metal -->` and its end must be what comes
 * out; --write puts them there. --backend cuda: the same snippets run on a GPU, and give the processor's numbers.
 *
 *   word :: snippet :: number of lane 0      `header @@ snippet` where the word is declared outside of functions
 *
 * A snippet sets `float r` of `float x, y` (0.75 + lane / 2, 1.5), `int i` (5), `uint u` (9), `uint lane` and
 * `float *out` (zeros, one a lane). Lines that begin with ! are in the body, where attributes are. */
#include "core/core.h"
#include "device/emulator/emulator.h"
#include "device/preprocess.h"
#include "kernel/kernel.h"
#include "kernel_use.h"
#include "scratch.h"
#include <math.h>

enum { MOST = 1024, LANES = 32 };
static const char arch[] = "sm_90a";

typedef struct word {
  const char *name, *group, *header, *code, *number; /* number: NULL, none said */
  qn_dialect dialect;
  bool in_body, on_cpu, on_gpu;
} word;
static word words[MOST];
static int n_words;
static float values[MOST * LANES], others[MOST * LANES];

static const char *const dialects[] = {"metal", "cuda"};

static char *cut(char *text, const char *at)
{
  char *end = text ? strstr(text, at) : NULL;
  if (!end) return NULL;
  *end = 0;
  return end + strlen(at);
}

static void read_words(char *text)
{
  const char *group = "";
  qn_dialect dialect = QN_DIALECT_METAL;
  for (char *line = text, *next; line && *line; line = next) {
    next = cut(line, "\n");
    if (*line == '#' || !*line) continue;
    if (!strncmp(line, "== ", 3)) { /* == metal: group */
      dialect = strncmp(line + 3, "cuda", 4) ? QN_DIALECT_METAL : QN_DIALECT_CUDA;
      group = strchr(line, ':') + 2;
      continue;
    }
    word *w = &words[n_words++];
    *w = (word){.group = group, .dialect = dialect, .in_body = *line == '!', .header = "", .on_cpu = true};
    w->name = line + w->in_body;
    char *code = cut(line, " :: "), *behind;
    if (!code || n_words == MOST) {
      check(false, "line \"%s\" has a word and a snippet, and there are less than %d", line, MOST);
      exit(test_end());
    }
    w->number = cut(code, " :: ");
    behind = cut(code, " @@ ");
    if (behind) w->header = code;
    w->code = behind ? behind : code;
    w->on_gpu = true;
  }
}

static bool exists(const word *w, bool gpu) { return gpu ? w->on_gpu : w->on_cpu; }

/* The kernel of all words that exist: word k stands in line k + 1 of the header or the body. */
static qn_kernel *make_kernel(qn_dialect dialect, bool gpu, qn_text *header, qn_text *body)
{
  static const char *const given[] = {
      "float x, float y, int i, uint u, uint lane, device float *out) { float r = 0; (void)x, (void)y, (void)i; "
      "(void)u, "
      "(void)lane; ",
      "float x, float y, int i, unsigned u, unsigned lane, float *out) { float r = 0; (void)x, (void)y, (void)i; "
      "(void)u, (void)lane; "};
  *header = *body = (qn_text){0};
  for (int k = 0; k < n_words; k++) {
    const word *w = &words[k];
    if (w->dialect == dialect && exists(w, gpu) && w->in_body)
      qn_text_add(body,
                  "{ float x = inp[lane_], y = 1.5f, r = 0; int i = 5; unsigned u = 9; (void)x, (void)y, "
                  "(void)i, (void)u; %s out[%d + lane_] = r; }\n",
                  w->code, k * LANES);
    else if (w->dialect == dialect && exists(w, gpu)) {
      qn_text_add(header, "%s __attribute__((noinline)) static void word_%d(%s%s out[lane] = r; }\n", w->header, k,
                  given[dialect == QN_DIALECT_CUDA], w->code);
      qn_text_add(body, "word_%d(inp[lane_], 1.5f, 5, 9, lane_, out + %d);\n", k, k * LANES);
    } else {
      qn_text_add(header, "\n");
      qn_text_add(body, "\n");
      continue;
    }
    if (w->in_body) qn_text_add(header, "\n");
  }
  qn_text whole = {0};
  qn_text_add(&whole, "%s",
              dialect == QN_DIALECT_METAL ? "const uint lane_ = thread_position_in_grid.x;"
                                          : "const unsigned lane_ = threadIdx.x;");
  qn_text_add_bytes(&whole, body->at, body->length);
  qn_text_free(body);
  *body = whole;
  return use_make(&(use){.name = "words",
                         .inputs = "inp",
                         .outputs = "out",
                         .file = "words",
                         .body = body->at,
                         .header = header->at,
                         .dialect = dialect});
}

/* The word's number by a place in the text: "words (header):12:", "words(12)", "at line 12 of words (header)"; or -1.
 */
static int placed(const char *from, const char *at, qn_dialect dialect)
{
  static const char before[] = "at line ";
  const bool header = !strncmp(at, "words (header)", 14);
  const char *behind = at + (header ? 14 : 5), *number = behind + 1;
  if (*behind != ':' && *behind != '(') {
    for (number = at; number > from && strncmp(number, before, strlen(before)) && *number != '\n';) number--;
    if (strncmp(number, before, strlen(before))) return -1;
    number += strlen(before);
  }
  const int k = atoi(number) - 1;
  return k < 0 || k >= n_words || words[k].dialect != dialect || words[k].in_body == header ? -1 : k;
}

/* Words that a compiler's errors name by their line; how many are new. NVRTC's log has warnings, too. */
static int strike(const char *said, qn_dialect dialect, bool gpu)
{
  int n = 0;
  bool error = !gpu;
  for (const char *line = said; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    const size_t length = strcspn(line, "\n");
    if (memmem(line, length, ": error", 7)) error = true;
    if (memmem(line, length, ": warning", 9)) error = false;
    for (const char *at = line; error && (at = strstr(at, "words")) && at < line + length; at++) {
      const int k = placed(line, at, dialect);
      bool *there = k < 0 ? NULL : gpu ? &words[k].on_gpu : &words[k].on_cpu;
      n += there && *there;
      if (there) *there = false;
    }
  }
  return n;
}

static bool read_pipe(const char *command, qn_text *said)
{
  char line[4096];
  FILE *from = popen(command, "r");
  while (from && fgets(line, sizeof line, from))
    if (strstr(line, "error") || strstr(line, "required from") || strstr(line, "instantiation of"))
      qn_text_add(said, "%s", line);
  return from && pclose(from) == 0;
}

static bool compile_on_cpu(const qn_unit *unit, qn_text *said)
{
  qn_emulator_compiler compiler;
  qn_text lean = {0};
  char command[3 * QN_HOST_PATH_BYTES];
  if (qn_emulator_compiler_find(&compiler) || qn_preprocess(unit, &lean)) return false;
  write_file(scratch_path("words.cc"), lean.at, lean.length, 0600);
  snprintf(command, sizeof command, "'%s' -std=c++17 -fsyntax-only -w '%s' 2>&1", compiler.path,
           scratch_path("words.cc"));
  qn_text_free(&lean);
  return read_pipe(command, said);
}

/* The whole log is logged; the sentence has its first line. */
static void note(void *said, qn_log_level level, const char *message)
{
  (void)level;
  qn_text_add(said, "%s\n", message);
}

static bool compile_on_gpu(const qn_unit *unit, qn_text *said)
{
  qn_image image = {0};
  qn_log_set(note, said, QN_LOG_WARNING);
  const bool ok = qn_cuda_compile_for(arch, unit, &image) == QN_OK;
  qn_log_set(NULL, NULL, QN_LOG_WARNING);
  qn_image_free(&image);
  return ok;
}

/* Strikes out what does not compile until the rest does. */
static bool compile_all(qn_dialect dialect, bool gpu)
{
  int version = 0;
  char path[512];
  (void)qn_cuda_compiler(&version, path, sizeof path);
  const char *const flags[] = {"--device-as-default-execution-space", /* that it compiles is what counts */
                               version >= 13000 ? "--Ofast-compile=max" : NULL, NULL};
  for (int left = 20; left > 0; left--) {
    qn_text header, body, text = {0}, said = {0};
    qn_kernel *kernel = make_kernel(dialect, gpu, &header, &body);
    qn_special special = {.target = gpu ? QN_CUDA : QN_CPU, .dims = 3, .bound = 256, .items = 1};
    for (int k = 0; k < 2; k++)
      special.tensor[k].ndim = 1, special.tensor[k].form = QN_FORM_POINTER, special.tensor[k].dtype = QN_F32;
    qn_argument_layout layout = {0};
    qn_kernel_layout(kernel, &special, &layout);
    const bool made = qn_kernel_generate(kernel, &special, &layout, &text) == QN_OK;
    const qn_unit unit = {.source = "words", .text = text.at, .flags = gpu ? flags : NULL};
    const bool ok = made && (gpu ? compile_on_gpu(&unit, &said) : compile_on_cpu(&unit, &said));
    const int n = ok ? 0 : strike(said.at ? said.at : qn_last_error(), dialect, gpu);
    if (!ok && !n) printf("# %.3000s\n", said.at ? said.at : qn_last_error());
    qn_text_free(&said), qn_text_free(&text), qn_text_free(&header), qn_text_free(&body);
    qn_kernel_destroy(&kernel);
    if (ok || !n)
      return check(ok, "the words of %s that exist compile for %s", dialects[dialect], gpu ? arch : "the processor");
  }
  return check(false, "the words of %s compile after some turns", dialects[dialect]);
}

/* All words of a dialect that exist, on a device, each value by its word. */
static bool run_all(qn_dialect dialect, qn_device device, float *into)
{
  qn_text header, body;
  qn_kernel *kernel = make_kernel(dialect, device.kind == QN_CUDA, &header, &body);
  float inp[LANES];
  for (int k = 0; k < LANES; k++) inp[k] = 0.75f + 0.5f * (float)k;
  const qn_exec exec = {.size = sizeof exec, .device = device};
  qn_tensor in = ARRAY(inp, QN_F32, LANES), out = ARRAY(into, QN_F32, MOST * LANES);
  void *on_device[2] = {inp, into};
  bool ok = true;
  if (device.kind == QN_CUDA) {
    ok = !qn_memory_allocate(device, sizeof inp, &on_device[0]) &&
         !qn_memory_allocate(device, sizeof values, &on_device[1]) &&
         !qn_memory_write(device, NULL, on_device[0], inp, sizeof inp) &&
         !qn_memory_write(device, NULL, on_device[1], into, sizeof values);
    in.data = on_device[0], out.data = on_device[1];
    in.device = out.device = device;
  }
  ok = ok &&
       qn_kernel_launch(kernel, &exec,
                        &CALL(.inputs = &in, .outputs = &out, .grid = {LANES, 1, 1}, .group = {LANES, 1, 1})) == QN_OK;
  if (ok && device.kind == QN_CUDA) ok = !qn_memory_read(device, NULL, into, on_device[1], sizeof values);
  check(ok, "the words of %s run on %s", dialects[dialect], device.kind == QN_CUDA ? "the GPU" : "the processor");
  qn_text_free(&header), qn_text_free(&body);
  qn_kernel_destroy(&kernel);
  return ok;
}

static void numbers_are_right(void)
{
  for (int k = 0; k < n_words; k++) {
    if (!words[k].on_cpu || !words[k].number) continue;
    const double got = (double)values[k * LANES], want = strtod(words[k].number, NULL);
    if (got != want && !(fabs(got - want) <= 2e-6 * fmax(1, fabs(want))) && !(isnan(got) && isnan(want)))
      check(false, "%s gives %.9g where its line says %s", words[k].name, got, words[k].number);
  }
  check(true, "numbers were looked at");
}

/* fast:: words are the GPU's own there, and CUDA's quick ones. */
static void numbers_agree(void)
{
  int n = 0;
  for (int k = 0; k < n_words; k++)
    for (int lane = 0; lane < LANES && words[k].on_cpu && words[k].on_gpu; lane++, n++) {
      const double a = (double)values[k * LANES + lane], b = (double)others[k * LANES + lane];
      const bool quick = strstr(words[k].group, "fast") != NULL;
      if (fabs(a - b) <= (quick ? 2e-5 : 0) * fmax(1, fabs(a)) || (isnan(a) && isnan(b)) || a == b) continue;
      check(false, "%s: %.9g on the GPU and %.9g on the processor, lane %d", words[k].name, b, a, lane);
      break;
    }
  check(n > 0, "%d numbers of words were compared between the GPU and the processor", n);
}

/* ---- the table ---- */
static void add_cell(qn_text *to, int from, bool on_cpu, bool on_gpu)
{
  qn_text_add(to, " |");
  for (int k = from; k < n_words && !strcmp(words[k].group, words[from].group); k++)
    if (words[k].on_cpu == on_cpu && words[k].on_gpu == on_gpu) qn_text_add(to, " `%s`", words[k].name);
}

static void add_table(qn_text *to, qn_dialect dialect)
{
  qn_text_add(to, "\n| | on both | processor alone | GPU alone | missing |\n|---|---|---|---|---|\n");
  for (int k = 0; k < n_words; k++) {
    if (words[k].dialect != dialect || (k && words[k - 1].group == words[k].group)) continue;
    qn_text_add(to, "| %s", words[k].group);
    add_cell(to, k, true, true), add_cell(to, k, true, false), add_cell(to, k, false, true),
        add_cell(to, k, false, false);
    qn_text_add(to, " |\n");
  }
  qn_text_add(to, "\n");
}

static char *read_whole(const char *path)
{
  FILE *file = fopen(path, "rb");
  char *text = calloc(1, 1 << 20);
  if (!file || !text || !fread(text, 1, (1 << 20) - 1, file)) check(false, "%s can be read", path), exit(test_end());
  fclose(file);
  return text;
}

static void compare_page(const char *path, bool write)
{
  char *page = read_whole(path);
  qn_text made = {0};
  const char *rest = page;
  for (int d = 0; d < 2; d++) {
    char mark[64], end_mark[64];
    snprintf(mark, sizeof mark, "<!-- words %s -->\n", dialects[d]);
    snprintf(end_mark, sizeof end_mark, "<!-- /words %s -->\n", dialects[d]);
    const char *at = strstr(rest, mark), *end = at ? strstr(at, end_mark) : NULL;
    if (!check(end != NULL, "%s has its marks for %s", path, dialects[d])) return;
    at += strlen(mark);
    qn_text_add_bytes(&made, rest, (size_t)(at - rest));
    add_table(&made, d ? QN_DIALECT_CUDA : QN_DIALECT_METAL);
    rest = end;
  }
  qn_text_add(&made, "%s", rest);
  if (write)
    write_file(path, made.at, made.length, 0644);
  else
    check(!strcmp(made.at, page), "the tables of %s are what the compilers say; if not, run this test with --write",
          path);
  qn_text_free(&made);
  free(page);
}

int main(int argc, char **argv)
{
  int version = 0;
  char path[512];
  if (argc < 3) return printf("Bail out! dialect_words WORDS FILE.md [--write | --backend cuda]\n"), EXIT_FAILURE;
  const bool cuda = argc > 4 && !strcmp(argv[4], "cuda"), nvrtc = !qn_cuda_compiler(&version, path, sizeof path);
  scratch_begin();
  char *text = read_whole(argv[1]);
  read_words(text);
  bool ok = true;
  for (int d = 0; d < 2; d++) {
    const qn_dialect dialect = d ? QN_DIALECT_CUDA : QN_DIALECT_METAL;
    ok = compile_all(dialect, false) && run_all(dialect, cpu, values) && ok;
    if (nvrtc) ok = compile_all(dialect, true) && ok;
    if (cuda) ok = run_all(dialect, (qn_device){QN_CUDA, 0}, others) && ok;
  }
  if (ok) numbers_are_right();
  if (ok && cuda) numbers_agree();
  if (ok && nvrtc && !cuda)
    compare_page(argv[2], argc > 3 && !strcmp(argv[3], "--write"));
  else if (!nvrtc)
    skip("the tables: no NVRTC here");
  free(text);
  return test_end();
}
