/* SPDX-License-Identifier: Apache-2.0 */
/* graph_convolutions.h - convolutions with kernels of the plan's, against sums element by element. Operands are eighths
 * and sums short, so that every partial sum is exact and results are equal to the last bit. */
#ifndef QN_TESTS_GRAPH_CONVOLUTIONS_H
#define QN_TESTS_GRAPH_CONVOLUTIONS_H

typedef struct convolution_case {
  int n; /* dimensions */
  bool transposed, bias, x_last, w_last, y_last;
  int64_t images, groups, in, out; /* channels of a group */
  int64_t x[3], kernel[3], stride[3], pad[3], apart[3], more[3];
} convolution_case;

static int64_t extent_of(const convolution_case *c, int d)
{
  const int64_t reach = (c->kernel[3 - c->n + d] - 1) * c->apart[d] + 1;
  return c->transposed ? (c->x[d] - 1) * c->stride[d] - 2 * c->pad[d] + reach + c->more[d]
                       : (c->x[d] + 2 * c->pad[d] - reach) / c->stride[d] + 1;
}

static const char *joined(const int64_t *list, int n)
{
  static char texts[8][96];
  static int next;
  char *to = texts[next++ % 8], *at = to;
  *to = 0;
  for (int d = 0; d < n; d++) at += sprintf(at, "%s%lld", d ? "," : "", (long long)list[d]);
  return to;
}

/* Strides with the dimensions in this order, from the outermost. */
static const char *strides_in(const int64_t *shape, int ndim, const int *order, int64_t *strides)
{
  int64_t n = 1;
  for (int k = ndim - 1; k >= 0; k--) strides[order[k]] = n, n *= shape[order[k]];
  return joined(strides, ndim);
}

static double convolution_at(const convolution_case *c, const memory *x, const memory *w, const memory *b,
                             const int64_t *at)
{
  const int64_t group = at[1] / c->out;
  int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2];
  double sum = b ? get_number(b, at[1] * b->strides[0]) : 0;
  for (int64_t ci = 0; ci < c->in; ci++)
    for (int64_t t = 0; t < taps; t++) {
      const int64_t k[3] = {t / (c->kernel[2] * c->kernel[1]), t / c->kernel[2] % c->kernel[1], t % c->kernel[2]};
      int64_t px = at[0] * x->strides[0] + (group * c->in + ci) * x->strides[1], pw;
      if (c->transposed)
        pw = (group * c->in + ci) * w->strides[0] + at[1] % c->out * w->strides[1];
      else
        pw = at[1] * w->strides[0] + ci * w->strides[1];
      bool inside = true;
      for (int d = 0; d < c->n; d++) {
        const int kd = 3 - c->n + d;
        const int64_t reach = c->transposed ? at[2 + d] + c->pad[d] - k[kd] * c->apart[d]
                                            : at[2 + d] * c->stride[d] - c->pad[d] + k[kd] * c->apart[d];
        const int64_t by = c->transposed ? c->stride[d] : 1;
        inside = inside && reach >= 0 && reach % by == 0 && reach / by < c->x[d];
        px += reach / by * x->strides[2 + d];
        pw += k[kd] * w->strides[2 + d];
      }
      if (inside) sum += get_number(x, px) * get_number(w, pw);
    }
  return sum;
}

/* Begins a graph whose convolutions are to have kernels of the plan's. */
static void describe_convolutions(void) { describe("cuda\",\"convolutions\":\"tf32"); }

static void describe_convolution(const convolution_case *c, int64_t *shape, int64_t *strides)
{
  static const int rows[] = {0, 1, 2, 3, 4};
  const int ndim = c->n + 2, taps = 3 - c->n;
  int last[5] = {0}, first[5] = {0}; /* channels innermost; taps, channels of the input, those of the result */
  for (int d = 0; d < c->n; d++) last[1 + d] = 2 + d, first[d] = 2 + d;
  last[ndim - 1] = 1;
  first[c->n] = c->transposed ? 0 : 1, first[c->n + 1] = c->transposed ? 1 : 0;
  int64_t x[5] = {c->images, c->groups * c->in}, w[5], y[5] = {c->images, c->groups * c->out};
  w[0] = c->groups * (c->transposed ? c->in : c->out), w[1] = c->transposed ? c->out : c->in;
  for (int d = 0; d < c->n; d++) x[2 + d] = c->x[d], w[2 + d] = c->kernel[taps + d], y[2 + d] = extent_of(c, d);
  describe_convolutions();
  int64_t ignored[5] = {0};
  input("x", "f32", joined(x, ndim), strides_in(x, ndim, c->x_last ? last : rows, ignored));
  input("w", "f32", joined(w, ndim), strides_in(w, ndim, c->w_last ? first : rows, ignored));
  input("b", "f32", joined(&y[1], 1), NULL);
  char args[512];
  snprintf(args, sizeof args, "$x,$w,%s,[%s],[%s],[%s],%s,[%s],%lld", c->bias ? "$b" : "null", joined(c->stride, c->n),
           joined(c->pad, c->n), joined(c->apart, c->n), c->transposed ? "true" : "false", joined(c->more, c->n),
           (long long)c->groups);
  laid = strides_in(y, ndim, c->y_last ? last : rows, strides);
  node("y", "aten.convolution.default", args, "f32", joined(y, ndim));
  memcpy(shape, y, sizeof y);
}

static bool runs_right(const convolution_case *c, const char *plan, const int64_t shape[5], int check_bodies,
                       const char *graph)
{
  qn_json_tree tree = {0};
  int64_t at[5];
  bool good = run_plan(plan, check_bodies, &tree) == 1;
  const memory *x = find("x", -1), *w = find("w", -1), *b = c->bias ? find("b", -1) : NULL, *y = find("y", -1);
  for (int64_t k = 0; good && y && k < y->n; k++) {
    int64_t rest = k;
    for (int d = y->ndim - 1; d >= 0; d--) at[d] = rest % shape[d], rest /= shape[d];
    const double want = convolution_at(c, x, w, b, at), got = get_number(y, strided_place(y, k));
    if (got != want) good = check(false, "element %lld is %g, not %g", (long long)k, got, want);
  }
  check(good && y, "a convolution of %d dimensions, %lld to %lld channels in %lld groups%s%s%s", c->n, (long long)c->in,
        (long long)c->out, (long long)c->groups, c->transposed ? ", transposed" : "", good ? "" : "\n",
        good ? "" : graph);
  qn_json_free(&tree);
  return good;
}

static bool convolves(const convolution_case *c, int check_bodies)
{
  int64_t shape[5], strides[5];
  reference r;
  qn_graph_plan *plan = NULL;
  describe_convolution(c, shape, strides);
  const char *graph = ready("\"y\"");
  bool good = !reference_read(&r, graph) && !qn_graph_plan_create(&plan, graph, strlen(graph), NULL);
  if (!good) return check(false, "a convolution's plan: %s", graph);
  fill_inputs(&r, false);
  if (taken()) good = runs_right(c, qn_graph_plan_text(plan), shape, check_bodies, graph);
  clear();
  qn_graph_plan_destroy(&plan);
  reference_free(&r);
  return good;
}

static int64_t draw_from(int64_t least, int64_t most) { return least + (int64_t)draw((uint64_t)(most - least + 1)); }

static convolution_case drawn_convolution(void)
{
  static const int64_t channels[] = {1, 2, 3, 4, 5, 8, 12, 16, 20, 36}, outs[] = {1, 3, 8, 12, 16, 24, 36, 72};
  convolution_case c = {.n = (int)draw_from(1, 3),
                        .transposed = draw(2),
                        .bias = draw(2),
                        .x_last = draw(2),
                        .w_last = draw(2),
                        .y_last = draw(2),
                        .images = draw_from(1, 2),
                        .groups = draw(3) ? 1 : draw_from(2, 3),
                        .in = channels[draw(10)],
                        .out = outs[draw(8)],
                        .kernel = {1, 1, 1}};
  if (c.in == 1 && c.out == 1) c.groups = 1;
  for (int d = 0; d < c.n; d++) {
    int64_t *kernel = &c.kernel[3 - c.n + d];
    *kernel = draw_from(1, c.n == 1 ? 7 : 3);
    c.stride[d] = draw_from(1, 3);
    c.apart[d] = draw(3) ? 1 : draw_from(2, 3);
    c.pad[d] = draw_from(0, 2);
    c.more[d] = c.transposed && c.stride[d] > 1 ? draw_from(0, 1) : 0;
    c.x[d] = draw_from(1, c.n == 3 ? 5 : 9);
    while (extent_of(&c, d) < 1) c.x[d]++;
  }
  return c;
}

/* Each channel alone: a sum of windows, which a GPU's thread has of four lines. What is before it is in its kernel,
 * but not where it is dear. */
static void convolutions_of_each_channel_alone(void)
{
  for (int k = 0; k < 12; k++) {
    convolution_case c = drawn_convolution();
    c.transposed = false, c.in = c.out = 1, c.groups = draw_from(2, 5);
    for (int d = 0; d < c.n; d++)
      while (extent_of(&c, d) < 1) c.x[d]++;
    convolves(&c, k < 4);
  }
  const convolution_case lines = {2, false, true,         false,     true,   false,  1,      2,
                                  1, 1,     {1028, 1029}, {1, 3, 3}, {1, 2}, {1, 1}, {1, 1}, {0}};
  convolves(&lines, 0);
  static const struct {
    const char *op;
    int kernels;
  } before[] = {{"aten.relu.default", 1}, {"aten.silu.default", 2}};
  for (int k = 0; k < 2; k++) {
    qn_graph_plan *plan = NULL;
    describe_convolutions();
    input("x", "f32", "2,4,512,516", NULL);
    input("w", "f32", "4,1,5,5", NULL);
    node("a", before[k].op, "$x", "f32", "2,4,512,516");
    node("y", "aten.convolution.default", "$a,$w,null,[1],[2],[1],false,[0],4", "f32", "2,4,512,516");
    const char *graph = ready("\"y\"");
    const qn_status status = qn_graph_plan_create(&plan, graph, strlen(graph), NULL);
    const char *told = qn_graph_plan_text(plan);
    int kernels = 0;
    for (const char *at = told; !status && (at = strstr(at, "\"kind\":\"kernel\"")); at++) kernels++;
    check(kernels == before[k].kernels && strstr(told, "float a0[4];") && strstr(told, "unroll\\\")\\nfor (int k = 0"),
          "%d kernels of %s before a convolution of each channel alone: %s", kernels, before[k].op, told);
    qn_graph_plan_destroy(&plan);
  }
}

static void convolutions(void)
{
  const uint64_t before = state; /* what comes next keeps its numbers */
  convolutions_of_each_channel_alone();
  state = before;
  for (int k = 0; k < 16; k++) {
    const convolution_case c = drawn_convolution();
    convolves(&c, k < 5); /* the first ones with every access watched, which is slow */
  }
  /* Blocks of 128 and 256 places, of 128 columns, and several turns of each. */
  const convolution_case large[] = {
      {2, false, true, true, true, true, 2, 1, 64, 128, {9, 17, 0}, {1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0}},
      {3,
       true,
       true,
       false,
       true,
       false,
       1,
       1,
       32,
       16,
       {4, 9, 10},
       {3, 3, 3},
       {2, 2, 2},
       {1, 1, 1},
       {1, 1, 1},
       {1, 1, 1}},
      {3, false, false, false, true, false, 2, 1, 3, 16, {6, 16, 18}, {3, 3, 3}, {1, 1, 1}, {0}, {1, 1, 1}, {0}}};
  for (int k = 0; k < 3; k++) convolves(&large[k], 0);
  static const struct {
    const char *args, *why;
  } none[] = {{"$x,$w,null,[1],[2],[1],true,[0],16", "a transposed convolution of each channel alone"},
              {"$x,$w,null,[1],[0],[1],false,[0],1", "shapes that are no convolution's"},
              {"$x,$w,null,[1,1,1],[0],[1],false,[0],16", "arguments that are no convolution's"},
              {"$x,$w,null,[1],[1],[1],false,[0],16", "shapes that are no convolution's"},
              {"$x,$w,null,[1],[0],[1],true,[0],16", "shapes that are no convolution's"}};
  for (int k = 0; k < 5; k++) {
    qn_graph_plan *plan = NULL;
    describe_convolutions();
    input("x", "f32", "2,16,9,9", NULL);
    input("w", "f32", "16,1,3,3", NULL);
    node("y", "aten.convolution.default", none[k].args, "f32", "2,16,7,7");
    const char *graph = ready("\"y\"");
    const qn_status status = qn_graph_plan_create(&plan, graph, strlen(graph), NULL);
    check(!status && strstr(qn_graph_plan_text(plan), none[k].why), "%s stays the caller's", none[k].why);
    qn_graph_plan_destroy(&plan);
  }
  qn_graph_plan *large_filter = NULL;
  describe_convolutions();
  input("x", "f32", "1,2,16,16,16", NULL);
  input("w", "f32", "4,2,16,16,16", NULL);
  node("y", "aten.convolution.default", "$x,$w,null,[1],[0],[1],false,[0],1", "f32", "1,4,1,1,1");
  const char *graph = ready("\"y\"");
  check(!qn_graph_plan_create(&large_filter, graph, strlen(graph), NULL) &&
            strstr(qn_graph_plan_text(large_filter), "more than 1024 elements"),
        "a filter whose table has no room stays the caller's");
  qn_graph_plan_destroy(&large_filter);
  refused("{\"device\":\"cuda\",\"convolutions\":\"fp16\",\"inputs\":[],\"nodes\":[],\"outputs\":[\"x\"]}",
          QN_BAD_ARGUMENT, "not \"tf32\"");
  state = before;
}
#endif
