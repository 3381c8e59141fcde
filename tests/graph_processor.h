/* SPDX-License-Identifier: Apache-2.0 */
/* graph_processor.h - what plans for a processor promise besides values: sums and scans nearly as if in double, rows of
 * every length in whole vectors, and places of the largest. Included by graph.c. */
#ifndef QN_TESTS_GRAPH_PROCESSOR_H
#define QN_TESTS_GRAPH_PROCESSOR_H

/* The root mean square of the errors over that of the values, of the one output of a plan. */
static double error_of_plan(const char *graph)
{
  reference r;
  qn_graph_plan *plan = NULL;
  qn_json_tree tree = {0};
  double above = 0, below = 0;
  if (reference_read(&r, graph) || qn_graph_plan_create(&plan, graph, strlen(graph), NULL)) return INFINITY;
  eighths = false;
  fill_inputs(&r, false);
  eighths = true;
  const qn_graph_value *v = &r.graph.value[r.graph.output[0]];
  const bool ran = run_plan(qn_graph_plan_text(plan), 0, &tree) > 0;
  const memory *m = ran ? find(r.graph.node[v->node].name, v->result) : NULL;
  if (m) compute(&r, r.graph.output[0]);
  for (int64_t k = 0; m && k < v->n; k++) {
    const double want = r.value[r.graph.output[0]][k], off = get_number(m, k) - want;
    above += off * off;
    below += want * want;
  }
  clear();
  qn_json_free(&tree);
  qn_graph_plan_destroy(&plan);
  reference_free(&r);
  return m ? sqrt(above / below) : (double)INFINITY;
}

/* A running sum in float is off by 1e-6 here; a scan in double by its one rounding, at most 2^-25 and less on average.
 */
static void precise(void)
{
  static const struct {
    const char *op, *args, *shape, *result;
    double most;
  } cases[] = {{"aten.cumsum.default", "$x,1", "3,5000", "3,5000", 4e-8},
               {"aten.cumsum.default", "$x,1", "3,5003", "3,5003", 4e-8},
               {"aten.cumsum.default", "$x,1", "40,50", "40,50", 4e-8},
               {"aten.cumsum.default", "$x,0", "5000,40", "5000,40", 4e-8},
               {"aten.cumsum.default", "$x,0", "131072", "131072", 4e-8},
               {"aten.mean.dim", "$x,[0]", "9000,70", "70", 2e-7},
               {"aten.mean.dim", "$x,[1]", "2,9000,70", "2,70", 2e-7},
               {"aten.sum.dim_IntList", "$x,[1]", "30,20001", "30", 2e-7},
               {"aten.sum.dim_IntList", "$x,[0]", "49152,8", "8", 2e-7},
               {"aten.mean.dim", "$x,[0]", "100000,3", "3", 2e-7},
               {"aten.sum.dim_IntList", "$x,[0,2]", "4,20,4096", "20", 2e-7},
               {"aten.sum.dim_IntList", "$x,[1]", "2,16384,16", "2,16", 2e-7}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    describe("cpu");
    input("x", "f32", cases[k].shape, NULL);
    node("y", cases[k].op, cases[k].args, "f32", cases[k].result);
    const double error = error_of_plan(ready("\"y\""));
    check(error <= cases[k].most, "%s of %s is off by %.2g", cases[k].op, cases[k].shape, error);
  }
}

/* Each element counts once, where the last lanes of a row are those of the step before as well. */
static void lengths(void)
{
  static const int lengths[] = {7, 8, 9, 15, 16, 17, 31, 33, 47, 63, 64, 65, 95, 100, 127, 129, 500, 513, 2100};
  static const char *const ops[] = {"aten.sum.dim_IntList", "aten.amax.default", "aten.prod.dim_int",
                                    "aten.logsumexp.default"};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
    char shape[32], rows[32];
    snprintf(shape, sizeof shape, "5,%d", lengths[k]);
    for (int o = 0; o < 4; o++) {
      describe("cpu");
      input("x", "f32", shape, NULL);
      node("a", "aten.sign.default", "$x", "f32", shape);
      node("b", "aten.exp2.default", "$a", "f32", shape); /* factors of a half, 1 and 2 */
      node("y", ops[o], o == 2 ? "$b,1" : "$x,[1]", "f32", "5");
      if (o != 2 || lengths[k] < 100) holds("a row of any length", ready("\"y\""), 1, o == 1, 0);
    }
    describe("cpu");
    input("x", "f32", shape, NULL);
    snprintf(rows, sizeof rows, "5,%d", 1);
    node("m", "aten.mean.dim", "$x,[1],true", "f32", rows);
    node("d", "aten.sub.Tensor", "$x,$m", "f32", shape);
    node("y", "aten._softmax.default", "$d,1,false", "f32", shape);
    holds("its softmax", ready("\"y\""), 1, k % 4 == 0, k < 6);
  }
}

static int occurrences(const char *within, const char *words)
{
  int n = 0;
  for (const char *at = strstr(within, words); at; at = strstr(at + 1, words)) n++;
  return n;
}

/* The plan's text, which `holds` with so many kernels, or "". Inline: a sanitized build believes no return value. */
__attribute__((always_inline)) static inline const char *held_plan(qn_graph_plan **plan, const char *what,
                                                                   const char *graph, int kernels, bool odd)
{
  const bool planned = holds(what, graph, kernels, odd, 0) && !qn_graph_plan_create(plan, graph, strlen(graph), NULL);
  const char *told = planned ? qn_graph_plan_text(*plan) : NULL;
  if (!told) told = "";
  return told;
}

/* tanh of a softplus as core ATen writes it has one exponential; where its threshold can be told, tanh stays. */
static void tanh_of_softplus(void)
{
  static const struct {
    const char *threshold, *log_of, *beside;
    bool known;
  } cases[] = {
      {"20", "$e", "$x", true}, {"19.5", "$e", "$x", false}, {"20", "$x", "$x", false}, {"20", "$e", "$e", false}};
  for (int k = 0; k < 8; k++) {
    char above[24], where[24];
    qn_graph_plan *plan = NULL;
    snprintf(above, sizeof above, "$x,%s", cases[k / 2].threshold);
    snprintf(where, sizeof where, "$g,%s,$l", cases[k / 2].beside);
    describe(devices[k % 2]);
    input("x", "f32", "300", NULL);
    node("e", "aten.exp.default", "$x", "f32", "300");
    node("l", "aten.log1p.default", cases[k / 2].log_of, "f32", "300");
    node("g", "aten.gt.Scalar", above, "bool", "300");
    node("s", "aten.where.self", where, "f32", "300");
    node("t", "aten.tanh.default", "$s", "f32", "300");
    const char *told = held_plan(&plan, "tanh of a softplus", ready("\"t\""), 1, false);
    check(!strstr(told, "tanh(v") == cases[k / 2].known, "tanh of a softplus: %s", told);
    qn_graph_plan_destroy(&plan);
  }
}

/* Of rows that lie across memory: no place has a quotient of the row, whatever their number is; what does not change
 * along them is computed before the loop; and the places of windows are a pointer's distance, else gcc reads each
 * element by itself. Small windows are numbers by themselves. */
static void side_by_side(void)
{
  static const struct {
    const char *op, *args, *shape, *result;
    int kernels, apart; /* loops of lanes of which the places are such a distance */
  } cases[] = {{"aten.amax.default", "$x,[0]", "40,95", "95", 1, 0},
               {"aten.mean.dim", "$x,[0]", "40,4095", "4095", 1, 0},
               {"aten._softmax.default", "$x,1,false", "3,20,49", "3,20,49", 1, 0},
               {"aten._log_softmax.default", "$x,1,false", "2,9,5,33", "2,9,5,33", 1, 0},
               {"aten.argmax.default", "$x,1", "2,33,200", "2,200", 1, 0},
               {"aten.argmax.default", "$x,1", "320,4", "320", 1, 0},
               {"aten._softmax.default", "$x,1,false", "77,3", "77,3", 1, 0},
               {"aten.cumsum.default", "$x,1", "2,20,77", "2,20,77", 1, 0},
               {"aten.avg_pool1d.default", "$x,[8],[1],[4]", "2,3,100", "2,3,101", 1, 1},
               {"aten.max_pool2d.default", "$x,[4,4],[1,1],[1,1]", "2,3,20,30", "2,3,19,29", 1, 1},
               {"aten.max_pool2d.default", "$x,[3,3],[2,2],[1,1]", "2,3,40,40", "2,3,20,20", 1, 1},
               {"aten.max_pool2d.default", "$x,[2,2],[2,2],[1,1],[3,3]", "1,3,20,20", "1,3,10,10", 1, 1},
               {"aten.max_pool3d.default", "$x,[2,2,2],[2,2,2]", "1,4,8,8,8", "1,4,4,4,4", 1, 1},
               {"aten.max_pool2d.default", "$x,[6,6],[3,3],[3,3]", "1,4,30,60", "1,4,11,21", 1, 1},
               {"aten.avg_pool2d.default", "$x,[3,3],[2,2],[1,1]", "2,3,40,40", "2,3,20,20", 1, 1}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    describe("cpu");
    input("x", "f32", cases[k].shape, NULL);
    node("y", cases[k].op, cases[k].args, strstr(cases[k].op, "arg") ? "i64" : "f32", cases[k].result);
    const char *told = held_plan(&plan, "rows side by side", ready("\"y\""), cases[k].kernels, k == 0);
    check(strstr(told, "rows side by side") && !strstr(told, "uint(x") && !strstr(told, "uint(j") &&
              !strstr(told, "uint(o"),
          "%s of %s has no quotients of rows\n%s", cases[k].op, cases[k].shape, told);
    const bool few = !strstr(cases[k].args, "[6,6]"); /* 36 elements of a window are too many to be numbers */
    check(occurrences(told, "GCC unroll 128") == (few && occurrences(told, "uint(q)")),
          "%s of %s has numbers for a window's places\n%s", cases[k].op, cases[k].shape, told);
    check(!cases[k].apart == !strstr(told, "i0[v"), "%s of %s by distances\n%s", cases[k].op, cases[k].shape, told);
    qn_graph_plan_destroy(&plan);
  }
}

/* What is computed of elements that lie apart is computed of an array of them; what is cheap reads them as it goes. */
static void gathered(void)
{
  static const struct {
    const char *op, *shape, *strides, *loop;
  } cases[] = {{"aten.exp.default", "4,40,32", "1280,1,40", "for (int x = 0; x < 32; x++) {\\nl0[x] = float(i0["},
               {"aten.log1p.default", "2,24,90", "2160,1,24", "x < from + 45; x++) {\\nl0[x - from] = float(i0["},
               {"aten.neg.default", "4,40,32", "1280,1,40", NULL}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    describe("cpu");
    input("x", "f32", cases[k].shape, cases[k].strides);
    node("y", cases[k].op, "$x", "f32", cases[k].shape);
    const char *told = held_plan(&plan, "elements apart", ready("\"y\""), 1, false);
    check(cases[k].loop ? strstr(told, cases[k].loop) != NULL : !strstr(told, " l0["), "%s of elements apart: %s",
          cases[k].op, told);
    qn_graph_plan_destroy(&plan);
  }
}

/* What is stored beside its sum is computed once, also where a row is too long to be held; what needs the sum, behind
 * it. */
static void stored_early(void)
{
  static const char *const dims[] = {"[1]", "[0]"};
  for (int k = 0; k < 4; k++) {
    qn_graph_plan *plan = NULL;
    describe("cpu");
    input("x", "f32", "20,5003", NULL);
    node("y", "aten.exp.default", "$x", "f32", "20,5003");
    char args[16];
    snprintf(args, sizeof args, "$y,%s,true", dims[k % 2]);
    node("s", "aten.sum.dim_IntList", args, "f32", k % 2 ? "1,5003" : "20,1");
    node("z", "aten.div.Tensor", "$y,$s", "f32", "20,5003");
    const char *graph = ready(k < 2 ? "\"y\",\"s\"" : "\"y\",\"z\"");
    const char *told = held_plan(&plan, "a sum beside its terms", graph, 1, true);
    check(occurrences(told, "= exp(") == (k < 2 ? 1 : 2 - k % 2) && occurrences(told, "o0[") == 1, "%s", told);
    qn_graph_plan_destroy(&plan);
  }
}

/* Sums of larger windows, and of narrow results, are as fast in a thread each. */
static void alone(void)
{
  static const struct {
    const char *args, *shape, *result;
  } cases[] = {{"$x,[5,5],[2,2],[2,2]", "2,3,64,64", "2,3,32,32"}, {"$x,[2,2],[2,2]", "2,9,8,8", "2,9,4,4"}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    describe("cpu");
    input("x", "f32", cases[k].shape, NULL);
    node("y", "aten.avg_pool2d.default", cases[k].args, "f32", cases[k].result);
    const char *told = held_plan(&plan, "a thread a row", ready("\"y\""), 1, true);
    check(strstr(told, "a thread a row") != NULL, "sums of %s of %s have a thread each", cases[k].args, cases[k].shape);
    qn_graph_plan_destroy(&plan);
  }
}

/* Windows read what is dear from memory, where it was computed in whole vectors; what is cheap they compute, and on a
 * GPU all. */
static void dear(void)
{
  static const struct {
    const char *device, *op, *args;
    int kernels;
  } cases[] = {{"cpu", "aten.tanh.default", "[2,2],[2,2]", 2},
               {"cpu", "aten.relu.default", "[2,2],[2,2]", 1},
               {"cpu", "aten.exp.default", "[3,3],[2,2],[1,1]", 2},
               {"cpu", "aten.abs.default", "[3,3],[2,2],[1,1]", 1},
               {"cuda", "aten.tanh.default", "[3,3],[2,2],[1,1]", 1}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    char args[64];
    describe(cases[k].device);
    input("x", "f32", "1,3,32,32", NULL);
    node("e", cases[k].op, "$x", "f32", "1,3,32,32");
    node("d", "aten.mul.Tensor", "$e,2.0", "f32", "1,3,32,32");
    snprintf(args, sizeof args, "$d,%s", cases[k].args);
    node("y", "aten.max_pool2d.default", args, "f32", "1,3,16,16");
    holds(cases[k].op, ready("\"y\""), cases[k].kernels, false, 0);
  }
}

/* The norm of each column is found once a column, not once an element; the chosen row of a table is known in its
 * branch alone. */
static void once_a_row(void)
{
  qn_graph_plan *plan = NULL;
  describe("cpu");
  input("x", "f32", "2,20,49", NULL);
  node("s", "aten.mul.Tensor", "$x,$x", "f32", "2,20,49");
  node("m", "aten.mean.dim", "$s,[1],true", "f32", "2,1,49");
  node("e", "aten.add.Tensor", "$m,1.0", "f32", "2,1,49");
  node("r", "aten.sqrt.default", "$e", "f32", "2,1,49");
  node("y", "aten.div.Tensor", "$x,$r", "f32", "2,20,49");
  const char *told = held_plan(&plan, "a norm of columns", ready("\"y\""), 1, true);
  const char *root = strstr(told, "sqrt("), *loop = strstr(told, "(int k");
  for (const char *next = loop; next; next = strstr(next + 1, "(int k")) loop = next;
  check(root && loop && root < loop && occurrences(told, "sqrt(") == 1, "its root stands before the loop\n%s", told);
  qn_graph_plan_destroy(&plan);

  describe("cpu"); /* the root of several loops: it is no element that a row keeps */
  input("x", "f32", "2,20,49", NULL);
  node("m", "aten.mean.dim", "$x,[1],true", "f32", "2,1,49");
  node("r", "aten.exp.default", "$m", "f32", "2,1,49");
  node("d", "aten.mul.Tensor", "$x,$r", "f32", "2,20,49");
  node("n", "aten.mean.dim", "$d,[1],true", "f32", "2,1,49");
  node("s", "aten.sub.Tensor", "$d,$n", "f32", "2,20,49");
  node("y", "aten.mul.Tensor", "$s,$r", "f32", "2,20,49");
  holds("a word of a row in two loops", ready("\"y\",\"r\""), 1, false, 0);

  describe("cpu");
  input("w", "f32", "10,8", NULL);
  input("i", "i64", "1", NULL);
  input("x", "f32", "8,20", NULL);
  node("t", "aten.embedding.default", "$w,$i", "f32", "1,8");
  node("p", "aten.permute.default", "$t,[1,0]", "f32", "8,1");
  node("e", "aten.expand.default", "$p,[8,20]", "f32", "8,20");
  node("c", "aten.cat.default", "[$e,$x],1", "f32", "8,40");
  node("y", "aten.sum.dim_IntList", "$c,[0]", "f32", "40");
  holds("a row of a table in a branch", ready("\"y\""), 1, false, 0);
}

/* PyTorch's rule, along one row: a NaN is the largest and the smallest; of a scan the last of equals, else the first.
 */
static double place_by_rule(const double *x, int64_t n, int64_t step, bool largest, bool scans)
{
  double best = x[0];
  int64_t at = 0;
  for (int64_t k = 1; k < n; k++) {
    const double y = x[k * step];
    const bool beats =
        isnan(y) ? !isnan(best) || scans : !isnan(best) && ((largest ? y > best : y < best) || (scans && y == best));
    if (beats) best = y, at = k;
  }
  return (double)at;
}

static void places_of(const char *device, const char *op, int64_t rows, int64_t length, bool across)
{
  const bool scans = strstr(op, "cum") != NULL, largest = strstr(op, "max") != NULL, both = !strstr(op, "arg");
  char shape[48], result[48], args[16];
  snprintf(shape, sizeof shape, "%lld,%lld", (long long)(across ? length : rows), (long long)(across ? rows : length));
  snprintf(result, sizeof result, "%lld", (long long)rows);
  snprintf(args, sizeof args, "$x,%d", !across);
  const char *out = scans ? shape : result;
  describe(device);
  input("x", "f32", shape, NULL);
  if (both)
    qn_text_add(&text,
                "],\"nodes\":[{\"name\":\"y\",\"op\":\"%s\",\"args\":[{\"ref\":\"x\"},%d],\"results\":[{\"dtype\":"
                "\"f32\",\"shape\":[%s]},{\"dtype\":\"i64\",\"shape\":[%s]}]}",
                op, !across, out, out);
  else
    node("y", op, args, "i64", out);
  has_nodes = true;
  const char *graph = ready(both ? "{\"ref\":\"y\",\"index\":1}" : "\"y\"");
  reference r;
  qn_graph_plan *plan = NULL;
  qn_json_tree tree = {0};
  bool good = !reference_read(&r, graph) && !qn_graph_plan_create(&plan, graph, strlen(graph), NULL);
  if (good) fill_inputs(&r, rows % 2);
  const memory *m = good && run_plan(qn_graph_plan_text(plan), 0, &tree) > 0 ? find("y", both ? 1 : -1) : NULL;
  int64_t wrong = m ? 0 : -1;
  for (int64_t k = 0; m && k < m->n; k++) {
    const int64_t row = !scans   ? k
                        : across ? k % rows
                                 : k / length,
                  n = !scans ? length : 1 + (across ? k / rows : k % length);
    const double *x = r.value[0] + (across ? row : row * length);
    wrong += get_number(m, k) != place_by_rule(x, n, across ? rows : 1, largest, scans);
  }
  check(!wrong, "%s of %lld rows of %lld%s on %s: %lld places are wrong", op, (long long)rows, (long long)length,
        across ? " across" : "", device, (long long)wrong);
  clear();
  qn_json_free(&tree);
  qn_graph_plan_destroy(&plan);
  reference_free(&r);
}

static void places_of_largest(void)
{
  static const char *const ops[] = {"aten.argmax.default", "aten.argmin.default", "aten.max.dim",
                                    "aten.min.dim",        "aten.cummax.default", "aten.cummin.default"};
  static const int64_t lengths[] = {2, 9, 100, 300, 1031};
  for (int o = 0; o < 6; o++)
    for (int k = 0; k < 5; k++) {
      places_of(devices[0], ops[o], 16 + k, lengths[k], (o + k) % 3 == 0);
      places_of(devices[1], ops[o], 17 + k, lengths[k], (o + k) % 3 == 1);
    }
  places_of("cpu", "aten.argmax.default", 1, 131072, false);
}
#endif
