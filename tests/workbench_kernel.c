/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_kernel.c - kernels in folders, without running any: expressions, hostile ones too, what kernel.json may
 * say and how its mistakes are told, rules that fill inputs, arrays in files. */
#include "test.h"
#include "core/core.h"
#include "scratch.h"
#include "workbench/kernel_arrays.h"
#include "workbench/kernel_case.h"
#include "workbench/fill.h"
#include "workbench/kernel_fill.h"
#include <math.h>

/* ---- expressions ---- */
static const qn_name names[] = {{"n", 10}, {"TILE", 4}, {"x.bytes", 2}, {"big", INT64_MAX}, {"zero", 0}};
enum { N_NAMES = sizeof names / sizeof *names };

static void gives(const char *text, int64_t want)
{
  int64_t value = -12345;
  bool ok = qn_expression(text, names, N_NAMES, &value) == QN_OK && value == want;
  check(ok, "%s is %lld (%lld)", text, (long long)want, (long long)value);
}

static void wrong(const char *text, const char *words)
{
  int64_t value;
  refuses(qn_expression(text, names, N_NAMES, &value), QN_BAD_ARGUMENT, words);
}

static void expressions(void)
{
  gives("1", 1);
  gives(" 2 + 3 * 4 - 5 ", 9);
  gives("(2+3)*4", 20);
  gives("10 - 4 - 3", 3);
  gives("100 / 5 / 2", 10);
  gives("17 % 5 * 2", 4);
  gives("-n + 11", 1);
  gives("--3", 3);
  gives("n * x.bytes", 20);
  gives("ceildiv(n, TILE)", 3);
  gives("ceildiv(-7, 2)", -3);
  gives("align(n, 32)", 32);
  gives("align(64, 32)", 64);
  gives("min(n, 3, 7)", 3);
  gives("max(1, n, ceildiv(9, 2))", 10);
  gives("9223372036854775807", INT64_MAX);
  gives("-9223372036854775807 - 1", INT64_MIN);
  wrong("", "at character 1");
  wrong("n +", "is missing at character 4");
  wrong("n n", "at character 3");
  wrong("(n", "a ) is missing");
  wrong("n)", "at character 2");
  wrong("1.5", "at character 2");
  wrong("3n", "at character 2");
  wrong("TIEL", "did you mean TILE?");
  wrong("qqqqqqqq", "known: n, TILE");
  wrong("n / zero", "a division by zero at character 3");
  wrong("n % zero", "a division by zero");
  wrong("ceildiv(n, zero)", "a division by zero");
  wrong("ceildiv(n, -2)", "negative");
  wrong("big + 1", "past 64 bits at character 5");
  wrong("big * 2", "past 64 bits");
  wrong("(-big - 1) / -1", "past 64 bits");
  wrong("-(-big - 1)", "past 64 bits");
  wrong("9223372036854775808", "past 64 bits");
  wrong("align(big, 64)", "past 64 bits");
  wrong("min(n)", "two numbers or more");
  wrong("ceildiv(1, 2, 3)", "two numbers");
  wrong("ceildiv(1", "a comma or )");
  wrong("n $ 2", "at character 3");
  check(qn_expression_check("n / zero", names, N_NAMES) == QN_OK, "a check does not compute");
  refuses(qn_expression_check("n / zeor", names, N_NAMES), QN_BAD_ARGUMENT, "did you mean zero?");
}

static void hostile_expressions(void)
{
  enum { LONG = 100000 };
  char *text = malloc(LONG + 1);
  int64_t value;
  static const char fillers[] = "(-+1n*,.\xff";
  for (const char *c = fillers; *c; c++) {
    memset(text, *c, LONG);
    text[LONG] = 0;
    bool refused = qn_expression(text, names, N_NAMES, &value) == QN_BAD_ARGUMENT;
    check(refused && strlen(qn_last_error()) < 400, "%d times character %d is refused in a sentence", LONG,
          (unsigned char)*c);
  }
  free(text);
  uint64_t state = 7;
  static const char letters[] = "n1()+-*/% ,TILEminceildv.x";
  for (int k = 0; k < 20000; k++) { /* nothing but a status comes of anything */
    char noise[24];
    for (size_t i = 0; i < sizeof noise - 1; i++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      noise[i] = letters[(state >> 33) % (sizeof letters - 1)];
    }
    noise[sizeof noise - 1] = 0;
    (void)qn_expression(noise, names, N_NAMES, &value);
  }
  check(true, "noise is read without harm");
}

/* ---- kernel.json ---- */
static const char good[] =
    "{\"name\": \"k\", \"source\": \"k.metal\", \"inputs\": {\"x\": \"f32|f16 [n, 2]\", \"s\": "
    "\"f32 []\"}, \"outputs\": {\"y\": \"x.dtype [n]\"}, \"templates\": {\"T\": \"x.dtype\", "
    "\"TILE\": 4, \"FLAG\": true, \"M\": \"ceildiv(n, TILE)\"}, \"scalars\": {\"s\": 0.5}, "
    "\"grid\": [\"align(n, TILE)\"], \"threadgroup\": [32, 2], \"sizes\": [{\"n\": 3}, {\"n\": 9, "
    "\"TILE\": 2}], \"workloads\": {\"big\": {\"n\": 1000}}, \"bytes\": \"n * x.bytes\", "
    "\"tune\": {\"threadgroup\": [[64], [8, 8]], \"TILE\": [1, 2]}}";

static const char *folder_with(const char *json)
{
  const char *path = scratch_path("folder");
  mkdir(path, 0700);
  char file[600];
  snprintf(file, sizeof file, "%s/kernel.json", path);
  write_file(file, json, strlen(json), 0600);
  snprintf(file, sizeof file, "%s/k.metal", path);
  write_file(file, "y[0] = x[0];\n", 13, 0600);
  return path;
}

/* The good one with a piece replaced is refused in a sentence that names kernel.json and has these words. */
static void mistake(const char *old, const char *new, const char *words)
{
  char json[2048];
  qn_folder *folder = NULL;
  const char *at = strstr(good, old);
  if (!at) {
    check(false, "%s stands in the good text", old);
    return;
  }
  snprintf(json, sizeof json, "%.*s%s%s", (int)(at - good), good, new, at + strlen(old));
  qn_status status = qn_folder_read(folder_with(json), &folder);
  bool ok =
      status == QN_BAD_FILE && !folder && strstr(qn_last_error(), "kernel.json") && strstr(qn_last_error(), words);
  check(ok, "%s is refused with \"%s\"", new, words);
  if (!ok) printf("# said: %s\n", qn_last_error());
  qn_folder_free(&folder);
}

static void good_folder(void)
{
  qn_folder *f = NULL;
  bool read = qn_folder_read(folder_with(good), &f) == QN_OK;
  if (!check(read, "a whole kernel.json is read")) return;
  check(f->n_inputs == 2 && f->n_outputs == 1 && f->tensor[0].n_dtypes == 2 && f->tensor[0].ndim == 2 &&
            f->tensor[2].dtype_of == 0 && f->tensor[1].scalar && f->tensor[1].scalar_value.real == 0.5,
        "its tensors");
  check(f->n_extents == 1 && !strcmp(f->extent[0], "n"), "the extent that sizes bind");
  check(f->n_sizes == 2 && f->n_workloads == 1 && !strcmp(f->size[1].name, "n=9 TILE=2"), "sizes and workloads");
  check(f->n_groups == 2 && f->tune_group[1][1] == 8 && f->body.templates[1].n_candidates == 2, "what is tuned");
  qn_kernel_case c = {.folder = f, .body = &f->body};
  const qn_kernel_case_order order = {.folder = f, .size = &f->size[1], .dtype = {QN_F16}};
  check(qn_kernel_case_bind(&c, &order) == QN_OK && c.array[0].shape[0] == 9 && c.array[2].dtype == QN_F16,
        "bound to a size: shapes and types");
  check(c.call.grid[0] == 10 && c.call.group[1] == 2 && c.bound.templates[3].value.integer == 5 && c.bytes == 18,
        "grid, threadgroup, templates, bytes");
  const qn_name set[] = {{"n", 5}, {"TILE", 3}};
  qn_kernel_case d = {.folder = f, .body = &f->body};
  const qn_kernel_case_order changed = {.folder = f, .size = &f->size[0], .set = set, .n_set = 2};
  check(qn_kernel_case_bind(&d, &changed) == QN_OK && d.call.grid[0] == 6, "--set goes before the size");
  const qn_name none[] = {{"TIEL", 3}}, empty[] = {{"n", 0}};
  qn_kernel_case e = {.folder = f, .body = &f->body};
  refuses(qn_kernel_case_bind(&e, &(qn_kernel_case_order){.folder = f, .size = &f->size[0], .set = none, .n_set = 1}),
          QN_BAD_ARGUMENT, "did you mean TILE?");
  qn_kernel_case g = {.folder = f, .body = &f->body};
  refuses(qn_kernel_case_bind(&g, &(qn_kernel_case_order){.folder = f, .size = &f->size[0], .set = empty, .n_set = 1}),
          QN_BAD_ARGUMENT, "must be above 0");
  qn_folder_free(&f);
}

/* ---- the folder as a library's caller has it ---- */
static const char wide[] =
    "{\"name\": \"k\", \"source\": \"k.metal\", \"inputs\": {\"x\": \"f32|f16 [..., n, 2*n]\", \"y\": \"x.dtype [m]\", "
    "\"s\": \"i64|f32 []\"}, \"outputs\": {\"z\": \"x.dtype [..., max(m, n), M - 1, -n + n + 3]\", \"dbg\": \"f32 "
    "[16]\"}, "
    "\"templates\": {\"T\": \"x.dtype\", \"TILE\": 4, \"FLAG\": true, \"M\": \"ceildiv(n, TILE) * x.bytes\"}, "
    "\"scalars\": {\"s\": \"9007199254740993 * m\"}, \"init\": {\"dbg\": 0}, \"in_place\": {\"z\": \"x\"}, "
    "\"grid\": [\"n * threadgroup.x\"], \"threadgroup\": [\"align(n, 32)\"], \"ignore\": [\"race\"], \"strided\": "
    "[\"y\"]}";

static const int64_t x_shape[] = {5, 9, 18}, y_shape[] = {7};

static qn_status call_of(const qn_kernel_folder *folder, qn_dtype x, qn_dtype y, const int64_t *shape, int ndim,
                         size_t n, const qn_template *set, qn_kernel_call **call)
{
  const qn_tensor in[] = {{.dtype = x, .ndim = ndim, .shape = shape}, {.dtype = y, .ndim = 1, .shape = y_shape}, {0}};
  const qn_kernel_call given = {.size = sizeof given, .inputs = in, .n_templates = n, .templates = set, .seed = 8};
  return qn_kernel_folder_call(folder, &given, call);
}

static void declares(const qn_kernel_folder *folder)
{
  const qn_kernel_source *s = &folder->source;
  qn_kernel *kernel = NULL;
  check(s->n_inputs == 3 && s->n_outputs == 2 && !strcmp(s->inputs[1], "y") && !strcmp(s->outputs[1], "dbg") &&
            s->strided == 2 && folder->scalars == 4 && folder->n_templates == 4 && strstr(s->file, "/k.metal"),
        "what a folder declares");
  check(!strcmp(s->contracts[0], "f32|f16 [..., n, extent0_1]") && !strcmp(s->contracts[1], "x.dtype [m]"),
        "expressions are any extent to the kernel");
  check(qn_kernel_create(&kernel, s) == QN_OK, "and a kernel is made of it");
  qn_kernel_destroy(&kernel);
}

static void shape_is(const qn_kernel_call *call, const char *want)
{
  char *text = NULL;
  check(qn_kernel_folder_shape(call, 0, &text) == QN_OK && !strcmp(text, want), "its shape is %s (%s)", want,
        text ? text : "none");
  qn_text_release(&text);
}

static void calls(void)
{
  qn_kernel_folder *folder = NULL;
  qn_kernel_call *call = NULL;
  if (!check(qn_kernel_folder_create(&folder, folder_with(wide)) == QN_OK, "a folder without sizes is read")) return;
  declares(folder);
  if (!check(call_of(folder, QN_F16, QN_F16, x_shape, 3, 0, NULL, &call) == QN_OK, "a call is made")) return;
  const qn_tensor *z = call->outputs;
  int64_t s;
  memcpy(&s, call->inputs[2].data, sizeof s);
  check(z->dtype == QN_F16 && z->ndim == 4 && z->shape[0] == 5 && z->shape[1] == 9 && z->shape[2] == 5, "its output");
  check(call->grid[0] == 9 * 32 && call->group[0] == 32 && call->group[1] == 1 && call->seed == 8 &&
            call->ignore == 1u << QN_FINDING_RACE && call->init[1].kind == QN_VALUE_INT && call->stored_in[0] == 0,
        "grid, threadgroup, what is carried over, init and in_place");
  check(call->inputs[2].dtype == QN_I64 && s == INT64_C(9007199254740993) * 7, "a scalar of 64 bits, exactly");
  check(call->templates[0].value.dtype == QN_F16 && call->templates[3].value.integer == 6, "templates");
  shape_is(call, "0:0 , 1:-1 0:-2 max( , 0:-2 4 ceildiv( 2 * 1 - , 0 0:-2 - 0:-2 + 3 + , ");
  qn_kernel_call_release(&call);
  const qn_template set[] = {{"M", {.kind = QN_VALUE_INT, .integer = 9}},
                             {"FLAG", {.kind = QN_VALUE_INT, .integer = 2}},
                             {"T", {.kind = QN_VALUE_DTYPE, .dtype = QN_F64}}};
  if (!check(call_of(folder, QN_F32, QN_F32, x_shape, 3, 3, set, &call) == QN_OK, "with values given")) return;
  check(call->templates[2].value.kind == QN_VALUE_BOOL && call->templates[2].value.integer == 1 &&
            call->templates[0].value.dtype == QN_F64 && call->templates[3].value.integer == 9 &&
            call->outputs[0].shape[2] == 8,
        "which are the templates'");
  shape_is(call, "0:0 , 1:-1 0:-2 max( , 9 1 - , 0 0:-2 - 0:-2 + 3 + , ");
  qn_kernel_call_release(&call);
  const int64_t wrong[] = {9, 17}, none[] = {0, 0};
  const qn_template typo[] = {{"TIEL", {.kind = QN_VALUE_INT, .integer = 9}}},
                    real[] = {{"TILE", {.kind = QN_VALUE_FLOAT, .real = 9}}};
  refuses(call_of(folder, QN_F64, QN_F64, x_shape, 3, 0, NULL, &call), QN_BAD_TYPE, "its contract wants f32|f16");
  refuses(call_of(folder, QN_F32, QN_F16, x_shape, 3, 0, NULL, &call), QN_BAD_TYPE, "the type of x, which is f32");
  refuses(call_of(folder, QN_NONE, QN_F16, x_shape, 3, 0, NULL, &call), QN_BAD_ARGUMENT, "x has no storage type");
  refuses(call_of(folder, QN_F32, QN_F32, x_shape, 1, 0, NULL, &call), QN_BAD_ARGUMENT, "wants 2 or more");
  refuses(call_of(folder, QN_F32, QN_F32, wrong, 2, 0, NULL, &call), QN_BAD_ARGUMENT, "[..., n, 2*n]\" makes it 18");
  refuses(call_of(folder, QN_F32, QN_F32, none, 2, 0, NULL, &call), QN_BAD_ARGUMENT, "it must be above 0");
  refuses(call_of(folder, QN_F32, QN_F32, x_shape, 3, 1, typo, &call), QN_BAD_ARGUMENT, "did you mean TILE?");
  refuses(call_of(folder, QN_F32, QN_F32, x_shape, 3, 1, real, &call), QN_BAD_ARGUMENT, "must be a whole number");
  check(!call, "and no call is made");
  qn_kernel_folder_destroy(&folder);
}

static void mistakes(void)
{
  mistake("\"grid\"", "\"gird\"", "did you mean \"grid\"?");
  mistake("\"name\": \"k\", ", "", "the member \"name\" is missing");
  mistake("\"name\": \"k\"", "\"name\": \"a kernel\"", "must be a C identifier");
  mistake("\"name\": \"k\"", "\"name\": 3", "is a whole number, it must be a text");
  mistake("k.metal", "nothere.metal", "No such file");
  mistake("k.metal", "../k.metal", "in the folder");
  mistake("k.metal", "/k.metal", "in the folder");
  mistake("f32|f16", "f32|f17", "did you mean f16?");
  mistake("f32|f16", "f32|f32", "f32 stands twice");
  mistake("f32|f16", "", "a storage type is missing");
  mistake("[n, 2]", "", "extents are missing");
  mistake("[n, 2]", "[n, 2", "the ] behind the extents is missing");
  mistake("[n, 2]", "[n,, 2]", "an extent should stand here");
  mistake("[n, 2]", "[n, 2] dens", "only \"dense\"");
  mistake("x.dtype [n]", "x.dtype [like z]", "like z: there is no tensor of that name");
  mistake("x.dtype [n]", "x.dtype [like x without d0]", "no dimension of a tensor has a name");
  mistake("x.dtype [n]", "x.dtype [...3]", "is what a size says");
  mistake("x.dtype [n]", "z.dtype [n]", "there is no input z");
  mistake("x.dtype [n]", "f32|f16 [n]", "an output has one type");
  mistake("\"y\": \"x.dtype [n]\"", "\"x\": \"f32 [n]\"", "is an input already");
  mistake("{\"y\": \"x.dtype [n]\"}", "{}", "there is none; a kernel has at least one");
  mistake("\"x.dtype [n]\"", "7", "it must be a contract");
  mistake("\"T\": \"x.dtype\"", "\"T\": \"xx.dtype\"", "there is no input or output xx");
  mistake("\"T\": \"x.dtype\"", "\"T\": 1.5", "is a number with a fraction, it must be a storage type");
  mistake("ceildiv(n, TILE)", "ceildiv(n, TIEL)", "templates.M: an unknown name TIEL");
  mistake("{\"s\": 0.5}", "{\"x\": 0.5}", "x has extents");
  mistake("{\"s\": 0.5}", "{\"t\": 0.5}", "there is no input t");
  mistake("align(n, TILE)", "align(n, )", "grid[0]");
  mistake("[\"align(n, TILE)\"]", "[]", "one to three");
  mistake("\"grid\": [\"align(n, TILE)\"], ", "", "the member \"grid\" is missing");
  mistake("[32, 2]", "[32, 1.5]", "threadgroup[1]: is a number with a fraction");
  mistake("{\"n\": 3}", "{\"m\": 3}", "sizes[0]: m is no extent");
  mistake("{\"n\": 3}", "{}", "the extent n has no value");
  mistake("{\"n\": 3}", "{\"n\": -3}", "must not be negative");
  mistake("{\"n\": 3}", "{\"n\": \"3\"}", "must be a whole number");
  mistake("{\"n\": 3}", "{\"n\": 3, \"fill\": {\"z\": \"zeros\"}}", "there is no input z");
  mistake("{\"n\": 3}", "{\"n\": 3, \"fill\": {\"x\": \"zeroes\"}}", "did you mean zeros?");
  mistake("{\"n\": 1000}", "[1000]", "workloads.big: is a list");
  mistake("[8, 8]", "[8, 0]", "candidate 2");
  mistake("\"TILE\": [1, 2]", "\"TIEL\": [1, 2]", "did you mean TILE?");
  mistake("\"TILE\": [1, 2]", "\"T\": [1, 2]", "can be tuned");
  mistake("n * x.bytes", "n * z.bytes", "bytes: an unknown name z.bytes");
  mistake("\"bytes\"", "\"agreement\": \"bitwsie\", \"bytes\"", "it can be \"bitwise\"");
  mistake("\"bytes\"", "\"agreement\": {\"ulp\": -1}, \"bytes\"", "at least 0");
  mistake("\"bytes\"", "\"fill\": {\"x\": \"nromal\"}, \"bytes\"", "did you mean normal?");
  mistake("\"bytes\"", "\"fill\": {\"x\": \"uniform 2 1\"}, \"bytes\"", "FROM must be below TO");
  mistake("\"bytes\"", "\"fill\": {\"x\": \"below m\"}, \"bytes\"", "fill.x: an unknown name m");
  mistake("\"bytes\"", "\"in_place\": {\"y\": \"z\"}, \"bytes\"", "there is no input z");
  mistake("\"bytes\"", "\"math\": \"saef\", \"bytes\"", "did you mean safe?");
  mistake("\"bytes\"", "\"dialect\": \"opencl\", \"bytes\"", "it can be \"metal\", \"cuda\"");
  mistake("\"bytes\"", "\"strided\": [\"z\"], \"bytes\"", "there is no input z");
  mistake("\"bytes\"", "\"reference\": {\"sorce\": \"r\"}, \"bytes\"", "did you mean \"source\"?");
  mistake("\"bytes\"", "\"name\": \"k\", \"bytes\"", "stands twice");
  mistake("{\"name\"", "{{\"name\"", "kernel.json:1:");
  mistake("\"sizes\": [{\"n\": 3}, {\"n\": 9, \"TILE\": 2}], \"workloads\": {\"big\": {\"n\": 1000}}, ", "",
          "the member \"sizes\" is missing");
  qn_folder *folder = NULL;
  refuses(qn_folder_read("/nowhere/at/all", &folder), QN_BAD_FILE, "quern kernel new");
  refuses(qn_folder_read(scratch, &folder), QN_BAD_FILE, "has a file kernel.json");
}

/* ---- numbers ---- */
static void elements(void)
{
  bool back = true;
  for (int d = 1; d <= QN_C64; d++) {
    unsigned char at[16] = {0};
    qn_number_store((qn_dtype)d, at, 1);
    back = back && qn_number_load((qn_dtype)d, at) == 1;
  }
  check(back, "every type stores and loads 1");
  int8_t small;
  uint64_t large;
  int64_t signed_large;
  qn_number_store(QN_I8, &small, 1e9);
  qn_number_store(QN_U64, &large, 1e30);
  qn_number_store(QN_I64, &signed_large, -1e30);
  check(small == 127 && large == UINT64_MAX && signed_large == INT64_MIN, "what does not fit is the nearest that does");
  qn_number_store(QN_I8, &small, -200);
  check(small == -128 && qn_number_load(QN_I8, &small) == -128, "on both sides");
}

static void fills(void)
{
  const int64_t shape[] = {2, 4, 4};
  float a[32], b[32];
  qn_filler f = {.dtype = QN_F32, .seed = 3, .role = 0, .ndim = 3, .shape = shape};
  qn_pool *pool = NULL;
  qn_pool_create(&pool, 3);
  qn_rule_read("spd 0.5", &f.rule);
  check(qn_fill_array(&f, NULL, a) == QN_OK && qn_fill_array(&f, pool, b) == QN_OK && !memcmp(a, b, sizeof a),
        "the same numbers with any number of threads");
  bool right = true;
  for (int m = 0; m < 2; m++)
    for (int r = 0; r < 4; r++)
      for (int k = 0; k < 4; k++)
        right = right && a[16 * m + 4 * r + k] == a[16 * m + 4 * k + r] && a[16 * m + 5 * r] > 0.5f;
  check(right, "spd is symmetric with a diagonal above what was added");
  qn_rule_read("diagonal 8", &f.rule);
  right = qn_fill_array(&f, pool, a) == QN_OK;
  for (int k = 0; k < 32; k++)
    right = right && fabsf(a[k] - (k % 16 % 5 ? 0 : 8)) <= 3.5f / 2 && a[k] != (k % 16 % 5 ? 0 : 8);
  check(right, "diagonal adds to the diagonal of each matrix, the rest has a deviation of one half");
  int32_t whole[32];
  f.dtype = QN_I32;
  f.below = 3;
  qn_rule_read("below n", &f.rule);
  bool below = qn_fill_array(&f, NULL, whole) == QN_OK;
  for (int k = 0; k < 32; k++) below = below && whole[k] >= 0 && whole[k] < 3;
  check(below, "below 3 gives 0, 1 and 2");
  f.below = 0;
  refuses(qn_fill_array(&f, NULL, whole), QN_BAD_ARGUMENT, "it must be above 0");
  qn_rule_read("diagonal", &f.rule);
  refuses(qn_fill_array(&f, NULL, whole), QN_BAD_ARGUMENT, "rule diagonal: it makes real matrices, not of i32");
  const int64_t oblong[] = {4, 8};
  f.shape = oblong;
  f.ndim = 2;
  f.dtype = QN_F32;
  qn_rule_read("spd", &f.rule);
  refuses(qn_fill_array(&f, NULL, a), QN_BAD_ARGUMENT, "4 and 8, they must be equal");
  qn_pool_destroy(&pool);
}

/* ---- files ---- */
static void files(void)
{
  const char *path = scratch_path("a.safetensors");
  const float data[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3};
  const qn_safetensor_made out[] = {{"a", QN_F32, 2, shape, data}, {"b", QN_F32, 0, NULL, data}};
  qn_arrays back = {0};
  check(qn_arrays_write(path, out, 2) == QN_OK && qn_arrays_read(&back, path, NULL) == QN_OK && back.n == 2,
        "two arrays go to a file and come back");
  const qn_file_array *a = qn_arrays_find(&back, "a");
  check(a && a->ndim == 2 && a->shape[1] == 3 && a->dtype == QN_F32 && !memcmp(a->data, data, sizeof data),
        "with type, shape and numbers");
  refuses(qn_arrays_read(&back, path, "c"), QN_BAD_FILE, "none is called c");
  qn_arrays_free(&back);
  check(qn_arrays_write(path, &out[1], 1) == QN_OK && qn_arrays_read(&back, path, NULL) == QN_OK && back.n == 1,
        "a file that is there is replaced");
  qn_arrays_free(&back);
  char longer[8 + 64 + 64] = "\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,64]}}";
  memset(longer + 8 + strlen(longer + 8), ' ', 64 - strlen(longer + 8));
  write_file(scratch_path("longer.safetensors"), longer, sizeof longer, 0600);
  refuses(qn_arrays_read(&back, scratch_path("longer.safetensors"), NULL), QN_BAD_FILE, "bytes");
  qn_arrays_free(&back);
  char npy[128 + 8] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  size_t used = 10 + strlen(npy + 10);
  memset(npy + used, ' ', 128 - used);
  memcpy(npy + 128, data, 8);
  write_file(scratch_path("v.npy"), npy, sizeof npy, 0600);
  check(qn_arrays_read(&back, scratch_path("v.npy"), "v") == QN_OK && back.n == 1 && back.array[0].shape[0] == 2 &&
            ((float *)back.array[0].data)[1] == 2,
        "a .npy file is read");
  write_file(scratch_path("w.npy"), npy, sizeof npy - 1, 0600);
  refuses(qn_arrays_read(&back, scratch_path("w.npy"), "w"), QN_BAD_FILE, "are not there");
  memcpy(strstr(npy + 10, "False"), "True ", 5);
  write_file(scratch_path("x.npy"), npy, sizeof npy, 0600);
  refuses(qn_arrays_read(&back, scratch_path("x.npy"), "x"), QN_BAD_FILE, "column by column");
  write_file(scratch_path("y.npy"), "nothing", 7, 0600);
  refuses(qn_arrays_read(&back, scratch_path("y.npy"), "y"), QN_BAD_FILE, "does not begin");
  qn_arrays_free(&back);
}

int main(void)
{
  scratch_begin();
  expressions();
  hostile_expressions();
  good_folder();
  calls();
  mistakes();
  elements();
  fills();
  files();
  return test_end();
}
