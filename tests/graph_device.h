/* SPDX-License-Identifier: Apache-2.0 */
/* graph_device.h - how a GPU's long rows are cut: variances read them once, and few columns are many threadgroups. */

/* Rows that no threadgroup can hold, along memory and side by side in it, with a mean far from zero and parts whose
 * means are far apart. The first kernel reads, the second puts parts together. */
static void variances(void)
{
  static const struct {
    const char *shape, *strides, *dims, *result, *parts;
    bool across;
    const char *beside; /* what is added, 64 times as large */
  } cases[] = {{"2,10,4000", NULL, "[1,2]", "2", "10 rows of 8000", false, "10,1"},
               {"3,32777", NULL, "[1]", "3", NULL, false, "1"}, /* a prime: there are no parts */
               {"4,24,30,40", "28800,1,960,24", "[0,2,3]", "24", "240 rows of 480", true, "4,1,1,1"},
               {"21,100,33", NULL, "[0,1]", "33", "165 rows of 420", true, "21,1,1"},
               {"3,20,6,1200", NULL, "[1,3]", "3,6", NULL, false, "20,1,1"}}; /* it is held */
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int on = 0; on < 2; on++) {
      char args[48];
      qn_graph_plan *plan = NULL;
      snprintf(args, sizeof args, "$a,%s", cases[k].dims);
      describe(devices[on]);
      input("x", "f32", cases[k].shape, cases[k].strides);
      input("y", "f32", cases[k].beside, NULL);
      node("t", "aten.mul.Tensor", "$y,64", "f32", cases[k].beside);
      laid = cases[k].strides;
      node("a", "aten.add.Tensor", "$x,$t", "f32", cases[k].shape);
      node("v", "aten.var.correction", args, "f32", cases[k].result);
      const bool parts = cases[k].parts && (on || cases[k].across); /* a processor's caches hold a row */
      const char *told = held_plan(&plan, "a variance", ready("\"v\""), parts ? 2 : 0, false);
      check(!parts || (strstr(told, cases[k].parts) && (!on || strstr(told, "= h0[k"))),
            "each element is read once: %s", told);
      qn_graph_plan_destroy(&plan);
    }
}

static int reads_of(const char *plan, const char *name)
{
  char words[48];
  int n = 0;
  snprintf(words, sizeof words, "{\"ref\":\"%s\"", name);
  for (const char *at = plan; (at = strstr(at, words)); at++) n++;
  return n;
}

/* Variances of a tensor, of that and another one behind it, and of both and a third: each tensor is read once. Without
 * a memory of what is known the first is read three times. */
static void shared_variances(void)
{
  for (int on = 0; on < 4; on++) {
    const bool across = on >= 2;
    qn_graph_plan *plan = NULL;
    describe(devices[on % 2]);
    input("x", "f32", "2,3,60,300", across ? "54000,1,900,3" : NULL);
    input("y", "f32", "2,5,60,300", across ? "90000,1,1500,5" : NULL);
    input("z", "f32", "2,1,60,300", NULL);
    node("v", "aten.var.correction", "$x,[0,2,3]", "f32", "3");
    laid = across ? "144000,1,2400,8" : NULL;
    node("a", "aten.cat.default", "[$x,$y],1", "f32", "2,8,60,300");
    node("va", "aten.var.correction", "$a,[0,2,3]", "f32", "8");
    laid = across ? "162000,1,2700,9" : NULL;
    node("b", "aten.cat.default", "[$a,$z],1", "f32", "2,9,60,300");
    node("vb", "aten.var.correction", "$b,[0,2,3]", "f32", "9");
    const char *told = held_plan(&plan, "variances", ready("\"v\",\"va\",\"vb\""), 0, false);
    const bool parts = on % 2 && !across; /* z lies along memory; a processor's caches hold a row */
    check(!(parts || across) || (reads_of(told, "x") == 1 + across && reads_of(told, "y") == 1 + across),
          "no tensor is read again: %s", told);
    qn_graph_plan_destroy(&plan);
  }
  /* What is shared is no kernel: who shares it is the caller's too. */
  describe("cuda");
  input("x", "f32", "1,4194304,40000", NULL);
  input("y", "f32", "1,1,40000", NULL);
  node("v", "aten.var.correction", "$x,[2]", "f32", "1,4194304");
  node("a", "aten.cat.default", "[$x,$y],1", "f32", "1,4194305,40000");
  node("w", "aten.var.correction", "$a,[2]", "f32", "1,4194305");
  qn_graph_plan *plan = NULL;
  const char *graph = ready("\"v\",\"w\"");
  check(!qn_graph_plan_create(&plan, graph, strlen(graph), NULL) &&
            !strstr(qn_graph_plan_text(plan), "\"kind\":\"kernel\""),
        "too many threads: %s", qn_graph_plan_text(plan));
  qn_graph_plan_destroy(&plan);
}

/* Windows that overlap, of many places: those of four lines, or of two, are a thread's. What such plans compute is held
 * by python/tests/test_torch_optimize_rows.py: the reference takes long for so many. */
static void lines_of_windows(void)
{
  static const struct {
    const char *op, *args, *shape, *result, *strides;
    int lines;
  } cases[] = {
      {"aten.max_pool2d.default", "$x,[3,3],[1,1],[1,1]", "2,2,512,516", "2,2,512,516", NULL, 4},
      {"aten.avg_pool2d.default", "$x,[5,3],[1,2],[2,1]", "2,2,512,1040", "2,2,512,520", NULL, 4},
      {"aten.max_pool2d.default", "$x,[5,5],[1,1],[2,2]", "2,2,512,516", "2,2,512,516", NULL, 2},
      {"aten.max_pool2d.default", "$x,[3,3],[1,1],[1,1]", "1,2,2,262144", "1,2,2,262144", NULL, 2},
      {"aten.max_pool2d.default", "$x,[2,2],[2,2]", "2,2,1024,1032", "2,2,512,516", NULL, 1}, /* apart */
      {"aten.max_pool2d.default", "$x,[3,3],[1,1],[1,1]", "1,4,512,512", "1,4,512,512", "1048576,1,2048,4", 4}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    char words[32];
    describe("cuda");
    input("x", "f32", cases[k].shape, cases[k].strides);
    laid = cases[k].strides;
    node("y", cases[k].op, cases[k].args, "f32", cases[k].result);
    const char *graph = ready("\"y\"");
    check(!qn_graph_plan_create(&plan, graph, strlen(graph), NULL), "a plan of windows");
    const char *told = qn_graph_plan_text(plan);
    snprintf(words, sizeof words, "float a0[%d];", cases[k].lines);
    check(strstr(told, words) != NULL, "%s of %d lines: %s", cases[k].op, cases[k].lines, told);
    qn_graph_plan_destroy(&plan);
  }
}

/* Neighbours in what is read are far apart in what is written: neighbouring threads have both. */
static void pieces_of_lines(void)
{
  static const struct {
    const char *shape, *strides, *result, *dtype, *place;
  } cases[] = {{"2,40,58,62", "143840,1,2480,40", NULL, "f32", "q = t / 160 % 225 * 4 + t % 4;\\nif (q < 899) {"},
               {"2,40,57,61", "139080,1,2440,40", NULL, "f32", "q = t / 640 % 218 * 16 + t % 16;\\nif (q < 3477) {"},
               {"2,40,56,64", "143360,1,2560,40", NULL, "bf16", "q = t / 160 % 112 * 4 + t % 4;\\nq_pack<bfloat, 8>"},
               {"5,6,80,75", NULL, "36000,1,450,6", "f32", "c = t / 3 % 6000, q = t % 3;\\nq_pack<float, 2>"},
               {"600,700", "1,600", NULL, "f32", "c = t / 4 % 600, q = t / 2400 % 44 * 4 + t % 4;\\nif (q < 175) {"},
               {"3,200,300", "1,900,3", NULL, "f32", NULL}}; /* three neighbours are too few */
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    describe("cuda");
    input("x", cases[k].dtype, cases[k].shape, cases[k].strides);
    laid = cases[k].result;
    node("y", "aten.mul.Tensor", "$x,3", cases[k].dtype, cases[k].shape);
    const char *told = held_plan(&plan, "pieces of lines", ready("\"y\""), 0, false);
    check(!cases[k].place == !strstr(told, "an element a thread, in pieces of lines") &&
              (!cases[k].place || strstr(told, cases[k].place)),
          "%s in pieces of lines: %s", cases[k].shape, told);
    qn_graph_plan_destroy(&plan);
  }
}

/* Few columns: in parts, each of neighbouring columns. */
static void columns(void)
{
  static const struct {
    const char *op, *args, *shape, *result, *dtype, *place, *why;
  } cases[] = {{"aten.sum.dim_IntList", "$x,[0]", "9000,40", "40", "f32", "int(uint(o) % 40u)", "1440 rows of 250"},
               {"aten.amax.default", "$x,[0]", "8192,100", "100", "f32", "int(uint(o) % 100u)", "3200 rows of 256"},
               {"aten.argmin.default", "$x,0", "1000,33", "33", "i64", "i0[o + q * 33]", "33 rows of 1000"}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    describe("cuda");
    input("x", "f32", cases[k].shape, NULL);
    node("y", cases[k].op, cases[k].args, cases[k].dtype, cases[k].result);
    const char *told = held_plan(&plan, "columns", ready("\"y\""), 0, false);
    check(strstr(told, cases[k].place) && strstr(told, cases[k].why), "%s of columns: %s", cases[k].op, told);
    qn_graph_plan_destroy(&plan);
  }
  qn_graph_plan *plan = NULL; /* many that several loops read: a threadgroup holds them; not run, for it is long */
  describe("cuda");
  input("x", "f32", "65,262144", NULL);
  node("y", "aten._softmax.default", "$x,0,false", "f32", "65,262144");
  const char *graph = ready("\"y\"");
  check(!qn_graph_plan_create(&plan, graph, strlen(graph), NULL), "a plan of many columns");
  const char *told = qn_graph_plan_text(plan);
  check(strstr(told, "rows side by side: 262144") && strstr(told, "= h0[k]"), "many columns are held: %s", told);
  qn_graph_plan_destroy(&plan);
  clear();
}

/* Places have 64 bits where one is above 31, and not where windows alone are more than 2^31. */
static void wide_places(void)
{
  static const struct {
    const char *op, *args, *shape, *result;
    bool wide;
  } cases[] = {
      {"aten.max_pool2d.default", "$x,[3,3],[1,1],[1,1]", "10,480,224,224", "10,480,224,224", false},
      {"aten.max_pool2d.default", "$x,[2,2],[2,2]", "10,480,1024,1024", "10,480,512,512", true},
      {"aten.sum.dim_IntList", "$e,[0,1]", "3,1", "", true}, /* its quotients are */
  };
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    describe("cuda");
    input("x", "f32", cases[k].shape, NULL);
    node("e", "aten.expand.default", "$x,[3,1073741824]", "f32", "3,1073741824");
    node("y", cases[k].op, cases[k].args, "f32", cases[k].result);
    const char *graph = ready("\"y\"");
    check(!qn_graph_plan_create(&plan, graph, strlen(graph), NULL), "a plan of many elements");
    const char *told = qn_graph_plan_text(plan);
    check(strstr(told, "\"kernel\"") && (strstr(told, "long(ulong(") != NULL) == cases[k].wide, "%s: %s", cases[k].op,
          told);
    qn_graph_plan_destroy(&plan);
  }
}
