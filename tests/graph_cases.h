/* SPDX-License-Identifier: Apache-2.0 */
/* graph_cases.h - the graphs that graph.c plans and runs. */
#ifndef QN_TESTS_GRAPH_CASES_H
#define QN_TESTS_GRAPH_CASES_H

static const char *const devices[] = {"cpu", "cuda"};

/* A graph of one op on x, both cuts. */
static void one_op(const char *op, const char *args, const char *from, const char *shape, const char *to,
                   const char *result, bool odd)
{
  for (int k = 0; k < 2; k++) {
    describe(devices[k]);
    input("x", from, shape, NULL);
    input("y", from, shape, NULL);
    node("z", op, args, to, result);
    holds(op, ready("\"z\""), 1, odd, 0);
  }
}

/* All words of a type in one kernel: each an output. */
static void all_words(const char *dtype, const char *const *ops, const char *args, const char *to, bool odd)
{
  describe("cpu");
  input("x", dtype, "37", NULL);
  input("y", dtype, "37", NULL);
  char name[32];
  qn_text outputs = {0};
  for (int k = 0; ops[k]; k++) {
    snprintf(name, sizeof name, "z%d", k);
    node(name, ops[k], args, to, "37");
    qn_text_add(&outputs, "%s\"%s\"", k ? "," : "", name);
  }
  holds(ops[0], ready(outputs.at), 0, odd, 0);
  qn_text_free(&outputs);
}

static void words(void)
{
  static const char *const one[] = {"aten.neg.default",   "aten.abs.default",
                                    "aten.sign.default",  "aten.reciprocal.default",
                                    "aten.sqrt.default",  "aten.rsqrt.default",
                                    "aten.exp.default",   "aten.exp2.default",
                                    "aten.log.default",   "aten.log2.default",
                                    "aten.log10.default", "aten.log1p.default",
                                    "aten.expm1.default", "aten.sin.default",
                                    "aten.cos.default",   "aten.tanh.default",
                                    "aten.erf.default",   "aten.sigmoid.default",
                                    "aten.silu.default",  "aten.relu.default",
                                    "aten.floor.default", "aten.ceil.default",
                                    "aten.trunc.default", "aten.round.default",
                                    "aten.clone.default", NULL};
  static const char *const more[] = {
      "aten.gelu.default",        "aten.mish.default",       "aten.softplus.default", "aten.hardtanh.default",
      "aten.hardswish.default",   "aten.leaky_relu.default", "aten.elu.default",      "aten.selu.default",
      "aten.hardsigmoid.default", "aten.relu6.default",      "aten.tan.default",      "aten.asin.default",
      "aten.acos.default",        "aten.atan.default",       "aten.sinh.default",     "aten.cosh.default",
      "aten.asinh.default",       "aten.acosh.default",      "aten.atanh.default",    NULL};
  static const char *const two[] = {
      "aten.add.Tensor",      "aten.sub.Tensor",      "aten.mul.Tensor",    "aten.div.Tensor",  "aten.fmod.Tensor",
      "aten.minimum.default", "aten.maximum.default", "aten.atan2.default", "aten.rsub.Tensor", NULL};
  static const char *const whole[] = {"aten.add.Tensor",      "aten.sub.Tensor",      "aten.mul.Tensor",
                                      "aten.minimum.default", "aten.maximum.default", NULL};
  static const char *const order[] = {"aten.eq.Tensor",           "aten.ne.Tensor",
                                      "aten.lt.Tensor",           "aten.le.Tensor",
                                      "aten.gt.Tensor",           "aten.ge.Tensor",
                                      "aten.logical_and.default", "aten.logical_or.default",
                                      "aten.logical_xor.default", NULL};
  static const char *const types[] = {"f32", "f64", "f16", "bf16"};
  for (int k = 0; k < 4; k++) {
    all_words(types[k], one, "$x", types[k], k == 0);
    all_words(types[k], two, "$x,$y", types[k], k == 0);
    all_words(types[k], order, "$x,$y", "bool", true);
  }
  all_words("f32", more, "$x", "f32", false);
  all_words("f64", more, "$x", "f64", false);
  all_words("i64", whole, "$x,$y", "i64", false);
  all_words("i32", whole, "$x,$y", "i32", false);
  all_words("i64", order, "$x,$y", "bool", false);
  one_op("aten.pow.Tensor_Scalar", "$x,3", "f32", "37", "f32", "37", false);
  one_op("aten.clamp.default", "$x,-1,0.5", "f32", "37", "f32", "37", true);
  one_op("aten.add.Scalar", "$x,2,3", "i64", "37", "i64", "37", false);
  one_op("aten.sigmoid.default", "$x", "i64", "37", "f32", "37", false);
  one_op("aten._to_copy.default", "$x", "f32", "37", "f16", "37", true);
  one_op("aten._to_copy.default", "$x", "f16", "37", "i32", "37", false);
  one_op("aten.gt.Scalar", "$x,0.5", "i64", "37", "bool", "37", false);
}

static void views(void)
{
  one_op("aten.flip.default", "$x,[0,2]", "f32", "3,4,5", "f32", "3,4,5", false);
  one_op("aten.constant_pad_nd.default", "$x,[1,2,0,3],1.5", "f32", "2,3,4", "f32", "2,6,7", false);
  one_op("aten.cat.default", "[$x,$y,$x],1", "f32", "3,4,5", "f32", "3,12,5", false);
  one_op("aten.stack.default", "[$x,$y],1", "i64", "3,4", "i64", "3,2,4", false);
  one_op("aten.triu.default", "$x,1", "f32", "3,4,5", "f32", "3,4,5", true);
  one_op("aten.tril.default", "$x", "f16", "6,6", "f16", "6,6", false);
  for (int k = 0; k < 2; k++) {
    describe(devices[k]);
    input("x", "f32", "6,4,10", "1,6,30"); /* strides of another order, with gaps */
    node("a", "aten.permute.default", "$x,[2,0,1]", "f32", "10,6,4");
    node("b", "aten.slice.Tensor", "$a,0,1,9,2", "f32", "4,6,4");
    node("c", "aten.view.default", "$b,[4,24]", "f32", "4,24");
    node("d", "aten.select.int", "$c,0,-1", "f32", "24");
    node("e", "aten.expand.default", "$d,[5,24]", "f32", "5,24");
    node("f", "aten.mul.Tensor", "$e,2.5", "f32", "5,24");
    node("g", "aten.unsqueeze.default", "$c,0", "f32", "1,4,24");
    node("h", "aten.neg.default", "$g", "f32", "1,4,24");
    holds("views of views", ready("\"f\",\"h\""), 2, false, 0);
    describe(devices[k]);
    input("w", "f32", "4,8", NULL);
    input("i", "i64", "3,5", NULL);
    node("e", "aten.embedding.default", "$w,$i", "f32", "3,5,8");
    node("s", "aten.add.Scalar", "$e,1", "f32", "3,5,8");
    holds("rows of a table", ready("\"s\""), 1, false, 0);
  }
}

/* Results are stored in the strides that are described, where these fill memory. */
static void layouts(void)
{
  for (int k = 0; k < 2; k++) {
    describe(devices[k]);
    input("x", "f32", "2,32,6,10", "1920,1,320,32");
    input("w", "f32", "32,1,1", NULL);
    laid = "1920,1,320,32";
    node("a", "aten.mul.Tensor", "$x,$w", "f32", "2,32,6,10");
    laid = "1920,1,320,32";
    node("b", "aten.relu.default", "$a", "f32", "2,32,6,10");
    holds("neighbouring channels", ready("\"a\",\"b\""), 1, true, 0);
    qn_graph_plan *plan = NULL;
    check(!qn_graph_plan_create(&plan, text.at, text.length, NULL), "a plan of neighbouring channels");
    const char *out = qn_graph_plan_text(plan), *first = strstr(out, "\"strides\":[1920,1,320,32]");
    check(first && strstr(first + 1, "\"strides\":[1920,1,320,32]"), "both results are stored as described");
    check(!strstr(out, "i0[int("), "elements are read in the order of memory:\n%s", out);
    qn_graph_plan_destroy(&plan);
    describe(devices[k]);
    input("x", "f32", "2,32,6,10", "1920,1,320,32");
    node("a", "aten.sigmoid.default", "$x", "f32", "2,32,6,10");
    laid = "192,1,32";
    node("s", "aten.amax.default", "$a,[3]", "f32", "2,32,6");
    laid = "1920,1,320,32";
    node("b", "aten._softmax.default", "$x,1,false", "f32", "2,32,6,10");
    holds("a layout for each result", ready("\"a\",\"s\",\"b\""), 0, false, 0);
    describe(devices[k]); /* windows of neighbouring channels */
    input("x", "f32", "2,32,6,10", "1920,1,320,32");
    laid = "480,1,160,32";
    node("a", "aten.max_pool2d.default", "$x,[2,2],[2,2]", "f32", "2,32,3,5");
    laid = "480,1,160,32";
    node("b", "aten.avg_pool2d.default", "$x,[2,2],[2,2]", "f32", "2,32,3,5");
    holds("windows of neighbouring channels", ready("\"a\",\"b\""), 1, true, 0);
    check(!qn_graph_plan_create(&plan, text.at, text.length, NULL), "a plan of windows");
    out = qn_graph_plan_text(plan);
    check(strstr(out, k ? "i0[int(uint(o) % 32u) + " : "i0[v1 + j]") != NULL, "rows are counted along channels: %s",
          out);
    qn_graph_plan_destroy(&plan);
    describe(devices[k]);
    input("x", "f32", "3,1,4,5", NULL);
    laid = "20,7,1,4"; /* an extent of 1 has any stride */
    node("a", "aten.neg.default", "$x", "f32", "3,1,4,5");
    laid = "40,20,1,4"; /* with gaps: row-major instead */
    node("b", "aten.neg.default", "$a", "f32", "3,1,4,5");
    holds("extents of 1 and gaps", ready("\"a\",\"b\""), 0, false, 0);
    static const struct {
      const char *shape, *strides, *beside, *order; /* pieces of places, of all rows of a channel, with a last one */
    } channels[] = {
        {"2,24,6,17", "2448,1,408,24", "24,1,1", "y = t / 72 * 24 + t % 24, from = t / 24 % 3 * 34"},
        {"2,24,3,80", "5760,1,1920,24", "80", "y = t / 144 * 72 + t % 24 * 3 + t / 48 % 3, from = t / 24 % 2 * 40"},
        {"2,8,1,67", "536,1,536,8", "67", "y = t / 16 * 8 + t % 8, from = t / 8 % 2 * 40"},
        {"2,8,6,17", "816,1,136,8", "17", "y = t / 48 * 48 + t % 8 * 6 + t / 8 % 6"}};
    for (size_t c = 0; c < sizeof channels / sizeof *channels; c++) {
      describe(devices[k]);
      input("x", "f32", channels[c].shape, channels[c].strides);
      input("y", "f32", channels[c].beside, NULL);
      node("a", "aten.add.Tensor", "$x,$y", "f32", channels[c].shape);
      holds("channels from neighbours to apart", ready("\"a\""), 1, false, 0);
      const bool near = strcmp(devices[k], "cpu") == 0;
      check(!qn_graph_plan_create(&plan, text.at, text.length, NULL), "a plan of channels");
      check(!strstr(qn_graph_plan_text(plan), channels[c].order) == !near,
            "on a processor threads in a row have the channels of a place: %s", qn_graph_plan_text(plan));
      qn_graph_plan_destroy(&plan);
    }
  }
}

static void reductions(void)
{
  static const char *const ops[] = {"aten.sum.dim_IntList", "aten.mean.dim", "aten.amax.default", "aten.amin.default",
                                    NULL};
  static const struct {
    const char *shape, *dims, *result;
  } shapes[] = {{"5,7", "[1]", "5"},        {"5,7", "[0]", "7"},      {"3,70,5", "[1]", "3,5"},
                {"2,3,260", "[2]", "2,3"},  {"600,68", "[1]", "600"}, {"2,3,4,5", "[0,2,3]", "3"},
                {"40,1030", "[0]", "1030"}, {"1,2048", "[0,1]", ""},  {"3,1,5", "[1]", "3,5"},
                {"130,100", "[0]", "100"}};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    char args[64];
    snprintf(args, sizeof args, "$x,%s", shapes[s].dims);
    one_op(ops[s % 4], args, s % 3 ? "f32" : "f64", shapes[s].shape, s % 3 ? "f32" : "f64", shapes[s].result, s % 2);
  }
  for (int k = 0; k < 2; k++) { /* few long rows */
    describe(devices[k]);
    input("x", "f32", "4,3,90000", NULL);
    node("m", "aten.mean.dim", "$x,[0,2],true", "f32", "1,3,1");
    node("d", "aten.sub.Tensor", "$x,$m", "f32", "4,3,90000");
    node("a", "aten.amax.default", "$d,[0,2]", "f32", "3");
    holds("few long rows", ready("\"a\",\"m\""), 4, false, 0);
  }
  one_op("aten.sum.default", "$x", "f16", "33,65", "f16", "", false);
  one_op("aten.sum.dim_IntList", "$x,[0]", "bool", "33,65", "i64", "65", false);
  one_op("aten.prod.dim_int", "$x,1", "f32", "4,6", "f32", "4", false);
  one_op("aten.any.dim", "$x,1", "f32", "40,60", "bool", "40", true);
  one_op("aten.all.dim", "$x,0", "i64", "40,60", "bool", "60", false);
  one_op("aten.argmax.default", "$x,1", "f32", "40,300", "i64", "40", true);
  one_op("aten.argmin.default", "$x,0", "f32", "40,300", "i64", "300", true);
  one_op("aten.argmax.default", "$x", "i64", "7,9", "i64", "", false);
  one_op("aten.var.correction", "$x,[1]", "f32", "20,300", "f32", "20", false);
  one_op("aten.linalg_vector_norm.default", "$x,2,[0]", "f32", "50,40", "f32", "40", false);
  one_op("aten.logsumexp.default", "$x,[1]", "f32", "20,100", "f32", "20", true);
  one_op("aten._softmax.default", "$x,-1,false", "f32", "20,100", "f32", "20,100", false);
  one_op("aten._softmax.default", "$x,-1,false", "f16", "600,256", "f16", "600,256", false);
  one_op("aten._log_softmax.default", "$x,1,false", "f32", "4,20,33", "f32", "4,20,33", true);
  one_op("aten.avg_pool2d.default", "$x,[3,3],[2,2],[1,1],false,false", "f32", "2,3,9,8", "f32", "2,3,5,4", false);
  one_op("aten.max_pool2d.default", "$x,[3,2],[2,1],[1,1],[2,1]", "f32", "2,3,11,8", "f32", "2,3,5,9", true);
  one_op("aten._adaptive_avg_pool2d.default", "$x,[2,3]", "f32", "2,3,8,9", "f32", "2,3,2,3", false);
  one_op("aten.upsample_nearest2d.vec", "$x,null,[2.0,4.0]", "f32", "2,3,5,7", "f32", "2,3,10,28", false);
  one_op("aten.upsample_nearest1d.default", "$x,[16],null", "f32", "2,3,8", "f32", "2,3,16", false);
}

/* A GPU's simdgroups of several rows: whole ones and a last one with fewer, packs and single elements. */
static void short_rows(void)
{
  static const char *const rows[][2] = {{"9,12", "9"}, {"70,20", "70"}, {"35,18", "35"},
                                        {"3,9", "3"},  {"33,10", "33"}, {"5,64", "5"}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    one_op("aten._softmax.default", "$x,1,false", k % 2 ? "f32" : "f16", rows[k][0], k % 2 ? "f32" : "f16", rows[k][0],
           true);
    one_op("aten.argmax.default", "$x,1", "f32", rows[k][0], "i64", rows[k][1], true);
    describe("cuda");
    input("x", "f32", rows[k][0], NULL);
    node("s", "aten.sum.dim_IntList", "$x,[1]", "f32", rows[k][1]);
    holds("a row's sum", ready("\"s\""), 1, false, 0);
    qn_graph_plan *plan = NULL;
    check(!qn_graph_plan_create(&plan, text.at, text.length, NULL) &&
              strstr(qn_graph_plan_text(plan), "lanes of a simdgroup a row"),
          "%s is cut by simdgroups", rows[k][0]);
    qn_graph_plan_destroy(&plan);
  }
}

/* A processor's loops: pieces of a row, and rows around the widths of their sums. */
static void pieces(void)
{
  static const char *const flat[] = {"4095", "4096", "4097", "8192", "3,8192", "2,4100", "300,17", "70000"};
  static const char *const rows[] = {"3,31", "3,32", "3,33", "5,127", "5,511", "5,512", "5,513", "2,1000"};
  for (int k = 0; k < 8; k++) {
    one_op("aten.gelu.default", "$x", "f32", flat[k], "f32", flat[k], false);
    one_op("aten._softmax.default", "$x,1,false", "f32", rows[k], "f32", rows[k], true);
    one_op("aten._softmax.default", "$x,1,false", "f16", rows[k], "f16", rows[k], false);
    describe("cpu");
    input("x", "f32", rows[k], NULL);
    node("s", "aten.var.correction", "$x,[0]", "f32", strchr(rows[k], ',') + 1);
    node("o", "aten.add.Tensor", "$x,$s", "f32", rows[k]);
    holds("a row added to all", ready("\"o\""), 0, false, 0);
  }
}

/* Scans in every cut: a thread, a simdgroup, a threadgroup a row, columns; one turn and several, whole and not. */
static void scans(void)
{
  static const struct {
    const char *shape, *dim;
  } shapes[] = {{"5,1", "1"},      {"1,5", "0"},      {"5,2", "1"},     {"7,16", "1"},   {"7,17", "1"},
                {"3,31", "-1"},    {"2,127", "1"},    {"2,128", "1"},   {"2,129", "1"},  {"3,2047", "1"},
                {"2,2048", "1"},   {"1,4099", "1"},   {"2,9000", "1"},  {"600,68", "1"}, {"520,260", "1"},
                {"513,1031", "1"}, {"17,40", "0"},    {"255,33", "0"},  {"256,70", "0"}, {"257,32", "0"},
                {"700,37", "0"},   {"3,70,5", "1"},   {"2,41,64", "1"}, {"33,4,5", "0"}, {"131", "0"},
                {"70,3,20", "0"},  {"20,3,2,2", "-4"}};
  static const char *const types[] = {"f32", "f64", "f16", "bf16", "i64"};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    char sum[64];
    snprintf(sum, sizeof sum, "$x,%s", shapes[s].dim);
    one_op("aten.cumsum.default", sum, types[s % 5], shapes[s].shape, types[s % 5], shapes[s].shape, s % 4 == 0);
    for (int k = 0; k < 2; k++) { /* factors of a half, 1 and 2: a product is exact, and its logarithm says all of it */
      const char *type = types[(s + 1) % 2];
      char args[64];
      describe(devices[k]);
      input("x", type, shapes[s].shape, NULL);
      node("a", "aten.sign.default", "$x", type, shapes[s].shape);
      node("b", "aten.exp2.default", "$a", type, shapes[s].shape);
      snprintf(args, sizeof args, "$b,%s", shapes[s].dim);
      node("c", "aten.cumprod.default", args, type, shapes[s].shape);
      node("l", "aten.logcumsumexp.default", sum, type, shapes[s].shape);
      node("d", "aten.log2.default", "$c", type, shapes[s].shape);
      holds("a product and a sum of exponentials", ready("\"d\",\"l\""), 1, s % 5 == 1, 0);
    }
  }
  for (int k = 0; k < 2; k++) { /* few long rows, across memory too */
    describe(devices[k]);
    input("x", "f32", "3,65536", NULL);
    node("a", "aten.sign.default", "$x", "f32", "3,65536");
    node("t", "aten.permute.default", "$a,[1,0]", "f32", "65536,3");
    node("c", "aten.cumsum.default", "$t,0", "f32", "65536,3");
    node("e", "aten.mul.Tensor", "$x,0.0078125", "f32", "3,65536");
    node("b", "aten.add.Scalar", "$e,1", "f32", "3,65536");
    node("p", "aten.cumprod.default", "$b,1", "f64", "3,65536");
    node("l", "aten.log2.default", "$p", "f64", "3,65536");
    node("o", "aten.neg.default", "$c", "f32", "65536,3");
    holds("few long rows", ready("\"o\",\"l\""), 0, false, 0);
  }
  one_op("aten.cumsum.default", "$x,0", "f32", "", "f32", "", false);
  one_op("aten.cumsum.default", "$x,1", "bool", "40,300", "i64", "40,300", false);
  one_op("aten.cumsum.default", "$x,0", "i32", "40,300", "i64", "40,300", false);
  one_op("aten.cumprod.default", "$x,1", "i64", "6,9", "i64", "6,9", false);
}

/* What stands before and behind a scan is in its kernel. */
static void scan_fusions(void)
{
  static const struct {
    const char *shape, *rows, *longer, *fewer, *slice;
  } shapes[] = {{"3,8", "3,1", "3,9", "2,9", "$c,0,0,2"},
                {"4,300", "4,1", "4,301", "3,301", "$c,0,0,3"},
                {"600,256", "600,1", "600,257", "599,257", "$c,0,0,599"},
                {"9,1500", "9,1", "9,1501", "8,1501", "$c,0,0,8"}};
  for (int k = 0; k < 8; k++) {
    const char *shape = shapes[k / 2].shape, *rows = shapes[k / 2].rows, *device = devices[k % 2];
    const char *longer = shapes[k / 2].longer, *fewer = shapes[k / 2].fewer;
    describe(device);
    input("x", "f32", shape, NULL);
    input("m", "bool", shape, NULL);
    node("w", "aten.where.self", "$m,$x,0", "f32", shape);
    node("c", "aten.cumsum.default", "$w,1", "f32", shape);
    node("s", "aten.sigmoid.default", "$c", "f32", shape);
    node("o", "aten.mul.Tensor", "$s,$x", "f32", shape);
    holds("a masked sum", ready("\"o\",\"c\""), 1, false, k < 4);
    describe(device);
    input("x", "f16", shape, NULL);
    node("a", "aten.flip.default", "$x,[1]", "f16", shape);
    node("c", "aten.cumsum.default", "$a,1", "f16", shape);
    node("f", "aten.flip.default", "$c,[1]", "f16", shape);
    node("o", "aten.mul.Tensor", "$f,$x", "f16", shape);
    holds("a reverse sum", ready("\"o\""), 1, false, k < 4);
    describe(device);
    input("x", "f32", shape, NULL);
    node("z", "aten.slice.Tensor", "$x,1,0,1", "f32", rows);
    node("l", "aten.sub.Tensor", "$z,$z", "f32", rows);
    node("a", "aten.cat.default", "[$l,$x],1", "f32", longer);
    node("c", "aten.cumsum.default", "$a,1", "f32", longer);
    node("o", "aten.slice.Tensor", shapes[k / 2].slice, "f32", fewer);
    node("p", "aten.clone.default", "$o", "f32", fewer);
    holds("an exclusive sum", ready("\"c\",\"p\""), 2, false, k < 4);
    describe(device); /* sums of sums, and reductions before and behind */
    input("x", "f64", shape, NULL);
    node("m", "aten.mean.dim", "$x,[1],true", "f64", rows);
    node("d", "aten.sub.Tensor", "$x,$m", "f64", shape);
    node("c", "aten.cumsum.default", "$d,1", "f64", shape);
    node("e", "aten.add.Tensor", "$c,$d", "f64", shape);
    node("g", "aten.cumsum.default", "$e,1", "f64", shape);
    node("h", "aten.abs.default", "$g", "f64", shape);
    node("t", "aten.amax.default", "$h,[1],true", "f64", rows);
    node("o", "aten.div.Tensor", "$g,$t", "f64", shape);
    holds("sums of sums", ready("\"o\""), 1, false, k < 4);
    describe(device);
    input("x", "f32", "40,90", "1,50");
    node("a", "aten.permute.default", "$x,[1,0]", "f32", "90,40");
    node("c", "aten.cumsum.default", k & 2 ? "$a,0" : "$a,1", "f32", "90,40");
    node("o", "aten.neg.default", "$c", "f32", "90,40");
    holds("a view's sum", ready("\"o\""), 1, true, 0);
  }
}

/* What belongs into one kernel is one. */
static void fusions(void)
{
  for (int k = 0; k < 2; k++) {
    describe(devices[k]);
    input("x", "f32", "64,520", NULL);
    input("b", "f32", "520", NULL);
    input("w", "f32", "520", NULL);
    node("h", "aten.add.Tensor", "$x,$b", "f32", "64,520");
    node("s", "aten.pow.Tensor_Scalar", "$h,2", "f32", "64,520");
    node("m", "aten.mean.dim", "$s,[-1],true", "f32", "64,1");
    node("e", "aten.add.Scalar", "$m,0.00001", "f32", "64,1");
    node("r", "aten.rsqrt.default", "$e", "f32", "64,1");
    node("n", "aten.mul.Tensor", "$h,$r", "f32", "64,520");
    node("o", "aten.mul.Tensor", "$n,$w", "f32", "64,520");
    holds("a residual sum and its norm", ready("\"o\",\"h\""), 1, false, 0);
    describe(devices[k]);
    input("x", "f32", "4,6,5,8", NULL);
    input("w", "f32", "6", NULL);
    qn_text_add(
        &text,
        "],\"nodes\":[{\"name\":\"g\",\"op\":\"aten.native_group_norm.default\",\"args\":[{\"ref\":\"x\"},{\"ref\":"
        "\"w\"},{\"ref\":\"w\"},4,6,40,3,0.00001],\"results\":[{\"dtype\":\"f32\",\"shape\":[4,6,5,8]},"
        "{\"dtype\":\"f32\",\"shape\":[4,3]},{\"dtype\":\"f32\",\"shape\":[4,3]}]}");
    has_nodes = true;
    node("o", "aten.relu.default", "$g", "f32", "4,6,5,8");
    holds("a norm of groups", ready("\"o\",{\"ref\":\"g\",\"index\":2}"), 1, false, 0);
    describe(devices[k]);
    input("x", "f32", "6,40", NULL);
    node("a", "aten.exp.default", "$x", "f32", "6,40");
    node("b", "aten.sum.dim_IntList", "$a,[1],true", "f32", "6,1");
    node("c", "aten.sum.dim_IntList", "$a,[0],true", "f32", "1,40");
    node("d", "aten.add.Tensor", "$b,$c", "f32", "6,40");
    holds("sums along both dimensions", ready("\"d\",\"a\""), 0, false, 0);
    describe(devices[k]);
    input("x", "f32", "70,90", NULL);
    node("a", "aten._softmax.default", "$x,1,false", "f32", "70,90");
    node("t", "aten.permute.default", "$a,[1,0]", "f32", "90,70");
    node("o", "aten.add.Tensor", "$t,1", "f32", "90,70");
    holds("a transposed softmax", ready("\"o\""), 2, false, 0);
    describe(devices[k]);
    input("x", "f32", "6,96", NULL);
    node("a", "aten._softmax.default", "$x,1,false", "f32", "6,96");
    holds("a softmax that is checked", ready("\"a\""), 1, false, 1);
  }
  describe("cuda");
  input("x", "f32", "4,131072", NULL);
  input("b", "f16", "131072", NULL);
  node("o", "aten.add.Tensor", "$x,$b", "f32", "4,131072");
  holds("vectors", ready("\"o\""), 1, false, 0);
}

/* What stays the caller's, with the reason. */
static void strays(void)
{
  static const struct {
    const char *op, *args, *shape, *result, *why;
  } cases[] = {{"aten.mm.default", "$x,$x", "4,4", "4,4", "a product"},
               {"aten.relu.default", "$x", "0,4", "0,4", "no elements"},
               {"aten.relu.default", "$x", "4,4", "4,5", "described shape"},
               {"aten.add.Tensor", "$x,null", "4,4", "4,4", "neither a tensor nor a number"},
               {"aten.relu_.default", "$x", "4,4", "4,4", "no rule"},
               {"aten.permute.default", "$x,[0]", "4,4", "4,4", "order of other dimensions"},
               {"aten.upsample_nearest1d.vec", "$x,[12],null", "1,2,4", "1,2,12", "no power of 2"},
               {"aten.upsample_nearest1d.vec", "$x,null,[2.2]", "1,2,4", "1,2,8", "no quotient of extents"},
               {"aten.upsample_nearest2d.default", "$x,[8,8],2.0,2.2", "1,2,4,4", "1,2,8,8", "no quotient of extents"},
               {"aten.sum.dim_IntList", "$x,[7]", "4,4", "4", "a dimension is not there"}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    qn_graph_plan *plan = NULL;
    describe("cuda");
    input("x", "f32", cases[k].shape, NULL);
    node("y", cases[k].op, cases[k].args, "f32", cases[k].result);
    const char *graph = ready("\"y\"");
    const qn_status status = qn_graph_plan_create(&plan, graph, strlen(graph), NULL);
    const char *out = plan ? qn_graph_plan_text(plan) : "";
    check(!status && strstr(out, "{\"kind\":\"extern\",\"node\":\"y\"}") && strstr(out, cases[k].why),
          "%s of %s is extern: %s", cases[k].op, cases[k].shape, cases[k].why);
    qn_graph_plan_destroy(&plan);
  }
  qn_graph_plan *plan = NULL; /* an op with effects is passed by nothing */
  describe("cuda");
  input("x", "f32", "8", NULL);
  node("a", "aten.exp.default", "$x", "f32", "8");
  node("c", "aten.copy_.default", "$x,$a", "f32", "8");
  node("b", "aten.add.Tensor", "$x,$a", "f32", "8");
  const char *graph = ready("\"b\"");
  qn_graph_plan_create(&plan, graph, strlen(graph), NULL);
  const char *out = plan ? qn_graph_plan_text(plan) : "", *copy = strstr(out, "\"extern\"");
  check(copy && strstr(out, "k0_exp") && strstr(out, "k0_exp") < copy && strstr(out, "k1_add") > copy,
        "a kernel before a copy into its input, one behind it: %s", out);
  qn_graph_plan_destroy(&plan);
}
#endif
