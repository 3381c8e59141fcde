/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_refusals.c - bad kernels and bad calls: each gets a status and a sentence with what is wrong, writes nothing,
 * and the next launch works. */
#include "kernel_use.h"
#include "scratch.h"

/* ---- sources ---- */

static qn_kernel_source good_source(void)
{
  static const char *const inputs[] = {"a", "b"}, *const outputs[] = {"out"};
  return (qn_kernel_source){.size = sizeof(qn_kernel_source),
                            .name = "good",
                            .body = "out[thread_position_in_grid.x] = a[0] + b[0];",
                            .n_inputs = 2,
                            .n_outputs = 1,
                            .inputs = inputs,
                            .outputs = outputs};
}

static void bad_source(const qn_kernel_source *source, const char *words)
{
  qn_kernel *kernel = (qn_kernel *)&kernel;
  refuses(qn_kernel_create(&kernel, source), QN_BAD_ARGUMENT, words);
  if (kernel) check(false, "and gives no kernel");
}
#define BAD_SOURCE(words, ...)                                                                                         \
  do {                                                                                                                 \
    qn_kernel_source s = good_source();                                                                                \
    __VA_ARGS__;                                                                                                       \
    bad_source(&s, words);                                                                                             \
  } while (0)
#define NAMES(...) ((const char *const[]){__VA_ARGS__})

#define TEN "like a, like a, like a, like a, like a, like a, like a, like a, like a, like a, "
static void sources(void)
{
  qn_kernel_source good = good_source();
  refuses(qn_kernel_create(NULL, &good), QN_BAD_ARGUMENT, "NULL");
  bad_source(NULL, "NULL");
  BAD_SOURCE("size 8", s.size = 8);
  BAD_SOURCE("\"\" is no identifier", s.name = NULL);
  BAD_SOURCE("\"my exp\" is no identifier", s.name = "my exp");
  BAD_SOURCE("\"1st\" is no identifier", s.name = "1st");
  BAD_SOURCE("\"\" is no identifier", s.name = "");
  BAD_SOURCE("at most 40", s.name = "an_identifier_that_is_longer_than_any_kernel_needs_to_be");
  BAD_SOURCE("body is NULL", s.body = NULL);
  BAD_SOURCE("7 is no dialect", s.dialect = (qn_dialect)7);
  BAD_SOURCE("-1 is no math mode", s.math = (qn_math)-1);
  BAD_SOURCE("no output", s.n_outputs = 0);
  BAD_SOURCE("40 inputs", s.n_inputs = 40);
  BAD_SOURCE("names of its inputs are NULL", s.inputs = NULL);
  BAD_SOURCE("names of its outputs are NULL", s.outputs = NULL);
  BAD_SOURCE("name of an input is NULL", s.inputs = NAMES("a", NULL));
  BAD_SOURCE("\"b-c\" is no identifier", s.inputs = NAMES("a", "b-c"));
  BAD_SOURCE("called \"a\"", s.inputs = NAMES("a", "a"));
  BAD_SOURCE("called \"b\"", s.outputs = NAMES("b"));
  BAD_SOURCE("\"float\" is a word", s.inputs = NAMES("a", "float"));
  BAD_SOURCE("\"threadgroup\" is a word", s.outputs = NAMES("threadgroup"));
  BAD_SOURCE("quern's own", s.outputs = NAMES("qn_out"));
  BAD_SOURCE("strided has a bit", s.strided = 4);
  BAD_SOURCE("atomic has a bit", s.atomic = 2);
  BAD_SOURCE("its file's name", s.file = "a\"b");
  BAD_SOURCE("good", s.body = "out[0] = \"without end;");
  BAD_SOURCE("good", s.header = "/* without end");
  BAD_SOURCE("at character 1: a storage type should stand here", s.contracts = NAMES("f33 [n]", NULL, NULL));
  BAD_SOURCE("at character 1: kernels from a body do not take f8e4m3", s.contracts = NAMES("f8e4m3 [n]", NULL, NULL));
  BAD_SOURCE("the bracket does not end", s.contracts = NAMES(NULL, "f32 [n", NULL));
  BAD_SOURCE("output \"out\", \"f32 [n] thick\", at character 9", s.contracts = NAMES(NULL, NULL, "f32 [n] thick"));
  BAD_SOURCE("what stands before .dtype is no input's name", s.contracts = NAMES(NULL, NULL, "out.dtype [n]"));
  BAD_SOURCE("only .dtype", s.contracts = NAMES(NULL, NULL, "a.shape"));
  BAD_SOURCE("an extent should stand here", s.contracts = NAMES("f32 [n, ]", NULL, NULL));
  BAD_SOURCE("an extent should stand here", s.contracts = NAMES("f32 [-1]", NULL, NULL));
  BAD_SOURCE("an extent should stand here", s.contracts = NAMES("f32 [n, ...]", NULL, NULL));
  BAD_SOURCE("an extent should stand here", s.contracts = NAMES("f32 [n, 1...]", NULL, NULL));
  BAD_SOURCE("an unknown name m (known: n) at character 5", s.contracts = NAMES("f32 [n]", "f32 [n + m]", NULL));
  BAD_SOURCE("no tensor before this one", s.contracts = NAMES("f32 [like b]", NULL, NULL));
  BAD_SOURCE("no dimension of a tensor has a name", s.contracts = NAMES("f32 [n]", "f32 [like a without d0]", NULL));
  BAD_SOURCE("more than 47 characters",
             s.contracts = NAMES("f32 [n + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1]", NULL, NULL));
  BAD_SOURCE("at most 32 dimensions",
             s.contracts = NAMES("f32 []", "f32 [" TEN TEN TEN "like a, like a, like a, like a]", NULL));
  BAD_SOURCE("above 2^63 - 1", s.contracts = NAMES("f32 [9223372036854775808]", NULL, NULL));
  BAD_SOURCE("belongs to no contract", s.contracts = NAMES("f32 [n] dense [m]", NULL, NULL));
}

/* ---- calls ---- */

/* A call whose every part can be spoiled. */
typedef struct scene {
  float x[64], y[64], z[64];
  int64_t shape[3][2], strides[2];
  qn_tensor in[2], out[2];
  qn_template templates[2];
  qn_value init[2];
  int stored_in[2];
  qn_exec exec;
  qn_kernel_call call;
} scene;

static void set(scene *s)
{
  *s = (scene){.exec = {.size = sizeof s->exec}, .stored_in = {-1, -1}};
  for (int k = 0; k < 64; k++) s->x[k] = (float)k, s->y[k] = s->z[k] = -7;
  for (int k = 0; k < 3; k++) s->shape[k][0] = 4, s->shape[k][1] = 3;
  s->in[0] = (qn_tensor){s->x, QN_F32, 2, s->shape[0], NULL, cpu};
  s->in[1] = (qn_tensor){s->x + 32, QN_F32, 0, NULL, NULL, cpu};
  s->out[0] = (qn_tensor){s->y, QN_F32, 2, s->shape[1], NULL, cpu};
  s->out[1] = (qn_tensor){s->z, QN_F32, 2, s->shape[2], NULL, cpu};
  s->templates[0] = (qn_template){"N", {.kind = QN_VALUE_INT, .integer = 12}};
  s->templates[1] = (qn_template){"T", {.kind = QN_VALUE_DTYPE, .dtype = QN_F32}};
  s->call = (qn_kernel_call){.size = sizeof s->call,
                             .inputs = s->in,
                             .outputs = s->out,
                             .n_templates = 2,
                             .templates = s->templates,
                             .grid = {12, 1, 1},
                             .group = {4, 1, 1}};
}

static const use scene_use = {.name = "scene",
                              .inputs = "a b",
                              .outputs = "y z",
                              .body = "uint i = thread_position_in_grid.x; y[i] = a[i] + b + T(N); z[i] = y[i];"};
static qn_kernel *kernel;

static bool untouched(const scene *s)
{
  for (int k = 0; k < 64; k++)
    if (s->x[k] != (float)k || s->y[k] != -7 || s->z[k] != -7) return false;
  return true;
}

static bool works(void)
{
  scene s;
  set(&s);
  return !qn_kernel_launch(kernel, &s.exec, &s.call) && s.y[11] == 11 + 32 + 12 && s.z[11] == s.y[11] && s.y[12] == -7;
}

static void bad_call(scene *s, qn_status status, const char *words)
{
  const bool refused = refuses(qn_kernel_launch(kernel, &s->exec, &s->call), status, words);
  if (refused && !(untouched(s) && works())) check(false, "and nothing is written, and the next one works");
}
#define BAD_CALL(status, words, ...)                                                                                   \
  do {                                                                                                                 \
    scene s;                                                                                                           \
    set(&s);                                                                                                           \
    __VA_ARGS__;                                                                                                       \
    bad_call(&s, status, words);                                                                                       \
  } while (0)
#define BAD(words, ...) BAD_CALL(QN_BAD_ARGUMENT, words, __VA_ARGS__)

static void calls(void)
{
  scene good;
  set(&good);
  refuses(qn_kernel_launch(NULL, &good.exec, &good.call), QN_BAD_ARGUMENT, "NULL");
  refuses(qn_kernel_launch(kernel, NULL, &good.call), QN_BAD_ARGUMENT, "exec is NULL");
  refuses(qn_kernel_launch(kernel, &good.exec, NULL), QN_BAD_ARGUMENT, "call is NULL");
  BAD("exec", s.exec.size = 8);
  BAD("call", s.call.size = 8);
  BAD("inputs are NULL", s.call.inputs = NULL);
  BAD("outputs are NULL", s.call.outputs = NULL);
  BAD("a has no storage type that is known (99)", s.in[0].dtype = (qn_dtype)99);
  BAD("z has no storage type that is known (0)", s.out[1].dtype = QN_NONE);
  BAD("a is f8e4m3, which kernels from a body do not take", s.in[0].dtype = QN_F8E4M3);
  BAD("a has 33 dimensions", s.in[0].ndim = 33);
  BAD("y has -1 dimensions", s.out[0].ndim = -1);
  BAD("shape of a is NULL", s.in[0].shape = NULL);
  BAD("a has an extent of 0", s.shape[0][1] = 0);
  BAD("y has an extent of -3", s.shape[1][0] = -3);
  BAD("output y has strides", s.out[0].strides = (int64_t[]){1, 4});
  BAD("the data of a is NULL", s.in[0].data = NULL);
  BAD("the data of z is NULL", s.out[1].data = NULL);
  BAD("not aligned to its 4-byte elements", s.in[0].data = (char *)s.x + 2);
  BAD("not aligned", s.out[0].data = (char *)s.y + 1);
  BAD("reach outside of all memory", s.in[0].strides = (int64_t[]){INT64_MAX / 2, 1});
  BAD("reach outside of all memory", s.shape[1][0] = INT64_MAX / 2);
  BAD("a lies on cuda:0, the launch is for cpu:0", s.in[0].device.kind = QN_CUDA);
  BAD("y lies on cpu:1", s.out[0].device.index = 1);
}

static void geometry(void)
{
  BAD("grid (0, 1, 1)", s.call.grid[0] = 0);
  BAD("grid (12, 1, 0)", s.call.grid[2] = 0);
  BAD("each must be from 1 to 4294967294", s.call.grid[1] = UINT64_C(1) << 32);
  BAD("threadgroup (4, 0, 1)", s.call.group[1] = 0);
  BAD("threadgroup (0, 1, 1)", s.call.group[0] = 0);
  BAD("1028 threads, at most 1024", s.call.group[1] = 257);
  BAD("at most 1024", s.call.group[0] = UINT32_MAX; s.call.group[1] = UINT32_MAX);
  BAD("groups, at most", s.call.grid[1] = 1 << 30; s.call.grid[2] = 4);
  BAD("time limit of -1 ns", s.call.limit_ns = -1);
  BAD("shared memory", s.call.shared_bytes = (size_t)1 << 30);
  BAD("shared memory", s.call.shared_bytes = SIZE_MAX);
}

static void templates(void)
{
  BAD("33 template values", s.call.n_templates = 33);
  BAD("template values are NULL", s.call.templates = NULL);
  BAD("\"\" is no identifier", s.templates[0].name = NULL);
  BAD("\"N M\" is no identifier", s.templates[0].name = "N M");
  BAD("T is given twice", s.templates[0].name = "T");
  BAD("N is neither a bool", s.templates[0].value.kind = QN_VALUE_FLOAT);
  BAD("N is neither a bool", s.templates[0].value.kind = QN_VALUE_NONE);
  BAD("N is neither a bool", s.templates[0].value.kind = (qn_value_kind)77);
  BAD("T is no storage type", s.templates[1].value.dtype = QN_NONE);
  BAD("T is f8e4m3, for which kernels from a body have no word", s.templates[1].value.dtype = QN_F8E4M3);
  BAD_CALL(QN_COMPILE_ERROR, "scene:1", s.call.n_templates = 1); /* T is nowhere */
}

static void memory(void)
{
  BAD("output \"z\"", s.out[1].data = s.y);
  BAD("share memory", s.out[1].data = s.y + 11);
  BAD("output \"y\"", s.out[0].data = s.x; s.in[1].data = s.z + 20);
  BAD("share memory", s.out[0].data = s.x + 11);
  BAD("input \"a\"", s.in[0].strides = (int64_t[]){20, 1}; s.out[0].data = s.x + 61);
  BAD("input \"a\"", s.in[0].data = s.x + 63; s.in[0].strides = (int64_t[]){-20, -1}; s.out[0].data = s.x + 1;
      s.shape[1][0] = s.shape[1][1] = 1);
  BAD("workspace", s.exec.workspace = s.y; s.exec.workspace_bytes = 4);
  BAD("workspace", s.exec.workspace = s.x; s.exec.workspace_bytes = 8);
  BAD("stored in input 2, there are 2", s.call.stored_in = s.stored_in; s.stored_in[0] = 2);
  BAD("stored in input -2", s.call.stored_in = s.stored_in; s.stored_in[1] = -2);
  BAD("b, which is a value", s.call.stored_in = s.stored_in; s.stored_in[0] = 1);
  BAD("it must begin there", s.call.stored_in = s.stored_in; s.stored_in[0] = 0);
  BAD("be no longer", s.call.stored_in = s.stored_in; s.stored_in[0] = 0; s.out[0].data = s.x; s.shape[1][0] = 5);
  BAD("not row-major", s.call.stored_in = s.stored_in; s.stored_in[0] = 0; s.in[0].strides = (int64_t[]){1, 4});
  BAD("both said to be stored", s.call.stored_in = s.stored_in; s.stored_in[0] = s.stored_in[1] = 0);
  BAD("a first value would overwrite", s.call.stored_in = s.stored_in; s.stored_in[0] = 0; s.out[0].data = s.x;
      s.call.init = s.init; s.init[0].kind = QN_VALUE_INT);
  BAD("first value of y is neither", s.call.init = s.init; s.init[0].kind = QN_VALUE_DTYPE);
  BAD("first value of z: 300 is no u8", s.call.init = s.init; s.out[1].dtype = QN_U8;
      s.init[1] = ((qn_value){.kind = QN_VALUE_INT, .integer = 300}));
  BAD("first value of z: 0.5 is no i32", s.call.init = s.init; s.out[1].dtype = QN_I32;
      s.init[1] = ((qn_value){.kind = QN_VALUE_FLOAT, .real = 0.5}));
  BAD("-1 is no u64", s.call.init = s.init; s.out[1].dtype = QN_U64; s.shape[2][0] = 1;
      s.init[1] = ((qn_value){.kind = QN_VALUE_FLOAT, .real = -1}));
  BAD("is no i64", s.call.init = s.init; s.out[1].dtype = QN_I64; s.shape[2][0] = 1;
      s.init[1] = ((qn_value){.kind = QN_VALUE_FLOAT, .real = 0x1p63}));
}

/* Values share nothing: they are taken before anything is written. */
static void not_refused(void)
{
  scene s;
  set(&s);
  s.in[1].data = s.y;
  s.y[0] = 5;
  check(!qn_kernel_launch(kernel, &s.exec, &s.call) && s.y[3] == 3 + 5 + 12, "a value may lie in an output: %s",
        qn_last_error());
  set(&s);
  s.out[0].data = s.x + 12; /* just behind */
  check(!qn_kernel_launch(kernel, &s.exec, &s.call) && s.x[12] == 0 + 32 + 12, "neighbours do not overlap: %s",
        qn_last_error());
}

/* ---- contracts ---- */

/* Shapes that follow from others. */
static void following(void)
{
  qn_kernel *k =
      use_make(&(use){.name = "following",
                      .inputs = "a b",
                      .outputs = "out",
                      .contracts = (const char *const[]){"f32 [n, m]", "f32 [1...]", "f32 [2 * n + m, like a]"},
                      .body = "out[0] = 1;"});
  float a[6] = {0}, b[1] = {0}, out[7 * 2 * 3];
  int64_t one[] = {1, 1}, of_out[] = {7, 2, 3}, of_a[] = {2, 3};
  const qn_tensor in[] = {{a, QN_F32, 2, of_a, NULL, cpu}, {b, QN_F32, 2, one, NULL, cpu}};
  const qn_tensor to[] = {{out, QN_F32, 3, of_out, NULL, cpu}};
  const qn_kernel_call call = CALL(.inputs = in, .outputs = to, .grid = {1, 1, 1});
  check(!qn_kernel_launch(k, &serial, &call), "what follows is as it must be: %s", qn_last_error());
  of_out[0] = 8;
  refuses(qn_kernel_launch(k, &serial, &call), QN_BAD_ARGUMENT, "extent 0 is 8, not 7");
  of_out[0] = 7, of_out[2] = 4;
  refuses(qn_kernel_launch(k, &serial, &call), QN_BAD_ARGUMENT, "extent 2 is 4, not 3");
  of_out[2] = 3, one[0] = 2;
  refuses(qn_kernel_launch(k, &serial, &call), QN_BAD_ARGUMENT, "extent 0 is 2, not 1");
  qn_kernel_destroy(&k);
}

static void contracts(void)
{
  const char *const texts[] = {"f32|f16 [n, h, 2]", "i32 [n] dense", "any [..., h]", "a.dtype [n, h]", NULL};
  qn_kernel *k = use_make(&(use){.name = "agreed",
                                 .inputs = "a b c",
                                 .outputs = "out other",
                                 .contracts = texts,
                                 .body = "out[0] = 1; other[0] = 2;"});
  float a[64] = {0}, out[64], other[1];
  int32_t b[64] = {0};
  const struct {
    const char *words;
    qn_dtype a_dtype, out_dtype;
    int a_ndim, c_ndim;
    int64_t a[3], b[1], b_stride[1], c[3], out[2];
  } cases[] = {
      {NULL, QN_F32, QN_F32, 3, 3, {4, 3, 2}, {4}, {1}, {2, 5, 3}, {4, 3}},
      {NULL, QN_F16, QN_F16, 3, 1, {1, 7, 2}, {1}, {5}, {7}, {1, 7}},
      {"\"a\" is f64 [4, 3, 2]; its contract is \"f32|f16 [n, h, 2]\": that is another storage type",
       QN_F64,
       QN_F64,
       3,
       1,
       {4, 3, 2},
       {4},
       {1},
       {3},
       {4, 3}},
      {"it has 2 dimensions, not 3", QN_F32, QN_F32, 2, 1, {4, 3}, {4}, {1}, {3}, {4, 3}},
      {"extent 2 is 3, not 2", QN_F32, QN_F32, 3, 1, {4, 3, 3}, {4}, {1}, {3}, {4, 3}},
      {"n is 5 there and 4 in input \"a\"", QN_F32, QN_F32, 3, 1, {4, 3, 2}, {5}, {1}, {3}, {4, 3}},
      {"it must be dense", QN_F32, QN_F32, 3, 1, {4, 3, 2}, {4}, {2}, {3}, {4, 3}},
      {"h is 2 there and 3 in input \"a\"", QN_F32, QN_F32, 3, 2, {4, 3, 2}, {4}, {1}, {3, 2}, {4, 3}},
      {"it has 0 dimensions, not 1 or more", QN_F32, QN_F32, 3, 0, {4, 3, 2}, {4}, {1}, {0}, {4, 3}},
      {"output \"out\" is f16 [4, 3]", QN_F32, QN_F16, 3, 1, {4, 3, 2}, {4}, {1}, {3}, {4, 3}},
      {"h is 4 there", QN_F32, QN_F32, 3, 1, {4, 3, 2}, {4}, {1}, {3}, {4, 4}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    static float c_data[64];
    const qn_tensor in[] = {{a, cases[c].a_dtype, cases[c].a_ndim, cases[c].a, NULL, cpu},
                            {b, QN_I32, 1, cases[c].b, cases[c].b_stride, cpu},
                            {c_data, QN_F32, cases[c].c_ndim, cases[c].c, NULL, cpu}};
    const qn_tensor to[] = {{out, cases[c].out_dtype, 2, cases[c].out, NULL, cpu}, ARRAY(other, QN_F32, 1)};
    const qn_kernel_call call = CALL(.inputs = in, .outputs = to, .grid = {1, 1, 1});
    other[0] = 0;
    if (cases[c].words) {
      refuses(qn_kernel_launch(k, &serial, &call), QN_BAD_ARGUMENT, cases[c].words);
      if (other[0] != 0) check(false, "nothing is written");
    } else
      check(!qn_kernel_launch(k, &serial, &call) && other[0] == 2, "what keeps the contract runs: %s", qn_last_error());
  }
  qn_kernel_destroy(&k);
}

/* ---- bodies that do not compile ---- */

static void bad_bodies(void)
{
  float out[1] = {-7};
  qn_tensor to = ARRAY(out, QN_F32, 1);
  const qn_kernel_call call = CALL(.outputs = &to, .grid = {1, 1, 1});
  const struct {
    const char *words, *body, *header, *file;
  } cases[] = {{"broken:3", "float x = 1;\n\nout[0] = nowhere;\n", NULL, NULL},
               {"mine.metal:1", "out[0] = ;", NULL, "mine.metal"},
               {"mine.metal:2", "\nout[0] = f(1);", "float f() { return 1; }", "mine.metal"},
               {"broken", "out[0] = 1; }", NULL, NULL},
               {"broken", "out[0] = g(1);", "float g(float x) {", NULL},
               {"broken:2", "out[0] = 1;\n#error stop here\n", NULL, NULL}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_kernel *broken =
        use_make(&(use){.name = "broken", .body = cases[k].body, .header = cases[k].header, .file = cases[k].file});
    for (int turn = 0; turn < 2; turn++)
      refuses(qn_kernel_launch(broken, &serial, &call), QN_COMPILE_ERROR, cases[k].words);
    check(strstr(qn_last_error(), "kernel broken") && out[0] == -7 && works(),
          "with the kernel's name, and the next kernel works");
    qn_kernel_destroy(&broken);
  }
  char file[64] = "";
  qn_kernel *absent = use_make(&(use){.name = "absent", .body = "out[0] = 3;"});
  qn_option_set("cxx", "/nowhere/c++");
  refuses(qn_kernel_launch(absent, &serial, &call), QN_NO_LIBRARY, "/nowhere/c++");
  qn_option_set("cxx", NULL);
  check(!qn_kernel_launch(absent, &serial, &call) && out[0] == 3 && !*file, "and with a compiler it works: %s",
        qn_last_error());
  qn_kernel_destroy(&absent);
}

/* ---- the other calls ---- */

static void others(void)
{
  scene s;
  set(&s);
  size_t bytes = 7;
  char *text = (char *)&s;
  qn_kernel_info info = {.size = sizeof info};
  refuses(qn_kernel_workspace_bytes(NULL, &s.call, &bytes), QN_BAD_ARGUMENT, "kernel is NULL");
  refuses(qn_kernel_workspace_bytes(kernel, NULL, &bytes), QN_BAD_ARGUMENT, "call is NULL");
  refuses(qn_kernel_workspace_bytes(kernel, &s.call, NULL), QN_BAD_ARGUMENT, "bytes is NULL");
  s.shape[0][0] = 0;
  refuses(qn_kernel_workspace_bytes(kernel, &s.call, &bytes), QN_BAD_ARGUMENT, "extent of 0");
  check(bytes == 0, "a refusal needs %zu bytes", bytes);
  refuses(qn_kernel_prepare(kernel, &s.exec, &s.call), QN_BAD_ARGUMENT, "extent of 0");
  refuses(qn_kernel_query(kernel, &s.exec, &s.call, &info), QN_BAD_ARGUMENT, "extent of 0");
  refuses(qn_kernel_text(kernel, &s.exec, &s.call, &text), QN_BAD_ARGUMENT, "extent of 0");
  check(!text, "a refusal gives no text");
  set(&s);
  info.size = 4;
  refuses(qn_kernel_query(kernel, &s.exec, &s.call, &info), QN_BAD_ARGUMENT, "qn_kernel_info");
  s.in[0].data = s.out[0].data = NULL;
  check(!qn_kernel_prepare(kernel, &s.exec, &s.call), "a launch is made ready without data: %s", qn_last_error());
  info.size = sizeof info;
  s.call.group[0] = s.call.group[1] = s.call.group[2] = 0;
  check(!qn_kernel_query(kernel, &s.exec, &s.call, &info) && info.group[0] == 256 && info.group[1] == 1 &&
            !info.fibers && info.most_threads == 1024 && !info.registers,
        "it would take groups of %u", info.group[0]);
  check(!qn_kernel_text(kernel, &s.exec, &s.call, &text) && strstr(text, "y[i] = a[i] + b + T(N)"),
        "its text has the body");
  qn_text_release(&text);
  check(!text, "a text released is NULL");
  qn_text_release(&text);
  qn_text_release(NULL);
}

static void health(void)
{
  float dbg[QN_HEALTH_COUNT] = {[QN_HEALTH_STARTED] = 1, [QN_HEALTH_SUCCESS] = 1};
  check(!qn_health_status("qr", dbg), "a healthy kernel");
  dbg[QN_HEALTH_ERROR] = 4, dbg[QN_HEALTH_ERROR_VALUE] = -0.25f, dbg[QN_HEALTH_M] = 33;
  refuses(qn_health_status("qr", dbg), QN_KERNEL_ERROR, "qr: error 4, a numerical fault (4)");
  check(strstr(qn_last_error(), "-0.25") && strstr(qn_last_error(), "m 33"), "with what it noted");
  dbg[QN_HEALTH_ERROR] = (float)(0.0 / (double)(dbg[QN_HEALTH_M] - 33));
  refuses(qn_health_status("qr", dbg), QN_KERNEL_ERROR, "nan");
  dbg[QN_HEALTH_ERROR] = 0, dbg[QN_HEALTH_SUCCESS] = 0;
  refuses(qn_health_status("qr", dbg), QN_KERNEL_ERROR, "did not come to its end");
  dbg[QN_HEALTH_STARTED] = 0;
  refuses(qn_health_status("qr", dbg), QN_KERNEL_ERROR, "did not start");
  refuses(qn_health_status(NULL, dbg), QN_BAD_ARGUMENT, "name is NULL");
  refuses(qn_health_status("qr", NULL), QN_BAD_ARGUMENT, "buffer is NULL");
}

int main(void)
{
  scratch_begin();
  qn_option_set("cache_dir", scratch_path("cache"));
  sources();
  kernel = use_make(&scene_use);
  if (!check(works(), "the good call works: %s", qn_last_error())) return test_end();
  calls();
  geometry();
  templates();
  memory();
  not_refused();
  contracts();
  following();
  bad_bodies();
  others();
  health();
  qn_kernel_destroy(&kernel);
  return test_end();
}
